"""Traces by label: those of a dict, or the chains of a sweep or a comparison by what they are called."""

from __future__ import annotations

from collections.abc import Mapping

import xarray as xr

from heatbath.plotting.style import number, symbol

Traces = xr.DataArray | Mapping[str, xr.DataArray]
UNNAMED = ("chain", "repeat", "draw")  # coordinates of chains that do not say what was done differently


def by_label(given: object, *dimensions: str) -> dict[str, xr.DataArray]:
    """Arrays (chain, *dimensions) by label; the label of a single one without a name is empty.

    A dimension that is written `a|b` may be either.
    """
    if not isinstance(given, Mapping):
        return _by_chains(_checked(given, dimensions))
    if not given or not all(isinstance(label, str) for label in given):
        raise TypeError(f"at least one array is needed, in a dict by name; got {given!r}")
    labelled: dict[str, xr.DataArray] = {}
    for label, trace in given.items():
        groups = _by_chains(_checked(trace, dimensions))
        for name, chains in groups.items():
            labelled[label if len(groups) == 1 else f"{label}, {name}"] = chains
    return labelled


def value_name(trace: xr.DataArray) -> str:
    """What a trace shows, such as `test accuracy`."""
    name = symbol(str(trace.name or ""))
    split = trace.coords.get("split")
    return f"{split.item()} {name}" if split is not None and split.ndim == 0 else name


def _checked(trace: object, dimensions: tuple[str, ...]) -> xr.DataArray:
    """`trace` with the dimensions (chain, *dimensions), one chain if it has no such dimension."""
    asked = f"a DataArray with the dimensions chain, {', '.join(dimensions)}".replace("|", " or ")
    if not isinstance(trace, xr.DataArray):
        raise TypeError(f"{asked} is needed, or a dict of them by name; got {type(trace).__name__}")
    chains = trace if "chain" in trace.dims else trace.expand_dims("chain")
    if "record" not in chains.dims and "step" in chains.coords and not chains["step"].ndim:  # one was chosen
        chains = chains.expand_dims("record").assign_coords(step=("record", [chains["step"].item()]))
    others = [name for choices in dimensions for name in choices.split("|") if name in chains.dims]
    if set(chains.dims) != {"chain", *others} or len(others) != len(dimensions) or 0 in chains.shape:
        raise ValueError(
            f"{asked} is needed, none of them empty; got {dict(trace.sizes)}: select or add them"
        )
    if "record" in others and "step" not in chains.coords:
        raise ValueError("the records need a coordinate `step`, the step of each")
    if others == ["record"]:
        chains = chains.dropna("record", how="all")  # at which no chain noted anything
        if not chains.size:
            raise ValueError("there is nothing to draw: all values are NaN")
    return chains.transpose("chain", *others)


def _by_chains(trace: xr.DataArray) -> dict[str, xr.DataArray]:
    """The chains that are called alike, together."""
    axes = [str(c) for c in trace.coords if trace[c].dims == ("chain",) and c not in UNNAMED]
    places: dict[str, list[int]] = {}
    for chain in range(trace.sizes["chain"]):
        names = [_named(axis, trace[axis].values[chain]) for axis in axes]
        places.setdefault(", ".join(names), []).append(chain)
    return {label: trace.isel(chain=chains) for label, chains in places.items()}


def _named(axis: str, value: object) -> str:
    return str(value) if axis == "method" else f"{symbol(axis)} = {number(value)}"
