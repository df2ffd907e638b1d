"""A committee of dense networks: what they say together of new inputs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heatbath.datasets import Problem
from heatbath.datasets.problem import Floats
from heatbath.networks import Dense
from heatbath.prediction.averages import Average, Prediction, entropy_of, normal_entropy

CHUNK = 1 << 17  # numbers in the widest layer at a time: 1 MB, much faster than large arrays


def average_networks(
    problem: Problem, network: Dense, thetas: Iterable[NDArray[Any]], x: Floats
) -> Prediction[Floats]:
    """What networks with these parameters say of standardised inputs, (examples, features), together.

    One network is in memory at a time.
    """
    rows = max(1, CHUNK // max(network.sizes(problem.inputs, problem.outputs)))
    average, outputs = Average(problem.task), np.empty((len(x), problem.outputs))
    for theta in thetas:
        for chunk in (slice(first, first + rows) for first in range(0, len(x), rows)):
            outputs[chunk] = problem.decode(network.forward(theta, x[chunk], problem.outputs))
        average.add(outputs)
    return average.prediction()


def join_averages(problem: Problem, means: Floats, variances: Floats) -> Prediction[Floats]:
    """The prediction of chains that have kept their means and variances only, (chains, examples, outputs).

    The variance is within chains and between them; the entropy is not split.
    """
    mean, variance = means.mean(axis=0), variances.mean(axis=0) + means.var(axis=0)
    entropy = normal_entropy(variance) if problem.task == "regression" else entropy_of(mean, problem.task)
    return Prediction(mean, variance, entropy, None, None)
