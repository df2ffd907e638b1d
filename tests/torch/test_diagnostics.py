"""Diagnostics of torch models."""

import itertools
import math

import numpy as np
import pytest
import torch

from heatbath.torch import diagnostics as d
from heatbath.torch.prediction.samples import Samples
from tests.diagnostics.linear import rows


def test_the_configurational_temperature_of_a_torch_model_is_tau_and_leaves_it_as_it_was():
    """Independent samples of the exact law of a linear model with a prior, in two layers of U's own."""
    torch.manual_seed(0)
    model = torch.nn.ModuleDict({"a": torch.nn.Linear(3, 1), "b": torch.nn.Linear(2, 1, bias=False)}).double()
    scales = {"a.weight": 2.0, "a.bias": 0.5, "b.weight": 3.0}

    def loss():
        return sum(0.5 * scales[name] * (p - 1.0).square().sum() for name, p in model.named_parameters())

    tau, generator = 0.03, torch.Generator().manual_seed(1)
    states = [
        {
            name: 1 + math.sqrt(tau / scales[name]) * torch.randn(p.shape, generator=generator, dtype=p.dtype)
            for name, p in model.named_parameters()
        }
        for _ in range(4000)
    ]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = d.module_configurational(model, states, loss)
    assert list(found) == ["a", "b", "all"]
    for estimate in found.values():
        assert abs(estimate.value - tau) < 4.5 * estimate.error
        assert estimate.error < 0.2 * tau
    assert found["all"].value == pytest.approx((4 * found["a"].value + 2 * found["b"].value) / 6)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    with pytest.raises(ValueError, match="there are no samples"):
        d.module_configurational(model, Samples(model), loss)


def test_gradient_noise_of_a_torch_model_is_the_variance_over_its_batches():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)).double()
    x, y = (torch.tensor(a) for a in rows(24))
    batches = [slice(i, i + 4) for i in range(0, 24, 4)]
    losses = [lambda b=b: 0.5 * (model(x[b]) - y[b]).square().mean() for b in batches]
    found = d.module_gradient_noise(model, losses)
    gradients = [
        torch.cat([g.ravel() for g in torch.autograd.grad(loss(), model.parameters())]) for loss in losses
    ]
    variance = torch.stack(gradients).var(dim=0)
    assert list(found) == ["0", "2", "all"]
    assert found["0"] == pytest.approx(variance[:16].mean().item(), rel=1e-9)
    assert found["2"] == pytest.approx(variance[16:].mean().item(), rel=1e-9)
    assert found["all"] == pytest.approx(variance.mean().item(), rel=1e-9)
    with pytest.raises(ValueError, match="needs at least two, got 1"):
        d.module_gradient_noise(model, losses[:1])


def test_batches_of_a_shuffled_epoch_differ_by_more_and_the_documented_factor_corrects_it():
    """The mean is over all ways to cut 6 data into batches of 2."""
    values = np.random.default_rng(0).standard_normal(6)
    weight = torch.nn.Linear(1, 1, bias=False).double()
    cuts = []
    for order in itertools.permutations(range(6)):
        batches = np.reshape(order, (3, 2))
        if all(a < b for a, b in batches) and batches[0, 0] < batches[1, 0] < batches[2, 0]:
            losses = [lambda own=own: weight.weight.sum() * values[own].mean() for own in batches]
            cuts.append(d.module_gradient_noise(weight, losses)["all"])
    exact = np.var([values[list(own)].mean() for own in itertools.combinations(range(6), 2)])
    assert np.mean(cuts) * (1 - 2 / 6) == pytest.approx(exact, rel=1e-9)
