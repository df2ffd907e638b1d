"""Predictions of new data by the command line."""

import json
from pathlib import Path

import numpy as np
import pytest

import heatbath as hb
from tests.cli.arguments import SMALL, rows_of


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


def test_of_a_comparison_one_method_predicts(tmp_path, call, refused, no_pictures):
    chosen = ["--method", "sgd:h=0.1", "--method", "lol"]
    assert call("compare", *SMALL, *chosen, "--out", tmp_path / "both")[0] == 0
    new = tmp_path / "new.csv"
    new.write_text("x1,x2\n0.5,1\n")
    assert "choose one with --select method=..." in refused("predict", tmp_path / "both", new)
    _, out, _ = call("predict", tmp_path / "both", new, "--select", "method=LOL")
    said = hb.load(tmp_path / "both" / "run.nc").select(method="LOL").outputs([[0.5, 1.0]]).mean()
    assert float(rows_of(out)[0]["probability_1"]) == pytest.approx(said, rel=1e-12)


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


def test_new_columns_get_names_of_their_own(call, trained, in_empty_folder):
    """A feature may be called as they are."""
    Path("other.csv").write_text("x1,x2,entropy\n0.5,1,2\n")
    code, out, _ = call("predict", trained, "other.csv")
    assert code == 0
    assert out.splitlines()[0].endswith("entropy,prediction,probability_0,probability_1,heatbath_entropy")
