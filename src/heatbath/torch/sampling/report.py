"""What an averaged prediction is worth, beside that of the single network: measures, a verdict, a picture."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from heatbath._internal.warnings import warn
from heatbath.datasets.tasks import TASKS, Task, each_class
from heatbath.diagnostics.statistics import Measured, student
from heatbath.evaluation import metrics
from heatbath.evaluation.forecasts import COVERAGE, Forecast, find_measure, measure
from heatbath.prediction.predictive_distributions import POISSON, Mixture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
from heatbath._internal.warnings import WorseThanSingleWarning

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class Report:
    """Measures of the averaged prediction and of the single network, by name, on the same examples.

    Each is a `Measured`, with its 95 % interval over the examples, which are taken to be independent.
    `difference` is how much larger the log score of the average is (half the squared error, where the law of
    the data is not known), paired: below 0 the average is better. `forecasts` are what both say beside what
    is true, for `heatbath.plotting`.
    """

    forecasts: dict[str, Forecast]
    averaged: dict[str, Measured]
    single: dict[str, Measured]
    difference: Measured

    @classmethod
    def of_classes(cls, task: Task, y: NDArray[Any], averaged: Tensor, single: Tensor) -> Report:
        """Of probabilities (..., outputs), and the classes."""
        means = [np.asarray(said).reshape(-1, said.shape[-1]) for said in (averaged, single)]
        truth = np.asarray(y, np.float64).reshape(-1, 1)
        if len(truth) != len(means[0]):
            raise ValueError(
                f"report: {len(means[0])} predictions and {len(truth)} targets do not go together"
            )
        metrics.accuracy(means[0], truth)  # which refuses what are no classes
        names = tuple(map(str, range(each_class(means[0]).shape[1])))
        both = [Forecast(task, names, truth, mean) for mean in means]
        each = [metrics.log_scores(one.mean, one.labels) for one in both]
        return cls._made(both, each[0] - each[1])

    @classmethod
    def of_values(
        cls,
        task: Task,
        y: NDArray[Any],
        every: Floats,
        single: Tensor,
        noise: tuple[Floats, float] | None,
    ) -> Report:
        """Of what each of many networks says, (networks, examples, outputs), and the single one; `noise` has
        the variances of the data around them. Without, and where it is no count, the law is not known."""
        means = [every.reshape(*every.shape[:2], -1), np.asarray(single).reshape(1, every.shape[1], -1)]
        truth = np.asarray(y, np.float64).reshape(len(y), -1)
        if truth.shape != means[0].shape[1:]:
            raise ValueError(
                f"report: targets of shape {truth.shape} and outputs of {means[0].shape[1:]} do not go "
                "together"
            )
        names = tuple(map(str, range(truth.shape[1])))
        both = []
        for place, mean in enumerate(means):
            law = None
            if task == "counts":
                law = Mixture(mean, np.sqrt(mean), POISSON)
            elif noise is not None:
                deviations = np.sqrt(np.atleast_1d(noise[place]))[:, None]
                law = Mixture(mean, np.broadcast_to(deviations, (len(mean), len(names))))
            low, high = (None, None) if law is None else law.interval(COVERAGE)
            density = None if law is None else law.log_density(truth)
            both.append(Forecast(task, names, truth, mean.mean(axis=0), low, high, density))
        return cls._made(both, _loss(both[0]) - _loss(both[1]))

    @classmethod
    def _made(cls, both: list[Forecast], difference: Floats) -> Report:
        averaged, single = both
        report = cls(
            {"averaged": averaged, "single": single}, measure(averaged), measure(single), student(difference)
        )
        if report.difference.low > 0:
            warn(
                f"on these examples the averaged prediction is worse than that of the single network: its "
                f"log score is larger by {report.difference.text(digits=4)}. Where it is too unsure, a cold "
                "posterior (temperature=0.1) or another prior may help; see the report",
                WorseThanSingleWarning,
            )
        return report

    def plot(self, *, ax: Axes | None = None) -> Axes:
        """Reliability diagram of both, of classes; of values, predicted against true with intervals."""
        from heatbath import plotting

        if TASKS[self.forecasts["averaged"].task].classes:
            return plotting.calibration(self.forecasts, ax=ax)
        return plotting.predicted(self.forecasts["averaged"], ax=ax)

    def __repr__(self) -> str:
        rows: list[tuple[str, ...]] = [("", "averaged", "single")]
        for name in self.averaged:
            one, target = find_measure(name)
            label = f"{one.label} of {target}" if target else one.label
            percent = (100, 1, " %") if one.percent else (1.0, 4, "")
            cells = (
                found[name].text(*percent) if name in found else "" for found in (self.averaged, self.single)
            )
            rows.append((label, *cells))
        widths = [max(len(row[i]) for row in rows) for i in range(3)]
        lines = [
            "  ".join(f"{cell:<{w}}" for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows
        ]
        gap = self.difference
        verdict = "better" if gap.high < 0 else "worse" if gap.low > 0 else "not told apart by these examples"
        lines.append(f"log score, averaged less single: {gap.text(digits=4)}: {verdict}")
        return "\n".join([f"Report of {len(self.forecasts['averaged'].y):,} examples", *lines])


def _loss(said: Forecast) -> Floats:
    """What is compared of each example: -log density, or half the squared error where no law is known."""
    if said.log_density is None:
        return np.asarray(0.5 * np.square(said.mean - said.y).sum(axis=1))
    each = -said.log_density.sum(axis=1)
    return np.asarray(np.where(np.isfinite(each), each, -math.log(metrics.FLOOR)))
