"""Pictures of a regression: what it predicts along its one input, and whether data lie where it says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from heatbath._internal.checks import whole
from heatbath.datasets.problem import numbers
from heatbath.plotting.style import COLOURS, axes_or_new, dress, key, look, percent_on, symbol
from heatbath.prediction.predictive_distributions import central
from heatbath.runs.run import Run, check_run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]
MARGIN = 0.06  # of the width of the examples, on each side
POINTS = 200
CHANCE = 0.95  # of a band in which what is right lies


def regression(run: Run, *, coverage: float = 0.9, ax: Axes | None = None) -> Axes:
    """A regression with one input: training examples, mean, and bands that hold `coverage` of its samples.

    The dark band is of what the networks say, the light one of new data, where their noise is known or
    sampled. Without samples it is of the chains as they are now.
    """
    check_run(run, single=True)
    problem, ends = run.problem, central(coverage)
    if problem.task != "regression" or (problem.inputs, problem.outputs) != (1, 1):
        raise ValueError(f"regression needs a regression with one input and one target, got {problem!r}")
    draw = _draw(run)
    scale, shift = problem.target_scale, problem.target_shift
    X, Y = (problem.X_train[draw] * problem.scale + problem.shift, problem.Y_train[draw] * scale + shift)
    margin = MARGIN * float(np.ptp(X)) or 1.0
    x = np.linspace(X.min() - margin, X.max() + margin, POINTS)
    law = run.predictive(x[:, None])
    share = f"{100 * coverage:.4g} %"
    ax = axes_or_new(ax)
    dots: dict[str, Any] = {
        "markersize": 2.6,
        "markeredgewidth": 0.5,
        "markerfacecolor": "white",
        "color": "black",
    }
    ax.plot(X[:, 0], Y[:, 0], "o", label="training examples", zorder=4, **dots)
    if (law.deviations > 0).all():
        low, high = law.interval(coverage)
        light: dict[str, Any] = {"color": COLOURS[5], "alpha": 0.35, "linewidth": 0, "zorder": 1}
        ax.fill_between(x, low[:, 0], high[:, 0], label=f"new data, {share}", **light)
    low, high = np.quantile(law.means[..., 0], ends, axis=0)
    dark: dict[str, Any] = {"color": COLOURS[0], "alpha": 0.4, "linewidth": 0, "zorder": 2}
    ax.fill_between(x, low, high, label=f"networks, {share}", **dark)
    ax.plot(x, law.mean[:, 0], color=COLOURS[0], linewidth=1.4, label="mean", zorder=3)
    ax.set_xlim(x[0], x[-1])
    dress(ax, symbol(problem.features[0]), symbol(problem.targets[0]))
    key(ax)
    return ax


def coverage(pit: Run | ArrayLike | Mapping[str, ArrayLike], *, ax: Axes | None = None) -> Axes:
    """How much of the data lies in central intervals of new data, against how much is meant to.

    `pit` are the probabilities of less than what was observed (the probability integral transform), one for
    each example, as `run.predictive(X).cdf(y)` gives them; several predictions are a dict by name. A run
    stands for its test examples, with a line for each target. The band around the diagonal has 95 % of what
    chance does to a prediction that is right, at each coverage by itself, where examples are independent:
    those in one gap between the training examples share what the networks get wrong there.
    """
    from scipy.stats import binom

    levels = _levels(pit)
    nominal = np.linspace(0, 1, 201)
    ax = axes_or_new(ax, height=3.4)
    count = min(map(len, levels.values()))
    low, high = (binom.ppf(end, count, nominal) / count for end in ((1 - CHANCE) / 2, (1 + CHANCE) / 2))
    ax.fill_between(nominal, low, high, color="0.85", linewidth=0, zorder=0)
    ax.plot([0, 1], [0, 1], color="0.6", linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
    for place, (label, values) in enumerate(levels.items()):
        needed = np.sort(np.abs(2 * values - 1))  # the coverage from which on the interval holds it
        observed = np.searchsorted(needed, nominal, side="right") / len(needed)
        share = f"90 % intervals hold {100 * np.mean(needed <= 0.9):.3g} %"
        ax.plot(
            nominal, observed, linewidth=1.4, label=f"{label}: {share}" if label else share, **look(place)
        )
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    dress(ax, "nominal coverage", "observed coverage")
    for axis in (ax.xaxis, ax.yaxis):
        percent_on(axis)
    key(ax)
    return ax


def uniformity(
    values: Run | ArrayLike | Mapping[str, ArrayLike], *, bins: int = 10, ax: Axes | None = None
) -> Axes:
    """A histogram of numbers from 0 to 1 that ought to be uniform, with the band of what chance does to them.

    These are `pit` as in `coverage`, where a hump says that intervals are too wide, the edges that they are
    too narrow, and a slope that predictions are too high or too low; or ranks r among L samples, as
    (r + 1/2)/(L + 1) with a number of bins that divides L + 1. The band has 95 % of the counts of each bin.
    """
    from scipy.stats import binom

    bins = whole("bins", bins, low=2)
    levels = _levels(values)
    edges = np.linspace(0, 1, bins + 1)
    ax = axes_or_new(ax)
    count = min(map(len, levels.values()))
    low, high = (
        bins * binom.ppf(end, count, 1 / bins) / count for end in ((1 - CHANCE) / 2, (1 + CHANCE) / 2)
    )
    ax.axhspan(low, high, color="0.85", linewidth=0, zorder=0)
    ax.axhline(1.0, color="0.6", linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
    for place, (label, numbers_in) in enumerate(levels.items()):
        density = np.histogram(numbers_in, edges)[0] * bins / len(numbers_in)
        ax.stairs(density, edges, label=label or None, linewidth=1.2, zorder=3, **look(place))
    ax.set_xlim(0, 1)
    ax.set_ylim(bottom=0)
    dress(ax, "predicted probability of less", "density")
    key(ax)
    return ax


def _draw(run: Run) -> int:
    """The one data set of the chains."""
    draws = np.unique(run.data["draw"])
    if len(draws) > 1:
        raise ValueError(f"the chains have {len(draws)} different data sets: train on one of them")
    return int(draws[0])


def _levels(given: object) -> dict[str, Floats]:
    """Numbers from 0 to 1 by label."""
    if isinstance(given, Run):
        return _of_test_examples(given)
    arrays = given if isinstance(given, Mapping) else {"": given}
    if not arrays:
        raise ValueError("at least one array is needed, got an empty dict")
    levels = {}
    for label, array in arrays.items():
        name = f"the values of {label!r}" if label else "the values"
        values = numbers(name, array, (1, 2)).ravel()
        if not values.size or values.min() < 0 or values.max() > 1:
            raise ValueError(
                f"{name} must be probabilities, from 0 to 1, as run.predictive(X).cdf(y) gives them; got "
                f"{values.size} from {values.min(initial=np.inf):g} to {values.max(initial=-np.inf):g}"
            )
        levels[str(label)] = values
    return levels


def _of_test_examples(run: Run) -> dict[str, Floats]:
    """The probability of less than what was observed, of each test example, by target."""
    check_run(run, single=True)
    problem, draw = run.problem, _draw(run)
    if problem.task != "regression" or not problem.X_test.size:
        raise ValueError(f"a regression with test examples is needed, got {problem!r}")
    law = run.predictive(problem.X_test[draw] * problem.scale + problem.shift)
    if not (law.deviations > 0).all():
        raise ValueError("the noise of the data is not known: train with posterior=Posterior()")
    found = law.cdf(problem.Y_test[draw] * problem.target_scale + problem.target_shift)
    names = problem.targets if problem.outputs > 1 else [""]
    return dict(zip(names, found.T, strict=True))
