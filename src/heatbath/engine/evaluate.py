"""Loss, accuracy and outputs over all data, compiled: of chains, and at many mixtures of parameters."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from heatbath.datasets.tasks import STUDENT
from heatbath.engine import losses
from heatbath.engine.batches import FOUR, DataTable, gather
from heatbath.engine.compile import compiled
from heatbath.engine.dense import activate, forward
from heatbath.engine.dense_shape import by_pointer, copy_weights, make_room
from heatbath.engine.kernels import example_gammas
from heatbath.engine.layouts import chains_in, first_address
from heatbath.engine.losses import BINARY, CLASSES, predictions
from heatbath.engine.simd import BYTES, keep, lanes_of, null, pointer
from heatbath.reference.random import ROW, SLOTS, TAIL


@compiled(apart=True)
def evaluate(layout, theta, network, table, sets, room, mean, share, averages, begin, running, nth):
    """Mean loss and accuracy of every chain over all data, in `mean` and `share`, one for each lane; the
    accuracy of a regression is NaN. `sets` says which set of data a chain has. Data with weights have them in
    both means.

    With nth > 0 the outputs are instead taken into running means, averages[chain, 0], and sums of squared
    deviations from them, averages[chain, 1], as the nth of their kind, of the `running` chains from `begin`
    on.
    """
    count, out, chunk = table.data, network.out, network.chunk
    lane = chains_in(layout, theta)
    if lane == 1:
        copy_weights(theta, network, room.weights)
    for c in range(lane):
        mean[c], share[c] = 0.0, 0.0
    for first in range(0, count, chunk):
        size = min(chunk, count - first)
        for i in range(size):
            for c in range(lane):
                room.chosen[i * lane + c] = first + i
        columns = table.columns if nth == 0 else 0
        gather(
            layout, table, columns, sets, room.chosen, 0, size, room.inputs, network.stride, room.targets,
            chunk,
        )  # fmt: skip
        forward(layout, theta, network, 0, size, room)
        if nth > 0:
            predictions(layout, network.loss, room.logits, chunk, size, out)
            for c in range(lane):
                if running[c] == 0:
                    continue
                for i in range(size):
                    for k in range(out):
                        value = np.float64(room.logits[(k * chunk + i) * lane + c])
                        difference = value - averages[begin + c, 0, first + i, k]
                        averages[begin + c, 0, first + i, k] += difference / nth
                        averages[begin + c, 1, first + i, k] += difference * (
                            value - averages[begin + c, 0, first + i, k]
                        )
            continue
        losses.values(
            layout,
            network.loss,
            room.logits,
            room.targets,
            chunk,
            chunk,
            0,
            size,
            out,
            room.deltas,
            room.previous,
        )
        if table.weight >= 0:
            losses.weigh(layout, room.targets, table.weight * chunk, room.deltas, chunk, size, 1)
            losses.weigh(layout, room.targets, table.weight * chunk, room.previous, chunk, size, 1)
        for i in range(size):
            for c in range(lane):
                mean[c] += room.deltas[i * lane + c]
                share[c] += room.previous[i * lane + c]
    for c in range(lane):
        mean[c] /= count
        share[c] = share[c] / count if network.loss in (BINARY, CLASSES) else np.nan


class Tails(NamedTuple):
    """What the squares of residuals in Student's law need: the variances (target, lane), room for the gamma
    numbers of a row of examples (target, example, lane), their shapes (set, example), and their address."""

    noise: Any
    gammas: Any
    shapes: Any
    seed: int
    step: int
    scratch: Any


@compiled
def _fill_gammas(layout, tails, sets, count, first, k):
    """Draw the gamma numbers of a row of examples from `first` on, as far as there are any, for target k."""
    lane = chains_in(layout, tails.scratch.z)
    begin = k * ROW * lane
    for e in range(ROW):
        for c in range(lane):
            shape = tails.shapes[sets[c], first + e] if first + e < count else 0.0
            tails.gammas[begin + e * lane + c] = -shape
    use, tile = TAIL << 14 | SLOTS * k, first // ROW
    example_gammas(layout, tails.seed, use, tails.step, tile, tails.scratch, tails.gammas, begin)


@compiled(apart=True)
def squares(layout, theta, network, table, sets, room, sums, tails):
    """The sum of the squared residuals over all data, of every target and chain, in `sums` (target, lane);
    where the data have weights, each times its own.

    Where the noise has Student's law, a square is multiplied by g/(ν + r²/s²) instead, with a gamma number g
    for each example, in whose shape its weight is.
    """
    chunk, lane, L = network.chunk, chains_in(layout, theta), lanes_of(theta)
    if lane == 1:
        copy_weights(theta, network, room.weights)
    for k in range(network.out):
        for c in range(lane):
            sums[k * L + c] = 0.0
    for first in range(0, table.data, chunk):
        size = min(chunk, table.data - first)
        for i in range(size):
            for c in range(lane):
                room.chosen[i * lane + c] = first + i
        gather(
            layout, table, table.columns, sets, room.chosen, 0, size, room.inputs, network.stride,
            room.targets, chunk,
        )  # fmt: skip
        forward(layout, theta, network, 0, size, room)
        for i in range(size):
            row = (first + i) % ROW
            for k in range(network.out):
                if network.loss == STUDENT and row == 0:
                    _fill_gammas(layout, tails, sets, table.data, first + i, k)
                for c in range(lane):
                    at = (k * chunk + i) * lane + c
                    residual = np.float64(room.logits[at]) - np.float64(room.targets[at])
                    square = residual * residual
                    if network.loss == STUDENT:
                        spread = network.degrees + square / tails.noise[k * L + c]
                        square *= tails.gammas[(k * ROW + row) * lane + c] / spread
                    elif table.weight >= 0:
                        square *= np.float64(room.targets[(table.weight * chunk + i) * lane + c])
                    sums[k * L + c] += square


@compiled
def _mix_inputs(weights, inputs, mixed, stride):
    """mixed = Σ_k weights[k] inputs[k], one addition after the other."""
    rows, width = inputs.shape[1], inputs.shape[2]
    for i in range(rows):
        for j in range(width):
            mixed[i * stride + j] = weights[0] * inputs[0, i, j]
        for k in range(1, weights.shape[0]):
            for j in range(width):
                mixed[i * stride + j] += weights[k] * inputs[k, i, j]


@compiled(cache=True)
def evaluate_mixtures(
    layout, begin, end_, corners, weights, inputs, shares, activation, Y, weight, network, loss, right
):
    """Add the loss and the number of right answers on some data at the mixtures begin to end - 1.

    The data count by the column `weight` of Y, or alike where that is -1.

    Mixture m has the parameters Σ_k weights[m, k] corners[k], summed in float64 and rounded once. It is
    evaluated by the layers of `network` from activation(Σ_k shares[m, k] inputs[k]), with one row for each
    row of Y: the outputs of a first layer are as linear in its parameters as they are, so that it need not
    be computed for every mixture.
    """
    rows, width, columns = Y.shape[0], inputs.shape[2], Y.shape[1]
    stride = -(-(width + columns) // FOUR) * FOUR
    like = pointer(corners)
    pointed = by_pointer(network)
    low = network.layers[0, 18]  # the parameters before are not used
    theta = np.zeros(corners.shape[1], corners.dtype)
    lanes = lanes_of(like)
    mixed = np.zeros(-(-rows * stride // lanes) * lanes, corners.dtype)
    kinds = like, null(np.uint16), null(np.uint32)
    _, end = make_room(layout, pointed, *kinds, 1, 1, columns, like, like, 0)
    memory = np.zeros(end + BYTES, np.uint8)
    room, _ = make_room(layout, pointed, *kinds, 1, 1, columns, like, like, first_address(memory))
    table = DataTable(pointer(mixed), rows, stride, width, columns, weight)
    mean, share, nothing = np.zeros(1), np.zeros(1), np.empty((0, 2, 0, 0))
    sets, running = np.zeros(1, np.int64), np.ones(1, np.int64)
    for m in range(begin, end_):
        for e in range(low, theta.shape[0]):
            total = 0.0
            for k in range(weights.shape[1]):
                total += weights[m, k] * corners[k, e]
            theta[e] = total
        _mix_inputs(shares[m], inputs, mixed, stride)
        activate(pointer(mixed), 0, mixed.shape[0], activation)
        for i in range(rows):
            for k in range(columns):
                mixed[i * stride + width + k] = Y[i, k]
        evaluate(
            layout, pointer(theta), pointed, table, pointer(sets), room, pointer(mean), pointer(share),
            nothing, 0, pointer(running), 0,
        )  # fmt: skip
        loss[m] += rows * mean[0]
        right[m] += np.rint(rows * share[0]) if weight < 0 else rows * share[0]
    for numbers in (theta, mixed):
        keep(numbers)
    for wholes in (sets, running):
        keep(wholes)
    keep(memory)
