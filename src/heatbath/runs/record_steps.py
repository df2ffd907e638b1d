"""Decide at which steps a run records its state and takes samples.

A plan holds the steps of its records as a list, and its samples by two numbers: after `burn_in` steps, every
`thin`-th step is a sample.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from heatbath._internal.checks import whole
from heatbath._internal.memory import free_memory
from heatbath.methods.schedules import MOST_STEPS

if TYPE_CHECKING:
    from heatbath.runs.plan import Plan

BYTES_PER_STEP = 40  # of a number in a list, with its place there
UNCHECKED_RECORDS = 10**6  # fewer records always fit in memory


def checked_record(record: object, first: int = 0, last: int | None = None) -> int | tuple[int, ...]:
    """Return the argument `record` as a number of records or a tuple of steps, or raise.

    Parameters
    ----------
    record
        The number of records, or the steps at which to record.
    first, last
        The range in which all of these steps must lie, both included; None for no upper limit.
    """
    if not isinstance(record, (list, tuple, range, np.ndarray)):
        return whole("record", record, low=1)
    if not len(record):
        raise ValueError("record must be a number of records or a list of steps, got an empty one")
    beyond = None if last is None else last + 1
    return tuple(whole("record: a step", step, low=first, high=beyond) for step in record)


def spread_records(record: int | Sequence[int], first: int, stop: int) -> list[int]:
    """Return the steps after `first` at which to record, in order; the last one is always `stop`.

    Parameters
    ----------
    record
        The number of records, which are spread evenly, or the steps themselves. Step 0 is kept only if
        `first` is 0, that is, if the run begins there.
    first, stop
        The step at which this stretch of the run begins, and its last step.
    """
    if isinstance(record, Sequence):
        earliest = 0 if first == 0 else first + 1
        steps = {step for step in record if earliest <= step <= stop}
        return sorted(steps | {stop})

    length = stop - first
    count = min(record, length)
    if count > UNCHECKED_RECORDS and BYTES_PER_STEP * count > free_memory():
        raise MemoryError(f"{count:,} records do not fit in memory: take fewer")
    return sorted({first + length * number // count for number in range(1, count + 1)})


def loss_steps(records: Sequence[int], every: int, earlier: int = 0) -> list[int]:
    """Return the records at which the loss is computed: every `every`-th one and the last.

    `earlier` is the number of records that the run has before these, as all of them are counted.
    """
    numbered = enumerate(records, start=earlier + 1)
    return [step for number, step in numbered if number % every == 0 or step == records[-1]]


def record_count(plan: Plan, step: int) -> int:
    """Return the number of records that a run has at `step`; one at step 0 is made with the first step."""
    return bisect_right(plan.records, step) if step else 0


def spread_samples(steps: int, samples: int | None, burn_in: int | None, thin: int | None) -> tuple[int, int]:
    """Return burn-in and thinning: samples are taken every `thin` steps after `burn_in` steps.

    The last sample is taken at the last step. None for the number of samples takes one after every step of
    the burn-in on, or every `thin` steps.

    Parameters
    ----------
    steps
        The number of steps of the run.
    samples
        The number of samples of each chain.
    burn_in
        None for samples over all steps, or with `thin` for the last ones of the run. The burn-in grows a
        little if the steps after it cannot be divided evenly.
    thin
        The steps from one sample to the next; None to spread the samples evenly after the burn-in.

    Raises
    ------
    ValueError
        If the three do not fit together.
    """
    are_both_given = burn_in is not None and thin is not None
    steps = whole("steps", steps, low=1, high=MOST_STEPS)
    burn_in = 0 if burn_in is None else whole("burn_in", burn_in, low=0, high=steps)
    if samples is None:
        return burn_in, 1 if thin is None else thin

    samples = whole("samples", samples, low=1, high=steps + 1)
    steps_left = steps - burn_in
    thin = steps_left // samples if thin is None else whole("thin", thin, low=1)
    possible = steps_left // thin if thin else 0
    if possible < samples or (are_both_given and possible != samples):
        raise ValueError(
            f"{steps} steps with burn_in={burn_in} and a sample every {thin} steps give {possible} samples, "
            f"not samples={samples}: leave out one of samples, burn_in and thin"
        )
    return steps - samples * thin, thin


def sample_count(plan: Plan, step: int) -> int:
    """Return the number of samples that are taken up to and including `step`."""
    takes_samples = plan.keep or plan.average is not None
    if not takes_samples:
        return 0
    return max(0, (step - plan.burn_in) // plan.thin)


def record_steps(plan: Plan, step: int, first: int = 0) -> list[int]:
    """Return the steps of the records that are made after `first`, up to and including `step`."""
    return list(plan.records[record_count(plan, first) : record_count(plan, step)])


def sample_steps(plan: Plan, step: int, first: int = 0) -> list[int]:
    """Return the steps of the samples that are taken after `first`, up to and including `step`."""
    numbers = range(sample_count(plan, first) + 1, sample_count(plan, step) + 1)
    return [plan.burn_in + plan.thin * number for number in numbers]
