"""Standing still."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from heatbath.methods.method import Method
from heatbath.ranges import Between


@dataclass(frozen=True, repr=False)
class Frozen(Method):
    """Nothing moves, so there is nothing to set."""

    searched: ClassVar[dict[str, Between]] = {}
