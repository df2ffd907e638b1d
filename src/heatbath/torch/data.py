"""What a torch model is given: tensors, arrays, or the batches of a loader."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from torch import nn


from collections.abc import Callable
from contextlib import contextmanager
from typing import TypeAlias, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn import functional

from heatbath._internal.checks import SHARE, is_real, shown, whole
from heatbath.datasets.tasks import TASKS, Task


def batches_of(model: nn.Module, x: Any) -> Iterator[Any]:
    """The inputs in x, where the model is: of each batch of a loader, or all at once."""
    return (inputs_of(model, batch) for batch in (x if is_loader(x) else [x]))


def is_loader(data: object, *, repeatable: bool = False) -> bool:
    """Return whether data are batches: a loader, or a list whose first element is a batch.

    With `repeatable`, an iterator, which can be gone through once only, is not accepted.
    """
    if repeatable and isinstance(data, Iterator):
        return False
    if isinstance(data, list):
        if not data:
            return repeatable  # a loader without batches, which training refuses by name
        first = data[0][0] if isinstance(data[0], (list, tuple)) and data[0] else data[0]
        return isinstance(first, (Tensor, Mapping))
    return isinstance(data, Iterable) and not isinstance(data, (Tensor, np.ndarray, Mapping, tuple, str))


def inputs_of(model: nn.Module, batch: Any) -> Any:
    """What the model is given of a batch: where it is, and numbers of an array in its type."""
    if isinstance(batch, list) and batch and isinstance(batch[0], torch.Tensor):
        batch = batch[0]  # targets stand behind it
    elif isinstance(batch, tuple) and batch and isinstance(batch[0], (torch.Tensor, np.ndarray)):
        batch = batch[0]
    like = next((p for p in model.parameters() if p.is_floating_point()), torch.empty(0))
    if isinstance(batch, (np.ndarray, list)):
        batch = torch.as_tensor(np.asarray(batch))
        batch = batch.to(like.dtype) if batch.is_floating_point() else batch
    return batch.to(like.device) if isinstance(batch, torch.Tensor) else batch


Data: TypeAlias = tuple[Tensor, Tensor] | Iterable[tuple[Tensor, Tensor]]

BATCH = 32  # examples of a step, where data are tensors
AT_ONCE = 1000  # validation examples at a time, where they are tensors
LOSSES: dict[Task, Callable[[Tensor, Tensor], Tensor]] = {
    "binary": lambda outputs, targets: functional.binary_cross_entropy_with_logits(
        outputs, targets.to(outputs.dtype)
    ),
    "classes": lambda outputs, targets: functional.cross_entropy(outputs, targets.long()),
    "regression": lambda outputs, targets: functional.mse_loss(outputs, targets.to(outputs.dtype)),
    "counts": lambda outputs, targets: functional.poisson_nll_loss(outputs, targets.to(outputs.dtype)),
}
BREAKS = (RuntimeError, TypeError, ValueError, IndexError, AttributeError, KeyError)  # what torch raises
LOADER = "a loader that can be gone through again and again, such as a DataLoader or a list of batches"


class Shuffled:
    """Tensors in batches of a size, in another order each time."""

    def __init__(self, X: Tensor, y: Tensor, size: int) -> None:
        self.X, self.y, self.size = X, y, min(size, len(X))

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.randperm(len(self.X))
        for begin in range(0, len(order) - self.size + 1, self.size):
            chosen = order[begin : begin + self.size]
            yield self.X[chosen.to(self.X.device)], self.y[chosen.to(self.y.device)]


@contextmanager
def as_before(*loaders: object) -> Iterator[None]:
    """Within, torch's generators may be seeded; afterwards they, and those of loaders, are as before."""
    states = [(generator, generator.get_state()) for loader in loaders for generator in _generators(loader)]
    with torch.random.fork_rng():
        try:
            yield
        finally:
            for generator, state in states:
                generator.set_state(state)


def _generators(loader: object) -> list[torch.Generator]:
    """Those that a loader draws its order from, where they are not torch's own."""
    holders = loader, getattr(loader, "sampler", None)
    found = (getattr(holder, "generator", None) for holder in holders)
    return [generator for generator in found if isinstance(generator, torch.Generator)]


def set_seed(seed: int, step: int, *loaders: object) -> None:
    """Let what is drawn at random in a step be a function of the seed and the step."""
    number = int(np.random.SeedSequence((seed, step)).generate_state(1)[0])  # torch uses 32 bits
    torch.manual_seed(number)
    for loader in loaders:
        for generator in _generators(loader):
            generator.manual_seed(number)


def sets(
    data: object, validation: object, batch: object, seed: int
) -> tuple[Iterable[Any], Iterable[Any], list[str]]:
    """Batches for training and for validation, and all that is wrong."""
    size = BATCH if batch is None else whole("batch", batch, low=1)
    tensors, wrong = is_pair(data), []
    if not tensors and not is_loader(data, repeatable=True):
        wrong.append(f"data must be tensors (X, y), or {LOADER}; got {_kind(data)}")
    if not tensors and batch is not None:
        wrong.append(f"batch is for tensors, and a loader has batches of its own; got batch={shown(batch)}")
    training: Any = data
    judging: Any = validation
    if not is_real(validation):
        if not is_pair(validation) and not is_loader(validation, repeatable=True):
            wrong.append(
                f"there are no validation data: give tensors (X, y), {LOADER}, or a share of the tensors for "
                f"training; got {_kind(validation)}"
            )
    elif not tensors:
        wrong.append(
            "there are no validation data: only of tensors a share can be set aside, so give tensors (X, y) "
            "or a loader of its own as validation=, never test data"
        )
    elif float(validation) not in SHARE or validation == 0 or len(training[0]) < 2:
        wrong.append(
            f"there are no validation data: of {len(training[0])} examples a share between 0 and 1 is set "
            f"aside; got validation={shown(validation)}"
        )
    for label, pair in (("data", training), ("validation", judging)):
        if is_pair(pair) and not len(pair[0]):
            wrong.append(f"{label} has no examples")
        elif is_pair(pair) and len(pair[0]) != len(pair[1]):
            wrong.append(f"{label} must have as many targets as inputs, got {_shapes(pair)}")
    if wrong:
        return (), (), wrong
    if is_real(validation):
        X, y = training
        order = np.random.default_rng(np.random.SeedSequence((seed, len(X)))).permutation(len(X))
        count = min(max(1, round(float(validation) * len(X))), len(X) - 1)
        apart, rest = (torch.from_numpy(some).to(X.device) for some in (order[:count], order[count:]))
        judging, training = (X[apart], y[apart.to(y.device)]), (X[rest], y[rest.to(y.device)])
    if tensors:
        training = Shuffled(training[0], training[1], size)
    if is_pair(judging):
        judging = list(zip(*(torch.split(tensor, AT_ONCE) for tensor in judging), strict=True))
    return training, judging, wrong


def _kind(data: object) -> str:
    within = f" of {', '.join(type(one).__name__ for one in data[:3])}" if isinstance(data, tuple) else ""
    return type(data).__name__ + within


def is_pair(data: object) -> TypeGuard[tuple[Tensor, Tensor]]:
    """Whether data are two tensors of examples."""
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        return False
    return all(isinstance(one, Tensor) and one.ndim > 0 for one in data)


def _shapes(data: Any) -> str:
    return " and ".join(str(tuple(one.shape)) for one in data)


def checked(given: object) -> tuple[Tensor, Tensor]:
    """A batch."""
    if is_pair(given) and len(given[0]) == len(given[1]):
        return given
    raise TypeError(
        "a batch must be two tensors, (inputs, targets), of as many examples; got "
        + (f"shapes {_shapes(given)}" if is_pair(given) else type(given).__name__)
    )


def task_of(
    task: Task | None,
    loss: Callable[[Tensor, Tensor], Tensor] | None,
    model: nn.Module,
    training: Iterable[Any],
    judging: Iterable[Any],
    by: str,
) -> tuple[Task, list[str]]:
    """The task, as told or by the targets of the first batch, and all that does not go with it.

    That is seen by trying: the first batches, for training and for validation, and the loss.
    """
    batch = next(iter(training), None)
    if batch is None:
        raise ValueError("tune: data has no batches")
    inputs, targets = checked(batch)
    if task is None:
        task = "regression" if targets.is_floating_point() else "classes"
    wrong = []
    if by == "accuracy" and not TASKS[task].classes:
        wrong.append(f"{task!r} has no accuracy: take by='loss'")
    outputs, failed = outputs_of(model, inputs)
    if outputs is None:
        return task, [*wrong, failed]
    everything = training.y if isinstance(training, Shuffled) else targets
    misfit = misfit_of(task, outputs, everything) if loss is None else ""
    misfit = misfit or misfit_of_loss(LOSSES[task] if loss is None else loss, outputs, targets)
    if not misfit and (first := next(iter(judging), None)) is not None:
        inputs, targets = checked(first)
        model.eval()
        others, misfit = outputs_of(model, inputs) if len(inputs) else (None, "")
        misfit = misfit if others is None else misfit_of(task, others, targets, "validation ")
    return task, [*wrong, misfit] if misfit else wrong


def outputs_of(model: nn.Module, inputs: Tensor, several: bool = False) -> tuple[Tensor | None, str]:
    """What a model says of a batch, or why that is nothing; `several`: the outputs may have more axes."""
    given = f"inputs of shape {_described(inputs)}"
    try:
        outputs = model(inputs.to(device_of(model)))
    except BREAKS as error:
        return None, f"the model does not take {given}: {_first_line(error)}"
    fits = isinstance(outputs, Tensor) and (outputs.ndim >= 1 if several else outputs.ndim == 2)
    if not fits or len(outputs) != len(inputs):
        got = _described(outputs) if isinstance(outputs, Tensor) else type(outputs).__name__
        return None, f"the model must return a tensor ({len(inputs)}, outputs), got {got}"
    if not bool(torch.isfinite(outputs).all()):
        why = "" if bool(torch.isfinite(inputs).all()) else ", some of which are not finite themselves"
        return None, f"the model's outputs are not finite for {given}{why}"
    return outputs, ""


def misfit_of(task: Task, outputs: Tensor, targets: Tensor, whose: str = "") -> str:
    """Why targets do not go with a task and a model's outputs, if they do not."""
    n, k = len(targets), outputs.shape[1]
    got = f"{whose}targets of shape {_described(targets)}"
    flat = targets.detach().reshape(n, -1).cpu()
    if targets.is_complex() or not bool(torch.isfinite(flat).all()):
        return f"{got} must be finite real numbers"
    values = flat.double()
    ends = f"got values from {values.min():g} to {values.max():g}"
    whole = bool((values == values.round()).all())
    if TASKS[task].classes:
        if task == "binary" and k != 1:
            return f"'binary' needs one logit, and the model has {k} outputs"
        if task == "classes" and k == 1:
            return "'classes' needs an output for each class, and the model has 1: take task='binary'"
        shape = (n, 1) if task == "binary" else (n,)
        if tuple(targets.shape) != shape and (not whose or flat.shape[1] != 1):
            return f"{task!r} needs targets of shape {shape}, got {got}{_reshaping(targets, shape)}"
        if not whole or values.min() < 0 or values.max() >= max(k, 2):
            return f"{whose}targets of {task!r} must be whole numbers from 0 to {max(k, 2) - 1}, {ends}"
        return ""
    if tuple(targets.shape) != (n, k) and (not whose or tuple(flat.shape) != (n, k)):
        hint = _reshaping(targets, (n, k))
        return f"{task!r} needs targets of the shape of the outputs, {(n, k)}, got {got}{hint}"
    if task == "counts" and (not whole or values.min() < 0):
        return f"{whose}targets of 'counts' must be whole numbers >= 0, {ends}"
    return ""


def _reshaping(targets: Tensor, shape: tuple[int, ...]) -> str:
    """How targets would have a shape, where that is easy."""
    if targets.ndim == 1 and shape == (len(targets), 1):
        return ": give y[:, None]"
    return ": give y[:, 0]" if targets.ndim == 2 and shape == tuple(targets[:, 0].shape) else ""


def misfit_of_loss(loss: Callable[[Tensor, Tensor], Tensor], outputs: Tensor, targets: Tensor) -> str:
    """Why a loss cannot be minimised, if it cannot."""
    given = f"outputs of shape {_described(outputs)} and targets of shape {_described(targets)}"
    try:
        value = loss(outputs, targets.to(outputs.device))
    except BREAKS as error:
        return f"the loss does not take {given}: {_first_line(error)}"
    if not isinstance(value, Tensor) or value.numel() != 1:
        got = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)
        return f"the loss must be one number for a batch, a tensor such as their mean; got {got}"
    if not value.requires_grad:
        return "the loss has no gradient: it must depend on the outputs, and they on parameters that need one"
    return ""


def _described(tensor: Tensor) -> str:
    return f"{tuple(tensor.shape)} of {str(tensor.dtype).removeprefix('torch.')}"


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


def device_of(model: nn.Module) -> torch.device:
    """Where a model is."""
    return next(model.parameters()).device
