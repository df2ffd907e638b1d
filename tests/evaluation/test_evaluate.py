"""What runs are worth, beside simple predictions, and which of several is best."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, PoissonRegressor, RidgeCV

import heatbath as hb
from heatbath import evaluation
from heatbath.evaluation import baseline_models
from heatbath.evaluation.baseline_models import PENALTIES
from heatbath.evaluation.evaluate import mean_loss
from tests.evaluation.runs import METHOD, SGD, on_test, problem, table, trained


@pytest.mark.parametrize("task", ["binary", "classes", "regression", "counts", "two"])
def test_the_averaged_prediction_is_what_predict_says_and_single_networks_are_means_over_chains(task):
    run = trained(task)
    X, y = on_test(run)
    answer = evaluation.judge(run)
    np.testing.assert_allclose(answer.forecast.mean, run.predict(X).mean)
    np.testing.assert_allclose(answer.forecast.y, y)
    each = run.outputs(X)
    if task in ("binary", "classes"):
        guesses = [said[:, 0] > 0.5 if task == "binary" else said.argmax(axis=1) for said in each]
        assert answer.single["accuracy"].value == pytest.approx(np.mean([g == y[:, 0] for g in guesses]))
        assert answer.single["accuracy"].value == pytest.approx(run.accuracy("test")[:, -1].mean())
    else:
        end = "_y1" if task == "two" else ""
        errors = np.sqrt(np.mean((each[..., 0] - y[:, 0]) ** 2, axis=1))
        assert answer.single[f"rmse{end}"].value == pytest.approx(errors.mean())
        together = np.sqrt(np.mean((run.predict(X).mean[:, 0] - y[:, 0]) ** 2))
        assert answer.averaged[f"rmse{end}"].value == pytest.approx(together)
        low, high = run.calibration().interval(run.predictive(X), 0.9)
        inside = np.mean((low <= y) & (y <= high), axis=0)[0]
        assert answer.averaged[f"coverage{end}"].value == pytest.approx(inside)
        density = run.predictive(X).log_density(y)[:, 0].mean()
        assert answer.averaged[f"log_score{end}"].value == pytest.approx(-density)


def test_without_a_posterior_nothing_is_said_of_intervals():
    run = hb.train(problem("regression"), hb.MLP((8,)), SGD, 60, 10, chains=3)
    assert list(evaluation.judge(run).averaged) == ["r2", "rmse", "mae"]


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


def test_the_best_is_chosen_by_half_of_the_test_examples_and_the_other_half_tells():
    own = hb.datasets.spirals(n_train=60, n_test=50)
    run = hb.sweep(own, hb.MLP((8,)), hb.LOL(h=0.1, tau=[0.0, 1e-3, 1.0]), steps=60, batch=10, chains=3)
    on = evaluation.examples_of(run)
    choice = evaluation.choose(run, on)
    assert choice.fair
    assert sorted([*choice.choose, *choice.tell]) == list(range(50))
    assert len(choice.choose) == len(choice.tell) == 25
    labels = own.Y_test[0, choice.choose, 0]
    assert 0.2 < labels.mean() < 0.8  # though they alternate
    for place, (point, _) in enumerate(run.plan.points):
        p = run.select(**point).predict(own.X_test[0, choice.choose]).mean[:, 0]
        loss = -np.log(np.where(labels == 1, p, 1 - p)).mean()
        assert choice.losses[place] == pytest.approx(loss)
    assert choice.best == np.argmin(choice.losses)
    few = evaluation.choose(run, on.some(np.arange(3)))
    assert not few.fair
    assert len(few.choose) == 3


def test_what_tells_has_no_part_in_the_choice():
    """The labels of the other half are turned round, and the choice stays; of the same half, it changes."""
    from dataclasses import replace

    own = hb.datasets.spirals(n_train=60, n_test=50)
    run = hb.sweep(own, hb.MLP((8,)), hb.LOL(h=0.1, tau=[0.0, 1e-3, 1.0]), steps=60, batch=10, chains=3)
    on = evaluation.examples_of(run)
    choice = evaluation.choose(run, on)
    for part, same in (("tell", True), ("choose", False)):
        y = on.y.copy()
        y[getattr(choice, part)] = 1 - y[getattr(choice, part)]
        assert (evaluation.choose(run, replace(on, y=y)).losses == choice.losses) is same


def test_without_test_examples_the_training_examples_are_judged_and_chains_with_other_data_are_not():
    own = problem("binary", test_share=0)
    run = hb.train(own, hb.MLP((8,)), SGD, 60, 10, chains=3)
    on = evaluation.judge(run).examples
    assert (on.split, len(on), on.of) == ("train", 80, 80)
    several = hb.datasets.spirals(n_train=20, n_test=10, draws=2)
    run = hb.train(several, hb.MLP((8,)), SGD, 60, 10, chains=2)
    assert evaluation.examples_of(run) is None
    with pytest.raises(ValueError, match="different data sets"):
        evaluation.judge(run)


def test_a_difference_is_paired():
    run = trained("regression")
    answer = evaluation.judge(run)
    on, said = answer.examples, answer.forecast
    (_, other) = evaluation.baselines(on)["constant"]
    found = evaluation.difference(on, other, said)
    assert found.value == pytest.approx(mean_loss(on, other.mean) - mean_loss(on, said.mean))
    assert evaluation.difference(on, said, said) == (0.0, 0.0, 0.0)


def churn(**options):
    """Two classes, of which one is rare, and rows that count more or less."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 2))
    y = np.where(X[:, 0] + 0.5 * rng.standard_normal(400) > 1.9, "yes", "no")
    weights = rng.choice([0.5, 1.0, 3.0], 400)
    return hb.datasets.from_arrays(X, y, standardise=True, weights=weights, **options)


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


def test_class_factors_are_in_files_and_must_be_one_for_each_class(tmp_path):
    run = hb.train(churn(class_weight="balanced"), hb.MLP((4,)), SGD, 5, 10, chains=2)
    run.save(tmp_path / "run.nc")
    assert hb.load(tmp_path / "run.nc").problem.class_factors == run.problem.class_factors
    assert len(run.problem.class_factors) == 2
    for wrong in ((1.0,), (1.0, -1.0)):
        with pytest.raises(ValueError, match="class_factors"):
            replace(run.problem, class_factors=wrong)
    with pytest.raises(ValueError, match="class_factors must be one for each"):
        replace(run.problem, weights_train=None)


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
