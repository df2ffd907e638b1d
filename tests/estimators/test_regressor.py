"""Targets and their units, the noise of the data, counts and intervals."""

import numpy as np
import pytest
from sklearn.utils import get_tags

import heatbath as hb
from tests.estimators.small import VALUES, X, noisy_sine, regressor

pytestmark = pytest.mark.filterwarnings("ignore::heatbath.OffTemperatureWarning")  # of very short runs


def test_a_regression_is_in_the_user_s_units_and_may_have_several_targets():
    both = np.stack([VALUES, -1e3 * VALUES], axis=1)
    fitted = regressor(steps=1500, hidden=(30,)).fit(X, both)
    assert fitted.predict(X).shape == both.shape
    assert fitted.score(X, both) > 0.97
    assert regressor(steps=1500, hidden=(30,)).fit(X, VALUES).score(X, VALUES) > 0.97
    mean, spread = fitted.predict(X, return_std=True)
    assert spread.shape == mean.shape
    assert 100 < np.median(spread[:, 1] / spread[:, 0]) < 10_000
    assert get_tags(fitted).target_tags.multi_output


def test_the_spread_is_that_of_new_data_and_intervals_hold_what_they_say(sine):
    X, y = noisy_sine(2000, seed=1)
    mean, spread = sine.predict(X, return_std=True)
    assert np.sqrt(np.mean((mean - y) ** 2)) == pytest.approx(0.3, rel=0.25)
    assert np.mean(spread) == pytest.approx(0.32, rel=0.25)
    for coverage in (0.5, 0.9):
        low, high = sine.predict_interval(X, coverage)
        assert np.mean((low < y) & (y < high)) == pytest.approx(coverage, abs=0.07)
    lower, middle, upper = sine.predict_quantiles(X, [0.05, 0.5, 0.95])
    np.testing.assert_allclose(lower, sine.predict_interval(X)[0], rtol=1e-6)
    assert np.mean(y < middle) == pytest.approx(0.5, abs=0.1)
    assert (upper > middle).all()


def test_noise_that_the_network_says_follows_the_place():
    generator = np.random.default_rng(0)
    x = generator.uniform(-2, 2, (400, 1))
    y = x[:, 0] + np.where(x[:, 0] > 0, 1.0, 0.1) * generator.standard_normal(400)
    fitted = hb.ThermodynamicRegressor(noise="network", random_state=0).fit(x, y)
    _, spread = fitted.predict([[-1.0], [1.0]], return_std=True)
    assert spread == pytest.approx([0.1, 1.0], rel=0.35)


def test_student_s_noise_is_not_led_astray_by_outliers():
    generator = np.random.default_rng(0)
    x = generator.uniform(-2, 2, (200, 1))
    y = x[:, 0] + 0.1 * generator.standard_normal(200)
    y[:10] += 20
    said = {
        likelihood: hb.ThermodynamicRegressor(likelihood=likelihood, refine=0.25, random_state=0)
        .fit(x, y)
        .predict_interval([[1.0]], 0.5)
        for likelihood in ("normal", "student")
    }
    widths = {name: float(high[0] - low[0]) for name, (low, high) in said.items()}
    assert widths["student"] < 0.5 < widths["normal"]


def test_counts_have_rates_and_intervals_that_are_counts():
    generator = np.random.default_rng(0)
    x = generator.uniform(-1, 1, (300, 1))
    y = generator.poisson(np.exp(1 + x[:, 0]))
    fitted = hb.ThermodynamicRegressor(likelihood="poisson", refine=0.25, random_state=0).fit(x, y)
    rates = fitted.predict([[-1.0], [0.0], [1.0]])
    assert rates == pytest.approx(np.exp([0.0, 1.0, 2.0]), rel=0.3)
    low, high = fitted.predict_interval(x)
    assert (low == low.round()).all()
    assert np.mean((low <= y) & (y <= high)) > 0.88
    _, spread = fitted.predict([[1.0]], return_std=True)
    assert spread[0] == pytest.approx(np.sqrt(rates[2]), rel=0.2)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"likelihood": "gamma"}, "likelihood must be one of 'normal', 'student', 'poisson', got 'gamma'"),
        ({"likelihood": "poisson", "noise": 0.1}, "noise is for a regression"),
        ({"likelihood": "student", "noise": "network"}, "network"),
        ({"noise": "loud"}, "noise must be"),
    ],
)
def test_likelihoods_that_make_no_sense_are_refused(given, told):
    with pytest.raises(ValueError, match=told):
        hb.ThermodynamicRegressor(**given).fit([[0.0], [1.0], [2.0]], [0, 1, 2])
    with pytest.raises(ValueError, match="whole numbers"):
        hb.ThermodynamicRegressor(likelihood="poisson").fit([[0.0], [1.0]], [0.5, 1.0])
