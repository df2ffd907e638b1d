"""The compiled loop: steps of a program for a block of chains, and what it needs to know, in named tuples.

For each group of chains (`run_chains`), each step runs the controls of a program (`_run_code`): evaluate the
gradient, move the parameters of a unit, move its ξ, draw variances, or move on the ladder of temperatures.

Letters: n a step, u a unit (the parameters that one ξ serves), k a target, e a parameter. `lanes` is the
number of lanes of a vector, `group_size` the number of chains in one, `lane` the place of a chain in its
group. Memory in which the last index is the lane has number i of a chain at i lanes + lane, or, for
parameters, at i group_size + lane. Arrays are passed on as pointers, since each function that is given an
array counts a reference to it. Arguments that many functions share:

- `layout`: one of `layouts.Layout`, whether a vector has numbers of one chain or of a group of chains.
- `group`: the `Group` of chains that is stepped, `buffers`: its state and memory to work in, `LoopBuffers`.
- `setup`: what stays the same, a `Setup`; `code`: the controls and operations of a step, a `Code`.
- `ladder`: the `TemperatureLadder` of simulated tempering, `variance`: the `Draws` of variances of the data.
  Either may be None, and then what it needs isn't compiled.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heatbath.datasets.tasks import STUDENT
from heatbath.engine import kernels
from heatbath.engine.batches import DataTable, SubsetMemory, draw_subset, gather, shuffle
from heatbath.engine.compile import compiled
from heatbath.engine.dense import negative_gradient
from heatbath.engine.dense_shape import Network, Room, clear_room, reserve_room
from heatbath.engine.evaluate import StudentNoise, evaluate, sum_squared_residuals
from heatbath.engine.layouts import aligned_address, chains_in, reserve, round_up
from heatbath.engine.pointers import row_reader
from heatbath.engine.program import EVALUATE, FRICTION, MOVE_ON_LADDER, SEGMENT, Control
from heatbath.engine.records import Group, take_notes
from heatbath.engine.simd import (
    BYTES,
    Pointer,
    cast_like,
    flush_denormals,
    keep_alive,
    lanes_of,
    offset_pointer,
    pointer_to,
    restore_denormals,
    with_pointers,
)
from heatbath.methods.operations import ADAM, THERMOSTAT, WIDTH, C, F, S
from heatbath.reference.random import ROW, SLOT_BITS, TEMPERING, VARIANCE

control_of = row_reader(Control)


# What `run_chains` is given


class ChainState(NamedTuple):
    """The state of all chains: the first index is the chain.

    `noise` is the variance of each target, or has no columns where there is none. `number` is a chain's
    number in the addresses of its noise and batches, and its data set is number % sets. `point` is where its
    coefficients stand in the tables.
    """

    theta: NDArray[Any]
    p: NDArray[Any]
    second: NDArray[Any]
    xi: NDArray[np.float64]
    rung: NDArray[np.int64]
    died: NDArray[np.int64]
    temperature: NDArray[np.float64]
    noise: NDArray[np.float64]
    number: NDArray[np.int64]
    point: NDArray[np.int64]


class Data(NamedTuple):
    """The data, and how mini-batches are drawn."""

    table: DataTable
    batch: int
    shuffled: bool


class Units(NamedTuple):
    """The units of a program, and the ranges of elements that they consist of.

    `ranges` is (range, 2), the first element and the stop of each; those of unit u are first[u] to
    first[u + 1] - 1. `size` is the number of elements of a unit, and `tempered` is 1 if it is tempered.
    """

    ranges: NDArray[np.int64]
    first: NDArray[np.int64]
    size: NDArray[np.int64]
    tempered: NDArray[np.int64]


PRELUDE, STEPS, BETWEEN = range(3)  # the codes of a program


class Code(NamedTuple):
    """Controls and operations of stages, with the coefficients of the steps from `base` on.

    `table` is (point of a sweep, step, operation, WIDTH), and `decays` (point, step, unit) are the precisions
    of the priors. With `base` below 0 nothing is scheduled: there is a row for the first step, and one for
    all others. `identity` is PRELUDE, STEPS or BETWEEN; the rest are numbers of controls, steps and
    operations.
    """

    controls: NDArray[np.int64]
    operations: NDArray[np.int64]
    table: NDArray[np.float64]
    decays: NDArray[np.float64]
    base: int
    identity: int
    control_count: int
    rows: int
    width: int


class ProgramCode(NamedTuple):
    """The code of a program: before the first step, at a usual step, and at one that stops between words."""

    prelude: Code
    steps: Code
    between: Code


class Model(NamedTuple):
    """The network, the units of its parameters, and the program that moves them."""

    network: Network
    units: Units
    program: ProgramCode


class TemperatureLadder(NamedTuple):
    """The temperatures of simulated tempering, their weights, steps between two moves, and number."""

    tau: NDArray[np.float64]
    weights: NDArray[np.float64]
    every: int
    rungs: int


class LoopBlock(NamedTuple):
    """The chains first_chain to stop_chain - 1, and the steps first_step to stop_step - 1."""

    first_chain: int
    stop_chain: int
    first_step: int
    stop_step: int


# What compiled code makes of it


class Schedule(NamedTuple):
    """When to record: a pointer to the steps of the records, and when samples are taken (see `Notes`)."""

    steps: Pointer
    records: int
    burn_in: int
    thin: int
    last: int


class LoopSizes(NamedTuple):
    """Numbers that decide how much memory a thread needs.

    `targets` are those with a variance, and `gammas` those with Student's law. A mini-batch has `batch`
    examples, and the targets have room for `capacity`. `segments` and `operations` are the most in a code of
    the program; `shuffled` and `drawn` are the examples to choose mini-batches from, in one way or the other.
    """

    parameters: int
    second_moments: int
    units: int
    targets: int
    gammas: int
    batch: int
    capacity: int
    columns: int
    segments: int
    operations: int
    shuffled: int
    drawn: int


class Setup(NamedTuple):
    """What stays the same while chains are stepped; the named tuples in it have pointers for arrays."""

    network: Network
    table: DataTable
    units: Units
    sizes: LoopSizes
    seed: int


class LoopState(NamedTuple):
    """Pointers to the state of a group, or of one chain alone.

    θ, p, G and the second moments are (parameter, lane); the friction of units, `xi`, and their temperatures
    are (unit, lane). The variances `noise` and the sums of squared residuals `squares` are (target, lane),
    `gammas` see `evaluate.StudentNoise`. The others have one number for each lane: the place and the root of
    the temperature on the ladder, the unit of the momenta, the number and point of the chain, its set of
    data, the first set for all, whether the chain runs, and the results of `evaluate`.
    """

    theta: Pointer
    p: Pointer
    G: Pointer
    second: Pointer
    xi: Pointer
    temperature: Pointer
    rung: Pointer
    root_tau: Pointer
    noise: Pointer
    squares: Pointer
    gammas: Pointer
    unit: Pointer
    number: Pointer
    point: Pointer
    sets: Pointer
    first_set: Pointer
    running: Pointer
    mean_loss: Pointer
    accuracy: Pointer


class LoopBuffers(NamedTuple):
    """Pointers to everything that a thread works in; `progress` has PROGRESS_ITEMS integers.

    `columns` are the coefficients of a step, (operation, WIDTH, lane), `subset` is for drawn mini-batches,
    and `order` (example, lane) is a shuffled order of the data.
    """

    state: LoopState
    room: Room
    scratch: kernels.Scratch
    moves: kernels.Moves
    columns: Pointer
    subset: SubsetMemory
    order: Pointer
    progress: Pointer


# What changes from step to step, in `progress`: how many chains of the group run; whether G is the gradient
# at θ, and the room has the mini-batch; the epoch of `order`, and how often a subset was drawn; where the
# mini-batch begins in `order`; the code and row whose coefficients are loaded
RUNNING, HAS_GRADIENT, HAS_BATCH, EPOCH, DRAWS, BATCH_START, LOADED_CODE, LOADED_ROW = range(8)
PROGRESS_ITEMS = 8
SIXTEEN = 16  # chains of a group in float32


@compiled
def _record_schedule(notes):
    """Return the `Schedule` of `Notes`."""
    steps = pointer_to(notes.steps)
    return Schedule(steps, notes.steps.shape[0], notes.burn_in, notes.thin, notes.last)


@compiled
def _sizes_of(layout, chains, data, network, program, notes):
    """Return the `LoopSizes` of a run, whose arrays aren't pointers yet.

    `chains`, `data`, `program` and `notes` are those of `run_chains`, `network` the `Network`.
    """
    table = data.table
    prelude, steps, between = program.prelude, program.steps, program.between
    is_alone = chains_in(layout, chains.theta) == 1
    capacity = round_up(data.batch, lanes_of(chains.theta)) if is_alone else data.batch
    student_targets = network.out if network.loss == STUDENT else 0
    examples_to_choose = table.data if data.batch < table.data else 0
    return LoopSizes(
        parameters=chains.theta.shape[1],
        second_moments=chains.second.shape[1],
        units=chains.xi.shape[1],
        targets=chains.noise.shape[1],
        gammas=student_targets,
        batch=data.batch,
        capacity=capacity,
        columns=max(table.columns, notes.test.columns),
        segments=max(prelude.control_count, steps.control_count, between.control_count, 1),
        operations=max(prelude.width, steps.width, between.width, 1),
        shuffled=examples_to_choose if data.shuffled else 0,
        drawn=0 if data.shuffled else examples_to_choose,
    )


@compiled(apart=True)
def _reserve_state(layout, types, sizes, targets, address):
    """Reserve memory at an address for `LoopState`; return it and the next free address.

    Parameters
    ----------
    layout : `Layout`, one chain alone or chains side by side in the lanes of a vector
    types : `PointerTypes`, of which `parameter` has the precision of the chains
    sizes : `LoopSizes`, how many parameters, units, targets and examples there are
    targets : number of targets, with or without a variance
    """
    like = types.parameter
    lanes, group_size = lanes_of(like), chains_in(layout, like)
    parameters = sizes.parameters * group_size + lanes  # a vector may reach beyond the last one
    theta, address = reserve(address, parameters, like)
    p, address = reserve(address, parameters, like)
    G, address = reserve(address, parameters, like)
    second, address = reserve(address, sizes.second_moments * group_size + lanes, like)
    xi, address = reserve(address, sizes.units * lanes, types.float64)
    temperature, address = reserve(address, sizes.units * lanes, types.float64)
    root_tau, address = reserve(address, lanes, types.float64)
    noise, address = reserve(address, targets * lanes, types.float64)
    squares, address = reserve(address, targets * lanes, types.float64)
    gammas, address = reserve(address, sizes.gammas * ROW * group_size, types.float64)
    unit, address = reserve(address, lanes, types.float64)
    mean_loss, address = reserve(address, lanes, types.float64)
    accuracy, address = reserve(address, lanes, types.float64)
    rung, address = reserve(address, lanes, types.int64)
    number, address = reserve(address, lanes, types.int64)
    point, address = reserve(address, lanes, types.int64)
    sets, address = reserve(address, lanes, types.int64)
    first_set, address = reserve(address, lanes, types.int64)
    running, address = reserve(address, lanes, types.int64)
    state = LoopState(
        theta, p, G, second, xi, temperature, rung, root_tau, noise, squares, gammas, unit, number, point,
        sets, first_set, running, mean_loss, accuracy,
    )  # fmt: skip
    return state, address


@compiled(apart=True)
def _reserve_buffers(layout, types, network, sizes, address):
    """Reserve memory at an address for `LoopBuffers`; return them and the next free address.

    Parameters
    ----------
    layout : `Layout`, one chain alone or chains side by side in the lanes of a vector
    types : `PointerTypes`, of which `parameter` has the precision of the chains
    network : `Network`, its layers and sizes as numbers
    sizes : `LoopSizes`, how many parameters, units, targets and examples there are
    address : an address where a vector may begin, or 0 to learn how much memory is needed
    """
    lanes, group_size = lanes_of(types.parameter), chains_in(layout, types.parameter)
    state, address = _reserve_state(layout, types, sizes, network.out, address)
    room, address = reserve_room(
        layout, types, network, sizes.batch, sizes.capacity, sizes.columns, state.theta, state.G, address
    )
    scratch, address = kernels.reserve_scratch(layout, types, address)
    moves, address = kernels.reserve_moves(sizes.segments, sizes.operations, types, address)
    columns, address = reserve(address, sizes.operations * WIDTH * lanes, types.float64)
    chosen, address = reserve(address, sizes.batch * group_size, types.uint32)
    order, address = reserve(address, sizes.shuffled * group_size, types.uint32)
    stamps, address = reserve(address, sizes.drawn * group_size, types.int64)
    progress, address = reserve(address, PROGRESS_ITEMS, types.int64)
    subset = SubsetMemory(chosen, stamps)
    return LoopBuffers(state, room, scratch, moves, columns, subset, order, progress), address


@compiled
def _initialise_buffers(layout, network, sizes, buffers):
    """Set what all groups of a block share: a mini-batch of all data, no stamps, equal target weights.

    `network` is the `Network`, `sizes` the `LoopSizes`; the memory of `buffers`, `LoopBuffers`, is written.
    """
    group_size, lanes = chains_in(layout, buffers.state.theta), lanes_of(buffers.state.theta)
    for i in range(sizes.batch):
        for lane in range(group_size):
            buffers.subset.chosen[i * group_size + lane] = i
    for i in range(sizes.drawn * group_size):
        buffers.subset.stamps[i] = -1
    for k in range(network.out * lanes):
        buffers.room.target_weights[k] = 1
        buffers.room.tail_weights[k] = 0
    buffers.progress[DRAWS] = 0


# Chains to lanes and back


@compiled
def _copy_to_lane(rows, row, columns, lane, stride, count):
    """Copy a row of (row, number), with `count` numbers, to a lane of (number, lane), `stride` apart."""
    for i in range(count):
        columns[i * stride + lane] = rows[row * count + i]


@compiled
def _copy_from_lane(columns, lane, stride, rows, row, count):
    """Copy a lane of (number, lane), with `count` numbers `stride` apart, to a row of (row, number)."""
    for i in range(count):
        rows[row * count + i] = columns[i * stride + lane]


@compiled
def _root_tau(ladder, rung):
    """Return the square root of the temperature of a rung; without a ladder it is 1."""
    if ladder is None:
        return 1.0
    return math.sqrt(ladder.tau[rung])


@compiled(apart=True)
def _load_group(layout, group, setup, sets, ladder, variance, buffers):
    """Copy the state of a group of chains to the buffers; lanes without a chain repeat the last one.

    Parameters
    ----------
    layout : `Layout`, one chain alone or chains side by side in the lanes of a vector
    group : `Group`, the chains that are computed together
    setup : `Setup`, the network, data, units and sizes, which stay the same
    sets : number of data sets
    ladder : `TemperatureLadder` of temperatures, or None without simulated tempering
    variance : `Draws`, how variances of the data are drawn, or None
    buffers : `LoopBuffers`, which are written
    """
    state, sizes = buffers.state, setup.sizes
    group_size = chains_in(layout, state.theta)
    buffers.progress[RUNNING] = 0
    for lane in range(group_size):
        chain = group.first + min(lane, group.members - 1)
        number = group.chains.number[chain]
        rung = group.chains.rung[chain]
        is_running = lane < group.members and group.chains.died[chain] < 0
        state.running[lane] = 1 if is_running else 0
        buffers.progress[RUNNING] += state.running[lane]

        state.number[lane] = number
        state.point[lane] = group.chains.point[chain]
        state.sets[lane] = number % sets
        state.rung[lane] = rung
        state.root_tau[lane] = _root_tau(ladder, rung)
        buffers.scratch.chain_numbers[_place_for_normals(lane, group_size)] = number
        _load_chain(layout, group.chains, chain, lane, sizes, state)
        _weight_targets(state, buffers.room, lane, sizes.targets, setup.network.degrees, variance)


@compiled
def _place_for_normals(lane, group_size):
    """Return the place of a lane in the order that `fill_normals` takes: of 16, even ones before odd ones."""
    if group_size < SIXTEEN:
        return lane
    return lane % 2 * (SIXTEEN // 2) + lane // 2


@compiled
def _load_chain(layout, chains, chain, lane, sizes, state):
    """Copy the numbers of each unit, target and parameter of a chain to a lane of the state.

    Parameters
    ----------
    layout : `Layout`, one chain alone or chains side by side in the lanes of a vector
    chains : `ChainState` with pointers
    chain, lane : which of the chains, and where to
    sizes : `LoopSizes`, how many parameters, units, targets and examples there are
    state : `LoopState`, which is written
    """
    group_size, lanes = chains_in(layout, state.theta), lanes_of(state.theta)
    _copy_to_lane(chains.xi, chain, state.xi, lane, lanes, sizes.units)
    _copy_to_lane(chains.temperature, chain, state.temperature, lane, lanes, sizes.units)
    _copy_to_lane(chains.noise, chain, state.noise, lane, lanes, sizes.targets)
    _copy_to_lane(chains.theta, chain, state.theta, lane, group_size, sizes.parameters)
    _copy_to_lane(chains.p, chain, state.p, lane, group_size, sizes.parameters)
    _copy_to_lane(chains.second, chain, state.second, lane, group_size, sizes.second_moments)
    for e in range(sizes.parameters):
        state.G[e * group_size + lane] = 0  # finite: a move without a kick multiplies it by 0


@compiled(apart=True)
def _store_chain(layout, chains, chain, lane, sizes, state):
    """Copy the state in a lane back to the arrays of a chain.

    Parameters
    ----------
    layout : `Layout`, one chain alone or chains side by side in the lanes of a vector
    chains : `ChainState` with pointers, which are written
    chain, lane : which of the chains, and where from
    sizes : `LoopSizes`, how many parameters, units, targets and examples there are
    state : `LoopState`
    """
    group_size, lanes = chains_in(layout, state.theta), lanes_of(state.theta)
    chains.rung[chain] = state.rung[lane]
    _copy_from_lane(state.xi, lane, lanes, chains.xi, chain, sizes.units)
    _copy_from_lane(state.temperature, lane, lanes, chains.temperature, chain, sizes.units)
    _copy_from_lane(state.noise, lane, lanes, chains.noise, chain, sizes.targets)
    _copy_from_lane(state.theta, lane, group_size, chains.theta, chain, sizes.parameters)
    _copy_from_lane(state.p, lane, group_size, chains.p, chain, sizes.parameters)
    _copy_from_lane(state.second, lane, group_size, chains.second, chain, sizes.second_moments)


@compiled
def _store_group(layout, group, sizes, buffers):
    """Copy the state of the running chains of a group back to their arrays."""
    for lane in range(group.members):
        if buffers.state.running[lane] > 0:
            _store_chain(layout, group.chains, group.first + lane, lane, sizes, buffers.state)


@compiled
def _weight_targets(state, room, lane, targets, degrees, variance):
    """Set what follows from the variances s² of the targets of a chain: weights, and a unit of momenta.

    Target k has the weight s̄²/s_k² in the loss, with s̄ the geometric mean of the standard deviations; with
    Student's law of ν degrees of freedom it is times 1 + 1/ν, and 1/(ν s_k²) weights the tails. The unit is s̄
    where variances are drawn, and 1 otherwise.

    Parameters
    ----------
    state : `LoopState`, whose `noise` has the variances (target, lane) and whose `unit` is written
    room : `Room`, the working memory; its `target_weights` and `tail_weights` (target, lane) are written
    lane : the lane of the chain
    targets : number of targets with a variance
    degrees : ν, which is infinite for normal noise
    variance : `Draws`, how variances of the data are drawn, or None
    """
    lanes = lanes_of(state.theta)
    geometric_mean = state.noise[lane]  # s̄², of a single target its own variance
    if targets != 1:
        sum_of_logs = 0.0
        for k in range(targets):
            sum_of_logs += math.log(state.noise[k * lanes + lane])
        geometric_mean = math.exp(sum_of_logs / max(targets, 1))

    for k in range(targets):
        index = k * lanes + lane
        target_variance = state.noise[index]  # s_k²
        room.target_weights[index] = geometric_mean / target_variance * (1.0 + 1.0 / degrees)
        room.tail_weights[index] = 1.0 / (degrees * target_variance)
    state.unit[lane] = 1.0 if variance is None else math.sqrt(geometric_mean)


@compiled
def _stop_diverged_chains(layout, n, group, sizes, buffers):
    """Stop the chains of a group whose loss at step n isn't finite, and store their state."""
    state = buffers.state
    for lane in range(group.members):
        if state.running[lane] > 0 and buffers.room.checks[lane] != 0:
            group.chains.died[group.first + lane] = n
            _store_chain(layout, group.chains, group.first + lane, lane, sizes, state)
            state.running[lane] = 0
            buffers.progress[RUNNING] -= 1


# Gradients


@compiled
def _choose_batch(layout, step, setup, buffers):
    """Choose the mini-batch of a step, which isn't all data: by shuffled epochs, or as a subset.

    `setup` is a `Setup`. In `buffers`, `LoopBuffers`, the chosen examples are written to `subset.chosen`, or
    to `order` from progress[BATCH_START] on.
    """
    theta, progress, scratch = buffers.state.theta, buffers.progress, buffers.scratch
    count = setup.table.data
    batch = setup.sizes.batch
    if setup.sizes.shuffled == 0:
        progress[DRAWS] += 1
        draw_subset(layout, theta, buffers.subset, progress[DRAWS], scratch, setup.seed, step, batch, count)
        return

    steps_of_epoch = count // batch
    epoch = step // steps_of_epoch
    if epoch != progress[EPOCH]:
        progress[EPOCH] = epoch
        shuffle(
            layout, theta, buffers.order, scratch.chain_numbers, setup.seed, epoch, scratch.words, count
        )  # fmt: skip
    progress[BATCH_START] = step % steps_of_epoch * batch


@compiled
def _load_batch(layout, setup, buffers):
    """Copy the chosen mini-batch to the room of the network."""
    group_size = chains_in(layout, buffers.state.theta)
    chosen = buffers.subset.chosen
    if setup.sizes.shuffled > 0:
        chosen = offset_pointer(buffers.order, buffers.progress[BATCH_START] * group_size)
    gather(
        layout, setup.table, setup.table.columns, buffers.state.sets, chosen, setup.sizes.batch,
        buffers.room, setup.network.stride, setup.sizes.capacity,
    )  # fmt: skip


@compiled
def _compute_gradient(layout, setup, buffers):
    """Write the negative gradient at θ, on the mini-batch in the room, to G."""
    negative_gradient(
        layout, buffers.state.theta, buffers.state.G, setup.network, setup.sizes.batch,
        setup.sizes.capacity, setup.table.weight, buffers.room,
    )  # fmt: skip


@compiled
def _evaluate_gradient(layout, step, setup, buffers):
    """Write the negative gradient at θ on the mini-batch of a step to G."""
    is_drawn = setup.sizes.batch < setup.table.data
    if is_drawn:
        _choose_batch(layout, step, setup, buffers)
    if is_drawn or buffers.progress[HAS_BATCH] == 0:
        _load_batch(layout, setup, buffers)
        buffers.progress[HAS_BATCH] = 1
    _compute_gradient(layout, setup, buffers)
    buffers.progress[HAS_GRADIENT] = 1


# Segments and thermostats


@compiled
def _depends_on_step(operations, first, stop, ladder):
    """Return whether the moves of operations differ from step to step even if their coefficients don't.

    `operations` points to rows of `OperationRow`, of which those from `first` to stop - 1 are asked.
    """
    for i in range(first, stop):
        kind = kernels.operation_of(operations, i).kind
        if kind in (C, F, ADAM):
            return True
        if ladder is not None:  # noqa: SIM102 (without a ladder this isn't compiled)
            if kind == S:
                return True
    return False


@compiled
def _run_segment(layout, n, segment, control, code, must_fold, setup, buffers, ladder):
    """Move the parameters of a unit by the operations of a control, and note their temperature if it asks.

    Parameters
    ----------
    layout : `Layout`, one chain alone or chains side by side in the lanes of a vector
    n : the step
    segment : number of the control in the code, under which its moves are kept in `buffers.moves`
    control : `Control`, which has the unit and the operations
    code : `Code`, the controls and operations of a step, with tables of coefficients
    must_fold : whether the moves kept are out of date: its operations are then folded into moves
    setup : `Setup`, the network, data, units and sizes, which stay the same
    buffers : `LoopBuffers`, of which the state and the moves change
    ladder : `TemperatureLadder` of temperatures, or None without simulated tempering
    """
    state, units = buffers.state, setup.units
    u = control.unit
    lanes = lanes_of(state.theta)
    first, stop = control.first_operation, control.stop_operation
    if must_fold or _depends_on_step(code.operations, first, stop, ladder):
        thermostat = kernels.ThermostatValues(offset_pointer(state.xi, u * lanes), state.root_tau, state.unit)
        kernels.fold_operations(
            layout, code.operations, first, stop, buffers.columns, thermostat, n, buffers.moves, segment,
            buffers.scratch,
        )  # fmt: skip

    tensors = kernels.Tensors(state.theta, state.p, state.G, state.second)
    bounds = units.first[u], units.first[u + 1]
    has_read = kernels.apply_segment(
        layout, tensors, units.ranges, bounds, buffers.moves, segment, setup.seed, n, buffers.scratch, False
    )
    if has_read:
        for lane in range(chains_in(layout, state.theta)):
            state.temperature[u * lanes + lane] = buffers.scratch.kinetic[lane] / units.size[u]
    if control.moves != 0:
        buffers.progress[HAS_GRADIENT] = 0


@compiled
def _move_friction(layout, n, control, code, setup, buffers):
    """Move ξ of a unit at step n by the one operation of a control, in every lane.

    Parameters
    ----------
    layout : `Layout`, one chain alone or chains side by side in the lanes of a vector
    control : `Control`, whose operation is a THERMOSTAT or a FLUCTUATE (see `operations`)
    code : `Code`, the controls and operations of a step, with tables of coefficients
    setup : `Setup`, the network, data, units and sizes, which stay the same
    buffers : `LoopBuffers`; ξ of the unit changes, and with a THERMOSTAT its temperature is noted
    """
    lanes = lanes_of(buffers.state.theta)
    operation = kernels.operation_of(code.operations, control.first_operation)
    columns = offset_pointer(buffers.columns, control.first_operation * WIDTH * lanes)
    if operation.kind == THERMOSTAT:
        _control_temperature(layout, control.unit, columns, setup.units, buffers)
    else:
        _fluctuate_friction(layout, n, control.unit, operation, columns, setup, buffers)


@compiled
def _control_temperature(layout, u, columns, units, buffers):
    """Add c (p·p - N τ), or c (p·p/N - τ), to ξ of unit u in every lane; note its temperature p·p/N.

    Parameters
    ----------
    layout : `Layout`, one chain alone or chains side by side in the lanes of a vector
    u : the unit, with N parameters
    columns : pointer to (3, lane): c; τ, or a negative number for that of the rung; 1 to divide by N, or 0
    units : `Units` with pointers, the ranges of elements of each unit
    buffers : `LoopBuffers`, whose `state.xi` and `state.temperature` are written
    """
    state, kinetic, size = buffers.state, buffers.scratch.kinetic, units.size[u]
    lanes = lanes_of(state.theta)
    kernels.sum_squares(layout, state.p, units.ranges, units.first[u], units.first[u + 1], buffers.scratch)
    for lane in range(chains_in(layout, state.theta)):
        c = columns[lane]
        tau = columns[lanes + lane]
        is_mean = columns[2 * lanes + lane]
        change = kernels.change_of_friction(c, tau, is_mean, state.root_tau[lane], kinetic[lane], size)
        state.xi[u * lanes + lane] += change
        state.temperature[u * lanes + lane] = kinetic[lane] / size


@compiled
def _fluctuate_friction(layout, n, u, operation, columns, setup, buffers):
    """Replace ξ of unit u by a ξ + b √τ R in every lane; R is the noise of the unit's first parameter.

    Parameters
    ----------
    layout : `Layout`, one chain alone or chains side by side in the lanes of a vector
    n : the step
    operation : `OperationRow`, which has the stream and slot of R
    columns : pointer to (3, lane): a, b, and √τ, where a negative number stands for that of the rung
    setup : `Setup`, the network, data, units and sizes, which stay the same
    buffers : `LoopBuffers`, whose `state.xi` is written
    """
    state, units = buffers.state, setup.units
    lanes = lanes_of(state.theta)
    first_parameter = units.ranges[2 * units.first[u]]
    for lane in range(chains_in(layout, state.theta)):
        a = columns[lane]
        b = columns[lanes + lane]
        root_tau = columns[2 * lanes + lane]
        if root_tau < 0:
            root_tau = state.root_tau[lane]
        index = u * lanes + lane
        state.xi[index] = kernels.fluctuate(
            state.xi[index], a, b, root_tau, setup.seed, operation.stream_slot, state.number[lane],
            n + operation.offset, first_parameter, buffers.scratch,
        )  # fmt: skip


# Variances and tempering


@compiled(apart=True)
def _draw_variances(layout, step, setup, buffers, variance):
    """Draw the variance of each target from its law at θ, for every chain of the group by itself.

    Target k has (scale[k] + factor Σr²)/g, with a gamma number g and the residuals r over all data.

    Parameters
    ----------
    layout : `Layout`, one chain alone or chains side by side in the lanes of a vector
    step : the step at the address of the random numbers
    setup : `Setup`, the network, data, units and sizes, which stay the same
    buffers : `LoopBuffers`, in which `state.noise` and what follows from it change
    variance : `Draws`, how variances of the data are drawn
    """
    state, network, table, seed = buffers.state, setup.network, setup.table, setup.seed
    lanes = lanes_of(state.theta)
    student = StudentNoise(state.noise, state.gammas, variance.tails, seed, step, buffers.scratch)
    sum_squared_residuals(
        layout, state.theta, network, table, state.sets, buffers.room, state.squares, student
    )  # fmt: skip
    for lane in range(chains_in(layout, state.theta)):
        for k in range(network.out):
            stream_slot = VARIANCE << SLOT_BITS | 2 * k
            gamma = kernels.draw_gamma(
                variance.shape, seed, stream_slot, state.number[lane], step, buffers.scratch
            )
            rate = variance.scale[k] + variance.factor * state.squares[k * lanes + lane]
            state.noise[k * lanes + lane] = rate / gamma
        _weight_targets(state, buffers.room, lane, network.out, network.degrees, variance)


@compiled
def _renew_variances(layout, step, setup, buffers, variance):
    """Draw variances, and compute G again if the targets now have other weights in the loss."""
    _draw_variances(layout, step, setup, buffers, variance)
    buffers.progress[HAS_BATCH] = 0
    has_other_weights = setup.network.out > 1 or setup.network.loss == STUDENT
    if buffers.progress[HAS_GRADIENT] != 0 and has_other_weights:
        _load_batch(layout, setup, buffers)
        _compute_gradient(layout, setup, buffers)


@compiled
def _propose_rung(rung, potential, ladder, seed, chain, step, scratch):
    """Return the rung of a chain after a tempering move, a neighbour or the same.

    A neighbouring rung at τ' is accepted with the probability min(1, exp(-(1/τ' - 1/τ) U + w' - w)).

    Parameters
    ----------
    rung : the present rung, at the temperature τ
    potential : U, the loss over all data and the priors
    ladder : `TemperatureLadder`, the temperatures and weights w of the rungs
    seed, chain, step : the address of the random numbers
    scratch : `Scratch`, memory to work in
    """
    kernels.fill_words_of_chain(seed, TEMPERING << SLOT_BITS, chain, step, 0, 2, scratch)
    goes_down = kernels.uniform(scratch.words[0]) < 0.5
    chance = kernels.uniform(scratch.words[1])
    proposed = rung - 1 if goes_down else rung + 1
    if proposed < 0 or proposed >= ladder.rungs:
        return rung

    exponent = (
        -(1 / ladder.tau[proposed] - 1 / ladder.tau[rung]) * potential
        + ladder.weights[proposed]
        - ladder.weights[rung]
    )
    is_accepted = math.log(chance) < exponent
    return proposed if is_accepted else rung


@compiled(apart=True)
def _temper(layout, step, code, row, setup, buffers, ladder):
    """Move every chain of a group on the ladder of temperatures by itself, and scale its momenta.

    Parameters
    ----------
    layout : `Layout`, one chain alone or chains side by side in the lanes of a vector
    step : the step at the address of the random numbers
    code : `Code`, whose `decays` are the precisions of the priors
    row : the row of `code.decays` at this step
    setup : `Setup`, the network, data, units and sizes, which stay the same
    buffers : `LoopBuffers`, in which p and the places on the ladder change
    ladder : `TemperatureLadder` of temperatures
    """
    state, seed, room = buffers.state, setup.seed, buffers.room
    potential = state.mean_loss  # the loss over all data, to which the priors are added
    evaluate(
        layout, state.theta, setup.network, setup.table, state.sets, room, potential, state.accuracy
    )  # fmt: skip
    _add_priors(layout, code, row, setup, buffers, potential)

    for lane in range(chains_in(layout, state.theta)):
        rung = _propose_rung(
            state.rung[lane], potential[lane], ladder, seed, state.number[lane], step, buffers.scratch
        )
        factor = math.sqrt(ladder.tau[rung] / ladder.tau[state.rung[lane]])
        _scale_momenta(layout, factor, lane, setup, state.p)
        state.rung[lane] = rung
        state.root_tau[lane] = math.sqrt(ladder.tau[rung])


@compiled
def _add_priors(layout, code, row, setup, buffers, potential):
    """Add d |θ|²/2 to the potential of each chain, for every unit whose prior has a precision d above 0.

    Parameters
    ----------
    layout : `Layout`, one chain alone or chains side by side in the lanes of a vector
    code : `Code`, whose `decays` (point, row, unit) are the precisions
    row : the row of the present step
    setup : `Setup`, the network, data, units and sizes, which stay the same
    buffers : `LoopBuffers`, the state of the group and memory to work in
    potential : pointer to (lane), which is changed
    """
    state, units = buffers.state, setup.units
    unit_count = setup.sizes.units
    for u in range(unit_count):
        kernels.sum_squares(
            layout, state.theta, units.ranges, units.first[u], units.first[u + 1], buffers.scratch
        )
        for lane in range(chains_in(layout, state.theta)):
            decay_row = state.point[lane] * code.rows + row
            decay = code.decays[decay_row * unit_count + u]
            if decay > 0:
                potential[lane] += 0.5 * decay * buffers.scratch.kinetic[lane]


@compiled
def _scale_momenta(layout, factor, lane, setup, p):
    """Multiply the momenta of the tempered units by a factor, in place, for the chain in a lane.

    `setup` is a `Setup`, `p` a pointer to (parameter, lane).
    """
    units = setup.units
    group_size = chains_in(layout, p)
    rounded_factor = cast_like(p, factor)
    for u in range(setup.sizes.units):
        if units.tempered[u] == 0:
            continue
        for r in range(units.first[u], units.first[u + 1]):
            for e in range(units.ranges[2 * r], units.ranges[2 * r + 1]):
                p[e * group_size + lane] *= rounded_factor


@compiled
def _change_temperature(layout, step, code, row, setup, buffers, ladder, variance):
    """Draw the variances of the data, or move on the ladder of temperatures if that is due at a step.

    With neither `ladder` nor `variance` nothing happens; the other arguments are those of `_temper`.
    """
    if variance is not None:
        _renew_variances(layout, step, setup, buffers, variance)
    elif ladder is not None:  # noqa: SIM102 (without a ladder this isn't compiled)
        if step > 0 and step % ladder.every == 0:
            _temper(layout, step, code, row, setup, buffers, ladder)
            buffers.progress[HAS_BATCH] = 0


# The loop


@compiled(apart=True)
def _load_coefficients(layout, code, row, state, columns):
    """Copy the coefficients of a row of the code's table, for every lane, to `columns`."""
    lanes, size = lanes_of(state.theta), code.width * WIDTH
    for lane in range(chains_in(layout, state.theta)):
        _copy_to_lane(code.table, state.point[lane] * code.rows + row, columns, lane, lanes, size)


@compiled
def _run_code(layout, n, code, group, setup, buffers, ladder, variance):
    """Run the controls of a code at step n for a group, until none of its chains runs any more.

    Parameters
    ----------
    layout : `Layout`, one chain alone or chains side by side in the lanes of a vector
    code : `Code`, the controls and operations of a step, with tables of coefficients
    group : `Group`, the chains that are computed together
    setup : `Setup`, the network, data, units and sizes, which stay the same
    buffers : `LoopBuffers`, with the state of the group, which changes
    ladder : `TemperatureLadder` of temperatures, or None without simulated tempering
    variance : `Draws`, how variances of the data are drawn, or None
    """
    progress = buffers.progress
    row = n - code.base if code.base >= 0 else min(n, code.rows - 1)
    is_new_row = progress[LOADED_CODE] != code.identity or progress[LOADED_ROW] != row
    if is_new_row:
        _load_coefficients(layout, code, row, buffers.state, buffers.columns)
        progress[LOADED_CODE] = code.identity
        progress[LOADED_ROW] = row
    must_fold = is_new_row or code.identity == BETWEEN  # there the unit of the momenta changes

    for i in range(code.control_count):
        control = control_of(code.controls, i)
        step = n + control.offset
        if control.kind == SEGMENT:
            _run_segment(layout, n, i, control, code, must_fold, setup, buffers, ladder)
        elif control.kind == FRICTION:
            _move_friction(layout, n, control, code, setup, buffers)
        elif control.kind == MOVE_ON_LADDER:
            _change_temperature(layout, step, code, row, setup, buffers, ladder, variance)
        elif control.kind == EVALUATE and progress[HAS_GRADIENT] == 0:
            _evaluate_gradient(layout, step, setup, buffers)
            _stop_diverged_chains(layout, n, group, setup.sizes, buffers)
        if progress[RUNNING] == 0:
            return


@compiled
def _code_of_phase(phase, n, program, variance):
    """Return the code of a phase, PRELUDE or STEPS, of step n: `between` where variances are drawn."""
    if phase == PRELUDE:
        return program.prelude
    if variance is not None:  # noqa: SIM102 (without variances this isn't compiled)
        if n > 0 and n % variance.every == 0:
            return program.between
    return program.steps


@compiled
def _first_record(schedule, first_step):
    """Return the number of the first record that a call must make; the last call ended with a record."""
    first_recorded_step = first_step + 1 if first_step > 0 else 0
    record = np.int64(0)
    while record < schedule.records and schedule.steps[record] < first_recorded_step:
        record += 1
    return record


@compiled
def _record_at(n, next_record, schedule):
    """Return the number of the record that is due at step n, the next one, or -1 if none is due."""
    if next_record < schedule.records and schedule.steps[next_record] == n:
        return next_record
    return np.int64(-1)


@compiled
def _sample_at(n, first_step, schedule):
    """Return the number of the sample before step n, counted from 1, or 0 if none is due.

    None is due at the first step of a call: the call before has taken it at its end.
    """
    steps_since_burn_in = n - schedule.burn_in
    is_in_range = first_step < n <= schedule.last and steps_since_burn_in > 0
    if is_in_range and steps_since_burn_in % schedule.thin == 0:
        return steps_since_burn_in // schedule.thin
    return 0


@compiled
def _run_group(layout, block, group, program, setup, buffers, ladder, variance, notes):
    """Run the steps of a block for a group whose state is in the buffers, and record what is due.

    Parameters
    ----------
    layout : `Layout`, one chain alone or chains side by side in the lanes of a vector
    block : `LoopBlock`, whose steps are run
    group : `Group`, the chains that are computed together
    program : `ProgramCode`, the code of the prelude, of a step, and between words
    setup : `Setup`, the network, data, units and sizes, which stay the same
    buffers : `LoopBuffers`, with the state of the group, which changes
    ladder : `TemperatureLadder` of temperatures, or None without simulated tempering
    variance : `Draws`, how variances of the data are drawn, or None
    notes : `Notes`, which are filled
    """
    progress = buffers.progress
    _forget_progress(progress)
    schedule = _record_schedule(notes)
    next_record = _first_record(schedule, block.first_step)
    for n in range(block.first_step, block.stop_step + 1):
        if progress[RUNNING] == 0:
            break
        record = _record_at(n, next_record, schedule)
        sample = _sample_at(n, block.first_step, schedule)
        if record >= 0 or sample > 0:
            take_notes(layout, record, sample, group, setup, buffers, notes)
            progress[HAS_BATCH] = 0
        if record >= 0:
            next_record += 1
        if n == block.stop_step:
            break

        has_prelude = n == 0 and program.prelude.control_count > 0
        first_phase = PRELUDE if has_prelude else STEPS
        for phase in range(first_phase, STEPS + 1):  # one call, since its code is inlined here
            if progress[RUNNING] > 0:
                code = _code_of_phase(phase, n, program, variance)
                _run_code(layout, n, code, group, setup, buffers, ladder, variance)


@compiled
def _forget_progress(progress):
    """Set that a group has no gradient, mini-batch, shuffled order or coefficients yet."""
    progress[HAS_GRADIENT] = 0
    progress[HAS_BATCH] = 0
    progress[EPOCH] = -1
    progress[LOADED_CODE] = -1
    progress[LOADED_ROW] = -1


@compiled(cache=True)
def run_chains(layout, block, chains, data, model, ladder, variance, notes, seed):
    """Run the chains and steps of a block, in place, and record what is due in `notes`.

    Parameters
    ----------
    layout : Layout
    block : LoopBlock
    chains : ChainState, which is updated
    data : Data
    model : Model
    ladder : TemperatureLadder, or None without simulated tempering: what it needs isn't compiled then
    variance : Draws, or None if variances of the data aren't drawn
    notes : Notes, which are filled
    seed : uint64
    """
    chain_pointers, table, pointers = with_pointers(chains), with_pointers(data.table), with_pointers(model)
    rungs, draws = with_pointers(ladder), with_pointers(variance)
    network = pointers.network
    types = kernels.pointer_types(chain_pointers.theta)
    sizes = _sizes_of(layout, chains, data, network, pointers.program, notes)
    setup = Setup(network, table, pointers.units, sizes, seed)

    _, memory_size = _reserve_buffers(layout, types, network, sizes, 0)
    memory = np.zeros(memory_size + BYTES, np.uint8)
    buffers, _ = _reserve_buffers(layout, types, network, sizes, aligned_address(memory))
    _initialise_buffers(layout, network, sizes, buffers)

    mode = flush_denormals()
    group_size = chains_in(layout, types.parameter)
    sets = data.table.rows.shape[0]
    for first in range(block.first_chain, block.stop_chain, group_size):
        group = Group(first, min(group_size, block.stop_chain - first), chain_pointers)
        _load_group(layout, group, setup, sets, rungs, draws, buffers)
        _run_group(layout, block, group, pointers.program, setup, buffers, rungs, draws, notes)
        _store_group(layout, group, sizes, buffers)
        if buffers.progress[RUNNING] < group.members:
            clear_room(network, buffers.room)
    restore_denormals(mode)
    keep_alive(memory)
