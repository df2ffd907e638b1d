"""Predictions averaged over samples, and scores of predictions.

`Samples` collects states of a torch model while it is trained, and `predict` averages what they say; for a
run, `Run.predict` does so. Both give a `Prediction`: mean, variance, and how much of the uncertainty is noise
of the data. `Run.predictive` gives a `Mixture`, the law of new data in a regression, and `Run.calibration` a
`Calibration`, which says what share of the data lies where in it. `scores` judges probabilities and values.
Nothing here imports torch before it is used.
"""

from heatbath.prediction import scores as scores
from heatbath.prediction.averages import Prediction as Prediction
from heatbath.prediction.calibration import Calibration as Calibration
from heatbath.prediction.mixtures import Mixture as Mixture
from heatbath.prediction.models import outputs as outputs
from heatbath.prediction.models import predict as predict
from heatbath.prediction.norms import StaleStatistics as StaleStatistics
from heatbath.prediction.norms import renew_statistics as renew_statistics
from heatbath.prediction.samples import Samples as Samples
