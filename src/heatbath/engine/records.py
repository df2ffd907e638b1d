"""Records of a chain while it runs: its state at some steps, samples and running averages."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heatbath.engine.batches import DataTable
from heatbath.engine.compile import compiled
from heatbath.engine.evaluate import average_predictions, evaluate
from heatbath.engine.layouts import chains_in
from heatbath.engine.simd import keep_alive, lanes_of, with_pointers


class Notes(NamedTuple):
    """What is recorded, and where: arrays whose first two indices are chain and record.

    `steps` are the steps of the records, in order; at those with `losses`, loss and accuracy are taken over
    all data, training (0) and test (1) in the last index. `theta` may have no columns, and so may `noise` (of
    a record) and `noises` (of a sample), the variance of each target. `histogram` counts the parameters of
    each unit in bins of equal width from `low` to `high`; it may have no bins.

    A sample is taken `thin`, 2 `thin`, ... steps after `burn_in`, up to step `last`. All after the first
    `done` are kept in `samples` while there is room, and the predictions at the `inputs`, if there are any,
    join the running mean and sum of squared deviations (0 and 1 in the second index of `average`).
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


class Group(NamedTuple):
    """The chains `first` to first + members - 1, which are computed side by side; alone it is one.

    `chains` is the state of all chains, a `loop.ChainState` with pointers.
    """

    first: int
    members: int
    chains: Any


@compiled(apart=True)
def take_notes(layout, record, sample, group, setup, buffers, notes):
    """Record the state of the running chains of a group in `notes`.

    Parameters
    ----------
    layout : `Layout`, one chain alone or chains side by side in the lanes of a vector
    record : the number of the record, or below 0 if none is due
    sample : the number of the sample, counted from 1, or 0 if none is due
    group : `Group`, the chains that are computed together
    setup : `loop.Setup`
    buffers : `loop.LoopBuffers`, with the state of the group
    notes : `Notes`, which are filled
    """
    state, network, room = buffers.state, setup.network, buffers.room
    sample_index = sample - notes.done - 1  # in the array of samples
    is_kept = 0 <= sample_index < notes.samples.shape[1]
    for lane in range(group.members):
        if state.running[lane] == 0:
            continue
        chain = group.first + lane
        if record >= 0:
            _record_state(layout, record, chain, lane, notes, setup, state)
        if is_kept:
            _keep_sample(layout, sample_index, chain, lane, state, notes)

    if record >= 0 and notes.losses[record]:
        _record_losses(layout, record, 0, group, state, notes, setup.table, network, room)
        test = with_pointers(notes.test)
        _record_losses(layout, record, 1, group, state, notes, test, network, room)
        keep_alive(notes.test.rows)

    if sample > 0 and notes.inputs.data > 0:
        inputs = with_pointers(notes.inputs)
        average_predictions(
            layout, state.theta, network, inputs, state.first_set, room, notes.average, group.first,
            state.running, sample,
        )  # fmt: skip
        keep_alive(notes.inputs.rows)


@compiled(apart=True)
def _record_losses(layout, record, split, group, state, notes, table, network, room):
    """Record loss and accuracy of a group over a table of training or test data, if that has any.

    Parameters
    ----------
    layout : `Layout`, one chain alone or chains side by side in the lanes of a vector
    record : the number of the record
    split : 0 for training data, 1 for test data: the last index of the losses in `notes`
    group : `Group`, the chains that are computed together
    state : `loop.LoopState`, the state of the group
    notes : `Notes`, whose losses and accuracies are written
    table : `DataTable` with a pointer
    network, room : `Network`, and `Room` to work in
    """
    if table.data == 0:
        return
    evaluate(layout, state.theta, network, table, state.sets, room, state.mean_loss, state.accuracy)
    for lane in range(group.members):
        if state.running[lane] > 0:
            notes.loss[group.first + lane, record, split] = state.mean_loss[lane]
            notes.accuracy[group.first + lane, record, split] = state.accuracy[lane]


@compiled
def _keep_sample(layout, sample, chain, lane, state, notes):
    """Copy the parameters and variances of a chain to its samples."""
    group_size, lanes = chains_in(layout, state.theta), lanes_of(state.theta)
    for e in range(notes.samples.shape[2]):
        notes.samples[chain, sample, e] = state.theta[e * group_size + lane]
    for k in range(notes.noises.shape[2]):
        notes.noises[chain, sample, k] = state.noise[k * lanes + lane]


@compiled
def _record_state(layout, record, chain, lane, notes, setup, state):
    """Record everything of a chain but its losses: temperatures, ξ, variances, parameters, histograms.

    Parameters
    ----------
    layout : `Layout`, one chain alone or chains side by side in the lanes of a vector
    record, chain : the numbers of the record and of the chain, the first two indices of `notes`
    lane : the lane of the chain in the state, which is (parameter, unit or target, lane)
    notes : `Notes`, which are filled
    setup : `loop.Setup`
    state : `loop.LoopState`
    """
    group_size, lanes = chains_in(layout, state.theta), lanes_of(state.theta)
    for u in range(setup.sizes.units):
        notes.temperature[chain, record, u] = state.temperature[u * lanes + lane]
        notes.xi[chain, record, u] = state.xi[u * lanes + lane]
        if notes.histogram.shape[3] > 0:
            counts = notes.histogram[chain, record, u]
            _count_parameters(layout, u, lane, setup.units, state.theta, notes.low, notes.high, counts)
    for k in range(notes.noise.shape[2]):
        notes.noise[chain, record, k] = state.noise[k * lanes + lane]
    for e in range(notes.theta.shape[2]):
        notes.theta[chain, record, e] = state.theta[e * group_size + lane]


@compiled
def _count_parameters(layout, u, lane, units, theta, low, high, counts):
    """Count the parameters of unit u of the chain in a lane in a histogram, without those outside of it.

    Parameters
    ----------
    layout : `Layout`, one chain alone or chains side by side in the lanes of a vector
    units : `loop.Units` with pointers, the ranges of elements of each unit
    theta : pointer to (parameter, lane)
    low, high : the ends of the histogram; `high` itself is in the last bin
    counts : array (bin) of bins of equal width, which are counted up
    """
    group_size = chains_in(layout, theta)
    bin_count = counts.shape[0]
    for r in range(units.first[u], units.first[u + 1]):
        for e in range(units.ranges[2 * r], units.ranges[2 * r + 1]):
            parameter = theta[e * group_size + lane]
            if low <= parameter <= high:
                position = int((parameter - low) / (high - low) * bin_count)
                counts[min(position, bin_count - 1)] += 1
