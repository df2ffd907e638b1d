"""Lay out a report for the terminal."""

from __future__ import annotations

from collections.abc import Callable

from rich.table import Table
from rich.text import Text

from heatbath.cli.report import tables
from heatbath.cli.report.contents import RunReport, SearchReport


def report_to_terminal(report: RunReport | SearchReport) -> list[Table | str]:
    """Return the tables and lines of a report, in the order in which to print them."""
    if isinstance(report, SearchReport):
        return _search_lines(report)
    lines: list[Table | str] = [_results_table(report, tables.caption(report))]
    if (confusion := tables.confusion_table(report)) is not None:
        lines += [f"{tables.CONFUSION_TITLE}:", _user_table(confusion)]
    return [*lines, *tables.notes(report)]


def _search_lines(report: SearchReport) -> list[Table | str]:
    """Return the best candidates, the results of the fresh runs, and how to train with the best one."""
    candidates = Table(title=tables.search_title(report), title_justify="left")
    _fill(candidates, tables.search_table(report), lambda _, name: name.startswith("validation"))
    lines: list[Table | str] = [candidates, *tables.edge_notes(report)]
    if report.fresh is not None:
        lines.append(_results_table(report.fresh, tables.fresh_caption(report, report.fresh)))
    return [*lines, f"train with the best: {report.command(report.result.winner)}"]


def _results_table(report: RunReport, caption: str) -> Table:
    table = Table(title=tables.title(report), caption=caption, title_justify="left")
    _fill(table, tables.narrow_results_table(report), lambda i, name: i > 0 and name != "method")
    return table


def _fill(table: Table, text: tables.TextTable, is_right: Callable[[int, str], bool]) -> None:
    """Add the columns and rows of text; `is_right(index, name)` says which columns to align on the right."""
    for i, name in enumerate(text.columns):
        table.add_column(name, justify="right" if is_right(i, name) else "left")
    for row in text.rows:
        table.add_row(*row)


def _user_table(text: tables.TextTable) -> Table:
    """Return a table of names from the user's data, in which nothing is read as markup."""
    table = Table()
    for i, name in enumerate(text.columns):
        table.add_column(Text(name), justify="right" if i else "left")
    for row in text.rows:
        table.add_row(*map(Text, row))
    return table
