"""The role of temperature: BAOAB on trigonometric data, from cold to hot."""

from __future__ import annotations

from itertools import pairwise

import xarray as xr

from heatbath.datasets import Problem, trigonometric
from heatbath.diagnostics.statistics import student
from heatbath.methods import Langevin
from heatbath.methods.partition import Partition
from heatbath.paper.claims import FAILS, HOLDS, IN_PART, Claim, Finding, above
from heatbath.paper.experiment import Experiment, Settings, Tell
from heatbath.paper.figures import temperatures
from heatbath.paper.side_by_side import final, maps, over_grid, scores

PAPER = (1e-8, 1e-7, 1e-6, 1e-5)


def problem(s: Settings) -> Problem:
    """The problem."""
    return trigonometric(a=3, b=2, c=0.02, n_train=s.points, n_test=s.points, draws=s.runs)


def run(s: Settings, tell: Tell) -> xr.Dataset:
    """Train at every temperature."""
    method = Partition(Langevin(gamma=s.gamma, tau=list(s.taus)), h=s.h)
    trained = over_grid(s, tell, problem(s), method, record=2)
    return xr.Dataset(scores(trained) | maps(trained, {"tau": list(s.taus[:4])}))


def rises(data: xr.Dataset) -> Finding:
    """From the first of the paper's temperatures to the last; in part, if it falls on the way."""
    taus = [tau for tau in data["tau"].values if tau <= max(PAPER) * 1.01]
    accuracies = [final(data, tau=tau) for tau in taus]
    text = ", ".join(f"{student(x).text(100)}" for x in accuracies)
    total = student(accuracies[-1] - accuracies[0])
    verdict = above(total)
    if verdict == HOLDS and any(student(b - a, of=len(taus)).high < 0 for a, b in pairwise(accuracies)):
        verdict = IN_PART
    text += f" % at τ = {', '.join(f'{tau:g}' for tau in taus)}; {total.text(100)} points from first to last"
    return Finding(text, verdict)


def falls(data: xr.Dataset) -> Finding:
    """The best temperature against the hottest."""
    taus = data["tau"].values
    best, hot = max(taus, key=lambda tau: final(data, tau=tau).mean()), taus.max()
    fall = student(final(data, tau=best) - final(data, tau=hot), of=len(taus) - 1)
    text = f"best at τ = {best:g}: {student(final(data, tau=best)).percent()}; "
    text += f"{fall.text(100)} points less at τ = {hot:g}"
    return Finding(text, above(fall) if best < hot else FAILS)


EXPERIMENT = Experiment(
    name="temperature",
    title="The role of temperature: BAOAB on trigonometric data",
    settings={
        "h": 0.4,
        "gamma": 10.0,
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
    draw=lambda data, s: temperatures(data, problem(s)),
    claims=(
        Claim("Test accuracy rises with τ", rises, "results significantly improve from 1e-8 to 1e-5"),
        Claim(
            "Past a Goldilocks band of τ it falls",
            falls,
            "further increases can negatively affect the results",
        ),
    ),
    notes=(
        "Trigonometric data, a = 3, b = 2, c = 0.02. The start is torch's, as none is given. Six runs, "
        "one in the paper, each with its own data; the maps are of the first."
    ),
)
