"""Compare how methods overfit 200 training points."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import xarray as xr

from heatbath.datasets import spirals
from heatbath.diagnostics.statistics import Measured, bootstrap
from heatbath.methods import SGD, Adam
from heatbath.methods.partition import Partition
from heatbath.methods.presets import LOL
from heatbath.paper.claims import Claim, Finding, judge_above, judge_below
from heatbath.paper.experiment import Experiment, ProgressCallback, Settings
from heatbath.paper.figures import draw_accuracy_and_loss
from heatbath.paper.side_by_side import Array, adlala, scores_by_axes, train_side_by_side

MIN_RISE = 0.05  # fraction of the lowest test loss above which its rise counts


def run(settings: Settings, progress: ProgressCallback) -> xr.Dataset:
    """Train the four methods on few examples; return scores by method, run and record."""
    problem = spirals(2, n_train=settings.points, n_test=settings.test_points, c=0.1, draws=settings.runs)
    trained = train_side_by_side(settings, progress, problem, settings.methods, record=settings.records)
    return xr.Dataset(scores_by_axes(trained))


def rise(data: xr.Dataset, method: str) -> Measured:
    """Return how far the mean test loss over runs ends above its lowest value, as a fraction of that value.

    Both are averaged over a twentieth of the records, so that single records don't decide.
    """
    loss = data["loss"].sel({"method": method}).values
    width = max(1, loss.shape[1] // 20)

    def relative_rise(curves: Array) -> float:
        """Return the rise of the smoothed mean over curves (run, record)."""
        smooth = np.convolve(curves.mean(axis=0), np.ones(width) / width, mode="valid")
        return float(smooth[-1] / smooth.min() - 1)

    return bootstrap(relative_rise, loss)


def judge_rise(method: str, *, rises: bool) -> Callable[[xr.Dataset], Finding]:
    """Return a check that a method's test loss rises again by more than `MIN_RISE`, or that it doesn't."""
    judge = judge_above if rises else judge_below

    def check(data: xr.Dataset) -> Finding:
        """Judge the rise of the method's mean test loss."""
        relative_rise = rise(data, method)
        text = f"{relative_rise.percent()} above its lowest at the end"
        return Finding(text, judge(relative_rise, MIN_RISE))

    return check


EXPERIMENT = Experiment(
    name="overfitting",
    title="Overfitting: 200 training points",
    settings={
        "units": 500,
        "points": 200,
        "test_points": 4000,
        "batch": 4,
        "steps": 100_000,
        "runs": 8,
        "seed": 0,
        "init": "torch",
        "records": 100,
        "methods": {
            "SGD": Partition(SGD(), 0.1),
            "Adam": Partition(Adam(), 0.005),
            "LOL": LOL(h=0.1, gamma=1.0, tau=1e-6),
            "AdLaLa": adlala(0.1, 1000.0, tau=1e-4, sigma=0.01, epsilon=0.1, tau_output=1e-8),
        },
    },
    quick={"units": 20, "points": 100, "test_points": 200, "steps": 400, "runs": 2, "records": 20},
    run=run,
    draw=lambda data, settings: draw_accuracy_and_loss(data, log=False),
    claims=(
        Claim(
            "The test loss of SGD turns up again",
            judge_rise("SGD", rises=True),
            "monotonically increases after a certain time",
        ),
        Claim("The test loss of Adam turns up again", judge_rise("Adam", rises=True)),
        Claim("That of LOL does not", judge_rise("LOL", rises=False)),
        Claim("That of AdLaLa does not", judge_rise("AdLaLa", rises=False)),
    ),
    notes=(
        "The paper gives neither batch, steps nor start: 2 % as elsewhere, enough steps for SGD's "
        "loss to rise again, torch's start; eight runs. Judged by the mean over runs, smoothed."
    ),
)
