"""ArviZ reads runs, and what it says of them is plausible."""

import os
import re
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr
from scipy import stats

import heatbath as hb
from heatbath.models.likelihood import SCALE, SHAPE, Likelihood, draw_prior, spread
from heatbath.prediction.predictive_distributions import Categorical
from tests.processes import run_in_copy, run_script
from tests.runs import SMALL, SPIRALS

with warnings.catch_warnings():
    warnings.simplefilter("ignore", FutureWarning)
    arviz = pytest.importorskip("arviz")
N = 200
BEFORE = arviz.__version__ < "1"


def run_at_temperature(tau, **options):
    """Return samples of a law at temperature τ, which has a standard normal prior if τ is 1/n."""
    partition = hb.Partition(hb.Langevin(1.0, tau, weight_decay=tau), 0.2)
    settings = {"chains": 4, "samples": 200, "record": 10, "seed": 3} | options
    return hb.train(SPIRALS, SMALL, partition, 40_000, 50, burn_in=20_000, **settings)


@pytest.fixture(scope="module")
def warm():
    return run_at_temperature(1 / N)


def test_arviz_has_the_function_at_the_test_data_by_default(warm):
    data = warm.to_arviz()
    prediction = data.posterior["prediction"]
    assert prediction.dims == ("chain", "draw", "point", "output")
    assert prediction.shape == (4, 200, 100, 1)
    assert prediction["draw"].values.tolist() == warm.data["sample_step"].values.tolist()
    assert prediction["output"].values.tolist() == ["1"]
    assert "theta" not in data.posterior
    np.testing.assert_array_equal(prediction, warm.outputs(SPIRALS.X_test[0], samples=True))


def test_arviz_has_the_function_where_it_is_asked_for_and_the_parameters_too(warm):
    data = warm.to_arviz(X=[[0.0, 1.0], [1.0, 0.0]], parameters=True)
    np.testing.assert_array_equal(
        data.posterior["prediction"], warm.outputs([[0.0, 1.0], [1.0, 0.0]], samples=True)
    )
    np.testing.assert_array_equal(data.posterior["theta"], warm.data["samples"])
    assert len(arviz.summary(data, var_names=["prediction"])) == 2


def test_a_posterior_has_converged_and_a_cold_law_has_not(warm):
    """R-hat and ESS of the function on the 2-turn spiral; the control fails where it should."""
    rhat, ess = arviz.rhat(warm.to_arviz())["prediction"], arviz.ess(warm.to_arviz())["prediction"]
    assert float(rhat.max()) < 1.06
    assert float(rhat.median()) < 1.02
    assert 100 < float(ess.median()) <= 4 * 200 * 1.5  # of 800
    cold = run_at_temperature(1e-6).to_arviz()
    assert float(arviz.rhat(cold)["prediction"].max()) > 1.5
    assert float(arviz.ess(cold)["prediction"].median()) < 60


def test_chains_of_different_laws_are_not_mixed():
    options = {"steps": 20, "batch": 20, "samples": 4}
    sweep = hb.sweep(SPIRALS, SMALL, hb.LOL(tau=[1e-4, 1e-3]), chains=2, **options)
    with pytest.raises(ValueError, match="differ in tau: select one"):
        sweep.to_arviz()
    assert sweep.select(tau=1e-3).to_arviz().posterior.sizes["chain"] == 2
    drawn = hb.datasets.spirals(n_train=50, n_test=20, draws=2)
    with pytest.raises(ValueError, match="2 different data sets"):
        hb.train(drawn, SMALL, hb.LOL(), chains=2, **options).to_arviz()
    assert hb.train(drawn, SMALL, hb.LOL(), chains=1, **options).to_arviz().posterior.sizes["point"] == 20
    with pytest.raises(ValueError, match="train with samples=N"):
        hb.train(SPIRALS, SMALL, hb.LOL(), 20, 20).to_arviz()


def test_chains_that_diverged_are_left_out():
    start = np.tile(SMALL.start(2, 1, [0], 1), (3, 1))
    start[1, 60:] = 3e38
    with pytest.warns(RuntimeWarning, match="diverged"):
        run = hb.train(SPIRALS, SMALL, hb.LOL(), 40, 20, chains=3, samples=5, start=start)
    assert run.to_arviz().posterior.sizes["chain"] == 2


def test_without_arviz_the_error_names_the_extra(monkeypatch, warm):
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'heatbath\[arviz\]'"):
        warm.to_arviz()


def test_what_arviz_announces_once_a_day_does_not_reach_the_user(tmp_path):
    """A new process has a cache folder in which ArviZ finds no trace of an announcement."""
    code = """
import heatbath as hb
problem = hb.datasets.spirals(n_train=50, n_test=10)
print(hb.train(problem, hb.MLP((5,)), hb.LOL(), 20, 5, chains=2, samples=5).to_arviz())
"""
    kernels = os.environ.get("HEATBATH_CACHE", str(Path.home() / ".cache" / "heatbath"))
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "HEATBATH_CACHE": kernels}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert "posterior" in done.stdout


def test_the_example_prints_its_table():
    example = Path(__file__).parents[2] / "examples" / "convergence.py"
    done = run_in_copy(run_script(example, "--steps", "2000"))
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"Langevin, τ = .*│ +\d\.\d\d │ +\d+\.\d % │", done.stdout)) == 3


# What follows from the samples

X = np.random.default_rng(0).uniform(-2, 2, (40, 3))
Y = np.column_stack([100 + 20 * X[:, 0], 0.1 * X[:, 1] ** 2])
Y += [3.0, 0.02] * np.random.default_rng(1).standard_normal((40, 2))
ALL = {"posterior", "predictions", "log_likelihood", "posterior_predictive", "observed_data"}
PRIORS = {"prior", "prior_predictive"}


def group_names(data):
    return set(data.children if isinstance(data, xr.DataTree) else data.groups())


def as_dataset(group):
    return group.to_dataset() if isinstance(group, xr.DataTree) else group


def regression_run(targets=1, **options):
    problem = hb.datasets.from_arrays(
        X, Y[:, :targets], X[:5], Y[:5, :targets], task="regression", standardise=True
    )
    sampling = hb.LaLa(h=0.2, gamma=1.0, posterior=hb.Posterior(**options))
    return hb.train(problem, hb.MLP((4,), "tanh"), sampling, 1000, 40, 3, samples=100, burn_in=500)


@pytest.fixture(scope="module")
def two():
    return regression_run(targets=2, temperature=0.7)


def test_the_likelihood_is_that_of_the_training_examples_in_the_users_units(two):
    data = two.to_arviz()
    assert group_names(data) == ALL | PRIORS
    np.testing.assert_allclose(data.observed_data["y"], Y, rtol=1e-12)
    means, sigma = two.outputs(X, samples=True), data.posterior["sigma"].values
    np.testing.assert_allclose(
        sigma, np.sqrt(two.data["sample_noise"].values) * two.problem.target_scale, rtol=1e-12
    )
    expected = stats.norm(means, sigma[:, :, None]).logpdf(Y).sum(axis=-1)
    assert data.log_likelihood["y"].dims == ("chain", "draw", "example")
    np.testing.assert_allclose(data.log_likelihood["y"], expected, rtol=1e-9)
    assert data.posterior["target"].values.tolist() == list(two.problem.targets)


def test_the_weight_of_an_example_is_in_its_likelihood(two):
    weights = np.linspace(0.5, 2.0, 40)[None]
    weighted = replace(two.plan, problem=replace(two.problem, weights_train=weights))
    plain, powers = (
        hb.Run(plan, two.step, two.data).to_arviz(groups=["log_likelihood"]).log_likelihood["y"]
        for plan in (two.plan, weighted)
    )
    np.testing.assert_allclose(powers, weights * plain, rtol=1e-12)


def test_new_data_lie_around_what_each_network_says(two):
    data = two.to_arviz()
    sigma = data.posterior["sigma"].values[:, :, None]
    for group, inputs in (("posterior_predictive", X), ("predictions", X[:5])):
        z = (data[group]["y"].values - two.outputs(inputs, samples=True)) / sigma
        assert z.shape == (3, 100, len(inputs), 2)
        for k in range(2):
            assert stats.kstest(z[..., k].ravel(), "norm").pvalue > 1e-3
        assert abs(np.corrcoef(z[..., 0].ravel(), z[..., 1].ravel())[0, 1]) < 0.1
    again = two.to_arviz()
    for group in ALL | PRIORS:
        xr.testing.assert_identical(as_dataset(data[group]), as_dataset(again[group]))


@pytest.mark.parametrize("noise", ["sampled", (3.0, 0.02)])
def test_the_prior_is_that_of_the_posterior_at_any_temperature(noise):
    run = regression_run(targets=2, prior=(0.5, 2.0), noise=noise, temperature=0.7)
    data = run.to_arviz(parameters=True)
    theta = data.prior["theta"].values[0]
    for deviation, own in ((0.5, theta[:, :16]), (2.0, theta[:, 16:])):
        assert stats.kstest(own.ravel() / deviation, "norm").pvalue > 1e-3
    means = run.problem.decode(np.array([run.network.forward(t, run.problem.X_train[0], 2) for t in theta]))
    if noise == "sampled":
        sigma = data.prior["sigma"].values[0]
        for k, variance in enumerate(spread(run.problem)):
            law = stats.invgamma(SHAPE, scale=SCALE * variance * run.problem.target_scale[k] ** 2)
            assert stats.kstest(sigma[:, k] ** 2, law.cdf).pvalue > 1e-3
    else:
        assert "sigma" not in data.prior
        assert "sigma" not in data.posterior
        sigma = np.tile(noise, (len(theta), 1))
    z = (data.prior_predictive["y"].values[0] - means) / sigma[:, None]
    assert stats.kstest(z.ravel(), "norm").pvalue > 1e-3


@pytest.mark.parametrize("classes", [2, 3])
def test_classes_have_a_likelihood_with_or_without_a_posterior(classes):
    labels = (np.arange(40) % classes).astype(float)
    problem = hb.datasets.from_arrays(
        X, labels, X[:5], labels[:5], task="binary" if classes == 2 else "classes"
    )
    sampling = hb.LaLa(h=0.2, gamma=1.0, posterior=hb.Posterior(prior=3.0))
    run = hb.train(problem, hb.MLP((4,), "tanh"), sampling, 1000, 40, 3, samples=100, burn_in=500)
    data = run.to_arviz()
    assert group_names(data) == ALL | PRIORS
    p = run.outputs(X, samples=True)
    p = np.concatenate([1 - p, p], axis=-1) if classes == 2 else p
    places = labels.astype(int)
    np.testing.assert_array_equal(data.observed_data["y"], places)
    np.testing.assert_allclose(
        data.log_likelihood["y"], np.log(p[:, :, np.arange(40), places]), rtol=1e-6, atol=1e-12
    )
    drawn = data.posterior_predictive["y"].values
    assert drawn.dtype == np.int64
    for label in range(classes):
        expected = p[..., label]
        error = np.sqrt((expected * (1 - expected)).sum())
        assert abs((drawn == label).sum() - expected.sum()) < 4 * error
        assert (
            abs((expected * (drawn == label)).sum() - (expected**2).sum()) < 4 * error
        )  # of each by its own
    plain = hb.train(problem, hb.MLP((4,), "tanh"), hb.LaLa(0.2, 1.0, 0.025), 20, 40, samples=2)
    assert group_names(plain.to_arviz()) == ALL


def test_classes_are_drawn_with_their_probabilities():
    share = np.array([0.7, 0.2, 0.1])
    drawn = Categorical(np.tile(np.log(share), (20_000, 1, 1))).draw()
    assert stats.chisquare(np.bincount(drawn.ravel(), minlength=3), 20_000 * share).pvalue > 1e-3


def raw_predictions(run, thetas, x):
    """Return what networks predict for examples, by the definition, (networks, examples) each.

    Values in the user's units or logarithms of rates, and the standard deviations around values.
    """
    outputs = np.array([run.network.forward(theta, x, run.plan.likelihood.outputs) for theta in thetas])
    scale, shift = run.problem.target_scale, run.problem.target_shift
    return outputs[..., 0] * scale + shift, np.exp(outputs[..., -1] / 2) * scale


def shares_of(law, y):
    """Return numbers that are uniform if y is of this law; for counts, randomised between the two steps."""
    if not isinstance(law.dist, stats.rv_discrete):
        return law.cdf(y).ravel()
    return (law.cdf(y) - law.pmf(y) * np.random.default_rng(5).random(y.shape)).ravel()


@pytest.mark.parametrize("kind", ["counts", "Student", "Student, known", "network"])
def test_other_likelihoods_have_their_own_densities_and_data(kind):
    """Posterior and prior agree with SciPy's laws: with weights, in units, at a temperature below 1."""
    task, y = ("counts", np.floor(np.exp(X[:, 0]))) if kind == "counts" else ("regression", Y[:, 0])
    options = {
        "counts": {},
        "Student": {"degrees": 4.0},
        "Student, known": {"degrees": 4.0, "noise": 3.0},
        "network": {"noise": "network"},
    }[kind]
    weights = np.linspace(0.5, 2.0, 40)
    problem = hb.datasets.from_arrays(X, y, X[:5], y[:5], task=task, standardise=True, weights=weights)
    posterior = hb.Posterior(prior=(0.5, 0.8), temperature=0.7, **options)
    sampling = hb.LaLa(h=0.1, gamma=1.0, posterior=posterior)
    run = hb.train(problem, hb.MLP((4,), "tanh"), sampling, 1000, 40, 3, samples=50, burn_in=500)
    data = run.to_arviz(parameters=True)
    assert group_names(data) == ALL | PRIORS
    np.testing.assert_allclose(data.observed_data["y"], y, rtol=1e-12)
    assert ("sigma" in data.posterior) == ("sigma" in data.prior) == (kind == "Student")

    def law_of(group, x):
        values, sd = raw_predictions(run, group["theta"].values.reshape(-1, run.theta.shape[1]), x)
        if kind == "counts":
            return stats.poisson(np.exp(values))
        if kind == "network":
            return stats.norm(values, sd)
        return stats.t(4.0, values, group["sigma"].values.reshape(-1, 1) if kind == "Student" else 3.0)

    x, new = problem.X_train[0], problem.X_test[0]
    law = law_of(data.posterior, x)
    each = law.logpmf(y) if kind == "counts" else law.logpdf(y)
    found = data.log_likelihood["y"].values.reshape(150, 40)
    np.testing.assert_allclose(found, weights * each, rtol=1e-9, atol=1e-12)
    for group, networks, inputs in (
        ("posterior_predictive", data.posterior, x),
        ("predictions", data.posterior, new),
        ("prior_predictive", data.prior, x),
    ):
        drawn = data[group]["y"].values.reshape(-1, len(inputs))
        assert (drawn.dtype == np.int64) == (kind == "counts")
        assert stats.kstest(shares_of(law_of(networks, inputs), drawn), "uniform").pvalue > 1e-3
    theta = data.prior["theta"].values[0]
    for deviation, own in ((0.5, theta[:, :16]), (0.8, theta[:, 16:])):
        assert stats.kstest(own.ravel() / deviation, "norm").pvalue > 1e-3


def test_the_prior_of_the_noise_is_in_units_of_the_variance_by_weights():
    y, weights = Y[:, 0], np.where(Y[:, 0] > 110, 20.0, 0.1)
    variance = np.cov(y, aweights=weights, ddof=0)
    assert not 0.6 < variance / y.var() < 1.6
    problem = hb.datasets.from_arrays(X, y, X[:5], y[:5], task="regression", weights=weights)
    _, drawn = draw_prior(Likelihood(problem, hb.Posterior(temperature=0.7)), hb.MLP((4,)), 2000, seed=0)
    for assumed in (variance, y.var()):
        fits = stats.kstest(drawn[:, 0], stats.invgamma(SHAPE, scale=SCALE * assumed).cdf).pvalue > 1e-3
        assert fits == (assumed is variance)


def test_a_class_that_is_held_to_be_impossible_has_a_likelihood():
    logits = np.array([[[800.0], [-800.0]]])
    np.testing.assert_allclose(Categorical(logits).log_likelihood([[0], [0]])[0, :, 0], [-800, 0])


def test_groups_that_cannot_be_known_are_left_out_or_refused():
    problem = hb.datasets.from_arrays(X, Y, X[:5], Y[:5], task="regression")
    run = hb.train(problem, hb.MLP((4,)), hb.LaLa(0.05, 1.0, 1e-3), 20, 40, chains=2, samples=4)
    assert group_names(run.to_arviz()) == {"posterior", "observed_data"}
    assert group_names(run.to_arviz(groups=["posterior"])) == {"posterior"}
    with pytest.raises(ValueError, match=r"log_likelihood, prior cannot be known .* posterior=Posterior"):
        run.to_arviz(groups=["prior", "log_likelihood"])
    for wrong in ("posterior", ["posteriors"], []):
        with pytest.raises(ValueError, match="groups must be a list of some of posterior, "):
            run.to_arviz(groups=wrong)
    alone = hb.datasets.from_arrays(X, Y, X[:0], Y[:0], task="regression")
    run = hb.train(alone, hb.MLP((4,)), hb.LaLa(0.05, 1.0, 1e-3), 20, 40, chains=2, samples=4)
    np.testing.assert_array_equal(run.to_arviz().posterior["prediction"], run.outputs(X, samples=True))


def test_the_latest_samples_are_enough_where_memory_is_not(two, monkeypatch):
    latest = two.to_arviz(latest=10)
    assert latest.log_likelihood.sizes["draw"] == 10
    np.testing.assert_array_equal(
        latest.log_likelihood["y"], two.to_arviz().log_likelihood["y"].values[:, -10:]
    )
    monkeypatch.setattr("heatbath.runs.to_arviz.free_memory", lambda: 300_000)
    with pytest.raises(MemoryError, match=r"300 samples .* 40 training examples need .* take the latest="):
        two.to_arviz(groups=["log_likelihood"])
    two.to_arviz(groups=["log_likelihood"], latest=1, X=X[:1])


def test_arviz_from_1_on_has_the_same_in_a_tree(two, monkeypatch):
    before = two.to_arviz()
    monkeypatch.setitem(sys.modules, "arviz", SimpleNamespace(__version__="1.3.0"))
    tree = two.to_arviz()
    assert isinstance(tree, xr.DataTree)
    assert set(tree.children) == ALL | PRIORS
    for group in tree.children:
        xr.testing.assert_identical(as_dataset(tree[group]), as_dataset(before[group]))


@pytest.mark.parametrize("temperature", [1.0, 0.2])
def test_the_leave_one_out_estimate_of_a_linear_model_is_the_one_that_is_known(temperature):
    """With known noise, by the posterior without each example; of a cold posterior it is another."""
    y = X @ [1.0, -1.0, 0.5] + 0.5 * np.random.default_rng(2).standard_normal(40)
    problem = hb.datasets.from_arrays(X, y, X[:5], y[:5], task="regression")
    sampling = hb.Partition(
        hb.Langevin(gamma=1.0), 0.3, hb.Posterior(prior=2.0, noise=0.5, temperature=temperature)
    )
    run = hb.train(
        problem, hb.MLP(()), sampling, 4000, 40, 64, samples=100, burn_in=1000, dtype="float64", record=1
    )
    design, known = np.column_stack([X, np.ones(40)]), 0.0
    for i in range(40):
        others = np.arange(40) != i
        V = np.linalg.inv(design[others].T @ design[others] / 0.25 + np.eye(4) / 4)
        mean = V @ design[others].T @ y[others] / 0.25
        known += stats.norm(design[i] @ mean, np.sqrt(0.25 + design[i] @ V @ design[i])).logpdf(y[i])
    found = arviz.loo(run.to_arviz(groups=["posterior", "log_likelihood"]))
    off = abs((found.elpd_loo if BEFORE else found.elpd) - known)
    assert off < 0.05 if temperature == 1.0 else off > 0.3


def test_arviz_draws_and_sums_up_what_it_is_given(two):
    one = regression_run()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of ArviZ and of Matplotlib, and Pareto's k of so few samples
        for data in (one.to_arviz(), two.to_arviz()):
            assert np.isfinite(arviz.summary(data, var_names=["sigma"])["mean"].astype(float)).all()
            (arviz.plot_ppc if BEFORE else arviz.plot_ppc_dist)(data)
        arviz.plot_loo_pit(one.to_arviz(), **({"y": "y"} if BEFORE else {}))
