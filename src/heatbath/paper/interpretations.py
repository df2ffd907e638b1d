"""Compare interpretations of what the paper leaves open by how close they come to its values.

In data sets and settings, an interpretation is called a reading.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import xarray as xr

from heatbath.diagnostics.statistics import resampled, student
from heatbath.paper.experiment import ReportTable
from heatbath.paper.side_by_side import Array, scores_by_axes
from heatbath.runs.run import Run

RESAMPLES = 1000  # of the runs, to see how sure the closest interpretation is


def interpretation_accuracies(
    trainings: Mapping[str, Callable[[], Run]], paper: Mapping[str, float]
) -> xr.DataArray:
    """Train under every interpretation and return the final test accuracies.

    Parameters
    ----------
    trainings : mapping from name to callable
        Functions that train all methods under an interpretation.
    paper : mapping from method to float
        Accuracies in the paper; only its methods are kept.

    Returns
    -------
    DataArray (reading, reading_method, reading_run)
    """
    accuracies = {}
    for name, train in trainings.items():
        accuracies[name] = scores_by_axes(train(), ["accuracy"])["accuracy"].isel(record=-1, drop=True)
    joined = stack_interpretations(accuracies)
    return joined.sel({"method": list(paper)}).rename(run="reading_run", method="reading_method")


def stack_interpretations(arrays: Mapping[str, xr.DataArray]) -> xr.DataArray:
    """Stack arrays by interpretation along the new dimension `reading`."""
    readings = xr.DataArray(list(arrays), dims="reading", name="reading")
    return xr.concat(list(arrays.values()), dim=readings)


def interpretations_table(data: xr.Dataset, paper: Mapping[str, float]) -> ReportTable:
    """Return a table of accuracies by interpretation, with their mean distance to the paper's.

    The last column is how often that distance is smallest when the runs are resampled. If no interpretation
    wins nearly always, they can't be distinguished.

    Parameters
    ----------
    data : Dataset
        Results with `readings`, as `interpretation_accuracies` returns them.
    paper : mapping from method to float
        Accuracies in the paper.
    """
    readings = data["readings"].sel(reading_method=list(paper))
    accuracies = readings.transpose("reading", "reading_method", ...).values  # (reading, method, run)
    targets = np.array(list(paper.values()))
    percentages = _closest_percentages(accuracies, targets)

    rows = [("the paper", *(f"{100 * accuracy:.1f}" for accuracy in paper.values()), "", "")]
    for index, distance in enumerate(_mean_distances(accuracies, targets)):
        name = str(data["reading"].values[index])
        cells = (student(runs).text(100) for runs in accuracies[index])
        rows.append((name, *cells, f"{100 * distance:.1f}", f"{percentages[index]:.0f} %"))
    return ReportTable(
        "Test accuracy in % by interpretation of what the paper leaves open, the mean distance to its "
        "values, and how often the interpretation comes closest when the runs are resampled",
        ("interpretation", *paper, "distance", "closest"),
        tuple(rows),
    )


def _mean_distances(accuracies: Array, targets: Array) -> Array:
    """Return the mean distance of each interpretation's mean accuracies to the paper's values.

    Parameters
    ----------
    accuracies : array (reading, method, run)
        Accuracies by interpretation.
    targets : array (method,)
        Accuracies in the paper.
    """
    return np.asarray(np.abs(accuracies.mean(axis=-1) - targets).mean(axis=-1))


def _closest_percentages(accuracies: Array, targets: Array) -> Array:
    """Return how often each interpretation is closest to the paper when the runs are resampled, in percent.

    Parameters
    ----------
    accuracies, targets
        As in `_mean_distances`.
    """
    closest = []
    for (runs,) in resampled(accuracies.shape[-1], repeats=RESAMPLES):
        distances = _mean_distances(accuracies[..., runs], targets)
        closest.append(int(distances.argmin()))
    return np.asarray(100 * np.bincount(closest, minlength=len(accuracies)) / RESAMPLES)
