"""Trials: methods trained side by side or over a grid, and their results by method (or axes) and run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from heatbath.datasets import Problem
from heatbath.methods import AdaptiveLangevin, Langevin
from heatbath.methods.partition import Partition
from heatbath.models.dense import MLP
from heatbath.paper.experiment import Settings, Tell
from heatbath.plotting import plane
from heatbath.runs.run import Run
from heatbath.training.train import compare, sweep

Array: TypeAlias = NDArray[np.float64]
GRID = 120  # points along each side of a map


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


def complete(run: Run) -> Run:
    """A run, unless Ctrl-C has cut it short."""
    if not run.finished:
        raise KeyboardInterrupt
    return run


def side_by_side(
    s: Settings, tell: Tell, problem: Any, methods: Mapping[str, Partition], network: MLP, **options: Any
) -> Run:
    """Train methods from the same starts on the same mini-batches."""
    sizes = {"steps": s.steps, "batch": s.batch, "chains": s.runs, "seed": s.seed}
    return complete(compare(problem, network, methods, **sizes, **options, progress=tell))


def over_grid(s: Settings, tell: Tell, problem: Problem, partition: Partition, record: int) -> Run:
    """Train at every point of a grid, on batches of 2 %."""
    network = MLP((s.units,), init=s.init)
    sizes = {"steps": s.steps, "batch": s.points // 50, "chains": s.runs, "seed": s.seed}
    return complete(sweep(problem, network, partition, **sizes, record=record, progress=tell))


def by_axes(run: Run, array: xr.DataArray) -> xr.DataArray:
    """An array by chain as one by the axes of a sweep or the method of a comparison, and run."""
    axes = {axis: list(dict.fromkeys(run.data[axis].values.tolist())) for axis in run.plan.axes}
    sizes = [*map(len, axes.values()), run.plan.chains]
    moved = array.transpose("chain", ...)
    others = {dim: array[dim].values for dim in moved.dims[1:] if dim in array.indexes}
    steps = {"step": ("record", run.data["step"].values)} if "record" in moved.dims else {}
    return xr.DataArray(
        moved.values.reshape(*sizes, *moved.shape[1:]),
        dims=[*axes, "run", *moved.dims[1:]],
        coords=axes | others | steps,
    )


def scores(run: Run, names: Sequence[str] = ("accuracy", "loss")) -> dict[str, xr.DataArray]:
    """Accuracy and loss on test examples by method (or axes), run and record, and which runs `diverged`.

    A network that has diverged scores as chance does, and its loss is that of saying nothing.
    """
    classes = len(run.problem.targets)
    chance = {"accuracy": 1 / classes, "loss": math.log(classes)}
    by_name = {
        name: by_axes(run, run.data[name].sel(split="test", drop=True)).fillna(chance[name]) for name in names
    }
    return by_name | {"diverged": by_axes(run, (run.data["died"] >= 0).astype(int))}


def final(data: xr.Dataset, name: str = "accuracy", **labels: Any) -> Array:
    """The values of all runs at the last record."""
    chosen = data[name].sel(labels)
    values: Array = (chosen.isel(record=-1) if "record" in chosen.dims else chosen).values
    return values


def method_names(data: xr.Dataset) -> list[str]:
    """The methods of a comparison."""
    return [str(name) for name in data["method"].values]


def maps(run: Run, labels: Mapping[str, Sequence[Any]]) -> dict[str, xr.DataArray]:
    """What the first run at each of some points of a sweep says over the plane."""
    ((axis, values),) = labels.items()
    inputs = plane(run.problem, GRID)
    each = [run.select(**{axis: value}).outputs(inputs)[0, :, 0].reshape(GRID, GRID) for value in values]
    dimension = f"{axis}_of_map"
    return {"map": xr.DataArray(np.array(each), dims=(dimension, "y", "x"), coords={dimension: list(values)})}
