"""A run as code: Python, or a command, that makes the same run again, bit for bit.

Every phase is a call of `train`, from where the one before has ended; changes of coefficients are in its
partition.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from inspect import signature
from typing import Any

import tomli_w

from heatbath.explorer.run_stream import Flight
from heatbath.explorer.settings import NAMES, PageSettings
from heatbath.methods import Method, coefficients, known_methods, module_of
from heatbath.methods.partition import Partition
from heatbath.methods.presets import PRESETS
from heatbath.methods.schedules import Schedule, to_plain
from heatbath.runs.plan import Plan

STEPS = 20_000  # of a run that has not begun
PHASE = "phase"  # what files and folders of phases are called
OUTPUT = "_output"  # how the arguments of presets for the output layer end


def text(flight: Flight, kind: str) -> str:
    """The code of a run up to where it stands: "python" or "command"."""
    plan = flight.live.plan
    begun = flight.live.step or flight.phases
    lengths = [*(phase.steps for phase in flight.phases), flight.live.step if begun else STEPS]
    phases = [*flight.phases, plan]
    if len(phases) > 1 and not flight.live.step:  # another method, and no step of it yet
        phases, lengths = phases[:-1], lengths[:-1]
    write = _python if kind == "python" else _command
    return write(flight.settings, phases, lengths)


# Python


def _python(settings: PageSettings, phases: Sequence[Plan], lengths: Sequence[int]) -> str:
    kinds = {type(m) for plan in phases for m in _partition(plan).methods.values()}
    modules = sorted({module for kind in kinds if (module := module_of(kind))})
    lines = [
        *(["import numpy as np"] if settings.of_problem["kind"] == "points" else []),
        "import heatbath as hb",
        *(f"import {module}" for module in modules),
        "",
        *_problem_in_python(settings),
        f"network = hb.MLP({_call(_network(settings))})",
    ]
    for place, (plan, steps) in enumerate(zip(phases, lengths, strict=True)):
        going_on = "" if place == 0 else ', start=run.theta, momenta="thermal"'
        lines += [
            "",
            *_partition_in_python(_partition(plan)),
            f"run = hb.train(problem, network, partition, steps={steps}, batch={plan.batch}, "
            f"chains={plan.chains}, seed={plan.seed}{going_on})",
        ]
    return "\n".join([*lines, "print(run)", ""])


def _problem_in_python(settings: PageSettings) -> list[str]:
    given = dict(settings.of_problem)
    kind = given.pop("kind")
    if kind == "csv":
        kept = f", keep={keep!r}" if (keep := _kept(settings)) else ""
        return [
            f'problem = hb.from_table("table.csv", {given["target"]!r}{kept})  # the table that was dropped'
        ]
    if kind == "points":
        rows = [f"    [{x!r}, {y!r}, {c!r}]," for x, y, c in given["points"]]
        return [
            "points = np.array([",
            *rows,
            "])",
            'problem = hb.datasets.from_arrays(points[:, :2], points[:, 2], task="binary")',
        ]
    return [f"problem = hb.datasets.{kind}({_call(_recipe(settings))})"]


def _kept(settings: PageSettings) -> list[str]:
    """The columns of a table that are features, whatever they seem to be."""
    encoder = settings.problem.encoder
    return list(encoder.keep) if encoder is not None else []


def _partition_in_python(partition: Partition) -> list[str]:
    parts = {key: _method_in_python(method) for key, method in partition.methods.items()}
    if list(parts) == ["all"]:
        return [f"partition = hb.Partition({parts['all']}, h={_spelled(partition.h)})"]
    rows = [f"        {key!r}: {code}," for key, code in parts.items()]
    return [
        "partition = hb.Partition(", "    {", *rows, "    },", f"    h={_spelled(partition.h)},", ")",
    ]  # fmt: skip


def _method_in_python(method: Method) -> str:
    kind = type(method)
    return f"{module_of(kind) or 'hb'}.{kind.__name__}({_call(_values(method))})"


def _call(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={_spelled(value)}" for name, value in values.items())


def _spelled(value: Any) -> str:
    """A value as Python writes it."""
    if isinstance(value, Schedule):
        fields = {name: v for name, v in vars(value).items()}
        return f"hb.schedules.{type(value).__name__}({_call(fields)})"
    if isinstance(value, tuple | list):
        inner = ", ".join(map(_spelled, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    return 'float("inf")' if value == math.inf else repr(value)


# The command line


def _command(settings: PageSettings, phases: Sequence[Plan], lengths: Sequence[int]) -> str:
    kind, lines = settings.of_problem["kind"], []
    if kind == "csv":
        lines.append("# table.csv is the table that was dropped onto the page")
    if kind == "points":
        rows = [f"{x!r},{y!r},{c!r}" for x, y, c in settings.of_problem["points"]]
        lines += ["cat > table.csv <<'END'", "x1,x2,class", *rows, "END"]
    for place, (plan, steps) in enumerate(zip(phases, lengths, strict=True), 1):
        lines += _phase_on_command_line(settings, plan, steps, place, last=place == len(phases))
    return "\n".join([*lines, ""])


def _phase_on_command_line(
    settings: PageSettings, plan: Plan, steps: int, place: int, last: bool
) -> list[str]:
    """A command; in a file what is no option. Each phase but the last has a folder, where the next begins."""
    partition = _partition(plan)
    training: dict[str, Any] = {"steps": steps, "batch": plan.batch, "chains": plan.chains, "seed": plan.seed}
    if place > 1:
        training |= {"start": f"{PHASE}{place - 1}", "momenta": "thermal"}
    sections = {
        "problem": _problem_on_command_line(settings),
        "network": _network(settings),
        "method": _in_toml(_named(partition) or _parts(partition)),
        "training": training,
    }
    call = _imports(partition) + "train "
    out = [] if last else ["--out", f"{PHASE}{place}"]
    if not any(isinstance(value, dict) for value in sections["method"].values()):
        return [call + shlex.join([*_options(sections), *out])]
    name = "run.toml" if last and place == 1 else f"{PHASE}{place}.toml"
    content = tomli_w.dumps({"command": "train", **sections}).rstrip()
    return [f"cat > {name} <<'END'", content, "END", call + shlex.join(["--settings", name, *out])]


def _imports(partition: Partition) -> str:
    modules = sorted({m for method in partition.methods.values() if (m := module_of(type(method)))})
    return "heatbath " + "".join(f"--import {module} " for module in modules)


def _options(sections: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Settings as options."""
    flags = {
        ("problem", "name"): "problem",
        ("problem", "seed"): "problem-seed",
        ("network", "scale"): "init-scale",
    }
    words = []
    for section, values in sections.items():
        if section == "method":
            rest = ",".join(f"{name}={value}" for name, value in values.items() if name != "name")
            words += ["--method", f"{values['name']}:{rest}"]
            continue
        for name, value in values.items():
            flag = flags.get((section, name), name.replace("_", "-"))
            if name == "keep":
                words += [word for column in value for word in ("--keep", column)]
            elif isinstance(value, bool):
                words.append(f"--{flag}" if value else f"--no-{flag}")
            else:
                words += [f"--{flag}", ",".join(map(str, value)) if isinstance(value, list) else str(value)]
    return words


def _problem_on_command_line(settings: PageSettings) -> dict[str, Any]:
    kind = settings.of_problem["kind"]
    if kind == "points":
        kept = {"keep": ["x1", "x2"]}
        return {"data": "table.csv", "target": "class", "task": "binary", "standardise": False} | kept
    if kind == "csv":
        kept = {"keep": keep} if (keep := _kept(settings)) else {}
        return {"data": "table.csv", "target": settings.of_problem["target"]} | kept
    return {"name": kind, **_recipe(settings)}


def _named(partition: Partition) -> dict[str, Any] | None:
    """What makes a partition on the command line: a method or preset with what is not its default."""
    methods = partition.methods
    if list(methods) == ["all"]:
        method = methods["all"]
        return {"name": type(method).title.lower(), "h": partition.h, **_values(method)}
    for name, preset in PRESETS.items():
        accepted = {n: p for n, p in signature(preset).parameters.items() if n != "posterior"}
        given = {argument: _argument(argument, partition) for argument in accepted}
        given = {argument: value for argument, value in given.items() if value is not None}
        try:
            same = preset(**given) == partition
        except (ValueError, TypeError):
            continue
        if same:
            return {"name": name.lower()} | {n: v for n, v in given.items() if v != accepted[n].default}
    return None


def _parts(partition: Partition) -> dict[str, Any]:
    """What makes a partition on the command line that is no preset's: its parts, one by one."""
    parts = {
        str(key): {"name": type(method).title.lower(), **_values(method)}
        for key, method in partition.methods.items()
    }
    return {"h": partition.h, "parts": parts}


def _argument(argument: str, partition: Partition) -> Any:
    """What a partition has for an argument of a preset."""
    if argument == "h":
        return partition.h
    hidden, output = partition.methods.get("hidden"), partition.methods.get("output")
    if argument.endswith(OUTPUT):
        return getattr(output, argument.removesuffix(OUTPUT), None)
    return getattr(hidden, argument) if hasattr(hidden, argument) else getattr(output, argument, None)


def _in_toml(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _in_toml(single) for name, single in value.items()}
    return to_plain(value) if isinstance(value, Schedule) else value


# Both


def _partition(plan: Plan) -> Partition:
    assert isinstance(plan.partition, Partition)
    return plan.partition


def _values(method: Method) -> dict[str, Any]:
    """What a method is made of, as far as it is not the default; its coefficients always."""
    usual = {
        name: p.default for name, p in signature(known_methods()[type(method).__name__]).parameters.items()
    }
    always = set(coefficients(type(method))) - method.idle | {"word"}
    values = {name: getattr(method, name) for name in usual}
    return {name: value for name, value in values.items() if name in always or value != usual[name]}


def _recipe(settings: PageSettings) -> dict[str, Any]:
    """The arguments of a problem that is drawn at random."""
    given = {name: value for name, value in settings.of_problem.items() if name != "kind"}
    return {NAMES.get(name, name): value for name, value in given.items()} | {
        "n_test": settings.problem.X_test.shape[1]
    }


def _network(settings: PageSettings) -> dict[str, Any]:
    network = settings.network
    return {
        "hidden": list(network.hidden),
        "activation": network.activation,
        "init": network.init,
        "scale": network.scale,
    }
