"""Classifiers of Adam and AdLaLa on the 4-turn spiral, at three times."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from heatbath import plotting
from heatbath.datasets import Problem, spirals
from heatbath.diagnostics.statistics import student
from heatbath.methods import Adam
from heatbath.methods.partition import Partition
from heatbath.models.dense import MLP
from heatbath.paper.claims import Claim, Finding, above, higher
from heatbath.paper.experiment import Experiment, Settings, Tell
from heatbath.paper.figures import small_map, whole
from heatbath.paper.side_by_side import Array, adlala, final, method_names, scores, side_by_side
from heatbath.plotting.style import PAGE_WIDTH, SMALL_SIZE, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LAST = 10  # steps over which the classifier is averaged


def four_turns(s: Settings) -> Problem:
    """The spirals."""
    return spirals(4, n_train=s.points, n_test=s.points, p=1, draws=s.runs)


def run(s: Settings, tell: Tell) -> xr.Dataset:
    """Each method from its own start; probabilities on the plane, averaged over the last steps."""
    problem = four_turns(s)
    grid = plotting.plane(problem, s.grid)
    across, up = np.ptp(grid, axis=0) / (s.grid - 1)
    sizes = Settings(**vars(s) | {"steps": max(s.at), "batch": s.points // 50})
    steps = [step for at in s.at for step in range(at - LAST + 1, at + 1)]
    parts = []
    for name, (method, scale) in s.methods.items():
        network = MLP((s.units,), init="gaussian", scale=scale)
        trained = side_by_side(sizes, tell, problem, {name: method}, network, record=steps, weights=True)
        theta = trained.weights().values  # chain, record, parameter
        x = (grid - problem.shift) / problem.scale
        maps = np.empty((s.runs, len(s.at), s.grid, s.grid))
        for run in range(s.runs):
            for i in range(len(s.at)):
                last = [
                    problem.decode(network.forward(theta[run, LAST * i + k], x, 1))[:, 0] for k in range(LAST)
                ]
                maps[run, i] = np.mean(last, axis=0).reshape(s.grid, s.grid)
        pick = [LAST * (i + 1) - 1 for i in range(len(s.at))]
        dataset = xr.Dataset(
            {key: value.isel(record=pick, missing_dims="ignore") for key, value in scores(trained).items()}
        )
        dataset["map"] = (("method", "record", "y", "x"), maps[:1])
        dataset["roughness"] = (("method", "run", "record"), roughness(maps, up, across)[None])
        parts.append(dataset)
    return xr.concat(parts, dim="method")


def roughness(maps: Array, up: float, across: float) -> Array:
    """The mean size of the second derivative of the probability over that of the first: an inverse length.

    It does not grow with how much of the plane is resolved, as the mean gradient alone would.
    """
    first = np.gradient(maps, up, across, axis=(-2, -1))
    second = [d for one in first for d in np.gradient(one, up, across, axis=(-2, -1))]
    size = np.sqrt(sum(d**2 for d in second)).mean(axis=(-2, -1))
    ratio: Array = size / np.maximum(np.hypot(*first).mean(axis=(-2, -1)), 1e-12)
    return ratio


def smoother(data: xr.Dataset) -> Finding:
    """How fast the classifier bends, relative to how steep it is."""
    ours, other = (final(data, "roughness", method=m) for m in ("AdLaLa", "Adam"))
    text = f"AdLaLa {student(ours).text(digits=2)}, Adam {student(other).text(digits=2)} per unit of length"
    return Finding(text, above(student(other - ours)))


def lower_loss(data: xr.Dataset) -> Finding:
    """The test loss at the end."""
    ours, other = (final(data, "loss", method=m) for m in ("AdLaLa", "Adam"))
    text = f"AdLaLa {student(ours).text(digits=3)}, Adam {student(other).text(digits=3)}"
    return Finding(text, above(student(other - ours)))


def draw(data: xr.Dataset, s: Settings) -> Figure:
    """The classifier of every method at every time."""
    problem, times = four_turns(s), data["step"].values
    methods = method_names(data)
    axes = panels(len(methods), len(times), height=0.72 * PAGE_WIDTH)
    for row, method in enumerate(methods):
        for column in range(len(times)):
            ax = axes[row * len(times) + column]
            small_map(ax, problem, data["map"].sel({"method": method}).isel(record=column))
            accuracy = float(data["accuracy"].sel({"method": method}).isel(record=column, run=0))
            ax.set_title(
                f"{method}, {int(times[column]):,} steps: {100 * accuracy:.1f} %", fontsize=SMALL_SIZE
            )
    return whole(axes)


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
            lambda data: higher(final(data, method="AdLaLa"), final(data, method="Adam")),
        ),
        Claim("AdLaLa has a lower loss", lower_loss),
        Claim("AdLaLa's classifier is smoother", smoother),
    ),
    notes=(
        "p = 1; Adam from N(0, 0.5²), AdLaLa from N(0, 0.01²), biases, too; classifiers are averaged over "
        "the last 10 steps. Eight runs; the maps are of the first. Smoothness is judged by derivatives "
        "over the plane."
    ),
)
