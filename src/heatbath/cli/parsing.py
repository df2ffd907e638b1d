"""Parse numbers on the command line or in a settings file.

In every function, `label` is what an error message calls the value, such as --steps.
"""

from __future__ import annotations

from collections.abc import Callable

from heatbath._internal.checks import POSITIVE, real, whole

AUTO = "auto"  # a value that heatbath finds
MOST_VALUES = 10_000  # of a range


def number(label: str, text: str) -> float:
    """Return the number in a text; ValueError if there is none."""
    try:
        return float(_without_underscores(text))
    except ValueError:
        raise ValueError(f"{label} must be a number, got {text!r}") from None


def whole_number(label: str, text: str, alternative: str = "") -> int:
    """Return the whole number in a text; `alternative` ends the error message, as in " or auto"."""
    try:
        return int(_without_underscores(text))
    except ValueError:
        raise ValueError(f"{label} must be a whole number{alternative}, got {text!r}") from None


def whole_or(word: str) -> Callable[[str, str], int | str]:
    """Return a parser of options that accepts a whole number or this word, such as auto."""

    def parse(label: str, text: str) -> int | str:
        """Return the word or the whole number in a text."""
        if text.lower() == word:
            return word
        return whole_number(label, text, f" or {word}")

    return parse


def sizes(label: str, text: str) -> list[int]:
    """Return the whole numbers in a text such as 100,50; an empty text is an empty list."""
    if not text.strip():
        return []
    return [whole_number(label, size) for size in text.split(",")]


def numbers(label: str, text: str) -> float | list[float]:
    """Return the number or the list of numbers in a text.

    A text such as 1e-5,1e-4 is a list. A range such as 1e-6:1e-2:5 is a list, too: first value, last value
    and number of values, evenly spaced on a logarithmic scale.
    """
    if ":" in text:
        return _logarithmic_range(label, text)
    if "," not in text:
        return number(label, text)
    listed = [number(label, item) for item in text.split(",")]
    if len(set(listed)) < len(listed):
        raise ValueError(f"{label} has a value twice: {text}")
    return listed


def _logarithmic_range(label: str, text: str) -> list[float]:
    """Return the values of a range FIRST:LAST:COUNT, with constant ratios and 12 digits."""
    try:
        first_text, last_text, count_text = text.split(":")
    except ValueError:
        raise ValueError(f"{label}: write a range as FIRST:LAST:COUNT, got {text!r}") from None

    first = real(f"{label}: an end of a range", number(label, first_text), POSITIVE)
    last = real(f"{label}: an end of a range", number(label, last_text), POSITIVE)
    count = whole(f"{label}: the number of values", whole_number(label, count_text), 2, MOST_VALUES + 1)
    ratio = (last / first) ** (1 / (count - 1))
    between = [float(f"{first * ratio**i:.12g}") for i in range(1, count - 1)]
    return [first, *between, last]


def deviations(label: str, text: str) -> float | list[float] | str:
    """Return standard deviations: a number, several as in 0.5,1 as a list, or a word such as auto."""
    if text.isidentifier():
        return text
    if "," not in text:
        return number(label, text)
    return [number(label, item) for item in text.split(",")]


def _without_underscores(text: str) -> str:
    """Return the text unless it has underscores, which Python accepts in numbers; raise ValueError then."""
    if "_" in text:
        raise ValueError
    return text
