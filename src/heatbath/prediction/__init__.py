"""Predictions averaged over networks, and the laws of new data that follow from them.

`Run.predict` gives a `Prediction`: mean, variance, and how much of the uncertainty is noise of the data.
`Run.predictive` gives a `Mixture`, the law of new data in a regression, and `Run.calibration` a
`Calibration`, which says what share of the data lies where in it.
"""

from heatbath.prediction.averages import Prediction as Prediction
from heatbath.prediction.calibration import Calibration as Calibration
from heatbath.prediction.predictive_distributions import Mixture as Mixture
