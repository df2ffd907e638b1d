"""Losses from logits, compiled."""

from __future__ import annotations

import numpy as np

from heatbath.engine.compile import compiled
from heatbath.tasks import TASKS

BINARY, CLASSES = TASKS["binary"].number, TASKS["classes"].number


@compiled
def losses(logits, targets, loss, deltas):
    """The mean loss of a batch, and its derivative by the logits in `deltas`.

    Binary cross entropy and cross entropy from logits, never from probabilities; half the squared error.
    """
    batch, out = logits.shape
    total = 0.0
    number = logits.dtype.type
    scale = number(1.0 / batch)
    for i in range(batch):
        if loss == BINARY:
            for k in range(out):
                z, y = logits[i, k], targets[i, k]
                tail = np.exp(-abs(z))
                total += max(z, number(0.0)) - z * y + np.log1p(tail)
                probability = number(1.0) / (number(1.0) + tail) if z >= 0 else tail / (number(1.0) + tail)
                deltas[i, k] = (probability - y) * scale
        elif loss == CLASSES:
            label = int(targets[i, 0])
            largest = logits[i, 0]
            for k in range(1, out):
                largest = max(largest, logits[i, k])
            normaliser = number(0.0)
            for k in range(out):
                deltas[i, k] = np.exp(logits[i, k] - largest)
                normaliser += deltas[i, k]
            total += np.log(normaliser) - (logits[i, label] - largest)
            for k in range(out):
                deltas[i, k] = deltas[i, k] / normaliser * scale
            deltas[i, label] -= scale
        else:
            for k in range(out):
                difference = logits[i, k] - targets[i, k]
                total += 0.5 * difference * difference
                deltas[i, k] = difference * scale
    return total / batch


@compiled
def predictions(logits, loss):
    """Turn logits into what they say: the probability of class 1, of each class, or the values themselves."""
    one = logits.dtype.type(1.0)
    for i in range(logits.shape[0]):
        if loss == BINARY:
            for k in range(logits.shape[1]):
                tail = np.exp(-abs(logits[i, k]))
                logits[i, k] = one / (one + tail) if logits[i, k] >= 0 else tail / (one + tail)
        elif loss == CLASSES:
            largest = logits[i, 0]
            for k in range(1, logits.shape[1]):
                largest = max(largest, logits[i, k])
            normaliser = logits.dtype.type(0.0)
            for k in range(logits.shape[1]):
                logits[i, k] = np.exp(logits[i, k] - largest)
                normaliser += logits[i, k]
            for k in range(logits.shape[1]):
                logits[i, k] /= normaliser
