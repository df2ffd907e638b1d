"""Statistics of batch norms: those that a model has from training are not those of its samples.

In training mode a batch norm divides by what it finds in the batch, and keeps running means of that for
evaluation: over the last steps, each of which had other parameters. A sample is one of them, so its
statistics are renewed by passing training data through it once more.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from heatbath.torch.data import batches_of

if TYPE_CHECKING:
    from torch import Tensor, nn
from heatbath._internal.warnings import StaleStatisticsWarning


def norms_of(model: nn.Module) -> dict[str, Any]:
    """The norms that keep running statistics, by their names."""
    from torch import nn

    kept = nn.modules.batchnorm._NormBase
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, kept) and module.track_running_stats and module.running_mean is not None
    }


def renew_statistics(model: nn.Module, batches: Any) -> None:
    """Give the batch norms of a model the statistics that its parameters have on some training data.

    `batches` are a tensor, an array, or a loader of inputs, or of inputs with targets after them. Means and
    variances are those of the batches, averaged, as in `torch.optim.swa_utils.update_bn`; but all else is in
    evaluation mode, so that they are those of the network as it predicts (dropout drops nothing). Without
    batch norms nothing is done.

    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    >>> x = torch.randn(100, 2)
    >>> renew_statistics(model, x)
    >>> bool(torch.allclose(model[1].running_mean, model[0](x).mean(0)))
    True
    """
    import torch

    norms = norms_of(model)
    if not norms:
        return
    before = statistics_of(model)
    momenta = {name: norm.momentum for name, norm in norms.items()}
    count = 0
    try:
        with evaluating(model), torch.no_grad():
            for norm in norms.values():
                norm.reset_running_stats()
                norm.momentum = None  # the mean over all batches
                norm.training = True
            for inputs in batches_of(model, batches):
                model(inputs)
                count += 1
        if not count:
            raise ValueError("statistics cannot be renewed without training data: the loader has no batches")
    except BaseException:
        model.load_state_dict(before, strict=False)
        raise
    finally:
        for name, norm in norms.items():
            norm.momentum = momenta[name]


def statistics_of(model: nn.Module) -> dict[str, Tensor]:
    """Copies of all that norms have found, by its names in the model's state, on the CPU."""
    return {
        f"{name}.{key}" if name else key: value.to("cpu", copy=True)
        for name, norm in norms_of(model).items()
        for key, value in norm.named_buffers(recurse=False)
    }


def are_training(model: nn.Module) -> bool:
    """Whether there are norms that change their statistics with every pass."""
    return any(norm.training for norm in norms_of(model).values())


def warn_of_statistics(model: nn.Module, samples: Any) -> None:
    """Warn of samples that were taken in training mode, and whose statistics were not renewed."""
    if stale := getattr(samples, "stale", []):
        warnings.warn(
            f"the batch norms of {type(model).__name__} have running means over the steps of training in "
            f"{len(stale)} of {len(samples)} samples, and not statistics of their own: renew them, as in "
            "samples.renew(loader), with training data",
            StaleStatisticsWarning,
            stacklevel=3,
        )


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode within; afterwards every module is in the mode it was in."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        yield
    finally:
        for module, mode in modes:
            module.training = mode
