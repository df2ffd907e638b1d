"""Fourteen files as people have them: each is trained on and predicted by one command with its target."""

import bz2
import csv
import gzip
import io
import sys
from functools import partial
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

import heatbath as hb
from heatbath.cli.options import option_words
from heatbath.cli.plans import make_problem
from heatbath.runs.serialise import checksum
from heatbath.training import budget
from tests.cli.conftest import call as call
from tests.cli.conftest import no_pictures as no_pictures

QUICK = ["--method", "lol", "--hidden", "4", "--steps", "20", "--chains", "2"]
ROWS = 60


def customers(rows=ROWS):
    """Return a table with all kinds of columns; the target is whether a customer has left."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "id": np.arange(1, rows + 1),
            "name": [f"customer {i}" for i in range(rows)],
            "age": rng.integers(18, 80, rows).astype(object),
            "town": rng.choice(["Köln", "Bern", "Århus"], rows),
            "zip": rng.choice(["00501", "10001", "94016"], rows),
            "since": pd.date_range("2015-01-05", periods=rows, freq="37D").strftime("%d.%m.%Y"),
            "paid": rng.choice(["True", "False"], rows),
            "spent": rng.exponential(100, rows).round(2),
            "country": "EU",
        }
    )
    frame.loc[3, "age"], frame.loc[4, "age"], frame.loc[5, "town"] = "NA", "", ""
    frame["left"] = np.where(frame["spent"] + rng.normal(0, 50, rows) > 100, "no", "yes")
    return frame


def csv_bytes(frame, **options):
    """Return a frame as the bytes of a CSV file."""
    return frame.to_csv(index=False, **options).encode(options.get("encoding", "utf-8"))


def numeric_table(rows, columns):
    """Return a CSV file of numbers, in which the first column predicts the target."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(rng.normal(size=(rows, columns)).astype(np.float32).round(2)).add_prefix("x")
    return csv_bytes(frame.assign(y=(frame["x0"] + rng.normal(0, 0.1, rows)).round(2)))


def three_numbers():
    """Return a frame of three numeric columns and a target that is the first plus noise."""
    rng = np.random.default_rng(2)
    frame = pd.DataFrame(rng.normal(size=(ROWS, 3)).round(3), columns=["a", "b", "c"])
    return frame.assign(y=(frame["a"] * 2 + rng.normal(0, 0.1, ROWS)).round(3))


def genes():
    """Return a frame with more columns than rows."""
    rng = np.random.default_rng(3)
    return pd.DataFrame(rng.normal(size=(20, 150)).round(2)).add_prefix("gene ").assign(y=range(20))


CUSTOMERS = customers()
NUMBERS = three_numbers()
FILES = {
    "text, dates, truth values and empty cells": (csv_bytes(CUSTOMERS), ["left"]),
    "semicolons and decimal commas": (csv_bytes(CUSTOMERS, sep=";", decimal=","), ["spent"]),
    "tabs": (csv_bytes(CUSTOMERS, sep="\t"), ["left"]),
    "latin-1": (csv_bytes(CUSTOMERS, encoding="latin-1"), ["town"]),
    "gzip": (gzip.compress(csv_bytes(CUSTOMERS)), ["left"]),
    "UTF-16 in bzip2": (bz2.compress(csv_bytes(CUSTOMERS, encoding="utf-16")), ["left"]),
    "labels of rows and quotes": (NUMBERS.to_csv(quoting=csv.QUOTE_NONNUMERIC).encode(), ["y"]),
    "one column beside the target": (csv_bytes(NUMBERS[["a", "y"]]), ["y"]),
    "several targets": (csv_bytes(NUMBERS), ["y", "c"]),
    "counts that are classes": (csv_bytes(NUMBERS.assign(y=np.arange(ROWS) % 3)), ["y"]),
    "more columns than rows": (csv_bytes(genes()), ["y"]),
    "three thousand rows, of which many are the same": (csv_bytes(pd.concat([CUSTOMERS] * 50)), ["left"]),
    "20,000 rows of 10 columns": (partial(numeric_table, 20_000, 9), ["y"]),
    "30 rows of 1,000 columns": (partial(numeric_table, 30, 999), ["y"]),
}
WITH_PRIOR = {"text, dates, truth values and empty cells", "several targets"}  # for which there must be steps


def rows_of(out):
    return list(csv.DictReader(io.StringIO(out)))


@pytest.mark.parametrize("kind", FILES)
def test_a_file_is_trained_on_and_predicted_by_one_command_each(
    kind, tmp_path, call, no_pictures, monkeypatch
):
    """Only the target is named. The test shortens the training, and changes nothing else."""
    steps = 400 if kind in WITH_PRIOR else 100
    monkeypatch.setattr(budget, "HIDDEN", (4,))
    monkeypatch.setattr(budget, "FIT", budget.FitRule(chains=2, steps=steps, fewest_steps=steps))
    content, targets = FILES[kind]
    path, folder = tmp_path / "table.data", tmp_path / "run"
    path.write_bytes(content() if callable(content) else content)
    named = [word for target in targets for word in ("--target", target)]
    code, _, err = call("train", "--data", path, *named, "--out", folder)
    assert code == 0, err
    assert "no --method, so the posterior is sampled: 2 chains of at most" in err
    code, out, err = call("predict", folder, path)
    assert (code, err) == (0, "")
    said, run = rows_of(out), hb.load(folder / "run.nc")
    table = hb.read_table(path).frame
    assert len(said) == len(table)
    prediction = run.predict(table)
    ends = [""] if run.problem.outputs == 1 or len(targets) == 1 else [f"_{target}" for target in targets]
    if run.problem.task == "regression":
        found = np.array([[float(row[f"prediction{end}"]) for end in ends] for row in said])
        np.testing.assert_array_equal(found, prediction.mean)
    else:
        found = [float(row[f"probability_{run.problem.targets[-1]}"]) for row in said]
        np.testing.assert_array_equal(found, prediction.mean[:, -1])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return a run on the customers, made in Python and saved to a file, and their table."""
    folder = tmp_path_factory.mktemp("twelve")
    (folder / "new.csv").write_bytes(csv_bytes(CUSTOMERS))
    problem = hb.from_table(folder / "new.csv", "left")
    hb.train(problem, hb.MLP((4,)), hb.LOL(), steps=20, chains=2).save(folder / "run.nc")
    return folder


def predicted(call, *arguments):
    code, out, err = call("predict", *arguments)
    assert code == 0, err
    return [row["probability_yes"] for row in rows_of(out)], err


def test_other_orders_other_types_and_other_columns_say_the_same(trained, tmp_path, call):
    expected, _ = predicted(call, trained / "run.nc", trained / "new.csv")
    fewer = CUSTOMERS[["spent", "paid", "zip", "since", "town", "age"]].assign(more="x")
    (tmp_path / "turned.csv").write_bytes(csv_bytes(fewer, sep=";", encoding="cp1252"))
    assert predicted(call, trained / "run.nc", tmp_path / "turned.csv") == (expected, "")
    (tmp_path / "commas.csv").write_bytes(csv_bytes(CUSTOMERS, sep=";", decimal=","))
    code, out, _ = call("predict", trained / "run.nc", tmp_path / "commas.csv")
    assert code == 0
    written = pd.read_csv(io.StringIO(out), dtype=str, keep_default_na=False)  # with commas and points
    assert written["spent"].tolist() == CUSTOMERS["spent"].astype(str).tolist()
    assert written["since"].tolist() == CUSTOMERS["since"].tolist()
    pytest.importorskip("pyarrow")
    typed = CUSTOMERS.assign(
        age=pd.to_numeric(CUSTOMERS["age"], errors="coerce"),
        since=pd.to_datetime(CUSTOMERS["since"], dayfirst=True),
        paid=CUSTOMERS["paid"] == "True",
    )
    typed.to_parquet(tmp_path / "typed.parquet")
    assert predicted(call, trained / "run.nc", tmp_path / "typed.parquet") == (expected, "")


def test_columns_that_lack_are_named_and_new_cells_warned_of(trained, tmp_path, call):
    (tmp_path / "lacks.csv").write_bytes(csv_bytes(CUSTOMERS.drop(columns=["zip", "age"])))
    code, out, err = call("predict", trained / "run.nc", tmp_path / "lacks.csv")
    assert (code, out) == (2, "")
    assert "lacks.csv: there are no columns 'age', 'zip'; there are 'id', 'name', 'town'" in err
    (tmp_path / "new.csv").write_bytes(csv_bytes(CUSTOMERS.assign(town="Oslo")))
    said, err = predicted(call, trained / "run.nc", tmp_path / "new.csv")
    assert len(said) == ROWS
    told = f"line 2, column 'town': 'Oslo' did not occur in training (and {ROWS - 1} more)"
    assert err == f"heatbath: warning: {told}\n"


def test_predictions_in_pieces_and_from_the_standard_input_are_the_same(trained, tmp_path, call, monkeypatch):
    expected, _ = predicted(call, trained / "run.nc", trained / "new.csv")
    monkeypatch.setattr("heatbath.models.dense.PIECE", 8)  # and blocks, which are of other digits
    pieces, _ = predicted(call, trained / "run.nc", trained / "new.csv")
    np.testing.assert_allclose(list(map(float, pieces)), list(map(float, expected)), rtol=1e-14)
    assert call("predict", trained / "run.nc", trained / "new.csv", "--out", tmp_path / "said.csv")[0] == 0
    assert [row["probability_yes"] for row in rows_of((tmp_path / "said.csv").read_text())] == pieces
    stream = io.TextIOWrapper(io.BufferedReader(io.BytesIO(csv_bytes(CUSTOMERS))))
    monkeypatch.setattr(sys, "stdin", stream)
    assert predicted(call, trained / "run.nc", "-")[0] == pieces


def test_a_run_s_file_has_its_encoder(trained):
    run = hb.load(trained / "run.nc")
    assert run.problem.encoder.notes()[-1] == "country: left out: it is 'EU' everywhere"
    assert "since: a date, day.month.year, as years since 2000, the time of the year" in " ".join(
        run.problem.encoder.notes()
    )
    settings = run.to_xarray().attrs["settings"]
    assert settings.count('"kind": "left out"') == 3


def test_options_of_columns_stand_in_the_settings_which_make_the_same_again(trained):
    given = {
        "data": str(trained / "new.csv"),
        "target": "left",
        "ignore": ["town"],
        "categorical": ["age"],
        "keep": ["id"],
    }
    problem, section = make_problem(given)
    kinds = {name: column.kind for name, column in problem.encoder.columns_.items()}
    assert (kinds["town"], kinds["age"], kinds["id"]) == ("left out", "category", "number")
    assert checksum(make_problem(section)[0]) == checksum(problem)
    words = option_words("problem", section | {"target": ["left", "spent"]})
    for option in ("--ignore", "town"), ("--categorical", "age"), ("--keep", "id"), ("--target", "spent"):
        assert option in pairwise(words)
    with pytest.raises(TypeError, match="ignore must be the name of a column, or a list of names, got 3"):
        make_problem(given | {"ignore": 3})
    with pytest.raises(ValueError, match=r"new.csv has 2 problems: there is no column 'a'.* no column 'b'"):
        make_problem(given | {"ignore": ["a", "b"]})


def test_the_command_line_says_how_columns_are_read_and_takes_options_of_them(
    trained, tmp_path, call, no_pictures
):
    options = [
        "--ignore",
        "town",
        "--ignore",
        "zip",
        "--categorical",
        "age",
        *QUICK,
        "--out",
        tmp_path / "run",
    ]
    code, _, err = call("train", "--data", trained / "new.csv", "--target", "left", *QUICK, *options)
    assert code == 0
    assert "heatbath: town: left out: as asked for\n" in err
    assert "heatbath: name: left out: it names the rows, with 48 different texts in 48 of them\n" in err
    assert "heatbath: country: left out: it is 'EU' everywhere\n" in err
    assert hb.load(tmp_path / "run" / "run.nc").problem.encoder.columns_["age"].kind == "category"
