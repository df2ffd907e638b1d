"""Posteriors: a prior and a likelihood, and the temperatures that they set.

The loss of a run is the mean of ℓ over n training examples. Langevin dynamics at temperature τ with the
precision d of its Gaussian prior (`weight_decay`) samples exp(-(mean ℓ + d|θ|²/2)/τ). With a prior
N(0, ς²) and T the temperature of the posterior, [likelihood x priors]^(1/T), that is the posterior where

| task | likelihood of an example | ℓ | τ | d |
| --- | --- | --- | --- | --- |
| binary | p^y (1 - p)^(1 - y), p = 1/(1 + exp(-f)) | binary cross entropy | T/n | 1/(ς² n) |
| classes | exp(f_y)/Σ_k exp(f_k) | cross entropy | T/n | 1/(ς² n) |
| counts | Π_k Poisson(y_k; exp(f_k)) | Σ_k (exp(f_k) - y_k f_k) | T/n | 1/(ς² n) |
| regression | Π_k N(y_k; f_k, s_k²) | Σ_k (s̄²/s_k²) (y_k - f_k)²/2 | T s̄²/n | s̄²/(ς² n) |
| with degrees ν | Π_k t_ν((y_k - f_k)/s_k)/s_k | Σ_k s̄² (ν+1)/2 log(1 + (y_k - f_k)²/(ν s_k²)) | the same | |
| noise "network" | Π_k N(y_k; f_k, exp(u_k)) | Σ_k (exp(-u_k) (y_k - f_k)² + u_k)/2 | T/n | 1/(ς² n) |

with s̄ the geometric mean of the s_k, so that h need not change with the noise, and u_k further outputs of
the network. Where s_k is unknown, s_k² has the prior IG(a, b v_k), v_k the variance of the target over the
training examples, and is drawn from its law given θ, IG((a + 1 + n/2)/T - 1, (b v_k + Σr²/2)/T), every few
steps, between two words. With degrees ν it is drawn given a number for each example, too, which is drawn
before, and then forgotten: (1 + r²/(ν s²))^(-c), c = (ν + 1)/(2T), is the integral of λ^(c-1) exp(-λ (1 +
r²/(ν s²)))/Γ(c) over λ, so that both draws leave the law of (θ, s²) as it is:

    λ_i ~ Gamma((ν + 1)/(2T))/(1 + r_i²/(ν s²)),    s² ~ IG((a + 1 + n/2)/T - 1, b v/T + Σ_i λ_i r_i²/ν).

Momenta are in units of s̄, so that they stay as they are: with π = p/s̄ the drift is θ += t s̄ π and the kick
π += t (G/s̄ - s̄ θ/(ς² n)), and all else is at the temperature T/n whatever s̄ is. For Langevin dynamics with
full gradients this samples θ and the s_k² together, but for what the stepsize does. An adaptive part keeps
σ²/τ and ετ (in the SDE's form ε²τ), of which the law of its thermostat is made.

Where examples have weights w, the likelihood of each has the power w: n is Σw, the loss is Σwℓ/Σw, Σr² is
Σwr², v_k the weighted variance, and the shape of λ_i is w_i (ν + 1)/(2T). A mini-batch of b examples has
Σwℓ/(b x mean w), whose mean is the loss.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from heatbath.datasets import Problem
from heatbath.datasets.problem import Floats, moments
from heatbath.datasets.tasks import STUDENT, TASKS, VARYING, exponential
from heatbath.methods.partition import Layers, Part, Partition
from heatbath.methods.posterior import Draws, Posterior, Settled
from heatbath.models.dense import MLP
from heatbath.reference.random import MOST_TARGETS

SHAPE, SCALE = 1.0, 0.01
"""a and b of the prior of the variance of the data, IG(a, b v), v the variance of the targets."""
FEWEST = 50  # steps between two draws of the variance, at least
COST = 4.0  # and so many times what a draw takes, in steps: it reads all examples, forwards only
TAILS = 4.0  # times as long it takes where each example has a number of its own (50 hidden units, measured)
SAME = 1e-9  # a relative difference of sums of weights that is rounding
MOST_KEPT = 64  # results of `settle` for a problem: an automatic run has some fifteen
_SETTLED: WeakKeyDictionary[Problem, dict[Any, Settled]] = WeakKeyDictionary()


@dataclass(frozen=True)
class Likelihood:
    """The law of a problem's targets given the outputs of a network, as a posterior has it.

    The first outputs are those of the task, one for each target or class (see `tasks`). With the noise
    "network" as many follow: the logarithms of the variances, of targets as they are scaled in the problem.
    `variances` are those of a chain where they are known or sampled, (targets,), and None elsewhere.
    """

    problem: Problem
    posterior: Posterior | None = None

    def __post_init__(self) -> None:
        if self.posterior is None or self.problem.task == "regression":
            return
        for name, usual in (("noise", "sampled"), ("degrees", None)):
            if (given := getattr(self.posterior, name)) != usual:
                raise ValueError(
                    f"Posterior: {name} is for a regression, and this is {self.problem.task!r}; got {given!r}"
                )

    @property
    def varying(self) -> bool:
        """Whether the network says the variances."""
        return self.posterior is not None and self.posterior.noise == "network"

    @property
    def degrees(self) -> float:
        """Those of freedom of the noise; those of a normal law are infinite."""
        given = None if self.posterior is None else self.posterior.degrees
        return math.inf if given is None else given

    @property
    def outputs(self) -> int:
        """How many outputs a network has."""
        return self.problem.outputs * (2 if self.varying else 1)

    @property
    def number(self) -> int:
        """What compiled code calls its loss."""
        if self.varying:
            return VARYING
        return STUDENT if self.degrees < math.inf else TASKS[self.problem.task].number

    def values(self, outputs: Floats) -> Floats:
        """What the outputs (..., outputs) predict: probabilities, values or rates, in the user's units."""
        return self.problem.decode(outputs[..., : self.problem.outputs])

    def noise(self, outputs: Floats, variances: Floats | None) -> Floats | None:
        """The variance of new data around the values of a regression, in the user's units, if it is known."""
        if self.varying:
            variances = exponential(outputs[..., self.problem.outputs :])
        return None if variances is None else self.in_units(variances)

    def in_units(self, variances: Floats) -> Floats:
        """The variance of new data in the user's units, from s² (..., targets).

        That of Student's law is s² ν/(ν - 2), and infinite with two degrees or less.
        """
        factor = 1.0
        if self.degrees < math.inf:
            factor = self.degrees / (self.degrees - 2) if self.degrees > 2 else math.inf
        return np.asarray(variances * self.problem.target_scale**2 * factor)

    def derivative(self, outputs: Floats, targets: Floats, variances: Floats | None = None) -> Floats:
        """The derivative of each example's loss by its outputs, (examples, outputs)."""
        if self.varying:
            values, logarithms = np.split(outputs, 2, axis=-1)
            precision, r = np.exp(-logarithms), values - targets
            return np.concatenate([precision * r, (1 - precision * r**2) / 2], axis=-1)
        residual = TASKS[self.problem.task].residual(outputs, targets)
        if variances is None:
            return residual
        if (degrees := self.degrees) < math.inf:
            residual = residual * (degrees + 1) / (degrees + residual**2 / variances)
        return residual * (mean_variance(variances) / variances)


def mean_variance(variances: Floats) -> float:
    """The geometric mean s̄² of the variances of the targets."""
    return float(np.exp(np.log(variances).mean()))


def _variances(posterior: Posterior, problem: Problem) -> NDArray[np.float64] | None:
    """The variance of each target around the network's values, as they are scaled in the problem; None
    where there is none, or the network says it. Where it is sampled, that is where it starts: at the variance
    of the targets."""
    if problem.task != "regression" or posterior.noise == "network":
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


def total(problem: Problem) -> float:
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


def settle(partition: Partition, network: MLP, problem: Problem, batch: int) -> Settled:
    """Return what the posterior of a partition sets, for mini-batches of `batch` examples.

    Without a posterior the parts are as they are. The stepsize doesn't matter. Results are kept as long as
    the problem lives, since plans ask for the same again and again.
    """
    known = _SETTLED.setdefault(problem, {})
    key = (partition.assigned, partition.posterior, network, batch)
    settled = known.get(key)
    if settled is None:
        settled = _settle(partition, network, problem, batch)
        if len(known) >= MOST_KEPT:
            known.clear()
        known[key] = settled
    return settled


def _settle(partition: Partition, network: MLP, problem: Problem, batch: int) -> Settled:
    """Compute what `settle` returns."""
    likelihood = Likelihood(problem, partition.posterior)
    layers = network.layers(problem.inputs, likelihood.outputs)
    parts, posterior = partition.parts(layers), partition.posterior
    if posterior is None:
        return Settled(parts, None, None)
    n, T = total(problem), posterior.temperature
    variances, draws, mean = _variances(posterior, problem), None, 1.0
    if variances is not None and posterior.noise == "sampled":
        draws = _draws(likelihood, n, T, batch)
        _check_words(parts)
    elif variances is not None:
        mean = mean_variance(variances)
    widths = network.sizes(problem.inputs, likelihood.outputs)[:-1]
    deviations = zip(layers, posterior.deviations(widths), strict=True)
    precisions = {layer: mean / (deviation**2 * n) for layer, deviation in deviations}
    settled = [one for part in parts for one in settle_part(part, T * mean / n, precisions, layers)]
    return Settled(tuple(settled), variances, draws, likelihood.degrees)


def _check_words(parts: Sequence[Part]) -> None:
    """A draw is between two words of all parts."""
    moving = [part.method for part in parts if part.method.moves]
    if len({method.seen_at_kick for method in moving}) > 1:
        raise ValueError(
            "Posterior: noise is sampled between two steps of the word, so all words must be seen at the "
            f"kick or none; got {', '.join(sorted({method.spelling for method in moving}))}"
        )


def law_of_variance(n: float, T: float, spread: NDArray[np.float64], every: int = 1) -> Draws:
    """How the variances of targets are drawn, given the squares of n residuals of each; `spread` is v."""
    shape = (SHAPE + 1 + n / 2) / T - 1
    if shape < 1:
        highest = (SHAPE + 1 + n / 2) / 2
        raise ValueError(
            f"Posterior: with {n:g} examples the temperature must be at most {highest:g}, got {T:g}"
        )
    return Draws(shape, SCALE * spread / T, 0.5 / T, every)


def _draws(likelihood: Likelihood, n: float, T: float, batch: int) -> Draws:
    problem, degrees = likelihood.problem, likelihood.degrees
    rows = problem.X_train.shape[1]
    cost = COST * (1.0 if degrees == math.inf else TAILS)
    law = law_of_variance(n, T, spread(problem), max(FEWEST, math.ceil(cost * rows / (3 * batch))))
    if degrees == math.inf:
        return law._replace(factor=law.factor * n / rows)
    if problem.outputs > MOST_TARGETS:
        raise ValueError(
            f"Posterior: degrees are for up to {MOST_TARGETS} targets whose noise is sampled, and there are "
            f"{problem.outputs}: leave them out, or give the noise"
        )
    weights = np.ones(problem.X_train.shape[:2]) if problem.weights_train is None else problem.weights_train
    return law._replace(factor=1.0, tails=weights * (degrees + 1) / (2 * T))


def settle_part(part: Part, tau: float, precisions: Mapping[str, float], layers: Layers) -> list[Part]:
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
    likelihood: Likelihood, network: MLP, count: int, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
    """So many networks of the prior of a likelihood's posterior: θ (count, parameters), and the variances of
    the targets, as they are scaled in the problem, (count, targets), drawn or known, where there are any."""
    problem, posterior = likelihood.problem, likelihood.posterior
    if posterior is None:
        raise ValueError("without a posterior there is no prior to draw from: give posterior=Posterior()")
    rng = np.random.default_rng(seed)
    sizes = [sum(layer) for layer in network.layers(problem.inputs, likelihood.outputs).values()]
    deviations = posterior.deviations(network.sizes(problem.inputs, likelihood.outputs)[:-1])
    theta = rng.standard_normal((count, sum(sizes))) * np.repeat(deviations, sizes)
    variances = _variances(posterior, problem)
    if variances is None:
        return theta, None
    if posterior.noise == "sampled":
        return theta, SCALE * spread(problem) / rng.gamma(SHAPE, size=(count, problem.outputs))
    return theta, np.tile(variances, (count, 1))
