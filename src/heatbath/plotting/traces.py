"""Draw traces over the steps: curves with bands over runs, and kinetic temperatures.

Letters: τ is the temperature of a part, p its momenta, N its number of parameters.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from heatbath._internal.checks import choice
from heatbath.datasets.problem import Floats
from heatbath.diagnostics.statistics import SHARES, UNBOUNDED, student
from heatbath.methods.partition import Part
from heatbath.methods.schedules import SimulatedTempering, at
from heatbath.plotting import style
from heatbath.plotting.labels import Traces, by_label, value_name
from heatbath.plotting.style import Axes
from heatbath.runs.run import Run

Band = Literal["interval", "range", "std"]
DASH_LENGTH = 4.0  # of a line of τ, in widths of the line
SINGLE_DASH_GAP = 2.0  # between these dashes if only one part has a τ


class TemperatureTarget(NamedTuple):
    """Label of a part's τ, and the curves of τ that can be drawn on a logarithmic axis."""

    label: str
    curves: list[Floats]


def curves(
    traces: Traces | Run, *, band: Band = "interval", log: bool = False, ax: Axes | None = None
) -> Axes:
    """Draw traces such as `run.accuracy("test")` over the steps: a line for each label, a band over runs.

    Records without any value are left out. Runs that diverged count up to there, and the label has their
    number.

    Parameters
    ----------
    traces : DataArray, dict from name to DataArray, or Run
        Traces (chain, record). Labels are the names of a dict, the methods of a comparison or the points of a
        sweep. A `Run` stands for its test accuracy.
    band : str, optional
        "interval" (default): mean with its 95 % confidence interval (Student's). "std": mean and standard
        deviation. "range": median, from the lowest run to the highest.
    log : bool, optional
        Make the y axis logarithmic (default False).
    ax : Axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    Axes
    """
    choice("band", band, ("interval", "range", "std"))
    if isinstance(traces, Run):
        traces = traces.accuracy()
    labelled = by_label(traces, "record")
    value_names = {value_name(trace) for trace in labelled.values()}
    are_accuracies = all(trace.name == "accuracy" for trace in labelled.values())

    ax = style.axes_or_new(ax)
    for index, (label, trace) in enumerate(labelled.items()):
        _draw_trace(ax, label, trace, band, style.line_style(index))

    y_label = value_names.pop() if len(value_names) == 1 else ""
    style.label_axes(ax, "steps", y_label)
    style.format_steps(ax.xaxis)
    if log:
        style.set_log_scale(ax)
    elif are_accuracies:
        style.format_percent(ax.yaxis)
        low, high = ax.get_ylim()
        ax.set_ylim(max(low, 0.0), min(high, 1.005))  # above 100 % only the width of a line
    style.add_legend(ax)
    return ax


def temperatures(run: Run, *, ax: Axes | None = None) -> Axes:
    """Draw the kinetic temperature of every part that has a τ: mean over chains and 95 % interval.

    A dashed line is τ: a scheduled τ as it changes, a ladder of simulated tempering as all its rungs. τ = 0
    has no place on a logarithmic axis and is in the label only.

    Parameters
    ----------
    run : Run
        A run whose chains have the same methods.
    ax : Axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    Axes
    """
    if not isinstance(run, Run):
        raise TypeError(f"temperatures needs a Run, got {type(run).__name__}")
    if len(run.plan.points) > 1:
        raise ValueError(f"these chains have different temperatures: select one of {run.plan.points[0][0]}")
    parts = [part for part in run.plan.parts() if part.method.measures_temperature]
    if not parts:
        raise ValueError("no part of this run has a temperature: its methods have no tau")
    # Dashes of parts with the same τ lie in each other's gaps
    gap = DASH_LENGTH * (len(parts) - 1) or SINGLE_DASH_GAP

    ax = style.axes_or_new(ax)
    for index, part in enumerate(parts):
        (trace,) = by_label(run.data["temperature"].sel(part=part.name), "record").values()
        target = _temperature_target(part, trace["step"].values)
        colour = style.line_style(index)["color"]
        label = f"{part.name}, {target.label}"
        _draw_trace(ax, label, trace, "interval", {"color": colour, "linestyle": "-"})
        dashes = (DASH_LENGTH * index, (DASH_LENGTH, gap))
        for curve in target.curves:
            ax.plot(trace["step"], curve, color=colour, linestyle=dashes, linewidth=1.2)

    style.set_log_scale(ax)
    style.label_axes(ax, "steps", "kinetic temperature $p\\cdot p/N$")
    style.format_steps(ax.xaxis)
    style.add_legend(ax)
    return ax


def _temperature_target(part: Part, steps: NDArray[np.int64]) -> TemperatureTarget:
    """Return the label of a part's τ and its curves, with a value at each of the steps of the records.

    A ladder of simulated tempering has a curve for each rung. τ = 0 has no place on a logarithmic axis, so
    that it is NaN, and a τ that is always 0 has no curve.
    """
    tau: Any = part.method.temperature
    if isinstance(tau, SimulatedTempering):
        rungs = [np.full(len(steps), rung) for rung in tau.ladder]
        return TemperatureTarget(r"dashed: rungs of $\tau$", rungs)

    label = rf"$\tau$ = {style.format_number(tau)}" if isinstance(tau, float) else r"scheduled $\tau$"
    steps_made = np.maximum(steps - 1, 0)  # a record after n steps was made by step n - 1
    tau_curve = np.array([at(tau, int(step)) for step in steps_made])
    is_positive = tau_curve > 0
    if not is_positive.any():
        return TemperatureTarget(label, [])
    return TemperatureTarget(f"dashed: {label}", [np.where(is_positive, tau_curve, np.nan)])


def _draw_trace(ax: Axes, label: str, trace: xr.DataArray, band: Band, line_options: dict[str, Any]) -> None:
    """Draw a trace as a line with a band over the chains.

    Parameters
    ----------
    ax : Axes
        Where to draw.
    label : str
        Label of the line; the number of chains without a value at the last record is added.
    trace : DataArray (chain, record)
        Values with the coordinate `step`; NaN where a chain has diverged.
    band : str
        "interval", "range" or "std", as in `curves`.
    line_options : dict
        Colour and dashes of the line, for `Axes.plot`.
    """
    bounds = SHARES if trace.name == "accuracy" else UNBOUNDED
    finite_by_record = [values[np.isfinite(values)] for values in trace.values.T]
    bands = [_centre_and_band(finite, band, bounds) for finite in finite_by_record]
    centre, low, high = np.array(bands).T

    chain_count = trace.sizes["chain"]
    lost_count = chain_count - len(finite_by_record[-1])
    if lost_count:
        note = f"{lost_count} of {chain_count} diverged"
        label = f"{label} ({note})" if label else note
    steps = trace["step"].values
    ax.plot(steps, centre, linewidth=1.4, label=label or None, **line_options)
    ax.fill_between(steps, low, high, color=line_options["color"], alpha=0.2, linewidth=0, zorder=1)


def _centre_and_band(values: Floats, band: Band, bounds: tuple[float, float]) -> tuple[float, float, float]:
    """Return the centre of the values of some runs and the two ends of their band.

    For a single run the ends of "interval" and "std" are NaN.

    Parameters
    ----------
    values : array (run,)
        Finite values; all results are NaN if there are none.
    band : str
        "interval", "range" or "std", as in `curves`.
    bounds : (float, float)
        Bounds of the quantity, such as 0 and 1 for accuracies.
    """
    if not len(values):
        return math.nan, math.nan, math.nan
    if band == "interval":
        return student(values, bounds=bounds)
    if band == "range":
        return float(np.median(values)), float(values.min()), float(values.max())
    mean = float(values.mean())
    deviation = float(values.std(ddof=1)) if len(values) > 1 else math.nan
    return mean, mean - deviation, mean + deviation
