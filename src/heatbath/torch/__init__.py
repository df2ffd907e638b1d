"""Optimisers for any PyTorch model: a method for each part of it, `torch.optim.Optimizer` to the letter.

`Partitioned` takes param groups with a "method". Every method of `heatbath` is also a class of its own, with
one method for all parameters, and so is every preset, with one method for the hidden layers and another for
the output layer: `Langevin`, `AdaptiveLangevin`, `SGLD`, ..., `AdLaLa`, `LOL`, `LaLa`, `AdLAdL`. A
`Posterior` sets their temperatures and priors. `Samples` collects states of a model while it is trained, and
`predict` averages what they say. `Sampler` does it all for a model that is trained.
"""

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ModuleNotFoundError(
        "heatbath.torch needs PyTorch, an extra: pip install 'heatbath[torch]'", name=error.name
    ) from error

from heatbath.prediction import Prediction as Prediction
from heatbath.prediction import Samples as Samples
from heatbath.prediction import StaleStatistics as StaleStatistics
from heatbath.prediction import predict as predict
from heatbath.prediction import renew_statistics as renew_statistics
from heatbath.torch import classes as _classes
from heatbath.torch.chains import Chains as Chains
from heatbath.torch.classes import LOL as LOL
from heatbath.torch.classes import SGD as SGD
from heatbath.torch.classes import SGLD as SGLD
from heatbath.torch.classes import Adam as Adam
from heatbath.torch.classes import AdaptiveLangevin as AdaptiveLangevin
from heatbath.torch.classes import AdLAdL as AdLAdL
from heatbath.torch.classes import AdLaLa as AdLaLa
from heatbath.torch.classes import Frozen as Frozen
from heatbath.torch.classes import LaLa as LaLa
from heatbath.torch.classes import Langevin as Langevin
from heatbath.torch.classes import Momentum as Momentum
from heatbath.torch.classes import RMSprop as RMSprop
from heatbath.torch.learning import CoarseSteps as CoarseSteps
from heatbath.torch.learning import LearningCoefficient as LearningCoefficient
from heatbath.torch.learning import llc as llc
from heatbath.torch.optimizer import Partitioned as Partitioned
from heatbath.torch.posteriors import Posterior as Posterior
from heatbath.torch.reports import Report as Report
from heatbath.torch.reports import WorseThanSingle as WorseThanSingle
from heatbath.torch.sampler import NotConverged as NotConverged
from heatbath.torch.sampler import Sampler as Sampler
from heatbath.torch.stability import UnstableThermostat as UnstableThermostat
from heatbath.torch.streams import Learned as Learned
from heatbath.torch.streams import Stream as Stream
from heatbath.torch.tuning import Tuned as Tuned
from heatbath.torch.tuning import tune as tune


def __getattr__(name: str) -> type[Partitioned]:
    """The class of a method that was registered."""
    return _classes.__getattr__(name)
