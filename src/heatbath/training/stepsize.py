"""Find the largest stepsize at which chains sample at the right temperature.

Chains are run for a short time at each stepsize of a ladder, and their temperatures decide. This module has
the rules and the control flow only; a `TrialRunner` runs the chains: that of `heatbath.training.auto` runs a
whole ladder side by side. `heatbath.torch.Sampler` tries one stepsize after the other, with the same rules.

h: stepsize. τ: the temperature at which a method should sample. Temperatures of trials are estimates of the
measured temperature divided by τ, so 1 is right. How the temperature is measured is up to the runner: the
configurational temperature with full gradients sees the bias of the parameters, the kinetic one is cheaper.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, Protocol

from heatbath.diagnostics.statistics import Estimate

UNKNOWN = Estimate(math.nan, math.nan)  # the temperature where a chain diverged


@dataclass(frozen=True)
class TemperatureRule:
    """When a measured temperature counts as right, off or far too hot. All are shares of τ."""

    tolerance: float = 0.1  # bias that is accepted: standard deviations are then wrong by 5 %
    noise_accepted: float = 0.2  # at most this much is excused by the statistical error of a short trial
    noise_before_warning: float = 1.0  # the same for a warning about a whole run, which should be sure
    far_too_hot: float = 2.0  # above this a run has not reached its law, and starts again
    standard_errors: float = 2.0  # an estimate may be off by this many of its standard errors


@dataclass(frozen=True)
class SearchRule:
    """Rules by which the search changes the stepsize."""

    factor: float = math.sqrt(2)  # quotient of neighbouring stepsizes, and to the next one if chains diverge
    same_excess: float = 0.75  # more of the excess over τ is left at a smaller stepsize that doesn't help
    affordable_ratio: float = 4.0  # where no trial is right: at most this much below the largest stable h
    rounding: float = 2**0.25  # half a rung of the engine's ladder, so that rounding decides nothing


TEMPERATURE, SEARCH = TemperatureRule(), SearchRule()


class StepsizeTrial(NamedTuple):
    """A short run: its stepsize, its temperature over τ, and the final states of its chains.

    The temperature is `UNKNOWN` if a chain diverged. Only the runner that made the states reads them.
    """

    h: float
    temperature: Estimate
    states: Any = None

    @property
    def is_stable(self) -> bool:
        """True if no chain diverged."""
        return math.isfinite(self.temperature.value)


class Verdict(Enum):
    """Decision after the trials of a ladder."""

    ACCEPTED = "the temperature is right at one of the stepsizes"
    SMALLER = "smaller stepsizes have to be tried"
    COOLER_START = "smaller stepsizes don't help: the chains have to cool down first"


@dataclass(frozen=True)
class StepsizeLadder:
    """Stepsizes to try together, and how often.

    Parameters
    ----------
    largest
        The first stepsize of the first ladder.
    factor
        Quotient of neighbouring stepsizes.
    rungs
        Stepsizes in each ladder. With 1 they are tried one after the other, and each trial is compared with
        the one before.
    attempts
        Ladders at most, each below the last one or from a cooler start.
    cooling_attempts
        No ladder is repeated from a cooler start after this many.
    spacing
        1 for all stepsizes of the ladder, 2 for every second one.
    """

    largest: float
    factor: float
    rungs: int
    attempts: int
    cooling_attempts: int
    spacing: int = 1

    def stepsizes(self, largest: float) -> list[float]:
        """Return the stepsizes of the ladder that starts at `largest`, in falling order."""
        return [largest / self.factor ** (self.spacing * rung) for rung in range(self.rungs)]


class TrialRunner(Protocol):
    """Interface that runs chains for a short time at given stepsizes."""

    def run_trials(self, stepsizes: Sequence[float], start: StepsizeTrial | None) -> Sequence[StepsizeTrial]:
        """Run chains at each stepsize and return one trial for each, in the same order.

        Parameters
        ----------
        stepsizes
            Stepsizes in falling order.
        start
            The trial from whose final states the chains continue, with thermal momenta; None to start where
            the run itself will start.
        """
        ...


def search_stepsize(runner: TrialRunner, ladder: StepsizeLadder) -> list[StepsizeTrial]:
    """Try ladders of stepsizes until one stepsize is accepted or the attempts are used up.

    A ladder on which all chains diverge is followed by the next smaller one. A ladder that is too hot
    throughout is repeated from the final states of its coolest stepsize, since chains that start far from
    equilibrium have to cool down first.

    Parameters
    ----------
    runner
        Runs the chains.
    ladder
        The stepsizes to try.

    Returns
    -------
    The trials of the last ladder on which something was stable: `choose_stepsize` chooses from them.

    Raises
    ------
    FloatingPointError
        If every attempt asks for smaller stepsizes.
    """
    rejected: list[StepsizeTrial] = []
    trials: list[StepsizeTrial] = []
    start: StepsizeTrial | None = None
    largest = ladder.largest
    for attempt in range(1, ladder.attempts + 1):
        stepsizes = ladder.stepsizes(largest)
        latest = list(runner.run_trials(stepsizes, start))
        verdict = judge_trials([*rejected, *latest], side_by_side=ladder.rungs > 1)
        if verdict is Verdict.SMALLER:
            rejected += latest
            largest = stepsizes[-1] / ladder.factor
            continue

        trials = latest
        if verdict is Verdict.ACCEPTED or attempt >= ladder.cooling_attempts:
            break
        stable = [trial for trial in trials if trial.is_stable]
        start = min(stable, key=lambda trial: trial.temperature.value)
    if not trials:
        raise FloatingPointError(
            f"chains diverge at every stepsize from {ladder.largest:.2g} down to {stepsizes[-1]:.2g}: check "
            "the data and their scales, or add friction"
        )
    return trials


def judge_trials(trials: Sequence[StepsizeTrial], side_by_side: bool) -> Verdict:
    """Decide what follows from trials at falling stepsizes.

    Parameters
    ----------
    trials
        Trials in order of falling stepsizes.
    side_by_side
        True if the last of them are a whole ladder: if its smallest stepsizes didn't help, none does. False
        if they were tried one after the other: then the last one is compared with the one before.
    """
    if any(is_right(trial.temperature) for trial in trials):
        return Verdict.ACCEPTED
    if not any(trial.is_stable for trial in trials):
        return Verdict.SMALLER
    if side_by_side:
        return Verdict.COOLER_START
    if len(trials) < 2 or smaller_stepsize_helps(trials[-2].temperature, trials[-1].temperature):
        return Verdict.SMALLER
    return Verdict.COOLER_START


def smaller_stepsize_helps(larger: Estimate, smaller: Estimate) -> bool:
    """Return True if the temperature is closer to τ at the smaller of two stepsizes, or one of them diverged.

    The heat of a start far from equilibrium doesn't depend on the stepsize, and takes its time at any.
    """
    if not (math.isfinite(larger.value) and math.isfinite(smaller.value)):
        return True
    return abs(smaller.value - 1) <= SEARCH.same_excess * abs(larger.value - 1)


def choose_stepsize(trials: Sequence[StepsizeTrial]) -> float:
    """Return the largest stepsize at which the temperature is right.

    If it's right nowhere, return the coolest of the stable stepsizes, except those much smaller than the
    largest one: at these a run gets nowhere.
    """
    accepted = [trial.h for trial in trials if is_right(trial.temperature)]
    if accepted:
        return max(accepted)
    stable = [trial for trial in trials if trial.is_stable]
    smallest = max(trial.h for trial in stable) / SEARCH.affordable_ratio
    affordable = [trial for trial in stable if trial.h * SEARCH.rounding > smallest]
    return min(affordable, key=lambda trial: (trial.temperature.value, trial.h)).h


def is_right(temperature: Estimate) -> bool:
    """Return True if a temperature is within 10 % of τ, as far as its error can tell (up to 20 % more)."""
    error = temperature.error if math.isfinite(temperature.error) else 0.0
    noise = min(TEMPERATURE.standard_errors * error, TEMPERATURE.noise_accepted)
    return abs(temperature.value - 1) <= TEMPERATURE.tolerance + noise


def may_be_right(value: float) -> bool:
    """Return True if a temperature is within 10 % of τ, or 20 % more, which an error could explain."""
    return abs(value - 1) <= TEMPERATURE.tolerance + TEMPERATURE.noise_accepted


def is_surely_off(temperature: Estimate) -> bool:
    """Return True if a temperature is more than 10 % off τ and its error can't explain that.

    False where the error is unknown.
    """
    if not math.isfinite(temperature.error):
        return False
    noise = min(TEMPERATURE.standard_errors * temperature.error, TEMPERATURE.noise_before_warning)
    return abs(temperature.value - 1) > TEMPERATURE.tolerance + noise


def is_far_too_hot(temperature: Estimate, single_chain: bool = False) -> bool:
    """Return True if a temperature is far above τ, as far as its error can tell.

    Parameters
    ----------
    temperature
        Estimate over τ. Without an error it can't tell, and the result is False.
    single_chain
        True for one chain, which has no error: then the value alone decides.
    """
    if single_chain:
        return temperature.value > TEMPERATURE.far_too_hot
    if not math.isfinite(temperature.error):
        return False
    noise = min(TEMPERATURE.standard_errors * temperature.error, temperature.value / 2)
    return temperature.value - noise > TEMPERATURE.far_too_hot
