"""The exact law of a partition on a quadratic loss θᵀKθ/2, where a step is linear in (θ, p) and the noise.

The one-step matrix is found by feeding basis vectors and unit noise through the real step of the reference,
so what is solved is the code and not a formula. Adaptive Langevin is linear with ξ held, that is, ε = 0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from heatbath.methods import Method
from heatbath.methods.letters import Array
from heatbath.methods.partition import Layers, Partition
from heatbath.methods.schedules import Schedule, SimulatedTempering
from heatbath.reference.integrator import Reference


def one_step(
    partition: Partition,
    hessian: ArrayLike,
    layers: Layers | None = None,
    *,
    rotated: bool = True,
    gradient_noise: float = 0.0,
) -> tuple[Array, Array]:
    """M and S of a step in mid-run: x → M x + S z, with x = (θ, p) and z independent standard normal numbers.

    `gradient_noise` is the standard deviation of white noise on every component of the gradient, drawn once
    for each mini-batch (for rotated words, where it belongs to one step only).
    """
    if gradient_noise and not rotated:
        raise ValueError("gradient noise is shared between two steps of a word as written: use rotated=True")
    for method in partition.methods.values():
        _check_linear(method)
    for value in (partition.h, *(v for m in partition.methods.values() for v in vars(m).values())):
        if isinstance(value, (Schedule, SimulatedTempering)):
            raise ValueError(f"a law is stationary only while the coefficients are: got {value!r}")
    K = np.atleast_2d(np.asarray(hessian, dtype=np.float64))
    N = len(K)
    slots = max(sum(s.kind.draws for s in method.substeps) for method in partition.methods.values())
    # one chain for each column of M and S: the basis vectors, each noise letter (a rotated step, too, has
    # each of them once), and the noise of the gradient
    inputs = np.eye(2 * N + slots * N + N)
    x, letters, kicks = np.split(inputs, [2 * N, 2 * N + slots * N], axis=1)

    def noise(step: int, slot: int) -> Array:
        return letters[:, slot * N : (slot + 1) * N]

    def gradient(theta: Array, batch: int) -> Array:
        return theta @ K + gradient_noise * kicks

    chains = Reference(gradient, x[:, :N], partition, layers, rotated=rotated, noise=noise)
    chains.state.p = x[:, N:].copy()
    chains.state.step = 1
    chains.advance(1)
    M, S = np.split(np.hstack([chains.state.theta, chains.state.p]).T, [2 * N], axis=1)
    return M, S


def stationary(M: Array, S: Array) -> Array:
    """The covariance V of the stationary law of x → M x + S z: the solution of V = M V Mᵀ + S Sᵀ."""
    radius = np.max(np.abs(np.linalg.eigvals(M)))
    if radius > 1 - 1e-12:
        cure = "a smaller h" if radius > 1 + 1e-6 else "friction"
        raise ValueError(f"no stationary law: a step multiplies by up to {radius:.6g}; {cure} is needed")
    Q = S @ S.T
    V = _accumulate(M, Q)
    return V + _accumulate(M, Q + M @ V @ M.T - V)  # one refinement, which matters near the edge of stability


def covariance(
    partition: Partition,
    hessian: ArrayLike,
    layers: Layers | None = None,
    *,
    rotated: bool = True,
    gradient_noise: float = 0.0,
) -> Array:
    """The exact stationary covariance of (θ, p) between steps."""
    return stationary(*one_step(partition, hessian, layers, rotated=rotated, gradient_noise=gradient_noise))


def _accumulate(M: Array, Q: Array) -> Array:
    """The sum of M^i Q Mᵀ^i over i >= 0, by doubling: with Q positive nothing cancels."""
    while np.abs(M).max() > 1e-20:
        Q = Q + M @ Q @ M.T
        M = M @ M
    return Q


def _check_linear(method: Method) -> None:
    if not method.linear:
        raise ValueError(
            f"a step is linear for Langevin, and for AdaptiveLangevin with epsilon=0; got {method!r}"
        )
