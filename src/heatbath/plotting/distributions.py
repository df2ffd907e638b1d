"""Distributions of weights and biases, over time or of several methods."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from heatbath._internal.checks import real, whole
from heatbath.plotting.labels import Traces, by_label
from heatbath.plotting.style import SYMBOLS, axes_or_new, dress, key, logarithmic, look
from heatbath.runs.run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]
MOST = 14  # outlines in one picture that can still be told apart


def parameters(run: Run, of: str) -> xr.DataArray:
    """The parameters at the records, chain x record x parameter, of a run that was trained with weights=True.

    `of` is a tensor such as "layer1.weight" or "layer1.bias", a layer such as "layer1", or a part.
    """
    if not isinstance(run, Run):
        raise TypeError(f"parameters needs a Run, got {type(run).__name__}")
    begin, spans = 0, dict[str, slice]()
    for layer, sizes in run.plan.layers.items():
        weight, end = begin + sizes[0], begin + sum(sizes)
        spans |= {
            layer: slice(begin, end),
            f"{layer}.weight": slice(begin, weight),
            f"{layer}.bias": slice(weight, end),
        }
        begin = end
    parts = {name for part in run.plan.parts() for name in (part.name, part.key)}
    if of in spans and of not in parts:
        return run.weights().isel(parameter=spans[of])
    if of not in parts:
        accepted = ", ".join(repr(str(name)) for name in [*spans, *sorted(map(str, parts))])
        raise ValueError(f"there is no {of!r} in this run: accepted are {accepted}")
    return run.weights(of)


def distributions(
    weights: Traces, *, bins: int = 60, limits: tuple[float, float] | None = None, ax: Axes | None = None
) -> Axes:
    """How many parameters of a network lie in each bin: an outline for each label and each record.

    `weights` are the parameters, chain x record x parameter, as `parameters(run, "layer1.weight")` gives
    them, or histograms, chain x record x bin, as `run.data["histogram"].sel(part="hidden")`; or a dict of
    them. The labels are as in `curves`; choose records with `.isel(record=[0, -1])`. Counts are means over
    the chains that have not diverged, on a logarithmic axis. For parameters there are so many
    `bins` from one of the `limits` to the other (None: all of them); what lies outside is not counted.
    """
    bins = whole("bins", bins, low=1)
    arrays = by_label(weights, "record", "parameter|bin")
    binned = all("bin" in array.dims for array in arrays.values())
    outlines = _of_bins(arrays) if binned else _of_values(arrays, bins, _checked_limits(limits))
    if len(outlines) > MOST:
        raise ValueError(
            f"{len(outlines)} outlines cannot be told apart, {MOST} can: choose fewer records, such as "
            ".isel(record=[0, -1])"
        )
    counted = np.concatenate([counts for _, counts in outlines.values()])
    if not counted.any():
        raise ValueError("there is nothing to draw: no parameter lies in the bins")
    ax = axes_or_new(ax)
    for place, (label, (edges, counts)) in enumerate(outlines.items()):
        ax.stairs(counts, edges, label=label or None, linewidth=1.2, baseline=0.0, **look(place))
    logarithmic(ax, bottom=0.7 * counted[counted > 0].min())
    dress(ax, SYMBOLS["theta"], "parameters per bin")
    key(ax)
    return ax


Outlines = dict[str, tuple[Floats, Floats]]  # by label the edges of the bins, and the counts


def _checked_limits(limits: object) -> tuple[float, float] | None:
    if limits is None:
        return None
    if not isinstance(limits, (list, tuple)) or len(limits) != 2:
        raise TypeError(f"limits must be two numbers such as (-3, 3), or None; got {limits!r}")
    low, high = (real("limits", end) for end in limits)
    if low >= high:
        raise ValueError(f"limits must go from low to high, got {limits!r}")
    return low, high


def _of_values(arrays: dict[str, xr.DataArray], bins: int, limits: tuple[float, float] | None) -> Outlines:
    """Outlines of parameters, in bins that all of them share."""
    if any("bin" in array.dims for array in arrays.values()):
        raise ValueError("weights must all be parameters or all histograms, got some of both")
    finite = [array.values[np.isfinite(array.values)] for array in arrays.values()]
    if not all(map(len, finite)):
        raise ValueError("there is nothing to draw of some label: no parameter is finite")
    ends = limits or (min(v.min() for v in finite), max(v.max() for v in finite))
    edges = np.histogram_bin_edges(np.array(ends, float), bins, ends)
    outlines = {}
    for label, array in arrays.items():
        for values, name in zip(np.moveaxis(array.values, 1, 0), _labels(label, array), strict=True):
            alive = np.isfinite(values).all(axis=1)
            counts = np.histogram(values[alive], edges)[0] / max(1, np.count_nonzero(alive))
            outlines[name] = edges, counts
    return outlines


def _of_bins(arrays: dict[str, xr.DataArray]) -> Outlines:
    """Outlines of histograms, each in its own bins; chains without a count have diverged, or no such part."""
    outlines = {}
    for label, array in arrays.items():
        middle = array["bin"].values
        half = (middle[1] - middle[0]) / 2 if len(middle) > 1 else 0.5
        edges = np.append(middle - half, middle[-1] + half)
        for values, name in zip(np.moveaxis(array.values, 1, 0), _labels(label, array), strict=True):
            alive = values.any(axis=1)
            if not alive.any():
                raise ValueError(f"{name or 'this run'} has no parameters in these bins: leave it out")
            outlines[name] = edges, values[alive].mean(axis=0)
    return outlines


def _labels(label: str, array: xr.DataArray) -> list[str]:
    """The labels of the records, with the step where there are several."""
    steps = array["step"].values
    if len(steps) == 1:
        return [label]
    return [f"{label}{', ' if label else ''}step {step:,}" for step in steps]
