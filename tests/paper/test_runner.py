"""Experiments that are run, kept, drawn and reported."""

import ast
import inspect
import json
import re
import shutil
from dataclasses import replace
from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.figure import Figure
from typer.testing import CliRunner

from heatbath import paper, plotting
from heatbath.cli import app
from heatbath.paper import report, runner
from heatbath.paper.claims import FAILS, HOLDS, IN_PART
from heatbath.paper.experiment import Settings
from heatbath.plotting import output
from heatbath.runs import file

FAST = ("data", "line-spiral", "points")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("reproduction")
    done = CliRunner().invoke(app, ["reproduce", *FAST, "--quick", "--folder", str(place)])
    assert done.exit_code == 0, done.output
    return place / "quick"


def test_finished_results_are_not_computed_again(folder, monkeypatch):
    """They are computed again only where settings or code have changed."""
    assert all(
        (folder / name / file).exists() for name in FAST for file in ("data.nc", "picture.png", "picture.svg")
    )
    before = {name: (folder / name / "data.nc").read_bytes() for name in FAST}
    done = CliRunner().invoke(app, ["reproduce", *FAST, "--quick", "--folder", str(folder.parent)])
    assert done.exit_code == 0, done.output
    assert {name: (folder / name / "data.nc").read_bytes() for name in FAST} == before
    experiment = paper.find("points")
    assert runner.load_result(experiment, folder / "points", quick=True) is not None
    assert runner.load_result(experiment, folder / "points", quick=False) is None
    monkeypatch.setitem(experiment.quick, "runs", 3)
    assert runner.load_result(experiment, folder / "points", quick=True) is None


def test_results_read_from_a_file_have_the_same_findings(folder):
    experiment = paper.find("line-spiral")
    fresh = experiment.run(Settings(**experiment.settings_for(True)), None)
    kept = runner.load_result(experiment, folder / "line-spiral", quick=True)
    assert [claim.check(fresh) for claim in experiment.claims] == kept.findings


def record_drawings(monkeypatch, name):
    """Return a list that grows whenever the picture of an experiment is drawn, which is then empty."""
    drawn, experiment = [], paper.find(name)

    def draw(data, s):
        drawn.append(name)
        return Figure()

    draw.__module__ = experiment.run.__module__
    where = f"heatbath.paper.{paper.EXPERIMENTS[name]}"
    monkeypatch.setattr(where, replace(experiment, draw=draw))
    return drawn


@pytest.mark.parametrize("options", [[], ["--only-report"]])
def test_pictures_that_are_up_to_date_are_not_drawn_again(options, folder, monkeypatch):
    drawn = [record_drawings(monkeypatch, name) for name in FAST]
    before = {name: (folder / name / "picture.png").stat().st_mtime_ns for name in FAST}
    arguments = ["reproduce", *FAST, "--quick", "--folder", str(folder.parent), *options]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert drawn == [[]] * len(FAST)
    assert {name: (folder / name / "picture.png").stat().st_mtime_ns for name in FAST} == before


@pytest.mark.parametrize(
    "reason", ["no picture", "no svg", "no stamp", "other stamp", "other results", "other code"]
)
def test_a_picture_of_other_results_or_code_is_drawn_again(reason, folder, tmp_path, monkeypatch):
    drawn, place = record_drawings(monkeypatch, "data"), shutil.copytree(folder / "data", tmp_path / "data")
    kept = runner.load_result(paper.find("data"), place, quick=True)
    assert not runner.publish(kept)
    if reason.startswith("no "):
        end = {"picture": "png", "svg": "svg", "stamp": "sha256"}[reason.removeprefix("no ")]
        (place / f"picture.{end}").unlink()
    elif reason == "other stamp":
        (place / "picture.sha256").write_text("of other results\n")
    elif reason == "other results":
        file.write(place / "data.nc", kept.data.assign_attrs(heatbath_seconds=1.0))
    else:
        monkeypatch.setattr(runner, "library_hash", lambda: "another library")
    assert runner.publish(kept)
    assert drawn == ["data"]
    assert all((place / f"picture.{end}").exists() for end in ("png", "svg", "sha256"))
    assert not runner.publish(kept)


def test_reading_a_result_writes_nothing(folder):
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    (folder / "points" / "picture.png").unlink()
    assert runner.load_result(paper.find("points"), folder / "points", quick=True)
    del before[folder / "points" / "picture.png"], before[folder / "points"]
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert not (folder / "points" / "picture.png").exists()
    assert runner.publish(runner.load_result(paper.find("points"), folder / "points", quick=True))


def test_an_outdated_summary_is_written_again(folder, tmp_path):
    shutil.copytree(folder / "data", tmp_path / "data")
    result = runner.load_result(paper.find("data"), tmp_path / "data", quick=True)
    place = tmp_path / "data" / "result.json"
    text = place.read_text()
    place.write_text("{}")
    runner.publish(result)
    assert place.read_text() == text


MODULE = """
from heatbath.plotting.style import {style}
from heatbath.paper.side_by_side import final

LIMIT = {limit}


def run(s, tell):
    return {run}


@{decorator}
def draw_it(data, s):
    return {draw}
"""
SAME = {"style": "PAGE_WIDTH", "limit": 1, "run": 2, "draw": 3, "decorator": "cache"}


@pytest.mark.parametrize(
    ("change", "matters"),
    [
        ({"draw": 4}, False),
        ({"style": "PAGE_WIDTH, SMALL_SIZE"}, False),
        ({"decorator": "lru_cache"}, False),
        ({"run": 3}, True),
        ({"limit": 2}, True),
    ],
)
def test_code_that_only_draws_does_not_change_the_fingerprint(change, matters, tmp_path, monkeypatch):
    texts = []
    for place, values in enumerate((SAME, SAME | change)):
        (tmp_path / f"made_up_{place}.py").write_text(MODULE.format(**values))
        module = SimpleNamespace(__file__=tmp_path / f"made_up_{place}.py")
        monkeypatch.setattr(runner, "import_module", lambda name, module=module: module)
        texts.append(runner._source_without_drawing("made_up"))
    assert (texts[0] != texts[1]) == matters


@pytest.mark.parametrize("name", paper.NAMES)
def test_no_function_that_a_run_needs_counts_as_drawing(name):
    """Names that begin with draw are left out of the fingerprint, so `run` must not lead to one of them."""
    module = import_module(paper.find(name).run.__module__)
    tree = ast.parse(inspect.getsource(module))
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    reached, waiting = set(), [paper.find(name).run.__name__]
    while waiting:
        if (function := waiting.pop()) not in reached:
            reached.add(function)
            used = [node for node in ast.walk(functions[function]) if isinstance(node, ast.Name)]
            local = {node.id for node in used if isinstance(node.ctx, ast.Store)}
            waiting += ({node.id for node in used} - local) & functions.keys()
    assert not [function for function in reached if function.startswith("draw")]


def test_the_summary_has_every_claim_with_its_verdict(folder):
    told = json.loads((folder / "points" / "result.json").read_text())
    assert [claim["claim"] for claim in told["claims"]] == [c.text for c in paper.find("points").claims]
    assert {claim["verdict"] for claim in told["claims"]} <= {HOLDS, IN_PART, FAILS}
    assert told["settings"]["runs"] == "2"
    assert told["quick"] is True


def test_the_report_is_one_file_with_everything_in_it(folder):
    page = (folder / "report.html").read_text()
    assert not re.findall(r'(?:src|href)="(?!data:|#)', page)
    assert page.count('src="data:image/png;base64,') == len(FAST)
    for name in FAST:
        experiment = paper.find(name)
        assert all(page.count(report.escape(claim.text)) == 2 for claim in experiment.claims)
    assert "Quick runs" in page


def test_only_the_report_can_be_written_again(folder, tmp_path):
    (folder / "report.html").unlink()
    docs = tmp_path / "docs"
    arguments = [
        "reproduce",
        *FAST,
        "--quick",
        "--folder",
        str(folder.parent),
        "--only-report",
        "--docs",
        str(docs),
    ]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert (folder / "report.html").exists()
    page = (docs / "reproduction.md").read_text()
    assert all(
        f"reproduction/{name}.png" in page and (docs / f"reproduction/{name}.png").exists() for name in FAST
    )


def test_errors_are_reported_in_one_line(tmp_path, monkeypatch):
    missing = CliRunner().invoke(app, ["reproduce", "nothing"])
    assert missing.exit_code == 2
    assert missing.stderr.startswith("heatbath: there is no experiment nothing: accepted are temperature, ")
    empty = CliRunner().invoke(app, ["reproduce", "--only-report", "--folder", str(tmp_path / "none")])
    assert empty.exit_code == 2
    assert "no experiment is finished" in empty.stderr
    monkeypatch.setenv("HEATBATH_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(import_module("heatbath.datasets.mnist"), "MIRRORS", ("http://127.0.0.1:9",))
    done = CliRunner().invoke(app, ["reproduce", "line-mnist", "data", "--quick", "--folder", str(tmp_path)])
    assert done.exit_code == 1
    assert "line-mnist was not run" in done.output
    assert "line-mnist was not run" in (tmp_path / "quick" / "report.html").read_text()
    (tmp_path / "file").write_text("")
    wrong = CliRunner().invoke(app, ["reproduce", "data", "--folder", str(tmp_path / "file")])
    assert wrong.exit_code == 2
    assert wrong.stderr.count("\n") == 1


def test_a_damaged_result_is_computed_again_and_kept_aside(folder, tmp_path):
    place = shutil.copytree(folder / "data", tmp_path / "quick" / "data")
    (place / "data.nc").write_bytes(b"nothing")
    done = CliRunner().invoke(app, ["reproduce", "data", "--quick", "--folder", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert runner.load_result(paper.find("data"), place, quick=True)
    assert (place / "damaged-data.nc").read_bytes() == b"nothing"


def test_the_report_has_all_finished_experiments_and_names_the_others(folder):
    done = CliRunner().invoke(app, ["reproduce", "data", "--quick", "--folder", str(folder.parent)])
    assert done.exit_code == 0
    page = (folder / "report.html").read_text()
    assert page.count('src="data:image/png;base64,') == len(FAST)
    assert page.count("was not run") == len(paper.NAMES) - len(FAST)


def test_code_that_results_depend_on_is_in_the_fingerprint(monkeypatch):
    experiment = paper.find("points")
    before = runner.fingerprint(experiment, True)
    monkeypatch.setattr(runner, "library_hash", lambda: "another library")
    other = runner.fingerprint(experiment, True)
    assert other != before
    monkeypatch.setattr(runner, "_source_without_drawing", lambda module: module)
    assert runner.fingerprint(experiment, True) not in (before, other)


def test_the_list_has_all_names_and_claims():
    done = CliRunner().invoke(app, ["reproduce", "--list"], env={"COLUMNS": "200"})
    assert done.exit_code == 0
    assert all(name in done.output for name in paper.NAMES)


def test_ctrl_c_ends_everything_and_says_how_to_continue(tmp_path, monkeypatch):
    def interrupted(s, tell):
        raise KeyboardInterrupt

    experiment = paper.find("points")
    monkeypatch.setattr("heatbath.paper.example_effects.EXPERIMENT", replace(experiment, run=interrupted))
    done = CliRunner().invoke(app, ["reproduce", "data", "points", "--quick", "--folder", str(tmp_path)])
    assert done.exit_code == 130
    assert "continue with: heatbath" in done.output
    assert (tmp_path / "quick" / "data" / "data.nc").exists()
    assert not (tmp_path / "quick" / "points" / "data.nc").exists()


@pytest.fixture
def few_digits(tmp_path, monkeypatch):
    """Replace MNIST by 300 images for training and 100 for testing, whose digit is the row that is white."""
    module = import_module("heatbath.datasets.mnist")
    shapes = {name: (300 if "train" in name else 100, *shape[1:]) for name, shape in module.MNIST.items()}
    for name, (count, *sides) in shapes.items():
        digits = np.arange(count) % 10
        images = 255 * (np.arange(28) == digits[:, None])[:, :, None].repeat(28, axis=2)
        head = bytes([0, 0, 8, 1 + len(sides)]) + np.array((count, *sides), ">u4").tobytes()
        (tmp_path / name).write_bytes(head + (images if sides else digits).astype(np.uint8).tobytes())
    monkeypatch.setattr(module, "MNIST", shapes)
    monkeypatch.setenv("HEATBATH_DATA", str(tmp_path))


def save_png(picture, path):
    """Save a figure, or the figure of some axes, as a PNG only, with the type check of `plotting.save`."""
    output._figure(picture).savefig(path)


@pytest.mark.parametrize("name", [name for name in paper.NAMES if name not in FAST])
def test_every_experiment_runs_quickly(name, few_digits, tmp_path, monkeypatch):
    """Each runs from its settings to claims, tables and a picture, which is saved as a PNG only."""
    monkeypatch.setattr(plotting, "save", save_png)
    (result,) = runner.reproduce([name], tmp_path, quick=True, again=False, make_callback=lambda name: None)
    assert isinstance(result, runner.ExperimentResult), result
    assert all(found.ours and found.verdict in report.MARKS for found in result.findings)
    assert all(len(row) == len(table.columns) for table in result.tables for row in table.rows)
    assert result.picture.stat().st_size > 5000
