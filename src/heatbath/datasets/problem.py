"""Define `Problem`: training and test examples with the names and units that explain them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from heatbath._internal.checks import POSITIVE, choice, real, store
from heatbath.datasets.tasks import TASKS, Task

if TYPE_CHECKING:
    from heatbath.datasets.tables import TableEncoder

Floats: TypeAlias = NDArray[np.float64]
MOST_NAMES = 10  # names of features or classes that a message lists


@dataclass(frozen=True, eq=False, repr=False)
class Problem:
    """Training and test examples, with the names and units that explain them.

    Functions such as `from_arrays` make problems. There may be no test examples: arrays with 0 rows.

    Parameters
    ----------
    name : str
        Its name in tables and pictures.
    task : {"binary", "classes", "regression", "counts"}
        What is to be predicted.
    X_train, X_test : array, (draws, examples, features)
        Inputs, standardised as (raw - shift) / scale.
    Y_train, Y_test : array, (draws, examples, targets)
        One column of 0 and 1 for `binary`, one column of class indices for `classes`,
        (raw - target_shift) / target_scale for `regression`, and unscaled counts 0, 1, 2, ... for `counts`.
    features : tuple of str
        Names of the columns of X.
    targets : tuple of str
        Names of the classes in the order of their indices, or of the columns of Y.
    shift, scale : array, (features,), optional
        Units of the inputs.
    target_shift, target_scale : array, (targets,), optional
        Units of the targets.
    recipe : dict, optional
        Name and arguments of the function of `heatbath.datasets` that makes the same problem again. None for
        the user's own data.
    weights_train, weights_test : array, (draws, examples), optional
        How often each example counts, in means such as the loss Σwℓ/Σw and in a posterior: weight 2 is the
        same as two equal examples. The default is 1 for all.
    encoder : TableEncoder, optional
        Makes the features, before they are standardised, from a table of raw cells, if the examples come from
        one.
    class_factors : tuple of float, optional
        Factors that balance the classes and are contained in `weights_train`. `given_weights` returns the
        weights without them, which represent the shares of classes in the data.

    Raises
    ------
    TypeError, ValueError
        If shapes, names, targets or weights don't fit together.
    """

    name: str
    task: Task
    X_train: Floats
    Y_train: Floats
    X_test: Floats
    Y_test: Floats
    features: tuple[str, ...]
    targets: tuple[str, ...]
    shift: Floats = field(default_factory=lambda: np.zeros(1))
    scale: Floats = field(default_factory=lambda: np.ones(1))
    target_shift: Floats = field(default_factory=lambda: np.zeros(1))
    target_scale: Floats = field(default_factory=lambda: np.ones(1))
    recipe: dict[str, Any] | None = None
    weights_train: Floats | None = None
    weights_test: Floats | None = None
    encoder: TableEncoder | None = None
    class_factors: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        """Check all fields, and store arrays as contiguous float64.

        The order matters: the shapes of X and Y determine those of weights, names, targets and units.
        """
        choice("Problem: task", self.task, tuple(TASKS))
        if not isinstance(self.name, str) or not isinstance(self.recipe, dict | None):
            raise TypeError(
                f"Problem: name must be text and recipe a dict or None, got {self.name!r} and {self.recipe!r}"
            )
        self._check_shapes()
        self._check_weights()

        inputs = self.X_train.shape[2]
        columns = self.Y_train.shape[2]
        store(self, features=_checked_names("Problem: features", self.features, inputs))
        needed = {"binary": 2, "classes": None}.get(self.task, columns)  # None: any number of classes
        store(self, targets=_checked_names("Problem: targets", self.targets, needed))
        self._check_targets(columns)
        self._check_factors()

        if self.encoder is not None:
            encoded = tuple(self.encoder.get_feature_names_out())
            if encoded != self.features:
                raise ValueError(
                    "Problem: features must be those that the encoder makes, "
                    f"{', '.join(encoded[:MOST_NAMES])}; got {', '.join(self.features[:MOST_NAMES])}"
                )
        self._check_units(inputs, columns)

    def _check_weights(self) -> None:
        """Check the weights of examples, and store them as contiguous float64."""
        for name, X in (("weights_train", self.X_train), ("weights_test", self.X_test)):
            weights = getattr(self, name)
            if weights is not None:
                store(self, **{name: _checked_weights(f"Problem: {name}", weights, X.shape[:2])})

    def _check_shapes(self) -> None:
        """Check the shapes of X and Y, and store them as contiguous float64."""
        for name in ("X_train", "Y_train", "X_test", "Y_test"):
            store(self, **{name: numbers(f"Problem: {name}", getattr(self, name), (3,))})
        if 0 in self.X_train.shape:
            raise ValueError(
                "Problem: at least one draw, one training row and one feature are needed, "
                f"X_train is {self.X_train.shape}"
            )

        draws, rows, inputs = self.X_train.shape
        tests = self.X_test.shape[1]
        columns = self.Y_train.shape[2]
        expected_shapes = {
            "Y_train": (draws, rows, columns),
            "X_test": (draws, tests, inputs),
            "Y_test": (draws, tests, columns),
        }
        for name, shape in expected_shapes.items():
            if getattr(self, name).shape != shape:
                raise ValueError(
                    "Problem: arrays must be (draws, examples, columns), with as many rows in Y as in X and "
                    f"the same draws and columns in train and test; X_train is {self.X_train.shape}, "
                    f"Y_train {self.Y_train.shape}, X_test {self.X_test.shape}, Y_test {self.Y_test.shape}"
                )

    def _check_units(self, inputs: int, columns: int) -> None:
        """Check shifts and scales, and store one of each for every feature and target.

        Parameters
        ----------
        inputs, columns : int
            Numbers of features and of columns of Y. A single shift or scale stands for all of them.
        """
        sizes = {"shift": inputs, "scale": inputs, "target_shift": columns, "target_scale": columns}
        for name, size in sizes.items():
            values = numbers(f"Problem: {name}", getattr(self, name), (1,))
            if len(values) not in (1, size) or ("scale" in name and not (values > 0).all()):
                raise ValueError(f"Problem: {name} must hold {size} numbers (scales > 0), got {values}")
            store(self, **{name: np.broadcast_to(values, size).copy()})

        if self.task == "counts" and ((self.target_shift != 0) | (self.target_scale != 1)).any():
            raise ValueError(
                "Problem: counts are not scaled: leave out target_shift and target_scale, got "
                f"{self.target_shift} and {self.target_scale}"
            )

    def _check_targets(self, columns: int) -> None:
        """Raise ValueError for labels that are no class indices, and for counts that aren't 0, 1, 2, ...

        Parameters
        ----------
        columns : int
            Number of columns of Y.
        """
        if self.task == "counts":
            check_counts("Problem: Y_train", self.Y_train)
            check_counts("Problem: Y_test", self.Y_test)
        if not TASKS[self.task].classes:
            return

        classes = len(self.targets)
        if columns != 1 or classes < 2:
            raise ValueError(
                f"Problem: task {self.task!r} needs one column in Y and at least two classes, "
                f"got {columns} and {classes}"
            )
        for name, labels in (("Y_train", self.Y_train), ("Y_test", self.Y_test)):
            wrong = labels[~np.isin(labels, np.arange(classes))]
            if wrong.size:
                raise ValueError(
                    f"Problem: {name} must hold the indices of classes, 0 to {classes - 1}, got {wrong[0]:g}"
                )

    def _check_factors(self) -> None:
        """Check the balancing factors of the classes, and store them as a tuple of float."""
        if self.class_factors is None:
            return
        factors = tuple(real("class_factors", factor, POSITIVE) for factor in self.class_factors)
        store(self, class_factors=factors)
        if self.weights_train is None or len(factors) != len(self.targets):
            raise ValueError(
                "Problem: class_factors must be one for each of the classes "
                f"{', '.join(self.targets[:MOST_NAMES])}, and in weights_train; got {factors}"
            )

    @property
    def draws(self) -> int:
        """Number of independent data sets side by side."""
        return len(self.X_train)

    @property
    def inputs(self) -> int:
        """Number of features, which is the number of inputs of a network."""
        return len(self.features)

    @property
    def outputs(self) -> int:
        """Number of predictions for an example: 1 (binary), one per class, or one per target.

        A network has this number of outputs, or more (see `likelihood.Likelihood`).
        """
        return 1 if self.task == "binary" else len(self.targets)

    def relative_weights(self, split: Literal["train", "test"]) -> Floats | None:
        """Return the weights divided by their mean in each draw, (draws, examples).

        Parameters
        ----------
        split : {"train", "test"}
            Which examples. None is returned if they have no weights.
        """
        weights = self.weights_train if split == "train" else self.weights_test
        if weights is None or not weights.size:
            return None
        return np.asarray(weights / weights.mean(axis=1, keepdims=True))

    def given_weights(self, draw: int) -> Floats | None:
        """Return the training weights of a draw as the user gave them, (examples,).

        Factors that balance classes are divided out. None is returned if the examples have no weights.
        """
        if self.weights_train is None:
            return None
        if self.class_factors is None:
            return np.asarray(self.weights_train[draw])
        labels = self.Y_train[draw, :, 0].astype(np.int64)
        return np.asarray(self.weights_train[draw] / np.array(self.class_factors)[labels])

    def decode(self, logits: Floats) -> Floats:
        """Return the predictions in a network's outputs, in the user's units.

        Parameters
        ----------
        logits : array, (..., outputs)
            Outputs of a network.

        Returns
        -------
        array, (..., outputs)
            The probability of the second class, the probability of each class, the values of a regression, or
            the rates of counts.
        """
        decoded = TASKS[self.task].decode(logits)
        if self.task == "regression":
            return np.asarray(decoded * self.target_scale + self.target_shift)
        return decoded

    def __repr__(self) -> str:
        """Return a summary: name, task and sizes."""
        draws = f"{self.draws} draws of " if self.draws > 1 else ""
        weighted = "" if self.weights_train is None else " with weights"
        return (
            f"Problem({self.name!r}, {self.task}, {draws}{self.X_train.shape[1]} training and "
            f"{self.X_test.shape[1]} test examples{weighted}, {self.inputs} inputs, {self.outputs} outputs)"
        )


def numbers(label: str, values: object, axes: tuple[int, ...]) -> Floats:
    """Return values as a contiguous array of finite float64.

    Parameters
    ----------
    label : str
        Name of the values in error messages.
    values : array_like
        The numbers.
    axes : tuple of int
        Accepted numbers of axes, such as (1, 2).

    Raises
    ------
    ValueError
        If the values aren't numbers, aren't finite, or have another number of axes.
    """
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{label} must be an array of numbers: {error}") from None

    if array.dtype.kind not in "biuf" or array.ndim not in axes:
        raise ValueError(
            f"{label} must be an array of numbers with {' or '.join(map(str, axes))} axes, got one of "
            f"{array.dtype} with shape {array.shape}"
        )

    array = np.ascontiguousarray(array, dtype=np.float64)
    if not np.isfinite(array).all():
        index = tuple(map(int, np.argwhere(~np.isfinite(array))[0]))
        raise ValueError(
            f"{label} must be finite, got {array[index]} at {index}: remove or replace such rows"
        )
    return array


def check_counts(label: str, Y: Floats) -> None:
    """Raise ValueError unless all numbers in Y are 0, 1, 2, ...; `label` names Y in the message."""
    wrong = Y[(Y < 0) | (np.floor(Y) != Y)]
    if wrong.size:
        raise ValueError(
            f"{label} must hold whole numbers >= 0 for task 'counts', got {wrong[0]:g}; for other numbers "
            "use task 'regression'"
        )


def moments(values: Floats, weights: Floats | None) -> tuple[Floats, Floats]:
    """Return the weighted mean and variance of every column.

    Parameters
    ----------
    values : array, (..., examples, columns)
        The values.
    weights : array, (..., examples), or None
        How often each example counts; None is once.

    Returns
    -------
    mean, variance : array, (..., columns)
    """
    if weights is None:
        return np.asarray(values.mean(axis=-2)), np.asarray(values.var(axis=-2))

    shares = (weights / weights.sum(axis=-1, keepdims=True))[..., None]
    mean = (shares * values).sum(axis=-2, keepdims=True)
    return mean[..., 0, :], (shares * (values - mean) ** 2).sum(axis=-2)


def standard(values: Floats, weights: Floats | None, standardise: bool) -> tuple[Floats, Floats]:
    """Return the shift and the scale of every column, (columns,), that give it mean 0 and variance 1.

    Parameters
    ----------
    values : array, (examples, columns)
        The values. A constant column is only shifted.
    weights : array, (examples,), or None
        How often each example counts; None is once.
    standardise : bool
        False returns shifts of 0 and scales of 1.
    """
    if not standardise:
        return np.zeros(values.shape[1]), np.ones(values.shape[1])
    is_constant = (values == values[0]).all(axis=0)
    mean, variance = moments(values, weights)
    deviation = np.sqrt(variance)
    shift = np.where(is_constant, values[0], mean)
    scale = np.where(is_constant | (deviation == 0), 1.0, deviation)
    return shift, scale


def _checked_weights(label: str, values: object, shape: tuple[int, int]) -> Floats:
    """Return weights as an array.

    Parameters
    ----------
    label : str
        Name of the weights in error messages.
    values : array_like
        The weights.
    shape : tuple of int
        The expected shape, (draws, examples).

    Raises
    ------
    ValueError
        Unless all weights are positive, and their sum is finite.
    """
    weights = numbers(label, values, (2,))
    if weights.shape != shape:
        raise ValueError(f"{label} must be (draws, examples), {shape}, got {weights.shape}")
    if not (weights > 0).all():
        raise ValueError(f"{label} must be > 0, got {weights.min():g}: leave out examples of weight 0")
    with np.errstate(over="ignore"):
        if not np.isfinite(weights.sum(axis=1)).all():
            raise ValueError(
                f"{label} must have a finite sum, and the largest is {weights.max():g}: scale them down"
            )
    return weights


def _checked_names(label: str, values: object, needed: int | None) -> tuple[str, ...]:
    """Return names as a tuple of different texts, or raise ValueError.

    Parameters
    ----------
    label : str
        What the names are called in error messages.
    values : list or tuple of str
        The names, at least one.
    needed : int or None
        How many there must be; None accepts any number.
    """
    names = tuple(values) if isinstance(values, (list, tuple)) else ()
    if not all(isinstance(name, str) for name in names) or len(set(names)) != len(names) or not names:
        raise ValueError(f"{label} must be a list of different names, got {values!r}")
    if needed is not None and len(names) != needed:
        raise ValueError(f"{label} must be {needed} names, got {len(names)}: {', '.join(names)}")
    return names
