"""Tables have the coefficients of the steps that letters belong to."""

import numpy as np
import pytest

import heatbath as hb
from heatbath.engine.coefficients import Steps, decays, table
from heatbath.engine.program import compile_program
from heatbath.methods.schedules import Linear, SimulatedTempering
from heatbath.models.dense import MLP

LAYERS = MLP((20,)).layers(2, 1)


def test_a_full_kick_has_half_of_the_last_stepsize_and_half_of_the_next_one():
    h = Linear(0.1, 0.5, 4)
    program = compile_program(hb.Partition(hb.Langevin(0.5, 1e-3), h), LAYERS)
    kicks = table(program, program.steps, Steps(0, 4))[:, 0, 0]
    np.testing.assert_allclose(kicks, [0.05, 0.15, 0.25, 0.35], rtol=1e-12)  # at the start it closes no step


def test_rows_do_not_depend_on_the_step_that_a_table_begins_with():
    program = compile_program(hb.AdLaLa(h=Linear(0.1, 0.01, 9)), LAYERS)
    whole = table(program, program.steps, Steps(0, 12))
    np.testing.assert_array_equal(table(program, program.steps, Steps(5, 12)), whole[5:])


def test_a_coefficient_before_step_0_is_that_of_step_0():
    steps = Steps(0, 3)
    assert steps.numbers(-1).tolist() == [-1, 0, 1]
    assert steps.values(Linear(1.0, 0.0, 2), -1).tolist() == [1.0, 1.0, 0.5]
    assert steps.values(2.0, 1).tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize(("word", "offset"), [("BAOAB", 0), ("ABOBA", 1)])
def test_a_tempering_move_has_the_prior_of_the_step_that_it_belongs_to(word, offset):
    ladder = SimulatedTempering((1e-3, 2e-3), every=3, weights=(0, 0))
    method = hb.Langevin(1.0, ladder, word, weight_decay=Linear(0.0, 0.8, 8))
    program = compile_program(hb.Partition(method, 0.1), LAYERS)
    priors = decays(program, program.steps, Steps(2, 5))[:, 0]
    np.testing.assert_allclose(priors, np.arange(2, 5) / 10 + offset / 10)


def test_the_columns_of_a_letter_are_evaluated_once_however_often_it_occurs(monkeypatch):
    evaluated = []
    program = compile_program(hb.Partition(hb.Langevin(0.5, 1e-3), 0.1), LAYERS, stops=True)
    (stage,) = program.steps
    terms = {term for operation in stage.all_operations() for term in operation.terms}
    monkeypatch.setattr(
        "heatbath.engine.coefficients._evaluate_columns",
        lambda operation, term, *_: evaluated.append(term) or [np.zeros(3)],
    )
    steps = Steps(0, 3)
    table(program, program.steps, steps)
    table(program, program.between, steps)
    assert len(evaluated) == len(terms) == len(set(evaluated))
