"""What the outputs of a network mean: for each task the probabilities or values in them, and the loss.

| task | outputs | loss of an example |
| --- | --- | --- |
| binary | one logit, of the second class | binary cross entropy |
| classes | a logit for each class | cross entropy |
| regression | the values | half the squared error, Σ_k (f_k - y_k)²/2 |
| counts | the logarithms of the rates | Σ_k (exp(f_k) - y_k f_k) |

In all of them the derivative of the loss by the outputs is what they say less what is true: `residual`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

Floats: TypeAlias = NDArray[np.float64]
Task: TypeAlias = Literal["binary", "classes", "regression", "counts"]

LARGEST = 80.0
"""The largest logarithm of a rate or a variance that is predicted: float32 has no room for more."""


def exponential(logarithms: Floats) -> Floats:
    """The rates or variances of which a network says the logarithms; none is above exp(80)."""
    return np.asarray(np.exp(np.minimum(logarithms, LARGEST)))


def _sigmoid(logits: Floats) -> Floats:
    return np.asarray(0.5 * (1 + np.tanh(logits / 2)))


def _softmax(logits: Floats) -> Floats:
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def _one_hot(logits: Floats, classes: Floats) -> NDArray[Any]:
    return np.asarray(classes.astype(np.int64) == np.arange(logits.shape[-1]))


def _targets(_: Floats, targets: Floats) -> NDArray[Any]:
    return targets


@dataclass(frozen=True)
class Meaning:
    """A task's row of the table.

    - `number`: what compiled code calls its loss;
    - `classes`: whether the targets are classes, and otherwise numbers;
    - `decode`: the outputs (..., outputs) as probabilities, as the values that they are, or as rates;
    - `truth`: what the decoded outputs ought to be, (examples, outputs), from the outputs and the targets;
    - `decode_torch`: as `decode`, of a tensor.
    """

    number: int
    classes: bool
    decode: Callable[[Floats], Floats]
    truth: Callable[[Floats, Floats], NDArray[Any]]
    decode_torch: Callable[[torch.Tensor], torch.Tensor]

    def residual(self, outputs: Floats, targets: Floats) -> Floats:
        """The derivative of each example's loss by its outputs, (examples, outputs)."""
        return np.asarray(self.decode(outputs) - self.truth(outputs, targets))


TASKS: dict[Task, Meaning] = {
    "binary": Meaning(0, True, _sigmoid, _targets, lambda outputs: outputs.sigmoid()),
    "classes": Meaning(1, True, _softmax, _one_hot, lambda outputs: outputs.softmax(dim=-1)),
    "regression": Meaning(2, False, lambda outputs: outputs, _targets, lambda outputs: outputs),
    "counts": Meaning(3, False, exponential, _targets, lambda outputs: outputs.clamp(max=LARGEST).exp()),
}


VARYING, STUDENT = 4, 5
"""What compiled code calls the losses of a regression whose network says the variances, too, and of one whose
noise has Student's law."""


def each_class(probabilities: Floats) -> Floats:
    """The probability of each class, (..., classes), also where only the second has one, (..., 1)."""
    if probabilities.shape[-1] > 1:
        return probabilities
    return np.concatenate([1 - probabilities, probabilities], axis=-1)
