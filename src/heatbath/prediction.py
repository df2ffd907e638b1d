"""Predictions averaged over samples of a PyTorch model: mean, variance and predictive entropy."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from heatbath.checks import choice, whole


class Samples:
    """States of a model (parameters and buffers), taken while it is trained: never more than `most`.

    Call `take()` after every step. The first `burn_in` steps are not among the samples; then every `thin`-th
    is. Where there would be too many, every other one is dropped and `thin` doubles, so that those kept are
    always evenly spaced. They are copies in the CPU's memory, or files in `folder`.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        burn_in: int = 0,
        thin: int = 1,
        most: int = 100,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"model must be a torch module, got {model!r}")
        self.model = model
        self.burn_in = whole("burn_in", burn_in, low=0)
        self.thin = whole("thin", thin, low=1)
        self.most = whole("most", most, low=2)
        self.folder = None if folder is None else Path(folder)
        self.step = 0
        self._kept: dict[int, dict[str, Tensor] | Path] = {}  # by the number of the step
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def steps(self) -> list[int]:
        """The steps at which the samples were taken."""
        return list(self._kept)

    def take(self) -> None:
        """Count a step, and keep the state if it is due."""
        self.step += 1
        since = self.step - self.burn_in
        if since <= 0 or since % self.thin:
            return
        if len(self._kept) == self.most:
            self.thin *= 2
            for step in [n for n in self._kept if (n - self.burn_in) % self.thin]:
                dropped = self._kept.pop(step)
                if isinstance(dropped, Path):
                    dropped.unlink(missing_ok=True)
            if since % self.thin:
                return
        state = {name: value.detach().cpu().clone() for name, value in self.model.state_dict().items()}
        self._kept[self.step] = state if self.folder is None else self._write(self.folder, state)

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        for kept in self._kept.values():
            yield torch.load(kept, weights_only=True) if isinstance(kept, Path) else kept

    def _write(self, folder: Path, state: dict[str, Tensor]) -> Path:
        """A file that is there whole or not at all."""
        path = folder / f"sample-{self.step:012d}.pt"
        part = path.with_suffix(".part")
        try:
            torch.save(state, part)
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)
        return path


class Prediction(NamedTuple):
    """What samples say together: (data, outputs), and the entropy (data,) in nats."""

    mean: Tensor
    variance: Tensor
    entropy: Tensor


def predict(
    model: nn.Module,
    samples: Iterable[Mapping[str, Any]],
    x: Any,
    *,
    task: Literal["binary", "classes", "regression"],
) -> Prediction:
    """Mean and variance over samples of what a model says of x, and the entropy of the mean.

    The model ends in logits for "binary" (one or more columns of their own) and "classes", which become
    probabilities, and in values for "regression" (whose entropy is that of a normal distribution with this
    variance). It is put in evaluation mode for the time, and its own parameters are not touched. One sample
    is in memory at a time.
    """
    choice("task", task, ("binary", "classes", "regression"))
    training = {module: module.training for module in model.modules()}
    device = next((value.device for value in model.state_dict().values()), torch.device("cpu"))
    count = 0
    mean = squares = torch.zeros(())
    model.eval()
    try:
        with torch.no_grad():
            for state in samples:
                moved = {name: value.to(device) for name, value in state.items()}
                said = torch.func.functional_call(model, moved, (x,)).double()
                if task != "regression":
                    said = torch.sigmoid(said) if task == "binary" else torch.softmax(said, dim=-1)
                count += 1
                difference = said - mean
                mean = mean + difference / count
                squares = squares + difference * (said - mean)
    finally:
        for module, mode in training.items():
            module.training = mode
    if not count:
        raise ValueError("there are no samples: take some after the burn-in")
    variance = squares / count
    return Prediction(mean, variance, _entropy(mean, variance, task))


def _entropy(mean: Tensor, variance: Tensor, task: str) -> Tensor:
    if task == "regression":
        return 0.5 * torch.log(2 * math.pi * math.e * variance).sum(dim=-1)
    own: Tensor = torch.special.entr(mean)
    other: Tensor = torch.special.entr(1 - mean)
    return (own + other if task == "binary" else own).sum(dim=-1)
