"""Evaluate runs: how good their predictions are beside simple ones, and which columns they depend on.

`judge` measures a run's averaged prediction and its single networks, and `baselines` a constant and a linear
model on the same examples. `choose` finds the best point of a sweep or comparison by examples that then don't
evaluate it. `importance` and `dependence` say which columns of the data matter, and how. Modules are imported
when a name is first used: `metrics` loads without the engine.
"""

from typing import TYPE_CHECKING

from heatbath._internal.lazy import lazy_names

if TYPE_CHECKING:
    from heatbath.evaluation import metrics as metrics
    from heatbath.evaluation.baseline_models import EvaluationExamples as EvaluationExamples
    from heatbath.evaluation.evaluate import Answer as Answer
    from heatbath.evaluation.evaluate import Choice as Choice
    from heatbath.evaluation.evaluate import baselines as baselines
    from heatbath.evaluation.evaluate import choose as choose
    from heatbath.evaluation.evaluate import difference as difference
    from heatbath.evaluation.evaluate import examples_of as examples_of
    from heatbath.evaluation.evaluate import judge as judge
    from heatbath.evaluation.feature_importance import Dependence as Dependence
    from heatbath.evaluation.feature_importance import Importance as Importance
    from heatbath.evaluation.feature_importance import dependence as dependence
    from heatbath.evaluation.feature_importance import importance as importance
    from heatbath.evaluation.forecasts import Forecast as Forecast
    from heatbath.evaluation.forecasts import measure as measure

_NAMES = {  # the names that each module defines
    "baseline_models": "EvaluationExamples",
    "evaluate": "Answer Choice baselines choose difference examples_of judge",
    "feature_importance": "Dependence Importance dependence importance",
    "forecasts": "Forecast measure",
}
__getattr__, __dir__ = lazy_names(
    __name__,
    {"metrics": f"{__name__}.metrics"}
    | {name: f"{__name__}.{module}:{name}" for module, names in _NAMES.items() for name in names.split()},
)
