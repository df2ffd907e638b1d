"""`partial_fit`: the window of recent examples, and what happens when the data drift."""

from __future__ import annotations

from collections import deque

import numpy as np

from heatbath.datasets import Problem
from heatbath.datasets.problem import Floats, standard
from heatbath.diagnostics.drift import FALSE_ALARMS, DriftWarning, Watch
from heatbath.diagnostics.statistics import BlockAverage
from heatbath.runs.run import Run

MOST_CALLS = 4096  # of partial_fit, of which it is known how many examples they had
FAR, WIDER = 0.5, 1.5  # how far means may move, in deviations, and these, before data are scaled anew


class Past:
    """What partial_fit knows of the calls before: how many examples each had, those with which the run was
    begun, the losses of examples before they were learned, and the frictions of adaptive parts afterwards.

    A friction tells the noise of the gradients, which rises when data change while the temperature is held,
    as in `heatbath.torch.Stream`; it is watched where the number of examples has settled, as τ follows that.
    """

    def __init__(self) -> None:
        self.frictions: dict[str, Watch] = {}
        self.latest: int | None = None  # so many examples count since the data changed, if ξ has told
        self.sizes: deque[int] = deque(maxlen=MOST_CALLS)
        self.begun = 0
        self.losses = BlockAverage()
        self.watch = Watch("the loss before learning")

    def judge(self, losses: Floats, weights: Floats) -> DriftWarning | None:
        """Add the losses of a call's examples."""
        mean = float(np.average(losses, weights=weights))
        if not np.isfinite(mean):
            return None
        self.losses.add(mean)
        drift = self.watch.add(mean)
        if drift is not None:
            self.latest = None
            for watch in self.frictions.values():
                watch.forget()  # they would tell of the same change
        return drift

    def still(self, count: int) -> int:
        """How many of the examples of earlier calls still count."""
        kept, self.latest = count if self.latest is None else min(self.latest, count), None
        return kept

    def feel(self, frictions: dict[str, float], settled: bool) -> DriftWarning | None:
        """Add the frictions after a call, if the number of examples has settled; on a drift those before it
        count no more at the next call."""
        self.watch.false_alarms = FALSE_ALARMS * (1 + len(frictions))  # any of them may raise a false alarm
        drifts = []
        for name, value in frictions.items():
            new = Watch(f"the friction of part {name!r}", self.watch.false_alarms)
            watch = self.frictions.setdefault(name, new)
            if not settled:
                watch.forget()
            elif np.isfinite(value):
                drifts.append(watch.add(value))
        drift = next(filter(None, drifts), None)
        if drift is not None:
            for watch in (self.watch, *self.frictions.values()):
                watch.forget()
            self.sizes = deque(list(self.sizes)[-drift.since :], MOST_CALLS)
            self.latest = sum(self.sizes)
        return drift

    def count(self, size: int, drift: DriftWarning | None) -> None:
        """Count a call in."""
        if drift is not None:
            kept = list(self.sizes)[-drift.since + 1 :] if drift.since > 1 else []
            self.sizes = deque(kept, MOST_CALLS)
        self.sizes.append(size)


def frictions(run: Run) -> dict[str, float]:
    """ξ of each thermostat now, the mean over the chains that are finite."""
    if "xi_now" not in run.data:
        return {}
    xi = run.data["xi_now"].values[:, run.died < 0]
    return {str(name): float(own.mean()) for name, own in zip(run.data["thermostat"].values, xi, strict=True)}


def is_far(problem: Problem, scaled: bool) -> bool:
    """Whether the training examples are no longer at 0 with a spread of 1, as they are scaled."""
    columns = [problem.X_train[0]] if scaled else []
    columns += [problem.Y_train[0]] if problem.task == "regression" else []
    for values in columns:
        shift, scale = standard(
            values, None if problem.weights_train is None else problem.weights_train[0], True
        )
        if (np.abs(shift) > FAR).any() or (np.abs(np.log(scale)) > np.log(WIDER)).any():
            return True
    return False
