"""Sample around a trained module: chains of Langevin dynamics, their predictions, and what these are worth.

The chains (BAOAB) start at the module as it is and sample the posterior of a `Posterior`, in evaluation mode:
dropout is off and batch norms keep their statistics, so that the loss is a function of the parameters. Each
chain has its own batches (see `heatbath.torch.sampling.batches`). What isn't given is found:

- The stepsize h: chains start at 0.4. They start again at half of it if one diverges, or if after a time of
  2/γ the kinetic temperature is not right by the rule of `heatbath.training.stepsize`, unless half the
  stepsize doesn't help. (The configurational temperature with full gradients would see the bias of the
  parameters, but costs passes over all data.)
- The burn-in: an eighth or a quarter of the steps if after it the chains agree (median R-hat at most 1.1) at
  the right kinetic temperature, otherwise half.
- The spacing of samples: it doubles whenever a chain would have more than `samples`.

The friction γ is 0.3. Measured on 8x8 digits with a dense network and a narrow prior (1500 steps of four
chains, batches of 64 of 1000): at h = 0.4 the median effective size of the predictions is 32 with γ = 0.3
and 11 with γ = 1, and batches heat by 3 to 10 % and 1 to 4 %, more in the output layer; with γ = 0.1 it is 44
at h = 0.2, and they heat by 4 to 13 %. Adaptive Langevin with a ξ for each layer had 5 to 6 at h = 0.2, as
its friction rose to 3 and more, and was no closer to its temperature.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import partial
from itertools import compress
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from heatbath._internal.arviz import for_arviz
from heatbath._internal.checks import POSITIVE, real, shown, whole
from heatbath._internal.interrupts import deferred_interrupts
from heatbath._internal.warnings import (
    DivergedWarning,
    InterruptedWarning,
    NotConvergedWarning,
    OffTemperatureWarning,
    warn,
)
from heatbath.datasets.problem import Floats
from heatbath.datasets.tasks import TASKS, Task
from heatbath.diagnostics.convergence_check import RULE, Convergence
from heatbath.diagnostics.statistics import Estimate
from heatbath.prediction import Prediction
from heatbath.runs.progress import Progress
from heatbath.torch.data import Data, LossFunction, find_data_problems, is_pair, model_device
from heatbath.torch.optim import seeds
from heatbath.torch.optim.chains import Chains
from heatbath.torch.prediction.predict import outputs, predict
from heatbath.torch.prediction.samples import samples_dataset
from heatbath.torch.prediction.states import EXTRA_STATE, select_tensors
from heatbath.torch.sampling import file
from heatbath.torch.sampling.batches import ChainBatches
from heatbath.torch.sampling.records import Diagnosis, PartTemperatures, diagnose, parts_off_temperature
from heatbath.torch.sampling.report import NoiseVariances, Report
from heatbath.torch.sampling.settings import (
    CUSTOM_LOSS,
    TASK_OF_LOSS,
    ArgumentChecks,
    LossName,
    Prior,
    SamplerSettings,
    data_checksum,
    find_loss_problems,
    find_model_problems,
    find_posterior_problems,
    inspect_data,
    mean_loss,
    split_examples,
    split_inputs,
)
from heatbath.torch.sampling.trajectory import Trajectory
from heatbath.training.budget import LENGTH
from heatbath.training.stepsize import UNKNOWN, StepsizeTrial, Verdict, judge_trials

if TYPE_CHECKING:
    import arviz
    import xarray as xr

Loss: TypeAlias = LossName | LossFunction

DEFAULT_BATCH = 128  # examples of a chain at a step
FULL_BATCH_UP_TO = 256  # examples that chains see all at every step, unless a batch size is given
LARGEST_STEPSIZE = 0.4  # the first one that is tried
STEPSIZE_FACTOR = 2.0  # of neighbouring stepsizes that are tried
SMALLEST_STEPSIZE = 1e-4  # below it something else must be wrong
FIRST_CHECK = 500  # steps before the first check whether a run without a given length has converged
PROGRESS_INTERVAL = 0.1  # seconds between two calls of a progress function
SHORTEST_TIME = 1e-9  # seconds, so that no rate is infinite
LONGEST_REASON = 300  # characters of the reason in a message
KIND = "sampler"  # of files
SINGLE = "single/"  # prefix of the tensors of the module as it was given, in files


class RunCall(NamedTuple):
    """A call of `run`: "steps", "seconds" or "auto", the amount, and the step or second at which it ends."""

    kind: str
    amount: float
    end: float


class Sampler:
    """Chains around a trained module: `run` them, then `predict`, `report` and `save`.

    The module is copied and doesn't change; parameters with `requires_grad=False` don't move. How everything
    that isn't given is found is described in the module `heatbath.torch.sampling.sampler`.

    Parameters
    ----------
    model
        A trained module.
    loss
        Name of torch's function, for outputs whose last axis has the classes, or of the shape of the targets;
        or a function of outputs and targets that is the mean over examples of -log likelihood.
    data
        Tensors (x, y), or a loader, whose examples are counted by going through it once.
    task
        For a loss function, the meaning of the outputs: "classes", "binary", "regression" or "counts"; see
        `predict`.
    prior, temperature, noise
        As in `Posterior`. A temperature below 1 gives a cold posterior. The noise of a regression is sampled
        with the parameters unless its standard deviation is given.
    chains
        Number of chains.
    samples
        Largest number of samples of each chain that are kept, at least 8.
    batch
        Number of examples that a chain sees at a step, where data are tensors. By default 128, and all where
        there are at most 256.
    lr
        Stepsize of Langevin dynamics, or "auto" to find it.
    gamma
        Friction of Langevin dynamics.
    seed
        Seed of noise and batches; None to derive one as an optimiser does.

    Attributes
    ----------
    settings : SamplerSettings
        All settings, with what was found out about the data.
    seconds : float
        Time spent in `run`.
    gradients : int
        Number of gradients of mini-batches computed so far, trials of stepsizes included.
    tried : list
        Rejected stepsizes, each with the kinetic temperature at it over the right one (NaN if it diverged).

    Raises
    ------
    ValueError
        If arguments are wrong (the message has all of them), or module, loss and data don't fit together.

    Examples
    --------
    >>> import torch
    >>> from heatbath.torch import Sampler
    >>> X = torch.linspace(-2, 2, 100)[:, None]
    >>> y = (X[:, 0] + 0.5 * torch.randn(100, generator=torch.Generator().manual_seed(0)) > 0).long()
    >>> model = torch.nn.Linear(1, 2)
    >>> fit = torch.optim.LBFGS(model.parameters(), max_iter=50)
    >>> def closure():
    ...     fit.zero_grad()
    ...     loss = torch.nn.functional.cross_entropy(model(X), y) + 0.005 * model.weight.square().sum()
    ...     loss.backward()
    ...     return loss
    >>> loss = fit.step(closure)
    >>> sampler = Sampler(model, "cross_entropy", (X, y), seed=1).run(steps=1000)
    >>> prediction = sampler.predict(X)  # mean, variance, entropy, and disagreement of the networks
    >>> prediction.mean.shape, sampler.report(X, y).averaged["log_loss"].value < 0.4
    (torch.Size([100, 2]), True)
    """

    def __init__(  # noqa: PLR0913 # options by keyword
        self,
        model: nn.Module,
        loss: Loss,
        data: Data,
        *,
        task: Task | None = None,
        prior: Prior = 1.0,
        noise: float | Literal["sampled"] = "sampled",
        temperature: float = 1.0,
        chains: int = 4,
        samples: int = 64,
        batch: int | None = None,
        lr: float | Literal["auto"] = "auto",
        gamma: float = 0.3,
        seed: int | None = None,
    ) -> None:
        """Check all arguments and report every problem at once; then place the chains at the module."""
        checks = ArgumentChecks(*find_model_problems(model), *find_loss_problems(loss, task))
        checks.problems += find_data_problems(data, batch)
        chains = checks.run(whole, "chains", chains, low=1, high=2**31)
        samples = checks.run(whole, "samples", samples, low=8)
        batch = None if batch is None else checks.run(whole, "batch", batch, low=1)
        lr = lr if lr == "auto" else checks.run(real, "lr, unless it is 'auto',", lr, accepted=POSITIVE)
        gamma = checks.run(real, "gamma", gamma, accepted=POSITIVE)
        checks.run(real, "temperature", temperature, accepted=POSITIVE)
        seed = seeds.new_seed() if seed is None else checks.run(whole, "seed", seed, low=0, high=2**63)
        loss_name = loss if isinstance(loss, str) else CUSTOM_LOSS
        if not checks.problems:
            checks.problems += find_posterior_problems(loss_name, prior, noise, temperature)
        checks.refuse("Sampler")

        checked_task: Task = TASK_OF_LOSS.get(loss_name, task)  # type: ignore[assignment]
        function = partial(mean_loss, checked_task) if isinstance(loss, str) else loss
        single = deepcopy(model).eval()
        batches = ChainBatches(data, _batch_size(data, batch), chains, seed, model_device(model))
        properties = inspect_data(single, function, batches, checked_task, named=isinstance(loss, str))
        settings = SamplerSettings(
            **properties._asdict(),
            loss=loss_name,
            task=checked_task,
            prior=list(prior) if isinstance(prior, tuple) else prior,
            noise=noise,
            temperature=temperature,
            chains=chains,
            lr=lr,
            gamma=gamma,
            samples=samples,
            seed=seed,
        )
        self._start(single, settings, function, batches, data_checksum(batches))

    def _start(
        self,
        single: nn.Module,
        settings: SamplerSettings,
        loss: LossFunction,
        data: ChainBatches | None,
        checksum: str,
    ) -> None:
        """Set all attributes of a sampler that has made no steps yet.

        Parameters
        ----------
        single
            The module that the chains start at, in evaluation mode.
        settings
            What is sampled, and how.
        loss
            Function of outputs and targets.
        data
            Training examples; None for a sampler from a file that only predicts.
        checksum
            Checksum of the training examples, which a checkpoint is compared with; "" for a loader.
        """
        self._single = single
        self.settings = settings
        self._loss = loss
        self._data = data
        self._checksum = checksum
        self.seconds = 0.0
        self.gradients = 0
        self.tried: list[tuple[float, float]] = []
        self._calls: list[RunCall] = []
        self._calls_to_repeat: list[RunCall] = []  # calls in a checkpoint, which the user makes a second time
        self._diverged: set[int] = set()  # chains that a warning has named
        first_stepsize = LARGEST_STEPSIZE if settings.lr == "auto" else settings.lr
        self._trajectory = self._start_chains(first_stepsize)

    def _start_chains(self, h: float) -> Trajectory:
        """Return chains at the start, which will move with stepsize h."""
        return Trajectory(self._single, self.settings, self._data, self._loss, h)

    # Running

    def run(
        self,
        *,
        steps: int | None = None,
        seconds: float | None = None,
        progress: Callable[[Progress], None] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        every: float = 60.0,
    ) -> Sampler:
        """Sample for a number of steps or seconds, or until the predictions have converged.

        Without `steps` and `seconds` the limit is 20,000 steps. A further call continues. Steps at rejected
        stepsizes don't count as steps, but take their time. After Ctrl-C the sampler is returned as it is,
        with an `InterruptedWarning`.

        Parameters
        ----------
        steps
            Number of steps of every chain.
        seconds
            Time in seconds.
        progress
            Function that is called with a `Progress` about ten times a second.
        checkpoint
            File with the complete sampler, replaced every `every` seconds and at the end. A new sampler with
            the same settings, model and data continues from it with the same calls, and has the same bits at
            each step as one that was never stopped.
        every
            Seconds between two checkpoints.

        Returns
        -------
        Sampler
            The sampler itself.

        Raises
        ------
        ValueError
            If arguments are wrong, or the checkpoint belongs to another sampler.
        FloatingPointError
            If all chains diverged, or no stepsize is small enough.

        Warns
        -----
        NotConvergedWarning
            If the chains have not converged.
        OffTemperatureWarning
            If they are not at their temperature.
        DivergedWarning
            If some chains diverged.
        """
        checks = ArgumentChecks()
        kind, amount = _run_length(steps, seconds, checks)
        checks.run(real, "every", every, accepted=POSITIVE)
        if progress is not None and not callable(progress):
            checks.problems.append(f"progress must be a function or None, got {shown(progress)}")
        if self._data is None:
            checks.problems.append(
                "there are no data: a sampler from a file can continue after load(path, model, data=)"
            )
        checks.refuse("run")

        if checkpoint is not None and not self._calls and os.path.exists(checkpoint):
            self._adopt_checkpoint(checkpoint)
        call = self._register_call(kind, amount)
        is_finished = self._sample(call, progress, checkpoint, every)
        if checkpoint is not None:
            self.save(checkpoint)
        if not is_finished:
            warn(
                f"interrupted at step {self.step}: the samples so far can be used, and run() continues",
                InterruptedWarning,
            )
        self._warn_of_problems()
        return self

    def _register_call(self, kind: str, amount: float) -> RunCall:
        """Record a call of `run`, and return it with the step or second at which it ends.

        After a checkpoint was adopted, a call must equal the next one in the checkpoint, and ends where that
        one ends.

        Parameters
        ----------
        kind
            "steps", "seconds" or "auto" (steps until the predictions have converged).
        amount
            Number of steps or seconds, at most.
        """
        start = self.seconds if kind == "seconds" else self.step
        call = RunCall(kind, amount, start + amount)
        if self._calls_to_repeat:
            call = self._calls_to_repeat.pop(0)
            if (call.kind, call.amount) != (kind, amount):
                raise ValueError(
                    f"the checkpoint was made by run({call.kind}={call.amount:g}), and this is run({kind}="
                    f"{amount:g}): make the same calls, or continue from it with Sampler.load"
                )
        self._calls.append(call)
        return call

    def _sample(
        self,
        call: RunCall,
        progress: Callable[[Progress], None] | None,
        checkpoint: str | os.PathLike[str] | None,
        every: float,
    ) -> bool:
        """Make the steps of a call of `run`; return False if Ctrl-C came first.

        Parameters
        ----------
        call
            The call, with its end.
        progress
            Function that is called with a `Progress` about ten times a second.
        checkpoint
            File that the sampler is saved to.
        every
            Seconds between two checkpoints.
        """
        start_time = time.perf_counter()
        save_time = start_time  # of the last checkpoint
        report_time = start_time  # of the last call of `progress`
        seconds_before = self.seconds
        first_step = self.step
        with deferred_interrupts() as interrupted:
            while not self._is_done(call):
                if interrupted():
                    return False
                losses = self._advance()
                current_time = time.perf_counter()
                self.seconds = seconds_before + current_time - start_time
                if progress is not None and current_time - report_time >= PROGRESS_INTERVAL:
                    report_time = current_time
                    progress(self._progress(call, first_step, current_time - start_time, losses))
                if checkpoint is not None and current_time - save_time >= every:
                    self.save(checkpoint)
                    save_time = time.perf_counter()
        return True

    def _is_done(self, call: RunCall) -> bool:
        """Return whether a call has reached its end, or has converged where no length was given."""
        if call.kind == "seconds":
            return self.seconds >= call.end
        if self.step >= call.end:
            return True
        if call.kind != "auto" or self.step < FIRST_CHECK:
            return False
        doublings = math.log2(self.step / FIRST_CHECK)  # checks become rarer, as they go through all samples
        return doublings.is_integer() and self.has_converged

    def _progress(self, call: RunCall, first_step: int, spent: float, losses: Tensor) -> Progress:
        """Return the progress of a call of `run`.

        Parameters
        ----------
        call
            The call, with its end.
        first_step
            Number of steps that had been made when it started.
        spent
            Seconds that it has taken.
        losses
            Losses of the last step, (chains,).
        """
        last_step = call.end
        if call.kind == "seconds":
            steps_per_second = max(self.step - first_step, 1) / max(spent, SHORTEST_TIME)
            last_step = self.step + steps_per_second * (call.end - self.seconds)
        temperatures = self._trajectory.last_temperatures()
        is_trial = self.settings.lr == "auto" and self.step <= self._trajectory.trial_steps
        loss = float(losses.mean())
        return Progress(self.step, int(last_step), spent, loss, temperatures, first_step, finding=is_trial)

    def _advance(self) -> Tensor:
        """Make a step of all chains, and return their losses, (chains,).

        While the stepsize is searched, the chains start again at half of it if it proves too large.
        """
        losses = self._trajectory.advance()
        self.gradients += self.settings.chains
        diverged = set((~losses.isfinite()).nonzero().flatten().tolist())
        if self.settings.lr == "auto":
            self._judge_stepsize(has_diverged=bool(diverged))
        elif diverged:
            self._check_diverged(diverged)
        return losses

    def _check_diverged(self, diverged: set[int]) -> None:
        """Warn of chains that have diverged at a given stepsize; raise an error if all have."""
        if len(diverged) == self.settings.chains:
            raise FloatingPointError(
                f"all chains diverged by step {self.step}: choose a smaller lr than {self.lr:g}"
            )
        newly_diverged = diverged - self._diverged
        if newly_diverged:
            numbers = ", ".join(map(str, sorted(diverged)))
            warn(f"chains {numbers} diverged by step {self.step}: a smaller lr may help", DivergedWarning)
        self._diverged |= diverged

    def _judge_stepsize(self, has_diverged: bool) -> None:
        """Restart the chains at half the stepsize if it is too large, which the end of its trial shows.

        It is if a chain `has_diverged`, at any step, or if the kinetic temperature at the end of the trial is
        wrong by the rule of `judge_trials`. A rejected stepsize is added to `tried`.
        """
        trajectory = self._trajectory
        if not has_diverged and trajectory.step != trajectory.trial_steps:
            return

        temperature = UNKNOWN if has_diverged else trajectory.trial_temperature()
        trials = [StepsizeTrial(h, Estimate(ratio, temperature.error)) for h, ratio in self.tried]
        trials.append(StepsizeTrial(trajectory.h, temperature))
        verdict = judge_trials(trials, side_by_side=False)
        if verdict is Verdict.ACCEPTED:
            return
        if verdict is Verdict.COOLER_START and not trajectory.is_heating_up():
            return  # the chains cool down while they run

        self.tried.append((trajectory.h, temperature.value))
        smaller_h = trajectory.h / STEPSIZE_FACTOR
        if smaller_h < SMALLEST_STEPSIZE:
            raise FloatingPointError(
                f"no stepsize down to {trajectory.h:.2g} holds the temperature (at the last it was "
                f"{temperature.value:.2g} times the right one): check the loss and the scales of the data, "
                "or choose larger batches or more friction"
            )
        self._trajectory = self._start_chains(smaller_h)

    # Results

    @property
    def step(self) -> int:
        """Number of steps that every chain has made."""
        return self._trajectory.step

    @property
    def lr(self) -> float:
        """Stepsize."""
        return self._trajectory.h

    @property
    def chains(self) -> Chains:
        """Chains as they are now."""
        return self._trajectory.chains

    @property
    def burn_in(self) -> int:
        """Number of steps before the samples that count, chosen by the samples."""
        return self._diagnose().burn_in

    @property
    def convergence(self) -> Convergence | None:
        """R-hat and effective size of predictions for up to 100 training examples after the burn-in.

        None where there are too few samples or chains.
        """
        return self._diagnose().convergence

    @property
    def has_converged(self) -> bool:
        """True if the worst R-hat is at most 1.1 and the median effective size at least 100."""
        return self._diagnose().has_converged

    def temperatures(self) -> dict[str, PartTemperatures]:
        """Return the kinetic and the configurational temperature of each part after the burn-in.

        Returns
        -------
        dict
            For each part a pair of `Estimate`, in units of the right temperature: both should be 1.
        """
        return self._diagnose().temperatures

    @property
    def noise(self) -> float | None:
        """Mean variance of the data around a regression after the burn-in; None for other losses."""
        return self._mean_noise(self._diagnose())

    def _diagnose(self) -> Diagnosis:
        """Choose the burn-in, and return convergence and temperatures of the samples after it."""
        trajectory = self._trajectory
        return diagnose(trajectory.records, trajectory.step, self.settings.chains, trajectory.parts)

    def _mean_noise(self, diagnosis: Diagnosis) -> float | None:
        """Return the mean variance of the data over samples and living chains; None without a regression."""
        noise = self._noise_variances(diagnosis, diagnosis.alive)
        return None if noise is None else float(np.mean(noise.sampled))

    def _noise_samples(self, diagnosis: Diagnosis) -> Floats:
        """Return the sampled variances of the data after the burn-in, (chains, samples)."""
        records = self._trajectory.records.items()
        variances = [record.noise for step, record in records if step > diagnosis.burn_in]
        return np.stack(variances, axis=1)

    def _states(self, burn_in: int) -> dict[int, dict[str, Tensor]]:
        """Return the samples after the burn-in by their steps: each the state of all chains, stacked."""
        samples = self._trajectory.samples
        pairs = zip(samples.steps, samples, strict=True)
        states = {step: state for step, state in pairs if step > burn_in}
        if not states:
            raise ValueError("there are no samples yet: call run() first")
        return states

    def _networks(self, diagnosis: Diagnosis) -> list[dict[str, Tensor]]:
        """Return all sampled states of the module: those of the living chains after the burn-in.

        A warning names the chains that are left out because they are not finite.
        """
        alive = diagnosis.alive
        if not alive.all():
            diverged = ", ".join(map(str, np.flatnonzero(~alive)))
            warn(
                f"chains {diverged} are not finite, or were not since the burn-in: they are left out",
                DivergedWarning,
            )

        networks: list[dict[str, Tensor]] = []
        for state in self._states(diagnosis.burn_in).values():
            networks += compress(self.chains.states(state), alive)
        return networks

    def _warn_of_problems(self) -> None:
        """Warn if the chains have not converged, or are not at their temperature; with the remedies."""
        diagnosis = self._diagnose()
        if not diagnosis.has_converged:
            reason = _convergence_text(diagnosis.convergence) or "too few samples, or chains, to tell"
            warn(
                f"the chains have not converged in {self.step} steps ({reason}; needed are {RULE.rhat} or "
                f"less and {RULE.ess:.0f} or more): run() continues. Their average may be useful all the "
                "same: see report()",
                NotConvergedWarning,
            )
        remedies = "a smaller lr, more friction"
        if self.settings.separate_batches:
            remedies = f"larger batches, {remedies}"
        self._warn_of_temperature("kinetic", diagnosis, remedies)
        self._warn_of_temperature("configurational", diagnosis, f"{remedies} or more steps")

    def _warn_of_temperature(self, kind: str, diagnosis: Diagnosis, remedies: str) -> None:
        """Warn if the temperature of a kind, "kinetic" or "configurational", is wrong in some part."""
        wrong_ratios = parts_off_temperature(diagnosis.temperatures, kind)
        if not wrong_ratios:
            return
        texts = [f"{part}: {ratio.value:.2f} ± {ratio.error:.2f}" for part, ratio in wrong_ratios.items()]
        warn(
            f"the {kind} temperature is wrong, in units of the right one ({', '.join(texts)}): {remedies} "
            "bring it closer",
            OffTemperatureWarning,
        )

    def __repr__(self) -> str:
        """Return settings, number of steps, samples, convergence and temperatures as lines of text."""
        settings = self.settings
        law = f"{settings.loss}, T = {settings.temperature:g}, prior {settings.prior}"
        search = " (found by kinetic temperatures)" if settings.lr == "auto" else ""
        lines = [
            f"{settings.chains} chains around {type(self._single).__name__}, {law}, {settings.n:,} examples",
            f"{self.step:,} steps at lr = {self.lr:g}{search}, γ = {settings.gamma:g}, batches of "
            f"{settings.batch}, {self.seconds:.1f} s",
        ]
        if self.step:
            lines += self._diagnosis_lines()
        return "\n  ".join(["Sampler(", *lines]) + "\n)"

    def _diagnosis_lines(self) -> list[str]:
        """Return lines of text: number and convergence of the samples, and the temperatures of each part."""
        diagnosis = self._diagnose()
        kept_steps = [step for step in self._trajectory.records if step > diagnosis.burn_in]
        summary = f"{self.settings.chains * len(kept_steps)} samples after {diagnosis.burn_in:,} steps"
        if diagnosis.convergence is not None:
            summary += f", {_convergence_text(diagnosis.convergence)}"
        lines = [summary]
        for part, pair in diagnosis.temperatures.items():
            ratios = f"{pair.kinetic.value:.3f}, configurational {pair.configurational.value:.3f}"
            lines.append(f"temperature of {part}: {ratios} (1 is right)")
        return lines

    # Predictions

    def predict(self, x: object) -> Prediction[Tensor]:
        """Average the predictions of all samples after the burn-in.

        Parameters
        ----------
        x
            What the module takes, an array, or a loader of batches.

        Returns
        -------
        Prediction
            Mean, spread and entropies. For a regression the spread is that of new data, noise included.
        """
        diagnosis = self._diagnose()
        networks = self._networks(diagnosis)
        noise = self._mean_noise(diagnosis)
        return predict(self._single, networks, split_inputs(x), task=self.settings.task, noise=noise)

    def report(self, x: object, y: ArrayLike | Tensor | None = None) -> Report:
        """Compare the averaged prediction with the module as it was given, on examples not trained on.

        Parameters
        ----------
        x, y
            Inputs and targets, tensors or arrays; or x is a loader of both.

        Returns
        -------
        Report
            Log loss, Brier score, calibration error, accuracy, or the scores of the task, with intervals.

        Warns
        -----
        WorseThanSingleWarning
            If the average is worse by more than chance.
        """
        inputs, targets = split_examples(x, y)
        task = self.settings.task
        diagnosis = self._diagnose()
        single = predict(self._single, [self._single.state_dict()], inputs, task=task)
        if TASKS[task].classes:
            averaged = predict(self._single, self._networks(diagnosis), inputs, task=task)
            return Report.of_classes(task, targets, averaged.mean, single.mean)

        states = self._states(diagnosis.burn_in).values()
        by_chain = outputs(self.chains, states, inputs, task=task)
        alive = diagnosis.alive & np.isfinite(by_chain.reshape(len(by_chain), -1)).all(axis=1)
        network_outputs = by_chain[alive].reshape(-1, *by_chain.shape[2:])  # of all chains and samples
        noise = self._noise_variances(diagnosis, alive)
        return Report.of_values(task, targets, network_outputs, single.mean, noise)

    def _noise_variances(self, diagnosis: Diagnosis, alive: NDArray[np.bool_]) -> NoiseVariances | None:
        """Return the variances of the data around sampled and single network; None without a regression.

        `alive` is True for the chains whose networks are in the average, (chains,).
        """
        settings = self.settings
        if settings.loss != "mse_loss":
            return None
        if settings.noise == "sampled":
            sampled = self._noise_samples(diagnosis)[alive].reshape(-1)
            return NoiseVariances(sampled, settings.residual_variance)
        variance = float(settings.noise) ** 2
        return NoiseVariances(np.array([variance]), variance)

    def to_arviz(self, x: object, parameters: bool = False) -> arviz.InferenceData | xr.DataTree:
        """Return the samples after the burn-in for ArviZ, with their predictions for x.

        Parameters
        ----------
        x
            Inputs, as in `predict`.
        parameters
            Add every parameter under its name.

        Returns
        -------
        arviz.InferenceData or xarray.DataTree
            As `Samples.to_arviz`; with `sigma`, the standard deviation of the noise, where it is sampled.
        """
        task = self.settings.task
        diagnosis = self._diagnose()
        states = self._states(diagnosis.burn_in)
        predictions = outputs(self.chains, states.values(), split_inputs(x), task=task)
        group = samples_dataset(self.chains, states, predictions, parameters)
        if task == "regression" and self.settings.noise == "sampled":
            sigma = np.sqrt(self._noise_samples(diagnosis))[group["chain"].values]
            group = group.assign(sigma=(("chain", "draw"), sigma))
        return for_arviz({"posterior": group})

    # Files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything but the architecture and the data to a safetensors file, completely or not at all.

        Parameters
        ----------
        path
            The file; a sampler in it is replaced, and any other file is left alone with an error.
        """
        tensors, course = self._trajectory.pack()
        content = {
            "settings": self.settings.to_plain(),
            "seconds": self.seconds,
            "gradients": self.gradients,
            "tried": [(h, None if math.isnan(ratio) else ratio) for h, ratio in self.tried],
            "calls": self._calls + self._calls_to_repeat,
            "lost": sorted(self._diverged),
            "data": self._checksum,
            "course": course,
        }
        file.write(path, KIND, tensors | self._single_tensors(), content)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        model: nn.Module,
        data: Data | None = None,
        loss: LossFunction | None = None,
    ) -> Sampler:
        """Return the sampler in a file.

        Parameters
        ----------
        path
            File that `save` or a checkpoint wrote.
        model
            A module of the same architecture; its parameters don't matter.
        data
            The same data; None for a sampler that predicts and reports, but doesn't continue.
        loss
            The same loss, where it was a function and the sampler is to continue.

        Raises
        ------
        ValueError
            If the file is damaged, or is not a sampler of this model and these data.
        """
        tensors, content = file.read(path, KIND)
        try:
            settings = SamplerSettings.from_plain(content["settings"])
            checksum = str(content["data"])
            single = _copy_with_tensors(model, tensors)
            function = _missing_loss if loss is None else loss
            if settings.loss in TASK_OF_LOSS:
                function = partial(mean_loss, settings.task)
            if data is not None and function is _missing_loss:
                raise ValueError("its loss was a function: give it as loss=")
            batches = None
            if data is not None:
                batches = _matching_batches(data, settings, checksum, model_device(model))
            sampler = cls.__new__(cls)
            sampler._start(single, settings, function, batches, checksum)
            sampler._restore(tensors, content)
        except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
            reason = " ".join(str(error).split())[:LONGEST_REASON]
            raise ValueError(f"{path} is not a sampler of this model: {reason}") from error
        return sampler

    def _single_tensors(self) -> dict[str, Tensor]:
        """Return the tensors of the module as it was given, by their names in files."""
        tensors = select_tensors(self._single.state_dict())
        return {f"{SINGLE}{name}": tensor for name, tensor in tensors.items()}

    def _restore(self, tensors: Mapping[str, Tensor], content: Mapping[str, Any]) -> None:
        """Continue from the tensors and the content of a file."""
        self.seconds = float(content["seconds"])
        self.gradients = int(content["gradients"])
        self.tried = [(h, math.nan if ratio is None else ratio) for h, ratio in content["tried"]]
        self._calls = [RunCall(*call) for call in content["calls"]]
        self._diverged = set(content["lost"])
        self._trajectory = self._start_chains(float(content["course"]["h"]))
        self._trajectory.unpack(tensors, content["course"])

    def _adopt_checkpoint(self, checkpoint: str | os.PathLike[str]) -> None:
        """Continue from the checkpoint of a sampler with the same settings, module and data.

        Its calls of `run` are kept aside: the user makes them a second time.
        """
        tensors, content = file.read(checkpoint, KIND)
        settings = self.settings.to_plain()
        different = [name for name, setting in content["settings"].items() if settings.get(name) != setting]
        single_in_file = {name: tensor for name, tensor in tensors.items() if name.startswith(SINGLE)}
        if file.digest(self._single_tensors()) != file.digest(single_in_file):
            different.append("model")
        if content["data"] != self._checksum:
            different.append("data")
        if different:
            raise ValueError(
                f"{checkpoint} belongs to a sampler with a different {', '.join(different)}: it is left "
                "alone. Choose another file name, or continue that sampler with Sampler.load"
            )
        self._restore(tensors, content)
        self._calls_to_repeat = self._calls
        self._calls = []


def _run_length(steps: int | None, seconds: float | None, checks: ArgumentChecks) -> tuple[str, float]:
    """Return the kind of length of a call of `run`, and the amount, as in `RunCall`.

    Parameters
    ----------
    steps, seconds
        Arguments of `run`.
    checks
        Checks, which collect what is wrong with them.
    """
    if steps is not None and seconds is not None:
        checks.problems.append("steps and seconds: give one of them, or none")
    length: tuple[str, float] = "auto", LENGTH.steps
    if steps is not None:
        length = "steps", checks.run(whole, "steps", steps, low=1)
    if seconds is not None:
        length = "seconds", checks.run(real, "seconds", seconds, accepted=POSITIVE)
    return length


def _batch_size(data: Data, batch: int | None) -> int | None:
    """Return the number of examples that a chain sees at a step, None for all; `batch` is the user's choice.

    Without a choice it depends on the number of examples.
    """
    if batch is None and is_pair(data) and len(data[0]) <= FULL_BATCH_UP_TO:
        return None
    return batch or DEFAULT_BATCH


def _matching_batches(
    data: Data, settings: SamplerSettings, checksum: str, device: torch.device
) -> ChainBatches:
    """Return the batches of a sampler from a file; refuse data that it has not sampled with.

    Parameters
    ----------
    data
        Training examples that the user gives.
    settings
        Settings in the file.
    checksum
        Checksum of the training examples in the file; "" for a loader.
    device
        Device of the model.
    """
    problems = find_data_problems(data, None)
    if problems:
        raise ValueError("; ".join(problems))
    batch_size = settings.batch if settings.separate_batches else None
    batches = ChainBatches(data, batch_size, settings.chains, settings.seed, device)
    if batches.n != settings.n or data_checksum(batches) != checksum:
        raise ValueError("these are not the data that it has sampled with")
    return batches


def _missing_loss(*_: object) -> Tensor:
    """Refuse to compute a loss, for a sampler from a file whose loss was a function."""
    raise ValueError("the loss of this sampler was a function, and is not in its file: load with loss=")


def _copy_with_tensors(model: nn.Module, tensors: Mapping[str, Tensor]) -> nn.Module:
    """Return a copy of a module in evaluation mode, with the tensors of the single module in a file."""
    single = deepcopy(model).eval()
    names = [name for name in tensors if name.startswith(SINGLE)]
    state = {name.removeprefix(SINGLE): tensors[name] for name in names}
    has_extra_state = any(name.endswith(EXTRA_STATE) for name in single.state_dict())  # it is not in files
    single.load_state_dict(state, strict=not has_extra_state)
    return single


def _convergence_text(convergence: Convergence | None) -> str:
    """Return R-hat and effective size as text; "" where they are not known."""
    if convergence is None:
        return ""
    return f"worst R-hat {convergence.rhat_worst:.2f}, median effective size {convergence.ess:.0f}"
