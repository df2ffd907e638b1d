"""Summaries of runs: how good the averaged prediction is, beside single networks and simple predictions."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table
from rich.text import Text

from heatbath.answers.forecasts import BRIEF, POSITIVE, find_measure
from heatbath.answers.simple import fitted_to, in_units
from heatbath.checks import is_real
from heatbath.cli.baseline import BALANCED
from heatbath.cli.telling import Told
from heatbath.datasets import Problem
from heatbath.datasets.arrays import MOSTLY
from heatbath.diagnostics import equipartition
from heatbath.partition import Partition
from heatbath.prediction import scores
from heatbath.runs.found import Found
from heatbath.runs.run import Run
from heatbath.schedules import Piecewise
from heatbath.statistics import SHARES, UNBOUNDED, Measured, student
from heatbath.tables.opening import NUMERAL
from heatbath.tasks import TASKS

Row = dict[str, Any]
AVERAGED, SINGLE = "averaged prediction", "one network"
FIXED = ("labels", "averaged", "single", "chains", "diverged", "temperatures")
LOSSES = {"binary": "log loss", "classes": "log loss", "counts": "loss", "regression": "squared error"}
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


def summary(told: Told) -> dict[str, Any]:
    """All that is said of a run, as plain values that JSON has."""
    run, plan, choice = told.run, told.run.plan, told.choice
    rows = [_row(told, place, labels) for place, (labels, _) in enumerate(plan.points)]
    return {
        "command": told.command,
        "problem": plan.problem.name,
        "task": plan.problem.task,
        "train_examples": plan.problem.X_train.shape[1],
        "hidden": list(plan.network.hidden),
        "steps": run.step,
        "batch": plan.batch,
        "chains": plan.chains,
        "seed": plan.seed,
        "judged_on": _judged_on(told),
        "balanced": plan.problem.class_factors is not None,
        "best": None if choice is None or choice.best is None else rows[choice.best]["labels"],
        "chosen": None if choice is None else _chosen(told),
        "rows": rows,
        "linear_fitted_to": fitted_to(plan.problem),
        "baselines": {name: _all(values) for name, (values, _) in told.baselines.items()},
        "loss_less_than": None if told.against is None else _all(told.against),
        "confusion": _confusion(told),
        "importance": [{"column": one.column, **measured(one.rise)} for one in told.columns],
        "found": _found(run),
    }


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


def _judged_on(told: Told) -> dict[str, Any] | None:
    if not told.answers:
        return None
    on = told.answers[0].examples
    return {"split": on.split, "examples": len(on), "of": on.of}


def _chosen(told: Told) -> dict[str, Any]:
    """How the best was chosen."""
    choice = told.choice
    assert choice is not None
    return {
        "by": f"the {LOSSES[told.run.problem.task]} of the averaged prediction",
        "examples": len(choice.choose),
        "fair": choice.fair,
        "losses": [finite(loss) for loss in choice.losses],
    }


def _confusion(told: Told) -> dict[str, Any] | None:
    """Counts by true class (rows) and predicted class (columns)."""
    answer = told.answer
    if answer is None or answer.forecast is None or not TASKS[told.run.problem.task].classes:
        return None
    said = answer.forecast
    counts = scores.confusion(said.mean, said.labels, said.weights)
    whole = counts.astype(np.int64) if said.weights is None else counts
    return {"classes": list(said.targets), "counts": whole.tolist()}


def _found(run: Run) -> dict[str, Any] | None:
    """What a run found by itself, with the stepsize, where it was found."""
    if run.found is None or not isinstance(run.partition, Partition):
        return None
    return ({"h": run.partition.h} if run.found.tried else {}) | run.found.plain()


def _row(told: Told, place: int, labels: dict[str, Any]) -> Row:
    """What is said of one method or point: of its averaged prediction, of its single networks, and what was
    noted in the end."""
    run = told.run
    chains = slice(place * run.plan.chains, (place + 1) * run.plan.chains)
    alive = run.died[chains] < 0
    answer = told.answers[place] if told.answers else None
    row: Row = {
        "labels": {name: _label(value) for name, value in labels.items()},
        "averaged": {} if answer is None else _all(answer.averaged),
        "single": {} if answer is None else _all(answer.single),
        "chains": len(alive),
        "diverged": int(np.count_nonzero(~alive)),
    }
    for name, split in measures(run):
        values = run.data[name].sel(split=split).values[chains][alive, -1]
        values = values[np.isfinite(values)]
        row[f"{split}_{name}"] = _over_chains(values, SHARES if name == "accuracy" else _losses(run))
    if "noise" in run.data:
        row |= _noises(run, run.data["noise"].values[chains][alive])
    single = len(run.plan.points) == 1 or run.plan.axes == ["method"]
    row["temperatures"] = _temperatures(run, labels) if single and alive.any() else {}
    return row


def _losses(run: Run) -> tuple[float, float]:
    """The bounds of the loss: that of counts, and one with a variance of the network, may be negative."""
    return UNBOUNDED if run.problem.task == "counts" or run.plan.likelihood.varying else POSITIVE


def _over_chains(values: NDArray[np.float64], bounds: tuple[float, float]) -> dict[str, float | None] | None:
    return measured(student(values, bounds=bounds)) if values.size else None


def _noises(run: Run, variances: NDArray[np.float64]) -> Row:
    """The standard deviation of the data around the networks, over the second half of a run, by target."""
    late = run.data["step"].values > run.step // 2
    deviations = np.sqrt(run.plan.likelihood.in_units(variances[:, late].mean(axis=1)))
    names = [f"noise_{target}" for target in run.problem.targets] if deviations.shape[1] > 1 else ["noise"]
    return {name: _over_chains(values, POSITIVE) for name, values in zip(names, deviations.T, strict=True)}


def _temperatures(run: Run, labels: dict[str, Any]) -> dict[str, Any]:
    """Kinetic temperatures over the second half of a run, by part, beside their targets.

    Where a temperature is changed on the way, over the second half of what comes after that.
    """
    selected = run.select(**labels) if labels else run
    methods = [part.method for part in selected.plan.parts() if part.method.measures_temperature]
    if not methods or any(method.tempering for method in methods):
        return {}
    taus = [method.temperature for method in methods]
    changed = max((tau.steps[-1] for tau in taus if isinstance(tau, Piecewise)), default=0)
    burn_in = max((min(changed, run.step) + run.step) // 2, _even_after(run.data["step"].values))
    burn_in = burn_in if (run.data["step"].values > burn_in).any() else 0
    table = equipartition(selected, burn_in=burn_in)
    columns = {"target": "target", "mean": "temperature", "low": "low", "high": "high"}
    return {
        str(part): {name: finite(float(table[column].values[i])) for name, column in columns.items()}
        for i, part in enumerate(table["part"].values)
    }


def _even_after(steps: NDArray[np.int64]) -> int:
    """The step after which records are evenly spaced, but for 1: those of a run that went on need not be."""
    apart = np.diff(steps)[::-1]
    uneven = np.flatnonzero(np.maximum.accumulate(apart) - np.minimum.accumulate(apart) > 1)
    return int(steps[len(apart) - uneven[0] - 1]) if uneven.size else 0


def measured(estimate: Measured) -> dict[str, float | None]:
    """A mean and the ends of its interval as JSON has them."""
    return {name: finite(value) for name, value in zip(("mean", "low", "high"), estimate, strict=True)}


def _all(values: dict[str, Measured]) -> dict[str, dict[str, float | None]]:
    return {name: measured(value) for name, value in values.items()}


def _label(value: Any) -> float | str:
    return float(value) if is_real(value) and math.isfinite(value) else str(value)


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
