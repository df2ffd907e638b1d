"""Units: the tensors of a param group that share a ξ, as a step finds them, and the state of a parameter.

Where parameters have many chains, stacked along their first axis, each chain has units of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from heatbath.methods import find_method
from heatbath.torch.optim.sharding import Shard, local, sharded_like
from heatbath.torch.optim.step_program import Recipe, Table

HALF = (torch.float16, torch.bfloat16)
TENSORS = ("momentum", "second", "copy")  # what the state of a parameter has, if its method needs it


@dataclass
class StepTensors:
    """θ, momenta, gradients and, where the method keeps them, second moments of the tensors with a gradient.

    Of parameters that are sharded over processes they are what is here, and `shards` says where that lies.
    `table` are the coefficients of the recipe's operations, `rows` the row of it for each tensor: 0 at its
    first step, 1 later. `first` are the positions of their first elements in the numbering of the noise,
    `steps` how often their group was stepped, or they themselves where the method counts that. `kinetic` is
    p·p where it was last read, `size` how many parameters are stepped, in all processes. θ of half-precision
    parameters are float32 copies, and of those whose numbers stand for their negatives the numbers
    themselves. `number` is that of the chain in the noise. Of stacked parameters the tensors are those of all
    `chains`, and this is the one at `place` in them. `index` is the first parameter's number in its group.
    """

    recipe: Recipe
    table: Table
    xi: float
    root_tau: float
    seed: int
    step: int
    parameters: list[Tensor] = field(default_factory=list)
    states: list[dict[str, Any]] = field(default_factory=list)
    shards: list[Shard | None] = field(default_factory=list)
    theta: list[Tensor] = field(default_factory=list)
    p: list[Tensor] = field(default_factory=list)
    gradient: list[Tensor] = field(default_factory=list)
    second: list[Tensor] = field(default_factory=list)
    first: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    kinetic: float = -1.0
    size: int = 0
    sharded: bool = False
    number: int = 0
    chains: int = 1
    place: int = 0
    index: int = 0

    @property
    def is_first(self) -> bool:
        """Whether it is of the first chain, or the only one."""
        return self.place == 0

    def alone(self) -> StepTensors:
        """This unit of one chain with tensors of its own, which are views."""
        if self.chains == 1:
            return self
        names = ("theta", "p", "gradient", "second")
        own: dict[str, Any] = {n: [tensor[self.place] for tensor in getattr(self, n)] for n in names}
        return replace(self, **own, chains=1, place=0)

    def add(
        self, group: dict[str, Any], parameter: Tensor, state: dict[str, Any], first: int, shard: Shard | None
    ) -> None:
        """Take in a parameter with its state."""
        gradient = gradient_of(parameter, shard)
        found = [state.get("copy", parameter), state["momentum"]]
        if "second" in state:
            found.append(state["second"])
        theta, p, *second = found if shard is None else (local(tensor, shard) for tensor in found)
        if shard is not None:  # so that all processes take the same way
            theta = theta.contiguous()
        self.parameters.append(parameter)
        self.states.append(state)
        self.size += parameter.numel() // self.chains if shard is None else math.prod(shard.shape)
        self.shards.append(shard)
        self.sharded |= shard is not None
        self.theta.append(theta.detach().resolve_neg() if theta.is_neg() else theta)
        self.p.append(p)
        self.gradient.append(gradient)
        self.second += second
        self.first.append(first)
        self.rows.append(min(state["step"], 1))
        self.steps.append(state["step"] if find_method(group["method"]).counts_steps else self.step)

    def alike(self) -> list[StepTensors]:
        """Units of the tensors that have the same row and step."""
        kinds = list(zip(self.rows, self.steps, strict=True))
        if len(set(kinds)) == 1:
            return [self]
        units = []
        for kind in sorted(set(kinds)):
            chosen = [i for i, other in enumerate(kinds) if other == kind]
            lists: dict[str, Any] = {
                name: [value[i] for i in chosen]
                for name, value in vars(self).items()
                if isinstance(value, list) and value
            }
            units.append(replace(self, **lists))
        return units

    def renew_gradients(self) -> None:
        """Take the gradients that a closure has made in the middle of a step."""
        if any(parameter.grad is None for parameter in self.parameters):
            raise RuntimeError("the closure must make the same gradients every time within a step")
        self.gradient = list(map(gradient_of, self.parameters, self.shards))

    def publish(self) -> None:
        """Write copies back into parameters (of half precision, or with the negative bit), and tell autograd
        that all have changed. The first chain does so for all."""
        if not self.is_first:
            return
        for parameter, theta, shard in zip(self.parameters, self.theta, self.shards, strict=True):
            home = parameter if shard is None else local(parameter, shard)
            if theta is not home:
                home.copy_(theta)
        torch.autograd.graph.increment_version(self.parameters)


def prepare(group: dict[str, Any], parameter: Tensor, state: dict[str, Any]) -> None:
    """Make the state of a parameter before its first step, and fit it to a parameter that has changed.

    Momenta of half-precision parameters are float32, with a float32 copy of the parameter beside them; what
    others have written into the parameter goes into the copy.
    """
    half = parameter.dtype in HALF
    kind = torch.float32 if half else parameter.dtype
    state["step"] = int(state.get("step", 0))  # others may have made a tensor of it
    if "momentum" not in state:
        state["momentum"] = torch.zeros_like(parameter, dtype=kind)
    if find_method(group["method"]).keeps_second and "second" not in state:
        state["second"] = torch.zeros_like(parameter, dtype=kind)
    if half and "copy" not in state:
        state["copy"] = parameter.detach().to(kind, copy=True)
    elif half:
        written = state["copy"].to(parameter.dtype) != parameter
        state["copy"] = torch.where(written, parameter.to(kind), state["copy"])
    else:
        state.pop("copy", None)
    for name in TENSORS:
        if name not in state:
            continue
        if state[name].shape != parameter.shape:
            raise RuntimeError(
                f"the {name} of a parameter has shape {tuple(state[name].shape)} and the parameter has "
                f"{tuple(parameter.shape)}: it was replaced, or the state of another model was loaded; make "
                "a new optimiser"
            )
        if state[name].dtype != kind or state[name].device != parameter.device:
            state[name] = state[name].to(parameter.device, kind)


def gradient_of(parameter: Tensor, shard: Shard | None) -> Tensor:
    """The gradient in the type in which the parameter is stepped, with numbers that mean what they are."""
    gradient = parameter.grad
    assert gradient is not None
    if shard is not None:
        gradient = sharded_like(parameter, gradient)
    if gradient.layout != torch.strided or gradient.is_complex():
        kind = "complex" if gradient.is_complex() else "sparse"
        raise RuntimeError(f"{kind} gradients are not supported: use dense gradients of real parameters")
    if gradient._is_zerotensor():  # which has no numbers
        gradient = gradient.clone()
    gradient = gradient.resolve_neg()
    return gradient.float() if parameter.dtype in HALF else gradient


def is_lazy(parameter: Tensor) -> bool:
    """Whether a parameter of a lazy module has no shape yet."""
    return isinstance(parameter, torch.nn.UninitializedParameter)
