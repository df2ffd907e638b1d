"""State dicts of a module: check them, compare them, and tell chains from single modules."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from heatbath._internal.checks import shown

if TYPE_CHECKING:
    from torch import Tensor

ROUNDING = 1e-12  # relative, of sums in double
EXTRA = "_extra_state"  # torch's name for what get_extra_state returns: anything, so it is not kept


def whole_tensor(value: Any) -> Tensor:
    """A tensor, gathered where it is sharded over processes."""
    tensor: Tensor = value.detach()
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def is_frozen(value: Any) -> bool:
    """Whether it is a parameter that does not move."""
    from torch import nn

    return isinstance(value, nn.Parameter) and not value.requires_grad


def likeness(value: Any) -> list[float]:
    """Two numbers by which a change of a tensor is seen: its sum and its norm."""
    import torch

    tensor = whole_tensor(value)
    if not tensor.numel():
        return [0.0, 0.0]
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    wide = torch.float64 if tensor.is_floating_point() else torch.int64
    total = torch.sum(tensor, dtype=wide)
    size = torch.linalg.vector_norm(tensor.flatten().to(torch.float64))
    return [float(total), float(size)]


def is_like(value: Any, old: list[float]) -> bool:
    """Whether a tensor has the sum and the norm that it had, but for the order in which they were added up,
    which depends on threads and devices: in double that is some 1e-16 of the sum of sizes, at most √n norms.
    """
    total, size = likeness(value)
    bounds = ROUNDING * math.sqrt(2 * value.numel()) * old[1], ROUNDING * old[1]
    return abs(total - old[0]) <= bounds[0] and abs(size - old[1]) <= bounds[1]


def check_module(model: object) -> None:
    """Refuse what is not a torch module."""
    from torch import nn

    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch module, got {shown(model)}")


def is_chains(model: object) -> bool:
    """Whether it is `heatbath.torch.Chains`, many chains of a module: its class says so, as modules may have
    attributes of any name."""
    return getattr(type(model), "are_chains", False) is True


def tensors(state: Mapping[str, Any]) -> dict[str, Tensor]:
    """The parameters and buffers in a state: what is no tensor is left out, and so is extra state."""
    from torch import Tensor

    return {
        name: value
        for name, value in state.items()
        if isinstance(value, Tensor) and name.rpartition(".")[2] != EXTRA
    }


def listed(names: list[str], most: int = 5) -> str:
    """Some names, for an error."""
    text = ", ".join(map(repr, names[:most])) or "none"
    return text + (f" and {len(names) - most} more" if len(names) > most else "")


def text_of(settings: Mapping[str, object]) -> str:
    """Return settings as "name=value, ..." for messages."""
    return ", ".join(f"{name}={value!r}" for name, value in settings.items())
