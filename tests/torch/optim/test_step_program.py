"""The program of a step: its stages, and the coefficients of a tensor's first step and of later ones."""

import pytest

import heatbath as hb
from heatbath.methods.operations import A, B, S
from heatbath.torch.optim.param_groups import STANDSTILL
from heatbath.torch.optim.step_program import step_program


def coefficients_of(program, kind, h=0.1, previous_h=0.1, maximize=False, **numbers):
    """Return the rows of the operations of a kind in the first step and in later ones."""
    numbers = {"gamma": 1.0, "tau": 0.5, "weight_decay": 0.0} | numbers
    table = program.coefficients(numbers | {"lr": previous_h}, numbers | {"lr": h}, maximize)
    return table[:, program.encoded[:, 0] == kind]


@pytest.mark.parametrize(("word", "gradients"), [("BAOAB", 1), ("ABOBA", 1), ("BAOBA", 2), ("ABAOABA", 2)])
def test_a_program_needs_the_gradients_of_its_word(word, gradients):
    assert step_program(hb.Langevin(1.0, 1.0, word)).gradients == gradients


def test_a_first_step_has_no_closing_half_kick_and_later_ones_have_the_stepsize_of_both():
    first, later = coefficients_of(step_program(hb.Langevin(1.0, 1.0)), B, h=0.1, previous_h=0.3)
    assert first[0, 0] == pytest.approx(-0.05)
    assert later[0, 0] == pytest.approx(-0.2)


def test_maximize_changes_the_sign_of_the_gradient_and_nothing_else():
    program = step_program(hb.Langevin(1.0, 1.0))
    descending, climbing = (
        coefficients_of(program, B, maximize=maximize, weight_decay=2.0) for maximize in (False, True)
    )
    assert (climbing[..., 0] == -descending[..., 0]).all()
    assert (climbing[..., 1:] == descending[..., 1:]).all()
    assert descending[0, 0, 1] == pytest.approx(0.05 * 2.0)


def test_at_a_standstill_nothing_drifts_and_infinite_friction_is_not_nan():
    program = step_program(hb.Langevin(1.0, 1.0))
    rows = {"h": STANDSTILL, "previous_h": STANDSTILL, "gamma": float("inf")}
    assert (coefficients_of(program, A, **rows)[..., 0] == 0).all()
    assert (coefficients_of(program, S, **rows)[..., 0] == 0).all()  # momenta are forgotten


def test_the_program_does_not_depend_on_the_coefficients_of_the_method():
    one, two = step_program(hb.Langevin(1.0, 1.0)), step_program(hb.Langevin(3.0, 0.1))
    assert one.stages == two.stages
    assert (one.encoded == two.encoded).all()
    assert len(one.encoded) != len(step_program(hb.Langevin(1.0, 1.0, "OBABO")).encoded)
