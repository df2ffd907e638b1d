"""Diagnostics: estimates of correlated quantities, with the error that the correlation leaves."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from heatbath.checks import whole

FEWEST = 16  # blocks that an estimate of the error is taken from, at least


class Estimate(NamedTuple):
    """A mean and its standard error (NaN while there is too little to tell)."""

    value: float
    error: float

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % confidence interval."""
        return self.value - 1.96 * self.error, self.value + 1.96 * self.error


class Blocks:
    """The running mean of a correlated series, in bounded memory.

    The series is kept as the means of blocks of equal length; when there are too many, neighbours are joined.
    The error of the mean is that of independent blocks once they are longer than the correlation: the largest
    over block lengths that leave at least 16 blocks (Flyvbjerg and Petersen, 1989).
    """

    def __init__(self, most: int = 256) -> None:
        self._most = whole("most", most, low=2 * FEWEST)
        self._means: list[float] = []
        self._length, self._sum, self._filled = 1, 0.0, 0

    def __len__(self) -> int:
        return len(self._means) * self._length + self._filled

    def add(self, value: float) -> None:
        """Append a value."""
        self._sum += value
        self._filled += 1
        if self._filled == self._length:
            self._means.append(self._sum / self._length)
            self._sum, self._filled = 0.0, 0
        if len(self._means) == self._most:
            pairs = np.array(self._means[: self._most // 2 * 2]).reshape(-1, 2)
            self._means = pairs.mean(axis=1).tolist()
            self._length *= 2

    def estimate(self) -> Estimate:
        """The mean of all values, and its standard error."""
        if not len(self):
            return Estimate(math.nan, math.nan)
        value = (sum(self._means) * self._length + self._sum) / len(self)
        means, errors = np.array(self._means), []
        while len(means) >= FEWEST:
            errors.append(float(means.std(ddof=1)) / math.sqrt(len(means)))
            means = means[: len(means) // 2 * 2].reshape(-1, 2).mean(axis=1)
        return Estimate(float(value), max(errors, default=math.nan))
