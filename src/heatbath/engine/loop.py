"""The compiled loop: steps of a program for a block of chains, and what it needs to know, in named tuples."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heatbath.engine.batches import draw_subset, gather, shuffle
from heatbath.engine.compile import compiled
from heatbath.engine.dense import clear, make_room, negative_gradient
from heatbath.engine.evaluate import evaluate
from heatbath.engine.lanes import flush_denormals, restore_denormals
from heatbath.engine.layouts import Alone, room
from heatbath.engine.notes import note
from heatbath.engine.program import EVALUATE, FRICTION, SEGMENT
from heatbath.engine.random import fill_words
from heatbath.engine.tiles import fluctuate, kinetic, make_moves, make_scratch, prepare, run_segment
from heatbath.engine.views import vector
from heatbath.noise import TEMPERING
from heatbath.operations import ADAM, THERMOSTAT, WIDTH, C, F, S


class Chains(NamedTuple):
    """The state of all chains: the first index is the chain.

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
    number: NDArray[np.int64]
    point: NDArray[np.int64]


class Data(NamedTuple):
    """The data (sets, data, columns), and how mini-batches are drawn."""

    X: NDArray[Any]
    Y: NDArray[Any]
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


class State(NamedTuple):
    """Of the chains of a group, or one alone: parameters, momenta, gradient and second moments (…, lane); and
    (unit, lane), with as many lanes as a vector has, all the same for one alone, ξ and the temperatures."""

    theta: NDArray[Any]
    p: NDArray[Any]
    G: NDArray[Any]
    second: NDArray[Any]
    xi: NDArray[np.float64]
    temperature: NDArray[np.float64]
    rung: NDArray[np.int64]
    root_tau: NDArray[np.float64]
    number: NDArray[np.int64]
    point: NDArray[np.int64]
    sets: NDArray[np.int64]
    nowhere: NDArray[np.int64]
    running: NDArray[np.int64]
    mean: NDArray[np.float64]
    share: NDArray[np.float64]


@compiled
def _make_state(layout, like, parameters, second, units):
    L, lane = 64 // like.itemsize, layout.lanes
    real, whole = np.zeros(0), np.int64
    return State(
        room(parameters * lane + L, like),
        room(parameters * lane + L, like),
        room(parameters * lane + L, like),
        room(second * lane + L, like),
        room(units * L, real),
        room(units * L, real),
        np.zeros(L, whole),
        room(L, real),
        np.zeros(L, whole),
        np.zeros(L, whole),
        np.zeros(L, whole),
        np.zeros(L, whole),
        np.zeros(L, whole),
        room(L, real),
        room(L, real),
    )


@compiled
def _take(layout, chains, begin, members, state, ladder, sets, numbers):
    """Have the chains from `begin` on in the lanes; lanes without one repeat the last. Returns how many run."""
    lane, L = layout.lanes, state.rung.shape[0]
    alive = 0
    for c in range(L):
        chain = begin + min(c, members - 1)
        state.running[c] = 1 if c < members and chains.died[chain] < 0 else 0
        alive += state.running[c]
        state.number[c], state.point[c], state.rung[c] = chains.number[chain], chains.point[chain], chains.rung[chain]
        state.sets[c] = chains.number[chain] % sets
        state.root_tau[c] = math.sqrt(ladder.tau[chains.rung[chain]])
        numbers[c % 2 * 8 + c // 2 if L == 16 and lane > 1 else c] = chains.number[chain]
        for u in range(chains.xi.shape[1]):
            state.xi[u * L + c] = chains.xi[chain, u]
            state.temperature[u * L + c] = chains.temperature[chain, u]
    for c in range(lane):
        chain = begin + min(c, members - 1)
        for e in range(chains.theta.shape[1]):
            state.theta[e * lane + c] = chains.theta[chain, e]
            state.p[e * lane + c] = chains.p[chain, e]
            state.G[e * lane + c] = 0  # finite: a move without a kick multiplies it by 0
        for e in range(chains.second.shape[1]):
            state.second[e * lane + c] = chains.second[chain, e]
    return alive


@compiled
def _put(layout, chains, chain, c, state):
    """Put the state in a lane back to where the chain's is."""
    lane, L = layout.lanes, state.rung.shape[0]
    chains.rung[chain] = state.rung[c]
    for u in range(chains.xi.shape[1]):
        chains.xi[chain, u] = state.xi[u * L + c]
        chains.temperature[chain, u] = state.temperature[u * L + c]
    for e in range(chains.theta.shape[1]):
        chains.theta[chain, e] = state.theta[e * lane + c]
        chains.p[chain, e] = state.p[e * lane + c]
    for e in range(chains.second.shape[1]):
        chains.second[chain, e] = state.second[e * lane + c]


@compiled
def _take_columns(table, point, row, columns, lanes):
    """The coefficients of a step, for every lane."""
    for c in range(lanes):
        values = table[point[c], row]
        for i in range(table.shape[2]):
            for k in range(WIDTH):
                columns[(i * WIDTH + k) * lanes + c] = values[i, k]


@compiled
def _thermostat(columns, first, u, size, state, squares):
    """What E does to ξ of every lane, and the temperature that it finds."""
    L = state.rung.shape[0]
    at = first * WIDTH * L
    for c in range(L):
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


@compiled
def _temper(layout, columns, first, prior, row, step, state, data, network, units, ladder, room, scratch, seed, notes):
    """Move on the ladder, every lane by itself; tempered momenta go with their temperature."""
    lane, L = layout.lanes, state.rung.shape[0]
    evaluate(
        layout, state.theta, network, data.X, data.Y, state.sets, room, state.mean, state.share, notes.average, 0,
        state.running, 0,
    )  # fmt: skip
    for u in range(units.size.shape[0]):
        kinetic(layout, state.theta, units.ranges[units.first[u] : units.first[u + 1]], scratch)
        for c in range(lane):
            decay = prior[state.point[c], row, u]
            if decay > 0:
                state.mean[c] += 0.5 * decay * scratch.read[c]
    for c in range(lane):
        rung = state.rung[c]
        to = _moved(rung, state.mean[c], ladder, seed, state.number[c], step, scratch)
        state.rung[c], state.root_tau[c] = to, math.sqrt(ladder.tau[to])
        factor = state.theta.dtype.type(math.sqrt(ladder.tau[to] / ladder.tau[rung]))
        for u in range(units.size.shape[0]):
            if units.tempered[u]:
                for r in range(units.first[u], units.first[u + 1]):
                    for e in range(units.ranges[r, 0], units.ranges[r, 1]):
                        state.p[e * lane + c] *= factor
    for c in range(lane, L):
        state.rung[c], state.root_tau[c] = state.rung[0], state.root_tau[0]


@compiled
def _changing(operations, tempered):
    """Whether the moves of these operations differ from step to step, the coefficients apart."""
    for i in range(operations.shape[0]):
        if operations[i, 0] in (C, F, ADAM) or (tempered and operations[i, 0] == S):
            return True
    return False


@compiled(cache=True)
def run_chains(layout, begin, end, first, stop, chains, data, network, units, prelude, code, ladder, notes, seed):
    """Steps first to stop - 1 of the chains begin to end - 1, noting what is due."""
    lane, like = layout.lanes, chains.theta[0]
    L = 64 // like.itemsize
    count, batch = data.X.shape[1], data.batch
    capacity = -(-batch // L) * L if lane == 1 else batch
    parameters, unit_count = chains.theta.shape[1], units.size.shape[0]
    state = _make_state(layout, like, parameters, chains.second.shape[1], unit_count)
    buffers = make_room(layout, network, like, batch, capacity, data.Y.shape[2], state.theta, state.G)
    scratch = make_scratch(layout, like)
    controls, most = max(prelude.controls.shape[0], code.controls.shape[0]), code.operations.shape[0]
    most = max(prelude.operations.shape[0], most)
    moves = make_moves(controls, most, like)
    columns = room(max(most, 1) * WIDTH * L, np.zeros(0))
    chosen = np.zeros(batch * lane, np.int64)
    for i in range(batch):
        for c in range(lane):
            chosen[i * lane + c] = i
    drawing = batch < count
    order = np.zeros(count * lane if drawing and data.shuffled else 0, np.int64)
    stamps = np.full(count * lane if drawing and not data.shuffled else 0, -1, np.int64)
    per_epoch = count // batch
    tempered = ladder.tau.shape[0] > 1
    mode = flush_denormals()
    drawn = 0
    for group in range(begin, end, lane):
        members = min(lane, end - group)
        alive = _take(layout, chains, group, members, state, ladder, data.X.shape[0], scratch.numbers)
        epoch = -1
        record = np.int64(0)  # the next to note
        while record < notes.steps.shape[0] and notes.steps[record] < first + (first > 0):
            record += 1
        fresh = gathered = False
        known = np.int64(-1)  # the row of the tables that `columns` has
        n = first
        while alive > 0:
            noted = record if record < notes.steps.shape[0] and notes.steps[record] == n else np.int64(-1)
            since = n - notes.burn_in
            sampled = first < n <= notes.last and since > 0 and since % notes.thin == 0
            if noted >= 0 or sampled:
                nth = since // notes.thin if sampled else 0
                note(layout, noted, nth, group, members, state.running, state, notes, data, network, units, buffers)
                record = max(record, noted + 1)
                gathered = False
            if n == stop:
                break
            opening = n == 0 and prelude.controls.shape[0] > 0
            for phase in range(0 if opening else 1, 2):
                now = prelude if phase == 0 else code
                row = n - now.base if now.base >= 0 else min(n, now.table.shape[1] - 1)
                place = row if phase == 1 else np.int64(-2)
                stale = place != known
                if stale:
                    _take_columns(now.table, state.point, row, columns, L)
                    known = place
                for r in range(now.controls.shape[0]):
                    kind, u, low, high, offset, drifts = now.controls[r]
                    ranges = units.ranges[units.first[u] : units.first[u + 1]]
                    if kind == EVALUATE:
                        if fresh:
                            continue
                        step = n + offset
                        if drawing:
                            if data.shuffled:
                                if step // per_epoch != epoch:
                                    epoch = step // per_epoch
                                    shuffle(layout, like, order, scratch.numbers, seed, epoch, scratch.words, count)
                                at = step % per_epoch * batch
                                gather(
                                    layout, data.X, data.Y, data.Y.shape[2], state.sets, order, at, batch,
                                    buffers.inputs, network.layers[0, 3], buffers.targets, capacity,
                                )  # fmt: skip
                            else:
                                drawn += 1
                                draw_subset(
                                    layout, like, chosen, stamps, drawn, scratch.numbers, seed, step, scratch.words,
                                    batch, count,
                                )  # fmt: skip
                        if not (drawing and data.shuffled) and not (gathered and not drawing):
                            gather(
                                layout, data.X, data.Y, data.Y.shape[2], state.sets, chosen, 0, batch,
                                buffers.inputs, network.layers[0, 3], buffers.targets, capacity,
                            )  # fmt: skip
                            gathered = True
                        negative_gradient(layout, state.theta, state.G, network, batch, capacity, buffers)
                        fresh = True
                        for c in range(members):
                            if state.running[c] > 0 and not buffers.checks[c] == 0:
                                chains.died[group + c] = n
                                _put(layout, chains, group + c, c, state)
                                state.running[c] = 0
                                alive -= 1
                        if alive == 0:
                            break
                    elif kind == SEGMENT:
                        operations = now.operations[low:high]
                        if stale or _changing(operations, tempered):
                            xi, root = vector(state.xi, u * L, L), state.root_tau
                            prepare(operations, columns, low, xi, root, n, moves, r, scratch)
                        if run_segment(
                            layout, state.theta, state.p, state.G, state.second, ranges, moves, r, seed, n, scratch
                        ):
                            for c in range(L):
                                state.temperature[u * L + c] = scratch.read[c] / units.size[u]
                        fresh = fresh and drifts == 0
                    elif kind == FRICTION:
                        if now.operations[low, 0] == THERMOSTAT:
                            kinetic(layout, state.p, ranges, scratch)
                            _thermostat(columns, low, u, units.size[u], state, scratch.read)
                        else:
                            use, at = now.operations[low, 1], n + now.operations[low, 2]
                            for c in range(lane):
                                k = low * WIDTH * L + c
                                root = columns[k + 2 * L] if columns[k + 2 * L] >= 0 else state.root_tau[c]
                                state.xi[u * L + c] = fluctuate(
                                    state.xi[u * L + c], columns[k], columns[k + L], root, seed, use,
                                    state.number[c], at, ranges[0, 0], scratch,
                                )  # fmt: skip
                            for c in range(lane, L):
                                state.xi[u * L + c] = state.xi[u * L]
                    else:
                        step = n + offset
                        if step > 0 and step % ladder.every == 0:
                            _temper(
                                layout, columns, low, now.decays, row, step, state, data, network, units, ladder,
                                buffers, scratch, seed, notes,
                            )  # fmt: skip
                            gathered = False
                if alive == 0:
                    break
            n += 1
        for c in range(members):
            if state.running[c] > 0:
                _put(layout, chains, group + c, c, state)
        if alive < members:
            clear(buffers)
    restore_denormals(mode)
