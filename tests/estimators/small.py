"""Small estimators, and the data that they are fitted to in milliseconds."""

import numpy as np
import pytest
from sklearn.datasets import make_classification

import heatbath as hb

OWN = hb.AdLaLa(h=0.3, tau=1e-4, sigma=0.01, epsilon=0.1, gamma=0.5, weight_decay=3e-3)
SMALL = {"method": OWN, "hidden": (8,), "steps": 40, "chains": 2, "samples": 4, "random_state": 0}
X, Y = make_classification(90, 5, n_informative=4, n_redundant=0, n_classes=3, random_state=0)
X = 10 * X + np.arange(5)  # units of the user's own
TWO = (Y > 0).astype(int)
VALUES = 100 + X @ [1.0, -2.0, 0.5, 0.0, 3.0]


def classifier(**given):
    return hb.ThermodynamicClassifier(**{**SMALL, **given})


def regressor(**given):
    return hb.ThermodynamicRegressor(**{**SMALL, **given})


BOTH = pytest.mark.parametrize(("make", "y"), [(classifier, Y), (classifier, TWO), (regressor, VALUES)])


def noisy_sine(n=80, seed=0):
    generator = np.random.default_rng(seed)
    x = generator.uniform(-3, 3, (n, 1))
    return x, 5 + 2 * np.sin(x[:, 0]) + 0.3 * generator.standard_normal(n)
