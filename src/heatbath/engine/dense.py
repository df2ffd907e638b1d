"""Dense networks, compiled: outputs and gradients, in both layouts (`layouts`).

Parameters lie in the order of torch's `parameters_to_vector`: for each layer the weight (out x in, row by
row), then the bias. Numbers of a level, its inputs or units, lie side by side for each example: in full
vectors of units for a chain alone, a vector for each unit in a group. A layer is computed by the scheme that
suits its shape, and the scheme decides how its sums associate, in either layout:

- narrow output (ROWS): a vector of inputs times a vector of weights; outputs are sums over lanes;
- narrow input (COLUMNS) or wide on both sides (WIDE): one input of each chain times a vector of weights;
- very wide (BLAS): matrix products, and then every chain is computed alone.

For a chain alone, weights are copied first, so that rows (or columns) begin with a vector and end with zeros.
In a group they are used where they are. Gradients are sums over examples, one after the other.
"""

from __future__ import annotations

from heatbath.engine import simd
from heatbath.engine.compile import compiled
from heatbath.engine.dense_blas import blas_backward, blas_forward
from heatbath.engine.dense_products import (
    Level,
    Outer,
    Product,
    multiply,
    reduce_rows,
    sum_numbers_over_examples,
    sum_outer_products,
    sum_vectors_over_examples,
)
from heatbath.engine.dense_shallow import shallow_backward, shallow_forward
from heatbath.engine.dense_shape import (
    BLAS,
    COLUMNS,
    RELU,
    ROWS,
    TANH,
    copy_weights,
    layer_of,
    place_gradient,
)
from heatbath.engine.layouts import chains_in, round_up
from heatbath.engine.losses import LossRows, differentiate_loss, multiply_by_weights
from heatbath.engine.simd import (
    cast_like,
    fma,
    lanes_of,
    load,
    offset_pointer,
    select,
    store,
    sum_lanes,
    traced,
    zero,
)

CHUNK = 256  # examples at a time of a chain alone, when a loss is taken over all
GROUP_CHUNK = 8  # examples at a time of a group: what they need stays in the cache


@traced
def _relu(y):
    """Return y where it is above 0 or NaN, and 0 elsewhere."""
    return select(y.greater_or_nan(0.0), y, 0.0)


_tanh = traced(simd.tanh)


@compiled(apart=True)
def activate(values, count, activation):
    """Apply the activation in place to the first `count` values, in full vectors."""
    lanes = lanes_of(values)
    if activation == RELU:
        for index in range(0, count, lanes):
            store(values, index, _relu(load(values, index)))
    elif activation == TANH:
        for index in range(0, count, lanes):
            store(values, index, _tanh(load(values, index)))


@traced
def _times_relu_slope(d, y):
    """Return d where the output y of a ReLU is above 0 or NaN, and 0 elsewhere."""
    return select(y.greater_or_nan(0.0), d, 0.0)


@traced
def _times_tanh_slope(d, y):
    """Return d (1 - y²), with the output y of a tanh."""
    return d * fma(-y, y, 1.0)


@compiled(apart=True)
def multiply_by_slope(deltas, outputs, count, activation):
    """Multiply the first `count` derivatives in place by the slope of the activation, in full vectors.

    The slope follows from the outputs of the activation. The identity has slope 1.
    """
    lanes = lanes_of(outputs)
    if activation == RELU:
        for index in range(0, count, lanes):
            store(deltas, index, _times_relu_slope(load(deltas, index), load(outputs, index)))
    elif activation == TANH:
        for index in range(0, count, lanes):
            store(deltas, index, _times_tanh_slope(load(deltas, index), load(outputs, index)))


@compiled
def _product_with_rows(layer, x, terms, has_bias, y, W):
    """Return the `Product` of a layer in which W[k] is the row of weights of output k.

    Parameters
    ----------
    layer : DenseLayerRow
    x, y : Level
        Numbers that are multiplied, and where the results go.
    terms : int
        The terms of each sum: vectors of inputs for `reduce_rows`, outputs for `multiply`.
    has_bias : bool
    W : pointer to the weights of all layers
    """
    rows, bias = offset_pointer(W, layer.rows), offset_pointer(W, layer.bias)
    return Product(x, terms, rows, lanes_of(W), layer.row_output, bias, has_bias, y)


@compiled
def _product_with_columns(layer, x, terms, has_bias, y, W):
    """Return the `Product` of a layer in which W[j] is the column of weights of input j.

    The arguments are those of `_product_with_rows`; terms are inputs for `multiply`, vectors of outputs for
    `reduce_rows`.
    """
    columns, bias = offset_pointer(W, layer.columns), offset_pointer(W, layer.bias)
    return Product(x, terms, columns, layer.column_vector, layer.column_input, bias, has_bias, y)


@compiled
def _multiply_by_rows(layout, layer, examples, inputs, outputs, room):
    """Write a layer's outputs as sums over vectors of inputs, for a layer with few outputs (ROWS)."""
    operands = _product_with_rows(layer, inputs, layer.inputs, True, outputs, room.weights)
    reduce_rows(layout, examples, layer.out, operands)


@compiled
def _inputs_of_layer(network, l, first, group_size, room):
    """Return the inputs of layer l as a `Level`, from example `first` on: data, or the outputs below it."""
    layer = layer_of(network.layers, l)
    if l == 0:
        return Level(offset_pointer(room.inputs, first * network.stride), layer.input_stride, group_size)
    values = layer_of(network.layers, l - 1).values
    return Level(offset_pointer(room.values, values), layer.input_stride, group_size)


@compiled(apart=True)
def forward(layout, theta, network, first, examples, room):
    """Compute some examples layer by layer, and write their logits, (output, example), to `room.logits`.

    The outputs of all layers but the last stay in `room.values`, for `backward`.

    Parameters
    ----------
    layout : Layout
    theta : pointer to (parameter, lane)
    network : Network
        Table of the layers.
    first, examples : int
        The first example in `room.inputs`, and how many are computed.
    room : Room
        Buffers. For a chain alone, `copy_weights` must have filled `room.weights`.
    """
    group_size = chains_in(layout, theta)
    last = network.depth - 1
    logits = Level(room.logits, group_size, network.chunk * group_size)
    for l in range(network.depth):
        layer = layer_of(network.layers, l)
        inputs = _inputs_of_layer(network, l, first, group_size, room)
        outputs = Level(offset_pointer(room.values, layer.values), layer.output_stride, group_size)

        if layer.scheme == ROWS and l == last:
            _multiply_by_rows(layout, layer, examples, inputs, logits, room)
        elif layer.scheme == ROWS:
            _multiply_by_rows(layout, layer, examples, inputs, outputs, room)
        elif layer.scheme == BLAS:
            blas_forward(layout, theta, layer, examples, inputs.values, room)
        else:
            operands = _product_with_columns(layer, inputs, layer.width, True, outputs, room.weights)
            multiply(layout, examples, layer.outputs, operands)

        if l < last:
            count = round_up(examples * layer.output_stride, lanes_of(theta))
            activate(outputs.values, count, network.activation)
        elif layer.scheme != ROWS:
            _copy_level(outputs, logits, examples, layer.out, group_size)


@compiled
def _copy_level(source, target, examples, numbers, group_size):
    """Copy some numbers of each example from one `Level` to another, in which they lie in another order."""
    for i in range(examples):
        for k in range(numbers):
            first = i * source.example + k * source.number
            first_copy = i * target.example + k * target.number
            for lane in range(group_size):
                target.values[first_copy + lane] = source.values[first + lane]


@compiled
def _add_weight_gradient(layout, layer, examples, inputs, deltas, room, adding):
    """Write Σ δ x and Σ δ over some examples to `room.sums`, or add them, for a layer that isn't BLAS.

    Parameters
    ----------
    layout : Layout
    layer : DenseLayerRow
    examples : int
    inputs, deltas : Level
        The layer's inputs x, and the negative derivatives δ of the loss by its outputs.
    room : Room
    adding : bool
        Whether to add to the sums; otherwise they begin at 0.
    """
    bias_sums = offset_pointer(room.sums, layer.bias_sums)
    if layer.scheme == ROWS:
        sum_numbers_over_examples(layout, examples, layer.out, deltas, bias_sums, adding)
    else:
        sum_vectors_over_examples(examples, layer.outputs, deltas, bias_sums, adding)

    weight_sums = offset_pointer(room.sums, layer.sums)
    if layer.scheme == COLUMNS:  # numbers of x times vectors of δ
        operands = Outer(examples, inputs, deltas, weight_sums, layer.sum_number, layer.sum_vector, adding)
        sum_outer_products(layout, layer.width, layer.outputs, operands)
    else:  # numbers of δ times vectors of x
        operands = Outer(examples, deltas, inputs, weight_sums, layer.sum_number, layer.sum_vector, adding)
        sum_outer_products(layout, layer.out, layer.inputs, operands)


@compiled
def _differentiate_inputs(layout, layer, examples, deltas, input_deltas, room):
    """Write the derivatives of the loss by a layer's inputs, Σ δ W, for a layer that isn't BLAS.

    Parameters
    ----------
    layout : Layout
    layer : DenseLayerRow
    examples : int
    deltas, input_deltas : Level
        Derivatives δ by the layer's outputs, and where those by its inputs go.
    room : Room
        Its `weights` W are the layer's.
    """
    if layer.scheme == COLUMNS:
        operands = _product_with_columns(layer, deltas, layer.outputs, False, input_deltas, room.weights)
        reduce_rows(layout, examples, layer.width, operands)
    else:
        operands = _product_with_rows(layer, deltas, layer.out, False, input_deltas, room.weights)
        multiply(layout, examples, layer.inputs, operands)


@compiled(apart=True)
def backward(layout, theta, G, network, first, examples, room, adding):
    """Sum the part of -∇L that follows from some examples in `room.sums`, after `forward`.

    BLAS layers write to G itself.

    Parameters
    ----------
    layout : Layout
    theta, G : pointers to (parameter, lane)
    network : Network
        Table of the layers.
    first, examples : int
        The first example in `room.inputs`, and how many there are.
    room : Room
        `room.deltas` has the negative derivatives of the loss by the logits, (output, example). It and
        `room.previous_deltas` are overwritten: layers read one of them and write the other, in turns.
    adding : bool
        Whether to add to the sums; otherwise they begin at 0.
    """
    group_size = chains_in(layout, theta)
    last = network.depth - 1
    last_layer = layer_of(network.layers, last)
    deltas = Level(room.deltas, group_size, network.chunk * group_size)
    spare = room.previous_deltas  # for the derivatives of the layer below
    if last_layer.scheme != ROWS:
        deltas_of_logits = deltas
        deltas = Level(spare, last_layer.output_stride, group_size)
        spare = room.deltas
        _copy_level(deltas_of_logits, deltas, examples, last_layer.out, group_size)

    for l in range(last, -1, -1):
        layer = layer_of(network.layers, l)
        inputs = _inputs_of_layer(network, l, first, group_size, room)
        input_deltas = Level(spare, layer.input_stride, group_size)
        if layer.scheme == BLAS:
            blas_backward(
                layout, theta, G, layer, examples, inputs.values, deltas.values, spare, room, l == 0
            )
        else:
            _add_weight_gradient(layout, layer, examples, inputs, deltas, room, adding)
            if l > 0:
                _differentiate_inputs(layout, layer, examples, deltas, input_deltas, room)
        if l > 0:
            count = round_up(examples * layer.input_stride, lanes_of(theta))
            multiply_by_slope(spare, inputs.values, count, network.activation)
            spare = deltas.values
            deltas = input_deltas


@compiled
def _differentiate_logits(layout, network, rows, scale, weight_start, room):
    """Write the negative derivatives of the mean loss by the logits in `rows` to `room.deltas`.

    Parameters
    ----------
    layout : Layout
    network : Network
    rows : LossRows
    scale : 1/batch, in the precision of the chains
    weight_start : int
        Where the weights of these examples begin in `room.targets`; negative without weights.
    room : Room
    """
    differentiate_loss(
        layout, network.loss, rows, scale, room.deltas, room.target_weights, room.tail_weights, room.checks
    )
    if weight_start >= 0:
        multiply_by_weights(
            layout, room.targets, weight_start, room.deltas, rows.chunk, rows.examples, rows.out
        )  # fmt: skip


@compiled
def negative_gradient(layout, theta, G, network, batch, capacity, weight, room):
    """Write -∇L of every chain on the mini-batch in the room to G, with L the mean loss.

    Afterwards `room.checks` is NaN in the lanes of chains whose loss isn't finite.

    Parameters
    ----------
    layout : Layout
    theta, G : pointers to (parameter, lane)
    network : Network
        Table of the layers.
    batch : int
        Examples in `room.inputs` and `room.targets`.
    capacity : int
        Examples that each column of the targets has room for.
    weight : int
        The column of the targets that has the weights of the examples, or -1.
    room : Room
        Buffers.
    """
    is_alone = chains_in(layout, theta) == 1
    scale = cast_like(theta, 1.0 / batch)
    weight_start = weight * capacity  # below 0 without weights
    store(room.checks, 0, zero(theta))
    if is_alone:
        copy_weights(theta, network, room.weights)

    if network.shallow:
        rows = LossRows(room.logits, room.targets, batch, capacity, 0, batch, 1)
        shallow_forward(layout, network, batch, room)
        _differentiate_logits(layout, network, rows, scale, weight_start, room)
        shallow_backward(layout, network, batch, room)
    else:
        for first in range(0, batch, network.chunk):
            examples = min(network.chunk, batch - first)
            rows = LossRows(room.logits, room.targets, network.chunk, capacity, first, examples, network.out)
            forward(layout, theta, network, first, examples, room)
            chunk_weights = weight_start + first if weight >= 0 else -1
            _differentiate_logits(layout, network, rows, scale, chunk_weights, room)
            backward(layout, theta, G, network, first, examples, room, first > 0)

    if is_alone:
        place_gradient(G, network, room.sums)
        _spread_nan(room.checks)


@traced
def _spread_nan(checks):
    """Make all lanes NaN if one is: for a chain alone they were examples."""
    checks.store(0, sum_lanes(checks.load(0)).splat(checks.lanes))
