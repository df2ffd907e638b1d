"""Chains of a dense network, advanced by a program in compiled code, spread over threads.

`Ensemble` owns the arrays. Results don't depend on the number of threads or on how the steps are cut into
calls: a chain's arithmetic is its own, and every random number has an address.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from heatbath.engine import loop
from heatbath.engine.batches import DataTable
from heatbath.engine.coefficients import Steps, decays, table
from heatbath.engine.dense import CHUNK, GROUP_CHUNK
from heatbath.engine.dense_shape import Network, Shape
from heatbath.engine.layouts import Alone, LaneGroup, Layout, Wide
from heatbath.engine.program import Program
from heatbath.engine.records import Notes
from heatbath.engine.simd import lane_count
from heatbath.engine.threads import spread, thread_count
from heatbath.methods import Method
from heatbath.methods.posterior import Draws
from heatbath.methods.schedules import at
from heatbath.reference.random import START, normals

SCHEDULED_STEPS = 4096  # steps whose coefficients are tabulated at a time
ALIKE = 2**26  # consecutive chains whose numbers have the same upper bits


class Ensemble:
    """Chains of one network on one problem, advanced in place.

    Parameters
    ----------
    programs : Program or sequence of Program
        Several programs of one `structure` if the chains have different coefficients; chain c then runs
        programs[point[c]].
    shape : Shape
        The network.
    theta : array
        Parameters (chains, parameters) in float32 or float64. Everything is computed in their precision,
        which the data must have, too (`tabulate`).
    data : DataTable
        Training data. Chain c uses the set number[c] % sets.
    batch : int
        Examples of a mini-batch.
    shuffled : bool
        Take mini-batches from shuffled epochs instead of drawing a subset at each step.
    momenta : {"zero", "thermal"}
        Momenta at the start: 0, or drawn at the temperature of the method.
    seed : int
    number : array, optional
        Numbers (chains) in the addresses of the chains' noise and batches, by default 0, 1, 2, ...
    point : array, optional
        Index (chains) into the programs, by default 0.
    threads : int, optional
    layout : Layout, optional
        How chains are computed, by default the fastest. It changes the speed and nothing else.
    noise : array, optional
        Variances (chains, targets) of the targets of a regression; with `variance`, those at the start.
    variance : Draws, optional
        How variances are drawn.
    """

    def __init__(  # noqa: PLR0913 # options by keyword
        self,
        programs: Program | Sequence[Program],
        shape: Shape,
        theta: NDArray[Any],
        data: DataTable,
        batch: int,
        *,
        shuffled: bool = False,
        momenta: str = "zero",
        seed: int = 0,
        number: NDArray[np.int64] | None = None,
        point: NDArray[np.int64] | None = None,
        threads: int | None = None,
        layout: Layout | None = None,
        noise: NDArray[np.float64] | None = None,
        variance: Draws | None = None,
    ) -> None:
        chain_count = len(theta)
        if number is None:
            number = np.arange(chain_count)
        if point is None:
            point = np.zeros(chain_count, np.int64)
        if noise is None:
            noise = np.zeros((chain_count, 0))
        self.programs = (programs,) if isinstance(programs, Program) else tuple(programs)
        self.program = self.programs[0]
        self.seed = np.uint64(seed)
        self.threads = thread_count(threads)
        self.step = 0
        self.chains = _starting_state(self.programs, theta, number, point, noise)
        self.data = loop.Data(data, batch, shuffled)
        self.layout = layout or _fastest_layout(shape, number, theta.dtype, self.threads)
        _check_layout(self.layout, shape, number)
        chunk = _chunk_size(self.layout, batch)
        self.network = _network(shape, self.layout, lane_count(theta.dtype), chunk)

        self.units = _units_of(self.program)
        self.ladder = _ladder_of(self.program)
        self._prelude = self._code(loop.PRELUDE, Steps(0, 1), 0)
        is_scheduled = any(program.scheduled for program in self.programs)
        self._constant_code = None if is_scheduled else self._program_code(0, 2, -1)
        self._variance = variance
        self.take_notes((), ())
        if momenta == "thermal":
            self._draw_momenta()

    def advance(self, steps: int) -> None:
        """Make some steps of all chains."""
        advance([self], steps)

    def take_notes(  # noqa: PLR0913 # options by keyword
        self,
        steps: Sequence[int],
        losses: Sequence[bool],
        test: DataTable | None = None,
        *,
        weights: bool = False,
        histogram: tuple[float, float, int] = (0.0, 1.0, 0),
        burn_in: int = 0,
        thin: int = 1,
        last: int = 0,
        done: int = 0,
        samples: int = 0,
        average: DataTable | None = None,
    ) -> Notes:
        """Set what is recorded from now on; return the arrays, which fill while the chains advance.

        Parameters
        ----------
        steps : sequence of int
            Steps of the records, in order.
        losses : sequence of bool
            Whether the losses over all data are computed, for each record.
        test : DataTable, optional
            Test data for the losses.
        weights : bool
            Record all parameters.
        histogram : tuple
            Lower and upper end and number of bins of histograms of the parameters.
        burn_in, thin, last, done, samples : int
            When samples are taken, see `Notes`, and how many to keep.
        average : DataTable, optional
            Inputs whose predictions are averaged over the samples.
        """
        dtype = self.chains.theta.dtype
        count, size = self.chains.theta.shape
        recorded_size = size if weights else 0
        units = len(self.program.units)
        targets = self.chains.noise.shape[1]
        low, high, bins = histogram
        shape = (count, len(steps))
        training = self.data.table
        no_data = training._replace(rows=training.rows[:, :0].copy(), data=0)
        average = average or no_data
        self.notes = Notes(
            steps=np.array(steps, np.int64),
            losses=np.array(losses, np.bool_),
            loss=np.full((*shape, 2), np.nan),
            accuracy=np.full((*shape, 2), np.nan),
            temperature=np.full((*shape, units), np.nan),
            xi=np.full((*shape, units), np.nan),
            theta=np.full((*shape, recorded_size), np.nan, dtype),
            noise=np.full((*shape, targets), np.nan),
            histogram=np.zeros((*shape, units, bins), np.int64),
            low=float(low),
            high=float(high),
            test=test or no_data,
            burn_in=burn_in,
            thin=thin,
            last=last,
            done=done,
            samples=np.full((count, samples, size), np.nan, dtype),
            noises=np.full((count, samples, targets), np.nan),
            inputs=average,
            average=np.zeros((count, 2, average.data, self.network.out)),
        )
        return self.notes

    @property
    def groups(self) -> int:
        """Number of groups of chains; a chain that is computed alone is a group."""
        return -(-len(self.chains.theta) // self.layout.lanes)

    @property
    def code(self) -> Hashable:
        """Key of the compiled code that `advance` needs: ensembles with equal keys share it."""
        is_tempered = bool(self.program.partition.tempering)
        draws_variances = self._variance is not None
        return type(self.layout), self.chains.theta.dtype, is_tempered, draws_variances

    def prepare(self) -> None:
        """Compile what `advance` needs, or load it from the cache, without making a step."""
        self.work(1)(0, 0)

    def work(self, steps: int) -> Callable[[int, int], None]:
        """Return a function (first, stop) that makes the next steps of the groups first to stop - 1."""
        first_step = self.step
        stop_step = first_step + steps
        program = self._constant_code or self._program_code(first_step, stop_step, first_step)
        model = loop.Model(self.network, self.units, program)
        ladder = self.ladder if self.program.partition.tempering else None
        lanes = self.layout.lanes
        chain_count = len(self.chains.theta)

        def run(first: int, stop: int) -> None:
            stop_chain = min(stop * lanes, chain_count)
            block = loop.LoopBlock(first * lanes, stop_chain, first_step, stop_step)
            loop.run_chains(
                self.layout, block, self.chains, self.data, model, ladder, self._variance, self.notes,
                self.seed,
            )  # fmt: skip

        return run

    def diverged_part(self, chain: int) -> str:
        """Return the part of a stopped chain that isn't finite, or the one with the largest parameter."""
        theta = np.abs(self.chains.theta[chain])
        largest = {}
        for part in self.program.parts:
            largest[part.name] = max(float(theta[span.start : span.stop].max()) for span in part.tensors)
            if not math.isfinite(largest[part.name]):
                return part.name
        return max(largest, key=lambda name: largest[name])

    def _program_code(self, first: int, stop: int, base: int) -> loop.ProgramCode:
        """Return the code of the steps first to stop - 1, whose coefficients are in rows from step `base` on.

        With `base` -1 there are two rows, for the first step and for all others.
        """
        steps = Steps(first, stop)
        return loop.ProgramCode(
            self._prelude,
            self._code(loop.STEPS, steps, base),
            self._code(loop.BETWEEN, steps, base),
        )

    def _code(self, identity: int, steps: Steps, base: int) -> loop.Code:
        """Return the code of some stages, with the coefficients of some steps.

        Parameters
        ----------
        identity : int
            PRELUDE, STEPS or BETWEEN.
        steps : Steps
            The steps. STEPS and BETWEEN share them, since they have the same coefficients.
        base : int
            As in `_program_code`.
        """
        controls, operations = self.program.encoded[identity]
        stages_of_programs = [program.stages[identity] for program in self.programs]
        pairs = list(zip(self.programs, stages_of_programs, strict=True))
        return loop.Code(
            controls=controls,
            operations=operations,
            table=np.stack([table(program, stages, steps) for program, stages in pairs]),
            decays=np.stack([decays(program, stages, steps) for program, stages in pairs]),
            base=base,
            identity=identity,
            control_count=len(controls),
            rows=steps.count,
            width=len(operations),
        )

    def _draw_momenta(self) -> None:
        """Draw momenta in place at the temperatures of the methods at the start."""
        size = self.chains.theta.shape[1]
        z = normals(int(self.seed), START, 1, self.chains.number, 0, 0, size)
        for point, program in enumerate(self.programs):
            chains = np.flatnonzero(self.chains.point == point)
            for unit in program.units:
                root_tau = math.sqrt(_starting_temperature(unit.part.method))
                for span in unit.ranges:
                    elements = slice(span.start, span.stop)
                    self.chains.p[chains, elements] = root_tau * z[chains, elements]


def _starting_temperature(method: Method) -> float:
    """Return the temperature of a method at step 0: the first rung's with tempering, 0 without any."""
    if method.tempering is not None:
        return method.tempering.ladder[0]
    if method.temperature is None:
        return 0.0
    return at(method.temperature, 0)


def _starting_state(
    programs: Sequence[Program],
    theta: NDArray[Any],
    number: NDArray[np.int64],
    point: NDArray[np.int64],
    noise: NDArray[np.float64],
) -> loop.ChainState:
    """Return the state of chains at the start, without momenta.

    Parameters
    ----------
    programs : sequence of Program
    theta : array
        Parameters (chains, parameters), which are copied.
    number, point, noise : array
        As in `Ensemble`.
    """
    count, size = theta.shape
    keeps_second = any(part.method.keeps_second for part in programs[0].parts)
    xi = np.array(
        [[unit.part.method.start_of_friction for unit in program.units] for program in programs], np.float64
    )
    return loop.ChainState(
        theta=np.ascontiguousarray(theta).copy(),
        p=np.zeros(theta.shape, theta.dtype),
        second=np.zeros((count, size if keeps_second else 0), theta.dtype),
        xi=xi[point],
        rung=np.zeros(count, np.int64),
        died=np.full(count, -1, np.int64),
        temperature=np.full((count, xi.shape[1]), np.nan),
        noise=np.array(noise, np.float64, order="C"),
        number=np.ascontiguousarray(number),
        point=np.ascontiguousarray(point),
    )


def _units_of(program: Program) -> loop.Units:
    """Return the units of a program as arrays."""
    units = program.units
    ranges = [(span.start, span.stop) for unit in units for span in unit.ranges]
    return loop.Units(
        ranges=np.array(ranges, np.int64),
        first=np.cumsum([0] + [len(unit.ranges) for unit in units]),
        size=np.array([unit.size for unit in units]),
        tempered=np.array([unit.part.method.tempering is not None for unit in units], np.int64),
    )


def _ladder_of(program: Program) -> loop.TemperatureLadder:
    """Return the temperatures of a program's tempering; one rung, which isn't used, if it has none."""
    tempering = program.partition.tempering
    if tempering is None:
        return loop.TemperatureLadder(np.ones(1), np.zeros(1), every=1, rungs=1)
    tau, weights = np.array(tempering.ladder), np.array(tempering.weights)
    return loop.TemperatureLadder(tau, weights, tempering.every, len(tau))


def _check_layout(layout: Layout, shape: Shape, number: NDArray[np.int64]) -> None:
    """Raise ValueError if chains with these numbers, of a network, can't be computed in a layout."""
    if shape.uses_blas and not isinstance(layout, Wide):
        raise ValueError(
            f"a network with layers as wide as {shape.sizes} needs the layout Wide, got {layout}"
        )
    if isinstance(layout, LaneGroup) and not _share_upper_bits(number):
        raise ValueError(
            "in the layout LaneGroup the numbers of the chains must have the same bits from bit 26 on, got "
            f"numbers from {number.min()} to {number.max()}: use the layout Alone"
        )


@lru_cache(maxsize=64)
def _network(shape: Shape, layout: Layout, lanes: int, chunk: int) -> Network:
    """Return the table of a network's layers; ensembles of the same network share it."""
    return shape.network(layout, lanes, chunk)


def _chunk_size(layout: Layout, batch: int) -> int:
    """Return how many examples are computed at a time."""
    if isinstance(layout, LaneGroup):
        return GROUP_CHUNK
    return max(batch, CHUNK) if isinstance(layout, Wide) else CHUNK  # BLAS multiplies a batch as a whole


def usual_layout(shape: Shape, chains: int, dtype: DTypeLike, threads: int | None = None) -> Layout:
    """Return the layout of a run with some chains on some threads, by default all."""
    return _fastest_layout(shape, np.arange(chains), dtype, thread_count(threads))


def _fastest_layout(shape: Shape, number: NDArray[np.int64], dtype: DTypeLike, threads: int) -> Layout:
    """Return the layout in which chains of a network finish first on some threads.

    `number` are the numbers of the chains, and `dtype` is the precision of the parameters.
    A group takes as long for one chain as for all lanes. How long that is, in chains alone, was measured
    (benchmarks/costs.py): from a third of the lanes for networks with 80 parameters to three quarters for
    those with thousands.
    """
    if shape.uses_blas:
        return Wide()
    if not _share_upper_bits(number):
        return Alone()
    lanes = lane_count(dtype)
    groups = math.ceil(len(number) / lanes)
    chains_per_thread = math.ceil(len(number) / threads)
    groups_per_thread = math.ceil(groups / threads)
    cost_per_lane = min(
        max(0.21 * math.log10(shape.parameters) - 0.04, 0.15), 1.0
    )  # in times of one chain alone
    time_in_groups = lanes * cost_per_lane * groups_per_thread
    return Alone() if time_in_groups > chains_per_thread else LaneGroup(lanes)


def _share_upper_bits(number: NDArray[np.int64]) -> bool:
    """Return whether chains can be in a group, where the upper bits of their numbers are read once."""
    return len(number) > 0 and bool(number.min() // ALIKE == number.max() // ALIKE)


def structure(program: Program) -> Hashable:
    """Return all of a program but the values of its coefficients.

    Chains whose programs have equal structures can be in one ensemble.
    """
    codes = [array.tobytes() for stages in program.encoded for array in stages]
    units = [(unit.part.name, unit.ranges) for unit in program.units]
    return (*codes, *units, program.partition.tempering)


def advance(ensembles: Sequence[Ensemble], steps: int) -> None:
    """Make steps of all chains of several ensembles that are at the same step, on the same threads."""
    groups = [ensemble.groups for ensemble in ensembles]
    for first in range(0, steps, SCHEDULED_STEPS):
        count = min(steps - first, SCHEDULED_STEPS)
        works = [ensemble.work(count) for ensemble in ensembles]
        spread(_chain_works(works, groups), sum(groups), ensembles[0].threads)
        for ensemble in ensembles:
            ensemble.step += count


def _chain_works(
    works: Sequence[Callable[[int, int], None]], groups: Sequence[int]
) -> Callable[[int, int], None]:
    """Return a function (first, stop) that works on some groups of several ensembles, numbered on.

    Parameters
    ----------
    works : sequence of callable (first, stop)
        For each ensemble, a function that works on its own groups first to stop - 1.
    groups : sequence of int
        How many groups each ensemble has.
    """
    bounds = list(pairwise(accumulate(groups, initial=0)))

    def work_on(first: int, stop: int) -> None:
        for work, (low, high) in zip(works, bounds, strict=True):
            own_first = max(first, low)
            own_stop = min(stop, high)
            if own_first < own_stop:
                work(own_first - low, own_stop - low)

    return work_on
