"""The user's own arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from heatbath._internal.checks import SHARE, choice, real, whole
from heatbath.datasets.problem import Floats, Problem, check_counts, numbers, standard
from heatbath.datasets.tasks import TASKS, Task

MOST_CLASSES = (
    20  # whole numbers with more distinct values than this are taken for a regression's targets, and
)
MOSTLY = 0.75  # so are more than two of which a larger share is different


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
    class_weight: Literal["balanced"] | None = None,
) -> Problem:
    """The user's own arrays: X (examples, features) and y (examples,), or (examples, targets) where they are
    values or counts.

    Unless `X_test` and `y_test` are given, a share of the rows, drawn by `seed`, is set aside for the test,
    of each class the same share, where it has enough.
    `weights` (examples,) say how often each row of X counts, in training, in the test and in the means by
    which data are standardised: 2 is as two of it, 0 leaves it out; rows of `X_test` count once.
    `class_weight="balanced"` multiplies them, in training, by what gives all classes the same sum.
    Where `task` is None, text, truth values and whole numbers with at most 20 distinct values are classes
    (`binary` if there are two), all other numbers a regression, and so are more than two whole numbers of
    which more than three in four are different; `counts` have to be asked for. To standardise is to give
    every feature, and the targets of a regression, mean 0 and variance 1 over the training examples; a
    constant keeps its scale.
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
        test, train = split(len(X), test_share, seed, strata(known, task))
        X_test, Y_test, X, Y = X[test], Y[test], X[train], Y[train]
        if w is not None:
            w_test, w = w[test], w[train]
    else:
        raise ValueError("X_test and y_test must be given together, or neither of them")
    factors = None
    if class_weight is not None:
        factors = _balanced(Y, task, class_weight, len(names))
        w = factors[Y[:, 0].astype(np.int64)] * (1.0 if w is None else w)
    shift, scale = standard(X, w, standardise)
    target_shift, target_scale = standard(Y, w, standardise and task == "regression")
    X, X_test = (_scaled(part, shift, scale) for part in (X, X_test))
    Y, Y_test = (_scaled(part, target_shift, target_scale) for part in (Y, Y_test))
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
        class_factors=None if factors is None else tuple(factors.tolist()),
    )


def _scaled(values: Floats, shift: Floats, scale: Floats) -> Floats:
    result = values - shift
    result /= scale
    return result


def split(
    rows: int, test_share: float, seed: int, classes: NDArray[Any] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Which rows are for the test and which for training, which has at least one; drawn by the seed. Where
    all are for training, they stay in order.

    Each of the `classes` (rows,) has its share of both, and as far as its rows suffice one at least, of one
    row that of training.
    """
    share = real("test_share", test_share, SHARE)
    if not share:
        return np.arange(0), np.arange(rows)
    tests = min(rows - 1, max(1, round(share * rows)))
    order = np.random.default_rng(whole("seed", seed, low=0)).permutation(rows)
    if classes is None:
        return order[:tests], order[tests:]
    _, codes, counts = np.unique(classes[order], return_inverse=True, return_counts=True)
    if (counts - 1).sum() < tests:
        return order[:tests], order[tests:]
    rank, by_class = np.empty(rows, np.int64), np.argsort(codes, kind="stable")
    rank[by_class] = np.arange(rows) - np.repeat(np.cumsum(counts) - counts, counts)
    chosen = rank < _apart(counts, tests)[codes]
    return order[chosen], order[~chosen]


def _apart(counts: NDArray[np.int64], tests: int) -> NDArray[np.int64]:
    """How many rows of each class are for the test, by largest remainders."""
    exact, most = tests * counts / counts.sum(), counts - 1
    least = np.minimum(most, int(np.count_nonzero(most) <= tests))
    each: NDArray[np.int64] = np.clip(np.floor(exact).astype(np.int64), least, most)
    while lacking := int(np.sign(tests - each.sum())):
        free = each < most if lacking > 0 else each > least
        each[np.argmax(np.where(free, lacking * (exact - each), -np.inf))] += lacking
    return each


def strata(y: NDArray[Any], task: Task | None) -> NDArray[Any] | None:
    """The classes of which a test has its share, (rows,), where targets are classes; None where they are
    numbers."""
    known = _targets("y", y)
    return known[:, 0] if TASKS[_inferred(known) if task is None else task].classes else None


def _balanced(Y: Floats, task: Task, class_weight: object, classes: int) -> Floats:
    """The factor of each class, in inverse proportion to its size; 1 where there is no example of it."""
    from sklearn.utils.class_weight import compute_class_weight

    choice("class_weight", class_weight, ("balanced",))
    if not TASKS[task].classes:
        raise ValueError(f"class_weight is for classes, and this is {task!r}: leave it out")
    present = np.unique(Y[:, 0])
    factors = np.ones(classes)
    factors[present.astype(np.int64)] = compute_class_weight("balanced", classes=present, y=Y[:, 0])
    return factors


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
    many = len(distinct) > MOST_CLASSES or len(distinct) > max(2, MOSTLY * len(y))
    if y.dtype.kind == "f" and (y.shape[1] > 1 or many or (distinct != np.floor(distinct)).any()):
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
