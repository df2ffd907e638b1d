"""What samples of a torch model say together."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from heatbath._internal.checks import NON_NEGATIVE, choice, real, shown
from heatbath.datasets.problem import Floats
from heatbath.datasets.tasks import TASKS, Task
from heatbath.prediction.averages import Average, Prediction
from heatbath.torch.data import batches_of, is_loader
from heatbath.torch.prediction.batchnorm import evaluating, warn_of_statistics
from heatbath.torch.prediction.states import check_module, is_chains, listed, tensors

if TYPE_CHECKING:
    from torch import Tensor, nn


def predict(
    model: nn.Module,
    samples: Iterable[Mapping[str, Any]],
    x: Any,
    *,
    task: Task,
    noise: float | None = None,
) -> Prediction[Tensor]:
    """Mean and variance over samples of what a model says of x, and the entropy of the mean, in two parts.

    The model ends in logits for "binary" (one or more columns of their own) and "classes" (the last axis),
    which become probabilities, in values for "regression" and in logarithms of rates for "counts" (whose
    entropies are those of normal laws with this variance); outputs (examples,) count as one column. Samples
    are `Samples`, or any states of the model as its `state_dict` gives. The model is put in evaluation mode
    for the time, and its own parameters and buffers are not touched, nor are the samples. One sample is in
    memory at a time.

    x is what the model takes: a tensor, or a NumPy array, which is taken in the type of its parameters; or a
    loader of batches, each the inputs alone or the inputs with targets after them, which is gone through
    once, so that predictions are in the order in which it gave the examples.

    Of `heatbath.torch.Chains`, with samples of them, all chains speak together; states that are not finite
    are left out, with a warning.

    With `noise`, the variance of the data around the values of a regression (where it was sampled, its mean),
    the prediction is of new data: their variance has it in it.

    >>> import torch
    >>> from heatbath.torch import Samples
    >>> model = torch.nn.Linear(2, 1)
    >>> samples = Samples(model)
    >>> for _ in range(3):  # in place of three steps of training
    ...     torch.nn.init.normal_(model.weight), samples.take()  # doctest: +ELLIPSIS
    (...)
    (...)
    (...)
    >>> prediction = predict(model, samples, torch.ones(5, 2), task="regression")
    >>> prediction.mean.shape, prediction.sd.shape
    (torch.Size([5, 1]), torch.Size([5, 1]))
    """
    import torch

    check_module(model)
    choice("task", task, tuple(TASKS))
    if noise is not None and task != "regression":
        raise ValueError(f"noise is for a regression, and this is {task!r}: leave it out")
    added = None if noise is None else np.array(real("noise", noise, NON_NEGATIVE))
    warn_of_statistics(model, samples)
    if is_chains(model):
        samples, model = _finite(model, samples), model.model  # type: ignore[assignment]
    if is_loader(x) and isinstance(samples, Iterator):
        samples = list(samples)  # they are needed for every batch
    parts = [_predicted(model, samples, inputs, task, added) for inputs in batches_of(model, x)]
    if not parts:
        raise ValueError("the loader has no batches: there is nothing to predict")
    mean, variance, entropy, expected, information, spread = map(_joined, zip(*parts, strict=True))
    if added is not None:
        spread = torch.from_numpy(parts[0].noise)  # of each output, and not of each example
    return Prediction(mean, variance, entropy, expected, information, spread)


def outputs(model: nn.Module, samples: Iterable[Mapping[str, Any]], x: Any, *, task: Task) -> Floats:
    """What each sample of a model says of x by itself, (chains, samples, examples, outputs), decoded and in
    float64; x, samples and chains are as in `predict`. Chains that are not finite are NaN."""
    check_module(model)
    choice("task", task, tuple(TASKS))
    chains: Any = model
    several = is_chains(model)
    alone = chains.model if several else model
    batches = list(batches_of(alone, x))
    if not batches:
        raise ValueError("the loader has no batches: there is nothing to predict")
    every = [
        [
            np.concatenate([_said(alone, own, batch, task) for batch in batches])
            for own in (chains.states(state) if several else [state])
        ]
        for state in samples
    ]
    if not every:
        raise ValueError("there are no samples: take some after the burn-in")
    return np.stack([np.stack(row) for row in every], axis=1)


def _said(model: nn.Module, state: Mapping[str, Any], inputs: Any, task: Task) -> Floats:
    """What a model in a state says, in evaluation mode."""
    import torch

    with evaluating(model), torch.no_grad():
        values = _values(model, state)
        return _decoded(torch.func.functional_call(model, values, (inputs,), tie_weights=False), task)


def _finite(chains: Any, samples: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Tensor]]:
    """The states of the module in samples of chains, of those that have not diverged."""
    left = kept = 0
    for sample in samples:
        for state, alive in zip(chains.states(sample), chains.alive(sample).tolist(), strict=True):
            if alive:
                kept += 1
                yield state
            else:
                left += 1
    if left and not kept:
        raise ValueError("all chains have diverged: there are no samples that are finite; take a smaller lr")
    if left:
        told = f"{left} of {left + kept} states of the chains are not finite, and are left out"
        warnings.warn(f"{told}: some chains have diverged", RuntimeWarning, stacklevel=3)


def _predicted(
    model: nn.Module, samples: Iterable[Mapping[str, Any]], inputs: Any, task: Task, noise: Floats | None
) -> Prediction[Floats]:
    """What the samples say of some inputs."""
    average = Average(task)
    for state in samples:
        said = _said(model, state, inputs, task)
        average.add(said, None if noise is None else np.full(said.shape[1:], noise))
    return average.prediction()


def _joined(values: tuple[Any, ...]) -> Any:
    """What was said of all batches, one after the other."""
    import torch

    return None if values[0] is None else torch.from_numpy(np.concatenate(values))


def _values(model: nn.Module, state: Mapping[str, Any]) -> dict[str, Tensor]:
    """A copy of every tensor of the model, with the sample's values where the sample has it.

    Copies, so that a forward pass that alters buffers alters neither the model nor the sample.
    """
    if not isinstance(state, Mapping):
        raise TypeError(
            "samples must be Samples, or a list of states such as model.state_dict(); got one that is "
            f"{shown(state)} of type {type(state).__name__}"
        )
    expected, given = tensors(model.state_dict(keep_vars=True)), tensors(state)
    missing = [name for name in expected if name not in given]
    unknown = [name for name in given if name not in expected]
    if missing or unknown:
        wrong = [f"they lack {listed(missing)}"] if missing else []
        wrong += [f"the model has no {listed(unknown)}"] if unknown else []
        raise ValueError(
            f"the samples are not of this model: {' and '.join(wrong)}. Predict with the model that they "
            "were taken of (torch.compile and DistributedDataParallel put a prefix before the names: use the "
            "same wrapper, or none)"
        )
    if other := [name for name, value in expected.items() if given[name].shape != value.shape]:
        raise ValueError(
            f"the samples are not of this model: other shapes have {listed(other)} "
            f"({tuple(given[other[0]].shape)} in the sample, {tuple(expected[other[0]].shape)} in the model)"
        )
    buffers = model.named_buffers(remove_duplicate=False)
    unsampled = {name: value.clone() for name, value in buffers if name not in expected}  # not persistent
    sampled = {name: given[name].to(value.device, copy=True) for name, value in expected.items()}
    return unsampled | sampled


def _decoded(output: Any, task: Task) -> Floats:
    """The probabilities or values in a model's output, in float64."""
    import torch

    if not isinstance(output, torch.Tensor) or not output.is_floating_point() or not output.ndim:
        kind = (
            f"a tensor of {output.dtype}, {tuple(output.shape)}" if isinstance(output, torch.Tensor) else ""
        )
        raise TypeError(
            "the model must return one tensor of logits or values, (examples, outputs), got "
            f"{kind or type(output).__name__}: wrap it in a module whose forward returns that tensor alone"
        )
    if task == "classes" and (output.ndim < 2 or output.shape[-1] < 2):
        raise ValueError(
            "task 'classes' needs a logit for each of two or more classes, (examples, classes), got outputs "
            f"of shape {tuple(output.shape)}: for one logit of the second class say task='binary'"
        )
    values = output.cpu().double()
    values = values[:, None] if values.ndim == 1 else values
    return TASKS[task].decode_torch(values).numpy()
