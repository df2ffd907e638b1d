"""The operations of `program` on tiles, compiled: one pass over θ, p and G for a whole segment.

Operations are folded into moves, p += t G - d θ, θ += u p, p = a p + b R, θ += v p, and the numbers t to v of
a move are computed for every lane: in a group for every chain, alone the same in all. The noise of a tile is
made, used while it is in the cache, and forgotten. Sums over parameters are taken as in `layouts`: in the
precision of the parameters within a tile, in float64 across tiles.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from heatbath.engine import simd
from heatbath.engine.compile import compiled
from heatbath.engine.layouts import Alone, LaneGroup, add_halves, chains_in, place
from heatbath.engine.pointers import prefetch
from heatbath.engine.random import fill_normals, fill_words
from heatbath.engine.simd import (
    Kept,
    beyond,
    choose,
    fma,
    lanes_of,
    load,
    loop,
    null,
    polynomial,
    splat,
    sqrt,
    store,
    traced,
)
from heatbath.methods.operations import ADAM, DESCEND, READ, WIDTH, A, B, F, S
from heatbath.reference.random import ATTEMPTS, ROW, SLOTS, TILE

# What is fixed of a move: its kind; stream and slot of R (-1: none) and the offset of its step; whether p·p
# is read before (1) or after (2) R comes in; whether a chain has noise, and whether one has a kick
KIND, USE, OFFSET, READS, NOISY, KICKED = range(6)
FIXED = 6
# and its numbers for every lane: of p += t G - d θ, θ += u p, p = a p + b R, θ += v p, t to v; of
# θ += t G - d θ + b R; of Adam
KICK, DECAY, DRIFT, FACTOR, WIDTH_OF_NOISE, LAST_DRIFT = range(6)
RATE, SHRINK, BETA1, REST1, BETA2, REST2, EPS, UNBIAS1, UNBIAS2 = range(9)
SIX, NUMBERS = 6, 9


class Moves(NamedTuple):
    """Pointers to the moves of the segments of a program: each operation makes one at the most.

    `fixed` is (segment, move, FIXED), `numbers` (segment, move, NUMBERS, lane), `counts` (segment).
    """

    fixed: Any
    numbers: Any
    counts: Any
    most: int


class Scratch(NamedTuple):
    """Pointers to room for the noise of a tile, its words, sums, and the numbers of a move in float64.

    `numbers` are the chains', in the order that `fill_normals` takes; `one` is for a chain's.
    """

    z: Any
    words: Any
    sums: Any
    made: Any
    read: Any
    numbers: Any
    one: Any


class Kinds(NamedTuple):
    """Pointers to nothing, of every type that buffers have."""

    number: Any  # of the chains
    real: Any
    whole: Any
    word: Any
    address: Any
    mask: Any


@compiled
def kinds_for(like):
    """For numbers of the chains like those that are pointed to."""
    return Kinds(like, null(np.float64), null(np.int64), null(np.uint32), null(np.uint64), null(np.uint16))


@compiled(apart=True)
def make_moves(segments, most, kinds, address):
    """Room for the moves of this many segments, from an address on, and the address after it."""
    L = lanes_of(kinds.number)
    fixed, address = place(address, segments * most * FIXED, kinds.whole)
    numbers, address = place(address, segments * most * NUMBERS * L, kinds.number)
    count, address = place(address, segments, kinds.whole)
    return Moves(fixed, numbers, count, most), address


@compiled(apart=True)
def make_scratch(layout, kinds, address):
    """Room to work in, from an address on, and the address after it."""
    L = lanes_of(kinds.number)
    lane = chains_in(layout, kinds.number)
    z, address = place(address, TILE * lane, kinds.number)
    words, address = place(address, TILE * lane, kinds.word)
    sums, address = place(address, L * L, kinds.number)
    made, address = place(address, NUMBERS * L, kinds.real)
    read, address = place(address, L, kinds.real)
    numbers, address = place(address, L, kinds.address)
    one, address = place(address, 1, kinds.address)
    return Scratch(z, words, sums, made, read, numbers, one), address


@traced
def _phi(x):
    """(1 - exp(-x))/x; near 0 by its series."""
    series = [(-1.0) ** k / math.factorial(k + 1) for k in range(15)]
    far = (-simd.exp(-x) + 1.0) / x
    return choose(x.call("fabs") < 0.5, polynomial(x, series), far)


_exp, _sqrt = traced(simd.exp), traced(sqrt)


@traced
def _or_lane(value, other):
    """`value`, or what `other` says where that is below 0."""
    return choose(value >= 0.0, value, other)


@traced
def _rounded(layout, numbers, at, made, place):
    """Put 8 numbers of float64 in the precision of the chains; alone the first, in every lane."""
    value = made.load(place)
    if not isinstance(layout, LaneGroup):
        value = value.lane(0).splat(numbers.lanes)
    numbers.store(at, value.to(numbers.dtype) if numbers.itemsize == 4 else value)


@traced
def _not_zero(layout, made, place):
    """Whether one of 8 numbers is not 0; alone the first."""
    value = made.load(place) if isinstance(layout, LaneGroup) else made.number(place)
    return (value > 0.0).either(value < 0.0).any()


@compiled(apart=True)
def prepare(layout, operations, low, high, columns, xi, root_tau, unit, n, moves, segment, scratch):
    """Fold the operations low to high - 1 into moves, with the numbers of every lane at step n.

    `columns` (operation, WIDTH, lane) has the coefficients; `xi`, `root_tau` and the `unit` of the momenta
    (see `likelihood`) are one for each lane. A DESCEND, an ADAM, and a READ with no move before it are moves
    of their own.
    """
    L, made = lanes_of(moves.numbers), scratch.made
    fixed = beyond(moves.fixed, segment * moves.most * FIXED)
    for half in range(0, chains_in(layout, moves.numbers), 8):
        one = load(unit, half)
        count, has = 0, 5  # has: what the last move already has, 0 B, 1 A, 2 S, 3 A
        for i in range(low, high):
            kind, use, offset = operations[3 * i], operations[3 * i + 1], operations[3 * i + 2]
            c = i * WIDTH * L + half
            if kind == READ and has <= 3:
                fixed[(count - 1) * FIXED + READS] = 1 if has < 2 else 2
                has = max(has, 1)
                continue
            if kind in (READ, DESCEND, ADAM):
                if count:
                    _keep(layout, moves, segment, count - 1, half, made)
                _begin(fixed, count, kind, use, offset)
                if kind == DESCEND:
                    store(made, KICK * L + half, load(columns, c))
                    store(made, DECAY * L + half, load(columns, c + L) * one * one)
                    store(made, WIDTH_OF_NOISE * L + half, load(columns, c + 2 * L) * one)
                elif kind == ADAM:
                    _adam(columns, c, n, made, half, L)
                    store(made, SHRINK * L + half, load(made, SHRINK * L + half) * one * one)
                count, has = count + 1, 5
                continue
            noisy = use >= 0
            wanted = 0 if kind == B else 2
            if kind == A:
                wanted = 1 if has < 1 else 3
            drawn = has == 2 and fixed[(count - 1) * FIXED + USE] >= 0
            second_draw = kind != A and kind != B and noisy and drawn
            if wanted < has or (wanted == has and wanted != 2) or second_draw:
                if count:
                    _keep(layout, moves, segment, count - 1, half, made)
                for k in range(SIX):
                    store(made, k * L + half, splat(1.0 if k == FACTOR else 0.0))
                _begin(fixed, count, B, -1, 0)
                count += 1
                if kind == A:
                    wanted = 1
            has = wanted
            if kind == A:
                store(made, (DRIFT if has == 1 else LAST_DRIFT) * L + half, load(columns, c) * one)
            elif kind == B:
                store(made, KICK * L + half, load(columns, c) / one)
                store(made, DECAY * L + half, load(columns, c + L) * one)
            else:
                a = load(columns, c)
                b = splat(0.0)
                if kind == S:
                    b = load(columns, c + L) * _or_lane(load(columns, c + 2 * L), load(root_tau, half))
                else:
                    x = a * load(xi, half)
                    a = _exp(splat(0.0) - x)
                    if kind == F:
                        b = load(columns, c + L) * _sqrt(_phi(x + x))
                factor, width = FACTOR * L + half, WIDTH_OF_NOISE * L + half
                store(made, width, a * load(made, width) + b)
                store(made, factor, a * load(made, factor))
                if noisy:
                    fixed[(count - 1) * FIXED + USE], fixed[(count - 1) * FIXED + OFFSET] = use, offset
        if count:
            _keep(layout, moves, segment, count - 1, half, made)
        moves.counts[segment] = count


@compiled
def _begin(fixed, move, kind, use, offset):
    at = move * FIXED
    fixed[at + KIND], fixed[at + USE], fixed[at + OFFSET], fixed[at + READS] = kind, use, offset, 0


@compiled
def _adam(columns, c, n, made, half, L):
    """The numbers of Adam at its step n: c, β1, β2, eps, d, and the β2 of the correction."""
    for lane in range(8):
        at = c + lane
        rate, beta1, beta2, eps, shrink, corrected = (
            columns[at], columns[at + L], columns[at + 2 * L], columns[at + 3 * L], columns[at + 4 * L],
            columns[at + 5 * L],
        )  # fmt: skip
        to = half + lane
        made[RATE * L + to], made[SHRINK * L + to], made[EPS * L + to] = rate, shrink, eps
        made[BETA1 * L + to], made[REST1 * L + to] = beta1, 1.0 - beta1
        made[BETA2 * L + to], made[REST2 * L + to] = beta2, 1.0 - beta2
        made[UNBIAS1 * L + to] = 1.0 / (1.0 - beta1 ** (n + 1))
        made[UNBIAS2 * L + to] = 1.0 / (1.0 - corrected ** (n + 1))


@compiled(apart=True)
def _keep(layout, moves, segment, move, half, made):
    """A move is complete: round its numbers."""
    L = lanes_of(moves.numbers)
    at = (segment * moves.most + move) * NUMBERS * L + half
    fixed = beyond(moves.fixed, (segment * moves.most + move) * FIXED)
    if half == 0:
        fixed[NOISY], fixed[KICKED] = 0, 0
    for k in range(NUMBERS if fixed[KIND] == ADAM else SIX):
        _rounded(layout, moves.numbers, at + k * L, made, k * L + half)
    if fixed[USE] >= 0 and _not_zero(layout, made, WIDTH_OF_NOISE * L + half):
        fixed[NOISY] = 1
    if _not_zero(layout, made, KICK * L + half) or _not_zero(layout, made, DECAY * L + half):
        fixed[KICKED] = 1


@traced
def _flag(like, yes):
    """1 in every lane, or 0."""
    nothing = like.zero()
    return choose(yes, nothing.constant(1.0), nothing)


@traced
def _load_six(numbers, at):
    return tuple(numbers.load(at + numbers.lanes * k) for k in range(6))


@traced
def _load_nine(numbers, at):
    return tuple(numbers.load(at + numbers.lanes * k) for k in range(9))


def _looped(step: Any, reads: bool = False) -> Any:
    """A function over a range of parameters from one over a vector: whole vectors, then, alone, the rest.

    It is called with the arrays and the noise; the first element, how many there are, and the place of the
    first in the noise; the numbers of a move; and where the sums go that are read.
    """

    @traced
    def over(layout, arrays, where, numbers, sums):
        x, *_, z = arrays
        low, size, begin = where
        L, shift = x.lanes, x.lanes.bit_length() - 1

        def body(sum_, v, start, first, mask=None):
            at, r = start + v * L, first + v * L
            sum_.set([step(arrays, at, z.load(r), numbers, sum_.get()[0], mask)])

        sum_ = Kept([x.zero()])
        if isinstance(layout, LaneGroup) and reads:  # in the order of the lanes that one alone adds
            with loop(size.constant(L)) as turn:
                sum_.set([x.zero()])
                with loop(size, turn, L) as v:
                    body(sum_, v, low * L, begin * L)
                sums.store(turn * L, sum_.get()[0])
            return
        if isinstance(layout, LaneGroup):
            with loop(size) as v:
                body(sum_, v, low * L, begin * L)
            return
        count, wide = size >> shift, size.splat(L)
        with loop(count) as v:
            body(sum_, v, low, begin)
        with loop((size + (L - 1)) >> shift, count) as v:  # once, or not at all
            body(sum_, v, low, begin, wide - count * L > wide.constant(range(L)))
        if reads:
            sums.store(0, sum_.get()[0])

    return over


def _make_move(kick: bool, noisy: bool, reads: bool) -> Any:
    """p += t G - d θ, θ += u p, p = a p + b R, θ += v p."""

    def step(arrays: Any, at: Any, noise: Any, numbers: Any, sum_: Any, mask: Any) -> Any:
        x, p, G, _, _ = arrays
        c, early, late = numbers
        position, momentum = x.load(at, mask), p.load(at, mask)
        if kick:
            momentum = fma(-c[DECAY], position, fma(c[KICK], G.load(at, mask), momentum))
        position = fma(c[DRIFT], momentum, position)
        if reads:
            sum_ = fma(momentum * early, momentum, sum_)
        momentum = c[FACTOR] * momentum
        if noisy:
            noise = noise if mask is None else choose(mask, noise, 0.0)  # so that p·p is not touched
            momentum = _with_noise(c[WIDTH_OF_NOISE], noise, momentum)
        if reads:
            sum_ = fma(momentum * late, momentum, sum_)
        x.store(at, fma(c[LAST_DRIFT], momentum, position), mask)
        p.store(at, momentum, mask)
        return sum_

    return _looped(step, reads)


def _with_noise(width: simd.Traced, noise: simd.Traced, value: simd.Traced) -> simd.Traced:
    """Noise for the chains that have some: to add 0 would change the sign of -0."""
    return choose((width > 0.0).either(width < 0.0), fma(width, noise, value), value)


def _make_descent(noisy: bool) -> Any:
    """θ += t G - d θ + b R."""

    def step(arrays: Any, at: Any, noise: Any, numbers: Any, sum_: Any, mask: Any) -> Any:
        x, _, G, _, _ = arrays
        c, _, _ = numbers
        position = x.load(at, mask)
        position = fma(c[KICK], G.load(at, mask), fma(-c[DECAY], position, position))
        x.store(at, _with_noise(c[WIDTH_OF_NOISE], noise, position) if noisy else position, mask)
        return sum_

    return _looped(step)


def _adam_step(arrays: Any, at: Any, noise: Any, c: Any, sum_: Any, mask: Any) -> Any:
    x, p, G, second, _ = arrays
    g = G.load(at, mask)
    momentum = fma(c[BETA1], p.load(at, mask), c[REST1] * g)
    squares = fma(c[BETA2], second.load(at, mask), c[REST2] * g * g)
    step = c[UNBIAS1] * momentum / (sqrt(c[UNBIAS2] * squares) + c[EPS])
    position = x.load(at, mask)
    x.store(at, fma(c[RATE], step, fma(-c[SHRINK], position, position)), mask)
    p.store(at, momentum, mask)
    second.store(at, squares, mask)
    return sum_


def _read_step(arrays: Any, at: Any, noise: Any, numbers: Any, sum_: Any, mask: Any) -> Any:
    momentum = arrays[1].load(at, mask)
    return fma(momentum, momentum, sum_)


_NOISE_OR_KICK = ((True, False), (True, True), (False, True))
_kicked_read, _kicked_noisy_read, _noisy_read = (_make_move(*which, True) for which in _NOISE_OR_KICK)
_kicked, _kicked_noisy, _noisy = (_make_move(*which, False) for which in _NOISE_OR_KICK)
_descend, _descend_noisy = _make_descent(False), _make_descent(True)
_step_adam, _read = _looped(_adam_step), _looped(_read_step, reads=True)


@compiled
def _fetch(values, low, high):
    """Have values fetched from memory while something else is done."""
    for e in range(low, high, lanes_of(values)):
        prefetch(values, e)


@compiled
def _collect(layout, sums, read, fresh):
    """Add the sums of a tile, one for each chain, to `read`, or begin it."""
    if not fresh:
        for c in range(chains_in(layout, sums)):
            read[c] = 0.0
    add_halves(layout, sums, read)


@compiled(apart=True)
def run_segment(layout, theta, p, G, second, ranges, begin, end, moves, segment, seed, n, scratch, streaming):
    """The moves of a segment on the parameters in the ranges begin to end - 1 at step n.

    Returns whether p·p was read, into `scratch.read`. Where the arrays are larger than the caches,
    `streaming` has a tile fetched while its noise is made.
    """
    L = lanes_of(theta)
    z, numbers = scratch.z, moves.numbers
    arrays = theta, p, G, second, z
    has_read = kicked_somewhere = False
    for i in range(moves.counts[segment]):
        kind = moves.fixed[(segment * moves.most + i) * FIXED + KIND]
        kicked = moves.fixed[(segment * moves.most + i) * FIXED + KICKED] > 0
        kicked_somewhere = kicked_somewhere or kicked or kind == ADAM
    for r in range(begin, end):
        first, stop = ranges[2 * r], ranges[2 * r + 1]
        for tile in range(first // TILE, (stop - 1) // TILE + 1):
            base = tile * TILE
            low, high = max(first, base), min(stop, base + TILE)
            size, inside = high - low, low - base
            if streaming:
                _fetch(p, low, high)
                _fetch(theta, low, high)
                if kicked_somewhere:
                    _fetch(G, low, high)
            for i in range(moves.counts[segment]):
                fixed = beyond(moves.fixed, (segment * moves.most + i) * FIXED)
                kind, use, reads = fixed[KIND], fixed[USE], fixed[READS]
                at = (segment * moves.most + i) * NUMBERS * L
                noisy, kicked = fixed[NOISY] > 0, fixed[KICKED] > 0
                if noisy:
                    step = n + fixed[OFFSET]
                    fill_normals(layout, z, scratch.numbers, seed, use, step, tile, inside, high - base)
                where = low, size, inside
                if kind == ADAM:
                    _step_adam(layout, arrays, where, _load_nine(numbers, at), scratch.sums)
                    continue
                c = _load_six(numbers, at), _flag(theta, reads == 1), _flag(theta, reads == 2)
                if kind == READ:
                    _read(layout, arrays, where, c, scratch.sums)
                elif kind == DESCEND:
                    if noisy:
                        _descend_noisy(layout, arrays, where, c, scratch.sums)
                    else:
                        _descend(layout, arrays, where, c, scratch.sums)
                elif reads > 0:
                    if not noisy:
                        _kicked_read(layout, arrays, where, c, scratch.sums)
                    elif kicked:
                        _kicked_noisy_read(layout, arrays, where, c, scratch.sums)
                    else:
                        _noisy_read(layout, arrays, where, c, scratch.sums)
                elif not noisy:
                    _kicked(layout, arrays, where, c, scratch.sums)
                elif kicked:
                    _kicked_noisy(layout, arrays, where, c, scratch.sums)
                else:
                    _noisy(layout, arrays, where, c, scratch.sums)
                if reads > 0 or kind == READ:
                    _collect(layout, scratch.sums, scratch.read, has_read)
                    has_read = True
    return has_read


@compiled(apart=True)
def kinetic(layout, p, ranges, begin, end, scratch):
    """p·p of every chain over the ranges begin to end - 1, into `scratch.read`, always in this order."""
    has_read = False
    arrays = p, p, p, p, scratch.z
    for r in range(begin, end):
        first, stop = ranges[2 * r], ranges[2 * r + 1]
        for low in range(first, stop, TILE):
            _read(layout, arrays, (low, min(low + TILE, stop) - low, 0), 0, scratch.sums)
            _collect(layout, scratch.sums, scratch.read, has_read)
            has_read = True


@compiled(apart=True)
def _normal(seed, use, chain, step, element, scratch):
    """The normal number of one element, in float64 always."""
    tile, row, k = element // TILE, element % TILE // ROW, element % ROW
    scratch.one[0] = chain
    fill_words(Alone(1), scratch.z, scratch.words, scratch.one, seed, use, step, tile, TILE)
    first = row // 2 * 2 * ROW + k
    radius, angle = (scratch.words[first] + 0.5) * 2.0**-32, (scratch.words[first + ROW] + 0.5) * 2.0**-32
    turn = math.cos(2.0 * math.pi * angle) if row % 2 == 0 else math.sin(2.0 * math.pi * angle)
    return math.sqrt(-2.0 * math.log(radius)) * turn


@compiled
def fluctuate(xi, a, b, root, seed, use, chain, step, element, scratch):
    """ξ = a ξ + b r R of one chain, in float64 always: R is the number of one element."""
    return a * xi + b * root * _normal(seed, use, chain, step, element, scratch)


@compiled(apart=True)
def example_gammas(layout, seed, use, step, tile, scratch, made, at):
    """What `noise.example_gammas` draws for the ROW examples of a tile, (example, lane), in float64 always,
    from made[at] on: where a number is to be drawn, minus its shape stands."""
    row = ROW * chains_in(layout, scratch.z)
    waiting = True
    for attempt in range(SLOTS):
        if not waiting:
            break
        waiting = False
        fill_words(layout, scratch.z, scratch.words, scratch.numbers, seed, use + attempt, step, tile, TILE)
        for e in range(row):
            if made[at + e] >= 0.0:
                continue
            shape = -made[at + e]
            d = shape + (1.0 if shape < 1.0 else 0.0) - 1.0 / 3.0
            c = 1.0 / math.sqrt(9.0 * d)
            radius, angle = (scratch.words[e] + 0.5) * 2.0**-32, (scratch.words[row + e] + 0.5) * 2.0**-32
            x = math.sqrt(-2.0 * math.log(radius)) * math.cos(2.0 * math.pi * angle)
            u = (scratch.words[2 * row + e] + 0.5) * 2.0**-32
            v = (1.0 + c * x) ** 3
            accepted = v > 0.0 and math.log(u) < 0.5 * x * x + d - d * v + d * math.log(v)
            if accepted or attempt == SLOTS - 1:
                made[at + e] = d * v
                if shape < 1.0:
                    made[at + e] *= ((scratch.words[3 * row + e] + 0.5) * 2.0**-32) ** (1.0 / shape)
            else:
                waiting = True


@compiled(apart=True)
def gamma_number(shape, seed, use, chain, step, scratch):
    """What `noise.gammas` draws for one chain, in float64 always."""
    d = shape - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    v = 0.0
    for i in range(ATTEMPTS):
        x = _normal(seed, use, chain, step, i, scratch)
        fill_words(Alone(1), scratch.z, scratch.words, scratch.one, seed, use + 1, step, 0, ATTEMPTS)
        u = (scratch.words[i] + 0.5) * 2.0**-32
        v = (1.0 + c * x) ** 3
        if v > 0.0 and math.log(u) < 0.5 * x * x + d - d * v + d * math.log(v):
            break
    return d * v
