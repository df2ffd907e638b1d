"""Layers that BLAS multiplies have the gradients of autograd."""

import numpy as np
import pytest

from heatbath.engine.dense_shape import BLAS, Shape
from tests.engine.gradients import engine_gradient, random_problem, torch_gradient


@pytest.mark.parametrize("sizes", [(128, 128), (130, 127, 3), (3, 127, 130)])
def test_gradients_of_very_wide_layers_are_those_of_autograd(sizes):
    shape = Shape(sizes, 0, 0)
    assert BLAS in shape.schemes
    X, Y = (a[0].astype(np.float32) for a in random_problem(sizes, "regression"))
    theta = np.random.default_rng(2).standard_normal(shape.parameters).astype(np.float32) * np.float32(0.1)
    expected, reference = torch_gradient(theta, sizes, "tanh", "regression", X.astype(float), Y.astype(float))
    loss, gradient = engine_gradient(theta, sizes, "tanh", "regression", X, Y)
    assert loss == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(gradient, reference, rtol=0, atol=1e-5 * np.abs(reference).max())
