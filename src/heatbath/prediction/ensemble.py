"""A committee of dense networks: what they say together of new inputs."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heatbath.datasets.problem import Floats
from heatbath.datasets.tasks import TASKS, Task
from heatbath.models.dense import MLP
from heatbath.models.likelihood import Likelihood
from heatbath.prediction.averages import Average, Prediction, entropy_of, of_data
from heatbath.prediction.predictive_distributions import Categorical, Mixture, mixture_of


def average_networks(
    likelihood: Likelihood,
    network: MLP,
    thetas: Iterable[NDArray[Any]],
    x: Floats,
    variances: Iterable[Floats] | None = None,
) -> Prediction[Floats]:
    """What networks with these parameters say of standardised inputs, (examples, features), together, with
    the variances of the targets around each if there are any.

    One network is in memory at a time.
    """
    average = Average(likelihood.problem.task)
    for theta, known in zip(thetas, repeat(None) if variances is None else variances, strict=False):
        outputs = network.forward(theta, x, likelihood.outputs)
        average.add(likelihood.values(outputs), likelihood.noise(outputs, known))
    return average.prediction()


def laws(
    likelihood: Likelihood, network: MLP, thetas: NDArray[Any], x: Floats, variances: Floats | None
) -> Mixture | Categorical:
    """The laws of new data of networks with these parameters, (samples, parameters), at standardised inputs.

    `variances` are those of the targets around each network, (samples, targets), if they have any.
    """
    outputs = np.empty((len(thetas), len(x), likelihood.outputs))
    for place, theta in enumerate(thetas):
        outputs[place] = network.forward(theta, x, likelihood.outputs)
    if TASKS[likelihood.problem.task].classes:
        return Categorical(outputs)
    return mixture_of(likelihood, outputs, variances)


def join_averages(
    task: Task, means: Floats, variances: Floats, noise: Floats | None = None
) -> Prediction[Floats]:
    """The prediction of chains that have kept their means and variances only, (chains, examples, outputs).

    The variance is within chains and between them; the entropy is not split.
    """
    mean, variance = means.mean(axis=0), variances.mean(axis=0) + means.var(axis=0)
    if not TASKS[task].classes:
        return of_data(task, mean, variance, noise)
    return Prediction(mean, variance, entropy_of(mean, task), None, None)
