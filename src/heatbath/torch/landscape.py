"""Evaluate the loss of a torch module on lines and surfaces through its states.

A point mixes the parameters of two or three states with weights that sum to 1; its coordinates are α, and β
on a surface.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from operator import add
from typing import NamedTuple, SupportsFloat, TypeAlias

import numpy as np
import torch
import xarray as xr
from numpy.typing import ArrayLike

from heatbath._internal.interrupts import deferred_interrupts
from heatbath.analysis.landscape.grid import Grid, line_weights, surface_weights
from heatbath.datasets.problem import Floats

State: TypeAlias = Mapping[str, "torch.Tensor"]
ModuleLoss: TypeAlias = "Callable[[torch.nn.Module], SupportsFloat]"


def line_torch(
    model: torch.nn.Module,
    loss_function: ModuleLoss,
    state_a: State,
    state_b: State,
    alphas: ArrayLike,
) -> xr.Dataset:
    """Evaluate the loss of a torch module on the line from one state to another.

    Only parameters are mixed. The statistics of a batch norm belong to one network and are wrong for a
    mixture, so for such a model `loss_function` should compute them from the training examples.

    The model is left as it was, also after an error or Ctrl-C: parameters, their gradients and
    `requires_grad`, buffers, and modes. Changes that `loss_function` makes to these are undone after each
    point.

    Parameters
    ----------
    model
        Any module.
    loss_function
        `loss_function(model)` returns the loss as one number. It runs without gradients, and decides itself
        whether the model is in evaluation mode.
    state_a, state_b
        Ends of the line, as `model.state_dict()` returns them: α = 0 and α = 1. Buffers are those of state_a
        at every point, and the model's own where state_a has none.
    alphas
        Increasing values of α.

    Returns
    -------
    xarray.Dataset
        `loss` by `alpha`.

    Raises
    ------
    ValueError
        If a state is not one of this model.
    TypeError
        If the loss is not one number, or an argument has the wrong type.

    Examples
    --------
    >>> import torch
    >>> model = torch.nn.Linear(1, 1)
    >>> states = [{"weight": torch.full((1, 1), w), "bias": torch.zeros(1)} for w in (0.0, 1.0)]
    >>> x = torch.ones(3, 1)
    >>> line = line_torch(model, lambda model: model(x).mean(), *states, alphas=[0.0, 0.5, 1.0])
    >>> line.loss.values.tolist()
    [0.0, 0.5, 1.0]
    """
    grid, weights = line_weights(alphas)
    return _evaluate(model, loss_function, {"state_a": state_a, "state_b": state_b}, grid, weights)


def surface_torch(
    model: torch.nn.Module,
    loss_function: ModuleLoss,
    state_0: State,
    state_a: State,
    state_b: State,
    alphas: ArrayLike,
    betas: ArrayLike,
) -> xr.Dataset:
    """Evaluate the loss of a torch module on the surface through a start and two minima.

    The parameters at (α, β) are (1-α) θ_0 + α (β θ_a + (1-β) θ_b). Buffers are those of state_a.

    Parameters
    ----------
    model, loss_function
        As in `line_torch`.
    state_0, state_a, state_b
        The start and the two minima.
    alphas, betas
        Increasing values of α and β.

    Returns
    -------
    xarray.Dataset
        `loss` by `alpha` and `beta`.

    Examples
    --------
    >>> import torch
    >>> model = torch.nn.Linear(1, 1)
    >>> states = [{"weight": torch.full((1, 1), w), "bias": torch.zeros(1)} for w in (0.0, 1.0, 2.0)]
    >>> x = torch.ones(3, 1)
    >>> ends = [0.0, 1.0]
    >>> surface = surface_torch(model, lambda model: model(x).mean(), *states, alphas=ends, betas=ends)
    >>> surface.loss.values.tolist()
    [[0.0, 0.0], [2.0, 1.0]]
    """
    states = {"state_0": state_0, "state_a": state_a, "state_b": state_b}
    grid, weights = surface_weights(alphas, betas)
    return _evaluate(model, loss_function, states, grid, weights)


def _evaluate(
    model: torch.nn.Module,
    loss_function: ModuleLoss,
    states: Mapping[str, State],
    grid: Grid,
    weights: Floats,
) -> xr.Dataset:
    """Return the loss at every point of a grid.

    Parameters
    ----------
    model, loss_function
        As in `line_torch`.
    states
        The states to mix, by the names of the arguments they were given as.
    grid
        The axes.
    weights
        Weight of each state at each point of the grid, (points, states).

    Returns
    -------
    xarray.Dataset
        `loss` by the axes of the grid.
    """
    if not isinstance(model, torch.nn.Module) or not callable(loss_function):
        raise TypeError(
            f"a torch module and a function of it are needed, got {model!r} and {loss_function!r}"
        )
    for label, state in states.items():
        _check_state(model, label, state)

    corners = {}  # tensors of all states, by the name of the parameter
    for name, p in model.named_parameters():
        wide_type = torch.promote_types(p.dtype, torch.float32)  # so that half precision is rounded once
        corners[name] = [state[name].detach().to(p.device, wide_type) for state in states.values()]

    losses = []
    for point_weights in weights.tolist():
        with torch.no_grad(), _restored(model):
            _mix_parameters(model, corners, point_weights)
            _set_buffers(model, states["state_a"])
            losses.append(_as_number(loss_function(model)))

    shape = [len(axis) for axis in grid.values()]
    return xr.Dataset({"loss": (tuple(grid), np.reshape(losses, shape))}, grid)


def _mix_parameters(
    model: torch.nn.Module, corners: Mapping[str, list[torch.Tensor]], weights: list[float]
) -> None:
    """Set the parameters of a model to the sums of their corners with these weights; drop their gradients.

    Parameters
    ----------
    model
        The model, which is changed.
    corners
        Tensors of all states, by the name of the parameter.
    weights
        Weight of each state.
    """
    for name, p in model.named_parameters():
        terms = [weight * corner for weight, corner in zip(weights, corners[name], strict=True)]
        p.data = reduce(add, terms).to(p.dtype)
        p.grad = None


@contextmanager
def _restored(model: torch.nn.Module) -> Iterator[None]:
    """Undo all changes to a model when the block ends, also after an error.

    Parameters get back their memory, gradients and `requires_grad`, buffers their tensors, and submodules
    their modes: tensors are the same, not only equal, so that neither an optimiser nor an existing graph
    notices. Ctrl-C waits until this is done.
    """
    parameters = [(p, p.data, p.grad, p.requires_grad) for p in model.parameters()]
    buffers = list(_buffers(model))
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        with deferred_interrupts() as interrupted:
            for p, data, gradient, requires_grad in parameters:
                p.data = data
                p.grad = gradient
                p.requires_grad_(requires_grad)
            for buffer in buffers:
                setattr(buffer.module, buffer.name, buffer.tensor)
            for module, is_training in modes:
                module.training = is_training
        if interrupted():
            raise KeyboardInterrupt


class _Buffer(NamedTuple):
    """A buffer, its name in the model, and the submodule and name under which it is an attribute."""

    full_name: str
    module: torch.nn.Module
    name: str
    tensor: torch.Tensor


def _buffers(model: torch.nn.Module) -> Iterator[_Buffer]:
    """Yield the buffers of all submodules; a shared buffer comes once for each of its names."""
    for module_name, module in model.named_modules():
        prefix = f"{module_name}." if module_name else ""
        for name, tensor in module.named_buffers(recurse=False, remove_duplicate=False):
            yield _Buffer(prefix + name, module, name, tensor)


def _set_buffers(model: torch.nn.Module, state: State) -> None:
    """Replace the buffers of a model by copies of a state's, or of its own; shared ones stay shared."""
    copies: dict[int, torch.Tensor] = {}
    for full_name, module, name, tensor in list(_buffers(model)):
        if id(tensor) not in copies:
            source = state.get(full_name, tensor).detach()
            copies[id(tensor)] = source.to(tensor.device, tensor.dtype, copy=True)
        setattr(module, name, copies[id(tensor)])


def _check_state(model: torch.nn.Module, label: str, state: object) -> None:
    """Refuse a state that is not one of this model: it must have all parameters, and nothing unknown.

    `label` is the name of the argument that it was given as.
    """
    if not isinstance(state, Mapping):
        raise TypeError(f"{label} must be a state_dict, names with tensors, got {type(state).__name__}")

    parameters = dict(model.named_parameters())
    model_tensors = {**model.state_dict(), **dict(model.named_buffers()), **parameters}
    shapes = {name: np.shape(tensor) for name, tensor in model_tensors.items()}
    missing = [name for name in parameters if not isinstance(state.get(name), torch.Tensor)]
    unfit = [name for name, value in state.items() if shapes.get(name) != np.shape(value)]
    if missing or unfit:
        raise ValueError(
            f"{label} is not a state of this model: it lacks {missing}, and {unfit} are not in the model "
            "or have another shape there; take it as model.state_dict()"
        )


def _as_number(loss: SupportsFloat) -> float:
    """Return a loss as a float, and refuse what isn't one number."""
    try:
        return float(loss)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(
            f"loss_function must return one number, such as a mean over examples, got {loss!r}"
        ) from None
