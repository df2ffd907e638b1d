"""What many experiments do: train methods side by side, and read the results as method x run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from heatbath.experiments.base import Array, Settings, Table, Tell, mean
from heatbath.methods import AdaptiveLangevin, Langevin
from heatbath.networks import Dense
from heatbath.partition import Partition
from heatbath.results import Run
from heatbath.training import compare

CHANCE = 0.5  # what a network that has diverged scores on two classes


def adlala(
    h: float,
    gamma: float,
    tau: float = 1e-4,
    sigma: float = 0.01,
    epsilon: float = 0.1,
    tau_output: float | None = None,
    **reading: Any,
) -> Partition:
    """AdLaLa with the paper's symbols; `reading` are options of its adaptive part."""
    hidden = AdaptiveLangevin(tau, sigma, epsilon, **reading)
    return Partition(
        {"hidden": hidden, "output": Langevin(gamma, tau if tau_output is None else tau_output)}, h
    )


def by_axes(run: Run, array: xr.DataArray) -> xr.DataArray:
    """An array by chain as one by the axes of a sweep or the method of a comparison, and run."""
    axes = {axis: list(dict.fromkeys(run.data[axis].values.tolist())) for axis in run.plan.axes}
    sizes = [*map(len, axes.values()), run.plan.repeats]
    moved = array.transpose("chain", ...)
    others = {dim: array[dim].values for dim in moved.dims[1:] if dim in array.indexes}
    return xr.DataArray(
        moved.values.reshape(*sizes, *moved.shape[1:]),
        dims=[*axes, "run", *moved.dims[1:]],
        coords=axes
        | others
        | ({"step": ("record", run.data["step"].values)} if "record" in moved.dims else {}),
    )


def scores(run: Run, names: Sequence[str] = ("accuracy", "loss")) -> dict[str, xr.DataArray]:
    """Accuracy and loss on test data by method (or axes) and run, at all records.

    A network that has diverged scores as chance does, and its loss is that of saying 1/2.
    """
    instead = {"accuracy": CHANCE, "loss": float(np.log(2.0))}
    return {
        name: by_axes(run, run.data[name].sel(split="test", drop=True)).fillna(instead[name])
        for name in names
    }


def complete(run: Run) -> Run:
    """A run, unless Ctrl-C has cut it short."""
    if not run.finished:
        raise KeyboardInterrupt
    return run


def side_by_side(
    s: Settings, tell: Tell, problem: Any, methods: Mapping[str, Partition], network: Dense, **options: Any
) -> Run:
    """Train methods from the same starts on the same mini-batches."""
    made = compare(
        problem,
        network,
        methods,
        steps=s.steps,
        batch=s.batch,
        repeats=s.runs,
        seed=s.seed,
        progress=tell,
        **options,
    )
    return complete(made)


def final(data: xr.Dataset, name: str = "accuracy", **labels: Any) -> Array:
    """The values of all runs at the last record."""
    values = data[name].sel(labels)
    values = values.isel(record=-1) if "record" in values.dims else values
    found: Array = values.values
    return found


# Readings of what the paper leaves open


def readings(variants: Mapping[str, Callable[[], Run]], paper: Mapping[str, float]) -> xr.DataArray:
    """The final test accuracy of every reading, by method and run, with the paper's beside it."""
    found = {}
    for name, train in variants.items():
        found[name] = scores(train(), ["accuracy"])["accuracy"].isel(record=-1, drop=True)
    joined = xr.concat(list(found.values()), dim=xr.DataArray(list(found), dims="reading", name="reading"))
    return joined.sel({"method": list(paper)}).rename(run="reading_run", method="reading_method")


def readings_table(data: xr.Dataset, paper: Mapping[str, float]) -> Table:
    """Accuracies by reading, the mean distance to the paper's, and which reading comes closest."""
    values = data["readings"]
    distance = {
        str(name): float(
            np.mean([abs(values.sel(reading=name, reading_method=m).mean() - p) for m, p in paper.items()])
        )
        for name in values["reading"].values
    }
    closest = min(distance, key=distance.__getitem__)
    rows = [("the paper", *(f"{100 * value:.1f}" for value in paper.values()), "")]
    for name, far in distance.items():
        cells = (mean(values.sel(reading=name, reading_method=method)).told(100) for method in paper)
        rows.append((f"{name} (closest)" if name == closest else name, *cells, f"{100 * far:.1f}"))
    return Table(
        "Test accuracy in % by reading of what the paper leaves open, and the mean distance to its values",
        ("reading", *paper, "distance"),
        tuple(rows),
    )
