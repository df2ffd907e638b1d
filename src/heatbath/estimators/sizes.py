"""How a table is sampled where nothing is said: by its size and that of the network.

Full gradients sample the posterior itself, with little friction, so that chains travel far; measured against
mini-batches at the same cost they predict better on every table up to some 50,000 rows (`docs/tables.md`).
Where a few thousand of them cost too much, chains are fewer, and at last the batches smaller.
"""

from __future__ import annotations

from typing import NamedTuple

WORK = 4e11  # parameters x examples x chains x steps of a fit: about a minute on two cores
CHAINS, FEWEST_CHAINS = 16, 4
STEPS, FEWEST_STEPS = 8000, 1000
GAMMA, GAMMA_BATCHES = 0.03, 1.0  # friction with full gradients and with mini-batches


class Size(NamedTuple):
    """The chains, the examples of a batch, the steps at most, and the friction."""

    chains: int
    batch: int
    steps: int
    gamma: float


def size_for(examples: int, parameters: int, refine: float = 1.0) -> Size:
    """For so many training examples and parameters; `refine` is how much more work may be done."""
    gradient = examples * parameters
    chains = CHAINS
    while chains > FEWEST_CHAINS and gradient * chains * STEPS / 2 > WORK * refine:
        chains //= 2
    steps = int(min(STEPS * refine, WORK * refine / (gradient * chains)))
    if steps >= FEWEST_STEPS:
        return Size(chains, examples, steps, GAMMA)
    batch = max(1, int(WORK * refine / (parameters * chains * 4 * FEWEST_STEPS)))
    return Size(chains, min(batch, examples), 4 * FEWEST_STEPS, GAMMA_BATCHES)
