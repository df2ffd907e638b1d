"""The program of an optimiser step: the stages and operations that a method's word is carried out by.

A program depends on the method, its word and its choices. The coefficients of its operations stand in a table
beside it, which is computed again when one of them has changed.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from heatbath.engine.coefficients import table
from heatbath.engine.program import GRADIENT, TEMPER, Operation, compile_program
from heatbath.methods import Method
from heatbath.methods.letters import Columns, Values
from heatbath.methods.operations import DESCENDING, NEUTRAL, READ, UNITS, WIDTH
from heatbath.methods.partition import Partition
from heatbath.torch.optim.param_groups import NEGLIGIBLE, STANDSTILL

Table = NDArray[np.float64]  # (2, operations, WIDTH): a tensor's first step, and every later one


class StepPass(NamedTuple):
    """One pass over the tensors: operations `first` to `stop` - 1 on them, then `stop` to `end` - 1 on ξ."""

    first: int
    stop: int
    end: int


class StepStage(NamedTuple):
    """Passes in a row, and the kind of their opening: GRADIENT, TEMPER before step n + offset, or nothing."""

    kind: int
    offset: int
    passes: tuple[StepPass, ...]


class Evaluation(NamedTuple):
    """Columns of coefficients of one letter, which are computed once however often the letter occurs."""

    columns: Callable[[Values], Columns]
    fraction: float  # of the stepsize
    closes: bool  # whether it closes the step before, with the coefficients of that step


class Entry(NamedTuple):
    """Columns of an evaluation that are added to the table of coefficients."""

    evaluation: int
    operation: int  # kind of the operation
    position: int  # of its first number in a row of the table
    in_first_step: bool  # whether a tensor's first step has it
    neutral: tuple[float, ...]  # numbers that a first step has instead


@dataclass(frozen=True, eq=False)
class StepProgram:
    """The stages of a step, the operations of their passes, and how the coefficients are computed.

    `encoded` has a row for each operation: its kind, its use of the noise (-1 for none), and the step that it
    belongs to, counted from the present one. Of `method` only the choices matter.
    """

    method: Method
    stages: tuple[StepStage, ...]
    encoded: NDArray[np.int64]
    evaluations: tuple[Evaluation, ...]
    entries: tuple[Entry, ...]

    @cached_property
    def gradients(self) -> int:
        """Number of gradients in a step."""
        return sum(stage.kind == GRADIENT for stage in self.stages)

    @cached_property
    def is_tempered(self) -> bool:
        """True if a step may move to another rung of a temperature ladder."""
        return any(stage.kind == TEMPER for stage in self.stages)

    @cached_property
    def has_friction_per_tensor(self) -> bool:
        """True if each tensor has a ξ of its own."""
        return self.method.thermostat == "tensor"

    @cached_property
    def reads_temperature(self) -> bool:
        """True if p·p is read in a step."""
        return READ in self.encoded[:, 0]

    def passes(self, stage: int) -> tuple[StepPass, ...]:
        """Return the passes of a stage, none where the step has fewer stages."""
        return self.stages[stage].passes if stage < len(self.stages) else ()

    def coefficients(
        self, previous: Mapping[str, float], current: Mapping[str, float], maximize: bool
    ) -> Table:
        """Compute the table of coefficients, (2, operations, WIDTH).

        Letters that close the step before have the `previous` numbers, all others the `current` ones. The
        first row is for a tensor's first step, which has nothing to close. The operations are given the
        gradient of the loss where the formulas have G = -∇L, so the coefficients of G have the other sign,
        unless the loss is to be maximised.
        """
        evaluated = []
        for columns_of, fraction, closes in self.evaluations:
            numbers = previous if closes else current
            evaluated.append(columns_of(Values(self.method, fraction * numbers["lr"], numbers.__getitem__)))
        row = len(self.encoded) * WIDTH
        numbers_of_table = [0.0] * (2 * row)  # a list is filled much faster than an array
        for entry in self.entries:
            columns = evaluated[entry.evaluation]
            if "unit" in current and entry.operation in UNITS:
                unit = (previous if self.evaluations[entry.evaluation].closes else current)["unit"]
                columns = [c * unit**power for c, power in zip(columns, UNITS[entry.operation], strict=False)]
            for position, column in enumerate(columns, entry.position):
                numbers_of_table[row + position] += column
                if entry.in_first_step:
                    numbers_of_table[position] += column
            if entry.neutral:
                numbers_of_table[entry.position : entry.position + len(entry.neutral)] = entry.neutral
        if STANDSTILL in (current["lr"], previous["lr"]):
            numbers_of_table = [0.0 if abs(number) < NEGLIGIBLE else number for number in numbers_of_table]
        if not maximize:
            for position in self._factors_of_gradient:
                numbers_of_table[position] *= -1.0
                numbers_of_table[row + position] *= -1.0
        return np.frombuffer(array("d", numbers_of_table)).reshape(2, -1, WIDTH)

    @cached_property
    def _factors_of_gradient(self) -> list[int]:
        """Positions in a row of the table of the numbers that multiply G."""
        kinds = self.encoded[:, 0].tolist()
        return [index * WIDTH for index, kind in enumerate(kinds) if kind in DESCENDING]


@lru_cache(maxsize=256)
def step_program(method: Method) -> StepProgram:
    """Return the program of a method, whose coefficients do not matter."""
    program = compile_program(Partition(method, 1.0), {"all": (1,)})
    table(program, program.steps, 0, 1)  # refuses operations that contradict the method
    operations: list[Operation] = []
    stages: list[StepStage] = []
    for stage in program.steps:
        passes: list[StepPass] = []
        for engine_pass in stage.passes:
            first = len(operations)
            operations += engine_pass.operations
            if engine_pass.reads:  # p·p for ξ, while the tile is in the cache
                operations.append(Operation(READ, []))
            stop = len(operations)
            operations += engine_pass.friction_operations
            passes.append(StepPass(first, stop, len(operations)))
        stages.append(StepStage(stage.kind, stage.offset, tuple(passes)))
    encoded = np.array([(o.kind, o.stream_slot, o.offset) for o in operations], np.int64).reshape(-1, 3)
    return StepProgram(method, tuple(stages), encoded, *_plan_table(operations, bool(program.prelude)))


def _plan_table(
    operations: list[Operation], seen_at_kick: bool
) -> tuple[tuple[Evaluation, ...], tuple[Entry, ...]]:
    """Return which columns a table of coefficients needs, and where each is added.

    Where θ is seen at the kick, a tensor's first step also closes what stands before the kick.
    """
    opening = 1 if seen_at_kick else 0
    evaluations: dict[Evaluation, int] = {}
    entries = []
    for index, operation in enumerate(operations):
        for term in operation.terms:
            closes = term.offset < opening
            evaluation = Evaluation(term.columns, term.fraction, closes)
            number = evaluations.setdefault(evaluation, len(evaluations))
            in_first_step = seen_at_kick or not closes
            neutral = () if in_first_step else NEUTRAL.get(operation.kind, ())
            entries.append(Entry(number, operation.kind, index * WIDTH, in_first_step, neutral))
    return tuple(evaluations), tuple(entries)
