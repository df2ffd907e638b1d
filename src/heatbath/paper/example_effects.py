"""Measure the effect of single examples on the weights: inner and outer examples of a spiral.

Letters: θ are the parameters of a network with weights W, v and biases b, c; z are the outputs of its hidden
units.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from heatbath.diagnostics.statistics import Measured, bootstrap, student
from heatbath.methods import SGD
from heatbath.methods.partition import Partition
from heatbath.paper.claims import Claim, Finding, combine_strictly, judge_above, judge_below, judge_near
from heatbath.paper.experiment import Experiment, ProgressCallback, Settings
from heatbath.paper.side_by_side import (
    Array,
    adlala,
    spirals_of,
    train_side_by_side,
    unstack_chains,
)
from heatbath.plotting import style
from heatbath.plotting.style import Axes

EARLY_STEPS = 2000  # what the paper calls the beginning


def gradient_norms(theta: Array, X: Array, y: Array, units: int) -> Array:
    """Return the norm of the gradient of each example's cross entropy.

    The network has one hidden ReLU layer and one logit.

    Parameters
    ----------
    theta : array (parameter,)
        Parameters of the network.
    X, y : arrays (example, 2) and (example,)
        Inputs and classes.
    units : int
        Number of hidden units.
    """
    W = theta[: 2 * units].reshape(units, 2)
    b = theta[2 * units : 3 * units]
    v = theta[3 * units : 4 * units]
    c = theta[4 * units]

    z = np.maximum(X @ W.T + b, 0)
    logit = np.clip(z @ v + c, -500, 500)  # so that exp doesn't overflow
    residual = 1 / (1 + np.exp(-logit)) - y  # derivative of the loss by the logit
    # Squared norms of the logit's gradients by the parameters of both layers
    hidden = ((z > 0) * v**2).sum(axis=1) * (1 + (X**2).sum(axis=1))
    output = 1 + (z**2).sum(axis=1)
    return np.asarray(np.abs(residual) * np.sqrt(hidden + output))


def thirds(radius: Array) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which examples are in the inner and which in the outer third by their distance to the origin."""
    low, high = np.quantile(radius, [1 / 3, 2 / 3])
    return radius <= low, radius >= high


def run(settings: Settings, progress: ProgressCallback) -> xr.Dataset:
    """Train; return the mean effect of the inner and the outer third of the training examples.

    Parameters
    ----------
    settings : Settings
        Sizes and seed; `methods`, partitions by name; and `at`, the steps at which effects are measured.
    progress : callable or None
        Called with the progress of the training.

    Returns
    -------
    Dataset
        `effect`, the mean norm of an example's gradient, by method, run, record and third (`where`: "inner"
        or "outer").
    """
    problem = spirals_of(settings, 2)
    records: dict[str, Any] = {"record": list(settings.at), "losses_every": len(settings.at)}
    trained = train_side_by_side(settings, progress, problem, settings.methods, weights=True, **records)

    weights = trained.weights().values  # (chain, record, parameter)
    effects = np.empty((*weights.shape[:2], 2))
    for chain, draw_index in enumerate(trained.data["draw"].values):
        X = problem.X_train[draw_index]
        y = problem.Y_train[draw_index, :, 0]
        is_inner, is_outer = thirds(np.linalg.norm(X, axis=1))
        for record, theta in enumerate(weights[chain].astype(float)):
            norms = gradient_norms(theta, X, y, settings.units)
            effects[chain, record] = norms[is_inner].mean(), norms[is_outer].mean()

    labelled = xr.DataArray(effects, dims=("chain", "record", "where"), coords={"where": ["inner", "outer"]})
    return xr.Dataset({"effect": unstack_chains(trained, labelled)})


def effect_ratio(data: xr.Dataset, method: str, low: int, high: int) -> Measured:
    """Return the effect of outer points over that of inner ones, averaged over the steps from low to high."""
    steps = data["step"].values
    is_selected = (steps >= low) & (steps <= high)
    effects = data["effect"].sel({"method": method}).isel(record=is_selected)
    by_third = effects.transpose("where", "run", "record").values
    inner, outer = np.trapezoid(by_third, steps[is_selected], axis=-1)
    return bootstrap(lambda a, b: float(a.mean() / b.mean()), outer, inner)


def judge_outer_first(data: xr.Dataset) -> Finding:
    """Judge whether outer points have the larger effect under SGD before step 2000."""
    early = effect_ratio(data, "SGD", 0, EARLY_STEPS)
    start = data["effect"].sel({"method": "SGD"}).isel(record=0).mean("run")
    start_ratio = float(start.sel(where="outer") / start.sel(where="inner"))
    text = (
        f"outer over inner {early.text(digits=2)} until step {EARLY_STEPS:,}; at the start {start_ratio:.2f}"
    )
    return Finding(text, judge_above(early, 1.0))


def judge_change(data: xr.Dataset) -> Finding:
    """Judge whether under SGD outer points have the larger effect first, and inner points later."""
    last_step = int(data["step"].values.max())
    early = effect_ratio(data, "SGD", 0, EARLY_STEPS)
    late = effect_ratio(data, "SGD", last_step // 2, last_step)
    text = f"outer over inner {early.text(digits=2)} until step {EARLY_STEPS:,}, "
    text += f"{late.text(digits=2)} in the second half"
    return Finding(text, combine_strictly(judge_above(early, 1.0), judge_below(late, 1.0)))


def judge_equal_effects(data: xr.Dataset) -> Finding:
    """Judge whether effects under AdLaLa are equal within a quarter at first, or in part within a half."""
    early = effect_ratio(data, "AdLaLa", 0, EARLY_STEPS)
    text = f"outer over inner {early.text(digits=2)} until step {EARLY_STEPS:,}"
    return Finding(text, judge_near(early, 1.25, partial_factor=1.5))


def draw(data: xr.Dataset, settings: Settings) -> Axes:
    """Draw the effect of inner and outer points over the steps, with 95 % intervals, for two methods.

    `data` is what `run` returns.
    """
    axes = style.panels(1, 2, height=0.5 * style.PAGE_WIDTH)
    y_limit = 1.05 * (float(data["effect"].mean("run").max()) * 1.1)
    for ax, method in zip(axes, data["method"].values, strict=False):
        draw_effects(ax, data["effect"].sel({"method": method}))
        ax.set_xscale("symlog", linthresh=20)
        ax.set(title=str(method), ylim=(0, y_limit), xlim=(0, None))
        ax.title.set_fontsize(style.SMALL_SIZE)
        style.label_axes(ax, "steps", "norm of an example's gradient")
        style.add_legend(ax)
    return axes[0]


def draw_effects(ax: Axes, effect: xr.DataArray) -> None:
    """Draw the mean effects (where, run, record) of both thirds over the steps, with 95 % intervals."""
    steps = effect["step"].values
    for index, third in enumerate(effect["where"].values):
        by_record = effect.sel(where=third).transpose("record", "run").values
        mean, low, high = np.array([student(runs) for runs in by_record]).T
        line_options = style.line_style(index)
        ax.plot(steps, mean, label=f"{third} third", linewidth=1.4, **line_options)
        ax.fill_between(steps, low, high, color=line_options["color"], alpha=0.2, linewidth=0)


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
        Claim("SGD: outer points move the weights more at first", judge_outer_first, "larger change"),
        Claim("SGD: that changes after 2,000 steps or so", judge_change),
        Claim(
            "AdLaLa: inner and outer points alike from the outset",
            judge_equal_effects,
            "more or less equally",
        ),
    ),
    notes=(
        "The effect of an example is the norm of its gradient, averaged over the inner and the outer third. "
        "The paper gives no settings here: they are those of the same network over 100 runs, with 40 runs "
        "and torch's start."
    ),
)
