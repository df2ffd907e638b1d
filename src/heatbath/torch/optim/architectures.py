"""Parts of a deep network by rule: its blocks, its embeddings, its norms and biases, and what is left.

A part for each layer is right for small networks. In a deep one it makes hundreds of them, most of which are
norms of a few numbers. Here the matrices of a block are a part, a block being what a model is repeated of:

1. Modules that have others in them and are in a `ModuleList`, or in a `Sequential` where there are two or
   more of their class; the outermost of them. So are the layers of a transformer, and the residual blocks of
   a stage.
2. Where there are none: modules of a class of the model's own that occurs twice or more, the outermost.
3. Where there are none of these either, every layer is a block.

All hidden vectors (norms, biases) are one part, and so are all embeddings. What lies outside of blocks, such
as the first convolution, is a part by its layer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from torch import Tensor, nn

from heatbath.torch.optim.state import is_lazy

NORMALISATIONS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)
CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
EMBEDDINGS, VECTORS = "embeddings", "norms and biases"


def block_names(model: nn.Module) -> list[str]:
    """The names of the modules that a model is repeated of."""
    inner = {name: module for name, module in model.named_modules() if name and _is_inner(module)}
    in_containers = dict(_in_containers(model))
    counts = Counter(type(inner[name]) for name in in_containers if name in inner)
    chosen = [
        name
        for name, container in in_containers.items()
        if name in inner and (isinstance(container, nn.ModuleList) or counts[type(inner[name])] > 1)
    ]
    if not chosen:
        counts = Counter(map(type, inner.values()))
        chosen = [name for name, module in inner.items() if counts[type(module)] > 1]
    return [name for name in chosen if not any(name.startswith(f"{other}.") for other in chosen)]


def _is_inner(module: nn.Module) -> bool:
    """Whether it is more than a container, and has modules with parameters in it."""
    return not isinstance(module, CONTAINERS) and any(
        True for child in module.children() for _ in child.parameters()
    )


def _in_containers(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The names of all modules that are in a list or in a sequence, and what they are in."""
    for name, module in model.named_modules():
        if isinstance(module, (nn.Sequential, nn.ModuleList)):
            for child, _ in module.named_children():
                yield f"{name}.{child}" if name else child, module


def parts_of(model: nn.Module, hidden: list[tuple[str, nn.Module, Tensor]]) -> dict[str, list[Tensor]]:
    """The parameters of hidden layers by parts, in the order of their first parameters.

    `hidden` has for each the name of its layer, the module that owns it, and the parameter itself.
    """
    blocks = block_names(model)
    parts: dict[str, list[Tensor]] = {}
    for layer, owner, parameter in hidden:
        block = next((name for name in blocks if layer == name or layer.startswith(f"{name}.")), layer)
        if isinstance(owner, (nn.Embedding, nn.EmbeddingBag)):
            part = EMBEDDINGS
        elif isinstance(owner, NORMALISATIONS) or (not is_lazy(parameter) and parameter.dim() < 2):
            part = VECTORS
        else:
            part = block
        parts.setdefault(part, []).append(parameter)
    return parts
