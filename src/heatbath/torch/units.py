"""Units: the tensors of a param group that share a ξ, as a step finds them, and the state of a parameter."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from heatbath.methods import find_method
from heatbath.torch.recipes import Recipe, Table

HALF = (torch.float16, torch.bfloat16)
TENSORS = ("momentum", "second", "copy")  # what the state of a parameter has, if its method needs it


@dataclass
class Unit:
    """θ, momenta, gradients and, where the method keeps them, second moments of the tensors with a gradient.

    `table` are the coefficients of the recipe's operations, `rows` the row of it for each tensor: 0 at its
    first step, 1 later. `first` are the positions of their first elements in the numbering of the noise,
    `steps` how often their group was stepped, or they themselves where the method counts that. `kinetic` is
    p·p where it was last read. θ of half-precision parameters are float32 copies.
    """

    recipe: Recipe
    table: Table
    xi: float
    root_tau: float
    seed: int
    step: int
    parameters: list[Tensor] = field(default_factory=list)
    theta: list[Tensor] = field(default_factory=list)
    p: list[Tensor] = field(default_factory=list)
    gradient: list[Tensor] = field(default_factory=list)
    second: list[Tensor] = field(default_factory=list)
    first: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    kinetic: float = -1.0

    @property
    def size(self) -> int:
        """How many parameters are stepped."""
        return sum(tensor.numel() for tensor in self.theta)

    def add(self, group: dict[str, Any], parameter: Tensor, state: dict[str, Any], first: int) -> None:
        """Take in a parameter with its state."""
        self.parameters.append(parameter)
        self.theta.append(state.get("copy", parameter))
        self.p.append(state["momentum"])
        self.gradient.append(gradient_of(parameter))
        if "second" in state:
            self.second.append(state["second"])
        self.first.append(first)
        self.rows.append(min(state["step"], 1))
        self.steps.append(state["step"] if find_method(group["method"]).counts_steps else self.step)

    def alike(self) -> list[Unit]:
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
        self.gradient = list(map(gradient_of, self.parameters))

    def publish(self) -> None:
        """Write copies back into half-precision parameters, and tell autograd that all have changed."""
        for parameter, theta in zip(self.parameters, self.theta, strict=True):
            if theta is not parameter:
                parameter.copy_(theta)
        torch.autograd.graph.increment_version(self.parameters)


def prepare(group: dict[str, Any], parameter: Tensor, state: dict[str, Any]) -> None:
    """Make the state of a parameter before its first step, and fit it to a parameter that has changed.

    Momenta of half-precision parameters are float32, with a float32 copy of the parameter beside them; what
    others have written into the parameter goes into the copy.
    """
    if hasattr(parameter, "placements"):
        raise RuntimeError("parameters sharded over processes (DTensor) are not supported: use whole ones")
    half = parameter.dtype in HALF
    kind = torch.float32 if half else parameter.dtype
    state.setdefault("step", 0)
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


def gradient_of(parameter: Tensor) -> Tensor:
    """The gradient in the type in which the parameter is stepped."""
    gradient = parameter.grad
    assert gradient is not None
    if gradient.is_sparse or gradient.is_complex():
        kind = "sparse" if gradient.is_sparse else "complex"
        raise RuntimeError(f"{kind} gradients are not supported: use dense gradients of real parameters")
    return gradient.float() if parameter.dtype in HALF else gradient


def is_lazy(parameter: Tensor) -> bool:
    """Whether a parameter of a lazy module has no shape yet."""
    return isinstance(parameter, torch.nn.UninitializedParameter)
