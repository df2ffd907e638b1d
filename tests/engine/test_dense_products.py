"""Products are the same whether their sizes are multiples of a tile or leave single rows and columns."""

import numpy as np
import pytest

from heatbath.engine.dense_shape import Shape
from tests.engine.gradients import engine_gradient, random_problem, torch_gradient
from tests.engine.probes import layouts


@pytest.mark.parametrize("width", [1, 4, 5, 17, 36])
@pytest.mark.parametrize("out", [1, 3, 4, 9, 33])
def test_gradients_are_those_of_autograd_for_every_remainder_of_a_tile(width, out):
    sizes = (width, out, 2)
    X, Y = random_problem(sizes, "regression")
    theta = np.random.default_rng(3).standard_normal(Shape(sizes, 0, 0).parameters) * 0.5
    for examples in (1, 4, 7):
        arguments = (sizes, "tanh", "regression", X[0][:examples], Y[0][:examples])
        expected, reference = torch_gradient(theta, *arguments)
        for layout in layouts(np.float64):
            loss, gradient = engine_gradient(theta, *arguments, layout)
            assert loss == pytest.approx(expected, rel=1e-12)
            np.testing.assert_allclose(gradient, reference, rtol=0, atol=1e-12)
