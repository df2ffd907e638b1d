"""Methods by name, with coefficients as the command line and settings files give them.

They are made from the presets and the methods of the library, those that were registered too, and have the
same arguments and defaults: `--method adlala:tau=1e-5` is `heatbath.AdLaLa(tau=1e-5)`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import Field, fields
from inspect import Parameter, signature
from typing import Any, NamedTuple

from heatbath.cli.parsing import AUTO, numbers, whole_number
from heatbath.methods import Method, known_methods, module_of
from heatbath.methods.partition import Partition
from heatbath.methods.posterior import Posterior
from heatbath.methods.presets import PRESETS
from heatbath.methods.schedules import from_plain

OUTPUT = "_output"  # how the coefficients of the output layer end


class MethodEntry(NamedTuple):
    """A method: what it is called in tables, what makes it of its arguments, what these are and take.

    `module` is that of a method of the user's own.
    """

    title: str
    make: Callable[..., Partition]
    arguments: dict[str, Parameter]
    kinds: dict[str, str]
    module: str | None = None


class Argument(NamedTuple):
    """An argument of methods: what kind of value it takes, what it is, and which methods have it."""

    name: str
    kind: str
    text: str
    methods: list[str]


def known() -> dict[str, MethodEntry]:
    """All presets and methods by the names that the command line knows."""
    methods = {}
    for name, preset in PRESETS.items():
        taken = {name: p for name, p in signature(preset).parameters.items() if name != "posterior"}
        kinds = {p.name: _kind_of_annotation(str(p.annotation)) for p in taken.values()}
        methods[name.lower()] = MethodEntry(name, preset, taken, kinds)
    for kind in known_methods().values():
        h = Parameter("h", Parameter.KEYWORD_ONLY, annotation="Stepsize")
        taken = {"h": h, **signature(kind).parameters}
        kinds = {"h": "stepsize"} | {f.name: _kind_of_field(f) for f in fields(kind)}
        methods[kind.title.lower()] = MethodEntry(
            kind.title, _everywhere(kind), taken, kinds, module_of(kind)
        )
    return methods


def arguments() -> list[Argument]:
    """All that some method takes, each once."""
    texts = {"h": "Stepsize; train finds it where it is auto.", "word": "The splitting, such as BAOAB."}
    for kind in known_methods().values():
        for f in fields(kind):
            choices = f.metadata.get("choices", ())
            text = f.metadata.get("text", "")
            texts.setdefault(f.name, f"{text}: {' or '.join(map(str, choices))}." if choices else text)
    collected: dict[str, Argument] = {}
    for name, method in known().items():
        for parameter in method.arguments.values():
            whose = parameter.name.removesuffix(OUTPUT)
            text = texts.get(whose, "")
            if whose != parameter.name:
                text = f"Of the output layer: {text[:1].lower()}{text[1:]}"
            blank = Argument(parameter.name, method.kinds[parameter.name], text, [])
            collected.setdefault(parameter.name, blank).methods.append(name)
    return list(collected.values())


def partition_of(
    given: Mapping[str, Any], posterior: Posterior | None = None
) -> tuple[Partition, dict[str, Any]]:
    """The partition of a table such as {name: "sgld", h: 0.1, sigma: 0.01}, and the table with defaults.

    Parts that no preset has are tables of their own, {h: 0.1, parts: {hidden: {name: "sgld", ...}, ...}}.
    What a posterior sets is left out of both.
    """
    if "parts" in given:
        return _of_parts(given, posterior)
    title, make, accepted, kinds, module = find(given.get("name"), given.get("module"))
    given = {name: value for name, value in given.items() if name != "module"}
    plain = {name: _plain(kinds.get(name), name, value) for name, value in given.items() if name != "name"}
    needed = [name for name, p in accepted.items() if _is_needed(p, posterior) and name not in plain]
    if needed:
        raise ValueError(
            f"method {title} needs {' and '.join(needed)}: say {_example(given['name'], needed, module)}"
        )
    if unknown := [name for name in plain if name not in accepted]:
        raise ValueError(f"method {title} has no {', '.join(unknown)}; accepted: {', '.join(accepted)}")
    partition = make(posterior=posterior, **{name: _value(value) for name, value in plain.items()})
    left = () if posterior is None else _left_out(partition)
    defaults = {
        name: p.default
        for name, p in accepted.items()
        if p.default not in (Parameter.empty, None) and name.removesuffix(OUTPUT) not in left
    }
    origin = {} if module is None else {"module": module}
    return partition, {"name": given["name"], **origin, **defaults, **plain}


def _of_parts(given: Mapping[str, Any], posterior: Posterior | None) -> tuple[Partition, dict[str, Any]]:
    """The partition of parts with a method each, and the table with defaults."""
    parts = given["parts"]
    if given.keys() != {"h", "parts"} or not isinstance(parts, Mapping) or not parts:
        raise ValueError(
            "a method with parts has h and a section for each of them, such as [method.parts.hidden] with "
            f"name and coefficients, and nothing else; got {', '.join(given)}"
        )
    methods, tables = {}, {}
    for part, table in parts.items():
        if not isinstance(table, Mapping) or "h" in table:
            raise ValueError(f"part {part} must be a section without h, which is one for all: got {table!r}")
        alone, complete = partition_of({**table, "h": given["h"]}, posterior)
        if list(alone.methods) != ["all"]:
            raise ValueError(
                f"part {part} must have a method, and {table['name']!r} is a preset for all parts"
            )
        methods[part] = alone.methods["all"]
        tables[part] = {name: value for name, value in complete.items() if name != "h"}
    return Partition(methods, alone.h, posterior), {"h": complete["h"], "parts": tables}


def table_of(partition: Partition) -> dict[str, Any]:
    """The table of a partition that has one method of the library for all parts."""
    (method,) = partition.methods.values()
    given = {f.name: value for f in fields(method) if (value := getattr(method, f.name)) != f.default}
    return {"name": method.title.lower(), "h": partition.h, **given}


def _is_needed(parameter: Parameter, posterior: Posterior | None) -> bool:
    """Whether an argument cannot be left out: a temperature only where there is a posterior."""
    thermal = parameter.default is None and parameter.name in ("tau", "sigma")
    return (thermal and posterior is None) or parameter.default is Parameter.empty


def _left_out(partition: Partition) -> set[str]:
    """What a posterior sets, of all parts of a partition."""
    thermal = {m.thermal if m.needs_temperature else "" for m in partition.methods.values()}
    return {"weight_decay", *(thermal if len(thermal) == 1 else ())}


def method_of(text: str) -> dict[str, Any]:
    """The table of a method that is written as `sgld:h=0.1,sigma=0.01`; several values as `sigma=[0,0.1]`."""
    name, _, rest = text.partition(":")
    table: dict[str, Any] = {"name": name.strip()}
    pairs = re.split(r",(?![^\[]*\])", rest)  # at commas that are not within brackets
    for pair in filter(None, map(str.strip, pairs)):
        key, equals, value = map(str.strip, pair.partition("="))
        if not (key and equals and value) or key in table:
            raise ValueError(f"a method is written as sgld:h=0.1,sigma=0.01 (each name once), got {text!r}")
        table[key] = value[1:-1] if value.startswith("[") and value.endswith("]") else value
    return table


def labelled(tables: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Methods by what they are called in tables: with their coefficients, where a method comes twice."""
    titles = [find(table.get("name")).title for table in tables]
    by_label: dict[str, dict[str, Any]] = {}
    for title, table in zip(titles, tables, strict=True):
        values = " ".join(f"{name}={value}" for name, value in table.items() if name != "name")
        label = title if titles.count(title) == 1 else f"{title} {values}".strip()
        if label in by_label:
            raise ValueError(f"the method {label} is there twice: leave out one, or change a coefficient")
        by_label[label] = table
    return by_label


def find(name: object, module: object = None) -> MethodEntry:
    """The method of a name; `module` is where a settings file says that it is defined."""
    methods = known()
    if isinstance(name, str) and name in methods and module in (None, methods[name].module):
        return methods[name]
    problem = "say --method NAME" if name is None else f"there is no method {name!r}"
    cure = f"heatbath --import {module or 'MODULE'} ..."
    if module is None:
        cure = f"one of your own: {cure}"
    raise ValueError(f"{problem}; accepted: {', '.join(methods)} ({cure})")


def _everywhere(kind: type[Method]) -> Callable[..., Partition]:
    def make(h: Any, posterior: Posterior | None, **values: Any) -> Partition:
        return Partition(kind(**values), h, posterior)

    return make


def _kind_of_field(field: Field[Any]) -> str:
    """What a field of a method takes: text, a whole number, or a coefficient."""
    choices = field.metadata.get("choices", ())
    if choices:
        return "text" if all(isinstance(choice, str) for choice in choices) else "whole"
    return "text" if field.name == "word" else "coefficient"


def _kind_of_annotation(annotation: str) -> str:
    """What an argument of a preset takes."""
    if annotation == "Stepsize":
        return "stepsize"
    return "text" if annotation.startswith(("str", "Literal")) else "coefficient"


def _example(name: str, needed: list[str], module: str | None) -> str:
    if module is None:
        return " ".join(f"--{argument.replace('_', '-')} NUMBER" for argument in needed)
    return f"--method {name}:{','.join(f'{argument}=NUMBER' for argument in needed)}"


def _plain(kind: str | None, name: str, value: Any) -> Any:
    """A value as it is written to a settings file: text of numbers as numbers."""
    if not isinstance(value, str) or kind in (None, "text"):
        return value
    if kind == "stepsize" and value.lower() == AUTO:
        return AUTO
    return whole_number(name, value) if kind == "whole" else numbers(name, value)


def _value(plain: Any) -> Any:
    if isinstance(plain, list):
        return [from_plain(single) if isinstance(single, Mapping) else single for single in plain]
    return from_plain(plain) if isinstance(plain, Mapping) else plain
