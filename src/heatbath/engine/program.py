"""Programs: a partition, written as the few operations that the compiled kernel knows (`operations`).

A step is a list of stages. A stage begins with a gradient, a tempering move or nothing, and consists of
passes: operations on the parameters of one *unit*, those that one ξ serves, and after them operations on that
ξ. A pass goes over memory once. The engine and the optimisers for torch carry out the same stages.

Each operation has coefficients for the step of the word that it belongs to. Letters that close a step have
the offset -1; where θ is seen at the kick, letters that open one have the offset 1. READ records p·p where a
letter reads a temperature.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from heatbath.methods import Method
from heatbath.methods.letters import Columns, Values
from heatbath.methods.operations import ADDED, MOVING, ON_FRICTION, READ, THERMOSTAT
from heatbath.methods.partition import Layers, Part, Partition
from heatbath.methods.schedules import Schedule
from heatbath.methods.splitting import Substep, gradients, rotate
from heatbath.reference.random import NOISE, SLOT_BITS

GRADIENT, TEMPER, NOTHING = range(3)  # what a stage begins with
EVALUATE, MOVE_ON_LADDER, SEGMENT, FRICTION = range(4)  # kinds of controls in compiled code


class Control(NamedTuple):
    """What compiled code does next.

    It acts on a unit, by the operations `first_operation` to stop_operation - 1. `offset` is that of the step
    which a gradient or a move on the ladder belongs to, and `moves` is 1 if θ moves.
    """

    kind: int
    unit: int
    first_operation: int
    stop_operation: int
    offset: int
    moves: int


class OperationRow(NamedTuple):
    """An operation in compiled code: its kind, the stream and slot of its noise, and their offset."""

    kind: int
    stream_slot: int
    offset: int


@dataclass(frozen=True, eq=False)
class Term:
    """Where the columns of an operation come from: a letter that acts for a fraction of a step's h."""

    method: Method
    columns: Callable[[Values], Columns]
    fraction: float
    offset: int


@dataclass(eq=False)
class Operation:
    """An operation of the kernel; adjacent A's and B's are merged, so it may have several terms.

    `stream_slot` is the stream and slot of its noise (-1: none), and `offset` that of the step of the noise.
    """

    kind: int
    terms: list[Term]
    stream_slot: int = -1
    offset: int = 0


@dataclass(eq=False)
class ProgramPass:
    """Operations on all parameters of a unit, then operations on its ξ."""

    unit: int
    operations: list[Operation] = field(default_factory=list)
    friction_operations: list[Operation] = field(default_factory=list)

    @property
    def reads(self) -> bool:
        """True if its ξ needs p·p."""
        return any(operation.kind == THERMOSTAT for operation in self.friction_operations)


@dataclass(eq=False)
class ProgramStage:
    """A GRADIENT, a TEMPER or NOTHING, and then passes.

    `offset` is that of the step which the gradient or the tempering move belongs to.
    """

    kind: int
    offset: int = 0
    passes: list[ProgramPass] = field(default_factory=list)

    def all_operations(self) -> Iterator[Operation]:
        """Yield its operations in the order of the tables of coefficients."""
        for program_pass in self.passes:
            yield from program_pass.operations
            yield from program_pass.friction_operations


@dataclass(frozen=True)
class ThermostatUnit:
    """The parameters that one ξ serves, or all of a part that has none, as ranges of elements."""

    part: Part
    ranges: tuple[range, ...]

    @property
    def size(self) -> int:
        """Number of parameters."""
        return sum(map(len, self.ranges))


@dataclass(frozen=True)
class Program:
    """What is carried out: `prelude` once before the first step, then `steps` at every step.

    `between` has the same effect as `steps`, but stops between the end of the last word and the beginning of
    the next one: there the variances of the data are drawn.
    """

    partition: Partition
    parts: tuple[Part, ...]
    units: tuple[ThermostatUnit, ...]
    prelude: tuple[ProgramStage, ...]
    steps: tuple[ProgramStage, ...]
    between: tuple[ProgramStage, ...] = ()

    @property
    def scheduled(self) -> bool:
        """True if a coefficient changes with the step."""
        values = [self.partition.h]
        for method in self.partition.methods.values():
            values.extend(vars(method).values())
        return any(isinstance(value, Schedule) for value in values)

    @property
    def stages(self) -> tuple[tuple[ProgramStage, ...], ...]:
        """The prelude, the stages of a step, and those that stop between two words."""
        return self.prelude, self.steps, self.between

    @cached_property
    def encoded(self) -> list[EncodedStages]:
        """These stages as the arrays that compiled code reads."""
        return [encode(stages) for stages in self.stages]


class EncodedStages(NamedTuple):
    """Stages as arrays: rows of `Control` and rows of `OperationRow`."""

    controls: NDArray[np.int64]
    operations: NDArray[np.int64]


class _RotatedStages(NamedTuple):
    """Stages of words that are cut for one gradient per step."""

    prelude: list[ProgramStage]
    steps: list[ProgramStage]


def compile_program(
    partition: Partition,
    layers: Layers,
    rotated: bool = True,
    stops: bool = False,
    parts: tuple[Part, ...] | None = None,
) -> Program:
    """Return the program of a partition on a network with these layers.

    Parameters
    ----------
    partition : Partition
    layers : Layers
    rotated : bool
        Cut words for one gradient per step. Otherwise the one word that all parts share is run as it is
        written; a word that needs several gradients per step always is.
    stops : bool
        Also return stages that stop between two words, as `Program.between`.
    parts : tuple of Part, optional
        Parts whose temperatures and priors a posterior has set, in place of the partition's own.

    Raises
    ------
    ValueError
        If `rotated` is false and the parts have different words.
    """
    parts = partition.parts(layers) if parts is None else parts
    units = [ThermostatUnit(part, ranges) for part in parts for ranges in _ranges_of_units(part)]
    moving = [(index, unit.part.method) for index, unit in enumerate(units) if unit.part.method.moves]
    methods = [method for _, method in moving]
    words = {method.spelling for method in methods}
    if not rotated and len(words) != 1:
        raise ValueError(
            "rotated=False runs the one word that all parts share as it is written, but they have "
            f"{', '.join(sorted(words)) or 'none'}: give all parts the same word, or leave rotated=True"
        )

    prelude: Sequence[ProgramStage] = ()
    between: Sequence[ProgramStage] = ()
    if not rotated or any(gradients(method.substeps) > 1 for method in methods):
        steps = _stages_as_written(moving)
        if stops:
            between = _stages_as_written(moving, stops=True)
    else:
        prelude, steps = _rotated_stages(moving, partition.tempering is not None)
        if stops:
            between = _rotated_stages(moving, stops=True).steps
    return Program(partition, parts, tuple(units), tuple(prelude), tuple(steps), tuple(between))


def _ranges_of_units(part: Part) -> list[tuple[range, ...]]:
    """Return the ranges of elements of each unit of a part: one for each tensor if each has a ξ, or one."""
    if len(part.thermostats) > 1:
        return [(span,) for span in part.tensors]
    return [_join_adjacent(part.tensors)]


def _rotated_stages(moving: Sequence[tuple[int, Method]], stops: bool) -> _RotatedStages:
    """Return the stages of words that are cut for one gradient per step (see `splitting.rotate`).

    Parameters
    ----------
    moving : sequence of (int, Method)
        The units whose parameters move, with their methods.
    stops : bool
        Whether a TEMPER stage stands between the letters that close a step and those that open the next.
    """
    prelude, closing, opening = ProgramStage(NOTHING), ProgramStage(GRADIENT), ProgramStage(TEMPER)
    for unit, method in moving:
        rotation, at_kick = rotate(method.substeps), method.seen_at_kick
        if at_kick:  # θ is seen in mid-step: what opens the first step comes before, the rest a step early
            prelude.passes += _passes(unit, _operations(method, rotation.opening, 0))
        closing_operations = _operations(method, rotation.closing, 0 if at_kick else -1)
        opening_operations = _operations(method, rotation.opening, 1 if at_kick else 0)
        if not stops:
            closing.passes += _passes(unit, closing_operations + opening_operations)
            continue
        closing.passes += _passes(unit, closing_operations)
        opening.passes += _passes(unit, opening_operations)
        if at_kick and method.tempering is not None:
            opening.offset = 1
    return _RotatedStages([prelude] if prelude.passes else [], [closing, opening] if stops else [closing])


def _stages_as_written(moving: Sequence[tuple[int, Method]], stops: bool = False) -> list[ProgramStage]:
    """Return the stages of a word as it is written, for all units together.

    A gradient stands before each kick that finds θ moved.

    Parameters
    ----------
    moving : sequence of (int, Method)
        The units whose parameters move, with their methods, which all have one word.
    stops : bool
        Whether a TEMPER stage comes first; with tempering it always does.
    """
    word = moving[0][1].substeps
    last_drift = max(substep.position for substep in word if substep.kind.moves)
    stages = [ProgramStage(TEMPER if stops or moving[0][1].tempering else NOTHING)]
    pending: list[Substep] = []
    has_gradient = False  # at θ as it is

    def add_pending_passes() -> None:
        for unit, method in moving:
            substeps = [method.substeps[substep.position] for substep in pending]
            stages[-1].passes += _passes(unit, _operations(method, substeps, 0))
        pending.clear()

    for substep in word:
        if substep.kind.kicks and not has_gradient:
            add_pending_passes()
            stages.append(ProgramStage(GRADIENT, int(substep.position > last_drift)))
            has_gradient = True
        has_gradient = has_gradient and not substep.kind.moves
        pending.append(substep)
    add_pending_passes()
    return [stage for stage in stages if stage.kind != NOTHING or stage.passes]


def _operations(method: Method, substeps: Sequence[Substep], offset: int) -> list[Operation]:
    """Return the operations of some letters of a method's word, not merged yet.

    `offset` is that of the step which the letters belong to. A READ stands before a letter that reads a
    temperature, unless its own operation does.
    """
    operations = []
    for substep in substeps:
        kinds = [kind for kind, _ in substep.kind.lower]
        if substep.kind.reads and THERMOSTAT not in kinds:
            operations.append(Operation(READ, []))
        stream_slot = -1 if substep.slot is None else NOISE << SLOT_BITS | substep.slot
        for kind, columns in substep.kind.lower:
            term = Term(method, columns, float(substep.fraction), offset)
            operations.append(Operation(kind, [term], stream_slot, offset))
    return operations


def _passes(unit: int, operations: Sequence[Operation]) -> list[ProgramPass]:
    """Return the passes over a unit in which its operations are carried out, in their order.

    Adjacent A's and B's are merged. Operations on ξ end a pass, and one that needs p·p twice reads it again
    in a pass of its own. Of several READs the last is kept.
    """
    superseded_reads = [operation for operation in operations if operation.kind == READ][:-1]
    passes: list[ProgramPass] = []
    for operation in operations:
        if operation in superseded_reads:
            continue

        on_friction = operation.kind in ON_FRICTION
        reads_twice = operation.kind == THERMOSTAT and bool(passes) and passes[-1].reads
        if not passes or (passes[-1].friction_operations and not on_friction) or reads_twice:
            passes.append(ProgramPass(unit))

        target = passes[-1].friction_operations if on_friction else passes[-1].operations
        if target and operation.kind in ADDED and target[-1].kind == operation.kind:
            target[-1].terms.extend(operation.terms)
        else:
            target.append(operation)
    return passes


def _join_adjacent(ranges: Sequence[range]) -> tuple[range, ...]:
    """Return the ranges, with those that touch joined."""
    joined: list[range] = []
    for span in ranges:
        if joined and joined[-1].stop == span.start:
            joined[-1] = range(joined[-1].start, span.stop)
        else:
            joined.append(span)
    return tuple(joined)


def encode(stages: Sequence[ProgramStage]) -> EncodedStages:
    """Return the stages as the arrays that compiled code reads.

    A stage is a control for what it begins with; a pass is a SEGMENT, with all operations on its parameters,
    and a FRICTION for each operation on its ξ.
    """
    rows = [
        OperationRow(operation.kind, operation.stream_slot, operation.offset)
        for stage in stages
        for operation in stage.all_operations()
    ]
    controls: list[Control] = []
    first = 0  # row of the first operation of a pass
    for stage in stages:
        if stage.kind != NOTHING:
            kind = EVALUATE if stage.kind == GRADIENT else MOVE_ON_LADDER
            controls.append(Control(kind, 0, first, first, stage.offset, 0))
        for program_pass in stage.passes:
            unit, first_friction = program_pass.unit, first + len(program_pass.operations)
            if program_pass.operations:
                moves = any(operation.kind in MOVING for operation in program_pass.operations)
                controls.append(Control(SEGMENT, unit, first, first_friction, 0, moves))
            first = first_friction + len(program_pass.friction_operations)
            controls.extend(
                Control(FRICTION, unit, row, row + 1, 0, 0) for row in range(first_friction, first)
            )
    return EncodedStages(
        np.array(controls, dtype=np.int64).reshape(-1, len(Control._fields)),
        np.array(rows, dtype=np.int64).reshape(-1, len(OperationRow._fields)),
    )
