"""Which columns of the data a run's predictions depend on, and how.

Both look at some of its networks and at some examples, so that they take little time beside training. A
column of a table that has been encoded as several features is one here, and its features move together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from heatbath.datasets import Problem
from heatbath.datasets.problem import Floats, moments
from heatbath.diagnostics.statistics import Measured, student
from heatbath.evaluation.baseline_models import EvaluationExamples
from heatbath.evaluation.evaluate import each_loss, examples_of
from heatbath.models.dense import ACTIVATIONS, MLP
from heatbath.prediction.predictive_distributions import central
from heatbath.runs.run import Run, check_run

NETWORKS = 16  # that are asked which columns matter
SHUFFLES = 3
EXAMPLES, FEWEST = 500, 50
WORK = 3e8  # columns x shuffles x networks x examples x units, at most: about a second
BAND_NETWORKS, BAND_EXAMPLES = 48, 200  # of a band
GRID = 25  # values of a number
EDGE = 0.02  # the share of the examples on each side that a curve leaves out
FEW = 6  # different values of a column that are shown one by one
YEAR = 2000.0  # from which on dates are counted
BAND = 0.9  # the share of the networks that a band holds


@dataclass(frozen=True)
class Importance:
    """How much the loss rises when the values of a column are exchanged among the examples: in a regression
    by how much R² falls, otherwise the loss in nats; with its 95 % interval over examples."""

    column: str
    rise: Measured


@dataclass(frozen=True, eq=False)
class Dependence:
    """What is predicted on average if all examples had the same value of a column, by value.

    `values` are numbers, or None for the `labels` of categories; `mean`, and the ends `low` and `high`
    between which 90 % of the networks are, are (values, outputs). `marks` are the deciles of a number.
    """

    column: str
    values: Floats | None
    labels: tuple[str, ...]
    mean: Floats
    low: Floats
    high: Floats
    marks: Floats


def groups(problem: Problem) -> dict[str, list[int]]:
    """The columns of the user's data, and the numbers of the features that each has become."""
    if problem.encoder is None:
        return {name: [place] for place, name in enumerate(problem.features)}
    return problem.encoder.groups()


def importance(run: Run, examples: EvaluationExamples | None = None) -> list[Importance]:
    """How much each column matters to the averaged prediction, the most important first.

    The loss is that of examples on which the run is judged. Columns that say the same stand in for one
    another: exchanging the values of one alone then does little.
    """
    on, columns = _examples(run, examples), groups(run.problem)
    units = max([*run.network.hidden, run.plan.likelihood.outputs])
    rows = min(EXAMPLES, len(on))
    once = len(columns) * NETWORKS * units * rows
    shuffles = int(np.clip(WORK / once, 1, SHUFFLES))
    on = _some(on, int(np.clip(WORK / once * rows, min(FEWEST, rows), rows)))
    committee, losses = _Committee(run, on, NETWORKS), _losses(on)
    usual, rng = losses(committee.mean(None)), np.random.default_rng(0)
    found = []
    for column, places in columns.items():
        rise = np.zeros(len(on))
        for _ in range(shuffles):
            other = on.x[rng.permutation(len(on))][:, places] - on.x[:, places]
            rise += losses(committee.mean((places, other))) - usual
        found.append(Importance(column, student(rise / shuffles, weights=on.weights)))
    return sorted(found, key=lambda one: -one.rise.value)


def dependence(
    run: Run, columns: Sequence[str], examples: EvaluationExamples | None = None
) -> list[Dependence]:
    """How the prediction depends on each of these columns, on average over examples (partial dependence)."""
    on = _some(_examples(run, examples), BAND_EXAMPLES)
    committee = _Committee(run, on, BAND_NETWORKS)
    known = groups(run.problem)
    if unknown := [column for column in columns if column not in known]:
        raise ValueError(f"there is no column {unknown[0]!r}; there are {', '.join(known)}")
    return [_dependence(run.problem, on, committee, column, known[column]) for column in columns]


def _dependence(
    problem: Problem, on: EvaluationExamples, committee: _Committee, column: str, places: list[int]
) -> Dependence:
    setting = _settings(problem, on.draw, column, places)
    moved = places[: setting.features.shape[1]]
    each = np.stack(  # values x networks x outputs
        [
            np.average(committee.each((moved, features - on.x[:, moved])), axis=1, weights=on.weights)
            for features in setting.features
        ]
    )
    low, high = np.quantile(each, central(BAND), axis=1)
    return Dependence(column, setting.values, setting.labels, each.mean(axis=1), low, high, setting.marks)


class _Settings(NamedTuple):
    """Values that a column is given: its first features as networks take them, (values, features), and what
    they are."""

    features: Floats
    values: Floats | None
    labels: tuple[str, ...]
    marks: Floats


def _settings(problem: Problem, draw: int, column: str, places: list[int]) -> _Settings:
    """Each category; both truth values; of a number, or the years of dates, a few values or a grid, which are
    not missing. Where in the year, week or day dates are is left as it is."""
    from heatbath.datasets.tables.column_types import Category, Date, Truth

    shift, scale = problem.shift[places], problem.scale[places]
    raw = problem.X_train[draw][:, places] * scale + shift
    known = None if problem.encoder is None else problem.encoder.columns_[column]
    none = np.empty(0)
    if isinstance(known, Category):
        labels = tuple(name.removeprefix(f"{column}=") for name in known.features)
        return _Settings((np.eye(len(places)) - shift) / scale, None, labels, none)
    there, start = np.ones(len(raw), bool), 0.0
    if isinstance(known, Date):
        raw, shift, scale, start = raw[:, :1], shift[:1], scale[:1], YEAR
    elif len(places) > 1 and (raw[:, 1] < 0.5).any():  # the second feature says that it is missing
        there = raw[:, 1] < 0.5
    values, marks = np.unique(raw[there, 0]), none
    if isinstance(known, Truth):
        values = np.array([0.0, 1.0])
    elif len(values) > FEW:
        ends = np.quantile(raw[there, 0], [EDGE, 1 - EDGE])
        values = np.linspace(ends[0], ends[1], GRID)
        marks = np.quantile(raw[there, 0], np.linspace(0.1, 0.9, 9)) + start
    settings = np.zeros((len(values), raw.shape[1]))
    settings[:, 0] = values
    settings = (settings - shift) / scale
    if isinstance(known, Truth):
        return _Settings(settings, None, known.words, none)
    return _Settings(settings, values + start, (), marks)


def _examples(run: Run, examples: EvaluationExamples | None) -> EvaluationExamples:
    """The examples that are asked about: those on which a run is judged, unless others are given."""
    check_run(run, single=True)
    on = examples_of(run) if examples is None else examples
    if on is None:
        raise ValueError("the chains have different data sets: select those of one of them")
    if not (run.died < 0).any():
        raise ValueError("all chains of this run diverged: there is nothing to ask")
    return on


def _some(on: EvaluationExamples, most: int) -> EvaluationExamples:
    """As many, evenly spread."""
    if len(on) <= most:
        return on
    return on.some(np.linspace(0, len(on) - 1, most).astype(np.int64))


def _losses(on: EvaluationExamples) -> Callable[[Floats], Floats]:
    """The loss of each example: in a regression its squared error in units of the variance of the targets, so
    that 1 less its mean is R²; the mean over targets."""
    if on.problem.task != "regression":
        return lambda mean: each_loss(on, mean)
    variance = moments(on.y, on.weights)[1]
    variance = np.where(variance > 0, variance, 1.0)
    return lambda mean: np.asarray((np.square(mean - on.y) / variance).mean(axis=1))


class _Committee:
    """Some networks of a run, spread over its samples or chains, at some examples.

    What the first layer makes of the examples is kept, so that another value of a few features costs little.
    """

    def __init__(self, run: Run, on: EvaluationExamples, most: int) -> None:
        alive, inputs = run.died < 0, run.problem.inputs
        states = run.data["samples"].values if run.data.sizes.get("sample") else run.theta
        states = states[alive].reshape(-1, states.shape[-1])
        chosen = np.unique(np.linspace(0, len(states) - 1, min(most, len(states))).astype(int))
        self._network, self._likelihood = run.network, run.plan.likelihood
        self._rest = MLP(run.network.hidden[1:], run.network.activation)
        width = run.network.sizes(inputs, self._likelihood.outputs)[1]
        thetas = states[chosen].astype(np.float64)
        self._weights = thetas[:, : width * inputs].reshape(-1, width, inputs)
        begin = (inputs + 1) * width
        self._after = thetas[:, begin:]
        self._first = on.x @ self._weights.swapaxes(1, 2) + thetas[:, None, width * inputs : begin]

    def each(self, change: tuple[list[int], Floats] | None) -> Floats:
        """What each says, (networks, examples, outputs), with these changes of these features."""
        first = self._first
        if change is not None:
            places, by = change
            first = first + by @ self._weights[:, :, places].swapaxes(1, 2)
        if not self._network.hidden:
            return self._likelihood.values(first)
        values = ACTIVATIONS[self._network.activation].value(first)
        outputs = self._likelihood.outputs
        said = [self._rest.forward(theta, x, outputs) for theta, x in zip(self._after, values, strict=True)]
        return self._likelihood.values(np.stack(said))

    def mean(self, change: tuple[list[int], Floats] | None) -> Floats:
        """What they say together, (examples, outputs)."""
        return np.asarray(self.each(change).mean(axis=0))
