"""Define what `tune` searches for an optimiser of modules: its arguments and their ranges."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias, cast

from torch import nn
from torch.optim import Optimizer

from heatbath._internal.checks import shown
from heatbath.methods import known_methods
from heatbath.methods.presets import PRESETS
from heatbath.methods.ranges import Between, between
from heatbath.torch.optim import classes
from heatbath.torch.optim.optimizer import Partitioned
from heatbath.torch.optim.param_groups import tempering_ladder
from heatbath.tuning.search_space import Family, call_of

Make: TypeAlias = Callable[..., Optimizer]
Methods: TypeAlias = str | Make | Sequence[str | Make] | Mapping[str | Make, Mapping[str, Any]]

TEMPERATURES = ("tau", "tau_output")  # arguments that a posterior sets instead
GIVEN_BY_TUNE = ("model", "params", "hidden", "output", "seed")  # arguments that users can't set here
ALTERNATIVES = {"frequency": "epsilon", "damping": "sigma"}  # arguments, and those that they replace
# Ranges that differ from those for dense networks in the engine: more friction for hidden layers, as the
# gradient noise of deeper models heats more, and fewer coefficients, as steps cost more
SEARCHED: dict[str, dict[str, Between]] = {
    "AdLaLa": {
        "lr": between(0.05, 0.5),
        "tau": between(1e-6, 1e-3),
        "sigma": between(1e-3, 0.05),
        "epsilon": between(0.01, 1.0),
        "gamma": between(0.03, 30.0),
    },
    "LOL": {"lr": between(0.05, 0.5), "gamma": between(0.03, 3.0), "tau": between(1e-7, 1e-3)},
    "LaLa": {"lr": between(0.05, 0.5), "gamma": between(0.03, 10.0), "tau": between(1e-7, 1e-3)},
    "AdLAdL": {
        "lr": between(0.05, 0.5),
        "tau": between(1e-6, 1e-3),
        "sigma": between(1e-3, 0.05),
        "epsilon": between(0.01, 1.0),
    },
}


def families(methods: Methods, model: nn.Module, seed: int) -> tuple[list[Family], list[str]]:
    """Return the candidates of each method, and a message for each method that is wrong.

    Parameters
    ----------
    methods
        As in `tune`.
    model
        A model, on which the ends of the ranges are tried.
    seed
        Seed of the noise of heatbath's optimisers.
    """
    pairs: list[tuple[object, Mapping[str, Any]]]
    if isinstance(methods, Mapping):
        pairs = list(methods.items())
    else:
        pairs = [(method, {}) for method in (methods if isinstance(methods, (list, tuple)) else (methods,))]

    searched, problems = [], []
    for method, arguments in pairs:
        try:
            searched.append(_make_family(method, arguments, model, seed))
        except (TypeError, ValueError, RuntimeError) as error:
            problems.append(str(error))

    names = [family.name for family in searched]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        problems.append(f"each method needs its own name, and there are several {', '.join(repeated)}")
    if not pairs:
        problems.append("at least one method is needed, got none")
    return searched, problems


class _Maker(NamedTuple):
    """How optimisers of a method are made.

    Attributes
    ----------
    name
        Name of the method.
    make
        Function that makes an optimiser.
    fixed
        Arguments that are not searched.
    seed
        Seed for optimisers of heatbath, otherwise None.
    takes_parameters
        True if `make` takes the parameters of a model instead of the model.
    """

    name: str
    make: Make
    fixed: Mapping[str, Any]
    seed: int | None
    takes_parameters: bool

    def optimizer_function(self, values: Mapping[str, float]) -> Make:
        """Return a function of a model that makes the optimiser with these values."""
        seeded = {} if self.seed is None else {"seed": self.seed}
        make = partial(self.make, **self.fixed, **seeded, **values)
        if self.takes_parameters:
            return lambda model: make(model.parameters())
        return make

    def family(self, ranges: Mapping[str, Between]) -> Family:
        """Return the candidates whose arguments lie within ranges."""
        model = "model.parameters()" if self.takes_parameters else "model"
        return Family(
            self.name,
            ranges,
            self.optimizer_function,
            lambda values: call_of(self.name, {**values, **self.fixed}, model),
        )


def _make_family(method: object, arguments: object, model: nn.Module, seed: int) -> Family:
    """Return the candidates of a method; refuse what makes no optimiser.

    Parameters
    ----------
    method
        An optimiser class, its name, or a function that makes an optimiser of a model.
    arguments
        The user's keyword arguments for it: ranges are searched, and other values kept.
    model
        A model, on which the ends of the ranges are tried.
    seed
        Seed of the noise of heatbath's optimisers.

    Returns
    -------
    Family
        The candidates. An optimiser of heatbath also searches its usual ranges; temperatures among these
        are left out where a posterior in `arguments` sets them.
    """
    make = _find_optimizer(method) if isinstance(method, str) else _checked_optimizer(method)
    name = getattr(make, "__name__", str(make))
    if not isinstance(arguments, Mapping) or not all(isinstance(key, str) for key in arguments):
        raise TypeError(f"{name}: a dict of keyword arguments is needed, got {shown(arguments)}")
    is_ours = name in (*PRESETS, *known_methods()) and make is cast(object, classes.__getattr__(name))
    if is_ours and (reserved := [key for key in arguments if key in GIVEN_BY_TUNE]):
        raise ValueError(
            f"{name}: {', '.join(reserved)} cannot be given here: tune a function that makes the optimiser"
        )

    ranges = {key: value for key, value in arguments.items() if isinstance(value, Between)}
    fixed = {key: value for key, value in arguments.items() if key not in ranges}
    takes_parameters = not is_ours and isinstance(make, type) and issubclass(make, Optimizer)
    maker = _Maker(name, make, fixed, seed if is_ours else None, takes_parameters)
    usual = _usual_ranges(name, arguments) if is_ours else {}
    try:
        return _checked_family(maker.family(usual | ranges), model)
    except ValueError:
        if "posterior" not in fixed or not any(key in usual for key in TEMPERATURES):
            raise
    # The posterior sets the temperatures
    without_temperatures = {key: value for key, value in usual.items() if key not in TEMPERATURES}
    return _checked_family(maker.family(without_temperatures | ranges), model)


def _usual_ranges(name: str, arguments: Mapping[str, Any]) -> dict[str, Between]:
    """Return the ranges that are searched of an optimiser of heatbath, by argument.

    `arguments` are those the user has given: they, and those that they replace, are left out.
    """
    ranges = SEARCHED.get(name)
    if ranges is None:
        searched = known_methods()[name].searched
        ranges = {"lr" if key == "h" else key: value for key, value in searched.items()}
    replaced = {ALTERNATIVES.get(key) for key in arguments}
    return {key: value for key, value in ranges.items() if key not in arguments and key not in replaced}


def _checked_family(family: Family, model: nn.Module) -> Family:
    """Return a family of candidates as it is; refuse one that cannot be tuned.

    An optimiser of the model is made with all arguments at the lower ends of their ranges, and at the upper.

    Raises
    ------
    ValueError
        If that raises an error, or if the optimiser has simulated tempering.
    TypeError
        If the result is no torch optimiser.
    """
    for share in (0.0, 1.0):
        values = {key: searched.at(share) for key, searched in family.ranges.items()}
        try:
            optimizer = family.make(values)(model)
        except (TypeError, ValueError, RuntimeError) as error:
            text = ", ".join(f"{key}={searched!r}" for key, searched in family.ranges.items())
            raise ValueError(f"{error} (searched: {text})" if text else str(error)) from None
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{family.name} must make a torch optimiser, and made {shown(optimizer)}")
        if isinstance(optimizer, Partitioned) and any(map(tempering_ladder, optimizer.param_groups)):
            raise ValueError(
                f"{family.name}: simulated tempering needs the loss of all data, and cannot be tuned here"
            )
    return family


def _checked_optimizer(method: object) -> Make:
    """Return a function that makes optimisers; refuse a method of the engine, and anything else."""
    if method in PRESETS.values() or method in known_methods().values():
        name = getattr(method, "__name__", "")
        raise TypeError(f"heatbath.{name} is no optimiser: choose heatbath.torch.{name}, or {name!r}")
    if not callable(method):
        raise TypeError(
            "a method to tune is an optimiser of heatbath.torch such as AdLaLa, its name, or a function that "
            f"makes an optimiser of a model; got {shown(method)}"
        )
    return method


def _find_optimizer(name: str) -> Make:
    """Return the optimiser of heatbath with a name, in upper or lower case."""
    names = {preset.lower(): preset for preset in PRESETS}
    for class_name, kind in known_methods().items():
        if kind.searched:
            names |= {class_name.lower(): class_name, kind.title.lower(): class_name}
    if name.lower() not in names:
        raise ValueError(f"there is no method {name!r} to tune; accepted: {', '.join(names)}")
    return classes.__getattr__(names[name.lower()])
