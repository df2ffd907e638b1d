"""`tune` for a PyTorch model: candidates one after the other, the better half of them going on."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from heatbath._internal.checks import choice, shown, whole
from heatbath._internal.warnings import InterruptedWarning, warn
from heatbath.datasets.tasks import TASKS, Task, each_class
from heatbath.evaluation.metrics import losses
from heatbath.runs.progress import Progress
from heatbath.torch.data import (
    TASK_LOSSES,
    TORCH_ERRORS,
    Data,
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
from heatbath.tuning.halving import FACTOR, Rung, check_outcome, ladder
from heatbath.tuning.search_space import Candidate, Family
from heatbath.tuning.trials import (
    RESERVES,
    RUNGS,
    Trial,
    Trials,
    in_round,
    ranked,
    reserves,
    rounds,
    warn_of_edges,
)

LOOKS = 10  # samples whose predictions are averaged, from the second half of a rung


@dataclass(eq=False)
class Trained:
    """A model, the optimiser that has trained it, and its samples, of the second half of its last rung."""

    model: nn.Module
    optimizer: Optimizer
    samples: Samples


@dataclass(frozen=True, eq=False, repr=False)
class TunedModels(Trials):
    """What `heatbath.torch.tune` has found: the `arguments` of each optimiser, and all that was tried.

    `trained` are the models of the best of each method, as far as they came.
    """

    trained: Mapping[str, Trained]

    @property
    def arguments(self) -> dict[str, dict[str, float]]:
        """The values that were found for each method, by name: keyword arguments."""
        return {name: dict(trial.candidate.values) for name, trial in self.best.items()}

    @property
    def model(self) -> nn.Module:
        """The model of the best of all."""
        return self.trained[self.winner].model

    @property
    def samples(self) -> Samples:
        """Its samples, for `predict`."""
        return self.trained[self.winner].samples


def tune(
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
    loss: Callable[[Tensor, Tensor], Tensor] | None = None,
    seed: int = 0,
    progress: Callable[[Progress], None] | None = None,
) -> TunedModels:
    """Coefficients with which an optimiser serves a model well, found by trying many: `heatbath.tune` for
    PyTorch.

    `make_model` makes a new model at every call. `data` are tensors (X, y), or a loader: batches (inputs,
    targets) that can be gone through again and again. `methods` is one, several in a list, or several in a
    dict with keyword arguments for each; a method is

    - an optimiser of heatbath.torch or its name (`AdLaLa`, "LOL"). Its lr, temperature, friction and the like
      are searched in ranges of their own; a number in their place is kept, and another range is searched:
      `{"AdLaLa": {"lr": hb.between(0.1, 0.4), "tau": 1e-5}, "Adam": {}}`;
    - an optimiser of torch, `{torch.optim.AdamW: {"lr": hb.between(1e-4, 0.1), "weight_decay": 0.01}}`;
    - a function that makes an optimiser of a model and of the arguments in the dict, such as
      `{sgd: {"lr": hb.between(1e-3, 1.0)}}` with `def sgd(model, lr): ...`.

    `candidates` of each method make an eighth of the `steps`, one after the other; the better half of each
    goes on to a quarter, and so on, to the end, every model and optimiser from where it was. They are judged
    `by` the loss or the accuracy of their prediction, averaged over samples from the second half of a rung.
    A candidate whose loss is not finite is out; where all that came to the end are out, the next best of the
    method are trained to the end, three if need be. `SearchEdgeWarning` warns of best values at an end of
    their range. Ctrl-C warns (`InterruptedWarning`) and returns what has been found until then, or is passed
    on if that is nothing.

    - `batch`: examples of a step where data are tensors, 32 unless told.
    - `validation`: what they are judged on, tensors or a loader; or a share of the tensors for training,
      which is set aside. Never give it test data.
    - `task`: "classes" or "regression", by the targets, unless told; "binary" or "counts" (see `predict`).
    - `loss`: what is minimised, a function of outputs and targets; that of the task, unless told, by which
      they are judged in any case.
    - `seed`: the same gives the same answer. All candidates begin at the model that `make_model` makes after
      `torch.manual_seed(seed)` and see the same batches. Torch's generators are as before at the end.
    - `progress`: called after every step; a `Progress` counts the steps of all candidates.

    >>> import torch
    >>> X = torch.linspace(-1, 1, 200)[:, None]
    >>> def make_model():
    ...     return torch.nn.Sequential(torch.nn.Linear(1, 10), torch.nn.Tanh(), torch.nn.Linear(10, 1))
    >>> found = tune(make_model, (X, X.sin()), "LOL", steps=80, candidates=4)
    >>> sorted(found.arguments["LOL"]), found.code()[:14]
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
        model = _made(make_model)
        with counted_anew():
            given, wrong_methods = families(methods, model, seed)
        prepared = prepare_data(data, validation, batch, seed)
        _refuse(wrong_methods + prepared.problems)
        task, wrong_task = find_task(task, loss, model, prepared, by)
        _refuse(wrong_task)
        search = _Search(
            make_model=make_model,
            training=prepared.training,
            judging=prepared.validation,
            families=given,
            counts=rounds(candidates),
            steps=steps,
            by=by,
            task=task,
            loss=TASK_LOSSES[task] if loss is None else loss,
            seed=seed,
            progress=progress,
        )
        found = search.run()
    warn_of_edges(found)
    return found


def _refuse(wrong: list[str]) -> None:
    if wrong:
        raise ValueError(f"tune: {'; '.join(wrong)}")


def _made(make_model: Callable[[], nn.Module]) -> nn.Module:
    model = make_model() if callable(make_model) and not isinstance(make_model, nn.Module) else None
    if not isinstance(model, nn.Module):
        got = make_model if model is None else model
        raise TypeError(f"make_model must be a function that makes a torch module, got {shown(got)}")
    another = make_model()
    if {id(p) for p in model.parameters()} & {id(p) for p in another.parameters()}:
        raise ValueError("make_model must make a new model at every call, and two have the same parameters")
    return model


@dataclass(eq=False)
class _Search:
    make_model: Callable[[], nn.Module]
    training: Iterable[Any]
    judging: Iterable[Any]
    families: list[Family]
    counts: list[int]  # candidates of each method in each round
    steps: int
    by: Literal["loss", "accuracy"]
    task: Task
    loss: Callable[[Tensor, Tensor], Tensor]
    seed: int
    progress: Callable[[Progress], None] | None
    epochs: set[int] = field(default_factory=lambda: {0})  # the steps at which the loader began again
    trials: dict[str, Trial] = field(default_factory=dict)
    alive: dict[str, Trained] = field(default_factory=dict)  # at the end of a rung
    ends: dict[str, Trained] = field(default_factory=dict)  # of each method, the best that goes no further
    begin: float = field(default_factory=time.perf_counter)
    done: int = 0  # steps of all candidates

    def run(self) -> TunedModels:
        """Search in the whole ranges, and then near the best that were found."""
        finished = True
        try:
            for number, count in enumerate(self.counts):
                tried = [
                    one
                    for family in self.families
                    for one in in_round(number, self.counts, family, self.trials, self.by, self.seed)
                ]
                self._halve(ladder(self.steps, count), tried)
            for family in self.families:
                self._replace(family)
        except KeyboardInterrupt:
            self._stop()
            finished = False
        found = Trials(self.families, list(self.trials.values()), self.by, finished=finished)
        check_outcome(found, self.steps, "lr")
        trained = {name: self.ends[trial.name] for name, trial in found.best.items()}
        return TunedModels(found.families, found.trials, found.by, trained, finished=finished)

    def _halve(self, rungs: list[Rung], tried: list[Candidate]) -> None:
        self.trials |= {one.name: Trial(one) for one in tried}
        going, first = [one.name for one in tried], 0
        for place, rung in enumerate(rungs, start=1):
            following = rungs[place].size if place < len(rungs) else 0
            for name in going:
                candidate = self.trials[name].candidate
                one = self.alive.pop(name, None) or self._start(candidate)
                self.trials[name] = replace(self.trials[name], rung=0)  # until it has come further
                scores = self._climb(one, first, rung.steps)
                self.trials[name] = Trial(candidate, place, rung.steps, **scores)
                if not self.trials[name].diverged:
                    self.alive[name] = one
                arrived = [name for name in self.alive if self.trials[name].rung == place]
                self._retire(candidate.family, arrived, following)
            going, first = list(self.alive), rung.steps

    def _replace(self, family: Family) -> None:
        """Where none of a family came to the end, train the next best anew, and to the end."""
        for _ in range(RESERVES):
            for trial in reserves(self.trials, family, self.by, RUNGS, count=1):
                one, first, scores = self._start(trial.candidate), 0, {"diverged": True}
                for rung in ladder(self.steps, 1):
                    scores = self._climb(one, first, rung.steps)
                    first = rung.steps
                    if "diverged" in scores:
                        break
                self.trials[trial.name] = Trial(trial.candidate, RUNGS, first, **scores)
                if not self.trials[trial.name].diverged:
                    self.alive[trial.name] = one
                self._retire(family, list(self.alive), 0)

    def _start(self, candidate: Candidate) -> Trained:
        torch.manual_seed(self.seed)
        model = self.make_model()
        with counted_anew():  # all have the same noise, also where a function makes them
            optimizer = candidate.made(model)
        return Trained(model, optimizer, Samples(model))

    def _retire(self, family: Family, names: list[str], following: int) -> None:
        """Let only the better ones of a family go on, and keep the best of those that do not."""
        for worse in ranked({name: self.trials[name] for name in names}, family, self.by)[following:]:
            self.ends[worse.name] = self.alive.pop(worse.name)
        for worse in ranked({name: self.trials[name] for name in self.ends}, family, self.by)[1:]:
            del self.ends[worse.name]

    def _stop(self) -> None:
        """Leave it at what has been judged."""
        for family in self.families:
            self._retire(family, list(self.alive), 0)
        if not self.ends:
            raise KeyboardInterrupt
        self.trials = {name: trial for name, trial in self.trials.items() if trial.rung}
        tried = [trial.candidate.family for trial in self.trials.values()]
        self.families = [family for family in self.families if family in tried]
        warn(
            f"interrupted after {self.done:,} of {self.work:,} steps: the search is not at its end",
            InterruptedWarning,
        )

    def _climb(self, one: Trained, first: int, last: int) -> dict[str, Any]:
        """Train from a step to another, and judge the samples of the second half."""
        length = last - first
        looks = min(LOOKS, length)
        thin = max(1, length // (2 * looks))
        one.samples = Samples(one.model, burn_in=length - looks * thin, thin=thin, most=max(2, looks))
        device = model_device(one.model)
        for inputs, targets in self._batches(first, last):
            x, y = inputs.to(device), targets.to(device)

            def closure(x: Tensor = x, y: Tensor = y) -> Tensor:
                one.optimizer.zero_grad()
                outputs = one.model(x)
                try:
                    loss = self.loss(outputs, y)
                except TORCH_ERRORS as error:
                    if misfit := find_target_problem(self.task, outputs, y):
                        raise ValueError(f"tune: {misfit}") from error
                    raise
                loss.backward()  # type: ignore[no-untyped-call]
                return loss.detach()

            try:
                loss = float(one.optimizer.step(closure))  # type: ignore[arg-type]
            except OverflowError:
                loss = math.inf
            if not math.isfinite(loss):
                return {"diverged": True}
            one.samples.take()
            self._tell(loss)
        scores = self._judge(one, device)
        return scores if math.isfinite(scores["loss"]) else {"diverged": True}

    def _batches(self, first: int, last: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of the steps from `first` to `last`: the same whether the epoch is begun or resumed."""
        step = max(epoch for epoch in self.epochs if epoch <= first)
        while step < last:
            begin = step
            seed_generators(self.seed, step, self.training)
            batches = iter(self.training)
            while step < last:
                seed_generators(self.seed, step)
                batch = next(batches, None)
                if batch is None:
                    break
                if step >= first:
                    yield check_batch(batch)
                step += 1
            if step == begin:
                raise ValueError("tune: the loader has no more batches: it must be one that can begin again")
            if step < last:
                self.epochs.add(step)

    def _judge(self, one: Trained, device: torch.device) -> dict[str, float]:
        """What the averaged prediction is worth on the validation examples, and the single networks."""
        seed_generators(self.seed, 0, self.judging)
        sums, count = np.zeros(4), 0
        for batch in self.judging:
            inputs, targets = check_batch(batch)
            if not len(targets):
                continue
            x, y = inputs.to(device), targets.detach().cpu().double().numpy().reshape(len(targets), -1)
            said = np.array(
                [predict(one.model, [state], x, task=self.task).mean.numpy() for state in one.samples]
            )
            columns = 1 if TASKS[self.task].classes else said.shape[-1]
            known = not TASKS[self.task].classes or np.isin(y, range(max(2, said.shape[-1]))).all()
            if y.shape != (len(x), columns) or not known:
                raise ValueError(
                    f"tune: validation targets of shape {tuple(targets.shape)}, from {y.min():g} to "
                    f"{y.max():g}, do not go with {self.task!r} and outputs of shape {said.shape[1:]}"
                )
            sums += [value * len(x) for p in (said.mean(axis=0)[None], said) for value in self._values(p, y)]
            count += len(x)
        if not count:
            raise ValueError("tune: there are no validation data: the loader for validation has no batches")
        names = ("loss", "accuracy", "single_loss", "single_accuracy")
        return dict(zip(names, (sums / count).tolist(), strict=True))

    def _values(self, said: Any, y: Any) -> tuple[float, float]:
        """Mean loss and accuracy of predictions (samples, examples, outputs)."""
        everywhere = np.broadcast_to(y, (len(said), *y.shape))
        loss = float(losses(self.task, said, everywhere).mean())
        if not TASKS[self.task].classes:
            return loss, math.nan
        return loss, float(np.mean(each_class(said).argmax(axis=-1) == y[:, 0]))

    def _tell(self, loss: float) -> None:
        self.done += 1
        if self.progress is not None:
            seconds = time.perf_counter() - self.begin
            work = max(self.work, self.done)  # there may be more, where the best diverge
            self.progress(Progress(self.done, work, seconds, loss, {}, finding=True))

    @cached_property
    def work(self) -> int:
        """The steps of all candidates, if none diverges."""
        work = 0
        for number, count in enumerate(self.counts):
            before = 0
            for rung in ladder(self.steps, count):
                sizes = (rung.size if family.ranges else int(number == 0) for family in self.families)
                work += (rung.steps - before) * sum(sizes)
                before = rung.steps
        return work
