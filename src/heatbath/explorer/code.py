"""Runs as code."""

from __future__ import annotations

from heatbath.explorer.flight import Flight


def text(flight: Flight, kind: str) -> str:
    """Code that makes the same run."""
    return f"# {kind} of run {flight.name}\n"
