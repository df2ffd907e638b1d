"""The role of temperature: BAOAB on trigonometric data, from cold to hot."""

from __future__ import annotations

from itertools import pairwise

import xarray as xr

from heatbath.datasets import Problem, trigonometric
from heatbath.experiments import planes
from heatbath.experiments.base import (
    FAILS,
    HOLDS,
    Claim,
    Experiment,
    Finding,
    Settings,
    Tell,
    above,
    all_of,
    mean,
)
from heatbath.experiments.common import complete, final, scores
from heatbath.methods import Langevin
from heatbath.networks import Dense
from heatbath.partition import Partition
from heatbath.training import sweep

PAPER = (1e-8, 1e-7, 1e-6, 1e-5)


def problem(s: Settings) -> Problem:
    """The data."""
    return trigonometric(a=3, b=2, c=0.02, n_train=s.points, n_test=s.points, draws=s.runs)


def run(s: Settings, tell: Tell) -> xr.Dataset:
    """Train at every temperature."""
    method = Partition(Langevin(gamma=10.0, tau=list(s.taus)), h=0.4)
    made = complete(
        sweep(
            problem(s),
            Dense((s.units,), init=s.init),
            method,
            steps=s.steps,
            batch=s.points // 50,
            repeats=s.runs,
            record=2,
            progress=tell,
            seed=s.seed,
        )
    )
    return xr.Dataset(scores(made) | planes.maps(made, {"tau": list(s.taus[:4])}))


def rises(data: xr.Dataset) -> Finding:
    """From each of the paper's temperatures to the next, and from the first to the last."""
    taus = [tau for tau in data["tau"].values if tau <= max(PAPER) * 1.01]
    found = [final(data, tau=tau) for tau in taus]
    steps = [mean(b - a) for a, b in pairwise(found)]
    told = ", ".join(f"{mean(x).told(100)}" for x in found)
    total = above(mean(found[-1] - found[0]))
    every = [HOLDS if step.value > 0 or not step.high < 0 else FAILS for step in steps]
    return Finding(f"{told} % at τ = {', '.join(f'{tau:g}' for tau in taus)}", all_of(total, *every))


def falls(data: xr.Dataset) -> Finding:
    """The best temperature against the hottest."""
    best = max(data["tau"].values, key=lambda tau: final(data, tau=tau).mean())
    hot = data["tau"].values.max()
    told = f"best at τ = {best:g}: {mean(final(data, tau=best)).percent()}; at τ = {hot:g}: "
    told += mean(final(data, tau=hot)).percent()
    return Finding(told, above(mean(final(data, tau=best) - final(data, tau=hot))) if best < hot else FAILS)


EXPERIMENT = Experiment(
    name="temperature",
    title="The role of temperature: BAOAB on trigonometric data",
    settings={
        "units": 500,
        "points": 1000,
        "steps": 50_000,
        "runs": 6,
        "seed": 0,
        "init": "torch",
        "taus": (*PAPER, 1e-4, 1e-3, 1e-2),
    },
    quick={"units": 20, "points": 200, "steps": 300, "runs": 2},
    run=run,
    draw=lambda data, s: planes.temperature(data, problem(s)),
    claims=(
        Claim("Test accuracy rises with τ", rises, "results significantly improve from 1e-8 to 1e-5"),
        Claim(
            "Past a Goldilocks band of τ it falls",
            falls,
            "further increases can negatively affect the results",
        ),
    ),
    notes="Trigonometric data, a = 3, b = 2, c = 0.02; h = 0.4, γ = 10. The start is torch's: none is given.",
)
