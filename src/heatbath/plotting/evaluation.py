"""Draw forecasts beside the truth: ROC curves, calibration, confusion, predicted against true values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from heatbath._internal.checks import whole
from heatbath.datasets.problem import numbers
from heatbath.datasets.tasks import TASKS
from heatbath.diagnostics.statistics import effective, wilson
from heatbath.evaluation import Forecast, metrics
from heatbath.plotting import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]
Forecasts = Forecast | Mapping[str, Forecast]
MARKERS = "os^DvPX"
SQUARE_HEIGHT = 3.4  # inches, of a figure with square Axes
MAX_ROC_CURVES = 6  # of several classes: those that are hardest to tell from the others
MAX_CLASSES_WITH_COUNTS = 10  # classes for which a confusion matrix has numbers
MAX_TICKS = 5  # numbers on an axis
MAX_DOTS = 400  # examples drawn without intervals
MAX_INTERVALS = 150  # examples drawn with intervals
ZOOM_WIDTH = 0.5  # a calibration curve that spans less than this is drawn on axes of its own range
MAX_BINS = 10  # of equally many examples, in a calibration curve
MIN_EXAMPLES_PER_BIN = 10


class RocInput(NamedTuple):
    """One ROC curve: its label, which examples are positive, their stated probabilities and their weights."""

    label: str
    is_positive: NDArray[np.bool_]
    probability: Floats
    weights: Floats | None


class CalibrationBins(NamedTuple):
    """Bins of a calibration curve: mean stated probability, observed frequency, effective example count."""

    predicted: Floats
    observed: Floats
    examples: Floats


def roc(forecasts: Forecasts, *, ax: Axes | None = None) -> Axes:
    """Draw ROC curves: the true positive rate against the false positive rate.

    With two classes there is a curve for each forecast. With more classes there is a curve for each class of
    the first forecast against all others; of more than six classes, those with the smallest area are drawn.

    Parameters
    ----------
    forecasts : Forecast or dict from name to Forecast
        Forecasts of classes, such as `judge(run).forecast`.
    ax : Axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    Axes
    """
    from sklearn.metrics import roc_curve

    checked = _checked_forecasts(forecasts, classes=True)
    first = next(iter(checked.values()))
    if len(np.unique(first.labels)) < 2:
        raise ValueError("a ROC curve needs examples of two classes, and these are all of one")
    has_two_classes = len(first.targets) == 2
    if has_two_classes:
        curves = [
            RocInput(name, forecast.labels == 1, forecast.probabilities[:, 1], forecast.weights)
            for name, forecast in checked.items()
        ]
    else:
        curves = _one_against_rest(first)
    ax = style.axes_or_new(ax, height=SQUARE_HEIGHT)
    ax.plot([0, 1], [0, 1], **style.DIAGONAL)
    for index, (label, is_positive, probability, weights) in enumerate(curves):
        false_rate, true_rate, _ = roc_curve(is_positive, probability, sample_weight=weights)
        area = f"AUC {metrics.auc(probability, is_positive, weights):.3f}"
        name = f"{label}, {area}" if label else area
        ax.plot(false_rate, true_rate, linewidth=1.4, label=name, zorder=9 - index, **style.line_style(index))
    ax.set(xlim=(-0.01, 1), ylim=(0, 1.01), aspect="equal")
    positive_class = f" ({style.plain_label(first.targets[1], 14)})" if has_two_classes else ""
    style.label_axes(ax, "false positives", f"true positives{positive_class}")
    style.format_percent(ax.xaxis, ax.yaxis)
    style.add_legend(ax)
    return ax


def calibration(forecasts: Forecasts, *, bins: int | None = None, ax: Axes | None = None) -> Axes:
    """Draw calibration curves: how often something happened against its stated probability.

    With two classes, it is the second class; with more, that the most probable class is right. Bars are 95 %
    intervals (Wilson's). The label has the expected calibration error (ECE), over 15 bins of equal width.

    Parameters
    ----------
    forecasts : Forecast or dict from name to Forecast
        Forecasts of classes, such as `judge(run).forecast`.
    bins : int, optional
        Number of bins of equal width. By default there are up to ten bins of equally many examples, which
        also show rare events.
    ax : Axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    Axes

    See Also
    --------
    reliability : the same for arrays of probabilities, in bins of equal width.
    """
    if bins is not None:
        bins = whole("bins", bins, low=1)
    checked = _checked_forecasts(forecasts, classes=True)
    ax = style.axes_or_new(ax, height=SQUARE_HEIGHT)
    ax.plot([0, 1], [0, 1], **style.DIAGONAL)
    extent: list[float] = []
    for index, (label, forecast) in enumerate(checked.items()):
        p = forecast.probabilities
        if p.shape[1] == 2:
            stated, happened = p[:, 1], forecast.labels == 1
        else:
            stated, happened = p.max(axis=1), p.argmax(axis=1) == forecast.labels
        weights = np.ones(len(p)) if forecast.weights is None else forecast.weights
        curve = _bin_examples(stated, happened, weights, bins)
        error = metrics.calibration_error(forecast.mean, forecast.labels, weights=forecast.weights)
        extent += _draw_calibration_curve(ax, index, label, curve, error)
    low, high = max(min(extent) - ZOOM_WIDTH / 10, 0.0), min(max(extent) + ZOOM_WIDTH / 10, 1.0)
    limits = (low, high) if high - low < ZOOM_WIDTH else (0.0, 1.0)
    ax.set(xlim=limits, ylim=limits, aspect="equal")
    first = next(iter(checked.values()))
    second_class = f" of {style.plain_label(first.targets[1], 14)}" if len(first.targets) == 2 else ""
    style.label_axes(ax, f"predicted probability{second_class}", "observed frequency")
    style.format_percent(ax.xaxis, ax.yaxis)
    _limit_ticks(ax)
    style.add_legend(ax)
    return ax


def reliability(
    probability: ArrayLike | Mapping[str, ArrayLike],
    happened: ArrayLike,
    *,
    bins: int = 10,
    ax: Axes | None = None,
) -> Axes:
    """Draw a reliability diagram: `calibration` for arrays of probabilities, in bins of equal width.

    Bars are 95 % intervals (Wilson's). The label has the expected calibration error (ECE), the mean distance
    from the diagonal over the examples.

    Parameters
    ----------
    probability : array (examples,) or dict from name to array
        Probabilities of the second class; a dict holds several forecasts of the same examples.
    happened : array (examples,)
        1 for examples of the second class, 0 for the others.
    bins : int, optional
        Number of bins of equal width (default 10).
    ax : Axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    Axes

    Examples
    --------
    >>> import heatbath as hb
    >>> ax = hb.plotting.reliability([0.1, 0.2, 0.9, 0.8], [0, 0, 1, 0], bins=2)
    >>> ax.get_ylabel()
    'observed frequency'
    """
    bins = whole("bins", bins, low=1)
    by_label = probability if isinstance(probability, Mapping) else {"": probability}
    truth = numbers("happened", happened, (1, 2)).ravel()
    if not by_label or not truth.size or not np.isin(truth, (0.0, 1.0)).all():
        raise ValueError("reliability needs at least one forecast, and happened must hold 0 and 1")
    checked = {label: _checked_probabilities(label, p, len(truth)) for label, p in by_label.items()}
    ax = style.axes_or_new(ax, height=SQUARE_HEIGHT)
    ax.plot([0, 1], [0, 1], **style.DIAGONAL)
    for index, (label, stated) in enumerate(checked.items()):
        curve = _bin_examples(stated, truth, np.ones(len(truth)), bins)
        gaps = np.abs(curve.observed - curve.predicted)
        error = float(np.sum(curve.examples * gaps) / curve.examples.sum())
        _draw_calibration_curve(ax, index, label, curve, error)
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    style.label_axes(ax, "predicted probability", "observed frequency")
    style.add_legend(ax)
    return ax


def confusion(forecast: Forecast, *, ax: Axes | None = None) -> Axes:
    """Draw a confusion matrix: the numbers of examples by true class (rows) and predicted class (columns).

    Shades are fractions of a row. Up to ten classes have their counts in the cells.

    Parameters
    ----------
    forecast : Forecast
        A forecast of classes, such as `judge(run).forecast`.
    ax : Axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    Axes
    """
    (checked,) = _checked_forecasts(forecast, classes=True).values()
    counts = metrics.confusion(checked.mean, checked.labels, checked.weights)
    classes = len(counts)
    fractions = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1e-300)
    ax = style.axes_or_new(ax, height=min(1.3 + 0.4 * classes, 3.4))
    ax.imshow(fractions, cmap="Blues", vmin=0, vmax=1.15, aspect="auto")
    if classes <= MAX_CLASSES_WITH_COUNTS:
        for (row, column), count in np.ndenumerate(counts):
            colour = "white" if fractions[row, column] > 0.65 else "black"
            text = f"{count:,.4g}" if count else "·"
            ax.text(column, row, text, ha="center", va="center", fontsize=style.SMALL_SIZE, color=colour)
    _label_classes(ax, [style.plain_label(name, 14) for name in checked.targets])
    return ax


def _label_classes(ax: Axes, names: list[str]) -> None:
    """Label at most 20 rows and columns of a confusion matrix, and draw white lines between its cells."""
    classes = len(names)
    labelled = range(0, classes, -(-classes // 20))
    is_long = max(map(len, names)) * classes > 36
    rotation: dict[str, Any] = {"rotation": 90} if is_long else {}
    ax.set_xticks(labelled, [names[i] for i in labelled], **rotation)
    ax.set_yticks(labelled, [names[i] for i in labelled])
    style.label_axes(ax, "predicted", "true", box=True)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.set_xticks(np.arange(classes + 1) - 0.5, minor=True)
    ax.set_yticks(np.arange(classes + 1) - 0.5, minor=True)
    ax.grid(which="minor", color="white", linewidth=1.2)
    ax.tick_params(which="minor", length=0)


def predicted(forecast: Forecast, target: int = 0, *, ax: Axes | None = None) -> Axes:
    """Draw predicted values against true ones, with their 90 % intervals where these are known.

    Examples outside their interval have another colour. Of many examples only some are drawn; the legend
    counts all of them.

    Parameters
    ----------
    forecast : Forecast
        A forecast of values or counts, such as `judge(run).forecast`.
    target : int, optional
        Index of the target (default 0).
    ax : Axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    Axes
    """
    (checked,) = _checked_forecasts(forecast, classes=False).values()
    target = whole("target", target, low=0, high=checked.y.shape[1])
    has_intervals = checked.low is not None and checked.high is not None
    count = min(MAX_INTERVALS if has_intervals else MAX_DOTS, len(checked.y))
    rows = np.linspace(0, len(checked.y) - 1, count).astype(int)
    y, mean = checked.y[rows, target], checked.mean[rows, target]
    ax = style.axes_or_new(ax, height=SQUARE_HEIGHT)
    drawn = [y, mean]
    dots: dict[str, Any] = {"s": 11, "linewidths": 0, "zorder": 4, "alpha": 0.9 if len(rows) < 150 else 0.6}
    if checked.low is None or checked.high is None:
        ax.scatter(y, mean, color=style.COLOURS[0], **dots)
    else:
        low, high = checked.low[:, target], checked.high[:, target]
        is_inside = (low <= checked.y[:, target]) & (checked.y[:, target] <= high)
        low, high = low[rows], high[rows]
        groups = ((is_inside, style.COLOURS[0], "in its interval"), (~is_inside, style.COLOURS[1], "outside"))
        for is_member, colour, name in groups:
            members = is_member[rows]
            label = f"{name} ({np.count_nonzero(is_member):,} of {len(is_member):,})"
            ax.scatter(y[members], mean[members], color=colour, label=label, **dots)
            ax.vlines(
                y[members], low[members], high[members], color=colour, alpha=0.35, linewidth=1.0, zorder=2
            )
        drawn += [low, high]
    limits = _with_margin(
        float(min(min(values) for values in drawn)), float(max(max(values) for values in drawn))
    )
    ax.plot(limits, limits, **style.DIAGONAL)
    ax.set(xlim=_with_margin(float(y.min()), float(y.max())), ylim=limits)
    name = style.plain_label(checked.targets[target], 20)
    style.label_axes(ax, f"true {name}", f"predicted {name}")
    _limit_ticks(ax)
    for axis in (ax.xaxis, ax.yaxis):
        style.format_short_numbers(axis)
    style.add_legend(ax)
    return ax


def _with_margin(low: float, high: float) -> tuple[float, float]:
    """Return the limits of an axis for values from `low` to `high`, with a margin."""
    margin = 0.03 * (high - low) or 0.5
    return low - margin, high + margin


def _checked_forecasts(forecasts: object, classes: bool) -> dict[str, Forecast]:
    """Return forecasts by label after checking that they are all of classes, or all of values or counts."""
    by_label = (
        {str(k): v for k, v in forecasts.items()} if isinstance(forecasts, Mapping) else {"": forecasts}
    )
    checked = {label: forecast for label, forecast in by_label.items() if isinstance(forecast, Forecast)}
    if len(checked) < len(by_label) or not by_label:
        raise TypeError(
            f"a Forecast is needed, such as judge(run).forecast, or a dict of them; got {forecasts!r}"
        )
    if any(TASKS[forecast.task].classes != classes for forecast in checked.values()):
        needed = "classes" if classes else "values or counts"
        tasks = ", ".join(sorted({forecast.task for forecast in checked.values()}))
        raise ValueError(f"this picture is of {needed}, and these forecasts are of the task {tasks}")
    return checked


def _checked_probabilities(label: str, probability: ArrayLike, size: int) -> Floats:
    """Return probabilities as a flat array after checking their number and range."""
    name = f"probability{f' of {label!r}' if label else ''}"
    values = numbers(name, probability, (1, 2)).ravel()
    if len(values) != size or values.min() < 0 or values.max() > 1:
        raise ValueError(
            f"{name} must hold {size} numbers from 0 to 1, as many as happened; got {len(values)} "
            f"from {values.min(initial=np.inf):g} to {values.max(initial=-np.inf):g}"
        )
    return values


def _one_against_rest(forecast: Forecast) -> list[RocInput]:
    """Return each class against all others, or those with the smallest areas if there are many."""
    p, present = forecast.probabilities, np.unique(forecast.labels).astype(int)
    areas = {k: metrics.auc(p[:, k], forecast.labels == k, forecast.weights) for k in present}
    hardest = sorted(sorted(areas, key=areas.__getitem__)[:MAX_ROC_CURVES])
    return [
        RocInput(style.plain_label(forecast.targets[k]), forecast.labels == k, p[:, k], forecast.weights)
        for k in hardest
    ]


def _bin_examples(
    stated: Floats, happened: NDArray[Any], weights: Floats, bins: int | None
) -> CalibrationBins:
    """Return the statistics of examples in bins of their stated probability; empty bins are left out.

    Parameters
    ----------
    stated : array (examples,)
        Stated probabilities.
    happened : array (examples,)
        Whether it happened.
    weights : array (examples,)
        Weights of the examples.
    bins : int or None
        Number of bins of equal width; None makes up to ten bins of equally many examples.
    """
    if bins is None:
        count = int(np.clip(len(stated) // MIN_EXAMPLES_PER_BIN, 1, MAX_BINS))
        edges = np.unique(np.quantile(stated, np.linspace(0, 1, count + 1))[1:-1])
        index = np.searchsorted(edges, stated)
    else:
        index = np.minimum((stated * bins).astype(int), bins - 1)
    members = [index == k for k in np.unique(index)]
    predicted, observed = (
        np.array([np.average(values[rows], weights=weights[rows]) for rows in members])
        for values in (stated, happened)
    )
    return CalibrationBins(predicted, observed, np.array([effective(weights[rows]) for rows in members]))


def _draw_calibration_curve(
    ax: Axes, index: int, label: str, curve: CalibrationBins, error: float
) -> list[float]:
    """Draw a calibration curve with Wilson's intervals; return all its coordinates for the axes' limits.

    Parameters
    ----------
    ax : Axes
        Where to draw.
    index : int
        Number of the curve, which decides its colour and marker.
    label : str
        Name of the forecast, or "".
    curve : CalibrationBins
        Points of the curve.
    error : float
        Expected calibration error, for the legend.
    """
    low, high = wilson(curve.observed, curve.examples)
    name = f"{label} (ECE {error:.3f})" if label else f"ECE {error:.3f}"
    line_options = style.line_style(index) | {"marker": MARKERS[index % len(MARKERS)]}
    ax.plot(
        curve.predicted,
        curve.observed,
        markersize=4,
        linewidth=1.2,
        label=name,
        clip_on=False,
        **line_options,
    )
    ax.vlines(curve.predicted, low, high, color=line_options["color"], linewidth=0.9, clip_on=False)
    return [*low, *high, *curve.predicted]


def _limit_ticks(ax: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(MAX_TICKS))
