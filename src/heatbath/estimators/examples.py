"""Examples to fit: rows of features, targets and weights, and the problem that they make."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heatbath.datasets import Problem
from heatbath.datasets.problem import Floats, standard
from heatbath.datasets.tables import TableEncoder
from heatbath.datasets.tasks import Task

Rows = NDArray[np.int64]


class FitExamples(NamedTuple):
    """Examples to fit, in the user's units.

    Parameters
    ----------
    X, Y
        Features (examples, features) and targets (examples, columns).
    weights
        How often each example counts.
    task
        What the targets mean.
    targets
        Names of the targets, or of the classes.
    table
        The table that the features encode, or None.
    """

    X: Floats
    Y: Floats
    weights: Floats
    task: Task
    targets: Sequence[str]
    table: Any = None

    def at(self, rows: Rows | slice) -> FitExamples:
        """Return the examples in some rows."""
        return self._replace(X=self.X[rows], Y=self.Y[rows], weights=self.weights[rows])

    def after(self, former: Problem, count: int) -> FitExamples:
        """Return the latest `count` training examples of a former problem, followed by these."""
        rows = slice(former.X_train.shape[1] - count, None)
        weights = np.ones(count) if former.weights_train is None else former.weights_train[0, rows]
        former_X = former.X_train[0, rows] * former.scale + former.shift
        former_Y = former.Y_train[0, rows] * former.target_scale + former.target_shift
        return self._replace(
            X=np.concatenate([former_X, self.X]),
            Y=np.concatenate([former_Y, self.Y]),
            weights=np.concatenate([weights, self.weights]),
        )

    def weights_at(self, rows: Rows) -> Floats | None:
        """Return the weights of some rows, or None if all are 1."""
        weights = self.weights[rows]
        return None if (weights == 1).all() else weights

    def scales(self, rows: Rows, scale: bool) -> Scales:
        """Return scales that give some rows mean 0 and variance 1: targets of a regression, and features.

        With `scale=False` features keep their units.
        """
        weights = self.weights_at(rows)
        features = standard(self.X[rows], weights, scale)
        return Scales(*features, *standard(self.Y[rows], weights, self.task == "regression"))

    def problem(
        self,
        training: Rows,
        validation: Rows,
        scales: Scales,
        features: Sequence[str],
        encoder: TableEncoder | None,
    ) -> Problem:
        """Return the problem of these examples.

        Parameters
        ----------
        training, validation
            Rows for training, and for the test examples of the problem.
        scales
            Shifts and scales of features and targets.
        features
            Names of the features.
        encoder
            Encoder of the table, or None.
        """
        X = (self.X - scales.shift) / scales.scale
        Y = (self.Y - scales.target_shift) / scales.target_scale
        weights_train = self.weights_at(training)
        weights_test = self.weights_at(validation)
        return Problem(
            "data", self.task, X[None, training], Y[None, training], X[None, validation], Y[None, validation],
            tuple(features), tuple(self.targets), *scales,
            weights_train=None if weights_train is None else weights_train[None],
            weights_test=None if weights_test is None else weights_test[None],
            encoder=encoder,
        )  # fmt: skip


class Scales(NamedTuple):
    """Shift and scale of each feature and of each target: values are (value - shift) / scale."""

    shift: Floats
    scale: Floats
    target_shift: Floats
    target_scale: Floats

    @classmethod
    def of(cls, problem: Problem) -> Scales:
        """Return the scales of a problem."""
        return cls(problem.shift, problem.scale, problem.target_shift, problem.target_scale)


def check_weights(weights: Floats) -> None:
    """Raise ValueError if a weight is negative, or none is positive."""
    if (weights < 0).any() or not weights.any():
        raise ValueError(
            "weights (of samples times classes) must be >= 0, and positive for some examples; they are from "
            f"{weights.min():g} to {weights.max():g}"
        )
