"""Evaluate a run: its averaged prediction, its single networks, a constant and a linear model.

All are judged on the same examples.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heatbath.datasets.problem import Floats
from heatbath.datasets.tasks import TASKS
from heatbath.diagnostics.statistics import Measured, student
from heatbath.evaluation.baseline_models import (
    LINEAR_MODELS,
    EvaluationExamples,
    constant_forecast,
    evaluation_examples,
    linear_forecast,
)
from heatbath.evaluation.forecasts import BRIEF_MEASURES, COVERAGE, Forecast, find_measure, measure
from heatbath.evaluation.metrics import losses
from heatbath.runs.run import Run, check_run

MOST_NETWORKS = 100  # with more networks, single ones get the brief measures only
CHUNK = 1 << 22  # numbers that all networks predict at a time: 32 MB
FEWEST_TO_SPLIT = 4  # test examples: with fewer, the same ones choose the best point and evaluate it


@dataclass(frozen=True, eq=False)
class Answer:
    """Evaluation of a run's predictions.

    Attributes
    ----------
    examples
        The examples that it was evaluated on.
    averaged
        Measures of the averaged prediction, as `Run.predict` gives it, by name; their 95 % intervals are over
        examples. Empty where all chains diverged.
    single
        Measures of the chains' current networks, averaged over chains; their 95 % intervals are over chains.
    forecast
        The averaged prediction; None where all chains diverged.
    """

    examples: EvaluationExamples
    averaged: dict[str, Measured]
    single: dict[str, Measured]
    forecast: Forecast | None


@dataclass(frozen=True, eq=False)
class Choice:
    """The best of several points, and how it was chosen.

    Attributes
    ----------
    best
        Index of the best point; None if all chains of all points diverged.
    losses
        Mean loss of each point's averaged prediction; NaN where all its chains diverged.
    choose, tell
        Indices of the examples that choose the best point, and of those to evaluate it on.
    """

    best: int | None
    losses: list[float]
    choose: NDArray[np.int64]
    tell: NDArray[np.int64]

    @property
    def fair(self) -> bool:
        """True if no example that evaluates the best point helped to choose it."""
        return not np.intersect1d(self.choose, self.tell).size


def examples_of(run: Run) -> EvaluationExamples | None:
    """Return the examples that a run is evaluated on.

    They are its test examples, or its training examples if it has no test examples; of more than 10,000 an
    evenly spaced subset.

    Returns
    -------
    The examples, or None where the chains have different data sets.
    """
    draws = np.unique(run.data["draw"].values)
    return None if len(draws) > 1 else evaluation_examples(run.problem, int(draws[0]))


def judge(run: Run, examples: EvaluationExamples | None = None, brief: bool = False) -> Answer:
    """Evaluate the averaged prediction of a run and its single networks.

    Parameters
    ----------
    run
        A run of one point: of a sweep or comparison, select a point first.
    examples
        The examples to evaluate on; None takes those of `examples_of`.
    brief
        Compute the two most informative measures only, and no intervals of new data.

    Raises
    ------
    ValueError
        If the chains have different data sets, so that their predictions can't be averaged.

    Examples
    --------
    >>> import heatbath as hb
    >>> problem = hb.datasets.spirals(n_train=100, n_test=50)
    >>> run = hb.train(problem, hb.MLP((8,)), hb.LOL(h=0.1), steps=50, batch=10, chains=2)
    >>> sorted(hb.evaluation.judge(run, brief=True).averaged)
    ['accuracy', 'log_loss']
    """
    check_run(run, single=True)
    if examples is None:
        examples = examples_of(run)
    if examples is None:
        raise ValueError(
            "the chains have different data sets, so their predictions can't be averaged: select the chains "
            "of one data set"
        )
    if not (run.died < 0).any():
        return Answer(examples, {}, {}, None)

    has_many_networks = len(run.theta) > MOST_NETWORKS
    averaged_names = BRIEF_MEASURES if brief else None
    single_names = BRIEF_MEASURES if brief or has_many_networks else None
    forecast = run_forecast(run, examples, intervals=not brief)
    single = _single_network_measures(run, examples, single_names)
    return Answer(examples, measure(forecast, averaged_names), single, forecast)


def baselines(on: EvaluationExamples, brief: bool = False) -> dict[str, tuple[dict[str, Measured], Forecast]]:
    """Evaluate a constant prediction and a linear model.

    Parameters
    ----------
    on
        The examples to predict; both models are fitted to the training examples of the same data set.
    brief
        Compute the two most informative measures only.

    Returns
    -------
    Measures and forecast of each baseline: of "constant", and of the linear model under its own name, such as
    "ridge regression". There is no linear model where a target doesn't vary.
    """
    forecasts = {"constant": constant_forecast(on), LINEAR_MODELS[on.problem.task]: linear_forecast(on)}
    names = BRIEF_MEASURES if brief else None
    return {
        name: (measure(forecast, names), forecast)
        for name, forecast in forecasts.items()
        if forecast is not None
    }


def choose(run: Run, on: EvaluationExamples) -> Choice:
    """Choose the best point of a sweep, or the best method of a comparison.

    The best point has the smallest mean loss of the averaged prediction: log loss, squared error, or the
    Poisson loss. A random half of the test examples chooses; the other half is left to evaluate the choice.
    With fewer than four examples, or training examples only, all examples do both.

    Parameters
    ----------
    run
        The run of all points.
    on
        The examples, as `examples_of` gives them.
    """
    choosing = evaluating = np.arange(len(on))
    if on.split == "test" and len(on) >= FEWEST_TO_SPLIT:
        choosing, evaluating = np.array_split(np.random.default_rng(0).permutation(len(on)), 2)
    choosing_half = on.some(np.sort(choosing))
    point_losses = []
    for labels, _ in run.plan.points:
        point = run.select(**labels)
        point_loss = np.nan
        if (point.died < 0).any():
            point_loss = mean_loss(choosing_half, point.predict(choosing_half.raw).mean)
        point_losses.append(point_loss)
    best_point = None if np.isnan(point_losses).all() else int(np.nanargmin(point_losses))
    return Choice(best_point, point_losses, np.sort(choosing), np.sort(evaluating))


def difference(on: EvaluationExamples, one: Forecast, other: Forecast) -> Measured:
    """Return by how much the mean loss of one forecast exceeds that of another.

    Parameters
    ----------
    on
        The examples that both predict.
    one, other
        The forecasts.

    Returns
    -------
    Mean loss of `one` minus that of `other`, with the 95 % interval of the paired difference over examples.
    """
    return student(example_losses(on, one.mean) - example_losses(on, other.mean), weights=on.weights)


def mean_loss(examples: EvaluationExamples, mean: Floats) -> float:
    """Return the mean loss of predictions (examples, outputs), which are in the user's units.

    It is the log loss, the Poisson loss, or half the squared error in units of the targets' scale.
    """
    return float(np.average(example_losses(examples, mean), weights=examples.weights))


def example_losses(examples: EvaluationExamples, mean: Floats) -> Floats:
    """Return the loss of each example, (examples,); see `mean_loss`."""
    return np.asarray(target_losses(examples, mean).sum(axis=1))


def target_losses(examples: EvaluationExamples, mean: Floats) -> Floats:
    """Return the loss of each target of each example, (examples, targets); a class counts as one target."""
    problem = examples.problem
    if problem.task == "regression":
        mean = (mean - problem.target_shift) / problem.target_scale
    y = (examples.y - problem.target_shift) / problem.target_scale
    if TASKS[problem.task].classes:
        return losses(problem.task, mean, y)[:, None]
    columns = range(y.shape[1])
    return np.stack([losses(problem.task, mean[:, [column]], y[:, [column]]) for column in columns], axis=1)


def run_forecast(run: Run, examples: EvaluationExamples, intervals: bool = True) -> Forecast:
    """Return the averaged prediction of a run.

    Parameters
    ----------
    run
        A run of one point.
    examples
        The examples to predict.
    intervals
        True to add the intervals and the density of new data, if the run knows them: for counts, and for a
        regression with a posterior.
    """
    problem = run.problem
    X = examples.raw
    mean = run.predict(X).mean
    knows_noise = problem.task == "counts" or run.plan.points[0].partition.posterior is not None
    if TASKS[problem.task].classes or not knows_noise or not intervals:
        return examples.forecast(mean)

    # All networks predict a chunk of examples at a time, which limits the memory.
    networks = run.data.sizes.get("sample", 1) * len(run.theta)
    rows_at_a_time = max(1, CHUNK // (networks * problem.outputs))
    calibration = run.calibration()
    lows = []
    highs = []
    log_densities = []
    for start in range(0, len(examples), rows_at_a_time):
        rows = slice(start, start + rows_at_a_time)
        density = run.predictive(X[rows])
        low, high = calibration.interval(density, COVERAGE)
        lows.append(low)
        highs.append(high)
        log_densities.append(density.log_density(examples.y[rows]))
    interval = np.concatenate(lows), np.concatenate(highs)
    return examples.forecast(mean, interval, np.concatenate(log_densities))


def _single_network_measures(
    run: Run, examples: EvaluationExamples, names: Iterable[str] | None
) -> dict[str, Measured]:
    """Return the measures of the chains' current networks: means over chains, with Student's intervals.

    Parameters
    ----------
    run
        A run of one point; chains that diverged are left out.
    examples
        The examples to predict.
    names
        Names of the measures; None for all of the task.
    """
    likelihood = run.plan.likelihood
    by_chain = []
    for theta in run.theta[run.died < 0]:  # one network at a time, to need little memory
        outputs = run.network.forward(theta, examples.x, likelihood.outputs)
        by_chain.append(measure(examples.forecast(likelihood.values(outputs)), names))
    return {
        name: student([values[name].value for values in by_chain], bounds=find_measure(name)[0].bounds)
        for name in by_chain[0]
    }
