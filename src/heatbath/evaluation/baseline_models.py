"""Predict with simple models that a network should beat: a constant and a linear model."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from heatbath.datasets import Problem
from heatbath.datasets.problem import Floats, moments
from heatbath.datasets.tasks import TASKS, Task
from heatbath.diagnostics.statistics import quantiles
from heatbath.evaluation.forecasts import COVERAGE, Forecast
from heatbath.evaluation.metrics import FLOOR
from heatbath.prediction.predictive_distributions import POISSON, Mixture, central

MOST_EXAMPLES = 10_000  # to evaluate on: enough to know a share to 1 %
MOST_ENTRIES = 8_000_000  # of the table that a linear model is fitted to, times outputs: some seconds
PENALTIES = np.logspace(-4, 4, 17)  # of ridge regression; leave-one-out errors choose the best
LINEAR_MODELS: dict[Task, str] = {
    "binary": "logistic regression",
    "classes": "logistic regression",
    "regression": "ridge regression",
    "counts": "Poisson regression",
}


@dataclass(frozen=True, eq=False)
class EvaluationExamples:
    """Examples of a problem on which predictions are evaluated.

    Attributes
    ----------
    problem
        The problem that they are from.
    split
        "test" or "train".
    draw
        Number of the data set, of a problem that has several.
    x
        Inputs as networks take them, standardised, (examples, inputs).
    y
        Targets in the user's units, (examples, columns).
    weights
        How often each example counts, (examples,); None counts each once.
    of
        Number of examples of the split, of which these are all or some.
    """

    problem: Problem
    split: str
    draw: int
    x: Floats
    y: Floats
    weights: Floats | None
    of: int

    def __len__(self) -> int:
        return len(self.x)

    @property
    def raw(self) -> Floats:
        """Inputs in the user's units, (examples, inputs)."""
        return np.asarray(self.x * self.problem.scale + self.problem.shift)

    def some(self, rows: NDArray[np.int64] | slice) -> EvaluationExamples:
        """Return a subset of the examples: those with these indices."""
        weights = None if self.weights is None else self.weights[rows]
        return replace(self, x=self.x[rows], y=self.y[rows], weights=weights)

    def forecast(
        self, mean: Floats, interval: tuple[Floats, Floats] | None = None, log_density: Floats | None = None
    ) -> Forecast:
        """Return predictions of these examples as a `Forecast`.

        Parameters
        ----------
        mean
            Probabilities, rates or values, (examples, outputs), in the user's units.
        interval
            Lower and upper ends of the 90 % intervals, (examples, outputs) each.
        log_density
            Logarithm of the predicted density at the targets, (examples, outputs).
        """
        low, high = (None, None) if interval is None else interval
        problem = self.problem
        return Forecast(problem.task, problem.targets, self.y, mean, low, high, log_density, self.weights)


def evaluation_examples(problem: Problem, draw: int = 0) -> EvaluationExamples:
    """Return the test examples of a data set, or its training examples if the problem has no test examples.

    Of more than 10,000 examples an evenly spaced subset is taken. `draw` is the number of the data set.
    """
    if problem.X_test.shape[1]:
        split = "test"
        X = problem.X_test[draw]
        Y = problem.Y_test[draw]
        weights = None if problem.weights_test is None else problem.weights_test[draw]
    else:
        split = "train"
        X = problem.X_train[draw]
        Y = problem.Y_train[draw]
        weights = problem.given_weights(draw)
    example_count = len(X)
    spacing = math.ceil(example_count / MOST_EXAMPLES)
    chosen_weights = None if weights is None else weights[::spacing]
    y = in_user_units(problem, Y[::spacing])
    return EvaluationExamples(problem, split, draw, X[::spacing], y, chosen_weights, example_count)


def in_user_units(problem: Problem, targets: Floats) -> Floats:
    """Return standardised targets in the units of the user's data."""
    return np.asarray(targets * problem.target_scale + problem.target_shift)


def constant_forecast(examples: EvaluationExamples) -> Forecast:
    """Predict the same for all examples: the shares of the classes in the training data, or the mean target.

    The intervals of values and counts lie between quantiles of the training targets. The density is normal
    for values and Poisson for counts. Weights that balance the classes are ignored, because balanced shares
    would not be those of any data.
    """
    problem = examples.problem
    Y = in_user_units(problem, problem.Y_train[examples.draw])
    weights = problem.given_weights(examples.draw)
    repeats = (len(examples), 1)
    if TASKS[problem.task].classes:
        class_counts = np.bincount(Y[:, 0].astype(np.int64), weights, len(problem.targets))
        shares = class_counts / class_counts.sum()
        probabilities = shares[1:] if problem.task == "binary" else shares
        return examples.forecast(np.tile(probabilities, repeats))

    mean, variance = moments(Y, weights)
    low, high = quantiles(Y, central(COVERAGE), weights)
    interval = np.tile(low, repeats), np.tile(high, repeats)
    return _value_forecast(examples, np.tile(mean, repeats), np.sqrt(variance), interval)


def linear_forecast(examples: EvaluationExamples) -> Forecast | None:
    """Predict with a linear model of scikit-learn, fitted to as many training examples as take some seconds.

    Classes take logistic regression with scikit-learn's default penalty. Values take ridge regression with
    the best of 17 penalties by leave-one-out errors, whose size is the noise of the prediction. Counts take
    Poisson regression. Returns None if a target doesn't vary, so that there is nothing to fit.
    """
    problem = examples.problem
    draw = examples.draw
    rows = _linear_rows(problem)
    X = problem.X_train[draw, rows]
    Y = problem.Y_train[draw, rows]
    weights = None if problem.weights_train is None else problem.weights_train[draw, rows]
    has_constant_target = not np.ptp(Y, axis=0).all()
    if has_constant_target:
        return None

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # a baseline that has not fully converged will do
        if TASKS[problem.task].classes:
            probabilities = _logistic_probabilities(problem, X, Y[:, 0], weights, examples.x)
            return examples.forecast(probabilities)
        if problem.task == "counts":
            rates = _poisson_rates(X, Y, weights, examples.x)
            return _value_forecast(examples, rates, np.ones(Y.shape[1]))
        mean, deviation = _ridge_prediction(X, Y, weights, examples.x)
    return _value_forecast(examples, in_user_units(problem, mean), deviation * problem.target_scale)


def linear_training_size(problem: Problem) -> int:
    """Return the number of training examples that `linear_forecast` is fitted to."""
    return len(range(*_linear_rows(problem).indices(problem.X_train.shape[1])))


def _linear_rows(problem: Problem) -> slice:
    """Return which training examples a linear model is fitted to: all, or evenly spaced ones."""
    return slice(None, None, -(-problem.X_train[0].size * problem.outputs // MOST_ENTRIES))


def _value_forecast(
    examples: EvaluationExamples,
    mean: Floats,
    deviation: Floats,
    interval: tuple[Floats, Floats] | None = None,
) -> Forecast:
    """Return a forecast with a normal density, or for counts with the Poisson density of the mean.

    Parameters
    ----------
    mean
        Values or rates, (examples, outputs), in the user's units.
    deviation
        Standard deviation of the normal density of each output, (outputs,); counts ignore it.
    interval
        Lower and upper ends of the intervals, (examples, outputs) each; None takes those of the density.
    """
    density = Mixture(mean[None], deviation[None])
    if examples.problem.task == "counts":
        rates = np.maximum(mean, FLOOR)[None]
        density = Mixture(rates, np.sqrt(rates), POISSON)
    has_density = (density.deviations > 0).all()
    log_density = density.log_density(examples.y) if has_density else None
    return examples.forecast(mean, interval or density.interval(COVERAGE), log_density)


def _logistic_probabilities(
    problem: Problem, X: Floats, y: Floats, weights: Floats | None, x: Floats
) -> Floats:
    """Fit logistic regression to X and y, and return its probabilities at x, (examples, outputs).

    A class that no training example has gets probability 0.
    """
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression().fit(X, y, weights)
    probabilities = np.zeros((len(x), len(problem.targets)))
    probabilities[:, model.classes_.astype(np.int64)] = model.predict_proba(x)
    return probabilities[:, 1:] if problem.task == "binary" else probabilities


def _ridge_prediction(X: Floats, Y: Floats, weights: Floats | None, x: Floats) -> tuple[Floats, Floats]:
    """Fit ridge regression to X and Y; return its values at x and its leave-one-out error by output."""
    from sklearn.linear_model import RidgeCV

    model = RidgeCV(PENALTIES, alpha_per_target=True).fit(X, Y, weights)
    mean_weight = 1.0 if weights is None else weights.mean()
    squared_errors = -np.atleast_1d(model.best_score_) / mean_weight
    values = np.asarray(model.predict(x)).reshape(len(x), -1)
    return values, np.sqrt(np.maximum(squared_errors, 0.0))


def _poisson_rates(X: Floats, Y: Floats, weights: Floats | None, x: Floats) -> Floats:
    """Fit a Poisson regression to each column of Y, and return the rates at x, (examples, outputs)."""
    from sklearn.linear_model import PoissonRegressor

    models = (PoissonRegressor(alpha=1 / len(X), max_iter=300).fit(X, y, weights) for y in Y.T)
    return np.stack([model.predict(x) for model in models], axis=1)
