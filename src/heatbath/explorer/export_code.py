"""Write a run as code, Python or commands, that makes the same run again, bit for bit.

Every phase is a call of `train` that starts where the phase before it ended. Changes of coefficients are
schedules in the phase's partition.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from inspect import signature
from typing import Any, NamedTuple

import tomli_w

from heatbath.explorer.run_stream import RunStream
from heatbath.explorer.settings import DATASET_ARGUMENTS, PageSettings
from heatbath.methods import Method, coefficients, known_methods, module_of
from heatbath.methods.partition import Partition
from heatbath.methods.presets import PRESETS
from heatbath.methods.schedules import Schedule, to_plain
from heatbath.models.dense import MLP
from heatbath.runs.plan import Plan

DEFAULT_STEPS = 20_000  # of a run that has not begun
PHASE_NAME = "phase"  # names of files and folders of phases begin with it
OUTPUT_SUFFIX = "_output"  # of the arguments of presets for the output layer
# Options of the command line that aren't called as their key in a settings file, by section and key
OPTION_NAMES = {
    ("problem", "name"): "problem",
    ("problem", "seed"): "problem-seed",
    ("network", "scale"): "init-scale",
}


class Phase(NamedTuple):
    """A phase of a run: its plan, its number of steps and its partition."""

    plan: Plan
    steps: int
    partition: Partition


def run_code(stream: RunStream, language: str) -> str:
    """Return the code of a run up to its present step; a run without steps gets DEFAULT_STEPS.

    Parameters
    ----------
    stream : RunStream
        The run.
    language : str
        "python" or "command".
    """
    phases = [Phase(plan, plan.steps, _partition(plan)) for plan in stream.phases]
    is_needed = stream.live.step > 0 or not phases  # a later phase without steps is left out
    if is_needed:
        plan = stream.live.plan
        phases.append(Phase(plan, stream.live.step or DEFAULT_STEPS, _partition(plan)))
    if language == "python":
        return _python_code(stream.settings, phases)
    return _command_code(stream.settings, phases)


# Python


def _python_code(settings: PageSettings, phases: Sequence[Phase]) -> str:
    """Return the phases of a run as a Python script, in which each phase starts where the last one ended."""
    lines = []
    if settings.problem_json["kind"] == "points":
        lines.append("import numpy as np")
    lines.append("import heatbath as hb")
    methods = [method for phase in phases for method in phase.partition.methods.values()]
    lines += [f"import {module}" for module in _method_modules(methods)]
    lines.append("")
    lines += _python_problem(settings)
    lines.append(f"network = hb.MLP({_python_arguments(_network_arguments(settings.network))})")

    start = ""
    for plan, steps, partition in phases:
        sizes = f"steps={steps}, batch={plan.batch}, chains={plan.chains}, seed={plan.seed}"
        lines += ["", *_python_partition(partition)]
        lines.append(f"run = hb.train(problem, network, partition, {sizes}{start})")
        start = ', start=run.theta, momenta="thermal"'  # of every later phase
    lines += ["print(run)", ""]
    return "\n".join(lines)


def _python_problem(settings: PageSettings) -> list[str]:
    """Return the lines of Python that make the problem: from a table, from points, or drawn at random."""
    description = settings.problem_json
    kind = description["kind"]
    if kind == "csv":
        kept_columns = _kept_columns(settings)
        keep = f", keep={kept_columns!r}" if kept_columns else ""
        call = f'hb.from_table("table.csv", {description["target"]!r}{keep})'
        return [f"problem = {call}  # the table dropped onto the page"]
    if kind == "points":
        rows = [f"    [{x!r}, {y!r}, {label!r}]," for x, y, label in description["points"]]
        call = 'hb.datasets.from_arrays(points[:, :2], points[:, 2], task="binary")'
        return ["points = np.array([", *rows, "])", f"problem = {call}"]
    return [f"problem = hb.datasets.{kind}({_python_arguments(_dataset_arguments(settings))})"]


def _python_partition(partition: Partition) -> list[str]:
    """Return the lines of Python that make a partition."""
    parts = {key: _python_method(method) for key, method in partition.methods.items()}
    h = _python_value(partition.h)
    if list(parts) == ["all"]:
        return [f"partition = hb.Partition({parts['all']}, h={h})"]
    rows = [f"        {key!r}: {code}," for key, code in parts.items()]
    return ["partition = hb.Partition(", "    {", *rows, "    },", f"    h={h},", ")"]


def _python_method(method: Method) -> str:
    """Return the call that makes a method as Python code."""
    method_type = type(method)
    module = module_of(method_type) or "hb"
    return f"{module}.{method_type.__name__}({_python_arguments(_method_arguments(method))})"


def _python_arguments(values: Mapping[str, Any]) -> str:
    """Return keyword arguments as Python code."""
    return ", ".join(f"{name}={_python_value(value)}" for name, value in values.items())


def _python_value(value: Any) -> str:
    """Return a value as Python code."""
    if isinstance(value, Schedule):
        return f"hb.schedules.{type(value).__name__}({_python_arguments(vars(value))})"
    if isinstance(value, tuple | list):
        entries = ", ".join(map(_python_value, value))
        return f"({entries},)" if len(value) == 1 else f"({entries})"
    return 'float("inf")' if value == math.inf else repr(value)


# The command line


def _command_code(settings: PageSettings, phases: Sequence[Phase]) -> str:
    """Return the phases of a run as shell commands, with the files that they read."""
    problem_kind = settings.problem_json["kind"]
    lines = []
    if problem_kind == "csv":
        lines.append("# table.csv is the table that was dropped onto the page")
    if problem_kind == "points":
        rows = [f"{x!r},{y!r},{label!r}" for x, y, label in settings.problem_json["points"]]
        lines += ["cat > table.csv <<'END'", "x1,x2,class", *rows, "END"]
    for number, phase in enumerate(phases, 1):
        lines += _phase_commands(settings, phase, number, is_last=number == len(phases))
    lines.append("")
    return "\n".join(lines)


def _phase_commands(settings: PageSettings, phase: Phase, number: int, is_last: bool) -> list[str]:
    """Return the lines of a shell script that train one phase.

    Schedules and methods by part, which no option can hold, are written to a settings file. Each phase but
    the last one has a folder, where the next phase starts.

    Parameters
    ----------
    settings : PageSettings
        Settings of the page.
    phase : Phase
        The phase.
    number : int
        Number of the phase, from 1.
    is_last : bool
        True for the last phase.
    """
    plan, steps, partition = phase
    training: dict[str, Any] = {"steps": steps, "batch": plan.batch, "chains": plan.chains, "seed": plan.seed}
    if number > 1:
        training["start"] = f"{PHASE_NAME}{number - 1}"
        training["momenta"] = "thermal"
    method = _toml_value(_named_method(partition) or _method_by_parts(partition))
    sections = {
        "problem": _command_problem(settings),
        "network": _network_arguments(settings.network),
        "method": method,
        "training": training,
    }

    imports = "".join(f"--import {module} " for module in _method_modules(partition.methods.values()))
    command = f"heatbath {imports}train "
    out = [] if is_last else ["--out", f"{PHASE_NAME}{number}"]
    needs_file = any(isinstance(value, dict) for value in method.values())
    if not needs_file:
        return [command + shlex.join([*_options(sections), *out])]

    is_only_phase = is_last and number == 1
    filename = "run.toml" if is_only_phase else f"{PHASE_NAME}{number}.toml"
    content = tomli_w.dumps({"command": "train", **sections}).rstrip()
    return [f"cat > {filename} <<'END'", content, "END", command + shlex.join(["--settings", filename, *out])]


def _options(sections: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the sections of a settings file as options of the command line.

    The section "method" is one option, NAME:COEFFICIENT=VALUE,...; every other section has one for each key.
    """
    options = []
    for section, entries in sections.items():
        if section == "method":
            arguments = ",".join(f"{name}={value}" for name, value in entries.items() if name != "name")
            options += ["--method", f"{entries['name']}:{arguments}"]
            continue
        for key, value in entries.items():
            option = OPTION_NAMES.get((section, key), key.replace("_", "-"))
            options += _option(option, value)
    return options


def _option(name: str, value: Any) -> list[str]:
    """Return an option of the command line with its value, if it has one."""
    if name == "keep":  # given once for each column, because names of columns may contain commas
        return [text for column in value for text in ("--keep", column)]
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no-{name}"]
    if isinstance(value, list):
        return [f"--{name}", ",".join(map(str, value))]
    return [f"--{name}", str(value)]


def _command_problem(settings: PageSettings) -> dict[str, Any]:
    """Return the section "problem" of a settings file."""
    problem_kind = settings.problem_json["kind"]
    if problem_kind == "points":
        columns = {"target": "class", "task": "binary", "standardise": False, "keep": ["x1", "x2"]}
        return {"data": "table.csv"} | columns
    if problem_kind == "csv":
        section = {"data": "table.csv", "target": settings.problem_json["target"]}
        kept_columns = _kept_columns(settings)
        if kept_columns:
            section["keep"] = kept_columns
        return section
    return {"name": problem_kind, **_dataset_arguments(settings)}


def _named_method(partition: Partition) -> dict[str, Any] | None:
    """Return the section "method" for a partition that a single method or a preset makes, or None.

    Arguments of presets that equal their defaults are left out.
    """
    if list(partition.methods) == ["all"]:
        method = partition.methods["all"]
        return {"name": type(method).title.lower(), "h": partition.h, **_method_arguments(method)}

    for name, preset in PRESETS.items():
        arguments = _preset_arguments(preset, partition)
        parameters = signature(preset).parameters
        unusual = {key: value for key, value in arguments.items() if value != parameters[key].default}
        with suppress(ValueError, TypeError):  # of a preset that doesn't accept these arguments
            if preset(**arguments) == partition:
                return {"name": name.lower(), **unusual}
    return None


def _preset_arguments(preset: Callable[..., Partition], partition: Partition) -> dict[str, Any]:
    """Return the arguments with which a preset might make a partition; those without a value are left out."""
    arguments = {}
    for name in signature(preset).parameters:
        value = None if name == "posterior" else _preset_argument(name, partition)
        if value is not None:
            arguments[name] = value
    return arguments


def _method_by_parts(partition: Partition) -> dict[str, Any]:
    """Return the section "method" for a partition that no preset makes: h and the method of each part."""
    parts = {
        str(key): {"name": type(method).title.lower(), **_method_arguments(method)}
        for key, method in partition.methods.items()
    }
    return {"h": partition.h, "parts": parts}


def _preset_argument(argument: str, partition: Partition) -> Any:
    """Return the value that a preset's argument would need to make a partition, or None if there is none."""
    if argument == "h":
        return partition.h
    hidden = partition.methods.get("hidden")
    output = partition.methods.get("output")
    if argument.endswith(OUTPUT_SUFFIX):
        return getattr(output, argument.removesuffix(OUTPUT_SUFFIX), None)
    if hasattr(hidden, argument):
        return getattr(hidden, argument)
    return getattr(output, argument, None)


def _toml_value(value: Any) -> Any:
    """Return a value as TOML can hold it: schedules become tables."""
    if isinstance(value, dict):
        return {name: _toml_value(entry) for name, entry in value.items()}
    return to_plain(value) if isinstance(value, Schedule) else value


# Python and the command line


def _partition(plan: Plan) -> Partition:
    """Return the partition of a phase's plan."""
    assert isinstance(plan.partition, Partition)  # a page's plan has no grid of partitions
    return plan.partition


def _method_modules(methods: Iterable[Method]) -> list[str]:
    """Return the modules outside heatbath that define methods, sorted."""
    modules = (module_of(type(method)) for method in methods)
    return sorted({module for module in modules if module})


def _kept_columns(settings: PageSettings) -> list[str]:
    """Return the columns of a table that are features even if they look like something else."""
    encoder = settings.problem.encoder
    return list(encoder.keep) if encoder is not None else []


def _method_arguments(method: Method) -> dict[str, Any]:
    """Return the arguments of a method: all coefficients, the word, and options unlike their defaults."""
    always_given = set(coefficients(type(method))) - method.idle | {"word"}
    arguments = {}
    for name, parameter in signature(known_methods()[type(method).__name__]).parameters.items():
        value = getattr(method, name)
        if name in always_given or value != parameter.default:
            arguments[name] = value
    return arguments


def _dataset_arguments(settings: PageSettings) -> dict[str, Any]:
    """Return the arguments of the function of `heatbath.datasets` that draws the problem."""
    description = dict(settings.problem_json)
    del description["kind"]
    arguments = {DATASET_ARGUMENTS.get(name, name): value for name, value in description.items()}
    arguments["n_test"] = settings.problem.X_test.shape[1]
    return arguments


def _network_arguments(network: MLP) -> dict[str, Any]:
    """Return the arguments of a network, as options and settings files can hold them."""
    return {**vars(network), "hidden": list(network.hidden)}
