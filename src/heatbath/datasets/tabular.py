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

from heatbath.checks import choice
from heatbath.datasets.arrays import from_arrays, split
from heatbath.datasets.problem import Problem
from heatbath.tasks import TASKS, Task

if TYPE_CHECKING:
    import pandas as pd

    from heatbath.tables import Opened


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
) -> Problem:
    """A table in a file (see `tables.open_table`) or a data frame: `target` is the column to predict, or
    several columns of numbers, `weights` one that says how often each row counts, if there is one, and
    features are made of all others.

    What a column is, a number, a date, a truth value or a category, is learned from the training rows (see
    `tables.TableEncoder`, which also has `ignore`, `categorical` and `keep`), and is the problem's `encoder`:
    `problem.encoder.notes()` says it. Text in the target column makes classes, in alphabetical order; for
    numbers there, the split, weights and `class_weight`, see `from_arrays`. Rows without a target are left
    out.
    """
    import pandas as pd

    from heatbath.tables import Opened, TableEncoder, Unforeseen, open_table
    from heatbath.tables.encoder import as_frame
    from heatbath.tables.opening import named, told
    from heatbath.tables.target import read_targets, read_weights

    if task is not None:
        choice("task", task, tuple(TASKS))
    name = "the table" if isinstance(table, (pd.DataFrame, Opened)) else named(table)
    opened = Opened(table) if isinstance(table, pd.DataFrame) else table
    opened = opened if isinstance(opened, Opened) else open_table(opened)
    frame = as_frame(opened.frame)
    targets = [target] if isinstance(target, str) else list(target)
    given = {"ignore": ignore, "categorical": categorical, "keep": keep}
    asked = {option: (few,) if isinstance(few, str) else tuple(few) for option, few in given.items()}
    apart = [*targets, *([] if weights is None else [weights])]
    if problems := _wrong_names(list(frame.columns), apart, asked):
        raise ValueError(told(name, problems))
    y, rows, remarks = read_targets(frame, targets, task, name)
    frame = frame[rows]
    w = None
    if weights is not None:
        w = read_weights(frame, weights, name)
        if not w.any():
            raise ValueError(f"{name}, column {weights!r}: some weights must be positive, they are all 0")
        y, frame, w = y[w > 0], frame[w > 0], w[w > 0]
    cells = frame.drop(columns=apart)
    options = {option: [one for one in names if one not in apart] for option, names in asked.items()}
    _, train = split(len(frame), test_share, seed)
    try:
        encoder = TableEncoder(**options).fit(cells.iloc[np.sort(train)])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Unforeseen)  # what only test rows have is what a test is for
            X = encoder.transform(cells)
        features = encoder.get_feature_names_out().tolist()
        problem = from_arrays(
            X, y, None, None, test_share, task, standardise, features, seed, w, class_weight
        )
    except ValueError as error:
        raise ValueError(f"{name}, target {', '.join(map(repr, targets))}: {error}") from None
    labels = problem.targets if TASKS[problem.task].classes else tuple(targets)
    stem = Path(name).stem if isinstance(table, (str, os.PathLike)) and table != "-" else "table"
    return replace(
        problem, name=stem, targets=labels, encoder=encoder.with_remarks([*opened.notes, *remarks])
    )


def _wrong_names(there: list[str], apart: list[str], asked: dict[str, tuple[str, ...]]) -> list[str]:
    """What is wrong with the names of columns: of target and weights, which are apart, and of those for which
    something is asked."""
    problems = []
    for name in dict.fromkeys([*apart, *chain(*asked.values())]):
        if name not in there:
            near = get_close_matches(name, there, 1)
            hint = f"; is it {near[0]!r}?" if near else ", as its first line says"
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
