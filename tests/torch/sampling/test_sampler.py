"""From a trained module to an answer: what is sampled, resumed, saved and said of it."""

import copy
import itertools
import math
import signal
import warnings

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import heatbath as hb
import heatbath.torch as ht
from heatbath.diagnostics import statistics
from heatbath.torch.sampling import sampler as home
from heatbath.torch.sampling.batches import ChainBatches
from heatbath.torch.sampling.report import Report
from heatbath.torch.sampling.trajectory import Trajectory
from tests.torch.sampling.models import (
    QUIET,
    class_examples,
    generator,
    make_network,
    make_sampler,
    regression_examples,
)


def least_squares_model(x, y):
    """Return the linear model with the least squares."""
    line = torch.nn.Linear(x.shape[1], 1).double()
    best = torch.linalg.lstsq(torch.cat([x, torch.ones(len(x), 1, dtype=x.dtype)], dim=1), y).solution
    with torch.no_grad():
        line.weight.copy_(best[:-1].T)
        line.bias.copy_(best[-1])
    return line


def have_same_states(some, others):
    """Return True if two samplers have the same samples and chains, bit for bit."""
    return all(
        a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
        for a, b in zip(
            [*some._trajectory.samples, some.chains.state_dict()],
            [*others._trajectory.samples, others.chains.state_dict()],
            strict=True,
        )
    )


# The law


@pytest.fixture(scope="module", params=[1.0, 0.3])
def conjugate(request):
    """Return draws of a linear model with known noise, and the sampler.

    The units are such that the exact posterior at T = 1 has mean 0 and covariance 1.
    """
    x, y = regression_examples()
    noise, prior, T = 0.5, 0.4, request.param
    A = torch.cat([x, torch.ones(len(x), 1, dtype=x.dtype)], dim=1)
    precision = (A.T @ A / noise**2 + torch.eye(3) / prior**2).numpy()
    mean = np.linalg.solve(precision, (A.T @ y).numpy().ravel() / noise**2)
    model = torch.nn.Linear(2, 1).double()
    with torch.no_grad():  # trained
        model.weight.copy_(torch.tensor(mean[None, :2]))
        model.bias.copy_(torch.tensor(mean[2:]))
    options = {"noise": noise, "prior": prior, "temperature": T, "chains": 16, "seed": 1}
    sampler = ht.Sampler(model, "mse_loss", (x, y), **options).run(steps=400)
    rows = [
        [torch.cat([own["weight"].ravel(), own["bias"]]).numpy() for own in sampler.chains.states(state)]
        for state in sampler._states(sampler.burn_in).values()
    ]
    return T, (np.stack(rows, axis=1) - mean) @ np.linalg.cholesky(precision), sampler


def test_a_conjugate_linear_model_has_its_posterior_mean_and_covariance(conjugate):
    """With the defaults, at T = 1 and 0.3, nine means are within four standard errors.

    With the t of at least 15 degrees of freedom one of them fails by chance in a hundred runs at most. The
    controls fail.
    """
    T, z, sampler = conjugate
    first = [statistics.mean(z[..., i]) for i in range(3)]
    second = {(i, j): statistics.mean(z[..., i] * z[..., j]) for i in range(3) for j in range(i + 1)}
    for found in first:
        assert abs(found.value) < 4 * found.error
        assert found.error < 0.1
    for (i, j), found in second.items():
        assert abs(found.value - T * (i == j)) < 4 * found.error, (i, j, found)
    trace = statistics.mean((z**2).mean(axis=-1))
    assert abs(trace.value - T) < 4 * trace.error
    assert trace.error < 0.1 * T
    for wrong in (T**2, math.sqrt(T), 1.3) if T != 1 else (0.7, 1.5):
        assert abs(trace.value - wrong) > 4 * trace.error
    assert sampler.lr == 0.4
    assert sampler.has_converged


def test_kinetic_and_configurational_temperature_are_right(conjugate):
    ((kinetic, configurational),) = conjugate[2].temperatures().values()
    for heat, most in ((kinetic, 0.1), (configurational, 0.3)):
        assert abs(heat.value - 1) < 4 * heat.error
        assert heat.error < most


def test_the_variance_of_predictions_includes_the_noise(conjugate):
    sampler = conjugate[2]
    x, _ = regression_examples()
    said = sampler.predict(x)
    every = np.concatenate(
        [
            (x @ own["weight"].T + own["bias"]).numpy()[None]
            for state in sampler._states(sampler.burn_in).values()
            for own in sampler.chains.states(state)
        ]
    )
    np.testing.assert_allclose(said.mean, every.mean(axis=0))
    np.testing.assert_allclose(said.variance, every.var(axis=0) + 0.25)


def test_a_report_of_values_has_the_law_of_the_mixture(conjugate):
    sampler = conjugate[2]
    x, y = regression_examples(30)
    report = sampler.report(x, y)
    means = np.concatenate(
        ht.outputs(sampler.chains, sampler._states(sampler.burn_in).values(), x, task="regression")
    )
    density = np.log(norm.pdf(y.numpy(), means, 0.5).mean(axis=0))
    assert report.averaged["log_score"].value == pytest.approx(-density.mean())
    single = sampler._single(x).detach().numpy()
    assert report.single["log_score"].value == pytest.approx(-norm.logpdf(y.numpy(), single, 0.5).mean())
    assert report.difference.value == pytest.approx(
        report.averaged["log_score"].value - report.single["log_score"].value
    )
    assert 0.8 < report.averaged["coverage"].value <= 1
    assert report.plot().get_ylabel().startswith("predicted")


@QUIET
def test_the_noise_of_a_regression_is_sampled_with_the_parameters():
    """s² has the law of a linear regression with a wide prior.

    That is near Σr²/(n - 3) = 0.25, not the variance of the targets, 1.4, where it starts. It is in the
    predictions and the report.
    """
    x, y = regression_examples(200)
    model = torch.nn.Linear(2, 1).double()
    sampler = ht.Sampler(model, "mse_loss", (x, y), chains=4, seed=1).run(steps=300)
    A = torch.cat([x, torch.ones(200, 1, dtype=x.dtype)], dim=1)
    rest = float((A @ torch.linalg.lstsq(A, y).solution - y).square().sum()) / 197
    noises = sampler._noise_samples(sampler._diagnose())
    mean = statistics.mean(noises)
    assert abs(mean.value - rest) < 0.1 * rest  # the bias of the priors is below 2 %, the error about 2 %
    assert noises.std() == pytest.approx(rest * math.sqrt(2 / 200), rel=0.4)
    assert sampler.noise == pytest.approx(mean.value)
    assert float(sampler.predict(x).noise) == pytest.approx(mean.value)
    report = sampler.report(x, y)
    assert report.averaged["log_score"].value == pytest.approx(
        0.5 * math.log(2 * math.pi * rest) + 0.5, abs=0.05
    )
    # the single network is the module as it was, with the noise that its training residuals have
    residuals = float((model(x).detach() - y).square().mean())
    assert report.single["log_score"].value == pytest.approx(0.5 * math.log(2 * math.pi * residuals) + 0.5)


def test_the_optimiser_has_temperature_and_prior_of_the_posterior():
    """Where classes are on the last axis of the outputs, every target counts."""
    x, y = torch.randint(6, (30, 4), generator=generator()), torch.randint(3, (30, 4), generator=generator(1))
    model = torch.nn.Sequential(torch.nn.Embedding(6, 5), torch.nn.Linear(5, 3))
    sampler = make_sampler((x, y), model, temperature=0.3, prior=[0.5, 2.0])
    assert sampler.settings.targets == 4
    groups = sampler._trajectory.optimizer.param_groups
    assert [group["tau"] for group in groups] == pytest.approx([0.3 / 120] * 2)
    assert [group["weight_decay"] for group in groups] == pytest.approx([1 / (0.25 * 120), 1 / (4 * 120)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sampler.run(steps=10)
        assert sampler.predict(x).mean.shape == (30, 4, 3)
        assert sampler.report(x, y).forecasts["single"].mean.shape == (120, 3)


# The trajectory


@QUIET
@pytest.mark.parametrize("n", [40, 300])
def test_a_sampler_equals_a_training_loop_by_hand(n):
    """It does so with mini-batches, too, where each chain has its own."""
    x, y = class_examples(n)
    model = make_network()
    sampler = make_sampler((x, y), model, gamma=0.7, temperature=0.5).run(steps=12)
    chains = ht.Chains(copy.deepcopy(model).eval(), 2, "same")
    posterior = ht.LossPosterior("cross_entropy", n, temperature=0.5)
    optimizer = ht.Langevin(chains, 0.1, 0.7, posterior=posterior, seed=1)
    batches = ChainBatches((x, y), None if n < 256 else 128, 2, 1, torch.device("cpu"))
    for step in range(12):
        optimizer.zero_grad()
        if n < 256:
            losses = chains.each(F.cross_entropy, chains(x), y)
        else:
            own, targets = batches.at_step(step)
            losses = torch.stack(
                [F.cross_entropy(o, t) for o, t in zip(chains(own, each=True), targets, strict=True)]
            )
        losses.sum().backward()
        optimizer.step()
    for name, value in chains.state_dict().items():
        torch.testing.assert_close(sampler.chains.state_dict()[name], value, rtol=1e-6, atol=1e-7)


@QUIET
def test_a_loader_with_one_batch_gives_the_same_samples_as_tensors():
    x, y = class_examples()
    assert have_same_states(make_sampler().run(steps=6), make_sampler([(x, y)]).run(steps=6))
    loader = DataLoader(TensorDataset(x, y), 10, shuffle=True)
    first, second = (make_sampler(loader).run(steps=6) for _ in range(2))
    assert first.settings.batch == 10
    assert have_same_states(first, second)
    assert not have_same_states(first, make_sampler(loader, seed=2).run(steps=6))


# Going on, interruptions, files


def act_before_step(step, monkeypatch, how):
    """Have a function called before this step."""
    advance = Trajectory.advance

    def interrupted(self):
        if self.step == step:
            monkeypatch.setattr(Trajectory, "advance", advance)
            how()
        return advance(self)

    monkeypatch.setattr(Trajectory, "advance", interrupted)


def kill():
    raise MemoryError("killed")


def sampler_makers():
    """Return functions that make samplers.

    They use mini-batches, a loader, a noise that is sampled, and a loss of one's own with stepsize "auto".
    """
    x, y = class_examples(300)
    loader = DataLoader(TensorDataset(x, y), 30, shuffle=True)
    line = torch.nn.Linear(2, 1).double()
    return {
        "batches": lambda: make_sampler((x, y)),
        "loader": lambda: make_sampler(loader),
        "noise": lambda: make_sampler(regression_examples(), copy.deepcopy(line), "mse_loss"),
        "own": lambda: make_sampler(
            regression_examples(), copy.deepcopy(line), F.mse_loss, task="regression", lr="auto"
        ),
    }


@QUIET
@pytest.mark.parametrize("kind", sampler_makers())
def test_the_same_calls_after_a_kill_give_the_same_bits(kind, tmp_path, monkeypatch):
    make, path = sampler_makers()[kind], tmp_path / "sampler.safetensors"
    whole = make().run(steps=9).run(steps=12)
    for step in (5, 14):  # in the first call, and in the second
        path.unlink(missing_ok=True)
        act_before_step(step, monkeypatch, kill)
        with pytest.raises(MemoryError):
            make().run(steps=9, checkpoint=path, every=1e-9).run(steps=12, checkpoint=path, every=1e-9)
        again = make().run(steps=9, checkpoint=path)
        assert again.step == (9 if step < 9 else 14)
        assert again._trajectory.samples.thin == 2
        again.run(steps=12, checkpoint=path)
        assert again.step == 21
        assert have_same_states(whole, again)
        assert again.gradients == whole.gradients
        for before, after in zip(
            whole._trajectory.records.values(), again._trajectory.records.values(), strict=True
        ):
            np.testing.assert_array_equal(before.outputs, after.outputs)
            np.testing.assert_array_equal(before.noise, after.noise)
    x = regression_examples()[0] if kind in ("noise", "own") else class_examples()[0]
    assert torch.equal(whole.predict(x).mean, again.predict(x).mean)


@QUIET
def test_a_checkpoint_is_refused_by_different_calls_and_samplers(tmp_path):
    path = tmp_path / "sampler.safetensors"
    make_sampler().run(steps=6, checkpoint=path)
    content = path.read_bytes()
    with pytest.raises(ValueError, match=r"made by run\(steps=6\), and this is run\(steps=7\)"):
        make_sampler().run(steps=7, checkpoint=path)
    other = make_network()
    other[0].weight.data += 1
    for wrong, match in [
        (make_sampler(temperature=0.5), "a different temperature"),
        (make_sampler(seed=2, gamma=1.0), "a different gamma, seed"),
        (make_sampler(model=other), "a different model"),
        (make_sampler(data=(class_examples()[0] + 1, class_examples()[1])), "a different data"),
    ]:
        with pytest.raises(ValueError, match=f"{match}: it is left alone"):
            wrong.run(steps=6, checkpoint=path)
    assert path.read_bytes() == content
    assert make_sampler().run(steps=6, checkpoint=path).step == 6
    (tmp_path / "letter.txt").write_text("Dear all")
    with pytest.raises(ValueError, match="not a file of a sampler"):
        make_sampler().run(steps=6, checkpoint=tmp_path / "letter.txt")
    with pytest.raises(FileExistsError, match="left alone"):
        make_sampler().save(tmp_path / "letter.txt")
    assert (tmp_path / "letter.txt").read_text() == "Dear all"


@QUIET
def test_ctrl_c_returns_the_sampler_and_the_next_call_continues(monkeypatch):
    whole = make_sampler().run(steps=20)
    act_before_step(10, monkeypatch, lambda: signal.raise_signal(signal.SIGINT))
    sampler = make_sampler()
    with pytest.warns(hb.InterruptedWarning, match="interrupted at step 11"):
        sampler.run(steps=20)
    assert sampler.step == 11
    assert sampler.predict(class_examples()[0]).mean.shape == (40, 2)
    sampler.run(steps=9)
    assert have_same_states(whole, sampler)


@QUIET
def test_runs_keep_to_their_steps_and_seconds():
    told = []
    sampler = make_sampler().run(steps=7)
    assert (sampler.step, sampler.gradients) == (7, 14)
    assert sampler.run(steps=3).step == 10
    spent = sampler.seconds
    sampler.run(seconds=0.25, progress=told.append)
    assert sampler.seconds - spent >= 0.25
    assert sampler.step > 10
    assert isinstance(told[-1], hb.Progress)
    assert told[-1].first == 10
    assert told[-1].step <= sampler.step
    assert math.isfinite(told[-1].loss)


def test_a_run_without_a_length_ends_when_predictions_have_converged(monkeypatch):
    monkeypatch.setattr(home, "FIRST_CHECK", 100)
    options = {"noise": 0.5, "lr": 0.4, "samples": 64, "chains": 4}
    sampler = make_sampler(
        regression_examples(), least_squares_model(*regression_examples()), "mse_loss", **options
    )
    sampler.run()
    assert sampler.step in (100, 200, 400, 800)
    assert sampler.has_converged
    assert sampler.convergence.rhat <= 1.1


@QUIET
def test_a_loaded_sampler_predicts_and_continues_with_the_same_bits(tmp_path):
    path = tmp_path / "sampler.safetensors"
    x, y = class_examples()
    sampler = make_sampler(prior=(0.5, 2.0)).run(steps=11)
    sampler.save(path)
    other = make_network()
    torch.nn.init.zeros_(other[0].weight)  # what it has does not matter
    loaded = ht.Sampler.load(path, other)
    for a, b in zip(sampler.predict(x)[:5], loaded.predict(x)[:5], strict=True):
        assert torch.equal(a, b)
    assert repr(loaded) == repr(sampler)
    assert repr(loaded.report(x, y)) == repr(sampler.report(x, y))
    with pytest.raises(ValueError, match=r"no data: .*load\(path, model, data=\)"):
        loaded.run(steps=3)
    with pytest.raises(ValueError, match="not the data"):
        ht.Sampler.load(path, other, (x + 1, y))
    going = ht.Sampler.load(path, other, (x, y)).run(steps=9)
    assert have_same_states(sampler.run(steps=9), going)
    assert ht.Sampler.load(path, other).settings == sampler.settings
    loaded.save(path)  # it replaces its own kind, and loses nothing
    assert have_same_states(ht.Sampler.load(path, other, (x, y)), loaded)


class Tied(torch.nn.Module):
    """A module with shared matrices, a scalar, an empty parameter, a mask, and an unsaved buffer."""

    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
        self.last.weight = self.first.weight
        self.scale, self.nothing = torch.nn.Parameter(torch.ones(())), torch.nn.Parameter(torch.zeros(0))
        self.register_buffer("mask", torch.tensor([0.0, float("-inf")]))
        self.register_buffer("shift", torch.ones(2), persistent=False)

    def forward(self, x):
        return self.scale * self.last(torch.tanh(self.first(x))) + torch.softmax(self.mask, 0) * self.shift


@QUIET
@pytest.mark.parametrize("make", [Tied, lambda: make_network().bfloat16()], ids=["tied", "bfloat16"])
def test_samplers_of_unusual_modules_continue_from_a_file_with_the_same_bits(make, tmp_path):
    """In half precision that includes the float32 copies, in which small steps add up."""
    path, model = tmp_path / "sampler.safetensors", make()
    x, y = class_examples()
    x = x.to(model.get_parameter("first.weight" if isinstance(model, Tied) else "0.weight").dtype)
    sampler = make_sampler((x, y), model, lr=0.01).run(steps=11)
    sampler.save(path)
    loaded = ht.Sampler.load(path, make(), (x, y))
    assert torch.equal(loaded.predict(x).mean, sampler.predict(x).mean)
    assert have_same_states(sampler.run(steps=9), loaded.run(steps=9))


# What is found, and what is said


@QUIET
def test_the_stepsize_is_halved_if_chains_diverge_or_are_too_hot():
    x, y = regression_examples()
    steep = torch.nn.Linear(2, 1).double()
    sampler = ht.Sampler(steep, "mse_loss", (10 * x, y), noise=0.5, chains=4, seed=1).run(steps=60)
    assert sampler.lr == 0.1  # the curvature is about 2 x 100, and h² k < 4
    assert [h for h, _ in sampler.tried] == [0.4, 0.2]
    assert sampler.step == 60
    assert sampler.gradients > 240  # trials count
    # noisy gradients: batches heat in proportion to h
    x = torch.randn(400, 30, dtype=torch.float64, generator=generator())
    y = torch.randn(400, 1, dtype=torch.float64, generator=generator(1))
    options = {"noise": 1.0, "batch": 50, "chains": 8, "seed": 1}
    found = ht.Sampler(least_squares_model(x, y), "mse_loss", (x, y), **options).run(steps=140)
    assert found.lr < 0.2
    heats = [heat for _, heat in found.tried]
    assert heats[-1] > 1.3
    assert all(following < one for one, following in itertools.pairwise(heats))
    # far from the minimum it is hot at any stepsize, which is not the fault of that
    far = ht.Sampler(
        torch.nn.Linear(2, 1).double(), "mse_loss", regression_examples(), noise=0.5, chains=8, seed=1
    )
    assert far.run(steps=40).lr == 0.2
    assert far.tried[0][1] > 2


@pytest.mark.filterwarnings("ignore::heatbath._internal.warnings.OffTemperatureWarning")
def test_warnings_name_the_problem_and_the_remedy():
    x, y = regression_examples(400)
    line = torch.nn.Linear(2, 1).double()
    options = {"noise": 0.2, "batch": 4, "chains": 8, "seed": 1, "lr": 0.4}
    with pytest.warns() as caught:
        ht.Sampler(line, "mse_loss", (x, y), **options).run(steps=200)
    texts = {one.category: str(one.message) for one in caught}
    assert "kinetic" in str([str(one.message) for one in caught])
    assert "larger batches" in texts[hb.OffTemperatureWarning]
    with pytest.warns(ht.NotConvergedWarning, match="not converged in 3 steps.*too few samples"):
        make_sampler().run(steps=3)
    with pytest.warns(ht.NotConvergedWarning, match="too few samples, or chains"):
        make_sampler(chains=1).run(steps=20)
    assert caught[0].filename == __file__


@QUIET
def test_a_chain_that_diverges_is_reported_and_left_out():
    x, _ = class_examples()
    sampler = make_sampler(chains=3).run(steps=4)
    with torch.no_grad():
        next(iter(sampler.chains.parameters()))[1] = math.nan
    with pytest.warns(hb.DivergedWarning, match="chains 1 diverged by step 5"):
        sampler.run(steps=30)
    with pytest.warns(RuntimeWarning, match="not finite"):
        said = sampler.predict(x)
    assert said.mean.isfinite().all()
    assert sampler.convergence is not None
    with torch.no_grad():
        next(iter(sampler.chains.parameters()))[:] = math.nan
    with pytest.raises(FloatingPointError, match=r"all chains diverged by step 35.*smaller lr than 0.1"):
        sampler.run(steps=5)


@QUIET
def test_the_noise_is_averaged_over_chains_that_are_alive(monkeypatch):
    """The first of three dies: its noise stays, and the other two have their own in the report."""
    x, y = regression_examples(100)
    sampler = ht.Sampler(torch.nn.Linear(2, 1).double(), "mse_loss", (x, y), chains=3, lr=0.1, seed=1)
    sampler.run(steps=20)
    with torch.no_grad():
        next(iter(sampler.chains.parameters()))[0] = math.nan
    stays = sampler._trajectory.optimizer.noise[0]
    with pytest.warns(hb.DivergedWarning, match="chains 0 diverged"):
        sampler.run(steps=120)
    now = sampler._trajectory.optimizer.noise
    assert now[0] == stays
    noises = np.stack(
        [n.noise for s, n in sampler._trajectory.records.items() if s > sampler.burn_in], axis=1
    )
    assert sampler.noise == pytest.approx(noises[1:].mean(), rel=1e-12)
    given = []
    of_values = Report.of_values

    def noted(task, y, said, single, law):
        given.append((said, law))
        return of_values(task, y, said, single, law)

    monkeypatch.setattr(Report, "of_values", staticmethod(noted))
    with pytest.warns(hb.DivergedWarning, match="chains 0 are not finite.*left out"):
        assert sampler.predict(x).mean.isfinite().all()
    sampler.report(x, y)
    ((said, (variances, _)),) = given
    assert len(said) == len(variances) == 2 * noises.shape[1]
    np.testing.assert_array_equal(variances, noises[1:].ravel())
    assert not np.isin(stays, variances)
    assert sampler.temperatures()


@QUIET
def test_sampling_is_in_evaluation_mode_and_leaves_the_module_alone():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(2, 6), torch.nn.BatchNorm1d(6), torch.nn.Dropout(), torch.nn.Linear(6, 2)
    )
    model[1].running_mean += 0.3
    model[3].bias.requires_grad_(False)
    before = copy.deepcopy(model.state_dict())
    sampler = make_sampler(model=model).run(steps=10)
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    for state in sampler._trajectory.samples:
        for own in sampler.chains.states(state):
            for name in ("1.running_mean", "1.running_var", "1.num_batches_tracked", "3.bias"):
                assert torch.equal(own[name], before[name])
            assert not torch.equal(own["0.weight"], before["0.weight"])
    x = class_examples()[0]
    assert torch.equal(sampler.predict(x).mean, sampler.predict(x).mean)
