"""Settings: a TOML file and options, which win over it, made into the plan of a run; and back, complete."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping
from inspect import signature
from pathlib import Path
from typing import Any

from heatbath.checks import real, whole
from heatbath.cli.methods import labelled, method_of, partition_of
from heatbath.cli.options import SECTIONS, Settings, keys
from heatbath.cli.tables import read_problem
from heatbath.datasets import Problem
from heatbath.networks import Dense
from heatbath.partition import Partition
from heatbath.runs.plain import RECIPES, network_to_plain
from heatbath.runs.plan import Plan, sampling

COMMANDS = ("train", "compare", "sweep")
OF_FILES = ("data", "target", "task", "test_share", "standardise", "seed", "sha256")
TRAINING: dict[str, Any] = {
    "steps": 20_000, "chains": 10, "seed": 0, "record": 100, "losses_every": 1, "epochs": False,
    "momenta": "zero", "dtype": "float32",
}  # fmt: skip
BATCH = 20
MOST_RECORDS = 1_000_001


def read_settings(path: Path, command: str | None = None) -> tuple[str, Settings]:
    """The command that a settings file is for, and its sections, which have only keys that exist."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise type(error)(f"{path} cannot be read ({error.strerror}): check the path") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path} is not a TOML file: {error}") from None
    own = content.pop("command", command)
    if own not in COMMANDS:
        raise ValueError(f"{path}: command must be one of {', '.join(COMMANDS)}, got {own!r}")
    if command is not None and own != command:
        raise ValueError(f"{path} is for heatbath {own}, and not for heatbath {command}")
    accepted = {section: keys(section) for section in SECTIONS}
    accepted["problem"] = [*accepted["problem"], "sha256"]
    methods = "methods" if own == "compare" else "method"
    accepted[methods] = accepted.pop("method")
    for section, values in content.items():
        if section not in accepted or not isinstance(values, dict):
            raise ValueError(f"{path}: {section!r} is not a section; accepted: {', '.join(accepted)}")
        tables = values if section == "methods" else {section: values}
        for name, table in tables.items():
            if not isinstance(table, dict):
                raise ValueError(f"{path}: methods.{name} must be a section, got {table!r}")
            if unknown := [key for key in table if key not in accepted[section]]:
                raise ValueError(
                    f"{path}: {section} has no {', '.join(unknown)}; accepted: {', '.join(accepted[section])}"
                )
    return own, content


def merged(file: Settings, options: Settings, methods: list[str]) -> Settings:
    """The sections of a file with options put over them.

    An option that names another problem or method leaves nothing of that section of the file. `methods` are
    those of a comparison, in place of all in the file.
    """
    found: Settings = {}
    for section in ("problem", "network", "method", "training"):
        old, new = file.get(section, {}), options.get(section, {})
        other = {"name": "data", "data": "name"}
        if old.get("name", new.get("name")) != new.get("name", old.get("name")) or any(
            key in new and other[key] in old for key in other
        ):
            old = {}
        if "data" in new:
            old = {key: value for key, value in old.items() if key != "sha256"}
        found[section] = {**old, **new}
    found["methods"] = labelled([method_of(text) for text in methods]) if methods else file.get("methods", {})
    return found


def make_plan(command: str, settings: Settings) -> tuple[Plan, Settings]:
    """The plan of a run, and all its settings, which make the same plan again."""
    problem, told = _problem(settings["problem"])
    network = Dense(**settings["network"])
    partition, methods = _methods(command, settings)
    chosen = TRAINING | {"batch": min(BATCH, problem.X_train.shape[1])} | settings["training"]
    options = dict(chosen)
    samples, thin, burn_in = (options.pop(key, None) for key in ("samples", "thin", "burn_in"))
    if samples is None and (thin, burn_in) != (None, None):
        raise ValueError("burn_in and thin are for samples: say how many samples, too")
    whole("record", options["record"], low=1, high=MOST_RECORDS)
    burn_in, thin = sampling(options["steps"], samples, burn_in, thin)
    plan = Plan(
        problem=problem, network=network, partition=partition, repeats=options.pop("chains"),
        keep=samples is not None, burn_in=burn_in, thin=thin, **options,
    )  # fmt: skip
    plan.check_memory(2)
    plan.parts()  # that the methods fit the network
    return plan, {"problem": told, "network": network_to_plain(network), **methods, "training": chosen}


def write_settings(command: str, settings: Settings) -> str:
    """The text of a settings file."""
    import tomli_w

    note = f"# Done again by: heatbath {command} --settings settings.toml\n"
    return note + tomli_w.dumps({"command": command, **settings})


def _methods(command: str, settings: Settings) -> tuple[Partition | dict[str, Partition], Settings]:
    """The partition, or those of a comparison by name, and the tables that make them."""
    if command == "compare":
        tables = settings["methods"]
        if not tables:
            raise ValueError("say what to compare, such as --method adlala --method sgd:h=0.1")
        made = {label: partition_of(table) for label, table in tables.items()}
        for label, (partition, _) in made.items():
            _check_axes(f"compare ({label})", partition)
        parts = {label: partition for label, (partition, _) in made.items()}
        return parts, {"methods": {label: table for label, (_, table) in made.items()}}
    partition, table = partition_of(settings["method"])
    if command == "train":
        _check_axes(command, partition)
    elif not partition.axes():
        raise ValueError("a sweep needs several values somewhere, such as --tau 1e-5,1e-4 or --h 0.01:1:5")
    return partition, {"method": table}


def _check_axes(what: str, partition: Partition) -> None:
    if axes := partition.axes():
        raise ValueError(f"{what} needs one value of {', '.join(axes)}: several are for heatbath sweep")


def _problem(given: Mapping[str, Any]) -> tuple[Problem, dict[str, Any]]:
    """The problem that a section names, and the section with all defaults."""
    if "name" in given and "data" in given:
        raise ValueError(f"a problem or data, not both: got {given['name']!r} and {given['data']!r}")
    if "data" in given:
        return _own_data(given)
    name = given.get("name")
    if not isinstance(name, str) or name not in RECIPES:
        told = "say --problem NAME or --data FILE" if name is None else f"there is no problem {name!r}"
        raise ValueError(f"{told}; problems: {', '.join(RECIPES)}")
    make = RECIPES[name]
    _check_keys(f"problem {name}", given, ["name", *signature(make).parameters])
    problem: Problem = make(**{key: value for key, value in given.items() if key != "name"})
    recipe = problem.recipe or {}
    return problem, {key: value for key, value in recipe.items() if value is not None}


def _own_data(given: Mapping[str, Any]) -> tuple[Problem, dict[str, Any]]:
    """The user's own data; a section with the file's checksum makes the same problem, or none."""
    _check_keys("a problem from a file", given, OF_FILES)
    for key in ("data", "target"):
        if not isinstance(given.get(key), str):
            raise ValueError(f"{key} must be a name: say --data FILE --target COLUMN, got {given.get(key)!r}")
    path = Path(given["data"]).expanduser().absolute()
    values = {"test_share": 0.2, "standardise": True, "seed": 0} | dict(given)
    if not isinstance(values["standardise"], bool):
        raise TypeError(f"standardise must be true or false, got {values['standardise']!r}")
    real("test_share", values["test_share"])
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise type(error)(f"{path} cannot be read ({error.strerror}): check the path") from None
    if given.get("sha256", digest) != digest:
        raise ValueError(f"{path} has changed since these settings were written: say --data again to use it")
    problem = read_problem(
        path, given["target"], values["test_share"], values["standardise"], given.get("task"), values["seed"]
    )
    return problem, {**values, "data": str(path), "sha256": digest}


def _check_keys(what: str, given: Mapping[str, Any], accepted: list[str] | tuple[str, ...]) -> None:
    if unknown := [key for key in given if key not in accepted]:
        raise ValueError(f"{what} has no {', '.join(unknown)}; accepted: {', '.join(accepted)}")
