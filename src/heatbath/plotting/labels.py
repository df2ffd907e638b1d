"""Sort traces by label: by the keys of a dict, or by the names of a run's methods or points."""

from __future__ import annotations

from collections.abc import Mapping

import xarray as xr

from heatbath.plotting import style

Traces = xr.DataArray | Mapping[str, xr.DataArray]
UNLABELLED = ("chain", "repeat", "draw")  # coordinates of chains that don't name a setting


def by_label(traces: object, *dimensions: str) -> dict[str, xr.DataArray]:
    """Return arrays (chain, *dimensions) by label.

    Chains of a sweep or comparison are grouped by their settings. The label of a single group without a name
    is empty.

    Parameters
    ----------
    traces : DataArray or dict of DataArrays
        The arrays; a missing dimension `chain` is added.
    *dimensions : str
        Dimensions beside `chain`; "a|b" accepts either.
    """
    if not isinstance(traces, Mapping):
        return _grouped_chains(_checked_trace(traces, dimensions))
    if not traces or not all(isinstance(label, str) for label in traces):
        raise TypeError(f"at least one array is needed, in a dict by name; got {traces!r}")

    labelled: dict[str, xr.DataArray] = {}
    for label, trace in traces.items():
        groups = _grouped_chains(_checked_trace(trace, dimensions))
        for settings, chains in groups.items():
            group_label = label if len(groups) == 1 else f"{label}, {settings}"
            labelled[group_label] = chains
    return labelled


def value_name(trace: xr.DataArray) -> str:
    """Return the name of a trace's values, such as `test accuracy`."""
    name = style.quantity_label(str(trace.name or ""))
    split = trace.coords.get("split")
    if split is None or split.ndim:
        return name
    return f"{split.item()} {name}"


def _checked_trace(trace: object, dimensions: tuple[str, ...]) -> xr.DataArray:
    """Return a trace with the dimensions (chain, *dimensions), in this order.

    A missing dimension `chain` is added, and `record` too if a single record was selected. Records at which
    no chain has a value are dropped if `record` is the only other dimension.

    Parameters
    ----------
    trace : DataArray
        What the user passed; records need a coordinate `step`.
    dimensions : tuple of str
        Dimensions beside `chain`; "a|b" accepts either.
    """
    needed = f"a DataArray with the dimensions chain, {', '.join(dimensions)}".replace("|", " or ")
    if not isinstance(trace, xr.DataArray):
        raise TypeError(f"{needed} is needed, or a dict of them by name; got {type(trace).__name__}")

    chains = _with_chain_and_record(trace)
    accepted = "|".join(dimensions).split("|")
    present = [name for name in accepted if name in chains.dims]
    has_other_dimensions = set(chains.dims) != {"chain", *present} or len(present) != len(dimensions)
    if has_other_dimensions or 0 in chains.shape:
        raise ValueError(
            f"{needed} is needed, none of them empty; got {dict(trace.sizes)}: select or add dimensions"
        )
    if "record" in present and "step" not in chains.coords:
        raise ValueError("records need a coordinate `step` with their steps")

    if present == ["record"]:
        chains = chains.dropna("record", how="all")
        if not chains.size:
            raise ValueError("there is nothing to draw: all values are NaN")
    return chains.transpose("chain", *present)


def _with_chain_and_record(trace: xr.DataArray) -> xr.DataArray:
    """Return a trace with a dimension `chain`, and with `record` if it has the step of a single record."""
    chains = trace if "chain" in trace.dims else trace.expand_dims("chain")
    has_single_step = "step" in chains.coords and chains["step"].ndim == 0
    if "record" in chains.dims or not has_single_step:
        return chains
    step = chains["step"].item()
    return chains.expand_dims("record").assign_coords(step=("record", [step]))


def _grouped_chains(trace: xr.DataArray) -> dict[str, xr.DataArray]:
    """Return the chains with equal settings together, by label."""
    chain_axes = (str(name) for name in trace.coords if trace[name].dims == ("chain",))
    setting_axes = [axis for axis in chain_axes if axis not in UNLABELLED]
    groups: dict[str, list[int]] = {}
    for chain in range(trace.sizes["chain"]):
        settings = [_setting_label(axis, trace[axis].values[chain]) for axis in setting_axes]
        groups.setdefault(", ".join(settings), []).append(chain)
    return {label: trace.isel(chain=chains) for label, chains in groups.items()}


def _setting_label(axis: str, value: object) -> str:
    """Return "symbol = value" for a coefficient of a sweep, or the name of the method of a comparison."""
    if axis == "method":
        return str(value)
    return f"{style.quantity_label(axis)} = {style.format_number(value)}"
