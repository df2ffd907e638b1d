"""Draw a search for coefficients: all candidates, where they lie, and which coefficients matter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from heatbath.datasets.problem import Floats
from heatbath.methods.ranges import Between
from heatbath.plotting import style
from heatbath.plotting.style import Axes
from heatbath.tuning.search_space import Family
from heatbath.tuning.trials import Trial, Trials

COLOUR_MAP = "cividis"
BEST: dict[str, Any] = {
    "marker": "*",
    "s": 110,
    "c": style.COLOURS[1],
    "edgecolors": "white",
    "linewidths": 0.6,
}
DIVERGED: dict[str, Any] = {"marker": "x", "s": 14, "c": "0.6", "linewidths": 0.9}
NINES = (0.5, 0.9, 0.99, 0.999, 0.9999)  # ticks of an axis that is logarithmic for 1 - x
MAX_TICKS = 5  # numbers on a linear axis
MAX_X_TICKS = 3  # on a linear x axis, where long numbers stand side by side
MIN_LOG_RATIO = 5.0  # of the ends of a logarithmic axis: below, it might have a single round number
WORST = 0.02  # fraction of the losses, at the upper end, that aren't distinguished
ROW_FILL = 0.6  # of the height of a method's row, over which its candidates are spread
LIGHTEST_GREY = 0.78  # of the first rung; 0 is black
GOLDEN_RATIO = 0.618033988749895


def search(tuned: Trials, *, ax: Axes | None = None) -> Axes:
    """Draw the validation score of every candidate, in a row for each method.

    Scores are those at a candidate's last rung; darker dots had more steps. A star is the best of a method.
    Beside the name stands how many candidates diverged, or that none reached the last rung. The worst 2 % of
    the losses may lie outside the picture.

    Parameters
    ----------
    tuned : Trials
        A search, as `tune` returns it.
    ax : Axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    Axes
    """
    _check_trials(tuned)
    rung_steps = sorted({trial.steps for trial in tuned.trials if trial.steps})
    greys = {steps: _grey(rung, len(rung_steps)) for rung, steps in enumerate(rung_steps)}

    ax = style.axes_or_new(ax, height=1.15 + 0.42 * len(tuned.families))
    for row, family in enumerate(tuned.families):
        _draw_candidates(ax, tuned, family, row, greys)
        if family.name in tuned.best:
            best_score = _score(tuned, tuned.best[family.name])
            ax.scatter([best_score], [row], zorder=9, **BEST)

    # Empty: entries of the legend only
    for steps, grey in greys.items():
        ax.scatter([], [], s=16, color=grey, label=f"{steps:,} steps")
    ax.scatter([], [], label="best", **BEST)

    row_labels = [_family_label(tuned, family) for family in tuned.families]
    style.label_rows(ax, row_labels, margin=0.5)
    ax.set_axisbelow(True)
    style.label_axes(ax, f"validation {tuned.by}", "")
    _set_score_axis(ax, tuned)
    style.add_legend(ax)
    return ax


def _draw_candidates(ax: Axes, tuned: Trials, family: Family, row: int, greys: Mapping[int, str]) -> None:
    """Draw the scores of a method's candidates as dots around a row of the picture.

    `greys` are the colours by number of steps; candidates with more steps are drawn above the others.
    """
    scored = _with_score(_trials_of(tuned, family))
    for rung, (steps, grey) in enumerate(greys.items()):
        scores = [_score(tuned, trial) for trial in scored if trial.steps == steps]
        heights = row + ROW_FILL * (_spread_heights(len(scores)) - 0.5)
        ax.scatter(scores, heights, s=9, color=grey, linewidths=0, zorder=2 + rung)


def _set_score_axis(ax: Axes, tuned: Trials) -> None:
    """Set the scale, the upper limit and the numbers of an x axis of validation scores."""
    scored = _with_score(tuned.trials)
    if _is_logarithmic(tuned, scored):
        ax.set_xscale("log")
        ax.set_xlim(right=1.1 * _largest_distinguished(scored))
        style.format_log_axis(ax.xaxis)
    else:
        ax.locator_params(axis="x", nbins=MAX_TICKS)
    if tuned.by == "accuracy":
        style.format_percent(ax.xaxis)


def search_map(tuned: Trials, method: str | None = None, *, ax: Axes | None = None) -> Axes:
    """Draw the candidates of a method over its two most important coefficients, coloured by their score.

    A star is the best candidate; crosses have diverged.

    Parameters
    ----------
    tuned : Trials
        A search, as `tune` returns it.
    method : str, optional
        Name of the method; by default the best one.
    ax : Axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If there is no such method, or fewer than two of its coefficients were searched.
    """
    _check_trials(tuned)
    family = _mapped_family(tuned, method)
    x_name, y_name = list(tuned.importance.get(family.name, family.ranges))[:2]
    trials = _trials_of(tuned, family)
    diverged = [trial for trial in trials if trial.diverged]
    scored = _with_score(trials)

    ax = style.axes_or_new(ax)
    diverged_label = "diverged" if diverged else None
    ax.scatter(*_positions(diverged, x_name, y_name), label=diverged_label, zorder=2, **DIVERGED)
    colours = _score_colours(tuned, scored)
    sizes = [6 + 5 * trial.rung for trial in scored]
    shades = ax.scatter(*_positions(scored, x_name, y_name), s=sizes, linewidths=0, zorder=3, **colours)
    if family.name in tuned.best:
        best_position = _positions([tuned.best[family.name]], x_name, y_name)
        ax.scatter(*best_position, label="best", zorder=4, **BEST)

    _set_search_axis(ax, "x", family.ranges[x_name])
    _set_search_axis(ax, "y", family.ranges[y_name])
    style.label_axes(ax, style.quantity_label(x_name), style.quantity_label(y_name))
    if scored:
        bar = style.add_colour_bar(ax, shades, f"validation {tuned.by}")
        if tuned.by == "accuracy":
            style.format_percent(bar.ax.yaxis)
        elif _is_logarithmic(tuned, scored):
            style.format_log_axis(bar.ax.yaxis)
    style.add_legend(ax)
    return ax


def _score_colours(tuned: Trials, scored: list[Trial]) -> dict[str, Any]:
    """Return the scores of trials and their colours, dark for bad ones, as options of `Axes.scatter`."""
    from matplotlib.colors import LogNorm

    scores = np.array([_score(tuned, trial) for trial in scored])
    norm = LogNorm(vmax=_largest_distinguished(scored)) if _is_logarithmic(tuned, scored) else None
    colour_map = COLOUR_MAP if tuned.by == "accuracy" else f"{COLOUR_MAP}_r"
    return {"c": scores, "norm": norm, "cmap": colour_map}


def _mapped_family(tuned: Trials, method: str | None) -> Family:
    """Return the family of candidates of a method, or of the best one for None, after checking its ranges."""
    name = tuned.winner if method is None else method
    by_name = {family.name: family for family in tuned.families}
    if name not in by_name:
        accepted = ", ".join(map(repr, by_name))
        raise ValueError(f"there is no method {name!r} in this search; accepted: {accepted}")

    searched_count = len(by_name[name].ranges)
    if searched_count < 2:
        raise ValueError(f"a map needs two coefficients that were searched, {name} has {searched_count}")
    return by_name[name]


def importance(tuned: Trials, *, ax: Axes | None = None) -> Axes:
    """Draw how much each coefficient decides the order of its method's candidates, in percent.

    Parameters
    ----------
    tuned : Trials
        A search, as `tune` returns it; some method must have at least eight candidates.
    ax : Axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    Axes
    """
    _check_trials(tuned)
    by_method = {method: shares for method, shares in tuned.importance.items() if shares}
    if not by_method:
        raise ValueError(
            "importance needs a method with at least eight candidates, and this search has none: pass more "
            "candidates to tune"
        )

    row_count = sum(len(shares) + 1 for shares in by_method.values())  # an empty row separates methods
    ax = style.axes_or_new(ax, height=0.85 + 0.17 * row_count)
    first_row = 0
    row_labels: dict[int, str] = {}
    for index, (method, shares) in enumerate(by_method.items()):
        rows = range(first_row, first_row + len(shares))
        colour = style.line_style(index)["color"]
        ax.barh(rows, list(shares.values()), height=0.75, color=colour, label=method)
        row_labels.update(zip(rows, map(style.quantity_label, shares), strict=True))
        first_row += len(shares) + 1

    ax.set_yticks(list(row_labels), list(row_labels.values()))
    ax.set_ylim(row_count - 1.4, -0.6)
    ax.set_xlim(left=0)
    style.label_axes(ax, "importance", "")
    style.format_percent(ax.xaxis)
    ax.tick_params(axis="y", length=0)
    style.add_legend(ax)
    return ax


def _check_trials(tuned: object) -> None:
    """Raise TypeError unless the argument is a search."""
    if not isinstance(tuned, Trials):
        raise TypeError(f"a search is needed, as tune returns it; got {type(tuned).__name__}")


def _trials_of(tuned: Trials, family: Family) -> list[Trial]:
    """Return the trials of one method's candidates."""
    return [trial for trial in tuned.trials if trial.candidate.family is family]


def _family_label(tuned: Trials, family: Family) -> str:
    """Return a method's name, with the number of diverged candidates or a note that none reached the end."""
    if family.name not in tuned.best:
        return f"{family.name}\n(none at the end)"
    diverged_count = sum(trial.diverged for trial in _trials_of(tuned, family))
    if not diverged_count:
        return family.name
    return f"{family.name}\n({diverged_count} diverged)"


def _score(tuned: Trials, trial: Trial) -> float:
    """Return the number by which a search ranks a trial: its validation accuracy or loss."""
    return trial.accuracy if tuned.by == "accuracy" else trial.loss


def _spread_heights(count: int) -> Floats:
    """Return `count` numbers from 0 to 1 without similar neighbours, so that dots don't hide each other."""
    return np.asarray((0.5 + GOLDEN_RATIO * np.arange(count)) % 1.0, np.float64)


def _grey(index: int, count: int) -> str:
    """Return the grey of rung `index` of `count`: light for the first, black for the last."""
    return str(round(LIGHTEST_GREY * (1 - index / max(count - 1, 1)), 3))


def _with_score(trials: Iterable[Trial]) -> list[Trial]:
    """Return the trials that were evaluated and have not diverged."""
    return [trial for trial in trials if trial.known and not trial.diverged]


def _is_logarithmic(tuned: Trials, trials: list[Trial]) -> bool:
    """Return True if scores are positive losses and belong on a logarithmic axis; count losses may be < 0."""
    return tuned.by == "loss" and all(trial.loss > 0 for trial in trials)


def _largest_distinguished(trials: list[Trial]) -> float:
    """Return the loss above which losses aren't distinguished any more."""
    return float(np.quantile([trial.loss for trial in trials], 1 - WORST))


def _positions(trials: list[Trial], x_name: str, y_name: str) -> tuple[list[float], list[float]]:
    """Return the values of two coefficients, each of all trials."""
    x = [trial.candidate.values[x_name] for trial in trials]
    y = [trial.candidate.values[y_name] for trial in trials]
    return x, y


def _set_search_axis(ax: Axes, name: Literal["x", "y"], searched: Between) -> None:
    """Set limits, scale and a few round numbers of the x or y axis for the range of a coefficient.

    A range that is too narrow for round numbers on its own scale gets a linear one.

    Parameters
    ----------
    ax : Axes
        The Axes to change.
    name : "x" or "y"
        The axis to set.
    searched : Between
        Range of the coefficient in the search. Its scale is "linear", "log", or "complement", which is
        logarithmic for 1 - x, as for coefficients near 1.
    """
    from matplotlib.ticker import FixedLocator

    axis = ax.xaxis if name == "x" else ax.yaxis
    set_scale = getattr(ax, f"set_{name}scale")
    set_limits = getattr(ax, f"set_{name}lim")
    ends = np.array(searched.range())
    low, high = ends
    nines = [tick for tick in NINES if low <= tick <= high]

    if searched.scale == "complement" and len(nines) > 1:  # logarithmic for 1 - x, from right to left
        set_scale("function", functions=(_to_nines, _from_nines))
        axis.set_major_locator(FixedLocator(nines))
        axis.set_major_formatter(lambda value, _: f"{value:g}")
        set_limits(*_from_nines(_with_margin(_to_nines(ends))))
        return

    if searched.scale == "log" and high / low >= MIN_LOG_RATIO:
        set_scale("log")
        set_limits(*np.exp(_with_margin(np.log(ends))))
        style.format_log_axis(axis)
        return

    set_limits(*_with_margin(ends))
    ax.ticklabel_format(axis=name, useOffset=False)
    ax.locator_params(axis=name, nbins=MAX_X_TICKS if name == "x" else MAX_TICKS)


def _with_margin(ends: Floats) -> Floats:
    """Return the two ends of a range with a margin of 5 % on both sides."""
    margin = 0.05 * (ends[1] - ends[0])
    return np.asarray(ends + margin * np.array([-1.0, 1.0]))


def _to_nines(values: ArrayLike) -> Floats:
    """Return -log10(1 - x): 1 for 0.9, 2 for 0.99 and so on."""
    return np.asarray(-np.log10(np.maximum(1.0 - np.asarray(values), 1e-12)))


def _from_nines(nines: ArrayLike) -> Floats:
    """Return x for a value of -log10(1 - x)."""
    return np.asarray(1.0 - 10.0 ** -np.asarray(nines))
