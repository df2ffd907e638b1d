"""Average predictions over samples: mean, variance and entropies, in constant memory."""

from __future__ import annotations

import math
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from heatbath.datasets.problem import Floats
from heatbath.datasets.tasks import TASKS, Task

A = TypeVar("A")


class Prediction(NamedTuple, Generic[A]):
    """Prediction averaged over samples: NumPy arrays for a run, tensors on the CPU for a torch model.

    Attributes
    ----------
    mean, variance : array, (examples, outputs)
        Of probabilities, of the values of a regression, or of counts. For counts, and in a regression with a
        posterior, they describe new data: the variance is that over the samples plus `noise`.
    entropy : array, (examples,)
        Entropy of the mean in nats, summed over independent columns. For values and counts it is that of a
        normal distribution with this variance. For probabilities it is the sum of the next two.
    expected_entropy : array, (examples,), or None
        Mean over samples of their entropies: the noise of the data, as the samples predict it. None for
        values and counts, and if only means were kept.
    mutual_information : array, (examples,), or None
        The disagreement of the samples. None in the same cases.
    noise : array, (outputs,) or (examples, outputs), or None
        Mean variance of the data around the samples' values; one for each example if it depends on the
        inputs. None for classes, and without a posterior.

    Examples
    --------
    >>> import heatbath as hb
    >>> problem = hb.datasets.spirals(n_train=50, n_test=20)
    >>> run = hb.train(problem, hb.MLP((5,)), hb.AdLaLa(), steps=100, chains=2, samples=5)
    >>> prediction = run.predict([[0.5, 1.0], [0.0, 1.0]])
    >>> prediction.mean.shape, prediction.mutual_information.shape
    ((2, 1), (2,))
    """

    mean: A
    variance: A
    entropy: A
    expected_entropy: A | None
    mutual_information: A | None
    noise: A | None = None

    @property
    def sd(self) -> A:
        """Standard deviation: the root of `variance`."""
        variance: Any = self.variance
        root: A = variance.sqrt() if hasattr(variance, "sqrt") else np.sqrt(variance)  # a tensor has sqrt
        return root


class Average:
    """Running mean, squared deviations (Welford) and mean entropy of the predictions of samples."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._count = 0
        self._mean = self._squares = self._entropy = np.zeros(())
        self._noise: Floats | None = None

    def add(self, outputs: Floats, noise: Floats | None = None) -> None:
        """Add the predictions of one more sample.

        Parameters
        ----------
        outputs : array, (examples, outputs)
            Probabilities, values or rates.
        noise : array, (outputs,) or (examples, outputs), optional
            Variance of the data around values.
        """
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
        """Return the prediction averaged over all samples. Raises ValueError without samples."""
        if not self._count:
            raise ValueError("there are no samples: run more steps after the burn-in")
        variance = self._squares / self._count
        if not TASKS[self._task].classes:
            noise = None if self._noise is None else self._noise / self._count
            return predict_new_data(self._task, self._mean, variance, noise)
        entropy = entropy_of(self._mean, self._task)
        disagreement = np.maximum(entropy - self._entropy, 0.0)  # below 0 only by rounding
        return Prediction(self._mean, variance, entropy, self._entropy, disagreement)


def predict_new_data(task: Task, mean: Floats, spread: Floats, noise: Floats | None) -> Prediction[Floats]:
    """Return the prediction of values or counts.

    Parameters
    ----------
    task : str
        The task. The noise of counts is their rate.
    mean, spread : array, (examples, outputs)
        Mean and variance over samples.
    noise : array or None
        Variance of the data around the samples' values, if it is known.
    """
    noise = mean if task == "counts" else noise
    variance = spread if noise is None else spread + noise
    return Prediction(mean, variance, normal_entropy(variance), None, None, noise)


def entropy_of(probabilities: Floats, task: Task) -> Floats:
    """Return the entropy of each example in nats, (examples,); that of binary columns is summed."""
    from scipy.special import entr

    entropies = entr(probabilities)
    if task == "binary":
        entropies = entropies + entr(1 - probabilities)
    return np.asarray(entropies.sum(axis=-1))


def normal_entropy(variance: Floats) -> Floats:
    """Return the entropy of independent normal columns; it is minus infinity for a variance of 0."""
    with np.errstate(divide="ignore"):
        return np.asarray(0.5 * np.log(2 * math.pi * math.e * variance).sum(axis=-1))
