"""Data and mini-batches, compiled: the examples of a step as `noise.batch` and `noise.epoch` choose them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numpy.typing import DTypeLike, NDArray

from heatbath.engine.compile import compiled
from heatbath.engine.layouts import chains_in
from heatbath.engine.random import fill_words
from heatbath.engine.simd import Pointer, Traced, concatenate, loop, offset_pointer, select, store, traced
from heatbath.reference.random import BATCH, SLOT_BITS, TILE

_u64 = np.uint64
FOUR = 4  # columns that are copied at a time
COMPARED = 128
"""Largest mini-batch that is drawn by comparing its examples: this takes the square of the size."""

_SUBSET, _SHUFFLE = BATCH << SLOT_BITS, BATCH << SLOT_BITS | 1  # stream and slot of the words


@compiled
def _index_below(word, bound):
    """Return an integer from 0 to bound - 1 from a random word."""
    return np.int64((_u64(word) * _u64(bound)) >> _u64(32))


@traced
def _indices_below(like, words, bound):
    """Return integers from 0 to bound - 1 from the words of a group."""
    wide = words.load(0, lanes=like.lanes).convert(types.uint64) * bound
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
    """Draw `size` of `count` examples without replacement for each chain, by Floyd's method.

    The k-th choice is a random one of the first count - size + k + 1 examples, or the last of these if that
    was chosen before. Whether it was is found by comparison for a small subset of a group, and otherwise by
    the stamps of the examples.

    Parameters
    ----------
    layout : `Layout`, one chain alone or chains side by side in the lanes of a vector
    like : pointer to numbers in the precision of the chains
    memory : `SubsetMemory`, whose `chosen` is written
    draw : number to stamp the chosen examples with, another one for each subset
    scratch : `kernels.Scratch`, memory for random words
    seed, step : the address of the random words
    size, count : examples to choose, and examples in all
    """
    group_size, words = chains_in(layout, like), scratch.words
    for k in range(size):
        if k % TILE == 0:
            count_left = min(size - k, TILE)
            fill_words(
                layout, like, words, scratch.chain_numbers, seed, _SUBSET, step, k // TILE, count_left
            )  # fmt: skip
        last = count - size + k
        choice = k * group_size
        words_of_choice = offset_pointer(words, k % TILE * group_size)
        if group_size > 1 and size <= COMPARED:
            _choose_by_comparison(like, words_of_choice, group_size, choice, last, memory.chosen)
        else:
            _choose_by_stamps(words_of_choice, group_size, choice, last, draw, memory)


@compiled
def _choose_by_comparison(like, words, group_size, choice, last, chosen):
    """Choose a random example up to `last` for each chain of a group, or `last` if that was chosen before.

    Parameters
    ----------
    like : pointer to numbers in the precision of the chains
    words : pointer to a random word for each chain
    group_size : number of chains
    choice : index in `chosen` where this choice goes, after the earlier ones
    last : the last of the examples to choose from
    chosen : pointer to (example of the batch, lane), which is written
    """
    drawn = _indices_below(like, words, _u64(last + 1))
    is_taken = _empty_mask(drawn)
    for earlier in range(0, choice, group_size):
        is_taken = _or_equal(is_taken, chosen, earlier, drawn)
    _store_choice(is_taken, chosen, choice, drawn, _u64(last))


@compiled
def _choose_by_stamps(words, group_size, choice, last, draw, memory):
    """Choose a random example up to `last` for each chain, or `last` if that has the stamp of this draw.

    `memory` is the `SubsetMemory`, whose stamps and choice are written; `draw` is the stamp. The others are
    those of `_choose_by_comparison`.
    """
    for lane in range(group_size):
        example = _index_below(words[lane], last + 1)
        if memory.stamps[example * group_size + lane] == draw:
            example = last
        memory.stamps[example * group_size + lane] = draw
        memory.chosen[choice + lane] = example


@compiled(apart=True)
def shuffle(layout, like, order, chain_numbers, seed, epoch, words, count):
    """Write a random order of all examples for each chain to `order`, by the method of Fisher and Yates.

    Parameters
    ----------
    layout : `Layout`, one chain alone or chains side by side in the lanes of a vector
    like : pointer to numbers in the precision of the chains
    order : pointer to (example, lane), which is written
    chain_numbers : pointer to the numbers of the chains, in the order that `fill_normals` takes
    seed, epoch : the address of the random words
    words : pointer to (element, lane), memory for the random words of a tile
    count : number of examples
    """
    group_size = chains_in(layout, like)
    for i in range(count):
        for lane in range(group_size):
            order[i * group_size + lane] = i

    for last in range(count - 1, 0, -1):
        is_first_of_tile = last == count - 1 or last % TILE == TILE - 1
        if is_first_of_tile:
            fill_words(layout, like, words, chain_numbers, seed, _SHUFFLE, epoch, last // TILE, TILE)
        for lane in range(group_size):
            word = words[last % TILE * group_size + lane]
            drawn = _index_below(word, last + 1) * group_size + lane
            end = last * group_size + lane
            example = order[end]
            order[end] = order[drawn]
            order[drawn] = example


class DataTable(NamedTuple):
    """Data as `tabulate` makes them: inputs, targets and weights side by side in `rows`.

    `rows` is (set, example, column), in compiled code a pointer. A set has `data` examples with `width`
    inputs and then `columns` targets, of which column `weight` has the weights of the examples (-1: none).
    `stride` leads from one example to the next.
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

    Returns
    -------
    DataTable
        Its rows are padded to a multiple of FOUR columns, which are copied together.

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
        rows[..., :width] = X
        rows[..., width : width + columns] = Y
    for name, numbers in (("X", rows[..., :width]), ("Y", rows[..., width:])):
        if not np.isfinite(numbers).all():
            raise ValueError(
                f"{name} has values that are NaN, infinite or too large for {rows.dtype}: remove or rescale "
                "them, or use float64"
            )
    return DataTable(rows, count, stride, width, columns, weight)


@traced
def _first_rows(sets, count, like):
    """Return the row at which the data set of each chain of a group begins."""
    return sets.load(0, lanes=like.lanes) * count


@traced
def _load_four_columns(rows, first, chosen, index, stride, column):
    """Return four columns of the chosen example of every chain, a vector over the chains for each.

    Parameters
    ----------
    rows : array or pointer to (set, example, column)
    first : vector, the first row of the data set of each chain
    chosen : pointer to the numbers of the chosen examples in the data set, which are a vector at `index`
    stride : columns from one example to the next
    column : the first of the four columns
    """
    lanes = rows.lanes
    examples = chosen.load(index, lanes=lanes).convert(types.uint64).bitcast(types.int64)
    offsets = (first + examples) * stride + column
    fours = [rows.load(offsets.lane(lane), lanes=FOUR) for lane in range(lanes)]

    # Transpose 4 x 4 blocks, of chains and columns: vector k has the columns of the chains k, k + 4, ...
    a, b, c, d = (concatenate(fours[k::FOUR]) for k in range(FOUR))
    low, high = ((0, 0), (0, 1), (1, 0), (1, 1)), ((2, 0), (2, 1), (3, 0), (3, 1))
    left, right = ((0, 0), (1, 0), (0, 1), (1, 1)), ((2, 0), (3, 0), (2, 1), (3, 1))
    pairs = [(_interleave(a, b, pattern), _interleave(c, d, pattern)) for pattern in (low, high)]
    return tuple(_interleave(*pair, pattern) for pair in pairs for pattern in (left, right))


def _interleave(a: Traced, b: Traced, pattern: Sequence[tuple[int, int]]) -> Traced:
    """Return a vector with four lanes of a and b for each four of theirs.

    Lane j of the four is lane i of those in a (source 0) or in b (source 1), where (i, source) = pattern[j].
    """
    starts = range(0, a.lanes, FOUR)
    return a.shuffle([start + i + a.lanes * source for start in starts for i, source in pattern], b)


@traced
def _copy(source, source_start, target, target_start, count):
    """Copy `count` numbers from source[source_start] on to target[target_start], most of them as vectors."""
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
    layout : `Layout`, one chain alone or chains side by side in the lanes of a vector
    table : `DataTable` with a pointer
    columns : how many of the targets to copy, which may be none; the weight is the last
    sets : pointer to (lane), the data set of each chain
    chosen : pointer to (example, lane), the numbers of the examples
    size : how many examples
    stride : from one example to the next in `room.inputs`
    capacity : examples that `room.targets` has room for
    """
    if chains_in(layout, room.inputs) == 1:
        _gather_alone(table, columns, sets[0], chosen, size, room, stride, capacity)
    else:
        _gather_in_group(layout, table, columns, sets, chosen, size, room, stride, capacity)


@compiled
def _gather_alone(table, columns, data_set, chosen, size, room, stride, capacity):
    """Copy the chosen examples of a chain alone to `room`, as `gather` does; `data_set` is the chain's."""
    first_row = data_set * table.data
    for i in range(size):
        row = (first_row + np.int64(chosen[i])) * table.stride
        _copy(table.rows, row, room.inputs, i * stride, table.width)
        for column in range(columns):
            room.targets[column * capacity + i] = table.rows[row + table.width + column]


@compiled
def _gather_in_group(layout, table, columns, sets, chosen, size, room, stride, capacity):
    """Copy the chosen examples of every chain of a group to `room`; the arguments are those of `gather`."""
    group_size = chains_in(layout, room.inputs)
    first_rows = _first_rows(sets, table.data, room.inputs)
    for i in range(size):
        for start in range(0, table.width + columns, FOUR):
            four = _load_four_columns(table.rows, first_rows, chosen, i * group_size, table.stride, start)
            for k in range(FOUR):
                column = start + k  # of the table: an input, a target or padding
                target = column - table.width
                if target < 0:
                    store(room.inputs, i * stride + column * group_size, four[k])
                elif target < columns:
                    store(room.targets, (target * capacity + i) * group_size, four[k])
