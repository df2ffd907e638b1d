"""Pictures over the plane of the data, and over coefficients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from heatbath import plotting
from heatbath.datasets import Problem
from heatbath.experiments.base import mean
from heatbath.experiments.pictures import whole
from heatbath.plotting.style import COLOURS, PAGE, SMALL, dress, number, panels, percent_on, symbol
from heatbath.runs.run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GRID = 120  # points along each side of a map


def maps(run: Run, labels: Mapping[str, Sequence[Any]]) -> dict[str, xr.DataArray]:
    """What the first run at each of some points of a sweep says over the plane."""
    ((axis, values),) = labels.items()
    inputs = plotting.plane(run.problem, GRID)
    said = [run.select(**{axis: value}).outputs(inputs)[0, :, 0].reshape(GRID, GRID) for value in values]
    return {
        "map": xr.DataArray(
            np.array(said), dims=(f"{axis}_of_map", "y", "x"), coords={f"{axis}_of_map": list(values)}
        )
    }


def temperature(data: xr.Dataset, problem: Problem, square: bool = False) -> Figure:
    """Classifiers at several temperatures, square or wide, and beside them the accuracy at all."""
    from matplotlib.figure import Figure

    shown = data["tau_of_map"].values
    columns = len(shown) // 2
    height = 2 * (PAGE / (columns + 1.15) + 0.25) if square else 0.43 * PAGE
    figure = Figure(figsize=(PAGE, height), layout="constrained")
    grid = figure.add_gridspec(2, columns + 1, width_ratios=[1.0] * columns + [1.15])
    for place, tau in enumerate(shown):
        ax = figure.add_subplot(grid[divmod(place, columns)])
        small_map(ax, problem, data["map"].sel(tau_of_map=tau))
        own = float(data["accuracy"].sel(tau=tau).isel(record=-1, run=0))  # of the run that is shown
        ax.set_title(rf"$\tau$ = {number(float(tau))}: {100 * own:.1f} %", fontsize=SMALL)
        ax.set_aspect("equal" if square else "auto")
    against(figure.add_subplot(grid[:, columns]), data["accuracy"].isel(record=-1), "tau")
    return figure


def small_map(ax: Axes, problem: Problem, said: xr.DataArray) -> None:
    """A classifier with small dots, without legend and labels."""
    from matplotlib.collections import PathCollection

    plotting.classifier(problem, said.values.reshape(-1), bar=False, ax=ax)
    for dots in ax.collections:
        if isinstance(dots, PathCollection):
            dots.set_sizes([2.5])
            dots.set_linewidth(0.25)
    if legend := ax.get_legend():
        legend.remove()
    ax.set(xlabel="", ylabel="")


def against(ax: Axes, accuracy: xr.DataArray, axis: str) -> None:
    """Mean accuracy over a coefficient on a logarithmic axis; zero stands apart at the left."""
    values = accuracy[axis].values.astype(float)
    found = np.array([mean(accuracy.sel({axis: value})) for value in values])
    positive = values[values > 0]
    at = np.where(values > 0, values, positive.min() / 10)
    ax.errorbar(
        at,
        found[:, 0],
        yerr=np.abs(found[:, 1:] - found[:, :1]).T,
        fmt="o-",
        ms=4,
        capsize=2,
        color=COLOURS[0],
    )
    ax.set_xscale("log")
    if (values == 0).any():
        ax.set_xticks([at[0], *positive[::2]], ["0", *(number(v) for v in positive[::2])])
    dress(ax, symbol(axis), "test accuracy")
    percent_on(ax.yaxis)


def data(data: xr.Dataset, problems: Sequence[Problem]) -> Figure:
    """The data of several problems."""
    axes = panels(2, 2, height=PAGE)
    for ax, problem, name in zip(axes, problems, data["problem"].values, strict=True):
        plotting.data(problem, ax=ax)
        ax.set_aspect("auto")
        ax.set_title(str(name), fontsize=SMALL)
    return whole(axes)


def classifiers(data: xr.Dataset, problem: Problem) -> Figure:
    """The classifier of every method at every time."""
    methods = [str(m) for m in data["method"].values]
    times = data["step"].values
    axes = panels(len(methods), len(times), height=0.72 * PAGE)
    for row, method in enumerate(methods):
        for column in range(len(times)):
            ax = axes[row * len(times) + column]
            small_map(ax, problem, data["map"].sel({"method": method}).isel(record=column))
            own = float(data["accuracy"].sel({"method": method}).isel(record=column, run=0))
            ax.set_title(f"{method}, {int(times[column]):,} steps: {100 * own:.1f} %", fontsize=SMALL)
    return whole(axes)


def driving_noise(data: xr.Dataset) -> Figure:
    """The map over τ₁ and σ_A."""
    table = data["accuracy"].mean("run").transpose("tau1", "sigma")
    axes = panels(1, 1, width=0.8 * PAGE, height=0.5 * PAGE)
    plotting.heat_map(table.rename("accuracy").rename(tau1="tau"), ax=axes[0])
    axes[0].set_ylabel(r"$\tau_1$")
    axes[0].set_title("test accuracy in %, mean over runs", fontsize=SMALL)
    return whole(axes)
