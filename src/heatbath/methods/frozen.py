"""A method that keeps parameters fixed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from heatbath.methods.base import Method
from heatbath.methods.ranges import Between


@dataclass(frozen=True, repr=False)
class Frozen(Method):
    """Keep the parameters fixed. It has no coefficients."""

    searched: ClassVar[dict[str, Between]] = {}
