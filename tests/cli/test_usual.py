"""Test `heatbath train` where no method is named.

It gives the digits of the estimators, however it was interrupted. A run also goes on beyond its end, and
takes a word where a constant would be better.
"""

import csv
import io
import json
import os
import shutil
import signal
import tomllib
import warnings

import numpy as np
import pytest

import heatbath as hb
from heatbath.cli import main
from heatbath.cli.display import Display
from heatbath.cli.report import figures
from heatbath.cli.settings import merge_settings, read_settings
from heatbath.datasets.tables import read_table
from heatbath.models.dense import PIECE, block
from heatbath.runs import simulation
from tests.runs import differences

pytestmark = pytest.mark.filterwarnings("ignore::heatbath.OffTemperatureWarning")  # of very short runs
GIVEN = {"hidden": (6,), "refine": 0.06, "chains": 2}
USUAL = ["--hidden", "6", "--refine", "0.06", "--chains", "2", "--seed", "3", "--test-share", "0"]
WHOLE = ("run.nc", "settings.toml", "summary.json")


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Write CSV files with numbers and classes to predict, some with weights; return also their contents."""
    folder, rng = tmp_path_factory.mktemp("usual"), np.random.default_rng(0)
    X = rng.standard_normal((40, 2))
    size = 100 + 20 * X[:, 0] + 5 * rng.standard_normal(40)
    kinds = np.array(["blue", "red"])[(X[:, 1] + rng.standard_normal(40) > 0).astype(int)]
    places = rng.choice(["Ulm", "Köln", ""], 40)
    grade = X[:, 1] ** 2 + 0.1 * rng.standard_normal(40)
    ranks, often = np.array(["low", "mid", "high"])[np.digitize(grade, [0.3, 1])], rng.integers(1, 4, 40)
    for name, columns in (
        ("size", [*X.T, size]),
        ("kind", [X[:, 0], places, kinds]),
        ("size,grade,often", [*X.T, size, grade, often]),
        ("rank,often", [*X.T, ranks, often]),
    ):
        rows = [["a", "b", *name.split(",")], *zip(*(column.tolist() for column in columns), strict=True)]
        (folder / f"{name}.csv").write_text("\n".join(",".join(map(str, row)) for row in rows) + "\n")
    frame = read_table(folder / "kind.csv").frame
    return folder, {
        "size": (X, size, None),
        "kind": (frame[["a", "b"]], kinds, None),
        "size,grade,often": (X, np.column_stack([size, grade]), often),
        "rank,often": (X, ranks, often),
    }


@pytest.fixture(scope="module")
def trained(tables):
    """Return a folder with a run on each of the tables."""
    folder, contents = tables
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "draw_figures", lambda *arguments: [])
        for name in contents:
            arguments = ["--data", str(folder / f"{name}.csv"), *USUAL]
            for column in name.split(","):
                arguments += ["--weights" if column == "often" else "--target", column]
            with pytest.raises(SystemExit) as end:
                main(["train", *arguments, "--out", str(folder / name)])
            assert end.value.code == 0
    return folder


def estimator(name):
    if name.startswith("size"):
        return hb.ThermodynamicRegressor(**GIVEN, random_state=3)
    return hb.ThermodynamicClassifier(**GIVEN, random_state=3, encode=name == "kind")


@pytest.mark.parametrize("name", ["size", "kind", "size,grade,often", "rank,often"])
def test_what_predict_writes_for_the_training_file_is_what_the_estimator_says_to_the_last_digit(
    name, tables, trained, call
):
    folder, contents = tables
    X, y, weights = contents[name]
    fitted = estimator(name).fit(X, y, sample_weight=weights)
    run = hb.load(trained / name / "run.nc")
    assert run.step == fitted.n_iter_
    assert run.partition == fitted.run_.partition
    np.testing.assert_array_equal(run.data["samples"].values, fitted.run_.data["samples"].values)
    code, out, _ = call("predict", trained / name, folder / f"{name}.csv")
    assert code == 0
    rows = list(csv.DictReader(io.StringIO(out)))
    said = {key: [row[key] for row in rows] for key in rows[0]}
    if not name.startswith("size"):
        assert said["prediction"] == fitted.predict(X).tolist()
        columns = [f"probability_{label}" for label in fitted.classes_]
        np.testing.assert_array_equal(columns_as_numbers(said, columns), fitted.predict_proba(X))
    else:
        expected = [*fitted.predict(X, return_std=True), *fitted.predict_interval(X)]
        ends = ("_size", "_grade") if "grade" in name else ("",)
        columns = [f"{column}{end}" for column in ("prediction", "sd", "low", "high") for end in ends]
        np.testing.assert_array_equal(columns_as_numbers(said, columns), np.column_stack(expected))


def test_a_large_file_is_predicted_in_pieces_with_the_digits_of_all_rows_at_once(trained, tmp_path, call):
    """Matrix products and quantiles always use the same blocks of rows, whatever was read at a time."""
    rows = 2 * PIECE + 77
    X = np.random.default_rng(1).standard_normal((rows, 2)).round(3)
    body = "\n".join(f"{a},{b}" + "\n" * (i % 1000 == 0) for i, (a, b) in enumerate(X.tolist()))
    (tmp_path / "large.csv").write_text(f"a,b\n{body}\n")
    run = hb.load(trained / "size" / "run.nc")
    code, out, _ = call("predict", trained / "size", tmp_path / "large.csv")
    assert code == 0
    said = np.array([list(map(float, row.values())) for row in csv.DictReader(io.StringIO(out))])
    prediction = run.predict(X)
    expected = [prediction.mean, prediction.sd, *run.calibration().interval(run.predictive(X))]
    np.testing.assert_array_equal(said[:, 2:], np.hstack(expected))
    for most in (0, 1, 77, 327, 1310, PIECE, 10**6):
        assert PIECE % block(most) == 0
        assert block(most) <= max(most, 1)


def columns_as_numbers(said, columns):
    """Return columns of a printed table as an array (row, column)."""
    return np.array([list(map(float, said[name])) for name in columns]).T


def test_another_seed_or_a_row_less_gives_other_digits(tables, trained):
    """The control: the comparison above would notice another seed or another row."""
    X, y, _ = tables[1]["size"]
    run = hb.load(trained / "size" / "run.nc")
    for seed, first in ((4, 0), (3, 1)):
        other = estimator("size").set_params(random_state=seed).fit(X[first:], y[first:])
        assert not np.array_equal(run.theta, other.run_.theta)
    X, y, weights = tables[1]["rank,often"]
    weighed = hb.load(trained / "rank,often" / "run.nc")
    for given, same in ((weights, True), (None, False)):
        fitted = estimator("rank").fit(X, y, sample_weight=given)
        assert np.array_equal(weighed.theta, fitted.run_.theta) is same


def test_the_settings_have_all_that_was_chosen(trained):
    told = tomllib.loads((trained / "size" / "settings.toml").read_text())
    assert told["method"] == {"name": "langevin", "h": "auto", "gamma": 100 / 500, "word": "BAOAB"}
    assert told["posterior"] == {"prior": "auto", "noise": "sampled", "temperature": 1.0}
    training = {"steps": "auto", "budget": 500, "batch": 40, "samples": 25, "warm": 15, "momenta": "thermal"}
    assert training.items() <= told["training"].items()
    assert "refine" not in told["training"]  # it is in the budget


def test_the_settings_make_the_same_files_byte_for_byte(trained, tmp_path, call, no_pictures):
    again = tmp_path / "again"
    assert call("train", "--settings", trained / "size" / "settings.toml", "--out", again)[0] == 0
    assert differing(again, trained / "size") == []


def differing(one, other):
    return [name for name in WHOLE if (one / name).read_bytes() != (other / name).read_bytes()]


MOMENTS = {
    "while Adam warms": lambda now: now.finding and now.steps == 15,
    "while the prior is found": lambda now: now.finding and now.steps not in (15, 100),
    "in a round": lambda now: not now.finding and now.step < now.steps,
}


@pytest.mark.parametrize(
    ("when", "kind"),
    [
        ("while Adam warms", signal.SIGINT),
        ("while the prior is found", signal.SIGKILL),
        ("in a round", signal.SIGKILL),
    ],
)
def test_interrupted_by_ctrl_c_or_killed_and_resumed_it_ends_in_the_same_files(
    when, kind, tables, trained, tmp_path, call, no_pictures, monkeypatch
):
    show, stopped, folder = Display.__call__, [], tmp_path / "run"
    begun, prepare = [], simulation.Simulation.__init__

    def stop(self, now):
        show(self, now)
        if not stopped and MOMENTS[when](now):
            stopped.append(now.step)
            signal.raise_signal(kind)

    def note(self, plan, *rest):
        begun.append(plan.steps)
        prepare(self, plan, *rest)

    arguments = ["train", "--data", tables[0] / "size.csv", "--target", "size", *USUAL, "--out", folder]
    with monkeypatch.context() as patch:
        patch.setattr(Display, "__call__", stop)
        if kind == signal.SIGINT:
            code, _, err = call(*arguments)
            assert (code, bool(stopped)) == (130, True)
            assert err.splitlines()[-1] == f"heatbath: interrupted; continue with: heatbath resume {folder}"
        else:
            assert was_command_killed([*map(str, arguments), "--every", "0"])
    assert (folder / "run.nc").exists() == (when == "in a round")
    monkeypatch.setattr(simulation.Simulation, "__init__", note)
    assert call("resume", folder)[0] == 0
    assert differing(folder, trained / "size") == []
    assert (15 in begun) == (when != "in a round")  # where chains begin is in the file


def was_command_killed(arguments):
    """Run a command in a process of its own, and return True if it was killed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads, which do nothing here
        child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            main(arguments)
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


# Beyond the end

SMALL = ["--problem", "spirals", "--n-train", "100", "--n-test", "60", "--hidden", "8", "--steps", "60",
         "--chains", "3", "--batch", "10", "--record", "20", "--samples", "5",
         "--method", "adlala:h=0.2"]  # fmt: skip


def test_a_run_goes_on_beyond_its_end_as_in_the_library_and_its_settings_say_so(
    tmp_path, call, refused, no_pictures, monkeypatch
):
    folder, again = tmp_path / "run", tmp_path / "again"
    assert call("train", *SMALL, "--out", folder)[0] == 0
    short = hb.load(folder / "run.nc")
    assert call("resume", folder, "--steps", "30")[0] == 0
    show, stopped = Display.__call__, []

    def stop(self, now):
        show(self, now)
        if not stopped and now.steps == 110:
            stopped.append(now.step)
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(Display, "__call__", stop)
        assert call("resume", folder, "--steps", "20")[0] == 130
    assert "extended: finish it first with heatbath resume" in refused("resume", folder, "--steps", "20")
    assert call("resume", folder)[0] == 0
    run = hb.load(folder / "run.nc")
    assert differences(run, short.resume(30).resume(20)) == []
    assert run.data.sizes["sample"] == 5 * 110 // 60
    assert tomllib.loads((folder / "settings.toml").read_text())["training"]["continued"] == [90, 110]
    assert json.loads((folder / "summary.json").read_text())["steps"] == 110
    assert call("train", "--settings", folder / "settings.toml", "--out", again)[0] == 0
    assert differing(again, folder) == []
    _, file = read_settings(folder / "settings.toml")
    assert "continued" not in merge_settings(file, {"training": {"steps": 70}}, [])["training"]


def test_the_usual_sampling_goes_on_beyond_its_end(trained, tmp_path, call, no_pictures):
    folder = tmp_path / "kind"
    shutil.copytree(trained / "kind", folder)
    before = hb.load(folder / "run.nc")
    assert call("resume", folder, "--steps", "40")[0] == 0
    run = hb.load(folder / "run.nc")
    assert differences(run, before.resume(40)) == []
    assert call("resume", folder)[0] == 0
    assert hb.load(folder / "run.nc").step == before.step + 40


@pytest.mark.parametrize("steps", ["0", "-3"])
def test_steps_beyond_the_end_that_are_none_are_refused(steps, trained, refused):
    assert "--steps must be" in refused("resume", trained / "size", f"--steps={steps}")


# A constant


# What else is said without a method


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--steps", "300", "--budget", "300"], "leave out one of the two"),
        (["--method", "lol", "--refine", "2"], "refine works only without --method"),
        (["--refine", "0"], "refine must be"),
        (["--noise", "0.5"], "noise is for a regression"),
        (["--method", "adam:h=0.1", "--warm", "10"], "and no warm steps"),
        (["--warm", "-1"], "warm must be"),
    ],
)
def test_what_makes_no_sense_without_a_method_is_refused(arguments, told, refused):
    assert told in refused("train", "--problem", "spirals", *arguments)


def test_only_train_begins_warm(refused):
    told = refused("compare", "--problem", "spirals", "--method", "lol", "--warm", "10")
    assert "without --budget, --warm and --start" in told
