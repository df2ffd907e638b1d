"""Combine the predictions of several dense networks."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from typing import Any

from numpy.typing import NDArray

from heatbath.datasets.problem import Floats
from heatbath.datasets.tasks import TASKS, Task
from heatbath.models.dense import MLP
from heatbath.models.likelihood import Likelihood
from heatbath.prediction.ensemble_average import Average, Prediction, entropy_of, predict_new_data
from heatbath.prediction.predictive_distributions import Categorical, Mixture, mixture_of


def average_networks(
    likelihood: Likelihood,
    network: MLP,
    thetas: Iterable[NDArray[Any]],
    x: Floats,
    variances: Iterable[Floats] | None = None,
) -> Prediction[Floats]:
    """Return the prediction averaged over networks, which are evaluated one at a time.

    Parameters
    ----------
    likelihood : Likelihood
        How outputs become predictions.
    network : MLP
        The shape of the networks.
    thetas : iterable of array, (parameters,)
        The parameters of each.
    x : array, (examples, features)
        Standardised inputs.
    variances : iterable of array, (targets,), optional
        Noise variances of the targets for each network.
    """
    average = Average(likelihood.problem.task)
    variance_of_each = repeat(None) if variances is None else variances
    for theta, variance in zip(thetas, variance_of_each, strict=False):
        outputs = network.forward(theta, x, likelihood.outputs)
        average.add(likelihood.values(outputs), likelihood.noise(outputs, variance))
    return average.prediction()


def laws(
    likelihood: Likelihood, network: MLP, thetas: NDArray[Any], x: Floats, variances: Floats | None
) -> Mixture | Categorical:
    """Return the predictive distribution of new data.

    Parameters
    ----------
    likelihood : Likelihood
        How outputs become predictions.
    network : MLP
        The shape of the networks.
    thetas : array, (samples, parameters)
        The parameters of each.
    x : array, (examples, features)
        Standardised inputs.
    variances : array, (samples, targets), or None
        Noise variances of the targets for each network, if there are any.
    """
    outputs = network.forward(thetas, x, likelihood.outputs)
    if TASKS[likelihood.problem.task].classes:
        return Categorical(outputs)
    return mixture_of(likelihood, outputs, variances)


def join_averages(
    task: Task, means: Floats, variances: Floats, noise: Floats | None = None
) -> Prediction[Floats]:
    """Return the prediction of chains that have kept only their means and variances.

    The variance is the sum of those within chains and between them. The entropy is not split.

    Parameters
    ----------
    task : str
        The task.
    means, variances : array, (chains, examples, outputs)
        Mean and variance over the samples of each chain.
    noise : array, optional
        Variance of the data around the samples' values.
    """
    mean = means.mean(axis=0)
    variance = variances.mean(axis=0) + means.var(axis=0)
    if not TASKS[task].classes:
        return predict_new_data(task, mean, variance, noise)
    return Prediction(mean, variance, entropy_of(mean, task), None, None)
