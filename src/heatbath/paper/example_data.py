"""Typical data: spirals and trigonometric."""

from __future__ import annotations

from typing import TYPE_CHECKING

import xarray as xr

from heatbath import plotting
from heatbath.datasets import Problem, spirals, trigonometric
from heatbath.paper.experiment import Experiment, Settings, Tell
from heatbath.paper.figures import whole
from heatbath.plotting.style import PAGE_WIDTH, SMALL_SIZE, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def problems(s: Settings) -> dict[str, Problem]:
    """The problems, by name."""
    spiral = {f"spirals, {turns} turns": spirals(turns, n_train=s.points) for turns in s.turns}
    wave = {f"trigonometric, a = {a}": trigonometric(a, n_train=s.points) for a in s.widths}
    return spiral | wave


def run(s: Settings, tell: Tell) -> xr.Dataset:
    """Draw the examples."""
    drawn = problems(s)
    return xr.Dataset(
        {
            "x": (("problem", "point", "axis"), [problem.X_train[0] for problem in drawn.values()]),
            "label": (("problem", "point"), [problem.Y_train[0, :, 0] for problem in drawn.values()]),
        },
        coords={"problem": list(drawn)},
    )


def draw(data: xr.Dataset, s: Settings) -> Figure:
    """The examples of each problem."""
    axes = panels(2, 2, height=PAGE_WIDTH)
    for ax, (name, problem) in zip(axes, problems(s).items(), strict=True):
        plotting.data(problem, ax=ax)
        ax.set_aspect("auto")
        ax.set_title(name, fontsize=SMALL_SIZE)
    return whole(axes)


EXPERIMENT = Experiment(
    name="data",
    title="Typical data",
    settings={"points": 1000, "turns": (2, 4), "widths": (6, 10)},
    quick={"points": 200},
    run=run,
    draw=draw,
)
