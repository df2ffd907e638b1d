"""The gradients of dense networks of any shape are the derivatives of the loss."""

import numpy as np
import pytest

from heatbath.datasets.tasks import TASKS
from heatbath.engine.dense_shape import Shape
from heatbath.models.dense import ACTIVATIONS
from tests.engine.gradients import engine_gradient, random_problem, torch_gradient
from tests.engine.probes import layouts

NETWORKS = [
    (2, 20, 1),
    (2, 5, 3),
    (3, 33, 16, 40, 2),
    (20, 64, 30, 5),
    (1, 18, 1),
    (3, 40, 1),
    (2, 20, 20, 1),
    (2, 25, 17, 3),
    (30, 40, 4),
    (5, 3),
    (40, 20),
]


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("sizes", NETWORKS)
def test_gradients_are_those_of_autograd(sizes, activation, task):
    if task == "binary" and sizes[-1] > 1:
        sizes = (*sizes[:-1], 1)
    X, Y = random_problem(sizes, task)
    size = 0.1 if task == "counts" else 0.5  # rates of some hundreds have no 12 digits after the point
    theta = np.random.default_rng(2).standard_normal(Shape(sizes, 0, 0).parameters) * size
    arguments = (sizes, activation, task, X[0], Y[0])
    expected, reference = torch_gradient(theta, *arguments)
    for layout in layouts(np.float64):
        loss, gradient = engine_gradient(theta, *arguments, layout)
        assert loss == pytest.approx(expected, rel=1e-12)
        np.testing.assert_allclose(gradient, reference, rtol=0, atol=1e-12)


def test_gradients_are_finite_differences_of_the_loss():
    arguments = ((2, 18, 3), "tanh", "classes", *(a[0] for a in random_problem((2, 18, 3), "classes")))
    theta = np.random.default_rng(2).standard_normal(Shape((2, 18, 3), 0, 0).parameters)
    _, gradient = engine_gradient(theta, *arguments)
    for e in range(0, len(theta), 7):
        step = np.zeros_like(theta)
        step[e] = 1e-6
        up, down = (engine_gradient(theta + s, *arguments)[0] for s in (step, -step))
        assert gradient[e] == pytest.approx((up - down) / 2e-6, abs=1e-8)
