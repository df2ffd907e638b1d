"""Products and sums of a dense layer, in registers, tile by tile.

Letters: x inputs or values of units, W weights, y outputs, d derivatives; i numbers examples, s and k numbers
of each chain, v vectors. An *offset* is an index into a buffer; a *stride* leads from one of a kind to the
next.

Sums are computed in registers for a tile of up to four by four results at a time, so that a number that has
been loaded serves four of them. `tile_size` says how many are next.
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


class Level(NamedTuple):
    """Numbers of some examples at a level of the network: inputs, outputs, or derivatives by them.

    `values` points to those of the first example. `example` and `number` are the strides that lead to the
    next example, and to the next number of an example.
    """

    values: Pointer
    example: int
    number: int


class Product(NamedTuple):
    """Operands of `multiply` and `reduce_rows`, which compute y = x W + bias.

    Attributes
    ----------
    x, y : Level
        Factors and results.
    terms : int
        Numbers (`multiply`) or vectors (`reduce_rows`) of x that are summed over.
    W, W_vector, W_number : pointer, int, int
        Weights, with the strides of vectors and numbers.
    bias, has_bias : pointer, bool
        What the sums begin with, if `has_bias`; otherwise they begin at 0.
    """

    x: Level
    terms: int
    W: Pointer
    W_vector: int
    W_number: int
    bias: Pointer
    has_bias: bool
    y: Level


class Outer(NamedTuple):
    """Operands of `sum_outer_products`: numbers of x times vectors of y, summed over examples.

    Attributes
    ----------
    examples : int
        How many examples there are.
    x, y : Level
        Factors.
    sums, sum_number, sum_vector : pointer, int, int
        Results, with the strides of numbers of x and vectors of y.
    adding : bool
        Whether to add to the sums; otherwise they begin at 0.
    """

    examples: int
    x: Level
    y: Level
    sums: Pointer
    sum_number: int
    sum_vector: int
    adding: bool


class ProductTile(NamedTuple):
    """Offsets of a tile's first numbers from the pointers in a `Product`."""

    x: int
    W: int
    bias: int
    y: int


class OuterTile(NamedTuple):
    """Offsets of a tile's first numbers from the pointers in an `Outer`."""

    x: int
    y: int
    sums: int


SIDE = 4  # rows or columns of a large tile; a small one has 1


@compiled
def tile_size(remaining):
    """Return how many of the remaining examples, numbers or vectors the next tile takes: SIDE or 1."""
    return SIDE if remaining >= SIDE else 1


def _of_tiles(make: Any) -> Any:
    """Return a compiled function that calls what `make(rows, columns)` returns for a tile of that size.

    Rows and columns of a tile are SIDE or 1 each.
    """
    tile44, tile41, tile14, tile11 = make(SIDE, SIDE), make(SIDE, 1), make(1, SIDE), make(1, 1)

    @compiled
    def apply(layout, rows, columns, tile, operands):
        """Compute a tile with so many rows and columns."""
        if rows == SIDE and columns == SIDE:
            tile44(layout, tile, operands)
        elif rows == SIDE:
            tile41(layout, tile, operands)
        elif columns == SIDE:
            tile14(layout, tile, operands)
        else:
            tile11(layout, tile, operands)

    return apply


def _make_product(rows: int, columns: int) -> Any:
    """Return a compiled function for the product of `rows` examples with `columns` vectors of weights.

    It keeps rows × columns sums in registers, so that every number and vector it loads is used several times.
    """

    @traced
    def product(layout, tile, operands):
        """Write y[i, v] = bias[v] + Σ_s x[i, s] W[v, s] for one tile of examples i and vectors v.

        `tile` is a `ProductTile`, and `operands` a `Product`.
        """
        x, W, y = operands.x, operands.W, operands.y
        lanes = W.lanes
        biases = [operands.bias.load(tile.bias + lanes * v) for v in range(columns)]
        sums = LoopVariables([select(operands.has_bias, bias, 0.0) for bias in biases] * rows)

        with loop(operands.terms) as s:
            number_offsets = [tile.x + s * x.number + x.example * i for i in range(rows)]
            weight_offsets = [tile.W + s * operands.W_number + operands.W_vector * v for v in range(columns)]
            numbers = [load_chains(layout, x.values, offset) for offset in number_offsets]
            weights = [W.load(offset) for offset in weight_offsets]
            factors = [(weight, number) for number in numbers for weight in weights]
            sums.set([fma(w, number, total) for (w, number), total in zip(factors, sums.get(), strict=True)])

        for position, total in enumerate(sums.get()):
            i, v = divmod(position, columns)
            y.values.store(tile.y + y.example * i + lanes * v, total)

    return product


_multiply_tile = _of_tiles(_make_product)


@compiled(apart=True)
def multiply(layout, examples, vectors, operands):
    """Write y[i, v] = bias[v] + Σ_s x[i, s] W[v, s] for all examples i and vectors of outputs v.

    Numbers x of each chain are multiplied by vectors of weights and summed in the order of s.

    Parameters
    ----------
    layout : Layout
    examples, vectors : int
        How many examples i and vectors v there are.
    operands : Product
        x, W, bias and y, with their strides.
    """
    lanes = lanes_of(operands.W)
    v = 0
    while v < vectors:
        columns = tile_size(vectors - v)
        i = 0
        while i < examples:
            rows = tile_size(examples - i)
            tile = ProductTile(
                x=i * operands.x.example,
                W=v * operands.W_vector,
                bias=v * lanes,
                y=i * operands.y.example + v * lanes,
            )
            _multiply_tile(layout, rows, columns, tile, operands)
            i += rows
        v += columns


def sum_over_vectors(layout: Any, lanes: int, count: Any, sums: int, like: Any, add_vector: Any) -> list[Any]:
    """Generate a loop that sums over vectors of units; return the sums, each one number of each chain.

    A group has a partial sum for each lane that a chain alone has, and adds them as that adds its lanes: so
    both have the same bits.

    Parameters
    ----------
    layout : Layout
    lanes : int
        Lanes of a vector.
    count : Traced
        Vectors of a chain alone, or numbers of each chain of a group, to sum over.
    sums : int
        How many sums are computed in the loop.
    like : TracedArray
        An array with numbers of the type of the sums.
    add_vector : callable
        add_vector(totals, v) returns the list of totals with vector v added. The totals start at 0.
    """
    zeros = [like.zero()] * sums
    if not isinstance(layout, LaneGroup):
        totals = LoopVariables(zeros)
        with loop(count) as v:
            totals.set(add_vector(totals.get(), v))
        return [sum_lanes(total) for total in totals.get()]

    partial_sums = like.allocate(lanes * sums)  # (lane, sum)
    with loop(count.constant(lanes)) as lane:
        totals = LoopVariables(zeros)
        with loop(count, lane, lanes) as v:
            totals.set(add_vector(totals.get(), v))
        for i, total in enumerate(totals.get()):
            partial_sums.store((lane * sums + i) * lanes, total)
    return [
        sum_vectors([partial_sums.load((lane * sums + i) * lanes) for lane in range(lanes)])
        for i in range(sums)
    ]


def load_per_chain(layout: Any, array: Any, offset: Any) -> Any:
    """Return the number of each chain at array[offset]: a group's vector, or the one number of a chain."""
    return array.load(offset) if isinstance(layout, LaneGroup) else array.load_number(offset)


def store_per_chain(layout: Any, array: Any, offset: Any, value: Any) -> None:
    """Write one number of each chain to array[offset]: a group's vector, or the number of a chain alone."""
    if isinstance(layout, LaneGroup):
        array.store(offset, value)
    else:
        array.store_number(offset, value)


def _make_reduction(rows: int) -> Any:
    """Return a compiled function that multiplies `rows` examples by one row of weights, and sums."""

    @traced
    def reduction(layout, tile, operands):
        """Write y[i] = Σ_v x[i, v] W[v] + bias for a tile of examples i and one row of weights.

        `tile` is a `ProductTile`, and `operands` a `Product`.
        """
        x, W, y = operands.x, operands.W, operands.y
        lanes = W.lanes

        def add_vector(totals, v):
            """Return the total of each example with x[i, v] W[v] added."""
            weights = W.load(tile.W + v * operands.W_vector)
            offsets = [tile.x + v * lanes + x.example * i for i in range(rows)]
            inputs = [x.values.load(offset) for offset in offsets]
            return [fma(weights, number, total) for number, total in zip(inputs, totals, strict=True)]

        totals = sum_over_vectors(layout, lanes, operands.terms, rows, W, add_vector)
        for i, total in enumerate(totals):
            bias = select(operands.has_bias, load_per_chain(layout, operands.bias, tile.bias), 0.0)
            store_per_chain(layout, y.values, tile.y + y.example * i, total + bias)

    return reduction


_reduction4, _reduction1 = _make_reduction(SIDE), _make_reduction(1)


@compiled(apart=True)
def reduce_rows(layout, examples, outputs, operands):
    """Write y[i, k] = Σ_v x[i, v] W[k, v] + bias[k] for all examples i and outputs k of each chain.

    Vectors are multiplied by vectors and summed over their lanes, too.

    Parameters
    ----------
    layout : Layout
    examples, outputs : int
        How many examples i and outputs k there are.
    operands : Product
        x, W, bias and y, with their strides.
    """
    group_size = chains_in(layout, operands.W)
    for k in range(outputs):
        i = 0
        while i < examples:
            rows = tile_size(examples - i)
            tile = ProductTile(
                x=i * operands.x.example,
                W=k * operands.W_number,
                bias=k * group_size,
                y=i * operands.y.example + k * operands.y.number,
            )
            if rows == SIDE:
                _reduction4(layout, tile, operands)
            else:
                _reduction1(layout, tile, operands)
            i += rows


def _make_outer(rows: int, columns: int) -> Any:
    """Return a compiled function for the outer products of `rows` numbers with `columns` vectors.

    It keeps rows × columns sums in registers while it goes through the examples.
    """

    @traced
    def outer(layout, tile, operands):
        """Sum x[i, s] y[i, v] over the examples i for one tile of numbers s and vectors v.

        `tile` is an `OuterTile`, and `operands` an `Outer`.
        """
        x, y, sums = operands.x, operands.y, operands.sums
        lanes = sums.lanes
        sum_offsets = [
            tile.sums + operands.sum_number * s + operands.sum_vector * v
            for s in range(rows)
            for v in range(columns)
        ]
        totals = LoopVariables([select(operands.adding, sums.load(offset), 0.0) for offset in sum_offsets])

        with loop(operands.examples) as i:
            number_offsets = [tile.x + i * x.example + x.number * s for s in range(rows)]
            vector_offsets = [tile.y + i * y.example + lanes * v for v in range(columns)]
            numbers = [load_chains(layout, x.values, offset) for offset in number_offsets]
            vectors = [y.values.load(offset) for offset in vector_offsets]
            factors = [(number, vector) for number in numbers for vector in vectors]
            terms = zip(factors, totals.get(), strict=True)
            totals.set([fma(number, vector, total) for (number, vector), total in terms])

        for offset, total in zip(sum_offsets, totals.get(), strict=True):
            sums.store(offset, total)

    return outer


_sum_outer_tile = _of_tiles(_make_outer)


@compiled(apart=True)
def sum_outer_products(layout, numbers, vectors, operands):
    """Write sums[s, v] = Σ_i x[i, s] y[i, v], or add to them, for all numbers s of each chain and vectors v.

    The examples i are summed in order.

    Parameters
    ----------
    layout : Layout
    numbers, vectors : int
        How many numbers s and vectors v there are.
    operands : Outer
        x, y and the sums, with their strides, and whether to add to the sums.
    """
    lanes = lanes_of(operands.sums)
    s = 0
    while s < numbers:
        rows = tile_size(numbers - s)
        v = 0
        while v < vectors:
            columns = tile_size(vectors - v)
            tile = OuterTile(
                x=s * operands.x.number,
                y=v * lanes,
                sums=s * operands.sum_number + v * operands.sum_vector,
            )
            _sum_outer_tile(layout, rows, columns, tile, operands)
            v += columns
        s += rows


@compiled
def sum_vectors_over_examples(examples, vectors, deltas, sums, adding):
    """Write sums[v] = Σ_i d[i, v], or add to them, for all vectors v of `deltas`, the `Level` of d."""
    lanes = lanes_of(sums)
    for v in range(vectors):
        total = load(sums, v * lanes) if adding else zero(sums)
        for i in range(examples):
            total = total + load(deltas.values, i * deltas.example + v * lanes)
        store(sums, v * lanes, total)


@traced
def _first_total(layout, sums, offset, adding):
    """Return the number of each chain at sums[offset] if `adding`, and 0 otherwise, as a vector."""
    return select(adding, load_chains(layout, sums, offset), 0.0)


@traced
def _add_number(layout, total, values, offset):
    """Return `total` plus the number of each chain at values[offset]."""
    return total + load_chains(layout, values, offset)


@traced
def _store_total(layout, sums, offset, total):
    """Write one number of each chain to sums[offset]; for a chain alone, that of the first lane."""
    store_per_chain(layout, sums, offset, total if isinstance(layout, LaneGroup) else total.lane(0))


@compiled
def sum_numbers_over_examples(layout, examples, numbers, deltas, sums, adding):
    """Write sums[k] = Σ_i d[i, k], or add to them, for all numbers k of `deltas`, the `Level` of d."""
    group_size = chains_in(layout, sums)
    for k in range(numbers):
        total = _first_total(layout, sums, k * group_size, adding)
        for i in range(examples):
            total = _add_number(layout, total, deltas.values, i * deltas.example + k * deltas.number)
        _store_total(layout, sums, k * group_size, total)
