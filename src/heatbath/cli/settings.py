"""Settings: a TOML file and options, which win over it, made into the plan of a run; and back, complete."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import asdict
from inspect import signature
from pathlib import Path
from typing import Any, cast

from heatbath._internal.checks import real, whole
from heatbath.cli.methods import find, labelled, method_of, partition_of, table_of
from heatbath.cli.options import SECTIONS, Settings, keys
from heatbath.cli.parsing import AUTO
from heatbath.cli.run_folder import RUN
from heatbath.datasets import Problem, from_table
from heatbath.methods.partition import Partition
from heatbath.methods.posterior import Posterior
from heatbath.models.dense import MLP
from heatbath.runs.dataset import check_memory
from heatbath.runs.grid import Methods
from heatbath.runs.plan import Plan, RunSettings, make_plan
from heatbath.runs.plan_checks import Call
from heatbath.runs.run import load
from heatbath.runs.serialise import RECIPES, network_to_plain
from heatbath.training import defaults
from heatbath.training.auto import AutomaticRun
from heatbath.training.budget import HIDDEN
from heatbath.training.train import prepare

COMMANDS = ("train", "compare", "sweep", "tune")
FILE_DEFAULTS = {"test_share": 0.2, "standardise": True, "seed": 0}
OF_FILES = (
    "data", "target", "weights", "class_weight", "ignore", "categorical", "keep", "task", "test_share",
    "standardise", "seed", "rows", "sha256",
)  # fmt: skip
TRAINING: dict[str, Any] = {
    "steps": 20_000, "chains": 10, "seed": 0, "record": 100, "losses_every": 1, "shuffled": False,
    "momenta": "zero", "dtype": "float32",
}  # fmt: skip
SEVERAL = ("compare", "tune")  # commands that take several methods
FORMER = {"epochs": "shuffled"}  # what settings were called in folders of earlier versions
MOST_RECORDS = 1_000_001


def read_settings(path: Path, command: str | None = None) -> tuple[str, Settings]:
    """The command that a settings file is for, and its sections, which have only keys that exist."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise type(error)(f"{path} cannot be read ({error.strerror}): check the path") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path} is not a TOML file: {error}") from None
    written = content.pop("command", command)
    if written not in COMMANDS:
        raise ValueError(f"{path}: command must be one of {', '.join(COMMANDS)}, got {written!r}")
    if command is not None and written != command:
        raise ValueError(f"{path} is for heatbath {written}, and not for heatbath {command}")
    if isinstance(training := content.get("training"), dict):
        content["training"] = {FORMER.get(key, key): value for key, value in training.items()}
    others = ("posterior", "training") if written == "tune" else ("search",)
    accepted = {section: keys(section) for section in SECTIONS if section not in others}
    accepted["problem"] = [*accepted["problem"], "sha256"]
    if "training" in accepted:
        accepted["training"] = [*accepted["training"], "continued", "start_sha256"]
    methods = "methods" if written in SEVERAL else "method"
    accepted[methods] = [*accepted.pop("method"), "module"]
    for section, values in content.items():
        if section not in accepted or not isinstance(values, dict):
            raise ValueError(f"{path}: {section!r} is not a section; accepted: {', '.join(accepted)}")
        tables = values if section == "methods" else {section: values}
        for name, table in tables.items():
            if not isinstance(table, dict):
                raise ValueError(f"{path}: methods.{name} must be a section, got {table!r}")
            if section in ("method", "methods") and "name" in table:
                find(table.get("name"), table.get("module"))
            if unknown := [key for key in table if key not in accepted[section]]:
                raise ValueError(
                    f"{path}: {section} has no {', '.join(unknown)}; accepted: {', '.join(accepted[section])}"
                )
    return written, content


def merged(file: Settings, options: Settings, methods: list[str]) -> Settings:
    """The sections of a file with options put over them.

    An option that names another problem or method leaves nothing of that section of the file. `methods` are
    those of a comparison or a search, in place of all in the file.
    """
    sections: Settings = {}
    for section in SECTIONS:
        old, new = file.get(section, {}), options.get(section, {})
        new = _spelled_out(new) if section == "method" else new
        other = {"name": "data" if section == "problem" else "parts", "data": "name"}
        if old.get("name", new.get("name")) != new.get("name", old.get("name")) or any(
            key in new and other[key] in old for key in other
        ):
            old = {}
        for key, what in (
            ("data", ("sha256",)),
            ("start", ("start_sha256",)),
            ("steps", ("budget", "continued")),
        ):  # that of the file's
            if key in new:
                old = {name: value for name, value in old.items() if name not in what}
        sections[section] = {**old, **new}
    chosen = labelled([method_of(text) for text in methods]) if methods else file.get("methods", {})
    return sections | {"methods": chosen}


def _spelled_out(options: dict[str, Any]) -> dict[str, Any]:
    """The options of a method, with those that stand in its name, as in sgld:h=0.1."""
    table = method_of(options["name"]) if "name" in options else {}
    if twice := [name for name in table if name != "name" and name in options]:
        raise ValueError(f"{', '.join(twice)} is said twice, in --method {options['name']} and as an option")
    return {**options, **table}


def plan_of(command: str, settings: Settings) -> tuple[Plan | AutomaticRun, Settings]:
    """The plan of a run, or what finds it, and all its settings, which make the same again."""
    problem, section = problem_of(settings["problem"])
    if command == "train" and not settings["method"]:
        settings = _filled(problem, settings)
    elif "refine" in settings["training"]:
        raise ValueError("refine is for the usual sampling, without --method: leave out one of the two")
    network = MLP(**settings["network"])
    posterior = Posterior(**settings["posterior"]) if settings["posterior"] else None
    methods, sections = _methods(command, settings, posterior)
    training = TRAINING | settings["training"]
    training.pop("continued", None)  # is not for the plan: see `continued`
    started = _start(training)
    whole("record", training["record"], low=1, high=MOST_RECORDS)  # a list of steps is for Python only
    prepared = _prepared(command, problem, network, methods, training)
    plan = prepared.first_plan() if isinstance(prepared, AutomaticRun) else prepared
    check_memory(plan, 2)
    training |= {"batch": plan.batch, **started}
    if isinstance(prepared, AutomaticRun) and prepared.budget is not None:
        training |= {"budget": prepared.budget, "samples": plan.samples}
    complete = {"problem": section, "network": network_to_plain(network), **sections}
    if posterior is not None:
        said = asdict(posterior).items()
        complete["posterior"] = {name: value for name, value in said if value is not None}
    ends = {"continued": ends} if (ends := continued(settings)) else {}
    return prepared, complete | {"training": training | ends}


def continued(settings: Settings) -> list[int]:
    """The last steps of what was added to a run later, in order."""
    ends = settings["training"].get("continued", [])
    if not isinstance(ends, list) or [*sorted({whole("continued", end, low=1) for end in ends})] != ends:
        raise ValueError(f"continued must be a list of steps in order, got {ends!r}")
    return ends


def _filled(problem: Problem, settings: Settings) -> Settings:
    """With what suits the problem, as the estimators have it, where no method is named."""
    network: dict[str, Any] = {"hidden": list(HIDDEN)} | settings["network"]
    posterior = defaults.posterior_of(**settings["posterior"])
    said = dict(settings["training"])
    names = ("refine", "steps", "budget", "batch", "chains", "samples")
    given = {name: said.pop(name) for name in names if name in said}
    if given.get("steps") == AUTO:
        del given["steps"]
    if "steps" in given and "budget" in given:
        raise ValueError(
            f"budget is for --steps auto, and steps is {given['steps']}: leave out one of the two"
        )
    if given.get("batch") == "all":
        given["batch"] = problem.X_train.shape[1]
    usual = dict(defaults.arguments(problem, MLP(**network), posterior, **given))
    method = table_of(cast(Partition, usual.pop("partition")))
    if "burn_in" in said:
        del usual["thin"]
    return settings | {
        "network": network,
        "posterior": {name: value for name, value in asdict(posterior).items() if value is not None},
        "method": method,
        "training": usual | said,
    }


def _prepared(
    command: str, problem: Problem, network: MLP, methods: Methods, training: dict[str, Any]
) -> Plan | AutomaticRun:
    """The plan, or for `train` what finds it."""
    training = dict(training)
    if (step := training.pop("colder_from", None)) is not None:
        methods = _colder(methods, step, training["steps"])
    if command != "train" and (training["steps"] == AUTO or {"budget", "warm", "start"} & training.keys()):
        raise ValueError(
            f"only heatbath train finds how many steps it needs, and where chains begin: for {command} say "
            "--steps NUMBER, without --budget, --warm and --start"
        )
    names = ("steps", "batch", "chains", "budget", "warm")
    sizes = {name: training.pop(name) for name in names if name in training}
    settings = RunSettings(**training)
    if command == "train":
        return prepare(problem, network, cast(Partition, methods), **sizes, settings=settings)
    return make_plan(problem, network, methods, **sizes, settings=settings, call=cast(Call, command))


def _start(training: dict[str, Any]) -> dict[str, Any]:
    """Have the parameters in place of the run that chains start from; and what settings say of it."""
    given, digest = training.pop("start", None), training.pop("start_sha256", None)
    if given is None:
        return {}
    if not isinstance(given, str):
        raise TypeError(f"start must be the folder or the file of a run, got {given!r}")
    path = Path(given).expanduser().absolute()
    path = path / RUN if path.is_dir() else path
    run = load(path)
    found = _digest(path)
    if digest not in (None, found):
        raise ValueError(f"{path} has changed since these settings were written: say --start again to use it")
    training["start"] = run.theta
    return {"start": str(path), "start_sha256": found}


def _colder(methods: Methods, step: object, steps: object) -> Methods:
    """Methods that are colder from a step on."""
    if steps == AUTO:
        raise ValueError("colder_from is a step before the last, which is not known with --steps auto")
    step = whole("colder_from", step, low=1, high=whole("steps", steps, low=1))
    if isinstance(methods, Partition):
        return methods.cooled(step)
    return {name: partition.cooled(step) for name, partition in methods.items()}


def write_settings(command: str, settings: Settings) -> str:
    """The text of a settings file."""
    import tomli_w

    tables = settings["methods"].values() if command in SEVERAL else [settings["method"]]
    tables = [single for table in tables for single in table.get("parts", {"all": table}).values()]
    modules = dict.fromkeys(table["module"] for table in tables if "module" in table)
    imports = "".join(f"--import {module} " for module in modules)
    note = f"# Done again by: heatbath {imports}{command} --settings settings.toml\n"
    return note + tomli_w.dumps({"command": command, **settings})


def _methods(command: str, settings: Settings, posterior: Posterior | None) -> tuple[Methods, Settings]:
    """The partition, or those of a comparison by name, and the tables that make them."""
    if command != "compare":
        partition, table = partition_of(settings["method"], posterior)
        return partition, {"method": table}
    if not settings["methods"]:
        raise ValueError("say what to compare, such as --method adlala --method sgd:h=0.1")
    pairs = {label: partition_of(table, posterior) for label, table in settings["methods"].items()}
    tables = {label: table for label, (_, table) in pairs.items()}
    return {label: partition for label, (partition, _) in pairs.items()}, {"methods": tables}


def problem_of(given: Mapping[str, Any]) -> tuple[Problem, dict[str, Any]]:
    """The problem that a section names, and the section with all defaults."""
    if "name" in given and "data" in given:
        raise ValueError(f"a problem or data, not both: got {given['name']!r} and {given['data']!r}")
    if "data" in given:
        return _own_data(given)
    name = given.get("name")
    if not isinstance(name, str) or name not in RECIPES:
        hint = "say --problem NAME or --data FILE" if name is None else f"there is no problem {name!r}"
        raise ValueError(f"{hint}; problems: {', '.join(RECIPES)}")
    make = RECIPES[name]
    _check_keys(f"problem {name}", given, ["name", *signature(make).parameters])
    problem: Problem = make(**{key: value for key, value in given.items() if key != "name"})
    recipe = problem.recipe or {}
    return problem, {key: value for key, value in recipe.items() if value is not None}


def _own_data(given: Mapping[str, Any]) -> tuple[Problem, dict[str, Any]]:
    """The user's own data; a section with the file's checksum makes the same problem, or none."""
    _check_keys("a problem from a file", given, OF_FILES)
    named = {key: _names(key, given.get(key, [])) for key in ("target", "ignore", "categorical", "keep")}
    if not isinstance(given.get("data"), str) or not named["target"]:
        raise ValueError(
            "a file and a column are needed: say --data FILE --target COLUMN, got "
            f"{given.get('data')!r} and {given.get('target')!r}"
        )
    if len(named["target"]) == 1:
        named["target"] = named["target"][0]
    path = Path(given["data"]).expanduser().absolute()
    values = FILE_DEFAULTS | dict(given) | {key: value for key, value in named.items() if value}
    if not isinstance(values["standardise"], bool):
        raise TypeError(f"standardise must be true or false, got {values['standardise']!r}")
    real("test_share", values["test_share"])
    if "sha256" in given and given["sha256"] != _digest(path):
        raise ValueError(f"{path} has changed since these settings were written: say --data again to use it")
    options = {
        key: values[key] for key in ("test_share", "standardise", "seed", "rows", *named) if key in values
    }
    problem = from_table(
        path, task=given.get("task"), weights=given.get("weights"), class_weight=given.get("class_weight"),
        **options,
    )  # fmt: skip
    return problem, {**values, "data": str(path), "sha256": given.get("sha256") or _digest(path)}


def _digest(path: Path) -> str:
    """The checksum of a file."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise type(error)(f"{path} cannot be read ({error.strerror}): check the path") from None


def _names(key: str, given: object) -> Any:
    """Names of columns: one, or several."""
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"{key} must be the name of a column, or a list of names, got {given!r}")
    return names


def _check_keys(what: str, given: Mapping[str, Any], accepted: list[str] | tuple[str, ...]) -> None:
    if unknown := [key for key in given if key not in accepted]:
        raise ValueError(f"{what} has no {', '.join(unknown)}; accepted: {', '.join(accepted)}")
