"""Successive halving: how many candidates train for how long."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from heatbath.tuning.trials import (
    RUNGS,
    Trials,
)

if TYPE_CHECKING:
    pass

FACTOR = 2  # the steps of a candidate double from rung to rung, and half of them go on


class Rung(NamedTuple):
    """`size` candidates of each method go on to step `steps`."""

    steps: int
    size: int


def ladder(steps: int, count: int) -> list[Rung]:
    """Rungs with half as many candidates each, and twice as many steps."""
    return [Rung(steps // FACTOR ** (RUNGS - 1 - k), math.ceil(count / FACTOR**k)) for k in range(RUNGS)]


def check_outcome(found: Trials, steps: int, stepsize: str = "h") -> None:
    """Refuse what has found nothing, though nobody stopped it."""
    if found.finished and not found.best:
        reasons = "; ".join(f"{method}: {why}" for method, why in found.without.items())
        raise FloatingPointError(
            f"nothing was found in {steps:,} steps ({reasons}): search at smaller {stepsize}, or with more "
            "friction"
        )
