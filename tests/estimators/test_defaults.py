"""What the estimators do where nothing is said: the posterior, by the size of the table."""

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_wine
from sklearn.metrics import log_loss, r2_score
from sklearn.model_selection import cross_val_predict

import heatbath as hb
from heatbath.diagnostics.statistics import Estimate
from heatbath.training import prior
from heatbath.training.budget import FIT
from heatbath.training.stepsize import is_right
from tests.estimators.small import noisy_sine

pytestmark = pytest.mark.filterwarnings("ignore::heatbath.OffTemperatureWarning")  # of very short runs
WINE, DIABETES = load_wine(return_X_y=True), load_diabetes(return_X_y=True)


def test_defaults_are_good_for_small_tables():
    proba = cross_val_predict(
        hb.ThermodynamicClassifier(random_state=0, refine=0.25), *WINE, cv=3, method="predict_proba"
    )
    assert log_loss(WINE[1], proba) < 0.15
    said = cross_val_predict(hb.ThermodynamicRegressor(random_state=0, refine=0.25), *DIABETES, cv=3)
    assert r2_score(DIABETES[1], said) > 0.45


def test_it_samples_the_posterior_at_its_temperature_with_full_gradients(sine):
    run = sine.run_
    assert run.partition.posterior == hb.Posterior(prior=run.found.priors[-1])
    assert 1 < len(run.found.priors) <= 1 + prior.RULE.rounds  # rounds that are too hot find none
    assert run.plan.batch == 80
    assert run.plan.chains == 8
    estimate = Estimate(run.found.temperature, run.found.error)
    assert abs(estimate.value - 1) < 5 * estimate.error < 1.5  # of 8 chains: one in a thousand seeds is not
    assert run.found.ended in ("converged", "budget")
    assert is_right(estimate) or run.found.ended == "budget"
    assert sine.n_iter_ <= FIT.steps * 0.5


def test_sampled_networks_are_those_that_are_averaged(sine, wine):
    X = noisy_sine()[0]
    said = sine.sample_posterior(X)
    assert said.shape == (8 * 25, 80, 1)
    np.testing.assert_allclose(said.mean(axis=0)[:, 0], sine.predict(X))
    each = wine.sample_posterior(WINE[0])
    np.testing.assert_allclose(each.mean(axis=0), wine.predict_proba(WINE[0]), rtol=1e-6)


def test_parameters_of_the_posterior_are_those_given():
    X, y = noisy_sine(30)
    given = {"prior": [1.0, 0.2], "temperature": 0.3, "noise": 0.3, "steps": 60, "random_state": 0}
    fitted = hb.ThermodynamicRegressor(**given).fit(X, y)
    assert fitted.run_.partition.posterior == hb.Posterior([1.0, 0.2], 0.3, 0.3)
    assert fitted.n_iter_ == 60
    classes = hb.ThermodynamicClassifier(temperature=0.5, steps=60, chains=2, batch=10).fit(X, y > 5)
    assert classes.run_.partition.posterior == hb.Posterior((1.0, 1.0), temperature=0.5)
    assert (classes.run_.plan.batch, classes.run_.plan.chains) == (10, 2)


@pytest.mark.parametrize("given", [{"chains": 1}, {"samples": 1}, {"samples": 3, "chains": 2}])
def test_one_chain_or_few_samples_do(given):
    fitted = hb.ThermodynamicRegressor(refine=0.1, random_state=0, **given).fit(*noisy_sine())
    assert fitted.score(*noisy_sine()) > 0.8


def test_mini_batches_have_their_own_friction():
    X, y = noisy_sine()
    given = {"steps": 200, "chains": 2, "random_state": 0}
    frictions = {
        batch: hb.ThermodynamicRegressor(batch=batch, **given).fit(X, y).run_.partition.methods["all"].gamma
        for batch in (None, 10)
    }
    assert frictions == {None: 0.5, 10: 1.0}


def test_a_fit_goes_on_from_the_stepsize_that_was_found():
    X, y = noisy_sine(40)
    fitted = hb.ThermodynamicRegressor(steps=100, chains=4, warm_start=True, random_state=0).fit(X, y)
    h, before = fitted.run_.partition.h, fitted.run_.theta
    fitted.fit(X, y)
    assert fitted.n_iter_ == 200
    assert fitted.run_.partition.h == h
    assert (fitted.run_.theta != before).any()
    fitted.partial_fit(X[:20], y[:20])
    assert fitted.run_.plan.batch == 60  # with those of the fit
    assert fitted.n_iter_ == 300


def test_early_stopping_finds_a_stepsize_first():
    X, y = noisy_sine(60)
    fitted = hb.ThermodynamicRegressor(
        steps=1000, samples=10, chains=4, early_stopping=True, n_iter_no_change=3, random_state=0
    ).fit(X, y)
    assert fitted.run_.found.tried
    assert fitted.n_iter_ <= 1000
