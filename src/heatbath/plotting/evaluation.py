"""Draw forecasts beside the truth: ROC curves, calibration, confusion, predicted against true values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from heatbath._internal.checks import whole
from heatbath.datasets.problem import Floats, numbers
from heatbath.datasets.tasks import TASKS
from heatbath.diagnostics.statistics import effective, wilson
from heatbath.evaluation import Forecast, metrics
from heatbath.plotting import style
from heatbath.plotting.style import Axes

Forecasts = Forecast | Mapping[str, Forecast]
MARKERS = "os^DvPX"
SQUARE_HEIGHT = 3.4  # inches, of a figure with square Axes
MAX_ROC_CURVES = 6  # of several classes: those that are hardest to tell from the others
MAX_CLASSES_WITH_COUNTS = 10  # classes for which a confusion matrix has numbers
MAX_CLASS_LABELS = 20  # on an axis of a confusion matrix
MAX_LABEL_CHARACTERS = 36  # that fit beside each other below a confusion matrix
MAX_TICKS = 5  # numbers on an axis
MAX_DOTS = 400  # examples drawn without intervals
MAX_INTERVALS = 150  # examples drawn with intervals
ZOOM_WIDTH = 0.5  # a calibration curve that spans less than this is drawn on axes of its own range
MAX_BINS = 10  # of equally many examples, in a calibration curve
MIN_EXAMPLES_PER_BIN = 10
MAX_NAME_LENGTH = 14  # characters of a class in a label
DARK_SHADE = 0.65  # fraction of a row from which on a cell needs white numbers
FAINT_DOTS = 150  # from this number on, dots are more transparent


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
    first_forecast = next(iter(checked.values()))
    if len(np.unique(first_forecast.labels)) < 2:
        raise ValueError("a ROC curve needs examples of two classes, and these are all of one")
    if len(first_forecast.targets) == 2:
        curves = [
            RocInput(name, forecast.labels == 1, forecast.probabilities[:, 1], forecast.weights)
            for name, forecast in checked.items()
        ]
        positive_class = style.plain_label(first_forecast.targets[1], MAX_NAME_LENGTH)
        y_label = f"true positives ({positive_class})"
    else:
        curves = _one_against_rest(first_forecast)
        y_label = "true positives"

    ax = style.axes_or_new(ax, height=SQUARE_HEIGHT)
    ax.plot([0, 1], [0, 1], **style.DIAGONAL)
    for index, (label, is_positive, probability, weights) in enumerate(curves):
        false_rate, true_rate, _ = roc_curve(is_positive, probability, sample_weight=weights)
        area = f"AUC {metrics.auc(probability, is_positive, weights):.3f}"
        name = f"{label}, {area}" if label else area
        ax.plot(false_rate, true_rate, linewidth=1.4, label=name, zorder=9 - index, **style.line_style(index))

    ax.set(xlim=(-0.01, 1), ylim=(0, 1.01), aspect="equal")
    style.label_axes(ax, "false positives", y_label)
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
    coordinates: list[float] = []
    for index, (label, forecast) in enumerate(checked.items()):
        curve = _bin_examples(*_judged_event(forecast), bins)
        error = metrics.calibration_error(forecast.mean, forecast.labels, weights=forecast.weights)
        coordinates += _draw_calibration_curve(ax, index, label, curve, error)

    limits = _zoom_limits(coordinates)
    ax.set(xlim=limits, ylim=limits, aspect="equal")
    x_label = "predicted probability"
    targets = next(iter(checked.values())).targets
    if len(targets) == 2:
        x_label += f" of {style.plain_label(targets[1], MAX_NAME_LENGTH)}"
    style.label_axes(ax, x_label, "observed frequency")
    style.format_percent(ax.xaxis, ax.yaxis)
    _limit_ticks(ax)
    style.add_legend(ax)
    return ax


def _zoom_limits(coordinates: list[float]) -> tuple[float, float]:
    """Return limits of probabilities around coordinates if these span little, otherwise 0 and 1."""
    margin = ZOOM_WIDTH / 10
    low = max(min(coordinates) - margin, 0.0)
    high = min(max(coordinates) + margin, 1.0)
    return (low, high) if high - low < ZOOM_WIDTH else (0.0, 1.0)


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
    stated_by_label = {
        label: _checked_probabilities(label, stated, len(truth)) for label, stated in by_label.items()
    }

    ax = style.axes_or_new(ax, height=SQUARE_HEIGHT)
    ax.plot([0, 1], [0, 1], **style.DIAGONAL)
    for index, (label, stated) in enumerate(stated_by_label.items()):
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
    class_count = len(counts)
    row_sums = counts.sum(axis=1, keepdims=True)
    fractions = counts / np.maximum(row_sums, 1e-300)  # of a row; 0 if it is empty

    ax = style.axes_or_new(ax, height=min(1.3 + 0.4 * class_count, SQUARE_HEIGHT))
    ax.imshow(fractions, cmap="Blues", vmin=0, vmax=1.15, aspect="auto")
    if class_count <= MAX_CLASSES_WITH_COUNTS:
        for (row, column), count in np.ndenumerate(counts):
            colour = "white" if fractions[row, column] > DARK_SHADE else "black"
            text = f"{count:,.4g}" if count else "·"
            ax.text(column, row, text, ha="center", va="center", fontsize=style.SMALL_SIZE, color=colour)
    _label_classes(ax, [style.plain_label(name, MAX_NAME_LENGTH) for name in checked.targets])
    return ax


def _label_classes(ax: Axes, names: list[str]) -> None:
    """Label the classes of a confusion matrix on both axes, and draw white lines between its cells.

    Cell i is centred at position i. Of more than MAX_CLASS_LABELS classes only every second, third, ... is
    labelled, and labels that need more room than the x axis has are vertical.
    """
    class_count = len(names)
    labelled = range(0, class_count, math.ceil(class_count / MAX_CLASS_LABELS))
    labels = [names[i] for i in labelled]
    is_vertical = max(map(len, names)) * class_count > MAX_LABEL_CHARACTERS
    rotation: dict[str, Any] = {"rotation": 90} if is_vertical else {}
    ax.set_xticks(labelled, labels, **rotation)
    ax.set_yticks(labelled, labels)
    style.label_axes(ax, "predicted", "true", box=True)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)

    cell_edges = np.arange(class_count + 1) - 0.5
    ax.set_xticks(cell_edges, minor=True)
    ax.set_yticks(cell_edges, minor=True)
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
    most_examples = MAX_INTERVALS if has_intervals else MAX_DOTS
    example_count = min(most_examples, len(checked.y))
    shown = np.linspace(0, len(checked.y) - 1, example_count).astype(int)
    y = checked.y[shown, target]
    mean = checked.mean[shown, target]

    ax = style.axes_or_new(ax, height=SQUARE_HEIGHT)
    opacity = 0.9 if example_count < FAINT_DOTS else 0.6
    dots: dict[str, Any] = {"s": 11, "linewidths": 0, "zorder": 4, "alpha": opacity}
    if has_intervals:
        low, high = _draw_with_intervals(ax, checked, target, shown, dots)
        limits = _with_margin(y, mean, low, high)
    else:
        ax.scatter(y, mean, color=style.COLOURS[0], **dots)
        limits = _with_margin(y, mean)

    ax.plot(limits, limits, **style.DIAGONAL)
    ax.set(xlim=_with_margin(y), ylim=limits)
    name = style.plain_label(checked.targets[target], 20)
    style.label_axes(ax, f"true {name}", f"predicted {name}")
    _limit_ticks(ax)
    style.format_short_numbers(ax.xaxis)
    style.format_short_numbers(ax.yaxis)
    style.add_legend(ax)
    return ax


def _draw_with_intervals(
    ax: Axes, forecast: Forecast, target: int, shown: NDArray[np.int64], dots: dict[str, Any]
) -> tuple[Floats, Floats]:
    """Draw predicted values with their intervals; examples inside and outside have two colours.

    Parameters
    ----------
    ax : Axes
        Where to draw.
    forecast : Forecast
        A forecast with intervals. The legend counts all its examples.
    target : int
        Index of the target.
    shown : array
        Indices of the examples to draw.
    dots : dict
        Options of the dots, for `Axes.scatter`.

    Returns
    -------
    low, high : arrays (shown,)
        Ends of the intervals that were drawn.
    """
    columns = (forecast.y, forecast.mean, forecast.low, forecast.high)
    y, mean, low, high = (np.asarray(column)[:, target] for column in columns)
    is_inside = (low <= y) & (y <= high)
    bars: dict[str, Any] = {"alpha": 0.35, "linewidth": 1.0, "zorder": 2}
    groups = ((is_inside, style.COLOURS[0], "in its interval"), (~is_inside, style.COLOURS[1], "outside"))
    for is_member, colour, name in groups:
        members = shown[is_member[shown]]
        label = f"{name} ({np.count_nonzero(is_member):,} of {len(is_member):,})"
        ax.scatter(y[members], mean[members], color=colour, label=label, **dots)
        ax.vlines(y[members], low[members], high[members], color=colour, **bars)
    return low[shown], high[shown]


def _with_margin(*arrays: Floats) -> tuple[float, float]:
    """Return the limits of an axis that shows all values of some arrays, with a margin."""
    lowest = float(min(map(min, arrays)))
    highest = float(max(map(max, arrays)))
    margin = 0.03 * (highest - lowest) or 0.5
    return lowest - margin, highest + margin


def _checked_forecasts(forecasts: object, classes: bool) -> dict[str, Forecast]:
    """Return forecasts by label after checking their type and their task.

    Parameters
    ----------
    forecasts : Forecast or dict from name to Forecast
        What the user passed. The label of a single forecast is empty.
    classes : bool
        True if the forecasts must be of classes, False if they must be of values or counts.
    """
    by_label = forecasts if isinstance(forecasts, Mapping) else {"": forecasts}
    checked = {str(label): item for label, item in by_label.items() if isinstance(item, Forecast)}
    if not checked or len(checked) < len(by_label):
        raise TypeError(
            f"a Forecast is needed, such as judge(run).forecast, or a dict of them; got {forecasts!r}"
        )
    tasks = sorted({forecast.task for forecast in checked.values()})
    if any(TASKS[task].classes != classes for task in tasks):
        needed = "classes" if classes else "values or counts"
        raise ValueError(
            f"this picture is of {needed}, and these forecasts are of the task {', '.join(tasks)}"
        )
    return checked


def _checked_probabilities(label: str, probability: ArrayLike, size: int) -> Floats:
    """Return probabilities as a flat array after checking that they are `size` numbers from 0 to 1.

    `label` names them in errors.
    """
    name = f"probability of {label!r}" if label else "probability"
    stated = numbers(name, probability, (1, 2)).ravel()
    if len(stated) != size or stated.min() < 0 or stated.max() > 1:
        raise ValueError(
            f"{name} must hold {size} numbers from 0 to 1, as many as happened; got {len(stated)} "
            f"from {stated.min(initial=np.inf):g} to {stated.max(initial=-np.inf):g}"
        )
    return stated


def _one_against_rest(forecast: Forecast) -> list[RocInput]:
    """Return a ROC curve of each class against all others; of many classes, those with the smallest areas."""
    p = forecast.probabilities
    present = np.unique(forecast.labels).astype(int)
    areas = {k: metrics.auc(p[:, k], forecast.labels == k, forecast.weights) for k in present}
    hardest = sorted(areas, key=areas.__getitem__)[:MAX_ROC_CURVES]
    return [
        RocInput(style.plain_label(forecast.targets[k]), forecast.labels == k, p[:, k], forecast.weights)
        for k in sorted(hardest)
    ]


def _judged_event(forecast: Forecast) -> tuple[Floats, NDArray[np.bool_], Floats]:
    """Return the stated probability of an event for each example, whether it happened, and the weights.

    The event is the second of two classes; with more classes, that the most probable class is right.
    """
    p = forecast.probabilities
    weights = np.ones(len(p)) if forecast.weights is None else forecast.weights
    if p.shape[1] == 2:
        return p[:, 1], forecast.labels == 1, weights
    return p.max(axis=1), p.argmax(axis=1) == forecast.labels, weights


def _bin_examples(
    stated: Floats, happened: NDArray[Any], weights: Floats, bins: int | None
) -> CalibrationBins:
    """Return the points of a calibration curve: examples in bins of the stated probability of an event.

    Empty bins are left out.

    Parameters
    ----------
    stated : array (examples,)
        Stated probabilities of the event.
    happened : array (examples,)
        1 or True where the event happened.
    weights : array (examples,)
        Weights of the examples.
    bins : int or None
        Number of bins of equal width; None makes up to ten bins of equally many examples.
    """
    if bins is None:
        bin_count = int(np.clip(len(stated) // MIN_EXAMPLES_PER_BIN, 1, MAX_BINS))
        inner_edges = np.unique(np.quantile(stated, np.linspace(0, 1, bin_count + 1))[1:-1])
        bin_index = np.searchsorted(inner_edges, stated)
    else:
        bin_index = np.minimum((stated * bins).astype(int), bins - 1)  # a probability of 1 is in the last bin

    members = [bin_index == k for k in np.unique(bin_index)]
    predicted = [np.average(stated[rows], weights=weights[rows]) for rows in members]
    observed = [np.average(happened[rows], weights=weights[rows]) for rows in members]
    example_counts = [effective(weights[rows]) for rows in members]
    return CalibrationBins(np.array(predicted), np.array(observed), np.array(example_counts))


def _draw_calibration_curve(
    ax: Axes, index: int, label: str, curve: CalibrationBins, error: float
) -> list[float]:
    """Draw a calibration curve with Wilson's intervals; return its coordinates for the limits of the axes.

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
    legend_label = f"{label} (ECE {error:.3f})" if label else f"ECE {error:.3f}"
    line_options = style.line_style(index)
    dots: dict[str, Any] = {"marker": MARKERS[index % len(MARKERS)], "markersize": 4, "clip_on": False}
    ax.plot(curve.predicted, curve.observed, linewidth=1.2, label=legend_label, **line_options, **dots)
    ax.vlines(curve.predicted, low, high, color=line_options["color"], linewidth=0.9, clip_on=False)
    return [*low, *high, *curve.predicted]


def _limit_ticks(ax: Axes) -> None:
    """Set at most MAX_TICKS round numbers on both axes."""
    from matplotlib.ticker import MaxNLocator

    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(MAX_TICKS))
