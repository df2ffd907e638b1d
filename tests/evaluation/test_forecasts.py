"""Measures of forecasts, and their intervals."""

import math

import numpy as np
import pytest
from sklearn import metrics

from heatbath.diagnostics.statistics import student
from heatbath.evaluation import Forecast, measure
from heatbath.evaluation import metrics as scores
from heatbath.evaluation.forecasts import find_measure


def draw_forecasts(classes, count=60, seed=0, weighted=True):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(classes), count)
    labels = np.array([rng.choice(classes, p=row) for row in p], float)
    weights = rng.uniform(0.2, 3, count) if weighted else None
    return p if classes > 2 else p[:, 1:], labels, weights


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("classes", [2, 4])
def test_measures_of_classes_are_those_of_scikit_learn(classes, weighted):
    p, y, w = draw_forecasts(classes, weighted=weighted)
    names = tuple("abcd"[:classes])
    found = measure(Forecast("classes" if classes > 2 else "binary", names, y[:, None], p, weights=w))
    each = p if classes > 2 else np.hstack([1 - p, p])
    guess = each.argmax(axis=1)
    one_hot = np.eye(classes)[y.astype(int)]
    brier = np.average(((each - one_hot) ** 2).sum(axis=1), weights=w) / (1 if classes > 2 else 2)
    areas = [metrics.roc_auc_score(y == k, each[:, k], sample_weight=w) for k in range(classes)]
    expected = {
        "accuracy": metrics.accuracy_score(y, guess, sample_weight=w),
        "balanced_accuracy": metrics.balanced_accuracy_score(y, guess, sample_weight=w),
        "auc": np.mean(areas),
        "log_loss": metrics.log_loss(y, each, sample_weight=w),
        "brier": brier,
        "calibration_error": scores.calibration_error(p, y, weights=w),
    }
    assert list(found) == list(expected)
    assert {name: one.value for name, one in found.items()} == pytest.approx(expected)
    table = metrics.confusion_matrix(y, guess, sample_weight=w)
    np.testing.assert_allclose(scores.confusion(p, y, w), table)
    assert scores.balanced_accuracy(p, y, w) == pytest.approx(expected["balanced_accuracy"])


@pytest.mark.parametrize("weighted", [False, True])
def test_measures_of_values_are_those_of_scikit_learn_in_their_units(weighted):
    rng = np.random.default_rng(1)
    y = 1000 + 50 * rng.standard_normal((40, 2))
    mean = y + [5, 500] * rng.standard_normal((40, 2))
    w = rng.uniform(0.2, 3, 40) if weighted else None
    low, high = mean - 10, mean + 10
    found = measure(Forecast("regression", ("a", "b_c"), y, mean, low, high, -np.abs(y), w))
    for place, name in enumerate(("a", "b_c")):
        own = {key.removesuffix(f"_{name}"): one.value for key, one in found.items() if key.endswith(name)}
        pair = y[:, place], mean[:, place]
        assert own == pytest.approx(
            {
                "r2": metrics.r2_score(*pair, sample_weight=w),
                "rmse": metrics.root_mean_squared_error(*pair, sample_weight=w),
                "mae": metrics.mean_absolute_error(*pair, sample_weight=w),
                "coverage": np.average(np.abs(pair[0] - pair[1]) <= 10, weights=w),
                "width": 20,
                "log_score": np.average(np.abs(pair[0]), weights=w),
            }
        )
        assert own["mae"] == pytest.approx(scores.mae(mean[:, place], y[:, place], w))
        assert own["coverage"] == pytest.approx(scores.coverage(low[:, place], high[:, place], pair[0], w))
    assert find_measure("rmse_b_c")[1] == "b_c"
    with pytest.raises(ValueError, match=r"there is no measure 'gini'; there are accuracy"):
        find_measure("gini")


def test_weights_count_examples_as_often_and_their_number_is_what_the_interval_is_of():
    p, y, _ = draw_forecasts(3, 30)
    twice = [Forecast("classes", tuple("abc"), np.repeat(y, 2)[:, None], np.repeat(p, 2, axis=0))]
    twice.append(Forecast("classes", tuple("abc"), y[:, None], p, weights=np.full(30, 2.0)))
    once = measure(Forecast("classes", tuple("abc"), y[:, None], p))
    doubled, weighted = (measure(one) for one in twice)
    for name, one in once.items():
        assert weighted[name] == pytest.approx(one, nan_ok=True)
        assert doubled[name].value == pytest.approx(one.value)
        if name != "calibration_error":
            assert doubled[name].high - doubled[name].low < one.high - one.low


@pytest.mark.parametrize("right", [0.0, 1.0])
def test_intervals_stay_within_bounds_and_are_not_empty_at_them(right):
    """All right or all wrong, with certainty: a bootstrap would have no width."""
    y = np.array([0.0, 1.0] * 5)
    said = y if right else 1 - y
    found = measure(Forecast("binary", ("a", "b"), y[:, None], said[:, None]))
    for name in ("accuracy", "balanced_accuracy", "auc"):
        assert found[name].value == right
        assert 0 <= found[name].low <= right <= found[name].high <= 1
        assert found[name].high - found[name].low > 0.15


@pytest.mark.parametrize("classes", [2, 3])
def test_intervals_of_few_examples_stay_within_bounds(classes):
    """Those of the mean and its error alone would not: a control."""
    outside = 0
    for seed in range(10):
        p, y, w = draw_forecasts(classes, 6, seed)
        task = "binary" if classes == 2 else "classes"
        for name, one in measure(Forecast(task, tuple("abc"[:classes]), y[:, None], p, weights=w)).items():
            low, high = find_measure(name)[0].bounds
            if not math.isnan(one.low):
                assert low <= one.low <= one.value <= one.high <= high, name
        outside += student(scores.brier_scores(p, y)).low < 0
    assert outside > 0


def test_what_cannot_be_known_is_left_out():
    one_class = measure(Forecast("binary", ("a", "b"), np.ones((5, 1)), np.full((5, 1), 0.7)))
    assert "auc" not in one_class
    assert one_class["balanced_accuracy"].value == 1.0
    single = measure(Forecast("regression", ("y",), np.ones((1, 1)), np.zeros((1, 1))))
    assert list(single) == ["rmse", "mae"]
    assert math.isnan(single["rmse"].low)
    same = measure(Forecast("regression", ("y",), np.ones((5, 1)), np.zeros((5, 1))))
    assert "r2" not in same
    y = np.arange(5.0)[:, None]
    assert measure(Forecast("regression", ("y",), y, y))["r2"] == (1.0, 1.0, 1.0)
