"""Parts of a deep network by rule: its blocks, its embeddings, its norms and biases, and what remains.

A part for each layer is right for small networks. In a deep network it makes hundreds of parts, most of which
are norms of a few numbers. Here the matrices of a block are a part. A block is a module that the network
repeats:

1. Modules that contain others and are in a `ModuleList`, or in a `Sequential` that has two or more of their
   class; the outermost of them. These are the layers of a transformer, and the residual blocks of a stage.
2. Without such modules: modules of a class of the model's own that occurs twice or more, the outermost.
3. Without these, too: every layer is a block.

All hidden vectors (norms, biases) are one part, and so are all embeddings. What lies outside of blocks, such
as the first convolution, is a part by its layer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from torch import Tensor, nn

from heatbath.torch.optim.state import is_lazy

NORMALISATIONS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)
CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
EMBEDDINGS, VECTORS = "embeddings", "norms and biases"


def block_names(model: nn.Module) -> list[str]:
    """Return the names of a model's blocks, the modules that it repeats.

    Blocks are the members of a `ModuleList`, and members of a `Sequential` that share a class with another
    member of one. If there are none, all modules that share a class are blocks. Only modules that contain
    others count, and a block within a block is left out.
    """
    compound = {name: module for name, module in model.named_modules() if name and _is_compound(module)}
    containers = {name: container for name, container in _modules_in_containers(model) if name in compound}

    counts = Counter(type(compound[name]) for name in containers)
    blocks = [
        name
        for name, container in containers.items()
        if isinstance(container, nn.ModuleList) or counts[type(compound[name])] > 1
    ]
    if not blocks:
        counts = Counter(map(type, compound.values()))
        blocks = [name for name, module in compound.items() if counts[type(module)] > 1]

    return [name for name in blocks if not any(name.startswith(f"{outer}.") for outer in blocks)]


def _is_compound(module: nn.Module) -> bool:
    """Return whether a module is more than a container and contains modules with parameters."""
    if isinstance(module, CONTAINERS):
        return False
    return any(True for child in module.children() for _ in child.parameters())


def _modules_in_containers(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the name of each module in a list or a sequence, with that list or sequence."""
    for name, module in model.named_modules():
        if isinstance(module, (nn.Sequential, nn.ModuleList)):
            for child, _ in module.named_children():
                yield f"{name}.{child}" if name else child, module


class HiddenParameter(NamedTuple):
    """A parameter of a hidden layer, with the name of the layer and the module that has the parameter."""

    layer: str
    owner: nn.Module
    parameter: Tensor


def divide_into_parts(model: nn.Module, hidden: list[HiddenParameter]) -> dict[str, list[Tensor]]:
    """Group the parameters of hidden layers into parts: embeddings, vectors, blocks and remaining layers.

    Parameters
    ----------
    model : Module
        The whole model, whose repeated modules are the blocks.
    hidden : list of HiddenParameter
        All parameters except those of the output layer.

    Returns
    -------
    dict of str to list of Tensor
        Parameters by the name of their part, in the order in which parts first occur.
    """
    blocks = block_names(model)
    parts: dict[str, list[Tensor]] = {}
    for layer, owner, parameter in hidden:
        if isinstance(owner, (nn.Embedding, nn.EmbeddingBag)):
            part = EMBEDDINGS
        elif isinstance(owner, NORMALISATIONS) or (not is_lazy(parameter) and parameter.dim() < 2):
            part = VECTORS
        else:
            part = next((name for name in blocks if layer == name or layer.startswith(f"{name}.")), layer)
        parts.setdefault(part, []).append(parameter)
    return parts
