"""Examples to fit, their scales, and the problem that they make."""

import numpy as np
import pytest

from heatbath.estimators.examples import FitExamples, Scales, check_weights

X = np.array([[0.0, 10.0], [2.0, 30.0], [4.0, 50.0], [6.0, 70.0]])


def regression_examples(weights=(1.0, 1.0, 1.0, 1.0)):
    return FitExamples(X, X[:, :1] * 3, np.array(weights), "regression", ["y"])


def make_problem(examples, training, validation, scale=True):
    training, validation = np.array(training), np.array(validation, int)
    return examples.problem(training, validation, examples.scales(training, scale), ["a", "b"], None)


def test_a_problem_has_mean_0_and_variance_1_over_the_training_rows():
    problem = make_problem(regression_examples(), [0, 1], [2, 3])
    np.testing.assert_allclose(problem.X_train[0], [[-1.0, -1.0], [1.0, 1.0]])
    np.testing.assert_allclose(problem.X_test[0] * problem.scale + problem.shift, X[2:])
    np.testing.assert_allclose(problem.Y_train[0], [[-1.0], [1.0]])
    assert problem.weights_train is None
    assert Scales.of(problem).shift.tolist() == [1.0, 20.0]


def test_features_keep_their_units_on_request():
    np.testing.assert_array_equal(
        make_problem(regression_examples(), [0, 1], [], scale=False).X_train[0], X[:2]
    )


def test_weights_are_left_out_where_all_are_1():
    examples = regression_examples([1.0, 1.0, 2.0, 1.0])
    assert examples.weights_at(np.array([0, 1])) is None
    np.testing.assert_array_equal(examples.weights_at(np.array([2, 3])), [2.0, 1.0])
    np.testing.assert_array_equal(make_problem(examples, [1, 2], [0, 3]).weights_train, [[1.0, 2.0]])


def test_the_latest_examples_of_a_former_problem_come_first_in_the_users_units():
    former = make_problem(regression_examples([1.0, 2.0, 3.0, 1.0]), [0, 1, 2], [])
    joined = regression_examples().at(slice(3, None)).after(former, 2)
    np.testing.assert_allclose(joined.X, X[[1, 2, 3]])
    np.testing.assert_allclose(joined.Y[:, 0], 3 * X[[1, 2, 3], 0])
    assert joined.weights.tolist() == [2.0, 3.0, 1.0]


@pytest.mark.parametrize("weights", [[0.0, 0.0], [1.0, -0.5]])
def test_weights_must_not_be_negative_and_some_must_be_positive(weights):
    with pytest.raises(ValueError, match="must be >= 0, and positive for some examples; they are from"):
        check_weights(np.array(weights))
