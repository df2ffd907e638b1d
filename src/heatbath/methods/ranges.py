"""Define ranges of coefficients in which `tune` searches."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from heatbath._internal.checks import FINITE, choice, real, store

Scale = Literal["log", "linear", "complement"]

DIGITS = 3  # significant digits of the values that are tried, so that printed values are exact
NARROW = 0.1  # relative width below which a range needs more digits
DECIMALS = 15  # of 1 - x, without the rounding error of the subtraction
MOST_DIGITS = 17  # digits that distinguish any two floats
# Largest positions on each scale whose values are still finite and, on "complement", below 1
LARGEST_POSITION = {"linear": 1e308, "log": 700.0, "complement": 34.5}


@dataclass(frozen=True, repr=False)
class Between:
    """Range of values from `low` to `high`, made by `between`."""

    low: float
    high: float
    scale: Scale

    def __post_init__(self) -> None:
        """Check that the ends are in order and on the scale, and store them as floats.

        Both must differ on the scale, too, where very close numbers may coincide.
        """
        choice("between: scale", self.scale, get_args(Scale))
        low = real("between: low", self.low, FINITE)
        high = real("between: high", self.high, FINITE)
        if low >= high:
            raise ValueError(f"between: low must be below high, got {self.low!r} and {self.high!r}")
        if self.scale == "log" and low <= 0:
            raise ValueError(f"between: low must be > 0 on a logarithmic scale, got {self.low!r}")
        if self.scale == "complement" and high >= 1:
            raise ValueError(f"between: high must be < 1 on the scale of 1 - x, got {self.high!r}")
        store(self, low=low, high=high)
        if self._on_scale(low) >= self._on_scale(high):
            raise ValueError(f"between: low and high are too close to each other, got {low!r} and {high!r}")

    def __repr__(self) -> str:
        """Return the call that makes it, with the scale if it isn't the default."""
        usual = "log" if self.low > 0 else "linear"
        scale = "" if self.scale == usual else f", scale={self.scale!r}"
        return f"between({self.low!r}, {self.high!r}{scale})"

    def range(self) -> tuple[float, float]:
        """Return the smallest and the largest value."""
        return self.low, self.high

    def at(self, share: float) -> float:
        """Return the value at a share (0 to 1) of the way from low to high on the scale.

        It is rounded to three significant digits, or more in a narrow range.
        """
        low = self._on_scale(self.low)
        high = self._on_scale(self.high)
        value = self._value_at(low + share * (high - low))
        return min(max(value, self.low), self.high)

    def _value_at(self, position: float) -> float:
        """Return the rounded value at a position on the scale; on "complement", 1 - x is what is rounded.

        The digits suffice for at least a thousand different values in a narrow range.
        """
        is_complement = self.scale == "complement"
        ends = (1.0 - self.low, 1.0 - self.high) if is_complement else (self.low, self.high)
        relative_width = (self.high - self.low) / max(map(abs, ends))
        digits = DIGITS
        if relative_width < NARROW:
            extra_digits = 1 + math.ceil(-math.log10(relative_width))
            digits = min(DIGITS + extra_digits, MOST_DIGITS)

        limit = LARGEST_POSITION[self.scale]
        exact = min(max(position, -limit), limit)
        if self.scale == "log":
            exact = math.exp(exact)
        elif is_complement:
            exact = math.exp(-exact)
        rounded = float(f"{exact:.{digits}g}")
        return round(1.0 - rounded, DECIMALS) if is_complement else rounded

    def beyond(self, end: float) -> Between:
        """Return the range extended beyond `end`, one of its ends, by half of its width on the scale.

        A range that starts at 0 or above isn't extended below 0.

        >>> between(0.01, 1.0).beyond(1.0), between(0.1, 1.0, "linear").beyond(0.1)
        (between(0.01, 10.0), between(0.0, 1.0))
        """
        low = self._on_scale(self.low)
        high = self._on_scale(self.high)
        half_width = (high - low) / 2
        if end == self.high:
            return Between(self.low, self._value_at(high + half_width), self.scale)
        lower = self._value_at(low - half_width)
        if self.low >= 0:
            lower = max(lower, 0.0)
        return Between(lower, self.high, self.scale)

    def share(self, value: float) -> float:
        """Return how far a value lies between low (0) and high (1) on the scale."""
        low = self._on_scale(self.low)
        high = self._on_scale(self.high)
        return (self._on_scale(value) - low) / (high - low)

    def _on_scale(self, value: float) -> float:
        """Return the position of a value on the scale: x, log x or -log(1 - x)."""
        if self.scale == "linear":
            return value
        if self.scale == "log":
            return math.log(value)
        return -math.log(1.0 - value)


def between(low: float, high: float, scale: Scale | None = None) -> Between:
    """Return a range in which `tune` searches for a coefficient.

    Parameters
    ----------
    low, high : float
        The ends of the range.
    scale : {"log", "linear", "complement"}, optional
        The scale on which values are spread evenly. The default is "log" if low is above 0, and otherwise
        "linear". "complement" is a logarithmic scale of 1 - x, for values near 1 such as Adam's betas.

    Returns
    -------
    Between
        The range, which takes the place of a coefficient in a method, a preset or a partition.

    Raises
    ------
    ValueError
        If the ends are in the wrong order, too close, or not on the scale.

    Examples
    --------
    >>> between(0.02, 0.5)
    between(0.02, 0.5)
    >>> between(1e-6, 1e-2).at(0.5), between(0.9, 0.999, "complement").at(0.5)
    (0.0001, 0.99)
    """
    if scale is None:
        scale = "log" if real("between: low", low, FINITE) > 0 else "linear"
    return Between(low, high, scale)
