"""Prepare `heatbath tune`: a search, then fresh runs of the best candidate of each method."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from inspect import signature
from pathlib import Path
from typing import Any, TypeAlias

from heatbath._internal.checks import whole
from heatbath.cli.methods import find, partition_of
from heatbath.cli.options import Settings, option_words
from heatbath.cli.parsing import number
from heatbath.cli.plans import FILE_DEFAULTS, make_problem
from heatbath.cli.run_folder import RUN, SEARCH
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

ShowProgress: TypeAlias = Callable[[Progress], None]

SEARCH_ARGUMENTS = ("steps", "batch", "chains", "candidates", "by", "validation", "seed", "shuffled", "dtype")
DEFAULTS: dict[str, Any] = {
    **{name: signature(tune).parameters[name].default for name in SEARCH_ARGUMENTS},
    "fresh": 10,
    "cooled": True,
}
COLD_SHARE = 10  # fresh runs are colder for the last tenth of their steps
TO = ".."  # separates the ends of a range
NOT_COEFFICIENTS = ("name", "module")


@dataclass(frozen=True, eq=False)
class Tuning:
    """A search for good coefficients, and the fresh runs after it.

    Attributes
    ----------
    search
        The search for the best candidate of each method.
    plan
        Plan of the first rung of the search, which trains all candidates.
    settings
        Complete settings of the search and of the fresh runs.
    """

    search: HalvingSearch
    plan: Plan
    settings: Settings

    @property
    def problem(self) -> Problem:
        """Problem of the search."""
        return self.search.problem

    @property
    def fresh_chains(self) -> int:
        """Number of fresh chains of each method."""
        return int(self.settings["search"]["fresh"])

    @property
    def seed(self) -> int:
        """Seed of the fresh runs, which differs from that of the search."""
        return int(self.settings["search"]["seed"]) + 1

    @property
    def cold_from(self) -> int | None:
        """Step from which on the fresh runs have a lower temperature; None if they don't."""
        steps = self.search.steps
        if not self.fresh_chains or not self.settings["search"]["cooled"] or steps < COLD_SHARE:
            return None
        return steps - steps // COLD_SHARE

    def find(self, folder: Path, execution: dict[str, Any], progress: ShowProgress) -> TuningResult:
        """Run the search, or continue it from its state in a folder, and return its result.

        Parameters
        ----------
        folder
            Folder of the run, in which the state of the search is kept.
        execution
            Arguments of `simulate` that don't change results, such as threads.
        progress
            Called with the progress of the short runs.

        Raises
        ------
        KeyboardInterrupt
            If the search was stopped; its state is in the folder.
        """
        search = replace(self.search, execution=execution, checkpoint=folder / SEARCH)
        result = search.run(progress)
        if not result.finished:
            raise KeyboardInterrupt
        return result

    def fresh_plan(self, partitions: Mapping[str, Partition]) -> Plan:
        """Return the plan of the fresh runs, on all training examples.

        Parameters
        ----------
        partitions
            The best partition of each method, by label. Its temperature is lowered for the last steps if the
            settings say so.
        """
        search_settings = self.settings["search"]
        cold_from = self.cold_from
        if cold_from is not None:
            partitions = {name: partition.cooled(cold_from) for name, partition in partitions.items()}
        return make_plan(
            self.problem,
            self.search.network,
            partitions,
            self.search.steps,
            chains=self.fresh_chains,
            call="compare",
            seed=self.seed,
            **{name: search_settings[name] for name in ("batch", "shuffled", "dtype")},
        )

    def train(self, plan: Plan, folder: Path, execution: dict[str, Any], progress: ShowProgress) -> Run:
        """Train the fresh runs, or continue them from their file in a folder, and save them there.

        Parameters
        ----------
        plan
            Plan of the fresh runs.
        folder
            Folder of the run.
        execution
            Arguments of `simulate` that don't change results, such as threads.
        progress
            Called with the progress of the fresh runs.

        Raises
        ------
        KeyboardInterrupt
            If the fresh runs were stopped; their state is in the folder.
        """
        run = simulate(plan, progress=progress, checkpoint=folder / RUN, **execution)
        run.save(folder / RUN)  # checkpoints only warn when they fail, so the final state is saved again
        if not run.finished:
            raise KeyboardInterrupt
        return run

    def command(self, method: str, values: Mapping[str, float]) -> str:
        """Return the command line that trains as the fresh runs do.

        Parameters
        ----------
        method
            Label of a method in the settings.
        values
            Its coefficients that were searched, by name.
        """
        imports, method_words = self._method_words(method, values)
        network = self.settings["network"]
        changed = _without_defaults(network, network_to_plain(MLP()))

        search = self.settings["search"] | {"chains": max(self.fresh_chains, 1), "seed": self.seed}
        training = {key: search[key] for key in ("steps", "batch", "chains", "seed")}
        training |= _without_defaults({key: search[key] for key in ("shuffled", "dtype")}, DEFAULTS)
        if self.cold_from is not None:
            training["colder_from"] = self.cold_from

        words = [
            *option_words("problem", _problem_without_defaults(self.settings["problem"])),
            *option_words("network", {"hidden": network["hidden"], **changed}),
            *method_words,
            *option_words("training", training),
        ]
        return shlex.join(["heatbath", *imports, "train", *words])

    def _method_words(self, method: str, values: Mapping[str, float]) -> tuple[list[str], list[str]]:
        """Return the words of a command line that name a method with its coefficients.

        Parameters
        ----------
        method
            Label of the method in the settings.
        values
            Its coefficients that were searched, by name.

        Returns
        -------
        list
            The words that import its module, which only a method of the user's own has.
        list
            The words that name it. The coefficients of a method of the user's own follow its name, because
            they aren't options.
        """
        table = self.settings["methods"][method]
        name = table["name"]
        choice = find(name, table.get("module"))
        defaults = {key: argument.default for key, argument in choice.arguments.items()}
        fixed = {key: value for key, value in table.items() if key not in (*NOT_COEFFICIENTS, *values)}
        coefficients = _without_defaults(fixed, defaults) | dict(values)
        if choice.module is None:
            return [], option_words("method", {"name": name, **coefficients})
        pairs = ",".join(f"{key}={value}" for key, value in coefficients.items())
        return ["--import", choice.module], option_words("method", {"name": f"{name}:{pairs}"})


def prepare_tuning(settings: Settings) -> tuple[Tuning, Settings]:
    """Make a search and the plan of its first rung from settings.

    Parameters
    ----------
    settings
        Values by section and key, as `merge_settings` returns them.

    Returns
    -------
    Tuning
        The search, ready to run.
    Settings
        The complete settings, from which the same search is made again.

    Raises
    ------
    ValueError, TypeError
        For wrong settings.
    MemoryError
        If the candidates or the fresh runs would not fit in memory.
    """
    problem, problem_section = make_problem(settings["problem"])
    network = MLP(**settings["network"])
    if not settings["methods"]:
        raise ValueError("name the methods to tune, such as --method adlala --method adam:h=1e-4..0.1")
    searched = {}
    tables = {}
    for label, table in settings["methods"].items():
        searched[label], tables[label] = make_family(label, table)

    chosen = DEFAULTS | settings["search"]
    whole("fresh", chosen["fresh"], low=0)
    if not isinstance(chosen["cooled"], bool):
        raise TypeError(f"cooled must be true or false, got {chosen['cooled']!r}")

    search = prepare(problem, network, searched, **{name: chosen[name] for name in SEARCH_ARGUMENTS})
    plan = search.first_plan()
    check_memory(plan, 2)

    complete = {
        "problem": problem_section,
        "network": network_to_plain(network),
        "methods": tables,
        "search": {**chosen, "batch": plan.batch},
    }
    tuning = Tuning(search, plan, complete)
    if tuning.fresh_chains:  # the fresh runs are prepared only after the search, but must fit in memory, too
        examples = {family.name: family.make(_middle_of_ranges(family)) for family in search.families}
        check_memory(tuning.fresh_plan(examples), 2)
    return tuning, complete


def make_family(label: str, table: Mapping[str, Any]) -> tuple[Family, dict[str, Any]]:
    """Make the family of candidates of a method.

    Parameters
    ----------
    label
        What the method is called in results.
    table
        The method, such as {name: "adam", h: "1e-4..0.1", beta1: 0.9}. A coefficient that isn't in it has
        its default range, or its default value if it has no range.

    Returns
    -------
    Family
        Ranges to search, and the function that makes a partition from a candidate's values.
    dict
        The table with all ranges and defaults.
    """
    choice = find(table.get("name"), table.get("module"))
    (default_family,) = families(table["name"])
    coefficients = {name: value for name, value in table.items() if name not in NOT_COEFFICIENTS}
    chosen_ranges = {}
    for name, value in coefficients.items():
        if _is_range(value):
            default = default_family.ranges.get(name)
            chosen_ranges[name] = _read_range(f"{choice.title}: {name}", value, default)
    fixed = {name: value for name, value in table.items() if name not in chosen_ranges}
    possible_ranges = {**default_family.ranges, **chosen_ranges}
    ranges = {name: interval for name, interval in possible_ranges.items() if name not in fixed}

    partition, complete = partition_of({**fixed, **ranges})
    if partition.axes() or partition.finds_stepsize:
        raise ValueError(
            f"{choice.title}: tune searches ranges such as h=0.01..0.5, so it takes no lists and no auto"
        )

    def make(values: Mapping[str, float]) -> Partition:
        """Return the partition of a candidate with these values."""
        return partition_of({**fixed, **values})[0]

    # The code of the default family has only the coefficients that are searched
    has_fixed_values = coefficients.keys() - chosen_ranges
    code = (lambda values: make(values).code) if has_fixed_values else default_family.code
    plain = {name: asdict(value) if isinstance(value, Between) else value for name, value in complete.items()}
    return Family(label, ranges, make, code), plain


def _is_range(value: object) -> bool:
    """Return True for a range as text LOW..HIGH or as a table."""
    return isinstance(value, Mapping) or (isinstance(value, str) and TO in value)


def _read_range(label: str, value: str | Mapping[str, Any], default: Between | None) -> Between:
    """Read a range LOW..HIGH, or a table {low, high, scale} of a settings file.

    Parameters
    ----------
    label
        What an error message calls the range.
    value
        The text or table.
    default
        Default range of the coefficient, whose scale is used if none is given; None means a logarithmic one.
    """
    if isinstance(value, str):
        low, _, high = value.partition(TO)
        end = f"{label}: an end of a range"
        value = {"low": number(end, low), "high": number(end, high)}
    if not {"low", "high"} <= value.keys() <= {"low", "high", "scale"}:
        raise ValueError(f"{label} must be a number or a range {{low, high, scale}}, got {value!r}")
    usual_scale = "log" if default is None else default.scale
    try:
        return Between(**{"scale": usual_scale, **value})
    except (TypeError, ValueError) as error:
        raise type(error)(f"{label}: {error}") from None


def _middle_of_ranges(family: Family) -> dict[str, float]:
    """Return the value in the middle of each range, on its scale."""
    return {name: interval.at(0.5) for name, interval in family.ranges.items()}


def _problem_without_defaults(section: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a problem that differ from the defaults, without the checksum of a file."""
    if "data" in section:
        values = {key: value for key, value in section.items() if key != "sha256"}
        return _without_defaults(values, FILE_DEFAULTS)
    parameters = signature(RECIPES[section["name"]]).parameters
    return _without_defaults(section, {name: p.default for name, p in parameters.items()})


def _without_defaults(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that differ from their default, or have none."""
    no_default = object()  # differs from all values
    return {name: value for name, value in values.items() if defaults.get(name, no_default) != value}
