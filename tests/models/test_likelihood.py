"""Likelihoods: counts, Student's law, variances that the network says. Laws, trajectories, predictions."""

from typing import NamedTuple

import numpy as np
import pytest
import xarray as xr
from scipy import stats

import heatbath as hb
from heatbath.cli import main
from heatbath.diagnostics.gradients import gradient_moments
from heatbath.engine.batches import tabulate
from heatbath.engine.dense_shape import Shape
from heatbath.engine.ensemble import Ensemble
from heatbath.engine.layouts import Alone, LaneGroup
from heatbath.engine.program import compile_program
from heatbath.engine.simd import lane_count
from heatbath.models.dense import ACTIVATIONS
from heatbath.models.likelihood import SCALE, SHAPE, Likelihood, settle
from heatbath.reference.random import TAIL, batch, example_gammas
from tests.optional import optional

torch = optional("torch")

LANGEVIN = hb.Langevin(gamma=1.0)


def draw_inputs_values_and_counts():
    rng = np.random.default_rng(5)
    inputs, values = rng.standard_normal((20, 3)), rng.standard_normal((20, 2)) * [1.0, 3.0]
    return inputs, values, rng.poisson(2.0, (20, 2)).astype(float)


X, VALUES, COUNTS = draw_inputs_values_and_counts()


def make_problem(task, x, y, **options):
    """Return a problem without test examples."""
    names = [tuple(f"{letter}{i}" for i in range(a.shape[1])) for letter, a in (("x", x), ("y", y))]
    return hb.datasets.Problem("made", task, x[None], y[None], x[None, :0], y[None, :0], *names, **options)


class Kind(NamedTuple):
    """A likelihood: its problem, its posterior of the noise, and the loss of each example in torch.

    The loss is a function of outputs, targets and variances.
    """

    problem: hb.datasets.Problem
    noise: object
    loss: object


def varying_loss(z, y, _):
    f, v = z.chunk(2, dim=1)
    return ((-v).exp() * (y - f) ** 2 + v).sum(1) / 2


def student_loss(z, y, variances, degrees=4.0):
    mean = np.exp(np.log(variances).mean())
    s2 = torch.tensor(variances)
    return (mean * (degrees + 1) / 2 * torch.log1p((y - z) ** 2 / (degrees * s2))).sum(1)


KINDS = {
    "counts": Kind(make_problem("counts", X, COUNTS), {}, lambda z, y, _: (z.exp() - y * z).sum(1)),
    "network": Kind(make_problem("regression", X, VALUES), {"noise": "network"}, varying_loss),
    "Student, known": Kind(
        make_problem("regression", X, VALUES), {"noise": (0.4, 1.5), "degrees": 4.0}, student_loss
    ),
    "Student": Kind(make_problem("regression", X, VALUES), {"degrees": 4.0}, student_loss),
}
KNOWN = np.array([0.4, 1.5]) ** 2


# The engine and the reference


def module(theta, x, outputs):
    W1, b1, W2, b2 = torch.split(theta, [12, 4, 4 * outputs, outputs])
    return torch.tanh(x @ W1.view(4, 3).T + b1) @ W2.view(outputs, 4).T + b2


def engine_and_reference(kind, size, layout, temperature=0.8):
    """Return the engine and the reference on a network of 3-4-outputs with tanh."""
    given, noise, loss = KINDS[kind]
    posterior = hb.Posterior(prior=(0.7, 1.5), temperature=temperature, **noise)
    likelihood, network = Likelihood(given, posterior), hb.MLP((4,), "tanh")
    partition = hb.Partition(LANGEVIN, 0.05, posterior)
    settled = settle(partition, network, given, size)
    settled = settled._replace(draws=settled.draws and settled.draws._replace(every=5))
    layers = network.layers(3, likelihood.outputs)
    program = compile_program(partition, layers, True, settled.draws is not None, settled.parts)
    count = network.parameters(3, likelihood.outputs)
    theta = 0.5 * np.random.default_rng(1).standard_normal((3, count))
    sizes = 3, 4, likelihood.outputs
    shape = Shape(sizes, ACTIVATIONS["tanh"].number, likelihood.number, likelihood.degrees)
    data = tabulate(given.X_train, given.Y_train, np.float64)
    engine = Ensemble(
        program, shape, theta, data, size, seed=7, layout=layout,
        noise=settled.for_chains(3), variance=settled.draws,
    )  # fmt: skip
    x, y = torch.tensor(given.X_train[0]), torch.tensor(given.Y_train[0])

    def gradient(theta, step, shares=None, variances=(None,) * 3):
        if shares is not None:
            mean = np.exp(np.log(variances).mean(axis=1, keepdims=True))
            np.testing.assert_allclose(shares, mean / variances)
        made = []
        for c, row in enumerate(theta):
            chosen = batch(7, c, step, 20, size) if size < 20 else slice(None)
            parameters = torch.tensor(row, requires_grad=True)
            loss(module(parameters, x[chosen], likelihood.outputs), y[chosen], variances[c]).mean().backward()
            made.append(parameters.grad.numpy())
        return np.array(made)

    def squares(theta):
        return np.array([(module(torch.tensor(row), x, 2) - y).square().numpy() for row in theta])

    return engine, hb.Reference(gradient, theta, partition, layers, seed=7, settled=settled, squares=squares)


@pytest.mark.parametrize("layout", [Alone(), LaneGroup(lane_count(np.float64))])
@pytest.mark.parametrize("size", [20, 6])
@pytest.mark.parametrize("kind", KINDS)
def test_the_engine_follows_the_reference(kind, size, layout):
    engine, reference = engine_and_reference(kind, size, layout)
    assert_alike(engine, reference)


def assert_alike(engine, reference):
    start = reference.state.theta.copy()
    for _ in range(3):
        engine.advance(20)
        reference.advance(20)
        np.testing.assert_allclose(engine.chains.theta, reference.state.theta, rtol=0, atol=1e-10)
        size = max(1, np.abs(reference.state.p).max())  # in units of a deviation, where it is sampled
        np.testing.assert_allclose(engine.chains.p, reference.state.p, rtol=0, atol=1e-10 * size)
        np.testing.assert_allclose(engine.chains.noise, reference.state.noise, rtol=1e-10)
    assert (np.abs(reference.state.theta - start) > 1e-3).any(axis=1).all()


@pytest.mark.parametrize("layout", [Alone(), LaneGroup(lane_count(np.float64))])
def test_the_engine_follows_the_reference_where_numbers_of_examples_have_a_shape_below_1(layout):
    engine, reference = engine_and_reference("Student", 20, layout, temperature=4.0)
    assert (reference.draws.tails < 1).all()
    assert_alike(engine, reference)
    assert (np.abs(np.log(reference.state.noise / reference.state.noise[0])[1:]) > 1e-3).all()


def test_more_examples_than_there_are_in_a_tile_have_numbers_of_their_own():
    """200 examples, in chunks that are none of tiles; of one alone, and in a group."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((200, 1)), rng.standard_t(4, (200, 1))
    given, posterior = make_problem("regression", x, y), hb.Posterior(degrees=4.0)
    runs = [
        hb.train(
            given, hb.MLP(()), hb.Partition(LANGEVIN, 0.1, posterior), 200, 70, chains, dtype="float64",
            record=1, seed=2,
        )
        for chains in (1, 8)
    ]  # fmt: skip
    np.testing.assert_array_equal(runs[0].data["noise_now"][0], runs[1].data["noise_now"][0])
    np.testing.assert_array_equal(runs[0].theta[0], runs[1].theta[0])
    partition = runs[0].partition
    settled = settle(partition, hb.MLP(()), given, 70)

    def gradient(theta, step, shares, variances):
        made = []
        for c, (w, b) in enumerate(theta):
            chosen = batch(2, c, step, 200, 70)
            r = w * x[chosen, 0] + b - y[chosen, 0]
            back = r * 5 / (4 + r**2 / variances[c, 0])
            made.append([(back * x[chosen, 0]).mean(), back.mean()])
        return np.array(made)

    def squares(theta):
        return (theta[:, :1] * x[:, 0] + theta[:, 1:] - y[:, 0])[..., None] ** 2

    start = hb.MLP(()).start(1, 1, np.arange(8), 2)
    layers = hb.MLP(()).layers(1, 1)
    reference = hb.Reference(gradient, start, partition, layers, seed=2, settled=settled, squares=squares)
    reference.advance(200)
    np.testing.assert_allclose(runs[1].data["noise_now"], reference.state.noise, rtol=1e-10)
    np.testing.assert_allclose(runs[1].theta, reference.state.theta, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_and_their_squares_are_those_of_autograd(kind):
    given, noise, loss = KINDS[kind]
    likelihood, network = Likelihood(given, hb.Posterior(**noise)), hb.MLP((4,), "tanh")
    theta = torch.tensor(
        0.5 * np.random.default_rng(2).standard_normal(network.parameters(3, likelihood.outputs))
    )
    x, y = torch.tensor(given.X_train[0]), torch.tensor(given.Y_train[0])

    variances = KNOWN if kind.startswith("Student") else None

    def losses(theta):
        return loss(module(theta, x, likelihood.outputs), y, variances)

    single = torch.func.jacrev(losses)(theta).numpy()
    mean, square = gradient_moments(network, theta.numpy(), likelihood, 0, variances)
    np.testing.assert_allclose(mean, single.mean(axis=0), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(square, (single**2).mean(axis=0), rtol=1e-10, atol=1e-12)


# Laws


def standard_errors_off(values, expected, scale):
    """Return by how many standard errors the mean over chains is off.

    Check that these are below 2 % of the scale.
    """
    per_chain = values.mean(axis=1)
    error = per_chain.std(axis=0, ddof=1) / np.sqrt(len(per_chain))
    assert (error < 0.02 * scale).all()
    return np.abs(per_chain.mean(axis=0) - expected) / error


def moments_on_grid(log_density, axes):
    """Return means and variances of the coordinates under a density known up to a factor."""
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
    return hb.train(
        given, hb.MLP(()), hb.Partition(LANGEVIN, h, posterior), steps, given.X_train.shape[1], chains,
        samples=steps // 4, thin=2, dtype="float64", momenta="thermal", record=1, seed=1,
    )  # fmt: skip


def assert_law(samples, law, temperature):
    """Check that means and variances are those at this temperature, and not at another."""
    means, variances = law(temperature)
    scale = np.sqrt(variances)
    assert (standard_errors_off(samples, means, scale) < 3).all()
    assert (standard_errors_off((samples - means) ** 2, variances, 2 * variances) < 3).all()
    _, others = law(0.85 * temperature)
    assert (standard_errors_off((samples - means) ** 2, others, 2 * variances) > 6).all()


@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_a_linear_model_of_counts_has_the_posterior_that_is_known(temperature):
    rng = np.random.default_rng(0)
    x = rng.standard_normal(25)
    y = rng.poisson(np.exp(0.4 + 0.7 * x))

    def law(T):
        def log_density(w, b):
            f = w[..., None] * x + b[..., None]
            return ((y * f - np.exp(f)).sum(-1) - (w**2 + b**2) / (2 * 1.5**2)) / T

        return moments_on_grid(log_density, [np.linspace(-1.5, 3.0, 301)] * 2)

    given = make_problem("counts", x[:, None], y[:, None].astype(float))
    run = sampled(given, hb.Posterior(1.5, temperature=temperature), 0.2)
    assert_law(run.data["samples"].values, law, temperature)


@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_mean_and_log_variance_have_the_posterior_that_is_known(temperature):
    """The inputs are 0, so that the biases alone say something."""
    y = 0.6 + 0.5 * np.random.default_rng(0).standard_normal(30)

    def law(T):
        def log_density(f, v):
            squares = ((y - f[..., None]) ** 2).sum(-1)
            return (-0.5 * (np.exp(-v) * squares + len(y) * v) - (f**2 + v**2) / (2 * 1.2**2)) / T

        return moments_on_grid(log_density, [np.linspace(-1.5, 2.5, 401), np.linspace(-4.0, 2.0, 401)])

    given = make_problem("regression", np.zeros((30, 1)), y[:, None])
    run = sampled(given, hb.Posterior(1.2, "network", temperature), 0.15)
    assert_law(run.data["samples"].values[..., 2:], law, temperature)


def student_law(T, x, y, axes, noise=None, degrees=4.0, prior=1.5):
    """Return the law of a weight, if there are inputs, of a bias and, unless it is known, of log s²."""
    v = y.var()

    def log_density(*grid):
        *theta, last = grid if noise is None else (*grid, np.log(noise**2) * np.ones_like(grid[0]))
        f = theta[-1][..., None] + (theta[0][..., None] * x if x is not None else 0)
        s2 = np.exp(last)
        tails = np.log1p((y - f) ** 2 / (degrees * s2[..., None])).sum(-1)
        energy = (degrees + 1) / 2 * tails + len(y) / 2 * last + sum(t**2 for t in theta) / (2 * prior**2)
        if noise is not None:
            return -energy / T
        return -(energy + (SHAPE + 1) * last + SCALE * v / s2) / T + last  # the last for d log s²

    return moments_on_grid(log_density, axes)


Y = 0.4 + 0.5 * np.random.default_rng(3).standard_t(4, 30)


@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_a_linear_model_with_known_noise_of_students_law_has_the_posterior_that_is_known(temperature):
    x = np.random.default_rng(4).standard_normal(30)
    given = make_problem("regression", x[:, None], (Y + 0.5 * x)[:, None])
    posterior = hb.Posterior(1.5, 0.3, temperature, degrees=4.0)

    def law(T):
        return student_law(T, x, Y + 0.5 * x, [np.linspace(-1, 1.5, 301)] * 2, 0.3)

    assert_law(sampled(given, posterior, 0.3).data["samples"].values, law, temperature)


@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_location_and_scale_of_students_law_have_the_posterior_that_is_known(temperature, monkeypatch):
    """The input is 0, so that the bias alone says something."""
    monkeypatch.setattr(
        "heatbath.models.likelihood.FEWEST_STEPS_BETWEEN_DRAWS", 10
    )  # more draws in a short run
    given = make_problem("regression", np.zeros((30, 1)), Y[:, None])

    def law(T):
        return student_law(T, None, Y, [np.linspace(-1.5, 2.0, 351), np.linspace(-6, 3, 401)])

    run = sampled(given, hb.Posterior(1.5, temperature=temperature, degrees=4.0), 0.3)
    bias, noise = run.data["samples"].values[..., 1], run.data["sample_noise"].values[..., 0]
    assert_law(np.stack([bias, np.log(noise)], axis=-1), law, temperature)


@pytest.mark.parametrize("temperature", [1.0, 0.5, 3.0])
def test_a_draw_of_the_variance_leaves_its_law_given_the_residuals_as_it_is(temperature):
    """Chains start with s² from its law at fixed residuals; one draw, by the reference; and a wrong one."""
    r2, count = (Y - 0.4) ** 2, 20_000
    given, network = make_problem("regression", np.zeros((30, 1)), Y[:, None]), hb.MLP(())
    partition = hb.Partition(LANGEVIN, 0.1, hb.Posterior(temperature=temperature, degrees=4.0))
    settled = settle(partition, network, given, 30)
    logs = np.linspace(-12, 8, 40_001)
    energy = 2.5 * np.log1p(r2 / (4 * np.exp(logs)[:, None])).sum(1) + (30 / 2 + SHAPE + 1) * logs
    energy += SCALE * Y.var() * np.exp(-logs)
    density = np.exp(-(energy - energy.min()) / temperature + logs - logs[energy.argmin()])
    distribution = np.cumsum(density) / density.sum()

    def p_value(tails):
        draws = settled.draws._replace(every=1, tails=tails)
        start = np.interp(np.random.default_rng(0).random(count), distribution, logs)
        reference = hb.Reference(
            lambda theta, *_: np.zeros_like(theta), np.zeros((count, 2)), partition, network.layers(1, 1),
            settled=settled._replace(draws=draws), squares=lambda theta: np.tile(r2[:, None], (count, 1, 1)),
        )  # fmt: skip
        reference.advance(1)
        reference.state.noise[:, 0] = np.exp(start)
        reference.advance(1)
        drawn = np.log(reference.state.noise[:, 0])
        assert (drawn != start).all()
        return stats.kstest(drawn, lambda values: np.interp(values, logs, distribution)).pvalue

    assert p_value(settled.draws.tails) > 1e-3
    assert p_value(1.1 * settled.draws.tails) < 1e-6


@pytest.mark.parametrize("kind", KINDS)
def test_a_weight_of_two_is_two_examples(kind):
    """The same trajectories, up to the first draw of a variance, of which the law is the same."""
    given, noise, _ = KINDS[kind]
    x, y = given.X_train[0], given.Y_train[0]
    twice = make_problem(given.task, np.concatenate([x, x[:5]]), np.concatenate([y, y[:5]]))
    weighted = make_problem(given.task, x, y, weights_train=np.where(np.arange(20) < 5, 2.0, 1.0)[None])
    posterior = hb.Posterior(prior=0.7, temperature=0.8, **noise)
    runs = [
        hb.train(
            one, hb.MLP((4,), "tanh"), hb.Partition(LANGEVIN, 0.1, posterior), 50, one.X_train.shape[1], 3,
            dtype="float64", record=1,
        )
        for one in (twice, weighted)
    ]  # fmt: skip
    np.testing.assert_allclose(runs[0].theta, runs[1].theta, rtol=0, atol=1e-10)


def test_location_and_scale_of_students_law_with_weights_have_the_posterior_that_is_known(monkeypatch):
    monkeypatch.setattr("heatbath.models.likelihood.FEWEST_STEPS_BETWEEN_DRAWS", 10)
    weights = np.where(np.arange(15) < 10, 0.1, 3.0)  # shapes on both sides of 1
    y = Y[:15]
    v = np.average((y - np.average(y, weights=weights)) ** 2, weights=weights)

    def law(T):
        def log_density(b, last):
            s2 = np.exp(last)
            tails = (weights * np.log1p((y - b[..., None]) ** 2 / (4 * s2[..., None]))).sum(-1)
            energy = 2.5 * tails + weights.sum() / 2 * last + b**2 / (2 * 1.5**2)
            return -(energy + (SHAPE + 1) * last + SCALE * v / s2) / T + last

        return moments_on_grid(log_density, [np.linspace(-1.5, 2.0, 351), np.linspace(-9, 4, 501)])

    given = make_problem("regression", np.zeros((15, 1)), y[:, None], weights_train=weights[None])
    run = sampled(given, hb.Posterior(1.5, temperature=0.5, degrees=4.0), 0.3)
    bias, noise = run.data["samples"].values[..., 1], run.data["sample_noise"].values[..., 0]
    assert_law(np.stack([bias, np.log(noise)], axis=-1), law, 0.5)


@pytest.mark.parametrize("shape", [0.4, 1.0, 2.5, 40.0])
def test_gamma_numbers_of_examples_have_their_law_and_are_not_correlated(shape):
    drawn = example_gammas(shape, 3, TAIL, 0, np.arange(40), 7, 1000)
    assert stats.kstest(drawn.ravel(), stats.gamma(shape).cdf).pvalue > 1e-3
    others = [
        drawn[1:],
        drawn[:, 1:],
        example_gammas(shape, 3, TAIL, 16, np.arange(40), 7, 1000),
        example_gammas(shape, 3, TAIL, 0, np.arange(40), 8, 1000),
    ]
    for other in others:
        here = drawn[: len(other), : other.shape[1]]
        assert abs(np.corrcoef(here.ravel(), other.ravel())[0, 1]) < 0.025
    np.testing.assert_array_equal(drawn[3:5, :70], example_gammas(shape, 3, TAIL, 0, [3, 4], 7, 70))


# Runs


def trained(kind, steps=400, **options):
    given, noise, _ = KINDS[kind]
    sampling = hb.LaLa(h=0.1, gamma=1.0, posterior=hb.Posterior(temperature=0.9, **noise))
    settings = {"samples": 8, "record": 8, "seed": 3} | options
    return hb.train(given, hb.MLP((6,), "tanh"), sampling, steps, 8, 3, **settings)


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
    run = hb.train(given, hb.MLP(()), sampling, 8000, 20, 32, samples=200, dtype="float64", record=400)
    table = hb.diagnostics.configurational(run)
    unit = np.prod(KNOWN) ** 0.5 if kind == "Student, known" else 1.0
    assert table["target"].item() == pytest.approx(0.6 / 20 * unit)
    assert table["ratio"].item() == pytest.approx(1, abs=0.06)
    assert table["p_value"].item() > 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_predicted_of_new_data_has_their_noise(kind):
    """Predictions of samples, chains and steps are compared with the outputs of every sample by hand."""
    given, noise, _ = KINDS[kind]
    scale, shift, count = np.ones(2), np.zeros(2), 4 if kind == "network" else 2
    if kind != "counts":
        scale, shift = np.array([2.0, 0.5]), np.ones(2)
        given = make_problem("regression", X, VALUES, target_scale=scale, target_shift=shift)
    sampling = hb.LaLa(h=0.1, gamma=1.0, posterior=hb.Posterior(**noise))
    run = hb.train(
        given, hb.MLP((6,), "tanh"), sampling, 400, 8, 3, samples=50, thin=1, average=X, dtype="float64"
    )
    thetas = run.data["samples"].values.reshape(150, -1)
    f = np.array([run.network.forward(theta, X, count) for theta in thetas])
    means = np.exp(f) if kind == "counts" else f[..., :2] * scale + shift
    s2 = {
        "counts": lambda: means,
        "network": lambda: np.exp(f[..., 2:]) * scale**2,
        "Student, known": lambda: np.tile(KNOWN, (150, 1)),
        "Student": lambda: run.data["sample_noise"].values.reshape(150, 2) * scale**2,
    }[kind]()
    variances = 2 * s2 if "degrees" in noise else s2
    said, law, steps = run.predict(X), run.predictive(X), run.predict(over="steps")
    rough = 0.3 if kind == "Student" else 1e-9  # with those of the records
    for one, exact in ((said, 1e-10), (steps, rough)):
        np.testing.assert_allclose(one.mean, means.mean(axis=0), rtol=1e-9)
        np.testing.assert_allclose(one.noise, variances.mean(axis=0), rtol=exact)
        np.testing.assert_allclose(one.variance - one.noise, means.var(axis=0), rtol=1e-6)
    assert (run.predict(X, over="chains").noise > 0).all()
    np.testing.assert_allclose(law.mean, said.mean, rtol=1e-10)
    np.testing.assert_allclose(law.sd, said.sd, rtol=1e-10)
    np.testing.assert_allclose(law.deviations**2, s2, rtol=1e-10)
    if "degrees" in noise:
        y = given.Y_train[0] * scale + shift
        parts = stats.t(4, means, np.sqrt(s2)[:, None])
        np.testing.assert_allclose(law.log_density(y), np.log(parts.pdf(y).mean(axis=0)), rtol=1e-10)


@pytest.mark.parametrize("degrees", [1.0, 2.0])
def test_with_two_degrees_or_less_the_variance_is_infinite_and_quantiles_are_not(degrees):
    given, sampling = KINDS["Student"].problem, hb.Posterior(degrees=degrees)
    run = hb.train(given, hb.MLP(()), hb.Partition(LANGEVIN, 0.1, sampling), 400, 8, 3, samples=20)
    said = run.predict(X)
    assert np.isinf(said.sd).all()
    assert np.isinf(said.noise).all()
    assert np.isfinite(said.mean).all()
    low, high = run.predictive(X).interval(0.9)
    assert (np.isfinite(low) & np.isfinite(high) & (low < high)).all()


def test_a_rate_that_overflows_is_a_divergence():
    given = KINDS["counts"].problem
    start = np.zeros((3, 8))
    start[1, -1] = 100.0  # exp(100) is beyond float32
    sampling = hb.Partition(LANGEVIN, 0.1, hb.Posterior())
    with pytest.warns(hb.DivergedWarning, match="chain 1 at step 0"):
        run = hb.train(given, hb.MLP(()), sampling, 20, 20, 3, start=start, samples=5)
    assert run.died.tolist() == [-1, 0, -1]
    with pytest.raises(FloatingPointError, match="all chains diverged"):
        hb.train(given, hb.MLP(()), sampling, 20, 20, 3, start=start[1])
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
        hb.train(given, hb.MLP(()), sampling, 20, 20, 2, start=start)


def test_counts_are_read_from_arrays_and_files(tmp_path):
    path = tmp_path / "visits.csv"
    path.write_text("a,visits\n" + "".join(f"{0.1 * i},{i % 4}\n" for i in range(20)))
    given = hb.from_table(path, "visits", task="counts")
    assert (given.task, given.targets, given.outputs) == ("counts", ("visits",), 1)
    assert set(given.Y_train.ravel()) <= {0.0, 1.0, 2.0, 3.0}  # not scaled, although the inputs are
    assert given.scale.item() != 1
    assert hb.datasets.from_arrays(X, COUNTS, task="counts").targets == ("y1", "y2")


def test_the_command_line_trains_on_counts_and_predicts_them(tmp_path, monkeypatch):
    monkeypatch.setattr("heatbath.cli.report.figures.draw_figures", lambda *arguments: [])
    path, out = tmp_path / "visits.csv", tmp_path / "run"
    path.write_text("a,visits\n" + "".join(f"{0.1 * i},{i % 4}\n" for i in range(20)))
    options = "--target visits --task counts --method lala --h 0.1 --gamma 1 --tau 0.01 --steps 50 --hidden 3"
    train = ["train", "--data", path, *options.split(), "--out", out]
    for words in (train, ["predict", out, path, "--coverage", "0.7", "--out", out / "said.csv"]):
        with pytest.raises(SystemExit) as end:
            main([str(word) for word in words])
        assert end.value.code == 0
    run = hb.load(out / "run.nc")
    assert run.problem.task == "counts"
    said = np.genfromtxt(out / "said.csv", delimiter=",", names=True)
    expected = run.predict(0.1 * np.arange(20)[:, None])
    np.testing.assert_allclose(said["prediction"], expected.mean[:, 0], rtol=1e-12)
    np.testing.assert_allclose(said["sd"], expected.sd[:, 0], rtol=1e-12)
    low, high = run.predictive(0.1 * np.arange(20)[:, None]).interval(0.7)
    np.testing.assert_array_equal(said["low"], low[:, 0])
    np.testing.assert_array_equal(said["high"], high[:, 0])


def test_a_torch_model_of_counts_predicts_them_with_their_noise():
    model = torch.nn.Linear(3, 2)
    states = [{name: (i + 1) * value for name, value in model.state_dict().items()} for i in range(3)]
    x = torch.tensor(X, dtype=torch.float32)
    said = hb.predict(model, states, x, task="counts")
    rates = torch.stack([torch.func.functional_call(model, state, (x,)).double().exp() for state in states])
    torch.testing.assert_close(said.mean, rates.mean(dim=0))
    torch.testing.assert_close(said.noise, said.mean)
    torch.testing.assert_close(said.variance, rates.var(dim=0, correction=0) + said.mean)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: hb.datasets.from_arrays(X, COUNTS - 1, task="counts"), "whole numbers >= 0 .* got -1"),
        (lambda: hb.datasets.from_arrays(X, COUNTS + 0.5, task="counts"), "task 'regression'"),
        (
            lambda: hb.datasets.from_arrays(X, ["a"] * 20, task="counts"),
            "must hold numbers for task 'counts'",
        ),
        (lambda: make_problem("counts", X, COUNTS - 1), "Y_train must hold whole numbers"),
        (lambda: make_problem("counts", X, COUNTS, target_scale=np.array([2.0])), "counts are not scaled"),
        (lambda: hb.Posterior(noise="networks"), "'sampled' or 'network'"),
        (lambda: Likelihood(KINDS["counts"].problem, hb.Posterior(noise="network")), "for a regression"),
        (lambda: Likelihood(KINDS["counts"].problem, hb.Posterior(noise=1.0)), "for a regression"),
        (
            lambda: Likelihood(KINDS["counts"].problem, hb.Posterior(degrees=3.0)),
            "degrees is for a regression",
        ),
        (lambda: hb.Posterior(noise="network", degrees=3.0), "leave them out with noise='network'"),
        (lambda: hb.Posterior(degrees=0.0), "degrees"),
        (lambda: hb.Posterior(degrees="few"), "degrees"),
        (
            lambda: hb.train(
                make_problem("regression", X, np.zeros((20, 1025))),
                hb.MLP(()),
                hb.Partition(LANGEVIN, 0.1, hb.Posterior(degrees=3.0)),
                steps=100,
            ),
            "up to 1024 targets",
        ),
        (
            lambda: hb.compare(
                KINDS["network"].problem,
                hb.MLP(()),
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
    with pytest.raises((ValueError, TypeError), match=words):
        make()
