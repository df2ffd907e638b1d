"""Draw loss landscapes: on a line between two networks, and on a surface.

Letters: α is the position on a line, α and β are the coordinates of a surface.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from heatbath._internal.checks import real
from heatbath.analysis.landscape import barrier
from heatbath.plotting import style
from heatbath.plotting.labels import value_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]
LEVELS = 20  # contours of a surface, about


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
    names = {value_name(curve) or "loss" for curve in curves.values()}

    ax = style.axes_or_new(ax)
    for index, (label, curve) in enumerate(curves.items()):
        alpha, pairs, line_options = curve["alpha"].values, curve.values, style.line_style(index)
        mean, colour = pairs.mean(axis=0), line_options["color"]
        if len(pairs) > 1:
            ax.plot(alpha, pairs.T, color=colour, linewidth=0.5, alpha=0.45)
        prefix = f"{label}: " if label else ""
        ax.plot(alpha, mean, linewidth=1.6, label=prefix + _barrier_text(alpha, pairs), **line_options)
        ends = [0.0, 1.0]
        dots: Any = {"color": colour, "markeredgecolor": "white", "markersize": 6, "zorder": 4}
        ax.plot(ends, np.interp(ends, alpha, mean), "o", **dots)
        if len(curves) == len(pairs) == 1:
            _draw_barrier_arrow(ax, alpha, mean)

    if log:
        style.set_log_scale(ax)
    style.label_axes(ax, style.SYMBOLS["alpha"], names.pop() if len(names) == 1 else "loss")
    style.add_legend(ax)
    return ax


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
    low, high = values.min(), values.max()
    if low == high:
        raise ValueError(f"the loss is {low:g} everywhere: there are no contours to draw")
    levels = _contour_levels(low, high, log)
    alpha, beta = loss["alpha"].values, loss["beta"].values

    ax = style.axes_or_new(ax)
    options: Any = {"levels": levels, "cmap": "viridis", "norm": LogNorm(low, high) if log else None}
    shades = ax.contourf(alpha, beta, values.T, **options)
    ax.contour(alpha, beta, values.T, levels=levels[::2], colors="white", linewidths=0.3, alpha=0.6)

    x_centre, y_centre = np.mean(ax.get_xlim()), np.mean(ax.get_ylim())
    for name, position in (marks or {}).items():
        x, y = (real(f"the position of {name!r}", coordinate) for coordinate in position)
        _draw_mark(ax, name, x, y, is_right=bool(x > x_centre), is_top=bool(y > y_centre))

    style.label_axes(ax, style.SYMBOLS["alpha"], style.SYMBOLS["beta"], box=True)
    bar = style.add_colour_bar(ax, shades, value_name(loss) or "loss")
    bar.set_ticks(levels[::5].tolist(), labels=[f"{level:.2g}" for level in levels[::5]])
    bar.ax.minorticks_off()
    return ax


def _draw_mark(ax: Axes, name: str, x: float, y: float, is_right: bool, is_top: bool) -> None:
    """Mark a point of a picture with a dot and its name, written towards the centre of the picture.

    Parameters
    ----------
    ax : Axes
        Where to draw.
    name : str
        Name of the point.
    x, y : float
        Position of the point.
    is_right, is_top : bool
        True if the point is in the right half and in the upper half of the picture.
    """
    from matplotlib.patheffects import withStroke

    ax.plot(x, y, "o", color="white", markeredgecolor="black", markersize=6, clip_on=False, zorder=4)
    text = ax.annotate(
        name,
        (x, y),
        xytext=(-6 if is_right else 6, -6 if is_top else 6),
        textcoords="offset points",
        horizontalalignment="right" if is_right else "left",
        verticalalignment="top" if is_top else "bottom",
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
    name = f"the loss on a line{f' of {label!r}' if label else ''}"
    if not isinstance(loss, xr.DataArray) or not isinstance(label, str):
        raise TypeError(f"{name} must be a DataArray, or a dict of them by name; got {type(loss).__name__}")
    if "alpha" not in loss.dims or loss.ndim > 2 or "alpha" not in loss.coords or 0 in loss.shape:
        raise ValueError(
            f"{name} needs the coordinate alpha, and at most one other dimension; got {dict(loss.sizes)}"
        )

    by_pair = loss if loss.ndim == 2 else loss.expand_dims("pair")
    curves = by_pair.transpose(..., "alpha").sortby("alpha")
    first, last = curves["alpha"].values[[0, -1]]
    if first > 0 or last < 1:
        raise ValueError(
            f"{name} must reach from alpha = 0 to 1, where the networks are; got {first:g} to {last:g}"
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
    """Draw an arrow from the level of the higher end up to the highest loss between the ends."""
    inside = np.flatnonzero((alpha > 0) & (alpha < 1))
    (height,) = barriers(alpha, loss[None])
    if height:
        top = inside[loss[inside].argmax()]
        base = loss[top] - height
        ax.plot([0, 1], [base, base], color="0.5", linewidth=0.8, linestyle=":")
        options: Any = {"arrowstyle": "<->", "color": "0.3", "shrinkA": 0, "shrinkB": 0}
        ax.annotate("", (alpha[top], loss[top]), (alpha[top], base), arrowprops=options)


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
    points = np.union1d(alpha, [0.0, 1.0])
    losses = [np.interp(points, alpha, pair) for pair in pairs]
    curves = xr.DataArray(losses, dims=("pair", "alpha"), coords={"alpha": points})
    return np.asarray(barrier(curves)["height"].values)


def _contour_levels(low: float, high: float, log: bool) -> Floats:
    """Return about twenty levels from the lowest value to the highest, at equal ratios or round numbers."""
    from matplotlib.ticker import MaxNLocator

    if not log:
        return np.asarray(MaxNLocator(LEVELS).tick_values(low, high))
    levels = np.geomspace(low, high, LEVELS + 1)
    levels[[0, -1]] = low, high  # without rounding
    return levels
