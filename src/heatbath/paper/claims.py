"""Define claims of the paper, and judge them by measured numbers and their intervals."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from heatbath.diagnostics.statistics import Measured, student

HOLDS, IN_PART, FAILS = "holds", "holds in part", "does not hold"
MEAN_TOLERANCE = 0.01  # a mean within a point of the paper's value agrees with it
PARTIAL_TOLERANCE = 0.05  # within five points it agrees in part
MAX_RUN_RANGE = 0.2  # a wider range of runs decides nothing
MAX_MEAN_INTERVAL = 0.12  # nor does a wider interval of a mean
ROUNDING = 1e-12  # of accuracies


class Finding(NamedTuple):
    """A measured result as text, with its interval, and the verdict on the claim."""

    ours: str
    verdict: str


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper that numbers can confirm or refute; `paper` is the value in the paper."""

    text: str
    check: Callable[[xr.Dataset], Finding]
    paper: str = ""


def judge_above(measured: Measured, limit: float = 0.0) -> str:
    """Return the verdict that a number is above a limit; in part if its interval contains the limit."""
    if math.isnan(measured.value):
        return FAILS
    has_interval = not math.isnan(measured.low)
    low = measured.low if has_interval else measured.value
    high = measured.high if has_interval else measured.value
    if low > limit:
        return HOLDS
    return FAILS if high <= limit else IN_PART


def judge_below(measured: Measured, limit: float) -> str:
    """Return the verdict that a number is below a limit."""
    return judge_above(-measured, -limit)


def judge_within(measured: Measured, factor: float) -> str:
    """Return the verdict that a ratio lies between 1/factor and factor."""
    return combine_strictly(judge_above(measured, 1 / factor), judge_below(measured, factor))


def judge_near(measured: Measured, factor: float, partial_factor: float) -> str:
    """Return the verdict that a ratio is 1 up to a factor; in part, up to a larger factor."""
    verdict = judge_within(measured, factor)
    if verdict == FAILS and judge_within(measured, partial_factor) != FAILS:
        return IN_PART
    return verdict


def combine_verdicts(*verdicts: str) -> str:
    """Return the verdict on a claim with several parts: in part if some of them hold."""
    if all(verdict == HOLDS for verdict in verdicts):
        return HOLDS
    if all(verdict == FAILS for verdict in verdicts):
        return FAILS
    return IN_PART


def combine_strictly(*verdicts: str) -> str:
    """Return the verdict on a claim with several parts: it fails if one of them fails."""
    return FAILS if FAILS in verdicts else combine_verdicts(*verdicts)


def compare_runs(first: ArrayLike, second: ArrayLike) -> Finding:
    """Judge whether runs of one method score higher than runs of another with the same starts and batches.

    Parameters
    ----------
    first, second : array (run,)
        Accuracies of the two methods.
    """
    difference = student(np.asarray(first, float) - np.asarray(second, float))
    both = f"{student(first).percent()} against {student(second).percent()}"
    return Finding(f"{both}; difference {difference.text(100)} points", judge_above(difference))


def compare_with_paper(values: ArrayLike, paper: float, single: bool) -> Finding:
    """Judge whether accuracies agree with the paper's value.

    A single run of the paper agrees if it lies in the range of 95 % of our runs; a mean agrees if it is
    within a point of our interval. Both agree in part within five points, or if our range is wider than 20
    points, or our interval wider than 12.

    Parameters
    ----------
    values : array (run,)
        Accuracies of our runs.
    paper : float
        Accuracy in the paper.
    single : bool
        True if the paper's value is of a single run, False if it is a mean.

    Returns
    -------
    Finding
        Our mean with its interval as text, for a single run also the range of our runs; and the verdict.
    """
    accuracies = np.asarray(values, float)
    mean = student(accuracies)
    text = mean.percent()
    if single:
        low, high = np.percentile(accuracies, [2.5, 97.5])
        max_width = MAX_RUN_RANGE
        text += f", runs from {100 * accuracies.min():.1f} to {100 * accuracies.max():.1f}"
    else:
        low = mean.low - MEAN_TOLERANCE
        high = mean.high + MEAN_TOLERANCE
        max_width = MAX_MEAN_INTERVAL

    has_interval = math.isfinite(low)
    distance = max(low - paper, paper - high, 0.0) if has_interval else abs(mean.value - paper)
    is_decisive = high - low <= max_width  # False for NaN
    verdict = judge_distance(distance, ROUNDING)
    if verdict == HOLDS and not is_decisive:
        verdict = IN_PART
    return Finding(text, verdict)


def compare_with_range(values: ArrayLike, low: float, high: float) -> Finding:
    """Judge whether the mean of runs is in the paper's range, up to a point; up to five points in part."""
    mean = student(values)
    distance = max(low - mean.value, mean.value - high, 0.0)
    return Finding(mean.percent(), judge_distance(distance, MEAN_TOLERANCE))


def judge_distance(distance: float, tolerance: float, partial: float = PARTIAL_TOLERANCE) -> str:
    """Return the verdict that a distance to the paper is within a tolerance; in part, within a larger one."""
    if distance <= tolerance:
        return HOLDS
    return IN_PART if distance <= partial else FAILS
