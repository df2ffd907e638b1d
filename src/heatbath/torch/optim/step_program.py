"""Recipes: a method's stages as a step of an optimiser carries them out, apart from the coefficients.

A recipe depends on the method, its word and its options; the coefficients are put in at every step, and only
when they have changed.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from heatbath.engine.coefficients import table
from heatbath.engine.program import GRADIENT, TEMPER, Operation, compile_program
from heatbath.methods import Method
from heatbath.methods.letters import Columns, Values
from heatbath.methods.operations import DESCENDING, NEUTRAL, READ, UNITS, WIDTH
from heatbath.methods.partition import Partition
from heatbath.torch.optim.param_groups import NOTHING, STANDSTILL

Table = NDArray[np.float64]


class StepPass(NamedTuple):
    """Operations `first` to `stop` - 1 on all tensors, then `stop` to `end` - 1 on their ξ."""

    first: int
    stop: int
    end: int


class StepStage(NamedTuple):
    """Some passes, and what begins them: a gradient, a tempering move before step n + offset, nothing."""

    begins: int
    offset: int
    passes: tuple[StepPass, ...]


class Evaluation(NamedTuple):
    """A letter's columns that a table needs: they are computed once, however often the letter occurs."""

    columns: Callable[[Values], Columns]
    fraction: float
    closes: bool  # it ends the step before, with the coefficients of that step


class Cell(NamedTuple):
    """Where columns are added to a table: at which number, and whether for a tensor's first step too."""

    evaluation: int
    kind: int
    first: int
    fresh: bool
    neutral: tuple[float, ...]  # what a first step has instead


@dataclass(frozen=True, eq=False)
class Recipe:
    """The stages of a step, the operations of its passes, and how their coefficients are computed."""

    method: Method
    stages: tuple[StepStage, ...]
    encoded: NDArray[np.int64]  # operations: kind, use of noise, offset
    evaluations: tuple[Evaluation, ...]
    cells: tuple[Cell, ...]

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
        evaluated = []
        for columns_of, fraction, closes in self.evaluations:
            values = before if closes else now
            evaluated.append(columns_of(Values(self.method, fraction * values["lr"], values.__getitem__)))
        later = len(self.encoded) * WIDTH
        numbers = [0.0] * (2 * later)  # a list is filled much faster than an array
        for evaluation, kind, first, fresh, neutral in self.cells:
            place = first
            columns = evaluated[evaluation]
            if "unit" in now and kind in UNITS:
                unit = (before if self.evaluations[evaluation].closes else now)["unit"]
                columns = [c * unit**power for c, power in zip(columns, UNITS[kind], strict=False)]
            for column in columns:
                numbers[later + place] += column
                if fresh:
                    numbers[place] += column
                place += 1
            if neutral:
                numbers[first : first + len(neutral)] = neutral
        if STANDSTILL in (now["lr"], before["lr"]):
            numbers = [0.0 if abs(number) < NOTHING else number for number in numbers]
        if not maximize:
            for place in self._descending:
                numbers[place] *= -1.0
                numbers[later + place] *= -1.0
        return np.frombuffer(array("d", numbers)).reshape(2, -1, WIDTH)

    @cached_property
    def _descending(self) -> list[int]:
        """Where the numbers stand that multiply G."""
        kinds = self.encoded[:, 0].tolist()
        return [place * WIDTH for place, kind in enumerate(kinds) if kind in DESCENDING]


@lru_cache(maxsize=256)
def recipe(method: Method) -> Recipe:
    """The recipe of a method, in which its coefficients do not matter."""
    program = compile_program(Partition(method, 1.0), {"all": (1,)})
    table(program, program.steps, 0, 1)  # which refuses a lowering that cannot be meant
    operations: list[Operation] = []
    stages: list[StepStage] = []
    for stage in program.steps:
        passes: list[StepPass] = []
        for one in stage.passes:
            first = len(operations)
            operations += one.operations
            if one.reads:  # p·p for ξ, while the tile is at hand
                operations.append(Operation(READ, []))
            stop = len(operations)
            operations += one.frictions
            passes.append(StepPass(first, stop, len(operations)))
        stages.append(StepStage(stage.begins, stage.offset, tuple(passes)))
    encoded = np.array([(o.kind, o.use, o.offset) for o in operations], np.int64).reshape(-1, 3)
    return Recipe(method, tuple(stages), encoded, *_coefficients(operations, bool(program.prelude)))


def _coefficients(
    operations: list[Operation], at_kick: bool
) -> tuple[tuple[Evaluation, ...], tuple[Cell, ...]]:
    """What a table computes, and where it goes.

    Where θ is seen at the kick, a tensor's first step closes what stands before it, too.
    """
    opening = 1 if at_kick else 0
    evaluations: dict[Evaluation, int] = {}
    cells = []
    for place, operation in enumerate(operations):
        for term in operation.terms:
            closes = term.offset < opening
            evaluation = Evaluation(term.columns, term.fraction, closes)
            index = evaluations.setdefault(evaluation, len(evaluations))
            fresh = at_kick or not closes
            neutral = () if fresh else NEUTRAL.get(operation.kind, ())
            cells.append(Cell(index, operation.kind, place * WIDTH, fresh, neutral))
    return tuple(evaluations), tuple(cells)


def check_closure(recipes: list[Recipe], closure: object, *, moves: bool = True) -> None:
    """Refuse words of several gradients, and tempering, without a closure where anything moves."""
    needed = max((recipe.gradients for recipe in recipes), default=1)
    tempered = any(recipe.tempered for recipe in recipes)
    if closure is None and moves and (needed > 1 or tempered):
        why = f"a word that needs {needed} gradients per step" if needed > 1 else "simulated tempering"
        raise RuntimeError(
            f"{why} needs step(closure), with a function that clears the gradients, computes the loss, calls "
            "backward() and returns the loss"
        )
    if needed > 1 and len({recipe.encoded.tobytes() for recipe in recipes}) > 1:
        raise RuntimeError("a word that needs several gradients per step must be shared by all groups")
