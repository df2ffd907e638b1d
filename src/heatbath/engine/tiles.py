"""The operations of `program` on tiles, compiled: one pass over θ, p and G for a whole segment.

The noise of a tile is made, used while it is in the cache, and forgotten.
"""

from __future__ import annotations

import math

import numpy as np
from numba import types
from numba.extending import overload

from heatbath.engine.compile import FASTMATH, compiled
from heatbath.engine.random import fill_half32, fill_half64, fill_words
from heatbath.engine.views import prefetch, vector
from heatbath.noise import ROW, TILE
from heatbath.operations import ADAM, DESCEND, READ, WIDTH, A, B, F, S

# Columns of a move: its kind; then of p += t G - d θ, θ += u p, p = a p + b R, θ += v p the numbers t to v,
# or the columns of an operation that is a move of its own
KIND, KICK, DECAY, DRIFT, FACTOR, NOISE_WIDTH, LAST_DRIFT = range(WIDTH + 1)
# and of its use: stream and slot of R (-1: none), step of R, whether p·p is read before (1) or after (2) it
USE, STEP, READS = range(3)
FIRST_COLUMN = 1


def fill_half(z, words, half):
    """The normal numbers of half a tile in the precision of z."""
    raise NotImplementedError("only in compiled code")


@overload(fill_half, jit_options={"nogil": True, "forceinline": True})
def _fill_half(z, words, half):
    fill = fill_half32 if z.dtype == types.float32 else fill_half64
    return lambda z, words, half: fill(z, words, half)


@compiled
def _fetch(values):
    """Have values fetched from memory while something else is done."""
    for e in range(0, values.shape[0], 64 // values.itemsize):
        prefetch(values, e)


@compiled
def move_buffers(operations):
    """Room for the moves of a segment: each operation makes one at the most."""
    return np.empty((max(operations, 1), WIDTH + 1)), np.empty((max(operations, 1), 3), np.int64)


@compiled
def _first_noise(moves, uses, count):
    """The first move with noise, or -1."""
    for i in range(count):
        kind = int(moves[i, KIND])
        noisy = (kind == B and moves[i, NOISE_WIDTH] != 0) or (kind == DESCEND and moves[i, 3] != 0)
        if uses[i, USE] >= 0 and noisy:
            return i
    return -1


@compiled
def _phi(x):
    return -math.expm1(-x) / x if x != 0.0 else 1.0


@compiled
def _prepare(operations, coefficients, xi, root_tau, n, moves, uses):
    """Fold a segment's operations into moves: p += t G - d θ, θ += u p, p = a p + b R, θ += v p, in order.

    `moves` gets (kind, t, d, u, a, b, v) and `uses` the slot and step of R (-1: none), and whether p·p is
    read before (1) or after (2) R comes in; returns how many there are. A DESCEND, an ADAM, and a READ with
    no move before it are moves of their own.
    """
    count, place = 0, 5  # place: what the last move already has, 0 B, 1 A, 2 S, 3 A
    for i in range(operations.shape[0]):
        kind, use, offset = operations[i, 0], operations[i, 1], operations[i, 2]
        c = coefficients[i]
        if kind == READ and place <= 3:
            uses[count - 1, READS] = 1 if place < 2 else 2
            place = max(place, 1)
            continue
        if kind in (READ, DESCEND, ADAM):
            moves[count, KIND], uses[count, USE], uses[count, STEP] = kind, use, n + offset
            uses[count, READS] = 0
            for k in range(WIDTH):
                moves[count, FIRST_COLUMN + k] = c[k]
            count, place = count + 1, 5
            continue
        noisy = use >= 0
        wanted = 0 if kind == B else 2
        if kind == A:
            wanted = 1 if place < 1 else 3
        second_draw = kind != A and kind != B and place == 2 and noisy and uses[count - 1, USE] >= 0
        if wanted < place or (wanted == place and wanted != 2) or second_draw:
            moves[count, KIND] = B
            for k in range(FIRST_COLUMN, FIRST_COLUMN + WIDTH):
                moves[count, k] = 0.0
            moves[count, FACTOR] = 1.0
            uses[count, USE], uses[count, READS] = -1, 0
            count += 1
            if kind == A:
                wanted = 1
        place = wanted
        move = moves[count - 1]
        if kind == A:
            move[DRIFT if place == 1 else LAST_DRIFT] = c[0]
        elif kind == B:
            move[KICK], move[DECAY] = c[0], c[1]
        else:
            a, b = c[0], 0.0
            if kind == S:
                b = c[1] * (c[2] if c[2] >= 0 else root_tau)
            else:
                a = math.exp(-c[0] * xi)
                if kind == F:
                    b = c[1] * math.sqrt(_phi(2.0 * c[0] * xi))
            move[FACTOR], move[NOISE_WIDTH] = a * move[FACTOR], a * move[NOISE_WIDTH] + b
            if noisy:
                uses[count - 1, USE], uses[count - 1, STEP] = use, n + offset
    return count


@compiled
def fluctuate(xi, coefficients, root_tau, seed, use, chain, step, element, words):
    """ξ = a ξ + b r R, in float64 always: R is the number of one element."""
    fill_words(words, seed, use, chain, step, element // TILE)
    lane, k = element % TILE // ROW, element % ROW
    radius, angle = (words[lane // 2 * 2, k] + 0.5) * 2.0**-32, (words[lane // 2 * 2 + 1, k] + 0.5) * 2.0**-32
    turn = math.cos(2.0 * math.pi * angle) if lane % 2 == 0 else math.sin(2.0 * math.pi * angle)
    R = math.sqrt(-2.0 * math.log(radius)) * turn
    root = coefficients[2] if coefficients[2] >= 0 else root_tau
    return coefficients[0] * xi + coefficients[1] * root * R


@compiled(fastmath=FASTMATH)
def run_segment(
    theta,
    p,
    G,
    second,
    ranges,
    operations,
    coefficients,
    xi,
    root_tau,
    seed,
    chain,
    n,
    room,
    streaming=False,
):
    """A segment's operations on the parameters in `ranges` of one chain at step n.

    `xi` is the unit's ξ, and `root_tau` the square root of the temperature of the chain's rung.
    Returns p·p at a READ, and -1 where there is none. Where the arrays are larger than the caches,
    `streaming` has a tile fetched while its noise is made.
    """
    number = theta.dtype.type
    read = -1.0
    z, words, moves, uses = room
    count = _prepare(operations, coefficients, xi, root_tau, n, moves, uses)
    early = _first_noise(moves, uses, count) if streaming else -1
    for r in range(ranges.shape[0]):
        first, stop = ranges[r, 0], ranges[r, 1]
        for tile in range(first // TILE, (stop - 1) // TILE + 1):
            base = tile * TILE
            low, high = max(first, base), min(stop, base + TILE)
            # views that begin at 0: Numba would otherwise guard against negative indices, and not vectorise
            size = high - low
            x, q, g = vector(theta, low, size), vector(p, low, size), vector(G, low, size)
            R = vector(z, low - base, size)
            if early >= 0:  # the first noise, while the tile is fetched
                _fetch(q)
                fill_words(words, seed, uses[early, USE], chain, uses[early, STEP], tile)
                _fetch(g)
                fill_half(z, words, 0)
                _fetch(x)
                fill_half(z, words, 1)
            for i in range(count):
                kind, use = int(moves[i, KIND]), uses[i, USE]
                c1, c2, c3 = number(moves[i, 1]), number(moves[i, 2]), number(moves[i, 3])
                c4, c5, c6 = number(moves[i, 4]), number(moves[i, 5]), number(moves[i, 6])
                noisy = use >= 0 and ((kind == B and c5 != 0) or (kind == DESCEND and c3 != 0))
                if noisy and i != early:
                    fill_words(words, seed, use, chain, uses[i, STEP], tile)
                    if low - base < TILE // 2:
                        fill_half(z, words, 0)
                    if high - base > TILE // 2:
                        fill_half(z, words, 1)
                if kind == B:
                    early_read, late_read = number(uses[i, READS] == 1), number(uses[i, READS] == 2)
                    partial = number(0.0)
                    if noisy and c1 == 0 and c2 == 0:  # without a kick G is not fetched
                        for e in range(size):
                            momentum = q[e]
                            drifted = x[e] + c3 * momentum
                            partial += early_read * momentum * momentum
                            momentum = c4 * momentum + c5 * R[e]
                            partial += late_read * momentum * momentum
                            x[e] = drifted + c6 * momentum
                            q[e] = momentum
                    elif noisy:
                        for e in range(size):
                            momentum = q[e] + c1 * g[e] - c2 * x[e]
                            drifted = x[e] + c3 * momentum
                            partial += early_read * momentum * momentum
                            momentum = c4 * momentum + c5 * R[e]
                            partial += late_read * momentum * momentum
                            x[e] = drifted + c6 * momentum
                            q[e] = momentum
                    else:
                        for e in range(size):
                            momentum = q[e] + c1 * g[e] - c2 * x[e]
                            drifted = x[e] + c3 * momentum
                            partial += early_read * momentum * momentum
                            momentum = c4 * momentum
                            partial += late_read * momentum * momentum
                            x[e] = drifted + c6 * momentum
                            q[e] = momentum
                    if uses[i, READS] > 0:
                        read = float(partial) if read < 0.0 else read + partial
                elif kind == READ:
                    partial = number(0.0)
                    for e in range(size):
                        partial += q[e] * q[e]
                    read = float(partial) if read < 0.0 else read + partial
                elif kind == DESCEND:
                    for e in range(size):
                        x[e] += c1 * g[e] - c2 * x[e]
                    if noisy:
                        for e in range(size):
                            x[e] += c3 * R[e]
                elif kind == ADAM:
                    one, rate, beta1, beta2, eps, decay = number(1.0), c1, c2, c3, c4, c5
                    unbias1 = number(1.0 / (1.0 - moves[i, 2] ** (n + 1)))
                    unbias2 = number(1.0 / (1.0 - moves[i, 6] ** (n + 1)))
                    squares = vector(second, low, size)
                    for e in range(size):
                        q[e] = beta1 * q[e] + (one - beta1) * g[e]
                        squares[e] = beta2 * squares[e] + (one - beta2) * g[e] * g[e]
                        step = unbias1 * q[e] / (np.sqrt(unbias2 * squares[e]) + eps)
                        x[e] += rate * step - decay * x[e]
    return read


@compiled(fastmath=FASTMATH)
def kinetic(p, ranges):
    """p·p over ranges: in the precision of p within a tile, in double across tiles, always in this order."""
    total = 0.0
    for r in range(ranges.shape[0]):
        first, stop = ranges[r, 0], ranges[r, 1]
        for low in range(first, stop, TILE):
            q = vector(p, low, min(low + TILE, stop) - low)
            partial = p.dtype.type(0.0)
            for e in range(q.shape[0]):
                partial += q[e] * q[e]
            total += partial
    return total
