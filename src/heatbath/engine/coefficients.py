"""The tables of coefficients that the compiled loop reads: a row for each step, WIDTH numbers an operation.

Everything is computed elementwise on arrays over the steps, by the same operations whether a coefficient is
a number or on a schedule: so a schedule that happens to be constant gives the same bits as the number.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from heatbath.engine.program import TEMPER, Operation, Program, ProgramStage, Term
from heatbath.methods.letters import Columns, Values
from heatbath.methods.operations import NEUTRAL, NOISE_COLUMN, WIDTH
from heatbath.methods.schedules import Coefficient, at

Array = NDArray[np.float64]


class Steps:
    """The steps first to stop - 1, and the values of coefficients during them, each evaluated once."""

    def __init__(self, first: int, stop: int) -> None:
        self.first, self.count = first, stop - first
        self._known: dict[Coefficient, Array] = {}

    def numbers(self, offset: int) -> NDArray[np.int64]:
        """The steps, counted from an offset of -1, 0 or 1."""
        return np.arange(self.first, self.first + self.count) + offset

    def values(self, value: Coefficient, offset: int) -> Array:
        """What a coefficient is during these steps; before step 0, as at step 0."""
        if isinstance(value, float):
            return np.full(self.count, value)
        if value not in self._known:
            near = range(self.first - 1, self.first + self.count + 1)
            self._known[value] = np.array([at(value, max(step, 0)) for step in near])
        return np.ascontiguousarray(self._known[value][1 + offset :][: self.count])


def table(program: Program, stages: Sequence[ProgramStage], first: int, stop: int) -> Array:
    """The coefficients (steps, operations, WIDTH) of steps first to stop - 1."""
    operations = [operation for stage in stages for operation in stage.all_operations()]
    steps = Steps(first, stop)
    rows = np.zeros((stop - first, len(operations), WIDTH))
    for place, operation in enumerate(operations):
        _fill(rows[:, place], operation, steps, program.partition.h)
    return rows


def decays(program: Program, stages: Sequence[ProgramStage], first: int, stop: int) -> Array:
    """The prior of every unit (steps, units) as a tempering move among these stages sees it."""
    offset = max([stage.offset for stage in stages if stage.begins == TEMPER], default=0)
    steps = Steps(first, stop)
    return np.stack([steps.values(unit.part.method.prior, offset) for unit in program.units], axis=1)


def _fill(rows: Array, operation: Operation, steps: Steps, h: Coefficient) -> None:
    """The columns of an operation, the sum of its terms; before the first step of the word it is neutral."""
    neutral = NEUTRAL.get(operation.kind, ())
    for term in operation.terms:
        before = steps.numbers(term.offset) < 0
        columns = term.columns(_values(term, steps, h))
        _check(operation, columns, type(term.method).__name__)
        for place, column in enumerate(columns):
            rest = neutral[place] if place < len(neutral) else 0.0
            rows[:, place] += np.where(before, rest, column)


def _check(operation: Operation, columns: Columns, method: str) -> None:
    """Refuse what a lowering cannot mean."""
    if len(columns) > WIDTH:
        raise ValueError(f"{method}: an operation has {WIDTH} columns at the most, got {len(columns)}")
    noise = NOISE_COLUMN.get(operation.kind, WIDTH)
    if operation.use < 0 and noise < len(columns) and np.any(columns[noise] != 0):
        raise ValueError(f"{method}: a letter whose operation has noise must say draws=True")


def _values(term: Term, steps: Steps, h: Coefficient) -> Values:
    """The coefficients of a term's method as arrays over the steps."""
    return Values(
        term.method,
        term.fraction * steps.values(h, term.offset),
        lambda name: steps.values(getattr(term.method, name), term.offset),
    )
