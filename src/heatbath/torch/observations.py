"""What a sampler's user wants to know of the parts: temperature, friction, noise of the gradient."""

from __future__ import annotations

from typing import Any

from heatbath.statistics import Blocks, Estimate
from heatbath.torch.units import Unit

Group = dict[str, Any]


class Observations:
    """Means over steps of each part, by the number of its group."""

    def __init__(self) -> None:
        self.series: dict[tuple[int, str], Blocks] = {}
        self.fixed: dict[int, tuple[int, float]] = {}  # how often γ was noted, and its sum

    def note(self, place: int, group: Group, units: list[Unit]) -> None:
        """Add a step of a group, if its temperature was read."""
        if not units or any(unit.kinetic < 0 for unit in units):
            return
        size = sum(unit.size for unit in units)
        self._add(place, "temperature", sum(unit.kinetic for unit in units) / size)
        xi = sum(unit.xi * unit.size for unit in units) / size if "xi" in group else None
        method = units[0].recipe.method
        friction = method.friction_on(group, xi)
        noise = method.gradient_noise(group, float(group["lr"]), xi)
        if noise is not None:
            self._add(place, "gradient noise", noise * group.get("noise", 1.0))  # momenta are in its units
        if friction is not None and xi is not None:
            self._add(place, "friction", friction)
        elif friction is not None:
            count, total = self.fixed.get(place, (0, 0.0))
            self.fixed[place] = count + 1, total + friction

    def means(self, series: str, groups: list[Group]) -> dict[str, Estimate]:
        """The means of the parts that have this series, by their labels."""
        means = {}
        for place, label in enumerate(labels(groups)):
            if (place, series) in self.series:
                means[label] = self.series[place, series].estimate()
            elif series == "friction" and place in self.fixed:
                count, total = self.fixed[place]
                means[label] = Estimate(total / count, 0.0)
        return means

    def _add(self, place: int, series: str, value: float) -> None:
        self.series.setdefault((place, series), Blocks()).add(value)


def labels(groups: list[Group]) -> list[str]:
    """A name for each group, different from all others: its own, its part, or its number."""
    names = [str(group.get("name", group.get("part", i))) for i, group in enumerate(groups)]
    if len(set(names)) < len(names):
        names = [
            ": ".join(str(group[key]) for key in ("part", "name") if key in group) or str(i)
            for i, group in enumerate(groups)
        ]
    if len(set(names)) < len(names):
        names = [f"{name} ({i})" for i, name in enumerate(names)]
    return names
