"""What a claim of the paper is, and when it holds: verdicts from numbers with their intervals."""

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


class Finding(NamedTuple):
    """What was measured, in words with its interval, and whether the claim holds."""

    ours: str
    verdict: str


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper that numbers can confirm or refute; `paper` is the value that it gives."""

    text: str
    check: Callable[[xr.Dataset], Finding]
    paper: str = ""


def above(measured: Measured, limit: float = 0.0) -> str:
    """Whether a number is above a limit: it holds in part where the interval does not decide."""
    if math.isnan(measured.value):
        return FAILS
    low, high = (measured.value, measured.value) if math.isnan(measured.low) else measured[1:]
    return HOLDS if low > limit else FAILS if high <= limit else IN_PART


def below(measured: Measured, limit: float) -> str:
    """Whether a number is below a limit."""
    return above(-measured, -limit)


def within(measured: Measured, factor: float) -> str:
    """Whether a ratio is near 1, up to a factor."""
    return none_fails(above(measured, 1 / factor), below(measured, factor))


def all_of(*verdicts: str) -> str:
    """The verdict on several things that are claimed together."""
    if all(verdict == HOLDS for verdict in verdicts):
        return HOLDS
    return FAILS if all(verdict == FAILS for verdict in verdicts) else IN_PART


def none_fails(*verdicts: str) -> str:
    """The verdict on several things none of which may fail."""
    return FAILS if FAILS in verdicts else all_of(*verdicts)


def higher(first: ArrayLike, second: ArrayLike) -> Finding:
    """Whether runs of one method score higher than those of another with the same starts and batches."""
    difference = student(np.asarray(first, float) - np.asarray(second, float))
    both = f"{student(first).percent()} against {student(second).percent()}"
    return Finding(f"{both}; difference {difference.text(100)} points", above(difference))


def agrees(values: ArrayLike, paper: float, single: bool) -> Finding:
    """Whether an accuracy agrees with the paper's: of one run there, or a mean over runs.

    One run agrees if it lies in the range of 95 % of ours, a mean if it is within a point of our interval;
    both hold in part within five points, or if ours is vague: wider than 20 and 12 points.
    """
    x = np.asarray(values, float)
    mean = student(x)
    low, high = np.percentile(x, [2.5, 97.5]) if single else (mean.low - 0.01, mean.high + 0.01)
    text = mean.percent()
    if single:
        text += f", runs from {100 * x.min():.1f} to {100 * x.max():.1f}"
    distance = max(low - paper, paper - high, 0.0) if math.isfinite(low) else abs(mean.value - paper)
    vague = not high - low <= (0.2 if single else 0.12)
    verdict = HOLDS if distance <= 1e-12 and not vague else IN_PART if distance <= 0.05 else FAILS
    return Finding(text, verdict)


def in_range(values: ArrayLike, low: float, high: float) -> Finding:
    """Whether a mean is in the paper's range, up to a point; in part up to five."""
    mean = student(values)
    distance = max(low - mean.value, mean.value - high, 0.0)
    return Finding(mean.percent(), HOLDS if distance <= 0.01 else IN_PART if distance <= 0.05 else FAILS)
