"""Compare the classifiers of Adam and AdLaLa on the 4-turn spiral at three times."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from heatbath import plotting
from heatbath.datasets import Problem
from heatbath.diagnostics.statistics import student
from heatbath.methods import Adam
from heatbath.methods.partition import Partition
from heatbath.models.dense import MLP
from heatbath.paper.claims import Claim, Finding, compare_runs, judge_above
from heatbath.paper.experiment import Experiment, ProgressCallback, Settings
from heatbath.paper.figures import draw_small_map, figure_of
from heatbath.paper.side_by_side import (
    Array,
    adlala,
    final_values,
    method_names,
    scores_by_axes,
    spirals_of,
    train_side_by_side,
    with_settings,
)
from heatbath.plotting import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AVERAGED = 10  # last steps over which a classifier is averaged


def four_turns(settings: Settings) -> Problem:
    """Draw the spirals."""
    return spirals_of(settings, 4, p=1)


def run(settings: Settings, progress: ProgressCallback) -> xr.Dataset:
    """Train each method from its own start; return scores, probabilities on the plane and their roughness.

    Probabilities are averaged over the last steps before each of the times `settings.at`.
    """
    problem = four_turns(settings)
    grid = plotting.plane(problem, settings.grid)
    width, height = np.ptp(grid, axis=0) / (settings.grid - 1)
    options = with_settings(settings, steps=max(settings.at), batch=settings.points // 50)
    steps = [step for end in settings.at for step in range(end - AVERAGED + 1, end + 1)]
    parts = []
    for name, (method, scale) in settings.methods.items():
        network = MLP((settings.units,), init="gaussian", scale=scale)
        trained = train_side_by_side(
            options, progress, problem, {name: method}, network, record=steps, weights=True
        )
        theta = trained.weights().values  # chain, record, parameter
        x = (grid - problem.shift) / problem.scale
        maps = np.empty((settings.runs, len(settings.at), settings.grid, settings.grid))
        for run in range(settings.runs):
            for i in range(len(settings.at)):
                networks = theta[run, AVERAGED * i : AVERAGED * (i + 1)]
                outputs = [problem.decode(network.forward(weights, x, 1))[:, 0] for weights in networks]
                maps[run, i] = np.mean(outputs, axis=0).reshape(settings.grid, settings.grid)
        last = [AVERAGED * (i + 1) - 1 for i in range(len(settings.at))]
        dataset = xr.Dataset(
            {
                key: value.isel(record=last, missing_dims="ignore")
                for key, value in scores_by_axes(trained).items()
            }
        )
        dataset["map"] = (("method", "record", "y", "x"), maps[:1])
        dataset["roughness"] = (("method", "run", "record"), roughness(maps, height, width)[None])
        parts.append(dataset)
    return xr.concat(parts, dim="method")


def roughness(maps: Array, height: float, width: float) -> Array:
    """Return the mean size of the second derivative of the probability over that of the first.

    This is an inverse length. Unlike the mean gradient, it doesn't grow as more of the plane is resolved.

    Parameters
    ----------
    maps : array (..., y, x)
        Probabilities on a grid.
    height, width : float
        Distances between grid points.
    """
    first = np.gradient(maps, height, width, axis=(-2, -1))
    second = [d for slope in first for d in np.gradient(slope, height, width, axis=(-2, -1))]
    size = np.sqrt(sum(d**2 for d in second)).mean(axis=(-2, -1))
    ratio: Array = size / np.maximum(np.hypot(*first).mean(axis=(-2, -1)), 1e-12)
    return ratio


def smoother(data: xr.Dataset) -> Finding:
    """Judge whether AdLaLa's classifier bends less than Adam's, relative to its steepness."""
    adlala_values, adam_values = (final_values(data, "roughness", method=m) for m in ("AdLaLa", "Adam"))
    text = f"AdLaLa {student(adlala_values).text(digits=2)}, Adam {student(adam_values).text(digits=2)} "
    text += "per unit of length"
    return Finding(text, judge_above(student(adam_values - adlala_values)))


def lower_loss(data: xr.Dataset) -> Finding:
    """Judge whether AdLaLa's test loss is lower than Adam's at the end."""
    adlala_values, adam_values = (final_values(data, "loss", method=m) for m in ("AdLaLa", "Adam"))
    text = f"AdLaLa {student(adlala_values).text(digits=3)}, Adam {student(adam_values).text(digits=3)}"
    return Finding(text, judge_above(student(adam_values - adlala_values)))


def draw(data: xr.Dataset, settings: Settings) -> Figure:
    """Draw the classifier of every method at every time."""
    problem, times = four_turns(settings), data["step"].values
    methods = method_names(data)
    axes = style.panels(len(methods), len(times), height=0.72 * style.PAGE_WIDTH)
    for row, method in enumerate(methods):
        for column in range(len(times)):
            ax = axes[row * len(times) + column]
            draw_small_map(ax, problem, data["map"].sel({"method": method}).isel(record=column))
            accuracy = float(data["accuracy"].sel({"method": method}).isel(record=column, run=0))
            ax.set_title(
                f"{method}, {int(times[column]):,} steps: {100 * accuracy:.1f} %", fontsize=style.SMALL_SIZE
            )
    return figure_of(axes)


EXPERIMENT = Experiment(
    name="classifiers",
    title="Classifiers of Adam and AdLaLa on the 4-turn spiral",
    settings={
        "units": 500,
        "points": 1000,
        "at": (20_000, 40_000, 60_000),
        "runs": 8,
        "seed": 0,
        "grid": 120,
        "methods": {
            "Adam": (Partition(Adam(), 0.005), 0.5),
            "AdLaLa": (adlala(0.1, 0.03, tau=1e-4, sigma=0.01, epsilon=0.1, tau_output=1e-5), 0.01),
        },
    },
    quick={"units": 20, "points": 200, "at": (100, 200, 300), "runs": 2, "grid": 20},
    run=run,
    draw=draw,
    claims=(
        Claim(
            "AdLaLa has a higher test accuracy",
            lambda data: compare_runs(final_values(data, method="AdLaLa"), final_values(data, method="Adam")),
        ),
        Claim("AdLaLa has a lower loss", lower_loss),
        Claim("AdLaLa's classifier is smoother", smoother),
    ),
    notes=(
        "p = 1; Adam from N(0, 0.5²), AdLaLa from N(0, 0.01²), also for biases; classifiers are averaged "
        "over the last 10 steps. Eight runs; the maps are of the first. Smoothness is judged by derivatives "
        "over the plane."
    ),
)
