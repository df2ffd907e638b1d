"""Losses and averages over all data."""

import numpy as np
import pytest

import heatbath as hb
from heatbath.datasets.tasks import TASKS
from heatbath.engine.batches import tabulate
from heatbath.engine.dense_shape import Shape
from heatbath.engine.ensemble import Ensemble
from heatbath.engine.layouts import Alone
from heatbath.engine.program import compile_program
from heatbath.models.dense import MLP
from tests.engine.probes import layouts
from tests.engine.test_ensemble import torch_gradient
from tests.engine.test_same_bits import Case, group
from tests.optional import optional

torch = optional("torch")


@pytest.mark.parametrize("in_group", [False, True])
def test_predictions_have_the_mean_and_the_squared_deviations_of_the_samples(in_group):
    partition = hb.Partition(hb.Langevin(1.0, 1e-2), 0.1)
    case = Case(partition, ((1, 1), "identity", "regression"), np.float64, chains=3)
    notes = case.run(group(case) if in_group else Alone()).notes
    weight, bias = notes.samples[..., :1], notes.samples[..., 1:]  # (chain, sample, 1)
    outputs = weight * case.problem[0][0, :9, 0] + bias  # (chain, sample, example)
    assert outputs.shape[1] == 2
    assert np.ptp(outputs, axis=1).min() > 0
    np.testing.assert_allclose(notes.average[:, 0, :, 0], outputs.mean(axis=1), rtol=1e-12)
    np.testing.assert_allclose(notes.average[:, 1, :, 0], 2 * outputs.var(axis=1), rtol=1e-9)


def test_the_loss_over_all_data_is_exact_for_any_size():
    sizes = (2, 20, 3)
    shape = Shape(sizes, 0, TASKS["classes"].number)
    rng = np.random.default_rng(0)
    theta = rng.standard_normal(shape.parameters)
    for count in (1, 255, 256, 257, 700):
        X, Y = rng.standard_normal((count, 2)), rng.integers(0, 3, (count, 1)).astype(float)
        expected, _ = torch_gradient(theta, sizes, "relu", "classes", X, Y)
        logits = MLP((20,)).to_torch(theta, 2, 3)(torch.as_tensor(X))
        program = compile_program(hb.Partition(hb.SGD(), 1.0), MLP((20,)).layers(2, 3))
        for layout in layouts(np.float64):
            data = tabulate(X[None], Y[None], theta.dtype)
            engine = Ensemble(program, shape, np.tile(theta, (2, 1)), data, 1, layout=layout)
            notes = engine.take_notes((0,), (True,), data)
            engine.advance(1)
            np.testing.assert_allclose(notes.loss, expected, rtol=1e-12)
            assert (notes.accuracy == np.mean(logits.argmax(1).numpy() == Y[:, 0])).all()
