"""Check the arguments of a `Sampler`, inspect its data, and hold the settings that follow."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from heatbath._internal.checks import choice, shown
from heatbath.datasets.tasks import TASKS, Task
from heatbath.models.likelihood import GRADIENT_COST
from heatbath.torch.data import (
    CHUNK_SIZE,
    TASK_LOSSES,
    LossFunction,
    find_loss_problem,
    find_target_problem,
    is_loader,
    is_pair,
    try_model,
)
from heatbath.torch.optim.chains import Chains
from heatbath.torch.optim.posterior import LossPosterior
from heatbath.torch.sampling import file
from heatbath.torch.sampling.batches import ChainBatches

Checked = TypeVar("Checked")
LossName: TypeAlias = Literal[
    "cross_entropy", "binary_cross_entropy_with_logits", "mse_loss", "poisson_nll_loss"
]
Prior: TypeAlias = float | Sequence[float] | Literal["fan_in"]
Targets: TypeAlias = NDArray[Any]

TASK_OF_LOSS: dict[str, Task] = {
    "cross_entropy": "classes",
    "binary_cross_entropy_with_logits": "binary",
    "mse_loss": "regression",
    "poisson_nll_loss": "counts",
}
CUSTOM_LOSS = "negative_log_likelihood"  # name of a loss that is a function
NOISE_SHARE = 0.1  # share of the work that may be spent on drawing the noise of the data
SMALLEST_NOISE = 1e-12  # variance of the noise at which a regression starts, over that of its targets
FEWEST_STEPS_PER_DRAW = 4  # between two draws of the noise, also where these are cheap
FILE_KEYS = {  # of settings whose names in files differ
    "target_variance": "variance",
    "residual_variance": "squares",
    "separate_batches": "own",
}


class ArgumentChecks:
    """Run checks of arguments, and collect the messages of those that fail in `problems`.

    Parameters
    ----------
    *problems
        Messages of checks that were made before.
    """

    def __init__(self, *problems: str) -> None:
        self.problems = list(problems)

    def run(self, check: Callable[..., Checked], label: str, value: Any, **bounds: object) -> Checked:
        """Return `check(label, value, **bounds)`; if that fails, collect its message and return the value."""
        try:
            return check(label, value, **bounds)
        except (TypeError, ValueError) as error:
            self.problems.append(str(error))
            return value  # type: ignore[no-any-return]  # which nobody reads, as `refuse` raises an error

    def refuse(self, caller: str) -> None:
        """Raise one error with all that was collected, if there is anything."""
        if self.problems:
            raise ValueError(f"{caller}: {'; '.join(self.problems)}")


def find_model_problems(model: object) -> list[str]:
    """Return why this is no module to sample around."""
    if not isinstance(model, nn.Module) or isinstance(model, Chains):
        return [f"model must be a torch module, got {shown(model)}"]
    if not any(p.requires_grad for p in model.parameters()):
        return ["no parameter of the model moves: all have requires_grad=False"]
    return []


def find_loss_problems(loss: object, task: object) -> list[str]:
    """Return why a loss, or the task given with it, is not accepted; [] if both are.

    Parameters
    ----------
    loss
        Name of a loss of torch, or a function of outputs and targets.
    task
        Meaning of the outputs; a function needs one, and with a name it may be left out.
    """
    if isinstance(loss, str) and loss in TASK_OF_LOSS:
        expected = TASK_OF_LOSS[loss]
        if task in (None, expected):
            return []
        return [f"the task of {loss} is {expected!r}: leave it out, got {shown(task)}"]
    if isinstance(loss, str) or not callable(loss):
        return [f"loss must be a function, or one of {', '.join(TASK_OF_LOSS)}; got {shown(loss)}"]
    checks = ArgumentChecks()
    checks.run(choice, "task, which a loss function needs,", task, accepted=tuple(TASKS))
    return checks.problems


def find_posterior_problems(loss: str, prior: object, noise: object, temperature: object) -> list[str]:
    """Return why prior, noise or temperature are not accepted with a loss; [] if all are."""
    checks = ArgumentChecks()
    known_noise = noise if loss == "mse_loss" else "sampled"
    checks.run(LossPosterior, loss, 2, prior=prior, noise=known_noise, temperature=temperature)
    if noise != known_noise:
        checks.problems.append(f"noise is for mse_loss, got {shown(noise)}")
    return checks.problems


@dataclass(frozen=True)
class SamplerSettings:
    """Plain values that decide what is sampled, and how.

    Attributes
    ----------
    loss
        Name of torch's loss function, or "negative_log_likelihood" for a function.
    task
        Meaning of the outputs.
    n
        Number of training examples.
    targets
        Number of targets of each example.
    target_variance
        Variance of the targets of a regression, where the noise starts.
    residual_variance
        Mean square of the residuals of the module as it was given.
    prior, noise, temperature, chains, lr, gamma, samples, seed
        Arguments of the sampler.
    batch
        Number of examples that a chain sees at each step.
    separate_batches
        True if each chain has its own batches, False if all see all examples.
    """

    loss: str
    task: Task
    n: int
    targets: int
    target_variance: float
    residual_variance: float
    prior: Prior
    noise: float | Literal["sampled"]
    temperature: float
    chains: int
    batch: int
    separate_batches: bool
    lr: float | Literal["auto"]
    gamma: float
    samples: int
    seed: int

    @cached_property
    def posterior(self) -> LossPosterior:
        """Posterior that is sampled."""
        loss: Any = self.loss
        return LossPosterior(
            loss,
            self.n,
            self.prior,
            self.noise,
            self.temperature,
            self.targets,
            variance=self.target_variance,
        )

    @cached_property
    def steps_per_draw(self) -> int:
        """Steps between two draws of the noise, each of which needs the outputs for all examples once."""
        steps = math.ceil(self.n / self.batch / (GRADIENT_COST * NOISE_SHARE))
        return max(FEWEST_STEPS_PER_DRAW, steps)

    def to_plain(self) -> dict[str, Any]:
        """Return the settings by their names in files."""
        return {FILE_KEYS.get(name, name): setting for name, setting in asdict(self).items()}

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> SamplerSettings:
        """Return settings from their names in files and values."""
        names = {key: name for name, key in FILE_KEYS.items()}
        return cls(**{names.get(key, key): setting for key, setting in plain.items()})


def mean_loss(task: Task, outputs: Tensor, targets: Tensor) -> Tensor:
    """Return torch's loss for a task, the mean over all targets; shapes are as in `align_shapes`."""
    return TASK_LOSSES[task](*align_shapes(task, outputs, targets))


def align_shapes(task: Task, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return outputs as rows, and targets that belong to the rows.

    For classes, whose outputs are (..., classes), each target has a row. Otherwise each example has one.
    """
    if task == "classes":
        return outputs.reshape(-1, outputs.shape[-1]), targets.reshape(-1)
    return outputs.reshape(len(outputs), -1), targets.reshape(len(targets), -1)


class DataProperties(NamedTuple):
    """Properties of the training data that the posterior needs; variances are 1 except in a regression."""

    n: int  # number of examples
    batch: int  # number of examples that a chain sees at a step
    separate_batches: bool
    targets: int = 1  # of each example
    target_variance: float = 1.0
    residual_variance: float = 1.0  # mean square of the residuals of the module


def inspect_data(
    model: nn.Module, loss: LossFunction, data: ChainBatches, task: Task, named: bool
) -> DataProperties:
    """Check that module, loss and data fit together; return the data's sizes and variances.

    Parameters
    ----------
    model
        The module, in evaluation mode.
    loss
        Function of outputs and targets.
    data
        Training data.
    task
        Meaning of the outputs.
    named
        True if the loss was given by the name of torch's function: then shapes of targets are checked.
    """
    x, y = next(iter(data.iterate_all()))
    outputs, problem = try_model(model, x, any_shape=True)
    if outputs is not None and named:
        rows, row_targets = align_shapes(task, outputs, y)
        problem = find_target_problem(task, rows, row_targets)
        if not problem and len(rows) != len(row_targets):
            problem = f"each of the {len(rows)} rows of outputs needs a target, got {len(row_targets)}"
    if outputs is not None and not problem:
        problem = find_loss_problem(loss, outputs, y)
    if problem:
        raise ValueError(f"Sampler: {problem}")

    properties = DataProperties(data.n, data.batch, data.separate)
    if not named:
        return properties
    properties = properties._replace(targets=y.numel() // len(y))
    if task != "regression":
        return properties
    target_variance, residual_variance = regression_variances(model, data)
    return properties._replace(target_variance=target_variance, residual_variance=residual_variance)


@torch.no_grad()
def regression_variances(model: nn.Module, data: ChainBatches) -> tuple[float, float]:
    """Return the variance of the targets of a regression, and the mean square of the residuals.

    Residuals are the differences of the module's outputs from the targets. So that a noise can start at their
    mean square, it is at least 1e-12 of the variance.
    """
    target_count = 0
    target_sum = 0.0
    target_squares = 0.0
    residual_squares = 0.0
    for x, y in data.iterate_all():
        targets = y.double()
        residuals = model(x).double().reshape(targets.shape) - targets
        target_count += y.numel()
        target_sum += float(targets.sum())
        target_squares += float(targets.square().sum())
        residual_squares += float(residuals.square().sum())

    variance = target_squares / target_count - (target_sum / target_count) ** 2
    if not variance > 0 or not math.isfinite(residual_squares):
        raise ValueError(
            "Sampler: the targets of a regression must vary and the module's outputs must be finite, got "
            f"targets of variance {variance:g} and residuals whose squares add up to {residual_squares:g}"
        )
    return variance, max(residual_squares / target_count, SMALLEST_NOISE * variance)


def data_checksum(data: ChainBatches) -> str:
    """Return a checksum of data that are tensors; "" for a loader."""
    if not is_pair(data.data):
        return ""
    x, y = data.data
    return file.digest({"x": x, "y": y})


def split_inputs(x: object) -> object:
    """Return a long tensor as a list of chunks, anything else as it is."""
    if not isinstance(x, Tensor) or len(x) <= CHUNK_SIZE:
        return x
    return list(torch.split(x, CHUNK_SIZE))


def split_examples(x: Any, y: ArrayLike | Tensor | None) -> tuple[object, Targets]:
    """Return inputs as `predict` takes them, and targets as an array.

    Parameters
    ----------
    x
        Inputs, a tensor or an array; or a loader of inputs and targets.
    y
        Targets; None if they are in the batches of x.
    """
    if y is None:
        return _split_loader(x)
    targets = y.detach().cpu().numpy() if isinstance(y, Tensor) else np.asarray(y)
    if not len(targets) or len(targets) != len(x):
        raise ValueError(f"report: as many targets as inputs are needed, got {len(x)} and {len(targets)}")
    return split_inputs(x), targets


def _split_loader(loader: object) -> tuple[list[object], Targets]:
    """Return the inputs of all batches of a loader, and all targets as an array."""
    if not is_loader(loader, repeatable=True):
        raise ValueError("report: targets are needed, as y or in the batches of a loader")
    inputs: list[object] = []
    targets: list[Targets] = []
    for batch in loader:
        inputs.append(batch[0])
        targets.append(np.asarray(batch[1]))
    if not inputs:
        raise ValueError("report: the loader has no batches")
    return inputs, np.concatenate(targets)
