"""Compute the barrier between the ends of a line, and the pass between two minima on a surface.

Letters: θ_a and θ_b are the parameters at the ends; α is the position on a line, α and β are the coordinates
of a surface.
"""

from __future__ import annotations

import heapq
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import xarray as xr
from numpy.typing import NDArray

TOLERANCE = 1e-9  # distance up to which a coordinate counts as 0 or 1

Cell: TypeAlias = tuple[int, int]  # indices of a grid point


class Pass(NamedTuple):
    """Highest point of the path between two grid points whose highest loss is lowest."""

    loss: float
    cell: Cell


def barrier(curve: xr.Dataset | xr.DataArray) -> xr.Dataset:
    """Compute the highest loss on the line from α = 0 to α = 1, relative to its ends.

    Dimensions other than α are kept. So on a surface this is the barrier from the start, for each β.

    Parameters
    ----------
    curve : Dataset or DataArray
        Losses with a coordinate `alpha` that contains 0 and 1, as `line` returns them. A NaN counts as
        infinite.

    Returns
    -------
    Dataset
        `height`: highest loss above the higher end, 0 on a monotone or convex curve. `from_a`, `from_b`:
        highest loss above the end at 0 and at 1. `loss`: the highest loss. `alpha`: its position. All are NaN
        where an end is not finite.

    Examples
    --------
    >>> import heatbath as hb, xarray as xr
    >>> curve = xr.DataArray([1.0, 3.0, 2.0], {"alpha": [0.0, 0.5, 1.0]}, "alpha")
    >>> float(hb.landscape.barrier(curve)["height"])
    1.0
    """
    loss = _labelled_loss(curve, "alpha")
    index_a = _index_of(loss, "alpha", 0)
    index_b = _index_of(loss, "alpha", 1)
    between = loss.isel(alpha=slice(index_a, index_b + 1))
    between = between.where(between.notnull(), np.inf)
    highest = xr.Dataset({"loss": between.max("alpha"), "alpha": between.idxmax("alpha")})
    loss_a = loss.isel(alpha=index_a, drop=True)
    loss_b = loss.isel(alpha=index_b, drop=True)
    return _relative_to_ends(highest, loss_a, loss_b)


def saddle(surface: xr.Dataset | xr.DataArray) -> xr.Dataset:
    """Find the lowest pass on a surface between its minima θ_a and θ_b.

    Of all paths from (α, β) = (1, 1) to (1, 0) by steps to the next α or the next β, take the one whose
    highest loss is lowest.

    Parameters
    ----------
    surface : Dataset or DataArray
        Losses with coordinates `alpha` and `beta` that contain 0 and 1, as `surface` returns them. A NaN
        counts as infinite.

    Returns
    -------
    Dataset
        `loss`, `alpha` and `beta`: highest loss on that path, and its position. `height`: its height above
        the higher minimum, 0 if the grid shows no barrier. `from_a` and `from_b`: its height above θ_a and
        above θ_b. All are NaN where a minimum is not finite. Other dimensions are kept.
    """
    loss = _labelled_loss(surface, "alpha", "beta")
    row = _index_of(loss, "alpha", 1)
    column_a = _index_of(loss, "beta", 1)
    column_b = _index_of(loss, "beta", 0)
    loss_a = loss.isel(alpha=row, beta=column_a, drop=True)
    loss_b = loss.isel(alpha=row, beta=column_b, drop=True)

    alphas = loss["alpha"].values
    betas = loss["beta"].values
    surfaces = loss.transpose(..., "alpha", "beta").values
    passes = np.empty((*surfaces.shape[:-2], 3))
    for index in np.ndindex(surfaces.shape[:-2]):
        highest, (i, j) = _lowest_pass(surfaces[index], (row, column_a), (row, column_b))
        passes[index] = highest, alphas[i], betas[j]

    names = ("loss", "alpha", "beta")
    highest_points = {name: loss_a.copy(data=passes[..., k]) for k, name in enumerate(names)}
    return _relative_to_ends(xr.Dataset(highest_points), loss_a, loss_b)


def _relative_to_ends(highest: xr.Dataset, loss_a: xr.DataArray, loss_b: xr.DataArray) -> xr.Dataset:
    """Return the highest loss with its heights above both ends; all NaN where an end is not finite."""
    is_finite = np.isfinite(loss_a) & np.isfinite(loss_b)
    finite_highest = highest.where(is_finite)
    from_a = finite_highest["loss"] - loss_a.where(is_finite)
    from_b = finite_highest["loss"] - loss_b.where(is_finite)
    return finite_highest.assign(height=np.minimum(from_a, from_b), from_a=from_a, from_b=from_b)


def _lowest_pass(loss: NDArray[Any], start: Cell, goal: Cell) -> Pass:
    """Return the highest point of the path on a grid whose highest loss is lowest.

    This is Dijkstra's algorithm with the maximum in place of the sum. Steps go to the four neighbours of a
    grid point.

    Parameters
    ----------
    loss : array (row, column)
        Losses at the points of the grid. A NaN counts as infinite.
    start, goal : (int, int)
        Row and column of the ends of the path.
    """
    heights = np.where(np.isnan(loss), np.inf, loss)
    unvisited = {cell: float(height) for cell, height in np.ndenumerate(heights)}
    # Paths to continue: highest loss so far, its cell, and the last cell of the path
    queue = [(unvisited.pop(start), start, start)]
    while True:
        highest, highest_cell, cell = heapq.heappop(queue)
        if cell == goal:
            return Pass(highest, highest_cell)
        row, column = cell
        for neighbour in ((row + 1, column), (row - 1, column), (row, column + 1), (row, column - 1)):
            if neighbour not in unvisited:
                continue
            height = unvisited.pop(neighbour)
            if height > highest:
                heapq.heappush(queue, (height, neighbour, neighbour))
            else:
                heapq.heappush(queue, (highest, highest_cell, neighbour))


def _labelled_loss(result: object, *dims: str) -> xr.DataArray:
    """Return the loss of a result of `line` or `surface`, after checking its coordinates."""
    loss = result["loss"] if isinstance(result, xr.Dataset) and "loss" in result else result
    if not isinstance(loss, xr.DataArray) or not all(dim in loss.dims and dim in loss.coords for dim in dims):
        raise TypeError(
            f"the loss needs the coordinates {' and '.join(dims)}, as `line` and `surface` return it, "
            f"got {result!r}"
        )
    return loss


def _index_of(loss: xr.DataArray, dim: str, end: int) -> int:
    """Return the index at which a coordinate is 0 or 1, up to rounding."""
    indices = np.flatnonzero(np.abs(loss[dim].values - end) < TOLERANCE)
    if not indices.size:
        raise ValueError(f"{dim} must contain both ends, 0 and 1, got {loss[dim].values}")
    return int(indices[0])
