"""Default ways to sample a posterior, by the sizes of the table and the network.

Full gradients sample the posterior itself, with little friction, so that chains travel far; mini-batches heat
the stiff directions tenfold or more. Cheap steps of Adam come first. Where thousands of full gradients are
too expensive, there are fewer chains, and finally smaller batches.

The estimators and `heatbath train` share these defaults: with the same seed and rows their results are
identical, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NotRequired, TypedDict

from heatbath._internal.checks import POSITIVE, real, whole
from heatbath.datasets import Problem
from heatbath.diagnostics.convergence_check import FEWEST_SAMPLES
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

UNSOUGHT = 0.5  # prior width where none is searched: a run may stop early, and wider priors overheat
WARM_H = 0.003  # stepsize of Adam


class TrainArguments(TypedDict):
    """Arguments of `train` that sample a posterior, except the seed."""

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
    """Return the posterior of an estimator.

    Parameters
    ----------
    prior, noise, temperature, degrees
        As in `Posterior`. With noise="network", the prior "auto" is 0.5: the network also predicts its noise,
        which makes the posterior too stiff for a search.
    """
    is_auto = isinstance(prior, str) and prior == "auto"
    is_noise_predicted = isinstance(noise, str) and noise == "network"
    if is_auto and is_noise_predicted:
        prior = UNSOUGHT
    return Posterior(prior, noise, temperature, degrees)


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
) -> TrainArguments:
    """Return arguments of `train` that suit a problem and a network.

    They describe Langevin dynamics that sample the posterior after some steps of Adam, until the predictions
    have converged or the budget is spent.

    Parameters
    ----------
    problem, network, posterior
        What to sample.
    refine
        Factor on the usual amount of work.
    steps, budget, batch, chains
        Numbers to use instead of the defaults. With `steps` the length is fixed; `budget` limits it.
    samples
        Samples of each chain.
    """
    rows = problem.X_train.shape[1]
    parameters = network.parameters(problem.inputs, Likelihood(problem, posterior).outputs)
    given_steps = budget if steps is None else steps
    usual_size = size_for(rows, parameters, real("refine", refine, POSITIVE))
    size = with_friction(given_size(usual_size, rows, given_steps, batch, chains), rows)
    samples = whole("samples", samples, low=1)
    common: TrainArguments = {
        "partition": Partition(Langevin(size.gamma), "auto", posterior), "steps": "auto",
        "batch": size.batch, "chains": size.chains, "samples": samples, "record": RECORDS,
        "momenta": "thermal", "warm": size.warm,
    }  # fmt: skip
    can_judge_convergence = size.chains > 1 and samples >= FEWEST_SAMPLES
    if steps is None and can_judge_convergence:
        return {**common, "budget": size.steps}
    count, thin = in_second_half(size.steps, samples)
    return {**common, "steps": size.steps, "samples": count, "thin": thin}


def warm_plan(
    problem: Problem,
    network: MLP,
    posterior: Posterior | None,
    steps: int,
    chains: int,
    seed: int,
    dtype: Literal["float32", "float64"],
) -> Plan:
    """Return the plan of the warm start: `steps` steps of Adam on the posterior, from which chains start.

    Other parameters are those of `train`. If the prior is to be searched, Adam uses the first one tried.
    """
    adam = Partition(Adam(), WARM_H, posterior)
    if adam.finds_prior:
        adam = adam.at_prior(prior_search.RULE.start)
    batch = min(FIT.warm_batch, problem.X_train.shape[1])
    return make_plan(
        problem, network, adam, steps, batch, chains, call="train", seed=seed, record=1, dtype=dtype
    )
