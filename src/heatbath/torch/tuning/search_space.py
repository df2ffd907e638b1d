"""Define what `tune` searches for an optimiser of modules: its arguments and their ranges."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from torch import nn
from torch.optim import Optimizer

from heatbath._internal.checks import shown
from heatbath.methods import known_methods
from heatbath.methods.presets import PRESETS
from heatbath.methods.ranges import Between, between
from heatbath.torch.optim import classes
from heatbath.torch.optim.optimizer import Partitioned
from heatbath.torch.optim.options import REPLACED
from heatbath.torch.optim.param_groups import tempering_ladder
from heatbath.tuning.search_space import Family, call_of, repeated_names

Make: TypeAlias = Callable[..., Optimizer]
Methods: TypeAlias = str | Make | Sequence[str | Make] | Mapping[str | Make, Mapping[str, Any]]

TEMPERATURES = ("tau", "tau_output")  # arguments that a posterior sets instead
GIVEN_BY_TUNE = ("model", "params", "hidden", "output", "seed")  # arguments that users can't set here
# Ranges that differ from those for dense networks in the engine: more friction for hidden layers, as the
# gradient noise of deeper models heats more, and fewer coefficients, as steps cost more
ADAPTIVE = {
    "lr": between(0.05, 0.5),
    "tau": between(1e-6, 1e-3),
    "sigma": between(1e-3, 0.05),
    "epsilon": between(0.01, 1.0),
}
SEARCHED: dict[str, dict[str, Between]] = {
    "AdLaLa": ADAPTIVE | {"gamma": between(0.03, 30.0)},
    "LOL": {"lr": between(0.05, 0.5), "gamma": between(0.03, 3.0), "tau": between(1e-7, 1e-3)},
    "LaLa": {"lr": between(0.05, 0.5), "gamma": between(0.03, 10.0), "tau": between(1e-7, 1e-3)},
    "AdLAdL": ADAPTIVE,
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
    searched: list[Family] = []
    problems: list[str] = []
    methods_with_arguments: list[tuple[object, Any]] = []
    if isinstance(methods, Mapping):
        methods_with_arguments += methods.items()
    else:
        listed = methods if isinstance(methods, (list, tuple)) else [methods]
        methods_with_arguments += [(method, {}) for method in listed]
    for method, arguments in methods_with_arguments:
        try:
            searched.append(_make_family(method, arguments, model, seed))
        except (TypeError, ValueError, RuntimeError) as error:
            problems.append(str(error))

    repeated = repeated_names(searched)
    if repeated:
        problems.append(f"each method needs its own name, and there are several {', '.join(repeated)}")
    if not methods_with_arguments:
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
    fixed, ranges
        The user's keyword arguments that are not searched, and those that are.
    seed
        Seed for optimisers of heatbath, otherwise None.
    takes_parameters
        True if `make` takes the parameters of a model instead of the model.
    """

    name: str
    make: Make
    fixed: Mapping[str, Any]
    ranges: Mapping[str, Between]
    seed: int | None
    takes_parameters: bool

    def optimizer_function(self, searched_values: Mapping[str, float]) -> Make:
        """Return a function of a model that makes the optimiser with these values."""
        keywords = {**self.fixed, **searched_values}
        if self.seed is not None:
            keywords["seed"] = self.seed
        if self.takes_parameters:
            return lambda model: self.make(model.parameters(), **keywords)
        return partial(self.make, **keywords)

    def code(self, searched_values: Mapping[str, float]) -> str:
        """Return the Python expression that makes the optimiser with these values."""
        model = "model.parameters()" if self.takes_parameters else "model"
        return call_of(self.name, {**searched_values, **self.fixed}, model)

    def family(self, usual_ranges: Mapping[str, Between]) -> Family:
        """Return the candidates whose arguments lie within the user's ranges and the usual ones."""
        return Family(self.name, {**usual_ranges, **self.ranges}, self.optimizer_function, self.code)


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

    ranges = {key: choice for key, choice in arguments.items() if isinstance(choice, Between)}
    fixed = {key: choice for key, choice in arguments.items() if key not in ranges}
    has_known_name = name in PRESETS or name in known_methods()
    if has_known_name and make is classes.__getattr__(name):
        return _make_heatbath_family(_Maker(name, make, fixed, ranges, seed, takes_parameters=False), model)
    takes_parameters = isinstance(make, type) and issubclass(make, Optimizer)
    maker = _Maker(name, make, fixed, ranges, None, takes_parameters)
    return _checked_family(maker.family(usual_ranges={}), model)


def _make_heatbath_family(maker: _Maker, model: nn.Module) -> Family:
    """Return the candidates of an optimiser of heatbath, whose usual ranges are searched too.

    Temperatures among these are left out where a posterior sets them.
    """
    arguments = {**maker.fixed, **maker.ranges}
    reserved = [key for key in arguments if key in GIVEN_BY_TUNE]
    if reserved:
        raise ValueError(
            f"{maker.name}: {', '.join(reserved)} cannot be given here: tune a function that makes the "
            "optimiser"
        )

    usual_ranges = _usual_ranges(maker.name, arguments)
    without_temperatures = {key: usual_ranges[key] for key in usual_ranges if key not in TEMPERATURES}
    try:
        return _checked_family(maker.family(usual_ranges), model)
    except ValueError:
        if "posterior" not in maker.fixed or without_temperatures == usual_ranges:
            raise
    return _checked_family(maker.family(without_temperatures), model)


def _usual_ranges(name: str, arguments: Mapping[str, Any]) -> dict[str, Between]:
    """Return the ranges that are searched of an optimiser of heatbath, by argument.

    `arguments` are those the user has given: they, and those that they replace, are left out.
    """
    ranges = SEARCHED.get(name)
    if ranges is None:
        ranges_of_engine = known_methods()[name].searched
        ranges = {"lr" if key == "h" else key: searched for key, searched in ranges_of_engine.items()}
    replaced = {REPLACED.get(key) for key in arguments}
    left_out = replaced.union(arguments)
    return {key: searched for key, searched in ranges.items() if key not in left_out}


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
        optimizer = _make_at_share(family, share, model)
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{family.name} must make a torch optimiser, and made {shown(optimizer)}")
        if isinstance(optimizer, Partitioned) and any(map(tempering_ladder, optimizer.param_groups)):
            raise ValueError(
                f"{family.name}: simulated tempering needs the loss of all data, and cannot be tuned here"
            )
    return family


def _make_at_share(family: Family, share: float, model: nn.Module) -> object:
    """Return what a candidate makes of the model; its values stand at this share of their ranges, 0 to 1.

    An error is raised again as a ValueError that names the ranges.
    """
    searched_values = {key: searched.at(share) for key, searched in family.ranges.items()}
    try:
        return family.make(searched_values)(model)
    except (TypeError, ValueError, RuntimeError) as error:
        if not family.ranges:
            raise ValueError(str(error)) from None
        ranges_text = ", ".join(f"{key}={searched!r}" for key, searched in family.ranges.items())
        raise ValueError(f"{error} (searched: {ranges_text})") from None


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
    class_names = {preset.lower(): preset for preset in PRESETS}
    for class_name, method in known_methods().items():
        if method.searched:
            class_names[class_name.lower()] = class_name
            class_names[method.title.lower()] = class_name
    if name.lower() not in class_names:
        raise ValueError(f"there is no method {name!r} to tune; accepted: {', '.join(class_names)}")
    return classes.__getattr__(class_names[name.lower()])
