"""Find prior widths that suit the data: those of the layers at which the evidence is largest.

Where the standard deviation ς of a layer with N parameters is unknown, the evidence p(data | ς), the integral
of likelihood x prior over all parameters, is stationary at ς² = <|θ|²>/N, the mean over the posterior with
that prior. (At a temperature T it is the integral of [likelihood x prior]^(1/T) over that of prior^(1/T), and
ς² = <|θ|²>/(N T).) So short runs follow one another, each with the standard deviations that follow from the
samples of the last one (expectation maximisation). The steps of ς are longer than EM's, since many parameters
are as their prior says, and EM would be slow. Two parameters of size 1 are added to each layer, so that no
width vanishes: ς² = (2 + <|θ|²>/T)/(2 + N).

Everything here is pure: `heatbath.training.auto` makes the short runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from heatbath.diagnostics.statistics import Estimate
from heatbath.training.stepsize import SEARCH, is_far_too_hot


@dataclass(frozen=True)
class PriorRule:
    """Rules of the search for prior widths."""

    start: float = 1.0  # standard deviation of all layers before anything is known
    added: float = 2.0  # parameters of size 1 that are added to each layer
    rounds: int = 10  # at most: most widths settle within six
    fewest_rounds: int = 3  # with fewer the search isn't worth it, and the prior stays as it starts
    steps: int = 300  # of a round, at most
    fewest_steps: int = 30  # of a round
    share: float = 0.25  # of the steps of the run that all rounds may have
    power: float = 1.5  # of the quotient of new and old width: EM has 1
    largest_change: float = 2.0  # of a width in one round, up or down
    digits: int = 3  # of a width


RULE = PriorRule()


class Rounds(NamedTuple):
    """Number of rounds of a prior search, and the steps of each."""

    number: int
    steps: int


def plan_rounds(steps: int) -> Rounds:
    """Return the rounds of a prior search for a run of `steps` steps; none if they'd be too few or short."""
    affordable = int(RULE.share * steps)
    number = min(RULE.rounds, affordable // RULE.fewest_steps)
    if number < RULE.fewest_rounds:
        return Rounds(0, 0)
    return Rounds(number, min(RULE.steps, affordable // number))


def update_widths(
    widths: Sequence[float], theta: NDArray[np.float64], sizes: Sequence[int], T: float
) -> list[float]:
    """Return the standard deviations of the prior after a round.

    Parameters
    ----------
    widths
        Standard deviations of the layers in the round.
    theta
        Samples of the round, (samples, parameters).
    sizes
        Number of parameters of each layer.
    T
        Temperature of the posterior.
    """
    ends = np.cumsum(sizes)
    squares = [np.mean(np.sum(layer**2, axis=1)) for layer in np.split(theta, ends[:-1], axis=1)]
    updated = []
    for width, square, size in zip(widths, squares, sizes, strict=True):
        stationary = np.sqrt((RULE.added + square / T) / (RULE.added + size))
        change = np.clip((stationary / width) ** RULE.power, 1 / RULE.largest_change, RULE.largest_change)
        updated.append(float(f"{width * change:.{RULE.digits}g}"))
    return updated


@dataclass(frozen=True)
class PriorSearch:
    """State of a search for prior widths.

    Parameters
    ----------
    widths
        Standard deviations of the layers: those at first, and after each round that changed them.
    sizes
        Parameters of each layer.
    T
        Temperature of the posterior.
    h
        Stepsize of the rounds; None if it's given, and isn't to change.
    was_hot
        True if the last round was far too hot.
    """

    widths: tuple[Sequence[float], ...]
    sizes: Sequence[int]
    T: float
    h: float | None = None
    was_hot: bool = False

    def with_smaller_stepsize(self) -> PriorSearch:
        """Return the search at the next smaller stepsize."""
        assert self.h is not None
        return replace(self, h=self.h / SEARCH.factor)

    def after_round(
        self, theta: NDArray[np.float64], temperature: Estimate, single_chain: bool
    ) -> PriorSearch:
        """Return the search after a round in which some chains stayed finite.

        A round that is far too hot says nothing about the prior. It may cool down by itself, but if the one
        before was too hot as well, the stepsize becomes smaller.

        Parameters
        ----------
        theta
            Samples of the finite chains, (samples, parameters).
        temperature
            Temperature of the round over τ.
        single_chain
            True if there is one chain, so that the temperature has no error.
        """
        if is_far_too_hot(temperature, single_chain):
            needs_smaller_stepsize = self.was_hot and self.h is not None
            search = self.with_smaller_stepsize() if needs_smaller_stepsize else self
            return replace(search, was_hot=True)
        widths = update_widths(self.widths[-1], theta, self.sizes, self.T)
        return replace(self, widths=(*self.widths, widths), was_hot=False)


def start_search(sizes: Sequence[int], T: float) -> PriorSearch:
    """Return the search before its first round, for layers of these sizes and temperature T."""
    return PriorSearch(((RULE.start,) * len(sizes),), sizes, T)
