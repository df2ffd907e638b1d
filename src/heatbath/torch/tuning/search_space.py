"""What is searched of an optimiser: its arguments, and where."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

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

TEMPERATURES = ("tau", "tau_output")  # arguments that a posterior may take the place of
OURS = ("model", "params", "hidden", "output", "seed")  # arguments of an optimiser that `tune` gives
SETS = {"frequency": "epsilon", "damping": "sigma"}  # what these take the place of
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
"""Where coefficients are looked for, if not told and elsewhere than for dense networks in the engine: at more
friction of the hidden layers, as the noise of the gradients of deeper models heats more, and fewer of them,
as steps cost more."""


def families(methods: Methods, model: nn.Module, seed: int) -> tuple[list[Family], list[str]]:
    """What is searched of each of the methods that were given, and all that is wrong with them."""
    several = methods if isinstance(methods, (list, tuple)) else (methods,)
    given = list(methods.items() if isinstance(methods, Mapping) else ((one, {}) for one in several))
    found, wrong = [], []
    for method, arguments in given:
        try:
            found.append(_family(method, arguments, model, seed))
        except (TypeError, ValueError, RuntimeError) as error:
            wrong.append(str(error))
    names = [family.name for family in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        wrong.append(f"each method needs a name of its own, and there are several {', '.join(twice)}")
    if not given:
        wrong.append("at least one method is needed, got none")
    return found, wrong


def _family(method: object, arguments: object, model: nn.Module, seed: int) -> Family:
    make = _named(method) if isinstance(method, str) else method
    if make in PRESETS.values() or make in known_methods().values():
        name = getattr(make, "__name__", "")
        raise TypeError(f"heatbath.{name} is no optimiser: take heatbath.torch.{name}, or {name!r}")
    if not callable(make):
        raise TypeError(
            "a method to tune is an optimiser of heatbath.torch such as AdLaLa, its name, or a function that "
            f"makes an optimiser of a model; got {shown(method)}"
        )
    name = getattr(make, "__name__", str(make))
    if not isinstance(arguments, Mapping) or not all(isinstance(key, str) for key in arguments):
        raise TypeError(f"{name}: a dict of keyword arguments is needed, got {shown(arguments)}")
    own: object = classes.__getattr__(name) if name in (*PRESETS, *known_methods()) else None
    ours = make is own
    of_parameters = not ours and isinstance(make, type) and issubclass(make, Optimizer)
    if ours and (taken := [key for key in arguments if key in OURS]):
        raise ValueError(
            f"{name}: {', '.join(taken)} cannot be given here: tune a function that makes the optimiser"
        )
    searched = _searched(name) if ours else {}
    instead = {SETS.get(key) for key in arguments}
    usual = {key: value for key, value in searched.items() if key not in arguments and key not in instead}
    given = {key: value for key, value in arguments.items() if isinstance(value, Between)}
    fixed = {key: value for key, value in arguments.items() if key not in given}
    seeded = fixed | {"seed": seed} if ours else fixed

    def made(values: Mapping[str, float]) -> Make:
        if of_parameters:
            return lambda model: make(model.parameters(), **seeded, **values)
        return partial(make, **seeded, **values)

    def within(ranges: dict[str, Between]) -> Family:
        parameters = "model.parameters()" if of_parameters else "model"
        return Family(name, ranges, made, lambda values: call_of(name, {**values, **fixed}, parameters))

    family = within(usual | given)
    try:
        _check_ends(family, model)
    except ValueError:
        left = {key: value for key, value in usual.items() if key not in TEMPERATURES}
        if "posterior" not in fixed or left == usual:
            raise
        family = within(left | given)  # the posterior sets the temperature
        _check_ends(family, model)
    return family


def _check_ends(family: Family, model: nn.Module) -> None:
    """Refuse what makes no optimiser at the ends of its ranges."""
    for share in (0.0, 1.0):
        values = {key: range.at(share) for key, range in family.ranges.items()}
        try:
            optimizer = family.make(values)(model)
        except (TypeError, ValueError, RuntimeError) as error:
            listed = ", ".join(f"{key}={range!r}" for key, range in family.ranges.items())
            within = f" (searched: {listed})" if listed else ""
            raise ValueError(f"{error}{within}") from None
        _check_optimizer(family.name, optimizer)


def _check_optimizer(name: str, optimizer: object) -> None:
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"{name} must make a torch optimiser, and made {shown(optimizer)}")
    if isinstance(optimizer, Partitioned) and any(map(tempering_ladder, optimizer.param_groups)):
        raise ValueError(f"{name}: simulated tempering needs the loss of all data, and cannot be tuned here")


def _named(given: str) -> Make:
    """The optimiser of a name, in any case."""
    known = {name.lower(): name for name in PRESETS}
    for name, kind in known_methods().items():
        if kind.searched:
            known |= {name.lower(): name, kind.title.lower(): name}
    if given.lower() not in known:
        raise ValueError(f"there is no method {given!r} to tune; accepted: {', '.join(known)}")
    return classes.__getattr__(known[given.lower()])


def _searched(name: str) -> dict[str, Between]:
    """Where the arguments of an optimiser are looked for."""
    if name in SEARCHED:
        return SEARCHED[name]
    searched = known_methods()[name].searched
    return {"lr" if key == "h" else key: range for key, range in searched.items()}
