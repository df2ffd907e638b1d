"""Read the columns to predict and the weights of rows, and collect what is wrong with their cells."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from heatbath.datasets.tables.parsing import BLANKS, MISSING, numbers, row_label, texts, unit_of, without_unit
from heatbath.datasets.tasks import TASKS, Task

MOST_CLASSES = 1000  # different texts above which they are no classes
FEW_CLASSES = 20  # below, they are; in between, if there are at most half as many as rows
MOST_ROWS = 5  # rows that a note lists
NUMBER_NEEDED = "a number is needed"  # said of each cell that isn't one
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
    has_several = len(names) > 1
    columns: dict[str, NDArray[Any]] = {}
    problems: list[str] = []
    for name in names:
        columns[name], wrong_cells = _parse_target(frame[name], name, task, has_several)
        problems += wrong_cells
    is_missing = np.any([pd.isna(column) for column in columns.values()], axis=0)
    if not problems:
        problems = _nothing_to_learn(frame, columns, is_missing)

    if problems:
        needs_numbers = NUMBER_NEEDED in problems[0]
        hint = "; rows whose cell is empty are left out" if needs_numbers else ""
        if needs_numbers and task is None and not has_several:
            hint += "; if these are names of classes, set the task to classes (--task classes)"
        return Targets(np.empty(0), np.ones(len(frame), bool), (), tuple(problems), hint)

    label = _any_of(names)
    notes = []
    if is_missing.any():
        rows = ", ".join(map(str, frame.index[is_missing][:MOST_ROWS]))
        ellipsis = ", ..." if is_missing.sum() > MOST_ROWS else ""
        notes.append(
            f"{is_missing.sum()} rows without {label} are left out ({row_label(frame)} {rows}{ellipsis})"
        )

    y = np.column_stack(list(columns.values())) if has_several else columns[names[0]]
    spellings = _differing_in_capitals(y[~is_missing]) if y.dtype == object else []
    if spellings:
        notes.append(
            f"warning: {' and '.join(map(repr, spellings))} are taken for different classes of {label}: "
            "write them alike if they are one"
        )
    return Targets(y[~is_missing], ~is_missing, tuple(notes))


def _any_of(names: Iterable[str]) -> str:
    """Return names in quotes as a sentence lists them: 'x' or 'y'."""
    return " or ".join(map(repr, names))


def _nothing_to_learn(
    frame: pd.DataFrame, columns: dict[str, NDArray[Any]], is_missing: NDArray[np.bool_]
) -> list[str]:
    """Return why targets have nothing to learn: no values, or the first that is the same in all rows.

    Parameters
    ----------
    frame : DataFrame
        The table.
    columns : dict
        The parsed targets, by name.
    is_missing : array of bool, (rows,)
        True for rows that lack a target.
    """
    if is_missing.all():
        return [f"there is no row with a value of {_any_of(columns)} to learn from"]
    if np.count_nonzero(~is_missing) == 1:
        return []

    for name, column in columns.items():
        if len(set(column[~is_missing].tolist())) == 1:
            value = texts(frame[name][~is_missing]).iloc[0]
            return [f"column {name!r} is {value} in all rows: there is nothing to learn"]
    return []


def _differing_in_capitals(classes: NDArray[Any]) -> list[str]:
    """Return the first names of classes that differ only in capital letters, or an empty list."""
    spellings: dict[str, list[str]] = {}
    for name in sorted(set(classes)):
        spellings.setdefault(name.lower(), []).append(name)
    return next((alike for alike in spellings.values() if len(alike) > 1), [])


def read_weights(frame: pd.DataFrame, name: str) -> tuple[NDArray[np.float64], list[str]]:
    """Return the weight of each row, (rows,), and sentences on what is wrong with the cells."""
    weights = numbers(frame[name])
    wrong_cells = frame[name][~(weights >= 0)]
    problems = [
        f"{row_label(frame)} {row}, column {name!r}: a weight must be a number >= 0, got {cell!r}"
        for row, cell in wrong_cells.items()
    ]
    if len(weights) and not problems and not weights.any():
        problems = [f"column {name!r}: some weights must be positive, and all are 0"]
    return weights, problems


def _parse_target(
    column: pd.Series, name: str, task: Task | None, has_others: bool
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
    has_others : bool
        True if it is one of several targets, which must be numbers.

    Returns
    -------
    values : array, (rows,)
        Numbers or texts, with NaN for missing cells.
    problems : list of str
        What is wrong with the cells.
    """
    values = numbers(column)
    is_bool = pd.api.types.is_bool_dtype(column.dtype)
    if pd.api.types.is_numeric_dtype(column.dtype) and (has_others or not is_bool):
        return values, []

    has_numbers = not np.isnan(values).all()
    is_odd = np.isnan(values) & np.array(texts(column, BLANKS).notna())  # neither a number nor missing
    if not is_bool and has_numbers and not is_odd.any():
        return values, []

    needs_numbers = has_others or (task is not None and not TASKS[task].classes)
    if needs_numbers and not has_numbers and is_odd.any():
        role = f"the target of the task {task}"
        advice = "leave out the task, or choose another target"
        if has_others:
            role = "one of several targets"
            advice = "choose one target, or others"
        return values, [f"column {name!r} has no numbers, which {role} needs: {advice}"]

    class_names = texts(column, NO_CLASS)
    seems_numeric = task is None and not is_bool and has_numbers
    if needs_numbers or seems_numeric:
        return values, [
            f"{row_label(column)} {row}, column {name!r}: {NUMBER_NEEDED}, got {cell!r}"
            for row, cell in class_names[is_odd].items()
        ]
    return _parse_classes(class_names, name, task)


def _parse_classes(text: pd.Series, name: str, task: Task | None) -> tuple[NDArray[Any], list[str]]:
    """Return texts as names of classes, or as numbers if there are too many and all have the same unit.

    Parameters
    ----------
    text : Series of str
        The texts, with NaN for missing cells.
    name : str
        The name of the column in messages.
    task : str or None
        The task, if the user has chosen one.

    Returns
    -------
    values : array, (rows,)
    problems : list of str
        What is wrong with the column.
    """
    class_count = text.nunique()
    row_count = text.notna().sum()
    if class_count <= min(MOST_CLASSES, max(FEW_CLASSES, row_count / 2)):
        return np.array(text, object), []

    unit = unit_of(text.dropna(), 0.0)
    if unit is not None and task is None:
        return numbers(without_unit(text, unit)), []
    problem = (
        f"column {name!r}: {class_count} different texts in {row_count} rows are too many for classes, and "
        "no numbers: choose another target"
    )
    return np.array(text, object), [problem]
