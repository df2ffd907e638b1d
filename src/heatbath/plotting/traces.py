"""Traces over the steps: curves with bands over runs, and kinetic temperatures."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from heatbath._internal.checks import choice
from heatbath.diagnostics.statistics import SHARES, UNBOUNDED, student
from heatbath.methods.partition import Part
from heatbath.methods.schedules import SimulatedTempering, at
from heatbath.plotting.labels import Traces, by_label, value_name
from heatbath.plotting.style import axes_or_new, dress, key, logarithmic, look, number, percent_on, steps_on
from heatbath.runs.run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Band = Literal["interval", "range", "std"]
Floats = NDArray[np.float64]


def curves(
    traces: Traces | Run, *, band: Band = "interval", log: bool = False, ax: Axes | None = None
) -> Axes:
    """Traces over the steps, such as `run.accuracy("test")`: a line for each label, a band over its runs.

    The labels are those of a dict, or the methods of a comparison, or the points of a sweep. A `Run` stands
    for its test accuracy.

    - `band`: "interval" is the mean with its 95 % confidence interval (Student's), "std" the mean and the
      standard deviation, "range" the median from the worst run to the best.
    - `log`: a logarithmic axis.

    Records at which nothing was noted are left out. Runs that diverged count up to there, and the label says
    how many did.
    """
    choice("band", band, ("interval", "range", "std"))
    labelled = by_label(traces.accuracy() if isinstance(traces, Run) else traces, "record")
    names = {value_name(trace) for trace in labelled.values()}
    ax = axes_or_new(ax)
    for place, (label, trace) in enumerate(labelled.items()):
        _draw(ax, place, label, trace, band)
    dress(ax, "steps", names.pop() if len(names) == 1 else "")
    steps_on(ax.xaxis)
    if log:
        logarithmic(ax)
    elif all(trace.name == "accuracy" for trace in labelled.values()):
        percent_on(ax.yaxis)
        low, high = ax.get_ylim()
        ax.set_ylim(max(low, 0.0), min(high, 1.005))  # no margin beyond, but for the width of a line
    key(ax)
    return ax


def temperatures(run: Run, *, ax: Axes | None = None) -> Axes:
    """The kinetic temperature of every part that has a τ: mean over chains, 95 % interval; τ is dashed.

    A scheduled τ is dashed as it changes, a ladder of simulated tempering by all its rungs. τ = 0 has no
    place on a logarithmic axis, and stands in the label only.
    """
    if not isinstance(run, Run):
        raise TypeError(f"temperatures needs a Run, got {type(run).__name__}")
    if len(run.plan.points) > 1:
        raise ValueError(f"these chains have different temperatures: select one of {run.plan.points[0][0]}")
    parts = [part for part in run.plan.parts() if part.method.measures_temperature]
    if not parts:
        raise ValueError("no part of this run has a temperature: its methods have no tau")
    ax = axes_or_new(ax)
    for place, part in enumerate(parts):
        (trace,) = by_label(run.data["temperature"].sel(part=part.name), "record").values()
        name, targets = _targets(part, trace["step"].values)
        _draw(ax, place, f"{part.name}, {name}", trace, "interval", linestyle="-")
        dashes = (4.0 * place, (4.0, 4.0 * (len(parts) - 1) or 2.0))  # in turns, where parts have the same τ
        for target in targets:
            ax.plot(trace["step"], target, color=look(place)["color"], linestyle=dashes, linewidth=1.2)
    logarithmic(ax)
    dress(ax, "steps", "kinetic temperature $p\\cdot p/N$")
    steps_on(ax.xaxis)
    key(ax)
    return ax


def _targets(part: Part, steps: NDArray[np.int64]) -> tuple[str, list[Floats]]:
    """What a part's τ is called in the label, and its values at these steps that can be drawn."""
    tau: Any = part.method.temperature
    if isinstance(tau, SimulatedTempering):
        return r"dashed: rungs of $\tau$", [np.full(len(steps), rung) for rung in tau.ladder]
    last = np.maximum(steps - 1, 0)  # a record after n steps was made by step n - 1
    values = np.array([at(tau, int(step)) for step in last])
    name = rf"$\tau$ = {number(tau)}" if isinstance(tau, float) else r"scheduled $\tau$"
    if not (values > 0).any():
        return name, []
    return f"dashed: {name}", [np.where(values > 0, values, np.nan)]


def _draw(ax: Axes, place: int, label: str, trace: xr.DataArray, band: Band, **style: Any) -> None:
    """A line with a band over the chains; the label says how many have no value in the end."""
    steps, values = trace["step"].values, trace.values
    finite = np.isfinite(values)
    lost = np.count_nonzero(~finite[:, -1])
    note = f"{lost} of {len(values)} diverged" if lost else ""
    name = f"{label} ({note})" if label and note else label or note
    bounds = SHARES if trace.name == "accuracy" else UNBOUNDED
    middle, low, high = np.array(
        [_spread(v[f], band, bounds) for v, f in zip(values.T, finite.T, strict=True)]
    ).T
    style = look(place) | style
    ax.plot(steps, middle, linewidth=1.4, label=name or None, **style)
    ax.fill_between(steps, low, high, color=style["color"], alpha=0.2, linewidth=0, zorder=1)


def _spread(values: Floats, band: Band, bounds: tuple[float, float]) -> tuple[float, float, float]:
    """The middle of some runs, and the ends of their band; a single run has none around its mean."""
    if not len(values):
        return math.nan, math.nan, math.nan
    if band == "interval":
        return student(values, bounds=bounds)
    if band == "range":
        return float(np.median(values)), float(values.min()), float(values.max())
    mean, half = float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else math.nan
    return mean, mean - half, mean + half
