"""Operations are folded into as few moves as their order allows, and gamma numbers have their law."""

import math

import numba
import numpy as np
import pytest

import heatbath as hb
from heatbath.engine import kernels
from heatbath.engine.kernels import (
    DRIFT_STAGE,
    KICK_STAGE,
    LAST_DRIFT_STAGE,
    NOISE_STAGE,
    ThermostatValues,
    fold_operations,
    pointer_types,
    reserve_moves,
    reserve_scratch,
)
from heatbath.engine.layouts import Alone, aligned_address
from heatbath.engine.simd import lanes_of, pointer_to
from heatbath.methods.operations import ADAM, DESCEND, READ, WIDTH, A, B, C, F, S
from tests.engine.test_same_bits import Case, assert_same_bits, group


@numba.njit
def _fold(layout, operations, columns, ones, memory, numbers):
    like, count = pointer_to(columns), operations.shape[0]
    types, lane = pointer_types(like), pointer_to(ones)
    moves, address = reserve_moves(1, count, types, aligned_address(memory))
    scratch, _ = reserve_scratch(layout, types, address)
    thermostat = ThermostatValues(lane, lane, lane)
    fold_operations(layout, pointer_to(operations), 0, count, like, thermostat, 0, moves, 0, scratch)
    for i in range(numbers.shape[0]):
        numbers[i] = moves.coefficients[i * lanes_of(like)]
    return moves.counts[0]


def folded(operations):
    """Return how many moves operations (kind, slot, columns) make, and the coefficients of the first one."""
    rows = np.array([(kind, slot, 0) for kind, slot, *_ in operations], np.int64)
    columns = np.zeros((len(operations), WIDTH, 8))
    for i, (_, _, *numbers) in enumerate(operations):
        columns[i, : len(numbers)] = np.array(numbers)[:, None]
    coefficients = np.zeros(6)
    count = _fold(Alone(), rows, columns.ravel(), np.ones(8), np.zeros(2**16, np.uint8), coefficients)
    return count, coefficients.tolist()


@pytest.mark.parametrize(
    ("operations", "moves"),
    [
        ([(B, -1), (A, -1), (S, 0), (A, -1)], 1),  # BAOA
        ([(A, -1), (S, 0), (A, -1), (B, -1)], 2),  # a kick after a drift
        ([(S, 0), (S, 1)], 2),  # two draws are never merged
        ([(C, -1), (S, 0), (C, -1)], 1),  # but frictions join a draw
        ([(B, -1), (READ, -1), (F, 0), (READ, -1)], 1),  # p·p is read in the midst of a move
        ([(READ, -1), (B, -1)], 2),
        ([(ADAM, -1), (DESCEND, -1)], 2),
    ],
)
def test_an_operation_joins_the_last_move_unless_that_is_past_its_stage(operations, moves):
    assert folded(operations)[0] == moves


def test_baoca_is_one_move_whose_friction_shrinks_its_noise():
    """p += t G - d θ, θ += u p, p = a p + b R, θ += v p."""
    operations = [(B, -1, 0.1, 0.2), (A, -1, 0.3), (S, 0, 0.5, 0.7, 1.0), (C, -1, 0.25), (A, -1, 0.4)]
    shrunk = math.exp(-0.25)  # ξ = 1
    count, coefficients = folded(operations)
    assert count == 1
    np.testing.assert_allclose(coefficients, [0.1, 0.2, 0.3, 0.5 * shrunk, 0.7 * shrunk, 0.4], rtol=1e-15)


def test_the_second_drift_of_a_move_is_its_last_one():
    assert kernels._stage_of.py_func(A, KICK_STAGE) == DRIFT_STAGE
    assert kernels._stage_of.py_func(A, NOISE_STAGE) == LAST_DRIFT_STAGE


def test_a_gamma_number_is_accepted_by_the_ratio_of_densities():
    """v = (1 + c x)^3 with c² = 1/(9 d): u < exp(x²/2 + d - d v + d log v), and never where v is negative."""
    d, x = 2.0, 0.7
    v = (1 + x / math.sqrt(9 * d)) ** 3
    bound = math.exp(x * x / 2 + d - d * v) * v**d
    assert 0.9 < bound < 1
    assert kernels._is_gamma_accepted.py_func(bound - 1e-9, x, v, d)
    assert not kernels._is_gamma_accepted.py_func(bound + 1e-9, x, v, d)
    assert not kernels._is_gamma_accepted.py_func(1e-300, x, -v, d)


def test_a_zero_has_the_sign_that_it_has_without_others_that_have_noise():
    case = Case(tuple(hb.LOL(tau_output=tau) for tau in (0.0, 1e-3)))
    assert_same_bits(case.run(Alone()), case.run(group(case)))
