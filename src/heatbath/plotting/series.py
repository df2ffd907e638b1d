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
    found: dict[str, xr.DataArray] = {}
    for label, trace in given.items():
        own = _by_chains(_checked(trace, dimensions))
        found |= {label if len(own) == 1 else f"{label}, {name}": values for name, values in own.items()}
    return found


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
    own = trace if "chain" in trace.dims else trace.expand_dims("chain")
    if "record" not in own.dims and "step" in own.coords and own["step"].ndim == 0:  # one record was chosen
        own = own.expand_dims("record").assign_coords(step=("record", [own["step"].item()]))
    found = [name for choices in dimensions for name in choices.split("|") if name in own.dims]
    if set(own.dims) != {"chain", *found} or len(found) != len(dimensions) or 0 in own.shape:
        raise ValueError(
            f"{asked} is needed, none of them empty; got {dict(trace.sizes)}: select or add them"
        )
    if "record" in found and "step" not in own.coords:
        raise ValueError("the records need a coordinate `step`, the step of each")
    if found == ["record"]:
        own = own.dropna("record", how="all")  # at which no chain noted anything
        if not own.size:
            raise ValueError("there is nothing to draw: all values are NaN")
    return own.transpose("chain", *found)


def _by_chains(trace: xr.DataArray) -> dict[str, xr.DataArray]:
    """The chains that are called alike, together."""
    axes = [str(c) for c in trace.coords if trace[c].dims == ("chain",) and c not in UNNAMED]
    places: dict[str, list[int]] = {}
    for chain in range(trace.sizes["chain"]):
        told = [_told(axis, trace[axis].values[chain]) for axis in axes]
        places.setdefault(", ".join(told), []).append(chain)
    return {label: trace.isel(chain=own) for label, own in places.items()}


def _told(axis: str, value: object) -> str:
    return str(value) if axis == "method" else f"{symbol(axis)} = {number(value)}"
