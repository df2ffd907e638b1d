"""The definition of every method in NumPy: random numbers, the integrator, exact laws for quadratics."""

from heatbath.reference.integrator import Reference as Reference
from heatbath.reference.integrator import State as State
