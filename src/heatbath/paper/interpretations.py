"""Readings of what the paper leaves open: runs under each of them, and which comes closest to its values."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from heatbath.diagnostics.statistics import resampled, student
from heatbath.paper.experiment import ReportTable
from heatbath.paper.side_by_side import Array, scores
from heatbath.runs.run import Run


def readings(variants: Mapping[str, Callable[[], Run]], paper: Mapping[str, float]) -> xr.DataArray:
    """The final test accuracy of every reading, by method and run, with the paper's beside it."""
    accuracies = {}
    for name, train in variants.items():
        accuracies[name] = scores(train(), ["accuracy"])["accuracy"].isel(record=-1, drop=True)
    joined = by_reading(accuracies)
    return joined.sel({"method": list(paper)}).rename(run="reading_run", method="reading_method")


def by_reading(arrays: Mapping[str, xr.DataArray]) -> xr.DataArray:
    """Arrays by the name of a reading as one with the dimension `reading`."""
    return xr.concat(list(arrays.values()), dim=xr.DataArray(list(arrays), dims="reading", name="reading"))


def readings_table(data: xr.Dataset, paper: Mapping[str, float]) -> ReportTable:
    """Accuracies by reading, the mean distance to the paper's, and how often it is the smallest.

    That is by resampling the runs: where no reading comes out nearly always, they cannot be told apart.
    """
    values = (
        data["readings"].sel(reading_method=list(paper)).transpose("reading", "reading_method", ...).values
    )
    names = [str(name) for name in data["reading"].values]
    aims = np.array(list(paper.values()))

    def distances(runs: slice | NDArray[np.int64]) -> Array:
        each: Array = np.abs(values[..., runs].mean(axis=-1) - aims).mean(axis=-1)
        return each

    closest = [int(distances(runs).argmin()) for (runs,) in resampled(values.shape[-1], repeats=1000)]
    wins = np.bincount(closest, minlength=len(names))
    rows = [("the paper", *(f"{100 * value:.1f}" for value in paper.values()), "", "")]
    for name, accuracies, distance, won in zip(names, values, distances(slice(None)), wins, strict=True):
        cells = (student(runs).text(100) for runs in accuracies)
        rows.append((name, *cells, f"{100 * distance:.1f}", f"{won / 10:.0f} %"))
    return ReportTable(
        "Test accuracy in % by reading of what the paper leaves open, the mean distance to its values, and "
        "how often the reading comes closest when the runs are resampled",
        ("reading", *paper, "distance", "closest"),
        tuple(rows),
    )
