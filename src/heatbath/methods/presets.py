"""Make the partitions of the paper: one method for the hidden layers, another for the output layer.

The optimisers of `heatbath.torch`, the methods of the command line and the explorer's menu are made from
these functions.
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

# Temperatures of LOL without a posterior
LOL_TAU = 1e-3
LOL_TAU_OUTPUT = 0.0


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
    """Use Langevin dynamics with separate friction and temperature in hidden and output layers.

    Section 3.1 of the paper.

    Parameters
    ----------
    h : float, schedule, list, range or "auto"
        Stepsize.
    gamma, tau : float, schedule or list
        Friction and temperature of the hidden layers. Leave out `tau` with a posterior.
    gamma_output, tau_output : float, schedule or list, optional
        Friction and temperature of the output layer. The default is those of the hidden layers.
    word, word_output : str, optional
        Splitting schemes of the hidden layers and the output layer.
    weight_decay : float, schedule or list, optional
        Precision of the Gaussian prior of all layers. Leave it out with a posterior.
    posterior : Posterior, optional
        Sets the temperatures and priors.

    Returns
    -------
    Partition
        The parts `hidden` (or `hidden1`, `hidden2`, ...) and `output`.

    Examples
    --------
    >>> LaLa(h=0.1, gamma=1.0, tau=1e-4, tau_output=0.0).methods["output"]
    Langevin(gamma=1.0, tau=0.0, word='BAOAB')
    """
    gamma_output = _value_or(gamma_output, gamma)
    tau_output = _value_or(tau_output, tau)
    hidden = Langevin(gamma, tau, word, weight_decay)
    output = Langevin(gamma_output, tau_output, word_output, weight_decay)
    return Partition({"hidden": hidden, "output": output}, h, posterior)


def LOL(
    h: Stepsize = 0.1,
    gamma: Coefficient = 0.01,
    tau: Coefficient | None = LOL_TAU,
    tau_output: Coefficient | None = LOL_TAU_OUTPUT,
    *,
    word: str = Langevin.word,
    word_output: str = Langevin.word,
    weight_decay: Coefficient = 0.0,
    posterior: Posterior | None = None,
) -> Partition:
    """Use Langevin dynamics in hidden layers and overdamped Langevin dynamics in the output layer.

    The output layer has the word BAOAB with γ = inf. Section 3.2 of the paper.

    Parameters
    ----------
    h : float, schedule, list, range or "auto", optional
        Stepsize.
    gamma, tau : float, schedule or list, optional
        Friction and temperature of the hidden layers. Leave out `tau` with a posterior.
    tau_output : float, schedule or list, optional
        Temperature of the output layer. Leave it out with a posterior.
    word, word_output : str, optional
        Splitting schemes of the hidden layers and the output layer.
    weight_decay : float, schedule or list, optional
        Precision of the Gaussian prior of all layers. Leave it out with a posterior.
    posterior : Posterior, optional
        Sets the temperatures and priors.

    Returns
    -------
    Partition
        The parts `hidden` (or `hidden1`, `hidden2`, ...) and `output`.

    Examples
    --------
    >>> LOL().methods["output"]
    Langevin(gamma=inf, tau=0.0, word='BAOAB')
    """
    if posterior is not None and tau == LOL_TAU and tau_output == LOL_TAU_OUTPUT:
        tau = tau_output = None  # the posterior sets the temperatures, and replaces the defaults
    hidden = Langevin(gamma, tau, word, weight_decay)
    output = Langevin(float("inf"), tau_output, word_output, weight_decay)
    return Partition({"hidden": hidden, "output": output}, h, posterior)


def AdLaLa(  # noqa: PLR0913 # options by keyword
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
    """Use Adaptive Langevin dynamics in hidden layers and Langevin dynamics in the output layer.

    Equation (15) of the paper. The defaults are its rules of thumb, except for ε.

    Parameters
    ----------
    h : float, schedule, list, range or "auto", optional
        Stepsize.
    tau, sigma, epsilon : float, schedule or list, optional
        Temperature, driving noise and coupling of the thermostat in the hidden layers. With a posterior,
        `tau` is the temperature that σ and ε are meant for.
    gamma, tau_output : float, schedule or list, optional
        Friction and temperature of the output layer. The default temperature is that of the hidden layers.
    word, word_output : str, optional
        Splitting schemes of the hidden layers and the output layer.
    xi, friction, thermostat, kinetic, frequency, damping : optional
        Options of the hidden layers, as in `AdaptiveLangevin`.
    weight_decay : float, schedule or list, optional
        Precision of the Gaussian prior of all layers. Leave it out with a posterior.
    posterior : Posterior, optional
        Sets the temperatures and priors.

    Returns
    -------
    Partition
        The parts `hidden` (or `hidden1`, `hidden2`, ...) and `output`.

    Examples
    --------
    >>> AdLaLa(tau=1e-5).methods["output"]
    Langevin(gamma=0.1, tau=1e-05, word='BAOAB')
    """
    _check_one_of_each(epsilon, frequency, sigma, damping)
    options = (xi, friction, thermostat, kinetic, weight_decay, frequency, damping)
    hidden = AdaptiveLangevin(tau, sigma, epsilon, word, *options)
    if tau_output is None and posterior is None:  # a posterior sets the temperature of a Langevin part
        tau_output = tau
    output = Langevin(gamma, tau_output, word_output, weight_decay)
    return Partition({"hidden": hidden, "output": output}, h, posterior)


def AdLAdL(  # noqa: PLR0913 # options by keyword
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
    """Use Adaptive Langevin dynamics in all layers, with a separate ξ for each layer.

    Section 3.3 of the paper.

    Parameters
    ----------
    h : float, schedule, list, range or "auto", optional
        Stepsize.
    tau, sigma, epsilon : float, schedule or list, optional
        Temperature, driving noise and coupling of the thermostat in the hidden layers. With a posterior,
        `tau` is the temperature that σ and ε are meant for.
    tau_output, sigma_output, epsilon_output : float, schedule or list, optional
        Temperature, driving noise and coupling in the output layer. The default is those of the hidden
        layers.
    word, word_output : str, optional
        Splitting schemes of the hidden layers and the output layer.
    xi, friction, thermostat, kinetic, frequency, damping : optional
        Options of all layers, as in `AdaptiveLangevin`.
    weight_decay : float, schedule or list, optional
        Precision of the Gaussian prior of all layers. Leave it out with a posterior.
    posterior : Posterior, optional
        Sets the temperatures and priors.

    Returns
    -------
    Partition
        The parts `hidden` (or `hidden1`, `hidden2`, ...) and `output`.

    Examples
    --------
    >>> AdLAdL(sigma_output=0.02).methods["output"]
    AdaptiveLangevin(tau=0.0001, sigma=0.02, epsilon=0.03, word='BACDEDCAB')
    """
    _check_one_of_each(epsilon, frequency, sigma, damping)
    options = (xi, friction, thermostat, kinetic, weight_decay, frequency, damping)
    hidden = AdaptiveLangevin(tau, sigma, epsilon, word, *options)
    tau_output = _value_or(tau_output, tau)
    sigma_output = _value_or(sigma_output, sigma)
    epsilon_output = _value_or(epsilon_output, epsilon)
    output = AdaptiveLangevin(tau_output, sigma_output, epsilon_output, word_output, *options)
    return Partition({"hidden": hidden, "output": output}, h, posterior)


PRESETS: dict[str, Callable[..., Partition]] = {"AdLaLa": AdLaLa, "LOL": LOL, "LaLa": LaLa, "AdLAdL": AdLAdL}
"""All presets by name, for the optimisers, the command line and the explorer."""


SEARCHED: dict[str, dict[str, Between]] = {
    "AdLaLa": {
        **AdaptiveLangevin.searched,
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
        **AdaptiveLangevin.searched,
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
    """Return every preset and every registered method, by its name in Python.

    The command line, the tuner and the explorer list them.
    """
    choices = {
        name: MethodChoice(name, preset, _describe_preset(preset), SEARCHED[name])
        for name, preset in PRESETS.items()
    }
    for name, method_class in known_methods().items():
        choices[name] = MethodChoice(
            title=method_class.title,
            make=partial(_use_everywhere, method_class),
            arguments={"h": STEPSIZE, **describe(method_class)},
            searched=method_class.searched,
            module=module_of(method_class),
        )
    return choices


def _describe_preset(preset: Callable[..., Partition]) -> dict[str, Argument]:
    """Return a description of each argument of a preset, by its name, without `posterior`.

    An argument is described as in the preset's methods; "tau_output" is `tau` for the output layer. The
    defaults are those of the preset.
    """
    known_arguments = {"h": STEPSIZE} | describe(Langevin) | describe(AdaptiveLangevin)
    arguments = {}
    for name, parameter in signature(preset).parameters.items():
        if name == "posterior":
            continue
        argument = known_arguments[name.removesuffix(OUTPUT)]
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


def _check_one_of_each(
    epsilon: Coefficient, frequency: Coefficient, sigma: Coefficient, damping: Coefficient
) -> None:
    """Raise ValueError if a frequency is given beside ε, or a damping beside σ, which it would replace."""
    problems = []
    if frequency != 0 and epsilon != AdaptiveLangevin.epsilon:
        problems.append("frequency sets epsilon, so give one of them and not both")
    if damping != 0 and sigma != AdaptiveLangevin.sigma:
        problems.append("damping sets sigma, so give one of them and not both")
    if problems:
        raise ValueError("; ".join(problems))


def _value_or(value: Coefficient | None, default: Coefficient | None) -> Any:
    """Return a value, or a default if it is None."""
    return default if value is None else value
