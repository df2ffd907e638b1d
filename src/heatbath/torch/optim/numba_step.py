"""A step in the engine's compiled code: CPU tensors in float32 or float64, in place, on torch's threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heatbath.engine.openmp import parallel_region
from heatbath.engine.tensor_step import CHAIN, PIECE, UNIT, Work, fused_step
from heatbath.engine.threads import spread, thread_count
from heatbath.methods.operations import DESCEND, NOISE_COLUMN, READ, WIDTH
from heatbath.torch.optim.sharding import Shard, add_up
from heatbath.torch.optim.state import StepTensors
from heatbath.torch.optim.step_program import Recipe

KINDS = {Tensor, torch.nn.Parameter}  # whose numbers are where `data_ptr` says
SERIAL = 8  # pieces that are not worth a second thread
LIKE = {torch.float32: np.empty(0, np.float32), torch.float64: np.empty(0, np.float64)}


def can_be_fused(tensor: Tensor, kind: torch.dtype) -> bool:
    """Whether compiled code can step a tensor where it is, as one of this type."""
    return (
        tensor.dtype is kind
        and kind in LIKE
        and tensor.is_cpu
        and type(tensor) in KINDS
        and tensor.is_contiguous()
        and not tensor.is_neg()  # whose numbers stand for others
    )


@dataclass
class Fused:
    """What compiled code needs for the same units as last time, so that it is made once."""

    codes: dict[Any, tuple[NDArray[np.int64], NDArray[np.int64]]] = field(default_factory=dict)

    def run(self, units: list[StepTensors], stage: int) -> None:
        """All passes of a stage, for units whose tensors have one type."""
        if not units:
            return
        tables: dict[int, StepTensors] = {}  # chains share one
        for unit in units:
            tables.setdefault(id(unit.table), unit)
        places = {key: place for place, key in enumerate(tables)}
        whose = tuple(places[id(unit.table)] for unit in units)
        segments, operations = self._code(tuple(unit.recipe for unit in tables.values()), whose, stage)
        if not len(segments):
            return
        rows, spans = _rows(units)
        pieces = _pieces(tuple(spans))
        tensors = np.array(rows, np.int64).reshape(-1, CHAIN + 1)
        sizes = np.array([unit.size for unit in units], np.int64)
        distinct = [unit.table for unit in tables.values()]
        table = distinct[0] if len(distinct) == 1 else np.concatenate(distinct, axis=1)
        work = Work(pieces, segments, operations, table, sizes)
        state = np.array([(-1.0, unit.xi, unit.root_tau) for unit in units])
        like, seed = LIKE[units[0].theta[0].dtype], np.uint64(units[0].seed)
        arguments = tensors, work, np.empty(len(pieces)), state, seed
        if any(unit.sharded for unit in units):
            region, threads = _team(pieces)
            _run_sharded(units, like, (region, threads if region else 1), arguments)
        else:
            _run_whole(like, arguments)
        for unit, (kinetic, xi, _) in zip(units, state.tolist(), strict=True):
            unit.xi = xi
            unit.kinetic = unit.kinetic if kinetic < 0 else kinetic

    def _code(
        self, recipes: tuple[Recipe, ...], whose: tuple[int, ...], stage: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The operations of recipes one after the other, and those of each pass and unit; `whose` says which
        recipe each unit has."""
        key = stage, recipes, whose
        if key not in self.codes:
            passes = [r.stages[stage].passes if stage < len(r.stages) else () for r in recipes]
            segments = np.zeros((max(map(len, passes)), len(whose), 3), np.int64)
            shifts = np.cumsum([0, *(len(recipe.encoded) for recipe in recipes)])
            for u, place in enumerate(whose):
                for k, one in enumerate(passes[place]):
                    segments[k, u] = one
                    segments[k, u] += shifts[place]
            if len(self.codes) > 64:  # words that change would fill it
                self.codes.clear()
            self.codes[key] = segments, np.concatenate([recipe.encoded for recipe in recipes])
        return self.codes[key]


@lru_cache(maxsize=64)
def _pieces(tensors: tuple[tuple[int, int], ...]) -> NDArray[np.int64]:
    """Tensors cut at multiples of PIECE in the numbering of the noise."""
    cuts = []
    for tensor, (first, size) in enumerate(tensors):
        edges = [first, *range((first // PIECE + 1) * PIECE, first + size, PIECE), first + size]
        cuts += [(tensor, low, high) for low, high in pairwise(edges)]
    return np.array(cuts, np.int64).reshape(-1, 3)


def _team(pieces: NDArray[np.int64]) -> tuple[int, int]:
    """A region of torch's threads, or 0, and how many threads there are to be."""
    threads = 1 if len(pieces) <= SERIAL else thread_count(default=torch.get_num_threads())
    return parallel_region() if threads > 1 else 0, threads


def _run_whole(like: Any, arguments: Any) -> None:
    """All passes, in one call or on threads of our own."""
    work = arguments[1]
    pieces, passes = len(work.pieces), len(work.segments)
    region, threads = _team(work.pieces)
    if threads == 1 or region:  # torch's own threads, which would be in the way of others
        fused_step(like, (region, threads), (0, pieces), (0, passes), True, *arguments)
        return
    for k in range(passes):

        def part(begin: int, end: int, k: int = k) -> None:
            fused_step(like, (0, 1), (begin, end), (k, k + 1), False, *arguments)

        spread(part, pieces, threads, even=True)
        fused_step(like, (0, 1), (0, 0), (k, k + 1), True, *arguments)


ONE_PASS = np.array([[(0, 1, 1)]], np.int64)
NOTHING_ELSE = np.zeros((1, 1, WIDTH))
NOTHING_ELSE[0, 0, NOISE_COLUMN[DESCEND]] = 1.0


def normals(
    like: Sequence[Tensor], seed: int, step: int, use: int, first: Sequence[int], chain: int,
    shards: Sequence[Shard | None],
) -> list[Tensor]:  # fmt: skip
    """The numbers that compiled code draws for CPU tensors, in float64 for those and in float32 for others,
    contiguous: what a step that has nothing but noise makes of 0."""
    kinds = [torch.float64 if tensor.dtype == torch.float64 else torch.float32 for tensor in like]
    drawn = [torch.zeros(t.shape, dtype=kind) for t, kind in zip(like, kinds, strict=True)]
    for kind in set(kinds):
        rows, spans = [], []
        for numbers, start, shard in zip(drawn, first, shards, strict=True):
            if numbers.dtype != kind:
                continue
            for here, place, length in [(0, 0, numbers.numel())] if shard is None else shard.runs:
                address = numbers.data_ptr() + here * numbers.element_size()
                rows.append((address, address, address, 0, start + place, 0, 0, step, chain))
                spans.append((start + place, length))
        pieces = _pieces(tuple(spans))
        if not len(pieces):
            continue
        operations = np.array([(DESCEND, use, 0)], np.int64)
        work = Work(pieces, ONE_PASS, operations, NOTHING_ELSE, np.ones(1, np.int64))
        state = np.array([(-1.0, 0.0, 1.0)])
        _run_whole(
            LIKE[kind], (np.array(rows, np.int64), work, np.empty(len(pieces)), state, np.uint64(seed))
        )
    return drawn


def _rows(units: list[StepTensors]) -> tuple[list[tuple[int, ...]], list[tuple[int, int]]]:
    """The tensors of units as compiled code takes them, and the first element and the size of each; of one
    that is sharded, the runs of elements that are here."""
    rows: list[tuple[int, ...]] = []
    spans = []
    for u, unit in enumerate(units):
        for i, theta in enumerate(unit.theta):
            memory = [theta.data_ptr(), unit.p[i].data_ptr(), unit.gradient[i].data_ptr()]
            memory.append(unit.second[i].data_ptr() if unit.second else 0)
            first, kind = unit.first[i], (u, unit.rows[i], unit.steps[i], unit.number)
            shard, size = unit.shards[i], theta.numel() // unit.chains
            runs = [(unit.place * size, 0, size)] if shard is None else shard.runs
            for here, place, length in runs:
                moved = [address and address + here * theta.element_size() for address in memory]
                rows.append((*moved, first + place, *kind))
                spans.append((first + place, length))
    return rows, spans


def _run_sharded(units: list[StepTensors], like: Any, team: tuple[int, int], arguments: Any) -> None:
    """Passes after each of which p·p is added up over the processes, once for all units."""
    tensors, work, sums, state, seed = arguments
    marks = np.array(
        [(0, 0, 0, 0, u.first[0], i, max(u.rows), u.steps[0], u.number) for i, u in enumerate(units)],
        np.int64,
    )
    whole = work._replace(
        pieces=np.array([(i, u.first[0], u.first[0]) for i, u in enumerate(units)], np.int64)
    )
    owner = tensors[work.pieces[:, 0], UNIT]
    shards = [shard for unit in units for shard in unit.shards]
    apart = [s is not None and bool(s.groups) for s in shards for _ in ((0,) if s is None else s.runs)]
    kind = np.array(apart, np.int64)[work.pieces[:, 0]]
    for k, segments in enumerate(work.segments):
        if len(work.pieces):
            fused_step(like, team, (0, len(work.pieces)), (k, k + 1), False, *arguments)
        reads = np.array([READ in work.operations[first:stop, 0] for first, stop, _ in segments])
        totals = np.zeros((2, len(units)))
        np.add.at(totals, (kind, owner), np.where(reads[owner], sums, 0.0))
        if reads.any():
            add_up(torch.from_numpy(totals[1]), shards)
        total = np.where(reads, totals.sum(axis=0), -1.0)
        fused_step(like, (0, 1), (0, 0), (k, k + 1), True, marks, whole, total, state, seed)
