"""`partial_fit`: the window of recent examples, and what to forget when the data change."""

from __future__ import annotations

from collections import deque

import numpy as np

from heatbath.datasets import Problem
from heatbath.datasets.problem import Floats, standard
from heatbath.diagnostics.drift import FALSE_ALARMS, DriftWarning, Watch
from heatbath.diagnostics.statistics import BlockAverage
from heatbath.runs.run import Run

MOST_CALLS = 4096  # calls of partial_fit whose numbers of examples are stored
FAR = 0.5  # change of a mean, in standard deviations, above which data are scaled again
WIDER = 1.5  # change of a standard deviation, as a factor, above which data are scaled again


class OnlineHistory:
    """Record of earlier calls of `partial_fit`, which detects that the data have changed.

    Changes show in the losses of examples before they are learned, and in the frictions ξ of adaptive parts
    after a call: the noise of the gradients, and with it the friction, rises when data change at constant
    temperature, as in `heatbath.torch.Stream`. Frictions are watched only while the number of examples is
    constant, because τ depends on it.

    Attributes
    ----------
    sizes
        Number of examples in each call since the data changed.
    examples_at_start
        Number of examples when stepsize and prior were last searched.
    losses
        Mean loss before learning.
    watch, frictions
        Watches of that loss, and of the friction of each part, by name.
    examples_since_change
        Number of examples since the data changed, if a friction has shown it; None otherwise.
    """

    def __init__(self) -> None:
        self.sizes: deque[int] = deque(maxlen=MOST_CALLS)
        self.examples_at_start = 0
        self.losses = BlockAverage()
        self.watch = Watch("the loss before learning")
        self.frictions: dict[str, Watch] = {}
        self.examples_since_change: int | None = None

    def add_losses(self, losses: Floats, weights: Floats) -> DriftWarning | None:
        """Add the losses of a call's examples; return a warning if their mean has risen."""
        mean = float(np.average(losses, weights=weights))
        if not np.isfinite(mean):
            return None
        self.losses.add(mean)
        drift = self.watch.add(mean)
        if drift is not None:
            self.examples_since_change = None
            for watch in self.frictions.values():
                watch.forget()  # they would report the same change
        return drift

    def valid_examples(self, count: int, drift: DriftWarning | None) -> int:
        """Return how many of the `count` stored examples are from after the last change of the data.

        `drift` is the warning of the present call's losses. A change that a friction has shown is used once.
        """
        if drift is not None:
            return min(sum(self._sizes_since(drift)), count)
        since_change = self.examples_since_change
        self.examples_since_change = None
        return count if since_change is None else min(since_change, count)

    def add_frictions(self, frictions: dict[str, float], is_settled: bool) -> DriftWarning | None:
        """Add the frictions after a call; return a warning if one has risen.

        The next call then forgets the examples from before the change. Unless the number of examples
        `is_settled`, all watches of frictions start again.
        """
        self.watch.false_alarms = FALSE_ALARMS * (1 + len(frictions))  # any watch may raise a false alarm
        drifts = []
        for name, friction in frictions.items():
            if name not in self.frictions:
                self.frictions[name] = Watch(f"the friction of part {name!r}", self.watch.false_alarms)
            watch = self.frictions[name]
            if not is_settled:
                watch.forget()
            elif np.isfinite(friction):
                drifts.append(watch.add(friction))

        drift = next(filter(None, drifts), None)
        if drift is None:
            return None
        for watch in (self.watch, *self.frictions.values()):
            watch.forget()
        self.sizes = deque(list(self.sizes)[-drift.since :], MOST_CALLS)
        self.examples_since_change = sum(self.sizes)
        return drift

    def add_call(self, size: int, drift: DriftWarning | None) -> None:
        """Add a call with `size` examples; on a drift of the losses, forget the calls before the change."""
        if drift is not None:
            self.sizes = deque(self._sizes_since(drift), MOST_CALLS)
        self.sizes.append(size)

    def _sizes_since(self, drift: DriftWarning) -> list[int]:
        """Return the sizes of earlier calls since a drift, which counts the present call, too."""
        return list(self.sizes)[-drift.since + 1 :] if drift.since > 1 else []


def frictions(run: Run) -> dict[str, float]:
    """Return the present ξ of each thermostat by its name, averaged over the chains that are alive."""
    if "xi_now" not in run.data:
        return {}
    xi = run.data["xi_now"].values[:, run.died < 0]
    return {str(name): float(row.mean()) for name, row in zip(run.data["thermostat"].values, xi, strict=True)}


def is_far(problem: Problem, scaled: bool) -> bool:
    """Return True if scaled training examples have drifted from mean 0 and standard deviation 1.

    Features count if they are `scaled`, targets in a regression.
    """
    weights = None if problem.weights_train is None else problem.weights_train[0]
    tables = [problem.X_train[0]] if scaled else []
    if problem.task == "regression":
        tables.append(problem.Y_train[0])
    for table in tables:
        shift, scale = standard(table, weights, True)
        has_shifted = (np.abs(shift) > FAR).any()
        has_other_width = (np.abs(np.log(scale)) > np.log(WIDER)).any()
        if has_shifted or has_other_width:
            return True
    return False
