"""Diagnostics: temperatures of runs, gradient noise, convergence, shapes of networks."""

from heatbath.diagnostics.agreement import Convergence as Convergence
from heatbath.diagnostics.agreement import convergence as convergence
from heatbath.diagnostics.gradients import adaptive_friction as adaptive_friction
from heatbath.diagnostics.gradients import gradient_heating as gradient_heating
from heatbath.diagnostics.gradients import gradient_noise as gradient_noise
from heatbath.diagnostics.gradients import kinetic_heating as kinetic_heating
from heatbath.diagnostics.modules import module_configurational as module_configurational
from heatbath.diagnostics.modules import module_convergence as module_convergence
from heatbath.diagnostics.modules import module_gradient_noise as module_gradient_noise
from heatbath.diagnostics.modules import module_roughness as module_roughness
from heatbath.diagnostics.shapes import distributions as distributions
from heatbath.diagnostics.shapes import near_zero as near_zero
from heatbath.diagnostics.shapes import roughness as roughness
from heatbath.diagnostics.temperatures import configurational as configurational
from heatbath.diagnostics.temperatures import equipartition as equipartition
from heatbath.diagnostics.temperatures import thermal_ratio as thermal_ratio
from heatbath.diagnostics.temperatures import virial as virial
