"""Bayesian deep ensembles of `sklearn-contrib-bde`, for the benchmarks, where they can be imported.

    pip install sklearn-contrib-bde

Measured twice: with its defaults (2 networks of two layers of 4 units, 20 epochs, 50 steps of warm-up, 10
samples), and with what the examples of its README have (version 1.0.2), which is far more work.
"""

import importlib.util
import os
from typing import Any

import numpy as np
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from heatbath.prediction import Mixture

AVAILABLE = importlib.util.find_spec("bde") is not None
CLASSIFIERS: dict[str, dict[str, Any]] = {
    "bde": {},
    "bde, README": {
        "n_members": 4,
        "hidden_layers": [16, 16],
        "epochs": 1000,
        "patience": 10,
        "warmup_steps": 400,
        "n_samples": 100,
        "n_thinning": 1,
    },
}
REGRESSORS: dict[str, dict[str, Any]] = {
    "bde": {},
    "bde, README": {
        "n_members": 8,
        "hidden_layers": [16, 16],
        "epochs": 200,
        "patience": 10,
        "warmup_steps": 5000,
        "n_samples": 2000,
    },
}
os.environ.setdefault(
    "XLA_FLAGS", f"--xla_force_host_platform_device_count={os.cpu_count()}"
)  # as it asks for
os.environ.setdefault("TQDM_DISABLE", "1")


def classifier(name: str, seed: int) -> Any:
    """On standardised features, not fitted."""
    from bde import BdeClassifier

    return make_pipeline(StandardScaler(), BdeClassifier(seed=seed, **CLASSIFIERS[name]))


def predictive(name: str, seed: int, X: np.ndarray, y: np.ndarray, X_test: np.ndarray) -> Mixture:
    """Return the predictive distribution at X_test of networks fitted to standardised data."""
    from bde import BdeRegressor

    features, shift, scale = StandardScaler().fit(X), y.mean(), y.std()
    model = BdeRegressor(seed=seed, **REGRESSORS[name]).fit(features.transform(X), (y - shift) / scale)
    raw = np.asarray(model.predict(features.transform(X_test), raw=True), np.float64)
    raw = raw.reshape(-1, *raw.shape[2:])  # (samples of all networks, examples, 2)
    deviations = np.logaddexp(0, raw[..., 1:]) + 1e-6  # as in bde's own likelihood
    return Mixture(shift + scale * raw[..., :1], scale * deviations)
