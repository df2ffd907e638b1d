"""The methods and presets as classes of optimisers, made from the library's own.

The class of a method has one method for all parameters; that of a preset has one for the hidden layers and
another for the output layer. Their arguments are those of `heatbath.methods` and `heatbath.methods.presets`,
with `lr` for h, and so are their defaults, except those in `DEFAULTS`. `classes.pyi` declares the same for
type checkers, and a test compares the two.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import partial
from inspect import Parameter, Signature
from typing import Any

from torch.nn import Module

from heatbath.methods import Method, find_method, known_methods, names
from heatbath.methods.partition import Partition
from heatbath.methods.presets import PRESETS
from heatbath.methods.schedules import from_plain
from heatbath.torch.optim import layers
from heatbath.torch.optim.chains import Chains
from heatbath.torch.optim.optimizer import Partitioned
from heatbath.torch.optim.options import REPLACED
from heatbath.torch.optim.param_groups import NewGroup, ParamGroup, values_of
from heatbath.torch.optim.posterior import check_posterior

_keyword = partial(Parameter, kind=Parameter.KEYWORD_ONLY)
OPTIONS = [
    option
    for option in inspect.signature(Partitioned.__init__).parameters.values()
    if option.kind is Parameter.KEYWORD_ONLY
]
DEFAULTS: dict[str, dict[str, float]] = {"LOL": {"lr": 0.2, "gamma": 0.3, "tau": 1e-5}}
"""Defaults of presets where they differ from the library's. At the paper's friction, good for small hard
problems, the noise of the gradients heats deeper models until they have learned little or nothing."""
DEFAULTS_OF_BLOCKS = {"frequency": 0.3, "damping": 1.0}
"""What parts by blocks have in place of ε and σ, unless these are given: by measurement (docs/deep.md)."""
PARAMS = "nn.Module | Iterable[Tensor] | Iterable[dict[str, Any]]"  # annotations of arguments
MODEL = "nn.Module | Iterable[tuple[str, Tensor]] | Iterable[dict[str, Any]] | None"
PART = "nn.Module | Tensor | Iterable[Tensor] | Iterable[tuple[str, Tensor]] | None"


class _OneMethod(Partitioned):
    """One method for all parameters: those of a module, given ones, or groups of them (each then a part)."""

    _method: type[Method]

    def __init__(self, *args: object, **keywords: object) -> None:
        """Give all parameters the method; `args` and `keywords` are those of the class's signature."""
        arguments = _bind(type(self), args, keywords)
        params = arguments.pop("params")
        lr = arguments.pop("lr")
        options = {option.name: arguments.pop(option.name) for option in OPTIONS}
        method = self._method(**arguments)  # what remains are the arguments of the method

        model, chains = _split_chains(params)
        groups = layers.parameters_of(model)
        if not all(isinstance(entry, dict) for entry in groups):
            groups = [{"params": groups}]
            if options["posterior"] is not None and isinstance(model, Module):
                groups[0]["layers"] = layers.layers_of_module(model)  # each may have a prior of its own
        super().__init__([{"method": method, **chains, **group} for group in groups], lr, **options)

    def add_param_group(self, param_group: NewGroup) -> None:
        """Add a part; without a "method" it gets the first part's, with its present coefficients."""
        if isinstance(param_group, dict) and "method" not in param_group and self.param_groups:
            param_group = _method_as_in(self.param_groups[0]) | param_group
        super().add_param_group(param_group)


class _MethodByLayer(Partitioned):
    """One method for the hidden layers, each a part of its own, and another for the output layer.

    The layers are found in a module (those of its modules that have parameters, in order), in
    `named_parameters()`, or given by `hidden=` and `output=`, or by groups with a "part", or with `output=`
    beside them. `repr` shows them. Where the layer that acts last is not the one declared last, `output=` is
    asked for.

    With `parts="blocks"` a module is divided as deep networks are: a part for the matrices of each block
    (residual block, layer of a transformer), one for all norms and biases, one for embeddings. Adaptive
    parts then have a `frequency` and a `damping`, unless ε and σ are given.
    """

    _preset: Callable[..., Partition]

    def __init__(self, *args: object, **keywords: object) -> None:
        """Divide a model into layers, and give each the method that the preset has for its part.

        `args` and `keywords` are those of the class's signature.
        """
        arguments = _bind(type(self), args, keywords)
        given_model = arguments.pop("model")
        hidden = arguments.pop("hidden")
        output = arguments.pop("output")
        lr = arguments.pop("lr")
        parts = arguments.pop("parts")
        arguments |= _defaults_of_blocks(type(self), args, keywords, parts)
        options = {option.name: arguments.pop(option.name) for option in OPTIONS}

        check_posterior(options["posterior"])
        posterior = None if options["posterior"] is None else options["posterior"].values
        default_tau = DEFAULTS.get(type(self).__name__, {}).get("tau")
        if posterior is not None and arguments["tau"] == default_tau:
            del arguments["tau"]  # the posterior sets the temperature; the preset refuses any other value
        methods = type(self)._preset(h=1.0, posterior=posterior, **arguments).methods

        model, chains = _split_chains(given_model)
        new_groups = layers.split(model, hidden, output, parts)
        groups = [{"method": methods[group["part"]], **chains, **group} for group in new_groups]
        super().__init__(groups, lr, **options)
        if isinstance(model, Module) and output is None and layers.CallOrder.is_uncertain(model):
            self._call_order = layers.CallOrder(model, groups[-1]["name"])

    def add_param_group(self, param_group: NewGroup) -> None:
        """Add a layer; without a "method" it gets that of its "part", with its present coefficients."""
        if isinstance(param_group, dict) and "method" not in param_group and self.param_groups:
            layers.check_parts([param_group])
            alike = next(group for group in self.param_groups if group["part"] == param_group["part"])
            param_group = _method_as_in(alike) | param_group
        super().add_param_group(param_group)


def _defaults_of_blocks(
    cls: type[Partitioned], args: tuple[object, ...], keywords: dict[str, object], parts: layers.Parts
) -> dict[str, float]:
    """Return the default frequency and damping of a model that is divided into blocks.

    Parameters
    ----------
    cls : type
        The class of the optimiser.
    args, keywords
        The arguments that it was called with.
    parts : "layers" or "blocks"
        How the model is divided.

    Returns
    -------
    dict of str to float
        "frequency" and "damping", without those that were passed, or whose ε or σ was passed. It is empty for
        layers, and for classes without these coefficients.

    Raises
    ------
    ValueError
        If both a frequency and ε, or both a damping and σ, were passed.
    """
    signature = inspect.signature(cls)
    passed = signature.bind(*args, **keywords).arguments
    defaults = {}
    for name, replaced in REPLACED.items():
        if name not in signature.parameters:
            continue
        if passed.get(name) and replaced in passed:
            raise ValueError(f"{cls.__name__}: {name} sets {replaced}, so give only one of the two")
        if parts == "blocks" and name not in passed and replaced not in passed:
            defaults[name] = DEFAULTS_OF_BLOCKS[name]
    return defaults


def _split_chains(model: object) -> tuple[object, dict[str, Chains]]:
    """Return the module of a `Chains` and {"chains": it}, the key of its groups; else the model and {}."""
    if isinstance(model, Chains):
        return model.model, {"chains": model}
    return model, {}


def _bind(cls: type[Partitioned], args: tuple[object, ...], keywords: dict[str, object]) -> dict[str, Any]:
    """Return the arguments of a class by name, with its defaults for those that were not passed."""
    signature = inspect.signature(cls)
    try:
        bound = signature.bind(*args, **keywords)
    except TypeError as error:
        raise TypeError(
            f"{cls.__name__}: {error}; accepted arguments: {', '.join(signature.parameters)}"
        ) from None
    bound.apply_defaults()
    return bound.arguments


def _method_as_in(group: ParamGroup) -> NewGroup:
    """Return the method of a group with its present coefficients and schedules, as keys of a new group."""
    method: NewGroup = {"method": group["method"]}
    for name in names(find_method(group["method"])):
        if name in group["schedules"]:
            method[name] = from_plain(group["schedules"][name])
        elif name != "xi":
            method[name] = values_of(group)[name]
    return method


def method_class(method: type[Method]) -> type[Partitioned]:
    """Make the class of optimisers that give all parameters this method, a registered one.

    Its signature is `params`, `lr`, the fields of the method and the options of `Partitioned`.
    """
    arguments = [
        Parameter("params", Parameter.POSITIONAL_OR_KEYWORD, annotation=PARAMS),
        Parameter("lr", Parameter.POSITIONAL_OR_KEYWORD, annotation="Value"),
        *map(_without_sweeps, inspect.signature(method).parameters.values()),
        *OPTIONS,
    ]
    return _make_class(method.__name__, _OneMethod, arguments, method.__doc__, _method=method)


def preset_class(name: str) -> type[Partitioned]:
    """Make the class of optimisers that divide a model into layers as a preset does, such as "LOL".

    Its signature is `model`, the arguments of the preset with `lr` for `h`, how layers are found, and the
    options of `Partitioned`.
    """
    preset = PRESETS[name]
    own_defaults = DEFAULTS.get(name, {})
    coefficients = []
    for parameter in inspect.signature(preset).parameters.values():
        if parameter.name == "posterior":  # it is among the options
            continue
        torch_name = "lr" if parameter.name == "h" else parameter.name
        default = own_defaults.get(torch_name, parameter.default)
        annotation = _without_sweeps(parameter).annotation
        coefficients.append(_keyword(torch_name, default=default, annotation=annotation))

    arguments = [
        Parameter("model", Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=MODEL),
        *coefficients,
        _keyword("hidden", default=None, annotation=PART),
        _keyword("output", default=None, annotation=PART),
        _keyword("parts", default="layers", annotation='Literal["layers", "blocks"]'),
        *OPTIONS,
    ]
    return _make_class(name, _MethodByLayer, arguments, preset.__doc__, _preset=staticmethod(preset))


def _without_sweeps(parameter: Parameter) -> Parameter:
    """Return an argument as an optimiser takes it: a value, and not a list of values for a sweep."""
    return parameter.replace(annotation=re.sub("Coefficient|Stepsize", "Value", str(parameter.annotation)))


def _make_class(
    name: str, base: type[Partitioned], arguments: list[Parameter], text: str | None, **attributes: object
) -> type[Partitioned]:
    """Make a new class of optimisers that accepts the given arguments and is documented.

    Parameters
    ----------
    name, base : str, type
        Its name and the class it derives from.
    arguments : list of Parameter
        The arguments of its constructor, for signatures.
    text : str or None
        A docstring, of which the first paragraph is taken.
    **attributes
        Class attributes: the method or the preset.
    """
    summary = inspect.cleandoc(text or "").split("\n\n")[0]

    def init(self: Partitioned, *args: Any, **keywords: Any) -> None:
        base.__init__(self, *args, **keywords)

    self_argument = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
    init.__name__ = "__init__"
    init.__signature__ = Signature([self_argument, *arguments])  # type: ignore[attr-defined]
    return type(
        name,
        (base,),
        {
            "__doc__": f"{summary}\n\nSee `heatbath.{name}`.\n\n{inspect.cleandoc(base.__doc__ or '')}",
            "__init__": init,
            "__module__": "heatbath.torch",
            "__signature__": Signature(arguments),
            **attributes,
        },
    )


_classes: dict[str, type[Partitioned]] = {}  # classes made so far, by name


def __getattr__(name: str) -> type[Partitioned]:
    """Return the class of optimisers for the method or preset of this name, made when it is first needed.

    A method that was registered again gets a new class.
    """
    method = known_methods().get(name)
    existing = _classes.get(name)
    if existing is not None and getattr(existing, "_method", method) is method:
        return existing

    if name in PRESETS:
        _classes[name] = preset_class(name)
    elif method is not None:
        _classes[name] = method_class(method)
    else:
        available = ", ".join([*PRESETS, *known_methods()])
        raise AttributeError(f"there is no optimiser {name!r}; available are Partitioned, {available}")
    return _classes[name]
