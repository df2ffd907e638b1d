"""Mini-batches are those of the definition, and tables have their columns in order."""

import numpy as np
import pytest

import heatbath as hb
from heatbath.engine.batches import COMPARED, append_weights, tabulate
from heatbath.engine.layouts import Alone
from tests.engine.test_ensemble import DATA, PARTITIONS, assert_same_trajectory, runs
from tests.engine.test_same_bits import BATCHES, KINDS, NETWORKS, Case, assert_same_in_both_layouts, group

X, Y = np.arange(12.0).reshape(2, 2, 3), -np.arange(4.0).reshape(2, 2, 1)


def test_a_row_of_a_table_is_the_inputs_the_targets_the_weight_and_zeros_up_to_a_multiple_of_four():
    table = tabulate(X, Y, np.float32, np.full((2, 2), 7.0))
    assert (table.data, table.stride, table.width, table.columns, table.weight) == (2, 8, 3, 2, 1)
    assert table.rows.dtype == np.float32
    assert table.rows[1, 0].tolist() == [6, 7, 8, -2, 7, 0, 0, 0]


def test_targets_without_weights_are_returned_as_they_are():
    assert append_weights(Y, None) == (Y, -1)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e39])
def test_a_target_that_is_no_finite_float32_is_refused(value):
    bad = Y.copy()
    bad[1, 1] = value
    with pytest.raises(ValueError, match="Y has values that are NaN, infinite or too large for float32"):
        tabulate(X, bad, np.float32)


@pytest.mark.parametrize(
    ("batch", "shuffled"), [(DATA, False), (DATA, True), (7, True), (1, False), (29, False)]
)
def test_mini_batches_are_those_of_the_definition(batch, shuffled):
    assert_same_trajectory(*runs(hb.AdLaLa(), batch=batch, shuffled=shuffled))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch", [*BATCHES, COMPARED, COMPARED + 1, 255, 256, 257, 300])
def test_every_batch_has_the_same_bits_in_both_layouts(batch, kind):
    for shuffled in (False, True):
        for data in (batch, batch + 1, 2 * batch + 7):
            case = Case(hb.AdLaLa(), NETWORKS[batch % 4], kind, 3, batch, shuffled, data, steps=4)
            assert_same_in_both_layouts(case)


def test_data_beyond_float32_are_refused():
    case = Case(PARTITIONS["SGD"], ((1, 7, 2), "tanh", "binary"), chains=3, scale=1e39)
    for layout in (Alone(), group(case)):
        with np.errstate(over="ignore"), pytest.raises(ValueError, match="X has values that are NaN, inf"):
            case.run(layout)
