"""What one optimiser step works on: parts, their tensors and their programs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from torch import Tensor

from heatbath.methods.schedules import at, from_plain
from heatbath.torch.optim import (
    param_groups,
    sharding,
    stability,
)
from heatbath.torch.optim.numba_step import can_be_fused
from heatbath.torch.optim.state import StepTensors, is_lazy
from heatbath.torch.optim.step_program import Recipe, Table


class Cooked(NamedTuple):
    """The recipe of a group with its coefficients, and what they were made from."""

    wording: tuple[Any, ...]
    values: tuple[Any, ...]
    recipe: Recipe
    table: Table


@dataclass
class StepPart:
    """A group in a step: its recipe, its units, and whether compiled code steps it."""

    place: int
    group: dict[str, Any]
    recipe: Recipe
    units: list[StepTensors]
    fused: bool


def of_chain(unit: StepTensors, group: dict[str, Any], cooked: Cooked, k: int) -> StepTensors:
    """The unit of chain k beside one of the first; `group` is as that chain sees it."""
    ladder, xi = param_groups.ladder(group), group.get("xi", 0.0)
    xi = xi[unit.index] if isinstance(xi, list) else xi
    root = math.sqrt(ladder.ladder[group["rung"]]) if ladder else 1.0
    number = group["chain"] + k
    return replace(unit, xi=xi, root_tau=root, table=cooked.table, number=number, place=k)


def by_chain(part: StepPart) -> Iterator[tuple[int, dict[str, Any], list[StepTensors]]]:
    """The chains of a part: their numbers, the group as each sees it, and their units."""
    count = param_groups.chain_count(part.group)
    each = len(part.units) // count
    for k in range(count):
        own = part.units[k * each : (k + 1) * each]
        yield part.group["chain"] + k, param_groups.of_chain(part.group, k), own


def only_prepares(part: StepPart) -> bool:
    """Whether a step is there to make states alone, and is none: before the first, at lr = 0 and with
    gradients of 0, as torch.distributed.checkpoint makes it. A schedule that begins at 0 goes on."""
    group, units = part.group, [unit for unit in part.units if unit.is_first]
    if group["step"] or group["lr"] != 0 or not units or units[0].theta[0].is_meta:
        return False
    if "lr" in group["schedules"] and at(from_plain(group["schedules"]["lr"]), 0) == 0:
        return False
    sizes = [[gradient.abs().sum() for gradient in unit.gradient] for unit in units]
    return not any(sharding.whole_sums(sizes, [unit.shards for unit in units]))


def chains_in_words(count: int | None) -> str:
    """Return a number of chains as text for messages."""
    return f"{count} chains" if count else "one"


def count_chains(params: list[Tensor]) -> str:
    """How many parameters there are in how many tensors, and how many of them are not frozen."""
    tensors = f" in {len(params)} tensors" if len(params) > 1 else ""
    if any(map(is_lazy, params)):
        return f"? parameters{tensors}"
    total = sum(parameter.numel() for parameter in params)
    free = sum(parameter.numel() for parameter in stability.moving(params))
    return f"{f'{free} of ' if free < total else ''}{total} parameters{tensors}"


def fuses(group: dict[str, Any], units: list[StepTensors]) -> bool:
    """Whether compiled code steps a group."""
    if group["fused"] is False or not units:
        return False
    kind = units[0].theta[0].dtype
    able = all(
        can_be_fused(theta, kind) and all(can_be_fused(t, kind) and t.shape == theta.shape for t in others)
        for unit in units
        if unit.is_first
        for theta, *others in zip(
            unit.theta, unit.p, unit.gradient, *filter(None, [unit.second]), strict=True
        )
    )
    if group["fused"] and not able:
        raise RuntimeError(
            "fused=True needs parameters and gradients on the CPU, contiguous, float32 or float64, "
            "of one type in each group; with fused=None it is used where that is possible"
        )
    return able
