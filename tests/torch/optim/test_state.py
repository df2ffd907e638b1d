"""States follow their parameters in type and shape, and half precision has float32 copies."""

import pytest
import torch
from torch import nn

import heatbath as hb
import heatbath.torch as ht
from heatbath.torch.optim.state import StepTensors, gradient_of
from tests.torch.optim.models import TAU, compute_gradients, constant_parameter, make_steps, small_network


@pytest.mark.parametrize(("first", "then"), [("float", "double"), ("double", "float"), ("float", "bfloat16")])
def test_a_model_may_change_its_type(first, then):
    """Momenta follow it; a half-precision model has its float32 copies from then on."""
    model = getattr(small_network(), first)()
    optimizer = ht.AdLaLa(model)
    make_steps(model, optimizer, 3)
    before = optimizer.state[model[0].weight]["momentum"].double().clone()
    getattr(model, then)()
    compute_gradients(model, optimizer)
    optimizer.param_groups[0]["lr"] = optimizer.param_groups[1]["lr"] = 0.0
    optimizer.step()
    state = optimizer.state[model[0].weight]
    assert state["momentum"].dtype == (torch.float64 if then == "double" else torch.float32)
    assert ("copy" in state) == (then == "bfloat16")
    assert (state["momentum"].double() - before).abs().max() < 0.1 * before.abs().max() + 0.1


def test_a_state_of_other_shapes_is_refused():
    small, large = constant_parameter(size=10), constant_parameter(size=1000)
    for one in (small, large):
        one.grad = torch.ones_like(one)
    made = ht.Langevin([small], 0.1, 1.0, TAU)
    made.step()
    other = ht.Langevin([large], 0.1, 1.0, TAU)
    with pytest.raises(ValueError, match=r"has shape \(10,\), and the parameter has \(1000,\)"):
        other.load_state_dict(made.state_dict())
    small.data = torch.zeros(11)
    small.grad = torch.ones(11)
    with pytest.raises(RuntimeError, match=r"has shape \(10,\) and the parameter has \(11,\)"):
        made.step()


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_what_others_write_into_half_precision_parameters_stays(kind):
    model = small_network(kind)
    optimizer = ht.Langevin(model, 1e-3, 1.0, 0.0)
    make_steps(model, optimizer, 1)
    model.load_state_dict({name: torch.zeros_like(value) for name, value in model.state_dict().items()})
    with torch.no_grad():
        model[2].bias.fill_(0.5)
    make_steps(model, optimizer, 1)
    assert model[0].weight.abs().max() < 0.01
    assert model[2].bias.item() == pytest.approx(0.5, abs=0.01)


def test_half_precision_parameters_see_every_gradient_where_they_are():
    """A word with two gradients a step: the second is taken after the first drift."""
    seen = {}
    for kind in (torch.float32, torch.bfloat16):
        parameter = constant_parameter(1.0, 1, kind)
        optimizer = ht.Langevin([parameter], 0.5, 1.0, 0.0, "BAOBA")
        at = seen[kind] = []

        def closure(parameter=parameter, at=at):
            at.append(parameter.item())
            parameter.grad = parameter.detach().clone()
            return 0.0

        optimizer.step(closure)
        optimizer.step(closure)
    assert seen[torch.bfloat16] == pytest.approx(seen[torch.float32], abs=4e-3)
    assert len(set(seen[torch.float32])) == 4


def test_a_float32_state_loaded_into_a_half_precision_model_gets_copies():
    model, half = small_network(), small_network(torch.bfloat16)
    optimizer, loaded = ht.Langevin(model, 1e-3, 1.0, 0.0), ht.Langevin(half, 1e-3, 1.0, 0.0)
    make_steps(model, optimizer, 1)
    loaded.load_state_dict(optimizer.state_dict())
    make_steps(half, loaded, 1)
    assert loaded.state[half[0].weight]["copy"].dtype == torch.float32


def test_lazy_modules_may_come_to_life_after_the_optimiser():
    model = nn.Sequential(nn.LazyLinear(5), nn.Tanh(), nn.Linear(5, 1))
    optimizer = ht.AdLaLa(model)
    assert "? parameters" in repr(optimizer)
    model[2](torch.ones(1, 5)).sum().backward()
    optimizer.step()
    make_steps(model, optimizer, 3)
    assert torch.isfinite(model[0].weight).all()


def test_adam_corrects_its_bias_by_the_steps_of_the_parameter():
    """The first step of a parameter whose gradient comes late is torch's."""
    for fused in (True, False):
        early, late = constant_parameter(), constant_parameter()
        optimizer = ht.Partitioned([{"params": [early, late], "method": hb.Adam()}], 0.01, fused=fused)
        for _ in range(50):
            early.grad = torch.ones(4)
            optimizer.step()
        late.grad = torch.ones(4)
        optimizer.step()
        assert late.detach().numpy() == pytest.approx(-0.01, rel=1e-5)
        assert early.detach().numpy() == pytest.approx(-0.51, rel=1e-4)


def test_tensors_are_divided_by_their_row_of_the_table_and_their_step():
    tensors = [torch.full((2,), float(k)) for k in range(3)]
    unit = StepTensors(None, None, 0.0, 1.0, 0, 7, theta=tensors, rows=[1, 0, 1], steps=[7, 0, 7])
    first, later = unit.split_by_row()
    assert (first.rows, first.steps, [t[0].item() for t in first.theta]) == ([0], [0], [1.0])
    assert (later.rows, later.steps, [t[0].item() for t in later.theta]) == ([1, 1], [7, 7], [0.0, 2.0])
    assert later.split_by_row() == [later]


def test_gradients_of_half_precision_are_stepped_in_float32_and_sparse_ones_refused():
    parameter = torch.nn.Parameter(torch.zeros(3, dtype=torch.bfloat16))
    parameter.grad = torch.ones(3, dtype=torch.bfloat16)
    assert gradient_of(parameter, None).dtype == torch.float32
    parameter.grad = torch.ones(3, dtype=torch.bfloat16).to_sparse()
    with pytest.raises(RuntimeError, match="sparse gradients are not supported"):
        gradient_of(parameter, None)
