"""Mini-batches, compiled: the data of a step as `noise.batch` and `noise.epoch` choose them."""

from __future__ import annotations

import numpy as np

from heatbath.engine.compile import compiled
from heatbath.engine.random import fill_words
from heatbath.noise import BATCH, ROW, TILE

_u64 = np.uint64


@compiled
def _below(words, k, bound):
    """A whole number below `bound` from element k of a tile's words."""
    return np.int64((_u64(words[k % TILE // ROW, k % ROW]) * _u64(bound)) >> _u64(32))


@compiled
def draw_subset(chosen, stamps, stamp, seed, chain, step, words):
    """A subset without replacement; `stamps` has a place for each datum and never held this `stamp`."""
    size, count = chosen.shape[0], stamps.shape[0]
    for k in range(size):
        if k % TILE == 0:
            fill_words(words, seed, BATCH << 14, chain, step, k // TILE)
        last = count - size + k
        drawn = _below(words, k, last + 1)
        if stamps[drawn] == stamp:
            drawn = last
        stamps[drawn] = stamp
        chosen[k] = drawn


@compiled
def shuffle(order, seed, chain, epoch, words):
    """The order of all data in an epoch."""
    count = order.shape[0]
    for i in range(count):
        order[i] = i
    for last in range(count - 1, 0, -1):
        if last == count - 1 or last % TILE == TILE - 1:
            fill_words(words, seed, BATCH << 14 | 1, chain, epoch, last // TILE)
        drawn = _below(words, last, last + 1)
        order[last], order[drawn] = order[drawn], order[last]


@compiled
def gather(X, Y, chosen, inputs, targets):
    """Copy the chosen data into the buffers of the network."""
    width = X.shape[1]
    for k in range(chosen.shape[0]):
        for j in range(width):
            inputs[k * width + j] = X[chosen[k], j]
        for j in range(Y.shape[1]):
            targets[k, j] = Y[chosen[k], j]
