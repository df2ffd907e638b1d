"""Measure how good forecasts are, each measure with its 95 % interval over the examples.

The interval of a share is Wilson's, that of a mean of shares and of the area under a ROC curve Newcombe's,
and all others are Student's, on a scale that keeps them within the bounds of the measure. The calibration
error has no interval: a resampled set of examples is always worse calibrated than the original one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from heatbath.datasets.problem import Floats
from heatbath.datasets.tasks import TASKS, Task, each_class
from heatbath.diagnostics.statistics import SHARES, UNBOUNDED, Measured, area, effective, frequency, student
from heatbath.evaluation import metrics

COVERAGE = 0.9  # the share of new data that the intervals of a forecast should hold
POSITIVE = (0.0, math.inf)


@dataclass(frozen=True, eq=False)
class Forecast:
    """Predictions of some examples beside what happened, in the units of the user's data.

    Attributes
    ----------
    task
        The task of the problem.
    targets
        Names of the classes, or of the target columns.
    y
        Observed labels, counts or values, (examples, columns).
    mean
        Predictions, (examples, outputs), as `Run.predict` returns them.
    low, high
        Ends of the 90 % intervals of values or counts, (examples, outputs); None where the distribution of
        new data isn't known.
    log_density
        Logarithm of the predicted density at `y`, (examples, outputs); None where it isn't known.
    weights
        How often each example counts, (examples,); None counts each once.
    """

    task: Task
    targets: tuple[str, ...]
    y: Floats
    mean: Floats
    low: Floats | None = None
    high: Floats | None = None
    log_density: Floats | None = None
    weights: Floats | None = None

    @property
    def labels(self) -> Floats:
        """Indices of the true classes, (examples,)."""
        return self.y[:, 0]

    @property
    def probabilities(self) -> Floats:
        """Probability of each class, (examples, classes)."""
        return each_class(self.mean)


Rule: TypeAlias = Callable[[Forecast, int], Measured | None]  # of a forecast and the index of a target


@dataclass(frozen=True)
class Measure:
    """A measure of forecasts.

    Attributes
    ----------
    label
        Its name in tables.
    bounds
        The least and the largest value that it can have.
    larger
        True if larger values are better.
    rule
        Function that computes it for one target; it returns None where the measure isn't defined.
    percent
        True if tables show it in per cent.
    unit
        True if it has the unit of the data.
    """

    label: str
    bounds: tuple[float, float]
    larger: bool
    rule: Rule
    percent: bool = False
    unit: bool = False


def _accuracy(forecast: Forecast, _: int) -> Measured:
    is_right = forecast.probabilities.argmax(axis=1) == forecast.labels
    return frequency(is_right, weights=forecast.weights)


def _balanced_accuracy(forecast: Forecast, _: int) -> Measured:
    is_right = forecast.probabilities.argmax(axis=1) == forecast.labels
    return frequency(is_right, forecast.labels, forecast.weights)


def _auc(forecast: Forecast, _: int) -> Measured | None:
    """Return the area under the ROC curve; its interval is the mean of those of the classes.

    The mean is right even if the errors of all classes have the same sign.
    """
    labels = forecast.labels
    value = metrics.auc(forecast.mean, labels, forecast.weights)
    if math.isnan(value):
        return None
    w = np.ones(len(labels)) if forecast.weights is None else forecast.weights
    classes = np.unique(labels)
    scored_classes = classes[1:] if len(forecast.targets) == 2 else classes
    class_areas = []
    for label in scored_classes:
        is_in_class = labels == label
        class_areas.append(area(value, effective(w[is_in_class]), effective(w[~is_in_class])))
    low, high = np.array(class_areas)[:, 1:].mean(axis=0).tolist()
    return Measured(value, low, high)


def _log_loss(forecast: Forecast, _: int) -> Measured:
    scores = metrics.log_scores(forecast.mean, forecast.labels)
    return student(scores, bounds=POSITIVE, weights=forecast.weights)


def _brier(forecast: Forecast, _: int) -> Measured:
    scores = metrics.brier_scores(forecast.mean, forecast.labels)
    largest = float(min(forecast.mean.shape[1], 2))
    return student(scores, bounds=(0.0, largest), weights=forecast.weights)


def _calibration_error(forecast: Forecast, _: int) -> Measured:
    value = metrics.calibration_error(forecast.mean, forecast.labels, weights=forecast.weights)
    return Measured(value, math.nan, math.nan)


def _mean_squared_error(forecast: Forecast, target: int) -> Measured:
    errors = np.square(forecast.mean[:, target] - forecast.y[:, target])
    return student(errors, bounds=POSITIVE, weights=forecast.weights)


def _rmse(forecast: Forecast, target: int) -> Measured:
    value, low, high = _mean_squared_error(forecast, target)
    return Measured(math.sqrt(value), math.sqrt(low), math.sqrt(high))


def _r2(forecast: Forecast, target: int) -> Measured | None:
    """Return R²; its interval is that of the squared error, over the variance of these targets."""
    value = metrics.r2(forecast.mean[:, target], forecast.y[:, target], forecast.weights)
    if math.isnan(value):
        return None
    error, low, high = _mean_squared_error(forecast, target)
    variance = error / (1 - value) if value < 1 else 1.0
    return Measured(value, 1 - high / variance, 1 - low / variance)


def _mae(forecast: Forecast, target: int) -> Measured:
    errors = np.abs(forecast.mean[:, target] - forecast.y[:, target])
    return student(errors, bounds=POSITIVE, weights=forecast.weights)


def _coverage(forecast: Forecast, target: int) -> Measured | None:
    if forecast.low is None or forecast.high is None:
        return None
    y = forecast.y[:, target]
    is_inside = (forecast.low[:, target] <= y) & (y <= forecast.high[:, target])
    return frequency(is_inside, weights=forecast.weights)


def _width(forecast: Forecast, target: int) -> Measured | None:
    if forecast.low is None or forecast.high is None:
        return None
    widths = (forecast.high - forecast.low)[:, target]
    return student(widths, bounds=POSITIVE, weights=forecast.weights)


def _log_score(forecast: Forecast, target: int) -> Measured | None:
    if forecast.log_density is None:
        return None
    bounds = POSITIVE if forecast.task == "counts" else UNBOUNDED
    return student(-forecast.log_density[:, target], bounds=bounds, weights=forecast.weights)


CLASS_MEASURES: dict[str, Measure] = {
    "accuracy": Measure("accuracy", SHARES, True, _accuracy, percent=True),
    "balanced_accuracy": Measure("balanced accuracy", SHARES, True, _balanced_accuracy, percent=True),
    "auc": Measure("area under the ROC curve", SHARES, True, _auc),
    "log_loss": Measure("log loss", POSITIVE, False, _log_loss),
    "brier": Measure("Brier score", POSITIVE, False, _brier),
    "calibration_error": Measure("calibration error", SHARES, False, _calibration_error),
}
VALUE_MEASURES: dict[str, Measure] = {
    "r2": Measure("R²", (-math.inf, 1.0), True, _r2),
    "rmse": Measure("RMSE", POSITIVE, False, _rmse, unit=True),
    "mae": Measure("mean absolute error", POSITIVE, False, _mae, unit=True),
    "coverage": Measure("coverage of 90 % intervals", SHARES, True, _coverage, percent=True),
    "width": Measure("their mean width", POSITIVE, False, _width, unit=True),
    "log_score": Measure("log score", UNBOUNDED, False, _log_score),
}
BRIEF_MEASURES = ("accuracy", "log_loss", "r2", "rmse")  # for each of many points or networks


def measures_of(task: Task) -> dict[str, Measure]:
    """Return the measures of a task by name, the most informative first."""
    return CLASS_MEASURES if TASKS[task].classes else VALUE_MEASURES


def measure(said: Forecast, names: Iterable[str] | None = None) -> dict[str, Measured]:
    """Compute the measures of a forecast, with their 95 % intervals over the examples.

    Parameters
    ----------
    said
        The forecast.
    names
        Names of the measures to compute; None computes all that the task has.

    Returns
    -------
    Measures by name. With several targets each has its own, `rmse_length` for example. Measures that aren't
    defined for these examples, or need a density that the forecast doesn't have, are left out.
    """
    measures = measures_of(said.task)
    chosen = [name for name in measures if names is None or name in names]
    endings = [""] if TASKS[said.task].classes else suffixes(said.targets)
    values: dict[str, Measured] = {}
    for target, ending in enumerate(endings):
        for name in chosen:
            value = measures[name].rule(said, target)
            if value is not None:
                values[f"{name}{ending}"] = value
    return values


def suffixes(targets: tuple[str, ...]) -> list[str]:
    """Return the endings of the measures' names, one for each target; a single target has none."""
    return [""] if len(targets) == 1 else [f"_{target}" for target in targets]


def find_measure(name: str) -> tuple[Measure, str]:
    """Return the measure that a name such as `rmse_length` stands for, and the target at its end, or ""."""
    for measures in (CLASS_MEASURES, VALUE_MEASURES):
        for key, entry in measures.items():
            if name == key or name.startswith(f"{key}_"):
                return entry, name[len(key) + 1 :]
    known = ", ".join([*CLASS_MEASURES, *VALUE_MEASURES])
    raise ValueError(f"there is no measure {name!r}; there are {known}")
