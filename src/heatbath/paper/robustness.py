"""Measure robustness: the variance of the test accuracy over 100 runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from heatbath import plotting
from heatbath.diagnostics.statistics import bootstrap, student
from heatbath.methods import SGD, Adam
from heatbath.methods.partition import Partition
from heatbath.methods.presets import LOL
from heatbath.models.dense import MLP
from heatbath.paper.claims import FAILS, Claim, Finding, combine_verdicts, judge_above, judge_below
from heatbath.paper.experiment import Experiment, ProgressCallback, Settings
from heatbath.paper.figures import figure_of, remove_legend, traces_by_method
from heatbath.paper.side_by_side import (
    Array,
    adlala,
    final_values,
    scores_by_axes,
    spirals_of,
    train_side_by_side,
)
from heatbath.plotting import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GAUSSIAN, TORCH = "Gaussian start", "torch's start"  # in the names of methods
MIN_DIFFERENCE = 0.02  # of mean accuracies, that matters


def run(settings: Settings, progress: ProgressCallback) -> xr.Dataset:
    """Train SGD and LOL from the Gaussian start, and Adam and AdLaLa from both starts."""
    problem = spirals_of(settings, 2)
    from_both = {name: settings.methods[name] for name in ("Adam", "AdLaLa")}
    gaussian_methods = {name: settings.methods[name] for name in ("SGD", "LOL")} | {
        f"{n}, {GAUSSIAN}": m for n, m in from_both.items()
    }
    torch_methods = {f"{name}, {TORCH}": method for name, method in from_both.items()}
    starts = {
        MLP((settings.units,), init="gaussian"): gaussian_methods,
        MLP((settings.units,), init="torch"): torch_methods,
    }
    by_start = [
        xr.Dataset(
            scores_by_axes(
                train_side_by_side(settings, progress, problem, methods, network, record=settings.records)
            )
        )
        for network, methods in starts.items()
    ]
    return xr.concat(by_start, dim="method")


def variance(values: Array) -> np.float64:
    """Return the variance over runs, in squared points."""
    return np.float64(np.var(100 * values, ddof=1))


def judge_variance(*methods: str) -> Callable[[xr.Dataset], Finding]:
    """Return a check that the variance of methods is less than half of SGD's and Adam's."""

    def check(data: xr.Dataset) -> Finding:
        texts, verdicts = [], []
        for method in methods:
            ours = final_values(data, method=method)
            texts.append(f"{method} {variance(ours):.1f} squared points")
            for name in ("SGD", f"Adam, {GAUSSIAN}", f"Adam, {TORCH}"):
                with np.errstate(divide="ignore", invalid="ignore"):
                    ratio = bootstrap(
                        lambda a, b: variance(b) / variance(a), ours, final_values(data, method=name)
                    )
                texts.append(f"{name} {ratio.text()} times that")
                verdicts.append(
                    FAILS
                    if judge_above(ratio, 1.0) == FAILS
                    else combine_verdicts(judge_above(ratio, 1.0), judge_above(ratio, 2.0))
                )
        return Finding("; ".join(texts), combine_verdicts(*verdicts))

    return check


def judge_dependence_on_start(data: xr.Dataset) -> Finding:
    """Judge whether mean accuracies from the two starts differ by two points: AdLaLa's less, Adam's more."""
    gaps = {}
    for name in ("Adam", "AdLaLa"):
        points = student(
            final_values(data, method=f"{name}, {TORCH}") - final_values(data, method=f"{name}, {GAUSSIAN}")
        )
        gaps[name] = points if points.value >= 0 else -points
    text = "; ".join(f"{name} {points.text(100)} points" for name, points in gaps.items())
    verdict = combine_verdicts(
        judge_above(gaps["Adam"], MIN_DIFFERENCE), judge_below(gaps["AdLaLa"], MIN_DIFFERENCE)
    )
    return Finding(f"{text} between the starts", verdict)


def draw(data: xr.Dataset, settings: Settings) -> Figure:
    """Draw variance and mean over runs, over the steps."""
    axes = style.panels(1, 2, height=0.55 * style.PAGE_WIDTH)
    for index, (name, values) in enumerate(traces_by_method(data, "accuracy").items()):
        axes[0].plot(
            data["step"],
            (100 * values).var("chain", ddof=1),
            label=name,
            linewidth=1.3,
            **style.line_style(index),
        )
    plotting.curves(traces_by_method(data, "accuracy"), ax=axes[1])
    style.label_axes(axes[0], "steps", "variance (squared points)")
    style.format_steps(axes[0].xaxis)
    style.add_legend(axes[0])
    remove_legend(axes[1])
    axes[1].set_ylabel("mean test accuracy")
    return figure_of(axes)


EXPERIMENT = Experiment(
    name="robustness",
    title="Robustness: the variance over 100 runs",
    settings={
        "methods": {
            "SGD": Partition(SGD(), 0.25),
            "Adam": Partition(Adam(), 0.005),
            "LOL": LOL(h=0.25, gamma=0.01, tau=1e-3),
            "AdLaLa": adlala(0.25, 0.5),
        },
        "units": 20,
        "points": 500,
        "batch": 10,
        "steps": 20_000,
        "runs": 100,
        "seed": 0,
        "records": 20,
    },
    quick={"points": 100, "batch": 2, "steps": 200, "runs": 4, "records": 4},
    run=run,
    draw=draw,
    claims=(
        Claim(
            "The variance over runs of AdLaLa is far lower than that of SGD and Adam",
            judge_variance(f"AdLaLa, {GAUSSIAN}", f"AdLaLa, {TORCH}"),
            "much lower",
        ),
        Claim(
            "The variance over runs of LOL is far lower than that of SGD and Adam",
            judge_variance("LOL"),
            "much lower",
        ),
        Claim(
            "AdLaLa hardly depends on the start, Adam does",
            judge_dependence_on_start,
            "highly dependent, less sensitive",
        ),
    ),
    notes=(
        "The paper doesn't give the number of steps: 20,000. The Gaussian start is N(0, 0.01²), also for "
        "biases."
    ),
)
