"""The engine follows the reference."""

import numpy as np
import pytest

import heatbath as hb
from heatbath.datasets.tasks import TASKS
from heatbath.engine.batches import tabulate
from heatbath.engine.dense_shape import Shape
from heatbath.engine.ensemble import Ensemble
from heatbath.engine.program import compile_program
from heatbath.methods.schedules import Cyclical, Exponential, Linear, Piecewise, SimulatedTempering
from heatbath.models.dense import ACTIVATIONS, MLP
from heatbath.reference import random
from tests.engine.gradients import DATA, random_problem, torch_gradient, torch_loss
from tests.engine.probes import layouts
from tests.optional import optional

torch = optional("torch")


# Trajectories


def runs(partition, sizes=(2, 20, 1), activation="relu", task="binary", batch=7, shuffled=False, rotated=True,
         momenta="zero", dtype=np.float64, chains=3, seed=5):  # fmt: skip
    """Return the same run by the engine and by the reference."""
    X, Y = random_problem(sizes, task)
    network = MLP(sizes[1:-1], activation)
    layers = network.layers(sizes[0], sizes[-1])
    theta = network.start(sizes[0], sizes[-1], np.arange(chains), seed)

    def chosen(chain, step):
        if batch == DATA:
            return np.arange(DATA)
        if not shuffled:
            return random.batch(seed, chain, step, DATA, batch)
        number, place = divmod(step, DATA // batch)
        return random.epoch(seed, chain, number, DATA)[place * batch : (place + 1) * batch]

    def gradient(theta, step):
        parameters = torch.tensor(theta, dtype=torch.float64, requires_grad=True)
        rows = [(c % 2, chosen(c, step)) for c in range(chains)]
        losses = [
            torch_loss(parameters[c], sizes, activation, task, X[row], Y[row]) for c, row in enumerate(rows)
        ]
        torch.stack(losses).sum().backward()
        return parameters.grad.numpy()

    def loss(theta):
        return np.array(
            [torch_gradient(theta[c], sizes, activation, task, X[c % 2], Y[c % 2])[0] for c in range(chains)]
        )

    shape = Shape(sizes, ACTIVATIONS[activation].number, TASKS[task].number)
    engine, engine.twin = (
        Ensemble(
            compile_program(partition, layers, rotated), shape, theta.astype(dtype), tabulate(X, Y, dtype),
            batch, shuffled=shuffled, momenta=momenta, seed=seed, layout=layout,
        )
        for layout in layouts(dtype)
    )  # fmt: skip
    reference = hb.Reference(
        gradient, theta, partition, layers, rotated=rotated, momenta=momenta, seed=seed, loss=loss
    )
    return engine, reference


def assert_same_bits(one, other):
    for name in ("theta", "p", "second", "xi", "rung", "died", "temperature"):
        a, b = getattr(one.chains, name), getattr(other.chains, name)
        np.testing.assert_array_equal(a, b, err_msg=name, strict=True)


def assert_same_trajectory(engine, reference, steps=200, tolerance=1e-10):
    engine.advance(steps)
    engine.twin.advance(steps)
    assert_same_bits(engine, engine.twin)
    reference.advance(steps)
    state = reference.state
    np.testing.assert_allclose(engine.chains.theta, state.theta, rtol=0, atol=tolerance)
    np.testing.assert_allclose(engine.chains.p, state.p, rtol=0, atol=tolerance)
    np.testing.assert_array_equal(engine.chains.rung, state.rung)
    units = [unit.part.name for unit in engine.program.units]
    for name, xi in state.xi.items():
        own = [u for u, part in enumerate(units) if part == name]
        np.testing.assert_allclose(engine.chains.xi[:, own], xi, rtol=0, atol=tolerance)
    for name, temperature in reference.temperature.items():
        if units.count(name) == 1:
            read = engine.chains.temperature[:, units.index(name)]
            np.testing.assert_allclose(read, temperature, rtol=0, atol=tolerance)


ONE_GRADIENT = ["BAOAB", "BAOA", "ABOBA", "OBABO", "OABAO", "OBA", "BAOOA", "AOAB"]
TWO_GRADIENTS = ["BAOBA", "ABAOABA", "ABAOB", "BABAOAB"]
ADAPTIVE = hb.AdaptiveLangevin(1e-3, 0.01, 0.1)
LADDER = SimulatedTempering((1e-3, 2e-3, 4e-3), every=3, weights=(0, -50, -90))
EVEN_LADDER = SimulatedTempering(
    (1e-3, 2e-3, 4e-3), every=3, weights=(0, -345, -518)
)  # for a loss near log 2
PARTITIONS = {
    **{word: hb.Partition(hb.Langevin(0.5, 1e-3, word), 0.1) for word in ONE_GRADIENT},
    "LaLa": hb.LaLa(0.1, 0.5, 1e-3, 2.0, 1e-4),
    "LOL": hb.LOL(),
    "AdLaLa": hb.AdLaLa(),
    "AdLAdL": hb.AdLAdL(),
    "F per tensor, sde, mean": hb.Partition(
        hb.AdaptiveLangevin(
            1e-3, 0.01, 0.1, "BAFEFAB", friction="sde", thermostat="tensor", kinetic="mean", weight_decay=0.01
        ),
        0.1,
    ),
    "by frequency": hb.Partition(
        hb.AdaptiveLangevin(Linear(1e-4, 1e-3, 50), thermostat="tensor", frequency=0.7, damping=0.5), 0.1
    ),
    "E first": hb.Partition(hb.AdaptiveLangevin(1e-3, 0.01, 0.1, "ECDABADC"), 0.1),
    "SGD": hb.Partition(hb.SGD(weight_decay=0.01), 0.1),
    "SGLD": hb.Partition(hb.SGLD(0.01, weight_decay=0.01), 0.1),
    "Momentum 1": hb.Partition(hb.Momentum(0.9, 1, weight_decay=0.01), 0.02),
    "Momentum 2": hb.Partition(hb.Momentum(0.9, 2), 0.1),
    "Adam": hb.Partition(hb.Adam(weight_decay=0.01), 0.01),
    "Frozen output": hb.Partition({"hidden": hb.Langevin(0.5, 1e-3), "output": hb.Frozen()}, 0.1),
    "different words": hb.Partition({0: hb.Langevin(0.5, 1e-3, "ABOBA"), 1: ADAPTIVE}, 0.1),
    "tempered": hb.Partition(hb.Langevin(1.0, LADDER, weight_decay=Linear(0, 0.01, 50)), 0.1),
    "tempered at the kick": hb.Partition(
        {
            "hidden": hb.Langevin(1.0, LADDER, "ABOBA"),
            "output": hb.AdaptiveLangevin(LADDER, 0.01, 0.1, "ABCDEDCBA"),
        },
        0.1,
    ),
    "tempered at the kick with a scheduled prior": hb.Partition(
        hb.Langevin(1.0, EVEN_LADDER, "ABOBA", weight_decay=Cyclical(0.02, 0.0, 5)), 0.1
    ),
    "all on schedules": hb.Partition(
        {
            "hidden": hb.AdaptiveLangevin(
                Linear(1e-3, 1e-4, 100), Linear(0.01, 0.02, 50), Cyclical(0.2, 0.1, 30)
            ),
            "output": hb.Langevin(Exponential(1, 0.1, 50), 1e-3, "ABOBA", weight_decay=Linear(0.0, 0.1, 100)),
        },
        Cyclical(0.1, 0.05, 30),
    ),
    "changes on the way": hb.Partition(
        {
            "hidden": hb.AdaptiveLangevin(Piecewise([1e-3, 1e-2], [40]), 0.01, 0.1),
            "output": hb.Langevin(Piecewise([0.5, np.inf, 2.0], [30, 90]), 1e-3, "OBABO"),
        },
        Piecewise([0.1, Linear(0.1, 0.05, 150)], [70]),
    ),
}


@pytest.mark.parametrize("name", PARTITIONS)
def test_the_engine_follows_the_reference(name):
    assert_same_trajectory(*runs(PARTITIONS[name]))


@pytest.mark.parametrize("word", [*TWO_GRADIENTS, *ONE_GRADIENT])
def test_the_engine_follows_the_reference_through_words_as_written(word):
    assert_same_trajectory(*runs(hb.Partition(hb.Langevin(0.5, 1e-3, word), 0.1), rotated=False))


@pytest.mark.parametrize("word", ONE_GRADIENT)
def test_the_first_step_closes_nothing_and_leaves_thermal_momenta_as_they_are(word):
    """Momenta of 0 would not tell: a letter that closes a step which never began could erase them."""
    partition = hb.Partition(hb.Langevin(0.5, 1e-3, word), 0.1)
    assert_same_trajectory(*runs(partition, momenta="thermal"), steps=3)


MIXED = hb.Partition(
    {0: hb.AdaptiveLangevin(1e-3, 0.01, 0.1), (1, "output"): hb.Langevin(0.5, 1e-3), "rest": hb.Adam()}, 0.05
)


@pytest.mark.parametrize(
    ("sizes", "activation", "task"),
    [
        ((2, 20, 17, 3), "tanh", "classes"),
        ((20, 18, 5, 2), "relu", "regression"),
        ((3, 17, 18, 1), "identity", "binary"),
    ],
)
def test_the_engine_follows_the_reference_on_three_layers(sizes, activation, task):
    assert_same_trajectory(*runs(MIXED, sizes, activation, task, momenta="thermal"))


def test_mini_batches_are_subsets_without_replacement_each_alike():
    """Every pair of 6 data in 3000 batches of 3: 5 standard errors of a binomial, 15 pairs."""
    counts = np.zeros((6, 6))
    for step in range(3000):
        chosen = random.batch(1, 0, step, 6, 3)
        assert len(set(chosen)) == 3
        counts[np.ix_(chosen, chosen)] += 1
    pairs = counts[np.triu_indices(6, 1)]
    assert np.abs(pairs - 3000 * 0.2).max() < 5 * np.sqrt(3000 * 0.2 * 0.8)
    assert sorted(random.epoch(1, 0, 4, 500)) == list(range(500))
    assert list(random.epoch(1, 0, 4, 500)) != list(random.epoch(1, 0, 5, 500))


@pytest.mark.parametrize("name", PARTITIONS)
def test_a_step_in_float32_is_that_of_the_reference_to_rounding(name):
    """Both start from equal states in mid-run, and agree to 1e-5 of the size of the state."""
    engine, reference = runs(PARTITIONS[name], dtype=np.float32)
    reference.advance(5)
    state = reference.state
    engine.step = 5
    engine.chains.theta[:], engine.chains.p[:] = state.theta, state.p
    if engine.chains.second.size:
        engine.chains.second[:] = state.second
    engine.chains.rung[:] = state.rung
    units = [unit.part.name for unit in engine.program.units]
    for name, xi in state.xi.items():
        engine.chains.xi[:, [u for u, part in enumerate(units) if part == name]] = xi
    before = state.theta.copy()
    engine.advance(1)
    reference.advance(1)
    assert np.any(state.theta != before)
    scale = np.abs(state.theta).max()
    np.testing.assert_allclose(engine.chains.theta, state.theta, rtol=0, atol=1e-5 * scale)
    np.testing.assert_allclose(engine.chains.p, state.p, rtol=0, atol=1e-5 * np.abs(state.p).max())
