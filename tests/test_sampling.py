"""Test sampling from any density.

Laws are compared by z-scores over independent chains, with a limit of 4. A correct law exceeds it once in
16,000 times, and the seeds are fixed.
"""

import re
import subprocess
import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest

import heatbath as hb
from heatbath.diagnostics import mcmc
from heatbath.methods.schedules import Constant, Linear, SimulatedTempering
from heatbath.sampling import _Noise

GRID = np.linspace(-12, 12, 100_001)


def expected(function, U, tau):
    """Return the mean of a function of one coordinate in the law exp(-U/τ), by quadrature."""
    weight = np.exp(-U(GRID) / tau)
    return np.sum(function(GRID) * weight) / np.sum(weight)


def score(values, mean):
    """Return by how many standard errors a mean over chains is off."""
    means = values.reshape(len(values), -1).mean(axis=1)
    return abs(means.mean() - mean) / (means.std(ddof=1) / np.sqrt(len(means)))


class Normal:
    """A correlated normal law."""

    mean = np.array([1.0, -2.0, 0.5])
    covariance = np.array([[1.0, 0.6, 0.0], [0.6, 2.0, -0.3], [0.0, -0.3, 0.5]])
    precision = np.linalg.inv(covariance)

    @classmethod
    def log_density(cls, theta):
        return -0.5 * np.einsum("ci,ij,cj->c", theta - cls.mean, cls.precision, theta - cls.mean)

    @classmethod
    def gradient(cls, theta):
        return -(theta - cls.mean) @ cls.precision


def normal(**options):
    settings = {"start": np.zeros(3), "steps": 20} | options
    return hb.sample(Normal.log_density, Normal.gradient, **settings)


def well(x):
    return (x**2 - 1) ** 2


def wells(tau=0.5, h=0.35, **options):
    return hb.sample(
        lambda theta: -well(theta).sum(axis=1),
        lambda theta: -4 * theta * (theta**2 - 1),
        [1.0], hb.Langevin(1.0, tau), h, **{"steps": 1500, "chains": 1000} | options,
    )  # fmt: skip


def cosh(x):
    return 2 * np.log(np.cosh(x))


def cosh_gradient(theta):
    return -2 * np.tanh(theta)


def sample_bounded_gradients(word, tau=0.7, h=1.2, gamma=0.3, **options):
    """Sample a density with bounded gradients, which no stepsize makes infinite."""
    settings = {"steps": 1500, "chains": 200} | options
    method = hb.Langevin(gamma, tau, word)
    return hb.sample(lambda x: -cosh(x).sum(axis=1), cosh_gradient, np.zeros(4), method, h, **settings)


# Laws


@pytest.mark.parametrize("metropolis", [False, True])
@pytest.mark.parametrize("tau", [1.0, 0.5])
def test_a_correlated_normal_law_has_its_mean_and_covariance(tau, metropolis):
    method = hb.Langevin(gamma=1.0, tau=tau)
    result = normal(method=method, h=0.5, steps=800, chains=300, metropolis=metropolis)
    centred = result.samples - Normal.mean
    for i in range(3):
        assert score(centred[:, :, i], 0.0) < 4
        for j in range(i + 1):
            product = centred[:, :, i] * centred[:, :, j]
            assert score(product, tau * Normal.covariance[i, j]) < 4
    wrong = 1.0 if tau == 0.5 else 0.5  # the control: a temperature that is not the one
    assert score(centred[:, :, 0] ** 2, wrong) > 4


def test_the_weight_decay_is_a_prior_with_and_without_the_test():
    """It turns a constant density into N(0, τ/λ)."""
    for metropolis in (False, True):
        result = hb.sample(
            lambda theta: np.zeros(len(theta)), np.zeros_like, [0.0],
            hb.Langevin(1.0, 0.5, weight_decay=2.0), 0.4, 800, chains=400, metropolis=metropolis,
        )  # fmt: skip
        assert score(result.samples**2, 0.25) < 4
        assert score(result.samples**2, 0.5) > 4
        assert not result.log_density.any()


def test_large_steps_in_a_quartic_are_biased_and_the_metropolis_test_removes_it():
    mean = expected(well, well, 0.5)
    assert score(well(wells(metropolis=True).samples), mean) < 4
    assert score(well(wells(metropolis=False).samples), mean) > 6


@pytest.mark.parametrize("word", ["OBABO", "BAOAB", "ABOBA"])
def test_the_law_is_right_where_half_of_the_steps_are_refused(word):
    mean = expected(np.square, cosh, 0.7)
    result = sample_bounded_gradients(word, metropolis=True)
    assert 0.3 < result.acceptance.mean() < 0.7
    assert score(result.samples**2, mean) < 4
    assert score(sample_bounded_gradients(word).samples ** 2, mean) > 4


@pytest.mark.parametrize("word", ["OBABO", "BAOAB"])
def test_the_law_is_right_at_infinite_friction(word):
    """OBABO is then Hamiltonian Monte Carlo with one leapfrog step."""
    result = sample_bounded_gradients(word, gamma=np.inf, metropolis=True)
    assert 0.2 < result.acceptance.mean() < 0.8
    assert score(result.samples**2, expected(np.square, cosh, 0.7)) < 4


def test_a_wrong_gradient_costs_acceptance_and_not_the_law():
    def log_density(theta):
        return -cosh(theta).sum(axis=1)

    options = {"start": np.zeros(2), "h": 0.7, "steps": 2000, "chains": 200, "metropolis": True}
    right = hb.sample(log_density, cosh_gradient, **options)
    wrong = hb.sample(log_density, lambda theta: 0.5 * cosh_gradient(theta) + 0.3, **options)
    assert wrong.acceptance.mean() < right.acceptance.mean() - 0.05
    assert score(wrong.samples**2, expected(np.square, cosh, 1.0)) < 4


def test_small_steps_on_a_quadratic_are_accepted():
    """Which they would not be if the heat were among the errors: the control takes large ones."""
    result = normal(h=0.01, steps=500, chains=50, metropolis=True)
    assert result.acceptance.min() > 0.999
    assert normal(h=0.8, steps=500, chains=50, metropolis=True).acceptance.mean() < 0.98


def test_a_density_that_ends_somewhere_is_sampled_within_its_bounds():
    """The half normal law: outside, the log density is -inf, or not a number."""
    for outside in (-np.inf, np.nan):
        result = hb.sample(
            lambda theta, outside=outside: np.where(theta[:, 0] > 0, -0.5 * theta[:, 0] ** 2, outside),
            lambda theta: -theta, [1.0], h=0.5, steps=2000, chains=300, metropolis=True,
        )  # fmt: skip
        assert result.samples.min() > 0
        assert np.isfinite(result.log_density).all()
        assert score(result.samples, np.sqrt(2 / np.pi)) < 4


# Paths


def reference(partition, steps, seed=7, chains=3):
    """Return θ after every step, (chain, step, dimension)."""
    chain = hb.Reference(
        lambda theta, batch: -Normal.gradient(theta), np.zeros((chains, 3)), partition,
        rotated=False, momenta="thermal", seed=seed,
    )  # fmt: skip
    path = []
    for _ in range(steps):
        chain.advance(1)
        path.append(chain.state.theta.copy())
    return np.stack(path, axis=1)


@pytest.mark.parametrize(
    "method",
    [
        hb.Langevin(0.7, 0.5),
        hb.Langevin(0.7, 0.5, "ABOBA"),
        hb.Langevin(0.7, 0.5, "ABAOABA", weight_decay=0.3),
        hb.Langevin(0.7, Linear(1.0, 0.5, 10), "OBA"),
        hb.AdaptiveLangevin(0.5, 0.3, 0.1),
        hb.SGLD(0.3),
        hb.Adam(),
    ],
)
def test_the_path_is_that_of_the_reference(method):
    result = normal(method=method, h=0.1, chains=3, burn_in=0, seed=7)
    np.testing.assert_array_equal(result.samples, reference(hb.Partition(method, 0.1), 20))
    same = normal(method=hb.Partition(method, 0.1), chains=3, burn_in=0, seed=7)
    np.testing.assert_array_equal(same.samples, result.samples)
    assert result.acceptance is None


@pytest.mark.parametrize("word", ["BAOAB", "ABOBA", "OBABO", "ABAOABA"])
@pytest.mark.parametrize("gamma", [0.7, np.inf])
def test_the_path_with_the_test_is_that_of_the_reference_while_all_is_accepted(word, gamma):
    method = hb.Langevin(gamma, Constant(0.5), word, weight_decay=0.3)
    result = normal(method=method, h=1e-3, chains=3, burn_in=0, seed=7, metropolis=True)
    assert result.acceptance.tolist() == [1.0, 1.0, 1.0]
    np.testing.assert_array_equal(result.samples, reference(hb.Partition(method, 1e-3), 20))


def test_noise_that_is_drawn_ahead_is_the_same():
    noise = _Noise(5, 3, 200)
    assert 1 < noise.steps_ahead < 60
    for step in range(60):
        np.testing.assert_array_equal(noise(step, 1), hb.noise.normals(5, 0, 1, np.arange(3), step, 0, 200))
        drawn = hb.noise.uniforms(5, hb.noise.METROPOLIS, 0, np.arange(3), step, 0, 1)[:, 0]
        np.testing.assert_array_equal(noise.uniforms(step), drawn)


@pytest.mark.parametrize("metropolis", [False, True])
def test_the_seed_determines_everything_and_a_chain_does_not_depend_on_the_others(metropolis):
    options = {"h": 0.8, "metropolis": metropolis}
    first, again = normal(seed=3, **options), normal(seed=3, **options)
    np.testing.assert_array_equal(first.samples, again.samples)
    assert (first.samples != normal(seed=4, **options).samples).any()
    few = normal(seed=3, chains=2, **options)
    np.testing.assert_allclose(few.samples, first.samples[:2], rtol=1e-12, atol=1e-12)
    assert len({chain.tobytes() for chain in first.samples}) == 4


def test_samples_come_after_the_burn_in_and_every_so_many_steps():
    every = normal(burn_in=0, seed=7)
    some = normal(burn_in=5, thin=4, seed=7)
    assert some.steps.tolist() == [9, 13, 17]
    np.testing.assert_array_equal(some.samples, every.samples[:, some.steps - 1])
    assert normal().steps.tolist() == list(range(11, 21))
    for result in (every, some, normal(metropolis=True, h=0.9)):
        flat = result.samples.reshape(-1, 3)
        np.testing.assert_allclose(result.log_density.ravel(), Normal.log_density(flat), rtol=1e-12)


def test_starts_and_momenta():
    starts = np.arange(6.0).reshape(2, 3)
    result = normal(start=starts, method=hb.Langevin(1.0, 0.0), h=1e-9, momenta="zero")
    np.testing.assert_allclose(result.samples[:, -1], starts, atol=1e-7)
    assert (normal(momenta="zero").samples != normal().samples).any()
    assert hb.sample(gradient=Normal.gradient, start=[0, 0, 0], steps=4).log_density is None


def test_torch_takes_the_same_gradient():
    torch = pytest.importorskip("torch")
    mean, precision = torch.tensor(Normal.mean), torch.tensor(Normal.precision)

    def log_density(theta):
        assert theta.dtype == torch.float64
        return -0.5 * torch.einsum("ci,ij,cj->c", theta - mean, precision, theta - mean)

    for metropolis in (False, True):
        options = {"start": np.zeros(3), "h": 0.6, "steps": 40, "metropolis": metropolis}
        with torch.no_grad():
            by_torch = hb.sample(log_density, **options)
        by_hand = normal(**options)
        np.testing.assert_allclose(by_torch.samples, by_hand.samples, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(by_torch.log_density, by_hand.log_density, rtol=1e-9, atol=1e-9)


def test_torch_is_loaded_only_for_its_gradients_and_named_where_it_is_missing():
    code = (
        "import sys; sys.modules['torch'] = None; import heatbath as hb\n"
        "print(hb.sample(None, lambda x: -x, [0.0], steps=20))\n"
        "hb.sample(lambda x: -x.sum(axis=1), start=[0.0])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("Sampled(4 chains x 10 draws x 1 dimensions")
    assert "pip install 'heatbath[torch]', or give the gradient" in done.stderr


# What is made of the samples


def test_rhat_and_ess_are_those_of_arviz():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        arviz = pytest.importorskip("arviz")
    result = wells(tau=0.2, h=0.2, chains=4, steps=2001)  # crosses between the wells now and then
    data = result.to_arviz()
    assert data.posterior["theta"].dims == ("chain", "draw", "dimension")
    assert data.posterior["draw"].values.tolist() == result.steps.tolist()
    np.testing.assert_array_equal(data.posterior["theta"], result.samples)
    np.testing.assert_array_equal(data.sample_stats["lp"], result.log_density)
    for samples in (result.samples, normal(steps=500, h=0.7).samples, normal(steps=500, h=0.05).samples):
        for trace in np.moveaxis(samples, 2, 0):
            assert mcmc.rhat(trace) == pytest.approx(float(arviz.rhat(trace)), rel=1e-9)
            assert mcmc.ess(trace) == pytest.approx(float(arviz.ess(trace)), rel=0.03)
    assert result.rhat().shape == result.ess().shape == (1,)


def test_rhat_and_ess_detect_chains_that_disagree_or_stand_still():
    agree = np.random.default_rng(0).standard_normal((4, 500))
    assert mcmc.rhat(agree) < 1.01
    assert 1500 < mcmc.ess(agree) < 2600
    apart = agree + 3 * np.arange(4)[:, None]
    assert mcmc.rhat(apart) > 1.5
    assert mcmc.ess(apart) < 12
    assert mcmc.rhat(agree * np.array([[1], [1], [1], [9]])) > 1.1  # only the spreads differ
    assert mcmc.rhat(np.arange(4.0)[:, None] * np.ones(50)) == np.inf
    assert np.isnan(mcmc.rhat(np.ones((4, 50))))
    assert np.isnan(mcmc.ess(np.ones((4, 50))))
    with pytest.raises(ValueError, match="at least 4 records of each chain, got 3"):
        mcmc.rhat(agree[:, :3])


def test_the_text_of_a_result_has_the_worst_of_all_coordinates():
    result = normal(steps=400, metropolis=True, h=0.5)
    rhat, ess = result.rhat().max(), result.ess().min()
    text = f"acceptance {result.acceptance.mean():.2f}, R-hat at most {rhat:.2f}, ESS at least {ess:.0f}"
    assert repr(result) == f"Sampled(4 chains x 200 draws x 3 dimensions, {text})"
    assert repr(normal(steps=4)) == "Sampled(4 chains x 2 draws x 3 dimensions)"
    large = replace(result, samples=np.broadcast_to(0.0, (100, 1000, 100)), acceptance=None)
    assert repr(large) == "Sampled(100 chains x 1000 draws x 100 dimensions)"
    with pytest.raises(AttributeError):
        result.samples = None


def test_without_arviz_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(ModuleNotFoundError, match=r"to_arviz needs ArviZ: pip install 'heatbath\["):
        normal().to_arviz()


# Refusals


def test_a_chain_that_is_not_finite_any_more_is_an_error_with_its_step():
    with pytest.raises(FloatingPointError, match=r"chain \d+ at step \d+: theta is .* smaller h, or metro"):
        wells(h=0.8, chains=10)
    huge = np.zeros((3, 2))
    huge[2, 1] = -1e308
    with pytest.raises(FloatingPointError, match=r"chain 2 at step 1: theta .* -inf in coordinate 1\."):
        hb.sample(None, lambda theta: theta, huge, hb.SGD(), h=100.0)

    def ends(theta):
        return np.where(theta[:, 0] < 1, 0.0, -np.inf)

    start = np.array([[0.0], [0.9]])
    with pytest.raises(FloatingPointError, match=r"chain 1 at step 1: log_density\(theta\) is not finite"):
        hb.sample(ends, np.ones_like, start, hb.SGD(), h=0.5, steps=1)
    with pytest.raises(ValueError, match=r"chain 1 at step 0: log_density.*Choose a start where"):
        hb.sample(ends, np.ones_like, start + 0.5)
    with pytest.raises(ValueError, match=r"chain 0 at step 0: gradient\(theta\).*got nan \(and so in 1 more"):
        hb.sample(None, lambda theta: theta * np.nan, start)


METROPOLIS = [
    ({"method": hb.Langevin(1.0, 1.0, "BAOA")}, "must be a palindrome such as 'BAOAB', got 'BAOA'"),
    ({"method": hb.Langevin(1.0, 0.0)}, "tau must be > 0, got 0.0"),
    ({"method": hb.Langevin(1.0, Linear(1, 2, 9))}, "tau must be constant, got Linear"),
    ({"method": hb.Langevin(1.0, SimulatedTempering([1.0, 2.0]))}, "tau must be constant, got Simulated"),
    ({"method": hb.Langevin(Linear(1, 2, 9), 1.0)}, "gamma must be constant"),
    ({"method": hb.Langevin(1.0, 1.0, weight_decay=[0.1, 0.2])}, "weight_decay must be constant"),
    ({"h": Linear(1, 2, 9)}, "h must be constant"),
    ({"method": hb.AdaptiveLangevin(1.0)}, "it needs Langevin, with the letters A, B and O, got Adaptive"),
    ({"method": hb.LaLa(0.1, 1.0, 1.0)}, "it needs one part, and there are 2"),
    ({"log_density": None}, "it needs log_density"),
]


@pytest.mark.parametrize(("options", "message"), METROPOLIS)
def test_the_metropolis_test_is_refused_where_it_is_not_exact(options, message):
    settings = {"log_density": Normal.log_density, "gradient": Normal.gradient, "start": [0.0] * 3}
    with pytest.raises(ValueError, match=f"metropolis=True would not be exact: .*{re.escape(message)}"):
        hb.sample(**settings | options, metropolis=True)


def test_all_mistakes_are_reported_at_once():
    method = hb.Langevin(Linear(1, 2, 9), 0.0, "OBA")
    with pytest.raises(
        ValueError, match=r"log_density; h must .*; .* palindrome .*; gamma must .*; tau must"
    ):
        hb.sample(None, Normal.gradient, [0.0] * 3, method, Linear(1, 2, 9), metropolis=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gradient": None, "log_density": None}, "needs log_density, gradient or both, got neither"),
        ({"gradient": 3.0}, "gradient must be a function of theta"),
        ({"log_density": "x"}, "log_density must be a function of theta"),
        ({"start": None}, "sample needs start"),
        ({"start": 1.0}, r"start must be a vector or an array \(chains, dimension\), got shape \(\)"),
        ({"start": []}, r"got shape \(0,\)"),
        ({"start": np.zeros((1, 2, 3))}, r"got shape \(1, 2, 3\)"),
        ({"start": [[0.0], [0.0, 1.0]]}, "start must be a vector or an array"),
        ({"start": ["a"]}, "start must be an array of real numbers"),
        ({"start": [1j]}, "start must be an array of real numbers, got ndarray of complex128"),
        ({"start": [0.0, np.nan, 0.0]}, "start must be finite"),
        ({"start": np.zeros((2, 3)), "chains": 3}, "start has 2 rows, one for each chain, and chains=3"),
        ({"chains": 0}, "chains must be a whole number >= 1"),
        ({"chains": 2.0}, "chains must be a whole number >= 1"),
        ({"steps": 0}, "steps must be a whole number >= 1"),
        ({"burn_in": -1}, "burn_in must be a whole number >= 0"),
        ({"thin": 0}, "thin must be a whole number >= 1"),
        ({"burn_in": 20}, "there would be no sample: steps=20, burn_in=20, thin=1"),
        ({"seed": -1}, "seed must be a whole number >= 0"),
        ({"seed": 0.5}, "seed must be a whole number >= 0"),
        ({"metropolis": 1}, "metropolis must be True or False, got 1"),
        ({"momenta": "hot"}, "momenta must be one of 'thermal', 'zero', got 'hot'"),
        ({"h": 0.0}, "h must be > 0"),
        ({"h": [0.1, 0.2]}, "h: a list is an axis of a sweep"),
        ({"method": "BAOAB"}, r"method must be a method such as Langevin\(.*, or a Partition, got 'BAOAB'"),
        ({"method": hb.Langevin(1.0)}, r"say tau; tau=1 samples exp\(log_density\)"),
        (
            {"method": hb.Partition(hb.Langevin(1.0, 1.0), 0.1), "h": 0.1},
            "has its own stepsize, h=0.1: leave",
        ),
        ({"method": hb.LOL()}, "θ is one part, and it has 2"),
        ({"method": hb.Partition(hb.Langevin(1.0), 0.1, hb.Posterior())}, "leave out the posterior"),
        ({"method": hb.Langevin(1.0, SimulatedTempering([1.0, 2.0]))}, "of all temperatures together"),
        ({"method": hb.Frozen()}, "it moves nothing"),
        (
            {"gradient": lambda theta: theta[:, 0]},
            r"gradient.* must be of shape \(4, 3\), .*got \(4,\)",
        ),
        (
            {"gradient": lambda theta: None},
            r"gradient.* must be an array of real numbers, got NoneType",
        ),
        ({"log_density": lambda theta: 0.0}, r"must be of shape \(4,\), one number for each chain; got \(\)"),
        ({"log_density": lambda theta: theta.sum(axis=1) * 1j}, "real numbers, got ndarray of complex128"),
    ],
)
def test_bad_arguments_are_refused_with_an_explanation(options, message):
    settings = {"log_density": Normal.log_density, "gradient": Normal.gradient, "start": [0.0] * 3}
    with pytest.raises((TypeError, ValueError), match=message):
        hb.sample(**settings | {"steps": 20} | options)


def test_without_a_gradient_the_density_must_be_torch_s():
    torch = pytest.importorskip("torch")
    for log_density, got in (
        (lambda theta: np.zeros(4), "ndarray of float64"),
        (lambda theta: torch.zeros(4), "Tensor of torch.float32"),
    ):
        with pytest.raises(TypeError, match=f"must be made of torch operations on theta.*got {got}"):
            hb.sample(log_density, start=[0.0])
    with pytest.raises(ValueError, match=r"must be of shape \(4,\)"):
        hb.sample(lambda theta: -(theta**2).sum(), start=[0.0])
