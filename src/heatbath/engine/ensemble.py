"""Chains of a dense network, advanced by a program in compiled code, spread over threads.

`Ensemble` owns the arrays. Results do not depend on the number of threads or on how the steps are cut into
calls: a chain's arithmetic is its own, and every random number has an address.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heatbath.engine.dense import CHUNK, Shape
from heatbath.engine.loop import Chains, Code, Data, Ladder, Network, Notes, Units, run_chains
from heatbath.engine.program import GRADIENT, Program, encode
from heatbath.engine.threads import spread, thread_count
from heatbath.methods import Adam
from heatbath.noise import START, normals
from heatbath.schedules import SimulatedTempering, at

SCHEDULED_STEPS = 4096  # steps whose coefficients are tabulated at a time


class Ensemble:
    """Chains of one network on one problem, advanced in place.

    `theta` is (chains, parameters) in float32 or float64, and everything is computed in its precision. `X`
    and `Y` are (sets, data, columns); chain c uses set c % sets. `number` are the chains' numbers in the
    addresses of their noise and batches, 0, 1, 2, ... by default.
    """

    def __init__(
        self,
        program: Program,
        shape: Shape,
        theta: NDArray[Any],
        X: NDArray[Any],
        Y: NDArray[Any],
        batch: int,
        *,
        epochs: bool = False,
        momenta: str = "zero",
        seed: int = 0,
        number: NDArray[np.int64] | None = None,
        threads: int | None = None,
    ) -> None:
        self.program, self.seed, self.threads = program, np.uint64(seed), thread_count(threads)
        self.step = 0
        kind = theta.dtype
        count, size = theta.shape
        adam = any(isinstance(part.method, Adam) for part in program.parts)
        xi = [getattr(unit.part.method, "xi", 0.0) for unit in program.units]
        self.chains = Chains(
            theta=np.ascontiguousarray(theta).copy(),
            p=np.zeros_like(theta),
            second=np.zeros((count, size if adam else 0), kind),
            xi=np.tile(np.array(xi, dtype=np.float64), (count, 1)),
            rung=np.zeros(count, np.int64),
            died=np.full(count, -1, np.int64),
            temperature=np.full((count, len(xi)), np.nan),
            number=np.arange(count) if number is None else number,
        )
        self.data = Data(np.ascontiguousarray(X, kind), np.ascontiguousarray(Y, kind), batch, epochs)
        self.network = Network(shape.layers, shape.activation, shape.loss, shape.room(max(batch, CHUNK)))
        ranges = [(span.start, span.stop) for unit in program.units for span in unit.ranges]
        self.units = Units(
            np.array(ranges, np.int64),
            np.cumsum([0] + [len(unit.ranges) for unit in program.units]),
            np.array([unit.size for unit in program.units]),
            np.array(
                [isinstance(getattr(u.part.method, "tau", 0), SimulatedTempering) for u in program.units]
            ),
        )
        tempering = program.partition.tempering
        self.ladder = (
            Ladder(np.array(tempering.ladder), np.array(tempering.weights), tempering.every)
            if tempering
            else Ladder(np.ones(1), np.zeros(1), 1)
        )
        self._prelude = self._code(program.prelude, 0, 1)
        self._constant = None if program.scheduled else self._code(program.steps, 0, 2)._replace(base=-1)
        self.take_notes((), (), X[:, :0], Y[:, :0])
        if momenta == "thermal":
            self._thermalise()

    def advance(self, steps: int) -> None:
        """Make steps."""
        while steps > 0:
            now = steps if self._constant else min(steps, SCHEDULED_STEPS)
            code = self._constant or self._code(self.program.steps, self.step, self.step + now)

            def work(begin: int, end: int, stop: int = self.step + now, code: Code = code) -> None:
                run_chains(
                    begin,
                    end,
                    self.step,
                    stop,
                    self.chains,
                    self.data,
                    self.network,
                    self.units,
                    self._prelude,
                    code,
                    self.ladder,
                    self.notes,
                    self.seed,
                )

            spread(work, len(self.chains.theta), self.threads)
            self.step += now
            steps -= now

    def take_notes(
        self,
        steps: Sequence[int],
        losses: Sequence[bool],
        X_test: NDArray[Any],
        Y_test: NDArray[Any],
        *,
        weights: bool = False,
        histogram: tuple[float, float, int] = (0.0, 1.0, 0),
    ) -> Notes:
        """Have the state noted at these steps from now on; the arrays fill while the chains advance."""
        theta = self.chains.theta
        shape = (len(theta), len(steps))
        self.notes = Notes(
            steps=np.array(steps, np.int64),
            losses=np.array(losses, np.bool_),
            loss=np.full((*shape, 2), np.nan),
            accuracy=np.full((*shape, 2), np.nan),
            temperature=np.full((*shape, len(self.program.units)), np.nan),
            xi=np.full((*shape, len(self.program.units)), np.nan),
            theta=np.full((*shape, theta.shape[1] if weights else 0), np.nan, theta.dtype),
            histogram=np.zeros((*shape, len(self.program.units), histogram[2]), np.int64),
            low=float(histogram[0]),
            high=float(histogram[1]),
            X_test=np.ascontiguousarray(X_test, theta.dtype),
            Y_test=np.ascontiguousarray(Y_test, theta.dtype),
        )
        return self.notes

    def diverged_part(self, chain: int) -> str:
        """The part of a stopped chain that is not finite, or whose parameters are largest."""
        theta = np.abs(self.chains.theta[chain])
        sizes = {
            part.name: max(float(theta[span.start : span.stop].max()) for span in part.tensors)
            for part in self.program.parts
        }
        lost = [name for name, size in sizes.items() if not math.isfinite(size)]
        return lost[0] if lost else max(sizes, key=lambda name: sizes[name])

    def _code(self, controls: Any, first: int, stop: int) -> Code:
        rows, operations = encode(controls)
        methods = [unit.part.method for unit in self.program.units]
        offset = max([control.batch for control in controls if control.kind != GRADIENT], default=0)
        decays = [
            [at(getattr(m, "weight_decay", 0.0), n + offset) for m in methods] for n in range(first, stop)
        ]
        return Code(rows, operations, self.program.table(controls, first, stop), np.array(decays), first)

    def _thermalise(self) -> None:
        size = self.chains.theta.shape[1]
        z = normals(int(self.seed), START, 1, self.chains.number, 0, 0, size)
        for unit in self.program.units:
            tau = getattr(unit.part.method, "tau", 0.0)
            start = tau.ladder[0] if isinstance(tau, SimulatedTempering) else at(tau, 0)
            for span in unit.ranges:
                at_ = slice(span.start, span.stop)
                self.chains.p[:, at_] = math.sqrt(start) * z[:, at_]
