"""Simulations: a plan at work on the engine, from its start or from where a run stands."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from heatbath.engine.batches import DataTable, tabulate
from heatbath.engine.dense_shape import Shape
from heatbath.engine.ensemble import ALIKE, Ensemble, advance, structure, usual_layout
from heatbath.engine.layouts import Alone, Layout
from heatbath.engine.program import Program, compile_program
from heatbath.engine.threads import one_blas_thread
from heatbath.methods import SGD
from heatbath.methods.partition import Partition
from heatbath.methods.posterior import Settled
from heatbath.models.dense import ACTIVATIONS
from heatbath.models.likelihood import Likelihood, settle
from heatbath.runs.dataset import EnsembleGroup, restore
from heatbath.runs.plan import Plan

if TYPE_CHECKING:
    pass
from heatbath._internal.interrupts import PATIENCE, deferred_interrupts
from heatbath._internal.warnings import DivergedWarning, StaleNoiseWarning, warn
from heatbath.runs.progress import Progress
from heatbath.runs.record_steps import record_count, sample_count

FAR, MANY = 100.0, 16  # h of a step down, so that little is rounded; chains of a usual run
ENOUGH = 2**12  # chains: of more the layout is the same


class Loss(NamedTuple):
    """A chain that diverged, at which step, and in which part."""

    chain: int
    step: int
    part: str


def report_losses(losses: Sequence[Loss], chains: int, since: int) -> None:
    """Warn of those of the chains that diverged at step `since` or later; raise if all have, ever."""
    everything = len(losses) == chains
    texts = [
        f"chain {one.chain} at step {one.step} in {one.part!r}"
        for one in losses
        if everything or one.step >= since
    ]
    if len(texts) > 10:
        texts = [*texts[:10], f"and {len(texts) - 10} more"]
    if everything:
        raise FloatingPointError(
            f"all chains diverged ({'; '.join(texts)}): choose a smaller h, or more friction"
        )
    if texts:
        warn(f"diverged and stopped: {'; '.join(texts)}; a smaller h may help", DivergedWarning)


class Simulation:
    """All chains of a plan, or some of them, advanced together to its last step or `until` one before;
    `before` has their state where a run stands at `step`."""

    def __init__(
        self,
        plan: Plan,
        step: int,
        before: xr.Dataset | None,
        threads: int | None,
        chains: range | None = None,
        until: int | None = None,
    ) -> None:
        self.plan, self.first = plan, step
        self.last = plan.steps if until is None else until
        self._block = chains is not None
        self.chains = range(plan.total) if chains is None else chains
        problem, kind = plan.problem, np.dtype(plan.dtype)
        self._large = _shape(plan).uses_blas
        data = tabulate(problem.X_train, problem.Y_train, kind, problem.relative_weights("train"))
        test = tabulate(problem.X_test, problem.Y_test, kind, problem.relative_weights("test"))
        records = plan.records[record_count(plan, step) : record_count(plan, self.last)]
        done = sample_count(plan, step)
        losses = np.isin(records, plan.losses).tolist()
        average = None
        if plan.average is not None:
            X = (plan.average - problem.shift) / problem.scale
            average = tabulate(X[None], np.zeros((1, len(X), 0)), kind)
        layout = layout_of_blocks(plan) if self._block else None
        self.groups: list[EnsembleGroup] = []
        for own, programs, settled in _grouped(plan, self.chains):
            ensemble = make_ensemble(
                plan, programs, settled, start_of(plan, own), data, own, threads, layout=layout
            )
            ensemble.take_notes(
                records, losses, test,
                weights=plan.weights, histogram=plan.histogram or (0.0, 1.0, 0),
                burn_in=plan.burn_in, thin=plan.thin, last=plan.steps if plan.samples else 0,
                done=done, samples=sample_count(plan, self.last) - done if plan.keep else 0, average=average,
            )  # fmt: skip
            self.groups.append(EnsembleGroup(ensemble, own - self.chains.start))
            if before is not None:
                restore(self.groups[-1], step, before)

    @property
    def step(self) -> int:
        """Where it stands."""
        return self.groups[0].ensemble.step

    @property
    def alive(self) -> bool:
        """Whether a chain is still running."""
        return any((group.ensemble.chains.died < 0).any() for group in self.groups)

    @property
    def code(self) -> set[Hashable]:
        """Which compiled code is needed."""
        return {group.ensemble.code for group in self.groups}

    def prepare(self) -> None:
        """Compile what is needed, here and now; BLAS is loaded, too, which cannot be limited before."""
        for group in self.groups:
            group.ensemble.prepare()

    def run(
        self,
        progress: Callable[[Progress], None] | None,
        save: Callable[[], None] | None = None,
        every: float = 0.0,
        seconds: float = math.inf,
    ) -> bool:
        """Continue to the last step, or for so many seconds and at least one call, in calls of about PATIENCE
        seconds; False if Ctrl-C came first.

        `progress` is called after each of them, and `save` is called whenever `every` seconds have passed.
        """
        ensembles = [group.ensemble for group in self.groups]
        stride, step = 1, self.step
        try:
            self.prepare()
        except KeyboardInterrupt:  # nothing has moved yet
            return False
        with one_blas_thread() if self._large else nullcontext():
            begin = saved = time.perf_counter()
            with deferred_interrupts() as interrupted:
                while self._goes_on and not interrupted():
                    if self.step > step and time.perf_counter() - begin >= seconds:
                        break
                    called = time.perf_counter()
                    now = self._steps_worth(stride)
                    advance(ensembles, now)
                    took = time.perf_counter() - called
                    work = self._work(self.step - now, now)
                    stride = max(1, min(4 * stride, int(work * PATIENCE / max(took, 1e-9))))
                    if progress:
                        progress(self.progress(time.perf_counter() - begin))
                    if save and time.perf_counter() - saved >= every:
                        save()
                        saved = time.perf_counter()
            return not (self._goes_on and interrupted())

    @property
    def _goes_on(self) -> bool:
        """Whether there is more to do: a block goes on even if none of its chains lives, as others may."""
        return self.step < self.last and (self.alive or self._block)

    def _work(self, step: int, steps: int) -> float:
        """The work of some steps from `step` on, records and averages included, in steps without them.

        A gradient passes the batch three times forward or back, a record all examples once.
        """
        plan = self.plan
        rows = plan.problem.X_train.shape[1] + plan.problem.X_test.shape[1]
        first, last = np.searchsorted(plan.losses, [step + 1, step + steps + 1])
        averaged = 0 if plan.average is None else len(plan.average)
        samples = sample_count(plan, step + steps) - sample_count(plan, step)
        return float(steps + ((last - first) * rows + samples * averaged) / (3 * plan.batch))

    def _steps_worth(self, work: int) -> int:
        """How many steps to make for about this much work: at least one."""
        steps = min(work, self.last - self.step)
        while steps > 1 and self._work(self.step, steps) > 2 * work:
            steps //= 2
        return steps

    def losses(self) -> list[Loss]:
        """The chains that diverged, in order, with when, and in which part."""
        lost = [
            Loss(self.chains.start + int(chain), int(died), group.ensemble.diverged_part(c))
            for group in self.groups
            for c, (chain, died) in enumerate(zip(group.chains, group.ensemble.chains.died, strict=True))
            if died >= 0
        ]
        return sorted(lost)

    def progress(self, seconds: float) -> Progress:
        """How things stand, as of the last record with a loss."""
        split = 1 if self.plan.problem.X_test.shape[1] else 0
        losses: list[float] = []
        accuracies: list[float] = []
        heat: dict[str, list[float]] = {}
        for group in self.groups:
            notes, alive = group.ensemble.notes, group.ensemble.chains.died < 0
            known = np.flatnonzero(notes.losses & (notes.steps <= self.step))
            losses += notes.loss[alive, known[-1], split].tolist() if known.size else []
            accuracies += notes.accuracy[alive, known[-1], split].tolist() if known.size else []
            for name, values in group.by_part(group.ensemble.chains.temperature[alive]).items():
                heat.setdefault(name, []).extend(values.tolist())
        means = {name: float(np.mean(values)) for name, values in heat.items() if values}
        temperature = {name: mean for name, mean in means.items() if np.isfinite(mean)}
        loss, accuracy = (
            float(np.mean(values)) if values else float("nan") for values in (losses, accuracies)
        )
        return Progress(self.step, self.plan.steps, seconds, loss, temperature, self.first, accuracy)


def warn_of_stale_noise(plan: Plan, steps: int) -> None:
    """Warn where the noise of a plan's data is drawn too rarely for so many steps."""
    partitions = {one.partition.posterior: one.partition for one in plan.points if one.partition.posterior}
    settled = [settle(partition, plan.network, plan.problem, plan.batch) for partition in partitions.values()]
    every = max((one.draws.every for one in settled if one.draws is not None), default=0)
    if every > steps:
        warn(
            f"the noise of the data is drawn every {every:,} steps, and there are {steps:,}: it stays as it "
            "starts. Make more steps, or take larger batches",
            StaleNoiseWarning,
        )


def start_of(plan: Plan, chains: NDArray[np.int64]) -> NDArray[np.float64]:
    """θ of some chains at the start, (chains, parameters)."""
    if plan.start is not None:
        return plan.start[chains]
    numbers, places = np.unique(chains % plan.chains, return_inverse=True)
    starts = plan.network.start(plan.problem.inputs, plan.likelihood.outputs, numbers, plan.seed)
    return np.asarray(starts[places])


def make_ensemble(
    plan: Plan,
    programs: list[Program],
    settled: Settled,
    theta: NDArray[Any],
    data: DataTable,
    chains: NDArray[np.int64],
    threads: int | None,
    before: Ensemble | None = None,
    layout: Layout | None = None,
) -> Ensemble:
    """These chains of a plan, in order, at their start; `programs` are those of their points, in order.

    With `before` they are where that ensemble has them, in its arrays and layout, and go on with these
    programs. Else they are in the `layout` that is given, or the faster.
    """
    likelihood = Likelihood(plan.problem, programs[0].partition.posterior)
    shape = replace(_shape(plan), loss=likelihood.number, degrees=likelihood.degrees)
    ensemble = Ensemble(
        programs, shape, theta.astype(plan.dtype, copy=False), data, plan.batch, shuffled=plan.shuffled,
        momenta=plan.momenta if before is None else "zero", seed=plan.seed, number=chains % plan.chains,
        threads=threads, point=np.unique(chains // plan.chains, return_inverse=True)[1],
        variance=settled.draws, noise=None if before else _noise(plan, settled, theta, chains),
        layout=before.layout if before else layout,
    )  # fmt: skip
    if before is not None:
        ensemble.chains, ensemble.step = before.chains, before.step
    return ensemble


def _noise(
    plan: Plan, settled: Settled, theta: NDArray[Any], chains: NDArray[np.int64]
) -> NDArray[np.float64] | None:
    """The variances of the targets that chains begin with; where they are drawn and θ is given, what the
    residuals say there."""
    noise = settled.for_chains(len(theta))
    if noise is None or settled.draws is None or plan.start is None:
        return noise
    problem, draws, weights = plan.problem, settled.draws, plan.problem.relative_weights("train")
    for chain, parameters in enumerate(theta):
        draw = chains[chain] % plan.chains % problem.draws
        values = plan.network.forward(parameters, problem.X_train[draw], plan.likelihood.outputs)
        squares = (values - problem.Y_train[draw]) ** 2
        total = squares.sum(axis=0) if weights is None else weights[draw] @ squares
        noise[chain] = (draws.scale + draws.factor * total) / draws.shape
        if (
            draws.tails.size
        ):  # Student's law: outliers do not count, and half of its squares are below 0.55 s²
            noise[chain] = np.maximum(np.median(squares, axis=0) / 0.55, draws.scale / draws.shape)
    return noise


def _shape(plan: Plan) -> Shape:
    sizes = plan.network.sizes(plan.problem.inputs, plan.likelihood.outputs)
    activation = ACTIVATIONS[plan.network.activation].number
    return Shape(sizes, activation, plan.likelihood.number, plan.likelihood.degrees)


def uses_blas(plan: Plan) -> bool:
    """Whether the products of a plan's layers are those of BLAS."""
    return _shape(plan).uses_blas


def layout_of_blocks(plan: Plan) -> Layout:
    """The layout of all blocks of a plan, whatever their sizes, so that workers compile no other for the few
    chains of the last one: that of the chains which a method has on the average, on one thread."""
    shape, kind = _shape(plan), np.dtype(plan.dtype)
    if plan.chains > ALIKE and not shape.uses_blas:
        return Alone()
    return usual_layout(shape, min(plan.total // len(plan.named), ENOUGH), kind, 1)


def full_gradients(
    plan: Plan,
    theta: NDArray[Any],
    draw: NDArray[np.int64],
    variances: NDArray[np.float64] | None,
    threads: int | None = None,
) -> NDArray[np.float64]:
    """The gradient of the loss on all training examples, without any prior, at many θ (networks, parameters),
    or several times as many, (..., networks, parameters), in turn.

    By the engine, with the plan's precision. Each network has its set of data and, where there are any, its
    variances of the targets.
    """
    problem, kind = plan.problem, np.dtype(plan.dtype)
    data = tabulate(problem.X_train, problem.Y_train, kind, problem.relative_weights("train"))
    layout = usual_layout(_shape(plan), max(plan.total, MANY), kind)
    turns = theta.reshape(-1, *theta.shape[-2:])
    ensemble = make_descent(plan, turns[0].astype(kind), data, draw, variances, threads, layout)
    ensemble.prepare()
    gradients = np.empty(turns.shape)
    with one_blas_thread() if _shape(plan).uses_blas else nullcontext():
        for turn, states in enumerate(turns):
            ensemble.step, ensemble.chains.theta[...], ensemble.chains.died[...] = 0, states, -1
            gradients[turn] = descend(ensemble)
    return gradients.reshape(theta.shape)


def make_descent(
    plan: Plan,
    theta: NDArray[Any],
    data: DataTable,
    number: NDArray[np.int64],
    variances: NDArray[np.float64] | None,
    threads: int | None,
    layout: Layout,
) -> Ensemble:
    """Chains at θ that descend the loss on all training examples, for `descend`."""
    draws = plan.settled().draws
    never = None if draws is None else draws._replace(every=2**60)
    program = compile_program(Partition(SGD(), FAR), plan.layers, stops=never is not None)
    return Ensemble(
        program, _shape(plan), theta, data, data.data, number=np.asarray(number, np.int64), noise=variances,
        variance=never, threads=threads, layout=layout,
    )  # fmt: skip


def descend(ensemble: Ensemble) -> NDArray[np.float64]:
    """The gradients where chains of `make_descent` stand: a step far down, and the way back."""
    before = ensemble.chains.theta.astype(np.float64)
    ensemble.advance(1)
    return np.asarray((before - ensemble.chains.theta) / FAR)


def _grouped(plan: Plan, chains: range) -> list[tuple[NDArray[np.int64], list[Program], Settled]]:
    """Those of the chains whose programs have one structure and one posterior, and the programs of their
    points."""
    groups: dict[Any, tuple[list[int], list[Program], Settled]] = {}
    for place in range(chains.start // plan.chains, -(-chains.stop // plan.chains)):
        point = plan.points[place]
        settled = settle(point.partition, plan.network, plan.problem, plan.batch)
        stops = settled.draws is not None
        program = compile_program(point.partition, plan.layers, plan.rotated, stops, settled.parts)
        key = structure(program), point.partition.posterior
        own, programs, _ = groups.setdefault(key, ([], [], settled))
        first, stop = place * plan.chains, (place + 1) * plan.chains
        own += range(max(first, chains.start), min(stop, chains.stop))
        programs.append(program)
    return [(np.array(own), programs, settled) for own, programs, settled in groups.values()]
