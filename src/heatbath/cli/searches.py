"""What is said of a search: what it found, and how that does in fresh runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from heatbath.cli.summaries import Row, as_markdown, as_table, finite, markdown, measured, summary
from heatbath.cli.tuning import Tuning
from heatbath.runs.run import Run
from heatbath.statistics import student
from heatbath.tasks import TASKS, each_class
from heatbath.tuning import Trial, Tuned
from heatbath.tuning.search import losses

SAID = ("candidates", "chains", "by", "validation", "seed")  # of its settings
SCORES = ("loss", "accuracy", "single_loss", "single_accuracy")


def search_summary(tuning: Tuning, tuned: Tuned, run: Run | None) -> dict[str, Any]:
    """All that is said of a search, as plain values that JSON has.

    The best method is that of the search: test examples have no part in any choice.
    """
    settings = tuning.settings["search"]
    results: dict[str, Any] = {
        "command": "tune",
        "problem": tuning.problem.name,
        "task": tuning.problem.task,
        "hidden": list(tuning.search.network.hidden),
        "steps": tuning.search.steps,
        "batch": settings["batch"],
        "chains": tuning.fresh,
        "seed": tuning.seed,
        "rows": [],
    }
    if run is not None:
        results |= summary("tune", run)
        for row in results["rows"]:
            row |= {"temperatures": {}, **_together(run.select(**row["labels"]))}
    results["best"] = {"method": tuned.winner}
    results["colder_from"] = tuning.cold
    results["search"] = {name: settings[name] for name in SAID}
    results["search"]["methods"] = {
        family.name: _method(tuning, tuned, family.name) for family in tuned.families
    }
    return results


def search_markdown(results: dict[str, Any]) -> str:
    """The tables in Markdown, and the command lines."""
    fresh = as_markdown(results, _caption(results)) if results["rows"] else f"# {results['problem']}\n"
    found = results["search"]["methods"]
    commands = [one["command"] for one in found.values() if "command" in one]
    columns, rows = _found(results)
    lines = [
        "",
        f"## {_title(results)}",
        "",
        *markdown(columns, rows),
        "",
        *(f"- {t}" for t in _edges(found)),
    ]
    again = ", as in the fresh runs" if results["rows"] else ""
    lines += ["", f"Training with what was found{again}:", "", "```", *commands, "```"]
    return fresh + "\n".join(lines) + "\n"


def search_tables(results: dict[str, Any]) -> list[Table | str]:
    """What a terminal shows, one after the other."""
    columns, rows = _found(results)
    found = Table(title=_title(results), title_justify="left")
    for column in columns:
        found.add_column(column, justify="right" if column.startswith("validation") else "left")
    for row in rows:
        found.add_row(*row)
    methods = results["search"]["methods"]
    fresh = [as_table(results, _caption(results))] if results["rows"] else []
    best = methods[results["best"]["method"]]["command"]
    return [found, *_edges(methods), *fresh, f"train with the best: {best}"]


def _method(tuning: Tuning, tuned: Tuned, name: str) -> dict[str, Any]:
    """What is said of a method: how many of its candidates diverged, and of its best, or why it has none."""
    own = [trial for trial in tuned.trials if trial.candidate.family.name == name]
    told: dict[str, Any] = {"diverged": sum(trial.diverged for trial in own)}
    if name not in tuned.best:
        return told | {"without": tuned.without[name]}
    cold = "" if tuning.cold is None else f".cooled({tuning.cold})"
    trial: Trial = tuned.best[name]
    return told | {
        "values": dict(trial.candidate.values),
        "steps": trial.steps,
        **{score: finite(getattr(trial, score)) for score in SCORES},
        "importance": tuned.importance.get(name, {}),
        "edges": tuned.edges.get(name, {}),
        "wider": {key: asdict(range) for key, range in tuned.wider.get(name, {}).items()},
        "code": f"{tuned.code(name)}{cold}",
        "command": tuning.command(name, trial.candidate.values),
    }


def _together(run: Run) -> Row:
    """Scores of what the runs of one method say together of the test examples; in a regression also the RMSE
    of each, in the units of the data."""
    problem = run.problem
    if not problem.X_test.shape[1]:
        return {}
    y, weights = problem.Y_test[0], problem.relative_weights("test")
    known = np.ones(len(y)) if weights is None else weights[0]
    each = run.outputs(problem.X_test[0] * problem.scale + problem.shift)[run.died < 0]
    mean = each.mean(axis=0) if len(each) else None
    if problem.task == "regression":
        y = y * problem.target_scale + problem.target_shift
        single = [_rmse(one, y, known) for one in each]
        return {
            "test_rmse": measured(student(single)) if single else None,
            "averaged_rmse": None if mean is None else _alone(_rmse(mean, y, known)),
        }
    row: Row = {}
    if TASKS[problem.task].classes:
        right = None if mean is None else each_class(mean).argmax(axis=-1) == y[:, 0]
        row["averaged_accuracy"] = None if right is None else _alone(float((right * known).mean()))
    loss = None if mean is None else (losses(problem.task, mean, y) * known).mean()
    return row | {"averaged_loss": None if loss is None else _alone(float(loss))}


def _rmse(values: NDArray[np.float64], y: NDArray[np.float64], known: NDArray[np.float64]) -> float:
    return math.sqrt(float((np.square(values - y).mean(axis=-1) * known).mean()))


def _alone(value: float) -> dict[str, float | None]:
    """A number without an interval."""
    return {"mean": value, "low": None, "high": None}


def _caption(results: dict[str, Any]) -> str:
    cold = results["colder_from"]
    end = "" if cold is None else f"; colder from step {cold:,} on"
    chains = results["chains"]
    return (
        f"fresh runs on all training examples{end}: means over {chains} single networks (95 % intervals), "
        "and their averaged prediction"
    )


def _title(results: dict[str, Any]) -> str:
    search = results["search"]
    share = f"{100 * search['validation']:.3g} % of the training examples"
    return f"Found among {search['candidates']} candidates of each method, by {search['by']} on {share}"


def _found(results: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
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


def _edges(methods: Mapping[str, Any]) -> list[str]:
    """Coefficients whose best values are at an end of their range, in words."""
    return [
        f"{name}: the best values of {key} are at the end of its range, {end!r}: look further with "
        f"{key}={method['wider'][key]['low']!r}..{method['wider'][key]['high']!r}"
        for name, method in methods.items()
        for key, end in method.get("edges", {}).items()
    ]
