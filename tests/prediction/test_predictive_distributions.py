"""Mixtures of laws against scipy, and what a run predicts of new data."""

import mpmath
import numpy as np
import pytest
from scipy import special, stats

import heatbath as hb
from heatbath.prediction import Mixture
from heatbath.prediction.predictive_distributions import AT_ONCE, NORMAL, POISSON, student


def mixture(samples=7, examples=5, outputs=2, seed=0):
    rng = np.random.default_rng(seed)
    return Mixture(rng.standard_normal((samples, examples, outputs)), rng.uniform(0.2, 2, (samples, outputs)))


def with_varying_deviations(law):
    """Return the law with a deviation for each example."""
    factors = np.linspace(0.5, 2, law.means.shape[1])[:, None]
    return Mixture(law.means, law.deviations[:, None] * factors, law.law)


def poisson_mixture(samples=7, examples=5, outputs=2):
    """Return a mixture of Poisson laws."""
    rates = np.exp(np.random.default_rng(0).normal(1, 1.5, (samples, examples, outputs)))
    return Mixture(rates, np.sqrt(rates), POISSON)


def student_mixture(degrees=9.0, **sizes):
    """Return a mixture of Student laws."""
    law = mixture(**sizes)
    return Mixture(law.means, law.deviations, student(degrees))


LAWS = {
    "normal": (mixture(), stats.norm(mixture().means, mixture().deviations[:, None])),
    "normal, by example": (
        with_varying_deviations(mixture()),
        stats.norm(mixture().means, with_varying_deviations(mixture()).deviations),
    ),
    "Student": (student_mixture(9.0), stats.t(9, mixture().means, mixture().deviations[:, None])),
}


@pytest.mark.parametrize(("law", "parts"), LAWS.values(), ids=LAWS)
def test_density_distribution_and_moments_are_those_of_the_components(law, parts):
    y = np.random.default_rng(1).standard_normal((5, 2))
    np.testing.assert_allclose(law.log_density(y), np.log(parts.pdf(y).mean(axis=0)), rtol=1e-12)
    np.testing.assert_allclose(law.log_likelihood(y), parts.logpdf(y), rtol=1e-12)
    np.testing.assert_allclose(law.cdf(y), parts.cdf(y).mean(axis=0), rtol=1e-12)
    drawn = np.concatenate([law.draw(seed) for seed in range(4000)])
    np.testing.assert_allclose(drawn.mean(axis=0), law.mean, atol=0.05)
    np.testing.assert_allclose(drawn.std(axis=0), law.sd, rtol=0.02)


@pytest.mark.parametrize("law", [law for law, _ in LAWS.values()], ids=LAWS)
def test_quantiles_are_where_the_distribution_has_their_share(law):
    shares = [0.001, (1 - 0.9) / 2, 0.5, (1 + 0.9) / 2, 0.999]
    found = law.quantiles(shares)
    assert found.shape == (5, 5, 2)
    for share, values in zip(shares, found, strict=True):
        np.testing.assert_allclose(law.cdf(values), share, atol=1e-9)
    low, high = law.interval(0.9)
    np.testing.assert_array_equal(low, found[1])
    np.testing.assert_array_equal(high, found[3])


SHARES = [1e-300, 1e-17, 1e-6, 0.05, 0.3, 0.5, 0.75, 0.95, 1 - 1e-9, 1 - 2.0**-53]


def draw_means_and_scales():
    """Return four mixtures of 40 components each, from narrow to very wide."""
    rng = np.random.default_rng(3)
    return rng.normal(0, [[0.1], [1.0], [10.0], [1e4]], (4, 40)), np.exp(0.3 * rng.standard_normal((4, 40)))


WIDE, SCALES = draw_means_and_scales()
EVEN = np.ones((4, 40))
STRANGE = {
    "usual": (WIDE, SCALES),
    "far apart": (np.where(np.arange(40) % 2, -1e6, 1e6) * EVEN, EVEN),
    "an outlier": (np.where(np.arange(40) == 7, 1e9, WIDE), EVEN),
    "equal": (3 * EVEN, 0.1 * EVEN),
    "nearly equal": (3 + 1e-14 * WIDE, 0.1 * EVEN),
    "spikes": (WIDE, np.where(np.arange(40) % 3, 1e-10, 1.0) * EVEN),
    "some without noise": (np.round(WIDE, 1), np.where(np.arange(40) % 4, 0.0, 0.5) * EVEN),
    "none with noise": (np.round(WIDE, 1), 0 * EVEN),
    "some points without": (WIDE, np.array([[0.0], [1.0], [0.0], [2.0]]) * EVEN),
    "all at 0 without noise, but one": (0 * EVEN, np.where(np.arange(40) == 0, 1.0, 0.0) * EVEN),
    "one component": (WIDE[:, :1], EVEN[:, :1]),
    "huge": (1e160 * WIDE, 1e160 * EVEN),
    "tiny": (1e-300 * WIDE, 1e-300 * EVEN),
}


def mixture_cdf(cdf, means, scales, y):
    """Return the share of a mixture below each y, component by component.

    Where a scale is 0, that is the share of values up to y.
    """
    with np.errstate(all="ignore"):
        noisy = cdf((y[:, None] - means) / scales)
    return np.where(scales > 0, noisy, y[:, None] >= means).mean(axis=1)


def with_counted_cdf(law):
    """Return the law, and a list of how many numbers each call of its cdf gets."""
    sizes = []

    def cdf(y, mean, scale):
        sizes.append(mean.size)
        return law.cdf(y, mean, scale)

    return law._replace(cdf=cdf), sizes


@pytest.mark.parametrize("degrees", [np.inf, 0.5, 1.0, 4.0, 1e6])
@pytest.mark.parametrize(("means", "scales"), STRANGE.values(), ids=STRANGE)
def test_a_quantile_is_where_the_share_is_reached_and_not_before(means, scales, degrees):
    kind, cdf = (NORMAL, special.ndtr) if np.isinf(degrees) else (student(degrees), stats.t(degrees).cdf)
    shares = [share for share in SHARES if degrees > 1 or 1e-20 < share < 1 - 1e-15]  # in range of floats
    kind, sizes = with_counted_cdf(kind)
    found = Mixture(means.T[..., None], scales.T[..., None], kind).quantiles(shares)[..., 0].T
    assert len(sizes) < 120 * len(shares)
    for y, mean, scale in zip(found, means, scales, strict=True):
        near = 1e-12 * min(scale[scale > 0], default=0.0) + 8 * np.spacing(np.abs(y))
        assert (mixture_cdf(cdf, mean, scale, y - near) <= np.multiply(shares, 1 + 1e-11)).all()
        assert (mixture_cdf(cdf, mean, scale, y + near) >= np.multiply(shares, 1 - 1e-11)).all()


@pytest.mark.parametrize("rates", [0.0, 1e-9, 0.3, 40.0, [0.0, 0.1, 3.0], [0.2, 5e3], [1e5, 1.0, 1e5]])
def test_quantiles_of_counts_are_those_of_a_table(rates):
    rates = np.atleast_1d(rates)
    law = Mixture(rates[:, None, None], np.sqrt(rates)[:, None, None], POISSON)
    table = stats.poisson(rates[:, None]).cdf(np.arange(2 * max(rates) + 100)).mean(axis=0)
    least = [np.flatnonzero(table >= share)[0] for share in SHARES[:-1]]
    np.testing.assert_array_equal(law.quantiles(SHARES[:-1]).ravel(), least)


def test_a_share_that_is_reached_exactly_is_reached():
    law = Mixture(np.array([[[2.5]]]), np.sqrt([[[2.5]]]), POISSON)
    np.testing.assert_array_equal(law.quantiles(stats.poisson(2.5).cdf(range(8))).ravel(), range(8))
    law = Mixture(np.arange(10.0)[::-1, None, None], np.zeros((10, 1)))
    np.testing.assert_array_equal(law.quantiles(np.arange(1, 10) / 10).ravel(), range(9))
    np.testing.assert_array_equal(law.quantiles(np.arange(1, 10) / 10 + 1e-9).ravel(), range(1, 10))


@pytest.mark.parametrize("degrees", [0.3, 1.0, 2.0, 4.0, 30.0, 1e6])
def test_quantiles_of_students_law_are_exact_at_both_ends_and_in_the_middle(degrees):
    for share in (1e-40, 1e-9, 0.2, 0.4999, 0.5):
        t = student(degrees).standard(share)
        with mpmath.workdps(80):
            x = degrees / (degrees + mpmath.mpf(t) ** 2)
            reached = mpmath.betainc(degrees / 2, 0.5, 0, x, regularized=True) / 2
            assert abs(reached / share - 1) < 1e-13
        if share > 1e-10:
            assert student(degrees).standard(1 - share) == pytest.approx(-t, rel=1e-6)
    assert student(0.1).standard(1e-300) == -np.inf


@pytest.mark.parametrize("kind", [NORMAL, student(4.0), POISSON])
def test_quantiles_of_many_points_read_all_components_a_few_times_and_some_at_a_time(kind):
    rng, (kind, sizes) = np.random.default_rng(0), with_counted_cdf(kind)
    means = np.exp(rng.normal(3, 0.5, (1, 1500, 1)) + 0.1 * rng.standard_normal((200, 1500, 1)))
    Mixture(means, np.sqrt(means), kind).quantiles(0.05)
    assert sum(sizes) < 7 * means.size
    assert max(sizes) <= AT_ONCE < means.size


def test_points_that_are_no_numbers_have_no_quantiles_and_others_have_theirs():
    law = mixture(outputs=1)
    means = law.means.copy()
    means[2, 3] = np.nan
    for kind in (NORMAL, student(3.0), POISSON):
        found = Mixture(np.abs(means), law.deviations, kind).quantiles([0.1, 0.5])
        assert np.isnan(found[:, 3]).all()
        whole = Mixture(np.abs(law.means), law.deviations, kind).quantiles([0.1, 0.5])
        np.testing.assert_array_equal(np.delete(found, 3, axis=1), np.delete(whole, 3, axis=1))


def test_counts_have_the_law_of_the_components():
    law, y = poisson_mixture(), np.random.default_rng(1).poisson(4.0, (5, 2))
    parts = stats.poisson(law.means)
    np.testing.assert_allclose(law.log_density(y), np.log(parts.pmf(y).mean(axis=0)), rtol=1e-12)
    np.testing.assert_allclose(law.log_likelihood(y), parts.logpmf(y), rtol=1e-12)
    np.testing.assert_allclose(law.cdf(y), parts.cdf(y).mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(law.cdf(y + 0.5), law.cdf(y), rtol=1e-12)
    assert (law.cdf(np.full((5, 2), -0.5)) == 0).all()
    assert (law.log_density(y + 0.5) == -np.inf).all()
    drawn = np.concatenate([law.draw(seed) for seed in range(4000)])
    np.testing.assert_allclose(drawn.mean(axis=0), law.mean, rtol=0.05)
    np.testing.assert_allclose(drawn.std(axis=0), law.sd, rtol=0.05)
    assert (drawn == np.floor(drawn)).all()


def test_quantiles_of_counts_are_the_least_that_have_the_share():
    law, shares = poisson_mixture(), [0.001, 0.05, 0.5, 0.95, 0.999]
    for share, values in zip(shares, law.quantiles(shares), strict=True):
        assert (values == np.floor(values)).all()
        assert (law.cdf(values) >= share).all()
        assert (law.cdf(values - 1) < share).all()
    low, high = law.interval(0.9)
    assert (law.cdf(high) - law.cdf(low - 1) >= 0.9).all()


def test_rates_without_end_have_a_law_too():
    law = Mixture(np.full((3, 2, 1), np.exp(80.0)), np.full((3, 2, 1), np.exp(40.0)), POISSON)
    np.testing.assert_allclose(law.quantiles([0.1, 0.9]), np.exp(80.0), rtol=1e-10)
    np.testing.assert_allclose(law.draw(), np.exp(80.0))
    for rate in (0.99e12, 1.01e12):  # on both sides of where a normal law takes over
        law = Mixture(np.full((1, 1, 1), rate), np.full((1, 1, 1), np.sqrt(rate)), POISSON)
        for share in (0.05, 0.5, 0.95):
            y = np.array([[rate + np.round(stats.norm.ppf(share) * np.sqrt(rate))]])
            assert law.cdf(y).item() == pytest.approx(share, abs=2e-6)
            assert law.quantiles(share).item() == pytest.approx(y.item(), abs=10)


@pytest.mark.parametrize(
    "make",
    [mixture, student_mixture, poisson_mixture, lambda **sizes: with_varying_deviations(mixture(**sizes))],
)
def test_a_law_in_pieces_is_the_same(make, monkeypatch):
    law, y = make(examples=11), np.zeros((11, 2))

    def all_of_it():
        return law.log_density(y), law.log_likelihood(y), law.cdf(y), law.quantiles([0.1, 0.9])

    whole = all_of_it()
    monkeypatch.setattr("heatbath.prediction.predictive_distributions.AT_ONCE", 30)
    for one, other in zip(whole, all_of_it(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_without_noise_the_law_is_of_the_networks_values():
    law = Mixture(np.array([[[0.0]], [[1.0]], [[2.0]]]), np.zeros((3, 1)))
    assert law.sd.item() == pytest.approx(np.sqrt(2 / 3))
    assert law.cdf([0.5]).item() == pytest.approx(1 / 3)
    assert law.cdf([1.0]).item() == pytest.approx(2 / 3)  # of 1 or less
    assert law.quantiles(0.5).item() == pytest.approx(1.0, abs=1e-6)
    with pytest.raises(ValueError, match="no density"):
        law.log_density([0.5])


@pytest.mark.parametrize("shares", [0.0, 1.0, [0.5, 1.5], float("nan")])
def test_shares_that_are_none_are_refused(shares):
    with pytest.raises(ValueError, match="shares"):
        mixture().quantiles(shares)


def test_data_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"\(examples, outputs\) = \(5, 2\)"):
        mixture().cdf(np.zeros((5, 3)))


@pytest.fixture(scope="module")
def run():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (120, 1))
    Y = np.column_stack([np.sin(2 * X[:, 0]) * 10 + rng.standard_normal(120), X[:, 0]])
    Y[:, 1] += 0.05 * rng.standard_normal(120)
    problem = hb.datasets.from_arrays(X, Y, X[:20], Y[:20], task="regression", standardise=True)
    sampling = hb.LaLa(h=0.2, gamma=1.0, posterior=hb.Posterior())
    return hb.train(
        problem, hb.MLP((10,), "tanh"), sampling, 6000, 120, 8, samples=30, burn_in=3000, average=X[:5]
    )


def test_predictions_of_a_posterior_are_of_data_in_the_users_units(run):
    X = np.linspace(-1.5, 1.5, 9)[:, None]
    said, law = run.predict(X), run.predictive(X)
    np.testing.assert_allclose(said.mean, law.mean)
    np.testing.assert_allclose(said.sd, law.sd)
    np.testing.assert_allclose(np.sqrt(said.noise), [1.0, 0.05], rtol=0.25)
    assert (said.variance > said.noise).all()
    np.testing.assert_allclose(law.interval(0.9)[1] - law.interval(0.9)[0], 2 * 1.645 * law.sd, rtol=0.1)
    for over in ("chains", "steps"):
        other = run.predict(X, over=over) if over == "chains" else run.predict(over=over)
        np.testing.assert_allclose(other.noise, said.noise, rtol=0.3)
    latest = run.predictive(X, latest=1)
    assert latest.means.shape == (8, 9, 2)


def test_known_noise_is_added_as_it_was_given():
    X = np.linspace(-1, 1, 30)[:, None]
    problem = hb.datasets.from_arrays(X, 5 * X[:, 0], task="regression", standardise=True)
    sampling = hb.LaLa(h=0.2, gamma=1.0, posterior=hb.Posterior(noise=0.7))
    run = hb.train(problem, hb.MLP((3,)), sampling, 200, samples=5)
    assert run.predict(X).noise == pytest.approx(0.49)
    np.testing.assert_allclose(run.predictive(X).deviations, 0.7)


def test_without_a_posterior_the_spread_is_that_of_the_networks():
    X = np.linspace(-1, 1, 30)[:, None]
    problem = hb.datasets.from_arrays(X, 5 * X[:, 0], task="regression")
    run = hb.train(problem, hb.MLP((3,)), hb.LaLa(0.2, 1.0, 1e-3), 200, chains=3, samples=5)
    said = run.predict(X)
    assert said.noise is None
    np.testing.assert_allclose(said.sd, run.predictive(X).sd)


def test_classes_have_no_such_law():
    problem = hb.datasets.spirals(n_train=20, n_test=5)
    run = hb.train(problem, hb.MLP((3,)), hb.AdLaLa(), 20, samples=2)
    with pytest.raises(ValueError, match="binary"):
        run.predictive([[0.0, 0.0]])
