"""scikit-learn estimators: ensembles of sampled networks behind `fit` and `predict`.

They work in pipelines, grid searches and cross-validation, and are tested by scikit-learn's own checks.
"""

from heatbath.estimators.classifier import ThermodynamicClassifier as ThermodynamicClassifier
from heatbath.estimators.regressor import ThermodynamicRegressor as ThermodynamicRegressor
