"""Score predictions: of classes by their probabilities, of values by their means and intervals.

Lower is better, except for accuracies, the area under the ROC curve, R² and coverage.

Probabilities are those of the second class, (examples,) or (examples, 1), or of each class, (examples,
classes). Labels are the indices of the classes, (examples,) or (examples, 1). Means, variances and targets of
a regression are (examples,) or (examples, outputs). All may be NumPy arrays, lists or torch tensors.
Weights, (examples,), say how often each example counts; None counts each once. Log scores are in nats.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heatbath._internal.checks import whole
from heatbath.datasets.problem import Floats, numbers
from heatbath.datasets.tasks import TASKS, Task, each_class

FLOOR = 2.0**-52  # the least probability that a log score distinguishes: float64's spacing at 1
ROUNDING = 1e-6  # by which probabilities may leave [0, 1]
SUM_ROUNDING = 1e-2  # by which the sum of a row may differ from 1: that of sums in half precision


@dataclass(frozen=True, eq=False)
class Reliability:
    """Points of a reliability diagram, one for each bin of confidence.

    Attributes
    ----------
    confidence, accuracy
        Means over the examples of each bin; NaN in an empty one.
    count
        Number of examples in each bin, or the sum of their weights.
    """

    confidence: Floats
    accuracy: Floats
    count: NDArray[np.int64] | Floats


def losses(task: Task, predictions: Floats, targets: Floats) -> Floats:
    """Return the loss of each prediction of each example.

    Parameters
    ----------
    task
        It decides the loss: minus the log probability of the label for classes, the Poisson loss without its
        constant for counts, half the squared error, summed over outputs, for a regression.
    predictions
        Probabilities, rates or values, (..., examples, outputs).
    targets
        Labels, counts or values, with the same number of axes as the predictions.

    Returns
    -------
    Array of shape (..., examples).
    """
    if TASKS[task].classes:
        at_label = np.take_along_axis(each_class(predictions), targets.astype(np.int64), axis=-1)
        return np.asarray(-np.log(np.maximum(at_label[..., 0], FLOOR)))
    if task == "counts":
        log_rates = np.log(np.maximum(predictions, FLOOR))
        return np.asarray((predictions - targets * log_rates).sum(axis=-1))
    return np.asarray(0.5 * ((predictions - targets) ** 2).sum(axis=-1))


def accuracy(probabilities: object, labels: object, weights: object = None) -> float:
    """Return the share of examples whose most probable class is the right one.

    Of equally probable classes the first counts.

    >>> accuracy([[0.9, 0.1], [0.4, 0.6], [0.8, 0.2]], [0, 1, 1])
    0.666...
    """
    p, y = _checked_classes(probabilities, labels)
    return _weighted_mean(p.argmax(axis=1) == y, weights)


def balanced_accuracy(probabilities: object, labels: object, weights: object = None) -> float:
    """Return the accuracy within each class that the labels have, averaged over these classes.

    >>> balanced_accuracy([0.1, 0.2, 0.3, 0.9], [0, 0, 1, 1])
    0.75
    """
    from sklearn.metrics import recall_score

    p, y = _checked_classes(probabilities, labels)
    sample_weight = _checked_weights(weights, len(y))
    predicted = p.argmax(axis=1)
    recall = recall_score(y, predicted, labels=np.unique(y), average="macro", sample_weight=sample_weight)
    return float(recall)


def auc(probabilities: object, labels: object, weights: object = None) -> float:
    """Return the area under the ROC curve.

    It is the chance that an example of a class gets a larger probability of that class than an example of
    another class does. Of more than two classes it is the mean over those that the labels have.

    Returns
    -------
    The area, or NaN where the labels have one class only.

    Examples
    --------
    >>> auc([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1])
    0.75
    """
    from sklearn.metrics import roc_auc_score

    p, y = _checked_classes(probabilities, labels)
    sample_weight = _checked_weights(weights, len(y))
    classes = np.unique(y)
    if len(classes) < 2:
        return math.nan
    scored_classes = classes[1:] if p.shape[1] == 2 else classes  # of two classes both areas are the same
    areas = [roc_auc_score(y == label, p[:, label], sample_weight=sample_weight) for label in scored_classes]
    return float(np.mean(areas))


def log_score(probabilities: object, labels: object, weights: object = None) -> float:
    """Return the mean of -log(probability of the label), in nats.

    Probabilities below 2.2e-16 are raised to that, as rounding near 1 hides smaller ones: an example that
    was predicted to be impossible costs 36 nats instead of infinitely many.

    >>> log_score([0.5, 0.5], [0, 1])
    0.693...
    """
    return _weighted_mean(log_scores(probabilities, labels), weights)


def log_scores(probabilities: object, labels: object) -> Floats:
    """Return -log(probability of the label) for each example, (examples,); see `log_score`."""
    p, y = _checked_classes(probabilities, labels)
    return np.asarray(-np.log(np.maximum(p[np.arange(len(y)), y], FLOOR)))


def brier_score(probabilities: object, labels: object, weights: object = None) -> float:
    """Return the mean squared error of the probabilities.

    A single column, the probability of the second class, gives the error of that class, from 0 to 1. A column
    for each class gives the sum over the classes, from 0 to 2 (so two columns give twice as much as one).

    >>> brier_score([0.5, 1.0], [0, 1])
    0.125
    """
    return _weighted_mean(brier_scores(probabilities, labels), weights)


def brier_scores(probabilities: object, labels: object) -> Floats:
    """Return the squared error of the probabilities of each example, (examples,); see `brier_score`."""
    p, y = _checked_classes(probabilities, labels)
    squares = np.square(p - np.eye(p.shape[1])[y]).sum(axis=1)
    has_one_column = _as_table("probabilities", probabilities).shape[1] == 1
    if has_one_column:  # both classes have the same error, which counts once
        squares = squares / 2
    return np.asarray(squares)


def confusion(probabilities: object, labels: object, weights: object = None) -> Floats:
    """Count the examples by true class (rows) and most probable class (columns).

    Returns
    -------
    Counts, or sums of the weights, (classes, classes).

    Examples
    --------
    >>> confusion([0.1, 0.8, 0.3], [0, 1, 1])
    array([[1., 0.],
           [1., 1.]])
    """
    p, y = _checked_classes(probabilities, labels)
    given_weights = _checked_weights(weights, len(y))
    w = 1.0 if given_weights is None else given_weights
    counts = np.zeros((p.shape[1], p.shape[1]))
    np.add.at(counts, (y, p.argmax(axis=1)), w)
    return counts


def calibration_error(probabilities: object, labels: object, bins: int = 15, weights: object = None) -> float:
    """Return the expected calibration error, the mean over examples of |accuracy - mean confidence| of a bin.

    Each example takes the value of its bin of confidence. The confidence is the probability of the most
    probable class, also where there are two classes; see `reliability`.

    >>> calibration_error([0.9, 0.9, 0.9, 0.9], [1, 1, 1, 0])
    0.150...
    """
    diagram = reliability(probabilities, labels, bins, weights)
    gaps = np.nan_to_num(np.abs(diagram.accuracy - diagram.confidence))  # an empty bin has no weight
    return float(gaps @ diagram.count / diagram.count.sum())


def reliability(probabilities: object, labels: object, bins: int = 15, weights: object = None) -> Reliability:
    """Compute the points of a reliability diagram.

    Parameters
    ----------
    probabilities, labels, weights
        As in all functions of this module.
    bins
        Number of bins of confidence. They have equal widths from 0 to 1, and contain their upper ends.

    Returns
    -------
    Mean confidence, accuracy and number of examples of each bin; with weights the number is their sum.
    """
    bins = whole("bins", bins, low=1)
    p, y = _checked_classes(probabilities, labels)
    confidence = p.max(axis=1)
    is_right = p.argmax(axis=1) == y
    inner_edges = np.linspace(0, 1, bins + 1)[1:-1]
    bin_of_example = np.searchsorted(inner_edges, confidence)
    given_weights = _checked_weights(weights, len(y))
    count = np.bincount(bin_of_example, given_weights, bins)
    w = np.ones(len(y)) if given_weights is None else given_weights
    with np.errstate(invalid="ignore"):  # 0 / 0 in an empty bin
        mean_confidence = np.bincount(bin_of_example, w * confidence, bins) / count
        mean_accuracy = np.bincount(bin_of_example, w * is_right, bins) / count
    return Reliability(mean_confidence, mean_accuracy, count)


def rmse(mean: object, targets: object, weights: object = None) -> float:
    """Return the root of the mean squared error, over examples and outputs.

    >>> rmse([1.0, 2.0], [1.0, 4.0])
    1.414...
    """
    predicted, y = _same_shape_tables(mean=mean, targets=targets)
    return math.sqrt(_weighted_mean(np.square(y - predicted).mean(axis=1), weights))


def mae(mean: object, targets: object, weights: object = None) -> float:
    """Return the mean absolute error, over examples and outputs.

    >>> mae([1.0, 2.0], [1.0, 4.0])
    1.0
    """
    predicted, y = _same_shape_tables(mean=mean, targets=targets)
    return _weighted_mean(np.abs(y - predicted).mean(axis=1), weights)


def r2(mean: object, targets: object, weights: object = None) -> float:
    """Return R², the share of the targets' variance that is explained, averaged over outputs.

    1 explains all of it, 0 is as good as predicting the mean of the targets, below 0 is worse than that.

    Returns
    -------
    R², or NaN where the targets of an output don't vary.

    Examples
    --------
    >>> r2([1.0, 2.0, 3.0], [1.0, 2.0, 4.0])
    0.785...
    """
    from sklearn.metrics import r2_score

    predicted, y = _same_shape_tables(mean=mean, targets=targets)
    if not np.ptp(y, axis=0).all():
        return math.nan
    return float(r2_score(y, predicted, sample_weight=_checked_weights(weights, len(y))))


def coverage(low: object, high: object, targets: object, weights: object = None) -> float:
    """Return the share of targets that lie in their intervals, ends included, over examples and outputs.

    >>> coverage([0.0, 0.0], [1.0, 1.0], [0.5, 2.0])
    0.5
    """
    lower, upper, y = _same_shape_tables(low=low, high=high, targets=targets)
    return _weighted_mean(((lower <= y) & (y <= upper)).mean(axis=1), weights)


def gaussian_log_score(mean: object, variance: object, targets: object) -> float:
    """Return the mean over examples of -log density of the targets under normal distributions.

    Outputs are independent, and their terms are summed. The variance is that of the targets: the variance
    over samples plus that of the noise of the data.

    Raises
    ------
    ValueError
        If a variance isn't positive.

    Examples
    --------
    >>> gaussian_log_score([0.0], [1.0], [0.0])
    0.918...
    """
    mu, var, y = _same_shape_tables(mean=mean, variance=variance, targets=targets)
    if not (var > 0).all():
        raise ValueError(
            f"variance must be > 0 everywhere, got {var.min():g}: add the variance of the noise of the data"
        )
    return float((0.5 * np.log(2 * math.pi * var) + np.square(y - mu) / (2 * var)).sum(axis=1).mean())


def _weighted_mean(values: NDArray[Any], weights: object) -> float:
    """Return the mean over examples of values (examples,)."""
    return float(np.average(values, weights=_checked_weights(weights, len(values))))


def _checked_weights(weights: object, examples: int) -> Floats | None:
    """Return how often each example counts, (examples,), or None where each counts once."""
    if weights is None:
        return None
    column = _as_table("weights", weights)
    if column.shape != (examples, 1) or column.min() < 0 or not column.any():
        raise ValueError(
            f"weights must have one value for each of the {examples} examples, all >= 0 and some > 0; got "
            f"{len(column)} from {column.min():g} to {column.max():g}"
        )
    return column[:, 0]


def _as_table(label: str, values: object) -> Floats:
    """Return an array, a list or a torch tensor as finite numbers, (examples, columns).

    `label` is what an error message calls the values.
    """
    if hasattr(values, "detach"):
        values = values.detach().cpu().double().numpy()
    array = numbers(label, values, (1, 2))
    if 0 in array.shape:
        raise ValueError(f"{label} must have at least one example, got shape {array.shape}")
    return array[:, None] if array.ndim == 1 else array


def _checked_classes(probabilities: object, labels: object) -> tuple[Floats, NDArray[np.int64]]:
    """Return the probability of each class, (examples, classes), and the labels, (examples,).

    Raises
    ------
    ValueError
        If values aren't probabilities, or labels aren't the indices of classes, one for each example.
    """
    table = _as_table("probabilities", probabilities)
    y = _as_table("labels", labels)
    sum_error = 0.0 if table.shape[1] == 1 else np.abs(table.sum(axis=1) - 1).max()
    is_within = table.min() >= -ROUNDING and table.max() <= 1 + ROUNDING
    if not is_within or sum_error > SUM_ROUNDING:
        raise ValueError(
            f"probabilities must lie between 0 and 1 (got {table.min():g} to {table.max():g}) and, with a "
            "column for each class, sum to 1 in each row: put logits through a sigmoid or softmax first"
        )

    p = np.clip(each_class(table), 0, 1)
    if y.shape != (len(p), 1):
        raise ValueError(f"labels must have one value for each of the {len(p)} examples, got shape {y.shape}")
    if not np.isin(y, np.arange(p.shape[1])).all():
        raise ValueError(
            f"labels must be the indices of classes, 0 to {p.shape[1] - 1}, got {y.min():g} to {y.max():g}"
        )
    return p, y[:, 0].astype(np.int64)


def _same_shape_tables(**arrays: object) -> list[Floats]:
    """Return the arrays as tables, (examples, outputs); refuse them if their shapes differ."""
    tables = [_as_table(label, values) for label, values in arrays.items()]
    if len({table.shape for table in tables}) > 1:
        shapes = ", ".join(f"{label} {table.shape}" for label, table in zip(arrays, tables, strict=True))
        raise ValueError(
            f"{', '.join(arrays)} must have the same shape, (examples,) or (examples, outputs); got {shapes}"
        )
    return tables
