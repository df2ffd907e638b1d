"""Numbers that are written on the command line or in a file."""

from __future__ import annotations

from collections.abc import Callable

from heatbath._internal.checks import POSITIVE, real, whole

AUTO = "auto"  # what is to be found


def number(label: str, text: str) -> float:
    """A number."""
    try:
        return float(_checked(text))
    except ValueError:
        raise ValueError(f"{label} must be a number, got {text!r}") from None


def whole_number(label: str, text: str, other: str = "") -> int:
    """A whole number; `other` is what else it might have been."""
    try:
        return int(_checked(text))
    except ValueError:
        raise ValueError(f"{label} must be a whole number{other}, got {text!r}") from None


def whole_or(word: str) -> Callable[[str, str], int | str]:
    """What reads a whole number or this word."""
    return lambda label, text: word if text.lower() == word else whole_number(label, text, f" or {word}")


def sizes(label: str, text: str) -> list[int]:
    """Whole numbers with commas between them; none at all for empty text."""
    return [whole_number(label, size) for size in text.split(",")] if text.strip() else []


def numbers(label: str, text: str) -> float | list[float]:
    """A number, a list `1e-5,1e-4`, or a range `1e-6:1e-2:5`: so many values, evenly spaced in logarithms."""
    if ":" in text:
        ends = text.split(":")
        if len(ends) != 3:
            raise ValueError(f"{label}: a range is written as FIRST:LAST:HOW_MANY, got {text!r}")
        first, last = (real(f"{label}: an end of a range", number(label, end), POSITIVE) for end in ends[:2])
        count = whole(f"{label}: how many values a range has", whole_number(label, ends[2]), 2, 10_001)
        ratio = (last / first) ** (1 / (count - 1))
        return [first, *(float(f"{first * ratio**i:.12g}") for i in range(1, count - 1)), last]
    if "," not in text:
        return number(label, text)
    found = [number(label, part) for part in text.split(",")]
    if len(set(found)) < len(found):
        raise ValueError(f"{label} has a value twice: {text}")
    return found


def deviations(label: str, text: str) -> float | list[float] | str:
    """A number, several with commas between them, or a word."""
    if text.isidentifier():
        return text
    found = [number(label, part) for part in text.split(",")]
    return found if len(found) > 1 else found[0]


def _checked(text: str) -> str:
    if "_" in text:  # Python would read 1_000 as a number
        raise ValueError
    return text
