"""What outputs mean, and what activations are: the same in NumPy, in torch and in compiled code."""

import numpy as np
import pytest

import heatbath as hb
from heatbath.datasets.tasks import TASKS, each_class
from heatbath.models.dense import ACTIVATIONS
from tests.engine.probes import activation_and_slope, layouts, loss_and_derivatives, predictions
from tests.optional import optional

torch = optional("torch")

LOSSES = {
    "binary": torch.nn.functional.binary_cross_entropy_with_logits,
    "classes": lambda z, y: torch.nn.functional.cross_entropy(z, y[:, 0].long()),
    "regression": lambda z, y: 0.5 * (z - y).square().sum(dim=1).mean(),
    "counts": lambda z, y: (z.exp() - y * z).sum(dim=1).mean(),
}
ROWS = 7


def outputs_and_targets(task):
    """Return outputs, small and large, and targets."""
    rng = np.random.default_rng(0)
    outputs = rng.standard_normal((ROWS, {"binary": 1, "classes": 4}.get(task, 2)))
    outputs[0] *= 4 if task == "counts" else 40
    classes = {"binary": 2, "classes": 4}.get(task)
    targets = rng.integers(0, classes, (ROWS, 1)).astype(float) if classes else rng.random((ROWS, 2))
    return outputs, np.floor(5 * targets) if task == "counts" else targets


@pytest.mark.parametrize("task", TASKS)
def test_residuals_are_derivatives_of_the_loss_in_numpy_and_in_compiled_code(task):
    outputs, targets = outputs_and_targets(task)
    tensor = torch.tensor(outputs, requires_grad=True)
    value = LOSSES[task](tensor, torch.tensor(targets))
    value.backward()
    np.testing.assert_allclose(TASKS[task].residual(outputs, targets) / ROWS, tensor.grad, atol=1e-13)
    for layout in layouts(outputs.dtype):
        loss, compiled, _, _ = loss_and_derivatives(layout, TASKS[task].number, outputs, targets)
        assert loss == pytest.approx(value.item(), rel=1e-12)
        np.testing.assert_allclose(compiled, tensor.grad, atol=1e-13)


@pytest.mark.parametrize("task", TASKS)
def test_outputs_are_decoded_alike_everywhere(task):
    outputs, _ = outputs_and_targets(task)
    expected = TASKS[task].decode(outputs)
    np.testing.assert_allclose(TASKS[task].decode_torch(torch.tensor(outputs)), expected, atol=1e-14)
    for layout in layouts(outputs.dtype):
        compiled = predictions(layout, TASKS[task].number, outputs)
        np.testing.assert_allclose(compiled, expected, atol=1e-14)
    if task == "classes":
        np.testing.assert_allclose(expected.sum(axis=-1), 1)
    if task == "regression":
        assert np.array_equal(expected, outputs)
    if task == "counts":
        np.testing.assert_array_equal(expected, np.exp(outputs))


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_no_rate_is_above_exp_80_whatever_a_network_says(kind):
    outputs = np.array([[79.0], [80.0], [81.0], [1e30]], kind)
    expected = np.exp(np.array([[79.0], [80.0], [80.0], [80.0]]))
    np.testing.assert_allclose(TASKS["counts"].decode(outputs.astype(float)), expected, rtol=1e-14)
    np.testing.assert_allclose(TASKS["counts"].decode_torch(torch.tensor(outputs).double()), expected)
    for layout in layouts(kind):
        np.testing.assert_allclose(predictions(layout, TASKS["counts"].number, outputs), expected, rtol=1e-5)


def test_tasks_have_numbers_of_their_own():
    assert len({meaning.number for meaning in TASKS.values()}) == len(TASKS)
    assert len({activation.number for activation in ACTIVATIONS.values()}) == len(ACTIVATIONS)


def test_each_class_has_a_probability_also_where_one_is_given():
    assert each_class(np.array([[0.25], [1.0]])).tolist() == [[0.75, 0.25], [0.0, 1.0]]
    three = np.array([[0.2, 0.3, 0.5]])
    assert each_class(three) is three


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_and_its_slope_are_those_of_torch_in_numpy_and_in_compiled_code(name):
    activation = ACTIVATIONS[name]
    x = np.array([-2.0, -0.3, 0.4, 1.7, 5.0])
    tensor = torch.tensor(x, requires_grad=True)
    y = getattr(torch.nn, activation.module)()(tensor)
    y.sum().backward()
    np.testing.assert_allclose(activation.value(x), y.detach(), rtol=1e-14)
    np.testing.assert_allclose(activation.slope(activation.value(x)) * np.ones(5), tensor.grad, rtol=1e-12)
    compiled, slopes = activation_and_slope(x, activation.number)
    np.testing.assert_allclose(compiled, activation.value(x), rtol=1e-13)
    np.testing.assert_allclose(slopes, tensor.grad, rtol=1e-11)


def test_an_activation_that_is_not_in_the_table_is_refused():
    with pytest.raises(ValueError, match="activation must be one of 'relu', 'tanh', 'identity', got 'elu'"):
        hb.MLP((3,), "elu")
