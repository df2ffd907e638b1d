"""Parse numbers that are written on the command line or in a file.

`label` is always what an error message calls the value.
"""

from __future__ import annotations

from collections.abc import Callable

from heatbath._internal.checks import POSITIVE, real, whole

AUTO = "auto"  # to be found by heatbath
MOST_VALUES = 10_000  # in a range


def number(label: str, text: str) -> float:
    """Return the number that the text writes."""
    try:
        return float(_without_underscores(text))
    except ValueError:
        raise ValueError(f"{label} must be a number, got {text!r}") from None


def whole_number(label: str, text: str, alternative: str = "") -> int:
    """Return the whole number that the text writes; `alternative` ends the error: " or auto"."""
    try:
        return int(_without_underscores(text))
    except ValueError:
        raise ValueError(f"{label} must be a whole number{alternative}, got {text!r}") from None


def whole_or(word: str) -> Callable[[str, str], int | str]:
    """Return a parser of whole numbers that also accepts this word."""
    return lambda label, text: word if text.lower() == word else whole_number(label, text, f" or {word}")


def sizes(label: str, text: str) -> list[int]:
    """Return whole numbers separated by commas; empty text is an empty list."""
    return [whole_number(label, size) for size in text.split(",")] if text.strip() else []


def numbers(label: str, text: str) -> float | list[float]:
    """Return a number, a list such as 1e-5,1e-4, or a range such as 1e-6:1e-2:5 as a list.

    A range is written as first value, last value and number of values, which are evenly spaced in logarithms.
    """
    if ":" in text:
        return _logarithmic_range(label, text)
    if "," not in text:
        return number(label, text)
    values = [number(label, part) for part in text.split(",")]
    if len(set(values)) < len(values):
        raise ValueError(f"{label} has a value twice: {text}")
    return values


def _logarithmic_range(label: str, text: str) -> list[float]:
    """Return the values of a range that is written as FIRST:LAST:HOW_MANY."""
    parts = text.split(":")
    if len(parts) != 3:
        raise ValueError(f"{label}: a range is written as FIRST:LAST:HOW_MANY, got {text!r}")
    first, last = (real(f"{label}: an end of a range", number(label, end), POSITIVE) for end in parts[:2])
    count = whole(f"{label}: the number of values", whole_number(label, parts[2]), 2, MOST_VALUES + 1)
    ratio = (last / first) ** (1 / (count - 1))
    return [first, *(float(f"{first * ratio**i:.12g}") for i in range(1, count - 1)), last]


def deviations(label: str, text: str) -> float | list[float] | str:
    """Return a number, several as a list, or a word such as auto."""
    if text.isidentifier():
        return text
    values = [number(label, part) for part in text.split(",")]
    return values if len(values) > 1 else values[0]


def _without_underscores(text: str) -> str:
    """Return the text, or raise ValueError if it has underscores, which Python allows in numbers."""
    if "_" in text:
        raise ValueError
    return text
