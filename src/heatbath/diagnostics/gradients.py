"""Gradients of dense networks on all examples: the mean, and how much mini-batches differ from it."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import xarray as xr

from heatbath._internal.checks import FRICTION, NON_NEGATIVE, POSITIVE, real
from heatbath.diagnostics.mcmc import Array
from heatbath.models.dense import ACTIVATIONS, MLP
from heatbath.models.likelihood import Likelihood, mean_variance
from heatbath.runs.run import Run, check_run

ROWS = 10_000  # examples at a time, to need little memory


def gradient_moments(
    network: MLP, theta: Array, likelihood: Likelihood, draw: int, variances: Array | None = None
) -> tuple[Array, Array]:
    """Return the mean gradient of the loss over the training examples, and the mean of its squares.

    In float64, without the prior. An example's gradient by a weight is (derivative by the layer's output) x
    (layer's input), so the mean of squares needs no gradients of single examples.

    Parameters
    ----------
    network, theta
        The network and its parameters, (parameters,).
    likelihood
        The problem and its loss. An example's weight, over the mean weight, multiplies its loss.
    draw
        Number of the problem's draw of data.
    variances
        Noise variances of the targets, if the likelihood has them.

    Returns
    -------
    tuple of ndarray
        Mean of the gradient and mean of its squares, (parameters,) each.
    """
    problem = likelihood.problem
    X = problem.X_train[draw]
    Y = problem.Y_train[draw]
    relative_weights = problem.relative_weights("train")
    weights = np.ones(len(X)) if relative_weights is None else relative_weights[draw]
    parameters = np.asarray(theta, np.float64)
    gradient_sums = np.zeros(len(parameters))
    square_sums = np.zeros(len(parameters))
    for start in range(0, len(X), ROWS):
        rows = slice(start, start + ROWS)
        layers = _backpropagate(
            network, parameters, X[rows], Y[rows], likelihood, variances, weights[rows, None]
        )
        gradient_sums += _sum_over_examples(layers, power=1)
        square_sums += _sum_over_examples(layers, power=2)
    return gradient_sums / len(X), square_sums / len(X)


def _sum_over_examples(layers: list[tuple[Array, Array]], power: int) -> Array:
    """Return the sum over examples of a power of their gradients, (parameters,); see `gradient_moments`.

    `layers` is what `_backpropagate` returns.
    """
    tensor_sums = []
    for inputs, derivatives in reversed(layers):
        weight_sums = (derivatives**power).T @ inputs**power
        bias_sums = (derivatives**power).sum(axis=0)
        tensor_sums += [weight_sums.ravel(), bias_sums]
    return np.concatenate(tensor_sums)


def units_of_noise(run: Run, name: str, *index: int) -> tuple[float, Array | None]:
    """Return the unit of a chain's temperatures, and the noise variances of its targets.

    Parameters
    ----------
    run
        The run.
    name
        Result with the noise variances, such as "noise_now".
    *index
        Chain, and sample if the result has them.

    Returns
    -------
    tuple
        The mean noise variance if the noise is sampled, else 1; and the variances, (targets,), or None if the
        run has none.
    """
    if name not in run.data:
        return 1.0, None
    variances = run.data[name].values[index]
    unit = mean_variance(variances) if "noise" in run.data else 1.0
    return unit, variances


def gradient_noise(run: Run) -> xr.DataArray:
    """Return the variance s² of the mini-batch gradient at every chain's final parameters.

    It is the mean over a part's parameters of (1 - b/n)/b S², exact for b of n examples drawn without
    replacement, where S² is the variance of single examples' gradients (n - 1 in the denominator). Pass it to
    `gradient_heating` or `adaptive_friction`. If the noise of the data is sampled, s² is divided by its
    variance, because momenta are in units of its standard deviation.

    Returns
    -------
    DataArray
        s² by chain and part; NaN for a chain that diverged.
    """
    check_run(run, single=True)
    plan = run.plan
    parts = plan.parts()
    n = run.problem.X_train.shape[1]
    noise = np.full((len(run.theta), len(parts)), np.nan)
    for chain in np.flatnonzero(run.died < 0):
        draw = int(run.data["draw"].values[chain])
        unit, variances = units_of_noise(run, "noise_now", int(chain))
        mean, square = gradient_moments(run.network, run.theta[chain], plan.likelihood, draw, variances)
        variance = (1 / plan.batch - 1 / n) * np.maximum(square - mean**2, 0) * n / max(n - 1, 1) / unit
        for column, part in enumerate(parts):
            elements = np.concatenate(part.tensors)
            noise[chain, column] = np.mean(variance[elements])
    coordinates = {"part": [part.name for part in parts], "chain": run.data["chain"].values}
    return xr.DataArray(noise, coordinates, ("chain", "part"), "gradient_noise")


def gradient_heating(h: float, gamma: float, noise: float, curvature: float = 0.0) -> float:
    """Return by how much gradient noise raises the temperature of a Langevin part's positions.

    On a loss kθ²/2, k var θ exceeds τ by (h² s²/4) coth(γh/2)/(1 - h² k/4). Exact for white noise and the
    words BAOAB, BAOA, OBABO and ABOBA at the kick.

    Parameters
    ----------
    h, gamma
        Stepsize and friction γ.
    noise
        Variance s² of the gradient noise.
    curvature
        Curvature k of the loss; 0 gives the limit of small steps.

    Examples
    --------
    >>> round(gradient_heating(h=0.1, gamma=1.0, noise=2.0), 4)
    0.1001
    """
    h = real("h", h, POSITIVE)
    gamma = real("gamma", gamma, FRICTION)
    noise = real("noise", noise, NON_NEGATIVE)
    curvature = real("curvature", curvature)
    if h**2 * curvature >= 4:
        raise ValueError(f"h² x curvature must be < 4, the limit of stability, got {h**2 * curvature:g}")
    if gamma == 0:
        return math.inf if noise else 0.0
    return h**2 * noise / 4 / math.tanh(gamma * h / 2) / (1 - h**2 * curvature / 4)


def kinetic_heating(h: float, gamma: float, noise: float) -> float:
    """Return by how much gradient noise raises the temperature of a Langevin part's momenta just before O.

    The excess over τ is h² s²/(1 - exp(-2γh)): momenta get one full kick between two O's. Exact without
    curvature, for white noise and words with one O.
    """
    h = real("h", h, POSITIVE)
    gamma = real("gamma", gamma, FRICTION)
    noise = real("noise", noise, NON_NEGATIVE)
    if gamma == 0:
        return math.inf if noise else 0.0
    return h**2 * noise / -math.expm1(-2 * gamma * h)


def adaptive_friction(h: float, tau: float, sigma: float, noise: float) -> float:
    """Return the mean friction γ_eff = (h s² + σ²)/(2τ) of an Adaptive Langevin part, for small steps.

    `noise` is the variance s² of the gradient noise. With `friction="sde"` the mean of ξ is γ_eff/ε.
    """
    h = real("h", h, POSITIVE)
    tau = real("tau", tau, POSITIVE)
    noise = real("noise", noise, NON_NEGATIVE)
    sigma = real("sigma", sigma)
    return (h * noise + sigma**2) / (2 * tau)


def _backpropagate(
    network: MLP,
    theta: Array,
    X: Array,
    Y: Array,
    likelihood: Likelihood,
    variances: Array | None,
    weights: Array,
) -> list[tuple[Array, Array]]:
    """Return, from the last layer to the first, its input and the loss's derivative by its output.

    Both are (examples, units). `theta` has, layer by layer, the weight (out, in) and the bias (out,). The
    derivative of each example is multiplied by its weight, (examples, 1).
    """
    activation = ACTIVATIONS[network.activation]
    sizes = network.sizes(X.shape[1], likelihood.outputs)
    matrices: list[Array] = []
    layer_inputs: list[Array] = []
    outputs = X
    offset = 0
    for width, out in pairwise(sizes):
        inputs = activation.value(outputs) if layer_inputs else X
        bias_offset = offset + width * out
        next_offset = bias_offset + out
        W = theta[offset:bias_offset].reshape(out, width)
        outputs = inputs @ W.T + theta[bias_offset:next_offset]
        layer_inputs.append(inputs)
        matrices.append(W)
        offset = next_offset

    derivatives = likelihood.derivative(outputs, Y, variances) * weights
    layers = []
    for inputs, W in zip(reversed(layer_inputs), reversed(matrices), strict=True):
        layers.append((inputs, derivatives))
        derivatives = (derivatives @ W) * activation.slope(inputs)
    return layers
