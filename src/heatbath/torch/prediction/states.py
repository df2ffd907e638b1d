"""State dicts of a module: select their tensors, detect changes, and tell chains from single modules."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeGuard

import torch
from torch import Tensor, nn

from heatbath._internal.checks import shown

if TYPE_CHECKING:
    from heatbath.torch.optim.chains import Chains

State: TypeAlias = Mapping[str, object]  # of a module by name: tensors, and what get_extra_state returned
ROUNDING = 1e-12  # relative difference of two sums in double precision that were added up in different orders
EXTRA_STATE = "_extra_state"  # torch's name for the result of get_extra_state, which can be anything


def gather_tensor(value: Tensor) -> Tensor:
    """Return a tensor without its graph, gathered from all processes where it is sharded (`DTensor`)."""
    tensor = value.detach()
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


class Fingerprint(NamedTuple):
    """Sum and norm of a tensor: two numbers that change when the tensor changes."""

    total: float
    norm: float


def fingerprint(value: Tensor) -> Fingerprint:
    """Return sum and norm of a tensor.

    Both are computed in double precision, but the sum of integers in 64-bit integers. Real and imaginary
    parts of a complex tensor count as elements. A tensor without elements has 0 and 0.
    """
    tensor = gather_tensor(value)
    if not tensor.numel():
        return Fingerprint(0.0, 0.0)
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    wide_type = torch.float64 if tensor.is_floating_point() else torch.int64
    element_sum = torch.sum(tensor, dtype=wide_type)
    norm = torch.linalg.vector_norm(tensor.flatten().to(torch.float64))
    return Fingerprint(float(element_sum), float(norm))


def has_fingerprint(value: Tensor, recorded: Fingerprint) -> bool:
    """Return whether a tensor still has the sum and the norm that were recorded, up to rounding.

    The order of summation depends on threads and devices. In double precision that changes the sum by some
    1e-16 of the sum of absolute values, which is at most √n norms.
    """
    present = fingerprint(value)
    tolerance = ROUNDING * recorded.norm
    sum_agrees = abs(present.total - recorded.total) <= tolerance * math.sqrt(2 * value.numel())
    return sum_agrees and abs(present.norm - recorded.norm) <= tolerance


def check_module(model: object) -> None:
    """Refuse what is not a torch module."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch module, got {shown(model)}")


def is_chains(model: object) -> TypeGuard[Chains]:
    """Return whether this is a `heatbath.torch.Chains`.

    Its class says so, because a module may have an attribute of any name.
    """
    return getattr(type(model), "are_chains", False) is True


def single_module(model: nn.Module) -> nn.Module:
    """Return the module of which `Chains` are copies; any other module is returned as it is."""
    return model.model if is_chains(model) else model


def single_states(model: nn.Module, sample: State) -> Iterable[Mapping[str, Any]]:
    """Return the states of single modules in a sample: of each chain of `Chains`, otherwise the sample."""
    return model.states(sample) if is_chains(model) else [sample]


def select_tensors(state: State) -> dict[str, Tensor]:
    """Return parameters and buffers of a state by name, without extra state and without other objects."""
    tensors: dict[str, Tensor] = {}
    for name, value in state.items():
        _, _, last_part = name.rpartition(".")
        if isinstance(value, Tensor) and last_part != EXTRA_STATE:
            tensors[name] = value
    return tensors


def names_text(names: list[str], limit: int = 5) -> str:
    """Return the first names of a list as text for a message, and how many are left out."""
    text = ", ".join(map(repr, names[:limit])) or "none"
    if len(names) > limit:
        text += f" and {len(names) - limit} more"
    return text


def settings_text(settings: Mapping[str, object]) -> str:
    """Return settings as "name=value, ..." for messages."""
    return ", ".join(f"{name}={value!r}" for name, value in settings.items())
