"""Stepsizes, lengths and priors that a run finds by itself: `train` with h="auto", steps="auto" or
`Posterior(prior="auto")`; and where its chains begin, with warm=N.

A prior is looked for first, in short runs one after another (see `evidence`), and the run begins where they
ended.

A ladder of stepsizes is tried in one ensemble, a short run for each, as the run itself will be: the largest
is taken at which no chain diverges and the temperature, measured with full gradients (`thermal_ratio`), is
within 10 % of τ. Should a chain of the run diverge all the same, or the run be far too hot, it begins anew at
the next smaller one. It goes on until its predictions have converged, or its budget is spent. Its chains
are, bit for bit, what `train` gives with the numbers found, which are in its plan; how they were found is in
`run.found`.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from heatbath._internal.checks import whole
from heatbath._internal.warnings import DivergedWarning, InterruptedWarning, OffTemperatureWarning, warn
from heatbath.datasets import Problem
from heatbath.diagnostics.convergence_check import convergence, has_converged
from heatbath.diagnostics.statistics import Estimate
from heatbath.diagnostics.temperatures import thermal_ratio
from heatbath.methods.partition import Partition
from heatbath.methods.schedules import MOST_STEPS, Coefficient
from heatbath.models.dense import MLP
from heatbath.runs.adaptation_record import Found
from heatbath.runs.continuation import extend_plan, plan_differences, sample_again
from heatbath.runs.launch import simulate
from heatbath.runs.plan import Batch, Plan, RunSettings, make_plan
from heatbath.runs.progress import Progress
from heatbath.runs.run import Run, load
from heatbath.training import prior
from heatbath.training.defaults import warm_plan
from heatbath.training.stepsize import (
    COOLINGS,
    FACTOR,
    OFF,
    RUNGS,
    SURELY,
    TOP,
    UNKNOWN,
    UNSURE,
    chosen,
    is_hot,
    is_near,
)

TRIES, FEWEST = 4, 2  # of a ladder: lower where all chains diverge, from a cooler start where all are too hot
MOST_RUNGS = 20  # tried in all
MEMBERS, LOOKS = 2, 10  # the chains of a short run, and samples of each in its second half
SHORT, SHORTEST, SHARE = 600, 100, 0.25  # its steps; all of them have this share of the work of the run
JUDGING, FEWEST_LOOKS, MOST_LOOKS = 0.05, 16, 200  # the share of the work for a temperature, and samples
FEW_LOOKS = 8  # at least, where neither AFFORDED, a share of the work, nor CHEAP, about a second, is enough
AFFORDED, CHEAP = 0.5, 1e10  # the latter in parameters x examples
ROUNDS = 4  # of a run of automatic length, each as long as all before, to the budget
BUDGET, SAMPLES = 20_000, 100  # steps, and samples of each chain, where none are given
CHANGING = {"steps", "burn_in", "thin", "record", "records", "losses"}  # from round to round


@dataclass(frozen=True)
class AutomaticRun:
    """A call of `train` that finds something: its arguments, those that decide what is computed (`settings`)
    and the others (`manner`). `first` are the steps of the first round, `budget` None where these are all.
    Where there is a `warm` plan, chains begin where its run ends."""

    problem: Problem
    network: MLP
    partition: Partition
    first: int
    batch: Batch
    chains: int
    budget: int | None
    settings: RunSettings
    manner: dict[str, Any] = field(default_factory=dict)
    warm: Plan | None = None

    def run(self) -> Run:
        """The run with what it found."""
        checkpoint = self.manner.get("checkpoint")
        before = None if checkpoint is None or not os.path.exists(checkpoint) else self._before(checkpoint)
        if before is not None and self._is_complete(before):
            return before
        if before is not None:
            return self._like(before.plan)._run(before, before.found or Found())
        search = self._warmed()
        if not self.partition.finds_prior:
            return search._run(None, Found(begun="" if self.warm is None else self._given_start))
        return search._with_prior()

    def _warmed(self) -> AutomaticRun:
        """The same from where the steps of Adam end, if there are to be any."""
        run = None if self.warm is None else self._short(self.warm)
        if run is None:  # or all of it diverged, and chains begin as others do
            return self
        return replace(
            self,
            settings=replace(self.settings, start=np.resize(run.theta[run.died < 0], run.theta.shape)),
        )

    def _run(self, before: Run | None, found: Found) -> Run:
        """The run with its prior."""
        checkpoint = self.manner.get("checkpoint")
        if not self.partition.finds_stepsize:
            return self._told(self._rounds(before, self.partition.h, found))
        if before is None:
            tried = self._ladder()
            h, found = chosen(tried), replace(found, tried=[(h, e.value) for h, e in tried])
        else:
            h, found = before.partition.h, before.found or Found()  # type: ignore[assignment, union-attr]
        fine = any(abs(temperature - 1) <= OFF + UNSURE for _, temperature in found.tried)
        while len(found.tried) <= MOST_RUNGS:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DivergedWarning)
                try:
                    run, heat = self._rounds(before, h, found), UNKNOWN
                except FloatingPointError:
                    run, heat = None, UNKNOWN
            if run is not None and not run.finished:  # Ctrl-C
                return run
            if run is not None and (run.died < 0).all():
                heat = self._ratio(run)
                if not (fine and found.restarts < COOLINGS and is_hot(heat)):
                    return self._told(run, heat)
                found = replace(found, restarts=found.restarts + 1)
            if checkpoint is not None and os.path.exists(checkpoint):
                os.remove(checkpoint)
            found = replace(found, tried=(*found.tried, (h, heat.value)))
            before, h = None, h / FACTOR
        raise FloatingPointError(
            f"some chains diverge even at h = {h * FACTOR:.3g}: look at the data and their scales"
        )

    def first_plan(self) -> Plan:
        """The plan of the first round at the first stepsize tried; what cannot be judged is refused."""
        plan = self._plan(TOP if self.partition.finds_stepsize else self.partition.h)
        thermal = [part.method for part in plan.parts() if part.method.measures_temperature]
        known = [method.temperature for method in thermal if method.temperature and not method.tempering]
        if len(known) < len(thermal) or not thermal:
            raise ValueError(
                "what is 'auto' is judged by the temperature, so methods need one above 0 that is not "
                "tempered; for others say h, steps and the prior, and no warm steps: got "
                f"{self.partition!r}"
            )
        if self.budget is not None and (plan.chains < 2 or plan.samples < 4):
            raise ValueError(
                "steps='auto' is judged by R-hat, which needs at least 2 chains and 4 samples, got "
                f"{plan.chains} and {plan.samples}"
            )
        return plan

    def _is_complete(self, run: Run) -> bool:
        known = run.found is not None and math.isfinite(run.found.temperature)
        return known and run.finished and not self._goes_on(run)

    def _ratio(self, run: Run) -> Estimate:
        """The temperature of a run, for a small share of the work that it was."""
        plan, rows = run.plan, run.problem.X_train.shape[1]
        share = JUDGING * run.step * plan.chains * plan.batch / rows / 3
        fewest = min(max(self._looks(plan, run.step), FEW_LOOKS), FEWEST_LOOKS)
        looks = int(min(max(share, fewest), MOST_LOOKS))
        return thermal_ratio(run, looks, self.manner.get("threads"))

    @staticmethod
    def _looks(plan: Plan, steps: int) -> float:
        """How many samples can be looked at, with three gradients over all examples each, for a share of the
        work of so many steps, or in little time."""
        rows = plan.problem.X_train.shape[1]
        return float(max(AFFORDED * steps * plan.total * plan.batch, CHEAP / plan.parameters) / (3 * rows))

    def _plan(self, h: Coefficient) -> Plan:
        return make_plan(
            self.problem, self.network, self._at(h), self.first, self.batch, self.chains, self.settings,
            call="train",
        )  # fmt: skip

    def _at(self, h: Coefficient) -> Partition:
        """The partition with a stepsize; and with the first prior, where it is not known."""
        known = self.partition.at_prior(prior.START) if self.partition.finds_prior else self.partition
        return known.at_stepsize(h)

    def _like(self, plan: Plan) -> AutomaticRun:
        """The same with the prior that another run has found, and the start."""
        partition, begins = self.partition, self.warm is not None
        if partition.finds_prior and plan.found is not None and plan.found.priors:
            partition = partition.at_prior(plan.found.priors[-1])
            begins = begins or prior.effort(self.budget or self.first)[0] > 0
        settings = self.settings
        if begins:
            settings = replace(settings, start=plan.start, momenta=plan.momenta)
        return replace(self, partition=partition, settings=settings)

    @property
    def _given_start(self) -> str:
        """A checksum of the start of this call, or of the plan that leads to it; the run itself begins where
        the prior was found."""
        if self.warm is not None:
            return hashlib.sha256(json.dumps(self.warm.plain, sort_keys=True).encode()).hexdigest()
        start = self.settings.start
        if start is None:
            return ""
        return hashlib.sha256(np.ascontiguousarray(start, "<f8").tobytes()).hexdigest()

    def _with_prior(self) -> Run:
        """The run with the prior that short ones find, from where they came to (see `evidence`)."""
        plan = self.first_plan()
        sizes = [sum(layer) for layer in plan.layers.values()]
        found = Found(priors=[(prior.START,) * len(sizes)], begun=self._given_start)
        rounds, steps = prior.effort(self.budget or self.first)
        T = self.partition.posterior.temperature  # type: ignore[union-attr]
        search, h, was_hot = self._like(replace(plan, found=found)), None, False
        if rounds and self.partition.finds_stepsize:
            h = chosen(replace(search, first=steps, budget=None)._ladder())
        for number in range(rounds):
            seed = int(np.random.SeedSequence((plan.seed, number)).generate_state(1)[0])
            short = make_plan(
                self.problem, self.network, search._at(h or self.partition.h), steps, self.batch, self.chains,
                RunSettings(
                    record=1, samples=LOOKS, burn_in=steps // 2,
                    **search._same | {"seed": seed, "start": search.settings.start},
                ),
                call="train",
            )  # fmt: skip
            run = self._short(short)
            if run is None and h is None:
                raise FloatingPointError(
                    f"all chains diverge at h = {self.partition.h} while the prior is looked for: choose a "
                    "smaller h, or more friction"
                )
            if h is not None and (run is None or (run.died >= 0).any()):
                h /= FACTOR
                continue
            assert run is not None
            alive = run.died < 0
            heat = self._ratio(run) if alive.all() else UNKNOWN
            if is_hot(
                heat, single_chain=self.chains == 1
            ):  # which says nothing of the prior, and may cool down
                if h is not None and was_hot:
                    h /= FACTOR
                was_hot = True
            else:
                theta = np.asarray(run.data["samples"].values[alive], np.float64).reshape(-1, sum(sizes))
                found = replace(
                    found, priors=(*found.priors, prior.updated(found.priors[-1], theta, sizes, T))
                )
                was_hot = False
            start = np.resize(run.theta[alive], run.theta.shape)
            search = self._like(replace(plan, found=found, start=start, momenta="thermal"))
        if rounds and len(found.priors) == 1:
            warn(
                f"short runs were too hot to find a prior: it stays at {prior.START:g}. Say a standard "
                "deviation, take larger batches, or a smaller h",
                OffTemperatureWarning,
            )
        return search._run(None, found)

    def _begun(self, h: Coefficient, found: Found) -> Run:
        return simulate(replace(self._plan(h), found=found), **self.manner)

    def _before(self, checkpoint: str | os.PathLike[str]) -> Run:
        """The run in a checkpoint, if it is one of this call."""
        there = load(checkpoint, self.problem)
        partition, wrong = there.plan.partition, ["partition"]
        if isinstance(partition, Partition) and there.found is not None:
            h = partition.h if self.partition.finds_stepsize else self.partition.h
            changing = set() if self.budget is None else CHANGING
            like = self._like(there.plan)
            wrong = [name for name in plan_differences(like._plan(h), there.plan) if name not in changing]
            if self.partition.finds_prior and not there.found.priors:
                wrong.append("prior")
            elif (
                self.partition.finds_prior or self.warm is not None
            ) and there.found.begun != self._given_start:
                wrong.append("start")
            if self.budget is not None and there.plan.samples != self.settings.samples:
                wrong.append("samples")
            if self.partition.finds_stepsize and not there.found.tried:
                wrong.append("h")
        if wrong:
            raise ValueError(
                f"{checkpoint} is of another run, with other {', '.join(wrong)}: it is left alone. Choose "
                "another name, or continue it with load(...).resume(...)"
            )
        return there

    def _ladder(self) -> list[tuple[float, Estimate]]:
        """The stepsizes tried and their temperatures, as shares of τ; NaN where a chain diverged.

        Chains begin far from equilibrium and have to cool down first: while all stepsizes are too hot, they
        are tried again from where the coolest one came to.
        """
        same = self._same
        start, top, tried = self.settings.start, TOP, list[tuple[float, Estimate]]()
        threads = self.manner.get("threads")
        affordable = SHARE * (self.budget or self.first) * self.chains / (RUNGS * MEMBERS)
        steps, members, apart, tries = int(min(affordable, SHORT)), MEMBERS, 1, TRIES
        if steps < SHORTEST:  # every second stepsize, one chain for each
            steps, members, apart, tries = SHORTEST, 1, 2, FEWEST
            top /= FACTOR  # little is seen of each
        if start is not None and np.ndim(start) == 2:
            start = np.resize(start, (members, np.shape(start)[1]))
        for number in range(tries):
            rungs = [top / FACTOR**k for k in range(0, RUNGS, apart)]
            plan = make_plan(
                self.problem, self.network, self.partition.at_stepsize(rungs), steps, self.batch, members,
                RunSettings(record=1, samples=LOOKS, burn_in=steps // 2, start=start, **same), call="sweep",
            )  # fmt: skip
            run = self._short(plan)
            if run is None:
                top = rungs[-1] / FACTOR
                continue
            points = [run.select(h=h) for h in rungs]
            most = int(max(self._looks(plan, steps) / len(rungs), FEW_LOOKS))
            looked = [
                (h, thermal_ratio(point, most, threads) if (point.died < 0).all() else UNKNOWN)
                for h, point in zip(rungs, points, strict=True)
            ]
            known = [place for place, (_, estimate) in enumerate(looked) if math.isfinite(estimate.value)]
            if not known:  # some chain of each; what was seen before is still true
                top = rungs[-1] / FACTOR
                continue
            tried = looked
            if any(is_near(estimate) for _, estimate in tried):
                break
            if number + 1 >= FEWEST and most < LOOKS * members:  # little is affordable
                break
            start = points[min(known, key=lambda place: tried[place][1].value)].theta
            same["momenta"] = "thermal"
        if not any(math.isfinite(estimate.value) for _, estimate in tried):
            raise FloatingPointError(
                f"chains diverge at every stepsize from {TOP} down to {rungs[-1]:.2g}: look at the data and "
                "their scales, or add friction"
            )
        return tried

    @property
    def _same(self) -> dict[str, Any]:
        """The settings that short runs have, too."""
        return {
            name: getattr(self.settings, name) for name in ("seed", "shuffled", "rotated", "momenta", "dtype")
        }

    def _short(self, plan: Plan) -> Run | None:
        """A short run before the run itself; None where all its chains diverged."""
        with warnings.catch_warnings():
            for kind in (DivergedWarning, InterruptedWarning):
                warnings.simplefilter("ignore", kind)
            warnings.filterwarnings("ignore", "the noise of the data is drawn")  # of short runs
            try:
                run = simulate(
                    plan, threads=self.manner.get("threads"), progress=self._progress_of_short_runs()
                )
            except FloatingPointError:
                return None
        if not run.finished:  # Ctrl-C: nothing has begun yet
            raise KeyboardInterrupt
        return run

    def _progress_of_short_runs(self) -> Callable[[Progress], None] | None:
        """What is told of them says what they are."""
        progress = self.manner.get("progress")
        return None if progress is None else lambda now: progress(replace(now, finding=True))

    def _rounds(self, before: Run | None, h: Coefficient, found: Found) -> Run:
        """A run from its start, or from its checkpoint; then twice as many steps, and again, sampled in the
        second half, until the predictions converged."""
        run = self._begun(h, found) if before is None else before
        if before is not None and not before.finished:
            run = before.resume(**self.manner)
        while self._goes_on(run):
            steps, samples = run.step, run.plan.samples
            moved = sample_again(run, steps, samples, steps // samples)
            moved = replace(moved, plan=extend_plan(moved.plan, steps, steps))
            self._tell(run)
            self._save(moved)  # with the plan that it goes on with
            run = moved.resume(**self.manner)
        return run

    def _tell(self, run: Run) -> None:
        """Tell what there is after a round."""
        if (progress := self.manner.get("progress")) is not None:
            split = "test" if run.problem.X_test.shape[1] else "train"
            loss, accuracy = (
                float(np.mean(run.data[name].sel(split=split).values[:, -1])) for name in ("loss", "accuracy")
            )
            progress(Progress(run.step, 2 * run.step, 0.0, loss, {}, run.step, accuracy, run=run))

    def _save(self, run: Run) -> None:
        checkpoint = self.manner.get("checkpoint")
        if checkpoint is not None:
            try:
                run.save(checkpoint)
            except (OSError, MemoryError) as error:
                warn(f"the checkpoint at step {run.step} failed, and the run continues: {error}")

    def _goes_on(self, run: Run) -> bool:
        if self.budget is None or not run.finished or (run.died >= 0).any() or 2 * run.step > self.budget:
            return False
        return not (has_converged(convergence(run)) and is_near(self._ratio(run)))

    def _told(self, run: Run, estimate: Estimate | None = None) -> Run:
        """With what was found in its plan, and a word where it has another temperature than it should."""
        if not run.finished or (run.died >= 0).any():
            return run
        estimate = self._ratio(run) if estimate is None else estimate
        found = replace(run.found or Found(), temperature=estimate.value, error=estimate.error)
        if self.budget is not None:
            told = convergence(run)
            done = has_converged(told) and is_near(estimate)
            found = replace(
                found, ended="converged" if done else "budget", rhat=told.rhat_worst, ess=told.ess
            )
        if math.isfinite(estimate.error) and abs(estimate.value - 1) > OFF + min(2 * estimate.error, SURELY):
            larger = "larger batches, " if run.plan.batch < run.problem.X_train.shape[1] else ""
            warn(
                f"the temperature of this run is {estimate.value:.2f} ± {estimate.error:.2f} times that of "
                f"the law that it should sample: {larger}a smaller h or more steps bring it closer",
                OffTemperatureWarning,
            )
        run = Run(replace(run.plan, found=found), run.step, run.data, run.former)
        self._save(run)
        return run


def search(
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
    """What `train` has to find, by its arguments, which are checked."""
    if warm and settings.start is not None:
        raise ValueError(f"chains begin at start, or after warm={warm} steps: leave out one of the two")
    if steps == "auto":
        if settings.burn_in is not None or settings.thin is not None:
            raise ValueError("burn_in and thin follow from steps='auto': leave them out")
        most = whole("budget", BUDGET if budget is None else budget, low=2**ROUNDS, high=MOST_STEPS)
        first = most >> ROUNDS - 1
        wanted = SAMPLES if settings.samples is None else settings.samples
        samples = min(whole("samples", wanted, low=1), first - first // 2)
        settings = replace(settings, samples=samples, burn_in=first // 2)
    else:
        most, first = None, whole("steps", steps, low=1, high=MOST_STEPS)
    made = AutomaticRun(problem, network, partition, first, batch, chains, most, settings)
    plan = made.first_plan()
    if not warm:
        return made
    before = warm_plan(problem, network, partition.posterior, warm, plan.chains, plan.seed, plan.dtype)
    return replace(made, warm=before)
