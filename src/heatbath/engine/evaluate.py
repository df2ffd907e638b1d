"""Loss, accuracy and outputs over all data, compiled: of chains, and at many mixtures of parameters."""

from __future__ import annotations

import numpy as np

from heatbath.engine import losses
from heatbath.engine.batches import gather
from heatbath.engine.compile import compiled
from heatbath.engine.dense import activate, copy_weights, forward, make_room
from heatbath.engine.layouts import Alone
from heatbath.engine.losses import BINARY, CLASSES, predictions


@compiled
def evaluate(layout, theta, network, X, Y, sets, room, mean, share, averages, begin, running, nth):
    """Mean loss and accuracy of every chain over all data, in `mean` and `share`, one for each lane; the
    accuracy of a regression is NaN. X and Y are (set, datum, column), and `sets` says which a chain has.

    With nth > 0 the outputs are instead taken into running means, averages[chain, 0], and sums of squared
    deviations from them, averages[chain, 1], as the nth of their kind, of the `running` chains from `begin` on.
    """
    count, out, lane, chunk = X.shape[1], network.layers[-1, 1], layout.lanes, network.chunk
    if lane == 1:
        copy_weights(theta, network.layers, room.weights)
    for c in range(lane):
        mean[c], share[c] = 0.0, 0.0
    for first in range(0, count, chunk):
        size = min(chunk, count - first)
        for i in range(size):
            for c in range(lane):
                room.chosen[i * lane + c] = first + i
        columns = Y.shape[2] if nth == 0 else 0
        gather(
            layout, X, Y, columns, sets, room.chosen, 0, size, room.inputs, network.layers[0, 3], room.targets, chunk
        )
        forward(layout, theta, network, 0, size, room)
        if nth > 0:
            predictions(layout, network.loss, room.logits, chunk, size, out)
            for c in range(lane):
                if running[c] == 0:
                    continue
                average = averages[begin + c]
                for i in range(size):
                    for k in range(out):
                        value = np.float64(room.logits[(k * chunk + i) * lane + c])
                        difference = value - average[0, first + i, k]
                        average[0, first + i, k] += difference / nth
                        average[1, first + i, k] += difference * (value - average[0, first + i, k])
            continue
        losses.values(
            layout, network.loss, room.logits, room.targets, chunk, chunk, 0, size, out, room.deltas, room.previous
        )
        for i in range(size):
            for c in range(lane):
                mean[c] += room.deltas[i * lane + c]
                share[c] += room.previous[i * lane + c]
    for c in range(lane):
        mean[c] /= count
        share[c] = share[c] / count if network.loss in (BINARY, CLASSES) else np.nan


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
def evaluate_mixtures(begin, end, corners, weights, inputs, shares, activation, Y, network, loss, right):
    """Add the loss and the number of right answers on some data at the mixtures begin to end - 1.

    Mixture m has the parameters Σ_k weights[m, k] corners[k], summed in float64 and rounded once. It is
    evaluated by the layers of `network` from activation(Σ_k shares[m, k] inputs[k]), with one row for each
    row of Y: the outputs of a first layer are as linear in its parameters as they are, so that it need not
    be computed for every mixture.
    """
    layout = Alone(1)
    rows, width = Y.shape[0], inputs.shape[2]
    low = network.layers[0, 18]  # the parameters before are not used
    like = corners[0]
    theta = np.zeros(corners.shape[1], corners.dtype)
    lanes = 64 // corners.itemsize
    mixed = np.zeros(-(-rows * width // lanes) * lanes, corners.dtype)
    X = mixed[: rows * width].reshape(1, rows, width)
    targets = Y.reshape(1, rows, Y.shape[1])
    sets = np.zeros(1, np.int64)
    room = make_room(layout, network, like, network.chunk, network.chunk, targets.shape[2], like, like)
    mean, share, nothing, running = np.zeros(1), np.zeros(1), np.empty((0, 2, 0, 0)), np.ones(1, np.int64)
    for m in range(begin, end):
        for e in range(low, theta.shape[0]):
            total = 0.0
            for k in range(weights.shape[1]):
                total += weights[m, k] * corners[k, e]
            theta[e] = total
        _mix_inputs(shares[m], inputs, mixed, width)
        activate(mixed, 0, mixed.shape[0], activation)
        evaluate(layout, theta, network, X, targets, sets, room, mean, share, nothing, 0, running, 0)
        loss[m] += rows * mean[0]
        right[m] += np.rint(rows * share[0])
