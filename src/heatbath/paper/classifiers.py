"""Compare the classifiers of Adam and AdLaLa on the 4-turn spiral at three times."""

from __future__ import annotations

from itertools import product

import numpy as np
import xarray as xr

from heatbath import plotting
from heatbath.datasets import Problem
from heatbath.diagnostics.statistics import student
from heatbath.methods import Adam
from heatbath.methods.partition import Partition
from heatbath.models.dense import MLP
from heatbath.paper.claims import Claim, Finding, judge_above
from heatbath.paper.comparisons import compare_methods
from heatbath.paper.experiment import Experiment, ProgressCallback, Settings
from heatbath.paper.figures import draw_small_map
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
from heatbath.plotting.style import Axes
from heatbath.runs.run import Run

AVERAGED = 10  # last steps over which a classifier is averaged


def four_turns(settings: Settings) -> Problem:
    """Return the 4-turn spiral, with `settings.points` examples and a data set for each run."""
    return spirals_of(settings, 4, p=1)


def run(settings: Settings, progress: ProgressCallback) -> xr.Dataset:
    """Train each method from its own start; return scores, classifiers on the plane and their roughness.

    Parameters
    ----------
    settings : Settings
        Sizes, seed, and `methods`: by name, a partition and the standard deviation of its start. `at` are the
        steps at which classifiers are compared.
    progress : callable or None
        Called with the progress of each training.

    Returns
    -------
    Dataset
        Scores by method, run and record, with a record for each step in `settings.at`; `map`, the classifier
        of the first run (method, record, y, x); and `roughness` (method, run, record). Classifiers are means
        over the last AVERAGED steps up to a record.
    """
    problem = four_turns(settings)
    grid = plotting.plane(problem, settings.grid)
    map_shape = (len(settings.at), settings.grid, settings.grid)
    width, height = np.ptp(grid, axis=0) / (settings.grid - 1)
    options = with_settings(settings, steps=max(settings.at), batch=settings.points // 50)
    recorded_steps: list[int] = []
    for end in settings.at:
        recorded_steps += range(end - AVERAGED + 1, end + 1)
    ends = slice(AVERAGED - 1, None, AVERAGED)  # records at the steps `settings.at`

    results = []
    for name, (method, scale) in settings.methods.items():
        network = MLP((settings.units,), init="gaussian", scale=scale)
        trained = train_side_by_side(
            options, progress, problem, {name: method}, network, record=recorded_steps, weights=True
        )
        maps = average_classifiers(trained, grid).reshape(-1, *map_shape)
        scores = xr.Dataset(scores_by_axes(trained)).isel(record=ends)
        scores["map"] = (("method", "record", "y", "x"), maps[:1])
        scores["roughness"] = (("method", "run", "record"), roughness(maps, height, width)[None])
        results.append(scores)
    return xr.concat(results, dim="method")


def average_classifiers(trained: Run, grid: Array) -> Array:
    """Return probabilities as means over each AVERAGED consecutive records of a run.

    Parameters
    ----------
    trained : Run
        A run with recorded weights; AVERAGED divides the number of its records.
    grid : array (point, 2)
        Inputs in the user's units.

    Returns
    -------
    array (chain, group, point)
        Probabilities of the second class, averaged over each group of AVERAGED records.
    """
    problem = trained.problem
    network = trained.plan.network
    x = (grid - problem.shift) / problem.scale
    weights = trained.weights().values  # (chain, record, parameter)
    groups = weights.reshape(len(weights), -1, AVERAGED, weights.shape[-1])

    def mean_probability(thetas: Array) -> Array:
        """Return the mean probability of the second class at every point over some networks."""
        probabilities = [problem.decode(network.forward(theta, x, 1))[:, 0] for theta in thetas]
        return np.asarray(np.mean(probabilities, axis=0))

    return np.array([[mean_probability(group) for group in chain] for chain in groups])


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
    return np.asarray(size / np.maximum(np.hypot(*first).mean(axis=(-2, -1)), 1e-12))


def compare_with_adam(data: xr.Dataset, name: str, digits: int, unit: str = "") -> Finding:
    """Judge whether a variable is lower for AdLaLa than for Adam at the end; its unit ends the text."""
    adlala_values = final_values(data, name, method="AdLaLa")
    adam_values = final_values(data, name, method="Adam")
    adlala_text = student(adlala_values).text(digits=digits)
    adam_text = student(adam_values).text(digits=digits)
    verdict = judge_above(student(adam_values - adlala_values))
    return Finding(f"AdLaLa {adlala_text}, Adam {adam_text}{unit}", verdict)


def draw(data: xr.Dataset, settings: Settings) -> Axes:
    """Draw the classifier of the first run, in a row for each method and a column for each time.

    `data` is what `run` returns for these settings; titles have the accuracies of the same run.
    """
    problem = four_turns(settings)
    steps = data["step"].values
    methods = method_names(data)
    axes = style.panels(len(methods), len(steps), height=0.72 * style.PAGE_WIDTH)
    for ax, (method, record) in zip(axes, product(methods, range(len(steps))), strict=True):
        results = data.sel({"method": method}).isel(record=record)
        draw_small_map(ax, problem, results["map"])
        percentage = 100 * float(results["accuracy"].isel(run=0))
        title = f"{method}, {int(steps[record]):,} steps: {percentage:.1f} %"
        ax.set_title(title, fontsize=style.SMALL_SIZE)
    return axes[0]


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
        Claim("AdLaLa has a higher test accuracy", lambda data: compare_methods(data, "AdLaLa", "Adam")),
        Claim("AdLaLa has a lower loss", lambda data: compare_with_adam(data, "loss", 3)),
        Claim(
            "AdLaLa's classifier is smoother",
            lambda data: compare_with_adam(data, "roughness", 2, " per unit of length"),
        ),
    ),
    notes=(
        "p = 1; Adam from N(0, 0.5²), AdLaLa from N(0, 0.01²), also for biases; classifiers are averaged "
        "over the last 10 steps. Eight runs; the maps are of the first. Smoothness is judged by derivatives "
        "over the plane."
    ),
)
