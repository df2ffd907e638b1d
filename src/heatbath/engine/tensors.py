"""A step of an optimiser on tensors anywhere in memory, compiled: the engine's operations, in place.

The tensors that are stepped lie one after the other in the numbering of the noise; each is given by its
addresses. They are cut into pieces, which threads share; sums over a unit are taken piece by piece in a fixed
order, so results do not depend on the number of threads.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from heatbath.engine.compile import compiled
from heatbath.engine.openmp import for_each
from heatbath.engine.tiles import fluctuate, move_buffers, run_segment
from heatbath.engine.views import at_address
from heatbath.noise import TILE
from heatbath.operations import THERMOSTAT

PIECE = 64 * TILE
BLOCKS = 16  # of pieces, for each thread: a core that is slow does not hold up the rest


# Columns of the array of tensors: addresses of θ, p, the gradient and the second moment; the position of the
# first element in the numbering of the noise; the unit; the row of coefficients; how often it was stepped
THETA, MOMENTUM, GRADIENT, SECOND, FIRST, UNIT, ROW, STEP = range(8)
# and of the array of units: p·p where it was read (-1: nowhere), ξ, the square root of the rung's temperature
KINETIC, XI, ROOT_TAU = range(3)


class Work(NamedTuple):
    """Pieces (tensor, first element, stop), and what to do with those of each unit in each pass."""

    pieces: NDArray[np.int64]
    segments: NDArray[np.int64]  # (passes, units, 3): first operation, stop, and the end of those on ξ
    operations: NDArray[np.int64]
    table: NDArray[np.float64]  # (rows, operations, WIDTH)
    size: NDArray[np.int64]  # of each unit, as far as it is stepped


@compiled(cache=True)
def fused_step(like, team, pieces, passes, finish, tensors, work, sums, units, seed):
    """The pieces from one to before another of some passes; then, to `finish` each, what follows the pass.

    `team` is a region of `parallel_region`, or 0, and its threads. `sums` has room for p·p of every piece.
    """
    (region, threads), (begin, end), (first, last) = team, pieces, passes
    words = np.empty((4, TILE // 4), np.uint32)
    blocks = min(end - begin, BLOCKS * threads)
    for k in range(first, last):
        block = blocks, begin, end, k, like, tensors, work, sums, units, seed
        for_each(region, threads, blocks, _step_block, block)
        if finish:
            _between_passes(k, tensors, work, sums, units, seed, words)


@compiled
def _step_block(block, blocks, begin, end, k, like, tensors, work, sums, units, seed):
    """Pass k over one of the blocks that the pieces begin to end - 1 are shared out in."""
    tile = np.empty(TILE, like.dtype)
    words = np.empty((4, TILE // 4), np.uint32)
    moves, uses = move_buffers(work.operations.shape[0])
    room = tile, words, moves, uses
    span = np.empty((1, 2), np.int64)
    count = end - begin
    for i in range(begin + count * block // blocks, begin + count * (block + 1) // blocks):
        t, low, high = work.pieces[i]
        tensor = tensors[t]
        u, base = tensor[UNIT], tensor[FIRST] * like.itemsize
        start, stop = work.segments[k, u, 0], work.segments[k, u, 1]
        span[0, 0], span[0, 1] = low, high
        sums[i] = -1.0
        if stop > start:
            sums[i] = run_segment(
                at_address(like, tensor[THETA] - base, high),
                at_address(like, tensor[MOMENTUM] - base, high),
                at_address(like, tensor[GRADIENT] - base, high),
                at_address(like, tensor[SECOND] - base, high),
                span,
                work.operations[start:stop],
                work.table[tensor[ROW], start:stop],
                units[u, XI],
                units[u, ROOT_TAU],
                seed,
                0,
                tensor[STEP],
                room,
                True,
            )


@compiled
def _between_passes(k, tensors, work, sums, units, seed, words):
    """Sum p·p of the units, always in the same order, and move ξ as the pass says."""
    total = np.full(units.shape[0], -1.0)
    row = np.zeros(units.shape[0], np.int64)  # ξ has that of the tensor that was stepped most often
    first = np.full(units.shape[0], -1, np.int64)  # and the noise of the first tensor
    for i in range(work.pieces.shape[0]):
        t = work.pieces[i, 0]
        u = tensors[t, UNIT]
        row[u] = max(row[u], tensors[t, ROW])
        first[u] = t if first[u] < 0 else first[u]
        if not sums[i] < 0:  # NaN is a sum, too
            total[u] = sums[i] if total[u] < 0 else total[u] + sums[i]
    for u in range(units.shape[0]):
        if not total[u] < 0:
            units[u, KINETIC] = total[u]
        for o in range(work.segments[k, u, 1], work.segments[k, u, 2]):
            c = work.table[row[u], o]
            if work.operations[o, 0] == THERMOSTAT:
                target = c[1] if c[1] >= 0 else units[u, ROOT_TAU] ** 2
                share = 1.0 / work.size[u] if c[2] > 0 else 1.0
                units[u, XI] += c[0] * share * (units[u, KINETIC] - work.size[u] * target)
            else:
                step = tensors[first[u], STEP] + work.operations[o, 2]
                where = tensors[first[u], FIRST]
                units[u, XI] = fluctuate(
                    units[u, XI], c, units[u, ROOT_TAU], seed, work.operations[o, 1], 0, step, where, words
                )
