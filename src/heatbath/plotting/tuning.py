"""Pictures of a search for coefficients: all that was tried, where, and which coefficients matter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from heatbath.methods.ranges import Between
from heatbath.plotting.style import (
    COLOURS,
    axes_or_new,
    colour_bar,
    dress,
    key,
    look,
    percent_on,
    powers_on,
    symbol,
)
from heatbath.tuning.trials import Trial, Trials

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHADES = "cividis"
BEST: dict[str, Any] = {"marker": "*", "s": 110, "c": COLOURS[1], "edgecolors": "white", "linewidths": 0.6}
LOST: dict[str, Any] = {"marker": "x", "s": 14, "c": "0.6", "linewidths": 0.9}
NINES = (0.5, 0.9, 0.99, 0.999, 0.9999)
FEW = 5  # steps from number to number on a linear axis, at most
SPAN = 5.0  # from end to end, as a factor: below, a logarithmic axis may have a single round number
WORST = 0.02  # the share of the losses, at the upper end, that are not told apart


def search(tuned: Trials, *, ax: Axes | None = None) -> Axes:
    """The score of every candidate, in a row for each method, the darker the further it came.

    The scores are on validation examples, at the last rung of a candidate. A star is the best of a method.
    Those that diverged are counted beside its name, or that none came to the end is said. The worst 2 % of
    losses may lie outside the picture.
    """
    _check(tuned)
    steps = sorted({trial.steps for trial in tuned.trials if trial.steps})
    ax = axes_or_new(ax, height=1.15 + 0.42 * len(tuned.families))
    labels = []
    for row, family in enumerate(tuned.families):
        own = [trial for trial in tuned.trials if trial.candidate.family is family]
        lost = sum(trial.diverged for trial in own)
        note = f"{lost} diverged" if family.name in tuned.best else "none at the end"
        labels.append(f"{family.name}\n({note})" if lost or family.name not in tuned.best else family.name)
        for place, count in enumerate(steps):
            here = [trial for trial in own if trial.steps == count and _was_judged(trial)]
            scores = [_score(tuned, trial) for trial in here]
            heights = row + 0.6 * (_spread(len(here)) - 0.5)
            ax.scatter(scores, heights, s=9, color=_shade(place, len(steps)), linewidths=0, zorder=2 + place)
        if family.name in tuned.best:
            ax.scatter([_score(tuned, tuned.best[family.name])], [row], zorder=9, **BEST)
    for place, count in enumerate(steps):
        ax.scatter([], [], s=16, color=_shade(place, len(steps)), label=f"{count:,} steps")
    ax.scatter([], [], label="best", **BEST)
    ax.set_yticks(range(len(labels)), labels)
    ax.set_ylim(len(labels) - 0.5, -0.5)
    ax.grid(axis="x", linewidth=0.4, alpha=0.5)
    ax.set_axisbelow(True)
    dress(ax, f"validation {tuned.by}", "")
    ax.tick_params(axis="y", length=0)
    if _logarithmic(tuned, alive := [trial for trial in tuned.trials if _was_judged(trial)]):
        ax.set_xscale("log")
        ax.set_xlim(right=1.1 * _largest(alive))
        powers_on(ax.xaxis)
    else:
        ax.locator_params(axis="x", nbins=FEW)
    if tuned.by == "accuracy":
        percent_on(ax.xaxis)
    key(ax)
    return ax


def search_map(tuned: Trials, method: str | None = None, *, ax: Axes | None = None) -> Axes:
    """Where the candidates of a method lie in the two coefficients that matter most, coloured by their score.

    The best method unless one is named. A star is the best, crosses are those that diverged.
    """
    from matplotlib.colors import LogNorm

    _check(tuned)
    name = tuned.winner if method is None else method
    family = next((family for family in tuned.families if family.name == name), None)
    if family is None:
        names = ", ".join(repr(family.name) for family in tuned.families)
        raise ValueError(f"there is no method {name!r} in this search; accepted: {names}")
    if len(family.ranges) < 2:
        raise ValueError(f"a map needs two coefficients that were searched, {name} has {len(family.ranges)}")
    x, y = list(tuned.importance.get(name, family.ranges))[:2]
    own = [trial for trial in tuned.trials if trial.candidate.family is family]
    alive, lost = [t for t in own if _was_judged(t)], [t for t in own if t.diverged]
    ax = axes_or_new(ax)
    ax.scatter(*_places(lost, x, y), label="diverged" if lost else None, zorder=2, **LOST)
    scores = np.array([_score(tuned, trial) for trial in alive])
    shades = ax.scatter(
        *_places(alive, x, y),
        s=[6 + 5 * trial.rung for trial in alive],
        c=scores,
        norm=LogNorm(vmax=_largest(alive)) if _logarithmic(tuned, alive) else None,
        cmap=SHADES if tuned.by == "accuracy" else f"{SHADES}_r",
        linewidths=0,
        zorder=3,
    )
    if name in tuned.best:
        ax.scatter(*_places([tuned.best[name]], x, y), label="best", zorder=4, **BEST)
    _scale(ax, "x", family.ranges[x])
    _scale(ax, "y", family.ranges[y])
    dress(ax, symbol(x), symbol(y))
    if alive:
        bar = colour_bar(ax, shades, f"validation {tuned.by}")
        if tuned.by == "accuracy":
            percent_on(bar.ax.yaxis)
        elif _logarithmic(tuned, alive):
            powers_on(bar.ax.yaxis)
    key(ax)
    return ax


def importance(tuned: Trials, *, ax: Axes | None = None) -> Axes:
    """How much each coefficient decides of the order of its method's candidates: shares of 1."""
    _check(tuned)
    shares = {name: coefficients for name, coefficients in tuned.importance.items() if coefficients}
    if not shares:
        raise ValueError("no method of this search has eight candidates: nothing can be said to matter")
    ax = axes_or_new(ax, height=0.85 + 0.17 * sum(len(some) + 1 for some in shares.values()))
    names: dict[int, str] = {}
    row = 0
    for place, (method, coefficients) in enumerate(shares.items()):
        rows = range(row, row + len(coefficients))
        ax.barh(rows, list(coefficients.values()), height=0.75, color=look(place)["color"], label=method)
        names |= dict(zip(rows, map(symbol, coefficients), strict=True))
        row += len(coefficients) + 1
    ax.set_yticks(list(names), list(names.values()))
    ax.set_ylim(row - 1.4, -0.6)
    ax.set_xlim(left=0)
    dress(ax, "importance", "")
    percent_on(ax.xaxis)
    ax.tick_params(axis="y", length=0)
    key(ax)
    return ax


def _check(tuned: object) -> None:
    if not isinstance(tuned, Trials):
        raise TypeError(f"a search is needed, as tune gives it; got {type(tuned).__name__}")


def _score(tuned: Trials, trial: Trial) -> float:
    return trial.accuracy if tuned.by == "accuracy" else trial.loss


def _spread(count: int) -> Any:
    """Numbers from 0 to 1, no two neighbours alike, so that dots do not hide one another."""
    return (0.5 + 0.618033988749895 * np.arange(count)) % 1.0


def _shade(place: int, count: int) -> str:
    """Light for those that were dropped early, dark for those that came to the end."""
    return str(round(0.78 * (1 - place / max(count - 1, 1)), 3))


def _was_judged(trial: Trial) -> bool:
    """Whether it has a score."""
    return trial.known and not trial.diverged


def _logarithmic(tuned: Trials, trials: list[Trial]) -> bool:
    """Whether scores belong on a logarithmic axis: losses do, but those of counts may be negative."""
    return tuned.by == "loss" and all(trial.loss > 0 for trial in trials)


def _largest(trials: list[Trial]) -> float:
    """The largest loss that is told from larger ones."""
    return float(np.quantile([trial.loss for trial in trials], 1 - WORST))


def _places(trials: list[Trial], x: str, y: str) -> tuple[list[float], list[float]]:
    values = [trial.candidate.values for trial in trials]
    return [value[x] for value in values], [value[y] for value in values]


def _scale(ax: Axes, name: Literal["x", "y"], searched: Between) -> None:
    """The x or y axis over a range, on its scale, with a few round numbers.

    A range that is too narrow to have these on its scale is on a linear one.
    """
    from matplotlib.ticker import FixedLocator

    axis = ax.xaxis if name == "x" else ax.yaxis
    ends = np.array(searched.range())
    nines = [tick for tick in NINES if ends[0] <= tick <= ends[1]]
    if searched.scale == "complement" and len(nines) > 1:  # logarithmic for 1 - x, from right to left
        getattr(ax, f"set_{name}scale")("function", functions=(_nines, _shares))
        axis.set_major_locator(FixedLocator(nines))
        axis.set_major_formatter(lambda value, _: f"{value:g}")
        getattr(ax, f"set_{name}lim")(*_shares(_wider(_nines(ends))))
    elif searched.scale == "log" and ends[1] / ends[0] >= SPAN:
        getattr(ax, f"set_{name}scale")("log")
        getattr(ax, f"set_{name}lim")(*np.exp(_wider(np.log(ends))))
        powers_on(axis)
    else:
        getattr(ax, f"set_{name}lim")(*_wider(ends))
        ax.ticklabel_format(axis=name, useOffset=False)
        ax.locator_params(axis=name, nbins=3 if name == "x" else FEW)  # where long numbers are side by side


def _wider(ends: Any) -> Any:
    """The ends of a range with a margin."""
    return ends + 0.05 * (ends[1] - ends[0]) * np.array([-1.0, 1.0])


def _nines(share: Any) -> Any:
    return -np.log10(np.maximum(1.0 - np.asarray(share), 1e-12))


def _shares(nines: Any) -> Any:
    return 1.0 - 10.0 ** -np.asarray(nines)
