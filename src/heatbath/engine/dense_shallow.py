"""Networks with two inputs, one ReLU layer and one output, in one pass."""

from __future__ import annotations

from typing import Any

from heatbath.engine.compile import compiled
from heatbath.engine.dense_products import put_numbers, sum_numbers, sum_units
from heatbath.engine.dense_shape import layer_of
from heatbath.engine.layouts import LaneGroup, chains_in, each
from heatbath.engine.simd import (
    Kept,
    choose,
    fma,
    loop,
    traced,
)


def _make_shallow(rows: int) -> Any:
    """For some data: two inputs, hidden units with ReLU, one output."""

    @traced
    def shallow(layout, first, size, room, hidden, last):
        x, W, masks = room.inputs, room.weights, room.masks
        lane = W.lanes if isinstance(layout, LaneGroup) else 1
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

        sums = sum_units(layout, W.lanes, hidden.outputs, rows, W, add)
        put_numbers(layout, sums, W, lambda read: read(last.bias), room.logits, first * lane, lane)

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
        lane = W.lanes if isinstance(layout, LaneGroup) else 1
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
    sum_numbers(layout, size, room.deltas, 0, lane, 0, 1, room.sums, last.bias_sums, False)
    v = 0
    while v < hidden.outputs:
        if hidden.outputs - v >= 4:
            _active4(layout, v, size, room, hidden, last)
            v += 4
        else:
            _active1(layout, v, size, room, hidden, last)
            v += 1
