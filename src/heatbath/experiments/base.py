"""What an experiment is: settings, a run on the engine, claims with their verdicts, and a picture."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from heatbath.runs.simulation import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HOLDS, IN_PART, FAILS = "holds", "holds in part", "does not hold"
Tell: TypeAlias = Callable[[Progress], None] | None
Settings: TypeAlias = SimpleNamespace


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


@dataclass(frozen=True)
class Table:
    """A table of the report."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Experiment:
    """One row of the paper's experiments.

    `run` makes a data set from the settings, which is all that the claims, the picture and the tables look
    at. `quick` are the settings that differ in a quick run; `notes` says what was chosen where the paper is
    silent, and why.
    """

    name: str
    title: str
    settings: Mapping[str, Any]
    quick: Mapping[str, Any]
    run: Callable[[Settings, Tell], xr.Dataset]
    draw: Callable[[xr.Dataset, Settings], Figure]
    claims: tuple[Claim, ...] = ()
    tables: Callable[[xr.Dataset], list[Table]] = field(default=lambda data: [])
    notes: str = ""

    def chosen(self, quick: bool) -> dict[str, Any]:
        """The settings of a run."""
        if unknown := set(self.quick) - set(self.settings):
            raise ValueError(f"{self.name}: there is no setting {', '.join(sorted(unknown))}")
        return dict(self.settings) | (dict(self.quick) if quick else {})


# Numbers over runs


class Mean(NamedTuple):
    """A mean over runs with its 95 % confidence interval (Student's t)."""

    value: float
    low: float
    high: float

    def told(self, scale: float = 1.0, digits: int = 1, unit: str = "") -> str:
        """In words: 93.4 % (92.9 to 93.9)."""
        value, low, high = (f"{scale * x:.{digits}f}" for x in self)
        return f"{value}{unit} ({low} to {high})" if math.isfinite(self.low) else f"{value}{unit}"

    def percent(self) -> str:
        """A share in percent."""
        return self.told(100, 1, " %")


def mean(values: ArrayLike, of: int = 1) -> Mean:
    """The mean over runs; with one run there is no interval.

    `of`: how many things this one was chosen from as the best; its interval is as much wider (Bonferroni).
    """
    x = np.asarray(values, float).ravel()
    if len(x) < 2:
        return Mean(float(x.mean()), math.nan, math.nan)
    half = float(stats.t.ppf(1 - 0.025 / of, len(x) - 1) * x.std(ddof=1) / np.sqrt(len(x)))
    return Mean(float(x.mean()), float(x.mean()) - half, float(x.mean()) + half)


def bootstrap(
    statistic: Callable[..., float], *samples: ArrayLike, paired: bool = True, repeats: int = 2000
) -> Mean:
    """A statistic of samples of runs with a 95 % interval of percentiles over resampled runs.

    `paired`: run number i of one sample had the start and the data of number i of the others.
    """
    rng = np.random.default_rng(0)
    arrays = [np.asarray(sample, float) for sample in samples]
    drawn = []
    for _ in range(repeats):
        same = rng.integers(0, len(arrays[0]), len(arrays[0]))
        drawn.append(statistic(*(a[same if paired else rng.integers(0, len(a), len(a))] for a in arrays)))
    known = np.array(drawn)[~np.isnan(drawn)]
    low, high = np.percentile(known, [2.5, 97.5], method="nearest") if len(known) else (math.nan, math.nan)
    return Mean(float(statistic(*arrays)), float(low), float(high))


def above(measured: Mean, limit: float = 0.0) -> str:
    """Whether a number is above a limit: it holds in part where the interval does not decide."""
    if math.isnan(measured.value):
        return FAILS
    low, high = (measured.value, measured.value) if math.isnan(measured.low) else measured[1:]
    return HOLDS if low > limit else FAILS if high <= limit else IN_PART


def below(measured: Mean, limit: float) -> str:
    """Whether a number is below a limit."""
    return above(Mean(-measured.value, -measured.high, -measured.low), -limit)


def within(measured: Mean, factor: float) -> str:
    """Whether a ratio is near 1, up to a factor."""
    verdicts = above(measured, 1 / factor), below(measured, factor)
    return FAILS if FAILS in verdicts else all_of(*verdicts)


def all_of(*verdicts: str) -> str:
    """The verdict on several things that are claimed together."""
    if all(verdict == HOLDS for verdict in verdicts):
        return HOLDS
    return FAILS if all(verdict == FAILS for verdict in verdicts) else IN_PART


def higher(first: ArrayLike, second: ArrayLike) -> Finding:
    """Whether runs of one method score higher than those of another with the same starts and batches."""
    difference = mean(np.asarray(first, float) - np.asarray(second, float))
    told = f"{mean(first).percent()} against {mean(second).percent()}"
    points = difference.told(100, 1)
    return Finding(f"{told}; difference {points} points", above(difference))


def agrees(values: ArrayLike, paper: float, single: bool) -> Finding:
    """Whether an accuracy agrees with the paper's: of one run there, or a mean over runs.

    One run agrees if it lies in the range of 95 % of ours, a mean if it is within a point of our interval;
    both hold in part within five points, or if ours is vague: wider than 20 and 12 points.
    """
    x = np.asarray(values, float)
    found = mean(x)
    low, high = np.percentile(x, [2.5, 97.5]) if single else (found.low - 0.01, found.high + 0.01)
    told = found.percent()
    if single:
        told += f", runs from {100 * x.min():.1f} to {100 * x.max():.1f}"
    distance = max(low - paper, paper - high, 0.0) if math.isfinite(low) else abs(found.value - paper)
    vague = not high - low <= (0.2 if single else 0.12)
    verdict = HOLDS if distance <= 1e-12 and not vague else IN_PART if distance <= 0.05 else FAILS
    return Finding(told, verdict)


def in_range(values: ArrayLike, low: float, high: float) -> Finding:
    """Whether a mean is in the paper's range, up to a point; in part up to five."""
    found = mean(values)
    distance = max(low - found.value, found.value - high, 0.0)
    return Finding(found.percent(), HOLDS if distance <= 0.01 else IN_PART if distance <= 0.05 else FAILS)


Array: TypeAlias = NDArray[np.float64]
