"""Standing still."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from heatbath.methods.base import Method
from heatbath.methods.ranges import Between


@dataclass(frozen=True, repr=False)
class Frozen(Method):
    """Nothing moves, so there is nothing to set."""

    searched: ClassVar[dict[str, Between]] = {}
