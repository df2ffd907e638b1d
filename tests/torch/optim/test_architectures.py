"""Deep networks: parts by rule, frequencies, cycles, statistics of batch norms, frozen parameters."""

import json
import math
import warnings

import numpy as np
import pytest
import torch
from torch import nn

import heatbath as hb
import heatbath.torch as ht
from heatbath.methods.schedules import Cycle, Linear
from heatbath.torch.optim.architectures import EMBEDDINGS, VECTORS, block_names
from heatbath.torch.prediction.states import Fingerprint
from heatbath.torch.tuning.search_space import families
from tests.torch.deep import ResNet, gpt2

pytestmark = pytest.mark.filterwarnings("ignore:.*:UserWarning")


def parameters_by_part(optimizer):
    """Return the parameters of each part."""
    return {group["name"]: group["params"] for group in optimizer.param_groups}


def names_in(model, optimizer):
    known = {id(p): name for name, p in model.named_parameters()}
    return {part: [known[id(p)] for p in params] for part, params in parameters_by_part(optimizer).items()}


# Parts


def test_a_residual_network_has_a_part_for_each_block():
    model = ResNet()
    found = names_in(model, ht.AdLaLa(model, parts="blocks"))
    assert list(found) == ["stem", VECTORS, "stage1.0", "stage1.1", "stage2.0", "stage2.1", "head"]
    assert found["stage2.0"] == [f"stage2.0.{name}.weight" for name in ("conv1", "conv2", "shortcut")]
    assert all("norm" in name for name in found[VECTORS])
    assert found["head"] == ["head.weight", "head.bias"]
    together = [name for names in found.values() for name in names]
    assert sorted(together) == sorted(dict(model.named_parameters()))
    assert len(ht.AdLaLa(model).param_groups) == 20  # one for each layer, unless told


def small(kind, config, **options):
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 3, "num_attention_heads": 2}
    return getattr(transformers, kind)(
        getattr(transformers, config)(**sizes, intermediate_size=16, pad_token_id=0, **options)
    )


@pytest.mark.parametrize(
    ("make", "blocks", "output"),
    [
        (gpt2, ["transformer.h.0", "transformer.h.1"], "lm_head"),
        (lambda: small("BertForSequenceClassification", "BertConfig"),
         [f"bert.encoder.layer.{i}" for i in range(3)], "classifier"),
        (lambda: small("LlamaForCausalLM", "LlamaConfig", bos_token_id=1, eos_token_id=2),
         [f"model.layers.{i}" for i in range(3)], "lm_head"),
        (lambda: nn.Sequential(nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 3,
                               enable_nested_tensor=False), nn.Linear(8, 2)),
         [f"0.layers.{i}" for i in range(3)], "1"),
    ],
    ids=["gpt2", "bert", "llama", "torch"],
)  # fmt: skip
def test_a_transformer_has_a_part_for_each_layer_one_for_vectors_and_one_for_embeddings(make, blocks, output):
    model = make()
    optimizer = ht.AdLaLa(model, parts="blocks")
    found = names_in(model, optimizer)
    assert block_names(model) == blocks
    extra = {EMBEDDINGS, VECTORS, output, *blocks}
    assert set(found) - extra <= {"bert.pooler.dense"}
    assert (EMBEDDINGS in found) == (output != "1")
    assert all(model.get_parameter(name).dim() < 2 for name in found[VECTORS])
    for block in blocks:
        assert all(name.startswith(f"{block}.") for name in found[block])
    assert optimizer.param_groups[-1]["part"] == "output"
    assert optimizer.param_groups[-1]["name"] == output
    together = [name for names in found.values() for name in names]
    assert sorted(together) == sorted(dict(model.named_parameters()))


def test_a_head_that_shares_its_matrix_with_the_embeddings_is_the_output_layer():
    model = gpt2()
    found = parameters_by_part(ht.LOL(model, parts="blocks"))
    assert [id(p) for p in found["lm_head"]] == [id(model.transformer.wte.weight)]
    assert [id(p) for p in found[EMBEDDINGS]] == [id(model.transformer.wpe.weight)]
    with pytest.raises(ValueError, match="shares its parameters"):
        ht.LOL(model)  # by layers it is asked for


def test_layers_are_the_blocks_of_a_network_that_repeats_nothing():
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.LazyLinear(4), nn.ReLU(), nn.Linear(4, 1))
    optimizer = ht.AdLaLa(model, parts="blocks")
    assert list(parameters_by_part(optimizer)) == ["0", VECTORS, "2", "4"]
    model(torch.ones(5, 2)).sum().backward()
    optimizer.step()

    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = (nn.Sequential(nn.Linear(2, 2)) for _ in range(2))
            self.left, self.right = Pair(), Pair()
            self.last = nn.Linear(2, 1)

    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(2, 2), nn.Linear(2, 2)

    assert block_names(Own()) == ["left", "right"]


def test_what_cannot_be_divided_by_blocks_is_said():
    model = ResNet()
    for given, error, message in (
        (dict(params=list(model.named_parameters())), TypeError, "found in the module"),
        (dict(params=[{"params": model.parameters()}]), TypeError, "found in the module"),
        (dict(params=nn.Sequential(nn.Linear(1, 1), nn.LayerNorm(1))), ValueError, "is a normalisation"),
        (dict(params=nn.Linear(1, 1)), ValueError, "nothing is left for the hidden layers"),
        (dict(params=nn.ReLU()), ValueError, "has no parameters"),
        (dict(params=model, output=nn.Linear(1, 1)), ValueError, "must be a part of the model"),
        (dict(params=model, parts="rows"), ValueError, "parts must be one of 'layers', 'blocks', got 'rows'"),
    ):
        with pytest.raises(error, match=message):
            ht.LOL(given.pop("params"), **{"parts": "blocks"} | given)


def test_repr_shows_parts_methods_tensors_and_what_is_frozen():
    model = ResNet()
    model.stage1[0].conv1.weight.requires_grad_(False)
    lines = repr(ht.AdLaLa(model, parts="blocks")).splitlines()
    assert "hidden: stage1.0: AdaptiveLangevin(tau=0.0001, frequency=" in lines[3]
    assert "576 of 1152 parameters in 2 tensors" in lines[3]
    assert "output: head: Langevin(gamma=0.1, tau=0.0001), 170 parameters in 2 tensors" in lines[-2]


def test_chains_of_a_deep_network_have_its_parts():
    torch.manual_seed(0)
    model = ResNet(4)
    chains = ht.Chains(model, 2)
    optimizer = ht.AdLaLa(chains, parts="blocks", seed=1)
    assert [len(group["xi"]) for group in optimizer.param_groups[:-1]] == 6 * [2]
    alone = ht.AdLaLa(model, parts="blocks", seed=1)
    x = torch.randn(3, 1, 14, 14)
    for module, stepper in ((chains, optimizer), (model, alone)):
        module(x).square().sum().backward()
        stepper.step()
    state = next(iter(chains.states()))
    for name, p in model.named_parameters():
        torch.testing.assert_close(state[name], p.detach(), rtol=1e-4, atol=1e-5)


# Frequencies


def test_a_frequency_counts_the_parameters_that_are_stepped():
    """In float64 the run is that with ε = ω²/(2Nτ), where N leaves out frozen parameters."""

    def final(**options):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()
        model[0].bias.requires_grad_(False)
        optimizer = ht.AdLaLa(model, lr=0.1, tau=0.02, seed=1, xi=0.0, **options)
        for _ in range(50):
            optimizer.zero_grad()
            model(torch.ones(2, 3).double()).square().mean().backward()
            optimizer.step()
        return model[0].weight.detach()

    wanted = final(frequency=0.8, damping=0.6)
    sigma = math.sqrt(2 * 0.6 * 0.02)
    torch.testing.assert_close(final(epsilon=0.64 / (2 * 12 * 0.02), sigma=sigma), wanted, rtol=0, atol=1e-12)
    assert (final(epsilon=0.64 / (2 * 16 * 0.02), sigma=sigma) - wanted).abs().max() > 1e-4


def test_blocks_have_a_frequency_and_a_damping_unless_others_are_given():
    model = ResNet()
    usual = ht.AdLaLa(model, parts="blocks").param_groups[0]
    assert usual["frequency"] > 0
    assert usual["damping"] > 0
    given = ht.AdLaLa(model, parts="blocks", epsilon=0.01).param_groups[0]
    assert (given["frequency"], given["epsilon"]) == (0.0, 0.01)
    assert given["damping"] > 0
    assert ht.AdLaLa(model).param_groups[0]["frequency"] == 0
    with pytest.raises(ValueError, match="frequency sets epsilon, so give only one of the two"):
        ht.AdLaLa(model, frequency=1.0, epsilon=0.03)


def test_thermostats_that_cannot_be_stable_are_refused_all_at_once():
    model = nn.Sequential(nn.Linear(100, 200), nn.Linear(200, 100), nn.Linear(100, 1))
    with pytest.raises(ValueError, match=r"0 of 20200 .* has 2\.\d+; 1 of 20100 .* has 2\.\d+"):
        ht.AdLaLa(model, lr=0.2, tau=1e-3, epsilon=3.0)
    ht.AdLaLa(model, lr=0.2, tau=1e-3, epsilon=2.0)
    ht.AdLaLa(model, lr=0.2, tau=1e-3, frequency=9.9)
    with pytest.raises(ValueError, match="choose a smaller lr"):
        ht.AdLaLa(model, lr=0.2, tau=1e-3, frequency=10.1)
    with pytest.raises(ValueError, match="of 20000 parameters"):
        ht.AdLaLa(model, lr=0.2, tau=1e-3, epsilon=3.0, thermostat="tensor")


@pytest.mark.parametrize("by", ["lr", "tau"])
def test_a_thermostat_that_becomes_unstable_on_the_way_is_told_of_once(by):
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
    tau = Linear(1e-3, 1.0, 10) if by == "tau" else 1e-3
    optimizer = ht.AdLaLa(model, lr=0.1, tau=tau, epsilon=20.0, tau_output=0.0, sigma=0.0)
    told = []
    for step in range(10):
        if by == "lr" and step == 5:
            optimizer.param_groups[0]["lr"] = 3.0
        model(torch.ones(1, 3)).mean().backward()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            optimizer.step()
        told += [step for w in caught if w.category is ht.UnstableThermostatWarning]
    assert told == [5 if by == "lr" else 7]  # 0.1 √(2·20·16·τ) is 2 at τ = 0.625


def test_tune_does_not_search_what_a_frequency_or_a_damping_sets():
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    given = {"AdLaLa": {"frequency": 0.5, "damping": hb.between(0.1, 1.0)}}
    (family,), wrong = families(given, model, 0)
    assert not wrong
    assert set(family.ranges) == {"lr", "tau", "gamma", "damping"}


# Cycles


def test_samples_of_a_cycle_are_those_at_its_end_also_after_a_resume_in_its_middle(tmp_path):
    model = nn.Linear(1, 1)
    cycle = Cycle(20, high=0.1, tau=1e-3, sampling=0.4, samples=2)
    samples = ht.Samples(model, when=cycle, burn_in=20, folder=tmp_path)
    for _ in range(47):
        samples.take()
    assert samples.steps == [36, 40]
    again = ht.Samples(model, when=cycle, burn_in=20, folder=tmp_path)
    assert (again.step, again.steps) == (40, [36, 40])
    for step in range(48, 101):
        again.take(step)  # the number of steps is known from elsewhere
    assert again.steps == [36, 40, 56, 60, 76, 80, 96, 100]
    with pytest.raises(ValueError, match="samples made with"):
        ht.Samples(model, when=Cycle(20, 0.1, 1e-3), burn_in=20, folder=tmp_path)
    with pytest.raises(ValueError, match="samples made with"):
        ht.Samples(model, burn_in=20, folder=tmp_path)
    with pytest.raises(ValueError, match="steps must be a whole number >= 101, got 7"):
        again.take(7)
    with pytest.raises(TypeError, match=r"when must be a heatbath.methods.schedules.Cycle, got 20"):
        ht.Samples(model, when=20)


def test_where_a_cycle_has_too_many_samples_every_other_is_dropped():
    samples = ht.Samples(nn.Linear(1, 1), when=Cycle(20, 0.1, 1e-3, sampling=0.4, samples=2), most=4)
    for _ in range(120):
        samples.take()
    assert samples.steps == [40, 80, 120]  # the 4th, 8th and 12th
    assert samples.thin == 4


def exact_variances(cycle, gamma, k, steps):
    """Return var θ of Langevin dynamics (BAOAB) on kθ²/2 after each step, by exact maps from θ = p = 0."""
    cov, found = np.zeros((2, 2)), [0.0]
    for n in range(steps):
        h, tau = cycle.stepsize(n), cycle.temperature(n)
        a = math.exp(-gamma * h)
        B, A = np.array([[1, 0], [-h * k / 2, 1]]), np.array([[1, h / 2], [0, 1]])
        O = np.diag([1.0, a])
        cov = O @ A @ B @ cov @ B.T @ A.T @ O.T + np.diag([0.0, tau * (1 - a * a)])
        cov = B @ A @ cov @ A.T @ B.T
        found.append(cov[0, 0])
    return found


def test_at_the_end_of_a_cycle_the_law_is_that_of_its_temperature():
    """The variance of 20,000 independent θ agrees with that of the exact maps.

    The tolerance is 4.5 √(2/20000) = 4.5 % (7e-6 for each number). The exact variance is within 1 % of τ/k.
    Before the sampling the variance is that of exploring, and fails.
    """
    count, gamma, k, tau = 20_000, 2.0, 1.5, 3e-3
    cycle = Cycle(100, high=0.5, tau=tau, low=0.2, sampling=0.5, samples=2)
    theta = nn.Parameter(torch.zeros(count, dtype=torch.float64))
    model = nn.ParameterDict({"theta": theta})
    optimizer = ht.Langevin(model, cycle.stepsize, gamma, cycle.temperature, seed=3)
    samples = ht.Samples(model, when=cycle)
    early = 0.0
    for step in range(200):
        theta.grad = k * theta.detach()
        optimizer.step()
        samples.take()
        early = float(theta.detach().square().mean()) if step == 149 else early
    exact = exact_variances(cycle, gamma, k, 200)
    # the last kick of a step is made at the beginning of the next: it does not move θ
    assert samples.steps == [75, 100, 175, 200]
    allowed = 4.5 * math.sqrt(2 / count)
    for step, state in zip(samples.steps, samples, strict=True):
        assert float(state["theta"].square().mean()) == pytest.approx(exact[step], rel=allowed)
    assert exact[100] * k == pytest.approx(tau, rel=0.01)
    assert exact[200] * k == pytest.approx(tau, rel=0.01)
    assert early == pytest.approx(exact[150], rel=allowed)
    assert early * k < 0.1 * tau


# Batch norms


def test_renewed_statistics_are_the_means_over_batches_of_what_the_layers_before_give():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 3), nn.Dropout(0.5), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 1))
    x = torch.randn(40, 2)
    model(x), model(x + 5)  # statistics of something else
    batches = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x[:, 0]), batch_size=10)
    ht.renew_statistics(model, batches)
    values = model[0](x).detach().reshape(4, 10, 3)
    torch.testing.assert_close(model[2].running_mean, values.mean(1).mean(0))
    torch.testing.assert_close(model[2].running_var, values.var(1).mean(0))
    assert model[2].momentum == 0.1
    assert model.training
    assert model[1].training
    ht.renew_statistics(model, x.numpy())
    torch.testing.assert_close(model[2].running_var, values.reshape(40, 3).var(0))
    before = model[2].running_mean.clone()
    for bad in ([], [torch.ones(2, 7)]):
        with pytest.raises((ValueError, RuntimeError)):
            ht.renew_statistics(model, iter(bad))
        assert (model[2].running_mean == before).all()
    ht.renew_statistics(nn.Linear(1, 1), None)  # which has none


def sampled(model, samples, x, steps=3):
    for _ in range(steps):
        model(x)
        with torch.no_grad():
            for p in model.parameters():
                p.add_(torch.randn_like(p))
        samples.take()


@pytest.mark.parametrize("where", ["memory", "folder", "chains"])
def test_each_sample_gets_statistics_of_its_own(where, tmp_path):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    model = ht.Chains(module, 2) if where == "chains" else module
    folder = tmp_path if where == "folder" else None
    samples = ht.Samples(model, folder=folder)
    x = torch.randn(50, 2)
    sampled(model, samples, x)
    assert samples.stale == [1, 2, 3]
    with pytest.warns(ht.StaleStatisticsWarning, match=r"3 of 3 samples"):
        ht.predict(model, samples, x, task="regression")
    samples.renew(iter([x]))
    assert samples.stale == []
    if folder:
        samples = ht.Samples(model, folder=folder)
        assert samples.stale == []
    said = ht.predict(model, samples, x, task="regression")
    states = list(samples)
    if where == "chains":
        states = [own for state in states for own in model.states(state)]
    outputs = []
    for state in states:
        values = x @ state["0.weight"].T + state["0.bias"]
        torch.testing.assert_close(state["1.running_mean"], values.mean(0))
        torch.testing.assert_close(state["1.running_var"], values.var(0))
        values = (values - values.mean(0)) / (values.var(0) + 1e-5).sqrt()
        values = values * state["1.weight"] + state["1.bias"]
        outputs.append(values @ state["2.weight"].T + state["2.bias"])
    torch.testing.assert_close(said.mean, torch.stack(outputs).mean(0).double(), rtol=1e-4, atol=1e-4)
    sampled(model, samples, x, 1)
    assert samples.stale == [4]  # the later one is not renewed


def test_samples_in_evaluation_mode_have_the_statistics_that_they_were_sampled_with():
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).eval()
    samples = ht.Samples(model)
    sampled(model, samples, torch.randn(5, 2))
    assert samples.stale == []
    ht.predict(model, samples, torch.randn(5, 2), task="regression")


# Frozen parameters


def test_what_is_frozen_is_not_stored_and_must_not_change(tmp_path):
    model = nn.Sequential(nn.Linear(50, 50), nn.Linear(50, 1))
    model[0].requires_grad_(False)
    whole = {name: value.clone() for name, value in model.state_dict().items()}
    samples = ht.Samples(model, folder=tmp_path)
    for _ in range(2):
        nn.init.normal_(model[1].weight)
        samples.take()
    assert set(torch.load(next(tmp_path.glob("*.pt")), weights_only=True)) == {"1.weight", "1.bias"}
    again = ht.Samples(model, folder=tmp_path)
    for state in again:
        assert list(sorted(state)) == sorted(whole)
        model.load_state_dict(state)
        assert (state["0.weight"] == whole["0.weight"]).all()
    ht.predict(model, again, torch.ones(2, 50), task="regression")
    with torch.no_grad():
        model[0].weight[0, 0] += 1.0
    with pytest.raises(ValueError, match=r"that has changed in the model since: '0.weight'"):
        list(again)
    assert "frozen" in json.loads((tmp_path / "samples.json").read_text())


def test_what_is_frozen_and_complex_must_not_change_either():
    model = nn.Linear(2, 1)
    model.phase = nn.Parameter(torch.tensor([1j, -1j]), requires_grad=False)
    samples = ht.Samples(model)
    samples.take()
    assert len(list(samples)) == 1
    with torch.no_grad():
        model.phase[0] *= 1j
    with pytest.raises(ValueError, match="changed in the model since: 'phase'"):
        list(samples)


@pytest.mark.parametrize(("share", "same"), [(1e-15, True), (1e-9, False)])
def test_what_is_frozen_is_compared_but_for_the_order_of_sums(share, same):
    """Another number of threads or another device sums in another order."""
    model = nn.Sequential(nn.Linear(50, 50), nn.Linear(50, 1))
    model[0].requires_grad_(False)
    samples = ht.Samples(model)
    samples.take()
    for name, (total, size) in samples._frozen.items():
        samples._frozen[name] = Fingerprint(total + share * 50 * size, size * (1 - share))
    if same:
        assert len(list(samples)) == 1
    else:
        with pytest.raises(ValueError, match="changed in the model since"):
            list(samples)


def test_a_sample_keeps_what_was_frozen_only_later():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    samples = ht.Samples(model)
    samples.take()
    first = model[0].weight.detach().clone()
    nn.init.normal_(model[0].weight)
    model[0].requires_grad_(False)
    samples.take()
    one, two = samples
    assert (one["0.weight"] == first).all()
    assert (two["0.weight"] == model[0].weight).all()
