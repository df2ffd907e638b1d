"""Many chains of a module: each is the trajectory of the module alone, with its number."""

import copy
import warnings
from functools import partial

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import heatbath as hb
import heatbath.torch as ht
from heatbath.methods.schedules import SimulatedTempering

COUNT = 3


def network(kind=torch.float64):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(2, 6), torch.nn.Tanh(), torch.nn.Linear(6, 2)).to(kind)


def data(kind=torch.float64):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(12, 2, dtype=kind, generator=generator)
    return x, torch.randint(2, (12,), generator=generator)


def make_modules(chains):
    """Return the modules of the chains, each by itself."""
    modules = [copy.deepcopy(chains.model) for _ in range(chains.count)]
    for k, module in enumerate(modules):
        chains.load_into(module, k)
    return modules


def largest_distance(chains, modules):
    """Return how far the chains are from modules, at most."""
    pairs = zip(chains.states(), modules, strict=True)
    return max((state[n] - v).abs().max().item() for state, m in pairs for n, v in m.state_dict().items())


LADDER = SimulatedTempering((0.05, 0.1, 0.2), every=2, weights=(0.0, 0.1, 0.2))
OPTIMISERS = {
    "AdLaLa": lambda m, **o: ht.AdLaLa(m, lr=0.1, tau=0.02, sigma=0.3, epsilon=0.2, **o),
    "AdLAdL": lambda m, **o: ht.AdLAdL(m, lr=0.1, tau=0.02, sigma=0.3, thermostat="tensor", **o),
    "Langevin": lambda m, **o: ht.Langevin(m, 0.1, 1.0, 0.3, **o),
    "at the kick": lambda m, **o: ht.Langevin(m, 0.1, 1.0, 0.3, word="OBABO", **o),
    "SGLD": lambda m, **o: ht.SGLD(m, 0.1, 0.2, **o),
    "Adam": lambda m, **o: ht.Adam(m, 0.01, weight_decay=0.1, **o),
    "tempered": lambda m, **o: ht.Langevin(m, 0.1, 1.0, LADDER, weight_decay=0.1, **o),
}


def train(optimizer, losses, steps=6):
    """Make some steps, with a closure, since tempering needs it."""

    def closure():
        optimizer.zero_grad()
        values = losses()
        values.sum().backward()
        return values

    for _ in range(steps):
        optimizer.step(closure)


@pytest.mark.parametrize("fused", [None, False])
@pytest.mark.parametrize("name", OPTIMISERS)
def test_chain_k_is_the_module_alone_with_the_number_k(name, fused):
    (x, y), make = data(), OPTIMISERS[name]
    chains = ht.Chains(network(), COUNT)
    modules = make_modules(chains)
    assert largest_distance(chains, modules) == 0
    assert largest_distance(chains, modules[::-1]) > 0.1  # they start at different places
    optimizer = make(chains, seed=5, fused=fused, chain=4)
    train(optimizer, lambda: chains.each(F.cross_entropy, chains(x), y))
    others = [make(module, seed=5, fused=fused, chain=4 + k) for k, module in enumerate(modules)]
    for module, other in zip(modules, others, strict=True):
        train(other, lambda module=module: F.cross_entropy(module(x), y))
    assert largest_distance(chains, modules) < 1e-13
    for group, *theirs in zip(optimizer.param_groups, *(o.param_groups for o in others), strict=True):
        for key in ("xi", "rung"):
            if key in group:
                np.testing.assert_allclose(group[key], [own[key] for own in theirs], rtol=1e-12)
    for k, other in enumerate(others):
        for part, mine in optimizer.temperature(4 + k).items():
            assert mine.value == pytest.approx(other.temperature()[part].value, rel=1e-12)
    same = copy.deepcopy(modules[1])
    train(make(same, seed=5, fused=fused, chain=4), lambda: F.cross_entropy(same(x), y))
    if name != "Adam":  # which has no noise
        assert largest_distance(chains, [modules[0], same, modules[2]]) > 1e-3  # the number matters


def test_the_numbers_of_a_chain_are_those_of_the_definition():
    model = torch.nn.Linear(3, 1, bias=False).double()
    optimizer = ht.Langevin(ht.Chains(model, 2, "same"), 0.3, float("inf"), 0.49, seed=11)
    (parameter,) = optimizer.param_groups[0]["params"]
    parameter.grad = torch.zeros_like(parameter)
    optimizer.step()  # O is p = sqrt(τ) R, and BAOAB opens with B A, O, A: θ moves by h/2 p twice, less one
    for chain in (0, 1):
        R = hb.noise.normals(11, hb.noise.NOISE, 0, chain, 0, 0, 3)
        moved = (parameter[chain] - model.weight).detach().numpy().ravel()
        np.testing.assert_allclose(moved, 0.15 * 0.7 * np.ravel(R), rtol=1e-12)


def test_the_sampled_variance_is_that_of_each_chain():
    x, _ = data()
    y = x.sum(dim=1, keepdim=True)
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1).double()
    posterior = ht.LossPosterior("mse_loss", len(x))
    chains = ht.Chains(model, COUNT)
    modules = make_modules(chains)
    optimizer = ht.Langevin(chains, 0.05, 1.0, posterior=posterior, seed=3)
    others = [ht.Langevin(m, 0.05, 1.0, posterior=posterior, seed=3, chain=k) for k, m in enumerate(modules)]
    for _ in range(3):
        with torch.no_grad():
            drawn = optimizer.draw_noise(chains(x) - y)
            assert drawn == optimizer.noise
            single = [other.draw_noise(m(x) - y) for other, m in zip(others, modules, strict=True)]
        np.testing.assert_allclose(drawn, single, rtol=1e-12)
        assert len(set(drawn)) == COUNT
        train(optimizer, lambda: chains.each(F.mse_loss, chains(x), y), steps=2)
        for other, module in zip(others, modules, strict=True):
            train(other, lambda module=module: F.mse_loss(module(x), y), steps=2)
    assert largest_distance(chains, modules) < 1e-13
    with pytest.raises(ValueError, match="chains, examples"):
        optimizer.draw_noise(torch.zeros(len(x), 1))


class Point(torch.nn.Module):
    """A parameter in a quadratic well."""

    def __init__(self, size=2):
        super().__init__()
        self.theta = torch.nn.Parameter(torch.zeros(size, dtype=torch.float64))

    def forward(self, k):
        return 0.5 * (k * self.theta**2).sum()


def test_chains_with_a_thermostat_each_have_their_law():
    """θ and ξ of adaptive Langevin dynamics have their laws at a temperature that is not 1.

    var θ = τ/k (BAFEFAB). ξ has the mean σ²/(2τ) and the variance ετ over the chains, which one ξ for all
    would not have.
    """
    count, size, tau, k, sigma, epsilon = 200, 20, 0.3, 2.0, 0.5, 0.05
    chains, mean = ht.Chains(Point(size), count, "same"), sigma**2 / (2 * tau)
    optimizer = ht.AdaptiveLangevin(chains, 0.2, tau, sigma, epsilon, "BAFEFAB", xi=mean, seed=2)
    train(optimizer, lambda: chains(torch.tensor(k, dtype=torch.float64)), steps=100)
    xi = np.array(optimizer.param_groups[0]["xi"])
    assert abs(xi.mean() - mean) < 4.5 * np.sqrt(epsilon * tau / count)
    assert abs(xi.var() / (epsilon * tau) - 1) < 4.5 * np.sqrt(2 / count)
    found = k * chains.theta.detach().square().mean().item() / tau
    assert abs(found - 1) < 4.5 * np.sqrt(2 / (count * size))


def test_five_hundred_chains_have_the_variance_of_their_law():
    chains, tau, k = ht.Chains(Point(), 500, "same"), 0.3, torch.tensor([1.0, 4.0], dtype=torch.float64)
    optimizer = ht.Langevin(chains, 0.2, 1.0, tau, seed=1)
    train(optimizer, lambda: chains(k), steps=150)
    found = chains.theta.detach().var(dim=0).numpy() * k.numpy() / tau  # BAOAB has the right one exactly
    assert (abs(found - 1) < 4 * np.sqrt(2 / 500)).all(), found
    heat = optimizer.temperature()["0"]
    assert abs(heat.value - tau) < 5 * heat.error
    assert heat.error < optimizer.temperature(7)["0"].error / 10


def test_starts():
    model = network()
    fresh, same = ht.Chains(model, 2), ht.Chains(model, 2, "same")
    weights = fresh.get_parameter("0/weight")
    assert torch.equal(weights[0], model[0].weight)
    assert not torch.equal(weights[1], model[0].weight)
    assert torch.equal(*same.get_parameter("0/weight"))
    assert [n for n, _ in fresh.named_parameters()] == ["0/weight", "0/bias", "2/weight", "2/bias"]
    made = ht.Chains(model, 2, lambda k: network().requires_grad_(False) if k else model)
    assert torch.equal(*made.get_parameter("2/weight"))
    assert made.get_parameter("2/weight").requires_grad

    class Bare(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.zeros(2))

    for start, match in [
        ("fresh", "no reset_parameters"),
        ("warm", "'fresh'"),
        (lambda k: model, "start.0."),
    ]:
        with pytest.raises((ValueError, TypeError), match=match):
            ht.Chains(Bare(), 2, start)
    for wrong in (0, 1.5):
        with pytest.raises((ValueError, TypeError), match="count"):
            ht.Chains(model, wrong)
    with pytest.raises(TypeError, match="module"):
        ht.Chains(fresh, 2)
    with pytest.raises(ValueError, match="lazy"):
        ht.Chains(torch.nn.LazyLinear(2), 2)


def test_a_chain_is_loaded_into_a_module_of_its_architecture_only():
    chains = ht.Chains(network(), 2)
    other = torch.nn.ModuleDict({"inner": network()})
    before = copy.deepcopy(other.state_dict())
    with pytest.raises(
        ValueError, match=r"only one of the two has 0.bias, 0.weight, 2.bias, 2.weight, inner.0.bias"
    ):
        chains.load_into(other, 1)
    assert all(torch.equal(before[name], value) for name, value in other.state_dict().items())


def test_dropout_is_of_each_chain_and_so_are_the_statistics_of_batch_norm():
    x, _ = data()
    dropped = ht.Chains(torch.nn.Sequential(torch.nn.Linear(2, 50), torch.nn.Dropout()).double(), 2, "same")
    assert not torch.equal(*dropped(x))
    assert torch.equal(*dropped.eval()(x))
    assert not dropped.model.training

    def norm():
        return torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.BatchNorm1d(4)).double()

    chains = ht.Chains(norm(), 2, lambda k: norm())
    modules = make_modules(chains)
    said = chains(x)
    torch.testing.assert_close(said, torch.stack([module(x) for module in modules]))
    assert largest_distance(chains, modules) < 1e-14  # the running statistics, too
    assert int(chains.get_buffer("1/num_batches_tracked")[1]) == 1
    each = torch.stack([x, x + 1])
    torch.testing.assert_close(
        chains.eval()(each, each=True), torch.stack([m.eval()(v) for m, v in zip(modules, each, strict=True)])
    )
    with pytest.raises(ValueError, match="2 chains"):
        chains(x, each=True)


@pytest.mark.parametrize("at_once", [True, False])
def test_inputs_of_each_chain_may_be_in_dicts_and_lists(at_once):
    class Named(torch.nn.Linear):
        def forward(self, inputs, *, others):
            turned = at_once or float(self.weight.detach().sum()) > -9.0  # which vmap cannot ask
            return super().forward(inputs["x"] + others[0]) * turned * others[1]

    x, _ = data()
    chains = ht.Chains(Named(2, 1).double(), 3)
    each = torch.stack([x, x + 1, x + 2])
    with warnings.catch_warnings():
        warnings.simplefilter("error" if at_once else "ignore")
        said = chains({"x": each}, others=[each, 2.0], each=True)
    for k, module in enumerate(make_modules(chains)):
        torch.testing.assert_close(said[k], module({"x": each[k]}, others=[each[k], 2.0]), rtol=0, atol=1e-14)
    with pytest.raises(ValueError, match="3 chains"):
        chains({"x": x}, others=[each, 2.0], each=True)


def test_what_can_be_called_at_once_in_one_mode_only_is_called_in_both():
    x, _ = data()
    model = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.BatchNorm1d(4, momentum=None)).double()
    chains = ht.Chains(model, 2).eval()
    chains(x)
    assert chains.manner == "called at once"
    modules = [module.train() for module in make_modules(chains.train())]
    with pytest.warns(RuntimeWarning, match="one after the other"):  # its count of batches is asked for
        said = chains(x)
    torch.testing.assert_close(said, torch.stack([module(x) for module in modules]), rtol=0, atol=1e-14)
    assert largest_distance(chains, modules) < 1e-14


class Masked(torch.nn.Module):
    """A module with a buffer that is not finite, as masks of attention are, and one that changes."""

    def __init__(self):
        super().__init__()
        self.linear, self.norm = torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)
        self.register_buffer("mask", torch.tensor([0.0, float("-inf")]))

    def forward(self, x):
        return self.norm(self.linear(x)) + torch.softmax(self.mask, dim=0)


def test_a_mask_that_is_not_finite_is_no_divergence():
    x = torch.randn(8, 2)
    chains = ht.Chains(Masked(), COUNT).eval()
    assert chains.alive().all()
    samples = ht.Samples(chains)
    samples.take()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        whole = ht.predict(chains, samples, x, task="regression")
    assert whole.mean.isfinite().all()
    with torch.no_grad():
        chains.get_buffer("norm/running_var")[0] = float("inf")
        chains.get_parameter("linear/weight")[2] = float("nan")
    assert chains.alive().tolist() == [False, True, False]
    samples.take()
    with pytest.warns(RuntimeWarning, match="2 of 6 states"):
        ht.predict(chains, samples, x, task="regression")
    with torch.no_grad():
        chains.get_parameter("linear/weight").fill_(float("nan"))
    with pytest.raises(ValueError, match="all chains have diverged"):
        ht.predict(chains, [chains.state_dict()], x, task="regression")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of so few draws
        ht.llc(Masked(), F.mse_loss, (x, torch.zeros(8, 2)), burn_in=0, draws=4, lr=0.1)


def test_what_cannot_be_called_at_once_is_called_one_after_the_other_and_says_so():
    class Branching(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x) * (2 if float(self.weight.detach().sum()) > 0 else 1)

    x, _ = data()
    chains = ht.Chains(Branching(2, 1).double(), 4)
    with pytest.warns(RuntimeWarning, match="one after the other"):
        said = chains(x)
    torch.testing.assert_close(said, torch.stack([module(x) for module in make_modules(chains)]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(chains(x), said)
        assert chains.manner == "one after the other"
    said.sum().backward()
    assert chains.weight.grad.shape == (4, 1, 2)
    with pytest.raises(RuntimeError, match="mat1"):  # a mistake of the user is none of vmap's
        ht.Chains(network(), 2)(torch.ones(3, 5, dtype=torch.float64))


def test_an_attempt_at_once_that_fails_leaves_nothing_behind():
    """Statistics of batch norms and torch's generator are as if it had not been."""

    class Branching(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.drop = torch.nn.BatchNorm1d(2, momentum=None).double(), torch.nn.Dropout()

        def forward(self, x):
            said = self.drop(self.norm(x))
            return said * (2 if float(self.norm.weight.detach().sum()) > 0 else 1)

    x, _ = data()
    chains = ht.Chains(Branching(), 2, "same")
    modules = make_modules(chains)
    torch.manual_seed(3)
    with pytest.warns(RuntimeWarning, match="one after the other"):
        said = chains(x)
    torch.manual_seed(3)
    torch.testing.assert_close(said, torch.stack([module(x) for module in modules]), rtol=0, atol=1e-14)
    assert largest_distance(chains, modules) < 1e-14
    assert chains.get_buffer("norm/num_batches_tracked").tolist() == [1, 1]


def test_a_chain_that_diverges_leaves_the_others_as_they_are():
    (x, y), outcomes = data(), []
    for broken in (False, True):
        chains = ht.Chains(network(), COUNT, "same")
        if broken:
            with torch.no_grad():
                chains.get_parameter("0/weight")[1] = float("nan")
        train(ht.AdLaLa(chains, lr=0.1, seed=1), lambda c=chains: c.each(F.cross_entropy, c(x), y))
        outcomes.append(list(chains.states()))
    assert chains.alive().tolist() == [True, False, True]
    for k in (0, 2):
        assert all(torch.equal(outcomes[0][k][name], outcomes[1][k][name]) for name in outcomes[0][k])


def test_a_chain_that_diverges_is_left_out_of_means_and_named():
    x, y = data()
    chains = ht.Chains(network(), COUNT, "same")
    optimizer = ht.AdLaLa(chains, lr=0.1, seed=1, chain=5)
    run = partial(train, optimizer, lambda: chains.each(F.cross_entropy, chains(x), y))
    run(steps=9)
    assert optimizer.diverged == {}
    with torch.no_grad():
        chains.get_parameter("0/weight")[1] = float("nan")
    run(steps=3)
    assert optimizer.diverged == {6: (9, "0")}
    with pytest.warns(hb.DivergedWarning, match=r"6 \(at step 9, in '0'\)"):
        heats = optimizer.temperature()
    with pytest.warns(hb.DivergedWarning):
        frictions = optimizer.friction()
    for part, heat in heats.items():
        alive = [optimizer.temperature(number)[part] for number in (5, 7)]
        assert heat.value == pytest.approx(sum(each.value for each in alive) / 2, rel=1e-12)
        assert np.isfinite(heat.configurational.value)
        assert np.isfinite(frictions[part].value)
    assert "diverged" in repr(optimizer.temperature(6)["0"])


@pytest.mark.parametrize("fused", [None, False])
@pytest.mark.parametrize("name", ["SGLD", "Adam"])
def test_a_chain_that_diverges_is_named_where_no_temperature_is_read(name, fused):
    x, y = data()
    chains = ht.Chains(network(), COUNT, "same")
    optimizer = OPTIMISERS[name](chains, seed=1, chain=5, fused=fused)
    run = partial(train, optimizer, lambda: chains.each(F.cross_entropy, chains(x), y))
    run(steps=9)
    assert optimizer.diverged == {}
    with torch.no_grad():
        chains.get_parameter("2/bias")[1, 0] = float("inf")
    run(steps=9)
    assert optimizer.diverged == {6: (16, "0")}  # at every eighth step it is looked at


@pytest.mark.parametrize("name", ["AdLaLa", "AdLAdL", "tempered"])
def test_chains_that_are_saved_and_loaded_go_on_as_if_nothing_had_been(name):
    (x, y), make = data(), OPTIMISERS[name]
    chains = ht.Chains(network(), COUNT)
    optimizer = make(chains, seed=5)
    train(optimizer, lambda: chains.each(F.cross_entropy, chains(x), y))
    again = ht.Chains(network(), COUNT)
    again.load_state_dict(copy.deepcopy(chains.state_dict()))
    other = make(again, seed=0)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for c, o in ((chains, optimizer), (again, other)):
        train(o, lambda c=c: c.each(F.cross_entropy, c(x), y))
    for a, b in zip(chains.states(), again.states(), strict=True):
        assert all(torch.equal(a[key], b[key]) for key in a)


@pytest.mark.parametrize("given", [lambda c: c.parameters(), lambda c: [{"params": c.parameters()}], list])
def test_stacked_parameters_are_known_for_those_of_chains(given):
    """Given alone, also of a copy: each chain has its ξ, N and noise, as where the chains are given."""
    x, y = data()
    ends = []
    for how in (lambda c: c, given):
        chains = copy.deepcopy(ht.Chains(network(), COUNT))
        params = how(chains) if given is not list or not ends else list(chains.parameters())
        optimizer = ht.AdaptiveLangevin(params, 0.1, 0.02, 0.3, 0.2, seed=5, posterior=None)
        train(optimizer, lambda c=chains: c.each(F.cross_entropy, c(x), y))
        ends.append((list(chains.states()), optimizer.param_groups[0]["xi"]))
    assert len(set(ends[0][1])) == COUNT
    assert ends[0][1] == ends[1][1]
    assert all(torch.equal(a[n], b[n]) for a, b in zip(*(e[0] for e in ends), strict=True) for n in a)
    with pytest.raises(ValueError, match="mixes the parameters of a Chains"):
        ht.Langevin([*chains.parameters(), torch.nn.Parameter(torch.zeros(3))], 0.1, 1.0, 0.1)
    with pytest.raises(ValueError, match="mixes the parameters of a Chains"):
        ht.Langevin([*chains.parameters(), *ht.Chains(network(), 2).parameters()], 0.1, 1.0, 0.1)


def test_groups_of_chains_are_named_by_the_parameters_of_their_module():
    model = network()
    chains = ht.Chains(model, COUNT)
    methods = hb.Langevin(1.0, 0.1), hb.AdaptiveLangevin(0.1, 0.1)
    groups = [
        {"params": part.parameters(), "method": m, "chains": chains}
        for part, m in zip(model[::2], methods, strict=True)
    ]
    optimizer = ht.Partitioned(groups, 0.1)
    assert optimizer.param_groups[1]["xi"] == [0.1] * COUNT
    assert "of 3 chains" in repr(optimizer)
    with pytest.raises(ValueError, match=r"chains\.model"):
        ht.Partitioned([{"params": chains.parameters(), "method": methods[0], "chains": chains}], 0.1)
    with pytest.raises(ValueError, match="same number of chains"):
        optimizer.add_param_group({"params": torch.nn.Linear(1, 1).parameters(), "method": methods[0]})


def test_samples_of_chains_predict_as_those_of_all_their_modules():
    x, y = data(torch.float32)
    chains = ht.Chains(network(torch.float32), COUNT)
    optimizer = ht.Langevin(chains, 0.1, 1.0, 0.1, seed=2)
    samples, states = ht.Samples(chains, thin=2), []
    for _ in range(6):
        train(optimizer, lambda: chains.each(F.cross_entropy, chains(x), y), steps=1)
        samples.take()
        if len(samples) > len(states) // COUNT:
            states += [{name: v.clone() for name, v in state.items()} for state in chains.states()]
    mine = ht.predict(chains, samples, x, task="classes")
    theirs = ht.predict(chains.model, states, x, task="classes")
    assert len(states) == 9
    assert torch.equal(mine.mean, theirs.mean)
    assert torch.equal(mine.variance, theirs.variance)
    agreed = ht.module_convergence(chains, [*samples, *samples], x)
    assert agreed.ess_worst <= agreed.ess
    assert agreed.rhat <= agreed.rhat_worst


def test_a_group_of_chains_can_be_added_later_and_a_state_of_another_number_of_chains_is_refused():
    model = network()
    chains = ht.Chains(model, COUNT)
    first, last = ({"params": part.parameters(), "chains": chains} for part in model[::2])
    optimizer = ht.Partitioned([first | {"method": hb.Langevin(1.0, 0.1)}], 0.1, seed=1)
    train(optimizer, lambda: chains(data()[0]).square().sum(dim=(1, 2)), steps=1)
    optimizer.add_param_group(last | {"method": hb.AdaptiveLangevin(0.1, 0.1)})
    assert optimizer.param_groups[1]["xi"] == [0.1] * COUNT
    assert [p.shape[0] for p in optimizer.param_groups[1]["params"]] == [COUNT] * 2
    for other in (ht.Chains(model, COUNT + 1), model):  # before its first step, when no momentum can tell
        state = ht.AdaptiveLangevin(other, 0.1, 0.1, seed=1).state_dict()
        with pytest.raises(ValueError, match=r"of (4 chains|one chain), but this optimiser has 3 chains"):
            ht.AdaptiveLangevin(chains, 0.1, 0.1, seed=1).load_state_dict(state)


class Named(torch.nn.Module):
    """A module whose parameters are named like attributes of `Chains`, or alike but for dots.

    It takes and returns more than tensors.
    """

    def __init__(self):
        super().__init__()
        self.count = torch.nn.Parameter(torch.ones(2))
        self.parts = torch.nn.ModuleDict({"a/b": torch.nn.Linear(2, 2), "a": torch.nn.ModuleDict()})
        self.parts["a"]["b"] = torch.nn.Linear(2, 2)

    def forward(self, x, *, shift, more=None):
        said = self.parts["a/b"](x) * self.count + self.parts["a"]["b"](x) + shift
        return {"said": said, "loss": None, "kind": "linear"} if more else said


@pytest.mark.parametrize("more", [None, "more"])
def test_names_and_keywords_of_any_module(more):
    x = torch.randn(5, 2)
    chains = ht.Chains(Named(), COUNT, lambda k: Named())
    assert len(list(chains.parameters())) == 5
    each = torch.arange(COUNT, dtype=torch.float32)
    for shift, own, inputs in ((2.0, False, x), (each, True, torch.stack([x] * COUNT))):
        if more:  # which vmap cannot return
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)
                outputs = chains(inputs, each=own, shift=shift, more=more)
            assert (outputs["loss"], outputs["kind"]) == (None, "linear")
            outputs = outputs["said"]
        else:
            outputs = chains(inputs, each=own, shift=shift)
            assert chains.manner == "called at once"
        for k, module in enumerate(make_modules(chains)):
            torch.testing.assert_close(outputs[k], module(x, shift=float(k) if own else shift))


def test_what_does_not_move_is_not_initialised_anew():
    """A layer that was trained before, and is frozen."""
    model = network()
    model[0].requires_grad_(False)
    chains = ht.Chains(model, 2)
    assert torch.equal(*chains.get_parameter("0/weight"))
    assert not torch.equal(*chains.get_parameter("2/weight"))
    with pytest.raises(ValueError, match="no parameters"):
        ht.Chains(torch.nn.ReLU(), 2)
