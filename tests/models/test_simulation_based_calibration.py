"""Check sampling by simulation-based calibration.

Where θ and the noise are drawn from the prior, and data from them, the rank of what was drawn among samples
of the posterior given the data is uniform.

The prior of the noise has the variance v of the targets in it, IG(a, b v), which a run takes from its data; a
prior that follows the data cannot be drawn from before them. So v is held here. The log likelihood is among
the quantities, as the ranks of others are uniform among samples of the prior, too.
"""

import numpy as np
import pytest
from scipy import stats

import heatbath as hb
from heatbath.models.likelihood import Likelihood, draw_prior

NETWORK = hb.MLP((3,), "tanh")
SETS, SAMPLES, BINS = 512, 63, 16
X = np.linspace(-2, 2, 10)[:, None]
AT = np.array([[-1.0], [0.5], [3.0]])
PRIOR = (1.3, 0.7)  # of each layer
KNOWN = hb.Posterior(prior=PRIOR, noise=0.5)
SAMPLED = hb.Posterior(prior=PRIOR)


@pytest.fixture(autouse=True)
def hold_target_variance(monkeypatch):
    """Hold the variance of the targets that is in the prior of the noise."""
    monkeypatch.setattr("heatbath.models.likelihood.spread", lambda problem: np.full(problem.outputs, 4.0))


def stack(Y):
    """Return a problem with many data sets, each for a chain."""
    inputs = np.tile(X, (len(Y), 1, 1))
    return hb.datasets.Problem("drawn", "regression", inputs, Y, inputs[:, :0], Y[:, :0], ("x",), ("y",))


def draw_from_prior(posterior, seed):
    """Return θ and s² of all data sets, drawn from the prior."""
    return draw_prior(Likelihood(stack(np.zeros((SETS, len(X), 1))), posterior), NETWORK, SETS, seed)


def predict_outputs(theta, x):
    """Return the outputs of networks (..., parameters) at x, (..., examples)."""
    w, b, v, c = np.split(theta[..., None, :], [3, 6, 9], axis=-1)
    return np.sum(np.tanh(x * w + b) * v, axis=-1) + c[..., 0]


def quantities(theta, variance, y):
    """Return some functions of θ and s², by name; y are the data that θ and s² are compared with."""
    squares = ((y - predict_outputs(theta, X)) ** 2).sum(axis=-1)
    layers = {f"|θ{i}|²": (own**2).sum(axis=-1) for i, own in enumerate(np.split(theta, [6], axis=-1), 1)}
    said = {
        f"f({x:g})": f for x, f in zip(AT[:, 0], np.moveaxis(predict_outputs(theta, AT), -1, 0), strict=True)
    }
    return (
        said
        | layers
        | {"s²": variance, "likelihood": -0.5 * (len(X) * np.log(variance) + squares / variance)}
    )


def sample_posterior(posterior, Y, steps=10_000):
    """Return samples of θ (set, sample, parameter) and s² (set, sample); chains start at the prior."""
    sampling = hb.Partition(hb.Langevin(gamma=0.2), 0.2, posterior)
    run = hb.train(
        stack(Y), NETWORK, sampling, steps, len(X), SETS, samples=SAMPLES, burn_in=steps // 4, record=1,
        start=draw_from_prior(posterior, 9)[0], momenta="thermal", dtype="float64",
    )  # fmt: skip
    noise = run.data["sample_noise"] if posterior.noise == "sampled" else run.data["noise_now"]
    variance = noise.values[..., 0]
    return run.data["samples"].values, variance if variance.ndim > 1 else variance[:, None]


def rank_p_values(posterior, sample, seed=8):
    """Return p-values for uniform ranks of each quantity, by a chi-square test in 16 bins."""
    theta, variance = draw_from_prior(posterior, seed)
    noise = np.random.default_rng([seed, 1]).standard_normal((SETS, len(X)))
    Y = predict_outputs(theta, X) + np.sqrt(variance) * noise
    truth = quantities(theta, variance[:, 0], Y)
    found = quantities(*sample(Y[..., None]), Y[:, None])
    ranks = {name: (found[name] < truth[name][:, None]).sum(axis=1) for name in truth}
    if posterior.noise != "sampled":
        del ranks["s²"]
    counts = {name: np.bincount(r * BINS // (SAMPLES + 1), minlength=BINS) for name, r in ranks.items()}
    return {name: stats.chisquare(count).pvalue for name, count in counts.items()}


@pytest.mark.parametrize("posterior", [SAMPLED, KNOWN], ids=["sampled noise", "known noise"])
def test_ranks_among_samples_of_the_posterior_are_uniform(posterior):
    found = rank_p_values(posterior, lambda Y: sample_posterior(posterior, Y))
    assert min(found.values()) > 1e-3 / len(found)


def test_the_ranks_tell_a_cold_posterior_wrong_noise_and_samples_of_the_prior():
    cold = rank_p_values(
        SAMPLED, lambda Y: sample_posterior(hb.Posterior(prior=PRIOR, temperature=0.3), Y, 4000)
    )
    assert max(cold["f(-1)"], cold["f(3)"], cold["s²"]) < 1e-6
    loud = rank_p_values(KNOWN, lambda Y: sample_posterior(hb.Posterior(prior=PRIOR, noise=0.8), Y, 4000))
    assert max(loud["f(-1)"], loud["likelihood"]) < 1e-6

    def of_prior(Y):
        theta, variance = draw_prior(Likelihood(stack(Y), SAMPLED), NETWORK, SETS * SAMPLES, 1)
        return theta.reshape(SETS, SAMPLES, -1), variance.reshape(SETS, SAMPLES)

    blind = rank_p_values(SAMPLED, of_prior)
    assert min(blind["f(-1)"], blind["s²"]) > 1e-3
    assert blind["likelihood"] < 1e-6
