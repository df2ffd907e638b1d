"""Write the report of a reproduction: a self-contained HTML file, and a page of Markdown for the docs."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from heatbath._internal.atomic_write import write
from heatbath.paper.claims import FAILS, HOLDS, IN_PART
from heatbath.paper.runner import ExperimentResult, summary

MARKS = {HOLDS: "✓", IN_PART: "◐", FAILS: "✗"}
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
body { color: #1a1a1a; }
table { border-collapse: collapse; width: 100%; margin: 1rem 0; font-size: 0.9rem; }
th, td { text-align: left; vertical-align: top; padding: 0.35rem 0.6rem; border-bottom: 1px solid #ddd; }
th { border-bottom: 2px solid #888; }
img { max-width: 100%; }
.holds { color: #005a8c; } .part { color: #8a5a00; } .not { color: #a03000; }
td.verdict { white-space: nowrap; font-weight: 600; }
details { margin: 0.5rem 0; } code { font-size: 0.85rem; }
caption { text-align: left; padding-bottom: 0.4rem; }
"""
CSS_CLASSES = {HOLDS: "holds", IN_PART: "part", FAILS: "not"}
TITLE = "Partitioned Integrators for Thermodynamic Parameterization of Neural Networks, reproduced"
CLAIM_COLUMNS = ("claim", "the paper's value", "ours", "verdict")
MARKDOWN_WIDTH = 700  # pixels of the pictures beside the page of Markdown
MARKDOWN_COLOURS = 128  # of these pictures, which keeps them small

Summary = Mapping[str, Any]  # of a result, as `runner.summary` returns it


class ClaimRow(NamedTuple):
    """A claim in the table of all claims, with the name of its experiment."""

    experiment: str
    claim: str
    paper: str
    ours: str
    verdict: str


def verdict_counts(summaries: Sequence[Summary]) -> str:
    """Return how many claims hold, hold in part and do not hold, as part of a sentence."""
    verdicts = [row.verdict for row in _claim_rows(summaries)]
    words = {HOLDS: "hold", IN_PART: "hold in part or are not decided", FAILS: "do not hold"}
    return ", ".join(f"{verdicts.count(verdict)} {text}" for verdict, text in words.items())


def _claim_rows(summaries: Sequence[Summary]) -> list[ClaimRow]:
    """Return the claims of all experiments."""
    return [ClaimRow(s["name"], **claim) for s in summaries for claim in s["claims"]]


def _description(results: Sequence[ExperimentResult], command: str) -> str:
    """Return sentences that say which command was run and how long it took."""
    is_quick = any(result.quick for result in results)
    kind = "Quick runs, which show that everything works and nothing else" if is_quick else "Full runs"
    seconds = sum(result.seconds for result in results)
    source = f"{kind}, with heatbath {version('heatbath')}: {command}"
    return f"{source}. Training and measuring took {seconds:,.0f} s."


def write_html(
    results: Sequence[ExperimentResult], failed: Mapping[str, str], path: Path, command: str
) -> None:
    """Write the whole report as one HTML file.

    Parameters
    ----------
    results : sequence of ExperimentResult
        Finished experiments.
    failed : mapping from name to str
        Reasons of the experiments that weren't run.
    path : Path
        The file.
    command : str
        Command that makes the report.
    """
    summaries = [summary(result) for result in results]
    sections = [
        f"<h1>{escape(TITLE)}</h1>",
        f"<p>{escape(_description(results, command))}</p>",
        f"<p>{_verdict_sentence(summaries)}</p>",
    ]
    rows = []
    for row in _claim_rows(summaries):
        link = f'<a href="#{row.experiment}">{row.experiment}</a>'
        rows.append((link, *_claim_cells(row), row.verdict))
    sections.append(_html_claims(("experiment", *CLAIM_COLUMNS), rows))
    for name, reason in failed.items():
        sections.append(f"<p><strong>{escape(name)} was not run</strong>: {escape(reason)}</p>")
    sections += map(_html_section, summaries, results)

    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    head += f"<title>{escape(TITLE)}</title><style>{STYLE}</style>"
    body = "".join(sections)
    write(path, f'<!doctype html><html lang="en"><head>{head}</head><body>{body}</body></html>\n')


def _verdict_sentence(summaries: Sequence[Summary]) -> str:
    """Return a sentence that counts the verdicts on all claims."""
    return f"Of the paper's claims, {verdict_counts(summaries)}. Intervals are 95 % over runs."


def _escaped(texts: Sequence[str]) -> list[str]:
    """Return texts as HTML."""
    return [escape(text) for text in texts]


def _claim_cells(row: ClaimRow) -> list[str]:
    """Return the claim, the paper's value and ours as HTML."""
    return _escaped([row.claim, row.paper, row.ours])


def _html_table(columns: Sequence[str], rows: Sequence[str], caption: str = "") -> str:
    """Return a table as HTML from column titles, rows that are HTML, and a caption."""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _html_row(cells: Sequence[str]) -> str:
    """Return a row of a table from cells that are HTML."""
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _html_claims(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return the table of claims; cells are HTML, and the last cell of a row is the verdict."""
    lines = []
    for *cells, verdict in rows:
        row = "".join(f"<td>{cell}</td>" for cell in cells)
        mark = f'<td class="verdict {CSS_CLASSES[verdict]}">{MARKS[verdict]} {verdict}</td>'
        lines.append(f"<tr>{row}{mark}</tr>")
    return _html_table(columns, lines)


def _html_section(result_summary: Summary, result: ExperimentResult) -> str:
    """Return the section of an experiment as HTML: picture, notes, claims, tables and settings.

    `result_summary` is the summary of `result`, whose picture is embedded.
    """
    title = escape(result_summary["title"])
    uri = "data:image/png;base64," + base64.b64encode(result.picture.read_bytes()).decode()
    parts = [f'<h2 id="{result_summary["name"]}">{title}</h2>', f'<img alt="{title}" src="{uri}">']
    if result_summary["notes"]:
        parts.append(f"<p>{escape(result_summary['notes'])}</p>")
    if result_summary["diverged"]:
        parts.append(f"<p>{escape(result_summary['diverged'])}.</p>")

    claim_rows = [(*_claim_cells(row), row.verdict) for row in _claim_rows([result_summary])]
    if claim_rows:
        parts.append(_html_claims(CLAIM_COLUMNS, claim_rows))
    for table in result_summary["tables"]:
        table_rows = [_html_row(_escaped(row)) for row in table["rows"]]
        parts.append(_html_table(table["columns"], table_rows, table["title"]))
    settings = result_summary["settings"].items()
    rows = [_html_row([escape(name), f"<code>{escape(value)}</code>"]) for name, value in settings]
    title = f"<summary>settings ({result_summary['seconds']:.0f} s)</summary>"
    parts.append(f"<details>{title}<table>{''.join(rows)}</table></details>")
    return "".join(parts)


def write_markdown(
    results: Sequence[ExperimentResult], failed: Mapping[str, str], folder: Path, command: str
) -> None:
    """Write the report as a page `reproduction.md`, with small versions of the pictures in `reproduction/`.

    Parameters
    ----------
    results : sequence of ExperimentResult
        Finished experiments.
    failed : mapping from name to str
        Reasons of the experiments that weren't run.
    folder : Path
        Where the page goes.
    command : str
        Command that makes the report.
    """
    pictures = folder / "reproduction"
    pictures.mkdir(parents=True, exist_ok=True)

    summaries = [summary(result) for result in results]
    lines = ["# The paper, reproduced", ""]
    lines += [f"Made by `{command}`; do not edit.", ""]
    lines += [_description(results, command), ""]
    lines += [_verdict_sentence(summaries), ""]
    claim_rows = [_markdown_claim(row) for row in _claim_rows(summaries)]
    lines += _markdown_table(("experiment", *CLAIM_COLUMNS), claim_rows)
    lines += [f"\n**{name} was not run**: {reason}" for name, reason in failed.items()]

    for result_summary, result in zip(summaries, results, strict=True):
        small_picture = pictures / f"{result_summary['name']}.png"
        write(small_picture, shrink_picture(result.picture))
        lines += _markdown_section(result_summary, small_picture.name)
    write(folder / "reproduction.md", "\n".join(lines) + "\n")


def _markdown_claim(row: ClaimRow) -> list[str]:
    """Return the cells of a claim: a link to its experiment, the claim, both values and the verdict."""
    link = f"[{row.experiment}](#{row.experiment})"
    verdict = f"{MARKS[row.verdict]} {row.verdict}"
    return [link, row.claim, row.paper, row.ours, verdict]


def _markdown_section(result_summary: Summary, picture: str) -> list[str]:
    """Return the lines of an experiment: title, notes, picture and tables."""
    title = result_summary["title"]
    sentences = [title, result_summary["notes"].rstrip("."), result_summary["diverged"]]
    paragraph = ". ".join(filter(None, sentences)) + "."
    lines = ["", f"## {result_summary['name']}", "", paragraph, ""]
    lines.append(f"![{title}](reproduction/{picture})")
    for table in result_summary["tables"]:
        lines += ["", table["title"] + ":", "", *_markdown_table(table["columns"], table["rows"])]
    return lines


def _markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table."""

    def line(cells: Sequence[str]) -> str:
        """Return a row as a line of Markdown."""
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    return [line(columns), line(["---"] * len(columns)), *map(line, rows)]


def shrink_picture(picture: Path, width: int = MARKDOWN_WIDTH) -> bytes:
    """Return a PNG scaled down to a width in pixels, with fewer colours."""
    from PIL import Image

    with Image.open(picture) as image:
        height = round(image.height * width / image.width)
        small = image.convert("RGB").resize((width, height), Image.Resampling.LANCZOS)
        buffer = io.BytesIO()
        small.quantize(MARKDOWN_COLOURS).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()
