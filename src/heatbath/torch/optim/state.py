"""Tensors of an optimiser step, grouped by the ξ that they share, and the state of a parameter.

Where parameters have many chains, stacked along their first axis, each chain has tensors of its own.
θ: parameters, p: momenta, ξ: friction of a thermostat, τ: temperature.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from heatbath.torch.optim.param_groups import ParameterState, PlainValues
from heatbath.torch.optim.sharding import Shard, local_part, local_part_of_gradient
from heatbath.torch.optim.step_program import StepProgram, Table

HALF = (torch.float16, torch.bfloat16)
UNSUPPORTED_GRADIENTS = "gradients are not supported: use dense gradients of real parameters"
NOT_READ = -1.0  # p·p of tensors where it was not read
TENSORS = ("momentum", "second", "copy")  # keys in the state of a parameter, as far as its method needs them


@dataclass
class StepTensors:
    """The tensors of a param group that share a ξ, in one step: those of one chain, with a gradient.

    Parameters
    ----------
    program, table
        The program of the step and its coefficients.
    xi, root_tau
        ξ, and the square root of the temperature on a ladder (1 without a ladder).
    seed, step
        Seed of the noise, and number of steps that the group has made.
    chain_number
        Number of the chain in the addresses of the noise.
    chain, chain_count
        Position of the chain in stacked parameters, and the number of chains in them.
    index
        Position of the first parameter in its group.
    parameters, states, shards
        The parameters, their states, and where those of sharded parameters lie.
    theta, p, gradients, second
        What is stepped. Of sharded parameters it is what this process has. θ of half-precision parameters are
        float32 copies; θ whose numbers stand for their negatives are resolved. `second` is empty where the
        method keeps no second moments.
    first_elements
        Positions of the first elements in the numbering of the noise.
    rows
        Rows of the table: 0 in a tensor's first step, 1 later.
    steps
        How often the group was stepped, or the parameter itself where the method counts that.
    kinetic
        p·p where it was last read, `NOT_READ` before.
    size
        Number of elements, in all processes.
    sharded
        True if any of the parameters is sharded.
    """

    program: StepProgram
    table: Table
    xi: float
    root_tau: float
    seed: int
    step: int
    chain_number: int = 0
    chain: int = 0
    chain_count: int = 1
    index: int = 0
    parameters: list[Tensor] = field(default_factory=list)
    states: list[ParameterState] = field(default_factory=list)
    shards: list[Shard | None] = field(default_factory=list)
    theta: list[Tensor] = field(default_factory=list)
    p: list[Tensor] = field(default_factory=list)
    gradients: list[Tensor] = field(default_factory=list)
    second: list[Tensor] = field(default_factory=list)
    first_elements: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    kinetic: float = NOT_READ
    size: int = 0
    sharded: bool = False

    def add(self, parameter: Tensor, state: ParameterState, first_element: int, shard: Shard | None) -> None:
        """Add a parameter that has a gradient.

        Parameters
        ----------
        parameter : Tensor
            The parameter, with all chains stacked.
        state : ParameterState
            Its state, which `prepare_state` has prepared.
        first_element : int
            Position of its first element in the numbering of the noise.
        shard : Shard or None
            Its block in this process, None if all of it is here.
        """
        self.gradients.append(gradient_of(parameter, shard))
        theta = state.get("copy", parameter)
        p = state["momentum"]
        second = state.get("second")
        if shard is None:
            self.size += parameter.numel() // self.chain_count
        else:
            self.size += math.prod(shard.shape)
            self.sharded = True
            theta = local_part(theta, shard).contiguous()  # so that all processes step it in the same way
            p = local_part(p, shard)
            if second is not None:
                second = local_part(second, shard)
        if theta.is_neg():
            theta = theta.detach().resolve_neg()

        self.parameters.append(parameter)
        self.states.append(state)
        self.shards.append(shard)
        self.theta.append(theta)
        self.p.append(p)
        if second is not None:
            self.second.append(second)
        self.first_elements.append(first_element)
        self.rows.append(min(state["step"], 1))
        counts_steps = self.program.method.counts_steps
        self.steps.append(state["step"] if counts_steps else self.step)

    def unstacked(self) -> StepTensors:
        """Return these tensors with the elements of this chain alone, as views of the stacked ones."""
        if self.chain_count == 1:
            return self
        return replace(
            self,
            theta=[theta[self.chain] for theta in self.theta],
            p=[p[self.chain] for p in self.p],
            gradients=[gradient[self.chain] for gradient in self.gradients],
            second=[second[self.chain] for second in self.second],
            chain_count=1,
            chain=0,
        )

    def split_by_row(self) -> list[StepTensors]:
        """Divide these tensors into units in which all have the same row of the table and the same step.

        A plain torch operation has the same coefficients and the same address of the noise for all of its
        tensors.
        """
        positions: dict[tuple[int, int], list[int]] = {}  # of tensors, by their row and step
        for i, row_and_step in enumerate(zip(self.rows, self.steps, strict=True)):
            positions.setdefault(row_and_step, []).append(i)
        if len(positions) == 1:
            return [self]
        return [self._with_tensors(positions[row_and_step]) for row_and_step in sorted(positions)]

    def _with_tensors(self, positions: list[int]) -> StepTensors:
        """Return a copy with the tensors at some positions alone, and what belongs to these."""
        selected: PlainValues = {}
        for name, field_value in vars(self).items():
            if isinstance(field_value, list) and field_value:  # `second` may be empty
                selected[name] = [field_value[i] for i in positions]
        return replace(self, **selected)

    def renew_gradients(self) -> None:
        """Take the gradients that a closure has computed in the middle of a step."""
        if any(parameter.grad is None for parameter in self.parameters):
            raise RuntimeError("within a step the closure must always give gradients to the same parameters")
        self.gradients = list(map(gradient_of, self.parameters, self.shards))

    def write_back(self) -> None:
        """Write stepped copies of θ back into their parameters, and tell autograd that all have changed.

        It is enough to do this for the first chain, whose tensors are those of all chains.
        """
        for parameter, theta, shard in zip(self.parameters, self.theta, self.shards, strict=True):
            stepped = parameter if shard is None else local_part(parameter, shard)
            if theta is not stepped:
                stepped.copy_(theta)
        torch.autograd.graph.increment_version(self.parameters)


def prepare_state(parameter: Tensor, state: ParameterState, *, keeps_second: bool) -> None:
    """Fill the state of a parameter before its first step, and adapt it to a parameter that has changed.

    Momenta of half-precision parameters are float32, with a float32 copy of the parameter beside them.
    Elements that were written into the parameter since the last step are copied again.

    Parameters
    ----------
    parameter : Tensor
        The parameter that is to be stepped.
    state : ParameterState
        Its state in the optimiser, changed in place.
    keeps_second : bool
        Whether the method keeps second moments.

    Raises
    ------
    RuntimeError
        If a tensor of the state has another shape than the parameter.
    """
    is_half = parameter.dtype in HALF
    dtype = torch.float32 if is_half else parameter.dtype
    state["step"] = int(state.get("step", 0))  # others may have replaced it by a tensor
    if "momentum" not in state:
        state["momentum"] = torch.zeros_like(parameter, dtype=dtype)
    if keeps_second and "second" not in state:
        state["second"] = torch.zeros_like(parameter, dtype=dtype)

    if is_half:
        _renew_copy(parameter, state)
    else:
        state.pop("copy", None)

    for name in TENSORS:
        if name not in state:
            continue
        tensor: Tensor = state[name]  # type: ignore[literal-required]
        if tensor.shape != parameter.shape:
            raise RuntimeError(
                f"the {name} of a parameter has shape {tuple(tensor.shape)} and the parameter has "
                f"{tuple(parameter.shape)}: it was replaced, or the state of another model was loaded; make "
                "a new optimiser"
            )
        if tensor.dtype != dtype or tensor.device != parameter.device:
            state[name] = tensor.to(parameter.device, dtype)  # type: ignore[literal-required]


def _renew_copy(parameter: Tensor, state: ParameterState) -> None:
    """Make the float32 copy of a half-precision parameter, or take over what was written since the last step.

    The state is changed in place.
    """
    if "copy" not in state:
        state["copy"] = parameter.detach().to(torch.float32, copy=True)
        return
    was_written = state["copy"].to(parameter.dtype) != parameter
    state["copy"] = torch.where(was_written, parameter.to(torch.float32), state["copy"])


def gradient_of(parameter: Tensor, shard: Shard | None) -> Tensor:
    """Return the gradient of a parameter as it is stepped: dense, and float32 for half precision.

    Parameters
    ----------
    parameter : Tensor
        A parameter that has a gradient.
    shard : Shard or None
        Its block in this process, to which the gradient is cut; None if all of it is here.

    Raises
    ------
    RuntimeError
        If the gradient is sparse or complex.
    """
    gradient = parameter.grad
    assert gradient is not None
    if shard is not None:
        gradient = local_part_of_gradient(parameter, gradient)
    if gradient.is_complex():
        raise RuntimeError(f"complex {UNSUPPORTED_GRADIENTS}")
    if gradient.layout != torch.strided:
        raise RuntimeError(f"sparse {UNSUPPORTED_GRADIENTS}")

    if gradient._is_zerotensor():  # a tensor without memory
        gradient = gradient.clone()
    gradient = gradient.resolve_neg()
    if parameter.dtype in HALF:
        gradient = gradient.float()
    return gradient


def is_lazy(parameter: Tensor) -> bool:
    """Return whether this is a parameter of a lazy module, which has no shape yet."""
    return isinstance(parameter, torch.nn.UninitializedParameter)
