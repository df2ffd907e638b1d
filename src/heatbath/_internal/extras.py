"""Import packages that are extras of heatbath."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needed(remedy: str) -> Iterator[None]:
    """Raise ModuleNotFoundError with a remedy if an import in the context fails: which extra to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{remedy} ({error})", name=error.name) from error
