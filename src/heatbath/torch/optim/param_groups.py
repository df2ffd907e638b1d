"""Param groups of the optimisers, which hold plain values only, and the methods that these values describe.

Plain values are what torch can save, load, copy and send to other processes. A group has the keys of
`ParamGroup` and beside them, under their own names, the coefficients and choices of its method.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import MISSING, fields
from functools import lru_cache
from typing import Any, NamedTuple, TypedDict, cast

from torch import Tensor

from heatbath._internal.checks import NON_NEGATIVE, POSITIVE, is_real, real, shown
from heatbath.methods import Method, check_known, choices, coefficients, find_method, known_methods, names
from heatbath.methods.ranges import Between
from heatbath.methods.schedules import Schedule, SimulatedTempering, at, coefficient, from_plain, to_plain

STANDSTILL = 1e-300  # the stepsize that stands for lr = 0: its product with an infinite friction is not NaN
NEGLIGIBLE = 1e-140  # coefficients below this come from STANDSTILL or its root, and become 0

NewGroup = dict[str, Any]  # a group as a user gives it: "params" and values of options under their names
PlainValues = dict[str, Any]  # values of a group by their names, which depend on its method
PerChain = Any  # a value or, with stacked chains, a list with a value for each chain


class ParamGroup(TypedDict, total=False):
    """A param group of an optimiser.

    The coefficients and choices of its method (such as "tau", "gamma", "word", "xi") are further keys, whose
    names depend on the method: `values_of` gives access to them.
    """

    params: list[Tensor]
    method: str  # the name of its class
    part: str
    name: str
    lr: float | Tensor
    schedules: dict[str, PlainValues]  # of lr and of coefficients, as plain dicts
    step: int  # number of steps made
    previous: PerChain  # list of coefficients of the last step, None before; one per chain with a drawn noise
    seed: int
    agreed: bool  # whether all processes are known to have this seed
    chain: int  # number of the first chain in the addresses of the noise
    chains: int | None  # number of stacked chains, None without
    fused: bool | None
    maximize: bool
    foreach: bool | None
    capturable: bool
    differentiable: bool
    xi: PerChain  # friction: a number, or a list of numbers with one for each tensor
    rung: PerChain  # position on the temperature ladder
    noise: PerChain  # the variance of the data that was last drawn
    draws: list[float]  # the law that it is drawn from
    drawn: int  # how often it was drawn
    n: float  # number of training examples of the posterior
    heat: float  # n times the temperature
    tau: float  # and other values of methods that are asked for by their names
    weight_decay: float
    word: str
    thermostat: str


class ParameterState(TypedDict, total=False):
    """The state of a parameter in an optimiser."""

    step: int
    momentum: Tensor
    second: Tensor  # second moment, where the method keeps one
    copy: Tensor  # of a half-precision parameter, in float32


VALUES_OF_CHAINS = ("xi", "rung", "noise")  # keys whose values are lists with an entry for each chain


def values_of(group: ParamGroup) -> PlainValues:
    """Return the group itself, not a copy, typed as a plain dict: for keys that depend on its method."""
    return cast(PlainValues, group)


def group_of_chain(group: ParamGroup, chain: int) -> ParamGroup:
    """Return a group as one of its chains sees it: with numbers in place of lists over chains.

    Parameters
    ----------
    group : ParamGroup
        Without stacked chains it is returned itself, otherwise a copy.
    chain : int
        The position of the chain among those of the group, from 0.
    """
    if not group["chains"]:
        return group
    values = values_of(group)
    values_of_chain = {key: values[key][chain] for key in VALUES_OF_CHAINS if key in group}
    if "noise" in group and group["previous"] is not None:
        values_of_chain["previous"] = group["previous"][chain]
    return cast(ParamGroup, values | values_of_chain)


def groups_of_chains(group: ParamGroup) -> list[ParamGroup]:
    """Return a group as each of its chains sees it, see `group_of_chain`; itself without stacked chains."""
    if not group["chains"]:
        return [group]
    return [group_of_chain(group, chain) for chain in range(group["chains"])]


def chain_count(group: ParamGroup) -> int:
    """Return the number of chains that the parameters of a group have."""
    return group["chains"] or 1


def listed(params: object) -> list[Any]:
    """Return the "params" of a group, a tensor or an iterable, as a list."""
    return [params] if isinstance(params, Tensor) else list(cast(Iterable[Any], params))


def tensor_of(entry: object) -> Tensor:
    """Return the tensor of an entry of "params", which may be a pair of name and tensor."""
    return cast(Tensor, entry[1] if isinstance(entry, tuple) else entry)


def method_of_new_group(group: NewGroup) -> Method:
    """Return the method of a new group, with the coefficients that the group has beside it.

    Parameters
    ----------
    group : dict
        "method" is a `Method`, or the name of a registered one. Coefficients and choices under their own
        names replace those of the method.

    Raises
    ------
    TypeError
        If "method" is something else.
    """
    method = group["method"]
    if isinstance(method, str) and method in known_methods():  # as in the groups of an optimiser
        named_type = find_method(method)
        method = named_type(**{name: group[name] for name in names(named_type) if name in group})
    if not isinstance(method, Method):
        raise TypeError(
            f"'method' must be a method such as heatbath.Langevin(gamma=1.0, tau=1e-5), got {shown(method)}"
        )
    method_type = type(method)
    check_known(method_type)
    return method_type(**{name: group.get(name, getattr(method, name)) for name in names(method_type)})


def plain_values(group: NewGroup, lr: object) -> PlainValues:
    """Return the plain values that a new group holds for its method and its stepsize.

    Parameters
    ----------
    group : dict
        A group with a "method", and coefficients beside it that replace the method's.
    lr : float, Tensor or schedule
        The stepsize.

    Returns
    -------
    dict
        The name of the "method"; "lr", coefficients and choices under their own names, with their values at
        step 0; as "schedules" those that vary, as plain dicts; and the start values of "step", "previous"
        and, with simulated tempering, "rung".

    Raises
    ------
    TypeError
        If the method has no temperature and there is no posterior to set it.
    ValueError
        If a coefficient is out of its range, a list, or a range.
    """
    method = method_of_new_group(group)
    method_type = type(method)
    if method.needs_temperature:
        raise TypeError(
            f"{method!r}: an optimiser needs {method.thermal}, such as {method.thermal}=1e-5, or posterior="
        )

    if isinstance(lr, Tensor) and lr.numel() != 1:
        raise ValueError(f"lr must be a number or a tensor of one element, got {shown(lr)}")
    stepsize = lr.item() if isinstance(lr, Tensor) else lr
    all_coefficients = {"lr": coefficient("lr", stepsize, NON_NEGATIVE)}
    all_coefficients |= {name: getattr(method, name) for name in coefficients(method_type)}
    values: PlainValues = {"method": method_type.__name__, "schedules": {}, "step": 0, "previous": None}
    for name, value in all_coefficients.items():
        _check_is_single(name, value)
        if isinstance(value, (Schedule, SimulatedTempering)):
            values["schedules"][name] = to_plain(value)
        values[name] = value.ladder[0] if isinstance(value, SimulatedTempering) else at(value, 0)
    if isinstance(lr, Tensor):
        values["lr"] = lr  # the tensor itself: schedulers of torch write into it

    values |= {name: getattr(method, name) for name in choices(method_type)}
    _check_is_single("xi", values.get("xi"))
    if tempering_ladder(cast(ParamGroup, values)):
        values["rung"] = 0
    return values


def fill_missing_keys(group: ParamGroup) -> None:
    """Add to a group that an earlier version saved the keys that it lacks, with their defaults.

    A coefficient that the method did not have then is also inserted into "previous", the list of the last
    step's stepsize and coefficients. The group is changed in place.
    """
    defaults: PlainValues = {"schedules": {}, "previous": None, "step": 0, "seed": 0, "agreed": True}
    defaults |= {"fused": None, "chain": 0, "chains": None, "maximize": False}
    defaults |= {"foreach": None, "capturable": False, "differentiable": False}
    values = values_of(group)
    for key, value in defaults.items():
        values.setdefault(key, value)

    method_type = known_methods().get(group.get("method", ""))
    if method_type is None:
        return
    for field in fields(method_type):
        if field.name in group or field.default in (MISSING, None):
            continue
        values[field.name] = field.default
        previous = group["previous"]
        if field.name in coefficients(method_type) and previous is not None:
            position = 1 + coefficients(method_type).index(field.name)  # the first is lr
            group["previous"] = [*previous[:position], field.default, *previous[position:]]


def _check_is_single(name: str, value: object) -> None:
    """Refuse a list or a range of values, which sweeps and `tune` accept but an optimiser doesn't."""
    if isinstance(value, tuple):
        raise ValueError(f"{name}: a list is an axis of a sweep; an optimiser takes one value")
    if isinstance(value, Between):
        raise ValueError(f"{name}: {value!r} is a range for tune to search; an optimiser takes one value")


def tempering_ladder(group: ParamGroup) -> SimulatedTempering | None:
    """Return the ladder of temperatures of a group with simulated tempering, None for others."""
    plain_schedule = group["schedules"].get("tau")
    if not plain_schedule:
        return None
    schedule = from_plain(plain_schedule)
    return schedule if isinstance(schedule, SimulatedTempering) else None


def root_of_temperature(group: ParamGroup) -> float:
    """Return the root of the temperature on the rung of a group (of one chain), 1 without rungs."""
    if "rung" not in group:
        return 1.0
    ladder = tempering_ladder(group)
    if ladder is None:
        return 1.0
    return math.sqrt(ladder.ladder[group["rung"]])


def apply_schedules(group: ParamGroup) -> None:
    """Set the coefficients of a group that are on schedules to their values in this step, in place."""
    values = values_of(group)
    for key, plain in group["schedules"].items():
        schedule = from_plain(plain)
        if isinstance(schedule, SimulatedTempering):
            values[key] = schedule.ladder[group_of_chain(group, 0)["rung"]]
        elif key == "lr" and group["lr"] == 0 and schedule(max(group["step"] - 1, 0)) != 0:
            continue  # a framework has set it to 0 so that nothing moves, and will set it back
        else:
            values[key] = schedule(group["step"])


class GroupValues(NamedTuple):
    """All values of a group (of one chain) that its program and the coefficients of a step depend on."""

    method_type: type[Method]
    choices: tuple[Any, ...]  # the method's choices without ξ, which changes from step to step
    schedules: str
    maximize: bool
    previous: tuple[float, ...]  # `current` of the step before, which this step closes
    current: tuple[float, ...]  # stepsize, coefficients and, with a drawn noise, the unit of the momenta

    def by_name(self, numbers: tuple[float, ...]) -> dict[str, float]:
        """Return `previous` or `current` numbers by their names: "lr", the method's own and "unit"."""
        names_of_numbers = ("lr", *coefficients(self.method_type), "unit")
        return dict(zip(names_of_numbers, numbers, strict=False))


def read_values(group: ParamGroup) -> GroupValues:
    """Return the values of a group (of one chain) that decide what a step does.

    This is called at every step, so values are checked only where they cannot be converted to numbers.

    Raises
    ------
    TypeError, ValueError
        If a user has set a value that a step cannot use: see `check_group`.
    """
    values = cast(PlainValues, group)
    try:
        method_type: Any = find_method(values["method"])  # hashable, which mypy does not see in a dataclass
        coefficient_names, choice_names = _names_of_values(method_type)
        numbers = [float(values["lr"]) or STANDSTILL]
        numbers.extend(map(float, map(values.__getitem__, coefficient_names)))
        if "noise" in values:
            numbers.append(math.sqrt(values["noise"]))
    except (KeyError, TypeError, ValueError):
        check_group(group)
        raise

    current = tuple(numbers)
    previous = current if values["previous"] is None else tuple(values["previous"])
    chosen = tuple(map(values.get, choice_names))
    schedules = str(values["schedules"]) if values["schedules"] else ""
    return GroupValues(method_type, chosen, schedules, values["maximize"], previous, current)


@lru_cache
def _names_of_values(method_type: type[Method]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of a method's coefficients, and of its choices without ξ."""
    choice_names = tuple(name for name in choices(method_type) if name != "xi")
    return coefficients(method_type), choice_names


def has_friction_per_tensor(group: ParamGroup) -> bool:
    """Return whether each tensor of a group has a ξ of its own."""
    thermostat = values_of(group).get("thermostat", find_method(group["method"]).thermostat)
    return bool(thermostat == "tensor")


def check_group(group: ParamGroup) -> None:
    """Refuse a group in which a user has set a value that a step cannot use.

    Raises
    ------
    ValueError
        If the method is unknown, or was replaced by one with other coefficients; if a value is missing or out
        of its range; or if the thermostat was changed between "part" and "tensor".
    TypeError
        If a coefficient is a schedule, or not a number.
    """
    method_name = group["method"]
    if not isinstance(method_name, str) or method_name not in known_methods():
        raise ValueError(
            f"a group's method must be one of {', '.join(known_methods())}, got {shown(method_name)}; for "
            "another method make a new optimiser"
        )
    method_type = find_method(method_name)
    _check_is_complete(group, method_type)

    for key in ("lr", *coefficients(method_type)):
        _check_is_number(key, values_of(group)[key])
    real("lr", float(group["lr"]), NON_NEGATIVE)
    if "noise" in group:
        real("noise", group["noise"], POSITIVE)
    if "xi" in group and has_friction_per_tensor(group) != isinstance(group["xi"], list):
        raise ValueError(
            f"thermostat cannot be changed to {group['thermostat']!r} where ξ is {group['xi']!r}: make a new "
            "optimiser"
        )


def _check_is_complete(group: ParamGroup, method_type: type[Method]) -> None:
    """Refuse a group that lacks values of its method, or whose last step was one of another method."""
    cannot_change = (
        f"the method of a group cannot be changed to {method_type.__name__!r}: make a new optimiser for that "
        "method"
    )
    missing = [key for key in ("lr", *names(method_type)) if key not in group]
    if missing:
        raise ValueError(
            f"a group has no {', '.join(missing)}, which {method_type.__name__} needs: put back what was "
            f"deleted; or if another method was set, {cannot_change}"
        )
    number_names = ["lr", *coefficients(method_type)]
    if "noise" in group:
        number_names.append("unit")
    if group["previous"] is not None and len(group["previous"]) != len(number_names):
        raise ValueError(cannot_change)


def _check_is_number(key: str, value: object) -> None:
    """Refuse a coefficient that is a schedule, or anything else but a number or a tensor of one."""
    if isinstance(value, Schedule):
        raise TypeError(
            f"{key} was set to a schedule: put it into group['schedules'][{key!r}], as a plain dict "
            "(heatbath.methods.schedules.to_plain)"
        )
    if not is_real(value) and not hasattr(value, "item"):
        raise TypeError(f"{key} must be a number, got {shown(value)} of type {type(value).__name__}")


def build_method(group: ParamGroup) -> Method:
    """Return the method of a group (of one chain) with its present values, checked as any method is."""
    values = read_values(group)
    arguments: PlainValues = dict(values.by_name(values.current))
    arguments |= {name: values_of(group)[name] for name in choices(values.method_type)}
    arguments.pop("lr")
    arguments.pop("unit", None)
    if "xi" in arguments:
        arguments["xi"] = 0.0  # the method's ξ is the initial one; the present one is in the group
    ladder = tempering_ladder(group)
    if ladder is not None:
        arguments["tau"] = ladder
    return values.method_type(**arguments)
