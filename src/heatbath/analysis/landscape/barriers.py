"""What lies between the ends of a line, and between two minima on a surface."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

NEAR = 1e-9  # how far a coordinate may be from 0 or 1 to be taken for it


def barrier(curve: xr.Dataset | xr.DataArray) -> xr.Dataset:
    """The highest loss on the line from α = 0 to α = 1, relative to its ends.

    `height` is how far it is above the higher end: 0 where nothing lies higher, as on a monotone or convex
    curve. `from_a` and `from_b` are how far it is above the end at 0 and at 1, what one climbs from there;
    `loss` is the highest loss, and `alpha` where it is. Other dimensions than α are kept, so that on a
    surface this is the barrier on the way from the start, for each β. A loss that is not a number counts as
    infinite, and where an end is not finite all is NaN.
    """
    loss = _losses(curve, "alpha")
    first, last = _place(loss, "alpha", 0), _place(loss, "alpha", 1)
    between = loss.isel(alpha=slice(first, last + 1))
    between = between.where(between.notnull(), np.inf)
    return _relative(
        xr.Dataset({"loss": between.max("alpha"), "alpha": between.idxmax("alpha")}),
        loss.isel(alpha=first, drop=True),
        loss.isel(alpha=last, drop=True),
    )


def saddle(surface: xr.Dataset | xr.DataArray) -> xr.Dataset:
    """The lowest pass on a surface from the minimum θ_a to the minimum θ_b.

    Of all paths from (α, β) = (1, 1) to (1, 0) by steps to the next α or the next β, it is the one whose
    highest `loss` is lowest, and `alpha` and `beta` are where it is highest. `height` is how far that is
    above the higher minimum: 0 if the two are connected without a barrier, as far as the grid shows.
    `from_a`, `from_b`, other dimensions and losses that are not finite are as in `barrier`.
    """
    loss = _losses(surface, "alpha", "beta")
    row, first, last = _place(loss, "alpha", 1), _place(loss, "beta", 1), _place(loss, "beta", 0)
    a, b = loss.isel(alpha=row, beta=first, drop=True), loss.isel(alpha=row, beta=last, drop=True)
    others = loss.transpose(..., "alpha", "beta").values
    passes = np.empty((*others.shape[:-2], 3))
    for place in np.ndindex(others.shape[:-2]):
        top, (i, j) = _lowest_pass(others[place], (row, first), (row, last))
        passes[place] = top, loss["alpha"].values[i], loss["beta"].values[j]
    names = ("loss", "alpha", "beta")
    return _relative(xr.Dataset({n: a.copy(data=passes[..., k]) for k, n in enumerate(names)}), a, b)


def _relative(top: xr.Dataset, a: xr.DataArray, b: xr.DataArray) -> xr.Dataset:
    """The highest loss with its height above the ends; all NaN where an end is not finite."""
    known = np.isfinite(a) & np.isfinite(b)
    highest = top.where(known)
    from_a, from_b = highest["loss"] - a.where(known), highest["loss"] - b.where(known)
    return highest.assign(height=np.minimum(from_a, from_b), from_a=from_a, from_b=from_b)


def _lowest_pass(
    loss: NDArray[Any], start: tuple[int, int], goal: tuple[int, int]
) -> tuple[float, tuple[int, int]]:
    """The highest loss on the path where it is lowest, and its place: Dijkstra with max for +."""
    heights = np.where(np.isnan(loss), np.inf, loss).tolist()
    rows, columns = loss.shape
    reached = {start}
    waiting = [(heights[start[0]][start[1]], start, start)]  # highest so far, where that was, here
    while True:
        top, where, here = heapq.heappop(waiting)
        if here == goal:
            return top, where
        for i, j in ((1, 0), (-1, 0), (0, 1), (0, -1)):
            step = here[0] + i, here[1] + j
            if 0 <= step[0] < rows and 0 <= step[1] < columns and step not in reached:
                reached.add(step)
                height = heights[step[0]][step[1]]
                heapq.heappush(waiting, (height, step, step) if height > top else (top, where, step))


def _losses(given: object, *dims: str) -> xr.DataArray:
    """The loss of what `line` or `surface` returned."""
    loss = given["loss"] if isinstance(given, xr.Dataset) and "loss" in given else given
    if not isinstance(loss, xr.DataArray) or not all(dim in loss.dims and dim in loss.coords for dim in dims):
        raise TypeError(
            f"the loss must be labelled by {' and '.join(dims)}, as what `line` and `surface` return, "
            f"got {given!r}"
        )
    return loss


def _place(loss: xr.DataArray, dim: str, end: int) -> int:
    """Where a coordinate is 0 or 1."""
    places = np.flatnonzero(np.abs(loss[dim].values - end) < NEAR)
    if not places.size:
        raise ValueError(f"{dim} must have both ends, 0 and 1, got {loss[dim].values}")
    return int(places[0])
