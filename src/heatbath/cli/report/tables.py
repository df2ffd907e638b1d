"""Turn a report into sentences and tables of text, which the terminal, Markdown and HTML lay out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from heatbath._internal.checks import is_real
from heatbath.cli.report.baseline import BALANCED
from heatbath.cli.report.contents import PartTemperature, PointReport, RunReport, SearchReport, choice_rule
from heatbath.diagnostics.statistics import Measured
from heatbath.evaluation.baseline_models import linear_training_size
from heatbath.evaluation.forecasts import BRIEF_MEASURES, find_measure

AVERAGED, SINGLE = "averaged prediction", "one network"
HEADLINES = ("accuracy", "auc", "r2", "rmse")  # measures that the first lines of a report name
MOST_CLASSES = 10  # with more, the confusion isn't shown as a table
CONFUSION_TITLE = "Confusion: examples by true class (rows) and predicted class (columns)"
UNKNOWN = "–"
WIDE_COLUMNS = ("train ", "temperature ")  # prefixes of columns that narrow tables leave out
DIGITS, MOST_DECIMALS = 3, 7  # significant digits of the largest number; digits after the point
ROUNDING = 1e-14  # numbers below are shown as 0


class TextTable(NamedTuple):
    """A table of text, whose cells are formatted numbers and names.

    Attributes
    ----------
    columns
        Names of the columns.
    rows
        Cells of each row.
    """

    columns: list[str]
    rows: list[list[str]]

    def select(self, indices: Sequence[int]) -> TextTable:
        """Return the table with only the columns that have these indices."""
        columns = [self.columns[i] for i in indices]
        return TextTable(columns, [[row[i] for i in indices] for row in self.rows])


def title(report: RunReport | SearchReport) -> str:
    """Return problem, network, steps, batch and chains of a run, or of the fresh runs of a search."""
    if isinstance(report, RunReport):
        plan = report.run.plan
        network, steps, batch, chains = plan.network, report.run.step, plan.batch, plan.chains
    else:
        search, batch, chains = report.tuning.search, report.tuning.batch, report.tuning.fresh
        network, steps = search.network, search.steps
    units = "-".join(map(str, network.hidden)) or "no"
    return f"{report.problem.name}, {units} hidden units, {steps:,} steps, batch {batch}, {chains} chains"


def caption(report: RunReport) -> str:
    """Return the examples on which results are measured, and what the intervals and the star mean.

    The parts of the caption are separated by semicolons.
    """
    examples = report.examples
    if examples is None:
        return "means over chains, which have different data sets (95 % intervals)"
    count = f"{len(examples):,} of {examples.of:,}" if len(examples) < examples.of else f"{len(examples):,}"
    noun = "example" if examples.of == 1 else "examples"
    kind = f"test {noun}"
    if examples.split == "train":
        kind = f"TRAINING {noun}, as there are no test examples: expect larger errors for new data"

    parts = [f"{count} {kind}", f"95 % intervals over examples, for {SINGLE} over chains"]
    fitted, available = linear_training_size(report.problem), report.problem.X_train.shape[1]
    linear_model = list(report.baselines)[-1]
    if fitted < available and linear_model != "constant":
        parts.append(f"{linear_model} is fitted to {fitted:,} of {available:,} training examples")
    if report.problem.class_factors is not None:
        parts.append(BALANCED)
    if report.choice is not None and report.best is not None:
        source = "the same examples, which is too optimistic"
        if report.choice.fair:
            source = f"{len(report.choice.choose):,} other examples"
        parts.append(f"* is the best by {choice_rule(report.problem)} on {source}")
    return "; ".join(parts)


def sentence(text: str) -> str:
    """Return a text with a capital letter at its start and a full stop at its end."""
    return f"{text[0].upper()}{text[1:]}."


def results_table(report: RunReport) -> TextTable:
    """Return the results: a row per measure for a single point, otherwise a row per method or point."""
    return _table_by_measure(report) if len(report.points) == 1 else _table_by_point(report)


def narrow_results_table(report: RunReport) -> TextTable:
    """Return the results; for several points without training measures and temperatures."""
    table = results_table(report)
    if len(report.points) == 1:
        return table
    return table.select([i for i, name in enumerate(table.columns) if not name.startswith(WIDE_COLUMNS)])


def _table_by_measure(report: RunReport) -> TextTable:
    """Return the results of a single point: a row for each measure, a column for each prediction.

    Measures that only single networks have, such as recorded losses and temperatures, come last. Columns
    without any value are left out.
    """
    (point,) = report.points
    predictions = {AVERAGED: point.averaged, SINGLE: point.single}
    predictions |= {name: values for name, (values, _) in report.baselines.items()}
    names = list(dict.fromkeys(name for values in predictions.values() for name in values))
    rows = [
        [measure_label(name), *(format_estimate(name, values.get(name)) for values in predictions.values())]
        for name in names
    ]

    single_rows = [
        (name.replace("_", " "), format_estimate(name, value))
        for name, value in point.recorded.items()
        if value is not None and not (name.startswith("test") and names)
    ]
    for part, temperature in point.temperatures.items():
        single_rows.append((f"temperature {part} / target", _format_temperature(temperature)))
    if point.diverged:
        single_rows.append(("diverged", f"{point.diverged} of {point.chains}"))
    rows += [[label, "", text, *[""] * len(report.baselines)] for label, text in single_rows]

    columns = ["", *predictions]
    used = [i for i in range(len(columns)) if i == 0 or any(row[i] not in ("", UNKNOWN) for row in rows)]
    return TextTable(columns, rows).select(used)


def _table_by_point(report: RunReport) -> TextTable:
    """Return the results of several points: a row for each point and each baseline.

    The columns are labels, measures of the averaged prediction and of one network, recorded measures and
    temperatures. The best point has a star in its last label.
    """
    points, labels = report.points, list(report.points[0].labels)
    names = _common_brief_measures(points)
    recorded = [name for name in points[0].recorded if not (name.startswith("test") and names)]
    parts = list(dict.fromkeys(part for point in points for part in point.temperatures))
    columns = [(label, [_format_label(point.labels[label]) for point in points]) for label in labels]
    if report.best is not None:  # the star of the best point follows its last label
        columns[-1][1][report.best] += " *"

    for name in names:
        cells = [format_estimate(name, point.averaged.get(name)) for point in points]
        columns.append((f"{measure_label(name)}, averaged", cells))
    for name in names:
        cells = [format_estimate(name, point.single.get(name)) for point in points]
        columns.append((f"{measure_label(name)}, {SINGLE}", cells))
    for name in recorded:
        cells = [format_estimate(name, point.recorded[name]) for point in points]
        columns.append((name.replace("_", " "), cells))
    for part in parts:
        cells = [_format_temperature(point.temperatures.get(part)) for point in points]
        columns.append((f"temperature {part} / target", cells))
    if any(point.diverged for point in points):
        columns.append(("diverged", [f"{point.diverged} of {point.chains}" for point in points]))

    # Baselines have values only in the columns of the averaged prediction, which follow the labels
    rows = [list(cells) for cells in zip(*(cells for _, cells in columns), strict=True)]
    for baseline, (values, _) in report.baselines.items() if names else ():
        row = [baseline, *[""] * (len(labels) - 1)]
        row += [format_estimate(name, values.get(name)) for name in names]
        rows.append(row + [""] * (len(columns) - len(row)))
    return TextTable([name for name, _ in columns], rows)


def _common_brief_measures(points: Sequence[PointReport]) -> list[str]:
    """Return the names of the brief measures that all evaluated points have."""
    evaluated = [point.averaged for point in points if point.averaged]
    names = dict.fromkeys(name for values in evaluated for name in values)
    return [name for name in select_measures(names, BRIEF_MEASURES) if all(name in v for v in evaluated)]


def select_measures(names: Iterable[str], measures: Sequence[str]) -> list[str]:
    """Return the names that belong to these measures, of any target: for rmse also rmse_length.

    Parameters
    ----------
    names
        Names of measures, with the target after an underscore if there are several.
    measures
        Measures without a target.
    """
    return [name for name in names if any(name == key or name.startswith(f"{key}_") for key in measures)]


def confusion_table(report: RunReport) -> TextTable | None:
    """Return the counts of examples by true and predicted class; None without or with many classes."""
    counts, classes = report.confusion(), list(report.problem.targets)
    if counts is None or len(classes) > MOST_CLASSES:
        return None
    rows = zip(classes, counts, strict=True)
    return TextTable(["true", *classes], [[name, *(f"{count:,.6g}" for count in row)] for name, row in rows])


def measure_label(name: str) -> str:
    """Return the heading of a measure in tables, with its target if there are several."""
    measure, target = find_measure(name)
    return f"{measure.label}, {target}" if target else measure.label


def notes(report: RunReport) -> list[str]:
    """Return lines on what a run found by itself, such as its stepsize; none if it found nothing."""
    if report.found is None:
        return []
    stepsize = [] if report.found_stepsize is None else [f"h: {report.found_stepsize:.4g}"]
    return [*stepsize, *report.found.summary().splitlines()]


def search_title(report: SearchReport) -> str:
    """Return how many candidates of each method a search compared, and by which score."""
    settings = report.tuning.settings["search"]
    share = f"{100 * settings['validation']:.3g} % of the training examples"
    return f"Best of {settings['candidates']} candidates of each method, by {settings['by']} on {share}"


def search_table(report: SearchReport) -> TextTable:
    """Return the best candidate of each method with its validation scores, or why there is none."""
    result, rows = report.result, []
    for name in (family.name for family in result.families):
        trial = result.best.get(name)
        if trial is None:
            rows.append([name, UNKNOWN, UNKNOWN, result.without[name]])
            continue
        accuracy = f"{100 * trial.accuracy:.1f} %" if math.isfinite(trial.accuracy) else UNKNOWN
        values = ", ".join(f"{key}={value!r}" for key, value in trial.candidate.values.items())
        rows.append([name, accuracy, f"{trial.loss:.4f}", values])
    return TextTable(["method", "validation accuracy", "validation loss", "coefficients"], rows)


def edge_notes(report: SearchReport) -> list[str]:
    """Return a line for each coefficient whose best values are at an end of its range, with a wider range."""
    result = report.result
    return [
        f"{method}: the best values of {name} are at the end of its range, {end!r}: search a wider range, "
        f"{name}={result.wider[method][name].low!r}..{result.wider[method][name].high!r}"
        for method, edges in result.edges.items()
        for name, end in edges.items()
    ]


def commands(report: SearchReport) -> list[str]:
    """Return the command line that trains with the best candidate, for each method that has one."""
    names = [family.name for family in report.result.families]
    return [report.command(name) for name in names if name in report.result.best]


def fresh_caption(report: SearchReport, fresh: RunReport) -> str:
    """Return the caption of the results of fresh runs.

    Parameters
    ----------
    report
        Report on the search.
    fresh
        Report on the fresh runs of its best candidates.
    """
    cold = report.tuning.cold
    cooling = "" if cold is None else f"; colder from step {cold:,} on"
    return (
        f"fresh runs on all training examples{cooling}: the averaged prediction of {report.tuning.fresh} "
        f"networks, and means over single ones; {caption(fresh)}"
    )


def format_estimate(name: str, estimate: Measured | None) -> str:
    """Return an estimate as text, such as 93.4 % (92.9 to 93.9) or 1,240 (1,180 to 1,300).

    Parameters
    ----------
    name
        Name of the measure, which decides whether it is shown in per cent.
    estimate
        Mean and ends of its interval; an unknown mean is a dash, and unknown ends are left out.
    """
    if estimate is None or not math.isfinite(estimate.value):
        return UNKNOWN
    low, high = (end if math.isfinite(end) else math.nan for end in (estimate.low, estimate.high))
    value = Measured(estimate.value, low, high)
    if _is_in_percent(name):
        return value.percent()
    middle, low_text, high_text = _same_decimals(value)
    return f"{middle} ({low_text} to {high_text})" if low < high and low_text != high_text else middle


def _is_in_percent(name: str) -> bool:
    """Return True if a measure is shown in per cent; a target called accuracy doesn't count."""
    if name.partition("_")[0] in ("test", "train", "noise"):  # recorded by the run
        return name in ("test_accuracy", "train_accuracy")
    return find_measure(name)[0].percent


def _same_decimals(numbers: Sequence[float]) -> list[str]:
    """Return numbers as text with the same number of decimals, and three digits for the largest."""
    largest = max(abs(number) for number in numbers if math.isfinite(number))
    if largest < ROUNDING:
        return ["0" for _ in numbers]
    decimals = DIGITS - 1 - math.floor(math.log10(largest))
    if decimals > MOST_DECIMALS:
        return [f"{number:.{DIGITS - 1}e}" for number in numbers]
    if largest <= 1:
        decimals = max(decimals, DIGITS)
    # negative decimals round 43,812 to 43,800; adding 0.0 turns -0.0 into 0.0
    return [f"{round(number, decimals) + 0.0:,.{max(decimals, 0)}f}" for number in numbers]


def _format_temperature(temperature: PartTemperature | None) -> str:
    """Return a measured temperature and its target as text; a dash if it is unknown."""
    if temperature is None or not math.isfinite(temperature.value.value):
        return UNKNOWN
    return f"{temperature.value.value:.2e} / {temperature.target:.2e}"


def _format_label(value: float | str) -> str:
    """Return a coefficient with six digits, or the name of a method as it is."""
    return f"{value:g}" if is_real(value) else str(value)
