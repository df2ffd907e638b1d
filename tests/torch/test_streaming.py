"""Streams: what is sampled, exactly, how n is followed, how drift is seen, and that nothing is lost."""

import io
import math
import os
import signal
from copy import deepcopy
from itertools import count, islice

import numpy as np
import pytest
import torch
from scipy.linalg import solve_discrete_lyapunov
from torch.nn import functional

import heatbath as hb
import heatbath.torch as ht
from heatbath.diagnostics.drift import Watch
from heatbath.torch.prediction.predict import outputs
from heatbath.torch.prediction.samples import samples_dataset
from heatbath.torch.streaming import Window, gradient_noise

S = 0.5  # the noise of the data
WEIGHTS = torch.tensor([[1.0, -2.0]], dtype=torch.float64)


def examples(count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 2, generator=generator, dtype=torch.float64)
    noise = torch.randn(count, 1, generator=generator, dtype=torch.float64)
    return x, x @ WEIGHTS.T + S * noise


def linear(inputs=2):
    torch.manual_seed(0)
    return torch.nn.Linear(inputs, 1, bias=False).double()


def make_stream(model, optimizer=None, temperature=1.0, lr=0.4, gamma=0.7, **options):
    posterior = ht.LossPosterior("mse_loss", 1, prior=2.0, noise=S, temperature=temperature)
    optimizer = optimizer or ht.Langevin(model, lr, gamma, posterior=posterior, seed=3, fused=False)
    return ht.Stream(model, optimizer, functional.mse_loss, **options)


def stationary_law_of(stream, batch, noises=0, draw=None):
    """Return the mean and covariance of θ that a stream reaches with batches like this one for ever.

    Its step is fed basis vectors of (θ, p) and of the noise, and the Lyapunov equation is solved.
    `draw(batch, i)` is a batch that differs by a unit of noise number i of the data, of `noises`.
    """
    (parameter,) = stream.model.parameters()
    size = parameter.numel()
    kept = deepcopy(stream.state_dict())

    def step(state, noise, own):
        stream.load_state_dict(deepcopy(kept))
        given = torch.as_tensor(noise).reshape(parameter.shape)
        stream.optimizer._draw_normals = lambda tensors, *address: [given]
        with torch.no_grad():
            parameter.copy_(torch.as_tensor(state[:size]).reshape(parameter.shape))
            stream.optimizer.state[parameter]["momentum"].copy_(
                torch.as_tensor(state[size:]).reshape(parameter.shape)
            )
        stream.learn(*own)
        momentum = stream.optimizer.state[parameter]["momentum"]
        return np.concatenate([parameter.detach().numpy().ravel(), momentum.numpy().ravel()])

    still = np.zeros(2 * size), np.zeros(size)
    zero = step(*still, batch)
    A = np.stack([step(e, still[1], batch) - zero for e in np.eye(2 * size)], axis=1)
    B = [step(still[0], e, batch) - zero for e in np.eye(size)]
    B += [step(*still, draw(batch, i)) - zero for i in range(noises)]
    B = np.stack(B, axis=1)
    V = solve_discrete_lyapunov(A, B @ B.T)
    return np.linalg.solve(np.eye(2 * size) - A, zero)[:size], V[:size, :size]


# What is sampled


@pytest.mark.parametrize(("seen", "window"), [(12, 30), (50, 20)])
@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_steps_on_the_complete_window_sample_the_posterior_of_the_latest_examples(temperature, seen, window):
    """Exactly, by BAOAB, whatever came before; the window is filled in uneven batches."""
    x, y = examples(seen)
    stream = make_stream(linear(), temperature=temperature, window=window, batch="all")
    for rows in torch.arange(seen).split([5, 1, seen - 6]):
        stream.learn(x[rows], y[rows])
    n = min(seen, window)
    assert (stream.n, stream.seen) == (n, seen)
    late = x[-n:], y[-n:]
    if seen < window:  # it goes on with the same examples, so that the window does not change
        stream.window = stream._recent.capacity = n
        stream._recent = Window(n)
        stream._recent.add(*late)
    mean, covariance = stationary_law_of(stream, late)
    precision = late[0].T @ late[0] / S**2 + torch.eye(2, dtype=torch.float64) / 2.0**2
    exact = torch.linalg.inv(precision)
    np.testing.assert_allclose(covariance, temperature * exact.numpy(), rtol=1e-10)
    np.testing.assert_allclose(mean, (exact @ late[0].T @ late[1] / S**2).numpy().ravel(), rtol=1e-10)


@pytest.mark.parametrize("window", [40, 1000])
@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_steps_on_fresh_examples_have_the_spread_of_a_posterior_plus_gradient_noise(temperature, window):
    """The closed form, where inputs are 1 or -1: then the noise of the gradient is the same everywhere."""
    size, h, gamma = 10, 0.4, 0.7
    x = torch.tensor([[1.0], [-1.0]], dtype=torch.float64).repeat(size // 2, 1)
    batch = x, 3.0 * x
    model = linear(1)
    stream = make_stream(model, temperature=temperature, window=window, batch="fresh", false_alarms=math.inf)
    for _ in range(100):
        stream.learn(*batch)
    assert stream.n == window

    def with_noise(batch, i):
        targets = batch[1].clone()
        targets[i] += S
        return batch[0], targets

    mean, covariance = stationary_law_of(stream, batch, size, with_noise)
    tau, decay = 2 * S**2 * temperature / window, 2 * S**2 / (2.0**2 * window)
    k, s2, a = 2 + decay, 4 * S**2 / size, math.exp(-gamma * h)
    heat = h**2 * s2 * (1 + a) / ((1 - a) * (4 - h**2 * k))
    np.testing.assert_allclose(covariance, [[(tau + heat) / k]], rtol=1e-10)
    np.testing.assert_allclose(mean, [3.0 * 2 / k], rtol=1e-10)  # that of the law of the data, and the prior
    assert heat > 0.1 * tau  # a control: it can be told from the posterior alone


def test_batches_are_drawn_uniformly_from_the_window():
    seen = []

    def loss(outputs, targets):
        seen.append(targets.ravel().tolist())
        return outputs.mean() * 0

    model = linear(1)
    stream = ht.Stream(model, torch.optim.SGD(model.parameters(), 0.0), loss, window=40, batch=5, steps=8)
    for i in range(30):
        rows = torch.arange(10.0 * i, 10.0 * i + 10, dtype=torch.float64)[:, None]
        stream.learn(rows, rows)
    drawn = np.array([s for s in seen if len(s) == 5]).astype(int)
    ends = np.repeat(10 * np.arange(1, 31), 8)
    ages = (ends - 1)[:, None] - drawn
    assert len(ages) == 240
    assert (ages >= 0).all()
    assert (ages < 40).all()
    full = ages[32:]
    assert all(len(set(row)) == 5 for row in full)
    expected = full.size / 40
    chi2 = ((np.bincount(full.ravel(), minlength=40) - expected) ** 2 / expected).sum()
    assert chi2 < 73  # 39 degrees of freedom: 0.001


# n


@pytest.mark.parametrize(
    "make",
    [
        lambda m, p: ht.Langevin(m, 0.1, 1.0, posterior=p),
        lambda m, p: ht.AdLaLa(m, posterior=p),
        lambda m, p: ht.AdLAdL(m, friction="sde", thermostat="tensor", posterior=p),
        lambda m, p: ht.SGLD(m, 0.1, posterior=p),
        lambda m, p: ht.Adam(m, 0.1, posterior=p),
    ],
)
@pytest.mark.parametrize("chains", [None, 2])
def test_temperature_prior_and_momenta_follow_n(make, chains):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))
    model = model if chains is None else ht.Chains(model, chains)
    optimizer, other = (make(model, ht.LossPosterior("cross_entropy", n, (0.5, 2.0))) for n in (10, 80))
    before = [p.square().sum() for p in model.parameters()]
    sum(before).backward()
    optimizer.step()
    momenta = [optimizer.state[p]["momentum"].clone() for p in model.parameters()]
    xi = [deepcopy(group.get("xi")) for group in optimizer.param_groups]
    optimizer.set_examples(80)
    for group, like, old in zip(optimizer.param_groups, other.param_groups, xi, strict=True):
        for name in ("tau", "sigma", "epsilon", "weight_decay", "n"):
            if name in like:
                assert group[name] == pytest.approx(like[name], rel=1e-12)
        if old is not None:
            factor = math.sqrt(10 / 80) if group["friction"] == "sde" else 1.0
            np.testing.assert_allclose(group["xi"], factor * np.array(old))
    heated = "tau" in optimizer.param_groups[0]
    for momentum, p in zip(momenta, model.parameters(), strict=True):
        factor = math.sqrt(10 / 80) if heated else 1.0
        torch.testing.assert_close(optimizer.state[p]["momentum"], factor * momentum)


def test_a_sampled_noise_is_drawn_for_any_number_of_examples():
    """It is drawn also where n/n' is no binary fraction, so that the number of residuals is rounded."""
    model = linear()
    optimizer = ht.Langevin(model, 0.4, 0.7, posterior=ht.LossPosterior("mse_loss", 1), seed=1)
    stream = ht.Stream(model, optimizer, functional.mse_loss, window=200, batch=20, steps=4)
    x, y = examples(600)
    for rows in torch.arange(600).split(15):
        stream.learn(x[rows], y[rows])
    assert optimizer.param_groups[0]["drawn"] >= 3


def test_a_sampled_noise_has_the_law_of_n_examples():
    model = linear()
    posterior = ht.LossPosterior("mse_loss", 1, prior=2.0, temperature=0.5, variance=3.0)
    optimizer = ht.Langevin(model, 0.4, 0.7, posterior=posterior, seed=1)
    stream = ht.Stream(model, optimizer, functional.mse_loss, window=200, batch=20, steps=10)
    x, y = examples(400)
    for rows in torch.arange(400).split(20):
        stream.learn(x[rows], y[rows])
    other = ht.Langevin(
        linear(), 0.4, 0.7, posterior=ht.LossPosterior("mse_loss", 200, 2.0, temperature=0.5, variance=3.0)
    )
    assert optimizer.param_groups[0]["draws"] == pytest.approx(other.param_groups[0]["draws"])
    assert optimizer.param_groups[0]["drawn"] == 4
    assert abs(optimizer.noise / S**2 - 1) < 0.4
    with pytest.raises(ValueError, match="needs the residuals of all"):
        ht.Stream(model, optimizer, functional.mse_loss, batch="fresh")


def test_set_examples_needs_a_posterior_with_a_mean_loss():
    model = linear()
    for optimizer in (ht.Langevin(model, 0.1, 1.0, 1e-3), torch.optim.Adam(model.parameters())):
        stream = ht.Stream(model, optimizer, functional.mse_loss)
        stream.learn(*examples(10))
        assert stream.n == 10
    with pytest.raises(ValueError, match="set_examples needs a posterior"):
        ht.Langevin(model, 0.1, 1.0, 1e-3).set_examples(5)
    summed = ht.LossPosterior("mse_loss", 1, noise=1.0, reduction="sum")
    with pytest.raises(ValueError, match="reduction='mean'"):
        ht.Langevin(model, 0.1, 1.0, posterior=summed).set_examples(5)


# Drift

INPUTS, SIZE, CHANGE, TOTAL = 10, 10, 300, 340


def regression(seed, shift, change=CHANGE):
    """Yield batches without end; the weights change by `shift` after `change` of them."""
    rng = np.random.default_rng(seed)
    weights = rng.standard_normal((INPUTS, 1))
    for i in count():
        x = rng.standard_normal((SIZE, INPUTS))
        now = weights + (shift if i >= change else 0.0)
        yield x, x @ now + S * rng.standard_normal((SIZE, 1))


def adaptive_stream(seed, **options):
    """Return a stream on fresh examples with a thermostat that relaxes within a few: h²εNτ is 0.5."""
    torch.manual_seed(seed)
    model = torch.nn.Linear(INPUTS, 1, bias=False).double()
    posterior, tau, h = ht.LossPosterior("mse_loss", 1, noise=S), 1e-3, 0.1
    optimizer = ht.AdaptiveLangevin(
        model, h, tau, math.sqrt(2 * tau), 0.5 / (h**2 * INPUTS * tau), word="BAFEFAB", posterior=posterior,
        seed=seed,
    )  # fmt: skip
    return ht.Stream(model, optimizer, functional.mse_loss, window=300, batch="fresh", **options)


@pytest.mark.parametrize("shift", [0.0, 0.8])
def test_a_change_of_the_data_shows_in_loss_and_friction_and_not_in_the_temperature(shift):
    """The loss shows the change within 100 examples in each of three streams.

    ξ rises in all of them, and its watch tells so within 400 examples in at least one (it was one when this
    was written: it is slower than the loss, and may miss a change that is soon learned). The temperature of
    these 40 batches stays τ within 15 %: the mean of p·p where the thermostat reads it is Nτ but for (ξ' -
    ξ)/(hεT). Without a change there is no alarm in 340 batches of each, which at one in 10,000 has a chance
    of 90 % at least.
    """
    by_friction = []
    for seed in range(3):
        stream = adaptive_stream(seed, false_alarms=math.inf)
        optimizer, told = stream.optimizer, {"loss": [], "friction": []}
        watches, xi, heat = {name: Watch(name, 20_000) for name in told}, [], []
        for number, batch in enumerate(islice(regression(seed, shift), TOTAL), start=1):
            if number in (CHANGE - 99, CHANGE + 1):
                optimizer.forget_past()
            values = {"loss": stream.learn(*batch).loss, "friction": gradient_noise(optimizer, 0)}
            if number > 30:  # when n has settled
                for name, value in values.items():
                    told[name] += [number] if watches[name].add(value) else []
            xi.append(optimizer.param_groups[0]["xi"])
            if number in (CHANGE, TOTAL):
                heat.append(optimizer.temperature()["0"].value / optimizer.param_groups[0]["tau"])
        before = np.array(xi[CHANGE - 100 : CHANGE])
        assert heat == pytest.approx([1.0, 1.0], abs=0.15)
        if shift:
            assert CHANGE < told["loss"][0] <= CHANGE + 10
            by_friction += [number for number in told["friction"] if number > CHANGE]
            assert all(number > CHANGE for number in told["friction"])
            assert np.mean(xi[CHANGE : CHANGE + 10]) > before.mean() + 3 * before.std()
        else:
            assert told == {"loss": [], "friction": []}
    assert bool(by_friction) == (shift > 0)


@pytest.mark.parametrize("forget", [True, False])
def test_examples_before_a_drift_are_forgotten_if_wanted(forget):
    stream = adaptive_stream(0, forget=forget, samples=5)
    batches = regression(0, 2.0, 60)
    for _ in range(60):
        assert stream.learn(*next(batches)).drift is None
    with pytest.warns(hb.DriftWarning, match="the loss before learning has risen") as caught:
        learned = next(one for _ in range(20) if (one := stream.learn(*next(batches))).drift)
    assert caught[0].filename == __file__
    since = learned.drift.since
    assert 60 < stream.batches <= 60 + 10
    assert 60 + 1 <= learned.drift.step == stream.batches
    assert learned.n == stream.n == (10 * since if forget else 300)
    assert stream.optimizer.param_groups[0]["tau"] == pytest.approx(2 * S**2 / stream.n)
    assert len(stream.samples) == (0 if forget else 5)
    stream.learn(*next(batches))
    assert stream.n == (10 * since + 10 if forget else 300)


def test_the_window_keeps_the_latest_examples_in_order():
    window = Window(10)
    for begin, size in ((0, 3), (3, 4), (7, 6), (13, 25), (38, 2)):
        window.add(torch.arange(begin, begin + size)[:, None], torch.arange(begin, begin + size))
        latest = torch.arange(max(0, begin + size - 10), begin + size)
        x, y = window.rows(torch.arange(window.count))
        assert x[:, 0].tolist() == y.tolist() == latest.tolist()
        assert len(window.tensors[0]) <= 10
    window.keep(4)
    assert window.rows(torch.arange(window.count))[1].tolist() == [36, 37, 38, 39]
    window.add(torch.tensor([[40]]), torch.tensor([40]))
    assert window.rows(torch.arange(window.count))[1].tolist() == [36, 37, 38, 39, 40]
    window.keep(100)
    assert window.count == 5


# Nothing is lost


class Endless(torch.utils.data.IterableDataset):
    """A data set without an end."""

    def __iter__(self):
        for x, y in regression(0, 0.0):
            yield from zip(torch.as_tensor(x), torch.as_tensor(y), strict=True)


def make_small_stream(chains=None, batch=8, **options):
    torch.manual_seed(1)
    model = torch.nn.Sequential(
        torch.nn.Linear(INPUTS, 4), torch.nn.Tanh(), torch.nn.Dropout(0.0), torch.nn.Linear(4, 1)
    ).double()
    model = model if chains is None else ht.Chains(model, chains)
    posterior = ht.LossPosterior("mse_loss", 1)
    optimizer = ht.AdLaLa(model, lr=0.1, gamma=1.0, posterior=posterior, seed=5)
    return ht.Stream(model, optimizer, functional.mse_loss, window=60, batch=batch, steps=3, **options)


@pytest.mark.parametrize("chains", [None, 3])
def test_a_stream_continues_from_its_state_bit_for_bit(chains):
    loader = iter(torch.utils.data.DataLoader(Endless(), batch_size=7))
    stream = make_small_stream(chains, samples=4)
    for _ in range(40):
        stream.learn(*next(loader))
    file = io.BytesIO()
    torch.save(stream.state_dict(), file)
    file.seek(0)
    other = make_small_stream(chains, samples=4)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert repr(other) == repr(stream)
    for _ in range(30):
        batch = next(loader)
        assert stream.learn(*batch) == other.learn(*batch)
    mine, theirs = stream.state_dict(), other.state_dict()
    assert str(mine) == str(theirs)  # all of it
    for name, value in mine["model"].items():
        assert torch.equal(value, theirs["model"][name])
    assert (stream.seen, stream.batches, stream.n) == (490, 70, 60)
    assert len(stream.samples) == 4
    said = ht.predict(stream.model, stream.samples, torch.zeros(2, INPUTS).double(), task="regression")
    assert said.mean.shape == (2, 1)
    with pytest.raises(ValueError, match="another window, batch or optimiser"):
        make_small_stream(chains, batch="all", false_alarms=5).load_state_dict(mine | {"watches": []})


def test_chains_in_a_stream_equal_single_modules():
    """Each has the gradient of its own loss, on the same batches."""
    together = make_small_stream(2)
    alone = make_small_stream()
    state = next(iter(together.model.states()))
    alone.model.load_state_dict(state)
    for batch in islice(regression(0, 0.0), 12):
        together.learn(*batch)
        alone.learn(*batch)
    for name, value in next(iter(together.model.states())).items():
        torch.testing.assert_close(value, alone.model.state_dict()[name], rtol=1e-9, atol=1e-12)


def test_ctrl_c_waits_for_the_end_of_the_batch():
    stream, other = make_small_stream(), make_small_stream()
    batches = list(islice(regression(0, 0.0), 3))
    calls = []

    def loss(outputs, targets):
        calls.append(len(targets))
        if len(calls) == 6:  # in the middle of the second batch
            os.kill(os.getpid(), signal.SIGINT)
        return functional.mse_loss(outputs, targets)

    stream._loss = loss
    stream.learn(*batches[0])
    with pytest.raises(KeyboardInterrupt):
        stream.learn(*batches[1])
    for batch in batches[:2]:
        other.learn(*batch)
    assert str(stream.state_dict()) == str(other.state_dict())
    assert len(calls) == 8


@pytest.mark.parametrize(
    ("x", "y", "problem"),
    [
        (
            np.full((4, INPUTS), np.nan),
            np.zeros((4, 1)),
            "not finite, and nothing was learned of it; check the data",
        ),
        (np.zeros((4, INPUTS)), np.full((4, 1), np.inf), "not finite"),
        (np.zeros((4, INPUTS)), np.zeros((3, 1)), "4 inputs and 3 targets"),
        (np.zeros((0, INPUTS)), np.zeros((0, 1)), "inputs and targets of some examples"),
        (np.zeros((4, INPUTS)), None, "inputs and targets of some examples"),
        (np.zeros((4, 3)), np.zeros((4, 1)), "shapes cannot be multiplied"),
    ],
)
def test_a_batch_that_is_refused_changes_nothing(x, y, problem):
    stream = make_small_stream()
    stream.learn(*next(regression(0, 0.0)))
    before = str(stream.state_dict())
    stream.model.train()
    with pytest.raises((ValueError, TypeError, RuntimeError), match=problem):
        stream.learn(x, y)
    assert str(stream.state_dict()) == before
    assert all(module.training for module in stream.model.modules())


def test_a_batch_whose_step_raises_an_error_counts_as_seen():
    model = torch.nn.Sequential(torch.nn.Linear(INPUTS, 1), torch.nn.BatchNorm1d(1)).double()
    stream = ht.Stream(model, torch.optim.SGD(model.parameters(), 0.1), functional.mse_loss)
    x, y = next(regression(0, 0.0))
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        stream.learn(x[:1], y[:1])
    assert (stream.seen, stream.n) == (1, 1)
    stream.learn(x[1:], y[1:])
    assert (stream.seen, stream.n) == (len(x), len(x))


def test_examples_of_another_type_are_refused_by_the_window():
    """Not even half of them: the inputs of the oldest would have targets of others."""
    model = linear(INPUTS)
    stream = ht.Stream(model, torch.optim.SGD(model.parameters(), 0.1), functional.mse_loss, window=5)
    batches = regression(0, 0.0)
    stream.learn(*next(batches))
    assert stream.n == 5
    before = str(stream.state_dict())
    x, y = next(batches)
    with pytest.raises(ValueError, match=r"were torch.float64 \(1,\), got torch.float32 \(1,\); make them"):
        stream.learn(x, torch.as_tensor(y).float())
    assert str(stream.state_dict()) == before


def test_other_chains_learn_after_one_has_diverged():
    """They do so also where the noise is drawn; that of the lost chain stays."""
    chains = ht.Chains(linear(), 3, "same")
    posterior = ht.LossPosterior("mse_loss", 1)
    optimizer = ht.Langevin(chains, 0.05, 1.0, posterior=posterior, seed=3)
    stream = ht.Stream(chains, optimizer, functional.mse_loss, window=100, steps=20)
    stream.learn(*examples(20))
    with torch.no_grad():
        chains.get_parameter("weight")[0] = math.nan
    before = list(optimizer.noise)
    with pytest.warns(hb.DivergedWarning, match="chains 0 diverged by batch 1"):
        stream.learn(*examples(20, 1))
    stream.learn(*examples(20, 2))  # which is said once
    assert stream.seen == 60
    assert [a == b for a, b in zip(before, optimizer.noise, strict=True)] == [True, False, False]


def test_a_module_may_have_attributes_named_like_those_of_chains():
    """The class tells whether a module is many chains."""

    class Counting(torch.nn.Linear):
        count, states, model = 7, (), None

    model = Counting(2, 1).double()
    posterior = ht.LossPosterior("mse_loss", 1, noise=S)
    stream = ht.Stream(model, ht.Langevin(model, 0.1, 1.0, posterior=posterior), functional.mse_loss)
    samples = ht.Samples(model)
    for seed in range(2):
        stream.learn(*examples(20, seed))
        samples.take()
    samples.renew(examples(20)[0])
    assert ht.predict(model, samples, examples(5)[0], task="regression").mean.shape == (5, 1)
    group = samples_dataset(
        model, dict(zip(samples.steps, samples, strict=True)), np.zeros((1, 2, 5, 1)), True
    )
    assert group["weight"].shape == (1, 2, 1, 2)
    assert outputs(model, samples, examples(5)[0], task="regression").shape == (1, 2, 5, 1)


def test_the_error_of_a_diverged_model_names_its_parameters():
    stream = make_small_stream()
    with torch.no_grad():
        stream.model[0].weight[0, 0] = math.nan
    with pytest.raises(ValueError, match=r"0.weight of the model are not finite either: it has diverged"):
        stream.learn(*next(regression(0, 0.0)))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"window": 0}, "window"),
        ({"window": None, "batch": 5}, "without a window no examples are kept"),
        ({"batch": "some"}, "batch must be"),
        ({"batch": 0}, "batch"),
        ({"steps": 0}, "steps"),
        ({"samples": -1}, "samples"),
        ({"false_alarms": 0.1}, "false_alarms"),
    ],
)
def test_wrong_options_are_refused(options, problem):
    with pytest.raises(ValueError, match=problem):
        make_stream(linear(), **options)


def test_wrong_optimisers_and_losses_are_refused():
    with pytest.raises(TypeError, match="a module, its optimiser and a loss"):
        ht.Stream(linear(), 0.1, functional.mse_loss)
    model = linear()
    several = ht.Stream(model, ht.Langevin(model, 0.1, 1.0, 1e-3), lambda outputs, targets: outputs - targets)
    with pytest.raises(ValueError, match="the loss must be one number"):
        several.learn(*examples(4))


def test_without_a_window_all_examples_count_and_none_is_kept():
    stream = make_stream(linear(), window=None)
    for rows in torch.arange(200).split(20):
        stream.learn(*(tensor[rows] for tensor in examples(200)))
    assert (stream.n, stream.batch, stream.state_dict()["window"]) == (200, "fresh", [])
    value, error = stream.loss
    assert error != error or error > 0
    assert f"{stream.seen} examples in 10 batches, 200 count, loss before learning {value:.4g}" in repr(
        stream
    )


def test_after_a_drift_the_window_has_the_examples_since():
    stream = make_small_stream()
    for batch in islice(regression(0, 0.0), 5):
        stream.learn(*batch)
    stream._forget_before(2)
    assert stream.n == len(stream.state_dict()["window"][0]) == 2 * SIZE
