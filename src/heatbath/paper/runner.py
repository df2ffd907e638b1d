"""Running experiments: each once, its results kept in a folder, so that finished ones are not run again.

A folder has the results (data.nc), and what is made of them: the picture and the summary (result.json). To
read results is one thing, to draw them another: a picture is drawn where there is none of these results and
this code, and its stamp (picture.sha256) says of which it is.
"""

from __future__ import annotations

import ast
import hashlib
import json
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import xarray as xr

from heatbath import plotting
from heatbath._internal.atomic_write import set_aside, write
from heatbath.paper import experiment, figures, find, interpretations, side_by_side
from heatbath.paper.claims import Finding
from heatbath.paper.experiment import Experiment, ReportTable, Settings, Tell
from heatbath.runs import file
from heatbath.runs.distributed.pools import using
from heatbath.runs.distributed.worker import hashed, library

ONLY_DRAW = ("heatbath.plotting", "heatbath.paper.figures", "matplotlib")


@dataclass(frozen=True)
class ExperimentResult:
    """A finished experiment, and the folder that it is in."""

    experiment: Experiment
    quick: bool
    data: xr.Dataset
    place: Path

    @property
    def settings(self) -> dict[str, Any]:
        """The settings it was run with."""
        return self.experiment.chosen(self.quick)

    @property
    def seconds(self) -> float:
        """How long training and measuring took."""
        return float(self.data.attrs["heatbath_seconds"])

    @property
    def picture(self) -> Path:
        """The picture as PNG, which `publish` draws; as SVG it is beside it."""
        return self.place / "picture.png"

    @cached_property
    def findings(self) -> list[Finding]:
        """The verdicts on the claims."""
        return [claim.check(self.data) for claim in self.experiment.claims]

    @cached_property
    def tables(self) -> list[ReportTable]:
        """The tables beside that of the claims."""
        return self.experiment.tables(self.data)


def reproduce(
    names: Iterable[str],
    folder: Path,
    quick: bool,
    again: bool,
    tell: Callable[[str], Tell],
    executor: object = None,
) -> Iterator[ExperimentResult | tuple[str, Exception]]:
    """Run experiments that are not finished yet; what comes out of each, or why it could not be run.

    `tell` makes, of the name of an experiment, what its progress is told to. `executor` is as in `sweep`, for
    the comparisons and sweeps in them. Ctrl-C ends all; experiments
    that were finished stay so.
    """
    for name in names:
        chosen = find(name)
        try:
            result = None if again else finished(chosen, folder / name, quick)
            with nullcontext() if executor is None else using(executor):
                result = result or _run(chosen, folder / name, quick, tell(name))
            publish(result)
            yield result
        except (OSError, ValueError, RuntimeError) as error:
            yield name, error


# Results


def finished(chosen: Experiment, place: Path, quick: bool) -> ExperimentResult | None:
    """The result in a folder, if it is whole and of this experiment as it is now."""
    try:
        data = file.read(place / "data.nc")
    except (OSError, ValueError):  # none, or damaged: it will be run again
        return None
    if data.attrs.get("heatbath_experiment") != fingerprint(chosen, quick):
        return None
    return ExperimentResult(chosen, quick, data, place)


def fingerprint(chosen: Experiment, quick: bool) -> str:
    """What a result depends on: the settings, and the code that trains and measures."""
    modules = (chosen.run.__module__, experiment.__name__, side_by_side.__name__, interpretations.__name__)
    parts = [library(), *map(_source, modules), chosen.name, repr(chosen.chosen(quick))]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _run(chosen: Experiment, place: Path, quick: bool, tell: Tell) -> ExperimentResult:
    begin = time.perf_counter()
    place.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*diverged.*")  # that they do is among the results
        warnings.filterwarnings("ignore", message=".*interrupted.*")  # it ends all, see `complete`
        data = chosen.run(Settings(**chosen.chosen(quick)), tell)
    data.attrs |= {
        "heatbath_format": file.FORMAT,
        "heatbath_version": version("heatbath"),
        "heatbath_experiment": fingerprint(chosen, quick),
        "heatbath_seconds": time.perf_counter() - begin,
    }
    try:
        file.write(place / "data.nc", data)
    except FileExistsError:  # it is damaged, and kept under another name
        set_aside(place / "data.nc", "damaged-data.nc")
        file.write(place / "data.nc", data)
    return ExperimentResult(chosen, quick, data, place)


def _source(module: str) -> str:
    """The text of a module without what only draws: functions called draw..., and their imports."""
    text = Path(str(import_module(module).__file__)).read_text(encoding="utf-8")
    lines = text.splitlines()
    for node in ast.parse(text).body:
        if _only_draws(node):
            first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
            for place in range(first - 1, node.end_lineno or first):
                lines[place] = ""
    return "\n".join(line for line in lines if line)


def _only_draws(node: ast.stmt) -> bool:
    if isinstance(node, ast.FunctionDef):
        return node.name.startswith("draw")
    if isinstance(node, ast.If):
        return ast.unparse(node.test) == "TYPE_CHECKING"
    return isinstance(node, ast.ImportFrom) and (node.module or "").startswith(ONLY_DRAW)


# Pictures and summaries


def publish(result: ExperimentResult) -> bool:
    """See that a result has its picture and its summary, as this code makes them; whether it drew."""
    text = json.dumps(summary(result), indent=2, ensure_ascii=False) + "\n"
    place = result.place / "result.json"
    if not place.exists() or place.read_text(encoding="utf-8") != text:
        write(place, text)
    stamp, code = result.place / "picture.sha256", _picture_stamp(result)
    files_there = all(result.picture.with_suffix(end).exists() for end in (".png", ".svg"))
    if files_there and stamp.exists() and stamp.read_text(encoding="utf-8") == code:
        return False
    plotting.save(result.experiment.draw(result.data, Settings(**result.settings)), result.picture)
    write(stamp, code)
    return True


def _picture_stamp(result: ExperimentResult) -> str:
    """What a picture is made of: the results, and all the code that may draw them."""
    modules = (figures.__name__, side_by_side.__name__, result.experiment.draw.__module__)
    paths = [Path(str(import_module(name).__file__)) for name in modules]
    paths += sorted(Path(plotting.__file__).parent.glob("*.py"))
    parts = hashed([result.place / "data.nc"]), library(), hashed(paths), version("matplotlib")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest() + "\n"


def summary(result: ExperimentResult) -> dict[str, Any]:
    """All that is said of a result, as plain values."""
    pairs = zip(result.experiment.claims, result.findings, strict=True)
    return {
        "name": result.experiment.name,
        "title": result.experiment.title,
        "quick": result.quick,
        "seconds": round(result.seconds, 1),
        "version": version("heatbath"),
        "notes": result.experiment.notes,
        "diverged": diverged(result.data),
        "settings": {name: str(value) for name, value in result.settings.items()},
        "claims": [
            {"claim": claim.text, "paper": claim.paper, "ours": finding.ours, "verdict": finding.verdict}
            for claim, finding in pairs
        ],
        "tables": [
            {"title": table.title, "columns": table.columns, "rows": table.rows} for table in result.tables
        ],
    }


def diverged(data: xr.Dataset) -> str:
    """How many runs have, in words; nothing if none has."""
    if "diverged" not in data or not (lost := int(data["diverged"].sum())):
        return ""
    return f"{lost} of {data['diverged'].size} runs diverged and count as chance"
