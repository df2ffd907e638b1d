"""Param groups and methods: a group holds plain values only, from which its method is made at every step."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import lru_cache
from typing import Any, get_args

from heatbath.checks import NON_NEGATIVE, is_real, real
from heatbath.methods import AdaptiveLangevin, Method
from heatbath.partition import Partition
from heatbath.runs.grid import FIXED
from heatbath.schedules import (
    Coefficient,
    Piecewise,
    Schedule,
    SimulatedTempering,
    at,
    coefficient,
    from_plain,
    to_plain,
)

METHODS = {kind.__name__: kind for kind in get_args(Method)}
WORDING = tuple(name for name in FIXED if name != "xi")  # what a recipe depends on beside numbers
STANDSTILL = 1e-30  # the stepsize at lr = 0, where a scheduler begins or ends: nothing moves


@lru_cache
def coefficients(name: str) -> tuple[str, ...]:
    """The coefficients of a method, by its name."""
    return tuple(field.name for field in fields(METHODS[name]) if field.name not in FIXED)


def to_values(group: dict[str, Any], lr: object) -> dict[str, Any]:
    """The method of a new group, with the coefficients beside it, and a stepsize as plain values."""
    method = group["method"]
    if isinstance(method, str) and method in METHODS:  # as in the groups of an optimiser
        kind = METHODS[method]
        method = kind(**{field.name: group[field.name] for field in fields(kind) if field.name in group})
    if not isinstance(method, get_args(Method)):
        raise TypeError(
            f"'method' must be a method such as heatbath.Langevin(gamma=1.0, tau=1e-5), got {method!r}"
        )
    name = type(method).__name__
    method = replace(method, **{f.name: group[f.name] for f in fields(method) if f.name in group})
    given: dict[str, Coefficient] = {"lr": coefficient("lr", lr, NON_NEGATIVE)}
    given |= {key: getattr(method, key) for key in coefficients(name)}
    values: dict[str, Any] = {"method": name, "schedules": {}, "step": 0, "previous": None}
    for key, value in given.items():
        if isinstance(value, tuple):
            raise ValueError(f"{key}: a list is an axis of a sweep, and an optimiser takes one value")
        if isinstance(value, (Schedule, SimulatedTempering)):
            values["schedules"][key] = to_plain(value)
        values[key] = value.ladder[0] if isinstance(value, SimulatedTempering) else at(value, 0)
    values |= {f.name: getattr(method, f.name) for f in fields(method) if f.name in FIXED}
    if isinstance(values.get("xi"), tuple):
        raise ValueError("xi: a list is an axis of a sweep, and an optimiser takes one value")
    if ladder(values):
        values["rung"] = 0
    return values


def ladder(group: dict[str, Any]) -> SimulatedTempering | None:
    """The ladder of a group whose temperature is tempered."""
    plain = group["schedules"].get("tau")
    made = from_plain(plain) if plain else None
    return made if isinstance(made, SimulatedTempering) else None


def follow_schedules(group: dict[str, Any]) -> None:
    """Set the coefficients that are on schedules to their values during this step."""
    for key, plain in group["schedules"].items():
        schedule = from_plain(plain)
        if isinstance(schedule, SimulatedTempering):
            group[key] = schedule.ladder[group["rung"]]
        else:
            group[key] = schedule(group["step"])


def current(group: dict[str, Any]) -> tuple[float, ...]:
    """The stepsize and the coefficients that a group has now."""
    h, *others = (float(group[key]) for key in ("lr", *coefficients(group["method"])))
    return (h or STANDSTILL, *others)


def key(group: dict[str, Any]) -> tuple[Any, ...]:
    """All that the recipe of a group depends on."""
    try:
        now = current(group)
    except (KeyError, TypeError, ValueError):
        check(group)
        raise
    before = None if group["previous"] is None else tuple(group["previous"])
    return group["method"], now, before, group["maximize"], str(group["schedules"]), *map(group.get, WORDING)


def check(group: dict[str, Any]) -> None:
    """Refuse what a user has set to something that a step cannot use."""
    name = group["method"]
    if not isinstance(name, str) or name not in METHODS:
        raise ValueError(
            f"a group's method is one of {', '.join(METHODS)}, got {name!r}; for another make a new optimiser"
        )
    needed = ("lr", *coefficients(name), *(f.name for f in fields(METHODS[name]) if f.name in FIXED))
    missing = [key for key in needed if key not in group]
    before = group["previous"]
    if missing or (before is not None and len(before) != 1 + len(coefficients(name))):
        raise ValueError(f"the method of a group cannot be changed to {name!r}: make a new optimiser for it")
    for key in ("lr", *coefficients(name)):
        value = group[key]
        if isinstance(value, Schedule):
            raise TypeError(
                f"{key} was set to a schedule: put it into group['schedules'][{key!r}], as a plain dict "
                "(heatbath.schedules.to_plain)"
            )
        if not is_real(value) and not hasattr(value, "item"):
            raise TypeError(f"{key} must be a number, got {value!r} of type {type(value).__name__}")
    real("lr", float(group["lr"]), NON_NEGATIVE)
    if "thermostat" in group and (group["thermostat"] == "tensor") != isinstance(group["xi"], list):
        raise ValueError(
            f"thermostat cannot be changed to {group['thermostat']!r} where ξ is {group['xi']!r}: make a new "
            "optimiser"
        )


def to_partition(group: dict[str, Any], before: tuple[float, ...], now: tuple[float, ...]) -> Partition:
    """One part with the group's method: the coefficients `before` during step 0, and `now` from step 1 on."""
    both = [a if a == b else Piecewise((a, b), (1,)) for a, b in zip(before, now, strict=True)]
    h, *values = both
    kind = METHODS[group["method"]]
    fixed = {field.name: group[field.name] for field in fields(kind) if field.name in FIXED}
    if kind is AdaptiveLangevin:
        fixed["xi"] = 0.0  # where ξ is now stands in the group
    chosen: dict[str, Any] = dict(zip(coefficients(group["method"]), values, strict=True)) | fixed
    if tempering := ladder(group):
        chosen["tau"] = tempering
    return Partition(kind(**chosen), h)
