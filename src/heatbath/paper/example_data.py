"""Draw typical data: spirals and trigonometric problems."""

from __future__ import annotations

import xarray as xr

from heatbath import plotting
from heatbath.datasets import Problem, spirals, trigonometric
from heatbath.paper.experiment import Experiment, ProgressCallback, Settings
from heatbath.plotting import style
from heatbath.plotting.style import Axes


def problems(settings: Settings) -> dict[str, Problem]:
    """Return the problems by name."""
    spiral_problems = {
        f"spirals, {turns} turns": spirals(turns, n_train=settings.points) for turns in settings.turns
    }
    trigonometric_problems = {
        f"trigonometric, a = {a}": trigonometric(a, n_train=settings.points) for a in settings.widths
    }
    return spiral_problems | trigonometric_problems


def run(settings: Settings, progress: ProgressCallback) -> xr.Dataset:
    """Draw the examples of all problems at random."""
    drawn = problems(settings)
    return xr.Dataset(
        {
            "x": (("problem", "point", "axis"), [problem.X_train[0] for problem in drawn.values()]),
            "label": (("problem", "point"), [problem.Y_train[0, :, 0] for problem in drawn.values()]),
        },
        coords={"problem": list(drawn)},
    )


def draw(data: xr.Dataset, settings: Settings) -> Axes:
    """Draw a picture of the examples of each problem."""
    axes = style.panels(2, 2, height=style.PAGE_WIDTH)
    for ax, (name, problem) in zip(axes, problems(settings).items(), strict=True):
        plotting.data(problem, ax=ax)
        ax.set_aspect("auto")
        ax.set_title(name, fontsize=style.SMALL_SIZE)
    return axes[0]


EXPERIMENT = Experiment(
    name="data",
    title="Typical data",
    settings={"points": 1000, "turns": (2, 4), "widths": (6, 10)},
    quick={"points": 200},
    run=run,
    draw=draw,
)
