"""How a problem is sampled where nothing is said: by the size of its table and that of the network.

Full gradients sample the posterior itself, with little friction, so that chains travel far; mini-batches heat
the stiff directions tenfold and more. Adam comes before, which costs little and comes far. Where some
thousand full gradients cost too much, chains are fewer, and at last the batches smaller.

The estimators and `heatbath train` both ask here: with the same seed and rows they do the same, bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple, NotRequired, TypedDict

from heatbath import evidence
from heatbath.checks import POSITIVE, real, whole
from heatbath.datasets import Problem
from heatbath.likelihood import Likelihood
from heatbath.methods import Adam, Langevin
from heatbath.networks import Dense
from heatbath.partition import Partition
from heatbath.posterior import Posterior, Prior
from heatbath.runs.plan import Plan, make_plan

HIDDEN = (50,)  # units of each hidden layer
SAMPLES, RECORDS = 25, 10  # networks that are kept of each chain; records of the losses
UNSOUGHT = 0.5  # the prior where none is found: a run may stop early, or would not stay cool with wider ones
WARM_H = 0.003  # of Adam
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


class Arguments(TypedDict):
    """Those of `train` that sample a posterior, all but the seed."""

    partition: Partition
    steps: int | Literal["auto"]
    batch: int
    chains: int
    samples: int
    record: int
    momenta: Literal["zero", "thermal"]
    warm: int
    budget: NotRequired[int]
    thin: NotRequired[int]


def posterior_of(
    prior: Prior = "auto",
    noise: float | Sequence[float] | Literal["sampled", "network"] = "sampled",
    temperature: float = 1.0,
    degrees: float | None = None,
) -> Posterior:
    """The posterior, whose prior is found unless it is given, or the network says the noise, too."""
    stiff = isinstance(prior, str) and prior == "auto" and isinstance(noise, str) and noise == "network"
    return Posterior(UNSOUGHT if stiff else prior, noise, temperature, degrees)


def arguments(
    problem: Problem,
    network: Dense,
    posterior: Posterior,
    *,
    refine: float = 1.0,
    steps: int | None = None,
    budget: int | None = None,
    batch: int | None = None,
    chains: int | None = None,
    samples: int = SAMPLES,
) -> Arguments:
    """What suits a problem and a network: Langevin dynamics that sample the posterior, after some steps of
    Adam, until the predictions have converged or the budget is spent. What is given is taken as it is."""
    rows = problem.X_train.shape[1]
    parameters = network.parameters(problem.inputs, Likelihood(problem, posterior).outputs)
    size = size_for(rows, parameters, real("refine", refine, POSITIVE))
    size = settled(given_size(size, rows, budget if steps is None else steps, batch, chains), rows)
    wanted = whole("samples", samples, low=1)
    common: Arguments = {
        "partition": Partition(Langevin(size.gamma), "auto", posterior),
        "steps": "auto",
        "batch": size.batch,
        "chains": size.chains,
        "samples": wanted,
        "record": RECORDS,
        "momenta": "thermal",
        "warm": size.warm,
    }
    if steps is None and size.chains > 1 and wanted > 3:  # R-hat can judge it
        return {**common, "budget": size.steps}
    kept, thin = in_second_half(size.steps, wanted)
    return {**common, "steps": size.steps, "samples": kept, "thin": thin}


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


def warm_plan(
    problem: Problem,
    network: Dense,
    posterior: Posterior | None,
    steps: int,
    chains: int,
    seed: int,
    dtype: Literal["float32", "float64"],
) -> Plan:
    """Some steps of Adam on the same posterior: chains begin where they end."""
    adam = Partition(Adam(), WARM_H, posterior)
    if adam.finds_prior:
        adam = adam.at_prior(evidence.START)
    batch = min(WARM_BATCH, problem.X_train.shape[1])
    return make_plan(
        problem, network, adam, steps, batch, chains, call="train", seed=seed, record=1, dtype=dtype
    )
