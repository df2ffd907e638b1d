"""A step in the engine's compiled code: CPU tensors in float32 or float64, in place, on torch's threads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heatbath.engine.openmp import parallel_region
from heatbath.engine.tensors import PIECE, Work, fused_step
from heatbath.engine.threads import spread, thread_count
from heatbath.torch.recipes import Recipe
from heatbath.torch.units import Unit

SERIAL = 8  # pieces that are not worth a second thread
LIKE = {torch.float32: np.empty(0, np.float32), torch.float64: np.empty(0, np.float64)}


def can_be_fused(tensor: Tensor, kind: torch.dtype) -> bool:
    """Whether compiled code can step a tensor where it is, as one of this type."""
    return (
        tensor.dtype == kind
        and kind in LIKE
        and tensor.device.type == "cpu"
        and type(tensor) in (Tensor, torch.nn.Parameter)
        and tensor.is_contiguous()
    )


@dataclass
class Fused:
    """What compiled code needs for the same units as last time, so that it is made once."""

    pieces: dict[Any, tuple[NDArray[np.int64], NDArray[np.int64]]] = field(default_factory=dict)
    codes: dict[Any, tuple[NDArray[np.int64], NDArray[np.int64]]] = field(default_factory=dict)

    def run(self, units: list[Unit], stage: int) -> None:
        """All passes of a stage, for units whose tensors have one type."""
        if not units:
            return
        segments, operations = self._code(tuple(unit.recipe for unit in units), stage)
        if not len(segments):
            return
        pieces, sizes = self._pieces(
            [[(f, t.numel()) for f, t in zip(u.first, u.theta, strict=True)] for u in units]
        )
        tensors = np.array([row for u, unit in enumerate(units) for row in _rows(u, unit)], np.int64)
        tables = [unit.table for unit in units]
        table = tables[0] if len(tables) == 1 else np.concatenate(tables, axis=1)
        work = Work(pieces, segments, operations, table, sizes)
        sums = np.empty(len(pieces))
        state = np.array([(-1.0, unit.xi, unit.root_tau) for unit in units])
        like, seed = LIKE[units[0].theta[0].dtype], np.uint64(units[0].seed)
        arguments = tensors, work, sums, state, seed
        threads = 1 if len(pieces) <= SERIAL else thread_count(default=torch.get_num_threads())
        region = parallel_region() if threads > 1 else 0
        if threads == 1 or region:  # torch's own threads, which would be in the way of others
            everything = (0, len(pieces)), (0, len(segments))
            fused_step(like, (region, threads), *everything, True, *arguments)
        else:
            for k in range(len(segments)):

                def part(begin: int, end: int, k: int = k) -> None:
                    fused_step(like, (0, 1), (begin, end), (k, k + 1), False, *arguments)

                spread(part, len(pieces), threads, even=True)
                fused_step(like, (0, 1), (0, 0), (k, k + 1), True, *arguments)
        for unit, (kinetic, xi, _) in zip(units, state.tolist(), strict=True):
            unit.xi = xi
            unit.kinetic = unit.kinetic if kinetic < 0 else kinetic

    def _code(self, recipes: tuple[Recipe, ...], stage: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The operations of all units one after the other, and those of each pass and unit."""
        key = stage, recipes
        if key not in self.codes:
            passes = [r.stages[stage].passes if stage < len(r.stages) else () for r in recipes]
            segments = np.zeros((max(map(len, passes)), len(recipes), 3), np.int64)
            shift = 0
            for u, (recipe, passes_of_unit) in enumerate(zip(recipes, passes, strict=True)):
                for k, one in enumerate(passes_of_unit):
                    segments[k, u] = one
                    segments[k, u] += shift
                shift += len(recipe.encoded)
            if len(self.codes) > 64:  # words that change would fill it
                self.codes.clear()
            self.codes[key] = segments, np.concatenate([recipe.encoded for recipe in recipes])
        return self.codes[key]

    def _pieces(self, units: list[list[tuple[int, int]]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Tensors cut at multiples of PIECE in the numbering of the noise, and the sizes of the units."""
        key = tuple(map(tuple, units))
        if key not in self.pieces:
            cuts = []
            tensor = 0
            for unit in units:
                for first, size in unit:
                    edges = [first, *range((first // PIECE + 1) * PIECE, first + size, PIECE), first + size]
                    cuts += [(tensor, low, high) for low, high in pairwise(edges)]
                    tensor += 1
            if len(self.pieces) > 16:
                self.pieces.clear()
            sizes = np.array([sum(size for _, size in unit) for unit in units], np.int64)
            self.pieces[key] = np.array(cuts, np.int64).reshape(-1, 3), sizes
        return self.pieces[key]


def _rows(u: int, unit: Unit) -> Iterator[tuple[int, ...]]:
    """The tensors of a unit as compiled code takes them."""
    for i, theta in enumerate(unit.theta):
        yield (
            theta.data_ptr(), unit.p[i].data_ptr(), unit.gradient[i].data_ptr(),
            unit.second[i].data_ptr() if unit.second else 0,
            unit.first[i], u, unit.rows[i], unit.steps[i],
        )  # fmt: skip
