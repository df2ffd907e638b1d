"""Optimisers for any PyTorch model: a method for each part of it, `torch.optim.Optimizer` to the letter.

`Partitioned` takes param groups with a "method"; `Langevin`, `AdaptiveLangevin` and `SGLD` have one method
for all parameters, `LaLa`, `LOL` and `AdLaLa` one for the hidden layers and one for the output layer.
`Samples` collects states of a model while it is trained, and `predict` averages what they say.
"""

from heatbath.prediction import Prediction as Prediction
from heatbath.prediction import Samples as Samples
from heatbath.prediction import predict as predict
from heatbath.torch.optimizer import Partitioned as Partitioned
from heatbath.torch.presets import LOL as LOL
from heatbath.torch.presets import SGLD as SGLD
from heatbath.torch.presets import AdaptiveLangevin as AdaptiveLangevin
from heatbath.torch.presets import AdLaLa as AdLaLa
from heatbath.torch.presets import LaLa as LaLa
from heatbath.torch.presets import Langevin as Langevin
