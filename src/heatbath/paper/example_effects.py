"""The effect of single examples on the weights: inner and outer ones of a spiral."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from heatbath.datasets import spirals
from heatbath.diagnostics.statistics import Measured, bootstrap, student
from heatbath.methods import SGD
from heatbath.methods.partition import Partition
from heatbath.models.dense import MLP
from heatbath.paper.claims import FAILS, IN_PART, Claim, Finding, above, below, none_fails, within
from heatbath.paper.experiment import Experiment, Settings, Tell
from heatbath.paper.figures import whole
from heatbath.paper.side_by_side import Array, adlala, by_axes, side_by_side
from heatbath.plotting.style import PAGE_WIDTH, SMALL_SIZE, add_legend, label_axes, line_style, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EARLY = 2000  # until when the paper speaks of the beginning


def effects(theta: Array, X: Array, y: Array, units: int) -> Array:
    """The norm of the gradient of each example's loss, for a network with one ReLU layer and one logit."""
    W, b = theta[: 2 * units].reshape(units, 2), theta[2 * units : 3 * units]
    v, c = theta[3 * units : 4 * units], theta[4 * units]
    z = np.maximum(X @ W.T + b, 0)
    residual = 1 / (1 + np.exp(-np.clip(z @ v + c, -500, 500))) - y
    hidden = ((z > 0) * v**2).sum(axis=1) * (1 + (X**2).sum(axis=1))
    output = 1 + (z**2).sum(axis=1)
    norms: Array = np.abs(residual) * np.sqrt(hidden + output)
    return norms


def run(s: Settings, tell: Tell) -> xr.Dataset:
    """Train, and at each record the effect of the inner and the outer third of the training examples."""
    problem = spirals(2, n_train=s.points, n_test=s.points, draws=s.runs)
    trained = side_by_side(
        s,
        tell,
        problem,
        s.methods,
        MLP((s.units,), init=s.init),
        record=list(s.at),
        weights=True,
        losses_every=len(s.at),
    )
    weights = trained.weights().values
    means = np.empty((*weights.shape[:2], 2))
    for chain, draw in enumerate(trained.data["draw"].values):
        X, y = problem.X_train[draw], problem.Y_train[draw, :, 0]
        radius = np.linalg.norm(X, axis=1)
        low, high = np.quantile(radius, [1 / 3, 2 / 3])
        for record in range(weights.shape[1]):
            norms = effects(weights[chain, record].astype(float), X, y, s.units)
            means[chain, record] = norms[radius <= low].mean(), norms[radius >= high].mean()
    array = xr.DataArray(means, dims=("chain", "record", "where"), coords={"where": ["inner", "outer"]})
    return xr.Dataset({"effect": by_axes(trained, array)})


def ratio(data: xr.Dataset, method: str, low: int, high: int) -> Measured:
    """The effect of outer points over that of inner ones, mean over the steps from low to high."""
    steps = data["step"].values
    chosen = (steps >= low) & (steps <= high)
    effect = data["effect"].sel({"method": method}).isel(record=chosen).transpose("where", "run", "record")
    inner, outer = np.trapezoid(effect.values, steps[chosen], axis=-1)
    return bootstrap(lambda a, b: float(a.mean() / b.mean()), outer, inner)


def outer_first(data: xr.Dataset) -> Finding:
    """SGD before step 2000."""
    early = ratio(data, "SGD", 0, EARLY)
    start = data["effect"].sel({"method": "SGD"}).isel(record=0).mean("run")
    text = f"outer over inner {early.text(digits=2)} until step {EARLY:,}; at the start "
    return Finding(
        text + f"{float(start.sel(where='outer') / start.sel(where='inner')):.2f}", above(early, 1.0)
    )


def changes(data: xr.Dataset) -> Finding:
    """SGD later: inner points move the weights more, after outer ones did."""
    last = int(data["step"].values.max())
    before, after = ratio(data, "SGD", 0, EARLY), ratio(data, "SGD", last // 2, last)
    text = f"outer over inner {before.text(digits=2)} until step {EARLY:,}, "
    text += f"{after.text(digits=2)} in the second half"
    return Finding(text, none_fails(above(before, 1.0), below(after, 1.0)))


def alike(data: xr.Dataset) -> Finding:
    """AdLaLa from the outset: within a quarter, or in part within twice that."""
    early = ratio(data, "AdLaLa", 0, EARLY)
    verdict = within(early, 1.25)
    if verdict == FAILS and within(early, 1.5) != FAILS:
        verdict = IN_PART
    return Finding(f"outer over inner {early.text(digits=2)} until step {EARLY:,}", verdict)


def draw(data: xr.Dataset, s: Settings) -> Figure:
    """The effect of inner and outer points over the steps."""
    axes = panels(1, 2, height=0.5 * PAGE_WIDTH)
    top = float(data["effect"].mean("run").max()) * 1.1
    for ax, method in zip(axes, data["method"].values, strict=False):
        effect = data["effect"].sel({"method": method})
        for place, where in enumerate(effect["where"].values):
            measured = np.array(
                [student(runs) for runs in effect.sel(where=where).transpose("record", "run").values]
            )
            steps = effect["step"].values
            ax.plot(steps, measured[:, 0], label=f"{where} third", linewidth=1.4, **line_style(place))
            ax.fill_between(
                steps,
                measured[:, 1],
                measured[:, 2],
                color=line_style(place)["color"],
                alpha=0.2,
                linewidth=0,
            )
        ax.set_xscale("symlog", linthresh=20)
        ax.set(title=str(method), ylim=(0, 1.05 * top), xlim=(0, None))
        ax.title.set_fontsize(SMALL_SIZE)
        label_axes(ax, "steps", "norm of an example's gradient")
        add_legend(ax)
    return whole(axes)


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
    draw=draw,
    claims=(
        Claim("SGD: outer points move the weights more at first", outer_first, "larger change"),
        Claim("SGD: that changes after 2,000 steps or so", changes),
        Claim("AdLaLa: inner and outer points alike from the outset", alike, "more or less equally"),
    ),
    notes=(
        "The effect of an example is the norm of its gradient, a mean over the inner and the outer third. "
        "The paper gives no settings here: those of the same network over 100 runs, 40 runs, torch's "
        "start."
    ),
)
