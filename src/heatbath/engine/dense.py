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

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload

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
    pointer,
    store,
    total,
    traced,
    tree,
    zero,
)
from heatbath.engine.layouts import Group, Layout, Wide, chains_in, each, place
from heatbath.engine.losses import derivatives, weigh
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
    depth: int
    stride: int
    out: int
    activation: int
    loss: int
    degrees: float
    shallow: bool
    chunk: int
    values: int
    widest: int
    flat: int
    copies: int


@compiled
def by_pointer(network):
    """The same with a pointer to the rows of the table; whoever takes it keeps the table."""
    return Network(
        pointer(network.layers), network.depth, network.stride, network.out, network.activation, network.loss,
        network.degrees, network.shallow, network.chunk, network.values, network.widest, network.flat,
        network.copies,
    )  # fmt: skip


class Room(NamedTuple):
    """Pointers to buffers. Those of data have the layout's form; `weights` and `sums` are the copies of one
    alone, and the parameters and the gradient of a group; `shares` are those of the targets in the loss of a
    regression, and `tails` what its derivative is divided by (see `derivatives`), both (target, lane)."""

    inputs: Any
    targets: Any
    values: Any
    logits: Any
    deltas: Any
    previous: Any
    shares: Any
    tails: Any
    masks: Any
    weights: Any
    sums: Any
    checks: Any
    flat: Any
    other: Any
    chosen: Any


@dataclass(frozen=True)
class Shape:
    """What the compiled code knows of a network: its layers' sizes, activation and loss, as numbers; and the
    degrees of freedom of the noise of a regression."""

    sizes: tuple[int, ...]
    activation: int
    loss: int
    degrees: float = math.inf

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
            shape = width, out, way, strides[l], strides[l + 1], inputs, outputs, level
            layers.append(Layer(*shape, *places, *sums, weight, shift))
            level += data * strides[l + 1]
        shallow = ways == [COLUMNS, ROWS] and sizes[0] == 2 and sizes[-1] == 1
        return Network(
            np.array(layers, np.int64),
            len(layers),
            strides[0],
            sizes[-1],
            self.activation,
            self.loss,
            self.degrees,
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
    for l in range(network.depth):
        layer = layer_of(network.layers, l)
        width, out, way = layer.width, layer.out, layer.way
        if way in (ROWS, WIDE):
            for k in range(out):
                for j in range(width):
                    copies[layer.rows + k * layer.row_output + j] = theta[layer.weight + k * width + j]
        if way in (COLUMNS, WIDE):
            for j in range(width):
                for k in range(out):
                    copies[layer.columns + j * layer.column_input + k] = theta[layer.weight + k * width + j]
        if way != BLAS:
            for k in range(out):
                copies[layer.bias + k] = theta[layer.shift + k]


@compiled(apart=True)
def place_gradient(G, network, sums):
    """Put the sums of a chain's gradient where its parameters are."""
    for l in range(network.depth):
        layer = layer_of(network.layers, l)
        width, out, way = layer.width, layer.out, layer.way
        if way in (ROWS, WIDE):
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
    def product(layout, at, weight, bias, to, others):
        x, datum, number, n, W, vector, other, biased, y, after = others
        begin = [choose(biased, W.load(bias + W.lanes * v), 0.0) for v in range(columns)]
        sums = Kept(begin * rows)
        with loop(n) as s:
            numbers = [each(layout, x, at + s * number + datum * i) for i in range(rows)]
            weights = [W.load(weight + s * other + vector * v) for v in range(columns)]
            pairs = [(one, w) for one in numbers for w in weights]
            sums.set([fma(w, one, sum_) for (one, w), sum_ in zip(pairs, sums.get(), strict=True)])
        for index, sum_ in enumerate(sums.get()):
            i, v = divmod(index, columns)
            y.store(to + after * i + y.lanes * v, sum_)

    return product


_product44, _product41, _product14, _product11 = _tiles_of(_make_product)


@compiled(apart=True)
def _products(layout, size, count, at, weight, bias, to, others):
    """y[i, v] = bias[v] + Σ_s x[i, s] W[v, s]: numbers of each chain times vectors of weights, s in order.

    `others` are x, its strides of data and numbers, how many numbers there are, W, its strides of vectors and
    numbers, whether there is a bias, y, and its stride of data.
    """
    _, datum, _, _, _, vector, _, _, y, after = others
    L = lanes_of(y)
    v = 0
    while v < count:
        four = count - v >= 4
        i = 0
        while i < size:
            begin, first = at + i * datum, weight + v * vector
            shift, end = bias + v * L, to + i * after + v * L
            if size - i >= 4:
                if four:
                    _product44(layout, begin, first, shift, end, others)
                else:
                    _product41(layout, begin, first, shift, end, others)
                i += 4
            else:
                if four:
                    _product14(layout, begin, first, shift, end, others)
                else:
                    _product11(layout, begin, first, shift, end, others)
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
    def reduction(layout, at, weight, bias, to, others):
        x, datum, n, W, vector, biased, z, after = others

        def add(sums, v):
            w = W.load(weight + v * vector)
            return [fma(w, x.load(at + v * x.lanes + datum * i), sum_) for i, sum_ in enumerate(sums)]

        sums = _sum_units(layout, x.lanes, n, rows, x, add)
        _put_numbers(layout, sums, W, lambda read: choose(biased, read(bias), 0.0), z, to, after)

    return reduction


_reduction4, _reduction1 = _make_reduction(4), _make_reduction(1)


@compiled(apart=True)
def _reductions(layout, size, count, at, weight, bias, to, other, number, others):
    """z[i, k] = Σ_v x[i, v] W[k, v] + bias[k]: vectors times vectors, summed over lanes, too.

    `other` and `number` are the strides of W and z from one k to the next; `others` are x, its stride of
    data, how many vectors there are, W, its stride of vectors, whether there is a bias, z, and its stride of
    data.
    """
    _, datum, _, _, _, _, z, after = others
    lane = chains_in(layout, z)
    for k in range(count):
        i = 0
        while i < size:
            begin, first = at + i * datum, weight + k * other
            shift, end = bias + k * lane, to + i * after + k * number
            if size - i >= 4:
                _reduction4(layout, begin, first, shift, end, others)
                i += 4
            else:
                _reduction1(layout, begin, first, shift, end, others)
                i += 1


def _make_outer(rows: int, columns: int) -> Any:
    @traced
    def outer(layout, at, begin, to, others):
        size, x, datum, number, y, after, sums, other, vector, more = others
        places = [to + other * s + vector * v for s in range(rows) for v in range(columns)]
        made = Kept([choose(more, sums.load(end), 0.0) for end in places])
        with loop(size) as i:
            numbers = [each(layout, x, at + i * datum + number * s) for s in range(rows)]
            vectors = [y.load(begin + i * after + y.lanes * v) for v in range(columns)]
            pairs = [(one, two) for one in numbers for two in vectors]
            made.set([fma(one, two, sum_) for (one, two), sum_ in zip(pairs, made.get(), strict=True)])
        for end, sum_ in zip(places, made.get(), strict=True):
            sums.store(end, sum_)

    return outer


_outer44, _outer41, _outer14, _outer11 = _tiles_of(_make_outer)


@compiled(apart=True)
def _outers(layout, n, count, at, begin, to, others):
    """sums[s, v] = Σ_i x[i, s] y[i, v], or as much more: numbers of each chain times vectors, i in order.

    `others` are how many data there are, x, its strides of data and numbers, y, its stride of data, the sums,
    their strides of numbers and vectors, and whether there is more.
    """
    _, _, _, number, y, _, _, other, vector, _ = others
    L = lanes_of(y)
    s = 0
    while s < n:
        many = n - s >= 4
        v = 0
        while v < count:
            first, second, end = at + s * number, begin + v * L, to + s * other + v * vector
            if count - v >= 4:
                if many:
                    _outer44(layout, first, second, end, others)
                else:
                    _outer14(layout, first, second, end, others)
                v += 4
            else:
                if many:
                    _outer41(layout, first, second, end, others)
                else:
                    _outer11(layout, first, second, end, others)
                v += 1
        s += 4 if many else 1


@compiled
def _sum_data(size, d, at, datum, count, sums, to, more):
    """sums[v] = Σ_i d[i, v], or as much more."""
    L = lanes_of(d)
    for v in range(count):
        made = load(sums, to + v * L) if more else zero(sums)
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
    return choose(y.above(0.0), y, 0.0)


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
            _reductions(layout, size, out, begin, layer.rows, layer.bias, to, layer.row_output, step, others)
        elif way == BLAS:
            _blas_forward(layout, theta, layer, size, x, begin, room)
        else:
            vector, column, y = layer.column_vector, layer.column_input, room.values
            vectors = x, before, lane, layer.width, W, vector, column, True, y, after
            _products(layout, size, layer.outputs, begin, layer.columns, layer.bias, level, vectors)
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
            _blas_backward(layout, theta, G, layer, size, x, begin, d, other, room, l > 0)
        else:
            if way == ROWS:
                _sum_numbers(layout, size, d, 0, datum, step, out, sums, layer.bias_sums, more)
            else:
                _sum_data(size, d, 0, datum, layer.outputs, sums, layer.bias_sums, more)
            row, vector = layer.sum_number, layer.sum_vector
            if way == COLUMNS:
                others = size, x, before, lane, d, datum, sums, row, vector, more
                _outers(layout, layer.width, layer.outputs, begin, 0, layer.sums, others)
            else:
                others = size, d, datum, step, x, before, sums, row, vector, more
                _outers(layout, out, layer.inputs, 0, begin, layer.sums, others)
            if l > 0 and way == COLUMNS:
                sources = d, datum, layer.outputs, W, layer.column_vector, False, other, before
                _reductions(
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
                _products(layout, size, layer.inputs, 0, layer.rows, layer.bias, 0, rows)
        if l > 0:
            chain_rule(other, room.values, begin, -(-size * before // L) * L, network.activation)
            d, other = other, d


def _make_shallow(rows: int) -> Any:
    """For some data: two inputs, hidden units with ReLU, one output."""

    @traced
    def shallow(layout, first, size, room, hidden, last):
        x, W, masks = room.inputs, room.weights, room.masks
        lane = W.lanes if isinstance(layout, Group) else 1
        places = [hidden.before * (first + i) for i in range(rows)]
        inputs = [[each(layout, x, at + lane * j) for at in places] for j in range(2)]

        def add(sums, v):
            one, two = (
                W.load(hidden.columns + v * hidden.column_vector + hidden.column_input * j) for j in range(2)
            )
            shift, factor = W.load(hidden.bias + v * W.lanes), W.load(last.rows + v * W.lanes)
            made = []
            for i, sum_ in enumerate(sums):
                y = fma(two, inputs[1][i], fma(one, inputs[0][i], shift))
                active = y.above(0.0)
                masks.put(v * size + first + i, active.as_number(masks.dtype))
                made.append(fma(factor, choose(active, y, 0.0), sum_))
            return made

        sums = _sum_units(layout, W.lanes, hidden.outputs, rows, W, add)
        _put_numbers(layout, sums, W, lambda read: read(last.bias), room.logits, first * lane, lane)

    return shallow


_shallow4, _shallow1 = _make_shallow(4), _make_shallow(1)


@compiled(apart=True)
def shallow_forward(layout, network, size, room):
    """The logits of a network with two inputs, ReLU and one output, and which units are active where."""
    hidden, last = layer_of(network.layers, 0), layer_of(network.layers, 1)
    i = 0
    while i < size:
        if size - i >= 4:
            _shallow4(layout, i, size, room, hidden, last)
            i += 4
        else:
            _shallow1(layout, i, size, room, hidden, last)
            i += 1


def _make_active(units: int) -> Any:
    """Sums over the data at which a unit is active, for some vectors of units: of δ, δ x0 and δ x1."""

    @traced
    def active(layout, begin, size, room, hidden, last):
        W, sums = room.weights, room.sums
        lane = W.lanes if isinstance(layout, Group) else 1
        made = Kept([W.zero()] * (3 * units))
        with loop(size) as i:
            delta = each(layout, room.deltas, i * lane)
            one, two = (each(layout, room.inputs, i * hidden.before + lane * j) for j in range(2))
            now = made.get()
            for u in range(units):
                on = room.masks.number((begin + u) * size + i).as_mask(W.lanes)
                a, b, c = now[3 * u : 3 * u + 3]
                more = a + delta, fma(delta, one, b), fma(delta, two, c)
                now[3 * u : 3 * u + 3] = [
                    choose(on, new, old) for new, old in zip(more, (a, b, c), strict=True)
                ]
            made.set(now)
        for u, (a, b, c) in enumerate(zip(*[iter(made.get())] * 3, strict=True)):
            v = begin + u
            factor = W.load(last.rows + v * W.lanes)
            to, shift = hidden.sums + v * hidden.sum_vector, v * W.lanes
            sums.store(to, factor * b)
            sums.store(to + hidden.sum_number, factor * c)
            sums.store(hidden.bias_sums + shift, factor * a)
            # Σ δ y, since y = w · x + b where the unit is active
            one, two = (
                W.load(hidden.columns + v * hidden.column_vector + hidden.column_input * j) for j in range(2)
            )
            outer = fma(two, c, fma(one, b, a * W.load(hidden.bias + shift)))
            sums.store(last.sums + shift, outer)

    return active


_active4, _active1 = _make_active(4), _make_active(1)


@compiled(apart=True)
def shallow_backward(layout, network, size, room):
    """-∇L after `shallow_forward`, from the negative derivatives by the logits."""
    hidden, last = layer_of(network.layers, 0), layer_of(network.layers, 1)
    lane = chains_in(layout, room.weights)
    _sum_numbers(layout, size, room.deltas, 0, lane, 0, 1, room.sums, last.bias_sums, False)
    v = 0
    while v < hidden.outputs:
        if hidden.outputs - v >= 4:
            _active4(layout, v, size, room, hidden, last)
            v += 4
        else:
            _active1(layout, v, size, room, hidden, last)
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
    shares, address = place(address, network.out * L, like)
    tails, address = place(address, network.out * L, like)
    units = layer_of(network.layers, 0).outputs * batch if network.shallow else 0
    active, address = place(address, units, masks)
    weights, address = place(address, network.copies + L if alone else 0, like)
    sums, address = place(address, network.copies + L if alone else 0, like)
    checks, address = place(address, L, like)
    flat, address = place(address, network.flat, like)
    other, address = place(address, network.flat, like)
    indices, address = place(address, rows * lane, chosen)
    room = Room(
        inputs, targets, values, logits, deltas, previous, shares, tails, active,
        weights if alone else theta, sums if alone else G, checks, flat, other, indices,
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
