"""Random numbers, each a pure function of where it is used. This page is their definition.

A number has an address: (seed, stream, slot, chain, step, element). There is no state to store and no order
to keep, so any chain, step or slice of elements can be drawn at any time, on any thread, after any resume,
and always gives the same numbers.

**Address.** The seed (64 bits) is the key of Philox4x32. The counter (128 bits, four 32-bit words, lowest
first) holds, from the lowest bit up:

| bits | field | meaning |
| --- | --- | --- |
| 0 to 37 | block | which four elements (see below) |
| 38 to 69 | chain | which trajectory |
| 70 to 109 | step | the step of the word (not of a rotated loop) |
| 110 to 123 | slot | which noise letter of the word as written, or which use within a stream |
| 124 to 127 | stream | what the number is for |

The fields can't overlap, and values out of range raise an error, so two uses never share a number.

**Element.** The position of a parameter among all parameters of the network, in the order of torch's
`parameters_to_vector`, whatever the partition is. A tile of 256 elements takes 64 blocks: element e is lane
(e % 256) // 64 of block 64 (e // 256) + e % 64, so that a tile is four contiguous rows of 64.

**Numbers.** Philox gives a block four 32-bit words x0 to x3, one for each lane. A uniform number is
u = (x + 1/2) 2^-32, never 0 or 1. Normal numbers come in pairs by Box-Muller: lanes 0 and 1 are
r cos φ and r sin φ with r = sqrt(-2 log u0), φ = 2π u1, and lanes 2 and 3 the same from u2, u3. So
|z| <= sqrt(66 log 2) < 6.77.

**Rounds.** Seven, the published minimum at which Philox4x32 passes BigCrush, and what these addresses need:
flipping a bit of the address must flip every bit of the number with probability 1/2. Over 2^25 blocks six
rounds are off by up to 1,600 standard errors, seven and more by no more than chance, and seven take 0.7 times
as long as ten, the common default (`benchmarks/rounds.py`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from heatbath._internal.checks import whole
from heatbath.methods.schedules import MOST_STEPS
from heatbath.methods.splitting import MOST_DRAWS

NOISE, BATCH, START, TEMPERING, VARIANCE, METROPOLIS, TAIL = range(7)
"""The streams: noise letters; mini-batch indices; initial states (slot 0 θ, slot 1 p); tempering moves; the
variance of the data (slots 2k and 2k + 1 for target k); whether a proposal is accepted; the numbers of the
examples where the noise has Student's law (slots 16k to 16k + 15 for target k)."""

ROUNDS = 7
TILE = 256
ATTEMPTS = 64  # at a gamma number
SLOTS = 16  # attempts at a gamma number of each example
ROW = TILE // 4

_BLOCK_BITS, _CHAIN_BITS, _STEP_BITS, SLOT_BITS, _STREAM_BITS = 38, 32, 40, 14, 4
# an address has room for every step of a run and every noise letter of a word
assert MOST_STEPS == 2**_STEP_BITS
assert MOST_DRAWS == 2**SLOT_BITS
MOST_TARGETS = MOST_DRAWS // SLOTS

_LOWER_WORD = np.uint64(0xFFFFFFFF)
_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL = 0x9E3779B9, 0xBB67AE85  # the golden ratio and sqrt(3) - 1, by which the key moves each round

Words = NDArray[np.uint64]
Floats = NDArray[np.float64]


def philox(counter: Words, seed: int, rounds: int = ROUNDS) -> Words:
    """Return the random words of counters by Philox4x32.

    Parameters
    ----------
    counter : array of uint64 (4, ...)
        Four 32-bit words of each counter, lowest first.
    seed : int
        The key, 64 bits.
    rounds : int
        How often the words are mixed.

    Returns
    -------
    array of uint64 (4, ...)
        Four random 32-bit words for each counter.
    """
    x0, x1, x2, x3 = counter
    k0 = seed & 0xFFFFFFFF
    k1 = seed >> 32
    for _ in range(rounds):
        left = x0 * _MULTIPLIERS[0]  # 64-bit products of 32-bit words
        right = x2 * _MULTIPLIERS[1]
        x0 = (right >> np.uint64(32)) ^ x1 ^ np.uint64(k0)
        x1 = right & _LOWER_WORD
        x2 = (left >> np.uint64(32)) ^ x3 ^ np.uint64(k1)
        x3 = left & _LOWER_WORD
        k0 = (k0 + _WEYL[0]) & 0xFFFFFFFF
        k1 = (k1 + _WEYL[1]) & 0xFFFFFFFF
    return np.stack([x0, x1, x2, x3])


def pack(stream: int, slot: int, chain: ArrayLike, step: ArrayLike, block: ArrayLike) -> Words:
    """Return the counters of addresses, with the bits of all fields packed as at the top of this page.

    Parameters
    ----------
    stream, slot : int
        What the numbers are for, and which use of them within the stream.
    chain, step, block : int or array of int
        Broadcast against one another.

    Returns
    -------
    array of uint64 (4, ...)
        Four 32-bit words of each counter, lowest first.

    Raises
    ------
    ValueError
        If a field is negative or too large for its bits.
    """
    stream = whole("stream", stream, low=0, high=2**_STREAM_BITS)
    slot = whole("slot", slot, low=0, high=2**SLOT_BITS)
    chains = _field("chain", chain, _CHAIN_BITS)
    steps = _field("step", step, _STEP_BITS)
    blocks = _field("block", block, _BLOCK_BITS)
    stream_slot = np.uint64(stream << SLOT_BITS | slot)
    low = blocks | chains << np.uint64(38)  # the chain has 26 bits here,
    high = chains >> np.uint64(26) | steps << np.uint64(6) | stream_slot << np.uint64(46)  # and 6 here
    words = low & _LOWER_WORD, low >> np.uint64(32), high & _LOWER_WORD, high >> np.uint64(32)
    return np.stack(np.broadcast_arrays(*words))


def bits(
    seed: int, stream: int, slot: int, chain: ArrayLike, step: ArrayLike, start: int, stop: int
) -> Words:
    """Return the random 32-bit words at elements start to stop - 1.

    Parameters
    ----------
    seed, stream, slot : int
        The key, and the fields of the address.
    chain, step : int or array of int
        Broadcast against each other.
    start, stop : int
        The first element, and the one after the last.

    Returns
    -------
    array of uint64 (..., stop - start)
        The shape of chain and step, then the elements.
    """
    blocks, span = _blocks(start, stop)
    lanes = philox(_counters(stream, slot, chain, step, blocks), _seed(seed))
    return _elements(lanes, span)


def uniforms(
    seed: int, stream: int, slot: int, chain: ArrayLike, step: ArrayLike, start: int, stop: int
) -> Floats:
    """Return uniform numbers in (0, 1) at elements start to stop - 1; arguments and shape as in `bits`."""
    return _unit(bits(seed, stream, slot, chain, step, start, stop))


def normals(
    seed: int, stream: int, slot: int, chain: ArrayLike, step: ArrayLike, start: int, stop: int
) -> Floats:
    """Return standard normal numbers at elements start to stop - 1; arguments and shape as in `bits`.

    Examples
    --------
    >>> from heatbath import noise
    >>> numbers = noise.normals(7, noise.NOISE, 0, chain=3, step=11, start=0, stop=1000)
    >>> part = noise.normals(7, noise.NOISE, 0, chain=3, step=11, start=300, stop=400)
    >>> bool((numbers[300:400] == part).all())
    True
    """
    blocks, span = _blocks(start, stop)
    lanes = philox(_counters(stream, slot, chain, step, blocks), _seed(seed))
    return _elements(box_muller(lanes), span)


def box_muller(lanes: Words) -> Floats:
    """Return four standard normal numbers for the four words of each block, an array (4, ...)."""
    radius = np.sqrt(-2.0 * np.log(_unit(lanes[0::2])))
    angle = 2.0 * np.pi * _unit(lanes[1::2])
    normal = np.empty(lanes.shape)
    normal[0::2] = radius * np.cos(angle)
    normal[1::2] = radius * np.sin(angle)
    return normal


def gammas(shape: float, seed: int, stream: int, slot: int, chain: ArrayLike, step: int) -> Floats:
    """Draw gamma numbers of a shape >= 1, one for each chain, by Marsaglia and Tsang.

    Attempt i takes the normal number of element i in `slot`, and the uniform one in slot + 1.
    """
    chains = np.asarray(chain)
    d = shape - 1 / 3
    c = 1 / np.sqrt(9 * d)
    x = normals(seed, stream, slot, chains, step, 0, ATTEMPTS)
    u = uniforms(seed, stream, slot + 1, chains, step, 0, ATTEMPTS)
    v = (1 + c * x) ** 3
    accepted = _is_gamma_accepted(u, x, v, d)
    accepted[..., -1] = True  # the last of 64 attempts, of which at most one in twenty fails
    first = accepted.argmax(axis=-1)
    return np.asarray(d * np.take_along_axis(v, first[..., None], axis=-1)[..., 0])


def example_gammas(
    shape: ArrayLike, seed: int, stream: int, slot: int, chain: ArrayLike, step: int, count: int
) -> Floats:
    """Draw gamma numbers of shapes > 0, one for each chain and example, by Marsaglia and Tsang.

    Attempt j takes the block of the example in slot + j: a normal number x from words 0 and 1, and the
    uniform u from word 2. It proposes d (1 + c x)³ with d = shape - 1/3, c = 1/√(9d). A shape below 1 is
    drawn as shape + 1, times w^(1/shape) with the uniform w from word 3.

    Parameters
    ----------
    shape : float or array
        Shapes, broadcast against (chains, examples).
    seed, stream, slot, step : int
        The key, and the fields of the address of the first attempt.
    chain : int or array of int (chains)
        The numbers of the chains.
    count : int
        Number of examples.

    Returns
    -------
    array (chains, examples)
    """
    chains = np.asarray(chain)[..., None]
    examples = np.arange(count)
    gamma_numbers = np.full(np.broadcast_shapes(chains.shape, examples.shape), np.nan)  # NaN until accepted
    shapes = np.broadcast_to(np.asarray(shape, np.float64), gamma_numbers.shape)
    is_boosted = shapes < 1
    d = np.where(is_boosted, shapes + 1, shapes) - 1 / 3
    c = 1 / np.sqrt(9 * d)
    for attempt in range(SLOTS):
        words = philox(pack(stream, slot + attempt, chains, step, examples), _seed(seed))
        x = box_muller(words)[0]
        _, _, u, w = _unit(words)
        v = (1 + c * x) ** 3
        proposed = d * v * np.where(is_boosted, w ** (1 / shapes), 1.0)
        is_last = attempt == SLOTS - 1  # the last attempt counts; at most one in twenty fails
        accepted = _is_gamma_accepted(u, x, v, d) | is_last
        gamma_numbers = np.where(np.isnan(gamma_numbers) & accepted, proposed, gamma_numbers)
        if not np.isnan(gamma_numbers).any():
            break
    return gamma_numbers


def _is_gamma_accepted(u: Floats, x: Floats, v: Floats, d: float | Floats) -> NDArray[np.bool_]:
    """Return whether Marsaglia and Tsang accept d v, proposed with a uniform u and a normal x."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((v > 0) & (np.log(u) < 0.5 * x**2 + d - d * v + d * np.log(v)))


def batch(seed: int, chain: int, step: int, count: int, size: int) -> NDArray[np.int64]:
    """Draw the mini-batch of a step: `size` of `count` examples without replacement, by Floyd's algorithm.

    Each subset has the same probability.
    """
    words = bits(seed, BATCH, 0, chain, step, 0, size)
    chosen: list[int] = []
    for last, word in enumerate(words, start=count - size):
        drawn = int(word) * (last + 1) >> 32  # from 0 to last
        example = last if drawn in chosen else drawn
        chosen.append(example)
    return np.array(chosen, dtype=np.int64)


def epoch(seed: int, chain: int, number: int, count: int) -> NDArray[np.int64]:
    """Draw the order of all `count` examples in an epoch, by the algorithm of Fisher and Yates.

    Each order has the same probability.
    """
    words = bits(seed, BATCH, 1, chain, number, 0, count)
    order = np.arange(count)
    for last in range(count - 1, 0, -1):
        position = int(words[last]) * (last + 1) >> 32  # from 0 to last
        order[last], order[position] = order[position], order[last]
    return order


def _unit(words: Words) -> Floats:
    """Return the uniform numbers (x + 1/2) 2^-32 of 32-bit words x."""
    return (words.astype(np.float64) + 0.5) * 2.0**-32


def _blocks(start: int, stop: int) -> tuple[NDArray[np.int64], slice]:
    """Return the blocks (tiles, 64) that hold elements start to stop - 1, and the slice that these are.

    If all are among the first 64 elements, which are the first lanes of 64 blocks, only the blocks up to the
    last one are returned.
    """
    start = whole("start", start, low=0)
    stop = whole("stop", stop, low=start, high=4 * 2**_BLOCK_BITS + 1)
    if stop <= ROW:
        return np.arange(stop)[None], slice(start, stop)
    first = start // TILE
    end = -(-stop // TILE)
    tiles = np.arange(first, max(first, end))
    return ROW * tiles[:, None] + np.arange(ROW), slice(start - first * TILE, stop - first * TILE)


def _counters(stream: int, slot: int, chain: ArrayLike, step: ArrayLike, blocks: NDArray[np.int64]) -> Words:
    """Return the counters (4, ..., tiles, 64) of blocks (tiles, 64), with the shape of chain and step."""
    chains, steps = (np.asarray(value)[..., None, None] for value in (chain, step))
    return pack(stream, slot, chains, steps, blocks)


def _elements(lanes: NDArray[Any], span: slice) -> NDArray[Any]:
    """Return lanes (4, ..., tiles, 64) as elements (..., element) in their order, cut to a span."""
    rows = np.moveaxis(lanes, 0, -2)
    return rows.reshape(*rows.shape[:-3], -1)[..., span]


def _seed(seed: int) -> int:
    """Return a seed after checking that it has at most 64 bits."""
    return whole("seed", seed, low=0, high=2**64)


def _field(name: str, values: ArrayLike, width: int) -> Words:
    """Return the values of a field of an address as uint64, after checking that they fit its bits."""
    array = np.asarray(values)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} must be a whole number or an array of them, got {array.dtype}")
    if array.size and (array.min() < 0 or int(array.max()) >= 2**width):
        raise ValueError(f"{name} must be from 0 to 2^{width} - 1, got {array.min()} to {array.max()}")
    return array.astype(np.uint64)
