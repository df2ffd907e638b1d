"""Tables as text, for the pages and the screen."""

from __future__ import annotations

from collections.abc import Sequence


def in_markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def short(number: float) -> str:
    """With two digits that count, and thousands apart."""
    return f"{float(f'{number:.2g}'):,.0f}" if number >= 10 else f"{number:.2g}"


def duration(seconds: float) -> str:
    """In the largest unit of which there are two."""
    for unit, size in (("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{short(seconds / size)} {unit}"
    return f"{short(seconds)} s"
