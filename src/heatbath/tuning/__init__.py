"""Hyperparameter search: `tune` finds the coefficients of a method."""

from heatbath.tuning.search import tune as tune
from heatbath.tuning.trials import Trial as Trial
from heatbath.tuning.trials import TuningResult as TuningResult
