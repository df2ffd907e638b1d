"""What `heatbath tune` carries out: a search, and fresh runs of the best of each method."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

from heatbath._internal.checks import whole
from heatbath.cli.methods import find, partition_of
from heatbath.cli.options import SETTINGS, Settings
from heatbath.cli.parsing import number
from heatbath.cli.run_folder import RUN, SEARCH
from heatbath.cli.settings import FILE_DEFAULTS, problem_of
from heatbath.datasets import Problem
from heatbath.methods.partition import Partition
from heatbath.methods.ranges import Between
from heatbath.models.dense import MLP
from heatbath.runs.dataset import check_memory
from heatbath.runs.launch import simulate
from heatbath.runs.plan import Plan, make_plan
from heatbath.runs.progress import Progress
from heatbath.runs.run import Run
from heatbath.runs.serialise import RECIPES, network_to_plain
from heatbath.tuning import tune
from heatbath.tuning.search import HalvingSearch, prepare
from heatbath.tuning.search_space import Family, families
from heatbath.tuning.trials import TuningResult

OF_SEARCH = ("steps", "batch", "chains", "candidates", "by", "validation", "seed", "shuffled", "dtype")
DEFAULTS: dict[str, Any] = {
    **{name: signature(tune).parameters[name].default for name in OF_SEARCH}, "fresh": 10, "cooled": True
}  # fmt: skip
COLD = 10  # the last of so many parts of a fresh run is colder
TO = ".."  # between the ends of a range
NO_COEFFICIENTS = ("name", "module")


@dataclass(frozen=True, eq=False)
class Tuning:
    """A search with its settings, which say what comes after it, too; `plan` is that of its first rung."""

    search: HalvingSearch
    plan: Plan
    settings: Settings

    @property
    def problem(self) -> Problem:
        """The data."""
        return self.search.problem

    @property
    def fresh(self) -> int:
        """How many fresh runs each method gets."""
        return int(self.settings["search"]["fresh"])

    @property
    def seed(self) -> int:
        """That of the fresh runs, another than that of the search."""
        return int(self.settings["search"]["seed"]) + 1

    @property
    def cold(self) -> int | None:
        """The step from which the fresh runs are colder, if there are any and they are."""
        steps = self.search.steps
        colder = self.fresh and self.settings["search"]["cooled"] and steps >= COLD
        return steps - steps // COLD if colder else None

    def find(
        self, folder: Path, manner: dict[str, Any], progress: Callable[[Progress], None]
    ) -> TuningResult:
        """What the search finds; it goes on from where the folder stands."""
        tuned = replace(self.search, execution=manner, checkpoint=folder / SEARCH).run(progress)
        if not tuned.finished:
            raise KeyboardInterrupt
        return tuned

    def fresh_plan(self, partitions: Mapping[str, Partition]) -> Plan:
        """The plan of the fresh runs, on all training examples."""
        settings, cold = self.settings["search"], self.cold
        return make_plan(
            self.problem,
            self.search.network,
            {name: one if cold is None else one.cooled(cold) for name, one in partitions.items()},
            self.search.steps,
            chains=self.fresh,
            call="compare",
            seed=self.seed,
            **{name: settings[name] for name in ("batch", "shuffled", "dtype")},
        )

    def train(
        self, plan: Plan, folder: Path, manner: dict[str, Any], progress: Callable[[Progress], None]
    ) -> Run:
        """The fresh runs; they go on from where their file stands."""
        run = simulate(plan, progress=progress, checkpoint=folder / RUN, **manner)
        run.save(folder / RUN)  # a checkpoint that fails is a warning, but this must not
        if not run.finished:
            raise KeyboardInterrupt
        return run

    def command(self, method: str, values: Mapping[str, float]) -> str:
        """The command line that trains with these values of a method, as the fresh runs do."""
        table = self.settings["methods"][method]
        known = find(table["name"], table.get("module"))
        usual = {name: p.default for name, p in known.arguments.items() if p.default is not Parameter.empty}
        fixed = {key: value for key, value in table.items() if key not in (*NO_COEFFICIENTS, *values)}
        chosen = _unusual(fixed, usual) | dict(values)
        imports, name = [], table["name"]
        if known.module is not None:  # its coefficients are no options
            imports = ["--import", known.module]
            name = f"{name}:{','.join(f'{key}={value}' for key, value in chosen.items())}"
            chosen = {}
        search = self.settings["search"] | {"chains": max(self.fresh, 1), "seed": self.seed}
        training = {key: search[key] for key in ("steps", "batch", "chains", "seed")}
        training |= _unusual({key: search[key] for key in ("shuffled", "dtype")}, DEFAULTS)
        training |= {} if self.cold is None else {"colder_from": self.cold}
        network = _unusual(self.settings["network"], network_to_plain(MLP()))
        words = [
            *_options("problem", _problem_options(self.settings["problem"])),
            *_options("network", {"hidden": self.settings["network"]["hidden"], **network}),
            *_options("method", {"name": name, **chosen}),
            *_options("training", training),
        ]
        return shlex.join(["heatbath", *imports, "train", *words])


def tuning_of(settings: Settings) -> tuple[Tuning, Settings]:
    """What is to be carried out, and all its settings, which make the same again."""
    problem, section = problem_of(settings["problem"])
    network = MLP(**settings["network"])
    if not settings["methods"]:
        raise ValueError("say what to tune, such as --method adlala --method adam:h=1e-4..0.1")
    pairs = {label: family_of(label, table) for label, table in settings["methods"].items()}
    chosen = DEFAULTS | settings["search"]
    whole("fresh", chosen["fresh"], low=0)
    if not isinstance(chosen["cooled"], bool):
        raise TypeError(f"cooled must be true or false, got {chosen['cooled']!r}")
    given = {name: chosen[name] for name in OF_SEARCH}
    search = prepare(problem, network, {label: family for label, (family, _) in pairs.items()}, **given)
    plan = search.first_plan()
    check_memory(plan, 2)
    complete = {
        "problem": section,
        "network": network_to_plain(network),
        "methods": {label: table for label, (_, table) in pairs.items()},
        "search": {**chosen, "batch": plan.batch},
    }
    tuning = Tuning(search, plan, complete)
    if tuning.fresh:
        middles = {family.name: family.make(_middle(family)) for family in search.families}
        check_memory(tuning.fresh_plan(middles), 2)
    return tuning, complete


def family_of(label: str, table: Mapping[str, Any]) -> tuple[Family, dict[str, Any]]:
    """What is searched of a method such as {name: "adam", h: "1e-4..0.1", beta1: 0.9}, and its whole table.

    A coefficient that is not named has its usual range, or its default if it has none.
    """
    known = find(table.get("name"), table.get("module"))
    (usual,) = families(table["name"])
    given = {name: value for name, value in table.items() if name not in NO_COEFFICIENTS}
    own = {
        name: _range(f"{known.title}: {name}", value, usual.ranges.get(name))
        for name, value in given.items()
        if isinstance(value, Mapping) or (isinstance(value, str) and TO in value)
    }
    fixed = {name: value for name, value in table.items() if name not in own}
    ranges = {name: range for name, range in {**usual.ranges, **own}.items() if name not in fixed}
    partition, complete = partition_of({**fixed, **ranges})
    if partition.axes() or partition.finds_stepsize:
        raise ValueError(
            f"{known.title}: tune looks within ranges such as h=0.01..0.5, and takes no list, and no auto"
        )

    def make(values: Mapping[str, float]) -> Partition:
        return partition_of({**fixed, **values})[0]

    plain = {name: asdict(value) if isinstance(value, Between) else value for name, value in complete.items()}
    as_usual = not given.keys() - own
    return Family(label, ranges, make, usual.code if as_usual else lambda values: make(values).code), plain


def _range(label: str, given: str | Mapping[str, Any], usual: Between | None) -> Between:
    """A range that is written as LOW..HIGH, or in a settings file as {low, high, scale}."""
    scale = "log" if usual is None else usual.scale
    if isinstance(given, str):
        end, (low, _, high) = f"{label}: an end of a range", given.partition(TO)
        given = {"low": number(end, low), "high": number(end, high)}
    if not {"low", "high"} <= given.keys() <= {"low", "high", "scale"}:
        raise ValueError(f"{label} must be a number or a range {{low, high, scale}}, got {given!r}")
    try:
        return Between(**{"scale": scale, **given})
    except (TypeError, ValueError) as error:
        raise type(error)(f"{label}: {error}") from None


def _middle(family: Family) -> dict[str, float]:
    return {name: range.at(0.5) for name, range in family.ranges.items()}


def _problem_options(section: Mapping[str, Any]) -> dict[str, Any]:
    """What has to be said of a problem."""
    if "data" in section:
        return _unusual({key: value for key, value in section.items() if key != "sha256"}, FILE_DEFAULTS)
    parameters = signature(RECIPES[section["name"]]).parameters
    return _unusual(section, {name: parameter.default for name, parameter in parameters.items()})


def _unusual(values: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in usual or usual[name] != value}


def _options(section: str, values: Mapping[str, Any]) -> list[str]:
    """The options that say some settings."""
    words: list[str] = []
    for setting in SETTINGS:
        if setting.section != section or setting.name not in values:
            continue
        value = values[setting.name]
        if isinstance(value, bool):
            words.append(setting.flag if value else f"--no-{setting.flag[2:]}")
        elif setting.kind == "names":
            names = [value] if isinstance(value, str) else value
            words += [word for name in names for word in (setting.flag, name)]
        else:
            words += [setting.flag, ",".join(map(str, value)) if isinstance(value, list) else str(value)]
    return words
