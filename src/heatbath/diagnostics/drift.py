"""Drift: whether the values of a series have risen, such as the losses of examples before they are learned.

Each value is ranked among those before it. Where the law of a series does not change, all orders of its
values are equally likely, whatever the law is, so that the rank r among m + 1 is one of 1, ..., m + 1 with
equal chances. With the normal score z = Φ⁻¹((r - 1/2)/(m + 1)) and c the logarithm of the mean of exp(δz)
over all ranks, e = exp(δz - c) has the mean 1, and

    R = (1 + R) e,  from R = 0 on

(Shiryaev and Roberts) has the mean t after t values: R - t is a martingale. So the mean number of values
until R first reaches A is at least A: a false alarm comes once in A values or more seldom, on average. Once
values have risen by μ of their standard deviations, log R rises by about δμ - δ²/2 with each of them. R here
is the mean over five δ, for small and for large rises, which is as good a martingale.

Values that are correlated in time (θ wanders, and ξ more so) are no such series. There log e is divided by
the integrated autocorrelation time of the values that are remembered (the smaller of those of their halves,
as a change looks like a correlation to one of them), and nothing is said while a half spans fewer than
`SPANS` such times; values that are correlated over longer are joined to means of blocks. When values have
fallen by the same test, as they do in learning, those before are forgotten, and some have to come before
anything is said again. That false alarms are as seldom with correlation, and where values are forgotten, is
no theorem, but is tested.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from functools import lru_cache
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heatbath._internal.checks import FINITE, Interval, real
from heatbath.diagnostics.mcmc import autocorrelation_time

RISES = np.array([0.25, 0.5, 1.0, 2.0, 4.0])  # δ, in standard deviations of the series
MEMORY, FEWEST = 256, 16  # values (or means of blocks of them) that are remembered, and that are needed
SPANS = 10  # correlation times that half of these must span
CAUTION = 1.5  # times what a correlation time is above 1, as the smaller of two estimates is too small
SELDOM = 16  # values between two looks at the correlation, which take longest
SUSPECT = 100.0  # R above which a change may be what looks like a correlation
SETTLED = 0.01  # the share by which n may grow with a batch for ξ to be watched, which follows τ with a lag
FALSE_ALARMS = 10_000.0  # values between two of them, on average


class DriftWarning(RuntimeWarning):
    """Data are no longer what they were: the series that shows it has risen.

    `series` is what it is called, `step` the number of its values by then, `statistic` the R that has passed
    its bound, and `since` how many values there probably were since the change.
    """

    def __init__(self, series: str = "", step: int = 0, statistic: float = math.nan, since: int = 0) -> None:
        super().__init__(series, step, statistic, since)
        self.series, self.step, self.statistic, self.since = series, step, statistic, since

    def __str__(self) -> str:
        return (
            f"the data have changed: {self.series} has risen since about {self.since} batches ago, seen at "
            f"batch {self.step:,} (R = {self.statistic:.3g})"
        )


class Watch:
    """Watches a series, and tells when its values have risen: see above.

    `false_alarms` is how many values there are between two false alarms on average, at least.

    >>> rng = np.random.default_rng(0)
    >>> watch = Watch("the loss")
    >>> any(watch.add(value) for value in rng.normal(0.0, 1.0, 500))
    False
    >>> next(drift for value in rng.normal(2.0, 1.0, 500) if (drift := watch.add(value)))
    DriftWarning('the loss', 506, 22135.3..., 6)
    """

    def __init__(self, series: str, false_alarms: float = FALSE_ALARMS) -> None:
        self.series = series
        self.false_alarms = real("false_alarms", false_alarms, Interval(1.0, infinite=True))
        self.step = 0
        self.forget()

    def forget(self) -> None:
        """Begin anew, with values to come."""
        self._values: deque[float] = deque()
        self._length, self._filled, self._sum = 1, 0, 0.0  # of a block, and of the one that is under way
        self._time, self._blocks = 1.0, 0  # the autocorrelation time, and how many blocks there were
        self._logs = np.full(len(RISES), -math.inf)  # log R, for each δ
        self._falls = self._logs.copy()  # the same of falls
        self._rises = np.zeros(len(RISES))  # Σ log e since it was last below 0, and how many blocks that is
        self._since = np.zeros(len(RISES), np.int64)

    @property
    def statistic(self) -> float:
        """R now."""
        return float(np.exp(self._logs).mean())

    def add(self, value: float) -> DriftWarning | None:
        """Add a value; tell if the series has risen, and begin anew then."""
        self._sum += real(self.series, value, FINITE)
        self._filled += 1
        self.step += 1
        if self._filled < self._length:
            return None
        now, self._sum, self._filled = self._sum / self._length, 0.0, 0
        self._judge(now)
        if self.statistic >= self.false_alarms:
            since = int(self._since[self._rises.argmax()]) * self._length
            drift = DriftWarning(self.series, self.step, self.statistic, max(1, since))
            self.forget()
            return drift
        if np.exp(self._falls).mean() >= self.false_alarms:
            self.forget()
        self._remember(now)
        return None

    def _judge(self, value: float) -> None:
        """Go on with R by the rank of a value."""
        count = len(self._values)
        if count < FEWEST:
            return
        values = np.array(self._values)
        half = max(FEWEST, count // 2)
        if self._blocks % SELDOM == 0 and self.statistic < SUSPECT:
            smaller = max(1.0, min(map(autocorrelation_time, (values[:half], values[-half:]))))
            self._time = 1 + CAUTION * (smaller - 1)
        self._blocks += 1
        if half < SPANS * self._time:
            return
        below = int(((values < value).sum() + (values <= value).sum()) // 2)  # equal ones are halved
        gain, loss = _log_e(count)[[below, count - below]] / self._time
        self._logs = np.logaddexp(0.0, self._logs) + gain
        self._falls = np.logaddexp(0.0, self._falls) + loss
        self._rises = np.maximum(self._rises + gain, 0.0)
        self._since = np.where(self._rises > 0, self._since + 1, 0)

    def _remember(self, value: float) -> None:
        """Keep a value, and forget the oldest, or join neighbours where more than these are correlated."""
        self._values.append(value)
        if len(self._values) <= MEMORY:
            return
        self._values.popleft()
        if SPANS * self._time > MEMORY // 2:
            pairs = np.array(self._values).reshape(-1, 2).mean(axis=1).tolist()
            length = 2 * self._length
            self.forget()
            self._values, self._length = deque(pairs), length

    def state_dict(self) -> dict[str, Any]:
        """All that it knows, as plain values."""
        return {
            "step": self.step,
            "values": list(self._values),
            "numbers": [self._length, self._filled, self._sum, self._time, self._blocks],
            "logs": self._logs.tolist(),
            "falls": self._falls.tolist(),
            "rises": self._rises.tolist(),
            "since": self._since.tolist(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self.step, self._values = state["step"], deque(state["values"])
        self._length, self._filled, self._sum, self._time, self._blocks = state["numbers"]
        self._logs, self._falls, self._rises = (np.array(state[name]) for name in ("logs", "falls", "rises"))
        self._since = np.array(state["since"], np.int64)


@lru_cache(maxsize=2 * MEMORY)
def _log_e(count: int) -> NDArray[np.float64]:
    """log e by how many of `count` values are smaller, (count + 1, δ)."""
    normal = NormalDist()
    scores = np.array([normal.inv_cdf((below + 0.5) / (count + 1)) for below in range(count + 1)])
    gains = scores[:, None] * RISES
    return np.asarray(gains - np.log(np.exp(gains).mean(axis=0)))
