"""A problem: training and test examples with what is needed to understand them."""

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


@dataclass(frozen=True, eq=False, repr=False)
class Problem:
    """Training and test examples, arrays (draws, examples, columns), and what they mean.

    X are the inputs, standardised as (raw - shift) / scale. Y is one column of 0 and 1 for the task `binary`,
    one column of class indices for `classes`, (raw - target_shift) / target_scale for `regression`, and whole
    numbers from 0 on, as they are, for `counts`. `targets` are the names of the classes in the order of their
    indices, or of the columns of Y. Weights (draws, examples) say how often an example counts, in means such
    as the loss Σwℓ/Σw and in a posterior: 2 is as two of it, None is 1 for all. `class_factors` say what the
    weights of the training examples of each class have been multiplied by, where classes were to count alike:
    data have other shares of classes than these weights, see `given_weights`. `recipe` holds the name and the
    arguments of the function here that makes the same problem again; it is None for the user's own data.
    There may be no test examples at all: arrays with 0 rows. `encoder` makes the features, before they are
    standardised, of a table of raw cells, where the examples come from one.
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
        choice("Problem: task", self.task, tuple(TASKS))
        if not isinstance(self.name, str) or not isinstance(self.recipe, dict | None):
            raise TypeError(
                f"Problem: name must be text and recipe a dict or None, got {self.name!r} and {self.recipe!r}"
            )
        for name in ("X_train", "Y_train", "X_test", "Y_test"):
            store(self, **{name: numbers(f"Problem: {name}", getattr(self, name), (3,))})
        if 0 in self.X_train.shape:
            raise ValueError(
                "Problem: at least one draw, one training row and one feature are needed, "
                f"X_train is {self.X_train.shape}"
            )
        draws, rows, inputs = self.X_train.shape
        tests, columns = self.X_test.shape[1], self.Y_train.shape[2]
        for name, shape in (
            ("Y_train", (draws, rows, columns)),
            ("X_test", (draws, tests, inputs)),
            ("Y_test", (draws, tests, columns)),
        ):
            if getattr(self, name).shape != shape:
                raise ValueError(
                    "Problem: arrays must be (draws, examples, columns), with as many rows in Y as in X and "
                    f"the same draws and columns in train and test; X_train is {self.X_train.shape}, "
                    f"Y_train {self.Y_train.shape}, X_test {self.X_test.shape}, Y_test {self.Y_test.shape}"
                )
        for name, count in (("weights_train", rows), ("weights_test", tests)):
            if (given := getattr(self, name)) is not None:
                store(self, **{name: _checked_weights(f"Problem: {name}", given, (draws, count))})
        store(self, features=_names("Problem: features", self.features, inputs))
        needed = {"binary": 2, "classes": None}.get(self.task, columns)  # None: any number of classes
        store(self, targets=_names("Problem: targets", self.targets, needed))
        self._check_targets(columns)
        self._check_factors()
        if self.encoder is not None and tuple(self.encoder.get_feature_names_out()) != self.features:
            raise ValueError(
                "Problem: features must be those that the encoder makes, "
                f"{', '.join(self.encoder.get_feature_names_out()[:10])}; got {', '.join(self.features[:10])}"
            )
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
        """Refuse labels that are not classes, and counts that are none."""
        if self.task == "counts":
            for name, Y in (("Y_train", self.Y_train), ("Y_test", self.Y_test)):
                check_counts(f"Problem: {name}", Y)
        if not TASKS[self.task].classes:
            return
        classes = len(self.targets)
        if columns != 1 or classes < 2:
            raise ValueError(
                f"Problem: task {self.task!r} needs one column in Y and at least two classes, "
                f"got {columns} and {classes}"
            )
        for name, Y in (("Y_train", self.Y_train), ("Y_test", self.Y_test)):
            wrong = Y[~np.isin(Y, np.arange(classes))]
            if wrong.size:
                raise ValueError(
                    f"Problem: {name} must hold the indices of classes, 0 to {classes - 1}, got {wrong[0]:g}"
                )

    def _check_factors(self) -> None:
        if self.class_factors is None:
            return
        store(self, class_factors=tuple(real("class_factors", f, POSITIVE) for f in self.class_factors))
        if self.weights_train is None or len(self.class_factors) != len(self.targets):
            raise ValueError(
                f"Problem: class_factors must be one for each of the classes {', '.join(self.targets[:10])}, "
                f"and in weights_train; got {self.class_factors}"
            )

    @property
    def draws(self) -> int:
        """How many data sets lie side by side."""
        return len(self.X_train)

    @property
    def inputs(self) -> int:
        """How many inputs a network has for it: the features."""
        return len(self.features)

    @property
    def outputs(self) -> int:
        """How many predictions there are of an example: 1 (binary), one per class, or one per target.

        A network has as many outputs, or more (see `likelihood.Likelihood`).
        """
        return 1 if self.task == "binary" else len(self.targets)

    def relative_weights(self, split: Literal["train", "test"]) -> Floats | None:
        """The weights over their mean in each draw; None where there are none."""
        weights = self.weights_train if split == "train" else self.weights_test
        return weights / weights.mean(axis=1, keepdims=True) if weights is not None and weights.size else None

    def given_weights(self, draw: int) -> Floats | None:
        """The weights of the training examples of a draw as the user gave them: how often data have them."""
        if self.weights_train is None or self.class_factors is None:
            return None if self.weights_train is None else self.weights_train[draw]
        labels = self.Y_train[draw, :, 0].astype(np.int64)
        return np.asarray(self.weights_train[draw] / np.array(self.class_factors)[labels])

    def decode(self, logits: Floats) -> Floats:
        """What a network's outputs say, in the user's units.

        The last axis is the probability of the second class, of each class, the values of a regression, or
        the rates of counts.
        """
        decoded = TASKS[self.task].decode(logits)
        if self.task == "regression":
            return np.asarray(decoded * self.target_scale + self.target_shift)
        return decoded

    def __repr__(self) -> str:
        draws = f"{self.draws} draws of " if self.draws > 1 else ""
        weighted = "" if self.weights_train is None else " with weights"
        return (
            f"Problem({self.name!r}, {self.task}, {draws}{self.X_train.shape[1]} training and "
            f"{self.X_test.shape[1]} test examples{weighted}, {self.inputs} inputs, {self.outputs} outputs)"
        )


def numbers(label: str, given: object, axes: tuple[int, ...]) -> Floats:
    """`given` as an array of finite numbers with an accepted number of axes."""
    try:
        array = np.asarray(given)
    except ValueError as error:
        raise ValueError(f"{label} must be an array of numbers: {error}") from None
    if array.dtype.kind not in "biuf" or array.ndim not in axes:
        raise ValueError(
            f"{label} must be an array of numbers with {' or '.join(map(str, axes))} axes, got one of "
            f"{array.dtype} with shape {array.shape}"
        )
    array = np.ascontiguousarray(array, dtype=np.float64)
    if not np.isfinite(array).all():
        place = tuple(map(int, np.argwhere(~np.isfinite(array))[0]))
        raise ValueError(
            f"{label} must be finite, got {array[place]} at {place}: remove or replace such rows"
        )
    return array


def check_counts(label: str, Y: Floats) -> None:
    """Refuse numbers that count nothing."""
    wrong = Y[(Y < 0) | (np.floor(Y) != Y)]
    if wrong.size:
        raise ValueError(
            f"{label} must hold whole numbers from 0 on for task 'counts', got {wrong[0]:g}; for other "
            "numbers take task 'regression'"
        )


def moments(values: Floats, weights: Floats | None) -> tuple[Floats, Floats]:
    """The mean and the variance of every column of (..., examples, columns), by weights (..., examples)."""
    if weights is None:
        return np.asarray(values.mean(axis=-2)), np.asarray(values.var(axis=-2))
    shares = (weights / weights.sum(axis=-1, keepdims=True))[..., None]
    mean = (shares * values).sum(axis=-2, keepdims=True)
    return mean[..., 0, :], (shares * (values - mean) ** 2).sum(axis=-2)


def standard(values: Floats, weights: Floats | None, wanted: bool) -> tuple[Floats, Floats]:
    """The shift and scale that give every column mean 0 and variance 1, or change nothing."""
    if not wanted:
        return np.zeros(values.shape[1]), np.ones(values.shape[1])
    constant = (values == values[0]).all(axis=0)
    mean, variance = moments(values, weights)
    spread = np.sqrt(variance)
    return np.where(constant, values[0], mean), np.where(constant | (spread == 0), 1.0, spread)


def _checked_weights(label: str, given: object, shape: tuple[int, int]) -> Floats:
    weights = numbers(label, given, (2,))
    if weights.shape != shape:
        raise ValueError(f"{label} must be (draws, examples), {shape}, got {weights.shape}")
    if not (weights > 0).all():
        raise ValueError(f"{label} must be > 0, got {weights.min():g}: leave out examples that do not count")
    with np.errstate(over="ignore"):
        if not np.isfinite(weights.sum(axis=1)).all():
            raise ValueError(f"{label} must have a finite sum, they are up to {weights.max():g}: scale them")
    return weights


def _names(label: str, given: object, needed: int | None) -> tuple[str, ...]:
    names = tuple(given) if isinstance(given, (list, tuple)) else ()
    if not all(isinstance(name, str) for name in names) or len(set(names)) != len(names) or not names:
        raise ValueError(f"{label} must be a list of different names, got {given!r}")
    if needed is not None and len(names) != needed:
        raise ValueError(f"{label} must be {needed} names, got {len(names)}: {', '.join(names)}")
    return names
