"""The tables of the pages on the command line and on scikit-learn, made of what the code says of itself.

    python docs/tabulated.py

writes them anew, between the two marks on each page; a test sees to it that they are as they would be made.
"""

from __future__ import annotations

import re
from inspect import cleandoc, signature
from pathlib import Path
from typing import Any

import typer

import heatbath as hb
from heatbath.cli import app

DOCS = Path(__file__).parent
OWN, SEVERAL = "", 4  # options of a command itself, and from how many commands on they are in one table
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
    """Return the row of an option or argument, and what it means."""
    names = [f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts) if name.startswith("-")]
    text = (parameter.help or "").replace("|", "\\|")
    return f"| {', '.join(names) or f'`{parameter.metavar or parameter.name.upper()}`'} | {text} |"


def parameters() -> str:
    """Return the rows of the estimators' parameters, from their docstrings, with defaults."""
    rows: dict[str, str] = {}
    for kind in (hb.ThermodynamicRegressor, hb.ThermodynamicClassifier):
        defaults = {name: parameter.default for name, parameter in signature(kind).parameters.items()}
        for names, text in described(kind).items():
            values = ", ".join(f"`{defaults[name]!r}`" for name in names)
            rows.setdefault(names[0], f"| {', '.join(f'`{name}`' for name in names)} | {values} | {text} |")
    return "\n".join(["| parameter | default | |", "| --- | --- | --- |", *rows.values(), ""])


def described(kind: type) -> dict[tuple[str, ...], str]:
    """Return the text on each parameter, or parameters that share one, in a docstring of NumPy's style.

    The bold title that begins a group of parameters is left out.
    """
    section = cleandoc(kind.__doc__ or "").split("\nParameters\n----------\n")[1]
    section = re.split(r"\n\n\w+\n---", section)[0]  # up to the next section
    entries = re.findall(r"^(\w.*)\n((?:    .*(?:\n|$))+)", section, re.MULTILINE)
    texts = {tuple(names.split(", ")): " ".join(text.split()) for names, text in entries}
    return {names: re.sub(r"^\*\*.*?\*\* ", "", text) for names, text in texts.items()}


PAGES = {"command-line.md": options, "scikit-learn.md": parameters}


def tabulated(page: str) -> str:
    """Return a page with its table as it is made now."""
    text = (DOCS / page).read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{PAGES[page]()}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    for page in PAGES:
        (DOCS / page).write_text(tabulated(page), encoding="utf-8")
