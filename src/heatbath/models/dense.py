"""Define dense networks: their shape, activations and initial parameters, and their torch modules."""

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
    """Activation of a layer in NumPy, in torch, and in compiled code.

    Attributes
    ----------
    number : int
        Its code in compiled code.
    value : callable
        The activation.
    slope : callable
        Its derivative, as a function of its value.
    module : str
        The name of its class in `torch.nn`.
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


AT_ONCE = 2**14  # values of a layer that are computed at a time, so that they stay in the cache
PIECE = 2**14  # largest block of rows: see `block`


def block(most: int) -> int:
    """Return how many rows are computed at a time: the largest power of two up to `most` and PIECE.

    Rounding in matrix products depends on the number of rows. With these blocks the results are the same, bit
    for bit, whether a table is given as a whole or in pieces of PIECE rows.
    """
    return 1 << min(max(most, 1), PIECE).bit_length() - 1


@dataclass(frozen=True)
class MLP:
    """Fully connected network: hidden layers with an activation, then a linear layer.

    The outputs are logits (of one class against the other, or of each class) or the values of a regression.
    The layers are called `layer1`, `layer2`, ... The parameters have torch's order: layer by layer, weight
    (out x in, row by row), then bias.

    Parameters
    ----------
    hidden : sequence of int, optional
        Widths of the hidden layers.
    activation : {"relu", "tanh", "identity"}, optional
        Activation of the hidden layers.
    init : {"torch", "gaussian", "zeros"}, optional
        Initial parameters of chains: "torch" draws weights and biases from U(-1/√in, 1/√in), torch's default
        for linear layers; "gaussian" draws both from N(0, scale²).
    scale : float, optional
        Standard deviation of "gaussian".

    Raises
    ------
    TypeError, ValueError
        If a value is not valid.

    Examples
    --------
    >>> MLP((100, 100)).parameters(inputs=2, outputs=1)
    10501
    """

    hidden: Sequence[int] = (100,)
    activation: Literal["relu", "tanh", "identity"] = "relu"
    init: Literal["torch", "gaussian", "zeros"] = "torch"
    scale: float = 0.01

    def __post_init__(self) -> None:
        """Check all fields."""
        if not isinstance(self.hidden, (list, tuple)):
            raise TypeError(f"MLP: hidden must be a list of layer sizes such as (100,), got {self.hidden!r}")
        choice("MLP: activation", self.activation, tuple(ACTIVATIONS))
        choice("MLP: init", self.init, ("torch", "gaussian", "zeros"))
        store(
            self,
            hidden=tuple(whole("MLP: a hidden layer's size", size, low=1) for size in self.hidden),
            scale=real("MLP: scale", self.scale, NON_NEGATIVE),
        )

    def sizes(self, inputs: int, outputs: int) -> tuple[int, ...]:
        """Return the widths from the inputs to the outputs."""
        return (inputs, *self.hidden, outputs)

    def layers(self, inputs: int, outputs: int) -> Layers:
        """Return the names of the layers, with the sizes of weight and bias, for `Partition.parts`."""
        pairs = enumerate(pairwise(self.sizes(inputs, outputs)), start=1)
        return {f"layer{i}": (width * out, out) for i, (width, out) in pairs}

    def parameters(self, inputs: int, outputs: int) -> int:
        """Return the number of parameters."""
        return sum(map(sum, self.layers(inputs, outputs).values()))

    def start(self, inputs: int, outputs: int, chains: ArrayLike, seed: int) -> Array:
        """Return the initial parameters of chains.

        Parameters
        ----------
        inputs, outputs : int
            Widths of the network's ends.
        chains : array_like of int
            Numbers of the chains.
        seed : int
            Seed of the run.

        Returns
        -------
        array, (chains, parameters)
        """
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
        """Return the outputs of networks in float64.

        Parameters
        ----------
        theta : array_like, (..., parameters)
            The parameters of each network.
        x : array_like, (examples, inputs) or (..., examples, inputs)
            The inputs of all networks, or those of each network.
        outputs : int
            The number of outputs.

        Returns
        -------
        array, (..., examples, outputs)
        """
        parameters = np.asarray(theta, np.float64)
        inputs = np.asarray(x, np.float64)
        sizes = self.sizes(inputs.shape[-1], outputs)
        if inputs.ndim > 2:
            if inputs.shape[:-2] != parameters.shape[:-1]:
                raise ValueError(
                    "x must have the same inputs for all networks, or inputs for each: it has them for "
                    f"{inputs.shape[:-2]}, and theta has {parameters.shape[:-1]} networks"
                )
            return self._forward_stack(parameters, inputs, sizes)
        network_outputs = np.empty((*parameters.shape[:-1], len(inputs), outputs))
        block_size = block(AT_ONCE // max(sizes[1:]))
        for network in np.ndindex(parameters.shape[:-1]):  # one at a time, to need little memory
            for start in range(0, len(inputs), block_size):
                rows = slice(start, start + block_size)
                network_outputs[network][rows] = self._forward_block(parameters[network], inputs[rows], sizes)
        return network_outputs

    def _forward_stack(self, theta: Array, x: Array, sizes: Sequence[int]) -> Array:
        """Return the outputs of networks with inputs of their own, all networks at a time."""
        example_count = x.shape[-2]
        block_size = block(AT_ONCE // max(sizes[1:]))  # as for a single network, whose rounding this has
        if example_count <= block_size:
            return self._forward_block(theta, x, sizes)
        starts = range(0, example_count, block_size)
        blocks = [self._forward_block(theta, x[..., i : i + block_size, :], sizes) for i in starts]
        return np.concatenate(blocks, axis=-2)

    def _forward_block(self, theta: Array, x: Array, sizes: Sequence[int]) -> Array:
        """Return the outputs for a block of inputs; `sizes` are the numbers of units of all layers.

        The last axis of `theta` has the parameters of a network, and the last two of `x` have its inputs.
        """
        activation = ACTIVATIONS[self.activation]
        outputs = x
        offset = 0
        for layer, (width, out) in enumerate(pairwise(sizes)):
            layer_inputs = activation.value(outputs) if layer > 0 else x
            bias_offset = offset + width * out
            W = theta[..., offset:bias_offset].reshape(*theta.shape[:-1], out, width)
            offset = bias_offset + out
            outputs = layer_inputs @ W.swapaxes(-1, -2)
            outputs += theta[..., None, bias_offset:offset]
        return outputs

    def between(
        self, theta: ArrayLike, inputs: tuple[ArrayLike, ArrayLike], outputs: tuple[ArrayLike, ArrayLike]
    ) -> Array:
        """Return the parameters of networks with rescaled inputs and outputs.

        They are networks x -> c f(a x + b) + d, where f are the networks with parameters theta.

        Parameters
        ----------
        theta : array_like, (..., parameters)
            Parameters of f.
        inputs : pair of array_like
            a and b, with one number for each input.
        outputs : pair of array_like
            c and d, with one number for each output.

        Returns
        -------
        array, (..., parameters)
        """
        a, b = (np.asarray(numbers, np.float64).ravel() for numbers in inputs)
        c, d = (np.asarray(numbers, np.float64).ravel() for numbers in outputs)
        sizes = self.sizes(len(a), len(c))
        first_width = sizes[1]
        last_width = sizes[-2]
        vectors = np.array(theta, np.float64)  # a copy; the slices below are views that change it

        # First layer: W (a x + b) + bias = (W a) x + (bias + W b).
        W = vectors[..., : first_width * len(a)]
        bias = vectors[..., first_width * len(a) : first_width * (len(a) + 1)]
        W = W.reshape(*W.shape[:-1], first_width, len(a))
        bias += W @ b
        W *= a

        # Last layer: c (W x + bias) + d.
        last_layer = vectors[..., vectors.shape[-1] - len(c) * (last_width + 1) :]
        last_layer[..., : len(c) * last_width] *= np.repeat(c, last_width)
        last_layer[..., len(c) * last_width :] *= c
        last_layer[..., len(c) * last_width :] += d
        return vectors

    def to_torch(self, theta: ArrayLike, inputs: int, outputs: int) -> torch.nn.Sequential:
        """Return a torch module with these parameters. Its outputs are logits, without sigmoid or softmax.

        Parameters
        ----------
        theta : array_like, (parameters,)
            The parameters; their type becomes that of the module.
        inputs, outputs : int
            Widths of the network's ends.
        """
        import torch

        modules: list[torch.nn.Module] = []
        for width, out in pairwise(self.sizes(inputs, outputs)):
            modules += [torch.nn.Linear(width, out), getattr(torch.nn, ACTIVATIONS[self.activation].module)()]
        module = torch.nn.Sequential(*modules[:-1])
        vector = torch.tensor(np.asarray(theta))
        needed_shape = (self.parameters(inputs, outputs),)
        if vector.shape != needed_shape:
            raise ValueError(f"theta must have shape {needed_shape}, got {tuple(vector.shape)}")
        module = module.to(vector.dtype)
        torch.nn.utils.vector_to_parameters(vector, module.parameters())
        return module


def from_torch(module: Any) -> Array:
    """Return the parameters of a torch module as one vector, in the order of `MLP`."""
    return np.concatenate([p.detach().cpu().double().numpy().ravel() for p in module.parameters()])
