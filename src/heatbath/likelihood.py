"""Posteriors: a prior and a likelihood, and the temperatures that they set.

The loss of a run is the mean of ℓ over n training examples. Langevin dynamics at temperature τ with the
precision d of its Gaussian prior (`weight_decay`) samples exp(-(mean ℓ + d|θ|²/2)/τ). With a prior
N(0, ς²) and T the temperature of the posterior, [likelihood x priors]^(1/T), that is the posterior where

| task | likelihood of an example | ℓ | τ | d |
| --- | --- | --- | --- | --- |
| binary | p^y (1 - p)^(1 - y), p = 1/(1 + exp(-f)) | binary cross entropy | T/n | 1/(ς² n) |
| classes | exp(f_y)/Σ_k exp(f_k) | cross entropy | T/n | 1/(ς² n) |
| regression | Π_k N(y_k; f_k, s_k²) | Σ_k (s̄²/s_k²) (y_k - f_k)²/2 | T s̄²/n | s̄²/(ς² n) |

with s̄ the geometric mean of the s_k, so that h need not change with the noise. Where it is unknown, s_k² has
the prior IG(a, b v_k), v_k the variance of the target over the training examples, and is drawn from its law
given θ, IG((a + 1 + n/2)/T - 1, (b v_k + Σr²/2)/T), every few steps, between two words. Momenta are in units
of s̄, so that they stay as they are: with π = p/s̄ the drift is θ += t s̄ π and the kick
π += t (G/s̄ - s̄ θ/(ς² n)), and all else is at the temperature T/n whatever s̄ is. For Langevin dynamics with
full gradients this samples θ and the s_k² together, but for what the stepsize does. An adaptive part keeps
σ²/τ and ετ (in the SDE's form ε²τ), of which the law of its thermostat is made.

Where examples have weights w, the likelihood of each has the power w: n is Σw, the loss is Σwℓ/Σw, Σr² is
Σwr², and v_k the weighted variance. A mini-batch of b examples has Σwℓ/(b x mean w), whose mean is the loss.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from heatbath.datasets import Problem
from heatbath.datasets.problem import moments
from heatbath.networks import Dense
from heatbath.partition import Layers, Part, Partition
from heatbath.posterior import Draws, Posterior, Settled

SHAPE, SCALE = 1.0, 0.01
"""a and b of the prior of the variance of the data, IG(a, b v), v the variance of the targets."""
FEWEST = 50  # steps between two draws of the variance, at least
COST = 4.0  # and so many times what a draw takes, in steps: it reads all examples, forwards only
SAME = 1e-9  # a relative difference of sums of weights that is rounding


def _variances(posterior: Posterior, problem: Problem) -> NDArray[np.float64] | None:
    """The variance of each target around the network's values, as they are scaled in the problem; None
    for classes. Where it is sampled, that is where it starts: at the variance of the targets."""
    if problem.task != "regression":
        if posterior.noise != "sampled":
            raise ValueError(
                f"Posterior: noise is for a regression, and this is {problem.task!r}; got {posterior.noise!r}"
            )
        return None
    if posterior.noise == "sampled":
        return spread(problem)
    given = np.atleast_1d(np.asarray(posterior.noise, np.float64))
    if len(given) not in (1, problem.outputs):
        raise ValueError(
            f"Posterior: noise has {len(given)} standard deviations, and there are {problem.outputs} targets"
        )
    return np.asarray((np.broadcast_to(given, problem.outputs) / problem.target_scale) ** 2)


def spread(problem: Problem) -> NDArray[np.float64]:
    """The variance of each target over the training examples, by their weights, where it has one."""
    _, variances = moments(problem.Y_train, problem.weights_train)
    variance = variances.mean(axis=0)
    return np.where(variance > 0, variance, 1.0)


def _total(problem: Problem) -> float:
    """n: how many training examples there are, by their weights."""
    if problem.weights_train is None:
        return float(problem.X_train.shape[1])
    sums = problem.weights_train.sum(axis=1)
    if np.ptp(sums) > SAME * sums.max():
        raise ValueError(
            "Posterior: all draws of the data need the same sum of weights, as that sets the temperature; "
            f"they are from {sums.min():g} to {sums.max():g}: scale those of each draw"
        )
    return float(sums.mean())


def settle(partition: Partition, network: Dense, problem: Problem, batch: int) -> Settled:
    """For mini-batches of this size; without a posterior the parts are as they are."""
    layers = network.layers(problem.inputs, problem.outputs)
    parts, posterior = partition.parts(layers), partition.posterior
    if posterior is None:
        return Settled(parts, None, None)
    n, T = _total(problem), posterior.temperature
    variances, draws, mean = _variances(posterior, problem), None, 1.0
    if variances is not None and posterior.noise == "sampled":
        draws = _draws(problem, n, T, batch)
        _check_words(parts)
    elif variances is not None:
        mean = float(np.exp(np.log(variances).mean()))
    widths = network.sizes(problem.inputs, problem.outputs)[:-1]
    deviations = zip(layers, posterior.deviations(widths), strict=True)
    precisions = {layer: mean / (deviation**2 * n) for layer, deviation in deviations}
    settled = [one for part in parts for one in _settled(part, T * mean / n, precisions, layers)]
    return Settled(tuple(settled), variances, draws)


def _check_words(parts: Sequence[Part]) -> None:
    """A draw is between two words of all parts."""
    moving = [part.method for part in parts if part.method.moves]
    if len({method.seen_at_kick for method in moving}) > 1:
        raise ValueError(
            "Posterior: noise is sampled between two steps of the word, so all words must be seen at the "
            f"kick or none; got {', '.join(sorted({method.spelling for method in moving}))}"
        )


def _draws(problem: Problem, n: float, T: float, batch: int) -> Draws:
    shape = (SHAPE + 1 + n / 2) / T - 1
    if shape < 1:
        highest = (SHAPE + 1 + n / 2) / 2
        raise ValueError(
            f"Posterior: with {n:g} examples the temperature must be at most {highest:g}, got {T:g}"
        )
    rows = problem.X_train.shape[1]
    every = max(FEWEST, math.ceil(COST * rows / (3 * batch)))
    return Draws(shape, SCALE * spread(problem) / T, 0.5 * (n / rows) / T, every)


def _settled(part: Part, tau: float, precisions: Mapping[str, float], layers: Layers) -> list[Part]:
    """A part at a temperature, with its prior; where its layers have different ones, a piece for each layer,
    of the same name."""
    method = part.method.at_temperature(tau)
    own = [precisions[layer] for layer in part.layers]
    if len(set(own)) == 1:
        return [replace(part, method=method.with_prior(own[0]))]
    if part.thermostats:
        raise ValueError(
            f"Posterior: the layers of part {part.name!r} have thermostats together, and so one prior: give "
            "each a part of its own, or all of them one standard deviation"
        )
    pieces, tensors = [], list(part.tensors)
    for layer, precision in zip(part.layers, own, strict=True):
        count = len(layers[layer])
        spans, tensors = tuple(tensors[:count]), tensors[count:]
        pieces.append(replace(part, method=method.with_prior(precision), layers=(layer,), tensors=spans))
    return pieces


def draw_prior(
    posterior: Posterior, network: Dense, problem: Problem, count: int, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
    """So many networks of the prior: θ (count, parameters), and the variances of the targets, as they are
    scaled in the problem, (count, targets), drawn or known; None for classes."""
    rng = np.random.default_rng(seed)
    sizes = [sum(layer) for layer in network.layers(problem.inputs, problem.outputs).values()]
    deviations = posterior.deviations(network.sizes(problem.inputs, problem.outputs)[:-1])
    theta = rng.standard_normal((count, sum(sizes))) * np.repeat(deviations, sizes)
    variances = _variances(posterior, problem)
    if variances is None:
        return theta, None
    if posterior.noise == "sampled":
        return theta, SCALE * spread(problem) / rng.gamma(SHAPE, size=(count, problem.outputs))
    return theta, np.tile(variances, (count, 1))
