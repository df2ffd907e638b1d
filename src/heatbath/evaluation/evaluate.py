"""What a run is worth: its averaged prediction, and beside it its single networks, a constant and a linear
model, all on the same examples."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heatbath.datasets.problem import Floats
from heatbath.datasets.tasks import TASKS
from heatbath.diagnostics.statistics import Measured, student
from heatbath.evaluation.baseline_models import NAMES, EvaluationExamples, constant, judged, linear
from heatbath.evaluation.forecasts import BRIEF, COVERAGE, Forecast, find_measure, measure
from heatbath.evaluation.metrics import losses
from heatbath.runs.run import Run, check_run

MOST_NETWORKS = 100  # of which all measures are taken; of more the brief ones
AT_ONCE = 1 << 22  # numbers of all networks at a time: 32 MB
FEWEST = 4  # examples of which half may choose, and half may tell


@dataclass(frozen=True, eq=False)
class Answer:
    """What a run is worth, on `examples`: measures by name, with their 95 % intervals.

    `averaged` is of what all its networks say together, as `Run.predict` gives it, and `forecast` what that
    is; None where all chains diverged. `single` are means over its chains as they are now. The intervals of
    `averaged` are over examples, those of `single` over chains.
    """

    examples: EvaluationExamples
    averaged: dict[str, Measured]
    single: dict[str, Measured]
    forecast: Forecast | None


@dataclass(frozen=True, eq=False)
class Choice:
    """The best of several points: its number, the mean loss of the averaged prediction of each (NaN where all
    chains diverged), and which examples have chosen and which tell; `fair` if these are different ones."""

    best: int | None
    losses: list[float]
    choose: NDArray[np.int64]
    tell: NDArray[np.int64]

    @property
    def fair(self) -> bool:
        """Whether what tells has had no part in the choice."""
        return not np.intersect1d(self.choose, self.tell).size


def examples_of(run: Run) -> EvaluationExamples | None:
    """The test examples of a run, or those that it was trained on where it has none; of many, some.

    None where its chains have different data sets.
    """
    draws = np.unique(run.data["draw"].values)
    return None if len(draws) > 1 else judged(run.problem, int(draws[0]))


def judge(run: Run, examples: EvaluationExamples | None = None, brief: bool = False) -> Answer:
    """What a run is worth, on its test examples (or its training examples, where it has none) or on those
    that are given. `brief`: by the two most telling measures only."""
    check_run(run, single=True)
    on = examples_of(run) if examples is None else examples
    if on is None:
        raise ValueError(
            "the chains have different data sets: there is no averaged prediction of one of them"
        )
    names = BRIEF if brief else None
    few = BRIEF if brief or len(run.theta) > MOST_NETWORKS else None
    if not (run.died < 0).any():
        return Answer(on, {}, {}, None)
    said = forecast_of(run, on, intervals=not brief)
    return Answer(on, measure(said, names), _single(run, on, few), said)


def baselines(on: EvaluationExamples, brief: bool = False) -> dict[str, tuple[dict[str, Measured], Forecast]]:
    """The measures of a constant prediction and of a linear model, by name, and what they say."""
    said = {"constant": constant(on), NAMES[on.problem.task]: linear(on)}
    names = BRIEF if brief else None
    return {name: (measure(one, names), one) for name, one in said.items() if one is not None}


def choose(run: Run, on: EvaluationExamples) -> Choice:
    """The best point of a sweep or method of a comparison, by half of the examples: the other half tells.

    It is the one with the least mean loss of its averaged prediction (log loss, squared error, or that of
    counts). Of fewer than four examples, and of training examples, all choose and all tell.
    """
    everything = np.arange(len(on))
    first, second = everything, everything
    if on.split == "test" and len(on) >= FEWEST:
        first, second = np.array_split(np.random.default_rng(0).permutation(len(on)), 2)
    half = on.some(np.sort(first))
    found = []
    for labels, _ in run.plan.points:
        one = run.select(**labels)
        alive = bool((one.died < 0).any())
        found.append(mean_loss(half, one.predict(half.raw).mean) if alive else np.nan)
    best = None if np.isnan(found).all() else int(np.nanargmin(found))
    return Choice(best, found, np.sort(first), np.sort(second))


def difference(on: EvaluationExamples, one: Forecast, other: Forecast) -> Measured:
    """How much larger the mean loss of one forecast is than that of another of the same examples, with its
    interval over these, paired."""
    return student(each_loss(on, one.mean) - each_loss(on, other.mean), weights=on.weights)


def mean_loss(on: EvaluationExamples, mean: Floats) -> float:
    """The mean loss of a prediction: log loss, that of counts, or half the squared error in units of the
    scale of the targets."""
    return float(np.average(each_loss(on, mean), weights=on.weights))


def each_loss(on: EvaluationExamples, mean: Floats) -> Floats:
    """What `mean_loss` is the mean of, (examples,)."""
    return np.asarray(each_loss_of_targets(on, mean).sum(axis=1))


def each_loss_of_targets(on: EvaluationExamples, mean: Floats) -> Floats:
    """The same for each of several targets, (examples, targets); of classes there is one."""
    problem = on.problem
    if problem.task == "regression":
        mean = (mean - problem.target_shift) / problem.target_scale
    y = (on.y - problem.target_shift) / problem.target_scale
    if TASKS[problem.task].classes:
        return losses(problem.task, mean, y)[:, None]
    columns = [losses(problem.task, mean[:, [k]], y[:, [k]]) for k in range(y.shape[1])]
    return np.stack(columns, axis=1)


def forecast_of(run: Run, on: EvaluationExamples, intervals: bool = True) -> Forecast:
    """What the networks of a run say together, with the law of new data where that is known."""
    problem, X = run.problem, on.raw
    mean = run.predict(X).mean
    of_data = problem.task == "counts" or run.plan.points[0].partition.posterior is not None
    if TASKS[problem.task].classes or not of_data or not intervals:
        return on.forecast(mean)
    networks = run.data.sizes.get("sample", 1) * len(run.theta)
    step = max(1, AT_ONCE // (networks * problem.outputs))
    calibration, parts = run.calibration(), []
    for first in range(0, len(on), step):
        rows = slice(first, first + step)
        law = run.predictive(X[rows])
        parts.append((*calibration.interval(law, COVERAGE), law.log_density(on.y[rows])))
    low, high, density = (np.concatenate(part) for part in zip(*parts, strict=True))
    return on.forecast(mean, (low, high), density)


def _single(run: Run, on: EvaluationExamples, names: Iterable[str] | None) -> dict[str, Measured]:
    """The measures of each network as it is now: means over chains, with Student's intervals."""
    likelihood, each = run.plan.likelihood, []
    for theta in run.theta[run.died < 0]:  # one at a time, to need little memory
        said = likelihood.values(run.network.forward(theta, on.x, likelihood.outputs))
        each.append(measure(on.forecast(said), names))
    return {
        name: student([one[name].value for one in each], bounds=find_measure(name)[0].bounds)
        for name in each[0]
    }
