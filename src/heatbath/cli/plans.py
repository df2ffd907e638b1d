"""Make the problem and the plan of a run from its settings, and complete the settings with all defaults."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict
from inspect import signature
from pathlib import Path
from typing import Any, cast

from numpy.typing import NDArray

from heatbath._internal.checks import real, whole
from heatbath.cli.methods import partition_of, table_of
from heatbath.cli.options import Settings
from heatbath.cli.parsing import AUTO
from heatbath.cli.run_folder import RUN
from heatbath.cli.settings import check_keys
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

FILE_DEFAULTS = {"test_share": 0.2, "standardise": True, "seed": 0}
FILE_KEYS = (
    "data", "target", "weights", "class_weight", "ignore", "categorical", "keep", "task", "test_share",
    "standardise", "seed", "rows", "sha256",
)  # fmt: skip
COLUMN_KEYS = ("target", "ignore", "categorical", "keep")
TRAINING_DEFAULTS: dict[str, Any] = {
    "steps": 20_000, "chains": 10, "seed": 0, "record": 100, "losses_every": 1, "shuffled": False,
    "momenta": "zero", "dtype": "float32",
}  # fmt: skip
NOT_FOR_PLANS = ("continued", "start", "start_sha256")  # training settings that are no arguments of a plan
DEFAULT_SIZES = ("refine", "steps", "budget", "batch", "chains", "samples")  # with defaults of their own
SIZES = ("steps", "batch", "chains", "budget", "warm")  # training settings that no `RunSettings` have
MOST_RECORDS = 1_000_001


def prepare_run(command: str, settings: Settings) -> tuple[Plan | AutomaticRun, Settings]:
    """Make the plan of a run from its settings.

    Parameters
    ----------
    command
        "train", "compare" or "sweep".
    settings
        Values by section and key, as `merge_settings` returns them.

    Returns
    -------
    Plan or AutomaticRun
        The plan, or for `train` the automatic run that finds what is "auto".
    Settings
        The complete settings, from which the same plan is made again.

    Raises
    ------
    ValueError, TypeError
        For wrong settings.
    MemoryError
        If the run would not fit in memory.
    """
    problem, problem_section = make_problem(settings["problem"])
    if command == "train" and not settings["method"]:
        settings = _with_default_sampling(problem, settings)
    elif "refine" in settings["training"]:
        raise ValueError("refine works only without --method: leave out one of the two")

    network = MLP(**settings["network"])
    posterior = None
    if settings["posterior"]:
        posterior = Posterior(**settings["posterior"])
    methods, method_sections = _make_methods(command, settings, posterior)
    training = TRAINING_DEFAULTS | settings["training"]
    theta, start_settings = _load_start(training.get("start"), training.get("start_sha256"))
    training = {name: value for name, value in training.items() if name not in NOT_FOR_PLANS}
    whole("record", training["record"], low=1, high=MOST_RECORDS)  # a list of steps is for Python only
    arguments = dict(training)
    if theta is not None:
        arguments["start"] = theta

    prepared = _plan_or_search(command, problem, network, methods, arguments)
    plan = prepared.first_plan() if isinstance(prepared, AutomaticRun) else prepared
    check_memory(plan, 2)

    training |= {"batch": plan.batch, **start_settings}
    if isinstance(prepared, AutomaticRun) and prepared.budget is not None:
        training |= {"budget": prepared.budget, "samples": plan.samples}
    ends = extension_ends(settings)
    if ends:
        training |= {"continued": ends}

    complete = {"problem": problem_section, "network": network_to_plain(network), **method_sections}
    if posterior is not None:
        complete["posterior"] = _posterior_table(posterior)
    return prepared, complete | {"training": training}


def extension_ends(settings: Settings) -> list[int]:
    """Return the steps at which a run ends after each of its extensions, in order.

    `heatbath resume --steps` writes them to the settings as `continued`; they are checked here.
    """
    ends = settings["training"].get("continued", [])
    is_ascending = False
    if isinstance(ends, list):
        steps = {whole("continued", end, low=1) for end in ends}
        is_ascending = sorted(steps) == ends
    if not is_ascending:
        raise ValueError(f"continued must be a list of steps in ascending order, got {ends!r}")
    return cast(list[int], ends)


def _posterior_table(posterior: Posterior) -> dict[str, Any]:
    """Return the fields of a posterior that aren't None, which TOML doesn't have."""
    return {name: value for name, value in asdict(posterior).items() if value is not None}


def _with_default_sampling(problem: Problem, settings: Settings) -> Settings:
    """Return the settings of a `train` without --method: method, posterior and sizes that suit the problem.

    The defaults are those of the scikit-learn estimators; what the user has chosen takes precedence.
    """
    network: dict[str, Any] = {"hidden": list(HIDDEN)} | settings["network"]
    posterior = defaults.posterior_of(**settings["posterior"])
    training = settings["training"]
    sizes = {name: training[name] for name in DEFAULT_SIZES if name in training}
    if sizes.get("steps") == AUTO:
        del sizes["steps"]
    if "steps" in sizes and "budget" in sizes:
        raise ValueError(
            f"budget is for --steps auto, and steps is {sizes['steps']}: leave out one of the two"
        )
    if sizes.get("batch") == "all":
        sizes["batch"] = problem.X_train.shape[1]

    chosen = dict(defaults.arguments(problem, MLP(**network), posterior, **sizes))
    method = table_of(cast(Partition, chosen.pop("partition")))
    if "burn_in" in training:
        del chosen["thin"]  # which was chosen for the default burn-in
    unaffected = {name: value for name, value in training.items() if name not in DEFAULT_SIZES}
    return settings | {
        "network": network,
        "posterior": _posterior_table(posterior),
        "method": method,
        "training": chosen | unaffected,
    }


def _make_methods(command: str, settings: Settings, posterior: Posterior | None) -> tuple[Methods, Settings]:
    """Return the partition of a run, or those of a comparison by label, and the sections that reproduce them.

    Parameters
    ----------
    command
        "compare" for several methods; otherwise there is one.
    settings
        Values by section and key.
    posterior
        The posterior that all of them sample, or None.
    """
    if command != "compare":
        partition, table = partition_of(settings["method"], posterior)
        return partition, {"method": table}
    if not settings["methods"]:
        raise ValueError("name the methods to compare, such as --method adlala --method sgd:h=0.1")
    partitions = {}
    tables = {}
    for label, table in settings["methods"].items():
        partitions[label], tables[label] = partition_of(table, posterior)
    return partitions, {"methods": tables}


def _plan_or_search(
    command: str, problem: Problem, network: MLP, methods: Methods, training: Mapping[str, Any]
) -> Plan | AutomaticRun:
    """Return the plan of a run, or for `train` an automatic run if something is "auto".

    Parameters
    ----------
    command
        "train", "compare" or "sweep".
    problem, network, methods
        The problem, the network, and a partition or several by name.
    training
        Complete training settings, with `start` as parameters of the network.
    """
    if "colder_from" in training:
        methods = _cooled(methods, training["colder_from"], training["steps"])
    if command != "train" and (training["steps"] == AUTO or {"budget", "warm", "start"} & training.keys()):
        raise ValueError(
            "only heatbath train finds the number of steps and takes a start: for heatbath "
            f"{command} use --steps NUMBER, without --budget, --warm and --start"
        )

    sizes = {name: training[name] for name in SIZES if name in training}
    options = {name: value for name, value in training.items() if name not in (*SIZES, "colder_from")}
    run_settings = RunSettings(**options)
    if command == "train":
        return prepare(problem, network, cast(Partition, methods), **sizes, settings=run_settings)
    return make_plan(problem, network, methods, **sizes, settings=run_settings, call=cast(Call, command))


def _load_start(start: object, sha256: object) -> tuple[NDArray[Any] | None, dict[str, str]]:
    """Load the run at whose final parameters the chains start.

    Parameters
    ----------
    start
        Folder or file of the run; None starts the chains as usual.
    sha256
        Checksum that the file must have, or None to accept any.

    Returns
    -------
    array or None
        Parameters of each chain; None if `start` is None.
    dict
        Settings that load the same file again: its absolute path and its checksum.
    """
    if start is None:
        return None, {}
    if not isinstance(start, str):
        raise TypeError(f"start must be the folder or the file of a run, got {start!r}")
    path = Path(start).expanduser().absolute()
    if path.is_dir():
        path = path / RUN
    run = load(path)
    digest = _checksum(path)
    if sha256 not in (None, digest):
        raise ValueError(f"{path} has changed since these settings were written: use --start to accept it")
    return run.theta, {"start": str(path), "start_sha256": digest}


def _cooled(methods: Methods, step: object, steps: object) -> Methods:
    """Return the methods with a lower temperature from this step on; `steps` is the length of the run."""
    if steps == AUTO:
        raise ValueError("colder_from needs a known number of steps: replace --steps auto by a number")
    step = whole("colder_from", step, low=1, high=whole("steps", steps, low=1))
    if isinstance(methods, Partition):
        return methods.cooled(step)
    return {name: partition.cooled(step) for name, partition in methods.items()}


def make_problem(section: Mapping[str, Any]) -> tuple[Problem, dict[str, Any]]:
    """Make the problem that a section of the settings describes.

    Parameters
    ----------
    section
        Either `name` and arguments of a built-in problem, or `data` and `target` of the user's file.

    Returns
    -------
    Problem
        The problem.
    dict
        The section with all defaults filled in.
    """
    if "name" in section and "data" in section:
        raise ValueError(
            f"choose a problem or data, not both: got {section['name']!r} and {section['data']!r}"
        )
    if "data" in section:
        return _problem_from_file(section)

    name = section.get("name")
    if not isinstance(name, str) or name not in RECIPES:
        hint = "choose --problem NAME or --data FILE" if name is None else f"there is no problem {name!r}"
        raise ValueError(f"{hint}; problems: {', '.join(RECIPES)}")

    make = RECIPES[name]
    check_keys(f"problem {name}", section, ["name", *signature(make).parameters])
    arguments = {key: value for key, value in section.items() if key != "name"}
    problem: Problem = make(**arguments)
    recipe = problem.recipe or {}
    return problem, {key: value for key, value in recipe.items() if value is not None}


def _problem_from_file(section: Mapping[str, Any]) -> tuple[Problem, dict[str, Any]]:
    """Make a problem from the user's file.

    Parameters
    ----------
    section
        `data` and `target`, and options of `from_table`. With a checksum, `sha256`, the file must not have
        changed.

    Returns
    -------
    Problem
        The problem.
    dict
        The section with all defaults, the absolute path and the checksum of the file.
    """
    check_keys("a problem from a file", section, FILE_KEYS)
    columns = {key: _column_names(key, section.get(key, [])) for key in COLUMN_KEYS}
    if not isinstance(section.get("data"), str) or not columns["target"]:
        raise ValueError(
            "name a file and the column to predict, --data FILE --target COLUMN; got "
            f"{section.get('data')!r} and {section.get('target')!r}"
        )
    named: dict[str, Any] = {key: names for key, names in columns.items() if names}
    if len(columns["target"]) == 1:
        named["target"] = columns["target"][0]

    path = Path(section["data"]).expanduser().absolute()
    values = FILE_DEFAULTS | dict(section) | named
    if not isinstance(values["standardise"], bool):
        raise TypeError(f"standardise must be true or false, got {values['standardise']!r}")
    real("test_share", values["test_share"])
    if "sha256" in section and section["sha256"] != _checksum(path):
        raise ValueError(f"{path} has changed since these settings were written: use --data to accept it")

    arguments = {key: value for key, value in values.items() if key not in ("data", "sha256")}
    problem = from_table(path, **arguments)
    sha256 = section.get("sha256") or _checksum(path)
    return problem, {**values, "data": str(path), "sha256": sha256}


def _checksum(path: Path) -> str:
    """Return the SHA-256 of a file as hexadecimal text."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise type(error)(f"{path} cannot be read ({error.strerror}): check the path") from None


def _column_names(key: str, value: object) -> list[str]:
    """Return a setting that is one name of a column or a list of names as a list."""
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"{key} must be the name of a column, or a list of names, got {value!r}")
    return names
