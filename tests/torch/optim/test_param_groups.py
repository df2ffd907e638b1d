"""Values of param groups: given beside a method, changed by hand or by schedulers, or refused."""

import copy

import pytest
import torch

import heatbath as hb
import heatbath.torch as ht
from heatbath.methods.schedules import Linear
from heatbath.torch.optim.param_groups import fill_missing_keys, group_of_chain, read_values
from tests.torch.optim.models import TAU, constant_parameter, make_steps, small_network


def test_a_group_may_have_coefficients_of_its_own():
    decayed, plain = constant_parameter(), constant_parameter()
    groups = [{"params": [decayed], "weight_decay": 0.5, "tau": 7.0, "word": "OBA"}, {"params": [plain]}]
    optimizer = ht.Langevin(groups, lr=0.1, gamma=1.0, tau=TAU)
    first, second = optimizer.param_groups
    assert [first[k] for k in ("weight_decay", "tau", "gamma", "word")] == [0.5, 7.0, 1.0, "OBA"]
    assert [second[k] for k in ("weight_decay", "tau", "gamma", "word")] == [0.0, TAU, 1.0, "BAOAB"]
    with pytest.raises(ValueError, match="tau must be >= 0"):
        ht.Langevin([{"params": [constant_parameter()], "tau": -1.0}], lr=0.1, gamma=1.0, tau=TAU)


def test_at_lr_zero_nothing_moves():
    """Schedulers that begin or end at 0 work; the step under way is closed."""
    model = small_network(torch.float64)
    optimizer = ht.AdLaLa(model)
    warm_up = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: min(1.0, epoch / 3))
    before = copy.deepcopy(model.state_dict())
    make_steps(model, optimizer, 1)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    for _ in range(5):
        warm_up.step()
        make_steps(model, optimizer, 1)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 3)
    for _ in range(3):
        cosine.step()
        make_steps(model, optimizer, 1)
    assert optimizer.param_groups[0]["lr"] == 0
    before = copy.deepcopy(model.state_dict())
    make_steps(model, optimizer, 3)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not torch.equal(model[0].weight, small_network(torch.float64)[0].weight)


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("method", "AdaptiveLangevin", "cannot be changed to 'AdaptiveLangevin'"),
        ("method", "SGD", "cannot be changed to 'SGD'"),
        ("method", hb.Langevin(1.0, 1.0), "a group's method must be one of"),
        ("tau", "hot", "tau must be a number, got 'hot'"),
        ("tau", Linear(1.0, 0.5, 10), "put it into group"),
        ("tau", -1.0, "tau must be >= 0"),
        ("lr", -0.1, "lr must be >= 0"),
        ("word", "BAX", "X"),
    ],
)
def test_what_cannot_be_set_in_a_group_is_refused_and_nothing_moves(name, value, told):
    model = small_network()
    optimizer = ht.Langevin(model, 0.1, 1.0, TAU)
    make_steps(model, optimizer, 2)
    before = copy.deepcopy(model.state_dict())
    optimizer.param_groups[0][name] = value
    with pytest.raises((TypeError, ValueError), match=told):
        make_steps(model, optimizer, 1)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


@pytest.mark.parametrize("name", ["lr", "gamma"])
def test_a_value_that_was_deleted_is_named(name):
    model = small_network()
    optimizer = ht.Langevin(model, 0.1, 1.0, TAU)
    make_steps(model, optimizer, 1)
    del optimizer.param_groups[0][name]
    with pytest.raises(ValueError, match=f"a group has no {name}, which Langevin needs: put back"):
        make_steps(model, optimizer, 1)


@pytest.mark.parametrize(("before", "after"), [("part", "tensor"), ("tensor", "part")])
def test_the_thermostat_cannot_be_changed(before, after):
    model = small_network()
    optimizer = ht.AdaptiveLangevin(model, 0.1, TAU, 0.01, 0.1, thermostat=before)
    make_steps(model, optimizer, 1)
    optimizer.param_groups[0]["thermostat"] = after
    with pytest.raises(ValueError, match=f"thermostat cannot be changed to '{after}'"):
        make_steps(model, optimizer, 1)


def test_a_schedule_that_is_at_0_goes_on():
    """The control: a stepsize of 0 that is the schedule's own does not stop it."""
    parameter = constant_parameter()
    optimizer = ht.Langevin([parameter], hb.schedules.Piecewise([0.1, 0.0, 0.1], [1, 2]), 1.0, TAU)
    moved = []
    for _ in range(3):
        before = parameter.detach().clone()
        parameter.grad = torch.ones(4)
        optimizer.step()
        moved.append(not torch.equal(before, parameter))
    assert moved == [True, False, True]


def test_a_chain_sees_its_entries_of_lists_over_chains():
    group = {"chains": 2, "xi": [0.1, 0.2], "noise": [3.0, 4.0], "previous": [[1.0], [2.0]], "tau": 0.5}
    seen = group_of_chain(group, 1)
    assert (seen["xi"], seen["noise"], seen["previous"], seen["tau"]) == (0.2, 4.0, [2.0], 0.5)
    alone = {"chains": None, "xi": [0.1, 0.2]}
    assert group_of_chain(alone, 0) is alone


def test_a_coefficient_that_a_saved_group_lacks_is_filled_in_also_among_those_of_the_last_step():
    group = {"method": "Langevin", "gamma": 2.0, "tau": 0.5, "lr": 0.1, "previous": [0.1, 2.0, 0.5]}
    fill_missing_keys(group)
    assert (group["word"], group["weight_decay"], group["chains"]) == ("BAOAB", 0.0, None)
    assert group["previous"] == [0.1, 2.0, 0.5, 0.0]


def test_a_stepsize_of_0_is_read_as_a_standstill():
    group = ht.Langevin([constant_parameter()], 0.1, 1.0, TAU).param_groups[0]
    group["lr"] = 0.0
    values = read_values(group)
    assert 0 < values.by_name(values.current)["lr"] < 1e-200
    assert values.by_name(values.current)["tau"] == TAU
