"""Programs: a partition, written as the few operations that the compiled loop knows.

On a tile every letter is one of three operations, A (θ += c p), B (p += c G - d θ) and S (p = a p + b R):
O, C, D and F are all S. The baselines add DESCEND (SGD, SGLD) and ADAM; Momentum is S, B, A. Operations on
one thermostat's parameters (a *unit*) form a segment, which passes over memory once; E stands between
segments.

A step is a list of controls: evaluate the gradient, run a segment, move a ξ, try a tempering move. Each
operation carries coefficients for the step of the word it belongs to, so the tables have a row for every step
while a coefficient is on a schedule, and otherwise two: the first step, which has nothing to close, and all
others. READ notes p·p before an O, where a temperature is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from heatbath.methods import SGLD, Adam, AdaptiveLangevin, Frozen, Langevin, Method, Momentum
from heatbath.noise import NOISE
from heatbath.partition import Layers, Part, Partition
from heatbath.schedules import Schedule, SimulatedTempering
from heatbath.splitting import Substep, gradients, rotate

A, B, S, C, F, DESCEND, ADAM, READ = range(8)
GRADIENT, SEGMENT, THERMOSTAT, TEMPER = range(4)
WIDTH = 6  # coefficients of an operation


@dataclass(eq=False)
class Operation:
    """An operation, the letters of the word that it carries out, and the steps that they belong to.

    `terms` are (fraction of h, offset of the step): adjacent A's and B's are merged. `offset` is that of the
    noise.
    """

    kind: int
    method: Method
    terms: list[tuple[float, int]]
    slot: int = -1
    offset: int = 0
    letter: str = ""


@dataclass
class Control:
    """A control: its kind, the unit it is for, its operations, and the offset of the step it counts by."""

    kind: int
    unit: int = 0
    operations: list[Operation] = field(default_factory=list)
    batch: int = 0


@dataclass(frozen=True)
class Unit:
    """The parameters that one ξ serves, or all of a part that has none: ranges of elements."""

    part: Part
    ranges: tuple[range, ...]

    @property
    def size(self) -> int:
        """How many parameters it has."""
        return sum(map(len, self.ranges))


@dataclass(frozen=True)
class Program:
    """What the compiled loop runs: `prelude` once before the first step, then `steps` at every step."""

    partition: Partition
    parts: tuple[Part, ...]
    units: tuple[Unit, ...]
    prelude: tuple[Control, ...]
    steps: tuple[Control, ...]

    @property
    def scheduled(self) -> bool:
        """Whether a coefficient changes with the step."""
        values = [self.partition.h, *(v for m in self.partition.methods.values() for v in vars(m).values())]
        return any(isinstance(value, Schedule) for value in values)


def compile_program(partition: Partition, layers: Layers, rotated: bool = True) -> Program:
    """The program of a partition on a network with these layers.

    A word that needs several gradients per step is run as it is written, and others too if not `rotated`.
    """
    parts = partition.parts(layers)
    units: list[Unit] = []
    of_part: dict[str, list[int]] = {}
    for part in parts:
        per_tensor = len(part.thermostats) > 1
        groups = [(span,) for span in part.tensors] if per_tensor else [_merged(part.tensors)]
        of_part[part.name] = list(range(len(units), len(units) + len(groups)))
        units += [Unit(part, group) for group in groups]
    moving = [part for part in parts if not isinstance(part.method, Frozen)]
    words = [part.method for part in moving if isinstance(part.method, (Langevin, AdaptiveLangevin))]
    if not rotated and (len(words) < len(moving) or len({method.word for method in words}) != 1):
        raise ValueError("rotated=False runs the one word that all parts share as it is written")
    if not rotated or any(gradients(method.substeps) > 1 for method in words):
        return Program(partition, parts, tuple(units), (), tuple(_written(words[0], moving, of_part)))

    prelude: list[Control] = []
    closing: list[Control] = []
    opening: list[Control] = []
    for part in moving:
        method = part.method
        for unit in of_part[part.name]:
            if not isinstance(method, (Langevin, AdaptiveLangevin)):
                opening += _controls(unit, _baseline(method))
                continue
            rotation = rotate(method.substeps)
            kick = rotation.seen == "kick"
            if kick:
                prelude += _controls(unit, _operations(method, rotation.opening, 0))
            first = _operations(method, rotation.closing, 0 if kick else -1)
            last = _operations(method, rotation.opening, 1 if kick else 0)
            if partition.tempering is None:
                opening += _controls(unit, first + last)
            else:
                closing += _controls(unit, first)
                opening += _controls(unit, last)
    temper = [Control(TEMPER, batch=_tempering_offset(words))] if partition.tempering else []
    steps = [Control(GRADIENT), *closing, *temper, *opening]
    return Program(partition, parts, tuple(units), tuple(prelude), tuple(steps))


def _tempering_offset(methods: Sequence[Langevin | AdaptiveLangevin]) -> int:
    tempered = [m for m in methods if isinstance(m.tau, SimulatedTempering)]
    return 1 if rotate(tempered[0].substeps).seen == "kick" else 0


def _written(
    method: Langevin | AdaptiveLangevin, parts: Sequence[Part], of_part: dict[str, list[int]]
) -> list[Control]:
    """A word as it is written, for all parts together: a gradient before each kick that finds θ moved."""
    units = [(unit, part.method) for part in parts for unit in of_part[part.name]]
    last_drift = method.word.rindex("A")
    controls: list[Control] = []
    if isinstance(method.tau, SimulatedTempering):
        controls.append(Control(TEMPER))
    piece: list[Substep] = []
    kicked = moved = False

    def flush() -> None:
        for unit, own in units:
            assert isinstance(own, (Langevin, AdaptiveLangevin))
            controls.extend(_controls(unit, _operations(own, tuple(piece), 0)))
        piece.clear()

    for substep in method.substeps:
        if substep.letter == "B" and (moved or not kicked):
            flush()
            controls.append(Control(GRADIENT, batch=int(substep.place > last_drift)))
            moved, kicked = False, True
        moved = moved or substep.letter == "A"
        piece.append(substep)
    flush()
    return controls


def _operations(
    method: Langevin | AdaptiveLangevin, substeps: Sequence[Substep], offset: int
) -> list[Operation]:
    kinds = {"A": A, "B": B, "O": S, "D": S, "C": C, "F": F, "E": THERMOSTAT}
    operations = []
    for s in substeps:
        if s.letter == "O":
            operations.append(Operation(READ, method, [(0.0, offset)]))
        slot = -1 if s.slot is None else s.slot
        terms = [(float(s.fraction), offset)]
        operations.append(Operation(kinds[s.letter], method, terms, slot, offset, s.letter))
    return operations


def _baseline(method: Method) -> list[Operation]:
    if isinstance(method, Momentum):
        return [Operation(kind, method, [(1.0, 0)], letter="SBA"[i]) for i, kind in enumerate((S, B, A))]
    kind = ADAM if isinstance(method, Adam) else DESCEND
    return [Operation(kind, method, [(1.0, 0)], slot=0 if isinstance(method, SGLD) else -1)]


def _controls(unit: int, operations: Sequence[Operation]) -> list[Control]:
    """Segments of merged operations, with E between them; of several places to read p·p, the last."""
    reads = [operation for operation in operations if operation.kind == READ]
    controls: list[Control] = []
    for operation in operations:
        if operation in reads[:-1]:
            continue
        if operation.letter == "E":
            controls.append(Control(THERMOSTAT, unit, [operation]))
            continue
        if not controls or controls[-1].kind != SEGMENT:
            controls.append(Control(SEGMENT, unit))
        segment = controls[-1].operations
        same = segment and segment[-1].kind == operation.kind and operation.kind in (A, B)
        if same and not isinstance(operation.method, Momentum):
            segment[-1].terms.extend(operation.terms)
        else:
            segment.append(operation)
    return controls


def _merged(spans: Sequence[range]) -> tuple[range, ...]:
    """The ranges, with those that touch joined."""
    merged: list[range] = []
    for span in spans:
        if merged and merged[-1].stop == span.start:
            merged[-1] = range(merged[-1].start, span.stop)
        else:
            merged.append(span)
    return tuple(merged)


def encode(controls: Sequence[Control]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """As arrays: controls (kind, unit, first operation, stop, offset, whether θ moves) and operations (kind,
    use of noise, offset)."""
    rows: list[tuple[int, ...]] = []
    operations: list[tuple[int, ...]] = []
    for control in controls:
        first = len(operations)
        operations += [
            (o.kind, NOISE << 14 | o.slot if o.slot >= 0 else -1, o.offset) for o in control.operations
        ]
        drifts = any(o.kind in (A, DESCEND, ADAM) for o in control.operations)
        rows.append((control.kind, control.unit, first, len(operations), control.batch, drifts))
    return (
        np.array(rows, dtype=np.int64).reshape(-1, 6),
        np.array(operations, dtype=np.int64).reshape(-1, 3),
    )
