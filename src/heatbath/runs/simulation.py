"""Advance the chains of a plan on the engine, from its start or from where a run stands."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from heatbath._internal.interrupts import PATIENCE, deferred_interrupts
from heatbath._internal.warnings import DivergedWarning, StaleNoiseWarning, warn
from heatbath.datasets.problem import Floats
from heatbath.engine.batches import DataTable, tabulate
from heatbath.engine.dense_shape import Shape
from heatbath.engine.ensemble import ALIKE, Ensemble, advance, structure, usual_layout
from heatbath.engine.layouts import Alone, Layout
from heatbath.engine.program import Program, compile_program
from heatbath.engine.threads import one_blas_thread
from heatbath.methods import SGD
from heatbath.methods.partition import Partition
from heatbath.methods.posterior import Draws, Settled
from heatbath.models.dense import ACTIVATIONS
from heatbath.models.likelihood import Likelihood, settle
from heatbath.runs.dataset import EnsembleGroup, restore
from heatbath.runs.plan import Plan
from heatbath.runs.progress import Progress
from heatbath.runs.record_steps import record_count, sample_count

DESCENT_STEP = 100.0  # h of the step that measures a gradient: so large that little is rounded
USUAL_CHAINS = 16  # of a run, for the layout in which gradients are measured
MOST_CHAINS = 2**12  # of which the layout depends: beyond them it is the same
NEVER = 2**60  # steps between two draws of the noise
LISTED_LOSSES = 10  # chains that diverged which a message lists
PASSES = 3  # through the batch, forward or back, for one gradient
STUDENT_MEDIAN = 0.55  # of s²: half of the squares in Student's law are below it
SHORTEST_CALL = 1e-9  # seconds: a clock may not advance within a call
LARGEST_GROWTH = 4  # of the work from one call to the next
NO_HISTOGRAM = (0.0, 1.0, 0)  # low, high and the number of bins


class Loss(NamedTuple):
    """A chain that diverged, with the step and the part in which it did."""

    chain: int
    step: int
    part: str


def report_losses(losses: Sequence[Loss], chains: int, since: int) -> None:
    """Warn of chains that diverged at step `since` or later; raise FloatingPointError if all chains have.

    `losses` are all chains that diverged, and `chains` is the number of all chains. At most 10 are listed.
    """
    have_all_diverged = len(losses) == chains
    reported = losses
    if not have_all_diverged:
        reported = [loss for loss in losses if loss.step >= since]

    texts = [f"chain {loss.chain} at step {loss.step} in {loss.part!r}" for loss in reported[:LISTED_LOSSES]]
    if len(reported) > LISTED_LOSSES:
        texts.append(f"and {len(reported) - LISTED_LOSSES} more")
    listed = "; ".join(texts)
    if have_all_diverged:
        raise FloatingPointError(f"all chains diverged ({listed}): choose a smaller h, or more friction")
    if listed:
        warn(f"diverged and stopped: {listed}; a smaller h may help", DivergedWarning)


class Simulation:
    """Chains of a plan that are advanced together.

    Parameters
    ----------
    plan
        The plan of all chains.
    step, data
        Where they begin: at the start, or at this step with the state that is in `data`, which has a row for
        each of them.
    threads
        The number of threads; None for the default.
    chains
        The numbers of the chains, if they are a block; None for all.
    until
        Their last step; None for that of the plan.
    """

    def __init__(
        self,
        plan: Plan,
        step: int,
        data: xr.Dataset | None,
        threads: int | None,
        chains: range | None = None,
        until: int | None = None,
    ) -> None:
        """Make an ensemble for each group of chains that can be advanced together, and set its state.

        The class describes the arguments. Each ensemble is told what to record up to the last step.
        """
        self.plan = plan
        self.first = step
        self.last = plan.steps if until is None else until
        self.chains = range(plan.total) if chains is None else chains
        self._is_block = chains is not None
        self._uses_blas = uses_blas(plan)

        layout = layout_of_blocks(plan) if self._is_block else None
        training = training_table(plan)
        test = test_table(plan)
        average = _average_table(plan)
        self.groups: list[EnsembleGroup] = []
        for members in _group_chains(plan, self.chains):
            theta = start_of(plan, members.chains)
            ensemble = make_ensemble(
                plan, members.programs, members.settled, theta, training, members.chains, threads,
                layout=layout,
            )  # fmt: skip
            self._plan_records(ensemble, test, average)
            group = EnsembleGroup(ensemble, members.chains - self.chains.start)
            if data is not None:
                restore(group, step, data)
            self.groups.append(group)

    def _plan_records(self, ensemble: Ensemble, test: DataTable, average: DataTable | None) -> None:
        """Tell an ensemble at which steps of this simulation to record and sample, and what.

        `test` are the test examples for the loss, and `average` the inputs at which outputs are averaged.
        """
        plan = self.plan
        records = plan.records[record_count(plan, self.first) : record_count(plan, self.last)]
        has_loss = np.isin(records, plan.losses).tolist()

        earlier_samples = sample_count(plan, self.first)
        kept_samples = 0
        if plan.keep:
            kept_samples = sample_count(plan, self.last) - earlier_samples
        last_sampled = plan.steps if plan.samples else 0
        ensemble.take_notes(
            records, has_loss, test, weights=plan.weights, histogram=plan.histogram or NO_HISTOGRAM,
            burn_in=plan.burn_in, thin=plan.thin, last=last_sampled, done=earlier_samples,
            samples=kept_samples, average=average,
        )  # fmt: skip

    @property
    def step(self) -> int:
        """Number of steps made."""
        return self.groups[0].ensemble.step

    @property
    def alive(self) -> bool:
        """True if at least one chain has not diverged."""
        return any((group.ensemble.chains.died < 0).any() for group in self.groups)

    @property
    def code(self) -> set[Hashable]:
        """Keys of the compiled code that is needed."""
        return {group.ensemble.code for group in self.groups}

    def prepare(self) -> None:
        """Compile the code that is needed, and load BLAS, which can be limited to one thread only then."""
        for group in self.groups:
            group.ensemble.prepare()

    def run(
        self,
        progress: Callable[[Progress], None] | None,
        save: Callable[[], None] | None = None,
        every: float = 0.0,
        seconds: float = math.inf,
    ) -> bool:
        """Advance to the last step; return False if Ctrl-C came first.

        Compiled code is called for about PATIENCE seconds at a time, so that Ctrl-C, `progress` and `save`
        need not wait for long.

        Parameters
        ----------
        progress
            A function that is called after each call of compiled code.
        save, every
            A function that is called when `every` seconds have passed since its last call.
        seconds
            Stop after this time, but not before the first call has ended.
        """
        try:
            self.prepare()
        except KeyboardInterrupt:  # nothing has moved yet
            return False

        work = 1
        step_before = self.step
        with one_blas_thread_if(self._uses_blas), deferred_interrupts() as is_interrupted:
            begin = time.perf_counter()
            last_save = begin
            while self._is_unfinished and not is_interrupted():
                if self.step > step_before and time.perf_counter() - begin >= seconds:
                    break
                work = self._advance_by_work(work)
                if progress:
                    progress(self.progress(time.perf_counter() - begin))
                if save and time.perf_counter() - last_save >= every:
                    save()
                    last_save = time.perf_counter()
            return not (self._is_unfinished and is_interrupted())

    def _advance_by_work(self, work: int) -> int:
        """Advance all chains by about this much work (see `_work`), and return the work of the next call.

        That is what takes PATIENCE seconds at the speed of this call, but at most four times as much as now,
        since the time of a short call is mostly overhead.
        """
        begin = time.perf_counter()
        steps, done = self._steps_worth(work)
        advance([group.ensemble for group in self.groups], steps)
        duration = max(time.perf_counter() - begin, SHORTEST_CALL)
        return max(1, min(LARGEST_GROWTH * work, int(done * PATIENCE / duration)))

    @property
    def _is_unfinished(self) -> bool:
        """True if steps are left; a block makes them even if all of its chains have diverged."""
        return self.step < self.last and (self.alive or self._is_block)

    def _work(self, step: int, steps: int) -> float:
        """Return the work of `steps` steps from `step` on, in units of a step without records and samples.

        A gradient passes PASSES times through the batch, a record once through all examples, and a sample
        once through the inputs at which outputs are averaged.
        """
        plan = self.plan
        example_count = plan.problem.X_train.shape[1] + plan.problem.X_test.shape[1]
        losses_before, losses_after = np.searchsorted(plan.losses, [step + 1, step + steps + 1])
        loss_rows = (losses_after - losses_before) * example_count

        input_count = 0 if plan.average is None else len(plan.average)
        samples = sample_count(plan, step + steps) - sample_count(plan, step)
        average_rows = samples * input_count
        return float(steps + (loss_rows + average_rows) / (PASSES * plan.batch))

    def _steps_worth(self, work: int) -> tuple[int, float]:
        """Return the number of steps, at least one, that take about this much work, and their work."""
        step = self.step
        steps = min(work, self.last - step)
        worth = self._work(step, steps)
        while steps > 1 and worth > 2 * work:
            steps //= 2
            worth = self._work(step, steps)
        return steps, worth

    def losses(self) -> list[Loss]:
        """Return the chains that diverged, in order."""
        losses = []
        for group in self.groups:
            died = group.ensemble.chains.died
            for index in np.flatnonzero(died >= 0).tolist():
                chain = self.chains.start + int(group.chains[index])
                part = group.ensemble.diverged_part(index)
                losses.append(Loss(chain, int(died[index]), part))
        return sorted(losses)

    def progress(self, seconds: float) -> Progress:
        """Return the progress after `seconds`, with means over the chains that have not diverged.

        Temperatures are the current ones. Loss and accuracy are those of the last record that has them, on
        the test examples, or on the training examples if there are none.
        """
        has_test_examples = self.plan.problem.X_test.shape[1] > 0
        split = 1 if has_test_examples else 0
        losses: list[float] = []
        accuracies: list[float] = []
        temperatures: dict[str, list[float]] = {}
        for group in self.groups:
            notes = group.ensemble.notes
            chains = group.ensemble.chains
            is_alive = chains.died < 0
            records_with_loss = np.flatnonzero(notes.losses & (notes.steps <= self.step))
            if records_with_loss.size:
                latest = records_with_loss[-1]
                losses += notes.loss[is_alive, latest, split].tolist()
                accuracies += notes.accuracy[is_alive, latest, split].tolist()
            for part, of_chains in group.by_part(chains.temperature[is_alive]).items():
                temperatures.setdefault(part, []).extend(of_chains.tolist())

        mean_temperatures = {part: _mean_or_nan(of_chains) for part, of_chains in temperatures.items()}
        return Progress(
            self.step,
            self.plan.steps,
            seconds,
            loss=_mean_or_nan(losses),
            temperature={part: mean for part, mean in mean_temperatures.items() if np.isfinite(mean)},
            first=self.first,
            accuracy=_mean_or_nan(accuracies),
        )


def _mean_or_nan(of_chains: list[float]) -> float:
    """Return the mean over chains, or NaN if there are none."""
    return float(np.mean(of_chains)) if of_chains else math.nan


def one_blas_thread_if(is_used: bool) -> AbstractContextManager[None]:
    """Return a context in which BLAS has one thread, or one that does nothing if BLAS is not used."""
    return one_blas_thread() if is_used else nullcontext()


def warn_of_stale_noise(plan: Plan, steps: int) -> None:
    """Warn if the variance of a plan's noise is drawn so rarely that `steps` steps have no draw of it.

    How often it is drawn follows from the posterior of a point and the number of examples in a batch.
    """
    partitions = {point.partition.posterior: point.partition for point in plan.points}
    longest_interval = 0
    for posterior, partition in partitions.items():
        if posterior is None:
            continue
        draws = settle(partition, plan.network, plan.problem, plan.batch).draws
        if draws is not None:
            longest_interval = max(longest_interval, draws.every)

    if longest_interval > steps:
        warn(
            f"the noise of the data is drawn every {longest_interval:,} steps, and there are only "
            f"{steps:,}: it keeps its first value. Make more steps, or take larger batches",
            StaleNoiseWarning,
        )


def training_table(plan: Plan) -> DataTable:
    """Return the training examples as the engine takes them."""
    problem = plan.problem
    return tabulate(problem.X_train, problem.Y_train, np.dtype(plan.dtype), problem.relative_weights("train"))


def test_table(plan: Plan) -> DataTable:
    """Return the test examples as the engine takes them."""
    problem = plan.problem
    return tabulate(problem.X_test, problem.Y_test, np.dtype(plan.dtype), problem.relative_weights("test"))


def _average_table(plan: Plan) -> DataTable | None:
    """Return the inputs at which outputs are averaged as the engine takes them; None without any."""
    if plan.average is None:
        return None
    return inputs_table((plan.average - plan.problem.shift) / plan.problem.scale, plan)


def inputs_table(x: Floats, plan: Plan) -> DataTable:
    """Return standardised inputs (examples, features) without targets as the engine takes them."""
    return tabulate(x[None], np.zeros((1, len(x), 0)), np.dtype(plan.dtype))


def start_of(plan: Plan, chains: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return θ of these chains at the start, (chains, parameters)."""
    if plan.start is not None:
        return plan.start[chains]
    repeats, indices = np.unique(chains % plan.chains, return_inverse=True)
    starts = plan.network.start(plan.problem.inputs, plan.likelihood.outputs, repeats, plan.seed)
    return np.asarray(starts[indices])


def make_ensemble(
    plan: Plan,
    programs: list[Program],
    settled: Settled,
    theta: NDArray[Any],
    table: DataTable,
    chains: NDArray[np.int64],
    threads: int | None,
    previous: Ensemble | None = None,
    layout: Layout | None = None,
) -> Ensemble:
    """Return an ensemble of some chains of a plan, at their start or where another ensemble has them.

    Parameters
    ----------
    plan
        The plan of all chains.
    programs
        The compiled steps of the points to which these chains belong, in order.
    settled
        The parts and the draws of the noise that their posterior sets.
    theta
        Their parameters, (chains, parameters).
    table
        The training examples of the plan.
    chains
        Their numbers in the plan, in order: chain c is repeat c % plan.chains of point c // plan.chains.
    threads
        The number of threads; None for the default.
    previous
        An ensemble that has these chains; the new one continues with its arrays, step and layout.
    layout
        How chains lie in memory; None for the fastest.
    """
    likelihood = Likelihood(plan.problem, programs[0].partition.posterior)
    shape = replace(_shape(plan), loss=likelihood.number, degrees=likelihood.degrees)
    _, program_of_chain = np.unique(chains // plan.chains, return_inverse=True)
    if previous is None:
        momenta = plan.momenta
        noise = _initial_noise(plan, settled, theta, chains)
    else:  # its arrays replace those that are made here
        momenta = "zero"
        noise = None
        layout = previous.layout

    ensemble = Ensemble(
        programs, shape, theta.astype(plan.dtype, copy=False), table, plan.batch, shuffled=plan.shuffled,
        momenta=momenta, seed=plan.seed, number=chains % plan.chains, threads=threads,
        point=program_of_chain, variance=settled.draws, noise=noise, layout=layout,
    )  # fmt: skip
    if previous is not None:
        ensemble.chains = previous.chains
        ensemble.step = previous.step
    return ensemble


def _initial_noise(
    plan: Plan, settled: Settled, theta: NDArray[Any], chains: NDArray[np.int64]
) -> NDArray[np.float64] | None:
    """Return the variances of the targets at the start of chains, (chains, targets); None without any.

    If they are sampled and the plan has a start, they follow from the residuals there.

    Parameters
    ----------
    plan, settled
        The plan, and what the posterior of these chains sets.
    theta, chains
        The parameters of the chains at the start, (chains, parameters), and their numbers in the plan.
    """
    noise = settled.for_chains(len(theta))
    if noise is None or settled.draws is None or plan.start is None:
        return noise

    problem = plan.problem
    weights = problem.relative_weights("train")
    data_sets = chains % plan.chains % problem.draws
    for index, data_set in enumerate(data_sets.tolist()):  # one chain at a time, to need little memory
        outputs = plan.network.forward(theta[index], problem.X_train[data_set], plan.likelihood.outputs)
        squares = (outputs - problem.Y_train[data_set]) ** 2
        weights_of_set = None if weights is None else weights[data_set]
        noise[index] = _variances_of_residuals(settled.draws, squares, weights_of_set)
    return noise


def _variances_of_residuals(law: Draws, squares: Floats, weights: Floats | None) -> Floats:
    """Return the variances of the targets, (targets,), that squared residuals suggest.

    In Student's law outliers do not count, so that the median is taken in place of the mean.

    Parameters
    ----------
    law
        How variances are drawn.
    squares
        The squares of the residuals, (examples, targets).
    weights
        The weights of the examples over their mean; None if all are 1.
    """
    if law.tails.size:
        median = np.median(squares, axis=0) / STUDENT_MEDIAN
        return np.maximum(median, law.scale / law.shape)
    sum_of_squares = squares.sum(axis=0) if weights is None else weights @ squares
    return (law.scale + law.factor * sum_of_squares) / law.shape


def _shape(plan: Plan) -> Shape:
    """Return the shape of a plan's network for the engine."""
    sizes = plan.network.sizes(plan.problem.inputs, plan.likelihood.outputs)
    activation = ACTIVATIONS[plan.network.activation].number
    return Shape(sizes, activation, plan.likelihood.number, plan.likelihood.degrees)


def uses_blas(plan: Plan) -> bool:
    """Return True if BLAS multiplies the layers of a plan's network."""
    return _shape(plan).uses_blas


def layout_of_blocks(plan: Plan) -> Layout:
    """Return the one layout of all blocks of a plan; workers compile no other one for a smaller last block.

    It is that of the mean number of chains of a method, on one thread.
    """
    shape = _shape(plan)
    if plan.chains > ALIKE and not shape.uses_blas:
        return Alone()
    chains = min(plan.total // len(plan.named), MOST_CHAINS)
    return usual_layout(shape, chains, np.dtype(plan.dtype), 1)


def full_gradients(
    plan: Plan,
    theta: NDArray[Any],
    draw: NDArray[np.int64],
    variances: NDArray[np.float64] | None,
    threads: int | None = None,
) -> NDArray[np.float64]:
    """Return gradients of the loss on all training examples, without any prior, computed by the engine.

    Parameters
    ----------
    plan
        The plan of the networks, with its data and precision.
    theta
        The parameters at which gradients are computed, (..., networks, parameters).
    draw
        The number of the data set of each network, (networks,).
    variances
        The variances of the targets of each network, (networks, targets); None without any.
    threads
        The number of threads; None for the default.

    Returns
    -------
    ndarray
        Of the shape of `theta`.
    """
    dtype = np.dtype(plan.dtype)
    shape = _shape(plan)
    layout = usual_layout(shape, max(plan.total, USUAL_CHAINS), dtype)
    states = theta.reshape(-1, *theta.shape[-2:])
    table = training_table(plan)
    ensemble = make_descent(plan, states[0].astype(dtype), table, draw, variances, threads, layout)
    ensemble.prepare()

    gradients = np.empty(states.shape)
    with one_blas_thread_if(shape.uses_blas):
        for index, state in enumerate(states):
            ensemble.step = 0
            ensemble.chains.theta[...] = state
            ensemble.chains.died[...] = -1
            gradients[index] = descend(ensemble)
    return gradients.reshape(theta.shape)


def make_descent(
    plan: Plan,
    theta: NDArray[Any],
    table: DataTable,
    draw: NDArray[np.int64],
    variances: NDArray[np.float64] | None,
    threads: int | None,
    layout: Layout,
) -> Ensemble:
    """Return an ensemble at θ with which `descend` measures gradients on all training examples.

    Its batch is all examples, and the variances of the targets are never drawn.

    Parameters
    ----------
    plan
        The plan of the networks.
    theta
        Their parameters, (networks, parameters).
    table
        The training examples of the plan.
    draw
        The number of the data set of each network, (networks,).
    variances
        The variances of their targets, (networks, targets); None without any.
    threads
        The number of threads; None for the default.
    layout
        How networks lie in memory.
    """
    draws = plan.settled.draws
    without_draws = None if draws is None else draws._replace(every=NEVER)
    program = _descent_program(tuple(plan.layers.items()), stops=without_draws is not None)
    return Ensemble(
        program, _shape(plan), theta, table, table.data, number=np.asarray(draw, np.int64), noise=variances,
        variance=without_draws, threads=threads, layout=layout,
    )  # fmt: skip


@lru_cache(maxsize=8)
def _descent_program(layers: tuple[tuple[str, tuple[int, ...]], ...], stops: bool) -> Program:
    """Return the program of a step far down, for a network with these layers and tensor sizes."""
    return compile_program(Partition(SGD(), DESCENT_STEP), dict(layers), stops=stops)


def descend(ensemble: Ensemble) -> NDArray[np.float64]:
    """Return the gradients at the chains of `make_descent`, which move one step down."""
    start = ensemble.chains.theta.astype(np.float64)
    ensemble.advance(1)
    return np.asarray((start - ensemble.chains.theta) / DESCENT_STEP)


class _ChainGroup(NamedTuple):
    """Chains that can be in one ensemble, the programs of their points, and what their posterior sets."""

    chains: NDArray[np.int64]
    programs: list[Program]
    settled: Settled


def _group_chains(plan: Plan, chains: range) -> list[_ChainGroup]:
    """Return chains in groups that one ensemble can advance: same posterior, and same structure of a step.

    A point of the grid has `plan.chains` chains in a row, and `chains` may begin and end within a point.
    """
    groups: dict[Hashable, tuple[list[int], list[Program], Settled]] = {}
    for point in range(chains.start // plan.chains, -(-chains.stop // plan.chains)):
        partition = plan.points[point].partition
        settled = settle(partition, plan.network, plan.problem, plan.batch)
        draws_noise = settled.draws is not None
        program = compile_program(partition, plan.layers, plan.rotated, draws_noise, settled.parts)

        key = structure(program), partition.posterior
        members, programs, _ = groups.setdefault(key, ([], [], settled))
        members += range(
            max(point * plan.chains, chains.start),
            min((point + 1) * plan.chains, chains.stop),
        )
        programs.append(program)
    return [
        _ChainGroup(np.array(members), programs, settled) for members, programs, settled in groups.values()
    ]
