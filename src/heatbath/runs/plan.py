"""Plans: everything that decides what a run computes, checked and written as text.

`make_plan` is the only way to a new plan: training, the command line and the estimators all call it. Plans
of runs that are continued are made by `continuation`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

from numpy.typing import ArrayLike, NDArray

from heatbath._internal.checks import choice, store, whole
from heatbath.datasets import Problem
from heatbath.methods import Method
from heatbath.methods.partition import Layers, Part, Partition
from heatbath.methods.posterior import Settled
from heatbath.methods.schedules import MOST_STEPS
from heatbath.models.dense import MLP
from heatbath.models.likelihood import Likelihood, settle
from heatbath.runs import grid
from heatbath.runs.adaptation_record import Found
from heatbath.runs.grid import GridPoint, Methods
from heatbath.runs.plan_checks import (
    Call,
    check_methods,
    check_type,
    checked_average,
    checked_histogram,
    checked_start,
)
from heatbath.runs.record_steps import (
    checked_record,
    loss_steps,
    sample_count,
    spread_records,
    spread_samples,
)
from heatbath.runs.serialise import (
    methods_from_plain,
    methods_to_plain,
    network_to_plain,
    problem_from_plain,
    problem_to_plain,
)

Batch: TypeAlias = int | Literal["all"] | None

BATCH = 32  # examples in a mini-batch where no number is given, or all where there are fewer


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class PlanOptions:
    """Options that a plan takes over as the user gave them; see `train` for their meaning."""

    seed: int = 0
    shuffled: bool = False
    rotated: bool = True
    momenta: Literal["zero", "thermal"] = "zero"
    dtype: Literal["float32", "float64"] = "float32"
    record: int | Sequence[int] = 100
    losses_every: int = 1
    weights: bool = False
    histogram: tuple[float, float, int] | None = None
    start: ArrayLike | None = None
    average: ArrayLike | None = None


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class RunSettings(PlanOptions):
    """All options of `train` that decide what is computed, with their defaults, before they are checked.

    If some of `samples`, `burn_in` and `thin` are None, they follow from the rest.
    """

    samples: int | None = None
    burn_in: int | None = None
    thin: int | None = None


def make_plan(
    problem: Problem,
    network: MLP,
    partition: Methods,
    steps: int,
    batch: Batch = None,
    chains: int = 1,
    settings: RunSettings = RunSettings(),  # noqa: B008 (a value)
    *,
    call: Call | None = None,
    **options: Any,
) -> Plan:
    """Check all arguments, and return the plan of a new run.

    Parameters
    ----------
    problem, network, partition, steps, batch, chains
        As in `train`, `sweep` and `compare`.
    settings
        The other options of `train`, as one value.
    call
        The public function that was called. It decides what `partition` must be: one without lists for
        "train", with lists for "sweep", a dict of partitions by name for "compare"; None accepts all three.
    **options
        Options that replace those in `settings`.

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong; the message names it.
    """
    settings = replace(settings, **options)
    check_methods(partition, call)

    takes_samples = settings.samples is not None or settings.average is not None
    if not takes_samples and not (settings.burn_in is None and settings.thin is None):
        raise ValueError("burn_in and thin apply to samples: give samples=N or average=X, too")
    burn_in, thin = spread_samples(steps, settings.samples, settings.burn_in, settings.thin)

    plan_options = {option.name: getattr(settings, option.name) for option in fields(PlanOptions)}
    own_partition = partition if isinstance(partition, Partition) else dict(partition)
    return Plan(
        problem=problem,
        network=network,
        partition=own_partition,
        steps=steps,
        batch=batch_size(batch, problem),
        chains=chains,
        burn_in=burn_in,
        thin=thin,
        keep=settings.samples is not None,
        **plan_options,
    )


def batch_size(batch: Batch, problem: Problem) -> int:
    """Return the number of examples in a mini-batch, with the default and "all" filled in."""
    check_type("problem", problem, Problem)
    examples: int = problem.X_train.shape[1]
    if batch is None:
        return min(BATCH, examples)
    if not isinstance(batch, str):
        return batch
    if batch != "all":
        raise ValueError(f"batch must be a whole number, 'all', or None for {BATCH}; got {batch!r}")
    return examples


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Plan(PlanOptions):
    """Everything that decides what a run computes: a value that can be compared and written as text.

    A plan has `chains` chains for each point of a grid, or for each of several named methods. Its options
    (`seed`, `dtype`, ...) are those of `train`.

    Attributes
    ----------
    problem, network, partition
        The data, the network and the methods. `partition` may hold lists, or be a dict of partitions by name.
    steps, batch, chains
        The number of steps, of examples in a mini-batch, and of chains for each point.
    burn_in, thin
        A sample is taken every `thin` steps after `burn_in` steps, if samples are kept or averaged.
    keep
        True if samples are kept.
    records, losses
        The steps at which the state is recorded, and those of them at which loss and accuracy are computed.
    start, average
        Parameters at the start (chains, parameters), and inputs at which outputs are averaged; or None.
    found
        How the stepsize, the prior and the length were found, if the run found them by itself.
    """

    problem: Problem
    network: MLP
    partition: Methods
    steps: int
    batch: int
    chains: int = 1
    burn_in: int = 0
    thin: int = 1
    keep: bool = False
    records: Sequence[int] = ()
    losses: Sequence[int] = ()
    start: NDArray[Any] | None = None
    average: NDArray[Any] | None = None
    found: Found | None = None

    def __post_init__(self) -> None:
        """Check all fields, and store them in their normal form, with the steps of records filled in.

        Raises TypeError or ValueError with the name of the field, also if the methods or their posteriors do
        not fit the network.
        """
        check_type("problem", self.problem, Problem)
        check_type("network", self.network, MLP)
        check_methods(self.partition, None)

        for name in ("shuffled", "rotated", "weights", "keep"):
            flag = getattr(self, name)
            if not isinstance(flag, bool):
                raise TypeError(f"{name} must be True or False, got {flag!r}")
        self._check_numbers()
        choice("momenta", self.momenta, ("zero", "thermal"))
        choice("dtype", self.dtype, ("float32", "float64"))
        self._check_records()

        if self.start is not None:
            points = grid.count_points(self.partition)
            store(self, start=checked_start(self.start, self.parameters, self.chains, points))
        if self.average is not None:
            store(self, average=checked_average(self.average, self.problem.inputs))
        self.parts()  # raises if methods or posteriors do not fit the network

    def _check_numbers(self) -> None:
        """Check all numbers of the plan, and store them as int, and the histogram as a tuple.

        Steps at which to record must not lie beyond the last step, unless those of a longer run are known.
        """
        examples = self.problem.X_train.shape[1]
        last_record = None if self.records else self.steps
        histogram = None if self.histogram is None else checked_histogram(self.histogram)
        store(
            self,
            steps=whole("steps", self.steps, low=1, high=MOST_STEPS),
            batch=whole(f"batch (of {examples} training examples)", self.batch, low=1, high=examples + 1),
            chains=whole("chains", self.chains, low=1),
            seed=whole("seed", self.seed, low=0, high=2**64),
            losses_every=whole("losses_every", self.losses_every, low=1),
            burn_in=whole("burn_in", self.burn_in, low=0),
            thin=whole("thin", self.thin, low=1),
            histogram=histogram,
            record=checked_record(self.record, last=last_record),
        )

    def _check_records(self) -> None:
        """Check the steps of records and losses, and store them; without any, they follow from `record`."""
        records = self.records or spread_records(self.record, 0, self.steps)
        records = tuple(whole("record: a step", step, low=0, high=self.steps + 1) for step in records)
        losses = tuple(self.losses or loss_steps(records, self.losses_every))
        if list(records) != sorted(set(records)) or not set(losses) <= set(records):
            raise ValueError("records must be steps in order, and losses some of them")
        store(self, records=records, losses=losses)

    def __repr__(self) -> str:
        samples = f", {self.samples} samples of each chain" if self.keep else ""
        averages = "" if self.average is None else f", averages at {len(self.average)} inputs"
        results = f"{len(self.records)} records{samples}{averages}"
        title = f"Plan: {self.steps:,} steps, batch {self.batch}, seed {self.seed}, {self.dtype}"
        return as_lines(title, {**self.summary(), "results": results})

    def summary(self) -> dict[str, str]:
        """Describe the problem, network, methods, chains and what was found, in words by these names.

        A description may have several lines; `as_lines` prints them.
        """
        widths = "-".join(map(str, self.network.sizes(self.problem.inputs, self.likelihood.outputs)))
        chains = f"{self.chains}"
        if self.axes:
            chains += f" at each of {len(self.points)} points ({', '.join(self.axes)})"

        entries = {
            "problem": self._describe_problem(),
            "network": f"{widths}, {self.network.activation}, {self.parameters:,} parameters",
            "methods": self._describe_methods(),
            "chains": chains,
        }
        if self.found is not None:
            entries["found"] = self.found.summary()
        return entries

    def _describe_problem(self) -> str:
        """Return the name and task of the problem, and the numbers of its examples."""
        problem = self.problem
        examples = f"{problem.X_train.shape[1]:,} training and {problem.X_test.shape[1]:,} test examples"
        if problem.draws > 1:
            examples = f"{problem.draws} draws of {examples}"
        if problem.weights_train is not None:
            examples += " with weights"
        return f"{problem.name}, {problem.task}, {examples}"

    def _describe_methods(self) -> str:
        """Return the methods of all parts line by line, or the names of several methods."""
        if not isinstance(self.partition, Partition):
            return ", ".join(self.partition)
        lines = [f"{part}: {method!r}" for part, method in self.partition.methods.items()]
        lines.append(f"h: {self.partition.h!r}")
        if self.partition.posterior is not None:
            lines.append(f"posterior: {self.partition.posterior!r}")
        return "\n".join(lines)

    @cached_property
    def points(self) -> list[GridPoint]:
        """Points of the grid, each with its partition and its label on each axis."""
        return grid.points(self.partition)

    @property
    def named(self) -> dict[str, Partition]:
        """Partitions by name; the name of a single one is empty."""
        return grid.partitions_by_name(self.partition)

    @cached_property
    def axes(self) -> list[str]:
        """Names of the axes of the grid."""
        return list(grid.axes(self.partition))

    @cached_property
    def total(self) -> int:
        """Number of chains at all points: chain c is repeat c % chains of point c // chains."""
        return self.chains * grid.count_points(self.partition)

    @cached_property
    def parameters(self) -> int:
        """Number of parameters of the network."""
        return sum(map(sum, self.layers.values()))

    @cached_property
    def layers(self) -> Layers:
        """Layers of the network, in the form that a partition takes."""
        return self.network.layers(self.problem.inputs, self.likelihood.outputs)

    @cached_property
    def likelihood(self) -> Likelihood:
        """Likelihood of the data: for several methods that of the first, with the same outputs for all.

        Raises ValueError if networks would differ in their number of outputs, so that their parameters would
        not fit in one array.
        """
        likelihoods = {
            name: Likelihood(self.problem, partition.posterior) for name, partition in self.named.items()
        }
        if len({likelihood.outputs for likelihood in likelihoods.values()}) > 1:
            counts = (f"{name} with {likelihood.outputs}" for name, likelihood in likelihoods.items())
            raise ValueError(
                "all networks of one run must have the same number of outputs, and noise='network' doubles "
                f"it: compare such posteriors only with one another; got {', '.join(counts)}"
            )
        return next(iter(likelihoods.values()))

    def parts(self) -> list[Part]:
        """Return the different parts that the methods make of the network.

        The points of a sweep have the same parts with other coefficients, so one of them stands for all.
        """
        return list(self._parts)

    @cached_property
    def _parts(self) -> tuple[Part, ...]:
        """Parts in the order of the methods, each once; parts that differ in coefficients only are one."""
        parts = {}
        for partition in self.named.values():
            methods = self._methods_at_posterior(partition)
            for part in partition.parts(self.layers):
                method = methods.get(part.name, part.method)
                key = (part.name, part.key, part.tensors, type(method), part.thermostats)
                parts[key] = replace(part, method=method)
        return tuple(parts.values())

    def _methods_at_posterior(self, partition: Partition) -> dict[str, Method]:
        """Return the methods by part at the temperature that a posterior sets; empty without a posterior."""
        if partition.posterior is None:
            return {}
        settled = settle(grid.first_point(partition), self.network, self.problem, self.batch)
        return {part.name: part.method for part in reversed(settled.parts)}

    @cached_property
    def settled(self) -> Settled:
        """Parts, and draws of the noise, as the posterior of a single point sets them."""
        assert isinstance(self.partition, Partition)
        return settle(self.partition, self.network, self.problem, self.batch)

    @property
    def samples(self) -> int:
        """Number of samples of each chain that are taken up to the last step."""
        return sample_count(self, self.steps)

    def at_point(self, point: int) -> Plan:
        """Return the plan of one point alone."""
        chains = slice(point * self.chains, (point + 1) * self.chains)
        start = None if self.start is None else self.start[chains]
        return replace(self, partition=self.points[point].partition, start=start)

    @cached_property
    def plain(self) -> dict[str, Any]:
        """Everything but the arrays as plain values; made once, since checksums take time."""
        plain = {"problem": problem_to_plain(self.problem), **self.plain_settings()}
        return plain if self.found is None else {**plain, "found": self.found.plain()}

    def plain_settings(self) -> dict[str, Any]:
        """Return everything but the problem, the arrays and what was found as plain values."""
        separate = ("problem", "network", "partition", "start", "average", "found")
        plain: dict[str, Any] = {
            "network": network_to_plain(self.network),
            "partition": methods_to_plain(self.partition),
        }
        plain |= {"steps": self.steps, "batch": self.batch, "chains": self.chains}  # first, as in older files
        for option in fields(self):
            if option.name not in separate:
                value = getattr(self, option.name)
                plain[option.name] = list(value) if isinstance(value, tuple) else value
        return plain

    @classmethod
    def from_plain(
        cls, plain: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], problem: Problem | None
    ) -> Plan:
        """Return the plan with these plain values and arrays, checked like a new one.

        Parameters
        ----------
        plain
            The plain values of a plan (the property `plain`), as a run file has them.
        arrays
            The arrays of a run file by name: `start`, `X_average` and those of the user's data.
        problem
            The training data; None to make them by the recipe in `plain`, or from `arrays` without one.
        """
        settings = dict(plain)
        found = Found(**settings.pop("found")) if "found" in settings else None
        return cls(
            problem=problem_from_plain(settings.pop("problem"), arrays, problem),
            network=MLP(**settings.pop("network")),
            partition=methods_from_plain(settings.pop("partition")),
            start=arrays.get("start"),
            average=arrays.get("X_average"),
            found=found,
            **settings,
        )


def as_lines(title: str, entries: Mapping[str, str]) -> str:
    """Return a title, and below it the entries in two columns, with a line or more for each."""
    lines = [title]
    for name, text in entries.items():
        label = name
        for line in text.splitlines() or [""]:
            lines.append(f"  {label:8} {line}")
            label = ""
    return "\n".join(lines)
