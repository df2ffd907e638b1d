"""Pictures of forecasts beside what is true: ROC curves, calibration, confusion, predicted against true."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from heatbath._internal.checks import whole
from heatbath.datasets.problem import numbers
from heatbath.diagnostics.statistics import wilson
from heatbath.plotting.style import (
    COLOURS,
    SMALL,
    axes_or_new,
    dress,
    key,
    look,
    percent_on,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


from typing import TYPE_CHECKING

from heatbath.datasets.tasks import TASKS
from heatbath.diagnostics.statistics import effective
from heatbath.evaluation import Forecast, metrics
from heatbath.plotting.style import as_text, short_on

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]
MARKERS = "os^DvPX"


def reliability(
    probability: ArrayLike | Mapping[str, ArrayLike],
    happened: ArrayLike,
    *,
    bins: int = 10,
    ax: Axes | None = None,
) -> Axes:
    """Calibration: how often something happened against how probable it was said to be.

    `probability` (examples,) is that of the second class, and `happened` is 1 where the example was of that
    class and 0 elsewhere; several forecasts of the same examples are a dict by name. The examples are put in
    `bins` of equal width; bars are 95 % intervals (Wilson's). The label has the expected calibration error
    (ECE), the mean distance from the diagonal over the examples.
    """
    bins = whole("bins", bins, low=1)
    given = probability if isinstance(probability, Mapping) else {"": probability}
    truth = numbers("happened", happened, (1, 2)).ravel()
    if not given or not truth.size or not np.isin(truth, (0.0, 1.0)).all():
        raise ValueError("reliability needs at least one forecast, and happened must hold 0 and 1")
    checked = {label: _checked_forecast(label, forecast, len(truth)) for label, forecast in given.items()}
    ax = axes_or_new(ax, height=3.4)
    ax.plot([0, 1], [0, 1], color="0.6", linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
    for place, (label, forecast) in enumerate(checked.items()):
        predicted, rate, count = _equal_width_bins(forecast, truth, bins)
        low, high = wilson(rate, count)
        error = float(np.sum(count * np.abs(rate - predicted)) / count.sum())
        name = f"{label} (ECE {error:.3f})" if label else f"ECE {error:.3f}"
        style = look(place) | {"marker": MARKERS[place % len(MARKERS)]}
        ax.plot(predicted, rate, markersize=4, linewidth=1.2, label=name, clip_on=False, **style)
        ax.vlines(predicted, low, high, color=style["color"], linewidth=0.9, clip_on=False)
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    dress(ax, "predicted probability", "observed frequency")
    key(ax)
    return ax


def _checked_forecast(label: str, forecast: ArrayLike, size: int) -> Floats:
    name = f"probability{f' of {label!r}' if label else ''}"
    values = numbers(name, forecast, (1, 2)).ravel()
    if len(values) != size or values.min() < 0 or values.max() > 1:
        raise ValueError(
            f"{name} must hold {size} numbers from 0 to 1, as many as happened; got {len(values)} "
            f"from {values.min(initial=np.inf):g} to {values.max(initial=-np.inf):g}"
        )
    return values


def _equal_width_bins(forecast: Floats, truth: Floats, bins: int) -> tuple[Floats, Floats, Floats]:
    """Mean probability, observed frequency and number of examples of each bin that has any."""
    place = np.minimum((forecast * bins).astype(int), bins - 1)
    count = np.bincount(place, minlength=bins).astype(float)
    filled = count > 0
    predicted = np.bincount(place, forecast, bins)[filled] / count[filled]
    rate = np.bincount(place, truth, bins)[filled] / count[filled]
    return predicted, rate, count[filled]


MOST_CURVES = 6  # of several classes: those that are told apart worst
MOST_NUMBERS = 10  # classes whose numbers are written into the cells
MOST_DOTS, MOST_BARS = 400, 150  # examples that are drawn, without their intervals and with them
CORNER = 0.5  # probabilities that are closer together have a corner of the picture to themselves
BINS, IN_BIN = 10, 10  # of the calibration, at most, and examples in each, at least
DIAGONAL: dict[str, Any] = {"color": "0.6", "linewidth": 0.8, "linestyle": (0, (4, 3)), "zorder": 1}
Forecasts = Forecast | Mapping[str, Forecast]


def roc(forecasts: Forecasts, *, ax: Axes | None = None) -> Axes:
    """ROC curves: how many examples of a class are found against how many others are taken for it.

    Of two classes a curve for each forecast of a dict by name; of more a curve for each class of the first
    forecast against all others, and of more than six for those that are told apart worst.
    """
    from sklearn.metrics import roc_curve

    checked = _checked(forecasts, classes=True)
    first = next(iter(checked.values()))
    if len(np.unique(first.labels)) < 2:
        raise ValueError("a ROC curve needs examples of two classes, and these are all of one")
    lines = [
        (name, said.labels == 1, said.probabilities[:, 1], said.weights) for name, said in checked.items()
    ]
    lines = lines if len(first.targets) == 2 else _against_others(first)
    ax = axes_or_new(ax, height=3.4)
    ax.plot([0, 1], [0, 1], **DIAGONAL)
    for place, (label, truth, said, weights) in enumerate(lines):
        wrong, right, _ = roc_curve(truth, said, sample_weight=weights)
        area = f"AUC {metrics.auc(said, truth, weights):.3f}"
        name = f"{label}, {area}" if label else area
        ax.plot(wrong, right, linewidth=1.4, label=name, zorder=9 - place, **look(place))
    ax.set(xlim=(-0.01, 1), ylim=(0, 1.01), aspect="equal")
    of_second = f" ({as_text(first.targets[1], 14)})" if len(first.targets) == 2 else ""
    dress(ax, "false positives", f"true positives{of_second}")
    for axis in (ax.xaxis, ax.yaxis):
        percent_on(axis)
    key(ax)
    return ax


def calibration(forecasts: Forecasts, *, ax: Axes | None = None) -> Axes:
    """Calibration: how often something happened against how probable it was said to be.

    Of two classes it is the second, of more that the most probable class is right. The examples are put in up
    to ten bins of equally many, so that rare events are seen, too; bars are 95 % intervals (Wilson's). The
    label has the expected calibration error (ECE). For bins of equal width see `reliability`.
    """
    checked = _checked(forecasts, classes=True)
    ax = axes_or_new(ax, height=3.4)
    ax.plot([0, 1], [0, 1], **DIAGONAL)
    seen: list[float] = []
    for place, (label, said) in enumerate(checked.items()):
        p = said.probabilities
        two = p.shape[1] == 2
        stated = p[:, 1] if two else p.max(axis=1)
        happened = said.labels == 1 if two else p.argmax(axis=1) == said.labels
        weights = np.ones(len(p)) if said.weights is None else said.weights
        predicted, rate, count = _binned(stated, happened, weights)
        low, high = wilson(rate, count)
        error = f"ECE {metrics.calibration_error(said.mean, said.labels, weights=said.weights):.3f}"
        style = look(place) | {"marker": "os^Dv"[place % 5]}
        name = f"{label}, {error}" if label else error
        ax.plot(predicted, rate, markersize=4, linewidth=1.2, label=name, clip_on=False, **style)
        ax.vlines(predicted, low, high, color=style["color"], linewidth=0.9, clip_on=False)
        seen += [*low, *high, *predicted]
    first, last = max(min(seen) - CORNER / 10, 0.0), min(max(seen) + CORNER / 10, 1.0)
    ends = (first, last) if last - first < CORNER else (0.0, 1.0)
    ax.set(xlim=ends, ylim=ends, aspect="equal")
    one = next(iter(checked.values()))
    of_second = f" of {as_text(one.targets[1], 14)}" if len(one.targets) == 2 else ""
    dress(ax, f"predicted probability{of_second}", "observed frequency")
    for axis in (ax.xaxis, ax.yaxis):
        percent_on(axis)
        axis.set_major_locator(_few())
    key(ax)
    return ax


def confusion(forecast: Forecast, *, ax: Axes | None = None) -> Axes:
    """How many examples of each class (rows) were taken for each (columns); shades are shares of a row."""
    (said,) = _checked(forecast, classes=True).values()
    counts = metrics.confusion(said.mean, said.labels, said.weights)
    classes = len(counts)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1e-300)
    ax = axes_or_new(ax, height=min(1.3 + 0.4 * classes, 3.4))
    ax.imshow(shares, cmap="Blues", vmin=0, vmax=1.15, aspect="auto")
    if classes <= MOST_NUMBERS:
        for (row, column), count in np.ndenumerate(counts):
            colour = "white" if shares[row, column] > 0.65 else "black"
            text = f"{count:,.4g}" if count else "·"
            ax.text(column, row, text, ha="center", va="center", fontsize=SMALL, color=colour)
    names = [as_text(name, 14) for name in said.targets]
    step = -(-classes // 20)
    shown = range(0, classes, step)
    long = max(map(len, names)) * classes > 36
    turned: dict[str, Any] = {"rotation": 90} if long else {}
    ax.set_xticks(shown, [names[i] for i in shown], **turned)
    ax.set_yticks(shown, [names[i] for i in shown])
    dress(ax, "predicted", "true", box=True)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.set_xticks(np.arange(classes + 1) - 0.5, minor=True)
    ax.set_yticks(np.arange(classes + 1) - 0.5, minor=True)
    ax.grid(which="minor", color="white", linewidth=1.2)
    ax.tick_params(which="minor", length=0)
    return ax


def predicted(forecast: Forecast, target: int = 0, *, ax: Axes | None = None) -> Axes:
    """Predicted values against true ones, with the intervals that are to hold 90 % of them.

    Those that miss are in another colour. Of many examples some are drawn; the legend counts all.
    """
    (said,) = _checked(forecast, classes=False).values()
    target = whole("target", target, low=0, high=said.y.shape[1])
    known = said.low is not None and said.high is not None
    rows = np.linspace(0, len(said.y) - 1, min(MOST_BARS if known else MOST_DOTS, len(said.y))).astype(int)
    y, mean = said.y[rows, target], said.mean[rows, target]
    ax = axes_or_new(ax, height=3.4)
    drawn = [y, mean]
    dots: dict[str, Any] = {"s": 11, "linewidths": 0, "zorder": 4, "alpha": 0.9 if len(rows) < 150 else 0.6}
    if said.low is None or said.high is None:
        ax.scatter(y, mean, color=COLOURS[0], **dots)
    else:
        low, high = said.low[:, target], said.high[:, target]
        held = (low <= said.y[:, target]) & (said.y[:, target] <= high)
        low, high = low[rows], high[rows]
        for kind, colour, name in ((held, COLOURS[0], "in its interval"), (~held, COLOURS[1], "outside")):
            own = kind[rows]
            count = f" ({np.count_nonzero(kind):,} of {len(kind):,})"
            ax.scatter(y[own], mean[own], color=colour, label=f"{name}{count}", **dots)
            ax.vlines(y[own], low[own], high[own], color=colour, alpha=0.35, linewidth=1.0, zorder=2)
        drawn += [low, high]
    limits = _wider(*(float(end(end(v) for v in drawn)) for end in (min, max)))
    ax.plot(limits, limits, **DIAGONAL)
    ax.set(xlim=_wider(float(y.min()), float(y.max())), ylim=limits)
    name = as_text(said.targets[target], 20)
    dress(ax, f"true {name}", f"predicted {name}")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(_few())
        short_on(axis)
    key(ax)
    return ax


def _wider(low: float, high: float) -> tuple[float, float]:
    """The ends of an axis, with a margin."""
    margin = 0.03 * (high - low) or 0.5
    return low - margin, high + margin


def _checked(given: object, classes: bool) -> dict[str, Forecast]:
    """Forecasts by label, all of classes, or none."""
    forecasts = {str(k): v for k, v in given.items()} if isinstance(given, Mapping) else {"": given}
    checked = {label: one for label, one in forecasts.items() if isinstance(one, Forecast)}
    if len(checked) < len(forecasts) or not forecasts:
        raise TypeError(f"a Forecast is needed, as judge(run).forecast is, or a dict of them; got {given!r}")
    if any(TASKS[one.task].classes != classes for one in checked.values()):
        kind = "classes" if classes else "values or counts"
        raise ValueError(f"this picture is of {kind}, and these are of another task")
    return checked


def _against_others(said: Forecast) -> list[tuple[str, NDArray[np.bool_], Floats, Floats | None]]:
    """Each class against all others, or those that are told apart worst."""
    p, there = said.probabilities, np.unique(said.labels).astype(int)
    areas = {k: metrics.auc(p[:, k], said.labels == k, said.weights) for k in there}
    shown = sorted(sorted(areas, key=areas.__getitem__)[:MOST_CURVES])
    return [(as_text(said.targets[k]), said.labels == k, p[:, k], said.weights) for k in shown]


def _binned(stated: Floats, happened: NDArray[Any], weights: Floats) -> tuple[Floats, Floats, Floats]:
    """Mean probability, observed frequency and number of examples, of bins of equally many."""
    bins = int(np.clip(len(stated) // IN_BIN, 1, BINS))
    edges = np.unique(np.quantile(stated, np.linspace(0, 1, bins + 1))[1:-1])
    place = np.searchsorted(edges, stated)
    rows = [place == k for k in np.unique(place)]
    said, rate = (
        np.array([np.average(values[own], weights=weights[own]) for own in rows])
        for values in (stated, happened)
    )
    return said, rate, np.array([effective(weights[own]) for own in rows])


def _few() -> Any:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(5)
