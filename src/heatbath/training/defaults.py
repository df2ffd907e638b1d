"""How a problem is sampled where nothing is said: by the size of its table and that of the network.

Full gradients sample the posterior itself, with little friction, so that chains travel far; mini-batches heat
the stiff directions tenfold and more. Adam comes before, which costs little and comes far. Where some
thousand full gradients cost too much, chains are fewer, and at last the batches smaller.

The estimators and `heatbath train` both ask here: with the same seed and rows they do the same, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NotRequired, TypedDict

from heatbath._internal.checks import POSITIVE, real, whole
from heatbath.datasets import Problem
from heatbath.methods import Adam, Langevin
from heatbath.methods.partition import Partition
from heatbath.methods.posterior import Posterior, Prior
from heatbath.models.dense import MLP
from heatbath.models.likelihood import Likelihood
from heatbath.runs.plan import Plan, make_plan
from heatbath.training import prior as prior_search
from heatbath.training.budget import (
    FIT,
    RECORDS,
    SAMPLES,
    given_size,
    in_second_half,
    size_for,
    with_friction,
)

UNSOUGHT = 0.5  # the prior where none is found: a run may stop early, or would not stay cool with wider ones
WARM_H = 0.003  # of Adam


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
    network: MLP,
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
    size = with_friction(given_size(size, rows, budget if steps is None else steps, batch, chains), rows)
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


def warm_plan(
    problem: Problem,
    network: MLP,
    posterior: Posterior | None,
    steps: int,
    chains: int,
    seed: int,
    dtype: Literal["float32", "float64"],
) -> Plan:
    """Some steps of Adam on the same posterior: chains begin where they end."""
    adam = Partition(Adam(), WARM_H, posterior)
    if adam.finds_prior:
        adam = adam.at_prior(prior_search.RULE.start)
    batch = min(FIT.warm_batch, problem.X_train.shape[1])
    return make_plan(
        problem, network, adam, steps, batch, chains, call="train", seed=seed, record=1, dtype=dtype
    )
