"""Overfitting: 200 training points."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from heatbath.datasets import spirals
from heatbath.diagnostics.statistics import Measured, bootstrap
from heatbath.methods import SGD, Adam
from heatbath.methods.partition import Partition
from heatbath.methods.presets import LOL
from heatbath.models.dense import MLP
from heatbath.paper.claims import Claim, Finding, above, below
from heatbath.paper.experiment import Experiment, Settings, Tell
from heatbath.paper.figures import curves
from heatbath.paper.side_by_side import Array, adlala, scores, side_by_side

TURNS_UP = 0.05  # by more than this share of its lowest value


def run(s: Settings, tell: Tell) -> xr.Dataset:
    """The four methods, with the test loss over time."""
    problem = spirals(2, n_train=s.points, n_test=s.test_points, c=0.1, draws=s.runs)
    trained = side_by_side(s, tell, problem, s.methods, MLP((s.units,), init=s.init), record=s.records)
    return xr.Dataset(scores(trained))


def rise(data: xr.Dataset, method: str) -> Measured:
    """How far the mean test loss over runs is above its lowest at the end, as a share of that.

    Both are means over a twentieth of the records, so that single records do not decide.
    """
    loss = data["loss"].sel({"method": method}).values
    width = max(1, loss.shape[1] // 20)

    def at_end(curves: Array) -> float:
        smooth = np.convolve(curves.mean(axis=0), np.ones(width) / width, mode="valid")
        return float(smooth[-1] / smooth.min() - 1)

    return bootstrap(at_end, loss)


def turns_up(method: str) -> Any:
    """Whether the test loss rises again."""

    def check(data: xr.Dataset) -> Finding:
        share = rise(data, method)
        return Finding(f"{share.percent()} above its lowest at the end", above(share, TURNS_UP))

    return check


def stays_down(method: str) -> Any:
    """Whether it does not."""

    def check(data: xr.Dataset) -> Finding:
        share = rise(data, method)
        return Finding(f"{share.percent()} above its lowest at the end", below(share, TURNS_UP))

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
    draw=lambda data, s: curves(data, log=False),
    claims=(
        Claim(
            "The test loss of SGD turns up again",
            turns_up("SGD"),
            "monotonically increases after a certain time",
        ),
        Claim("The test loss of Adam turns up again", turns_up("Adam")),
        Claim("That of LOL does not", stays_down("LOL")),
        Claim("That of AdLaLa does not", stays_down("AdLaLa")),
    ),
    notes=(
        "The paper gives neither batch, steps nor start: 2 % as elsewhere, steps until SGD's loss has "
        "turned, torch's; eight runs. Judged by the mean over runs, smoothed."
    ),
)
