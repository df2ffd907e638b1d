"""The column that is to be predicted, or several of them: names of classes or numbers, with all that is wrong
in one message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from heatbath.datasets.tables.parsing import BLANKS, MISSING, numbers, place, texts, unit_of, without_unit
from heatbath.datasets.tasks import TASKS, Task

MOST_NAMES, MOST_IN_FEW = 1000, 20  # classes, beyond which (or half of the rows) texts are none
FEW = 5  # rows that a note names
NO_CLASS = MISSING | {"?", "."}  # other words for missing, such as none, may be names of classes


class Targets(NamedTuple):
    """Targets of the rows that have them, text, or numbers (rows,) or (rows, targets); which rows; what is to
    be said of the others; what is wrong, and what to do about it."""

    y: NDArray[Any]
    rows: NDArray[np.bool_]
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    hint: str = ""


def read_targets(frame: pd.DataFrame, names: Sequence[str], task: Task | None) -> Targets:
    """The targets in these columns of a table. Rows without one are left out, and it is said."""
    problems: list[str] = []
    columns = [_target(frame[name], name, task, len(names) > 1, problems) for name in names]
    missing = np.any([pd.isna(column) for column in columns], axis=0)
    label = " or ".join(map(repr, names))
    if not problems and missing.all():
        problems.append(f"there is no row with a value of {label} to learn from")
    for name, column in zip(names, columns, strict=True):
        if not problems and (~missing).sum() > 1 and len(set(column[~missing].tolist())) == 1:
            value = texts(frame[name][~missing]).iloc[0]
            problems.append(f"column {name!r} is {value} in all rows: there is nothing to learn")
    if problems:
        mixed = task is None and len(names) == 1 and "a number is needed" in problems[0]
        hint = "; rows whose cell is empty are left out" if "a number is needed" in problems[0] else ""
        hint += (
            "; if these are names of classes, say that the task is classes (--task classes)" if mixed else ""
        )
        return Targets(np.empty(0), np.ones(len(frame), bool), (), tuple(problems), hint)
    notes = []
    if missing.any():
        rows = ", ".join(map(str, frame.index[missing][:FEW]))
        more = ", ..." if missing.sum() > FEW else ""
        notes.append(f"{missing.sum()} rows without {label} are left out ({place(frame)} {rows}{more})")
    y = columns[0] if len(columns) == 1 else np.column_stack(columns)
    if y.dtype == object and (alike := _alike(y[~missing])):
        notes.append(
            f"warning: {' and '.join(map(repr, alike))} are taken for different classes of {label}: write "
            "them alike if they are one"
        )
    return Targets(y[~missing], ~missing, tuple(notes))


def _alike(classes: NDArray[Any]) -> list[str]:
    """The first names of classes that differ in capitals only."""
    found: dict[str, list[str]] = {}
    for name in sorted(set(classes)):
        found.setdefault(name.lower(), []).append(name)
    return next((names for names in found.values() if len(names) > 1), [])


def read_weights(frame: pd.DataFrame, name: str) -> tuple[NDArray[np.float64], list[str]]:
    """How often each row counts, and what is wrong."""
    values = numbers(frame[name])
    problems = [
        f"{place(frame)} {row}, column {name!r}: a weight is a number >= 0, got {cell!r}"
        for row, cell in frame[name][~(values >= 0)].items()
    ]
    if len(values) and not problems and not values.any():
        problems = [f"column {name!r}: some weights must be positive, they are all 0"]
    return values, problems


def _target(
    column: pd.Series, name: str, task: Task | None, several: bool, problems: list[str]
) -> NDArray[Any]:
    """Numbers or texts, with NaN where the value is missing."""
    values, truths = numbers(column), pd.api.types.is_bool_dtype(column.dtype)
    if pd.api.types.is_numeric_dtype(column.dtype) and (several or not truths):
        return values
    text = texts(column, NO_CLASS)
    odd = np.isnan(values) & np.array(texts(column, BLANKS).notna())
    if not truths and not odd.any() and not np.isnan(values).all():
        return values
    needs_numbers = several or (task is not None and not TASKS[task].classes)
    if needs_numbers and np.isnan(values).all() and odd.any():
        why = "one of several targets" if several else f"the target of the task {task}"
        advice = "name one target, or others" if several else "leave out the task, or name another target"
        problems.append(f"column {name!r} has no numbers, which {why} needs: {advice}")
        return values
    if needs_numbers or (task is None and not truths and not np.isnan(values).all()):
        problems.extend(
            f"{place(column)} {row}, column {name!r}: a number is needed, got {cell!r}"
            for row, cell in text[odd].items()
        )
        return values
    found, rows = text.nunique(), text.notna().sum()
    if found > MOST_NAMES or found > max(MOST_IN_FEW, rows / 2):
        unit = unit_of(text.dropna(), 0.0)
        if unit is not None and task is None:
            return numbers(without_unit(text, unit))
        problems.append(
            f"column {name!r}: {found} different texts in {rows} rows are too many for classes, and no "
            "numbers: name another target"
        )
    return np.array(text, object)
