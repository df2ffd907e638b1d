"""How a table is sampled where nothing is said: by its size and that of the network.

Full gradients sample the posterior itself, with little friction, so that chains travel far; mini-batches heat
the stiff directions tenfold and more. Adam comes before, which costs little and comes far. Where some
thousand full gradients cost too much, chains are fewer, and at last the batches smaller.
"""

from __future__ import annotations

import math
from typing import NamedTuple

WORK = 6e11  # parameters x examples x chains x steps of a fit: about a minute on two cores
CHAINS, FEWEST_CHAINS = 8, 4
STEPS, FEWEST_STEPS = 8000, 500
GAMMA, GAMMA_BATCHES = 0.03, 1.0  # friction with full gradients and with mini-batches
COOLING = 100.0  # friction x steps, at least: heat of the start has to go
WARM, WARM_BATCH, WARM_SHARE = 10_000, 128, 0.1  # steps of Adam before, at most this share of the work


class Size(NamedTuple):
    """The chains, the examples of a batch, the steps at most, the friction, and how many steps of
    Adam come before."""

    chains: int
    batch: int
    steps: int
    gamma: float = math.nan
    warm: int = 0


def size_for(examples: int, parameters: int, refine: float = 1.0) -> Size:
    """For so many training examples and parameters; `refine` is how much more work may be done."""
    gradient = examples * parameters
    chains = CHAINS
    while chains > FEWEST_CHAINS and gradient * chains * STEPS / 2 > WORK * refine:
        chains //= 2
    affordable = WORK * refine / (gradient * chains)
    if affordable >= FEWEST_STEPS * min(refine, 1.0):
        return settled(
            Size(chains, examples, int(max(FEWEST_STEPS, min(STEPS * refine, affordable)))), examples
        )
    batch = max(1, int(WORK * refine / (parameters * chains * 8 * FEWEST_STEPS)))
    return settled(Size(chains, min(batch, examples), 8 * FEWEST_STEPS), examples)


def settled(size: Size, examples: int) -> Size:
    """With the friction and the steps of Adam that suit its chains, batches and steps."""
    gamma = max(GAMMA, COOLING / size.steps) if size.batch >= examples else GAMMA_BATCHES
    return size._replace(
        gamma=gamma, warm=max(1, int(min(WARM, WARM_SHARE * size.steps * size.batch / WARM_BATCH)))
    )
