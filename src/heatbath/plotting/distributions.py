"""Draw distributions of weights and biases, over time or of several methods."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import xarray as xr

from heatbath._internal.checks import real, whole
from heatbath.datasets.problem import Floats
from heatbath.diagnostics.weights import tensor_spans
from heatbath.plotting import style
from heatbath.plotting.labels import Traces, by_label
from heatbath.plotting.style import Axes
from heatbath.runs.run import Run

MAX_OUTLINES = 14  # in one picture: more can't be told apart


class Outline(NamedTuple):
    """Outline of a histogram: the edges of its bins and the counts between them."""

    edges: Floats
    counts: Floats


def parameters(run: Run, of: str) -> xr.DataArray:
    """Return parameters of a run at its records; the run must have been trained with `weights=True`.

    Parameters
    ----------
    run : Run
        The run.
    of : str
        A tensor such as "layer1.weight" or "layer1.bias", a layer such as "layer1", or a part such as
        "hidden".

    Returns
    -------
    DataArray (chain, record, parameter)

    Raises
    ------
    ValueError
        If the run has no such tensor, layer or part; the message lists all of them.
    """
    if not isinstance(run, Run):
        raise TypeError(f"parameters needs a Run, got {type(run).__name__}")
    parts = run.plan.parts()
    part_names = {part.name for part in parts} | {part.key for part in parts}
    if of in part_names:
        return run.weights(of)
    spans = tensor_spans(run.plan.layers)
    if of in spans:
        return run.weights().isel(parameter=spans[of])

    accepted_names = [*spans, *sorted(map(str, part_names))]
    accepted = ", ".join(repr(str(name)) for name in accepted_names)
    raise ValueError(f"there is no {of!r} in this run: accepted are {accepted}")


def distributions(
    weights: Traces, *, bins: int = 60, limits: tuple[float, float] | None = None, ax: Axes | None = None
) -> Axes:
    """Draw histograms of parameters as outlines, one for each label and each record.

    Counts are means over the chains that have not diverged, on a logarithmic axis.

    Parameters
    ----------
    weights : DataArray or dict of DataArrays
        Parameters (chain, record, parameter), as `parameters(run, "layer1.weight")` returns them, or
        histograms (chain, record, bin), as `run.data["histogram"].sel(part="hidden")`. Labels are as in
        `curves`; choose records with `.isel(record=[0, -1])`.
    bins : int, optional
        Number of bins for parameters (default 60).
    limits : (float, float), optional
        Ends of the bins for parameters; what lies outside is not counted. By default all parameters lie
        inside.
    ax : Axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If there are more than 14 outlines, or nothing to draw.
    """
    bins = whole("bins", bins, low=1)
    arrays = by_label(weights, "record", "parameter|bin")
    are_histograms = all("bin" in array.dims for array in arrays.values())
    if are_histograms:
        outlines = _histogram_outlines(arrays)
    else:
        outlines = _parameter_outlines(arrays, bins, _checked_limits(limits))

    if len(outlines) > MAX_OUTLINES:
        raise ValueError(
            f"{len(outlines)} outlines cannot be told apart, {MAX_OUTLINES} can: choose fewer records, "
            "such as .isel(record=[0, -1])"
        )
    all_counts = np.concatenate([outline.counts for outline in outlines.values()])
    if not all_counts.any():
        raise ValueError("there is nothing to draw: no parameter lies in the bins")
    lowest_count = all_counts[all_counts > 0].min()

    ax = style.axes_or_new(ax)
    for index, (label, (edges, counts)) in enumerate(outlines.items()):
        ax.stairs(counts, edges, label=label or None, linewidth=1.2, baseline=0.0, **style.line_style(index))
    style.set_log_scale(ax, bottom=0.7 * lowest_count)
    style.label_axes(ax, style.SYMBOLS["theta"], "parameters per bin")
    style.add_legend(ax)
    return ax


def _checked_limits(limits: object) -> tuple[float, float] | None:
    """Return the ends (low, high) of the bins after checking them, or None if there are none."""
    if limits is None:
        return None
    if not isinstance(limits, (list, tuple)) or len(limits) != 2:
        raise TypeError(f"limits must be two numbers such as (-3, 3), or None; got {limits!r}")
    low, high = (real("limits", end) for end in limits)
    if low >= high:
        raise ValueError(f"limits must go from low to high, got {limits!r}")
    return low, high


def _parameter_outlines(
    arrays: dict[str, xr.DataArray], bins: int, limits: tuple[float, float] | None
) -> dict[str, Outline]:
    """Return the outlines of histograms of parameters by label and record, all in the same bins.

    Parameters
    ----------
    arrays : dict from label to DataArray
        Parameters (chain, record, parameter). Chains with a parameter that isn't finite don't count.
    bins : int
        Number of bins.
    limits : (float, float) or None
        Ends of the first and the last bin; None takes the smallest and the largest parameter.
    """
    if any("bin" in array.dims for array in arrays.values()):
        raise ValueError("weights must all be parameters or all histograms, got some of both")
    edges = _common_edges(arrays, bins, limits)

    outlines = {}
    for label, array in arrays.items():
        by_record = np.moveaxis(array.values, 1, 0)
        for parameters_by_chain, name in zip(by_record, _record_labels(label, array), strict=True):
            is_alive = np.isfinite(parameters_by_chain).all(axis=1)
            alive_count = np.count_nonzero(is_alive)
            counts, _ = np.histogram(parameters_by_chain[is_alive], edges)
            outlines[name] = Outline(edges, counts / max(1, alive_count))
    return outlines


def _common_edges(arrays: dict[str, xr.DataArray], bins: int, limits: tuple[float, float] | None) -> Floats:
    """Return the edges of bins of equal width for parameters of all labels, between limits if given.

    Parameters
    ----------
    arrays, bins, limits
        As in `_parameter_outlines`.
    """
    finite_parameters = [array.values[np.isfinite(array.values)] for array in arrays.values()]
    if not all(map(len, finite_parameters)):
        raise ValueError("a label has no finite parameter to draw: leave it out")
    if limits is None:
        lowest = min(finite.min() for finite in finite_parameters)
        highest = max(finite.max() for finite in finite_parameters)
        limits = (lowest, highest)
    return np.histogram_bin_edges(np.array(limits, float), bins, limits)


def _histogram_outlines(arrays: dict[str, xr.DataArray]) -> dict[str, Outline]:
    """Return the outlines of recorded histograms by label and record, as means over chains.

    `arrays` are counts (chain, record, bin) by label, each with the centres of its bins as coordinate `bin`.
    A chain without any count has diverged, or has no such part, and is left out.
    """
    outlines = {}
    for label, array in arrays.items():
        edges = edges_around(array["bin"].values)
        by_record = np.moveaxis(array.values, 1, 0)
        for counts, name in zip(by_record, _record_labels(label, array), strict=True):
            is_alive = counts.any(axis=1)
            if not is_alive.any():
                raise ValueError(f"{name or 'this run'} has no parameters in these bins: leave it out")
            outlines[name] = Outline(edges, counts[is_alive].mean(axis=0))
    return outlines


def edges_around(centres: Floats) -> Floats:
    """Return the edges of bins of equal width around their centres; a single bin has width 1."""
    half_width = (centres[1] - centres[0]) / 2 if len(centres) > 1 else 0.5
    return np.append(centres - half_width, centres[-1] + half_width)


def _record_labels(label: str, array: xr.DataArray) -> list[str]:
    """Return the labels of all records, with their steps if there are several records."""
    steps = array["step"].values
    if len(steps) == 1:
        return [label]
    prefix = f"{label}, " if label else ""
    return [f"{prefix}step {step:,}" for step in steps]
