"""Runs: what training returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from heatbath.datasets import Problem
from heatbath.networks import Dense
from heatbath.partition import Part, Partition

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """What came out of training: labelled traces, and the final state of every chain.

    `traces` has, for each chain and record (with the step of each record), loss and accuracy by split, the
    kinetic temperature by part, ξ by thermostat and, if asked for, the weights. A chain that diverged has NaN
    from there on; `died` is the step at which each chain stopped, -1 for those that did not. θ and p are
    (chains, parameters).
    """

    problem: Problem
    network: Dense
    partition: Partition
    parts: tuple[Part, ...]
    traces: xr.Dataset
    theta: NDArray[Any]
    p: NDArray[Any]
    died: NDArray[np.int64]
    settings: dict[str, Any]

    def __repr__(self) -> str:
        chains, steps = len(self.theta), self.settings["steps"]
        lost = np.count_nonzero(self.died >= 0)
        return (
            f"Run({self.problem.name}, {chains} chains, {steps} steps{f', {lost} diverged' if lost else ''})"
        )

    def accuracy(self, split: str = "test") -> xr.DataArray:
        """The share of data that is classified rightly, chain x record."""
        return self._split("accuracy", split)

    def loss(self, split: str = "test") -> xr.DataArray:
        """The mean loss, chain x record."""
        return self._split("loss", split)

    def temperature(self, part: str) -> xr.DataArray:
        """Kinetic temperature p·p/N where the thermostat reads it, of a part or of all that a rule made."""
        return self._of_part("temperature", "part", part)

    def xi(self, part: str) -> xr.DataArray:
        """The friction variable of an adaptive part, or of all thermostats that it or its rule has."""
        return self._of_part("xi", "thermostat", part)

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """What every chain's final network says of new inputs, in the units of the user's data.

        The shape is (chains, data, outputs): the probability of the second class, of each class, or the
        values of a regression.
        """
        raw = np.atleast_2d(np.asarray(X, dtype=np.float64))
        if raw.ndim != 2 or raw.shape[1] != self.problem.inputs:
            raise ValueError(
                f"X must be (data, {self.problem.inputs} features), got an array of shape {raw.shape}"
            )
        x = np.broadcast_to((raw - self.problem.shift) / self.problem.scale, (len(self.theta), *raw.shape))
        theta = self.theta.astype(np.float64)
        begin = 0
        layers = list(self.network.layers(self.problem.inputs, self.problem.outputs).values())
        for place, (weights, out) in enumerate(layers):
            W = theta[:, begin : begin + weights].reshape(len(theta), out, weights // out)
            bias = theta[:, begin + weights : begin + weights + out]
            begin += weights + out
            x = np.matmul(x, W.transpose(0, 2, 1)) + bias[:, None, :]
            if place < len(layers) - 1 and self.network.activation != "identity":
                x = np.tanh(x) if self.network.activation == "tanh" else np.maximum(x, 0)
        return self._outputs(x)

    def to_torch(self, chain: int = 0) -> torch.nn.Sequential:
        """A chain's final network as a torch module; it takes standardised inputs and ends in logits."""
        return self.network.to_torch(self.theta[chain], self.problem.inputs, self.problem.outputs)

    def _outputs(self, logits: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.problem.task == "regression":
            return np.asarray(logits * self.problem.target_scale + self.problem.target_shift)
        if self.problem.task == "binary":
            return np.asarray(0.5 * (1 + np.tanh(logits / 2)))
        weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=-1, keepdims=True))

    def _split(self, name: str, split: str) -> xr.DataArray:
        if split not in ("train", "test"):
            raise ValueError(f"split must be 'train' or 'test', got {split!r}")
        return self.traces[name].sel(split=split)

    def _of_part(self, name: str, dimension: str, part: str) -> xr.DataArray:
        """The trace of the part with this name, or of all the parts whose key it is."""
        trace = self.traces[name]
        labels = trace[dimension].values.tolist()
        owners = {p.name for p in self.parts if part in (p.name, p.key)}
        own = [label for label in labels if label.partition("/")[0] in owners]
        if not own:
            raise ValueError(
                f"no {name} of {part!r}: accepted are {', '.join(map(repr, labels))} and their rules"
            )
        return trace.sel({dimension: own[0] if len(own) == 1 else own})
