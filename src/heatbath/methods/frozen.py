"""A method that keeps parameters fixed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from heatbath.methods.base import Method
from heatbath.methods.ranges import Between


@dataclass(frozen=True, repr=False)
class Frozen(Method):
    """Keep the parameters fixed. It has no coefficients.

    Examples
    --------
    >>> import heatbath as hb
    >>> hb.Partition({"layer1": hb.Frozen(), "layer2": hb.SGD()}, h=0.1)
    Partition({'layer1': Frozen(), 'layer2': SGD()}, h=0.1)
    """

    searched: ClassVar[dict[str, Between]] = {}
