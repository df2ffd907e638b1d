"""Data and mini-batches, compiled: the examples of a step as `noise.batch` and `noise.epoch` choose them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numpy.typing import DTypeLike, NDArray

from heatbath.engine.compile import compiled
from heatbath.engine.layouts import chains_in
from heatbath.engine.random import fill_words
from heatbath.engine.simd import Pointer, concatenate, loop, select, store, traced
from heatbath.reference.random import BATCH, TILE

_u64 = np.uint64
FOUR = 4  # columns that are copied at a time
COMPARED = 128
"""Largest mini-batch that is drawn by comparing its examples: this takes the square of the size."""

_SUBSET, _SHUFFLE = BATCH << 14, BATCH << 14 | 1  # stream and slot of the words


@compiled
def _index_below(word, bound):
    """Return an integer from 0 to bound - 1 from a random word."""
    return np.int64((_u64(word) * _u64(bound)) >> _u64(32))


@traced
def _indices_below(like, words, index, bound):
    """Return integers from 0 to bound - 1 from the words of a group, which begin at words[index]."""
    wide = words.load(index, lanes=like.lanes).convert(types.uint64) * bound
    return (wide >> 32).convert(types.uint32)


@traced
def _empty_mask(drawn):
    """Return a mask that is false in every lane."""
    return drawn < 0


@traced
def _or_equal(is_taken, chosen, index, drawn):
    """Return the mask `is_taken`, also true where chosen[index] of a chain is the number drawn."""
    return is_taken | chosen.load(index, lanes=drawn.lanes).equals(drawn)


@traced
def _store_choice(is_taken, chosen, index, drawn, last):
    """Write the number drawn by each chain to chosen[index], or `last` where that is taken."""
    chosen.store(index, select(is_taken, last.convert(types.uint32).splat(drawn.lanes), drawn))


class SubsetMemory(NamedTuple):
    """Pointers to the memory for subsets: `chosen` (example of the batch, lane), `stamps` (example, lane).

    `stamps` says in which draw a chain has chosen an example last.
    """

    chosen: Pointer
    stamps: Pointer


@compiled(apart=True)
def draw_subset(layout, like, memory, draw, scratch, seed, step, size, count):
    """Draw `size` of `count` examples without replacement for each chain (Floyd), to `memory.chosen`.

    `draw` must be another number each time, since `memory.stamps` is marked with it. A small subset of a
    group is compared with all that it has instead. `scratch` is the `kernels.Scratch` of the chains, and
    `like` points to numbers in their precision.
    """
    group_size, words = chains_in(layout, like), scratch.words
    for k in range(size):
        if k % TILE == 0:
            count_left = min(size - k, TILE)
            fill_words(
                layout, like, words, scratch.chain_numbers, seed, _SUBSET, step, k // TILE, count_left
            )  # fmt: skip
        last = count - size + k
        if group_size > 1 and size <= COMPARED:
            drawn = _indices_below(like, words, k % TILE * group_size, _u64(last + 1))
            is_taken = _empty_mask(drawn)
            for m in range(k):
                is_taken = _or_equal(is_taken, memory.chosen, m * group_size, drawn)
            _store_choice(is_taken, memory.chosen, k * group_size, drawn, _u64(last))
            continue
        for lane in range(group_size):
            example = _index_below(words[k % TILE * group_size + lane], last + 1)
            if memory.stamps[example * group_size + lane] == draw:
                example = last
            memory.stamps[example * group_size + lane] = draw
            memory.chosen[k * group_size + lane] = example


@compiled(apart=True)
def shuffle(layout, like, order, chain_numbers, seed, epoch, words, count):
    """Write the order of all examples in an epoch, (example, lane), to `order` (Fisher and Yates).

    `words` has room for the words of a tile, (element, lane); `chain_numbers` is as in `fill_normals`, and
    `like` points to numbers in the precision of the chains.
    """
    group_size = chains_in(layout, like)
    for i in range(count):
        for lane in range(group_size):
            order[i * group_size + lane] = i
    for last in range(count - 1, 0, -1):
        if last == count - 1 or last % TILE == TILE - 1:
            fill_words(layout, like, words, chain_numbers, seed, _SHUFFLE, epoch, last // TILE, TILE)
        for lane in range(group_size):
            drawn = _index_below(words[last % TILE * group_size + lane], last + 1)
            example = order[last * group_size + lane]
            order[last * group_size + lane] = order[drawn * group_size + lane]
            order[drawn * group_size + lane] = example


class DataTable(NamedTuple):
    """Data as `tabulate` makes them: `rows` is (set, example, column), the inputs, the targets and the
    weight.

    There are `data` examples in a set, with `width` inputs and then `columns` targets, of which `weight` is
    the weight of the example, or -1 if there is none; `stride` leads from one example to the next. In
    compiled code `rows` is a pointer.
    """

    rows: Any
    data: int
    stride: int
    width: int
    columns: int
    weight: int


def append_weights(Y: NDArray[Any], weights: NDArray[Any] | None) -> tuple[NDArray[Any], int]:
    """Return targets (set, example, column) with the weights (set, example) as last column, and its index.

    Without weights the targets are returned as they are, with the index -1.
    """
    if weights is None:
        return Y, -1
    return np.concatenate([Y, weights[..., None]], axis=2), Y.shape[2]


def tabulate(
    X: NDArray[Any], Y: NDArray[Any], dtype: DTypeLike, weights: NDArray[Any] | None = None
) -> DataTable:
    """Return a table of inputs and targets (set, example, column) side by side, for compiled code.

    Parameters
    ----------
    X, Y : array
        Inputs and targets, (set, example, column).
    dtype : float32 or float64
        The precision in which everything is computed.
    weights : array, optional
        Factors (set, example) of mean 1 by which the losses of the examples are multiplied.

    Raises
    ------
    ValueError
        If a number isn't finite in this precision.
    """
    Y, weight = append_weights(Y, weights)
    sets, count, width = X.shape
    columns = Y.shape[2]
    stride = -(-(width + columns) // FOUR) * FOUR
    rows = np.zeros((sets, count, stride), dtype)
    with np.errstate(over="ignore"):
        rows[..., :width], rows[..., width : width + columns] = X, Y
    for name, values in (("X", rows[..., :width]), ("Y", rows[..., width:])):
        if not np.isfinite(values).all():
            raise ValueError(
                f"{name} has numbers that {rows.dtype} has no room for: scale them, or use float64"
            )
    return DataTable(rows, count, stride, width, columns, weight)


@traced
def _first_rows(sets, count, like):
    """Return the row at which the data set of each chain of a group begins."""
    return sets.load(0, lanes=like.lanes) * count


@traced
def _load_four_columns(rows, first, chosen, index, stride, column):
    """Return four columns of the chosen example of every chain, a vector over the chains for each.

    The numbers of the examples are a vector at chosen[index], and count from the row `first` of each chain.
    """
    lanes = rows.lanes
    examples = chosen.load(index, lanes=lanes).convert(types.uint64).bitcast(types.int64)
    offsets = (first + examples) * stride + column
    fours = [rows.load(offsets.lane(lane), lanes=FOUR) for lane in range(lanes)]
    a, b, c, d = (concatenate(fours[k::FOUR]) for k in range(FOUR))

    def interleave(a, b, pattern):
        """Shuffle two vectors: in each four lanes take lane i of a (0) or b (1) as the pattern says."""
        starts = range(0, lanes, FOUR)
        return a.shuffle([start + i + lanes * source for start in starts for i, source in pattern], b)

    low, high = ((0, 0), (0, 1), (1, 0), (1, 1)), ((2, 0), (2, 1), (3, 0), (3, 1))
    left, right = ((0, 0), (1, 0), (0, 1), (1, 1)), ((2, 0), (3, 0), (2, 1), (3, 1))
    pairs = [(interleave(a, b, pattern), interleave(c, d, pattern)) for pattern in (low, high)]
    return tuple(interleave(*pair, pattern) for pair in pairs for pattern in (left, right))


@traced
def _copy(source, source_start, target, target_start, count):
    """Copy numbers, full vectors of them and then the remainder."""
    lanes = source.lanes
    full = count >> (lanes.bit_length() - 1)
    with loop(full) as v:
        target.store(target_start + v * lanes, source.load(source_start + v * lanes))
    with loop(count, full * lanes) as j:
        target.store_number(target_start + j, source.load_number(source_start + j))


@compiled(apart=True)
def gather(layout, table, columns, sets, chosen, size, room, stride, capacity):
    """Copy the chosen examples to `room.inputs` (example, input) and `room.targets` (column, example).

    Parameters
    ----------
    table : `DataTable` with a pointer
    columns : how many of the targets to copy, which may be none; the weight is the last
    sets : pointer to (lane), the data set of each chain
    chosen : pointer to (example, lane), the numbers of the examples
    size : how many examples
    stride : from one example to the next in `room.inputs`
    capacity : examples that `room.targets` has room for
    """
    inputs, targets = room.inputs, room.targets
    group_size, rows, width = chains_in(layout, inputs), table.rows, table.width
    if group_size == 1:
        for i in range(size):
            row = (sets[0] * table.data + np.int64(chosen[i])) * table.stride
            _copy(rows, row, inputs, i * stride, width)
            for j in range(columns):
                targets[j * capacity + i] = rows[row + width + j]
        return
    first = _first_rows(sets, table.data, inputs)
    for i in range(size):
        for column in range(0, width + columns, FOUR):
            four = _load_four_columns(rows, first, chosen, i * group_size, table.stride, column)
            for k in range(FOUR):
                values, j = four[k], column + k
                if j < width:
                    store(inputs, i * stride + j * group_size, values)
                elif j < width + columns:
                    store(targets, ((j - width) * capacity + i) * group_size, values)
