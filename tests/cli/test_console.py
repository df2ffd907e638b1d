"""What makes the command line convenient: the standard input, streams, JSON, completion, the version."""

import bz2
import gzip
import io
import json
import lzma
import os
import runpy
import tomllib
from threading import Thread

import numpy as np
import pandas as pd
import pytest
from sklearn.utils.class_weight import compute_sample_weight

import heatbath as hb
from heatbath.datasets import from_arrays
from heatbath.datasets.tables import open_chunks
from heatbath.paper import NAMES
from tests.cli.arguments import QUICK, TABLE, Input


def test_a_table_on_the_standard_input_is_kept_and_makes_the_run_of_the_file(
    streamed, tmp_path, call, no_pictures
):
    assert (streamed / "table").read_bytes() == TABLE.encode()
    assert tomllib.loads((streamed / "settings.toml").read_text())["problem"]["data"] == str(
        streamed / "table"
    )
    (tmp_path / "table.csv").write_text(TABLE)
    code, _, err = call("train", "--data", tmp_path / "table.csv", *QUICK, "--out", tmp_path / "run")
    assert code == 0
    assert "compiling" not in err  # as all was compiled for the first one
    assert (tmp_path / "run" / "run.nc").read_bytes() == (streamed / "run.nc").read_bytes()
    assert call("resume", streamed)[0] == 0


def test_a_table_on_the_standard_input_that_is_refused_leaves_nothing(tmp_path, refused, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", Input(b"a,b\n1,2\n"))
    assert "there is no column 'kind'" in refused("train", "--data", "-", *QUICK)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_rows_of_a_stream_are_given_on_as_they_come():
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as source, os.fdopen(writing, "wb", buffering=0) as pen:
        pen.write(b"a,b\n1,2\n")
        chunks = open_chunks(source, 10)
        assert next(chunks).to_numpy().tolist() == [["1", "2"]]  # and the stream is still open
        pen.write(b"3,4\n5,6\n7,")
        assert next(chunks).to_numpy().tolist() == [["3", "4"], ["5", "6"]]
        pen.write(b'"8\n9"\n')
        assert next(chunks).to_numpy().tolist() == [["7", "8\n9"]]
        pen.write(b"".join(b"%d,0\n" % i for i in range(25)))
        pen.write(b"last,1")
        pen.close()
        assert [len(chunk) for chunk in chunks] == [10, 10, 5, 1]


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_streams_may_be_compressed(pack):
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as source, os.fdopen(writing, "wb") as pen:
        pen.write(pack(b"a,b\n" + b"1,2\n" * 3000))
        pen.close()
        assert sum(map(len, open_chunks(source, 1000))) == 3000


def test_predictions_of_a_stream_are_those_of_the_file_and_json_has_a_line_for_each_row(
    streamed, tmp_path, call, monkeypatch
):
    (tmp_path / "table.csv").write_text(TABLE)
    _, expected, _ = call("predict", streamed, tmp_path / "table.csv")
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as source, os.fdopen(writing, "wb") as pen:
        monkeypatch.setattr("sys.stdin", type("Stdin", (), {"buffer": source}))
        writer = Thread(target=lambda: (pen.write(TABLE.encode()), pen.close()))
        writer.start()
        code, out, _ = call("predict", streamed, "-")
        writer.join()
    assert (code, out) == (0, expected)
    _, lines, _ = call("predict", streamed, tmp_path / "table.csv", "--json")
    rows = [json.loads(line) for line in lines.splitlines()]
    header, *others = expected.splitlines()
    assert [list(row) for row in rows] == [header.split(",")] * 30
    assert [",".join(map(str, row.values())) for row in rows] == others


# Classes that count alike


def test_balanced_classes_are_those_of_the_estimator_and_of_training_rows_only():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((50, 2)), rng.uniform(size=50) < 0.2
    problem = from_arrays(X, y, class_weight="balanced", standardise=True, seed=1)
    labels = problem.Y_train[0, :, 0]
    np.testing.assert_array_equal(problem.weights_train[0], compute_sample_weight("balanced", labels))
    assert problem.weights_test is None
    sums = [problem.weights_train[0, labels == kind].sum() for kind in (0, 1)]
    assert sums[0] == pytest.approx(sums[1])
    weights = rng.uniform(1, 2, 50)
    both = from_arrays(X, y, test_share=0, class_weight="balanced", weights=weights)
    np.testing.assert_allclose(both.weights_train[0], weights * compute_sample_weight("balanced", y))
    own = hb.ThermodynamicClassifier(class_weight="balanced")
    np.testing.assert_array_equal(
        own._class_weights(y, np.unique(y)),
        from_arrays(X, y, test_share=0, class_weight="balanced").weights_train[0],
    )


@pytest.mark.parametrize(
    ("given", "told"),
    [({"class_weight": "even"}, "class_weight must be"), ({"class_weight": "balanced"}, "is for classes")],
)
def test_class_weights_that_make_no_sense_are_refused(given, told):
    with pytest.raises(ValueError, match=told):
        from_arrays([[0.0], [1.0], [2.0]], [0.5, 1.5, 2.5], **given)


# What else there is


def test_the_version_is_said(call):
    assert call("--version") == (0, f"heatbath {hb.__version__}\n", "")


def test_the_command_line_is_a_module_too(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["heatbath", "--version"])
    with pytest.raises(SystemExit, match="0"):
        runpy.run_module("heatbath", run_name="__main__")
    assert capsys.readouterr().out == f"heatbath {hb.__version__}\n"


def test_info_and_the_experiments_are_told_as_json(call):
    told = json.loads(call("info", "--json")[1])
    assert told["heatbath"] == hb.__version__
    listed = json.loads(call("reproduce", "--list", "--json")[1])
    assert list(listed) == list(NAMES)
    assert listed["temperature"]["claims"]


def test_ctrl_c_while_the_standard_input_is_read_leaves_nothing(tmp_path, call, monkeypatch):
    class Endless(io.RawIOBase):
        def readinto(self, place):
            raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", type("Stdin", (), {"buffer": Endless()}))
    code, out, err = call("train", "--data", "-", *QUICK, "--out", tmp_path / "run")
    assert (code, out, err) == (130, "", "heatbath: interrupted before the run started\n")
    assert not (tmp_path / "run").exists()


def test_a_pipe_is_read_once_and_kept_as_the_standard_input_is(streamed, tmp_path, call, no_pictures):
    os.mkfifo(tmp_path / "pipe")
    writer = Thread(target=lambda: (tmp_path / "pipe").write_text(TABLE))
    writer.start()
    code, _, err = call("train", "--data", tmp_path / "pipe", *QUICK, "--out", tmp_path / "run")
    writer.join()
    assert code == 0, err
    assert (tmp_path / "run" / "table").read_text() == TABLE
    assert (tmp_path / "run" / "run.nc").read_bytes() == (streamed / "run.nc").read_bytes()


def test_infinities_of_parquet_are_null_in_json(streamed, tmp_path, call):
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame({"a": [0.5, np.inf], "b": [0.25, 1.0], "more": [-np.inf, np.nan]})
    frame.to_parquet(tmp_path / "t.parquet")
    code, out, _ = call("predict", streamed, tmp_path / "t.parquet", "--json")
    assert code == 0
    rows = [json.loads(line) for line in out.splitlines()]
    assert [(row["a"], row["more"]) for row in rows] == [(0.5, None), (None, None)]
