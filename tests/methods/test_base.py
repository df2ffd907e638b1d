import math
import pickle
from dataclasses import FrozenInstanceError, fields

import numpy as np
import pytest

import heatbath as hb
from heatbath.methods.base import describe, find_method
from heatbath.methods.schedules import Constant, Cyclical, Exponential, Linear, Piecewise, SimulatedTempering

EXAMPLES = [
    hb.Langevin(gamma=1, tau=1e-4),
    hb.AdaptiveLangevin(tau=1e-4, sigma=0.01, epsilon=0.1),
    hb.SGLD(sigma=0.01),
    hb.SGD(),
    hb.Momentum(mu=0.9),
    hb.Adam(),
    hb.Frozen(),
]
COEFFICIENTS = [
    (method, field.name)
    for method in EXAMPLES
    for field in fields(method)
    if field.name not in ("word", "friction", "thermostat", "kinetic", "kind")
]


def with_value(method, name, value):
    given = {field.name: getattr(method, field.name) for field in fields(method)}
    return type(method)(**{**given, name: value})


@pytest.mark.parametrize("method", EXAMPLES)
def test_a_method_is_a_frozen_value(method):
    assert pickle.loads(pickle.dumps(method)) == method
    assert hash(method) == hash(pickle.loads(pickle.dumps(method)))
    with pytest.raises(FrozenInstanceError):
        method.weight_decay = 1.0


@pytest.mark.parametrize(("method", "name"), COEFFICIENTS)
@pytest.mark.parametrize("bad", ["1", None, True, 1j, np.ones((2, 2)), {"tau": 1}])
def test_a_coefficient_of_the_wrong_type_is_refused_by_name(method, name, bad):
    if bad is None and name == method.thermal and method.may_leave_temperature:
        return
    with pytest.raises(
        TypeError, match=rf"{type(method).__name__}: {name} must be a number \(.*\), a schedule, or a list"
    ):
        with_value(method, name, bad)


@pytest.mark.parametrize(("method", "name"), COEFFICIENTS)
@pytest.mark.parametrize(
    "bad", [-1.0, math.nan, -math.inf, -(10**400), [0.1, -1.0], [0.5, math.nan], [], Constant(-1.0)]
)
def test_a_negative_or_nan_coefficient_is_refused_by_name(method, name, bad):
    if name == "xi" and bad in (-1.0, [0.1, -1.0]):
        assert with_value(method, name, bad)  # ξ may start below zero
        return
    with pytest.raises((TypeError, ValueError), match=rf"{type(method).__name__}: {name}"):
        with_value(method, name, bad)


@pytest.mark.parametrize(("method", "name"), COEFFICIENTS)
def test_infinity_is_for_gamma_only(method, name):
    for infinite in (math.inf, Constant(math.inf), [0.5, math.inf]):
        if name == "gamma":
            assert with_value(method, name, infinite)
        else:
            with pytest.raises(ValueError, match=name):
                with_value(method, name, infinite)


def test_a_list_is_an_axis_and_is_kept_as_a_tuple():
    method = hb.Langevin(gamma=[1, 2], tau=(1e-4, Linear(1e-3, 0, 10)))
    assert method.gamma == (1.0, 2.0)
    assert method.tau == (1e-4, Linear(1e-3, 0.0, 10))
    assert hash(method)


def test_numbers_are_kept_as_floats():
    method = hb.Langevin(gamma=np.int64(2), tau=np.float32(0.5))
    assert type(method.gamma) is float
    assert type(method.tau) is float


def test_a_schedule_must_stay_where_the_coefficient_is_accepted():
    assert hb.Langevin(gamma=1, tau=Linear(1e-3, 0.0, 100))
    with pytest.raises(ValueError, match=r"Langevin: tau must be >= 0 and finite at every step, got Linear"):
        hb.Langevin(gamma=1, tau=Linear(1e-3, -1e-3, 100))
    with pytest.raises(ValueError, match=r"Momentum: mu must be >= 0 and < 1"):
        hb.Momentum(mu=Exponential(0.5, 1.0, 100))
    assert hb.SGLD(sigma=Cyclical(0.1, 0.0, 50))


@pytest.mark.parametrize("bad", [Constant(0.1), [0.1, Linear(0.1, 0.2, 5)]])
def test_where_xi_starts_cannot_be_a_schedule(bad):
    with pytest.raises(TypeError, match="xi is the initial ξ, so it cannot be a schedule"):
        hb.AdaptiveLangevin(tau=1e-4, sigma=0.01, epsilon=0.1, xi=bad)


def test_only_tau_can_be_tempered():
    ladder = SimulatedTempering((1e-4, 2e-4))
    assert hb.Langevin(gamma=1, tau=ladder).tau == ladder
    with pytest.raises(ValueError, match=r"Langevin: gamma cannot be tempered, only tau can"):
        hb.Langevin(gamma=ladder, tau=1e-4)


@pytest.mark.parametrize(
    ("option", "bad"), [("friction", "SDE"), ("thermostat", "layer"), ("kinetic", None), ("friction", True)]
)
def test_an_unknown_option_is_refused_with_what_is_accepted(option, bad):
    with pytest.raises(ValueError, match=rf"AdaptiveLangevin: {option} must be one of '"):
        hb.AdaptiveLangevin(tau=1e-4, sigma=0.01, epsilon=0.1, **{option: bad})
    with pytest.raises(ValueError, match="Momentum: kind must be one of 1, 2, got 3"):
        hb.Momentum(mu=0.5, kind=3)


def test_repr_says_where_theta_is_seen_at_the_kick_and_only_there():
    assert repr(hb.Langevin(1, 1e-4, "ABOBA")).endswith("<between steps θ is seen at the kick>")
    assert repr(hb.Langevin(1, 1e-4)) == "Langevin(gamma=1.0, tau=0.0001, word='BAOAB')"
    assert "kick" not in repr(hb.Langevin(1, 1e-4, "ABAOABA"))


def test_epsilon_zero_is_allowed():
    assert hb.AdaptiveLangevin(tau=0, sigma=0, epsilon=0).epsilon == 0


def test_a_method_is_found_by_the_name_of_its_class_and_an_unknown_name_is_refused():
    assert find_method("Langevin") is hb.Langevin
    assert find_method("Langevin", hb.Langevin.__module__) is hb.Langevin
    with pytest.raises(ValueError, match="'Langevin' of elsewhere is needed, but that of heatbath"):
        find_method("Langevin", "elsewhere")
    with pytest.raises(ValueError, match="there is no method 'Newton'; accepted: Langevin, "):
        find_method("Newton")
    with pytest.raises(ValueError, match="it is defined in elsewhere: import that module first"):
        find_method("Newton", "elsewhere")


def test_a_cooled_method_has_its_temperature_divided_and_a_driving_noise_by_the_square_root():
    assert hb.Langevin(1.0, 1e-3).cooled(10, 100.0).tau == Piecewise([1e-3, 1e-5], [10])
    assert hb.SGLD(0.5).cooled(10, 4.0).sigma == Piecewise([0.5, 0.25], [10])
    assert hb.SGD().cooled(10, 4.0) == hb.SGD()


def test_arguments_are_described_by_their_fields():
    gamma, tau = (describe(hb.Langevin)[name] for name in ("gamma", "tau"))
    assert (gamma.kind, gamma.symbol, gamma.is_required()) == ("coefficient", "γ", True)
    assert (tau.is_required(), tau.is_required(has_posterior=True)) == (True, False)
    assert (describe(hb.Momentum)["kind"].kind, describe(hb.Momentum)["kind"].choices) == ("whole", (1, 2))
    assert describe(hb.AdaptiveLangevin)["friction"].kind == "text"
