"""The data set of a run: the state of all chains and what was noted on the way, with labels.

`RESULTS` is the one table of what there can be. Collecting results from the engine, putting a state back,
checking what a file holds and the memory that a run needs all follow from it. The chains of a plan may be in
several ensembles (methods differ); here they stand side by side again, with NaN where a chain has no such
part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from heatbath._internal.checks import is_real
from heatbath._internal.memory import free_memory
from heatbath.engine.ensemble import Ensemble
from heatbath.methods.partition import Part
from heatbath.methods.posterior import Posterior
from heatbath.runs import grid
from heatbath.runs.plan import Plan
from heatbath.runs.record_steps import record_count, records_until, sample_count, sample_steps


@dataclass(frozen=True)
class EnsembleGroup:
    """The chains of a plan that are in one ensemble."""

    ensemble: Ensemble
    chains: NDArray[np.int64]

    def by_part(self, values: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        """Temperatures (..., units) as those of the parts: means over parameters."""
        sizes = [unit.size for unit in self.ensemble.program.units]
        return {  # one product after another: the rounding of a dot product depends on the number of records
            name: np.asarray(sum(values[..., u] * sizes[u] for u in units) / sum(sizes[u] for u in units))
            for name, units in self.units().items()
        }

    def units(self) -> dict[str, list[int]]:
        """The units of each part."""
        program = self.ensemble.program
        return {
            part.name: [u for u, unit in enumerate(program.units) if unit.part.name == part.name]
            for part in program.parts
        }

    def thermostats(self) -> dict[str, int]:
        """The units that have a ξ, named as their part, or `hidden/1`, ... where each tensor has one."""
        parts, units = self.ensemble.program.parts, self.units()
        return {name: u for part in parts for name, u in zip(_xi_names(part), units[part.name], strict=False)}


Values: TypeAlias = Mapping[str | None, NDArray[Any]]


@dataclass(frozen=True)
class ResultVariable:
    """One kind of result: its name, dimensions and type, when there is one, and where the engine has it.

    The type "theta" is that of the run's numbers. `of_group` gives the values of a group of chains, with as
    many records or samples as were noted in this call: arrays (chain, ...) by their labels along the first
    dimension, which is None where that is the chain. Of the state they are the engine's own arrays, into
    which a state can be put back. Without it, the plan alone decides. A chain that has none gets `absent`.
    """

    name: str
    dimensions: tuple[str, ...]
    type: Literal["theta", "float64", "int64"] = "float64"
    exists: Callable[[Plan], bool] = lambda plan: True
    of_group: Callable[[EnsembleGroup, int], Values] | None = None
    absent: float = math.nan

    @cached_property
    def noted(self) -> str | None:
        """Along what it is noted on the way, records or samples; None for the state and for its steps."""
        along = [name for name in self.dimensions if name in ("record", "sample")]
        return along[0] if along and self.of_group else None

    def dtype(self, plan: Plan) -> np.dtype[Any]:
        """The type of its numbers."""
        return np.dtype(plan.dtype if self.type == "theta" else self.type)


def _has_second(plan: Plan) -> bool:
    return any(part.method.keeps_second for part in plan.parts())


def _has_thermostats(plan: Plan) -> bool:
    return any(part.thermostats for part in plan.parts())


def _has_averages(plan: Plan) -> bool:
    return plan.average is not None


def _keeps_samples(plan: Plan) -> bool:
    return plan.keep


def _posteriors(plan: Plan) -> list[Posterior]:
    given = [partition.posterior for partition in grid.partitions_by_name(plan.partition).values()]
    return [posterior for posterior in given if posterior is not None]


def _has_noise(plan: Plan) -> bool:
    known = [posterior for posterior in _posteriors(plan) if posterior.noise != "network"]
    return plan.problem.task == "regression" and bool(known)


def _samples_noise(plan: Plan) -> bool:
    return _has_noise(plan) and any(posterior.noise == "sampled" for posterior in _posteriors(plan))


def _where_known(noise: NDArray[np.float64]) -> Values:
    return {None: noise} if noise.shape[-1] else {}


def _second(group: EnsembleGroup, _: int) -> Values:
    second = group.ensemble.chains.second
    return {None: second} if second.size else {}


def _by_split(values: NDArray[Any]) -> Values:
    return {"train": values[:, :, 0], "test": values[:, :, 1]}


def _temperature(group: EnsembleGroup, records: int) -> Values:
    by_part = group.by_part(group.ensemble.notes.temperature[:, :records])
    return {name: values for name, values in by_part.items()}


def _friction(group: EnsembleGroup, records: int) -> Values:
    notes = group.ensemble.notes
    return {name: notes.xi[:, :records, unit] for name, unit in group.thermostats().items()}


def _friction_now(group: EnsembleGroup, _: int) -> Values:
    return {name: group.ensemble.chains.xi[:, unit] for name, unit in group.thermostats().items()}


def _histogram(group: EnsembleGroup, records: int) -> Values:
    counts = group.ensemble.notes.histogram[:, :records]
    return {name: counts[:, :, units].sum(axis=2) for name, units in group.units().items()}


# fmt: off
RESULTS = (
    # the state, from which a run continues
    ResultVariable(
        "theta", ("chain", "parameter"), "theta", of_group=lambda g, _: {None: g.ensemble.chains.theta}
    ),
    ResultVariable("p", ("chain", "parameter"), "theta", of_group=lambda g, _: {None: g.ensemble.chains.p}),
    ResultVariable("second", ("chain", "parameter"), "theta", _has_second, _second, absent=0.0),
    ResultVariable("rung", ("chain",), "int64", of_group=lambda g, _: {None: g.ensemble.chains.rung}),
    ResultVariable("died", ("chain",), "int64", of_group=lambda g, _: {None: g.ensemble.chains.died}),
    ResultVariable("xi_now", ("thermostat", "chain"), "float64", _has_thermostats, _friction_now),
    ResultVariable("average", ("chain", "point", "output"), "float64", _has_averages,
           lambda g, _: {None: g.ensemble.notes.average[:, 0]}),
    ResultVariable("deviations", ("chain", "point", "output"), "float64", _has_averages,
           lambda g, _: {None: g.ensemble.notes.average[:, 1]}),
    ResultVariable("noise_now", ("chain", "target"), "float64", _has_noise,
           lambda g, _: _where_known(g.ensemble.chains.noise)),
    # what is noted at the records
    ResultVariable("step", ("record",), "int64"),
    ResultVariable("loss", ("split", "chain", "record"),
           of_group=lambda g, records: _by_split(g.ensemble.notes.loss[:, :records])),
    ResultVariable("accuracy", ("split", "chain", "record"),
           of_group=lambda g, records: _by_split(g.ensemble.notes.accuracy[:, :records])),
    ResultVariable("temperature", ("part", "chain", "record"), of_group=_temperature),
    ResultVariable("xi", ("thermostat", "chain", "record"), "float64", _has_thermostats, _friction),
    ResultVariable("noise", ("chain", "record", "target"), "float64", _samples_noise,
           lambda g, records: _where_known(g.ensemble.notes.noise[:, :records])),
    ResultVariable("histogram", ("part", "chain", "record", "bin"), "int64",
           lambda plan: plan.histogram is not None, _histogram, absent=0),
    ResultVariable("weights", ("chain", "record", "parameter"), "theta", lambda plan: plan.weights,
           lambda g, records: {None: g.ensemble.notes.theta[:, :records]}),
    # samples
    ResultVariable("sample_step", ("sample",), "int64", _keeps_samples),
    ResultVariable("samples", ("chain", "sample", "parameter"), "theta", _keeps_samples,
           lambda g, samples: {None: g.ensemble.notes.samples[:, :samples]}),
    ResultVariable("sample_noise", ("chain", "sample", "target"), "float64",
           lambda plan: plan.keep and _samples_noise(plan),
           lambda g, samples: _where_known(g.ensemble.notes.noises[:, :samples])),
)
# fmt: on


def results(plan: Plan) -> list[ResultVariable]:
    """Those that a plan has."""
    return [result for result in RESULTS if result.exists(plan)]


def lengths(plan: Plan, step: int, chains: range | None = None, first: int = 0) -> dict[str, int]:
    """How long the dimensions are where a run, or some chains of it, stands at `step`; with what was noted
    after step `first`."""
    return {
        "chain": plan.total if chains is None else len(chains),
        "parameter": plan.parameters,
        "record": record_count(plan, step) - record_count(plan, first),
        "sample": sample_count(plan, step) - sample_count(plan, first),
        "split": 2,
        "point": 0 if plan.average is None else len(plan.average),
        "output": plan.likelihood.outputs,
        "target": plan.problem.outputs,
        "part": len(_part_names(plan)),
        "thermostat": len(_thermostat_names(plan)),
        "bin": plan.histogram[2] if plan.histogram else 0,
    }


def sizes(plan: Plan, step: int | None = None, chains: range | None = None, first: int = 0) -> dict[str, int]:
    """The bytes that each result takes at the last step, or as `lengths` says."""
    long = lengths(plan, plan.steps if step is None else step, chains, first)
    return {
        result.name: result.dtype(plan).itemsize * math.prod(long[name] for name in result.dimensions)
        for result in results(plan)
    }


def check_memory(plan: Plan, copies: int) -> None:
    """Refuse a plan whose results would not fit in the memory that is free, so many times."""
    needed, free = {name: copies * size for name, size in sizes(plan).items()}, free_memory()
    if sum(needed.values()) > free:
        largest = max(needed, key=lambda name: needed[name])
        raise MemoryError(
            f"{plan.total} chains of {plan.parameters} parameters over {plan.steps} steps need "
            f"{sum(needed.values()) / 1e9:,.1f} GB, most of it for {largest} "
            f"({needed[largest] / 1e9:,.1f} GB), and {free / 1e9:,.1f} GB are free: "
            "take fewer chains, points, records or samples"
        )


def gather(
    plan: Plan,
    groups: list[EnsembleGroup],
    first: int,
    before: xr.Dataset | None,
    chains: range | None = None,
) -> xr.Dataset:
    """Everything up to now, or all of some chains; `before` is what there was at step `first`, where this
    call began. Without it there is what was noted since then."""
    step = groups[0].ensemble.step
    labels = _labels(
        plan, step, range(plan.total) if chains is None else chains, first if before is None else 0
    )
    long = lengths(plan, step, chains, first)
    variables = {}
    for result in results(plan):
        if result.of_group is None:
            continue
        new = long[result.noted] if result.noted else 0
        shape = [long[name] for name in result.dimensions]
        values = _side_by_side(result, groups, new, shape, labels, result.dtype(plan))
        if before is not None and result.noted:
            along = result.dimensions.index(result.noted)
            values = np.concatenate([before[result.name].values, values], axis=along)
        variables[result.name] = result.dimensions, values
    if before is not None:  # the names of the points stay when coefficients change
        labels |= {axis: ("chain", before[axis].values) for axis in plan.axes}
    return xr.Dataset(variables, labels)


def state_names(plan: Plan) -> list[str]:
    """The names of the results from which a run continues."""
    return [result.name for result in results(plan) if result.of_group and not result.noted]


class Piece(NamedTuple):
    """The data of some chains at step `end`, with what was noted after step `begin`."""

    chains: range
    begin: int
    end: int
    data: Mapping[str, NDArray[Any]]


def place(plan: Plan, result: ResultVariable, piece: Piece) -> tuple[slice, ...]:
    """Where the values of a piece are among those of all chains at the last step."""
    counts = {"record": record_count, "sample": sample_count}
    spans = {name: slice(count(plan, piece.begin), count(plan, piece.end)) for name, count in counts.items()}
    spans["chain"] = slice(piece.chains.start, piece.chains.stop)
    return tuple(spans.get(name, slice(None)) for name in result.dimensions)


def join(plan: Plan, pieces: Iterable[Piece], before: xr.Dataset | None = None) -> xr.Dataset:
    """The data of all chains at the last step, from those of pieces that follow on `before`; of the state
    the last one of each chain counts."""
    long, labels = lengths(plan, plan.steps), labels_at(plan, before)
    known = [result for result in results(plan) if result.of_group is not None]
    joined = {r.name: np.empty([long[name] for name in r.dimensions], r.dtype(plan)) for r in known}
    if before is not None:
        for result in known:
            if result.noted:
                past = tuple(slice(length) for length in before[result.name].shape)
                joined[result.name][past] = before[result.name].values
    for piece in pieces:
        for result in known:
            if result.noted or piece.end == plan.steps:
                joined[result.name][place(plan, result, piece)] = piece.data[result.name]
    return xr.Dataset({r.name: (r.dimensions, joined[r.name]) for r in known}, labels)


def labels_at(plan: Plan, before: xr.Dataset | None = None) -> dict[str, Any]:
    """What all chains and the other dimensions are called at the last step; the names of points stay as they
    were before when coefficients change."""
    names = {} if before is None else {axis: ("chain", before[axis].values) for axis in plan.axes}
    return _labels(plan, plan.steps, range(plan.total)) | names


def restore(group: EnsembleGroup, step: int, before: xr.Dataset) -> None:
    """Put the chains of a group where they were."""
    group.ensemble.step = step
    for result in RESULTS:
        if result.of_group is None or result.noted or result.name not in before:
            continue
        for label, values in result.of_group(group, 0).items():
            there = before[result.name] if label is None else before[result.name].sel(thermostat=label)
            values[...] = there.values[group.chains]
    if not np.isin(group.ensemble.chains.rung, np.arange(len(group.ensemble.ladder.tau))).all():
        raise ValueError("a chain is on a rung that the ladder does not have")
    chains = group.ensemble.chains
    noise = chains.noise[chains.died < 0]
    if not (np.isfinite(noise) & (noise > 0)).all():
        raise ValueError("the noise of a chain is not a variance: it must be finite and above 0")


def check_arrays(plan: Plan, arrays: Mapping[str, NDArray[Any]], chains: range, begin: int, end: int) -> None:
    """Refuse results that are not those of a piece of a plan, in shapes and types."""
    long = lengths(plan, end, chains, begin)
    for result in results(plan):
        if result.of_group is None:
            continue
        shape, kind = tuple(long[name] for name in result.dimensions), result.dtype(plan)
        values = arrays[result.name]
        if values.shape != shape or values.dtype != kind:
            raise ValueError(
                f"{result.name} of chains {chains.start} to {chains.stop - 1} must be {kind} of shape "
                f"{shape}, it is {values.dtype} of shape {values.shape}"
            )


def check(plan: Plan, step: int, data: xr.Dataset) -> None:
    """Refuse data that are not those of a plan at this step, in names, dimensions, lengths and types."""
    long = lengths(plan, step)
    for result in results(plan):
        expected = {name: long[name] for name in result.dimensions}
        values, kind = data[result.name], result.dtype(plan)
        if dict(values.sizes) != expected or values.dims != result.dimensions or values.dtype != kind:
            raise ValueError(
                f"{result.name} must be {kind} with dimensions {expected}, "
                f"it is {values.dtype} with {dict(values.sizes)}"
            )
    if unlabelled := [axis for axis in plan.axes if data[axis].dims != ("chain",)]:
        raise ValueError(f"the chains are not labelled by {', '.join(unlabelled)}")


def find_point(plan: Plan, data: xr.Dataset, labels: dict[str, object]) -> int:
    """The one point of a plan whose chains are called so."""
    axes = plan.axes
    if unknown := [name for name in labels if name not in axes]:
        raise ValueError(f"there is no axis {', '.join(unknown)}: this run has {', '.join(axes) or 'none'}")
    named = {axis: data[axis].values[:: plan.chains] for axis in axes}
    known = [{axis: named[axis][i] for axis in axes} for i in range(len(plan.points))]
    texts = {axis: repr(float(v)) if is_real(v) else repr(v) for axis, v in labels.items()}  # as in `_labels`
    matching = [
        i
        for i, point in enumerate(known)
        if all(point[axis] == labels[axis] or point[axis] == text for axis, text in texts.items())
    ]
    if len(matching) != 1:
        values = [f"{axis}: {', '.join(dict.fromkeys(str(point[axis]) for point in known))}" for axis in axes]
        raise ValueError(
            f"{labels} names {len(matching)} points, and one is needed; there are {'; '.join(values)}"
        )
    return matching[0]


def select_chains(data: xr.Dataset, chosen: NDArray[np.int64], plan: Plan, fewer: Plan) -> xr.Dataset:
    """Return the data of some chains, with the results, parts and thermostats of a plan of them alone.

    Parameters
    ----------
    data
        The data of all chains of `plan`.
    chosen
        The numbers of the chains, in order.
    plan, fewer
        The plan of all chains, and that of the chosen ones.
    """
    chains = data.isel(chain=chosen).assign_coords(chain=np.arange(len(chosen)))
    kept = {result.name for result in results(fewer)}
    chains = chains.drop_vars([result.name for result in results(plan) if result.name not in kept])
    chains = chains.sel(part=_part_names(fewer))
    if thermostats := _thermostat_names(fewer):
        return chains.sel(thermostat=thermostats)
    return chains.drop_dims("thermostat", errors="ignore")


def _side_by_side(
    result: ResultVariable,
    groups: list[EnsembleGroup],
    new: int,
    shape: list[int],
    labels: dict[str, Any],
    dtype: np.dtype[Any],
) -> NDArray[Any]:
    """A result of all chains; a large one of a single group is not copied."""
    assert result.of_group is not None
    if len(groups) == 1 and result.noted and None in (single := result.of_group(groups[0], new)):
        return single[None]
    joined = np.full(shape, result.absent if dtype.kind == "f" else 0, dtype)
    for group in groups:
        for label, values in result.of_group(group, new).items():
            if label is None:
                joined[group.chains] = values
            else:
                joined[labels[result.dimensions[0]].tolist().index(label), group.chains] = values
    return joined


def _part_names(plan: Plan) -> list[str]:
    return list(dict.fromkeys(part.name for part in plan.parts()))


def _thermostat_names(plan: Plan) -> list[str]:
    return list(dict.fromkeys(name for part in plan.parts() for name in _xi_names(part)))


def _xi_names(part: Part) -> list[str]:
    """What the thermostats of a part are called: as it, or `hidden/1`, ... where each tensor has one."""
    count = len(part.thermostats)
    return [f"{part.name}/{i}" if count > 1 else part.name for i in range(1, count + 1)]


def _labels(plan: Plan, step: int, chains: range, first: int = 0) -> dict[str, Any]:
    """What these chains and the other dimensions are called, as `lengths` has them."""
    repeat = np.array(chains) % plan.chains
    labels: dict[str, Any] = {
        "split": np.array(["train", "test"], dtype=object),
        "chain": np.array(chains),
        "repeat": ("chain", repeat),
        "draw": ("chain", repeat % plan.problem.draws),
        "part": np.array(_part_names(plan), dtype=object),
        "step": ("record", np.array(records_until(plan, step)[record_count(plan, first) :], np.int64)),
    }
    if thermostats := _thermostat_names(plan):
        labels["thermostat"] = np.array(thermostats, dtype=object)
    if plan.keep:
        labels["sample_step"] = (
            "sample",
            np.array(sample_steps(plan, step)[sample_count(plan, first) :], np.int64),
        )
    if plan.histogram:
        edges = np.linspace(plan.histogram[0], plan.histogram[1], plan.histogram[2] + 1)
        labels["bin"] = (edges[1:] + edges[:-1]) / 2
    for axis in plan.axes:
        values = [point.labels[axis] for point in plan.points]
        numbers = all(isinstance(value, float) for value in values)
        names = values if numbers else [v if isinstance(v, str) else repr(v) for v in values]
        kind = np.float64 if numbers else object
        labels[axis] = "chain", np.array(names, dtype=kind)[np.array(chains) // plan.chains]
    return labels
