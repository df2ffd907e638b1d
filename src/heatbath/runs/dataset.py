"""The data set of a run: the state of all chains and everything recorded on the way, with labels.

`RESULTS` is the one table of the results that there can be. Collecting results from the engine, putting a
state back, checking a file and the memory that a run needs all follow from it. The chains of a plan may be in
several ensembles, as methods differ; here they stand side by side again, with NaN where a chain has no such
part.

Blocks hold some chains over some steps of a plan, so most functions take a range of chains and two steps:
everything recorded after step `first`, up to step `step` or `end`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from heatbath._internal.checks import is_real
from heatbath._internal.memory import GIGABYTE, free_memory
from heatbath.engine.ensemble import Ensemble
from heatbath.methods.partition import Part
from heatbath.methods.posterior import Posterior
from heatbath.runs.plan import Plan
from heatbath.runs.record_steps import record_count, record_steps, sample_count, sample_steps

Values: TypeAlias = Mapping[str | None, NDArray[Any]]

SPLITS = ("train", "test")  # in the order in which the engine has losses and accuracies


@dataclass(frozen=True)
class EnsembleGroup:
    """Chains of a plan that are in one ensemble; `chains` are their rows in the data of the run."""

    ensemble: Ensemble
    chains: NDArray[np.int64]

    def by_part(self, values: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        """Return the mean of `values`, (..., unit), over the units of each part, by the name of the part.

        The weights are the numbers of parameters of the units.
        """
        sizes = [unit.size for unit in self.ensemble.program.units]
        means = {}
        for part, units in self.units().items():
            # one product after another: the rounding of a dot product depends on the number of records
            weighted_sum = sum(values[..., unit] * sizes[unit] for unit in units)
            means[part] = np.asarray(weighted_sum / sum(sizes[unit] for unit in units))
        return means

    def units(self) -> dict[str, list[int]]:
        """Return the numbers of the units of each part: its tensors, or the part as a whole."""
        program = self.ensemble.program
        units: dict[str, list[int]] = {part.name: [] for part in program.parts}
        for number, unit in enumerate(program.units):
            units[unit.part.name].append(number)
        return units

    def thermostats(self) -> dict[str, int]:
        """Return the numbers of the units that have a ξ, by the name of the thermostat."""
        units = self.units()
        unit_of: dict[str, int] = {}
        for part in self.ensemble.program.parts:
            unit_of |= zip(_thermostats_of(part), units[part.name], strict=False)
        return unit_of


@dataclass(frozen=True)
class ResultVariable:
    """One kind of result: its name, dimensions and type, when it exists, and where the engine has it.

    Attributes
    ----------
    name, dimensions
        As in the data set.
    type
        The type of its numbers; "theta" is the precision of the run.
    exists
        A function that says whether the runs of a plan have it.
    of_group
        A function that returns the values of a group of chains, with a given number of records or samples:
        arrays (chain, ...) by their label along the first dimension, or by None where the chain comes first.
        For the state they are the engine's own arrays, so that a state can be put back into them. None if
        the values follow from the plan alone.
    absent
        The value for a chain that has none.
    """

    name: str
    dimensions: tuple[str, ...]
    type: Literal["theta", "float64", "int64"] = "float64"
    exists: Callable[[Plan], bool] = lambda plan: True
    of_group: Callable[[EnsembleGroup, int], Values] | None = None
    absent: float = math.nan

    @cached_property
    def recorded_along(self) -> str | None:
        """Dimension along which it grows in the run, "record" or "sample"; None for the state and labels."""
        if self.of_group is None:
            return None
        for dimension in ("record", "sample"):
            if dimension in self.dimensions:
                return dimension
        return None

    def dtype(self, plan: Plan) -> np.dtype[Any]:
        """Return the type of its numbers in a run of this plan."""
        return np.dtype(plan.dtype if self.type == "theta" else self.type)


def _has_second(plan: Plan) -> bool:
    """Return True if a method keeps a second moment of the gradient."""
    return any(part.method.keeps_second for part in plan.parts())


def _has_thermostats(plan: Plan) -> bool:
    """Return True if a part has a thermostat."""
    return any(part.thermostats for part in plan.parts())


def _posteriors(plan: Plan) -> list[Posterior]:
    """Return the posteriors of all methods that have one."""
    return [partition.posterior for partition in plan.named.values() if partition.posterior is not None]


def _has_noise(plan: Plan) -> bool:
    """Return True if a chain has a variance of the targets, given or sampled."""
    of_chains = [posterior for posterior in _posteriors(plan) if posterior.noise != "network"]
    return plan.problem.task == "regression" and bool(of_chains)


def _samples_noise(plan: Plan) -> bool:
    """Return True if a chain samples the variance of the targets."""
    return _has_noise(plan) and any(posterior.noise == "sampled" for posterior in _posteriors(plan))


def _unless_empty(values: NDArray[Any]) -> Values:
    """Return values by chain, or nothing if this group has none."""
    return {None: values} if values.shape[-1] else {}


def _by_split(values: NDArray[Any]) -> Values:
    """Return values (chain, record, split) by split."""
    return {"train": values[:, :, 0], "test": values[:, :, 1]}


def _temperature(group: EnsembleGroup, records: int) -> Values:
    """Return the temperatures at the records by part."""
    by_part = group.by_part(group.ensemble.notes.temperature[:, :records])
    return {part: means for part, means in by_part.items()}


def _friction(group: EnsembleGroup, records: int) -> Values:
    """Return ξ at the records by thermostat."""
    notes = group.ensemble.notes
    return {name: notes.xi[:, :records, unit] for name, unit in group.thermostats().items()}


def _friction_now(group: EnsembleGroup, _: int) -> Values:
    """Return the current ξ by thermostat."""
    return {name: group.ensemble.chains.xi[:, unit] for name, unit in group.thermostats().items()}


def _histogram(group: EnsembleGroup, records: int) -> Values:
    """Return the histograms at the records by part."""
    counts = group.ensemble.notes.histogram[:, :records]
    return {name: counts[:, :, units].sum(axis=2) for name, units in group.units().items()}


# fmt: off
RESULTS = (
    # the state, from which a run continues
    ResultVariable(
        "theta", ("chain", "parameter"), "theta", of_group=lambda g, _: {None: g.ensemble.chains.theta}
    ),
    ResultVariable("p", ("chain", "parameter"), "theta", of_group=lambda g, _: {None: g.ensemble.chains.p}),
    ResultVariable("second", ("chain", "parameter"), "theta", _has_second,
           lambda g, _: _unless_empty(g.ensemble.chains.second), absent=0.0),
    ResultVariable("rung", ("chain",), "int64", of_group=lambda g, _: {None: g.ensemble.chains.rung}),
    ResultVariable("died", ("chain",), "int64", of_group=lambda g, _: {None: g.ensemble.chains.died}),
    ResultVariable("xi_now", ("thermostat", "chain"), "float64", _has_thermostats, _friction_now),
    ResultVariable("average", ("chain", "point", "output"), "float64",
           lambda plan: plan.average is not None,
           lambda g, _: {None: g.ensemble.notes.average[:, 0]}),
    ResultVariable("deviations", ("chain", "point", "output"), "float64",
           lambda plan: plan.average is not None,
           lambda g, _: {None: g.ensemble.notes.average[:, 1]}),
    ResultVariable("noise_now", ("chain", "target"), "float64", _has_noise,
           lambda g, _: _unless_empty(g.ensemble.chains.noise)),
    # recorded on the way
    ResultVariable("step", ("record",), "int64"),
    ResultVariable("loss", ("split", "chain", "record"),
           of_group=lambda g, records: _by_split(g.ensemble.notes.loss[:, :records])),
    ResultVariable("accuracy", ("split", "chain", "record"),
           of_group=lambda g, records: _by_split(g.ensemble.notes.accuracy[:, :records])),
    ResultVariable("temperature", ("part", "chain", "record"), of_group=_temperature),
    ResultVariable("xi", ("thermostat", "chain", "record"), "float64", _has_thermostats, _friction),
    ResultVariable("noise", ("chain", "record", "target"), "float64", _samples_noise,
           lambda g, records: _unless_empty(g.ensemble.notes.noise[:, :records])),
    ResultVariable("histogram", ("part", "chain", "record", "bin"), "int64",
           lambda plan: plan.histogram is not None, _histogram, absent=0),
    ResultVariable("weights", ("chain", "record", "parameter"), "theta", lambda plan: plan.weights,
           lambda g, records: {None: g.ensemble.notes.theta[:, :records]}),
    # samples
    ResultVariable("sample_step", ("sample",), "int64", lambda plan: plan.keep),
    ResultVariable("samples", ("chain", "sample", "parameter"), "theta", lambda plan: plan.keep,
           lambda g, samples: {None: g.ensemble.notes.samples[:, :samples]}),
    ResultVariable("sample_noise", ("chain", "sample", "target"), "float64",
           lambda plan: plan.keep and _samples_noise(plan),
           lambda g, samples: _unless_empty(g.ensemble.notes.noises[:, :samples])),
)
# fmt: on


_results_of_plans: WeakKeyDictionary[Plan, tuple[ResultVariable, ...]] = WeakKeyDictionary()


def results(plan: Plan) -> tuple[ResultVariable, ...]:
    """Return all results that a run of this plan has, labels included."""
    if plan not in _results_of_plans:
        _results_of_plans[plan] = tuple(result for result in RESULTS if result.exists(plan))
    return _results_of_plans[plan]


def computed_results(plan: Plan) -> list[ResultVariable]:
    """Return the results that come from the engine; the others are labels, which follow from the plan."""
    return [result for result in results(plan) if result.of_group is not None]


def state_names(plan: Plan) -> list[str]:
    """Return the names of the results from which a run continues."""
    return [result.name for result in computed_results(plan) if not result.recorded_along]


def lengths(plan: Plan, step: int, chains: range | None = None, first: int = 0) -> dict[str, int]:
    """Return the lengths of all dimensions of the data of a run that stands at `step`, by their names.

    Parameters
    ----------
    plan
        The plan of the run.
    step
        The number of steps made.
    chains
        The chains that are counted; None for all.
    first
        The step after which records and samples are counted.
    """
    all_chains = range(plan.total) if chains is None else chains
    points = 0 if plan.average is None else len(plan.average)
    bins = 0 if plan.histogram is None else plan.histogram[2]
    return {
        "chain": len(all_chains),
        "parameter": plan.parameters,
        "record": record_count(plan, step) - record_count(plan, first),
        "sample": sample_count(plan, step) - sample_count(plan, first),
        "split": len(SPLITS),
        "point": points,
        "output": plan.likelihood.outputs,
        "target": plan.problem.outputs,
        "part": len(_part_names(plan)),
        "thermostat": len(_thermostat_names(plan)),
        "bin": bins,
    }


def sizes(plan: Plan, step: int | None = None, chains: range | None = None, first: int = 0) -> dict[str, int]:
    """Return the bytes that each result takes at `step` (None for the last); arguments as in `lengths`."""
    last_step = plan.steps if step is None else step
    length = lengths(plan, last_step, chains, first)
    bytes_of = {}
    for result in results(plan):
        count = math.prod(length[dimension] for dimension in result.dimensions)
        bytes_of[result.name] = count * result.dtype(plan).itemsize
    return bytes_of


def check_memory(plan: Plan, copies: int) -> None:
    """Raise MemoryError if this number of copies of a plan's results does not fit in the free memory."""
    sizes_of_copies = {name: copies * size for name, size in sizes(plan).items()}
    needed = sum(sizes_of_copies.values())
    free = free_memory()
    if needed > free:
        largest = max(sizes_of_copies, key=lambda name: sizes_of_copies[name])
        raise MemoryError(
            f"{plan.total} chains of {plan.parameters} parameters over {plan.steps} steps need "
            f"{needed / GIGABYTE:,.1f} GB, most of it for {largest} "
            f"({sizes_of_copies[largest] / GIGABYTE:,.1f} GB), and {free / GIGABYTE:,.1f} GB are free: "
            "take fewer chains, points, records or samples"
        )


def gather(
    plan: Plan,
    groups: list[EnsembleGroup],
    first: int,
    earlier: xr.Dataset | None,
    chains: range | None = None,
) -> xr.Dataset:
    """Collect the state of all chains, and everything they recorded, from the ensembles that advance them.

    Parameters
    ----------
    plan
        The plan of the run.
    groups
        The ensembles with their chains. All of them stand at the same step.
    first
        The step at which these ensembles started.
    earlier
        The data of the run up to that step, to which the new records are appended; None to return the new
        ones only.
    chains
        The chains of the groups; None for all of the plan.

    Returns
    -------
    Dataset
        All results with the labels of their dimensions.
    """
    step = groups[0].ensemble.step
    all_chains = range(plan.total) if chains is None else chains
    labelled_after = first if earlier is None else 0
    labels = _labels(plan, step, all_chains, labelled_after)
    length = lengths(plan, step, chains, first)

    variables = {}
    for result in computed_results(plan):
        collected = _side_by_side(result, groups, length, labels, result.dtype(plan))
        if earlier is not None and result.recorded_along:
            axis = result.dimensions.index(result.recorded_along)
            collected = np.concatenate([earlier[result.name].values, collected], axis=axis)
        variables[result.name] = result.dimensions, collected

    if earlier is not None:
        labels |= _point_labels(plan, earlier)
    return xr.Dataset(variables, labels)


class RunPiece(NamedTuple):
    """Data of some chains at step `end`, with everything recorded after step `begin`."""

    chains: range
    begin: int
    end: int
    data: Mapping[str, NDArray[Any]]


def index_of_piece(plan: Plan, result: ResultVariable, piece: RunPiece) -> tuple[slice, ...]:
    """Return the index of a piece's values in a result of all chains at the last step."""
    spans = {
        "chain": slice(piece.chains.start, piece.chains.stop),
        "record": slice(record_count(plan, piece.begin), record_count(plan, piece.end)),
        "sample": slice(sample_count(plan, piece.begin), sample_count(plan, piece.end)),
    }
    return tuple(spans.get(dimension, slice(None)) for dimension in result.dimensions)


def join(plan: Plan, pieces: Iterable[RunPiece], earlier: xr.Dataset | None = None) -> xr.Dataset:
    """Join pieces of a run to the data of all chains at the last step.

    Parameters
    ----------
    plan
        The plan of all chains.
    pieces
        Pieces that together have all chains and steps. The state is that of the last piece of each chain.
    earlier
        The data of the run from which the pieces continue; None if they start at step 0.

    Returns
    -------
    Dataset
        All results with the labels of their dimensions.
    """
    computed = computed_results(plan)
    recorded = [result for result in computed if result.recorded_along]
    length = lengths(plan, plan.steps)
    joined = {}
    for result in computed:
        shape = [length[dimension] for dimension in result.dimensions]
        joined[result.name] = np.empty(shape, result.dtype(plan))

    if earlier is not None:
        for result in recorded:
            earlier_span = tuple(slice(size) for size in earlier[result.name].shape)
            joined[result.name][earlier_span] = earlier[result.name].values

    for piece in pieces:
        used = computed if piece.end == plan.steps else recorded  # the state is that of the last piece
        for result in used:
            joined[result.name][index_of_piece(plan, result, piece)] = piece.data[result.name]

    variables = {result.name: (result.dimensions, joined[result.name]) for result in computed}
    return xr.Dataset(variables, final_labels(plan, earlier))


def final_labels(plan: Plan, earlier: xr.Dataset | None = None) -> dict[str, Any]:
    """Return the labels of all dimensions at the last step.

    `earlier` has the labels of points before their coefficients were changed, which stay.
    """
    labels = _labels(plan, plan.steps, range(plan.total))
    return labels if earlier is None else labels | _point_labels(plan, earlier)


def _point_labels(plan: Plan, data: xr.Dataset) -> dict[str, Any]:
    """Return the labels of the points in a data set; they stay when coefficients change."""
    return {axis: ("chain", data[axis].values) for axis in plan.axes}


def restore(group: EnsembleGroup, step: int, data: xr.Dataset) -> None:
    """Set the arrays of an ensemble, in place, to the state in a data set.

    Parameters
    ----------
    group
        The ensemble, and the rows of its chains in `data`.
    step
        The step at which the chains stand.
    data
        The data of a run, of which everything but the state is ignored.

    Raises
    ------
    ValueError
        If a rung or a variance is none that a chain can have.
    """
    group.ensemble.step = step
    for result in RESULTS:
        if result.of_group is None or result.recorded_along or result.name not in data:
            continue
        for label, engine_array in result.of_group(group, 0).items():
            saved = data[result.name]
            if label is not None:
                saved = saved.sel(thermostat=label)
            engine_array[...] = saved.values[group.chains]

    chains = group.ensemble.chains
    rungs = len(group.ensemble.ladder.tau)
    if not np.isin(chains.rung, np.arange(rungs)).all():
        raise ValueError(f"a chain is on a rung that the ladder of {rungs} temperatures does not have")
    noise = chains.noise[chains.died < 0]
    if not (np.isfinite(noise) & (noise > 0)).all():
        raise ValueError("the noise of a chain is not a variance: it must be finite and above 0")


def check_arrays(plan: Plan, arrays: Mapping[str, NDArray[Any]], chains: range, begin: int, end: int) -> None:
    """Raise ValueError unless arrays have the shapes and types of a piece of a plan.

    Parameters
    ----------
    plan, arrays
        The plan, and the results by name.
    chains, begin, end
        The chains and steps of the piece, as in `RunPiece`.
    """
    length = lengths(plan, end, chains, begin)
    for result in computed_results(plan):
        shape = tuple(length[dimension] for dimension in result.dimensions)
        dtype = result.dtype(plan)
        array = arrays[result.name]
        if array.shape != shape or array.dtype != dtype:
            raise ValueError(
                f"{result.name} of chains {chains.start} to {chains.stop - 1} must be {dtype} of shape "
                f"{shape}, but it is {array.dtype} of shape {array.shape}"
            )


def check_data(plan: Plan, step: int, data: xr.Dataset) -> None:
    """Raise ValueError unless a data set has the results that a run of `plan` has at `step`.

    Checked are their dimensions with lengths, their types, and a label of each chain on every axis. A missing
    result raises KeyError.
    """
    length = lengths(plan, step)
    for result in results(plan):
        expected = {dimension: length[dimension] for dimension in result.dimensions}
        dtype = result.dtype(plan)
        array = data[result.name]
        if dict(array.sizes) != expected or array.dims != result.dimensions or array.dtype != dtype:
            raise ValueError(
                f"{result.name} must be {dtype} with dimensions {expected}, "
                f"but it is {array.dtype} with {dict(array.sizes)}"
            )

    unlabelled = [axis for axis in plan.axes if data[axis].dims != ("chain",)]
    if unlabelled:
        raise ValueError(f"the chains are not labelled by {', '.join(unlabelled)}")


def find_point(plan: Plan, data: xr.Dataset, labels: dict[str, object]) -> int:
    """Return the number of the one point of a grid that has these labels.

    Parameters
    ----------
    plan, data
        The plan of a run, and its data, in which every chain has a label on each axis of the grid.
    labels
        Values by axis. One that is no number in the data set is compared with the text there, its `repr`.

    Raises
    ------
    ValueError
        If an axis is unknown, or unless exactly one point matches.
    """
    unknown_axes = [axis for axis in labels if axis not in plan.axes]
    if unknown_axes:
        known_axes = ", ".join(plan.axes) or "none"
        raise ValueError(f"there is no axis {', '.join(unknown_axes)}: this run has {known_axes}")

    labels_of_points = {axis: data[axis].values[:: plan.chains] for axis in plan.axes}
    is_match = np.ones(len(plan.points), dtype=bool)
    for axis, wanted in labels.items():
        text = repr(float(wanted)) if is_real(wanted) else repr(wanted)
        is_match &= [label in (wanted, text) for label in labels_of_points[axis]]

    count = np.count_nonzero(is_match)
    if count != 1:
        lists = []
        for axis, labels_of_axis in labels_of_points.items():
            different = dict.fromkeys(map(str, labels_of_axis))
            lists.append(f"{axis}: {', '.join(different)}")
        raise ValueError(f"{labels} selects {count} points, and one is needed; there are {'; '.join(lists)}")
    return int(np.argmax(is_match))


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
    selected = data.isel(chain=chosen).assign_coords(chain=np.arange(len(chosen)))
    kept = {result.name for result in results(fewer)}
    selected = selected.drop_vars([result.name for result in results(plan) if result.name not in kept])
    selected = selected.sel(part=_part_names(fewer))
    thermostats = _thermostat_names(fewer)
    if thermostats:
        return selected.sel(thermostat=thermostats)
    return selected.drop_dims("thermostat", errors="ignore")


def _side_by_side(
    result: ResultVariable,
    groups: list[EnsembleGroup],
    length: dict[str, int],
    labels: dict[str, Any],
    dtype: np.dtype[Any],
) -> NDArray[Any]:
    """Return the values of a result for the chains of all groups, in an array with the result's dimensions.

    A recorded result of a single group may be the engine's own array, since it can be large.

    Parameters
    ----------
    result
        The result, one that the engine computes.
    groups
        The ensembles with their chains.
    length, labels
        The length and the labels of every dimension, with the records and samples of these ensembles only.
    dtype
        The type of the numbers.
    """
    assert result.of_group is not None
    record_or_sample_count = length[result.recorded_along] if result.recorded_along else 0
    of_groups = [result.of_group(group, record_or_sample_count) for group in groups]
    if len(groups) == 1 and result.recorded_along and None in of_groups[0]:
        return of_groups[0][None]

    shape = [length[dimension] for dimension in result.dimensions]
    absent = result.absent if dtype.kind == "f" else 0
    joined = np.full(shape, absent, dtype)
    for group, by_label in zip(groups, of_groups, strict=True):
        for label, of_chains in by_label.items():
            if label is None:
                joined[group.chains] = of_chains
                continue
            all_labels = labels[result.dimensions[0]].tolist()
            joined[all_labels.index(label), group.chains] = of_chains
    return joined


def _part_names(plan: Plan) -> list[str]:
    """Return the names of all parts, each once."""
    return list(dict.fromkeys(part.name for part in plan.parts()))


def _thermostat_names(plan: Plan) -> list[str]:
    """Return the names of the thermostats of all parts, each once."""
    return list(dict.fromkeys(name for part in plan.parts() for name in _thermostats_of(part)))


def _thermostats_of(part: Part) -> list[str]:
    """Return the names of the thermostats of a part: its own name, or `hidden/1`, ... with one per tensor."""
    count = len(part.thermostats)
    if count == 1:
        return [part.name]
    return [f"{part.name}/{number}" for number in range(1, count + 1)]


def _labels(plan: Plan, step: int, chains: range, first: int = 0) -> dict[str, Any]:
    """Return the labels of all dimensions, as coordinates of a data set.

    Parameters
    ----------
    plan, step
        The plan of a run, and the step at which it stands.
    chains
        The chains to label.
    first
        The step after which records and samples are labelled.
    """
    repeat = np.array(chains) % plan.chains
    labels: dict[str, Any] = {
        "split": np.array(SPLITS, dtype=object),
        "chain": np.array(chains),
        "repeat": ("chain", repeat),
        "draw": ("chain", repeat % plan.problem.draws),
        "part": np.array(_part_names(plan), dtype=object),
        "step": ("record", np.array(record_steps(plan, step, first), np.int64)),
    }
    thermostats = _thermostat_names(plan)
    if thermostats:
        labels["thermostat"] = np.array(thermostats, dtype=object)
    if plan.keep:
        labels["sample_step"] = "sample", np.array(sample_steps(plan, step, first), np.int64)
    if plan.histogram:
        low, high, bins = plan.histogram
        edges = np.linspace(low, high, bins + 1)
        labels["bin"] = (edges[1:] + edges[:-1]) / 2  # the centres
    point_of_chain = np.array(chains) // plan.chains
    for axis in plan.axes:
        labels[axis] = "chain", _labels_of_points(plan, axis)[point_of_chain]
    return labels


def _labels_of_points(plan: Plan, axis: str) -> NDArray[Any]:
    """Return the labels of all points on an axis: numbers if all are, or else texts."""
    labels = [point.labels[axis] for point in plan.points]
    if all(isinstance(label, float) for label in labels):
        return np.array(labels, dtype=np.float64)
    return np.array([_as_text(label) for label in labels], dtype=object)


def _as_text(label: object) -> str:
    """Return a label as it is if it is text, or else its `repr`."""
    return label if isinstance(label, str) else repr(label)
