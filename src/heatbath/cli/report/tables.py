"""Summaries of runs: how good the averaged prediction is, beside single networks and simple predictions."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from heatbath._internal.checks import is_real
from heatbath.cli.report.baseline import BALANCED
from heatbath.datasets import Problem
from heatbath.datasets.from_arrays import MOSTLY
from heatbath.datasets.tables.sniff import NUMERAL
from heatbath.datasets.tasks import TASKS
from heatbath.diagnostics.statistics import Measured
from heatbath.evaluation.baseline_models import in_units
from heatbath.evaluation.forecasts import BRIEF, find_measure
from heatbath.runs.adaptation_record import Found
from heatbath.runs.run import Run

Row = dict[str, Any]
AVERAGED, SINGLE = "averaged prediction", "one network"
FIXED = ("labels", "averaged", "single", "chains", "diverged", "temperatures")
WIDTH = 120  # of a line of JSON
HEADLINE = ("accuracy", "auc", "r2", "rmse")
MOST_CLASSES = 10  # that are named at the start, and whose confusion is shown as a table
CONFUSION = "Examples of each class (rows), and what they were taken for"
DIGITS, LONGEST = 3, 7  # of the largest number of an interval, and after the point
ROUNDING = 1e-14  # what is below is nothing


def measures(run: Run) -> list[tuple[str, str]]:
    """What is noted on the way, as (accuracy or loss, split), the most telling first."""
    splits = ["test", "train"] if run.problem.X_test.shape[1] else ["train"]
    names = ["accuracy", "loss"] if TASKS[run.problem.task].classes else ["loss"]
    return [(name, split) for name in names for split in splits]


def as_json(values: dict[str, Any]) -> str:
    """JSON, indented; what holds nothing but numbers and names is on one line, if it fits."""
    text = json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False)
    for brackets in (r"\{{\n{}\n\s*\}}", r"\[\n{}\n\s*\]"):  # within a name there are no line breaks
        text = re.sub(brackets.format(r"[^][{}]*?"), _on_one_line, text)
    return text + "\n"


def _on_one_line(match: re.Match[str]) -> str:
    words = re.sub(r"\n\s*", " ", match[0])
    return f"{words[0]}{words[2:-2]}{words[-1]}" if len(words) <= WIDTH else match[0]


def as_markdown(results: dict[str, Any], caption: str | None = None) -> str:
    """A table of Markdown under a heading."""
    columns, rows = cells(results)
    lines = [f"# {title(results)}", "", *markdown(columns, rows), "", sentence(caption or about(results))]
    if (columns_and_rows := confusion_cells(results)) is not None:
        lines += ["", f"## {CONFUSION}", "", *markdown(*columns_and_rows)]
    lines += ["", *(f"- {note}" for note in notes(results))] if notes(results) else []
    return "\n".join(lines) + "\n"


def as_table(results: dict[str, Any], caption: str | None = None) -> Table:
    """A table for the terminal: of several points, what fits."""
    columns, rows = narrow_cells(results)
    table = Table(title=title(results), caption=caption or about(results), title_justify="left")
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i == 0 or column == "method" else "right")
    for row in rows:
        table.add_row(*row)
    return table


def confusion_cells(results: dict[str, Any]) -> tuple[list[str], list[list[str]]] | None:
    """The columns and rows of how many examples of each class were taken for each."""
    found = results.get("confusion")
    if found is None or len(found["classes"]) > MOST_CLASSES:
        return None
    rows = zip(found["classes"], found["counts"], strict=True)
    return ["true", *found["classes"]], [[name, *(f"{count:,.6g}" for count in row)] for name, row in rows]


def confusion_tables(results: dict[str, Any]) -> list[Table | str]:
    """The same for the terminal, under a line that says what it is, if there is one."""
    if (columns_and_rows := confusion_cells(results)) is None:
        return []
    columns, rows = columns_and_rows
    table = Table()
    for i, column in enumerate(columns):
        table.add_column(Text(column), justify="right" if i else "left")
    for row in rows:
        table.add_row(*map(Text, row))
    return [f"{CONFUSION}:", table]


def title(results: dict[str, Any]) -> str:
    """What was run."""
    sizes = "-".join(map(str, results["hidden"])) or "no"
    counts = f"{results['steps']:,} steps, batch {results['batch']}, {results['chains']} chains"
    return f"{results['problem']}, {sizes} hidden units, {counts}"


def about(results: dict[str, Any]) -> str:
    """What the numbers are of."""
    on = results["judged_on"]
    if on is None:
        return "means over chains, which have different data sets (95 % intervals)"
    some = f"{on['examples']:,} of {on['of']:,}" if on["examples"] < on["of"] else f"{on['examples']:,}"
    what = "example" if on["of"] == 1 else "examples"
    kind = f"test {what}"
    if on["split"] == "train":
        kind = f"TRAINING {what}, as there are no others: new data will be predicted less well"
    text = f"{some} {kind}; 95 % intervals over examples, of {SINGLE} over chains"
    name = list(results["baselines"])[-1]
    fitted, there = results["linear_fitted_to"], results["train_examples"]
    if fitted < there and name != "constant":
        text += f"; {name} is of {fitted:,} of {there:,} training examples"
    if results["balanced"]:
        text += f"; {BALANCED}"
    chosen = results["chosen"]
    if chosen is not None and results["best"] is not None:
        text += f"; * is the best by {chosen['by']}"
        text += (
            f" on {chosen['examples']:,} others" if chosen["fair"] else " on the same: too good to be true"
        )
    return text


def sentence(text: str) -> str:
    """With a capital and a full stop."""
    return f"{text[0].upper()}{text[1:]}."


def cells(results: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """The columns of the table, and its rows, as text; what says nothing is left out.

    Of a single point there is a row for each measure, otherwise one for each point and each baseline.
    """
    return _by_measure(results) if len(results["rows"]) == 1 else _by_point(results)


def narrow_cells(results: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """As `cells`, of several points without training examples and temperatures."""
    columns, rows = cells(results)
    single, long = len(results["rows"]) == 1, ("train ", "temperature ")
    shown = [i for i, name in enumerate(columns) if single or not name.startswith(long)]
    return [columns[i] for i in shown], [[row[i] for i in shown] for row in rows]


def _by_measure(results: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    (row,), bases = results["rows"], results["baselines"]
    own = [row["averaged"], row["single"], *bases.values()]
    names = list(dict.fromkeys(name for values in own for name in values))
    body = [[named(name), *(said(name, values.get(name)) for values in own)] for name in names]
    gap = [""] * len(bases)
    for name, value in row.items():
        if name not in FIXED and value is not None and not (name.startswith("test") and names):
            body.append([name.replace("_", " "), "", said(name, value), *gap])
    for part, heat in row["temperatures"].items():
        body.append([f"temperature {part} / target", "", _heat(heat), *gap])
    if row["diverged"]:
        body.append(["diverged", "", f"{row['diverged']} of {row['chains']}", *gap])
    columns = ["", AVERAGED, SINGLE, *bases]
    used = [i for i in range(len(columns)) if i == 0 or any(line[i] not in ("", "–") for line in body)]
    return [columns[i] for i in used], [[line[i] for i in used] for line in body]


def _by_point(results: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    rows, bases = results["rows"], results["baselines"]
    labels = list(rows[0]["labels"])
    brief = [
        name for name in dict.fromkeys(n for row in rows for n in row["averaged"]) if _is_brief(name, rows)
    ]
    names = [name for name in rows[0] if name not in FIXED and not (name.startswith("test") and brief)]
    parts = list(dict.fromkeys(part for row in rows for part in row["temperatures"]))
    lost = any(row["diverged"] for row in rows)
    columns = [*labels, *(f"{named(name)}, averaged" for name in brief)]
    columns += [*(f"{named(name)}, {SINGLE}" for name in brief), *(name.replace("_", " ") for name in names)]
    columns += [f"temperature {part} / target" for part in parts] + (["diverged"] if lost else [])
    body = []
    for row in rows:
        star = " *" if row["labels"] == results["best"] else ""
        line = [_short(row["labels"][label]) for label in labels]
        line[-1] += star
        line += [said(name, row[kind].get(name)) for kind in ("averaged", "single") for name in brief]
        line += [said(name, row[name]) for name in names]
        line += [_heat(row["temperatures"].get(part)) for part in parts]
        body.append(line + ([f"{row['diverged']} of {row['chains']}"] if lost else []))
    for base, values in bases.items() if brief else ():
        line = [base, *[""] * (len(labels) - 1), *(said(name, values.get(name)) for name in brief)]
        body.append(line + [""] * (len(columns) - len(line)))
    return columns, body


def _is_brief(name: str, rows: list[Row]) -> bool:
    """Whether all rows that have anything have it, and it is one of those that are said of many."""
    return _is_one_of(name, BRIEF) and all(name in row["averaged"] for row in rows if row["averaged"])


def _is_one_of(name: str, measures: tuple[str, ...]) -> bool:
    return any(name == one or name.startswith(f"{one}_") for one in measures)


def named(name: str) -> str:
    """A measure in words."""
    measure, target = find_measure(name)
    return f"{measure.label}, {target}" if target else measure.label


def find_headline(values: dict[str, Any]) -> list[str]:
    """The measures that are said first: of each target one or two."""
    return [name for name in values if _is_one_of(name, HEADLINE)]


def notes(results: dict[str, Any]) -> list[str]:
    """What a run found by itself, in words."""
    if not results["found"]:
        return []
    found = dict(results["found"])
    h = [f"h: {found.pop('h'):.4g}"] if "h" in found else []
    return [*h, *Found(**found).summary().splitlines()]


def target_note(problem: Problem, section: Mapping[str, Any]) -> str:
    """What is to be predicted of a table, and how to say otherwise."""
    named = section["target"]
    names = [named] if isinstance(named, str) else named
    Y = in_units(problem, np.concatenate([problem.Y_train[0], problem.Y_test[0]]))
    hint = ""
    if TASKS[problem.task].classes:
        counts = np.bincount(Y[:, 0].astype(np.int64), minlength=len(problem.targets))
        pairs = [*zip(problem.targets, counts, strict=True)]
        shown = ", ".join(f"{name} ({count:,})" for name, count in pairs[:MOST_CLASSES])
        more = f" and {len(pairs) - MOST_CLASSES:,} more" if len(pairs) > MOST_CLASSES else ""
        what = f"{len(pairs)} classes, {shown}{more}"
        if all(NUMERAL.fullmatch(name) for name in problem.targets):
            hint = "; if these are numbers to be predicted, say --task regression"
    else:
        what = "numbers" if problem.task == "regression" else "counts"
        if problem.task == "regression" and np.allclose(Y, np.abs(np.round(Y)), rtol=1e-9, atol=1e-9):
            hint = "; if they count something, say --task counts"
            if Y.shape[1] == 1 and len(np.unique(Y)) <= MOSTLY * len(Y):
                hint += ", and if they are numbers of classes, --task classes"
    label = "target" if len(names) == 1 else "targets"
    return f"{label} {', '.join(names)}: {what}{hint if 'task' not in section else ''}"


def measured(estimate: Measured) -> dict[str, float | None]:
    """A mean and the ends of its interval as JSON has them."""
    return {name: finite(value) for name, value in zip(("mean", "low", "high"), estimate, strict=True)}


def finite(value: float) -> float | None:
    """A number as JSON has it."""
    return value if math.isfinite(value) else None


def said(name: str, estimate: dict[str, Any] | None) -> str:
    """A number with its interval: 93.4 % (92.9 to 93.9), or 1,240 (1,180 to 1,300)."""
    if estimate is None or estimate["mean"] is None:
        return "–"
    low, high = (math.nan if estimate[end] is None else estimate[end] for end in ("low", "high"))
    value = Measured(estimate["mean"], low, high)
    if _is_share(name):
        return value.percent()
    middle, low_text, high_text = _alike(value)
    return f"{middle} ({low_text} to {high_text})" if low < high and low_text != high_text else middle


def _is_share(name: str) -> bool:
    """Whether it is told in per cent: of several targets one may be called accuracy."""
    if name.partition("_")[0] in ("test", "train", "noise"):  # noted on the way
        return name in ("test_accuracy", "train_accuracy")
    return find_measure(name)[0].percent


def _alike(numbers: Iterable[float]) -> list[str]:
    """Numbers with as many digits after the point, three of the largest."""
    known = list(numbers)
    largest = max(abs(number) for number in known if math.isfinite(number))
    if largest < ROUNDING:
        return ["0" for _ in known]
    digits = DIGITS - 1 - math.floor(math.log10(largest))
    if digits > LONGEST:
        return [f"{number:.{DIGITS - 1}e}" for number in known]
    digits = max(digits, DIGITS) if largest <= 1 else digits
    return [f"{round(number, digits) + 0.0:,.{max(digits, 0)}f}" for number in known]  # no -0


def _heat(estimate: dict[str, Any] | None) -> str:
    if estimate is None or estimate["mean"] is None:
        return "–"
    return f"{estimate['mean']:.2e} / {estimate['target']:.2e}"


def _short(value: Any) -> str:
    return f"{value:g}" if is_real(value) else str(value)


def markdown(columns: list[str], rows: list[list[str]]) -> list[str]:
    """The lines of a table."""

    def line(row: list[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"

    return [line(columns), line(["---"] * len(columns)), *map(line, rows)]


def search_markdown(results: dict[str, Any]) -> str:
    """The tables in Markdown, and the command lines."""
    fresh = as_markdown(results, fresh_caption(results)) if results["rows"] else f"# {results['problem']}\n"
    found = results["search"]["methods"]
    commands = [one["command"] for one in found.values() if "command" in one]
    columns, rows = found_cells(results)
    lines = [
        "",
        f"## {found_title(results)}",
        "",
        *markdown(columns, rows),
        "",
        *(f"- {t}" for t in edges(found)),
    ]
    again = ", as in the fresh runs" if results["rows"] else ""
    lines += ["", f"Training with what was found{again}:", "", "```", *commands, "```"]
    return fresh + "\n".join(lines) + "\n"


def search_tables(results: dict[str, Any]) -> list[Table | str]:
    """What a terminal shows, one after the other."""
    columns, rows = found_cells(results)
    found = Table(title=found_title(results), title_justify="left")
    for column in columns:
        found.add_column(column, justify="right" if column.startswith("validation") else "left")
    for row in rows:
        found.add_row(*row)
    methods = results["search"]["methods"]
    fresh = [as_table(results, fresh_caption(results))] if results["rows"] else []
    best = methods[results["best"]["method"]]["command"]
    return [found, *edges(methods), *fresh, f"train with the best: {best}"]


def fresh_caption(results: dict[str, Any]) -> str:
    """What the numbers of fresh runs are of."""
    cold = results["colder_from"]
    end = "" if cold is None else f"; colder from step {cold:,} on"
    chains = results["chains"]
    return (
        f"fresh runs on all training examples{end}: the averaged prediction of {chains} networks, and means "
        f"over single ones; {about(results)}"
    )


def found_title(results: dict[str, Any]) -> str:
    """How the search has looked."""
    search = results["search"]
    share = f"{100 * search['validation']:.3g} % of the training examples"
    return f"Found among {search['candidates']} candidates of each method, by {search['by']} on {share}"


def found_cells(results: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """The columns and rows of what was found."""
    rows = []
    for name, method in results["search"]["methods"].items():
        if "values" not in method:
            rows.append([name, "–", "–", method["without"]])
            continue
        accuracy = "–" if method["accuracy"] is None else f"{100 * method['accuracy']:.1f} %"
        values = ", ".join(f"{key}={value!r}" for key, value in method["values"].items())
        rows.append([name, accuracy, f"{method['loss']:.4f}", values])
    return ["method", "validation accuracy", "validation loss", "coefficients"], rows


def edges(methods: Mapping[str, Any]) -> list[str]:
    """Coefficients whose best values are at an end of their range, in words."""
    return [
        f"{name}: the best values of {key} are at the end of its range, {end!r}: look further with "
        f"{key}={method['wider'][key]['low']!r}..{method['wider'][key]['high']!r}"
        for name, method in methods.items()
        for key, end in method.get("edges", {}).items()
    ]
