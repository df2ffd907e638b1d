"""Posteriors for the optimisers: what they set for each loss, the law that is sampled, and the noise."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

import heatbath as hb
import heatbath.torch as ht
from heatbath.likelihood import SCALE, SHAPE, law_of_variance
from heatbath.posterior import Settled
from heatbath.statistics import mean
from heatbath.torch import recipes
from tests.torch.test_optimizer import same_noise

RNG = np.random.default_rng(0)
X = torch.as_tensor(RNG.standard_normal((20, 3)))
Y = torch.as_tensor(RNG.standard_normal((20, 2)) * 0.5 + X.numpy()[:, :2])
TARGETS = pytest.mark.parametrize("targets", [1, 2])
TEMPERATURES = pytest.mark.parametrize("temperature", [1.0, 0.3])


def network(targets=2):
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, targets)).double()


def vector(model):
    return torch.nn.utils.parameters_to_vector(model.parameters()).detach().numpy().copy()


def advance(model, optimizer, steps, every=5, loss=functional.mse_loss, y=Y):
    """Steps with full gradients, and the noise drawn at every so manieth, as the reference does it."""
    for _ in range(steps):
        step = optimizer.param_groups[0]["step"]
        if every and step and step % every == 0:
            optimizer.draw_noise(y - model(X))
        optimizer.zero_grad()
        loss(model(X), y).backward()
        optimizer.step()


# Coefficients


def coefficients(loss, options, prior=2.0, temperature=0.5, n=40):
    """τ and weight_decay of a Langevin optimiser."""
    posterior = ht.Posterior(loss, n, prior, temperature=temperature, **options)
    (group,) = ht.Langevin(torch.nn.Linear(3, 2), 0.1, 1.0, posterior=posterior).param_groups
    return group["tau"], group["weight_decay"]


def losses(outputs, y, labels, counts):
    """Each loss as torch has it, with -log likelihood of all examples, up to a constant, by hand."""
    f, log = outputs.detach().numpy(), np.log
    binary, logistic = (y > 0).double(), functional.binary_cross_entropy_with_logits
    p = 1 / (1 + np.exp(-f))
    values, variances = f[:, :1], np.exp(f[:, 1:])
    poisson = counts.numpy() * f - np.exp(f)
    return {
        "binary_cross_entropy_with_logits": (
            lambda reduction: logistic(outputs, binary, reduction=reduction),
            -np.where(binary.numpy() > 0, log(p), log(1 - p)).sum(), {"targets": 2}),
        "cross_entropy": (
            lambda reduction: functional.cross_entropy(outputs, labels, reduction=reduction),
            -(f - log(np.exp(f).sum(1, keepdims=True)))[np.arange(len(f)), labels.numpy()].sum(), {}),
        "mse_loss": (
            lambda reduction: functional.mse_loss(outputs, y, reduction=reduction),
            ((y.numpy() - f) ** 2).sum() / (2 * 0.3**2), {"targets": 2, "noise": 0.3}),
        "gaussian_nll_loss": (
            lambda reduction: functional.gaussian_nll_loss(
                outputs[:, :1], y[:, :1], outputs[:, 1:].exp(), reduction=reduction),
            (log(variances) / 2 + (y.numpy()[:, :1] - values) ** 2 / (2 * variances)).sum(), {}),
        "poisson_nll_loss": (
            lambda reduction: functional.poisson_nll_loss(outputs, counts, reduction=reduction),
            -poisson.sum(), {"targets": 2}),
    }  # fmt: skip


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("name", ["binary_cross_entropy_with_logits", "cross_entropy", "mse_loss",
                                  "gaussian_nll_loss", "poisson_nll_loss"])  # fmt: skip
def test_the_energy_over_the_temperature_is_that_of_the_posterior(name, reduction):
    """(loss + λ|θ|²/2)/τ = (-log likelihood + |θ|²/(2ς²))/T, for torch's own losses."""
    y, labels, counts = Y, torch.arange(20) % 2, torch.arange(20)[:, None] % torch.tensor([3, 4])
    one, two = (
        losses(torch.as_tensor(RNG.standard_normal((20, 2))), y, labels, counts.double())[name]
        for _ in range(2)
    )
    tau, decay = coefficients(name, {"reduction": reduction, **one[2]}, 2.0, 0.5, n=20)
    difference = float(one[0](reduction) - two[0](reduction)) / tau
    assert difference == pytest.approx((one[1] - two[1]) / 0.5, rel=1e-10)
    assert decay / tau == pytest.approx(1 / (2.0**2 * 0.5), rel=1e-12)


def test_a_likelihood_of_one_s_own_is_at_the_temperature_of_its_mean_or_sum():
    assert coefficients("negative_log_likelihood", {}) == pytest.approx((0.5 / 40, 1 / (4 * 40)))
    assert coefficients("negative_log_likelihood", {"reduction": "sum"}) == pytest.approx((0.5, 0.25))


@pytest.mark.parametrize(("prior", "expected"), [(0.5, (0.5, 0.5)), ((0.5, 2.0), (0.5, 2.0)),
                                                 ("fan_in", (3**-0.5, 4**-0.5))])  # fmt: skip
@pytest.mark.parametrize(
    "make",
    [
        lambda m, p: ht.Langevin(m, 0.1, 1.0, posterior=p),
        lambda m, p: ht.SGLD(m, 0.1, posterior=p),
        lambda m, p: ht.Adam(m, 0.1, posterior=p),
        lambda m, p: ht.AdLaLa(m, posterior=p),
        lambda m, p: ht.LOL(m, posterior=p),
        lambda m, p: ht.Partitioned(
            [{"params": m[0].named_parameters(), "method": hb.Langevin(1.0)},
             {"params": m[2].named_parameters(), "method": hb.AdaptiveLangevin()}], 0.1, posterior=p),
    ],
)  # fmt: skip
def test_every_layer_has_its_prior_and_every_part_the_temperature(make, prior, expected):
    model = network()
    optimizer = make(model, ht.Posterior("cross_entropy", 50, prior, temperature=0.2))
    priors = {id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    for layer, deviation in zip((model[0], model[2]), expected, strict=True):
        for p in layer.parameters():
            assert priors[id(p)] == pytest.approx(1 / (deviation**2 * 50))
    for group in optimizer.param_groups:
        heat = group["sigma"] ** 2 / 2 if group["method"] == "SGLD" else group.get("tau", 0.2 / 50)
        assert heat == pytest.approx(0.2 / 50)
        if group["method"] == "AdaptiveLangevin":
            method = hb.AdaptiveLangevin().at_temperature(0.2 / 50)
            assert (group["sigma"], group["epsilon"]) == (method.sigma, method.epsilon)


# The definition


METHODS = {
    "BAOAB": hb.Langevin(1.0),
    "OBABO": hb.Langevin(0.7, word="OBABO"),
    "AdLaLa": {"hidden": hb.AdaptiveLangevin(1e-3, 0.05, 0.3), "output": hb.Langevin(0.4)},
    "SDE, tensors": hb.AdaptiveLangevin(1e-3, 0.05, 0.3, friction="sde", thermostat="tensor"),
    "SGLD": hb.SGLD(),
    "Momentum": hb.Momentum(0.9),
    "Adam": hb.Adam(),
}
LAYERS = {"fc1": (12, 4), "fc2": (8, 2)}


def of_partition(model, partition, **options):
    """The optimiser of a partition."""
    modules = {"fc1": model[0], "fc2": model[2]}
    groups = [
        {"params": [p for layer in part.layers for p in modules[layer].parameters()], "method": part.method}
        for part in partition.parts(LAYERS)
    ]
    return ht.Partitioned(groups, partition.h, **options)


def reference_for(model, partition, posterior, every, y):
    """The definition, with the gradient of mse_loss as it is."""
    scale = 2 / posterior.targets
    tau, decay = posterior.temperature * scale / 20, scale / (posterior.prior**2 * 20)
    law = law_of_variance(
        20 * posterior.targets, posterior.temperature, np.array([posterior.variance]), every
    )
    parts = [
        replace(part, method=part.method.at_temperature(tau).with_prior(decay))
        for part in partition.parts(LAYERS)
    ]
    twin = network(posterior.targets)

    def put(theta):
        torch.nn.utils.vector_to_parameters(torch.as_tensor(theta[0]), twin.parameters())
        return twin(X)

    def gradient(theta, batch, shares):
        twin.zero_grad()
        functional.mse_loss(put(theta), y).backward()
        return torch.cat([p.grad.ravel() for p in twin.parameters()]).numpy()[None]

    def squares(theta):
        return ((put(theta) - y) ** 2).sum().detach().numpy().reshape(1, 1)

    settled = Settled(tuple(parts), np.array([posterior.variance]), law)
    return hb.Reference(gradient, vector(model), partition, LAYERS, seed=5, settled=settled, squares=squares)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("name", METHODS)
def test_optimisers_with_noise_that_is_drawn_follow_the_reference(name, fused):
    posterior = ht.Posterior("mse_loss", 20, 0.7, temperature=0.4, targets=2, variance=1.3)
    partition = hb.Partition(METHODS[name], 0.05, posterior.values)
    model = network()
    reference = reference_for(model, partition, posterior, 5, Y)
    optimizer = of_partition(model, partition, seed=5, fused=fused, posterior=posterior)
    if not fused:
        optimizer._noise = same_noise
    advance(model, optimizer, 60)
    reference.advance(60)
    assert optimizer.noise == pytest.approx(reference.state.noise[0, 0], rel=1e-10)
    assert optimizer.noise != 1.3
    np.testing.assert_allclose(vector(model), reference.state.theta[0], atol=1e-10)
    for group, part in zip(optimizer.param_groups, partition.parts(LAYERS), strict=True):
        if part.name in reference.state.xi:
            np.testing.assert_allclose(np.ravel(group["xi"]), reference.state.xi[part.name][0], rtol=1e-9)


def test_an_optimiser_follows_the_engine(monkeypatch):
    """The engine's loss is half of mse_loss: the same path in a time that is shorter by √2."""
    monkeypatch.setattr("heatbath.likelihood.FEWEST", 10)
    y = Y[:, :1]
    empty = np.empty((1, 0, 3)), np.empty((1, 0, 1))
    problem = hb.datasets.Problem(
        "one", "regression", X.numpy()[None], y.numpy()[None], *empty, ("a", "b", "c"), ("y",)
    )
    model = torch.nn.Linear(3, 1).double()
    partition = hb.Partition(hb.Langevin(0.5), 0.1, hb.Posterior(0.7, temperature=0.4))
    start = np.tile(vector(model), (8, 1))
    run = hb.train(problem, hb.Dense(()), partition, 100, 20, 8, start=start, dtype="float64", seed=5)
    posterior = ht.Posterior("mse_loss", 20, 0.7, temperature=0.4, variance=float(y.var(correction=0)))
    optimizer = ht.Langevin(model, 0.1 / math.sqrt(2), 0.5 * math.sqrt(2), seed=5, posterior=posterior)
    advance(model, optimizer, 100, 10, y=y)
    np.testing.assert_allclose(vector(model), run.theta[0], atol=1e-10)
    assert optimizer.noise == pytest.approx(run.data["noise_now"].values[0, 0], rel=1e-10)


def test_a_scheduler_changes_the_stepsize_between_draws():
    posterior = ht.Posterior("mse_loss", 20, 0.7, temperature=0.4, targets=2, variance=1.3)
    h = hb.schedules.Piecewise([0.05, 0.025], [33])
    model = network()
    reference = reference_for(model, hb.Partition(hb.Langevin(1.0), h, posterior.values), posterior, 5, Y)
    optimizer = ht.Langevin(model, 0.05, 1.0, seed=5, posterior=posterior)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=33, gamma=0.5)
    for _ in range(60):
        advance(model, optimizer, 1)
        scheduler.step()
    reference.advance(60)
    np.testing.assert_allclose(vector(model), reference.state.theta[0], atol=1e-11)


# The law

N = 10
A = np.column_stack([RNG.standard_normal((N, 2)), np.ones(N)])
B = A @ RNG.standard_normal((3, 2)) + 0.5 * RNG.standard_normal((N, 2))


def exact(targets, posterior):
    """Mean and covariance of (weights, bias) of each target, where the noise is known."""
    s2 = posterior.noise**2
    V = np.linalg.inv(A.T @ A / s2 + np.eye(3) / posterior.prior**2)
    return V @ A.T @ B[:, :targets] / s2, posterior.temperature * V


def known(targets, posterior, loss=functional.mse_loss, chains=3000, steps=150):
    """Chains, each a copy of the parameters (targets, 3), after enough steps to forget their start."""
    theta = torch.nn.Parameter(torch.zeros(chains, targets, 3, dtype=torch.float64))
    optimizer = ht.Langevin([theta], 0.35, 1.5, posterior=posterior, seed=3)
    a, b = torch.as_tensor(A), torch.as_tensor(B[:, :targets])
    for _ in range(steps):
        optimizer.zero_grad()
        outputs = torch.einsum("ni,cki->cnk", a, theta)
        per_chain = loss(outputs, b.expand_as(outputs), reduction="none").mean(dim=(1, 2))
        per_chain.sum().backward()
        optimizer.step()
    return theta.detach().numpy()


def off(theta, targets, posterior):
    """By how many standard errors means and variances are off."""
    mean, V = exact(targets, posterior)
    v = np.diag(V)
    centred = theta - mean.T
    errors = np.sqrt(v / len(theta)), v * np.sqrt(2 / len(theta))
    return np.concatenate([
        np.ravel(np.abs(centred.mean(axis=0)) / errors[0]),
        np.ravel(np.abs((centred**2).mean(axis=0) - v) / errors[1]),
    ])  # fmt: skip


@TEMPERATURES
@TARGETS
def test_a_linear_model_with_known_noise_has_the_posterior_that_is_known(targets, temperature):
    posterior = ht.Posterior("mse_loss", N, 0.8, 0.5, temperature, targets=targets)
    assert (off(known(targets, posterior), targets, posterior) < 4.5).all()


@pytest.mark.parametrize("wrong", ["the factor 2", "the number of targets", "the noise"])
def test_a_temperature_that_forgets_something_is_another_law(wrong):
    """The controls."""
    right = ht.Posterior("mse_loss", N, 0.8, 0.5, targets=2)
    given = {
        "the factor 2": replace(right, noise=0.5 / math.sqrt(2)),
        "the number of targets": replace(right, targets=1),
        "the noise": replace(right, noise=1.0),
    }
    assert off(known(2, given[wrong]), 2, right).max() > 15


def exact_with_noise(targets, posterior):
    """Mean and variance of every parameter and of log s², by quadrature; all targets have one noise."""
    T, v, prior = posterior.temperature, posterior.variance, posterior.prior
    logs = np.linspace(math.log(v) - 9, math.log(v) + 6, 4001)
    density, means, variances = [], [], []
    for log in logs:
        s2 = math.exp(log)
        V = np.linalg.inv(A.T @ A / s2 + np.eye(3) / prior**2)
        m = V @ A.T @ B[:, :targets] / s2
        ssr = np.sum((B[:, :targets] - A @ m) ** 2)
        energy = N * targets / 2 * log + ssr / (2 * s2) + np.sum(m**2) / (2 * prior**2)
        energy += (SHAPE + 1) * log + SCALE * v / s2
        density.append(-energy / T + targets / 2 * np.linalg.slogdet(V)[1] + log)
        means.append(m.T)
        variances.append(T * np.tile(np.diag(V), (targets, 1)))
    weights = np.exp(np.array(density) - max(density))
    weights /= weights.sum()
    means, variances = np.array(means), np.array(variances)
    centre, log = np.tensordot(weights, means, 1), weights @ logs
    spread = np.tensordot(weights, variances + (means - centre) ** 2, 1)
    return centre, spread, log, weights @ (logs - log) ** 2


def off_with_noise(targets, posterior, steps):
    """One chain of a torch.nn.Linear, and its noise drawn at every fourth step."""
    model = torch.nn.Linear(2, targets).double()
    optimizer = ht.Langevin(model, 0.5, 1.5, posterior=posterior, seed=4)
    a, b = torch.as_tensor(A[:, :2]), torch.as_tensor(B[:, :targets])
    thetas, logs = [], []
    for step in range(steps):
        if step % 4 == 0:
            logs.append(math.log(optimizer.draw_noise(b - model(a))))
            thetas.append(torch.cat([model.weight, model.bias[:, None]], dim=1).detach().numpy().copy())
        optimizer.zero_grad()
        functional.mse_loss(model(a), b).backward()
        optimizer.step()
    centre, spread, log, of_log = exact_with_noise(targets, posterior)
    theta, logs = np.array(thetas[50:]), np.array(logs[50:])
    series = [(logs, log), ((logs - log) ** 2, of_log)]
    for k in range(targets):
        for i in range(3):
            values = theta[:, k, i]
            series += [(values, centre[k, i]), ((values - centre[k, i]) ** 2, spread[k, i])]
    found = [(mean(values), expected) for values, expected in series]
    return np.array([abs(estimate.value - expected) / estimate.error for estimate, expected in found])


@pytest.mark.parametrize(("targets", "temperature"), [(1, 1.0), (2, 0.3)])
def test_a_linear_model_with_unknown_noise_has_the_posterior_that_is_known(targets, temperature):
    posterior = ht.Posterior("mse_loss", N, 0.8, temperature=temperature, targets=targets, variance=1.5)
    assert (off_with_noise(targets, posterior, 6000) < 4.5).all()


def test_a_temperature_that_does_not_follow_the_noise_gives_another_law(monkeypatch):
    """The control: τ = 1/n, whatever the noise."""
    monkeypatch.setattr(recipes, "UNITS", {})
    posterior = ht.Posterior("mse_loss", N, 0.8, variance=1.5)
    assert off_with_noise(1, posterior, 2000).max() > 8
