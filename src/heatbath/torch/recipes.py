"""Recipes: a method's stages as a step of an optimiser carries them out, apart from the coefficients.

A recipe depends on the method, its word and its options; the coefficients are put in at every step, and only
when they have changed.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from heatbath.engine.program import GRADIENT, TEMPER, Operation, compile_program
from heatbath.letters import Values
from heatbath.methods import Method
from heatbath.operations import DESCENDING, NEUTRAL, READ, WIDTH
from heatbath.partition import Partition

Table = NDArray[np.float64]


class Pass(NamedTuple):
    """Operations `first` to `stop` - 1 on all tensors, then `stop` to `end` - 1 on their ξ."""

    first: int
    stop: int
    end: int


class Stage(NamedTuple):
    """Some passes, and what begins them: a gradient, a tempering move before step n + offset, nothing."""

    begins: int
    offset: int
    passes: tuple[Pass, ...]


@dataclass(frozen=True, eq=False)
class Recipe:
    """The stages of a step, and the operations of its passes."""

    method: Method
    at_kick: bool
    stages: tuple[Stage, ...]
    operations: tuple[Operation, ...]
    encoded: NDArray[np.int64]

    @property
    def gradients(self) -> int:
        """How many gradients a step needs."""
        return sum(stage.begins == GRADIENT for stage in self.stages)

    @property
    def tempered(self) -> bool:
        """Whether it moves on a ladder."""
        return any(stage.begins == TEMPER for stage in self.stages)

    def table(self, before: Mapping[str, float], now: Mapping[str, float], maximize: bool) -> Table:
        """The coefficients (2, operations, WIDTH) where letters that close a step have those of `before`.

        The first row is for a tensor's first step, which has nothing to close. The gradient takes the place
        of G, so where G stands the coefficients have the other sign, unless the loss is to be maximised.
        """
        opening = 1 if self.at_kick else 0
        later = len(self.operations) * WIDTH
        numbers = [0.0] * (2 * later)  # a list is filled much faster than an array
        for place, operation in enumerate(self.operations):
            first = place * WIDTH
            neutral = NEUTRAL.get(operation.kind, ())
            for term in operation.terms:
                closes = term.offset < opening
                values = before if closes else now
                columns = term.columns(Values(term.method, term.fraction * values["lr"], values.__getitem__))
                for i, column in enumerate(columns, start=first):
                    numbers[later + i] += column
                    if not closes or self.at_kick:
                        numbers[i] += column
                if closes and not self.at_kick:
                    numbers[first : first + len(neutral)] = neutral
            if not maximize and operation.kind in DESCENDING:
                numbers[first] *= -1.0
                numbers[later + first] *= -1.0
        return np.frombuffer(array("d", numbers)).reshape(2, -1, WIDTH)


@lru_cache(maxsize=256)
def recipe(method: Method) -> Recipe:
    """The recipe of a method, in which its coefficients do not matter."""
    program = compile_program(Partition(method, 1.0), {"all": (1,)})
    operations: list[Operation] = []
    stages: list[Stage] = []
    for stage in program.steps:
        passes: list[Pass] = []
        for one in stage.passes:
            first = len(operations)
            operations += one.operations
            if one.reads:  # p·p for ξ, while the tile is at hand
                operations.append(Operation(READ, []))
            stop = len(operations)
            operations += one.frictions
            passes.append(Pass(first, stop, len(operations)))
        stages.append(Stage(stage.begins, stage.offset, tuple(passes)))
    encoded = np.array([(o.kind, o.use, o.offset) for o in operations], np.int64).reshape(-1, 3)
    return Recipe(method, bool(program.prelude), tuple(stages), tuple(operations), encoded)


def check_closure(recipes: list[Recipe], closure: object) -> None:
    """Refuse words of several gradients, and tempering, without a closure."""
    needed = max((recipe.gradients for recipe in recipes), default=1)
    tempered = any(recipe.tempered for recipe in recipes)
    if closure is None and (needed > 1 or tempered):
        why = f"a word that needs {needed} gradients per step" if needed > 1 else "simulated tempering"
        raise RuntimeError(
            f"{why} needs step(closure), with a function that clears the gradients, computes the loss, calls "
            "backward() and returns the loss"
        )
    if needed > 1 and len({recipe.encoded.tobytes() for recipe in recipes}) > 1:
        raise RuntimeError("a word that needs several gradients per step must be shared by all groups")
