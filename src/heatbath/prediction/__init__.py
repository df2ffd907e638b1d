"""Average predictions over networks, and compute the predictive distributions of new data.

`Run.predict` returns a `Prediction`: mean, variance, and how much of the uncertainty is noise of the data.
`Run.predictive` returns a `Mixture`, the distribution of new data in a regression. `Run.calibration` returns
a `Calibration`, which corrects its intervals by the training examples.
"""

from heatbath.prediction.calibration import Calibration as Calibration
from heatbath.prediction.ensemble_average import Prediction as Prediction
from heatbath.prediction.predictive_distributions import Mixture as Mixture
