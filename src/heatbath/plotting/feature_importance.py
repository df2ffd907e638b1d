"""Draw which columns matter for predictions, and how predictions depend on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from heatbath._internal.checks import whole
from heatbath.datasets.problem import Floats
from heatbath.evaluation import Dependence, Importance
from heatbath.plotting import style
from heatbath.plotting.style import Axes

BARS: dict[str, Any] = {"height": 0.62, "color": style.COLOURS[5], "zorder": 2}
CATEGORY_SPACING = 0.14  # between the outputs of one category; categories are 1 apart
MAX_TICKS = 4  # numbers on the x axis, where labels are wide
MAX_CATEGORY_LENGTH = 12  # characters of a category in its label
MAX_HORIZONTAL_LABELS = 4  # of categories on the x axis; more are vertical
MAX_HORIZONTAL_CHARACTERS = 24  # of all these labels together


def column_importance(
    columns: Sequence[Importance], what: str = "rise of the loss", *, most: int = 15, ax: Axes | None = None
) -> Axes:
    """Draw how much each column matters as bars with 95 % intervals, most important first.

    Parameters
    ----------
    columns : sequence of Importance
        Importances of columns, as `evaluation.importance(run)` returns them.
    what : str, optional
        Label of the measure (default "rise of the loss").
    most : int, optional
        Largest number of columns to draw (default 15).
    ax : Axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    Axes
    """
    if not columns or not all(isinstance(column, Importance) for column in columns):
        raise TypeError(f"columns must be what importance(run) returns, got {columns!r}")
    most = whole("most", most, low=1)
    shown = list(columns)[:most]
    positions = np.arange(len(shown))
    rises, low, high = np.array([column.rise for column in shown]).T

    ax = style.axes_or_new(ax, height=0.75 + 0.21 * len(shown))
    ax.barh(positions, rises, **BARS)
    ax.hlines(positions, low, high, color=style.COLOURS[0], linewidth=1.4, zorder=3)
    ax.axvline(0.0, color="0.4", linewidth=0.8)

    style.label_rows(ax, [style.plain_label(column.column) for column in shown])
    ax.set_axisbelow(True)
    style.label_axes(ax, what, "")
    ax.set_xlabel(what, loc="right")  # long column names leave little room on the left
    ax.locator_params(axis="x", nbins=MAX_TICKS)
    return ax


def dependence(
    column: Dependence, outputs: Sequence[str], what: str = "mean prediction", *, ax: Axes | None = None
) -> Axes:
    """Draw how predictions depend on a column: the mean over examples, with a band of 90 % of the networks.

    Small marks on the x axis are the deciles of the examples. Categories have dots and bars.

    Parameters
    ----------
    column : Dependence
        Dependence on a column, an element of what `evaluation.dependence(run, columns)` returns.
    outputs : sequence of str
        Names of the outputs; drawn if there are several.
    what : str, optional
        Label of the y axis (default "mean prediction").
    ax : Axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    Axes
    """
    if not isinstance(column, Dependence):
        raise TypeError(f"column must be one of what dependence(run, columns) returns, got {column!r}")
    has_single_output = column.mean.shape[1] == 1
    names = [None] if has_single_output else outputs

    ax = style.axes_or_new(ax)
    if column.values is None:
        categories = np.arange(len(column.mean), dtype=float)
        _draw_dependence_dots(ax, column, categories, names, CATEGORY_SPACING)
        _label_categories(ax, [style.plain_label(label, MAX_CATEGORY_LENGTH) for label in column.labels])
    elif column.marks.size:
        _draw_dependence_curves(ax, column, column.values, names)
    else:  # a number with few values
        _draw_dependence_dots(ax, column, column.values, names, 0.0)
        ax.set_xticks(column.values, [f"{value:g}" for value in column.values])

    style.label_axes(ax, style.plain_label(column.column, 30), what)
    style.format_short_numbers(ax.yaxis)
    style.add_legend(ax)
    return ax


def _draw_dependence_curves(ax: Axes, column: Dependence, x: Floats, names: Sequence[str | None]) -> None:
    """Draw a line with a band for each output over the values x of a number, and its deciles as marks.

    `names` are the labels of the outputs, or None for no label. The limits and numbers of the x axis are set.
    """
    for index, (mean, low, high) in enumerate(zip(column.mean.T, column.low.T, column.high.T, strict=True)):
        line_options = style.line_style(index)
        ax.plot(x, mean, linewidth=1.4, label=names[index], **line_options)
        ax.fill_between(x, low, high, color=line_options["color"], alpha=0.2, linewidth=0)

    deciles: dict[str, Any] = {"marker": "|", "color": "0.35", "markersize": 7, "linestyle": "none"}
    on_axis: dict[str, Any] = {"transform": ax.get_xaxis_transform(), "clip_on": False, "zorder": 5}
    ax.plot(column.marks, np.zeros(len(column.marks)), **deciles, **on_axis)
    ax.set_xlim(x[0], x[-1])
    ax.locator_params(axis="x", nbins=MAX_TICKS)
    style.format_short_numbers(ax.xaxis)


def _draw_dependence_dots(
    ax: Axes, column: Dependence, x: Floats, names: Sequence[str | None], spacing: float
) -> None:
    """Draw a dot with a bar for each output at each position x of a category or a rare number.

    `names` are the labels of the outputs, or None for no label; the dots of neighbouring outputs are
    `spacing` apart, centred at x.
    """
    outputs = column.mean.shape[1]
    for index, (mean, low, high) in enumerate(zip(column.mean.T, column.low.T, column.high.T, strict=True)):
        colour = style.line_style(index)["color"]
        positions = x + spacing * (index - (outputs - 1) / 2)
        ax.vlines(positions, low, high, color=colour, linewidth=1.6, alpha=0.6)
        ax.plot(positions, mean, "o", markersize=4.5, color=colour, label=names[index])


def _label_categories(ax: Axes, labels: list[str]) -> None:
    """Label categories at 0, 1, 2, ... on the x axis, vertically if they are many or long."""
    has_many = len(labels) > MAX_HORIZONTAL_LABELS
    is_vertical = has_many or sum(map(len, labels)) > MAX_HORIZONTAL_CHARACTERS
    ax.set_xticks(range(len(labels)), labels, rotation=90 if is_vertical else 0)
    ax.set_xlim(-0.5, len(labels) - 0.5)
