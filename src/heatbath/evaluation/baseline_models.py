"""What has to be beaten: a constant prediction, and a linear model."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heatbath.datasets import Problem
from heatbath.datasets.problem import Floats, moments
from heatbath.datasets.tasks import TASKS, Task
from heatbath.diagnostics.statistics import quantiles
from heatbath.evaluation.forecasts import COVERAGE, Forecast
from heatbath.evaluation.metrics import FLOOR
from heatbath.prediction.predictive_distributions import POISSON, Mixture, central

MOST_EXAMPLES = 10_000  # that are judged: a share is known to 1 %
MOST_ENTRIES = 8_000_000  # of the table that a linear model is fitted to, times outputs: some seconds
PENALTIES = np.logspace(-4, 4, 17)  # of ridge regression, of which the best is chosen, each example left out
NAMES: dict[Task, str] = {
    "binary": "logistic regression",
    "classes": "logistic regression",
    "regression": "ridge regression",
    "counts": "Poisson regression",
}


@dataclass(frozen=True, eq=False)
class EvaluationExamples:
    """Examples of a problem that something is judged on: inputs `x` as networks take them, standardised,
    targets `y` in the user's units, and weights. `split` says which, `of` how many there are of it, and
    `draw` the number of the data set."""

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
        """The inputs in the user's units."""
        return np.asarray(self.x * self.problem.scale + self.problem.shift)

    def some(self, rows: NDArray[np.int64] | slice) -> EvaluationExamples:
        """Some of them."""
        weights = None if self.weights is None else self.weights[rows]
        return EvaluationExamples(
            self.problem, self.split, self.draw, self.x[rows], self.y[rows], weights, self.of
        )

    def forecast(
        self, mean: Floats, interval: tuple[Floats, Floats] | None = None, log_density: Floats | None = None
    ) -> Forecast:
        """What is said of them."""
        low, high = (None, None) if interval is None else interval
        problem = self.problem
        return Forecast(problem.task, problem.targets, self.y, mean, low, high, log_density, self.weights)


def judged(problem: Problem, draw: int = 0) -> EvaluationExamples:
    """The test examples of a problem, or the training examples where it has none; of many, some."""
    split = "test" if problem.X_test.shape[1] else "train"
    X, Y, weights = (
        (problem.X_test, problem.Y_test, None if problem.weights_test is None else problem.weights_test[draw])
        if split == "test"
        else (problem.X_train, problem.Y_train, problem.given_weights(draw))
    )
    count = X.shape[1]
    rows = slice(None, None, -(-count // MOST_EXAMPLES))
    own = None if weights is None else weights[rows]
    return EvaluationExamples(
        problem, split, draw, X[draw, rows], in_units(problem, Y[draw, rows]), own, count
    )


def in_units(problem: Problem, targets: Floats) -> Floats:
    """Targets as the user has them."""
    return np.asarray(targets * problem.target_scale + problem.target_shift)


def constant(on: EvaluationExamples) -> Forecast:
    """The same for all: the shares of the classes among the training examples, or their mean.

    Intervals are between the quantiles of their targets; the law is normal, of counts Poisson's. Weights that
    make classes count alike are left aside: they would not be the shares of any data.
    """
    problem, Y = on.problem, in_units(on.problem, on.problem.Y_train[on.draw])
    weights = problem.given_weights(on.draw)
    if TASKS[problem.task].classes:
        counts = np.bincount(Y[:, 0].astype(np.int64), weights, len(problem.targets))
        shares = counts / counts.sum()
        return on.forecast(np.tile(shares[1:] if problem.task == "binary" else shares, (len(on), 1)))
    mean, variance = moments(Y, weights)
    ends = quantiles(Y, central(COVERAGE), weights)
    low, high = (np.tile(end, (len(on), 1)) for end in ends)
    return _with_law(on, np.tile(mean, (len(on), 1)), np.sqrt(variance), (low, high))


def linear(on: EvaluationExamples) -> Forecast | None:
    """A linear model of scikit-learn, of as many training examples as it can take in some seconds.

    Logistic regression with its usual penalty; ridge regression with the best of 17 penalties, each example
    left out, whose errors are its noise; Poisson regression. None where there is nothing to fit.
    """
    problem = on.problem
    rows = _fitted(problem)
    X, Y = problem.X_train[on.draw, rows], problem.Y_train[on.draw, rows]
    weights = None if problem.weights_train is None else problem.weights_train[on.draw, rows]
    if not np.ptp(Y, axis=0).all():
        return None
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # of steps that were too few, say: it is what it is
        if TASKS[problem.task].classes:
            return on.forecast(_logistic(problem, X, Y[:, 0], weights, on.x))
        if problem.task == "counts":
            return _with_law(on, _poisson(X, Y, weights, on.x), np.ones(Y.shape[1]))
        said, deviation = _ridge(X, Y, weights, on.x)
    mean, deviation = in_units(problem, said), deviation * problem.target_scale
    return _with_law(on, mean, deviation)


def fitted_to(problem: Problem) -> int:
    """How many of the training examples of a problem `linear` is fitted to."""
    return len(range(*_fitted(problem).indices(problem.X_train.shape[1])))


def _fitted(problem: Problem) -> slice:
    return slice(None, None, -(-problem.X_train[0].size * problem.outputs // MOST_ENTRIES))


def _with_law(
    on: EvaluationExamples, mean: Floats, deviation: Floats, interval: tuple[Floats, Floats] | None = None
) -> Forecast:
    """Values with a normal law, or rates of counts, with intervals of that law unless others are given."""
    law = Mixture(mean[None], deviation[None])
    if on.problem.task == "counts":
        rates = np.maximum(mean, FLOOR)[None]
        law = Mixture(rates, np.sqrt(rates), POISSON)
    known = (law.deviations > 0).all()
    return on.forecast(mean, interval or law.interval(COVERAGE), law.log_density(on.y) if known else None)


def _logistic(problem: Problem, X: Floats, y: Floats, weights: Floats | None, x: Floats) -> Floats:
    """The probabilities at x; a class that no training example has gets none."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression().fit(X, y, weights)
    probabilities = np.zeros((len(x), len(problem.targets)))
    probabilities[:, model.classes_.astype(np.int64)] = model.predict_proba(x)
    return probabilities[:, 1:] if problem.task == "binary" else probabilities


def _ridge(X: Floats, Y: Floats, weights: Floats | None, x: Floats) -> tuple[Floats, Floats]:
    """The values at x, and the deviation of training examples from what is said without them."""
    from sklearn.linear_model import RidgeCV

    model = RidgeCV(PENALTIES, alpha_per_target=True).fit(X, Y, weights)
    errors = -np.atleast_1d(model.best_score_) / (1.0 if weights is None else weights.mean())
    return np.asarray(model.predict(x)).reshape(len(x), -1), np.sqrt(np.maximum(errors, 0.0))


def _poisson(X: Floats, Y: Floats, weights: Floats | None, x: Floats) -> Floats:
    """The rates at x."""
    from sklearn.linear_model import PoissonRegressor

    models = (PoissonRegressor(alpha=1 / len(X), max_iter=300).fit(X, y, weights) for y in Y.T)
    return np.stack([model.predict(x) for model in models], axis=1)
