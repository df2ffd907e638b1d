"""Scores of predictions."""

import math

import numpy as np
import pytest

from heatbath.evaluation import metrics
from tests.optional import optional

torch = optional("torch")

THREE = [[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4], [0.2, 0.6, 0.2]]


TRUE = [0, 1, 0, 2]


@pytest.mark.parametrize("kind", [list, np.float32, torch.float32, torch.bfloat16], ids=str)
def test_scores_of_classes_by_hand(kind):
    if kind is list:
        p, y, close = THREE, TRUE, 1e-12
    elif kind is np.float32:
        p, y, close = np.float32(THREE), np.array(TRUE)[:, None], 1e-6
    else:
        p, y, close = torch.tensor(THREE, dtype=kind, requires_grad=True), torch.tensor(TRUE), 1e-2
    assert metrics.accuracy(p, y) == 0.5
    assert metrics.log_score(p, y) == pytest.approx(-math.log(0.5 * 0.8 * 0.3 * 0.2) / 4, rel=close)
    squares = (0.25 + 0.09 + 0.04) + (0.01 + 0.04 + 0.01) + (0.49 + 0.09 + 0.16) + (0.04 + 0.36 + 0.64)
    assert metrics.brier_score(p, y) == pytest.approx(squares / 4, rel=close)
    # 5 bins: (0.2, 0.4] has 0.4, wrong; (0.4, 0.6] has 0.5, right, and 0.6, wrong; (0.6, 0.8] has 0.8, right
    if kind is list:
        assert metrics.calibration_error(p, y, bins=5) == pytest.approx((0.4 + 2 * 0.05 + 0.2) / 4)


@pytest.mark.parametrize("column", [False, True])
def test_scores_of_two_classes_by_hand(column):
    p, y = np.array([0.9, 0.4, 0.2, 0.6]), np.array([1.0, 1.0, 0.0, 0.0])
    p = p[:, None] if column else p
    assert metrics.accuracy(p, y) == 0.5
    assert metrics.log_score(p, y) == pytest.approx(-math.log(0.9 * 0.4 * 0.8 * 0.4) / 4)
    assert metrics.brier_score(p, y) == pytest.approx((0.01 + 0.36 + 0.04 + 0.36) / 4)
    both = np.column_stack([1 - p, p])
    assert metrics.brier_score(both, y) == pytest.approx(2 * metrics.brier_score(p, y))
    for score in (metrics.accuracy, metrics.log_score, metrics.calibration_error):
        assert score(both, y) == pytest.approx(score(p, y))
    # two bins of confidence above 0.5 of four: (0.5, 0.75] has 0.6 twice, wrong; above 0.9 and 0.8, right
    found = metrics.reliability(p, y, bins=4)
    np.testing.assert_array_equal(found.count, [0, 0, 2, 2])
    np.testing.assert_allclose(found.confidence, [np.nan, np.nan, 0.6, 0.85])
    np.testing.assert_allclose(found.accuracy, [np.nan, np.nan, 0, 1])
    assert metrics.calibration_error(p, y, bins=4) == pytest.approx((2 * 0.6 + 2 * 0.15) / 4)


def test_bins_are_closed_on_the_right_and_15_unless_said():
    p = np.array([[0.5, 0.5], [0.75, 0.25], [1.0, 0.0]])
    np.testing.assert_array_equal(metrics.reliability(p, [0, 0, 0], bins=4).count, [0, 1, 1, 1])
    assert len(metrics.reliability(p, [0, 0, 0]).count) == 15
    assert metrics.reliability(p, [0, 0, 0], bins=1).count.tolist() == [3]
    p, y = draw_labels(2000)
    assert metrics.calibration_error(p, y) == metrics.calibration_error(p, y, bins=15)
    assert metrics.calibration_error(p, y) != metrics.calibration_error(p, y, bins=10)


def test_of_equally_probable_classes_the_first_counts():
    assert metrics.accuracy([0.5, 0.5], [0, 1]) == 0.5
    assert metrics.accuracy([[0.4, 0.4, 0.2]] * 2, [0, 0]) == 1


def test_an_example_held_to_be_impossible_costs_36_nats():
    for p in ([0.0], [1e-300], [[1.0, 0.0]]):
        assert metrics.log_score(p, [1]) == pytest.approx(52 * math.log(2))
    assert metrics.log_score([1e-15], [1]) == pytest.approx(15 * math.log(10))


def draw_labels(n=200_000, classes=4):
    """Return true probabilities of classes, and labels drawn with them."""
    rng = np.random.default_rng(7)
    p = rng.dirichlet(np.ones(classes), n)
    return p, (rng.random((n, 1)) > p.cumsum(axis=1)[:, :-1]).sum(axis=1)


def test_a_calibrated_predictor_has_no_calibration_error_and_a_wrong_one_its_own():
    """15 bins of 200,000 data leave at most about sqrt(15/n) = 0.009; the controls are far above."""
    p, y = draw_labels()
    assert metrics.calibration_error(p, y) < 0.009
    assert metrics.calibration_error(draw_labels(2000)[0], draw_labels(2000)[1]) > metrics.calibration_error(
        p, y
    )
    q = p[:, :1]
    label = (y == 0).astype(int)
    assert metrics.calibration_error(q, label) < 0.009
    for claimed, truth in ((0.9, 0.7), (0.6, 0.95)):
        hits = np.random.default_rng(1).random(200_000) < truth
        error = metrics.calibration_error(np.full(200_000, claimed), hits)
        assert error == pytest.approx(abs(claimed - truth), abs=5 * math.sqrt(truth * (1 - truth) / 200_000))
    sharp = p**3 / (p**3).sum(axis=1, keepdims=True)
    claim, share = sharp.max(axis=1).mean(), p.max(axis=1).mean()  # it claims too much in every bin
    assert metrics.calibration_error(sharp, y) == pytest.approx(claim - share, abs=0.005)
    assert claim - share > 0.1


def test_the_log_score_of_the_true_probabilities_is_their_entropy_and_of_others_it_is_more():
    p, y = draw_labels()
    entropy = -(p * np.log(p)).sum(axis=1).mean()
    error = np.log(p[np.arange(len(y)), y]).std() / math.sqrt(len(y))
    assert abs(metrics.log_score(p, y) - entropy) < 5 * error
    blurred = 0.8 * p + 0.05
    assert metrics.log_score(blurred, y) > entropy + 10 * error
    assert metrics.brier_score(blurred, y) > metrics.brier_score(p, y)


def test_scores_of_a_regression_by_hand():
    mean, y, variance = [1.0, 2.0, 4.0], np.array([[1.0], [4.0], [3.0]]), torch.tensor([1.0, 4.0, 0.25])
    assert metrics.rmse(mean, y) == pytest.approx(math.sqrt(5 / 3))
    terms = [0.0, 0.5 * math.log(4) + 0.5, 0.5 * math.log(0.25) + 2]
    assert metrics.gaussian_log_score(mean, variance, y) == pytest.approx(
        0.5 * math.log(2 * math.pi) + sum(terms) / 3
    )
    two = [np.tile(np.reshape(a, (3, 1)), 2) for a in (mean, variance.numpy(), y)]
    assert metrics.gaussian_log_score(*two) == pytest.approx(
        2 * metrics.gaussian_log_score(mean, variance, y)
    )
    assert metrics.rmse(two[0], two[2]) == pytest.approx(metrics.rmse(mean, y))


def test_the_gaussian_log_score_of_the_true_law_is_its_entropy():
    rng = np.random.default_rng(3)
    mean, variance = rng.standard_normal(100_000), rng.uniform(0.1, 3, 100_000)
    y = mean + np.sqrt(variance) * rng.standard_normal(100_000)
    entropy = 0.5 * np.log(2 * math.pi * math.e * variance).mean()
    assert abs(metrics.gaussian_log_score(mean, variance, y) - entropy) < 5 * math.sqrt(0.5 / 100_000)
    assert metrics.gaussian_log_score(mean, 2 * variance, y) > entropy + 0.05


@pytest.mark.parametrize(
    ("p", "y", "told"),
    [
        ([1.5], [1], r"between 0 and 1 \(got 1.5 to 1.5\).*softmax first"),
        ([-0.1], [1], "between 0 and 1"),
        ([[0.5, 0.6]], [1], "sum to 1 in each row"),
        ([[0.2, 0.2]], [1], "sum to 1 in each row"),
        ([0.5, np.nan], [1, 0], "probabilities must be finite"),
        ([0.5], [2], "indices of classes, 0 to 1, got 2 to 2"),
        ([[0.2, 0.3, 0.5]], [-1], "indices of classes, 0 to 2"),
        ([0.5], [0.5], "indices of classes"),
        ([0.5, 0.5], [1], r"one value for each of the 2 examples, got shape \(1, 1\)"),
        ([[0.5, 0.5]], [[1, 0]], "one value for each of the 1 examples"),
        ([], [], "at least one example"),
        (["a"], [1], "array of numbers"),
        ([[[0.5]]], [1], "1 or 2 axes"),
    ],
)
def test_probabilities_and_labels_that_cannot_be_are_refused(p, y, told):
    for score in (metrics.accuracy, metrics.log_score, metrics.brier_score, metrics.calibration_error):
        with pytest.raises(ValueError, match=told):
            score(p, y)


def test_rounding_is_not_refused():
    assert metrics.log_score([1 + 1e-7], [1]) == 0
    assert metrics.accuracy([[0.5, 0.495], [-1e-9, 1.0]], [0, 1]) == 1


def test_what_cannot_be_scored_is_refused():
    with pytest.raises(ValueError, match=r"the same shape, .*; got mean \(3, 1\), targets \(2, 1\)"):
        metrics.rmse([1, 2, 3], [1, 2])
    with pytest.raises(
        ValueError, match="variance must be > 0 everywhere, got 0: add the variance of the noise"
    ):
        metrics.gaussian_log_score([1, 2], [0, 1], [1, 2])
    with pytest.raises(ValueError, match="bins must be a whole number >= 1"):
        metrics.calibration_error([0.5], [1], bins=0)
