"""Drift: detect that the values of a series have risen, such as losses of examples before they are learned.

Each value is ranked among those before it. If the distribution of a series doesn't change, all orders of its
values are equally likely, whatever the distribution, so the rank r among m + 1 values is uniform on
1, ..., m + 1. With the normal score z = Φ⁻¹((r - 1/2)/(m + 1)) and c the logarithm of the mean of exp(δz)
over all ranks, e = exp(δz - c) has the mean 1, and

    R = (1 + R) e,  starting from R = 0

(Shiryaev and Roberts) has the mean t after t values: R - t is a martingale. So the mean number of values
until R first reaches A is at least A: false alarms are at least A values apart, on average. Once values have
risen by μ of their standard deviations, log R rises by about δμ - δ²/2 with each of them. `Watch` takes the
mean of R over five δ, for small and for large rises; the martingale property holds for the mean, too.

Values correlated in time (θ wanders, and ξ more so) violate the assumption. Then log e is divided by the
integrated autocorrelation time of the stored values: the smaller one of their two halves, because a change
looks like correlation in one of them. `Watch` stays silent while a half spans fewer than `SPANS`
autocorrelation times, and joins values with a longer correlation to means of blocks. When values have fallen
by the same test, as losses do in learning, earlier ones are forgotten. No theorem covers false alarms with
correlation or after forgetting; tests do.
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
MEMORY, FEWEST = 256, 16  # values (or means of blocks) stored at most, and needed for a rank
SPANS = 10  # autocorrelation times that half of the stored values must span
CAUTION = 1.5  # factor on the excess of an autocorrelation time over 1: the smaller of two estimates is low
SELDOM = 16  # values between two estimates of the autocorrelation time, which cost most
SUSPECT = 100.0  # R above which apparent correlation may be a change
SETTLED = 0.01  # relative growth of n per batch above which ξ isn't watched: it follows τ with a lag
FALSE_ALARMS = 10_000.0  # mean number of values between two false alarms


class DriftWarning(RuntimeWarning):
    """Warn that the data have changed, because a series has risen.

    Parameters
    ----------
    series
        Name of the series.
    step
        Number of its values so far.
    statistic
        The R that has reached its bound.
    since
        Estimated number of values since the change.

    Examples
    --------
    >>> print(DriftWarning("the loss", step=506, statistic=22135.3, since=6))
    the data have changed: the loss has risen since about 6 batches ago, seen at batch 506 (R = 2.21e+04)
    """

    def __init__(self, series: str = "", step: int = 0, statistic: float = math.nan, since: int = 0) -> None:
        super().__init__(series, step, statistic, since)
        self.series = series
        self.step = step
        self.statistic = statistic
        self.since = since

    def __str__(self) -> str:
        return (
            f"the data have changed: {self.series} has risen since about {self.since} batches ago, seen at "
            f"batch {self.step:,} (R = {self.statistic:.3g})"
        )


class Watch:
    """Watch a series and report when its values have risen; see the module.

    Parameters
    ----------
    series
        Name of the series.
    false_alarms
        Smallest mean number of values between two false alarms.

    Examples
    --------
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
        """Discard all values and start again with the next one."""
        self._values: deque[float] = deque()  # means of complete blocks
        self._length = 1  # values per block
        self._filled = 0  # values in the incomplete block
        self._sum = 0.0  # of these values
        self._time = 1.0  # autocorrelation time in blocks
        self._blocks = 0  # blocks judged so far
        # One entry for each δ:
        self._logs = np.full(len(RISES), -math.inf)  # log R
        self._falls = self._logs.copy()  # log R of the negative series
        self._rises = np.zeros(len(RISES))  # Σ log e since it was last below 0
        self._since = np.zeros(len(RISES), np.int64)  # blocks since then

    @property
    def statistic(self) -> float:
        """The current R, averaged over δ."""
        return float(np.exp(self._logs).mean())

    def add(self, value: float) -> DriftWarning | None:
        """Add a value; return a warning if the series has risen, else None.

        Values count in blocks, each by its mean. After a warning, or a fall of the series, all values are
        forgotten.
        """
        self._sum += real(self.series, value, FINITE)
        self._filled += 1
        self.step += 1
        if self._filled < self._length:
            return None

        block_mean = self._sum / self._length
        self._sum = 0.0
        self._filled = 0
        self._judge(block_mean)
        if self.statistic >= self.false_alarms:
            since = int(self._since[self._rises.argmax()]) * self._length
            drift = DriftWarning(self.series, self.step, self.statistic, max(1, since))
            self.forget()
            return drift
        if np.exp(self._falls).mean() >= self.false_alarms:
            self.forget()
        self._remember(block_mean)
        return None

    def _judge(self, value: float) -> None:
        """Update R, and its counterpart for falls, with the rank of a value among the stored ones.

        Nothing changes while there are too few values, or they are too correlated.
        """
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

        below = int(((values < value).sum() + (values <= value).sum()) // 2)  # half of the equal values
        gain, loss = _log_e(count)[[below, count - below]] / self._time
        self._logs = np.logaddexp(0.0, self._logs) + gain
        self._falls = np.logaddexp(0.0, self._falls) + loss
        self._rises = np.maximum(self._rises + gain, 0.0)
        self._since = np.where(self._rises > 0, self._since + 1, 0)

    def _remember(self, value: float) -> None:
        """Store a value; drop the oldest one, or join neighbours if the correlation exceeds the memory."""
        self._values.append(value)
        if len(self._values) <= MEMORY:
            return
        self._values.popleft()
        if SPANS * self._time > MEMORY // 2:
            pairs = np.array(self._values).reshape(-1, 2).mean(axis=1).tolist()
            length = 2 * self._length
            self.forget()
            self._values = deque(pairs)
            self._length = length

    def state_dict(self) -> dict[str, Any]:
        """Return the complete state as plain values."""
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
        """Restore a state from `state_dict`."""
        self.step = state["step"]
        self._values = deque(state["values"])
        self._length, self._filled, self._sum, self._time, self._blocks = state["numbers"]
        self._logs, self._falls, self._rises = (np.array(state[name]) for name in ("logs", "falls", "rises"))
        self._since = np.array(state["since"], np.int64)


@lru_cache(maxsize=2 * MEMORY)
def _log_e(count: int) -> NDArray[np.float64]:
    """Return log e for each number of smaller values among `count`, and each δ: (count + 1, δ)."""
    normal = NormalDist()
    scores = np.array([normal.inv_cdf((below + 0.5) / (count + 1)) for below in range(count + 1)])
    gains = scores[:, None] * RISES
    return np.asarray(gains - np.log(np.exp(gains).mean(axis=0)))
