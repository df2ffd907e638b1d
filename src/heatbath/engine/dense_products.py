"""Products and sums of a dense layer, in registers, tile by tile."""

from __future__ import annotations

from typing import Any

from heatbath.engine.compile import compiled
from heatbath.engine.layouts import LaneGroup, chains_in, each
from heatbath.engine.simd import (
    Kept,
    choose,
    fma,
    lanes_of,
    load,
    loop,
    store,
    total,
    traced,
    tree,
    zero,
)


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
def products(layout, size, count, at, weight, bias, to, others):
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


def sum_units(layout: Any, count: int, n: Any, rows: int, like: Any, add: Any) -> list[Any]:
    """Sums over n vectors of units, for some data: what `add(sums, v)` makes of them, vector by vector.

    In a group there is a sum for each lane that one alone would have, and the tree by which that adds them.
    """
    zeros = [like.zero()] * rows
    if not isinstance(layout, LaneGroup):
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


def put_numbers(layout: Any, numbers: list[Any], W: Any, bias: Any, z: Any, at: Any, datum: Any) -> None:
    """Store numbers of each chain, one for each datum, with a bias if there is one."""
    for i, value in enumerate(numbers):
        shift = bias(W.load if isinstance(layout, LaneGroup) else W.number)
        if isinstance(layout, LaneGroup):
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

        sums = sum_units(layout, x.lanes, n, rows, x, add)
        put_numbers(layout, sums, W, lambda read: choose(biased, read(bias), 0.0), z, to, after)

    return reduction


_reduction4, _reduction1 = _make_reduction(4), _make_reduction(1)


@compiled(apart=True)
def reductions(layout, size, count, at, weight, bias, to, other, number, others):
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
def outers(layout, n, count, at, begin, to, others):
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
def sum_data(size, d, at, datum, count, sums, to, more):
    """sums[v] = Σ_i d[i, v], or as much more."""
    L = lanes_of(d)
    for v in range(count):
        made = load(sums, to + v * L) if more else zero(sums)
        for i in range(size):
            made = made + load(d, at + i * datum + v * L)
        store(sums, to + v * L, made)


@traced
def _sum_each(layout, made, d, at):
    if isinstance(layout, LaneGroup):
        return made + d.load(at)
    return made + d.number(at).splat(d.lanes)


@traced
def _put_each(layout, sums, at, made):
    if isinstance(layout, LaneGroup):
        sums.store(at, made)
    else:
        sums.put(at, made.lane(0))


@traced
def _start_each(layout, sums, at, more):
    return choose(more, each(layout, sums, at), 0.0)


@compiled
def sum_numbers(layout, size, d, at, datum, number, count, sums, to, more):
    """sums[k] = Σ_i d[i, k], or as much more, of numbers of each chain."""
    lane = chains_in(layout, d)
    for k in range(count):
        made = _start_each(layout, sums, to + k * lane, more)
        for i in range(size):
            made = _sum_each(layout, made, d, at + i * datum + k * number)
        _put_each(layout, sums, to + k * lane, made)
