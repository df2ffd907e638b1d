import math

import mpmath
import numpy as np
import pytest

from heatbath.methods.adaptive_langevin import C, D, E, F, phi
from heatbath.methods.letters import A, B

XIS = [0.0, 1e-12, -1e-12, 1e-300, -0.5, 3.0, 1e-5, -1e-5, 40.0]


def exact_f(t, xi, sigma):
    """Return the mean factor and the standard deviation of F, to 50 digits."""
    with mpmath.workdps(50):
        t, xi, sigma = mpmath.mpf(t), mpmath.mpf(xi), mpmath.mpf(sigma)
        x = 2 * t * xi
        share = -mpmath.expm1(-x) / x if x else mpmath.mpf(1)
        return float(mpmath.exp(-t * xi)), float(sigma * mpmath.sqrt(t * share))


def f_coefficients(t, xi, sigma):
    """Return the coefficients that the real letter F gives p = 1 and R = 1."""
    p, R = np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])
    factor, deviation = F(p, R, t, np.full((1, 1), xi), sigma)[0]
    return factor, deviation


@pytest.mark.parametrize("xi", XIS)
@pytest.mark.parametrize("t", [0.05, 0.3, 2.0])
@pytest.mark.parametrize("sigma", [0.01, 0.7])
def test_f_agrees_with_50_digits_for_any_sign_and_size_of_xi(xi, t, sigma):
    expected = exact_f(t, xi, sigma)
    assert f_coefficients(t, xi, sigma) == pytest.approx(expected, rel=1e-14, abs=0)


def test_a_naive_f_would_fail_at_small_xi():
    """The control: without expm1 the variance is lost to cancellation."""
    t, xi = 0.3, 1e-12
    naive = math.sqrt((1 - math.exp(-2 * t * xi)) / (2 * xi))
    assert abs(naive / exact_f(t, xi, 1.0)[1] - 1) > 1e-6


@pytest.mark.parametrize("xi", XIS)
def test_f_after_f_is_f_of_twice_the_time_in_law(xi):
    t, sigma = 0.21, 0.4
    factor, deviation = f_coefficients(t, xi, sigma)
    factor2, deviation2 = f_coefficients(2 * t, xi, sigma)
    assert factor**2 == pytest.approx(factor2, rel=1e-14)
    assert (factor**2 + 1) * deviation**2 == pytest.approx(deviation2**2, rel=1e-14)


@pytest.mark.parametrize("xi", [3.0, -0.5])
def test_c_d_c_agrees_with_f_to_third_order_and_is_not_f(xi):
    sigma = 0.4

    def variance_error(t):
        R = np.ones((1, 1))
        p = C(D(C(0 * R, t / 2, xi * R), R, t, sigma), t / 2, xi * R)
        return abs(p[0, 0] ** 2 - f_coefficients(t, xi, sigma)[1] ** 2)

    slope = math.log2(variance_error(0.02) / variance_error(0.01))
    assert slope == pytest.approx(3, abs=0.1)
    assert variance_error(0.02) > 0


def test_phi_is_smooth_through_zero_and_nothing_warns():
    x = np.array([0.0, 5e-324, -5e-324, 1e-16, -1e-16, 1e-8, -1e-8])
    np.testing.assert_allclose(phi(x), 1 - x / 2, rtol=1e-15)
    assert np.isfinite(phi(np.array([700.0, -700.0, 1e300]))).all()


def test_the_plain_letters():
    theta, p, G, R = (np.array([[value]]) for value in (1.0, 2.0, 3.0, 5.0))
    assert A(theta, p, 0.5) == 2.0
    assert B(p, G, 0.5) == 3.5
    assert C(p, 0.5, np.array([[math.log(4)]])) == pytest.approx(1.0)
    assert D(p, R, 0.25, 0.2) == 2.5
    assert E(np.array([[0.1]]), np.array([[7.0]]), np.array([[4.0]]), 0.5, 0.2) == pytest.approx(0.4)
