"""Lay out a report for the terminal."""

from __future__ import annotations

from rich.table import Table

from heatbath.cli.report import tables
from heatbath.cli.report.contents import RunReport, SearchReport

LEFT_ALIGNED = ("method", "coefficients")  # columns of text; all others, except the first, have numbers


def report_to_terminal(report: RunReport | SearchReport) -> list[Table | str]:
    """Return the tables and lines of a report, in the order in which to print them.

    Names of the user's columns and classes may look like rich's markup, so print with `markup=False`.
    """
    if isinstance(report, SearchReport):
        return _search_lines(report)
    lines: list[Table | str] = [_results_table(report, tables.caption(report))]
    confusion = tables.confusion_table(report)
    if confusion is not None:
        lines += [f"{tables.CONFUSION_TITLE}:", _table(confusion)]
    return [*lines, *tables.notes(report)]


def _search_lines(report: SearchReport) -> list[Table | str]:
    """Return the best candidates, the results of the fresh runs, and the command that trains the best."""
    candidates = _table(tables.search_table(report), tables.search_title(report))
    lines: list[Table | str] = [candidates, *tables.edge_notes(report)]
    if report.fresh is not None:
        lines.append(_results_table(report.fresh, tables.fresh_caption(report, report.fresh)))
    return [*lines, f"train with the best: {report.command(report.result.winner)}"]


def _results_table(report: RunReport, caption: str) -> Table:
    """Return the results of a run with the columns that fit in a terminal."""
    return _table(tables.narrow_results_table(report), tables.title(report), caption)


def _table(text: tables.TextTable, title: str | None = None, caption: str | None = None) -> Table:
    """Return a table of text with its title above and its caption below."""
    table = Table(title=title, caption=caption, title_justify="left")
    for index, name in enumerate(text.columns):
        holds_text = index == 0 or name in LEFT_ALIGNED
        table.add_column(name, justify="left" if holds_text else "right")
    for row in text.rows:
        table.add_row(*row)
    return table
