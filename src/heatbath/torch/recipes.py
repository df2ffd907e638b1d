"""Recipes: what a step does to the tensors of a param group, as the operations that the engine knows too."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from heatbath.engine.coefficients import table
from heatbath.engine.program import (
    ADAM,
    DESCEND,
    GRADIENT,
    READ,
    SEGMENT,
    TEMPER,
    THERMOSTAT,
    WIDTH,
    B,
    compile_program,
    encode,
)
from heatbath.partition import Partition

NOTHING = -1


class Pass(NamedTuple):
    """Operations `first` to `stop` - 1 on all tensors, then an E, number `thermostat` (-1: none)."""

    first: int
    stop: int
    thermostat: int = -1


class Stage(NamedTuple):
    """Some passes, and what begins them: a gradient, a tempering move before step n + offset, nothing."""

    begins: int
    offset: int
    passes: tuple[Pass, ...]


@dataclass(frozen=True, eq=False)
class Recipe:
    """The stages of a step, the operations of its passes, and their coefficients.

    `table` is (2, operations, WIDTH): the first row is for a tensor's first step, which has nothing to close.
    The gradient takes the place of G, so where G stands the coefficients have the other sign.
    """

    stages: tuple[Stage, ...]
    operations: NDArray[np.int64]
    table: NDArray[np.float64]

    @property
    def gradients(self) -> int:
        """How many gradients a step needs."""
        return sum(stage.begins == GRADIENT for stage in self.stages)


@lru_cache(maxsize=256)
def recipe(changing: Partition, steady: Partition, maximize: bool) -> Recipe:
    """The recipe of a partition with one part whose coefficients change between step 0 and step 1.

    `steady` is the same with the later coefficients only.
    """
    program = compile_program(changing, {"all": (1,)})
    at_kick = bool(program.prelude)
    later = table(program, program.steps, 0, 1) if at_kick else table(program, program.steps, 1, 2)
    fresh_program = compile_program(steady, {"all": (1,)})
    fresh = later if at_kick else table(fresh_program, fresh_program.steps, 0, 1)
    controls, operations = encode(program.steps)
    rows = np.concatenate([fresh, later])
    if not maximize:
        rows[:, np.isin(operations[:, 0], (B, DESCEND, ADAM)), 0] *= -1.0
    stages: list[tuple[int, int, list[Pass]]] = []
    kept: list[NDArray[np.int64]] = []
    columns: list[NDArray[np.float64]] = []

    def add(low: int, high: int) -> tuple[int, int]:
        first = len(kept)
        kept.extend(operations[low:high])
        columns.extend(rows[:, k] for k in range(low, high))
        return first, len(kept)

    place = 0
    while place < len(controls):
        kind, _, low, high, offset, _ = controls[place]
        follows = place + 1 < len(controls) and controls[place + 1, 0] == THERMOSTAT
        if kind in (GRADIENT, TEMPER):
            stages.append((int(kind), int(offset), []))
            place += 1
            continue
        if not stages:
            stages.append((NOTHING, 0, []))
        passes = stages[-1][2]
        if kind != THERMOSTAT and not follows:
            passes.append(Pass(*add(low, high)))
        else:
            first, _ = add(low, high) if kind == SEGMENT else (len(kept), 0)
            kept.append(np.array([READ, -1, 0]))  # p·p for E, while the tile is at hand
            columns.append(np.zeros((2, WIDTH)))
            stop = len(kept)
            place += kind == SEGMENT
            thermostat, _ = add(controls[place, 2], controls[place, 3])
            passes.append(Pass(first, stop, thermostat))
        place += 1
    made = np.stack(columns, axis=1) if columns else np.zeros((2, 0, WIDTH))
    done = tuple(Stage(kind, offset, tuple(passes)) for kind, offset, passes in stages)
    return Recipe(done, np.array(kept, np.int64).reshape(-1, 3), np.ascontiguousarray(made))


def check_closure(recipes: list[Recipe], closure: object) -> None:
    """Refuse words of several gradients, and tempering, without a closure."""
    needed = max((own.gradients for own in recipes), default=1)
    tempered = any(stage.begins == TEMPER for own in recipes for stage in own.stages)
    if closure is None and (needed > 1 or tempered):
        why = f"a word that needs {needed} gradients per step" if needed > 1 else "simulated tempering"
        raise RuntimeError(
            f"{why} needs step(closure), with a function that clears the gradients, computes the loss, calls "
            "backward() and returns the loss"
        )
    if needed > 1 and len({own.operations.tobytes() for own in recipes}) > 1:
        raise RuntimeError("a word that needs several gradients per step must be shared by all groups")
