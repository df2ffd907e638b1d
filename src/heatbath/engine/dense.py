"""Dense networks, compiled: outputs and gradients, in both layouts (`layouts`).

Parameters lie in the order of torch's `parameters_to_vector`: for each layer the weight (out x in, row by
row), then the bias. Numbers of a level, its inputs or units, lie side by side for each datum: in whole
vectors of units alone, a vector for each unit in a group. A layer is computed in the way that suits its
shape, and the way decides how its sums associate, in either layout:

- narrow output (ROWS): a vector of inputs times a vector of weights; outputs are sums over lanes;
- narrow input (COLUMNS) or wide on both sides (WIDE): one input of each chain times a vector of weights;
- very wide (BLAS): matrix products, and then every chain is computed alone.

Alone, weights are copied first, so that rows (or columns) begin with a vector and end with zeros. In a group
they are used where they are. Gradients are sums over data, one after the other.
"""

from __future__ import annotations

from heatbath.engine import simd
from heatbath.engine.compile import compiled
from heatbath.engine.dense_blas import blas_backward, blas_forward
from heatbath.engine.dense_products import outers, products, reductions, sum_data, sum_numbers
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
from heatbath.engine.losses import derivatives, weigh
from heatbath.engine.simd import (
    choose,
    fma,
    lanes_of,
    load,
    number,
    store,
    total,
    traced,
    zero,
)

CHUNK = 256  # data at a time of a chain alone, when a loss is taken over all
GROUP_CHUNK = 8  # data at a time of a group: what they need stays in the cache


@traced
def _relu(y):
    return choose(y.above(0.0), y, 0.0)


_tanh = traced(simd.tanh)


@compiled(apart=True)
def activate(y, begin, count, activation):
    """Apply the activation to numbers, whole vectors of them."""
    L = lanes_of(y)
    if activation == RELU:
        for at in range(begin, begin + count, L):
            store(y, at, _relu(load(y, at)))
    elif activation == TANH:
        for at in range(begin, begin + count, L):
            store(y, at, _tanh(load(y, at)))


@traced
def _relu_slope(d, y):
    return choose(y.above(0.0), d, 0.0)


@traced
def _tanh_slope(d, y):
    return d * fma(-y, y, 1.0)


@compiled(apart=True)
def chain_rule(d, y, begin, count, activation):
    """Multiply by the derivative of the activation, which is known from its value."""
    L = lanes_of(y)
    if activation == RELU:
        for at in range(0, count, L):
            store(d, at, _relu_slope(load(d, at), load(y, begin + at)))
    elif activation == TANH:
        for at in range(0, count, L):
            store(d, at, _tanh_slope(load(d, at), load(y, begin + at)))


@compiled(apart=True)
def forward(layout, theta, network, first, size, room):
    """The logits (output, datum) at the inputs first to first + size - 1; weights must be up to date."""
    W, L, lane = room.weights, lanes_of(room.weights), chains_in(layout, theta)
    x, begin = room.inputs, first * network.stride
    for l in range(network.depth):
        layer = layer_of(network.layers, l)
        way, level, after, out = layer.way, layer.level, layer.after, layer.out
        last = l == network.depth - 1
        before = layer.before
        if way == ROWS:
            z, to, datum, step = (
                (room.logits, 0, lane, network.chunk * lane) if last else (room.values, level, after, lane)
            )
            others = x, before, layer.inputs, W, L, True, z, datum
            reductions(layout, size, out, begin, layer.rows, layer.bias, to, layer.row_output, step, others)
        elif way == BLAS:
            blas_forward(layout, theta, layer, size, x, begin, room)
        else:
            vector, column, y = layer.column_vector, layer.column_input, room.values
            vectors = x, before, lane, layer.width, W, vector, column, True, y, after
            products(layout, size, layer.outputs, begin, layer.columns, layer.bias, level, vectors)
        if not last:
            activate(room.values, level, -(-size * after // L) * L, network.activation)
        elif way != ROWS:
            for i in range(size):
                for k in range(out):
                    for c in range(lane):
                        to = (k * network.chunk + i) * lane + c
                        room.logits[to] = room.values[level + i * after + k * lane + c]
        x, begin = room.values, level


@compiled(apart=True)
def backward(layout, theta, G, network, first, size, room, more):
    """Add to -∇L, or begin it, what follows from the data whose outputs `forward` has left and whose negative
    derivatives by the logits stand in `deltas` (output, datum)."""
    W, sums, lane, L = room.weights, room.sums, chains_in(layout, theta), lanes_of(theta)
    d, other = room.deltas, room.previous
    last = network.depth - 1
    datum, step = lane, network.chunk * lane
    for l in range(last, -1, -1):
        layer = layer_of(network.layers, l)
        way, before, after, out = layer.way, layer.before, layer.after, layer.out
        x, begin = room.inputs, first * before
        if l > 0:
            x, begin = room.values, layer_of(network.layers, l - 1).level
        if l == last and way != ROWS:  # (datum, output)
            for i in range(size):
                for k in range(out):
                    for c in range(lane):
                        other[i * after + k * lane + c] = d[(k * network.chunk + i) * lane + c]
            d, other = other, d
        if l < last or way != ROWS:
            datum, step = after, lane
        if way == BLAS:
            blas_backward(layout, theta, G, layer, size, x, begin, d, other, room, l > 0)
        else:
            if way == ROWS:
                sum_numbers(layout, size, d, 0, datum, step, out, sums, layer.bias_sums, more)
            else:
                sum_data(size, d, 0, datum, layer.outputs, sums, layer.bias_sums, more)
            row, vector = layer.sum_number, layer.sum_vector
            if way == COLUMNS:
                others = size, x, before, lane, d, datum, sums, row, vector, more
                outers(layout, layer.width, layer.outputs, begin, 0, layer.sums, others)
            else:
                others = size, d, datum, step, x, before, sums, row, vector, more
                outers(layout, out, layer.inputs, 0, begin, layer.sums, others)
            if l > 0 and way == COLUMNS:
                sources = d, datum, layer.outputs, W, layer.column_vector, False, other, before
                reductions(
                    layout,
                    size,
                    layer.width,
                    0,
                    layer.columns,
                    layer.bias,
                    0,
                    layer.column_input,
                    lane,
                    sources,
                )
            elif l > 0:
                rows = d, datum, step, out, W, L, layer.row_output, False, other, before
                products(layout, size, layer.inputs, 0, layer.rows, layer.bias, 0, rows)
        if l > 0:
            chain_rule(other, room.values, begin, -(-size * before // L) * L, network.activation)
            d, other = other, d


@compiled
def negative_gradient(layout, theta, G, network, batch, capacity, weight, room):
    """G = -∇L of every chain on the batch whose inputs and targets stand in the room; `capacity` is that of
    the targets, and `weight` is which of them are the weights of the data, or -1. Afterwards `room.checks` is
    NaN, for the chains in its lanes, where a loss is not finite."""
    scale, alone = number(theta, 1.0 / batch), chains_in(layout, theta) == 1
    store(room.checks, 0, zero(theta))
    if alone:
        copy_weights(theta, network, room.weights)
    if network.shallow:
        shallow_forward(layout, network, batch, room)
        derivatives(
            layout, network.loss, room.logits, room.targets, room.deltas, batch, capacity, 0, batch, 1, scale,
            room.shares, room.tails, room.checks,
        )  # fmt: skip
        if weight >= 0:
            weigh(layout, room.targets, weight * capacity, room.deltas, batch, batch, 1)
        shallow_backward(layout, network, batch, room)
    else:
        for first in range(0, batch, network.chunk):
            size = min(network.chunk, batch - first)
            forward(layout, theta, network, first, size, room)
            derivatives(
                layout, network.loss, room.logits, room.targets, room.deltas, network.chunk, capacity, first,
                size, network.out, scale, room.shares, room.tails, room.checks,
            )  # fmt: skip
            if weight >= 0:
                at = weight * capacity + first
                weigh(layout, room.targets, at, room.deltas, network.chunk, size, network.out)
            backward(layout, theta, G, network, first, size, room, first > 0)
    if alone:
        place_gradient(G, network, room.sums)
        _check_all(room.checks)


@traced
def _check_all(checks):
    """Of one alone the lanes were data: NaN in one is NaN in all."""
    checks.store(0, total(checks.load(0)).splat(checks.lanes))
