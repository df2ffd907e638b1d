"""Draw the figures of a run or a search, and save them beside its report."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from heatbath import plotting
from heatbath._internal.checks import is_real
from heatbath.cli.report.contents import PointReport, RunReport, SearchReport, recorded_measures
from heatbath.cli.report.tables import AVERAGED
from heatbath.datasets import Problem
from heatbath.datasets.tasks import TASKS
from heatbath.diagnostics.statistics import Measured
from heatbath.evaluation import Dependence
from heatbath.plotting import style
from heatbath.plotting.decision_boundaries import CLASS_MARKERS
from heatbath.plotting.style import Axes
from heatbath.runs.run import Run
from heatbath.tuning.trials import TuningResult

Labels: TypeAlias = Mapping[str, float | str]
MOST_COLUMNS = 3  # panels in a row
MOST_CURVES = 8  # points of a sweep whose curves are drawn
MOST_SCORES = 20  # points of a sweep over many axes that are listed
LARGEST_SHARE = 1.005  # end of an axis of shares, with room for a marker at 100 %
DECADE = 10.0  # ratio of values above which their axis is logarithmic
MOST_TARGETS = 3  # that are drawn
MOST_CLASSES = 5  # whose probabilities are drawn together
LONGEST_NAME = 14  # letters of a class or target
IMPORTANCE_LABELS = {
    "binary": "rise of the log loss when permuted",
    "classes": "rise of the log loss when permuted",
    "regression": "fall of R² when permuted",
    "counts": "rise of the loss when permuted",
}


def draw_figures(report: RunReport | SearchReport, folder: Path) -> list[Path]:
    """Draw all figures that a report can have, and save each as PNG and SVG.

    Parameters
    ----------
    report
        The evaluated run or search.
    folder
        Where to save the figures.

    Returns
    -------
    list
        The PNG files.
    """
    figures = _run_figures(report) if isinstance(report, RunReport) else _search_figures(report)
    return [plotting.save(figure, folder / f"{name}.png")[0] for name, figure in figures.items()]


def _run_figures(report: RunReport) -> dict[str, Axes]:
    """Draw the figures of a report on a train, sweep or compare run, and return them by name.

    Which figures there are depends on the command, on the task, and on the number of inputs and points. Each
    figure is represented by one of its panels, here and below.
    """
    command = report.command
    run = report.run
    figures: dict[str, Axes] = {}
    if command == "sweep":
        figures["sweep"] = _sweep(report)
    figures |= _forecast_figures(report) | _column_figures(report)
    if command != "sweep" or len(run.plan.points) <= MOST_CURVES:
        figures["curves"] = _curves(run)
    has_temperature = any(part.method.measures_temperature for part in run.plan.parts())
    if command == "train" and has_temperature and (run.died < 0).any():
        figures["temperatures"] = plotting.temperatures(run)
    if command != "sweep" and _is_classifier_of_plane(run.problem):
        name = "classifier" if command == "train" else "classifiers"
        figures[name] = _median_classifiers(run)
    return figures


def _search_figures(report: SearchReport) -> dict[str, Axes]:
    """Draw the figures of a search and of its fresh runs, and return them by name.

    Methods with a single range have no map of candidates, and only classes in the plane have decision
    boundaries.
    """
    result = report.result
    figures = {"search": plotting.search(result)}
    if any(result.importance.values()):
        figures["importance"] = plotting.importance(result)
    mapped = [family.name for family in result.families if len(family.ranges) > 1]
    if mapped:
        figures["maps"] = _search_maps(result, mapped)
    if report.fresh is not None:
        figures["curves"] = _curves(report.fresh.run)
        if _is_classifier_of_plane(report.problem):
            figures["classifiers-median-run"] = _median_classifiers(report.fresh.run, ", median run\n")
            figures["classifiers-mean-of-runs"] = _mean_classifiers(report.fresh)
    return figures


def _forecast_figures(report: RunReport) -> dict[str, Axes]:
    """Draw the predictions of a run against the truth, and return the figures by name.

    Numbers have a panel for each target; classes have ROC curves, calibration and confusion.
    """
    forecast = report.forecast
    if forecast is None:
        return {}
    if not TASKS[forecast.task].classes:
        panel_count = min(len(forecast.targets), MOST_TARGETS)
        axes = plotting.panels(1, panel_count, width=max(3.4, 3.2 * panel_count), height=3.5)
        for target, ax in enumerate(axes):
            plotting.predicted(forecast, target, ax=ax)
        return {"predicted": axes[0]}

    compared = {AVERAGED: forecast}
    for name, (_, baseline) in report.baselines.items():
        if name != "constant":
            compared[name] = baseline

    figures = {}
    if len(np.unique(forecast.labels)) > 1:  # a single class has no ROC curve
        drawn = compared if forecast.task == "binary" else forecast  # several classes have a curve each
        figures["roc"] = plotting.roc(drawn)
    figures["calibration"] = plotting.calibration(compared)
    figures["confusion"] = plotting.confusion(forecast)
    return figures


def _column_figures(report: RunReport) -> dict[str, Axes]:
    """Draw how important the columns are, and the effects of the most important ones, by name."""
    if not report.importances:
        return {}
    figures = {}
    if len(report.importances) > 1:  # a single column has nothing to be compared with
        label = IMPORTANCE_LABELS[report.problem.task]
        figures["importance"] = plotting.column_importance(report.importances, label)
    return figures | {"dependence": _dependences(report.problem, report.dependences)}


def _dependences(problem: Problem, effects: Sequence[Dependence]) -> Axes:
    """Draw the mean prediction over the values of a column, in a panel for each column.

    Several targets have a row of panels each; a single target, or all classes together, have rows that wrap.

    Parameters
    ----------
    problem
        The problem, with names of targets or classes.
    effects
        Effects of the columns, one for each panel.
    """
    names = [style.plain_label(name, LONGEST_NAME) for name in problem.targets]
    output_count = effects[0].mean.shape[1]
    has_classes = TASKS[problem.task].classes
    if has_classes and output_count == 1:
        groups = [(np.array([0]), f"mean probability of {names[1]}")]
    elif has_classes:
        groups = [(_most_affected_classes(effects), "mean probability")]
    else:
        shown_targets = range(min(output_count, MOST_TARGETS))
        groups = [(np.array([target]), f"mean {names[target]}") for target in shown_targets]

    effect_count = len(effects)
    columns = min(MOST_COLUMNS, effect_count) if len(groups) == 1 else effect_count
    rows = math.ceil(effect_count / columns) * len(groups)
    legend_height = 0.35 if has_classes and output_count > 1 else 0.0  # inches below each panel
    axes = plotting.panels(rows, columns, width=2.5 * columns + 0.3, height=(2.2 + legend_height) * rows)

    for index, (outputs, label) in enumerate(groups):
        output_names = [names[output] for output in outputs]
        group_axes = axes[index * effect_count : (index + 1) * effect_count]
        for effect, ax in zip(effects, group_axes, strict=True):
            plotting.dependence(_select_outputs(effect, outputs), output_names, label, ax=ax)
        _share_scale(group_axes, columns)
    _hide(axes[len(groups) * effect_count :])
    return axes[0]


def _most_affected_classes(effects: Sequence[Dependence]) -> NDArray[np.int64]:
    """Return the indices, in ascending order, of the classes whose probabilities change most."""
    change = sum(np.ptp(effect.mean, axis=0) for effect in effects)
    return np.sort(np.argsort(-change, kind="stable")[:MOST_CLASSES])


def _select_outputs(effect: Dependence, outputs: NDArray[np.int64]) -> Dependence:
    """Return the effect of a column on only these outputs."""
    mean, low, high = (values[:, outputs] for values in (effect.mean, effect.low, effect.high))
    return replace(effect, mean=mean, low=low, high=high)


def _share_scale(axes: Sequence[Axes], columns: int) -> None:
    """Give panels the same vertical scale, and keep only the labels at the left of each row.

    Parameters
    ----------
    axes
        The panels, row by row; they are changed in place.
    columns
        Number of panels in a row.
    """
    limits = [ax.get_ylim() for ax in axes]
    low = min(bottom for bottom, _ in limits)
    high = max(top for _, top in limits)
    for index, ax in enumerate(axes):
        ax.set_ylim(low, high)
        if index % columns:
            ax.set_ylabel("")


def _search_maps(result: TuningResult, methods: Sequence[str]) -> Axes:
    """Draw the map of candidates of each of these methods, in a panel with its name as title."""
    columns = min(MOST_COLUMNS, len(methods))
    rows = math.ceil(len(methods) / columns)
    axes = plotting.panels(rows, columns, width=3.1 * columns + 0.3, height=2.7 * rows)
    for ax, method in zip(axes, methods, strict=False):
        plotting.search_map(result, method, ax=ax)
        ax.set_title(method, fontsize=style.TEXT_SIZE)
    _hide(axes[len(methods) :])
    return axes[0]


def _curves(run: Run) -> Axes:
    """Draw accuracy and loss over the steps, on test data if there are any.

    The legend is below the panels, with at most a line for each method or point.
    """
    measures = recorded_measures(run)
    panels = [(name, split) for name, split in measures if split == measures[0][1]]
    height = 2.5 + 0.17 * len(run.plan.points)  # inches, with a line of the legend for each point
    axes = plotting.panels(1, len(panels), width=3.5 * len(panels), height=height)
    for ax, (name, split) in zip(axes, panels, strict=True):
        trace = run.data[name].sel(split=split)
        smallest = float(np.nanmin(trace.values))
        is_logarithmic = name == "loss" and smallest > 0
        plotting.curves(trace, log=is_logarithmic, ax=ax)
        if is_logarithmic:
            ax.set_ylim(bottom=max(ax.get_ylim()[0], 0.8 * smallest))  # a band may go below 0, losses don't
    return axes[0]


def _is_classifier_of_plane(problem: Problem) -> bool:
    """Return True if a problem has two inputs, and classes few enough to have different markers."""
    return problem.inputs == 2 and TASKS[problem.task].classes and len(problem.targets) <= len(CLASS_MARKERS)


def _median_classifiers(run: Run, separator: str = ": ") -> Axes:
    """Draw the prediction of the median chain of each method over the plane.

    Parameters
    ----------
    run
        The run of all methods.
    separator
        Text between the name of the method and the accuracy of the chain, which form the title.
    """
    name, split = recorded_measures(run)[0]
    last_scores = run.data[name].sel(split=split).values[:, -1]
    chains = [_median_chain(run, point) for point in range(len(run.plan.points))]
    titles: list[str | None] = []
    for (labels, _), chain in zip(run.plan.points, chains, strict=True):
        if chain is None:
            titles.append(None)
            continue
        title = f"{split} accuracy {100 * last_scores[chain]:.1f} %"
        if labels:
            title = f"{labels['method']}{separator}{title}"
        titles.append(title)
    return _planes(run, [(run, chain) for chain in chains], titles)


def _mean_classifiers(report: RunReport) -> Axes:
    """Draw the averaged prediction of each method over the plane, with its accuracy in the title."""
    run = report.run
    titles: list[str | None] = []
    for point in report.points:
        finite_chains = point.chains - point.diverged
        if not finite_chains:
            titles.append(None)
            continue
        title = f"{point.labels['method']}, mean of {finite_chains} runs"
        accuracy = point.averaged.get("accuracy")
        if accuracy is not None:
            title += f"\ntest accuracy {100 * accuracy.value:.1f} %"
        titles.append(title)
    return _planes(run, [(run.select(**point.labels), None) for point in report.points], titles)


def _planes(run: Run, shown: Sequence[tuple[Run, int | None]], titles: Sequence[str | None]) -> Axes:
    """Draw predictions over the plane, in a panel for each method.

    Parameters
    ----------
    run
        The run of all methods.
    shown
        For each panel, a run and the index of a chain, or None for the run's averaged prediction.
    titles
        Title of each panel; None says that all chains diverged.
    """
    columns = min(MOST_COLUMNS, len(shown))
    rows = math.ceil(len(shown) / columns)
    width = 3.4 if columns == 1 else 2.6 * columns + 0.6
    axes = plotting.panels(rows, columns, width=width, height=0.4 + 2.6 * rows)
    draw = plotting.classifier if run.problem.task == "binary" else plotting.uncertainty

    for index, (source, chain) in enumerate(shown):
        ax = axes[index]
        title = titles[index]
        if title is None:
            label = run.plan.points[index].labels.get("method", "")
            ax.set_title(f"{label}: all chains diverged", fontsize=style.TEXT_SIZE)
            ax.set_axis_off()
            continue
        is_last_in_row = index % columns == columns - 1
        draw(run.problem, source, chain=chain, bar=is_last_in_row, ax=ax)
        ax.set_title(title, fontsize=style.TEXT_SIZE)
        _label_outer_panels_only(ax, index, columns, len(shown))
    _hide(axes[len(shown) :])
    return axes[0]


def _hide(axes: Iterable[Axes]) -> None:
    """Hide the panels of a grid that nothing is drawn in."""
    for ax in axes:
        ax.set_axis_off()


def _label_outer_panels_only(ax: Axes, index: int, columns: int, count: int) -> None:
    """Remove labels of the axes inside a grid of panels, and the legend of all panels but the last.

    Parameters
    ----------
    ax
        A panel, which is changed in place.
    index
        Its position, row by row.
    columns, count
        Number of panels in a row, and of all.
    """
    if index % columns:
        ax.set_ylabel("")
    if index + columns < count:
        ax.set_xlabel("")
    legend = ax.get_legend()
    if legend is not None and index != count - 1:
        legend.remove()


def _median_chain(run: Run, point: int) -> int | None:
    """Return the index of the chain with the median score, or the next one below.

    Parameters
    ----------
    run
        The run of all methods or points.
    point
        Index of a method or point; None is returned if all its chains diverged.
    """
    name, split = recorded_measures(run)[0]
    first = point * run.plan.chains
    chains = np.arange(first, first + run.plan.chains)
    chains = chains[run.died[chains] < 0]
    if not chains.size:
        return None
    order = np.argsort(run.data[name].sel(split=split).values[chains, -1], kind="stable")
    return int(chains[order[(len(chains) - 1) // 2]])


def _sweep(report: RunReport) -> Axes:
    """Draw the first recorded measure over the grid of a sweep.

    One numeric axis has a curve, two axes have a heat map, and all others have a list of the best points.
    """
    run = report.run
    points = report.points
    axes = run.plan.axes
    name, split = recorded_measures(run)[0]
    if len(axes) == 1 and all(is_real(point.labels[axes[0]]) for point in points):
        return _sweep_line(points, axes[0], name, split)
    if len(axes) != 2:
        return _sweep_best(points, name, split)

    rows = len({point.labels[axes[0]] for point in points})
    columns = len({point.labels[axes[1]] for point in points})
    (ax,) = plotting.panels(width=min(1.9 + 0.5 * columns, 9.0), height=min(1.1 + 0.32 * rows, 8.0))
    if (name, split) == ("accuracy", "test"):
        return plotting.heat_map(run, ax=ax)
    last_values = run.data[name].sel(split=split).isel(record=-1)
    means = last_values.groupby(axes).mean().transpose(*axes)
    return plotting.heat_map(means.rename(name), ax=ax)


def _sweep_line(points: Sequence[PointReport], axis: str, name: str, split: str) -> Axes:
    """Draw a measure over one coefficient, with intervals.

    The horizontal axis is logarithmic if the values span more than a decade.

    Parameters
    ----------
    points
        Points of the sweep.
    axis
        Name of the coefficient.
    name, split
        The measure, such as "accuracy", and its examples, "train" or "test".
    """
    coefficients = []
    estimates = []
    for labels, estimate in _known_estimates(points, f"{split}_{name}"):
        coefficients.append(labels[axis])
        estimates.append(estimate)
    x = np.array(coefficients, float)
    mean, low, high = np.array(estimates).T
    order = np.argsort(x)

    (ax,) = plotting.panels(width=4.0, height=2.9)
    ax.plot(x[order], mean[order], "o-", color=style.COLOURS[0], markersize=4, linewidth=1.2)
    ax.vlines(x, low, high, color=style.COLOURS[0], linewidth=1.4)
    _scale_by_decades(ax, x)
    style.label_axes(ax, style.quantity_label(axis), f"{split} {name}")
    if name == "accuracy":
        style.format_percent(ax.yaxis)
        ax.set_ylim(top=min(ax.get_ylim()[1], LARGEST_SHARE))
    return ax


def _scale_by_decades(ax: Axes, x: NDArray[np.float64]) -> None:
    """Make the horizontal axis logarithmic if it has no negative values, and they span a decade or more."""
    positive = x[x > 0]
    if x.min() < 0 or not positive.size or positive.max() / positive.min() < DECADE:
        return
    if x.min() > 0:
        ax.set_xscale("log")
    else:
        ax.set_xscale("symlog", linthresh=positive.min())


def _known_estimates(points: Sequence[PointReport], measure: str) -> list[tuple[Labels, Measured]]:
    """Return labels and estimate of each point with a known value of a recorded measure."""
    estimates: list[tuple[Labels, Measured]] = []
    for point in points:
        estimate = point.recorded[measure]
        if estimate is not None:
            estimates.append((point.labels, estimate))
    return estimates


def _sweep_best(points: Sequence[PointReport], name: str, split: str) -> Axes:
    """Draw the best points of a sweep by a measure, with intervals.

    Parameters
    ----------
    points
        Points of the sweep.
    name, split
        The measure, such as "accuracy", and its examples, "train" or "test".
    """
    is_accuracy = name == "accuracy"
    estimates = _known_estimates(points, f"{split}_{name}")
    estimates.sort(key=lambda pair: pair[1].value, reverse=is_accuracy)
    scores = []
    for labels, estimate in estimates[:MOST_SCORES]:
        mean, low, high = estimate
        interval = (low, high) if math.isfinite(low) else (mean, mean)
        scores.append(plotting.Score(_point_label(labels), mean, interval))

    (ax,) = plotting.panels(width=6.0, height=0.95 + 0.24 * len(scores))
    plotting.scores(scores, f"{split} {name}", percent=is_accuracy, ax=ax)
    if is_accuracy:
        ax.set_xlim(right=min(ax.get_xlim()[1], LARGEST_SHARE))
    return ax


def _point_label(labels: Labels) -> str:
    """Return the coefficients of a point as text, such as h = 0.1, τ = 1e-4."""
    pairs = [(style.quantity_label(axis), style.format_number(value)) for axis, value in labels.items()]
    return ", ".join(f"{name} = {value}" for name, value in pairs)
