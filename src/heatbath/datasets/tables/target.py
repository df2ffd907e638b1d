"""Read the columns to predict and the weights of rows, and collect what is wrong with their cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from heatbath.datasets.tables.parsing import BLANKS, MISSING, numbers, row_label, texts, unit_of, without_unit
from heatbath.datasets.tasks import TASKS, Task

MOST_CLASSES = 1000  # different texts above which they are no classes
FEW_CLASSES = 20  # below, they are; in between, if there are at most half as many as rows
MOST_ROWS = 5  # rows that a note lists
NO_CLASS = MISSING | {"?", "."}  # other texts for missing, such as none, may be names of classes


class Targets(NamedTuple):
    """Targets of a table, or what is wrong with them.

    Attributes
    ----------
    y : array, (rows,) or (rows, targets)
        Text or numbers of the rows that have all targets.
    rows : array of bool
        Which rows of the table these are.
    notes : tuple of str
        Remarks on the other rows and on the names of classes.
    problems : tuple of str
        What is wrong with the targets; then `y` is empty.
    hint : str
        How to solve these problems.
    """

    y: NDArray[Any]
    rows: NDArray[np.bool_]
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    hint: str = ""


def read_targets(frame: pd.DataFrame, names: Sequence[str], task: Task | None) -> Targets:
    """Read the targets of a table; rows without a target are left out, with a note.

    Parameters
    ----------
    frame : DataFrame
        The table.
    names : sequence of str
        Names of the target columns.
    task : str or None
        The task, if the user has chosen one.

    Returns
    -------
    Targets
        The targets of the other rows, or all problems with their cells and how to solve them.
    """
    parsed = [_parse_target(frame[name], name, task, len(names) > 1) for name in names]
    columns = [column for column, _ in parsed]
    problems = [problem for _, column_problems in parsed for problem in column_problems]
    missing = np.any([pd.isna(column) for column in columns], axis=0)
    label = " or ".join(map(repr, names))

    if not problems and missing.all():
        problems.append(f"there is no row with a value of {label} to learn from")
    for name, column in zip(names, columns, strict=True):
        if not problems and (~missing).sum() > 1 and len(set(column[~missing].tolist())) == 1:
            value = texts(frame[name][~missing]).iloc[0]
            problems.append(f"column {name!r} is {value} in all rows: there is nothing to learn")

    if problems:
        needs_numbers = "a number is needed" in problems[0]  # as `_parse_target` says of single cells
        hint = "; rows whose cell is empty are left out" if needs_numbers else ""
        if needs_numbers and task is None and len(names) == 1:
            hint += "; if these are names of classes, set the task to classes (--task classes)"
        return Targets(np.empty(0), np.ones(len(frame), bool), (), tuple(problems), hint)

    notes = []
    if missing.any():
        rows = ", ".join(map(str, frame.index[missing][:MOST_ROWS]))
        ellipsis = ", ..." if missing.sum() > MOST_ROWS else ""
        notes.append(
            f"{missing.sum()} rows without {label} are left out ({row_label(frame)} {rows}{ellipsis})"
        )

    y = columns[0] if len(columns) == 1 else np.column_stack(columns)
    if y.dtype == object and (alike := _differing_in_capitals(y[~missing])):
        notes.append(
            f"warning: {' and '.join(map(repr, alike))} are taken for different classes of {label}: write "
            "them alike if they are one"
        )
    return Targets(y[~missing], ~missing, tuple(notes))


def _differing_in_capitals(classes: NDArray[Any]) -> list[str]:
    """Return the first names of classes that differ only in capital letters, or an empty list."""
    spellings: dict[str, list[str]] = {}
    for name in sorted(set(classes)):
        spellings.setdefault(name.lower(), []).append(name)
    return next((names for names in spellings.values() if len(names) > 1), [])


def read_weights(frame: pd.DataFrame, name: str) -> tuple[NDArray[np.float64], list[str]]:
    """Return the weight of each row, (rows,), and sentences on what is wrong with the cells."""
    values = numbers(frame[name])
    problems = [
        f"{row_label(frame)} {row}, column {name!r}: a weight must be a number >= 0, got {cell!r}"
        for row, cell in frame[name][~(values >= 0)].items()
    ]
    if len(values) and not problems and not values.any():
        problems = [f"column {name!r}: some weights must be positive, and all are 0"]
    return values, problems


def _parse_target(
    column: pd.Series, name: str, task: Task | None, several: bool
) -> tuple[NDArray[Any], list[str]]:
    """Read the cells of a target as numbers if they can be, and otherwise as names of classes.

    Parameters
    ----------
    column : Series
        The cells.
    name : str
        The name of the column in messages.
    task : str or None
        The task, if the user has chosen one.
    several : bool
        True if it is one of several targets, which must be numbers.

    Returns
    -------
    values : array, (rows,)
        Numbers or texts, with NaN for missing cells.
    problems : list of str
        What is wrong with the cells.
    """
    values, is_bool = numbers(column), pd.api.types.is_bool_dtype(column.dtype)
    if pd.api.types.is_numeric_dtype(column.dtype) and (several or not is_bool):
        return values, []

    text = texts(column, NO_CLASS)
    odd = np.isnan(values) & np.array(texts(column, BLANKS).notna())
    if not is_bool and not odd.any() and not np.isnan(values).all():
        return values, []

    needs_numbers = several or (task is not None and not TASKS[task].classes)
    if needs_numbers and np.isnan(values).all() and odd.any():
        role = "one of several targets" if several else f"the target of the task {task}"
        advice = "choose one target, or others" if several else "leave out the task, or choose another target"
        return values, [f"column {name!r} has no numbers, which {role} needs: {advice}"]
    if needs_numbers or (task is None and not is_bool and not np.isnan(values).all()):
        return values, [
            f"{row_label(column)} {row}, column {name!r}: a number is needed, got {cell!r}"
            for row, cell in text[odd].items()
        ]

    distinct, rows = text.nunique(), text.notna().sum()
    if distinct > MOST_CLASSES or distinct > max(FEW_CLASSES, rows / 2):
        unit = unit_of(text.dropna(), 0.0)
        if unit is not None and task is None:
            return numbers(without_unit(text, unit)), []
        problem = (
            f"column {name!r}: {distinct} different texts in {rows} rows are too many for classes, and no "
            "numbers: choose another target"
        )
        return np.array(text, object), [problem]
    return np.array(text, object), []
