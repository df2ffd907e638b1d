"""Means of correlated series, with the error that the correlation leaves."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from heatbath.checks import whole

FEWEST = 16  # values that an error is estimated from, at least
COSINES = 8  # slow waves of a series whose size tells the error: at 20 correlation times 7 % too small
SPANS = 10  # correlation times that a series must have: below, it tells too little of the slow waves
NORMAL = 1.96  # standard errors on each side of a 95 % interval
DISAGREE = 0.01  # the chance of it at which chains are taken to differ by more than what they show within


class Estimate(NamedTuple):
    """A mean and its standard error (NaN while there is too little to tell).

    Where the error is itself uncertain, it is widened: ±1.96 errors are the 95 % interval of Student's t.
    """

    value: float
    error: float

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % confidence interval."""
        return self.value - NORMAL * self.error, self.value + NORMAL * self.error


class Blocks:
    """The running mean of a correlated series, in bounded memory.

    The series is kept as the means of blocks of equal length; when there are too many, neighbours are joined.
    The error is that of `mean` for the series of block means, and NaN while that has fewer than 16 values or
    spans fewer than 10 of the correlation times that it shows.
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
        return Estimate(float(value), _error(np.array([self._means])) if self._means else math.nan)


def mean(trace: ArrayLike) -> Estimate:
    """The mean of a trace, (chain, record) or one series, and its standard error.

    The error is taken from the sizes of the slowest cosine waves in each series (8, and fewer of several
    chains), which for a correlated series are as large as what its mean is off by, and from what the means of
    independent chains differ by; the interval is Student's t with as many degrees of freedom. Where a series
    has fewer than 16 records, or spans fewer than 10 of the correlation times that it shows, or where the
    chains differ by far more than what each shows, the chains' means alone decide; of a single chain the
    error is then NaN.
    """
    values = _checked(trace)
    return Estimate(float(values.mean()), _error(values))


def autocorrelation_time(trace: ArrayLike) -> float:
    """The integrated autocorrelation time 1 + 2 Σ ρ_k of a trace, (chain, record) or one series, in records.

    Autocovariances about each chain's own mean, averaged over chains, and summed as long as those of
    neighbouring lags are positive and fall (Geyer, 1992). 1 for a constant. A series shorter than the
    correlation cannot show it: the result is then at most a fraction of its length.
    """
    return _autocorrelation_time(_checked(trace))


def _checked(trace: ArrayLike) -> NDArray[np.float64]:
    """A trace as an array (chain, record) of finite numbers."""
    values: NDArray[Any] = np.asarray(trace)
    if values.dtype.kind not in "biuf" or values.ndim not in (1, 2) or not values.size:
        raise ValueError(
            "a trace must be an array of numbers, (chain, record) or (record,), and not empty; "
            f"got one of {values.dtype} with shape {values.shape}"
        )
    values = np.atleast_2d(values).astype(np.float64)
    if lost := np.count_nonzero(~np.isfinite(values)):
        raise ValueError(
            f"a trace must be finite, got {lost} values that are not: leave out the chains that diverged and "
            "the records without a value"
        )
    return values


def _autocorrelation_time(values: NDArray[np.float64]) -> float:
    count = values.shape[1]
    if not np.ptp(values, axis=1).any():
        return 1.0
    spectrum = np.abs(np.fft.rfft(values - values.mean(axis=1, keepdims=True), 2 * count, axis=1)) ** 2
    covariance = np.fft.irfft(spectrum.mean(axis=0))[:count]
    pairs = covariance[: count // 2 * 2].reshape(-1, 2).sum(axis=1) / covariance[0]
    positive = pairs[: int(np.argmax(pairs <= 0)) if (pairs <= 0).any() else len(pairs)]
    total = float(np.minimum.accumulate(positive).sum())
    return float(max(2.0 * total - 1.0, 1.0 / count))


def _error(values: NDArray[np.float64]) -> float:
    """The standard error of the mean of (chain, record), widened by Student's t."""
    from scipy.special import stdtrit

    chains, count = values.shape
    total, freedom = _squares(values)
    if not freedom:
        return math.nan
    return float(stdtrit(freedom, 0.975)) / NORMAL * math.sqrt(total / freedom / (count * chains))


def _squares(values: NDArray[np.float64]) -> tuple[float, int]:
    """A sum of squares, each with the expectation `count` times a chain mean's variance, and their number."""
    from scipy.special import fdtrc

    chains, count = values.shape
    means = values.mean(axis=1)
    between, freedom = count * float(((means - means.mean()) ** 2).sum()), chains - 1
    if count < FEWEST or count < SPANS * _autocorrelation_time(values):
        return between, freedom
    slowest = max(2, COSINES // chains)  # the fewer, the less biased, and many chains have enough
    angles = np.pi * (np.arange(count)[:, None] + 0.5) * np.arange(1, slowest + 1) / count
    within = float((((values - means[:, None]) @ np.cos(angles)) ** 2).sum()) * 2 / count
    waves = chains * slowest
    if freedom and between:
        ratio = between * waves / (within * freedom) if within else math.inf
        if fdtrc(freedom, waves, ratio) < DISAGREE:
            return between, freedom
    return between + within, freedom + waves
