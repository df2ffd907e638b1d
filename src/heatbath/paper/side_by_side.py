"""Train methods side by side or on a grid, and return their results by method (or axes) and run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from heatbath.datasets import Problem, spirals
from heatbath.methods import AdaptiveLangevin, Langevin
from heatbath.methods.partition import Partition
from heatbath.models.dense import MLP
from heatbath.paper.experiment import ProgressCallback, Settings
from heatbath.plotting import plane
from heatbath.runs.grid import Methods
from heatbath.runs.run import Run
from heatbath.training.train import compare, sweep, train

Array: TypeAlias = NDArray[np.float64]
MAP_POINTS = 120  # on each side of a map


def adlala(
    h: float,
    gamma: float,
    tau: float = 1e-4,
    sigma: float = 0.01,
    epsilon: float = 0.1,
    tau_output: float | None = None,
    **options: Any,
) -> Partition:
    """Return AdLaLa, by default with the paper's τ, σ and ε.

    Parameters
    ----------
    h : float
        Stepsize.
    gamma : float
        Friction of the output layer, which has Langevin dynamics.
    tau, sigma, epsilon : float, optional
        Temperature, driving noise and coupling of the hidden layers, which have Adaptive Langevin dynamics.
    tau_output : float, optional
        Temperature of the output layer; by default `tau`.
    **options
        Passed to `AdaptiveLangevin`.
    """
    if tau_output is None:
        tau_output = tau
    hidden = AdaptiveLangevin(tau, sigma, epsilon, **options)
    output = Langevin(gamma, tau_output)
    return Partition({"hidden": hidden, "output": output}, h)


def require_finished(run: Run) -> Run:
    """Return a run, or raise KeyboardInterrupt if Ctrl-C has stopped it early."""
    if not run.finished:
        raise KeyboardInterrupt
    return run


def spirals_of(settings: Settings, turns: int, **options: Any) -> Problem:
    """Draw spirals: `settings.points` training and test examples, and a data set for each run."""
    sizes = {"n_train": settings.points, "n_test": settings.points, "draws": settings.runs}
    return spirals(turns, **sizes | options)


def network_of(settings: Settings) -> MLP:
    """Return the network of settings: one hidden layer and an initial distribution."""
    return MLP((settings.units,), init=settings.init)


def with_settings(settings: Settings, **changes: Any) -> Settings:
    """Return a copy of settings with some of them replaced."""
    return Settings(**vars(settings) | changes)


def _training_options(settings: Settings, progress: ProgressCallback) -> dict[str, Any]:
    """Return the arguments that `train`, `compare` and `sweep` have in common."""
    sizes = {"steps": settings.steps, "batch": settings.batch, "chains": settings.runs, "seed": settings.seed}
    return sizes | {"progress": progress}


def train_side_by_side(
    settings: Settings,
    progress: ProgressCallback,
    problem: Problem,
    methods: Methods,
    network: MLP | None = None,
    **options: Any,
) -> Run:
    """Train one method, or several from the same starts on the same mini-batches.

    Without a network, it is that of the settings; `options` are passed to `train` or `compare`.
    """
    train_methods: Any = train if isinstance(methods, Partition) else compare
    chosen_network = network_of(settings) if network is None else network
    sizes = _training_options(settings, progress)
    return require_finished(train_methods(problem, chosen_network, methods, **sizes, **options))


def train_on_grid(
    settings: Settings, progress: ProgressCallback, problem: Problem, partition: Partition, record: int
) -> Run:
    """Train at every point of a grid of coefficients, on batches of 2 % of the examples."""
    settings = with_settings(settings, batch=settings.points // 50)
    options = _training_options(settings, progress)
    return require_finished(sweep(problem, network_of(settings), partition, **options, record=record))


def unstack_chains(run: Run, array: xr.DataArray) -> xr.DataArray:
    """Return an array (chain, ...) with `chain` split into the axes of a sweep or comparison and `run`.

    The axis of a comparison is `method`.
    """
    axes = {axis: list(dict.fromkeys(run.data[axis].values.tolist())) for axis in run.plan.axes}
    by_chain = array.transpose("chain", ...)
    other_dimensions = by_chain.dims[1:]
    coordinates: dict[Any, Any] = dict(axes)
    for dimension in other_dimensions:
        if dimension in array.indexes:
            coordinates[dimension] = array[dimension].values
    if "record" in by_chain.dims:
        coordinates["step"] = ("record", run.data["step"].values)

    lengths = [len(values) for values in axes.values()]
    split_values = by_chain.values.reshape(*lengths, run.plan.chains, *by_chain.shape[1:])
    return xr.DataArray(split_values, dims=[*axes, "run", *other_dimensions], coords=coordinates)


def scores_by_axes(run: Run, names: Sequence[str] = ("accuracy", "loss")) -> dict[str, xr.DataArray]:
    """Return test accuracy and loss by method (or axes), run and record, and which runs `diverged`.

    A network that has diverged gets the accuracy of chance, and the loss of equal probabilities.
    """
    class_count = len(run.problem.targets)
    chance = {"accuracy": 1 / class_count, "loss": math.log(class_count)}
    scores = {}
    for name in names:
        test_scores = run.data[name].sel(split="test", drop=True)
        scores[name] = unstack_chains(run, test_scores).fillna(chance[name])
    scores["diverged"] = unstack_chains(run, (run.data["died"] >= 0).astype(int))
    return scores


def final_values(data: xr.Dataset, name: str = "accuracy", **labels: Any) -> Array:
    """Return a variable's values of all runs at the last record, at these labels of other dimensions."""
    selected = data[name].sel(labels)
    if "record" in selected.dims:
        selected = selected.isel(record=-1)
    return np.asarray(selected.values)


def method_names(data: xr.Dataset) -> list[str]:
    """Return the names of the methods of a comparison."""
    return [str(name) for name in data["method"].values]


def prediction_maps(run: Run, labels: Mapping[str, Sequence[Any]]) -> dict[str, xr.DataArray]:
    """Return the outputs of the first run over the plane, at some points of a sweep, as the variable `map`.

    Parameters
    ----------
    run : Run
        A sweep over one axis.
    labels : mapping
        The axis, and its values at these points.
    """
    ((axis, points),) = labels.items()
    inputs = plane(run.problem, MAP_POINTS)
    maps = []
    for point in points:
        outputs = run.select(**{axis: point}).outputs(inputs)  # (run, input, output)
        maps.append(outputs[0, :, 0].reshape(MAP_POINTS, MAP_POINTS))
    dimension = f"{axis}_of_map"
    array = xr.DataArray(np.array(maps), dims=(dimension, "y", "x"), coords={dimension: list(points)})
    return {"map": array}
