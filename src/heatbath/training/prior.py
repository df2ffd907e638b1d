"""Priors whose deviations suit the data: those of the layers at which the evidence is largest.

Where the standard deviation ς of a layer with N parameters is unknown, the evidence p(data | ς), the integral
of likelihood x prior over all parameters, is stationary at ς² = <|θ|²>/N, the mean over the posterior with
that prior. (At a temperature T it is the integral of [likelihood x prior]^(1/T) over that of prior^(1/T), and
ς² = <|θ|²>/(N T).) So short runs are made in turn, each with the deviations that follow from the samples of
the last (expectation maximisation), in longer steps than these, since many parameters are as their prior
says. Two parameters of size 1 are counted to each layer, so that none vanishes:
ς² = (2 + <|θ|²>/T)/(2 + N).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

START = 1.0  # the deviation of all layers before anything is known
SEEN = 2.0  # parameters of size 1 in each layer, beside its own
ROUNDS, FEWEST_ROUNDS = 10, 3
STEPS, FEWEST_STEPS = 300, 30  # of a round
SHARE = 0.25  # all rounds together may have this share of the steps of the run
POWER, MOST = 1.5, 2.0  # of the quotient of two deviations in turn; and what it may be at most
DIGITS = 3  # of a deviation


def effort(steps: int) -> tuple[int, int]:
    """How many rounds, and of how many steps, for a run of so many; none where they would be too few."""
    rounds = min(ROUNDS, int(SHARE * steps) // FEWEST_STEPS)
    if rounds < FEWEST_ROUNDS:
        return 0, 0
    return rounds, min(STEPS, int(SHARE * steps) // rounds)


def updated(
    deviations: Sequence[float], theta: NDArray[np.float64], sizes: Sequence[int], T: float
) -> list[float]:
    """The deviations after a round with samples θ (samples, parameters), of layers of these sizes."""
    ends = np.cumsum(sizes)
    squares = [np.mean(np.sum(layer**2, axis=1)) for layer in np.split(theta, ends[:-1], axis=1)]
    new = []
    for deviation, square, size in zip(deviations, squares, sizes, strict=True):
        suited = np.sqrt((SEEN + square / T) / (SEEN + size))
        factor = np.clip((suited / deviation) ** POWER, 1 / MOST, MOST)
        new.append(float(f"{deviation * factor:.{DIGITS}g}"))
    return new
