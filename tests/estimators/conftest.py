"""Estimators with the default method, fitted once for all tests that only read them."""

import pytest
from sklearn.datasets import load_wine

import heatbath as hb
from tests.estimators.small import noisy_sine


@pytest.fixture(scope="package")
def sine():
    return hb.ThermodynamicRegressor(random_state=0, refine=0.5).fit(*noisy_sine())


@pytest.fixture(scope="package")
def wine():
    return hb.ThermodynamicClassifier(random_state=0, refine=0.2).fit(*load_wine(return_X_y=True))
