"""Priors that runs find by themselves: those at which the evidence is largest."""

import math

import numpy as np
import pytest

import heatbath as hb
from heatbath.diagnostics.statistics import Estimate
from heatbath.models.likelihood import Likelihood, draw_prior
from heatbath.runs.adaptation_record import Found
from heatbath.training import prior as prior_search
from heatbath.training.stepsize import is_far_too_hot

pytestmark = pytest.mark.filterwarnings("ignore::heatbath.OffTemperatureWarning")  # of very short runs
LINE = hb.MLP(())


def linear_problem(deviation, inputs=20, n=60, noise=0.5):
    """Return a problem for a linear model whose coefficients have this standard deviation."""
    generator = np.random.default_rng(3)
    X = generator.standard_normal((n, inputs))
    y = X @ (deviation * generator.standard_normal(inputs)) + noise * generator.standard_normal(n)
    return hb.datasets.from_arrays(X, y, task="regression", test_share=0.0)


def partition(h=0.1, prior="auto", gamma=0.3, **posterior):
    return hb.Partition(hb.Langevin(gamma=gamma), h, hb.Posterior(prior, **posterior))


def best_deviation(problem, noise, T):
    """Return the deviation with the largest evidence N(y; 0, T (s² + ς² X Xᵀ)).

    Two parameters of size 1 are counted beside it.
    """
    X, y = problem.X_train[0], problem.Y_train[0, :, 0]
    X, s2 = np.column_stack([X, np.ones(len(X))]), (noise / problem.target_scale[0]) ** 2
    candidates = np.geomspace(0.05, 20, 2000)

    def logarithm(deviation):
        covariance = T * (s2 * np.eye(len(y)) + deviation**2 * X @ X.T)
        _, determinant = np.linalg.slogdet(covariance)
        return (
            -(y @ np.linalg.solve(covariance, y) + determinant) / 2 - 1 / deviation**2 - 2 * np.log(deviation)
        )

    return candidates[np.argmax([logarithm(deviation) for deviation in candidates])]


@pytest.mark.parametrize("temperature", [1.0, 0.3])
@pytest.mark.parametrize("deviation", [0.2, 3.0])
def test_the_evidence_of_a_linear_model_is_largest_at_the_prior_found(deviation, temperature):
    problem = linear_problem(deviation)
    given = partition(noise=0.5, temperature=temperature)
    run = hb.train(problem, LINE, given, 12_000, 60, 16, record=1)
    rounds = np.array(run.found.priors)
    assert len(rounds) >= 8  # the first rounds may be too hot
    assert run.partition.posterior.prior == run.found.priors[-1]
    known = best_deviation(problem, 0.5, temperature)
    assert np.exp(np.log(rounds[-5:]).mean()) == pytest.approx(known, rel=0.06)
    assert rounds[-1, 0] == pytest.approx(known, rel=0.12)
    assert abs(math.log(known)) > 0.3  # not where it began


def test_a_round_of_samples_gives_the_deviations_of_each_layer():
    theta = np.array([[1.0, -3.0, 0.1], [1.0, 3.0, 0.3]])
    suited = math.sqrt((2 + 10 / 0.5) / 4), math.sqrt((2 + 0.05 / 0.5) / 3)
    told = prior_search.update_widths([2.0, 1.0], theta, [2, 1], T=0.5)
    assert told == pytest.approx([2 * (suited[0] / 2) ** 1.5, suited[1] ** 1.5], rel=0.01)
    assert prior_search.update_widths([100.0, 1e-3], theta, [2, 1], T=1.0) == [
        50.0,
        0.002,
    ]  # twice or half at most


def test_rounds_have_a_quarter_of_the_steps_or_there_are_none():
    assert prior_search.plan_rounds(8000) == (10, 200)
    assert prior_search.plan_rounds(10**6) == (10, 300)
    assert prior_search.plan_rounds(400) == (3, 33)
    assert prior_search.plan_rounds(200) == (0, 0)
    run = hb.train(linear_problem(1.0), LINE, partition(), 200, 60, 2, record=1)
    assert run.found.priors == ((1.0,),)
    assert run.plan.start is None


PROBLEM, NETWORK = linear_problem(0.3, inputs=2, n=40), hb.MLP((5,), "tanh")


def test_a_run_is_bit_for_bit_the_run_with_the_prior_found(tmp_path):
    for h in ("auto", 0.1):
        run = hb.train(PROBLEM, NETWORK, partition(h), 800, 40, 4, samples=8, record=1)
        assert len(run.found.priors) == 7
        assert run.plan.start.shape == run.theta.shape  # where the rounds ended
        assert len(run.found.priors[-1]) == 2
        assert "prior: standard deviations" in run.found.summary()
        known = partition(run.partition.h, run.found.priors[-1])
        assert run.partition == known
        same = hb.train(
            PROBLEM, NETWORK, known, 800, 40, 4,
            samples=8, record=1, start=run.plan.start, momenta="thermal",
        )  # fmt: skip
        np.testing.assert_array_equal(run.theta, same.theta)
        run.save(tmp_path / "run.nc")
        assert hb.load(tmp_path / "run.nc").found == run.found
    assert Found(**run.found.plain()) == run.found
    assert run.resume(100).found.priors == run.found.priors


def test_a_checkpoint_goes_on_with_the_prior_found(tmp_path, monkeypatch):
    path, given = tmp_path / "run.nc", (PROBLEM, NETWORK, partition(), "auto", 40, 4)
    options = {"budget": 1600, "samples": 8, "record": 1}
    whole = hb.train(*given, **options)

    def stop(progress):
        if progress.steps == 400 and not progress.finding:  # in the second round
            raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        hb.train(*given, **options, checkpoint=path, progress=stop)
    monkeypatch.setattr(prior_search, "update_widths", lambda *_: pytest.fail("the prior is known"))
    again = hb.train(*given, **options, checkpoint=path)
    np.testing.assert_array_equal(again.theta, whole.theta)
    assert again.found == whole.found
    path.unlink()
    hb.train(PROBLEM, NETWORK, partition(prior=1.0), "auto", 40, 4, **options, checkpoint=path)
    with pytest.raises(ValueError, match=r"other .*prior.*: it is left alone"):
        hb.train(*given, **options, checkpoint=path)


def test_a_checkpoint_of_another_start_is_another_run(tmp_path):
    """The run begins where the prior was found, and its start is not the one that was given."""
    path, given = tmp_path / "run.nc", (PROBLEM, NETWORK, partition(), "auto", 40, 4)
    size = NETWORK.parameters(PROBLEM.inputs, PROBLEM.outputs)
    options = {"budget": 1600, "samples": 8, "record": 1, "checkpoint": path}
    done = hb.train(*given, **options, start=np.full(size, 0.1))
    np.testing.assert_array_equal(hb.train(*given, **options, start=np.full(size, 0.1)).theta, done.theta)
    for start in (None, np.full(size, 0.2)):
        with pytest.raises(ValueError, match=r"other start: it is left alone"):
            hb.train(*given, **options, start=start)


def test_rounds_that_are_too_hot_leave_the_prior_and_cool_down(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(prior_search, "is_far_too_hot", lambda temperature, single_chain: True)
        with pytest.warns(
            hb.OffTemperatureWarning, match="short runs were too hot to find a prior: it stays at 1"
        ):
            run = hb.train(PROBLEM, NETWORK, partition("auto"), 800, 40, 4, samples=8, record=1)
        assert run.found.priors == ((1.0, 1.0),)
        assert "as at first" in run.found.summary()
    cold = hb.train(PROBLEM, NETWORK, partition("auto", temperature=0.01), 4000, 40, 8, samples=8, record=1)
    assert len(cold.found.priors) > 4  # the first rounds are hot, and go on from where they came to
    assert is_far_too_hot(Estimate(3.0, math.nan), single_chain=True)
    assert not is_far_too_hot(Estimate(3.0, math.nan))


def test_chains_that_diverge_in_a_round():
    with pytest.raises(FloatingPointError, match=r"all chains diverge at h = 9\.0 while the prior"):
        hb.train(PROBLEM, NETWORK, partition(9.0), 800, 40, 4, record=1)


def test_early_stopping_has_a_prior_that_is_not_sought():
    X, y = PROBLEM.X_train[0], PROBLEM.Y_train[0, :, 0]
    given = {"early_stopping": True, "steps": 800, "samples": 4, "chains": 2, "random_state": 0}
    fitted = hb.ThermodynamicRegressor(**given).fit(X, y)
    assert fitted.run_.partition.posterior.prior == 0.5
    with pytest.raises(TypeError, match="prior must be a list of numbers"):
        hb.ThermodynamicRegressor(prior=np.array([1.0, 2.0])).fit(X, y)


def test_refusals():
    for call in (
        lambda: hb.sweep(PROBLEM, NETWORK, partition([0.1, 0.2]), 10),
        lambda: hb.compare(PROBLEM, NETWORK, {"a": partition()}, 10),
        lambda: draw_prior(Likelihood(PROBLEM, hb.Posterior("auto")), NETWORK, 3, 0),
    ):
        with pytest.raises(ValueError, match=r"only train, .*finds prior='auto': give a standard deviation"):
            call()
    with pytest.raises(ValueError, match="only a partition with a posterior has a prior to change"):
        hb.AdLaLa().at_prior(1.0)
    with pytest.raises(ValueError, match="needs methods with a temperature above 0"):
        hb.train(PROBLEM, NETWORK, hb.Partition(hb.Adam(), 0.1, hb.Posterior("auto")), 10)
    with pytest.raises(ValueError, match="found: a prior"):
        Found(priors=[[-1.0]])
