"""Scores of predictions, from probabilities and labels or from means and targets; lower is better, but for
accuracies, the area under the curve, R² and coverage.

Probabilities are those of the second class, (examples,) or (examples, 1), or of each class, (examples,
classes); labels are the indices of the classes, (examples,) or (examples, 1). Means, variances and targets of
a regression are (examples,) or (examples, outputs). All may be NumPy arrays, lists or torch tensors.
Weights (examples,) say how often an example counts; None is once for all. Entropies and log scores are in
nats.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from heatbath._internal.checks import whole
from heatbath.datasets.problem import Floats
from heatbath.datasets.tasks import TASKS, Task, each_class

if TYPE_CHECKING:
    pass


from heatbath.datasets.problem import numbers

FLOOR = 2.0**-52


def losses(task: Task, said: Floats, y: Floats) -> Floats:
    """The loss of predictions (..., examples, outputs) for each example, whose targets are y."""
    if TASKS[task].classes:
        at_label = np.take_along_axis(each_class(said), y.astype(np.int64), axis=-1)
        return np.asarray(-np.log(np.maximum(at_label[..., 0], FLOOR)))
    if task == "counts":
        return np.asarray((said - y * np.log(np.maximum(said, FLOOR))).sum(axis=-1))
    return np.asarray(0.5 * ((said - y) ** 2).sum(axis=-1))


FLOOR = 2.0**-52  # the least probability that a log score distinguishes: float64's spacing at 1


@dataclass(frozen=True, eq=False)
class Reliability:
    """By bin of confidence: mean confidence and accuracy (NaN in an empty one), number of examples."""

    confidence: Floats
    accuracy: Floats
    count: NDArray[np.int64] | Floats


def accuracy(probabilities: object, labels: object, weights: object = None) -> float:
    """The share of examples whose most probable class is theirs; of equally probable the first counts."""
    p, y = _classes(probabilities, labels)
    return _mean(p.argmax(axis=1) == y, weights)


def balanced_accuracy(probabilities: object, labels: object, weights: object = None) -> float:
    """The mean over the classes that the labels have of the accuracy within each."""
    from sklearn.metrics import recall_score

    p, y = _classes(probabilities, labels)
    w = _weights(weights, len(y))
    said = p.argmax(axis=1)
    return float(recall_score(y, said, labels=np.unique(y), average="macro", sample_weight=w))


def auc(probabilities: object, labels: object, weights: object = None) -> float:
    """The area under the ROC curve: how often an example of a class is given a larger probability of it than
    one of another class; of more than two classes the mean over those that the labels have.

    NaN where the labels have one class only.
    """
    from sklearn.metrics import roc_auc_score

    p, y = _classes(probabilities, labels)
    w, there = _weights(weights, len(y)), np.unique(y)
    if len(there) < 2:
        return math.nan
    chosen = there[1:] if p.shape[1] == 2 else there  # of two the area is the same for both
    return float(np.mean([roc_auc_score(y == k, p[:, k], sample_weight=w) for k in chosen]))


def log_score(probabilities: object, labels: object, weights: object = None) -> float:
    """The mean of -log(probability of the label).

    A probability below 2.2e-16 counts as that, as rounding near 1 hides smaller ones: an example that was
    held to be impossible costs 36 nats, and not infinitely many.
    """
    return _mean(log_scores(probabilities, labels), weights)


def log_scores(probabilities: object, labels: object) -> Floats:
    """What `log_score` is the mean of, (examples,)."""
    p, y = _classes(probabilities, labels)
    return np.asarray(-np.log(np.maximum(p[np.arange(len(y)), y], FLOOR)))


def brier_score(probabilities: object, labels: object, weights: object = None) -> float:
    """The mean squared error of the probabilities: of the second class where only its are given, from 0 to 1,
    otherwise summed over the classes, from 0 to 2 (so two columns give twice as much as one).
    """
    return _mean(brier_scores(probabilities, labels), weights)


def brier_scores(probabilities: object, labels: object) -> Floats:
    """What `brier_score` is the mean of, (examples,)."""
    p, y = _classes(probabilities, labels)
    squares = np.square(p - np.eye(p.shape[1])[y]).sum(axis=1)
    return np.asarray(squares / (2 if _array("probabilities", probabilities).shape[1] == 1 else 1))


def confusion(probabilities: object, labels: object, weights: object = None) -> Floats:
    """How many examples of each class (rows) were taken for each (columns), by their most probable class."""
    p, y = _classes(probabilities, labels)
    w = _weights(weights, len(y))
    counts = np.zeros((p.shape[1], p.shape[1]))
    np.add.at(counts, (y, p.argmax(axis=1)), 1.0 if w is None else w)
    return counts


def calibration_error(probabilities: object, labels: object, bins: int = 15, weights: object = None) -> float:
    """The expected calibration error: the mean over examples of |accuracy - mean confidence| of their bin.

    The confidence is the probability of the most probable class, of two classes too; see `reliability`.
    """
    bars = reliability(probabilities, labels, bins, weights)
    gaps = np.nan_to_num(np.abs(bars.accuracy - bars.confidence))  # an empty bin has no weight
    return float(gaps @ bars.count / bars.count.sum())


def reliability(probabilities: object, labels: object, bins: int = 15, weights: object = None) -> Reliability:
    """What a reliability diagram shows, in `bins` bins of equal width from 0 to 1, closed on the right.

    With weights the number of examples in a bin is their sum.
    """
    bins = whole("bins", bins, low=1)
    p, y = _classes(probabilities, labels)
    confidence, right = p.max(axis=1), p.argmax(axis=1) == y
    place = np.searchsorted(np.linspace(0, 1, bins + 1)[1:-1], confidence)
    w = _weights(weights, len(y))
    count = np.bincount(place, w, bins)
    w = np.ones(len(y)) if w is None else w
    with np.errstate(invalid="ignore"):  # 0 / 0 in an empty bin
        return Reliability(
            np.bincount(place, w * confidence, bins) / count,
            np.bincount(place, w * right, bins) / count,
            count,
        )


def rmse(mean: object, targets: object, weights: object = None) -> float:
    """The root of the mean squared error, over examples and outputs."""
    m, y = _alike(mean=mean, targets=targets)
    return math.sqrt(_mean(np.square(y - m).mean(axis=1), weights))


def mae(mean: object, targets: object, weights: object = None) -> float:
    """The mean absolute error, over examples and outputs."""
    m, y = _alike(mean=mean, targets=targets)
    return _mean(np.abs(y - m).mean(axis=1), weights)


def r2(mean: object, targets: object, weights: object = None) -> float:
    """R², the share of the targets' variance that is explained: 1 is all of it, 0 what their mean would do,
    and below 0 is worse than that; the mean over outputs. NaN where targets do not vary.
    """
    from sklearn.metrics import r2_score

    m, y = _alike(mean=mean, targets=targets)
    if not np.ptp(y, axis=0).all():
        return math.nan
    return float(r2_score(y, m, sample_weight=_weights(weights, len(y))))


def coverage(low: object, high: object, targets: object, weights: object = None) -> float:
    """The share of targets that lie in their intervals, ends included, over examples and outputs."""
    a, b, y = _alike(low=low, high=high, targets=targets)
    return _mean(((a <= y) & (y <= b)).mean(axis=1), weights)


def gaussian_log_score(mean: object, variance: object, targets: object) -> float:
    """The mean over examples of -log density of the targets, normal with these means and variances.

    Outputs are independent, and their terms summed. The variance is that of the targets: what samples
    disagree about, and the noise of the data.
    """
    m, v, y = _alike(mean=mean, variance=variance, targets=targets)
    if not (v > 0).all():
        raise ValueError(
            f"variance must be > 0 everywhere, got {v.min():g}: add the variance of the noise of the data"
        )
    return float((0.5 * np.log(2 * math.pi * v) + np.square(y - m) / (2 * v)).sum(axis=1).mean())


def _mean(values: NDArray[Any], weights: object) -> float:
    """The mean over examples."""
    return float(np.average(values, weights=_weights(weights, len(values))))


def _weights(given: object, examples: int) -> Floats | None:
    """How often each example counts."""
    if given is None:
        return None
    weights = _array("weights", given)
    if weights.shape != (examples, 1) or weights.min() < 0 or not weights.any():
        raise ValueError(
            f"weights must be one for each of the {examples} examples, >= 0 and positive for some; got "
            f"{len(weights)} from {weights.min():g} to {weights.max():g}"
        )
    return weights[:, 0]


def _array(label: str, given: object) -> Floats:
    """An array or a torch tensor as a table of finite numbers, (examples, columns)."""
    if hasattr(given, "detach"):
        given = given.detach().cpu().double().numpy()
    array = numbers(label, given, (1, 2))
    if 0 in array.shape:
        raise ValueError(f"{label} must have at least one example, got shape {array.shape}")
    return array[:, None] if array.ndim == 1 else array


def _classes(probabilities: object, labels: object) -> tuple[Floats, NDArray[np.int64]]:
    """The probability of each class, (examples, classes), and the labels, (examples,)."""
    p, y = _array("probabilities", probabilities), _array("labels", labels)
    off = 0.0 if p.shape[1] == 1 else np.abs(p.sum(axis=1) - 1).max()
    if p.min() < -1e-6 or p.max() > 1 + 1e-6 or off > 1e-2:  # rounding, of sums in half precision
        raise ValueError(
            f"probabilities must lie between 0 and 1 (got {p.min():g} to {p.max():g}) and, with a column for "
            "each class, sum to 1 in each row: put logits through a sigmoid or softmax first"
        )
    p = np.clip(each_class(p), 0, 1)
    if y.shape != (len(p), 1):
        raise ValueError(f"labels must be one for each of the {len(p)} examples, got shape {y.shape}")
    if not np.isin(y, np.arange(p.shape[1])).all():
        raise ValueError(
            f"labels must be the indices of classes, 0 to {p.shape[1] - 1}, got {y.min():g} to {y.max():g}"
        )
    return p, y[:, 0].astype(np.int64)


def _alike(**given: object) -> list[Floats]:
    """Tables of one shape."""
    tables = [_array(label, values) for label, values in given.items()]
    if len({table.shape for table in tables}) > 1:
        shapes = ", ".join(f"{label} {table.shape}" for label, table in zip(given, tables, strict=True))
        raise ValueError(f"these must have one shape, (examples,) or (examples, outputs); got {shapes}")
    return tables
