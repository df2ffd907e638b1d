"""Stepsizes and lengths that runs find by themselves, and the temperature by which they are judged."""

import math
import signal
import warnings
from dataclasses import replace

import numpy as np
import pytest

import heatbath as hb
from heatbath import diagnostics
from heatbath.diagnostics.gradients import gradient_moments
from heatbath.diagnostics.statistics import Estimate
from heatbath.runs.adaptation_record import Found
from heatbath.runs.simulation import full_gradients
from heatbath.training import auto, budget
from heatbath.training.stepsize import is_far_too_hot, is_right


def regression(n=60, noise=0.1, seed=0):
    generator = np.random.default_rng(seed)
    x = generator.uniform(-2, 2, n)
    y = np.sin(2 * x) + noise * generator.standard_normal(n)
    return hb.datasets.from_arrays(x[:, None], y, task="regression", test_share=0.0)


def langevin(h="auto", gamma=0.3, **posterior):
    return hb.Partition(hb.Langevin(gamma=gamma), h, hb.Posterior(prior=0.7, **posterior))


PROBLEM, NETWORK = regression(), hb.MLP((10,), "tanh")


def samples_of(partition, batch, steps=6000, **given):
    return hb.train(
        PROBLEM, NETWORK, partition, steps, batch, 16, samples=40, burn_in=steps // 3, record=1, **given
    )


@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_the_temperature_is_1_with_full_gradients_and_above_it_with_mini_batches(temperature):
    partition = langevin(0.1, temperature=temperature)
    told = diagnostics.thermal_ratio(samples_of(partition, 60), most=640)
    assert abs(told.value - 1) < 3 * told.error
    assert told.error < 0.07
    assert diagnostics.thermal_ratio(samples_of(partition, 6)).value > 2


def test_the_temperature_is_the_same_whatever_is_looked_at_together(monkeypatch):
    run = hb.train(PROBLEM, NETWORK, langevin(0.1), 60, 60, 5, samples=10, record=1)
    whole = diagnostics.thermal_ratio(run)
    monkeypatch.setattr(diagnostics.temperatures, "AT_ONCE", 1)  # then 16 samples are
    assert diagnostics.thermal_ratio(run) == pytest.approx(whole, rel=1e-9)


@pytest.mark.parametrize(("cheap", "looks", "ladders"), [(1e10, 100, 4), (0.0, 8, 2)])
def test_where_a_look_at_all_examples_takes_long_few_are_taken(cheap, looks, ladders, monkeypatch):
    """200 examples and batches of 2: all stepsizes are said to be too hot, so that all ladders are tried."""
    looks_of_run, looks_of_ladders = [], []

    def too_hot(run, most, threads):
        looks_of_run.append(most)
        return Estimate(5.0, 0.1)

    def all_too_hot(run, most, threads):
        looks_of_ladders.append(most)
        return [Estimate(5.0, 0.1)] * budget.TRIAL.rungs

    monkeypatch.setattr(auto, "thermal_ratio", too_hot)
    monkeypatch.setattr(auto, "thermal_ratios", all_too_hot)
    monkeypatch.setattr(budget, "MEASUREMENT", budget.TemperatureRule(always_affordable=cheap))
    with pytest.warns(hb.OffTemperatureWarning):
        hb.train(regression(200), hb.MLP((3,), "tanh"), langevin(), 4000, 2, 2, samples=4, record=1)
    assert len(looks_of_ladders) == ladders
    assert min(looks_of_ladders) >= looks
    assert (set(looks_of_ladders) == {8}) == (cheap == 0)
    assert looks_of_run == [13 if cheap == 0 else 16]


def test_the_temperature_is_that_of_each_part():
    parts = {"hidden": hb.Langevin(0.5, 1e-3), "output": hb.Langevin(0.5, 1e-2)}
    cold = hb.Partition({key: part.with_prior(0.05) for key, part in parts.items()}, 0.1)
    classes = hb.datasets.spirals(turns=0.5, n_train=60, n_test=2)
    alike = hb.LaLa(0.1, 0.5, 4e-3, weight_decay=0.05)
    run = hb.train(classes, NETWORK, alike, 6000, 60, 16, samples=40, burn_in=2000, record=1)
    told = diagnostics.thermal_ratio(run, most=640)
    assert abs(told.value - 1) < 3 * told.error
    assert told.error < 0.07
    apart = hb.train(classes, NETWORK, cold, 3000, 60, 16, samples=40, burn_in=1000, record=1)
    assert 0.7 < diagnostics.thermal_ratio(apart).value < 3  # heat flows from part to part


def test_a_run_finds_its_stepsize_and_is_bit_for_bit_the_run_at_it():
    run = hb.train(PROBLEM, NETWORK, langevin(), 2000, 60, 8, samples=10, burn_in=1000, record=1)
    tried = dict(run.found.tried)
    assert len(tried) >= 8
    assert run.partition.h in tried
    assert 0.05 < run.partition.h < 0.5
    assert run.found.ended == ""
    same = hb.train(
        PROBLEM, NETWORK, langevin(run.partition.h), 2000, 60, 8, samples=10, burn_in=1000, record=1
    )
    np.testing.assert_array_equal(run.theta, same.theta)
    assert "found" in repr(run)


def test_all_larger_stepsizes_are_too_hot_or_diverge():
    stiff = replace(PROBLEM, X_train=20 * PROBLEM.X_train)
    run = hb.train(stiff, hb.MLP(()), langevin(gamma=2.0), 4000, 60, 8, samples=20, burn_in=2000, record=1)
    assert run.partition.h * 20 * PROBLEM.X_train.std() < 2  # the limit of stability
    assert all(not is_right(Estimate(t, 0.0)) for h, t in run.found.tried if h > run.partition.h)


def test_a_run_that_is_too_hot_says_so():
    with pytest.warns(hb.OffTemperatureWarning, match="larger batches, a smaller h"):
        run = hb.train(PROBLEM, NETWORK, langevin(), 2000, 4, 8, samples=20, burn_in=1000, record=1)
    assert run.found.temperature > 1.3


def test_a_run_goes_on_until_its_predictions_have_converged_or_the_budget_is_spent():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = hb.train(PROBLEM, NETWORK, langevin(0.2), "auto", 60, 16, budget=40_000, samples=20, record=2)
    assert run.found.ended == "converged"
    assert run.step in (5000, 10_000, 20_000)
    assert run.found.rhat <= 1.1
    assert run.found.ess >= 100
    assert diagnostics.convergence(run).rhat_worst == run.found.rhat
    half = run.step // 2
    same = hb.train(PROBLEM, NETWORK, langevin(0.2), run.step, 60, 16, samples=20, burn_in=half, record=1)
    np.testing.assert_array_equal(run.data["samples"].values, same.data["samples"].values)
    short = hb.train(PROBLEM, NETWORK, langevin(0.2), "auto", 60, 16, budget=1600, samples=4, record=1)
    assert (short.step, short.found.ended) == (1600, "budget")


def test_chains_that_diverge_later_begin_anew_at_a_smaller_stepsize(monkeypatch):
    monkeypatch.setattr(auto, "choose_stepsize", lambda trials: 5.0)
    run = hb.train(PROBLEM, NETWORK, langevin(), 400, 60, 4, samples=10, burn_in=200, record=1)
    assert run.partition.h < 1
    assert (run.died < 0).all()
    assert math.isnan(dict(run.found.tried)[5.0])
    assert len([h for h, _ in run.found.tried if h < 0.4]) < 8  # of a short run, every second one


def test_data_on_which_every_stepsize_diverges():
    wild = replace(PROBLEM, X_train=1e6 * PROBLEM.X_train)
    with pytest.raises(FloatingPointError, match="diverge"):
        hb.train(wild, hb.MLP(()), langevin(), 50, 60)


def test_a_file_tells_what_was_found_and_a_checkpoint_goes_on(tmp_path, monkeypatch):
    whole = hb.train(PROBLEM, NETWORK, langevin(), "auto", 60, 4, budget=800, samples=10, record=1)
    path = tmp_path / "run.nc"
    whole.save(path)
    assert hb.load(path).found == whole.found
    path.unlink()
    stopped = []

    def stop(progress):
        if progress.steps == 400 and not stopped:  # in the second round; the ladder has 600
            stopped.append(progress.step)
            raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        hb.train(
            PROBLEM, NETWORK, langevin(), "auto", 60, 4,
            budget=800, samples=10, record=1, checkpoint=path, progress=stop,
        )  # fmt: skip
    monkeypatch.setattr(
        auto.AutomaticRun, "_try_stepsizes", lambda self: pytest.fail("the stepsize is known")
    )
    again = hb.train(
        PROBLEM, NETWORK, langevin(), "auto", 60, 4, budget=800, samples=10, record=1, checkpoint=path
    )
    np.testing.assert_array_equal(again.theta, whole.theta)
    assert again.found == whole.found
    with pytest.raises(ValueError, match="other chains: it is left alone"):
        hb.train(PROBLEM, NETWORK, langevin(), "auto", 60, 5, budget=800, samples=10, checkpoint=path)


def test_a_found_is_checked_and_comes_back_from_plain_values():
    found = Found([(0.4, math.nan), (0.2, 1.05)], 1.02, 0.03, "budget", 1.3, 50.0)
    again = Found(**found.plain())
    assert again.plain() == found.plain()
    assert "0.4, 0.2" in found.summary()
    assert "1.02 ± 0.03 of τ" in found.summary()
    assert "converged; refine allows more (R-hat 1.300, ESS 50)" in found.summary()
    for wrong in ({"ended": "now"}, {"rhat": "1"}, {"tried": [(-1.0, 1.0)]}):
        with pytest.raises((TypeError, ValueError), match="found"):
            Found(**wrong)


def test_refusals():
    given = (PROBLEM, NETWORK)
    with pytest.raises(ValueError, match="budget is for steps='auto', and steps is 100"):
        hb.train(*given, langevin(0.1), 100, budget=10)
    with pytest.raises(ValueError, match="burn_in and thin follow from steps='auto'"):
        hb.train(*given, langevin(), "auto", burn_in=10)
    with pytest.raises(ValueError, match="budget must be a whole number >= 16"):
        hb.train(*given, langevin(), "auto", budget=3)
    with pytest.raises(ValueError, match="h='auto' is found by train"):
        hb.sweep(*given, langevin(gamma=[0.1, 1.0]), 10)
    with pytest.raises(ValueError, match="h='auto' is found by train"):
        hb.compare(*given, {"a": langevin()}, 10)
    with pytest.raises(ValueError, match="one value of gamma"):
        hb.train(*given, langevin(gamma=[0.1, 1.0]), 10)
    with pytest.raises(ValueError, match="h='auto' is found by train"):
        hb.Reference(lambda theta, batch: theta, np.zeros(2), hb.Partition(hb.Langevin(1.0, 1.0), "auto"))
    with pytest.raises(ValueError, match="needs methods with a temperature above 0"):
        hb.train(*given, hb.Partition(hb.Adam(), "auto"), 10)


@pytest.mark.parametrize("task", ["binary", "classes", "counts", "regression"])
def test_full_gradients_of_the_engine_are_those_of_the_definition(task):
    generator = np.random.default_rng(1)
    X, w = generator.standard_normal((50, 3)), generator.uniform(0.5, 2, 50)
    y = np.stack([X[:, 0] ** 2, X[:, 1]], axis=1) if task == "regression" else np.arange(50) % 3
    problem = hb.datasets.from_arrays(
        X, y % 2 if task == "binary" else y, task=task, test_share=0.0, weights=w
    )
    run = hb.train(problem, NETWORK, langevin(0.05, temperature=0.5), 100, 50, 4, record=1, dtype="float64")
    noise = run.data["noise_now"].values if task == "regression" else None
    made = full_gradients(run.plan, run.theta, np.zeros(4, int), noise)
    for chain, found in enumerate(made):
        given = run.theta[chain], run.plan.likelihood, 0, None if noise is None else noise[chain]
        np.testing.assert_allclose(found, gradient_moments(NETWORK, *given)[0], rtol=1e-9, atol=1e-12)


def test_a_checkpoint_of_another_call_is_left_alone(tmp_path):
    path = tmp_path / "run.nc"
    given = (PROBLEM, NETWORK)
    done = hb.train(*given, langevin(), 200, 60, 4, samples=5, burn_in=100, record=1, checkpoint=path)
    assert hb.load(path).found == done.found  # with the temperature
    again = hb.train(*given, langevin(), 200, 60, 4, samples=5, burn_in=100, record=1, checkpoint=path)
    np.testing.assert_array_equal(again.theta, done.theta)
    with pytest.raises(ValueError, match=r"other .*steps.*: it is left alone"):
        hb.train(*given, langevin(), 300, 60, 4, samples=5, burn_in=100, record=1, checkpoint=path)
    path.unlink()
    hb.train(*given, langevin(0.1), "auto", 60, 4, budget=400, samples=8, record=1, checkpoint=path)
    for wrong, other in (("samples", langevin(0.1)), ("h", langevin())):
        with pytest.raises(ValueError, match=f"other .*{wrong}"):
            hb.train(
                *given, other, "auto", 60, 4,
                budget=400, samples=8 if wrong == "h" else 9, record=1, checkpoint=path,
            )  # fmt: skip


def test_ctrl_c_ends_a_run_that_finds_its_length():
    def interrupt(progress):
        signal.raise_signal(signal.SIGINT)

    with pytest.warns(hb.InterruptedWarning):
        run = hb.train(
            PROBLEM, NETWORK, langevin(0.1), "auto", 60, 4, budget=80_000, samples=10, progress=interrupt
        )
    assert not run.finished
    assert run.step < 10_000
    assert run.found.ended == ""


def test_averages_are_of_the_last_round():
    X = [[0.0], [1.0]]
    run = hb.train(
        PROBLEM, NETWORK, langevin(0.1), "auto", 60, 4, budget=1600, samples=10, record=1, average=X
    )
    assert run.step > 200
    half = run.step // 2
    same = hb.train(
        PROBLEM, NETWORK, langevin(0.1), run.step, 60, 4, samples=10, burn_in=half, record=1, average=X
    )
    for name in ("mean", "variance"):
        np.testing.assert_allclose(run.averages()[name], same.averages()[name], rtol=1e-10)


def test_what_is_judged_needs_chains_samples_and_a_temperature():
    for chains, samples in ((1, 10), (4, 3)):
        with pytest.raises(ValueError, match="needs at least 2 chains and 4 samples"):
            hb.train(PROBLEM, NETWORK, langevin(0.1), "auto", 60, chains, budget=400, samples=samples)
    with pytest.raises(ValueError, match="needs methods with a temperature above 0"):
        hb.train(PROBLEM, NETWORK, hb.Partition(hb.Langevin(1.0, 0.0), "auto"), 10)


def test_a_run_that_is_far_too_hot_begins_anew_twice_at_most(monkeypatch):
    monkeypatch.setattr(auto, "is_far_too_hot", lambda estimate: True)
    run = hb.train(PROBLEM, NETWORK, langevin(), 2000, 60, 8, samples=10, burn_in=1000, record=1)
    assert run.found.restarts == 2
    assert run.partition.h == pytest.approx(run.found.tried[-1][0] / math.sqrt(2))
    monkeypatch.undo()
    assert is_far_too_hot(Estimate(5.0, 0.1))
    assert is_far_too_hot(Estimate(600.0, 700.0))
    assert not is_far_too_hot(Estimate(3.0, 1.0))
    assert not is_far_too_hot(Estimate(5.0, math.nan))


def test_a_given_start_begins_with_the_noise_of_its_residuals():
    start = hb.train(PROBLEM, NETWORK, langevin(0.1), 4000, 60, 4, record=1).theta
    for posterior in ({"temperature": 0.3}, {}, {"degrees": 4.0}):
        run = hb.train(PROBLEM, NETWORK, langevin(0.1, **posterior), 60, 60, 4, start=start, record=[0, 60])
        said = [NETWORK.forward(theta, PROBLEM.X_train[0], 1)[:, 0] for theta in start]
        residuals = np.array(said) - PROBLEM.Y_train[0][:, 0]
        ratio = run.data["noise"].values[:, 0, 0] / residuals.var(axis=1)
        assert (ratio < 2).all()
        assert (ratio > 0.3).all()
