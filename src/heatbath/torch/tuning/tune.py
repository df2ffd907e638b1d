"""Tune optimisers for a PyTorch model: train candidates in turn, and continue with the better half."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from heatbath._internal.checks import choice, shown, whole
from heatbath._internal.warnings import InterruptedWarning, warn
from heatbath.datasets.problem import Floats
from heatbath.datasets.tasks import TASKS, Task, each_class
from heatbath.evaluation.metrics import losses
from heatbath.runs.progress import Progress
from heatbath.torch.data import (
    TASK_LOSSES,
    TORCH_ERRORS,
    Data,
    LossFunction,
    PreparedData,
    check_batch,
    find_target_problem,
    find_task,
    model_device,
    prepare_data,
    preserve_random_state,
    seed_generators,
)
from heatbath.torch.optim.seeds import counted_anew
from heatbath.torch.prediction.predict import predict
from heatbath.torch.prediction.samples import Samples
from heatbath.torch.tuning.search_space import Methods, families
from heatbath.tuning.halving import (
    FACTOR,
    Rung,
    SuccessiveHalving,
    check_outcome,
    ladder,
    planned_steps,
    propose_candidates,
    round_sizes,
)
from heatbath.tuning.search_space import Candidate, Family
from heatbath.tuning.trials import RUNGS, Trial, Trials, warn_of_edges

SAMPLES_PER_RUNG = 10  # whose predictions are averaged, from the second half of the rung


@dataclass(eq=False)
class Trained:
    """A model with the optimiser that has trained it.

    Attributes
    ----------
    model : torch.nn.Module
        The model at the end of its last rung.
    optimizer : torch.optim.Optimizer
        Its optimiser.
    samples : Samples
        States of the model from the second half of its last rung.
    """

    model: nn.Module
    optimizer: Optimizer
    samples: Samples


@dataclass(frozen=True, eq=False, repr=False)
class TunedModels(Trials):
    """Result of `heatbath.torch.tune`: the best arguments of each optimiser, and all trials.

    Attributes
    ----------
    trained : dict
        The best model of each method, as a `Trained`, at the end of its last rung.

    Examples
    --------
    >>> X = torch.linspace(-1, 1, 40)[:, None]
    >>> result = tune(lambda: torch.nn.Linear(1, 1), (X, X.sin()), "Langevin", steps=8, candidates=2)
    >>> sorted(result.trained), result.model
    (['Langevin'], Linear(in_features=1, out_features=1, bias=True))
    """

    trained: Mapping[str, Trained]

    @property
    def arguments(self) -> dict[str, dict[str, float]]:
        """Best values for each method, by its name: keyword arguments."""
        return {name: dict(trial.candidate.values) for name, trial in self.best.items()}

    @property
    def model(self) -> nn.Module:
        """Model of the best trial of all."""
        return self.trained[self.winner].model

    @property
    def samples(self) -> Samples:
        """Samples of that model, for `predict`."""
        return self.trained[self.winner].samples


def tune(  # noqa: PLR0913 # options by keyword
    make_model: Callable[[], nn.Module],
    data: Data,
    methods: Methods,
    steps: int = 2000,
    batch: int | None = None,
    *,
    candidates: int = 16,
    by: Literal["loss", "accuracy"] = "loss",
    validation: float | Data = 0.2,
    task: Task | None = None,
    loss: LossFunction | None = None,
    seed: int = 0,
    progress: Callable[[Progress], None] | None = None,
) -> TunedModels:
    """Find good coefficients of optimisers for a model by trying many: `heatbath.tune` for PyTorch.

    The `candidates` of each method make an eighth of the `steps`, one after the other. The better half of
    each method continues to a quarter of the steps, and so on to the end, every model and optimiser from
    where it was. A candidate whose loss is not finite is out. Where all that came to the end are out, the
    next best of the method is trained to the end, up to three times.

    Parameters
    ----------
    make_model
        Function that makes a new model at every call.
    data
        Tensors (X, y), or a loader: batches (inputs, targets) that can be iterated repeatedly.
    methods
        One method, several in a list, or several in a dict with keyword arguments for each. A method is

        - an optimiser of heatbath.torch or its name (`AdLaLa`, "LOL"). Its lr, temperature, friction and the
          like are searched in ranges of its own. A number in their place is kept, and another range is
          searched: `{"AdLaLa": {"lr": hb.between(0.1, 0.4), "tau": 1e-5}, "Adam": {}}`;
        - an optimiser of torch: `{torch.optim.AdamW: {"lr": hb.between(1e-4, 0.1), "weight_decay": 0.01}}`;
        - a function that makes an optimiser of a model and of the arguments in the dict, for example
          `{sgd: {"lr": hb.between(1e-3, 1.0)}}` with `def sgd(model, lr): ...`.
    steps
        Number of steps of a candidate that comes to the end, at least 8.
    batch
        Number of examples of a step where data are tensors, by default 32.
    candidates
        Number of candidates of each method.
    by
        Score that ranks candidates: "loss" or "accuracy" of their prediction for the validation data,
        averaged over samples from the second half of a rung.
    validation
        Validation data, tensors or a loader; or the share of the training tensors that is set aside. Never
        give it test data.
    task
        "classes", "regression", "binary" or "counts" (see `predict`). By default "regression" where targets
        are of floating point, otherwise "classes".
    loss
        Function of outputs and targets that is minimised, by default that of the task. Candidates are ranked
        by the loss of the task in any case.
    seed
        The same seed gives the same result. All candidates start at the model that `make_model` makes after
        `torch.manual_seed(seed)`, and see the same batches. Torch's generators are restored at the end.
    progress
        Function that is called after every step with a `Progress`, which counts the steps of all candidates.

    Returns
    -------
    TunedModels
        The best arguments and model of each method, and a table of all trials.

    Raises
    ------
    ValueError, TypeError
        If arguments are wrong, or don't fit together.
    FloatingPointError
        If every candidate diverges.
    KeyboardInterrupt
        After Ctrl-C, if no candidate has been judged yet.

    Warns
    -----
    SearchEdgeWarning
        If the best value of a coefficient lies at an end of its range.
    InterruptedWarning
        After Ctrl-C: the result is what was found until then.

    Examples
    --------
    >>> import torch
    >>> X = torch.linspace(-1, 1, 200)[:, None]
    >>> def make_model():
    ...     return torch.nn.Sequential(torch.nn.Linear(1, 10), torch.nn.Tanh(), torch.nn.Linear(10, 1))
    >>> result = tune(make_model, (X, X.sin()), "LOL", steps=80, candidates=4)
    >>> sorted(result.arguments["LOL"]), result.code()[:14]
    (['gamma', 'lr', 'tau'], 'LOL(model, lr=')
    """
    steps = whole("steps", steps, low=FACTOR ** (RUNGS - 1))
    candidates = whole("candidates", candidates, low=1, high=2**16)
    seed = whole("seed", seed, low=0, high=2**63)
    choice("by", by, ("loss", "accuracy"))
    if task is not None:
        choice("task", task, tuple(TASKS))
    for name, function in (("loss", loss), ("progress", progress)):
        if function is not None and not callable(function):
            raise TypeError(f"{name} must be a function or None, got {shown(function)}")
    with preserve_random_state(data, validation):
        torch.manual_seed(seed)
        model = _checked_model(make_model)
        with counted_anew():
            searched, method_problems = families(methods, model, seed)
        prepared = prepare_data(data, validation, batch, seed)
        _refuse(method_problems + prepared.problems)
        task, task_problems = find_task(task, loss, model, prepared, by)
        _refuse(task_problems)

        if loss is None:
            loss = TASK_LOSSES[task]
        counts = round_sizes(candidates)
        counter = StepCounter(progress, planned_steps(searched, counts, steps))
        trainer = ModuleTrainer(make_model, prepared, task, loss, by, seed, steps, counter)
        result = _search(trainer, searched, counts)
    warn_of_edges(result)
    return result


def _refuse(problems: list[str]) -> None:
    """Raise one error with all problems, if there are any."""
    if problems:
        raise ValueError(f"tune: {'; '.join(problems)}")


def _checked_model(make_model: Callable[[], nn.Module]) -> nn.Module:
    """Return a model that `make_model` makes; refuse anything but a function that makes new modules.

    It is called twice, to see whether the two models share parameters.
    """
    if not callable(make_model) or isinstance(make_model, nn.Module):
        raise TypeError(f"make_model must be a function that makes a torch module, got {shown(make_model)}")
    model = make_model()
    if not isinstance(model, nn.Module):
        raise TypeError(f"make_model must be a function that makes a torch module, got {shown(model)}")
    parameter_ids = {id(p) for p in model.parameters()}
    second_model = make_model()
    if any(id(p) in parameter_ids for p in second_model.parameters()):
        raise ValueError("make_model must make a new model at every call, and two have the same parameters")
    return model


def _search(trainer: ModuleTrainer, searched: list[Family], counts: list[int]) -> TunedModels:
    """Search in the full ranges and then near the best candidates; return the result, also after Ctrl-C.

    Parameters
    ----------
    trainer
        Trains and judges candidates.
    searched
        The candidates of each method, by ranges of its arguments.
    counts
        Number of candidates of each method in each round.
    """
    by = trainer.by
    halving = SuccessiveHalving(trainer, searched, trainer.steps, by)
    is_finished = True
    try:
        for number, count in enumerate(counts):
            candidates = propose_candidates(number, counts, searched, halving.trials, by, trainer.seed)
            halving.run_round(candidates, count)
        halving.run_finalists(1, RUNGS)
    except KeyboardInterrupt:
        is_finished = False
        _end_early(trainer, halving)

    trials = list(halving.trials.values())
    best = Trials(halving.families, trials, by, finished=is_finished).best
    trained = {name: trainer.finished[trial.candidate.family].trained for name, trial in best.items()}
    result = TunedModels(halving.families, trials, by, trained, finished=is_finished)
    check_outcome(result, trainer.steps, "lr")
    return result


def _end_early(trainer: ModuleTrainer, halving: SuccessiveHalving) -> None:
    """After Ctrl-C, leave only trials and methods whose models are as they were judged, with a warning.

    Parameters
    ----------
    trainer
        The trainer; models that wait for the next rung become finished ones where they are the best.
    halving
        The search, whose trials and families are reduced.

    Raises
    ------
    KeyboardInterrupt
        If no candidate has been judged yet.
    """
    halving.trials.pop(trainer.in_training, None)
    waiting_trials = [halving.trials[name] for name in trainer.waiting if name in halving.trials]
    trainer.drop(waiting_trials)
    if not trainer.finished:
        raise KeyboardInterrupt

    halving.trials = {name: trial for name, trial in halving.trials.items() if trial.rung}
    judged_families = [trial.candidate.family for trial in halving.trials.values()]
    halving.families = [family for family in halving.families if family in judged_families]

    counter = trainer.counter
    warn(
        f"interrupted after {counter.made:,} of {counter.planned:,} steps: the search is incomplete",
        InterruptedWarning,
    )


class StepCounter:
    """Count the steps of all candidates, and report them to a progress function.

    Parameters
    ----------
    progress
        Function of a `Progress`, or None.
    planned
        Steps of the whole search if no candidate diverges.

    Attributes
    ----------
    made, planned : int
        Steps so far, and steps of the whole search if no candidate diverges.
    """

    def __init__(self, progress: Callable[[Progress], None] | None, planned: int) -> None:
        self.progress = progress
        self.planned = planned
        self.made = 0
        self._start = time.perf_counter()

    def add_step(self, loss: float) -> None:
        """Count a step with its loss."""
        self.made += 1
        if self.progress is not None:
            seconds = time.perf_counter() - self._start
            most_steps = max(self.planned, self.made)  # more than planned where the best diverge
            self.progress(Progress(self.made, most_steps, seconds, loss, {}, finding=True))


class FinishedFamily(NamedTuple):
    """A candidate that trains no further, with its model."""

    trial: Trial
    trained: Trained


@dataclass(eq=False)
class ModuleTrainer:
    """Trains one model after the other, and keeps only those that continue: a `CandidateTrainer`.

    Parameters
    ----------
    make_model
        Function that makes a new model.
    data
        Batches for training and validation.
    task
        Meaning of the outputs.
    loss
        Function of outputs and targets that is minimised.
    by
        Score that ranks candidates.
    seed
        Seed of models, noise and batches, the same for all candidates.
    steps
        Steps of a candidate that comes to the end.
    counter
        Counts the steps.
    waiting
        Models of the candidates that may continue, by name.
    finished
        The best candidate of each method among those that don't continue.
    in_training
        Name of the candidate whose model has changed since it was judged; "" for none.
    epoch_starts
        Steps at which the training loader started again.
    """

    make_model: Callable[[], nn.Module]
    data: PreparedData
    task: Task
    loss: LossFunction
    by: Literal["loss", "accuracy"]
    seed: int
    steps: int
    counter: StepCounter
    waiting: dict[str, Trained] = field(default_factory=dict)
    finished: dict[Family, FinishedFamily] = field(default_factory=dict)
    in_training: str = ""
    epoch_starts: set[int] = field(default_factory=lambda: {0})

    def train(self, candidates: Sequence[Candidate], rung: Rung, number: int) -> Iterator[Trial]:
        """Train candidates in turn to the end of a rung, and yield the scores of each.

        Parameters
        ----------
        candidates
            Those that continue, or start.
        rung
            The rung, with the number of steps at its end.
        number
            Number of the rung. At number 1 candidates start with new models.
        """
        is_first_rung = number == 1
        first_step = 0 if is_first_rung else rung.steps // FACTOR
        for candidate in candidates:
            self.in_training = candidate.name
            trained = self._start(candidate) if is_first_rung else self.waiting.pop(candidate.name)
            trial = self._train_steps(candidate, trained, first_step, rung.steps)
            if not trial.diverged:
                self.waiting[candidate.name] = trained
            yield trial
            self.in_training = ""

    def train_again(self, candidates: Sequence[Candidate], attempt: int) -> Iterator[Trial]:
        """Train candidates in turn from the start to the end, and yield the scores of each.

        One that doesn't diverge becomes the finished candidate of its method.

        Parameters
        ----------
        candidates
            The next best candidate of each method whose last ones have diverged.
        attempt
            How often this was done, which doesn't matter here.
        """
        for candidate in candidates:
            trained = self._start(candidate)
            first_step = 0
            for rung in ladder(self.steps, 1):
                trial = self._train_steps(candidate, trained, first_step, rung.steps)
                first_step = rung.steps
                if trial.diverged:
                    break
            else:
                self.finished[candidate.family] = FinishedFamily(trial, trained)
            yield trial

    def drop(self, losers: Sequence[Trial]) -> None:
        """Keep the best of each method among the losers and those dropped before, and forget the others."""
        for trial in losers:
            family = trial.candidate.family
            trained = self.waiting.pop(trial.name)
            best = self.finished.get(family)
            if best is None or trial.worth(self.by) < best.trial.worth(self.by):
                self.finished[family] = FinishedFamily(trial, trained)

    def _start(self, candidate: Candidate) -> Trained:
        """Return a new model with the candidate's optimiser; all candidates have the same seeds."""
        torch.manual_seed(self.seed)
        model = self.make_model()
        with counted_anew():
            optimizer = candidate.made(model)
        return Trained(model, optimizer, Samples(model))

    def _train_steps(self, candidate: Candidate, trained: Trained, start: int, end: int) -> Trial:
        """Train a model, and return the scores of the samples from the second half of these steps.

        Parameters
        ----------
        candidate
            The candidate, which the scores are for.
        trained
            Its model and optimiser, which change. Its samples are replaced.
        start, end
            Numbers of steps before and after the training.
        """
        step_count = end - start
        sample_count = min(SAMPLES_PER_RUNG, step_count)
        thin = max(1, step_count // (2 * sample_count))
        burn_in = step_count - sample_count * thin
        samples = Samples(trained.model, burn_in=burn_in, thin=thin, most=max(2, sample_count))
        trained.samples = samples

        device = model_device(trained.model)
        for inputs, targets in self._iterate_batches(start, end):
            loss = self._train_step(trained, inputs.to(device), targets.to(device))
            if not math.isfinite(loss):
                return Trial(candidate, diverged=True)
            samples.take()
            self.counter.add_step(loss)

        trial = self._judge(candidate, trained)
        if not math.isfinite(trial.loss):
            return Trial(candidate, diverged=True)
        return trial

    def _train_step(self, trained: Trained, x: Tensor, y: Tensor) -> float:
        """Make one step of a model, and return its loss before the step; infinite where it overflows.

        Parameters
        ----------
        trained
            The model with its optimiser, which change.
        x, y
            Inputs and targets of a batch, on the device of the model.
        """

        def closure() -> Tensor:
            """Compute gradients, and return the loss; an error of the loss names targets that don't fit."""
            trained.optimizer.zero_grad()
            outputs = trained.model(x)
            try:
                loss = self.loss(outputs, y)
            except TORCH_ERRORS as error:
                problem = find_target_problem(self.task, outputs, y)
                if not problem:
                    raise
                raise ValueError(f"tune: {problem}") from error
            torch.autograd.backward(loss)
            return loss.detach()

        try:
            return float(trained.optimizer.step(closure))  # type: ignore[arg-type]
        except OverflowError:
            return math.inf

    def _iterate_batches(self, start: int, end: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the training batches (inputs, targets) of the steps from `start` to `end`.

        They are a function of the seed and the step, so that rungs make no difference. If an epoch began
        before `start`, its earlier batches are skipped.
        """
        step = max(epoch_start for epoch_start in self.epoch_starts if epoch_start <= start)
        while step < end:
            epoch_start = step
            for batch in self._iterate_epoch(epoch_start, end):
                if step >= start:
                    yield check_batch(batch)
                step += 1

            if step == epoch_start:
                raise ValueError(
                    "tune: the loader has no more batches: it must be one that can be iterated repeatedly"
                )
            if step < end:
                self.epoch_starts.add(step)

    def _iterate_epoch(self, start: int, end: int) -> Iterator[object]:
        """Yield the training batches of an epoch that begins at step `start`, up to step `end` at most."""
        seed_generators(self.seed, start, self.data.training)
        batches = iter(self.data.training)
        for step in range(start, end):
            seed_generators(self.seed, step)
            batch = next(batches, None)
            if batch is None:
                return
            yield batch

    def _judge(self, candidate: Candidate, trained: Trained) -> Trial:
        """Return the scores of the averaged prediction and of single samples on the validation data.

        Parameters
        ----------
        candidate
            The candidate that the scores are for.
        trained
            Its model and samples.
        """
        seed_generators(self.seed, 0, self.data.validation)
        score_sums = np.zeros(4)  # of the averaged prediction loss and accuracy, and of single samples
        example_count = 0
        for batch in self.data.validation:
            inputs, targets = check_batch(batch)
            if len(targets):
                score_sums += self._batch_scores(trained, inputs, targets) * len(inputs)
                example_count += len(inputs)

        if not example_count:
            raise ValueError("tune: there are no validation data: the loader for validation has no batches")
        loss, accuracy, single_loss, single_accuracy = (score_sums / example_count).tolist()
        return Trial(candidate, 0, 0, loss, accuracy, single_loss, single_accuracy)

    def _batch_scores(self, trained: Trained, inputs: Tensor, targets: Tensor) -> Floats:
        """Return mean loss and accuracy of the averaged prediction for a batch, and of single samples.

        Parameters
        ----------
        trained
            The model and its samples.
        inputs, targets
            The batch.
        """
        model = trained.model
        x = inputs.to(model_device(model))
        y = targets.detach().cpu().double().numpy().reshape(len(targets), -1)
        sample_predictions = [predict(model, [state], x, task=self.task) for state in trained.samples]
        predictions = np.array([prediction.mean.numpy() for prediction in sample_predictions])
        self._check_validation(targets, y, predictions)

        averaged_prediction = predictions.mean(axis=0)[None]
        averaged_scores = self._mean_scores(averaged_prediction, y)
        single_scores = self._mean_scores(predictions, y)
        return np.array([*averaged_scores, *single_scores])

    def _check_validation(self, targets: Tensor, y: Floats, predictions: Floats) -> None:
        """Refuse validation targets that don't fit the predictions.

        Parameters
        ----------
        targets
            The targets as they were given.
        y
            The same as (examples, values).
        predictions
            Predictions of each sample, (samples, examples, outputs).
        """
        example_count = predictions.shape[1]
        output_count = predictions.shape[-1]
        needed_shape = (example_count, output_count)
        has_unknown_class = False
        if TASKS[self.task].classes:
            needed_shape = (example_count, 1)
            class_count = max(2, output_count)  # the outputs for two classes may be a single one
            has_unknown_class = not np.isin(y, range(class_count)).all()
        if y.shape != needed_shape or has_unknown_class:
            raise ValueError(
                f"tune: validation targets of shape {tuple(targets.shape)}, from {y.min():g} to {y.max():g}, "
                f"do not go with {self.task!r} and outputs of shape {predictions.shape[1:]}"
            )

    def _mean_scores(self, predictions: Floats, y: Floats) -> tuple[float, float]:
        """Return mean loss and accuracy over samples and examples; the accuracy is NaN without classes.

        `predictions` are (samples, examples, outputs), and the targets `y` (examples, values).
        """
        repeated_targets = np.broadcast_to(y, (len(predictions), *y.shape))
        loss = float(losses(self.task, predictions, repeated_targets).mean())
        if not TASKS[self.task].classes:
            return loss, math.nan
        likeliest_classes = each_class(predictions).argmax(axis=-1)
        return loss, float(np.mean(likeliest_classes == y[:, 0]))
