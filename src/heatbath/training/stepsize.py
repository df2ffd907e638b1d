"""Choose a stepsize from the temperatures that a ladder of stepsizes gave."""

from __future__ import annotations

import math

from heatbath.diagnostics.statistics import Estimate

TOP, RUNGS, FACTOR = 0.4, 8, math.sqrt(2)  # the stepsizes of a ladder: from TOP down
HOT, COOLINGS = 2.0, 2  # a run so hot, where short ones were not, begins anew, and so often at most
OFF, UNSURE, SURELY = 0.1, 0.2, 1.0  # how far a temperature may be from τ, and for its error; to be warned of
AFFORDABLE = 4.0  # where none is near enough: stepsizes down to the largest that is stable over this

UNKNOWN = Estimate(math.nan, math.nan)


def chosen(tried: list[tuple[float, Estimate]]) -> float:
    """The largest stepsize whose temperature is near enough to τ; where none is, the coolest of those that
    are not much smaller than need be."""
    stable = [(h, estimate) for h, estimate in tried if math.isfinite(estimate.value)]
    if fine := [h for h, estimate in stable if is_near(estimate)]:
        return max(fine)
    largest = max(h for h, _ in stable)
    return min((e.value, h) for h, e in stable if h * AFFORDABLE * FACTOR**0.5 > largest)[1]


def is_near(estimate: Estimate) -> bool:
    """Whether a temperature is within 10 % of τ, as far as its error can tell (up to a point)."""
    error = estimate.error if math.isfinite(estimate.error) else 0.0
    return abs(estimate.value - 1) <= OFF + min(2 * error, UNSURE)


def is_hot(estimate: Estimate, alone: bool = False) -> bool:
    """Whether a temperature is far above τ, as far as its error can tell; where there is none it cannot, but
    for a chain `alone`, which has none."""
    if alone:
        return estimate.value > HOT
    return (
        math.isfinite(estimate.error) and estimate.value - min(2 * estimate.error, estimate.value / 2) > HOT
    )
