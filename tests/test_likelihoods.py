"""Likelihoods of counts, and of values whose variance the network says: laws, trajectories, predictions."""

from typing import NamedTuple

import numpy as np
import pytest
import torch
import xarray as xr

import heatbath as hb
from heatbath.diagnostics.gradients import gradient_moments
from heatbath.engine.batches import tabulate
from heatbath.engine.dense import Shape
from heatbath.engine.ensemble import Ensemble
from heatbath.engine.lanes import lanes
from heatbath.engine.layouts import Alone, Group
from heatbath.engine.program import compile_program
from heatbath.likelihood import Likelihood, settle
from heatbath.networks import ACTIVATIONS
from heatbath.noise import batch

LANGEVIN = hb.Langevin(gamma=1.0)
RNG = np.random.default_rng(5)
X = RNG.standard_normal((20, 3))
VALUES = RNG.standard_normal((20, 2)) * [1.0, 3.0]
COUNTS = RNG.poisson(2.0, (20, 2)).astype(float)


def problem(task, x, y, **options):
    """One without test examples."""
    names = [tuple(f"{letter}{i}" for i in range(a.shape[1])) for letter, a in (("x", x), ("y", y))]
    return hb.datasets.Problem("made", task, x[None], y[None], x[None, :0], y[None, :0], *names, **options)


class Kind(NamedTuple):
    """A likelihood: its problem, what a posterior says of the noise, and the loss of each example in torch.

    The loss is a function of outputs, targets and variances.
    """

    problem: hb.datasets.Problem
    noise: object
    loss: object


def varying_loss(z, y, _):
    f, v = z.chunk(2, dim=1)
    return ((-v).exp() * (y - f) ** 2 + v).sum(1) / 2


KINDS = {
    "counts": Kind(problem("counts", X, COUNTS), {}, lambda z, y, _: (z.exp() - y * z).sum(1)),
    "network": Kind(problem("regression", X, VALUES), {"noise": "network"}, varying_loss),
}


# The engine and the reference


def module(theta, x, outputs):
    W1, b1, W2, b2 = torch.split(theta, [12, 4, 4 * outputs, outputs])
    return torch.tanh(x @ W1.view(4, 3).T + b1) @ W2.view(outputs, 4).T + b2


def both(kind, size, layout, temperature=0.8):
    """The engine and the reference on a network of 3-4-outputs with tanh."""
    given, noise, loss = KINDS[kind]
    posterior = hb.Posterior(prior=(0.7, 1.5), temperature=temperature, **noise)
    likelihood, network = Likelihood(given, posterior), hb.Dense((4,), "tanh")
    partition = hb.Partition(LANGEVIN, 0.05, posterior)
    settled = settle(partition, network, given, size)
    layers = network.layers(3, likelihood.outputs)
    program = compile_program(partition, layers, True, False, settled.parts)
    count = network.parameters(3, likelihood.outputs)
    theta = 0.5 * np.random.default_rng(1).standard_normal((3, count))
    shape = Shape((3, 4, likelihood.outputs), ACTIVATIONS["tanh"].number, likelihood.number)
    data = tabulate(given.X_train, given.Y_train, np.float64)
    engine = Ensemble(program, shape, theta, data, size, seed=7, layout=layout)
    x, y = torch.tensor(given.X_train[0]), torch.tensor(given.Y_train[0])

    def gradient(theta, step):
        made = []
        for c, row in enumerate(theta):
            chosen = batch(7, c, step, 20, size) if size < 20 else slice(None)
            parameters = torch.tensor(row, requires_grad=True)
            loss(module(parameters, x[chosen], likelihood.outputs), y[chosen], None).mean().backward()
            made.append(parameters.grad.numpy())
        return np.array(made)

    return engine, hb.Reference(gradient, theta, partition, layers, seed=7, settled=settled)


@pytest.mark.parametrize("layout", [Alone(), Group(lanes(np.float64))])
@pytest.mark.parametrize("size", [20, 6])
@pytest.mark.parametrize("kind", KINDS)
def test_the_engine_follows_the_reference(kind, size, layout):
    engine, reference = both(kind, size, layout)
    start = reference.state.theta.copy()
    for _ in range(3):
        engine.advance(20)
        reference.advance(20)
        np.testing.assert_allclose(engine.chains.theta, reference.state.theta, rtol=0, atol=1e-10)
        np.testing.assert_allclose(engine.chains.p, reference.state.p, rtol=0, atol=1e-10)
    assert (np.abs(reference.state.theta - start) > 1e-3).any(axis=1).all()


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_and_their_squares_are_those_of_autograd(kind):
    given, noise, loss = KINDS[kind]
    likelihood, network = Likelihood(given, hb.Posterior(**noise)), hb.Dense((4,), "tanh")
    theta = torch.tensor(
        0.5 * np.random.default_rng(2).standard_normal(network.parameters(3, likelihood.outputs))
    )
    x, y = torch.tensor(given.X_train[0]), torch.tensor(given.Y_train[0])

    def losses(theta):
        return loss(module(theta, x, likelihood.outputs), y, None)

    single = torch.func.jacrev(losses)(theta).numpy()
    mean, square = gradient_moments(network, theta.numpy(), likelihood, 0)
    np.testing.assert_allclose(mean, single.mean(axis=0), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(square, (single**2).mean(axis=0), rtol=1e-10, atol=1e-12)


# Laws


def off(values, expected, scale):
    """How many standard errors the mean over chains is off, where these are below 2 % of the scale."""
    per_chain = values.mean(axis=1)
    error = per_chain.std(axis=0, ddof=1) / np.sqrt(len(per_chain))
    assert (error < 0.02 * scale).all()
    return np.abs(per_chain.mean(axis=0) - expected) / error


def on_grid(log_density, axes):
    """Means and variances of the coordinates under a density that is known up to a factor."""
    grid = np.meshgrid(*axes, indexing="ij")
    logs = log_density(*grid)
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    for axis in range(len(axes)):  # it has all of the density
        ends = np.take(weights, [0, -1], axis=axis)
        assert ends.max() < 1e-9 * weights.max()
    means = np.array([(weights * g).sum() for g in grid])
    return means, np.array([(weights * (g - m) ** 2).sum() for g, m in zip(grid, means, strict=True)])


def sampled(given, posterior, h, steps=6000, chains=64):
    run = hb.train(
        given, hb.Dense(()), hb.Partition(LANGEVIN, h, posterior), steps, given.X_train.shape[1], chains,
        samples=steps // 4, thin=2, dtype="float64", momenta="thermal", record=1, seed=1,
    )  # fmt: skip
    return run.data["samples"].values


def assert_law(samples, law, temperature):
    """Means and variances are those at this temperature, and not at another."""
    means, variances = law(temperature)
    scale = np.sqrt(variances)
    assert (off(samples, means, scale) < 3).all()
    assert (off((samples - means) ** 2, variances, 2 * variances) < 3).all()
    _, others = law(0.85 * temperature)
    assert (off((samples - means) ** 2, others, 2 * variances) > 6).all()


@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_a_linear_model_of_counts_has_the_posterior_that_is_known(temperature):
    rng = np.random.default_rng(0)
    x = rng.standard_normal(25)
    y = rng.poisson(np.exp(0.4 + 0.7 * x))

    def law(T):
        def log_density(w, b):
            f = w[..., None] * x + b[..., None]
            return ((y * f - np.exp(f)).sum(-1) - (w**2 + b**2) / (2 * 1.5**2)) / T

        return on_grid(log_density, [np.linspace(-1.5, 3.0, 301)] * 2)

    given = problem("counts", x[:, None], y[:, None].astype(float))
    assert_law(sampled(given, hb.Posterior(1.5, temperature=temperature), 0.2), law, temperature)


@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_mean_and_log_variance_have_the_posterior_that_is_known(temperature):
    """The inputs are 0, so that the biases alone say something."""
    y = 0.6 + 0.5 * np.random.default_rng(0).standard_normal(30)

    def law(T):
        def log_density(f, v):
            squares = ((y - f[..., None]) ** 2).sum(-1)
            return (-0.5 * (np.exp(-v) * squares + len(y) * v) - (f**2 + v**2) / (2 * 1.2**2)) / T

        return on_grid(log_density, [np.linspace(-1.5, 2.5, 401), np.linspace(-4.0, 2.0, 401)])

    given = problem("regression", np.zeros((30, 1)), y[:, None])
    samples = sampled(given, hb.Posterior(1.2, "network", temperature), 0.15)
    assert_law(samples[..., 2:], law, temperature)


# Runs


def trained(kind, steps=400, **options):
    given, noise, _ = KINDS[kind]
    sampling = hb.LaLa(h=0.1, gamma=1.0, posterior=hb.Posterior(temperature=0.9, **noise))
    settings = {"samples": 8, "record": 8, "seed": 3} | options
    return hb.train(given, hb.Dense((6,), "tanh"), sampling, steps, 8, 3, **settings)


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_is_the_same_saved_resumed_and_replayed(kind, tmp_path):
    run = trained(kind, average=X[:4])
    run.save(tmp_path / "run.nc")
    loaded = hb.load(tmp_path / "run.nc")
    xr.testing.assert_identical(run.data, loaded.data)
    assert loaded.partition == run.partition
    xr.testing.assert_identical(run.data, loaded.replay().data)
    trained(kind, steps=200).save(tmp_path / "half.nc")
    longer = hb.load(tmp_path / "half.nc").resume(200)
    for name in {"theta", "p", "noise_now"} & set(run.data):
        np.testing.assert_array_equal(longer.data[name], run.data[name], err_msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_a_network_has_its_outputs_everywhere(kind):
    run, outputs = trained(kind, weights=True), 4 if kind == "network" else 2
    assert run.theta.shape[1] == run.plan.parameters == 4 * 6 + 7 * outputs
    assert f"3-6-{outputs}, tanh" in repr(run)
    assert run.outputs(X).shape == (3, 20, 2)
    assert hb.plotting.parameters(run, "layer2.bias").shape == (3, 8, outputs)
    shares = hb.diagnostics.distributions(run, np.linspace(-9, 9, 5))
    assert 4.5 * shares["layer2.bias"].sum(...).item() == pytest.approx(3 * 8)
    assert set(hb.diagnostics.equipartition(run, by="layer")["layer"].values) == {"layer1", "layer2"}
    assert np.isfinite(hb.diagnostics.gradient_noise(run)).all()
    said = run.to_torch(1)(torch.tensor(X, dtype=torch.float32)).detach().double().numpy()
    assert said.shape == (20, outputs)
    values = np.exp(said) if kind == "counts" else said[:, :2]
    np.testing.assert_allclose(values, run.outputs(X)[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_the_temperature_of_a_run_is_that_of_its_posterior(kind):
    given, noise, _ = KINDS[kind]
    sampling = hb.Partition(LANGEVIN, 0.1, hb.Posterior(0.4, temperature=0.6, **noise))
    run = hb.train(given, hb.Dense(()), sampling, 8000, 20, 32, samples=200, dtype="float64", record=400)
    table = hb.diagnostics.configurational(run)
    assert table["target"].item() == pytest.approx(0.6 / 20)
    assert table["ratio"].item() == pytest.approx(1, abs=0.06)
    assert table["p_value"].item() > 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_predicted_of_new_data_has_their_noise(kind):
    """Of samples, of chains and of steps; by hand from the outputs of every sample."""
    given, noise, _ = KINDS[kind]
    scaled = kind != "counts"
    if scaled:
        given = problem("regression", X, VALUES, target_scale=np.array([2.0, 0.5]), target_shift=np.ones(2))
    sampling = hb.LaLa(h=0.1, gamma=1.0, posterior=hb.Posterior(**noise))
    run = hb.train(
        given, hb.Dense((6,), "tanh"), sampling, 400, 8, 3, samples=50, thin=1, average=X, dtype="float64"
    )
    f = np.array(
        [run.network.forward(t, X, 4 if scaled else 2) for t in run.data["samples"].values.reshape(150, -1)]
    )
    if scaled:
        means, variances = f[..., :2] * [2.0, 0.5] + 1, np.exp(f[..., 2:]) * [4.0, 0.25]
    else:
        means = variances = np.exp(f)
    said, law = run.predict(X), run.predictive(X)
    for one, exact in ((said, 1e-10), (run.predict(over="steps"), 1e-9)):
        np.testing.assert_allclose(one.mean, means.mean(axis=0), rtol=exact)
        np.testing.assert_allclose(one.noise, variances.mean(axis=0), rtol=exact)
        np.testing.assert_allclose(one.variance, means.var(axis=0) + variances.mean(axis=0), rtol=exact)
    assert (run.predict(X, over="chains").noise > 0).all()
    np.testing.assert_allclose(law.mean, said.mean, rtol=1e-10)
    np.testing.assert_allclose(law.sd, said.sd, rtol=1e-10)
    np.testing.assert_allclose(law.deviations**2, variances, rtol=1e-10)


def test_a_rate_that_overflows_is_a_divergence():
    given = KINDS["counts"].problem
    start = np.zeros((3, 8))
    start[1, -1] = 100.0  # exp(100) is beyond float32
    sampling = hb.Partition(LANGEVIN, 0.1, hb.Posterior())
    with pytest.warns(hb.Diverged, match="chain 1 at step 0"):
        run = hb.train(given, hb.Dense(()), sampling, 20, 20, 3, start=start, samples=5)
    assert run.died.tolist() == [-1, 0, -1]
    with pytest.raises(FloatingPointError, match="all chains diverged"):
        hb.train(given, hb.Dense(()), sampling, 20, 20, 3, start=start[1])
    far = np.full((1, 3), 1e9)  # and elsewhere networks may say what they like
    for found in (run.predict(far), run.predict(far, over="chains")):
        assert np.isfinite(found.mean).all()
        assert np.isfinite(found.sd).all()
    law = run.predictive(far)
    assert np.isfinite(law.draw()).all()
    assert (law.quantiles(0.5) >= 0).all()


def test_a_variance_that_vanishes_is_a_divergence():
    given = KINDS["network"].problem
    start = np.zeros(16)
    start[-1] = -1000.0
    sampling = hb.Partition(LANGEVIN, 0.1, hb.Posterior(noise="network"))
    with pytest.raises(FloatingPointError, match="all chains diverged"):
        hb.train(given, hb.Dense(()), sampling, 20, 20, 2, start=start)


def test_counts_are_read_from_arrays_and_files(tmp_path):
    path = tmp_path / "visits.csv"
    path.write_text("a,visits\n" + "".join(f"{0.1 * i},{i % 4}\n" for i in range(20)))
    given = hb.datasets.from_csv(path, "visits", task="counts")
    assert (given.task, given.targets, given.outputs) == ("counts", ("visits",), 1)
    assert set(given.Y_train.ravel()) <= {0.0, 1.0, 2.0, 3.0}  # not scaled, although the inputs are
    assert given.scale.item() != 1
    assert hb.datasets.from_arrays(X, COUNTS, task="counts").targets == ("y1", "y2")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: hb.datasets.from_arrays(X, COUNTS - 1, task="counts"), "whole numbers from 0 on .* got -1"),
        (lambda: hb.datasets.from_arrays(X, COUNTS + 0.5, task="counts"), "task 'regression'"),
        (
            lambda: hb.datasets.from_arrays(X, ["a"] * 20, task="counts"),
            "must hold numbers for task 'counts'",
        ),
        (lambda: problem("counts", X, COUNTS - 1), "Y_train must hold whole numbers"),
        (lambda: problem("counts", X, COUNTS, target_scale=np.array([2.0])), "counts are not scaled"),
        (lambda: hb.Posterior(noise="networks"), "'sampled' or 'network'"),
        (lambda: Likelihood(KINDS["counts"].problem, hb.Posterior(noise="network")), "for a regression"),
        (lambda: Likelihood(KINDS["counts"].problem, hb.Posterior(noise=1.0)), "for a regression"),
        (
            lambda: hb.compare(
                KINDS["network"].problem,
                hb.Dense(()),
                {
                    "one": hb.Partition(LANGEVIN, 0.1, hb.Posterior(noise="network")),
                    "other": hb.Partition(LANGEVIN, 0.1, hb.Posterior()),
                },
                steps=100,
            ),
            "one with 4, other with 2",
        ),
    ],
)
def test_what_cannot_work_is_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()
