"""The tables of coefficients that the compiled loop reads: a row for each step, WIDTH numbers an operation.

Everything is computed elementwise on arrays over the steps, by the same operations whether a coefficient is a
number or on a schedule. So a schedule that happens to be constant gives the same bits as the number.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from heatbath.engine.program import TEMPER, Operation, Program, ProgramStage, Term
from heatbath.methods import Method
from heatbath.methods.letters import Columns, Values
from heatbath.methods.operations import NEUTRAL, NOISE_COLUMN, WIDTH
from heatbath.methods.schedules import Coefficient, at

Array: TypeAlias = NDArray[np.float64]


class Steps:
    """The steps first to stop - 1, with the coefficients and the terms evaluated during them, each once."""

    def __init__(self, first: int, stop: int) -> None:
        self.first, self.count = first, stop - first
        self._known: dict[Coefficient, Array] = {}
        self._columns: dict[Hashable, list[Array]] = {}

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

    def columns(self, operation: Operation, term: Term, method: Method, h: Coefficient) -> list[Array]:
        """Return the columns that a term of a method adds to those of its operation, at stepsize h.

        Before the first step of the word they change nothing.
        """
        key = (operation.kind, operation.stream_slot < 0, term, method, h)
        columns = self._columns.get(key)
        if columns is None:
            columns = self._columns[key] = _evaluate_columns(operation, term, method, self, h)
        return columns


def table(program: Program, stages: Sequence[ProgramStage], steps: Steps) -> Array:
    """Return the coefficients of the operations of a program's stages at some steps.

    Returns
    -------
    array (step, operation, WIDTH)
        The columns of each operation (see `operations`), in the order of `ProgramStage.all_operations`;
        columns that it doesn't have are 0.
    """
    passes = [program_pass for stage in stages for program_pass in stage.passes]
    operations = [
        (program.units[program_pass.unit].part.method, operation)
        for program_pass in passes
        for operation in program_pass.all_operations()
    ]
    rows = np.zeros((steps.count, len(operations), WIDTH))
    for index, (method, operation) in enumerate(operations):
        for term in operation.terms:
            for number, column in enumerate(steps.columns(operation, term, method, program.partition.h)):
                rows[:, index, number] += column
    return rows


def decays(program: Program, stages: Sequence[ProgramStage], steps: Steps) -> Array:
    """Return the precision of every unit's prior that a tempering move among the stages uses.

    Returns
    -------
    array (step, unit)
        At these steps, plus the offset of the tempering move.
    """
    offset = max([stage.offset for stage in stages if stage.kind == TEMPER], default=0)
    return np.stack([steps.values(unit.part.method.prior, offset) for unit in program.units], axis=1)


def _evaluate_columns(
    operation: Operation, term: Term, method: Method, steps: Steps, h: Coefficient
) -> list[Array]:
    """Evaluate the columns that `Steps.columns` returns."""
    neutral = NEUTRAL.get(operation.kind, ())
    is_before_start = steps.numbers(term.offset) < 0
    columns = term.columns(_values_over_steps(term, method, steps, h))
    _check_columns(operation, columns, type(method).__name__)
    evaluated = []
    for index, column in enumerate(columns):
        neutral_value = neutral[index] if index < len(neutral) else 0.0
        evaluated.append(np.where(is_before_start, neutral_value, column))
    return evaluated


def _check_columns(operation: Operation, columns: Columns, method: str) -> None:
    """Raise ValueError if a method's lowering has too many columns, or noise without a slot."""
    if len(columns) > WIDTH:
        raise ValueError(
            f"{method}: an operation has at most {WIDTH} columns, got {len(columns)}: use several operations"
        )
    noise = NOISE_COLUMN.get(operation.kind, WIDTH)
    if operation.stream_slot < 0 and noise < len(columns) and np.any(columns[noise] != 0):
        raise ValueError(f"{method}: a letter whose operation has noise must say draws=True")


def _values_over_steps(term: Term, method: Method, steps: Steps, h: Coefficient) -> Values:
    """Return the coefficients of a method for a term, and the term's time, as arrays over the steps."""
    return Values(
        method,
        term.fraction * steps.values(h, term.offset),
        lambda name: steps.values(getattr(method, name), term.offset),
    )
