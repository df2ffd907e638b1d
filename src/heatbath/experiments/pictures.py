"""The pictures of the experiments, from their data sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from heatbath import plotting
from heatbath.experiments.base import mean
from heatbath.plotting import style
from heatbath.plotting.style import (
    COLOURS,
    PAGE,
    SMALL,
    dress,
    key,
    logarithmic,
    look,
    panels,
    percent_on,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def by_method(data: xr.Dataset, name: str, methods: Sequence[str] = ()) -> dict[str, xr.DataArray]:
    """The traces of every method, as pictures take them."""
    chosen = methods or [str(m) for m in data["method"].values]
    return {m: data[name].sel({"method": m}, drop=True).rename(run="chain") for m in chosen}


def whole(axes: Sequence[Axes]) -> Figure:
    """The figure of some axes."""
    return axes[0].figure.figure


def without_key(ax: Axes) -> None:
    """Take a legend away: another picture has it."""
    if legend := ax.get_legend():
        legend.remove()


def lines(data: xr.Dataset) -> Figure:
    """The loss on lines, a picture for each problem."""
    problems = data["problem"].values if "problem" in data.dims else [None]
    axes = panels(1, max(2, len(problems)), height=0.5 * PAGE)
    for ax, problem in zip(axes, problems, strict=False):
        own = data if problem is None else data.sel(problem=problem)
        found = {
            str(m): own["line"].sel({"method": m}, drop=True).rename(run="chain")
            for m in own["method"].values
        }
        plotting.line(found, ax=ax)
        ax.set(ylabel="test loss", title="" if problem is None else problem)
        ax.title.set_fontsize(SMALL)
    if problems[0] is None:
        box(axes[1], {str(m): data["accuracy"].sel({"method": m}).values for m in data["method"].values})
    return whole(axes)


def surfaces(data: xr.Dataset) -> Figure:
    """The loss on a surface, for MNIST and for the spiral."""
    axes = panels(1, 2, height=0.46 * PAGE)
    ends = {r"start ($\alpha = 0$)": (0.0, 0.5), r"$\theta_{f,1}$": (1.0, 1.0), r"$\theta_{f,2}$": (1.0, 0.0)}
    for ax, name, title in zip(axes, ("mnist", "spiral"), ("MNIST", "2-turn spiral"), strict=True):
        dimension = "mnist_run" if name == "mnist" else "run"
        plotting.surface(data[name].isel({dimension: 0}).rename("test loss"), ends, ax=ax)
        ax.set_title(title, fontsize=SMALL)
    return whole(axes)


def weights_over_time(data: xr.Dataset) -> Figure:
    """Distributions of weights and biases of every method, at the records."""
    methods = [str(m) for m in data["method"].values]
    axes = panels(2, len(methods), height=0.62 * PAGE)
    for row, kind in enumerate(("weights", "biases")):
        for column, method in enumerate(methods):
            ax = axes[row * len(methods) + column]
            histogram(
                ax,
                data["histogram"].sel({"method": method, "kind": kind}).isel(record=slice(1, None)),
                data["step"].values[1:],
            )
            found = mean(data["accuracy"].sel({"method": method}).isel(record=-1))
            title = f"{method}: {100 * found.value:.1f} %" if row == 0 else ""
            ax.set_title(title, fontsize=SMALL)
            dress(ax, "weights" if row == 0 else "biases", "share per bin" if column == 0 else "")
    handles, labels = axes[0].get_legend_handles_labels()
    figure = whole(axes)
    figure.legend(
        handles, labels, loc="outside lower center", ncols=len(labels), fontsize=SMALL, frameon=False
    )
    return figure


def histogram(ax: Axes, counts: xr.DataArray, steps: Any) -> None:
    """Outlines of histograms, one for each record, on a logarithmic axis."""
    edges = edges_of(counts)
    for place, (own, step) in enumerate(zip(counts.values, steps, strict=True)):
        ax.stairs(own, edges, label=f"step {int(step):,}", linewidth=1.1, **look(place))
    logarithmic(ax, bottom=1e-5)
    ax.set_xlim(-3, 3)


def edges_of(counts: xr.DataArray) -> Any:
    """The edges of evenly spaced bins."""
    middle = counts["bin"].values
    half = (middle[1] - middle[0]) / 2
    return np.append(middle - half, middle[-1] + half)


def weights_of_runs(data: xr.Dataset) -> Figure:
    """Distributions at the end over all runs, and the accuracies."""
    methods = [str(m) for m in data["method"].values]
    axes = panels(1, 3, height=0.5 * PAGE)
    for ax, kind in zip(axes, ("weights", "biases"), strict=False):
        for place, method in enumerate(methods):
            counts = data["histogram"].sel({"method": method, "kind": kind}).isel(record=-1)
            ax.stairs(
                counts.values,
                edges_of(counts),
                label=method,
                linewidth=1.1,
                **look(place),
            )
        logarithmic(ax, bottom=1e-5)
        dress(ax, kind, "share per bin")
    key(axes[0])
    box(axes[2], {m: data["accuracy"].sel({"method": m}).isel(record=-1).values for m in methods})
    return whole(axes)


def box(ax: Axes, found: Mapping[str, Any]) -> None:
    """Accuracies over runs: the middle half, the range, and every run."""
    for place, values in enumerate(found.values()):
        spread = np.random.default_rng(place).uniform(-0.25, 0.25, len(values))
        ax.plot(values, place + spread, ".", ms=3, alpha=0.5, color=COLOURS[place % len(COLOURS)])
        ax.plot([np.mean(values)] * 2, [place - 0.35, place + 0.35], color="black", linewidth=1.4)
    ax.set_yticks(range(len(found)), list(found))
    ax.invert_yaxis()
    dress(ax, "test accuracy, every run", "")
    percent_on(ax.xaxis)


def curves(data: xr.Dataset, log: bool = True) -> Figure:
    """Test accuracy and test loss over the steps."""
    axes = panels(1, 2, height=0.5 * PAGE)
    plotting.curves(by_method(data, "accuracy"), ax=axes[0])
    plotting.curves(by_method(data, "loss"), log=log, ax=axes[1])
    axes[0].set_ylabel("test accuracy")
    axes[1].set_ylabel("test loss")
    without_key(axes[1])
    return whole(axes)


def tuned(data: xr.Dataset) -> Figure:
    """The accuracy of every setting of the others over its h, and AdLaLa's as a line."""
    axes = panels(1, 2, height=0.5 * PAGE)
    final = data["accuracy"].isel(record=-1)
    settings = [str(m) for m in data["method"].values]
    own = mean(final.sel({"method": "AdLaLa"}))
    sigmas = dict.fromkeys(name.split()[1] for name in settings if name.startswith("SGLD"))
    for ax in axes:
        ax.set_xscale("log")
    for place, sigma in enumerate(sigmas):
        points(
            axes[0],
            final,
            [n for n in settings if n.startswith(f"SGLD {sigma} ")],
            sigma.replace("=", " = "),
            place,
        )
    points(axes[1], final, [n for n in settings if n.startswith("Adam")], "Adam", 0)
    for ax in axes:
        ax.axhspan(own.low, own.high, color="0.85", zorder=0)
        ax.axhline(own.value, color="black", linestyle=":", label="AdLaLa")
        dress(ax, "stepsize $h$", "test accuracy")
        percent_on(ax.yaxis)
        key(ax)
    return whole(axes)


def points(ax: Axes, final: xr.DataArray, names: Sequence[str], label: str, place: int) -> None:
    """Means with their intervals over the h in the names of settings."""
    h = [float(name.rpartition("h=")[2]) for name in names]
    found = np.array([mean(final.sel({"method": name})) for name in names])
    errors = np.abs(found[:, 1:] - found[:, :1]).T
    ax.set_xticks(h, [f"{value:g}" for value in h], minor=False)
    ax.set_xticks([], minor=True)
    ax.errorbar(
        h, found[:, 0], yerr=errors, fmt="o", ms=3.5, capsize=2, label=label, linewidth=1.1, **look(place)
    )


def robustness(data: xr.Dataset) -> Figure:
    """Variance and mean over runs over the steps."""
    axes = panels(1, 2, height=0.55 * PAGE)
    for place, (name, values) in enumerate(by_method(data, "accuracy").items()):
        axes[0].plot(
            data["step"], (100 * values).var("chain", ddof=1), label=name, linewidth=1.3, **look(place)
        )
    plotting.curves(by_method(data, "accuracy"), ax=axes[1])
    dress(axes[0], "steps", "variance (squared points)")
    style.steps_on(axes[0].xaxis)
    key(axes[0])
    without_key(axes[1])
    axes[1].set_ylabel("mean test accuracy")
    return whole(axes)


def equipartition(data: xr.Dataset) -> Figure:
    """The temperature of every part over its τ."""
    warm = data.isel(part=np.flatnonzero(data["tau"].values > 0))
    rows = []
    for part in warm["part"].values:
        values = warm["temperature"].sel(part=part).values
        found = mean(values[np.isfinite(values)] / float(warm["tau"].sel(part=part)))
        rows.append(plotting.Score(str(part), found.value, (found.low, found.high)))
    axes = panels(1, 1, width=0.8 * PAGE, height=1.2 + 0.26 * len(rows))
    plotting.scores(rows, "kinetic temperature / τ", ax=axes[0])
    axes[0].axvline(1.0, color="black", linewidth=0.8, linestyle=":")
    axes[0].set_xscale("log")
    return whole(axes)


def effects(data: xr.Dataset) -> Figure:
    """The effect of inner and outer points over the steps."""
    axes = panels(1, 2, height=0.5 * PAGE)
    top = float(data["effect"].mean("run").max()) * 1.1
    for ax, method in zip(axes, data["method"].values, strict=False):
        own = data["effect"].sel({"method": method})
        for place, where in enumerate(own["where"].values):
            found = np.array([mean(one) for one in own.sel(where=where).transpose("record", "run").values])
            steps = own["step"].values
            ax.plot(steps, found[:, 0], label=f"{where} third", linewidth=1.4, **look(place))
            ax.fill_between(
                steps, found[:, 1], found[:, 2], color=look(place)["color"], alpha=0.2, linewidth=0
            )
        ax.set_xscale("symlog", linthresh=20)
        ax.set(title=str(method), ylim=(0, 1.05 * top), xlim=(0, None))
        ax.title.set_fontsize(SMALL)
        dress(ax, "steps", "norm of a datum's gradient")
        key(ax)
    return whole(axes)
