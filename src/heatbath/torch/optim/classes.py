"""The methods and presets as `torch.optim` has them: a class each, made from the library's own.

A method's class has one method for all parameters; a preset's has one for the hidden layers and another for
the output layer. Their arguments are those of `heatbath.methods` and `heatbath.methods.presets`, with `lr`
for h, and
so are their defaults, but for those in `DEFAULTS`.
`classes.pyi` says the same to type checkers; a test compares the two.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
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
from heatbath.torch.optim.posterior import check_posterior

OPTIONS = [
    Parameter("seed", Parameter.KEYWORD_ONLY, default=None, annotation="int | None"),
    Parameter("fused", Parameter.KEYWORD_ONLY, default=None, annotation="bool | None"),
    Parameter("maximize", Parameter.KEYWORD_ONLY, default=False, annotation="bool"),
    Parameter("posterior", Parameter.KEYWORD_ONLY, default=None, annotation="LossPosterior | None"),
    Parameter("foreach", Parameter.KEYWORD_ONLY, default=None, annotation="bool | None"),
    Parameter("capturable", Parameter.KEYWORD_ONLY, default=False, annotation="bool"),
    Parameter("differentiable", Parameter.KEYWORD_ONLY, default=False, annotation="bool"),
    Parameter("chain", Parameter.KEYWORD_ONLY, default=0, annotation="int"),
]
DEFAULTS: dict[str, dict[str, float]] = {"LOL": {"lr": 0.2, "gamma": 0.3, "tau": 1e-5}}
"""Of presets, where they differ from the library's. At the paper's friction, good for small hard problems,
the noise of the gradients heats deeper models until they have learned little or nothing."""
DEEP = {"frequency": 0.3, "damping": 1.0}
"""What parts by blocks have in place of ε and σ, unless told: by measurement (docs/deep.md)."""
EVERYWHERE = "nn.Module | Iterable[Tensor] | Iterable[dict[str, Any]]"
LAYERED = "nn.Module | Iterable[tuple[str, Tensor]] | Iterable[dict[str, Any]] | None"
PART = "nn.Module | Tensor | Iterable[Tensor] | Iterable[tuple[str, Tensor]] | None"


class _Everywhere(Partitioned):
    """One method for all parameters: a module, its parameters, or groups of them (each then a part)."""

    _method: type[Method]

    def __init__(self, *args: Any, **options: Any) -> None:
        given = _bound(type(self), args, options)
        params, lr = given.pop("params"), given.pop("lr")
        chosen = {p.name: given.pop(p.name) for p in OPTIONS}
        method = self._method(**given)
        shared, params = _unstacked(params)
        groups = layers.flat(params)
        if not all(isinstance(entry, dict) for entry in groups):
            groups = [{"params": groups}]
            if chosen["posterior"] is not None and isinstance(params, Module):
                groups[0]["layers"] = layers.of_module(params)
        super().__init__([{"method": method, **shared, **group} for group in groups], lr, **chosen)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a part; without a "method" it has that of the first part, as it is now."""
        if isinstance(param_group, dict) and "method" not in param_group and self.param_groups:
            param_group = _as_in(self.param_groups[0]) | param_group
        super().add_param_group(param_group)


class _Layered(Partitioned):
    """One method for the hidden layers, each a part of its own, another for the output layer.

    The layers are found in a module (those of its modules that own parameters, in order), in
    `named_parameters()`, or given by `hidden=` and `output=`, or by groups with a "part", or with `output=`
    beside them. `repr` shows them. Where another layer than the last acts last, `output=` is asked for.

    With `parts="blocks"` a module is divided as deep networks are: a part for the matrices of each block
    (residual block, layer of a transformer), one for all norms and biases, one for embeddings. Adaptive
    parts then have a `frequency` and a `damping`, unless ε and σ are given.
    """

    _preset: Callable[..., Partition]

    def __init__(self, *args: Any, **options: Any) -> None:
        given = _bound(type(self), args, options)
        model, hidden, output = (given.pop(name) for name in ("model", "hidden", "output"))
        lr, parts = given.pop("lr"), given.pop("parts")
        given |= _scale_free(type(self), args, options, parts)
        chosen = {p.name: given.pop(p.name) for p in OPTIONS}
        check_posterior(chosen["posterior"])
        law = chosen["posterior"] and chosen["posterior"].values
        if law is not None and given["tau"] == DEFAULTS.get(type(self).__name__, {}).get("tau"):
            del given["tau"]  # the preset's own, which stands for that of the posterior
        methods = type(self)._preset(h=1.0, posterior=law, **given).methods
        shared, model = _unstacked(model)
        groups = layers.split(model, hidden, output, parts)
        groups = [{"method": methods[group["part"]], **shared, **group} for group in groups]
        super().__init__(groups, lr, **chosen)
        if isinstance(model, Module) and output is None and layers.CallOrder.is_open(model):
            self._call_order = layers.CallOrder(model, groups[-1]["name"])

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a layer; without a "method", that of the layers with the same "part", as it is now."""
        if isinstance(param_group, dict) and "method" not in param_group and self.param_groups:
            (param_group,) = layers.checked_parts([param_group])
            like = next(group for group in self.param_groups if group["part"] == param_group["part"])
            param_group = _as_in(like) | param_group
        super().add_param_group(param_group)


def _scale_free(
    kind: type[Partitioned], args: tuple[Any, ...], options: dict[str, Any], parts: layers.Parts
) -> dict[str, Any]:
    """The frequency and the damping that parts by blocks have, unless ε and σ were given."""
    told = inspect.signature(kind).bind(*args, **options).arguments
    chosen = {}
    for name, other in (("frequency", "epsilon"), ("damping", "sigma")):
        if name not in inspect.signature(kind).parameters:
            continue
        if told.get(name) and other in told:
            raise ValueError(f"{kind.__name__}: {name} sets {other}, so give one of them and not both")
        if parts == "blocks" and name not in told and other not in told:
            chosen[name] = DEEP[name]
    return chosen


def _unstacked(model: Any) -> tuple[dict[str, Any], Any]:
    """What every group has beside its parameters, and the module itself where chains of it are given."""
    return ({"chains": model}, model.model) if isinstance(model, Chains) else ({}, model)


def _bound(kind: type[Partitioned], args: tuple[Any, ...], options: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a class by name, with its defaults."""
    try:
        given = inspect.signature(kind).bind(*args, **options)
    except TypeError as error:
        accepted = ", ".join(inspect.signature(kind).parameters)
        raise TypeError(f"{kind.__name__}: {error}; accepted: {accepted}") from None
    given.apply_defaults()
    return given.arguments


def _as_in(group: dict[str, Any]) -> dict[str, Any]:
    """The method of a group, with its coefficients as they are now."""
    chosen = [name for name in names(find_method(group["method"])) if name != "xi"]
    plain = {name: group["schedules"].get(name, group[name]) for name in chosen}
    return {"method": group["method"]} | {
        name: from_plain(value) if isinstance(value, dict) else value for name, value in plain.items()
    }


def method_class(method: type[Method]) -> type[Partitioned]:
    """The optimiser with this method for all parameters; for one of one's own, after `register`."""
    coefficients = [_single(p) for p in inspect.signature(method).parameters.values()]
    arguments = [
        Parameter("params", Parameter.POSITIONAL_OR_KEYWORD, annotation=EVERYWHERE),
        Parameter("lr", Parameter.POSITIONAL_OR_KEYWORD, annotation="Value"),
        *coefficients,
        *OPTIONS,
    ]
    return _class(method.__name__, _Everywhere, arguments, method.__doc__, _method=method)


def preset_class(name: str) -> type[Partitioned]:
    """The optimiser of a preset."""
    preset = PRESETS[name]
    taken = [p for p in inspect.signature(preset).parameters.values() if p.name != "posterior"]
    arguments_of_preset = [_single(p) for p in taken]
    renamed = [
        p.replace(kind=Parameter.KEYWORD_ONLY, name="lr" if p.name == "h" else p.name)
        for p in arguments_of_preset
    ]
    own = DEFAULTS.get(name, {})
    renamed = [p.replace(default=own.get(p.name, p.default)) for p in renamed]
    arguments = [
        Parameter("model", Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=LAYERED),
        *renamed,
        Parameter("hidden", Parameter.KEYWORD_ONLY, default=None, annotation=PART),
        Parameter("output", Parameter.KEYWORD_ONLY, default=None, annotation=PART),
        Parameter(
            "parts", Parameter.KEYWORD_ONLY, default="layers", annotation='Literal["layers", "blocks"]'
        ),
        *OPTIONS,
    ]
    return _class(name, _Layered, arguments, preset.__doc__, _preset=staticmethod(preset))


def _single(parameter: Parameter) -> Parameter:
    """An argument as an optimiser takes it: there are no axes of a sweep."""
    return parameter.replace(annotation=re.sub("Coefficient|Stepsize", "Value", str(parameter.annotation)))


def _class(
    name: str, base: type[Partitioned], arguments: list[Parameter], text: str | None, **attributes: Any
) -> type[Partitioned]:
    first = inspect.cleandoc(text or "").split("\n\n")[0]

    def __init__(self: Any, *args: Any, **options: Any) -> None:
        base.__init__(self, *args, **options)

    itself = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
    __init__.__signature__ = Signature([itself, *arguments])  # type: ignore[attr-defined]
    return type(
        name,
        (base,),
        {
            "__doc__": f"{first}\n\nSee `heatbath.{name}`.\n\n{inspect.cleandoc(base.__doc__ or '')}",
            "__init__": __init__,
            "__module__": "heatbath.torch",
            "__signature__": Signature(arguments),
            **attributes,
        },
    )


_classes: dict[str, type[Partitioned]] = {}


def __getattr__(name: str) -> type[Partitioned]:
    """The class of a method or preset; of a method that was registered anew, a new one."""
    method = known_methods().get(name)
    known = _classes.get(name)
    if known is not None and getattr(known, "_method", method) is method:
        return known
    if name in PRESETS:
        _classes[name] = preset_class(name)
    elif method is not None:
        _classes[name] = method_class(method)
    else:
        available = ", ".join([*PRESETS, *known_methods()])
        raise AttributeError(f"there is no optimiser {name!r}; there are Partitioned, {available}")
    return _classes[name]
