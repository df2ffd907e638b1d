"""The program of an optimiser step: the stages and operations that a method's word is carried out by.

A program depends on the method, its word and its choices. The coefficients of its operations stand in a table
beside it, which is computed again when one of them has changed.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from heatbath.engine.coefficients import Steps, table
from heatbath.engine.program import GRADIENT, TEMPER, Operation, ProgramPass, compile_program
from heatbath.methods import Method
from heatbath.methods.letters import Columns, Values
from heatbath.methods.operations import DESCENDING, NEUTRAL, READ, UNITS, WIDTH
from heatbath.methods.partition import Partition
from heatbath.torch.optim.param_groups import NEGLIGIBLE, STANDSTILL

Table = NDArray[np.float64]  # (2, operations, WIDTH): a tensor's first step, and every later one
ENCODED_COLUMNS = 3  # of `StepProgram.encoded`


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
    is_in_first_step: bool  # whether a tensor's first step has it
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
        if stage >= len(self.stages):
            return ()
        return self.stages[stage].passes

    def coefficients(
        self, previous: Mapping[str, float], current: Mapping[str, float], maximize: bool
    ) -> Table:
        """Compute the coefficients of all operations.

        The operations are given the gradient of the loss where the formulas have G = -∇L, so the coefficients
        of G have the other sign, unless the loss is to be maximised.

        Parameters
        ----------
        previous : mapping of str to float
            Coefficients of the step before, which the letters that close it have: "lr", those of the method
            and, with a drawn noise, the "unit" of the momenta.
        current : mapping of str to float
            Coefficients of this step, for all other letters.
        maximize : bool
            Whether the loss is maximised.

        Returns
        -------
        Table
            An array (2, operations, WIDTH). The first row is for a tensor's first step, which has nothing to
            close, the second for every later one.
        """
        columns_of_entries = self._evaluate_entries(previous, current)

        # Both rows of the table one after the other, in a list, which is filled much faster than an array.
        row_size = len(self.encoded) * WIDTH
        numbers = [0.0] * (2 * row_size)
        for entry, columns in zip(self.entries, columns_of_entries, strict=True):
            for position, column in enumerate(columns, entry.position):
                numbers[row_size + position] += column
                if entry.is_in_first_step:
                    numbers[position] += column
            if entry.neutral:
                numbers[entry.position : entry.position + len(entry.neutral)] = entry.neutral

        if STANDSTILL in (current["lr"], previous["lr"]):
            for position, number in enumerate(numbers):
                if abs(number) < NEGLIGIBLE:
                    numbers[position] = 0.0
        if not maximize:
            for position in self._factors_of_gradient:
                numbers[position] *= -1.0
                numbers[row_size + position] *= -1.0
        return np.frombuffer(array("d", numbers)).reshape(2, -1, WIDTH)

    def _evaluate_entries(
        self, previous: Mapping[str, float], current: Mapping[str, float]
    ) -> list[Sequence[float]]:
        """Return the columns that each entry adds to the table; for the arguments see `coefficients`."""
        evaluated = []
        for evaluation in self.evaluations:
            step_values = previous if evaluation.closes else current
            time = evaluation.fraction * step_values["lr"]
            evaluated.append(evaluation.columns(Values(self.method, time, step_values.__getitem__)))
        if "unit" not in current:
            return [evaluated[entry.evaluation] for entry in self.entries]

        columns_of_entries = []
        for entry in self.entries:
            step_values = previous if self.evaluations[entry.evaluation].closes else current
            columns = evaluated[entry.evaluation]
            columns_of_entries.append(_in_momentum_unit(columns, entry.operation, step_values["unit"]))
        return columns_of_entries

    @cached_property
    def _factors_of_gradient(self) -> list[int]:
        """Positions in a row of the table of the numbers that multiply G."""
        operations = self.encoded[:, 0].tolist()
        return [index * WIDTH for index, operation in enumerate(operations) if operation in DESCENDING]


def _in_momentum_unit(columns: Columns, operation: int, unit: float) -> Sequence[float]:
    """Return the columns of an operation of this kind for momenta that are in a unit."""
    if operation not in UNITS:
        return columns
    return [column * unit**power for column, power in zip(columns, UNITS[operation], strict=False)]


@lru_cache(maxsize=256)
def step_program(method: Method) -> StepProgram:
    """Compile the program that an optimiser runs in each step with a method.

    It depends on the method's word and choices. The coefficients of the method do not matter: they come in by
    `StepProgram.coefficients`.

    Raises
    ------
    ValueError
        If the operations contradict what the method says of itself.
    """
    program = compile_program(Partition(method, 1.0), {"all": (1,)})
    table(program, program.steps, Steps(0, 1))  # refuses operations that contradict the method

    operations: list[Operation] = []
    stages: list[StepStage] = []
    for stage in program.steps:
        passes = [_append_operations(operations, engine_pass) for engine_pass in stage.passes]
        stages.append(StepStage(stage.kind, stage.offset, tuple(passes)))

    rows = [(operation.kind, operation.stream_slot, operation.offset) for operation in operations]
    encoded = np.array(rows, np.int64).reshape(-1, ENCODED_COLUMNS)
    evaluations, entries = _plan_table(operations, bool(program.prelude))
    return StepProgram(method, tuple(stages), encoded, evaluations, entries)


def _append_operations(operations: list[Operation], engine_pass: ProgramPass) -> StepPass:
    """Append the operations of one of the engine's passes, in place, and return where they stand."""
    first = len(operations)
    operations += engine_pass.operations
    if engine_pass.reads:  # p·p for ξ, while the tile is in the cache
        operations.append(Operation(READ, []))
    stop = len(operations)
    operations += engine_pass.friction_operations
    return StepPass(first, stop, len(operations))


def _plan_table(
    operations: list[Operation], seen_at_kick: bool
) -> tuple[tuple[Evaluation, ...], tuple[Entry, ...]]:
    """Plan which columns of coefficients are evaluated in each step, and where each is added to the table.

    Parameters
    ----------
    operations : list of Operation
        The operations of a step; each adds up one or more terms.
    seen_at_kick : bool
        Whether the θ between two steps is that at the kick. Then letters of the step under way have the
        offset 0 and those that open the next one 1, and a tensor's first step has both of them.

    Returns
    -------
    evaluations, entries
        The fields of `StepProgram`.
    """
    first_offset = 1 if seen_at_kick else 0  # terms with lower offsets close the step before
    evaluation_indices: dict[Evaluation, int] = {}  # each evaluation once, in order
    entries = []
    for operation_index, operation in enumerate(operations):
        for term in operation.terms:
            closes = term.offset < first_offset
            evaluation = Evaluation(term.columns, term.fraction, closes)
            evaluation_index = evaluation_indices.setdefault(evaluation, len(evaluation_indices))
            position = operation_index * WIDTH
            is_in_first_step = seen_at_kick or not closes
            neutral = () if is_in_first_step else NEUTRAL.get(operation.kind, ())
            entries.append(Entry(evaluation_index, operation.kind, position, is_in_first_step, neutral))
    return tuple(evaluation_indices), tuple(entries)
