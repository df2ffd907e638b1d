"""Predictions of a run: running averages over its samples."""

import numpy as np
import pytest

import heatbath as hb
from tests.runs import SMALL, SPIRALS, short_run

X = SPIRALS.X_test[0, :7]


def make_problem(task):
    """Return a small problem of a task, whose targets are noise."""
    if task == "binary":
        return SPIRALS
    random = np.random.default_rng(0)
    if task == "classes":
        return hb.datasets.from_arrays(random.standard_normal((60, 2)), np.arange(60) % 3, standardise=True)
    inputs, targets = random.standard_normal((60, 2)) * 3, 10 + 7 * random.standard_normal(60)
    return hb.datasets.from_arrays(inputs, targets, standardise=True)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("task", ["binary", "classes", "regression"])
def test_running_averages_are_means_and_variances_over_the_samples(task, dtype):
    problem = make_problem(task)
    X = np.random.default_rng(2).standard_normal((300, 2))  # more than one chunk of the compiled code
    options = {"samples": 30, "burn_in": 30, "average": X, "dtype": dtype, "chains": 3, "seed": 1}
    run = hb.train(problem, SMALL, hb.AdLaLa(), 120, 10, **options)
    outputs = run.outputs(X, samples=True)
    assert outputs.shape == (3, 30, 300, problem.outputs)
    tolerance = {"rtol": 1e-10} if dtype == "float64" else {"rtol": 1e-4, "atol": 1e-6}
    np.testing.assert_allclose(run.averages()["mean"], outputs.mean(axis=1), **tolerance)
    np.testing.assert_allclose(run.averages()["variance"], outputs.var(axis=1), **tolerance)
    np.testing.assert_array_equal(outputs[:, -1], run.outputs(X))
    wrong = outputs[:, 1:].mean(axis=1)  # one sample too few would be seen
    assert not np.allclose(run.averages()["mean"], wrong, **tolerance)


def test_averages_over_the_last_steps_keep_nothing():
    run = short_run(average=X, burn_in=110, record=range(121), weights=True, losses_every=200)
    assert "samples" not in run.data
    last = run.weights().values[:, 111:]
    outputs = [[SPIRALS.decode(SMALL.forward(theta, X, 1)) for theta in chain] for chain in last]
    np.testing.assert_allclose(run.averages()["mean"], np.mean(outputs, axis=1), rtol=1e-5)
    np.testing.assert_allclose(run.averages()["variance"], np.var(outputs, axis=1), rtol=1e-3, atol=1e-9)


def test_a_chain_that_diverged_has_no_average():
    start = np.tile(SMALL.start(2, 1, [0], 1), (3, 1))
    start[1, 60:] = 3e38
    with pytest.warns(RuntimeWarning, match="diverged"):
        run = short_run(start=start, average=X, samples=10)
    assert np.isnan(run.averages()["mean"][1]).all()
    assert np.isfinite(run.averages()["mean"][[0, 2]]).all()
