"""Run experiments, and keep their results in a folder, so that finished experiments are not run again.

The folder of an experiment has its results (data.nc), the picture, and the summary (result.json). The picture
is drawn again only if the results or the drawing code change; its stamp (picture.sha256) identifies both.
"""

from __future__ import annotations

import ast
import hashlib
import json
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import xarray as xr

from heatbath import plotting
from heatbath._internal.atomic_write import set_aside, write
from heatbath._internal.warnings import DivergedWarning, InterruptedWarning
from heatbath.paper import experiment as experiment_module
from heatbath.paper import figures, find, interpretations, side_by_side
from heatbath.paper.claims import Finding
from heatbath.paper.experiment import Experiment, ProgressCallback, ReportTable, Settings
from heatbath.runs import file
from heatbath.runs.distributed.worker import hash_files, library_hash

# Modules that only draw: their imports don't decide results
DRAWING_MODULES = ("heatbath.plotting", "heatbath.paper.figures", "matplotlib")
PICTURE_ENDINGS = (".png", ".svg")


@dataclass(frozen=True)
class ExperimentResult:
    """A finished experiment with its results, in `folder`."""

    experiment: Experiment
    quick: bool
    data: xr.Dataset
    folder: Path

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of the run."""
        return self.experiment.settings_for(self.quick)

    @property
    def seconds(self) -> float:
        """Duration of training and measuring."""
        return float(self.data.attrs["heatbath_seconds"])

    @property
    def picture(self) -> Path:
        """Path of the picture as PNG, which `publish` draws; the SVG is beside it."""
        return self.folder / "picture.png"

    @cached_property
    def findings(self) -> list[Finding]:
        """Verdicts on the claims."""
        return [claim.check(self.data) for claim in self.experiment.claims]

    @cached_property
    def tables(self) -> list[ReportTable]:
        """Tables of the report, apart from that of the claims."""
        return self.experiment.tables(self.data)


def reproduce(
    names: Iterable[str],
    folder: Path,
    quick: bool,
    again: bool,
    make_callback: Callable[[str], ProgressCallback],
) -> Iterator[ExperimentResult | tuple[str, Exception]]:
    """Run experiments that aren't finished yet; yield each result, or the name and error of one that failed.

    Ctrl-C ends everything; finished experiments stay finished.

    Parameters
    ----------
    names : iterable of str
        Names of the experiments.
    folder : Path
        Where each experiment gets its folder.
    quick : bool
        Use the settings of quick runs.
    again : bool
        Run finished experiments again.
    make_callback : callable
        Returns the progress callback for the name of an experiment.
    """
    for name in names:
        experiment = find(name)
        result_folder = folder / name
        try:
            result = None if again else load_result(experiment, result_folder, quick)
            if result is None:
                result = _run(experiment, result_folder, quick, make_callback(name))
            publish(result)
            yield result
        except (OSError, ValueError, RuntimeError) as error:
            yield name, error


# Results


def load_result(experiment: Experiment, folder: Path, quick: bool) -> ExperimentResult | None:
    """Return the result in a folder, or None if it is missing, damaged or of other settings or code."""
    try:
        data = file.read(folder / "data.nc")
    except (OSError, ValueError):
        return None
    if data.attrs.get("heatbath_experiment") != fingerprint(experiment, quick):
        return None
    return ExperimentResult(experiment, quick, data, folder)


def fingerprint(experiment: Experiment, quick: bool) -> str:
    """Return a hash of what a result depends on: the settings, and the code that trains and measures."""
    modules = (
        experiment.run.__module__,
        experiment_module.__name__,
        side_by_side.__name__,
        interpretations.__name__,
    )
    settings = repr(experiment.settings_for(quick))
    parts = [library_hash(), *map(_source_without_drawing, modules), experiment.name, settings]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _run(experiment: Experiment, folder: Path, quick: bool, progress: ProgressCallback) -> ExperimentResult:
    """Run an experiment, save its results in a folder, and return them.

    Parameters
    ----------
    experiment : Experiment
        The experiment.
    folder : Path
        Where `data.nc` is written; a damaged file of this name is kept under another name.
    quick : bool
        Use the settings of a quick run.
    progress : callable or None
        Called with the progress of each training.
    """
    begin = time.perf_counter()
    folder.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DivergedWarning)  # results contain which runs diverged
        warnings.simplefilter("ignore", InterruptedWarning)  # an interrupted run ends everything anyway
        data = experiment.run(Settings(**experiment.settings_for(quick)), progress)

    data.attrs |= {
        "heatbath_format": file.FORMAT,
        "heatbath_version": version("heatbath"),
        "heatbath_experiment": fingerprint(experiment, quick),
        "heatbath_seconds": time.perf_counter() - begin,
    }

    try:
        file.write(folder / "data.nc", data)
    except FileExistsError:  # a damaged file: `load_result` returned None
        set_aside(folder / "data.nc", "damaged-data.nc")
        file.write(folder / "data.nc", data)
    return ExperimentResult(experiment, quick, data, folder)


def _module_path(module: str | ModuleType) -> Path:
    """Return the path of a module's source; a module given by its name is imported."""
    if isinstance(module, str):
        module = import_module(module)
    return Path(str(module.__file__))


def _source_without_drawing(module: str) -> str:
    """Return the source of a module without blank lines and code that only draws.

    Such code is functions whose names begin with draw, and imports for drawing.
    """
    text = _module_path(module).read_text(encoding="utf-8")
    lines = text.splitlines()
    for node in ast.parse(text).body:
        if _only_draws(node):
            decorators = getattr(node, "decorator_list", [])
            first_line = min([node.lineno, *(decorator.lineno for decorator in decorators)])
            for index in range(first_line - 1, node.end_lineno or first_line):
                lines[index] = ""
    return "\n".join(line for line in lines if line)


def _only_draws(node: ast.stmt) -> bool:
    """Return True if a statement of a module is only needed for drawing, or for type checkers."""
    if isinstance(node, ast.FunctionDef):
        return node.name.startswith("draw")
    if isinstance(node, ast.If):
        return ast.unparse(node.test) == "TYPE_CHECKING"
    return isinstance(node, ast.ImportFrom) and (node.module or "").startswith(DRAWING_MODULES)


# Pictures and summaries


def publish(result: ExperimentResult) -> bool:
    """Write the summary of a result and draw its picture, unless they are there and up to date.

    Returns
    -------
    bool
        True if the picture was drawn.
    """
    summary_text = json.dumps(summary(result), indent=2, ensure_ascii=False) + "\n"
    summary_path = result.folder / "result.json"
    if not _has_text(summary_path, summary_text):
        write(summary_path, summary_text)

    stamp = _picture_stamp(result)
    stamp_path = result.folder / "picture.sha256"
    has_pictures = all(result.picture.with_suffix(ending).exists() for ending in PICTURE_ENDINGS)
    if has_pictures and _has_text(stamp_path, stamp):
        return False

    figure = result.experiment.draw(result.data, Settings(**result.settings))
    plotting.save(figure, result.picture)
    write(stamp_path, stamp)
    return True


def _has_text(path: Path, text: str) -> bool:
    """Return True if there is a file with exactly this text."""
    return path.exists() and path.read_text(encoding="utf-8") == text


def _picture_stamp(result: ExperimentResult) -> str:
    """Return a hash of what a picture depends on: the results, and all code that may draw them."""
    modules = (figures.__name__, side_by_side.__name__, result.experiment.draw.__module__)
    paths = [_module_path(name) for name in modules]
    paths += sorted(_module_path(plotting).parent.glob("*.py"))
    parts = hash_files([result.folder / "data.nc"]), library_hash(), hash_files(paths), version("matplotlib")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest() + "\n"


def summary(result: ExperimentResult) -> dict[str, Any]:
    """Return a result with its findings and tables as plain values for JSON.

    Keys are `name`, `title`, `quick`, `seconds`, `version`, `notes`, `diverged` (a sentence or ""), `claims`,
    `settings` (texts by name) and `tables`. Claims and tables are lists of dicts.
    """
    pairs = zip(result.experiment.claims, result.findings, strict=True)
    return {
        "name": result.experiment.name,
        "title": result.experiment.title,
        "quick": result.quick,
        "seconds": round(result.seconds, 1),
        "version": version("heatbath"),
        "notes": result.experiment.notes,
        "diverged": diverged_text(result.data),
        "settings": {name: str(value) for name, value in result.settings.items()},
        "claims": [
            {"claim": claim.text, "paper": claim.paper, **finding._asdict()} for claim, finding in pairs
        ],
        "tables": [asdict(table) for table in result.tables],
    }


def diverged_text(data: xr.Dataset) -> str:
    """Return how many runs have diverged as a sentence without a full stop, or "" if none has."""
    diverged_count = int(data["diverged"].sum()) if "diverged" in data else 0
    if not diverged_count:
        return ""
    return f"{diverged_count} of {data['diverged'].size} runs diverged and count as chance"
