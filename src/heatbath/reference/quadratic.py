"""The exact law of a partition on a quadratic loss θᵀKθ/2, where a step is linear in (θ, p) and the noise.

The one-step matrix is found by feeding basis vectors and unit noise through the real step of the reference,
so what is solved is the code and not a formula. Adaptive Langevin is linear with ξ held, that is, with ε = 0.

Letters: K the Hessian, N the number of parameters, x = (θ, p) the state, z independent standard normal
numbers, M and S the matrices of a step x → M x + S z, V a covariance.
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
    """Return the matrices M and S of a step in mid-run, x → M x + S z.

    x = (θ, p) has 2N components, and z are independent standard normal numbers. The columns of the matrices
    are what the reference makes of basis vectors, one chain for each.

    Parameters
    ----------
    partition : Partition
        Methods whose steps are linear, with coefficients that don't change.
    hessian : array (N, N)
        K of the loss θᵀKθ/2.
    layers : Layers, optional
        Names and sizes of the layers, by default a single one.
    rotated : bool
        Cut the words for one gradient per step, or run the shared word as it is written.
    gradient_noise : float
        Standard deviation of white noise on every component of the gradient, drawn once for each mini-batch.
        It needs rotated words, where a mini-batch belongs to one step only.

    Returns
    -------
    M : array (2N, 2N)
        What a step makes of θ and p.
    S : array (2N, numbers)
        What a step adds for each normal number.

    Raises
    ------
    ValueError
        If a step isn't linear, a coefficient changes, or gradient noise is combined with a word as written.
    """
    if gradient_noise and not rotated:
        raise ValueError("gradient noise is shared between two steps of a word as written: use rotated=True")
    for method in partition.methods.values():
        _check_linear(method)
    _check_constant(partition)

    K = np.atleast_2d(np.asarray(hessian, dtype=np.float64))
    N = len(K)
    methods = partition.methods.values()
    slots = max(sum(substep.kind.draws for substep in method.substeps) for method in methods)
    # one chain for each component of x, of each noise letter (a rotated step, too, has each of them once),
    # and of the noise of the gradient
    inputs = np.eye(2 * N + slots * N + N)
    x, letter_noise, batch_noise = np.split(inputs, [2 * N, 2 * N + slots * N], axis=1)

    def noise(step: int, slot: int) -> Array:
        """Return the numbers of a noise letter, (chains, N)."""
        return letter_noise[:, slot * N : (slot + 1) * N]

    def gradient(theta: Array, batch: int) -> Array:
        """Return the gradient of the quadratic loss with its noise, (chains, N)."""
        return theta @ K + gradient_noise * batch_noise

    chains = Reference(gradient, x[:, :N], partition, layers, rotated=rotated, noise=noise)
    chains.state.p = x[:, N:].copy()
    chains.state.step = 1
    chains.advance(1)
    outputs = np.hstack([chains.state.theta, chains.state.p]).T
    M, S = np.split(outputs, [2 * N], axis=1)
    return M, S


def stationary(M: Array, S: Array) -> Array:
    """Return the covariance V of the stationary law of x → M x + S z: the solution of V = M V Mᵀ + S Sᵀ.

    Parameters
    ----------
    M : array (2N, 2N)
    S : array (2N, numbers)

    Returns
    -------
    array (2N, 2N)

    Raises
    ------
    ValueError
        If there is no stationary law, since M has an eigenvalue of size 1 or more.
    """
    radius = np.max(np.abs(np.linalg.eigvals(M)))
    if radius > 1 - 1e-12:
        remedy = "a smaller h" if radius > 1 + 1e-6 else "friction"
        raise ValueError(f"no stationary law: a step multiplies by up to {radius:.6g}; {remedy} is needed")
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
    """Return the exact stationary covariance (2N, 2N) of (θ, p) between steps; arguments as in `one_step`."""
    return stationary(*one_step(partition, hessian, layers, rotated=rotated, gradient_noise=gradient_noise))


def _accumulate(M: Array, Q: Array) -> Array:
    """Return the sum of M^i Q Mᵀ^i over i >= 0, by doubling: with Q positive nothing cancels."""
    while np.abs(M).max() > 1e-20:
        Q = Q + M @ Q @ M.T
        M = M @ M
    return Q


def _check_linear(method: Method) -> None:
    """Raise ValueError if a method's step isn't linear in (θ, p) and the noise."""
    if not method.linear:
        raise ValueError(
            f"a step is linear for Langevin, and for AdaptiveLangevin with epsilon=0; got {method!r}"
        )


def _check_constant(partition: Partition) -> None:
    """Raise ValueError if the stepsize or a coefficient of a partition changes during a run."""
    coefficients = [value for method in partition.methods.values() for value in vars(method).values()]
    for value in (partition.h, *coefficients):
        if isinstance(value, (Schedule, SimulatedTempering)):
            raise ValueError(f"a law is stationary only while the coefficients are: got {value!r}")
