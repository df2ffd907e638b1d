"""Compare the averaged prediction of a sampler with that of the single network: scores, verdict, picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from heatbath._internal.warnings import WorseThanSingleWarning, warn
from heatbath.datasets.problem import Floats
from heatbath.datasets.tasks import TASKS, Task, each_class
from heatbath.diagnostics.statistics import Measured, student
from heatbath.evaluation import metrics
from heatbath.evaluation.forecasts import COVERAGE, Forecast, find_measure, measure
from heatbath.prediction.predictive_distributions import POISSON, Mixture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DIGITS = 4  # of a score after the decimal point


class NoiseVariances(NamedTuple):
    """Variances of the data around the outputs: of each sampled network, and of the single network."""

    sampled: Floats  # (networks,), or (1,) where all have the same
    single: float


@dataclass(frozen=True, eq=False, repr=False)
class Report:
    """Scores of the averaged prediction and of the single network, on the same examples.

    Attributes
    ----------
    forecasts : dict
        Both predictions with the targets, as "averaged" and "single", for `heatbath.plotting`.
    averaged, single : dict
        Scores by name. Each is a `Measured` with its 95 % interval over the examples, which are taken to be
        independent.
    difference : Measured
        Log score of the average minus that of the single network, paired by example: the average is better
        where it's below 0. Half the squared error takes the place of the log score where the law of the data
        is not known.

    Examples
    --------
    >>> import torch
    >>> from heatbath.torch import Report
    >>> averaged, single = torch.tensor([[0.9, 0.1], [0.2, 0.8]]), torch.tensor([[0.6, 0.4], [0.4, 0.6]])
    >>> report = Report.of_classes("classes", [0, 1], averaged, single)
    >>> report.averaged["log_loss"].value < report.single["log_loss"].value
    True
    """

    forecasts: dict[str, Forecast]
    averaged: dict[str, Measured]
    single: dict[str, Measured]
    difference: Measured

    @classmethod
    def of_classes(cls, task: Task, y: ArrayLike, averaged: Tensor, single: Tensor) -> Report:
        """Return the report for a classification.

        Parameters
        ----------
        task
            "classes" or "binary".
        y
            Class of each example.
        averaged, single
            Probabilities, (..., outputs).
        """
        averaged_rows = np.asarray(averaged).reshape(-1, averaged.shape[-1])
        single_rows = np.asarray(single).reshape(-1, single.shape[-1])
        labels = np.asarray(y, np.float64).reshape(-1, 1)  # a row for each prediction
        if len(labels) != len(averaged_rows):
            raise ValueError(
                f"report: there must be one target for each prediction, got {len(averaged_rows)} "
                f"predictions and {len(labels)} targets"
            )
        metrics.accuracy(averaged_rows, labels)  # refuses targets that are not indices of classes

        class_count = each_class(averaged_rows).shape[1]
        names = tuple(map(str, range(class_count)))
        averaged_forecast = Forecast(task, names, labels, averaged_rows)
        single_forecast = Forecast(task, names, labels, single_rows)
        return cls._compare(averaged_forecast, single_forecast)

    @classmethod
    def of_values(
        cls, task: Task, y: ArrayLike, values: Floats, single: Tensor, noise: NoiseVariances | None
    ) -> Report:
        """Return the report for a regression or for counts.

        Parameters
        ----------
        task
            "regression" or "counts".
        y
            Targets.
        values
            Values or rates of each sampled network, (networks, examples, ..., outputs).
        single
            Those of the single network, (examples, ..., outputs).
        noise
            Variances of the data; None for counts, and where the law of the data is not known.
        """
        networks = values.reshape(*values.shape[:2], -1)
        targets = np.asarray(y, np.float64)
        targets = targets.reshape(len(targets), -1)
        if targets.shape != networks.shape[1:]:
            raise ValueError(
                "report: targets and outputs must have the same shape, got targets of shape "
                f"{targets.shape} and outputs of shape {networks.shape[1:]}"
            )

        single_network = np.asarray(single).reshape(1, *networks.shape[1:])
        sampled_noise = None if noise is None else noise.sampled
        single_noise = None if noise is None else np.array([noise.single])
        averaged_forecast = _forecast_values(task, targets, networks, sampled_noise)
        single_forecast = _forecast_values(task, targets, single_network, single_noise)
        return cls._compare(averaged_forecast, single_forecast)

    @classmethod
    def _compare(cls, averaged: Forecast, single: Forecast) -> Report:
        """Return the report of two forecasts of the same examples.

        A warning says if the averaged one is worse by more than chance.
        """
        forecasts = {"averaged": averaged, "single": single}
        difference = _example_losses(averaged) - _example_losses(single)  # lower is better
        report = cls(forecasts, measure(averaged), measure(single), student(difference))
        if report.difference.low > 0:
            warn(
                "on these examples the averaged prediction is worse than that of the single network: its "
                f"log score is larger by {report.difference.text(digits=DIGITS)}. Where it is too uncertain, "
                "a cold posterior (temperature=0.1) or another prior may help; see the report",
                WorseThanSingleWarning,
            )
        return report

    def plot(self, *, ax: Axes | None = None) -> Axes:
        """Plot the reliability of both forecasts of classes, or the averaged forecast against the targets.

        Parameters
        ----------
        ax
            Axes to draw on; None for new ones.
        """
        from heatbath import plotting

        if TASKS[self.forecasts["averaged"].task].classes:
            return plotting.calibration(self.forecasts, ax=ax)
        return plotting.predicted(self.forecasts["averaged"], ax=ax)

    def __repr__(self) -> str:
        """Return a table of the scores, a row for each score, and the verdict as text."""
        example_count = len(self.forecasts["averaged"].y)
        rows = [("", "averaged", "single"), *map(self._score_row, self.averaged)]
        difference = self.difference.text(digits=DIGITS)
        lines = [
            f"Report of {example_count:,} examples",
            *_table_lines(rows),
            f"log score, averaged minus single: {difference}: {self._verdict}",
        ]
        return "\n".join(lines)

    def _score_row(self, name: str) -> tuple[str, str, str]:
        """Return the label of a score, and its text for the averaged and for the single prediction."""
        measure_of_score, target = find_measure(name)
        label = measure_of_score.label
        if target:
            label += f" of {target}"
        is_share = measure_of_score.percent
        averaged_text = _score_text(self.averaged[name], is_share)
        return label, averaged_text, _score_text(self.single.get(name), is_share)

    @property
    def _verdict(self) -> str:
        """The verdict on the averaged prediction: "better", "worse" or no detectable difference."""
        if self.difference.high < 0:
            return "better"
        if self.difference.low > 0:
            return "worse"
        return "no detectable difference on these examples"


def _score_text(score: Measured | None, is_share: bool) -> str:
    """Return a score as text, in percent if it is a share; "" where there is none."""
    if score is None:
        return ""
    return score.percent() if is_share else score.text(digits=DIGITS)


def _table_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows of a table as lines of text, with columns that are aligned at the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join(cells).rstrip())
    return lines


def _forecast_values(task: Task, targets: Floats, networks: Floats, noise: Floats | None) -> Forecast:
    """Return the forecast that is the mixture of networks, with an interval where the law of data is known.

    Parameters
    ----------
    task
        "regression" or "counts".
    targets
        Targets, (examples, outputs).
    networks
        Values or rates of each network, (networks, examples, outputs).
    noise
        Variance of the data around each network, (networks,), or (1,) where all have the same; None where the
        law of the data is not known.
    """
    names = tuple(map(str, range(targets.shape[1])))
    mean = networks.mean(axis=0)
    if task == "counts":
        law = Mixture(networks, np.sqrt(networks), POISSON)
    elif noise is not None:
        deviations = np.sqrt(noise)[:, None]
        law = Mixture(networks, np.broadcast_to(deviations, (len(networks), len(names))))
    else:
        return Forecast(task, names, targets, mean)
    low, high = law.interval(COVERAGE)
    return Forecast(task, names, targets, mean, low, high, law.log_density(targets))


def _example_losses(forecast: Forecast) -> Floats:
    """Return the log score of each example; half its squared error where no law is known."""
    if TASKS[forecast.task].classes:
        return metrics.log_scores(forecast.mean, forecast.labels)
    if forecast.log_density is None:
        return metrics.losses(forecast.task, forecast.mean, forecast.y)
    losses = -forecast.log_density.sum(axis=1)
    return np.asarray(np.where(np.isfinite(losses), losses, -math.log(metrics.FLOOR)))
