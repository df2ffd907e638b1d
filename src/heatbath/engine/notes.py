"""What is noted of a chain while it runs: records, samples and running averages."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heatbath.engine.compile import compiled
from heatbath.engine.dense import evaluate


class Notes(NamedTuple):
    """What is noted at the records, and where: arrays whose first two indices are chain and record.

    `steps` are the steps of the records, in order; at those with `losses`, loss and accuracy are taken over
    all data, training (0) and test (1) in the last index. `theta` may have no columns. `histogram` counts the
    parameters of each unit in bins of equal width from `low` to `high`; it may have no bins.

    A sample is taken `thin`, 2 `thin`, ... steps after `burn_in`, up to step `last`: all after the first
    `done` are kept in `samples` while there is room, and the outputs at the inputs `X_average`, if there are
    any, join the running mean and sum of squared deviations (0 and 1 in the second index of `average`).
    """

    steps: NDArray[np.int64]
    losses: NDArray[np.bool_]
    loss: NDArray[np.float64]
    accuracy: NDArray[np.float64]
    temperature: NDArray[np.float64]
    xi: NDArray[np.float64]
    theta: NDArray[Any]
    histogram: NDArray[np.int64]
    low: float
    high: float
    X_test: NDArray[Any]
    Y_test: NDArray[Any]
    burn_in: int
    thin: int
    last: int
    done: int
    samples: NDArray[Any]
    X_average: NDArray[Any]
    average: NDArray[np.float64]


@compiled
def _count(values, low, high, counts):
    """Add values to a histogram; those outside are not counted, and the upper end belongs to the last bin."""
    bins = counts.shape[0]
    for e in range(values.shape[0]):
        if low <= values[e] <= high:
            counts[min(int((values[e] - low) / (high - low) * bins), bins - 1)] += 1


@compiled
def note(record, nth, c, chains, notes, data, network, units, outputs, deltas, copies):
    """Note the state of a chain: as a record unless that is below 0, as the nth sample unless that is 0."""
    if record >= 0:
        _record(record, c, chains, notes, units)
    if notes.done < nth <= notes.done + notes.samples.shape[1]:
        for e in range(notes.samples.shape[2]):
            notes.samples[c, nth - notes.done - 1, e] = chains.theta[c, e]
    at = chains.number[c] % data.X.shape[0]
    for split in range(3):
        if split == 2:
            X, Y, due = notes.X_average, notes.Y_test[at], nth > 0
        else:
            X, Y = (data.X[at], data.Y[at]) if split == 0 else (notes.X_test[at], notes.Y_test[at])
            due = record >= 0 and notes.losses[record]
        if due and X.shape[0] > 0:
            loss, accuracy = evaluate(
                chains.theta[c],
                network.layers,
                network.activation,
                network.loss,
                X,
                Y,
                outputs,
                deltas,
                copies,
                notes.average[c],
                nth if split == 2 else 0,
            )
            if split < 2:
                notes.loss[c, record, split], notes.accuracy[c, record, split] = loss, accuracy


@compiled
def _record(record, c, chains, notes, units):
    """Note everything but losses."""
    if notes.histogram.shape[3] > 0:
        for u in range(units.size.shape[0]):
            for r in range(units.first[u], units.first[u + 1]):
                values = chains.theta[c, units.ranges[r, 0] : units.ranges[r, 1]]
                _count(values, notes.low, notes.high, notes.histogram[c, record, u])
    for u in range(chains.xi.shape[1]):
        notes.temperature[c, record, u] = chains.temperature[c, u]
        notes.xi[c, record, u] = chains.xi[c, u]
    for e in range(notes.theta.shape[2]):
        notes.theta[c, record, e] = chains.theta[c, e]
