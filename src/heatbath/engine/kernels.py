"""Update parameters and momenta tile by tile, compiled: one pass over θ, p and G for a whole segment.

The operations of a segment (see `operations`) are folded into *moves*

    p += t G - d θ,    θ += u p,    p = a p + b R,    θ += v p,

and the numbers t, d, u, a, b, v of a move are computed for every lane: in a group for every chain, for a
chain alone the same in all. The noise R of a tile is made, used while it is in the cache, and forgotten. Sums
over parameters are taken as in `layouts`: in the precision of the parameters within a tile, in float64 across
tiles.

Letters: θ parameters, p momenta, G the negative gradient, R standard normal numbers, ξ the friction of a
thermostat, n a step. `lanes` is the number of lanes of a vector, `group_size` the number of chains in one.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from heatbath.engine import simd
from heatbath.engine.compile import compiled
from heatbath.engine.layouts import Alone, LaneGroup, add_partial_sums, chains_in, reserve
from heatbath.engine.pointers import prefetch, row_reader
from heatbath.engine.program import OperationRow
from heatbath.engine.random import fill_normals, fill_words
from heatbath.engine.simd import (
    LoopVariables,
    Pointer,
    fma,
    lanes_of,
    load,
    loop,
    null_pointer,
    offset_pointer,
    polynomial,
    select,
    splat,
    sqrt,
    store,
    traced,
)
from heatbath.methods.operations import ADAM, DESCEND, READ, WIDTH, A, B, F, S
from heatbath.reference.random import ATTEMPTS, ROW, SLOTS, TILE

# Columns of the table of moves (see `MoveRow`)
KIND, STREAM_SLOT, OFFSET, READ_POINT, NOISY, KICKED = range(6)
MOVE_COLUMNS = 6
READ_BEFORE_NOISE, READ_AFTER_NOISE = 1, 2  # where a move reads p·p

# The numbers of a move in every lane: t, d, u, a, b, v of a move as above, of which θ += t G - d θ + b R has
# three; and those of Adam
KICK, DECAY, DRIFT, FACTOR, NOISE_SCALE, LAST_DRIFT = range(6)
RATE, SHRINK, BETA1, COMPLEMENT1, BETA2, COMPLEMENT2, EPS, UNBIAS1, UNBIAS2 = range(9)
MOVE_NUMBERS, ADAM_NUMBERS = 6, 9
# and, in the vectors of a move, 1 where p·p is read before or after the noise
READS_BEFORE, READS_AFTER = ADAM_NUMBERS, ADAM_NUMBERS + 1

# The stages that a move goes through. An operation joins the last move unless that is past its stage.
KICK_STAGE, DRIFT_STAGE, NOISE_STAGE, LAST_DRIFT_STAGE, FINISHED = range(5)


class MoveRow(NamedTuple):
    """What is the same in all lanes of a move.

    `kind` is B, READ, DESCEND or ADAM; `stream_slot` the stream and slot of R (-1: none), and `offset` that
    of its step; `read_point` says where p·p is read (0: nowhere). `noisy` and `kicked` are 1 where some chain
    has noise or a kick that is not 0.
    """

    kind: int
    stream_slot: int
    offset: int
    read_point: int
    noisy: int
    kicked: int


move_of, operation_of = row_reader(MoveRow), row_reader(OperationRow)


class Moves(NamedTuple):
    """Pointers to the moves of the segments of a program: each operation makes at most one.

    `rows` is (segment, move, MOVE_COLUMNS), `numbers` (segment, move, ADAM_NUMBERS, lane), `counts`
    (segment); a segment has room for `capacity` moves.
    """

    rows: Pointer
    numbers: Pointer
    counts: Pointer
    capacity: int


class Scratch(NamedTuple):
    """Pointers to memory to work in.

    `z` and `words` are the noise of a tile and its random words, (element, lane); `sums` the partial sums of
    a tile (see `layouts.add_partial_sums`); `numbers` (ADAM_NUMBERS, lane) those of a move in float64;
    `kinetic` p·p of each lane. `chain_numbers` are the chains' in the order that `fill_normals` takes,
    `chain_number` has room for one.
    """

    z: Pointer
    words: Pointer
    sums: Pointer
    numbers: Pointer
    kinetic: Pointer
    chain_numbers: Pointer
    chain_number: Pointer


class PointerTypes(NamedTuple):
    """Null pointers of every type that buffers have; `parameter` is the precision of the chains."""

    parameter: Pointer
    float64: Pointer
    int64: Pointer
    uint32: Pointer
    uint64: Pointer
    uint16: Pointer


class ThermostatValues(NamedTuple):
    """Pointers to one float64 number for each lane: ξ, the root of the temperature of the chain's rung, and
    the unit of the momenta (see `likelihood`)."""

    xi: Pointer
    root_tau: Pointer
    unit: Pointer


class Tensors(NamedTuple):
    """Pointers to θ, p, G and the second moments, (parameter, lane), in the precision of the chains."""

    theta: Pointer
    p: Pointer
    G: Pointer
    second: Pointer


class Span(NamedTuple):
    """`size` parameters from `first` on; the normal number of the first is z[noise_start]."""

    first: Any
    size: Any
    noise_start: Any


@compiled
def pointer_types(like):
    """Return `PointerTypes` for chains whose numbers are those that `like` points to."""
    return PointerTypes(
        like, null_pointer(np.float64), null_pointer(np.int64), null_pointer(np.uint32),
        null_pointer(np.uint64), null_pointer(np.uint16),
    )  # fmt: skip


@compiled(apart=True)
def reserve_moves(segments, capacity, types, address):
    """Reserve memory at an address for `Moves`; returns them and the next free address."""
    lanes = lanes_of(types.parameter)
    rows, address = reserve(address, segments * capacity * MOVE_COLUMNS, types.int64)
    numbers, address = reserve(address, segments * capacity * ADAM_NUMBERS * lanes, types.parameter)
    counts, address = reserve(address, segments, types.int64)
    return Moves(rows, numbers, counts, capacity), address


@compiled(apart=True)
def reserve_scratch(layout, types, address):
    """Reserve memory at an address for `Scratch`; returns it and the next free address."""
    lanes, group_size = lanes_of(types.parameter), chains_in(layout, types.parameter)
    z, address = reserve(address, TILE * group_size, types.parameter)
    words, address = reserve(address, TILE * group_size, types.uint32)
    sums, address = reserve(address, lanes * lanes, types.parameter)
    numbers, address = reserve(address, ADAM_NUMBERS * lanes, types.float64)
    kinetic, address = reserve(address, lanes, types.float64)
    chain_numbers, address = reserve(address, lanes, types.uint64)
    chain_number, address = reserve(address, 1, types.uint64)
    return Scratch(z, words, sums, numbers, kinetic, chain_numbers, chain_number), address


@traced
def _phi(x):
    """Compute φ(x) = (1 - exp(-x))/x; near 0 by its series."""
    series = [(-1.0) ** k / math.factorial(k + 1) for k in range(15)]
    far = (-simd.exp(-x) + 1.0) / x
    return select(x.intrinsic("fabs") < 0.5, polynomial(x, series), far)


_exp, _sqrt = traced(simd.exp), traced(sqrt)


@traced
def _if_negative(value, replacement):
    """Return `value`, or `replacement` in the lanes where that is below 0."""
    return select(value >= 0.0, value, replacement)


@traced
def _round_numbers(layout, target, index, source, start):
    """Write 8 float64 numbers to target[index] in its precision; alone, the first one in every lane."""
    value = source.load(start)
    if not isinstance(layout, LaneGroup):
        value = value.lane(0).splat(target.lanes)
    target.store(index, value.convert(target.dtype) if target.itemsize == 4 else value)


@traced
def _is_any_nonzero(layout, numbers, start):
    """Return whether one of 8 numbers isn't 0; for a chain alone, whether the first isn't."""
    value = numbers.load(start) if isinstance(layout, LaneGroup) else numbers.load_number(start)
    return ((value > 0.0) | (value < 0.0)).any()


@compiled
def _stage_of(kind, reached):
    """Return the stage of a move that an operation belongs to, after the last move has reached a stage."""
    if kind in (READ, DESCEND, ADAM):  # these are moves of their own
        return FINISHED
    if kind == A:
        return DRIFT_STAGE if reached < DRIFT_STAGE else LAST_DRIFT_STAGE
    return KICK_STAGE if kind == B else NOISE_STAGE


@compiled
def _needs_new_move(stage, reached, draws_twice):
    """Return whether an operation of a stage can't join the last move, which has reached a stage."""
    if stage == NOISE_STAGE and reached == NOISE_STAGE:
        return draws_twice
    return stage <= reached or stage == FINISHED


@compiled(apart=True)
def fold_operations(layout, operations, low, high, columns, thermostat, n, moves, segment, scratch):
    """Fold the operations low to high - 1 into the moves of a segment, with the numbers of every lane at step
    n.

    Parameters
    ----------
    operations : pointer to rows of `OperationRow`
    columns : pointer to (operation, WIDTH, lane), the coefficients in float64
    thermostat : `ThermostatValues` of the parameters that the segment moves
    moves : `Moves`; those of the segment are written
    scratch : `Scratch`, of which `numbers` are overwritten

    A DESCEND, an ADAM, and a READ with no move before it are moves of their own.
    """
    lanes = lanes_of(moves.numbers)
    rows = offset_pointer(moves.rows, segment * moves.capacity * MOVE_COLUMNS)
    for half in range(0, chains_in(layout, moves.numbers), 8):
        count, reached = 0, FINISHED
        for i in range(low, high):
            operation = operation_of(operations, i)
            last = (count - 1) * MOVE_COLUMNS
            if operation.kind == READ and reached < FINISHED:
                rows[last + READ_POINT] = READ_BEFORE_NOISE if reached < NOISE_STAGE else READ_AFTER_NOISE
                reached = max(reached, DRIFT_STAGE)
                continue
            stage = _stage_of(operation.kind, reached)
            draws_twice = (
                reached == NOISE_STAGE and operation.stream_slot >= 0 and rows[last + STREAM_SLOT] >= 0
            )
            if _needs_new_move(stage, reached, draws_twice):
                if count > 0:
                    _finish_move(layout, moves, segment, count - 1, half, scratch.numbers)
                _begin_move(rows, count, operation, stage == FINISHED, half, scratch.numbers, lanes)
                count += 1
                if operation.kind == A:
                    stage = DRIFT_STAGE
            reached = stage
            if operation.kind == ADAM:
                _set_adam_numbers(
                    columns, i * WIDTH * lanes + half, thermostat, n, scratch.numbers, half, lanes
                )
            elif operation.kind != READ:
                _add_operation(
                    operation.kind, reached, columns, i * WIDTH * lanes + half, thermostat, scratch.numbers,
                    half, lanes,
                )  # fmt: skip
            if stage == NOISE_STAGE and operation.stream_slot >= 0:
                rows[(count - 1) * MOVE_COLUMNS + STREAM_SLOT] = operation.stream_slot
                rows[(count - 1) * MOVE_COLUMNS + OFFSET] = operation.offset
        if count > 0:
            _finish_move(layout, moves, segment, count - 1, half, scratch.numbers)
        moves.counts[segment] = count


@compiled
def _begin_move(rows, move, operation, is_single, half, numbers, lanes):
    """Start a move that does nothing yet; one of a single operation has its kind and noise."""
    row = move * MOVE_COLUMNS
    rows[row + KIND] = operation.kind if is_single else B
    rows[row + STREAM_SLOT] = operation.stream_slot if is_single else -1
    rows[row + OFFSET] = operation.offset if is_single else 0
    rows[row + READ_POINT] = 0
    for k in range(MOVE_NUMBERS):
        store(numbers, k * lanes + half, splat(1.0 if k == FACTOR else 0.0))


@compiled
def _add_operation(kind, stage, columns, c, thermostat, numbers, half, lanes):
    """Add an operation to the numbers of a move, of 8 chains from lane `half` on.

    `columns` has its coefficients from index c on, (WIDTH, lane), and `numbers` is (ADAM_NUMBERS, lane).
    """
    unit = load(thermostat.unit, half)
    if kind == A:
        drift = DRIFT if stage == DRIFT_STAGE else LAST_DRIFT
        store(numbers, drift * lanes + half, load(columns, c) * unit)
    elif kind == B:
        store(numbers, KICK * lanes + half, load(columns, c) / unit)
        store(numbers, DECAY * lanes + half, load(columns, c + lanes) * unit)
    elif kind == DESCEND:
        store(numbers, KICK * lanes + half, load(columns, c))
        store(numbers, DECAY * lanes + half, load(columns, c + lanes) * unit * unit)
        store(numbers, NOISE_SCALE * lanes + half, load(columns, c + 2 * lanes) * unit)
    else:
        a, b = load(columns, c), splat(0.0)
        if kind == S:
            root = _if_negative(load(columns, c + 2 * lanes), load(thermostat.root_tau, half))
            b = load(columns, c + lanes) * root
        else:
            x = a * load(thermostat.xi, half)
            a = _exp(splat(0.0) - x)
            if kind == F:
                b = load(columns, c + lanes) * _sqrt(_phi(x + x))
        factor, scale = FACTOR * lanes + half, NOISE_SCALE * lanes + half
        store(numbers, scale, a * load(numbers, scale) + b)
        store(numbers, factor, a * load(numbers, factor))


@compiled
def _set_adam_numbers(columns, c, thermostat, n, numbers, half, lanes):
    """Set the numbers of Adam at its step n, for 8 chains from lane `half` on.

    `columns` has c, β1, β2, eps, d and the β2 of the correction from index c on, (WIDTH, lane).
    """
    for lane in range(8):
        column, number = c + lane, half + lane
        beta1, beta2 = columns[column + lanes], columns[column + 2 * lanes]
        numbers[RATE * lanes + number] = columns[column]
        numbers[EPS * lanes + number] = columns[column + 3 * lanes]
        numbers[SHRINK * lanes + number] = columns[column + 4 * lanes]
        numbers[BETA1 * lanes + number], numbers[COMPLEMENT1 * lanes + number] = beta1, 1.0 - beta1
        numbers[BETA2 * lanes + number], numbers[COMPLEMENT2 * lanes + number] = beta2, 1.0 - beta2
        numbers[UNBIAS1 * lanes + number] = 1.0 / (1.0 - beta1 ** (n + 1))
        numbers[UNBIAS2 * lanes + number] = 1.0 / (1.0 - columns[column + 5 * lanes] ** (n + 1))
    unit = load(thermostat.unit, half)
    shrink = SHRINK * lanes + half
    store(numbers, shrink, load(numbers, shrink) * unit * unit)


@compiled(apart=True)
def _finish_move(layout, moves, segment, move, half, numbers):
    """Round the numbers of a move, for 8 chains from lane `half` on, and set its NOISY and KICKED."""
    lanes = lanes_of(moves.numbers)
    index = segment * moves.capacity + move
    target = index * ADAM_NUMBERS * lanes + half
    row = offset_pointer(moves.rows, index * MOVE_COLUMNS)
    if half == 0:
        row[NOISY], row[KICKED] = 0, 0
    for k in range(ADAM_NUMBERS if row[KIND] == ADAM else MOVE_NUMBERS):
        _round_numbers(layout, moves.numbers, target + k * lanes, numbers, k * lanes + half)
    if row[STREAM_SLOT] >= 0 and _is_any_nonzero(layout, numbers, NOISE_SCALE * lanes + half):
        row[NOISY] = 1
    has_kick = _is_any_nonzero(layout, numbers, KICK * lanes + half)
    if has_kick or _is_any_nonzero(layout, numbers, DECAY * lanes + half):
        row[KICKED] = 1


@traced
def _move_vectors(numbers, index, read_point):
    """Return vectors of a move's numbers, from numbers[index] on, and its READS_BEFORE and READS_AFTER."""
    zero = numbers.zero()
    flags = [
        select(read_point.equals(read_point.constant(point)), zero.constant(1.0), zero)
        for point in (READ_BEFORE_NOISE, READ_AFTER_NOISE)
    ]
    return *(numbers.load(index + numbers.lanes * k) for k in range(ADAM_NUMBERS)), *flags


def _over_range(update: Any, reads: bool = False) -> Any:
    """Return a compiled function that applies an update of vectors of parameters to a range of parameters.

    `update(tensors, index, noise, c, total, mask)` updates the vectors at an index in place, where the mask
    is true if there is one, and returns `total` with p·p added. Full vectors come first, then the remainder
    of a chain alone. With `reads` the partial sums of p·p are written to `sums`.
    """

    @traced
    def update_range(layout, tensors, z, span, c, sums):
        """Update the parameters of a span with the vectors c of a move; z has the normal numbers."""
        lanes, shift = z.lanes, z.lanes.bit_length() - 1

        def update_vector(total, v, start, noise_start, mask=None):
            index, noise = start + v * lanes, z.load(noise_start + v * lanes)
            total.set([update(tensors, index, noise, c, total.get()[0], mask)])

        total = LoopVariables([z.zero()])
        if isinstance(layout, LaneGroup) and reads:  # sum in the order of the lanes of a chain alone
            with loop(span.size.constant(lanes)) as lane:
                total.set([z.zero()])
                with loop(span.size, lane, lanes) as v:
                    update_vector(total, v, span.first * lanes, span.noise_start * lanes)
                sums.store(lane * lanes, total.get()[0])
            return
        if isinstance(layout, LaneGroup):
            with loop(span.size) as v:
                update_vector(total, v, span.first * lanes, span.noise_start * lanes)
            return
        full, size = span.size >> shift, span.size.splat(lanes)
        with loop(full) as v:
            update_vector(total, v, span.first, span.noise_start)
        with loop((span.size + (lanes - 1)) >> shift, full) as v:  # once, or not at all
            mask = size - full * lanes > size.constant(range(lanes))
            update_vector(total, v, span.first, span.noise_start, mask)
        if reads:
            sums.store(0, total.get()[0])

    return update_range


def _make_move(kick: bool, noisy: bool, reads: bool) -> Any:
    """Return p += t G - d θ, θ += u p, p = a p + b R, θ += v p over a range, perhaps without G or R."""

    def update(tensors: Any, index: Any, noise: Any, c: Any, total: Any, mask: Any) -> Any:
        theta, p = tensors.theta.load(index, mask), tensors.p.load(index, mask)
        if kick:
            p = fma(-c[DECAY], theta, fma(c[KICK], tensors.G.load(index, mask), p))
        theta = fma(c[DRIFT], p, theta)
        if reads:
            total = fma(p * c[READS_BEFORE], p, total)
        p = c[FACTOR] * p
        if noisy:
            noise = noise if mask is None else select(mask, noise, 0.0)  # so that p·p is not touched
            p = _add_noise(c[NOISE_SCALE], noise, p)
        if reads:
            total = fma(p * c[READS_AFTER], p, total)
        tensors.theta.store(index, fma(c[LAST_DRIFT], p, theta), mask)
        tensors.p.store(index, p, mask)
        return total

    return _over_range(update, reads)


def _add_noise(scale: simd.Traced, noise: simd.Traced, value: simd.Traced) -> simd.Traced:
    """Return value + scale noise where the scale isn't 0: adding 0 would change the sign of -0."""
    return select((scale > 0.0) | (scale < 0.0), fma(scale, noise, value), value)


def _make_descent(noisy: bool) -> Any:
    """Return θ += t G - d θ + b R over a range, with or without the noise."""

    def update(tensors: Any, index: Any, noise: Any, c: Any, total: Any, mask: Any) -> Any:
        theta = tensors.theta.load(index, mask)
        theta = fma(c[KICK], tensors.G.load(index, mask), fma(-c[DECAY], theta, theta))
        tensors.theta.store(index, _add_noise(c[NOISE_SCALE], noise, theta) if noisy else theta, mask)
        return total

    return _over_range(update)


def _update_adam(tensors: Any, index: Any, noise: Any, c: Any, total: Any, mask: Any) -> Any:
    """Step vectors of θ, p (the first moment) and the second moments by Adam, in place; return `total`."""
    G = tensors.G.load(index, mask)
    p = fma(c[BETA1], tensors.p.load(index, mask), c[COMPLEMENT1] * G)
    second = fma(c[BETA2], tensors.second.load(index, mask), c[COMPLEMENT2] * G * G)
    step = c[UNBIAS1] * p / (sqrt(c[UNBIAS2] * second) + c[EPS])
    theta = tensors.theta.load(index, mask)
    tensors.theta.store(index, fma(c[RATE], step, fma(-c[SHRINK], theta, theta)), mask)
    tensors.p.store(index, p, mask)
    tensors.second.store(index, second, mask)
    return total


def _read_momenta(tensors: Any, index: Any, noise: Any, c: Any, total: Any, mask: Any) -> Any:
    """Return `total` with p·p of a vector of momenta added."""
    p = tensors.p.load(index, mask)
    return fma(p, p, total)


_kick_and_read = _make_move(kick=True, noisy=False, reads=True)
_kick_noise_and_read = _make_move(kick=True, noisy=True, reads=True)
_noise_and_read = _make_move(kick=False, noisy=True, reads=True)
_kick = _make_move(kick=True, noisy=False, reads=False)
_kick_and_noise = _make_move(kick=True, noisy=True, reads=False)
_noise = _make_move(kick=False, noisy=True, reads=False)
_descend, _descend_with_noise = _make_descent(noisy=False), _make_descent(noisy=True)
_adam, _read = _over_range(_update_adam), _over_range(_read_momenta, reads=True)


@compiled
def _apply_move(layout, move, tensors, z, span, c, sums):
    """Apply a move to the parameters of a span in place; the partial sums of p·p go to `sums` if it reads it.

    `move` is its `MoveRow`, `c` its vectors, `z` the normal numbers of the tile.
    """
    if move.kind == ADAM:
        _adam(layout, tensors, z, span, c, sums)
    elif move.kind == READ:
        _read(layout, tensors, z, span, c, sums)
    elif move.kind == DESCEND:
        if move.noisy:
            _descend_with_noise(layout, tensors, z, span, c, sums)
        else:
            _descend(layout, tensors, z, span, c, sums)
    elif move.read_point > 0:
        if not move.noisy:
            _kick_and_read(layout, tensors, z, span, c, sums)
        elif move.kicked:
            _kick_noise_and_read(layout, tensors, z, span, c, sums)
        else:
            _noise_and_read(layout, tensors, z, span, c, sums)
    elif not move.noisy:
        _kick(layout, tensors, z, span, c, sums)
    elif move.kicked:
        _kick_and_noise(layout, tensors, z, span, c, sums)
    else:
        _noise(layout, tensors, z, span, c, sums)


@compiled
def _prefetch_range(values, low, high):
    """Start to load values[low] to values[high - 1] into the caches."""
    for e in range(low, high, lanes_of(values)):
        prefetch(values, e)


@compiled
def _add_to_kinetic(layout, scratch, has_read):
    """Add p·p of a tile, for each chain, to `scratch.kinetic`; set that to 0 first if nothing was read."""
    if not has_read:
        for lane in range(chains_in(layout, scratch.sums)):
            scratch.kinetic[lane] = 0.0
    add_partial_sums(layout, scratch.sums, scratch.kinetic)


@compiled
def _uses_gradient(moves, segment):
    """Return whether a move of a segment needs G."""
    for i in range(moves.counts[segment]):
        move = move_of(moves.rows, segment * moves.capacity + i)
        if move.kicked > 0 or move.kind == ADAM:
            return True
    return False


@compiled(apart=True)
def apply_segment(layout, tensors, ranges, bounds, moves, segment, seed, n, scratch, streaming):
    """Apply the moves of a segment at step n to θ and p in place, tile by tile.

    Parameters
    ----------
    tensors : `Tensors`
    ranges : pointer to (range, 2), the first element and the stop of each
    bounds : the first range to move, and the stop
    moves : `Moves`, of which those of the segment are applied
    scratch : `Scratch`; `kinetic` gets p·p of each chain where a move reads it
    streaming : whether tiles are prefetched while their noise is made, for arrays larger than the caches

    Returns whether p·p was read.
    """
    lanes = lanes_of(tensors.theta)
    has_read = False
    uses_gradient = streaming and _uses_gradient(moves, segment)
    for r in range(bounds[0], bounds[1]):
        first, stop = ranges[2 * r], ranges[2 * r + 1]
        for tile in range(first // TILE, (stop - 1) // TILE + 1):
            start = tile * TILE
            low, high = max(first, start), min(stop, start + TILE)
            span = Span(low, high - low, low - start)
            if streaming:
                _prefetch_range(tensors.p, low, high)
                _prefetch_range(tensors.theta, low, high)
                if uses_gradient:
                    _prefetch_range(tensors.G, low, high)
            for i in range(moves.counts[segment]):
                index = segment * moves.capacity + i
                move = move_of(moves.rows, index)
                if move.noisy > 0:
                    fill_normals(
                        layout, scratch.z, scratch.chain_numbers, seed, move.stream_slot, n + move.offset,
                        tile, low - start, high - start,
                    )  # fmt: skip
                c = _move_vectors(moves.numbers, index * ADAM_NUMBERS * lanes, move.read_point)
                _apply_move(layout, move, tensors, scratch.z, span, c, scratch.sums)
                if move.read_point > 0 or move.kind == READ:
                    _add_to_kinetic(layout, scratch, has_read)
                    has_read = True
    return has_read


@compiled(apart=True)
def sum_squares(layout, values, ranges, first_range, stop_range, scratch):
    """Write the sum of squares of each chain's values to `scratch.kinetic`, always added in the same order.

    `values` is (element, lane), such as p or θ; it is summed over the elements of the ranges `first_range` to
    stop_range - 1 of `ranges` (range, 2).
    """
    has_read = False
    tensors = Tensors(values, values, values, values)
    for r in range(first_range, stop_range):
        first, stop = ranges[2 * r], ranges[2 * r + 1]
        for low in range(first, stop, TILE):
            _read(layout, tensors, scratch.z, Span(low, min(low + TILE, stop) - low, 0), 0, scratch.sums)
            _add_to_kinetic(layout, scratch, has_read)
            has_read = True


@compiled
def _uniform(word):
    """Return the uniform number in (0, 1) of a random word, as float64."""
    return (word + 0.5) * 2.0**-32


@compiled(apart=True)
def _draw_normal(seed, stream_slot, chain, step, element, scratch):
    """Return the normal number of one chain and element, in float64 always."""
    tile, row, k = element // TILE, element % TILE // ROW, element % ROW
    scratch.chain_number[0] = chain
    fill_words(
        Alone(1), scratch.z, scratch.words, scratch.chain_number, seed, stream_slot, step, tile, TILE
    )  # fmt: skip
    pair = row // 2 * 2 * ROW + k
    radius, angle = _uniform(scratch.words[pair]), _uniform(scratch.words[pair + ROW])
    turn = math.cos(2.0 * math.pi * angle) if row % 2 == 0 else math.sin(2.0 * math.pi * angle)
    return math.sqrt(-2.0 * math.log(radius)) * turn


@compiled
def fluctuate(xi, a, b, root_tau, seed, stream_slot, chain, step, element, scratch):
    """Return a ξ + b √τ R for one chain, in float64 always; R is the normal number of an element."""
    return a * xi + b * root_tau * _draw_normal(seed, stream_slot, chain, step, element, scratch)


@compiled
def _is_gamma_accepted(u, x, v, d):
    """Return whether Marsaglia and Tsang accept d v, proposed with a uniform u and a normal x."""
    return v > 0.0 and math.log(u) < 0.5 * x * x + d - d * v + d * math.log(v)


@compiled(apart=True)
def draw_example_gammas(layout, seed, stream_slot, step, tile, scratch, gammas, start):
    """Draw the gamma numbers of the ROW examples of a tile, as `noise.example_gammas` does, in float64
    always.

    `gammas` is a pointer to (example, lane) from gammas[start] on. Where it holds minus a shape, the number
    is drawn and written; 0 stays.
    """
    row_size = ROW * chains_in(layout, scratch.z)
    words = scratch.words
    is_waiting = True
    for attempt in range(SLOTS):
        if not is_waiting:
            break
        is_waiting = False
        fill_words(
            layout, scratch.z, words, scratch.chain_numbers, seed, stream_slot + attempt, step, tile, TILE
        )  # fmt: skip
        for e in range(row_size):
            if gammas[start + e] >= 0.0:
                continue
            shape = -gammas[start + e]
            d = shape + (1.0 if shape < 1.0 else 0.0) - 1.0 / 3.0
            c = 1.0 / math.sqrt(9.0 * d)
            radius, angle = _uniform(words[e]), _uniform(words[row_size + e])
            x = math.sqrt(-2.0 * math.log(radius)) * math.cos(2.0 * math.pi * angle)
            v = (1.0 + c * x) ** 3
            if _is_gamma_accepted(_uniform(words[2 * row_size + e]), x, v, d) or attempt == SLOTS - 1:
                boost = _uniform(words[3 * row_size + e]) ** (1.0 / shape) if shape < 1.0 else 1.0
                gammas[start + e] = d * v * boost
            else:
                is_waiting = True


@compiled(apart=True)
def draw_gamma(shape, seed, stream_slot, chain, step, scratch):
    """Return the gamma number of a shape >= 1 that `noise.gammas` draws for one chain, in float64 always."""
    d = shape - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    v = 0.0
    for i in range(ATTEMPTS):
        x = _draw_normal(seed, stream_slot, chain, step, i, scratch)
        fill_words(
            Alone(1), scratch.z, scratch.words, scratch.chain_number, seed, stream_slot + 1, step, 0, ATTEMPTS
        )  # fmt: skip
        v = (1.0 + c * x) ** 3
        if _is_gamma_accepted(_uniform(scratch.words[i]), x, v, d):
            break
    return d * v
