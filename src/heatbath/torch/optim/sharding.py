"""Parameters of which a process has a part only: DTensors, and parameters divided by ZeroRedundancyOptimizer.

The noise of an element is that of its position in the whole parameter, and ξ belongs to a whole part. A
`DTensor` knows its position: the runs of elements that are here are numbered as in the whole, and p·p is
added up over the processes. torch's `ZeroRedundancyOptimizer` makes an optimiser for some of the parameters
in each process and has all of them itself: `Partitioned.sharded_by` names it, and each parameter is numbered
among all (see `WrapperShards`). Everything else that shards parameters is refused: a process that took its
shard for the whole would draw the noise of other elements, the same as every other process, and nobody would
notice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, product
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from heatbath.torch.optim.param_groups import ParameterState, ParamGroup

if TYPE_CHECKING:
    from torch.distributed.optim import ZeroRedundancyOptimizer

FSDP_CLASSES = {"FSDPModule", "FullyShardedDataParallel"}  # what modules under FSDP derive from
STRIDED_SHARD = "_StridedShard"  # placement of elements that are not a block of the whole
REMEDY = (
    "every process would draw the same noise for other elements, and ξ would be that of a shard. Shard the "
    "model by fully_shard (FSDP2), or keep it whole in every process, as DistributedDataParallel does"
)
SHARDED_CHAINS = (
    "chains that are sharded over processes are not supported: give each process chains of its own"
)


class ElementRun(NamedTuple):
    """Elements of a block that are consecutive in the whole parameter."""

    first_in_block: int
    first_in_whole: int
    length: int


@dataclass(frozen=True)
class Shard:
    """The block of a parameter that this process has.

    Parameters
    ----------
    shape : tuple of int
        Shape of the whole parameter.
    size, offset : tuple of int
        Shape of the block, and the position of its first element along each dimension.
    groups : tuple
        Process groups over which sums over the parameter are added up, one after the other.
    """

    shape: tuple[int, ...]
    size: tuple[int, ...]
    offset: tuple[int, ...]
    groups: tuple[Any, ...]

    @cached_property
    def runs(self) -> list[ElementRun]:
        """Runs of elements that are consecutive in the whole parameter, in row-major order.

        There are none for an empty block.
        """
        if not math.prod(self.size):
            return []
        complete = len(self.shape)  # from this dimension on the block has all elements
        while complete > 0 and self.size[complete - 1] == self.shape[complete - 1]:
            complete -= 1
        outer = max(complete - 1, 0)  # number of dimensions whose indices tell the runs apart

        strides = [math.prod(self.shape[d + 1 :]) for d in range(len(self.shape))]
        length = math.prod(self.size[outer:])
        corner = sum(offset * stride for offset, stride in zip(self.offset, strides, strict=True))
        runs = []
        for k, index in enumerate(product(*map(range, self.size[:outer]))):
            shift = sum(i * stride for i, stride in zip(index, strides, strict=False))
            runs.append(ElementRun(k * length, corner + shift, length))
        return runs


def is_sharded(model: torch.nn.Module) -> bool:
    """Return whether a module is managed by FSDP or has DTensors.

    FSDP may show whole parameters at times, so that its classes are looked for as well.
    """
    classes = {cls.__name__ for module in model.modules() for cls in type(module).__mro__}
    return not classes.isdisjoint(FSDP_CLASSES) or any(hasattr(p, "placements") for p in model.parameters())


def shard_of(parameter: Any) -> Shard | None:
    """Return the block of a parameter that is in this process, None if the parameter is not sharded.

    Raises
    ------
    RuntimeError
        If it is sharded in a way that does not tell which elements of the whole are here.
    """
    if getattr(parameter, "_is_flat_param", False) or getattr(parameter, "_fsdp_flattened", False):
        raise RuntimeError(
            f"parameters sharded by FullyShardedDataParallel (FSDP1) are not supported: {REMEDY}"
        )
    placements = getattr(parameter, "placements", None)
    if placements is None:
        return None
    if any(type(placement).__name__ == STRIDED_SHARD for placement in placements):
        raise RuntimeError(
            f"shards of shards along one dimension, {placements}, as of tensor parallelism beside FSDP, are "
            "not supported: use one of the two"
        )
    if not all(placement.is_shard() or placement.is_replicate() for placement in placements):
        raise RuntimeError(f"a DTensor must be sharded or replicated to be stepped, got {placements}")

    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    mesh = parameter.device_mesh
    size, offset = compute_local_shape_and_global_offset(parameter.shape, mesh, placements)
    groups = []
    for dimension, placement in enumerate(placements):
        if placement.is_shard() and mesh.size(dimension) > 1:
            groups.append(mesh.get_group(dimension))
    return Shard(tuple(parameter.shape), tuple(size), tuple(offset), tuple(groups))


def runs_of(shard: Shard | None, size: int) -> list[ElementRun]:
    """Return the runs of a shard, or the one run of a parameter of this size that is not sharded."""
    return [ElementRun(0, 0, size)] if shard is None else shard.runs


def check_one_mesh(shards: Sequence[Shard | None]) -> bool:
    """Return whether any parameter is sharded; refuse parameters sharded over different processes."""
    process_groups = {shard.groups for shard in shards if shard is not None and shard.groups}
    if len(process_groups) > 1:
        raise RuntimeError(
            "sharded parameters must lie on one mesh and be sharded over the same dimensions of it; others "
            "(as of tensor parallelism beside FSDP) are not supported"
        )
    return any(shard is not None for shard in shards)


def local_part(tensor: Any, shard: Shard | None) -> Tensor:
    """Return the elements of a tensor (a DTensor, if there is a shard) that are in this process."""
    elements: Tensor = tensor.to_local() if shard is not None and hasattr(tensor, "to_local") else tensor
    return elements


def local_part_of_gradient(parameter: Any, gradient: Any) -> Tensor:
    """Return the elements of a gradient that belong to the elements of a parameter in this process."""
    if not hasattr(parameter, "placements"):  # all of it is here, or nothing
        return gradient.contiguous()  # type: ignore[no-any-return]
    if not hasattr(gradient, "placements"):
        raise RuntimeError("the gradient of a DTensor must be a DTensor: do not replace it by another tensor")
    if gradient.placements != parameter.placements:
        gradient = gradient.redistribute(parameter.device_mesh, parameter.placements)
    elements: Tensor = gradient.to_local().contiguous()  # so that all processes step it in the same way
    return elements


def add_over_processes(sums: Tensor, shards: Sequence[Shard | None]) -> Tensor:
    """Add sums over shards up, in place, over the processes that have the other shards; return them."""
    divided = [shard for shard in shards if shard is not None and shard.groups]
    for group in divided[0].groups if divided else ():  # all have the same groups
        dist.all_reduce(sums, group=group)
    return sums


def complete_sums(sums: Sequence[Sequence[Tensor]], shards: Sequence[Sequence[Shard | None]]) -> list[float]:
    """Complete several sums over tensors, with one exchange between processes for all sharded tensors.

    Parameters
    ----------
    sums : sequence of sequences of Tensor
        For each sum its terms, one for each tensor: what was summed over the elements in this process.
    shards : sequence of sequences of Shard or None
        For each term the shard that it was summed over, None where it was the whole tensor.

    Returns
    -------
    list of float
        The sums over whole tensors.
    """
    all_shards = list(chain.from_iterable(shards))
    if not any(all_shards):
        return list(map(_exact_sum, sums))

    partial_sums = torch.zeros(len(sums), dtype=torch.float64, device=sums[0][0].device)
    whole_sums = torch.zeros_like(partial_sums)
    for k, (terms, shards_of_sum) in enumerate(zip(sums, shards, strict=True)):
        for term, shard in zip(terms, shards_of_sum, strict=True):
            is_partial = shard is not None and bool(shard.groups)
            sums_of_kind = partial_sums if is_partial else whole_sums
            sums_of_kind[k] += term.double()
    completed: list[float] = (add_over_processes(partial_sums, all_shards) + whole_sums).tolist()
    return completed


def _exact_sum(terms: Sequence[Tensor]) -> float:
    """Return a sum without rounding on the way; NaN where a chain that diverged makes it inf - inf."""
    try:
        return math.fsum(map(float, terms))
    except (ValueError, OverflowError):
        return math.nan


@dataclass
class WrapperShards:
    """Parameters that a `ZeroRedundancyOptimizer` has divided over processes, each to be stepped in one.

    Every process has all of them, with their gradients, and sends those it has stepped to the others. Those
    of other processes have a stand-in without elements here, and its state, so that a part without any
    parameter in this process still adds up p·p with the others, and has its ξ.

    Parameters
    ----------
    wrapper : ZeroRedundancyOptimizer
        It has all parameters, in groups.
    stepped : bool
        Whether a step was made in this process, and not only before a state was loaded.
    stand_ins : dict
        For parameters of other processes the stand-in and its state.
    """

    wrapper: ZeroRedundancyOptimizer
    stepped: bool = False
    stand_ins: dict[Tensor, tuple[Tensor, ParameterState]] = field(default_factory=dict)

    def check(self, groups: Sequence[ParamGroup]) -> None:
        """Refuse groups of an optimiser that are not those of the wrapper, or cannot be divided.

        Raises
        ------
        RuntimeError
            If the groups have other parameters than the wrapper's, chains, or DTensors.
        """
        all_params = [set(group["params"]) for group in self.wrapper.param_groups]
        pairs = list(zip(all_params, groups, strict=False))
        has_same_groups = all(params.issuperset(group["params"]) for params, group in pairs)
        if len(all_params) != len(groups) or not has_same_groups:
            raise RuntimeError(
                "the parts must be the groups of the ZeroRedundancyOptimizer, and are others: give it a "
                'group for each part, such as {"params": ..., "method": ...} for Partitioned, or '
                '{"params": ..., "part": "hidden"} and "output" for AdLaLa, LOL and LaLa'
            )
        if any(group["chains"] for group in groups):
            raise RuntimeError(SHARDED_CHAINS)
        if any(hasattr(parameter, "placements") for params in all_params for parameter in params):
            raise RuntimeError(
                "parameters that are DTensors are sharded already: leave out ZeroRedundancyOptimizer"
            )

    def members(self, index: int) -> list[Tensor]:
        """Return all parameters of a group, in the order of the wrapper."""
        return list(self.wrapper.param_groups[index]["params"])

    def shard_of(self, parameter: Tensor, is_here: bool) -> Shard | None:
        """Return where the elements of a parameter are: all in this process, or none."""
        if self.wrapper.world_size == 1:
            return None
        size = parameter.numel()
        size_here = size if is_here else 0
        return Shard((size,), (size_here,), (0,), (self.wrapper.process_group,))

    def stand_in(self, parameter: Tensor, steps: int) -> tuple[Tensor, ParameterState]:
        """Return a stand-in without elements for a parameter of another process, and the stand-in's state.

        How often the parameter was stepped before a state was loaded is not known here: it is taken to be
        `steps`, the number of steps of its group.
        """
        if parameter not in self.stand_ins:
            empty = torch.nn.Parameter(parameter.detach().new_empty(0), requires_grad=False)
            empty.grad = torch.zeros_like(empty)
            self.stand_ins[parameter] = empty, {"step": 0 if self.stepped else steps}
        return self.stand_ins[parameter]


def check_not_replaced(original_ids: list[int], parameters: list[Tensor]) -> None:
    """Refuse parameters that have replaced those an optimiser was made with, unless they are DTensors."""
    replaced = [p for original, p in zip(original_ids, parameters, strict=False) if original != id(p)]
    if not all(hasattr(parameter, "placements") for parameter in replaced):
        raise RuntimeError(
            "the parameters were replaced by others since the optimiser was made, as wrappers do that shard "
            f"it over processes (DeepSpeed), and that is not supported: {REMEDY}"
        )
