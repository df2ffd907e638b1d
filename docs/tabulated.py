"""The tables of some pages, made of what the code says of itself, and of what benchmarks have measured.

    python docs/tabulated.py

writes them anew, between the marks on each page; a test sees to it that they are as they would be made.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any

import typer

import heatbath as hb
from heatbath.cli import app

DOCS = Path(__file__).parent
RESULTS = DOCS.parent / "benchmarks" / "results"
OWN, SEVERAL = "", 4  # options of a command itself, and from how many commands on they are in one table
MEASURED = DOCS.parent / "benchmarks" / "results" / "explorer.json"
BEGIN, END = "<!-- made by docs/tabulated.py -->\n", "<!-- end -->\n"


def options() -> str:
    """Arguments and options of every command; what several commands share is in one table."""
    group: Any = typer.main.get_command(app)
    commands: dict[str, Any] = dict(group.commands)
    panels: dict[str, dict[str, list[str]]] = {}  # of each row, which commands have it
    for name, command in commands.items():
        for parameter in command.params:
            if parameter.name != "help":
                panel = getattr(parameter, "rich_help_panel", None) or OWN
                panels.setdefault(panel, {}).setdefault(_row(parameter), []).append(name)
    own = panels.pop(OWN)
    parts = [_table("heatbath", [_row(parameter) for parameter in group.params if parameter.name != "help"])]
    parts += [
        _table(
            f"heatbath {name}", [row for row, names in own.items() if name in names and len(names) < SEVERAL]
        )
        for name in commands
    ]
    several = {row: names for row, names in own.items() if len(names) >= SEVERAL}
    parts.append(
        _table("What most commands have", [f"{row} {', '.join(several[row])} |" for row in several], "of")
    )
    for panel, rows in panels.items():
        takers = [name for name in commands if any(name in names for names in rows.values())]
        parts.append(_table(f"{panel}: {', '.join(takers)}", list(rows)))
    return "\n".join(filter(None, parts))


def _table(title: str, rows: list[str], *more: str) -> str:
    head = ["option", "", *more]
    lines = [f"| {' | '.join(head)} |", f"| {' | '.join(['---'] * len(head))} |", *rows]
    return f"### {title}\n\n" + "\n".join(lines) + "\n" if rows else ""


def _row(parameter: Any) -> str:
    """An option, or an argument, and what it means."""
    names = [f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts) if name.startswith("-")]
    text = (parameter.help or "").replace("|", "\\|")
    return f"| {', '.join(names) or f'`{parameter.metavar or parameter.name.upper()}`'} | {text} |"


def parameters() -> str:
    """What the docstrings of both estimators say of their parameters, and their defaults; one that is said in
    the words on another is in its row."""
    rows: dict[str, str] = {}
    for kind in (hb.ThermodynamicRegressor, hb.ThermodynamicClassifier):
        entries = re.findall(r"^    - (`.*?)(?=^    - |^$)", kind.__doc__ or "", re.MULTILINE | re.DOTALL)
        said = dict(" ".join(entry.split()).split(": ", 1) for entry in entries)
        defaults = {name: p.default for name, p in signature(kind).parameters.items()}
        alone = {name for names in said for name in _quoted(names)}
        for names, text in said.items():
            chosen = [*_quoted(names), *(n for n in _quoted(text) if n in defaults and n not in alone)]
            chosen = list(dict.fromkeys(chosen))
            values = ", ".join(f"`{defaults[name]!r}`" for name in chosen)
            rows.setdefault(names, f"| {', '.join(f'`{name}`' for name in chosen)} | {values} | {text} |")
    return "\n".join(["| parameter | default | |", "| --- | --- | --- |", *rows.values(), ""])


def _quoted(text: str) -> list[str]:
    return re.findall(r"`(\w+)`", text)


def measured() -> str:
    """What the explorer was measured to do; nothing where it was not."""
    if not MEASURED.exists():
        return ""
    found = json.loads(MEASURED.read_text(encoding="utf-8"))
    titles = {"chromium": "Chromium", "client": "a bare client"}
    head = ["pages", "frames/s", "share of the bare engine's speed", "control answered, ms", "shown, ms"]
    rows = [
        f"| {count} in {titles[kind]} | {row['frames']:.0f} | {row['share']:.2f} | {row['answer']:.0f} "
        f"| {row['shown']:.0f} |"
        for kind in titles
        for count, row in found.get(kind, {}).items()
        if count.isdecimal()
    ]
    lines = [f"| {' | '.join(head)} |", f"| {' | '.join(['---'] * len(head))} |", *rows, ""]
    for kind, title in titles.items():
        if memory := found.get(kind, {}).get("memory"):
            sizes = [
                f"{name} {size[1]:.0f} and {size[2]:.0f} MB"
                for name, size in memory.items()
                if isinstance(size, list)
            ]
            lines.append(
                f"Memory half way and at the end of {memory['minutes']:g} minutes at full speed "
                f"({memory['steps']:,.0f} steps, {title}): {', '.join(sizes)}.\n"
            )
    return "\n".join(lines)


def _rows(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _results(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def _short(number: float) -> str:
    """With two digits that count, and thousands apart."""
    return f"{float(f'{number:.2g}'):,.0f}" if number >= 10 else f"{number:.2g}"


def _time(seconds: float) -> str:
    for unit, size in (("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{_short(seconds / size)} {unit}"
    return f"{_short(seconds)} s"


def speeds() -> str:
    """How many chain-steps a core makes, and what that is in a night."""
    rows = [
        [network, f"{_short(3600 * speed / 1e6)} million", _short(8 * 10 * 3600 * speed / 100_000)]
        for network, speed in _results("million")["costs"]["speeds"].items()
    ]
    return _rows(
        [
            "network",
            "chain-steps of a core in an hour",
            "chains of 100,000 steps in ten hours on eight cores",
        ],
        rows,
    )


def overheads() -> str:
    """What executors leave of the bare speed, and what moving a block costs."""
    engines = _results("executors")["engines"]
    sizes = list(next(iter(engines.values()))["moving_ms"])
    head = [
        "workers",
        "share of the bare speed",
        "blocks of",
        *(f"a block of {float(s):g} MB" for s in sizes),
    ]
    rows = [
        [name, f"{about['share']:.0%}", f"{about['block_seconds']:.1f} s",
         *(f"{about['moving_ms'][size]:.1f} ms" for size in sizes)]
        for name, about in engines.items()
    ]  # fmt: skip
    return _rows(head, rows)


def storage() -> str:
    """The memory of runs in a folder, and of the same in memory."""

    def memory(about: dict[str, Any]) -> str:
        return about["error"].partition(":")[0] if "error" in about else f"{about['memory']:.2f} GB"

    rows = [
        [f"{int(chains):,}", f"{about['gigabytes']:.2f} GB", str(about["files"]),
         *(memory(about[key]) for key in ("written", "read", "here"))]
        for chains, about in _results("storage")["chains"].items()
    ]  # fmt: skip
    head = ["chains", "results", "blocks", "memory with `folder=`", "to read it", "without `folder=`"]
    return _rows(head, rows)


def faults() -> str:
    """How runs ended that lost something."""
    rows = []
    for name, runs in _results("faults").items():
        victims = [sum(run["victim"] == victim for run in runs) for victim in ("worker", "driver")]
        same = sum(run["identical"] and run["once"] for run in runs)
        lost = statistics.mean(max(run["lost"], 0.0) for run in runs)
        twice = sum(run["made twice"] for run in runs)
        stored = sum(run["stored"] for run in runs)
        rows.append(
            [name, *map(str, victims), f"{same} of {len(runs)}", f"{stored:,}", str(twice), f"{lost:.1%}"]
        )
    head = ["workers", "lost a worker", "lost the driver", "same bits", "blocks stored"]
    return _rows([*head, "of these computed again", "computed in vain"], rows)


def million() -> str:
    """What a sweep of a million chains needs."""
    sweeps = _results("million")["sweeps"]
    titles = {"state": "records", "samples": "records and 20 samples"}

    def row(name: str, text: Callable[[dict[str, Any]], str]) -> list[str]:
        return [name, *(text(sweep) for sweep in sweeps)]

    rows = [
        row("core hours", lambda s: _short(s["core_hours"])),
        row("at the cores' bare speed", lambda s: _time(s["seconds"])),
        row("in the simulation", lambda s: _time(s["simulated"]["seconds"])),
        row("of that the driver is busy", lambda s: f"{s['simulated']['driver']:.0%}"),
        row("blocks", lambda s: f"{s['simulated']['blocks']:,}"),
        row("to the workers", lambda s: f"{_short(s['to_workers'] / 1e9)} GB"),
        row("back, and on the disk", lambda s: f"{_short(s['back'] / 1e9)} GB"),
        row("to join all in memory, and save that", lambda s: _time(s["join"] + s["save"])),
        row("to open the folder instead", lambda s: _time(s["open"])),
    ]
    for need in sweeps[0]["needs"]:
        rows.append([f"part of {need}", *(f"{sweep['needs'][need]:.2f}" for sweep in sweeps)])
    head = [f"{sweep['steps']:,} steps, {titles[sweep['kind']]}" for sweep in sweeps]
    return _rows(["", *head], rows)


PAGES: dict[str, tuple[Callable[[], str], ...]] = {
    "command-line.md": (options,),
    "explorer.md": (measured,),
    "scikit-learn.md": (parameters,),
    "clusters.md": (speeds, overheads, storage, faults, million),
}


def tabulated(page: str) -> str:
    """A page with its tables as they are made now."""
    text = (DOCS / page).read_text(encoding="utf-8")
    before, *rest = text.split(BEGIN)
    made = zip(PAGES[page], rest, strict=True)
    return before + "".join(f"{BEGIN}\n{_table_of(make)}\n{END}{part.split(END)[1]}" for make, part in made)


def _table_of(make: Callable[[], str]) -> str:
    try:
        return make()
    except FileNotFoundError as error:
        return f"Not measured yet: there is no `{Path(error.filename).name}`.\n"


if __name__ == "__main__":
    for page in PAGES:
        (DOCS / page).write_text(tabulated(page), encoding="utf-8")
