"""Simulated tempering in an optimiser: all tempered groups share a rung, moved by the loss of the closure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heatbath._internal.checks import is_real, shown
from heatbath.engine.program import TEMPER
from heatbath.methods.letters import temper
from heatbath.reference import random
from heatbath.torch.optim.param_groups import ParamGroup, chain_count, group_of_chain, tempering_ladder
from heatbath.torch.optim.step_parts import StepPart


class Move(NamedTuple):
    """The rung that each chain moves to, and the factor of its momenta."""

    rungs: list[int]
    factors: list[float]


def propose_and_accept(parts: list[StepPart], loss: object) -> Move | None:
    """Propose a tempering move, if one is due in this step, and accept it or not; nothing is changed.

    Each chain proposes a neighbouring rung. The probability that it is accepted depends on the potential: the
    loss of all data plus the Gaussian prior of all groups.

    Parameters
    ----------
    parts : list of StepPart
        The parts of the step.
    loss : float or Tensor
        The loss of all data at the present parameters, which the closure returned; with several chains a
        tensor of their losses.

    Returns
    -------
    Move or None
        The new rung of each chain, which may be the present one, and the factor on its momenta; None if no
        move is due, or if no part is tempered.
    """
    ladder = None
    for part in parts:
        ladder = tempering_ladder(part.group)
        if ladder is not None:
            break
    if ladder is None:
        return None

    group = part.group
    offset = next(stage.offset for stage in part.program.stages if stage.kind == TEMPER)
    count = chain_count(group)
    losses = _losses_of_chains(loss, count)
    step = group["step"] + offset
    if step == 0 or step % ladder.every:
        return None

    potentials = -losses if group["maximize"] else losses
    for prior_group in [prior_part.group for prior_part in parts]:
        half_decay = float(prior_group.get("weight_decay", 0.0)) / 2
        for parameter in prior_group["params"]:
            squares = parameter.detach().double().square().reshape(count, -1).sum(dim=1)
            potentials = potentials + half_decay * squares.cpu().numpy()

    chain_numbers = np.arange(group["chain"], group["chain"] + count)
    side, chance = random.uniforms(group["seed"], random.TEMPERING, 0, chain_numbers, step, 0, 2).T
    present_rungs = np.array([group_of_chain(group, k)["rung"] for k in range(count)])
    temperatures = np.array(ladder.ladder)
    weights = np.array(ladder.weights)
    new_rungs, factors = temper(present_rungs, potentials, side, chance, temperatures, weights)
    return Move(new_rungs.tolist(), factors.tolist())


def _losses_of_chains(loss: object, count: int) -> NDArray[np.float64]:
    """Return the losses of `count` chains, which a closure has returned, as an array (chains,).

    Raises
    ------
    RuntimeError
        If it has returned anything else.
    """
    if isinstance(loss, Tensor) and loss.numel() == count:
        return np.asarray(loss.detach().double().reshape(count).cpu().numpy())
    if is_real(loss) and count == 1:
        return np.array([float(loss)])
    needed = "the loss of all data" if count == 1 else f"the {count} losses of all data, one of each chain"
    raise RuntimeError(f"simulated tempering needs a closure that returns {needed}, got {shown(loss)}")


def check_same_ladder(groups: Sequence[ParamGroup]) -> None:
    """Refuse groups with different ladders: all share a rung."""
    ladders = {str(ladder) for ladder in map(tempering_ladder, groups) if ladder is not None}
    if len(ladders) > 1:
        raise ValueError(
            f"all tempered groups must have the same ladder, got {' and '.join(sorted(ladders))}"
        )


def apply_move(move: Move, part: StepPart) -> None:
    """Put a tempered part on its new rung and multiply its momenta, in place; skip parts without a ladder."""
    ladder = tempering_ladder(part.group)
    if ladder is None:
        return
    part.group["rung"] = list(move.rungs) if part.group["chains"] else move.rungs[0]
    for unit in part.units:
        unit.root_tau = math.sqrt(ladder.ladder[move.rungs[unit.chain]])
        torch._foreach_mul_(unit.unstacked().p, move.factors[unit.chain])
