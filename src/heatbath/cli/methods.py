"""Methods by name, with coefficients as the command line and settings files give them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from inspect import Parameter, signature
from typing import Any, NamedTuple

from heatbath.cli.reading import numbers, whole_number
from heatbath.methods import SGD, SGLD, Adam, AdaptiveLangevin, Langevin, Momentum
from heatbath.partition import Partition
from heatbath.presets import LOL, AdLaLa, LaLa
from heatbath.schedules import Coefficient, from_plain


def _langevin(h: Coefficient, gamma: Coefficient, tau: Coefficient) -> Partition:
    return Partition(Langevin(gamma, tau), h)


def _adl(
    h: Coefficient = 0.15, tau: Coefficient = 1e-4, sigma: Coefficient = 0.01, epsilon: Coefficient = 0.1
) -> Partition:
    return Partition(AdaptiveLangevin(tau, sigma, epsilon), h)


def _sgld(h: Coefficient, sigma: Coefficient) -> Partition:
    return Partition(SGLD(sigma), h)


def _sgd(h: Coefficient) -> Partition:
    return Partition(SGD(), h)


def _momentum(h: Coefficient, mu: Coefficient) -> Partition:
    return Partition(Momentum(mu), h)


def _adam(h: Coefficient) -> Partition:
    return Partition(Adam(), h)


class Known(NamedTuple):
    """A method: what it is called in tables, and what makes it of its coefficients."""

    title: str
    make: Callable[..., Partition]


METHODS = {
    "adlala": Known("AdLaLa", AdLaLa),
    "lol": Known("LOL", LOL),
    "lala": Known("LaLa", LaLa),
    "langevin": Known("Langevin", _langevin),
    "adl": Known("AdL", _adl),
    "sgld": Known("SGLD", _sgld),
    "sgd": Known("SGD", _sgd),
    "momentum": Known("Momentum", _momentum),
    "adam": Known("Adam", _adam),
}
WORDS = ("word", "word_output", "friction", "thermostat", "kinetic")  # text, and not coefficients


def partition_of(given: Mapping[str, Any]) -> tuple[Partition, dict[str, Any]]:
    """The partition of a table such as {name: "sgld", h: 0.1, sigma: 0.01}, and the table with all defaults.

    `word` is the word of all parts but the output layer's, where that has a method of its own: that is
    `word_output`.
    """
    values = {name: _value(name, value) for name, value in given.items() if name != "name"}
    title, make = _known(given.get("name"))
    own = signature(make).parameters
    needed = [name for name, p in own.items() if p.default is Parameter.empty and name not in values]
    if needed:
        raise ValueError(f"method {title} needs {' and '.join(needed)}: say {_example(needed)}")
    partition = make(**{name: value for name, value in values.items() if name in own})
    settable = _settable(partition, set(own))
    if unknown := [name for name in values if name not in own and name not in settable]:
        raise ValueError(
            f"method {title} has no {', '.join(unknown)}; accepted: {', '.join([*own, *settable])}"
        )
    chosen = {name: value for name, value in values.items() if name in settable}
    methods = {
        key: replace(method, **_for_part(key, [f.name for f in fields(method)], chosen))
        for key, method in partition.methods.items()
    }
    defaults = {name: p.default for name, p in own.items() if p.default not in (Parameter.empty, None)}
    plain = {name: _plain(name, value) for name, value in given.items() if name != "name"}
    return Partition(methods, partition.h), {"name": given["name"], **defaults, **plain}


def method_of(text: str) -> dict[str, Any]:
    """The table of a method that is written as `sgld:h=0.1,sigma=0.01`."""
    name, _, rest = text.partition(":")
    table: dict[str, Any] = {"name": name.strip()}
    for pair in filter(None, map(str.strip, rest.split(","))):
        key, equals, value = map(str.strip, pair.partition("="))
        if not (key and equals and value) or key in table:
            raise ValueError(f"a method is written as sgld:h=0.1,sigma=0.01 (each name once), got {text!r}")
        table[key] = value
    return table


def labelled(tables: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Methods by what they are called in tables: with their coefficients, where a method comes twice."""
    titles = [_known(table.get("name")).title for table in tables]
    found: dict[str, dict[str, Any]] = {}
    for title, table in zip(titles, tables, strict=True):
        told = " ".join(f"{name}={value}" for name, value in table.items() if name != "name")
        label = title if titles.count(title) == 1 else f"{title} {told}".strip()
        if label in found:
            raise ValueError(f"the method {label} is there twice: leave out one, or change a coefficient")
        found[label] = table
    return found


def _known(name: object) -> Known:
    if not isinstance(name, str) or name not in METHODS:
        told = "say --method NAME" if name is None else f"there is no method {name!r}"
        raise ValueError(f"{told}; accepted: {', '.join(METHODS)}")
    return METHODS[name]


def _example(needed: list[str]) -> str:
    return " ".join(f"--{name.replace('_', '-')} NUMBER" for name in needed)


def _settable(partition: Partition, own: set[str]) -> list[str]:
    """What a method's parts have beside its own coefficients, such as a word."""
    parts = partition.methods
    names = dict.fromkeys(f.name for method in parts.values() for f in fields(method))
    settable = [name for name in names if name not in own | {"tau", "gamma", "sigma", "epsilon", "mu"}]
    output = "output" in parts and hasattr(parts["output"], "word")
    return settable + (["word_output"] if output else [])


def _for_part(key: object, names: list[str], chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the chosen values that are for a part."""
    values = {name: value for name, value in chosen.items() if name in names}
    if key == "output":
        values.pop("word", None)
        if "word_output" in chosen:
            values["word"] = chosen["word_output"]
    return values


def _plain(name: str, value: Any) -> Any:
    """A value as it is written to a settings file: text of numbers as numbers."""
    if isinstance(value, str) and name not in WORDS:
        return whole_number(name, value) if name == "kind" else numbers(name, value)
    return value


def _value(name: str, value: Any) -> Any:
    plain = _plain(name, value)
    if isinstance(plain, list):
        return [from_plain(single) if isinstance(single, Mapping) else single for single in plain]
    return from_plain(plain) if isinstance(plain, Mapping) else plain
