"""Coefficients that are found, and not chosen: `tune`."""

from heatbath.tuning.result import Trial as Trial
from heatbath.tuning.result import Tuned as Tuned
from heatbath.tuning.search import tune as tune
