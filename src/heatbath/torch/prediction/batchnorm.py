"""Compute batch-norm statistics for samples of a model, whose running means belong to earlier parameters.

In training mode a batch norm normalises by the statistics of the batch, and keeps running means of them for
evaluation: over the last steps, each of which had different parameters. A sample is one of these steps, so
its own statistics need one more pass over training data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sized
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from heatbath._internal.warnings import StaleStatisticsWarning, warn
from heatbath.torch.data import iterate_inputs
from heatbath.torch.prediction.states import single_module


def find_norms(model: nn.Module) -> dict[str, _NormBase]:
    """Return the submodules that keep running statistics, by name: batch and instance norms."""
    norms: dict[str, _NormBase] = {}
    for name, module in model.named_modules():
        if not isinstance(module, _NormBase):
            continue
        if module.track_running_stats and module.running_mean is not None:
            norms[name] = module
    return norms


def renew_statistics(model: nn.Module, batches: object) -> None:
    """Recompute the batch-norm statistics of a model for its present parameters, in place.

    Means and variances are averaged over the batches, as in `torch.optim.swa_utils.update_bn`. Unlike there,
    everything else is in evaluation mode, so that the statistics are those of the network as it predicts
    (dropout drops nothing). A model without batch norms is left alone.

    Parameters
    ----------
    model
        The module; its running statistics change.
    batches
        Training data: a tensor, an array, or a loader of inputs, or of inputs followed by targets.

    Raises
    ------
    ValueError
        If the loader has no batches. The statistics are then as they were, as after any error.

    Examples
    --------
    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    >>> x = torch.randn(100, 2)
    >>> renew_statistics(model, x)
    >>> bool(torch.allclose(model[1].running_mean, model[0](x).mean(0)))
    True
    """
    norms = find_norms(model)
    if not norms:
        return
    previous = copy_statistics(model)
    batch_count = 0
    try:
        with evaluation_mode(model), _averaging_mode(norms), torch.no_grad():
            for inputs in iterate_inputs(model, batches):
                model(inputs)
                batch_count += 1
        if not batch_count:
            raise ValueError(
                "batch-norm statistics need training data, and the loader has no batches: give one that has"
            )
    except BaseException:
        model.load_state_dict(previous, strict=False)
        raise


@contextmanager
def _averaging_mode(norms: Mapping[str, _NormBase]) -> Iterator[None]:
    """Let norms average the batches of the block with equal weights; restore their momenta when it ends.

    The averages stay. The norms are in training mode then too, which the caller restores.
    """
    momenta = {name: norm.momentum for name, norm in norms.items()}
    try:
        for norm in norms.values():
            norm.reset_running_stats()
            norm.momentum = None  # torch's sign for equal weights
            norm.training = True
        yield
    finally:
        for name, norm in norms.items():
            norm.momentum = momenta[name]


def copy_statistics(model: nn.Module) -> dict[str, Tensor]:
    """Return copies on the CPU of all running statistics, by their names in the model's state."""
    statistics: dict[str, Tensor] = {}
    for prefix, norm in find_norms(model).items():
        for name, tensor in norm.named_buffers(prefix, recurse=False):
            statistics[name] = tensor.to("cpu", copy=True)
    return statistics


def has_training_norms(model: nn.Module) -> bool:
    """Return whether some norm changes its running statistics at every forward pass."""
    return any([norm.training for norm in find_norms(model).values()])


def warn_of_stale_statistics(model: nn.Module, samples: object) -> None:
    """Warn if samples were taken in training mode and their batch-norm statistics were not renewed."""
    stale_steps = getattr(samples, "stale", [])
    if stale_steps and isinstance(samples, Sized):
        warn(
            f"{len(stale_steps)} of {len(samples)} samples of {type(model).__name__} have batch-norm "
            "statistics that are running means over steps of training, not their own: renew them with "
            "training data, as in samples.renew(loader)",
            StaleStatisticsWarning,
        )


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Put a model in evaluation mode; restore the mode of every submodule when the block ends."""
    modules = [*model.modules(), *single_module(model).modules()]
    modes = [(module, module.training) for module in modules]
    try:
        model.eval()
        yield
    finally:
        for module, mode in modes:
            module.training = mode
