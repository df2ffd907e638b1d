"""Turn a report into sentences and tables of text, which the terminal, Markdown and HTML lay out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

from heatbath._internal.checks import is_real
from heatbath.cli.report.baseline import BALANCED
from heatbath.cli.report.contents import PartTemperature, PointReport, RunReport, SearchReport, choice_rule
from heatbath.diagnostics.statistics import Measured
from heatbath.evaluation import EvaluationExamples
from heatbath.evaluation.baseline_models import linear_training_size
from heatbath.evaluation.forecasts import BRIEF_MEASURES, find_measure
from heatbath.models.dense import MLP

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

    def has_values(self, index: int) -> bool:
        """Return True if the column with this index has a cell that is neither empty nor unknown."""
        return any(row[index] not in ("", UNKNOWN) for row in self.rows)


class TextColumn(NamedTuple):
    """A column of a table of text: its name and its cells."""

    name: str
    cells: list[str]


def title(report: RunReport | SearchReport) -> str:
    """Return problem, network, steps, batch and chains of a run, or of the fresh runs of a search."""
    name = report.problem.name
    if isinstance(report, RunReport):
        plan = report.run.plan
        sizes = f"{report.run.step:,} steps, batch {plan.batch}, {plan.chains} chains"
        return f"{name}, {_units(plan.network)} hidden units, {sizes}"
    tuning = report.tuning
    sizes = f"{tuning.search.steps:,} steps, batch {tuning.plan.batch}, {tuning.fresh_chains} chains"
    return f"{name}, {_units(tuning.search.network)} hidden units, {sizes}"


def _units(network: MLP) -> str:
    """Return the sizes of the hidden layers as text, such as 100-100."""
    return "-".join(map(str, network.hidden)) or "no"


def caption(report: RunReport) -> str:
    """Return the examples on which results are measured, and what the intervals and the star mean.

    The clauses of the caption are separated by semicolons.
    """
    examples = report.examples
    if examples is None:
        return "means over chains, which have different data sets (95 % intervals)"
    clauses = [_examples_in_words(examples), f"95 % intervals over examples, for {SINGLE} over chains"]
    fitted_count = linear_training_size(report.problem)
    training_count = report.problem.X_train.shape[1]
    linear_model = list(report.baselines)[-1]
    if fitted_count < training_count and linear_model != "constant":
        clauses.append(
            f"{linear_model} is fitted to {fitted_count:,} of {training_count:,} training examples"
        )
    if report.problem.class_factors is not None:
        clauses.append(BALANCED)
    if report.choice is not None and report.best is not None:
        source = "the same examples, which is too optimistic"
        if report.choice.fair:
            source = f"{len(report.choice.choose):,} other examples"
        clauses.append(f"* is the best by {choice_rule(report.problem)} on {source}")
    return "; ".join(clauses)


def _examples_in_words(examples: EvaluationExamples) -> str:
    """Return how many examples of how many are evaluated, with a warning if they are those of training."""
    count = f"{len(examples):,}"
    if len(examples) < examples.of:
        count = f"{count} of {examples.of:,}"
    noun = "example" if examples.of == 1 else "examples"
    if examples.split == "train":
        return f"{count} TRAINING {noun}, as there are no test examples: expect larger errors for new data"
    return f"{count} test {noun}"


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
    for baseline, (measures, _) in report.baselines.items():
        predictions[baseline] = measures

    names = dict.fromkeys(chain.from_iterable(predictions.values()))
    rows = []
    for name in names:
        estimates = [format_estimate(name, measures.get(name)) for measures in predictions.values()]
        rows.append([measure_label(name), *estimates])
    recorded: dict[str, Measured | None] = {
        name: estimate for name, estimate in point.recorded.items() if estimate is not None
    }
    known_point = replace(point, recorded=recorded)
    for column in _training_columns([known_point], has_test_measures=bool(names)):
        rows.append([column.name, "", *column.cells, *[""] * len(report.baselines)])

    table = TextTable(["", *predictions], rows)
    used = [i for i in range(1, len(table.columns)) if table.has_values(i)]
    return table.select([0, *used])


def _table_by_point(report: RunReport) -> TextTable:
    """Return the results of several points: a row for each point and each baseline.

    The columns are labels, measures of the averaged prediction and of one network, recorded measures and
    temperatures. The best point has a star in its last label.
    """
    points = report.points
    columns = _label_columns(report)
    other_labels = len(columns) - 1
    names = _common_brief_measures(points)
    measures_by_kind = {
        "averaged": [point.averaged for point in points],
        SINGLE: [point.single for point in points],
    }
    for kind, measures_of_points in measures_by_kind.items():
        for name in names:
            cells = [format_estimate(name, measures.get(name)) for measures in measures_of_points]
            columns.append(TextColumn(f"{measure_label(name)}, {kind}", cells))
    columns += _training_columns(points, has_test_measures=bool(names))

    cells_by_column = [column.cells for column in columns]
    rows = [list(row) for row in zip(*cells_by_column, strict=True)]
    baselines = report.baselines if names else {}
    for baseline, (measures, _) in baselines.items():
        # They have values only in the columns of the averaged prediction, which follow the labels
        estimates = [format_estimate(name, measures.get(name)) for name in names]
        row = [baseline, *[""] * other_labels, *estimates]
        rows.append(row + [""] * (len(columns) - len(row)))
    return TextTable([column.name for column in columns], rows)


def _label_columns(report: RunReport) -> list[TextColumn]:
    """Return the columns with the labels of points, of which the last one marks the best point by a star."""
    columns = []
    for label in report.points[0].labels:
        values = [point.labels[label] for point in report.points]
        cells = [f"{value:g}" if is_real(value) else str(value) for value in values]
        columns.append(TextColumn(label, cells))
    if report.best is not None:
        columns[-1].cells[report.best] += " *"
    return columns


def _training_columns(points: Sequence[PointReport], has_test_measures: bool) -> list[TextColumn]:
    """Return the columns of what a run records: losses, temperatures, and how many chains diverged.

    Parameters
    ----------
    points
        The points of the run.
    has_test_measures
        True if recorded test measures are left out, because there are better estimates.
    """
    columns = []
    for name in points[0].recorded:
        if has_test_measures and name.startswith("test"):
            continue
        cells = [format_estimate(name, point.recorded[name]) for point in points]
        columns.append(TextColumn(name.replace("_", " "), cells))

    parts = dict.fromkeys(chain.from_iterable(point.temperatures for point in points))
    for part in parts:
        cells = [_format_temperature(point.temperatures.get(part)) for point in points]
        columns.append(TextColumn(f"temperature {part} / target", cells))

    if any(point.diverged for point in points):
        columns.append(TextColumn("diverged", [f"{point.diverged} of {point.chains}" for point in points]))
    return columns


def _common_brief_measures(points: Sequence[PointReport]) -> list[str]:
    """Return the names of the brief measures that all evaluated points have."""
    evaluated = [point.averaged for point in points if point.averaged]
    names = dict.fromkeys(chain.from_iterable(evaluated))
    brief_names = select_measures(names, BRIEF_MEASURES)
    return [name for name in brief_names if all(name in measures for measures in evaluated)]


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
    counts = report.confusion()
    classes = report.problem.targets
    if counts is None or len(classes) > MOST_CLASSES:
        return None
    rows = []
    for true_class, counts_of_class in zip(classes, counts, strict=True):
        rows.append([true_class, *(f"{count:,.6g}" for count in counts_of_class)])
    return TextTable(["true", *classes], rows)


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
    result = report.result
    rows = []
    for family in result.families:
        trial = result.best.get(family.name)
        if trial is None:
            rows.append([family.name, UNKNOWN, UNKNOWN, result.without[family.name]])
            continue
        accuracy = f"{100 * trial.accuracy:.1f} %" if math.isfinite(trial.accuracy) else UNKNOWN
        coefficients = ", ".join(f"{name}={value!r}" for name, value in trial.candidate.values.items())
        rows.append([family.name, accuracy, f"{trial.loss:.4f}", coefficients])
    return TextTable(["method", "validation accuracy", "validation loss", "coefficients"], rows)


def edge_notes(report: SearchReport) -> list[str]:
    """Return a line for each coefficient whose best values are at an end of its range, with a wider range."""
    notes_on_edges = []
    for method, edges in report.result.edges.items():
        for name, end in edges.items():
            wider = report.result.wider[method][name]
            notes_on_edges.append(
                f"{method}: the best values of {name} are at the end of its range, {end!r}: search a wider "
                f"range, {name}={wider.low!r}..{wider.high!r}"
            )
    return notes_on_edges


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
    cold = report.tuning.cold_from
    cooling = "" if cold is None else f"; colder from step {cold:,} on"
    chain_count = report.tuning.fresh_chains
    return (
        f"fresh runs on all training examples{cooling}: the averaged prediction of {chain_count} networks, "
        f"and means over single ones; {caption(fresh)}"
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
    low = estimate.low if math.isfinite(estimate.low) else math.nan
    high = estimate.high if math.isfinite(estimate.high) else math.nan
    known = Measured(estimate.value, low, high)
    if _is_in_percent(name):
        return known.percent()
    mean_text, low_text, high_text = _same_decimals(known)
    if low < high and low_text != high_text:
        return f"{mean_text} ({low_text} to {high_text})"
    return mean_text


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
