"""What the networks of a run say together."""

import math
from dataclasses import replace

import numpy as np
import pytest

import heatbath as hb
from heatbath.models import dense
from tests.optional import optional
from tests.runs import SMALL, SPIRALS

torch = optional("torch")
peak = optional("tests.torch.prediction.models").peak


def arrays(seed=0, rows=60):
    return np.random.default_rng(seed).standard_normal((rows, 2))


PROBLEMS = {
    "binary": SPIRALS,
    "classes": hb.datasets.from_arrays(3 * arrays() + 1, np.arange(60) % 3, standardise=True),
    "regression": hb.datasets.from_arrays(arrays() * 3, 10 + 7 * arrays(1)[:, 0], standardise=True),
}


def trained(problem=SPIRALS, **options):
    settings = {"steps": 60, "batch": 10, "chains": 3, "seed": 1, "record": 1, **options}
    partition = hb.Partition(hb.Langevin(gamma=1.0, tau=0.05), h=0.3)
    return hb.train(problem, SMALL, partition, **settings)


def expected_prediction(said, task):
    """Return what a Prediction should hold, from outputs (networks, data, outputs)."""
    mean, variance = said.mean(axis=0), said.var(axis=0)
    if task == "regression":
        return mean, variance, 0.5 * np.log(2 * math.pi * math.e * variance).sum(axis=-1), None, None

    def entropy(p):
        p = np.concatenate([p, 1 - p], axis=-1) if task == "binary" else p
        return -(p * np.log(p)).sum(axis=-1)

    whole, expected = entropy(mean), entropy(said).mean(axis=0)
    return mean, variance, whole, expected, whole - expected


def check_prediction(told, expected, **tolerance):
    """Check the fields of a prediction against expected values; None must be None."""
    expected = [*expected, None][: len(told)]  # without noise
    for name, got, wanted in zip(told._fields, told, expected, strict=True):
        if wanted is None:
            assert got is None
        else:
            np.testing.assert_allclose(got, wanted, err_msg=name, **tolerance)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_a_run_s_predictions_are_averages_over_its_samples_chains_or_steps(problem, dtype):
    X = 2 * arrays(2, rows=50)
    run = trained(problem, samples=20, burn_in=40, average=X, dtype=dtype)
    assert run.plan.thin == 1
    exact = {"rtol": 1e-10, "atol": 1e-12}
    over_samples = expected_prediction(run.outputs(X, samples=True).reshape(60, 50, -1), problem.task)
    check_prediction(run.predict(X), over_samples, **exact)
    check_prediction(
        run.predict(X, over="chains"), expected_prediction(run.outputs(X), problem.task), **exact
    )
    rough = {"rtol": 1e-3, "atol": 1e-5} if dtype == "float32" else exact
    check_prediction(run.predict(over="steps"), [*over_samples[:3], None, None], **rough)
    assert not np.allclose(over_samples[1], expected_prediction(run.outputs(X), problem.task)[1], rtol=1e-2)


def test_the_standard_deviation_is_the_root_of_the_variance_of_arrays_and_tensors():
    said = trained(samples=5).predict(arrays())
    np.testing.assert_array_equal(said.sd, np.sqrt(said.variance))
    tensors = said._replace(variance=torch.as_tensor(said.variance))
    assert torch.equal(tensors.sd, tensors.variance.sqrt())


def test_the_latest_samples_may_be_asked_alone():
    run, X = trained(samples=10), arrays()
    latest = run.outputs(X, samples=True)[:, -4:].reshape(-1, 60, 1)
    check_prediction(run.predict(X, latest=4), expected_prediction(latest, "binary"), rtol=1e-9, atol=1e-12)
    check_prediction(run.predict(X, latest=99), run.predict(X), rtol=0, atol=0)


def test_many_data_are_asked_in_chunks_and_none_or_one_is_fine(monkeypatch):
    run, X = trained(samples=5), arrays(3, rows=1000)
    whole = run.predict(X)
    monkeypatch.setattr(dense, "AT_ONCE", 20 * 300)  # rows of 20 hidden units; 1000 is no multiple of 300
    check_prediction(run.predict(X), whole, rtol=1e-12, atol=1e-14)
    check_prediction(
        run.predict(X[0]), [None if part is None else part[:1] for part in whole], rtol=1e-12, atol=1e-14
    )
    assert run.predict(X[:0]).mean.shape == (0, 1)


def test_a_run_s_predictions_need_no_more_memory_for_more_samples():
    X = arrays(4, rows=20_000)
    few, many = trained(samples=2), trained(samples=60)
    few.predict(X[:10])
    least, most = (peak(lambda run=run: run.predict(X)) for run in (few, many))
    assert most < least + 20_000 * 8 / 2
    assert most < 20_000 * 8 * 30  # and it is far from all outputs, 180 times this number of data


def test_chains_that_diverged_do_not_count():
    start = np.tile(SMALL.start(2, 1, [0], 1), (3, 1))
    start[1, 60:] = 3e38
    X = arrays(5)
    with pytest.warns(RuntimeWarning, match="diverged"):
        run = trained(start=start, average=X, samples=60)
    left = run.outputs(X, samples=True)[[0, 2]].reshape(120, 60, 1)
    check_prediction(run.predict(X), expected_prediction(left, "binary"), rtol=1e-9, atol=1e-12)
    check_prediction(
        run.predict(X, over="chains"),
        expected_prediction(run.outputs(X)[[0, 2]], "binary"),
        rtol=1e-9,
        atol=1e-12,
    )
    check_prediction(
        run.predict(over="steps"),
        [*expected_prediction(left, "binary")[:3], None, None],
        rtol=1e-3,
        atol=1e-6,
    )
    lost = replace(run, data=run.data.assign(died=run.data["died"] * 0 + 3))
    with pytest.raises(ValueError, match="all chains of this run diverged"):
        lost.predict(X)


def test_what_a_run_cannot_say_is_refused():
    run, X = trained(average=arrays(), burn_in=50), arrays()
    with pytest.raises(ValueError, match=r"train with samples=N, .* or predict over='chains'"):
        run.predict(X, over="samples")
    check_prediction(run.predict(X), run.predict(X, over="chains"), rtol=0, atol=0)  # what there is
    with pytest.raises(ValueError, match="over must be one of 'samples', 'chains', 'steps', got 'time'"):
        run.predict(X, over="time")
    with pytest.raises(TypeError, match="leave X out"):
        run.predict(X, over="steps")
    with pytest.raises(TypeError, match="X is needed"):
        run.predict(over="chains")
    with pytest.raises(
        ValueError, match=r"X must be \(examples, 2 features\), got an array of shape \(4, 3\)"
    ):
        run.predict(np.zeros((4, 3)), over="chains")
    with pytest.raises(ValueError, match="X must be finite"):
        run.predict([[0.0, np.nan]], over="chains")
    with pytest.raises(ValueError, match="at step 30, in the burn-in of 50; resume it"):
        replace(run, step=30).predict(over="steps")
    with pytest.raises(ValueError, match="train with average=X"):
        trained().predict(over="steps")
    with pytest.raises(ValueError, match="latest must be a whole number >= 1, got 0"):
        trained(samples=5).predict(X, latest=0)
    with pytest.raises(ValueError, match="latest is for samples, and these are over chains"):
        trained(samples=5).predict(X, over="chains", latest=2)
    grid = hb.Partition(hb.Langevin(gamma=1.0, tau=[0.01, 0.1]), h=0.3)
    sweep = hb.sweep(SPIRALS, SMALL, grid, steps=20, batch=10, chains=2)
    with pytest.raises(
        ValueError, match=r"differ in tau: select one of its 2 points first, as in run.select\(tau=0.01\)"
    ):
        sweep.predict(X, over="chains")
    assert sweep.select(tau=0.1).predict(X, over="chains").mean.shape == (60, 1)
