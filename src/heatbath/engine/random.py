"""The random numbers that `heatbath.noise` defines, compiled: for one chain, or for a group in lanes.

Philox works on 32-bit words in 64-bit lanes, since a product has 64 bits: what is left in the upper half is
never used. Of the four words of an address most are the same in all lanes, so that the first rounds are
mostly numbers and not vectors; what is the same for all blocks of a tile is computed once.

In float32 the normal numbers come from polynomials through Chebyshev nodes, which differ from the definition
by no more than the format does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import types

from heatbath.engine.compile import compiled
from heatbath.engine.layouts import LaneGroup, chains_in
from heatbath.engine.simd import (
    Traced,
    TracedArray,
    choose,
    fma,
    join,
    lanes_of,
    log,
    polynomial,
    sqrt,
    traced,
)
from heatbath.reference.random import ROUNDS, ROW, TILE

u64 = np.uint64
_LOW = 0xFFFFFFFF

# computed in 40 digits: -2 log(1 + s)/s for 1 + s from √½ to √2 to 3e-8
_LOG = (
    -1.99999994826, 0.999999927642, -0.666683865723, 0.50002704371, -0.399118667168, 0.331559857936,
    -0.299548025603, 0.285385164124, -0.17066626166,
)  # fmt: skip
# and, with f in turns, |f| <= 1/4, in powers of f²: sin(2πf)/f to 7e-9 and 2e-21, cos(2πf) to 3e-10 and 9e-24
_SIN = {
    types.float32: (6.28318528015, -41.3416806133, 81.6024763689, -76.5811726443, 39.7598270853),
    types.float64: (
        6.28318530717958648, -41.3417022403997602, 81.605249276075051, -76.7058597530607231,
        42.0586939448287014, -15.0946425727019742, 3.81995243486680902, -0.718118921891065832,
        0.104183090870646484, -0.0116830828813074924,
    ),
}  # fmt: skip
_COS = {
    types.float32: (
        0.999999999779, -19.7392085477, 64.9393464762, -85.453564761, 60.1438895603, -24.9814344679,
    ),
    types.float64: (
        1.0, -19.7392088021787172, 64.9393940226682915, -85.4568172066937225, 60.2446413718759837,
        -26.426256783323853, 7.9035363689644877, -1.71439064066741266, 0.282004614557931169,
        -0.0363666636657090748, 0.00367034323299599615,
    ),
}  # fmt: skip


def _multiplied(x0: Traced, x2: Traced) -> tuple[Traced, Traced]:
    return (x0 & _LOW) * 0xD2511F53, (x2 & _LOW) * 0xCD9E8D57


def _philox(x: tuple[Traced, ...], k0: Traced, k1: Traced) -> tuple[list[Traced], Traced, Traced]:
    """What the last round of a block starts with: products, two words in lower halves, and the key."""
    x0, x1, x2, x3 = x
    for _ in range(ROUNDS - 1):
        left, right = _multiplied(x0, x2)
        x0, x2 = (right >> 32) ^ (x1 ^ k0), (left >> 32) ^ (x3 ^ k1)
        x1, x3 = right, left
        k0, k1 = k0 + 0x9E3779B9, k1 + 0xBB67AE85
    return [*_multiplied(x0, x2), x1, x3], k0, k1


@traced
def _origin(layout, like, numbers, where):
    """The key, and the counter at the first block of a tile: its second word for each vector that makes up
    the lanes of a group, or one for all, and the others.

    It is read once, before the loop over blocks: what follows from it is not computed for each.
    """
    seed, use, step, tile = where
    high = step << 6 | use << 46
    begin = tile * ROW  # the other blocks differ in the lowest word only
    chain = numbers.number(0)
    rest = seed & _LOW, seed >> 32, begin, high | chain >> 26, high >> 32
    if not isinstance(layout, LaneGroup):
        return *rest, chain << 6 | begin >> 32
    chains = [numbers.load(8 * half) for half in range(like.lanes // 8)]  # alike from bit 26 on
    return *rest, *(chain << 6 | begin >> 32 for chain in chains)


def _words(layout: object, like: TracedArray, origin: tuple[Traced, ...], k: Traced) -> list[Traced]:
    """The four words of the chains at block k, or of a chain alone at consecutive blocks, in 32-bit lanes.

    Lanes are alternately those of two vectors of 64-bit lanes, where there are 16. The last round is done
    when they have been put side by side.
    """
    k0, k1, begin, x2, x3, *x1 = origin
    block = begin | k
    stride = like.lanes // 8
    if isinstance(layout, LaneGroup):
        counters: list[tuple[Traced, ...]] = [(block, chain, x2, x3) for chain in x1]
    else:
        wide = block.splat(8)
        blocks = [wide + wide.constant(range(h, like.lanes, stride)) for h in range(stride)]
        counters = [(places, *x1, x2, x3) for places in blocks]
    states = [_philox(counter, k0, k1) for counter in counters]
    k0, k1 = (key.to(types.uint32) for key in states[0][1:])
    halves = [[part.bits(types.uint32) for part in state[0]] for state in states]

    def side_by_side(part: int, upper: int) -> Traced:
        places = [2 * (i // stride) + upper + 16 * (i % stride) for i in range(like.lanes)]
        return halves[0][part].part(places, halves[-1][part])

    left, right = (side_by_side(part, 1) for part in (0, 1))
    lower = [side_by_side(part, 0) for part in range(4)]
    return [right ^ (lower[2] ^ k0), lower[1], left ^ (lower[3] ^ k1), lower[0]]


def _pair(x: Traced, y: Traced, dtype: types.Float) -> tuple[Traced, Traced]:
    """Two normal numbers from two words: the radius from the first, the angle from the second."""
    if dtype == types.float32:
        # sqrt(-2 log u), u = (x + 1/2) 2^-32; above √½ from 1 - u, which keeps its digits
        near = x > 0xB504F333
        w = fma(choose(near, x ^ _LOW, x).to(dtype), 2.0**-32, 2.0**-33)
        bits = w.bits(types.int32)
        e = (bits - 0x3F3504F3) >> 23  # u = 2^e m with m from √½ to √2
        s = choose(near, -w, (bits - (e << 23)).bits(dtype) - 1.0)
        exponent = choose(near, e.constant(0), e).to(dtype)
        radius = sqrt(fma(polynomial(s, _LOG), s, exponent * (-2.0 * math.log(2.0))))
    else:
        radius = sqrt(log(fma(x.to(dtype), 2.0**-32, 2.0**-33)) * -2.0)
    # the angle from the nearest half turn, up to a sign
    f = fma((y << 1).bits(types.int32).to(dtype), 2.0**-33, 2.0**-33)
    square = f * f
    sin, cos = f * polynomial(square, _SIN[dtype]), polynomial(square, _COS[dtype])
    radius = choose((y + 0x40000000).bits(types.int32) < 0, -radius, radius)
    return radius * cos, radius * sin


def _make_words(pairs: Sequence[int]) -> Any:
    @traced
    def words(layout, z, origin, k, at):
        """Store the words of a vector of blocks from block k on, of these pairs of rows: where its numbers
        will be, which begin at z[at]."""
        row = ROW * (z.lanes if isinstance(layout, LaneGroup) else 1)
        made = _words(layout, z, origin, k)
        for r in (2 * pair + i for pair in pairs for i in range(2)):
            word = made[r] if z.itemsize == 4 else made[r].to(types.uint64)
            z.store(at + r * row, word.bits(z.dtype))

    return words


def _make_numbers(rows: Sequence[int]) -> Any:
    @traced
    def numbers(layout, z, at):
        """Put numbers where the words of two vectors of blocks are, of the first or second row of a pair that
        begin at z[at], or of both; two at a time, so that neither has to wait for itself."""
        row = ROW * (z.lanes if isinstance(layout, LaneGroup) else 1)
        x, y = (join([z.load(at + row * r + z.lanes * n) for n in range(2)]) for r in range(2))
        if z.itemsize == 4:
            x, y = x.bits(types.uint32), y.bits(types.uint32)
        else:
            x, y = (words.bits(types.uint64).to(types.uint32) for words in (x, y))
        made = _pair(x, y, z.dtype)
        for r in rows:
            for n in range(2):
                z.store(at + row * r + z.lanes * n, made[r].part(range(z.lanes * n, z.lanes * (n + 1))))

    return numbers


_first_words, _last_words, _all_words = _make_words((0,)), _make_words((1,)), _make_words((0, 1))
_first_row, _second_row, _both_rows = _make_numbers((0,)), _make_numbers((1,)), _make_numbers((0, 1))


@compiled(apart=True)
def fill_normals(layout, z, numbers, seed, use, step, tile, low, high):
    """The normal numbers of elements low to high - 1 of a tile, and perhaps of others.

    In a group z is (element, lane), and `numbers` are the chains', those in even lanes before those in odd
    ones where there are 16; alone its first is the chain's, and z is (element).

    The words of some blocks come first, and then their numbers: one block at a time, the processor would run
    out of room for what waits for its rounds.
    """
    width = chains_in(layout, z)
    origin = _origin(layout, z, numbers, (seed, u64(use), u64(step), u64(tile)))
    stride = lanes_of(z) // width  # blocks in a vector
    some = min(8 * stride, ROW)
    for chunk in range(0, ROW, some):
        for k in range(chunk, chunk + some, stride):
            begin = k - k % (2 * stride)
            end = begin + 2 * stride
            first = (low < end and high > begin) or (low < end + ROW and high > begin + ROW)
            begin, end = begin + 2 * ROW, end + 2 * ROW
            last = (low < end and high > begin) or (low < end + ROW and high > begin + ROW)
            if first and last:
                _all_words(layout, z, origin, u64(k), k * width)
            elif first:
                _first_words(layout, z, origin, u64(k), k * width)
            elif last:
                _last_words(layout, z, origin, u64(k), k * width)
        for pair in range(chunk, TILE, 2 * ROW):
            for begin in range(pair, pair + some, 2 * stride):
                end = begin + 2 * stride
                first, second = low < end and high > begin, low < end + ROW and high > begin + ROW
                if first and second:
                    _both_rows(layout, z, begin * width)
                elif first:
                    _first_row(layout, z, begin * width)
                elif second:
                    _second_row(layout, z, begin * width)


@traced
def _store_words(layout, z, words, at, row, origin, k):
    for r, word in enumerate(_words(layout, z, origin, k)):
        words.store(at + row * r, word)


@traced
def _store_first(layout, z, words, at, origin, k):
    words.store(at, _words(layout, z, origin, k)[0])


@compiled(apart=True)
def fill_words(layout, z, words, numbers, seed, use, step, tile, count):
    """The 32-bit words of the first `count` elements of a tile, and perhaps of others; see `fill_normals`."""
    width = chains_in(layout, z)
    origin = _origin(layout, z, numbers, (seed, u64(use), u64(step), u64(tile)))
    stride = lanes_of(z) // width
    for k in range(0, min(count, ROW), stride):
        if count <= ROW:
            _store_first(layout, z, words, k * width, origin, u64(k))
        else:
            _store_words(layout, z, words, k * width, ROW * width, origin, u64(k))
