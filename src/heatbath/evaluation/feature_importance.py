"""Find which columns of the data a run's predictions depend on, and how.

Both questions are put to some of the run's networks and some examples, so that they take little time beside
training. A column of a table that was encoded as several features counts as one, and its features move
together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from heatbath.datasets import Problem
from heatbath.datasets.problem import Floats, moments
from heatbath.diagnostics.statistics import Measured, student
from heatbath.evaluation.baseline_models import EvaluationExamples
from heatbath.evaluation.evaluate import example_losses, examples_of
from heatbath.models.dense import ACTIVATIONS, MLP
from heatbath.prediction.predictive_distributions import central
from heatbath.runs.run import Run, check_run

IMPORTANCE_NETWORKS = 16
SHUFFLES = 3  # permutations of each column
MOST_EXAMPLES, FEWEST_EXAMPLES = 500, 50  # for the importance
MOST_WORK = 3e8  # columns x shuffles x networks x examples x units: about a second
BAND_NETWORKS, BAND_EXAMPLES = 48, 200  # for a dependence with its band
GRID = 25  # values of a number at which a dependence is computed
EDGE = 0.02  # share of the examples on each side of a number that a curve leaves out
MOST_SINGLE_VALUES = 6  # different values of a column that are shown one by one
PRESENT_BELOW = 0.5  # the feature that marks missing numbers is 1 for these, and otherwise 0
FIRST_YEAR = 2000.0  # encoders count years from it
BAND = 0.9  # share of the networks that a band holds


@dataclass(frozen=True)
class Importance:
    """Importance of a column: how much worse predictions become without its information.

    Attributes
    ----------
    column
        Name of the column.
    rise
        Rise of the loss when the column's values are permuted among the examples, with its 95 % interval over
        examples: in a regression the fall of R², otherwise in nats.
    """

    column: str
    rise: Measured


@dataclass(frozen=True, eq=False)
class Dependence:
    """The mean prediction if all examples had the same value of a column, for several values.

    Attributes
    ----------
    column
        Name of the column.
    values
        Numbers, (values,), or None where the column has categories.
    labels
        Names of the categories; empty for numbers.
    mean
        Mean prediction over networks and examples, (values, outputs).
    low, high
        Ends of the band that holds 90 % of the networks, (values, outputs).
    marks
        Deciles of a number; empty otherwise.
    """

    column: str
    values: Floats | None
    labels: tuple[str, ...]
    mean: Floats
    low: Floats
    high: Floats
    marks: Floats


def column_features(problem: Problem) -> dict[str, list[int]]:
    """Return the indices of the features that each column of the user's data became."""
    if problem.encoder is None:
        return {name: [index] for index, name in enumerate(problem.features)}
    return problem.encoder.groups()


def importance(run: Run, examples: EvaluationExamples | None = None) -> list[Importance]:
    """Compute how much each column matters to the averaged prediction (permutation importance).

    Columns that carry the same information stand in for one another: permuting one of them alone changes
    little.

    Parameters
    ----------
    run
        A run of one point, whose chains have the same data set.
    examples
        The examples whose loss is measured; None takes those of `examples_of`.

    Returns
    -------
    The columns with their importance, the most important first.

    Raises
    ------
    ValueError
        If the chains have different data sets, or all have diverged.
    """
    all_examples = _checked_examples(run, examples)
    columns = column_features(run.problem)
    units = max([*run.network.hidden, run.plan.likelihood.outputs])
    most_examples = min(MOST_EXAMPLES, len(all_examples))
    work = len(columns) * IMPORTANCE_NETWORKS * units * most_examples  # of one shuffle
    shuffles = int(np.clip(MOST_WORK / work, 1, SHUFFLES))
    fewest_examples = min(FEWEST_EXAMPLES, most_examples)
    example_count = int(np.clip(MOST_WORK / work * most_examples, fewest_examples, most_examples))
    chosen_examples = _evenly_spaced(all_examples, example_count)

    networks = _NetworkSubset(run, chosen_examples, IMPORTANCE_NETWORKS)
    losses = _loss_function(chosen_examples)
    usual_losses = losses(networks.mean_prediction())
    inputs = chosen_examples.x
    generator = np.random.default_rng(0)
    importances = []
    for column, features in columns.items():
        summed_rises = np.zeros(example_count)
        for _ in range(shuffles):
            permutation = generator.permutation(example_count)
            shift = inputs[permutation][:, features] - inputs[:, features]
            permuted_losses = losses(networks.mean_prediction(_Change(features, shift)))
            summed_rises += permuted_losses - usual_losses
        rise = student(summed_rises / shuffles, weights=chosen_examples.weights)
        importances.append(Importance(column, rise))
    return sorted(importances, key=lambda importance: -importance.rise.value)


def dependence(
    run: Run, columns: Sequence[str], examples: EvaluationExamples | None = None
) -> list[Dependence]:
    """Compute how the prediction depends on some columns, on average over examples (partial dependence).

    Parameters
    ----------
    run
        A run of one point, whose chains have the same data set.
    columns
        Names of the columns.
    examples
        The examples to average over; None takes those of `examples_of`. At most 200 are used.

    Raises
    ------
    ValueError
        If there is no such column, the chains have different data sets, or all have diverged.
    """
    examples = _evenly_spaced(_checked_examples(run, examples), BAND_EXAMPLES)
    networks = _NetworkSubset(run, examples, BAND_NETWORKS)
    features = column_features(run.problem)
    unknown = [column for column in columns if column not in features]
    if unknown:
        raise ValueError(f"there is no column {unknown[0]!r}; there are {', '.join(features)}")
    return [_dependence(run.problem, examples, networks, column, features[column]) for column in columns]


def _dependence(
    problem: Problem, examples: EvaluationExamples, networks: _NetworkSubset, column: str, features: list[int]
) -> Dependence:
    """Return how the networks' predictions depend on one column.

    Parameters
    ----------
    problem, examples
        The problem, and the examples to average over.
    networks
        The networks, with the examples' first-layer outputs.
    column
        Name of the column.
    features
        Indices of the features that encode it.
    """
    grid = _column_grid(problem, examples.draw, column, features)
    moved = features[: grid.features.shape[1]]
    means = []  # (networks, outputs) for each value
    for values in grid.features:
        change = _Change(moved, values - examples.x[:, moved])
        means.append(np.average(networks.predictions(change), axis=1, weights=examples.weights))
    by_value = np.stack(means)
    low, high = np.quantile(by_value, central(BAND), axis=1)
    return Dependence(column, grid.values, grid.labels, by_value.mean(axis=1), low, high, grid.marks)


class _ColumnGrid(NamedTuple):
    """Values of a column at which its dependence is computed.

    `features` are the values of its first features as networks take them, (values, features); `values`,
    `labels` and `marks` are those of `Dependence`.
    """

    features: Floats
    values: Floats | None
    labels: tuple[str, ...]
    marks: Floats


def _column_grid(problem: Problem, draw: int, column: str, features: list[int]) -> _ColumnGrid:
    """Return the values at which the dependence on a column is computed.

    They are all categories; false and true; and of a number, or of the years of dates, each value if there
    are few, or an evenly spaced grid. Missing values are left out. The other features of a date, such as the
    day of the week, keep their values.
    """
    from heatbath.datasets.tables.column_types import Category, Date, Truth

    column_type = None if problem.encoder is None else problem.encoder.columns_[column]
    offset = 0.0
    if isinstance(column_type, Date):
        features = features[:1]  # the year; the others keep their values
        offset = FIRST_YEAR
    shift = problem.shift[features]
    scale = problem.scale[features]
    no_marks = np.empty(0)
    if isinstance(column_type, Category):
        categories = tuple(name.removeprefix(f"{column}=") for name in column_type.features)
        one_hot = np.eye(len(features))
        return _ColumnGrid((one_hot - shift) / scale, None, categories, no_marks)
    if isinstance(column_type, Truth):
        false_and_true = _as_present(np.array([0.0, 1.0]), len(features))
        return _ColumnGrid((false_and_true - shift) / scale, None, column_type.words, no_marks)

    raw = problem.X_train[draw][:, features] * scale + shift
    numbers, marks = _number_grid(_present_numbers(raw))
    inputs = _as_present(numbers, len(features))
    return _ColumnGrid((inputs - shift) / scale, numbers + offset, (), marks + offset)


def _present_numbers(raw: Floats) -> Floats:
    """Return the numbers of a column that aren't missing, or all if all are.

    Parameters
    ----------
    raw
        Features of the column, (examples, features): the number and, where some are missing, a second one
        that is 1 for these and otherwise 0.
    """
    if raw.shape[1] == 1:
        return raw[:, 0]
    is_present = raw[:, 1] < PRESENT_BELOW
    return raw[is_present, 0] if is_present.any() else raw[:, 0]


def _as_present(numbers: Floats, feature_count: int) -> Floats:
    """Return features of a column with these numbers, (numbers, features), none of which is missing."""
    inputs = np.zeros((len(numbers), feature_count))
    inputs[:, 0] = numbers
    return inputs


def _number_grid(numbers: Floats) -> tuple[Floats, Floats]:
    """Return each different number and no marks if there are few, otherwise an even grid and the deciles."""
    values = np.unique(numbers)
    if len(values) <= MOST_SINGLE_VALUES:
        return values, np.empty(0)
    low, high = np.quantile(numbers, [EDGE, 1 - EDGE])
    return np.linspace(low, high, GRID), np.quantile(numbers, np.linspace(0.1, 0.9, 9))


def _checked_examples(run: Run, examples: EvaluationExamples | None) -> EvaluationExamples:
    """Return the examples, for None those of `examples_of`; refuse runs without an averaged prediction."""
    check_run(run, single=True)
    examples = examples_of(run) if examples is None else examples
    if examples is None:
        raise ValueError("the chains have different data sets: select the chains of one data set")
    if not (run.died < 0).any():
        raise ValueError("all chains of this run diverged, so it has no predictions: try a smaller stepsize")
    return examples


def _evenly_spaced(examples: EvaluationExamples, most: int) -> EvaluationExamples:
    """Return at most this many of the examples, evenly spaced."""
    if len(examples) <= most:
        return examples
    return examples.some(np.linspace(0, len(examples) - 1, most).astype(np.int64))


def _loss_function(examples: EvaluationExamples) -> Callable[[Floats], Floats]:
    """Return the function that maps predictions (examples, outputs) to the loss of each example.

    In a regression the loss is the squared error over the variance of the targets, averaged over targets, so
    that one minus its mean is R².
    """
    if examples.problem.task != "regression":
        return lambda mean: example_losses(examples, mean)
    variance = moments(examples.y, examples.weights)[1]
    variance = np.where(variance > 0, variance, 1.0)
    return lambda mean: np.asarray((np.square(mean - examples.y) / variance).mean(axis=1))


class _Change(NamedTuple):
    """A change of some features of the examples: their indices, and by how much, (examples, features)."""

    features: list[int]
    shift: Floats


class _NetworkSubset:
    """Some networks of a run and their predictions of some examples.

    The networks are evenly spaced over the run's samples, or its chains if it kept no samples. The outputs of
    the first layer are kept, so that predictions with a few changed features cost little.
    """

    def __init__(self, run: Run, examples: EvaluationExamples, most: int) -> None:
        """Take at most `most` networks of a run, and compute their first layer for all examples."""
        states = run.data["samples"].values if run.data.sizes.get("sample") else run.theta
        networks = states[run.died < 0].reshape(-1, states.shape[-1])
        numbers = np.linspace(0, len(networks) - 1, min(most, len(networks))).astype(int)
        thetas = networks[np.unique(numbers)].astype(np.float64)

        inputs = run.problem.inputs
        network = run.network
        self._network = network
        self._likelihood = run.plan.likelihood
        width = network.sizes(inputs, self._likelihood.outputs)[1]
        first_bias = width * inputs
        second_layer = first_bias + width
        self._later_layers = MLP(network.hidden[1:], network.activation)
        self._later_thetas: NDArray[np.float64] = thetas[:, second_layer:]
        self._first_weights = thetas[:, :first_bias].reshape(-1, width, inputs)
        biases = thetas[:, None, first_bias:second_layer]
        self._first_outputs = examples.x @ self._first_weights.swapaxes(1, 2) + biases

    def predictions(self, change: _Change | None = None) -> Floats:
        """Return the prediction of each network, (networks, examples, outputs).

        A change of some features is added to the stored outputs of the first layer.
        """
        first_outputs = self._first_outputs
        if change is not None:
            weights = self._first_weights[:, :, change.features]
            first_outputs = first_outputs + change.shift @ weights.swapaxes(1, 2)
        if not self._network.hidden:
            return self._likelihood.values(first_outputs)
        hidden = ACTIVATIONS[self._network.activation].value(first_outputs)
        outputs = self._later_layers.forward(self._later_thetas, hidden, self._likelihood.outputs)
        return self._likelihood.values(outputs)

    def mean_prediction(self, change: _Change | None = None) -> Floats:
        """Return the prediction averaged over the networks, with changed features, (examples, outputs)."""
        return np.asarray(self.predictions(change).mean(axis=0))
