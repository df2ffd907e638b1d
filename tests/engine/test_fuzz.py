"""Words, partitions and networks at random through compiled code: it follows the reference, or refuses."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import heatbath as hb
from heatbath.methods.schedules import Cyclical, Linear, SimulatedTempering
from heatbath.methods.splitting import MOST_DRAWS, WordError
from tests.engine import test_ensemble
from tests.optional import optional

torch = optional("torch")
ht = optional("heatbath.torch")

SETTINGS = settings(max_examples=30, suppress_health_check=list(HealthCheck))
FEW = settings(SETTINGS, max_examples=12)


def words(letters, needed, most=12):
    """Return a strategy for words over some letters that contain the needed ones."""
    texts = st.text(letters, max_size=most)
    return texts.flatmap(lambda text: st.permutations(text + needed)).map("".join)


langevin = st.builds(
    hb.Langevin,
    gamma=st.sampled_from([0.0, 0.5, 2.0, Linear(0.1, 1.0, 3)]),
    tau=st.sampled_from([0.0, 1e-3, Cyclical(1e-2, 1e-3, 2)]),
    word=words("ABO", "ABO"),
    weight_decay=st.sampled_from([0.0, 0.1]),
)
adaptive = st.builds(
    hb.AdaptiveLangevin,
    tau=st.sampled_from([0.0, 1e-3]),
    sigma=st.sampled_from([0.0, 0.05]),
    epsilon=st.sampled_from([0.0, 0.1, Linear(0.1, 0.2, 3)]),
    word=words("ABCDE", "ABCDE") | words("ABEF", "ABEF"),
    xi=st.sampled_from([-0.5, 0.0, 1.0]),
    friction=st.sampled_from(["map", "sde"]),
    thermostat=st.sampled_from(["part", "tensor"]),
    kinetic=st.sampled_from(["sum", "mean"]),
)
others = st.sampled_from([hb.SGD(0.1), hb.SGLD(0.1), hb.Momentum(0.5), hb.Adam(), hb.RMSprop(), hb.Frozen()])
methods = langevin | adaptive | others
networks = st.lists(st.sampled_from([1, 2, 3, 16, 17, 33]), min_size=0, max_size=3).map(tuple)


@SETTINGS
@given(st.lists(methods, min_size=1, max_size=4), networks, st.sampled_from([1, 7, test_ensemble.DATA]))
def test_any_methods_on_any_network_follow_the_reference_or_are_refused(chosen, hidden, batch):
    count = len(hidden) + 1
    assigned = {place: chosen[place % len(chosen)] for place in range(count)}
    try:
        partition = hb.Partition(assigned, Linear(0.05, 0.02, 3))
        arguments = {"sizes": (2, *hidden, 1), "batch": batch, "activation": "tanh", "chains": 2}
        rotated = all(len(method.word) < 3 or _gradients(method) == 1 for method in assigned.values())
        engine, reference = test_ensemble.runs(partition, rotated=rotated, **arguments)
    except ValueError:  # refused by name, before anything has run
        return
    test_ensemble.assert_same_trajectory(engine, reference, steps=4, tolerance=1e-9)


def _gradients(method):
    from heatbath.methods.splitting import gradients

    return gradients(method.substeps)


@FEW
@given(langevin | adaptive, st.booleans())
def test_any_word_steps_a_torch_model_or_is_refused(method, fused):
    model = torch.nn.Sequential(torch.nn.Linear(3, 20), torch.nn.Tanh(), torch.nn.Linear(20, 1))
    optimizer = ht.Partitioned([{"params": model.parameters(), "method": method}], 0.05, fused=fused)

    def closure():
        optimizer.zero_grad()
        loss = model(torch.ones(4, 3)).square().mean()
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.step(closure)
    assert all(torch.isfinite(p).all() for p in model.parameters())


@pytest.mark.parametrize(
    "method",
    [
        hb.Langevin(1.0, 1e-4, "B" + "AO" * 80),
        hb.Langevin(1.0, 1e-4, "OO" * 100 + "BA"),
        hb.AdaptiveLangevin(word="BA" + "CDE" * 70),
        hb.AdaptiveLangevin(word="BA" + "FE" * 70),
    ],
    ids=["AO x 80", "O x 200", "CDE x 70", "FE x 70"],
)
def test_words_of_any_length_are_followed(method):
    """A buffer of 64 moves was overrun by the first of them, which aborted the process."""
    partition = hb.Partition(method, 0.05)
    test_ensemble.assert_same_trajectory(*test_ensemble.runs(partition, chains=2), steps=5, tolerance=1e-10)
    model = torch.nn.Linear(3, 2)
    optimizer = ht.Partitioned([{"params": model.parameters(), "method": method}], 0.05, fused=True)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(4, 3)).square().mean().backward()
        optimizer.step()


def test_more_noise_than_a_step_has_room_for_is_refused():
    with pytest.raises(
        WordError, match=f"it draws noise {MOST_DRAWS + 1} times, and the limit for a step is"
    ):
        hb.Langevin(1.0, 1e-4, "BA" + "O" * (MOST_DRAWS + 1))


def test_whole_numbers_that_compiled_code_cannot_hold_are_refused_by_name():
    with pytest.raises(ValueError, match=r"SimulatedTempering: every must be a whole number >= 1 and <"):
        SimulatedTempering((1e-3, 1e-2), every=2**40)
    problem = hb.datasets.spirals(turns=1, n_train=20, n_test=10)
    with pytest.raises(ValueError, match=r"steps must be a whole number >= 1 and <"):
        hb.train(problem, hb.MLP((4,)), hb.LOL(), 2**40, 5)


def test_a_reference_to_nothing_known_is_an_error_at_once():
    with pytest.raises(WordError, match="'X' is not a letter of Langevin"):
        hb.Langevin(1.0, 1e-4, "BAXAB")
    with pytest.raises(TypeError, match="must have a method such as Langevin"):
        hb.Partition(np.sin, 0.1)
