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
from heatbath.engine.program import WIDTH
from heatbath.engine.tiles import MOVES, run_segment
from heatbath.engine.views import at_address
from heatbath.noise import TILE

PIECE = 64 * TILE


class Tensors(NamedTuple):
    """Addresses of θ, p, the gradient and the second moment, and the unit and the row of coefficients."""

    addresses: NDArray[np.int64]  # (tensors, 4)
    first: NDArray[np.int64]  # the position of the first element in the numbering of the noise
    unit: NDArray[np.int64]
    row: NDArray[np.int64]
    step: NDArray[np.int64]  # how often it was stepped, or its group


class Work(NamedTuple):
    """Pieces (tensor, first element, stop), and what to do with those of each unit in each pass."""

    pieces: NDArray[np.int64]
    segments: NDArray[np.int64]  # (passes, units, 3): first operation, stop, and the E that follows, or -1
    operations: NDArray[np.int64]
    table: NDArray[np.float64]  # (rows, operations, WIDTH)
    size: NDArray[np.int64]  # of each unit, as far as it is stepped
    row: NDArray[np.int64]  # of each unit: that of its E


class Sums(NamedTuple):
    """p·p where it is read, by piece and by unit; ξ; the square root of the rung's temperature, by unit."""

    pieces: NDArray[np.float64]
    kinetic: NDArray[np.float64]
    xi: NDArray[np.float64]
    root_tau: NDArray[np.float64]


@compiled(cache=True)
def fused_step(like, begin, end, first_pass, last_pass, finish, tensors, work, sums, seed):
    """The pieces begin to end - 1 of some passes; then, to `finish` each, what lies between two passes."""
    tile = np.empty(TILE, like.dtype)
    words = np.empty((4, TILE // 4), np.uint32)
    room = tile, words, np.empty((MOVES, WIDTH + 1)), np.empty((MOVES, 3), np.int64)
    span = np.empty((1, 2), np.int64)
    bytes_each = like.itemsize
    for k in range(first_pass, last_pass):
        for i in range(begin, end):
            t, low, high = work.pieces[i]
            u, base = tensors.unit[t], tensors.first[t] * bytes_each
            start, stop = work.segments[k, u, 0], work.segments[k, u, 1]
            span[0, 0], span[0, 1] = low, high
            theta = at_address(like, tensors.addresses[t, 0] - base, high)
            p = at_address(like, tensors.addresses[t, 1] - base, high)
            G = at_address(like, tensors.addresses[t, 2] - base, high)
            second = at_address(like, tensors.addresses[t, 3] - base, high)
            read = -1.0
            if stop > start:
                read = run_segment(
                    theta,
                    p,
                    G,
                    second,
                    span,
                    work.operations[start:stop],
                    work.table[tensors.row[t], start:stop],
                    sums.xi[u],
                    sums.root_tau[u],
                    seed,
                    0,
                    tensors.step[t],
                    room,
                    True,
                )
            sums.pieces[i] = read
        if finish:
            total = np.full(sums.kinetic.shape[0], -1.0)
            for i in range(work.pieces.shape[0]):
                if not sums.pieces[i] < 0:  # NaN is a sum, too
                    u = tensors.unit[work.pieces[i, 0]]
                    total[u] = sums.pieces[i] if total[u] < 0 else total[u] + sums.pieces[i]
            for u in range(total.shape[0]):
                if not total[u] < 0:
                    sums.kinetic[u] = total[u]
                thermostat = work.segments[k, u, 2]
                if thermostat >= 0:
                    c = work.table[work.row[u], thermostat]
                    target = c[1] if c[1] >= 0 else sums.root_tau[u] ** 2
                    share = 1.0 / work.size[u] if c[2] > 0 else 1.0
                    sums.xi[u] += c[0] * share * (sums.kinetic[u] - work.size[u] * target)
