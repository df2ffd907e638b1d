"""What a sampler's user wants to know of the parts: temperature, friction, noise of the gradient."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

from heatbath.diagnostics.statistics import BlockAverage, Estimate
from heatbath.methods.operations import READ
from heatbath.torch.optim.sharding import whole_sums
from heatbath.torch.optim.state import StepTensors

Group = dict[str, Any]

SELDOM = 8  # steps between two looks at θ·∇L, which take a pass over all parameters each


class Temperature(NamedTuple):
    """The kinetic temperature of a part with its standard error, and beside it the configurational one.

    `value` is the mean of p·p/N where the thermostat reads it, and `configurational` that of θ·∇L/N with the
    gradients of the loop, prior included: both are τ where the law is right. An adaptive part holds the first
    at τ by force, whatever θ does, so that there only the second tells. An error is infinite while there is
    too little to tell, and of a sharded model `configurational` is None until it was looked at, every eighth
    step.
    """

    value: float
    error: float
    configurational: Estimate | None

    def __repr__(self) -> str:
        kinetic = _text(Estimate(self.value, self.error))
        return f"Temperature({kinetic}; configurational {_text(self.configurational)})"


def _text(estimate: Estimate | None) -> str:
    """A mean in words."""
    if estimate is None:
        return "not looked at yet"
    if not math.isfinite(estimate.value):
        return "not finite: diverged"
    if not math.isfinite(estimate.error):
        return f"{estimate.value:.4g}, of too few steps for an error"
    return f"{estimate.value:.4g} ± {estimate.error:.1g}"


class Observations:
    """Means over steps of each part, by the number of its group."""

    def __init__(self) -> None:
        self.series: dict[tuple[int, str], BlockAverage] = {}
        self.fixed: dict[int, tuple[int, float]] = {}  # how often γ was noted, and its sum

    def look(self, place: int, group: Group, units: list[StepTensors]) -> None:
        """Note θ·∇L/N of a group before a step, if it is due and the group's temperature is read."""
        if group["step"] % SELDOM and (
            (place, "configurational") in self.series or any(unit.sharded for unit in units)
        ):  # of a sharded model all processes look at once, also where one has forgotten its past
            return
        if not units or units[0].theta[0].is_meta or READ not in units[0].recipe.encoded[:, 0]:
            return
        decay, variance = float(group.get("weight_decay", 0.0)), group.get("noise", 1.0)
        scale = (-1.0 if group["maximize"] else 1.0) / variance  # momenta are in units of its root
        sums, places = [], []
        for unit in (one.alone() for one in units):
            for theta, gradient, shard in zip(unit.theta, unit.gradient, unit.shards, strict=True):
                flat = theta.flatten()
                value = scale * torch.dot(flat, gradient.to(theta).flatten()).double()
                sums.append(value + decay * torch.dot(flat, flat).double() if decay else value)
                places.append(shard)
        (total,) = whole_sums([sums], [places])
        self._add(place, "configurational", total / sum(unit.size for unit in units))

    def temperatures(self, groups: list[Group]) -> dict[str, Temperature]:
        """Of the parts whose temperature is read."""
        beside = self.means("configurational", groups)
        kinetic = self.means("temperature", groups)
        return {part: Temperature(*heat, beside.get(part)) for part, heat in kinetic.items()}

    def note(self, place: int, group: Group, units: list[StepTensors]) -> None:
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
        """The means of the parts that have this series, by their labels; an unknown error is infinite."""
        means = {}
        for place, label in enumerate(labels(groups)):
            if (place, series) in self.series:
                value, error = self.series[place, series].estimate()
                means[label] = Estimate(value, math.inf if math.isnan(error) else error)
            elif series == "friction" and place in self.fixed:
                count, total = self.fixed[place]
                means[label] = Estimate(total / count, 0.0)
        return means

    def _add(self, place: int, series: str, value: float) -> None:
        self.series.setdefault((place, series), BlockAverage()).add(value)


def pooled(estimates: list[Estimate]) -> Estimate:
    """The mean of independent chains; those that have diverged are left out, unless all have."""
    estimates = [estimate for estimate in estimates if math.isfinite(estimate.value)] or estimates
    count = len(estimates)
    return Estimate(
        sum(estimate.value for estimate in estimates) / count,
        math.sqrt(sum(estimate.error**2 for estimate in estimates)) / count,
    )


def mean_heat(temperatures: list[Temperature]) -> Temperature:
    """The mean of independent chains."""
    kinetic = pooled([Estimate(each.value, each.error) for each in temperatures])
    looked = [each.configurational for each in temperatures if each.configurational is not None]
    return Temperature(*kinetic, pooled(looked) if looked else None)


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
