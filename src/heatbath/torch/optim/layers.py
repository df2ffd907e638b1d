"""Which parameters of a model are hidden layers and which are the output layer."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from heatbath._internal.checks import choice, shown
from heatbath.torch.optim.architectures import NORMALISATIONS, parts_of
from heatbath.torch.optim.state import is_lazy

Parts = Literal["layers", "blocks"]
HOW = (
    'pass the module itself, model.named_parameters(), hidden= and output=, or groups with a "part" that is '
    "'hidden' or 'output', or with output= beside them"
)


class ModuleLayer(NamedTuple):
    """The parameters that a module owns, under its name; `why` it should not be taken for the last."""

    name: str
    params: list[Tensor]
    why: str = ""


class CallOrder:
    """Which layer of a module acts last, as its first forward pass shows: it may not be declared last.

    Where its parts are called and not itself, the last is taken that was called before the first step.
    Where it is compiled or scripted nothing is seen: then shapes tell, or nothing does, which is said.
    """

    @staticmethod
    def is_open(module: nn.Module) -> bool:
        """Whether another may act last than is declared last: not where all is in sequence."""
        several = [one for one in module.modules() if any(True for _ in one.children())]
        return any(type(one) is not nn.Sequential for one in several)

    def __init__(self, module: nn.Module, output: str) -> None:
        self.output = output
        self.last = self.ended = ""
        self.judged = False
        found = of_module(module)
        self.chained = _is_chained(found)
        self.rival = not self.chained and found[-1].name == output and _is_taken(found)
        self.hooks: list[Any] = []
        if any(isinstance(one, torch.jit.ScriptModule) for one in module.modules()):
            return
        hooks = [
            owner.register_forward_hook(partial(self._note, _owner(name) or type(owner).__name__))
            for name, owner in module.named_modules()
            if any(True for _ in owner.parameters(recurse=False)) and owner is not module
        ]
        self.hooks = [*hooks, module.register_forward_hook(self._end)]

    def _note(self, name: str, *_: object) -> None:
        if not torch.compiler.is_compiling():
            self.last = name

    def _end(self, *_: object) -> None:
        if not torch.compiler.is_compiling():
            self.ended = self.last
            self._let_go()

    def _let_go(self) -> None:
        for hook in self.hooks:
            hook.remove()

    def is_confirmed(self, moves: bool = True) -> bool:
        """Whether it is the output layer; refused where another acts last. `moves`: whether a step is made
        now, by which it should have been seen."""
        if moves and not self.ended and self.last:
            self.ended = self.last
            self._let_go()
        if moves and not self.ended and not self.judged:
            self._judge()
        if self.ended and self.ended != self.output:
            raise ValueError(
                f"the layer that acts last is {self.ended!r}, and {self.output!r}, declared last, was "
                f"taken for the output layer: say which it is, as in output=model.{self.ended}"
            )
        return bool(self.ended)

    def _judge(self) -> None:
        """Judge by shapes, where nothing was seen."""
        self.judged = True
        if self.rival:
            raise ValueError(_rival_of(self.output))
        if not self.chained:
            warnings.warn(
                f"which layer acts last cannot be seen, as the model is compiled or scripted: {self.output!r}"
                ", declared last, is taken for the output layer. Say which it is, as in output=model.head",
                RuntimeWarning,
                stacklevel=2,
            )


def split(model: object, hidden: object, output: object, parts: Parts = "layers") -> list[dict[str, Any]]:
    """Groups with "params", "name" and "part": one for each hidden layer, and the output layer's."""
    choice("parts", parts, ("layers", "blocks"))
    if parts == "blocks":
        return _by_blocks(model, hidden, output)
    if model is None:
        if hidden is None or output is None:
            raise TypeError(f"a model is needed: {HOW}")
        return _groups("hidden", _layers(hidden, "hidden")) + _groups("output", _layers(output, "output"))
    if hidden is not None:
        raise TypeError("hidden= goes with output= and without a model")
    if isinstance(model, Iterable) and not isinstance(model, (nn.Module, Tensor)):
        model = list(model)
        if model and all(isinstance(group, Mapping) for group in model):
            groups = [dict(group) for group in model]
            groups = checked_parts(groups if output is None else _divided(groups, output))
            if {group["part"] for group in groups} != {"hidden", "output"}:
                raise ValueError("both parts are needed, a group that is 'hidden' and one that is 'output'")
            return groups
    layers = _layers(model, "")
    if output is not None:
        last = _layers(output, "output")
        owned = {id(p) for layer in last for p in layer.params}
        if not owned <= {id(p) for layer in layers for p in layer.params}:
            raise ValueError("output= must be a part of the model, and has parameters that the model has not")
        rest = [ModuleLayer(layer.name, [p for p in layer.params if id(p) not in owned]) for layer in layers]
        rest = [layer for layer in rest if layer.params]
        if not rest:
            raise ValueError("output= is the whole model: nothing is left for the hidden layers")
        return _groups("hidden", rest) + _groups("output", last)
    if len(layers) < 2:
        raise ValueError(f"a hidden layer and an output layer are needed, got {len(layers)} layer: {HOW}")
    if layers[-1].why:
        raise ValueError(
            f"the last layer, {layers[-1].name!r}, {layers[-1].why}: say which is the output layer, as in "
            "output=model.head"
        )
    if isinstance(model, nn.Module):
        _check_own(model)
    else:
        _check_chain(layers)
    return _groups("hidden", layers[:-1]) + _groups("output", layers[-1:])


def _by_blocks(model: object, hidden: object, output: object) -> list[dict[str, Any]]:
    """A group for each part of a deep network (see `architectures`), and the output layer's.

    A last layer that shares its parameters, as those of language models do with their embeddings, is the
    output layer with all of them.
    """
    if not isinstance(model, nn.Module) or hidden is not None:
        raise TypeError(
            "parts='blocks' are found in the module: pass the model itself, and output= beside it where that "
            'is not its last layer; in the Hugging Face Trainer give the optimiser "model": model'
        )
    owners = [(name, owner) for name, owner in model.named_modules() if list(owner.parameters(recurse=False))]
    if not owners:
        raise ValueError("a hidden layer and an output layer are needed, and the model has no parameters")
    if output is None:
        name, last = owners[-1]
        if isinstance(last, NORMALISATIONS):
            raise ValueError(
                f"the last layer, {name!r}, is a normalisation: say which is the output layer, as in "
                "output=model.head"
            )
        _check_own(model)
        final = [ModuleLayer(_owner(name) or type(last).__name__, list(last.parameters(recurse=False)))]
        above = name.rpartition(".parametrizations")[0]
        if above:  # all that a parametrised layer has
            final = [ModuleLayer(above, list(model.get_submodule(above).parameters()))]
    else:
        final = _layers(output, "output")
    seen = {id(p) for layer in final for p in layer.params}
    if not seen <= {id(p) for p in model.parameters()}:
        raise ValueError("output= must be a part of the model, and has parameters that the model has not")
    rest: list[tuple[str, nn.Module, Tensor]] = []
    for name, owner in owners:
        for parameter in owner.parameters(recurse=False):
            if id(parameter) not in seen:
                rest.append((_owner(name) or type(owner).__name__, owner, parameter))
                seen.add(id(parameter))
    if not rest:
        raise ValueError(f"nothing is left for the hidden layers: {HOW}")
    hidden_parts = [ModuleLayer(name, params) for name, params in parts_of(model, rest).items()]
    return _groups("hidden", hidden_parts) + _groups("output", final)


def _divided(groups: list[dict[str, Any]], output: object) -> list[dict[str, Any]]:
    """Groups without a part, as frameworks make them, divided into what is in the output layer and the rest;
    of parameters with names, by layers."""
    owned = {id(p) for layer in _layers(output, "output") for p in layer.params}
    divided = []
    for group in groups:
        entries = group["params"]
        entries = [entries] if isinstance(entries, Tensor) else list(entries)
        for part in ("hidden", "output"):
            chosen = [e for e in entries if (id(_tensor(e)) in owned) == (part == "output")]
            owners: dict[str, list[Any]] = {}
            for entry in chosen:
                name = _owner(entry[0].rpartition(".")[0]) if isinstance(entry, tuple) else ""
                owners.setdefault(name if part == "hidden" else "", []).append(entry)
            for name, own in owners.items():
                divided.append(group | {"params": own, "part": part} | ({"name": name} if name else {}))
    if "output" not in {group["part"] for group in divided}:
        raise ValueError("output= must be a part of the model, and none of its parameters is in the groups")
    return divided


def _tensor(entry: Any) -> Any:
    """A parameter that may have a name beside it."""
    return entry[1] if isinstance(entry, tuple) else entry


def _check_own(model: nn.Module) -> None:
    """Ask for the output layer where it may be a matrix that the model has beside its modules."""
    for name, p in model.named_parameters(recurse=False):
        if not is_lazy(p) and p.dim() == 2 and min(p.shape) > 1:
            raise ValueError(
                f"the model has a matrix beside its modules, {name!r}, which may be its last layer: say "
                f"which is the output layer, as in output=model.{name} or output=model.head"
            )


def _check_chain(layers: list[ModuleLayer]) -> None:
    """Ask for the output layer where the last gives what another takes, and not each what the next takes."""
    if not _is_chained(layers) and _is_taken(layers):
        raise ValueError(_rival_of(layers[-1].name))


def _matrices(layers: list[ModuleLayer]) -> list[torch.Size]:
    return [p.shape for layer in layers for p in layer.params[:1] if not is_lazy(p) and p.dim() > 1]


def _is_chained(layers: list[ModuleLayer]) -> bool:
    """Whether each gives what the next takes."""
    return all(one[0] == following[1] for one, following in pairwise(_matrices(layers)))


def _is_taken(layers: list[ModuleLayer]) -> bool:
    """Whether another takes what the last gives."""
    *others, last = _matrices(layers) or [torch.Size()]
    return any(other[1] == last[0] for other in others)


def _rival_of(name: str) -> str:
    return (
        f"{name!r} is the last layer by its place, and another takes as many values as it gives: say which "
        "is the output layer, as in output=model.head"
    )


def _layers(given: object, name: str) -> list[ModuleLayer]:
    """The layers of a module, of named parameters, or (only under a name) of bare parameters: one layer."""
    if isinstance(given, nn.Module):
        return of_module(given)
    entries = [given] if isinstance(given, Tensor) else list(given) if isinstance(given, Iterable) else None
    if not entries:
        raise TypeError(f"parameters are needed, got {shown(given)}: {HOW}")
    if all(
        isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[1], Tensor) for entry in entries
    ):
        owners: dict[str, list[Tensor]] = {}
        for full, parameter in entries:
            owners.setdefault(_owner(full.rpartition(".")[0]), []).append(parameter)
        why = "has vectors only, as a normalisation has"
        return [
            ModuleLayer(owner or name, params, "" if any(p.dim() > 1 for p in params) else why)
            for owner, params in owners.items()
        ]
    if not all(isinstance(entry, Tensor) for entry in entries):
        raise TypeError(f"parameters are needed, got {shown(entries[0])}: {HOW}")
    if not name:
        raise TypeError(f"bare parameters do not tell which layer is the last: {HOW}")
    return [ModuleLayer(name, entries)]


def of_module(module: nn.Module) -> list[ModuleLayer]:
    """The modules that own parameters, in order; a tied parameter belongs to its first owner."""
    seen: set[int] = set()
    layers: list[ModuleLayer] = []
    for full, owner in module.named_modules():
        name = _owner(full)
        owned = list(owner.parameters(recurse=False))
        new = [p for p in owned if id(p) not in seen]
        seen |= {id(p) for p in owned}
        tied = len(new) < len(owned)
        why = (
            "is a normalisation" if isinstance(owner, NORMALISATIONS) else "shares parameters" if tied else ""
        )
        if new and name != full and layers and layers[-1].name == name:
            layers[-1].params.extend(new)
        elif new:
            layers.append(ModuleLayer(name or type(owner).__name__, new, why))
        elif owned and layers:  # all of it belongs to others, and yet it may be the last
            layers[-1] = layers[-1]._replace(why=f"is followed by {name!r}, which shares its parameters")
    return layers


def _owner(name: str) -> str:
    """The layer that a module belongs to: parametrisations (weight_norm, ...) are within theirs."""
    parts = name.split(".")
    return ".".join(parts[: parts.index("parametrizations")] if "parametrizations" in parts else parts)


def _groups(part: str, layers: list[ModuleLayer]) -> list[dict[str, Any]]:
    return [{"params": layer.params, "part": part, "name": layer.name} for layer in layers]


def checked_parts(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Groups that say which part they are."""
    for group in groups:
        if group.get("part") not in ("hidden", "output"):
            raise ValueError(
                f"a group needs a \"part\", 'hidden' or 'output', got {shown(group.get('part'))}: {HOW}"
            )
    return groups


def flat(params: object) -> list[Any]:
    """The parameters of a module, or what was given, for a method that is the same everywhere."""
    if isinstance(params, nn.Module):
        params = params.parameters()
    if isinstance(params, Tensor) or not isinstance(params, Iterable):
        raise TypeError(f"a module or its parameters are needed, got {torch.typename(params)}")
    return list(params)
