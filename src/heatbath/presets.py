"""The partitions of the paper, by name: one method for the hidden layers, another for the output layer."""

from __future__ import annotations

from heatbath.methods import AdaptiveLangevin, Langevin
from heatbath.partition import Partition
from heatbath.schedules import Coefficient


def LaLa(
    h: Coefficient,
    gamma: Coefficient,
    tau: Coefficient,
    gamma_output: Coefficient | None = None,
    tau_output: Coefficient | None = None,
) -> Partition:
    """Langevin in layers: a friction and a temperature for the hidden layers, others for the output layer.

    Section 3.1 of the paper. None: as the hidden layers.
    """
    output = Langevin(_or(gamma_output, gamma), _or(tau_output, tau))
    return Partition({"hidden": Langevin(gamma, tau), "output": output}, h)


def LOL(
    h: Coefficient = 0.1, gamma: Coefficient = 0.01, tau: Coefficient = 1e-3, tau_output: Coefficient = 0.0
) -> Partition:
    """Langevin in the hidden layers, overdamped Langevin (BAOAB with γ = inf) in the output layer.

    Section 3.2 of the paper.
    """
    output = Langevin(gamma=float("inf"), tau=tau_output)
    return Partition({"hidden": Langevin(gamma, tau), "output": output}, h)


def AdLaLa(
    h: Coefficient = 0.15,
    tau: Coefficient = 1e-4,
    sigma: Coefficient = 0.01,
    epsilon: Coefficient = 0.1,
    gamma: Coefficient = 0.1,
    tau_output: Coefficient | None = None,
) -> Partition:
    """Adaptive Langevin in the hidden layers, Langevin with friction `gamma` in the output layer.

    Equation (15) of the paper; the defaults are its rules of thumb. `tau_output` None: as the hidden layers.
    """
    hidden = AdaptiveLangevin(tau, sigma, epsilon)
    return Partition({"hidden": hidden, "output": Langevin(gamma, _or(tau_output, tau))}, h)


def AdLAdL(
    h: Coefficient = 0.15,
    tau: Coefficient = 1e-4,
    sigma: Coefficient = 0.01,
    epsilon: Coefficient = 0.1,
    tau_output: Coefficient | None = None,
    sigma_output: Coefficient | None = None,
    epsilon_output: Coefficient | None = None,
) -> Partition:
    """Adaptive Langevin in every layer, each with a ξ of its own. Section 3.3 of the paper.

    None: as the hidden layers.
    """
    hidden = AdaptiveLangevin(tau, sigma, epsilon)
    output = AdaptiveLangevin(_or(tau_output, tau), _or(sigma_output, sigma), _or(epsilon_output, epsilon))
    return Partition({"hidden": hidden, "output": output}, h)


def _or(value: Coefficient | None, otherwise: Coefficient) -> Coefficient:
    return otherwise if value is None else value
