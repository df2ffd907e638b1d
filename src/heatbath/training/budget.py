"""How many steps, chains and examples a batch a problem of a given size gets by default."""

from __future__ import annotations

import math
from typing import NamedTuple

from heatbath._internal.checks import whole

HIDDEN = (50,)  # units of each hidden layer
SAMPLES, RECORDS = 25, 10  # networks that are kept of each chain; records of the losses
WORK = 6e11  # parameters x examples x chains x steps of a fit: about a minute on two cores
CHAINS, FEWEST_CHAINS = 8, 4
STEPS, FEWEST_STEPS = 8000, 500
BATCHES = 2000  # steps with mini-batches, for half of the work: what is found before takes the other half
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
    batch = max(1, int(WORK * refine / (2 * parameters * chains * BATCHES)))
    return settled(Size(chains, min(batch, examples), BATCHES), examples)


def settled(size: Size, examples: int) -> Size:
    """With the friction and the steps of Adam that suit its chains, batches and steps."""
    gamma = max(GAMMA, COOLING / size.steps) if size.batch >= examples else GAMMA_BATCHES
    return size._replace(
        gamma=gamma, warm=max(1, int(min(WARM, WARM_SHARE * size.steps * size.batch / WARM_BATCH)))
    )


def given_size(size: Size, rows: int, steps: int | None, batch: int | None, chains: int | None) -> Size:
    """With the steps, batch and chains that are given; a fold of a cross-validation may have fewer rows."""
    given = {"steps": steps, "batch": batch, "chains": chains}
    size = size._replace(
        **{name: whole(name, value, low=1) for name, value in given.items() if value is not None}
    )
    return size._replace(batch=min(size.batch, rows))


def in_second_half(steps: int, samples: int) -> tuple[int, int]:
    """How many samples there are in the second half of so many steps, one a step at most, and how many steps
    apart they are."""
    half = steps - steps // 2
    return min(samples, half), half // min(samples, half)
