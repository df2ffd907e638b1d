"""The user's own tables: files, or data frames, with columns of any kind."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal

import numpy as np

from heatbath._internal.checks import choice
from heatbath._internal.memory import free_memory
from heatbath.datasets.from_arrays import from_arrays, split, strata
from heatbath.datasets.problem import Problem
from heatbath.datasets.tasks import TASKS, Task

COPIES, CELLS = 5, 2  # of the features, and of the cells that they are made of, while a table is read
ALIKE, FEWEST_GIVEN_AWAY, MOST_LOOKED_AT = 1e-9, 10, 100_000  # a correlation of 1, and of how many rows
FEW = 5  # of which it is told
DRAWN = 2  # times as many rows are kept while some are drawn

if TYPE_CHECKING:
    import pandas as pd

    from heatbath.datasets.tables import Opened


def from_table(
    table: str | os.PathLike[str] | BinaryIO | pd.DataFrame | Opened,
    target: str | Sequence[str],
    *,
    test_share: float = 0.2,
    task: Task | None = None,
    seed: int = 0,
    weights: str | None = None,
    class_weight: Literal["balanced"] | None = None,
    standardise: bool = True,
    ignore: Iterable[str] = (),
    categorical: Iterable[str] = (),
    keep: Iterable[str] = (),
    rows: int | None = None,
) -> Problem:
    """A table in a file (see `tables.open_table`) or a data frame: `target` is the column to predict, or
    several columns of numbers, `weights` one that says how often each row counts, if there is one, and
    features are made of all others.

    What a column is, a number, a date, a truth value or a category, is learned from the training rows (see
    `tables.TableEncoder`, which also has `ignore`, `categorical` and `keep`), and is the problem's `encoder`:
    `problem.encoder.notes()` says it. Text in the target column makes classes, in alphabetical order; for
    numbers there, the split, weights and `class_weight`, see `from_arrays`. Rows without a target are left
    out. Of more than `rows` so many are taken, drawn at random by `seed`. A file that would not fit in
    memory is refused by its first rows, before the others are taken into it, with how many rows would.
    """
    import pandas as pd

    from heatbath._internal.warnings import UnforeseenDataWarning
    from heatbath.datasets.tables import Opened, TableEncoder
    from heatbath.datasets.tables.encoder import as_frame
    from heatbath.datasets.tables.read import draw_rows, named, read_sample, told
    from heatbath.datasets.tables.target import Targets, read_targets, read_weights

    if task is not None:
        choice("task", task, tuple(TASKS))
    name = "the table" if isinstance(table, (pd.DataFrame, Opened)) else named(table)
    targets = [target] if isinstance(target, str) else list(target)
    given = {"ignore": ignore, "categorical": categorical, "keep": keep}
    asked = {option: (few,) if isinstance(few, str) else tuple(few) for option, few in given.items()}
    apart = [*targets, *([] if weights is None else [weights])]

    def look(first: pd.DataFrame, share: float) -> None:
        """Refuse what cannot be, before the rest of a large file is read."""
        if problems := _wrong_names(list(first.columns), apart, asked):
            raise ValueError(told(name, problems))
        left_out = {*apart, *asked["ignore"]}
        _check_memory(name, first[[one for one in first.columns if one not in left_out]], share, rows)

    lines: list[str] = []
    advice = ""
    if isinstance(table, (pd.DataFrame, Opened)):
        opened = Opened(table) if isinstance(table, pd.DataFrame) else table
        if rows is not None:
            frame, drawn = draw_rows([opened.frame], rows, seed)
            opened = Opened(frame, (*opened.notes, *drawn), opened.decimal)
    else:
        opened, lines, advice = read_sample(table, rows=rows, seed=seed, look=look)
    frame, notes, decimal = as_frame(opened.frame), opened.notes, opened.decimal
    del opened  # and its frame, which may be the larger part of memory
    wrong, there = _wrong_names(list(frame.columns), apart, asked), set(frame.columns)
    read = Targets(np.empty(0), np.ones(len(frame), bool))
    if there.issuperset(targets):
        read = read_targets(frame, targets, task)
    frame = frame if read.rows.all() else frame[read.rows]
    w, unweighed = (None, []) if weights is None or weights not in there else read_weights(frame, weights)
    if wrong or lines or read.problems or unweighed:
        text = told(name, wrong, lines, read.problems, unweighed)
        raise ValueError(text + (advice if lines else "") + read.hint)
    y = read.y
    if w is not None:
        y, frame, w = y[w > 0], frame[w > 0], w[w > 0]
    cells = frame.drop(columns=apart)
    options = {option: [one for one in names if one not in apart] for option, names in asked.items()}
    try:
        _, train = split(len(frame), test_share, seed, strata(y, task))
    except ValueError as error:
        raise ValueError(f"{name}, target {', '.join(map(repr, targets))}: {error}") from None
    if len(train) < 2:
        aside = (
            f", and {len(frame) - len(train)} of them set aside to test" if len(frame) > len(train) else ""
        )
        raise ValueError(
            f"{name} has too few rows to learn from: {len(frame)} with a value of "
            f"{' and '.join(map(repr, targets))}{aside}; 2 are needed for training"
        )
    try:
        encoder = TableEncoder(**options).fit(cells.iloc[np.sort(train)])
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", UnforeseenDataWarning
            )  # what only test rows have is what a test is for
            X = encoder.transform(cells)
        del frame, cells
        features = encoder.get_feature_names_out().tolist()
        problem = from_arrays(
            X, y, None, None, test_share, task, standardise, features, seed, w, class_weight
        )
    except ValueError as error:
        raise ValueError(f"{name}, target {', '.join(map(repr, targets))}: {error}") from None
    remarks = (*notes, *read.notes, *encoder.remarks_, *_giveaways(problem, targets))
    labels = problem.targets if TASKS[problem.task].classes else tuple(targets)
    stem = Path(name).stem if isinstance(table, (str, os.PathLike)) and table != "-" else "table"
    return replace(problem, name=stem, targets=labels, encoder=encoder.with_remarks(remarks, decimal))


def _giveaways(problem: Problem, targets: list[str]) -> list[str]:
    """What is to be said of features from which a target follows exactly."""
    if problem.task == "classes" or problem.X_train.shape[1] < FEWEST_GIVEN_AWAY:
        return []
    some = slice(None, None, -(-problem.X_train.shape[1] // MOST_LOOKED_AT))
    X, Y = problem.X_train[0, some], problem.Y_train[0, some]
    with np.errstate(all="ignore"):
        products = (X - X.mean(axis=0)).T @ (Y - Y.mean(axis=0)) / len(X)
        alike = np.abs(products / np.outer(X.std(axis=0), Y.std(axis=0))) > 1 - ALIKE
    return [
        f"warning: {problem.features[feature]} says {targets[target]!r} exactly: if it is not known before, "
        "leave it out (--ignore)"
        for feature, target in np.argwhere(alike)[:FEW]
    ]


def _check_memory(name: str, first: pd.DataFrame, share: float, rows: int | None) -> None:
    """Refuse a table that would not fit in the memory that is free, by its first rows, and which share of
    the file they are."""
    from heatbath.datasets.tables import TableEncoder

    total = len(first) / share
    wanted = total if rows is None else min(total, DRAWN * rows)
    try:
        features = len(TableEncoder().fit(first).get_feature_names_out())
    except ValueError:  # of which more is said when all is read
        features = first.shape[1]
    each = CELLS * first.memory_usage(deep=True, index=True).sum() / len(first) + 8 * COPIES * features
    needed, free = wanted * each, free_memory()
    if needed > free:
        fit = float(f"{free / (2 * DRAWN * each):.1g}")
        raise MemoryError(
            f"{name} has about {float(f'{total:.2g}'):,.0f} rows with {features:,} features: to learn from "
            f"{'them' if rows is None else f'{rows:,} of them'} needs about {needed / 1e9:,.1f} GB of "
            f"memory, and {free / 1e9:,.1f} GB are free. Learn from some of them, drawn at random (--rows "
            f"{fit:.0f}), or leave columns out (--ignore)"
        )


def _wrong_names(there: list[str], apart: list[str], asked: dict[str, tuple[str, ...]]) -> list[str]:
    """What is wrong with the names of columns: of target and weights, which are apart, and of those for which
    something is asked."""
    problems = []
    for name in dict.fromkeys([*apart, *chain(*asked.values())]):
        if name not in there:
            near = get_close_matches(name, there, 1)
            hint = f"; is it {near[0]!r}?" if near else ", as its first line says"
            parts = [part.strip() for part in name.split(",")]
            if len(parts) > 1 and {*there}.issuperset(parts):
                hint = f". Name each of several by itself, as in --target {parts[0]} --target {parts[1]}"
            elif len(there) == 1 and name in there[0].split():
                hint = ": cells have to be separated by commas, semicolons, tabs or bars"
            problems.append(f"there is no column {name!r}: it has {_few(there)}{hint}")
    for name in {name for name in apart if apart.count(name) > 1}:
        problems.append(f"target and weights must be different columns, got {name!r} twice")
    for name in dict.fromkeys(asked["ignore"]):
        other = "is the target, or the weights" if name in apart else ""
        other = other or " and ".join(f"in {one}" for one in ("categorical", "keep") if name in asked[one])
        if other:
            problems.append(f"column {name!r} is in ignore, and {other}: leave out one of the two")
    if not problems and len(there) == len(apart):
        problems.append(f"there is no column beside {_few(apart)}, from which it could be learned")
    return problems


def _few(names: list[str]) -> str:
    return ", ".join(map(repr, names[:20])) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
