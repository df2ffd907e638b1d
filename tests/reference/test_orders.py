"""The declared orders: the power of h in the bias of the stationary law, at fixed finite friction.

On a quadratic from the Lyapunov equation. On the double well θ²/2 - log cosh 1.5θ, whose gradient is
Lipschitz, from the one-step kernel: the real step is applied to a grid of states, with the noise on a
Gauss-Hermite grid, and the stationary law is the left eigenvector of the kernel in a basis of Hermite
polynomials. More basis functions change the moments by less than 1e-7.
"""

import math
from itertools import product

import numpy as np
import pytest

import heatbath as hb
from heatbath.methods.splitting import NAMED, gradients
from heatbath.reference.quadratic import covariance
from tests.words import parse

GAMMA = 1.0


def method_of(word, tau):
    if "O" in word:
        return hb.Langevin(GAMMA, tau, word)
    return hb.AdaptiveLangevin(tau, math.sqrt(2 * GAMMA * tau), epsilon=0, word=word, xi=GAMMA)


def measured_order(errors, hs, floor):
    """Return the slope at the two smallest h, or None where there is no error left."""
    errors = np.abs(errors)
    if errors[-1] < floor:
        return None
    slope = np.log(errors[-2] / errors[-1]) / np.log(hs[-2] / hs[-1])
    assert abs(slope - round(slope)) < 0.1, f"no clean slope: {slope}"
    return round(slope)


def lowest(orders):
    return min((order for order in orders if order is not None), default=None)


# On a quadratic


def quadratic_biases(word, tau, k, hs):
    """Return the biases of k θ², θp and p², relative to τ, at the end of the word."""
    laws = [covariance(hb.Partition(method_of(word, tau), h), k, rotated=False) for h in hs]
    return np.array([[k * V[0, 0] / tau - 1, V[0, 1] / tau, V[1, 1] / tau - 1] for V in laws]).T


EXACT_ON_A_QUADRATIC = {"BAOAB", "BAOA", "ABOBA", "BAFEFAB"}


@pytest.mark.parametrize("tau", [0.3, 5.0])
@pytest.mark.parametrize("word", NAMED)
def test_the_declared_order_is_that_of_the_bias_on_a_quadratic(word, tau):
    hs = [0.02, 0.01]
    theta2, theta_p, p2 = (measured_order(e, hs, floor=1e-10) for e in quadratic_biases(word, tau, 2.0, hs))
    assert lowest([theta2, theta_p, p2]) == NAMED[word].joint
    assert (theta2 is None) == (word in EXACT_ON_A_QUADRATIC)
    if theta2 is not None:
        assert theta2 == NAMED[word].position


@pytest.mark.parametrize("word", [word for word in NAMED if word not in ("BAOBA", "ABAOABA")])
def test_rotation_keeps_the_order_in_theta(word):
    hs = [0.02, 0.01]
    laws = [covariance(hb.Partition(method_of(word, 0.3), h), 2.0, rotated=True) for h in hs]
    bias = np.array([2.0 * V[0, 0] / 0.3 - 1 for V in laws])
    assert measured_order(bias, hs, floor=1e-10) in (None, NAMED[word].position)


# On a double well

TAU = 0.4
WIDTH = 1.0  # of the Hermite basis in θ; that in p has √τ
HS = [0.1, 0.05]


def double_well(theta, batch):
    return theta - 1.5 * np.tanh(1.5 * theta)


def exact_theta2():
    theta = np.linspace(-15, 15, 300_001)
    weight = np.exp(-(theta**2 / 2 - np.logaddexp(1.5 * theta, -1.5 * theta)) / TAU)
    return np.sum(theta**2 * weight) / np.sum(weight)


def hermite(x, count):
    """Return Hermite polynomials orthonormal under N(0, 1): an array (count, len(x))."""
    values = np.empty((count, len(x)))
    values[0], values[1] = 1, x
    for n in range(1, count - 1):
        values[n + 1] = (x * values[n] - math.sqrt(n) * values[n - 1]) / math.sqrt(n + 1)
    return values


def gauss(count):
    nodes, weights = np.polynomial.hermite_e.hermegauss(count)
    return nodes, weights / weights.sum()


def stationary_moments(word, h, in_theta=56, in_p=14, in_noise=12):
    """Return E θ², E θp and E p² at the end of the word, from its one-step kernel."""
    slots = sum(s.slot is not None for s in parse(word, type(method_of(word, TAU)).__name__))
    (x, wx), (y, wy), (z, wz) = gauss(2 * in_theta), gauss(2 * in_p), gauss(in_noise)
    noise = np.array(list(product(z, repeat=slots)))
    noise_weight = np.array([math.prod(w) for w in product(wz, repeat=slots)])
    theta, p = (g.ravel() for g in np.meshgrid(WIDTH * x, math.sqrt(TAU) * y, indexing="ij"))
    grid_weight = np.outer(wx, wy).ravel()
    drawn = np.tile(noise, (len(theta), 1))

    chains = hb.Reference(
        double_well,
        np.repeat(theta, len(noise))[:, None],
        hb.Partition(method_of(word, TAU), h),
        rotated=False,
        noise=lambda step, slot: drawn[:, [slot]],
    )
    chains.state.p = np.repeat(p, len(noise))[:, None]
    chains.advance(1)

    shape = (-1, len(theta), len(noise))
    after_theta = hermite(chains.state.theta[:, 0] / WIDTH, in_theta).reshape(shape)
    after_p = hermite(chains.state.p[:, 0] / math.sqrt(TAU), in_p).reshape(shape) * noise_weight
    expected = np.einsum("anz,bnz->nab", after_theta, after_p, optimize=True).reshape(len(theta), -1)
    before = hermite(theta / WIDTH, in_theta)[:, None] * hermite(p / math.sqrt(TAU), in_p)[None]
    kernel = (before.reshape(-1, len(theta)) * grid_weight) @ expected  # of the basis functions

    # the law's coefficients c satisfy c kernel = c, and that of the constant function is 1
    equations = (kernel - np.eye(len(kernel))).T
    rest = np.linalg.solve(equations[1:, 1:], -equations[1:, 0])
    c = np.concatenate([[1.0], rest]).reshape(in_theta, in_p)
    theta2 = WIDTH**2 * (math.sqrt(2) * c[2, 0] + 1)
    return np.array([theta2, WIDTH * math.sqrt(TAU) * c[1, 1], TAU * (math.sqrt(2) * c[0, 2] + 1)])


@pytest.fixture(scope="module")
def well_biases():
    """Return the biases of θ², θp and p² at each h, by word, computed when first asked for."""
    known = {}

    def biases(word):
        if word not in known:
            exact = [exact_theta2(), 0.0, TAU]
            known[word] = np.array([stationary_moments(word, h) - exact for h in HS]).T
        return known[word]

    return biases


@pytest.mark.parametrize("word", NAMED)
def test_the_declared_order_is_that_of_the_bias_on_a_double_well(word, well_biases):
    theta2, theta_p, p2 = (measured_order(e, HS, floor=1e-6) for e in well_biases(word))
    assert theta2 == NAMED[word].position
    # p² and θp may be better than the law as a whole, never worse
    assert lowest([theta2, theta_p, p2]) == NAMED[word].joint


def test_the_kernels_moments_have_converged():
    coarse, fine = (stationary_moments("BAOAB", 0.05, in_theta=n) for n in (56, 72))
    assert np.abs(coarse - fine).max() < 1e-7


def test_a_wrong_declaration_would_be_caught(well_biases):
    """The controls: BAOAB declared 1 and OBA declared 2."""
    assert measured_order(well_biases("BAOAB")[0], HS, floor=1e-6) != 1
    assert measured_order(well_biases("OBA")[0], HS, floor=1e-6) != 2


def test_baoab_is_far_more_accurate_in_theta_than_words_of_the_same_order(well_biases):
    baoab, others = well_biases("BAOAB")[0], [well_biases(word)[0] for word in ("OBABO", "ABOBA", "OABAO")]
    assert all(np.all(np.abs(baoab) < 0.5 * np.abs(other)) for other in others)


@pytest.mark.parametrize("word", ["BAOAB", "OBA"])
def test_a_long_run_agrees_with_the_kernel(word):
    """Statistical, a check of consistency: three moments within 4.5 standard errors (error rate 2e-5)."""
    h, chains, steps = 0.6, 1000, 3000
    rng = np.random.default_rng(7)
    one_gradient = gradients(parse(word)) == 1
    assert one_gradient
    run = hb.Reference(
        double_well,
        rng.choice([-1.4, 1.4], size=(chains, 1)),
        hb.Partition(hb.Langevin(GAMMA, TAU, word), h),
        rotated=False,
        noise=lambda step, slot: rng.standard_normal((chains, 1)),
    )
    run.advance(200)
    total = np.zeros((3, chains))
    for _ in range(steps):
        run.advance(1)
        theta, p = run.state.theta[:, 0], run.state.p[:, 0]
        total += np.stack([theta**2, theta * p, p**2])
    mean = total / steps
    z = (mean.mean(axis=1) - stationary_moments(word, h)) / (mean.std(axis=1) / math.sqrt(chains))
    assert np.abs(z).max() < 4.5
