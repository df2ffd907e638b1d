"""What an optimiser keeps between two steps: every change of a value that a step depends on is still seen."""

import copy
import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import heatbath as hb
import heatbath.torch as ht
from heatbath.methods.schedules import Linear, to_plain
from heatbath.torch.optim.step_parts import StepParts

X = torch.linspace(-1.0, 1.0, 24).reshape(8, 3)
Y = X.sum(dim=1, keepdim=True) ** 2
WARM_STEPS = 5


def network():
    torch.manual_seed(4)
    return torch.nn.Sequential(torch.nn.Linear(3, 6), torch.nn.Tanh(), torch.nn.Linear(6, 1))


def compute_gradients(model, optimizer):
    optimizer.zero_grad()
    outputs = model(X.to(next(model.parameters()).dtype))
    torch.nn.functional.mse_loss(outputs, Y.to(outputs.dtype)).backward()


def make_steps(model, optimizer, count):
    for _ in range(count):
        compute_gradients(model, optimizer)
        optimizer.step()


def warm_adaptive():
    model = network()
    optimizer = ht.AdLaLa(model, lr=0.1, tau=1e-3, sigma=0.1, seed=1)
    make_steps(model, optimizer, WARM_STEPS)
    return model, optimizer


def warm_with_posterior():
    model = network()
    posterior = ht.LossPosterior("mse_loss", len(X))
    optimizer = ht.Langevin(model, 0.05, 1.0, posterior=posterior, seed=1)
    make_steps(model, optimizer, WARM_STEPS)
    return model, optimizer


def warm_with_lr_tensor():
    model = network()
    optimizer = ht.AdLaLa(model, lr=torch.tensor(0.1), tau=1e-3, seed=1)
    make_steps(model, optimizer, WARM_STEPS)
    return model, optimizer


def warm_with_array():
    """Return a warm optimiser with a coefficient in an array of one element, which can change in place."""
    model, optimizer = warm_adaptive()
    optimizer.param_groups[0]["tau"] = np.array(1e-3)
    make_steps(model, optimizer, 2)
    return model, optimizer


def warm_with_frozen_layer():
    model = network()
    model[0].weight.requires_grad_(False)
    optimizer = ht.AdLaLa(model, lr=0.1, tau=1e-3, seed=1)
    make_steps(model, optimizer, WARM_STEPS)
    return model, optimizer


def set_values(**values):
    """Return a change of the hidden layer's group."""
    return lambda model, optimizer: optimizer.param_groups[0].update(values)


def set_in_output(**values):
    """Return a change of the output layer's group."""
    return lambda model, optimizer: optimizer.param_groups[1].update(values)


def replace_group(model, optimizer):
    optimizer.param_groups[0] = optimizer.param_groups[0] | {"tau": 0.1}


def set_schedule(model, optimizer):
    optimizer.param_groups[0]["schedules"]["tau"] = to_plain(Linear(0.1, 0.2, 10))


def load_another_state(model, optimizer):
    other = network()
    hotter = ht.AdLaLa(other, lr=0.05, tau=0.1, seed=7)
    make_steps(other, hotter, 3)
    optimizer.load_state_dict(copy.deepcopy(hotter.state_dict()))


def add_group(model, optimizer):
    optimizer.add_param_group({"params": [model[2].new_scale], "part": "hidden"})


def use_scheduler(model, optimizer):
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    make_steps(model, optimizer, 2)
    scheduler.step()


def drop_a_gradient(model, optimizer):
    model[0].bias.requires_grad_(False)
    make_steps(model, optimizer, 2)
    model[0].bias.requires_grad_(True)


def draw_noise(model, optimizer):
    with torch.no_grad():
        optimizer.draw_noise(model(X) - Y)


PROGRAMS, TENSORS = "program_of", "_units"  # what finds each change out
CHANGES = {  # how the optimiser is made, what is changed, and the method of StepParts that must see it
    "lr": (warm_adaptive, set_values(lr=0.05), PROGRAMS),
    "lr, in place": (warm_with_lr_tensor, lambda m, o: o.param_groups[0]["lr"].fill_(0.05), PROGRAMS),
    "tau": (warm_adaptive, set_values(tau=0.1), PROGRAMS),
    "tau, in place": (warm_with_array, lambda m, o: o.param_groups[0]["tau"].fill(0.1), PROGRAMS),
    "sigma": (warm_adaptive, set_values(sigma=0.5), PROGRAMS),
    "epsilon": (warm_adaptive, set_values(epsilon=0.3), PROGRAMS),
    "frequency": (warm_adaptive, set_values(frequency=0.5), PROGRAMS),
    "damping": (warm_adaptive, set_values(damping=2.0), PROGRAMS),
    "weight_decay": (warm_adaptive, set_values(weight_decay=0.5), PROGRAMS),
    "gamma of the output layer": (warm_adaptive, set_in_output(gamma=3.0), PROGRAMS),
    "word": (warm_adaptive, set_values(word="BAFEFAB"), PROGRAMS),
    "word of the output layer": (warm_adaptive, set_in_output(word="OBABO"), PROGRAMS),
    "friction": (warm_adaptive, set_values(friction="sde"), PROGRAMS),
    "kinetic": (warm_adaptive, set_values(kinetic="mean"), PROGRAMS),
    "maximize": (warm_adaptive, set_values(maximize=True), PROGRAMS),
    "a schedule": (warm_adaptive, set_schedule, PROGRAMS),
    "a group": (warm_adaptive, replace_group, PROGRAMS),
    "a state that is loaded": (warm_adaptive, load_another_state, None),  # nothing is kept then
    "a scheduler": (warm_adaptive, use_scheduler, PROGRAMS),
    "number of examples": (warm_with_posterior, lambda m, o: o.set_examples(80), PROGRAMS),
    "noise": (warm_with_posterior, draw_noise, PROGRAMS),
    "xi": (warm_adaptive, set_values(xi=5.0), TENSORS),
    "seed": (warm_adaptive, set_values(seed=9), TENSORS),
    "a frozen parameter": (warm_with_frozen_layer, lambda m, o: m[0].weight.requires_grad_(True), TENSORS),
    "a gradient that was away": (warm_adaptive, drop_a_gradient, TENSORS),
    "momenta": (warm_adaptive, lambda m, o: o.state[m[0].weight].update(momentum=torch.ones(6, 3)), TENSORS),
    "type of the parameters": (warm_adaptive, lambda m, o: m.double(), TENSORS),
}


def ends(warm, change):
    """Return parameters three steps after the change: of the warm optimiser, and of a copy without cache."""
    model, optimizer = warm()
    copied_model, copied_optimizer = copy.deepcopy((model, optimizer))
    change(model, optimizer)
    change(copied_model, copied_optimizer)
    make_steps(model, optimizer, 3)
    make_steps(copied_model, copied_optimizer, 3)
    return [torch.nn.utils.parameters_to_vector(m.parameters()).detach() for m in (model, copied_model)]


def keep_first_result(monkeypatch, name):
    """Make a method of `StepParts` return what it returned first for a group: a cache that sees no change."""
    method = getattr(StepParts, name)

    def stale(self, index, *arguments):
        results = self.__dict__.setdefault(f"stale {name}", {})
        if index not in results:
            results[index] = method(self, index, *arguments)
        return results[index]

    monkeypatch.setattr(StepParts, name, stale)


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_between_two_steps_is_seen(name):
    """A warm optimiser moves as one that keeps nothing, bit for bit, and not as without the change."""
    warm, change, _ = CHANGES[name]
    changed, expected = ends(warm, change)
    assert torch.equal(changed, expected)
    assert not torch.equal(changed, ends(warm, lambda model, optimizer: None)[0].to(changed))


@pytest.mark.parametrize("name", [name for name, (*_, method) in CHANGES.items() if method is not None])
def test_an_optimiser_that_missed_a_change_would_move_otherwise(name, monkeypatch):
    """The control of the test above: with a cache that sees no change it fails."""
    warm, change, method = CHANGES[name]
    _, expected = ends(warm, change)
    keep_first_result(monkeypatch, method)
    missed, _ = ends(warm, change)
    assert not torch.equal(missed, expected)


def test_a_group_that_is_added_is_stepped_and_numbered():
    model = network()
    model[2].new_scale = torch.nn.Parameter(torch.ones(4))
    hidden, output = list(model[0].parameters()), [model[2].weight, model[2].bias]
    groups = [{"params": hidden, "part": "hidden"}, {"params": output, "part": "output"}]
    optimizer = ht.AdLaLa(groups, lr=0.1, seed=1)
    make_steps(model, optimizer, WARM_STEPS)
    add_group(model, optimizer)
    copied_model, copied_optimizer = copy.deepcopy((model, optimizer))
    for some_model, some_optimizer in ((model, optimizer), (copied_model, copied_optimizer)):
        compute_gradients(some_model, some_optimizer)
        some_model[2].new_scale.grad = torch.ones(4)
        some_optimizer.step()
    assert not torch.equal(model[2].new_scale, torch.ones(4))
    assert all(map(torch.equal, model.parameters(), copied_model.parameters()))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"lr": -0.1}, "lr must be"),
        ({"lr": float("nan")}, "lr must be"),
        ({"tau": -1.0}, "tau must be"),
        ({"tau": "hot"}, "tau must be a number"),
        ({"epsilon": None}, "epsilon must be a number"),
        ({"word": "BAD"}, "word 'BAD'"),
        ({"kinetic": "both"}, "kinetic must be"),
        ({"method": "Newton"}, "method must be one of"),
        ({"thermostat": "tensor"}, "thermostat cannot be changed"),
    ],
)
def test_a_warm_optimiser_refuses_values_that_cannot_be(values, words):
    model, optimizer = warm_adaptive()
    optimizer.param_groups[0].update(values)
    compute_gradients(model, optimizer)
    with pytest.raises((TypeError, ValueError), match=words):
        optimizer.step()


def test_a_thermostat_that_becomes_unstable_is_warned_of_once():
    model, optimizer = warm_adaptive()
    optimizer.param_groups[0]["epsilon"] = 1e5
    compute_gradients(model, optimizer)
    with pytest.warns(ht.UnstableThermostatWarning, match="at step 5"):
        optimizer.step()
    optimizer.param_groups[0]["epsilon"] = 2e5
    make_steps(model, optimizer, 1)


def calls_within_heatbath(function):
    """Count the calls of Python functions of heatbath that a call makes."""
    root = str(Path(hb.__file__).parent) + os.sep
    calls = 0

    def count(frame, event, _):
        nonlocal calls
        calls += event == "call" and frame.f_code.co_filename.startswith(root)

    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
    return calls


def test_a_warm_step_of_two_layers_makes_at_most_100_calls_and_nothing_is_made_again(monkeypatch):
    model, optimizer = warm_adaptive()
    monkeypatch.setattr("heatbath.torch.optim.step_parts.step_program", None)
    monkeypatch.setattr("heatbath.torch.optim.param_groups.build_method", None)
    counts = []
    for _ in range(16):
        compute_gradients(model, optimizer)
        counts.append(calls_within_heatbath(optimizer.step))
    assert max(counts) <= 100
