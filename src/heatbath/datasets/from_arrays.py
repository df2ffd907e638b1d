"""Make a problem from the user's own arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from heatbath._internal.checks import SHARE, choice, real, whole
from heatbath.datasets.problem import Floats, Problem, check_counts, numbers, standard
from heatbath.datasets.tasks import TASKS, Task

# Whole numbers are the targets of a regression if more than 20 are different, or more than three in four
MOST_CLASSES = 20
MOSTLY = 0.75
MOST_LISTED = 10  # names of classes that a message lists


class Split(NamedTuple):
    """Training examples and test examples.

    Attributes
    ----------
    X, Y, weights
        Inputs, (rows, features), targets, (rows, targets), and weights, (rows,) or None, for training.
    X_test, Y_test, weights_test
        The same for the test.
    """

    X: Floats
    Y: Floats
    weights: Floats | None
    X_test: Floats
    Y_test: Floats
    weights_test: Floats | None

    def balanced(self, class_factors: Floats) -> Split:
        """Return the examples with the weights for training multiplied by the factors of their classes."""
        row_factors = class_factors[self.Y[:, 0].astype(np.int64)]
        user_weights = 1.0 if self.weights is None else self.weights
        return self._replace(weights=row_factors * user_weights)


def from_arrays(  # noqa: PLR0913 # options by keyword
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
    """Make a problem from the user's own arrays.

    Parameters
    ----------
    X : array_like, (examples, features)
        Inputs.
    y : array_like, (examples,) or (examples, targets)
        Names or numbers of classes, values, or counts.
    X_test, y_test : array_like, optional
        Test examples, with the columns of X and y.
    test_share : float, optional
        Without `X_test` and `y_test`: the share of the rows that is drawn at random for the test, with the
        same share of each class if it has enough rows.
    task : {"binary", "classes", "regression", "counts"}, optional
        What is to be predicted. By default text, truth values and whole numbers with at most 20 different
        values are classes (`binary` if there are two). All other numbers are a regression, and so are more
        than two different whole numbers if more than three in four rows differ. Ask for `counts`.
    standardise : bool, optional
        Give every feature, and the targets of a regression, mean 0 and variance 1 over the training examples.
        A constant keeps its scale.
    features : sequence of str, optional
        Names of the features. The default is x1, x2, ...
    seed : int, optional
        Seed of the draw of test examples.
    weights : array_like, (examples,), optional
        How often each row of X counts, in training, in the test and in the means by which data are
        standardised: 2 is the same as two equal rows, 0 leaves a row out. Rows of `X_test` count once.
    class_weight : "balanced", optional
        Multiply the weights of training examples by factors that give all classes the same sum.

    Returns
    -------
    Problem

    Raises
    ------
    ValueError
        If the arrays don't fit together, or don't suit the task.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.linspace(-1, 1, 50)[:, None]
    >>> from_arrays(X, np.sin(3 * X[:, 0]))
    Problem('arrays', regression, 40 training and 10 test examples, 1 inputs, 1 outputs)
    """
    inputs, labels, row_weights = _checked_rows(X, y, weights)
    if task is None:
        task = _inferred_task(labels)
    choice("task", task, tuple(TASKS))
    targets, target_names = _encode_targets("y", labels, task, labels)

    if (X_test is None) != (y_test is None):
        raise ValueError("X_test and y_test must be given together, or neither of them")
    if X_test is None:
        test_rows, training_rows = split(len(inputs), test_share, seed, strata(labels, task))
        examples = Split(
            inputs[training_rows], targets[training_rows], _at(row_weights, training_rows),
            inputs[test_rows], targets[test_rows], _at(row_weights, test_rows),
        )  # fmt: skip
    else:
        test_inputs = numbers("X_test", X_test, (2,))
        test_targets, _ = _encode_targets("y_test", _target_columns("y_test", y_test), task, labels)
        examples = Split(inputs, targets, row_weights, test_inputs, test_targets, None)
        _check_test_shapes(examples)

    class_factors = None
    if class_weight is not None:
        class_factors = _balancing_factors(examples.Y, task, class_weight, len(target_names))
        examples = examples.balanced(class_factors)

    if features is None:
        features = [f"x{i}" for i in range(1, inputs.shape[1] + 1)]
    return _scaled_problem(examples, task, features, target_names, standardise, class_factors)


def _check_test_shapes(examples: Split) -> None:
    """Raise ValueError if test examples lack columns of the training examples, or a row lacks its target."""
    X, Y, X_test, Y_test = examples.X, examples.Y, examples.X_test, examples.Y_test
    if X_test.shape[1] != X.shape[1] or Y_test.shape != (len(X_test), Y.shape[1]):
        raise ValueError(
            "X_test and y_test must have the columns of X and y and the same number of rows; X is "
            f"{X.shape}, y {Y.shape}, X_test {X_test.shape}, y_test {Y_test.shape}"
        )


def _checked_rows(
    X: ArrayLike, y: ArrayLike, weights: ArrayLike | None
) -> tuple[Floats, NDArray[Any], Floats | None]:
    """Check the user's arrays, and return the rows that count.

    Parameters
    ----------
    X, y : array_like
        Inputs, and targets in one or several columns.
    weights : array_like or None
        How often each row counts; rows of weight 0 are left out.

    Returns
    -------
    inputs : array, (rows, features)
    targets : array, (rows, targets)
        Texts or numbers.
    weights : array, (rows,), or None
    """
    inputs = numbers("X", X, (2,))
    labels = _target_columns("y", y)
    if len(inputs) != len(labels) or not len(inputs):
        raise ValueError(
            f"X and y must have the same number of rows, at least one; got {len(inputs)} and {len(labels)}"
        )
    if weights is None:
        return inputs, labels, None

    row_weights = numbers("weights", weights, (1,))
    if len(row_weights) != len(inputs):
        raise ValueError(
            f"weights must be one for each of the {len(inputs)} rows of X, got {len(row_weights)}"
        )
    if (row_weights < 0).any() or not row_weights.any():
        raise ValueError(
            "weights must be >= 0, and positive for some rows; they are from "
            f"{row_weights.min():g} to {row_weights.max():g}"
        )
    is_counted = row_weights > 0
    return inputs[is_counted], labels[is_counted], row_weights[is_counted]


def _scaled_problem(
    examples: Split,
    task: Task,
    features: Sequence[str],
    targets: tuple[str, ...],
    standardise: bool,
    class_factors: Floats | None,
) -> Problem:
    """Return the problem with one draw of these examples.

    Parameters
    ----------
    examples : Split
        Training and test examples in the user's units, with all weights.
    task : str
        The task.
    features, targets : sequence of str
        Names of the columns of X, and of the classes or of the columns of Y.
    standardise : bool
        True to give every feature, and the targets of a regression, mean 0 and variance 1.
    class_factors : array, (classes,), or None
        Factors that balance the classes, if the weights contain them.
    """
    shift, scale = standard(examples.X, examples.weights, standardise)
    target_units = standard(examples.Y, examples.weights, standardise and task == "regression")
    factors_by_class = None if class_factors is None else tuple(class_factors.tolist())
    return Problem(
        "arrays", task,
        _scaled(examples.X, shift, scale), _scaled(examples.Y, *target_units),
        _scaled(examples.X_test, shift, scale), _scaled(examples.Y_test, *target_units),
        features,  # type: ignore[arg-type]  # Problem makes a tuple of it, or says why not
        targets, shift, scale, *target_units,
        weights_train=_as_only_draw(examples.weights),
        weights_test=_as_only_draw(examples.weights_test),
        class_factors=factors_by_class,
    )  # fmt: skip


def _at(weights: Floats | None, index: NDArray[np.int64]) -> Floats | None:
    """Return the weights of some rows; None stays None."""
    return None if weights is None else weights[index]


def _as_only_draw(weights: Floats | None) -> Floats | None:
    """Return the weights of rows as those of the only draw, (1, rows); None stays None."""
    return None if weights is None else weights[None]


def _scaled(values: Floats, shift: Floats, scale: Floats) -> Floats:
    """Return (values - shift) / scale as the only draw, (1, rows, columns), with one copy of the values."""
    result = values - shift
    result /= scale
    return result[None]


def split(
    rows: int, test_share: float, seed: int, classes: NDArray[Any] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Draw which rows are for the test and which for training.

    Parameters
    ----------
    rows : int
        Number of rows.
    test_share : float
        Share of the rows for the test. At least one row is for training.
    seed : int
        Seed of the draw.
    classes : array, (rows,), optional
        Class of each row. Each class has its share in both, and at least one row of the test if it has two or
        more.

    Returns
    -------
    test, train : array of int
        Indices of rows. If all are for training, they stay in order.
    """
    share = real("test_share", test_share, SHARE)
    if not share:
        return np.arange(0), np.arange(rows)
    test_count = min(rows - 1, max(1, round(share * rows)))
    order = np.random.default_rng(whole("seed", seed, low=0)).permutation(rows)
    if classes is None:
        return order[:test_count], order[test_count:]

    _, codes, counts = np.unique(classes[order], return_inverse=True, return_counts=True)
    if (counts - 1).sum() < test_count:  # too few rows to leave one of each class for training
        return order[:test_count], order[test_count:]

    # The first rows of each class in the drawn order are for the test
    by_class = np.argsort(codes, kind="stable")
    class_starts = np.cumsum(counts) - counts
    rank_in_class = np.empty(rows, np.int64)
    rank_in_class[by_class] = np.arange(rows) - np.repeat(class_starts, counts)
    is_test = rank_in_class < _test_rows_of_classes(counts, test_count)[codes]
    return order[is_test], order[~is_test]


def _test_rows_of_classes(counts: NDArray[np.int64], tests: int) -> NDArray[np.int64]:
    """Return how many rows of each class are for the test, by the method of largest remainders.

    Parameters
    ----------
    counts : array of int, (classes,)
        Rows of each class, of which at least one stays for training.
    tests : int
        Rows of the test.
    """
    exact = tests * counts / counts.sum()
    largest = counts - 1
    has_one_of_each = np.count_nonzero(largest) <= tests
    smallest = np.minimum(largest, 1) if has_one_of_each else np.zeros_like(largest)
    rounded: NDArray[np.int64] = np.clip(np.floor(exact).astype(np.int64), smallest, largest)

    while rounded.sum() != tests:
        direction = int(np.sign(tests - rounded.sum()))
        can_change = rounded < largest if direction > 0 else rounded > smallest
        remainders = np.where(can_change, direction * (exact - rounded), -np.inf)
        rounded[np.argmax(remainders)] += direction
    return rounded


def strata(y: NDArray[Any], task: Task | None) -> NDArray[Any] | None:
    """Return the class of each row, (rows,), for a stratified split; None if the targets are numbers."""
    labels = _target_columns("y", y)
    if task is None:
        task = _inferred_task(labels)
    return labels[:, 0] if TASKS[task].classes else None


def _balancing_factors(Y: Floats, task: Task, class_weight: object, classes: int) -> Floats:
    """Return a factor for each class, (classes,), in inverse proportion to its number of examples.

    Parameters
    ----------
    Y : array, (examples, 1)
        Class index of each training example. A class without examples gets the factor 1.
    task : str
        The task, which must have classes.
    class_weight : "balanced"
        What the user has asked for.
    classes : int
        Number of classes.
    """
    from sklearn.utils.class_weight import compute_class_weight

    choice("class_weight", class_weight, ("balanced",))
    if not TASKS[task].classes:
        raise ValueError(f"class_weight is for classes, and this is {task!r}: leave it out")
    present = np.unique(Y[:, 0])
    factors = np.ones(classes)
    factors[present.astype(np.int64)] = compute_class_weight("balanced", classes=present, y=Y[:, 0])
    return factors


def _target_columns(label: str, values: object) -> NDArray[Any]:
    """Return targets as text or float64, (examples, columns).

    Parameters
    ----------
    label : str
        Name of the targets in error messages.
    values : array_like
        Numbers, texts, or truth values, which become text.
    """
    array = np.asarray(values)
    holds_text_objects = array.dtype.kind == "O" and all(isinstance(value, str) for value in array.flat)
    if array.dtype.kind in "bUT" or holds_text_objects:
        columns = array.astype(str)
        is_missing = np.isin(np.char.lower(np.char.strip(columns)), ["", "nan"])
        if columns.ndim not in (1, 2) or is_missing.any():
            raise ValueError(
                f"{label} must be one column of names of classes, without missing names, got {values!r}"
            )
    else:
        columns = numbers(label, values, (1, 2))
    return columns[:, None] if columns.ndim == 1 else columns


def _inferred_task(y: NDArray[Any]) -> Task:
    """Return the task that suits targets, (examples, columns); it is never counts."""
    distinct = np.unique(y)
    if y.dtype.kind == "f":
        is_varied = len(distinct) > MOST_CLASSES or len(distinct) > max(2, MOSTLY * len(y))
        if y.shape[1] > 1 or is_varied or (distinct != np.floor(distinct)).any():
            return "regression"
    return "binary" if len(distinct) == 2 else "classes"


def _encode_targets(
    label: str, y: NDArray[Any], task: Task, training: NDArray[Any]
) -> tuple[Floats, tuple[str, ...]]:
    """Return targets as a problem has them, and the names of classes or of target columns.

    Parameters
    ----------
    label : str
        Name of the targets in error messages.
    y : array, (examples, columns)
        Targets as text or numbers.
    task : str
        The task.
    training : array, (examples, columns)
        Targets of the training examples, which define the classes.

    Returns
    -------
    Y : array, (examples, columns)
        Indices of classes, or the numbers as they are.
    names : tuple of str
    """
    if not TASKS[task].classes:
        if y.dtype.kind != "f":
            raise ValueError(f"{label} must hold numbers for task {task!r}, got {y[0, 0]!r}")
        if task == "counts":
            check_counts(label, y)
        if y.shape[1] == 1:
            return y, ("y",)
        return y, tuple(f"y{i}" for i in range(1, y.shape[1] + 1))

    classes = np.unique(training)
    class_names = tuple(_class_name(value) for value in classes)
    listed = ", ".join(class_names[:MOST_LISTED])

    is_binary = task == "binary"
    if y.shape[1] != 1 or len(classes) < 2 or (is_binary and len(classes) > 2):
        needed = "two" if is_binary else "at least two"
        raise ValueError(
            f"{label} must be one column with {needed} classes for task {task!r}, got {y.shape[1]} columns "
            f"and the classes {listed}; for a regression pass task='regression'"
        )
    if y.dtype.kind != training.dtype.kind or not np.isin(y, classes).all():
        raise ValueError(f"{label} must hold only classes that y has: {listed}")
    return np.searchsorted(classes, y).astype(np.float64), class_names


def _class_name(label: np.str_ | np.float64) -> str:
    """Return the name of a class: its text, or its number without a point if it is whole."""
    if isinstance(label, np.floating):
        return np.format_float_positional(label, trim="-")
    return str(label)
