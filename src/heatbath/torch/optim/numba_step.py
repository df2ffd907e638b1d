"""A step in the engine's compiled code: CPU tensors in float32 or float64, in place, on torch's threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heatbath.engine.openmp import parallel_region
from heatbath.engine.tensor_step import CHAIN, PIECE, UNIT, Work, fused_step
from heatbath.engine.threads import spread, thread_count
from heatbath.methods.operations import DESCEND, NOISE_COLUMN, READ, WIDTH
from heatbath.torch.optim.sharding import ElementRun, Shard, add_over_processes, runs_of
from heatbath.torch.optim.state import NOT_READ, StepTensors
from heatbath.torch.optim.step_program import StepPass, StepProgram, Table

TENSOR_TYPES = {Tensor, torch.nn.Parameter}  # whose numbers lie at `data_ptr`; others may wrap tensors
PIECES_FOR_THREADS = 8  # with up to this many pieces a second thread does not pay
KEPT_CODES = 64  # of words that change from step to step; with more, all are forgotten
ONE_THREAD = 0, 1  # no region of torch's threads, and one thread
NO_PIECES = 0, 0  # first piece and stop of a call that does what follows a pass, and nothing else

CodeKey = tuple[int, tuple[StepProgram, ...], tuple[int, ...]]  # stage, programs, program of each unit
Empty = NDArray[np.floating[Any]]  # an empty array of the tensors' type, by which code is compiled for it
EXAMPLES: dict[torch.dtype, Empty] = {torch.float32: np.empty(0, np.float32), torch.float64: np.empty(0)}


def can_be_compiled(unit: StepTensors, dtype: torch.dtype) -> bool:
    """Return whether compiled code can step a unit in place, and all of its tensors are of this type."""
    if dtype not in EXAMPLES:
        return False
    for tensors in (unit.theta, unit.p, unit.gradients, unit.second):
        for tensor, theta in zip(tensors, unit.theta, strict=False):  # `second` may be empty
            if (
                tensor.dtype is not dtype
                or tensor.shape != theta.shape
                or not tensor.is_cpu
                or type(tensor) not in TENSOR_TYPES
                or not tensor.is_contiguous()
                or tensor.is_neg()  # its numbers stand for their negatives
            ):
                return False
    return True


class StageCode(NamedTuple):
    """The operations of several programs in one array, and which of them each pass applies to each unit."""

    segments: NDArray[np.int64]  # (passes, units, 3): first operation, stop, and the end of those on ξ
    operations: NDArray[np.int64]  # (operations, 3): kind, stream and slot of the noise, step it belongs to


class KernelArguments(NamedTuple):
    """The arguments of `fused_step` that are the same in all calls of a stage, in its order."""

    tensors: NDArray[np.int64]  # a row of addresses and numbers for each tensor
    work: Work
    sums: NDArray[np.float64]  # room for p·p of every piece
    states: NDArray[np.float64]  # of each unit: p·p (-1 where it was not read), ξ, root of the temperature
    seed: np.uint64


class TensorRow(NamedTuple):
    """A tensor, or a run of its elements, for compiled code: the columns in `engine.tensor_step`."""

    theta: int  # addresses, 0 for what there is not
    p: int
    gradient: int
    second: int
    first_element: int  # in the numbering of the noise
    unit: int
    table_row: int
    step: int
    chain_number: int


class TablesOfUnits(NamedTuple):
    """The different tables of units with their programs, and for each unit the position of its own."""

    tables: list[Table]
    programs: list[StepProgram]
    owners: list[int]


@dataclass
class CompiledStep:
    """Runs stages of a step in compiled code, and keeps what is the same for the same programs."""

    codes: dict[CodeKey, StageCode] = field(default_factory=dict)

    def run(self, units: list[StepTensors], stage: int) -> None:
        """Run all passes of a stage in compiled code: θ and p are changed in place, and ξ and p·p of units.

        Parameters
        ----------
        units : list of StepTensors
            Tensors of one type, seed and step, which `can_be_compiled` has accepted.
        stage : int
            Position of the stage in the programs of the units.
        """
        tables, programs, owners = _tables_of_units(units)
        code = self._code(tuple(programs), tuple(owners), stage)
        if not len(code.segments):
            return

        table = tables[0] if len(tables) == 1 else np.concatenate(tables, axis=1)
        arguments = _kernel_arguments(units, code, table)
        example = EXAMPLES[units[0].theta[0].dtype]
        if any([unit.sharded for unit in units]):
            _run_sharded(units, example, arguments)
        else:
            _run_complete(example, arguments)

        for unit, (kinetic, xi, _) in zip(units, arguments.states.tolist(), strict=True):
            unit.xi = xi
            if kinetic != NOT_READ:
                unit.kinetic = kinetic

    def _code(self, programs: tuple[StepProgram, ...], owners: tuple[int, ...], stage: int) -> StageCode:
        """Return the code of a stage, which is kept for later steps.

        Parameters
        ----------
        programs : tuple of StepProgram
            The different programs of the units, whose operations are put one after the other.
        owners : tuple of int
            For each unit the position of its program.
        stage : int
            Position of the stage in the programs.
        """
        key = stage, programs, owners
        if key in self.codes:
            return self.codes[key]

        passes_of_programs = [program.passes(stage) for program in programs]
        pass_count = max(map(len, passes_of_programs))
        operation_counts = [len(program.encoded) for program in programs]
        first_operations = np.cumsum([0, *operation_counts])
        segments = np.zeros((pass_count, len(owners), len(StepPass._fields)), np.int64)
        for unit, owner in enumerate(owners):
            for k, step_pass in enumerate(passes_of_programs[owner]):
                segments[k, unit] = np.add(step_pass, first_operations[owner])

        if len(self.codes) > KEPT_CODES:
            self.codes.clear()
        operations = np.concatenate([program.encoded for program in programs])
        self.codes[key] = StageCode(segments, operations)
        return self.codes[key]


def _tables_of_units(units: list[StepTensors]) -> TablesOfUnits:
    """Return each table of the units once, with its program, as several chains may share them."""
    unique = TablesOfUnits([], [], [])
    positions: dict[int, int] = {}  # by the id of a table
    for unit in units:
        position = positions.setdefault(id(unit.table), len(positions))
        unique.owners.append(position)
        if position == len(unique.tables):
            unique.tables.append(unit.table)
            unique.programs.append(unit.program)
    return unique


def _kernel_arguments(units: list[StepTensors], code: StageCode, table: Table) -> KernelArguments:
    """Describe units, the code of a stage and its coefficients to compiled code."""
    rows, spans = _tensor_rows(units)
    pieces = _cut_into_pieces(tuple(spans))
    sizes = np.array([unit.size for unit in units], np.int64)
    return KernelArguments(
        tensors=np.array(rows, np.int64).reshape(-1, CHAIN + 1),
        work=Work(pieces, code.segments, code.operations, table, sizes),
        sums=np.empty(len(pieces)),
        states=np.array([(NOT_READ, unit.xi, unit.root_tau) for unit in units]),
        seed=np.uint64(units[0].seed),
    )


@lru_cache(maxsize=64)
def _cut_into_pieces(spans: tuple[tuple[int, int], ...]) -> NDArray[np.int64]:
    """Cut tensors into pieces for threads, at multiples of PIECE in the numbering of the noise.

    Parameters
    ----------
    spans : tuple of (int, int)
        The first element and the size of each tensor.

    Returns
    -------
    array, (pieces, 3)
        Index of the tensor, first element and stop of each piece.
    """
    pieces = []
    for tensor, (first, size) in enumerate(spans):
        first_cut = (first // PIECE + 1) * PIECE
        stop = first + size
        edges = [first, *range(first_cut, stop, PIECE), stop]
        pieces += [(tensor, low, high) for low, high in pairwise(edges)]
    return np.array(pieces, np.int64).reshape(-1, 3)


def _choose_threads(pieces: NDArray[np.int64]) -> tuple[int, int]:
    """Return a region of torch's threads, or 0 where there is none, and the number of threads to use."""
    if len(pieces) <= PIECES_FOR_THREADS:
        return ONE_THREAD
    threads = thread_count(default=torch.get_num_threads())
    if threads == 1:
        return ONE_THREAD
    return parallel_region(), threads


def _run_complete(example: Empty, arguments: KernelArguments) -> None:
    """Run all passes of a stage on tensors that are whole in this process, in place.

    That is one call on torch's own threads, with which others would compete. Where these are not available,
    it is two calls for each pass: pieces are spread over our own threads, then ξ is stepped once. The calls
    name a region and its threads, pieces, passes, and whether ξ is stepped after a pass.

    Parameters
    ----------
    example : array
        An empty array of the tensors' type.
    arguments : KernelArguments
        What is to be stepped.
    """
    work = arguments.work
    pieces, passes = len(work.pieces), len(work.segments)
    region, threads = _choose_threads(work.pieces)
    if threads == 1 or region:
        fused_step(example, (region, threads), (0, pieces), (0, passes), True, *arguments)
        return

    for k in range(passes):
        spread(partial(_run_pieces, example, arguments, k), pieces, threads, even=True)
        fused_step(example, ONE_THREAD, NO_PIECES, (k, k + 1), True, *arguments)


def _run_pieces(example: Empty, arguments: KernelArguments, k: int, first: int, stop: int) -> None:
    """Run pass `k` on pieces `first` to stop - 1 in one thread; for the others see `_run_complete`."""
    fused_step(example, ONE_THREAD, (first, stop), (k, k + 1), False, *arguments)


ONE_PASS = np.array([[(0, 1, 1)]], np.int64)  # of one operation on one unit
NOISE_ONLY = np.zeros((1, 1, WIDTH))  # coefficients of DESCEND with which it adds noise and nothing else
NOISE_ONLY[0, 0, NOISE_COLUMN[DESCEND]] = 1.0


def draw_normals_on_cpu(
    like: Sequence[Tensor],
    seed: int,
    step: int,
    stream_slot: int,
    first: Sequence[int],
    chain: int,
    shards: Sequence[Shard | None],
) -> list[Tensor]:
    """Draw the standard normal numbers that compiled code would draw for CPU tensors.

    They are drawn by a step whose only operation adds noise to zeros.

    Parameters
    ----------
    like : sequence of Tensor
        CPU tensors (of one chain) with the shapes that are needed.
    seed, step, stream_slot, chain : int
        Address of the noise: seed, number of the step, its stream and slot in a step, number of the chain.
    first : sequence of int
        Positions of the tensors' first elements in the numbering of the noise.
    shards : sequence of Shard or None
        Which elements of the whole parameters the tensors have, None for all.

    Returns
    -------
    list of Tensor
        Contiguous tensors, in float64 for tensors of that type and in float32 for all others.
    """
    drawn = []
    for tensor in like:
        dtype = torch.float64 if tensor.dtype == torch.float64 else torch.float32
        drawn.append(torch.zeros(tensor.shape, dtype=dtype))

    for dtype, example in EXAMPLES.items():
        rows: list[TensorRow] = []
        spans: list[tuple[int, int]] = []
        for numbers, first_of_whole, shard in zip(drawn, first, shards, strict=True):
            if numbers.dtype != dtype:
                continue
            for run in runs_of(shard, numbers.numel()):
                address = numbers.data_ptr() + run.first_in_block * numbers.element_size()
                first_element = first_of_whole + run.first_in_whole
                rows.append(TensorRow(address, address, address, 0, first_element, 0, 0, step, chain))
                spans.append((first_element, run.length))
        if rows:
            _add_normals(example, rows, spans, seed, stream_slot)
    return drawn


def _add_normals(
    example: Empty, rows: list[TensorRow], spans: list[tuple[int, int]], seed: int, stream_slot: int
) -> None:
    """Add standard normal numbers to tensors of one type, in place.

    Parameters
    ----------
    example : array
        An empty array of the tensors' type.
    rows, spans
        The tensors, as `_tensor_rows` describes them.
    seed, stream_slot : int
        Seed of the noise, and its stream and slot in a step.
    """
    pieces = _cut_into_pieces(tuple(spans))
    operations = np.array([(DESCEND, stream_slot, 0)], np.int64)
    arguments = KernelArguments(
        tensors=np.array(rows, np.int64),
        work=Work(pieces, ONE_PASS, operations, NOISE_ONLY, np.ones(1, np.int64)),
        sums=np.empty(len(pieces)),
        states=np.array([(NOT_READ, 0.0, 1.0)]),
        seed=np.uint64(seed),
    )
    _run_complete(example, arguments)


def _tensor_rows(units: list[StepTensors]) -> tuple[list[TensorRow], list[tuple[int, int]]]:
    """Describe tensors to compiled code.

    A sharded tensor has a row for each of its runs of elements, a stacked one only the elements of a chain.

    Returns
    -------
    rows : list of TensorRow
        What compiled code is to know of each.
    spans : list of (int, int)
        First element and size of each row, as `_cut_into_pieces` takes them.
    """
    rows = []
    spans = []
    for unit_index, unit in enumerate(units):
        for i, theta in enumerate(unit.theta):
            shard = unit.shards[i]
            size_of_chain = theta.numel() // unit.chain_count
            whole_chain = ElementRun(unit.chain * size_of_chain, 0, size_of_chain)
            runs = [whole_chain] if shard is None else shard.runs
            for run in runs:
                shift = run.first_in_block * theta.element_size()
                first_element = unit.first_elements[i] + run.first_in_whole
                second_address = 0
                if unit.second:
                    second_address = unit.second[i].data_ptr() + shift
                row = TensorRow(
                    theta.data_ptr() + shift,
                    unit.p[i].data_ptr() + shift,
                    unit.gradients[i].data_ptr() + shift,
                    second_address,
                    first_element,
                    unit_index,
                    unit.rows[i],
                    unit.steps[i],
                    unit.chain_number,
                )
                rows.append(row)
                spans.append((first_element, run.length))
    return rows, spans


def _run_sharded(units: list[StepTensors], example: Empty, arguments: KernelArguments) -> None:
    """Run all passes of a stage on tensors of which some are sharded over processes, in place.

    After each pass p·p is added up over the processes, once for all units. Then the operations on ξ, which
    follow the pass, are run with one empty tensor for each unit. The calls of compiled code name a region and
    its threads, pieces, passes, and whether ξ is stepped after a pass.

    Parameters
    ----------
    units : list of StepTensors
        The tensors to which the rows of `arguments.tensors` belong.
    example : array
        An empty array of the tensors' type.
    arguments : KernelArguments
        What is to be stepped.
    """
    work = arguments.work
    region, threads = _choose_threads(work.pieces)
    team = (region, threads) if region else ONE_THREAD
    arguments_of_xi = _without_elements(units, arguments)
    shards = [shard for unit in units for shard in unit.shards]
    unit_of_piece = arguments.tensors[work.pieces[:, 0], UNIT]
    is_partial = _is_partial(shards)[work.pieces[:, 0]]

    for k, segments in enumerate(work.segments):
        if len(work.pieces):
            fused_step(example, team, (0, len(work.pieces)), (k, k + 1), False, *arguments)

        is_read = np.array([READ in work.operations[first:stop, 0] for first, stop, _ in segments])
        squares = np.where(is_read[unit_of_piece], arguments.sums, 0.0)
        sums_of_squares = np.zeros((2, len(units)))  # p·p of tensors that are complete here, and of others
        np.add.at(sums_of_squares, (is_partial, unit_of_piece), squares)
        if is_read.any():
            add_over_processes(torch.from_numpy(sums_of_squares[1]), shards)

        kinetic = np.where(is_read, sums_of_squares.sum(axis=0), NOT_READ)
        arguments_of_xi = arguments_of_xi._replace(sums=kinetic)
        fused_step(example, ONE_THREAD, NO_PIECES, (k, k + 1), True, *arguments_of_xi)


def _without_elements(units: list[StepTensors], arguments: KernelArguments) -> KernelArguments:
    """Return arguments with one empty tensor and one empty piece for each unit, for operations on ξ alone."""
    tensors = []
    pieces = []
    for i, unit in enumerate(units):
        first = unit.first_elements[0]
        tensors.append(TensorRow(0, 0, 0, 0, first, i, max(unit.rows), unit.steps[0], unit.chain_number))
        pieces.append((i, first, first))
    work = arguments.work._replace(pieces=np.array(pieces, np.int64))
    return arguments._replace(tensors=np.array(tensors, np.int64), work=work)


def _is_partial(shards: list[Shard | None]) -> NDArray[np.int64]:
    """Return for each row of tensors 1 if other processes have further elements of the tensor, else 0."""
    is_partial = [shard is not None and bool(shard.groups) for shard in shards]
    row_counts = [1 if shard is None else len(shard.runs) for shard in shards]
    return np.repeat(np.array(is_partial, np.int64), row_counts)
