"""Coefficients that are found, and not chosen: `tune`."""

from heatbath.tuning.result import Tuned as Tuned
from heatbath.tuning.search import tune as tune
from heatbath.tuning.trials import AtEdge as AtEdge
from heatbath.tuning.trials import Trial as Trial
