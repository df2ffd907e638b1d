"""The report of a reproduction: one HTML file with everything in it, and a page of Markdown for the docs."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import Any

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
CLASSES = {HOLDS: "holds", IN_PART: "part", FAILS: "not"}
TITLE = "Partitioned Integrators for Thermodynamic Parameterization of Neural Networks, reproduced"


def counts(summaries: Sequence[dict[str, Any]]) -> str:
    """How many claims hold, hold in part, and do not."""
    verdicts = [claim["verdict"] for one in summaries for claim in one["claims"]]
    kinds = {HOLDS: "hold", IN_PART: "hold in part or are not decided", FAILS: "do not hold"}
    return ", ".join(f"{verdicts.count(kind)} {words}" for kind, words in kinds.items())


def about(results: Sequence[ExperimentResult], command: str) -> str:
    """What was run."""
    kind = (
        "Quick runs, which show that everything works and nothing else"
        if any(r.quick for r in results)
        else "Full runs"
    )
    seconds = sum(result.seconds for result in results)
    made_by = f"{kind}, with heatbath {version('heatbath')}: {command}"
    return f"{made_by}. Training and measuring took {seconds:,.0f} s."


def write_html(results: Sequence[ExperimentResult], failed: dict[str, str], path: Path, command: str) -> None:
    """The whole report in one file."""
    summaries = [summary(result) for result in results]
    body = [f"<h1>{escape(TITLE)}</h1>", f"<p>{escape(about(results, command))}</p>"]
    body.append(f"<p>Of the paper's claims, {counts(summaries)}. Intervals are 95 % over runs.</p>")
    rows = [
        (
            f'<a href="#{one["name"]}">{one["name"]}</a>',
            escape(c["claim"]),
            escape(c["paper"]),
            escape(c["ours"]),
            c["verdict"],
        )
        for one in summaries
        for c in one["claims"]
    ]
    body.append(_html_claims(("experiment", "claim", "the paper's value", "ours", "verdict"), rows))
    for name, why in failed.items():
        body.append(f"<p><strong>{escape(name)} was not run</strong>: {escape(why)}</p>")
    for one, result in zip(summaries, results, strict=True):
        body.append(_html_section(one, result))
    page = '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    page += '<meta name="viewport" content="width=device-width">'
    page += (
        f"<title>{escape(TITLE)}</title><style>{STYLE}</style></head><body>{''.join(body)}</body></html>\n"
    )
    write(path, page)


def _html_claims(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    lines = []
    for *cells, verdict in rows:
        row = "".join(f"<td>{cell}</td>" for cell in cells)
        lines.append(f'<tr>{row}<td class="verdict {CLASSES[verdict]}">{MARKS[verdict]} {verdict}</td></tr>')
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def _html_section(one: dict[str, Any], result: ExperimentResult) -> str:
    uri = "data:image/png;base64," + base64.b64encode(result.picture.read_bytes()).decode()
    parts = [
        f'<h2 id="{one["name"]}">{escape(one["title"])}</h2>',
        f'<img alt="{escape(one["title"])}" src="{uri}">',
        f"<p>{escape(one['notes'])}</p>" if one["notes"] else "",
        f"<p>{escape(one['diverged'])}.</p>" if one["diverged"] else "",
    ]
    if one["claims"]:
        rows = [
            (escape(c["claim"]), escape(c["paper"]), escape(c["ours"]), c["verdict"]) for c in one["claims"]
        ]
        parts.append(_html_claims(("claim", "the paper's value", "ours", "verdict"), rows))
    for table in one["tables"]:
        head = "".join(f"<th>{escape(column)}</th>" for column in table["columns"])
        lines = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table["rows"]
        )
        parts.append(
            f"<table><caption>{escape(table['title'])}</caption><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"
        )
    settings = "".join(
        f"<tr><td>{escape(name)}</td><td><code>{escape(value)}</code></td></tr>"
        for name, value in one["settings"].items()
    )
    parts.append(
        f"<details><summary>settings ({one['seconds']:.0f} s)</summary><table>{settings}</table></details>"
    )
    return "".join(parts)


def write_markdown(
    results: Sequence[ExperimentResult], failed: dict[str, str], folder: Path, command: str
) -> None:
    """A page `reproduction.md` with small versions of the pictures beside it."""
    pictures = folder / "reproduction"
    pictures.mkdir(parents=True, exist_ok=True)
    summaries = [summary(result) for result in results]
    lines = [
        "# The paper, reproduced",
        "",
        f"Made by `{command}`; do not edit.",
        "",
        about(results, command),
        "",
    ]
    lines += [f"Of the paper's claims, {counts(summaries)}. Intervals are 95 % over runs.", ""]
    lines += _markdown(
        ("experiment", "claim", "the paper's value", "ours", "verdict"),
        [
            (
                f"[{one['name']}](#{one['name']})",
                c["claim"],
                c["paper"],
                c["ours"],
                f"{MARKS[c['verdict']]} {c['verdict']}",
            )
            for one in summaries
            for c in one["claims"]
        ],
    )
    lines += [f"\n**{name} was not run**: {why}" for name, why in failed.items()]
    for one, result in zip(summaries, results, strict=True):
        small = pictures / f"{one['name']}.png"
        write(small, shrunk(result.picture))
        about_it = ". ".join(filter(None, (one["title"], one["notes"].rstrip("."), one["diverged"]))) + "."
        lines += ["", f"## {one['name']}", "", about_it, ""]
        lines += [f"![{one['title']}](reproduction/{small.name})"]
        for table in one["tables"]:
            lines += ["", table["title"] + ":", "", *_markdown(table["columns"], table["rows"])]
    write(folder / "reproduction.md", "\n".join(lines) + "\n")


def _markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    return [line(columns), line(["---"] * len(columns)), *map(line, rows)]


def shrunk(picture: Path, width: int = 700) -> bytes:
    """A PNG scaled down to a width."""
    from PIL import Image

    with Image.open(picture) as image:
        height = round(image.height * width / image.width)
        small = image.convert("RGB").resize((width, height), Image.Resampling.LANCZOS)
        buffer = io.BytesIO()
        small.quantize(128).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()
