"""The compiled loop: steps of a program for a block of chains, and what it needs to know, in named tuples."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heatbath.engine.batches import draw_subset, gather, shuffle
from heatbath.engine.compile import compiled
from heatbath.engine.dense import evaluate, negative_gradient
from heatbath.engine.notes import note
from heatbath.engine.program import EVALUATE, FRICTION, SEGMENT
from heatbath.engine.random import fill_words
from heatbath.engine.tiles import fluctuate, kinetic, move_buffers, run_segment
from heatbath.noise import TEMPERING, TILE
from heatbath.operations import THERMOSTAT


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


class Network(NamedTuple):
    """A network in numbers, and the room that its buffers need."""

    layers: NDArray[np.int64]
    activation: int
    loss: int
    room: tuple[int, int, int]


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


@compiled
def _thermostat(p, ranges, size, coefficients, tau):
    """What E adds to ξ, and p·p."""
    squares = kinetic(p, ranges)
    target = coefficients[1] if coefficients[1] >= 0 else tau
    share = 1.0 / size if coefficients[2] > 0 else 1.0
    return coefficients[0] * share * (squares - size * target), squares


@compiled
def _moved(rung, potential, ladder, seed, chain, step, words):
    """The rung after a tempering move before `step`."""
    fill_words(words, seed, TEMPERING << 14, chain, step, 0)
    side, chance = (words[0, 0] + 0.5) * 2.0**-32, (words[0, 1] + 0.5) * 2.0**-32
    to = rung - 1 if side < 0.5 else rung + 1
    if to < 0 or to >= ladder.tau.shape[0]:
        return rung
    exponent = (
        -(1 / ladder.tau[to] - 1 / ladder.tau[rung]) * potential + ladder.weights[to] - ladder.weights[rung]
    )
    return to if math.log(chance) < exponent else rung


@compiled(cache=True)
def run_chains(begin, end, first, stop, chains, data, network, units, prelude, code, ladder, notes, seed):
    """Steps first to stop - 1 of the chains begin to end - 1, noting what is due."""
    number = chains.theta.dtype
    count = data.X.shape[1]
    G = np.zeros(chains.theta.shape[1], number)  # finite: a move without a kick multiplies it by 0
    outputs = np.empty(network.room[0], number)
    deltas, previous = np.empty(network.room[1], number), np.empty(network.room[1], number)
    copies, sums = np.zeros(network.room[2], number), np.zeros(network.room[2], number)
    targets = np.empty((data.batch, data.Y.shape[2]), number)
    chosen, order = np.arange(data.batch), np.arange(count)
    stamps = np.full(count, -1, np.int64)
    tile = np.empty(TILE, number)
    words = np.empty((4, TILE // 4), np.uint32)
    moves, uses = move_buffers(max(prelude.operations.shape[0], code.operations.shape[0]))
    room = tile, words, moves, uses
    per_epoch = count // data.batch
    drawn = 0
    for c in range(begin, end):
        chain = chains.number[c]
        X, Y = data.X[chain % data.X.shape[0]], data.Y[chain % data.X.shape[0]]
        point = chains.point[c]
        theta, p, second = chains.theta[c], chains.p[c], chains.second[c]
        epoch = -1
        record = np.int64(0)  # the next to note
        while record < notes.steps.shape[0] and notes.steps[record] < first + (first > 0):
            record += 1
        fresh = False
        n = first
        while chains.died[c] < 0:
            noted = record if record < notes.steps.shape[0] and notes.steps[record] == n else np.int64(-1)
            since = n - notes.burn_in
            sampled = first < n <= notes.last and since > 0 and since % notes.thin == 0
            if noted >= 0 or sampled:
                nth = since // notes.thin if sampled else 0
                note(noted, nth, c, chains, notes, data, network, units, outputs, deltas, copies)
                record = max(record, noted + 1)
            if n == stop:
                break
            opening = n == 0 and prelude.controls.shape[0] > 0
            for phase in range(0 if opening else 1, 2):
                now = prelude if phase == 0 else code
                row = n - now.base if now.base >= 0 else min(n, now.table.shape[1] - 1)
                for r in range(now.controls.shape[0]):
                    kind, u, low, high, offset, drifts = now.controls[r]
                    ranges = units.ranges[units.first[u] : units.first[u + 1]]
                    tau = ladder.tau[chains.rung[c]]
                    if kind == EVALUATE:
                        if fresh:
                            continue
                        step = n + offset
                        if data.batch < count:
                            if data.shuffled:
                                if step // per_epoch != epoch:
                                    epoch = step // per_epoch
                                    shuffle(order, seed, chain, epoch, words)
                                at = step % per_epoch * data.batch
                                for k in range(data.batch):
                                    chosen[k] = order[at + k]
                            else:
                                drawn += 1
                                draw_subset(chosen, stamps, drawn, seed, chain, step, words)
                        gather(X, Y, chosen, outputs, targets)
                        value = negative_gradient(
                            theta,
                            G,
                            network.layers,
                            network.activation,
                            network.loss,
                            data.batch,
                            targets,
                            outputs,
                            deltas,
                            previous,
                            copies,
                            sums,
                        )
                        fresh = True
                        if not np.isfinite(value):
                            chains.died[c] = n
                            break
                    elif kind == SEGMENT:
                        read = run_segment(
                            theta,
                            p,
                            G,
                            second,
                            ranges,
                            now.operations[low:high],
                            now.table[point, row, low:high],
                            chains.xi[c, u],
                            math.sqrt(tau),
                            seed,
                            chain,
                            n,
                            room,
                        )
                        if read >= 0:
                            chains.temperature[c, u] = read / units.size[u]
                        fresh = fresh and drifts == 0
                    elif kind == FRICTION:
                        columns = now.table[point, row, low]
                        if now.operations[low, 0] == THERMOSTAT:
                            gain, squares = _thermostat(p, ranges, units.size[u], columns, tau)
                            chains.xi[c, u] += gain
                            chains.temperature[c, u] = squares / units.size[u]
                        else:
                            use, at = now.operations[low, 1], n + now.operations[low, 2]
                            chains.xi[c, u] = fluctuate(
                                chains.xi[c, u],
                                columns,
                                math.sqrt(tau),
                                seed,
                                use,
                                chain,
                                at,
                                ranges[0, 0],
                                words,
                            )
                    else:
                        step = n + offset
                        if step > 0 and step % ladder.every == 0:
                            potential, _ = evaluate(
                                theta,
                                network.layers,
                                network.activation,
                                network.loss,
                                X,
                                Y,
                                outputs,
                                deltas,
                                copies,
                                notes.average[c],
                                0,
                            )
                            for v in range(units.size.shape[0]):
                                if now.decays[point, row, v] > 0:
                                    square = kinetic(theta, units.ranges[units.first[v] : units.first[v + 1]])
                                    potential += 0.5 * now.decays[point, row, v] * square
                            to = _moved(chains.rung[c], potential, ladder, seed, chain, step, words)
                            factor = number.type(math.sqrt(ladder.tau[to] / tau))
                            chains.rung[c] = to
                            for v in range(units.size.shape[0]):
                                if units.tempered[v]:
                                    for s in range(units.first[v], units.first[v + 1]):
                                        for e in range(units.ranges[s, 0], units.ranges[s, 1]):
                                            p[e] *= factor
            n += 1
