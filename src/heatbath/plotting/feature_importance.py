"""Pictures of what predictions are made of: which columns matter, and how."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from heatbath._internal.checks import whole
from heatbath.evaluation import Dependence, Importance
from heatbath.plotting.style import COLOURS, as_text, axes_or_new, dress, key, look, short_on

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BARS: dict[str, Any] = {"height": 0.62, "color": COLOURS[5], "zorder": 2}


def column_importance(
    columns: Sequence[Importance], what: str = "rise of the loss", *, most: int = 15, ax: Axes | None = None
) -> Axes:
    """How much each column matters, the `most` important first, with 95 % intervals; `what` is measured."""
    if not columns or not all(isinstance(one, Importance) for one in columns):
        raise TypeError(f"what importance(run) gives is needed, got {columns!r}")
    shown = list(columns)[: whole("most", most, low=1)]
    ax = axes_or_new(ax, height=0.75 + 0.21 * len(shown))
    places = np.arange(len(shown))
    values, low, high = np.array([one.rise for one in shown]).T
    ax.barh(places, values, **BARS)
    ax.hlines(places, low, high, color=COLOURS[0], linewidth=1.4, zorder=3)
    ax.axvline(0.0, color="0.4", linewidth=0.8)
    ax.set_yticks(places, [as_text(one.column) for one in shown])
    ax.set_ylim(len(shown) - 0.4, -0.6)
    ax.grid(axis="x", linewidth=0.4, alpha=0.5)
    ax.set_axisbelow(True)
    dress(ax, what, "")
    ax.set_xlabel(what, loc="right")  # beside long names there is little room
    ax.locator_params(axis="x", nbins=4)
    ax.tick_params(axis="y", length=0)
    return ax


def dependence(
    column: Dependence, outputs: Sequence[str], what: str = "mean prediction", *, ax: Axes | None = None
) -> Axes:
    """How the prediction depends on a column: the mean over examples, and a band with 90 % of the networks.

    `outputs` are the names of the lines, if there are several; ticks are the deciles of the examples.
    """
    if not isinstance(column, Dependence):
        raise TypeError(f"what dependence(run, columns) gives is needed, got {column!r}")
    ax = axes_or_new(ax)
    categories = column.values is None
    x = np.arange(len(column.mean)) if column.values is None else column.values
    single = column.mean.shape[1] == 1
    for place, (middle, low, high) in enumerate(zip(column.mean.T, column.low.T, column.high.T, strict=True)):
        style = look(place)
        name = None if single else outputs[place]
        if categories or not column.marks.size:
            aside = 0.0 if single else 0.14 * (place - (column.mean.shape[1] - 1) / 2)
            at = x + (aside if categories else 0.0)
            ax.vlines(at, low, high, color=style["color"], linewidth=1.6, alpha=0.6)
            ax.plot(at, middle, "o", markersize=4.5, color=style["color"], label=name)
        else:
            ax.plot(x, middle, linewidth=1.4, label=name, **style)
            ax.fill_between(x, low, high, color=style["color"], alpha=0.2, linewidth=0)
    if categories:
        labels = [as_text(label, 12) for label in column.labels]
        turned = len(labels) > 4 or sum(map(len, labels)) > 24
        ax.set_xticks(x, labels, rotation=90 if turned else 0)
        ax.set_xlim(-0.5, len(labels) - 0.5)
    elif column.marks.size:
        ax.plot(column.marks, np.zeros(len(column.marks)), "|", color="0.35", markersize=7, clip_on=False,
                transform=ax.get_xaxis_transform(), zorder=5)  # fmt: skip
        ax.set_xlim(x[0], x[-1])
    else:
        ax.set_xticks(x, [f"{value:g}" for value in x])
    dress(ax, as_text(column.column, 30), what)
    if not categories and column.marks.size:
        ax.locator_params(axis="x", nbins=4)
        short_on(ax.xaxis)
    short_on(ax.yaxis)
    key(ax)
    return ax
