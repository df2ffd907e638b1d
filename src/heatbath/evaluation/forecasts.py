"""Forecasts: what is said of examples beside what is true of them, and how good that is.

Every measure has an interval over the examples: of a share Wilson's, of a mean of shares and of the area
under a ROC curve Newcombe's, of all others Student's, on a scale that keeps it within the bounds of the
measure. The calibration error has none: examples drawn anew are always worse calibrated than those there are.
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

COVERAGE = 0.9  # of the intervals that are judged
POSITIVE = (0.0, math.inf)


@dataclass(frozen=True, eq=False)
class Forecast:
    """What is said of examples, in the units of the user's data: `mean` (examples, outputs), as
    `Run.predict` gives it, and what is true, `y` (examples, columns); `targets` are the names of the classes
    or of the columns.

    Of values and counts also, where the law of new data is known, the ends of their 90 % intervals, `low` and
    `high`, and the logarithm of the density at what is true, all (examples, outputs). `weights` (examples,)
    say how often each counts.
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
        """The classes, (examples,)."""
        return self.y[:, 0]

    @property
    def probabilities(self) -> Floats:
        """Of each class, (examples, classes)."""
        return each_class(self.mean)


Rule: TypeAlias = Callable[[Forecast, int], Measured | None]  # of the column of this number


@dataclass(frozen=True)
class Measure:
    """A measure of forecasts: what it is called, its bounds, whether larger is better, and its rule, None
    where it is not known of a forecast. Shares are shown in `percent`; what has a `unit` is in that of the
    data.
    """

    label: str
    bounds: tuple[float, float]
    larger: bool
    rule: Rule
    percent: bool = False
    unit: bool = False


def _accuracy(said: Forecast, _: int) -> Measured:
    right = said.probabilities.argmax(axis=1) == said.labels
    return frequency(right, weights=said.weights)


def _balanced_accuracy(said: Forecast, _: int) -> Measured:
    right = said.probabilities.argmax(axis=1) == said.labels
    return frequency(right, said.labels, said.weights)


def _auc(said: Forecast, _: int) -> Measured | None:
    """Of several classes the mean of those of each: they may all be off together."""
    value = metrics.auc(said.mean, said.labels, said.weights)
    if math.isnan(value):
        return None
    w = np.ones(len(said.labels)) if said.weights is None else said.weights
    classes = np.unique(said.labels)
    own = [said.labels == k for k in (classes[1:] if len(said.targets) == 2 else classes)]
    sizes = [(effective(w[rows]), effective(w[~rows])) for rows in own]
    ends = np.array([area(value, *both) for both in sizes])
    return Measured(value, *ends[:, 1:].mean(axis=0).tolist())


def _log_loss(said: Forecast, _: int) -> Measured:
    return student(metrics.log_scores(said.mean, said.labels), bounds=POSITIVE, weights=said.weights)


def _brier(said: Forecast, _: int) -> Measured:
    each = metrics.brier_scores(said.mean, said.labels)
    return student(each, bounds=(0.0, float(min(said.mean.shape[1], 2))), weights=said.weights)


def _calibration_error(said: Forecast, _: int) -> Measured:
    value = metrics.calibration_error(said.mean, said.labels, weights=said.weights)
    return Measured(value, math.nan, math.nan)


def _squares(said: Forecast, place: int) -> Measured:
    errors = np.square(said.mean[:, place] - said.y[:, place])
    return student(errors, bounds=POSITIVE, weights=said.weights)


def _rmse(said: Forecast, place: int) -> Measured:
    return Measured(*(math.sqrt(end) for end in _squares(said, place)))


def _r2(said: Forecast, place: int) -> Measured | None:
    """Its interval is that of the squared error beside the variance of these targets."""
    value = metrics.r2(said.mean[:, place], said.y[:, place], said.weights)
    if math.isnan(value):
        return None
    error, low, high = _squares(said, place)
    variance = error / (1 - value) if value < 1 else 1.0
    return Measured(value, 1 - high / variance, 1 - low / variance)


def _mae(said: Forecast, place: int) -> Measured:
    errors = np.abs(said.mean[:, place] - said.y[:, place])
    return student(errors, bounds=POSITIVE, weights=said.weights)


def _coverage(said: Forecast, place: int) -> Measured | None:
    if said.low is None or said.high is None:
        return None
    y = said.y[:, place]
    inside = (said.low[:, place] <= y) & (y <= said.high[:, place])
    return frequency(inside, weights=said.weights)


def _width(said: Forecast, place: int) -> Measured | None:
    if said.low is None or said.high is None:
        return None
    return student((said.high - said.low)[:, place], bounds=POSITIVE, weights=said.weights)


def _log_score(said: Forecast, place: int) -> Measured | None:
    if said.log_density is None:
        return None
    bounds = POSITIVE if said.task == "counts" else UNBOUNDED
    return student(-said.log_density[:, place], bounds=bounds, weights=said.weights)


OF_CLASSES: dict[str, Measure] = {
    "accuracy": Measure("accuracy", SHARES, True, _accuracy, percent=True),
    "balanced_accuracy": Measure("balanced accuracy", SHARES, True, _balanced_accuracy, percent=True),
    "auc": Measure("area under the ROC curve", SHARES, True, _auc),
    "log_loss": Measure("log loss", POSITIVE, False, _log_loss),
    "brier": Measure("Brier score", POSITIVE, False, _brier),
    "calibration_error": Measure("calibration error", SHARES, False, _calibration_error),
}
OF_VALUES: dict[str, Measure] = {
    "r2": Measure("R²", (-math.inf, 1.0), True, _r2),
    "rmse": Measure("RMSE", POSITIVE, False, _rmse, unit=True),
    "mae": Measure("mean absolute error", POSITIVE, False, _mae, unit=True),
    "coverage": Measure("coverage of 90 % intervals", SHARES, True, _coverage, percent=True),
    "width": Measure("their mean width", POSITIVE, False, _width, unit=True),
    "log_score": Measure("log score", UNBOUNDED, False, _log_score),
}
BRIEF = ("accuracy", "log_loss", "r2", "rmse")  # what is said of each of many


def measures_of(task: Task) -> dict[str, Measure]:
    """The measures of a task, the most telling first."""
    return OF_CLASSES if TASKS[task].classes else OF_VALUES


def measure(said: Forecast, names: Iterable[str] | None = None) -> dict[str, Measured]:
    """The measures of a forecast, or those with these names, with their intervals over the examples.

    Of several targets each has its own, `rmse_length` and so on. What is not known is left out.
    """
    own = measures_of(said.task)
    columns = [""] if TASKS[said.task].classes else suffixes(said.targets)
    found: dict[str, Measured] = {}
    for place, column in enumerate(columns):
        for name in own if names is None else [name for name in own if name in names]:
            if (value := own[name].rule(said, place)) is not None:
                found[f"{name}{column}"] = value
    return found


def suffixes(targets: tuple[str, ...]) -> list[str]:
    """What the names of measures end in, for each target: nothing, if there is one."""
    return [""] if len(targets) == 1 else [f"_{target}" for target in targets]


def find_measure(name: str) -> tuple[Measure, str]:
    """The measure that a name in a table means, and the target that it is of, if several have it."""
    for own in (OF_CLASSES, OF_VALUES):
        for key, one in own.items():
            if name == key or name.startswith(f"{key}_"):
                return one, name[len(key) + 1 :]
    raise ValueError(f"there is no measure {name!r}; there are {', '.join([*OF_CLASSES, *OF_VALUES])}")
