"""A committee of dense networks: what they say together of new inputs."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heatbath.datasets import Problem
from heatbath.datasets.problem import Floats
from heatbath.networks import Dense
from heatbath.prediction.averages import Average, Prediction, entropy_of, regression
from heatbath.prediction.mixtures import Categorical, Mixture


def average_networks(
    problem: Problem,
    network: Dense,
    thetas: Iterable[NDArray[Any]],
    x: Floats,
    noises: Iterable[Floats] | None = None,
) -> Prediction[Floats]:
    """What networks with these parameters say of standardised inputs, (examples, features), together, with
    the variances of the targets around each if there are any, in the user's units.

    One network is in memory at a time.
    """
    average = Average(problem.task)
    for theta, noise in zip(thetas, repeat(None) if noises is None else noises, strict=False):
        average.add(problem.decode(network.forward(theta, x, problem.outputs)), noise)
    return average.prediction()


def laws(
    problem: Problem, network: Dense, thetas: NDArray[Any], x: Floats, variances: Floats | None
) -> Mixture | Categorical:
    """The laws of new data of networks with these parameters, (samples, parameters), at standardised inputs.

    `variances` are those of the targets around each network, (samples, targets), in the user's units; where
    there are none, the laws are of the networks' values.
    """
    outputs = np.empty((len(thetas), len(x), problem.outputs))
    for place, theta in enumerate(thetas):
        outputs[place] = network.forward(theta, x, problem.outputs)
    if problem.task != "regression":
        return Categorical(outputs)
    deviations = np.zeros((len(thetas), problem.outputs)) if variances is None else np.sqrt(variances)
    return Mixture(problem.decode(outputs), deviations)


def join_averages(
    problem: Problem, means: Floats, variances: Floats, noise: Floats | None = None
) -> Prediction[Floats]:
    """The prediction of chains that have kept their means and variances only, (chains, examples, outputs).

    The variance is within chains and between them; the entropy is not split.
    """
    mean, variance = means.mean(axis=0), variances.mean(axis=0) + means.var(axis=0)
    if problem.task == "regression":
        return regression(mean, variance, noise)
    return Prediction(mean, variance, entropy_of(mean, problem.task), None, None)
