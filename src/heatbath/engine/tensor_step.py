"""A step of an optimiser on tensors anywhere in memory, compiled: the engine's operations, in place.

The tensors that are stepped lie one after the other in the numbering of the noise; each is given by its
addresses. They are cut into pieces, which threads share. Sums over a unit are taken piece by piece in a fixed
order, so results don't depend on the number of threads.

A *unit* is the parameters that one ξ serves, and a *pass* goes once over the parameters (see `program`). p·p
is -1 where it wasn't read.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from heatbath.engine import kernels
from heatbath.engine.compile import compiled
from heatbath.engine.layouts import Alone, aligned_address, reserve
from heatbath.engine.openmp import for_each
from heatbath.engine.simd import (
    BYTES,
    Pointer,
    flush_denormals,
    keep_alive,
    lanes_of,
    pointer_at,
    pointer_to,
    restore_denormals,
)
from heatbath.methods.operations import THERMOSTAT, WIDTH
from heatbath.reference.random import TILE

PIECE = 64 * TILE  # elements of a piece, at most
BLOCKS = 16  # of pieces, for each thread: a slow core doesn't hold up the others

# Columns of the array of tensors: addresses of θ, p, the gradient and the second moment; the position of the
# first element in the numbering of the noise; the unit; the row of coefficients; how many steps; the chain
THETA, MOMENTUM, GRADIENT, SECOND, FIRST, UNIT, ROW, STEP, CHAIN = range(9)
# Columns of `Work.pieces`, and the last index of `Work.segments`
PIECE_TENSOR, PIECE_FIRST, PIECE_STOP = range(3)
FIRST_OPERATION, STOP_OPERATION, STOP_FRICTION = range(3)
# Columns of the array of units: p·p where it was read, ξ, the square root of the rung's temperature
KINETIC, XI, ROOT_TAU = range(3)


class Work(NamedTuple):
    """Pieces, and what to do with those of each unit in each pass; their columns are above."""

    pieces: NDArray[np.int64]
    segments: NDArray[np.int64]  # (passes, units, 3); the operations on ξ begin where the others stop
    operations: NDArray[np.int64]
    table: NDArray[np.float64]  # (rows, operations, WIDTH)
    size: NDArray[np.int64]  # of each unit, as far as it is stepped


class PieceBlocks(NamedTuple):
    """The blocks that the pieces `first` to stop - 1 are divided into, in pass `k`.

    Block b has `buffer_size` bytes of memory from `address` + b buffer_size on.
    """

    blocks: int
    first: int
    stop: int
    k: int
    address: int
    buffer_size: int


class TensorBuffers(NamedTuple):
    """Pointers to the memory of a block: coefficients (operation, WIDTH, lane), and the span of a piece."""

    scratch: kernels.Scratch
    moves: kernels.Moves
    columns: Pointer
    thermostat: kernels.ThermostatValues
    span: Pointer


@compiled(cache=True)
def fused_step(like, team, pieces, passes, finish, tensors, work, sums, units, seed):
    """Step some pieces of the tensors in some passes, in place; with `finish`, then sum p·p and move ξ.

    Parameters
    ----------
    like : array
        In the precision of the tensors.
    team : tuple of int
        What `parallel_region` returns, or 0 for the calling thread alone, and the number of threads.
    pieces, passes : tuple of int
        The first one, and the stop.
    finish : bool
        Whether to sum p·p and move ξ after each pass.
    tensors : int64 array (tensor, CHAIN + 1)
        The addresses of each tensor and where its noise begins; see the columns above.
    work : Work
    sums : array (piece)
        Receives p·p of every piece, or -1.
    units : array (unit, 3)
        The columns KINETIC, XI and ROOT_TAU, of which the first two are updated.
    seed : uint64
    """
    region, threads = team
    first, stop = pieces
    first_pass, stop_pass = passes
    types = kernels.pointer_types(pointer_to(like))
    operations = work.operations.shape[0]
    blocks = min(stop - first, BLOCKS * threads)
    _, size = _reserve_buffers(types, operations, 0)
    memory = np.zeros(max(blocks, 1) * size + BYTES, np.uint8)
    address = aligned_address(memory)
    for k in range(first_pass, stop_pass):
        task = PieceBlocks(blocks, first, stop, k, address, size)
        for_each(region, threads, blocks, _step_block, (task, like, tensors, work, sums, units, seed))
        if finish:
            buffers, _ = _reserve_buffers(types, operations, address)
            _finish_pass(k, tensors, work, sums, units, seed, buffers.scratch)
    keep_alive(memory)


@compiled
def _reserve_buffers(types, operations, address):
    """Reserve memory at an address for `TensorBuffers`; return them and the next free address.

    `types` are the `PointerTypes`, and `operations` is how many operations there are. With the address 0 the
    second result is the size of the memory.
    """
    lanes = lanes_of(types.parameter)
    scratch, address = kernels.reserve_scratch(Alone(1), types, address)
    moves, address = kernels.reserve_moves(1, max(operations, 1), types, address)
    columns, address = reserve(address, max(operations, 1) * WIDTH * lanes, types.float64)
    xi, address = reserve(address, 8, types.float64)
    root_tau, address = reserve(address, 8, types.float64)
    unit, address = reserve(address, 8, types.float64)
    span, address = reserve(address, 2, types.int64)
    return TensorBuffers(scratch, moves, columns, kernels.ThermostatValues(xi, root_tau, unit), span), address


@compiled
def _step_block(block, task, like, tensors, work, sums, units, seed):
    """Step the pieces of one block in place, and write their p·p, or -1, to `sums`.

    Parameters
    ----------
    block : number of the block
    task : `PieceBlocks`, which has the pass and the memory of the blocks
    like : array in the precision of the tensors
    tensors : int64 array (tensor, CHAIN + 1), the addresses and other numbers of each tensor
    work : `Work`, the pieces, operations and coefficients
    sums : array (piece), which is written
    units : array (unit, 3), of which ξ and the root of the rung's temperature are read
    seed : uint64
    """
    address = task.address + block * task.buffer_size
    buffers, _ = _reserve_buffers(kernels.pointer_types(pointer_to(like)), work.operations.shape[0], address)
    buffers.thermostat.unit[0] = 1.0
    mode = flush_denormals()
    piece_count = task.stop - task.first
    first_piece = task.first + piece_count * block // task.blocks
    stop_piece = task.first + piece_count * (block + 1) // task.blocks
    folded_tensor = -1  # the tensor that the moves are for
    for i in range(first_piece, stop_piece):
        t = work.pieces[i, PIECE_TENSOR]
        u = tensors[t, UNIT]
        first_operation = work.segments[task.k, u, FIRST_OPERATION]
        stop_operation = work.segments[task.k, u, STOP_OPERATION]
        sums[i] = -1.0
        if stop_operation <= first_operation:
            continue
        if t != folded_tensor:
            folded_tensor = t
            _fold_for_tensor(t, first_operation, stop_operation, tensors, work, units, buffers)

        buffers.span[0] = work.pieces[i, PIECE_FIRST]
        buffers.span[1] = work.pieces[i, PIECE_STOP]
        has_read = kernels.apply_segment(
            Alone(1), _tensors_at(t, tensors, like), buffers.span, (0, 1), buffers.moves, 0, seed,
            tensors[t, STEP], buffers.scratch, True,
        )  # fmt: skip
        if has_read:
            sums[i] = buffers.scratch.kinetic[0]
    restore_denormals(mode)


@compiled
def _tensors_at(t, tensors, like):
    """Return `Tensors` with pointers to θ, p, G and the second moments of tensor t.

    They are moved back, so that the first element has its index in the numbering of the noise. `tensors` and
    `like` are as in `fused_step`.
    """
    number = pointer_to(like)
    skipped = tensors[t, FIRST] * like.itemsize
    return kernels.Tensors(
        pointer_at(tensors[t, THETA] - skipped, number),
        pointer_at(tensors[t, MOMENTUM] - skipped, number),
        pointer_at(tensors[t, GRADIENT] - skipped, number),
        pointer_at(tensors[t, SECOND] - skipped, number),
    )


@compiled
def _fold_for_tensor(t, start, stop, tensors, work, units, buffers):
    """Fold the operations start to stop - 1 into moves, with the coefficients of tensor t.

    A tensor is computed alone, so lane 0 is used.

    Parameters
    ----------
    t : number of the tensor
    tensors : int64 array (tensor, CHAIN + 1), the addresses and other numbers of each tensor
    work : `Work`, the pieces, operations and coefficients
    units : array (unit, 3), of which ξ and the root of the rung's temperature are read
    buffers : `TensorBuffers`, whose columns, thermostat and moves are written
    """
    columns, thermostat = buffers.columns, buffers.thermostat
    lanes = lanes_of(buffers.moves.coefficients)
    buffers.scratch.chain_numbers[0] = tensors[t, CHAIN]
    for o in range(start, stop):
        for column in range(WIDTH):
            columns[(o * WIDTH + column) * lanes] = work.table[tensors[t, ROW], o, column]
    thermostat.xi[0] = units[tensors[t, UNIT], XI]
    thermostat.root_tau[0] = units[tensors[t, UNIT], ROOT_TAU]
    kernels.fold_operations(
        Alone(1), pointer_to(work.operations), start, stop, columns, thermostat, tensors[t, STEP],
        buffers.moves, 0, buffers.scratch,
    )  # fmt: skip


@compiled
def _finish_pass(k, tensors, work, sums, units, seed, scratch):
    """Sum p·p of the units after pass k, always in the same order, and update p·p and ξ in `units`.

    Parameters
    ----------
    k : number of the pass
    tensors : int64 array (tensor, CHAIN + 1), the addresses and other numbers of each tensor
    work : `Work`, the pieces, operations and coefficients
    sums : array (piece), p·p of every piece, or -1 where it wasn't read
    units : array (unit, 3), whose columns KINETIC and XI are written
    seed : uint64
    scratch : `Scratch`, memory to work in
    """
    unit_count = units.shape[0]
    kinetic = np.full(unit_count, -1.0)  # p·p of each unit
    rows = np.zeros(unit_count, np.int64)  # ξ has the coefficients of the tensor that was stepped most often
    first_tensors = np.full(unit_count, -1, np.int64)  # and the noise of the first tensor
    for i in range(work.pieces.shape[0]):
        t = work.pieces[i, PIECE_TENSOR]
        u = tensors[t, UNIT]
        rows[u] = max(rows[u], tensors[t, ROW])
        if first_tensors[u] < 0:
            first_tensors[u] = t
        kinetic[u] = _add_if_read(kinetic[u], sums[i])

    for u in range(unit_count):
        if not kinetic[u] < 0:
            units[u, KINETIC] = kinetic[u]
        for o in range(work.segments[k, u, STOP_OPERATION], work.segments[k, u, STOP_FRICTION]):
            first_tensor = tensors[first_tensors[u]]
            _move_friction(o, u, work.table[rows[u], o], first_tensor, work, units, seed, scratch)


@compiled
def _add_if_read(kinetic, piece_sum):
    """Return p·p of a unit with that of a piece added; either is below 0 where it wasn't read."""
    if piece_sum < 0:  # NaN is a sum, too
        return kinetic
    if kinetic < 0:
        return piece_sum
    return kinetic + piece_sum


@compiled
def _move_friction(o, u, columns, tensor, work, units, seed, scratch):
    """Apply an operation to ξ of a unit, in place.

    Parameters
    ----------
    o : number of the operation, a THERMOSTAT or a FLUCTUATE (see `operations`)
    u : number of the unit
    columns : array (WIDTH), the columns of the operation; a negative temperature stands for the rung's
    tensor : array (CHAIN + 1), the first tensor of the unit, whose noise ξ has
    work : `Work`, the operations and the size of each unit
    units : array (unit, 3), whose column XI is written
    seed : uint64
    scratch : `Scratch`, memory to work in
    """
    operation = kernels.operation_of(pointer_to(work.operations), o)
    rung_root_tau = units[u, ROOT_TAU]
    if operation.kind == THERMOSTAT:
        units[u, XI] += kernels.change_of_friction(
            columns[0], columns[1], columns[2], rung_root_tau, units[u, KINETIC], work.size[u]
        )
        return
    root_tau = columns[2] if columns[2] >= 0 else rung_root_tau
    step = tensor[STEP] + operation.offset
    units[u, XI] = kernels.fluctuate(
        units[u, XI], columns[0], columns[1], root_tau, seed, operation.stream_slot, tensor[CHAIN], step,
        tensor[FIRST], scratch,
    )  # fmt: skip
