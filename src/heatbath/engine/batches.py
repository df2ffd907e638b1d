"""Mini-batches, compiled: the data of a step as `noise.batch` and `noise.epoch` choose them."""

from __future__ import annotations

import numpy as np
from numba import types

from heatbath.engine.compile import compiled
from heatbath.engine.lanes import choose, traced
from heatbath.engine.layouts import chains_in
from heatbath.engine.random import fill_words
from heatbath.noise import BATCH, TILE

_u64 = np.uint64
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


@compiled(apart=True)
def gather(
    layout, X, Y, count, width, own, columns, sets, chosen, begin, size, inputs, stride, targets, capacity
):
    """Copy the chosen data into the buffers of the network: inputs (datum, column), targets (column, datum).

    X and Y are (set, datum, column), with `count` data and `width` or `own` columns. Of the targets the first
    `columns` are copied, which may be none.
    """
    lane = chains_in(layout, inputs)
    if lane == 1:
        base = sets[0] * count
        for i in range(size):
            row = base + np.int64(chosen[begin + i])
            for j in range(width):
                inputs[i * stride + j] = X[row * width + j]
            for j in range(columns):
                targets[j * capacity + i] = Y[row * own + j]
        return
    for i in range(size):
        at, to = (begin + i) * lane, i * stride
        for j in range(width):
            for c in range(lane):
                inputs[to + j * lane + c] = X[(sets[c] * count + np.int64(chosen[at + c])) * width + j]
        for j in range(columns):
            to = (j * capacity + i) * lane
            for c in range(lane):
                targets[to + c] = Y[(sets[c] * count + np.int64(chosen[at + c])) * own + j]
