"""Loss, accuracy and outputs over all data, compiled: of chains, and at many mixtures of parameters."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from heatbath.datasets.tasks import STUDENT
from heatbath.engine.batches import FOUR, DataTable, gather
from heatbath.engine.compile import compiled
from heatbath.engine.dense import activate, forward
from heatbath.engine.dense_shape import copy_weights, reserve_room
from heatbath.engine.kernels import Scratch, draw_example_gammas, pointer_types
from heatbath.engine.layouts import aligned_address, chains_in, round_up
from heatbath.engine.losses import (
    BINARY,
    CLASSES,
    LossRows,
    compute_losses,
    decode_logits,
    multiply_by_weights,
)
from heatbath.engine.simd import BYTES, Pointer, keep_alive, lanes_of, pointer_to, with_pointers
from heatbath.reference.random import ROW, SLOT_BITS, SLOTS, TAIL

_WEIGHT_PARAMETERS = 18  # the column of `DenseLayerRow`
_MEAN, _SQUARED_DEVIATIONS = 0, 1  # in the second index of `Notes.average`


@compiled
def _forward_chunk(layout, theta, network, table, columns, sets, room, first):
    """Compute the logits of a chunk of the data, from example `first` on; return how many examples it has.

    Parameters
    ----------
    layout : `Layout`, one chain alone or chains side by side in the lanes of a vector
    theta : pointer to (parameter, lane)
    network : `Network`, with the size of a chunk
    table : `DataTable` with a pointer
    columns : how many of the targets to copy to `room.targets`
    sets : pointer to (lane), the data set of each chain
    room : `Room`, whose `logits` are written
    """
    group_size = chains_in(layout, theta)
    examples = min(network.chunk, table.data - first)
    for i in range(examples):
        for lane in range(group_size):
            room.chosen[i * group_size + lane] = first + i
    gather(layout, table, columns, sets, room.chosen, examples, room, network.stride, network.chunk)
    forward(layout, theta, network, 0, examples, room)
    return examples


@compiled(apart=True)
def evaluate(layout, theta, network, table, sets, room, mean_loss, accuracy):
    """Write the mean loss and the accuracy of every chain over all data.

    Weights of the data count in both means. The accuracy of a regression is NaN.

    Parameters
    ----------
    layout : `Layout`, one chain alone or chains side by side in the lanes of a vector
    theta : pointer to (parameter, lane)
    network : `Network`, its layers and sizes as numbers
    table : `DataTable` with a pointer
    sets : pointer to (lane), the data set of each chain
    room : `Room`, memory to work in
    mean_loss, accuracy : pointers to (lane), which are written
    """
    group_size = chains_in(layout, theta)
    chunk = network.chunk
    losses = room.deltas  # free, since no gradient is computed
    is_right = room.previous_deltas
    if group_size == 1:
        copy_weights(theta, network, room.weights)
    for lane in range(group_size):
        mean_loss[lane] = 0.0
        accuracy[lane] = 0.0

    for first in range(0, table.data, chunk):
        examples = _forward_chunk(layout, theta, network, table, table.columns, sets, room, first)
        rows = LossRows(room.logits, room.targets, chunk, chunk, 0, examples, network.out)
        compute_losses(layout, network.loss, rows, losses, is_right)
        if table.weight >= 0:
            weight_start = table.weight * chunk
            multiply_by_weights(layout, room.targets, weight_start, losses, chunk, examples, 1)
            multiply_by_weights(layout, room.targets, weight_start, is_right, chunk, examples, 1)
        _add_examples(losses, examples, group_size, mean_loss)
        _add_examples(is_right, examples, group_size, accuracy)

    has_accuracy = network.loss in (BINARY, CLASSES)
    for lane in range(group_size):
        mean_loss[lane] /= table.data
        accuracy[lane] = accuracy[lane] / table.data if has_accuracy else np.nan


@compiled
def _add_examples(numbers, examples, group_size, totals):
    """Add the numbers of some examples, (example, lane), to the `totals` (lane) in place, in their order."""
    for i in range(examples):
        for lane in range(group_size):
            totals[lane] += numbers[i * group_size + lane]


@compiled(apart=True)
def average_predictions(layout, theta, network, table, sets, room, averages, first_chain, running, n):
    """Update running means and sums of squared deviations with the n-th predictions (Welford).

    Parameters
    ----------
    layout : `Layout`, one chain alone or chains side by side in the lanes of a vector
    theta : pointer to the parameters (parameter, lane)
    network : `Network`, its layers and sizes as numbers
    table : `DataTable` of the inputs, with a pointer
    sets : pointer to (lane), the data set of each chain
    room : `Room`, memory to work in
    averages : array (chain, 2, example, output), which is updated
        Running means (0), and sums of squared deviations from them (1).
    first_chain : number of the chain in lane 0
    running : pointer to (lane), 0 where a chain has stopped and isn't updated
    n : how many predictions there are with these
    """
    group_size = chains_in(layout, theta)
    chunk = network.chunk
    if group_size == 1:
        copy_weights(theta, network, room.weights)

    for first in range(0, table.data, chunk):
        examples = _forward_chunk(layout, theta, network, table, 0, sets, room, first)
        decode_logits(layout, network.loss, room.logits, chunk, examples, network.out)
        for lane in range(group_size):
            if running[lane] == 0:
                continue
            for i in range(examples):
                for k in range(network.out):
                    prediction = np.float64(room.logits[(k * chunk + i) * group_size + lane])
                    _add_to_average(prediction, n, averages, first_chain + lane, first + i, k)


@compiled
def _add_to_average(prediction, n, averages, chain, example, k):
    """Update the mean and the sum of squared deviations of output k with its n-th prediction, in place.

    `averages` is (chain, 2, example, output), as in `average_predictions`.
    """
    deviation = prediction - averages[chain, _MEAN, example, k]
    averages[chain, _MEAN, example, k] += deviation / n
    deviation_after = prediction - averages[chain, _MEAN, example, k]
    averages[chain, _SQUARED_DEVIATIONS, example, k] += deviation * deviation_after


class StudentNoise(NamedTuple):
    """What squared residuals with Student's law need: pointers, and the address of random numbers.

    `variances` is (target, lane), `gammas` (target, example, lane) has room for the gamma numbers of a row of
    examples, and `shapes` is (set, example). `seed` and `step` are those of the address.
    """

    variances: Pointer
    gammas: Pointer
    shapes: Pointer
    seed: int
    step: int
    scratch: Scratch


@compiled
def _fill_gammas(layout, student, sets, count, first, k):
    """Draw the gamma numbers of target k for the ROW examples from `first` on, of `count` in all.

    `student` is a `StudentNoise`, whose `gammas` are written; `sets` (lane) are the data sets of the chains.
    """
    group_size = chains_in(layout, student.scratch.z)
    start = k * ROW * group_size  # of target k in `gammas`
    for i in range(ROW):
        example = first + i
        for lane in range(group_size):
            shape = student.shapes[sets[lane] * count + example] if example < count else 0.0
            student.gammas[start + i * group_size + lane] = -shape  # still to be drawn

    stream_slot = TAIL << SLOT_BITS | SLOTS * k
    draw_example_gammas(
        layout, student.seed, stream_slot, student.step, first // ROW, student.scratch, student.gammas, start
    )  # fmt: skip


@compiled
def _student_weight(layout, student, degrees, square, example, k, lane):
    """Return g/(ν + r²/s²) for target k of an example: what Student's law multiplies the square r² by.

    `student` is the `StudentNoise` with g and s², and `degrees` is ν.
    """
    group_size = chains_in(layout, student.scratch.z)
    gamma = student.gammas[(k * ROW + example % ROW) * group_size + lane]
    variance = student.variances[k * lanes_of(student.scratch.z) + lane]
    return gamma / (degrees + square / variance)


@compiled
def _add_squares(layout, network, table, room, student, first, i, k, sums):
    """Add the squared residuals of target k of one example to the sums of all chains.

    Parameters
    ----------
    layout : `Layout`, one chain alone or chains side by side in the lanes of a vector
    network : `Network`, its layers and sizes as numbers
    table : `DataTable`, whose weights of examples multiply the squares
    room : `Room` with logits and targets, (column, example of the chunk, lane)
    student : `StudentNoise`, what Student's law needs
    first, i : the first example of the chunk, and the place of this one in the chunk
    k : the target
    sums : pointer to (target, lane), which is updated
    """
    group_size = chains_in(layout, room.logits)
    offset = (k * network.chunk + i) * group_size
    weight_offset = (table.weight * network.chunk + i) * group_size
    sum_offset = k * lanes_of(room.logits)
    for lane in range(group_size):
        residual = np.float64(room.logits[offset + lane]) - np.float64(room.targets[offset + lane])
        square = residual * residual
        if network.loss == STUDENT:
            square *= _student_weight(layout, student, network.degrees, square, first + i, k, lane)
        elif table.weight >= 0:
            square *= np.float64(room.targets[weight_offset + lane])
        sums[sum_offset + lane] += square


@compiled(apart=True)
def sum_squared_residuals(layout, theta, network, table, sets, room, sums, student):
    """Write the sum of squared residuals r² over all data, for every target and chain.

    Each square is multiplied by the weight of its example, if there are weights. With Student's law it is
    multiplied by g/(ν + r²/s²) instead, with a gamma number g for each example, whose shape contains the
    weight.

    Parameters
    ----------
    layout : `Layout`, one chain alone or chains side by side in the lanes of a vector
    theta : pointer to the parameters (parameter, lane)
    network : `Network`, its layers and sizes as numbers
    table : `DataTable` with a pointer
    sets : pointer to (lane), the data set of each chain
    room : `Room`, memory to work in
    sums : pointer to (target, lane), which is written
    student : `StudentNoise`, what Student's law needs
    """
    group_size = chains_in(layout, theta)
    if group_size == 1:
        copy_weights(theta, network, room.weights)
    for k in range(network.out):
        for lane in range(group_size):
            sums[k * lanes_of(theta) + lane] = 0.0

    for first in range(0, table.data, network.chunk):
        examples = _forward_chunk(layout, theta, network, table, table.columns, sets, room, first)
        for i in range(examples):
            needs_gammas = network.loss == STUDENT and (first + i) % ROW == 0
            for k in range(network.out):
                if needs_gammas:
                    _fill_gammas(layout, student, sets, table.data, first + i, k)
                _add_squares(layout, network, table, room, student, first, i, k, sums)


class MixtureData(NamedTuple):
    """Arrays of `evaluate_mixtures`: the corners (corner, parameter) and the inputs that each of them sees.

    `inputs` is (corner, example, input), and Y (example, column) are the targets, of which column `weight`
    has the weights of the examples, or none if that is -1.
    """

    corners: np.ndarray
    inputs: np.ndarray
    Y: np.ndarray
    weight: int


@compiled
def _mix_inputs(factors, inputs, mixed, stride):
    """Write Σ_k factors[k] inputs[k] to `mixed`, added in order, with examples `stride` apart.

    `factors` is (corner), `inputs` (corner, example, input), and `mixed` is flat.
    """
    examples, width = inputs.shape[1], inputs.shape[2]
    for i in range(examples):
        for j in range(width):
            mixed[i * stride + j] = factors[0] * inputs[0, i, j]
        for k in range(1, factors.shape[0]):
            for j in range(width):
                mixed[i * stride + j] += factors[k] * inputs[k, i, j]


@compiled
def _mix_parameters(factors, corners, theta, first):
    """Write Σ_k factors[k] corners[k] to theta[first:], summed in float64 and rounded once.

    `factors` is (corner), `corners` (corner, parameter).
    """
    for e in range(first, theta.shape[0]):
        parameter = 0.0
        for k in range(factors.shape[0]):
            parameter += factors[k] * corners[k, e]
        theta[e] = parameter


@compiled
def _copy_targets(Y, mixed, stride, width):
    """Copy targets (example, column) behind the inputs in the rows of `mixed`, which are `stride` apart."""
    examples, columns = Y.shape
    for i in range(examples):
        for k in range(columns):
            mixed[i * stride + width + k] = Y[i, k]


@compiled(cache=True)
def evaluate_mixtures(layout, first, stop, data, weights, input_weights, activation, network, losses, right):
    """Add the loss and the number of right answers on some data at mixtures first to stop - 1.

    Mixture m has the parameters Σ_k weights[m, k] corners[k], summed in float64 and rounded once. It is
    evaluated by the layers of `network` from activation(Σ_k input_weights[m, k] inputs[k]): the outputs of a
    first layer are as linear in its parameters as its parameters are in the weights, so that layer need not
    be computed for every mixture.

    Parameters
    ----------
    layout : `Alone` or `Wide`
    first, stop : the first mixture, and the stop
    data : `MixtureData`
    weights, input_weights : arrays (mixture, corner)
    activation : number of the activation
    network : `Network`, its layers and sizes as numbers
    losses, right : arrays (mixture), to which the sums over the examples are added
    """
    corners, inputs, Y = data.corners, data.inputs, data.Y
    examples, columns = Y.shape
    width = inputs.shape[2]
    like = pointer_to(corners)
    types = pointer_types(like)
    pointers = with_pointers(network)
    _, memory_size = reserve_room(layout, types, pointers, 1, 1, columns, like, like, 0)
    memory = np.zeros(memory_size + BYTES, np.uint8)
    room, _ = reserve_room(layout, types, pointers, 1, 1, columns, like, like, aligned_address(memory))

    stride = round_up(width + columns, FOUR)
    mixed = np.zeros(round_up(examples * stride, lanes_of(corners)), corners.dtype)  # inputs and targets
    table = DataTable(pointer_to(mixed), examples, stride, width, columns, data.weight)
    theta = np.zeros(corners.shape[1], corners.dtype)
    first_parameter = network.layers[0, _WEIGHT_PARAMETERS]
    mean_loss = np.zeros(1)
    accuracy = np.zeros(1)
    sets = np.zeros(1, np.int64)
    for m in range(first, stop):
        _mix_parameters(weights[m], corners, theta, first_parameter)
        _mix_inputs(input_weights[m], inputs, mixed, stride)
        activate(pointer_to(mixed), mixed.shape[0], activation)
        _copy_targets(Y, mixed, stride, width)  # after the activation, which goes over all of `mixed`

        evaluate(
            layout, pointer_to(theta), pointers, table, pointer_to(sets), room, pointer_to(mean_loss),
            pointer_to(accuracy),
        )  # fmt: skip
        losses[m] += examples * mean_loss[0]
        right_answers = examples * accuracy[0]
        right[m] += np.rint(right_answers) if data.weight < 0 else right_answers

    keep_alive(theta)
    keep_alive(mixed)
    keep_alive(sets)
    keep_alive(memory)
