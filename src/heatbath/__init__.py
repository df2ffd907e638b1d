"""Train and sample neural networks with partitioned Langevin and Adaptive Langevin integrators.

`import heatbath` loads nothing heavy: everything named here is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from heatbath import answers as answers
    from heatbath import datasets as datasets
    from heatbath import diagnostics as diagnostics
    from heatbath import landscape as landscape
    from heatbath import methods as methods
    from heatbath import noise as noise
    from heatbath import plotting as plotting
    from heatbath import prediction as prediction
    from heatbath import quadratic as quadratic
    from heatbath import reference as reference
    from heatbath import schedules as schedules
    from heatbath import splitting as splitting
    from heatbath import statistics as statistics
    from heatbath import tables as tables
    from heatbath import torch as torch
    from heatbath import trackers as trackers
    from heatbath.automatic import OffTemperature as OffTemperature
    from heatbath.datasets import from_table as from_table
    from heatbath.drift import Drift as Drift
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
    from heatbath.networks import Dense as Dense
    from heatbath.partition import Partition as Partition
    from heatbath.posterior import Posterior as Posterior
    from heatbath.prediction import Samples as Samples
    from heatbath.prediction import predict as predict
    from heatbath.presets import LOL as LOL
    from heatbath.presets import AdLAdL as AdLAdL
    from heatbath.presets import AdLaLa as AdLaLa
    from heatbath.presets import LaLa as LaLa
    from heatbath.ranges import between as between
    from heatbath.reference import Reference as Reference
    from heatbath.runs.live import Live as Live
    from heatbath.runs.live import Look as Look
    from heatbath.runs.run import Run as Run
    from heatbath.runs.run import load as load
    from heatbath.runs.simulation import Diverged as Diverged
    from heatbath.runs.simulation import Interrupted as Interrupted
    from heatbath.runs.simulation import Progress as Progress
    from heatbath.runs.simulation import StaleNoise as StaleNoise
    from heatbath.sampling import sample as sample
    from heatbath.tables import TableEncoder as TableEncoder
    from heatbath.tables import open_table as open_table
    from heatbath.training import compare as compare
    from heatbath.training import sweep as sweep
    from heatbath.training import train as train
    from heatbath.tuning import AtEdge as AtEdge
    from heatbath.tuning import Tuned as Tuned
    from heatbath.tuning import tune as tune

__version__ = "0.1.0.dev0"

MODULES = (
    "answers", "datasets", "diagnostics", "landscape", "methods", "noise", "plotting", "prediction",
    "quadratic", "reference", "schedules", "splitting", "statistics", "tables", "torch",
    "trackers",
)  # fmt: skip
_HOME: dict[str, str | None] = {
    **dict.fromkeys(MODULES),
    **dict.fromkeys(
        ["SGD", "SGLD", "Adam", "AdaptiveLangevin", "Frozen", "Langevin", "Momentum", "RMSprop", "register"],
        "methods",
    ),
    **dict.fromkeys(["LOL", "AdLAdL", "AdLaLa", "LaLa"], "presets"),
    **dict.fromkeys(["ThermodynamicClassifier", "ThermodynamicRegressor"], "estimators"),
    "OffTemperature": "automatic",
    "from_table": "datasets",
    "Drift": "drift",
    "Dense": "networks",
    "Partition": "partition",
    "Posterior": "posterior",
    **dict.fromkeys(["Samples", "predict"], "prediction"),
    "Reference": "reference",
    **dict.fromkeys(["Live", "Look"], "runs.live"),
    **dict.fromkeys(["Run", "load"], "runs.run"),
    **dict.fromkeys(["Diverged", "Interrupted", "Progress", "StaleNoise"], "runs.simulation"),
    **dict.fromkeys(["compare", "sweep", "train"], "training"),
    "sample": "sampling",
    **dict.fromkeys(["TableEncoder", "open_table"], "tables"),
    "between": "ranges",
    "explore": "explorer",
    **dict.fromkeys(["AtEdge", "Tuned", "tune"], "tuning"),
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'heatbath' has no attribute {name!r}; it has {', '.join(_HOME)}")
    home = _HOME[name]
    return (
        import_module(f"heatbath.{name}")
        if home is None
        else getattr(import_module(f"heatbath.{home}"), name)
    )


def __dir__() -> list[str]:
    return [*_HOME, "__version__"]
