"""Decide how many steps, chains, examples and samples suit a problem of a given size.

Everything here is pure arithmetic on sizes. Work is counted in parameters x examples x chains x steps.

γ: friction of Langevin dynamics.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from heatbath._internal.checks import whole
from heatbath.training.stepsize import SEARCH, StepsizeLadder

HIDDEN = (50,)  # units of each hidden layer where none are given
SAMPLES, RECORDS = 25, 10  # networks that are kept of each chain, and records of the losses
FEWEST_CHAINS = 4  # of an estimator; R-hat of fewer says little


@dataclass(frozen=True)
class FitRule:
    """Default size of a fit."""

    work: float = 6e11  # parameters x examples x chains x steps: about a minute on two cores
    chains: int = 8
    steps: int = 8000  # at most, with full gradients; small problems converge earlier
    fewest_steps: int = 500  # below this, full gradients give way to mini-batches
    batch_steps: int = 2000  # with mini-batches, for half of the work: searches before take the other half
    gamma: float = 0.03  # friction with full gradients: chains travel far
    gamma_batches: float = 1.0  # friction with mini-batches, whose noise heats
    cooling: float = 100.0  # friction x steps, at least: the heat of the start has to go
    warm_steps: int = 10_000  # of Adam before, at most
    warm_batch: int = 128  # examples in its mini-batches
    warm_share: float = 0.1  # of the work that these steps may have


@dataclass(frozen=True)
class TrialRule:
    """Sizes of the short runs of a stepsize search."""

    largest: float = 0.4  # stepsize at the top of the ladder: no problem tried was right at a larger one
    rungs: int = 8  # stepsizes, down to a tenth of the largest
    chains: int = 2  # at each stepsize
    steps: int = 600  # at most: a few relaxation times at the friction of a fit
    fewest_steps: int = 100  # with fewer, only every second stepsize is tried, with one chain
    share: float = 0.25  # of the work of the run that all trials of a ladder may have
    samples: int = 10  # of each chain, in the second half
    attempts: int = 4  # ladders at most
    cooling_attempts: int = 2  # ladders if measuring the temperature is expensive, or trials are few


@dataclass(frozen=True)
class MeasurementRule:
    """How many samples measure a temperature, at three full gradients each."""

    share: float = 0.05  # of the work of a run
    fewest: int = 16  # samples that give an error worth having
    most: int = 200  # samples: more would not change what is decided
    fewest_if_dear: int = 8  # where 16 cost more than the next two
    affordable_share: float = 0.5  # of the work of a run, for the fewest samples
    always_affordable: float = 1e10  # parameters x examples: about a second


@dataclass(frozen=True)
class LengthRule:
    """Length of a run with steps="auto"."""

    rounds: int = 4  # each as long as all before it together
    steps: int = 20_000  # of all rounds, where no budget is given
    samples: int = 100  # of each chain, where no number is given


FIT, TRIAL, MEASUREMENT, LENGTH = FitRule(), TrialRule(), MeasurementRule(), LengthRule()


class Size(NamedTuple):
    """Size of a fit.

    Parameters
    ----------
    chains
        Independent chains.
    batch
        Examples in a mini-batch.
    steps
        Steps of each chain, at most.
    gamma
        Friction.
    warm
        Steps of Adam before.
    """

    chains: int
    batch: int
    steps: int
    gamma: float = math.nan
    warm: int = 0


def size_for(examples: int, parameters: int, refine: float = 1.0) -> Size:
    """Return the size of a fit that costs about a minute.

    Large problems get fewer chains, then fewer steps, and finally mini-batches.

    Parameters
    ----------
    examples, parameters
        Sizes of the training data and of the network.
    refine
        Factor on the amount of work.
    """
    work = FIT.work * refine
    gradient = examples * parameters
    chains = FIT.chains
    while chains > FEWEST_CHAINS and gradient * chains * FIT.steps / 2 > work:
        chains //= 2
    affordable = work / (gradient * chains)
    if affordable >= FIT.fewest_steps * min(refine, 1.0):
        steps = int(max(FIT.fewest_steps, min(FIT.steps * refine, affordable)))
        return with_friction(Size(chains, examples, steps), examples)
    batch = max(1, int(work / (2 * parameters * chains * FIT.batch_steps)))
    return with_friction(Size(chains, min(batch, examples), FIT.batch_steps), examples)


def with_friction(size: Size, examples: int) -> Size:
    """Return a size with the friction and the steps of Adam that suit its batches and steps."""
    gamma = FIT.gamma_batches if size.batch < examples else max(FIT.gamma, FIT.cooling / size.steps)
    warm = int(min(FIT.warm_steps, FIT.warm_share * size.steps * size.batch / FIT.warm_batch))
    return size._replace(gamma=gamma, warm=max(1, warm))


def given_size(size: Size, examples: int, steps: int | None, batch: int | None, chains: int | None) -> Size:
    """Return a size with the user's numbers of steps, chains and examples in a batch, where they aren't None.

    A batch is limited to the number of examples: a fold of a cross-validation may have fewer than the table.
    """
    numbers = {"steps": steps, "batch": batch, "chains": chains}
    checked = {name: whole(name, value, low=1) for name, value in numbers.items() if value is not None}
    size = size._replace(**checked)
    return size._replace(batch=min(size.batch, examples))


def in_second_half(steps: int, samples: int) -> tuple[int, int]:
    """Return the number of samples in the second half of a run, at most one per step, and their spacing."""
    half = steps - steps // 2
    count = min(samples, half)
    return count, half // count


class TrialSize(NamedTuple):
    """Steps and chains of the short run at each stepsize."""

    steps: int
    chains: int


def trial_size(steps: int, chains: int) -> TrialSize:
    """Return the size of the trials for a run of `steps` steps with `chains` chains."""
    affordable = TRIAL.share * steps * chains / (TRIAL.rungs * TRIAL.chains)
    trial_steps = int(min(affordable, TRIAL.steps))
    if trial_steps < TRIAL.fewest_steps:
        return TrialSize(TRIAL.fewest_steps, 1)
    return TrialSize(trial_steps, TRIAL.chains)


def ladder_for(trial: TrialSize, samples: int) -> StepsizeLadder:
    """Return the ladder of stepsizes to try.

    Parameters
    ----------
    trial
        Size of the short run at each stepsize. With one chain only every second stepsize is tried, and not
        the largest, since a short trial shows little.
    samples
        Number of samples that may measure the temperature at a stepsize. If there are fewer than the trial
        has, a measurement is expensive, and fewer ladders are tried.
    """
    if trial.chains == 1:
        return StepsizeLadder(
            largest=TRIAL.largest / SEARCH.factor, factor=SEARCH.factor, rungs=TRIAL.rungs // 2, spacing=2,
            attempts=TRIAL.cooling_attempts, cooling_attempts=TRIAL.cooling_attempts,
        )  # fmt: skip
    is_expensive = samples < TRIAL.samples * trial.chains
    cooling_attempts = TRIAL.cooling_attempts if is_expensive else TRIAL.attempts
    return StepsizeLadder(
        largest=TRIAL.largest, factor=SEARCH.factor, rungs=TRIAL.rungs, attempts=TRIAL.attempts,
        cooling_attempts=cooling_attempts,
    )  # fmt: skip


def temperature_samples_of_trial(work: float, parameters: int, examples: int, stepsizes: int) -> int:
    """Return how many samples of each stepsize may measure its temperature.

    Parameters
    ----------
    work
        Gradients of single examples in the trials of all stepsizes.
    parameters, examples
        Sizes of the network and of the training data.
    stepsizes
        Number of stepsizes, which share the work.
    """
    samples = affordable_samples(work, parameters, examples) / stepsizes
    return int(max(samples, MEASUREMENT.fewest_if_dear))


def temperature_samples_of_run(steps: int, chains: int, batch: int, parameters: int, examples: int) -> int:
    """Return how many samples of a run measure its temperature, at the cost of a small share of its work.

    Parameters
    ----------
    steps, chains, batch
        Sizes of the run.
    parameters, examples
        Sizes of the network and of the training data.
    """
    usual = MEASUREMENT.share * steps * chains * batch / examples / 3  # three full gradients per sample
    affordable = affordable_samples(steps * chains * batch, parameters, examples)
    fewest = min(max(affordable, MEASUREMENT.fewest_if_dear), MEASUREMENT.fewest)
    return int(min(max(usual, fewest), MEASUREMENT.most))


def affordable_samples(work: float, parameters: int, examples: int) -> float:
    """Return how many samples can be measured, with three full gradients each, for half of the work.

    `work` counts gradients of single examples. A measurement of about a second is always affordable.
    """
    gradients = max(MEASUREMENT.affordable_share * work, MEASUREMENT.always_affordable / parameters)
    return float(gradients / (3 * examples))
