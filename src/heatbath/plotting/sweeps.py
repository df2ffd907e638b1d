"""Draw overviews: heat maps of sweeps, and scores with their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from heatbath._internal.checks import real
from heatbath.plotting import style
from heatbath.plotting.labels import value_name
from heatbath.plotting.style import Axes
from heatbath.runs.run import Run

MAX_MAP_HEIGHT = 6.0  # inches, of a figure
PAPER_OFFSET = 0.28  # of a row's height, of the paper's value below the measured one, which would hide it
DIAMOND: dict[str, Any] = {
    "color": style.COLOURS[1], "markerfacecolor": "white", "markersize": 5
}  # fmt: skip


def heat_map(values: xr.DataArray | Run, *, ax: Axes | None = None) -> Axes:
    """Draw values over two axes as coloured cells with numbers.

    The first dimension goes upwards, the second one to the right. A star marks points where some repeats have
    diverged, and a dash points without a value.

    Parameters
    ----------
    values : DataArray or Run
        An array with two dimensions and their coordinates, or a sweep over two axes, for which the mean test
        accuracy at the last record over the repeats is drawn.
    ax : Axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    Axes
    """
    if isinstance(values, Run):
        table, has_diverged = _sweep_table(values)
    else:
        table = _checked_table(values)
        has_diverged = np.zeros(table.shape, bool)
    cells = table.values.astype(float)
    if not np.isfinite(cells).any():
        raise ValueError("there is nothing to draw: no value is finite")
    is_accuracy = table.name == "accuracy"

    ax = style.axes_or_new(ax, height=min(1.1 + 0.32 * len(cells), MAX_MAP_HEIGHT))
    image = ax.imshow(cells, origin="lower", cmap="cividis", aspect="auto")
    for (row, column), value in np.ndenumerate(cells):
        text = _cell_text(value, is_accuracy, bool(has_diverged[row, column]))
        is_dark = np.isfinite(value) and bool(np.asarray(image.norm(value)) < 0.5)
        colour = "white" if is_dark else "black"
        ax.text(column, row, text, ha="center", va="center", fontsize=style.SMALL_SIZE, color=colour)

    y_name, x_name = map(str, table.dims)
    ax.set_xticks(range(table.sizes[x_name]), _tick_labels(table[x_name]))
    ax.set_yticks(range(table.sizes[y_name]), _tick_labels(table[y_name]))
    style.label_axes(ax, style.quantity_label(x_name), style.quantity_label(y_name), box=True)
    bar_label = value_name(table)
    if has_diverged.any():
        bar_label += "\n(* some runs diverged)"
    bar = style.add_colour_bar(ax, image, bar_label)
    if is_accuracy:
        style.format_percent(bar.ax.yaxis)
    return ax


def _cell_text(value: float, is_accuracy: bool, has_diverged: bool) -> str:
    """Return the text of a cell: accuracies in percent, a dash if not finite, a star after divergence."""
    if not np.isfinite(value):
        text = "–"
    elif is_accuracy:
        text = f"{100 * value:.0f}"
    else:
        text = f"{value:.3g}"
    return f"{text}*" if has_diverged else text


def _tick_labels(coordinate: xr.DataArray) -> list[str]:
    """Return the values of a coordinate as labels."""
    return [style.format_number(value) for value in coordinate.values.tolist()]


class Score(NamedTuple):
    """A measured value with its interval, beside the paper's value or the two ends of the paper's range."""

    label: str
    value: float
    interval: tuple[float, float]
    paper: float | tuple[float, float] | None = None


def scores(rows: Sequence[Score], name: str, *, percent: bool = False, ax: Axes | None = None) -> Axes:
    """Draw scores in rows: a dot with its interval, and a hollow diamond for the paper's value.

    Parameters
    ----------
    rows : sequence of Score
        The scores, from top to bottom.
    name : str
        Label of the measure.
    percent : bool, optional
        Show values, which are fractions, as percentages (default False).
    ax : Axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    Axes

    Examples
    --------
    >>> import heatbath as hb
    >>> ax = hb.plotting.scores([hb.plotting.Score("Adam", 0.84, (0.8, 0.88), 0.837)], "test accuracy")
    >>> ax.get_xlabel()
    'test accuracy'
    """
    checked = [_checked_score(row) for row in rows]
    if not checked:
        raise ValueError("at least one score is needed, got none")
    positions = np.arange(len(checked))
    values = np.array([score.value for score in checked])
    low, high = np.array([score.interval for score in checked]).T

    ax = style.axes_or_new(ax, height=0.95 + 0.24 * len(checked))
    ax.hlines(positions, low, high, color=style.COLOURS[0], linewidth=1.6)
    ax.plot(values, positions, "o", color=style.COLOURS[0], markersize=4.5, label="measured, 95 % interval")
    _draw_paper_values(ax, checked)

    style.label_rows(ax, [score.label for score in checked])
    style.label_axes(ax, name, "")
    if percent:
        style.format_percent(ax.xaxis)
    style.add_legend(ax)
    return ax


def _draw_paper_values(ax: Axes, rows: Sequence[Score]) -> None:
    """Draw the paper's values, where there are any, as diamonds below the dots; a range has two, joined."""
    legend_label: str | None = "paper"
    for position, score in enumerate(rows):
        if score.paper is None:
            continue
        ends = np.atleast_1d(score.paper)
        heights = np.full(len(ends), position + PAPER_OFFSET)
        ax.plot(ends, heights, color=style.COLOURS[1], linewidth=0.8)
        ax.plot(ends, heights, "D", label=legend_label, **DIAMOND)
        legend_label = None  # the first diamond has it


def _sweep_table(run: Run) -> tuple[xr.DataArray, NDArray[np.bool_]]:
    """Return the mean test accuracy at each point of a sweep over two axes, and where repeats diverged.

    Both are arrays over the two axes; the accuracy is that of the last record that has any value.
    """
    axes = run.plan.axes
    if len(axes) != 2:
        axis_names = ", ".join(axes) or "none"
        raise ValueError(f"a heat map needs a sweep over two axes, this run has {axis_names}")
    final_accuracy = run.accuracy().dropna("record", how="all").isel(record=-1)
    means = final_accuracy.groupby(axes).mean().transpose(*axes)
    has_diverged = final_accuracy.isnull().groupby(axes).any().transpose(*axes)
    return means.rename("accuracy").assign_coords(split="test"), has_diverged.values


def _checked_table(values: object) -> xr.DataArray:
    """Return an array after checking that it has two dimensions, none empty and both with coordinates."""
    if not isinstance(values, xr.DataArray):
        raise TypeError(f"a heat map needs a DataArray, or a sweep; got {type(values).__name__}")
    if values.ndim != 2 or 0 in values.shape or not set(values.dims) <= set(values.coords):
        raise ValueError(f"a heat map needs two dimensions, both with coordinates; got {dict(values.sizes)}")
    return values


def _checked_score(row: Score) -> Score:
    """Return a score after checking that its numbers are finite and that its interval isn't reversed."""
    if not isinstance(row, Score):
        raise TypeError(f"scores must be of the kind Score(label, value, interval, paper), got {row!r}")
    real(f"the value of {row.label!r}", row.value)
    low, high = (real(f"an end of the interval of {row.label!r}", end) for end in row.interval)
    if low > high:
        raise ValueError(f"the interval of {row.label!r} must go from low to high, got {row.interval}")
    if row.paper is not None:
        for end in np.atleast_1d(row.paper).tolist():
            real(f"the paper's value of {row.label!r}", end)
    return row
