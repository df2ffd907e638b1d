"""Study the role of temperature: BAOAB on trigonometric data at several τ."""

from __future__ import annotations

from itertools import pairwise

import xarray as xr

from heatbath.datasets import Problem, trigonometric
from heatbath.diagnostics.statistics import student
from heatbath.methods import Langevin
from heatbath.methods.partition import Partition
from heatbath.paper.claims import FAILS, HOLDS, IN_PART, Claim, Finding, judge_above
from heatbath.paper.experiment import Experiment, ProgressCallback, Settings
from heatbath.paper.figures import draw_temperatures
from heatbath.paper.side_by_side import final_values, prediction_maps, scores_by_axes, train_on_grid

PAPER_TAUS = (1e-8, 1e-7, 1e-6, 1e-5)


def problem(settings: Settings) -> Problem:
    """Draw the trigonometric data."""
    return trigonometric(
        a=3, b=2, c=0.02, n_train=settings.points, n_test=settings.points, draws=settings.runs
    )


def run(settings: Settings, progress: ProgressCallback) -> xr.Dataset:
    """Train at every temperature; return scores, and maps of the classifier at the four lowest."""
    method = Partition(Langevin(gamma=settings.gamma, tau=list(settings.taus)), h=settings.h)
    trained = train_on_grid(settings, progress, problem(settings), method, record=2)
    return xr.Dataset(scores_by_axes(trained) | prediction_maps(trained, {"tau": list(settings.taus[:4])}))


def judge_rise(data: xr.Dataset) -> Finding:
    """Judge whether accuracy rises from the first of the paper's temperatures to the last.

    It holds in part if accuracy clearly falls from one of them to the next.
    """
    highest_tau = max(PAPER_TAUS) * 1.01  # with room for rounding
    taus = [tau for tau in data["tau"].values if tau <= highest_tau]
    accuracies = [final_values(data, tau=tau) for tau in taus]
    total_rise = student(accuracies[-1] - accuracies[0])
    rises = [student(higher - lower, of=len(taus)) for lower, higher in pairwise(accuracies)]

    verdict = judge_above(total_rise)
    has_fall = any(rise.high < 0 for rise in rises)
    if verdict == HOLDS and has_fall:
        verdict = IN_PART
    means_text = ", ".join(student(runs).text(100) for runs in accuracies)
    taus_text = ", ".join(f"{tau:g}" for tau in taus)
    text = f"{means_text} % at τ = {taus_text}; {total_rise.text(100)} points from first to last"
    return Finding(text, verdict)


def best_tau(data: xr.Dataset) -> float:
    """Return the temperature with the highest mean accuracy."""
    return float(max(data["tau"].values, key=lambda tau: final_values(data, tau=tau).mean()))


def judge_fall(data: xr.Dataset) -> Finding:
    """Judge whether accuracy at the best temperature is higher than at the highest."""
    taus = data["tau"].values
    best = best_tau(data)
    highest = float(taus.max())
    at_best = final_values(data, tau=best)
    fall = student(at_best - final_values(data, tau=highest), of=len(taus) - 1)
    text = f"best at τ = {best:g}: {student(at_best).percent()}; "
    text += f"{fall.text(100)} points less at τ = {highest:g}"
    verdict = judge_above(fall) if best < highest else FAILS
    return Finding(text, verdict)


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
        "taus": (*PAPER_TAUS, 1e-4, 1e-3, 1e-2),
    },
    quick={"units": 20, "points": 200, "steps": 300, "runs": 2},
    run=run,
    draw=lambda data, settings: draw_temperatures(data, problem(settings)),
    claims=(
        Claim("Test accuracy rises with τ", judge_rise, "results significantly improve from 1e-8 to 1e-5"),
        Claim(
            "Past a Goldilocks band of τ it falls",
            judge_fall,
            "further increases can negatively affect the results",
        ),
    ),
    notes=(
        "Trigonometric data, a = 3, b = 2, c = 0.02. The start is torch's, because the paper gives none. Six "
        "runs (one in the paper), each with its own data; the maps are of the first."
    ),
)
