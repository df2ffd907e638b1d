"""Train and sample neural networks with partitioned Langevin and Adaptive Langevin integrators.

`import heatbath` is fast, because each name is imported when it is first used.
"""

from typing import TYPE_CHECKING

from heatbath._internal.lazy import lazy_names

if TYPE_CHECKING:
    from heatbath import datasets as datasets
    from heatbath import diagnostics as diagnostics
    from heatbath import evaluation as evaluation
    from heatbath import methods as methods
    from heatbath import plotting as plotting
    from heatbath import prediction as prediction
    from heatbath import reference as reference
    from heatbath import torch as torch
    from heatbath._internal.warnings import DivergedWarning as DivergedWarning
    from heatbath._internal.warnings import InterruptedWarning as InterruptedWarning
    from heatbath._internal.warnings import OffTemperatureWarning as OffTemperatureWarning
    from heatbath._internal.warnings import SearchEdgeWarning as SearchEdgeWarning
    from heatbath._internal.warnings import StaleNoiseWarning as StaleNoiseWarning
    from heatbath.analysis import landscape as landscape
    from heatbath.datasets import from_table as from_table
    from heatbath.datasets import tables as tables
    from heatbath.datasets.tables import TableEncoder as TableEncoder
    from heatbath.datasets.tables import read_table as read_table
    from heatbath.diagnostics import statistics as statistics
    from heatbath.diagnostics.drift import DriftWarning as DriftWarning
    from heatbath.estimators import ThermodynamicClassifier as ThermodynamicClassifier
    from heatbath.estimators import ThermodynamicRegressor as ThermodynamicRegressor
    from heatbath.explorer import explore as explore
    from heatbath.methods import SGD as SGD
    from heatbath.methods import SGLD as SGLD
    from heatbath.methods import Adam as Adam
    from heatbath.methods import AdaptiveLangevin as AdaptiveLangevin
    from heatbath.methods import Frozen as Frozen
    from heatbath.methods import Langevin as Langevin
    from heatbath.methods import Momentum as Momentum
    from heatbath.methods import RMSprop as RMSprop
    from heatbath.methods import register as register
    from heatbath.methods import schedules as schedules
    from heatbath.methods import splitting as splitting
    from heatbath.methods.partition import Partition as Partition
    from heatbath.methods.posterior import Posterior as Posterior
    from heatbath.methods.presets import LOL as LOL
    from heatbath.methods.presets import AdLAdL as AdLAdL
    from heatbath.methods.presets import AdLaLa as AdLaLa
    from heatbath.methods.presets import LaLa as LaLa
    from heatbath.methods.ranges import between as between
    from heatbath.models.dense import MLP as MLP
    from heatbath.reference import Reference as Reference
    from heatbath.reference import quadratic as quadratic
    from heatbath.reference import random
    from heatbath.runs import trackers as trackers
    from heatbath.runs.live import LiveRun as LiveRun
    from heatbath.runs.live import Snapshot as Snapshot
    from heatbath.runs.progress import Progress as Progress
    from heatbath.runs.run import Run as Run
    from heatbath.runs.run import load as load
    from heatbath.sampling import sample as sample
    from heatbath.torch.prediction.predict import predict as predict
    from heatbath.torch.prediction.samples import Samples as Samples
    from heatbath.training.train import compare as compare
    from heatbath.training.train import sweep as sweep
    from heatbath.training.train import train as train
    from heatbath.tuning import TuningResult as TuningResult
    from heatbath.tuning import tune as tune

    noise = random

__version__ = "0.1.0.dev0"

MODULES = {  # the public modules, by their names on `heatbath`
    "datasets": "datasets",
    "diagnostics": "diagnostics",
    "evaluation": "evaluation",
    "landscape": "analysis.landscape",
    "methods": "methods",
    "noise": "reference.random",
    "plotting": "plotting",
    "prediction": "prediction",
    "quadratic": "reference.quadratic",
    "reference": "reference",
    "schedules": "methods.schedules",
    "splitting": "methods.splitting",
    "statistics": "diagnostics.statistics",
    "tables": "datasets.tables",
    "torch": "torch",
    "trackers": "runs.trackers",
}
_NAMES = {  # the public names that each module defines
    "methods": "SGD SGLD Adam AdaptiveLangevin Frozen Langevin Momentum RMSprop register",
    "methods.partition": "Partition",
    "methods.posterior": "Posterior",
    "methods.presets": "LOL AdLAdL AdLaLa LaLa",
    "methods.ranges": "between",
    "reference": "Reference",
    "datasets": "from_table",
    "datasets.tables": "TableEncoder read_table",
    "models.dense": "MLP",
    "runs.live": "LiveRun Snapshot",
    "runs.run": "Run load",
    "runs.progress": "Progress",
    "_internal.warnings": "DivergedWarning InterruptedWarning OffTemperatureWarning SearchEdgeWarning "
    "StaleNoiseWarning",
    "diagnostics.drift": "DriftWarning",
    "sampling": "sample",
    "training.train": "compare sweep train",
    "tuning": "TuningResult tune",
    "estimators": "ThermodynamicClassifier ThermodynamicRegressor",
    "torch.prediction.samples": "Samples",
    "torch.prediction.predict": "predict",
    "explorer": "explore",
}
_HOMES = {name: f"heatbath.{module}" for name, module in MODULES.items()} | {
    name: f"heatbath.{module}:{name}" for module, names in _NAMES.items() for name in names.split()
}
__getattr__, _names = lazy_names(__name__, _HOMES)


def __dir__() -> list[str]:
    """Return the public names."""
    return [*_names(), "__version__"]
