"""Ranges: coefficients that are not known yet, for `tune` to look for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from heatbath._internal.checks import FINITE, choice, real, store

Scale = Literal["log", "linear", "complement"]

DIGITS = 3  # of the values that are tried, so that what is shown is what was tried
NARROW = 0.1  # relative widths below which a range needs more digits
MOST_DIGITS = 17  # which tell any two numbers apart
FURTHEST = {"linear": 1e308, "log": 700.0, "complement": 34.5}  # on a scale, so that numbers still have them


@dataclass(frozen=True, repr=False)
class Between:
    """Any value from `low` to `high`: see `between`."""

    low: float
    high: float
    scale: Scale

    def __post_init__(self) -> None:
        choice("between: scale", self.scale, get_args(Scale))
        low, high = real("between: low", self.low, FINITE), real("between: high", self.high, FINITE)
        if low >= high:
            raise ValueError(f"between: low must be below high, got {self.low!r} and {self.high!r}")
        if self.scale == "log" and low <= 0:
            raise ValueError(f"between: low must be > 0 on a logarithmic scale, got {self.low!r}")
        if self.scale == "complement" and high >= 1:
            raise ValueError(f"between: high must be < 1 on the scale of 1 - x, got {self.high!r}")
        store(self, low=low, high=high)
        if self._on_scale(low) >= self._on_scale(high):
            raise ValueError(f"between: low and high are too close to one another, got {low!r} and {high!r}")

    def __repr__(self) -> str:
        usual = "log" if self.low > 0 else "linear"
        scale = "" if self.scale == usual else f", scale={self.scale!r}"
        return f"between({self.low!r}, {self.high!r}{scale})"

    def range(self) -> tuple[float, float]:
        """Smallest and largest value."""
        return self.low, self.high

    def at(self, share: float) -> float:
        """The value at a share of the way from low to high, with three digits, or more in a narrow range."""
        low, high = self._on_scale(self.low), self._on_scale(self.high)
        value = self._at(low + share * (high - low))
        return min(max(value, self.low), self.high)

    def _at(self, place: float) -> float:
        """The value at a place on the scale, rounded: what is missing to 1, where that is the scale.

        With so many digits that a narrow range has at least a thousand different values.
        """
        near_one = self.scale == "complement"
        ends = (1.0 - self.low, 1.0 - self.high) if near_one else (self.low, self.high)
        width = (self.high - self.low) / max(map(abs, ends))
        more = 1 + math.ceil(-math.log10(width)) if width < NARROW else 0
        place = min(max(place, -FURTHEST[self.scale]), FURTHEST[self.scale])
        value = place if self.scale == "linear" else math.exp(-place if near_one else place)
        value = float(f"{value:.{min(DIGITS + more, MOST_DIGITS)}g}")
        return round(1.0 - value, 15) if near_one else value

    def beyond(self, end: float) -> Between:
        """The range that goes on beyond one of its ends for half of its width, and not from above 0 to below.

        >>> between(0.01, 1.0).beyond(1.0), between(0.1, 1.0, "linear").beyond(0.1)
        (between(0.01, 10.0), between(0.0, 1.0))
        """
        low, high = self._on_scale(self.low), self._on_scale(self.high)
        half = (high - low) / 2
        if end == self.high:
            return Between(self.low, self._at(high + half), self.scale)
        lower = self._at(low - half)
        return Between(max(lower, 0.0) if self.low >= 0 else lower, self.high, self.scale)

    def share(self, value: float) -> float:
        """The share of the way at which a value is."""
        low, high = self._on_scale(self.low), self._on_scale(self.high)
        return (self._on_scale(value) - low) / (high - low)

    def _on_scale(self, value: float) -> float:
        if self.scale == "linear":
            return value
        return math.log(value) if self.scale == "log" else -math.log(1.0 - value)


def between(low: float, high: float, scale: Scale | None = None) -> Between:
    """A coefficient that `tune` looks for, from `low` to `high`.

    On a "log" scale (None, where low is above 0), a "linear" one (None, otherwise), or "complement", where
    1 - x is on a logarithmic one: for shares near 1 such as Adam's betas.

    >>> between(0.02, 0.5)
    between(0.02, 0.5)
    >>> between(1e-6, 1e-2).at(0.5), between(0.9, 0.999, "complement").at(0.5)
    (0.0001, 0.99)
    """
    if scale is None:
        scale = "log" if real("between: low", low, FINITE) > 0 else "linear"
    return Between(low, high, scale)
