"""Summaries of runs: a row for each method or point, with means over chains and their 95 % intervals."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from heatbath.checks import is_real
from heatbath.diagnostics import equipartition
from heatbath.partition import Partition
from heatbath.runs.found import Found
from heatbath.runs.run import Run
from heatbath.schedules import Piecewise
from heatbath.statistics import Measured, student
from heatbath.tasks import TASKS

Row = dict[str, Any]
CAPTION = "means over chains (95 % intervals)"


def measures(run: Run) -> list[tuple[str, str]]:
    """What is measured, as (accuracy or loss, split), the most telling first."""
    splits = ["test", "train"] if run.problem.X_test.shape[1] else ["train"]
    names = ["accuracy", "loss"] if TASKS[run.problem.task].classes else ["loss"]
    return [(name, split) for name in names for split in splits]


def summary(command: str, run: Run) -> dict[str, Any]:
    """All that is said of a run, as plain values that JSON has."""
    plan = run.plan
    rows = [_row(run, place, labels) for place, (labels, _) in enumerate(plan.points)]
    name, split = measures(run)[0]
    key = f"{split}_{name}"
    known = [row for row in rows if row[key] is not None]
    best = (max if name == "accuracy" else min)(known, key=lambda row: row[key]["mean"], default=None)
    return {
        "command": command,
        "problem": plan.problem.name,
        "task": plan.problem.task,
        "hidden": list(plan.network.hidden),
        "steps": run.step,
        "batch": plan.batch,
        "chains": plan.chains,
        "seed": plan.seed,
        "best": None if best is None or len(rows) == 1 else best["labels"],
        "rows": rows,
        "found": _found(run),
    }


def as_json(values: dict[str, Any]) -> str:
    """JSON, indented."""
    return json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def as_markdown(results: dict[str, Any], caption: str = CAPTION) -> str:
    """A table of Markdown under a heading."""
    columns, rows = cells(results)
    lines = [f"# {title(results)}", "", *markdown(columns, rows), "", f"{caption[0].upper()}{caption[1:]}."]
    lines += ["", *(f"- {note}" for note in notes(results))] if results["found"] else []
    return "\n".join(lines) + "\n"


def as_table(results: dict[str, Any], caption: str = CAPTION) -> Table:
    """A table for the terminal: all of a single row, one below the other; of several, what fits."""
    columns, rows = cells(results)
    table = Table(title=title(results), caption=caption, title_justify="left")
    if len(rows) == 1:
        table.show_header = False
        for pair in zip(columns, rows[0], strict=True):
            table.add_row(*pair)
        return table
    shown = [i for i, column in enumerate(columns) if not column.startswith(("train ", "temperature "))]
    for i in shown:
        table.add_column(columns[i], justify="left" if columns[i] == "method" else "right")
    for row in rows:
        table.add_row(*(row[i] for i in shown))
    return table


def title(results: dict[str, Any]) -> str:
    """What was run."""
    sizes = "-".join(map(str, results["hidden"])) or "no"
    counts = f"{results['steps']:,} steps, batch {results['batch']}, {results['chains']} chains"
    return f"{results['problem']}, {sizes} hidden units, {counts}"


def cells(results: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """The columns of the table, and its rows, as text; columns that say nothing are left out."""
    rows = results["rows"]
    fixed = ("labels", "chains", "diverged", "temperatures")
    labels, names = list(rows[0]["labels"]), [name for name in rows[0] if name not in fixed]
    parts = list(dict.fromkeys(part for row in rows for part in row["temperatures"]))
    lost = any(row["diverged"] for row in rows)
    columns = [*labels, *(name.replace("_", " ") for name in names)]
    columns += [f"temperature {part} / target" for part in parts] + (["diverged"] if lost else [])
    body = []
    for row in rows:
        line = [_short(row["labels"][label]) for label in labels]
        line += [_interval(row[name], percent="accuracy" in name) for name in names]
        line += [_heat(row["temperatures"].get(part)) for part in parts]
        body.append(line + ([f"{row['diverged']} of {row['chains']}"] if lost else []))
    return columns, body


def notes(results: dict[str, Any]) -> list[str]:
    """What a run found by itself, in words."""
    if not results["found"]:
        return []
    found = dict(results["found"])
    h = [f"h: {found.pop('h'):.4g}"] if "h" in found else []
    return [*h, *Found(**found).summary().splitlines()]


def _found(run: Run) -> dict[str, Any] | None:
    """What a run found by itself, with the stepsize, where it was found."""
    if run.found is None or not isinstance(run.partition, Partition):
        return None
    return ({"h": run.partition.h} if run.found.tried else {}) | run.found.plain()


def _row(run: Run, place: int, labels: dict[str, Any]) -> Row:
    """What is said of one method or point."""
    chains = slice(place * run.plan.chains, (place + 1) * run.plan.chains)
    alive = run.died[chains] < 0
    row: Row = {
        "labels": {name: _label(value) for name, value in labels.items()},
        "chains": len(alive),
        "diverged": int(np.count_nonzero(~alive)),
    }
    for name, split in measures(run):
        values = run.data[name].sel(split=split).values[chains][alive, -1]
        values = values[np.isfinite(values)]
        row[f"{split}_{name}"] = measured(student(values)) if values.size else None
    if "noise" in run.data:
        row |= _noises(run, run.data["noise"].values[chains][alive])
    single = len(run.plan.points) == 1 or run.plan.axes == ["method"]
    row["temperatures"] = _temperatures(run, labels) if single and alive.any() else {}
    return row


def _noises(run: Run, variances: NDArray[np.float64]) -> Row:
    """The standard deviation of the data around the networks, over the second half of a run, by target."""
    late = run.data["step"].values > run.step // 2
    deviations = np.sqrt(run.plan.likelihood.in_units(variances[:, late].mean(axis=1)))
    names = [f"noise_{target}" for target in run.problem.targets] if deviations.shape[1] > 1 else ["noise"]
    return {
        name: measured(student(values)) if values.size else None
        for name, values in zip(names, deviations.T, strict=True)
    }


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
    burn_in = (min(changed, run.step) + run.step) // 2
    burn_in = burn_in if (run.data["step"].values > burn_in).any() else 0
    table = equipartition(selected, burn_in=burn_in)
    columns = {"target": "target", "mean": "temperature", "low": "low", "high": "high"}
    return {
        str(part): {name: finite(float(table[column].values[i])) for name, column in columns.items()}
        for i, part in enumerate(table["part"].values)
    }


def measured(estimate: Measured) -> dict[str, float | None]:
    """A mean and the ends of its interval as JSON has them."""
    return {name: finite(value) for name, value in zip(("mean", "low", "high"), estimate, strict=True)}


def _label(value: Any) -> float | str:
    return float(value) if is_real(value) and math.isfinite(value) else str(value)


def finite(value: float) -> float | None:
    """A number as JSON has it."""
    return value if math.isfinite(value) else None


def _interval(estimate: dict[str, Any] | None, percent: bool) -> str:
    """A mean with its interval: 93.4 % (92.9 to 93.9)."""
    if estimate is None or estimate["mean"] is None:
        return "–"
    low, high = (math.nan if estimate[end] is None else estimate[end] for end in ("low", "high"))
    measured = Measured(estimate["mean"], low, high)
    return measured.percent() if percent else measured.text(digits=4)


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
