"""Predictions averaged over samples, of torch models and of runs, and scores of predictions.

`Samples` collects states of a torch model while it is trained, `predict` averages what they say, and
`predict_run` does so for the samples, the chains or the last steps of a run. Both give a `Prediction`: mean,
variance, and how much of the uncertainty is noise of the data. `scores` judges probabilities and values.
Nothing here imports torch before it is used.
"""

from heatbath.prediction import scores as scores
from heatbath.prediction.averages import Prediction as Prediction
from heatbath.prediction.ensembles import predict_run as predict_run
from heatbath.prediction.models import predict as predict
from heatbath.prediction.samples import Samples as Samples
