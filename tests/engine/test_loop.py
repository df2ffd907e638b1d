"""The loop runs every step once, and stops the chains that diverge."""

from types import SimpleNamespace

import numpy as np
import pytest

import heatbath as hb
from heatbath.engine import loop
from heatbath.engine.batches import tabulate
from heatbath.engine.dense_shape import Shape
from heatbath.engine.ensemble import Ensemble
from heatbath.engine.program import compile_program
from heatbath.models.dense import MLP
from tests.engine.test_ensemble import PARTITIONS, random_problem

SCHEDULE = loop.Schedule(np.array([0, 3, 5]), 3, burn_in=2, thin=3, last=9)


@pytest.mark.parametrize(("first_step", "record"), [(0, 0), (1, 1), (2, 1), (3, 2), (5, 3)])
def test_a_call_begins_with_the_first_record_that_the_call_before_has_not_made(first_step, record):
    assert loop._first_record.py_func(SCHEDULE, first_step) == record


def test_samples_are_numbered_from_the_burn_in_up_to_the_last_step():
    samples = [loop._sample_at.py_func(n, 0, SCHEDULE) for n in range(13)]
    assert samples == [0, 0, 0, 0, 0, 1, 0, 0, 2, 0, 0, 0, 0]  # 11 is beyond the last step
    assert loop._sample_at.py_func(5, 5, SCHEDULE) == 0  # the call before has taken it


def test_variances_are_drawn_between_words_at_multiples_of_every_but_not_at_the_start():
    program, draws = loop.ProgramCode("prelude", "steps", "between"), SimpleNamespace(every=4)
    codes = [loop._code_of_phase.py_func(1, n, program, draws) for n in range(6)]
    assert codes == ["steps", "steps", "steps", "steps", "between", "steps"]
    assert loop._code_of_phase.py_func(1, 4, program, None) == "steps"
    assert loop._code_of_phase.py_func(0, 0, program, draws) == "prelude"


@pytest.mark.parametrize("name", ["AdLaLa", "all on schedules", "tempered", "Adam"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_results_do_not_depend_on_threads_or_on_how_the_steps_are_cut(name, dtype):
    def final(threads, calls):
        X, Y = random_problem((2, 20, 1), "binary")
        network = MLP((20,))
        program = compile_program(PARTITIONS[name], network.layers(2, 1))
        theta = network.start(2, 1, np.arange(7), 5).astype(dtype)
        data = tabulate(X, Y, dtype)
        engine = Ensemble(program, Shape((2, 20, 1), 0, 0), theta, data, 7, seed=5, threads=threads)
        for _ in range(calls):
            engine.advance(1000 // calls)
        return engine.chains

    one = final(threads=1, calls=1)
    for other in (final(threads=2, calls=1), final(threads=1, calls=10), final(threads=3, calls=50)):
        np.testing.assert_array_equal(one.theta, other.theta)
        np.testing.assert_array_equal(one.p, other.p)
        np.testing.assert_array_equal(one.xi, other.xi)
        np.testing.assert_array_equal(one.rung, other.rung)


def test_a_chain_that_diverges_is_stopped_and_marked_and_the_others_go_on():
    X, Y = random_problem((2, 20, 1), "regression")
    network = MLP((20,))
    program = compile_program(hb.Partition(hb.SGD(), 0.05), network.layers(2, 1))
    theta = network.start(2, 1, np.arange(4), 5)
    theta[2] *= 1e30
    data = tabulate(X, Y, theta.dtype)
    engine = Ensemble(program, Shape((2, 20, 1), 0, 2), theta, data, 7, seed=5, threads=2)
    engine.advance(300)
    assert list(engine.chains.died >= 0) == [False, False, True, False]
    assert np.isfinite(engine.chains.theta[[0, 1, 3]]).all()
