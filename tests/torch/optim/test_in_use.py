"""The optimisers where models change, parameters are skipped, values are set by hand, and things go wrong."""

import copy
import math
import warnings

import numpy as np
import pytest
import torch
from torch import nn

import heatbath as hb
import heatbath.torch as ht
from heatbath.methods.schedules import Linear, SimulatedTempering
from heatbath.torch.optim import torch_step
from heatbath.torch.optim.sharding import Shard
from tests.torch.optim.test_seeds import BLOCKS

TAU = 1e-3


def network(kind=torch.float32, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(2, 20), nn.Tanh(), nn.Linear(20, 1)).to(kind)


def backward(model, optimizer):
    optimizer.zero_grad()
    kind = next(model.parameters()).dtype
    loss = model(torch.ones(4, 2, dtype=kind)).square().mean()
    loss.backward()
    return loss


def steps(model, optimizer, count):
    for _ in range(count):
        backward(model, optimizer)
        optimizer.step()


def single(value=0.0, size=4, kind=torch.float32):
    return nn.Parameter(torch.full((size,), value, dtype=kind))


# Models that change under the optimiser


@pytest.mark.parametrize(("first", "then"), [("float", "double"), ("double", "float"), ("float", "bfloat16")])
def test_a_model_may_change_its_type(first, then):
    """Momenta follow it; a half-precision model has its float32 copies from then on."""
    model = getattr(network(), first)()
    optimizer = ht.AdLaLa(model)
    steps(model, optimizer, 3)
    before = optimizer.state[model[0].weight]["momentum"].double().clone()
    getattr(model, then)()
    backward(model, optimizer)
    optimizer.param_groups[0]["lr"] = optimizer.param_groups[1]["lr"] = 0.0
    optimizer.step()
    state = optimizer.state[model[0].weight]
    assert state["momentum"].dtype == (torch.float64 if then == "double" else torch.float32)
    assert ("copy" in state) == (then == "bfloat16")
    assert (state["momentum"].double() - before).abs().max() < 0.1 * before.abs().max() + 0.1


@pytest.mark.parametrize("fused", [True, False])
def test_nothing_moves_where_a_scheduler_begins_at_a_stepsize_of_0(fused):
    """Also with infinite friction, where 0 times it would be NaN."""
    model = network()
    before = torch.nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    optimizer = ht.LOL(model, lr=0.0, tau_output=TAU, fused=fused)
    steps(model, optimizer, 2)
    torch.testing.assert_close(torch.nn.utils.parameters_to_vector(model.parameters()), before)
    for group in optimizer.param_groups:
        group["lr"] = 0.1
    steps(model, optimizer, 2)
    after = torch.nn.utils.parameters_to_vector(model.parameters())
    assert torch.isfinite(after).all()
    assert not torch.equal(after, before)


def test_a_state_of_other_shapes_is_refused():
    small, large = single(size=10), single(size=1000)
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


def test_subclasses_of_tensors_are_stepped_in_plain_operations():
    """Their memory is not where `data_ptr` says."""

    class Wrapped(torch.Tensor):
        pass

    optimizer = ht.Langevin([single()], 0.1, 1.0, TAU, fused=True)
    (parameter,) = optimizer.param_groups[0]["params"]
    parameter.grad = torch.ones(4).as_subclass(Wrapped)
    with pytest.raises(RuntimeError, match="fused=True needs"):
        optimizer.step()
    optimizer.param_groups[0]["fused"] = None
    optimizer.step()
    assert (parameter != 0).all()


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_what_others_write_into_half_precision_parameters_stays(kind):
    model = network(kind)
    optimizer = ht.Langevin(model, 1e-3, 1.0, 0.0)
    steps(model, optimizer, 1)
    model.load_state_dict({name: torch.zeros_like(value) for name, value in model.state_dict().items()})
    with torch.no_grad():
        model[2].bias.fill_(0.5)
    steps(model, optimizer, 1)
    assert model[0].weight.abs().max() < 0.01
    assert model[2].bias.item() == pytest.approx(0.5, abs=0.01)


def test_half_precision_parameters_see_every_gradient_where_they_are():
    """A word with two gradients a step: the second is taken after the first drift."""
    seen = {}
    for kind in (torch.float32, torch.bfloat16):
        parameter = single(1.0, 1, kind)
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
    model, half = network(), network(torch.bfloat16)
    optimizer, loaded = ht.Langevin(model, 1e-3, 1.0, 0.0), ht.Langevin(half, 1e-3, 1.0, 0.0)
    steps(model, optimizer, 1)
    loaded.load_state_dict(optimizer.state_dict())
    steps(half, loaded, 1)
    assert loaded.state[half[0].weight]["copy"].dtype == torch.float32


def test_lazy_modules_may_come_to_life_after_the_optimiser():
    model = nn.Sequential(nn.LazyLinear(5), nn.Tanh(), nn.Linear(5, 1))
    optimizer = ht.AdLaLa(model)
    assert "? parameters" in repr(optimizer)
    model[2](torch.ones(1, 5)).sum().backward()
    optimizer.step()
    steps(model, optimizer, 3)
    assert torch.isfinite(model[0].weight).all()


# Parameters that are skipped or frozen


def test_adam_corrects_its_bias_by_the_steps_of_the_parameter():
    """The first step of a parameter whose gradient comes late is torch's."""
    for fused in (True, False):
        early, late = single(), single()
        optimizer = ht.Partitioned([{"params": [early, late], "method": hb.Adam()}], 0.01, fused=fused)
        for _ in range(50):
            early.grad = torch.ones(4)
            optimizer.step()
        late.grad = torch.ones(4)
        optimizer.step()
        assert late.detach().numpy() == pytest.approx(-0.01, rel=1e-5)
        assert early.detach().numpy() == pytest.approx(-0.51, rel=1e-4)


def test_a_parameter_may_be_frozen_between_steps_of_a_word_with_two_gradients():
    model = network()
    optimizer = ht.Langevin(model, 0.1, 1.0, TAU, "BAOBA")
    optimizer.step(lambda: backward(model, optimizer))
    model[0].weight.requires_grad_(False)
    model[0].weight.grad = None
    before = copy.deepcopy(model.state_dict())
    optimizer.step(lambda: backward(model, optimizer))
    after = model.state_dict()
    assert [torch.equal(after[name], before[name]) for name in before] == [True, False, False, False]


# Coefficients of groups


def test_a_group_may_have_coefficients_of_its_own():
    decayed, plain = single(), single()
    groups = [{"params": [decayed], "weight_decay": 0.5, "tau": 7.0, "word": "OBA"}, {"params": [plain]}]
    optimizer = ht.Langevin(groups, lr=0.1, gamma=1.0, tau=TAU)
    first, second = optimizer.param_groups
    assert [first[k] for k in ("weight_decay", "tau", "gamma", "word")] == [0.5, 7.0, 1.0, "OBA"]
    assert [second[k] for k in ("weight_decay", "tau", "gamma", "word")] == [0.0, TAU, 1.0, "BAOAB"]
    with pytest.raises(ValueError, match="tau must be >= 0"):
        ht.Langevin([{"params": [single()], "tau": -1.0}], lr=0.1, gamma=1.0, tau=TAU)


def test_a_group_may_be_added_without_a_method():
    """It has that of the others, as it is by then."""
    optimizer = ht.Langevin([single()], 0.1, gamma=1.0, tau=Linear(1.0, 0.5, 10))
    optimizer.param_groups[0]["gamma"] = 3.0
    optimizer.add_param_group({"params": [single()], "lr": 0.01})
    first, added = optimizer.param_groups
    assert (added["gamma"], added["lr"], added["schedules"]["tau"]) == (3.0, 0.01, first["schedules"]["tau"])
    optimizer.add_param_group({"params": [single()], "tau": 0.25})
    added = optimizer.param_groups[-1]
    assert (added["gamma"], added["tau"], added["schedules"]) == (3.0, 0.25, {})
    layered = ht.AdLaLa(network(), epsilon=0.2)
    layered.add_param_group({"params": [single()], "part": "hidden", "tau": 0.5})
    added = layered.param_groups[-1]
    assert (added["method"], added["epsilon"], added["tau"]) == ("AdaptiveLangevin", 0.2, 0.5)
    with pytest.raises(ValueError, match='a group needs a "part"'):
        layered.add_param_group({"params": [single()]})
    with pytest.raises(ValueError, match='every group needs "params" and a "method"'):
        ht.Partitioned([{"params": [single()], "method": hb.SGD()}], 0.1).add_param_group(
            {"params": [single()]}
        )


def test_a_tempered_group_shows_the_temperature_of_its_rung():
    parameter = single()
    optimizer = ht.Langevin([parameter], 0.1, 1.0, SimulatedTempering([0.1, 0.2, 0.4], every=100))
    (group,) = optimizer.param_groups

    def closure():
        parameter.grad = torch.zeros(4)
        return torch.tensor(1.0)

    for rung, tau in ((0, 0.1), (2, 0.4), (1, 0.2)):
        group["rung"] = rung
        optimizer.step(closure)
        assert (group["rung"], group["tau"]) == (rung, tau)


@pytest.mark.parametrize("fused", [True, False])
def test_every_group_has_its_own_seed(fused):
    method = hb.Langevin(1.0, 1.0)
    moved = []
    for seed in (1, 2):
        a, b = single(), single()
        groups = [{"params": [a], "method": method}, {"params": [b], "method": method, "seed": seed}]
        optimizer = ht.Partitioned(groups, 0.1, seed=0, fused=fused)
        a.grad, b.grad = torch.zeros(4), torch.zeros(4)
        optimizer.step()
        moved.append((a.tolist(), b.tolist()))
    assert moved[0][0] == moved[1][0]
    assert moved[0][1] != moved[1][1]
    for wrong in ({"seed": -3}, {"fused": "yes"}, {"maximize": 1}):
        with pytest.raises((TypeError, ValueError), match=next(iter(wrong))):
            ht.Partitioned([{"params": [single()], "method": method, **wrong}], 0.1)


def test_at_lr_zero_nothing_moves():
    """Schedulers that begin or end at 0 work; the step under way is closed."""
    model = network(torch.float64)
    optimizer = ht.AdLaLa(model)
    warm_up = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: min(1.0, epoch / 3))
    before = copy.deepcopy(model.state_dict())
    steps(model, optimizer, 1)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    for _ in range(5):
        warm_up.step()
        steps(model, optimizer, 1)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 3)
    for _ in range(3):
        cosine.step()
        steps(model, optimizer, 1)
    assert optimizer.param_groups[0]["lr"] == 0
    before = copy.deepcopy(model.state_dict())
    steps(model, optimizer, 3)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not torch.equal(model[0].weight, network(torch.float64)[0].weight)


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
    model = network()
    optimizer = ht.Langevin(model, 0.1, 1.0, TAU)
    steps(model, optimizer, 2)
    before = copy.deepcopy(model.state_dict())
    optimizer.param_groups[0][name] = value
    with pytest.raises((TypeError, ValueError), match=told):
        steps(model, optimizer, 1)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


@pytest.mark.parametrize(("before", "after"), [("part", "tensor"), ("tensor", "part")])
def test_the_thermostat_cannot_be_changed(before, after):
    model = network()
    optimizer = ht.AdaptiveLangevin(model, 0.1, TAU, 0.01, 0.1, thermostat=before)
    steps(model, optimizer, 1)
    optimizer.param_groups[0]["thermostat"] = after
    with pytest.raises(ValueError, match=f"thermostat cannot be changed to '{after}'"):
        steps(model, optimizer, 1)


def test_the_state_of_another_kind_of_optimiser_is_refused():
    model = network()
    with pytest.raises(ValueError, match="the state of another kind of optimiser"):
        ht.Langevin(model, 0.1, 1.0, TAU).load_state_dict(torch.optim.Adam(model.parameters()).state_dict())


def test_a_step_that_one_group_refuses_moves_no_other():
    a, b = single(), nn.Parameter(torch.zeros(3, 4).t())
    method = hb.Langevin(1.0, 1.0)
    groups = [{"params": [a], "method": method}, {"params": [b], "method": method, "fused": True}]
    optimizer = ht.Partitioned(groups, 0.1)
    a.grad, b.grad = torch.ones(4), torch.ones(4, 3)
    with pytest.raises(RuntimeError, match="fused=True needs"):
        optimizer.step()
    assert (a == 0).all()


# Tempering


def test_minimising_and_maximising_are_tempered_alike():
    """Maximising -L is minimising L: the same rungs."""
    rungs = []
    for sign, maximize in ((1, False), (-1, True)):
        parameter = single(1.0)
        ladder = SimulatedTempering([1.0, 2.0], every=1)
        optimizer = ht.Langevin([parameter], 0.1, 1.0, ladder, seed=0, maximize=maximize)

        def closure(sign=sign, parameter=parameter):
            parameter.grad = sign * torch.ones(4)
            return sign * 3.0

        seen = rungs.append([]) or rungs[-1]
        for _ in range(40):
            optimizer.step(closure)
            seen.append(optimizer.param_groups[0]["rung"])
    assert rungs[0] == rungs[1]
    assert 0 < sum(rungs[0]) < 40


def test_tempering_is_refused_early_where_it_cannot_work():
    model = network()
    ladder = SimulatedTempering([1e-3, 1e-2], every=100)
    optimizer = ht.Langevin(model, 0.1, 1.0, ladder)
    with pytest.raises(RuntimeError, match="a closure that returns the loss of all data, got None"):
        optimizer.step(lambda: None)
    other = SimulatedTempering([1e-3, 1e-2, 1e-1], every=100)
    with pytest.raises(ValueError, match="all tempered groups must have the same ladder"):
        ht.Partitioned(
            [
                {"params": model[0].parameters(), "method": hb.Langevin(1.0, ladder)},
                {"params": model[2].parameters(), "method": hb.Langevin(1.0, other)},
            ],
            0.1,
        )


# What is observed


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_a_divergence_shows_in_the_temperature_and_in_xi(fused, wrong):
    a, b = single(1.0), single(1.0, 40_000)
    optimizer = ht.AdaptiveLangevin([a, b], 0.1, TAU, 0.01, 0.1, fused=fused)
    for _ in range(3):
        a.grad, b.grad = torch.ones(4), torch.ones(40_000)
        b.grad[100] = wrong
        optimizer.step()
    assert not math.isfinite(optimizer.param_groups[0]["xi"])
    (temperature,) = optimizer.temperature().values()
    assert not math.isfinite(temperature.value)


def test_every_part_has_a_label_of_its_own():
    model = network()
    first, *others = model.parameters()
    groups = [
        {"params": [first], "part": "hidden"},
        {"params": others[:1], "part": "hidden"},
        {"params": others[1:], "part": "output"},
    ]
    optimizer = ht.AdLaLa(groups)
    steps(model, optimizer, 1)
    assert list(optimizer.temperature()) == ["hidden (0)", "hidden (1)", "output (2)"]
    body, head = nn.Sequential(nn.Linear(2, 3), nn.Tanh()), nn.Sequential(nn.Linear(3, 1))
    optimizer = ht.AdLaLa(hidden=body, output=head)
    steps(nn.Sequential(body, head), optimizer, 1)
    assert list(optimizer.temperature()) == ["hidden: 0", "output: 0"]


def test_means_are_of_the_coefficients_at_each_step():
    """Friction on a schedule is averaged, and the noise found does not depend on the stepsize of the end."""
    parameter = single()
    optimizer = ht.Langevin([parameter], 0.1, Linear(10.0, 0.0, 100), TAU)
    for _ in range(100):
        parameter.grad = torch.zeros(4)
        optimizer.step()
    (friction,) = optimizer.friction().values()
    assert friction.value == pytest.approx(5.05)
    parameter, rng = single(size=1000), np.random.default_rng(0)
    optimizer = ht.AdaptiveLangevin([parameter], 0.2, 0.5, 0.1, 0.01)
    for n in range(8000):
        if n == 2000:
            optimizer.forget_past()
        if n == 5000:
            optimizer.param_groups[0]["lr"] = 0.05
        noise = torch.from_numpy(2.0 * rng.standard_normal(1000, np.float32))
        parameter.grad = parameter.detach() + noise
        optimizer.step()
    (found,) = optimizer.gradient_noise().values()
    assert found.value == pytest.approx(4.0, rel=0.1)


def test_the_friction_of_a_part_with_several_thermostats_is_the_mean_over_its_parameters():
    one, many = single(size=2), single(size=100)
    optimizer = ht.AdaptiveLangevin([one, many], 0.1, 0.5, 0.1, 0.3, thermostat="tensor")
    optimizer.state[many]["momentum"] = torch.ones(100)
    for parameter in (one, many):
        parameter.grad = torch.full_like(parameter, 2.0)
    optimizer.step()
    xi = optimizer.param_groups[0]["xi"]
    assert abs(xi[0] - xi[1]) > 0.1
    (friction,) = optimizer.friction().values()
    assert friction.value == pytest.approx((2 * xi[0] + 100 * xi[1]) / 102)


def test_infinite_friction_is_reported():
    model = network()
    optimizer = ht.LOL(model)
    steps(model, optimizer, 3)
    assert list(optimizer.friction().values())[1].value == math.inf


# Layers


def test_parametrised_layers_stay_whole():
    norm = torch.nn.utils.parametrizations.weight_norm
    model = nn.Sequential(norm(nn.Linear(2, 4)), nn.Tanh(), norm(nn.Linear(4, 1)))
    for given in (model, list(model.named_parameters())):
        optimizer = ht.AdLaLa(given)
        assert [(g["part"], g["name"], len(g["params"])) for g in optimizer.param_groups] == [
            ("hidden", "0", 3),
            ("output", "2", 3),
        ]


def test_an_output_layer_that_cannot_be_meant_is_refused():
    model = nn.Sequential(nn.Linear(2, 4), nn.LayerNorm(4))
    with pytest.raises(ValueError, match="has only vectors"):
        ht.AdLaLa(model.named_parameters())
    with pytest.raises(ValueError, match="nothing is left for the hidden layers"):
        ht.AdLaLa(model, output=model)
    with pytest.raises(ValueError, match="has parameters that the model doesn't have"):
        ht.AdLaLa(model, output=nn.Linear(1, 1))


# Noise of the plain way


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_the_plain_way_has_the_numbers_of_the_definition(kind):
    """So that no two addresses share any. Of tensors of any layout, over the edges of tiles and pieces."""
    like = [torch.empty(5, 4000, dtype=kind).T, torch.empty(7, dtype=kind)]
    found = torch_step.draw_normals(like, 5, 2**32 + 7, 3, [9, 20_009], 6)
    assert [numbers.shape for numbers in found] == [tensor.shape for tensor in like]
    flat = np.concatenate([numbers.numpy().ravel() for numbers in found])
    expected = hb.noise.normals(5, hb.noise.NOISE, 3, 6, 2**32 + 7, 9, 20_016)
    np.testing.assert_allclose(flat, expected, rtol=0, atol=1e-6 if kind == torch.float32 else 1e-13)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_both_ways_and_all_layouts_take_the_same_path(kind):
    """In float32 within rounding; of half precision the float32 copies."""
    ends = []
    for fused, order in ((None, "C"), (False, "C"), (False, "F")):
        theta = torch.zeros(30, 40, dtype=kind)
        parameter = nn.Parameter(theta if order == "C" else theta.T.contiguous().T)
        optimizer = ht.AdaptiveLangevin([parameter], 0.1, 0.3, 0.2, 0.1, "BAFEFAB", seed=3, fused=fused)
        for _ in range(5):
            parameter.grad = 0.5 * parameter.detach()
            optimizer.step()
        ends.append(optimizer.state[parameter].get("copy", parameter).detach().contiguous())
    assert ends[0].abs().max() > 0.1
    for other in ends[1:]:
        torch.testing.assert_close(other, ends[0], rtol=0, atol=2e-3 if kind == torch.bfloat16 else 1e-6)


def test_the_keys_of_generators_on_other_devices_never_coincide():
    """Steps and chunks of one use have different keys, whatever the base; steps return after 2^26."""
    places = [first + k * torch_step.CHUNK for first in (0, 7, 300) for k in range(20)]
    for base in (0, 2**64 - 1, torch_step.base_of_keys(5, 1, 2)):
        keys = {torch_step.generator_key(base, step, place) for step in range(500) for place in places}
        assert len(keys) == 500 * len(places)
        assert all(0 <= key < 2**64 for key in keys)
    assert (
        torch_step.generator_key(3, 2**26 + 1, 9)
        == torch_step.generator_key(3, 1, 9)
        != torch_step.generator_key(3, 2, 9)
    )
    assert (
        len(
            {
                torch_step.base_of_keys(seed, use, chain)
                for seed in (0, 1)
                for use in (0, 1)
                for chain in (0, 1)
            }
        )
        == 8
    )


@pytest.mark.parametrize("name", ["rows", "columns", "in the middle", "of a vector", "empty", "a scalar"])
def test_a_generator_draws_for_a_block_what_it_draws_for_the_whole(name, monkeypatch):
    """As on other devices, with chunks that are shorter than the parameter and end in its middle."""
    monkeypatch.setattr(torch_step, "CHUNK", 999)
    shape, size, offset = BLOCKS[name]
    whole = torch_step.draw_by_chunks(torch.empty(shape), 5, 7, 11, None)
    part = torch_step.draw_by_chunks(torch.empty(size), 5, 7, 11, Shard(shape, size, offset, ()))
    cut = tuple(slice(o, o + n) for o, n in zip(offset, size, strict=True))
    assert torch.equal(part, whole[cut])
    assert whole.unique().numel() > 0.99 * whole.numel()  # of so many in float32 a few coincide


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("whole", [True, False])
def test_a_compiled_step_has_the_same_results(fused, whole):
    """The step alone, or with the gradient in one function: without warnings, and without compiling again."""
    results = {}
    for compiled in (False, True):
        torch._dynamo.reset()
        model = network(torch.float64)
        optimizer = ht.AdLaLa(model, seed=0, fused=fused)

        def training_step(model=model, optimizer=optimizer):
            optimizer.zero_grad()
            model(torch.ones(4, 2, dtype=torch.float64)).square().mean().backward()
            optimizer.step()

        step = training_step if whole else optimizer.step
        step = torch.compile(step, backend="eager") if compiled else step
        for n in range(12):
            if not whole:
                backward(model, optimizer)
            with torch._dynamo.config.patch(error_on_recompile=n > 2):
                step()
        results[compiled] = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    assert torch.allclose(results[True], results[False], atol=1e-12)


# Closures that raise


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("kind", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("first", [True, False])
def test_a_closure_that_raises_in_mid_step_leaves_everything_as_it_was(kind, fused, first):
    """And the step that is made in its place is the one that would have been made."""
    ladder = SimulatedTempering([1e-3, 1e-2], every=1)
    ends = []
    for broken in (False, True):
        model = network(kind)
        fuses = None if kind == torch.bfloat16 else fused
        optimizer = ht.Langevin(model, Linear(0.1, 0.05, 10), 1.0, ladder, "BAOBA", seed=1, fused=fuses)

        def closure(model=model, optimizer=optimizer):
            return backward(model, optimizer)

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
    """torch makes a step at lr = 0 for it, with gradients of 0. That is none, for our schedules and the noise
    too: the run is that of one without it. Zeros stay zeros."""
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict

    model = network(torch.float64)
    nn.init.zeros_(model[0].bias)
    before = copy.deepcopy(model.state_dict())
    optimizer = MAKERS[name](model, h)
    for group in optimizer.param_groups:
        group["fused"] = fused
    state = copy.deepcopy(get_optimizer_state_dict(model, optimizer))
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    optimizer.step(lambda: backward(model, optimizer))
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1)
    assert optimizer.param_groups[0]["step"] == 1
    assert not torch.equal(model[0].weight, before["0.weight"])
    end = copy.deepcopy(model.state_dict())
    model.load_state_dict(before)
    resumed = MAKERS[name](model, h)
    set_optimizer_state_dict(model, resumed, state)
    resumed.step(lambda: backward(model, resumed))
    assert all(torch.equal(value, end[key]) for key, value in model.state_dict().items())
    model.load_state_dict(before)
    never = MAKERS[name](model, h)
    for group in never.param_groups:
        group["fused"] = fused
    never.step(lambda: backward(model, never))
    assert all(torch.equal(value, end[key]) for key, value in model.state_dict().items())


def test_a_schedule_that_is_at_0_goes_on():
    """The control: a stepsize of 0 that is the schedule's own does not stop it."""
    parameter = single()
    optimizer = ht.Langevin([parameter], hb.schedules.Piecewise([0.1, 0.0, 0.1], [1, 2]), 1.0, TAU)
    moved = []
    for _ in range(3):
        before = parameter.detach().clone()
        parameter.grad = torch.ones(4)
        optimizer.step()
        moved.append(not torch.equal(before, parameter))
    assert moved == [True, False, True]


@pytest.mark.parametrize("gradient", [0.0, 1.0])
def test_steps_at_0_that_are_no_preparation_count(gradient):
    """Those of a schedule that begins at 0, with any gradient, and those of others with some."""
    parameter = single()
    optimizer = ht.Langevin([parameter], Linear(0.0, 0.1, 4), 1.0, TAU)
    other = ht.Langevin([parameter], 0.0, 1.0, TAU)
    for _ in range(2):
        parameter.grad = torch.full((4,), gradient)
        optimizer.step()
        other.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.025)
    assert other.param_groups[0]["step"] == (2 if gradient else 0)


# Which layer is the last


class HeadFirst(nn.Module):
    """Declared in another order than it acts in."""

    def __init__(self, width=20):
        super().__init__()
        self.head = nn.Linear(20, width)
        self.body = nn.Sequential(nn.Linear(2, 20), nn.Tanh())

    def forward(self, x):
        return self.head(self.body(x))


class BodyFirst(HeadFirst):
    def __init__(self):
        super().__init__()
        self.last = self.head
        del self.head

    def forward(self, x):
        return self.last(self.body(x))


def test_a_head_that_is_declared_before_the_body_is_asked_for():
    """Also where its shape does not tell; nothing has moved by then, and what is said is what it is."""
    model = HeadFirst()
    optimizer = ht.AdLaLa(model, seed=1)
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match=r"acts last is 'head', but 'body.0', .* output=model.head"):
        steps(model, optimizer, 1)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    steps(model, ht.AdLaLa(model, output=model.head), 1)
    right = BodyFirst()
    steps(right, ht.AdLaLa(right), 2)
    assert not any(module._forward_hooks for one in (model, right) for module in one.modules())


def test_a_closure_shows_the_order_too_and_a_compiled_model_does_not():
    model = HeadFirst()
    optimizer = ht.LOL(model)
    with pytest.raises(ValueError, match=r"output=model\.head"):
        optimizer.step(lambda: backward(model, optimizer))
    model = BodyFirst()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    optimizer = ht.LOL(model)
    for _ in range(3):
        backward(compiled, optimizer)
        optimizer.step()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is to go
        scripted = torch.jit.script(BodyFirst())
    steps(scripted, ht.LOL(scripted), 1)


@pytest.mark.parametrize("way", ["compiled", "scripted"])
def test_a_head_declared_first_is_asked_for_where_nothing_can_be_seen(way):
    """By shapes, at the first step that moves; where they do not tell, that is said, once."""

    def stepped(model):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "`torch.jit", DeprecationWarning)  # it is to go
            called = torch.jit.script(model) if way == "scripted" else model
        optimizer = ht.LOL(called)
        if way == "compiled":
            called = torch.compile(model, backend="eager", fullgraph=True)
        for _ in range(2):
            backward(called, optimizer)
            optimizer.step()

    model = HeadFirst()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match=r"'body.0' is declared last, but another layer.*output=model\.head"):
        stepped(model)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    stepped(BodyFirst())

    class Skipping(BodyFirst):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 19), nn.Tanh())
            self.last = nn.Linear(20, 1)

        def forward(self, x):
            body = self.body(x)
            return self.last(torch.cat([body, body[:, :1]], dim=1))

    with pytest.warns(RuntimeWarning, match="cannot be seen.*'last', declared last") as told:
        stepped(Skipping())
    assert len(told) == 1


def test_a_head_declared_first_is_seen_where_only_parts_are_called():
    """As in Lightning, whose training_step calls parts of the module; a step at lr = 0 does not ask yet."""
    for kind in (HeadFirst, BodyFirst):
        model = kind()
        optimizer = ht.AdLaLa(model, seed=1)
        for group in optimizer.param_groups:
            group["lr"] = 0.0
        optimizer.step()
        for group in optimizer.param_groups:
            group["lr"] = 0.1
        last = model.head if kind is HeadFirst else model.last
        last(model.body(torch.ones(3, 2))).sum().backward()
        if kind is HeadFirst:
            with pytest.raises(ValueError, match=r"acts last is 'head', but 'body.0', .* output=model.head"):
                optimizer.step()
        else:
            optimizer.step()
            assert not any(module._forward_hooks for module in model.modules())


def test_what_the_order_is_seen_by_survives_copies_and_files(tmp_path):
    model = BodyFirst()
    optimizer = ht.AdLaLa(model)
    other, copied = copy.deepcopy((model, optimizer))
    torch.save(model, tmp_path / "model.pt")
    steps(model, optimizer, 1)
    steps(other, copied, 1)


def test_names_alone_are_asked_where_another_layer_takes_what_the_last_gives():
    with pytest.raises(ValueError, match=r"'body.0' is declared last, but another layer"):
        ht.AdLaLa(HeadFirst(1).named_parameters())
    autoencoder = nn.Sequential(nn.Linear(8, 2), nn.Tanh(), nn.Linear(2, 8))
    assert ht.AdLaLa(autoencoder.named_parameters()).param_groups[-1]["name"] == "2"
    model = BodyFirst()
    model.matrix = nn.Parameter(torch.zeros(3, 3))
    with pytest.raises(ValueError, match="a matrix beside its modules, 'matrix'"):
        ht.AdLaLa(model)


def test_groups_of_a_framework_are_divided_by_the_output_layer():
    """As the Trainer makes them, with and without decay; by layers where they have names."""
    model = nn.Sequential(nn.Linear(2, 4), nn.Linear(4, 4), nn.Linear(4, 1))
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = ht.AdLaLa(groups, output=model[2])
    assert [(g["part"], g["weight_decay"], len(g["params"])) for g in optimizer.param_groups] == [
        ("hidden", 0.1, 2), ("output", 0.1, 1), ("hidden", 0.0, 2), ("output", 0.0, 1),
    ]  # fmt: skip
    steps(model, optimizer, 2)
    named = [{"params": list(model.named_parameters()), "lr": 0.05}]
    optimizer = ht.AdLaLa(named, output=model[2])
    assert [(g["part"], g.get("name"), g["lr"]) for g in optimizer.param_groups] == [
        ("hidden", "0", 0.05), ("hidden", "1", 0.05), ("output", None, 0.05),
    ]  # fmt: skip
    with pytest.raises(ValueError, match=r"or with output= beside them"):
        ht.AdLaLa(groups)
    with pytest.raises(ValueError, match="none of its parameters is in the groups"):
        ht.AdLaLa(groups, output=nn.Linear(4, 1))


# Two temperatures


@pytest.mark.parametrize("fused", [True, False])
def test_the_configurational_temperature_tells_where_the_kinetic_one_cannot(fused):
    """On a quadratic with exact gradients BACDEDCAB with ξ held is colder in θ than in p: against its exact
    law, within 4.5 standard errors."""
    k, h, tau, xi = 1.0, 0.5, 0.3, 2.0
    method = hb.AdaptiveLangevin(tau, math.sqrt(2 * tau * xi), epsilon=0.0, xi=xi, weight_decay=0.4)
    parameter = nn.Parameter(torch.zeros(20_000, dtype=torch.float64))
    optimizer = ht.Partitioned([{"params": [parameter], "method": method}], h, seed=1, fused=fused)
    for n in range(400):
        if n == 40:
            optimizer.forget_past()
        parameter.grad = (k - 0.4) * parameter.detach()  # the prior has the rest
        optimizer.step()
    (heat,) = optimizer.temperature().values()
    exact = k * hb.quadratic.covariance(hb.Partition(method, h), k - 0.4)[0, 0]
    assert abs(heat.configurational.value - exact) < 4.5 * heat.configurational.error
    assert heat.configurational.error < 0.01 * exact
    assert heat.value > 1.1 * exact


def test_the_configurational_temperature_knows_climbing_and_the_unit_of_the_noise():
    ends = []
    for sign in (1.0, -1.0):
        parameter = single(2.0)
        optimizer = ht.Langevin([parameter], 0.1, 1.0, TAU, seed=1, maximize=sign < 0)
        parameter.grad = torch.full((4,), 3.0 * sign)
        optimizer.step()
        ends.append(optimizer.temperature()["0"].configurational.value)
    assert ends == [6.0, 6.0]
    parameter = single(2.0)
    posterior = ht.LossPosterior("mse_loss", n=8, prior=1.0, variance=0.25)
    optimizer = ht.Langevin([parameter], 0.1, 1.0, posterior=posterior)
    parameter.grad = torch.full((4,), 3.0)
    decay = optimizer.param_groups[0]["weight_decay"]
    optimizer.step()
    assert optimizer.temperature()["0"].configurational.value == pytest.approx(6.0 / 0.25 + 4.0 * decay)


def test_a_temperature_never_reads_nan():
    """Of too few steps, and of a part that has diverged."""
    parameter = single(1.0)
    optimizer = ht.AdaptiveLangevin([parameter], 0.1, TAU, 0.01, 0.1)
    assert optimizer.temperature() == {}
    parameter.grad = torch.ones(4)
    optimizer.step()
    (heat,) = optimizer.temperature().values()
    assert heat.error == heat.configurational.error == math.inf
    assert "too few steps for an error" in repr(heat)
    parameter.grad = torch.full((4,), math.nan)
    for _ in range(20):
        optimizer.step()
    assert repr(optimizer.temperature()["0"]).count("not finite: diverged") == 2
    for means in (optimizer.friction(), optimizer.gradient_noise()):
        assert not any(math.isnan(mean.error) for mean in means.values())
