"""Predict with samples of a torch model: averages over the samples, or the outputs of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import compress
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from heatbath._internal.checks import NON_NEGATIVE, choice, real, shown
from heatbath._internal.warnings import warn
from heatbath.datasets.problem import Floats
from heatbath.datasets.tasks import TASKS, Task
from heatbath.prediction.ensemble_average import Average, Prediction
from heatbath.torch.data import is_loader, iterate_inputs
from heatbath.torch.optim.chains import Chains
from heatbath.torch.prediction.batchnorm import evaluation_mode, warn_of_stale_statistics
from heatbath.torch.prediction.states import (
    State,
    check_module,
    is_chains,
    names_text,
    select_tensors,
    single_module,
    single_states,
)


def predict(
    model: nn.Module,
    samples: Iterable[State],
    x: object,
    *,
    task: Task,
    noise: float | None = None,
) -> Prediction[Tensor]:
    """Average the predictions of samples of a model: mean, variance and the entropy of the mean.

    The model is in evaluation mode meanwhile. Its own parameters and buffers don't change, nor do the
    samples. One sample is in memory at a time.

    Parameters
    ----------
    model
        A module that returns one tensor (examples, ..., outputs); (examples,) counts as one column. Of
        `heatbath.torch.Chains` the average is over all chains; states that are not finite are left out, with
        a warning.
    samples
        `Samples`, or states of the model as `state_dict` returns them.
    x
        What the model takes: a tensor, or a NumPy array, which is converted to the type of the parameters; or
        a loader of batches, each of inputs alone or of inputs followed by targets. A loader is iterated once,
        so predictions are in the order of its examples.
    task
        The meaning of the outputs. "binary": one logit in each column. "classes": logits along the last axis.
        "regression": values. "counts": logarithms of rates; entropies are those of normal laws with this
        variance.
    noise
        For a regression, the variance of the data around the model's values (if it was sampled, its mean).
        The prediction is then of new data, and its variance includes the noise.

    Returns
    -------
    Prediction
        Means and variances of probabilities, values or rates, with the entropy of the mean and its two parts.

    Raises
    ------
    ValueError
        If there are no samples or no batches, or if the samples are not of this model.
    TypeError
        If the model doesn't return one tensor of floating point.

    Examples
    --------
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
    check_module(model)
    choice("task", task, tuple(TASKS))
    if noise is not None and task != "regression":
        raise ValueError(f"noise is for a regression, and this is {task!r}: leave it out")
    variance = None if noise is None else np.array(real("noise", noise, NON_NEGATIVE))
    warn_of_stale_statistics(model, samples)

    if is_chains(model):
        samples = _finite_states(model, samples)
    if is_loader(x) and isinstance(samples, Iterator):
        samples = list(samples)  # because every batch needs them
    module = single_module(model)
    batches = iterate_inputs(module, x)
    predictions = [_predict_batch(module, samples, inputs, task, variance) for inputs in batches]
    if not predictions:
        raise ValueError("the loader has no batches: there is nothing to predict")

    fields = zip(*predictions, strict=True)
    prediction = Prediction(*map(_concatenate, fields))
    if variance is None:
        return prediction
    output_noise = predictions[0].noise  # the same in all batches: one for each output, not example
    return prediction._replace(noise=torch.from_numpy(output_noise))


def outputs(model: nn.Module, samples: Iterable[State], x: object, *, task: Task) -> Floats:
    """Return the predictions of each sample of a model by itself.

    Parameters
    ----------
    model, samples, x, task
        As in `predict`.

    Returns
    -------
    numpy.ndarray
        Probabilities, values or rates in float64, (chains, samples, examples, ..., outputs). A module that is
        not `Chains` has one chain. Chains that are not finite are NaN.

    Examples
    --------
    >>> import torch
    >>> model = torch.nn.Linear(2, 1)
    >>> states = [model.state_dict()] * 3
    >>> outputs(model, states, torch.ones(5, 2), task="regression").shape
    (1, 3, 5, 1)
    """
    check_module(model)
    choice("task", task, tuple(TASKS))
    module = single_module(model)
    batches = list(iterate_inputs(module, x))
    if not batches:
        raise ValueError("the loader has no batches: there is nothing to predict")

    sample_outputs = []  # of each sample those of its chains, (chains, examples, ..., outputs)
    for sample in samples:
        chain_outputs = []
        for state in single_states(model, sample):
            batch_outputs = [_sample_outputs(module, state, batch, task) for batch in batches]
            chain_outputs.append(np.concatenate(batch_outputs))
        sample_outputs.append(np.stack(chain_outputs))
    if not sample_outputs:
        raise ValueError("there are no samples: take some after the burn-in")
    return np.stack(sample_outputs, axis=1)


def _finite_states(chains: Chains, samples: Iterable[State]) -> Iterator[dict[str, Tensor]]:
    """Yield the states of single chains in samples of all chains, without those that are not finite.

    After the last one, a warning tells how many were left out.

    Parameters
    ----------
    chains
        The chains that the samples were taken of.
    samples
        States of all chains, stacked.

    Raises
    ------
    ValueError
        At the end, if no state was finite.
    """
    state_count = 0
    finite_count = 0
    for sample in samples:
        alive = chains.alive(sample).tolist()
        state_count += len(alive)
        finite_count += alive.count(True)
        yield from compress(chains.states(sample), alive)
    if finite_count == state_count:
        return

    if not finite_count:
        raise ValueError(
            "all chains have diverged: there are no finite samples; choose a smaller stepsize (lr)"
        )
    warn(
        f"{state_count - finite_count} of {state_count} states of the chains are not finite, and are left "
        "out: some chains have diverged"
    )


def _predict_batch(
    model: nn.Module, samples: Iterable[State], inputs: object, task: Task, noise: Floats | None
) -> Prediction[Floats]:
    """Average the predictions of samples for one batch; `noise` is a scalar variance."""
    average = Average(task)
    for state in samples:
        sample_outputs = _sample_outputs(model, state, inputs, task)
        output_noise = None if noise is None else np.full(sample_outputs.shape[1:], noise)
        average.add(sample_outputs, output_noise)
    return average.prediction()


def _concatenate(field: tuple[Floats | None, ...]) -> Any:
    """Return one field of the predictions of all batches as a tensor; None where batches have none."""
    arrays = [array for array in field if array is not None]
    if not arrays:
        return None
    return torch.from_numpy(np.concatenate(arrays))


def _sample_outputs(model: nn.Module, state: State, inputs: object, task: Task) -> Floats:
    """Return the probabilities, values or rates of a model in a state, in evaluation mode."""
    with evaluation_mode(model), torch.no_grad():
        tensors = _complete_state(model, state)
        output = torch.func.functional_call(model, tensors, (inputs,), tie_weights=False)
        return _decode_output(output, task)


def _complete_state(model: nn.Module, state: State) -> dict[str, Tensor]:
    """Return a copy of every tensor of the model, with the sample's values; refuse a sample of another model.

    They are copies, so that a forward pass that changes buffers changes neither the model nor the sample.
    Buffers that are not in the state keep the values of the model.
    """
    if not isinstance(state, Mapping):
        raise TypeError(
            "samples must be Samples, or a list of states such as model.state_dict(); got one that is "
            f"{shown(state)} of type {type(state).__name__}"
        )
    expected = select_tensors(model.state_dict(keep_vars=True))
    sampled = select_tensors(state)
    _check_names_and_shapes(expected, sampled)

    copies: dict[str, Tensor] = {}
    for name, buffer in model.named_buffers(remove_duplicate=False):
        if name not in expected:
            copies[name] = buffer.clone()
    for name, tensor in expected.items():
        copies[name] = sampled[name].to(tensor.device, copy=True)
    return copies


def _check_names_and_shapes(expected: dict[str, Tensor], sampled: dict[str, Tensor]) -> None:
    """Refuse a sample of another model.

    Parameters
    ----------
    expected
        Parameters and buffers of the model, by name.
    sampled
        Those of the sample.

    Raises
    ------
    ValueError
        If names or shapes differ; the message has the first of them.
    """
    missing = [name for name in expected if name not in sampled]
    unknown = [name for name in sampled if name not in expected]
    differences = []
    if missing:
        differences.append(f"they lack {names_text(missing)}")
    if unknown:
        differences.append(f"the model has no {names_text(unknown)}")
    if differences:
        raise ValueError(
            f"the samples are not of this model: {' and '.join(differences)}. Predict with the model that "
            "they were taken from (torch.compile and DistributedDataParallel put a prefix before the names: "
            "use the same wrapper, or none)"
        )

    reshaped = [name for name, tensor in expected.items() if sampled[name].shape != tensor.shape]
    if reshaped:
        sampled_shape = tuple(sampled[reshaped[0]].shape)
        expected_shape = tuple(expected[reshaped[0]].shape)
        raise ValueError(
            f"the samples are not of this model: the shapes of {names_text(reshaped)} differ "
            f"({sampled_shape} in the sample, {expected_shape} in the model)"
        )


def _decode_output(output: object, task: Task) -> Floats:
    """Return the probabilities, values or rates in a model's output, in float64, (examples, ..., columns).

    Outputs without an axis of columns, (examples,), get one.

    Parameters
    ----------
    output
        What the model has returned: logits, values or logarithms of rates, (examples, ..., outputs).
    task
        Meaning of the outputs.

    Raises
    ------
    TypeError
        If it is not one tensor of floating point.
    ValueError
        If it doesn't have two columns or more for "classes".
    """
    if not isinstance(output, torch.Tensor) or not output.is_floating_point() or not output.ndim:
        got = type(output).__name__
        if isinstance(output, torch.Tensor):
            got = f"a tensor of {output.dtype}, {tuple(output.shape)}"
        raise TypeError(
            "the model must return one tensor of logits or values, (examples, outputs), got "
            f"{got}: wrap it in a module whose forward returns that tensor alone"
        )
    if task == "classes" and (output.ndim < 2 or output.shape[-1] < 2):
        raise ValueError(
            "task 'classes' needs a logit for each of two or more classes, (examples, classes), got outputs "
            f"of shape {tuple(output.shape)}: if there is one logit, of the second class, choose "
            "task='binary'"
        )
    columns = output.cpu().double()
    if columns.ndim == 1:
        columns = columns[:, None]
    return TASKS[task].decode_torch(columns).numpy()
