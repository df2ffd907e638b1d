"""Shapes: how parameters are distributed, and how rough a classifier of the plane is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from heatbath._internal.checks import POSITIVE, real, whole
from heatbath.datasets.tasks import TASKS
from heatbath.runs.run import Run, check_run

Array = NDArray[np.float64]


def near_zero(weights: ArrayLike, width: float) -> Array:
    """The share of parameters closer than `width` to 0: (..., parameters) becomes (...).

    For a part of a run, `near_zero(run.weights("hidden"), 0.1)` is chain x record.
    """
    values, width = np.asarray(weights), real("width", width, POSITIVE)
    if not values.ndim or not values.shape[-1]:
        raise ValueError(f"weights must be (..., parameters), got an array of shape {values.shape}")
    return np.asarray((np.abs(values) < width).mean(axis=-1))


def distributions(source: Run | Iterable[Mapping[str, Any]], edges: Sequence[float] | Array) -> xr.Dataset:
    """How the values of every weight and bias tensor are distributed over time, as densities along `bin`.

    `source` is a run that was trained with `weights=True` (chain x record x bin for each tensor, called
    `layer1.weight`, `layer1.bias`, ...), or state dicts of a torch model such as a `Samples` (state x bin).
    `edges` are those of the bins, rising; `bin` has their centres. A density counts values outside the edges
    too, so that what it integrates to is the share within; it is NaN where a chain has diverged.
    """
    borders = np.asarray(edges, np.float64)
    if borders.ndim != 1 or len(borders) < 2 or not (np.diff(borders) > 0).all():
        raise ValueError(f"edges must be at least two rising numbers, got {edges!r}")
    tensors, coordinates = _of_run(source) if isinstance(source, Run) else _of_states(source)
    coordinates["bin"] = (borders[1:] + borders[:-1]) / 2
    lead = [name for name in ("chain", "record", "state") if name in coordinates]
    densities = {name: ((*lead, "bin"), _densities(values, borders)) for name, values in tensors.items()}
    return xr.Dataset(densities, coordinates)


def roughness(run: Run, low: float, high: float, points: int = 50) -> Array:
    """The mean norm of the gradient of the predicted probability over a square of the plane, by chain.

    Over a grid of points x points inputs from `low` to `high` on each axis, in the units of the data. At each
    of them by central differences of the float64 network over 1e-6 of the square: exact to 1e-8 or so, but
    where a kink of ReLU lies between. Of several classes, the norm is over all their probabilities.
    """
    check_run(run)
    if run.problem.inputs != 2 or not TASKS[run.problem.task].classes:
        raise ValueError(f"roughness is of classifiers with two inputs, got {run.problem!r}")
    grid = plane(low, high, points)
    step = 1e-6 * (high - low)
    squares = 0.0
    for shift in np.eye(2) * step:
        slope = (run.outputs(grid + shift) - run.outputs(grid - shift)) / (2 * step)
        squares = squares + (slope**2).sum(axis=-1)
    return np.asarray(np.sqrt(squares).mean(axis=-1))


def plane(low: float, high: float, points: int) -> Array:
    """A grid of points x points inputs on the square from `low` to `high`, (points², 2)."""
    low, high = real("low", low), real("high", high)
    if low >= high:
        raise ValueError(f"low must be below high, got {low} and {high}")
    line = np.linspace(low, high, whole("points", points, low=2))
    return np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)


def _of_run(run: Run) -> tuple[dict[str, Array], dict[str, Any]]:
    weights = run.weights()
    layers = run.plan.layers
    names = [f"{layer}.{kind}" for layer in layers for kind in ("weight", "bias")]
    ends = np.cumsum([size for sizes in layers.values() for size in sizes])
    tensors = dict(zip(names, np.split(weights.values, ends[:-1], axis=-1), strict=True))
    records = {"record": np.arange(weights.sizes["record"]), "step": ("record", run.data["step"].values)}
    return tensors, {"chain": weights["chain"].values, **records}


def _of_states(states: Iterable[Mapping[str, Any]]) -> tuple[dict[str, Array], dict[str, Any]]:
    collected: dict[str, list[Array]] = {}
    for state in states:
        for name, value in state.items():
            if value.is_floating_point():
                collected.setdefault(name, []).append(value.detach().cpu().double().numpy().ravel())
    if not collected:
        raise ValueError("there are no states: take some, or train a run with weights=True")
    tensors = {name: np.stack(values) for name, values in collected.items()}
    return tensors, {"state": np.arange(len(next(iter(tensors.values()))))}


def _densities(values: Array, edges: Array) -> Array:
    """Histograms along the last axis, per value and width of a bin."""
    flat = values.reshape(-1, values.shape[-1]).astype(np.float64)
    densities = np.full((len(flat), len(edges) - 1), np.nan)
    for place, row in enumerate(flat):
        if np.isfinite(row).all():
            densities[place] = np.histogram(row, edges)[0] / (len(row) * np.diff(edges))
    return densities.reshape(*values.shape[:-1], -1)
