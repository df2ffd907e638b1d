"""The user's own arrays and CSV files."""

import numpy as np
import pytest

from heatbath.datasets import from_arrays, from_csv
from tests.datasets.problems import ones, same


# The user's own data
def table(path, *lines):
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def flowers(tmp_path):
    rng = np.random.default_rng(0)
    rows = [f"{rng.normal(5, 2)},{'ab'[i % 2]},{i},0.1" for i in range(50)]
    return table(tmp_path / "flowers.csv", "length,kind,width,height", *rows)


def test_a_csv_file_with_text_in_its_target_is_a_classification(flowers):
    problem = from_csv(flowers, "kind", standardise=False)
    assert (problem.name, problem.task, problem.targets) == ("flowers", "binary", ("a", "b"))
    assert problem.features == ("length", "width", "height")
    assert problem.recipe is None
    assert problem.X_train.shape == (1, 40, 3)
    assert problem.X_test.shape == (1, 10, 3)
    width = np.concatenate([problem.X_train, problem.X_test], axis=1)[0, :, 1]
    label = np.concatenate([problem.Y_train, problem.Y_test], axis=1)[0, :, 0]
    assert sorted(width) == list(range(50))  # every row once
    assert (label == width % 2).all()  # each with its own label
    assert (np.diff(width[:40]) != 1).sum() > 20  # shuffled


def test_standardisation_is_by_the_training_data_alone(flowers):
    raw, problem = from_csv(flowers, "kind", standardise=False), from_csv(flowers, "kind")
    train = raw.X_train[0]
    np.testing.assert_allclose(problem.shift, train.mean(axis=0))
    np.testing.assert_allclose(problem.scale, [*train.std(axis=0)[:2], 1])  # a constant keeps its scale
    np.testing.assert_allclose(problem.X_train[0].mean(axis=0), 0, atol=1e-14)
    np.testing.assert_allclose(problem.X_train[0].std(axis=0), [1, 1, 0], atol=1e-14)
    np.testing.assert_allclose(problem.X_test * problem.scale + problem.shift, raw.X_test)
    assert abs(problem.X_test[0].mean(axis=0)[0]) > 1e-3
    assert (raw.shift.tolist(), raw.scale.tolist()) == ([0, 0, 0], [1, 1, 1])


def test_the_targets_of_a_regression_are_standardised_too():
    X, y = np.arange(30.0)[:, None], np.linspace(100, 200, 30) ** 1.5
    raw, problem = from_arrays(X, y), from_arrays(X, y, standardise=True)
    assert problem.task == "regression"
    assert problem.targets == ("y",)
    assert (raw.target_shift.tolist(), raw.target_scale.tolist()) == ([0], [1])
    np.testing.assert_allclose(problem.target_shift, raw.Y_train.mean())
    np.testing.assert_allclose(problem.target_scale, raw.Y_train.std())
    np.testing.assert_allclose(problem.Y_test * problem.target_scale + problem.target_shift, raw.Y_test)


def test_labels_are_never_standardised(flowers):
    problem = from_csv(flowers, "kind")
    assert set(problem.Y_train.ravel()) == {0, 1}
    assert (problem.target_shift.tolist(), problem.target_scale.tolist()) == ([0], [1])


def test_the_split_is_by_the_seed(flowers):
    assert same(from_csv(flowers, "kind", seed=1), from_csv(flowers, "kind", seed=1))
    assert not same(from_csv(flowers, "kind", seed=1), from_csv(flowers, "kind", seed=2))


@pytest.mark.parametrize(
    ("share", "rows", "tests"), [(0, 10, 0), (0.25, 8, 2), (0.01, 10, 1), (0.99, 3, 2), (0.5, 1, 0)]
)
def test_a_share_of_the_rows_is_set_aside_and_training_keeps_at_least_one(share, rows, tests):
    problem = from_arrays(ones(rows, 2), np.arange(rows) / 3, test_share=share, task="regression")
    assert (problem.X_train.shape[1], problem.X_test.shape[1]) == (rows - tests, tests)


@pytest.mark.parametrize(
    ("y", "task", "targets"),
    [
        ([0, 1, 1, 0], "binary", ("0", "1")),
        ([7, 3, 7, 3], "binary", ("3", "7")),
        ([-1.0, 1.0, 1.0, -1.0], "binary", ("-1", "1")),
        ([10, 2, 1, 2], "classes", ("1", "2", "10")),
        (["10", "2", "1", "2"], "classes", ("1", "10", "2")),
        ([True, False, True, True], "binary", ("False", "True")),
        (np.array(["b", "a", "b", "a"], dtype=object), "binary", ("a", "b")),
        ([[0], [1], [2], [0]], "classes", ("0", "1", "2")),
        ([0.5, 1, 2, 3], "regression", ("y",)),
        (ones(4, 2), "regression", ("y1", "y2")),
    ],
)
def test_the_task_is_inferred_from_the_targets(y, task, targets):
    problem = from_arrays(np.arange(4.0)[:, None], y, test_share=0)
    assert (problem.task, problem.targets) == (task, targets)
    if task != "regression":
        named = [problem.targets[int(label)] for label in problem.Y_train.ravel()]
        assert named == [str(np.ravel(y)[int(x)]).removesuffix(".0") for x in problem.X_train.ravel()]


def test_whole_numbers_with_many_values_are_a_regression_unless_the_user_says_otherwise():
    X = ones(42, 1)
    assert from_arrays(X, np.arange(42) % 20).task == "classes"
    assert from_arrays(X, np.arange(42) % 21).task == "regression"
    assert from_arrays(X, np.arange(42) % 21, task="classes").outputs == 21
    assert from_arrays(X, np.arange(42) % 2, task="regression").outputs == 1
    assert from_arrays(X, np.arange(42) % 2, task="classes").outputs == 2
    assert from_arrays(X, np.arange(42) % 2 / 2, task="binary").targets == ("0", "0.5")


def test_given_test_data_are_kept_as_they_are_and_the_users_arrays_are_not_touched():
    X, y, X_test, y_test = np.arange(8.0).reshape(4, 2), [0, 1, 2, 1], ones(3, 2), [2, 0, 2]
    problem = from_arrays(X, y, X_test, y_test, features=["u", "v"])
    assert np.array_equal(problem.X_train[0], X)
    assert np.array_equal(problem.X_test[0], X_test)
    assert problem.Y_test.ravel().tolist() == [2, 0, 2]
    assert problem.features == ("u", "v")
    problem.X_train[:] = -1
    assert X[0].tolist() == [0, 1]
    standard = from_arrays(X, y, X_test, y_test, standardise=True)
    np.testing.assert_allclose(standard.shift, X.mean(axis=0))


def test_weights_stay_with_their_rows_and_count_in_what_is_standardised():
    X = np.arange(10.0)[:, None] ** 2
    problem = from_arrays(X, X[:, 0], test_share=0.3, task="regression", weights=X[:, 0] + 1, seed=2)
    np.testing.assert_array_equal(problem.weights_train, problem.X_train[..., 0] + 1)
    np.testing.assert_array_equal(problem.weights_test, problem.X_test[..., 0] + 1)
    assert from_arrays(X, X, X, X, weights=np.ones(10)).weights_test is None
    assert from_arrays(X, X).weights_train is None
    copies = np.repeat(X, [1, 2] * 5, axis=0)
    weighed = from_arrays(X, X, X, X, standardise=True, task="regression", weights=[1, 2] * 5)
    copied = from_arrays(copies, copies, X, X, standardise=True, task="regression")
    for name in ("shift", "scale", "target_shift", "target_scale", "X_test", "Y_test"):
        np.testing.assert_allclose(getattr(weighed, name), getattr(copied, name), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("task", ["regression", None])
def test_rows_of_weight_0_are_as_if_they_were_not_there(task):
    X, w = np.arange(12.0)[:, None] ** 2, np.array([2.0, 0, 1, 0.5] * 3)
    y = X[:, 0] if task else np.array(["a", "left out", "b", "c"] * 3)
    given, kept = {"task": task, "standardise": True, "seed": 3}, w > 0
    assert same(
        from_arrays(X, y, weights=w, **given), from_arrays(X[kept], y[kept], weights=w[kept], **given)
    )


def test_weights_of_a_csv_file_are_a_column_that_is_neither_feature_nor_target(tmp_path):
    rng = np.random.default_rng(0)
    X, y, w = rng.standard_normal((20, 2)), rng.standard_normal(20), rng.integers(0, 4, 20) / 2
    rows = [",".join(map(repr, row)) for row in np.column_stack([X[:, 0], w, X[:, 1], y]).tolist()]
    path = table(tmp_path / "weighed.csv", "a,count,b,y", *rows)
    problem = from_csv(path, "y", weights="count", seed=2)
    assert problem.features == ("a", "b")
    assert same(problem, from_arrays(X, y, weights=w, standardise=True, seed=2))
    assert from_csv(path, "y", seed=2).features == ("a", "count", "b")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"weights": [1, 2, 3]}, "weights must be one for each of the 4 rows of X, got 3"),
        ({"weights": [1, 2, -1, 3]}, "weights must be >= 0, and positive for some rows; .* from -1 to 3"),
        ({"weights": [0, 0, 0, 0]}, "positive for some rows; they are from 0 to 0"),
        ({"weights": [1, 0, 1, 0], "y": [0, 1, 0, 1]}, "at least two classes .* the classes 0"),
        ({"weights": [1, 2, np.inf, 3]}, r"weights must be finite, got inf at \(2,\)"),
        ({"weights": "1234"}, "weights must be an array of numbers"),
        ({"X": ones(4)}, r"X must be an array of numbers with 2 axes, .* shape \(4,\)"),
        ({"X": [[1], [2, 3]]}, "X must be an array of numbers"),
        ({"X": [["a"], ["b"], ["c"], ["d"]]}, "X must be an array of numbers .* <U1"),
        ({"X": [[1], [2], [np.nan], [3]]}, r"X must be finite, got nan at \(2, 0\)"),
        ({"X": ones(3, 1)}, "X and y must have the same number of rows, at least one; got 3 and 4"),
        ({"X": ones(0, 1), "y": [], "task": "regression"}, "at least one; got 0 and 0"),
        ({"X": ones(4, 0)}, "one feature are needed"),
        ({"y": [0, 1, np.nan, 1]}, r"y must be finite, got nan at \(2,\)"),
        ({"y": ["a", "b", "", "a"]}, "without missing ones"),
        ({"y": ["a", "b", np.nan, "a"]}, "without missing ones"),
        ({"y": ["a", None, "b", "b"]}, "y must be an array of numbers .* object"),
        (
            {"y": [1, 1, 1, 1]},
            "at least two classes .* got 1 columns and the classes 1; .* task='regression'",
        ),
        ({"y": ["a"] * 4}, "at least two classes"),
        ({"y": [0, 1, 2, 1], "task": "binary"}, "one column with two classes for task 'binary'.* 0, 1, 2"),
        ({"y": ones(4, 2), "task": "classes"}, "got 2 columns"),
        ({"y": ["a", "b", "a", "b"], "task": "regression"}, "y must hold numbers for task 'regression'.*'a'"),
        (
            {"task": "clustering"},
            "task must be one of 'binary', 'classes', 'regression', 'counts', got 'clustering'",
        ),
        ({"test_share": 1}, "test_share must be >= 0 and < 1, got 1"),
        ({"seed": -1}, "seed must be a whole number >= 0, got -1"),
        ({"features": ["a", "b"]}, "features must be 1 names, got 2: a, b"),
        ({"features": "a"}, "features must be a list of different names, got 'a'"),
        ({"X_test": ones(2, 1)}, "X_test and y_test must be given together"),
        ({"y_test": [0, 1]}, "X_test and y_test must be given together"),
        ({"X_test": ones(2, 2), "y_test": [0, 1]}, r"must have the columns of X and y .* X_test \(2, 2\)"),
        ({"X_test": ones(2, 1), "y_test": [0]}, r"the same number of rows; .* y_test \(1, 1\)"),
        ({"X_test": ones(2, 1), "y_test": [0, 2]}, r"y_test must hold classes that y has \(0, 1\)"),
        ({"X_test": ones(2, 1), "y_test": ["0", "1"]}, r"y_test must hold classes that y has \(0, 1\)"),
    ],
)
def test_arrays_that_are_wrong_are_refused(given, says):
    with pytest.raises((ValueError, TypeError), match=says):
        from_arrays(**{"X": np.arange(4.0)[:, None], "y": [0, 1, 1, 0], **given})


HEAD = "a,b,y"


@pytest.mark.parametrize(
    ("lines", "options", "says"),
    [
        ([], {}, "must have a header and at least one row below it, it has 0 rows"),
        ([HEAD], {}, "at least one row below it, it has 1 rows"),
        (["a,b,z", "1,2,3"], {}, "must have one column 'y' and at least one other; it has 'a', 'b', 'z'"),
        (["a,y,y", "1,2,3"], {}, "must have one column 'y'"),
        (["y", "1", "2"], {}, "at least one other; it has 'y'"),
        (["a,a,y", "1,2,0", "1,2,1"], {}, "features must be a list of different names"),
        ([HEAD, "1,2,x", "1,red,z"], {}, "row 3, column 'b': a number is needed, got 'red'"),
        ([HEAD, "1,2,x", "", "1,,z"], {}, "row 4, column 'b': a number is needed, got ''"),
        ([HEAD, "nan,2,x", "1,2,z"], {}, "row 2, column 'a': a number is needed, got 'nan'"),
        ([HEAD, "1,inf,x", "1,2,z"], {}, "row 2, column 'b': a number is needed, got 'inf'"),
        ([HEAD, "1,1_0,x", "1,2,z"], {}, "row 2, column 'b': a number is needed, got '1_0'"),
        ([HEAD, "1,2,x", "1,2"], {}, "row 3: 3 cells are needed, got 2"),
        ([HEAD, "1,2,x", "1,2,z,4"], {}, "row 3: 3 cells are needed, got 4"),
        ([HEAD, "1,2,x", "1,2,"], {}, "row 3, column 'y': the value is missing, got ''"),
        ([HEAD, "1,2,0.5", "1,2,NaN"], {}, "row 3, column 'y': the value is missing, got 'NaN'"),
        ([HEAD, "1,2,0.5", "1,2,inf"], {}, "row 3, column 'y': a number is needed, got 'inf'"),
        ([HEAD, "1,2,0.5", "1,2,l.5"], {}, "row 3, column 'y': .* got 'l.5'; .* pass task='classes'"),
        ([HEAD, "1,2,x", "1,2,z"], {"task": "regression"}, "row 2, column 'y': a number is needed, got 'x'"),
        ([HEAD, "1,2,x", "1,2,x"], {}, "target 'y': y must be one column with at least two classes .* x;"),
        ([HEAD, "1,2,x", "1,2,z", "1,2,w"], {"task": "binary"}, "two classes for task 'binary'"),
        ([HEAD, "1,2,x", "1,2,z"], {"task": "tree"}, "task must be one of"),
        ([HEAD, "1,2,x", "1,2,z"], {"test_share": -0.1}, "test_share must be >= 0 and < 1"),
        ([HEAD, "1,2,x"], {"weights": "c"}, "must have one column 'y' and one 'c' and at least one other"),
        ([HEAD, "1,2,x"], {"weights": "y"}, "weights must be another column than the target, got 'y' for"),
        (["b,y", "1,2"], {"weights": "b"}, "at least one other; it has 'b', 'y'"),
        (["a,b,b,y", "1,2,2,3"], {"weights": "b"}, "must have one column 'y' and one 'b'"),
        ([HEAD, "1,2,x", "1,,z"], {"weights": "b"}, "row 3, column 'b': a number is needed, got ''"),
        ([HEAD, "1,inf,x", "1,2,z"], {"weights": "b"}, "row 2, column 'b': a number is needed, got 'inf'"),
        ([HEAD, "1,2,x", "1,-2,z"], {"weights": "b"}, "weights must be >= 0, .* they are from -2 to 2"),
        ([HEAD, "1,0,x", "1,0,z"], {"weights": "b"}, "positive for some rows; they are from 0 to 0"),
    ],
)
def test_csv_files_that_are_wrong_are_refused_by_file_row_and_column(tmp_path, lines, options, says):
    path = tmp_path / "bad.csv"
    path.write_text("\n".join(lines))
    with pytest.raises(ValueError, match=rf"bad\.csv.* {says}"):
        from_csv(path, "y", **options)


def test_a_csv_file_that_is_missing_or_not_text_is_refused_by_name(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nothing\.csv cannot be read .*: check the path"):
        from_csv(tmp_path / "nothing.csv", "y")
    with pytest.raises(IsADirectoryError, match="cannot be read"):
        from_csv(tmp_path, "y")
    (tmp_path / "binary.csv").write_bytes(b"a,y\n\xff\xfe,1\n")
    with pytest.raises(ValueError, match=r"binary\.csv is not a CSV file in UTF-8"):
        from_csv(tmp_path / "binary.csv", "y")


def test_csv_tolerates_a_byte_order_mark_quotes_spaces_and_blank_lines(tmp_path):
    path = tmp_path / "good.csv"
    path.write_bytes(b'\xef\xbb\xbfy,"a" ,"b, c"\r\n\r\n"one, two", 1 ,2\r\nthree,-3e1, 4\r\n')
    problem = from_csv(str(path), "y", test_share=0, standardise=False)
    assert problem.features == ("a", "b, c")
    assert problem.targets == ("one, two", "three")
    assert sorted(problem.X_train[0].tolist()) == [[-30, 4], [1, 2]]


def test_numbers_mixed_with_text_are_classes_when_the_user_says_so(tmp_path):
    path = table(tmp_path / "mixed.csv", HEAD, "1,2,1", "1,2,2", "1,2,2a")
    assert from_csv(path, "y", task="classes").targets == ("1", "2", "2a")


def test_a_regression_from_a_csv_file_is_named_by_its_column(tmp_path):
    path = table(tmp_path / "t.csv", HEAD, *(f"{i},1,{i / 4}" for i in range(10)))
    problem = from_csv(path, "y")
    assert (problem.task, problem.targets, problem.outputs) == ("regression", ("y",), 1)
    whole = table(tmp_path / "u.csv", HEAD, *(f"{i},1,{i % 3}" for i in range(10)))
    assert from_csv(whole, "y").targets == ("0", "1", "2")
    assert from_csv(whole, "y", task="regression").targets == ("y",)


def test_csv_and_arrays_give_the_same_problem(flowers):
    rows = [line.split(",") for line in flowers.read_text().splitlines()[1:]]
    X = [[float(row[i]) for i in (0, 2, 3)] for row in rows]
    made = from_arrays(X, [row[1] for row in rows], standardise=True, seed=4)
    assert same(made, from_csv(flowers, "kind", seed=4))
