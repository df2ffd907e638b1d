"""The random numbers that `heatbath.noise` defines, compiled: for one chain, or for a group in lanes.

Philox works on 32-bit words in 64-bit lanes, since a product has 64 bits; the upper half of a word's lane is
never used. Most of the four words of an address are the same in all lanes, so the first rounds mostly work on
numbers and not on vectors. What is the same for all blocks of a tile is computed once.

In float32 the normal numbers come from polynomials through Chebyshev nodes, which differ from the definition
by no more than the format does.

Letters: x0 to x3 are the words of a block, k0 and k1 those of Philox's key, and `stream_slot` is the stream
and slot of an address in one number, stream << 14 | slot.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numba import types

from heatbath.engine.compile import compiled
from heatbath.engine.layouts import LaneGroup, chains_in
from heatbath.engine.simd import (
    Traced,
    TracedArray,
    concatenate,
    fma,
    lanes_of,
    log,
    polynomial,
    select,
    sqrt,
    traced,
)
from heatbath.reference.random import ROUNDS, ROW, TILE

u64 = np.uint64
_LOWER_WORD = 0xFFFFFFFF

# Polynomials computed in 40 digits. -2 log(1 + s)/s for 1 + s from √½ to √2, to 3e-8
_LOG = (
    -1.99999994826, 0.999999927642, -0.666683865723, 0.50002704371, -0.399118667168, 0.331559857936,
    -0.299548025603, 0.285385164124, -0.17066626166,
)  # fmt: skip
# With f in turns, |f| <= 1/4, in powers of f²: sin(2πf)/f to 7e-9 and 2e-21, cos(2πf) to 3e-10 and 9e-24
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


def _multiply(x0: Traced, x2: Traced) -> tuple[Traced, Traced]:
    """Return the 64-bit products of two words with Philox's multipliers."""
    return (x0 & _LOWER_WORD) * 0xD2511F53, (x2 & _LOWER_WORD) * 0xCD9E8D57


def _all_but_last_round(x: tuple[Traced, ...], k0: Traced, k1: Traced) -> tuple[list[Traced], Traced, Traced]:
    """Run all rounds of Philox but the last on the words of a block.

    Returns what the last round needs: its two products, the words x1 and x3 (in lower halves), and the key.
    """
    x0, x1, x2, x3 = x
    for _ in range(ROUNDS - 1):
        left, right = _multiply(x0, x2)
        x0, x2 = (right >> 32) ^ (x1 ^ k0), (left >> 32) ^ (x3 ^ k1)
        x1, x3 = right, left
        k0, k1 = k0 + 0x9E3779B9, k1 + 0xBB67AE85
    return [*_multiply(x0, x2), x1, x3], k0, k1


class TileAddress(NamedTuple):
    """Where the numbers of a tile are in the random stream; all are uint64 numbers."""

    seed: Any
    stream_slot: Any
    step: Any
    tile: Any


@traced
def _tile_counter(layout, like, chain_numbers, address):
    """Return Philox's key and the counter at the first block of a tile: (k0, k1, x0, x2, x3, x1, ...).

    The second word x1 comes last: several vectors of 64-bit lanes that together make up the lanes of a group,
    or one number. This is computed once, before the loop over blocks.
    """
    high = address.step << 6 | address.stream_slot << 46
    first_block = address.tile * ROW  # the blocks of a tile differ in the lowest word only
    chain = chain_numbers.load_number(0)
    shared = (
        address.seed & _LOWER_WORD, address.seed >> 32, first_block, high | chain >> 26, high >> 32,
    )  # fmt: skip
    if not isinstance(layout, LaneGroup):
        return *shared, chain << 6 | first_block >> 32
    chains = [chain_numbers.load(8 * half) for half in range(like.lanes // 8)]  # alike from bit 26 on
    return *shared, *(chain << 6 | first_block >> 32 for chain in chains)


def _philox_words(
    layout: object, like: TracedArray, counter: tuple[Traced, ...], block: Traced
) -> list[Traced]:
    """Return the four words of a block of each chain, or of consecutive blocks of a chain alone.

    Each is a vector of uint32 with as many lanes as `like`'s. Where these are 16, lanes alternate between two
    vectors of 64-bit lanes, and the last round is done after the two have been interleaved.
    """
    k0, k1, first_block, x2, x3, *x1 = counter
    x0 = first_block | block
    stride = like.lanes // 8
    if isinstance(layout, LaneGroup):
        counters: list[tuple[Traced, ...]] = [(x0, chain, x2, x3) for chain in x1]
    else:
        wide = x0.splat(8)
        blocks = [wide + wide.constant(range(half, like.lanes, stride)) for half in range(stride)]
        counters = [(x0, *x1, x2, x3) for x0 in blocks]
    states = [_all_but_last_round(words, k0, k1) for words in counters]
    k0, k1 = (key.convert(types.uint32) for key in states[0][1:])
    halves = [[word.bitcast(types.uint32) for word in state[0]] for state in states]

    def interleave(word: int, upper: int) -> Traced:
        indices = [2 * (i // stride) + upper + 16 * (i % stride) for i in range(like.lanes)]
        return halves[0][word].shuffle(indices, halves[-1][word])

    left, right = (interleave(word, 1) for word in (0, 1))
    lower = [interleave(word, 0) for word in range(4)]
    return [right ^ (lower[2] ^ k0), lower[1], left ^ (lower[3] ^ k1), lower[0]]


def _box_muller(x: Traced, y: Traced, dtype: types.Float) -> tuple[Traced, Traced]:
    """Return two normal numbers from two words: x gives the radius, y the angle."""
    if dtype == types.float32:
        # sqrt(-2 log u), u = (x + 1/2) 2^-32; above √½ from 1 - u, which keeps its digits
        near_one = x > 0xB504F333
        w = fma(select(near_one, x ^ _LOWER_WORD, x).convert(dtype), 2.0**-32, 2.0**-33)
        bits = w.bitcast(types.int32)
        e = (bits - 0x3F3504F3) >> 23  # u = 2^e m with m from √½ to √2
        s = select(near_one, -w, (bits - (e << 23)).bitcast(dtype) - 1.0)
        exponent = select(near_one, e.constant(0), e).convert(dtype)
        radius = sqrt(fma(polynomial(s, _LOG), s, exponent * (-2.0 * math.log(2.0))))
    else:
        radius = sqrt(log(fma(x.convert(dtype), 2.0**-32, 2.0**-33)) * -2.0)
    # the angle f in turns from the nearest half turn, up to a sign
    f = fma((y << 1).bitcast(types.int32).convert(dtype), 2.0**-33, 2.0**-33)
    square = f * f
    sin, cos = f * polynomial(square, _SIN[dtype]), polynomial(square, _COS[dtype])
    radius = select((y + 0x40000000).bitcast(types.int32) < 0, -radius, radius)
    return radius * cos, radius * sin


def _make_store_words(pairs: Sequence[int]) -> Any:
    """Return a compiled function that stores the words of a vector of blocks, for these pairs of rows."""

    @traced
    def store_words(layout, z, counter, block, index):
        """Store words from z[index] on, where their normal numbers will be, in the bits of z's numbers."""
        row_size = ROW * (z.lanes if isinstance(layout, LaneGroup) else 1)
        words = _philox_words(layout, z, counter, block)
        for row in (2 * pair + i for pair in pairs for i in range(2)):
            word = words[row] if z.itemsize == 4 else words[row].convert(types.uint64)
            z.store(index + row * row_size, word.bitcast(z.dtype))

    return store_words


def _make_words_to_normals(rows: Sequence[int]) -> Any:
    """Return a compiled function that replaces words by normal numbers in row 0, in row 1 or in both.

    It works on two vectors at a time, so that neither has to wait for itself.
    """

    @traced
    def words_to_normals(layout, z, index):
        """Replace two vectors of words in each row of a pair, the first of which begins at z[index]."""
        row_size = ROW * (z.lanes if isinstance(layout, LaneGroup) else 1)
        x, y = (
            concatenate([z.load(index + row_size * row + z.lanes * n) for n in range(2)]) for row in range(2)
        )
        if z.itemsize == 4:
            x, y = x.bitcast(types.uint32), y.bitcast(types.uint32)
        else:
            x, y = (words.bitcast(types.uint64).convert(types.uint32) for words in (x, y))
        normals = _box_muller(x, y, z.dtype)
        for row in rows:
            for n in range(2):
                vector = normals[row].shuffle(range(z.lanes * n, z.lanes * (n + 1)))
                z.store(index + row_size * row + z.lanes * n, vector)

    return words_to_normals


_store_first_pair, _store_second_pair = _make_store_words((0,)), _make_store_words((1,))
_store_both_pairs = _make_store_words((0, 1))
_first_row_to_normals, _second_row_to_normals = _make_words_to_normals((0,)), _make_words_to_normals((1,))
_both_rows_to_normals = _make_words_to_normals((0, 1))


@compiled
def _overlaps_pair(low, high, start, stop):
    """Return whether elements low to high - 1 lie among start to stop - 1 in either row of a pair of rows."""
    return (low < stop and high > start) or (low < stop + ROW and high > start + ROW)


@compiled(apart=True)
def fill_normals(layout, z, chain_numbers, seed, stream_slot, step, tile, low, high):
    """Write the normal numbers of elements low to high - 1 of a tile to z, and perhaps those of others.

    For a group, z is (element, lane); for a chain alone it is (element). `chain_numbers` points to the
    chains' numbers, where a chain alone has the first. A group with 16 lanes has those in even lanes before
    those in odd lanes.

    The words of some blocks come first, and then their numbers: with one block at a time, the processor would
    run out of registers while it waits for the rounds.
    """
    group_size = chains_in(layout, z)
    address = TileAddress(seed, u64(stream_slot), u64(step), u64(tile))
    counter = _tile_counter(layout, z, chain_numbers, address)
    stride = lanes_of(z) // group_size  # blocks in a vector
    chunk_size = min(8 * stride, ROW)
    for chunk in range(0, ROW, chunk_size):
        for block in range(chunk, chunk + chunk_size, stride):
            start = block - block % (2 * stride)
            first = _overlaps_pair(low, high, start, start + 2 * stride)
            second = _overlaps_pair(low, high, start + 2 * ROW, start + 2 * ROW + 2 * stride)
            if first and second:
                _store_both_pairs(layout, z, counter, u64(block), block * group_size)
            elif first:
                _store_first_pair(layout, z, counter, u64(block), block * group_size)
            elif second:
                _store_second_pair(layout, z, counter, u64(block), block * group_size)
        for pair in range(chunk, TILE, 2 * ROW):
            for start in range(pair, pair + chunk_size, 2 * stride):
                stop = start + 2 * stride
                first = low < stop and high > start
                second = low < stop + ROW and high > start + ROW
                if first and second:
                    _both_rows_to_normals(layout, z, start * group_size)
                elif first:
                    _first_row_to_normals(layout, z, start * group_size)
                elif second:
                    _second_row_to_normals(layout, z, start * group_size)


@traced
def _store_all_words(layout, like, words, index, row_size, counter, block):
    """Store the four words of blocks from words[index] on, `row_size` numbers apart."""
    for row, word in enumerate(_philox_words(layout, like, counter, block)):
        words.store(index + row_size * row, word)


@traced
def _store_first_words(layout, like, words, index, counter, block):
    """Store the first word of blocks from words[index] on."""
    words.store(index, _philox_words(layout, like, counter, block)[0])


@compiled(apart=True)
def fill_words(layout, like, words, chain_numbers, seed, stream_slot, step, tile, count):
    """Write the random uint32 words of the first `count` elements of a tile to `words`, and perhaps more.

    `words` is (element, lane) for a group and (element) for a chain alone; the layout is that of numbers like
    those that `like` points to. `chain_numbers` is as in `fill_normals`.
    """
    group_size = chains_in(layout, like)
    address = TileAddress(seed, u64(stream_slot), u64(step), u64(tile))
    counter = _tile_counter(layout, like, chain_numbers, address)
    stride = lanes_of(like) // group_size
    for block in range(0, min(count, ROW), stride):
        index = block * group_size
        if count <= ROW:
            _store_first_words(layout, like, words, index, counter, u64(block))
        else:
            _store_all_words(layout, like, words, index, ROW * group_size, counter, u64(block))
