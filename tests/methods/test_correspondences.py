"""Methods that are other methods in disguise, step by step; and torch's own optimisers."""

import math

import numpy as np
import pytest

import heatbath as hb
from heatbath.methods import rmsprop as rmsprop_module
from tests.optional import optional

torch = optional("torch")

K = np.array([[2.0, 0.3, 0.0], [0.3, 1.0, -0.4], [0.0, -0.4, 3.0]])
START = np.array([[1.0, -2.0, 0.5], [0.1, 0.2, -0.3]])


def gradient(theta, batch):
    return np.sin(theta) + theta @ K


def trajectory(partition, steps=100, **options):
    chains = hb.Reference(gradient, START, partition, seed=3, **options)
    states = []
    for _ in range(steps):
        chains.advance(1)
        states.append((chains.state.theta.copy(), chains.state.p.copy()))
    return np.array(states)


@pytest.mark.parametrize(("h", "gamma"), [(0.3, 0.5), (0.1, 8.0)])
def test_oba_at_zero_temperature_is_momentum_of_kind_1(h, gamma):
    oba = trajectory(hb.Partition(hb.Langevin(gamma, 0.0, "OBA"), h))
    momentum = trajectory(hb.Partition(hb.Momentum(math.exp(-gamma * h), kind=1), h * h))
    np.testing.assert_allclose(momentum[:, 0], oba[:, 0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(momentum[:, 1], h * oba[:, 1], rtol=0, atol=1e-12)


@pytest.mark.parametrize(("h", "gamma"), [(0.3, 0.5), (0.1, 8.0)])
def test_oba_at_zero_temperature_is_momentum_of_kind_2(h, gamma):
    a = math.exp(-gamma * h)
    oba = trajectory(hb.Partition(hb.Langevin(gamma, 0.0, "OBA"), h))
    momentum = trajectory(hb.Partition(hb.Momentum(a, kind=2), h * h / (1 - a)))
    np.testing.assert_allclose(momentum[:, 0], oba[:, 0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(momentum[:, 1], (1 - a) * oba[:, 1] / h, rtol=0, atol=1e-12)


def test_the_papers_own_momentum_relations_do_not_hold():
    """The control: μ = h exp(-γh) for kind 1, and μ = 1/(1 + h exp(γh)), δt = h + exp(-γh) for kind 2."""
    h, gamma = 0.3, 0.5
    oba = trajectory(hb.Partition(hb.Langevin(gamma, 0.0, "OBA"), h))
    for method, rate in [
        (hb.Momentum(h * math.exp(-gamma * h), kind=1), h * h),
        (hb.Momentum(1 / (1 + h * math.exp(gamma * h)), kind=2), h + math.exp(-gamma * h)),
    ]:
        assert np.abs(trajectory(hb.Partition(method, rate))[:, 0] - oba[:, 0]).max() > 0.01


@pytest.mark.parametrize("tau", [0.09, 2.0])
def test_oba_with_infinite_friction_is_sgld(tau):
    h = 0.2
    oba = trajectory(hb.Partition(hb.Langevin(math.inf, tau, "OBA"), h))
    sgld = trajectory(hb.Partition(hb.SGLD(sigma=math.sqrt(tau)), h * h))
    np.testing.assert_allclose(sgld[:, 0], oba[:, 0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("tau", [0.09, 2.0])
def test_baoab_with_infinite_friction_averages_successive_noise(tau):
    """θ + (h²/2) G + (h/2) √τ (R_n + R_{n-1})."""
    h, steps = 0.3, 100
    drawn = np.random.default_rng(0).standard_normal((steps, 2, 3))
    baoab = trajectory(hb.Partition(hb.Langevin(math.inf, tau), h), noise=lambda step, slot: drawn[step])
    theta = baoab[0, 0]
    for n in range(1, steps):
        theta = theta - h * h / 2 * gradient(theta, n) + h / 2 * math.sqrt(tau) * (drawn[n] + drawn[n - 1])
        np.testing.assert_allclose(baoab[n, 0], theta, rtol=0, atol=1e-12)


def test_sgd_is_sgld_without_noise():
    one, other = (trajectory(hb.Partition(method, 0.05)) for method in (hb.SGD(), hb.SGLD(sigma=0.0)))
    np.testing.assert_array_equal(one[:, 0], other[:, 0])


@pytest.mark.parametrize("k", [0.5, 4.0])
def test_sgld_samples_half_sigma_squared_up_to_its_stepsize(k):
    """The real step gives θ → f θ + g R, whose stationary variance is g²/(1 - f²)."""
    h, sigma = 0.1, 0.3
    chains = hb.Reference(
        lambda theta, batch: k * theta,
        [[1.0], [0.0]],
        hb.Partition(hb.SGLD(sigma), h),
        noise=lambda step, slot: np.array([[0.0], [1.0]]),
    )
    chains.advance(1)
    f, g = chains.state.theta[:, 0]
    assert k * g * g / (1 - f * f) == pytest.approx(sigma**2 / 2 / (1 - h * k / 2), rel=1e-12)


TORCH = [
    (hb.SGD(weight_decay=0.1), 0.05, lambda p: torch.optim.SGD(p, lr=0.05, weight_decay=0.1)),
    (
        hb.Momentum(0.9, kind=1, weight_decay=0.1),
        0.02,
        lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9, weight_decay=0.1),
    ),
    (
        hb.Momentum(0.8, kind=2),
        0.02,
        lambda p: torch.optim.SGD(p, lr=0.02 * 0.2, momentum=0.8),
    ),
    (hb.Adam(), 0.01, lambda p: torch.optim.Adam(p, lr=0.01)),
    (hb.RMSprop(), 0.01, lambda p: torch.optim.RMSprop(p, lr=0.01)),
    # Once the mean of squares has decayed, the effective stepsize is h/ε. Times the largest curvature of this
    # problem (4.1) it must stay below the stability limit of 2, or rounding differences grow from step to
    # step: here it is 0.8. At ε = 1e-3 it would be 41, and the comparison would depend on the CPU.
    (hb.RMSprop(0.9, 0.05), 0.01, lambda p: torch.optim.RMSprop(p, lr=0.01, alpha=0.9, eps=0.05)),
    (
        hb.Adam(0.8, 0.95, 1e-3, weight_decay=0.1),
        0.01,
        lambda p: torch.optim.AdamW(p, lr=0.01, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.1),
    ),
]


@pytest.mark.parametrize(("method", "h", "make"), TORCH)
def test_the_baselines_are_torchs_optimisers(method, h, make):
    ours = trajectory(hb.Partition(method, h))[:, 0]
    theta = torch.tensor(START, dtype=torch.float64, requires_grad=True)
    optimiser = make([theta])
    for n in range(100):
        theta.grad = torch.tensor(gradient(theta.detach().numpy(), n))
        optimiser.step()
        np.testing.assert_allclose(ours[n], theta.detach().numpy(), rtol=0, atol=1e-12)


def epsilon_inside_the_root(theta, s, G, h, alpha, eps):
    s = alpha * s + (1 - alpha) * G**2
    return theta + h * G / np.sqrt(s + eps), s


def swapped_decay(theta, s, G, h, alpha, eps):
    s = (1 - alpha) * s + alpha * G**2
    return theta + h * G / (np.sqrt(s) + eps), s


def corrected_for_the_start_at_zero(theta, s, G, h, alpha, eps):
    s = alpha * s + (1 - alpha) * G**2
    return theta + h * G / (np.sqrt(s / (1 - alpha)) + eps), s  # the correction of the first step, as in Adam


@pytest.mark.parametrize(
    "wrong_formula", [epsilon_inside_the_root, swapped_decay, corrected_for_the_start_at_zero]
)
@pytest.mark.parametrize(("method", "h", "make"), [row for row in TORCH if isinstance(row[0], hb.RMSprop)])
def test_the_comparison_with_torchs_rmsprop_notices_a_wrong_formula(
    method, h, make, wrong_formula, monkeypatch
):
    monkeypatch.setattr(rmsprop_module, "rmsprop", wrong_formula)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        test_the_baselines_are_torchs_optimisers(method, h, make)
