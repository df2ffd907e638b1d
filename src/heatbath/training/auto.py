"""Search what `train` is not told: h="auto", steps="auto", `Posterior(prior="auto")` and warm=N.

The search is a pipeline. Each stage starts where the chains of the stage before ended:

1. Warm start: cheap steps of Adam on the same posterior.
2. Prior: short runs, each with the prior widths that suit the samples of the last one (`training.prior`).
3. Stepsize: short runs at a ladder of stepsizes, side by side in one ensemble. The search takes the largest
   stepsize at which no chain diverges and the temperature, measured with full gradients, is within 10 % of τ
   (`training.stepsize`).
4. The run itself: it doubles until its predictions have converged or its budget is spent
   (`training.early_stopping`). If a chain still diverges, or the run is far too hot, it starts again at the
   next smaller stepsize.

The final chains are, bit for bit, those of `train` with the values that were found. The run's plan has these
values, and `run.found` has the record of the search.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from heatbath._internal.checks import whole
from heatbath._internal.warnings import (
    DivergedWarning,
    InterruptedWarning,
    OffTemperatureWarning,
    StaleNoiseWarning,
    warn,
)
from heatbath.datasets import Problem
from heatbath.diagnostics.convergence_check import FEWEST_SAMPLES, Convergence, convergence, has_converged
from heatbath.diagnostics.statistics import Estimate
from heatbath.diagnostics.temperatures import thermal_ratio, thermal_ratios
from heatbath.methods.partition import Partition
from heatbath.methods.schedules import MOST_STEPS, Coefficient
from heatbath.models.dense import MLP
from heatbath.models.likelihood import Likelihood
from heatbath.runs.adaptation_record import Found
from heatbath.runs.continuation import extend_plan, plan_differences, sample_again
from heatbath.runs.launch import simulate
from heatbath.runs.plan import Batch, Plan, RunSettings, batch_size, make_plan
from heatbath.runs.progress import Progress
from heatbath.runs.run import Run, load
from heatbath.training import prior
from heatbath.training.budget import (
    LENGTH,
    TRIAL,
    ladder_for,
    temperature_samples_of_run,
    temperature_samples_of_trial,
    trial_size,
)
from heatbath.training.defaults import warm_plan
from heatbath.training.early_stopping import continue_run
from heatbath.training.stepsize import (
    SEARCH,
    UNKNOWN,
    StepsizeTrial,
    choose_stepsize,
    is_far_too_hot,
    is_right,
    is_surely_off,
    may_be_right,
    search_stepsize,
)

CHANGING = {"steps", "burn_in", "thin", "record", "records", "losses"}  # values of a plan that rounds change


@dataclass(frozen=True)
class RestartRule:
    """Limits on restarts of a run at a smaller stepsize."""

    most_stepsizes: int = 20  # stepsizes tried in all, including the ladder: down to 1/1000 of the largest
    most_hot: int = 2  # restarts of a run far hotter than its trials: after that it isn't the stepsize


RESTART = RestartRule()


@dataclass(frozen=True)
class AutomaticRun:
    """A call of `train` that has to search its start, prior, stepsize or length.

    Parameters
    ----------
    problem, network, partition, batch, chains, settings
        As in `train`.
    first_steps
        Steps of the first round, or of the whole run if its length is given.
    budget
        Largest number of steps of all rounds, or None if the length is given.
    execution
        Options of `train` that don't change results: `threads`, `progress`, `checkpoint`, `every`.
    warm
        Plan of the warm start, or None.
    """

    problem: Problem
    network: MLP
    partition: Partition
    first_steps: int
    batch: Batch
    chains: int
    budget: int | None
    settings: RunSettings
    execution: dict[str, Any] = field(default_factory=dict)
    warm: Plan | None = None

    def run(self) -> Run:
        """Search the start, the prior, the stepsize and the length; return the final run.

        A complete run in the checkpoint is returned as it is; an incomplete one continues.
        """
        former = self._load_checkpoint()
        if former is not None and self._is_complete(former):
            return former
        if former is not None:
            h = former.partition.h  # type: ignore[union-attr]
            return self._with_prior_of(former.plan)._run_with_restarts(former, h, former.found or Found())

        call = self._after_warm_start()
        call, record = call._after_prior_search()
        h = call.partition.h
        if call.partition.finds_stepsize:
            trials = call._try_stepsizes()
            h = choose_stepsize(trials)
            record = replace(record, tried=[(trial.h, trial.temperature.value) for trial in trials])
        return call._run_with_restarts(None, h, record)

    def first_plan(self) -> Plan:
        """Return the plan of the first round at the first stepsize of the search.

        Raises
        ------
        ValueError
            If a method has no temperature, by which results are judged, or there are too few chains or
            samples for R-hat.
        """
        h = TRIAL.largest if self.partition.finds_stepsize else self.partition.h
        plan = self._plan(h)
        thermal = [part.method for part in plan.parts() if part.method.measures_temperature]
        if not thermal or not all(method.temperature and not method.tempering for method in thermal):
            raise ValueError(
                "'auto' needs methods with a temperature above 0 that is not tempered, by which runs are "
                "judged: for other methods give h, steps and the prior as numbers, and no warm steps; got "
                f"{self.partition!r}"
            )
        if self.budget is not None and (plan.chains < 2 or plan.samples < FEWEST_SAMPLES):
            raise ValueError(
                "steps='auto' is judged by R-hat, which needs at least 2 chains and 4 samples, got "
                f"{plan.chains} and {plan.samples}"
            )
        return plan

    @property
    def layer_sizes(self) -> list[int]:
        """Numbers of parameters of the layers."""
        outputs = Likelihood(self.problem, self.partition.posterior).outputs
        return [sum(tensors) for tensors in self.network.layers(self.problem.inputs, outputs).values()]

    # Plans

    def _plan(self, h: Coefficient) -> Plan:
        """Return the plan of the first round at a stepsize."""
        return make_plan(
            self.problem, self.network, self._partition_at(h), self.first_steps, self.batch, self.chains,
            self.settings, call="train",
        )  # fmt: skip

    def _partition_at(self, h: Coefficient) -> Partition:
        """Return the partition with a stepsize, and with the first prior if none has been found yet."""
        partition = self.partition
        if partition.finds_prior:
            partition = partition.at_prior(prior.RULE.start)
        return partition.at_stepsize(h)

    def _short_plan(self, partition: Partition, steps: int, chains: int, settings: RunSettings) -> Plan:
        """Return the plan of a short run, with samples in its second half.

        If the partition has a list of stepsizes, there are `chains` chains at each.
        """
        return make_plan(
            self.problem, self.network, partition, steps, self.batch, chains,
            call="sweep" if partition.axes() else "train", seed=settings.seed, shuffled=settings.shuffled,
            rotated=settings.rotated, momenta=settings.momenta, dtype=settings.dtype, start=settings.start,
            record=1, samples=TRIAL.samples, burn_in=steps // 2,
        )  # fmt: skip

    def _with_prior_of(self, plan: Plan) -> AutomaticRun:
        """Return the call with the prior of a plan that an earlier search has found, and with its start."""
        partition = self.partition
        settings = self.settings
        has_moved_start = self.warm is not None
        if partition.finds_prior and plan.found is not None and plan.found.priors:
            partition = partition.at_prior(plan.found.priors[-1])
            rounds = prior.plan_rounds(self.budget or self.first_steps)
            has_moved_start = has_moved_start or rounds.number > 0
        if has_moved_start:
            settings = replace(settings, start=plan.start, momenta=plan.momenta)
        return replace(self, partition=partition, settings=settings)

    # Stage 1: warm start

    def _after_warm_start(self) -> AutomaticRun:
        """Make the steps of Adam, if there are any; return the call whose chains start where they end.

        If all chains of Adam diverge, the start is unchanged.
        """
        run = None if self.warm is None else self._run_briefly(self.warm)
        if run is None:
            return self
        return replace(self, settings=replace(self.settings, start=_finite_states(run)))

    # Stage 2: prior

    def _after_prior_search(self) -> tuple[AutomaticRun, Found]:
        """Search the prior widths with short runs, if they aren't given.

        Returns
        -------
        tuple
            The call with these widths, whose chains start where the last short run ended; and the record of
            the search.
        """
        if not self.partition.finds_prior:
            begun = "" if self.warm is None else self._checksum_of_start
            return self, Found(begun=begun)

        search = prior.start_search(self.layer_sizes, self.partition.posterior.temperature)  # type: ignore[union-attr]
        rounds = prior.plan_rounds(self.budget or self.first_steps)
        if rounds.number and self.partition.finds_stepsize:
            short = replace(self._at_widths(search), first_steps=rounds.steps, budget=None)
            search = replace(search, h=choose_stepsize(short._try_stepsizes()))
        call, search = self._run_prior_rounds(search, rounds)
        if rounds.number and len(search.widths) == 1:
            warn(
                f"short runs were too hot to find a prior: it stays at {prior.RULE.start:g}. Give a standard "
                "deviation, larger batches or a smaller h",
                OffTemperatureWarning,
            )
        return call, Found(priors=search.widths, begun=self._checksum_of_start)

    def _run_prior_rounds(
        self, search: prior.PriorSearch, rounds: prior.Rounds
    ) -> tuple[AutomaticRun, prior.PriorSearch]:
        """Make the short runs of a search for the prior; return the call after them, and what they found."""
        call = self._at_widths(search)
        for number in range(rounds.number):
            run = call._run_prior_round(number, rounds.steps, search.h)
            has_diverged = run is None or bool((run.died >= 0).any())
            if search.h is not None and has_diverged:
                search = search.with_smaller_stepsize()
                continue
            assert run is not None  # `_run_prior_round` raises if a given stepsize diverges
            search = self._update_widths(search, run)
            settings = replace(self.settings, start=_finite_states(run), momenta="thermal")
            call = replace(self, settings=settings)._at_widths(search)
        return call, search

    def _update_widths(self, search: prior.PriorSearch, run: Run) -> prior.PriorSearch:
        """Return the search for the prior after a short run, from the samples of its stable chains."""
        is_alive = run.died < 0
        samples = run.data["samples"].values[is_alive]
        theta = np.asarray(samples, np.float64).reshape(-1, samples.shape[-1])
        temperature = self._temperature_of(run) if is_alive.all() else UNKNOWN
        return search.after_round(theta, temperature, single_chain=self.chains == 1)

    def _at_widths(self, search: prior.PriorSearch) -> AutomaticRun:
        """Return the call with the latest prior widths of a search."""
        return replace(self, partition=self.partition.at_prior(search.widths[-1]))

    def _run_prior_round(self, number: int, steps: int, h: float | None) -> Run | None:
        """Make the short run of a round, and return it, or None if all chains diverge.

        Parameters
        ----------
        number
            Number of the round, from 0; each has its own seed.
        steps
            Its steps.
        h
            Its stepsize; None for the one that the user has given, which must not diverge.
        """
        seed = int(np.random.SeedSequence((self.settings.seed, number)).generate_state(1)[0])
        stepsize = self.partition.h if h is None else h
        partition = self._partition_at(stepsize)
        settings = replace(self.settings, seed=seed)
        plan = self._short_plan(partition, steps, self.chains, settings)
        run = self._run_briefly(plan)
        if run is None and h is None:
            raise FloatingPointError(
                f"all chains diverge at h = {self.partition.h} while the prior is searched: choose a smaller "
                "h, or more friction"
            )
        return run

    # Stage 3: stepsize

    def _try_stepsizes(self) -> list[StepsizeTrial]:
        """Return short runs at several stepsizes, from which `choose_stepsize` chooses."""
        trials = EngineTrials(self)
        return search_stepsize(trials, ladder_for(trials.size, trials.samples))

    # Stage 4: the run itself

    def _run_with_restarts(self, former: Run | None, h: Coefficient, record: Found) -> Run:
        """Run until converged, and return the final run.

        If the stepsize was searched, a run with chains that diverge or are far too hot starts again at the
        next smaller one.

        Parameters
        ----------
        former
            The run of a checkpoint to continue, or None to start.
        h
            Stepsize.
        record
            Record of the search so far.
        """
        if not self.partition.finds_stepsize:
            return self._finish(self._run_until_converged(former, h, record))

        stepsize = float(h)  # type: ignore[arg-type]
        trial_was_right = any(may_be_right(temperature) for _, temperature in record.tried)
        most_hot_runs = RESTART.most_hot if trial_was_right else 0
        while len(record.tried) <= RESTART.most_stepsizes:
            result = self._run_unless_all_diverge(former, stepsize, record)
            if result is not None and not result.finished:  # Ctrl-C
                return result.run

            temperature = UNKNOWN
            if result is not None and result.all_alive:
                temperature = result.temperature
                if record.restarts >= most_hot_runs or not is_far_too_hot(temperature):
                    return self._finish(result)
                record = replace(record, restarts=record.restarts + 1)

            if self._checkpoint is not None:
                Path(self._checkpoint).unlink(missing_ok=True)
            record = replace(record, tried=(*record.tried, (stepsize, temperature.value)))
            former = None
            stepsize /= SEARCH.factor
        raise FloatingPointError(
            f"some chains diverge even at h = {stepsize * SEARCH.factor:.3g}: check the data and their scales"
        )

    def _run_unless_all_diverge(self, former: Run | None, h: float, record: Found) -> AssessedRun | None:
        """Run until converged, without warning of divergence; return None if all chains diverge."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DivergedWarning)
            try:
                return self._run_until_converged(former, h, record)
            except FloatingPointError:
                return None

    def _run_until_converged(self, former: Run | None, h: Coefficient, record: Found) -> AssessedRun:
        """Run from the start, or continue a checkpoint, in rounds until the predictions have converged."""
        if former is None:
            run = simulate(replace(self._plan(h), found=record), **self.execution)
        else:
            run = former if former.finished else former.resume(**self.execution)
        return continue_run(self._assess(run), self._missing_steps, self._extend)

    def _missing_steps(self, result: AssessedRun) -> int:
        """Return the steps of the next round, which doubles the run; 0 if it's done, or over budget."""
        step = result.run.step
        if self.budget is None or 2 * step > self.budget:
            return 0
        if not result.all_alive or result.has_converged:
            return 0
        return step

    def _extend(self, result: AssessedRun, steps: int) -> AssessedRun:
        """Return the run after another round, with new samples; save its plan in the checkpoint first."""
        run = result.run
        samples = run.plan.samples
        extended = sample_again(run, steps, samples, steps // samples)
        extended = replace(extended, plan=extend_plan(extended.plan, run.step, steps))
        self._report_round(run)
        self._save(extended)
        return self._assess(extended.resume(**self.execution))

    def _finish(self, result: AssessedRun) -> Run:
        """Add temperature and convergence to the record in the run's plan, save the run and return it.

        Warn if the temperature is off. An interrupted run, or one with diverged chains, is returned as it is.
        """
        run = result.run
        if not run.finished or not result.all_alive:
            return run

        temperature = result.temperature
        record = replace(run.found or Found(), temperature=temperature.value, error=temperature.error)
        if self.budget is not None:
            ended: Literal["converged", "budget"] = "converged" if result.has_converged else "budget"
            agreement = result.agreement
            record = replace(record, ended=ended, rhat=agreement.rhat_worst, ess=agreement.ess)
        if is_surely_off(temperature):
            has_small_batches = run.plan.batch < run.problem.X_train.shape[1]
            remedy = "larger batches, a smaller h" if has_small_batches else "a smaller h"
            warn(
                f"the temperature of this run is {temperature.value:.2f} ± {temperature.error:.2f} times "
                f"that of the law it should sample: {remedy} or more steps bring it closer",
                OffTemperatureWarning,
            )
        complete_run = replace(run, plan=replace(run.plan, found=record))
        self._save(complete_run)
        return complete_run

    # Running, measuring and reporting

    def _run_briefly(self, plan: Plan) -> Run | None:
        """Make a short run and return it, or None if all its chains diverge.

        Ctrl-C raises KeyboardInterrupt, because there is no run to return yet.
        """
        progress = self.execution.get("progress")
        report = None if progress is None else lambda latest: progress(replace(latest, finding=True))
        with warnings.catch_warnings():
            for category in (DivergedWarning, InterruptedWarning, StaleNoiseWarning):
                warnings.simplefilter("ignore", category)
            try:
                run = simulate(plan, threads=self.execution.get("threads"), progress=report)
            except FloatingPointError:
                return None
        if not run.finished:
            raise KeyboardInterrupt
        return run

    def _assess(self, run: Run) -> AssessedRun:
        """Return a run that measures its temperature and convergence on demand."""
        return AssessedRun(run, self._temperature_of)

    def _temperature_of(self, run: Run) -> Estimate:
        """Measure the temperature of a run over τ, at the cost of a small share of the run."""
        plan = run.plan
        example_count = run.problem.X_train.shape[1]
        samples = temperature_samples_of_run(
            run.step, plan.chains, plan.batch, plan.parameters, example_count
        )
        return thermal_ratio(run, samples, self.execution.get("threads"))

    def _report_round(self, run: Run) -> None:
        """Report the end of a round to the user's `progress`, with the run so far."""
        progress = self.execution.get("progress")
        if progress is None:
            return
        split = "test" if run.problem.X_test.shape[1] else "train"
        last_losses = run.data["loss"].sel(split=split).values[:, -1]
        last_accuracies = run.data["accuracy"].sel(split=split).values[:, -1]
        loss = float(np.mean(last_losses))
        accuracy = float(np.mean(last_accuracies))
        progress(Progress(run.step, 2 * run.step, 0.0, loss, {}, run.step, accuracy, run=run))

    # Checkpoints

    @property
    def _checkpoint(self) -> str | os.PathLike[str] | None:
        """The path of the checkpoint, if there is one."""
        path: str | os.PathLike[str] | None = self.execution.get("checkpoint")
        return path

    def _save(self, run: Run) -> None:
        """Write the run to the checkpoint, if there is one; warn if that fails."""
        if self._checkpoint is None:
            return
        try:
            run.save(self._checkpoint)
        except (OSError, MemoryError) as error:
            warn(f"the checkpoint at step {run.step} failed, and the run continues: {error}")

    def _load_checkpoint(self) -> Run | None:
        """Return the run in the checkpoint, or None if there is none.

        Raises
        ------
        ValueError
            If it is the run of another call of `train`.
        """
        path = self._checkpoint
        if path is None or not os.path.exists(path):
            return None
        run = load(path, self.problem)
        differences = self._differences_from(run)
        if differences:
            raise ValueError(
                f"{path} is of another run, with other {', '.join(differences)}: it is left alone. Choose "
                "another name, or continue it with load(...).resume(...)"
            )
        return run

    def _differences_from(self, run: Run) -> list[str]:
        """Return the names of arguments in which a run differs from this call; none if it's a run of it.

        Rounds change the length of a run with steps="auto", so that doesn't count then.
        """
        partition = run.plan.partition
        record = run.found
        if not isinstance(partition, Partition) or record is None:
            return ["partition"]

        h = partition.h if self.partition.finds_stepsize else self.partition.h
        plan = self._with_prior_of(run.plan)._plan(h)
        differences = list(plan_differences(plan, run.plan))
        if self.budget is not None:
            differences = [name for name in differences if name not in CHANGING]

        # The run's own plan doesn't show what was searched: its record does.
        searches_start = self.partition.finds_prior or self.warm is not None
        if self.partition.finds_prior and not record.priors:
            differences.append("prior")
        elif searches_start and record.begun != self._checksum_of_start:
            differences.append("start")
        if self.budget is not None and run.plan.samples != self.settings.samples:
            differences.append("samples")
        if self.partition.finds_stepsize and not record.tried:
            differences.append("h")
        return differences

    def _is_complete(self, run: Run) -> bool:
        """Return True if the run has all its steps, and its temperature has been measured."""
        has_temperature = run.found is not None and math.isfinite(run.found.temperature)
        return has_temperature and run.finished and not self._missing_steps(self._assess(run))

    @property
    def _checksum_of_start(self) -> str:
        """A checksum of the user's start, or of the plan of the warm start.

        It identifies the call: the run itself starts where the search of the prior ends.
        """
        if self.warm is not None:
            return hashlib.sha256(json.dumps(self.warm.plain, sort_keys=True).encode()).hexdigest()
        start = self.settings.start
        if start is None:
            return ""
        return hashlib.sha256(np.ascontiguousarray(start, "<f8").tobytes()).hexdigest()


@dataclass(frozen=True, eq=False)
class AssessedRun:
    """A run that measures its temperature and convergence once, on demand.

    Parameters
    ----------
    run
        The run.
    measure_temperature
        Returns the temperature of a run over τ.
    """

    run: Run
    measure_temperature: Callable[[Run], Estimate]

    @property
    def finished(self) -> bool:
        """True if Ctrl-C didn't stop it."""
        return self.run.finished

    @property
    def all_alive(self) -> bool:
        """True if no chain diverged."""
        return bool((self.run.died < 0).all())

    @cached_property
    def temperature(self) -> Estimate:
        """Temperature over τ."""
        return self.measure_temperature(self.run)

    @cached_property
    def agreement(self) -> Convergence:
        """R-hat and effective sample size of the predictions."""
        return convergence(self.run)

    @property
    def has_converged(self) -> bool:
        """True if the predictions have converged and the temperature is right."""
        return has_converged(self.agreement) and is_right(self.temperature)


class EngineTrials:
    """Run a ladder of stepsizes side by side in one ensemble: the engine's `TrialRunner`.

    Attributes
    ----------
    size
        Steps and chains of the short run at each stepsize.
    samples
        Number of samples at each stepsize that measure the temperature.
    """

    def __init__(self, call: AutomaticRun) -> None:
        problem = call.problem
        parameters = sum(call.layer_sizes)
        self._call = call
        self.size = trial_size(call.budget or call.first_steps, call.chains)
        rungs = TRIAL.rungs if self.size.chains > 1 else TRIAL.rungs // 2
        work = self.size.steps * self.size.chains * rungs * batch_size(call.batch, problem)
        self.samples = temperature_samples_of_trial(work, parameters, problem.X_train.shape[1], rungs)

    def run_trials(self, stepsizes: Sequence[float], start: StepsizeTrial | None) -> list[StepsizeTrial]:
        """Run chains at each stepsize, and return trials with their temperatures, from full gradients.

        Parameters
        ----------
        stepsizes
            Stepsizes to run side by side.
        start
            Trial from whose final states the chains start; None for the start of the call.
        """
        call = self._call
        steps, chains = self.size
        settings = call.settings
        if start is not None:
            settings = replace(settings, start=start.states, momenta="thermal")
        elif settings.start is not None and np.ndim(settings.start) == 2:
            run_starts = np.asarray(settings.start)  # one for each chain of the run; trials have fewer chains
            settings = replace(settings, start=np.resize(run_starts, (chains, run_starts.shape[1])))

        partition = call.partition.at_stepsize(list(stepsizes))
        plan = call._short_plan(partition, steps, chains, settings)
        run = call._run_briefly(plan)
        if run is None:
            return [StepsizeTrial(h, UNKNOWN) for h in stepsizes]
        temperatures = thermal_ratios(run, self.samples, call.execution.get("threads"))
        states = run.theta.reshape(len(stepsizes), chains, -1)
        return list(map(StepsizeTrial, stepsizes, temperatures, states))


def _finite_states(run: Run) -> NDArray[Any]:
    """Return θ of all chains of a run, (chains, parameters), with finite chains in place of diverged ones."""
    return np.resize(run.theta[run.died < 0], run.theta.shape)


def prepare_automatic_run(
    problem: Problem,
    network: MLP,
    partition: Partition,
    steps: object,
    batch: Batch,
    chains: int,
    budget: int | None,
    warm: int,
    settings: RunSettings,
) -> AutomaticRun:
    """Check the arguments of `train` with "auto" values or warm steps, and return the call that searches.

    Parameters
    ----------
    problem, network, partition, steps, batch, chains, budget, warm
        As in `train`.
    settings
        The other options of `train` that determine the run.
    """
    if warm and settings.start is not None:
        raise ValueError(f"chains begin at start, or after warm={warm} steps: leave out one of the two")
    if steps == "auto":
        if settings.burn_in is not None or settings.thin is not None:
            raise ValueError("burn_in and thin follow from steps='auto': leave them out")
        most_steps = LENGTH.steps if budget is None else budget
        most_steps = whole("budget", most_steps, low=2**LENGTH.rounds, high=MOST_STEPS)
        first_steps = most_steps // 2 ** (LENGTH.rounds - 1)  # each later round doubles the run
        usual_samples = LENGTH.samples if settings.samples is None else settings.samples
        samples = whole("samples", usual_samples, low=1)
        burn_in = first_steps // 2
        settings = replace(settings, samples=min(samples, first_steps - burn_in), burn_in=burn_in)
    else:
        most_steps = None
        first_steps = whole("steps", steps, low=1, high=MOST_STEPS)

    call = AutomaticRun(problem, network, partition, first_steps, batch, chains, most_steps, settings)
    plan = call.first_plan()
    if not warm:
        return call
    adam = warm_plan(problem, network, partition.posterior, warm, plan.chains, plan.seed, plan.dtype)
    return replace(call, warm=adam)
