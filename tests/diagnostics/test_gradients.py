"""Gradients, their noise, and what it heats."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

import heatbath as hb
from heatbath import diagnostics as d
from heatbath.diagnostics.gradients import gradient_moments
from heatbath.models.likelihood import Likelihood
from tests.diagnostics.linear import problem_of
from tests.optional import optional
from tests.runs import SMALL

torch = optional("torch")


def torch_gradients(problem, network, theta):
    """Return the gradient of every example's loss by autograd, (data, parameters)."""
    module = network.to_torch(theta, problem.inputs, problem.outputs)
    x, y = (torch.tensor(a[0]) for a in (problem.X_train, problem.Y_train))
    found = []
    for row, target in zip(module(x), y, strict=True):
        loss = {
            "binary": lambda z, y: torch.nn.functional.binary_cross_entropy_with_logits(z, y),
            "classes": lambda z, y: torch.nn.functional.cross_entropy(z, y[0].long()),
            "regression": lambda z, y: 0.5 * (z - y).square().sum(),
            "counts": lambda z, y: (z.exp() - y * z).sum(),
        }[problem.task](row, target)
        found.append(
            torch.cat([g.ravel() for g in torch.autograd.grad(loss, module.parameters(), retain_graph=True)])
        )
    return torch.stack(found).numpy()


def weighted(problem):
    """Return a problem with weights that are 0.2 to 1.8 times their mean."""
    weights = 3 * np.linspace(0.2, 1.8, problem.X_train.shape[1])
    return replace(problem, weights_train=weights[None])


@pytest.mark.parametrize("task", ["binary", "classes", "regression", "counts"])
@pytest.mark.parametrize("network", [hb.MLP((5, 4), "tanh"), hb.MLP((5,)), hb.MLP((), "identity")])
def test_gradients_and_their_squares_are_those_of_autograd(task, network, monkeypatch):
    problem = problem_of(task, n=9)
    size = network.parameters(problem.inputs, problem.outputs)
    theta = np.random.default_rng(1).standard_normal(size)
    single = torch_gradients(problem, network, theta)
    for at_once in (10_000, 4):
        monkeypatch.setattr("heatbath.diagnostics.gradients.ROWS", at_once)
        mean, square = gradient_moments(network, theta, Likelihood(problem), 0)
        np.testing.assert_allclose(mean, single.mean(axis=0), rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(square, (single**2).mean(axis=0), rtol=1e-10, atol=1e-12)
        mean, square = gradient_moments(network, theta, Likelihood(weighted(problem)), 0)
        counted = np.linspace(0.2, 1.8, 9)[:, None] * single
        np.testing.assert_allclose(mean, counted.mean(axis=0), rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(square, (counted**2).mean(axis=0), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("batch", "problem"),
    [*((batch, problem_of("binary")) for batch in (1, 2, 5, 6)), (2, weighted(problem_of("binary")))],
)
def test_gradient_noise_is_the_variance_over_all_mini_batches_there_are(batch, problem):
    """Brute force: the gradient on every subset of 6 data, none left out."""
    network = hb.MLP((4,), "tanh")
    run = hb.train(problem, network, hb.AdLaLa(h=0.1), 30, batch, chains=2, dtype="float64")
    found = d.gradient_noise(run)
    assert found.dims == ("chain", "part")
    assert found["part"].values.tolist() == ["hidden", "output"]
    for chain in range(2):
        single = torch_gradients(problem, network, run.theta[chain])
        if problem.weights_train is not None:
            single = problem.relative_weights("train")[0, :, None] * single
        means = [single[list(chosen)].mean(axis=0) for chosen in itertools.combinations(range(6), batch)]
        variance = np.var(means, axis=0)
        expected = [variance[:16].mean(), variance[16:].mean()]
        np.testing.assert_allclose(found.sel(chain=chain), expected, rtol=1e-9, atol=1e-20)


def test_gradient_noise_of_a_chain_is_that_of_its_own_data():
    problem = hb.datasets.spirals(n_train=50, n_test=10, draws=2)
    run = hb.train(problem, SMALL, hb.LOL(), 5, 10, chains=2, start=SMALL.start(2, 1, [0], 0)[0])
    first, second = (
        np.mean(np.subtract(b, a**2)) * (1 / 10 - 1 / 50) * 50 / 49
        for draw in (0, 1)
        for a, b in [gradient_moments(SMALL, run.theta[draw], Likelihood(problem), draw)]
    )
    sizes = np.array([60, 21]) / 81
    np.testing.assert_allclose(d.gradient_noise(run).values @ sizes, [first, second], rtol=1e-6)


@pytest.mark.parametrize("word", ["BAOAB", "BAOA", "OBABO", "ABOBA"])
@pytest.mark.parametrize("gamma", [0.3, 5.0, math.inf])
def test_gradient_noise_heats_langevin_positions_by_the_formula(word, gamma):
    """Against the exact law on a quadratic, at two τ: what is added does not depend on it."""
    h, k, noise = 0.7, 1.3, 0.4
    for tau in (0.0, 0.2):
        partition = hb.Partition(hb.Langevin(gamma, tau, word=word), h)
        with_noise = hb.quadratic.covariance(partition, k, gradient_noise=math.sqrt(noise))[0, 0]
        without = hb.quadratic.covariance(partition, k)[0, 0]
        assert k * (with_noise - without) == pytest.approx(d.gradient_heating(h, gamma, noise, k), rel=1e-9)
    small = d.gradient_heating(1e-3, 1.0, noise)
    assert small == pytest.approx(1e-3 * noise / (2 * 1.0), rel=1e-5)  # the paper's limit


def test_the_formulas_know_their_limits():
    assert d.gradient_heating(0.1, 0.0, 0.0) == 0
    assert d.gradient_heating(0.1, 0.0, 1.0) == math.inf
    with pytest.raises(ValueError, match="the limit of stability, got 4"):
        d.gradient_heating(2.0, 1.0, 1.0, curvature=1.0)
    with pytest.raises(ValueError, match="tau must be > 0"):
        d.adaptive_friction(0.1, 0.0, 1.0, 1.0)


def test_adaptive_langevin_finds_the_friction_of_the_formula():
    """With ξ held at that friction the exact temperature is τ, up to the order of h²."""
    k, noise, sigma, tau = 1.0, 0.5, 0.3, 0.2
    errors = []
    for h in (0.2, 0.1):
        xi = d.adaptive_friction(h, tau, sigma, noise)
        partition = hb.Partition(hb.AdaptiveLangevin(tau, sigma, 0.0, xi=xi), h)
        V = hb.quadratic.covariance(partition, k, gradient_noise=math.sqrt(noise))
        errors.append(abs(k * V[0, 0] / tau - 1))
    assert errors[0] < 0.02
    assert errors[1] < errors[0] / 3


@pytest.mark.parametrize(("h", "gamma", "s"), [(0.2, 0.5, 2.0), (0.1, math.inf, 1.0), (0.4, 5.0, 0.7)])
def test_gradient_noise_heats_the_momenta_that_o_reads(h, gamma, s):
    """The loss is nearly flat."""
    tau, rng = 0.3, np.random.default_rng(0)
    partition = hb.Partition(hb.Langevin(gamma, tau), h)
    chains = hb.Reference(
        lambda theta, batch: s * rng.standard_normal(theta.shape),
        np.zeros((200, 50)),
        partition,
        {"all": (50,)},
    )
    heat = []
    for n in range(400):
        chains.advance(1)
        if n >= 100:
            heat.append(chains.temperature["all"].mean())
    assert np.mean(heat) == pytest.approx(tau + d.kinetic_heating(h, gamma, s**2), rel=0.01)
    assert d.kinetic_heating(h, 0.0, 0.0) == 0
