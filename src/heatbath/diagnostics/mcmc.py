"""Convergence statistics of Markov chains: R-hat, effective sample size, autocorrelation time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def autocorrelation_time(trace: ArrayLike) -> float:
    """Return the integrated autocorrelation time 1 + 2 Σ ρ_k of a trace, in records.

    Autocovariances are taken about each chain's mean, averaged over chains and summed while the sums of
    neighbouring lags are positive and fall (Geyer, 1992). A series shorter than its correlation time can't
    show it: the result is then at most a fraction of the length.

    Parameters
    ----------
    trace
        Values, (chain, record), or one series, (record,).

    Returns
    -------
    float
        The time; 1 for a constant.
    """
    return autocorrelation_time_of(checked_trace(trace))


def rhat(trace: ArrayLike) -> float:
    """Return R-hat of a trace: 1 if the chains, and the halves of each chain, agree.

    Split and rank-normalised (Vehtari and others, 2021): the larger of R-hat of the values, which detects
    different means, and R-hat of their distances from the median, which detects different spreads.

    Parameters
    ----------
    trace
        Values, (chain, record), or one series, (record,), with at least 4 records.

    Returns
    -------
    float
        R-hat; NaN for a constant, infinite for chains that are constant at different values.
    """
    return float(_ratios(_halves(trace)[None])[0])


def ess(trace: ArrayLike) -> float:
    """Return the effective sample size of a trace for its mean (bulk ESS).

    The number of independent values with the same information, from the autocorrelations of the
    rank-normalised halves of the chains (Vehtari and others, 2021). Chains that disagree reduce it.

    Parameters
    ----------
    trace
        Values, (chain, record), or one series, (record,), with at least 4 records.

    Returns
    -------
    float
        The size; NaN for a constant.
    """
    return float(_sizes(_halves(trace)[None])[0])


def rhat_and_ess(traces: Array) -> tuple[Array, Array]:
    """Return `rhat` and `ess` of each of many traces, (trace, chain, record), at once."""
    halves = _split_chains(checked_trace(traces.reshape(-1, traces.shape[-1])).reshape(traces.shape))
    return _ratios(halves), _sizes(halves)


def _ratios(halves: Array) -> Array:
    """Return R-hat of each trace of (trace, half chain, record).

    It is the larger of that of the values and that of their distances from the trace's median.
    """
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
    """Return the effective sample size of each trace of (trace, half chain, record); NaN for a constant.

    The correlation 1 - (W - C)/V at each lag has the autocovariance C, the variance W within chains and the
    total variance V (Vehtari and others, 2021).
    """
    scores = _scores(halves)
    count = scores.shape[2]
    size = scores[0].size
    covariance = _autocovariance(scores)
    within = covariance[:, :1] * count / (count - 1)
    total = covariance[:, :1] + scores.mean(axis=2).var(axis=1, ddof=1)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        correlation = 1 - (within - covariance) / total
    correlation[:, 0] = 1.0
    varies = np.ptp(scores, axis=(1, 2)) > 0
    shortest = 1 / math.log10(size)  # anticorrelated chains: at most size log10(size) effective values
    times = [max(_geyer(lags), shortest) for lags in correlation]
    return np.where(varies, size / np.array(times), math.nan)


def checked_trace(trace: ArrayLike) -> Array:
    """Return a trace as an array (chain, record) of finite float64 numbers; one series becomes one chain.

    Raises
    ------
    ValueError
        If it isn't a non-empty array of finite numbers with one or two axes.
    """
    values: NDArray[Any] = np.asarray(trace)
    if values.dtype.kind not in "biuf" or values.ndim not in (1, 2) or not values.size:
        raise ValueError(
            "a trace must be an array of numbers, (chain, record) or (record,), and not empty; "
            f"got one of {values.dtype} with shape {values.shape}"
        )
    values = np.atleast_2d(values).astype(np.float64)
    lost_count = np.count_nonzero(~np.isfinite(values))
    if lost_count:
        raise ValueError(
            f"a trace must be finite, got {lost_count} values that are not: leave out the chains that "
            "diverged and the records without a value"
        )
    return values


def autocorrelation_time_of(values: Array) -> float:
    """Return the integrated autocorrelation time of a checked trace, (chain, record), in records."""
    if not np.ptp(values, axis=1).any():
        return 1.0
    return float(max(_geyer(_autocovariance(values)), 1.0 / values.shape[1]))


def _autocovariance(values: Array) -> Array:
    """Return the autocovariance of (..., chain, record) at every lag, (..., lag), averaged over chains."""
    count = values.shape[-1]
    spectrum = np.abs(np.fft.rfft(values - values.mean(axis=-1, keepdims=True), 2 * count)) ** 2
    return np.asarray(np.fft.irfft(spectrum.mean(axis=-2))[..., :count] / count)


def _geyer(covariance: Array) -> float:
    """Return 1 + 2 Σ ρ_k, summed while the sums of neighbouring lags are positive and fall (Geyer, 1992)."""
    pair_sums = covariance[: len(covariance) // 2 * 2].reshape(-1, 2).sum(axis=1) / covariance[0]
    is_noise = pair_sums <= 0
    positive = pair_sums[: int(np.argmax(is_noise))] if is_noise.any() else pair_sums
    return 2.0 * float(np.minimum.accumulate(positive).sum()) - 1.0


def _scores(values: Array) -> Array:
    """Return the normal scores of the values of each trace, from their ranks within (trace, chain, record).

    The score of rank r among n is Φ⁻¹((r - 3/8) / (n + 1/4)); equal values share their mean rank.
    """
    from scipy.special import ndtri

    rows = values.reshape(len(values), -1)
    order = rows.argsort(axis=1)
    ordered = np.take_along_axis(rows, order, axis=1)
    size = rows.shape[1]
    position = np.arange(size)

    # A tie is a run of equal values from `first` to `last` in order.
    starts_tie = np.ones(rows.shape, np.bool_)
    starts_tie[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    ends_tie = np.ones(rows.shape, np.bool_)
    ends_tie[:, :-1] = starts_tie[:, 1:]
    first = np.maximum.accumulate(np.where(starts_tie, position, 0), axis=1)
    last = np.minimum.accumulate(np.where(ends_tie, position, size)[:, ::-1], axis=1)[:, ::-1]

    ranks = np.empty(rows.shape)
    np.put_along_axis(ranks, order, (first + last) / 2 + 1, axis=1)
    return np.asarray(ndtri((ranks - 3 / 8) / (size + 1 / 4))).reshape(values.shape)


def _halves(trace: ArrayLike) -> Array:
    """Return the halves of every chain of a trace as separate chains, (half, record)."""
    return _split_chains(checked_trace(trace))


def _split_chains(values: Array) -> Array:
    """Return the halves of chains, (..., chain, record), as chains, (..., half, record)."""
    half = values.shape[-1] // 2
    if half < 2:
        raise ValueError(f"R-hat and ESS need at least 4 records of each chain, got {values.shape[-1]}")
    return np.concatenate([values[..., :half], values[..., -half:]], axis=-2)
