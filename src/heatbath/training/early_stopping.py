"""Continue a run until a rule says that it's done.

`continue_run` is the one loop for this: runs of automatic length double until their predictions have
converged, and estimators with early stopping go on until the validation loss has stalled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from heatbath._internal.checks import NON_NEGATIVE, real, store, whole


class Interruptible(Protocol):
    """A run that Ctrl-C may have stopped: those of the engine and samplers of torch."""

    @property
    def finished(self) -> bool:
        """True if it made all the steps that were asked for."""
        ...


AnyRun = TypeVar("AnyRun", bound=Interruptible)


def continue_run(
    run: AnyRun, missing_steps: Callable[[AnyRun], int], extend: Callable[[AnyRun, int], AnyRun]
) -> AnyRun:
    """Extend a run until no steps are missing, or Ctrl-C stops it; return the longest run.

    Parameters
    ----------
    run
        The run so far.
    missing_steps
        Returns how many steps a run should be extended by; 0 if it has converged, stalled or spent its
        budget.
    extend
        Returns a run with this many more steps.
    """
    while run.finished:
        steps = missing_steps(run)
        if steps <= 0:
            break
        run = extend(run, steps)
    return run


@dataclass(frozen=True)
class Patience:
    """Rule of early stopping: stop when the validation loss hasn't fallen for some time.

    Parameters
    ----------
    records
        How many records to wait for a fall, `n_iter_no_change` of the estimators.
    tolerance
        Falls by less than this don't count, `tol` of the estimators.
    """

    records: int
    tolerance: float

    def __post_init__(self) -> None:
        store(
            self,
            tolerance=real("tol", self.tolerance, NON_NEGATIVE),
            records=whole("n_iter_no_change", self.records, low=1),
        )

    def is_spent(self, losses: NDArray[np.float64]) -> bool:
        """Return True if the losses, in order of their records, have stalled."""
        best = np.minimum.accumulate(losses)
        falls = np.flatnonzero(best[1:] < best[:-1] - self.tolerance) + 1
        last_fall = falls[-1] if falls.size else 0
        return bool(len(losses) - 1 - last_fall >= self.records)
