"""Running averages of what samples say: mean, variance and entropies, in memory that does not grow."""

from __future__ import annotations

import math
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from heatbath.datasets.problem import Floats
from heatbath.datasets.tasks import TASKS, Task

A = TypeVar("A")


class Prediction(NamedTuple, Generic[A]):
    """What samples say together: NumPy arrays for a run, tensors in the CPU's memory for a torch model.

    `mean` and `variance` are (examples, outputs), of probabilities, of the values of a regression or of
    counts, and `sd` is the root of the variance. Of counts, and in a regression with a posterior, these are
    of new data: the variance is that over the samples, plus the mean variance of data around them, `noise`:
    (outputs,), or (examples, outputs) where it depends on the inputs. It is None elsewhere.

    `entropy` (examples,), in nats, is that of the mean, summed over columns that are labels or values of
    their own; of values and counts that of a normal law with this variance. Of probabilities it is the sum of
    two: `expected_entropy`, the mean over samples of their entropies, which is the noise of the data as they
    see it, and `mutual_information`, what they disagree about. These two are None for values and counts, and
    where only the means were kept.
    """

    mean: A
    variance: A
    entropy: A
    expected_entropy: A | None
    mutual_information: A | None
    noise: A | None = None

    @property
    def sd(self) -> A:
        """The standard deviation: over the samples, and of new data where their noise is known."""
        variance: Any = self.variance
        root: A = variance.sqrt() if hasattr(variance, "sqrt") else np.sqrt(variance)  # of a tensor, too
        return root


class Average:
    """The running mean and squared deviations of what samples say (Welford), and their mean entropy."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._count = 0
        self._mean = self._squares = self._entropy = np.zeros(())
        self._noise: Floats | None = None

    def add(self, outputs: Floats, noise: Floats | None = None) -> None:
        """Take in what one more sample says: probabilities, values or rates, (examples, outputs), and the
        variance of the data around values, (outputs,) or (examples, outputs)."""
        self._count += 1
        difference = outputs - self._mean
        self._mean = self._mean + difference / self._count
        self._squares = self._squares + difference * (outputs - self._mean)
        if noise is not None:
            self._noise = noise if self._noise is None else self._noise + noise
        if TASKS[self._task].classes:
            entropy = entropy_of(outputs, self._task)
            self._entropy = self._entropy + (entropy - self._entropy) / self._count

    def prediction(self) -> Prediction[Floats]:
        """What all of them say together."""
        if not self._count:
            raise ValueError("there are no samples: take some after the burn-in")
        variance = self._squares / self._count
        if not TASKS[self._task].classes:
            noise = None if self._noise is None else self._noise / self._count
            return of_data(self._task, self._mean, variance, noise)
        entropy = entropy_of(self._mean, self._task)
        disagreement = np.maximum(entropy - self._entropy, 0.0)  # it is never negative but for rounding
        return Prediction(self._mean, variance, entropy, self._entropy, disagreement)


def of_data(task: Task, mean: Floats, spread: Floats, noise: Floats | None) -> Prediction[Floats]:
    """The prediction of values or rates with a spread over samples, and perhaps noise around them: that of
    counts is their rate."""
    noise = mean if task == "counts" else noise
    variance = spread if noise is None else spread + noise
    return Prediction(mean, variance, normal_entropy(variance), None, None, noise)


def entropy_of(probabilities: Floats, task: Task) -> Floats:
    """The entropy of classes, or the sum of those of binary columns."""
    from scipy.special import entr

    entropies = entr(probabilities)
    if task == "binary":
        entropies = entropies + entr(1 - probabilities)
    return np.asarray(entropies.sum(axis=-1))


def normal_entropy(variance: Floats) -> Floats:
    """The entropy of independent normal columns: minus infinity where the variance is 0."""
    with np.errstate(divide="ignore"):
        return np.asarray(0.5 * np.log(2 * math.pi * math.e * variance).sum(axis=-1))
