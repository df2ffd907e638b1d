"""Scores of predictions, from probabilities and labels or from means and targets; lower is better, but for
the accuracy.

Probabilities are those of the second class, (examples,) or (examples, 1), or of each class, (examples,
classes); labels are the indices of the classes, (examples,) or (examples, 1). Means, variances and targets of
a regression are (examples,) or (examples, outputs). All may be NumPy arrays, lists or torch tensors.
Entropies and log scores are in nats.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heatbath.checks import whole
from heatbath.datasets.problem import Floats, numbers
from heatbath.tasks import each_class

FLOOR = 2.0**-52  # the least probability that a log score distinguishes: float64's spacing at 1


@dataclass(frozen=True, eq=False)
class Reliability:
    """By bin of confidence: mean confidence and accuracy (NaN in an empty one), number of examples."""

    confidence: Floats
    accuracy: Floats
    count: NDArray[np.int64]


def accuracy(probabilities: object, labels: object) -> float:
    """The share of examples whose most probable class is theirs; of equally probable the first counts."""
    p, y = _classes(probabilities, labels)
    return float(np.mean(p.argmax(axis=1) == y))


def log_score(probabilities: object, labels: object) -> float:
    """The mean of -log(probability of the label).

    A probability below 2.2e-16 counts as that, as rounding near 1 hides smaller ones: an example that was
    held to be impossible costs 36 nats, and not infinitely many.
    """
    p, y = _classes(probabilities, labels)
    return float(-np.log(np.maximum(p[np.arange(len(y)), y], FLOOR)).mean())


def brier_score(probabilities: object, labels: object) -> float:
    """The mean squared error of the probabilities: of the second class where only its are given, from 0 to 1,
    otherwise summed over the classes, from 0 to 2 (so two columns give twice as much as one).
    """
    p, y = _classes(probabilities, labels)
    squares = np.square(p - np.eye(p.shape[1])[y]).sum(axis=1)
    return float(squares.mean()) / (2 if _array("probabilities", probabilities).shape[1] == 1 else 1)


def calibration_error(probabilities: object, labels: object, bins: int = 15) -> float:
    """The expected calibration error: the mean over examples of |accuracy - mean confidence| of their bin.

    The confidence is the probability of the most probable class, of two classes too; see `reliability`.
    """
    bars = reliability(probabilities, labels, bins)
    gaps = np.nan_to_num(np.abs(bars.accuracy - bars.confidence))  # an empty bin has no weight
    return float(gaps @ bars.count / bars.count.sum())


def reliability(probabilities: object, labels: object, bins: int = 15) -> Reliability:
    """What a reliability diagram shows, in `bins` bins of equal width from 0 to 1, closed on the right."""
    bins = whole("bins", bins, low=1)
    p, y = _classes(probabilities, labels)
    confidence, right = p.max(axis=1), p.argmax(axis=1) == y
    place = np.searchsorted(np.linspace(0, 1, bins + 1)[1:-1], confidence)
    count = np.bincount(place, minlength=bins)
    with np.errstate(invalid="ignore"):  # 0 / 0 in an empty bin
        return Reliability(
            np.bincount(place, confidence, bins) / count, np.bincount(place, right, bins) / count, count
        )


def rmse(mean: object, targets: object) -> float:
    """The root of the mean squared error, over examples and outputs."""
    m, y = _alike(mean=mean, targets=targets)
    return math.sqrt(np.square(y - m).mean())


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
