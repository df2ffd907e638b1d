"""Means over the steps of an optimiser: temperature, friction and gradient noise of each part.

θ: parameters, p: momenta, L: loss, N: number of parameters, ξ: friction of a thermostat, τ: temperature.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor

from heatbath.diagnostics.statistics import BlockAverage, Estimate
from heatbath.torch.optim.param_groups import ParamGroup, PlainValues, values_of
from heatbath.torch.optim.sharding import Shard, complete_sums
from heatbath.torch.optim.state import NOT_READ, StepTensors

CONFIGURATIONAL_EVERY = 8  # steps between measurements of θ·∇L, each of which reads all parameters once


class Temperature(NamedTuple):
    """The kinetic temperature of a part with its standard error, and its configurational temperature.

    An adaptive part holds the first at τ by force, whatever θ does, so that there only the second tells.

    Attributes
    ----------
    value : float
        Mean of p·p/N where the thermostat reads it: τ where the law is right.
    error : float
        Its standard error, infinite while there are too few steps for one.
    configurational : Estimate or None
        Mean of θ·∇L/N with the gradients of the loop, prior included: τ where the law is right. Of a sharded
        model it is None until it was measured, at every eighth step.
    """

    value: float
    error: float
    configurational: Estimate | None

    def __repr__(self) -> str:
        kinetic = _text_of(Estimate(self.value, self.error))
        return f"Temperature({kinetic}; configurational {_text_of(self.configurational)})"


def _text_of(estimate: Estimate | None) -> str:
    """Return a mean with its error as text."""
    if estimate is None:
        return "not measured yet"
    if not math.isfinite(estimate.value):
        return "not finite: diverged"
    if not math.isfinite(estimate.error):
        return f"{estimate.value:.4g}, too few steps for an error"
    return f"{estimate.value:.4g} ± {estimate.error:.1g}"


class Observations:
    """Running means of one chain, for each part by the index of its group.

    The series are "temperature" (p·p/N), "configurational" (θ·∇L/N), "friction" and "gradient noise".
    """

    def __init__(self) -> None:
        # by the index of the group and the name of the series
        self.series: defaultdict[tuple[int, str], BlockAverage] = defaultdict(BlockAverage)
        self.fixed_friction: dict[int, tuple[int, float]] = {}  # number of steps, and the sum of γ over them

    def add_before_step(self, index: int, group: ParamGroup, units: list[StepTensors]) -> None:
        """Add θ·∇L/N of a part before its step, if the part's temperature is read and a measurement is due.

        It is due at the first step and every `CONFIGURATIONAL_EVERY` steps. The prior is part of L.

        Parameters
        ----------
        index : int
            Position of the part among the groups.
        group : ParamGroup
            Its group as this chain sees it.
        units : list of StepTensors
            Its tensors in this chain.
        """
        if not units or units[0].theta[0].is_meta or not units[0].program.reads_temperature:
            return
        key = index, "configurational"
        was_measured = key in self.series
        is_due = group["step"] % CONFIGURATIONAL_EVERY == 0
        if not is_due and (was_measured or any([unit.sharded for unit in units])):
            return  # all processes of a sharded model measure at once, even if one has forgotten its past

        terms: list[Tensor] = []
        shards: list[Shard | None] = []
        size = 0
        for unit in units:
            size += unit.size
            shards += unit.shards
            terms += _virials(group, unit)
        (virial,) = complete_sums([terms], [shards])
        self.series[key].add(virial / size)

    def add_after_step(self, index: int, group: ParamGroup, units: list[StepTensors]) -> None:
        """Add p·p/N, the friction and the gradient noise of a part after its step, if p·p was read.

        Parameters
        ----------
        index : int
            Position of the part among the groups.
        group : ParamGroup
            Its group as this chain sees it.
        units : list of StepTensors
            Its tensors in this chain, one unit for each ξ. The friction is the mean over their parameters.
        """
        if not units:
            return
        size = 0
        kinetic = weighted_xi = 0.0
        for unit in units:
            if unit.kinetic == NOT_READ:
                return
            size += unit.size
            kinetic += unit.kinetic
            weighted_xi += unit.xi * unit.size
        self.series[index, "temperature"].add(kinetic / size)

        xi = weighted_xi / size if "xi" in group else None
        method = units[0].program.method
        values = cast(PlainValues, group)
        noise = method.gradient_noise(values, float(group["lr"]), xi)
        if noise is not None:
            variance = group.get("noise", 1.0)  # momenta are in units of its root
            self.series[index, "gradient noise"].add(noise * variance)

        friction = method.friction_on(values, xi)
        if friction is None:
            return
        if xi is not None:
            self.series[index, "friction"].add(friction)
        else:
            step_count, friction_sum = self.fixed_friction.get(index, (0, 0.0))
            self.fixed_friction[index] = step_count + 1, friction_sum + friction

    def means(self, series: str, groups: Sequence[ParamGroup]) -> dict[str, Estimate]:
        """Return the means of a series, by the labels of the parts that have it; an unknown error is inf."""
        means = {}
        for index, label in enumerate(labels(groups)):
            if (index, series) in self.series:
                estimate = self.series[index, series].estimate()
                is_unknown = math.isnan(estimate.error)
                means[label] = estimate._replace(error=math.inf) if is_unknown else estimate
            elif series == "friction" and index in self.fixed_friction:
                step_count, friction_sum = self.fixed_friction[index]
                means[label] = Estimate(friction_sum / step_count, 0.0)
        return means


def _virials(group: ParamGroup, unit: StepTensors) -> list[Tensor]:
    """Return θ·∇L of each tensor of a unit in its chain, with the prior of its group."""
    decay = float(group.get("weight_decay", 0.0))
    sign = -1.0 if group["maximize"] else 1.0
    scale = sign / group.get("noise", 1.0)  # momenta are in units of its root
    virials = []
    for theta, gradient in zip(unit.theta, unit.gradients, strict=True):
        if unit.chain_count > 1:  # stacked tensors of several chains
            theta = theta[unit.chain]
            gradient = gradient[unit.chain]
        flat = theta.flatten()
        virial = scale * torch.dot(flat, gradient.to(theta).flatten()).double()
        if decay:
            virial = virial + decay * torch.dot(flat, flat).double()
        virials.append(virial)
    return virials


def mean_of_chains(estimates: list[Estimate]) -> Estimate:
    """Return the mean of independent chains with its error, without diverged chains unless all diverged."""
    finite_estimates = [estimate for estimate in estimates if math.isfinite(estimate.value)]
    counted = finite_estimates or estimates
    mean = sum(estimate.value for estimate in counted) / len(counted)
    error = math.sqrt(sum(estimate.error**2 for estimate in counted)) / len(counted)
    return Estimate(mean, error)


def labels(groups: Sequence[ParamGroup]) -> list[str]:
    """Return a unique label for each group, the shortest that tells all groups apart.

    Labels are the groups' names, parts or positions; or else "part: name"; or else these with the position.
    """
    names = [str(group.get("name", group.get("part", i))) for i, group in enumerate(groups)]
    full_names = [part_and_name(group) or str(i) for i, group in enumerate(groups)]
    for candidates in (names, full_names):
        if len(set(candidates)) == len(candidates):
            return candidates
    return [f"{full_name} ({i})" for i, full_name in enumerate(full_names)]


def part_and_name(group: ParamGroup) -> str:
    """Return "part: name" of a group, or what it has of the two."""
    return ": ".join(str(values_of(group)[key]) for key in ("part", "name") if key in group)
