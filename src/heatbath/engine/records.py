"""What is noted of a chain while it runs: records, samples and running averages."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heatbath.engine.batches import DataTable, table_by_pointer
from heatbath.engine.compile import compiled
from heatbath.engine.evaluate import evaluate
from heatbath.engine.layouts import chains_in
from heatbath.engine.simd import keep, lanes_of


class Notes(NamedTuple):
    """What is noted at the records, and where: arrays whose first two indices are chain and record.

    `steps` are the steps of the records, in order; at those with `losses`, loss and accuracy are taken over
    all data, training (0) and test (1) in the last index. `theta` may have no columns, and so may `noise` (of
    a record) and `noises` (of a sample), the variance of each target. `histogram` counts the
    parameters of each unit in bins of equal width from `low` to `high`; it may have no bins.

    A sample is taken `thin`, 2 `thin`, ... steps after `burn_in`, up to step `last`: all after the first
    `done` are kept in `samples` while there is room, and the outputs at the `inputs`, if there are any, join
    the running mean and sum of squared deviations (0 and 1 in the second index of `average`).
    """

    steps: NDArray[np.int64]
    losses: NDArray[np.bool_]
    loss: NDArray[np.float64]
    accuracy: NDArray[np.float64]
    temperature: NDArray[np.float64]
    xi: NDArray[np.float64]
    theta: NDArray[Any]
    noise: NDArray[np.float64]
    histogram: NDArray[np.int64]
    low: float
    high: float
    test: DataTable
    burn_in: int
    thin: int
    last: int
    done: int
    samples: NDArray[Any]
    noises: NDArray[np.float64]
    inputs: DataTable
    average: NDArray[np.float64]


@compiled
def _count(theta, low, stop, lane, c, bottom, top, counts):
    """Add values to a histogram; those outside are not counted, and the upper end belongs to the last bin."""
    bins = counts.shape[0]
    for e in range(low, stop):
        value = theta[e * lane + c]
        if bottom <= value <= top:
            counts[min(int((value - bottom) / (top - bottom) * bins), bins - 1)] += 1


@compiled(apart=True)
def note(layout, record, nth, begin, members, state, notes, train, network, units, room):
    """Note the state of the running chains from `begin` on: as a record unless that is below 0, as the nth
    sample unless that is 0."""
    theta, lane, running = state.theta, chains_in(layout, state.theta), state.running
    for c in range(members):
        if running[c] == 0:
            continue
        chain = begin + c
        if record >= 0:
            _record(layout, record, chain, c, state, notes, units)
        if notes.done < nth <= notes.done + notes.samples.shape[1]:
            for e in range(notes.samples.shape[2]):
                notes.samples[chain, nth - notes.done - 1, e] = theta[e * lane + c]
            for k in range(notes.noises.shape[2]):
                notes.noises[chain, nth - notes.done - 1, k] = state.noise[k * lanes_of(theta) + c]
    for split in range(3):
        if split == 2:
            table, due = notes.inputs, nth > 0
        else:
            table, due = train if split == 0 else notes.test, record >= 0 and notes.losses[record]
        if due and table.data > 0:
            pointed = table_by_pointer(table)
            sets = state.nowhere if split == 2 else state.sets
            evaluate(
                layout, theta, network, pointed, sets, room, state.mean, state.share, notes.average, begin,
                running, nth if split == 2 else 0,
            )  # fmt: skip
            keep(table.rows)
            if split < 2:
                for c in range(members):
                    if running[c] > 0:
                        notes.loss[begin + c, record, split] = state.mean[c]
                        notes.accuracy[begin + c, record, split] = state.share[c]


@compiled
def _record(layout, record, chain, c, state, notes, units):
    """Note everything but losses."""
    theta, lane = state.theta, chains_in(layout, state.theta)
    if notes.histogram.shape[3] > 0:
        for u in range(units.size.shape[0]):
            for r in range(units.first[u], units.first[u + 1]):
                counts = notes.histogram[chain, record, u]
                _count(theta, units.ranges[r, 0], units.ranges[r, 1], lane, c, notes.low, notes.high, counts)
    L = lanes_of(theta)
    for u in range(units.size.shape[0]):
        notes.temperature[chain, record, u] = state.temperature[u * L + c]
        notes.xi[chain, record, u] = state.xi[u * L + c]
    for k in range(notes.noise.shape[2]):
        notes.noise[chain, record, k] = state.noise[k * L + c]
    for e in range(notes.theta.shape[2]):
        notes.theta[chain, record, e] = theta[e * lane + c]
