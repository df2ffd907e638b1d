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

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload
from numpy.typing import NDArray

from heatbath.engine import lanes
from heatbath.engine.compile import compiled
from heatbath.engine.lanes import (
    Kept,
    choose,
    fma,
    lanes_of,
    load,
    loop,
    number,
    store,
    total,
    traced,
    tree,
)
from heatbath.engine.layouts import Group, Layout, Wide, chains_in, each, place
from heatbath.engine.losses import derivatives
from heatbath.engine.views import matrix, row_reader
from heatbath.networks import ACTIVATIONS

RELU, TANH = ACTIVATIONS["relu"].number, ACTIVATIONS["tanh"].number
ROWS, COLUMNS, WIDE, BLAS = range(4)
NARROW = 16  # up to here a side of a layer is narrow
VAST = 2**14  # weights of a layer from which on BLAS is faster
CHUNK = 256  # data at a time of a chain alone, when a loss is taken over all
GROUP_CHUNK = 8  # data at a time of a group: what they need stays in the cache


class Layer(NamedTuple):
    """A row of the table that compiled code reads: where a layer's numbers are.

    Strides are in numbers. `before` and `after` are those of the data at its inputs and outputs, and `level`
    is where its outputs begin. Weights times vectors of outputs begin at `columns` (`column_vector` from one
    vector to the next, `column_input` from one input to the next), those times vectors of inputs at `rows`
    (`row_output` from one output to the next), biases at `bias`. The gradient has its sums at `sums`, with
    the strides `sum_vector` and `sum_number`, and at `bias_sums`. `weight` and `shift` are where the
    parameters are.
    """

    width: int
    out: int
    way: int
    before: int
    after: int
    inputs: int
    outputs: int
    level: int
    columns: int
    column_vector: int
    column_input: int
    rows: int
    row_output: int
    bias: int
    sums: int
    sum_vector: int
    sum_number: int
    bias_sums: int
    weight: int
    shift: int


layer_of = row_reader(Layer)


class Network(NamedTuple):
    """A network in numbers, for one layout: its layers, what else decides the way, and the room it needs.

    In compiled code `layers` is a pointer to the rows of the table.
    """

    layers: Any
    count: int
    stride: int
    out: int
    activation: int
    loss: int
    shallow: bool
    chunk: int
    values: int
    widest: int
    flat: int
    copies: int


class Room(NamedTuple):
    """Pointers to buffers. Those of data have the layout's form; `weights` and `sums` are the copies of one
    alone, and the parameters and the gradient of a group."""

    inputs: Any
    targets: Any
    values: Any
    logits: Any
    deltas: Any
    previous: Any
    masks: Any
    weights: Any
    sums: Any
    checks: Any
    flat: Any
    other: Any
    chosen: Any


@dataclass(frozen=True)
class Shape:
    """What the compiled code knows of a network: its layers' sizes, activation and loss, as numbers."""

    sizes: tuple[int, ...]
    activation: int
    loss: int

    @property
    def parameters(self) -> int:
        """How many there are."""
        return sum(out * (width + 1) for width, out in pairwise(self.sizes))

    @property
    def ways(self) -> list[int]:
        """The way each layer is computed."""
        return list(map(_way, pairwise(self.sizes)))

    @property
    def uses_blas(self) -> bool:
        """Whether a layer is so wide that every chain is computed alone."""
        return BLAS in self.ways

    def network(self, layout: Layout, count: int, data: int, skip: int = 0) -> Network:
        """For a layout, vectors of `count` lanes, and up to this many data in a chunk; without the layers
        that are skipped, whose outputs are then its inputs."""
        alone = not isinstance(layout, Group)
        ways, sizes = self.ways[skip:], self.sizes[skip:]

        def padded(size: int) -> int:
            return -(-size // count) * count if alone else size * count

        strides = list(map(padded, sizes))
        if ways[0] == BLAS:
            strides[0] = sizes[0]  # as a matrix
        data = -(-data // count) * count if alone else data
        layers, level, copy = [], 0, 0
        begin = self.parameters - sum(out * (width + 1) for width, out in pairwise(sizes))
        for l, (width, out) in enumerate(pairwise(sizes)):
            way, weight, shift = ways[l], begin, begin + width * out
            begin += out * (width + 1)
            if alone:
                columns, rows = copy, copy + (0 if way in (ROWS, BLAS) else width * padded(out))
                bias = rows + (0 if way in (COLUMNS, BLAS) else out * padded(width))
                at = rows if way == WIDE else copy
                places = (columns, count, padded(out), rows, padded(width), bias)
                sums = (at, count, padded(out) if way == COLUMNS else padded(width), bias)
                copy = bias + (0 if way == BLAS else padded(out))
            else:
                whole, shifted = weight * count, shift * count
                places = (whole, width * count, count, whole, width * count, shifted)
                sums = (
                    (whole, width * count, count, shifted)
                    if way == COLUMNS
                    else (whole, count, width * count, shifted)
                )
            inputs, outputs = (-(-n // count) if alone else n for n in (width, out))
            layers.append(
                Layer(
                    width, out, way, strides[l], strides[l + 1], inputs, outputs, level, *places, *sums,
                    weight, shift,
                )  # fmt: skip
            )
            level += data * strides[l + 1]
        shallow = ways == [COLUMNS, ROWS] and sizes[0] == 2 and sizes[-1] == 1
        return Network(
            np.array(layers, np.int64),
            len(layers),
            strides[0],
            sizes[-1],
            self.activation,
            self.loss,
            shallow and self.activation == RELU,
            data,
            level,
            data * max(strides),
            data * max(sizes) if BLAS in ways else 0,
            copy,
        )


def _way(layer: tuple[int, int]) -> int:
    width, out = layer
    if width * out >= VAST:
        return BLAS
    if out <= NARROW and out < width:
        return ROWS
    return COLUMNS if width <= NARROW else WIDE


@compiled(apart=True)
def copy_weights(theta, network, copies):
    """The padded copies of a chain's weights; they start as zeros, and the padding stays so."""
    for l in range(network.count):
        layer = layer_of(network.layers, l)
        width, out, way = layer.width, layer.out, layer.way
        if way == ROWS or way == WIDE:
            for k in range(out):
                for j in range(width):
                    copies[layer.rows + k * layer.row_output + j] = theta[layer.weight + k * width + j]
        if way == COLUMNS or way == WIDE:
            for j in range(width):
                for k in range(out):
                    copies[layer.columns + j * layer.column_input + k] = theta[layer.weight + k * width + j]
        if way != BLAS:
            for k in range(out):
                copies[layer.bias + k] = theta[layer.shift + k]


@compiled(apart=True)
def place_gradient(G, network, sums):
    """Put the sums of a chain's gradient where its parameters are."""
    for l in range(network.count):
        layer = layer_of(network.layers, l)
        width, out, way = layer.width, layer.out, layer.way
        if way == ROWS or way == WIDE:
            for k in range(out):
                for j in range(width):
                    G[layer.weight + k * width + j] = sums[layer.sums + k * layer.sum_number + j]
        elif way == COLUMNS:
            for j in range(width):
                for k in range(out):
                    G[layer.weight + k * width + j] = sums[layer.sums + j * layer.sum_number + k]
        if way != BLAS:
            for k in range(out):
                G[layer.shift + k] = sums[layer.bias_sums + k]


def _tiles_of(make: Any) -> tuple[Any, Any, Any, Any]:
    """The same function for four by four, four by one, one by four and one by one."""
    return make(4, 4), make(4, 1), make(1, 4), make(1, 1)


def _make_product(rows: int, columns: int) -> Any:
    @traced
    def product(layout, x, at, datum, number, n, W, weight, vector, other, bias, biased, y, to, after):
        begin = [choose(biased, W.load(bias + W.lanes * v), 0.0) for v in range(columns)]
        sums = Kept(begin * rows)
        with loop(n) as s:
            numbers = [each(layout, x, at + s * number + datum * i) for i in range(rows)]
            weights = [W.load(weight + s * other + vector * v) for v in range(columns)]
            pairs = [(number_, w) for number_ in numbers for w in weights]
            sums.set([fma(w, number_, sum_) for (number_, w), sum_ in zip(pairs, sums.get(), strict=True)])
        for place_, sum_ in enumerate(sums.get()):
            i, v = divmod(place_, columns)
            y.store(to + after * i + y.lanes * v, sum_)

    return product


_product44, _product41, _product14, _product11 = _tiles_of(_make_product)


@compiled(apart=True)
def _products(layout, size, x, at, datum, number, n, W, weight, vector, other, bias, biased, y, to, after, count):
    """y[i, v] = bias[v] + Σ_s x[i, s] W[v, s]: numbers of each chain times vectors of weights, s in order."""
    L = lanes_of(y)
    v = 0
    while v < count:
        four = count - v >= 4
        i = 0
        while i < size:
            begin, first = at + i * datum, weight + v * vector
            shift, place = bias + v * L, to + i * after + v * L
            if size - i >= 4:
                if four:
                    _product44(layout, x, begin, datum, number, n, W, first, vector, other, shift, biased, y, place, after)
                else:
                    _product41(layout, x, begin, datum, number, n, W, first, vector, other, shift, biased, y, place, after)
                i += 4
            else:
                if four:
                    _product14(layout, x, begin, datum, number, n, W, first, vector, other, shift, biased, y, place, after)
                else:
                    _product11(layout, x, begin, datum, number, n, W, first, vector, other, shift, biased, y, place, after)
                i += 1
        v += 4 if four else 1


def _sum_units(layout: Any, count: int, n: Any, rows: int, like: Any, add: Any) -> list[Any]:
    """Sums over n vectors of units, for some data: what `add(sums, v)` makes of them, vector by vector.

    In a group there is a sum for each lane that one alone would have, and the tree by which that adds them.
    """
    zeros = [like.zero()] * rows
    if not isinstance(layout, Group):
        sums = Kept(zeros)
        with loop(n) as v:
            sums.set(add(sums.get(), v))
        return [total(sum_) for sum_ in sums.get()]
    parts = like.array(count * rows)
    with loop(n.constant(count)) as q:
        sums = Kept(zeros)
        with loop(n, q, count) as v:
            sums.set(add(sums.get(), v))
        for i, sum_ in enumerate(sums.get()):
            parts.store((q * rows + i) * count, sum_)
    return [tree([parts.load((q * rows + i) * count) for q in range(count)]) for i in range(rows)]


def _put_numbers(layout: Any, numbers: list[Any], W: Any, bias: Any, z: Any, at: Any, datum: Any) -> None:
    """Store numbers of each chain, one for each datum, with a bias if there is one."""
    for i, value in enumerate(numbers):
        shift = bias(W.load if isinstance(layout, Group) else W.number)
        if isinstance(layout, Group):
            z.store(at + datum * i, value + shift)
        else:
            z.put(at + datum * i, value + shift)


def _make_reduction(rows: int) -> Any:
    @traced
    def reduction(layout, x, at, datum, n, W, weight, vector, bias, biased, z, to, after):
        def add(sums, v):
            w = W.load(weight + v * vector)
            return [fma(w, x.load(at + v * x.lanes + datum * i), sum_) for i, sum_ in enumerate(sums)]

        sums = _sum_units(layout, x.lanes, n, rows, x, add)
        _put_numbers(layout, sums, W, lambda read: choose(biased, read(bias), 0.0), z, to, after)

    return reduction


_reduction4, _reduction1 = _make_reduction(4), _make_reduction(1)


@compiled(apart=True)
def _reductions(layout, size, x, at, datum, n, W, weight, vector, other, bias, biased, z, to, after, number, count):
    """z[i, k] = Σ_v x[i, v] W[k, v] + bias[k]: vectors times vectors, summed over lanes, too."""
    lane = chains_in(layout, z)
    for k in range(count):
        i = 0
        while i < size:
            begin, first = at + i * datum, weight + k * other
            shift, place = bias + k * lane, to + i * after + k * number
            if size - i >= 4:
                _reduction4(layout, x, begin, datum, n, W, first, vector, shift, biased, z, place, after)
                i += 4
            else:
                _reduction1(layout, x, begin, datum, n, W, first, vector, shift, biased, z, place, after)
                i += 1


def _make_outer(rows: int, columns: int) -> Any:
    @traced
    def outer(layout, size, x, at, datum, number, y, begin, after, sums, to, other, vector, more):
        places = [to + other * s + vector * v for s in range(rows) for v in range(columns)]
        made = Kept([choose(more, sums.load(place_), 0.0) for place_ in places])
        with loop(size) as i:
            numbers = [each(layout, x, at + i * datum + number * s) for s in range(rows)]
            vectors = [y.load(begin + i * after + y.lanes * v) for v in range(columns)]
            pairs = [(one, other_) for one in numbers for other_ in vectors]
            made.set([fma(one, two, sum_) for (one, two), sum_ in zip(pairs, made.get(), strict=True)])
        for place_, sum_ in zip(places, made.get(), strict=True):
            sums.store(place_, sum_)

    return outer


_outer44, _outer41, _outer14, _outer11 = _tiles_of(_make_outer)


@compiled(apart=True)
def _outers(layout, size, x, at, datum, number, n, y, begin, after, count, sums, to, other, vector, more):
    """sums[s, v] = Σ_i x[i, s] y[i, v], or as much more: numbers of each chain times vectors, i in order."""
    L = lanes_of(y)
    s = 0
    while s < n:
        many = n - s >= 4
        v = 0
        while v < count:
            first, second = at + s * number, begin + v * L
            place = to + s * other + v * vector
            if count - v >= 4:
                if many:
                    _outer44(layout, size, x, first, datum, number, y, second, after, sums, place, other, vector, more)
                else:
                    _outer14(layout, size, x, first, datum, number, y, second, after, sums, place, other, vector, more)
                v += 4
            else:
                if many:
                    _outer41(layout, size, x, first, datum, number, y, second, after, sums, place, other, vector, more)
                else:
                    _outer11(layout, size, x, first, datum, number, y, second, after, sums, place, other, vector, more)
                v += 1
        s += 4 if many else 1


@traced
def _zero(like):
    return like.zero()


@compiled
def _sum_data(size, d, at, datum, count, sums, to, more):
    """sums[v] = Σ_i d[i, v], or as much more."""
    L = lanes_of(d)
    for v in range(count):
        made = load(sums, to + v * L) if more else _zero(sums)
        for i in range(size):
            made = made + load(d, at + i * datum + v * L)
        store(sums, to + v * L, made)


@traced
def _sum_each(layout, made, d, at):
    if isinstance(layout, Group):
        return made + d.load(at)
    return made + d.number(at).splat(d.lanes)


@traced
def _put_each(layout, sums, at, made):
    if isinstance(layout, Group):
        sums.store(at, made)
    else:
        sums.put(at, made.lane(0))


@traced
def _start_each(layout, sums, at, more):
    return choose(more, each(layout, sums, at), 0.0)


@compiled
def _sum_numbers(layout, size, d, at, datum, number, count, sums, to, more):
    """sums[k] = Σ_i d[i, k], or as much more, of numbers of each chain."""
    lane = chains_in(layout, d)
    for k in range(count):
        made = _start_each(layout, sums, to + k * lane, more)
        for i in range(size):
            made = _sum_each(layout, made, d, at + i * datum + k * number)
        _put_each(layout, sums, to + k * lane, made)


@traced
def _relu(y):
    return choose(y > 0.0, y, 0.0)


_tanh = traced(lanes.tanh)


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
    return choose(y > 0.0, d, 0.0)


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


@compiled
def _flat(x, begin, size, width, stride, room):
    """Rows without padding, for BLAS."""
    if stride == width:
        return matrix(x, begin, size, width)
    rows = matrix(room, 0, size, width)
    for i in range(size):
        for j in range(width):
            rows[i, j] = x[begin + i * stride + j]
    return rows


@compiled(apart=True)
def forward(layout, theta, network, first, size, room):
    """The logits (output, datum) at the inputs first to first + size - 1; weights must be up to date."""
    W, L, lane = room.weights, lanes_of(room.weights), chains_in(layout, theta)
    x, begin = room.inputs, first * network.stride
    for l in range(network.count):
        layer = layer_of(network.layers, l)
        way, level, after, out = layer.way, layer.level, layer.after, layer.out
        last = l == network.count - 1
        if way == ROWS:
            z, to, datum, step = (
                (room.logits, 0, lane, network.chunk * lane) if last else (room.values, level, after, lane)
            )
            _reductions(
                layout, size, x, begin, layer.before, layer.inputs, W, layer.rows, L, layer.row_output,
                layer.bias, True, z, to, datum, step, out,
            )  # fmt: skip
        elif way == BLAS:
            _blas_forward(layout, theta, layer, size, x, begin, room)
        else:
            _products(
                layout, size, x, begin, layer.before, lane, layer.width, W, layer.columns, layer.column_vector,
                layer.column_input, layer.bias, True, room.values, level, after, layer.outputs,
            )  # fmt: skip
        if not last:
            activate(room.values, level, -(-size * after // L) * L, network.activation)
        elif way != ROWS:
            for i in range(size):
                for k in range(out):
                    for c in range(lane):
                        to = (k * network.chunk + i) * lane + c
                        room.logits[to] = room.values[level + i * after + k * lane + c]
        x, begin = room.values, level


def _blas_forward(layout, theta, layer, size, x, begin, room):
    """The outputs of a layer from a matrix product, in the layout that has them."""
    raise NotImplementedError("only in compiled code")


def _blas_backward(layout, theta, G, layer, size, x, begin, d, other, room, deltas):
    """The gradient from a matrix product, and what the layer before gets, if it is asked for."""
    raise NotImplementedError("only in compiled code")


@overload(_blas_forward, jit_options={"nogil": True})
def _blas_forward_in(layout, theta, layer, size, x, begin, room):
    if layout.instance_class is Wide:
        return lambda layout, theta, layer, size, x, begin, room: _outputs(theta, layer, size, x, begin, room)
    return lambda layout, theta, layer, size, x, begin, room: None


@overload(_blas_backward, jit_options={"nogil": True})
def _blas_backward_in(layout, theta, G, layer, size, x, begin, d, other, room, deltas):
    if layout.instance_class is Wide:
        return lambda layout, theta, G, layer, size, x, begin, d, other, room, deltas: _gradients(
            theta, G, layer, size, x, begin, d, other, room, deltas
        )
    return lambda layout, theta, G, layer, size, x, begin, d, other, room, deltas: None


@compiled(apart=True)
def _outputs(theta, layer, size, x, begin, room):
    width, out, after = layer.width, layer.out, layer.after
    y = matrix(room.other, 0, size, out)
    rows = _flat(x, begin, size, width, layer.before, room.flat)
    np.dot(rows, matrix(theta, layer.weight, out, width).T, y)
    for i in range(size):
        for k in range(out):
            room.values[layer.level + i * after + k] = y[i, k] + theta[layer.shift + k]


@compiled(apart=True)
def _gradients(theta, G, layer, size, x, begin, d, other, room, deltas):
    width, out, after = layer.width, layer.out, layer.after
    flat = matrix(room.other, 0, size, out)
    for i in range(size):
        for k in range(out):
            flat[i, k] = d[i * after + k]
    rows = _flat(x, begin, size, width, layer.before, room.flat)
    np.dot(flat.T, rows, matrix(G, layer.weight, out, width))
    for k in range(out):
        G[layer.shift + k] = d[k]
    for i in range(1, size):
        for k in range(out):
            G[layer.shift + k] += d[i * after + k]
    if deltas:
        e = matrix(room.flat, 0, size, width)
        np.dot(flat, matrix(theta, layer.weight, out, width), e)
        for i in range(size):
            for j in range(width):
                other[i * layer.before + j] = e[i, j]


@compiled(apart=True)
def backward(layout, theta, G, network, first, size, room, more):
    """Add to -∇L, or begin it, what follows from the data whose outputs `forward` has left and whose negative
    derivatives by the logits stand in `deltas` (output, datum)."""
    W, sums, lane, L = room.weights, room.sums, chains_in(layout, theta), lanes_of(theta)
    d, other = room.deltas, room.previous
    last = network.count - 1
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
            _blas_backward(layout, theta, G, layer, size, x, begin, d, other, room, l > 0)
        else:
            if way == ROWS:
                _sum_numbers(layout, size, d, 0, datum, step, out, sums, layer.bias_sums, more)
            else:
                _sum_data(size, d, 0, datum, layer.outputs, sums, layer.bias_sums, more)
            if way == COLUMNS:
                _outers(
                    layout, size, x, begin, before, lane, layer.width, d, 0, datum, layer.outputs, sums,
                    layer.sums, layer.sum_number, layer.sum_vector, more,
                )  # fmt: skip
            else:
                _outers(
                    layout, size, d, 0, datum, step, out, x, begin, before, layer.inputs, sums, layer.sums,
                    layer.sum_number, layer.sum_vector, more,
                )  # fmt: skip
            if l > 0 and way == COLUMNS:
                _reductions(
                    layout, size, d, 0, datum, layer.outputs, W, layer.columns, layer.column_vector,
                    layer.column_input, layer.bias, False, other, 0, before, lane, layer.width,
                )  # fmt: skip
            elif l > 0:
                _products(
                    layout, size, d, 0, datum, step, out, W, layer.rows, L, layer.row_output, layer.bias,
                    False, other, 0, before, layer.inputs,
                )  # fmt: skip
        if l > 0:
            chain_rule(other, room.values, begin, -(-size * before // L) * L, network.activation)
            d, other = other, d


def _make_shallow(rows: int) -> Any:
    """For some data: two inputs, hidden units with ReLU, one output."""

    @traced
    def shallow(layout, x, at, datum, n, W, column, vector, other, bias, row, last, masks, place, per, z, to):
        lane = W.lanes if isinstance(layout, Group) else 1
        inputs = [[each(layout, x, at + datum * i + lane * j) for i in range(rows)] for j in range(2)]

        def add(sums, v):
            first, second = (W.load(column + v * vector + other * j) for j in range(2))
            shift, factor = W.load(bias + v * W.lanes), W.load(row + v * W.lanes)
            made = []
            for i, sum_ in enumerate(sums):
                y = fma(second, inputs[1][i], fma(first, inputs[0][i], shift))
                active = y > 0.0
                masks.put(place + v * per + i, active.as_number(masks.dtype))
                made.append(fma(factor, choose(active, y, 0.0), sum_))
            return made

        sums = _sum_units(layout, W.lanes, n, rows, W, add)
        _put_numbers(layout, sums, W, lambda read: read(last), z, to, lane)

    return shallow


_shallow4, _shallow1 = _make_shallow(4), _make_shallow(1)


@compiled(apart=True)
def shallow_forward(layout, network, size, room):
    """The logits of a network with two inputs, ReLU and one output, and which units are active at which data."""
    W, lane = room.weights, chains_in(layout, room.weights)
    hidden, last = layer_of(network.layers, 0), layer_of(network.layers, 1)
    i = 0
    while i < size:
        at = i * hidden.before
        if size - i >= 4:
            _shallow4(
                layout, room.inputs, at, hidden.before, hidden.outputs, W, hidden.columns, hidden.column_vector,
                hidden.column_input, hidden.bias, last.rows, last.bias, room.masks, i, size, room.logits, i * lane,
            )  # fmt: skip
            i += 4
        else:
            _shallow1(
                layout, room.inputs, at, hidden.before, hidden.outputs, W, hidden.columns, hidden.column_vector,
                hidden.column_input, hidden.bias, last.rows, last.bias, room.masks, i, size, room.logits, i * lane,
            )  # fmt: skip
            i += 1


def _make_active(units: int) -> Any:
    """Sums over the data at which a unit is active, for some vectors of units: of δ, δ x0 and δ x1."""

    @traced
    def active(layout, size, d, x, datum, masks, place, W, columns, sums, places):
        lane = W.lanes if isinstance(layout, Group) else 1
        made = Kept([W.zero()] * (3 * units))
        with loop(size) as i:
            delta = each(layout, d, i * lane)
            first, second = (each(layout, x, i * datum + lane * j) for j in range(2))
            sums_ = made.get()
            for u in range(units):
                on = masks.number(place + size * u + i).as_mask(W.lanes)
                a, b, c = sums_[3 * u : 3 * u + 3]
                sums_[3 * u : 3 * u + 3] = (
                    choose(on, a + delta, a), choose(on, fma(delta, first, b), b), choose(on, fma(delta, second, c), c)
                )  # fmt: skip
            made.set(sums_)
        column, vector, other, bias, row = columns
        to, sum_vector, sum_number, shifts, last = places
        for u, (a, b, c) in enumerate(zip(*[iter(made.get())] * 3, strict=True)):
            at = W.lanes * u
            factor = W.load(row + at)
            sums.store(to + sum_vector * u, factor * b)
            sums.store(to + sum_vector * u + sum_number, factor * c)
            sums.store(shifts + at, factor * a)
            # Σ δ y, since y = w · x + b where the unit is active
            first, second = (W.load(column + vector * u + other * j) for j in range(2))
            sums.store(last + at, fma(second, c, fma(first, b, a * W.load(bias + at))))

    return active


_active4, _active1 = _make_active(4), _make_active(1)


@compiled(apart=True)
def shallow_backward(layout, network, size, room):
    """-∇L after `shallow_forward`, from the negative derivatives by the logits."""
    W, sums, L = room.weights, room.sums, lanes_of(room.weights)
    hidden, last = layer_of(network.layers, 0), layer_of(network.layers, 1)
    _sum_numbers(layout, size, room.deltas, 0, chains_in(layout, W), 0, 1, sums, last.bias_sums, False)
    v = 0
    while v < hidden.outputs:
        columns = (
            hidden.columns + v * hidden.column_vector, hidden.column_vector, hidden.column_input,
            hidden.bias + v * L, last.rows + v * L,
        )  # fmt: skip
        places = (
            hidden.sums + v * hidden.sum_vector, hidden.sum_vector, hidden.sum_number,
            hidden.bias_sums + v * L, last.sums + v * L,
        )  # fmt: skip
        if hidden.outputs - v >= 4:
            _active4(
                layout, size, room.deltas, room.inputs, hidden.before, room.masks, v * size, W, columns, sums,
                places,
            )  # fmt: skip
            v += 4
        else:
            _active1(
                layout, size, room.deltas, room.inputs, hidden.before, room.masks, v * size, W, columns, sums,
                places,
            )  # fmt: skip
            v += 1


@compiled(apart=True)
def make_room(layout, network, like, masks, chosen, batch, capacity, columns, theta, G, address):
    """Buffers for batches of this size and for chunks, from an address on, and the address after them.

    `capacity` is that of the targets of a batch; `theta` and `G` are the parameters and the gradient of a
    group; `masks` and `chosen` are pointers of the types of those buffers.
    """
    lane, L = chains_in(layout, like), lanes_of(like)
    rows = max(batch, network.chunk)
    numbers = max(network.out * network.chunk, rows) * lane + L
    widest = max(network.widest, numbers) + L
    alone = lane == 1
    inputs, address = place(address, rows * network.stride + L, like)
    targets, address = place(address, columns * max(capacity, network.chunk) * lane + L, like)
    values, address = place(address, network.values + L, like)
    logits, address = place(address, numbers, like)
    deltas, address = place(address, widest, like)
    previous, address = place(address, widest, like)
    units = layer_of(network.layers, 0).outputs * batch if network.shallow else 0
    active, address = place(address, units, masks)
    weights, address = place(address, network.copies + L if alone else 0, like)
    sums, address = place(address, network.copies + L if alone else 0, like)
    checks, address = place(address, L, like)
    flat, address = place(address, network.flat, like)
    other, address = place(address, network.flat, like)
    indices, address = place(address, rows * lane, chosen)
    room = Room(
        inputs, targets, values, logits, deltas, previous, active, weights if alone else theta,
        sums if alone else G, checks, flat, other, indices,
    )  # fmt: skip
    return room, address


@compiled(apart=True)
def clear(network, room):
    """Forget what a chain that diverged has left: padding is multiplied by 0, and must be finite."""
    for e in range(network.values):
        room.values[e] = 0
    for e in range(network.widest):
        room.deltas[e] = 0
        room.previous[e] = 0


@compiled
def negative_gradient(layout, theta, G, network, batch, capacity, room):
    """G = -∇L of every chain on the batch whose inputs and targets stand in the room; `capacity` is that of
    the targets. Afterwards `room.checks` is NaN, for the chains in its lanes, where a loss is not finite."""
    scale, alone = number(theta, 1.0 / batch), chains_in(layout, theta) == 1
    store(room.checks, 0, _zero(theta))
    if alone:
        copy_weights(theta, network, room.weights)
    if network.shallow:
        shallow_forward(layout, network, batch, room)
        derivatives(
            layout, network.loss, room.logits, room.targets, room.deltas, batch, capacity, 0, batch, 1, scale,
            room.checks,
        )  # fmt: skip
        shallow_backward(layout, network, batch, room)
    else:
        for first in range(0, batch, network.chunk):
            size = min(network.chunk, batch - first)
            forward(layout, theta, network, first, size, room)
            derivatives(
                layout, network.loss, room.logits, room.targets, room.deltas, network.chunk, capacity, first, size,
                network.out, scale, room.checks,
            )  # fmt: skip
            backward(layout, theta, G, network, first, size, room, first > 0)
    if alone:
        place_gradient(G, network, room.sums)
        _check_all(room.checks)


@traced
def _check_all(checks):
    """Of one alone the lanes were data: NaN in one is NaN in all."""
    checks.store(0, total(checks.load(0)).splat(checks.lanes))
