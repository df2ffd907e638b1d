"""Running experiments: each once, its results kept in a folder, so that finished ones are not run again."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import xarray as xr

from heatbath import files, plotting
from heatbath.experiments import base, common, find
from heatbath.experiments.base import Experiment, Finding, Settings, Table, Tell


@dataclass(frozen=True)
class Result:
    """A finished experiment."""

    experiment: Experiment
    settings: dict[str, Any]
    quick: bool
    seconds: float
    data: xr.Dataset
    picture: Path

    def findings(self) -> list[Finding]:
        """The verdicts on the claims."""
        return [claim.check(self.data) for claim in self.experiment.claims]

    def tables(self) -> list[Table]:
        """The tables beside that of the claims."""
        return self.experiment.tables(self.data)


def reproduce(
    names: Iterable[str],
    folder: str | os.PathLike[str],
    quick: bool,
    again: bool,
    tell: Callable[[str], Tell],
) -> Iterator[Result | tuple[str, Exception]]:
    """Run experiments that are not finished yet; what comes out of each, or why it could not be run.

    `tell` makes, of the name of an experiment, what its progress is told to. Ctrl-C ends all; experiments
    that were finished stay so.
    """
    for name in names:
        experiment = find(name)
        place = Path(folder) / name
        try:
            done = None if again else finished(experiment, place, quick)
            yield done or _run(experiment, place, quick, tell(name))
        except (OSError, ValueError, RuntimeError) as error:
            yield name, error


def finished(experiment: Experiment, place: Path, quick: bool) -> Result | None:
    """The result in a folder, if it is of this experiment as it is now."""
    path = place / "data.nc"
    if not path.exists():
        return None
    data = files.read(path)
    if data.attrs.get("heatbath_experiment") != fingerprint(experiment, quick):
        return None
    seconds = float(data.attrs["heatbath_seconds"])
    return _drawn(experiment, place, quick, seconds, data)


def fingerprint(experiment: Experiment, quick: bool) -> str:
    """What a result depends on: the settings, the experiment's own code, the version."""
    code = [inspect.getsource(module) for module in (import_module(experiment.run.__module__), base, common)]
    told = [version("heatbath"), experiment.name, repr(experiment.chosen(quick)), *code]
    return hashlib.sha256("\n".join(told).encode()).hexdigest()


def _run(experiment: Experiment, place: Path, quick: bool, tell: Tell) -> Result:
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*diverged.*")  # that they do is among the results
        data = experiment.run(Settings(**experiment.chosen(quick)), tell)
    seconds = time.perf_counter() - begin
    data.attrs |= {
        "heatbath_format": files.FORMAT,
        "heatbath_version": version("heatbath"),
        "heatbath_experiment": fingerprint(experiment, quick),
        "heatbath_seconds": seconds,
    }
    place.mkdir(parents=True, exist_ok=True)
    files.write(place / "data.nc", data)
    return _drawn(experiment, place, quick, seconds, data)


def _drawn(experiment: Experiment, place: Path, quick: bool, seconds: float, data: xr.Dataset) -> Result:
    """The result with its picture and its summary written."""
    settings = experiment.chosen(quick)
    picture, _ = plotting.save(experiment.draw(data, Settings(**settings)), place / "picture.png")
    result = Result(experiment, settings, quick, seconds, data, picture)
    write_text(place / "result.json", json.dumps(summary(result), indent=2, ensure_ascii=False) + "\n")
    return result


def summary(result: Result) -> dict[str, Any]:
    """All that is said of a result, as plain values."""
    pairs = zip(result.experiment.claims, result.findings(), strict=True)
    return {
        "name": result.experiment.name,
        "title": result.experiment.title,
        "quick": result.quick,
        "seconds": round(result.seconds, 1),
        "version": version("heatbath"),
        "notes": result.experiment.notes,
        "settings": {name: str(value) for name, value in result.settings.items()},
        "claims": [
            {"claim": claim.text, "paper": claim.paper, "ours": found.ours, "verdict": found.verdict}
            for claim, found in pairs
        ],
        "tables": [
            {"title": table.title, "columns": table.columns, "rows": table.rows} for table in result.tables()
        ],
    }


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8")
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
