"""The user's own tables: from files and data frames."""

import io
import os
import re
from dataclasses import replace
from importlib import import_module

import numpy as np
import pandas as pd
import pytest

from heatbath.datasets import from_arrays, from_table
from heatbath.datasets.tables import read as opening
from heatbath.datasets.tables import read_table
from tests.datasets.problems import ones, same
from tests.datasets.tables.written import HEAD, write_table


@pytest.fixture
def flowers(tmp_path):
    rng = np.random.default_rng(0)
    rows = [f"{rng.normal(5, 2)},{'ab'[i % 2]},{i},0.1" for i in range(50)]
    return write_table(tmp_path / "flowers.csv", "length,kind,width,height", *rows)


def test_a_csv_file_with_text_in_its_target_is_a_classification(flowers):
    problem = from_table(flowers, "kind", standardise=False, keep=["width"])
    assert (problem.name, problem.task, problem.targets) == ("flowers", "binary", ("a", "b"))
    assert problem.features == ("length", "width")  # the height is the same everywhere
    assert problem.recipe is None
    assert problem.X_train.shape == (1, 40, 2)
    assert problem.X_test.shape == (1, 10, 2)
    width = np.concatenate([problem.X_train, problem.X_test], axis=1)[0, :, 1]
    label = np.concatenate([problem.Y_train, problem.Y_test], axis=1)[0, :, 0]
    assert sorted(width) == list(range(50))  # every row once
    assert (label == width % 2).all()  # each with its own label
    assert (np.diff(width[:40]) != 1).sum() > 20  # shuffled


def test_what_counts_the_rows_or_is_constant_is_left_out_with_a_word(flowers):
    problem = from_table(flowers, "kind")
    assert problem.features == ("length",)
    notes = problem.encoder.notes()
    assert "width: left out: it counts the rows (keep takes it all the same)" in notes
    assert "height: left out: it is 0.1 everywhere" in notes


def test_standardisation_is_by_the_training_data_alone(flowers):
    raw, problem = (from_table(flowers, "kind", standardise=s, keep=["width"]) for s in (False, True))
    train = raw.X_train[0]
    np.testing.assert_allclose(problem.shift, train.mean(axis=0))
    np.testing.assert_allclose(problem.scale, train.std(axis=0))
    np.testing.assert_allclose(problem.X_train[0].mean(axis=0), 0, atol=1e-14)
    np.testing.assert_allclose(problem.X_test * problem.scale + problem.shift, raw.X_test)
    assert abs(problem.X_test[0].mean(axis=0)[0]) > 1e-3
    assert (raw.shift.tolist(), raw.scale.tolist()) == ([0, 0], [1, 1])
    assert (problem.target_shift.tolist(), problem.target_scale.tolist()) == ([0], [1])  # labels are not


def test_the_encoder_is_learned_from_the_training_rows_alone():
    """A category, and a gap, that only the test rows have are none that it knows."""
    frame = pd.DataFrame({"x": np.linspace(0, 1, 40) ** 2, "c": ["a", "b"] * 20, "y": [0.5, 1.5] * 20})
    first = from_table(frame, "y", seed=3)
    test = np.round(np.sqrt(first.X_test[0, :, 0] * first.scale[0] + first.shift[0]) * 39).astype(int)
    frame.loc[test, "c"], frame.loc[test[0], "x"] = "new", np.nan
    other = from_table(frame, "y", seed=3)
    assert other.features == first.features == ("x", "c=a", "c=b")
    np.testing.assert_array_equal(other.X_train, first.X_train)
    assert ((other.X_test * other.scale + other.shift)[0, :, 1:] < 1e-12).all()
    median = np.median(first.X_train[0, :, 0])
    assert np.isclose(other.X_test[0, :, 0], median).any()


def test_the_split_is_by_the_seed(flowers):
    assert same(from_table(flowers, "kind", seed=1), from_table(flowers, "kind", seed=1))
    assert not same(from_table(flowers, "kind", seed=1), from_table(flowers, "kind", seed=2))


def test_files_frames_and_arrays_give_the_same_problem(flowers):
    rows = [line.split(",") for line in flowers.read_text().splitlines()[1:]]
    made = from_arrays([[float(row[0])] for row in rows], [row[1] for row in rows], standardise=True, seed=4)
    for source in (flowers, pd.read_csv(flowers), read_table(flowers), io.BytesIO(flowers.read_bytes())):
        assert same(made, from_table(source, "kind", seed=4))


def test_weights_are_a_column_that_is_neither_feature_nor_target(tmp_path):
    rng = np.random.default_rng(0)
    X, y, w = rng.standard_normal((20, 2)), rng.standard_normal(20), rng.integers(0, 4, 20) / 2
    rows = [",".join(map(repr, row)) for row in np.column_stack([X[:, 0], w, X[:, 1], y]).tolist()]
    path = write_table(tmp_path / "weighed.csv", "a,count,b,y", *rows)
    problem = from_table(path, "y", weights="count", seed=2)
    assert problem.features == ("a", "b")
    assert same(problem, from_arrays(X, y, weights=w, standardise=True, seed=2))
    assert from_table(path, "y", seed=2).features == ("a", "count", "b")


def test_several_targets_are_a_regression_with_their_names():
    frame = pd.DataFrame({"x": np.arange(10) ** 2, "u": np.arange(10.0), "v": [str(i) for i in range(10)]})
    problem = from_table(frame, ["u", "v"], test_share=0, standardise=False)
    assert (problem.task, problem.targets) == ("regression", ("u", "v"))
    assert (problem.Y_train[..., 0] == problem.Y_train[..., 1]).all()


def test_a_problem_has_the_features_of_its_encoder(flowers):
    problem, other = (from_table(flowers, "kind", keep=keep) for keep in ([], ["width"]))
    with pytest.raises(ValueError, match="those that the encoder makes, length, width; got length"):
        replace(problem, encoder=other.encoder)


def test_rows_may_have_the_same_labels():
    frame = pd.DataFrame({"x": ["1", "?", "4"] * 8, "c": list("abc") * 8, "y": np.arange(24) / 3})
    assert same(from_table(frame, "y"), from_table(frame.set_axis([7] * 24), "y"))


def test_rows_without_a_target_are_left_out_and_it_is_said(tmp_path):
    path = write_table(tmp_path / "t.csv", "a,y", "1,0.5", "2,", "4,1.5", "8,NA", "16,2.5")
    problem = from_table(path, "y", test_share=0, standardise=False)
    assert sorted(problem.X_train[0, :, 0]) == [1, 4, 16]
    assert "2 rows without 'y' are left out (line 3, 5)" in problem.encoder.notes()


def test_rows_of_weight_0_are_as_if_they_were_not_there():
    frame = pd.DataFrame({"x": np.arange(12) ** 2, "c": ["a", "b", "a", "gone"] * 3, "w": [1, 2, 3, 0] * 3})
    frame["y"] = frame["x"] / 3
    left = from_table(frame[frame["w"] > 0], "y", weights="w", seed=3)
    assert same(from_table(frame, "y", weights="w", seed=3), left)
    assert "c=gone" not in left.features


@pytest.mark.parametrize(
    ("lines", "options", "says"),
    [
        ([], {}, "is empty: a first line with the names of the columns is needed"),
        ([HEAD], {}, "there is no row with a value of 'y' to learn from"),
        (["a,b,z", "1,2,3"], {}, "there is no column 'y': it has 'a', 'b', 'z'"),
        (["a,b,Y", "1,2,3"], {"target": "yy"}, "there is no column 'yy': it has 'a', 'b', 'Y'"),
        (["age,b", "1,2"], {"target": "agee"}, "is it 'age'?"),
        (["y", "1", "2"], {}, "there is no column beside 'y', from which it could be learned"),
        ([HEAD, "1,2,x", "1,2"], {}, "line 3: 3 cells are needed, got 2: correct them"),
        (
            [HEAD, "1,2,x", "1,2", "1,2,3,4", "5"],
            {},
            "has 3 problems: line 3: .* got 2; line 4: .* got 4; line 5: .* got 1: correct them",
        ),
        ([HEAD, "1,2,0.5", "1,2,inf"], {}, "line 3, column 'y': a number is needed, got 'inf'"),
        ([HEAD, "1,2,0.5", "1,2,l.5"], {}, "line 3, column 'y': .* got 'l.5'; .* the task to classes"),
        (
            [HEAD, "1,2,0.5", "1,2,l.5", "", "1,2,o"],
            {},
            "has 2 problems: line 3, column 'y': .* 'l.5'; line 5, column 'y': .* 'o'; rows whose cell",
        ),
        ([HEAD, "1,2,x", "1,2,z"], {"task": "regression"}, "'y' has no numbers, which .* regression needs"),
        ([HEAD, "1,2,x", "1,2,3"], {"task": "regression"}, "line 2, column 'y': a number is needed, got 'x'"),
        ([HEAD, "1,2,x", "3,2,x", "4,2,x"], {}, "column 'y' is x in all rows: there is nothing to learn"),
        (
            [HEAD, "1,2,1.5", "3,2,1.50", "4,2,"],
            {},
            "column 'y' is 1.5 in all rows: there is nothing to learn",
        ),
        ([HEAD, "1,2,5", "3,2,5"], {}, "column 'y' is 5 in all rows: there is nothing to learn"),
        (
            [HEAD, "1,2,3"],
            {"target": "a, b"},
            "Give each of several columns its own option, as in --target a --target b",
        ),
        ([HEAD, "1,2,x", "2,2,z", "3,2,w"], {"task": "binary"}, "two classes for task 'binary'"),
        ([HEAD, "1,2,x"], {"weights": "c"}, "there is no column 'c'"),
        ([HEAD, "1,2,x"], {"weights": "y"}, "target and weights must be different columns, got 'y' twice"),
        (
            [HEAD, "1,2,x"],
            {"target": "z", "ignore": "q"},
            "2 problems: there is no column 'z'.*column 'q'",
        ),
        (["b,y", "1,2"], {"weights": "b"}, "there is no column beside 'y', 'b'"),
        (
            [HEAD, "1,2,x", "1,,z"],
            {"weights": "b"},
            "line 3, column 'b': a weight must be a number >= 0, got ''",
        ),
        ([HEAD, "1,-2,x", "1,q,z"], {"weights": "b"}, "has 2 problems: line 2.*'-2'; line 3.*'q'"),
        ([HEAD, "1,0,x", "1,0,z"], {"weights": "b"}, "some weights must be positive, and all are 0"),
        ([HEAD, "1,2,x", "1,2,z"], {"test_share": 0}, "no column is left to learn from: 'a' is left out"),
        ([HEAD, "1,2,x"] * 2, {"target": ["y", "a"]}, "column 'y' has no numbers, which one of several"),
        (
            [HEAD, "1,2,x"],
            {"ignore": "y"},
            "column 'y' is in ignore, and is the target, or the weights: remove",
        ),
        (
            [HEAD.replace("a", "age"), "1,2,x"],
            {"ignore": "age", "categorical": ["age"], "keep": "age"},
            "column 'age' is in ignore, and in categorical and in keep: remove one",
        ),
        (
            [HEAD, *(f"{i},2,name {i}" for i in range(50))],
            {},
            "column 'y': 50 different texts in 50 rows are too many for classes",
        ),
    ],
)
def test_tables_that_are_wrong_are_refused_by_file_line_and_column(tmp_path, lines, options, says):
    path = tmp_path / "bad.csv"
    path.write_text("\n".join(lines))
    with pytest.raises(ValueError, match=rf"bad\.csv.* {says}"):
        from_table(path, **{"target": "y", **options})


def test_what_is_wrong_with_the_options_is_said(flowers):
    with pytest.raises(ValueError, match=r"task must be one of 'binary', 'classes'.*, got 'tree'"):
        from_table(flowers, "kind", task="tree")
    with pytest.raises(ValueError, match=r"test_share must be >= 0 and < 1, got -0.1"):
        from_table(flowers, "kind", test_share=-0.1)
    with pytest.raises(FileNotFoundError, match=r"nothing\.csv cannot be read .*: check the path"):
        from_table(flowers.with_name("nothing.csv"), "y")
    with pytest.raises(IsADirectoryError, match="cannot be read"):
        from_table(flowers.parent, "y")


def test_a_frame_that_is_wrong_is_refused_by_its_rows():
    frame = pd.DataFrame({"a": ones(2), "b": ["1", "two"]}, index=["first", "second"])
    with pytest.raises(ValueError, match="the table, row second, column 'b': a number is needed, got 'two'"):
        from_table(frame, "b", task="regression")
    with pytest.raises(ValueError, match="columns must have different names, and several are 'a'"):
        from_table(frame.set_axis(["a", "a"], axis=1), "a")


def test_a_regression_is_named_by_its_column(tmp_path):
    path = write_table(tmp_path / "t.csv", HEAD, *(f"{i},1,{i / 4}" for i in range(10)))
    problem = from_table(path, "y")
    assert (problem.task, problem.targets, problem.outputs) == ("regression", ("y",), 1)
    whole = write_table(tmp_path / "u.csv", HEAD, *(f"{i},1,{i % 3}" for i in range(10)))
    assert from_table(whole, "y").targets == ("0", "1", "2")
    assert from_table(whole, "y", task="regression").targets == ("y",)


def test_a_feature_that_says_the_target_is_warned_of(tmp_path):
    rng = np.random.default_rng(0)
    values, others = rng.normal(size=(2, 30)).round(2)
    rows = [f"{2 * y + 1:.2f},{x},{y}" for x, y in zip(others, values, strict=True)]
    said = [note for note in from_table(write_table(tmp_path / "a.csv", "b,x,y", *rows), "y").encoder.notes()]
    word = "says 'y' exactly: if it is not known before, leave it out (--ignore)"
    assert [note for note in said if "warning" in note] == [f"warning: b {word}"]
    rows = [f"{y > 0:d},{x},{'yes' if y > 0 else 'no'}" for x, y in zip(others, values, strict=True)]
    said = from_table(write_table(tmp_path / "c.csv", "b,x,y", *rows), "y").encoder.notes()
    assert [note for note in said if "warning" in note] == [f"warning: b {word}"]
    said = from_table(tmp_path / "c.csv", "y", ignore="b").encoder.notes()
    assert not any("warning" in note for note in said)


def test_too_few_rows_and_cells_between_spaces_are_told_as_what_they_are(tmp_path):
    few = (
        "has too few rows to learn from: 2 with a value of 'y', and 1 of them set aside to test; 2 are needed"
    )
    with pytest.raises(ValueError, match=few):
        from_table(write_table(tmp_path / "t.csv", "x,y", "1,2", "2,3"), "y")
    with pytest.raises(ValueError, match="cells have to be separated by commas, semicolons, tabs or bars"):
        from_table(write_table(tmp_path / "t.csv", "x y", "1 2", "2 3"), "y")


# Larger than memory


@pytest.fixture
def large(tmp_path, monkeypatch):
    """Write a table of 3,000 rows, of which 500 are read at a time."""
    monkeypatch.setattr(opening, "PIECE", 500)
    rows = (f"{i % 97},{i % 89},{'ab'[i % 2]},{i * 0.5}" for i in range(3000))
    return write_table(tmp_path / "large.csv", "x,z,kind,y", *rows)


def test_a_table_that_would_not_fit_in_memory_is_refused_before_it_is_read(large, monkeypatch):
    from_table(large, "y")
    monkeypatch.setattr(import_module("heatbath.datasets.from_table"), "free_memory", lambda: 500_000)
    read = []
    frame = opening._parse_lines
    monkeypatch.setattr(opening, "_parse_lines", lambda *given: read.append(len(given[1])) or frame(*given))
    with pytest.raises(MemoryError) as refusal:
        from_table(large, "y")
    assert read == [500]
    told = str(refusal.value)
    assert re.search(
        r"large.csv has about (2,[5-9]|3,[0-2])00 rows with 4 features: to learn from them", told
    )
    assert "and 0.0 GB are free. Learn from fewer rows, drawn at random (--rows " in told
    fit = int(re.search(r"--rows (\d+)\)", told)[1])
    problem = from_table(large, "y", rows=fit)  # what is advised is possible
    assert problem.X_train.shape[1] + problem.X_test.shape[1] == fit
    assert problem.encoder.notes()[1] == f"{fit:,} of 3,000 rows, drawn at random"
    with pytest.raises(MemoryError, match="to learn from 2,900 of them needs"):
        from_table(large, "y", rows=2900)
    assert from_table(large, "y", ignore=["kind"], rows=fit).inputs == 2
    with pytest.raises(ValueError, match="there is no column 'yy'"):  # is said first, and early
        from_table(large, "yy")


def test_a_stream_of_many_rows_is_read_although_its_size_is_unknown(large):
    read_end, write_end = os.pipe()
    with os.fdopen(write_end, "wb") as sender:
        sender.write(large.read_bytes())
    with os.fdopen(read_end, "rb") as stream:
        assert same(from_table(stream, "y"), replace(from_table(large, "y"), name="table"))


def test_rows_of_data_frames_are_drawn_too(large):
    frame = read_table(large).frame
    problem = from_table(frame, "y", rows=100, seed=4)
    assert problem.X_train.shape[1] == 80
    assert same(problem, from_table(large, "y", rows=100, seed=4))
    assert not same(problem, from_table(large, "y", rows=100, seed=5))


def test_all_that_is_wrong_with_a_file_is_in_one_message(tmp_path):
    """Lines, names, targets and weights."""
    rows = [f"{i}.5,{i},1" for i in range(30)]
    rows[3], rows[5], rows[7] = "1.5,2", "1.5,many,1", "1.5,3,-2"
    path = write_table(tmp_path / "t.csv", "a,y,w", *rows)
    with pytest.raises(ValueError) as error:  # noqa: PT011
        from_table(path, "y", weights="w", ignore=["b"])
    text = str(error.value)
    assert text.startswith(f"{path} has 4 problems: there is no column 'b'")
    for part in (
        "line 5: 3 cells are needed, got 2",
        "line 7, column 'y': a number is needed, got 'many'",
        "line 9, column 'w': a weight must be a number >= 0, got '-2'",
        ": correct them (text with commas in it needs quotes)",
        "; if these are names of classes, set the task to classes",
    ):
        assert part in text
    with pytest.raises(ValueError, match=r"t.csv, line 5: 3 cells are needed, got 2: correct them"):
        read_table(path)


def test_of_many_problems_some_of_each_kind_are_spelled_out(tmp_path):
    rows = ["1"] * 40 + ["1.5,x"] * 20 + [f"{i}.5,{i}" for i in range(30)]
    with pytest.raises(ValueError, match=r"has 61 problems: there is no column 'b'.*; and 54 more") as error:
        from_table(write_table(tmp_path / "t.csv", "a,y", *rows), "y", task="regression", ignore=["b"])
    assert str(error.value).count("cells are needed") == str(error.value).count("a number is needed") == 3


def test_the_decimal_mark_of_a_file_is_the_encoder_s(tmp_path):
    rows = [f"{i}.234,5;{i % 9},5" for i in range(1, 30)]
    path = write_table(tmp_path / "t.csv", "a;y", *rows)
    assert from_table(path, "y").encoder.decimal_ == ","
    assert from_table(read_table(path), "y").encoder.decimal_ == ","
    assert from_table(read_table(path).frame, "y").encoder.decimal_ is None
