"""Train and sample PyTorch models: optimisers with a method for each part of a model, and tools beside them.

The optimisers are `torch.optim.Optimizer`s. `Partitioned` takes param groups with a "method". Every method of
`heatbath` is also a class of its own, with one method for all parameters, and so is every preset, with one
method for the hidden layers and another for the output layer: `Langevin`, `AdaptiveLangevin`, `SGLD`, ...,
`AdLaLa`, `LOL`, `LaLa`, `AdLAdL`. A `LossPosterior` sets their temperatures and priors. `Samples` collects
states of a model while it is trained, and `predict` averages their predictions. `Sampler` does all of this
for a trained model.
"""

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ModuleNotFoundError(
        "heatbath.torch needs PyTorch, an extra: pip install 'heatbath[torch]'", name=error.name
    ) from error

from heatbath._internal.warnings import CoarseStepsWarning as CoarseStepsWarning
from heatbath._internal.warnings import NotConvergedWarning as NotConvergedWarning
from heatbath._internal.warnings import StaleStatisticsWarning as StaleStatisticsWarning
from heatbath._internal.warnings import UnstableThermostatWarning as UnstableThermostatWarning
from heatbath._internal.warnings import WorseThanSingleWarning as WorseThanSingleWarning
from heatbath.prediction import Prediction as Prediction
from heatbath.torch.diagnostics import module_configurational as module_configurational
from heatbath.torch.diagnostics import module_convergence as module_convergence
from heatbath.torch.diagnostics import module_gradient_noise as module_gradient_noise
from heatbath.torch.diagnostics import module_roughness as module_roughness
from heatbath.torch.landscape import line_torch as line_torch
from heatbath.torch.landscape import surface_torch as surface_torch
from heatbath.torch.llc import LearningCoefficient as LearningCoefficient
from heatbath.torch.llc import llc as llc
from heatbath.torch.optim import classes as _classes
from heatbath.torch.optim.chains import Chains as Chains
from heatbath.torch.optim.classes import LOL as LOL
from heatbath.torch.optim.classes import SGD as SGD
from heatbath.torch.optim.classes import SGLD as SGLD
from heatbath.torch.optim.classes import Adam as Adam
from heatbath.torch.optim.classes import AdaptiveLangevin as AdaptiveLangevin
from heatbath.torch.optim.classes import AdLAdL as AdLAdL
from heatbath.torch.optim.classes import AdLaLa as AdLaLa
from heatbath.torch.optim.classes import Frozen as Frozen
from heatbath.torch.optim.classes import LaLa as LaLa
from heatbath.torch.optim.classes import Langevin as Langevin
from heatbath.torch.optim.classes import Momentum as Momentum
from heatbath.torch.optim.classes import RMSprop as RMSprop
from heatbath.torch.optim.optimizer import Partitioned as Partitioned
from heatbath.torch.optim.posterior import LossPosterior as LossPosterior
from heatbath.torch.prediction.batchnorm import renew_statistics as renew_statistics
from heatbath.torch.prediction.predict import outputs as outputs
from heatbath.torch.prediction.predict import predict as predict
from heatbath.torch.prediction.samples import Samples as Samples
from heatbath.torch.sampling.report import Report as Report
from heatbath.torch.sampling.sampler import Sampler as Sampler
from heatbath.torch.streaming import Learned as Learned
from heatbath.torch.streaming import Stream as Stream
from heatbath.torch.tuning.tune import TunedModels as TunedModels
from heatbath.torch.tuning.tune import tune as tune


def __getattr__(name: str) -> type[Partitioned]:
    """Return the optimiser of a method that was registered."""
    return _classes.__getattr__(name)
