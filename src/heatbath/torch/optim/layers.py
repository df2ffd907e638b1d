"""Rules that find the hidden layers and the output layer of a model.

A layer is a module that has parameters of its own. The output layer is the last one that a model declares,
unless `output=` names another. Where the order of declaration may mislead (shared parameters, a normalisation
at the end, another layer whose shape fits as well, a forward pass that ends elsewhere), the user is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from heatbath._internal.checks import choice, shown
from heatbath._internal.warnings import warn
from heatbath.torch.optim.architectures import NORMALISATIONS, base_layer, divide_into_parts, layer_of_owner
from heatbath.torch.optim.param_groups import NewGroup, listed, tensor_of
from heatbath.torch.optim.state import is_lazy

Parts = Literal["layers", "blocks"]
ACCEPTED = (
    'pass the module itself, model.named_parameters(), hidden= and output=, or groups with a "part" that is '
    "'hidden' or 'output', or with output= beside them"
)
NAME_IT = "name the output layer, as in output=model.head"
OUTPUT_NOT_IN_MODEL = "output= must be a part of the model, but has parameters that the model doesn't have"


class ModuleLayer(NamedTuple):
    """The parameters that a module has itself, under its name.

    `doubt` says why it should not be taken for the output layer without asking; it is empty for most layers.
    """

    name: str
    params: list[Tensor]
    doubt: str = ""


class CallOrder:
    """Watches which layer acts last in the first forward pass, which may not be the one declared last.

    Where only parts of the module are called, the layer that was called last before the first step counts. In
    compiled and scripted modules no call is seen: then the shapes of layers decide, or a warning is given.

    Parameters
    ----------
    module : Module
        The model.
    output : str
        The name of the layer that is taken for the output layer.
    """

    @staticmethod
    def is_uncertain(module: nn.Module) -> bool:
        """Return whether another layer may act last than is declared last: false for a plain sequence."""
        for child in module.modules():
            has_children = any(True for _ in child.children())
            if has_children and type(child) is not nn.Sequential:
                return True
        return False

    def __init__(self, module: nn.Module, output: str) -> None:
        """Judge the order of layers by their shapes, and watch the module's calls unless it is scripted."""
        self.output = output
        self.latest = self.final = ""  # layer called last so far; layer that acts last, once it is known
        self.was_judged = False

        layers = layers_of_module(module)
        self.is_chain = _is_chain(layers)
        self.has_rival = not self.is_chain and layers[-1].name == output and _has_rival(layers)

        self.hooks: list[RemovableHandle] = []
        if any(isinstance(child, torch.jit.ScriptModule) for child in module.modules()):
            return  # it would not call them
        for name, owner in _owners(module):
            if owner is not module:
                note_call = partial(self._note_call, layer_of_owner(name, owner))
                self.hooks.append(owner.register_forward_hook(note_call))
        self.hooks.append(module.register_forward_hook(self._note_end))

    def _note_call(self, name: str, *_: object) -> None:
        """Remember the layer that was called last; a forward hook of each layer."""
        if not torch.compiler.is_compiling():
            self.latest = name

    def _note_end(self, *_: object) -> None:
        """Settle which layer acts last when a forward pass ends; a forward hook of the whole module."""
        if not torch.compiler.is_compiling():
            self._settle()

    def _settle(self) -> None:
        """Take the layer called last for the one that acts last, and stop watching."""
        self.final = self.latest
        for hook in self.hooks:
            hook.remove()

    def is_confirmed(self, moves: bool) -> bool:
        """Return whether the output layer is known to act last.

        Parameters
        ----------
        moves : bool
            True if a step is about to move parameters, so that the model should have been called.

        Raises
        ------
        ValueError
            If another layer acts last, or may do so by its shape.
        """
        if moves and not self.final:
            if self.latest:
                self._settle()
            elif not self.was_judged:
                self._judge_by_shapes()
        if self.final and self.final != self.output:
            raise ValueError(
                f"the layer that acts last is {self.final!r}, but {self.output!r}, declared last, was taken "
                f"for the output layer: name the output layer, as in output=model.{self.final}"
            )
        return bool(self.final)

    def _judge_by_shapes(self) -> None:
        """Refuse an output layer that another layer may follow by its shape; warn if shapes can't tell."""
        self.was_judged = True
        if self.has_rival:
            raise ValueError(_describe_rival(self.output))
        if not self.is_chain:
            warn(
                "which layer acts last cannot be seen, as the model is compiled or scripted: "
                f"{self.output!r}, declared last, is taken for the output layer. If it isn't, {NAME_IT}"
            )


def split(model: object, hidden: object, output: object, parts: Parts = "layers") -> list[NewGroup]:
    """Divide a model into groups: one for each hidden layer, and the output layer's as the last.

    Parameters
    ----------
    model : Module, named parameters, groups or None
        What the optimiser was given.
    hidden, output : Module, parameters or None
        The hidden layers, which go without a model, and the output layer.
    parts : "layers" or "blocks"
        Whether a hidden part is a layer, or a block of a deep network (see `architectures`).

    Returns
    -------
    list of dict
        Groups with "params", "name" and "part", which is "hidden" or "output".

    Raises
    ------
    TypeError
        If the arguments are not parameters, or contradict one another.
    ValueError
        If a part is missing, or if the last layer may not be the output layer.
    """
    choice("parts", parts, ("layers", "blocks"))
    if parts == "blocks":
        return _split_into_blocks(model, hidden, output)

    if model is None:
        if hidden is None or output is None:
            raise TypeError(f"a model is needed: {ACCEPTED}")
        return _groups_of(_layers_of(hidden, "hidden"), _layers_of(output, "output"))
    if hidden is not None:
        raise TypeError("hidden= is given without a model and with output=; got a model as well")

    if isinstance(model, Iterable) and not isinstance(model, (nn.Module, Tensor)):
        model = list(model)
        if model and all(isinstance(group, Mapping) for group in model):
            return _split_groups([dict(group) for group in model], output)
    layers = _layers_of(model, "")
    if output is not None:
        return _split_off(layers, _layers_of(output, "output"))
    _check_last_layer(model, layers)
    return _groups_of(layers[:-1], layers[-1:])


def _check_last_layer(model: object, layers: list[ModuleLayer]) -> None:
    """Refuse layers whose last one may not be the output layer; the error asks for `output=`.

    `model` is the module or the named parameters that the layers are from.
    """
    if len(layers) < 2:
        raise ValueError(
            f"a hidden layer and an output layer are needed, got {len(layers)} layer: {ACCEPTED}"
        )
    if layers[-1].doubt:
        raise ValueError(f"the last layer, {layers[-1].name!r}, {layers[-1].doubt}: {NAME_IT}")
    if isinstance(model, nn.Module):
        _check_no_own_matrix(model)
    elif not _is_chain(layers) and _has_rival(layers):
        raise ValueError(_describe_rival(layers[-1].name))


def _split_groups(groups: list[NewGroup], output: object) -> list[NewGroup]:
    """Return groups that each have a "part": the one they name, or the one that `output` tells.

    `output` is a module or parameters; with it, groups have no "part", as frameworks make them. They are
    divided into the output layer and hidden layers, and keep their other values. Hidden parameters with names
    are divided by layers, those without stay together.
    """
    divided = groups
    if output is not None:
        output_ids = _parameter_ids(_layers_of(output, "output"))
        divided = [part for group in groups for part in _divide_group(group, output_ids)]
        if "output" not in {group["part"] for group in divided}:
            raise ValueError(
                "output= must be a part of the model, but none of its parameters is in the groups"
            )
    check_parts(divided)
    if {group["part"] for group in divided} != {"hidden", "output"}:
        raise ValueError("both parts are needed: a group that is 'hidden' and a group that is 'output'")
    return divided


def _split_off(layers: list[ModuleLayer], final: list[ModuleLayer]) -> list[NewGroup]:
    """Return groups of the output layer `final` and, without its parameters, of all other layers."""
    output_ids = _parameter_ids(final)
    if not output_ids <= _parameter_ids(layers):
        raise ValueError(OUTPUT_NOT_IN_MODEL)

    hidden = []
    for layer in layers:
        hidden_params = [parameter for parameter in layer.params if id(parameter) not in output_ids]
        if hidden_params:
            hidden.append(ModuleLayer(layer.name, hidden_params))
    if not hidden:
        raise ValueError("output= is the whole model: nothing is left for the hidden layers")
    return _groups_of(hidden, final)


def _parameter_ids(layers: list[ModuleLayer]) -> set[int]:
    """Return the ids of the parameters of all layers."""
    return {id(parameter) for layer in layers for parameter in layer.params}


def _split_into_blocks(model: object, hidden: object, output: object) -> list[NewGroup]:
    """Divide a deep network into a group for each part (see `architectures`) and the output layer's.

    A last layer that shares its parameters, as those of language models do with their embeddings, is the
    output layer with all of them.

    Parameters
    ----------
    model : Module
        The network; anything else is refused.
    hidden : None
        Refused if it is given: the hidden layers are all but the output layer.
    output : Module, parameters or None
        The output layer; None for the last module that has parameters.
    """
    if not isinstance(model, nn.Module) or hidden is not None:
        raise TypeError(
            "parts='blocks' are found in the module: pass the model itself, and output= beside it where that "
            'is not its last layer; in the Hugging Face Trainer give the optimiser "model": model'
        )
    owners = list(_owners(model))
    if not owners:
        raise ValueError("a hidden layer and an output layer are needed, but the model has no parameters")

    if output is None:
        last_name, last_owner = owners[-1]
        final = [_last_layer(model, last_name, last_owner)]
    else:
        final = _layers_of(output, "output")
    output_ids = _parameter_ids(final)
    if not output_ids <= {id(parameter) for parameter in model.parameters()}:
        raise ValueError(OUTPUT_NOT_IN_MODEL)

    params_of_parts = divide_into_parts(model, output_ids)
    if not params_of_parts:
        raise ValueError(f"nothing is left for the hidden layers: {ACCEPTED}")
    return _groups_of([ModuleLayer(name, params) for name, params in params_of_parts.items()], final)


def _last_layer(model: nn.Module, name: str, owner: nn.Module) -> ModuleLayer:
    """Return the last layer of a deep network, with all parameters that it has or shares.

    Parameters
    ----------
    model : Module
        The network.
    name, owner
        The last module that has parameters, and its name.
    """
    if isinstance(owner, NORMALISATIONS):
        raise ValueError(f"the last layer, {name!r}, is a normalisation: {NAME_IT}")
    _check_no_own_matrix(model)
    parametrised_name = name.rpartition(".parametrizations")[0]
    if parametrised_name:  # the layer has parameters in several modules
        parametrised = model.get_submodule(parametrised_name)
        return ModuleLayer(parametrised_name, list(parametrised.parameters()))
    return ModuleLayer(layer_of_owner(name, owner), list(owner.parameters(recurse=False)))


def _divide_group(group: NewGroup, output_ids: set[int]) -> list[NewGroup]:
    """Divide a group into one for each hidden layer and one for what it has of the output layer."""
    hidden: dict[str, list[object]] = {}  # entries of "params" by the name of their layer, "" without
    final: list[object] = []
    for entry in listed(group["params"]):
        if id(tensor_of(entry)) in output_ids:
            final.append(entry)
        else:
            layer_name = _layer_of_parameter(entry[0]) if isinstance(entry, tuple) else ""
            hidden.setdefault(layer_name, []).append(entry)

    divided = []
    for layer_name, entries in hidden.items():
        hidden_group = group | {"params": entries, "part": "hidden"}
        if layer_name:
            hidden_group["name"] = layer_name
        divided.append(hidden_group)
    if final:
        divided.append(group | {"params": final, "part": "output"})
    return divided


def _check_no_own_matrix(model: nn.Module) -> None:
    """Ask for the output layer where it may be a matrix that the model has beside its modules."""
    for name, parameter in model.named_parameters(recurse=False):
        if not is_lazy(parameter) and parameter.dim() == 2 and min(parameter.shape) > 1:
            raise ValueError(
                f"the model has a matrix beside its modules, {name!r}, which may be its last layer: name the "
                f"output layer, as in output=model.{name} or output=model.head"
            )


def _shapes_of_matrices(layers: list[ModuleLayer]) -> list[torch.Size]:
    """Return the shapes (outputs, inputs, ...) of the first parameters of layers, if these are matrices."""
    first_params = [layer.params[0] for layer in layers if layer.params]
    known_params = [parameter for parameter in first_params if not is_lazy(parameter)]
    return [parameter.shape for parameter in known_params if parameter.dim() > 1]


def _is_chain(layers: list[ModuleLayer]) -> bool:
    """Return whether each layer has as many outputs as the next one has inputs."""
    return all(shape[0] == following[1] for shape, following in pairwise(_shapes_of_matrices(layers)))


def _has_rival(layers: list[ModuleLayer]) -> bool:
    """Return whether another layer has as many inputs as the last one has outputs, and may follow it."""
    *earlier, last = _shapes_of_matrices(layers) or [torch.Size()]
    return any(shape[1] == last[0] for shape in earlier)


def _describe_rival(name: str) -> str:
    """Return the message for a last layer that another layer may follow."""
    return f"{name!r} is declared last, but another layer has as many inputs as it has outputs: {NAME_IT}"


def _layers_of(source: object, name: str) -> list[ModuleLayer]:
    """Return the layers that a user has passed as a module, as named parameters, or as bare parameters.

    Parameters
    ----------
    source : Module, Tensor or iterable
        The module or its parameters.
    name : str
        The name of a layer made of bare parameters; if it is empty, these are refused.

    Raises
    ------
    TypeError
        If there are no parameters, or if they have no names and `name` is empty.
    """
    if isinstance(source, nn.Module):
        return layers_of_module(source)
    entries = listed(source) if isinstance(source, Iterable) else []
    if not entries:
        raise TypeError(f"parameters are needed, got {shown(source)}: {ACCEPTED}")

    if all(_is_named_parameter(entry) for entry in entries):
        return _layers_of_named_parameters(entries, name)
    if not all(isinstance(entry, Tensor) for entry in entries):
        raise TypeError(f"parameters are needed, got {shown(entries[0])}: {ACCEPTED}")
    if not name:
        raise TypeError(f"parameters without names do not tell which layer is the last: {ACCEPTED}")
    return [ModuleLayer(name, entries)]


def _layers_of_named_parameters(named_parameters: list[tuple[str, Tensor]], name: str) -> list[ModuleLayer]:
    """Return layers by the names of parameters; `name` is for parameters of the whole model itself."""
    params_of_layers: dict[str, list[Tensor]] = {}
    for full_name, parameter in named_parameters:
        params_of_layers.setdefault(_layer_of_parameter(full_name), []).append(parameter)

    layers = []
    for layer_name, params in params_of_layers.items():
        has_matrix = any(parameter.dim() > 1 for parameter in params)
        doubt = "" if has_matrix else "has only vectors"
        layers.append(ModuleLayer(layer_name or name, params, doubt))
    return layers


def _is_named_parameter(entry: object) -> bool:
    """Return whether an entry of "params" is a pair of name and parameter."""
    return isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[1], Tensor)


def _owners(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the names and modules within a module that have parameters of their own, in order."""
    for name, owner in module.named_modules():
        if any(True for _ in owner.parameters(recurse=False)):
            yield name, owner


def layers_of_module(module: nn.Module) -> list[ModuleLayer]:
    """Return the layers of a module, in the order in which it declares them.

    A shared parameter belongs to the first layer that has it, and the parameters of a parametrisation (such
    as weight_norm) to the layer that is parametrised. The `doubt` of a layer says why it may not be the last.
    """
    seen: set[int] = set()  # ids of the parameters of earlier layers
    layers: list[ModuleLayer] = []
    for full_name, owner in _owners(module):
        name = base_layer(full_name)
        params: list[Tensor] = list(owner.parameters(recurse=False))
        unseen_params = [parameter for parameter in params if id(parameter) not in seen]
        seen.update(map(id, params))

        if not unseen_params:  # all of its parameters belong to earlier layers, but it may act last
            layers[-1] = layers[-1]._replace(doubt=f"is followed by {name!r}, which shares its parameters")
        elif name != full_name and layers and layers[-1].name == name:  # a parametrisation
            layers[-1].params.extend(unseen_params)
        else:
            doubt = _doubt_about(owner, shares_parameters=len(unseen_params) < len(params))
            layers.append(ModuleLayer(layer_of_owner(full_name, owner), unseen_params, doubt))
    return layers


def _doubt_about(owner: nn.Module, *, shares_parameters: bool) -> str:
    """Return why a module should not be taken for the output layer without asking, empty for most."""
    if isinstance(owner, NORMALISATIONS):
        return "is a normalisation"
    return "shares parameters" if shares_parameters else ""


def _layer_of_parameter(full_name: str) -> str:
    """Return the name of the layer of a parameter, empty for one of the whole model itself."""
    return base_layer(full_name.rpartition(".")[0])


def _groups_of(hidden: list[ModuleLayer], final: list[ModuleLayer]) -> list[NewGroup]:
    """Return a new group for each hidden layer and each layer of the output part, in this order."""
    groups: list[NewGroup] = []
    for part, layers in (("hidden", hidden), ("output", final)):
        groups += [{"params": layer.params, "part": part, "name": layer.name} for layer in layers]
    return groups


def check_parts(groups: list[NewGroup]) -> None:
    """Refuse groups unless each has a "part" that is 'hidden' or 'output'."""
    for group in groups:
        part = group.get("part")
        if part not in ("hidden", "output"):
            raise ValueError(f"a group needs a \"part\", 'hidden' or 'output', got {shown(part)}: {ACCEPTED}")


def parameters_of(params: object) -> list[Any]:
    """Return the parameters of a module, or the parameters or groups of an iterable, as a list."""
    if isinstance(params, nn.Module):
        params = params.parameters()
    if isinstance(params, Tensor) or not isinstance(params, Iterable):
        raise TypeError(f"a module or its parameters are needed, got {torch.typename(params)}")
    return list(params)
