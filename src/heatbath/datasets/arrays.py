"""The user's own data: CSV files and arrays."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from heatbath.checks import SHARE, choice, real, whole
from heatbath.datasets.problem import Floats, Problem, check_counts, moments, numbers
from heatbath.tasks import TASKS, Task

MOST_CLASSES = 20  # whole numbers with more distinct values than this are taken for a regression's targets


def csv_rows(path: str | os.PathLike[str]) -> list[tuple[int, list[str]]]:
    """The rows of a CSV file that are not empty, with the numbers of their lines."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            return [(reader.line_num, [cell.strip() for cell in row]) for row in reader if row]
    except OSError as error:
        raise type(error)(f"{path} cannot be read ({error.strerror}): check the path") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} is not a CSV file in UTF-8: {error}") from None


def from_csv(
    path: str | os.PathLike[str],
    target: str,
    test_share: float = 0.2,
    standardise: bool = True,
    task: Task | None = None,
    seed: int = 0,
    weights: str | None = None,
) -> Problem:
    """A table in a CSV file with a header: `target` is the column to predict, `weights` one that says how
    often each row counts, if there is one, and all others are features.

    Features are numbers. Text in the target column makes classes, in alphabetical order; for numbers there,
    and for weights, see `from_arrays`.
    """
    rows = csv_rows(path)
    if len(rows) < 2:
        raise ValueError(f"{path} must have a header and at least one row below it, it has {len(rows)} rows")
    (_, header), *body = rows
    features = features_in(path, header, target, weights)
    place = header.index(target)
    for line, row in body:
        if len(row) != len(header):
            raise ValueError(f"{path}, row {line}: {len(header)} cells are needed, got {len(row)}")
        if row[place].lower() in ("", "nan"):
            raise ValueError(
                f"{path}, row {line}, column {target!r}: the value is missing, got {row[place]!r}"
            )

    def number(line: int, column: str, cell: str, hint: str = "") -> float:
        value = _parsed(cell)
        if value is None or not math.isfinite(value):
            raise ValueError(f"{path}, row {line}, column {column!r}: a number is needed, got {cell!r}{hint}")
        return value

    numeric = [_parsed(row[place]) is not None for _, row in body]
    if task in ("regression", "counts") or all(numeric) or (task is None and any(numeric)):
        hint = "; if these are names of classes, pass task='classes'" if task is None else ""
        y: list[Any] = [number(line, target, row[place], hint) for line, row in body]
    else:
        y = [row[place] for _, row in body]
    X = [[number(line, header[i], row[i]) for i in features] for line, row in body]
    names = [header[i] for i in features]
    w = None
    if weights is not None:
        w = [number(line, weights, row[header.index(weights)]) for line, row in body]
    try:
        problem = from_arrays(X, y, None, None, test_share, task, standardise, names, seed, w)
    except ValueError as error:
        raise ValueError(f"{path}, target {target!r}: {error}") from None
    targets = problem.targets if TASKS[problem.task].classes else (target,)
    return replace(problem, name=Path(path).stem, targets=targets)


def features_in(
    path: str | os.PathLike[str], header: Sequence[str], target: str, weights: str | None
) -> list[int]:
    """Which columns of a table are features: all but the target and the weights, which are there once."""
    others = [target] if weights is None else [target, weights]
    if target == weights:
        raise ValueError(f"{path}: weights must be another column than the target, got {target!r} for both")
    if any(header.count(name) != 1 for name in others) or len(header) <= len(others):
        raise ValueError(
            f"{path} must have one column {' and one '.join(map(repr, others))} and at least one other; "
            f"it has {', '.join(map(repr, header))}"
        )
    return [place for place, name in enumerate(header) if name not in others]


def _parsed(cell: str) -> float | None:
    try:
        return None if "_" in cell else float(cell)  # Python would read 1_000 as a number
    except ValueError:
        return None


def from_arrays(
    X: ArrayLike,
    y: ArrayLike,
    X_test: ArrayLike | None = None,
    y_test: ArrayLike | None = None,
    test_share: float = 0.2,
    task: Task | None = None,
    standardise: bool = False,
    features: Sequence[str] | None = None,
    seed: int = 0,
    weights: ArrayLike | None = None,
) -> Problem:
    """The user's own arrays: X (examples, features) and y (examples,), or (examples, targets) where they are
    values or counts.

    Unless `X_test` and `y_test` are given, a share of the rows, drawn by `seed`, is set aside for the test.
    `weights` (examples,) say how often each row of X counts, in training, in the test and in the means by
    which data are standardised: 2 is as two of it, 0 leaves it out; rows of `X_test` count once.
    Where `task` is None, text, truth values and whole numbers with at most 20 distinct values are classes
    (`binary` if there are two), all other numbers a regression; `counts` have to be asked for. To standardise
    is to give every feature, and the targets of a regression, mean 0 and variance 1 over the training
    examples; a constant keeps its scale.
    """
    X, known = numbers("X", X, (2,)), _targets("y", y)
    if len(X) != len(known) or not len(X):
        raise ValueError(
            f"X and y must have the same number of rows, at least one; got {len(X)} and {len(known)}"
        )
    w = None if weights is None else numbers("weights", weights, (1,))
    if w is not None:
        if len(w) != len(X):
            raise ValueError(f"weights must be one for each of the {len(X)} rows of X, got {len(w)}")
        if (w < 0).any() or not w.any():
            raise ValueError(
                f"weights must be >= 0, and positive for some rows; they are from {w.min():g} to {w.max():g}"
            )
        X, known, w = X[w > 0], known[w > 0], w[w > 0]
    task = _inferred(known) if task is None else task
    choice("task", task, tuple(TASKS))
    Y, names = _encoded("y", known, task, known)
    w_test = None
    if X_test is not None and y_test is not None:
        X_test, Y_test = (
            numbers("X_test", X_test, (2,)),
            _encoded("y_test", _targets("y_test", y_test), task, known)[0],
        )
        if X_test.shape[1] != X.shape[1] or Y_test.shape != (len(X_test), Y.shape[1]):
            raise ValueError(
                "X_test and y_test must have the columns of X and y and the same number of rows; X is "
                f"{X.shape}, y {Y.shape}, X_test {X_test.shape}, y_test {Y_test.shape}"
            )
    elif X_test is None and y_test is None:
        share = real("test_share", test_share, SHARE)
        n_test = min(len(X) - 1, max(1, round(share * len(X)))) if share else 0
        order = np.random.default_rng(whole("seed", seed, low=0)).permutation(len(X))
        test, train = order[:n_test], order[n_test:]
        X_test, Y_test, X, Y = X[test], Y[test], X[train], Y[train]
        if w is not None:
            w_test, w = w[test], w[train]
    else:
        raise ValueError("X_test and y_test must be given together, or neither of them")
    shift, scale = _statistics(X, w, standardise)
    target_shift, target_scale = _statistics(Y, w, standardise and task == "regression")
    X, X_test = ((part - shift) / scale for part in (X, X_test))
    Y, Y_test = ((part - target_shift) / target_scale for part in (Y, Y_test))
    if features is None:
        features = tuple(f"x{i}" for i in range(1, X.shape[1] + 1))
    return Problem(
        "arrays",
        task,
        X[None],
        Y[None],
        X_test[None],
        Y_test[None],
        features,  # type: ignore[arg-type]  # Problem makes a tuple of it, or says why not
        names,
        shift,
        scale,
        target_shift,
        target_scale,
        weights_train=None if w is None else w[None],
        weights_test=None if w_test is None else w_test[None],
    )


def _targets(label: str, given: object) -> NDArray[Any]:
    """Targets (examples, columns), as text or as floats; truth values are text."""
    array = np.asarray(given)
    if array.dtype.kind in "bUT" or (array.dtype.kind == "O" and all(isinstance(x, str) for x in array.flat)):
        array = array.astype(str)
        if array.ndim not in (1, 2) or np.isin(np.char.lower(np.char.strip(array)), ["", "nan"]).any():
            raise ValueError(
                f"{label} must be one column of names of classes without missing ones, got {given!r}"
            )
    else:
        array = numbers(label, given, (1, 2))
    return array[:, None] if array.ndim == 1 else array


def _inferred(y: NDArray[Any]) -> Task:
    distinct = np.unique(y)
    if y.dtype.kind == "f" and (
        y.shape[1] > 1 or len(distinct) > MOST_CLASSES or (distinct != np.floor(distinct)).any()
    ):
        return "regression"
    return "binary" if len(distinct) == 2 else "classes"


def _encoded(label: str, y: NDArray[Any], task: Task, known: NDArray[Any]) -> tuple[Floats, tuple[str, ...]]:
    """Y and the names of the targets; the classes are those in `known`."""
    if not TASKS[task].classes:
        if y.dtype.kind != "f":
            raise ValueError(f"{label} must hold numbers for task {task!r}, got {y[0, 0]!r}")
        if task == "counts":
            check_counts(label, y)
        return y, ("y",) if y.shape[1] == 1 else tuple(f"y{i}" for i in range(1, y.shape[1] + 1))
    classes = np.unique(known)
    names = [str(c) if known.dtype.kind != "f" else np.format_float_positional(c, trim="-") for c in classes]
    if y.shape[1] != 1 or len(classes) < 2 or (task == "binary" and len(classes) > 2):
        raise ValueError(
            f"{label} must be one column with {'two' if task == 'binary' else 'at least two'} classes for "
            f"task {task!r}, got {y.shape[1]} columns and the classes {', '.join(names[:10])}; for a "
            "regression pass task='regression'"
        )
    if y.dtype.kind != known.dtype.kind or not np.isin(y, classes).all():
        raise ValueError(f"{label} must hold classes that y has ({', '.join(names[:10])}), got others")
    return np.searchsorted(classes, y).astype(np.float64), tuple(names)


def _statistics(values: Floats, weights: Floats | None, wanted: bool) -> tuple[Floats, Floats]:
    """The shift and scale that give every column mean 0 and variance 1, or change nothing."""
    if not wanted:
        return np.zeros(values.shape[1]), np.ones(values.shape[1])
    constant = (values == values[0]).all(axis=0)
    mean, variance = moments(values, weights)
    spread = np.sqrt(variance)
    return np.where(constant, values[0], mean), np.where(constant | (spread == 0), 1.0, spread)
