"""Chains of a dense network, advanced by a program in compiled code, spread over threads.

`Ensemble` owns the arrays. Results do not depend on the number of threads or on how the steps are cut into
calls: a chain's arithmetic is its own, and every random number has an address.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from heatbath.engine.batches import DataTable
from heatbath.engine.coefficients import decays, table
from heatbath.engine.dense import CHUNK, GROUP_CHUNK
from heatbath.engine.dense_shape import Shape
from heatbath.engine.layouts import Alone, LaneGroup, Layout, Wide
from heatbath.engine.loop import ChainState, Code, Data, Ladder, Units, run_chains
from heatbath.engine.program import Program, encode
from heatbath.engine.records import Notes
from heatbath.engine.simd import lanes
from heatbath.engine.threads import spread, thread_count
from heatbath.methods.posterior import Draws
from heatbath.methods.schedules import at
from heatbath.reference.random import START, normals

SCHEDULED_STEPS = 4096  # steps whose coefficients are tabulated at a time
ALIKE = 2**26  # chains one after another, of whose numbers the upper bits are the same


class Ensemble:
    """Chains of one network on one problem, advanced in place.

    `theta` is (chains, parameters) in float32 or float64, and everything is computed in its precision, in
    which the data are (`tabulate`). `number` are the chains' numbers in the addresses of their noise and
    batches, 0, 1, 2, ... by default; chain c uses the set number[c] % sets. The chains may have different
    coefficients: then there are several programs of one `structure`, and chain c runs programs[point[c]].
    The `layout` decides about speed alone; without one the faster is taken. `noise` (chains, targets) is the
    variance of the targets of a regression, from the start on or, with `variance`, at the start.
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
        kind = theta.dtype
        count, size = theta.shape
        second = any(part.method.keeps_second for part in self.program.parts)
        xi = np.array([[u.part.method.start_of_friction for u in p.units] for p in self.programs], np.float64)
        point = np.zeros(count, np.int64) if point is None else point
        self.chains = ChainState(
            theta=np.ascontiguousarray(theta).copy(),
            p=np.zeros_like(theta),
            second=np.zeros((count, size if second else 0), kind),
            xi=xi[point],
            rung=np.zeros(count, np.int64),
            died=np.full(count, -1, np.int64),
            temperature=np.full((count, xi.shape[1]), np.nan),
            noise=np.zeros((count, 0)) if noise is None else np.array(noise, np.float64),
            number=np.arange(count) if number is None else number,
            point=point,
        )
        self.data = Data(data, batch, shuffled)
        self.layout = layout or _layout(shape, self.chains.number, kind, self.threads)
        if shape.uses_blas and not isinstance(self.layout, Wide):
            raise ValueError(f"a network with layers as wide as {shape.sizes} needs the layout Wide")
        if isinstance(self.layout, LaneGroup) and not _alike(self.chains.number):
            raise ValueError("in the layout Group chains must have numbers that are alike from bit 26 on")
        chunk = GROUP_CHUNK if isinstance(self.layout, LaneGroup) else CHUNK
        if isinstance(self.layout, Wide):  # whose gradient is of the whole batch
            chunk = max(batch, CHUNK)
        self.network = shape.network(self.layout, lanes(kind), chunk)
        units = self.program.units
        ranges = [(span.start, span.stop) for unit in units for span in unit.ranges]
        self.units = Units(
            np.array(ranges, np.int64),
            np.cumsum([0] + [len(unit.ranges) for unit in units]),
            np.array([unit.size for unit in units]),
            np.array([u.part.method.tempering is not None for u in units]),
        )
        tempering = self.program.partition.tempering
        self.ladder = (
            Ladder(np.array(tempering.ladder), np.array(tempering.weights), tempering.every)
            if tempering
            else Ladder(np.ones(1), np.zeros(1), 1)
        )
        scheduled = any(program.scheduled for program in self.programs)
        self._prelude = self._code("prelude", 0, 1)
        self._constant = None if scheduled else self._codes(0, 2, -1)
        self._variance = variance
        self.take_notes((), ())
        if momenta == "thermal":
            self._thermalise()

    def advance(self, steps: int) -> None:
        """Make steps."""
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
        """Have the state noted at these steps from now on; the arrays fill while the chains advance."""
        theta, units = self.chains.theta, len(self.program.units)
        count, size = theta.shape
        shape = (count, len(steps))
        table = self.data.table
        nothing = table._replace(rows=table.rows[:, :0].copy(), data=0)
        average = average or nothing
        self.notes = Notes(
            steps=np.array(steps, np.int64),
            losses=np.array(losses, np.bool_),
            loss=np.full((*shape, 2), np.nan),
            accuracy=np.full((*shape, 2), np.nan),
            temperature=np.full((*shape, units), np.nan),
            xi=np.full((*shape, units), np.nan),
            theta=np.full((*shape, size if weights else 0), np.nan, theta.dtype),
            noise=np.full((*shape, self.chains.noise.shape[1]), np.nan),
            histogram=np.zeros((*shape, units, histogram[2]), np.int64),
            low=float(histogram[0]),
            high=float(histogram[1]),
            test=test or nothing,
            burn_in=burn_in,
            thin=thin,
            last=last,
            done=done,
            samples=np.full((count, samples, size), np.nan, theta.dtype),
            noises=np.full((count, samples, self.chains.noise.shape[1]), np.nan),
            inputs=average,
            average=np.zeros((count, 2, average.data, self.network.out)),
        )
        return self.notes

    @property
    def groups(self) -> int:
        """How many groups of chains there are; alone a chain is one."""
        return -(-len(self.chains.theta) // self.layout.lanes)

    @property
    def code(self) -> Hashable:
        """Which compiled code `advance` needs: that of ensembles with the same is the same."""
        tempered, drawn = bool(self.program.partition.tempering), self._variance is not None
        return type(self.layout), self.chains.theta.dtype, tempered, drawn

    def prepare(self) -> None:
        """Compile what `advance` needs, here and now."""
        self.work(1)(0, 0)

    def work(self, steps: int) -> Callable[[int, int], None]:
        """A function that makes these next steps of the groups begin to end - 1."""
        stop = self.step + steps
        code, between = self._constant or self._codes(self.step, stop, self.step)

        lane, count = self.layout.lanes, len(self.chains.theta)

        def run(begin: int, end: int, first: int = self.step) -> None:
            run_chains(
                self.layout,
                begin * lane,
                min(end * lane, count),
                first,
                stop,
                self.chains,
                self.data,
                self.network,
                self.units,
                self._prelude,
                code,
                between,
                self.ladder,
                True if self.program.partition.tempering else None,
                self._variance,
                self.notes,
                self.seed,
            )

        return run

    def diverged_part(self, chain: int) -> str:
        """The part of a stopped chain that is not finite, or whose parameters are largest."""
        theta = np.abs(self.chains.theta[chain])
        sizes = {
            part.name: max(float(theta[span.start : span.stop].max()) for span in part.tensors)
            for part in self.program.parts
        }
        lost = [name for name, size in sizes.items() if not math.isfinite(size)]
        return lost[0] if lost else max(sizes, key=lambda name: sizes[name])

    def _codes(self, first: int, stop: int, base: int) -> tuple[Code, Code]:
        """Those of a usual step, and of one that stops between two words."""
        return tuple(self._code(which, first, stop)._replace(base=base) for which in ("steps", "between"))  # type: ignore[return-value]

    def _code(self, which: Literal["prelude", "steps", "between"], first: int, stop: int) -> Code:
        stages = [getattr(program, which) for program in self.programs]
        rows, operations = encode(stages[0])
        pairs = list(zip(self.programs, stages, strict=True))
        tables = np.stack([table(program, chosen, first, stop) for program, chosen in pairs])
        priors = np.stack([decays(program, chosen, first, stop) for program, chosen in pairs])
        return Code(rows, operations, tables, priors, first)

    def _thermalise(self) -> None:
        size = self.chains.theta.shape[1]
        z = normals(int(self.seed), START, 1, self.chains.number, 0, 0, size)
        for chain, point in enumerate(self.chains.point):
            for unit in self.programs[point].units:
                method = unit.part.method
                tau = 0.0 if method.temperature is None else method.temperature
                start = method.tempering.ladder[0] if method.tempering else at(tau, 0)
                for span in unit.ranges:
                    elements = slice(span.start, span.stop)
                    self.chains.p[chain, elements] = math.sqrt(start) * z[chain, elements]


def usual_layout(shape: Shape, chains: int, kind: Any, threads: int | None = None) -> Layout:
    """The layout of a run with so many chains on these or all threads."""
    return _layout(shape, np.arange(chains), kind, thread_count(threads))


def _layout(shape: Shape, number: NDArray[np.int64], kind: Any, threads: int) -> Layout:
    """The layout in which all chains are done first: a group takes as long for one chain as for all lanes.

    How long that is, in chains alone, was measured (benchmarks/costs.py): from a third of the lanes for
    networks with 80 parameters to three quarters for those with thousands.
    """
    count = lanes(kind)
    groups = -(-len(number) // count)
    cost = count * min(max(0.21 * math.log10(shape.parameters) - 0.04, 0.15), 1.0)
    if shape.uses_blas:
        return Wide()
    if not _alike(number) or cost * -(-groups // threads) > -(-len(number) // threads):
        return Alone()
    return LaneGroup(count)


def _alike(number: NDArray[np.int64]) -> bool:
    """Whether chains can be in a group: the upper bits of their numbers are read once (see `random`)."""
    return len(number) > 0 and bool(number.min() // ALIKE == number.max() // ALIKE)


def structure(program: Program) -> Hashable:
    """All of a program but the values of its coefficients: chains with equal ones can be in one ensemble."""
    codes = [
        array.tobytes()
        for which in (program.prelude, program.steps, program.between)
        for array in encode(which)
    ]
    units = [(unit.part.name, unit.ranges) for unit in program.units]
    return (*codes, *units, program.partition.tempering)


def advance(ensembles: Sequence[Ensemble], steps: int) -> None:
    """Make steps of all chains of several ensembles that stand at the same step, on the same threads."""
    ends = np.cumsum([ensemble.groups for ensemble in ensembles])
    begins = ends - [ensemble.groups for ensemble in ensembles]
    while steps > 0:
        now = min(steps, SCHEDULED_STEPS)
        works = [ensemble.work(now) for ensemble in ensembles]

        def work(begin: int, end: int, works: list[Callable[[int, int], None]] = works) -> None:
            for run, low, high in zip(works, begins, ends, strict=True):
                if begin < high and end > low:
                    run(max(begin, low) - low, min(end, high) - low)

        spread(work, int(ends[-1]), ensembles[0].threads)
        for ensemble in ensembles:
            ensemble.step += now
        steps -= now
