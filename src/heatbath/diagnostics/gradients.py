"""Gradients of dense networks on all examples: the mean, and how much mini-batches differ from it."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from heatbath._internal.checks import FRICTION, NON_NEGATIVE, POSITIVE, real
from heatbath.models.dense import ACTIVATIONS, MLP
from heatbath.models.likelihood import Likelihood, mean_variance
from heatbath.runs.run import Run, check_run

Array = NDArray[np.float64]
ROWS = 10_000  # examples at a time, to need little memory


def gradient_moments(
    network: MLP, theta: Array, likelihood: Likelihood, draw: int, variances: Array | None = None
) -> tuple[Array, Array]:
    """The mean over the training examples of the gradient of the loss, and of its squares, without any prior.

    In float64. The gradient of one example by a weight is (what comes back) x (what went in), so the mean of
    squares needs no gradient of single examples. `variances` are those of the targets, if there are any. The
    loss of an example with a weight is multiplied by that over the mean weight.
    """
    problem = likelihood.problem
    X, Y = problem.X_train[draw], problem.Y_train[draw]
    weights = problem.relative_weights("train")
    w = np.ones(len(X)) if weights is None else weights[draw]
    size = network.parameters(problem.inputs, likelihood.outputs)
    sums, squares = np.zeros(size), np.zeros(size)
    for begin in range(0, len(X), ROWS):
        rows = slice(begin, begin + ROWS)
        end = size
        given = np.asarray(theta, np.float64), X[rows], Y[rows]
        for inputs, back in _backwards(network, *given, likelihood, variances, w[rows, None]):
            for total, power in ((sums, 1), (squares, 2)):
                weight, bias = (back**power).T @ inputs**power, (back**power).sum(axis=0)
                total[end - weight.size - bias.size : end] += np.concatenate([weight.ravel(), bias])
            end -= weight.size + bias.size
    return sums / len(X), squares / len(X)


def units_of_noise(run: Run, name: str, *place: int) -> tuple[float, Array | None]:
    """What a chain's noise, a result of this name, says: the mean variance of the targets, which is the unit
    of temperatures where it is sampled and 1 elsewhere; and the variances, if there are any."""
    if name not in run.data:
        return 1.0, None
    variances = run.data[name].values[place]
    return mean_variance(variances) if "noise" in run.data else 1.0, variances


def gradient_noise(run: Run) -> xr.DataArray:
    """The variance s² of the mini-batch gradient at every chain's final parameters, by chain and part.

    The mean over a part's parameters of (1 - b/n)/b S², the exact variance for b of n examples drawn without
    replacement, where S² is the variance of the gradients of single examples (squares divided by n - 1). It
    is what `gradient_heating` and `adaptive_friction` take; where the noise of the data is sampled, over its
    variance, as momenta are in units of its deviation. NaN for a chain that diverged.
    """
    check_run(run, single=True)
    plan, problem = run.plan, run.problem
    parts = plan.parts()
    n = problem.X_train.shape[1]
    noise = np.full((len(run.theta), len(parts)), np.nan)
    for chain in np.flatnonzero(run.died < 0):
        draw = int(run.data["draw"].values[chain])
        unit, variances = units_of_noise(run, "noise_now", int(chain))
        mean, square = gradient_moments(run.network, run.theta[chain], plan.likelihood, draw, variances)
        variance = (1 / plan.batch - 1 / n) * np.maximum(square - mean**2, 0) * n / max(n - 1, 1) / unit
        for place, part in enumerate(parts):
            noise[chain, place] = np.mean(np.concatenate([variance[list(span)] for span in part.tensors]))
    coordinates = {"part": [part.name for part in parts], "chain": run.data["chain"].values}
    return xr.DataArray(noise, coordinates, ("chain", "part"), "gradient_noise")


def gradient_heating(h: float, gamma: float, noise: float, curvature: float = 0.0) -> float:
    """By how much gradient noise of variance s² (`noise`) heats the positions of a Langevin part.

    (h² s²/4) coth(γh/2)/(1 - h² k/4) is added to k var θ, that is, to τ, on a loss kθ²/2: exact for white
    noise and the words BAOAB, BAOA, OBABO and ABOBA at the kick. The curvature k = 0 is its limit for small
    steps.
    """
    h, gamma = real("h", h, POSITIVE), real("gamma", gamma, FRICTION)
    noise, curvature = real("noise", noise, NON_NEGATIVE), real("curvature", curvature)
    if h**2 * curvature >= 4:
        raise ValueError(f"h² x curvature must be < 4, the limit of stability, got {h**2 * curvature:g}")
    if gamma == 0:
        return math.inf if noise else 0.0
    return h**2 * noise / 4 / math.tanh(gamma * h / 2) / (1 - h**2 * curvature / 4)


def kinetic_heating(h: float, gamma: float, noise: float) -> float:
    """By how much gradient noise of variance s² heats the momenta of a Langevin part where its O reads them.

    h² s²/(1 - exp(-2γh)) is added to τ: between two O's the momenta get one full kick. Exact without
    curvature, for white noise and words with one O.
    """
    h, gamma = real("h", h, POSITIVE), real("gamma", gamma, FRICTION)
    noise = real("noise", noise, NON_NEGATIVE)
    if gamma == 0:
        return math.inf if noise else 0.0
    return h**2 * noise / -math.expm1(-2 * gamma * h)


def adaptive_friction(h: float, tau: float, sigma: float, noise: float) -> float:
    """The mean friction γ_eff = (h s² + σ²)/(2τ) that an Adaptive Langevin part finds, for small steps.

    s² is the variance of the gradient noise (`noise`); with `friction="sde"` the mean of ξ is γ_eff/ε.
    """
    h, tau = real("h", h, POSITIVE), real("tau", tau, POSITIVE)
    return (h * real("noise", noise, NON_NEGATIVE) + real("sigma", sigma) ** 2) / (2 * tau)


def _backwards(
    network: MLP,
    theta: Array,
    X: Array,
    Y: Array,
    likelihood: Likelihood,
    variances: Array | None,
    weights: Array,
) -> list[tuple[Array, Array]]:
    """From the last layer to the first, by example: what went into it, and the derivative by what it gave."""
    activation = ACTIVATIONS[network.activation]
    inputs, matrices, begin = [X], [], 0
    sizes = network.sizes(X.shape[1], likelihood.outputs)
    for width, out in pairwise(sizes):
        W = theta[begin : begin + width * out].reshape(out, width)
        values = inputs[-1] @ W.T + theta[begin + width * out : begin + width * out + out]
        begin += (width + 1) * out
        matrices.append(W)
        inputs.append(activation.value(values) if len(inputs) < len(sizes) - 1 else values)
    back = likelihood.derivative(inputs.pop(), Y, variances) * weights
    layers = []
    for values, W in zip(reversed(inputs), reversed(matrices), strict=True):
        layers.append((values, back))
        back = (back @ W) * activation.slope(values)
    return layers
