"""Measure robustness: the variance of the test accuracy over 100 runs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import xarray as xr

from heatbath import plotting
from heatbath.diagnostics.statistics import Measured, bootstrap, student
from heatbath.methods import SGD, Adam
from heatbath.methods.partition import Partition
from heatbath.methods.presets import LOL
from heatbath.models.dense import MLP
from heatbath.paper.claims import FAILS, Claim, Finding, combine_verdicts, judge_above, judge_below
from heatbath.paper.experiment import Experiment, ProgressCallback, Settings
from heatbath.paper.figures import remove_legend, traces_by_method
from heatbath.paper.side_by_side import (
    Array,
    adlala,
    final_values,
    scores_by_axes,
    spirals_of,
    train_side_by_side,
)
from heatbath.plotting import style
from heatbath.plotting.style import Axes

GAUSSIAN, TORCH = "Gaussian start", "torch's start"  # in the names of methods
MIN_DIFFERENCE = 0.02  # of mean accuracies, that matters


def run(settings: Settings, progress: ProgressCallback) -> xr.Dataset:
    """Train SGD and LOL from the Gaussian start, and Adam and AdLaLa from both starts.

    Parameters
    ----------
    settings : Settings
        Sizes and seed, and `methods`, partitions by name.
    progress : callable or None
        Called with the progress of each training.

    Returns
    -------
    Dataset
        Scores by method, run and record; names of methods that have both starts end with the start.
    """
    problem = spirals_of(settings, 2)
    methods = settings.methods
    from_gaussian = {name: methods[name] for name in ("SGD", "LOL")}
    from_torch = {}
    for name in ("Adam", "AdLaLa"):
        from_gaussian[f"{name}, {GAUSSIAN}"] = methods[name]
        from_torch[f"{name}, {TORCH}"] = methods[name]

    scores = []
    for network, started in (
        (MLP((settings.units,), init="gaussian"), from_gaussian),
        (MLP((settings.units,), init="torch"), from_torch),
    ):
        trained = train_side_by_side(settings, progress, problem, started, network, record=settings.records)
        scores.append(xr.Dataset(scores_by_axes(trained)))
    return xr.concat(scores, dim="method")


def variance(values: Array) -> np.float64:
    """Return the variance over runs, in squared points."""
    return np.float64(np.var(100 * values, ddof=1))


def judge_variance(*methods: str) -> Callable[[xr.Dataset], Finding]:
    """Return a check that the variance of each method is less than half of SGD's and Adam's.

    A variance that is lower, but not by half, counts in part.
    """

    def check(data: xr.Dataset) -> Finding:
        """Judge the ratios of variances over runs, of SGD and Adam to each method."""
        texts = []
        verdicts = []
        for method in methods:
            ours = final_values(data, method=method)
            texts.append(f"{method} {variance(ours):.1f} squared points")
            for rival in ("SGD", f"Adam, {GAUSSIAN}", f"Adam, {TORCH}"):
                ratio = variance_ratio(final_values(data, method=rival), ours)
                texts.append(f"{rival} {ratio.text()} times that")
                verdicts.append(_judge_variance_ratio(ratio))
        return Finding("; ".join(texts), combine_verdicts(*verdicts))

    return check


def _judge_variance_ratio(ratio: Measured) -> str:
    """Return the verdict that a ratio of variances is above 2; in part if it is above 1 only."""
    is_higher = judge_above(ratio, 1.0)
    if is_higher == FAILS:
        return FAILS
    return combine_verdicts(is_higher, judge_above(ratio, 2.0))


def variance_ratio(first: Array, second: Array) -> Measured:
    """Return the variance over the first runs over that over the second runs, with its interval."""
    with np.errstate(divide="ignore", invalid="ignore"):  # resampled runs may be all alike
        return bootstrap(lambda a, b: variance(b) / variance(a), second, first)


def judge_dependence_on_start(data: xr.Dataset) -> Finding:
    """Judge whether mean accuracies from the two starts differ by two points: AdLaLa's less, Adam's more.

    The difference of each pair of runs is taken, and the sign of their mean is ignored.
    """
    gaps = {}
    for name in ("Adam", "AdLaLa"):
        from_torch = final_values(data, method=f"{name}, {TORCH}")
        from_gaussian = final_values(data, method=f"{name}, {GAUSSIAN}")
        difference = student(from_torch - from_gaussian)
        gaps[name] = difference if difference.value >= 0 else -difference

    text = "; ".join(f"{name} {gap.text(100)} points" for name, gap in gaps.items())
    adam_depends = judge_above(gaps["Adam"], MIN_DIFFERENCE)
    adlala_hardly = judge_below(gaps["AdLaLa"], MIN_DIFFERENCE)
    return Finding(f"{text} between the starts", combine_verdicts(adam_depends, adlala_hardly))


def draw(data: xr.Dataset, settings: Settings) -> Axes:
    """Draw the test accuracy of every method over the steps: its variance over runs, and its mean.

    `data` is what `run` returns. The left picture has the legend of both.
    """
    axes = style.panels(1, 2, height=0.55 * style.PAGE_WIDTH)
    accuracies = traces_by_method(data, "accuracy")
    for index, (name, values) in enumerate(accuracies.items()):
        squared_points = (100 * values).var("chain", ddof=1)
        axes[0].plot(data["step"], squared_points, label=name, linewidth=1.3, **style.line_style(index))
    style.label_axes(axes[0], "steps", "variance (squared points)")
    style.format_steps(axes[0].xaxis)
    style.add_legend(axes[0])

    plotting.curves(accuracies, ax=axes[1])
    axes[1].set_ylabel("mean test accuracy")
    remove_legend(axes[1])
    return axes[0]


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
