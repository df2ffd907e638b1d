"""Seeds for optimisers that were given none: different for each, the same in all processes of one model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count, starmap
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from heatbath.torch.optim.param_groups import ParamGroup
from heatbath.torch.optim.state import is_lazy

SEED_BYTES = 8  # of a hash, for a seed
SEED_STOP = 2**63  # seeds made here are below it, as int64 has them
ROUNDING = 1e-6  # relative, of sums over equal parameters: machines may add in another order

_counts: dict[int, Iterator[int]] = {}  # of optimisers that were made, by torch's seed
_step_counts: dict[tuple[int, int], Iterator[int]] = {}  # of optimisers that were stepped, by seed and chain


class ParameterFingerprint(NamedTuple):
    """What tells different parameters apart."""

    shape: tuple[int, ...]
    total: float
    total_of_sizes: float


def new_seed() -> int:
    """Return a seed for a new optimiser, different for each one in this process.

    It is made of the seed of torch's generator, which is read and not drawn from, and of the number of
    optimisers made with that seed before.
    """
    torch_seed = torch.initial_seed()
    number = next(_counts.setdefault(torch_seed, count()))
    address = hashlib.sha256(f"{torch_seed} {number}".encode()).digest()
    return int.from_bytes(address[:SEED_BYTES], "little") % SEED_STOP


@contextmanager
def counted_anew() -> Iterator[None]:
    """Count optimisers from 0 within the context; afterwards as if none had been made within."""
    kept = dict(_counts)
    _counts.clear()
    try:
        yield
    finally:
        _counts.clear()
        _counts.update(kept)


def process_count() -> int:
    """Return the number of processes in the process group; 1 without a group."""
    if not dist.is_available() or not dist.is_initialized():
        return 1
    return dist.get_world_size()


def agree(groups: Sequence[ParamGroup], parameters: list[Tensor]) -> None:
    """Set seeds that no user has chosen to those of the first process, in place, and mark all as agreed.

    All processes must call this together.

    Parameters
    ----------
    groups : sequence of ParamGroup
        Groups of an optimiser; those with "agreed" keep their seed.
    parameters : list of Tensor
        Their parameters, in all processes.

    Raises
    ------
    RuntimeError
        If another process has other parameters: nobody would notice that both have the same noise.
    """
    seeds = [group["seed"] for group in groups]
    if process_count() > 1:
        seeds = _seeds_of_first_process(seeds, parameters)
    for group, seed in zip(groups, seeds, strict=True):
        if not group["agreed"]:
            group["seed"] = seed
            group["agreed"] = True


def _seeds_of_first_process(seeds: list[int], parameters: list[Tensor]) -> list[int]:
    """Return the seeds that the first process calls this with; refuse processes with other parameters."""
    fingerprints = list(map(_fingerprint, parameters))
    seeds_and_fingerprints: list[Any] = [None] * process_count()  # of each process
    dist.all_gather_object(seeds_and_fingerprints, (seeds, fingerprints))
    for rank, (_, fingerprints_of_rank) in enumerate(seeds_and_fingerprints):
        if not _are_alike(fingerprints_of_rank, fingerprints):
            raise RuntimeError(_describe_conflict(f"process {rank}"))
    seeds_of_first: list[int] = seeds_and_fingerprints[0][0]
    return seeds_of_first


def compare(groups: Sequence[ParamGroup], members: list[list[Tensor]]) -> None:
    """Refuse seeds that a user has chosen if another process uses them for other parameters.

    The first process that calls this writes its parameters' fingerprints to the store of the process group,
    so that no process waits for the rest, which may train something else. The n-th optimiser with a seed that
    is stepped in a process is compared with the n-th of the other processes.

    Parameters
    ----------
    groups : sequence of ParamGroup
        Groups of an optimiser before its first step.
    members : list of lists of Tensor
        Their parameters, in all processes.

    Raises
    ------
    RuntimeError
        If another process has the same seed and chain, and other parameters.
    """
    store = _shared_store()
    if store is None:
        return

    for seed, chain in dict.fromkeys((group["seed"], group["chain"]) for group in groups):
        parameters: list[Tensor] = []
        for group, params in zip(groups, members, strict=True):
            if group["seed"] == seed:
                parameters += params
        number = next(_step_counts.setdefault((seed, chain), count()))
        fingerprints = json.dumps([dist.get_rank(), list(map(_fingerprint, parameters))])
        written = store.compare_set(f"heatbath/{seed}/{chain}/{number}", "", fingerprints).decode()
        rank, fingerprints_of_first = json.loads(written)
        if not _are_alike(fingerprints_of_first, json.loads(fingerprints)[1]):
            raise RuntimeError(_describe_conflict(f"process {rank}, with the same seed={seed}"))


def _shared_store() -> Any:
    """Return the store that all processes can read and write; None without one, or with one process."""
    if process_count() == 1:
        return None
    from torch.distributed import distributed_c10d

    try:
        return distributed_c10d._get_default_store()
    except (AttributeError, ValueError):  # the backend has none
        return None


def _describe_conflict(process: str) -> str:
    """Return the message for this process and another one that would draw the same noise."""
    return (
        f"process {dist.get_rank()} has other parameters than {process}, and both would draw the same noise. "
        "Where each trains a model of its own, or other layers of one, give each a seed of its own, such as "
        "seed=rank; a model that is sharded must be whole in every process (DistributedDataParallel) or "
        "sharded by fully_shard; with ZeroRedundancyOptimizer call optimizer.optim.sharded_by(optimizer)"
    )


def _fingerprint(parameter: Tensor) -> ParameterFingerprint:
    """Return the fingerprint of a parameter; lazy parameters have none yet."""
    if is_lazy(parameter) or parameter.is_meta:
        return ParameterFingerprint((), 0.0, 0.0)
    if hasattr(parameter, "placements"):  # a DTensor, which knows what part of the whole it is
        return ParameterFingerprint(tuple(parameter.shape), 0.0, 0.0)
    values = parameter.detach().double()
    return ParameterFingerprint(tuple(parameter.shape), float(values.sum()), float(values.abs().sum()))


def _are_alike(first: Sequence[ParameterFingerprint], second: Sequence[ParameterFingerprint]) -> bool:
    """Return whether two lists of fingerprints agree up to rounding.

    A fingerprint may be a plain list, as JSON has it.
    """
    if len(first) != len(second):
        return False
    for a, b in zip(starmap(ParameterFingerprint, first), starmap(ParameterFingerprint, second), strict=True):
        tolerance = ROUNDING * max(a.total_of_sizes, b.total_of_sizes)
        if tuple(a.shape) != tuple(b.shape) or abs(a.total - b.total) > tolerance:
            return False
    return True
