"""Products and sums of a dense layer, in registers, tile by tile.

Letters: x inputs or values of units, W weights, y outputs, d derivatives; i numbers examples, s and k numbers
of each chain, v vectors. An *offset* is an index into a buffer; a *stride* leads from one of a kind to the
next.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from heatbath.engine.compile import compiled
from heatbath.engine.layouts import LaneGroup, chains_in, load_chains
from heatbath.engine.simd import (
    LoopVariables,
    Pointer,
    fma,
    lanes_of,
    load,
    loop,
    select,
    store,
    sum_lanes,
    sum_vectors,
    traced,
    zero,
)


class Product(NamedTuple):
    """Pointers and strides of `multiply`: numbers of x, (example, s), times vectors of W, (vector, s)."""

    x: Pointer
    x_example: int
    x_number: int
    terms: int  # numbers s that are summed over
    W: Pointer
    W_vector: int
    W_number: int
    has_bias: bool
    y: Pointer
    y_example: int


class Reduction(NamedTuple):
    """Pointers and strides of `reduce_rows`: vectors of x, (example, v), times those of W, (k, v)."""

    x: Pointer
    x_example: int
    terms: int  # vectors that are summed over
    W: Pointer
    W_vector: int
    W_number: int
    has_bias: bool
    y: Pointer
    y_example: int
    y_number: int


class Outer(NamedTuple):
    """Pointers and strides of `sum_outer_products`: numbers of x, (example, s), times vectors of y, (example,
    v).

    With `adding`, the products are added to the sums; otherwise the sums begin at 0.
    """

    examples: int
    x: Pointer
    x_example: int
    x_number: int
    y: Pointer
    y_example: int
    sums: Pointer
    sum_number: int
    sum_vector: int
    adding: bool


def _tiles_of(make: Any) -> tuple[Any, Any, Any, Any]:
    """Return a function for tiles of four by four, four by one, one by four and one by one."""
    return make(4, 4), make(4, 1), make(1, 4), make(1, 1)


def _make_product(rows: int, columns: int) -> Any:
    """Return a compiled function for the product of `rows` examples with `columns` vectors of weights."""

    @traced
    def product(layout, x_offset, W_offset, bias_offset, y_offset, operands):
        """Write y[i, v] = bias[v] + Σ_s x[i, s] W[v, s] for a tile whose first numbers have these offsets."""
        x, W, y = operands.x, operands.W, operands.y
        biases = [W.load(bias_offset + W.lanes * v) for v in range(columns)]
        sums = LoopVariables([select(operands.has_bias, bias, 0.0) for bias in biases] * rows)
        with loop(operands.terms) as s:
            numbers = [
                load_chains(layout, x, x_offset + s * operands.x_number + operands.x_example * i)
                for i in range(rows)
            ]
            weights = [
                W.load(W_offset + s * operands.W_number + operands.W_vector * v) for v in range(columns)
            ]
            factors = [(weight, number) for number in numbers for weight in weights]
            sums.set([fma(*pair, sum_) for pair, sum_ in zip(factors, sums.get(), strict=True)])
        for index, sum_ in enumerate(sums.get()):
            i, v = divmod(index, columns)
            y.store(y_offset + operands.y_example * i + y.lanes * v, sum_)

    return product


_product44, _product41, _product14, _product11 = _tiles_of(_make_product)


@compiled(apart=True)
def multiply(layout, examples, vectors, x_offset, W_offset, bias_offset, y_offset, operands):
    """Write y[i, v] = bias[v] + Σ_s x[i, s] W[v, s] for all examples i and vectors of outputs v.

    Numbers x of each chain are multiplied by vectors of weights and summed in the order of s. `operands` is a
    `Product`; x, W, the bias and y begin at the offsets.
    """
    lanes = lanes_of(operands.y)
    v = 0
    while v < vectors:
        four_vectors = vectors - v >= 4
        i = 0
        while i < examples:
            x, W = x_offset + i * operands.x_example, W_offset + v * operands.W_vector
            bias, y = bias_offset + v * lanes, y_offset + i * operands.y_example + v * lanes
            if examples - i >= 4:
                if four_vectors:
                    _product44(layout, x, W, bias, y, operands)
                else:
                    _product41(layout, x, W, bias, y, operands)
                i += 4
            else:
                if four_vectors:
                    _product14(layout, x, W, bias, y, operands)
                else:
                    _product11(layout, x, W, bias, y, operands)
                i += 1
        v += 4 if four_vectors else 1


def sum_over_vectors(layout: Any, lanes: int, count: Any, sums: int, like: Any, add: Any) -> list[Any]:
    """Generate a loop over `count` vectors of units, or as many numbers of a group; return sums of each
    chain.

    `add(values, v)` returns the values of `sums` sums after vector v has been added, beginning with zeros. A
    group has a partial sum for each lane that a chain alone has, and adds them as that adds its lanes.
    """
    zeros = [like.zero()] * sums
    if not isinstance(layout, LaneGroup):
        totals = LoopVariables(zeros)
        with loop(count) as v:
            totals.set(add(totals.get(), v))
        return [sum_lanes(total) for total in totals.get()]
    partial_sums = like.allocate(lanes * sums)
    with loop(count.constant(lanes)) as lane:
        totals = LoopVariables(zeros)
        with loop(count, lane, lanes) as v:
            totals.set(add(totals.get(), v))
        for i, total in enumerate(totals.get()):
            partial_sums.store((lane * sums + i) * lanes, total)
    return [
        sum_vectors([partial_sums.load((lane * sums + i) * lanes) for lane in range(lanes)])
        for i in range(sums)
    ]


def store_with_bias(
    layout: Any, numbers: list[Any], W: Any, load_bias: Any, y: Any, y_offset: Any, y_example: Any
) -> None:
    """Generate code that stores y[i] = numbers[i] + bias for some examples i, one number of each chain.

    `load_bias(load)` returns the bias by a function that loads one number of each chain from W.
    """
    grouped = isinstance(layout, LaneGroup)
    for i, number in enumerate(numbers):
        value = number + load_bias(W.load if grouped else W.load_number)
        if grouped:
            y.store(y_offset + y_example * i, value)
        else:
            y.store_number(y_offset + y_example * i, value)


def _make_reduction(rows: int) -> Any:
    """Return a compiled function that reduces `rows` examples with one row of weights."""

    @traced
    def reduction(layout, x_offset, W_offset, bias_offset, y_offset, operands):
        """Write y[i] = Σ_v x[i, v] W[v] + bias for examples whose first numbers have these offsets."""
        x, W = operands.x, operands.W

        def add(sums, v):
            weights = W.load(W_offset + v * operands.W_vector)
            return [
                fma(weights, x.load(x_offset + v * x.lanes + operands.x_example * i), sum_)
                for i, sum_ in enumerate(sums)
            ]

        sums = sum_over_vectors(layout, x.lanes, operands.terms, rows, x, add)
        store_with_bias(
            layout, sums, W, lambda load: select(operands.has_bias, load(bias_offset), 0.0), operands.y,
            y_offset, operands.y_example,
        )  # fmt: skip

    return reduction


_reduction4, _reduction1 = _make_reduction(4), _make_reduction(1)


@compiled(apart=True)
def reduce_rows(layout, examples, numbers, x_offset, W_offset, bias_offset, y_offset, operands):
    """Write y[i, k] = Σ_v x[i, v] W[k, v] + bias[k] for all examples i and numbers k of each chain.

    Vectors are multiplied by vectors and summed over their lanes, too. `operands` is a `Reduction`; x, W, the
    bias and y begin at the offsets.
    """
    group_size = chains_in(layout, operands.y)
    for k in range(numbers):
        i = 0
        while i < examples:
            x, W = x_offset + i * operands.x_example, W_offset + k * operands.W_number
            bias, y = bias_offset + k * group_size, y_offset + i * operands.y_example + k * operands.y_number
            if examples - i >= 4:
                _reduction4(layout, x, W, bias, y, operands)
                i += 4
            else:
                _reduction1(layout, x, W, bias, y, operands)
                i += 1


def _make_outer(rows: int, columns: int) -> Any:
    """Return a compiled function for the outer products of `rows` numbers with `columns` vectors."""

    @traced
    def outer(layout, x_offset, y_offset, sum_offset, operands):
        """Sum x[i, s] y[i, v] over the examples i, for a tile whose first numbers have these offsets."""
        x, y, sums = operands.x, operands.y, operands.sums
        offsets = [
            sum_offset + operands.sum_number * s + operands.sum_vector * v
            for s in range(rows)
            for v in range(columns)
        ]
        totals = LoopVariables([select(operands.adding, sums.load(offset), 0.0) for offset in offsets])
        with loop(operands.examples) as i:
            numbers = [
                load_chains(layout, x, x_offset + i * operands.x_example + operands.x_number * s)
                for s in range(rows)
            ]
            vectors = [y.load(y_offset + i * operands.y_example + y.lanes * v) for v in range(columns)]
            factors = [(number, vector) for number in numbers for vector in vectors]
            totals.set([fma(*pair, total) for pair, total in zip(factors, totals.get(), strict=True)])
        for offset, total in zip(offsets, totals.get(), strict=True):
            sums.store(offset, total)

    return outer


_outer44, _outer41, _outer14, _outer11 = _tiles_of(_make_outer)


@compiled(apart=True)
def sum_outer_products(layout, numbers, vectors, x_offset, y_offset, sum_offset, operands):
    """Write sums[s, v] = Σ_i x[i, s] y[i, v], or add to them, for all numbers s of each chain and vectors v.

    The examples i are summed in order. `operands` is an `Outer`; x, y and the sums begin at the offsets.
    """
    lanes = lanes_of(operands.y)
    s = 0
    while s < numbers:
        four_numbers = numbers - s >= 4
        v = 0
        while v < vectors:
            x, y = x_offset + s * operands.x_number, y_offset + v * lanes
            total = sum_offset + s * operands.sum_number + v * operands.sum_vector
            if vectors - v >= 4:
                if four_numbers:
                    _outer44(layout, x, y, total, operands)
                else:
                    _outer14(layout, x, y, total, operands)
                v += 4
            else:
                if four_numbers:
                    _outer41(layout, x, y, total, operands)
                else:
                    _outer11(layout, x, y, total, operands)
                v += 1
        s += 4 if four_numbers else 1


@compiled
def sum_vectors_over_examples(examples, d, d_example, vectors, sums, sum_offset, adding):
    """Write sums[v] = Σ_i d[i, v], or add to them, for vectors v; `d_example` is the stride of examples."""
    lanes = lanes_of(d)
    for v in range(vectors):
        total = load(sums, sum_offset + v * lanes) if adding else zero(sums)
        for i in range(examples):
            total = total + load(d, i * d_example + v * lanes)
        store(sums, sum_offset + v * lanes, total)


@traced
def _first_total(layout, sums, offset, adding):
    """Return the number of each chain at sums[offset] if `adding`, and 0 otherwise, as a vector."""
    return select(adding, load_chains(layout, sums, offset), 0.0)


@traced
def _add_number(layout, total, d, offset):
    """Return `total` plus the number of each chain at d[offset]."""
    return total + load_chains(layout, d, offset)


@traced
def _store_total(layout, sums, offset, total):
    """Write one number of each chain to sums[offset]; for a chain alone, that of the first lane."""
    if isinstance(layout, LaneGroup):
        sums.store(offset, total)
    else:
        sums.store_number(offset, total.lane(0))


@compiled
def sum_numbers_over_examples(layout, examples, d, d_example, d_number, numbers, sums, sum_offset, adding):
    """Write sums[k] = Σ_i d[i, k], or add to them, for numbers k of each chain.

    `d_example` and `d_number` are the strides of d.
    """
    group_size = chains_in(layout, d)
    for k in range(numbers):
        total = _first_total(layout, sums, sum_offset + k * group_size, adding)
        for i in range(examples):
            total = _add_number(layout, total, d, i * d_example + k * d_number)
        _store_total(layout, sums, sum_offset + k * group_size, total)
