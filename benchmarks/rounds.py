"""How many rounds Philox needs for these addresses, and what they cost.

For each number of rounds: how far flipping a bit of the address leaves the flips of the output's bits from a
fair coin (the worst of 128 output bits, in standard errors: chance gives about 3), and the time to make
random words, relative to ten rounds, as medians of interleaved repeats in one run on one core.
"""

import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

BLOCKS = 2**25
ADDRESS_BITS = {"block 33": 33, "chain 0": 38, "step 0": 70, "step 26": 96, "slot 0": 110, "stream 0": 124}
TILES, REPEATS = 20_000, 15


def kernels(rounds: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Compiled for a number of rounds: counts of flips, and words made tile by tile."""

    @numba.njit(inline="always")
    def philox(x0, x1, x2, x3, k0, k1):
        for _ in range(rounds):
            left = np.uint64(x0) * np.uint64(0xD2511F53)
            right = np.uint64(x2) * np.uint64(0xCD9E8D57)
            x0 = np.uint32(np.uint32(right >> np.uint64(32)) ^ x1 ^ k0)
            x2 = np.uint32(np.uint32(left >> np.uint64(32)) ^ x3 ^ k1)
            x1, x3 = np.uint32(right), np.uint32(left)
            k0, k1 = np.uint32(k0 + np.uint32(0x9E3779B9)), np.uint32(k1 + np.uint32(0xBB67AE85))
        return x0, x1, x2, x3

    @numba.njit
    def count_flips(flip, blocks, counts):
        k0, k1, one = np.uint32(12345), np.uint32(77), np.uint32(1)
        for j in range(blocks):
            x0, x1, x2, x3 = np.uint32(j), np.uint32(0), np.uint32(64), np.uint32(0)
            before = philox(x0, x1, x2, x3, k0, k1)
            x0, x1 = np.uint32(x0 ^ flip[0]), np.uint32(x1 ^ flip[1])
            x2, x3 = np.uint32(x2 ^ flip[2]), np.uint32(x3 ^ flip[3])
            after = philox(x0, x1, x2, x3, k0, k1)
            for lane in range(4):
                changed = before[lane] ^ after[lane]
                for i in range(32):
                    counts[lane, i] += (changed >> np.uint32(i)) & one

    @numba.njit
    def make(words, tiles):
        k0, k1 = np.uint32(12345), np.uint32(77)
        for tile in range(tiles):
            for j in range(64):
                x0, x1, x2, x3 = philox(
                    np.uint32(64 * tile + j), np.uint32(0), np.uint32(64), np.uint32(0), k0, k1
                )
                words[0, j] ^= x0
                words[1, j] ^= x1
                words[2, j] ^= x2
                words[3, j] ^= x3

    return count_flips, make


def worst_bias(count_flips: Callable[..., Any], bit: int) -> float:
    """Return the largest deviation of a flipped output bit from a fair coin, in standard errors."""
    flip = np.zeros(4, dtype=np.uint32)
    flip[bit // 32] = 1 << bit % 32
    counts = np.zeros((4, 32), dtype=np.int64)
    count_flips(flip, BLOCKS, counts)
    return float(np.abs(counts - BLOCKS / 2).max() / math.sqrt(BLOCKS / 4))


def main() -> None:
    """Print the table."""
    compiled = {rounds: kernels(rounds) for rounds in (6, 7, 8, 10)}
    words = np.zeros((4, 64), dtype=np.uint32)
    seconds: dict[int, list[float]] = {rounds: [] for rounds in compiled}
    for _ in range(REPEATS + 1):  # the first compiles
        for rounds, (_, make) in compiled.items():
            begin = time.perf_counter()
            make(words, TILES)
            seconds[rounds].append(time.perf_counter() - begin)
    medians = {rounds: statistics.median(times[1:]) for rounds, times in seconds.items()}

    print(f"worst bias over {BLOCKS:,} blocks, in standard errors, when one bit of the address is flipped\n")
    print("rounds  " + "".join(f"{name:>11}" for name in ADDRESS_BITS) + f"{'time / that of 10':>21}")
    for rounds, (count_flips, _) in compiled.items():
        biases = "".join(f"{worst_bias(count_flips, bit):>11.1f}" for bit in ADDRESS_BITS.values())
        print(f"{rounds:>6}  {biases}{medians[rounds] / medians[10]:>21.2f}", flush=True)


if __name__ == "__main__":
    main()
