"""Convergence statistics of Markov chains: R-hat, effective sample size, autocorrelation time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def autocorrelation_time(trace: ArrayLike) -> float:
    """The integrated autocorrelation time 1 + 2 Σ ρ_k of a trace, (chain, record) or one series, in records.

    Autocovariances about each chain's own mean, averaged over chains, and summed as long as those of
    neighbouring lags are positive and fall (Geyer, 1992). 1 for a constant. A series shorter than the
    correlation cannot show it: the result is then at most a fraction of its length.
    """
    return autocorrelation_time_of(checked_trace(trace))


def rhat(trace: ArrayLike) -> float:
    """R-hat of a trace, (chain, record) or one series: 1 where the chains, and the halves of each, agree.

    Split and rank-normalised (Vehtari and others, 2021): the larger of that of the values, which tells
    different means, and that of their distances from the median, which tells different spreads. NaN for a
    constant, infinite for chains that stand still at different places.
    """

    return float(_ratios(_halves(trace)[None])[0])


def ess(trace: ArrayLike) -> float:
    """The effective size of a trace, (chain, record) or one series, for its mean (bulk ESS).

    How many independent values would tell as much, by the autocorrelations of the rank-normalised halves of
    the chains (Vehtari and others, 2021); chains that disagree count for little. NaN for a constant.
    """
    return float(_sizes(_halves(trace)[None])[0])


def rhat_and_ess(traces: Array) -> tuple[Array, Array]:
    """Those of many traces at once, (trace, chain, record): as `rhat` and `ess` have them, bit for bit."""
    halves = _split_chains(checked_trace(traces.reshape(-1, traces.shape[-1])).reshape(traces.shape))
    return _ratios(halves), _sizes(halves)


def _ratios(halves: Array) -> Array:
    """R-hat of each (half, record)."""
    folded = np.abs(halves - np.median(halves, axis=(1, 2), keepdims=True))
    ratios = []
    for scores in (_scores(halves), _scores(folded)):
        count = scores.shape[2]
        within = scores.var(axis=2, ddof=1).mean(axis=1)
        between = scores.mean(axis=2).var(axis=1, ddof=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios.append(np.sqrt((count - 1) / count + between / within))
    return np.asarray(np.fmax(*ratios))


def _sizes(halves: Array) -> Array:
    """The effective size of each (half, record)."""
    scores = _scores(halves)
    count, size = scores.shape[2], scores[0].size
    covariance = _autocovariance(scores)
    within = covariance[:, :1] * count / (count - 1)
    total = covariance[:, :1] + scores.mean(axis=2).var(axis=1, ddof=1)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        correlation = 1 - (within - covariance) / total
    correlation[:, 0] = 1.0
    varies = np.ptp(scores, axis=(1, 2)) > 0
    fewest = 1 / math.log10(size)
    return np.array(
        [
            size / max(_geyer(one), fewest) if some else math.nan
            for one, some in zip(correlation, varies, strict=True)
        ]
    )


def checked_trace(trace: ArrayLike) -> Array:
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


def autocorrelation_time_of(values: Array) -> float:
    """Return the integrated autocorrelation time of a checked trace, (chain, record), in records."""
    if not np.ptp(values, axis=1).any():
        return 1.0
    return float(max(_geyer(_autocovariance(values)), 1.0 / values.shape[1]))


def _autocovariance(values: Array) -> Array:
    """Of (..., chain, record) at every lag, about each chain's own mean; the mean over chains."""
    count = values.shape[-1]
    spectrum = np.abs(np.fft.rfft(values - values.mean(axis=-1, keepdims=True), 2 * count)) ** 2
    return np.asarray(np.fft.irfft(spectrum.mean(axis=-2))[..., :count] / count)


def _geyer(covariance: Array) -> float:
    """1 + 2 Σ ρ_k, as long as the sums of neighbouring lags are positive and fall."""
    pairs = covariance[: len(covariance) // 2 * 2].reshape(-1, 2).sum(axis=1) / covariance[0]
    positive = pairs[: int(np.argmax(pairs <= 0)) if (pairs <= 0).any() else len(pairs)]
    return 2.0 * float(np.minimum.accumulate(positive).sum()) - 1.0


def _scores(values: Array) -> Array:
    """The normal numbers of the same ranks, of each of several arrays; equal values have their mean rank."""
    from scipy.special import ndtri

    rows = values.reshape(len(values), -1)
    order = rows.argsort(axis=1)
    ordered = np.take_along_axis(rows, order, axis=1)
    place, size = np.arange(rows.shape[1]), rows.shape[1]
    begins = np.ones(rows.shape, np.bool_)
    begins[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    ends = np.ones(rows.shape, np.bool_)
    ends[:, :-1] = begins[:, 1:]
    first = np.maximum.accumulate(np.where(begins, place, 0), axis=1)
    last = np.minimum.accumulate(np.where(ends, place, size)[:, ::-1], axis=1)[:, ::-1]
    ranks = np.empty(rows.shape)
    np.put_along_axis(ranks, order, (first + last) / 2 + 1, axis=1)
    return np.asarray(ndtri((ranks - 3 / 8) / (size + 1 / 4))).reshape(values.shape)


def _halves(trace: ArrayLike) -> Array:
    """The halves of every chain as chains of their own."""
    return _split_chains(checked_trace(trace))


def _split_chains(values: Array) -> Array:
    """Return the halves of chains, (..., chain, record), as chains, (..., half, record)."""
    half = values.shape[-1] // 2
    if half < 2:
        raise ValueError(f"R-hat and ESS need at least 4 records of each chain, got {values.shape[-1]}")
    return np.concatenate([values[..., :half], values[..., -half:]], axis=-2)
