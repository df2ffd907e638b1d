"""Runs with a posterior: saved, resumed, replayed, swept; and what is refused."""

import numpy as np
import pytest
import xarray as xr

import heatbath as hb

X = np.random.default_rng(0).standard_normal((60, 3))
Y = np.column_stack([X[:, 0] ** 2, X[:, 1]]) + 0.3 * np.random.default_rng(1).standard_normal((60, 2))
PROBLEM = hb.datasets.from_arrays(X, Y, task="regression", standardise=True)
CLASSES = hb.datasets.spirals(n_train=50, n_test=10)
NETWORK = hb.MLP((6,), "tanh")
POSTERIOR = hb.Posterior(prior=(0.5, 1.0), temperature=0.9)
SAMPLING = hb.LaLa(h=0.1, gamma=1.0, posterior=POSTERIOR)


def sampled_run(problem=PROBLEM, partition=SAMPLING, steps=400, **options):
    return hb.train(problem, NETWORK, partition, steps, 8, 3, samples=8, record=8, **options)


def assert_same_runs(one, other):
    xr.testing.assert_identical(one.data, other.data)
    assert one.partition == other.partition


def test_a_run_is_the_same_saved_resumed_and_replayed(tmp_path):
    run = sampled_run()
    run.save(tmp_path / "run.nc")
    loaded = hb.load(tmp_path / "run.nc")
    assert_same_runs(run, loaded)
    assert loaded.partition.posterior == POSTERIOR
    assert_same_runs(run, loaded.replay())
    half = sampled_run(steps=200)
    half.save(tmp_path / "half.nc")
    longer = hb.load(tmp_path / "half.nc").resume(200)
    for name in ("theta", "p", "noise_now"):
        np.testing.assert_array_equal(longer.data[name], run.data[name], err_msg=name)


@pytest.mark.parametrize("threads", [1, 2])
def test_chains_have_the_same_bits_on_any_number_of_threads_and_in_any_company(threads):
    few, many = (
        hb.train(PROBLEM, NETWORK, SAMPLING, 200, 8, chains, threads=threads, record=2) for chains in (2, 19)
    )
    for name in ("theta", "noise_now", "noise"):
        np.testing.assert_array_equal(few.data[name], many.data[name][:2], err_msg=name)


def test_the_text_of_a_run_names_its_posterior():
    assert "posterior: Posterior(prior=(0.5, 1.0), noise='sampled', temperature=0.9, degrees=None)" in repr(
        sampled_run()
    )


def test_the_noise_is_noted_with_records_and_samples():
    run = sampled_run()
    assert run.data["noise"].dims == ("chain", "record", "target")
    assert run.data["sample_noise"].shape == (3, 8, 2)
    np.testing.assert_array_equal(run.data["noise"].values[:, -1], run.data["noise_now"])
    np.testing.assert_array_equal(run.data["sample_noise"].values[:, -1], run.data["noise_now"])
    assert (run.data["noise"].values[:, 0] != run.data["noise"].values[:, -1]).all()


def test_a_sweep_and_a_comparison_have_posteriors():
    sweep = hb.sweep(
        PROBLEM, NETWORK, hb.LaLa(h=[0.05, 0.1], gamma=1.0, posterior=POSTERIOR), 200, 8, 2, record=1
    )
    alone = hb.train(PROBLEM, NETWORK, SAMPLING, 200, 8, 2, record=1)
    np.testing.assert_array_equal(sweep.select(h=0.1).data["noise_now"], alone.data["noise_now"])
    methods = {"sampled": SAMPLING, "plain": hb.LaLa(0.1, 1.0, 1e-3), "Adam": hb.Partition(hb.Adam(), 0.01)}
    both = hb.compare(PROBLEM, NETWORK, methods, 200, 8, 2, record=1)
    np.testing.assert_array_equal(both.select(method="sampled").theta, alone.theta)
    assert np.isnan(both.data["noise_now"].values[2:]).all()
    assert "noise_now" not in both.select(method="plain").data


def test_a_posterior_of_classes_is_a_temperature_and_a_prior():
    run = sampled_run(CLASSES, hb.LaLa(h=0.1, gamma=1.0, posterior=hb.Posterior(prior=2.0, temperature=0.5)))
    plain = sampled_run(CLASSES, hb.LaLa(h=0.1, gamma=1.0, tau=0.5 / 50, weight_decay=1 / (4 * 50)))
    np.testing.assert_array_equal(run.theta, plain.theta)
    assert "noise_now" not in run.data


def test_an_adaptive_part_keeps_the_law_of_its_thermostat():
    method = hb.AdaptiveLangevin(tau=1e-4, sigma=0.01, epsilon=0.1).at_temperature(1e-2)
    assert method.sigma**2 / method.tau == pytest.approx(0.01**2 / 1e-4)
    assert method.epsilon * method.tau == pytest.approx(0.1 * 1e-4)
    run = sampled_run(partition=hb.AdLaLa(h=0.1, posterior=hb.Posterior()))
    assert np.isfinite(run.theta).all()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: hb.Partition(hb.Langevin(gamma=1.0), 0.1), "needs tau, or the partition needs posterior="),
        (lambda: hb.LaLa(0.1, 1.0), "needs tau, or the partition needs posterior="),
        (lambda: hb.LaLa(0.1, 1.0, 1e-3, posterior=POSTERIOR), "leave it out"),
        (lambda: hb.LOL(tau=1e-4, posterior=POSTERIOR), "leave it out"),
        (lambda: hb.LaLa(0.1, 1.0, weight_decay=0.1, posterior=POSTERIOR), "leave out weight_decay"),
        (lambda: hb.Partition(hb.Langevin(1.0), 0.1, posterior=1.0), "must be a Posterior or None"),
        (lambda: hb.Posterior(prior="wide"), "'fan_in'"),
        (lambda: hb.Posterior(prior=0.0), "prior"),
        (lambda: hb.Posterior(prior=[]), "got none"),
        (lambda: hb.Partition(hb.SGLD(), 0.1), "needs sigma"),
        (lambda: hb.Partition(hb.SGLD(0.1), 0.1, POSTERIOR), "sets sigma, so leave it out"),
        (
            lambda: sampled_run(
                partition=hb.LaLa(0.1, 1.0, word="BAOAB", word_output="ABOBA", posterior=hb.Posterior())
            ),
            "either all words or none must show θ at the kick",
        ),
        (lambda: hb.Posterior(noise="known"), "'sampled'"),
        (lambda: hb.Posterior(noise=(0.1, -1.0)), "noise"),
        (lambda: hb.Posterior(temperature=0.0), "temperature"),
        (lambda: sampled_run(partition=hb.LaLa(0.1, 1.0, posterior=hb.Posterior(prior=(1.0,)))), "2 layers"),
        (
            lambda: sampled_run(partition=hb.LaLa(0.1, 1.0, posterior=hb.Posterior(noise=(1, 2, 3)))),
            "2 targets",
        ),
        (
            lambda: sampled_run(CLASSES, hb.LaLa(0.1, 1.0, posterior=hb.Posterior(noise=1))),
            "for a regression",
        ),
        (
            lambda: sampled_run(partition=hb.LaLa(0.1, 1.0, posterior=hb.Posterior(temperature=99.0))),
            "at most",
        ),
        (
            lambda: sampled_run(
                partition=hb.Partition(hb.AdaptiveLangevin(), 0.1, posterior=hb.Posterior(prior=(1, 2)))
            ),
            "share thermostats",
        ),
        (
            lambda: sampled_run().resume(10, hb.LaLa(0.1, 1.0, posterior=hb.Posterior())),
            "continues with the posterior",
        ),
    ],
)
def test_what_cannot_work_is_refused(make, words):
    with pytest.raises((ValueError, TypeError), match=words):
        make()


@pytest.mark.parametrize("friction", ["map", "sde"])
def test_coefficients_of_an_adaptive_part_can_change_on_the_way(friction):
    post = hb.Posterior()
    run = sampled_run(partition=hb.AdLaLa(0.1, friction=friction, posterior=post))
    longer = run.resume(100, hb.AdLaLa(0.1, sigma=0.02, epsilon=0.2, friction=friction, posterior=post))
    assert np.isfinite(longer.theta).all()
    method = hb.AdaptiveLangevin(tau=1e-4, sigma=0.01, epsilon=0.1, xi=0.3, friction=friction)
    warm = method.at_temperature(1e-2)
    power = 2 if friction == "sde" else 1
    assert warm.epsilon**power * warm.tau == pytest.approx(method.epsilon**power * method.tau)
    factor = warm.epsilon / method.epsilon if friction == "sde" else 1.0
    assert factor * warm.xi == pytest.approx(method.xi)


def test_the_points_of_a_sweep_have_the_temperature_of_the_posterior():
    sampling = hb.LaLa(0.1, gamma=[1.0], posterior=hb.Posterior())
    run = hb.sweep(PROBLEM, NETWORK, sampling, 200, 8, 2, record=20)
    assert {part.method.tau for part in run.plan.parts()} == {1 / 48}
    assert hb.diagnostics.equipartition(run)["target"].values.tolist() == [1 / 48] * 2
    hb.plotting.temperatures(run)


def test_a_run_that_is_too_short_to_draw_the_noise_warns():
    with pytest.warns(RuntimeWarning, match="drawn every 50 steps, and there are only 20"):
        sampled_run(steps=20)


def test_a_method_that_diverged_has_nothing_to_predict_from():
    post = hb.Posterior()
    methods = {"good": hb.LaLa(0.05, 1.0, posterior=post), "bad": hb.LaLa(30.0, 1.0, posterior=post)}
    with pytest.warns(hb.DivergedWarning):
        run = hb.compare(PROBLEM, NETWORK, methods, 200, 8, 2, samples=2, record=1)
    with pytest.raises(ValueError, match="all chains of this run diverged"):
        run.select(method="bad").predictive(X[:3])


def test_an_estimator_can_have_a_posterior():
    method = hb.LaLa(0.1, 1.0, posterior=hb.Posterior())
    model = hb.ThermodynamicRegressor(hidden=(5,), method=method, steps=400, random_state=0)
    _, sd = model.fit(X, Y[:, 0]).predict(X, return_std=True)
    noise = model.run_.predict(X).noise
    assert (sd**2 >= noise).all()
    low, high = model.predict_interval(X, 0.8)
    assert low.shape == high.shape == (60,)
    shares = [(1 - 0.8) / 2, 0.5, (1 + 0.8) / 2]  # the first is not 0.1, by a rounding
    np.testing.assert_array_equal(model.predict_quantiles(X, shares)[::2], [low, high])
    both = hb.ThermodynamicRegressor(hidden=(5,), method=method, steps=400).fit(X, Y)
    assert both.predict_quantiles(X, 0.5).shape == (1, 60, 2)
    plain = hb.ThermodynamicRegressor(hidden=(5,), method=hb.LaLa(0.1, 1.0, 1e-3), steps=50).fit(X, Y[:, 0])
    with pytest.raises(ValueError, match="fit with a posterior"):
        plain.predict_interval(X)


def test_an_optimiser_needs_a_temperature():
    import torch

    model = torch.nn.Linear(2, 1)
    with pytest.raises(TypeError, match="needs tau"):
        hb.torch.Langevin(model.parameters(), lr=0.1, gamma=1.0)
