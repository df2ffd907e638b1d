"""Samples of torch models, and what they say together."""

import math

import numpy as np
import pytest
import torch

import heatbath.torch as ht
from heatbath.prediction import Samples, predict


def model_of(value):
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2))
    with torch.no_grad():
        for p in model.parameters():
            p.fill_(value)
    return model


def collect(steps, **options):
    """A model whose first weight is the number of the step, and its samples."""
    model = model_of(0.0)
    samples = Samples(model, **options)
    for n in range(1, steps + 1):
        with torch.no_grad():
            model[0].weight[0, 0] = n
        samples.take()
    return samples


@pytest.mark.parametrize("on_disk", [False, True])
def test_samples_begin_after_the_burn_in_and_are_evenly_spaced(on_disk, tmp_path):
    samples = collect(25, burn_in=10, thin=3, folder=tmp_path if on_disk else None)
    assert samples.steps == [13, 16, 19, 22, 25]
    assert [int(state["0.weight"][0, 0]) for state in samples] == samples.steps
    assert len(list(tmp_path.iterdir())) == (5 if on_disk else 0)


@pytest.mark.parametrize("on_disk", [False, True])
def test_there_are_never_too_many_and_they_stay_evenly_spaced(on_disk, tmp_path):
    samples = collect(1000, burn_in=7, most=16, folder=tmp_path if on_disk else None)
    assert 8 <= len(samples) <= 16
    assert len(set(np.diff(samples.steps))) == 1
    assert samples.steps[0] - 7 == samples.thin
    assert [int(state["0.weight"][0, 0]) for state in samples] == samples.steps
    assert len(list(tmp_path.iterdir())) == (len(samples) if on_disk else 0)


def states(count, seed=0):
    torch.manual_seed(seed)
    made = []
    for _ in range(count):
        model = torch.nn.Linear(2, 3)
        made.append({name: value.clone() for name, value in model.state_dict().items()})
    return made


@pytest.mark.parametrize("task", ["binary", "classes", "regression"])
def test_predictions_are_means_over_samples(task):
    model, x = torch.nn.Linear(2, 3), torch.randn(5, 2)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    own = states(7)
    said = torch.stack([x.double() @ s["weight"].double().T + s["bias"].double() for s in own])
    if task == "binary":
        said = torch.sigmoid(said)
    if task == "classes":
        said = torch.softmax(said, dim=-1)
    told = predict(model, own, x, task=task)
    torch.testing.assert_close(told.mean, said.mean(0), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(told.variance, said.var(0, correction=0), rtol=1e-4, atol=1e-6)
    m = said.mean(0)
    entropy = {
        "classes": -(m * m.log()).sum(-1),
        "binary": -(m * m.log() + (1 - m) * (1 - m).log()).sum(-1),
        "regression": 0.5 * torch.log(2 * math.pi * math.e * said.var(0, correction=0)).sum(-1),
    }[task]
    torch.testing.assert_close(told.entropy, entropy, rtol=1e-4, atol=1e-5)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])


def test_modes_and_buffers_are_as_they_were_also_after_an_error():
    model = model_of(0.3)
    model[0].eval()
    modes = [module.training for module in model.modules()]
    buffers = {name: value.clone() for name, value in model.named_buffers()}
    samples = Samples(model)
    samples.take()
    predict(model, samples, torch.randn(4, 2), task="classes")
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        predict(model, samples, torch.randn(4, 5), task="classes")
    assert [module.training for module in model.modules()] == modes
    for name, value in model.named_buffers():
        assert torch.equal(value, buffers[name])


def test_a_sampled_posterior_is_unsure_where_there_are_no_data():
    """Away from the data the predictions of the samples differ more."""
    torch.manual_seed(0)
    x = torch.linspace(-1, 1, 40)[:, None]
    y = torch.sin(3 * x) + 0.1 * torch.randn_like(x)
    model = torch.nn.Sequential(torch.nn.Linear(1, 20), torch.nn.Tanh(), torch.nn.Linear(20, 1))
    optimizer = ht.Langevin(model, 0.1, gamma=1.0, tau=1e-3, weight_decay=1e-3)
    samples = Samples(model, burn_in=1000, thin=20, most=200)
    for _ in range(4000):
        optimizer.zero_grad()
        (0.5 * (model(x) - y).square().mean()).backward()
        optimizer.step()
        samples.take()
    told = predict(model, samples, torch.tensor([[0.0], [4.0]]), task="regression")
    assert told.variance[1].item() > 3 * told.variance[0].item()


def test_what_cannot_be_is_refused():
    model = torch.nn.Linear(2, 3)
    with pytest.raises(ValueError, match="there are no samples"):
        predict(model, [], torch.zeros(1, 2), task="classes")
    with pytest.raises(ValueError, match="task must be one of 'binary', 'classes', 'regression'"):
        predict(model, states(1), torch.zeros(1, 2), task="logits")
    with pytest.raises(TypeError, match="model must be a torch module"):
        Samples(3)
    with pytest.raises(ValueError, match="most must be a whole number >= 2"):
        Samples(model, most=1)
