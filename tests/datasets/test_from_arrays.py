"""The user's own arrays."""

import numpy as np
import pytest

from heatbath.datasets import from_arrays
from heatbath.datasets.from_arrays import split
from tests.datasets.problems import ones, same


def test_the_targets_of_a_regression_are_standardised_too():
    X, y = np.arange(30.0)[:, None], np.linspace(100, 200, 30) ** 1.5
    raw, problem = from_arrays(X, y), from_arrays(X, y, standardise=True)
    assert problem.task == "regression"
    assert problem.targets == ("y",)
    assert (raw.target_shift.tolist(), raw.target_scale.tolist()) == ([0], [1])
    np.testing.assert_allclose(problem.target_shift, raw.Y_train.mean())
    np.testing.assert_allclose(problem.target_scale, raw.Y_train.std())
    np.testing.assert_allclose(problem.Y_test * problem.target_scale + problem.target_shift, raw.Y_test)


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
    for rows, values, task in (
        (3, 3, "regression"),
        (16, 13, "regression"),
        (16, 12, "classes"),
        (2, 2, "binary"),
    ):
        assert from_arrays(X[:rows], np.arange(rows) % values * 10, test_share=0).task == task
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
        ({"y": ["a", "b", "", "a"]}, "without missing names"),
        ({"y": ["a", "b", np.nan, "a"]}, "without missing names"),
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
        ({"X_test": ones(2, 1), "y_test": [0, 2]}, r"y_test must hold only classes that y has: 0, 1"),
        ({"X_test": ones(2, 1), "y_test": ["0", "1"]}, r"y_test must hold only classes that y has: 0, 1"),
    ],
)
def test_arrays_that_are_wrong_are_refused(given, says):
    with pytest.raises((ValueError, TypeError), match=says):
        from_arrays(**{"X": np.arange(4.0)[:, None], "y": [0, 1, 1, 0], **given})


@pytest.mark.parametrize("seed", range(5))
def test_a_test_has_its_share_of_each_class_and_one_of_rare_ones(seed):
    y = np.repeat(["a", "b", "c", "d"], [70, 25, 4, 1])
    problem = from_arrays(np.arange(100.0)[:, None], y, seed=seed)
    counts = [
        np.bincount(Y[0, :, 0].astype(int), minlength=4).tolist() for Y in (problem.Y_train, problem.Y_test)
    ]
    assert counts == [[56, 20, 3, 1], [14, 5, 1, 0]]
    rows = np.concatenate([problem.X_train[0, :, 0], problem.X_test[0, :, 0]])
    assert sorted(rows) == list(range(100))


def test_a_test_keeps_its_size_where_classes_are_many_or_have_one_row_each():
    for y, share in ((np.arange(10) // 2, 0.2), (np.arange(6), 0.3), (np.r_[np.zeros(9), 1], 0.5)):
        test, train = split(len(y), share, 0, y)
        assert len(test) == round(share * len(y))
        assert sorted([*test, *train]) == list(range(len(y)))
    numbers = np.random.default_rng(0).random(50)
    problem = from_arrays(np.arange(50.0)[:, None], numbers)
    np.testing.assert_array_equal(problem.X_test[0, :, 0], split(50, 0.2, 0)[0])  # of numbers as ever
