"""Overviews: heat maps of sweeps, scores with their intervals, and the calibration of probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from heatbath._internal.checks import real
from heatbath.plotting.labels import value_name
from heatbath.plotting.style import (
    COLOURS,
    SMALL,
    axes_or_new,
    colour_bar,
    dress,
    key,
    number,
    percent_on,
    symbol,
)
from heatbath.runs.run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def heat_map(values: xr.DataArray | Run, *, ax: Axes | None = None) -> Axes:
    """Values over two axes, each written in its cell: the first dimension upwards, the second to the right.

    `values` is an array with two dimensions and their coordinates, or a sweep over two axes, which stands for
    the mean of its last test accuracy over the repeats. A star is at points where some repeats diverged, and
    a dash where there is no value.
    """
    table, starred = _of_sweep(values) if isinstance(values, Run) else (_checked_table(values), None)
    numbers_in = table.values.astype(float)
    if not np.isfinite(numbers_in).any():
        raise ValueError("there is nothing to draw: no value is finite")
    shares = table.name == "accuracy"
    rows, columns = table.dims
    ax = axes_or_new(ax, height=min(1.1 + 0.32 * len(numbers_in), 6.0))
    image = ax.imshow(numbers_in, origin="lower", cmap="cividis", aspect="auto")
    for (row, column), value in np.ndenumerate(numbers_in):
        text = "–" if not np.isfinite(value) else f"{100 * value:.0f}" if shares else f"{value:.3g}"
        text += "*" if starred is not None and starred[row, column] else ""
        dark = np.isfinite(value) and bool(np.asarray(image.norm(value)) < 0.5)
        ax.text(
            column, row, text, ha="center", va="center", fontsize=SMALL, color="white" if dark else "black"
        )
    ax.set_xticks(range(len(table[columns])), [number(v) for v in table[columns].values.tolist()])
    ax.set_yticks(range(len(table[rows])), [number(v) for v in table[rows].values.tolist()])
    dress(ax, symbol(str(columns)), symbol(str(rows)), box=True)
    note = "\n(* some runs diverged)" if starred is not None and starred.any() else ""
    bar = colour_bar(ax, image, value_name(table) + note)
    if shares:
        percent_on(bar.ax.yaxis)
    return ax


class Score(NamedTuple):
    """A measured value with its interval, and beside it the paper's value, or the two ends of its range."""

    label: str
    value: float
    interval: tuple[float, float]
    paper: float | tuple[float, float] | None = None


def scores(rows: Sequence[Score], name: str, *, percent: bool = False, ax: Axes | None = None) -> Axes:
    """A row for each score: a dot with its interval, and a hollow diamond for the paper's value.

    `name` says what is measured. `percent`: the values are shares, shown as percentages.
    """
    checked = [_checked_score(row) for row in rows]
    if not checked:
        raise ValueError("at least one score is needed, got none")
    ax = axes_or_new(ax, height=0.95 + 0.24 * len(checked))
    places = np.arange(len(checked))
    middle = np.array([row.value for row in checked])
    low, high = np.array([row.interval for row in checked]).T
    ax.hlines(places, low, high, color=COLOURS[0], linewidth=1.6)
    ax.plot(middle, places, "o", color=COLOURS[0], markersize=4.5, label="measured, 95 % interval")
    label: str | None = "paper"
    for place, row in zip(places, checked, strict=True):
        if row.paper is not None:
            ends = np.atleast_1d(row.paper)
            spots = np.full(len(ends), place + 0.28)  # beside the dot, not under it
            ax.plot(ends, spots, color=COLOURS[1], linewidth=0.8)
            hollow: Any = {"markerfacecolor": "white", "markersize": 5}
            ax.plot(ends, spots, "D", color=COLOURS[1], label=label, **hollow)
            label = None
    ax.set_yticks(places, [row.label for row in checked])
    ax.set_ylim(len(checked) - 0.4, -0.6)
    ax.grid(axis="x", linewidth=0.4, alpha=0.5)
    dress(ax, name, "")
    ax.tick_params(axis="y", length=0)
    if percent:
        percent_on(ax.xaxis)
    key(ax)
    return ax


def _of_sweep(run: Run) -> tuple[xr.DataArray, NDArray[np.bool_]]:
    """The mean accuracy at each point of a sweep over two axes, and where some repeats have none."""
    axes = run.plan.axes
    if len(axes) != 2:
        raise ValueError(f"a heat map needs a sweep over two axes, this run has {', '.join(axes) or 'none'}")
    last = run.accuracy().dropna("record", how="all").isel(record=-1)
    table = last.groupby(axes).mean().transpose(*axes)
    lost = last.isnull().groupby(axes).any().transpose(*axes)
    return table.rename("accuracy").assign_coords(split="test"), lost.values


def _checked_table(values: object) -> xr.DataArray:
    if not isinstance(values, xr.DataArray):
        raise TypeError(f"a heat map needs a DataArray, or a sweep; got {type(values).__name__}")
    if values.ndim != 2 or 0 in values.shape or not set(values.dims) <= set(values.coords):
        raise ValueError(f"a heat map needs two dimensions, both with coordinates; got {dict(values.sizes)}")
    return values


def _checked_score(row: Score) -> Score:
    if not isinstance(row, Score):
        raise TypeError(f"scores must be of the kind Score(label, value, interval, paper), got {row!r}")
    real(f"the value of {row.label!r}", row.value)
    low, high = (real(f"an end of the interval of {row.label!r}", end) for end in row.interval)
    if not low <= high:
        raise ValueError(f"the interval of {row.label!r} must go from low to high, got {row.interval}")
    for end in np.atleast_1d(row.paper).tolist() if row.paper is not None else ():
        real(f"the paper's value of {row.label!r}", end)
    return row
