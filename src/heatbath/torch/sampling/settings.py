"""Settings of a `Sampler`, and what it finds out about the data and the loss."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from heatbath.datasets.tasks import Task
from heatbath.torch.data import (
    AT_ONCE,
    LOSSES,
    is_loader,
    is_pair,
    misfit_of,
    misfit_of_loss,
    outputs_of,
)
from heatbath.torch.optim.posterior import LossPosterior
from heatbath.torch.sampling import file
from heatbath.torch.sampling.batches import Epochs

if TYPE_CHECKING:
    pass

MEANINGS: dict[str, Task] = {
    "cross_entropy": "classes",
    "binary_cross_entropy_with_logits": "binary",
    "mse_loss": "regression",
    "poisson_nll_loss": "counts",
}  # of torch's losses
DRAWING = 0.1  # the share of the work for drawing the noise of the data


@dataclass(frozen=True)
class SamplerSettings:
    """All that decides what is sampled, and how: plain values."""

    loss: str
    task: Task
    n: int
    targets: int
    variance: float
    squares: float
    prior: Any
    noise: float | Literal["sampled"]
    temperature: float
    chains: int
    batch: int
    own: bool
    lr: float | Literal["auto"]
    gamma: float
    samples: int
    seed: int

    @property
    def posterior(self) -> LossPosterior:
        """What is sampled."""
        return LossPosterior(
            self.loss,  # type: ignore[arg-type]
            self.n,
            self.prior,
            self.noise,
            self.temperature,
            self.targets,
            variance=self.variance,
        )

    @property
    def draws(self) -> int:
        """Steps between two draws of the noise, which pass all examples forward once."""
        return max(4, math.ceil(self.n / self.batch / (3 * DRAWING)))


class Named:
    """A loss of torch, of outputs and targets in the shapes in which the task has them."""

    def __init__(self, task: Task) -> None:
        self.task = task

    def __call__(self, said: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of outputs and targets, with their shapes aligned."""
        return LOSSES[self.task](*aligned(self.task, said, targets))


def aligned(task: Task, said: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs as rows, and targets for them: of classes a row for each target, otherwise for each example."""
    if task == "classes":
        return said.reshape(-1, said.shape[-1]), targets.reshape(-1)
    return said.reshape(len(said), -1), targets.reshape(len(targets), -1)


def look_at(
    model: nn.Module, loss: Callable[[Tensor, Tensor], Tensor], data: Epochs, given: object, task: Task | None
) -> SamplerSettings:
    """What the data and the module tell: sizes, the variance of targets, and that all fits together."""
    x, y = next(iter(data.all()))
    said, wrong = outputs_of(model, x, several=True)
    named = isinstance(given, str)
    known: Task = MEANINGS[given] if isinstance(given, str) else task  # type: ignore[assignment]
    if said is not None and named:
        rows, targets = aligned(known, said, y)
        wrong = misfit_of(known, rows, targets)
        if not wrong and len(rows) != len(targets):
            wrong = f"{len(rows)} rows of outputs and {len(targets)} targets do not go together"
    if said is not None and not wrong:
        wrong = misfit_of_loss(loss, said, y)
    if wrong:
        raise ValueError(f"Sampler: {wrong}")
    assert said is not None
    count = y.numel() // len(y) if named else 1
    variance = squares = 1.0
    if known == "regression" and named:
        variance, squares = spread_of_data(model, data)
    return SamplerSettings(
        given if isinstance(given, str) else "negative_log_likelihood",
        known, data.n, count, variance, squares, 1.0, "sampled", 1.0, 1, data.batch, data.own, "auto", 1.0,
        1, 0,
    )  # fmt: skip


@torch.no_grad()
def spread_of_data(model: nn.Module, data: Epochs) -> tuple[float, float]:
    """The variance of the targets of a regression, and that around what the module says."""
    count, total, squares, residuals = 0, 0.0, 0.0, 0.0
    for x, y in data.all():
        values = y.double()
        count, total, squares = (
            count + y.numel(),
            total + float(values.sum()),
            squares + float(values.square().sum()),
        )
        residuals += float((model(x).double().reshape(values.shape) - values).square().sum())
    variance = squares / count - (total / count) ** 2
    if not variance > 0 or not math.isfinite(residuals):
        raise ValueError("Sampler: the targets of a regression must vary, and what the model says be finite")
    return variance, max(residuals / count, 1e-12 * variance)


def checksum(data: Epochs) -> str:
    """Of data that are tensors."""
    if not is_pair(data.data):
        return ""
    return file.digest(dict(zip("xy", data.data, strict=True)))


def parts_of(x: Any) -> Any:
    """Some inputs at a time, where they are a tensor."""
    return list(torch.split(x, AT_ONCE)) if isinstance(x, Tensor) and len(x) > AT_ONCE else x


def examples_of(x: Any, y: Any) -> tuple[Any, NDArray[Any]]:
    """Inputs for `predict`, and the targets: of a loader both are in it."""
    if y is None:
        if not is_loader(x, repeatable=True):
            raise ValueError("report: targets are needed, as y or in the batches of a loader")
        pairs = [(given[0], given[1]) for given in x]
        if not pairs:
            raise ValueError("report: the loader has no batches")
        return [inputs for inputs, _ in pairs], np.concatenate([np.asarray(targets) for _, targets in pairs])
    targets = y.detach().cpu().numpy() if isinstance(y, Tensor) else np.asarray(y)
    if not len(targets) or len(targets) != len(x):
        raise ValueError(f"report: as many targets as inputs are needed, got {len(x)} and {len(targets)}")
    return parts_of(x), targets
