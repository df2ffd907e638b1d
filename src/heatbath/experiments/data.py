"""Typical data: spirals and trigonometric."""

from __future__ import annotations

import xarray as xr

from heatbath.datasets import Problem, spirals, trigonometric
from heatbath.experiments import planes
from heatbath.experiments.base import Experiment, Settings, Tell


def problems(s: Settings) -> dict[str, Problem]:
    """The data, by name."""
    made = {f"spirals, {turns} turns": spirals(turns, n_train=s.points) for turns in s.turns}
    made |= {f"trigonometric, a = {a}": trigonometric(a, n_train=s.points) for a in s.widths}
    return made


def run(s: Settings, tell: Tell) -> xr.Dataset:
    """Draw the data."""
    made = problems(s)
    return xr.Dataset(
        {
            "x": (("problem", "point", "axis"), [problem.X_train[0] for problem in made.values()]),
            "label": (("problem", "point"), [problem.Y_train[0, :, 0] for problem in made.values()]),
        },
        coords={"problem": list(made)},
    )


EXPERIMENT = Experiment(
    name="data",
    title="Typical data",
    settings={"points": 1000, "turns": (2, 4), "widths": (6, 10)},
    quick={"points": 200},
    run=run,
    draw=lambda data, s: planes.data(data, list(problems(s).values())),
)
