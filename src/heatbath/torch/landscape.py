"""Lines and surfaces of torch modules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from heatbath._internal.interrupts import deferred_interrupts
from heatbath.analysis.landscape.grid import Grid, line_weights, surface_weights
from heatbath.datasets.problem import Floats

if TYPE_CHECKING:
    import torch

State: TypeAlias = Mapping[str, "torch.Tensor"]


def line_torch(
    model: torch.nn.Module,
    loss_function: Callable[[torch.nn.Module], Any],
    state_a: State,
    state_b: State,
    alphas: ArrayLike,
) -> xr.Dataset:
    """`loss` of any torch module on the line from one `state_dict` to another.

    `loss_function(model)` gives the loss as one number, without gradients; whether the model is in evaluation
    mode is up to it. Only parameters are mixed. Buffers are those of state_a at every point (the model's own
    where it has none): the statistics of a BatchNorm belong to one network and are wrong for a mixture, so
    for such a model loss_function should take them anew from the training examples.

    The model is afterwards as it was, also after an error or Ctrl-C: parameters, their gradients and
    `requires_grad`, buffers, and modes. Whatever loss_function changes of these is undone after each point.
    """
    grid, weights = line_weights(alphas)
    return _evaluate(model, loss_function, {"state_a": state_a, "state_b": state_b}, grid, weights)


def surface_torch(
    model: torch.nn.Module,
    loss_function: Callable[[torch.nn.Module], Any],
    state_0: State,
    state_a: State,
    state_b: State,
    alphas: ArrayLike,
    betas: ArrayLike,
) -> xr.Dataset:
    """`loss` by α and β on the surface through the start and two minima of a module; see `line_torch`."""
    states = {"state_0": state_0, "state_a": state_a, "state_b": state_b}
    grid, weights = surface_weights(alphas, betas)
    return _evaluate(model, loss_function, states, grid, weights)


def _evaluate(
    model: torch.nn.Module,
    loss_function: Callable[[torch.nn.Module], Any],
    states: Mapping[str, State],
    grid: Grid,
    weights: Floats,
) -> xr.Dataset:
    """The loss of a torch module at mixtures of states, by the axes of the grid."""
    import torch

    if not isinstance(model, torch.nn.Module) or not callable(loss_function):
        raise TypeError(
            f"a torch module and a function of it are needed, got {model!r} and {loss_function!r}"
        )
    for label, state in states.items():
        _check(model, label, state)
    corners = {}
    for name, p in model.named_parameters():
        wide = torch.promote_types(p.dtype, torch.float32)  # so that half precision is rounded once
        corners[name] = [state[name].detach().to(p.device, wide) for state in states.values()]
    losses = []
    with torch.no_grad():
        for point in weights.tolist():
            with _restored(model):
                for name, p in model.named_parameters():
                    mixture = reduce(
                        add, (w * corner for w, corner in zip(point, corners[name], strict=True))
                    )
                    p.data, p.grad = mixture.to(p.dtype), None
                _place_buffers(model, states["state_a"])
                losses.append(_number(loss_function(model)))
    shape = [len(axis) for axis in grid.values()]
    return xr.Dataset({"loss": (tuple(grid), np.reshape(losses, shape))}, grid)


@contextmanager
def _restored(model: torch.nn.Module) -> Iterator[None]:
    """Within, a model may be changed; afterwards its tensors are the same again, not only equal.

    Parameters get their memory back, so that neither an optimiser nor a graph that was there before notices.
    """
    parameters = [(p, p.data, p.grad, p.requires_grad) for p in model.parameters()]
    buffers = list(_buffers(model))
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        with deferred_interrupts() as interrupted:
            for p, data, grad, required in parameters:
                p.data, p.grad = data, grad
                p.requires_grad_(required)
            for module, _, name, buffer in buffers:
                setattr(module, name, buffer)
            for module, training in modes:
                module.training = training
        if interrupted():
            raise KeyboardInterrupt


def _buffers(model: torch.nn.Module) -> Iterator[tuple[torch.nn.Module, str, str, torch.Tensor]]:
    """Each buffer with its module, its name in the model and its name in the module."""
    for prefix, module in model.named_modules():
        for name, buffer in module.named_buffers(recurse=False, remove_duplicate=False):
            yield module, f"{prefix}.{name}" if prefix else name, name, buffer


def _place_buffers(model: torch.nn.Module, state: State) -> None:
    """Give a model copies of a state's buffers, or of its own; those that were one tensor are one again."""
    copies: dict[int, torch.Tensor] = {}
    for module, full, name, buffer in list(_buffers(model)):
        if id(buffer) not in copies:
            copies[id(buffer)] = state.get(full, buffer).detach().to(buffer.device, buffer.dtype, copy=True)
        setattr(module, name, copies[id(buffer)])


def _check(model: torch.nn.Module, label: str, state: object) -> None:
    """Refuse a state that is not one of this model."""
    import torch

    if not isinstance(state, Mapping):
        raise TypeError(f"{label} must be a state_dict, names with tensors, got {type(state).__name__}")
    parameters = dict(model.named_parameters())
    known = {**model.state_dict(), **dict(model.named_buffers()), **parameters}
    lacking = [name for name in parameters if not isinstance(state.get(name), torch.Tensor)]
    wrong = [n for n, v in state.items() if n not in known or np.shape(v) != np.shape(known[n])]
    if lacking or wrong:
        raise ValueError(
            f"{label} is not a state of this model: it lacks {lacking}, and {wrong} are not in the model or "
            "have another shape there; take it as model.state_dict()"
        )


def _number(loss: Any) -> float:
    try:
        return float(loss)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(
            f"loss_function must return one number, such as a mean over examples, got {loss!r}"
        ) from None
