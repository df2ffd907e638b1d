"""Tiles of the random numbers that `heatbath.noise` defines, compiled.

A tile is 256 numbers: four rows of 64, one row for each lane of 64 blocks. Everything is written for vectors:
integer rounds and polynomials without branches or calls, values kept in 32 bits by casts (Numba would widen
them). float64 evaluates the definition itself with the library's log, cos and sin.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from heatbath.engine.compile import FASTMATH, compiled
from heatbath.engine.views import vector
from heatbath.noise import ROUNDS, ROW

u32, u64, i32, f32, f64 = np.uint32, np.uint64, np.int32, np.float32, np.float64

# Polynomials of degree 8, 3 and 4 through Chebyshev nodes, computed in 40 digits:
# (log(1 + s) - s + s²/2)/s³ for 1 + s from √½ to √2, to 3e-8, and with f in turns, |f| <= 1/8, sin(2πf)/f in
# powers of f² to 2e-8 and cos(2πf) to 5e-11
_LOG = tuple(
    map(
        f32,
        (
            0.3333333118,
            -0.24999996958,
            0.200007157489,
            -0.166678023195,
            0.142490576457,
            -0.124256873315,
            0.116854199235,
            -0.114797338466,
            0.0697161147145,
        ),
    )
)
_SIN = tuple(map(f32, (6.28318528781, -41.3416625705, 81.5925428713, -75.4016127027)))
_COS = tuple(map(f32, (0.999999999952, -19.7392086501, 64.9393161357, -85.4428446731, 59.2201689583)))
_LN2 = f32(np.log(2.0))


def _float_to_bits(typing_context: Any, value: Any) -> Any:
    """The 32 bits of a float32."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.uint32(types.float32), codegen


def _bits_to_float(typing_context: Any, value: Any) -> Any:
    """The float32 with these 32 bits."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.uint32), codegen


_float_bits: Any = intrinsic(_float_to_bits)
_bits_float: Any = intrinsic(_bits_to_float)


@compiled
def _philox(x0, x1, x2, x3, k0, k1):
    for _ in range(ROUNDS):
        left = u64(x0) * u64(0xD2511F53)
        right = u64(x2) * u64(0xCD9E8D57)
        x0 = u32(u32(right >> u64(32)) ^ x1 ^ k0)
        x2 = u32(u32(left >> u64(32)) ^ x3 ^ k1)
        x1, x3 = u32(right), u32(left)
        k0, k1 = u32(k0 + u32(0x9E3779B9)), u32(k1 + u32(0xBB67AE85))
    return x0, x1, x2, x3


@compiled
def fill_words(words, seed, use, chain, step, tile):
    """The 32-bit words (4, 64) of a tile; `use` is stream * 2**14 + slot."""
    k0, k1 = u32(seed), u32(seed >> u64(32))
    low = u64(ROW) * u64(tile) | u64(chain) << u64(38)
    high = u64(chain) >> u64(26) | u64(step) << u64(6) | u64(use) << u64(46)
    c0, c1, c2, c3 = u32(low), u32(low >> u64(32)), u32(high), u32(high >> u64(32))
    for j in range(ROW):  # 64 consecutive blocks differ in the lowest word only
        x0, x1, x2, x3 = _philox(u32(c0 + u32(j)), c1, c2, c3, k0, k1)
        words[0, j] = x0
        words[1, j] = x1
        words[2, j] = x2
        words[3, j] = x3


@compiled(fastmath=FASTMATH)
def _radius32(x):
    """sqrt(-2 log u), u = (x + 1/2) 2^-32; above 1/2 from 1 - u, which keeps its digits."""
    small = x < u32(0x80000000)
    y = x if small else u32(~x)
    half = f32(y) + f32(0.5)
    # u = 2^e m with m from √½ to √2, for u below 1/2
    bits = _float_bits(half)
    e = i32(bits >> u32(23)) - i32(127 + 32)
    m = _bits_float(u32(bits & u32(0x007FFFFF) | u32(0x3F800000)))
    large = m > f32(1.41421356)
    m = m * f32(0.5) if large else m
    e = e + i32(1) if large else e
    # and for u = 1 - v above: itself, or half of 2 - 2 v
    v = half * f32(2.0**-32)
    near = v < f32(0.29289322)
    s_high = -v if near else f32(1.0) - f32(2.0) * v
    e_high = f32(0.0) if near else f32(-1.0)
    s = m - f32(1.0) if small else s_high
    exponent = f32(e) if small else e_high
    tail = _LOG[8]
    tail = tail * s + _LOG[7]
    tail = tail * s + _LOG[6]
    tail = tail * s + _LOG[5]
    tail = tail * s + _LOG[4]
    tail = tail * s + _LOG[3]
    tail = tail * s + _LOG[2]
    tail = tail * s + _LOG[1]
    tail = tail * s + _LOG[0]
    log = s + (s * s) * (tail * s - f32(0.5)) + exponent * _LN2
    return np.sqrt(f32(-2.0) * log)


@compiled(fastmath=FASTMATH)
def _cos_sin32(x):
    """cos and sin of 2π (x + 1/2) 2^-32, from the nearest quarter turn."""
    quarter = u32(u32(x + u32(0x20000000)) >> u32(30))
    rest = i32(u32(x - u32(quarter << u32(30))))
    f = (f32(rest) + f32(0.5)) * f32(2.0**-32)
    q = f * f
    sin = f * (((_SIN[3] * q + _SIN[2]) * q + _SIN[1]) * q + _SIN[0])
    cos = (((_COS[4] * q + _COS[3]) * q + _COS[2]) * q + _COS[1]) * q + _COS[0]
    swap = (quarter & u32(1)) != u32(0)
    c = sin if swap else cos
    s = cos if swap else sin
    c = -c if (u32(quarter + u32(1)) & u32(2)) != u32(0) else c
    s = -s if (quarter & u32(2)) != u32(0) else s
    return c, s


@compiled(fastmath=FASTMATH)
def fill_half32(z, words, half):
    """The numbers of half a tile, two rows of 64, from its words."""
    first, second = vector(z, 2 * half * ROW, ROW), vector(z, (2 * half + 1) * ROW, ROW)
    radii, angles = words[2 * half], words[2 * half + 1]
    for j in range(ROW):
        radius = _radius32(radii[j])
        cos, sin = _cos_sin32(angles[j])
        first[j] = radius * cos
        second[j] = radius * sin


@compiled
def fill_half64(z, words, half):
    """The numbers of half a tile in float64."""
    for j in range(ROW):
        radius = np.sqrt(-2.0 * np.log((f64(words[2 * half, j]) + 0.5) * 2.0**-32))
        angle = 2.0 * np.pi * ((f64(words[2 * half + 1, j]) + 0.5) * 2.0**-32)
        z[2 * half * ROW + j] = radius * np.cos(angle)
        z[(2 * half + 1) * ROW + j] = radius * np.sin(angle)


@compiled(fastmath=FASTMATH)
def fill_normals32(z, words, seed, use, chain, step, tile, low=0, high=256):
    """The normal numbers of a tile in float32; `words` (4, 64) is room to work in.

    Of the tile's two halves (the two pairs of lanes), those are filled that `low` to `high` - 1 reach into.
    """
    fill_words(words, seed, use, chain, step, tile)
    for half in range(low // (2 * ROW), (high - 1) // (2 * ROW) + 1):
        fill_half32(z, words, half)


@compiled
def fill_normals64(z, words, seed, use, chain, step, tile, low=0, high=256):
    """The normal numbers of a tile in float64."""
    fill_words(words, seed, use, chain, step, tile)
    for half in range(low // (2 * ROW), (high - 1) // (2 * ROW) + 1):
        fill_half64(z, words, half)
