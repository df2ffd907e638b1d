"""Loss and accuracy at many mixtures of parameters, compiled."""

from __future__ import annotations

import numpy as np

from heatbath.engine.compile import FASTMATH, compiled
from heatbath.engine.dense import _activate, evaluate


@compiled(fastmath=FASTMATH)
def _mix_inputs(weights, inputs, mixed):
    """mixed = Σ_k weights[k] inputs[k]."""
    rows, width = mixed.shape
    for i in range(rows):
        for j in range(width):
            mixed[i, j] = weights[0] * inputs[0, i, j]
        for k in range(1, weights.shape[0]):
            for j in range(width):
                mixed[i, j] += weights[k] * inputs[k, i, j]


@compiled(cache=True)
def evaluate_mixtures(begin, end, corners, weights, inputs, shares, activation, Y, network, loss, right):
    """Add the loss and the number of right answers on some data at the mixtures begin to end - 1.

    Mixture m has the parameters Σ_k weights[m, k] corners[k], summed in float64 and rounded once. It is
    evaluated by the layers of `network` from activation(Σ_k shares[m, k] inputs[k]), with one row for each
    row of Y: the outputs of a first layer are as linear in its parameters as they are, so that it need not
    be computed for every mixture.
    """
    number = corners.dtype
    rows = Y.shape[0]
    low = network.layers[0, 2]  # the parameters before are not used
    theta = np.zeros(corners.shape[1], number)
    mixed = np.empty((rows, inputs.shape[2]), number)
    outputs, deltas = np.empty(network.room[0], number), np.empty(network.room[1], number)
    copies = np.zeros(network.room[2], number)
    nothing = np.empty((2, 0, 0))  # no outputs are averaged
    for m in range(begin, end):
        for e in range(low, theta.shape[0]):
            total = 0.0
            for k in range(weights.shape[1]):
                total += weights[m, k] * corners[k, e]
            theta[e] = total
        _mix_inputs(shares[m], inputs, mixed)
        _activate(mixed.ravel(), activation)
        mean, share = evaluate(
            theta,
            network.layers,
            network.activation,
            network.loss,
            mixed,
            Y,
            outputs,
            deltas,
            copies,
            nothing,
            0,
        )
        loss[m] += rows * mean
        right[m] += np.rint(rows * share)
