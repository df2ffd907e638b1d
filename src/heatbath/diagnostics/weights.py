"""Shapes: how parameters are distributed, and how rough a classifier of the plane is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from heatbath._internal.checks import POSITIVE, real, whole
from heatbath.datasets.tasks import TASKS
from heatbath.diagnostics.mcmc import Array
from heatbath.methods.partition import Layers
from heatbath.runs.run import Run, check_run


def near_zero(weights: ArrayLike, width: float) -> Array:
    """Return the fraction of parameters closer than `width` to 0.

    Parameters
    ----------
    weights
        Values, (..., parameters), such as `run.weights("hidden")`, (chain, record, parameters).
    width
        Distance from 0.

    Returns
    -------
    ndarray
        Fractions, (...).
    """
    values, width = np.asarray(weights), real("width", width, POSITIVE)
    if not values.ndim or not values.shape[-1]:
        raise ValueError(f"weights must be (..., parameters), got an array of shape {values.shape}")
    return np.asarray((np.abs(values) < width).mean(axis=-1))


def distributions(source: Run | Iterable[Mapping[str, Any]], edges: Sequence[float] | Array) -> xr.Dataset:
    """Return the distribution of the values of every weight and bias tensor over time, as densities.

    Parameters
    ----------
    source
        A run trained with `weights=True`, or state dicts of a torch model, such as a `Samples`.
    edges
        Edges of the bins, rising.

    Returns
    -------
    Dataset
        A density for each tensor, named `layer1.weight`, `layer1.bias`, ... for a run: (chain, record, bin)
        of a run, (state, bin) of state dicts. `bin` has the centres of the bins. Values outside the edges
        count, so a density integrates to the fraction within. NaN where a chain has diverged.
    """
    borders = np.asarray(edges, np.float64)
    if borders.ndim != 1 or len(borders) < 2 or not (np.diff(borders) > 0).all():
        raise ValueError(f"edges must be at least two rising numbers, got {edges!r}")
    if isinstance(source, Run):
        tensors, coordinates = _tensors_of_run(source)
    else:
        tensors, coordinates = _tensors_of_states(source)
    coordinates["bin"] = (borders[1:] + borders[:-1]) / 2
    lead = [name for name in ("chain", "record", "state") if name in coordinates]
    densities = {name: ((*lead, "bin"), _densities(values, borders)) for name, values in tensors.items()}
    return xr.Dataset(densities, coordinates)


def roughness(run: Run, low: float, high: float, points: int = 50) -> Array:
    """Return each chain's mean gradient norm of the predicted probability over a square of the plane.

    Gradients are central differences of the float64 network over 1e-6 of the square: exact to about 1e-8,
    except across a kink of ReLU. For several classes, the norm is over all their probabilities.

    Parameters
    ----------
    run
        A run of a classifier with two inputs.
    low, high
        Ends of the square on both axes, in the units of the data.
    points
        Grid points along each axis.

    Returns
    -------
    ndarray
        Mean norms, (chain,).
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
    """Return a grid of points x points inputs on the square from `low` to `high`, (points², 2)."""
    low, high = real("low", low), real("high", high)
    if low >= high:
        raise ValueError(f"low must be below high, got {low} and {high}")
    line = np.linspace(low, high, whole("points", points, low=2))
    return np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)


def tensor_spans(layers: Layers) -> dict[str, slice]:
    """Return the range of parameters of each layer, of its weights and of its biases, by name.

    `layers` are the numbers of weights and biases of each layer. Parameters are ordered by layer, with the
    weights of a layer before its biases.
    """
    spans: dict[str, slice] = {}
    first_weight = 0
    for layer, (weight_count, bias_count) in layers.items():
        first_bias = first_weight + weight_count
        end = first_bias + bias_count
        spans[layer] = slice(first_weight, end)
        spans[f"{layer}.weight"] = slice(first_weight, first_bias)
        spans[f"{layer}.bias"] = slice(first_bias, end)
        first_weight = end
    return spans


def _tensors_of_run(run: Run) -> tuple[dict[str, Array], dict[str, Any]]:
    """Return the recorded weights and biases by name, (chain, record, elements), and their coordinates."""
    weights = run.weights()
    spans = tensor_spans(run.plan.layers)
    names = [f"{layer}.{kind}" for layer in run.plan.layers for kind in ("weight", "bias")]
    tensors = {name: weights.values[..., spans[name]] for name in names}
    records = {"record": np.arange(weights.sizes["record"]), "step": ("record", run.data["step"].values)}
    return tensors, {"chain": weights["chain"].values, **records}


def _tensors_of_states(states: Iterable[Mapping[str, Any]]) -> tuple[dict[str, Array], dict[str, Any]]:
    """Return the floating-point tensors of state dicts by name, (state, elements), and their coordinates."""
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
    """Return histograms along the last axis as densities, (..., bins); NaN where a value isn't finite."""
    flat = values.reshape(-1, values.shape[-1]).astype(np.float64)
    densities = np.full((len(flat), len(edges) - 1), np.nan)
    for index, row in enumerate(flat):
        if np.isfinite(row).all():
            densities[index] = np.histogram(row, edges)[0] / (len(row) * np.diff(edges))
    return densities.reshape(*values.shape[:-1], -1)
