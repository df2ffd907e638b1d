"""Posteriors for the optimisers: what they set for each loss, the law that is sampled, and the noise."""

import io
import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

import heatbath as hb
import heatbath.torch as ht
from heatbath.diagnostics.statistics import mean
from heatbath.methods.posterior import Settled
from heatbath.models.likelihood import SCALE, SHAPE, law_of_variance
from heatbath.torch.optim import posterior as posteriors
from heatbath.torch.optim import step_program

N = 10  # examples of the linear model


def draw_examples():
    """Return inputs and targets of a network's examples, then those of a linear model with a bias."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((20, 3))
    y = rng.standard_normal((20, 2)) * 0.5 + x[:, :2]
    a = np.column_stack([rng.standard_normal((N, 2)), np.ones(N)])
    b = a @ rng.standard_normal((3, 2)) + 0.5 * rng.standard_normal((N, 2))
    return torch.as_tensor(x), torch.as_tensor(y), a, b


X, Y, A, B = draw_examples()
W = torch.ones(20, dtype=torch.float64)
TARGETS = pytest.mark.parametrize("targets", [1, 2])
TEMPERATURES = pytest.mark.parametrize("temperature", [1.0, 0.3])


def build_network(targets=2):
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, targets)).double()


def parameter_vector(model):
    return torch.nn.utils.parameters_to_vector(model.parameters()).detach().numpy().copy()


def make_steps(model, optimizer, steps, every=5, loss=functional.mse_loss, y=Y):
    """Make steps with full gradients, drawing the noise at every `every`-th, as the reference does it."""
    for _ in range(steps):
        step = optimizer.param_groups[0]["step"]
        if every and step and step % every == 0:
            optimizer.draw_noise(y - model(X))
        optimizer.zero_grad()
        loss(model(X), y).backward()
        optimizer.step()


# Coefficients


def coefficients(loss, options, prior=2.0, temperature=0.5, n=40):
    """Return τ and weight_decay of a Langevin optimiser."""
    posterior = ht.LossPosterior(loss, n, prior, temperature=temperature, **options)
    (group,) = ht.Langevin(torch.nn.Linear(3, 2), 0.1, 1.0, posterior=posterior).param_groups
    return group["tau"], group["weight_decay"]


def losses(outputs, y, labels, counts):
    """Return each loss of torch, and by hand -log likelihood of all examples up to a constant."""
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
    outputs = torch.as_tensor(np.random.default_rng(1).standard_normal((2, 20, 2)))
    one, two = (losses(rows, y, labels, counts.double())[name] for rows in outputs)
    tau, decay = coefficients(name, {"reduction": reduction, **one[2]}, 2.0, 0.5, n=20)
    difference = float(one[0](reduction) - two[0](reduction)) / tau
    assert difference != 0
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
    model = build_network()
    optimizer = make(model, ht.LossPosterior("cross_entropy", 50, prior, temperature=0.2))
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


def make_optimizer(model, partition, **options):
    """Return the optimiser of a partition."""
    modules = {"fc1": model[0], "fc2": model[2]}
    groups = [
        {"params": [p for layer in part.layers for p in modules[layer].parameters()], "method": part.method}
        for part in partition.parts(LAYERS)
    ]
    return ht.Partitioned(groups, partition.h, **options)


def reference_for(model, partition, posterior, every, y):
    """Return the reference, with the gradient of mse_loss as it is."""
    scale = 2 / posterior.targets
    tau, decay = posterior.temperature * scale / 20, scale / (posterior.prior**2 * 20)
    law = law_of_variance(
        20 * posterior.targets, posterior.temperature, np.array([posterior.variance]), every
    )
    parts = [
        replace(part, method=part.method.at_temperature(tau).with_prior(decay))
        for part in partition.parts(LAYERS)
    ]
    twin = build_network(posterior.targets)

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
    return hb.Reference(
        gradient, parameter_vector(model), partition, LAYERS, seed=5, settled=settled, squares=squares
    )


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("name", METHODS)
def test_optimisers_with_noise_that_is_drawn_follow_the_reference(name, fused):
    posterior = ht.LossPosterior("mse_loss", 20, 0.7, temperature=0.4, targets=2, variance=1.3)
    partition = hb.Partition(METHODS[name], 0.05, posterior.values)
    model = build_network()
    reference = reference_for(model, partition, posterior, 5, Y)
    optimizer = make_optimizer(model, partition, seed=5, fused=fused, posterior=posterior)
    make_steps(model, optimizer, 60)
    reference.advance(60)
    assert optimizer.noise == pytest.approx(reference.state.noise[0, 0], rel=1e-10)
    assert optimizer.noise != 1.3
    np.testing.assert_allclose(parameter_vector(model), reference.state.theta[0], atol=1e-10)
    for group, part in zip(optimizer.param_groups, partition.parts(LAYERS), strict=True):
        if part.name in reference.state.xi:
            np.testing.assert_allclose(np.ravel(group["xi"]), reference.state.xi[part.name][0], rtol=1e-9)


@TEMPERATURES
@pytest.mark.parametrize("w", [W, 0.1 + 3 * W.flip(0) * X[:, 0] ** 2], ids=["alike", "weighed"])
def test_an_optimiser_follows_the_engine(w, temperature, monkeypatch):
    """The engine's loss is half of mse_loss: the same path in a time that is shorter by √2."""
    monkeypatch.setattr("heatbath.models.likelihood.FEWEST_STEPS_BETWEEN_DRAWS", 10)
    y, n = Y[:, :1], float(w.sum())
    weights = None if w is W else w
    empty = np.empty((1, 0, 3)), np.empty((1, 0, 1))
    problem = hb.datasets.Problem(
        "one", "regression", X.numpy()[None], y.numpy()[None], *empty, ("a", "b", "c"), ("y",),
        weights_train=None if weights is None else w.numpy()[None],
    )  # fmt: skip
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1).double()
    partition = hb.Partition(hb.Langevin(0.5), 0.1, hb.Posterior(0.7, temperature=temperature))
    start = np.tile(parameter_vector(model), (8, 1))
    run = hb.train(
        problem,
        hb.MLP(()),
        partition,
        100,
        20,
        8,
        start=start,
        dtype="float64",
        seed=5,
        samples=5,
        record=1,
    )
    variance = float((w @ (y - w @ y / n) ** 2) / n)
    posterior = ht.LossPosterior("mse_loss", n, 0.7, temperature=temperature, variance=variance)
    optimizer = ht.Langevin(model, 0.1 / math.sqrt(2), 0.5 * math.sqrt(2), seed=5, posterior=posterior)
    draws = run.plan.settled.draws  # a start that is given begins with the noise of its residuals
    squares = (w @ (model(X) - y) ** 2).item() / (n / 20)
    for group in optimizer.param_groups:
        group["noise"] = float(draws.scale[0] + draws.factor * squares) / draws.shape
    for step in range(100):
        if step and step % 10 == 0:
            optimizer.draw_noise(y - model(X), weights)
        optimizer.zero_grad()
        (w @ functional.mse_loss(model(X), y, reduction="none") / n).sum().backward()
        optimizer.step()
    np.testing.assert_allclose(parameter_vector(model), run.theta[0], atol=1e-10)
    assert optimizer.noise == pytest.approx(run.data["noise_now"].values[0, 0], rel=1e-10)


def test_a_scheduler_changes_the_stepsize_between_draws():
    posterior = ht.LossPosterior("mse_loss", 20, 0.7, temperature=0.4, targets=2, variance=1.3)
    h = hb.schedules.Piecewise([0.05, 0.025], [33])
    model = build_network()
    reference = reference_for(model, hb.Partition(hb.Langevin(1.0), h, posterior.values), posterior, 5, Y)
    optimizer = ht.Langevin(model, 0.05, 1.0, seed=5, posterior=posterior)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=33, gamma=0.5)
    for _ in range(60):
        make_steps(model, optimizer, 1)
        scheduler.step()
    reference.advance(60)
    np.testing.assert_allclose(parameter_vector(model), reference.state.theta[0], atol=1e-11)


# The law


def exact_law(targets, posterior, w):
    """Return mean and covariance of (weights, bias) of each target, where the noise is known."""
    s2 = posterior.noise**2
    V = np.linalg.inv((w * A.T) @ A / s2 + np.eye(3) / posterior.prior**2)
    return V @ (w * A.T) @ B[:, :targets] / s2, posterior.temperature * V


ALIKE = np.ones(N)
WEIGHTS = np.linspace(0.2, 3.0, N)  # with the sum 16


def sample_with_known_noise(targets, posterior, w=ALIKE, loss=functional.mse_loss, chains=3000, steps=150):
    """Return chains after enough steps to forget their start, each a copy of the parameters (targets, 3)."""
    shares = torch.as_tensor(w / w.sum())
    theta = torch.nn.Parameter(torch.zeros(chains, targets, 3, dtype=torch.float64))
    optimizer = ht.Langevin([theta], 0.35, 1.5, posterior=posterior, seed=3)
    a, b = torch.as_tensor(A), torch.as_tensor(B[:, :targets])
    for _ in range(steps):
        optimizer.zero_grad()
        outputs = torch.einsum("ni,cki->cnk", a, theta)
        per_example = loss(outputs, b.expand_as(outputs), reduction="none").mean(dim=2)
        (per_example @ shares).sum().backward()
        optimizer.step()
    return theta.detach().numpy()


def deviation_from_law(theta, targets, posterior, w=ALIKE):
    """Return by how many standard errors means and variances are off."""
    mean, V = exact_law(targets, posterior, w)
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
    posterior = ht.LossPosterior("mse_loss", N, 0.8, 0.5, temperature, targets=targets)
    assert (deviation_from_law(sample_with_known_noise(targets, posterior), targets, posterior) < 4.5).all()


@TEMPERATURES
def test_where_examples_have_weights_n_is_their_sum(temperature):
    posterior = ht.LossPosterior("mse_loss", WEIGHTS.sum(), 0.8, 0.5, temperature, targets=2)
    assert (
        deviation_from_law(sample_with_known_noise(2, posterior, WEIGHTS), 2, posterior, WEIGHTS) < 4.5
    ).all()
    counted = replace(posterior, n=N)  # the control
    assert deviation_from_law(sample_with_known_noise(2, counted, WEIGHTS), 2, posterior, WEIGHTS).max() > 10


@pytest.mark.parametrize("wrong", ["the factor 2", "the number of targets", "the noise"])
def test_a_temperature_that_forgets_something_is_another_law(wrong):
    """The controls."""
    right = ht.LossPosterior("mse_loss", N, 0.8, 0.5, targets=2)
    given = {
        "the factor 2": replace(right, noise=0.5 / math.sqrt(2)),
        "the number of targets": replace(right, targets=1),
        "the noise": replace(right, noise=1.0),
    }
    assert deviation_from_law(sample_with_known_noise(2, given[wrong]), 2, right).max() > 15


def exact_law_with_noise(targets, posterior):
    """Return mean and variance of every parameter and of log s², by quadrature, with one noise for all."""
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


def deviation_from_law_with_noise(targets, posterior, steps):
    """Return the same for one chain of a torch.nn.Linear, with its noise drawn at every eighth step."""
    torch.manual_seed(0)
    model = torch.nn.Linear(2, targets).double()
    optimizer = ht.Langevin(model, 0.5, 1.5, posterior=posterior, seed=4)
    a, b = torch.as_tensor(A[:, :2]), torch.as_tensor(B[:, :targets])
    thetas, logs = [], []
    for step in range(steps):
        if step % 8 == 0:
            logs.append(math.log(optimizer.draw_noise(b - model(a))))
            thetas.append(torch.cat([model.weight, model.bias[:, None]], dim=1).detach().numpy().copy())
        optimizer.zero_grad()
        functional.mse_loss(model(a), b).backward()
        optimizer.step()
    centre, spread, log, of_log = exact_law_with_noise(targets, posterior)
    theta, logs = np.array(thetas[20:]), np.array(logs[20:])
    series = [(logs, log), ((logs - log) ** 2, of_log)]
    for k in range(targets):
        for i in range(3):
            values = theta[:, k, i]
            series += [(values, centre[k, i]), ((values - centre[k, i]) ** 2, spread[k, i])]
    found = [(mean(values), expected) for values, expected in series]
    return np.array([abs(estimate.value - expected) / estimate.error for estimate, expected in found])


@pytest.mark.parametrize(("targets", "temperature"), [(1, 1.0), (2, 0.3)])
def test_a_linear_model_with_unknown_noise_has_the_posterior_that_is_known(targets, temperature):
    posterior = ht.LossPosterior("mse_loss", N, 0.8, temperature=temperature, targets=targets, variance=1.5)
    assert (deviation_from_law_with_noise(targets, posterior, 4000) < 4.5).all()


def test_a_temperature_that_does_not_follow_the_noise_gives_another_law(monkeypatch):
    """The control: τ = 1/n, whatever the noise."""
    monkeypatch.setattr(step_program, "UNITS", {})
    posterior = ht.LossPosterior("mse_loss", N, 0.8, variance=1.5)
    assert deviation_from_law_with_noise(1, posterior, 2400).max() > 6


# As torch's optimisers

POSTERIOR = ht.LossPosterior("mse_loss", 20, (0.7, 1.5), temperature=0.4, targets=2, variance=1.3)
MAKERS = {
    "Langevin": lambda m, **o: ht.Langevin(m, 0.05, 1.0, posterior=POSTERIOR, **o),
    "AdLaLa": lambda m, **o: ht.AdLaLa(m, lr=0.05, posterior=POSTERIOR, **o),
    "SGLD": lambda m, **o: ht.SGLD(m, 0.01, posterior=POSTERIOR, **o),
}
SHARED = ("tau", "weight_decay", "noise", "draws", "drawn")
every_maker = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


@every_maker
@pytest.mark.parametrize("fused", [True, False])
def test_a_run_goes_on_bit_for_bit_from_a_file_without_code(make, fused):
    """Saved right after a draw, when closing and opening letters have different units."""
    model = build_network()
    optimizer = make(model, fused=fused)
    make_steps(model, optimizer, 13)
    optimizer.draw_noise(Y - model(X))
    buffer = io.BytesIO()
    torch.save([model.state_dict(), optimizer.state_dict()], buffer)
    buffer.seek(0)
    saved_model, saved = torch.load(buffer, weights_only=True)
    other = build_network()
    other.load_state_dict(saved_model)
    resumed = make(other, seed=99, fused=fused)
    resumed.load_state_dict(saved)
    assert resumed.noise == optimizer.noise != 1.3
    make_steps(model, optimizer, 20)
    make_steps(other, resumed, 20)
    np.testing.assert_array_equal(parameter_vector(model), parameter_vector(other))
    assert resumed.noise == optimizer.noise


def test_a_draw_acts_on_the_step_after_it():
    """The letters that close a step keep the noise of that step: only then do runs differ."""
    models = [build_network(), build_network()]
    optimizers = [MAKERS["Langevin"](model, seed=5) for model in models]
    for model, optimizer in zip(models, optimizers, strict=True):
        make_steps(model, optimizer, 6, every=0)
    optimizers[1].draw_noise(Y - models[1](X))
    for model, optimizer in zip(models, optimizers, strict=True):
        assert optimizer.param_groups[0]["previous"][-1] == math.sqrt(1.3)
        make_steps(model, optimizer, 1, every=0)
    assert np.abs(parameter_vector(models[0]) - parameter_vector(models[1])).max() > 1e-4


def test_residuals_may_come_in_batches_and_no_graph_is_kept():
    model = build_network()
    one, two, third = (MAKERS["Langevin"](model, seed=5) for _ in range(3))
    whole = one.draw_noise((Y - model(X)).detach().float().double())
    modes = []

    def batches():
        for first in range(0, 20, 7):
            modes.append(torch.is_grad_enabled())
            yield (Y[first : first + 7] - model(X[first : first + 7])).float()

    assert two.draw_noise(batches()) == pytest.approx(whole, rel=1e-12)
    assert modes == [False] * 3
    assert {group["noise"] for group in two.param_groups} == {two.noise}
    assert third.draw_noise(model(X) - Y) != MAKERS["Langevin"](model, seed=6).draw_noise(model(X) - Y)


@pytest.mark.parametrize("shape", [(0,), (0, 0), (0, 1), (3, 0)])
def test_an_empty_batch_of_residuals_counts_nothing(shape):
    model = build_network()
    one, two = (MAKERS["Langevin"](model, seed=5) for _ in range(2))
    residuals = (Y - model(X)).detach()
    assert one.draw_noise([residuals, torch.empty(shape)]) == two.draw_noise(residuals)


def test_a_weight_counts_as_so_many_residuals_and_weights_come_in_batches_too():
    model, w = build_network(), torch.arange(20) % 3
    residuals, n = (Y - model(X)).detach(), float(w.sum())
    posterior = replace(POSTERIOR, n=n)
    one, two, third = (ht.Langevin(model, 0.05, 1.0, posterior=posterior, seed=5) for _ in range(3))
    repeated = one.draw_noise(residuals.repeat_interleave(w, dim=0))
    assert two.draw_noise(residuals, w) == pytest.approx(repeated, rel=1e-12)
    halves = residuals[:7], residuals[7:].float()
    assert third.draw_noise(halves, iter([w[:7], w[7:, None]])) == pytest.approx(repeated, rel=1e-6)
    with pytest.raises(ValueError, match=r"of all 38 targets .* got 40: .* given as weights="):
        one.draw_noise(residuals)


def test_the_temperature_is_read_in_units_of_the_noise():
    """p·p/N of a regression with noise that is drawn, beside the τ that its groups show."""
    model = build_network()
    optimizer = ht.Langevin(model, 0.05, 5.0, posterior=replace(POSTERIOR, prior=0.7))
    make_steps(model, optimizer, 1000, every=10)
    (group,), (heat,) = optimizer.param_groups, optimizer.temperature().values()
    assert group["tau"] == pytest.approx(0.4 / 20)
    assert abs(heat.value - group["tau"]) < 4.5 * heat.error
    assert abs(heat.value / optimizer.noise - group["tau"]) > 4.5 * heat.error
    assert f"noise={optimizer.noise:g}" in repr(optimizer)


def test_the_gradient_s_noise_is_in_the_units_of_the_loss():
    theta = torch.nn.Parameter(torch.zeros(1000, dtype=torch.float64))
    posterior = ht.LossPosterior("mse_loss", 10, variance=9.0)
    optimizer = ht.AdaptiveLangevin([theta], 0.1, 0.2, 0.1, 0.002, posterior=posterior)
    optimizer.draw_noise(torch.full((10,), 3.0))
    generator = torch.Generator().manual_seed(0)
    for n in range(1500):
        theta.grad = theta.detach() + 2.0 * torch.randn(1000, generator=generator, dtype=torch.float64)
        optimizer.step()
        if n == 500:
            optimizer.forget_past()
    (found,) = optimizer.gradient_noise().values()
    assert found.value == pytest.approx(4.0, rel=0.05)


@pytest.mark.parametrize("drawn", [True, False])
def test_a_noise_that_is_never_drawn_is_a_warning(drawn, monkeypatch):
    monkeypatch.setattr(posteriors, "STEPS_WITHOUT_DRAW", 5)
    model = build_network()
    optimizer = MAKERS["AdLaLa"](model)
    if drawn:
        optimizer.draw_noise(Y - model(X))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make_steps(model, optimizer, 12, every=0)
    assert len(caught) == (not drawn)
    if caught:
        assert "was not drawn in 5 steps" in str(caught[0].message)


def test_a_group_that_is_added_has_the_temperature_and_the_noise():
    model, extra = build_network(), torch.nn.Parameter(torch.ones(5, dtype=torch.float64))
    optimizer = ht.Langevin(model, 0.05, 1.0, posterior=replace(POSTERIOR, prior=0.7))
    optimizer.draw_noise(Y - model(X))
    optimizer.add_param_group({"params": [extra]})
    first, last = optimizer.param_groups[0], optimizer.param_groups[-1]
    assert {key: last[key] for key in SHARED} == {key: first[key] for key in SHARED}
    extra.grad = torch.ones_like(extra)
    make_steps(model, optimizer, 1)
    optimizer.draw_noise(Y - model(X))
    assert last["noise"] == first["noise"]


def test_in_half_precision_the_noise_is_drawn_in_double():
    model, x, y = build_network().to(torch.bfloat16), X.bfloat16(), Y.bfloat16()
    optimizer = ht.AdLaLa(model, lr=0.05, posterior=POSTERIOR, seed=1)
    twin = ht.AdLaLa(build_network(), lr=0.05, posterior=POSTERIOR, seed=1)
    residuals = y - model(x)
    assert optimizer.draw_noise(residuals) == twin.draw_noise(residuals.double())
    functional.mse_loss(model(x), y).backward()
    optimizer.step()
    assert all(torch.isfinite(p).all() for p in model.parameters())


def test_in_a_compiled_function_a_draw_is_the_same():
    results = []
    for compiled in (False, True):
        model = build_network()
        optimizer = MAKERS["Langevin"](model, seed=1)

        def training_step(model=model, optimizer=optimizer):
            optimizer.draw_noise(Y - model(X))
            optimizer.zero_grad()
            functional.mse_loss(model(X), Y).backward()
            optimizer.step()

        step = torch.compile(training_step, backend="eager") if compiled else training_step
        for _ in range(3):
            step()
        results.append((optimizer.noise, *parameter_vector(model)))
    np.testing.assert_allclose(results[0], results[1], atol=1e-12)


# Mistakes

MSE = ht.LossPosterior("mse_loss", 20)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda m: ht.LossPosterior("mse", 20), "loss must be one of .*'mse_loss'.*, got 'mse'"),
        (lambda m: ht.LossPosterior("mse_loss", 0), "n must be > 0 and finite, got 0"),
        (lambda m: ht.LossPosterior("mse_loss", W.sum()), "n must be a number .* of type Tensor"),
        (lambda m: ht.LossPosterior("mse_loss", 20, targets=0), "targets must be a whole number >= 1"),
        (
            lambda m: ht.LossPosterior("mse_loss", 20, reduction="none"),
            "reduction must be one of 'mean', 'sum'",
        ),
        (lambda m: ht.LossPosterior("mse_loss", 20, variance=0), "variance must be > 0"),
        (lambda m: ht.LossPosterior("mse_loss", 20, -1.0), "prior must be > 0"),
        (lambda m: ht.LossPosterior("mse_loss", 20, noise="unknown"), "or 'sampled'; got 'unknown'"),
        (lambda m: ht.LossPosterior("mse_loss", 20, noise=(1.0, 2.0)), "one noise for all targets"),
        (lambda m: ht.LossPosterior("mse_loss", 20, noise=np.ones(2)), "one noise for all targets"),
        (
            lambda m: ht.LossPosterior("mse_loss", 20, noise="network"),
            "one noise .* got 'network': .* gaussian_nll_loss",
        ),
        (lambda m: ht.LossPosterior("cross_entropy", 20, noise=0.1), "noise is for mse_loss"),
        (lambda m: ht.LossPosterior("mse_loss", 20, temperature=9.0), "temperature must be at most 6"),
        (lambda m: ht.Langevin(m, 0.1, 1.0), "needs tau, such as tau=1e-5, or posterior="),
        (
            lambda m: ht.Langevin(m, 0.1, 1.0, posterior=hb.Posterior()),
            "must be a heatbath.torch.LossPosterior",
        ),
        (lambda m: ht.AdLaLa(m, posterior=hb.Posterior()), "must be a heatbath.torch.LossPosterior"),
        (lambda m: ht.Langevin(m, 0.1, 1.0, 1e-3, posterior=MSE), "the posterior sets tau, so leave it out"),
        (lambda m: ht.LOL(m, tau=1e-4, posterior=MSE), "the posterior sets tau, so leave it out"),
        (lambda m: ht.AdLaLa(m, weight_decay=0.1, posterior=MSE), "leave out weight_decay"),
        (
            lambda m: ht.Langevin([{"params": m.parameters(), "weight_decay": 0.1}], 0.1, 1.0, posterior=MSE),
            "leave out weight_decay",
        ),
        (lambda m: ht.Langevin(m, 0.1, 1.0, word="ABOBA", posterior=MSE), "ABOBA sees θ at the kick"),
        (
            lambda m: ht.Langevin(m.parameters(), 0.1, 1.0, posterior=replace(MSE, prior=(1.0, 2.0))),
            "prior has 2 standard deviations, and the network has 1 layers",
        ),
        (
            lambda m: ht.AdaptiveLangevin(m, 0.1, posterior=replace(MSE, prior=(1.0, 2.0))),
            "share thermostats",
        ),
        (
            lambda m: ht.Langevin(torch.nn.LayerNorm(3), 0.1, 1.0, posterior=replace(MSE, prior="fan_in")),
            "'LayerNorm' has none",
        ),
        (
            lambda m: ht.Langevin(torch.nn.LazyLinear(3), 0.1, 1.0, posterior=replace(MSE, prior="fan_in")),
            "lazy ones after a first call",
        ),
        (lambda m: ht.Partitioned([{"params": m.parameters()}], 0.1, posterior=MSE), 'and a "method"'),
        (lambda m: ht.Partitioned([], 0.1, posterior=MSE), "at least one part"),
        (lambda m: ht.Langevin(m, 0.1, 1.0, 1e-3).noise, "no noise is drawn here"),
        (lambda m: ht.Langevin(m, 0.1, 1.0, 1e-3).draw_noise(Y), "no noise is drawn here"),
        (
            lambda m: ht.Langevin(m, 0.1, 1.0, posterior=replace(MSE, noise=0.1)).draw_noise(Y),
            "no noise is drawn here",
        ),
        (lambda m: MAKERS["Langevin"](m).draw_noise(Y[:5]), "all 40 targets .* needed, got 10"),
        (lambda m: MAKERS["Langevin"](m).draw_noise(Y, W * 1.01), "needed, got 40.4: .* weights, n is their"),
        (lambda m: MAKERS["Langevin"](m).draw_noise(Y, W[:5]), "each of 20 examples, got a Tensor of"),
        (lambda m: MAKERS["Langevin"](m).draw_noise(Y, -W), "weights must be finite and >= 0"),
        (lambda m: MAKERS["Langevin"](m).draw_noise(Y, W * math.inf), "weights must be finite and >= 0"),
        (lambda m: MAKERS["Langevin"](m).draw_noise(Y, 2.0), "weights must be a tensor, or one for each"),
        (
            lambda m: MAKERS["Langevin"](m).draw_noise(Y, [W, W]),
            "residuals and weights must have the same number of tensors",
        ),
        (
            lambda m: MAKERS["Langevin"](m).draw_noise([Y, Y], [W]),
            "residuals and weights must have the same number",
        ),
        (lambda m: MAKERS["Langevin"](m).draw_noise(3.0), "must be a tensor, or one for each batch, got 3"),
        (lambda m: MAKERS["Langevin"](m).draw_noise([3.0]), "must be a tensor, or one for each batch, got 3"),
        (lambda m: MAKERS["Langevin"](m).draw_noise(Y * math.nan), "must be finite, got nan"),
    ],
)
def test_what_cannot_work_is_refused(make, words):
    with pytest.raises((TypeError, ValueError), match=words):
        make(build_network())


def test_a_word_that_is_changed_to_one_seen_at_the_kick_has_no_draws():
    model = build_network()
    optimizer = MAKERS["Langevin"](model)
    optimizer.param_groups[0]["word"] = "ABOBA"
    with pytest.raises(ValueError, match="ABOBA sees θ at the kick"):
        optimizer.draw_noise(Y - model(X))


def test_a_noise_that_was_set_to_nonsense_is_refused_by_name():
    model = build_network()
    optimizer = MAKERS["Langevin"](model)
    optimizer.param_groups[0]["noise"] = -1.0
    with pytest.raises(ValueError, match="noise must be > 0"):
        make_steps(model, optimizer, 1)
