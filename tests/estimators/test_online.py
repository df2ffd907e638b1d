"""partial_fit: the posterior of the latest examples, what follows them, and what is forgotten."""

import pickle

import numpy as np
import pytest

import heatbath as hb
from heatbath.diagnostics.drift import FALSE_ALARMS
from heatbath.runs import continuation

OWN = hb.Partition(hb.Langevin(1.0), 0.3, hb.Posterior(prior=2.0, noise=0.5))
QUICK = {"hidden": (5,), "steps": 20, "chains": 2, "samples": 4, "random_state": 0}


def lines(count, seed=0):
    rng = np.random.default_rng(seed)
    X = 3 + rng.standard_normal((count, 2))
    return X, X @ [1.0, -2.0] + 0.5 * rng.standard_normal(count)


def exact_posterior(problem, variance, prior):
    """Return the mean and covariance of (weights, bias) of a line, in the units of the problem."""
    X = np.hstack([problem.X_train[0], np.ones((problem.X_train.shape[1], 1))])
    covariance = np.linalg.inv(X.T @ X / variance + np.eye(3) / prior**2)
    return covariance @ X.T @ problem.Y_train[0, :, 0] / variance, covariance


@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_the_posterior_of_the_latest_examples_is_sampled(temperature):
    """The posterior of a line with known noise is exact.

    There are 100 chains with 10 samples each, taken far apart. Variances are known to 4.5 % (one standard
    error) and means to a tenth of a standard deviation (100 independent chains), so that 5 of these in six
    numbers have a chance below 1e-5 each.
    """
    posterior = hb.Posterior(prior=2.0, noise=0.5, temperature=temperature)
    fitted = hb.ThermodynamicRegressor(
        hidden=(), method=hb.Partition(hb.Langevin(1.0), 0.4, posterior), chains=100, samples=10, steps=150,
        batch=200, window=60, random_state=0,
    )  # fmt: skip
    X, y = lines(100)
    for rows in np.split(np.arange(100), [10, 35, 60, 80]):
        fitted.partial_fit(X[rows], y[rows])
    problem = fitted.run_.problem
    np.testing.assert_allclose(problem.X_train[0] * problem.scale + problem.shift, X[-60:])
    np.testing.assert_allclose(
        problem.Y_train[0, :, 0] * problem.target_scale + problem.target_shift, y[-60:]
    )
    mean, covariance = exact_posterior(problem, (0.5 / problem.target_scale) ** 2, 2.0)
    samples = fitted.run_.data["samples"].values.astype(float)
    spread = np.sqrt(temperature * np.diag(covariance))
    assert np.abs((samples.mean(axis=(0, 1)) - mean) / spread).max() < 5 * 0.1
    ratios = samples.reshape(-1, 3).var(axis=0) / spread**2
    np.testing.assert_allclose(ratios, 1.0, atol=5 * 0.045)
    _, sd = fitted.predict(X[:5], return_std=True)
    design = np.hstack([(X[:5] - problem.shift) / problem.scale, np.ones((5, 1))])
    wide = np.sqrt(temperature * np.einsum("ei,ij,ej->e", design, covariance, design))
    np.testing.assert_allclose(
        sd, np.sqrt((wide * problem.target_scale) ** 2 + 0.5**2), rtol=0.05
    )  # of new data, noise included
    last = np.hstack([problem.X_train[0, -20:], np.ones((20, 1))])
    alone = np.linalg.lstsq(last, problem.Y_train[0, -20:, 0])[0]
    assert np.abs((alone - mean) / spread).max() > 5 * 0.1  # a control: the last call alone is elsewhere


def make_run(task, posterior):
    X = np.random.default_rng(0).standard_normal((40, 2)) * [2.0, 5.0] + [1.0, -3.0]
    y = X @ [1.0, -0.5] + 2
    method = hb.Partition(hb.Langevin(1.0), 0.1, posterior)
    kind = hb.ThermodynamicRegressor if task == "regression" else hb.ThermodynamicClassifier
    y = y if task == "regression" else (y > np.median(y)).astype(int)
    return kind(method=method, **QUICK).fit(X, y), X, y


@pytest.mark.parametrize(
    ("task", "posterior"),
    [
        ("binary", hb.Posterior()),
        ("regression", hb.Posterior()),
        ("regression", hb.Posterior(noise="network")),
        ("regression", hb.Posterior(noise=0.3)),
    ],
)
@pytest.mark.parametrize("hidden", [(), (5,), (4, 3)])
@pytest.mark.filterwarnings("ignore::heatbath.StaleNoiseWarning")  # of very short runs
def test_networks_say_the_same_when_data_are_scaled_anew(task, posterior, hidden, monkeypatch):
    monkeypatch.setitem(QUICK, "hidden", hidden)
    fitted, X, y = make_run(task, posterior)
    old = fitted.run_
    more = np.concatenate([X, 10 * X + 7])
    Y = np.concatenate([y, 3.0 * y + 50]) if task == "regression" else np.concatenate([y, y])
    kind = type(fitted)(method=fitted.method, **QUICK)
    problem = kind.fit(more, Y).run_.problem
    assert (problem.scale > 2 * old.problem.scale).all()
    moved = old.on_other_examples(problem, 1, 0, 1)
    one, other = old.predict(X, over="chains"), moved.predict(X, over="chains")
    np.testing.assert_allclose(other.mean, one.mean, rtol=1e-4, atol=1e-5)
    if one.noise is not None:
        np.testing.assert_allclose(other.noise, one.noise, rtol=1e-4)
    np.testing.assert_allclose(moved.p, old.p * np.sqrt(40 / 80), rtol=1e-6)


def test_scales_follow_the_data_and_stay_while_these_are_the_same():
    small = hb.Partition(OWN.methods, 0.02, OWN.posterior)
    fitted = hb.ThermodynamicRegressor(method=small, window=200, **QUICK)
    X, y = lines(100)
    fitted.partial_fit(X[:1], y[:1]).partial_fit(X[1:50], y[1:50])  # one example tells nothing of a scale
    first = fitted.run_.problem
    np.testing.assert_allclose(first.shift, X[:50].mean(axis=0))
    np.testing.assert_allclose(first.target_scale, y[:50].std())
    np.testing.assert_array_equal(fitted.partial_fit(X[50:], y[50:]).run_.problem.shift, first.shift)
    fitted.partial_fit(3 * X, y)
    np.testing.assert_allclose(fitted.run_.problem.scale, np.concatenate([X, 3 * X]).std(axis=0))


def test_networks_that_diverge_on_what_comes_are_begun_anew():
    fitted = hb.ThermodynamicRegressor(method=OWN, window=200, **QUICK)
    X, y = lines(100)
    fitted.partial_fit(X, y)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hb.Run, "resume", diverging)
        fitted.partial_fit(1e6 * X, y)
    assert fitted.n_iter_ == 20
    assert fitted.run_.problem.X_train.shape[1] == 200
    assert np.isfinite(fitted.predict(X)).all()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("heatbath.estimators.base.train", diverging)
        with pytest.raises(FloatingPointError):
            hb.ThermodynamicRegressor(method=OWN, **QUICK).partial_fit(X, y)


def diverging(*_, **__):
    raise FloatingPointError("all chains diverged")


def test_weights_go_along_and_examples_without_weight_do_not_count():
    fitted = hb.ThermodynamicRegressor(method=OWN, window=50, **QUICK)
    X, y = lines(60)
    weights = np.where(np.arange(60) % 3 == 0, 0.0, 1 + np.arange(60) % 2)
    for rows in np.array_split(np.arange(60), 3):
        fitted.partial_fit(X[rows], y[rows], weights[rows])
    np.testing.assert_array_equal(fitted.run_.problem.weights_train[0], weights[weights > 0][-50:])


def test_a_fit_goes_on_with_its_examples_and_a_new_fit_forgets():
    X, y = lines(60)
    fitted = hb.ThermodynamicRegressor(method=OWN, **QUICK).fit(X[:40], y[:40]).partial_fit(X[40:], y[40:])
    assert fitted.run_.problem.X_train.shape[1] == 60
    assert np.isfinite(fitted.prequential_loss_.value)
    fitted.fit(X[:30], y[:30])
    assert fitted.run_.problem.X_train.shape[1] == 30
    assert np.isnan(fitted.prequential_loss_.value)
    with pytest.raises(ValueError, match="window"):
        hb.ThermodynamicRegressor(method=OWN, window=0, **QUICK).partial_fit(X, y)


def test_it_goes_on_after_a_file_and_a_pickle(tmp_path):
    X, y = lines(60)
    fitted = hb.ThermodynamicRegressor(method=OWN, window=50, **QUICK).partial_fit(X[:30], y[:30])
    fitted.partial_fit(X[30:40], y[30:40])
    fitted.save(tmp_path / "e.nc")
    copies = [hb.ThermodynamicRegressor.load(tmp_path / "e.nc"), pickle.loads(pickle.dumps(fitted)), fitted]
    for one in copies:
        one.partial_fit(X[40:], y[40:])
    for one in copies[:2]:
        np.testing.assert_array_equal(one.run_.theta, fitted.run_.theta)
        assert one.run_.problem.X_train.shape[1] == 50


@pytest.mark.filterwarnings("ignore::heatbath.OffTemperatureWarning")  # of very short runs
def test_stepsize_and_prior_are_found_anew_when_there_is_twice_as_much_and_steps_are_a_share():
    X, y = lines(88)
    fitted = hb.ThermodynamicRegressor(hidden=(5,), chains=4, refine=0.05, samples=10, random_state=0)
    found = [fitted.partial_fit(X[:20], y[:20]).run_.found]
    found.append(fitted.partial_fit(X[20:40], y[20:40]).run_.found)
    assert found[1].tried
    assert found[1] != found[0]
    before = fitted.run_
    fitted.partial_fit(X[40:48], y[40:48])
    assert fitted.run_.step - before.step == 500 * 8 // 48  # of the 500 of a fit
    assert fitted.run_.partition == before.partition
    fitted.partial_fit(X[48:], y[48:])
    assert fitted.run_.problem.X_train.shape[1] == 88
    assert fitted.run_.found.tried
    whole = hb.ThermodynamicRegressor(hidden=(5,), chains=4, random_state=1, refine=0.2).fit(X, y)
    difference = np.abs(fitted.predict(X) - whole.predict(X))
    assert difference.mean() < 0.25  # half the noise of the data


@pytest.mark.parametrize("flips", [False, True])
def test_a_change_of_the_data_is_told_and_what_was_before_is_forgotten(flips):
    """The classes change places after 60 calls of 10 examples.

    Without that there is no alarm, which at one in 10,000 calls has a chance of 99 % at least.
    """
    rng = np.random.default_rng(1)
    fitted = hb.ThermodynamicClassifier(method=hb.LaLa(0.3, 1.0, posterior=hb.Posterior()), **QUICK)
    told = []
    for call in range(70):
        X = rng.standard_normal((10, 2))
        y = (X[:, 0] > 0) ^ (flips and call >= 60)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("heatbath.estimators.base.warn", told.append)
            fitted.partial_fit(X, y, classes=[False, True])
        if told and flips:
            break
    if not flips:
        assert told == []
        assert fitted.run_.problem.X_train.shape[1] == 700
        return
    assert isinstance(told[0], hb.DriftWarning)
    assert call < 68
    assert fitted.run_.problem.X_train.shape[1] == 10 * told[0].since <= 80
    assert fitted.score(X, y) > 0.5


def test_records_do_not_grow_without_end(monkeypatch):
    monkeypatch.setattr(continuation, "MOST_RECORDS", 25)
    X, y = lines(60)
    fitted = hb.ThermodynamicRegressor(method=OWN, window=20, **QUICK)
    for rows in np.array_split(np.arange(60), 6):
        fitted.partial_fit(X[rows], y[rows])
    assert len(fitted.loss_curve_) == 25 + 10
    assert fitted.run_.data["step"].values.tolist() == list(fitted.run_.plan.records)
    assert fitted.n_iter_ == 120


def test_the_friction_of_adaptive_parts_is_watched_where_the_window_is_full():
    """Each call adds ξ of each thermostat, and what it tells has the examples before forgotten."""
    fitted = hb.ThermodynamicClassifier(
        **QUICK | {"hidden": (3,), "steps": 5, "chains": 3, "samples": 2}, method=hb.AdLaLa(0.05), window=40
    )
    X = np.random.default_rng(0).standard_normal((200, 2))
    y = (X[:, 0] > 0).astype(int)
    for rows in np.split(np.arange(200), 10):
        fitted.partial_fit(X[rows], y[rows], classes=[0, 1])
    past, (watch,) = fitted._past, fitted._past.frictions.values()
    assert watch.series == "the friction of part 'hidden'"
    assert 6 <= watch.step <= 8  # of ten calls the first two fill the window
    assert past.watch.false_alarms == watch.false_alarms == 2 * FALSE_ALARMS
    rng = np.random.default_rng(3)
    assert not any(past.add_frictions({"hidden": value}, True) for value in rng.normal(0.0, 1.0, 100))
    told = next(d for value in rng.normal(3.0, 1.0, 50) if (d := past.add_frictions({"hidden": value}, True)))
    assert "the friction of part 'hidden' has risen" in str(told)
    assert past.examples_since_change == 20 * min(told.since, 10)
    past.examples_since_change = 25
    fitted.partial_fit(X[:5], y[:5])
    assert fitted.run_.problem.X_train.shape[1] == 30
