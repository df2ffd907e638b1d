"""Seeds where none was given: another for every optimiser, the same in all processes that train one model."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from heatbath.torch.units import is_lazy

Groups = list[dict[str, Any]]

ROUNDING = 1e-6  # relative, of sums over equal parameters: machines may add in another order

_counts: dict[int, Iterator[int]] = {}


def made() -> int:
    """A seed made of that of torch's generator, which is read and not drawn from, and of how many optimisers
    have been made with it before in this process."""
    start = torch.initial_seed()
    number = next(_counts.setdefault(start, count()))
    address = hashlib.sha256(f"{start} {number}".encode()).digest()
    return int.from_bytes(address[:8], "little") % 2**63


@contextmanager
def counted_anew() -> Iterator[None]:
    """Within, optimisers are counted from 0; afterwards as if none had been made."""
    kept = dict(_counts)
    _counts.clear()
    try:
        yield
    finally:
        _counts.clear()
        _counts.update(kept)


def processes() -> int:
    """How many there are in the group of this process; 1 where there is no group."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def agree(groups: Groups, parameters: list[Tensor]) -> None:
    """Take the seeds of the first process for groups whose seed was made here.

    All processes must come here, and have the same parameters: of equal noise for different ones nobody would
    notice anything.
    """
    if processes() > 1:
        mine = [group["seed"] for group in groups], list(map(_outline, parameters))
        everyone: list[Any] = [None] * processes()
        dist.all_gather_object(everyone, mine)
        if other := [rank for rank, (_, outlines) in enumerate(everyone) if not _alike(outlines, mine[1])]:
            raise RuntimeError(
                f"process {dist.get_rank()} has other parameters than process {other[0]}, and both would "
                "draw the same noise: where each trains a model of its own, or other layers of one, give "
                "each a seed of its own, such as seed=rank; a model that is sharded must be whole in every "
                "process (DistributedDataParallel)"
            )
        for group, seed in zip(groups, everyone[0][0], strict=True):
            group["seed"] = group["seed"] if group["agreed"] else seed
    for group in groups:
        group["agreed"] = True


def _outline(parameter: Tensor) -> tuple[tuple[int, ...], float, float]:
    """What tells different parameters apart: the shape, the sum, and the sum of sizes."""
    if is_lazy(parameter) or parameter.is_meta:
        return (), 0.0, 0.0
    if hasattr(parameter, "placements"):  # which knows what part of the whole it is
        return tuple(parameter.shape), 0.0, 0.0
    values = parameter.detach().double()
    return tuple(parameter.shape), float(values.sum()), float(values.abs().sum())


def _alike(some: list[Any], others: list[Any]) -> bool:
    return len(some) == len(others) and all(
        a[0] == b[0] and not abs(a[1] - b[1]) > ROUNDING * max(a[2], b[2])
        for a, b in zip(some, others, strict=True)
    )
