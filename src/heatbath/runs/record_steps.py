"""The steps at which a run records its state and takes samples."""

from __future__ import annotations

from collections.abc import Sequence

from heatbath._internal.checks import whole
from heatbath._internal.memory import free_memory
from heatbath.methods.schedules import MOST_STEPS


def sampling(steps: int, samples: int | None, burn_in: int | None, thin: int | None) -> tuple[int, int]:
    """Burn-in and thinning where two of the three decide.

    samples alone: spread over all steps. With `burn_in`: over the steps after it (the burn-in grows a little
    if they do not divide). With `thin`: the last of the run. Neither: every step.
    """
    steps = whole("steps", steps, low=1, high=MOST_STEPS)
    first = whole("burn_in", 0 if burn_in is None else burn_in, low=0, high=steps)
    if samples is None:
        return first, 1 if thin is None else thin
    count = whole("samples", samples, low=1, high=steps + 1)
    every = (steps - first) // count if thin is None else whole("thin", thin, low=1)
    possible = (steps - first) // every if every else 0
    if every < 1 or possible < count or (burn_in is not None and thin is not None and possible != count):
        raise ValueError(
            f"samples={count} every {every} steps after burn_in={first} do not make {steps} steps"
            f" (there are {possible}): leave out one of samples, burn_in and thin"
        )
    return steps - count * every, every


def record_steps(record: int | Sequence[int], first: int, stop: int) -> list[int]:
    """The steps after `first` (step 0 among them) at which to record: in order, and always with the last."""
    if isinstance(record, Sequence):
        return sorted({step for step in record if first < step <= stop or step == first == 0} | {stop})
    count = min(record, stop - first)
    if count > 10**6 and 40 * count > free_memory():  # bytes of a number in a list
        raise MemoryError(f"{count:,} records do not fit in memory: take fewer")
    return sorted({first + (stop - first) * (i + 1) // count for i in range(count)})
