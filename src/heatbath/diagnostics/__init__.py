"""Diagnostics of runs: temperatures, gradient noise, convergence, shapes of networks.

Modules are imported when a name is first used: `statistics` and `mcmc` load without the engine.
"""

from typing import TYPE_CHECKING

from heatbath._internal.lazy import lazy_names

if TYPE_CHECKING:
    from heatbath.diagnostics.convergence_check import Convergence as Convergence
    from heatbath.diagnostics.convergence_check import convergence as convergence
    from heatbath.diagnostics.gradients import adaptive_friction as adaptive_friction
    from heatbath.diagnostics.gradients import gradient_heating as gradient_heating
    from heatbath.diagnostics.gradients import gradient_noise as gradient_noise
    from heatbath.diagnostics.gradients import kinetic_heating as kinetic_heating
    from heatbath.diagnostics.temperatures import configurational as configurational
    from heatbath.diagnostics.temperatures import equipartition as equipartition
    from heatbath.diagnostics.temperatures import thermal_ratio as thermal_ratio
    from heatbath.diagnostics.temperatures import virial as virial
    from heatbath.diagnostics.weights import distributions as distributions
    from heatbath.diagnostics.weights import near_zero as near_zero
    from heatbath.diagnostics.weights import roughness as roughness

_NAMES = {  # the names that each module defines
    "convergence_check": "Convergence convergence",
    "gradients": "adaptive_friction gradient_heating gradient_noise kinetic_heating",
    "temperatures": "configurational equipartition thermal_ratio virial",
    "weights": "distributions near_zero roughness",
}
__getattr__, __dir__ = lazy_names(
    __name__,
    {name: f"{__name__}.{module}:{name}" for module, names in _NAMES.items() for name in names.split()},
)
