"""Param groups and methods: a group holds plain values only, from which its method is made at every step."""

from __future__ import annotations

import math
from dataclasses import MISSING, fields
from typing import Any

from torch import Tensor

from heatbath._internal.checks import NON_NEGATIVE, POSITIVE, is_real, real, shown
from heatbath.methods import Method, check_known, choices, coefficients, find_method, known_methods, names
from heatbath.methods.ranges import Between
from heatbath.methods.schedules import Schedule, SimulatedTempering, at, coefficient, from_plain, to_plain

STANDSTILL = 1e-300  # the stepsize at lr = 0, which times an infinite friction is not NaN
NOTHING = 1e-140  # what comes of it or of its root, and is to be 0

Group = dict[str, Any]

OF_CHAINS = ("xi", "rung", "noise")  # what each of several chains has of its own: lists of them


def of_chain(group: Group, place: int) -> Group:
    """A group as one of its chains sees it."""
    if not group["chains"]:
        return group
    own = {name: group[name][place] for name in OF_CHAINS if name in group}
    if "noise" in group and group["previous"] is not None:
        own["previous"] = group["previous"][place]
    return group | own


def chain_count(group: Group) -> int:
    """How many chains the parameters of a group have."""
    return group["chains"] or 1


def method_of(group: Group) -> Method:
    """The method of a new group, with the coefficients beside it."""
    method = group["method"]
    if isinstance(method, str) and method in known_methods():  # as in the groups of an optimiser
        kind = find_method(method)
        method = kind(**{name: group[name] for name in names(kind) if name in group})
    if not isinstance(method, Method):
        raise TypeError(
            f"'method' must be a method such as heatbath.Langevin(gamma=1.0, tau=1e-5), got {shown(method)}"
        )
    kind = type(method)
    check_known(kind)
    return kind(**{name: group.get(name, getattr(method, name)) for name in names(kind)})


def to_values(group: Group, lr: object) -> Group:
    """The method of a new group and a stepsize as plain values."""
    method = method_of(group)
    kind = type(method)
    if method.needs_temperature:
        raise TypeError(
            f"{method!r}: an optimiser needs {method.thermal}, such as {method.thermal}=1e-5, or posterior="
        )
    values: Group = {"method": kind.__name__, "schedules": {}, "step": 0, "previous": None}
    given = {"lr": coefficient("lr", _number(lr), NON_NEGATIVE)}
    given |= {name: getattr(method, name) for name in coefficients(kind)}
    for name, value in given.items():
        _check_single(name, value)
        if isinstance(value, (Schedule, SimulatedTempering)):
            values["schedules"][name] = to_plain(value)
        values[name] = value.ladder[0] if isinstance(value, SimulatedTempering) else at(value, 0)
    if isinstance(lr, Tensor):
        values["lr"] = lr  # itself: schedulers of torch write into it, and so may others
    values |= {name: getattr(method, name) for name in choices(kind)}
    _check_single("xi", values.get("xi"))
    if ladder(values):
        values["rung"] = 0
    return values


def _number(lr: object) -> object:
    """The number in a stepsize that is a tensor."""
    if not isinstance(lr, Tensor):
        return lr
    if lr.numel() != 1:
        raise ValueError(f"lr must be a number, or a tensor of one element, got {shown(lr)}")
    return lr.item()


def complete(group: Group) -> None:
    """Give a group that an earlier version has saved what it lacks."""
    plain: Group = {"schedules": {}, "previous": None, "step": 0, "seed": 0, "agreed": True, "fused": None}
    plain |= {"chain": 0, "chains": None}
    plain |= {"maximize": False, "foreach": None, "capturable": False, "differentiable": False}
    for key, value in plain.items():
        group.setdefault(key, value)
    kind = known_methods().get(group.get("method", ""))
    for field in () if kind is None else fields(kind):
        if field.name not in group and field.default not in (MISSING, None):
            group[field.name] = field.default
            if field.name in coefficients(kind) and group["previous"] is not None:
                place = _names(group).index(field.name)
                group["previous"] = [*group["previous"][:place], field.default, *group["previous"][place:]]


def _check_single(name: str, value: object) -> None:
    if isinstance(value, tuple):
        raise ValueError(f"{name}: a list is an axis of a sweep, and an optimiser takes one value")
    if isinstance(value, Between):
        raise ValueError(f"{name}: {value!r} is a range that tune searches, and an optimiser takes one value")


def ladder(group: Group) -> SimulatedTempering | None:
    """The ladder of a group whose temperature is tempered."""
    plain = group["schedules"].get("tau")
    schedule = from_plain(plain) if plain else None
    return schedule if isinstance(schedule, SimulatedTempering) else None


def follow_schedules(group: Group) -> None:
    """Set the coefficients that are on schedules to their values during this step."""
    for key, plain in group["schedules"].items():
        schedule = from_plain(plain)
        if isinstance(schedule, SimulatedTempering):
            group[key] = schedule.ladder[of_chain(group, 0)["rung"]]
        elif key == "lr" and group["lr"] == 0 and schedule(max(group["step"] - 1, 0)) != 0:
            continue  # others have set it to 0, so that nothing moves, and set it back
        else:
            group[key] = schedule(group["step"])


def current(group: Group) -> tuple[float, ...]:
    """What changes from step to step, as it is now: see `named`."""
    try:
        h = float(group["lr"])
        chosen = (float(group[key]) for key in coefficients(find_method(group["method"])))
        unit = (math.sqrt(group["noise"]),) if "noise" in group else ()
        return (h or STANDSTILL, *chosen, *unit)
    except (KeyError, TypeError, ValueError):
        check(group)
        raise


def named(group: Group, values: tuple[float, ...]) -> dict[str, float]:
    """The stepsize, the coefficients and, where noise is drawn, the unit of the momenta by name."""
    return dict(zip(_names(group), values, strict=True))


def _names(group: Group) -> tuple[str, ...]:
    unit = ("unit",) if "noise" in group else ()
    return "lr", *coefficients(find_method(group["method"])), *unit


def wording(group: Group) -> tuple[Any, ...]:
    """All that the recipe of a group depends on: its method, its choices, and whether it is tempered."""
    kind = find_method(group["method"])
    chosen = (group.get(name) for name in choices(kind) if name != "xi")
    return group["method"], *chosen, str(group["schedules"]) if group["schedules"] else ""


def per_tensor(group: Group) -> bool:
    """Whether each tensor of a group has a ξ of its own."""
    return bool(group.get("thermostat", find_method(group["method"]).thermostat) == "tensor")


def check(group: Group) -> None:
    """Refuse what a user has set to something that a step cannot use."""
    name = group["method"]
    if not isinstance(name, str) or name not in known_methods():
        raise ValueError(
            f"a group's method is one of {', '.join(known_methods())}, got {shown(name)}; for another make a "
            "new optimiser"
        )
    kind = find_method(name)
    missing = [key for key in ("lr", *names(kind)) if key not in group]
    before = group["previous"]
    if missing or (before is not None and len(before) != len(_names(group))):
        raise ValueError(f"the method of a group cannot be changed to {name!r}: make a new optimiser for it")
    for key in ("lr", *coefficients(kind)):
        value = group[key]
        if isinstance(value, Schedule):
            raise TypeError(
                f"{key} was set to a schedule: put it into group['schedules'][{key!r}], as a plain dict "
                "(heatbath.methods.schedules.to_plain)"
            )
        if not is_real(value) and not hasattr(value, "item"):
            raise TypeError(f"{key} must be a number, got {shown(value)} of type {type(value).__name__}")
    real("lr", float(group["lr"]), NON_NEGATIVE)
    if "noise" in group:
        real("noise", group["noise"], POSITIVE)
    if "xi" in group and per_tensor(group) != isinstance(group["xi"], list):
        raise ValueError(
            f"thermostat cannot be changed to {group['thermostat']!r} where ξ is {group['xi']!r}: make a new "
            "optimiser"
        )


def to_method(group: Group, values: tuple[float, ...]) -> Method:
    """The method of a group with these values, checked."""
    kind = find_method(group["method"])
    chosen: dict[str, Any] = named(group, values) | {name: group[name] for name in choices(kind)}
    chosen.pop("lr")
    chosen.pop("unit", None)
    if "xi" in chosen:
        chosen["xi"] = 0.0  # where ξ is now stands in the group
    if tempering := ladder(group):
        chosen["tau"] = tempering
    return kind(**chosen)
