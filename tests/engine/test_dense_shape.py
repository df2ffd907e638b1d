"""Layers lie where their row of the table says, without gaps and without overlaps."""

from itertools import pairwise

import pytest

from heatbath.engine.dense_shape import BLAS, COLUMNS, RELU, ROWS, TANH, VAST, WIDE, DenseLayerRow, Shape
from heatbath.engine.layouts import Alone, LaneGroup

LANES = 16


def rows_of(sizes, layout, skip=0):
    network = Shape(sizes, RELU, 0).network(layout, LANES, chunk=8, skip=skip)
    return [DenseLayerRow(*map(int, row)) for row in network.layers]


def test_a_layer_has_the_scheme_of_its_shape():
    shapes = {(100, 1): ROWS, (17, 16): ROWS, (2, 100): COLUMNS, (16, 16): COLUMNS, (17, 17): WIDE}
    shapes |= {(128, VAST // 128): BLAS, (127, VAST // 128): WIDE}
    assert {sizes: Shape(sizes, RELU, 0).schemes[0] for sizes in shapes} == shapes


def test_parameters_are_weights_and_then_biases_layer_by_layer():
    shape = Shape((3, 20, 17, 2), RELU, 0)
    positions = [0, 60, 80, 80 + 340, 97 + 340, 97 + 340 + 34]
    for layout in (Alone(), LaneGroup(LANES)):
        rows = rows_of(shape.sizes, layout)
        found = [position for row in rows for position in (row.weight_parameters, row.bias_parameters)]
        assert found == positions
    assert shape.parameters == positions[-1] + 2


def test_a_group_uses_weights_and_gradients_where_the_parameters_are():
    for row in rows_of((3, 20, 17, 2), LaneGroup(LANES)):
        assert row.columns == row.rows == row.sums == row.weight_parameters * LANES
        assert row.bias == row.bias_sums == row.bias_parameters * LANES


@pytest.mark.parametrize("sizes", [(3, 20, 17, 2), (40, 33, 5), (2, 100, 1), (128, 128, 3)])
def test_the_copies_of_a_chain_alone_begin_with_full_vectors_and_do_not_overlap(sizes):
    network = Shape(sizes, RELU, 0).network(Alone(), LANES, chunk=8)
    end = 0
    for row in rows_of(sizes, Alone()):
        padded_width, padded_out = row.inputs * LANES, row.outputs * LANES
        assert row.columns == end
        assert row.rows == row.columns + (row.width * padded_out if row.scheme in (COLUMNS, WIDE) else 0)
        assert row.bias == row.rows + (row.out * padded_width if row.scheme in (ROWS, WIDE) else 0)
        end = row.bias + (0 if row.scheme == BLAS else padded_out)
        assert end % LANES == 0
    assert network.copies == end


def test_outputs_of_layers_follow_one_another():
    sizes = (3, 20, 17, 2)
    for layout in (Alone(), LaneGroup(LANES)):
        network = Shape(sizes, RELU, 0).network(layout, LANES, chunk=8)
        rows = rows_of(sizes, layout)
        for row, following in pairwise(rows):
            assert following.values == row.values + network.chunk * row.output_stride
            assert following.input_stride == row.output_stride
        assert network.values == rows[-1].values + network.chunk * rows[-1].output_stride


def test_layers_that_are_left_out_take_no_room_and_keep_their_parameters():
    whole, last = rows_of((3, 20, 17, 2), Alone()), rows_of((3, 20, 17, 2), Alone(), skip=1)
    assert [row.weight_parameters for row in last] == [row.weight_parameters for row in whole[1:]]
    assert last[0].values == 0
    assert last[0].columns == 0


def test_only_two_inputs_one_hidden_relu_layer_and_one_output_are_shallow():
    def is_shallow(sizes, activation):
        return Shape(sizes, activation, 0).network(Alone(), LANES, chunk=8).shallow

    assert is_shallow((2, 20, 1), RELU)
    assert not is_shallow((2, 20, 1), TANH)
    for sizes in ((3, 20, 1), (2, 20, 2), (2, 20, 20, 1), (2, 1)):
        assert not is_shallow(sizes, RELU)
