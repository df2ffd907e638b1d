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

# Polynomials through Chebyshev nodes, computed in 40 digits: -2 log(1 + s)/s for 1 + s from √½ to √2 to 3e-8,
# and, with f in turns, |f| <= 1/4, in powers of f²: sin(2πf)/f to 7e-9 and cos(2πf) to 3e-10
_LOG = tuple(
    map(
        f32,
        (
            -1.99999994826,
            0.999999927642,
            -0.666683865723,
            0.50002704371,
            -0.399118667168,
            0.331559857936,
            -0.299548025603,
            0.285385164124,
            -0.17066626166,
        ),
    )
)
_SIN = tuple(map(f32, (6.28318528015, -41.3416806133, 81.6024763689, -76.5811726443, 39.7598270853)))
_COS = tuple(
    map(f32, (0.999999999779, -19.7392085477, 64.9393464762, -85.453564761, 60.1438895603, -24.9814344679))
)
_LN4, _UNIT, _HALF = f32(2.0 * np.log(2.0)), f32(2.0**-32), f32(2.0**-33)
_NEAR = u32(0xB504F333)  # √½ in units of 2^-32
_ROOT = u32(0x3F3504F3)  # the bits of √½


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
    """sqrt(-2 log u), u = (x + 1/2) 2^-32; above √½ from 1 - u, which keeps its digits."""
    near = x > _NEAR
    w = f32(u32(~x) if near else x) * _UNIT + _HALF
    # u = 2^e m with m from √½ to √2
    bits = _float_bits(w)
    e = i32(i32(u32(bits - _ROOT)) >> i32(23))
    m = _bits_float(u32(bits - u32(u32(e) << u32(23))))
    s = -w if near else m - f32(1.0)
    exponent = f32(0.0) if near else f32(e)
    q = _LOG[8]
    q = q * s + _LOG[7]
    q = q * s + _LOG[6]
    q = q * s + _LOG[5]
    q = q * s + _LOG[4]
    q = q * s + _LOG[3]
    q = q * s + _LOG[2]
    q = q * s + _LOG[1]
    q = q * s + _LOG[0]
    return np.sqrt(q * s - exponent * _LN4)


@compiled(fastmath=FASTMATH)
def _cos_sin32(x):
    """cos and sin of 2π (x + 1/2) 2^-32 up to a sign, from the nearest half turn, and the bit of the sign."""
    f = f32(i32(u32(x << u32(1)))) * _HALF + _HALF
    q = f * f
    sin = f * ((((_SIN[4] * q + _SIN[3]) * q + _SIN[2]) * q + _SIN[1]) * q + _SIN[0])
    cos = ((((_COS[5] * q + _COS[4]) * q + _COS[3]) * q + _COS[2]) * q + _COS[1]) * q + _COS[0]
    return cos, sin, u32(u32(x + u32(0x40000000)) & u32(0x80000000))


@compiled(fastmath=FASTMATH)
def fill_half32(z, words, half):
    """The numbers of half a tile, two rows of 64, from its words."""
    first, second = vector(z, 2 * half * ROW, ROW), vector(z, (2 * half + 1) * ROW, ROW)
    radii, angles = words[2 * half], words[2 * half + 1]
    for j in range(radii.shape[0]):  # not ROW: unrolled, its constants would not fit into the registers
        cos, sin, sign = _cos_sin32(angles[j])
        radius = _bits_float(u32(_float_bits(_radius32(radii[j])) ^ sign))
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
