"""Draw what the pictures of several experiments share; each picture itself is beside its experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import xarray as xr

from heatbath import plotting
from heatbath.datasets import Problem
from heatbath.diagnostics.statistics import student
from heatbath.paper.side_by_side import method_names
from heatbath.plotting import style
from heatbath.plotting.style import Axes, Figure

ACCURACY_WIDTH = 1.15  # of a column with accuracies, relative to a map
TITLE_HEIGHT = 0.25  # inches, of a map


def remove_legend(ax: Axes) -> None:
    """Remove the legend of Axes, because other Axes of the figure have it."""
    legend = ax.get_legend()
    if legend:
        legend.remove()


def traces_by_method(data: xr.Dataset, name: str) -> dict[str, xr.DataArray]:
    """Return the traces of a variable by method, (chain, record), as `plotting` needs them."""
    traces = data[name].rename(run="chain")
    return {method: traces.sel({"method": method}, drop=True) for method in method_names(data)}


def draw_accuracy_and_loss(data: xr.Dataset, log: bool = True) -> Axes:
    """Draw test accuracy and test loss over the steps, the loss on a logarithmic axis if `log`."""
    axes = style.panels(1, 2, height=0.5 * style.PAGE_WIDTH)
    plotting.curves(traces_by_method(data, "accuracy"), ax=axes[0])
    plotting.curves(traces_by_method(data, "loss"), log=log, ax=axes[1])
    axes[0].set_ylabel("test accuracy")
    axes[1].set_ylabel("test loss")
    remove_legend(axes[1])
    return axes[0]


def draw_all_runs(ax: Axes, accuracies: Mapping[str, Any]) -> None:
    """Draw the accuracies of all runs as dots, and their mean as a line, by method."""
    for row, runs in enumerate(accuracies.values()):
        # So that dots don't hide each other
        offsets = np.random.default_rng(row).uniform(-0.25, 0.25, len(runs))
        colour = style.COLOURS[row % len(style.COLOURS)]
        ax.plot(runs, row + offsets, ".", ms=3, alpha=0.5, color=colour)
        mean = np.mean(runs)
        ax.plot([mean, mean], [row - 0.35, row + 0.35], color="black", linewidth=1.4)
    ax.set_yticks(range(len(accuracies)), list(accuracies))
    ax.invert_yaxis()
    style.label_axes(ax, "test accuracy, every run", "")
    style.format_percent(ax.xaxis)


def draw_means(ax: Axes, x: Any, runs: Sequence[Any], **line_options: Any) -> None:
    """Draw means over runs with their 95 % intervals.

    Parameters
    ----------
    ax : Axes
        Where to draw.
    x : sequence of float
        Positions.
    runs : sequence of arrays (run,)
        Values of the runs at each position.
    **line_options
        Passed to `Axes.errorbar`.
    """
    measured = np.array([student(values) for values in runs])
    errors = np.abs(measured[:, 1:] - measured[:, :1]).T
    ax.errorbar(x, measured[:, 0], yerr=errors, capsize=2, **line_options)


def draw_small_map(ax: Axes, problem: Problem, probability: xr.DataArray) -> None:
    """Draw a classifier with small dots, without legend and labels.

    `probability` is on the grid of `plotting.plane(problem)`.
    """
    from matplotlib.collections import PathCollection

    plotting.classifier(problem, probability.values.reshape(-1), bar=False, ax=ax)
    for dots in ax.collections:
        if isinstance(dots, PathCollection):
            dots.set_sizes([2.5])
            dots.set_linewidth(0.25)
    remove_legend(ax)
    ax.set(xlabel="", ylabel="")


def draw_temperatures(data: xr.Dataset, problem: Problem, square: bool = False) -> Figure:
    """Draw classifiers at several temperatures in two rows, and the accuracy over all temperatures.

    Parameters
    ----------
    data : Dataset
        Results of a sweep over τ: `accuracy` (tau, run, record), and `map`, the classifiers of the first run
        on the plane (tau_of_map, y, x).
    problem : Problem
        The problem of the maps.
    square : bool
        Give the maps equal axes.
    """
    from matplotlib.figure import Figure

    mapped_taus = data["tau_of_map"].values
    columns = len(mapped_taus) // 2  # of maps, in two rows
    width_ratios = [1.0] * columns + [ACCURACY_WIDTH]
    height = 0.43 * style.PAGE_WIDTH
    aspect: Literal["auto", "equal"] = "auto"
    if square:
        map_width = style.PAGE_WIDTH / (columns + ACCURACY_WIDTH)
        height = 2 * (map_width + TITLE_HEIGHT)
        aspect = "equal"
    figure = Figure(figsize=(style.PAGE_WIDTH, height), layout="constrained")
    grid = figure.add_gridspec(2, columns + 1, width_ratios=width_ratios)

    final_accuracy = data["accuracy"].isel(record=-1)
    for index, tau in enumerate(mapped_taus):
        ax = figure.add_subplot(grid[divmod(index, columns)])
        draw_small_map(ax, problem, data["map"].sel(tau_of_map=tau))
        percentage = 100 * float(final_accuracy.sel(tau=tau).isel(run=0))  # of the run that is shown
        title = rf"$\tau$ = {style.format_number(float(tau))}: {percentage:.1f} %"
        ax.set_title(title, fontsize=style.SMALL_SIZE)
        ax.set_aspect(aspect)
    _draw_accuracy_over_tau(figure.add_subplot(grid[:, columns]), final_accuracy)
    return figure


def _draw_accuracy_over_tau(ax: Axes, accuracy: xr.DataArray) -> None:
    """Draw the mean accuracy (tau, run) over τ on a logarithmic axis.

    τ = 0, which must be the first if it occurs, is drawn a decade to the left of the smallest other τ.
    """
    taus = accuracy["tau"].values.astype(float)
    positive_taus = taus[taus > 0]
    positions = np.where(taus > 0, taus, positive_taus.min() / 10)
    runs = [accuracy.sel(tau=tau) for tau in taus]
    draw_means(ax, positions, runs, fmt="o-", ms=4, color=style.COLOURS[0])

    ax.set_xscale("log")
    if (taus == 0).any():
        labelled_taus = positive_taus[::2]
        tick_labels = ["0", *map(style.format_number, labelled_taus)]
        ax.set_xticks([positions[0], *labelled_taus], tick_labels)
    style.label_axes(ax, style.quantity_label("tau"), "test accuracy")
    style.format_percent(ax.yaxis)
