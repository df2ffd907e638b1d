"""Programs: a partition, written as the few operations that the compiled kernel knows (`operations`).

A step is a list of stages. A stage begins with a gradient, a tempering move or nothing, and consists of
passes: operations on the parameters of one *unit*, those that one ξ serves, and after them operations on that
ξ. A pass goes over memory once. The engine and the optimisers for torch carry out the same stages.

Each operation has coefficients for the step of the word that it belongs to. Letters that close a step have
the offset -1; where θ is seen at the kick, letters that open one have the offset 1. READ records p·p where a
letter reads a temperature.

Stages depend on the words only, so programs that differ in their coefficients share them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
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


@dataclass(frozen=True)
class Term:
    """Where the columns of an operation come from: a letter that acts for a fraction of a step's h."""

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

    def all_operations(self) -> list[Operation]:
        """Return its operations, those on the parameters first."""
        return self.operations + self.friction_operations

    def has_place_for(self, operation: Operation) -> bool:
        """Return whether an operation can follow in this pass, without a second one that needs p·p."""
        if operation.kind == THERMOSTAT:
            return not self.reads
        return operation.kind in ON_FRICTION or not self.friction_operations

    def add(self, operation: Operation) -> None:
        """Append an operation, or merge it with the last one if both are A's or both are B's."""
        operations = self.friction_operations if operation.kind in ON_FRICTION else self.operations
        if operations and operation.kind in ADDED and operations[-1].kind == operation.kind:
            operations[-1].terms.extend(operation.terms)
        else:
            operations.append(operation)


@dataclass(eq=False)
class ProgramStage:
    """A GRADIENT, a TEMPER or NOTHING, and then passes.

    `offset` is that of the step which the gradient or the tempering move belongs to.
    """

    kind: int
    offset: int = 0
    passes: list[ProgramPass] = field(default_factory=list)

    def all_operations(self) -> list[Operation]:
        """Return its operations in the order of the tables of coefficients."""
        return list(chain.from_iterable(map(ProgramPass.all_operations, self.passes)))


@dataclass(frozen=True)
class ThermostatUnit:
    """The parameters that one ξ serves, or all of a part that has none, as ranges of elements."""

    part: Part
    ranges: tuple[range, ...]

    @property
    def size(self) -> int:
        """Number of parameters."""
        return sum(map(len, self.ranges))


class EncodedStages(NamedTuple):
    """Stages as arrays: rows of `Control` and rows of `OperationRow`."""

    controls: NDArray[np.int64]
    operations: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Program:
    """What is carried out: `prelude` once before the first step, then `steps` at every step.

    `between` has the same effect as `steps`, but stops between the end of the last word and the beginning of
    the next one: there the variances of the data are drawn. `encoded` are the three as arrays.
    """

    partition: Partition
    parts: tuple[Part, ...]
    units: tuple[ThermostatUnit, ...]
    prelude: tuple[ProgramStage, ...]
    steps: tuple[ProgramStage, ...]
    between: tuple[ProgramStage, ...]
    encoded: tuple[EncodedStages, ...]

    @property
    def scheduled(self) -> bool:
        """True if a coefficient changes with the step."""
        settings = [self.partition.h]
        for method in self.partition.methods.values():
            settings.extend(vars(method).values())
        return any(isinstance(setting, Schedule) for setting in settings)

    @property
    def stages(self) -> tuple[tuple[ProgramStage, ...], ...]:
        """The prelude, the stages of a step, and those that stop between two words."""
        return self.prelude, self.steps, self.between


class _MovingUnit(NamedTuple):
    """A unit whose parameters move: its number, the letters of its word, and whether it is tempered."""

    number: int
    word: tuple[Substep, ...]
    is_tempered: bool


class _CompiledStages(NamedTuple):
    """The fields `prelude` to `encoded` of a `Program`."""

    prelude: tuple[ProgramStage, ...]
    steps: tuple[ProgramStage, ...]
    between: tuple[ProgramStage, ...]
    encoded: tuple[EncodedStages, ...]


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
    units = tuple(chain.from_iterable(map(_units_of_part, parts)))
    methods = [unit.part.method for unit in units]
    if not rotated:
        _check_one_word([method for method in methods if method.moves])

    moving = tuple(
        _MovingUnit(number, method.substeps, method.tempering is not None)
        for number, method in enumerate(methods)
        if method.moves
    )
    stages = _compile_stages(moving, rotated, stops, partition.tempering is not None)
    return Program(partition, parts, units, *stages)


@lru_cache(maxsize=64)
def _compile_stages(
    moving: tuple[_MovingUnit, ...], rotated: bool, stops: bool, is_tempered: bool
) -> _CompiledStages:
    """Return the stages of some units; `is_tempered` says whether a part has simulated tempering."""
    has_one_gradient = all(gradients(unit.word) <= 1 for unit in moving)
    between: list[ProgramStage] = []
    if rotated and has_one_gradient:
        prelude, steps = _rotated_stages(moving, is_tempered)
        if stops:
            between = _rotated_stages(moving, stops=True).steps
    else:
        prelude = []
        steps = _stages_as_written(moving)
        if stops:
            between = _stages_as_written(moving, stops=True)
    encoded = tuple(map(encode, (prelude, steps, between)))
    return _CompiledStages(tuple(prelude), tuple(steps), tuple(between), encoded)


def _check_one_word(methods: Sequence[Method]) -> None:
    """Raise ValueError unless the methods all have the same word, of which there is one at least."""
    words = {method.spelling for method in methods}
    if len(words) != 1:
        spelled_words = ", ".join(sorted(words)) or "none"
        raise ValueError(
            "rotated=False runs the one word that all parts share as it is written, but they have "
            f"{spelled_words}: give all parts the same word, or leave rotated=True"
        )


def _units_of_part(part: Part) -> list[ThermostatUnit]:
    """Return the units of a part: one for each tensor if each has a ξ of its own, or one for all."""
    if len(part.thermostats) > 1:
        return [ThermostatUnit(part, (span,)) for span in part.tensors]
    return [ThermostatUnit(part, _join_adjacent(part.tensors))]


def _rotated_stages(moving: Sequence[_MovingUnit], stops: bool) -> _RotatedStages:
    """Return the stages of words that are cut for one gradient per step (see `splitting.rotate`).

    Parameters
    ----------
    moving : sequence of _MovingUnit
        The units whose parameters move.
    stops : bool
        Whether a TEMPER stage stands between the letters that close a step and those that open the next.
    """
    prelude = ProgramStage(NOTHING)
    closing = ProgramStage(GRADIENT)
    opening = ProgramStage(TEMPER)
    for unit in moving:
        rotation = rotate(unit.word)
        is_seen_at_kick = rotation.seen == "kick"
        # Letters that close a step belong to the step before, unless θ is seen at the kick, in mid-step
        closing_offset = 0 if is_seen_at_kick else -1
        opening_offset = closing_offset + 1
        closing_operations = _operations(rotation.closing, closing_offset)
        opening_operations = _operations(rotation.opening, opening_offset)
        if is_seen_at_kick:  # what opens the first step comes before it
            prelude.passes += _passes(unit.number, _operations(rotation.opening, 0))

        if stops:
            closing.passes += _passes(unit.number, closing_operations)
            opening.passes += _passes(unit.number, opening_operations)
        else:
            closing.passes += _passes(unit.number, closing_operations + opening_operations)
        if is_seen_at_kick and unit.is_tempered:
            opening.offset = opening_offset

    prelude_stages = [prelude] if prelude.passes else []
    step_stages = [closing, opening] if stops else [closing]
    return _RotatedStages(prelude_stages, step_stages)


def _stages_as_written(moving: Sequence[_MovingUnit], stops: bool = False) -> list[ProgramStage]:
    """Return the stages of a word as it is written, for all units together.

    A gradient stands before each kick that finds θ moved.

    Parameters
    ----------
    moving : sequence of _MovingUnit
        The units whose parameters move, which all have one word.
    stops : bool
        Whether a TEMPER stage comes first; with tempering it always does.
    """
    word = moving[0].word
    last_drift = max(substep.position for substep in word if substep.kind.moves)
    opening, *kicked = _cut_at_gradients(word)
    has_temper_stage = stops or moving[0].is_tempered
    stages = [ProgramStage(TEMPER if has_temper_stage else NOTHING)]
    _add_passes(stages[0], moving, opening)
    for substeps in kicked:
        is_after_drifts = substeps[0].position > last_drift  # then the gradient serves the next step, too
        stage = ProgramStage(GRADIENT, offset=1 if is_after_drifts else 0)
        _add_passes(stage, moving, substeps)
        stages.append(stage)
    return [stage for stage in stages if stage.kind != NOTHING or stage.passes]


def _cut_at_gradients(word: Sequence[Substep]) -> list[list[Substep]]:
    """Return the letters of a word, cut before each kick that finds θ moved or begins the word.

    The letters before the first cut may be none.
    """
    cuts: list[list[Substep]] = [[]]
    has_gradient = False  # at θ as it is
    for substep in word:
        if substep.kind.kicks and not has_gradient:
            cuts.append([])
            has_gradient = True
        if substep.kind.moves:
            has_gradient = False
        cuts[-1].append(substep)
    return cuts


def _add_passes(stage: ProgramStage, moving: Sequence[_MovingUnit], substeps: Sequence[Substep]) -> None:
    """Add the passes of some letters of the common word to a stage, with each unit's own letters."""
    for unit in moving:
        own_substeps = [unit.word[substep.position] for substep in substeps]
        stage.passes += _passes(unit.number, _operations(own_substeps, 0))


def _operations(substeps: Sequence[Substep], offset: int) -> list[Operation]:
    """Return the operations of some letters of a word, not merged yet.

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
            term = Term(columns, float(substep.fraction), offset)
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

        if not passes or not passes[-1].has_place_for(operation):
            passes.append(ProgramPass(unit))
        passes[-1].add(operation)
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
    controls: list[Control] = []
    rows: list[OperationRow] = []
    for stage in stages:
        if stage.kind != NOTHING:
            kind = EVALUATE if stage.kind == GRADIENT else MOVE_ON_LADDER
            controls.append(Control(kind, 0, len(rows), len(rows), stage.offset, 0))
        for program_pass in stage.passes:
            controls += _controls_of_pass(program_pass, len(rows))
            rows += map(_operation_row, program_pass.all_operations())
    return EncodedStages(
        np.array(controls, dtype=np.int64).reshape(-1, len(Control._fields)),
        np.array(rows, dtype=np.int64).reshape(-1, len(OperationRow._fields)),
    )


def _operation_row(operation: Operation) -> OperationRow:
    """Return what compiled code reads of an operation."""
    return OperationRow(operation.kind, operation.stream_slot, operation.offset)


def _controls_of_pass(program_pass: ProgramPass, first: int) -> list[Control]:
    """Return the controls of a pass, whose operations are in the rows from `first` on."""
    unit = program_pass.unit
    first_friction = first + len(program_pass.operations)
    stop = first_friction + len(program_pass.friction_operations)
    controls = [Control(FRICTION, unit, row, row + 1, 0, 0) for row in range(first_friction, stop)]
    if program_pass.operations:
        moves = any(operation.kind in MOVING for operation in program_pass.operations)
        controls.insert(0, Control(SEGMENT, unit, first, first_friction, 0, int(moves)))
    return controls
