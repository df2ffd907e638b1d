"""The compiled loop: steps of a program for a block of chains, and what it needs to know, in named tuples."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heatbath.datasets.tasks import STUDENT
from heatbath.engine.batches import DataTable, draw_subset, gather, shuffle, table_by_pointer
from heatbath.engine.compile import compiled
from heatbath.engine.dense import negative_gradient
from heatbath.engine.dense_shape import by_pointer, clear, make_room
from heatbath.engine.evaluate import Tails, evaluate, squares
from heatbath.engine.kernels import (
    fluctuate,
    gamma_number,
    kinds_for,
    kinetic,
    make_moves,
    make_scratch,
    prepare,
    run_segment,
)
from heatbath.engine.layouts import Alone, chains_in, first_address, place
from heatbath.engine.pointers import row_reader
from heatbath.engine.program import EVALUATE, FRICTION, SEGMENT, Control
from heatbath.engine.random import fill_words
from heatbath.engine.records import note
from heatbath.engine.simd import (
    BYTES,
    beyond,
    flush_denormals,
    keep,
    lanes_of,
    number,
    pointer,
    restore_denormals,
)
from heatbath.methods.operations import ADAM, THERMOSTAT, WIDTH, C, F, S
from heatbath.reference.random import ROW, TEMPERING, VARIANCE


class ChainState(NamedTuple):
    """The state of all chains: the first index is the chain. `noise` is the variance of each target, or has
    no columns where there is none.

    `number` is a chain's number in the addresses of its noise and batches, and its data set is number % sets;
    `point` is where its coefficients stand in the tables.
    """

    theta: NDArray[Any]
    p: NDArray[Any]
    second: NDArray[Any]
    xi: NDArray[np.float64]
    rung: NDArray[np.int64]
    died: NDArray[np.int64]
    temperature: NDArray[np.float64]
    noise: NDArray[np.float64]
    number: NDArray[np.int64]
    point: NDArray[np.int64]


class Data(NamedTuple):
    """The data, and how mini-batches are drawn."""

    table: DataTable
    batch: int
    shuffled: bool


class Units(NamedTuple):
    """The units of a program: their ranges of elements, sizes, and whether they are tempered."""

    ranges: NDArray[np.int64]
    first: NDArray[np.int64]
    size: NDArray[np.int64]
    tempered: NDArray[np.bool_]


class Code(NamedTuple):
    """Controls and operations of a program, with the coefficients of the steps from `base` on.

    The first index of `table` and `decays` is the point of a sweep, the second the step. With `base` below 0
    nothing is scheduled: there is a row for the first step, and one for all others.
    """

    controls: NDArray[np.int64]
    operations: NDArray[np.int64]
    table: NDArray[np.float64]
    decays: NDArray[np.float64]
    base: int


class Ladder(NamedTuple):
    """The temperatures of simulated tempering, and their weights."""

    tau: NDArray[np.float64]
    weights: NDArray[np.float64]
    every: int


control_of = row_reader(Control)


class LoopState(NamedTuple):
    """Pointers to the state of a group, or of one alone: parameters, momenta, gradient and second moments
    (…, lane), ξ and the temperatures (unit, lane), and what there is one of for each lane."""

    theta: Any
    p: Any
    G: Any
    second: Any
    xi: Any
    temperature: Any
    rung: Any
    root_tau: Any
    noise: Any
    squares: Any
    gammas: Any
    unit: Any
    number: Any
    point: Any
    sets: Any
    nowhere: Any
    running: Any
    mean: Any
    share: Any


class Pointed(NamedTuple):
    """A program's `Code`, by pointers."""

    controls: Any
    steps: int
    operations: Any
    table: Any
    rows: int
    width: int
    base: int


@compiled
def _pointed(code):
    shape = code.table.shape
    return Pointed(
        pointer(code.controls), code.controls.shape[0], pointer(code.operations), pointer(code.table),
        shape[1], shape[2], code.base,
    )  # fmt: skip


@compiled(apart=True)
def _make_state(layout, kinds, parameters, second, units, targets, tails, address):
    like, real = kinds.number, kinds.real
    L, lane = lanes_of(like), chains_in(layout, like)
    theta, address = place(address, parameters * lane + L, like)
    p, address = place(address, parameters * lane + L, like)
    G, address = place(address, parameters * lane + L, like)
    second_moments, address = place(address, second * lane + L, like)
    xi, address = place(address, units * L, real)
    temperature, address = place(address, units * L, real)
    root_tau, address = place(address, L, real)
    noise, address = place(address, targets * L, real)
    squares, address = place(address, targets * L, real)
    gammas, address = place(address, tails * ROW * lane, real)
    unit, address = place(address, L, real)
    mean, address = place(address, L, real)
    share, address = place(address, L, real)
    rung, address = place(address, L, kinds.whole)
    numbers, address = place(address, L, kinds.whole)
    points, address = place(address, L, kinds.whole)
    sets, address = place(address, L, kinds.whole)
    nowhere, address = place(address, L, kinds.whole)
    running, address = place(address, L, kinds.whole)
    state = LoopState(
        theta, p, G, second_moments, xi, temperature, rung, root_tau, noise, squares, gammas, unit, numbers,
        points, sets, nowhere, running, mean, share,
    )  # fmt: skip
    return state, address


@compiled(apart=True)
def _take(layout, chains, begin, members, state, ladder, sets, numbers, room, degrees, sampled):
    """Have the chains from `begin` on in the lanes; lanes without one repeat the last.

    Returns how many run.
    """
    lane, L = chains_in(layout, state.theta), lanes_of(state.theta)
    alive = 0
    for c in range(lane):
        chain = begin + min(c, members - 1)
        state.running[c] = 1 if c < members and chains.died[chain] < 0 else 0
        alive += state.running[c]
        state.number[c], state.point[c], state.rung[c] = (
            chains.number[chain],
            chains.point[chain],
            chains.rung[chain],
        )
        state.sets[c] = chains.number[chain] % sets
        state.root_tau[c] = math.sqrt(ladder.tau[chains.rung[chain]])
        numbers[c % 2 * 8 + c // 2 if L == 16 and lane > 1 else c] = chains.number[chain]
        for u in range(chains.xi.shape[1]):
            state.xi[u * L + c] = chains.xi[chain, u]
            state.temperature[u * L + c] = chains.temperature[chain, u]
        for k in range(chains.noise.shape[1]):
            state.noise[k * L + c] = chains.noise[chain, k]
        _share_out(state, room, c, chains.noise.shape[1], degrees, sampled)
    for c in range(lane):
        chain = begin + min(c, members - 1)
        for e in range(chains.theta.shape[1]):
            state.theta[e * lane + c] = chains.theta[chain, e]
            state.p[e * lane + c] = chains.p[chain, e]
            state.G[e * lane + c] = 0  # finite: a move without a kick multiplies it by 0
        for e in range(chains.second.shape[1]):
            state.second[e * lane + c] = chains.second[chain, e]
    return alive


@compiled(apart=True)
def _put(layout, chains, chain, c, state):
    """Put the state in a lane back to where the chain's is."""
    lane, L = chains_in(layout, state.theta), lanes_of(state.theta)
    chains.rung[chain] = state.rung[c]
    for u in range(chains.xi.shape[1]):
        chains.xi[chain, u] = state.xi[u * L + c]
        chains.temperature[chain, u] = state.temperature[u * L + c]
    for k in range(chains.noise.shape[1]):
        chains.noise[chain, k] = state.noise[k * L + c]
    for e in range(chains.theta.shape[1]):
        chains.theta[chain, e] = state.theta[e * lane + c]
        chains.p[chain, e] = state.p[e * lane + c]
    for e in range(chains.second.shape[1]):
        chains.second[chain, e] = state.second[e * lane + c]


@compiled
def _share_out(state, room, c, targets, degrees, sampled):
    """What follows from the noise of a lane: the shares of its targets in the loss, and how these end in the
    tails of its law; where it is sampled, the unit of its momenta, the geometric mean of the standard
    deviations."""
    L = lanes_of(state.theta)
    total = 0.0
    for k in range(targets):
        total += math.log(state.noise[k * L + c])
    mean = state.noise[c] if targets == 1 else math.exp(total / max(targets, 1))
    for k in range(targets):
        room.shares[k * L + c] = mean / state.noise[k * L + c] * (1.0 + 1.0 / degrees)
        room.tails[k * L + c] = 1.0 / (degrees * state.noise[k * L + c])
    state.unit[c] = math.sqrt(mean) if sampled else 1.0


@compiled(apart=True)
def _draw_variance(layout, step, state, table, network, room, scratch, variance, seed):
    """Draw the variance of every target from its law at the parameters as they are, every lane by itself."""
    tails = Tails(state.noise, state.gammas, variance.tails, seed, step, scratch)
    squares(layout, state.theta, network, table, state.sets, room, state.squares, tails)
    L = lanes_of(state.theta)
    for c in range(chains_in(layout, state.theta)):
        for k in range(network.out):
            drawn = gamma_number(variance.shape, seed, VARIANCE << 14 | 2 * k, state.number[c], step, scratch)
            beta = variance.scale[k] + variance.factor * state.squares[k * L + c]
            state.noise[k * L + c] = beta / drawn
        _share_out(state, room, c, network.out, network.degrees, True)


@compiled(apart=True)
def _take_columns(code, points, row, columns, lane, lanes):
    """The coefficients of a step, for every lane."""
    size = code.width * WIDTH
    for c in range(lane):
        begin = (points[c] * code.rows + row) * size
        for k in range(size):
            columns[k * lanes + c] = code.table[begin + k]


@compiled
def _thermostat(layout, columns, first, u, size, state, squares):
    """What E does to ξ of every lane, and the temperature that it finds."""
    L = lanes_of(state.theta)
    at = first * WIDTH * L
    for c in range(chains_in(layout, state.theta)):
        target = columns[at + L + c]
        if target < 0:
            target = state.root_tau[c] * state.root_tau[c]
        share = 1.0 / size if columns[at + 2 * L + c] > 0 else 1.0
        state.xi[u * L + c] += columns[at + c] * share * (squares[c] - size * target)
        state.temperature[u * L + c] = squares[c] / size


@compiled
def _moved(rung, potential, ladder, seed, chain, step, scratch):
    """The rung after a tempering move before `step`."""
    scratch.one[0] = chain
    fill_words(Alone(1), scratch.z, scratch.words, scratch.one, seed, TEMPERING << 14, step, 0, 2)
    side, chance = (scratch.words[0] + 0.5) * 2.0**-32, (scratch.words[1] + 0.5) * 2.0**-32
    to = rung - 1 if side < 0.5 else rung + 1
    if to < 0 or to >= ladder.tau.shape[0]:
        return rung
    exponent = (
        -(1 / ladder.tau[to] - 1 / ladder.tau[rung]) * potential + ladder.weights[to] - ladder.weights[rung]
    )
    return to if math.log(chance) < exponent else rung


@compiled(apart=True)
def _temper(
    layout, prior, row, step, state, data, network, units, ranges, ladder, room, scratch, seed, averages
):
    """Move on the ladder, every lane by itself; tempered momenta go with their temperature."""
    lane = chains_in(layout, state.theta)
    evaluate(
        layout, state.theta, network, data, state.sets, room, state.mean, state.share, averages, 0,
        state.running, 0,
    )  # fmt: skip
    for u in range(units.size.shape[0]):
        kinetic(layout, state.theta, ranges, units.first[u], units.first[u + 1], scratch)
        for c in range(lane):
            decay = prior[state.point[c], row, u]
            if decay > 0:
                state.mean[c] += 0.5 * decay * scratch.read[c]
    for c in range(lane):
        rung = state.rung[c]
        to = _moved(rung, state.mean[c], ladder, seed, state.number[c], step, scratch)
        state.rung[c], state.root_tau[c] = to, math.sqrt(ladder.tau[to])
        factor = number(state.theta, math.sqrt(ladder.tau[to] / ladder.tau[rung]))
        for u in range(units.size.shape[0]):
            if units.tempered[u]:
                for r in range(units.first[u], units.first[u + 1]):
                    for e in range(units.ranges[r, 0], units.ranges[r, 1]):
                        state.p[e * lane + c] *= factor


@compiled
def _changing(operations, low, high, tempered):
    """Whether the moves of these operations differ from step to step, the coefficients apart."""
    for i in range(low, high):
        kind = operations[3 * i]
        if kind in (C, F, ADAM) or (tempered and kind == S):
            return True
    return False


class ChainBuffers(NamedTuple):
    """Everything that a thread needs to work in."""

    state: Any
    room: Any
    scratch: Any
    moves: Any
    columns: Any
    chosen: Any
    order: Any
    stamps: Any


@compiled(apart=True)
def _make_buffers(layout, kinds, network, sizes, address):
    """All buffers from an address on, and the address after them."""
    parameters, second, units, batch, capacity, columns, segments, most, shuffled, drawn = sizes
    L, lane = lanes_of(kinds.number), chains_in(layout, kinds.number)
    tails = network.out if network.loss == STUDENT else 0
    state, address = _make_state(layout, kinds, parameters, second, units, network.out, tails, address)
    room, address = make_room(
        layout, network, kinds.number, kinds.mask, kinds.word, batch, capacity, columns, state.theta, state.G,
        address,
    )  # fmt: skip
    scratch, address = make_scratch(layout, kinds, address)
    moves, address = make_moves(segments, most, kinds, address)
    coefficients, address = place(address, most * WIDTH * L, kinds.real)
    chosen, address = place(address, batch * lane, kinds.word)
    order, address = place(address, shuffled * lane, kinds.word)
    stamps, address = place(address, drawn * lane, kinds.whole)
    return ChainBuffers(state, room, scratch, moves, coefficients, chosen, order, stamps), address


@compiled(cache=True)
def run_chains(
    layout,
    begin,
    end,
    first,
    stop,
    chains,
    data,
    network,
    units,
    prelude,
    code,
    between,
    ladder,
    tempered,
    variance,
    notes,
    seed,
):
    """Steps first to stop - 1 of the chains begin to end - 1, noting what is due.

    `tempered` is None, or not where the program moves on the ladder; `variance` is None, or says how that of
    the data is drawn: what they need is not compiled else. `between` is the code of a step in which it is
    drawn.
    """
    kinds = kinds_for(pointer(chains.theta))
    L, lane = lanes_of(kinds.number), chains_in(layout, kinds.number)
    count, batch, table = data.table.data, data.batch, table_by_pointer(data.table)
    capacity = -(-batch // L) * L if lane == 1 else batch
    drawing = batch < count
    net = by_pointer(network)
    opening, usual, apart = _pointed(prelude), _pointed(code), _pointed(between)
    sizes = (
        chains.theta.shape[1], chains.second.shape[1], units.size.shape[0], batch, capacity,
        max(table.columns, notes.test.columns),
        max(opening.steps, usual.steps, apart.steps, 1), max(opening.width, usual.width, apart.width, 1),
        count if drawing and data.shuffled else 0, count if drawing and not data.shuffled else 0,
    )  # fmt: skip
    _, size = _make_buffers(layout, kinds, net, sizes, 0)
    memory = np.zeros(size + BYTES, np.uint8)
    buffers, _ = _make_buffers(layout, kinds, net, sizes, first_address(memory))
    state, room, scratch, moves = buffers.state, buffers.room, buffers.scratch, buffers.moves
    columns, chosen, order = buffers.columns, buffers.chosen, buffers.order
    for i in range(batch):
        for c in range(lane):
            chosen[i * lane + c] = i
    for i in range(sizes[-1] * lane):
        buffers.stamps[i] = -1
    for k in range(net.out * L):
        room.shares[k], room.tails[k] = 1, 0
    with_variance = variance is not None
    ranges, unit_first, unit_size = pointer(units.ranges), pointer(units.first), pointer(units.size)
    sets = data.table.rows.shape[0]
    records, record_steps = notes.steps.shape[0], pointer(notes.steps)
    burn_in, thin, last_sample = notes.burn_in, notes.thin, notes.last
    per_epoch, shuffled = count // batch, data.shuffled
    every, with_rungs = ladder.every, ladder.tau.shape[0] > 1
    mode = flush_denormals()
    drawn = 0
    for group in range(begin, end, lane):
        members = min(lane, end - group)
        alive = _take(
            layout, chains, group, members, state, ladder, sets, scratch.numbers, room, net.degrees,
            with_variance,
        )  # fmt: skip
        epoch, source, at = -1, chosen, 0
        record = np.int64(0)  # the next to note
        while record < records and record_steps[record] < first + (first > 0):
            record += 1
        fresh = gathered = False
        known = np.int64(-1)  # the row of the tables that `columns` has
        n = first
        while alive > 0:
            noted = record if record < records and record_steps[record] == n else np.int64(-1)
            since = n - burn_in
            sampled = first < n <= last_sample and since > 0 and since % thin == 0
            if noted >= 0 or sampled:
                nth = since // thin if sampled else 0
                note(layout, noted, nth, group, members, state, notes, data.table, net, units, room)
                record = max(record, noted + 1)
                gathered = False
            if n == stop:
                break
            for phase in range(0 if n == 0 and opening.steps > 0 else 1, 2):
                now, key = opening if phase == 0 else usual, np.int64(-2)
                if variance is not None and phase == 1:  # noqa: SIM102 (where there is none, not compiled)
                    if n > 0 and n % variance.every == 0:
                        now, key = apart, np.int64(-3)
                row = n - now.base if now.base >= 0 else min(n, now.rows - 1)
                if key > -3 and phase == 1:
                    key = np.int64(row)
                stale = key != known
                if stale:
                    _take_columns(now, state.point, row, columns, lane, L)
                    known = key
                for r in range(now.steps):
                    control = control_of(now.controls, r)
                    kind, u, low = control.kind, control.unit, control.low
                    if kind == EVALUATE:
                        if fresh:
                            continue
                        step = n + control.offset
                        source, at = chosen, 0
                        if drawing and shuffled:
                            if step // per_epoch != epoch:
                                epoch = step // per_epoch
                                shuffle(
                                    layout,
                                    state.theta,
                                    order,
                                    scratch.numbers,
                                    seed,
                                    epoch,
                                    scratch.words,
                                    count,
                                )
                            source, at = order, step % per_epoch * batch
                        elif drawing:
                            drawn += 1
                            draw_subset(
                                layout, state.theta, chosen, buffers.stamps, drawn, scratch.numbers, seed,
                                step, scratch.words, batch, count,
                            )  # fmt: skip
                        if drawing or not gathered:
                            gather(
                                layout, table, table.columns, state.sets, source, at, batch, room.inputs,
                                net.stride, room.targets, capacity,
                            )  # fmt: skip
                            gathered = True
                        negative_gradient(
                            layout, state.theta, state.G, net, batch, capacity, table.weight, room
                        )
                        fresh = True
                        for c in range(members):
                            if state.running[c] > 0 and room.checks[c] != 0:
                                chains.died[group + c] = n
                                _put(layout, chains, group + c, c, state)
                                state.running[c] = 0
                                alive -= 1
                        if alive == 0:
                            break
                    elif kind == SEGMENT:
                        if stale or known < -2 or _changing(now.operations, low, control.high, with_rungs):
                            xi = beyond(state.xi, u * L)
                            prepare(
                                layout, now.operations, low, control.high, columns, xi, state.root_tau,
                                state.unit, n, moves, r, scratch,
                            )  # fmt: skip
                        if run_segment(
                            layout, state.theta, state.p, state.G, state.second, ranges, unit_first[u],
                            unit_first[u + 1], moves, r, seed, n, scratch, False,
                        ):  # fmt: skip
                            for c in range(lane):
                                state.temperature[u * L + c] = scratch.read[c] / unit_size[u]
                        fresh = fresh and control.moves == 0
                    elif kind == FRICTION:
                        if now.operations[3 * low] == THERMOSTAT:
                            kinetic(layout, state.p, ranges, unit_first[u], unit_first[u + 1], scratch)
                            _thermostat(layout, columns, low, u, unit_size[u], state, scratch.read)
                        else:
                            use, when = now.operations[3 * low + 1], n + now.operations[3 * low + 2]
                            for c in range(lane):
                                k = low * WIDTH * L + c
                                root = columns[k + 2 * L] if columns[k + 2 * L] >= 0 else state.root_tau[c]
                                state.xi[u * L + c] = fluctuate(
                                    state.xi[u * L + c], columns[k], columns[k + L], root, seed, use,
                                    state.number[c], when, ranges[2 * unit_first[u]], scratch,
                                )  # fmt: skip
                    elif variance is not None:
                        step = n + control.offset
                        _draw_variance(layout, step, state, table, net, room, scratch, variance, seed)
                        gathered = False
                        if fresh and (net.out > 1 or net.loss == STUDENT):  # shares in the loss are others
                            gather(
                                layout, table, table.columns, state.sets, source, at, batch, room.inputs,
                                net.stride, room.targets, capacity,
                            )  # fmt: skip
                            negative_gradient(
                                layout, state.theta, state.G, net, batch, capacity, table.weight, room
                            )
                    elif tempered is not None:
                        step = n + control.offset
                        if step > 0 and step % every == 0:
                            _temper(
                                layout, code.decays, row, step, state, table, net, units, ranges, ladder,
                                room, scratch, seed, notes.average,
                            )  # fmt: skip
                            gathered = False
                if alive == 0:
                    break
            n += 1
        for c in range(members):
            if state.running[c] > 0:
                _put(layout, chains, group + c, c, state)
        if alive < members:
            clear(net, room)
    restore_denormals(mode)
    keep(memory)
