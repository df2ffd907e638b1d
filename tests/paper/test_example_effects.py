"""The effect of single examples."""

import numpy as np
import pytest

import heatbath as hb


def test_single_data_move_the_weights_by_their_gradient():
    torch = pytest.importorskip("torch")
    from heatbath.paper.example_effects import gradient_norms as norms

    network = hb.MLP((7,))
    theta = network.start(2, 1, [0], 3)[0]
    X, y = np.random.default_rng(0).standard_normal((4, 2)), np.array([0.0, 1.0, 1.0, 0.0])
    model = network.to_torch(theta, 2, 1)
    for i, found in enumerate(norms(theta, X, y, 7)):
        model.zero_grad()
        loss = torch.nn.BCEWithLogitsLoss()
        loss(model(torch.tensor(X[i : i + 1]))[:, 0], torch.tensor(y[i : i + 1])).backward()
        gradient = torch.cat([p.grad.ravel() for p in model.parameters()])
        assert found == pytest.approx(gradient.norm().item(), rel=1e-10)
