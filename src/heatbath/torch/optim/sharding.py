"""Shards: parameters of which a process has a part only.

The noise of an element is that of its place in the whole parameter, and ξ belongs to a whole part. So of a
`DTensor`, which knows its place, the runs of elements that are here are numbered as in the whole, and p·p is
added up over the processes. torch's `ZeroRedundancyOptimizer` makes an optimiser for some of the parameters
in each process, and has all of them itself: there each is numbered among all (see `Apart`). What does not
know its place is refused, whatever has made it: a process that takes its shard for a whole draws the noise of
other elements, the same as every other process, and nobody would notice.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

WRAPPERS = {"ZeroRedundancyOptimizer"}  # optimisers that make one of ours for some of their parameters
FSDP = {"FSDPModule", "FullyShardedDataParallel"}  # what modules are then
STRIDED = "_StridedShard"  # elements that are no block of the whole
MAKER = "_init_local_optimizer"  # what makes it there
REMEDY = (
    "every process would draw the same noise for other elements, and ξ would be that of a shard. Shard the "
    "model by fully_shard (FSDP2), or keep it whole in every process, as DistributedDataParallel does, and "
    "the optimiser out of wrappers that shard it"
)


@dataclass(frozen=True)
class Shard:
    """Where the elements of a parameter that are in this process lie in the whole.

    It is a block, from `offset` on, of `size`, of a tensor of `shape`: some `runs` of elements, each with its
    first element here, its first in the whole, and its length. What is summed over it is to be added up over
    the process groups in `groups`, one after the other.
    """

    shape: tuple[int, ...]
    size: tuple[int, ...]
    offset: tuple[int, ...]
    groups: tuple[Any, ...]

    @cached_property
    def runs(self) -> list[tuple[int, int, int]]:
        """(first here, first in the whole, length) of each run."""
        if not math.prod(self.size):
            return []
        inner = len(self.shape)  # from here on the block has all of it
        while inner > 0 and self.size[inner - 1] == self.shape[inner - 1]:
            inner -= 1
        cut = max(inner - 1, 0)
        strides = [math.prod(self.shape[d + 1 :]) for d in range(len(self.shape))]
        length = math.prod(self.size[cut:])
        corner = sum(o * s for o, s in zip(self.offset, strides, strict=True))
        outer = product(*(range(n) for n in self.size[:cut]))
        return [
            (k * length, corner + sum(i * s for i, s in zip(place, strides, strict=False)), length)
            for k, place in enumerate(outer)
        ]


CHAINS = "chains that are sharded over processes are not supported: give each process chains of its own"


def is_sharded(model: torch.nn.Module) -> bool:
    """Whether FSDP has a module in hand, which may have its whole parameters at this time, or DTensors are in
    it."""
    kinds = {kind.__name__ for one in model.modules() for kind in type(one).__mro__}
    return not kinds.isdisjoint(FSDP) or any(hasattr(p, "placements") for p in model.parameters())


def shard_of(parameter: Any) -> Shard | None:
    """The place of a parameter's elements; None where all of it is here. Refused where nobody can know it."""
    if getattr(parameter, "_is_flat_param", False) or getattr(parameter, "_fsdp_flattened", False):
        raise RuntimeError(
            f"parameters sharded by FullyShardedDataParallel (FSDP1) are not supported: {REMEDY}"
        )
    placements = getattr(parameter, "placements", None)
    if placements is None:
        return None
    if any(type(placement).__name__ == STRIDED for placement in placements):
        raise RuntimeError(
            f"shards of shards along one dimension, {placements}, as of tensor parallelism beside FSDP, are "
            "not supported: shard by one of them"
        )
    if not all(placement.is_shard() or placement.is_replicate() for placement in placements):
        raise RuntimeError(f"a DTensor must be sharded or replicated to be stepped, got {placements}")
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset as place

    mesh = parameter.device_mesh
    size, offset = place(parameter.shape, mesh, placements)
    shared = [d for d, placement in enumerate(placements) if placement.is_shard() and mesh.size(d) > 1]
    groups = tuple(mesh.get_group(d) for d in shared)
    return Shard(tuple(parameter.shape), tuple(size), tuple(offset), groups)


def check_groups(shards: Sequence[Shard | None]) -> bool:
    """Whether there are shards; refused where they are not all over the same processes."""
    kinds = {shard.groups for shard in shards if shard is not None and shard.groups}
    if len(kinds) > 1:
        raise RuntimeError(
            "sharded parameters must lie on one mesh, all over the same dimensions of it: those over others "
            "(as of tensor parallelism beside FSDP) are not supported"
        )
    return any(shard is not None for shard in shards)


def local(tensor: Any, shard: Shard | None) -> Tensor:
    """The elements that are in this process."""
    here: Tensor = tensor.to_local() if shard is not None and hasattr(tensor, "to_local") else tensor
    return here


def sharded_like(parameter: Any, gradient: Any) -> Tensor:
    """The elements of a gradient that belong to those of a parameter in this process."""
    if not hasattr(parameter, "placements"):  # all of it is here, or nothing
        return gradient.contiguous()  # type: ignore[no-any-return]
    if not hasattr(gradient, "placements"):
        raise RuntimeError("a parameter that is a DTensor needs a gradient that is one: do not replace it")
    if gradient.placements != parameter.placements:
        gradient = gradient.redistribute(parameter.device_mesh, parameter.placements)
    here: Tensor = gradient.to_local().contiguous()  # so that all processes take the same way
    return here


def add_up(here: Tensor, shards: Sequence[Shard | None]) -> Tensor:
    """Sums over shards, added up over the processes that have the others."""
    groups: tuple[Any, ...] = next(
        (shard.groups for shard in shards if shard is not None and shard.groups), ()
    )
    for group in groups:
        dist.all_reduce(here, group=group)
    return here


def whole_sums(sums: Sequence[Sequence[Tensor]], shards: Sequence[Sequence[Shard | None]]) -> list[float]:
    """Sums over whole tensors, several at a time, of what was summed over each tensor as far as it is here:
    they are added up over the processes at once."""
    every = [shard for of_sum in shards for shard in of_sum]
    if not any(every):
        return [math.fsum(value.item() for value in values) for values in sums]
    parts = torch.zeros(2, len(sums), dtype=torch.float64, device=sums[0][0].device)
    for place, (values, of_sum) in enumerate(zip(sums, shards, strict=True)):
        for value, shard in zip(values, of_sum, strict=True):  # to be added up, or whole already
            parts[0 if shard is not None and shard.groups else 1, place] += value.double()
    return [float(total) for total in (add_up(parts[0], every) + parts[1]).tolist()]


@dataclass
class Apart:
    """Parameters of which a `ZeroRedundancyOptimizer` has given each process some, to be stepped there.

    Every process has all of them, with their gradients, and sends those it has stepped to the others. Those
    of other processes are `elsewhere`: a stand-in without elements for each, with its state, so that a part
    that has nothing here still adds up p·p with the others, and has its ξ.
    """

    wrapper: Any
    moved: bool = False  # whether a step was made here, and not only before a state was loaded
    elsewhere: dict[Tensor, tuple[Tensor, dict[str, Any]]] = field(default_factory=dict)

    def check(self, groups: list[dict[str, Any]]) -> None:
        """Refuse groups that are not those of the wrapper, or cannot be parted."""
        every = [set(group["params"]) for group in self.wrapper.param_groups]
        if len(every) != len(groups) or any(
            not whole.issuperset(group["params"]) for whole, group in zip(every, groups, strict=True)
        ):
            raise RuntimeError(
                "the parts must be the groups of the ZeroRedundancyOptimizer, and are others: give it a "
                'group for each part, such as {"params": ..., "method": ...} for Partitioned, or '
                '{"params": ..., "part": "hidden"} and "output" for AdLaLa, LOL and LaLa'
            )
        if any(group["chains"] for group in groups):
            raise RuntimeError(CHAINS)
        if any(hasattr(parameter, "placements") for whole in every for parameter in whole):
            raise RuntimeError(
                "parameters that are DTensors are sharded already: leave out ZeroRedundancyOptimizer"
            )

    def members(self, place: int) -> list[Tensor]:
        """All parameters of a group, in the order of the whole."""
        return list(self.wrapper.param_groups[place]["params"])

    def shard_of(self, parameter: Tensor, here: bool) -> Shard | None:
        """Where the elements of a parameter are: all in this process, or none."""
        if self.wrapper.world_size == 1:
            return None
        size = parameter.numel()
        return Shard((size,), (size if here else 0,), (0,), (self.wrapper.process_group,))

    def stand_in(self, parameter: Tensor, steps: int) -> tuple[Tensor, dict[str, Any]]:
        """What stands for a parameter that is stepped elsewhere, and its state; `steps`: of its group.

        What was stepped before a state was loaded is not known here: as often as its group, then.
        """
        if parameter not in self.elsewhere:
            nothing = torch.nn.Parameter(parameter.detach().new_empty(0), requires_grad=False)
            nothing.grad = torch.zeros_like(nothing)
            self.elsewhere[parameter] = nothing, {"step": 0 if self.moved else steps}
        return self.elsewhere[parameter]


def maker() -> Apart | None:
    """What is known of the whole where an optimiser is made within a wrapper that gives each process some of
    the parameters; refused where that is not known."""
    frame = sys._getframe(1).f_back
    while frame is not None:
        wrapper: Any = frame.f_locals.get("self")
        kinds = {kind.__name__ for kind in type(wrapper).__mro__}
        if names := kinds & WRAPPERS:
            if frame.f_code.co_name != MAKER:
                raise RuntimeError(
                    f"an optimiser sharded over processes ({', '.join(names)}) must be made by it: {REMEDY}"
                )
            return Apart(wrapper)
        frame = frame.f_back
    return None


def check_replaced(given: list[int], parameters: list[Tensor]) -> None:
    """Refuse parameters in the place of those that an optimiser was made with, unless they know theirs."""
    replaced = [p for i, p in zip(given, parameters, strict=False) if i != id(p)]
    if not all(hasattr(parameter, "placements") for parameter in replaced):
        raise RuntimeError(
            "the parameters were replaced by others since the optimiser was made, as wrappers do that shard "
            f"it over processes (DeepSpeed), and that is not supported: {REMEDY}"
        )
