"""Means with their intervals, once for all: of correlated series, of independent runs, by resampling.

>>> mean([[1.0], [2.0], [3.0], [4.0]])  # four chains, one record of each
Estimate(value=2.5, error=1.048...)
>>> student([1.0, 2.0, 3.0, 4.0]).text()
'2.5 (0.4 to 4.6)'
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from heatbath.checks import whole

Array = NDArray[np.float64]

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

    def p_value(self, target: float) -> float:
        """Of the difference from a target, two-sided; NaN where there is no error.

        It is below 0.05 just where the 95 % interval leaves out the target.
        """
        difference = abs(self.value - target)
        if self.error == 0:
            return float(difference == 0)
        return math.erfc(difference / self.error / math.sqrt(2))


class Measured(NamedTuple):
    """A number with the two ends of its 95 % confidence interval (NaN where there is none)."""

    value: float
    low: float
    high: float

    def __neg__(self) -> Measured:
        return Measured(-self.value, -self.high, -self.low)

    def text(self, scale: float = 1.0, digits: int = 1, unit: str = "") -> str:
        """In words: 93.4 % (92.9 to 93.9)."""
        value, low, high = (f"{scale * x:.{digits}f}" for x in self)
        return f"{value}{unit} ({low} to {high})" if math.isfinite(self.low) else f"{value}{unit}"

    def percent(self) -> str:
        """A share in percent."""
        return self.text(100, 1, " %")


class OverChains(NamedTuple):
    """The mean over chains with its 95 % interval, the standard deviation, the extremes and their gap."""

    mean: float
    low: float
    high: float
    std: float
    best: float
    worst: float
    gap: float


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


def student(values: ArrayLike, of: int = 1) -> Measured:
    """The mean of independent values, such as those of several runs, with Student's interval.

    It is that of `mean` for one record of each chain. `of`: how many things this one was chosen from as the
    best; its interval is as much wider (Bonferroni). One value alone has no interval, and where one is NaN,
    so is the mean.
    """
    array = np.asarray(values, np.float64).ravel()
    value, error = float(array.mean()), _error(array[:, None], of)
    return Measured(value, *Estimate(value, error).interval)


def over_chains(values: ArrayLike, *, lower_is_better: bool = False) -> OverChains:
    """Independent chains' values, such as their last test accuracies, as mean, interval, spread and extremes.

    The interval is Student's t, std² the variance over chains (divided by their number less one); the gap is
    what the worst chain is away from the best. For a loss say `lower_is_better`. One chain alone has no
    interval and no spread: NaN.
    """
    array = np.asarray(values)
    if array.ndim != 1 or not array.size:
        raise ValueError(
            f"values must be one number for each chain, got an array of shape {array.shape}: choose "
            "a record, as in run.accuracy('test').isel(record=-1)"
        )
    estimate = mean(array[:, None])
    best, worst = float(array.max()), float(array.min())
    if lower_is_better:
        best, worst = worst, best
    std = float(array.std(ddof=1)) if len(array) > 1 else math.nan
    return OverChains(estimate.value, *estimate.interval, std, best, worst, abs(best - worst))


def bootstrap(
    statistic: Callable[..., float], *samples: ArrayLike, paired: bool = True, repeats: int = 2000
) -> Measured:
    """A statistic of samples of runs with a 95 % interval of percentiles over resampled runs.

    `paired`: run number i of one sample had the start and the data of number i of the others. Resampled runs
    of which the statistic is NaN do not count.
    """
    arrays = [np.asarray(sample, np.float64) for sample in samples]
    sizes = [len(array) for array in arrays]
    values = [
        statistic(*(array[rows] for array, rows in zip(arrays, drawn, strict=True)))
        for drawn in resampled(*sizes, paired=paired, repeats=repeats)
    ]
    known = np.array(values)[~np.isnan(values)]
    low, high = np.percentile(known, [2.5, 97.5], method="nearest") if len(known) else (math.nan, math.nan)
    return Measured(float(statistic(*arrays)), float(low), float(high))


def resampled(*sizes: int, paired: bool = True, repeats: int = 2000) -> Iterator[list[NDArray[np.int64]]]:
    """Runs drawn anew with replacement, so many times: their numbers, for a sample of each size.

    `paired`: the same for all samples. Always the same draws.
    """
    rng = np.random.default_rng(0)
    for _ in range(repeats):
        same = rng.integers(0, sizes[0], sizes[0])
        yield [same if paired else rng.integers(0, size, size) for size in sizes]


def wilson(rate: Array, count: Array) -> tuple[Array, Array]:
    """Wilson's 95 % interval of frequencies, each observed in so many cases."""
    z = NORMAL
    middle = (rate + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z * np.sqrt(rate * (1 - rate) / count + (z / (2 * count)) ** 2) / (1 + z**2 / count)
    return middle - half, middle + half


def autocorrelation_time(trace: ArrayLike) -> float:
    """The integrated autocorrelation time 1 + 2 Σ ρ_k of a trace, (chain, record) or one series, in records.

    Autocovariances about each chain's own mean, averaged over chains, and summed as long as those of
    neighbouring lags are positive and fall (Geyer, 1992). 1 for a constant. A series shorter than the
    correlation cannot show it: the result is then at most a fraction of its length.
    """
    return _autocorrelation_time(_checked(trace))


def rhat(trace: ArrayLike) -> float:
    """R-hat of a trace, (chain, record) or one series: 1 where the chains, and the halves of each, agree.

    Split and rank-normalised (Vehtari and others, 2021): the larger of that of the values, which tells
    different means, and that of their distances from the median, which tells different spreads. NaN for a
    constant, infinite for chains that stand still at different places.
    """

    def ratio(scores: Array) -> float:
        count = scores.shape[1]
        within, between = scores.var(axis=1, ddof=1).mean(), scores.mean(axis=1).var(ddof=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            return float(np.sqrt((count - 1) / count + between / within))

    halves = _halves(trace)
    folded = np.abs(halves - np.median(halves))
    return float(np.fmax(ratio(_scores(halves)), ratio(_scores(folded))))


def ess(trace: ArrayLike) -> float:
    """The effective size of a trace, (chain, record) or one series, for its mean (bulk ESS).

    How many independent values would tell as much, by the autocorrelations of the rank-normalised halves of
    the chains (Vehtari and others, 2021); chains that disagree count for little. NaN for a constant.
    """
    scores = _scores(_halves(trace))
    count, size = scores.shape[1], scores.size
    if not np.ptp(scores):
        return math.nan
    covariance = _autocovariance(scores)
    within = covariance[0] * count / (count - 1)
    total = covariance[0] + scores.mean(axis=1).var(ddof=1)
    correlation = 1 - (within - covariance) / total
    correlation[0] = 1.0
    return float(size / max(_geyer(correlation), 1 / math.log10(size)))


def _checked(trace: ArrayLike) -> Array:
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


def _autocorrelation_time(values: Array) -> float:
    if not np.ptp(values, axis=1).any():
        return 1.0
    return float(max(_geyer(_autocovariance(values)), 1.0 / values.shape[1]))


def _autocovariance(values: Array) -> Array:
    """At every lag, about each chain's own mean; the mean over chains."""
    count = values.shape[1]
    spectrum = np.abs(np.fft.rfft(values - values.mean(axis=1, keepdims=True), 2 * count, axis=1)) ** 2
    return np.asarray(np.fft.irfft(spectrum.mean(axis=0))[:count] / count)


def _geyer(covariance: Array) -> float:
    """1 + 2 Σ ρ_k, as long as the sums of neighbouring lags are positive and fall."""
    pairs = covariance[: len(covariance) // 2 * 2].reshape(-1, 2).sum(axis=1) / covariance[0]
    positive = pairs[: int(np.argmax(pairs <= 0)) if (pairs <= 0).any() else len(pairs)]
    return 2.0 * float(np.minimum.accumulate(positive).sum()) - 1.0


def _scores(values: Array) -> Array:
    """The normal numbers of the same ranks."""
    from scipy.special import ndtri

    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(count) - (count - 1) / 2)[place].reshape(values.shape)
    return np.asarray(ndtri((ranks - 3 / 8) / (values.size + 1 / 4)))


def _halves(trace: ArrayLike) -> Array:
    """The halves of every chain as chains of their own."""
    values = _checked(trace)
    half = values.shape[1] // 2
    if half < 2:
        raise ValueError(f"R-hat and ESS need at least 4 records of each chain, got {values.shape[1]}")
    return np.concatenate([values[:, :half], values[:, -half:]])


def _error(values: Array, of: int = 1) -> float:
    """The standard error of the mean of (chain, record), widened by Student's t; see `student`."""
    from scipy.special import stdtrit

    chains, count = values.shape
    total, freedom = _squares(values)
    if not freedom:
        return math.nan
    return float(stdtrit(freedom, 1 - 0.025 / of)) / NORMAL * math.sqrt(total / freedom / (count * chains))


def _squares(values: Array) -> tuple[float, int]:
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
