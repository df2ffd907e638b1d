"""Posteriors: the law of θ and of the noise, through the engine, against what is known of it."""

from dataclasses import replace

import numpy as np
import pytest

import heatbath as hb
from heatbath.datasets.tasks import TASKS
from heatbath.engine.batches import tabulate
from heatbath.engine.dense_shape import Shape
from heatbath.engine.ensemble import Ensemble
from heatbath.engine.layouts import Alone, LaneGroup
from heatbath.engine.program import compile_program
from heatbath.engine.simd import lane_count
from heatbath.models.dense import ACTIVATIONS
from heatbath.models.likelihood import SCALE, SHAPE, settle, spread
from heatbath.reference.random import VARIANCE, batch, gammas
from tests.optional import optional

torch = optional("torch")

LANGEVIN = hb.Langevin(gamma=1.0)
POSTERIOR = hb.Posterior()


def linear_problem(n, targets=1, noise=(0.5, 0.2), features=3, seed=0):
    """Return a problem for a linear model with noise, with targets and inputs unscaled."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, features))
    W = rng.standard_normal((features, targets))
    Y = X @ W + 0.3 + np.array(noise[:targets]) * rng.standard_normal((n, targets))
    names = [f"y{k}" for k in range(targets)]
    empty = np.empty((1, 0, features)), np.empty((1, 0, targets))
    features = tuple(f"x{j}" for j in range(features))
    return hb.datasets.Problem("linear", "regression", X[None], Y[None], *empty, features, tuple(names))


def with_weights(given):
    """Return the problem with weights, whose sum is not the number of examples."""
    weights = np.random.default_rng(3).uniform(0.2, 3.0, given.X_train.shape[:2])
    return replace(given, weights_train=weights)


def weights_of(given):
    return np.ones(given.X_train.shape[1]) if given.weights_train is None else given.weights_train[0]


@pytest.fixture
def frequent_draws(monkeypatch):
    """Draw variances every ten steps, so that a short run has more of them."""
    monkeypatch.setattr("heatbath.models.likelihood.FEWEST_STEPS_BETWEEN_DRAWS", 10)


# The law of θ and the variance, of a linear model


def exact_law(given, k, posterior, deviations):
    """Return means and variances of θ of target k, and of log s², by quadrature."""
    X, y = given.X_train[0], given.Y_train[0, :, k]
    design, w = np.column_stack([X, np.ones(len(X))]), weights_of(given)
    n, counted = w.sum(), design.T * w
    precision = np.full(len(counted), 1 / deviations[0] ** 2)
    T, v = posterior.temperature, np.cov(y, aweights=w, ddof=0)
    logs = np.linspace(np.log(v) - 12, np.log(v) + 6, 20_001)
    s2 = np.exp(logs)
    V = np.linalg.inv(counted @ design / s2[:, None, None] + np.diag(precision))
    means = V @ (counted @ y) / s2[:, None]
    least, (ssr_of_least,), *_ = np.linalg.lstsq(design * np.sqrt(w)[:, None], y * np.sqrt(w), rcond=None)
    ssr = ssr_of_least + np.einsum("li,ij,lj->l", means - least, counted @ design, means - least)
    energy = n / 2 * logs + ssr / (2 * s2) + means**2 @ precision / 2 + (SHAPE + 1) * logs + SCALE * v / s2
    density = -energy / T + 0.5 * np.linalg.slogdet(V)[1] + logs  # the last for d log s²
    variances = T * np.diagonal(V, axis1=1, axis2=2)
    weights = np.exp(density - density.max())
    weights /= weights.sum()
    assert weights[0] < 1e-12
    assert weights[-1] < 1e-12
    mean = weights @ means
    variance = weights @ (variances + (means - mean) ** 2)
    log = weights @ logs
    return mean, variance, log, weights @ (logs - log) ** 2


def sample(given, posterior, method=LANGEVIN, h=0.5, chains=64, steps=6000, seed=1):
    """Return samples of θ (chain, sample, target, weights and bias) and log s² (chain, sample, target)."""
    n, outputs, inputs = given.X_train.shape[1], given.outputs, given.inputs
    run = hb.train(
        given, hb.MLP(()), hb.Partition(method, h, posterior), steps, n, chains, seed=seed, record=1,
        samples=steps // 4, thin=2, dtype="float64", momenta="thermal",
    )  # fmt: skip
    theta, noise = run.data["samples"].values, run.data["sample_noise"].values
    W = theta[..., : outputs * inputs].reshape(*theta.shape[:2], outputs, inputs)
    return np.concatenate([W, theta[..., outputs * inputs :, None]], axis=-1), np.log(noise)


def standard_errors_off(values, expected, scale=None):
    """Return by how many standard errors the mean over chains is off.

    Check that these are below 2 % of the scale.
    """
    per_chain = values.mean(axis=1)
    error = per_chain.std(axis=0, ddof=1) / np.sqrt(len(per_chain))
    assert (error < 0.02 * np.abs(expected if scale is None else scale)).all()
    return np.abs(per_chain.mean(axis=0) - expected) / error


def deviations_from_the_law(given, posterior, **options):
    """Return the standard errors by which means and variances of θ and log s² are off, over all targets."""
    theta, logs = sample(given, posterior, **options)
    wrong = []
    for k in range(given.outputs):
        mean, variance, log, of_log = exact_law(given, k, posterior, posterior.deviations([given.inputs]))
        wrong += [
            standard_errors_off(theta[:, :, k], mean, np.sqrt(variance)),
            standard_errors_off((theta[:, :, k] - mean) ** 2, variance),
            standard_errors_off(logs[:, :, k], log, np.sqrt(of_log)),
            standard_errors_off((logs[:, :, k] - log) ** 2, of_log),
        ]
    return np.concatenate([np.ravel(values) for values in wrong])


@pytest.mark.parametrize("temperature", [1.0, 0.3])
@pytest.mark.parametrize(
    "given",
    [linear_problem(30), linear_problem(30, 2), with_weights(linear_problem(30, 2)), linear_problem(1000)],
    ids=["30", "30, two targets", "30, weighted", "1000"],
)
def test_a_linear_model_with_unknown_noise_has_the_posterior_that_is_known(
    given, temperature, frequent_draws
):
    posterior = hb.Posterior(prior=0.7, temperature=temperature)
    steps = 12_000 if given.X_train.shape[1] < 100 else 4000
    wrong = deviations_from_the_law(given, posterior, steps=steps)
    assert (wrong < 3.5).all()
    assert np.mean(wrong**2) < 1.8


def test_the_temperature_for_noise_of_variance_1_is_another_law():
    given = linear_problem(30)
    partition = hb.Partition(LANGEVIN, 0.5, hb.Posterior(noise=1.0))
    run = hb.train(given, hb.MLP(()), partition, 12_000, 30, 64, samples=3000, dtype="float64", record=1)
    mean, variance, *_ = exact_law(given, 0, POSTERIOR, (1.0,))
    assert (standard_errors_off((run.data["samples"].values - mean) ** 2, variance) > 20).all()


def test_momenta_that_are_not_in_units_of_the_noise_give_another_law():
    """The control: s² drawn at every step, at little friction, by two loops that differ in one line."""
    given = linear_problem(10)
    X, y = np.column_stack([given.X_train[0], np.ones(10)]), given.Y_train[0, :, 0]
    h, a, scale, shape = 0.5, np.exp(-0.05 * 0.5), SCALE * spread(given)[0], SHAPE + 5
    _, _, log, of_log = exact_law(given, 0, POSTERIOR, (1.0,))

    def force(theta, s2):
        return ((y - theta @ X.T) @ X - s2[:, None] * theta) / 10

    def wrong_by(kept):
        rng = np.random.default_rng(0)
        theta, p, s2, logs = np.zeros((400, 4)), np.zeros((400, 4)), np.ones(400), []
        for step in range(3000):
            p = p + h / 2 * force(theta, s2)
            theta = theta + h / 2 * p
            p = a * p + np.sqrt(s2[:, None] / 10 * (1 - a * a)) * rng.standard_normal(p.shape)
            theta = theta + h / 2 * p
            p = p + h / 2 * force(theta, s2)
            new = (scale + ((y - theta @ X.T) ** 2).sum(1) / 2) / rng.gamma(shape, size=400)
            p = p if kept else p * np.sqrt(new / s2)[:, None]
            s2 = new
            if step > 500:
                logs.append(np.log(s2))
        return standard_errors_off((np.array(logs).T - log) ** 2, of_log)

    assert wrong_by(kept=False) < 4
    assert wrong_by(kept=True) > 8


@pytest.mark.parametrize(
    "given", [linear_problem(30, 2), with_weights(linear_problem(30, 2))], ids=["plain", "weighted"]
)
@pytest.mark.parametrize("noise", [0.5, (0.5, 0.1)])
@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_known_noise_gives_the_gaussian_that_is_known(given, noise, temperature):
    given = replace(given, target_scale=np.array([2.0, 0.5]))  # Y is what the network sees
    posterior = hb.Posterior(prior=0.7, noise=noise, temperature=temperature)
    partition = hb.Partition(LANGEVIN, 0.3, posterior)
    run = hb.train(
        given, hb.MLP(()), partition, 12_000, 30, 64, samples=3000, thin=2, dtype="float64", record=1
    )  # fmt: skip
    theta = run.data["samples"].values
    X = np.column_stack([given.X_train[0], np.ones(30)])
    counted = X.T * weights_of(given)
    for k in range(2):
        s = np.broadcast_to(noise, 2)[k] / given.target_scale[k]
        V = np.linalg.inv(counted @ X / s**2 + np.eye(4) / 0.7**2)
        mean = V @ counted @ given.Y_train[0, :, k] / s**2
        own = np.concatenate([theta[..., 3 * k : 3 * k + 3], theta[..., 6 + k, None]], axis=-1)
        variance = temperature * np.diag(V)
        assert (standard_errors_off(own, mean, np.sqrt(variance)) < 4).all()
        assert (standard_errors_off((own - mean) ** 2, variance) < 4).all()


# The engine and the reference

PARTITIONS = {
    "BAOAB": LANGEVIN,
    "OBABO": replace(LANGEVIN, word="OBABO"),
    "ABOBA, seen at the kick": replace(LANGEVIN, word="ABOBA"),
    "OBA": replace(LANGEVIN, word="OBA"),
    "two gradients": replace(LANGEVIN, word="BAOBA"),
    "overdamped": hb.Langevin(gamma=float("inf")),
    "SGLD": hb.SGLD(),
    "SGD": hb.SGD(),
    "Adam": hb.Adam(),
    "RMSprop": hb.RMSprop(),
    "momentum": hb.Momentum(mu=0.9),
    "adaptive": hb.AdaptiveLangevin(),
    "adaptive, F": hb.AdaptiveLangevin(word="BAFEFAB"),
    "AdLaLa": {"hidden": hb.AdaptiveLangevin(), "output": hb.Langevin(gamma=0.3)},
    "LOL": {"hidden": hb.Langevin(gamma=0.1), "output": hb.Langevin(gamma=float("inf"))},
}
SIZES = (3, 4, 2)


def torch_loss(parameters, shares, x, y):
    W1, b1, W2, b2 = torch.split(parameters, [12, 4, 8, 2])
    z = torch.tanh(x @ W1.view(4, 3).T + b1) @ W2.view(2, 4).T + b2
    return (shares * (y - z) ** 2 / 2).sum(1), y - z


def engine_and_reference(
    name, size, layout, rotated=True, temperature=1.0, prior=0.7, noise="sampled", every=5, weigh=lambda p: p
):
    """Return the engine and the reference for a partition, on 3-4-2 with tanh and two targets."""
    rng = np.random.default_rng(5)
    X, Y = rng.standard_normal((1, 20, 3)), rng.standard_normal((1, 20, 2)) * [1.0, 3.0]
    given = hb.datasets.Problem("two", "regression", X, Y, X[:, :0], Y[:, :0], ("a", "b", "c"), ("y", "z"))
    given = weigh(given)
    network = hb.MLP((4,), "tanh")
    posterior = hb.Posterior(prior, noise, temperature)
    partition = hb.Partition(PARTITIONS[name], 0.05, posterior)
    settled = settle(partition, network, given, size)
    draws = settled.draws and settled.draws._replace(every=every)
    settled = settled._replace(draws=draws)
    layers = network.layers(3, 2)
    program = compile_program(partition, layers, rotated, draws is not None, settled.parts)
    theta = 0.5 * rng.standard_normal((3, 26))
    shape = Shape(SIZES, ACTIVATIONS["tanh"].number, TASKS["regression"].number)
    engine = Ensemble(
        program, shape, theta, tabulate(X, Y, np.float64, given.relative_weights("train")), size, seed=7,
        layout=layout, noise=settled.for_chains(3), variance=draws,
    )  # fmt: skip
    x, y, w = torch.as_tensor(X[0]), torch.as_tensor(Y[0]), torch.as_tensor(weights_of(given))
    w = w / w.mean()

    def gradient(theta, step, shares):
        made = []
        for c, row in enumerate(theta):
            chosen = batch(7, c, step, 20, size) if size < 20 else slice(None)
            parameters = torch.tensor(row, requires_grad=True)
            losses, _ = torch_loss(parameters, torch.as_tensor(shares[c]), x[chosen], y[chosen])
            (w[chosen] * losses).mean().backward()
            made.append(parameters.grad.numpy())
        return np.array(made)

    def squares(theta):
        residuals = [torch_loss(torch.as_tensor(row), 1.0, x, y)[1] for row in theta]
        return np.array([(w @ r**2).numpy() for r in residuals])

    reference = hb.Reference(
        gradient, theta, partition, layers, rotated=rotated, seed=7, settled=settled, squares=squares
    )
    return engine, reference


def assert_alike(engine, reference, steps=60):
    for _ in range(3):
        engine.advance(steps // 3)
        reference.advance(steps // 3)
        state = reference.state
        np.testing.assert_allclose(engine.chains.noise, state.noise, rtol=1e-10)
        np.testing.assert_allclose(engine.chains.theta, state.theta, rtol=0, atol=1e-10)
        size = max(1, np.abs(state.p).max())
        np.testing.assert_allclose(engine.chains.p, state.p, rtol=0, atol=1e-10 * size)


@pytest.mark.parametrize("layout", [Alone(), LaneGroup(lane_count(np.float64))])
@pytest.mark.parametrize("size", [20, 6])
@pytest.mark.parametrize("name", PARTITIONS)
def test_the_engine_follows_the_reference(name, size, layout):
    engine, reference = engine_and_reference(
        name, size, layout, rotated=name != "two gradients", temperature=0.8
    )
    start = reference.state.noise.copy()
    assert_alike(engine, reference)
    assert (reference.state.noise != start).all()


@pytest.mark.parametrize("layout", [Alone(), LaneGroup(lane_count(np.float64))])
@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("name", ["BAOAB", "OBABO"])
def test_the_engine_follows_the_reference_where_the_word_is_run_as_it_is_written(name, every, layout):
    assert_alike(*engine_and_reference(name, 6, layout, rotated=False, every=every))


@pytest.mark.parametrize("prior", [(0.5, 2.0), "fan_in"])
@pytest.mark.parametrize("noise", ["sampled", 0.3, (0.3, 0.8)])
def test_the_engine_follows_the_reference_with_a_prior_for_each_layer_and_noise_that_is_known(prior, noise):
    engine, reference = engine_and_reference("BAOAB", 6, Alone(), prior=prior, noise=noise)
    assert_alike(engine, reference)


@pytest.mark.parametrize("layout", [Alone(), LaneGroup(lane_count(np.float64))])
@pytest.mark.parametrize("size", [20, 6])
@pytest.mark.parametrize("name", ["BAOAB", "AdLaLa"])
def test_the_engine_follows_the_reference_with_weights(name, size, layout):
    engine, reference = engine_and_reference(name, size, layout, temperature=0.8, weigh=with_weights)
    assert_alike(engine, reference)
    without, _ = engine_and_reference(name, size, layout, temperature=0.8)
    without.advance(60)
    assert not np.allclose(engine.chains.theta, without.chains.theta, atol=1e-2)


# Numbers


@pytest.mark.parametrize("shape", [1.0, 1.5, 16.0, 1501.0])
def test_gamma_numbers_have_their_law(shape):
    from scipy import stats

    drawn = gammas(shape, 3, VARIANCE, 0, np.arange(40_000), 7)
    assert stats.kstest(drawn, stats.gamma(shape).cdf).pvalue > 1e-3
    assert abs(drawn.mean() / shape - 1) < 5 / np.sqrt(shape * len(drawn))


def test_gamma_numbers_of_neighbouring_steps_slots_and_chains_are_not_correlated():
    here = gammas(20.0, 3, VARIANCE, 0, np.arange(20_000), 7)
    others = [
        gammas(20.0, 3, VARIANCE, slot, np.arange(1, 20_001), step) for slot, step in ((0, 7), (2, 7), (0, 8))
    ]
    for other in others:
        assert abs(np.corrcoef(here, other)[0, 1]) < 0.03


# Temperatures


@pytest.mark.parametrize(
    ("given", "noise"),
    [
        (linear_problem(30, 2), "sampled"),
        (linear_problem(30, 2), (0.5, 0.2)),
        (with_weights(linear_problem(30, 2)), "sampled"),
    ],
    ids=["sampled", "known", "sampled, weighted"],
)
def test_the_temperatures_of_a_run_are_those_of_its_posterior(given, noise):
    posterior = hb.Posterior(prior=(0.05,), noise=noise, temperature=0.6)
    run = hb.train(
        given, hb.MLP(()), hb.Partition(LANGEVIN, 0.3, posterior), 12_000, 30, 64, samples=400,
        burn_in=2000, record=500, dtype="float64",
    )  # fmt: skip
    target = 0.6 / weights_of(given).sum() * (1.0 if noise == "sampled" else 0.1)
    for table in (hb.diagnostics.configurational(run), hb.diagnostics.equipartition(run, burn_in=2000)):
        assert table["target"].item() == pytest.approx(target)
        assert table["ratio"].item() == pytest.approx(1, abs=0.05)
        assert table["p_value"].item() > 1e-3
    assert np.isfinite(hb.diagnostics.gradient_noise(run)).all()
