"""Compute losses, temperatures and priors from a posterior: a likelihood with a Gaussian prior.

The loss of a run is the mean of ℓ over n training examples. Langevin dynamics at temperature τ with the
precision d of its Gaussian prior (`weight_decay`) samples exp(-(mean ℓ + d|θ|²/2)/τ). With a prior N(0, ς²)
and the temperature T of the posterior, this is [likelihood x prior]^(1/T) for

| task | likelihood of an example | ℓ | τ | d |
| --- | --- | --- | --- | --- |
| binary | p^y (1 - p)^(1 - y), p = 1/(1 + exp(-f)) | binary cross entropy | T/n | 1/(ς² n) |
| classes | exp(f_y)/Σ_k exp(f_k) | cross entropy | T/n | 1/(ς² n) |
| counts | Π_k Poisson(y_k; exp(f_k)) | Σ_k (exp(f_k) - y_k f_k) | T/n | 1/(ς² n) |
| regression | Π_k N(y_k; f_k, s_k²) | Σ_k (s̄²/s_k²) (y_k - f_k)²/2 | T s̄²/n | s̄²/(ς² n) |
| with degrees ν | Π_k t_ν((y_k - f_k)/s_k)/s_k | Σ_k s̄² (ν+1)/2 log(1 + (y_k - f_k)²/(ν s_k²)) | the same | |
| noise "network" | Π_k N(y_k; f_k, exp(u_k)) | Σ_k (exp(-u_k) (y_k - f_k)² + u_k)/2 | T/n | 1/(ς² n) |

s̄ is the geometric mean of the s_k, so that a good stepsize doesn't depend on the noise. u_k are additional
outputs of the network.

An unknown s_k² has the prior IG(a, b v_k), where v_k is the variance of the target over the training
examples. It is drawn every few steps, between two steps, from its law given θ, IG((a + 1 + n/2)/T - 1, (b v_k
+ Σr²/2)/T). With degrees ν the draw is also conditional on a number λ_i for each example, which is drawn just
before and then discarded:

    λ_i ~ Gamma((ν + 1)/(2T))/(1 + r_i²/(ν s²)),    s² ~ IG((a + 1 + n/2)/T - 1, b v/T + Σ_i λ_i r_i²/ν).

Both draws preserve the law of (θ, s²), because (1 + r²/(ν s²))^(-c) with c = (ν + 1)/(2T) is the integral of
λ^(c-1) exp(-λ (1 + r²/(ν s²)))/Γ(c) over λ.

Momenta are in units of s̄, so that they don't change when it does: with π = p/s̄ the drift is θ += t s̄ π and
the kick π += t (G/s̄ - s̄ θ/(ς² n)), and everything else is at the temperature T/n whatever s̄ is. For
Langevin dynamics with full gradients this samples θ and the s_k² together, up to the error of the stepsize.
An adaptive part keeps σ²/τ and ετ (in the SDE's form ε²τ), which define the law of its thermostat.

If examples have weights w, the likelihood of each has the power w: n is Σw, the loss is Σwℓ/Σw, Σr² is Σwr²,
v_k the weighted variance, and the shape of λ_i is w_i (ν + 1)/(2T). The loss of a mini-batch of b examples is
Σwℓ/(b x mean w), whose mean is the loss.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice
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
"""a and b of the prior IG(a, b v) of the noise variance, where v is the variance of the targets."""
FEWEST_STEPS_BETWEEN_DRAWS = 50  # steps between two draws of the variance, at least
# Steps between two draws, at least, in units of a draw's cost: a forward pass over all examples
COST_OF_DRAW = 4.0
GRADIENT_COST = 3.0  # of a training step, in forward passes: one forward, and one backward that costs two
TAILS = 4.0  # factor on this cost if each example has its own λ (measured with 50 hidden units)
SAME = 1e-9  # relative difference of sums of weights that is rounding
MOST_CACHED = 64  # results of `settle` for a problem; an automatic run has about fifteen
_CACHE: WeakKeyDictionary[Problem, dict[Any, Settled]] = WeakKeyDictionary()


@dataclass(frozen=True)
class Likelihood:
    """Distribution of a problem's targets given the outputs of a network, for a posterior or none.

    The first outputs are those of the task, one for each target or class (see `tasks`). With noise "network"
    the same number of outputs follow: the logarithms of the variances, of targets as they are scaled in the
    problem. The argument `variances` of the methods are known or sampled noise variances of a chain,
    (targets,), or None.
    """

    problem: Problem
    posterior: Posterior | None = None

    def __post_init__(self) -> None:
        """Check that settings for a regression are used with one."""
        if self.posterior is None or self.problem.task == "regression":
            return
        for name, default in (("noise", "sampled"), ("degrees", None)):
            value = getattr(self.posterior, name)
            if value != default:
                raise ValueError(
                    f"Posterior: {name} is for a regression, and this is {self.problem.task!r}: leave it "
                    f"out; got {value!r}"
                )

    @cached_property
    def varying(self) -> bool:
        """True if the network predicts the noise variances."""
        return self.posterior is not None and self.posterior.noise == "network"

    @cached_property
    def degrees(self) -> float:
        """Degrees of freedom of the noise, infinite for a normal distribution."""
        degrees = None if self.posterior is None else self.posterior.degrees
        return math.inf if degrees is None else degrees

    @cached_property
    def outputs(self) -> int:
        """Number of outputs of a network."""
        return self.problem.outputs * (2 if self.varying else 1)

    @cached_property
    def number(self) -> int:
        """Code of the loss in compiled code."""
        if self.varying:
            return VARYING
        return STUDENT if self.degrees < math.inf else TASKS[self.problem.task].number

    def values(self, outputs: Floats) -> Floats:
        """Return the predictions of outputs: probabilities, values or rates, in the user's units."""
        return self.problem.decode(outputs[..., : self.problem.outputs])

    def noise(self, outputs: Floats, variances: Floats | None) -> Floats | None:
        """Return the variance of new data around a regression's values, in the user's units, or None."""
        if self.varying:
            variances = exponential(outputs[..., self.problem.outputs :])
        return None if variances is None else self.in_units(variances)

    def in_units(self, variances: Floats) -> Floats:
        """Return the variance of new data in the user's units, (..., targets), from s².

        With Student's distribution it is s² ν/(ν - 2), and infinite for two degrees of freedom or less.
        """
        factor = 1.0
        if self.degrees < math.inf:
            factor = self.degrees / (self.degrees - 2) if self.degrees > 2 else math.inf
        return np.asarray(variances * self.problem.target_scale**2 * factor)

    def derivative(self, outputs: Floats, targets: Floats, variances: Floats | None = None) -> Floats:
        """Return the derivative of each example's loss by its outputs, (examples, outputs).

        Parameters
        ----------
        outputs : array, (examples, outputs)
            Outputs of the network.
        targets : array, (examples, targets)
            Targets as they are scaled in the problem.
        variances : array, (targets,), optional
            Noise variances s² of a regression; None if the loss has none.
        """
        if self.varying:
            values, logarithms = np.split(outputs, 2, axis=-1)
            precision = np.exp(-logarithms)
            residual = values - targets
            return np.concatenate([precision * residual, (1 - precision * residual**2) / 2], axis=-1)
        residual = TASKS[self.problem.task].residual(outputs, targets)
        if variances is None:
            return residual
        degrees = self.degrees
        if degrees < math.inf:
            residual = residual * (degrees + 1) / (degrees + residual**2 / variances)
        return residual * (mean_variance(variances) / variances)


def mean_variance(variances: Floats) -> float:
    """Return the geometric mean s̄² of the variances of the targets."""
    return float(np.exp(np.log(variances).mean()))


def _variances(posterior: Posterior, problem: Problem) -> NDArray[np.float64] | None:
    """Return the initial noise variance of each target, as it is scaled in the problem, (targets,).

    It is the variance of the targets if it will be sampled, and None for other tasks or if the network
    predicts it.
    """
    if problem.task != "regression" or posterior.noise == "network":
        return None
    if posterior.noise == "sampled":
        return spread(problem)
    deviations = np.atleast_1d(np.asarray(posterior.noise, np.float64))
    if len(deviations) not in (1, problem.outputs):
        raise ValueError(
            f"Posterior: noise has {len(deviations)} standard deviations, and there are {problem.outputs} "
            "targets: give one for all, or one for each"
        )
    return np.asarray((np.broadcast_to(deviations, problem.outputs) / problem.target_scale) ** 2)


def spread(problem: Problem) -> NDArray[np.float64]:
    """Return the weighted variance of each target over the training examples, or 1 for a constant target."""
    _, variances = moments(problem.Y_train, problem.weights_train)
    variance = variances.mean(axis=0)
    return np.where(variance > 0, variance, 1.0)


def total(problem: Problem) -> float:
    """Return n, the number of training examples, or the sum of their weights."""
    if problem.weights_train is None:
        return float(problem.X_train.shape[1])
    sums = problem.weights_train.sum(axis=1)
    if np.ptp(sums) > SAME * sums.max():
        raise ValueError(
            "Posterior: all draws of the data need the same sum of weights, as that sets the temperature; "
            f"they are from {sums.min():g} to {sums.max():g}: rescale the weights of each draw"
        )
    return float(sums.mean())


def settle(partition: Partition, network: MLP, problem: Problem, batch: int) -> Settled:
    """Return what the posterior of a partition sets for a network and a problem.

    The stepsize doesn't matter. Results are cached as long as the problem exists, because plans need the same
    result repeatedly.

    Parameters
    ----------
    partition : Partition
        Methods, and perhaps a posterior.
    network : MLP
        The network.
    problem : Problem
        The data.
    batch : int
        Examples of a mini-batch, which determine how often variances are drawn.

    Returns
    -------
    Settled
        Parts with temperatures and priors, and the noise variances. Without a posterior, the parts are
        unchanged.
    """
    cache = _CACHE.setdefault(problem, {})
    key = (partition.assigned, partition.posterior, network, batch)
    settled = cache.get(key)
    if settled is None:
        settled = _settle(partition, network, problem, batch)
        if len(cache) >= MOST_CACHED:
            cache.clear()
        cache[key] = settled
    return settled


def _settle(partition: Partition, network: MLP, problem: Problem, batch: int) -> Settled:
    """Return temperatures, priors and noise variances for a network and a problem; see `settle`.

    The loss is in units of the mean noise variance s̄², which is 1 while the variances are sampled: then the
    parts' temperature is T/n and their prior 1/(ς² n).
    """
    likelihood = Likelihood(problem, partition.posterior)
    layers = network.layers(problem.inputs, likelihood.outputs)
    parts = partition.parts(layers)
    posterior = partition.posterior
    if posterior is None:
        return Settled(parts, None, None)

    n = total(problem)
    T = posterior.temperature
    variances = _variances(posterior, problem)
    draws = None
    unit = 1.0  # s̄²
    if variances is not None and posterior.noise == "sampled":
        draws = _draws(likelihood, n, T, batch)
        _check_words(parts)
    elif variances is not None:
        unit = mean_variance(variances)

    widths = network.sizes(problem.inputs, likelihood.outputs)[:-1]
    deviations = zip(layers, posterior.deviations(widths), strict=True)
    precisions = {layer: unit / (deviation**2 * n) for layer, deviation in deviations}
    settled = [settle_part(part, T * unit / n, precisions, layers) for part in parts]
    return Settled(tuple(chain.from_iterable(settled)), variances, draws, likelihood.degrees)


def _check_words(parts: Sequence[Part]) -> None:
    """Raise ValueError unless all parts have a common moment between two steps at which to draw noise."""
    moving = [part.method for part in parts if part.method.moves]
    if len({method.seen_at_kick for method in moving}) > 1:
        raise ValueError(
            "Posterior: noise is sampled between two steps, so either all words or none must show θ at the "
            f"kick; got {', '.join(sorted({method.spelling for method in moving}))}"
        )


def law_of_variance(n: float, T: float, spread: NDArray[np.float64], every: int = 1) -> Draws:
    """Return how the noise variances are drawn, given n residuals of each target.

    Parameters
    ----------
    n : float
        Number of examples, or the sum of their weights.
    T : float
        Temperature of the posterior.
    spread : array, (targets,)
        Variance v of each target.
    every : int, optional
        Steps between draws.
    """
    shape = (SHAPE + 1 + n / 2) / T - 1
    if shape < 1:
        highest = (SHAPE + 1 + n / 2) / 2
        raise ValueError(
            f"Posterior: with {n:g} examples the temperature must be at most {highest:g}, got {T:g}"
        )
    return Draws(shape, SCALE * spread / T, 0.5 / T, every)


def _draws(likelihood: Likelihood, n: float, T: float, batch: int) -> Draws:
    """Return how the noise variances are drawn in a run.

    Parameters
    ----------
    likelihood : Likelihood
        The problem and its posterior.
    n : float
        Number of examples, or the sum of their weights.
    T : float
        Temperature of the posterior.
    batch : int
        Examples in a mini-batch: with small ones, draws are rarer, since each takes a pass over all examples.
    """
    problem = likelihood.problem
    degrees = likelihood.degrees
    example_count = problem.X_train.shape[1]
    cost = COST_OF_DRAW if degrees == math.inf else COST_OF_DRAW * TAILS
    steps_between = max(FEWEST_STEPS_BETWEEN_DRAWS, math.ceil(cost * example_count / (GRADIENT_COST * batch)))
    law = law_of_variance(n, T, spread(problem), steps_between)
    if degrees == math.inf:
        return law._replace(factor=law.factor * n / example_count)
    if problem.outputs > MOST_TARGETS:
        raise ValueError(
            f"Posterior: degrees with sampled noise are for up to {MOST_TARGETS} targets, and there are "
            f"{problem.outputs}: leave out degrees, or give the noise"
        )
    weights = np.ones(problem.X_train.shape[:2]) if problem.weights_train is None else problem.weights_train
    return law._replace(factor=1.0, tails=weights * (degrees + 1) / (2 * T))


def settle_part(part: Part, tau: float, precisions: Mapping[str, float], layers: Layers) -> list[Part]:
    """Return a part with its temperature and prior; one for each layer if they have different priors.

    Parameters
    ----------
    part : Part
        The part.
    tau : float
        The temperature.
    precisions : mapping of str to float
        The precision of the prior of each layer.
    layers : mapping of str to sequence of int
        The sizes of the tensors of each layer.
    """
    method = part.method.at_temperature(tau)
    part_precisions = [precisions[layer] for layer in part.layers]
    if len(set(part_precisions)) == 1:
        return [replace(part, method=method.with_prior(part_precisions[0]))]
    if part.thermostats:
        raise ValueError(
            f"Posterior: the layers of part {part.name!r} share thermostats, so they need one prior: give "
            "each layer its own part, or all of them the same standard deviation"
        )
    remaining_tensors = iter(part.tensors)
    layer_parts = []
    for layer, precision in zip(part.layers, part_precisions, strict=True):
        tensors = tuple(islice(remaining_tensors, len(layers[layer])))
        layer_method = method.with_prior(precision)
        layer_parts.append(replace(part, method=layer_method, layers=(layer,), tensors=tensors))
    return layer_parts


def draw_prior(
    likelihood: Likelihood, network: MLP, count: int, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
    """Draw networks from the prior of a posterior.

    Parameters
    ----------
    likelihood : Likelihood
        The problem and the posterior.
    network : MLP
        The shape of the networks.
    count : int
        Number of networks.
    seed : int
        Seed of the draw.

    Returns
    -------
    theta : array, (count, parameters)
        The parameters.
    variances : array, (count, targets), or None
        Noise variances of the targets as they are scaled in the problem, drawn or known, if there are any.
    """
    problem = likelihood.problem
    posterior = likelihood.posterior
    if posterior is None:
        raise ValueError("without a posterior there is no prior to draw from: give posterior=Posterior()")
    generator = np.random.default_rng(seed)
    layers = network.layers(problem.inputs, likelihood.outputs)
    layer_sizes = [sum(tensor_sizes) for tensor_sizes in layers.values()]
    widths = network.sizes(problem.inputs, likelihood.outputs)[:-1]
    deviations = np.repeat(posterior.deviations(widths), layer_sizes)
    theta = generator.standard_normal((count, sum(layer_sizes))) * deviations

    variances = _variances(posterior, problem)
    if variances is None:
        return theta, None
    if posterior.noise == "sampled":
        gammas = generator.gamma(SHAPE, size=(count, problem.outputs))
        return theta, SCALE * spread(problem) / gammas
    return theta, np.tile(variances, (count, 1))
