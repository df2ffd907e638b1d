"""The ledger of a simulation: the state of all chains and what was noted, as one labelled data set.

The chains of a plan may be in several ensembles (methods differ); here they stand side by side again, with
NaN where a chain has no such part.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from heatbath.checks import is_real
from heatbath.engine.ensemble import Ensemble
from heatbath.methods import Adam
from heatbath.partition import Part
from heatbath.runs.plan import Plan

Arrays: TypeAlias = dict[str, NDArray[Any]]
STATE = ("theta", "p", "rung", "died")
DIMENSIONS = {
    "theta": ("chain", "parameter"),
    "p": ("chain", "parameter"),
    "second": ("chain", "parameter"),
    "rung": ("chain",),
    "died": ("chain",),
    "xi_now": ("thermostat", "chain"),
    "average": ("chain", "point", "output"),
    "deviations": ("chain", "point", "output"),
    "step": ("record",),
    "loss": ("split", "chain", "record"),
    "accuracy": ("split", "chain", "record"),
    "temperature": ("part", "chain", "record"),
    "xi": ("thermostat", "chain", "record"),
    "histogram": ("part", "chain", "record", "bin"),
    "weights": ("chain", "record", "parameter"),
    "samples": ("chain", "sample", "parameter"),
    "sample_step": ("sample",),
}


@dataclass(frozen=True)
class Group:
    """The chains of a plan that are in one ensemble."""

    ensemble: Ensemble
    chains: NDArray[np.int64]

    def by_part(self, values: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        """Temperatures (..., units) as those of the parts: means over parameters."""
        sizes = [unit.size for unit in self.ensemble.program.units]
        return {  # one product after another: the rounding of a dot product depends on the number of records
            name: np.asarray(sum(values[..., u] * sizes[u] for u in own) / sum(sizes[u] for u in own))
            for name, own in self.units().items()
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


def gather(plan: Plan, groups: list[Group], first: int, before: xr.Dataset | None) -> xr.Dataset:
    """Everything up to now; `before` is what there was at step `first`."""
    step = groups[0].ensemble.step
    parts = _all(part.name for group in groups for part in group.ensemble.program.parts)
    thermostats = _all(name for group in groups for name in group.thermostats())
    records = [n for n in plan.records_after(first) if n <= step] if step > first else []
    samples = plan.samples_by(step) - plan.samples_by(first) if plan.keep else 0
    data = _state(plan, groups, thermostats)
    new = _noted(plan, groups, parts, thermostats, len(records), samples)
    new["step"] = np.array(records, np.int64)
    for name, values in new.items():
        along = [dimension in ("record", "sample") for dimension in DIMENSIONS[name]].index(True)
        data[name] = values if before is None else np.concatenate([before[name].values, values], axis=along)
    if plan.keep:
        data["sample_step"] = plan.burn_in + plan.thin * np.arange(1, plan.samples_by(step) + 1)
    labels = _labels(plan, parts, thermostats)
    if before is not None:  # the names of the points stay when coefficients change
        labels |= {axis: ("chain", before[axis].values) for axis in plan.axes}
    made = xr.Dataset({name: (DIMENSIONS[name], values) for name, values in data.items()}, labels)
    return made.set_coords([name for name in ("step", "sample_step") if name in data])


def check(plan: Plan, step: int, data: xr.Dataset) -> None:
    """Refuse data that are not those of a plan at this step, in names, dimensions, sizes and kinds."""
    parts = plan.parts()
    optional = {
        "second": any(isinstance(part.method, Adam) for part in parts),
        "xi_now": any(part.thermostats for part in parts),
        "xi": any(part.thermostats for part in parts),
        "average": plan.average is not None,
        "deviations": plan.average is not None,
        "histogram": plan.histogram is not None,
        "weights": plan.weights,
        "samples": plan.keep,
        "sample_step": plan.keep,
    }
    sizes = {
        "chain": plan.chains,
        "parameter": plan.parameters,
        "record": len(plan.records) - len(plan.records_after(step)),
        "sample": plan.samples_by(step),
        "split": 2,
        "point": 0 if plan.average is None else len(plan.average),
        "output": plan.problem.outputs,
        "part": len({part.name for part in parts}),
        "thermostat": len({name for part in parts for name in _xi_names(part)}),
        "bin": plan.histogram[2] if plan.histogram else 0,
    }
    whole = ("rung", "died", "step", "sample_step", "histogram")
    of_theta = ("theta", "p", "second", "weights", "samples")
    for name, dimensions in DIMENSIONS.items():
        if not optional.get(name, True):
            continue
        kind = "int64" if name in whole else plan.dtype if name in of_theta else "float64"
        shape = tuple(sizes[dimension] for dimension in dimensions)
        found = data[name]
        if found.dims != dimensions or found.shape != shape or found.dtype != kind:
            raise ValueError(
                f"{name} must be {kind} with dimensions {dict(zip(dimensions, shape, strict=True))}, "
                f"it is {found.dtype} with {dict(found.sizes)}"
            )
    if unlabelled := [axis for axis in plan.axes if data[axis].dims != ("chain",)]:
        raise ValueError(f"the chains are not labelled by {', '.join(unlabelled)}")


def restore(group: Group, step: int, before: xr.Dataset) -> None:
    """Put the chains of a group where they were."""
    ensemble, own = group.ensemble, group.chains
    ensemble.step = step
    for name in (*STATE, *(["second"] if ensemble.chains.second.size else [])):
        getattr(ensemble.chains, name)[...] = before[name].values[own]
    if not np.isin(ensemble.chains.rung, np.arange(len(ensemble.ladder.tau))).all():
        raise ValueError("a chain is on a rung that the ladder does not have")
    for name, unit in group.thermostats().items():
        ensemble.chains.xi[:, unit] = before["xi_now"].sel(thermostat=name).values[own]
    for i, name in enumerate(("average", "deviations")):
        if name in before:
            ensemble.notes.average[:, i] = before[name].values[own]


def find_point(plan: Plan, data: xr.Dataset, labels: dict[str, object]) -> int:
    """The one point of a plan whose chains are called so."""
    axes = plan.axes
    if unknown := [name for name in labels if name not in axes]:
        raise ValueError(f"there is no axis {', '.join(unknown)}: this run has {', '.join(axes) or 'none'}")
    known = [{axis: data[axis].values[i * plan.repeats] for axis in axes} for i in range(len(plan.points))]
    texts = {axis: repr(float(v)) if is_real(v) else repr(v) for axis, v in labels.items()}  # as in `_labels`
    found = [
        i
        for i, own in enumerate(known)
        if all(own[axis] == labels[axis] or own[axis] == text for axis, text in texts.items())
    ]
    if len(found) != 1:
        values = [f"{axis}: {', '.join(dict.fromkeys(str(own[axis]) for own in known))}" for axis in axes]
        raise ValueError(
            f"{labels} names {len(found)} points, and one is needed; there are {'; '.join(values)}"
        )
    return found[0]


def data_at(plan: Plan, data: xr.Dataset, point: int) -> xr.Dataset:
    """The data of one point of a plan, as if it had been alone."""
    own = data.isel(chain=slice(point * plan.repeats, (point + 1) * plan.repeats))
    own = own.assign_coords(chain=np.arange(plan.repeats)).drop_vars(plan.axes)
    parts = plan.at_point(point).parts()
    if not any(isinstance(part.method, Adam) for part in parts):
        own = own.drop_vars("second", errors="ignore")
    own = own.sel(part=[part.name for part in parts])
    thermostats = [name for part in parts for name in _xi_names(part)]
    return own.sel(thermostat=thermostats) if thermostats else own.drop_dims("thermostat", errors="ignore")


def _xi_names(part: Part) -> list[str]:
    """What the thermostats of a part are called: as it, or `hidden/1`, ... where each tensor has one."""
    count = len(part.thermostats)
    return [f"{part.name}/{i}" if count > 1 else part.name for i in range(1, count + 1)]


def _labels(plan: Plan, parts: list[str], thermostats: list[str]) -> dict[str, Any]:
    """What the chains and the other dimensions are called."""
    repeat = np.arange(plan.chains) % plan.repeats
    labels: dict[str, Any] = {
        "split": np.array(["train", "test"], dtype=object),
        "chain": np.arange(plan.chains),
        "repeat": ("chain", repeat),
        "draw": ("chain", repeat % plan.problem.draws),
        "part": np.array(parts, dtype=object),
    }
    if thermostats:
        labels["thermostat"] = np.array(thermostats, dtype=object)
    if plan.histogram:
        edges = np.linspace(plan.histogram[0], plan.histogram[1], plan.histogram[2] + 1)
        labels["bin"] = (edges[1:] + edges[:-1]) / 2
    for axis in plan.axes:
        values = [point[axis] for point, _ in plan.points]
        numbers = all(isinstance(value, float) for value in values)
        told = values if numbers else [v if isinstance(v, str) else repr(v) for v in values]
        kind = np.float64 if numbers else object
        labels[axis] = "chain", np.repeat(np.array(told, dtype=kind), plan.repeats)
    return labels


def _state(plan: Plan, groups: list[Group], thermostats: list[str]) -> Arrays:
    """Where every chain is now."""
    theta = (plan.chains, plan.parameters), np.dtype(plan.dtype)
    data: Arrays = {name: np.zeros(*theta) for name in ("theta", "p", "second")}
    data |= {name: np.zeros(plan.chains, np.int64) for name in ("rung", "died")}
    friction = np.full((len(thermostats), plan.chains), np.nan)
    outputs = plan.chains, 0 if plan.average is None else len(plan.average), plan.problem.outputs
    averages = {name: np.empty(outputs) for name in ("average", "deviations")}
    for group in groups:
        state, own = group.ensemble.chains, group.chains
        for name in (*STATE, *(["second"] if state.second.size else [])):
            data[name][own] = getattr(state, name)
        for name, unit in group.thermostats().items():
            friction[thermostats.index(name), own] = state.xi[:, unit]
        for i, values in enumerate(averages.values()):
            values[own] = group.ensemble.notes.average[:, i]
    if not any(group.ensemble.chains.second.size for group in groups):
        del data["second"]
    data |= {} if plan.average is None else averages
    return data | ({"xi_now": friction} if thermostats else {})


def _noted(
    plan: Plan, groups: list[Group], parts: list[str], thermostats: list[str], records: int, samples: int
) -> Arrays:
    """What this call has noted so far: so many records and samples."""
    of_chains = (plan.chains, records)
    bins = plan.histogram[2] if plan.histogram else 0
    loss, accuracy = np.full((2, *of_chains), np.nan), np.full((2, *of_chains), np.nan)
    temperature = np.full((len(parts), *of_chains), np.nan)
    friction = np.full((len(thermostats), *of_chains), np.nan)
    histogram = np.zeros((len(parts), *of_chains, bins), np.int64)
    for group in groups:
        notes, own = group.ensemble.notes, group.chains
        loss[:, own] = np.moveaxis(notes.loss[:, :records], 2, 0)
        accuracy[:, own] = np.moveaxis(notes.accuracy[:, :records], 2, 0)
        for name, values in group.by_part(notes.temperature[:, :records]).items():
            temperature[parts.index(name), own] = values
        for name, unit in group.thermostats().items():
            friction[thermostats.index(name), own] = notes.xi[:, :records, unit]
        for name, units in group.units().items():
            histogram[parts.index(name), own] = notes.histogram[:, :records, units].sum(axis=2)
    traces: Arrays = {"loss": loss, "accuracy": accuracy, "temperature": temperature}
    if thermostats:
        traces["xi"] = friction
    if bins:
        traces["histogram"] = histogram
    if plan.weights:
        traces["weights"] = _side_by_side(groups, [g.ensemble.notes.theta[:, :records] for g in groups])
    if plan.keep:
        traces["samples"] = _side_by_side(groups, [g.ensemble.notes.samples[:, :samples] for g in groups])
    return traces


def _side_by_side(groups: list[Group], values: list[NDArray[Any]]) -> NDArray[Any]:
    """The values of all chains; of a single group they are not copied, since they may be large."""
    if len(groups) == 1:
        return values[0]
    joined = np.empty((sum(len(own) for own in values), *values[0].shape[1:]), values[0].dtype)
    for group, own in zip(groups, values, strict=True):
        joined[group.chains] = own
    return joined


def _all(names: Iterable[str]) -> list[str]:
    """Each name once, in the order of first appearance."""
    return list(dict.fromkeys(names))
