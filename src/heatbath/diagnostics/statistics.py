"""Means with 95 % confidence intervals: of correlated series, independent runs, frequencies and ranks.

The interval of a quantity with bounds, such as an accuracy, stays within them.

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

FEWEST = 16  # values needed to estimate an error from one series
BLOCKS = 256  # block means that a running mean keeps at most
COSINES = 8  # slow waves that estimate the error of a series: 7 % too small at 20 correlation times
SPANS = 10  # correlation times a series must span before its slow waves can be estimated
NORMAL = 1.96  # standard errors on each side of a 95 % interval
INTERVAL_PERCENTILES = (2.5, 97.5)  # ends of a 95 % interval
UNBOUNDED = (-math.inf, math.inf)
SHARES = (0.0, 1.0)
ROUNDING = 1e-12  # of sums of weights
LARGEST = 700.0  # largest argument of exp in float64, rounded down
DISAGREE = 0.01  # p-value below which chains differ by more than their own fluctuations explain
BISECTIONS = 60  # halve [0, 1] down to rounding error


class Estimate(NamedTuple):
    """A mean and its standard error; the error is NaN while there are too few values to estimate it.

    An uncertain error is widened, so that ±1.96 errors are the 95 % interval of Student's t.
    """

    value: float
    error: float

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % confidence interval."""
        return self.value - NORMAL * self.error, self.value + NORMAL * self.error

    def p_value(self, target: float) -> float:
        """Return the two-sided p-value of the difference from a target; NaN if the error is NaN.

        It is below 0.05 exactly where the 95 % interval excludes the target.
        """
        difference = abs(self.value - target)
        if self.error == 0:
            return float(difference == 0)
        return math.erfc(difference / self.error / math.sqrt(2))


class Measured(NamedTuple):
    """A number with the two ends of its 95 % confidence interval; NaN ends mean no interval."""

    value: float
    low: float
    high: float

    def __neg__(self) -> Measured:
        return Measured(-self.value, -self.high, -self.low)

    def text(self, scale: float = 1.0, digits: int = 1, unit: str = "") -> str:
        """Return the number and its interval as text, such as "93.4 % (92.9 to 93.9)".

        Parameters
        ----------
        scale
            Factor on all three numbers: 100 for percent.
        digits
            Digits after the decimal point.
        unit
            Text after the number.
        """
        value, low, high = (f"{scale * x:.{digits}f}" for x in self)
        return f"{value}{unit} ({low} to {high})" if math.isfinite(self.low) else f"{value}{unit}"

    def percent(self) -> str:
        """Return a fraction as text in percent, with one decimal."""
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
    """Keep the running mean of a correlated series, and its error, in bounded memory.

    The series is stored as the means of blocks of equal length; when there are `most` blocks, neighbours are
    joined. The error is that of `mean` for the series of block means: NaN while there are fewer than 16
    blocks, or fewer than 10 correlation times.
    """

    def __init__(self, most: int = BLOCKS) -> None:
        self._most = most if most == BLOCKS else whole("most", most, low=2 * FEWEST)
        self._means: list[float] = []
        self._length = 1
        self._sum = 0.0
        self._filled = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, value: float) -> None:
        """Append a value.

        A complete block becomes its mean. When there are `most` blocks, neighbours are joined, so that blocks
        are twice as long.
        """
        self._sum += value
        self._filled += 1
        self._count += 1

        if self._filled == self._length:
            self._means.append(self._sum / self._length)
            self._sum = 0.0
            self._filled = 0

        if len(self._means) == self._most:
            pairs = np.array(self._means[: self._most // 2 * 2]).reshape(-1, 2)
            self._means = pairs.mean(axis=1).tolist()
            self._length *= 2
            self._count = len(self._means) * self._length  # an odd block at the end is dropped

    @property
    def mean(self) -> float:
        """Mean of all values; NaN where there are none."""
        total = sum(self._means) * self._length + self._sum
        return float(total / self._count) if self._count else math.nan

    def estimate(self) -> Estimate:
        """Return the mean of all values and its standard error."""
        value = self.mean
        if not self._means or not math.isfinite(value):
            return Estimate(value, math.nan)
        return Estimate(value, _error(np.array([self._means])))

    def state_dict(self) -> dict[str, Any]:
        """Return the complete state as plain values."""
        return {"means": list(self._means), "length": self._length, "sum": self._sum, "filled": self._filled}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state from `state_dict`."""
        self._means = list(state["means"])
        self._length = state["length"]
        self._sum = state["sum"]
        self._filled = state["filled"]
        self._count = len(self._means) * self._length + self._filled


def mean(trace: ArrayLike) -> Estimate:
    """Return the mean of a correlated trace and its standard error.

    The error combines two estimates: the amplitudes of the slowest cosine waves within each series (8 waves
    in all, at least 2 per chain), whose variance equals that of the series' mean, and the differences between
    the means of independent chains. The interval is Student's t with as many degrees of freedom.

    Chain means alone decide if a series has fewer than 16 records or spans fewer than 10 correlation times,
    or if the chains differ by far more than their own fluctuations explain. A single chain then has the
    error NaN.

    Parameters
    ----------
    trace
        Values, (chain, record), or one series, (record,).

    Examples
    --------
    >>> mean([[1.0], [2.0], [3.0], [4.0]]).value
    2.5
    """
    values = checked_trace(trace)
    return Estimate(float(values.mean()), _error(values))


def student(
    values: ArrayLike, of: int = 1, bounds: tuple[float, float] = UNBOUNDED, weights: ArrayLike | None = None
) -> Measured:
    """Return the mean of independent values, such as those of several runs, with Student's 95 % interval.

    Parameters
    ----------
    values
        The values. One value alone has no interval; a NaN makes the mean NaN.
    of
        Number of candidates from which this one was chosen as the best: widens the interval (Bonferroni).
    bounds
        Smallest and largest possible value, such as 0 and 1 for an accuracy or 0 and infinity for a loss. The
        interval is computed for the logit, or the logarithm, and stays within the bounds.
    weights
        How often each value counts. The error is then that of a ratio of sums.

    Examples
    --------
    >>> student([0.96, 0.99, 0.99, 1.0]).percent()
    '98.5 % (95.7 to 101.3)'
    >>> student([0.96, 0.99, 0.99, 1.0], bounds=SHARES).percent()
    '98.5 % (91.0 to 99.8)'
    """
    array = np.asarray(values, np.float64).ravel()
    if weights is None:
        value = float(array.mean())
        error = _error(array[:, None], of)
    else:
        w = np.asarray(weights, np.float64).ravel()
        value = float(w @ array / w.sum())
        error = _error((w / w.mean() * (array - value))[:, None], of)
    return _interval_within(value, NORMAL * error, *bounds)


def _interval_within(value: float, half_width: float, low: float, high: float) -> Measured:
    """Return a value with an interval that stays within the bounds `low` and `high`.

    `half_width` is the half width on the original scale. The interval is symmetric for the logarithm of the
    distance from one finite bound, or for the logit log(above / below) between two. A value on or beyond a
    bound has no interval.
    """
    above = value - low
    below = high - value
    is_inside = above > 0 and below > 0
    is_unbounded = is_inside and math.isinf(above) and math.isinf(below)
    if half_width == 0 or is_unbounded:
        return Measured(value, value - half_width, value + half_width)
    if not is_inside or not math.isfinite(half_width):
        return Measured(value, math.nan, math.nan)

    # The delta method turns the half width into a factor on the distance, or on the odds.
    if math.isinf(below):
        factor = math.exp(min(half_width / above, LARGEST))
        return Measured(value, low + above / factor, low + above * factor)
    if math.isinf(above):
        factor = math.exp(min(half_width / below, LARGEST))
        return Measured(value, high - below * factor, high - below / factor)
    factor = math.exp(min(half_width * (above + below) / (above * below), LARGEST))
    lower_fraction = above / (above + below / (1 / factor))
    upper_fraction = above / (above + below / factor)
    width = high - low
    return Measured(value, low + width * lower_fraction, low + width * upper_fraction)


def over_chains(values: ArrayLike, *, lower_is_better: bool = False) -> OverChains:
    """Return mean, interval, spread and extremes of independent chains' values.

    Parameters
    ----------
    values
        One number per chain, such as its last test accuracy.
    lower_is_better
        True for a loss: the best chain then has the smallest value.

    Returns
    -------
    OverChains
        The mean with Student's interval, the standard deviation (n - 1 in the denominator), the best and the
        worst value and the gap between them. One chain alone has no interval and no spread: NaN.
    """
    array = np.asarray(values)
    if array.ndim != 1 or not array.size:
        raise ValueError(
            f"values must be one number for each chain, got an array of shape {array.shape}: choose "
            "a record, as in run.accuracy('test').isel(record=-1)"
        )
    estimate = mean(array[:, None])
    best = float(array.max())
    worst = float(array.min())
    if lower_is_better:
        best, worst = worst, best
    std = float(array.std(ddof=1)) if len(array) > 1 else math.nan
    return OverChains(estimate.value, *estimate.interval, std, best, worst, abs(best - worst))


def bootstrap(
    statistic: Callable[..., float], *samples: ArrayLike, paired: bool = True, repeats: int = 2000
) -> Measured:
    """Return a statistic of samples with its 95 % bootstrap interval, from percentiles over resampled runs.

    Parameters
    ----------
    statistic
        Function of as many arrays as there are samples.
    *samples
        Arrays whose first axis is the run.
    paired
        True if run i of one sample shares start and data with run i of the others: all samples are then
        resampled alike.
    repeats
        Number of resamplings. Those with the statistic NaN are left out.
    """
    arrays = [np.asarray(sample, np.float64) for sample in samples]
    sizes = [len(array) for array in arrays]
    resampled_statistics = []
    for rows_of_samples in resampled(*sizes, paired=paired, repeats=repeats):
        resamples = [array[rows] for array, rows in zip(arrays, rows_of_samples, strict=True)]
        resampled_statistics.append(statistic(*resamples))
    defined = np.array(resampled_statistics)[~np.isnan(resampled_statistics)]
    value = float(statistic(*arrays))
    if not len(defined):
        return Measured(value, math.nan, math.nan)
    low, high = np.percentile(defined, INTERVAL_PERCENTILES, method="nearest")
    return Measured(value, float(low), float(high))


def resampled(*sizes: int, paired: bool = True, repeats: int = 2000) -> Iterator[list[NDArray[np.int64]]]:
    """Yield `repeats` times the row numbers of a bootstrap sample of each size, drawn with replacement.

    If `paired`, all samples share the row numbers. Every call yields the same draws.
    """
    rng = np.random.default_rng(0)
    for _ in range(repeats):
        shared = rng.integers(0, sizes[0], sizes[0])
        yield [shared if paired else rng.integers(0, size, size) for size in sizes]


def wilson(rate: Array, count: Array) -> tuple[Array, Array]:
    """Return the ends of Wilson's 95 % interval of frequencies `rate`, each observed in `count` cases."""
    z = NORMAL
    middle = (rate + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z * np.sqrt(rate * (1 - rate) / count + (z / (2 * count)) ** 2) / (1 + z**2 / count)
    return np.clip(middle - half, 0.0, rate), np.clip(middle + half, rate, 1.0)


def frequency(
    happened: ArrayLike, groups: ArrayLike | None = None, weights: ArrayLike | None = None
) -> Measured:
    """Return how often an event happened, with Wilson's 95 % interval.

    Parameters
    ----------
    happened
        0 or 1 per example.
    groups
        Group number per example. The result is then the mean of the frequencies in the groups, and the
        distances to the ends of their intervals are added in quadrature (Newcombe, 1998).
    weights
        How often each example counts. The interval uses the number of equally weighted examples with the same
        information, see `effective`.

    Examples
    --------
    >>> frequency([1, 1, 1, 1]).percent()
    '100.0 % (51.0 to 100.0)'
    """
    events = np.asarray(happened, np.float64).ravel()
    group_numbers = np.zeros(len(events)) if groups is None else np.asarray(groups).ravel()
    w = np.ones(len(events)) if weights is None else np.asarray(weights, np.float64).ravel()
    group_rows = [group_numbers == number for number in np.unique(group_numbers)]
    rates = np.array([np.average(events[rows], weights=w[rows]) for rows in group_rows])
    sizes = np.array([effective(w[rows]) for rows in group_rows])

    lows, highs = wilson(rates, sizes)
    distance_down = math.sqrt(np.square(lows - rates).sum()) / len(group_rows)
    distance_up = math.sqrt(np.square(highs - rates).sum()) / len(group_rows)
    mean_rate = float(rates.mean())
    return Measured(mean_rate, max(mean_rate - distance_down, 0.0), min(mean_rate + distance_up, 1.0))


def area(value: float, positives: float, negatives: float) -> Measured:
    """Return the area under a ROC curve with its 95 % interval.

    The interval has all areas from which the observed one is at most 1.96 standard errors away, with Hanley
    and McNeil's error at the mean of the two numbers of examples (Newcombe, 2006, method 5). It lies within 0
    and 1, and has a width even at these.

    Parameters
    ----------
    value
        The observed area.
    positives, negatives
        Numbers of positive and negative examples.

    Examples
    --------
    >>> area(1.0, 10, 10).text(digits=2)
    '1.00 (0.80 to 1.00)'
    """
    half = (positives + negatives) / 2 - 1

    def excess(truth: float) -> float:
        """Return the squared distance of a true area from the value, less 1.96² squared standard errors."""
        spread = 1 + half * ((1 - truth) / (2 - truth) + truth / (1 + truth))
        return (value - truth) ** 2 - NORMAL**2 * truth * (1 - truth) * spread / (positives * negatives)

    return Measured(value, _root(excess, 0.0, value), _root(excess, 1.0, value))


def effective(weights: ArrayLike) -> float:
    """Return the effective number of weighted examples, (Σw)²/Σw²."""
    w = np.asarray(weights, np.float64)
    return float(w.sum() ** 2 / np.square(w).sum())


def quantiles(values: ArrayLike, shares: ArrayLike, weights: ArrayLike | None = None) -> Array:
    """Return the quantiles of each column of a table.

    Parameters
    ----------
    values
        Table, (rows, columns).
    shares
        Fractions from 0 to 1.
    weights
        How often each row counts. A quantile is then the first value at which the cumulative weight reaches
        its fraction; without weights, values between rows are interpolated.

    Returns
    -------
    ndarray
        Quantiles, (fractions, columns).
    """
    table = np.asarray(values, np.float64)
    fractions = np.atleast_1d(np.asarray(shares, np.float64))
    if weights is None:
        return np.asarray(np.quantile(table, fractions, axis=0))

    order = np.argsort(table, axis=0, kind="stable")
    cumulative = np.cumsum(np.asarray(weights, np.float64)[order], axis=0)
    rows = [np.searchsorted(column / column[-1], fractions * (1 - ROUNDING)) for column in cumulative.T]
    return np.take_along_axis(np.sort(table, axis=0), np.stack(rows, axis=1), axis=0)


def _root(function: Callable[[float], float], outside: float, inside: float) -> float:
    """Return where a function that is positive at `outside` changes its sign on the way to `inside`."""
    for _ in range(BISECTIONS):
        middle = (outside + inside) / 2
        outside, inside = (middle, inside) if function(middle) > 0 else (outside, middle)
    return inside


def _error(values: Array, of: int = 1) -> float:
    """Return the standard error of the mean of (chain, record), widened so that 1.96 errors are Student's t.

    `of` is the number of candidates of which this mean is the best (Bonferroni). NaN without any degree of
    freedom.
    """
    from scipy.special import stdtrit

    chains, count = values.shape
    total, freedom = _sum_of_squares(values)
    if not freedom:
        return math.nan
    return float(stdtrit(freedom, 1 - 0.025 / of)) / NORMAL * math.sqrt(total / freedom / (count * chains))


def _sum_of_squares(values: Array) -> tuple[float, int]:
    """Return a sum of squares that estimates the error of the mean, and its degrees of freedom.

    Each square has the expectation `count` times the variance of a chain's mean, for values (chain, count).
    Squares come from the differences between chain means and, for long series, from the slowest cosine waves
    within each chain.
    """
    from scipy.special import fdtrc

    chains, count = values.shape
    chain_means = values.mean(axis=1)
    between = count * float(((chain_means - chain_means.mean()) ** 2).sum())
    freedom_between = chains - 1
    if count < FEWEST or count < SPANS * autocorrelation_time_of(values):
        return between, freedom_between

    wave_count = max(2, COSINES // chains)  # fewer waves have less bias, and many chains have enough
    midpoints = np.arange(count)[:, None] + 0.5
    waves = np.cos(np.pi * midpoints * np.arange(1, wave_count + 1) / count)
    amplitudes = (values - chain_means[:, None]) @ waves
    within = float((amplitudes**2).sum()) * 2 / count
    freedom_within = chains * wave_count

    # An F test: chains that disagree have not converged, and their own waves understate the error.
    if freedom_between and between:
        ratio = between * freedom_within / (within * freedom_between) if within else math.inf
        if fdtrc(freedom_between, freedom_within, ratio) < DISAGREE:
            return between, freedom_between
    return between + within, freedom_between + freedom_within
