"""The effect of single data points on the weights: inner and outer ones of a spiral."""

from __future__ import annotations

import numpy as np
import xarray as xr

from heatbath.datasets import spirals
from heatbath.experiments import pictures
from heatbath.experiments.base import (
    FAILS,
    IN_PART,
    Array,
    Claim,
    Experiment,
    Finding,
    Mean,
    Settings,
    Tell,
    above,
    all_of,
    below,
    bootstrap,
    within,
)
from heatbath.experiments.common import adlala, by_axes, side_by_side
from heatbath.methods import SGD
from heatbath.networks import Dense
from heatbath.partition import Partition

EARLY = 2000  # until when the paper speaks of the beginning


def effects(theta: Array, X: Array, y: Array, units: int) -> Array:
    """The norm of the gradient of each datum's loss, for a network with one ReLU layer and one logit."""
    W, b = theta[: 2 * units].reshape(units, 2), theta[2 * units : 3 * units]
    v, c = theta[3 * units : 4 * units], theta[4 * units]
    z = np.maximum(X @ W.T + b, 0)
    residual = 1 / (1 + np.exp(-np.clip(z @ v + c, -500, 500))) - y
    hidden = ((z > 0) * v**2).sum(axis=1) * (1 + (X**2).sum(axis=1))
    output = 1 + (z**2).sum(axis=1)
    norms: Array = np.abs(residual) * np.sqrt(hidden + output)
    return norms


def run(s: Settings, tell: Tell) -> xr.Dataset:
    """Train, and at each record the effect of the inner and the outer third of the training data."""
    problem = spirals(2, n_train=s.points, n_test=s.points, draws=s.runs)
    made = side_by_side(
        s,
        tell,
        problem,
        s.methods,
        Dense((s.units,), init=s.init),
        record=list(s.at),
        weights=True,
        losses_every=len(s.at),
    )
    weights = made.weights().values
    found = np.empty((*weights.shape[:2], 2))
    for chain, draw in enumerate(made.data["draw"].values):
        X, y = problem.X_train[draw], problem.Y_train[draw, :, 0]
        radius = np.linalg.norm(X, axis=1)
        low, high = np.quantile(radius, [1 / 3, 2 / 3])
        for record in range(weights.shape[1]):
            norms = effects(weights[chain, record].astype(float), X, y, s.units)
            found[chain, record] = norms[radius <= low].mean(), norms[radius >= high].mean()
    array = xr.DataArray(found, dims=("chain", "record", "where"), coords={"where": ["inner", "outer"]})
    return xr.Dataset({"effect": by_axes(made, array)})


def ratio(data: xr.Dataset, method: str, low: int, high: int) -> Mean:
    """The effect of outer points over that of inner ones, mean over the steps from low to high."""
    steps = data["step"].values
    chosen = (steps >= low) & (steps <= high)
    own = data["effect"].sel({"method": method}).isel(record=chosen).transpose("where", "run", "record")
    inner, outer = np.trapezoid(own.values, steps[chosen], axis=-1)
    return bootstrap(lambda a, b: float(a.mean() / b.mean()), outer, inner)


def outer_first(data: xr.Dataset) -> Finding:
    """SGD before step 2000."""
    found = ratio(data, "SGD", 0, EARLY)
    start = data["effect"].sel({"method": "SGD"}).isel(record=0).mean("run")
    told = f"outer over inner {found.told(digits=2)} until step {EARLY:,}; at the start "
    return Finding(
        told + f"{float(start.sel(where='outer') / start.sel(where='inner')):.2f}", above(found, 1.0)
    )


def changes(data: xr.Dataset) -> Finding:
    """SGD later: inner points move the weights more, after outer ones did."""
    last = int(data["step"].values.max())
    before, after = ratio(data, "SGD", 0, EARLY), ratio(data, "SGD", last // 2, last)
    verdicts = above(before, 1.0), below(after, 1.0)
    told = f"outer over inner {before.told(digits=2)} until step {EARLY:,}, "
    told += f"{after.told(digits=2)} in the second half"
    return Finding(told, FAILS if FAILS in verdicts else all_of(*verdicts))


def alike(data: xr.Dataset) -> Finding:
    """AdLaLa from the outset: within a quarter, or in part within twice that."""
    found = ratio(data, "AdLaLa", 0, EARLY)
    verdict = within(found, 1.25)
    if verdict == FAILS and within(found, 1.5) != FAILS:
        verdict = IN_PART
    return Finding(f"outer over inner {found.told(digits=2)} until step {EARLY:,}", verdict)


EXPERIMENT = Experiment(
    name="points",
    title="The effect of single data points",
    settings={
        "units": 20,
        "points": 500,
        "batch": 25,
        "steps": 20_000,
        "runs": 40,
        "seed": 0,
        "init": "torch",
        "at": (
            0,
            20,
            50,
            100,
            200,
            400,
            600,
            800,
            1000,
            1500,
            2000,
            3000,
            5000,
            7000,
            10_000,
            15_000,
            20_000,
        ),
        "methods": {"SGD": Partition(SGD(), 0.2), "AdLaLa": adlala(0.25, 0.5)},
    },
    quick={"points": 100, "batch": 5, "steps": 2400, "runs": 2, "at": (0, 100, 1000, 2000, 2400)},
    run=run,
    draw=lambda data, s: pictures.effects(data),
    claims=(
        Claim("SGD: outer points move the weights more at first", outer_first, "larger change"),
        Claim("SGD: that changes after 2,000 steps or so", changes),
        Claim("AdLaLa: inner and outer points alike from the outset", alike, "more or less equally"),
    ),
    notes=(
        "The effect of a datum is the norm of its gradient, a mean over the inner and the outer third. "
        "The paper gives no settings here: those of the same network over 100 runs, 40 runs, torch's "
        "start."
    ),
)
