"""Draw a regression along its one input, and whether new data lie where it predicts them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from heatbath._internal.checks import whole
from heatbath.datasets.problem import Floats, numbers
from heatbath.plotting import style
from heatbath.plotting.style import Axes
from heatbath.prediction.predictive_distributions import central
from heatbath.runs.run import Run, check_run

MARGIN = 0.06  # of the width of the examples, on each side
POINTS = 200  # of a line
CHANCE = 0.95  # probability that a correct prediction lies in the grey band
COVERAGE_POINTS = 201  # of a curve of coverage
EXAMPLE_DOTS: dict[str, Any] = {
    "markersize": 2.6, "markeredgewidth": 0.5, "markerfacecolor": "white", "color": "black"
}  # fmt: skip
LIGHT_BAND: dict[str, Any] = {"color": style.COLOURS[5], "alpha": 0.35, "linewidth": 0, "zorder": 1}
DARK_BAND: dict[str, Any] = {"color": style.COLOURS[0], "alpha": 0.4, "linewidth": 0, "zorder": 2}


def regression(run: Run, *, coverage: float = 0.9, ax: Axes | None = None) -> Axes:
    """Draw a regression with one input: examples, mean, and bands that hold `coverage` of the samples.

    The dark band is of the networks' outputs. The light band is of new data; it is drawn if their noise is
    known or sampled. A run without samples is represented by its chains at the last step.

    Parameters
    ----------
    run : Run
        A regression with one input and one target.
    coverage : float, optional
        Probability of the bands (default 0.9).
    ax : Axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    Axes
    """
    check_run(run, single=True)
    problem = run.problem
    tails = central(coverage)
    if problem.task != "regression" or (problem.inputs, problem.outputs) != (1, 1):
        raise ValueError(f"regression needs a regression with one input and one target, got {problem!r}")
    draw = _only_draw(run)
    inputs = problem.X_train[draw] * problem.scale + problem.shift  # in the user's units, like targets
    targets = problem.Y_train[draw] * problem.target_scale + problem.target_shift
    margin = MARGIN * float(np.ptp(inputs)) or 1.0
    x = np.linspace(inputs.min() - margin, inputs.max() + margin, POINTS)
    predictive = run.predictive(x[:, None])

    ax = style.axes_or_new(ax)
    percentage = f"{100 * coverage:.4g} %"
    ax.plot(inputs[:, 0], targets[:, 0], "o", label="training examples", zorder=4, **EXAMPLE_DOTS)
    is_noise_known = (predictive.deviations > 0).all()
    if is_noise_known:
        data_low, data_high = predictive.interval(coverage)
        ax.fill_between(x, data_low[:, 0], data_high[:, 0], label=f"new data, {percentage}", **LIGHT_BAND)
    network_low, network_high = np.quantile(predictive.means[..., 0], tails, axis=0)
    ax.fill_between(x, network_low, network_high, label=f"networks, {percentage}", **DARK_BAND)
    ax.plot(x, predictive.mean[:, 0], color=style.COLOURS[0], linewidth=1.4, label="mean", zorder=3)

    ax.set_xlim(x[0], x[-1])
    style.label_axes(ax, style.quantity_label(problem.features[0]), style.quantity_label(problem.targets[0]))
    style.add_legend(ax)
    return ax


def coverage(pit: Run | ArrayLike | Mapping[str, ArrayLike], *, ax: Axes | None = None) -> Axes:
    """Draw how much of the data lies in central intervals of new data, against their nominal coverage.

    The band around the diagonal holds 95 % of the curves of a correct prediction at each coverage, if
    examples are independent. Examples in one gap between training examples aren't: they share the networks'
    error there.

    Parameters
    ----------
    pit : Run, array (examples,), or dict from name to array
        Probability of less than the observed value of each example (the probability integral transform), as
        `run.predictive(X).cdf(y)` returns it. A run stands for its test examples, with a line for each
        target.
    ax : Axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    Axes
    """
    by_label = _probabilities_by_label(pit)
    nominal = np.linspace(0, 1, COVERAGE_POINTS)

    ax = style.axes_or_new(ax, height=3.4)
    example_count = min(map(len, by_label.values()))  # the fewest make the widest band
    low_counts, high_counts = _chance_counts(example_count, nominal)
    ax.fill_between(
        nominal, low_counts / example_count, high_counts / example_count, color="0.85", linewidth=0, zorder=0
    )
    ax.plot([0, 1], [0, 1], **style.DIAGONAL)

    for index, (label, probabilities) in enumerate(by_label.items()):
        needed = np.sort(np.abs(2 * probabilities - 1))  # smallest coverage whose interval holds the example
        observed = np.searchsorted(needed, nominal, side="right") / len(needed)
        held_text = f"90 % intervals hold {100 * np.mean(needed <= 0.9):.3g} %"
        line_label = f"{label}: {held_text}" if label else held_text
        ax.plot(nominal, observed, linewidth=1.4, label=line_label, **style.line_style(index))

    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    style.label_axes(ax, "nominal coverage", "observed coverage")
    style.format_percent(ax.xaxis, ax.yaxis)
    style.add_legend(ax)
    return ax


def uniformity(
    values: Run | ArrayLike | Mapping[str, ArrayLike], *, bins: int = 10, ax: Axes | None = None
) -> Axes:
    """Draw a histogram of numbers from 0 to 1 that should be uniform, with a band of random variation.

    The band holds 95 % of the counts of each bin.

    Parameters
    ----------
    values : Run, array or dict from name to array
        `pit` as in `coverage`: a hump shows that intervals are too wide, high edges that they are too narrow,
        and a slope that predictions are too high or too low. Or ranks r among L samples, as (r + 1/2)/(L +
        1).
    bins : int, optional
        Number of bins (default 10); for ranks, one that divides L + 1.
    ax : Axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    Axes
    """
    bins = whole("bins", bins, low=2)
    by_label = _probabilities_by_label(values)
    edges = np.linspace(0, 1, bins + 1)

    ax = style.axes_or_new(ax)
    example_count = min(map(len, by_label.values()))  # the fewest make the widest band
    low_count, high_count = _chance_counts(example_count, 1 / bins)
    low_density = bins * low_count / example_count
    high_density = bins * high_count / example_count
    ax.axhspan(low_density, high_density, color="0.85", linewidth=0, zorder=0)
    ax.axhline(1.0, **style.DIAGONAL)

    for index, (label, probabilities) in enumerate(by_label.items()):
        counts, _ = np.histogram(probabilities, edges)
        density = counts * bins / len(probabilities)
        ax.stairs(density, edges, label=label or None, linewidth=1.2, zorder=3, **style.line_style(index))

    ax.set_xlim(0, 1)
    ax.set_ylim(bottom=0)
    style.label_axes(ax, "predicted probability of less", "density")
    style.add_legend(ax)
    return ax


def _chance_counts(count: int, probability: Any) -> tuple[Any, Any]:
    """Return the two counts between which a binomial count lies with probability `CHANCE`.

    Parameters
    ----------
    count : int
        Number of independent examples.
    probability : float or array
        Probability of each example.
    """
    from scipy.stats import binom

    return binom.ppf((1 - CHANCE) / 2, count, probability), binom.ppf((1 + CHANCE) / 2, count, probability)


def _only_draw(run: Run) -> int:
    """Return the index of the data set of all chains, or raise ValueError if they have several."""
    draws = np.unique(run.data["draw"])
    if len(draws) > 1:
        raise ValueError(f"the chains have {len(draws)} different data sets: train on one of them")
    return int(draws[0])


def _probabilities_by_label(values: object) -> dict[str, Floats]:
    """Return the probabilities to draw as flat arrays by label, after checking that they lie in 0 to 1.

    Parameters
    ----------
    values : Run, array, or dict from name to array
        What the user passed. A run stands for its test examples, with a label for each target; the label of a
        single array is empty.
    """
    if isinstance(values, Run):
        return _test_probabilities(values)
    arrays = values if isinstance(values, Mapping) else {"": values}
    if not arrays:
        raise ValueError("at least one array is needed, got an empty dict")
    return {str(label): _checked_probabilities(label, array) for label, array in arrays.items()}


def _checked_probabilities(label: object, array: Any) -> Floats:
    """Return probabilities as a flat array after checking that all lie in 0 to 1, and that there are some."""
    name = f"the values of {label!r}" if label else "the values"
    probabilities = numbers(name, array, (1, 2)).ravel()
    lowest = probabilities.min(initial=np.inf)
    highest = probabilities.max(initial=-np.inf)
    if not probabilities.size or lowest < 0 or highest > 1:
        raise ValueError(
            f"{name} must be probabilities, from 0 to 1, as run.predictive(X).cdf(y) gives them; got "
            f"{probabilities.size} from {lowest:g} to {highest:g}"
        )
    return probabilities


def _test_probabilities(run: Run) -> dict[str, Floats]:
    """Return the probability of less than the observed value of each test example, by target."""
    check_run(run, single=True)
    problem = run.problem
    draw = _only_draw(run)
    if problem.task != "regression" or not problem.X_test.size:
        raise ValueError(f"a regression with test examples is needed, got {problem!r}")
    predictive = run.predictive(problem.X_test[draw] * problem.scale + problem.shift)
    if not (predictive.deviations > 0).all():
        raise ValueError("the noise of the data is not known: train with posterior=Posterior()")
    targets = problem.Y_test[draw] * problem.target_scale + problem.target_shift
    names = problem.targets if problem.outputs > 1 else [""]
    return dict(zip(names, predictive.cdf(targets).T, strict=True))
