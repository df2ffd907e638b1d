"""The tables of coefficients that the compiled loop reads: a row for each step, WIDTH numbers an operation.

Everything is computed elementwise on arrays over the steps, by the same operations whether a coefficient is a
number or on a schedule. So a schedule that happens to be constant gives the same bits as the number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from heatbath.engine.program import TEMPER, Operation, Program, ProgramStage, Term
from heatbath.methods.letters import Columns, Values
from heatbath.methods.operations import NEUTRAL, NOISE_COLUMN, WIDTH
from heatbath.methods.schedules import Coefficient, at

Array: TypeAlias = NDArray[np.float64]


class Steps:
    """The steps first to stop - 1, and the values of coefficients during them, each evaluated once."""

    def __init__(self, first: int, stop: int) -> None:
        self.first, self.count = first, stop - first
        self._known: dict[Coefficient, Array] = {}

    def numbers(self, offset: int) -> NDArray[np.int64]:
        """Return the numbers of the steps plus an offset of -1, 0 or 1."""
        return np.arange(self.first, self.first + self.count) + offset

    def values(self, coefficient: Coefficient, offset: int) -> Array:
        """Return a coefficient during the steps plus an offset; before step 0 it is as at step 0."""
        if isinstance(coefficient, float):
            return np.full(self.count, coefficient)
        if coefficient not in self._known:
            steps = range(self.first - 1, self.first + self.count + 1)
            self._known[coefficient] = np.array([at(coefficient, max(step, 0)) for step in steps])
        return np.ascontiguousarray(self._known[coefficient][1 + offset :][: self.count])


def table(program: Program, stages: Sequence[ProgramStage], first: int, stop: int) -> Array:
    """Return the coefficients of the operations of a program's stages at steps first to stop - 1.

    Returns
    -------
    array (step, operation, WIDTH)
        The columns of each operation (see `operations`), in the order of `ProgramStage.all_operations`;
        columns that it doesn't have are 0.
    """
    operations = [operation for stage in stages for operation in stage.all_operations()]
    steps = Steps(first, stop)
    rows = np.zeros((stop - first, len(operations), WIDTH))
    for index, operation in enumerate(operations):
        _fill_columns(rows[:, index], operation, steps, program.partition.h)
    return rows


def decays(program: Program, stages: Sequence[ProgramStage], first: int, stop: int) -> Array:
    """Return the precision of every unit's prior that a tempering move among the stages uses.

    Returns
    -------
    array (step, unit)
        At the steps first to stop - 1, plus the offset of the tempering move.
    """
    offset = max([stage.offset for stage in stages if stage.kind == TEMPER], default=0)
    steps = Steps(first, stop)
    return np.stack([steps.values(unit.part.method.prior, offset) for unit in program.units], axis=1)


def _fill_columns(rows: Array, operation: Operation, steps: Steps, h: Coefficient) -> None:
    """Add the columns of an operation's terms to `rows`, in place.

    Before the first step of the word an operation has columns that change nothing.

    Parameters
    ----------
    rows : array (step, WIDTH)
        Zeros.
    operation : Operation
    steps : Steps
    h : Coefficient
        The stepsize.
    """
    neutral = NEUTRAL.get(operation.kind, ())
    for term in operation.terms:
        is_before_start = steps.numbers(term.offset) < 0
        columns = term.columns(_values_over_steps(term, steps, h))
        _check_columns(operation, columns, type(term.method).__name__)
        for index, column in enumerate(columns):
            neutral_value = neutral[index] if index < len(neutral) else 0.0
            rows[:, index] += np.where(is_before_start, neutral_value, column)


def _check_columns(operation: Operation, columns: Columns, method: str) -> None:
    """Raise ValueError if a method's lowering has too many columns, or noise without a slot."""
    if len(columns) > WIDTH:
        raise ValueError(
            f"{method}: an operation has at most {WIDTH} columns, got {len(columns)}: use several operations"
        )
    noise = NOISE_COLUMN.get(operation.kind, WIDTH)
    if operation.stream_slot < 0 and noise < len(columns) and np.any(columns[noise] != 0):
        raise ValueError(f"{method}: a letter whose operation has noise must say draws=True")


def _values_over_steps(term: Term, steps: Steps, h: Coefficient) -> Values:
    """Return the coefficients of a term's method, and its time, as arrays over the steps."""
    return Values(
        term.method,
        term.fraction * steps.values(h, term.offset),
        lambda name: steps.values(getattr(term.method, name), term.offset),
    )
