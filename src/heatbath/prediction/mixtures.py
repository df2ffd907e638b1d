"""The laws of new data that samples predict, one for each: of a regression normal ones, and of a class."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from heatbath.checks import SHARE, real, reals
from heatbath.datasets.problem import Floats, numbers

AT_ONCE = 1 << 20  # numbers of all components at a time
HALVINGS = 40  # of the interval in which a quantile lies: to 1e-12 of its length


@dataclass(frozen=True, eq=False)
class Mixture:
    """Equally likely normal laws: `means` (samples, examples, outputs) and `deviations` (samples, outputs).

    Columns are the values of a regression, each with a law of its own. A deviation is that of the data around
    what a network says; 0 where none is known, and then the law is of the networks' values.
    """

    means: Floats
    deviations: Floats

    @property
    def mean(self) -> Floats:
        """(examples, outputs)."""
        return np.asarray(self.means.mean(axis=0))

    @property
    def sd(self) -> Floats:
        """The standard deviation: networks differ, and data lie around them."""
        return np.asarray(np.sqrt(self.means.var(axis=0) + np.mean(self.deviations**2, axis=0)))

    def cdf(self, y: ArrayLike) -> Floats:
        """The probability of less than y, (examples, outputs); of what is observed it is uniform where the
        prediction is right."""
        from scipy.special import ndtr

        values = self._checked(y)
        return self._in_chunks(
            lambda rows, scale: ndtr(self._standard(values[rows], rows, scale)).mean(axis=0)
        )

    def log_density(self, y: ArrayLike) -> Floats:
        """The logarithm of the density at y, (examples, outputs)."""
        from scipy.special import logsumexp

        values = self._checked(y)

        def of(rows: slice, scale: Floats) -> Floats:
            logs = self._log_densities(values, rows, scale)
            return np.asarray(logsumexp(logs, axis=0) - math.log(len(logs)))

        return self._in_chunks(of)

    def log_likelihood(self, y: ArrayLike) -> Floats:
        """The logarithm of the density that each sample has at y, (samples, examples, outputs)."""
        values = self._checked(y)
        each = self._in_chunks(lambda rows, scale: self._log_densities(values, rows, scale).swapaxes(0, 1))
        return each.swapaxes(0, 1)

    def quantiles(self, shares: ArrayLike) -> Floats:
        """The values below which data lie with these probabilities, (shares, examples, outputs)."""
        from scipy.special import ndtr

        wanted = reals("shares", np.atleast_1d(shares).tolist(), SHARE)
        if not all(0 < share < 1 for share in wanted):
            raise ValueError(f"shares must be between 0 and 1, got {wanted}")

        def of(rows: slice, scale: Floats) -> Floats:
            means = self.means[:, rows]
            low, high = (means - 9 * scale).min(axis=0), (means + 9 * scale).max(axis=0)
            found = []
            for share in wanted:
                a, b = low, high
                for _ in range(HALVINGS):
                    middle = (a + b) / 2
                    below = ndtr(self._standard(middle, rows, scale)).mean(axis=0) < share
                    a, b = np.where(below, middle, a), np.where(below, b, middle)
                found.append((a + b) / 2)
            return np.stack(found, axis=1)

        return np.asarray(np.moveaxis(self._in_chunks(of), 1, 0))

    def interval(self, coverage: float = 0.9) -> tuple[Floats, Floats]:
        """The lower and upper ends between which data lie with this probability, as many below as above."""
        coverage = real("coverage", coverage, SHARE)
        if not 0 < coverage < 1:
            raise ValueError(f"coverage must be between 0 and 1, got {coverage:g}")
        low, high = self.quantiles([(1 - coverage) / 2, (1 + coverage) / 2])
        return low, high

    def draw(self, seed: int = 0) -> Floats:
        """New data: one for each sample, (samples, examples, outputs)."""
        noise = np.random.default_rng(seed).standard_normal(self.means.shape)
        return np.asarray(self.means + self.deviations[:, None] * noise)

    def _log_densities(self, values: Floats, rows: slice, scale: Floats) -> Floats:
        if not (self.deviations > 0).all():
            raise ValueError("the networks' values have no density: train with posterior=Posterior()")
        z = self._standard(values[rows], rows, scale)
        return np.asarray(-0.5 * z**2 - np.log(scale) - 0.5 * math.log(2 * math.pi))

    def _standard(self, values: Floats, rows: slice, scale: Floats) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            z = (values - self.means[:, rows]) / scale
        return np.where(np.isnan(z), 0.0, z)  # at a network's own value, without noise

    def _checked(self, y: ArrayLike) -> Floats:
        values = numbers("y", y, (1, 2))
        shape = self.means.shape[1:]
        if values.ndim == 1 and shape[1] == 1:
            values = values[:, None]
        if values.shape != shape:
            raise ValueError(f"y must be (examples, outputs) = {shape}, got an array of shape {np.shape(y)}")
        return values

    def _in_chunks(self, function: Callable[[slice, Floats], Floats]) -> Floats:
        """A function of some examples at a time, and the deviations in the form of the means."""
        count, examples, outputs = self.means.shape
        step = max(1, AT_ONCE // max(1, count * outputs))
        scale: NDArray[np.float64] = self.deviations[:, None]
        parts = [function(slice(first, first + step), scale) for first in range(0, examples, step)]
        return np.concatenate(parts) if parts else np.empty((0, outputs))


@dataclass(frozen=True, eq=False)
class Categorical:
    """Equally likely laws of a class: the networks' `logits`, (samples, examples, outputs), with one output
    for the second of two classes, or one for each class."""

    logits: Floats

    def log_likelihood(self, y: ArrayLike) -> Floats:
        """The logarithm of the probability that each sample gives the classes y, (samples, examples, 1)."""
        from scipy.special import log_softmax

        labels = numbers("y", y, (2,)).astype(np.int64)
        return np.asarray(np.take_along_axis(log_softmax(self._each(), axis=-1), labels[None], axis=-1))

    def draw(self, seed: int = 0) -> NDArray[np.int64]:
        """New classes: one for each sample, (samples, examples, 1)."""
        gumbel = np.random.default_rng(seed).gumbel(size=self._each().shape)
        return np.asarray((self._each() + gumbel).argmax(axis=-1)[..., None])  # is drawn as the softmax says

    def _each(self) -> Floats:
        """A logit for each class."""
        if self.logits.shape[-1] > 1:
            return self.logits
        return np.concatenate([np.zeros_like(self.logits), self.logits], axis=-1)
