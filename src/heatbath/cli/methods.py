"""Make partitions from methods as the command line and settings files write them.

The methods are the presets and the registered methods, with the arguments and defaults that they have in
Python: `--method adlala:tau=1e-5` is `heatbath.AdLaLa(tau=1e-5)`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from inspect import Parameter
from typing import Any, NamedTuple, TypeAlias

from heatbath.cli.parsing import AUTO, numbers, whole_number
from heatbath.methods.base import Argument
from heatbath.methods.partition import Partition
from heatbath.methods.posterior import Posterior
from heatbath.methods.presets import OUTPUT, MethodChoice, method_choices
from heatbath.methods.schedules import from_plain

Table: TypeAlias = dict[str, Any]  # name and coefficients of a method, as settings files have them


class MethodOption(NamedTuple):
    """An argument of methods as an option of the command line.

    Attributes
    ----------
    name, kind, text
        Name, kind of the values (a key of `options.KINDS`) and help text.
    methods
        Names of the methods that take it.
    """

    name: str
    kind: str
    text: str
    methods: list[str]


def known() -> dict[str, MethodChoice]:
    """Return all presets and registered methods by their names on the command line, such as adlala."""
    return {choice.title.lower(): choice for choice in method_choices().values()}


def arguments() -> list[MethodOption]:
    """Return the arguments of all methods as options, each once with the methods that take it."""
    options: dict[str, MethodOption] = {}
    for method, choice in known().items():
        for argument in choice.arguments.values():
            option = MethodOption(argument.name, argument.kind, _help_text(argument), [])
            options.setdefault(argument.name, option).methods.append(method)
    return list(options.values())


def _help_text(argument: Argument) -> str:
    """Return the help text of an argument, with its choices if it has any."""
    if argument.kind == "stepsize":
        return "Stepsize; with auto, train finds it."
    if argument.choices:
        return f"{argument.text}: {' or '.join(map(str, argument.choices))}."
    return argument.text


def partition_of(table: Mapping[str, Any], posterior: Posterior | None = None) -> tuple[Partition, Table]:
    """Make a partition from a table such as {name: "sgld", h: 0.1, sigma: 0.01}.

    Parameters
    ----------
    table
        Name and coefficients of a method or preset, perhaps as text; or h and a table of methods by part,
        {h: 0.1, parts: {hidden: {name: "sgld", ...}, ...}}.
    posterior
        The posterior to sample, or None.

    Returns
    -------
    Partition
        The partition with this posterior.
    dict
        The table completed with all defaults, except those of arguments that the posterior sets.

    Raises
    ------
    ValueError
        For an unknown method, and for missing, unknown or wrong coefficients.
    """
    if "parts" in table:
        return _partition_of_parts(table, posterior)
    choice = find(table.get("name"), table.get("module"))
    name = table["name"]
    coefficients = {}
    for key, value in table.items():
        if key not in ("name", "module"):
            coefficients[key] = _parse_value(choice.arguments.get(key), key, value)
    _check_coefficients(choice, name, coefficients, posterior is not None)
    arguments_of_method = {key: _schedule_from_plain(value) for key, value in coefficients.items()}
    partition = choice.make(posterior=posterior, **arguments_of_method)

    complete: Table = {"name": name}
    if choice.module is not None:
        complete["module"] = choice.module
    replaced = set() if posterior is None else _set_by_posterior(partition)
    for argument in choice.arguments.values():
        has_default = argument.default not in (Parameter.empty, None)
        if has_default and argument.name.removesuffix(OUTPUT) not in replaced:
            complete[argument.name] = argument.default
    return partition, complete | coefficients


def _check_coefficients(choice: MethodChoice, name: str, coefficients: Table, has_posterior: bool) -> None:
    """Raise ValueError for coefficients that a method, which the user calls `name`, needs or doesn't have."""
    missing = [argument for argument in choice.required(has_posterior) if argument not in coefficients]
    if missing:
        example = _example_of_options(name, missing, choice.module)
        raise ValueError(f"method {choice.title} needs {' and '.join(missing)}: add {example}")
    unknown = [argument for argument in coefficients if argument not in choice.arguments]
    if unknown:
        raise ValueError(
            f"method {choice.title} has no {', '.join(unknown)}; accepted: {', '.join(choice.arguments)}"
        )


def _partition_of_parts(table: Mapping[str, Any], posterior: Posterior | None) -> tuple[Partition, Table]:
    """Make a partition from a table {h: ..., parts: {PART: {name: ..., ...}, ...}}, one method per part.

    Returns
    -------
    Partition
        The partition with this posterior.
    dict
        The table with the defaults of each method filled in.
    """
    parts = table["parts"]
    if table.keys() != {"h", "parts"} or not isinstance(parts, Mapping) or not parts:
        raise ValueError(
            "a method with parts has h and a section for each of them, such as [method.parts.hidden] with "
            f"name and coefficients, and nothing else; got {', '.join(table)}"
        )

    methods = {}
    complete_parts = {}
    for part, part_table in parts.items():
        if not isinstance(part_table, Mapping) or "h" in part_table:
            raise ValueError(
                f"part {part} must be a section without h, since all parts share one h: got {part_table!r}"
            )
        partition, complete = partition_of({**part_table, "h": table["h"]}, posterior)
        if list(partition.methods) != ["all"]:
            raise ValueError(
                f"part {part} must have a method, and {part_table['name']!r} is a preset for all parts"
            )
        methods[part] = partition.methods["all"]
        complete_parts[part] = {name: value for name, value in complete.items() if name != "h"}
    return Partition(methods, partition.h, posterior), {"h": complete["h"], "parts": complete_parts}


def table_of(partition: Partition) -> Table:
    """Return the table of a partition that has one method for all parts, without default values."""
    (method,) = partition.methods.values()
    changed = {}
    for field in fields(method):
        value = getattr(method, field.name)
        if value != field.default:
            changed[field.name] = value
    return {"name": method.title.lower(), "h": partition.h, **changed}


def _set_by_posterior(partition: Partition) -> set[str]:
    """Return the names of the arguments that the posterior of a partition sets in all its parts."""
    thermal = {method.thermal if method.needs_temperature else "" for method in partition.methods.values()}
    if len(thermal) > 1:
        return {"weight_decay"}
    return {"weight_decay", *thermal}


def method_of(text: str) -> Table:
    """Return the table of a method written as `sgld:h=0.1,sigma=0.01` or `sgld:h=0.1,sigma=[0,0.1]`.

    Values stay text; the brackets of a list are removed.
    """
    name, _, coefficients = text.partition(":")
    table: Table = {"name": name.strip()}
    pairs = re.split(r",(?![^\[]*\])", coefficients)  # at commas outside of brackets
    for pair in filter(None, map(str.strip, pairs)):
        key, equals, value = map(str.strip, pair.partition("="))
        if not (key and equals and value) or key in table:
            raise ValueError(f"write a method as sgld:h=0.1,sigma=0.01 (each name once), got {text!r}")
        is_list = value.startswith("[") and value.endswith("]")
        table[key] = value[1:-1] if is_list else value
    return table


def labelled(tables: list[Table]) -> dict[str, Table]:
    """Return tables of methods under different labels for results.

    A label is the title of the method, followed by its coefficients if the title occurs more than once.
    """
    titles = [find(table.get("name")).title for table in tables]
    tables_by_label: dict[str, Table] = {}
    for title, table in zip(titles, tables, strict=True):
        label = title
        if titles.count(title) > 1:
            coefficients = [f"{name}={value}" for name, value in table.items() if name != "name"]
            label = " ".join([title, *coefficients])
        if label in tables_by_label:
            raise ValueError(f"the method {label} occurs twice: remove one, or change a coefficient")
        tables_by_label[label] = table
    return tables_by_label


def find(name: object, module: object = None) -> MethodChoice:
    """Return the preset or method of this name, or raise a ValueError that lists all names.

    Parameters
    ----------
    name
        Name on the command line, such as adlala; None if the user named no method.
    module
        Python module that registers the method according to a settings file, or None.
    """
    methods = known()
    if isinstance(name, str) and name in methods and module in (None, methods[name].module):
        return methods[name]
    problem = "choose a method with --method NAME" if name is None else f"there is no method {name!r}"
    remedy = f"heatbath --import {module or 'MODULE'} ..."
    if module is None:
        remedy = f"for a method of your own: {remedy}"
    raise ValueError(f"{problem}; accepted: {', '.join(methods)} ({remedy})")


def _example_of_options(name: str, missing: list[str], module: str | None) -> str:
    """Return the options that would give a method its missing coefficients, with NUMBER for each value.

    A method of the user's own, from a `module`, has no options: its coefficients follow its name.
    """
    if module is None:
        return " ".join(f"--{argument.replace('_', '-')} NUMBER" for argument in missing)
    coefficients = [f"{argument}=NUMBER" for argument in missing]
    return f"--method {name}:{','.join(coefficients)}"


def _parse_value(argument: Argument | None, name: str, value: Any) -> Any:
    """Return a coefficient as settings files have it: text is parsed by the kind of the argument."""
    if not isinstance(value, str) or argument is None or argument.kind == "text":
        return value
    if argument.kind == "stepsize" and value.lower() == AUTO:
        return AUTO
    if argument.kind == "whole":
        return whole_number(name, value)
    return numbers(name, value)


def _schedule_from_plain(value: Any) -> Any:
    """Return a value with the schedule in place of each table that describes one, in a list too."""
    if isinstance(value, list):
        return [_schedule_from_plain(item) for item in value]
    return from_plain(value) if isinstance(value, Mapping) else value
