"""The Ornstein-Uhlenbeck letter is exact, and infinite friction is refused where it would erase the force."""

import math

import mpmath
import numpy as np
import pytest

import heatbath as hb
from heatbath.methods.langevin import O
from heatbath.methods.schedules import Constant, Piecewise


@pytest.mark.parametrize(("gamma", "t", "tau"), [(1e-9, 0.1, 0.3), (0.7, 0.5, 1e-4), (2000.0, 1.0, 4.0)])
def test_o_agrees_with_50_digits(gamma, t, tau):
    factor, deviation = O(np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]]), t, gamma, tau)[0]
    with mpmath.workdps(50):
        a = mpmath.exp(-mpmath.mpf(gamma) * t)
        assert factor == pytest.approx(float(a), rel=1e-14, abs=0)
        assert deviation == pytest.approx(float(mpmath.sqrt(tau * (1 - a * a))), rel=1e-14)


def test_o_with_infinite_friction_draws_p_anew_and_with_none_keeps_it():
    p, R = np.array([[5.0]]), np.array([[2.0]])
    assert O(p, R, 0.1, math.inf, 0.25) == 1.0
    assert O(p, R, 0.1, 1e30, 0.25) == 1.0
    assert O(p, R, 0.1, 0.0, 0.25) == 5.0


@pytest.mark.parametrize(
    "gamma", [math.inf, Constant(math.inf), Piecewise([1.0, math.inf], [10]), [1.0, math.inf]]
)
@pytest.mark.parametrize("word", ["BOA", "ABO", "OAB"])
def test_infinite_friction_is_refused_where_it_would_erase_the_force(gamma, word):
    with pytest.raises(ValueError, match=rf"word '{word}' with gamma = inf: an O follows every B"):
        hb.Langevin(gamma, tau=1e-4, word=word)
    assert hb.Langevin(1.0, tau=1e-4, word=word)
