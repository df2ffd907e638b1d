"""The command line: what its commands write, that interrupted ones end alike, and what mistakes say."""

import csv
import errno
import io
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
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import typer
from rich.console import Console

import heatbath as hb
from heatbath.cli import commands, main, methods, parsing
from heatbath.cli.display import Display
from heatbath.cli.errors import ending
from heatbath.cli.plans import prepare_run
from heatbath.cli.report import figures
from heatbath.cli.settings import merge_settings, read_settings, write_settings
from heatbath.datasets.mnist import MNIST
from heatbath.runs import file, simulation
from tests.patience import PATIENCE, wait_until
from tests.processes import dies_at, forked, was_killed
from tests.runs import differences

SMALL = ["--problem", "spirals", "--n-train", "100", "--n-test", "60", "--hidden", "8", "--steps", "60",
         "--chains", "3", "--batch", "10", "--record", "20"]  # fmt: skip
ADLALA = ["--method", "adlala", "--h", "0.2", "--tau", "2e-4"]
WHOLE = ("run.nc", "settings.toml", "summary.json", "summary.md")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of a run of AdLaLa with samples."""
    folder = tmp_path_factory.mktemp("cli") / "run"
    with pytest.raises(SystemExit) as end:
        main(["train", *SMALL, *ADLALA, "--samples", "5", "--out", str(folder)])
    assert end.value.code == 0
    return folder


@pytest.fixture
def table(tmp_path):
    """A CSV file with three classes, and one with numbers to predict."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 3))
    kinds = np.array(["blue", "green", "red"])[(X[:, 0] > 0).astype(int) + (X[:, 1] > 0)]
    for name, target in (("kind", kinds), ("size", 100 + X @ [1.0, 2.0, 0.0])):
        rows = [["a", "b", "c", name], *([*x, y] for x, y in zip(X.tolist(), target.tolist(), strict=True))]
        (tmp_path / f"{name}.csv").write_text("\n".join(",".join(map(str, row)) for row in rows) + "\n")
    return tmp_path / "kind.csv"


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


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


def test_settings_toml_is_complete(trained):
    """Whatever the defaults become, it has all that decides the run."""
    told = tomllib.loads((trained / "settings.toml").read_text())
    assert told["command"] == "train"
    assert told["problem"]["turns"] == 2
    assert told["method"] == {
        "name": "adlala", "h": 0.2, "tau": 2e-4, "sigma": 0.01, "epsilon": 0.03, "gamma": 0.1,
        "word": "BACDEDCAB", "word_output": "BAOAB", "xi": 0.1, "friction": "map", "thermostat": "part",
        "kinetic": "sum", "weight_decay": 0.0, "frequency": 0.0, "damping": 0.0,
    }  # fmt: skip
    assert told["network"] == {"hidden": [8], "activation": "relu", "init": "torch", "scale": 0.01}
    assert {"steps", "batch", "chains", "seed", "record", "samples", "dtype"} <= set(told["training"])


def test_options_win_over_the_file_and_another_method_leaves_nothing_of_the_old_one(trained):
    _, file = read_settings(trained / "settings.toml", "train")
    _, same = prepare_run(
        "train", merge_settings(file, {"method": {"tau": "3e-4"}, "training": {"steps": 70}}, [])
    )
    assert same["method"]["tau"] == 3e-4
    assert same["method"]["h"] == 0.2
    assert same["training"]["steps"] == 70
    plan, other = prepare_run("train", merge_settings(file, {"method": {"name": "lol"}}, []))
    assert plan.partition == hb.LOL()
    assert other["method"]["tau"] == 1e-3
    rings = merge_settings(file, {"problem": {"name": "rings"}}, [])["problem"]
    assert rings == {"name": "rings"}


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


def test_compare_runs_the_methods_from_the_same_starts(tmp_path, call):
    chosen = ["--method", "sgd:h=0.1", "--method", "adlala:h=0.2,tau=2e-4"]
    code, out, _ = call("compare", *SMALL, *chosen, "--out", tmp_path / "both")
    assert code == 0
    run = hb.load(tmp_path / "both" / "run.nc")
    assert run.partition == {"SGD": hb.Partition(hb.SGD(), 0.1), "AdLaLa": hb.AdLaLa(h=0.2, tau=2e-4)}
    alone = hb.train(run.problem, hb.MLP((8,)), hb.Partition(hb.SGD(), 0.1), 60, 10, chains=3, record=20)
    assert differences(run.select(method="SGD"), alone) == []
    assert (tmp_path / "both" / "classifiers.png").stat().st_size > 10_000
    assert re.search(r"SGD .*\d %.*to", out)
    rows = json.loads((tmp_path / "both" / "summary.json").read_text())["rows"]
    assert [row["labels"]["method"] for row in rows] == ["SGD", "AdLaLa"]
    assert rows[0]["temperatures"] == {}
    assert list(rows[1]["temperatures"]) == ["hidden", "output"]


def test_sweep_takes_lists_and_logarithmic_ranges(tmp_path, call):
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
    assert (tmp_path / "grid" / "sweep.png").exists()
    run = hb.load(tmp_path / "grid" / "run.nc").select(tau=1e-5, gamma=0.1)
    alone = hb.train(run.problem, hb.MLP((8,)), hb.LOL(0.1, 0.1, 1e-5), 60, 10, chains=3, record=20)
    assert differences(run, alone) == []


@pytest.mark.parametrize(
    "values", [["--tau", "0,1e-4"], ["--tau", "0,1e-4", "--h", ".1,.2", "--gamma", "1,2"]]
)
def test_sweeps_over_one_axis_and_over_three_are_drawn(values, tmp_path, call):
    assert call("sweep", *SMALL, "--method", "lol", *values, "--out", tmp_path / "grid")[0] == 0
    assert (tmp_path / "grid" / "sweep.svg").stat().st_size > 5000


def test_ranges_are_evenly_spaced_in_logarithms():
    assert parsing.numbers("tau", "1e-6:1e-2:5") == [1e-6, 1e-5, 1e-4, 1e-3, 1e-2]
    assert parsing.numbers("tau", "8:1:4") == [8.0, 4.0, 2.0, 1.0]
    assert parsing.numbers("tau", "0.3,0") == [0.3, 0.0]
    assert parsing.numbers("gamma", "inf") == float("inf")
    for wrong in ("1:2", "0:1:3", "1:2:1", "1:2:1.5", "a", "1,,2", "1_0", ""):
        with pytest.raises(ValueError, match="tau"):
            parsing.numbers("tau", wrong)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"name": "adlala"}, hb.AdLaLa()),
        ({"name": "lol"}, hb.LOL()),
        ({"name": "lala", "h": "0.1", "gamma": "1", "tau": "1e-4", "tau_output": "0"},
         hb.LaLa(0.1, 1.0, 1e-4, None, 0.0)),
        ({"name": "langevin", "h": "0.1", "gamma": "inf", "tau": "1e-4", "word": "OBABO"},
         hb.Partition(hb.Langevin(float("inf"), 1e-4, "OBABO"), 0.1)),
        ({"name": "adl", "h": "0.15", "word": "BAFEFAB", "xi": "0.3", "kinetic": "mean"},
         hb.Partition(hb.AdaptiveLangevin(1e-4, 0.01, 0.03, "BAFEFAB", 0.3, kinetic="mean"), 0.15)),
        ({"name": "sgld", "h": 0.1, "sigma": 0.02}, hb.Partition(hb.SGLD(0.02), 0.1)),
        ({"name": "sgd", "h": 0.1, "weight_decay": "1e-3"}, hb.Partition(hb.SGD(1e-3), 0.1)),
        ({"name": "momentum", "h": 0.1, "mu": "0.8", "kind": "2"}, hb.Partition(hb.Momentum(0.8, 2), 0.1)),
        ({"name": "adam", "h": 0.01, "beta1": "0.8"}, hb.Partition(hb.Adam(0.8), 0.01)),
        ({"name": "adlala", "word": "BAFEFAB"},
         hb.Partition({"hidden": hb.AdaptiveLangevin(1e-4, 0.01, 0.03, "BAFEFAB"),
                       "output": hb.Langevin(0.1, 1e-4)}, 0.15)),
        ({"name": "adlala", "word_output": "OBABO", "word": "BAFEFAB"},
         hb.Partition({"hidden": hb.AdaptiveLangevin(1e-4, 0.01, 0.03, "BAFEFAB"),
                       "output": hb.Langevin(0.1, 1e-4, "OBABO")}, 0.15)),
        ({"name": "sgd", "h": {"schedule": "Linear", "start": 0.1, "stop": 0.01, "steps": 50}},
         hb.Partition(hb.SGD(), hb.schedules.Linear(0.1, 0.01, 50))),
    ],
)  # fmt: skip
def test_every_method_is_the_library_s_and_its_table_makes_it_again(given, expected):
    partition, table = methods.partition_of(given)
    assert partition == expected
    assert (
        methods.partition_of(tomllib.loads(write_settings("train", {"method": table}))["method"])[0]
        == expected
    )


def test_methods_that_come_twice_bear_their_coefficients():
    found = methods.labelled([methods.method_of(text) for text in ("sgd:h=0.1", "sgd:h=0.2", "lol")])
    assert list(found) == ["SGD h=0.1", "SGD h=0.2", "LOL"]
    with pytest.raises(ValueError, match=r"SGD h=0\.1 occurs twice"):
        methods.labelled([methods.method_of("sgd:h=0.1")] * 2)


def test_runs_without_a_name_get_a_folder_of_their_own(tmp_path, monkeypatch, call, no_pictures):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert call("train", *SMALL, "--method", "sgd", "--h", "0.1")[0] == 0
    assert sorted(path.name for path in Path("runs").iterdir()) == ["spirals-sgd-1", "spirals-sgd-2"]


def test_the_display_tells_speed_loss_temperature_and_time_left():
    problem = hb.datasets.spirals(n_train=100, n_test=60)
    plan, _ = prepare_run(
        "train", merge_settings({}, {"problem": {"name": "spirals"}, "method": {"name": "adlala"}}, [])
    )
    now = hb.Progress(500, 1000, 2.0, 0.25, {"hidden": 1.5e-4, "output": 2e-4}, 0, 0.875)
    assert problem.inputs == plan.problem.inputs
    live, plain = (Console(file=io.StringIO(), force_terminal=kind, width=120) for kind in (True, False))
    for console in (live, plain):
        with Display(plan, console) as display:
            display._printed -= 60  # as if a minute had passed
            display(now)
        text = console.file.getvalue()
        assert "step 500 of 1,000, 250 steps/s, 2 s left" in text
        assert "test loss 0.2500, accuracy 87.5 %" in text
        assert "temperature hidden 1.50e-04 (target 1.00e-04)" in text
    assert "\x1b" not in plain.file.getvalue()


def test_lines_come_only_now_and_then_where_there_is_no_terminal():
    plan, _ = prepare_run(
        "train", merge_settings({}, {"problem": {"name": "spirals"}, "method": {"name": "lol"}}, [])
    )
    console = Console(file=io.StringIO(), force_terminal=False)
    with Display(plan, console) as display:
        for step in range(1, 50):
            display(hb.Progress(step, 1000, 2.0, 0.25, {}, 0))
    assert "step" not in console.file.getvalue()


# Data of the user's own, and predictions


def test_predictions_of_classes_are_the_mean_over_samples(tmp_path, table, call, no_pictures):
    options = ["--target", "kind", "--method", "lol", "--hidden", "8", "--steps", "60", "--samples", "4"]
    assert call("train", "--data", table, *options, "--out", tmp_path / "run")[0] == 0
    code, out, _ = call("predict", tmp_path / "run", table)
    rows = rows_of(out)
    assert code == 0
    run = hb.load(tmp_path / "run" / "run.nc")
    X = [[float(row[name]) for name in "abc"] for row in rows]
    expected = run.outputs(X, samples=True).mean(axis=(0, 1))
    found = np.array([[float(row[f"probability_{name}"]) for name in run.problem.targets] for row in rows])
    np.testing.assert_allclose(found, expected, atol=1e-12)
    entropy = -(expected * np.log(expected)).sum(axis=1)
    np.testing.assert_allclose([float(row["entropy"]) for row in rows], entropy, atol=1e-9)
    assert [row["prediction"] for row in rows] == [run.problem.targets[i] for i in expected.argmax(axis=1)]
    assert [row["kind"] for row in rows] == [row["kind"] for row in rows_of(table.read_text())]


def test_predictions_of_numbers_are_in_the_user_s_units_and_columns_go_by_name(
    tmp_path, table, call, no_pictures
):
    data = table.with_name("size.csv")
    options = ["--target", "size", "--method", "adam", "--h", "0.01", "--hidden", "8", "--steps", "300"]
    assert call("train", "--data", data, *options, "--out", tmp_path / "run")[0] == 0
    turned = tmp_path / "turned.csv"
    turned.write_text("c,b,a\n0,0.5,1\n1,-1,0\n")
    assert call("predict", tmp_path / "run" / "run.nc", turned, "--out", tmp_path / "said.csv")[0] == 0
    rows = rows_of((tmp_path / "said.csv").read_text())
    said = hb.load(tmp_path / "run" / "run.nc").outputs([[1, 0.5, 0], [0, -1, 1]])[..., 0]
    np.testing.assert_allclose([float(row["prediction"]) for row in rows], said.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose([float(row["std"]) for row in rows], said.std(axis=0), rtol=1e-9)
    assert 90 < float(rows[0]["prediction"]) < 110
    assert set(rows[0]) == {"a", "b", "c", "prediction", "std"}


REGRESSION = ["--target", "size", "--hidden", "8", "--steps", "300", "--chains", "3", "--samples", "10"]


@pytest.fixture(scope="module")
def sampled(tmp_path_factory):
    """A CSV file with noise of 5 in its target, and the folder of a run that samples the posterior."""
    folder, rng = tmp_path_factory.mktemp("posterior"), np.random.default_rng(0)
    X = rng.standard_normal((60, 2))
    rows = np.column_stack([X, 100 + 20 * X[:, 0] + 5 * rng.standard_normal(60)])
    np.savetxt(folder / "size.csv", rows, delimiter=",", header="a,b,size", comments="")
    method = ["--method", "lala:h=0.1,gamma=1", "--prior", "0.8,1.2", "--temperature", "0.9"]
    data = ["--data", str(folder / "size.csv"), *REGRESSION, "--out", str(folder / "run")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "draw_figures", lambda *arguments: [])
        with pytest.raises(SystemExit) as end:
            main(["train", *data, *method])
    assert end.value.code == 0
    return folder


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


def test_predictions_of_a_posterior_have_intervals_of_new_data(sampled, call):
    run = hb.load(sampled / "run" / "run.nc")
    code, out, _ = call("predict", sampled / "run", sampled / "size.csv", "--coverage", "0.8")
    rows = rows_of(out)
    assert code == 0
    assert list(rows[0]) == ["a", "b", "size", "prediction", "sd", "low", "high"]
    law = run.predictive([[float(row["a"]), float(row["b"])] for row in rows])
    ends = run.calibration().interval(law, 0.8)
    for name, values in zip(("prediction", "sd", "low", "high"), (law.mean, law.sd, *ends), strict=True):
        np.testing.assert_allclose([float(row[name]) for row in rows], values[:, 0], rtol=1e-9)
    _, out, _ = call("predict", sampled / "run", sampled / "size.csv")
    low, _ = run.calibration().interval(law, 0.9)
    np.testing.assert_allclose([float(row["low"]) for row in rows_of(out)], low[:, 0])


def test_without_samples_the_chains_have_intervals(sampled, tmp_path, call, no_pictures):
    options = ["--target", "size", "--hidden", "8", "--steps", "300", "--method", "lol", "--noise", "4"]
    assert call("train", "--data", sampled / "size.csv", *options, "--out", tmp_path / "run")[0] == 0
    run = hb.load(tmp_path / "run" / "run.nc")
    assert run.partition == hb.LOL(posterior=hb.Posterior(noise=4.0))
    assert (
        "noise" not in json.loads((tmp_path / "run" / "summary.json").read_text())["rows"][0]
    )  # it is known
    _, out, _ = call("predict", tmp_path / "run", sampled / "size.csv")
    X = [[float(row["a"]), float(row["b"])] for row in rows_of(out)]
    variance = run.outputs(X)[..., 0].var(axis=0) + 4.0**2
    np.testing.assert_allclose([float(row["sd"]) for row in rows_of(out)], np.sqrt(variance), rtol=1e-6)


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


def test_a_posterior_of_classes_is_for_all_methods_of_a_comparison_and_points_of_a_sweep():
    options = {"problem": {"name": "spirals"}, "posterior": {"prior": "fan_in", "temperature": 0.5}}
    posterior = hb.Posterior("fan_in", temperature=0.5)
    plan, _ = prepare_run(
        "compare", merge_settings({}, options, ["langevin:h=0.1,gamma=1", "adlala", "adam:h=0.01"])
    )
    assert plan.partition == {
        "Langevin": hb.Partition(hb.Langevin(1.0), 0.1, posterior),
        "AdLaLa": hb.AdLaLa(posterior=posterior),
        "Adam": hb.Partition(hb.Adam(), 0.01, posterior),
    }
    method = {"method": {"name": "sgld", "h": "0.1,0.2"}}
    plan, complete = prepare_run("sweep", merge_settings({}, options | method, []))
    assert plan.partition == hb.Partition(hb.SGLD(), [0.1, 0.2], posterior)
    again = tomllib.loads(write_settings("sweep", complete))
    assert prepare_run("sweep", merge_settings(again, {}, []))[0].partition == plan.partition


# What a run finds by itself

AUTO = ["--target", "size", "--hidden", "8", "--steps", "Auto", "--budget", "1600", "--chains", "3",
        "--samples", "10", "--record", "4", "--method", "lala:h=auto,gamma=1", "--prior", "0.8",
        "--temperature", "0.5"]  # fmt: skip


@pytest.fixture(scope="module")
def found(sampled, tmp_path_factory):
    """The folder of a run that finds its stepsize and its length."""
    folder = tmp_path_factory.mktemp("auto") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "draw_figures", lambda *arguments: [])
        with pytest.raises(SystemExit) as end:
            main(["train", "--data", str(sampled / "size.csv"), *AUTO, "--out", str(folder)])
    assert end.value.code == 0
    return folder


def test_what_is_found_is_what_the_library_finds(found):
    run = hb.load(found / "run.nc")
    partition = hb.LaLa("auto", 1.0, posterior=hb.Posterior(0.8, temperature=0.5))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hb.OffTemperatureWarning)
        same = hb.train(
            run.problem, hb.MLP((8,)), partition, "auto", chains=3, budget=1600, samples=10, record=4
        )
    assert differences(run, same) == []
    assert run.found == same.found
    assert run.partition.h == same.partition.h


def test_settings_find_it_again_byte_for_byte(found, tmp_path, call, no_pictures):
    told = tomllib.loads((found / "settings.toml").read_text())
    assert told["method"]["h"] == "auto"
    assert {key: told["training"][key] for key in ("steps", "budget", "samples")} == {
        "steps": "auto", "budget": 1600, "samples": 10,
    }  # fmt: skip
    code, out, _ = call("train", "--settings", found / "settings.toml", "--out", tmp_path / "again")
    assert code == 0
    for name in WHOLE:
        assert (tmp_path / "again" / name).read_bytes() == (found / name).read_bytes()
    run = hb.load(found / "run.nc")
    notes = [f"h: {run.partition.h:.4g}", *run.found.summary().splitlines()]
    assert len(notes) == 4
    assert out.splitlines()[-5:] == [*notes, f"results: {tmp_path / 'again'}"]


def test_the_summary_has_what_was_found(found):
    run = hb.load(found / "run.nc")
    told = json.loads((found / "summary.json").read_text())
    assert told["found"] == {"h": run.partition.h, **run.found.plain()}
    assert told["found"]["ended"] in ("converged", "budget")
    assert told["steps"] == run.step
    for line in run.found.summary().splitlines():
        assert f"- {line}\n" in (found / "summary.md").read_text()


def test_defaults_of_a_length_that_is_found_are_in_the_settings(sampled):
    problem = {"data": str(sampled / "size.csv"), "target": "size"}
    method = {"name": "lala", "h": "0.1", "gamma": "1"}
    given = {"problem": problem, "method": method, "posterior": {"prior": 1.0}}
    search, complete = prepare_run("train", merge_settings({}, given | {"training": {"steps": "auto"}}, []))
    assert (search.budget, complete["training"]["budget"]) == (20_000, 20_000)
    assert complete["training"]["samples"] == 100
    _, same = prepare_run("train", merge_settings(complete, {}, []))
    assert same == complete
    plan, fixed = prepare_run("train", merge_settings(complete, {"training": {"steps": 500}}, []))
    assert plan.steps == 500
    assert "budget" not in fixed["training"]  # it was of the steps in the file


@pytest.mark.parametrize("when", ["in the ladder", "in the first round", "in the last"])
def test_ctrl_c_while_something_is_found_goes_on_to_the_same_files(
    when, found, sampled, tmp_path, call, no_pictures, monkeypatch
):
    last = hb.load(found / "run.nc").step
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
        assert (folder / name).read_bytes() == (found / name).read_bytes()


def test_a_run_that_has_found_all_stays_as_it_is(found, call, no_pictures, monkeypatch):
    before = {path.name: path.read_bytes() for path in found.iterdir()}
    monkeypatch.setattr(simulation.Simulation, "run", None)  # nothing is to be run
    assert call("resume", found)[0] == 0
    assert {path.name: path.read_bytes() for path in found.iterdir()} == before


def test_the_display_says_what_short_runs_are_and_how_long_the_run_may_be(sampled):
    given = {"problem": {"data": str(sampled / "size.csv"), "target": "size"}, "posterior": {"prior": 1.0}}
    method = {"name": "lala", "h": "auto", "gamma": "1"}
    training = {"steps": "auto", "budget": 4000}
    search, _ = prepare_run("train", merge_settings({}, given | {"method": method, "training": training}, []))
    display = Display(search, Console(file=io.StringIO()))
    now = hb.Progress(50, 100, 2.0, 0.25, {"hidden": 1.5e-4}, 0)
    assert display.lines(now)[0] == "step 50 of 100 (4,000 at most), 25 steps/s, 2 s left"
    assert len(display.lines(now)) == 3
    short = replace(now, finding=True)
    assert display.lines(short) == ["short runs first: step 50 of 100, 25 steps/s, 2 s left"]


def test_student_s_law_is_that_of_the_library(sampled):
    given = {"problem": {"data": str(sampled / "size.csv"), "target": "size"}}
    method = {"name": "lala", "h": "0.1", "gamma": "1"}
    told = {"method": method, "posterior": {"degrees": 4.0, "temperature": 0.5}}
    plan, complete = prepare_run("train", merge_settings({}, given | told, []))
    assert plan.partition.posterior == hb.Posterior(temperature=0.5, degrees=4.0)
    assert complete["posterior"]["degrees"] == 4.0
    assert prepare_run("train", merge_settings(complete, {}, []))[0].partition == plan.partition


def test_of_a_comparison_one_method_predicts(tmp_path, call, refused, no_pictures):
    chosen = ["--method", "sgd:h=0.1", "--method", "lol"]
    assert call("compare", *SMALL, *chosen, "--out", tmp_path / "both")[0] == 0
    new = tmp_path / "new.csv"
    new.write_text("x1,x2\n0.5,1\n")
    assert "choose one with --select method=..." in refused("predict", tmp_path / "both", new)
    _, out, _ = call("predict", tmp_path / "both", new, "--select", "method=LOL")
    said = hb.load(tmp_path / "both" / "run.nc").select(method="LOL").outputs([[0.5, 1.0]]).mean()
    assert float(rows_of(out)[0]["probability_1"]) == pytest.approx(said, rel=1e-12)


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
HEATBATH = [sys.executable, "-c", "from heatbath.cli import main; main()"]
HELD = """
import sys, time
from pathlib import Path
from heatbath.cli import main
from heatbath.runs import file
begun, pressed, write = Path(sys.argv.pop(1)), Path(sys.argv.pop(1)), file.write
def held(path, data):  # so that no machine is too quick for whoever wants to interrupt it
    begun.touch() if path.exists() else None
    write(path, data)
    while begun.exists() and not pressed.exists():
        time.sleep(0.01)
file.write = held
main()
"""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The files of a run that nothing has disturbed, and the seconds it took."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    begin = time.perf_counter()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "draw_figures", lambda *arguments: [])
        with pytest.raises(SystemExit):
            main(["train", *LONG, "--threads", "1", "--every", "0.15", "--out", str(folder)])
    return {name: (folder / name).read_bytes() for name in WHOLE}, time.perf_counter() - begin


def differing(folder, expected):
    return [name for name, content in expected.items() if (folder / name).read_bytes() != content]


def test_killed_runs_that_are_resumed_have_the_same_files_byte_for_byte(tmp_path, undisturbed, no_pictures):
    """One at a checkpoint, and when it goes on again at any time; and one at any time."""
    expected, seconds = undisturbed
    chance = random.Random(3)
    for number in range(2):
        folder = tmp_path / str(number)
        start = ["train", *LONG, "--threads", "1", "--every", "0", "--out", str(folder)]
        resume = ["resume", str(folder), "--threads", "1", "--every", "0.15"]
        if number == 0:
            checkpoints = count(1)
            written = lambda path, n=checkpoints: Path(path).name == "run.nc" and next(n) == 8
            assert dies_at(partial(main, start), written)
            assert 0 < hb.load(folder / "run.nc").step < 60_000
        child = forked(partial(main, resume if (folder / "settings.toml").exists() else start))
        time.sleep(chance.uniform(0.0, 0.8 * seconds))
        os.kill(child, signal.SIGKILL)
        was_killed(child)  # or has ended, and that is as good
        with pytest.raises(SystemExit) as end:
            main(resume if (folder / "settings.toml").exists() else start)
        assert end.value.code == 0
        assert differing(folder, expected) == []


def test_ctrl_c_keeps_what_was_done_and_says_how_to_go_on(
    tmp_path, undisturbed, call, no_pictures, monkeypatch
):
    expected, _ = undisturbed
    folder = tmp_path / "with space"
    begun, pressed = tmp_path / "begun", tmp_path / "pressed"
    command = [sys.executable, "-c", HELD, begun, pressed, "train", *LONG, "--every", "0", "--out", folder]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert wait_until(lambda: begun.exists() or process.poll() is not None)
    process.send_signal(signal.SIGINT)
    pressed.touch()
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, err
    assert out == ""
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
    assert differing(folder, expected) == []


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
        (["train", *SMALL, "--method", "sgd", "--h", "auto"], "judged by the temperature, so methods need"),
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


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("[problem", "is not a TOML file"),
        ("a = " + "[" * 5000, "is not a TOML file"),
        (
            "[optimiser]\nh = 1",
            "'optimiser' is not a section; accepted: problem, network, posterior, training",
        ),
        ("[method]\nlr = 1", "method has no lr; accepted: name, h, tau"),
        ("command = 'compare'", "is for heatbath compare, not for heatbath train"),
        ("command = 3", "command must be one of train, compare, sweep, tune, got 3"),
        ("method = 3", "'method' is not a section"),
        ("[problem]\nname = 'spirals'\nturns = 'four'", "turns must be a number"),
        ("[problem]\nname = ['spirals']", "there is no problem"),
        ("[network]\nhidden = 3", "hidden must be a list"),
        ("[training]\nrecord = [1, 2]", "record must be a whole number"),
        ("[method]\ntau = {schedule = 'Stairs'}", "a schedule is a dict"),
        ("[training]\nsteps = 2020-01-01", "steps must be a whole number"),
        ("[posterior]\nwidth = 1", "posterior has no width; accepted: prior, noise, temperature"),
        ("[posterior]\nprior = {}", "prior must be a list of numbers"),
    ],
)
def test_mistakes_in_settings_are_one_line(content, told, refused, tmp_path):
    file = tmp_path / "settings.toml"
    file.write_text(content)
    options = [] if "name" in content else ["--problem", "spirals"]
    assert told in refused(
        "train", "--settings", file, *options, "--method", "lol", "--out", tmp_path / "run"
    )
    assert list(tmp_path.iterdir()) == [file]


def test_a_folder_that_holds_something_is_left_alone(trained, refused, tmp_path):
    before = {path.name: path.read_bytes() for path in trained.iterdir()}
    line = refused("train", *SMALL, "--method", "lol", "--out", trained)
    assert f"heatbath resume {trained}" in line
    assert {path.name: path.read_bytes() for path in trained.iterdir()} == before
    (tmp_path / "letter.txt").write_text("dear")
    assert "is not empty" in refused("train", *SMALL, "--method", "lol", "--out", tmp_path)
    assert "cannot be made" in refused("train", *SMALL, *ADLALA, "--out", tmp_path / "letter.txt", code=1)


def test_chains_start_where_those_of_another_run_have_ended(trained, refused, tmp_path):
    folder = Path(shutil.copytree(trained, tmp_path / "first"))
    sections = {"problem": {"name": "spirals", "n_train": 100, "n_test": 60}, "network": {"hidden": [8]}}
    training = {"steps": 10, "batch": 10, "chains": 3, "start": str(folder), "momenta": "thermal"}
    given = merge_settings({**sections, "method": {"name": "lol", "h": 0.1}, "training": training}, {}, [])
    plan, complete = prepare_run("train", given)
    assert np.array_equal(plan.start, hb.load(trained / "run.nc").theta)
    written = tmp_path / "settings.toml"
    written.write_text(write_settings("train", complete))
    again = merge_settings(read_settings(written)[1], {}, [])
    assert np.array_equal(prepare_run("train", again)[0].start, plan.start)
    with pytest.raises(ValueError, match=r"only heatbath train finds .* takes a start"):
        prepare_run("compare", given | {"methods": {"LOL": {"name": "lol", "h": 0.1}}})
    assert "cannot be read" in refused("train", *SMALL, *ADLALA, "--start", tmp_path, "--out", tmp_path / "x")
    hb.load(folder / "run.nc").resume(1).save(folder / "run.nc")
    with pytest.raises(ValueError, match="has changed since these settings were written: use --start"):
        prepare_run("train", again)


def test_parts_have_methods_of_their_own():
    langevin = {"name": "langevin", "gamma": 2.0, "tau": 1e-3}
    table = {"h": 0.1, "parts": {"hidden": langevin, "output": {"name": "sgd", "weight_decay": 0.1}}}
    partition, complete = methods.partition_of(table)
    hidden = hb.Langevin(gamma=2.0, tau=1e-3)
    assert partition == hb.Partition({"hidden": hidden, "output": hb.SGD(weight_decay=0.1)}, 0.1)
    assert methods.partition_of(complete) == (partition, complete)
    assert merge_settings({"method": table}, {"method": {"name": "lol"}}, [])["method"] == {"name": "lol"}
    for wrong, told in (
        ({**table, "tau": 1.0}, "and nothing else; got h, parts, tau"),
        ({"h": 0.1, "parts": {}}, "a section for each of them"),
        ({"h": 0.1, "parts": {"hidden": {**langevin, "h": 0.2}}}, "part hidden must be a section without h"),
        ({"h": 0.1, "parts": {"hidden": {"name": "adlala"}}}, "'adlala' is a preset for all parts"),
        ({"h": 0.1, "parts": {"hidden": {"name": "langevin"}}}, "needs"),
    ):
        with pytest.raises(ValueError, match=told):
            methods.partition_of(wrong)


def test_settings_that_were_edited_do_not_go_on_with_the_old_run(trained, refused, tmp_path):
    folder = Path(shutil.copytree(trained, tmp_path / "run"))
    text = (folder / "settings.toml").read_text()
    (folder / "settings.toml").write_text(text.replace("tau = 0.0002", "tau = 0.0003"))
    before = (folder / "run.nc").read_bytes()
    assert "is of another run, with other partition" in refused("resume", folder, code=1)
    assert (folder / "run.nc").read_bytes() == before


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


def test_predictions_refuse_what_they_cannot_use(trained, refused, tmp_path):
    new = tmp_path / "new.csv"
    for content, told in (
        ("x1\n0.5\n", "there is no column 'x2'; it has 'x1'"),
        ("x1,x2\n0.5,red\n,1\n", "has 2 problems: line 3, column 'x1': a number is needed, got ''; line 2"),
        ("", "is empty: a first line"),
    ):
        new.write_text(content)
        assert told in refused("predict", trained, new)
    new.write_text("x1,x2\n0.5,1\n")
    assert "exists already" in refused("predict", trained, new, "--out", new)
    assert new.read_text() == "x1,x2\n0.5,1\n"
    assert "there is no axis tau" in refused("predict", trained, new, "--select", "tau=1")
    assert "this run predicts classes: leave it out" in refused("predict", trained, new, "--coverage", "0.5")


def test_a_coverage_that_is_none_is_refused(sampled, refused):
    for wrong in ("0", "1", "1.5", "nan"):
        assert "coverage must be" in refused(
            "predict", sampled / "run", sampled / "size.csv", "--coverage", wrong
        )


def test_all_chains_that_diverge_are_one_line(refused, tmp_path):
    line = refused("train", *SMALL, "--method", "sgd", "--h", "1e30", "--out", tmp_path / "run", code=1)
    assert "all chains diverged" in line


def test_what_goes_wrong_is_one_line_however_long(capsys):
    with pytest.raises(typer.Exit) as end, ending(1):
        raise ValueError("one\n  two\nthree")
    assert end.value.exit_code == 1
    assert capsys.readouterr().err == "heatbath: one two three\n"


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
    assert differing(tmp_path / "run", undisturbed[0]) == []


def test_output_that_cannot_be_written_is_an_error():
    with open("/dev/full", "w") as nowhere:
        command = [*HEATBATH, "info"]
        done = subprocess.run(command, stdout=nowhere, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "heatbath: the output cannot be written: No space left on device\n"


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


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A folder of its own to work in."""
    monkeypatch.chdir(tmp_path)


def test_new_columns_get_names_of_their_own(call, trained, elsewhere):
    """A feature may be called as they are."""
    Path("other.csv").write_text("x1,x2,entropy\n0.5,1,2\n")
    code, out, _ = call("predict", trained, "other.csv")
    assert code == 0
    assert out.splitlines()[0].endswith("entropy,prediction,probability_0,probability_1,heatbath_entropy")


def test_many_classes_in_a_plane_have_no_classifier_picture_and_all_else(call, elsewhere):
    rows = [f"{i % 7},{i % 5},{'abcdefgh'[i % 8]}" for i in range(80)]
    Path("eight.csv").write_text("\n".join(["a,b,t", *rows]) + "\n")
    settings = ("--method", "adlala", "--steps", "20", "--hidden", "5", "--chains", "2")
    assert call("train", "--data", "eight.csv", "--target", "t", *settings, "--out", "r8")[0] == 0
    assert Path("r8/curves.png").exists()
    assert not Path("r8/classifier.png").exists()


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
def test_values_that_are_given_twice_are_refused(arguments, told, call, trained, elsewhere):
    Path("new.csv").write_text("x1,x2\n0.5,1\n")
    places = {"RUN": str(trained), "FILE": "new.csv"}
    code, _, complaint = call(*(places.get(argument, argument) for argument in arguments))
    assert code == 2
    assert told in complaint
