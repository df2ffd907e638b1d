import math
from itertools import product

import numpy as np
import pytest

import heatbath as hb
from heatbath.methods.schedules import Cyclical, Exponential, Linear, SimulatedTempering
from heatbath.methods.splitting import gradients, rotate
from heatbath.reference import random
from tests.words import parse

LAYERS = {"first": (4, 2), "last": (2, 1)}
START = np.linspace(-1, 1, 27).reshape(3, 9)
METHODS = {
    "Langevin": hb.Langevin(0.7, 0.2),
    "Langevin at the kick": hb.Langevin(0.7, 0.2, "ABOBA"),
    "two noise letters": hb.Langevin(0.7, 0.2, "OBABO"),
    "AdaptiveLangevin": hb.AdaptiveLangevin(0.2, 0.3, 0.1),
    "AdaptiveLangevin with F": hb.AdaptiveLangevin(0.2, 0.3, 0.1, "BAFEFAB", thermostat="tensor"),
    "SGLD": hb.SGLD(0.3),
    "SGD": hb.SGD(),
    "Momentum 1": hb.Momentum(0.9, kind=1),
    "Momentum 2": hb.Momentum(0.9, kind=2),
    "Adam": hb.Adam(),
}


def gradient(theta, batch):
    """Return a gradient that is not linear, and different for each mini-batch."""
    return np.sin(theta) + 0.5 * theta + 0.3 * np.cos(batch + theta)


def reference(partition, **options):
    return hb.Reference(gradient, START, partition, LAYERS, **{"seed": 3, **options})


# Rotation


def written_and_rotated(method, h):
    return (reference(hb.Partition(method, h), rotated=rotated) for rotated in (False, True))


ONE_GRADIENT = [
    "".join(word)
    for length in (3, 4, 5)
    for word in product("ABO", repeat=length)
    if set(word) == set("ABO") and gradients(parse("".join(word))) == 1
]


@pytest.mark.parametrize("scheduled", [False, True])
def test_the_rotated_word_follows_the_word_as_written(scheduled):
    """θ seen at the end is the word's; θ seen at the kick is where the word's kick finds it.

    So it is with schedules: a letter keeps the stepsize, coefficients and noise of its step of the word.
    """
    h = Linear(0.3, 0.1, 10) if scheduled else 0.2
    tau = Exponential(0.5, 0.01, 10) if scheduled else 0.2
    gamma = Cyclical(2.0, 0.5, 4) if scheduled else 0.7
    assert len(ONE_GRADIENT) > 150
    for word in ONE_GRADIENT:
        written, rotated = written_and_rotated(hb.Langevin(gamma, tau, word), h)
        kicked = []

        def at_the_kick(part, substep, step, run=written, kicked=kicked):
            if substep.letter == "B":
                kicked.append((step, run.state.theta.copy()))

        ends = [written.state.theta.copy()]
        for _ in range(13):
            written.advance(1, at_the_kick)
            ends.append(written.state.theta.copy())
        first_kick = {step: theta for step, theta in reversed(kicked)}
        seen_at_end = rotate(parse(word)).seen == "end"
        for n in range(1, 12):
            rotated.advance(1)
            expected = ends[n] if seen_at_end else first_kick[n]
            np.testing.assert_allclose(
                rotated.state.theta, expected, rtol=0, atol=1e-12, err_msg=f"{word} {n}"
            )


@pytest.mark.parametrize("word", ["BACDEDCAB", "BAFEFAB", "ABCDEDCBA", "DCEABACD"])
def test_the_rotated_adaptive_word_follows_the_word_as_written(word):
    written, rotated = written_and_rotated(hb.AdaptiveLangevin(0.2, 0.3, 0.4, word), Linear(0.3, 0.1, 10))
    xi = []
    for chains in (written, rotated):
        seen = {}

        def at_e(part, substep, step, chains=chains, seen=seen):
            if substep.letter == "E":
                seen[step] = (chains.state.p.copy(), chains.state.xi["all"].copy())

        chains.advance(12, at_e)
        xi.append(seen)
    for step in range(11):
        for one, other in zip(xi[0][step], xi[1][step], strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)


def test_the_full_kick_between_two_stepsizes_is_their_mean():
    """(h_n + h_{n+1})/2 for BAOAB: without friction, noise or curvature p gains exactly that."""
    h = Linear(1.0, 0.2, 8)
    chains = hb.Reference(
        lambda theta, batch: -np.ones_like(theta), [0.0], hb.Partition(hb.Langevin(0, 0), h)
    )
    chains.advance(1)
    for n in range(1, 6):
        before = chains.state.p.copy()
        chains.advance(1)
        assert chains.state.p - before == pytest.approx((h(n - 1) + h(n)) / 2)


@pytest.mark.parametrize("word", ["BAOAB", "OBABO", "ABOBA", "BAOA", "OBA", "AOAB"])
@pytest.mark.parametrize("rotated", [True, False])
def test_the_gradient_is_evaluated_once_for_each_theta_and_each_mini_batch(word, rotated):
    calls = []

    def counting(theta, batch):
        calls.append((batch, theta.tobytes()))
        return theta

    chains = hb.Reference(counting, START, hb.Partition(hb.Langevin(1, 0.1, word), 0.1), rotated=rotated)
    chains.advance(10)
    batches = [batch for batch, _ in calls]
    assert batches == sorted(set(batches))
    assert len(set(calls)) == len(calls) <= 11
    assert set(range(1, 10)) <= set(batches)


def test_all_gradients_of_a_step_with_two_use_one_mini_batch():
    batches = []
    for word in ("BAOBA", "ABAOABA", "ABAOB"):
        chains = hb.Reference(
            lambda theta, batch: batches.append(batch) or theta,
            START,
            hb.Partition(hb.Langevin(1, 0.1, word), 0.1),
            rotated=False,
        )
        batches.clear()
        chains.advance(5)
        counts = {batch: batches.count(batch) for batch in range(1, 5)}
        assert counts == dict.fromkeys(range(1, 5), 2), word


def test_a_word_with_two_gradients_runs_only_as_written():
    partition = hb.Partition(hb.Langevin(1, 0.1, "BAOBA"), 0.1)
    with pytest.raises(ValueError, match="needs 2 gradients per step"):
        reference(partition)
    reference(partition, rotated=False).advance(1)


# Parts and chains


@pytest.mark.parametrize("name", METHODS)
def test_a_partition_into_parts_with_one_method_is_that_method(name):
    """Same noise for the same parameter, whatever the partition; ξ of course only where it is per tensor."""
    method = METHODS[name]
    whole, parts = reference(hb.Partition(method, 0.1)), reference(hb.Partition({"rest": method}, 0.1))
    whole.advance(30)
    parts.advance(30)
    same = not isinstance(method, hb.AdaptiveLangevin) or method.thermostat == "tensor"
    assert np.array_equal(whole.state.theta, parts.state.theta) == same


def test_parts_with_different_methods_do_not_disturb_one_another():
    """With a separable loss each part does what it would do alone."""
    partition = hb.Partition({"first": METHODS["Langevin at the kick"], "last": METHODS["Adam"]}, 0.1)
    both = reference(partition)
    both.advance(20)
    for layer, columns in (("first", slice(0, 6)), ("last", slice(6, 9))):
        alone = reference(hb.Partition({layer: partition.methods[layer], "rest": hb.Frozen()}, 0.1))
        alone.advance(20)
        np.testing.assert_array_equal(alone.state.theta[:, columns], both.state.theta[:, columns])


def test_frozen_parts_do_not_move_and_others_do():
    for rotated in (True, False):
        chains = reference(
            hb.Partition({"last": METHODS["Langevin"], "rest": hb.Frozen()}, 0.1), rotated=rotated
        )
        chains.advance(5)
        np.testing.assert_array_equal(chains.state.theta[:, :6], START[:, :6])
        assert np.all(chains.state.theta[:, 6:] != START[:, 6:])


@pytest.mark.parametrize("name", METHODS)
def test_a_chain_does_not_depend_on_the_others(name):
    partition = hb.Partition(METHODS[name], 0.1)
    many, one = reference(partition), hb.Reference(gradient, START[:1], partition, LAYERS, seed=3)
    many.advance(10)
    one.advance(10)
    np.testing.assert_array_equal(many.state.theta[:1], one.state.theta)
    if name not in ("SGD", "Adam", "Momentum 1", "Momentum 2"):
        same_start = hb.Reference(gradient, START[[0, 0]], partition, LAYERS, seed=3)
        same_start.advance(10)
        assert np.all(same_start.state.theta[0] != same_start.state.theta[1])


TEMPERED = hb.Langevin(0.7, SimulatedTempering((0.1, 0.3, 0.9), every=2), "ABOBA")


@pytest.mark.parametrize("stop", [0, 7, 8])
@pytest.mark.parametrize(
    ("method", "rotated"),
    [(method, True) for method in (*METHODS.values(), TEMPERED)]
    + [(method, False) for method in (*METHODS.values(), TEMPERED) if hasattr(method, "word")],
)
def test_a_run_goes_on_from_its_state_as_if_it_had_never_stopped(method, stop, rotated):
    partition = hb.Partition(method, Linear(0.1, 0.05, 20))
    options = {"rotated": rotated, "seed": 3, "loss": lambda theta: np.sum(theta**2, axis=1)}
    straight, first = (hb.Reference(gradient, START, partition, LAYERS, **options) for _ in range(2))
    straight.advance(20)
    first.advance(stop)
    second = hb.Reference(gradient, first.state, partition, LAYERS, **options)
    first.advance(3)  # the state was copied
    second.advance(20 - stop)
    assert second.state.step == 20
    np.testing.assert_array_equal(second.state.theta, straight.state.theta)
    np.testing.assert_array_equal(second.state.rung, straight.state.rung)


@pytest.mark.parametrize("name", [name for name in METHODS if name != "Adam"])
def test_the_prior_is_part_of_the_gradient(name):
    method = METHODS[name]
    decayed = type(method)(**{**vars(method), "weight_decay": 0.25})
    one = reference(hb.Partition(decayed, 0.1))
    other = hb.Reference(
        lambda theta, batch: gradient(theta, batch) + 0.25 * theta,
        START,
        hb.Partition(method, 0.1),
        LAYERS,
        seed=3,
    )
    one.advance(20)
    other.advance(20)
    np.testing.assert_allclose(one.state.theta, other.state.theta, rtol=0, atol=1e-12)


# Noise, momenta, observation


def test_the_noise_is_that_of_the_address():
    """p after an O with infinite friction is √τ times the numbers of that seed, slot, chain and step."""
    chains = reference(hb.Partition(hb.Langevin(math.inf, 0.09, "BAOOA"), 0.1))
    for step in range(5):
        chains.advance(1)
        expected = 0.3 * random.normals(3, random.NOISE, 1, np.arange(3), step, 0, 9)
        np.testing.assert_array_equal(chains.state.p, expected)


def test_thermal_momenta_and_tempering_have_numbers_of_their_own():
    chains = reference(hb.Partition(METHODS["Langevin"], 0.1), momenta="thermal")
    expected = math.sqrt(0.2) * random.normals(3, random.START, 1, np.arange(3), 0, 0, 9)
    np.testing.assert_array_equal(chains.state.p, expected)
    # at zero loss and weight every proposal on the ladder is accepted: the rung walks as the numbers say
    tempering = SimulatedTempering((0.1, 0.2, 0.3, 0.4), every=3)
    walk = reference(hb.Partition(hb.Langevin(1.0, tempering), 0.1), loss=lambda theta: np.zeros(len(theta)))
    rung = np.zeros(3)
    for step in range(1, 60):
        walk.advance(1)
        moved = step - 1
        if moved and moved % 3 == 0:
            side = random.uniforms(3, random.TEMPERING, 0, np.arange(3), moved, 0, 1)[:, 0]
            rung = np.clip(rung + np.where(side < 0.5, -1, 1), 0, 3)
        np.testing.assert_array_equal(walk.state.rung, rung)


def test_injected_noise_takes_the_place_of_the_numbers():
    asked = []

    def silence(step, slot):
        asked.append((step, slot))
        return np.zeros((3, 9))

    chains = reference(hb.Partition(METHODS["two noise letters"], 0.1), noise=silence)
    chains.advance(3)
    assert asked == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)]


def test_parts_share_one_draw_of_a_step_and_slot():
    asked = []

    def counting(step, slot):
        asked.append((step, slot))
        return np.zeros((3, 9))

    chains = reference(hb.Partition({"rest": METHODS["Langevin"]}, 0.1), noise=counting)
    chains.advance(3)
    assert asked == [(0, 0), (1, 0), (2, 0)]


@pytest.mark.parametrize("tau", [1e-4, 3.0])
def test_thermal_momenta_have_the_temperature_of_their_part(tau):
    """Not temperature 1, whatever τ is: 4.5 standard errors of a variance over 40,000 numbers."""
    partition = hb.LaLa(0.1, 1.0, tau, tau_output=2 * tau)
    chains = hb.Reference(
        gradient, np.zeros((100, 800)), partition, {"a": (400,), "b": (400,)}, momenta="thermal", seed=1
    )
    assert np.mean(chains.state.p[:, :400] ** 2) == pytest.approx(tau, rel=4.5 * math.sqrt(2 / 40_000))
    assert np.mean(chains.state.p[:, 400:] ** 2) == pytest.approx(2 * tau, rel=4.5 * math.sqrt(2 / 40_000))
    assert not np.any(reference(partition).state.p)
    baseline = hb.Reference(gradient, START, hb.Partition(hb.Momentum(0.9), 0.1), momenta="thermal")
    assert not np.any(baseline.state.p)


def test_an_observer_sees_every_letter_in_order_on_the_state_it_finds():
    chains = reference(hb.Partition(METHODS["AdaptiveLangevin"], 0.1))
    seen = []

    def observe(part, substep, step):
        seen.append((step, substep.letter))
        if substep.letter == "E":
            found.append(chains.temperature["all"])
            np.testing.assert_allclose(found[-1], np.mean(chains.state.p**2, axis=1), rtol=1e-15)

    found: list[np.ndarray] = []
    assert np.isnan(chains.temperature["all"]).all()
    chains.advance(2, observe)
    assert seen == [(0, letter) for letter in "BACDEDCAB"[:-1]] + [(0, "B")] + [(1, x) for x in "BACDEDCA"]
    assert len(found) == 2
    np.testing.assert_array_equal(chains.temperature["all"], found[-1])


@pytest.mark.parametrize("rotated", [True, False])
def test_the_temperature_of_baoab_is_read_before_o(rotated):
    """On a quadratic p² is τ there, but τ(1 - h²k/4) at the end of the word (and τ between rotated steps)."""
    h, k, tau, chains, N = 0.8, 1.0, 0.2, 200, 50
    rng = np.random.default_rng(0)
    run = hb.Reference(
        lambda theta, batch: k * theta,
        rng.standard_normal((chains, N)) * math.sqrt(tau / k),
        hb.Partition(hb.Langevin(1.0, tau), h),
        momenta="thermal",
        rotated=rotated,
        noise=lambda step, slot: rng.standard_normal((chains, N)),
    )
    run.advance(20)
    read, end = [], []
    for _ in range(300):
        run.advance(1)
        read.append(run.temperature["all"].mean())
        end.append(np.mean(run.state.p**2))
    assert np.mean(read) == pytest.approx(tau, rel=0.006)
    assert np.mean(end) == pytest.approx(tau if rotated else tau * (1 - h * h * k / 4), rel=0.006)


# An account of its own


def test_every_scheduled_coefficient_is_that_of_its_step():
    """A loop written out by hand: BACDEDCAB beside ABOBA, with every coefficient on a schedule."""
    rising = {name: Linear(0.1, 0.5, 12) for name in ("sigma", "epsilon", "weight_decay")}
    tau, h = Exponential(0.5, 0.05, 12), Linear(0.3, 0.1, 12)
    gamma = Cyclical(2.0, 0.5, 5)
    adaptive = hb.AdaptiveLangevin(tau, word="BACDEDCAB", friction="sde", **rising)
    langevin = hb.Langevin(gamma, tau, "ABOBA", weight_decay=rising["weight_decay"])
    chains = reference(hb.Partition({"first": adaptive, "last": langevin}, h))
    chains.advance(12)

    def R(n, slot):
        return random.normals(3, random.NOISE, slot, np.arange(3), n, 0, 9)

    sigma = epsilon = decay = rising["sigma"]
    one, other = START[:, :6].copy(), START[:, 6:].copy()
    p, q, xi = np.zeros_like(one), np.zeros_like(other), np.full((3, 1), 0.1)
    other = other + h(0) / 2 * q  # the opening of ABOBA
    for n in range(12):
        G = -gradient(np.hstack([one, other]), n)
        if n > 0:
            p = p + h(n - 1) / 2 * (G[:, :6] - decay(n - 1) * one)
        p = p + h(n) / 2 * (G[:, :6] - decay(n) * one)
        one = one + h(n) / 2 * p
        for slot in (0, 1):
            if slot == 1:
                xi = xi + h(n) * epsilon(n) * (np.sum(p**2, axis=1, keepdims=True) - 6 * tau(n))
                p = p + sigma(n) * math.sqrt(h(n) / 2) * R(n, 1)[:, :6]
                p = np.exp(-h(n) / 2 * epsilon(n) * xi) * p
            else:
                p = np.exp(-h(n) / 2 * epsilon(n) * xi) * p
                p = p + sigma(n) * math.sqrt(h(n) / 2) * R(n, 0)[:, :6]
        one = one + h(n) / 2 * p
        kick = h(n) / 2 * (G[:, 6:] - decay(n) * other)
        a = math.exp(-gamma(n) * h(n))
        q = a * (q + kick) + math.sqrt(tau(n) * (1 - a * a)) * R(n, 0)[:, 6:] + kick
        other = other + h(n) / 2 * q + h(n + 1) / 2 * q
    np.testing.assert_allclose(chains.state.theta, np.hstack([one, other]), rtol=0, atol=1e-12)
    np.testing.assert_allclose(chains.state.xi["first"], xi, rtol=0, atol=1e-12)


def test_every_scheduled_coefficient_of_the_baselines_is_that_of_its_step():
    h, mu, decay = Linear(0.3, 0.1, 12), Linear(0.5, 0.9, 12), Linear(0.0, 0.4, 12)
    sigma, beta = Cyclical(0.5, 0.1, 4), Linear(0.2, 0.8, 12)
    methods = {
        0: hb.SGLD(sigma, weight_decay=decay),
        1: hb.Momentum(mu, kind=2, weight_decay=decay),
        2: hb.Adam(beta, mu, sigma, weight_decay=decay),
    }
    chains = hb.Reference(
        gradient, START, hb.Partition(methods, h), {"a": (3,), "b": (3,), "c": (3,)}, seed=3
    )
    chains.advance(12)
    x, y, z = (START[:, i : i + 3].copy() for i in (0, 3, 6))
    v, m, s = (np.zeros_like(x) for _ in range(3))
    for n in range(12):
        Gx, Gy, Gz = np.split(-gradient(np.hstack([x, y, z]), n), 3, axis=1)
        R = random.normals(3, random.NOISE, 0, np.arange(3), n, 0, 9)[:, :3]
        x = x + h(n) * (Gx - decay(n) * x) + sigma(n) * math.sqrt(h(n)) * R
        v = mu(n) * v + (1 - mu(n)) * (Gy - decay(n) * y)
        y = y + h(n) * v
        m = beta(n) * m + (1 - beta(n)) * Gz
        s = mu(n) * s + (1 - mu(n)) * Gz**2
        corrected = np.sqrt(s / (1 - mu(n) ** (n + 1))) + sigma(n)
        z = (1 - h(n) * decay(n)) * z + h(n) * m / (1 - beta(n) ** (n + 1)) / corrected
    np.testing.assert_allclose(chains.state.theta, np.hstack([x, y, z]), rtol=0, atol=1e-12)


# Simulated tempering


def run_tempering(k=1.5, decay=0.5, ladder=(0.1, 0.2, 0.4), chains=400):
    """Return the visits to each rung, and the sum of (k + λ) θ² there.

    With two parameters ∫ exp(-U/τ) is proportional to τ, and w = -log τ + 0.3 i weighs rung i by e^0.3i.
    """
    tempering = SimulatedTempering(
        ladder, every=5, weights=[-math.log(tau) + 0.3 * i for i, tau in enumerate(ladder)]
    )
    rng = np.random.default_rng(0)
    run = hb.Reference(
        lambda theta, batch: k * theta,
        np.zeros((chains, 2)),
        hb.Partition(hb.Langevin(1.0, tempering, weight_decay=decay), 0.4),
        loss=lambda theta: k / 2 * np.sum(theta**2, axis=1),
        noise=lambda step, slot: rng.standard_normal((chains, 2)),
    )
    run.advance(1000)
    visits, squares = np.zeros((len(ladder), chains)), np.zeros((len(ladder), chains))
    for _ in range(600):
        run.advance(10)
        for rung in range(len(ladder)):
            here = run.state.rung == rung
            visits[rung] += here
            squares[rung] += here * np.mean((k + decay) * run.state.theta**2, axis=1)
    return visits, squares


def test_tempering_visits_the_rungs_by_their_weights_and_samples_each_temperature():
    """Exact for Langevin, the prior in the potential: 5 standard errors over chains (error rate 3e-6)."""
    visits, squares = run_tempering()
    share = visits / visits.sum(axis=0)
    expected = np.exp(0.3 * np.arange(3)) / np.exp(0.3 * np.arange(3)).sum()
    z = (share.mean(axis=1) - expected) / (share.std(axis=1) / math.sqrt(share.shape[1]))
    assert np.abs(z).max() < 5
    for rung, tau in enumerate((0.1, 0.2, 0.4)):
        excess = squares[rung] - tau * visits[rung]  # a ratio of means, linearised
        assert abs(excess.mean()) < 5 * excess.std() / math.sqrt(excess.size)
        assert squares[rung].sum() / visits[rung].sum() == pytest.approx(tau, rel=0.05)


def test_a_potential_without_the_prior_would_be_caught():
    """The control: with the prior left out of the loss, the share of the coldest rung moves by 20 errors."""

    class WithoutPrior(hb.Reference):
        def _potential(self, n):
            return np.asarray(self.loss(self.state.theta))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hb.reference, "Reference", WithoutPrior)
        visits, _ = run_tempering()
    share = visits / visits.sum(axis=0)
    expected = np.exp(0.3 * np.arange(3)) / np.exp(0.3 * np.arange(3)).sum()
    z = (share.mean(axis=1) - expected) / (share.std(axis=1) / math.sqrt(share.shape[1]))
    assert np.abs(z).max() > 20


@pytest.mark.parametrize("word", ["BAOAB", "ABOBA"])
def test_tempering_moves_are_the_same_rotated_and_as_written(word):
    tempering = SimulatedTempering((0.1, 0.4), every=2)
    partition = hb.Partition(hb.Langevin(0.5, tempering, word), 0.2)
    runs = [
        reference(partition, rotated=r, loss=lambda theta: 0.1 * np.sum(theta**2, axis=1))
        for r in (False, True)
    ]
    rungs = []
    for n in range(1, 40):
        runs[0].advance(1)
        runs[1].advance(1)
        if n % 2 == 1:  # no move is due between the two ways of counting
            rungs.append(runs[0].state.rung.copy())
            if word == "BAOAB":
                np.testing.assert_array_equal(runs[0].state.rung, runs[1].state.rung)
                np.testing.assert_allclose(runs[0].state.theta, runs[1].state.theta, rtol=0, atol=1e-12)
    assert len(np.unique(rungs)) == 2
    if word == "ABOBA":  # seen at the kick, the rotated run has moved for the step that follows
        ahead = reference(partition, rotated=False, loss=lambda theta: 0.1 * np.sum(theta**2, axis=1))
        ahead.advance(39)
        kicked = []
        ahead.advance(1, lambda part, substep, step: kicked.append(ahead.state.theta.copy()))
        np.testing.assert_allclose(runs[1].state.theta, kicked[1], rtol=0, atol=1e-12)


def test_a_tempering_move_rescales_the_momenta_and_the_scheduled_prior_counts():
    """Without force, friction or noise p changes only on the ladder, and stays √(τ/τ_0) times what it was."""
    tempering = SimulatedTempering((0.1, 0.4, 0.9), every=1)
    chains = hb.Reference(
        lambda theta, batch: 0 * theta,
        np.zeros((20, 2)),
        hb.Partition(hb.Langevin(0.0, tempering), 0.1),
        loss=lambda theta: np.zeros(20),
        seed=1,
    )
    chains.state.p[:] = 1.0
    seen = set()
    for _ in range(20):
        chains.advance(1)
        np.testing.assert_allclose(
            chains.state.p[:, 0], np.array([1.0, 2.0, 3.0])[chains.state.rung], rtol=1e-14
        )
        seen |= set(chains.state.rung)
    assert seen == {0, 1, 2}

    decay = Linear(0.0, 1.0, 10)
    partition = hb.Partition(
        {"first": hb.Frozen(), "last": hb.Langevin(1.0, tempering, weight_decay=decay)}, 0.1
    )
    chains = reference(partition, loss=lambda theta: theta[:, 0])
    expected = START[:, 0] + 0.3 / 2 * np.sum(START[:, 6:] ** 2, axis=1)
    np.testing.assert_allclose(chains._potential(3), expected, rtol=1e-14)


def test_tempering_beside_parts_that_are_not_tempered():
    tempering = SimulatedTempering((0.1, 0.4), every=1)
    for other in (hb.Frozen(), hb.SGD(), METHODS["Langevin"]):
        partition = hb.Partition({"first": hb.Langevin(0.5, tempering, "ABOBA"), "rest": other}, 0.2)
        chains = reference(partition, loss=lambda theta: np.zeros(3))
        chains.advance(10)
        assert chains.state.rung.any()


def test_tempering_needs_a_loss_and_words_that_begin_together():
    tempering = SimulatedTempering((0.1, 0.4))
    with pytest.raises(ValueError, match="simulated tempering needs loss="):
        reference(hb.Partition(hb.Langevin(0.5, tempering), 0.2))
    mixed = hb.Partition(
        {"first": hb.Langevin(0.5, tempering, "ABOBA"), "rest": hb.Langevin(0.5, tempering)}, 0.2
    )
    with pytest.raises(
        ValueError, match=r"tempered words must be seen at the kick or none; got ABOBA, BAOAB"
    ):
        reference(mixed, loss=lambda theta: theta[:, 0])


# What is refused


def test_bad_input_is_refused_before_anything_runs():
    langevin = hb.Partition(METHODS["Langevin"], 0.1)
    with pytest.raises(
        ValueError, match=r"h, tau: a list is an axis of a sweep, and one value is needed here"
    ):
        reference(hb.Partition({"first": hb.Langevin(1, [0.1, 0.2]), "rest": hb.SGD()}, [0.1, 0.2]))
    with pytest.raises(ValueError, match="theta has 5 parameters, and the layers have 9"):
        hb.Reference(gradient, np.zeros((2, 5)), langevin, LAYERS)
    with pytest.raises(
        ValueError, match=r"gradient\(theta, batch\) must have theta's shape \(3, 9\), got \(3,\)"
    ):
        hb.Reference(lambda theta, batch: theta[:, 0], START, langevin).advance(1)
    with pytest.raises(ValueError, match="momenta must be one of 'zero', 'thermal', got 'hot'"):
        reference(langevin, momenta="hot")
    with pytest.raises(ValueError, match=r"seed must be a whole number >= 0 and < .*, got -1"):
        reference(langevin, seed=-1)
    with pytest.raises(ValueError, match=r"theta must be \(chains, parameters\), got an array of shape"):
        hb.Reference(gradient, np.zeros((2, 3, 9)), langevin)
    with pytest.raises(
        ValueError, match=r"noise\(step, slot\) must have theta's shape \(3, 9\), got \(1, 9\)"
    ):
        reference(langevin, noise=lambda step, slot: np.zeros((1, 9))).advance(1)
    tempered = hb.Partition(hb.Langevin(1.0, SimulatedTempering((0.1, 0.2), every=1)), 0.1)
    with pytest.raises(
        ValueError, match=r"loss\(theta\) must be one number for each of 3 chains, got \(3, 1\)"
    ):
        reference(tempered, loss=lambda theta: theta[:, :1]).advance(2)
    with pytest.raises(ValueError, match="steps must be a whole number >= 0, got -1"):
        reference(langevin).advance(-1)
    with pytest.raises(
        ValueError, match=r"rotated=False runs the one word that all parts share.*got Adam, SGD"
    ):
        reference(hb.Partition({"hidden": hb.Adam(), "output": hb.SGD()}, 0.1), rotated=False)
    with pytest.raises(ValueError, match="got BACDEDCAB, BAOAB"):
        reference(hb.AdLaLa(), rotated=False)


def test_the_gradient_cannot_change_the_state_by_accident():
    def careless(theta, batch):
        theta *= 2.0
        return theta

    careful = hb.Reference(lambda theta, batch: 2 * theta, START, hb.Partition(METHODS["SGD"], 0.1))
    chains = hb.Reference(careless, START, hb.Partition(METHODS["SGD"], 0.1))
    chains.advance(3)
    careful.advance(3)
    np.testing.assert_array_equal(chains.state.theta, careful.state.theta)
