"""Networks: dense ones, as values; their activations; how they start, and become torch modules and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from heatbath._internal.checks import NON_NEGATIVE, choice, real, store, whole
from heatbath.methods.partition import Layers
from heatbath.reference.random import START, normals, uniforms

if TYPE_CHECKING:
    import torch

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Activation:
    """What a layer does to its values, everywhere: in NumPy, in torch and, by its number, in compiled code.

    `slope` is the derivative, as a function of the activation's value; `module` is a class of `torch.nn`.
    """

    number: int
    value: Callable[[Array], Array]
    slope: Callable[[Array], Array | float]
    module: str


ACTIVATIONS = {
    "relu": Activation(0, lambda x: np.maximum(x, 0), lambda y: (y > 0).astype(np.float64), "ReLU"),
    "tanh": Activation(1, np.tanh, lambda y: 1 - y**2, "Tanh"),
    "identity": Activation(2, lambda x: x, lambda y: 1.0, "Identity"),
}


AT_ONCE = 2**14  # values of a layer for some examples: they stay in the cache
PIECE = 2**14  # rows of a table that is predicted in pieces: see `block`


def block(most: int) -> int:
    """How many rows are computed with at a time, at most so many: a power of two up to PIECE.

    Matrix products round by their number of rows. So the rows of a table fall into the same blocks, and have
    the same digits, whether all are given at once or in pieces of PIECE rows.
    """
    return 1 << min(max(most, 1), PIECE).bit_length() - 1


@dataclass(frozen=True)
class MLP:
    """A fully connected network: hidden layers of these sizes, then a linear layer to the outputs.

    The outputs are logits (of one class against the other, or of each class) or the values of a regression.
    Its layers are called `layer1`, `layer2`, ...; the parameters are numbered as torch does, layer by layer,
    weight (out x in, row by row), then bias.

    `init` says where chains start: "torch" draws weights and biases from U(-1/√in, 1/√in), torch's default
    for linear layers; "gaussian" draws both from N(0, scale²); "zeros" is what it says.
    """

    hidden: Sequence[int] = (100,)
    activation: Literal["relu", "tanh", "identity"] = "relu"
    init: Literal["torch", "gaussian", "zeros"] = "torch"
    scale: float = 0.01

    def __post_init__(self) -> None:
        if not isinstance(self.hidden, (list, tuple)):
            raise TypeError(
                f"Dense: hidden must be a list of layer sizes such as (100,), got {self.hidden!r}"
            )
        choice("Dense: activation", self.activation, tuple(ACTIVATIONS))
        choice("Dense: init", self.init, ("torch", "gaussian", "zeros"))
        store(
            self,
            hidden=tuple(whole("Dense: a hidden layer's size", size, low=1) for size in self.hidden),
            scale=real("Dense: scale", self.scale, NON_NEGATIVE),
        )

    def sizes(self, inputs: int, outputs: int) -> tuple[int, ...]:
        """The widths from the inputs to the outputs."""
        return (inputs, *self.hidden, outputs)

    def layers(self, inputs: int, outputs: int) -> Layers:
        """Its layers as a partition takes them: their names, and the sizes of weight and bias."""
        pairs = enumerate(pairwise(self.sizes(inputs, outputs)), start=1)
        return {f"layer{i}": (width * out, out) for i, (width, out) in pairs}

    def parameters(self, inputs: int, outputs: int) -> int:
        """How many parameters it has."""
        return sum(map(sum, self.layers(inputs, outputs).values()))

    def start(self, inputs: int, outputs: int, chains: ArrayLike, seed: int) -> Array:
        """Where the chains with these numbers start: (chains, parameters)."""
        numbers = np.asarray(chains)
        size = self.parameters(inputs, outputs)
        if self.init == "zeros":
            return np.zeros((len(numbers), size))
        if self.init == "gaussian":
            return self.scale * normals(seed, START, 0, numbers, 0, 0, size)
        widths = [
            np.full(out * (width + 1), 1 / np.sqrt(width))
            for width, out in pairwise(self.sizes(inputs, outputs))
        ]
        return np.concatenate(widths) * (2 * uniforms(seed, START, 0, numbers, 0, 0, size) - 1)

    def forward(self, theta: ArrayLike, x: ArrayLike, outputs: int) -> Array:
        """The logits (examples, outputs) at inputs x (examples, inputs) with parameters theta, in float64."""
        vector, inputs = np.asarray(theta, np.float64), np.asarray(x, np.float64)
        sizes = self.sizes(inputs.shape[-1], outputs)
        result = np.empty((len(inputs), outputs))
        rows = block(AT_ONCE // max(sizes[1:]))
        for first in range(0, len(inputs), rows):
            values, begin = inputs[first : first + rows], 0
            for place, (width, out) in enumerate(pairwise(sizes), start=1):
                middle = begin + width * out
                W = vector[begin:middle].reshape(out, width)
                begin = middle + out
                values = values @ W.T
                values += vector[middle:begin]
                if place < len(sizes) - 1:
                    values = ACTIVATIONS[self.activation].value(values)
            result[first : first + rows] = values
        return result

    def between(
        self, theta: ArrayLike, inputs: tuple[ArrayLike, ArrayLike], outputs: tuple[ArrayLike, ArrayLike]
    ) -> Array:
        """The parameters (..., parameters) of the networks that say c f(a x + b) + d of x, f those of theta.

        `inputs` are a and b, of each input, and `outputs` c and d, of each output.
        """
        (a, b), (c, d) = ([np.asarray(v, np.float64).ravel() for v in pair] for pair in (inputs, outputs))
        vectors = np.array(theta, np.float64)
        first, last = self.sizes(len(a), len(c))[1], self.sizes(len(a), len(c))[-2]
        W, bias = vectors[..., : first * len(a)], vectors[..., first * len(a) : first * (len(a) + 1)]
        W = W.reshape(*W.shape[:-1], first, len(a))
        bias += W @ b
        W *= a
        end = vectors[..., vectors.shape[-1] - len(c) * (last + 1) :]
        end[..., : len(c) * last] *= np.repeat(c, last)
        end[..., len(c) * last :] *= c
        end[..., len(c) * last :] += d
        return vectors

    def to_torch(self, theta: ArrayLike, inputs: int, outputs: int) -> torch.nn.Sequential:
        """A torch module with these parameters; it ends in logits, without sigmoid or softmax."""
        import torch

        modules: list[torch.nn.Module] = []
        for width, out in pairwise(self.sizes(inputs, outputs)):
            modules += [torch.nn.Linear(width, out), getattr(torch.nn, ACTIVATIONS[self.activation].module)()]
        module = torch.nn.Sequential(*modules[:-1])
        vector = torch.tensor(np.asarray(theta))
        if vector.shape != (expected := (self.parameters(inputs, outputs),)):
            raise ValueError(f"theta must have shape {expected}, got {tuple(vector.shape)}")
        module = module.to(vector.dtype)
        torch.nn.utils.vector_to_parameters(vector, module.parameters())
        return module


def from_torch(module: Any) -> Array:
    """The parameters of a torch module as one vector, in the order in which they are numbered here."""
    return np.concatenate([p.detach().cpu().double().numpy().ravel() for p in module.parameters()])
