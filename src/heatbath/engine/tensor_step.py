"""A step of an optimiser on tensors anywhere in memory, compiled: the engine's operations, in place.

The tensors that are stepped lie one after the other in the numbering of the noise; each is given by its
addresses. They are cut into pieces, which threads share; sums over a unit are taken piece by piece in a fixed
order, so results do not depend on the number of threads.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heatbath.engine.compile import compiled
from heatbath.engine.kernels import fluctuate, kinds_for, make_moves, make_scratch, prepare, run_segment
from heatbath.engine.layouts import Alone, first_address, place
from heatbath.engine.openmp import for_each
from heatbath.engine.simd import BYTES, flush_denormals, keep, lanes_of, point, pointer, restore_denormals
from heatbath.methods.operations import THERMOSTAT, WIDTH
from heatbath.reference.random import TILE

PIECE = 64 * TILE
BLOCKS = 16  # of pieces, for each thread: a core that is slow does not hold up the rest


# Columns of the array of tensors: addresses of θ, p, the gradient and the second moment; the position of the
# first element in the numbering of the noise; the unit; the row of coefficients; how often it was stepped;
# the number of the chain
THETA, MOMENTUM, GRADIENT, SECOND, FIRST, UNIT, ROW, STEP, CHAIN = range(9)
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
    blocks = min(end - begin, BLOCKS * threads)
    kinds = kinds_for(pointer(like))
    _, size = _make_buffers(kinds, work.operations.shape[0], 0)
    memory = np.zeros(max(blocks, 1) * size + BYTES, np.uint8)
    address = first_address(memory)
    for k in range(first, last):
        block = blocks, begin, end, k, address, size, like, tensors, work, sums, units, seed
        for_each(region, threads, blocks, _step_block, block)
        if finish:
            buffers, _ = _make_buffers(kinds, work.operations.shape[0], address)
            _between_passes(k, tensors, work, sums, units, seed, buffers.scratch)
    keep(memory)


class TensorBuffers(NamedTuple):
    """Pointers to what a block is worked on in."""

    scratch: Any
    moves: Any
    columns: Any
    xi: Any
    root_tau: Any
    unit: Any
    span: Any


@compiled
def _make_buffers(kinds, operations, address):
    """Buffers from an address on, and the address after them."""
    L = lanes_of(kinds.number)
    scratch, address = make_scratch(Alone(1), kinds, address)
    moves, address = make_moves(1, max(operations, 1), kinds, address)
    columns, address = place(address, max(operations, 1) * WIDTH * L, kinds.real)
    xi, address = place(address, 8, kinds.real)
    root_tau, address = place(address, 8, kinds.real)
    unit, address = place(address, 8, kinds.real)
    span, address = place(address, 2, kinds.whole)
    return TensorBuffers(scratch, moves, columns, xi, root_tau, unit, span), address


@compiled
def _step_block(block, blocks, begin, end, k, address, room, like, tensors, work, sums, units, seed):
    """Pass k over one of the blocks that the pieces begin to end - 1 are shared out in."""
    number = pointer(like)
    L = lanes_of(number)
    buffers, _ = _make_buffers(kinds_for(number), work.operations.shape[0], address + block * room)
    scratch, moves, span = buffers.scratch, buffers.moves, buffers.span
    operations, segments = pointer(work.operations), work.segments
    buffers.unit[0] = 1.0
    mode = flush_denormals()
    count, known = end - begin, -1  # the tensor whose moves there are
    for i in range(begin + count * block // blocks, begin + count * (block + 1) // blocks):
        t, low, high = work.pieces[i, 0], work.pieces[i, 1], work.pieces[i, 2]
        u, base = tensors[t, UNIT], tensors[t, FIRST] * like.itemsize
        start, stop = segments[k, u, 0], segments[k, u, 1]
        span[0], span[1] = low, high
        sums[i] = -1.0
        if stop > start:
            if t != known:
                known = t
                scratch.numbers[0] = tensors[t, CHAIN]
                for o in range(start, stop):
                    for c in range(WIDTH):
                        buffers.columns[(o * WIDTH + c) * L] = work.table[tensors[t, ROW], o, c]
                buffers.xi[0], buffers.root_tau[0] = units[u, XI], units[u, ROOT_TAU]
                prepare(
                    Alone(1), operations, start, stop, buffers.columns, buffers.xi, buffers.root_tau,
                    buffers.unit, tensors[t, STEP], moves, 0, scratch,
                )  # fmt: skip
            if run_segment(
                Alone(1), point(tensors[t, THETA] - base, number), point(tensors[t, MOMENTUM] - base, number),
                point(tensors[t, GRADIENT] - base, number), point(tensors[t, SECOND] - base, number), span, 0,
                1, moves, 0, seed, tensors[t, STEP], scratch, True,
            ):  # fmt: skip
                sums[i] = scratch.read[0]
    restore_denormals(mode)


@compiled
def _between_passes(k, tensors, work, sums, units, seed, scratch):
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
                root = c[2] if c[2] >= 0 else units[u, ROOT_TAU]
                where, chain = tensors[first[u], FIRST], tensors[first[u], CHAIN]
                units[u, XI] = fluctuate(
                    units[u, XI], c[0], c[1], root, seed, work.operations[o, 1], chain, step, where, scratch,
                )  # fmt: skip
