"""Simulated tempering in an optimiser: one rung for all tempered groups, moved by the loss of the closure."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from heatbath import noise
from heatbath.checks import is_real
from heatbath.engine.program import TEMPER
from heatbath.letters import temper
from heatbath.torch.recipes import Recipe
from heatbath.torch.units import Unit
from heatbath.torch.values import ladder

Groups = list[dict[str, Any]]


class Move(NamedTuple):
    """The rung to go to, and what the momenta are multiplied by."""

    rung: int
    factor: float


def move(groups: Groups, recipes: list[Recipe], loss: Any) -> Move | None:
    """The move of this step, decided where the gradient was taken; None where none is due."""
    for group, recipe in zip(groups, recipes, strict=True):
        tempering = ladder(group)
        if tempering is None:
            continue
        if not is_real(loss) and not (isinstance(loss, Tensor) and loss.numel() == 1):
            raise RuntimeError(
                f"simulated tempering needs a closure that returns the loss of all data, got {loss!r}"
            )
        n = group["step"] + next(stage.offset for stage in recipe.stages if stage.begins == TEMPER)
        if n == 0 or n % tempering.every:
            return None
        potential = (-float(loss) if group["maximize"] else float(loss)) + sum(
            float(other.get("weight_decay", 0.0)) / 2 * float(p.detach().double().square().sum())
            for other in groups
            for p in other["params"]
        )
        side, chance = noise.uniforms(group["seed"], noise.TEMPERING, 0, [0], n, 0, 2).T
        values = np.array(tempering.ladder), np.array(tempering.weights)
        rung, factor = temper(np.array([group["rung"]]), np.array([potential]), side, chance, *values)
        return Move(int(rung[0]), float(factor[0]))
    return None


def check_ladders(groups: Groups) -> None:
    """Refuse ladders that differ: there is one rung for all."""
    ladders = {str(tempering) for group in groups if (tempering := ladder(group))}
    if len(ladders) > 1:
        raise ValueError(f"all tempered groups climb one ladder, got {' and '.join(sorted(ladders))}")


def carry_out(move: Move, group: dict[str, Any], units: list[Unit]) -> None:
    """Put a tempered group on its new rung."""
    tempering = ladder(group)
    if tempering is None:
        return
    group["rung"] = move.rung
    for unit in units:
        unit.root_tau = math.sqrt(tempering.ladder[move.rung])
        torch._foreach_mul_(unit.p, move.factor)
