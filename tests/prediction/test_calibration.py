"""Intervals by where examples lie in laws that have not seen them: exact where networks are linear."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

import heatbath as hb
from heatbath.prediction import Calibration, Mixture
from heatbath.prediction.calibration import PSEUDO, left_out
from heatbath.runs import predictions

N, FEATURES, NOISE, PRIOR = 30, 4, 0.3, 1.5


@pytest.fixture
def linear():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, FEATURES))
    return X, X @ rng.standard_normal(FEATURES) + NOISE * rng.standard_normal(N)


def linear_posterior(X, y, weights, T):
    """Return the mean and covariance of [likelihood x prior]^(1/T) of a linear model."""
    precision = (X.T * weights) @ X / NOISE**2 + np.eye(FEATURES) / PRIOR**2
    return np.linalg.solve(precision, (X.T * weights) @ y / NOISE**2), T * np.linalg.inv(precision)


def exact_places(X, y, weights, T):
    """Return the place of each example in the predictive law of the model fitted without it."""
    found = []
    for i in range(len(y)):
        others = np.arange(len(y)) != i
        mean, covariance = linear_posterior(X[others], y[others], weights[others], T)
        found.append(ndtr((y[i] - X[i] @ mean) / np.sqrt(NOISE**2 + X[i] @ covariance @ X[i])))
    return np.array(found)


@pytest.mark.parametrize("T", [1.0, 0.3])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_place_of_an_example_that_is_left_out_is_exact_for_a_linear_model(linear, weighted, T):
    X, y = linear
    weights = np.random.default_rng(1).uniform(0.2, 2, N) if weighted else np.ones(N)
    mean, covariance = linear_posterior(X, y, weights, T)
    variance = np.einsum("ij,jk,ik->i", X, covariance, X)

    def places(w, temperature):
        moments = ((X @ mean)[None, :, None], variance[None, :, None], np.full((1, N, 1), NOISE**2))
        return left_out(*moments, y[:, None], w, temperature)[:, 0]

    np.testing.assert_allclose(places(weights, T), exact_places(X, y, weights, T), rtol=0, atol=1e-12)
    if T != 1:  # controls
        assert np.abs(places(weights, 1.0) - exact_places(X, y, weights, T)).max() > 0.01
    if weighted:
        assert np.abs(places(np.ones(N), T) - exact_places(X, y, weights, T)).max() > 0.01


def test_an_example_has_its_place_in_the_mixture_of_the_chains():
    mean, variance, noise = np.array([[[1.0]], [[-1.0]]]), np.full((2, 1, 1), 0.01), np.ones((2, 1, 1))
    both = left_out(mean, variance, noise, np.zeros((1, 1)), np.ones(1), 1.0)
    one = left_out(mean[:1], variance[:1], noise[:1], np.zeros((1, 1)), np.ones(1), 1.0)
    assert both[0, 0] == pytest.approx(0.5, abs=1e-12)
    assert one[0, 0] < 0.2


def test_a_run_s_places_are_those_of_a_linear_model(linear):
    problem = hb.datasets.from_arrays(*linear, task="regression", test_share=0.0)
    X, y = problem.X_train[0], problem.Y_train[0, :, 0]  # in its order
    sampling = hb.Partition(hb.Langevin(gamma=1.0), h=0.3, posterior=hb.Posterior(PRIOR, noise=NOISE))
    run = hb.train(
        problem, hb.MLP(()), sampling, 20_000, N, 16, samples=2000, burn_in=1000, dtype="float64",
        momenta="thermal",
    )  # fmt: skip
    bias = np.concatenate([X, np.ones((N, 1))], axis=1)  # the network has one
    precision = bias.T @ bias / NOISE**2 + np.eye(FEATURES + 1) / PRIOR**2
    exact = []
    for i in range(N):
        without = precision - np.outer(bias[i], bias[i]) / NOISE**2
        mean = np.linalg.solve(without, (bias.T @ y - bias[i] * y[i]) / NOISE**2)
        exact.append(
            (y[i] - bias[i] @ mean) / np.sqrt(NOISE**2 + bias[i] @ np.linalg.solve(without, bias[i]))
        )
    found = ndtri(run.calibration().places[:, 0])
    np.testing.assert_allclose(found, exact, rtol=0, atol=0.05)  # 32,000 samples: 5 standard errors
    seen = ndtri(run.predictive(X).cdf(y)[:, 0])  # control: by a law that has seen them
    assert np.abs(seen - exact).max() > 0.3


def test_shares_of_data_lie_below_the_shares_that_are_said():
    rng = np.random.default_rng(2)
    places, weights = rng.beta(4, 3, (5000, 2)), rng.uniform(0.5, 1.5, 5000)
    places[:, 1] = rng.random(5000)
    shares = Calibration(places, weights).shares([0.05, 0.5, 0.95])
    for output in (0, 1):
        for wanted, share in zip([0.05, 0.5, 0.95], shares[:, output], strict=True):
            observed = weights[places[:, output] <= share].sum() / weights.sum()
            assert observed == pytest.approx(wanted, abs=PSEUDO / 5000)
    assert np.abs(shares[:, 1] - [0.05, 0.5, 0.95]).max() < 0.02  # uniform ones: nothing to change
    assert shares[0, 0] > 0.15


def test_few_examples_change_little_and_none_nothing():
    none = Calibration(np.empty((0, 1)), np.empty(0))
    np.testing.assert_array_equal(none.shares([1e-20, 0.05, 0.95])[:, 0], [1e-20, 0.05, 0.95])
    few = Calibration(np.full((2, 1), 0.5), np.ones(2)).shares([0.05, 0.95])[:, 0]
    np.testing.assert_allclose(few, [0.05 * 22 / 20, 1 - 0.05 * 22 / 20], rtol=1e-12)


def test_extreme_places_leave_shares_that_a_law_has():
    shares = Calibration(np.zeros((500, 1)), np.ones(500)).shares([1e-6, 0.9])
    assert (shares > 0).all()
    assert (shares < 1).all()
    law = Mixture(np.zeros((1, 3, 1)), np.ones((1, 1)))
    assert np.isfinite(Calibration(np.zeros((500, 1)), np.ones(500)).quantiles(law, [1e-6, 0.9])).all()


def test_each_output_has_its_own_shares():
    rng = np.random.default_rng(3)
    law = Mixture(rng.standard_normal((7, 3, 2)), rng.uniform(0.5, 1, (7, 2)))
    places = np.stack([rng.beta(5, 5, 400), rng.random(400)], axis=1)
    calibration = Calibration(places, np.ones(400))
    low, high = calibration.interval(law, 0.8)
    shares = calibration.shares([0.1, 0.9])
    for output in (0, 1):
        np.testing.assert_allclose(law.output(output).cdf(low[:, [output]]), shares[0, output], atol=1e-10)
        np.testing.assert_allclose(law.output(output).cdf(high[:, [output]]), shares[1, output], atol=1e-10)
    with pytest.raises(ValueError, match="coverage must be"):
        calibration.interval(law, 1.0)


def data_of_two_noises(seed):
    """Return data of which one in five, anywhere, has ten times the noise: normal noise fits neither."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (400, 1))
    deviation = np.where(rng.random(400) < 0.2, 1.0, 0.1)
    return x, np.sin(2 * x[:, 0]) + deviation * rng.standard_normal(400)


def test_intervals_hold_what_they_say_where_the_noise_is_not_normal(tmp_path):
    (X, y), (new, new_y) = data_of_two_noises(0), data_of_two_noises(1)
    estimator = hb.ThermodynamicRegressor(random_state=0).fit(X, y)

    def held(low, high):
        return np.mean((low < new_y) & (new_y < high)), np.mean(high - low)

    share, width = held(*estimator.predict_interval(new, 0.8))
    low, high = estimator.run_.predictive(new).interval(0.8)
    normal_share, normal_width = held(low[:, 0], high[:, 0])
    assert abs(share - 0.8) < 0.06  # 3 standard deviations
    assert normal_share > 0.86  # control
    assert width < 0.7 * normal_width
    middle = estimator.predict_quantiles(new, [(1 - 0.8) / 2, 0.9])
    np.testing.assert_array_equal(middle, estimator.predict_interval(new, 0.8))
    estimator.save(tmp_path / "estimator.nc")
    again = hb.ThermodynamicRegressor.load(tmp_path / "estimator.nc")
    np.testing.assert_array_equal(again.predict_interval(new, 0.8), estimator.predict_interval(new, 0.8))


def test_networks_that_go_through_the_training_examples_have_the_intervals_of_their_law(monkeypatch):
    """The leverage is nearly 1, so it can't tell what networks would predict without an example."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((380, 20))
    y = X[:, :3].sum(axis=1) + 0.3 * rng.standard_normal(380)
    estimator = hb.ThermodynamicRegressor(random_state=0).fit(X[:80], y[:80])
    law = estimator.run_.predictive(X[80:])

    def held(low, high):
        return np.mean((low < y[80:]) & (y[80:] < high))

    found = estimator.predict_interval(X[80:], 0.9)
    np.testing.assert_array_equal(found, [end[:, 0] for end in law.interval(0.9)])
    assert held(*found) > 0.85
    monkeypatch.setattr("heatbath.runs.predictions.MOST_LEVERAGE", 2.0)  # control
    low, high = predictions.calibrate(estimator.run_, None).interval(law, 0.9)
    assert held(low[:, 0], high[:, 0]) < 0.75


def test_a_new_fit_is_calibrated_anew():
    (X, y) = data_of_two_noises(0)
    estimator = hb.ThermodynamicRegressor(random_state=0, refine=0.1).fit(X, y)
    before = estimator.predict_interval(X[:3])
    estimator.fit(X, np.random.default_rng(0).standard_normal(400))
    fresh = hb.ThermodynamicRegressor(random_state=0, refine=0.1).fit(
        X, np.random.default_rng(0).standard_normal(400)
    )
    np.testing.assert_array_equal(estimator.predict_interval(X[:3]), fresh.predict_interval(X[:3]))
    assert not np.array_equal(before, fresh.predict_interval(X[:3]))


@pytest.mark.parametrize("likelihood", ["student", "poisson"])
def test_other_laws_are_as_they_are(likelihood):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 1)), rng.poisson(3, 60).astype(float)
    estimator = hb.ThermodynamicRegressor(random_state=0, refine=0.1, likelihood=likelihood).fit(X, y)
    low, high = estimator.run_.predictive(X).interval(0.9)
    np.testing.assert_array_equal(estimator.predict_interval(X), [low[:, 0], high[:, 0]])


def run_of(problem, chains, **options):
    sampling = hb.Partition(hb.Langevin(gamma=1.0), h=0.1, posterior=hb.Posterior(noise=0.3))
    return hb.train(problem, hb.MLP((3,)), sampling, 60, 50, chains, record=1, **options)


def test_the_variance_of_a_run_is_that_within_its_chains_and_between_their_means():
    X, y = data_of_two_noises(0)
    run = run_of(hb.datasets.from_arrays(X, y, task="regression", test_share=0.0), 3, samples=10)
    X, y = run.problem.X_train[0], run.problem.Y_train[0]
    said = run.outputs(X, samples=True)

    def places(said, variance):
        noise = np.full((len(said), 400, 1), 0.09)
        return left_out(said.mean(axis=1), variance, noise, y, np.ones(400), 1.0)

    def both(said):
        return said.var(axis=1, ddof=1) + said.mean(axis=1).var(axis=0, ddof=1)

    found = run.calibration().places
    np.testing.assert_allclose(found, places(said, both(said)), atol=1e-12)
    together = said.reshape(1, 30, 400, 1)  # controls: one chain, or the variance within chains alone
    assert np.abs(found - places(together, together.var(axis=1, ddof=1))).max() > 0.005
    assert np.abs(found - places(said, said.var(axis=1, ddof=1))).max() > 0.005
    latest = run.calibration(latest=4).places
    np.testing.assert_allclose(latest, places(said[:, -4:], both(said[:, -4:])), atol=1e-12)


def test_one_network_and_chains_with_different_data_are_not_calibrated():
    X, y = data_of_two_noises(0)
    problem = hb.datasets.from_arrays(X, y, task="regression", test_share=0.0)
    assert not len(run_of(problem, 1).calibration().places)
    assert len(run_of(problem, 2).calibration().places) == 400
    X, Y = (np.concatenate([each, each[:, ::-1]]) for each in (problem.X_train, problem.Y_train))
    different = replace(problem, X_train=X, Y_train=Y, X_test=X[:, :0], Y_test=Y[:, :0])
    assert not len(run_of(different, 2).calibration().places)


def test_of_large_tables_some_examples_stand_for_all(monkeypatch):
    monkeypatch.setattr("heatbath.runs.predictions.MOST_PLACES", 150)
    X, y = data_of_two_noises(0)
    calibration = run_of(hb.datasets.from_arrays(X, y, task="regression", test_share=0.0), 2).calibration()
    assert len(calibration.places) == 134
    assert calibration.weights.sum() == pytest.approx(400, abs=3)
