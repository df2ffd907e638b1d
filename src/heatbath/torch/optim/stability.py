"""Stability of thermostats: the stepsize times the frequency of a thermostat must be below 2.

Small oscillations of ξ and p·p around their means have the frequency ω (`Method.thermostat_frequency`), and a
word that has E once integrates them by leapfrog, which is stable while hω < 2: h²εNτ < 2. Beyond that ξ
swings ever more widely, whatever the model does.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor

from heatbath._internal.warnings import UnstableThermostatWarning, warn
from heatbath.methods import Method
from heatbath.torch.optim import param_groups
from heatbath.torch.optim.param_groups import ParamGroup
from heatbath.torch.optim.state import is_lazy

REMEDY = "choose a smaller lr, or give frequency= in place of epsilon, for which size and tau do not matter"


def check_stable(groups: Iterable[ParamGroup]) -> None:
    """Refuse groups whose thermostats are unstable; the error lists all of them."""
    unstable = []
    for group in groups:
        first = param_groups.group_of_chain(group, 0)
        unstable.append(_describe_instability(first, param_groups.build_method(first)))
    if any(unstable):
        raise ValueError(
            f"thermostats must have lr times frequency below 2; {'; '.join(filter(None, unstable))}: {REMEDY}"
        )


def warn_if_unstable(group: ParamGroup, method: Method) -> bool:
    """Return whether the thermostat of a group (of one chain) has become unstable, and warn if it has.

    Only the choices of `method` matter; its coefficients are taken from the group.
    """
    text = _describe_instability(group, method)
    if text:
        warn(
            f"thermostats must have lr times frequency below 2, and at step {group['step']} {text}: {REMEDY}",
            UnstableThermostatWarning,
        )
    return bool(text)


def _describe_instability(group: ParamGroup, method: Method) -> str:
    """Return the part's name, size and lr times frequency as text; an empty text if its thermostat is stable.

    With a ξ for each tensor the largest tensor counts, because its thermostat has the highest frequency.
    """
    h = float(group["lr"])
    has_thermostat = type(method).thermostat_frequency is not Method.thermostat_frequency
    if not has_thermostat or not h:
        return ""

    stepped = [parameter for parameter in not_frozen(group["params"]) if not is_lazy(parameter)]
    sizes = [parameter.numel() // param_groups.chain_count(group) for parameter in stepped]
    is_per_tensor = param_groups.has_friction_per_tensor(group)
    size = max(sizes, default=0) if is_per_tensor else sum(sizes)
    omega = method.thermostat_frequency(param_groups.values_of(group), size)
    if h * omega < 2:
        return ""
    name = group.get("name", group.get("part", "a part"))
    return f"{name} of {size} parameters has {h * omega:.3g}"


def not_frozen(params: Iterable[Tensor]) -> list[Tensor]:
    """Return the parameters that require gradients."""
    return [parameter for parameter in params if parameter.requires_grad]
