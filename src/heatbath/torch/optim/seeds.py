"""Seeds where none was given: another for every optimiser, the same in all processes that train one model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from heatbath.torch.optim.state import is_lazy

Groups = list[dict[str, Any]]

ROUNDING = 1e-6  # relative, of sums over equal parameters: machines may add in another order

_counts: dict[int, Iterator[int]] = {}
_steppers: dict[tuple[int, int], Iterator[int]] = {}  # optimisers that were stepped, by seed and chain


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
        mine = [group["seed"] for group in groups], _outlines(parameters)
        everyone: list[Any] = [None] * processes()
        dist.all_gather_object(everyone, mine)
        if other := [rank for rank, (_, outlines) in enumerate(everyone) if not _alike(outlines, mine[1])]:
            raise RuntimeError(_told(f"process {other[0]}"))
        for group, seed in zip(groups, everyone[0][0], strict=True):
            group["seed"] = group["seed"] if group["agreed"] else seed
    for group in groups:
        group["agreed"] = True


def compare(groups: Groups, members: list[list[Tensor]]) -> None:
    """Refuse seeds that were given, and that another process has for other parameters.

    What the first process has that comes here stands in the store of the process group, so that nobody waits
    for others, who may train something else. Of several optimisers with one seed each is compared with those
    that were stepped as the first, second, ... in their processes.
    """
    store = _store()
    if store is None:
        return
    for seed, chain in dict.fromkeys((group["seed"], group["chain"]) for group in groups):
        own = [p for g, ps in zip(groups, members, strict=True) if g["seed"] == seed for p in ps]
        number = next(_steppers.setdefault((seed, chain), count()))
        mine = json.dumps([dist.get_rank(), _outlines(own)])
        there = store.compare_set(f"heatbath/{seed}/{chain}/{number}", "", mine).decode()
        rank, outlines = json.loads(there)
        if not _alike(outlines, json.loads(mine)[1]):
            raise RuntimeError(_told(f"process {rank}, with the same seed={seed}"))


def _store() -> Any:
    """What all processes can read and write; None where there is one of them, or no such thing."""
    if processes() == 1:
        return None
    from torch.distributed import distributed_c10d

    try:
        return distributed_c10d._get_default_store()
    except (AttributeError, ValueError):  # the backend has none
        return None


def _told(other: str) -> str:
    return (
        f"process {dist.get_rank()} has other parameters than {other}, and both would draw the same noise: "
        "where each trains a model of its own, or other layers of one, give each a seed of its own, such as "
        "seed=rank; a model that is sharded must be whole in every process (DistributedDataParallel)"
    )


def _outlines(parameters: list[Tensor]) -> list[Any]:
    return list(map(_outline, parameters))


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
        tuple(a[0]) == tuple(b[0]) and not abs(a[1] - b[1]) > ROUNDING * max(a[2], b[2])
        for a, b in zip(some, others, strict=True)
    )
