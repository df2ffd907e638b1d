"""What many experiments do: train methods side by side, and read the results as method x run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from heatbath.datasets import Problem
from heatbath.experiments.base import Array, Settings, Table, Tell, mean
from heatbath.methods import AdaptiveLangevin, Langevin
from heatbath.networks import Dense
from heatbath.partition import Partition
from heatbath.runs.run import Run
from heatbath.runs.training import compare, sweep


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
    sizes = [*map(len, axes.values()), run.plan.chains]
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
    """Accuracy and loss on test data by method (or axes), run and record, and which runs `diverged`.

    A network that has diverged scores as chance does, and its loss is that of saying nothing.
    """
    classes = len(run.problem.targets)
    instead = {"accuracy": 1 / classes, "loss": math.log(classes)}
    found = {
        name: by_axes(run, run.data[name].sel(split="test", drop=True)).fillna(instead[name])
        for name in names
    }
    return found | {"diverged": by_axes(run, (run.data["died"] >= 0).astype(int))}


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
        chains=s.runs,
        seed=s.seed,
        progress=tell,
        **options,
    )
    return complete(made)


def over_grid(s: Settings, tell: Tell, problem: Problem, partition: Partition, record: int) -> Run:
    """Train at every point of a grid, on batches of 2 %."""
    made = sweep(
        problem,
        Dense((s.units,), init=s.init),
        partition,
        steps=s.steps,
        batch=s.points // 50,
        chains=s.runs,
        record=record,
        progress=tell,
        seed=s.seed,
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
    """Accuracies by reading, the mean distance to the paper's, and how often it is the smallest.

    That is by resampling the runs: where no reading comes out nearly always, they cannot be told apart.
    """
    values = (
        data["readings"].sel(reading_method=list(paper)).transpose("reading", "reading_method", ...).values
    )
    names = [str(name) for name in data["reading"].values]
    aims = np.array(list(paper.values()))
    rng = np.random.default_rng(0)

    def distances(runs: Any) -> Array:
        found: Array = np.abs(values[..., runs].mean(axis=-1) - aims).mean(axis=-1)
        return found

    runs = values.shape[-1]
    wins = np.bincount(
        [distances(rng.integers(0, runs, runs)).argmin() for _ in range(1000)], minlength=len(names)
    )
    rows = [("the paper", *(f"{100 * value:.1f}" for value in paper.values()), "", "")]
    for name, own, far, won in zip(names, values, distances(slice(None)), wins, strict=True):
        cells = (mean(one).told(100) for one in own)
        rows.append((name, *cells, f"{100 * far:.1f}", f"{won / 10:.0f} %"))
    return Table(
        "Test accuracy in % by reading of what the paper leaves open, the mean distance to its values, and "
        "how often the reading comes closest when the runs are resampled",
        ("reading", *paper, "distance", "closest"),
        tuple(rows),
    )
