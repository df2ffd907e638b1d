"""What a problem is, and what it refuses."""

from dataclasses import replace

import numpy as np
import pytest

from heatbath.datasets import Problem
from tests.datasets.problems import ones

GOOD = dict(
    name="mine",
    task="classes",
    X_train=ones(2, 4, 3),
    Y_train=ones(2, 4, 1),
    X_test=ones(2, 5, 3),
    Y_test=ones(2, 5, 1),
    features=("a", "b", "c"),
    targets=("no", "yes", "maybe"),
)


def test_a_problem_knows_its_sizes_and_prints_no_array():
    problem = Problem(**GOOD)
    assert (problem.draws, problem.inputs, problem.outputs) == (2, 3, 3)
    assert repr(problem) == (
        "Problem('mine', classes, 2 draws of 4 training and 5 test examples, 3 inputs, 3 outputs)"
    )
    assert problem.shift.tolist() == [0, 0, 0]
    assert problem.scale.tolist() == [1, 1, 1]
    assert (problem.target_shift.tolist(), problem.target_scale.tolist()) == ([0], [1])
    assert replace(problem, task="binary", targets=("no", "yes")).outputs == 1
    regression = {"task": "regression", "Y_train": ones(2, 4, 2), "Y_test": ones(2, 5, 2)}
    assert replace(problem, **regression, targets=("u", "v"), target_scale=ones(2)).outputs == 2


def test_a_problem_takes_whole_numbers_and_lists_and_keeps_floats():
    problem = Problem(**{**GOOD, "X_train": np.ones((2, 4, 3), dtype=int), "features": ["a", "b", "c"]})
    assert problem.X_train.dtype == np.float64
    assert problem.features == ("a", "b", "c")


def test_weights_relative_to_their_mean_are_those_of_each_draw():
    problem = Problem(**GOOD, weights_train=[[1, 1, 2, 4], [5, 5, 5, 5]])
    assert problem.relative_weights("train").tolist() == [[0.5, 0.5, 1, 2], [1, 1, 1, 1]]
    assert problem.relative_weights("test") is None
    assert "2 draws of 4 training and 5 test examples with weights, 3 inputs" in repr(problem)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"weights_train": ones(4)}, r"weights_train must be an array of numbers with 2 axes.*\(4,\)"),
        (
            {"weights_train": ones(2, 5)},
            r"weights_train must be \(draws, examples\), \(2, 4\), got \(2, 5\)",
        ),
        ({"weights_test": ones(2, 4)}, r"weights_test must be \(draws, examples\), \(2, 5\)"),
        ({"weights_train": np.eye(2, 4)}, r"weights_train must be > 0, got 0: leave out examples"),
        ({"weights_test": -ones(2, 5)}, r"weights_test must be > 0, got -1"),
        ({"weights_train": ones(2, 4) * np.nan}, r"weights_train must be finite"),
        ({"weights_train": ones(2, 4) * 1e308}, r"weights_train must have a finite sum.*1e\+308"),
        ({"task": "class"}, r"task must be one of 'binary', 'classes', 'regression', 'counts', got 'class'"),
        ({"name": 3}, r"name must be text"),
        ({"recipe": "spirals"}, r"recipe a dict or None, got .*'spirals'"),
        ({"X_train": ones(4, 3)}, r"X_train must be an array of numbers with 3 axes.*\(4, 3\)"),
        ({"X_train": [[[1], [2, 3]]]}, r"X_train must be an array of numbers"),
        ({"X_train": np.full((2, 4, 3), "1")}, r"X_train must be an array of numbers.*<U1"),
        ({"X_train": ones(2, 0, 3), "Y_train": ones(2, 0, 1)}, r"at least one draw, one training row"),
        ({"X_train": ones(2, 4, 0), "X_test": ones(2, 5, 0)}, r"one feature are needed"),
        ({"Y_train": ones(2, 3, 1)}, r"as many rows in Y as in X.*Y_train \(2, 3, 1\)"),
        ({"Y_test": ones(2, 4, 1)}, r"as many rows in Y as in X.*Y_test \(2, 4, 1\)"),
        ({"X_test": ones(1, 5, 3), "Y_test": ones(1, 5, 1)}, r"same draws.*X_test \(1, 5, 3\)"),
        ({"X_test": ones(2, 5, 2)}, r"columns in train and test.*X_test \(2, 5, 2\)"),
        ({"Y_test": ones(2, 5, 2)}, r"columns in train and test.*Y_test \(2, 5, 2\)"),
        ({"X_test": ones(2, 5, 3) * np.nan}, r"X_test must be finite, got nan at \(0, 0, 0\)"),
        ({"Y_train": ones(2, 4, 1) * np.inf}, r"Y_train must be finite, got inf"),
        ({"Y_train": ones(2, 4, 1) * 3}, r"Y_train must hold the indices of classes, 0 to 2, got 3"),
        ({"Y_test": ones(2, 5, 1) * -1}, r"Y_test must hold the indices of classes, 0 to 2, got -1"),
        ({"Y_test": ones(2, 5, 1) / 2}, r"Y_test must hold the indices of classes, 0 to 2, got 0.5"),
        ({"Y_train": ones(2, 4, 2), "Y_test": ones(2, 5, 2)}, r"'classes' needs one column in Y"),
        ({"task": "binary"}, r"targets must be 2 names, got 3: no, yes, maybe"),
        ({"targets": ("no",)}, r"at least two classes, got 1 and 1"),
        ({"targets": "no"}, r"targets must be a list of different names, got 'no'"),
        ({"features": ("a", "b")}, r"features must be 3 names, got 2: a, b"),
        ({"features": ("a", "b", "b")}, r"features must be a list of different names"),
        ({"features": (1, 2, 3)}, r"features must be a list of different names"),
        ({"shift": ones(2)}, r"shift must hold 3 numbers"),
        ({"scale": np.zeros(3)}, r"scale must hold 3 numbers \(scales > 0\)"),
        ({"target_scale": -ones(1)}, r"target_scale must hold 1 numbers \(scales > 0\)"),
        ({"shift": ones(3) * np.nan}, r"shift must be finite"),
    ],
)
def test_a_problem_that_is_wrong_is_refused(change, says):
    with pytest.raises((ValueError, TypeError), match=f"Problem: .*{says}|Problem: {says}"):
        Problem(**{**GOOD, **change})
