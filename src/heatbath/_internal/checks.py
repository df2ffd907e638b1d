"""Check arguments. Each error says what was given and what is accepted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import TypeGuard

import numpy as np


@dataclass(frozen=True)
class Interval:
    """Accepted numbers of a coefficient: from `low` (excluded if `open`) to below `high`.

    Infinity is accepted only if `infinite`, and NaN never.
    """

    low: float = -math.inf
    high: float = math.inf
    open: bool = False
    infinite: bool = False

    def __contains__(self, value: float) -> bool:
        """Return True if a number is accepted."""
        if math.isinf(value):
            return self.infinite and value > 0
        if self.open and value == self.low:
            return False
        return self.low <= value < self.high

    def __str__(self) -> str:
        """Return the condition in words, such as ">= 0 and finite"."""
        bounds = []
        if self.low > -math.inf:
            sign = ">" if self.open else ">="
            bounds.append(f"{sign} {self.low:g}")
        if self.high < math.inf:
            bounds.append(f"< {self.high:g}")
        elif not self.infinite:
            bounds.append("finite")
        return " and ".join(bounds) or "a number"


CONTAINERS = (list, tuple, set, dict)
FINITE = Interval()
NON_NEGATIVE = Interval(low=0.0)
POSITIVE = Interval(low=0.0, open=True)
FRICTION = Interval(low=0.0, infinite=True)
SHARE = Interval(low=0.0, high=1.0)


def shown(value: object, most: int = 200) -> str:
    """Return a value as an error message shows it: arrays and tensors by type and shape, without numbers.

    Longer texts are cut after `most` characters.
    """
    if isinstance(value, CONTAINERS):
        items = value.values() if isinstance(value, dict) else value
        if any(hasattr(item, "shape") or isinstance(item, CONTAINERS) for item in items):
            type_names = sorted({type(item).__name__ for item in items})
            return f"a {type(value).__name__} of {len(value)} ({', '.join(type_names)})"
    if hasattr(value, "shape") and not isinstance(value, np.generic):
        return f"a {type(value).__name__} of shape {tuple(value.shape)}"
    text = repr(value)
    return text if len(text) <= most else f"{text[:most]}..."


def is_real(value: object) -> TypeGuard[Real]:
    """Return True if a value is a real number and no bool."""
    return isinstance(value, Real) and not isinstance(value, bool)


def real(label: str, value: object, accepted: Interval = FINITE) -> float:
    """Return a value as float, or raise an error that begins with the label unless it is an accepted number.

    The error is a TypeError for something that is no number, and a ValueError for one outside `accepted`.
    """
    if not is_real(value):
        raise TypeError(
            f"{label} must be a number ({accepted}), got {shown(value)} of type {type(value).__name__}"
        )
    try:
        number = float(value)
    except OverflowError:  # a whole number or a fraction beyond the range of float
        number = math.nan
    if number not in accepted:
        raise ValueError(f"{label} must be {accepted}, got {value!r}")
    return number


def reals(label: str, values: object, accepted: Interval = FINITE) -> tuple[float, ...]:
    """Return a list or tuple of accepted numbers as a tuple of float."""
    if not isinstance(values, (list, tuple)):
        raise TypeError(f"{label} must be a list of numbers, got {shown(values)}")
    return tuple(real(label, value, accepted) for value in values)


def whole(label: str, value: object, low: int, high: int | None = None) -> int:
    """Return a value as int, or raise an error that begins with the label unless low <= value < high.

    The error is a TypeError for something that is no whole number. Without `high` there is no upper limit.
    """
    accepted = f"a whole number >= {low}"
    if high is not None:
        accepted += f" and < {high}"
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{label} must be {accepted}, got {shown(value)} of type {type(value).__name__}")
    if value < low or (high is not None and value >= high):
        raise ValueError(f"{label} must be {accepted}, got {value!r}")
    return int(value)


def choice(label: str, value: object, accepted: tuple[object, ...]) -> None:
    """Raise ValueError if a value is not one of those accepted."""
    if not isinstance(value, (str, int)) or isinstance(value, bool) or value not in accepted:
        raise ValueError(f"{label} must be one of {', '.join(map(repr, accepted))}, got {shown(value)}")


def store(owner: object, **values: object) -> None:
    """Set fields of a frozen dataclass in its constructor."""
    for name, value in values.items():
        object.__setattr__(owner, name, value)
