"""Mini-batches, compiled: the data of a step as `noise.batch` and `noise.epoch` choose them."""

from __future__ import annotations

import numpy as np

from heatbath.engine.compile import compiled
from heatbath.engine.random import fill_words
from heatbath.noise import BATCH, TILE

_u64 = np.uint64


@compiled
def _below(word, bound):
    """A whole number below `bound` from a word."""
    return np.int64((_u64(word) * _u64(bound)) >> _u64(32))


@compiled(apart=True)
def draw_subset(layout, z, chosen, stamps, stamp, numbers, seed, step, words, size, count):
    """Subsets without replacement, chosen (datum, lane); `stamps` has a place for each datum and lane, and
    never held this `stamp`."""
    lane = layout.lanes
    for k in range(size):
        if k % TILE == 0:
            fill_words(layout, z, words, numbers, seed, BATCH << 14, step, k // TILE, min(size - k, TILE))
        last = count - size + k
        for c in range(lane):
            drawn = _below(words[k % TILE * lane + c], last + 1)
            if stamps[drawn * lane + c] == stamp:
                drawn = last
            stamps[drawn * lane + c] = stamp
            chosen[k * lane + c] = drawn


@compiled(apart=True)
def shuffle(layout, z, order, numbers, seed, epoch, words, count):
    """The order of all data in an epoch, (datum, lane)."""
    lane = layout.lanes
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
def gather(layout, X, Y, count, width, own, columns, sets, chosen, begin, size, inputs, stride, targets, capacity):
    """Copy the chosen data into the buffers of the network: inputs (datum, column), targets (column, datum).

    X and Y are (set, datum, column), with `count` data and `width` or `own` columns. Of the targets the first
    `columns` are copied, which may be none.
    """
    lane = layout.lanes
    for c in range(lane):
        base = sets[c] * count
        for i in range(size):
            row = base + chosen[(begin + i) * lane + c]
            x, to = row * width, i * stride + c
            for j in range(width):
                inputs[to + j * lane] = X[x + j]
            for j in range(columns):
                targets[(j * capacity + i) * lane + c] = Y[row * own + j]
