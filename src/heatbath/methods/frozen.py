"""Standing still."""

from __future__ import annotations

from dataclasses import dataclass

from heatbath.methods.method import Method


@dataclass(frozen=True, repr=False)
class Frozen(Method):
    """Nothing moves, so there is nothing to set."""
