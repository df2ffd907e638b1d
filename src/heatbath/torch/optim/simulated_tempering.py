"""Simulated tempering in an optimiser: one rung for all tempered groups, moved by the loss of the closure."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heatbath._internal.checks import is_real, shown
from heatbath.engine.program import TEMPER
from heatbath.methods.letters import temper
from heatbath.reference import random
from heatbath.torch.optim.param_groups import chain_count, ladder, of_chain
from heatbath.torch.optim.state import StepTensors
from heatbath.torch.optim.step_program import Recipe

Groups = list[dict[str, Any]]


class Move(NamedTuple):
    """The rung that each chain goes to, and what its momenta are multiplied by."""

    rungs: list[int]
    factors: list[float]


def move(groups: Groups, recipes: list[Recipe], loss: Any) -> Move | None:
    """The move of this step, decided where the gradient was taken; None where none is due."""
    for group, recipe in zip(groups, recipes, strict=True):
        tempering = ladder(group)
        if tempering is None:
            continue
        count = chain_count(group)
        losses = _losses(loss, count)
        n = group["step"] + next(stage.offset for stage in recipe.stages if stage.begins == TEMPER)
        if n == 0 or n % tempering.every:
            return None
        potentials = -losses if group["maximize"] else losses
        for other in groups:
            decay = float(other.get("weight_decay", 0.0)) / 2
            for p in other["params"]:
                squares = p.detach().double().square().reshape(count, -1).sum(dim=1)
                potentials = potentials + decay * squares.cpu().numpy()
        numbers = np.arange(group["chain"], group["chain"] + count)
        side, chance = random.uniforms(group["seed"], random.TEMPERING, 0, numbers, n, 0, 2).T
        values = np.array(tempering.ladder), np.array(tempering.weights)
        now = np.array([of_chain(group, place)["rung"] for place in range(count)])
        rungs, factors = temper(now, potentials, side, chance, *values)
        return Move(rungs.tolist(), factors.tolist())
    return None


def _losses(loss: Any, count: int) -> NDArray[np.float64]:
    """The losses of the chains."""
    right = loss.numel() == count if isinstance(loss, Tensor) else is_real(loss) and count == 1
    if not right:
        needed = (
            "the loss of all data" if count == 1 else f"the {count} losses of all data, one of each chain"
        )
        raise RuntimeError(f"simulated tempering needs a closure that returns {needed}, got {shown(loss)}")
    if isinstance(loss, Tensor):
        return np.asarray(loss.detach().double().reshape(count).cpu().numpy())
    return np.array([float(loss)])


def check_ladders(groups: Groups) -> None:
    """Refuse ladders that differ: there is one rung for all."""
    ladders = {str(tempering) for group in groups if (tempering := ladder(group))}
    if len(ladders) > 1:
        raise ValueError(f"all tempered groups climb one ladder, got {' and '.join(sorted(ladders))}")


def carry_out(move: Move, group: dict[str, Any], units: list[StepTensors]) -> None:
    """Put a tempered group on its new rung."""
    tempering = ladder(group)
    if tempering is None:
        return
    group["rung"] = list(move.rungs) if group["chains"] else move.rungs[0]
    for unit in units:
        unit.root_tau = math.sqrt(tempering.ladder[move.rungs[unit.place]])
        torch._foreach_mul_(unit.alone().p, move.factors[unit.place])
