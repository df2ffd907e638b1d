"""Lay out a report as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from heatbath.cli.report import tables
from heatbath.cli.report.contents import RunReport, SearchReport


def report_to_markdown(report: RunReport | SearchReport) -> str:
    """Return a report as a page of Markdown, which summary.md contains."""
    if isinstance(report, SearchReport):
        lines = _search_lines(report)
    else:
        lines = _run_lines(report, tables.caption(report))
    return "\n".join(lines) + "\n"


def _run_lines(report: RunReport, caption: str) -> list[str]:
    """Return the lines of a page on a run: results, caption, confusion of classes, and what was found."""
    lines = [f"# {tables.title(report)}", "", *_table_lines(tables.results_table(report))]
    lines += ["", tables.sentence(caption)]
    confusion = tables.confusion_table(report)
    if confusion is not None:
        lines += ["", f"## {tables.CONFUSION_TITLE}", "", *_table_lines(confusion)]
    notes = tables.notes(report)
    if notes:
        lines += ["", *(f"- {note}" for note in notes)]
    return lines


def _search_lines(report: SearchReport) -> list[str]:
    """Return the lines of a page on a search: fresh runs, best candidates, and commands to train them."""
    lines = [f"# {report.problem.name}"]
    like_fresh_runs = ""
    if report.fresh is not None:
        lines = _run_lines(report.fresh, tables.fresh_caption(report, report.fresh))
        like_fresh_runs = ", as the fresh runs do"
    lines += ["", f"## {tables.search_title(report)}", "", *_table_lines(tables.search_table(report)), ""]
    lines += [f"- {note}" for note in tables.edge_notes(report)]
    lines += ["", f"Train with the best coefficients{like_fresh_runs}:", ""]
    return [*lines, "```", *tables.commands(report), "```"]


def _table_lines(table: tables.TextTable) -> list[str]:
    """Return the lines of a table, with its columns in the first."""
    return [_row_line(table.columns), _row_line(["---"] * len(table.columns)), *map(_row_line, table.rows)]


def _row_line(cells: Sequence[str]) -> str:
    """Return the line of a row, with bars in cells escaped."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
