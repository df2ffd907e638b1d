"""A method that is not in the package: Nosé-Hoover-Langevin dynamics, in this file only."""

from __future__ import annotations

from dataclasses import dataclass
from inspect import signature
from typing import ClassVar

import numpy as np
import pytest

import heatbath as hb
from heatbath import operations
from heatbath.checks import FRICTION, NON_NEGATIVE
from heatbath.letters import DRIFT, KICK, Letter
from heatbath.methods import Method, known_methods, starting, varying
from heatbath.methods.method import _known
from heatbath.schedules import Coefficient
from tests.contracts import CONTRACTS, example


def act_c(now):
    now.p = np.exp(-now.t * now.friction) * now.p


def act_e(now):
    now.xi = now.xi + now.t * now["epsilon"] * (now.squares - now.sizes * now.tau)


def act_o(now):
    a = np.exp(-now["gamma"] * now.t)
    now.xi = a * now.xi + np.sqrt(now["epsilon"] * now.tau * (1 - a**2)) * now.R_of_friction


def columns_o(values):
    exponent = values["gamma"] * values.t
    width = np.sqrt(values["epsilon"]) * np.sqrt(-np.expm1(-2 * exponent))
    return [np.exp(-exponent), width, values.root_tau]


@dataclass(frozen=True, repr=False)
class NoseHooverLangevin(Method):
    """dp = G dt - ξ p dt, dξ = ε (p·p - Nτ) dt - γ ξ dt + sqrt(2γετ) dW: samples exp(-H/τ), ξ ~ N(0, ετ)."""

    gamma: Coefficient = varying(FRICTION, "Friction on ξ.")
    tau: Coefficient = varying(NON_NEGATIVE, "Temperature.", tempered=True)
    epsilon: Coefficient = varying(NON_NEGATIVE, "Coupling of the thermostat.")
    word: str = "BACEOECAB"
    xi: Coefficient = starting("Where ξ starts.", 0.0)
    weight_decay: Coefficient = varying(NON_NEGATIVE, "Precision of the Gaussian prior.", 0.0)

    title = "NHL"
    thermostat = "part"
    letters: ClassVar[dict[str, Letter]] = {
        "A": DRIFT,
        "B": KICK,
        "C": Letter(act_c, ((operations.C, lambda values: [values.t]),)),
        "E": Letter(
            act_e,
            ((operations.THERMOSTAT, lambda values: [values.t * values["epsilon"], values.tau, 0.0]),),
            reads=True,
        ),
        "O": Letter(act_o, ((operations.FLUCTUATE, columns_o),), draws=True),
    }


@pytest.fixture
def registered():
    hb.register(NoseHooverLangevin)
    yield NoseHooverLangevin
    _known.pop("NoseHooverLangevin")


@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda contract: contract.__name__)
def test_a_method_from_outside_keeps_every_contract(registered, contract, request):
    fixtures = [request.getfixturevalue(f) for f in list(signature(contract).parameters)[1:]]
    contract(example(registered), *fixtures)


@pytest.mark.parametrize("word", ["BACEOECAB", "ABCEOECBA", "OECABACEO", "BAECOCEAB"])
def test_its_words_are_followed_too(registered, word):
    from tests import test_engine

    partition = hb.Partition(example(registered, word=word), 0.05)
    test_engine.assert_same_trajectory(*test_engine.runs(partition))


@pytest.mark.parametrize("tau", [0.09, 2.0])
def test_its_law_is_that_of_its_docstring(registered, tau):
    """Over 4,000 chains, within 4.5 standard errors and 2 % for O(h²).

    The control: at γ = 0, Nosé and Hoover's dynamics, which is not ergodic, ξ keeps another variance.
    """
    epsilon, k, chains = 1.4 / tau, np.array([1.0, 2.3]), 4_000

    def final(gamma):
        reference = hb.Reference(
            lambda theta, batch: k * theta,
            np.full((chains, 2), 0.3),
            hb.Partition(registered(gamma, tau, epsilon), 0.1),
            momenta="thermal",
            noise=lambda step, slot: np.random.default_rng((step, slot)).standard_normal((chains, 2)),
        )
        reference.advance(1_500)
        return reference.state

    state, error = final(1.0), 4.5 * np.sqrt(2 / chains) + 0.02
    np.testing.assert_allclose(np.mean(k * state.theta**2, axis=0) / tau, 1.0, atol=error)
    xi = state.xi["all"]
    assert np.var(xi) / (epsilon * tau) == pytest.approx(1.0, abs=error)
    assert abs(np.mean(xi)) < 4.5 * np.sqrt(epsilon * tau / chains)
    assert np.var(final(0.0).xi["all"]) / (epsilon * tau) != pytest.approx(1.0, abs=error)


def test_nobody_knows_it_before_it_is_registered():
    method = NoseHooverLangevin(1.0, 1e-3, 0.1)
    with pytest.raises(TypeError, match=r"nobody knows NoseHooverLangevin yet: call heatbath.register"):
        hb.Partition(method, 0.1)
    assert "NoseHooverLangevin" not in known_methods()


def test_a_file_says_which_module_to_import(registered, tmp_path):
    problem = hb.datasets.spirals(turns=1, n_train=40, n_test=20, seed=3)
    run = hb.train(problem, hb.Dense((4,)), hb.Partition(example(registered), 0.05), 10, 10)
    run.save(tmp_path / "run.nc")
    _known.pop("NoseHooverLangevin")
    try:
        with pytest.raises(
            ValueError, match=r"'NoseHooverLangevin'; it is defined in tests.test_outside: import"
        ):
            hb.load(tmp_path / "run.nc")
    finally:
        hb.register(NoseHooverLangevin)
    assert hb.load(tmp_path / "run.nc").partition == run.partition


class NotAMethod:
    pass


def test_what_is_no_method_is_not_registered():
    with pytest.raises(TypeError, match=r"derives from heatbath\.methods\.Method"):
        hb.register(NotAMethod)

    class Bare(Method):
        pass

    with pytest.raises(TypeError, match="register takes a dataclass"):
        hb.register(Bare)

    @dataclass(frozen=True)
    class Unmarked(Method):
        rate: float = 0.1

    with pytest.raises(ValueError, match="the fields rate must be made by varying, starting or option"):
        hb.register(Unmarked)

    @dataclass(frozen=True)
    class Still(Method):
        word = "C"
        letters = {"C": Letter(act_c, ((operations.C, lambda values: [values.t]),))}  # noqa: RUF012

    with pytest.raises(ValueError, match="no letter of 'C' moves θ"):
        hb.register(Still)

    @dataclass(frozen=True)
    class SGD(Method):
        pass

    with pytest.raises(ValueError, match=r"there is a method of this name already, heatbath.methods.sgd.SGD"):
        hb.register(SGD)
