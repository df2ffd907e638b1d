"""A constant and a linear model, beside scikit-learn's."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, PoissonRegressor, RidgeCV

import heatbath as hb
from heatbath import evaluation
from heatbath.evaluation import baseline_models
from heatbath.evaluation.baseline_models import PENALTIES
from tests.evaluation.runs import METHOD, SGD, churn, problem, table


@pytest.mark.parametrize("task", ["binary", "classes", "regression", "counts"])
def test_baselines_are_the_shares_or_the_mean_of_training_and_scikit_learn_s_models(task):
    own = problem(task, weights=np.random.default_rng(0).uniform(0.5, 2, 80))
    on = evaluation.examples_of(hb.train(own, hb.MLP((8,)), METHOD[task], 60, 10, chains=1))
    (_, constant), (_, linear) = evaluation.baselines(on).values()
    X, Y, w = own.X_train[0], own.Y_train[0] * own.target_scale + own.target_shift, own.weights_train[0]
    if task in ("binary", "classes"):
        shares = np.bincount(Y[:, 0].astype(int), w) / w.sum()
        np.testing.assert_allclose(constant.mean[3], shares[1:] if task == "binary" else shares)
        model = LogisticRegression().fit(X, Y[:, 0], w).predict_proba(on.x)
        np.testing.assert_allclose(linear.mean, model[:, 1:] if task == "binary" else model)
        return
    np.testing.assert_allclose(constant.mean, np.average(Y[:, 0], weights=w))
    ends = np.quantile(Y[:, 0], [0.05, 0.95], weights=w, method="inverted_cdf")
    np.testing.assert_allclose([constant.low[0, 0], constant.high[0, 0]], ends)
    model = RidgeCV(PENALTIES) if task == "regression" else PoissonRegressor(alpha=1 / len(X), max_iter=300)
    model.fit(X, Y[:, 0], sample_weight=w)
    np.testing.assert_allclose(linear.mean[:, 0], model.predict(on.x), rtol=1e-3)
    held = (linear.low <= on.y) & (on.y <= linear.high)
    assert held.mean() >= 0.75  # of 16, at 90 % in 98 % of cases


def test_a_linear_model_of_a_large_table_is_fitted_to_evenly_spaced_examples(monkeypatch):
    own = problem("regression")
    on = evaluation.examples_of(hb.train(own, hb.MLP((8,)), SGD, 1, 10, chains=1))
    assert baseline_models.linear_training_size(own) == 64
    whole = evaluation.baselines(on)["ridge regression"][1].mean
    monkeypatch.setattr(baseline_models, "MOST_ENTRIES", 64 * 3 // 2)
    assert baseline_models.linear_training_size(own) == 32
    model = RidgeCV(PENALTIES).fit(own.X_train[0, ::2], own.Y_train[0, ::2, 0])
    expected = model.predict(on.x) * own.target_scale + own.target_shift
    found = evaluation.baselines(on)["ridge regression"][1].mean
    np.testing.assert_allclose(found[:, 0], expected)
    assert not np.allclose(found, whole)


def test_the_noise_of_the_linear_model_is_that_of_examples_that_are_left_out():
    X, targets = table(400, seed=3)
    own = hb.datasets.from_arrays(
        X, targets["regression"], task="regression", standardise=True, test_share=0.5
    )
    on = evaluation.examples_of(hb.train(own, hb.MLP((8,)), SGD, 1, 10, chains=1))
    (_, said) = evaluation.baselines(on)["ridge regression"]
    assert (said.high - said.low)[0, 0] / (2 * 1.645) == pytest.approx(2.0, rel=0.15)  # the data's own is 2


@pytest.mark.parametrize("test_share", [0.0, 0.25])
def test_a_constant_has_the_shares_of_the_data_however_classes_count_in_training(test_share):
    """With weights that make them count alike it would say 0.5, and be beaten by anything."""
    plain, balanced = (churn(test_share=test_share, class_weight=kind) for kind in (None, "balanced"))
    usual, weighed = (baseline_models.evaluation_examples(one) for one in (plain, balanced))
    np.testing.assert_allclose(weighed.weights, usual.weights)
    share = np.average(plain.Y_train[0, :, 0], weights=plain.weights_train[0])
    assert 0.01 < share < 0.1
    np.testing.assert_allclose(baseline_models.constant_forecast(weighed).mean, share)
    losses = [evaluation.baselines(on)["constant"][0]["log_loss"].value for on in (usual, weighed)]
    assert losses[1] == pytest.approx(losses[0])
    sums = [
        balanced.weights_train[0] / plain.weights_train[0] @ (balanced.Y_train[0, :, 0] == k) for k in (0, 1)
    ]
    assert sums[0] == pytest.approx(sums[1])  # a control: in training they do count alike


def test_intervals_of_a_constant_are_those_of_rows_that_come_as_often_as_they_count():
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((301, 1)), rng.exponential(3, 301)
    weights = rng.integers(1, 6, 301) + 5 * (y > 3)
    own = hb.datasets.from_arrays(X, y, X, y, weights=weights)
    said = baseline_models.constant_forecast(baseline_models.evaluation_examples(own))
    often = np.repeat(y, weights)
    expected = np.quantile(often, [0.05, 0.95], method="inverted_cdf")
    np.testing.assert_allclose([said.low[0, 0], said.high[0, 0]], expected)
    assert not np.allclose(expected, np.quantile(y, [0.05, 0.95]), rtol=0.01)  # a control
