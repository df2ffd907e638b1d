"""The partitions of the paper, by name: one method for the hidden layers, another for the output layer.

Each is written here once: the optimisers of `heatbath.torch` and the methods of the command line are made
from these functions. `word` is that of the hidden layers. A `posterior` sets the temperatures and priors:
leave out `tau` (but for Adaptive Langevin, where σ and ε are meant for that temperature) and `weight_decay`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from inspect import signature
from typing import Any, Literal, NamedTuple

from heatbath.methods import AdaptiveLangevin, Langevin, Method, known_methods, module_of
from heatbath.methods.base import STEPSIZE, Argument, describe
from heatbath.methods.partition import Partition
from heatbath.methods.posterior import Posterior
from heatbath.methods.ranges import Between, between
from heatbath.methods.schedules import Coefficient, Stepsize


def LaLa(
    h: Stepsize,
    gamma: Coefficient,
    tau: Coefficient | None = None,
    gamma_output: Coefficient | None = None,
    tau_output: Coefficient | None = None,
    *,
    word: str = Langevin.word,
    word_output: str = Langevin.word,
    weight_decay: Coefficient = 0.0,
    posterior: Posterior | None = None,
) -> Partition:
    """Langevin in layers: a friction and a temperature for the hidden layers, others for the output layer.

    Section 3.1 of the paper. None: as the hidden layers.

    >>> LaLa(h=0.1, gamma=1.0, tau=1e-4, tau_output=0.0).methods["output"]
    Langevin(gamma=1.0, tau=0.0, word='BAOAB')
    """
    hidden = Langevin(gamma, tau, word, weight_decay)
    output = Langevin(_or(gamma_output, gamma), _or(tau_output, tau), word_output, weight_decay)
    return Partition({"hidden": hidden, "output": output}, h, posterior)


def LOL(
    h: Stepsize = 0.1,
    gamma: Coefficient = 0.01,
    tau: Coefficient | None = 1e-3,
    tau_output: Coefficient | None = 0.0,
    *,
    word: str = Langevin.word,
    word_output: str = Langevin.word,
    weight_decay: Coefficient = 0.0,
    posterior: Posterior | None = None,
) -> Partition:
    """Langevin in the hidden layers, overdamped Langevin (BAOAB with γ = inf) in the output layer.

    Section 3.2 of the paper.

    >>> LOL().methods["output"]
    Langevin(gamma=inf, tau=0.0, word='BAOAB')
    """
    if posterior is not None and (tau, tau_output) == (1e-3, 0.0):
        tau, tau_output = None, None
    hidden = Langevin(gamma, tau, word, weight_decay)
    output = Langevin(float("inf"), tau_output, word_output, weight_decay)
    return Partition({"hidden": hidden, "output": output}, h, posterior)


def AdLaLa(
    h: Stepsize = 0.15,
    tau: Coefficient = AdaptiveLangevin.tau,
    sigma: Coefficient = AdaptiveLangevin.sigma,
    epsilon: Coefficient = AdaptiveLangevin.epsilon,
    gamma: Coefficient = 0.1,
    tau_output: Coefficient | None = None,
    *,
    word: str = AdaptiveLangevin.word,
    word_output: str = Langevin.word,
    xi: Coefficient = AdaptiveLangevin.xi,
    friction: Literal["map", "sde"] = AdaptiveLangevin.friction,
    thermostat: Literal["part", "tensor"] = AdaptiveLangevin.thermostat,
    kinetic: Literal["sum", "mean"] = AdaptiveLangevin.kinetic,
    frequency: Coefficient = 0.0,
    damping: Coefficient = 0.0,
    weight_decay: Coefficient = 0.0,
    posterior: Posterior | None = None,
) -> Partition:
    """Adaptive Langevin in the hidden layers, Langevin with friction `gamma` in the output layer.

    Equation (15) of the paper; the defaults are its rules of thumb, but for ε. `tau_output` None: as the
    hidden layers.
    For `xi` to `damping` see `AdaptiveLangevin`.

    >>> AdLaLa(tau=1e-5).methods["output"]
    Langevin(gamma=0.1, tau=1e-05, word='BAOAB')
    """
    _check_one(epsilon, frequency, sigma, damping)
    options = (xi, friction, thermostat, kinetic, weight_decay, frequency, damping)
    hidden = AdaptiveLangevin(tau, sigma, epsilon, word, *options)
    if posterior is None:
        tau_output = _or(tau_output, tau)
    output = Langevin(gamma, tau_output, word_output, weight_decay)
    return Partition({"hidden": hidden, "output": output}, h, posterior)


def AdLAdL(
    h: Stepsize = 0.15,
    tau: Coefficient = AdaptiveLangevin.tau,
    sigma: Coefficient = AdaptiveLangevin.sigma,
    epsilon: Coefficient = AdaptiveLangevin.epsilon,
    tau_output: Coefficient | None = None,
    sigma_output: Coefficient | None = None,
    epsilon_output: Coefficient | None = None,
    *,
    word: str = AdaptiveLangevin.word,
    word_output: str = AdaptiveLangevin.word,
    xi: Coefficient = AdaptiveLangevin.xi,
    friction: Literal["map", "sde"] = AdaptiveLangevin.friction,
    thermostat: Literal["part", "tensor"] = AdaptiveLangevin.thermostat,
    kinetic: Literal["sum", "mean"] = AdaptiveLangevin.kinetic,
    frequency: Coefficient = 0.0,
    damping: Coefficient = 0.0,
    weight_decay: Coefficient = 0.0,
    posterior: Posterior | None = None,
) -> Partition:
    """Adaptive Langevin in every layer, each with a ξ of its own. Section 3.3 of the paper.

    None: as the hidden layers. For `xi` to `damping` see `AdaptiveLangevin`.

    >>> AdLAdL(sigma_output=0.02).methods["output"]
    AdaptiveLangevin(tau=0.0001, sigma=0.02, epsilon=0.03, word='BACDEDCAB')
    """
    _check_one(epsilon, frequency, sigma, damping)
    options = (xi, friction, thermostat, kinetic, weight_decay, frequency, damping)
    hidden = AdaptiveLangevin(tau, sigma, epsilon, word, *options)
    output = AdaptiveLangevin(
        _or(tau_output, tau),
        _or(sigma_output, sigma),
        _or(epsilon_output, epsilon),
        word_output,
        *options,
    )
    return Partition({"hidden": hidden, "output": output}, h, posterior)


PRESETS: dict[str, Callable[..., Partition]] = {"AdLaLa": AdLaLa, "LOL": LOL, "LaLa": LaLa, "AdLAdL": AdLAdL}
"""All of them by name, for the optimisers and the command line."""


SEARCHED: dict[str, dict[str, Between]] = {
    "AdLaLa": {
        "h": between(0.04, 0.4),
        "tau": between(2e-5, 2e-3),
        "sigma": between(1e-4, 0.05),
        "epsilon": between(3e-3, 0.3),
        "gamma": between(1.0, 300.0),
        "tau_output": between(1e-8, 1e-5),
    },
    "LOL": {
        "h": between(0.05, 0.4),
        "gamma": between(3e-4, 1.0),
        "tau": between(1e-6, 1e-3),
        "tau_output": between(1e-8, 1e-4),
    },
    "LaLa": {
        "h": between(0.03, 0.3),
        "gamma": between(1e-3, 3.0),
        "tau": between(1e-6, 1e-3),
        "gamma_output": between(0.1, 30.0),
        "tau_output": between(1e-8, 1e-4),
    },
    "AdLAdL": {
        "h": between(0.04, 0.4),
        "tau": between(2e-5, 2e-3),
        "sigma": between(1e-4, 0.05),
        "epsilon": between(3e-3, 0.3),
        "tau_output": between(1e-6, 1e-3),
        "sigma_output": between(1e-4, 0.05),
    },
}
"""Ranges in which `tune` searches for their coefficients by default."""

OUTPUT = "_output"  # suffix of the arguments of presets that are for the output layer


class MethodChoice(NamedTuple):
    """A choice of method for all layers: a preset, or one registered method.

    Attributes
    ----------
    title : str
        The name in tables and, in lower case, on the command line.
    make : callable
        Makes the partition from `h`, the other arguments, and `posterior`.
    arguments : dict
        A description of each argument, without `posterior`.
    searched : dict
        The range in which `tune` searches for each argument by default.
    module : str or None
        The module of a method that is not heatbath's own.
    """

    title: str
    make: Callable[..., Partition]
    arguments: dict[str, Argument]
    searched: Mapping[str, Between]
    module: str | None = None

    def required(self, has_posterior: bool = False) -> list[str]:
        """Return the names of the arguments that must be given."""
        return [name for name, argument in self.arguments.items() if argument.is_required(has_posterior)]


def method_choices() -> dict[str, MethodChoice]:
    """Return every preset and every registered method, by its name in Python."""
    presets = {
        name: MethodChoice(name, preset, _describe_preset(preset), SEARCHED[name])
        for name, preset in PRESETS.items()
    }
    methods = {
        name: MethodChoice(
            kind.title,
            partial(_use_everywhere, kind),
            {"h": STEPSIZE, **describe(kind)},
            kind.searched,
            module_of(kind),
        )
        for name, kind in known_methods().items()
    }
    return presets | methods


def _describe_preset(preset: Callable[..., Partition]) -> dict[str, Argument]:
    """Describe the arguments of a preset by the fields of its methods, with the defaults of the preset."""
    fields = {"h": STEPSIZE} | describe(Langevin) | describe(AdaptiveLangevin)
    arguments = {}
    for name, parameter in signature(preset).parameters.items():
        if name == "posterior":
            continue
        argument = fields[name.removesuffix(OUTPUT)]
        text = argument.text
        if name.endswith(OUTPUT):
            text = f"For the output layer: {text[0].lower()}{text[1:]}"
        arguments[name] = argument._replace(name=name, text=text, default=parameter.default)
    return arguments


def _use_everywhere(
    method_class: type[Method], /, h: Stepsize, posterior: Posterior | None = None, **values: Any
) -> Partition:
    """Return a partition that uses one method for all layers."""
    return Partition(method_class(**values), h, posterior)


def _check_one(
    epsilon: Coefficient, frequency: Coefficient, sigma: Coefficient, damping: Coefficient
) -> None:
    """Refuse what would take the place of something that was given as well."""
    both = [
        f"{name} sets {other}, so give one of them and not both"
        for name, value, other, given, usual in (
            ("frequency", frequency, "epsilon", epsilon, AdaptiveLangevin.epsilon),
            ("damping", damping, "sigma", sigma, AdaptiveLangevin.sigma),
        )
        if value != 0 and given != usual
    ]
    if both:
        raise ValueError("; ".join(both))


def _or(value: Coefficient | None, otherwise: Coefficient | None) -> Any:
    return otherwise if value is None else value
