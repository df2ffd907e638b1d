"""The figures of a run: curves, temperatures and classifiers, and what a sweep or a search finds."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from heatbath import plotting
from heatbath._internal.checks import is_real
from heatbath.cli.report.contents import Told
from heatbath.cli.report.tables import AVERAGED, measures
from heatbath.datasets.tasks import TASKS
from heatbath.evaluation import Dependence
from heatbath.plotting.decision_boundaries import CLASS_MARKERS
from heatbath.plotting.style import (
    COLOURS,
    TEXT_SIZE,
    format_number,
    format_percent,
    label_axes,
    plain_label,
    quantity_label,
)
from heatbath.runs.run import Run
from heatbath.tuning.trials import TuningResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_LINES = 8  # points of a sweep whose curves are drawn
MOST_ROWS = 20  # points of a sweep over many axes
DECADE = 10.0  # values that span more are on a logarithmic axis
MOST_TARGETS = 3  # of several, that are drawn
MOST_CLASSES = 5  # whose probabilities are drawn together
RISES = {
    "binary": "rise of the log loss when exchanged",
    "classes": "rise of the log loss when exchanged",
    "regression": "fall of R² when exchanged",
    "counts": "rise of the loss when exchanged",
}
ENDS = ("mean", "low", "high")


def draw_all(told: Told, summary: dict[str, Any], folder: Path) -> list[Path]:
    """Draw all figures that a run can have, and save them as PNG and SVG: the paths of the PNG files."""
    command, run = told.command, told.run
    figures: dict[str, Figure] = {}
    if command == "sweep":
        figures["sweep"] = _sweep(run, summary)
    figures |= _judged(told) | _effects(told)
    if command != "sweep" or len(run.plan.points) <= MOST_LINES:
        figures["curves"] = _curves(run)
    if command == "train" and _has_temperature(run):
        figures["temperatures"] = _figure(plotting.temperatures(run))
    if command != "sweep" and _has_plane(run):
        figures["classifier" if command == "train" else "classifiers"] = _classifiers(run)
    return [plotting.save(figure, folder / f"{name}.png")[0] for name, figure in figures.items()]


def draw_search(tuned: TuningResult, run: Run | None, summary: dict[str, Any], folder: Path) -> list[Path]:
    """Draw all figures of a search and of its fresh runs, and save them as PNG and SVG: the PNG files."""
    figures = {"search": _figure(plotting.search(tuned))}
    if any(tuned.importance.values()):
        figures["importance"] = _figure(plotting.importance(tuned))
    if mapped := [family.name for family in tuned.families if len(family.ranges) > 1]:
        figures["maps"] = _search_maps(tuned, mapped)
    if run is not None:
        figures["curves"] = _curves(run)
        if _has_plane(run):
            figures["classifiers-median-run"] = _classifiers(run, ", median run\n")
            figures["classifiers-mean-of-runs"] = _mean_classifiers(run, summary)
    return [plotting.save(figure, folder / f"{name}.png")[0] for name, figure in figures.items()]


def _judged(told: Told) -> dict[str, Figure]:
    """What is predicted, beside what is true."""
    said = None if told.answer is None else told.answer.forecast
    if said is None:
        return {}
    if not TASKS[said.task].classes:
        count = min(len(said.targets), MOST_TARGETS)
        axes = plotting.panels(1, count, width=max(3.4, 3.2 * count), height=3.5)
        for place, ax in enumerate(axes):
            plotting.predicted(said, place, ax=ax)
        return {"predicted": _figure(axes[0])}
    both = {AVERAGED: said} | {name: one for name, (_, one) in told.baselines.items() if name != "constant"}
    figures = {
        "calibration": _figure(plotting.calibration(both)),
        "confusion": _figure(plotting.confusion(said)),
    }
    if len(np.unique(said.labels)) > 1:
        figures = {"roc": _figure(plotting.roc(both if said.task == "binary" else said))} | figures
    return figures


def _effects(told: Told) -> dict[str, Figure]:
    """Which columns matter, and how."""
    if not told.columns:
        return {}
    problem = told.run.problem
    figures = {}
    if len(told.columns) > 1:  # of one there is nothing to compare it with
        figures["importance"] = _figure(plotting.column_importance(told.columns, RISES[problem.task]))
    classes, outputs = TASKS[problem.task].classes, told.effects[0].mean.shape[1]
    rows = 1 if classes else min(outputs, MOST_TARGETS)
    columns = min(3, len(told.effects)) if rows == 1 else len(told.effects)
    lines = math.ceil(len(told.effects) / columns) * rows
    long = 0.35 if classes and outputs > 1 else 0.0
    axes = plotting.panels(lines, columns, width=2.5 * columns + 0.3, height=(2.2 + long) * lines)
    names = [plain_label(name, 14) for name in problem.targets]
    moved = sum(np.ptp(effect.mean, axis=0) for effect in told.effects)
    leading = np.sort(
        np.argsort(-moved, kind="stable")[:MOST_CLASSES]
    )  # classes whose probabilities change most
    for row in range(rows):
        own = axes[row * columns : (row + 1) * columns] if rows > 1 else axes
        what = names[row] if not classes else f"probability of {names[1]}" if outputs == 1 else "probability"
        for effect, ax in zip(told.effects, own, strict=False):
            shown = leading if classes else np.array([row])
            plotting.dependence(_of(effect, shown), [names[i] for i in shown], f"mean {what}", ax=ax)
        _same_height(own[: len(told.effects)], columns)
    for ax in axes[len(told.effects) :] if rows == 1 else ():
        ax.set_axis_off()
    return figures | {"dependence": _figure(axes[0])}


def _of(effect: Dependence, outputs: NDArray[np.int64]) -> Dependence:
    """The effect on some outputs."""
    mean, low, high = (values[:, outputs] for values in (effect.mean, effect.low, effect.high))
    return replace(effect, mean=mean, low=low, high=high)


def _same_height(axes: list[Axes], columns: int) -> None:
    """One scale for all, so that the columns can be compared; named at the left."""
    low, high = (end(ax.get_ylim()[i] for ax in axes) for i, end in ((0, min), (1, max)))
    for place, ax in enumerate(axes):
        ax.set_ylim(low, high)
        if place % columns:
            ax.set_ylabel("")


def _search_maps(tuned: TuningResult, methods: list[str]) -> Figure:
    """The map of each method, under its name."""
    columns = min(3, len(methods))
    rows = math.ceil(len(methods) / columns)
    axes = plotting.panels(rows, columns, width=3.1 * columns + 0.3, height=2.7 * rows)
    for ax, method in zip(axes, methods, strict=False):
        plotting.search_map(tuned, method, ax=ax)
        ax.set_title(method, fontsize=TEXT_SIZE)
    for ax in axes[len(methods) :]:
        ax.set_axis_off()
    return _figure(axes[0])


def _curves(run: Run) -> Figure:
    """Accuracy and loss over the steps; the legends are below, a line for each method or point at most."""
    names = _shown(run)
    height = 2.5 + 0.17 * len(run.plan.points)
    axes = plotting.panels(1, len(names), width=3.5 * len(names), height=height)
    for ax, (name, split) in zip(axes, names, strict=True):
        trace = run.data[name].sel(split=split)
        low = float(np.nanmin(trace.values))
        plotting.curves(trace, log=name == "loss" and low > 0, ax=ax)
        if name == "loss" and low > 0:
            ax.set_ylim(bottom=max(ax.get_ylim()[0], 0.8 * low))  # a band may go below 0, losses do not
    return _figure(axes[0])


def _shown(run: Run) -> list[tuple[str, str]]:
    """Accuracy and loss on test data, or on training data without them."""
    shown = measures(run)
    return [pair for pair in shown if pair[1] == shown[0][1]]


def _has_temperature(run: Run) -> bool:
    return any(part.method.measures_temperature for part in run.plan.parts()) and bool((run.died < 0).any())


def _has_plane(run: Run) -> bool:
    problem = run.problem
    return problem.inputs == 2 and TASKS[problem.task].classes and len(problem.targets) <= len(CLASS_MARKERS)


def _classifiers(run: Run, note: str = ": ") -> Figure:
    """What the median chain of each method says over the plane; the title has the method, a note, and its
    accuracy."""
    name, split = measures(run)[0]
    chains = [_median_chain(run, place) for place in range(len(run.plan.points))]
    titles: list[str | None] = []
    for (labels, _), chain in zip(run.plan.points, chains, strict=True):
        score = math.nan if chain is None else run.data[name].sel(split=split).values[chain, -1]
        text = f"{split} accuracy {100 * score:.1f} %"
        titles.append(None if chain is None else f"{labels['method']}{note}{text}" if labels else text)
    return _planes(run, [(run, chain) for chain in chains], titles)


def _mean_classifiers(run: Run, summary: dict[str, Any]) -> Figure:
    """What all chains of each method say over the plane, on average; the title has its accuracy."""
    titles: list[str | None] = []
    for row in summary["rows"]:
        count, score = row["chains"] - row["diverged"], row["averaged"].get("accuracy")
        text = "" if score is None else f"\ntest accuracy {100 * score['mean']:.1f} %"
        titles.append(f"{row['labels']['method']}, mean of {count} runs{text}" if count else None)
    return _planes(run, [(run.select(**row["labels"]), None) for row in summary["rows"]], titles)


def _planes(run: Run, shown: list[tuple[Run, int | None]], titles: list[str | None]) -> Figure:
    """What a chain says over the plane, or a whole run, for each method; without a title all diverged."""
    columns = min(3, len(shown))
    rows = math.ceil(len(shown) / columns)
    width = 3.4 if columns == 1 else 2.6 * columns + 0.6
    axes = plotting.panels(rows, columns, width=width, height=0.4 + 2.6 * rows)
    draw = plotting.classifier if run.problem.task == "binary" else plotting.uncertainty
    for place, (ax, (one, chain), title) in enumerate(zip(axes, shown, titles, strict=False)):
        if title is None:
            label = run.plan.points[place][0].get("method", "")
            ax.set_title(f"{label}: all chains diverged", fontsize=TEXT_SIZE)
            ax.set_axis_off()
            continue
        draw(run.problem, one, chain=chain, bar=place % columns == columns - 1, ax=ax)
        ax.set_title(title, fontsize=TEXT_SIZE)
        _tidy(ax, place, columns, len(shown))
    for ax in axes[len(shown) :]:
        ax.set_axis_off()
    return _figure(axes[0])


def _tidy(ax: Axes, place: int, columns: int, count: int) -> None:
    """Labels and legends once, at the edges."""
    if place % columns:
        ax.set_ylabel("")
    if place + columns < count:
        ax.set_xlabel("")
    legend = ax.get_legend()
    if legend is not None and place != count - 1:
        legend.remove()


def _median_chain(run: Run, place: int) -> int | None:
    """The chain of a method whose score is the median, or the next below it; None if all diverged."""
    name, split = measures(run)[0]
    first = place * run.plan.chains
    chains = np.arange(first, first + run.plan.chains)
    chains = chains[run.died[chains] < 0]
    if not chains.size:
        return None
    order = np.argsort(run.data[name].sel(split=split).values[chains, -1], kind="stable")
    return int(chains[order[(len(chains) - 1) // 2]])


def _sweep(run: Run, summary: dict[str, Any]) -> Figure:
    """The first measure over the grid: a curve, a heat map, or of more axes the best points."""
    axes, (name, split) = run.plan.axes, measures(run)[0]
    labels = [[row["labels"][axis] for row in summary["rows"]] for axis in axes]
    if len(axes) == 1 and all(is_real(value) for value in labels[0]):
        return _line(summary, axes[0], name, split)
    if len(axes) == 2:
        rows, columns = (len(set(values)) for values in labels)
        (ax,) = plotting.panels(width=min(1.9 + 0.5 * columns, 9.0), height=min(1.1 + 0.32 * rows, 8.0))
        last = run.data[name].sel(split=split).isel(record=-1)
        means = last.groupby(axes).mean().transpose(*axes).rename(name)
        return _figure(plotting.heat_map(run if (name, split) == ("accuracy", "test") else means, ax=ax))
    return _best(summary, name, split)


def _line(summary: dict[str, Any], axis: str, name: str, split: str) -> Figure:
    """A measure over one coefficient, with intervals; on a logarithmic axis where the values span decades."""
    known = [row for row in summary["rows"] if row[f"{split}_{name}"] is not None]
    x = np.array([row["labels"][axis] for row in known])
    middle, low, high = (np.array([_or_nan(row, name, split, key) for row in known]) for key in ENDS)
    order = np.argsort(x)
    (ax,) = plotting.panels(width=4.0, height=2.9)
    ax.plot(x[order], middle[order], "o-", color=COLOURS[0], markersize=4, linewidth=1.2)
    ax.vlines(x, low, high, color=COLOURS[0], linewidth=1.4)
    above = x[x > 0]
    if x.min() >= 0 and above.size and above.max() / above.min() >= DECADE:
        ax.set_xscale("log") if x.min() > 0 else ax.set_xscale("symlog", linthresh=above.min())
    label_axes(ax, quantity_label(axis), f"{split} {name}")
    if name == "accuracy":
        format_percent(ax.yaxis)
        ax.set_ylim(top=min(ax.get_ylim()[1], 1.005))
    return _figure(ax)


def _best(summary: dict[str, Any], name: str, split: str) -> Figure:
    """The best points, with their intervals."""
    known = [row for row in summary["rows"] if row[f"{split}_{name}"] is not None]
    known.sort(key=lambda row: row[f"{split}_{name}"]["mean"], reverse=name == "accuracy")
    scores = []
    for row in known[:MOST_ROWS]:
        label = ", ".join(
            f"{quantity_label(axis)} = {format_number(value)}" for axis, value in row["labels"].items()
        )
        middle, low, high = (_or_nan(row, name, split, key) for key in ENDS)
        ends = (low, high) if math.isfinite(low) else (middle, middle)
        scores.append(plotting.Score(label, middle, ends))
    (ax,) = plotting.panels(width=6.0, height=0.95 + 0.24 * len(scores))
    plotting.scores(scores, f"{split} {name}", percent=name == "accuracy", ax=ax)
    if name == "accuracy":
        ax.set_xlim(right=min(ax.get_xlim()[1], 1.005))
    return _figure(ax)


def _or_nan(row: dict[str, Any], name: str, split: str, key: str) -> float:
    value = row[f"{split}_{name}"][key]
    return math.nan if value is None else float(value)


def _figure(ax: Axes) -> Figure:
    figure: Figure = ax.figure.figure
    return figure
