"""The report of a run or a search: one HTML file with everything in it, for people who have not made it."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import Any

from heatbath.cli.report.baseline import BALANCED
from heatbath.cli.report.contents import LOSSES, Told
from heatbath.cli.report.tables import (
    about,
    edges,
    find_headline,
    found_cells,
    found_title,
    fresh_caption,
    named,
    narrow_cells,
    notes,
    said,
    sentence,
    title,
)
from heatbath.datasets import Problem
from heatbath.diagnostics.statistics import Measured

LARGEST = 400_000  # bytes of an SVG: a larger picture is shown as PNG
INCH = 92  # pixels for an inch of a picture
LEGIBLE = 72  # and at least so many: a wider picture is scrolled
NARROW = 370  # pixels of a telephone

CAPTIONS = {
    "roc": "How many examples of a class are found, against how many others are taken for it.",
    "calibration": "How often something happened, against how probable it was said to be. On the dashed line "
    "probabilities are right; bars are 95 % intervals.",
    "confusion": "How many examples of each class were taken for each.",
    "predicted": "Predictions against what is true, with the intervals that are to hold 90 % of new data, "
    "where these are known.",
    "importance": "How much worse predictions become when the values of a column are exchanged among the "
    "examples; lines are 95 % intervals. Columns that say the same stand in for one another.",
    "dependence": "What is predicted on average if all examples had the same value of a column. Bands hold "
    "90 % of the networks; ticks are deciles of the data.",
    "sweep": "All points: means over single networks.",
    "curves": "Single networks on the way: means over chains, with 95 % intervals.",
    "temperatures": "Kinetic temperatures, and what they are to be (dashed).",
    "classifier": "What a median network says over the plane.",
    "classifiers": "What a median network of each method says over the plane.",
}
SECTIONS = {
    "What it predicts": ("sweep", "roc", "calibration", "confusion", "predicted"),
    "What predictions are made of": ("importance", "dependence"),
    "Training": ("curves", "temperatures", "classifier", "classifiers"),
}
SEARCH_CAPTIONS = {
    "search": "Every candidate, by its score on validation examples: the darker, the further it came. Stars "
    "are the best of each method.",
    "importance": "How much each coefficient decides of the order of its method's candidates.",
    "maps": "Where candidates lie in the two coefficients that matter most; crosses diverged.",
    "curves": CAPTIONS["curves"],
    "classifiers-median-run": CAPTIONS["classifiers"],
    "classifiers-mean-of-runs": "What the networks of each method say on average over the plane.",
}
SEARCH_SECTIONS = {
    "The search": ("search", "importance", "maps"),
    "Training of the fresh runs": ("curves", "classifiers-median-run", "classifiers-mean-of-runs"),
}
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


def html_report(told: Told, results: dict[str, Any], figures: Sequence[Path], settings: str) -> str:
    """The whole report: what came out, in a sentence, a table and pictures; the data, the training, and the
    settings that make the same again. It fetches nothing, and runs nothing."""
    body = [f'<p class="lead">{text}</p>' for text in _lead(told, results)]
    body += [f'<p class="warn">{escape(text)}</p>' for text in _warnings(told, results)]
    body += ["<h2>Results</h2>", _table(results), f'<p class="soft">{escape(sentence(about(results)))}</p>']
    body += _sections(SECTIONS, CAPTIONS, figures)
    found = notes(results)
    end = ["<h2>What the run found by itself</h2>", _list(found)] if found else []
    return _page(told.run.problem, results, body, end, settings)


def search_report(problem: Problem, results: dict[str, Any], figures: Sequence[Path], settings: str) -> str:
    """The report of a search: what it found, how that does in fresh runs, and how to train with it."""
    methods = results["search"]["methods"]
    body = [f'<p class="lead">The best is <strong>{escape(results["best"]["method"])}</strong>.</p>']
    body += ["<h2>Found</h2>", _rows("Found", *found_cells(results))]
    body += [f'<p class="soft">{escape(sentence(found_title(results)))}</p>']
    body += [f'<p class="warn">{escape(sentence(text))}</p>' for text in edges(methods)]
    if results["rows"]:
        caption = escape(sentence(fresh_caption(results)))
        body += ["<h2>Fresh runs</h2>", _table(results), f'<p class="soft">{caption}</p>']
    body += _sections(SEARCH_SECTIONS, SEARCH_CAPTIONS, figures)
    commands = "\n".join(one["command"] for one in methods.values() if "command" in one)
    end = ["<h2>To train with what was found</h2>", f'<pre tabindex="0">{escape(commands)}</pre>']
    return _page(problem, results, body, end, settings)


def _page(problem: Problem, results: dict[str, Any], body: list[str], end: list[str], settings: str) -> str:
    """What all reports have around what they say."""
    name = escape(problem.name)
    start = [f"<h1>{name}</h1>", f'<p class="soft">{escape(_about(problem, results))}</p>']
    if problem.encoder is not None:
        body = [*body, "<h2>How the table is read</h2>", _list(problem.encoder.brief_notes())]
    end = [*end, "<h2>Settings</h2>", "<details><summary>settings.toml, which makes the same again</summary>"]
    end += [f'<pre tabindex="0">{escape(settings)}</pre></details>']
    end += [f'<p class="soft">Made by heatbath {escape(version("heatbath"))}.</p>']
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    head += f"<title>{name}: heatbath report</title><style>{STYLE}</style>"
    page = f"<head>{head}</head><body><main>{''.join([*start, *body, *end])}</main></body>"
    return f'<!doctype html><html lang="en">{page}</html>\n'


def _sections(
    sections: Mapping[str, tuple[str, ...]], captions: dict[str, str], figures: Sequence[Path]
) -> list[str]:
    """The pictures that there are, under their headings."""
    by_name = {path.stem: path for path in figures}
    body = []
    for heading, names in sections.items():
        shown = [name for name in names if name in by_name]
        if shown:
            pictures = "".join(_picture(by_name[name], name, captions[name]) for name in shown)
            body += [f"<h2>{heading}</h2>", f'<div class="pictures">{pictures}</div>']
    return body


def _about(problem: Problem, results: dict[str, Any]) -> str:
    task = {"binary": "two classes", "classes": f"{len(problem.targets)} classes", "counts": "counts"}
    given = problem.given_weights(0)
    weighted = "" if given is None or (given == 1).all() else ", with weights"
    rows = f"{problem.X_train.shape[1]:,} training and {problem.X_test.shape[1]:,} test examples{weighted}"
    what = task.get(problem.task, "a regression")
    return f"{sentence(what)[:-1]}; {rows}. {title(results)}."


def _lead(told: Told, results: dict[str, Any]) -> list[str]:
    """What matters, in sentences."""
    if told.place is None or not results["rows"]:
        return []
    row = results["rows"][told.place]
    lines = []
    for name in find_headline(row["averaged"]):
        values = {key: base.get(name) for key, base in results["baselines"].items()}
        others = ", ".join(f"{escape(key)} {said(name, v)}" for key, v in values.items() if v is not None)
        label = named(name)
        lines.append(
            f"{escape(sentence(label)[:-1])} of the averaged prediction: "
            f"<strong>{said(name, row['averaged'][name])}</strong>" + (f"; {others}." if others else ".")
        )
    if told.against:
        lines.append(escape(_verdict(told.against, LOSSES[told.run.problem.task])))
    if results["best"] is not None:
        labels = ", ".join(v if key == "method" else f"{key} {v}" for key, v in results["best"].items())
        lines.insert(0, f"The best is <strong>{escape(labels)}</strong>.")
    return lines


def _verdict(against: dict[str, Measured], loss: str) -> str:
    """Whether it is better than simple predictions, by more than chance."""
    parts = []
    for name, gain in against.items():
        article = "a constant prediction" if name == "constant" else name
        if gain.low > 0:
            parts.append(f"below that of {article}")
        elif gain.high < 0:
            parts.append(f"above that of {article}")
        else:
            parts.append(f"not to be told from that of {article} by these examples")
    return f"Its mean {loss} is {', and '.join(parts)}."


def _warnings(told: Told, results: dict[str, Any]) -> list[str]:
    found = []
    if told.against and told.against["constant"].low <= 0:
        worse = told.against["constant"].high < 0
        found.append(
            "A constant prediction would be better."
            if worse
            else "These examples do not show that it is better than a constant prediction."
        )
    on = results["judged_on"]
    if on is not None and on["split"] == "train":
        found.append(
            "There are no test examples: all numbers are of the examples that it was trained on, and new "
            "data will be predicted less well."
        )
    if results["balanced"]:
        found.append(sentence(BALANCED))
    lost = sum(row["diverged"] for row in results["rows"])
    if lost:
        found.append(f"{lost} of {sum(row['chains'] for row in results['rows'])} chains diverged.")
    return found


def _table(results: dict[str, Any]) -> str:
    return _rows("Results", *narrow_cells(results), single=len(results["rows"]) == 1)


def _rows(label: str, columns: list[str], rows: list[list[str]], single: bool = False) -> str:
    """A table; of a `single` point the first column of numbers is what matters."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' if name else "<td></td>" for name in columns)
    lines = []
    for first, *others in rows:
        marks = [' class="first"' if single and i == 0 else "" for i in range(len(others))]
        row = "".join(f"<td{mark}>{_cell(cell)}</td>" for mark, cell in zip(marks, others, strict=True))
        lines.append(f'<tr><th scope="row">{escape(first)}</th>{row}</tr>')
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    return f'<div class="wide" tabindex="0" role="region" aria-label="{label}">{table}</div>'


def _cell(text: str) -> str:
    """A number, and its interval below it."""
    value, _, interval = text.partition(" (")
    below = f"<small>{escape(interval.removesuffix(')'))}</small>" if interval else ""
    return escape(value) + below


def _picture(path: Path, name: str, caption: str) -> str:
    """A figure; the sizes are those of the SVG, in points."""
    svg = path.with_suffix(".svg").read_bytes()
    size = re.search(rb'<svg[^>]*? width="([\d.]+)pt"', svg)
    width = float(size[1]) / 72 if size else 7.0
    kind, data = ("svg+xml", svg) if len(svg) <= LARGEST else ("png", path.read_bytes())
    uri = f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
    least = width * LEGIBLE
    image = f'<img src="{uri}" alt="{escape(f"{name}: {caption}")}"'
    if least <= NARROW:
        image += ">"
    else:
        image = f'<div class="wide" tabindex="0" role="region" aria-label="{name}">{image}'
        image += f' style="min-width:{least:.0f}px"></div>'
    below = f"<figcaption>{escape(caption)}</figcaption>"
    return f'<figure style="width:{width * INCH:.0f}px">{image}{below}</figure>'


def _list(lines: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>"
