"""Data and mini-batches, compiled: the data of a step as `noise.batch` and `noise.epoch` choose them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from heatbath.engine.compile import compiled
from heatbath.engine.layouts import chains_in
from heatbath.engine.random import fill_words
from heatbath.engine.simd import choose, join, loop, pointer, store, traced
from heatbath.reference.random import BATCH, TILE

_u64 = np.uint64
FOUR = 4  # columns that are copied at a time
COMPARED = 128  # up to this size a subset is compared: it takes the square of the size


@compiled
def _below(word, bound):
    """A whole number below `bound` from a word."""
    return np.int64((_u64(word) * _u64(bound)) >> _u64(32))


@traced
def _below_each(layout, z, words, at, bound):
    """Whole numbers below `bound` from the words of a group."""
    wide = words.load(at, count=z.lanes).to(types.uint64) * bound
    return (wide >> 32).to(types.uint32)


@traced
def _nowhere(drawn):
    return drawn < 0


@traced
def _or_there(seen, chosen, at, drawn):
    return seen.either(chosen.load(at, count=drawn.count).same(drawn))


@traced
def _put_new(seen, chosen, at, drawn, last):
    chosen.store(at, choose(seen, last.to(types.uint32).splat(drawn.count), drawn))


@compiled(apart=True)
def draw_subset(layout, z, chosen, stamps, stamp, numbers, seed, step, words, size, count):
    """Subsets without replacement, chosen (datum, lane); `stamps` has a place for each datum and lane, and
    never held this `stamp`. Small subsets of a group are compared with all that they have instead."""
    lane = chains_in(layout, z)
    for k in range(size):
        if k % TILE == 0:
            fill_words(layout, z, words, numbers, seed, BATCH << 14, step, k // TILE, min(size - k, TILE))
        last = count - size + k
        if lane > 1 and size <= COMPARED:
            drawn = _below_each(layout, z, words, k % TILE * lane, _u64(last + 1))
            seen = _nowhere(drawn)
            for m in range(k):
                seen = _or_there(seen, chosen, m * lane, drawn)
            _put_new(seen, chosen, k * lane, drawn, _u64(last))
            continue
        for c in range(lane):
            number = _below(words[k % TILE * lane + c], last + 1)
            if stamps[number * lane + c] == stamp:
                number = last
            stamps[number * lane + c] = stamp
            chosen[k * lane + c] = number


@compiled(apart=True)
def shuffle(layout, z, order, numbers, seed, epoch, words, count):
    """The order of all data in an epoch, (datum, lane)."""
    lane = chains_in(layout, z)
    for i in range(count):
        for c in range(lane):
            order[i * lane + c] = i
    for last in range(count - 1, 0, -1):
        if last == count - 1 or last % TILE == TILE - 1:
            fill_words(layout, z, words, numbers, seed, BATCH << 14 | 1, epoch, last // TILE, TILE)
        for c in range(lane):
            drawn = _below(words[last % TILE * lane + c], last + 1)
            kept = order[last * lane + c]
            order[last * lane + c] = order[drawn * lane + c]
            order[drawn * lane + c] = kept


class DataTable(NamedTuple):
    """Data as `tabulate` makes them: `rows` is (set, datum, column), the inputs, the targets and the weight.

    There are `width` inputs, and then `columns`. Among those `weight` is the last, or -1 if there is none. In
    compiled code `rows` is a pointer.
    """

    rows: Any
    data: int
    stride: int
    width: int
    columns: int
    weight: int


def beside(Y: NDArray[Any], weights: NDArray[Any] | None) -> tuple[NDArray[Any], int]:
    """Targets (set, datum, column) with the weights (set, datum) as the last column, and where that is; -1
    where there are none."""
    if weights is None:
        return Y, -1
    return np.concatenate([Y, weights[..., None]], axis=2), Y.shape[2]


def tabulate(X: NDArray[Any], Y: NDArray[Any], kind: Any, weights: NDArray[Any] | None = None) -> DataTable:
    """Inputs and targets (set, datum, column) side by side, up to a multiple of FOUR columns; and weights
    (set, datum), of mean 1, by which the losses of the data are multiplied."""
    Y, weight = beside(Y, weights)
    sets, count, width = X.shape
    columns = Y.shape[2]
    stride = -(-(width + columns) // FOUR) * FOUR
    rows = np.zeros((sets, count, stride), kind)
    with np.errstate(over="ignore"):
        rows[..., :width], rows[..., width : width + columns] = X, Y
    for name, values in (("X", rows[..., :width]), ("Y", rows[..., width:])):
        if not np.isfinite(values).all():
            raise ValueError(
                f"{name} has numbers that {rows.dtype} has no room for: scale them, or use float64"
            )
    return DataTable(rows, count, stride, width, columns, weight)


@compiled
def table_by_pointer(data):
    """The same with a pointer; whoever takes it keeps the array."""
    return DataTable(pointer(data.rows), data.data, data.stride, data.width, data.columns, data.weight)


@traced
def _first_rows(sets, count, like):
    """The row at which the data set of each chain of a group begins."""
    return sets.load(0, count=like.lanes) * count


@traced
def _four_columns(rows, first, chosen, at, stride, column):
    """Four numbers of the chosen datum of every chain, from a column on: a row for each, turned."""
    count = rows.lanes
    places = (first + chosen.load(at, count=count).to(types.uint64).bits(types.int64)) * stride + column
    four = [rows.load(places.lane(c), count=FOUR) for c in range(count)]
    a, b, c, d = (join(four[k::FOUR]) for k in range(FOUR))

    def woven(a, b, places):
        begins = range(0, count, FOUR)
        return a.part([begin + i + count * other for begin in begins for i, other in places], b)

    low, high = ((0, 0), (0, 1), (1, 0), (1, 1)), ((2, 0), (2, 1), (3, 0), (3, 1))
    left, right = ((0, 0), (1, 0), (0, 1), (1, 1)), ((2, 0), (3, 0), (2, 1), (3, 1))
    pairs = [(woven(a, b, which), woven(c, d, which)) for which in (low, high)]
    return tuple(woven(*pair, which) for pair in pairs for which in (left, right))


@traced
def _copy(source, begin, target, at, count):
    """Copy numbers, vectors of them and then the rest."""
    lanes = source.lanes
    whole = count >> (lanes.bit_length() - 1)
    with loop(whole) as v:
        target.store(at + v * lanes, source.load(begin + v * lanes))
    with loop(count, whole * lanes) as j:
        target.put(at + j, source.number(begin + j))


@compiled(apart=True)
def gather(layout, table, columns, sets, chosen, begin, size, inputs, stride, targets, capacity):
    """Copy the chosen data into the buffers of the network: inputs (datum, column), targets (column, datum).

    Of the targets (the weight is the last) the first `columns` are copied, which may be none.
    """
    lane, rows, width = chains_in(layout, inputs), table.rows, table.width
    if lane == 1:
        for i in range(size):
            at = (sets[0] * table.data + np.int64(chosen[begin + i])) * table.stride
            _copy(rows, at, inputs, i * stride, width)
            for j in range(columns):
                targets[j * capacity + i] = rows[at + width + j]
        return
    first = _first_rows(sets, table.data, inputs)
    for i in range(size):
        for j in range(0, width + columns, FOUR):
            four = _four_columns(rows, first, chosen, (begin + i) * lane, table.stride, j)
            for k in range(FOUR):
                values = four[k]
                if j + k < width:
                    store(inputs, i * stride + (j + k) * lane, values)
                elif j + k < width + columns:
                    store(targets, ((j + k - width) * capacity + i) * lane, values)
