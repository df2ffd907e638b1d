"""Networks with two inputs, one hidden layer and one output have the gradient that longer code gives them."""

import numpy as np

from tests.engine.gradients import engine_gradient, random_problem
from tests.engine.probes import layouts

UNITS = 19
ARGUMENTS = ("relu", "binary")


def random_network():
    """Return the weights (unit, input), biases and output weights of a network, and its output's bias."""
    rng = np.random.default_rng(2)
    weights, biases, output_weights = np.split(rng.standard_normal(4 * UNITS), [2 * UNITS, 3 * UNITS])
    return weights.reshape(UNITS, 2), 0.1 * biases, output_weights, 0.3


def flat(weights, biases, output_weights, output_bias):
    return np.concatenate([weights.ravel(), biases, output_weights, [output_bias]])


def test_a_third_input_that_is_zero_changes_neither_loss_nor_gradient():
    """With three inputs the network isn't shallow, and is computed layer by layer."""
    weights, *others = random_network()
    X, Y = random_problem((2, UNITS, 1), "binary")
    padded_weights, padded_x = np.pad(weights, ((0, 0), (0, 1))), np.pad(X[0], ((0, 0), (0, 1)))
    for layout in layouts(np.float64):
        loss, gradient = engine_gradient(
            flat(weights, *others), (2, UNITS, 1), *ARGUMENTS, X[0], Y[0], layout
        )
        expected, longer = engine_gradient(
            flat(padded_weights, *others), (3, UNITS, 1), *ARGUMENTS, padded_x, Y[0], layout
        )
        by_unit = longer[: 3 * UNITS].reshape(UNITS, 3)
        assert not by_unit[:, 2].any()
        np.testing.assert_allclose(loss, expected, rtol=1e-14)
        same_inputs = np.concatenate([by_unit[:, :2].ravel(), longer[3 * UNITS :]])
        np.testing.assert_allclose(gradient, same_inputs, rtol=0, atol=1e-14)


def test_a_unit_that_is_never_active_has_no_gradient_and_others_have():
    weights, biases, output_weights, output_bias = random_network()
    biases[5] = -1e3
    X, Y = random_problem((2, UNITS, 1), "binary")
    theta = flat(weights, biases, output_weights, output_bias)
    for layout in layouts(np.float64):
        _, gradient = engine_gradient(theta, (2, UNITS, 1), *ARGUMENTS, X[0], Y[0], layout)
        by_unit = np.column_stack(
            [gradient[: 2 * UNITS].reshape(UNITS, 2), gradient[2 * UNITS : -1].reshape(2, UNITS).T]
        )
        assert not by_unit[5].any()
        assert np.delete(by_unit, 5, axis=0).any(axis=1).all()
