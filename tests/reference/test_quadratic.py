"""Exact statements on a quadratic: the real step, fed with basis vectors and unit noise, against algebra."""

import math
from itertools import product

import numpy as np
import pytest

import heatbath as hb
from heatbath.methods.schedules import Linear as LinearSchedule
from heatbath.methods.schedules import SimulatedTempering
from heatbath.methods.splitting import gradients, rotate
from heatbath.reference.quadratic import covariance, one_step, stationary
from tests.matrices import Linear, lyapunov, word_as_written
from tests.words import parse

WORDS = [
    "".join(letters)
    for length in range(3, 7)
    for letters in product("ABO", repeat=length)
    if set(letters) == set("ABO")
]
SETTINGS = [  # (h, γ, τ, k): none at τ = 1
    (0.3, 0.7, 0.2, 2.0),
    (1.1, 3.0, 1e-4, 0.5),
    (0.05, 0.01, 40.0, 9.0),
]
K2 = np.array([[2.0, -0.6], [-0.6, 1.1]])


def letter_product(substeps, h, K, **coefficients):
    """Return the map of half a rotation; the gradient is evaluated at the θ that its first letter finds."""
    step = Linear(K)
    step.evaluate()
    for s in substeps:
        step.letter(s.letter, h * float(s.fraction), **coefficients)
    return step.phase


def assert_same_step(real, expected, tolerance=1e-12):
    (M, S), (M_expected, S_expected) = real, expected
    scale = max(1.0, np.abs(M_expected).max())
    np.testing.assert_allclose(M, M_expected, rtol=0, atol=tolerance * scale)
    Q = S_expected @ S_expected.T
    np.testing.assert_allclose(S @ S.T, Q, rtol=0, atol=tolerance * np.abs(Q).max())


def assert_conjugate(partition, substeps, h, K, **coefficients):
    """Check R·opening = opening·W for the rotated step R and the word W, in the noise too."""
    rotation = rotate(substeps)
    opening, S_opening = letter_product(rotation.opening, h, K, **coefficients)
    closing, S_closing = letter_product(rotation.closing, h, K, **coefficients)
    W, S_word = one_step(partition, K, rotated=False)
    R, S = one_step(partition, K, rotated=True)
    assert_same_step((R, S), (opening @ closing, np.hstack([opening @ S_closing, S_opening])))
    np.testing.assert_allclose(R @ opening, opening @ W, rtol=0, atol=1e-12 * max(1, np.abs(W).max() ** 2))
    # the law of the word after a step and its opening, in both orders
    word_then_opening = opening @ S_word @ S_word.T @ opening.T + S_opening @ S_opening.T
    opening_then_rotated = R @ S_opening @ S_opening.T @ R.T + S @ S.T
    np.testing.assert_allclose(
        word_then_opening, opening_then_rotated, rtol=0, atol=1e-12 * np.abs(word_then_opening).max()
    )


@pytest.mark.parametrize(("h", "gamma", "tau", "k"), SETTINGS)
def test_every_word_up_to_length_6_is_the_product_of_its_letters_and_its_rotation_is_conjugate(
    h, gamma, tau, k
):
    K = np.array([[k]])
    rotated = 0
    for word in WORDS:
        partition = hb.Partition(hb.Langevin(gamma, tau, word), h)
        expected = word_as_written(word, h, K, gamma=gamma, tau=tau)
        assert_same_step(one_step(partition, K, rotated=False), expected.phase)
        substeps = parse(word)
        if gradients(substeps) == 1:
            assert_conjugate(partition, substeps, h, K, gamma=gamma, tau=tau)
            rotated += 1
    assert (len(WORDS), rotated) == (732, 632)


@pytest.mark.parametrize("word", ["BAOAB", "ABOBA", "OBABO", "OBA", "BAOBA", "ABAOABA"])
def test_words_on_coupled_parameters(word):
    partition = hb.Partition(hb.Langevin(0.8, 0.3, word), 0.4)
    expected = word_as_written(word, 0.4, K2, gamma=0.8, tau=0.3)
    assert_same_step(one_step(partition, K2, rotated=False), expected.phase)


@pytest.mark.parametrize("friction", ["map", "sde"])
@pytest.mark.parametrize("word", ["BACDEDCAB", "BAFEFAB", "DCABECD", "FABE"])
@pytest.mark.parametrize(("h", "xi", "tau", "k"), SETTINGS)
def test_adaptive_words_at_fixed_xi_are_the_product_of_their_letters(word, h, xi, tau, k, friction):
    sigma = 0.37
    held = xi if friction == "map" else 0.0  # the SDE's friction is εξ, and ε = 0 here
    partition = hb.Partition(hb.AdaptiveLangevin(tau, sigma, 0.0, word, xi=xi, friction=friction), h)
    K = np.array([[k]])
    expected = word_as_written(word, h, K, xi=held, sigma=sigma, tau=tau)
    assert_same_step(one_step(partition, K, rotated=False), expected.phase)
    substeps = parse(word, "AdaptiveLangevin")
    assert_conjugate(partition, substeps, h, K, xi=held, sigma=sigma, tau=tau)


# The table of formulas


def formulas(h, gamma, tau, k):
    """Return k var θ, cov(θ, p) and var p of the stationary law, for each word and place where θ is seen."""
    u, a = h * h * k, math.exp(-gamma * h)
    hot, D = tau / (1 - u / 4), 2 * (1 + a) - u
    return {
        ("BAOAB", False): (tau, 0, tau * (1 - u / 4)),
        ("BAOA", False): (tau, h * tau / 2, tau),
        ("BAOAB", True): (tau, h * tau / 2, tau),
        ("ABOBA", False): (tau, 0, hot),
        ("ABOBA", True): (hot, h * hot / 2, hot),
        ("OBABO", False): (hot, 0, tau),
        ("OABAO", False): (tau * (1 - u / 4), 0, tau),
        ("OBA", False): (tau * (1 + a) ** 2 / D, h * tau * (1 + a) / D, 2 * tau * (1 + a) / D),
    }


def moments(V, k):
    return k * V[0, 0], V[0, 1], V[1, 1]


STEPSIZES = [0.1, 0.7, 1.3, 1.9]  # h√k
FRICTIONS = [0.01, 0.3, 4.0, 100.0]  # γh


def stable(word, x, a):
    return word != "OBA" or x * x < 2 * (1 + a)


@pytest.mark.parametrize("tau", [1e-4, 0.3, 7.0])
@pytest.mark.parametrize("k", [0.25, 3.0])
@pytest.mark.parametrize("x", STEPSIZES)
@pytest.mark.parametrize("friction", FRICTIONS)
def test_the_stationary_covariance_is_the_formulas(tau, k, x, friction):
    h = x / math.sqrt(k)
    gamma = friction / h
    for (word, rotated), expected in formulas(h, gamma, tau, k).items():
        if not stable(word, x, math.exp(-friction)):
            continue
        V = covariance(hb.Partition(hb.Langevin(gamma, tau, word), h), k, rotated=rotated)
        scale = max(1, expected[0] / tau) * tau
        for value, formula, unit in zip(moments(V, k), expected, (1, 1 / math.sqrt(k), 1), strict=True):
            assert value == pytest.approx(formula, rel=1e-12, abs=1e-12 * scale * unit), (word, rotated)


@pytest.mark.parametrize("x", [1.99, 1.9999])
@pytest.mark.parametrize("friction", [1e-5, 1e-3])
def test_near_the_edge_the_lyapunov_equation_still_holds(x, friction):
    for word, rotated in formulas(1, 1, 1, 1):
        if word == "OBA":
            continue
        M, S = one_step(hb.Partition(hb.Langevin(friction / x, 0.3, word), x), 1.0, rotated=rotated)
        V = stationary(M, S)
        residual = V - M @ V @ M.T - S @ S.T
        assert np.abs(residual).max() <= 1e-12 * np.abs(V).max(), (word, rotated)


def test_the_formulas_can_tell_words_sqrt_tau_and_h_apart():
    """The control: each wrong statement must be off by far more than the tolerance."""
    h, gamma, tau, k = 0.5, 1.0, 0.3, 2.0
    table = formulas(h, gamma, tau, k)
    V = covariance(hb.Partition(hb.Langevin(gamma, tau), h), k, rotated=False)
    assert moments(V, k) != pytest.approx(table["OBABO", False], rel=1e-2)
    assert moments(V, k) != pytest.approx(formulas(h, gamma, tau**2, k)["BAOAB", False], rel=1e-2)
    assert moments(V, k) != pytest.approx(formulas(h / 2, gamma, tau, k)["BAOAB", False], rel=1e-2)


def test_beyond_the_stability_limit_there_is_no_law_and_the_error_says_so():
    with pytest.raises(ValueError, match=r"no stationary law.*a smaller h is needed"):
        covariance(hb.Partition(hb.Langevin(1.0, 0.3), 2.01), 1.0)


@pytest.mark.parametrize("word", ["BAOAB", "ABOBA", "OBABO", "OBA"])
def test_without_friction_there_is_no_law(word):
    for h in np.linspace(0.05, 1.95, 39):
        with pytest.raises(ValueError, match=r"no stationary law.*friction is needed"):
            covariance(hb.Partition(hb.Langevin(0.0, 0.3, word), float(h)), 1.0)


def test_a_law_of_scheduled_coefficients_is_refused():
    for partition in (
        hb.Partition(hb.Langevin(1.0, LinearSchedule(0.1, 0.2, 9)), 0.1),
        hb.Partition(hb.Langevin(1.0, 0.1), LinearSchedule(0.1, 0.2, 9)),
        hb.Partition(hb.Langevin(1.0, SimulatedTempering((0.1, 0.2))), 0.1),
    ):
        with pytest.raises(ValueError, match="a law is stationary only while the coefficients are"):
            covariance(partition, 1.0)


@pytest.mark.parametrize("method", [hb.SGD(), hb.AdaptiveLangevin(0.1, 0.1, epsilon=0.1)])
def test_methods_that_are_not_linear_are_refused(method):
    with pytest.raises(
        ValueError, match="a step is linear for Langevin, and for AdaptiveLangevin with epsilon=0"
    ):
        covariance(hb.Partition(method, 0.1), 1.0)


# Infinite friction


@pytest.mark.parametrize(("h", "k"), [(0.1, 2.0), (0.9, 1.5)])
@pytest.mark.parametrize("tau", [1e-4, 0.3])
def test_infinite_friction_samples_tau_in_baoab_and_half_of_it_in_oba(h, k, tau):
    def variance(word):
        return k * covariance(hb.Partition(hb.Langevin(math.inf, tau, word), h), k, rotated=True)[0, 0]

    assert variance("BAOAB") == pytest.approx(tau, rel=1e-12)
    assert variance("OBA") == pytest.approx(tau / (2 - h * h * k), rel=1e-12)


# Gradient noise


def added_by_gradient_noise(word, h, gamma, k, s):
    u, a = h * h * k, math.exp(-gamma * h)
    D = 2 * (1 + a) - u if word == "OBA" else 4 - u
    return h * h * s * s * (1 + a) / ((1 - a) * D)


NOISY_WORDS = ["BAOAB", "BAOA", "OBABO", "ABOBA", "OBA"]


def heating(word, h, gamma, k, s, reference=hb.Reference):
    """Return the k var θ that gradient noise adds, when every *call* of the gradient has noise of its own.

    One chain for each column: the two basis vectors, and the noise of up to three calls.
    """
    calls = []

    def gradient(theta, batch):
        calls.append(batch)
        noise = np.zeros((5, 1))
        noise[1 + len(calls)] = s
        return k * theta + noise

    partition = hb.Partition(hb.Langevin(gamma, 0.0, word), h)
    chains = reference(gradient, np.eye(5)[:, :1], partition)
    chains.state.p, chains.state.step = np.eye(5)[:, 1:2].copy(), 5
    chains.advance(1)
    M, S = np.split(np.hstack([chains.state.theta, chains.state.p]).T, [2], axis=1)
    return k * lyapunov(M, S)[0, 0]


class RedrawnGradient(hb.Reference):
    """A control, broken on purpose: closing and opening kick draw their gradients independently."""

    def _apply(self, member, substeps, n, observe=None):
        self._G = self._negative_gradient(batch=0)
        super()._apply(member, substeps, n, observe)


@pytest.mark.parametrize("word", NOISY_WORDS)
@pytest.mark.parametrize(("h", "gamma", "k"), [(0.2, 0.05, 3.0), (0.7, 2.0, 1.0), (0.5, 200.0, 2.0)])
def test_gradient_noise_adds_the_exact_variance(word, h, gamma, k):
    s, tau = 0.6, 0.3
    added = added_by_gradient_noise(word, h, gamma, k, s)
    clean = hb.Partition(hb.Langevin(gamma, tau, word), h)
    difference = covariance(clean, k, gradient_noise=s) - covariance(clean, k)
    assert k * difference[0, 0] == pytest.approx(added, rel=1e-11)  # a difference of larger numbers
    cold = hb.Partition(hb.Langevin(gamma, 0.0, word), h)
    assert k * covariance(cold, k, gradient_noise=s)[0, 0] == pytest.approx(added, rel=1e-12)
    assert heating(word, h, gamma, k, s) == pytest.approx(added, rel=1e-12)

    substeps = (*rotate(parse(word)).closing, *rotate(parse(word)).opening)
    algebra = Linear(np.array([[k]]))
    algebra.evaluate(s)
    for substep in substeps:
        algebra.letter(substep.letter, h * float(substep.fraction), gamma=gamma, tau=0)
    assert k * lyapunov(*algebra.phase)[0, 0] == pytest.approx(added, rel=1e-12)


@pytest.mark.parametrize("word", ["BAOAB", "OBABO"])
def test_independent_draws_for_closing_and_opening_kick_would_be_caught(word):
    h, gamma, k, s = 0.2, 0.05, 3.0, 0.6
    added = added_by_gradient_noise(word, h, gamma, k, s)
    assert heating(word, h, gamma, k, s, reference=RedrawnGradient) == pytest.approx(added / 2, rel=0.02)


def test_the_papers_effective_temperature_is_the_limit_of_small_friction_times_stepsize():
    h, k, s = 1e-3, 1.0, 0.6
    for gamma_h, ratio in [(1e-3, 1.0), (4.0, 2.0), (100.0, 50.0)]:
        gamma = gamma_h / h
        exact = added_by_gradient_noise("BAOAB", h, gamma, k, s)
        assert exact / (h * s * s / (2 * gamma)) == pytest.approx(ratio, rel=0.04)


# Unequal temperatures

LAYERS = {"first": (2, 1), "last": (2,)}
COUPLED = np.array(
    [
        [2.0, 0.3, 0.0, 0.7, 0.1],
        [0.3, 1.5, 0.2, 0.0, -0.6],
        [0.0, 0.2, 1.0, 0.4, 0.0],
        [0.7, 0.0, 0.4, 2.5, 0.2],
        [0.1, -0.6, 0.0, 0.2, 1.2],
    ]
)
HIDDEN, OUTPUT = slice(0, 3), slice(3, 5)


def two_part_step(h, hidden, output):
    """Return one rotated step of two parts: the gradient, then each part's closing and opening."""
    step = Linear(COUPLED)
    step.evaluate()
    for at, (word, gamma, tau) in ((HIDDEN, hidden), (OUTPUT, output)):
        rotation = rotate(parse(word))
        for s in (*rotation.closing, *rotation.opening):
            step.letter(s.letter, h * float(s.fraction), gamma=gamma, tau=tau, at=at)
    return step.phase


UNEQUAL = {
    "LaLa": (
        hb.LaLa(h=0.5, gamma=0.4, tau=0.2, gamma_output=2.0, tau_output=0.01),
        ("BAOAB", 0.4, 0.2),
        ("BAOAB", 2.0, 0.01),
    ),
    "LOL": (
        hb.LOL(h=0.5, gamma=0.3, tau=0.2, tau_output=0.05),
        ("BAOAB", 0.3, 0.2),
        ("BAOAB", math.inf, 0.05),
    ),
    "LOL at zero": (hb.LOL(h=0.5, gamma=0.3, tau=0.2), ("BAOAB", 0.3, 0.2), ("BAOAB", math.inf, 0.0)),
    "different words": (
        hb.Partition(
            {"hidden": hb.Langevin(0.4, 0.2, "ABOBA"), "output": hb.Langevin(2.0, 0.01, "OBABO")}, h=0.5
        ),
        ("ABOBA", 0.4, 0.2),
        ("OBABO", 2.0, 0.01),
    ),
}


@pytest.mark.parametrize("name", UNEQUAL)
def test_parts_with_different_coefficients_are_the_product_of_their_letters(name):
    partition, hidden, output = UNEQUAL[name]
    expected = two_part_step(0.5, hidden, output)
    assert_same_step(one_step(partition, COUPLED, LAYERS), expected)
    V = covariance(partition, COUPLED, LAYERS)
    np.testing.assert_allclose(V, lyapunov(*expected), rtol=0, atol=1e-12 * np.abs(V).max())


def configurational_temperatures(V):
    """Return E[θ·∇U]/N of each part: its temperature as its positions see it."""
    virial = np.diag(COUPLED @ V[:5, :5])
    return virial[HIDDEN].mean(), virial[OUTPUT].mean()


def test_at_unequal_temperatures_no_part_is_at_its_own_and_at_equal_ones_every_part_is():
    equal = covariance(hb.LaLa(h=0.5, gamma=0.4, tau=0.2, gamma_output=2.0), COUPLED, LAYERS)
    assert configurational_temperatures(equal) == pytest.approx((0.2, 0.2), rel=1e-12)
    hot, cold = configurational_temperatures(covariance(UNEQUAL["LaLa"][0], COUPLED, LAYERS))
    assert hot < 0.95 * 0.2
    assert cold > 1.2 * 0.01


@pytest.mark.parametrize("name", ["LaLa", "LOL"])
def test_a_long_run_at_unequal_temperatures_has_the_covariance_of_the_lyapunov_equation(name):
    """Statistical: 15 entries of the covariance, 4.5 standard errors over 400 chains (error rate 1e-4)."""
    partition = UNEQUAL[name][0]
    V = covariance(partition, COUPLED, LAYERS)
    rng = np.random.default_rng(1)
    chains = hb.Reference(
        lambda theta, batch: theta @ COUPLED,
        rng.multivariate_normal(np.zeros(5), V[:5, :5], size=400),
        partition,
        LAYERS,
        noise=lambda step, slot: rng.standard_normal((400, 5)),
    )
    chains.advance(100)
    total = np.zeros((400, 5, 5))
    for _ in range(1000):
        chains.advance(1)
        total += chains.state.theta[:, :, None] * chains.state.theta[:, None, :]
    mean = total / 1000
    z = (mean.mean(axis=0) - V[:5, :5]) / (mean.std(axis=0) / math.sqrt(400))
    assert np.abs(z).max() < 4.5
