"""The command line: what its commands write, that interrupted ones end alike, and what mistakes say."""

import errno
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
import warnings
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import pytest

import heatbath as hb
from heatbath.cli import commands, main
from heatbath.cli.display import Display
from heatbath.cli.report import figures
from heatbath.datasets.mnist import MNIST
from heatbath.runs import file, simulation
from tests.cli.arguments import ADLALA, HEATBATH, REGRESSION, SMALL, WHOLE, rows_of
from tests.patience import PATIENCE, wait_until
from tests.processes import killed_after_writing, start_copy, was_killed
from tests.runs import differences

# What the commands do


def test_train_writes_the_run_that_the_library_makes(trained):
    problem = hb.datasets.spirals(n_train=100, n_test=60)
    run = hb.train(problem, hb.MLP((8,)), hb.AdLaLa(h=0.2, tau=2e-4), 60, 10, chains=3, record=20, samples=5)
    found = hb.load(trained / "run.nc")
    assert found.finished
    assert differences(found, run) == []
    names = {path.name for path in trained.iterdir()}
    shown = ("roc", "calibration", "confusion", "importance", "dependence")
    drawn = (*shown, "curves", "temperatures", "classifier")
    pairs = {f"{name}.{kind}" for name in drawn for kind in ("png", "svg")}
    assert names == {"settings.toml", "run.nc", "summary.json", "summary.md", "report.html", *pairs}


def test_settings_toml_makes_the_same_files_byte_for_byte(trained, tmp_path, call):
    code, _, _ = call("train", "--settings", trained / "settings.toml", "--out", tmp_path / "again")
    assert code == 0
    names = {path.name for path in trained.iterdir()}
    assert names == {path.name for path in (tmp_path / "again").iterdir()}
    assert [n for n in names if (trained / n).read_bytes() != (tmp_path / "again" / n).read_bytes()] == []


def test_the_summary_has_the_averaged_prediction_first_then_means_over_chains_and_temperatures(trained):
    from scipy import stats

    told = json.loads((trained / "summary.json").read_text())
    run = hb.load(trained / "run.nc")
    (row,) = told["rows"]
    assert list(row)[:3] == ["labels", "averaged", "single"]
    X, y = run.problem.X_test[0], run.problem.Y_test[0, :, 0]
    right = np.mean((run.predict(X).mean[:, 0] > 0.5) == y)
    assert row["averaged"]["accuracy"]["mean"] == pytest.approx(right)
    values = run.accuracy("test").values[:, -1]
    half = stats.t.ppf(0.975, 2) * values.std(ddof=1) / np.sqrt(3)
    mean = values.mean()
    odds = mean / (1 - mean) * np.exp([0, *np.array([-half, half]) / (mean * (1 - mean))])
    for found in (row["test_accuracy"], row["single"]["accuracy"]):
        ends = [found["mean"], found["low"], found["high"]]
        np.testing.assert_allclose(ends, odds / (1 + odds), rtol=1e-6)
    assert told["judged_on"] == {"split": "test", "examples": 60, "of": 60}
    assert list(told["baselines"]) == ["constant", "logistic regression"]
    assert told["baselines"]["constant"]["accuracy"]["mean"] == 0.5
    assert np.sum(told["confusion"]["counts"]) == 60
    assert {one["column"] for one in told["importance"]} == {"x1", "x2"}
    late = run.temperature("hidden").values[:, run.data["step"].values > 30]
    assert row["temperatures"]["hidden"]["target"] == 2e-4
    assert row["temperatures"]["hidden"]["mean"] == pytest.approx(late.mean())
    text = (trained / "summary.md").read_text()
    assert f"| accuracy | {100 * right:.1f} % (" in text
    assert f" | {100 * mean:.1f} % ({100 * row['single']['accuracy']['low']:.1f} to" in text
    assert "60 test examples; 95 % intervals over examples, for one network over chains." in text


def test_json_is_one_object_on_stdout_and_nothing_else(tmp_path, call, no_pictures):
    code, out, _ = call("train", *SMALL, "--method", "sgd", "--h", "0.1", "--json", "--out", tmp_path / "run")
    told = json.loads(out)
    assert code == 0
    assert told["folder"] == str(tmp_path / "run")
    written = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert {key: told[key] for key in written} == written


def test_compare_runs_the_methods_from_the_same_starts(tmp_path, call, svg_only):
    chosen = ["--method", "sgd:h=0.1", "--method", "adlala:h=0.2,tau=2e-4"]
    code, out, _ = call("compare", *SMALL, *chosen, "--out", tmp_path / "both")
    assert code == 0
    run = hb.load(tmp_path / "both" / "run.nc")
    assert run.partition == {"SGD": hb.Partition(hb.SGD(), 0.1), "AdLaLa": hb.AdLaLa(h=0.2, tau=2e-4)}
    alone = hb.train(run.problem, hb.MLP((8,)), hb.Partition(hb.SGD(), 0.1), 60, 10, chains=3, record=20)
    assert differences(run.select(method="SGD"), alone) == []
    assert (tmp_path / "both" / "classifiers.svg").stat().st_size > 10_000
    assert re.search(r"SGD .*\d %.*to", out)
    rows = json.loads((tmp_path / "both" / "summary.json").read_text())["rows"]
    assert [row["labels"]["method"] for row in rows] == ["SGD", "AdLaLa"]
    assert rows[0]["temperatures"] == {}
    assert list(rows[1]["temperatures"]) == ["hidden", "output"]


def test_sweep_takes_lists_and_logarithmic_ranges(tmp_path, call, svg_only):
    options = ["--method", "lol", "--h", "0.1", "--tau", "1e-5,1e-3", "--gamma", "1e-2:1:3"]
    code, out, _ = call("sweep", *SMALL, *options, "--out", tmp_path / "grid")
    out = " ".join(out.split())
    assert code == 0
    told = json.loads((tmp_path / "grid" / "summary.json").read_text())
    found = [tuple(row["labels"].values()) for row in told["rows"]]
    assert found == [(gamma, tau) for gamma in (0.01, 0.1, 1.0) for tau in (1e-5, 1e-3)]
    assert told["best"] == told["rows"][int(np.argmin(told["chosen"]["losses"]))]["labels"]
    assert (told["chosen"]["examples"], told["judged_on"]["examples"]) == (30, 30)
    assert "* is the best by the log loss of the averaged prediction on 30 other examples" in out
    assert (tmp_path / "grid" / "sweep.svg").exists()
    run = hb.load(tmp_path / "grid" / "run.nc").select(tau=1e-5, gamma=0.1)
    alone = hb.train(run.problem, hb.MLP((8,)), hb.LOL(0.1, 0.1, 1e-5), 60, 10, chains=3, record=20)
    assert differences(run, alone) == []


# Data of the user's own, and predictions


def test_a_posterior_is_that_of_the_library_and_its_settings_make_it_again(
    sampled, tmp_path, call, no_pictures
):
    run = hb.load(sampled / "run" / "run.nc")
    assert run.partition == hb.LaLa(0.1, 1.0, posterior=hb.Posterior((0.8, 1.2), "sampled", 0.9))
    told = tomllib.loads((sampled / "run" / "settings.toml").read_text())
    assert told["posterior"] == {"prior": [0.8, 1.2], "noise": "sampled", "temperature": 0.9}
    assert not {"tau", "weight_decay"} & set(told["method"])
    assert call("train", "--settings", sampled / "run" / "settings.toml", "--out", tmp_path / "again")[0] == 0
    for name in WHOLE:
        assert (tmp_path / "again" / name).read_bytes() == (sampled / "run" / name).read_bytes()


def test_the_summary_has_the_noise_in_the_units_of_the_target(sampled):
    run = hb.load(sampled / "run" / "run.nc")
    (row,) = json.loads((sampled / "run" / "summary.json").read_text())["rows"]
    late = run.data["noise"].values[:, run.data["step"].values > 150, 0]
    expected = np.sqrt(late.mean(axis=1)).mean() * run.problem.target_scale[0]
    assert row["noise"]["mean"] == pytest.approx(expected)
    assert row["noise"]["mean"] == pytest.approx(5, rel=0.4)
    assert "| noise |" in (sampled / "run" / "summary.md").read_text()


def test_a_network_says_the_noise_at_each_row(sampled, tmp_path, call, no_pictures):
    method = ["--method", "lala:h=0.1,gamma=1", "--noise", "network", "--temperature", "0.9"]
    for out, options in (
        ("run", [*REGRESSION, *method]),
        ("again", ["--settings", tmp_path / "run" / "settings.toml"]),
    ):
        data = () if out == "again" else ("--data", sampled / "size.csv")
        assert call("train", *data, *options, "--out", tmp_path / out)[0] == 0
    for name in WHOLE:
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "run" / name).read_bytes()
    told = tomllib.loads((tmp_path / "run" / "settings.toml").read_text())
    assert told["posterior"] == {"prior": 1.0, "noise": "network", "temperature": 0.9}
    run = hb.load(tmp_path / "run" / "run.nc")
    assert run.plan.likelihood.outputs == 2
    code, out, _ = call("predict", tmp_path / "run", sampled / "size.csv", "--coverage", "0.8")
    assert code == 0
    rows = rows_of(out)
    X = [[float(row["a"]), float(row["b"])] for row in rows]
    expected, law = run.predict(X), run.predictive(X)
    assert np.ptp(expected.noise) > 0
    low, _ = run.calibration().interval(law, 0.8)
    for name, values in zip(("prediction", "sd", "low"), (law.mean, law.sd, low), strict=True):
        np.testing.assert_allclose([float(row[name]) for row in rows], values[:, 0], rtol=1e-9)
    np.testing.assert_allclose(law.sd, expected.sd, rtol=1e-9)


# What a run finds by itself

AUTO = ["--target", "size", "--hidden", "8", "--steps", "Auto", "--budget", "1600", "--chains", "3",
        "--samples", "10", "--record", "4", "--method", "lala:h=auto,gamma=1", "--prior", "0.8",
        "--temperature", "0.5"]  # fmt: skip


@pytest.fixture(scope="module")
def found_run(sampled, tmp_path_factory):
    """Return the folder of a run that finds its stepsize and its length."""
    folder = tmp_path_factory.mktemp("auto") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "draw_figures", lambda *arguments: [])
        with pytest.raises(SystemExit) as end:
            main(["train", "--data", str(sampled / "size.csv"), *AUTO, "--out", str(folder)])
    assert end.value.code == 0
    return folder


def test_what_is_found_is_what_the_library_finds(found_run):
    run = hb.load(found_run / "run.nc")
    partition = hb.LaLa("auto", 1.0, posterior=hb.Posterior(0.8, temperature=0.5))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hb.OffTemperatureWarning)
        same = hb.train(
            run.problem, hb.MLP((8,)), partition, "auto", chains=3, budget=1600, samples=10, record=4
        )
    assert differences(run, same) == []
    assert run.found == same.found
    assert run.partition.h == same.partition.h


def test_settings_find_it_again_byte_for_byte(found_run, tmp_path, call, no_pictures):
    told = tomllib.loads((found_run / "settings.toml").read_text())
    assert told["method"]["h"] == "auto"
    assert {key: told["training"][key] for key in ("steps", "budget", "samples")} == {
        "steps": "auto", "budget": 1600, "samples": 10,
    }  # fmt: skip
    code, out, _ = call("train", "--settings", found_run / "settings.toml", "--out", tmp_path / "again")
    assert code == 0
    for name in WHOLE:
        assert (tmp_path / "again" / name).read_bytes() == (found_run / name).read_bytes()
    run = hb.load(found_run / "run.nc")
    notes = [f"h: {run.partition.h:.4g}", *run.found.summary().splitlines()]
    assert len(notes) == 4
    assert out.splitlines()[-5:] == [*notes, f"results: {tmp_path / 'again'}"]


def test_the_summary_has_what_was_found(found_run):
    run = hb.load(found_run / "run.nc")
    told = json.loads((found_run / "summary.json").read_text())
    assert told["found"] == {"h": run.partition.h, **run.found.plain()}
    assert told["found"]["ended"] in ("converged", "budget")
    assert told["steps"] == run.step
    for line in run.found.summary().splitlines():
        assert f"- {line}\n" in (found_run / "summary.md").read_text()


@pytest.mark.parametrize("when", ["in the ladder", "in the first round", "in the last"])
def test_ctrl_c_while_something_is_found_goes_on_to_the_same_files(
    when, found_run, sampled, tmp_path, call, no_pictures, monkeypatch
):
    last = hb.load(found_run / "run.nc").step
    at = {"in the ladder": None, "in the first round": 200, "in the last": last}[when]
    show, stopped = Display.__call__, []

    def interrupt(self, now):
        show(self, now)
        if not stopped and (now.finding if at is None else not now.finding and now.steps == at):
            stopped.append(now.step)
            signal.raise_signal(signal.SIGINT)

    folder = tmp_path / "run"
    monkeypatch.setattr(Display, "__call__", interrupt)
    code, out, err = call("train", "--data", sampled / "size.csv", *AUTO, "--out", folder)
    assert (code, out) == (130, "")
    assert stopped
    assert err.splitlines()[-1] == f"heatbath: interrupted; continue with: heatbath resume {folder}"
    assert (folder / "run.nc").exists() == (at is not None)
    assert call("resume", folder)[0] == 0
    for name in WHOLE:
        assert (folder / name).read_bytes() == (found_run / name).read_bytes()


def test_a_run_that_has_found_all_stays_as_it_is(found_run, call, no_pictures, monkeypatch):
    before = {path.name: path.read_bytes() for path in found_run.iterdir()}
    monkeypatch.setattr(simulation.Simulation, "run", None)  # nothing is to be run
    assert call("resume", found_run)[0] == 0
    assert {path.name: path.read_bytes() for path in found_run.iterdir()} == before


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_column_of_weights_counts_in_training_and_is_ignored_in_predictions(
    kind, sampled, tmp_path, call, no_pictures
):
    rows = np.loadtxt(sampled / "size.csv", delimiter=",", skiprows=1)
    table = {"a": rows[:, 0], "count": np.arange(60) % 4 / 2, "b": rows[:, 1], "size": rows[:, 2]}
    data = tmp_path / "weighed.csv"
    np.savetxt(data, np.column_stack([*table.values()]), delimiter=",", header=",".join(table), comments="")
    problem = hb.from_table(data, "size", weights="count")
    if kind == "parquet":
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        data = tmp_path / "weighed.parquet"
        parquet.write_table(pyarrow.table(table), data)
    method = ["--method", "lala:h=0.1,gamma=1", "--prior", "0.8"]
    options = [*REGRESSION, *method, "--weights", "count", "--out", tmp_path / "run"]
    assert call("train", "--data", data, *options)[0] == 0
    run = hb.load(tmp_path / "run" / "run.nc")
    partition = hb.LaLa(0.1, 1.0, posterior=hb.Posterior(0.8))
    same = hb.train(problem, hb.MLP((8,)), partition, 300, chains=3, samples=10)
    assert differences(run, same) == []
    assert run.problem.features == ("a", "b")
    again = ["--settings", tmp_path / "run" / "settings.toml", "--out", tmp_path / "again"]
    assert call("train", *again)[0] == 0
    for name in WHOLE:
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "run" / name).read_bytes()
    said = [rows_of(call("predict", tmp_path / "run", file)[1]) for file in (data, sampled / "size.csv")]
    assert "count" in said[0][0]
    assert [row["prediction"] for row in said[0]] == [row["prediction"] for row in said[1]]


def test_parquet_is_read_as_csv_is(tmp_path, table, call, no_pictures):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = rows_of(table.read_text())
    columns = {name: [row[name] if name == "kind" else float(row[name]) for row in rows] for name in rows[0]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "kind.parquet")
    options = ["--target", "kind", "--method", "lol", "--hidden", "8", "--steps", "60"]
    for name in ("csv", "parquet"):
        data = tmp_path / f"kind.{name}"
        assert call("train", "--data", data, *options, "--out", tmp_path / name)[0] == 0
    runs = [hb.load(tmp_path / name / "run.nc") for name in ("csv", "parquet")]
    assert differences(*runs) == []
    assert repr(runs[0].problem) == repr(runs[1].problem)
    said = [call("predict", tmp_path / "csv", tmp_path / f"kind.{name}")[1] for name in ("csv", "parquet")]
    assert said[0] == said[1]


def test_without_pyarrow_parquet_is_refused_in_one_line(tmp_path, refused, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    line = refused("train", "--data", "x.parquet", "--target", "y", "--method", "lol")
    assert "cannot be read" in line
    (tmp_path / "x.parquet").write_bytes(b"PAR1")
    line = refused("train", "--data", tmp_path / "x.parquet", "--target", "y", "--method", "lol")
    assert "pip install 'heatbath[parquet]'" in line


def test_info_says_what_there_is(call, monkeypatch, tmp_path):
    monkeypatch.setenv("HEATBATH_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HEATBATH_THREADS", "3")
    code, out, _ = call("info")
    facts = dict(line.split(maxsplit=1) for line in out.splitlines())
    assert code == 0
    assert facts["heatbath"] == hb.__version__
    assert facts["threads"] == "3"
    assert facts["data"] == str(tmp_path)
    assert facts["MNIST"].startswith("missing")
    assert "compile" in facts["kernels"]
    (tmp_path / "mnist").mkdir()
    for name in MNIST:
        (tmp_path / "mnist" / f"{name}.gz").touch()
    assert f"in {tmp_path / 'mnist'}" in call("info")[1]


# Interruptions

LONG = ["--problem", "spirals", "--n-train", "100", "--n-test", "60", "--hidden", "20", "--steps", "60000",
        "--chains", "2", "--batch", "10", "--record", "50", "--samples", "20", *ADLALA]  # fmt: skip


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Return the files of a run that nothing has disturbed, and the seconds it took."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    begin = time.perf_counter()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "draw_figures", lambda *arguments: [])
        with pytest.raises(SystemExit):
            main(["train", *LONG, "--threads", "1", "--every", "0.15", "--out", str(folder)])
    return {name: (folder / name).read_bytes() for name in WHOLE}, time.perf_counter() - begin


def differing_files(folder, expected):
    """Return the names of the files in a folder that are not as expected."""
    return [name for name, content in expected.items() if (folder / name).read_bytes() != content]


def test_killed_runs_that_are_resumed_have_the_same_files_byte_for_byte(tmp_path, undisturbed, no_pictures):
    """One run is killed at a checkpoint, and again at any time when it goes on; another at any time."""
    expected, seconds = undisturbed
    chance = random.Random(3)
    for number in range(2):
        folder = tmp_path / str(number)
        start = ["train", *LONG, "--threads", "1", "--every", "0", "--out", str(folder)]
        resume = ["resume", str(folder), "--threads", "1", "--every", "0.15"]
        if number == 0:
            checkpoints = count(1)
            written = lambda path, n=checkpoints: Path(path).name == "run.nc" and next(n) == 8
            assert killed_after_writing(partial(main, start), written)
            assert 0 < hb.load(folder / "run.nc").step < 60_000
        child = start_copy(partial(main, resume if (folder / "settings.toml").exists() else start))
        time.sleep(chance.uniform(0.0, 0.8 * seconds))
        os.kill(child, signal.SIGKILL)
        was_killed(child)  # or has ended, and that is as good
        with pytest.raises(SystemExit) as end:
            main(resume if (folder / "settings.toml").exists() else start)
        assert end.value.code == 0
        assert differing_files(folder, expected) == []


def test_ctrl_c_keeps_what_was_done_and_says_how_to_go_on(
    tmp_path, undisturbed, call, no_pictures, monkeypatch
):
    expected, _ = undisturbed
    folder = tmp_path / "with space"
    write, written = file.write, []

    def interrupted(path, data):
        write(path, data)
        written.append(path)
        if len(written) == 2:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(file, "write", interrupted)
        code, out, err = call("train", *LONG, "--every", "0", "--out", folder)
    assert (code, out) == (130, ""), err
    assert err.splitlines()[-1] == f"heatbath: interrupted; continue with: heatbath resume '{folder}'"
    assert "warning" not in err  # the library's own, of which this line says what to do
    assert 0 < hb.load(folder / "run.nc").step < 60_000
    assert not (folder / "summary.json").exists()
    begun, prepare = [], simulation.Simulation.__init__

    def noting(self, plan, step, *rest):
        begun.append(step)
        prepare(self, plan, step, *rest)

    monkeypatch.setattr(simulation.Simulation, "__init__", noting)
    reached = hb.load(folder / "run.nc").step
    code, out, _ = call("resume", folder, "--json")
    assert code == 0
    assert begun == [reached]  # it continues, and does not start over
    assert json.loads(out)["steps"] == 60_000
    assert differing_files(folder, expected) == []


HELD_WHILE_WRITING = """
import sys, time
from pathlib import Path
from heatbath.cli import main
from heatbath.runs import file
has_begun, is_pressed, write = Path(sys.argv.pop(1)), Path(sys.argv.pop(1)), file.write
def held(path, data):  # so that no machine is too quick for whoever wants to interrupt it
    write(path, data)
    has_begun.touch()
    while not is_pressed.exists():
        time.sleep(0.01)
file.write = held
main()
"""


def test_ctrl_c_ends_the_process_with_130_and_one_line(tmp_path):
    """Whatever runs when the process ends prints nothing and leaves its code as it is."""
    begun, pressed, folder = tmp_path / "begun", tmp_path / "pressed", tmp_path / "run"
    held = [sys.executable, "-c", HELD_WHILE_WRITING, begun, pressed]
    command = [*held, "train", *LONG, "--every", "0", "--out", folder]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert wait_until(lambda: begun.exists() or process.poll() is not None)
    process.send_signal(signal.SIGINT)
    pressed.touch()
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (130, ""), err
    assert err.splitlines()[-1] == f"heatbath: interrupted; continue with: heatbath resume {folder}"


def test_a_finished_run_can_be_resumed_and_stays_as_it_is(trained, call, no_pictures):
    report = trained / "report.html"
    page = report.read_bytes()
    before = {path.name: path.read_bytes() for path in trained.iterdir()}
    assert call("resume", trained)[0] == 0
    report.write_bytes(page)  # now it is without pictures
    assert {path.name: path.read_bytes() for path in trained.iterdir()} == before


# Mistakes

LALA = ["--method", "lala", "--h", "auto", "--prior", "1"]
LENGTH = ["--gamma", "1", "--steps", "auto"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["train"], "choose --problem NAME or --data FILE"),
        (["train", "--problem", "spirals", "--tau", "1"], "choose a method with --method NAME; accepted"),
        (["sweep", "--problem", "spirals"], "choose a method with --method NAME; accepted: adlala, lol"),
        (["train", "--nonsense"], "No such option: --nonsense"),
        (["nonsense"], "No such command 'nonsense'"),
        (["train", "--problem", "circles", "--method", "lol"], "there is no problem 'circles'"),
        (["train", "--problem", "rings", "--turns", "4", "--method", "lol"], "rings has no turns; accepted"),
        (["train", "--problem", "spirals", "--method", "lbfgs"], "there is no method 'lbfgs'"),
        (["train", *SMALL, "--method", "sgd"], "method SGD needs h: add --h NUMBER"),
        (["train", *SMALL, "--method", "sgd", "--h", "0.1", "--tau", "1"], "SGD has no tau; accepted: h"),
        (["train", *SMALL, "--method", "sgd", "--h", "fast"], "h must be a number, got 'fast'"),
        (["train", *SMALL, "--method", "sgd", "--h", "-1"], "h must be > 0"),
        (["train", *SMALL, "--method", "sgd", "--h", "0.1,0.2"], "several are the axes of a sweep"),
        (["train", *SMALL, "--method", "adl", "--h", "0.1", "--word", "XYZ"], "XYZ"),
        (["train", *SMALL, "--method", "lol", "--hidden", ""], "'hidden' selects no layer"),
        (["train", *SMALL, "--method", "lol", "--hidden", "10,x"], "--hidden must be a whole number"),
        (["train", *SMALL, "--method", "lol", "--batch", "101"], "batch (of 100 training examples) must be"),
        (["train", *SMALL, "--method", "lol", "--steps", "1e4"], "must be a whole number or auto, got '1e4'"),
        (["train", *SMALL, "--method", "lol", "--thin", "3"], "burn_in and thin apply to samples"),
        (["train", *SMALL, "--method", "lol", "--threads", "0"], "threads must be"),
        (["train", *SMALL, "--method", "lol", "--every", "-1"], "every must be"),
        (["train", *SMALL, "--method", "lol", "--chains", "100000000000"], "GB are free"),
        (["sweep", *SMALL, "--method", "lol"], "a sweep needs several values"),
        (["compare", *SMALL], "name the methods to compare"),
        (["compare", *SMALL, "--method", "sgd:h"], "write a method as sgld:h=0.1,sigma=0.01"),
        (["train", "--settings", "nowhere.toml"], "nowhere.toml cannot be read"),
        (["train", "--data", "nowhere.csv", "--target", "y", "--method", "lol"], "nowhere.csv cannot be"),
        (["train", "--data", "nowhere.csv", "--method", "lol"], "the column to predict, --data FILE"),
        (["train", *SMALL, "--method", "lol", "--weights", "w"], "problem spirals has no weights; accepted"),
        (["train", "--data", "x.csv", "--problem", "rings", "--method", "lol"], "problem or data, not both"),
        (["train", *SMALL, "--method", "lol", "--prior", "wide"], "'fan_in' or 'auto'; got 'wide'"),
        (["train", *SMALL, "--method", "lol", "--prior", "1,x"], "--prior must be a number, got 'x'"),
        (["train", *SMALL, "--method", "lol", "--prior", "1,2,3"], "the network has 2 layers"),
        (["train", *SMALL, "--method", "lol", "--noise", "0.1"], "noise is for a regression"),
        (["train", *SMALL, "--method", "lol", "--temperature", "0"], "temperature must be > 0"),
        (["train", *SMALL, "--method", "lol", "--temperature", "1,2"], "--temperature must be a number"),
        (["train", *SMALL, "--method", "lol", "--prior", "1", "--tau", "1e-4"], "sets tau, so leave it out"),
        (["train", *SMALL, "--method", "lol", "--prior", "1", "--weight-decay", "1"], "leave out weight"),
        (["sweep", *SMALL, "--method", "lol", "--prior", "1,2"], "a sweep needs several values"),
        (["train", *SMALL, "--method", "sgd", "--h", "auto"], "'auto' needs methods with a temperature"),
        (["train", *SMALL, *LALA, "--gamma", "auto"], "gamma must be a number, got 'auto'"),
        (["train", *SMALL, *LALA, "--steps", "many"], "--steps must be a whole number or auto, got 'many'"),
        (["train", *SMALL, *LALA, "--batch", "half"], "--batch must be a whole number or all, got 'half'"),
        (["train", *SMALL, *LALA, "--gamma", "1", "--budget", "500"], "budget is for steps='auto', and"),
        (["train", *SMALL, *LALA, *LENGTH, "--budget", "5"], "budget must be a whole number >= 16"),
        (["train", *SMALL, *LALA, *LENGTH, "--chains", "1"], "needs at least 2 chains and 4 samples"),
        (["train", *SMALL, *LALA, *LENGTH, "--thin", "2"], "burn_in and thin follow from steps='auto'"),
        (["sweep", *SMALL, *LALA, "--gamma", "1,2"], "h='auto' is found by train, for one partition: give a"),
        (["sweep", *SMALL, "--method", "lol", "--h", "0.1,auto"], "h must be a number, got 'auto'"),
        (["sweep", *SMALL, "--method", "lol", "--h", "0.1,0.2", "--steps", "auto"], "sweep use --steps"),
        (["compare", *SMALL, "--method", "lala:h=auto,gamma=1,tau=1"], "h='auto' is found by train"),
        (["compare", *SMALL, "--method", "lol", "--budget", "500"], "only heatbath train finds"),
        (["train", *SMALL, "--method", "lol", "--degrees", "4"], "degrees is for a regression"),
        (["train", *SMALL, "--method", "lol", "--degrees", "x"], "--degrees must be a number, got 'x'"),
        (["resume", "nowhere"], "nowhere holds no run"),
        (["predict", "nowhere", "nowhere.csv"], "nowhere.csv cannot be read"),
    ],
)  # fmt: skip
def test_mistakes_in_options_are_one_line_and_nothing_is_written(
    arguments, told, refused, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert told in refused(*arguments)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("a,y\n1,2", "there is no column 'target': it has 'a', 'y'"),
        ("a,target\n1,2\nred,y\n2,x", "got 'x'; rows whose cell is empty are left out; if these are"),
        ("a,target\n1,x\n2,x\n3,x", "x in all rows"),
        ("a,target\n1,x\n2\n3", "has 2 problems: line 3: 2 cells are needed, got 1; line 4: 2 cells"),
        ("a,target\n1,\n2,", "there is no row with a value of 'target'"),
        ("a,target\n1,x\n1,y\n1,x", "no column is left to learn from: 'a' is left out: it is 1 everywhere"),
        ("", "is empty: a first line with the names of the columns is needed"),
        ("\0", "is not a table of text"),
    ],
)
def test_mistakes_in_data_are_one_line_and_nothing_is_written(content, told, refused, tmp_path):
    data = tmp_path / "data.csv"
    data.write_text(content)
    arguments = ["--data", data, "--target", "target", "--method", "lol", "--out", tmp_path / "run"]
    assert told in refused("train", *arguments)
    assert list(tmp_path.iterdir()) == [data]


def test_data_that_have_changed_are_not_taken_for_the_old_ones(tmp_path, table, call, refused, no_pictures):
    options = ["--target", "kind", "--method", "lol", "--hidden", "8", "--steps", "60"]
    assert call("train", "--data", table, *options, "--out", tmp_path / "run")[0] == 0
    table.write_text(table.read_text() + "1,2,3,red\n")
    again = ["train", "--settings", tmp_path / "run" / "settings.toml", "--out", tmp_path / "again"]
    assert "has changed since these settings were written" in refused(*again)
    assert call(*again, "--data", table)[0] == 0


def test_a_damaged_run_is_refused(trained, refused, tmp_path):
    new = tmp_path / "new.csv"
    new.write_text("x1,x2\n0.5,1\n")
    content = (trained / "run.nc").read_bytes()
    for damaged, told in (
        (content[:-40], "truncated, or damaged"),
        (content[:500] + b"!" + content[501:], "is damaged: its checksum is wrong"),
        (b"something else", "is not a run file"),
    ):
        (tmp_path / "run.nc").write_bytes(damaged)
        assert told in refused("predict", tmp_path / "run.nc", new, code=1)
        shutil.copy(trained / "settings.toml", tmp_path)
        assert told in refused("resume", tmp_path, code=1)
        assert (tmp_path / "run.nc").read_bytes() == damaged


def test_all_chains_that_diverge_are_one_line(refused, tmp_path):
    line = refused("train", *SMALL, "--method", "sgd", "--h", "1e30", "--out", tmp_path / "run", code=1)
    assert "all chains diverged" in line


# A full disk


def full(*arguments, **options):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("place", ["heatbath._internal.atomic_write.write", "heatbath.runs.file.write"])
def test_on_a_full_disk_nothing_is_left_half_written(place, refused, tmp_path, monkeypatch):
    monkeypatch.setattr(place, full)
    line = refused("train", *SMALL, *ADLALA, "--out", tmp_path / "run", code=1)
    assert "No space left on device" in line
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_up_leaves_the_last_checkpoint_to_go_on_from(
    call, tmp_path, monkeypatch, undisturbed, no_pictures
):
    write, calls = file.write, []

    def filling(path, data):
        calls.append(path)
        full() if len(calls) > 2 else write(path, data)

    monkeypatch.setattr(file, "write", filling)
    code, _, err = call("train", *LONG, "--every", "0", "--out", tmp_path / "run")
    assert code == 1
    assert "warning: the checkpoint at step" in err
    assert err.splitlines()[-1] == "heatbath: No space left on device"
    assert 0 < hb.load(tmp_path / "run" / "run.nc").step < 60_000
    monkeypatch.undo()
    assert call("resume", tmp_path / "run")[0] == 0
    assert differing_files(tmp_path / "run", undisturbed[0]) == []


def test_help_lists_the_commands_and_takes_no_time():
    """The heavy packages are loaded when a command needs them."""
    code = "import sys, heatbath.cli; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"numba", "matplotlib", "xarray", "torch"} & set(loaded)
    done = subprocess.run([*HEATBATH, "--help"], capture_output=True, text=True, check=True)
    for name in ("train", "compare", "sweep", "tune", "resume", "predict", "reproduce", "info"):
        assert re.search(rf"\b{name}\b", done.stdout)
    assert commands.train.__name__ == "train"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ("sweep", "--problem", "spirals", "--method", "adlala", "--tau", "1e-4,1e-4"),
            "tau has a value twice",
        ),
        (("predict", "RUN", "FILE", "--select", "tau=1", "--select", "tau=2"), "names an axis twice"),
        (
            ("train", "--problem", "spirals", "--method", "sgld:h=0.1,sigma=0.01", "--h", "0.2"),
            "h is given twice, in --method sgld:h=0.1,sigma=0.01 and as an option",
        ),
    ],
)
def test_values_that_are_given_twice_are_refused(arguments, told, call, trained, in_empty_folder):
    Path("new.csv").write_text("x1,x2\n0.5,1\n")
    places = {"RUN": str(trained), "FILE": "new.csv"}
    code, _, complaint = call(*(places.get(argument, argument) for argument in arguments))
    assert code == 2
    assert told in complaint
