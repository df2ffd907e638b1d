"""Means with their intervals, once for all: of correlated series, of independent runs or examples, of shares
and ranks, by resampling. Those of a quantity with bounds stay within them.

>>> mean([[1.0], [2.0], [3.0], [4.0]])  # four chains, one record of each
Estimate(value=2.5, error=1.048...)
>>> student([1.0, 2.0, 3.0, 4.0]).text()
'2.5 (0.4 to 4.6)'
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from heatbath._internal.checks import whole
from heatbath.diagnostics.mcmc import Array, autocorrelation_time_of, checked_trace

FEWEST = 16  # values that an error is estimated from, at least
BLOCKS = 256  # means of blocks that a running mean keeps at most
COSINES = 8  # slow waves of a series whose size tells the error: at 20 correlation times 7 % too small
SPANS = 10  # correlation times that a series must have: below, it tells too little of the slow waves
NORMAL = 1.96  # standard errors on each side of a 95 % interval
UNBOUNDED = (-math.inf, math.inf)
SHARES = (0.0, 1.0)
ROUNDING = 1e-12  # of sums of weights
LARGEST = 700.0  # exponent that float64 has room for
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


class BlockAverage:
    """The running mean of a correlated series, in bounded memory.

    The series is kept as the means of blocks of equal length; when there are too many, neighbours are joined.
    The error is that of `mean` for the series of block means, and NaN while that has fewer than 16 values or
    spans fewer than 10 of the correlation times that it shows.
    """

    def __init__(self, most: int = BLOCKS) -> None:
        self._most = most if most == BLOCKS else whole("most", most, low=2 * FEWEST)
        self._means: list[float] = []
        self._length, self._sum, self._filled = 1, 0.0, 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, value: float) -> None:
        """Append a value."""
        self._sum += value
        self._filled += 1
        self._count += 1
        if self._filled == self._length:
            self._means.append(self._sum / self._length)
            self._sum, self._filled = 0.0, 0
        if len(self._means) == self._most:
            pairs = np.array(self._means[: self._most // 2 * 2]).reshape(-1, 2)
            self._means = pairs.mean(axis=1).tolist()
            self._length *= 2
            self._count = len(self._means) * self._length  # without the last block of an odd number

    @property
    def mean(self) -> float:
        """Mean of all values; NaN where there are none."""
        total = sum(self._means) * self._length + self._sum
        return float(total / self._count) if self._count else math.nan

    def estimate(self) -> Estimate:
        """The mean of all values, and its standard error."""
        value = self.mean
        told = self._means and math.isfinite(value)
        return Estimate(value, _error(np.array([self._means])) if told else math.nan)

    def state_dict(self) -> dict[str, Any]:
        """All that it knows, as plain values."""
        return {"means": list(self._means), "length": self._length, "sum": self._sum, "filled": self._filled}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self._means, self._length = list(state["means"]), state["length"]
        self._sum, self._filled = state["sum"], state["filled"]
        self._count = len(self._means) * self._length + self._filled


def mean(trace: ArrayLike) -> Estimate:
    """The mean of a trace, (chain, record) or one series, and its standard error.

    The error is taken from the sizes of the slowest cosine waves in each series (8, and fewer of several
    chains), which for a correlated series are as large as what its mean is off by, and from what the means of
    independent chains differ by; the interval is Student's t with as many degrees of freedom. Where a series
    has fewer than 16 records, or spans fewer than 10 of the correlation times that it shows, or where the
    chains differ by far more than what each shows, the chains' means alone decide; of a single chain the
    error is then NaN.
    """
    values = checked_trace(trace)
    return Estimate(float(values.mean()), _error(values))


def student(
    values: ArrayLike,
    of: int = 1,
    bounds: tuple[float, float] = UNBOUNDED,
    weights: ArrayLike | None = None,
) -> Measured:
    """The mean of independent values, such as those of several runs, with Student's interval.

    It is that of `mean` for one record of each chain. `of`: how many things this one was chosen from as the
    best; its interval is as much wider (Bonferroni). One value alone has no interval, and where one is NaN,
    so is the mean. `bounds`, such as 0 and 1 of an accuracy or 0 and infinity of a loss: the interval is that
    of the logit, or of the logarithm, of what is between, so that it stays within them. `weights` (one for
    each value) say how often each counts in the mean; its error is that of a ratio of sums.

    >>> student([0.96, 0.99, 0.99, 1.0]).percent()
    '98.5 % (95.7 to 101.3)'
    >>> student([0.96, 0.99, 0.99, 1.0], bounds=SHARES).percent()
    '98.5 % (91.0 to 99.8)'
    """
    array = np.asarray(values, np.float64).ravel()
    if weights is None:
        value, error = float(array.mean()), _error(array[:, None], of)
    else:
        w = np.asarray(weights, np.float64).ravel()
        value = float(w @ array / w.sum())
        error = _error((w / w.mean() * (array - value))[:, None], of)
    return _within(value, NORMAL * error, *bounds)


def _within(value: float, half: float, low: float, high: float) -> Measured:
    """A value with an interval of this half width; where there are bounds, on a scale that has none."""
    above, below = value - low, high - value
    if half == 0 or (above > 0 and below > 0 and math.isinf(above) and math.isinf(below)):
        return Measured(value, value - half, value + half)
    if not (above > 0 and below > 0 and math.isfinite(half)):
        return Measured(value, math.nan, math.nan)
    if math.isinf(below):
        factor = math.exp(min(half / above, LARGEST))
        return Measured(value, low + above / factor, low + above * factor)
    if math.isinf(above):
        factor = math.exp(min(half / below, LARGEST))
        return Measured(value, high - below * factor, high - below / factor)
    factor = math.exp(min(half * (above + below) / (above * below), LARGEST))  # of the odds above / below
    ends = (above / (above + below / odds) for odds in (1 / factor, factor))
    first, last = (low + (high - low) * end for end in ends)
    return Measured(value, first, last)


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
    return np.clip(middle - half, 0.0, rate), np.clip(middle + half, rate, 1.0)


def frequency(
    happened: ArrayLike, groups: ArrayLike | None = None, weights: ArrayLike | None = None
) -> Measured:
    """How often something happened, 0 or 1 for each example, with Wilson's interval.

    With `groups`, a number for each example, it is the mean of the shares in each, whose intervals are put
    together by their squares (Newcombe, 1998). Weights count as many examples as would tell as much.

    >>> frequency([1, 1, 1, 1]).percent()
    '100.0 % (51.0 to 100.0)'
    """
    events = np.asarray(happened, np.float64).ravel()
    members = np.zeros(len(events)) if groups is None else np.asarray(groups).ravel()
    w = np.ones(len(events)) if weights is None else np.asarray(weights, np.float64).ravel()
    own = [members == group for group in np.unique(members)]
    rates = np.array([np.average(events[rows], weights=w[rows]) for rows in own])
    low, high = wilson(rates, np.array([effective(w[rows]) for rows in own]))
    value = float(rates.mean())
    down, up = (math.sqrt(np.square(end - rates).sum()) / len(own) for end in (low, high))
    return Measured(value, max(value - down, 0.0), min(value + up, 1.0))


def area(value: float, positives: float, negatives: float) -> Measured:
    """The area under a ROC curve of so many positive and negative examples, with its interval.

    It has the ends at which Hanley and McNeil's error, with the mean of the two numbers for each in what
    depends on ties of two with one, makes the value just too far away (Newcombe, 2006, his method 5): within
    0 and 1, and not empty at these.

    >>> area(1.0, 10, 10).text(digits=2)
    '1.00 (0.80 to 1.00)'
    """
    half = (positives + negatives) / 2 - 1

    def apart(truth: float) -> float:
        """The squared distance less its square at the end of the interval."""
        spread = 1 + half * ((1 - truth) / (2 - truth) + truth / (1 + truth))
        return (value - truth) ** 2 - NORMAL**2 * truth * (1 - truth) * spread / (positives * negatives)

    return Measured(value, _root(apart, 0.0, value), _root(apart, 1.0, value))


def effective(weights: ArrayLike) -> float:
    """How many examples of equal weights tell as much as these: (Σw)²/Σw²."""
    w = np.asarray(weights, np.float64)
    return float(w.sum() ** 2 / np.square(w).sum())


def quantiles(values: ArrayLike, shares: ArrayLike, weights: ArrayLike | None = None) -> Array:
    """The values below which these shares of each column lie, (shares, columns); with weights, how often each
    row counts, the first value up to which there is such a share."""
    table, wanted = np.asarray(values, np.float64), np.atleast_1d(np.asarray(shares, np.float64))
    if weights is None:
        return np.asarray(np.quantile(table, wanted, axis=0))
    order = np.argsort(table, axis=0, kind="stable")
    below = np.cumsum(np.asarray(weights, np.float64)[order], axis=0)
    rows = [np.searchsorted(column / column[-1], wanted * (1 - ROUNDING)) for column in below.T]
    return np.take_along_axis(np.sort(table, axis=0), np.stack(rows, axis=1), axis=0)


def _root(function: Callable[[float], float], outside: float, inside: float) -> float:
    """Where a function changes its sign, by halving; it is positive outside."""
    for _ in range(60):  # to the last digits
        middle = (outside + inside) / 2
        outside, inside = (middle, inside) if function(middle) > 0 else (outside, middle)
    return inside


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
    if count < FEWEST or count < SPANS * autocorrelation_time_of(values):
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
