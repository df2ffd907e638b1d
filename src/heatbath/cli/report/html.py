"""Lay out a report as one HTML file that needs nothing else, for people who have not made the run."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import TypeAlias

from heatbath.cli.report import tables
from heatbath.cli.report.baseline import BALANCED
from heatbath.cli.report.contents import LOSS_NAMES, RunReport, SearchReport
from heatbath.datasets import Problem
from heatbath.diagnostics.statistics import Measured

LARGEST_SVG = 400_000  # bytes: a larger figure is embedded as PNG
USUAL_WIDTH = 7.0  # inches: of a figure whose file doesn't tell
POINTS = 72  # of an SVG, in an inch
PIXELS = 92  # on the page for an inch of a figure
FEWEST_PIXELS = 72  # for an inch: a figure that is wider than the page is scrolled instead of shrunk further
TELEPHONE = 370  # pixels: the width of a narrow page
CURVES = "Single networks during training: means over chains, with 95 % intervals."
CLASSIFIERS = "What the median network of each method predicts over the plane."


Sections: TypeAlias = Mapping[str, Mapping[str, str]]  # captions by heading and by name of the figure
RUN_SECTIONS: Sections = {
    "What it predicts": {
        "sweep": "All points: means over single networks.",
        "roc": "Share of a class that is found, against the share of the others that is taken for it.",
        "calibration": "How often something happened, against its predicted probability. On the dashed line "
        "probabilities are right; bars are 95 % intervals.",
        "confusion": "Number of examples by true and predicted class.",
        "predicted": "Predictions against true values, with the intervals that should hold 90 % of new data, "
        "where they are known.",
    },
    "Which columns matter": {
        "importance": "How much worse predictions become when the values of a column are permuted among the "
        "examples; lines are 95 % intervals. Columns with the same information stand in for one another.",
        "dependence": "Mean prediction if all examples had the same value of a column. Bands hold 90 % of "
        "the networks; ticks are deciles of the data.",
    },
    "Training": {
        "curves": CURVES,
        "temperatures": "Kinetic temperatures, and their targets (dashed).",
        "classifier": "What the median network predicts over the plane.",
        "classifiers": CLASSIFIERS,
    },
}  # fmt: skip
SEARCH_SECTIONS: Sections = {
    "The search": {
        "search": "All candidates, by their score on validation examples: the darker, the further they came. "
        "Stars are the best of each method.",
        "importance": "How much each coefficient decides the order of its method's candidates.",
        "maps": "Candidates in the plane of the two coefficients that matter most; crosses diverged.",
    },
    "Training of the fresh runs": {
        "curves": CURVES,
        "classifiers-median-run": CLASSIFIERS,
        "classifiers-mean-of-runs": "What the networks of each method predict on average over the plane.",
    },
}  # fmt: skip
STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #57606a; --page: #fff; --line: #d0d7de;
  --band: #f6f8fa; --accent: #005a8c; --warn: #8a3b00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --soft: #a3adb8; --page: #14171a;
  --line: #3a424b; --band: #1d2227; --accent: #7cc4f0; --warn: #ffb27a; } figure img { filter:
  invert(0.92) hue-rotate(180deg); } }
* { box-sizing: border-box; }
body { font: 16px/1.55 system-ui, -apple-system, "Segoe UI", sans-serif; color: var(--ink);
  background: var(--page); margin: 0 auto; max-width: 74rem; padding: 1.5rem clamp(1rem, 4vw, 2.5rem) 3rem; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 0.3rem; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 0.6rem; padding-bottom: 0.25rem;
  border-bottom: 1px solid var(--line); }
p, li { max-width: 48rem; overflow-wrap: anywhere; } .soft { color: var(--soft); font-size: 0.92rem; }
.lead { font-size: 1.1rem; } .lead strong { color: var(--accent); } .warn { color: var(--warn); }
.wide { overflow-x: auto; } .wide:focus-visible { outline: 2px solid var(--accent); }
table { border-collapse: collapse; font-size: 0.93rem; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 0.35rem 0.8rem; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: 0.2rem; }
thead th { border-bottom: 2px solid var(--soft); vertical-align: bottom; } tbody th { font-weight: 500; }
td.first { background: var(--band); font-weight: 600; }
.pictures { display: flex; flex-wrap: wrap; gap: 1.2rem 1.6rem; align-items: flex-start; }
figure { margin: 0; max-width: 100%; } figure img { display: block; width: 100%; height: auto; }
figcaption { color: var(--soft); font-size: 0.88rem; margin-top: 0.3rem; max-width: 36rem; }
td small { display: block; color: var(--soft); font-weight: 400; font-size: 0.82rem; }
details { margin: 0.6rem 0; } summary { cursor: pointer; }
pre { background: var(--band); padding: 0.8rem; overflow-x: auto; font-size: 0.85rem; }
@media (max-width: 30rem) { body { padding: 1rem 0.8rem 2rem; } h1 { font-size: 1.4rem; }
  th, td { padding: 0.3rem 0.5rem; } table { font-size: 0.86rem; }
  .wide::before { content: "more to the right \\2192"; position: sticky; left: 0; display: block;
    text-align: right; color: var(--soft); font-size: 0.82rem; } }
"""


def report_to_html(report: RunReport | SearchReport, figures: Sequence[Path], settings: str) -> str:
    """Return a report as a self-contained page of HTML, which loads nothing and runs no scripts.

    Parameters
    ----------
    report
        The evaluated run or search.
    figures
        PNG files of its figures, each with an SVG file beside it.
    settings
        Text of settings.toml, which the page quotes.
    """
    title = tables.title(report)
    if isinstance(report, SearchReport):
        body = [*_search_results(report), *_figure_sections(SEARCH_SECTIONS, figures)]
        commands = ["<h2>Train with the best coefficients</h2>", _code("\n".join(tables.commands(report)))]
        return _page(report.problem, title, body, commands, settings)

    body = [f'<p class="lead">{line}</p>' for line in _lead(report)]
    body += [_paragraph(line, "warn") for line in _warnings(report)]
    body += _results("Results", report, tables.caption(report))
    body += _figure_sections(RUN_SECTIONS, figures)
    adaptation = []
    notes = tables.notes(report)
    if notes:
        adaptation = ["<h2>What the run found by itself</h2>", _list(notes)]
    return _page(report.problem, title, body, adaptation, settings)


def _search_results(report: SearchReport) -> list[str]:
    """Return the lines on the best method, the best candidates, and the results of the fresh runs."""
    lines = [f'<p class="lead">The best is <strong>{escape(report.result.winner)}</strong>.</p>']
    lines += [
        "<h2>Best candidates</h2>",
        _table("Best candidates", tables.search_table(report), stresses_first=False),
    ]
    lines += [_paragraph(tables.sentence(tables.search_title(report)))]
    lines += [_paragraph(tables.sentence(note), "warn") for note in tables.edge_notes(report)]
    if report.fresh is None:
        return lines
    return lines + _results("Fresh runs", report.fresh, tables.fresh_caption(report, report.fresh))


def _results(heading: str, report: RunReport, caption: str) -> list[str]:
    """Return the heading, the table of results and its caption."""
    table = _table("Results", tables.narrow_results_table(report), stresses_first=len(report.points) == 1)
    return [f"<h2>{heading}</h2>", table, _paragraph(tables.sentence(caption))]


def _page(problem: Problem, title: str, body: list[str], end: list[str], settings: str) -> str:
    """Return the page, with the parts that all reports have around the given ones.

    Parameters
    ----------
    problem
        The problem, which is described at the top.
    title
        Sizes of the run, after that description.
    body
        Lines of HTML before the section on how the table is read.
    end
        Lines of HTML after it, and before the settings.
    settings
        Text of settings.toml.
    """
    name = escape(problem.name)
    lines = [f"<h1>{name}</h1>", _paragraph(f"{_describe(problem)} {title}."), *body]
    if problem.encoder is not None:
        lines += ["<h2>How the table is read</h2>", _list(problem.encoder.brief_notes())]
    lines += [*end, "<h2>Settings</h2>"]
    lines += ["<details><summary>settings.toml, which reproduces this result</summary>"]
    lines += [f"{_code(settings)}</details>", _paragraph(f"Made by heatbath {version('heatbath')}.")]
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    head += f"<title>{name}: heatbath report</title><style>{STYLE}</style>"
    page = f"<head>{head}</head><body><main>{''.join(lines)}</main></body>"
    return f'<!doctype html><html lang="en">{page}</html>\n'


def _figure_sections(sections: Sections, figures: Sequence[Path]) -> list[str]:
    """Return the figures that exist, under the headings of their sections, as lines of HTML."""
    paths = {path.stem: path for path in figures}
    body = []
    for heading, captions in sections.items():
        pictures = [_figure(paths[name], name, text) for name, text in captions.items() if name in paths]
        if pictures:
            body += [f"<h2>{heading}</h2>", f'<div class="pictures">{"".join(pictures)}</div>']
    return body


def _describe(problem: Problem) -> str:
    """Return a sentence with the task of a problem and its numbers of examples."""
    tasks = {
        "binary": "Two classes",
        "classes": f"{len(problem.targets)} classes",
        "counts": "Counts",
        "regression": "A regression",
    }
    weights = problem.given_weights(0)
    has_weights = weights is not None and not (weights == 1).all()
    weighted = ", with weights" if has_weights else ""
    counts = f"{problem.X_train.shape[1]:,} training and {problem.X_test.shape[1]:,} test examples"
    return f"{tasks[problem.task]}; {counts}{weighted}."


def _lead(report: RunReport) -> list[str]:
    """Return the first sentences of a report, as HTML.

    They name the best of several points, the most important measures beside those of the baselines, and
    whether the loss is below that of the baselines.
    """
    if report.forecast is None:
        return []

    point = report.described
    lines = []
    if report.best is not None:
        lines.append(f"The best is <strong>{escape(_labels_in_words(point.labels))}</strong>.")

    for name in tables.select_measures(point.averaged, tables.HEADLINES):
        estimate = tables.format_estimate(name, point.averaged[name])
        clauses = [f"{_heading(name)} of the averaged prediction: <strong>{estimate}</strong>"]
        baselines = _baselines_beside(report, name)
        if baselines:
            clauses.append(baselines)
        lines.append(f"{'; '.join(clauses)}.")

    if report.gains:
        lines.append(escape(_comparison(report.gains, LOSS_NAMES[report.problem.task])))
    return lines


def _labels_in_words(labels: Mapping[str, object]) -> str:
    """Return the labels of a point as text, such as AdLaLa, h 0.1."""
    words = []
    for name, value in labels.items():
        words.append(str(value) if name == "method" else f"{name} {value}")
    return ", ".join(words)


def _heading(name: str) -> str:
    """Return the label of a measure with a capital letter at its start, as HTML."""
    label = tables.measure_label(name)
    return escape(f"{label[0].upper()}{label[1:]}")


def _baselines_beside(report: RunReport, name: str) -> str:
    """Return the names of the baselines that have a measure, and its values, as HTML."""
    baselines = []
    for baseline, (measures, _) in report.baselines.items():
        if name in measures:
            baselines.append(f"{escape(baseline)} {tables.format_estimate(name, measures[name])}")
    return ", ".join(baselines)


def _comparison(gains: dict[str, Measured], loss: str) -> str:
    """Return a sentence on whether the mean loss is below that of each baseline by more than chance.

    Parameters
    ----------
    gains
        By how much it is below that of each baseline, with an interval.
    loss
        Name of the loss.
    """
    clauses = []
    for name, gain in gains.items():
        baseline = "a constant prediction" if name == "constant" else name
        if gain.low > 0:
            clauses.append(f"below that of {baseline}")
        elif gain.high < 0:
            clauses.append(f"above that of {baseline}")
        else:
            clauses.append(f"not detectably different from that of {baseline} on these examples")
    return f"Its mean {loss} is {', and '.join(clauses)}."


def _warnings(report: RunReport) -> list[str]:
    """Return sentences on what a reader must know before trusting the numbers.

    They warn of a better constant prediction, of missing test examples, of probabilities for balanced
    classes, and of chains that diverged.
    """
    warnings = []
    if report.gains:
        gain = report.gains["constant"]
        if gain.high < 0:
            warnings.append("A constant prediction would be better.")
        elif gain.low <= 0:
            warnings.append("These examples do not show that it is better than a constant prediction.")

    if report.examples is not None and report.examples.split == "train":
        warnings.append(
            "There are no test examples: all numbers are measured on the training examples, so expect larger "
            "errors for new data."
        )
    if report.problem.class_factors is not None:
        warnings.append(tables.sentence(BALANCED))
    diverged = sum(point.diverged for point in report.points)
    chains = sum(point.chains for point in report.points)
    if diverged:
        warnings.append(f"{diverged} of {chains} chains diverged.")
    return warnings


def _table(label: str, table: tables.TextTable, stresses_first: bool) -> str:
    """Return a table that can be scrolled sideways.

    Parameters
    ----------
    label
        Name of the table for screen readers.
    table
        Its cells, as text; the first of each row is the heading of the row.
    stresses_first
        True to highlight the first column of numbers.
    """
    headings = [f'<th scope="col">{escape(name)}</th>' for name in table.columns]
    if not table.columns[0]:
        headings[0] = "<td></td>"
    rows = []
    for name, *texts in table.rows:
        cells = [f"<td>{_cell(text)}</td>" for text in texts]
        if stresses_first and texts:
            cells[0] = f'<td class="first">{_cell(texts[0])}</td>'
        rows.append(f'<tr><th scope="row">{escape(name)}</th>{"".join(cells)}</tr>')
    head = f"<thead><tr>{''.join(headings)}</tr></thead>"
    html = f"<table>{head}<tbody>{''.join(rows)}</tbody></table>"
    return f'<div class="wide" tabindex="0" role="region" aria-label="{label}">{html}</div>'


def _cell(text: str) -> str:
    """Return a number as HTML, with its interval below it in small print."""
    value, _, interval = text.partition(" (")
    if not interval:
        return escape(value)
    return f"{escape(value)}<small>{escape(interval.removesuffix(')'))}</small>"


def _figure(path: Path, name: str, caption: str) -> str:
    """Return a figure with its caption, embedded as SVG, or as PNG if the SVG is large.

    A figure that is wider than a telephone can be scrolled.

    Parameters
    ----------
    path
        PNG file of the figure, with an SVG file beside it.
    name, caption
        Name and caption, which form the alternative text.
    """
    svg = path.with_suffix(".svg").read_bytes()
    size = re.search(rb'<svg[^>]*? width="([\d.]+)pt"', svg)
    inches = float(size[1]) / POINTS if size else USUAL_WIDTH
    if len(svg) <= LARGEST_SVG:
        uri = f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"
    else:
        uri = f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}"

    attributes = f'src="{uri}" alt="{escape(f"{name}: {caption}")}"'
    image = f"<img {attributes}>"
    min_width = inches * FEWEST_PIXELS
    if min_width > TELEPHONE:
        image = f'<img {attributes} style="min-width:{min_width:.0f}px">'
        image = f'<div class="wide" tabindex="0" role="region" aria-label="{name}">{image}</div>'

    below = f"<figcaption>{escape(caption)}</figcaption>"
    return f'<figure style="width:{inches * PIXELS:.0f}px">{image}{below}</figure>'


def _paragraph(text: str, kind: str = "soft") -> str:
    """Return a paragraph; `kind` is its class in the style sheet."""
    return f'<p class="{kind}">{escape(text)}</p>'


def _code(text: str) -> str:
    """Return a block of preformatted text."""
    return f'<pre tabindex="0">{escape(text)}</pre>'


def _list(lines: Sequence[str]) -> str:
    """Return lines as a bulleted list."""
    items = [f"<li>{escape(line)}</li>" for line in lines]
    return f"<ul>{''.join(items)}</ul>"
