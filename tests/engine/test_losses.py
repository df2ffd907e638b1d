"""Losses in compiled code are finite where they can be, and say where they aren't."""

import numpy as np
import pytest

from heatbath.datasets.tasks import TASKS
from heatbath.engine.dense_shape import Shape
from tests.engine.gradients import engine_gradient, random_problem
from tests.engine.probes import layouts, loss_and_derivatives, predictions


@pytest.mark.parametrize("task", ["binary", "classes"])
def test_the_loss_is_finite_for_huge_logits(task):
    """A sigmoid or softmax before the log would give infinity."""
    sizes = (2, 18, 1 if task == "binary" else 3)
    X, Y = random_problem(sizes, task)
    for dtype in (np.float32, np.float64):
        theta = np.full(Shape(sizes, 0, 0).parameters, 300.0, dtype)
        loss, gradient = engine_gradient(theta, sizes, "relu", task, X[0].astype(dtype), Y[0].astype(dtype))
        assert np.isfinite(loss)
        assert np.isfinite(gradient).all()


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_the_check_is_nan_where_an_output_is_not_finite_and_zero_elsewhere(task, wrong):
    outputs = np.zeros((3, {"binary": 1, "classes": 4}.get(task, 2)))
    targets = np.zeros_like(outputs) if task in ("regression", "counts") else np.zeros((3, 1))
    for layout in layouts(outputs.dtype):
        assert not loss_and_derivatives(layout, TASKS[task].number, outputs, targets)[3].any()
        broken = outputs.copy()
        broken[1, -1] = wrong
        checks = loss_and_derivatives(layout, TASKS[task].number, broken, targets)[3]
        assert np.isnan(checks).sum() == (1 if layout.lanes == 1 else layout.lanes)


def test_the_class_with_the_largest_output_is_compared_with_the_label():
    outputs = np.array([[0.0, 2.0, 1.0], [3.0, -1.0, 0.0], [0.0, 0.0, 5.0], [1.0, 1.0, 0.0]])
    labels = np.array([[1.0], [0.0], [1.0], [0.0]])  # the third is wrong; of equal ones the first counts
    for layout in layouts(outputs.dtype):
        assert loss_and_derivatives(layout, TASKS["classes"].number, outputs, labels)[2] == 0.75


def test_probabilities_of_huge_outputs_are_zero_or_one():
    for layout in layouts(np.float64):
        classes = predictions(layout, TASKS["classes"].number, np.array([[1e300, 0.0], [-1e300, 0.0]]))
        assert classes.tolist() == [[1.0, 0.0], [0.0, 1.0]]
        binary = predictions(layout, TASKS["binary"].number, np.array([[1e300], [-1e300]]))
        assert binary.tolist() == [[1.0], [0.0]]
