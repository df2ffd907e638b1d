"""What the pictures of several experiments share; each picture stands beside its experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from heatbath import plotting
from heatbath.datasets import Problem
from heatbath.diagnostics.statistics import student
from heatbath.paper.side_by_side import method_names
from heatbath.plotting.style import (
    COLOURS,
    PAGE_WIDTH,
    SMALL_SIZE,
    format_number,
    format_percent,
    label_axes,
    panels,
    quantity_label,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def whole(axes: Sequence[Axes]) -> Figure:
    """The figure of some axes."""
    return axes[0].figure.figure


def without_key(ax: Axes) -> None:
    """Take a legend away: another picture has it."""
    if legend := ax.get_legend():
        legend.remove()


def by_method(data: xr.Dataset, name: str) -> dict[str, xr.DataArray]:
    """The traces of every method, as pictures take them."""
    return {m: data[name].sel({"method": m}, drop=True).rename(run="chain") for m in method_names(data)}


def curves(data: xr.Dataset, log: bool = True) -> Figure:
    """Test accuracy and test loss over the steps."""
    axes = panels(1, 2, height=0.5 * PAGE_WIDTH)
    plotting.curves(by_method(data, "accuracy"), ax=axes[0])
    plotting.curves(by_method(data, "loss"), log=log, ax=axes[1])
    axes[0].set_ylabel("test accuracy")
    axes[1].set_ylabel("test loss")
    without_key(axes[1])
    return whole(axes)


def box(ax: Axes, accuracies: Mapping[str, Any]) -> None:
    """Accuracies over runs: every run, and the mean."""
    for place, values in enumerate(accuracies.values()):
        spread = np.random.default_rng(place).uniform(-0.25, 0.25, len(values))
        ax.plot(values, place + spread, ".", ms=3, alpha=0.5, color=COLOURS[place % len(COLOURS)])
        ax.plot([np.mean(values)] * 2, [place - 0.35, place + 0.35], color="black", linewidth=1.4)
    ax.set_yticks(range(len(accuracies)), list(accuracies))
    ax.invert_yaxis()
    label_axes(ax, "test accuracy, every run", "")
    format_percent(ax.xaxis)


def means(ax: Axes, x: Any, runs: Sequence[Any], **style: Any) -> None:
    """Means over runs with their intervals."""
    measured = np.array([student(values) for values in runs])
    errors = np.abs(measured[:, 1:] - measured[:, :1]).T
    ax.errorbar(x, measured[:, 0], yerr=errors, capsize=2, **style)


def small_map(ax: Axes, problem: Problem, probability: xr.DataArray) -> None:
    """A classifier with small dots, without legend and labels."""
    from matplotlib.collections import PathCollection

    plotting.classifier(problem, probability.values.reshape(-1), bar=False, ax=ax)
    for dots in ax.collections:
        if isinstance(dots, PathCollection):
            dots.set_sizes([2.5])
            dots.set_linewidth(0.25)
    without_key(ax)
    ax.set(xlabel="", ylabel="")


def temperatures(data: xr.Dataset, problem: Problem, square: bool = False) -> Figure:
    """Classifiers at several temperatures, square or wide, and beside them the accuracy at all."""
    from matplotlib.figure import Figure

    shown = data["tau_of_map"].values
    columns = len(shown) // 2
    height = 2 * (PAGE_WIDTH / (columns + 1.15) + 0.25) if square else 0.43 * PAGE_WIDTH
    figure = Figure(figsize=(PAGE_WIDTH, height), layout="constrained")
    grid = figure.add_gridspec(2, columns + 1, width_ratios=[1.0] * columns + [1.15])
    for place, tau in enumerate(shown):
        ax = figure.add_subplot(grid[divmod(place, columns)])
        small_map(ax, problem, data["map"].sel(tau_of_map=tau))
        accuracy = float(data["accuracy"].sel(tau=tau).isel(record=-1, run=0))  # of the run that is shown
        ax.set_title(rf"$\tau$ = {format_number(float(tau))}: {100 * accuracy:.1f} %", fontsize=SMALL_SIZE)
        ax.set_aspect("equal" if square else "auto")
    _against_tau(figure.add_subplot(grid[:, columns]), data["accuracy"].isel(record=-1))
    return figure


def _against_tau(ax: Axes, accuracy: xr.DataArray) -> None:
    """Mean accuracy over τ on a logarithmic axis; zero stands apart at the left."""
    values = accuracy["tau"].values.astype(float)
    positive = values[values > 0]
    at = np.where(values > 0, values, positive.min() / 10)
    means(ax, at, [accuracy.sel(tau=tau) for tau in values], fmt="o-", ms=4, color=COLOURS[0])
    ax.set_xscale("log")
    if (values == 0).any():
        ax.set_xticks([at[0], *positive[::2]], ["0", *(format_number(v) for v in positive[::2])])
    label_axes(ax, quantity_label("tau"), "test accuracy")
    format_percent(ax.yaxis)
