"""The loss of torch modules on lines and surfaces."""

import os
import signal

import numpy as np
import pytest
import torch

from heatbath.analysis.landscape import line, surface
from heatbath.torch.landscape import line_torch, surface_torch
from tests.analysis.landscape.losses import ALPHAS, BETAS, thetas
from tests.runs import SMALL, SPIRALS

X = torch.linspace(-1, 1, 60, dtype=torch.float64).reshape(20, 3)


def model_of(theta, problem, network):
    return network.to_torch(theta, problem.inputs, problem.outputs)


@pytest.mark.parametrize(("kind", "error"), [(np.float64, 1e-12), (np.float32, 1e-5)])
def test_a_torch_module_has_the_losses_of_the_same_dense_network(kind, error):
    start, a, b = thetas(SPIRALS, SMALL, 3, kind)
    x, y = (torch.as_tensor(v[0].astype(kind)) for v in (SPIRALS.X_test, SPIRALS.Y_test))

    def loss_function(model):
        return torch.nn.functional.binary_cross_entropy_with_logits(model(x), y)

    states = [model_of(theta, SPIRALS, SMALL).state_dict() for theta in (start, a, b)]
    model = model_of(start, SPIRALS, SMALL)
    told = line_torch(model, loss_function, *states[:2], ALPHAS)
    own = line(SPIRALS, SMALL, start, a, ALPHAS)
    np.testing.assert_allclose(told["loss"], own["loss"], rtol=error)
    assert told["loss"].dims == ("alpha",)
    told = surface_torch(model, loss_function, *states, ALPHAS, BETAS)
    own = surface(SPIRALS, SMALL, start, a, b, ALPHAS, BETAS)
    np.testing.assert_allclose(told["loss"], own["loss"], rtol=error)
    assert told["loss"].coords.identical(own["loss"].coords)


class Tied(torch.nn.Module):
    """A model of layers with one weight, a recurrent one, a BatchNorm and a buffer outside the state."""

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
        self.second.weight = self.first.weight
        self.recurrent = torch.nn.LSTM(3, 3, batch_first=True)
        self.norm = torch.nn.BatchNorm1d(3)
        self.register_buffer("calls", torch.zeros(1), persistent=False)

    def forward(self, x):
        self.calls = self.calls + 1
        return self.recurrent(self.norm(self.second(torch.tanh(self.first(x)))))[0]


def tied(seed):
    torch.manual_seed(seed)
    model = Tied().double()
    model(2 * X + seed)  # so that its statistics are its own
    return model


def squares(model):
    return model(X).square().sum()


def test_only_parameters_are_mixed_and_buffers_are_those_of_the_first_state():
    a, b = tied(1), tied(2)
    model = tied(3).eval()
    told = line_torch(model, squares, a.state_dict(), b.state_dict(), [0, 0.3, 1])["loss"]
    for alpha in (0, 0.3, 1):
        mixture = tied(4).eval()
        mixture.load_state_dict(a.state_dict())  # with its buffers
        with torch.no_grad():
            for p, one, two in zip(*(m.parameters() for m in (mixture, a, b)), strict=True):
                p.copy_((1 - alpha) * one + alpha * two)
            assert float(told.sel(alpha=alpha)) == pytest.approx(squares(mixture).item(), rel=1e-12)
    parameters = [dict(m.named_parameters()) for m in (a, b)]
    own = line_torch(model, squares, *parameters, [0, 0.3, 1])["loss"]  # no buffers: the model's own
    model.load_state_dict(parameters[0], strict=False)
    assert float(own.sel(alpha=0)) == squares(model).item() != float(told.sel(alpha=0))


def test_shared_buffers_stay_shared_at_every_point():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2), torch.nn.BatchNorm1d(2))
    model[2].running_mean = model[1].running_mean
    shared = model[1].running_mean
    seen = []

    def loss_function(model):
        assert model[2].running_mean is model[1].running_mean is not shared
        seen.append(model[2].running_mean)
        return 0.0

    line_torch(model, loss_function, model.state_dict(), model.state_dict(), [0, 1])
    assert model[2].running_mean is model[1].running_mean is shared
    assert len(seen) == 2


def test_half_precision_is_rounded_once():
    torch.manual_seed(0)
    model = torch.nn.Linear(1000, 1).to(torch.bfloat16)
    states = [{name: torch.randn_like(v) for name, v in model.state_dict().items()} for _ in range(2)]
    seen = []

    def loss_function(model):
        seen.append(model.weight.clone())
        return 0.0

    line_torch(model, loss_function, *states, [0.37])
    one, two = (state["weight"].double() for state in states)
    assert (seen[0] == (0.63 * one + 0.37 * two).bfloat16()).float().mean() > 0.999


def full_state(model):
    """Return all that must be restored: the tensors themselves, their addresses, and their values."""
    tensors = [*model.parameters(), *model.buffers()]
    return (
        [(id(t), t.data_ptr(), t.requires_grad, id(t.grad)) for t in tensors],
        [t.tolist() for t in tensors],
        [None if t.grad is None else t.grad.tolist() for t in tensors],
        [module.training for module in model.modules()],
    )


def meddling_loss(model):
    """Change all that a loss function can change, and return the loss."""
    model.train()
    model(3 * X)
    model.norm.eval()
    with torch.enable_grad():
        loss = squares(model)
        loss.backward()
    model.first.bias.add_(1.0)
    model.first.bias.requires_grad_(False)
    model.norm.running_mean.fill_(7.0)
    return loss


class Stop(Exception):
    pass


@pytest.mark.parametrize("ending", [None, Stop, KeyboardInterrupt])
def test_the_model_is_restored_whatever_happens(ending):
    a, b, model = tied(1), tied(2), tied(3)
    model.recurrent.eval()
    squares(model).backward()
    model.first.bias.grad = None
    model.second.bias.requires_grad_(False)
    states = [a.state_dict(), b.state_dict()]
    kept = [{name: v.clone() for name, v in state.items()} for state in states]
    before = full_state(model)
    calls = []

    def loss_function(given):
        loss = meddling_loss(given)
        calls.append(loss.item())
        if len(calls) == 4 and ending:
            raise ending
        return loss

    if ending:
        with pytest.raises(ending):
            line_torch(model, loss_function, *states, ALPHAS)
    else:
        line_torch(model, loss_function, *states, ALPHAS)
    assert full_state(model) == before
    for state, values in zip(states, kept, strict=True):
        assert all(torch.equal(state[name], values[name]) for name in values)


def test_an_existing_graph_is_not_invalidated():
    model = tied(3)
    pending = squares(model)
    versions = [t._version for t in (*model.parameters(), *model.buffers())]
    line_torch(model, squares, tied(1).state_dict(), tied(2).state_dict(), ALPHAS)
    assert [t._version for t in (*model.parameters(), *model.buffers())] == versions
    pending.backward()
    again = tied(3)
    squares(again).backward()
    assert all(
        torch.equal(p.grad, q.grad) for p, q in zip(model.parameters(), again.parameters(), strict=True)
    )


def test_a_model_may_be_its_own_end():
    model, other = tied(1).eval(), tied(2)
    before = full_state(model)
    told = line_torch(model, squares, model.state_dict(), other.state_dict(), [0, 1])["loss"]
    assert float(told[0]) == squares(model).item()
    model.calls = tied(1).calls
    assert full_state(model)[1] == before[1]


def test_no_point_depends_on_what_the_loss_did_at_another():
    a, b, model = tied(1), tied(2), tied(3)
    states = a.state_dict(), b.state_dict()
    told = line_torch(model, meddling_loss, *states, ALPHAS)["loss"]
    alone = [line_torch(model, meddling_loss, *states, [alpha])["loss"].item() for alpha in ALPHAS]
    assert told.values.tolist() == alone


def test_no_graph_is_made():
    made = []

    def loss_function(model):
        made.append(squares(model))
        return made[-1]

    line_torch(tied(0), loss_function, tied(1).state_dict(), tied(2).state_dict(), ALPHAS)
    assert len(made) == len(ALPHAS)
    assert not any(loss.requires_grad for loss in made)


class Pressing(torch.nn.Linear):
    """A module that presses Ctrl-C in the middle of being restored."""

    armed = False

    def __setattr__(self, name, value):
        if name == "training" and Pressing.armed:
            Pressing.armed = False
            os.kill(os.getpid(), signal.SIGINT)
        super().__setattr__(name, value)


def test_ctrl_c_while_the_model_is_restored_waits_for_it():
    model = torch.nn.Sequential(Pressing(2, 2), torch.nn.Dropout())
    states = [{name: torch.randn_like(v) for name, v in model.state_dict().items()} for _ in range(2)]
    before = full_state(model)
    points = []

    def loss_function(model):
        points.append(1)
        model[1].training = False
        Pressing.armed = len(points) == 2
        return 0.0

    with pytest.raises(KeyboardInterrupt):
        line_torch(model, loss_function, *states, ALPHAS)
    assert len(points) == 2
    assert full_state(model) == before


def test_wrong_states_and_losses_are_refused():
    model, state = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1).state_dict()
    for wrong, what in (
        ({"weight": state["weight"]}, r"state_b is not a state of this model: it lacks \['bias'\]"),
        ({**state, "other": state["bias"]}, r"\['other'\] are not in the model"),
        ({**state, "bias": torch.zeros(2)}, r"\['bias'\] are not in the model or have another shape"),
        ({**state, "bias": None}, r"it lacks \['bias'\]"),
    ):
        with pytest.raises(ValueError, match=what):
            line_torch(model, squares, state, wrong, ALPHAS)
    with pytest.raises(TypeError, match="state_a must be a state_dict, names with tensors, got Linear"):
        surface_torch(model, squares, state, model, state, ALPHAS, BETAS)
    with pytest.raises(TypeError, match="a torch module and a function of it are needed"):
        line_torch(state, squares, state, state, ALPHAS)
    for loss in (torch.zeros(3), None, "x"):
        with pytest.raises(TypeError, match="loss_function must return one number"):
            line_torch(model, lambda model, loss=loss: loss, state, state, ALPHAS)
