"""Whether thermostats can follow themselves: the stepsize times their frequency must be below 2.

Small oscillations of ξ and p·p around their means have the frequency ω (`Method.thermostat_frequency`), and a
word that has E once makes them by leapfrog, which is stable while hω < 2: h²εNτ < 2. Beyond, ξ swings ever
more widely, whatever the model does.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

from heatbath._internal.warnings import UnstableThermostatWarning
from heatbath.methods import Method
from heatbath.torch.optim import param_groups
from heatbath.torch.optim.state import is_lazy

Group = dict[str, Any]

REMEDY = "choose a smaller lr, or give frequency= in place of epsilon, for which size and tau do not matter"


def check(groups: Iterable[Group]) -> None:
    """Refuse groups whose thermostats cannot be stable, with all of them."""
    first = [param_groups.of_chain(group, 0) for group in groups]
    texts = [_unstable(group, param_groups.to_method(group, param_groups.current(group))) for group in first]
    if wrong := [text for text in texts if text]:
        raise ValueError(f"thermostats must have lr times frequency below 2; {'; '.join(wrong)}: {REMEDY}")


def warn(group: Group, method: Method) -> bool:
    """Whether a group, as one of its chains sees it, has come to be unstable on the way, which is said.

    Of the method its choices count, and not its coefficients.
    """
    text = _unstable(group, method)
    if text:
        warnings.warn(
            f"thermostats must have lr times frequency below 2, and at step {group['step']} {text}: {REMEDY}",
            UnstableThermostatWarning,
            stacklevel=2,
        )
    return bool(text)


def _unstable(group: Group, method: Method) -> str:
    h = float(group["lr"])
    if type(method).thermostat_frequency is Method.thermostat_frequency or not h:
        return ""
    sizes = [p.numel() // param_groups.chain_count(group) for p in moving(group["params"]) if not is_lazy(p)]
    largest = max(sizes, default=0) if param_groups.per_tensor(group) else sum(sizes)
    omega = method.thermostat_frequency(group, largest)
    if h * omega < 2:
        return ""
    name = group.get("name", group.get("part", "a part"))
    return f"{name} of {largest} parameters has {h * omega:.3g}"


def moving(params: Iterable[Any]) -> list[Any]:
    """The parameters that are not frozen."""
    return [p for p in params if p.requires_grad]
