"""The optimisers for PyTorch follow the reference, and keep torch's contract."""

import copy
import io
import math
from functools import cache

import numpy as np
import pytest
import torch

import heatbath as hb
import heatbath.torch as ht
from heatbath.methods.schedules import Cyclical, Linear, Piecewise, SimulatedTempering

X = torch.randn(30, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
Y = (X[:, :1] * X[:, 1:] > 0).double()
LAYERS = {"layer1": (40, 20), "layer2": (100, 5), "layer3": (5, 1)}


def network(dtype=torch.float64):
    """Return a small network with a fixed start."""
    model = torch.nn.Sequential(
        torch.nn.Linear(2, 20),
        torch.nn.Tanh(),
        torch.nn.Linear(20, 5),
        torch.nn.Tanh(),
        torch.nn.Linear(5, 1),
    )
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(0.3 * torch.randn(p.shape, generator=generator, dtype=torch.float64))
    return model.to(dtype)


def loss_of(model):
    kind = next(model.parameters()).dtype
    return torch.nn.functional.binary_cross_entropy_with_logits(model(X.to(kind)), Y.to(kind))


def closure_of(model, optimizer):
    def closure():
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()
        return loss

    return closure


def vector(model):
    return torch.nn.utils.parameters_to_vector(model.parameters()).detach().double().numpy().copy()


@cache
def scratch_network():
    """Return a network whose parameters are set before each use."""
    return network()


def gradient(theta, batch):
    """Return the gradient as the reference asks for it."""
    model = scratch_network()
    rows = []
    for row in theta:
        torch.nn.utils.vector_to_parameters(torch.as_tensor(row), model.parameters())
        model.zero_grad()
        loss_of(model).backward()
        rows.append(torch.cat([p.grad.ravel() for p in model.parameters()]).numpy())
    return np.array(rows)


def losses(theta):
    values = []
    model = scratch_network()
    for row in theta:
        torch.nn.utils.vector_to_parameters(torch.as_tensor(row), model.parameters())
        values.append(loss_of(model).item())
    return np.array(values)


def by_layer(model, partition, **options):
    """Return the optimiser of a partition with a method for each layer."""
    parts = partition.parts(LAYERS)
    modules = dict(zip(LAYERS, (model[0], model[2], model[4]), strict=True))
    groups = [
        {"params": [p for layer in part.layers for p in modules[layer].parameters()], "method": part.method}
        for part in parts
    ]
    return ht.Partitioned(groups, partition.h, **options)


def advance_reference(partition, steps, **options):
    """Return the state of the reference after some steps from the network's start."""
    reference = hb.Reference(gradient, vector(network()), partition, LAYERS, loss=losses, **options)
    reference.advance(steps)
    return reference.state


def difference_after(steps, model, optimizer, state):
    """Return the largest difference of the model's parameters to a state after some steps."""
    closure = closure_of(model, optimizer)
    for _ in range(steps):
        optimizer.step(closure)
    return np.abs(vector(model) - state.theta[0]).max()


ADAPTIVE = hb.AdaptiveLangevin(1e-3, 0.01, 0.1)
LADDER = SimulatedTempering([1e-3, 1e-2, 1e-1], every=3)
PARTITIONS = {
    "LaLa": hb.LaLa(0.1, 0.5, 1e-3, 1.0, 1e-4),
    "LOL": hb.LOL(),
    "AdLaLa": hb.AdLaLa(h=0.1),
    "AdLAdL": hb.AdLAdL(h=0.1),
    "by tensor, the SDE's friction, the mean": hb.Partition(
        {"hidden": hb.AdaptiveLangevin(1e-3, 0.01, 0.1, friction="sde", thermostat="tensor", kinetic="mean",
                                       weight_decay=0.01), "output": hb.SGLD(0.01, 0.01)}, 0.1),
    "by frequency": hb.AdLaLa(h=0.1, tau=Linear(1e-4, 1e-3, 100), frequency=0.7, damping=0.5,
                              thermostat="tensor"),
    "F by frequency, with the ε of before after a while": hb.Partition(
        {"hidden": hb.AdaptiveLangevin(1e-3, 0.05, 0.1, "BAFEFAB", frequency=Piecewise([0.7, 0.0], [90]),
                                       damping=Piecewise([0.0, 0.5], [60])), "output": hb.Frozen()}, 0.1),
    "F": hb.Partition(
        {"hidden": hb.AdaptiveLangevin(1e-3, 0.05, 0.1, "BAFEFAB"), "output": hb.Frozen()}, 0.1),
    "baselines": hb.Partition(
        {0: hb.Adam(weight_decay=0.01), 1: hb.Momentum(0.9), 2: hb.Momentum(0.9, 2)}, 0.01),
    "words": hb.Partition({0: hb.Langevin(0.5, 1e-3, "OBABO"), 1: hb.Langevin(0.5, 1e-3, "BAOA"),
                           2: hb.Langevin(1.0, 1e-3, "OBA")}, 0.1),
    "two gradients": hb.Partition({"hidden": hb.Langevin(0.5, 1e-3, "BAOBA"),
                                   "output": hb.Langevin(2.0, 1e-4, "BAOBA")}, 0.1),
    "scheduled": hb.AdLaLa(h=Linear(0.1, 0.05, 100), tau=Cyclical(1e-3, 0.0, 30)),
    "tempered": hb.Partition({"hidden": hb.Langevin(1.0, LADDER), "output": hb.Langevin(0.5, LADDER)}, 0.1),
}  # fmt: skip


STEPS, SEED = 200, 5


@cache
def expected_state(name):
    """Return the state of the reference of a partition after all steps."""
    written = {"rotated": False} if name == "two gradients" else {}
    return advance_reference(PARTITIONS[name], STEPS, seed=SEED, **written)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("name", PARTITIONS)
def test_both_ways_through_a_step_follow_the_reference(name, fused):
    """1e-10 over 200 steps in float64, with the gradient from autograd."""
    partition, model, expected = PARTITIONS[name], network(), expected_state(name)
    optimizer = by_layer(model, partition, seed=SEED, fused=fused)
    assert difference_after(STEPS, model, optimizer, expected) < 1e-10
    for group, part in zip(optimizer.param_groups, partition.parts(LAYERS), strict=True):
        if part.name in expected.xi:
            np.testing.assert_allclose(np.ravel(group["xi"]), expected.xi[part.name][0], rtol=1e-9)
    if name == "tempered":
        assert optimizer.param_groups[0]["rung"] == expected.rung[0]


@cache
def states_of_reference(method):
    """Return the states of the reference after one step and after 101."""
    reference = hb.Reference(gradient, vector(network()), hb.Partition(method, 0.1), LAYERS, seed=SEED)
    reference.advance(1)
    first = copy.deepcopy(reference.state)
    reference.advance(100)
    return first, reference.state


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize(
    "method",
    [
        hb.AdaptiveLangevin(1e-3, 0.01, 0.1, "ECDABADC"),
        hb.Langevin(0.5, 1e-3, "OABAO"),
        hb.Langevin(0.5, 1e-3, "ABOBA"),
    ],
)
def test_words_seen_at_the_kick_go_on_as_the_reference_does(method, fused):
    """The reference has done the letters before the kick once; from its state on, the two agree."""
    state, last = states_of_reference(method)
    model = network()
    optimizer = by_layer(model, hb.Partition(method, 0.1), seed=SEED, fused=fused)
    optimizer.step(closure_of(model, optimizer))
    (group,) = optimizer.param_groups
    torch.nn.utils.vector_to_parameters(torch.tensor(state.theta[0]), model.parameters())
    momenta = [optimizer.state[p]["momentum"] for p in group["params"]]
    torch.nn.utils.vector_to_parameters(torch.tensor(state.p[0]), momenta)
    for p, momentum in zip(group["params"], momenta, strict=True):
        optimizer.state[p]["momentum"] = momentum.data.clone()
    if "xi" in group:
        group["xi"] = float(state.xi["all"][0, 0])
    for _ in range(100):
        optimizer.step(closure_of(model, optimizer))
    np.testing.assert_allclose(vector(model), last.theta[0], atol=1e-10)


@pytest.mark.parametrize("fused", [True, False])
def test_with_another_seed_both_ways_go_elsewhere(fused):
    """The control: it is the noise that is followed, too."""
    model = network()
    optimizer = by_layer(model, PARTITIONS["LOL"], seed=SEED + 1, fused=fused)
    assert difference_after(20, model, optimizer, advance_reference(PARTITIONS["LOL"], 20, seed=SEED)) > 1e-3


PRESETS = {
    "LaLa": (lambda m, **o: ht.LaLa(
        m, lr=0.1, gamma=0.5, tau=1e-3, gamma_output=1.0, tau_output=1e-4, **o), "LaLa"),
    "LOL": (lambda m, **o: ht.LOL(m, **o), hb.LOL(0.2, 0.3, 1e-5)),  # torch has defaults of its own
    "AdLaLa": (lambda m, **o: ht.AdLaLa(m, lr=0.1, **o), "AdLaLa"),
    "Langevin": (lambda m, **o: ht.Langevin(m, 0.1, 0.5, 1e-3, **o),
                 hb.Partition(hb.Langevin(0.5, 1e-3), 0.1)),
    "AdaptiveLangevin": (lambda m, **o: ht.AdaptiveLangevin(m.parameters(), 0.1, 1e-3, 0.01, 0.1, **o),
                         hb.Partition(ADAPTIVE, 0.1)),
    "SGLD": (lambda m, **o: ht.SGLD(m.parameters(), 0.1, 0.01, **o), hb.Partition(hb.SGLD(0.01), 0.1)),
    "AdLAdL": (lambda m, **o: ht.AdLAdL(m, lr=0.1, **o), "AdLAdL"),
    "SGD": (lambda m, **o: ht.SGD(m, 0.1, 0.01, **o), hb.Partition(hb.SGD(0.01), 0.1)),
    "Momentum": (lambda m, **o: ht.Momentum(m, 0.05, mu=0.9, **o), hb.Partition(hb.Momentum(0.9), 0.05)),
    "Adam": (lambda m, **o: ht.Adam(m, 0.01, **o), hb.Partition(hb.Adam(), 0.01)),
    "RMSprop": (lambda m, **o: ht.RMSprop(m, 0.01, **o), hb.Partition(hb.RMSprop(), 0.01)),
    "Frozen": (lambda m, **o: ht.Frozen(m, 0.1, **o), hb.Partition(hb.Frozen(), 0.1)),
}  # fmt: skip


@pytest.mark.parametrize("name", PRESETS)
def test_the_presets_are_those_of_the_library(name):
    make, partition = PRESETS[name]
    known = isinstance(partition, str)
    expected = expected_state(partition) if known else advance_reference(partition, STEPS, seed=SEED)
    model = network()
    assert difference_after(STEPS, model, make(model, seed=SEED), expected) < 1e-10


def test_the_optimisers_follow_the_engine():
    """The same network, data and noise: one trajectory."""
    problem = hb.datasets.from_arrays(X.numpy(), Y.numpy()[:, 0], X.numpy(), Y.numpy()[:, 0], task="binary")
    model = network()
    dense = hb.MLP((20, 5), activation="tanh")
    run = hb.train(problem, dense, hb.AdLaLa(h=0.1), STEPS, 30, start=vector(model), dtype="float64", seed=7)
    optimizer = ht.AdLaLa(model, lr=0.1, seed=7)
    for _ in range(STEPS):
        optimizer.step(closure_of(model, optimizer))
    np.testing.assert_allclose(vector(model), run.theta[0], atol=1e-10)


def test_a_scheduler_changes_the_stepsize_and_the_step_under_way_is_closed_as_it_began():
    """torch's scheduler against the reference with the same stepsizes."""
    model = network()
    optimizer = ht.LOL(model, lr=0.1, gamma=0.01, tau=1e-3, seed=1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=20, gamma=0.5)
    h = hb.schedules.Piecewise([0.1, 0.05, 0.025], [20, 40])
    reference = hb.Reference(gradient, vector(model), hb.LOL(h=h), LAYERS, seed=1)
    for _ in range(60):
        optimizer.step(closure_of(model, optimizer))
        scheduler.step()
    reference.advance(60)
    np.testing.assert_allclose(vector(model), reference.state.theta[0], atol=1e-11)


def test_a_coefficient_that_is_changed_by_hand_acts_from_the_next_step_on():
    model = network()
    optimizer = ht.LOL(model, lr=0.1, gamma=0.01, tau=1e-3, seed=1)
    tau = hb.schedules.Piecewise([1e-3, 1e-2], [30])
    reference = hb.Reference(gradient, vector(model), hb.LOL(h=0.1, tau=tau), LAYERS, seed=1)
    for n in range(60):
        if n == 30:
            for group in optimizer.param_groups:
                group["tau"] = 1e-2 if group["part"] == "hidden" else 0.0
        optimizer.step(closure_of(model, optimizer))
    reference.advance(60)
    np.testing.assert_allclose(vector(model), reference.state.theta[0], atol=1e-11)
    optimizer.param_groups[0]["tau"] = -1.0
    with pytest.raises(ValueError, match="tau must be >= 0"):
        optimizer.step(closure_of(model, optimizer))


# The contract

CLASSES = {
    "Partitioned": lambda m, **o: ht.Partitioned(
        [{"params": m[0].parameters(), "method": ADAPTIVE},
         {"params": [*m[2].parameters(), *m[4].parameters()], "method": hb.Langevin(0.5, 1e-3)}], 0.1, **o),
    **{name: make for name, (make, _) in PRESETS.items() if name != "Frozen"},  # which does not step
}  # fmt: skip


def for_every_optimiser(test):
    """Run a test for every optimiser, with one seed for all: by default each has its own."""
    made = [lambda m, make=make, seed=1, **o: make(m, seed=seed, **o) for make in CLASSES.values()]
    return pytest.mark.parametrize("make", made, ids=CLASSES)(test)


def test_every_optimiser_class_is_in_the_table():
    classes = {
        name
        for name, value in vars(ht).items()
        if isinstance(value, type) and issubclass(value, torch.optim.Optimizer)
    }
    assert classes == {*CLASSES, "Frozen"}


@for_every_optimiser
@pytest.mark.parametrize("fused", [True, False])
def test_a_step_without_a_closure_is_a_step_with_one(make, fused):
    one, two = network(), network()
    first, second = make(one, fused=fused), make(two, fused=fused)
    for _ in range(5):
        loss = first.step(closure_of(one, first))
        assert loss.item() > 0
        closure_of(two, second)()
        assert second.step() is None
    np.testing.assert_array_equal(vector(one), vector(two))


@for_every_optimiser
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_a_run_goes_on_bit_for_bit_from_a_file_without_code(make, dtype, fused):
    """state_dict through torch.save and torch.load(weights_only=True), for all types of parameters."""
    half = dtype in (torch.bfloat16, torch.float16)
    options = {} if half else {"fused": fused}
    model = network(dtype)
    optimizer = make(model, **options)
    for _ in range(4):
        optimizer.step(closure_of(model, optimizer))
    buffer = io.BytesIO()
    torch.save([model.state_dict(), optimizer.state_dict()], buffer)
    buffer.seek(0)
    saved_model, saved = torch.load(buffer, weights_only=True)
    other = network(dtype)
    other.load_state_dict(saved_model)
    resumed = make(other, seed=99, **options)
    resumed.load_state_dict(saved)
    for m, o in ((model, optimizer), (other, resumed)):
        for _ in range(4):
            o.step(closure_of(m, o))
    np.testing.assert_array_equal(vector(model), vector(other))
    for group in resumed.param_groups:
        for p in group["params"]:
            if half and resumed.state[p]:
                assert resumed.state[p]["momentum"].dtype == torch.float32


@for_every_optimiser
def test_groups_hold_plain_values_only(make):
    model = network()
    optimizer = make(model)
    optimizer.step(closure_of(model, optimizer))

    def plain(value):
        if isinstance(value, (list, tuple)):
            return all(map(plain, value))
        if isinstance(value, dict):
            return all(isinstance(key, str) and plain(own) for key, own in value.items())
        return value is None or isinstance(value, (bool, int, float, str))

    for group in optimizer.param_groups:
        assert all(plain(value) for key, value in group.items() if key != "params"), group


@for_every_optimiser
@pytest.mark.parametrize("fused", [True, False])
def test_parameters_without_a_gradient_are_skipped(make, fused):
    model = network()
    model[2].weight.requires_grad_(False)
    optimizer = make(model, fused=fused)
    before = model[2].weight.clone()
    for _ in range(3):
        optimizer.step(closure_of(model, optimizer))
    assert torch.equal(model[2].weight, before)
    assert not optimizer.state[model[2].weight]
    model[2].weight.requires_grad_(True)
    optimizer.step(closure_of(model, optimizer))
    assert not torch.equal(model[2].weight, before)
    assert optimizer.state[model[2].weight]["step"] == 1


@for_every_optimiser
def test_maximize_climbs(make):
    """The run is that with the sign of the loss turned."""
    one, two = network(), network()
    down, up = make(one), make(two, maximize=True)
    for _ in range(5):
        down.step(closure_of(one, down))
        up.zero_grad()
        (-loss_of(two)).backward()
        up.step()
    np.testing.assert_allclose(vector(one), vector(two), rtol=1e-14)


def test_maximize_may_be_changed_between_steps():
    """The run is that with the sign of the loss turned at the same steps."""
    one, two = network(), network()
    down, turned = ht.LOL(one, seed=1), ht.LOL(two, seed=1)
    for n in range(6):
        down.step(closure_of(one, down))
        for group in turned.param_groups:
            group["maximize"] = n >= 3
        turned.zero_grad()
        (-loss_of(two) if n >= 3 else loss_of(two)).backward()
        turned.step()
    np.testing.assert_allclose(vector(one), vector(two), rtol=1e-14)


@for_every_optimiser
@pytest.mark.parametrize("fused", [True, False])
def test_a_backward_through_a_graph_from_before_the_step_raises(make, fused):
    model = network()
    optimizer = make(model, fused=fused)
    stale = loss_of(model)
    optimizer.step(closure_of(model, optimizer))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        stale.backward()


@for_every_optimiser
def test_the_global_generator_is_not_touched(make):
    model = network()
    optimizer = make(model)
    optimizer_plain = make(network(), fused=False)
    state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    optimizer.step(closure_of(model, optimizer))
    optimizer_plain.step()
    assert torch.equal(torch.get_rng_state(), state)
    assert np.array_equal(np.random.get_state()[1], numpy_state)  # noqa: NPY002


@pytest.mark.parametrize("fused", [True, False])
def test_tensors_of_one_shape_have_noise_of_their_own(fused):
    parameters = [torch.nn.Parameter(torch.zeros(1000, dtype=torch.float64)) for _ in range(2)]
    optimizer = ht.Langevin(parameters, 0.1, 1.0, 1e-2, fused=fused)
    for p in parameters:
        p.grad = torch.zeros_like(p)
    optimizer.step()
    one, two = (p.detach() for p in parameters)
    assert abs(torch.corrcoef(torch.stack([one, two]))[0, 1]) < 4.5 / math.sqrt(1000)


@for_every_optimiser
def test_the_momenta_of_bfloat16_let_small_steps_add_up(make):
    """A step is far below the spacing of bfloat16 numbers near 1; the float32 copy keeps it."""
    model = network(torch.bfloat16)
    optimizer = make(model)
    for group in optimizer.param_groups:
        group["lr"] = 1e-5
    closure_of(model, optimizer)()
    optimizer.step()
    p = model[0].weight
    assert optimizer.state[p]["copy"].dtype == torch.float32
    moved = (optimizer.state[p]["copy"] - p.float()).abs().max()
    assert moved < 0.01  # the parameter is the rounded copy
    assert torch.equal(optimizer.state[p]["copy"].bfloat16(), p)


def test_gradient_clipping_autocast_and_a_scaler():
    """A loop in mixed precision has all three; the scaler skips a step whose gradients are not finite."""
    model = network(torch.float32)
    optimizer = ht.AdLaLa(model, lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
    for n in range(4):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output = model(X.float())
        loss = torch.nn.functional.binary_cross_entropy_with_logits(output.float(), Y.float())
        scaler.scale(loss * (math.inf if n == 2 else 1.0)).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        before = vector(model)
        scaler.step(optimizer)
        scaler.update()
        assert np.array_equal(vector(model), before) == (n == 2)
    assert optimizer.param_groups[0]["step"] == 3


def test_a_compiled_model_trains_as_the_model_itself():
    one, two = network(), network()
    compiled = torch.compile(two, backend="eager")
    first, second = ht.AdLaLa(one, lr=0.1, seed=1), ht.AdLaLa(two, lr=0.1, seed=1)
    for _ in range(5):
        first.step(closure_of(one, first))
        second.zero_grad()
        torch.nn.functional.binary_cross_entropy_with_logits(compiled(X), Y).backward()
        second.step()
    np.testing.assert_allclose(vector(one), vector(two), atol=1e-12)


def test_mixed_types_in_one_group_take_the_plain_way():
    parameters = [
        torch.nn.Parameter(torch.ones(5, dtype=kind))
        for kind in (torch.float32, torch.float64, torch.bfloat16, torch.float16)
    ]
    optimizer = ht.AdaptiveLangevin(parameters, 0.1, 1e-3, 0.01, 0.1)
    for _ in range(3):
        for p in parameters:
            p.grad = torch.ones_like(p)
        optimizer.step()
    for p in parameters:
        assert torch.isfinite(p).all()
        assert (p < 1).all()


def test_fused_true_says_what_it_needs():
    transposed = torch.nn.Parameter(torch.randn(4, 6).t())
    transposed.grad = torch.ones(4, 6).t()
    other = ht.Langevin([transposed], 0.1, 1.0, 1e-3, fused=True)
    with pytest.raises(RuntimeError, match=r"fused=True needs .* contiguous"):
        other.step()


@pytest.mark.parametrize("layout", ["transposed", "channels_last"])
def test_other_layouts_take_the_plain_way(layout):
    if layout == "transposed":
        parameter = torch.nn.Parameter(torch.randn(4, 6, dtype=torch.float64).t())
    else:
        parameter = torch.nn.Parameter(
            torch.randn(2, 3, 4, 4, dtype=torch.float64).to(memory_format=torch.channels_last)
        )
    optimizer = ht.Langevin([parameter], 0.1, 1.0, 0.0)
    before = parameter.detach().clone()
    parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    assert parameter.stride() == before.stride()
    a, h = math.exp(-0.1), 0.1
    expected = before - h / 2 * h / 2 * (1 + a)  # BAOA with p = 0 and G = -1
    assert torch.allclose(parameter.detach(), expected, rtol=1e-12)


def test_a_new_group_is_a_part_with_a_xi_of_its_own():
    model, extra = network(), torch.nn.Parameter(torch.ones(5, dtype=torch.float64))
    optimizer = ht.AdLaLa(model, lr=0.1)
    optimizer.step(closure_of(model, optimizer))
    optimizer.add_param_group({"params": [extra], "method": hb.AdaptiveLangevin(1e-3, 0.01, 0.1, xi=2.0)})
    extra.grad = torch.ones_like(extra)
    closure = closure_of(model, optimizer)
    closure()
    extra.grad = torch.ones_like(extra)
    optimizer.step()
    assert optimizer.param_groups[-1]["step"] == 2
    assert optimizer.param_groups[-1]["xi"] != optimizer.param_groups[0]["xi"]
    assert not torch.equal(extra.detach(), torch.ones(5, dtype=torch.float64))


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda m: ht.AdLaLa(m.parameters()), "parameters without names do not tell which layer is the last"),
        (lambda m: ht.AdLaLa(), "a model is needed"),
        (lambda m: ht.AdLaLa(m[0]), "a hidden layer and an output layer are needed"),
        (lambda m: ht.AdLaLa(torch.nn.Sequential(m, torch.nn.LayerNorm(1))), "is a normalisation"),
        (lambda m: ht.Partitioned(m.parameters(), 0.1), 'every group needs "params" and a "method"'),
        (
            lambda m: ht.Partitioned([{"params": m.parameters(), "method": "x"}], 0.1),
            "must be a method such as",
        ),
        (lambda m: ht.Langevin(m, 0.1, 1.0, [1e-3, 1e-2]), "a list is an axis of a sweep"),
        (lambda m: ht.Langevin(m, -0.1, 1.0, 1e-3), "lr must be >= 0"),
        (lambda m: ht.Langevin(m, 0.1, 1.0, 1e-3, seed=-1), "seed must be a whole number"),
        (lambda m: ht.Langevin(m, 0.1, 1.0, 1e-3, fused=1), "fused must be True, False or None"),
        (lambda m: ht.Langevin(3, 0.1, 1.0, 1e-3), "a module or its parameters are needed"),
        (
            lambda m: ht.Partitioned(
                [{"params": m.parameters(), "method": ADAPTIVE, "differentiable": True}], 0.1
            ),
            "differentiable=True is not supported",
        ),
        (
            lambda m: ht.AdLaLa([{"params": m.parameters(), "part": "head"}]),
            "'hidden' or 'output', got 'head'",
        ),
    ],
)
def test_what_cannot_be_optimised_is_refused(call, told):
    with pytest.raises((TypeError, ValueError), match=told):
        call(network())


def test_words_with_several_gradients_and_tempering_ask_for_a_closure():
    model = network()
    for optimizer, told in (
        (ht.Langevin(model, 0.1, 1.0, 1e-3, "BAOBA"), "needs 2 gradients per step needs step"),
        (ht.Langevin(model, 0.1, 1.0, LADDER), "simulated tempering needs step"),
    ):
        closure_of(model, optimizer)()
        with pytest.raises(RuntimeError, match=told):
            optimizer.step()


# The law, through the real step

K, TAU, H = 2.0, 0.3, 0.5
COPIES = 100_000  # of one parameter: as many independent chains


def sample_quadratic(method, fused, dtype, steps=80):
    """Return copies of a parameter on a quadratic, after enough steps to forget their start."""
    theta = torch.nn.Parameter(torch.zeros(COPIES, dtype=dtype))
    optimizer = ht.Partitioned([{"params": [theta], "method": method}], H, seed=11, fused=fused)
    for _ in range(steps):
        theta.grad = K * theta.detach()
        optimizer.step()
    return theta.detach().double()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize(
    "method",
    [
        *(hb.Langevin(1.0, TAU, word) for word in ("BAOAB", "OBABO", "OBA", "ABOBA", "BAOA")),
        hb.Langevin(math.inf, TAU),
        hb.AdaptiveLangevin(TAU, 0.8, epsilon=0.0, xi=1.1),
    ],
)
def test_the_variance_is_that_of_the_lyapunov_equation(method, fused, dtype):
    """Within 4.5 standard errors over 100,000 copies (error rate 7e-6); 3 % off would be seen."""
    V = hb.quadratic.covariance(hb.Partition(method, H), K)[0, 0]
    theta = sample_quadratic(method, fused, dtype)
    error = V * math.sqrt(2 / COPIES)
    assert abs(theta.square().mean() - V) < 4.5 * error
    assert abs(theta.square().mean() - 1.03 * V) > 2 * error
    assert abs(theta.mean()) < 4.5 * math.sqrt(V / COPIES)


@pytest.mark.parametrize("fused", [True, False])
def test_the_temperature_of_a_langevin_part_is_read_before_its_o(fused):
    """Where BAOAB reads it, on a quadratic: the exact law there, within 4.5 standard errors."""
    theta = torch.nn.Parameter(torch.zeros(20_000, dtype=torch.float64))
    optimizer = ht.Langevin([theta], H, 1.0, TAU, fused=fused)
    for n in range(300):
        if n == 60:
            optimizer.forget_past()
        theta.grad = K * theta.detach()
        optimizer.step()
    partition = hb.Partition(hb.Langevin(1.0, TAU), H)
    V = hb.quadratic.covariance(partition, K, rotated=False)  # at the end of the word; B and A bring p to O
    kick = np.array([[1.0, 0.0], [-H / 2 * K, 1.0]])
    at_o = np.array([[1.0, H / 2], [0.0, 1.0]]) @ kick @ V @ kick.T @ np.array([[1.0, 0.0], [H / 2, 1.0]])
    (heat,) = optimizer.temperature().values()
    assert abs(heat.value - at_o[1, 1]) < 4.5 * heat.error
    assert heat.error < 0.01 * TAU
    assert optimizer.friction() == {"0": (1.0, 0.0)}
    assert optimizer.gradient_noise() == {}


def test_sgld_samples_half_its_sigma_squared():
    """θ += -h k θ + σ sqrt(h) R has the variance σ²/(2k - h k²)."""
    for fused in (True, False):
        theta = sample_quadratic(hb.SGLD(0.7), fused, torch.float64)
        V = 0.7**2 / (2 * K - H * K**2)
        assert abs(theta.square().mean() - V) < 4.5 * V * math.sqrt(2 / COPIES)


@pytest.mark.parametrize("fused", [True, False])
def test_adaptive_langevin_is_at_its_temperature_whatever_noise_the_gradient_has(fused):
    """The mean of p·p at E is exactly Nτ + (ξ_T - ξ_0)/(hεT), and ξ has found the friction of the noise."""
    theta = torch.nn.Parameter(torch.zeros(1000, dtype=torch.float64))
    optimizer = ht.AdaptiveLangevin([theta], 0.2, TAU, 0.1, 0.002, fused=fused)
    generator = torch.Generator().manual_seed(0)
    noise = 2.0
    friction = []
    for _ in range(3000):
        theta.grad = K * theta.detach() + noise * torch.randn(1000, generator=generator, dtype=torch.float64)
        optimizer.step()
        friction.append(optimizer.param_groups[0]["xi"])
        if len(friction) == 1000:
            optimizer.forget_past()
    expected = (0.2 * noise**2 + 0.1**2) / (2 * TAU)
    assert np.mean(friction[1000:]) == pytest.approx(expected, rel=0.05)
    (told,) = optimizer.friction().values()
    assert told.value == pytest.approx(np.mean(friction[1000:]), rel=1e-9)
    (heat,) = optimizer.temperature().values()
    exact = TAU + (friction[-1] - friction[999]) / (0.2 * 0.002 * 2000) / 1000  # of the sum at E, always
    assert heat.value == pytest.approx(exact, rel=1e-9)
    assert 0 < heat.error < 0.01 * TAU
    (found,) = optimizer.gradient_noise().values()
    assert found.value == pytest.approx(noise**2, rel=0.05)
    assert theta.detach().square().mean().item() * K == pytest.approx(TAU, rel=0.15)


def test_a_group_whose_shards_cannot_be_stepped_is_not_added(monkeypatch):
    model, extra = torch.nn.Linear(2, 1), torch.nn.Parameter(torch.zeros(2))
    optimizer = ht.Langevin(model, lr=0.1, gamma=1.0, tau=1e-3)

    def refuse(tensor):
        raise RuntimeError("sharded in another way")

    with monkeypatch.context() as context:
        context.setattr("heatbath.torch.optim.sharding.shard_of", refuse)
        with pytest.raises(RuntimeError, match="sharded in another way"):
            optimizer.add_param_group({"params": [extra], "method": hb.SGD()})
    assert len(optimizer.param_groups) == 1
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    optimizer.add_param_group({"params": [extra], "method": hb.SGD()})
    assert len(optimizer.param_groups) == 2
