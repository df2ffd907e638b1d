"""Data for torch modules: tensors, NumPy arrays or loaders, checked and cut into batches.

It also checks that a module, a loss, a task and data fit together, and makes what loaders draw at random
reproducible.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Any, NamedTuple, TypeAlias, TypeGuard

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from heatbath._internal.checks import SHARE, is_real, shown, whole
from heatbath.datasets.tasks import TASKS, Task

Data: TypeAlias = tuple[Tensor, Tensor] | Iterable[tuple[Tensor, Tensor]]
LossFunction: TypeAlias = Callable[[Tensor, Tensor], Tensor]

DEFAULT_BATCH = 32  # examples per training step, where data are tensors
CHUNK_SIZE = 1000  # examples per forward pass without gradients, which bounds the memory it needs
TASK_LOSSES: dict[Task, LossFunction] = {
    "binary": lambda outputs, targets: functional.binary_cross_entropy_with_logits(
        outputs, targets.to(outputs.dtype)
    ),
    "classes": lambda outputs, targets: functional.cross_entropy(outputs, targets.long()),
    "regression": lambda outputs, targets: functional.mse_loss(outputs, targets.to(outputs.dtype)),
    "counts": lambda outputs, targets: functional.poisson_nll_loss(outputs, targets.to(outputs.dtype)),
}
# What torch raises where a module or a loss doesn't accept its arguments
TORCH_ERRORS = (RuntimeError, TypeError, ValueError, IndexError, AttributeError, KeyError)
LOADER = "a loader that can be iterated repeatedly, such as a DataLoader or a list of batches"


# Recognise what was given


def is_loader(data: object, *, repeatable: bool = False) -> TypeGuard[Iterable[Any]]:
    """Return whether data are batches: a loader, or a list whose first element is a batch.

    With `repeatable`, an iterator, which can be gone through once only, is not accepted.
    """
    if repeatable and isinstance(data, Iterator):
        return False
    if isinstance(data, list):
        if not data:
            return repeatable  # training has its own message for a loader without batches
        first_inputs = data[0]
        if isinstance(first_inputs, (list, tuple)) and first_inputs:
            first_inputs = first_inputs[0]
        return isinstance(first_inputs, (Tensor, Mapping))
    return isinstance(data, Iterable) and not isinstance(data, (Tensor, np.ndarray, Mapping, tuple, str))


def is_pair(data: object) -> TypeGuard[tuple[Tensor, Tensor]]:
    """Return whether data are two tensors, inputs and targets, each with an axis of examples."""
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        return False
    return all(isinstance(tensor, Tensor) and tensor.ndim > 0 for tensor in data)


def check_batch(batch: object) -> tuple[Tensor, Tensor]:
    """Return a batch of a loader, and refuse one that isn't (inputs, targets) of equal length."""
    if is_pair(batch) and len(batch[0]) == len(batch[1]):
        return batch
    got = f"shapes {_shapes_text(batch)}" if is_pair(batch) else type(batch).__name__
    raise TypeError(
        f"a batch must be two tensors, (inputs, targets), with as many targets as inputs; got {got}"
    )


def iterate_batches(loader: Iterable[object], device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the inputs and targets of a loader's batches on a device; refuse anything else."""
    for batch in loader:
        x, y = check_batch(batch)
        yield x.to(device), y.to(device)


def model_device(model: nn.Module) -> torch.device:
    """Return the device of a module's first parameter."""
    return next(model.parameters()).device


# Inputs without targets


def iterate_inputs(model: nn.Module, x: object) -> Iterator[object]:
    """Yield the inputs in x, ready for the model: batch by batch from a loader, otherwise all at once."""
    batches = x if is_loader(x) else [x]
    return (prepare_inputs(model, batch) for batch in batches)


def prepare_inputs(model: nn.Module, batch: object) -> object:
    """Return the inputs of a batch on the model's device.

    Targets that follow the inputs are dropped. Arrays become tensors, those of floating point in the type of
    the model's parameters. What is neither a tensor nor an array, such as a dict, is returned as it is.
    """
    inputs = _without_targets(batch)
    reference = next((p for p in model.parameters() if p.is_floating_point()), torch.empty(0))
    if isinstance(inputs, Tensor):
        return inputs.to(reference.device)
    if not isinstance(inputs, (np.ndarray, list)):
        return inputs

    tensor = torch.as_tensor(np.asarray(inputs))
    if tensor.is_floating_point():
        tensor = tensor.to(reference.dtype)
    return tensor.to(reference.device)


def _without_targets(batch: object) -> object:
    """Return the inputs of a batch, which targets may follow in a tuple, and tensors also in a list."""
    if not isinstance(batch, (list, tuple)) or not batch:
        return batch
    if isinstance(batch[0], Tensor):
        return batch[0]
    if isinstance(batch, tuple) and isinstance(batch[0], np.ndarray):
        return batch[0]
    return batch


# Reproducible batches


class ShuffledBatches:
    """Tensors cut into batches of one size, in a new order from torch's generator at each iteration.

    Examples that don't fill the last batch are left out of that iteration.

    Parameters
    ----------
    X, y
        Inputs and targets of all examples.
    size
        Number of examples in a batch; all if there are fewer.
    """

    def __init__(self, X: Tensor, y: Tensor, size: int) -> None:
        self.X = X
        self.y = y
        self.size = min(size, len(X))

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.randperm(len(self.X))
        for start in range(0, len(order) - self.size + 1, self.size):
            rows = order[start : start + self.size]
            yield self.X[rows.to(self.X.device)], self.y[rows.to(self.y.device)]


@contextmanager
def preserve_random_state(*loaders: object) -> Iterator[None]:
    """Restore torch's generators, and those of the loaders, when the block ends."""
    generators = chain.from_iterable(map(_generators, loaders))
    generators_with_state = [(generator, generator.get_state()) for generator in generators]
    with torch.random.fork_rng():
        try:
            yield
        finally:
            for generator, state in generators_with_state:
                generator.set_state(state)


def _generators(loader: object) -> list[torch.Generator]:
    """Return the generators that a loader draws its order from, besides torch's global one."""
    owners = (loader, getattr(loader, "sampler", None))
    generators = [getattr(owner, "generator", None) for owner in owners]
    return [generator for generator in generators if isinstance(generator, torch.Generator)]


def seed_generators(seed: int, step: int, *loaders: object) -> None:
    """Seed torch's generators, and those of the loaders, with a function of the seed and the step."""
    step_seed = int(np.random.SeedSequence((seed, step)).generate_state(1)[0])  # torch uses 32 bits
    torch.manual_seed(step_seed)
    for loader in loaders:
        for generator in _generators(loader):
            generator.manual_seed(step_seed)


# Training and validation data


class PreparedData(NamedTuple):
    """Batches for training and for validation, and everything that is wrong with the data."""

    training: Iterable[Any]
    validation: Iterable[Any]
    problems: list[str]


def prepare_data(data: object, validation: object, batch: object, seed: int) -> PreparedData:
    """Cut data into batches for training and validation, and collect everything that is wrong with them.

    Parameters
    ----------
    data
        Tensors (X, y), or a loader that can be iterated repeatedly.
    validation
        The same; or a share between 0 and 1 of the tensors in `data`, which is set aside at random.
    batch
        Examples per training step where `data` are tensors; None for 32.
    seed
        Seed of the random choice of validation examples.

    Returns
    -------
    PreparedData
        Batches (inputs, targets); none where there are problems.
    """
    batch_size = DEFAULT_BATCH if batch is None else whole("batch", batch, low=1)
    problems = _data_problems(data, validation, batch)
    if problems:
        return PreparedData((), (), problems)

    training: Any = data
    held_out: Any = validation
    if is_real(validation):
        training, held_out = _split_examples(training, float(validation), seed)
    if is_pair(training):
        training = ShuffledBatches(training[0], training[1], batch_size)
    if is_pair(held_out):
        held_out = list(iterate_chunks(held_out))
    return PreparedData(training, held_out, problems)


def iterate_chunks(pair: tuple[Tensor, Tensor], size: int = CHUNK_SIZE) -> Iterator[tuple[Tensor, Tensor]]:
    """Return an iterator over all examples (inputs, targets) in chunks of at most this size."""
    inputs, targets = pair
    return zip(torch.split(inputs, size), torch.split(targets, size), strict=True)


def _data_problems(data: object, validation: object, batch: object) -> list[str]:
    """Return a message for everything that is wrong with the data.

    Parameters are those of `prepare_data`.
    """
    problems = find_data_problems(data, batch)
    validation_problem = _validation_problem(data, validation)
    if validation_problem:
        problems.append(f"there are no validation data: {validation_problem}")
    if is_pair(validation):
        problems += _pair_problems("validation", validation)
    return problems


def find_data_problems(data: object, batch: object) -> list[str]:
    """Return what is wrong with training data, or with a batch size given with them; [] if nothing is."""
    if is_pair(data):
        return _pair_problems("data", data)
    if not is_loader(data, repeatable=True):
        return [f"data must be tensors (X, y), or {LOADER}; got {_type_text(data)}"]
    if batch is not None:
        return [f"batch applies to tensors only, and a loader has its own batches; got batch={shown(batch)}"]
    return []


def _pair_problems(label: str, pair: tuple[Tensor, Tensor]) -> list[str]:
    """Return a message if tensors (inputs, targets) have no examples or different numbers of them."""
    if not len(pair[0]):
        return [f"{label} has no examples"]
    if len(pair[0]) != len(pair[1]):
        return [f"{label} must have as many targets as inputs, got {_shapes_text(pair)}"]
    return []


def _validation_problem(data: object, validation: object) -> str:
    """Return why there are no validation data, and what to do; "" if there are.

    Parameters
    ----------
    data
        Training data, tensors or a loader.
    validation
        Validation data, tensors or a loader; or the share of the training tensors that is to be set aside.
    """
    if not is_real(validation):
        if is_pair(validation) or is_loader(validation, repeatable=True):
            return ""
        return (
            f"give tensors (X, y), {LOADER}, or a share of the training tensors; got {_type_text(validation)}"
        )
    if not is_pair(data):
        return (
            "a share can be set aside only where the training data are tensors, so give tensors (X, y) or a "
            "separate loader as validation=, never test data"
        )
    if float(validation) not in SHARE or validation == 0 or len(data[0]) < 2:
        return (
            f"a share between 0 and 1 of {len(data[0])} examples is to be set aside; got "
            f"validation={shown(validation)}"
        )
    return ""


def _split_examples(
    pair: tuple[Tensor, Tensor], share: float, seed: int
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Split examples (X, y) at random; return training examples and the share for validation.

    Both have at least one example, and the same seed makes the same choice.
    """
    X, y = pair
    generator = np.random.default_rng(np.random.SeedSequence((seed, len(X))))
    order = torch.from_numpy(generator.permutation(len(X))).to(X.device)
    held_out_count = min(max(1, round(share * len(X))), len(X) - 1)
    held_out = order[:held_out_count]
    kept = order[held_out_count:]
    return (X[kept], y[kept.to(y.device)]), (X[held_out], y[held_out.to(y.device)])


# Do the module, the loss, the task and the data fit together?


def find_task(
    task: Task | None, loss: LossFunction | None, model: nn.Module, data: PreparedData, by: str
) -> tuple[Task, list[str]]:
    """Return the task, and all that doesn't fit it, by trying the model on the first batches.

    Parameters
    ----------
    task
        The user's choice; None to infer it from the targets: "regression" for floating point, otherwise
        "classes".
    loss
        The user's loss; None for the one of the task.
    model
        Called once with the first training batch, and in evaluation mode with the first validation batch.
    data
        Batches for training and validation.
    by
        The score that candidates are ranked by, "loss" or "accuracy".

    Returns
    -------
    task, problems
        The task, and a message for each problem.
    """
    batch = next(iter(data.training), None)
    if batch is None:
        raise ValueError("tune: data has no batches")
    inputs, targets = check_batch(batch)
    if task is None:
        task = "regression" if targets.is_floating_point() else "classes"

    problems = []
    if by == "accuracy" and not TASKS[task].classes:
        problems.append(f"{task!r} has no accuracy: choose by='loss'")
    outputs, batch_problem = try_model(model, inputs)
    if outputs is not None:
        checked_targets = data.training.y if isinstance(data.training, ShuffledBatches) else targets
        if loss is None:
            batch_problem = find_target_problem(task, outputs, checked_targets)
        if not batch_problem:
            batch_problem = find_loss_problem(TASK_LOSSES[task] if loss is None else loss, outputs, targets)
    if not batch_problem:
        batch_problem = _validation_batch_problem(task, model, data.validation)
    if batch_problem:
        problems.append(batch_problem)
    return task, problems


def _validation_batch_problem(task: Task, model: nn.Module, validation: Iterable[Any]) -> str:
    """Return what is wrong with the first validation batch, or ""; puts the model in evaluation mode."""
    batch = next(iter(validation), None)
    if batch is None:
        return ""
    inputs, targets = check_batch(batch)
    model.eval()
    if not len(inputs):
        return ""
    outputs, problem = try_model(model, inputs)
    if outputs is None:
        return problem
    return find_target_problem(task, outputs, targets, "validation ")


def try_model(model: nn.Module, inputs: Tensor, any_shape: bool = False) -> tuple[Tensor | None, str]:
    """Return the model's outputs for a batch and ""; or None and what is wrong.

    Parameters
    ----------
    model
        Any module.
    inputs
        One batch, (examples, ...).
    any_shape
        Accept outputs (examples, ...); otherwise they must be (examples, outputs).

    Returns
    -------
    outputs, problem
        The outputs, None if the model cannot be called or they are not accepted; and the message.
    """
    description = f"inputs of shape {_tensor_text(inputs)}"
    try:
        outputs = model(inputs.to(model_device(model)))
    except TORCH_ERRORS as error:
        return None, f"the model does not take {description}: {_first_line(error)}"

    needed = f"the model must return a tensor ({len(inputs)}, outputs)"
    if not isinstance(outputs, Tensor):
        return None, f"{needed}, got {type(outputs).__name__}"
    has_accepted_axes = outputs.ndim == 2 or (any_shape and outputs.ndim >= 1)
    if not has_accepted_axes or len(outputs) != len(inputs):
        return None, f"{needed}, got {_tensor_text(outputs)}"

    if not bool(torch.isfinite(outputs).all()):
        problem = f"the model's outputs are not finite for {description}"
        if not bool(torch.isfinite(inputs).all()):
            problem += ", and some of these are not finite either"
        return None, problem
    return outputs, ""


def find_target_problem(task: Task, outputs: Tensor, targets: Tensor, label: str = "") -> str:
    """Return why targets don't fit a task and a model's outputs, with a remedy; "" if they do.

    Parameters
    ----------
    task
        One of the four tasks.
    outputs
        Outputs of the model, (examples, outputs).
    targets
        Targets of the same or of all examples.
    label
        Put before "targets" in the message, such as "validation ". With a label, targets may have any shape
        that holds the right number of values for each example.
    """
    description = f"{label}targets of shape {_tensor_text(targets)}"
    rows = targets.detach().reshape(len(targets), -1).cpu()
    if targets.is_complex() or not bool(torch.isfinite(rows).all()):
        return f"{description} must be finite real numbers"
    if TASKS[task].classes:
        return _class_problem(task, outputs.shape[1], targets, rows, label)

    needed_shape = (len(targets), outputs.shape[1])
    shape = rows.shape if label else targets.shape
    if tuple(shape) != needed_shape:
        hint = _reshape_hint(targets, needed_shape)
        return f"{task!r} needs targets of the shape of the outputs, {needed_shape}, got {description}{hint}"
    if task == "counts" and not _are_whole(rows, 0, math.inf):
        return f"{label}targets of 'counts' must be whole numbers >= 0, {_range_text(rows.double())}"
    return ""


def _are_whole(numbers: Tensor, low: float, high: float) -> bool:
    """Return whether all numbers are whole, and lie between two bounds or at them."""
    exact = numbers.double()
    are_within = bool((exact >= low).all()) and bool((exact <= high).all())
    return are_within and bool((exact == exact.round()).all())


def _class_problem(task: Task, outputs: int, targets: Tensor, rows: Tensor, label: str) -> str:
    """Return why targets aren't class indices for a model's outputs, with a remedy; "" if they are.

    Parameters
    ----------
    task
        "classes" or "binary".
    outputs
        Number of outputs of the model.
    targets
        The targets as they were given.
    rows
        The same on the CPU, (examples, values).
    label
        Put before "targets" in the message; with one, targets may have any shape with one value for each
        example.
    """
    if task == "binary" and outputs != 1:
        return f"'binary' needs one logit, and the model has {outputs} outputs"
    if task == "classes" and outputs == 1:
        return "'classes' needs an output for each class, and the model has 1: choose task='binary'"
    needed_shape = (len(targets), 1) if task == "binary" else (len(targets),)
    has_one_value_each = bool(label) and rows.shape[1] == 1
    if tuple(targets.shape) != needed_shape and not has_one_value_each:
        description = f"{label}targets of shape {_tensor_text(targets)}"
        hint = _reshape_hint(targets, needed_shape)
        return f"{task!r} needs targets of shape {needed_shape}, got {description}{hint}"

    last_class = max(outputs, 2) - 1
    if not _are_whole(rows, 0, last_class):
        bounds = f"whole numbers from 0 to {last_class}"
        return f"{label}targets of {task!r} must be {bounds}, {_range_text(rows.double())}"
    return ""


def find_loss_problem(loss: LossFunction, outputs: Tensor, targets: Tensor) -> str:
    """Return why a loss of these outputs and targets can't be minimised; "" if it can.

    It must accept them, and return one number that has a gradient.
    """
    try:
        batch_loss = loss(outputs, targets.to(outputs.device))
    except TORCH_ERRORS as error:
        shapes = f"outputs of shape {_tensor_text(outputs)} and targets of shape {_tensor_text(targets)}"
        return f"the loss does not take {shapes}: {_first_line(error)}"

    needed = "the loss must be one number for a batch, such as the mean over its examples"
    if not isinstance(batch_loss, Tensor):
        return f"{needed}; got {batch_loss!r}"
    if batch_loss.numel() != 1:
        return f"{needed}; got a tensor of shape {tuple(batch_loss.shape)}"
    if not batch_loss.requires_grad:
        return (
            "the loss has no gradient: it must depend on the outputs, and these on parameters that require "
            "gradients"
        )
    return ""


# Text for messages


def _reshape_hint(targets: Tensor, shape: tuple[int, ...]) -> str:
    """Return how to give targets this shape by adding or dropping an axis; "" where that isn't enough."""
    if targets.ndim == 1 and shape == (len(targets), 1):
        return ": give y[:, None]"
    if targets.ndim == 2 and shape == tuple(targets[:, 0].shape):
        return ": give y[:, 0]"
    return ""


def _range_text(values: Tensor) -> str:
    """Return the range of values as text for a message."""
    return f"got values from {values.min():g} to {values.max():g}"


def _tensor_text(tensor: Tensor) -> str:
    """Return shape and type of a tensor as text."""
    return f"{tuple(tensor.shape)} of {str(tensor.dtype).removeprefix('torch.')}"


def _shapes_text(pair: tuple[Tensor, Tensor]) -> str:
    """Return the shapes of two tensors as text."""
    return " and ".join(str(tuple(tensor.shape)) for tensor in pair)


def _type_text(data: object) -> str:
    """Return the type of an object as text, of a tuple also the types of its first elements."""
    type_name = type(data).__name__
    if not isinstance(data, tuple):
        return type_name
    element_types = ", ".join(type(element).__name__ for element in data[:3])
    return f"{type_name} of {element_types}"


def _first_line(error: Exception) -> str:
    """Return the first line of an error's message."""
    return (str(error) or type(error).__name__).splitlines()[0]
