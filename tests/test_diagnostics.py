"""Means of correlated series, temperatures, gradient noise, convergence, and shapes of networks."""

import itertools
import math
import warnings
from statistics import NormalDist

import numpy as np
import pytest
import torch

import heatbath as hb
from heatbath import diagnostics as d
from heatbath.diagnostics.gradients import gradient_moments
from heatbath.prediction import Samples
from tests.runs import SMALL, SPIRALS


def autoregressive(rho, count, runs, seed=0):
    """Series with variance 1 and correlation ρ from value to value; their integrated time is (1+ρ)/(1-ρ)."""
    noise = np.random.default_rng(seed).standard_normal((count, runs))
    for n in range(1, count):
        noise[n] = rho * noise[n - 1] + math.sqrt(1 - rho**2) * noise[n]
    return noise.T


def blocked(series):
    blocks = d.Blocks()
    for value in series.tolist():
        blocks.add(value)
    return blocks.estimate()


def tally(estimates):
    """How many intervals hold 0, and how many there are not, as shares."""
    inside = sum(estimate.interval[0] < 0 < estimate.interval[1] for estimate in estimates)
    return inside / len(estimates), sum(math.isnan(e.error) for e in estimates) / len(estimates)


# Means of correlated series


@pytest.mark.parametrize("estimate", [blocked, d.mean])
@pytest.mark.parametrize(
    ("rho", "count", "runs"),
    [
        (0.0, 20, 400),
        (0.5, 60, 400),
        (0.9, 380, 400),
        (-0.8, 400, 400),
        (0.98, 2000, 400),
        (0.999, 40_000, 80),
    ],
)
def test_intervals_are_honest_from_20_correlation_times_on(estimate, rho, count, runs):
    """Some 5 % of the shortest are unknown there; of the others 88 to 99.5 % hold the truth."""
    inside, unknown = tally([estimate(series) for series in autoregressive(rho, count, runs, seed=5)])
    assert unknown < 0.1
    assert 0.88 < inside / (1 - unknown) < 0.995


@pytest.mark.parametrize("estimate", [blocked, d.mean])
@pytest.mark.parametrize(
    ("rho", "count"), [(0.9, 20), (0.9, 50), (0.9, 100), (0.98, 300), (0.98, 1000), (0.999, 2000)]
)
def test_short_series_say_nothing_rather_than_too_much(estimate, rho, count):
    """NaN, or an interval that holds the truth, in 85 % of the series; naively it would be in few."""
    series = autoregressive(rho, count, 400, seed=6)
    inside, unknown = tally([estimate(own) for own in series])
    assert inside + unknown > 0.85
    naive = np.abs(series.mean(axis=1)) < 1.96 * series.std(axis=1) / math.sqrt(count)
    assert naive.mean() < 0.5


@pytest.mark.parametrize(
    ("chains", "rho", "count"), [(4, 0.98, 50), (4, 0.98, 400), (10, 0.9, 400), (2, 0.5, 300)]
)
def test_several_chains_have_an_interval_however_short_they_are(chains, rho, count):
    traces = autoregressive(rho, count, 500 * chains, seed=7).reshape(500, chains, count)
    inside, unknown = tally([d.mean(trace) for trace in traces])
    assert unknown == 0
    assert 0.91 < inside < 0.98


def test_chains_that_disagree_widen_the_interval():
    """Each is short of the truth in its own way; what they show within would never tell."""
    rng = np.random.default_rng(1)
    traces = rng.standard_normal((300, 5, 1)) + 0.1 * rng.standard_normal((300, 5, 200))
    inside, _ = tally([d.mean(trace) for trace in traces])
    assert 0.91 < inside < 0.985
    value, error = d.mean([[1.0] * 40, [2.0] * 40, [6.0] * 40])  # constant within
    assert (value, error) == pytest.approx((3.0, math.sqrt(7 / 3) * 4.302652729749464 / 1.96))


def test_what_chains_differ_by_counts_beside_what_they_show_within():
    """Moved apart by less than what would be a disagreement, they make the error larger."""
    trace = np.random.default_rng(3).standard_normal((4, 400))
    trace -= trace.mean(axis=1, keepdims=True)
    apart = trace + 0.05 * np.array([[-1.0], [1.0], [-1.0], [1.0]])
    assert d.mean(apart).error ** 2 - d.mean(trace).error ** 2 == pytest.approx(
        (0.05**2 * 4 * 400 / 11) / 1600 * (2.200985160082949 / 1.96) ** 2, rel=1e-9
    )  # 4 x 2 waves and 3 differences: Student's t with 11 degrees of freedom


def test_a_single_record_of_chains_has_student_s_interval():
    values = np.array([1.0, 2.0, 4.0, 4.5])
    low, high = d.mean(values[:, None]).interval
    half = 3.182446305284263 * values.std(ddof=1) / 2  # the tabulated quantile for 3 degrees of freedom
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), rel=1e-9)


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.95, -0.5])
def test_the_autocorrelation_time_is_that_of_the_law(rho):
    exact = (1 + rho) / (1 - rho)
    trace = autoregressive(rho, 20_000, 4, seed=2)
    assert d.autocorrelation_time(trace) == pytest.approx(exact, rel=0.15)
    assert d.autocorrelation_time(trace[0]) == pytest.approx(exact, rel=0.3)
    assert d.autocorrelation_time(trace + np.arange(4.0)[:, None]) == pytest.approx(exact, rel=0.15)
    assert d.autocorrelation_time(np.full(100, 0.1)) == 1.0


def test_the_mean_is_that_of_all_values_and_memory_is_bounded():
    blocks = d.Blocks(most=32)
    values = np.random.default_rng(0).standard_normal(10_001)
    for value in values:
        blocks.add(value)
    assert len(blocks) == 10_001
    assert len(blocks._means) < 32
    assert blocks.estimate().value == pytest.approx(values.mean(), rel=1e-12)
    assert d.mean(values.reshape(73, 137)).value == pytest.approx(values.mean(), rel=1e-12)


def test_too_few_values_have_no_error_and_none_no_mean():
    blocks = d.Blocks()
    assert math.isnan(blocks.estimate().value)
    for _ in range(15):
        blocks.add(2.0)
    assert blocks.estimate().value == 2.0
    assert math.isnan(blocks.estimate().error)
    blocks.add(2.0)
    assert blocks.estimate() == (2.0, 0.0)  # a constant has no error
    with pytest.raises(ValueError, match="most must be a whole number >= 32"):
        d.Blocks(most=3)


def test_traces_that_are_not_numbers_are_refused():
    for wrong in ([], [["a"]], np.zeros((2, 2, 2))):
        with pytest.raises(ValueError, match=r"\(chain, record\) or \(record,\), and not empty"):
            d.mean(wrong)
    with pytest.raises(ValueError, match="got 1 values that are not: leave out the chains that diverged"):
        d.autocorrelation_time([1.0, math.nan])


# Temperatures


def rows(n, inputs=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, inputs))
    return X, X @ rng.standard_normal((inputs, 1)) + 0.3 * rng.standard_normal((n, 1))


QUADRATIC = hb.datasets.from_arrays(*rows(40), task="regression", test_share=0.0)
LINEAR = hb.Dense(())


def on_quadratic(tau, h=0.3, decay=0.2, gamma=1.0, steps=20_000, **options):
    """A linear model on all its data: no gradient noise, a quadratic loss, its minimum away from 0."""
    partition = hb.Partition(hb.Langevin(gamma, tau, weight_decay=decay), h)
    settings = {"chains": 8, "record": 500, "dtype": "float64", "seed": 1, "batch": 40} | options
    return hb.train(QUADRATIC, LINEAR, partition, steps, **settings)


def inside(table, name, value, width=1.0):
    """Whether the interval of a row, made so many times as wide, holds a value."""
    row = table.sel({next(iter(table.sizes)): name})
    half = width * (float(row["high"]) - float(row["low"])) / 2
    return abs(float(row["temperature"]) - value) < half


@pytest.mark.parametrize("tau", [1e-3, 0.4])
@pytest.mark.parametrize("word", ["BAOAB", "OBA"])
def test_a_langevin_part_has_the_kinetic_temperature_of_the_exact_law(tau, word):
    """Before O: τ for BAOAB at any h, and far from it for OBA, which is seen. Error rate 1e-5."""
    partition = hb.Partition(hb.Langevin(1.0, tau, word, weight_decay=0.2), 0.8)
    options = {"chains": 16, "record": 500, "dtype": "float64", "seed": 1}
    run = hb.train(QUADRATIC, LINEAR, partition, 5000, 40, **options)
    X = np.column_stack([QUADRATIC.X_train[0], np.ones(40)])
    K = X.T @ X / 40 + 0.2 * np.eye(4)
    law = hb.quadratic.covariance(hb.Partition(hb.Langevin(1.0, tau, word), 0.8), K, rotated=False)
    exact = tau if word == "BAOAB" else np.trace(law[4:, 4:]) / 4  # the end of OBA is before the next O
    table = d.equipartition(run, burn_in=500)
    assert table["part"].values.tolist() == ["all"]
    assert table["target"].values.tolist() == [tau]
    assert inside(table, "all", exact, width=2.3)
    assert float(table["high"][0] - table["low"][0]) < 0.1 * tau
    assert float(table["ratio"][0]) == pytest.approx(float(table["temperature"][0]) / tau)
    off = float(abs(table["temperature"] - tau)[0] / (table["high"] - table["low"])[0]) * 2 * 1.96
    assert float(table["p_value"][0]) == pytest.approx(2 * NormalDist().cdf(-off), rel=1e-6, abs=1e-12)
    assert table["verdict"].values.tolist() == ["differs" if word == "OBA" else "agrees"]


def test_small_steps_agree_with_the_target_and_a_wrong_target_does_not():
    run = on_quadratic(0.05, h=0.1)
    table = d.equipartition(run, burn_in=2000)
    assert table["verdict"].values.tolist() == ["agrees"]
    assert inside(table, "all", 0.05)
    late = hb.schedules.Piecewise([0.05, 0.07], [19_999])
    table = d.equipartition(on_quadratic(late, h=0.1), burn_in=2000)
    assert table["target"].values.tolist() == [0.07]  # the target at the last step
    assert table["verdict"].values.tolist() == ["differs"]


def test_the_burn_in_does_not_count():
    """A hot start: what was before burn_in, in steps, would be far off."""
    run = on_quadratic(0.01, start=np.full(4, 100.0), gamma=0.5)
    assert float(d.equipartition(run, burn_in=1000)["temperature"][0]) == pytest.approx(0.01, rel=0.1)
    assert float(d.equipartition(run)["temperature"][0]) > 0.02


@pytest.mark.parametrize("word", ["BAOAB", "ABOBA"])
def test_final_momenta_have_the_law_between_two_steps(word):
    """τ for a rotated BAOAB at any h, and more for ABOBA, which is seen at the kick. Error rate 1e-5."""
    partition = hb.Partition(hb.Langevin(1.0, 0.02, word), 0.9)
    run = hb.train(QUADRATIC, LINEAR, partition, 200, 40, chains=1500, record=1, dtype="float64")
    X = np.column_stack([QUADRATIC.X_train[0], np.ones(40)])
    exact = np.trace(hb.quadratic.covariance(partition, X.T @ X / 40)[4:, 4:]) / 4
    assert (exact == pytest.approx(0.02)) == (word == "BAOAB")
    table = d.equipartition(run, by="layer")
    assert inside(table, "layer1", exact, width=2.3)
    assert table["verdict"].values.tolist() == ["agrees" if word == "BAOAB" else "differs"]


def test_an_adaptive_part_is_at_its_temperature_on_mini_batches_and_a_langevin_part_is_not():
    """Gradient noise heats the one, and the thermostat removes it from the other."""
    run = hb.train(
        SPIRALS,
        SMALL,
        hb.AdLaLa(h=0.1, tau=1e-3, gamma=0.1, tau_output=1e-4),
        20_000,
        5,
        chains=8,
        record=1000,
    )
    table = d.equipartition(run, burn_in=5000)
    assert table["verdict"].values.tolist() == ["agrees", "differs"]
    assert float(table.sel(part="output")["ratio"]) > 1.5


def test_layers_are_read_from_the_final_momenta_over_chains():
    """At small h: τ of the part that the layer belongs to; the hidden layers of one part are told apart."""
    methods = {"hidden": hb.Langevin(1.0, 0.02, weight_decay=0.1), "output": hb.Langevin(1.0, 0.001)}
    run = hb.train(
        SPIRALS, hb.Dense((10, 10)), hb.Partition(methods, 0.002), 500, 20, chains=40, momenta="thermal"
    )
    table = d.equipartition(run, by="layer")
    assert table["layer"].values.tolist() == ["layer1", "layer2", "layer3"]
    assert table["target"].values.tolist() == [0.02, 0.02, 0.001]
    ends = [0, 30, 140, 151]
    for place, name in enumerate(table["layer"].values):
        own = (run.p[:, ends[place] : ends[place + 1]].astype(float) ** 2).mean(axis=1)
        assert float(table["temperature"][place]) == pytest.approx(own.mean(), rel=1e-5)
        assert inside(table, name, float(table["target"][place]), width=2)
        assert not inside(table, name, 1.5 * float(table["target"][place]), width=2)
    parts = d.equipartition(run, burn_in=100)
    assert parts["part"].values.tolist() == ["hidden1", "hidden2", "output"]
    assert len(table.to_pandas()) == 3


def test_parts_without_a_temperature_are_left_out_and_dead_chains_too():
    start = np.tile(SMALL.start(2, 1, [0], 1), (3, 1))
    start[1, 60:] = 3e38
    partition = hb.Partition({"hidden": hb.LOL().methods["hidden"], "output": hb.SGD()}, 0.1)
    with pytest.warns(RuntimeWarning, match="diverged"):
        run = hb.train(SPIRALS, SMALL, partition, 400, 20, chains=3, start=start)
    for by, name in (("part", "hidden"), ("layer", "layer1")):
        table = d.equipartition(run, by=by)
        assert table[by].values.tolist() == [name]
        assert np.isfinite(table["temperature"].values).all()
    left = (run.p[[0, 2], :60] ** 2).mean()
    assert float(d.equipartition(run, by="layer")["temperature"][0]) == pytest.approx(left, rel=1e-5)
    noise = d.gradient_noise(run)
    assert np.isnan(noise.sel(chain=1)).all()
    assert (noise.sel(chain=[0, 2]) > 0).all()


def test_a_single_short_chain_is_unknown_and_what_has_no_target_is_refused():
    run = hb.train(SPIRALS, SMALL, hb.LOL(), 20, 20, record=10)
    table = d.equipartition(run, burn_in=4)
    assert set(table["verdict"].values) == {"unknown"}
    assert math.isnan(table.sel(part="output")["ratio"])  # of τ = 0
    with pytest.raises(ValueError, match="burn_in must be a whole number >= 0 and < 20"):
        d.equipartition(run, burn_in=20)
    with pytest.raises(ValueError, match="no part of this run has a temperature"):
        d.equipartition(hb.train(SPIRALS, SMALL, hb.Partition(hb.Adam(), 0.005), 20, 20))
    with pytest.raises(ValueError, match="not evenly spaced"):
        d.equipartition(hb.train(SPIRALS, SMALL, hb.LOL(), 20, 20, record=[1, 2, 10]))
    swept = hb.sweep(SPIRALS, SMALL, hb.LOL(tau=[1e-4, 1e-3]), 20, 20, samples=5)
    for function in (d.equipartition, d.configurational, d.gradient_noise):
        with pytest.raises(
            ValueError, match=r"differ in tau: select one of its 2 points first, as in run.select\(tau="
        ):
            function(swept)
        function(swept.select(tau=1e-3))
    for function in (d.equipartition, d.configurational, d.gradient_noise, d.convergence):
        with pytest.raises(TypeError, match="run must be a Run"):
            function(run.theta)
    ladder = hb.schedules.SimulatedTempering([1e-4, 1e-3])
    tempered = hb.train(SPIRALS, SMALL, hb.Partition(hb.Langevin(1.0, ladder), 0.1), 20, 20)
    with pytest.raises(ValueError, match="'all' is tempered"):
        d.equipartition(tempered)
    with pytest.raises(ValueError, match="by must be one of 'part', 'layer'"):
        d.equipartition(run, by="tensor")
    with pytest.raises(ValueError, match="train with samples=N"):
        d.configurational(run)


# Configurational temperature


@pytest.mark.parametrize(("tau", "h"), [(0.003, 0.2), (0.003, 1.0), (0.5, 1.0), (2.0, 0.6)])
def test_the_virial_of_baoab_is_its_tau_on_a_quadratic_at_any_h(tau, h):
    """Exact there for BAOAB; OBABO is at τ/(1 - h²k/4), which is found as well. Error rate 1e-5."""
    K = np.array([[2.0, 0.4], [0.4, 1.0]])
    centre = np.array([0.1, -0.2])

    def gradient(theta, batch=None):
        return (theta - centre) @ K

    for word in ("BAOAB", "OBABO"):
        partition = hb.Partition(hb.Langevin(1.5, tau, word=word), h)
        chains = hb.Reference(gradient, np.tile(centre, (400, 1)), partition, {"fc": (2,)}, seed=3)
        chains.advance(50)
        samples = []
        for _ in range(12):
            chains.advance(6)
            samples.append(chains.state.theta.copy())
        found = d.virial(np.stack(samples, axis=1), gradient)
        exact = np.trace(K @ hb.quadratic.covariance(partition, K, {"fc": (2,)})[:2, :2]) / 2
        assert abs(found.value - exact) < 4.5 * found.error
        assert found.error < 0.1 * tau
        if word == "OBABO" and h == 1.0:
            assert abs(found.value - tau) > 4.5 * found.error
        if word == "BAOAB":
            assert exact == pytest.approx(tau, rel=1e-10)


@pytest.mark.parametrize(("tau", "h"), [(0.01, 0.3), (0.01, 1.0), (0.3, 1.0)])
def test_the_samples_of_a_run_have_the_configurational_temperature_tau(tau, h):
    """The prior is part of U, and the minimum is not at 0. BAOAB is exact here. Error rate 1e-5."""
    run = on_quadratic(tau, h=h, chains=40, steps=6000, samples=100, burn_in=1000)
    table = d.configurational(run)
    assert inside(table, "all", tau, width=2.3)
    assert float(table["high"][0] - table["low"][0]) < 0.3 * tau
    assert table["target"].values.tolist() == [tau]
    theta = run.data["samples"].values
    X, Y = QUADRATIC.X_train[0], QUADRATIC.Y_train[0]
    errors = theta[..., :3] @ X.T + theta[..., 3:] - Y[:, 0]
    force = np.concatenate([errors @ X, errors.sum(axis=-1, keepdims=True)], axis=-1) / 40 + 0.2 * theta
    expected = d.virial(theta, lambda _: force)
    assert float(table["temperature"][0]) == pytest.approx(expected.value, rel=1e-9)
    assert float(table["high"][0]) == pytest.approx(expected.interval[1], rel=1e-9)


def test_without_a_prior_weights_grow_and_the_virial_is_negative():
    run = hb.train(SPIRALS, SMALL, hb.AdLaLa(h=0.25), 4000, 20, chains=4, samples=40, burn_in=2000)
    assert (d.configurational(run)["high"] < 0).all()
    sizes = (run.data["samples"] ** 2).sum("parameter")
    assert (sizes.isel(sample=-1) > 1.2 * sizes.isel(sample=0)).all()


def test_the_configurational_temperature_of_a_torch_model_is_tau_and_leaves_it_as_it_was():
    """Independent samples of the exact law of a linear model with a prior, in two layers of U's own."""
    torch.manual_seed(0)
    model = torch.nn.ModuleDict({"a": torch.nn.Linear(3, 1), "b": torch.nn.Linear(2, 1, bias=False)}).double()
    scales = {"a.weight": 2.0, "a.bias": 0.5, "b.weight": 3.0}

    def loss():
        return sum(0.5 * scales[name] * (p - 1.0).square().sum() for name, p in model.named_parameters())

    tau, generator = 0.03, torch.Generator().manual_seed(1)
    states = [
        {
            name: 1 + math.sqrt(tau / scales[name]) * torch.randn(p.shape, generator=generator, dtype=p.dtype)
            for name, p in model.named_parameters()
        }
        for _ in range(4000)
    ]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = d.module_configurational(model, states, loss)
    assert list(found) == ["a", "b", "all"]
    for estimate in found.values():
        assert abs(estimate.value - tau) < 4.5 * estimate.error
        assert estimate.error < 0.2 * tau
    assert found["all"].value == pytest.approx((4 * found["a"].value + 2 * found["b"].value) / 6)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    with pytest.raises(ValueError, match="there are no samples"):
        d.module_configurational(model, Samples(model), loss)


# Gradient noise


def problem_of(task, n=6, seed=0):
    X, Y = rows(n, seed=seed)
    if task == "regression":
        return hb.datasets.from_arrays(X, np.hstack([Y, Y**2]), task=task, test_share=0.0)
    classes = 2 if task == "binary" else 3
    return hb.datasets.from_arrays(X, np.arange(n) % classes, task=task, test_share=0.0)


def torch_gradients(problem, network, theta):
    """The gradient of every single datum's loss by autograd, (data, parameters)."""
    module = network.to_torch(theta, problem.inputs, problem.outputs)
    x, y = (torch.tensor(a[0]) for a in (problem.X_train, problem.Y_train))
    found = []
    for row, target in zip(module(x), y, strict=True):
        loss = {
            "binary": lambda z, y: torch.nn.functional.binary_cross_entropy_with_logits(z, y),
            "classes": lambda z, y: torch.nn.functional.cross_entropy(z, y[0].long()),
            "regression": lambda z, y: 0.5 * (z - y).square().sum(),
        }[problem.task](row, target)
        found.append(
            torch.cat([g.ravel() for g in torch.autograd.grad(loss, module.parameters(), retain_graph=True)])
        )
    return torch.stack(found).numpy()


@pytest.mark.parametrize("task", ["binary", "classes", "regression"])
@pytest.mark.parametrize("network", [hb.Dense((5, 4), "tanh"), hb.Dense((5,)), hb.Dense((), "identity")])
def test_gradients_and_their_squares_are_those_of_autograd(task, network, monkeypatch):
    problem = problem_of(task, n=9)
    size = network.parameters(problem.inputs, problem.outputs)
    theta = np.random.default_rng(1).standard_normal(size)
    single = torch_gradients(problem, network, theta)
    for at_once in (10_000, 4):
        monkeypatch.setattr("heatbath.diagnostics.gradients.ROWS", at_once)
        mean, square = gradient_moments(network, theta, problem, 0)
        np.testing.assert_allclose(mean, single.mean(axis=0), rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(square, (single**2).mean(axis=0), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("batch", [1, 2, 5, 6])
def test_gradient_noise_is_the_variance_over_all_mini_batches_there_are(batch):
    """Brute force: the gradient on every subset of 6 data, none left out."""
    problem, network = problem_of("binary"), hb.Dense((4,), "tanh")
    run = hb.train(problem, network, hb.AdLaLa(h=0.1), 30, batch, chains=2, dtype="float64")
    found = d.gradient_noise(run)
    assert found.dims == ("chain", "part")
    assert found["part"].values.tolist() == ["hidden", "output"]
    for chain in range(2):
        single = torch_gradients(problem, network, run.theta[chain])
        means = [single[list(chosen)].mean(axis=0) for chosen in itertools.combinations(range(6), batch)]
        variance = np.var(means, axis=0)
        expected = [variance[:16].mean(), variance[16:].mean()]
        np.testing.assert_allclose(found.sel(chain=chain), expected, rtol=1e-9, atol=1e-20)


def test_gradient_noise_of_a_chain_is_that_of_its_own_data():
    problem = hb.datasets.spirals(n_train=50, n_test=10, draws=2)
    run = hb.train(problem, SMALL, hb.LOL(), 5, 10, chains=2, start=SMALL.start(2, 1, [0], 0)[0])
    first, second = (
        np.mean(np.subtract(b, a**2)) * (1 / 10 - 1 / 50) * 50 / 49
        for draw in (0, 1)
        for a, b in [gradient_moments(SMALL, run.theta[draw], problem, draw)]
    )
    sizes = np.array([60, 21]) / 81
    np.testing.assert_allclose(d.gradient_noise(run).values @ sizes, [first, second], rtol=1e-6)


def test_gradient_noise_of_a_torch_model_is_the_variance_over_its_batches():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)).double()
    x, y = (torch.tensor(a) for a in rows(24))
    batches = [slice(i, i + 4) for i in range(0, 24, 4)]
    losses = [lambda b=b: 0.5 * (model(x[b]) - y[b]).square().mean() for b in batches]
    found = d.module_gradient_noise(model, losses)
    gradients = [
        torch.cat([g.ravel() for g in torch.autograd.grad(loss(), model.parameters())]) for loss in losses
    ]
    variance = torch.stack(gradients).var(dim=0)
    assert list(found) == ["0", "2", "all"]
    assert found["0"] == pytest.approx(variance[:16].mean().item(), rel=1e-9)
    assert found["2"] == pytest.approx(variance[16:].mean().item(), rel=1e-9)
    assert found["all"] == pytest.approx(variance.mean().item(), rel=1e-9)
    with pytest.raises(ValueError, match="needs at least two, got 1"):
        d.module_gradient_noise(model, losses[:1])


def test_batches_of_a_shuffled_epoch_differ_by_more_and_the_factor_puts_it_right():
    """In the mean over all ways to cut 6 data into batches of 2."""
    values = np.random.default_rng(0).standard_normal(6)
    weight = torch.nn.Linear(1, 1, bias=False).double()
    cuts = []
    for order in itertools.permutations(range(6)):
        batches = np.reshape(order, (3, 2))
        if all(a < b for a, b in batches) and batches[0, 0] < batches[1, 0] < batches[2, 0]:
            losses = [lambda own=own: weight.weight.sum() * values[own].mean() for own in batches]
            cuts.append(d.module_gradient_noise(weight, losses)["all"])
    exact = np.var([values[list(own)].mean() for own in itertools.combinations(range(6), 2)])
    assert np.mean(cuts) * (1 - 2 / 6) == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("word", ["BAOAB", "BAOA", "OBABO", "ABOBA"])
@pytest.mark.parametrize("gamma", [0.3, 5.0, math.inf])
def test_gradient_noise_heats_langevin_positions_by_the_formula(word, gamma):
    """Against the exact law on a quadratic, at two τ: what is added does not depend on it."""
    h, k, noise = 0.7, 1.3, 0.4
    for tau in (0.0, 0.2):
        partition = hb.Partition(hb.Langevin(gamma, tau, word=word), h)
        with_noise = hb.quadratic.covariance(partition, k, gradient_noise=math.sqrt(noise))[0, 0]
        without = hb.quadratic.covariance(partition, k)[0, 0]
        assert k * (with_noise - without) == pytest.approx(d.gradient_heating(h, gamma, noise, k), rel=1e-9)
    small = d.gradient_heating(1e-3, 1.0, noise)
    assert small == pytest.approx(1e-3 * noise / (2 * 1.0), rel=1e-5)  # the paper's limit


def test_the_formulas_know_their_limits():
    assert d.gradient_heating(0.1, 0.0, 0.0) == 0
    assert d.gradient_heating(0.1, 0.0, 1.0) == math.inf
    with pytest.raises(ValueError, match="the limit of stability, got 4"):
        d.gradient_heating(2.0, 1.0, 1.0, curvature=1.0)
    with pytest.raises(ValueError, match="tau must be > 0"):
        d.adaptive_friction(0.1, 0.0, 1.0, 1.0)


def test_adaptive_langevin_finds_the_friction_of_the_formula():
    """With ξ held at that friction the exact temperature is τ, up to the order of h²."""
    k, noise, sigma, tau = 1.0, 0.5, 0.3, 0.2
    errors = []
    for h in (0.2, 0.1):
        xi = d.adaptive_friction(h, tau, sigma, noise)
        partition = hb.Partition(hb.AdaptiveLangevin(tau, sigma, 0.0, xi=xi), h)
        V = hb.quadratic.covariance(partition, k, gradient_noise=math.sqrt(noise))
        errors.append(abs(k * V[0, 0] / tau - 1))
    assert errors[0] < 0.02
    assert errors[1] < errors[0] / 3


# Chains


def test_chains_are_summed_up():
    told = d.over_chains([0.9, 0.8, 0.7, 0.95])
    values = np.array([0.9, 0.8, 0.7, 0.95])
    half = 3.182446305284263 * values.std(ddof=1) / 2
    assert told == pytest.approx(
        (values.mean(), values.mean() - half, values.mean() + half, values.std(ddof=1), 0.95, 0.7, 0.25)
    )
    loss = d.over_chains(values, lower_is_better=True)
    assert (loss.best, loss.worst) == (0.7, 0.95)
    assert loss.gap == pytest.approx(0.25)
    alone = d.over_chains([0.9])
    assert (alone.mean, alone.gap) == (0.9, 0)
    assert np.isnan([alone.low, alone.high, alone.std]).all()
    with pytest.raises(ValueError, match=r"one number for each chain, got an array of shape \(2, 2\)"):
        d.over_chains(np.ones((2, 2)))


def test_convergence_is_arviz_s_over_test_points_and_sees_chains_that_differ():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        arviz = pytest.importorskip("arviz")
    run = on_quadratic(0.05, chains=4, steps=4000, samples=200, burn_in=1000)
    X = [[0.0, 1.0, 0.0], [1.0, 0.0, 2.0], [0.5, 0.5, 0.5]]
    told = d.convergence(run, X)
    data = run.to_arviz(X)
    rhat, ess = (f(data)["prediction"].values.ravel() for f in (arviz.rhat, arviz.ess))
    assert told == pytest.approx((np.median(rhat), rhat.max(), np.median(ess), ess.min()))
    assert told.rhat_worst < 1.05
    assert told.ess_worst > 100
    cold = on_quadratic(1e-9, h=0.01, chains=4, steps=400, samples=100, burn_in=200)
    assert d.convergence(cold, X).rhat > 1.5
    with pytest.raises(ValueError, match="at least 2 chains and 4 samples, got 1 and 5"):
        d.convergence(on_quadratic(0.05, chains=1, steps=10, samples=5), X)
    with pytest.raises(ValueError, match="got 2 and 3"):
        d.convergence(on_quadratic(0.05, chains=2, steps=12, samples=3), X)


# Shapes


def test_near_zero_counts_along_the_last_axis():
    weights = np.array([[0.0, 0.05, -0.05, 1.0], [2.0, -0.2, 0.1, 3.0]])
    assert d.near_zero(weights, 0.1).tolist() == [0.75, 0.0]  # 0.1 itself is not closer
    assert d.near_zero(weights[0], 0.01) == 0.25
    run = hb.train(SPIRALS, SMALL, hb.LOL(), 20, 20, chains=3, record=4, weights=True)
    shares = d.near_zero(run.weights("hidden"), 0.2)
    assert shares.shape == (3, 4)
    assert shares[1, 2] == pytest.approx(np.mean(np.abs(run.weights().values[1, 2, :60]) < 0.2))
    with pytest.raises(ValueError, match="width must be > 0"):
        d.near_zero(weights, 0.0)
    with pytest.raises(ValueError, match=r"weights must be \(..., parameters\)"):
        d.near_zero([], 0.1)


def test_distributions_of_a_run_are_histograms_of_every_tensor_at_every_record():
    run = hb.train(SPIRALS, hb.Dense((6, 5)), hb.LOL(), 30, 20, chains=2, record=3, weights=True)
    edges = np.array([-0.2, -0.1, 0.0, 0.2, 0.3])
    data = d.distributions(run, edges)
    assert list(data) == [f"layer{i}.{kind}" for i in (1, 2, 3) for kind in ("weight", "bias")]
    assert data["layer1.weight"].dims == ("chain", "record", "bin")
    assert data["step"].values.tolist() == [10, 20, 30]
    np.testing.assert_allclose(data["bin"], [-0.15, -0.05, 0.1, 0.25])
    module = run.to_torch(chain=1)
    for name, value in (("layer2.weight", module[2].weight), ("layer3.bias", module[4].bias)):
        values = value.detach().numpy().ravel()
        share = (data[name].isel(chain=1, record=-1) * np.diff(edges)).values
        expected = [np.mean((values >= a) & (values < b)) for a, b in itertools.pairwise(edges)]
        np.testing.assert_allclose(share, expected, atol=1e-12)
    with pytest.raises(ValueError, match="train with weights=True"):
        d.distributions(hb.train(SPIRALS, SMALL, hb.LOL(), 20, 20), edges)
    with pytest.raises(ValueError, match="edges must be at least two rising numbers"):
        d.distributions(run, [0.0, 0.0])


def test_distributions_of_state_dicts_are_by_tensor_too_and_diverged_chains_have_none():
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    samples = Samples(model)
    for value in (0.1, 0.3, 0.9):
        torch.nn.init.constant_(model[0].weight, value)
        samples.take()
    data = d.distributions(samples, [0.0, 0.2, 0.4])
    np.testing.assert_allclose(data["0.weight"] * 0.2, [[1, 0], [0, 1], [0, 0]])
    assert "1.num_batches_tracked" not in data
    with pytest.raises(ValueError, match="there are no states"):
        d.distributions([], [0.0, 1.0])
    start = np.tile(SMALL.start(2, 1, [0], 1), (2, 1))
    start[1, 60:] = 3e38
    with pytest.warns(RuntimeWarning, match="diverged"):
        run = hb.train(SPIRALS, SMALL, hb.LOL(), 40, 20, chains=2, start=start, weights=True)
    told = d.distributions(run, [-1.0, 1.0])["layer1.weight"].isel(record=-1)
    assert np.isnan(told.values[1]).all()
    assert np.isfinite(told.values[0]).all()


def logistic(slopes, standardise=False):
    """A run whose chains are p = sigmoid(w·x) with these w, in standardised inputs."""
    X = np.random.default_rng(0).standard_normal((50, 2)) * [1.0, 3.0]
    problem = hb.datasets.from_arrays(X, np.arange(50) % 2, standardise=standardise)
    start = np.column_stack([slopes, np.zeros(len(slopes))])
    frozen = hb.Partition({"output": hb.Frozen()}, 0.1)
    return hb.train(problem, LINEAR, frozen, 1, 10, chains=len(slopes), start=start, dtype="float64")


def test_roughness_is_the_mean_norm_of_the_gradient_by_chain():
    """|∇ sigmoid(w·x)| = |w| p (1 - p), in the units of the data, and zero for a flat classifier."""
    run = logistic([[1.0, 2.0], [4.0, -1.0], [0.0, 0.0]])
    line = np.linspace(-2, 3, 20)
    x = np.array(list(itertools.product(line, line)))
    p = 1 / (1 + np.exp(-x @ run.theta[:, :2].T))
    expected = (np.linalg.norm(run.theta[:, :2], axis=1) * p * (1 - p)).mean(axis=0)
    np.testing.assert_allclose(d.roughness(run, -2, 3, points=20), expected, rtol=1e-8, atol=1e-12)
    for chain in range(3):
        found = d.module_roughness(run.to_torch(chain), -2, 3, points=20, task="binary")
        assert found == pytest.approx(expected[chain], rel=1e-9)
    scaled = logistic([[1.0, 2.0]], standardise=True)
    w = np.array([1.0, 2.0]) / scaled.problem.scale
    p = 1 / (1 + np.exp(-(x - scaled.problem.shift) @ w))
    np.testing.assert_allclose(
        d.roughness(scaled, -2, 3, points=20), [(np.linalg.norm(w) * p * (1 - p)).mean()], rtol=1e-6
    )


def test_roughness_of_several_classes_is_over_all_their_probabilities():
    """Two classes with logits ±z/2 are sigmoid(z) and its complement: √2 times the roughness of one."""
    torch.manual_seed(0)
    two = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout(0.5)).double()
    one = torch.nn.Linear(2, 1).double()
    with torch.no_grad():
        one.weight[0], one.bias[0] = two[0].weight[1] - two[0].weight[0], two[0].bias[1] - two[0].bias[0]
    assert d.module_roughness(two, -1, 1, task="classes") == pytest.approx(
        math.sqrt(2) * d.module_roughness(one, -1, 1, task="binary"), rel=1e-9
    )
    assert two.training
    assert two[1].training
    problem = problem_of("classes", n=30)
    flat = hb.datasets.from_arrays(problem.X_train[0][:, :2], np.arange(30) % 3, test_share=0.0)
    run = hb.train(flat, hb.Dense((5,), "tanh"), hb.LOL(), 5, 10, chains=2, dtype="float64")
    for chain, found in enumerate(d.roughness(run, -1, 1, points=10)):
        exact = d.module_roughness(run.to_torch(chain), -1, 1, points=10, task="classes")
        assert found == pytest.approx(exact, rel=1e-6)


def test_roughness_refuses_what_is_not_a_classifier_of_the_plane():
    with pytest.raises(ValueError, match="classifiers with two inputs"):
        d.roughness(on_quadratic(0.1, steps=1), -1, 1)
    with pytest.raises(ValueError, match="low must be below high"):
        d.roughness(logistic([[1.0, 2.0]]), 1, 1)
    with pytest.raises(ValueError, match="task must be one of 'binary', 'classes'"):
        d.module_roughness(torch.nn.Linear(2, 1), -1, 1, task="regression")


@pytest.mark.parametrize(("h", "gamma", "s"), [(0.2, 0.5, 2.0), (0.1, math.inf, 1.0), (0.4, 5.0, 0.7)])
def test_gradient_noise_heats_the_momenta_that_o_reads(h, gamma, s):
    """On a loss that is nearly flat."""
    tau, rng = 0.3, np.random.default_rng(0)
    partition = hb.Partition(hb.Langevin(gamma, tau), h)
    chains = hb.Reference(
        lambda theta, batch: s * rng.standard_normal(theta.shape),
        np.zeros((400, 50)),
        partition,
        {"all": (50,)},
    )
    heat = []
    for n in range(400):
        chains.advance(1)
        if n >= 100:
            heat.append(chains.temperature["all"].mean())
    assert np.mean(heat) == pytest.approx(tau + d.kinetic_heating(h, gamma, s**2), rel=0.01)
    assert d.kinetic_heating(h, 0.0, 0.0) == 0
