"""Plans: everything that decides what a run computes, checked, as a value that can be written as text.

`make_plan` is the one door: training, the command line and the estimators all go through it. A plan is
changed by its methods only.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from heatbath._internal.checks import choice, store, whole
from heatbath.datasets import Problem
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
    check_range,
    check_type,
    checked_histogram,
    checked_record,
    same_problem,
)
from heatbath.runs.record_steps import record_steps, sampling
from heatbath.runs.serialise import (
    methods_from_plain,
    methods_to_plain,
    network_to_plain,
    problem_from_plain,
    problem_to_plain,
)

Batch: TypeAlias = int | Literal["all"] | None

BATCH = 32  # examples in a mini-batch where no number is given, or all where there are fewer


def make_plan(
    problem: Problem,
    network: MLP,
    partition: Methods,
    steps: int,
    batch: Batch = None,
    chains: int = 1,
    *,
    call: Call | None = None,
    seed: int = 0,
    record: int | Sequence[int] = 100,
    shuffled: bool = False,
    rotated: bool = True,
    momenta: Literal["zero", "thermal"] = "zero",
    start: ArrayLike | None = None,
    weights: bool = False,
    histogram: tuple[float, float, int] | None = None,
    losses_every: int = 1,
    samples: int | None = None,
    burn_in: int | None = None,
    thin: int | None = None,
    average: ArrayLike | None = None,
    dtype: Literal["float32", "float64"] = "float32",
) -> Plan:
    """The plan of a new run, or an error that says what is wrong; the arguments are those of `train`.

    `call` says what `partition` must be: one without lists for "train", with lists for "sweep", a dict of
    partitions by name for "compare"; None accepts all three.
    """
    check_methods(partition, call)
    if samples is None and average is None and (burn_in, thin) != (None, None):
        raise ValueError("burn_in and thin are for samples: say samples=N, or average=X")
    burn_in, thin = sampling(steps, samples, burn_in, thin)
    if isinstance(problem, Problem) and (batch is None or isinstance(batch, str)):
        rows = problem.X_train.shape[1]
        if batch not in (None, "all"):
            raise ValueError(f"batch must be a whole number, 'all', or None for {BATCH}; got {batch!r}")
        batch = min(BATCH, rows) if batch is None else rows
    return Plan(
        problem=problem,
        network=network,
        partition=partition if isinstance(partition, Partition) else dict(partition),
        steps=steps,
        batch=batch,  # type: ignore[arg-type]
        chains=chains,
        seed=seed,
        shuffled=shuffled,
        rotated=rotated,
        momenta=momenta,
        dtype=dtype,
        record=record,
        losses_every=losses_every,
        weights=weights,
        histogram=histogram,
        burn_in=burn_in,
        thin=thin,
        keep=samples is not None,
        start=start,  # type: ignore[arg-type]
        average=average,  # type: ignore[arg-type]
    )


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Plan:
    """A run as it is planned: on `chains` chains for each point of a grid, or for each of several methods.

    `partition` may hold lists, or be a dict of named partitions. `records` are the steps at which the state
    is noted, `losses` those of them at which loss and accuracy are. A sample is taken every `thin` steps
    after `burn_in` where `keep` asks to keep them, or `average` has inputs at which to average the outputs.
    `found` tells how its stepsize and its length came about, if it found them by itself.
    """

    problem: Problem
    network: MLP
    partition: Methods
    steps: int
    batch: int
    chains: int = 1
    seed: int = 0
    shuffled: bool = False
    rotated: bool = True
    momenta: Literal["zero", "thermal"] = "zero"
    dtype: Literal["float32", "float64"] = "float32"
    record: int | Sequence[int] = 100
    losses_every: int = 1
    weights: bool = False
    histogram: tuple[float, float, int] | None = None
    burn_in: int = 0
    thin: int = 1
    keep: bool = False
    records: Sequence[int] = ()
    losses: Sequence[int] = ()
    start: NDArray[Any] | None = None
    average: NDArray[Any] | None = None
    found: Found | None = None

    def __post_init__(self) -> None:
        for name, kind in (("problem", Problem), ("network", MLP)):
            check_type(name, getattr(self, name), kind)
        check_methods(self.partition, None)
        rows = self.problem.X_train.shape[1]
        for name in ("shuffled", "rotated", "weights", "keep"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} must be True or False, got {getattr(self, name)!r}")
        store(
            self,
            steps=whole("steps", self.steps, low=1, high=MOST_STEPS),
            batch=whole(f"batch (of {rows} training examples)", self.batch, low=1, high=rows + 1),
            chains=whole("chains", self.chains, low=1),
            seed=whole("seed", self.seed, low=0, high=2**64),
            losses_every=whole("losses_every", self.losses_every, low=1),
            burn_in=whole("burn_in", self.burn_in, low=0),
            thin=whole("thin", self.thin, low=1),
            histogram=None if self.histogram is None else checked_histogram(self.histogram),
            record=checked_record(self.record),
        )
        choice("momenta", self.momenta, ("zero", "thermal"))
        choice("dtype", self.dtype, ("float32", "float64"))
        if not self.records:
            check_range(self.record, 0, self.steps)
        records = self.records or record_steps(self.record, 0, self.steps)
        records = tuple(whole("record: a step", step, low=0, high=self.steps + 1) for step in records)
        due = [step for i, step in enumerate(records, start=1) if i % self.losses_every == 0]
        losses = tuple(self.losses or sorted({*due, records[-1]}))
        if list(records) != sorted(set(records)) or not set(losses) <= set(records):
            raise ValueError("records must be steps in order, and losses some of them")
        store(self, records=records, losses=losses)
        for name, of_chains in (("start", True), ("average", False)):
            if getattr(self, name) is not None:
                store(self, **{name: self._checked_rows(name, getattr(self, name), of_chains)})
        self.parts()  # refuses methods that do not fit the network, and posteriors

    def _checked_rows(self, name: str, given: ArrayLike, of_chains: bool) -> NDArray[np.float64]:
        """θ for every chain, or inputs to average at."""
        try:
            values = np.asarray(given, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name} must be an array of numbers: {error}") from None
        size = self.parameters if of_chains else self.problem.inputs
        if of_chains and values.shape == (size,):
            values = np.tile(values, (self.total, 1))
        if of_chains and values.shape == (self.chains, size):
            values = np.tile(values, (self.total // self.chains, 1))
        if values.ndim != 2 or values.shape[1] != size or (of_chains and len(values) != self.total):
            accepted = f"({size},) or ({self.total}, {size})" if of_chains else f"(examples, {size})"
            raise ValueError(f"{name} must have shape {accepted}, got {values.shape}")
        if not np.isfinite(values).all():
            raise ValueError(f"{name} holds values that are not finite")
        return values

    def __repr__(self) -> str:
        samples = f", {self.samples} samples of each chain" if self.keep else ""
        averages = "" if self.average is None else f", averages at {len(self.average)} inputs"
        results = f"{len(self.records)} records{samples}{averages}"
        first = f"{self.steps:,} steps, batch {self.batch}, seed {self.seed}, {self.dtype}"
        return as_lines(f"Plan: {first}", {**self.summary(), "results": results})

    def summary(self) -> dict[str, str]:
        """Problem, network, methods and chains, in words."""
        problem, network, methods = self.problem, self.network, self.partition
        draws = f"{problem.draws} draws of " if problem.draws > 1 else ""
        counts = f"{problem.X_train.shape[1]:,} training and {problem.X_test.shape[1]:,} test examples"
        widths = "-".join(map(str, network.sizes(problem.inputs, self.likelihood.outputs)))
        if isinstance(methods, Partition):
            parts = [f"{part}: {method!r}" for part, method in methods.methods.items()]
            posterior = [] if methods.posterior is None else [f"posterior: {methods.posterior!r}"]
            chosen = "\n".join([*parts, f"h: {methods.h!r}", *posterior])
        else:
            chosen = ", ".join(methods)
        points = f" at each of {len(self.points)} points ({', '.join(self.axes)})" if self.axes else ""
        weighted = "" if problem.weights_train is None else " with weights"
        return {
            "problem": f"{problem.name}, {problem.task}, {draws}{counts}{weighted}",
            "network": f"{widths}, {network.activation}, {self.parameters:,} parameters",
            "methods": chosen,
            "chains": f"{self.chains}{points}",
            **({} if self.found is None else {"found": self.found.summary()}),
        }

    @cached_property
    def points(self) -> list[GridPoint]:
        """The points of its grid: what they are called on each axis, and their partitions."""
        return grid.points(self.partition)

    @property
    def named(self) -> dict[str, Partition]:
        """Its partitions by name; a single one has none."""
        return grid.named(self.partition)

    @cached_property
    def axes(self) -> list[str]:
        """What the axes of its grid are called."""
        return list(grid.axes(self.partition))

    @cached_property
    def total(self) -> int:
        """How many chains it has at all points: number c is repeat c % chains of point c // chains."""
        return self.chains * grid.size(self.partition)

    @cached_property
    def parameters(self) -> int:
        """How many parameters the network has."""
        return sum(map(sum, self.layers.values()))

    @cached_property
    def layers(self) -> Layers:
        """The layers of the network, as a partition takes them."""
        return self.network.layers(self.problem.inputs, self.likelihood.outputs)

    @cached_property
    def likelihood(self) -> Likelihood:
        """That of the data; of several methods the first one's. All have networks with as many outputs."""
        named = grid.named(self.partition)
        given = {name: Likelihood(self.problem, one.posterior) for name, one in named.items()}
        counts = {name: likelihood.outputs for name, likelihood in given.items()}
        if len(set(counts.values())) > 1:
            raise ValueError(
                "the networks of one run have as many outputs, and noise='network' doubles them: compare "
                "such posteriors with one another; got "
                f"{', '.join(f'{name} with {count}' for name, count in counts.items())}"
            )
        return next(iter(given.values()))

    def parts(self) -> list[Part]:
        """The parts that its methods make of the network, each once; along an axis only values differ."""
        return list(self._parts)

    @cached_property
    def _parts(self) -> tuple[Part, ...]:
        parts = {}
        for partition in grid.named(self.partition).values():
            known: dict[str, Part] = {}  # at the temperature that a posterior sets
            if partition.posterior is not None:
                settled = settle(grid.first(partition), self.network, self.problem, self.batch)
                known = {part.name: part for part in reversed(settled.parts)}
            for part in partition.parts(self.layers):
                part = replace(part, method=known.get(part.name, part).method)
                parts[part.name, part.key, part.tensors, type(part.method), part.thermostats] = part
        return tuple(parts.values())

    def settled(self) -> Settled:
        """What its posterior says, of one point; without one, its parts as they are."""
        return self._settled

    @cached_property
    def _settled(self) -> Settled:
        assert isinstance(self.partition, Partition)
        return settle(self.partition, self.network, self.problem, self.batch)

    @property
    def samples(self) -> int:
        """How many samples are taken by its last step."""
        return self.samples_by(self.steps)

    def samples_by(self, step: int) -> int:
        """How many samples are taken by `step`, that one included."""
        sampled = self.keep or self.average is not None
        return max(0, (step - self.burn_in) // self.thin) if sampled else 0

    def sample_steps(self, step: int) -> list[int]:
        """The steps of the samples that are taken by `step`."""
        return [self.burn_in + self.thin * i for i in range(1, self.samples_by(step) + 1)]

    def records_by(self, step: int) -> list[int]:
        """The records that a run has at `step`; that of the start is made with the first step."""
        return list(self.records[: self.record_count(step)])

    def record_count(self, step: int) -> int:
        """How many these are."""
        return bisect_right(self.records, step) if step else 0

    def extended(self, step: int, steps: int, record: int | Sequence[int] | None = None) -> Plan:
        """The plan that continues from `step`, where a run stands, for `steps` more."""
        steps = whole("steps", steps, low=1, high=MOST_STEPS)
        if record is not None:
            check_range(record, step + 1, step + steps)
        record = self.record if record is None else checked_record(record)
        done = [n for n in self.records if n <= step]
        new = record_steps(record, step, step + steps)
        places = enumerate(new, start=len(done) + 1)
        due = [n for i, n in places if i % self.losses_every == 0 or n == step + steps]
        losses = (*(n for n in self.losses if n <= step), *due)
        found = None if self.found is None else self.found.of_start()
        return replace(
            self, steps=step + steps, record=record, records=tuple(done + new), losses=losses, found=found
        )

    def with_change(self, partition: Methods, step: int) -> Plan:
        """The plan whose coefficients change where a run stands at `step`.

        They change with the next step of a word to begin. Where θ is seen at the kick, in the middle of a
        word, the step that has begun ends with the coefficients it began with.
        """
        if isinstance(self.partition, Partition):
            if not isinstance(partition, Partition):
                raise TypeError(f"partition must be a Partition as this run's is, got {partition!r}")
            return replace(self, partition=self._changed(self.partition, partition, step))
        new = dict.fromkeys(self.partition, partition) if isinstance(partition, Partition) else partition
        if not isinstance(new, Mapping) or list(new) != list(self.partition):
            raise ValueError(f"partition must be a dict for {', '.join(self.partition)}, got {partition!r}")
        changes = {name: self._changed(old, new[name], step) for name, old in self.partition.items()}
        return replace(self, partition=changes)

    def _changed(self, before: Partition, after: Partition, step: int) -> Partition:
        late = self.rotated and _seen_at_kick(before)
        return grid.changed(before, after, step + late)

    def at_point(self, point: int) -> Plan:
        """The plan of one point alone."""
        chains = slice(point * self.chains, (point + 1) * self.chains)
        start = None if self.start is None else self.start[chains]
        return replace(self, partition=self.points[point].partition, start=start)

    def with_methods(self, names: Sequence[str]) -> Plan:
        """The plan of some of the methods of a comparison alone."""
        if isinstance(self.partition, Partition):
            raise ValueError("this is no comparison of methods: a point of a sweep has select")
        if unknown := [name for name in names if name not in self.partition]:
            accepted = ", ".join(self.partition)
            raise ValueError(f"there is no method {', '.join(map(repr, unknown))}: accepted are {accepted}")
        if not names or len(set(names)) < len(names):
            raise ValueError(f"methods must be some different names, got {list(names)!r}")
        methods = {name: method for name, method in self.partition.items() if name in set(names)}
        start = None if self.start is None else self.start[self.chains_of(list(methods))]
        return replace(self, partition=methods, start=start)

    def chains_of(self, names: Sequence[str]) -> NDArray[np.int64]:
        """The chains of some of the methods of a comparison, in order."""
        places = {name: place for place, name in enumerate(self.partition)}  # type: ignore[arg-type]
        first = np.array([places[name] for name in names], np.int64) * self.chains
        return np.asarray((first[:, None] + np.arange(self.chains)).ravel())

    def on_other_examples(
        self, problem: Problem, batch: int | None, burn_in: int, thin: int, most: int
    ) -> Plan:
        """The same chains on other examples of what they were trained on, sampled as is said from here on;
        of the records there are `most`, the latest."""
        check_type("problem", problem, Problem)
        for name in ("task", "inputs", "outputs"):
            if getattr(problem, name) != getattr(self.problem, name):
                raise ValueError(
                    f"the chains continue with the {name} they have, {getattr(self.problem, name)}; "
                    f"got {problem!r}"
                )
        batch = min(BATCH, problem.X_train.shape[1]) if batch is None else batch
        records = self.records[-most:]
        losses = tuple(step for step in self.losses if not records or step >= records[0])
        return replace(
            self, problem=problem, batch=batch, burn_in=burn_in, thin=thin, records=records, losses=losses
        )

    def differences(self, other: Plan, until: int | None = None) -> list[str]:
        """In what another plan is not this one: in anything, or in what decides a run up to a step."""
        wrong = [] if same_problem(self.problem, other.problem) else ["problem"]
        here, there = self._settings(), other._settings()
        names = [name for name in here if here[name] != there[name]]
        if until is not None:
            names = [n for n in names if n not in ("steps", "record", "records", "losses", "partition")]
            done = [[n for n in plan.records if n <= until] for plan in (self, other)]
            names += ["records"] if done[0] != done[1] else []
            names += [] if grid.same_until(self.partition, other.partition, until) else ["partition"]
        arrays = ("start", "average")  # None is equal to None only
        differ = [n for n in arrays if not np.array_equal(getattr(self, n), getattr(other, n))]
        return [*wrong, *names, *differ]

    @cached_property
    def plain(self) -> dict[str, Any]:
        """All of it but the arrays, as plain values; made once, since checksums take time."""
        found = {} if self.found is None else {"found": self.found.plain()}
        return {"problem": problem_to_plain(self.problem), **self._settings(), **found}

    def _settings(self) -> dict[str, Any]:
        """All but the problem and the arrays, as plain values."""
        apart = ("problem", "network", "partition", "start", "average", "found")
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in apart}
        return {
            "network": network_to_plain(self.network),
            "partition": methods_to_plain(self.partition),
            **{name: list(value) if isinstance(value, tuple) else value for name, value in values.items()},
        }

    @classmethod
    def from_plain(
        cls, plain: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], problem: Problem | None
    ) -> Plan:
        """The plan that `plain` tells of, with its arrays; `problem` in place of its recipe, if given."""
        values = dict(plain)
        return cls(
            problem=problem_from_plain(values.pop("problem"), arrays, problem),
            network=MLP(**values.pop("network")),
            partition=methods_from_plain(values.pop("partition")),
            start=arrays.get("start"),
            average=arrays.get("X_average"),
            found=Found(**values.pop("found")) if "found" in values else None,
            **values,
        )


def as_lines(title: str, entries: Mapping[str, str]) -> str:
    """A title, and below it a line or more for each entry, in columns."""
    lines = [title]
    for name, text in entries.items():
        first, *others = text.splitlines() or [""]
        lines += [f"  {name:8} {first}", *(f"  {'':8} {line}" for line in others)]
    return "\n".join(lines)


def _seen_at_kick(partition: Partition) -> bool:
    """Whether a step of some word has begun, and not ended, where θ is seen."""
    return any(method.seen_at_kick for method in partition.methods.values())
