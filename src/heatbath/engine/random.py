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
    """The address of a tile of random numbers, without the chain; all fields are uint64 numbers."""

    seed: Any
    stream_slot: Any
    step: Any
    tile: Any


@traced
def _tile_counter(layout, like, chain_numbers, address):
    """Return Philox's key and the counter at the first block of a tile: (k0, k1, x0, x2, x3, x1, ...).

    The word x1 has the chain, and comes last: one number, or for a group several vectors of 64-bit lanes that
    together make up its lanes. All this is computed once, before the loop over blocks, which differ in x0.

    Parameters
    ----------
    layout : Layout
    like : TracedArray
        Numbers of the precision of the chains.
    chain_numbers : TracedArray
        The chains' numbers, as in `fill_normals`.
    address : TileAddress
    """
    high = address.step << 6 | address.stream_slot << 46
    first_block = address.tile * ROW
    chain = chain_numbers.load_number(0)
    k0, k1 = address.seed & _LOWER_WORD, address.seed >> 32
    x2, x3 = high | chain >> 26, high >> 32
    chains = [chain]
    if isinstance(layout, LaneGroup):  # alike from bit 26 on
        chains = [chain_numbers.load(8 * half) for half in range(like.lanes // 8)]
    return k0, k1, first_block, x2, x3, *(chain << 6 | first_block >> 32 for chain in chains)


def _philox_words(
    layout: object, like: TracedArray, counter: tuple[Traced, ...], block: Traced
) -> list[Traced]:
    """Return the four words of a block of each chain, or of consecutive blocks of a chain alone.

    Each is a vector of uint32 with as many lanes as a vector of chains. Where these are 16, lanes alternate
    between two vectors of 64-bit lanes, and the last round is done after the two have been interleaved.

    Parameters
    ----------
    layout : Layout
    like : TracedArray
        Numbers of the precision of the chains.
    counter : tuple
        The fields of `_tile_counter`.
    block : Traced
        The block in the tile, or the first of them.
    """
    k0, k1, first_block, x2, x3, *chains = counter
    x0 = first_block | block
    stride = like.lanes // 8  # vectors of 64-bit lanes
    if isinstance(layout, LaneGroup):
        counters: list[tuple[Traced, ...]] = [(x0, chain, x2, x3) for chain in chains]
    else:
        wide = x0.splat(8)
        blocks = [wide + wide.constant(range(half, like.lanes, stride)) for half in range(stride)]
        counters = [(x0, *chains, x2, x3) for x0 in blocks]

    states = [_all_but_last_round(words, k0, k1) for words in counters]
    k0, k1 = (key.convert(types.uint32) for key in states[0][1:])
    halves = [[word.bitcast(types.uint32) for word in state[0]] for state in states]
    lanes = range(like.lanes)
    lower_halves = [2 * (lane // stride) + 16 * (lane % stride) for lane in lanes]
    upper_halves = [index + 1 for index in lower_halves]

    left, right = (halves[0][word].shuffle(upper_halves, halves[-1][word]) for word in (0, 1))
    lower = [halves[0][word].shuffle(lower_halves, halves[-1][word]) for word in range(4)]
    return [right ^ (lower[2] ^ k0), lower[1], left ^ (lower[3] ^ k1), lower[0]]


def _radius_float32(x: Traced) -> Traced:
    """Return sqrt(-2 log u) with u = (x + 1/2) 2^-32 for words x.

    u = 2^e (1 + s) with 1 + s from √½ to √2. Above √½, s = -(1 - u) is computed from the complement of x,
    which keeps its digits.
    """
    near_one = x > 0xB504F333
    w = fma(select(near_one, x ^ _LOWER_WORD, x).convert(types.float32), 2.0**-32, 2.0**-33)  # u or 1 - u
    bits = w.bitcast(types.int32)
    e = (bits - 0x3F3504F3) >> 23  # 0x3F3504F3 are the bits of √½, and 23 are those of the mantissa
    s = select(near_one, -w, (bits - (e << 23)).bitcast(types.float32) - 1.0)
    exponent = select(near_one, e.constant(0), e).convert(types.float32)
    return sqrt(fma(polynomial(s, _LOG), s, exponent * (-2.0 * math.log(2.0))))


def _box_muller(x: Traced, y: Traced, dtype: types.Float) -> tuple[Traced, Traced]:
    """Return two vectors of normal numbers from two vectors of words, by Box and Muller.

    The words x give the radius sqrt(-2 log u), and the words y give the angle 2πf.
    """
    if dtype == types.float32:
        radius = _radius_float32(x)
    else:
        radius = sqrt(log(fma(x.convert(dtype), 2.0**-32, 2.0**-33)) * -2.0)

    f = fma((y << 1).bitcast(types.int32).convert(dtype), 2.0**-33, 2.0**-33)  # from the nearest half turn
    square = f * f
    sin, cos = f * polynomial(square, _SIN[dtype]), polynomial(square, _COS[dtype])
    is_beyond_half = (y + 0x40000000).bitcast(types.int32) < 0  # nearest to half a turn: the sign changes
    radius = select(is_beyond_half, -radius, radius)
    return radius * cos, radius * sin


def _make_store_words(rows: Sequence[int]) -> Any:
    """Return a compiled function that stores the words of a vector of blocks, for some of the four rows."""

    @traced
    def store_words(layout, z, counter, block, index):
        """Store words from z[index] on, where their normal numbers will be, in the bits of z's numbers.

        The arguments are as in `_philox_words`, with z for `like`.
        """
        words = _philox_words(layout, z, counter, block)
        for row in rows:
            word = words[row]
            if z.dtype == types.float64:
                word = word.convert(types.uint64)
            z.store(index + row * _row_size(layout, z), word.bitcast(z.dtype))

    return store_words


def _row_size(layout: object, z: TracedArray) -> int:
    """Return how many numbers a row of a tile takes: ROW of each chain."""
    return ROW * z.lanes if isinstance(layout, LaneGroup) else ROW


def _make_words_to_normals(rows: Sequence[int]) -> Any:
    """Return a compiled function that replaces words by normal numbers in row 0, in row 1 or in both.

    It works on two vectors at a time, so that neither has to wait for itself.
    """

    @traced
    def words_to_normals(layout, z, index):
        """Replace words by normal numbers, in place, in two vectors of each row of a pair.

        `z` is (element, lane) or (element), and the words of row 0 begin at z[index].
        """
        lanes = z.lanes
        row_starts = [index, index + _row_size(layout, z)]
        x, y = (_load_words(z, start) for start in row_starts)
        normals = _box_muller(x, y, z.dtype)
        for row in rows:
            for half in (0, lanes):
                vector = normals[row].shuffle(range(half, half + lanes))
                z.store(row_starts[row] + half, vector)

    return words_to_normals


def _load_words(z: TracedArray, start: Traced) -> Traced:
    """Return the words that two vectors of z hold in their bits, from z[start] on."""
    numbers = concatenate([z.load(start), z.load(start + z.lanes)])
    if z.dtype == types.float64:
        return numbers.bitcast(types.uint64).convert(types.uint32)
    return numbers.bitcast(types.uint32)


_store_first_pair, _store_second_pair = _make_store_words((0, 1)), _make_store_words((2, 3))
_store_both_pairs = _make_store_words(range(4))
_first_row_to_normals, _second_row_to_normals = _make_words_to_normals((0,)), _make_words_to_normals((1,))
_both_rows_to_normals = _make_words_to_normals((0, 1))


@compiled
def _needed_rows(low, high, start, stop):
    """Return whether elements low to high - 1 lie among start to stop - 1, in this row and in the next."""
    return low < stop and high > start, low < stop + ROW and high > start + ROW


@compiled
def _store_words_of_chunk(layout, z, counter, low, high, chunk, chunk_size):
    """Store the words of blocks chunk to chunk + chunk_size - 1 in z, for pairs of rows with elements needed.

    The other arguments are as in `fill_normals`, with the tile's counter.
    """
    group_size = chains_in(layout, z)
    stride = lanes_of(z) // group_size  # blocks in a vector
    for block in range(chunk, chunk + chunk_size, stride):
        start = block - block % (2 * stride)
        stop = start + 2 * stride
        row0, row1 = _needed_rows(low, high, start, stop)
        row2, row3 = _needed_rows(low, high, start + 2 * ROW, stop + 2 * ROW)
        needs_first_pair = row0 or row1
        needs_second_pair = row2 or row3
        index = block * group_size
        if needs_first_pair and needs_second_pair:
            _store_both_pairs(layout, z, counter, u64(block), index)
        elif needs_first_pair:
            _store_first_pair(layout, z, counter, u64(block), index)
        elif needs_second_pair:
            _store_second_pair(layout, z, counter, u64(block), index)


@compiled
def _convert_words_of_chunk(layout, z, low, high, chunk, chunk_size):
    """Replace the words of blocks chunk to chunk + chunk_size - 1 in z by normal numbers, where needed.

    The arguments are as in `fill_normals`.
    """
    group_size = chains_in(layout, z)
    step = 2 * lanes_of(z) // group_size  # blocks in two vectors
    for pair in range(chunk, TILE, 2 * ROW):
        for start in range(pair, pair + chunk_size, step):
            needs_first_row, needs_second_row = _needed_rows(low, high, start, start + step)
            if needs_first_row and needs_second_row:
                _both_rows_to_normals(layout, z, start * group_size)
            elif needs_first_row:
                _first_row_to_normals(layout, z, start * group_size)
            elif needs_second_row:
                _second_row_to_normals(layout, z, start * group_size)


@compiled(apart=True)
def fill_normals(layout, z, chain_numbers, seed, stream_slot, step, tile, low, high):
    """Write the normal numbers of elements low to high - 1 of a tile to z, and perhaps those of others.

    The words of some blocks come first, and then their numbers: with one block at a time, the processor would
    run out of registers while it waits for the rounds.

    Parameters
    ----------
    layout : Layout
    z : pointer to (element, lane) for a group, or (element) for a chain alone
        Room for a whole tile.
    chain_numbers : pointer to uint64
        The chains' numbers; a chain alone has the first. A group with 16 lanes has those in even lanes before
        those in odd lanes.
    seed, stream_slot, step, tile : int
        The address of the tile, with stream_slot = stream << 14 | slot.
    low, high : int
        The elements that are needed, from 0 to TILE.
    """
    address = TileAddress(seed, u64(stream_slot), u64(step), u64(tile))
    counter = _tile_counter(layout, z, chain_numbers, address)
    blocks_in_vector = lanes_of(z) // chains_in(layout, z)
    chunk_size = min(8 * blocks_in_vector, ROW)
    for chunk in range(0, ROW, chunk_size):
        _store_words_of_chunk(layout, z, counter, low, high, chunk, chunk_size)
        _convert_words_of_chunk(layout, z, low, high, chunk, chunk_size)


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

    Parameters
    ----------
    layout : Layout
    like : pointer to numbers of the precision of the chains
    words : pointer to uint32 (element, lane) for a group, or (element) for a chain alone
        Room for a whole tile.
    chain_numbers, seed, stream_slot, step, tile
        As in `fill_normals`.
    count : int
        How many elements are needed.
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
