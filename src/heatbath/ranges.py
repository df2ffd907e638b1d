"""Ranges: coefficients that are not known yet, for `tune` to look for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from heatbath.checks import FINITE, choice, real, store

Scale = Literal["log", "linear", "complement"]

DIGITS = 3  # of the values that are tried, so that what is shown is what was tried


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

    def __repr__(self) -> str:
        usual = "log" if self.low > 0 else "linear"
        scale = "" if self.scale == usual else f", scale={self.scale!r}"
        return f"between({self.low!r}, {self.high!r}{scale})"

    def range(self) -> tuple[float, float]:
        """Smallest and largest value."""
        return self.low, self.high

    def at(self, share: float) -> float:
        """The value at a share of the way from low to high, with three digits."""
        low, high = self._on_scale(self.low), self._on_scale(self.high)
        place = low + share * (high - low)
        if self.scale == "complement":
            value = 1.0 - _rounded(math.exp(-place))
            return min(max(round(value, 15), self.low), self.high)
        value = _rounded(math.exp(place) if self.scale == "log" else place)
        return min(max(value, self.low), self.high)

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


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
