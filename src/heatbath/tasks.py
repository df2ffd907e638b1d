"""What the outputs of a network mean: for each task the probabilities or values in them, and the loss.

| task | outputs | loss of an example |
| --- | --- | --- |
| binary | one logit, of the second class | binary cross entropy |
| classes | a logit for each class | cross entropy |
| regression | the values | half the squared error |

In all three the derivative of the loss by the outputs is what they say less what is true: `residual`.
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
Task: TypeAlias = Literal["binary", "classes", "regression"]


def _sigmoid(logits: Floats) -> Floats:
    return np.asarray(0.5 * (1 + np.tanh(logits / 2)))


def _softmax(logits: Floats) -> Floats:
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def _one_hot(logits: Floats, classes: Floats) -> NDArray[Any]:
    return np.asarray(classes.astype(np.int64) == np.arange(logits.shape[-1]))


@dataclass(frozen=True)
class Meaning:
    """A task's row of the table.

    - `number`: what compiled code calls its loss;
    - `decode`: the outputs (..., outputs) as probabilities, or as the values that they are;
    - `truth`: what the decoded outputs ought to be, (examples, outputs), from the outputs and the targets;
    - `decode_torch`: as `decode`, of a tensor.
    """

    number: int
    decode: Callable[[Floats], Floats]
    truth: Callable[[Floats, Floats], NDArray[Any]]
    decode_torch: Callable[[torch.Tensor], torch.Tensor]

    def residual(self, outputs: Floats, targets: Floats) -> Floats:
        """The derivative of each example's loss by its outputs, (examples, outputs)."""
        return np.asarray(self.decode(outputs) - self.truth(outputs, targets))


TASKS: dict[Task, Meaning] = {
    "binary": Meaning(0, _sigmoid, lambda _, targets: targets, lambda outputs: outputs.sigmoid()),
    "classes": Meaning(1, _softmax, _one_hot, lambda outputs: outputs.softmax(dim=-1)),
    "regression": Meaning(2, lambda outputs: outputs, lambda _, targets: targets, lambda outputs: outputs),
}


def each_class(probabilities: Floats) -> Floats:
    """The probability of each class, (..., classes), also where only the second has one, (..., 1)."""
    if probabilities.shape[-1] > 1:
        return probabilities
    return np.concatenate([1 - probabilities, probabilities], axis=-1)
