"""The layouts in which chains are computed: alone, with units in the lanes of a vector, or as a group.

- `Alone`: a vector holds numbers of one chain, of neighbouring units or parameters.
- `Wide`: the same, with BLAS. It is a type of its own so that code without BLAS is compiled sooner.
- `Group`: a vector holds one number of as many chains as there are lanes. Arrays are (…, lane).

The same functions serve all. They differ in how many vectors a row of n numbers takes, ⌈n / lanes⌉ or n, and
in how one number of each chain is read: put in every lane, or as the vector that it is. Sums over units have
one association in both: a partial sum for each lane, the numbers i, i + lanes, i + 2 lanes, ... in their
order, and then a tree. So a chain has the same bits alone and in a group.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from heatbath.engine.compile import compiled
from heatbath.engine.simd import BYTES, Traced, TracedArray, lanes, lanes_of, point, total, traced


class Alone(NamedTuple):
    """One chain."""

    lanes: int = 1


class Wide(NamedTuple):
    """One chain of a network with layers so wide that they are left to BLAS."""

    lanes: int = 1


class LaneGroup(NamedTuple):
    """As many chains as a vector has lanes."""

    lanes: int


Layout = Alone | Wide | LaneGroup


def each(layout: Layout, array: TracedArray, at: Traced) -> Traced:
    """The number of each chain at array[at], as a vector."""
    return array.load(at) if isinstance(layout, LaneGroup) else array.number(at).splat(array.lanes)


@compiled
def first_address(memory):
    """Where in a block of bytes, which has BYTES to spare, a vector may begin."""
    return (memory.ctypes.data + BYTES - 1) // BYTES * BYTES


@compiled
def place(address, count, like):
    """Room for numbers at an address, and the next address at which a vector may begin: elsewhere it would
    lie across two lines of the cache."""
    size = BYTES // lanes_of(like)
    return point(address, like), address + (count * size + BYTES - 1) // BYTES * BYTES


def _chains_in(typing_context: Any, layout: Any, like: Any) -> Any:
    """How many chains a vector of such numbers holds, a constant: 1, or one in each lane."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        grouped = signature.args[0].instance_class is LaneGroup
        return ir.IntType(64)(lanes(signature.args[1].dtype) if grouped else 1)

    return types.intp(layout, like), codegen


chains_in: Any = intrinsic(_chains_in)


@compiled
def vectors(layout, n, like):
    """How many vectors a row of n numbers takes."""
    lanes = lanes_of(like)
    return (n * chains_in(layout, like) + lanes - 1) // lanes


@traced
def _add_halves(layout, sums, read):
    count = sums.lanes
    if isinstance(layout, LaneGroup):
        parts = [sums.load(count * k) for k in range(count)]
        while len(parts) > 1:
            half = len(parts) // 2
            parts = [a + b for a, b in zip(parts[:half], parts[half:], strict=True)]
        made = parts[0]
    else:
        read.put(0, read.number(0) + total(sums.load(0)).double())
        return
    for half in range(0, count, 8):
        eight = made.part(range(half, half + 8))
        read.store(half, read.load(half) + eight.double())


@compiled
def add_halves(layout, sums, read):
    """Add to `read`, for every lane in float64, the sum of a chain's partial sums.

    They are the vectors of `sums` in a group, and the lanes of its first one alone: the halves are added, and
    the halves of that.
    """
    _add_halves(layout, sums, read)
