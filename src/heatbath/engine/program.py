"""Programs: a partition, written as the few operations that the compiled kernel knows (`operations`).

A step is a list of stages. A stage begins with a gradient, a tempering move or nothing, and consists of
passes: operations on the parameters of one *unit*, those that one ξ serves, and after them operations on
that ξ. A pass goes over memory once. The engine and the optimisers for torch carry out the same stages.

Each operation has coefficients for the step of the word that it belongs to: closing letters have the offset
-1, where θ is seen at the kick the opening ones have 1. READ notes p·p where a letter reads a temperature.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from heatbath.methods import Method
from heatbath.methods.letters import Columns, Values
from heatbath.methods.operations import ADDED, MOVING, ON_FRICTION, READ, THERMOSTAT
from heatbath.methods.partition import Layers, Part, Partition
from heatbath.methods.schedules import Schedule
from heatbath.methods.splitting import Substep, gradients, rotate
from heatbath.reference.random import NOISE

GRADIENT, TEMPER, NOTHING = range(3)  # how a stage begins
EVALUATE, MOVE_ON_LADDER, SEGMENT, FRICTION = range(4)  # kinds of controls in compiled code


class Control(NamedTuple):
    """What compiled code does next: a kind, the unit it acts on and the operations low to high - 1; the
    offset of the step that a gradient or a move on the ladder belongs to; and whether θ moves."""

    kind: int
    unit: int
    low: int
    high: int
    offset: int
    moves: int


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

    `use` is the stream and slot of its noise (-1: none), and `offset` that of the step of the noise.
    """

    kind: int
    terms: list[Term]
    use: int = -1
    offset: int = 0


@dataclass(eq=False)
class ProgramPass:
    """Operations on all parameters of a unit, then operations on its ξ."""

    unit: int
    operations: list[Operation] = field(default_factory=list)
    frictions: list[Operation] = field(default_factory=list)

    @property
    def reads(self) -> bool:
        """Whether its ξ needs p·p."""
        return any(operation.kind == THERMOSTAT for operation in self.frictions)


@dataclass(eq=False)
class ProgramStage:
    """Passes, and what begins them; `offset` is that of the step which a gradient or a move belongs to."""

    begins: int
    offset: int = 0
    passes: list[ProgramPass] = field(default_factory=list)

    def all_operations(self) -> Iterator[Operation]:
        """Its operations, in the order of the tables of coefficients."""
        for one in self.passes:
            yield from one.operations
            yield from one.frictions


@dataclass(frozen=True)
class ThermostatUnit:
    """The parameters that one ξ serves, or all of a part that has none: ranges of elements."""

    part: Part
    ranges: tuple[range, ...]

    @property
    def size(self) -> int:
        """How many parameters it has."""
        return sum(map(len, self.ranges))


@dataclass(frozen=True)
class Program:
    """What is carried out: `prelude` once before the first step, then `steps` at every step.

    `between` is for a step that stops between the end of the word before and the beginning of its own, as it
    does for a move on a ladder; what it does is else the same.
    """

    partition: Partition
    parts: tuple[Part, ...]
    units: tuple[ThermostatUnit, ...]
    prelude: tuple[ProgramStage, ...]
    steps: tuple[ProgramStage, ...]
    between: tuple[ProgramStage, ...] = ()

    @property
    def scheduled(self) -> bool:
        """Whether a coefficient changes with the step."""
        values = [self.partition.h, *(v for m in self.partition.methods.values() for v in vars(m).values())]
        return any(isinstance(value, Schedule) for value in values)


def compile_program(
    partition: Partition,
    layers: Layers,
    rotated: bool = True,
    stops: bool = False,
    parts: tuple[Part, ...] | None = None,
) -> Program:
    """The program of a partition on a network with these layers.

    A word that needs several gradients per step is run as it is written, and others too if not `rotated`.
    With `stops` it can also stop between two words. `parts` are those whose values a posterior has set.
    """
    parts = partition.parts(layers) if parts is None else parts
    units: list[ThermostatUnit] = []
    moving: list[tuple[int, Method]] = []
    for part in parts:
        per_tensor = len(part.thermostats) > 1
        for ranges in [(span,) for span in part.tensors] if per_tensor else [_merged(part.tensors)]:
            if part.method.moves:
                moving.append((len(units), part.method))
            units.append(ThermostatUnit(part, ranges))
    methods = [method for _, method in moving]
    if not rotated and len({method.spelling for method in methods}) != 1:
        raise ValueError("rotated=False runs the one word that all parts share as it is written")
    if not rotated or any(gradients(method.substeps) > 1 for method in methods):
        between = _written(moving, True) if stops else ()
        return Program(partition, parts, tuple(units), (), tuple(_written(moving)), tuple(between))
    prelude, steps = _rotated(moving, partition.tempering is not None)
    between = _rotated(moving, True)[1] if stops else []
    return Program(partition, parts, tuple(units), tuple(prelude), tuple(steps), tuple(between))


def _rotated(
    moving: Sequence[tuple[int, Method]], stops: bool
) -> tuple[list[ProgramStage], list[ProgramStage]]:
    """Words that are cut for one gradient per step; where they stop, that is between closing and opening."""
    before, closing, opening = ProgramStage(NOTHING), ProgramStage(GRADIENT), ProgramStage(TEMPER)
    for unit, method in moving:
        rotation, at_kick = rotate(method.substeps), method.seen_at_kick
        if at_kick:
            before.passes += _passes(unit, _operations(method, rotation.opening, 0))
        first = _operations(method, rotation.closing, 0 if at_kick else -1)
        last = _operations(method, rotation.opening, 1 if at_kick else 0)
        if stops:
            opening.offset = max(opening.offset, int(at_kick and method.tempering is not None))
            closing.passes += _passes(unit, first)
            opening.passes += _passes(unit, last)
        else:
            closing.passes += _passes(unit, first + last)
    return [before] if before.passes else [], [closing, opening] if stops else [closing]


def _written(moving: Sequence[tuple[int, Method]], stops: bool = False) -> list[ProgramStage]:
    """A word as it is written, for all units together: a gradient before each kick that finds θ moved."""
    word = moving[0][1].substeps
    last_drift = max(s.place for s in word if s.kind.moves)
    stages = [ProgramStage(TEMPER if stops or moving[0][1].tempering else NOTHING)]
    piece: list[Substep] = []
    fresh = False  # whether there is a gradient at θ

    def flush() -> None:
        for unit, method in moving:
            substeps = [method.substeps[s.place] for s in piece]
            stages[-1].passes += _passes(unit, _operations(method, substeps, 0))
        piece.clear()

    for substep in word:
        if substep.kind.kicks and not fresh:
            flush()
            stages.append(ProgramStage(GRADIENT, int(substep.place > last_drift)))
            fresh = True
        fresh = fresh and not substep.kind.moves
        piece.append(substep)
    flush()
    return [stage for stage in stages if stage.begins != NOTHING or stage.passes]


def _operations(method: Method, substeps: Sequence[Substep], offset: int) -> list[Operation]:
    operations = []
    for s in substeps:
        kinds = [kind for kind, _ in s.kind.lower]
        if s.kind.reads and THERMOSTAT not in kinds:
            operations.append(Operation(READ, []))
        use = -1 if s.slot is None else NOISE << 14 | s.slot
        for kind, columns in s.kind.lower:
            term = Term(method, columns, float(s.fraction), offset)
            operations.append(Operation(kind, [term], use, offset))
    return operations


def _passes(unit: int, operations: Sequence[Operation]) -> list[ProgramPass]:
    """Passes of merged operations, those on ξ at their ends; of several places to read p·p, the last.

    A ξ that needs p·p again reads it again, in a pass of its own.
    """
    reads = [operation for operation in operations if operation.kind == READ]
    passes: list[ProgramPass] = []
    for operation in operations:
        if operation in reads[:-1]:
            continue
        on_friction = operation.kind in ON_FRICTION
        again = operation.kind == THERMOSTAT and bool(passes) and passes[-1].reads
        if not passes or (passes[-1].frictions and not on_friction) or again:
            passes.append(ProgramPass(unit))
        chosen = passes[-1].frictions if on_friction else passes[-1].operations
        if chosen and operation.kind in ADDED and chosen[-1].kind == operation.kind:
            chosen[-1].terms.extend(operation.terms)
        else:
            chosen.append(operation)
    return passes


def _merged(spans: Sequence[range]) -> tuple[range, ...]:
    """The ranges, with those that touch joined."""
    merged: list[range] = []
    for span in spans:
        if merged and merged[-1].stop == span.start:
            merged[-1] = range(merged[-1].start, span.stop)
        else:
            merged.append(span)
    return tuple(merged)


def encode(stages: Sequence[ProgramStage]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """As arrays: controls, rows of `Control`, and operations (kind, use of noise, offset)."""
    controls: list[Control] = []
    operations: list[tuple[int, int, int]] = []

    def add(chosen: Sequence[Operation]) -> tuple[int, int]:
        first = len(operations)
        operations.extend((o.kind, o.use, o.offset) for o in chosen)
        return first, len(operations)

    for stage in stages:
        if stage.begins != NOTHING:
            kind = EVALUATE if stage.begins == GRADIENT else MOVE_ON_LADDER
            controls.append(Control(kind, 0, len(operations), len(operations), stage.offset, 0))
        for one in stage.passes:
            if one.operations:
                moves = any(o.kind in MOVING for o in one.operations)
                controls.append(Control(SEGMENT, one.unit, *add(one.operations), 0, moves))
            for operation in one.frictions:
                controls.append(Control(FRICTION, one.unit, *add([operation]), 0, 0))
    return (
        np.array(controls, dtype=np.int64).reshape(-1, 6),
        np.array(operations, dtype=np.int64).reshape(-1, 3),
    )
