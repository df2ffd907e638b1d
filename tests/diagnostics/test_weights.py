"""Shapes: distributions of parameters, and how rough classifiers are."""

import itertools
import math

import numpy as np
import pytest

import heatbath as hb
from heatbath import diagnostics as d
from tests.diagnostics.linear import LINEAR, problem_of, run_on_quadratic
from tests.optional import optional
from tests.runs import SMALL, SPIRALS

torch = optional("torch")
module_roughness = optional("heatbath.torch").module_roughness
Samples = optional("heatbath.torch.prediction.samples").Samples


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
    run = hb.train(SPIRALS, hb.MLP((6, 5)), hb.LOL(), 30, 20, chains=2, record=3, weights=True)
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


def logistic_run(slopes, standardise=False):
    """Return a run whose chains are p = sigmoid(w·x) with the given w, in standardised inputs."""
    X = np.random.default_rng(0).standard_normal((50, 2)) * [1.0, 3.0]
    problem = hb.datasets.from_arrays(X, np.arange(50) % 2, standardise=standardise)
    start = np.column_stack([slopes, np.zeros(len(slopes))])
    frozen = hb.Partition({"output": hb.Frozen()}, 0.1)
    return hb.train(problem, LINEAR, frozen, 1, 10, chains=len(slopes), start=start, dtype="float64")


def test_roughness_is_the_mean_norm_of_the_gradient_by_chain():
    """|∇ sigmoid(w·x)| = |w| p (1 - p), in the units of the data, and zero for a flat classifier."""
    run = logistic_run([[1.0, 2.0], [4.0, -1.0], [0.0, 0.0]])
    line = np.linspace(-2, 3, 20)
    x = np.array(list(itertools.product(line, line)))
    p = 1 / (1 + np.exp(-x @ run.theta[:, :2].T))
    expected = (np.linalg.norm(run.theta[:, :2], axis=1) * p * (1 - p)).mean(axis=0)
    np.testing.assert_allclose(d.roughness(run, -2, 3, points=20), expected, rtol=1e-8, atol=1e-12)
    for chain in range(3):
        found = module_roughness(run.to_torch(chain), -2, 3, points=20, task="binary")
        assert found == pytest.approx(expected[chain], rel=1e-9)
    scaled = logistic_run([[1.0, 2.0]], standardise=True)
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
    assert module_roughness(two, -1, 1, task="classes") == pytest.approx(
        math.sqrt(2) * module_roughness(one, -1, 1, task="binary"), rel=1e-9
    )
    assert two.training
    assert two[1].training
    problem = problem_of("classes", n=30)
    flat = hb.datasets.from_arrays(problem.X_train[0][:, :2], np.arange(30) % 3, test_share=0.0)
    run = hb.train(flat, hb.MLP((5,), "tanh"), hb.LOL(), 5, 10, chains=2, dtype="float64")
    for chain, found in enumerate(d.roughness(run, -1, 1, points=10)):
        exact = module_roughness(run.to_torch(chain), -1, 1, points=10, task="classes")
        assert found == pytest.approx(exact, rel=1e-6)


def test_roughness_refuses_what_is_not_a_classifier_of_the_plane():
    with pytest.raises(ValueError, match="classifiers with two inputs"):
        d.roughness(run_on_quadratic(0.1, steps=1), -1, 1)
    with pytest.raises(ValueError, match="low must be below high"):
        d.roughness(logistic_run([[1.0, 2.0]]), 1, 1)
    with pytest.raises(ValueError, match="task must be one of 'binary', 'classes'"):
        module_roughness(torch.nn.Linear(2, 1), -1, 1, task="regression")
