"""Records and samples are the states of the steps that they belong to."""

import numpy as np
import pytest

from heatbath.engine.batches import tabulate
from heatbath.engine.ensemble import Ensemble
from heatbath.engine.layouts import Alone
from tests.engine.test_same_bits import Case, group

CASE = Case(kind=np.float64, chains=3)
STEPS = 6


def recorded(layout, **options):
    """Return the notes of a run with a record at every step, and of the losses at every other one."""
    X, Y = CASE.problem
    data = tabulate(X, Y, CASE.kind)
    engine = Ensemble(CASE.programs, CASE.shape, CASE.start(CASE.numbers), data, 5, layout=layout)
    losses = [step % 2 == 0 for step in range(STEPS + 1)]
    notes = engine.take_notes(range(STEPS + 1), losses, data, weights=True, **options)
    engine.advance(STEPS)
    np.testing.assert_array_equal(notes.theta[:, -1], engine.chains.theta)
    return notes


LAYOUTS = pytest.mark.parametrize("layout", [Alone(), group(CASE)], ids=str)


@LAYOUTS
def test_samples_are_the_states_of_every_thin_th_step_after_the_burn_in_and_after_those_done(layout):
    notes = recorded(
        layout, burn_in=1, thin=2, last=STEPS, done=1, samples=3
    )  # due at 3, which is done, and 5
    np.testing.assert_array_equal(notes.samples[:, 0], notes.theta[:, 5])
    assert np.isnan(notes.samples[:, 1:]).all()


@LAYOUTS
def test_histograms_count_the_parameters_of_each_unit_within_their_ends(layout):
    notes = recorded(layout, histogram=(-0.5, 0.5, 4))
    assert (np.abs(notes.theta) > 0.5).any()
    first = 0
    for unit, thermostat_unit in enumerate(CASE.programs[0].units):
        values = notes.theta[1, 2, first : first + thermostat_unit.size]
        assert notes.histogram[1, 2, unit].tolist() == np.histogram(values, 4, (-0.5, 0.5))[0].tolist()
        first += thermostat_unit.size


@LAYOUTS
def test_losses_are_computed_at_the_records_that_ask_for_them_only(layout):
    notes = recorded(layout)
    assert np.isfinite(notes.loss[:, ::2]).all()
    assert np.isnan(notes.loss[:, 1::2]).all()
    np.testing.assert_array_equal(notes.loss[..., 0], notes.loss[..., 1])  # the same data
