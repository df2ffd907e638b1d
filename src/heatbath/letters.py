"""The maps: what each letter, and each baseline, does to (θ, p, ξ).

The letters are the maps of sections 2.2 and 2.5 of the paper, for a time t; the baselines are whole steps,
and `temper` is a move on the ladder of simulated tempering.
θ, p and G are arrays (chains, parameters), G is the negative gradient of the loss, R are standard normal
numbers, and ξ broadcasts against p.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.intp]


def A(theta: Array, p: Array, t: float) -> Array:
    """Drift: dθ = p dt."""
    return theta + t * p


def B(p: Array, G: Array, t: float) -> Array:
    """Kick: dp = G dt."""
    return p + t * G


def O(p: Array, R: Array, t: float, gamma: float, tau: float | Array) -> Array:
    """Ornstein-Uhlenbeck: dp = -γ p dt + sqrt(2γτ) dW. With γ = inf, p is drawn anew."""
    if math.isinf(gamma):
        return np.sqrt(tau) * R
    return math.exp(-gamma * t) * p + np.sqrt(tau * -math.expm1(-2 * gamma * t)) * R


def C(p: Array, t: float, xi: Array) -> Array:
    """Friction: dp = -ξ p dt with ξ held."""
    return np.exp(-t * xi) * p


def D(p: Array, R: Array, t: float, sigma: float) -> Array:
    """Driving noise: dp = σ dW."""
    return p + sigma * math.sqrt(t) * R


def E(xi: Array, kinetic: Array, target: Array, t: float, epsilon: float) -> Array:
    """Thermostat: dξ = ε (p·p - N τ) dt with p held; kinetic is p·p and target N τ, or both over N."""
    return xi + t * epsilon * (kinetic - target)


def F(p: Array, R: Array, t: float, xi: Array, sigma: float) -> Array:
    """Friction and driving noise together: dp = -ξ p dt + σ dW with ξ held, for any sign of ξ."""
    return np.exp(-t * xi) * p + sigma * np.sqrt(t * phi(2 * t * xi)) * R


def phi(x: Array) -> Array:
    """(1 - exp(-x))/x, and 1 at x = 0."""
    nonzero = np.where(x == 0, 1.0, x)
    return np.where(x == 0, 1.0, -np.expm1(-nonzero) / nonzero)


def sgd(theta: Array, G: Array, h: float) -> Array:
    """θ += h G."""
    return theta + h * G


def sgld(theta: Array, G: Array, R: Array, h: float, sigma: float) -> Array:
    """θ += h G + σ sqrt(h) R."""
    return theta + h * G + sigma * math.sqrt(h) * R


def momentum(theta: Array, v: Array, G: Array, h: float, mu: float, kind: int) -> tuple[Array, Array]:
    """Momentum of kind 1: v = μ v + h G, θ += v; of kind 2: v = μ v + (1 - μ) G, θ += h v."""
    if kind == 1:
        v = mu * v + h * G
        return theta + v, v
    v = mu * v + (1 - mu) * G
    return theta + h * v, v


def adam(
    theta: Array, m: Array, s: Array, G: Array, count: int, h: float, beta1: float, beta2: float, eps: float
) -> tuple[Array, Array, Array]:
    """Adam, at its `count`-th step from 1; m and s are the running moments of G."""
    m = beta1 * m + (1 - beta1) * G
    s = beta2 * s + (1 - beta2) * G**2
    mean = m / (1 - beta1**count)
    scale = np.sqrt(s / (1 - beta2**count)) + eps
    return theta + h * mean / scale, m, s


def temper(
    rung: Ints, U: Array, side: Array, chance: Array, ladder: Array, weights: Array
) -> tuple[Ints, Array]:
    """A move of simulated tempering: the new rung of each chain, and the factor on its momenta.

    A neighbour is proposed, below where side < 1/2, and accepted with probability
    min(1, exp(-(1/τ' - 1/τ) U + w' - w)); one off the ladder is refused.
    """
    proposed = rung + np.where(side < 0.5, -1, 1)
    proposed = np.where((proposed >= 0) & (proposed < len(ladder)), proposed, rung)
    exponent = -(1 / ladder[proposed] - 1 / ladder[rung]) * U + weights[proposed] - weights[rung]
    moved = np.where(np.log(chance) < exponent, proposed, rung)
    return moved, np.sqrt(ladder[moved] / ladder[rung])
