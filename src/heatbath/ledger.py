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

from heatbath.engine.ensemble import Ensemble
from heatbath.methods import Adam
from heatbath.partition import Part
from heatbath.plans import Plan

Labelled: TypeAlias = dict[str, tuple[tuple[str, ...], NDArray[Any]]]
STATE = ("theta", "p", "rung", "died")


@dataclass(frozen=True)
class Group:
    """The chains of a plan that are in one ensemble."""

    ensemble: Ensemble
    chains: NDArray[np.int64]

    def by_part(self, values: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        """Temperatures (..., units) as those of the parts: means over parameters."""
        sizes = np.array([unit.size for unit in self.ensemble.program.units])
        units = self.units()
        return {name: values[..., own] @ sizes[own] / sizes[own].sum() for name, own in units.items()}

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
    records = [n for n in plan.records_after(first) if n <= step]
    samples = plan.samples_by(step) - plan.samples_by(first) if plan.keep else 0
    data = _state(plan, groups, thermostats)
    new = _noted(plan, groups, parts, thermostats, len(records), samples)
    for name, (dims, values) in (new | {"step": (("record",), np.array(records, np.int64))}).items():
        if before is not None:
            along = dims.index("record" if "record" in dims else "sample")
            values = np.concatenate([before[name].values, values], axis=along)
        data[name] = dims, values
    labels = _labels(plan, parts, thermostats) | {"step": data.pop("step")}
    if plan.keep:
        taken = np.arange(1, plan.samples_by(step) + 1)
        labels["sample_step"] = ("sample",), plan.burn_in + plan.thin * taken
    if before is not None:  # the names of the points stay when coefficients change
        labels |= {axis: ("chain", before[axis].values) for axis in plan.points[0][0]}
    return xr.Dataset(data, labels)


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
    axes = list(plan.points[0][0])
    if unknown := [name for name in labels if name not in axes]:
        raise ValueError(f"there is no axis {', '.join(unknown)}: this run has {', '.join(axes) or 'none'}")
    known = [{axis: data[axis].values[i * plan.repeats] for axis in axes} for i in range(len(plan.points))]
    found = [
        i
        for i, own in enumerate(known)
        if all(own[axis] in (value, repr(value)) for axis, value in labels.items())
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
    own = own.assign_coords(chain=np.arange(plan.repeats)).drop_vars(list(plan.points[0][0]))
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
    for axis in plan.points[0][0]:
        values = [point[axis] for point, _ in plan.points]
        numbers = all(isinstance(value, float) for value in values)
        told = values if numbers else [v if isinstance(v, str) else repr(v) for v in values]
        kind = np.float64 if numbers else object
        labels[axis] = "chain", np.repeat(np.array(told, dtype=kind), plan.repeats)
    return labels


def _state(plan: Plan, groups: list[Group], thermostats: list[str]) -> Labelled:
    """Where every chain is now."""
    theta = (plan.chains, plan.parameters), np.dtype(plan.dtype)
    data: Labelled = {name: (("chain", "parameter"), np.zeros(*theta)) for name in ("theta", "p", "second")}
    for name in ("rung", "died"):
        data[name] = ("chain",), np.zeros(plan.chains, np.int64)
    friction = np.full((len(thermostats), plan.chains), np.nan)
    outputs = plan.chains, 0 if plan.average is None else len(plan.average), plan.problem.outputs
    averages = {name: np.empty(outputs) for name in ("average", "deviations")}
    for group in groups:
        state, own = group.ensemble.chains, group.chains
        for name in (*STATE, *(["second"] if state.second.size else [])):
            data[name][1][own] = getattr(state, name)
        for name, unit in group.thermostats().items():
            friction[thermostats.index(name), own] = state.xi[:, unit]
        for i, values in enumerate(averages.values()):
            values[own] = group.ensemble.notes.average[:, i]
    if not any(group.ensemble.chains.second.size for group in groups):
        del data["second"]
    if plan.average is not None:
        data |= {name: (("chain", "point", "output"), values) for name, values in averages.items()}
    return data | ({"xi_now": (("thermostat", "chain"), friction)} if thermostats else {})


def _noted(
    plan: Plan, groups: list[Group], parts: list[str], thermostats: list[str], records: int, samples: int
) -> Labelled:
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
    traces: Labelled = {
        "loss": (("split", "chain", "record"), loss),
        "accuracy": (("split", "chain", "record"), accuracy),
        "temperature": (("part", "chain", "record"), temperature),
    }
    if thermostats:
        traces["xi"] = ("thermostat", "chain", "record"), friction
    if bins:
        traces["histogram"] = ("part", "chain", "record", "bin"), histogram
    if plan.weights:
        own_weights = [group.ensemble.notes.theta[:, :records] for group in groups]
        traces["weights"] = ("chain", "record", "parameter"), _side_by_side(groups, own_weights)
    if plan.keep:
        kept = [group.ensemble.notes.samples[:, :samples] for group in groups]
        traces["samples"] = ("chain", "sample", "parameter"), _side_by_side(groups, kept)
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
