"""Simulated tempering in an optimiser: all tempered groups share a rung, moved by the loss of the closure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heatbath._internal.checks import is_real, shown
from heatbath.engine.program import TEMPER
from heatbath.methods.letters import temper
from heatbath.methods.schedules import SimulatedTempering
from heatbath.reference import random
from heatbath.torch.optim.param_groups import ParamGroup, chain_count, group_of_chain, tempering_ladder
from heatbath.torch.optim.step_parts import StepPart


class Move(NamedTuple):
    """The rung that each chain moves to, and the factor of its momenta."""

    rungs: list[int]
    factors: list[float]


def propose_and_accept(parts: list[StepPart], loss: Any) -> Move | None:
    """Return the tempering move of this step, None where none is due.

    Parameters
    ----------
    parts : list of StepPart
        The parts of the step, of which one is tempered at least.
    loss : float or Tensor
        The loss of all data at the parameters as they are, which the closure returned; of several chains a
        tensor of the losses.
    """
    for part in parts:
        ladder = tempering_ladder(part.group)
        if ladder is not None:
            offset = next(stage.offset for stage in part.program.stages if stage.kind == TEMPER)
            losses = _losses_of_chains(loss, chain_count(part.group))
            step = part.group["step"] + offset
            is_due = step != 0 and step % ladder.every == 0
            groups = [part.group for part in parts]
            return _move_at_step(step, ladder, part.group, groups, losses) if is_due else None
    return None


def _move_at_step(
    step: int,
    ladder: SimulatedTempering,
    group: ParamGroup,
    groups: Sequence[ParamGroup],
    losses: NDArray[np.float64],
) -> Move:
    """Return the move of all chains at a step.

    Parameters
    ----------
    step : int
        Address of the random numbers.
    ladder, group
        A ladder of temperatures and a group that is on it.
    groups : sequence of ParamGroup
        All groups, whose priors are added to the losses.
    losses : array, (chains,)
        Losses of all data.
    """
    count = len(losses)
    potentials = -losses if group["maximize"] else losses
    for any_group in groups:
        decay = float(any_group.get("weight_decay", 0.0)) / 2
        for parameter in any_group["params"]:
            squares = parameter.detach().double().square().reshape(count, -1).sum(dim=1)
            potentials = potentials + decay * squares.cpu().numpy()
    numbers = np.arange(group["chain"], group["chain"] + count)
    side, chance = random.uniforms(group["seed"], random.TEMPERING, 0, numbers, step, 0, 2).T
    rungs = np.array([group_of_chain(group, k)["rung"] for k in range(count)])
    rungs, factors = temper(
        rungs, potentials, side, chance, np.array(ladder.ladder), np.array(ladder.weights)
    )
    return Move(rungs.tolist(), factors.tolist())


def _losses_of_chains(loss: Any, count: int) -> NDArray[np.float64]:
    """Return the losses that a closure has returned as an array over chains."""
    fits = loss.numel() == count if isinstance(loss, Tensor) else is_real(loss) and count == 1
    if not fits:
        needed = (
            "the loss of all data" if count == 1 else f"the {count} losses of all data, one of each chain"
        )
        raise RuntimeError(f"simulated tempering needs a closure that returns {needed}, got {shown(loss)}")
    if isinstance(loss, Tensor):
        return np.asarray(loss.detach().double().reshape(count).cpu().numpy())
    return np.array([float(loss)])


def check_same_ladder(groups: Sequence[ParamGroup]) -> None:
    """Refuse groups with different ladders: all share a rung."""
    ladders = {str(ladder) for group in groups if (ladder := tempering_ladder(group))}
    if len(ladders) > 1:
        raise ValueError(
            f"all tempered groups must have the same ladder, got {' and '.join(sorted(ladders))}"
        )


def apply_move(move: Move, part: StepPart) -> None:
    """Put a tempered part on its new rung and multiply its momenta; other parts stay as they are."""
    ladder = tempering_ladder(part.group)
    if ladder is None:
        return
    part.group["rung"] = list(move.rungs) if part.group["chains"] else move.rungs[0]
    for unit in part.units:
        unit.root_tau = math.sqrt(ladder.ladder[move.rungs[unit.chain]])
        torch._foreach_mul_(unit.unstacked().p, move.factors[unit.chain])
