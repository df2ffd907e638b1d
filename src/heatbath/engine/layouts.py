"""The layouts in which chains are computed: one at a time, or as many side by side as a vector has lanes.

- `Alone`: a vector holds numbers of one chain, of neighbouring units or parameters.
- `Wide`: the same, with BLAS. It is a type of its own so that code without BLAS compiles sooner.
- `LaneGroup`: a vector holds one number of each of as many chains as it has lanes. Arrays are (..., lane).

The same functions serve all layouts. In them `group_size` is the number of chains in a vector: 1, or the
number of lanes. The layouts differ in how many vectors a row of n numbers takes, ⌈n / lanes⌉ or n, and in how
one number of each chain is loaded: put in every lane, or as the vector that it is. Sums over units associate
in one way in both: a partial sum for each lane, of the numbers i, i + lanes, i + 2 lanes, ... in their order,
and then a tree. So a chain has the same bits alone and in a group.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir
from numba import types

from heatbath.engine.compile import compiled
from heatbath.engine.simd import (
    BYTES,
    Traced,
    TracedArray,
    intrinsic,
    lane_count,
    lanes_of,
    pointer_at,
    sum_lanes,
    sum_vectors,
    traced,
)


class Alone(NamedTuple):
    """One chain at a time; `lanes` is the number of chains computed side by side."""

    lanes: int = 1


class Wide(NamedTuple):
    """One chain at a time, of a network with layers so wide that BLAS multiplies them."""

    lanes: int = 1


class LaneGroup(NamedTuple):
    """As many chains side by side as a vector has lanes."""

    lanes: int


Layout = Alone | Wide | LaneGroup


def load_chains(layout: Layout, array: TracedArray, index: Traced) -> Traced:
    """Return one number of each chain as a vector: array[index] in every lane, or a group's vector there."""
    if isinstance(layout, LaneGroup):
        return array.load(index)
    return array.load_number(index).splat(array.lanes)


@compiled
def round_up(count, multiple):
    """Return the next multiple of a number, such as the room that `count` numbers take in full vectors."""
    return -(-count // multiple) * multiple


@compiled
def aligned_address(memory):
    """Return the first address in an array of bytes, which has BYTES to spare, where a vector may begin."""
    return (memory.ctypes.data + BYTES - 1) // BYTES * BYTES


@compiled
def reserve(address, count, like):
    """Reserve memory at an address for `count` numbers of the type that `like` points to.

    Returns
    -------
    pointer
        To the numbers, which begin at the address.
    int
        The next free address at which a vector may begin: elsewhere it would lie across two lines of the
        cache.
    """
    itemsize = BYTES // lanes_of(like)
    return pointer_at(address, like), address + (count * itemsize + BYTES - 1) // BYTES * BYTES


@intrinsic
def chains_in(typing_context: Any, layout: Any, like: Any) -> Any:
    """Return how many chains a vector of such numbers holds, as a constant: 1, or one in each lane."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        grouped = signature.args[0].instance_class is LaneGroup
        return ir.IntType(64)(lane_count(signature.args[1].dtype) if grouped else 1)

    return types.intp(layout, like), codegen


@compiled
def vector_count(layout, count, like):
    """Return how many vectors a row of `count` numbers of each chain takes."""
    lanes = lanes_of(like)
    return (count * chains_in(layout, like) + lanes - 1) // lanes


@traced
def add_partial_sums(layout, partial_sums, totals):
    """Add each chain's sum of its partial sums to `totals`; halves are added to halves until one is left.

    Parameters
    ----------
    layout : `Layout`, one chain alone or chains side by side in the lanes of a vector
    partial_sums : pointer, in the precision of the chains
        In a group (partial sum, lane), as many vectors as there are lanes; for a chain alone one vector.
    totals : pointer to a float64 number for each chain, which is updated
    """
    lanes = partial_sums.lanes
    if not isinstance(layout, LaneGroup):
        totals.store_number(0, totals.load_number(0) + sum_lanes(partial_sums.load(0)).to_float64())
        return
    sums = sum_vectors([partial_sums.load(lanes * k) for k in range(lanes)])
    for half in range(0, lanes, 8):
        eight = sums.shuffle(range(half, half + 8))
        totals.store(half, totals.load(half) + eight.to_float64())
