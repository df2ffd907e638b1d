"""Update parameters and momenta tile by tile, compiled: one pass over θ, p and G for a whole segment.

The operations of a segment (see `operations`) are folded into *moves*

    p += t G - d θ,    θ += u p,    p = a p + b R,    θ += v p,

and the coefficients t, d, u, a, b, v of a move are computed for every lane: in a group for every chain, for a
chain alone the same in all. The noise R of a tile is made, used while it is in the cache, and forgotten. Sums
over parameters are taken as in `layouts`: in the precision of the parameters within a tile, in float64 across
tiles.

Letters: θ parameters, p momenta, G the negative gradient, R standard normal numbers, ξ the friction of a
thermostat, τ a temperature, n a step. A *lane* is a place in a vector, where a group has one of its chains;
`lanes` is the number of lanes of a vector, `group_size` the number of chains in one. Arguments that many
functions share:

- `layout`: one of `layouts.Layout`, whether a vector has numbers of one chain or of a group of chains.
- `scratch`: a `Scratch`, memory to work in; p·p of each chain is returned in its `kinetic`.
- `seed`, `stream_slot`, `chain`, `step`: the address of random numbers (see `reference.random`).
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
from heatbath.methods.operations import ADAM, DESCEND, READ, WIDTH, A, B, C, F, S
from heatbath.reference.random import ATTEMPTS, ROW, SLOTS, TILE

# Columns of the table of moves (see `MoveRow`)
KIND, STREAM_SLOT, OFFSET, READ_POINT, NOISY, KICKED = range(6)
MOVE_COLUMNS = 6
READ_BEFORE_NOISE, READ_AFTER_NOISE = 1, 2  # where a move reads p·p

# The columns of the operations ADAM and S (see `operations`)
RATE_COLUMN, BETA1_COLUMN, BETA2_COLUMN, EPS_COLUMN, DECAY_COLUMN, CORRECTION_COLUMN = range(6)
ROOT_COLUMN = 2

# The coefficients of a move in every lane: t, d, u, a, b, v of a move as above, of which θ += t G - d θ + b R
# has three; and those of Adam
KICK, DECAY, DRIFT, FACTOR, NOISE_SCALE, LAST_DRIFT = range(6)
RATE, SHRINK, BETA1, COMPLEMENT1, BETA2, COMPLEMENT2, EPS, UNBIAS1, UNBIAS2 = range(9)
MOVE_COEFFICIENTS, ADAM_COEFFICIENTS = 6, 9
# and, in the vectors of a move, 1 where p·p is read before or after the noise
READS_BEFORE, READS_AFTER = ADAM_COEFFICIENTS, ADAM_COEFFICIENTS + 1

# The stages that a move goes through. An operation joins the last move unless that is past its stage.
KICK_STAGE, DRIFT_STAGE, NOISE_STAGE, LAST_DRIFT_STAGE, FINISHED = range(5)

EIGHT = 8  # chains whose coefficients are computed together: the float64 numbers of a vector


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

    `rows` is (segment, move, MOVE_COLUMNS), `coefficients` (segment, move, ADAM_COEFFICIENTS, lane) in the
    precision of the chains, `counts` (segment); a segment has room for `capacity` moves.
    """

    rows: Pointer
    coefficients: Pointer
    counts: Pointer
    capacity: int


class Segment(NamedTuple):
    """The moves of one segment: pointers to its first row and coefficient in `Moves`, and how many it has."""

    rows: Pointer
    coefficients: Pointer
    length: int


class Scratch(NamedTuple):
    """Pointers to memory to work in.

    `z` and `words` are the noise of a tile and its random words, (element, lane); `sums` the partial sums of
    a tile (see `layouts.add_partial_sums`); `coefficients` (ADAM_COEFFICIENTS, lane) those of a move in
    float64; `kinetic` p·p of each lane. `chain_numbers` are the chains' in the order that `fill_normals`
    takes, `chain_number` has room for one.
    """

    z: Pointer
    words: Pointer
    sums: Pointer
    coefficients: Pointer
    kinetic: Pointer
    chain_numbers: Pointer
    chain_number: Pointer


class EightChains(NamedTuple):
    """Pointers to float64 numbers of 8 chains whose operations are folded into a move.

    Column k of an operation is the vector at k `lanes` from its first one in `columns`, and coefficient k of
    the move is the vector at coefficients[k * lanes]. The others are the vectors of `ThermostatValues`.
    """

    columns: Pointer
    coefficients: Pointer
    xi: Pointer
    root_tau: Pointer
    unit: Pointer
    lanes: int


class PointerTypes(NamedTuple):
    """Null pointers of every type that buffers have; `parameter` is the precision of the chains."""

    parameter: Pointer
    float64: Pointer
    int64: Pointer
    uint32: Pointer
    uint64: Pointer
    uint16: Pointer


class ThermostatValues(NamedTuple):
    """Pointers to one float64 number for each lane.

    These are ξ, the root of the temperature of the chain's rung, and the unit of the momenta (see
    `likelihood`).
    """

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
    """Reserve memory at an address for `Moves`; return them and the next free address.

    There is room for `capacity` moves in each of so many `segments`; `types` are the `PointerTypes`.
    """
    lanes = lanes_of(types.parameter)
    rows, address = reserve(address, segments * capacity * MOVE_COLUMNS, types.int64)
    coefficients, address = reserve(address, segments * capacity * ADAM_COEFFICIENTS * lanes, types.parameter)
    counts, address = reserve(address, segments, types.int64)
    return Moves(rows, coefficients, counts, capacity), address


@compiled(apart=True)
def reserve_scratch(layout, types, address):
    """Reserve memory at an address for `Scratch`; return it and the next free address.

    `types` are `PointerTypes`, of which `parameter` has the precision of the chains.
    """
    lanes, group_size = lanes_of(types.parameter), chains_in(layout, types.parameter)
    z, address = reserve(address, TILE * group_size, types.parameter)
    words, address = reserve(address, TILE * group_size, types.uint32)
    sums, address = reserve(address, lanes * lanes, types.parameter)
    coefficients, address = reserve(address, ADAM_COEFFICIENTS * lanes, types.float64)
    kinetic, address = reserve(address, lanes, types.float64)
    chain_numbers, address = reserve(address, lanes, types.uint64)
    chain_number, address = reserve(address, 1, types.uint64)
    return Scratch(z, words, sums, coefficients, kinetic, chain_numbers, chain_number), address


# From operations to moves


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
def _round_to_precision(layout, target, index, source, start):
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
def _needs_new_move(stage, reached, stream_slot, last_row):
    """Return whether an operation of a stage can't join the last move, which has reached a stage.

    Two operations p = a p + b R join unless both draw noise. An operation draws if its `stream_slot` isn't
    negative; `last_row` points to the row of the last move, which has that of its noise.
    """
    if stage == NOISE_STAGE and reached == NOISE_STAGE:
        return stream_slot >= 0 and last_row[STREAM_SLOT] >= 0
    return stage <= reached or stage == FINISHED


@compiled(apart=True)
def fold_operations(layout, operations, low, high, columns, thermostat, n, moves, segment, scratch):
    """Fold the operations low to high - 1 into the moves of a segment, with their coefficients at step n.

    A DESCEND, an ADAM, and a READ with no move before it are moves of their own.

    Parameters
    ----------
    layout : `Layout`, one chain alone or chains side by side in the lanes of a vector
    operations : pointer to rows of `OperationRow`
    columns : pointer to (operation, WIDTH, lane), the numbers that each operation takes, in float64
    thermostat : `ThermostatValues` of the parameters that the segment moves
    moves : `Moves`; those of the segment are written
    segment : number of the segment
    scratch : `Scratch`, of which `coefficients` are overwritten
    """
    lanes = lanes_of(moves.coefficients)
    for lane in range(0, chains_in(layout, moves.coefficients), EIGHT):
        chains = EightChains(
            offset_pointer(columns, lane), offset_pointer(scratch.coefficients, lane),
            offset_pointer(thermostat.xi, lane), offset_pointer(thermostat.root_tau, lane),
            offset_pointer(thermostat.unit, lane), lanes,
        )  # fmt: skip
        _fold_for_eight_chains(layout, operations, low, high, chains, lane, n, moves, segment)


@compiled
def _fold_for_eight_chains(layout, operations, low, high, chains, lane, n, moves, segment):
    """Fold the operations low to high - 1 into the moves of a segment, for 8 chains of a group or one alone.

    An operation joins the last move, unless the stage that it belongs to is over there.

    Parameters
    ----------
    layout : `Layout`, one chain alone or chains side by side in the lanes of a vector
    operations : pointer to rows of `OperationRow`
    chains : `EightChains`; each move is built in its `coefficients`, and copied from there when finished
    lane : the lane of the first of the chains
    n : the step, which counts for Adam
    moves : `Moves`, whose rows, coefficients and count of this segment are written
    segment : number of the segment
    """
    rows = offset_pointer(moves.rows, segment * moves.capacity * MOVE_COLUMNS)
    row = rows  # of the last move
    count = 0
    reached = FINISHED
    for i in range(low, high):
        operation = operation_of(operations, i)
        if operation.kind == READ and reached < FINISHED:
            row[READ_POINT] = READ_BEFORE_NOISE if reached < NOISE_STAGE else READ_AFTER_NOISE
            reached = max(reached, DRIFT_STAGE)  # a kick after it needs a new move
            continue

        stage = _stage_of(operation.kind, reached)
        if _needs_new_move(stage, reached, operation.stream_slot, row):
            if count > 0:
                _store_coefficients_of_move(layout, moves, segment, count - 1, lane, chains.coefficients)
            row = offset_pointer(rows, count * MOVE_COLUMNS)
            _begin_move(row, operation, stage == FINISHED, chains)
            count += 1
            if operation.kind == A:
                stage = DRIFT_STAGE
        first_column = offset_pointer(chains.columns, i * WIDTH * chains.lanes)
        _add_operation(operation, stage, n, first_column, row, chains)
        reached = stage

    if count > 0:
        _store_coefficients_of_move(layout, moves, segment, count - 1, lane, chains.coefficients)
    moves.counts[segment] = count


@compiled
def _begin_move(row, operation, is_single, chains):
    """Write a move that does nothing yet to a row of the table of moves and to coefficients.

    Parameters
    ----------
    row : pointer to MOVE_COLUMNS integers
    operation : `OperationRow`, the first operation of the move
    is_single : whether it stays the only one; then the move has its kind and noise, otherwise B and none
    chains : `EightChains`, whose `coefficients` are overwritten
    """
    row[KIND] = operation.kind if is_single else B
    row[STREAM_SLOT] = operation.stream_slot if is_single else -1
    row[OFFSET] = operation.offset if is_single else 0
    row[READ_POINT] = 0
    for k in range(MOVE_COEFFICIENTS):
        store(chains.coefficients, k * chains.lanes, splat(1.0 if k == FACTOR else 0.0))


@compiled
def _column(columns, number, chains):
    """Return a column of an operation as a vector of 8 chains."""
    return load(columns, number * chains.lanes)


@compiled
def _coefficient(chains, number):
    """Return a coefficient of the last move as a vector of 8 chains."""
    return load(chains.coefficients, number * chains.lanes)


@compiled
def _set_coefficient(chains, number, value):
    """Write a vector of 8 chains to a coefficient of the last move."""
    store(chains.coefficients, number * chains.lanes, value)


@compiled
def _add_operation(operation, stage, n, columns, row, chains):
    """Add an operation to the last move, for 8 chains: to its coefficients, and to its row if it draws.

    Parameters
    ----------
    operation : `OperationRow`, its kind and the address of its noise
    stage : stage of the move that the operation belongs to; it says which of the two drifts an A is
    n : the step, which counts for Adam
    columns : pointer to the operation's WIDTH columns (see `operations`); column k is at k `chains.lanes`
    row : pointer to the move's row in the table of moves
    chains : `EightChains`, whose `coefficients` change
    """
    kind = operation.kind
    unit = load(chains.unit, 0)
    if kind == A:
        drift = DRIFT if stage == DRIFT_STAGE else LAST_DRIFT
        _set_coefficient(chains, drift, _column(columns, 0, chains) * unit)
    elif kind == B:
        _set_coefficient(chains, KICK, _column(columns, 0, chains) / unit)
        _set_coefficient(chains, DECAY, _column(columns, 1, chains) * unit)
    elif kind == DESCEND:
        _set_coefficient(chains, KICK, _column(columns, 0, chains))
        _set_coefficient(chains, DECAY, _column(columns, 1, chains) * unit * unit)
        _set_coefficient(chains, NOISE_SCALE, _column(columns, 2, chains) * unit)
    elif kind == ADAM:
        _set_adam_coefficients(n, columns, chains)
    elif kind in (S, C, F):
        _add_momentum_map(operation, columns, row, chains)


@compiled
def _add_momentum_map(operation, columns, row, chains):
    """Let an operation S, C or F follow the last move's p = a p + b R, in its coefficients and its row.

    The result is a' (a p + b R) + b' R, where one of b and b' is 0: a second noise begins a new move (see
    `_needs_new_move`). The arguments are those of `_add_operation`.
    """
    factor, noise_scale = _momentum_map(operation.kind, columns, chains)
    _set_coefficient(chains, NOISE_SCALE, factor * _coefficient(chains, NOISE_SCALE) + noise_scale)
    _set_coefficient(chains, FACTOR, factor * _coefficient(chains, FACTOR))
    if operation.stream_slot >= 0:
        row[STREAM_SLOT] = operation.stream_slot
        row[OFFSET] = operation.offset


@compiled
def _momentum_map(kind, columns, chains):
    """Return vectors a and b of 8 chains with which an operation S, C or F is p = a p + b R.

    `columns` points to the operation's columns, of which column k is at k `chains.lanes`; `chains` are
    `EightChains`. S has a, b/r and the root r of a temperature, where a negative r stands for the rung's. C
    and F have c, with a = exp(-c ξ), and F also b/√φ(2 c ξ).
    """
    scale = _column(columns, 1, chains)
    if kind == S:
        root_tau = _if_negative(_column(columns, ROOT_COLUMN, chains), load(chains.root_tau, 0))
        return _column(columns, 0, chains), scale * root_tau

    decay = _column(columns, 0, chains) * load(chains.xi, 0)  # c ξ
    factor = _exp(splat(0.0) - decay)
    if kind == F:
        return factor, scale * _sqrt(_phi(decay + decay))
    return factor, splat(0.0)


@compiled
def _set_adam_coefficients(n, columns, chains):
    """Write the coefficients of Adam at its step n to `chains.coefficients`, for 8 chains.

    `columns` points to c, β1, β2, eps, d and b, the β2 of the bias correction (see `operations`), each at the
    next multiple of `chains.lanes`; `chains` are `EightChains`.
    """
    coefficients = chains.coefficients
    lanes = chains.lanes
    unit = load(chains.unit, 0)
    _set_coefficient(chains, RATE, _column(columns, RATE_COLUMN, chains))
    _set_coefficient(chains, EPS, _column(columns, EPS_COLUMN, chains))
    _set_coefficient(chains, SHRINK, _column(columns, DECAY_COLUMN, chains) * unit * unit)

    for chain in range(EIGHT):
        beta1 = columns[BETA1_COLUMN * lanes + chain]
        beta2 = columns[BETA2_COLUMN * lanes + chain]
        correction_beta2 = columns[CORRECTION_COLUMN * lanes + chain]
        coefficients[BETA1 * lanes + chain] = beta1
        coefficients[COMPLEMENT1 * lanes + chain] = 1.0 - beta1
        coefficients[BETA2 * lanes + chain] = beta2
        coefficients[COMPLEMENT2 * lanes + chain] = 1.0 - beta2
        coefficients[UNBIAS1 * lanes + chain] = 1.0 / (1.0 - beta1 ** (n + 1))
        coefficients[UNBIAS2 * lanes + chain] = 1.0 / (1.0 - correction_beta2 ** (n + 1))


@compiled(apart=True)
def _store_coefficients_of_move(layout, moves, segment, move, lane, coefficients):
    """Store the coefficients of a move in the precision of the chains, and set its NOISY and KICKED.

    Parameters
    ----------
    layout : `Layout`, one chain alone or chains side by side in the lanes of a vector
    moves : `Moves`; the row and the coefficients of the move are written
    segment, move : number of the segment, and of the move in it
    lane : the lane of the first of 8 chains
    coefficients : pointer to the float64 coefficients of the 8 chains, each at the next multiple of the lanes
    """
    lanes = lanes_of(moves.coefficients)
    move_index = segment * moves.capacity + move
    first_coefficient = move_index * ADAM_COEFFICIENTS * lanes + lane
    row = offset_pointer(moves.rows, move_index * MOVE_COLUMNS)
    coefficient_count = ADAM_COEFFICIENTS if row[KIND] == ADAM else MOVE_COEFFICIENTS
    for k in range(coefficient_count):
        target = first_coefficient + k * lanes
        _round_to_precision(layout, moves.coefficients, target, coefficients, k * lanes)

    if lane == 0:
        row[NOISY] = 0
        row[KICKED] = 0
    if row[STREAM_SLOT] >= 0 and _is_any_nonzero(layout, coefficients, NOISE_SCALE * lanes):
        row[NOISY] = 1
    has_kick = _is_any_nonzero(layout, coefficients, KICK * lanes)
    if has_kick or _is_any_nonzero(layout, coefficients, DECAY * lanes):
        row[KICKED] = 1


# Moves of parameters


@traced
def _load_coefficients(coefficients, index, read_point):
    """Return vectors of a move's coefficients, from an index on, and its READS_BEFORE and READS_AFTER."""
    zero = coefficients.zero()
    flags = [
        select(read_point.equals(read_point.constant(point)), zero.constant(1.0), zero)
        for point in (READ_BEFORE_NOISE, READ_AFTER_NOISE)
    ]
    starts = [index + coefficients.lanes * k for k in range(ADAM_COEFFICIENTS)]
    return *map(coefficients.load, starts), *flags


def _over_range(update: Any, reads: bool = False) -> Any:
    """Return a compiled function that applies an update of vectors to a range of parameters in place.

    Parameters
    ----------
    update : callable (tensors, index, noise, coefficients, total, mask)
        Updates the vectors of `tensors` at an index, with a vector of normal numbers and the coefficients
        of a move. Where there is a `mask`, lanes in which it is false stay as they are. Returns `total`, a
        vector, with p·p added if the move reads it.
    reads : bool
        Whether the partial sums of p·p are written to memory.

    Returns
    -------
    callable (layout, tensors, z, span, coefficients, sums)
        Updates the parameters of a `Span`, of which z has the normal numbers; writes to `sums`.
    """

    @traced
    def update_range(layout, tensors, z, span, coefficients, sums):
        """Update the parameters of a span, of a chain alone or of a group."""
        lanes = z.lanes
        is_group = isinstance(layout, LaneGroup)
        first = span.first * lanes if is_group else span.first
        noise_start = span.noise_start * lanes if is_group else span.noise_start
        total = LoopVariables([z.zero()])

        def update_vector(v, mask=None):
            """Update vector v of the span, without the lanes where a mask is false."""
            noise = z.load(noise_start + v * lanes)
            total.set([update(tensors, first + v * lanes, noise, coefficients, total.get()[0], mask)])

        if not is_group:
            _loop_over_vectors(span.size, lanes, update_vector)
            if reads:
                sums.store(0, total.get()[0])
        elif not reads:
            with loop(span.size) as v:
                update_vector(v)
        else:
            with loop(span.size.constant(lanes)) as lane:  # sum in the order of the lanes of a chain alone
                total.set([z.zero()])
                with loop(span.size, lane, lanes) as v:
                    update_vector(v)
                sums.store(lane * lanes, total.get()[0])

    return update_range


def _loop_over_vectors(size: Any, lanes: int, update_vector: Any) -> None:
    """Generate loops over `size` numbers of a chain alone: full vectors, then the remainder with a mask."""
    shift = lanes.bit_length() - 1  # a division by a power of 2
    full_vectors = size >> shift
    with loop(full_vectors) as v:
        update_vector(v)
    with loop((size + (lanes - 1)) >> shift, full_vectors) as v:  # once, or not at all
        remainder = (size - full_vectors * lanes).splat(lanes)
        update_vector(v, remainder > remainder.constant(range(lanes)))


def _make_move(kick: bool, noisy: bool, reads: bool) -> Any:
    """Return p += t G - d θ, θ += u p, p = a p + b R, θ += v p over a range, as `_over_range` does.

    Parameters
    ----------
    kick : bool
        Whether it has the first part, t G - d θ.
    noisy : bool
        Whether it has noise R.
    reads : bool
        Whether it sums p·p, before or after the noise as the coefficients say.
    """

    def update(tensors: Any, index: Any, noise: Any, coefficients: Any, total: Any, mask: Any) -> Any:
        """Move vectors of θ and p in place; return `total` with p·p added if the move reads it."""
        theta, p = tensors.theta.load(index, mask), tensors.p.load(index, mask)
        if kick:
            p = fma(-coefficients[DECAY], theta, fma(coefficients[KICK], tensors.G.load(index, mask), p))
        theta = fma(coefficients[DRIFT], p, theta)
        if reads:
            total = fma(p * coefficients[READS_BEFORE], p, total)
        p = coefficients[FACTOR] * p
        if noisy:
            noise = noise if mask is None else select(mask, noise, 0.0)  # so that p·p is not touched
            p = _add_noise(coefficients[NOISE_SCALE], noise, p)
        if reads:
            total = fma(p * coefficients[READS_AFTER], p, total)
        tensors.theta.store(index, fma(coefficients[LAST_DRIFT], p, theta), mask)
        tensors.p.store(index, p, mask)
        return total

    return _over_range(update, reads)


def _add_noise(scale: simd.Traced, noise: simd.Traced, value: simd.Traced) -> simd.Traced:
    """Return value + scale noise where the scale isn't 0: adding 0 would change the sign of -0."""
    return select((scale > 0.0) | (scale < 0.0), fma(scale, noise, value), value)


def _make_descent(noisy: bool) -> Any:
    """Return θ += t G - d θ + b R over a range, with or without the noise, as `_over_range` does."""

    def update(tensors: Any, index: Any, noise: Any, coefficients: Any, total: Any, mask: Any) -> Any:
        """Move a vector of θ in place; return `total` as it is."""
        theta = tensors.theta.load(index, mask)
        theta = fma(coefficients[KICK], tensors.G.load(index, mask), fma(-coefficients[DECAY], theta, theta))
        tensors.theta.store(
            index, _add_noise(coefficients[NOISE_SCALE], noise, theta) if noisy else theta, mask
        )
        return total

    return _over_range(update)


def _update_adam(tensors: Any, index: Any, noise: Any, coefficients: Any, total: Any, mask: Any) -> Any:
    """Step vectors of θ, p (the first moment) and the second moments by Adam, in place; return `total`.

    The vectors of `tensors` are those at an index, without the lanes where a `mask` is false, and
    `coefficients` are those of a move. Adam has no noise, and adds no p·p to `total`.
    """
    G = tensors.G.load(index, mask)
    p = fma(coefficients[BETA1], tensors.p.load(index, mask), coefficients[COMPLEMENT1] * G)
    second = fma(coefficients[BETA2], tensors.second.load(index, mask), coefficients[COMPLEMENT2] * G * G)
    step = coefficients[UNBIAS1] * p / (sqrt(coefficients[UNBIAS2] * second) + coefficients[EPS])
    theta = tensors.theta.load(index, mask)
    tensors.theta.store(index, fma(coefficients[RATE], step, fma(-coefficients[SHRINK], theta, theta)), mask)
    tensors.p.store(index, p, mask)
    tensors.second.store(index, second, mask)
    return total


def _read_momenta(tensors: Any, index: Any, noise: Any, coefficients: Any, total: Any, mask: Any) -> Any:
    """Return `total` with p·p of a vector of momenta added; an update as in `_over_range`."""
    p = tensors.p.load(index, mask)
    return fma(p, p, total)


def _make_moves(reads: bool) -> Any:
    """Return a compiled function that applies a `MoveRow` to a span in place, with its kick and its noise.

    With `reads` it also writes partial sums of p·p, as in `_over_range`.
    """
    kick = _make_move(kick=True, noisy=False, reads=reads)
    kick_and_noise = _make_move(kick=True, noisy=True, reads=reads)
    noise = _make_move(kick=False, noisy=True, reads=reads)

    @compiled
    def apply(layout, move, tensors, z, span, coefficients, sums):
        """Apply the move; the arguments are those of `_apply_move`."""
        if not move.noisy:
            kick(layout, tensors, z, span, coefficients, sums)
        elif move.kicked:
            kick_and_noise(layout, tensors, z, span, coefficients, sums)
        else:
            noise(layout, tensors, z, span, coefficients, sums)

    return apply


_move, _move_and_read = _make_moves(reads=False), _make_moves(reads=True)
_descend, _descend_with_noise = _make_descent(noisy=False), _make_descent(noisy=True)
_adam, _read = _over_range(_update_adam), _over_range(_read_momenta, reads=True)


@compiled
def _apply_move(layout, move, tensors, z, span, coefficients, sums):
    """Apply a move to the parameters of a span in place.

    Parameters
    ----------
    layout : `Layout`, one chain alone or chains side by side in the lanes of a vector
    move : `MoveRow`, the kind of the move and what it has
    tensors : `Tensors`, pointers to θ, p, G and the second moments
    z : pointer to the normal numbers of the tile, (element, lane)
    span : `Span`, the first parameter, how many, and where their noise begins
    coefficients : the vectors of the move's coefficients (see `_load_coefficients`)
    sums : pointer to the partial sums of p·p, which are written if the move reads it
    """
    if move.kind == ADAM:
        _adam(layout, tensors, z, span, coefficients, sums)
    elif move.kind == READ:
        _read(layout, tensors, z, span, coefficients, sums)
    elif move.kind == DESCEND and move.noisy:
        _descend_with_noise(layout, tensors, z, span, coefficients, sums)
    elif move.kind == DESCEND:
        _descend(layout, tensors, z, span, coefficients, sums)
    elif move.read_point > 0:
        _move_and_read(layout, move, tensors, z, span, coefficients, sums)
    else:
        _move(layout, move, tensors, z, span, coefficients, sums)


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
def _uses_gradient(segment):
    """Return whether a move of a `Segment` needs G."""
    for i in range(segment.length):
        move = move_of(segment.rows, i)
        if move.kicked > 0 or move.kind == ADAM:
            return True
    return False


@compiled
def _segment_of(moves, number):
    """Return the `Segment` of `Moves` with a number."""
    first_move = number * moves.capacity
    stride = ADAM_COEFFICIENTS * lanes_of(moves.coefficients)  # from one move's coefficients to the next
    rows = offset_pointer(moves.rows, first_move * MOVE_COLUMNS)
    coefficients = offset_pointer(moves.coefficients, first_move * stride)
    return Segment(rows, coefficients, moves.counts[number])


@compiled(apart=True)
def apply_segment(layout, tensors, ranges, bounds, moves, segment_number, seed, n, scratch, streaming):
    """Apply the moves of a segment at step n to θ and p in place; return whether they read p·p.

    Parameters
    ----------
    layout : `Layout`, one chain alone or chains side by side in the lanes of a vector
    tensors : `Tensors`, pointers to θ, p, G and the second moments
    ranges : pointer to (range, 2), the first element and the stop of each
    bounds : the first range to move, and the stop
    moves : `Moves`
    segment_number : which of their segments is applied
    scratch : `Scratch`; its `kinetic` gets p·p of each chain where a move reads it
    streaming : whether tiles are prefetched while their noise is made, for arrays larger than the caches
    """
    segment = _segment_of(moves, segment_number)
    prefetches_gradient = streaming and _uses_gradient(segment)
    has_read = False
    for r in range(bounds[0], bounds[1]):
        first, stop = ranges[2 * r], ranges[2 * r + 1]
        last_tile = (stop - 1) // TILE
        for tile in range(first // TILE, last_tile + 1):
            low = max(first, tile * TILE)
            high = min(stop, (tile + 1) * TILE)
            if streaming:
                _prefetch_range(tensors.p, low, high)
                _prefetch_range(tensors.theta, low, high)
            if prefetches_gradient:
                _prefetch_range(tensors.G, low, high)
            has_read = _move_tile(layout, tensors, tile, low, high, segment, seed, n, scratch, has_read)
    return has_read


@compiled
def _move_tile(layout, tensors, tile, low, high, segment, seed, n, scratch, has_read):
    """Apply the moves of a segment at step n, in place, to parameters that are in one tile.

    Parameters
    ----------
    layout : `Layout`, one chain alone or chains side by side in the lanes of a vector
    tensors : `Tensors`, pointers to θ, p, G and the second moments
    tile : number of the tile, TILE parameters whose noise is made together
    low, high : the first parameter, and the stop
    segment : `Segment`, pointers to the moves
    seed, n : the address of the noise
    scratch : `Scratch`; to its `kinetic` p·p of each chain is added where a move reads it
    has_read : whether p·p was read in earlier tiles

    Returns
    -------
    Whether p·p was read in earlier tiles or in this one
    """
    noise_start = low - tile * TILE
    span = Span(low, high - low, noise_start)
    stride = ADAM_COEFFICIENTS * lanes_of(tensors.theta)
    for i in range(segment.length):
        move = move_of(segment.rows, i)
        if move.noisy > 0:
            fill_normals(
                layout, scratch.z, scratch.chain_numbers, seed, move.stream_slot, n + move.offset, tile,
                noise_start, noise_start + span.size,
            )  # fmt: skip
        coefficients = _load_coefficients(segment.coefficients, i * stride, move.read_point)
        _apply_move(layout, move, tensors, scratch.z, span, coefficients, scratch.sums)
        if move.read_point > 0 or move.kind == READ:
            _add_to_kinetic(layout, scratch, has_read)
            has_read = True
    return has_read


@compiled(apart=True)
def sum_squares(layout, values, ranges, first_range, stop_range, scratch):
    """Write the sum of squares of each chain's values to `scratch.kinetic`, always added in the same order.

    Parameters
    ----------
    layout : `Layout`, one chain alone or chains side by side in the lanes of a vector
    values : pointer to (element, lane), such as p or θ
    ranges : pointer to (range, 2), the first element and the stop of each
    first_range, stop_range : the first range to sum over, and the stop
    scratch : `Scratch`, memory to work in
    """
    has_read = False
    tensors = Tensors(values, values, values, values)
    for r in range(first_range, stop_range):
        first, stop = ranges[2 * r], ranges[2 * r + 1]
        for low in range(first, stop, TILE):
            span = Span(low, min(low + TILE, stop) - low, 0)
            _read(layout, tensors, scratch.z, span, 0, scratch.sums)
            _add_to_kinetic(layout, scratch, has_read)
            has_read = True


# Random numbers of one chain


@compiled
def uniform(word):
    """Return the uniform number in (0, 1) of a random word, as float64."""
    return (word + 0.5) * 2.0**-32


@compiled
def fill_words_of_chain(seed, stream_slot, chain, step, tile, count, scratch):
    """Write the random words of the first `count` elements of a tile of one chain to `scratch.words`."""
    scratch.chain_number[0] = chain
    fill_words(
        Alone(1), scratch.z, scratch.words, scratch.chain_number, seed, stream_slot, step, tile, count
    )  # fmt: skip


@compiled
def _normal_radius(word):
    """Return √(-2 log u) for a random word: Box and Muller make two normal numbers of it and an angle."""
    return math.sqrt(-2.0 * math.log(uniform(word)))


@compiled(apart=True)
def _draw_normal(seed, stream_slot, chain, step, element, scratch):
    """Return the normal number of one chain and element, in float64 always.

    The other arguments are those of its address (see `reference.random`), and memory to work in, where the
    words of the element's tile are written. A word of one row and that of the next row in the same place make
    two normal numbers, one for each of the two rows.
    """
    row = element % TILE // ROW
    fill_words_of_chain(seed, stream_slot, chain, step, element // TILE, TILE, scratch)
    even_row = row // 2 * 2
    word_index = even_row * ROW + element % ROW
    radius = _normal_radius(scratch.words[word_index])
    angle = 2.0 * math.pi * uniform(scratch.words[word_index + ROW])
    if row == even_row:
        return radius * math.cos(angle)
    return radius * math.sin(angle)


@compiled
def change_of_friction(c, tau, is_mean, root_tau, kinetic, size):
    """Return what a THERMOSTAT adds to ξ, c (p·p - N τ), or c (p·p/N - τ) if `is_mean` is above 0.

    `kinetic` is p·p of N = `size` parameters. A negative τ stands for that of the chain's rung, the square of
    `root_tau`.
    """
    target = root_tau * root_tau if tau < 0 else tau
    share = 1.0 / size if is_mean > 0 else 1.0
    return c * share * (kinetic - size * target)


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
    """Draw the gamma numbers of the ROW examples of a tile, as `noise.example_gammas` does, in float64.

    By the method of Marsaglia and Tsang, with d = shape - 1/3 and c = 1/√(9 d): d v with v = (1 + c x)³ and a
    normal x, if it is accepted. The last attempt always is. A shape s below 1 takes a number of the shape
    s + 1, times a uniform number to the power 1/s.

    Parameters
    ----------
    layout : `Layout`, one chain alone or chains side by side in the lanes of a vector
    seed, stream_slot, step, tile : the address of the random words; each attempt has the next slot
    scratch : `Scratch`, memory for the words
    gammas : pointer to (example, lane), which are written
        Minus the shape where a number is to be drawn; 0 stays.
    start : index of the first example in `gammas`
    """
    gammas_of_tile = offset_pointer(gammas, start)
    is_waiting = True
    for attempt in range(SLOTS):
        if not is_waiting:
            break
        fill_words(
            layout, scratch.z, scratch.words, scratch.chain_numbers, seed, stream_slot + attempt, step, tile,
            TILE,
        )  # fmt: skip
        is_last = attempt == SLOTS - 1
        is_waiting = _try_gammas(layout, scratch, is_last, gammas_of_tile)


@compiled
def _try_gammas(layout, scratch, is_last, gammas):
    """Try once to draw the gamma numbers of a tile, by the formulas of `draw_example_gammas`.

    Return whether some were rejected and still wait.

    Parameters
    ----------
    layout : `Layout`, one chain alone or chains side by side in the lanes of a vector
    scratch : `Scratch`, whose `words` (row, example, lane) are the random words
        Row by row for a normal number's radius and angle, for its acceptance, and for shapes below 1.
    is_last : whether this is the last attempt, which accepts every number
    gammas : pointer to (example, lane), as in `draw_example_gammas`, which are written
    """
    row_size = ROW * chains_in(layout, scratch.z)
    angle_words = offset_pointer(scratch.words, row_size)
    acceptance_words = offset_pointer(scratch.words, 2 * row_size)
    power_words = offset_pointer(scratch.words, 3 * row_size)
    is_waiting = False
    for e in range(row_size):
        if gammas[e] >= 0.0:
            continue
        shape = -gammas[e]
        is_small = shape < 1.0
        d = shape + 1.0 - 1.0 / 3.0 if is_small else shape - 1.0 / 3.0
        c = 1.0 / math.sqrt(9.0 * d)
        x = _normal_radius(scratch.words[e]) * math.cos(2.0 * math.pi * uniform(angle_words[e]))
        v = (1.0 + c * x) ** 3
        if not is_last and not _is_gamma_accepted(uniform(acceptance_words[e]), x, v, d):
            is_waiting = True
            continue
        gammas[e] = d * v
        if is_small:
            gammas[e] *= uniform(power_words[e]) ** (1.0 / shape)
    return is_waiting


@compiled(apart=True)
def draw_gamma(shape, seed, stream_slot, chain, step, scratch):
    """Return the gamma number of a shape >= 1 that `noise.gammas` draws for one chain, in float64 always.

    By the method of Marsaglia and Tsang, as in `draw_example_gammas`, with up to ATTEMPTS proposals. Their
    normal numbers x are in the slot `stream_slot`, and the uniform ones in the next one, at the address of
    the `seed`, chain and `step`. `scratch` is memory for the words.
    """
    d = shape - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    v = 0.0
    for i in range(ATTEMPTS):
        x = _draw_normal(seed, stream_slot, chain, step, i, scratch)
        fill_words_of_chain(seed, stream_slot + 1, chain, step, 0, ATTEMPTS, scratch)
        v = (1.0 + c * x) ** 3
        if _is_gamma_accepted(uniform(scratch.words[i]), x, v, d):
            break
    return d * v
