"""Plans: everything that decides what a run computes, checked, as a value that can be written as text."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from heatbath.checks import choice, real, store, whole
from heatbath.datasets import Problem
from heatbath.runs.grid import changed, points
from heatbath.methods import AdaptiveLangevin, Langevin
from heatbath.networks import Dense
from heatbath.partition import Part, Partition
from heatbath.splitting import gradients, rotate

Methods = Partition | Mapping[str, Partition]


@dataclass(frozen=True, eq=False, kw_only=True)
class Plan:
    """A run as it is planned: on `repeats` chains for each point of a grid, or for each of several methods.

    `partition` may hold lists, or be a dict of named partitions. `records` are the steps at which the state
    is noted, `losses` those of them at which loss and accuracy are. A sample is taken every `thin` steps
    after `burn_in` where `keep` asks to keep them, or `average` has inputs at which to average the outputs.
    """

    problem: Problem
    network: Dense
    partition: Methods
    steps: int
    batch: int
    repeats: int = 1
    seed: int = 0
    epochs: bool = False
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

    def __post_init__(self) -> None:
        _check_kinds(self.problem, self.network, self.partition)
        rows = self.problem.X_train.shape[1]
        steps = whole("steps", self.steps, low=1)
        for name in ("epochs", "rotated", "weights", "keep"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} must be True or False, got {getattr(self, name)!r}")
        store(
            self,
            steps=steps,
            batch=whole(f"batch (of {rows} training data)", self.batch, low=1, high=rows + 1),
            repeats=whole("chains", self.repeats, low=1),
            seed=whole("seed", self.seed, low=0, high=2**64),
            losses_every=whole("losses_every", self.losses_every, low=1),
            burn_in=whole("burn_in", self.burn_in, low=0),
            thin=whole("thin", self.thin, low=1),
            histogram=None if self.histogram is None else _checked_histogram(self.histogram),
            record=_checked_record(self.record),
        )
        choice("momenta", self.momenta, ("zero", "thermal"))
        choice("dtype", self.dtype, ("float32", "float64"))
        if not self.records:
            _check_range(self.record, 0, self.steps)
        records = self.records or _record_steps(self.record, 0, self.steps)
        records = tuple(whole("record: a step", step, low=0, high=self.steps + 1) for step in records)
        due = [step for i, step in enumerate(records, start=1) if i % self.losses_every == 0]
        losses = tuple(self.losses or sorted({*due, records[-1]}))
        if list(records) != sorted(set(records)) or not set(losses) <= set(records):
            raise ValueError("records must be steps in order, and losses some of them")
        store(self, records=records, losses=losses)
        for name, chains in (("start", self.chains), ("average", None)):
            if getattr(self, name) is not None:
                store(self, **{name: self._checked_rows(name, getattr(self, name), chains)})

    def _checked_rows(self, name: str, given: ArrayLike, chains: int | None) -> NDArray[np.float64]:
        """θ for every chain, or inputs to average at."""
        try:
            values = np.asarray(given, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name} must be an array of numbers: {error}") from None
        size = self.problem.inputs if chains is None else self.parameters
        if chains is not None and values.shape == (size,):
            values = np.tile(values, (self.chains, 1))
        if chains is not None and values.shape == (self.repeats, size):
            values = np.tile(values, (chains // self.repeats, 1))
        if values.ndim != 2 or values.shape[1] != size or (chains is not None and len(values) != chains):
            asked = f"({size},) or ({chains}, {size})" if chains else f"(data, {size})"
            raise ValueError(f"{name} must have shape {asked}, got {values.shape}")
        if not np.isfinite(values).all():
            raise ValueError(f"{name} holds values that are not finite")
        return values

    @cached_property
    def points(self) -> list[tuple[dict[str, Any], Partition]]:
        """The points of its grid: what they are called on each axis, and their partitions.

        An axis is called as in the partition, but `xi_start` where ξ starts, since ξ itself is a result.
        """
        if isinstance(self.partition, Partition):
            grid = points(self.partition)
            return [(dict(zip(self.axes, labels.values(), strict=True)), own) for labels, own in grid]
        return [({"method": name}, own) for name, own in self.partition.items()]

    @property
    def named(self) -> dict[str, Partition]:
        """Its partitions by name; a single one has none."""
        return {"": self.partition} if isinstance(self.partition, Partition) else dict(self.partition)

    @property
    def axes(self) -> list[str]:
        """What the axes of its grid are called."""
        if isinstance(self.partition, Partition):
            return [axis if axis != "xi" else "xi_start" for axis in self.partition.axes()]
        return ["method"]

    @property
    def chains(self) -> int:
        """How many chains it has: chain c is repeat c % repeats of point c // repeats."""
        if isinstance(self.partition, Partition):  # the grid itself may be too large to be made
            return self.repeats * math.prod(map(len, self.partition.axes().values()))
        return self.repeats * len(self.partition)

    @property
    def parameters(self) -> int:
        """How many parameters the network has."""
        return self.network.parameters(self.problem.inputs, self.problem.outputs)

    def parts(self) -> list[Part]:
        """The parts that its methods make of the network, each once."""
        layers = self.network.layers(self.problem.inputs, self.problem.outputs)
        alike = isinstance(self.partition, Partition)  # along axes only values differ
        found = {
            (part.name, part.key, part.tensors, type(part.method)): part
            for _, own in (self.points[:1] if alike else self.points)
            for part in own.parts(layers)
        }
        return list(found.values())

    @property
    def samples(self) -> int:
        """How many samples are taken by its last step."""
        return self.samples_by(self.steps)

    def samples_by(self, step: int) -> int:
        """How many samples are taken by `step`, that one included."""
        sampled = self.keep or self.average is not None
        return max(0, (step - self.burn_in) // self.thin) if sampled else 0

    def records_after(self, step: int) -> list[int]:
        """The records still to come where a run stands at `step`."""
        return [n for n in self.records if n > step or n == step == 0]

    def sizes(self) -> dict[str, int]:
        """The bytes that each kind of result takes."""
        number = np.dtype(self.dtype).itemsize
        parts = max(len(own.methods) for own in self.named.values()) * max(1, len(self.network.hidden))
        one = self.parameters * number
        records = len(self.records)
        bins = self.histogram[2] if self.histogram else 0
        outputs = 0 if self.average is None else len(self.average) * self.problem.outputs
        of_chain = {
            "states": 3 * one,
            "records": records * 8 * (4 + parts * (2 + bins)),
            "weights": records * one if self.weights else 0,
            "samples": self.samples * one if self.keep else 0,
            "averages": 16 * outputs,
        }
        return {name: self.chains * size for name, size in of_chain.items()}

    def check_memory(self, copies: int) -> None:
        """Refuse a plan whose results would not fit in the memory that is free, so many times."""
        sizes, free = {name: copies * size for name, size in self.sizes().items()}, _free_memory()
        if sum(sizes.values()) > free:
            largest = max(sizes, key=lambda name: sizes[name])
            raise MemoryError(
                f"{self.chains} chains of {self.parameters} parameters over {self.steps} steps need "
                f"{sum(sizes.values()) / 1e9:,.1f} GB, most of it for {largest} "
                f"({sizes[largest] / 1e9:,.1f} GB), and {free / 1e9:,.1f} GB are free: "
                "take fewer chains, points, records or samples"
            )

    def extended(self, step: int, steps: int, record: int | Sequence[int] | None = None) -> Plan:
        """The plan that goes on from `step`, where a run stands, for `steps` more."""
        steps = whole("steps", steps, low=1)
        if record is not None:
            _check_range(record, step + 1, step + steps)
        record = self.record if record is None else _checked_record(record)
        done = [n for n in self.records if n <= step]
        new = _record_steps(record, step, step + steps)
        places = enumerate(new, start=len(done) + 1)
        due = [n for i, n in places if i % self.losses_every == 0 or n == step + steps]
        losses = (*(n for n in self.losses if n <= step), *due)
        return replace(self, steps=step + steps, record=record, records=tuple(done + new), losses=losses)

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
        return changed(before, after, step + late)

    def at_point(self, point: int) -> Plan:
        """The plan of one point alone."""
        own = slice(point * self.repeats, (point + 1) * self.repeats)
        start = None if self.start is None else self.start[own]
        return replace(self, partition=self.points[point][1], start=start)

    def settings(self) -> dict[str, Any]:
        """All that is a number or a word."""
        arrays = ("problem", "network", "partition", "start", "average")
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in arrays}
        return {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}


def sampling(steps: int, samples: int | None, burn_in: int | None, thin: int | None) -> tuple[int, int]:
    """Burn-in and thinning where two of the three decide.

    samples alone: spread over all steps. With `burn_in`: over the steps after it (the burn-in grows a little
    if they do not divide). With `thin`: the last of the run. Neither: every step.
    """
    steps = whole("steps", steps, low=1)
    if samples is None:
        return whole("burn_in", burn_in or 0, low=0, high=steps), 1 if thin is None else thin
    count = whole("samples", samples, low=1, high=steps + 1)
    first = whole("burn_in", burn_in or 0, low=0, high=steps)
    every = (steps - first) // count if thin is None else whole("thin", thin, low=1)
    found = (steps - first) // every if every else 0
    if every < 1 or found < count or (burn_in is not None and thin is not None and found != count):
        raise ValueError(
            f"samples={count} every {every} steps after burn_in={first} do not make {steps} steps"
            f" (there are {found}): leave out one of samples, burn_in and thin"
        )
    return steps - count * every, every


def _seen_at_kick(partition: Partition) -> bool:
    """Whether a step of some word has begun, and not ended, where θ is seen."""
    words = [m.substeps for m in partition.methods.values() if isinstance(m, (Langevin, AdaptiveLangevin))]
    return any(gradients(word) == 1 and rotate(word).seen == "kick" for word in words)


def _check_kinds(problem: object, network: object, partition: object) -> None:
    named = isinstance(partition, Mapping) and partition and all(isinstance(name, str) for name in partition)
    for name, value, kind in (
        ("problem", problem, Problem),
        ("network", network, Dense),
        *(("partition", own, Partition) for own in (partition.values() if named else (partition,))),  # type: ignore[attr-defined]
    ):
        if not isinstance(value, kind):
            raise TypeError(f"{name} must be a {kind.__name__}, got {value!r} of type {type(value).__name__}")


def _checked_record(record: object) -> int | tuple[int, ...]:
    if isinstance(record, (list, tuple, range, np.ndarray)):
        return tuple(whole("record: a step", step, low=0) for step in record)
    return whole("record", record, low=1)


def _check_range(record: object, low: int, high: int) -> None:
    """Refuse a list of steps of which some are not between the two."""
    if isinstance(record, (list, tuple, range, np.ndarray)):
        for step in record:
            whole("record: a step", step, low=low, high=high + 1)


def _record_steps(record: int | Sequence[int], first: int, stop: int) -> list[int]:
    """The steps after `first` (step 0 among them) at which to record: in order, and always with the last."""
    if isinstance(record, Sequence):
        return sorted({step for step in record if first < step <= stop or step == first == 0} | {stop})
    count = min(record, stop - first)
    return sorted({first + (stop - first) * (i + 1) // count for i in range(count)})


def _checked_histogram(histogram: object) -> tuple[float, float, int]:
    if not isinstance(histogram, (list, tuple)) or len(histogram) != 3:
        raise TypeError(f"histogram must be (low, high, bins) such as (-3, 3, 60), got {histogram!r}")
    low, high = real("histogram: low", histogram[0]), real("histogram: high", histogram[1])
    if low >= high:
        raise ValueError(f"histogram: low must be below high, got {histogram!r}")
    return low, high, whole("histogram: bins", histogram[2], low=1)


def _free_memory() -> int:
    """Bytes that can be had without swapping, as far as the system tells."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            known = dict(line.split(":", 1) for line in file)
        return int(known["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        try:
            return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (AttributeError, OSError, ValueError):
            return 2**62
