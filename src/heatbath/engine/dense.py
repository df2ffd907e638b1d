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
    Outer,
    Product,
    Reduction,
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
from heatbath.engine.layouts import chains_in
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
def activate(y, start, count, activation):
    """Apply the activation in place to y[start] to y[start + count - 1], in full vectors."""
    lanes = lanes_of(y)
    if activation == RELU:
        for index in range(start, start + count, lanes):
            store(y, index, _relu(load(y, index)))
    elif activation == TANH:
        for index in range(start, start + count, lanes):
            store(y, index, _tanh(load(y, index)))


@traced
def _times_relu_slope(d, y):
    """Return d where the output y of a ReLU is above 0 or NaN, and 0 elsewhere."""
    return select(y.greater_or_nan(0.0), d, 0.0)


@traced
def _times_tanh_slope(d, y):
    """Return d (1 - y²), with the output y of a tanh."""
    return d * fma(-y, y, 1.0)


@compiled(apart=True)
def multiply_by_slope(d, y, start, count, activation):
    """Multiply d[0] to d[count - 1] in place by the derivative of the activation, in full vectors.

    The derivative follows from the activation's values, which begin at y[start].
    """
    lanes = lanes_of(y)
    if activation == RELU:
        for index in range(0, count, lanes):
            store(d, index, _times_relu_slope(load(d, index), load(y, start + index)))
    elif activation == TANH:
        for index in range(0, count, lanes):
            store(d, index, _times_tanh_slope(load(d, index), load(y, start + index)))


@compiled(apart=True)
def forward(layout, theta, network, first, examples, room):
    """Write the logits (output, example) at the inputs of examples first to first + examples - 1.

    The inputs are in `room.inputs`, the weights in `room.weights` (`copy_weights`); the logits go to
    `room.logits` and the outputs of hidden layers to `room.values`.
    """
    W, group_size, lanes = room.weights, chains_in(layout, theta), lanes_of(room.weights)
    x, start = room.inputs, first * network.stride
    for l in range(network.depth):
        layer = layer_of(network.layers, l)
        scheme, values, stride = layer.scheme, layer.values, layer.output_stride
        is_last = l == network.depth - 1
        if scheme == ROWS:
            y, y_start, y_example, y_number = (
                (room.logits, 0, group_size, network.chunk * group_size)
                if is_last
                else (room.values, values, stride, group_size)
            )
            reduction = Reduction(
                x, layer.input_stride, layer.inputs, W, lanes, layer.row_output, True, y, y_example, y_number
            )
            reduce_rows(layout, examples, layer.out, start, layer.rows, layer.bias, y_start, reduction)
        elif scheme == BLAS:
            blas_forward(layout, theta, layer, examples, offset_pointer(x, start), room)
        else:
            product = Product(
                x, layer.input_stride, group_size, layer.width, W, layer.column_vector, layer.column_input,
                True, room.values, stride,
            )  # fmt: skip
            multiply(layout, examples, layer.outputs, start, layer.columns, layer.bias, values, product)
        if not is_last:
            activate(room.values, values, -(-examples * stride // lanes) * lanes, network.activation)
        elif scheme != ROWS:
            _copy_outputs_to_logits(layer, network.chunk, examples, group_size, room)
        x, start = room.values, values


@compiled
def _copy_outputs_to_logits(layer, chunk, examples, group_size, room):
    """Copy the outputs of the last layer, (example, output), to `room.logits`, (output, example)."""
    for i in range(examples):
        for k in range(layer.out):
            for lane in range(group_size):
                logit = (k * chunk + i) * group_size + lane
                value = layer.values + i * layer.output_stride + k * group_size + lane
                room.logits[logit] = room.values[value]


@compiled
def _transpose_deltas(source, target, layer, chunk, examples, group_size):
    """Copy derivatives by the logits from `source` (output, example) to `target` (example, output)."""
    for i in range(examples):
        for k in range(layer.out):
            for lane in range(group_size):
                logit = (k * chunk + i) * group_size + lane
                target[i * layer.output_stride + k * group_size + lane] = source[logit]


@compiled
def _add_weight_gradient(layout, layer, examples, x, start, d, d_example, d_number, room, adding):
    """Add Σ δ and Σ δ x over some examples to `room.sums`, or begin it, for a layer that isn't BLAS.

    Its inputs begin at x[start], the derivatives δ by its outputs at d[0], with strides of examples and
    numbers.
    """
    sums, group_size = room.sums, chains_in(layout, d)
    if layer.scheme == ROWS:
        sum_numbers_over_examples(
            layout, examples, d, d_example, d_number, layer.out, sums, layer.bias_sums, adding
        )  # fmt: skip
    else:
        sum_vectors_over_examples(examples, d, d_example, layer.outputs, sums, layer.bias_sums, adding)
    if layer.scheme == COLUMNS:
        outer = Outer(
            examples, x, layer.input_stride, group_size, d, d_example, sums, layer.sum_number,
            layer.sum_vector, adding,
        )  # fmt: skip
        sum_outer_products(layout, layer.width, layer.outputs, start, 0, layer.sums, outer)
    else:
        outer = Outer(
            examples, d, d_example, d_number, x, layer.input_stride, sums, layer.sum_number,
            layer.sum_vector, adding,
        )  # fmt: skip
        sum_outer_products(layout, layer.out, layer.inputs, 0, start, layer.sums, outer)


@compiled
def _differentiate_inputs(layout, layer, examples, d, d_example, d_number, previous, room):
    """Write the derivatives by a layer's inputs to `previous` (example, input), for one that isn't BLAS.

    Those by its outputs begin at d[0], with strides of examples and numbers.
    """
    W, group_size = room.weights, chains_in(layout, d)
    if layer.scheme == COLUMNS:
        reduction = Reduction(
            d, d_example, layer.outputs, W, layer.column_vector, layer.column_input, False, previous,
            layer.input_stride, group_size,
        )  # fmt: skip
        reduce_rows(layout, examples, layer.width, 0, layer.columns, layer.bias, 0, reduction)
    else:
        product = Product(
            d, d_example, d_number, layer.out, W, lanes_of(W), layer.row_output, False, previous,
            layer.input_stride,
        )  # fmt: skip
        multiply(layout, examples, layer.inputs, 0, layer.rows, layer.bias, 0, product)


@compiled(apart=True)
def backward(layout, theta, G, network, first, examples, room, adding):
    """Add the part of -∇L that follows from some examples to `room.sums`, or begin it if not `adding`.

    `forward` has left the outputs of the examples, and `room.deltas` has their negative derivatives by the
    logits, (output, example). Both `room.deltas` and `room.previous_deltas` are overwritten. BLAS layers
    write to G itself.
    """
    group_size, lanes = chains_in(layout, theta), lanes_of(theta)
    d, previous = room.deltas, room.previous_deltas
    last = network.depth - 1
    d_example, d_number = group_size, network.chunk * group_size
    for l in range(last, -1, -1):
        layer = layer_of(network.layers, l)
        scheme = layer.scheme
        x, start = room.inputs, first * layer.input_stride
        if l > 0:
            x, start = room.values, layer_of(network.layers, l - 1).values
        if l == last and scheme != ROWS:
            _transpose_deltas(d, previous, layer, network.chunk, examples, group_size)
            d, previous = previous, d
        if l < last or scheme != ROWS:
            d_example, d_number = layer.output_stride, group_size
        if scheme == BLAS:
            inputs = offset_pointer(x, start)
            blas_backward(layout, theta, G, layer, examples, inputs, d, previous, room, l == 0)
        else:
            _add_weight_gradient(layout, layer, examples, x, start, d, d_example, d_number, room, adding)
            if l > 0:
                _differentiate_inputs(layout, layer, examples, d, d_example, d_number, previous, room)
        if l > 0:
            count = -(-examples * layer.input_stride // lanes) * lanes
            multiply_by_slope(previous, room.values, start, count, network.activation)
            d, previous = previous, d


@compiled
def negative_gradient(layout, theta, G, network, batch, capacity, weight, room):
    """Write -∇L of every chain on the mini-batch in the room to G, with L the mean loss.

    Parameters
    ----------
    theta, G : pointers to (parameter, lane)
    batch : examples in `room.inputs` and `room.targets`
    capacity : examples for which the targets have room
    weight : the column of the targets that has the weights of the examples, or -1

    Afterwards `room.checks` is NaN in the lanes of chains whose loss isn't finite.
    """
    scale, alone = cast_like(theta, 1.0 / batch), chains_in(layout, theta) == 1
    store(room.checks, 0, zero(theta))
    if alone:
        copy_weights(theta, network, room.weights)
    if network.shallow:
        rows = LossRows(room.logits, room.targets, batch, capacity, 0, batch, 1)
        shallow_forward(layout, network, batch, room)
        differentiate_loss(
            layout, network.loss, rows, scale, room.deltas, room.target_weights, room.tail_weights,
            room.checks,
        )  # fmt: skip
        if weight >= 0:
            multiply_by_weights(layout, room.targets, weight * capacity, room.deltas, batch, batch, 1)
        shallow_backward(layout, network, batch, room)
    else:
        for first in range(0, batch, network.chunk):
            examples = min(network.chunk, batch - first)
            rows = LossRows(
                room.logits, room.targets, network.chunk, capacity, first, examples, network.out
            )  # fmt: skip
            forward(layout, theta, network, first, examples, room)
            differentiate_loss(
                layout, network.loss, rows, scale, room.deltas, room.target_weights, room.tail_weights,
                room.checks,
            )  # fmt: skip
            if weight >= 0:
                start = weight * capacity + first
                multiply_by_weights(
                    layout, room.targets, start, room.deltas, network.chunk, examples, network.out
                )  # fmt: skip
            backward(layout, theta, G, network, first, examples, room, first > 0)
    if alone:
        place_gradient(G, network, room.sums)
        _spread_nan(room.checks)


@traced
def _spread_nan(checks):
    """Make all lanes NaN if one is: for a chain alone they were examples."""
    checks.store(0, sum_lanes(checks.load(0)).splat(checks.lanes))
