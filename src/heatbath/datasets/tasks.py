"""Define the tasks: how a network's outputs become probabilities or values, and which loss they have.

| task | outputs | loss of an example |
| --- | --- | --- |
| binary | one logit, of the second class | binary cross entropy |
| classes | a logit for each class | cross entropy |
| regression | the values | half the squared error, Σ_k (f_k - y_k)²/2 |
| counts | the logarithms of the rates | Σ_k (exp(f_k) - y_k f_k) |

For all tasks, the derivative of the loss with respect to the outputs is prediction minus truth: `residual`.
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
"""Largest logarithm of a rate or variance that is predicted, so that its exponential fits in float32."""


def exponential(logarithms: Floats) -> Floats:
    """Return the rates or variances whose logarithms a network predicts, at most exp(80)."""
    return np.asarray(np.exp(np.minimum(logarithms, LARGEST)))


def _sigmoid(logits: Floats) -> Floats:
    """Return the probability of the second class."""
    return np.asarray(0.5 * (1 + np.tanh(logits / 2)))


def _softmax(logits: Floats) -> Floats:
    """Return the probability of each class, along the last axis."""
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def _one_hot(logits: Floats, classes: Floats) -> NDArray[Any]:
    """Return True for the class of each example and False for all others, (examples, classes).

    Parameters
    ----------
    logits : array, (examples, classes)
        Outputs of a network, whose shape gives the number of classes.
    classes : array, (examples, 1)
        Indices of classes.
    """
    return np.asarray(classes.astype(np.int64) == np.arange(logits.shape[-1]))


def _targets(_: Floats, targets: Floats) -> NDArray[Any]:
    """Return the targets unchanged: they are comparable with the predictions."""
    return targets


@dataclass(frozen=True)
class Meaning:
    """The meaning of a network's outputs for one task.

    Attributes
    ----------
    number : int
        Code of its loss in compiled code.
    classes : bool
        True if the targets are classes, False if they are numbers.
    decode : callable
        Returns probabilities, values or rates from outputs, (..., outputs).
    truth : callable
        Returns the true values of the decoded outputs, (examples, outputs), from outputs and targets.
    decode_torch : callable
        The same as `decode` for a tensor.
    """

    number: int
    classes: bool
    decode: Callable[[Floats], Floats]
    truth: Callable[[Floats, Floats], NDArray[Any]]
    decode_torch: Callable[[torch.Tensor], torch.Tensor]

    def residual(self, outputs: Floats, targets: Floats) -> Floats:
        """Return the derivative of each example's loss with respect to its outputs, (examples, outputs).

        Parameters
        ----------
        outputs : array, (examples, outputs)
            Outputs of a network.
        targets : array, (examples, targets)
            True values, as `Problem` stores them.
        """
        return np.asarray(self.decode(outputs) - self.truth(outputs, targets))


TASKS: dict[Task, Meaning] = {
    "binary": Meaning(0, True, _sigmoid, _targets, lambda outputs: outputs.sigmoid()),
    "classes": Meaning(1, True, _softmax, _one_hot, lambda outputs: outputs.softmax(dim=-1)),
    "regression": Meaning(2, False, lambda outputs: outputs, _targets, lambda outputs: outputs),
    "counts": Meaning(3, False, exponential, _targets, lambda outputs: outputs.clamp(max=LARGEST).exp()),
}


VARYING, STUDENT = 4, 5
"""Codes, in compiled code, of the losses of a regression whose network also predicts variances, and of one
whose noise has Student's distribution."""


def each_class(probabilities: Floats) -> Floats:
    """Return the probability of each class, (..., classes).

    Parameters
    ----------
    probabilities : array, (..., classes) or (..., 1)
        Probabilities of all classes, or only of the second of two.
    """
    if probabilities.shape[-1] > 1:
        return probabilities
    return np.concatenate([1 - probabilities, probabilities], axis=-1)
