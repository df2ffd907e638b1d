"""The optimisers where models change, parameters are skipped, values are set by hand, and things go wrong."""

import copy

import pytest
import torch
from torch import nn

import heatbath as hb
import heatbath.torch as ht
from heatbath.methods.schedules import Linear, SimulatedTempering
from tests.torch.optim.models import TAU, compute_gradients, constant_parameter, make_steps, small_network


@pytest.mark.parametrize("fused", [True, False])
def test_nothing_moves_where_a_scheduler_begins_at_a_stepsize_of_0(fused):
    """That holds with infinite friction, too, where 0 times it would be NaN."""
    model = small_network()
    before = torch.nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    optimizer = ht.LOL(model, lr=0.0, tau_output=TAU, fused=fused)
    make_steps(model, optimizer, 2)
    torch.testing.assert_close(torch.nn.utils.parameters_to_vector(model.parameters()), before)
    for group in optimizer.param_groups:
        group["lr"] = 0.1
    make_steps(model, optimizer, 2)
    after = torch.nn.utils.parameters_to_vector(model.parameters())
    assert torch.isfinite(after).all()
    assert not torch.equal(after, before)


def test_subclasses_of_tensors_are_stepped_in_plain_operations():
    """Their memory is not where `data_ptr` says."""

    class Wrapped(torch.Tensor):
        pass

    optimizer = ht.Langevin([constant_parameter()], 0.1, 1.0, TAU, fused=True)
    (parameter,) = optimizer.param_groups[0]["params"]
    parameter.grad = torch.ones(4).as_subclass(Wrapped)
    with pytest.raises(RuntimeError, match="fused=True needs"):
        optimizer.step()
    optimizer.param_groups[0]["fused"] = None
    optimizer.step()
    assert (parameter != 0).all()


def test_a_parameter_may_be_frozen_between_steps_of_a_word_with_two_gradients():
    model = small_network()
    optimizer = ht.Langevin(model, 0.1, 1.0, TAU, "BAOBA")
    optimizer.step(lambda: compute_gradients(model, optimizer))
    model[0].weight.requires_grad_(False)
    model[0].weight.grad = None
    before = copy.deepcopy(model.state_dict())
    optimizer.step(lambda: compute_gradients(model, optimizer))
    after = model.state_dict()
    assert [torch.equal(after[name], before[name]) for name in before] == [True, False, False, False]


@pytest.mark.parametrize("fused", [True, False])
def test_every_group_has_its_own_seed(fused):
    method = hb.Langevin(1.0, 1.0)
    moved = []
    for seed in (1, 2):
        a, b = constant_parameter(), constant_parameter()
        groups = [{"params": [a], "method": method}, {"params": [b], "method": method, "seed": seed}]
        optimizer = ht.Partitioned(groups, 0.1, seed=0, fused=fused)
        a.grad, b.grad = torch.zeros(4), torch.zeros(4)
        optimizer.step()
        moved.append((a.tolist(), b.tolist()))
    assert moved[0][0] == moved[1][0]
    assert moved[0][1] != moved[1][1]
    for wrong in ({"seed": -3}, {"fused": "yes"}, {"maximize": 1}):
        with pytest.raises((TypeError, ValueError), match=next(iter(wrong))):
            ht.Partitioned([{"params": [constant_parameter()], "method": method, **wrong}], 0.1)


def test_the_state_of_another_kind_of_optimiser_is_refused():
    model = small_network()
    with pytest.raises(ValueError, match="the state of another kind of optimiser"):
        ht.Langevin(model, 0.1, 1.0, TAU).load_state_dict(torch.optim.Adam(model.parameters()).state_dict())


def test_a_step_that_one_group_refuses_moves_no_other():
    a, b = constant_parameter(), nn.Parameter(torch.zeros(3, 4).t())
    method = hb.Langevin(1.0, 1.0)
    groups = [{"params": [a], "method": method}, {"params": [b], "method": method, "fused": True}]
    optimizer = ht.Partitioned(groups, 0.1)
    a.grad, b.grad = torch.ones(4), torch.ones(4, 3)
    with pytest.raises(RuntimeError, match="fused=True needs"):
        optimizer.step()
    assert (a == 0).all()


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("whole", [True, False])
def test_a_compiled_step_has_the_same_results(fused, whole):
    """The step alone, or with the gradient in one function: without warnings, and without compiling again."""
    results = {}
    for compiled in (False, True):
        torch._dynamo.reset()
        model = small_network(torch.float64)
        optimizer = ht.AdLaLa(model, seed=0, fused=fused)

        def training_step(model=model, optimizer=optimizer):
            optimizer.zero_grad()
            model(torch.ones(4, 2, dtype=torch.float64)).square().mean().backward()
            optimizer.step()

        step = training_step if whole else optimizer.step
        step = torch.compile(step, backend="eager") if compiled else step
        for n in range(12):
            if not whole:
                compute_gradients(model, optimizer)
            with torch._dynamo.config.patch(error_on_recompile=n > 2):
                step()
        results[compiled] = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    assert torch.allclose(results[True], results[False], atol=1e-12)


# Closures that raise


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("kind", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("first", [True, False])
def test_a_closure_that_raises_in_mid_step_leaves_everything_as_it_was(kind, fused, first):
    """The step made in its place is the one that would have been made."""
    ladder = SimulatedTempering([1e-3, 1e-2], every=1)
    ends = []
    for broken in (False, True):
        model = small_network(kind)
        fuses = None if kind == torch.bfloat16 else fused
        optimizer = ht.Langevin(model, Linear(0.1, 0.05, 10), 1.0, ladder, "BAOBA", seed=1, fused=fuses)

        def closure(model=model, optimizer=optimizer):
            return compute_gradients(model, optimizer)

        for _ in range(0 if first else 3):
            optimizer.step(closure)
        if first and kind == torch.float64:  # momenta that were set by hand are kept, too
            optimizer.state[model[0].weight]["momentum"] = torch.ones_like(model[0].weight)
        if broken:
            calls = []

            def breaks(calls=calls, closure=closure):
                calls.append(1)
                if len(calls) == 2:
                    raise KeyboardInterrupt
                return closure()

            before = copy.deepcopy((list(model.parameters()), optimizer.state_dict()))
            with pytest.raises(KeyboardInterrupt):
                optimizer.step(breaks)
            after = list(model.parameters()), optimizer.state_dict()
            assert all(map(torch.equal, before[0], after[0]))
            assert before[1]["param_groups"] == after[1]["param_groups"]
            assert before[1]["state"].keys() == after[1]["state"].keys()
            for index, state in before[1]["state"].items():
                assert all(
                    torch.as_tensor(state[key] == after[1]["state"][index][key]).all() for key in state
                )
        for _ in range(3):
            optimizer.step(closure)
        ends.append(torch.nn.utils.parameters_to_vector(model.parameters()).detach())
    assert torch.equal(*ends)


# torch.distributed.checkpoint


MAKERS = {
    "AdLaLa": lambda m, h: ht.AdLaLa(m, lr=h, seed=1),
    "LOL": lambda m, h: ht.LOL(m, lr=h, seed=1, tau_output=1.0),
    "SGLD": lambda m, h: ht.SGLD(m, h, 1.0, seed=1),
    "two gradients": lambda m, h: ht.Langevin(m, h, 1.0, 1.0, "BAOBA", seed=1),
    "tempered": lambda m, h: ht.Langevin(m, h, 1.0, SimulatedTempering([1e-3, 1e-2], every=1), seed=1),
}


@pytest.mark.parametrize("fused", [None, False])
@pytest.mark.parametrize("h", [0.1, Linear(0.1, 0.05, 10)])
@pytest.mark.parametrize("name", MAKERS)
def test_a_state_for_a_checkpoint_before_the_first_step_moves_nothing(name, h, fused):
    """torch makes a step at lr = 0 with gradients of 0 to get such a state.

    It doesn't count for our schedules and noise: the run is that of one without it. Zeros stay zeros.
    """
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict

    model = small_network(torch.float64)
    nn.init.zeros_(model[0].bias)
    before = copy.deepcopy(model.state_dict())
    optimizer = MAKERS[name](model, h)
    for group in optimizer.param_groups:
        group["fused"] = fused
    state = copy.deepcopy(get_optimizer_state_dict(model, optimizer))
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    optimizer.step(lambda: compute_gradients(model, optimizer))
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1)
    assert optimizer.param_groups[0]["step"] == 1
    assert not torch.equal(model[0].weight, before["0.weight"])
    end = copy.deepcopy(model.state_dict())
    model.load_state_dict(before)
    resumed = MAKERS[name](model, h)
    set_optimizer_state_dict(model, resumed, state)
    resumed.step(lambda: compute_gradients(model, resumed))
    assert all(torch.equal(value, end[key]) for key, value in model.state_dict().items())
    model.load_state_dict(before)
    never = MAKERS[name](model, h)
    for group in never.param_groups:
        group["fused"] = fused
    never.step(lambda: compute_gradients(model, never))
    assert all(torch.equal(value, end[key]) for key, value in model.state_dict().items())


@pytest.mark.parametrize("gradient", [0.0, 1.0])
def test_steps_at_0_that_are_no_preparation_count(gradient):
    """Those of a schedule that begins at 0, with any gradient, and those of others with some."""
    parameter = constant_parameter()
    optimizer = ht.Langevin([parameter], Linear(0.0, 0.1, 4), 1.0, TAU)
    other = ht.Langevin([parameter], 0.0, 1.0, TAU)
    for _ in range(2):
        parameter.grad = torch.full((4,), gradient)
        optimizer.step()
        other.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.025)
    assert other.param_groups[0]["step"] == (2 if gradient else 0)
