"""Chains of a dense network, advanced by a program in compiled code, spread over threads.

`Ensemble` owns the arrays. Results don't depend on the number of threads or on how the steps are cut into
calls: a chain's arithmetic is its own, and every random number has an address.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from heatbath.engine.batches import DataTable
from heatbath.engine.coefficients import decays, table
from heatbath.engine.dense import CHUNK, GROUP_CHUNK
from heatbath.engine.dense_shape import Shape
from heatbath.engine.layouts import Alone, LaneGroup, Layout, Wide
from heatbath.engine.loop import (
    BETWEEN,
    PRELUDE,
    STEPS,
    Block,
    ChainState,
    Code,
    Data,
    Ladder,
    Model,
    ProgramCode,
    Units,
    run_chains,
)
from heatbath.engine.program import Program, ProgramStage, encode
from heatbath.engine.records import Notes
from heatbath.engine.simd import lane_count
from heatbath.engine.threads import spread, thread_count
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

    def __init__(
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
        self.programs = (programs,) if isinstance(programs, Program) else tuple(programs)
        self.program, self.seed, self.threads = self.programs[0], np.uint64(seed), thread_count(threads)
        self.step = 0
        number = np.arange(len(theta)) if number is None else number
        point = np.zeros(len(theta), np.int64) if point is None else point
        noise = np.zeros((len(theta), 0)) if noise is None else np.array(noise, np.float64, order="C")
        self.chains = _starting_state(self.programs, theta, number, point, noise)
        self.data = Data(data, batch, shuffled)
        self.layout = layout or _fastest_layout(shape, number, theta.dtype, self.threads)
        if shape.uses_blas and not isinstance(self.layout, Wide):
            raise ValueError(f"a network with layers as wide as {shape.sizes} needs the layout Wide")
        if isinstance(self.layout, LaneGroup) and not _share_upper_bits(number):
            raise ValueError(
                "in the layout LaneGroup the numbers of the chains must have the same bits from bit 26 on: "
                "use the layout Alone"
            )
        chunk = GROUP_CHUNK if isinstance(self.layout, LaneGroup) else CHUNK
        if isinstance(self.layout, Wide):  # whose gradient is of all examples of the batch
            chunk = max(batch, CHUNK)
        self.network = shape.network(self.layout, lane_count(theta.dtype), chunk)
        self.units = _units_of(self.program)
        tempering = self.program.partition.tempering
        tau, weights, every = (
            (tempering.ladder, tempering.weights, tempering.every) if tempering else ((1.0,), (0.0,), 1)
        )
        self.ladder = Ladder(np.array(tau), np.array(weights), every, len(tau))
        self._prelude = self._code(PRELUDE, [program.prelude for program in self.programs], 0, 1, 0)
        is_scheduled = any(program.scheduled for program in self.programs)
        self._constant_code = None if is_scheduled else self._program_code(0, 2, -1)
        self._variance = variance
        self.take_notes((), ())
        if momenta == "thermal":
            self._draw_momenta()

    def advance(self, steps: int) -> None:
        """Make some steps of all chains."""
        advance([self], steps)

    def take_notes(
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
        theta, units = self.chains.theta, len(self.program.units)
        count, size = theta.shape
        targets = self.chains.noise.shape[1]
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
            theta=np.full((*shape, size if weights else 0), np.nan, theta.dtype),
            noise=np.full((*shape, targets), np.nan),
            histogram=np.zeros((*shape, units, histogram[2]), np.int64),
            low=float(histogram[0]),
            high=float(histogram[1]),
            test=test or no_data,
            burn_in=burn_in,
            thin=thin,
            last=last,
            done=done,
            samples=np.full((count, samples, size), np.nan, theta.dtype),
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
        is_tempered, draws_variances = bool(self.program.partition.tempering), self._variance is not None
        return type(self.layout), self.chains.theta.dtype, is_tempered, draws_variances

    def prepare(self) -> None:
        """Compile what `advance` needs, or load it from the cache, without making a step."""
        self.work(1)(0, 0)

    def work(self, steps: int) -> Callable[[int, int], None]:
        """Return a function (first, stop) that makes the next steps of the groups first to stop - 1."""
        first_step, stop_step = self.step, self.step + steps
        program = self._constant_code or self._program_code(first_step, stop_step, first_step)
        model = Model(self.network, self.units, program)
        ladder = self.ladder if self.program.partition.tempering else None
        lanes, count = self.layout.lanes, len(self.chains.theta)

        def run(first: int, stop: int) -> None:
            block = Block(first * lanes, min(stop * lanes, count), first_step, stop_step)
            run_chains(
                self.layout, block, self.chains, self.data, model, ladder, self._variance, self.notes,
                self.seed,
            )  # fmt: skip

        return run

    def diverged_part(self, chain: int) -> str:
        """Return the part of a stopped chain that isn't finite, or the one with the largest parameter."""
        theta = np.abs(self.chains.theta[chain])
        largest = {
            part.name: max(float(theta[span.start : span.stop].max()) for span in part.tensors)
            for part in self.program.parts
        }
        lost = [name for name, size in largest.items() if not math.isfinite(size)]
        return lost[0] if lost else max(largest, key=lambda name: largest[name])

    def _program_code(self, first: int, stop: int, base: int) -> ProgramCode:
        """Return the code of the steps first to stop - 1; with `base` -1 its two rows are for all steps."""
        return ProgramCode(
            self._prelude,
            self._code(STEPS, [program.steps for program in self.programs], first, stop, base),
            self._code(BETWEEN, [program.between for program in self.programs], first, stop, base),
        )

    def _code(
        self, identity: int, stages: Sequence[Sequence[ProgramStage]], first: int, stop: int, base: int
    ) -> Code:
        """Return the code of stages of each program, with the coefficients of steps first to stop - 1."""
        controls, operations = encode(stages[0])
        pairs = list(zip(self.programs, stages, strict=True))
        tables = np.stack([table(program, chosen, first, stop) for program, chosen in pairs])
        priors = np.stack([decays(program, chosen, first, stop) for program, chosen in pairs])
        sizes = len(controls), stop - first, len(operations)
        return Code(controls, operations, tables, priors, base, identity, *sizes)

    def _draw_momenta(self) -> None:
        """Draw momenta in place at the temperatures of the methods at the start."""
        size = self.chains.theta.shape[1]
        z = normals(int(self.seed), START, 1, self.chains.number, 0, 0, size)
        for chain, point in enumerate(self.chains.point):
            for unit in self.programs[point].units:
                method = unit.part.method
                tau = 0.0 if method.temperature is None else method.temperature
                tau_at_start = method.tempering.ladder[0] if method.tempering else at(tau, 0)
                for span in unit.ranges:
                    elements = slice(span.start, span.stop)
                    self.chains.p[chain, elements] = math.sqrt(tau_at_start) * z[chain, elements]


def _starting_state(
    programs: Sequence[Program],
    theta: NDArray[Any],
    number: NDArray[np.int64],
    point: NDArray[np.int64],
    noise: NDArray[np.float64],
) -> ChainState:
    """Return the state of chains at θ, (chains, parameters), without momenta; θ is copied."""
    count, size = theta.shape
    keeps_second = any(part.method.keeps_second for part in programs[0].parts)
    xi = np.array([[u.part.method.start_of_friction for u in p.units] for p in programs], np.float64)
    return ChainState(
        theta=np.ascontiguousarray(theta).copy(),
        p=np.zeros(theta.shape, theta.dtype),
        second=np.zeros((count, size if keeps_second else 0), theta.dtype),
        xi=xi[point],
        rung=np.zeros(count, np.int64),
        died=np.full(count, -1, np.int64),
        temperature=np.full((count, xi.shape[1]), np.nan),
        noise=noise,
        number=np.ascontiguousarray(number),
        point=np.ascontiguousarray(point),
    )


def _units_of(program: Program) -> Units:
    """Return the units of a program as arrays."""
    units = program.units
    ranges = [(span.start, span.stop) for unit in units for span in unit.ranges]
    return Units(
        np.array(ranges, np.int64),
        np.cumsum([0] + [len(unit.ranges) for unit in units]),
        np.array([unit.size for unit in units]),
        np.array([unit.part.method.tempering is not None for unit in units], np.int64),
    )


def usual_layout(shape: Shape, chains: int, dtype: DTypeLike, threads: int | None = None) -> Layout:
    """Return the layout of a run with some chains on some threads, by default all."""
    return _fastest_layout(shape, np.arange(chains), dtype, thread_count(threads))


def _fastest_layout(shape: Shape, number: NDArray[np.int64], dtype: DTypeLike, threads: int) -> Layout:
    """Return the layout in which the chains with these numbers finish first.

    A group takes as long for one chain as for all lanes. How long that is, in chains alone, was measured
    (benchmarks/costs.py): from a third of the lanes for networks with 80 parameters to three quarters for
    those with thousands.
    """
    lanes = lane_count(dtype)
    groups = -(-len(number) // lanes)
    group_cost = lanes * min(max(0.21 * math.log10(shape.parameters) - 0.04, 0.15), 1.0)
    if shape.uses_blas:
        return Wide()
    if not _share_upper_bits(number) or group_cost * -(-groups // threads) > -(-len(number) // threads):
        return Alone()
    return LaneGroup(lanes)


def _share_upper_bits(number: NDArray[np.int64]) -> bool:
    """Return whether chains can be in a group, where the upper bits of their numbers are read once."""
    return len(number) > 0 and bool(number.min() // ALIKE == number.max() // ALIKE)


def structure(program: Program) -> Hashable:
    """Return all of a program but the values of its coefficients.

    Chains whose programs have equal structures can be in one ensemble.
    """
    codes = [
        array.tobytes()
        for stages in (program.prelude, program.steps, program.between)
        for array in encode(stages)
    ]
    units = [(unit.part.name, unit.ranges) for unit in program.units]
    return (*codes, *units, program.partition.tempering)


def advance(ensembles: Sequence[Ensemble], steps: int) -> None:
    """Make steps of all chains of several ensembles that are at the same step, on the same threads."""
    stops = np.cumsum([ensemble.groups for ensemble in ensembles])
    firsts = stops - [ensemble.groups for ensemble in ensembles]
    while steps > 0:
        count = min(steps, SCHEDULED_STEPS)
        runs = [ensemble.work(count) for ensemble in ensembles]

        def run_all(first: int, stop: int, runs: list[Callable[[int, int], None]] = runs) -> None:
            for run, low, high in zip(runs, firsts, stops, strict=True):
                if first < high and stop > low:
                    run(max(first, low) - low, min(stop, high) - low)

        spread(run_all, int(stops[-1]), ensembles[0].threads)
        for ensemble in ensembles:
            ensemble.step += count
        steps -= count
