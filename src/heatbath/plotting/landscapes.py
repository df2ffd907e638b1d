"""Draw loss landscapes: on a line between two networks, and on a surface.

Letters: α is the position on a line, α and β are the coordinates of a surface.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from heatbath._internal.checks import real
from heatbath.analysis.landscape import barrier
from heatbath.datasets.problem import Floats
from heatbath.plotting import style
from heatbath.plotting.labels import value_name
from heatbath.plotting.style import Axes

LEVELS = 20  # contours of a surface, about
LEVELS_PER_TICK = 5  # of the colour bar
NAME_DISTANCE = 6  # points from a mark to its name, horizontally and vertically
ENDS = (0.0, 1.0)  # positions of the two networks on a line


def line(
    loss: xr.DataArray | Mapping[str, xr.DataArray], *, log: bool = False, ax: Axes | None = None
) -> Axes:
    """Draw the loss on a line through two networks, which are at α = 0 and α = 1.

    Dots mark the two ends. The barrier is the highest loss between them above the higher end, 0 if there is
    none; the label has its mean over pairs of networks, and its range. On a single line an arrow shows it.

    Parameters
    ----------
    loss : DataArray or dict from name to DataArray
        Losses with a coordinate `alpha`. With a second dimension, over several pairs, each pair is a thin
        line and their mean a thick one.
    log : bool, optional
        Make the y axis logarithmic (default False).
    ax : Axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    Axes
    """
    losses = loss if isinstance(loss, Mapping) else {"": loss}
    if not losses:
        raise TypeError("at least one loss is needed, got an empty dict")
    curves = {label: _checked_line(label, curve) for label, curve in losses.items()}
    loss_names = {value_name(curve) or "loss" for curve in curves.values()}

    ax = style.axes_or_new(ax)
    for index, (label, curve) in enumerate(curves.items()):
        _draw_line(ax, label, curve, style.line_style(index))
        is_single_line = len(curves) == 1 and len(curve) == 1
        if is_single_line:
            _draw_barrier_arrow(ax, curve["alpha"].values, curve.values[0])

    if log:
        style.set_log_scale(ax)
    y_label = loss_names.pop() if len(loss_names) == 1 else "loss"
    style.label_axes(ax, style.SYMBOLS["alpha"], y_label)
    style.add_legend(ax)
    return ax


def _draw_line(ax: Axes, label: str, curve: xr.DataArray, line_options: dict[str, Any]) -> None:
    """Draw the losses of some pairs of networks, their mean with a dot at each end, and the barrier as label.

    Parameters
    ----------
    ax : Axes
        Where to draw.
    label : str
        Label of the loss, or "".
    curve : DataArray (pair, alpha)
        The losses; a single pair is the mean itself.
    line_options : dict
        Colour and dashes of the line, for `Axes.plot`.
    """
    alpha = curve["alpha"].values
    pairs = curve.values
    mean = pairs.mean(axis=0)
    colour = line_options["color"]
    if len(pairs) > 1:
        ax.plot(alpha, pairs.T, color=colour, linewidth=0.5, alpha=0.45)

    barrier_text = _barrier_text(alpha, pairs)
    mean_label = f"{label}: {barrier_text}" if label else barrier_text
    ax.plot(alpha, mean, linewidth=1.6, label=mean_label, **line_options)
    dots: Any = {"color": colour, "markeredgecolor": "white", "markersize": 6, "zorder": 4}
    ax.plot(ENDS, np.interp(ENDS, alpha, mean), "o", **dots)


def surface(
    loss: xr.DataArray,
    marks: Mapping[str, tuple[float, float]] | None = None,
    *,
    log: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Draw the loss on a plane of networks as filled contours.

    Parameters
    ----------
    loss : DataArray
        Losses with the coordinates `alpha` and `beta`.
    marks : dict from name to (alpha, beta), optional
        Points to mark and name, such as the minima.
    log : bool, optional
        Choose levels at equal ratios (default False).
    ax : Axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    Axes
    """
    from matplotlib.colors import LogNorm

    values = _checked_surface(loss, log)
    lowest = values.min()
    highest = values.max()
    if lowest == highest:
        raise ValueError(f"the loss is {lowest:g} everywhere: there are no contours to draw")
    levels = _contour_levels(lowest, highest, log)
    norm = LogNorm(lowest, highest) if log else None

    ax = style.axes_or_new(ax)
    alpha = loss["alpha"].values
    beta = loss["beta"].values
    shades = ax.contourf(alpha, beta, values.T, levels=levels, cmap="viridis", norm=norm)
    ax.contour(alpha, beta, values.T, levels=levels[::2], colors="white", linewidths=0.3, alpha=0.6)
    if marks:
        _draw_marks(ax, marks)

    style.label_axes(ax, style.SYMBOLS["alpha"], style.SYMBOLS["beta"], box=True)
    bar = style.add_colour_bar(ax, shades, value_name(loss) or "loss")
    ticks = levels[::LEVELS_PER_TICK].tolist()
    bar.set_ticks(ticks, labels=[f"{tick:.2g}" for tick in ticks])
    bar.ax.minorticks_off()
    return ax


def _draw_marks(ax: Axes, marks: Mapping[str, tuple[float, float]]) -> None:
    """Mark points (α, β) of a picture with dots, and write their names on the side of the centre."""
    from matplotlib.patheffects import withStroke

    x_centre = np.mean(ax.get_xlim())
    y_centre = np.mean(ax.get_ylim())
    for name, position in marks.items():
        x, y = (real(f"the position of {name!r}", coordinate) for coordinate in position)
        x_offset, x_alignment = (-NAME_DISTANCE, "right") if x > x_centre else (NAME_DISTANCE, "left")
        y_offset, y_alignment = (-NAME_DISTANCE, "top") if y > y_centre else (NAME_DISTANCE, "bottom")
        ax.plot(x, y, "o", color="white", markeredgecolor="black", markersize=6, clip_on=False, zorder=4)
        text = ax.annotate(
            name,
            (x, y),
            xytext=(x_offset, y_offset),
            textcoords="offset points",
            horizontalalignment=x_alignment,
            verticalalignment=y_alignment,
            fontsize=style.SMALL_SIZE,
            zorder=5,
        )
        text.set_path_effects([withStroke(linewidth=2, foreground="white")])  # readable on any colour


def _checked_line(label: object, loss: object) -> xr.DataArray:
    """Return the losses of pairs of networks as an array (pair, alpha), with increasing alpha.

    Parameters
    ----------
    label : str
        Label of the loss, for errors; "" if there is none.
    loss : DataArray
        Losses with the dimension `alpha`, from 0 or less to 1 or more, and at most one other dimension.
    """
    name = f"the loss on a line of {label!r}" if label else "the loss on a line"
    if not isinstance(loss, xr.DataArray) or not isinstance(label, str):
        raise TypeError(f"{name} must be a DataArray, or a dict of them by name; got {type(loss).__name__}")
    has_alpha = "alpha" in loss.dims and "alpha" in loss.coords
    if not has_alpha or loss.ndim > 2 or 0 in loss.shape:
        raise ValueError(
            f"{name} needs the coordinate alpha, and at most one other dimension; got {dict(loss.sizes)}"
        )

    by_pair = loss if loss.ndim == 2 else loss.expand_dims("pair")
    curves = by_pair.transpose(..., "alpha").sortby("alpha")
    lowest_alpha, highest_alpha = curves["alpha"].values[[0, -1]]
    if lowest_alpha > 0 or highest_alpha < 1:
        raise ValueError(
            f"{name} must reach from alpha = 0 to 1, where the networks are; got {lowest_alpha:g} to "
            f"{highest_alpha:g}"
        )
    if not np.isfinite(curves.values).all():
        raise ValueError(f"{name} has values that are not finite: leave those pairs out")
    return curves


def _checked_surface(loss: object, log: bool) -> Floats:
    """Return the loss as an array (alpha, beta) after checking its coordinates and its values.

    `log` demands positive values, as a logarithmic scale does.
    """
    if not isinstance(loss, xr.DataArray):
        raise TypeError(f"the loss on a surface must be a DataArray, got {type(loss).__name__}")
    axes = {"alpha", "beta"}
    if set(loss.dims) != axes or not axes <= set(loss.coords) or min(loss.shape) < 2:
        raise ValueError(
            f"the loss on a surface needs the coordinates alpha and beta, got {dict(loss.sizes)}"
        )
    values: Floats = loss.transpose("alpha", "beta").values
    if not np.isfinite(values).all() or (log and values.min() <= 0):
        raise ValueError("the loss on a surface must be finite, and > 0 on a logarithmic scale")
    return values


def _barrier_text(alpha: Floats, pairs: Floats) -> str:
    """Return the mean barrier of pairs (pair, alpha) and its range as text."""
    heights = barriers(alpha, pairs)
    if not heights.any():
        return "no barrier"
    if len(heights) == 1:
        return f"barrier {heights[0]:.3g}"
    return f"barrier {heights.mean():.3g} ({heights.min():.3g} to {heights.max():.3g})"


def _draw_barrier_arrow(ax: Axes, alpha: Floats, loss: Floats) -> None:
    """Draw an arrow from the level of the higher end up to the highest loss between the ends.

    Nothing is drawn if there is no barrier.
    """
    (height,) = barriers(alpha, loss[None])
    if not height:
        return
    inside = np.flatnonzero((alpha > 0) & (alpha < 1))
    top = inside[loss[inside].argmax()]
    base = loss[top] - height
    ax.plot(ENDS, [base, base], color="0.5", linewidth=0.8, linestyle=":")
    arrow: Any = {"arrowstyle": "<->", "color": "0.3", "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", (alpha[top], loss[top]), (alpha[top], base), arrowprops=arrow)


def barriers(alpha: Floats, pairs: Floats) -> Floats:
    """Return the height of the barrier of each pair between α = 0 and α = 1.

    Losses at 0 and 1 are interpolated if these aren't among the points.

    Parameters
    ----------
    alpha : array (point,)
        Increasing positions.
    pairs : array (pair, point)
        Losses.
    """
    points = np.union1d(alpha, ENDS)
    losses = [np.interp(points, alpha, pair) for pair in pairs]
    curves = xr.DataArray(losses, dims=("pair", "alpha"), coords={"alpha": points})
    return np.asarray(barrier(curves)["height"].values)


def _contour_levels(lowest: float, highest: float, log: bool) -> Floats:
    """Return about twenty levels from the lowest value to the highest, at equal ratios or round numbers."""
    from matplotlib.ticker import MaxNLocator

    if not log:
        return np.asarray(MaxNLocator(LEVELS).tick_values(lowest, highest))
    levels = np.geomspace(lowest, highest, LEVELS + 1)
    levels[0] = lowest  # without rounding
    levels[-1] = highest
    return levels
