"""The effect of single examples."""

import numpy as np
import pytest

import heatbath as hb
from tests.paper.made_up import check_every_claim, effects


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


def test_every_claim_about_single_examples_can_hold_and_fail():
    check_every_claim(
        "points",
        (effects(2.0, 0.8, "SGD"), effects(0.5, 0.8, "SGD")),
        (effects(2.0, 0.8, "SGD"), effects(0.9, 0.1, "SGD")),
        (effects(1.05, 1.0, "AdLaLa"), effects(3.0, 1.0, "AdLaLa")),
    )
