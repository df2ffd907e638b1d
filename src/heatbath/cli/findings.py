"""What is said of a search: what it found, and how that does in fresh runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rich.table import Table

from heatbath.cli.summaries import about, as_markdown, as_table, finite, markdown, summary
from heatbath.cli.telling import Told
from heatbath.cli.tuning import Tuning
from heatbath.tuning import Trial, Tuned

SAID = ("candidates", "chains", "by", "validation", "seed")  # of its settings
SCORES = ("loss", "accuracy", "single_loss", "single_accuracy")


def search_summary(tuning: Tuning, tuned: Tuned, told: Told | None) -> dict[str, Any]:
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
    if told is not None:
        results |= summary(told)
        for row in results["rows"]:
            row["temperatures"] = {}
    results["best"] = {"method": tuned.winner}
    results["colder_from"] = tuning.cold
    results["search"] = {name: settings[name] for name in SAID}
    results["search"]["methods"] = {
        family.name: _method(tuning, tuned, family.name) for family in tuned.families
    }
    return results


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
