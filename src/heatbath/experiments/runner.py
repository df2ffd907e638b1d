"""Running experiments: each once, its results kept in a folder, so that finished ones are not run again."""

from __future__ import annotations

import hashlib
import json
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import xarray as xr

from heatbath import plotting
from heatbath.experiments import base, common, find, planes
from heatbath.experiments.base import Experiment, Finding, Settings, Table, Tell
from heatbath.runs import file

ASIDE = (
    "__init__.py",
    "plotting",
    "torch",
    "estimators",
    "explorer",
    "cli",
    "experiments",
)  # not what decides


@dataclass(frozen=True)
class Result:
    """A finished experiment."""

    experiment: Experiment
    settings: dict[str, Any]
    quick: bool
    seconds: float
    data: xr.Dataset
    picture: Path

    @cached_property
    def findings(self) -> list[Finding]:
        """The verdicts on the claims."""
        return [claim.check(self.data) for claim in self.experiment.claims]

    @cached_property
    def tables(self) -> list[Table]:
        """The tables beside that of the claims."""
        return self.experiment.tables(self.data)


def reproduce(
    names: Iterable[str], folder: Path, quick: bool, again: bool, tell: Callable[[str], Tell]
) -> Iterator[Result | tuple[str, Exception]]:
    """Run experiments that are not finished yet; what comes out of each, or why it could not be run.

    `tell` makes, of the name of an experiment, what its progress is told to. Ctrl-C ends all; experiments
    that were finished stay so.
    """
    for name in names:
        experiment = find(name)
        try:
            done = None if again else finished(experiment, folder / name, quick)
            yield done or _run(experiment, folder / name, quick, tell(name))
        except (OSError, ValueError, RuntimeError) as error:
            yield name, error


def finished(experiment: Experiment, place: Path, quick: bool) -> Result | None:
    """The result in a folder, if it is whole and of this experiment as it is now."""
    try:
        data = file.read(place / "data.nc")
    except (OSError, ValueError):  # none, or damaged: it will be run again
        return None
    if data.attrs.get("heatbath_experiment") != fingerprint(experiment, quick):
        return None
    return _drawn(experiment, place, quick, float(data.attrs["heatbath_seconds"]), data)


def fingerprint(experiment: Experiment, quick: bool) -> str:
    """What a result depends on: the settings, and the code that trains and measures."""
    own = [
        _source(module)
        for module in (experiment.run.__module__, base.__name__, common.__name__, planes.__name__)
    ]
    told = [_library(), *own, experiment.name, repr(experiment.chosen(quick))]
    return hashlib.sha256("\n".join(told).encode()).hexdigest()


def _source(module: str) -> str:
    return Path(str(import_module(module).__file__)).read_text(encoding="utf-8")


@lru_cache
def _library() -> str:
    """The code beside the experiments, hashed."""
    root = Path(file.__file__).parent.parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix()
        if not name.startswith(ASIDE):
            digest.update(name.encode() + path.read_bytes())
    return digest.hexdigest()


def _run(experiment: Experiment, place: Path, quick: bool, tell: Tell) -> Result:
    begin = time.perf_counter()
    place.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*diverged.*")  # that they do is among the results
        warnings.filterwarnings("ignore", message=".*interrupted.*")  # it ends all, see `complete`
        data = experiment.run(Settings(**experiment.chosen(quick)), tell)
    seconds = time.perf_counter() - begin
    data.attrs |= {
        "heatbath_format": file.FORMAT,
        "heatbath_version": version("heatbath"),
        "heatbath_experiment": fingerprint(experiment, quick),
        "heatbath_seconds": seconds,
    }
    _write(place / "data.nc", data)
    return _drawn(experiment, place, quick, seconds, data)


def _write(path: Path, data: xr.Dataset) -> None:
    """Write the data; a damaged file that is in the way is kept under another name."""
    try:
        file.write(path, data)
    except FileExistsError:
        os.replace(path, path.with_name("damaged-data.nc"))
        file.write(path, data)


def _drawn(experiment: Experiment, place: Path, quick: bool, seconds: float, data: xr.Dataset) -> Result:
    """The result with its picture and its summary written."""
    settings = experiment.chosen(quick)
    picture, _ = plotting.save(experiment.draw(data, Settings(**settings)), place / "picture.png")
    result = Result(experiment, settings, quick, seconds, data, picture)
    write_text(place / "result.json", json.dumps(summary(result), indent=2, ensure_ascii=False) + "\n")
    return result


def summary(result: Result) -> dict[str, Any]:
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
            {"claim": claim.text, "paper": claim.paper, "ours": found.ours, "verdict": found.verdict}
            for claim, found in pairs
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


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8")
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
