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
    named_modules = dict(model.named_modules())
    del named_modules[""]  # the model itself
    compound = {name: module for name, module in named_modules.items() if _is_compound(module)}
    blocks = _repeated_in_containers(model, compound)
    if not blocks:
        class_counts = Counter(map(type, compound.values()))
        blocks = [name for name, module in compound.items() if class_counts[type(module)] > 1]
    beginnings = tuple(f"{name}." for name in blocks)  # of the names of what lies in a block
    return [name for name in blocks if not name.startswith(beginnings)]


def _repeated_in_containers(model: nn.Module, compound: dict[str, nn.Module]) -> list[str]:
    """Return those of the compound modules that are in a `ModuleList`, or in a `Sequential` and repeated."""
    containers: dict[str, nn.Module] = {}  # by the names of the modules in them
    for name, module in model.named_modules():
        if isinstance(module, (nn.Sequential, nn.ModuleList)):
            for child, _ in module.named_children():
                containers[f"{name}.{child}" if name else child] = module
    members = [name for name in containers if name in compound]
    class_counts = Counter(type(compound[name]) for name in members)
    repeated = []
    for name in members:
        if isinstance(containers[name], nn.ModuleList) or class_counts[type(compound[name])] > 1:
            repeated.append(name)
    return repeated


def _is_compound(module: nn.Module) -> bool:
    """Return whether a module is more than a container and contains modules with parameters."""
    if isinstance(module, CONTAINERS):
        return False
    return any(True for child in module.children() for _ in child.parameters())


def divide_into_parts(model: nn.Module, output_ids: set[int]) -> dict[str, list[Tensor]]:
    """Group the parameters of hidden layers into parts: embeddings, vectors, blocks and remaining layers.

    Parameters
    ----------
    model : Module
        The whole model, whose repeated modules are the blocks.
    output_ids : set of int
        The ids of the parameters of the output layer, which are left out.

    Returns
    -------
    dict of str to list of Tensor
        Parameters by the name of their part, in the order in which parts first occur. One that modules share
        is there once, with the first of them.
    """
    blocks = block_names(model)
    parts: dict[str, list[Tensor]] = {}
    seen = set(output_ids)
    for name, owner in model.named_modules():
        for parameter in owner.parameters(recurse=False):
            if id(parameter) not in seen:
                seen.add(id(parameter))
                part = _part_of(parameter, owner, layer_of_owner(name, owner), blocks)
                parts.setdefault(part, []).append(parameter)
    return parts


def base_layer(name: str) -> str:
    """Return the name of the layer of a module: that of the parametrised one for a parametrisation."""
    levels = name.split(".")
    if "parametrizations" in levels:
        levels = levels[: levels.index("parametrizations")]
    return ".".join(levels)


def layer_of_owner(name: str, owner: nn.Module) -> str:
    """Return the name of the layer of a module, or the module's class if it is the whole model."""
    return base_layer(name) or type(owner).__name__


def _part_of(parameter: Tensor, owner: nn.Module, layer: str, blocks: list[str]) -> str:
    """Return the part of a hidden parameter: by the kind of its module, by its block, or else its layer."""
    if isinstance(owner, (nn.Embedding, nn.EmbeddingBag)):
        return EMBEDDINGS
    if isinstance(owner, NORMALISATIONS):
        return VECTORS
    if not is_lazy(parameter) and parameter.dim() < 2:
        return VECTORS
    for block in blocks:
        if layer == block or layer.startswith(f"{block}."):
            return block
    return layer
