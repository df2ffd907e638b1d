"""What a torch model is given: tensors, arrays, or the batches of a loader."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from torch import nn


def batches_of(model: nn.Module, x: Any) -> Iterator[Any]:
    """The inputs in x, where the model is: of each batch of a loader, or all at once."""
    return (inputs_of(model, batch) for batch in (x if is_loader(x) else [x]))


def is_loader(x: Any) -> bool:
    """Whether it gives batches: a list does if its first is a tensor, or begins with one."""
    from torch import Tensor

    if isinstance(x, list) and x:
        first = x[0][0] if isinstance(x[0], (list, tuple)) and x[0] else x[0]
        return isinstance(first, Tensor)
    return isinstance(x, Iterable) and not isinstance(x, (Tensor, np.ndarray, Mapping, list, tuple, str))


def inputs_of(model: nn.Module, batch: Any) -> Any:
    """What the model is given of a batch: where it is, and numbers of an array in its type."""
    import torch

    if isinstance(batch, list) and batch and isinstance(batch[0], torch.Tensor):
        batch = batch[0]  # targets stand behind it
    elif isinstance(batch, tuple) and batch and isinstance(batch[0], (torch.Tensor, np.ndarray)):
        batch = batch[0]
    like = next((p for p in model.parameters() if p.is_floating_point()), torch.empty(0))
    if isinstance(batch, (np.ndarray, list)):
        batch = torch.as_tensor(np.asarray(batch))
        batch = batch.to(like.dtype) if batch.is_floating_point() else batch
    return batch.to(like.device) if isinstance(batch, torch.Tensor) else batch
