"""What torch asks of its own optimisers, of every class of ours; the ideas are those of torch's tests."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

import heatbath as hb
import heatbath.torch as ht

X = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))
Y = X.sum(dim=1, keepdim=True)

COEFFICIENTS = {  # quiet: without noise, so that a step without a gradient changes nothing
    "AdLaLa": {"lr": 0.1, "tau": 0.0, "sigma": 0.0},
    "LOL": {"lr": 0.1, "tau": 0.0},
    "LaLa": {"lr": 0.1, "gamma": 0.5, "tau": 0.0},
    "AdLAdL": {"lr": 0.1, "tau": 0.0, "sigma": 0.0},
    "Langevin": {"lr": 0.1, "gamma": 0.5, "tau": 0.0},
    "AdaptiveLangevin": {"lr": 0.1, "tau": 0.0, "sigma": 0.0},
    "SGLD": {"lr": 0.1, "sigma": 0.0},
    "SGD": {"lr": 0.1},
    "Momentum": {"lr": 0.02, "mu": 0.9},
    "Adam": {"lr": 0.05},
    "RMSprop": {"lr": 0.02},
    "Frozen": {"lr": 0.1},
    "Partitioned": {"lr": 0.1},
}
NOISY = {
    "AdLaLa": {"tau": 1e-3, "sigma": 0.1}, "LOL": {"tau": 1e-3}, "LaLa": {"tau": 1e-3},
    "AdLAdL": {"tau": 1e-3}, "Langevin": {"tau": 1e-3}, "AdaptiveLangevin": {"tau": 1e-3, "sigma": 0.1},
    "SGLD": {"sigma": 0.1},
}  # fmt: skip
MOVING = [name for name in COEFFICIENTS if name != "Frozen"]
LAYERED = ("AdLaLa", "LOL", "LaLa", "AdLAdL")


def network():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))


def make_optimizer(name, given, noisy=False, **options):
    """Return an optimiser of a class, for a module or two groups of its parameters."""
    chosen = COEFFICIENTS[name] | (NOISY.get(name, {}) if noisy else {}) | {"seed": 1} | options
    if name == "Partitioned":
        given = groups_of(given) if isinstance(given, nn.Module) else given
        methods = hb.Langevin(0.5, 1e-3 if noisy else 0.0), hb.SGD()
        given = [{"method": method, **group} for method, group in zip(methods, given, strict=True)]
    return getattr(ht, name)(given, **chosen)


def groups_of(model, **first):
    """Return the two layers as groups, of which the first may have options of its own."""
    body, head = ({"params": list(model[place].parameters()), "part": part}
                  for place, part in ((0, "hidden"), (2, "output")))  # fmt: skip
    return [body | first, head]


def gradients(model, optimizer):
    optimizer.zero_grad()
    loss = (model(X.to(model[0].weight)) - Y.to(model[0].weight)).square().mean()
    loss.backward()
    return loss


def steps(model, optimizer, count=3, scheduler=None):
    for _ in range(count):
        gradients(model, optimizer)
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
    return vector(model)


def vector(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def for_every_class(test, names=COEFFICIENTS):
    """Run a test for every class, or for those with the given names."""
    return pytest.mark.parametrize("name", list(names))(test)


def for_every_moving_class(test):
    """Run a test for every class that moves parameters."""
    return for_every_class(test, MOVING)


def test_every_class_is_here():
    classes = {name for name, kind in vars(ht).items() if isinstance(kind, type)}
    assert {name for name in classes if issubclass(getattr(ht, name), torch.optim.Optimizer)} == set(
        COEFFICIENTS
    )


# Where it goes


@for_every_moving_class
@pytest.mark.parametrize("layout", ["contiguous", "transposed"])
def test_it_goes_downhill(name, layout):
    model = network()
    if layout == "transposed":
        model[0].weight.data = model[0].weight.data.t().contiguous().t()
    optimizer = make_optimizer(name, model)
    first = gradients(model, optimizer).item()
    steps(model, optimizer, 30)
    assert gradients(model, optimizer).item() < 0.7 * first
    assert model[0].weight.is_contiguous() == (layout == "contiguous")


SCHEDULERS = {
    "StepLR": lambda o: lr_scheduler.StepLR(o, 5),
    "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, 0.9),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 10),
    "LinearLR": lambda o: lr_scheduler.LinearLR(o, 0.1, total_iters=5),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=20, cycle_momentum=False),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, 4, cycle_momentum=False),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 5),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.ConstantLR(o), lr_scheduler.ExponentialLR(o, 0.9)], [4]),
    "SWALR": lambda o: torch.optim.swa_utils.SWALR(o, 0.05),
}  # fmt: skip


@for_every_moving_class
def test_a_stepsize_in_a_tensor_is_the_number_under_every_scheduler(name):
    """To the rounding of float32; schedulers write into the tensor, which stays the one that was given."""
    for schedule in SCHEDULERS.values():
        ends = []
        for kind in (float, torch.tensor):
            model = network().double()
            lr = kind(COEFFICIENTS[name]["lr"])
            optimizer = make_optimizer(name, model, noisy=True, lr=lr)
            scheduler = schedule(optimizer)
            ends.append(steps(model, optimizer, 12, scheduler))
            assert all(isinstance(group["lr"], type(lr)) for group in optimizer.param_groups)
            if kind is torch.tensor:
                assert all(group["lr"] is lr for group in optimizer.param_groups)
                assert "lr=" in repr(optimizer)
                assert "tensor(" not in repr(optimizer)
        torch.testing.assert_close(*ends, rtol=1e-5, atol=1e-5)


@for_every_class
def test_torch_refuses_schedulers_that_would_cycle_a_momentum_and_names_the_option(name):
    optimizer = make_optimizer(name, network())
    for scheduler, arguments in ((lr_scheduler.OneCycleLR, (0.1, 20)), (lr_scheduler.CyclicLR, (0.01, 0.1))):
        with pytest.raises(ValueError, match="with `cycle_momentum` option"):
            scheduler(optimizer, *arguments)
        scheduler(optimizer, *arguments, cycle_momentum=False)


@for_every_class
def test_a_plateau_reduces_the_stepsize(name):
    optimizer = make_optimizer(name, network())
    scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
    for _ in range(3):
        scheduler.step(1.0)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(COEFFICIENTS[name]["lr"] / 4)


@for_every_moving_class
def test_a_group_may_have_a_stepsize_of_its_own_or_a_prior(name):
    model = network()
    before = vector(model)
    optimizer = make_optimizer(name, groups_of(model, lr=0.0))
    moved = steps(model, optimizer, 2) != before
    assert not moved[:32].any()
    assert moved[32:].any()
    plain, decayed = network(), network()
    steps(plain, make_optimizer(name, plain), 5)
    steps(decayed, make_optimizer(name, groups_of(decayed, weight_decay=0.5)), 5)
    assert not torch.equal(plain[0].weight, decayed[0].weight)


@for_every_moving_class
@pytest.mark.parametrize("fused", [True, False])
def test_nothing_changes_without_gradients_or_with_gradients_of_0(name, fused):
    """The methods have no noise. Zeros stay zeros."""
    model = network()
    nn.init.zeros_(model[0].bias)
    optimizer = make_optimizer(name, model, fused=fused)
    before = vector(model)
    optimizer.step()
    assert torch.equal(vector(model), before)
    assert not any(optimizer.state.values())
    for zeros in (torch.zeros_like, lambda p: torch._efficientzerotensor(p.shape)):
        for p in model.parameters():
            p.grad = zeros(p)
        optimizer.step()
        assert torch.equal(vector(model), before)


@for_every_moving_class
@pytest.mark.parametrize("fused", [None, False])
def test_gradients_are_never_written_into(name, fused):
    model = network()
    optimizer = make_optimizer(name, groups_of(model, weight_decay=0.1), noisy=True, fused=fused)
    gradients(model, optimizer)
    before = [p.grad.clone() for p in model.parameters()]
    versions = [p.grad._version for p in model.parameters()]
    optimizer.step()
    assert all(torch.equal(p.grad, grad) for p, grad in zip(model.parameters(), before, strict=True))
    assert versions == [p.grad._version for p in model.parameters()]


# What a tensor is


@for_every_moving_class
@pytest.mark.parametrize("half", [False, True])
def test_a_gradient_with_the_negative_bit_is_the_gradient_it_stands_for(name, half):
    kind = torch.bfloat16 if half else torch.float32
    ends = []
    for negative in (False, True):
        model = network().to(kind)
        optimizer = make_optimizer(name, model, noisy=True)
        for _ in range(3):
            gradients(model, optimizer)
            if negative:
                for p in model.parameters():
                    p.grad = (-p.grad)._neg_view()
                    assert p.grad.is_neg()
            optimizer.step()
        ends.append(vector(model))
    assert torch.equal(*ends)


@pytest.mark.parametrize("fused", [True, False])
def test_a_parameter_with_the_negative_bit_is_what_it_stands_for(fused):
    """Complex arithmetic makes such an element: the imaginary part of a conjugate."""
    ends = []
    for negative in (False, True):
        numbers = torch.tensor([1 + 2j]).conj().imag if negative else torch.tensor([-2.0])
        parameter = nn.Parameter(numbers)
        assert parameter.is_neg() == negative
        parameter.grad = torch.tensor([3.0])
        optimizer = ht.Langevin([parameter], 0.1, 1.0, 0.0, fused=fused)
        optimizer.step()
        optimizer.step()
        ends.append(parameter.detach().resolve_neg())
    assert ends[0] < -2.0
    assert torch.equal(*ends)


@for_every_moving_class
def test_a_step_on_meta_tensors_has_shapes_and_no_numbers(name):
    model = network().to("meta")
    optimizer = make_optimizer(name, model, noisy=True)
    for p in model.parameters():
        p.grad = torch.empty_like(p)
    optimizer.step()
    assert optimizer.param_groups[0]["step"] == 1
    assert all(optimizer.state[p]["momentum"].is_meta for p in model.parameters())


@for_every_moving_class
@pytest.mark.parametrize("fused", [None, False])
def test_scalars_and_empty_parameters_are_stepped(name, fused):
    scalar, empty = nn.Parameter(torch.tensor(1.0)), nn.Parameter(torch.empty(0, 3))
    given = [{"params": [scalar], "part": "hidden"}, {"params": [empty], "part": "output"}]
    optimizer = make_optimizer(name, given, fused=fused)
    for _ in range(3):
        scalar.grad, empty.grad = torch.tensor(1.0), torch.empty(0, 3)
        optimizer.step()
    assert scalar.item() < 1.0


@for_every_moving_class
def test_sparse_gradients_are_refused_before_anything_moves(name):
    model = network()
    optimizer = make_optimizer(name, model)
    gradients(model, optimizer)
    before = vector(model)
    model[2].weight.grad = model[2].weight.grad.to_sparse()
    with pytest.raises(RuntimeError, match="sparse gradients are not supported"):
        optimizer.step()
    assert torch.equal(vector(model), before)


# What is accepted


@for_every_class
def test_the_switches_of_torch_are_accepted_where_they_change_nothing(name):
    ends = []
    for options in ({}, {"foreach": True}, {"foreach": False, "capturable": False, "differentiable": False}):
        model = network()
        optimizer = make_optimizer(name, model, noisy=True, **options)
        assert set(options) <= set(optimizer.param_groups[0])
        ends.append(steps(model, optimizer))
    assert torch.equal(ends[0], ends[1])
    assert torch.equal(ends[0], ends[2])
    for options, told in (
        ({"capturable": True}, "capturable=True is not supported"),
        ({"differentiable": True}, "differentiable=True is not supported"),
        ({"fused": True, "foreach": True}, "cannot be `True` together"),
        ({"foreach": "yes"}, "foreach must be True, False or None"),
        ({"lr": torch.tensor([0.1, 0.2])}, r"a tensor of one element, got a Tensor of shape \(2,\)"),
        ({"lr": -0.1}, "lr must be >= 0"),
        ({"lr": torch.tensor(-0.1)}, "lr must be >= 0"),
    ):
        with pytest.raises((ValueError, TypeError, RuntimeError), match=told):
            make_optimizer(name, network(), **options)


@for_every_class
def test_parameters_that_cannot_be_optimised_are_refused(name):
    p, q = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2, 2))

    def parts(first, second):
        return [{"params": first, "part": "hidden"}, {"params": second, "part": "output"}]

    for first, second, told in (
        ([p], [p], "some parameters appear in more than one parameter group"),
        ([p * 2], [q], "can't optimize a non-leaf Tensor"),
        ([p, "q"], [q], "optimizer can only optimize Tensors"),
        ({p}, [q], "optimizer parameters need to be organized in ordered collections"),
    ):
        with pytest.raises((ValueError, TypeError), match=told):
            make_optimizer(name, parts(first, second))
    with pytest.warns(UserWarning, match="contains a parameter group with duplicate parameters"):
        make_optimizer(name, parts([p, p], [q]))


@for_every_class
def test_errors_do_not_print_tensors(name):
    """But their kind and shape: a tensor may have millions of numbers, or be private."""
    secret = torch.full((4, 4), 123.456)
    model = network()
    for call in (
        lambda: make_optimizer(name, secret),
        lambda: make_optimizer(name, [[secret]] * 2),
        lambda: make_optimizer(name, model, lr=secret),
        lambda: make_optimizer(name, model, seed=secret),
        lambda: make_optimizer(name, model, fused=secret),
        lambda: make_optimizer(name, model, maximize=secret),
        lambda: make_optimizer(name, model, posterior=secret),
        lambda: getattr(ht, name)(secret),
        lambda: getattr(ht, name)([secret], lr=[secret]),
        lambda: ht.Langevin(model, 0.1, secret, secret),
        lambda: ht.Langevin(model, 0.1, 1.0, [secret]),
        lambda: ht.Partitioned([{"params": [secret], "method": secret}], 0.1),
        lambda: ht.predict(model, secret, X, task="regression"),
        lambda: ht.predict(secret, [], X, task="regression"),
        lambda: ht.Samples(secret),
        lambda: ht.LossPosterior("mse_loss", secret),
        lambda: ht.LossPosterior("mse_loss", 10, noise=secret),
        lambda: ht.tune(secret, (X, Y), "LOL"),
        lambda: ht.tune(network, (X, Y), secret),
    ):
        with pytest.raises((ValueError, TypeError, RuntimeError)) as error:
            call()
        assert "123" not in str(error.value)
        assert len(str(error.value)) < 1000


# Names, hooks, copies


@for_every_class
def test_named_parameters_keep_their_names(name):
    model = network()
    named = [
        {"params": [(key, p) for key, p in model.named_parameters() if key.startswith(layer)], "part": part}
        for layer, part in (("0", "hidden"), ("2", "output"))
    ]
    optimizer = make_optimizer(name, named)
    assert [group["param_names"] for group in optimizer.param_groups] == [
        ["0.weight", "0.bias"], ["2.weight", "2.bias"],
    ]  # fmt: skip
    steps(model, optimizer)
    other = network()
    unnamed = make_optimizer(name, groups_of(other))
    unnamed.load_state_dict(optimizer.state_dict())
    assert unnamed.param_groups[0]["param_names"] == ["0.weight", "0.bias"]
    steps(other, unnamed)


@for_every_class
def test_hooks_around_a_step_are_called_in_order(name):
    model = network()
    optimizer = make_optimizer(name, model)
    seen = []
    optimizer.register_step_pre_hook(lambda *_: seen.append("before"))
    optimizer.register_step_post_hook(lambda *_: seen.append("after"))
    first = register_optimizer_step_pre_hook(lambda *_: seen.append("everywhere before"))
    last = register_optimizer_step_post_hook(lambda *_: seen.append("everywhere after"))
    try:
        steps(model, optimizer, 1)
    finally:
        first.remove()
        last.remove()
    assert seen == ["everywhere before", "before", "after", "everywhere after"]


@for_every_class
def test_hooks_around_a_state_may_change_it(name):
    """Before it is loaded, after, and where it is made; with `prepend` first of all."""
    model = network()
    optimizer = make_optimizer(name, model, noisy=True)
    steps(model, optimizer)
    seen = []
    optimizer.register_state_dict_pre_hook(lambda o: seen.append("saving"))
    optimizer.register_state_dict_post_hook(lambda o, state: state | {"extra": 1})
    state = optimizer.state_dict()
    assert seen == ["saving"]
    assert state["extra"] == 1

    def reversed_lr(o, given):
        seen.append("loading")
        groups = [group | {"lr": 0.5} for group in given["param_groups"]]
        return given | {"param_groups": groups}

    optimizer.register_load_state_dict_pre_hook(reversed_lr)
    optimizer.register_load_state_dict_pre_hook(lambda o, given: seen.append("first"), prepend=True)
    optimizer.register_load_state_dict_post_hook(lambda o: o.param_groups[0].update(marked=True))
    optimizer.load_state_dict(state)
    assert seen[1:] == ["first", "loading"]
    assert [group["lr"] for group in optimizer.param_groups] == [0.5] * len(optimizer.param_groups)
    assert optimizer.param_groups[0]["marked"]
    assert state["param_groups"][0]["lr"] != 0.5  # what was given is as it was


@for_every_moving_class
def test_momenta_of_half_precision_follow_a_hook_that_reorders_a_state(name):
    """The state comes from a model whose layers were declared in another order.

    Hooks after it see float32 momenta, and what they write stays.
    """
    model = network().bfloat16()
    optimizer = make_optimizer(name, model, noisy=True)
    steps(model, optimizer)
    expected = {p: copy.deepcopy(optimizer.state[p]) for p in model.parameters()}
    state = optimizer.state_dict()
    swapped = {0: 2, 1: 3, 2: 0, 3: 1}

    def renumber(groups):
        return [group | {"params": [swapped[index] for index in group["params"]]} for group in groups]

    moved = {
        "state": {swapped[index]: value for index, value in state["state"].items()},
        "param_groups": state["param_groups"],
    }
    fresh = make_optimizer(name, model, noisy=True)
    fresh.register_load_state_dict_pre_hook(lambda o, s: s | {"param_groups": renumber(s["param_groups"])})
    kinds = []
    fresh.register_load_state_dict_post_hook(lambda o: kinds.append(o.state[model[0].bias]["momentum"].dtype))
    fresh.register_load_state_dict_post_hook(lambda o: o.state[model[2].bias]["momentum"].fill_(7.0))
    fresh.load_state_dict(moved)
    assert kinds == [torch.float32]
    for p in (model[0].weight, model[0].bias, model[2].weight):
        for key in ("momentum", "copy"):
            assert torch.equal(fresh.state[p][key], expected[p][key])
            assert fresh.state[p][key].dtype == torch.float32
    assert fresh.state[model[2].bias]["momentum"].item() == 7.0


@for_every_moving_class
@pytest.mark.parametrize("way", ["deepcopy", "pickle", "state_dict", "file"])
def test_copies_go_the_same_way(name, way):
    model = network()
    optimizer = make_optimizer(name, model, noisy=True)
    steps(model, optimizer)
    if way == "deepcopy":
        other, copied = copy.deepcopy((model, optimizer))
    elif way == "pickle":
        other, copied = pickle.loads(pickle.dumps((model, optimizer)))
    else:
        other = copy.deepcopy(model)
        copied = make_optimizer(name, other, noisy=True, seed=77)
        state = copy.deepcopy(optimizer.state_dict())  # whose tensors are those of the optimiser
        if way == "file":
            buffer = io.BytesIO()
            torch.save(state, buffer)
            buffer.seek(0)
            state = torch.load(buffer, weights_only=True)
        copied.load_state_dict(state)
    assert copied.defaults["seed"] == 1
    assert torch.equal(steps(other, copied), steps(model, optimizer))
    assert any(isinstance(value, torch.Tensor) for state in copied.state.values() for value in state.values())
    public = {key for key in vars(optimizer) if not key.startswith("_")}
    assert {key for key in vars(copied) if not key.startswith("_")} == public


@for_every_class
def test_a_state_that_lacks_what_is_newer_gets_the_defaults(name):
    """An earlier version might have saved it, without our newer options and those of a method."""
    newer = ("agreed", "foreach", "capturable", "differentiable", "maximize", "fused", "weight_decay",
             "kinetic", "friction", "thermostat", "word")  # fmt: skip
    ends = []
    for older in (False, True):
        model = network()
        optimizer = make_optimizer(name, model, noisy=True)
        steps(model, optimizer)
        state = optimizer.state_dict()
        if older:
            state = copy.deepcopy(state)
            for group in state["param_groups"]:
                if "weight_decay" in group:
                    group["previous"].pop()  # it is the last coefficient of every method
                for key in newer:
                    group.pop(key, None)
            for own in state["state"].values():
                own["step"] = torch.tensor(own["step"])  # as others save it
        fresh = make_optimizer(name, model, noisy=True)
        fresh.load_state_dict(state)
        fresh.step()
        ends.append(steps(model, fresh))
        assert all(isinstance(own["step"], int) for own in fresh.state.values())
    assert torch.equal(*ends)


@for_every_class
def test_states_that_do_not_fit_are_refused(name):
    model = network()
    optimizer = make_optimizer(name, model)
    steps(model, optimizer)
    state = optimizer.state_dict()
    with pytest.raises(ValueError, match="different number of parameter groups"):
        optimizer.load_state_dict(state | {"param_groups": state["param_groups"] * 2})
    groups = copy.deepcopy(state["param_groups"])
    groups[0]["params"].append(99)
    with pytest.raises(ValueError, match="doesn't match the size of optimizer's group"):
        optimizer.load_state_dict(state | {"param_groups": groups})
    steps(model, optimizer)


@for_every_class
def test_a_closure_makes_gradients_even_where_they_are_off_and_its_loss_is_returned(name):
    model = network()
    optimizer = make_optimizer(name, model)

    def closure():
        assert torch.is_grad_enabled()
        return gradients(model, optimizer)

    with torch.no_grad():
        loss = optimizer.step(closure)
        assert not torch.is_grad_enabled()
    assert loss.item() > 0
    optimizer.zero_grad(set_to_none=False)
    assert all(not p.grad.any() for p in model.parameters())


@for_every_class
def test_a_profile_names_the_step(name):
    model = network()
    optimizer = make_optimizer(name, model)
    gradients(model, optimizer)
    with torch.profiler.profile() as profile:
        optimizer.step()
    assert f"Optimizer.step#{name}.step" in {event.key for event in profile.key_averages()}
