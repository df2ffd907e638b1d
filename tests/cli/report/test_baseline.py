"""Runs that predict worse than a constant are warned of, and others aren't."""

from dataclasses import replace

import numpy as np
import pytest

import heatbath as hb
from heatbath.cli.report import baseline
from heatbath.cli.report.contents import report_on_run, warning_of_best
from heatbath.runs.plan import make_plan
from tests.cli.problems import make_noise_problem, make_separable_problem, plan_for


@pytest.mark.parametrize("task", ["binary", "classes", "regression", "two values", "counts"])
def test_the_loss_of_a_constant_is_that_of_networks_that_say_the_best_constant(task):
    """A network without hidden layers whose weights are 0, at its best bias."""
    problem = make_noise_problem(task)
    constant = baseline.constant_baseline(plan_for(problem))
    outputs, weights = problem.outputs, problem.weights_train[0] / problem.weights_train[0].sum()
    Y = problem.Y_train[0]
    if task == "binary":
        bias = [np.log(weights @ Y[:, 0] / (1 - weights @ Y[:, 0]))]
    elif task == "classes":
        bias = np.log([weights @ (Y[:, 0] == k) for k in range(outputs)])
    else:
        bias = np.log(weights @ Y) if task == "counts" else weights @ Y
    start = np.concatenate([np.zeros(3 * outputs), bias])
    run = hb.train(problem, hb.MLP(()), hb.Partition(hb.Frozen(), 0.1), 1, start=start)
    assert constant.loss == pytest.approx(run.loss("test").values[0, -1], rel=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_a_constant_is_better_where_networks_learn_noise_by_heart_and_that_is_said(seed):
    """That is in 40 of 40 seeds with 100 rows to learn from and 100 to test; with 44 to test, in 7 of 8."""
    problem = make_noise_problem("binary", seed, test_share=0.5)
    constant = baseline.constant_baseline(plan_for(problem))
    run = hb.train(problem, hb.MLP((20,)), hb.Partition(hb.Adam(), 0.05), 2000, chains=3)
    loss = run.loss("test").values[:, -1].mean()
    first = f"a constant prediction would be better: its test loss is {constant.loss:.4g}, and that of"
    assert constant.warn_of_networks(loss) == f"{first} single networks {loss:.4g}. Try it without --method"
    p = run.predict(problem.X_test[0] * problem.scale + problem.shift).mean
    p = np.clip(p, np.finfo(float).eps, 1 - np.finfo(float).eps)  # of some rows networks are quite sure
    each = -np.log(np.where(problem.Y_test[0] == 1, p, 1 - p))[:, 0]
    mean = np.average(each, weights=problem.weights_test[0])
    last = f"its test loss is {constant.loss:.4g}, and that of the averaged prediction {mean:.4g}."
    assert constant.warn_of_average(run).startswith(f"a constant prediction would be better: {last}")


@pytest.mark.parametrize("seed", range(5))
def test_of_networks_that_have_learnt_something_no_such_thing_is_said(seed):
    """The control, which says nothing in 40 of 40 seeds."""
    problem = make_separable_problem(seed)
    constant = baseline.constant_baseline(plan_for(problem))
    run = hb.train(problem, hb.MLP((8,)), hb.Partition(hb.Adam(), 0.05), 300, chains=3)
    assert constant.warn_of_networks(run.loss("test").values[:, -1].mean()) is None
    assert constant.warn_of_average(run) is None
    assert constant.warn_of_networks(constant.loss) is None


def test_of_several_targets_those_are_named_of_which_a_constant_is_better():
    problem = make_noise_problem("two values")
    plan = plan_for(problem)
    constant = baseline.constant_baseline(plan)
    run = hb.train(problem, hb.MLP((20,)), hb.Partition(hb.Adam(), 0.03), 1500, chains=3)
    mean = run.predict(constant.examples.raw).mean
    errors = 0.5 * ((mean - constant.examples.y) / problem.target_scale) ** 2
    losses = np.average(errors, axis=0, weights=constant.examples.weights)
    word = constant.warn_of_average(run)
    assert word.startswith("a constant prediction would be better: for 'y1' its test loss is ")
    assert word.endswith(f"and that of the averaged prediction {losses[0]:.4g}. Try it without --method")
    both = replace(constant, losses=np.zeros_like(constant.losses)).warn_of_average(run)
    assert "; for 'y2' its test loss is 0, and that of the averaged" in both
    assert f" {losses[1]:.4g}. Try" in both
    assert replace(constant, losses=100 * constant.losses).warn_of_average(run) is None
    sampled = hb.Partition(hb.Langevin(1.0), 0.1, hb.Posterior())  # whose loss is by the noise of each
    other = baseline.constant_baseline(make_plan(problem, hb.MLP((8,)), sampled, 10))
    assert (constant.comparable, other.comparable) == (True, False)
    assert (constant.warn_of_networks(9.0) is None, other.warn_of_networks(9.0) is None) == (False, True)
    assert other.warn_of_average(run).startswith("a constant prediction would be better: for 'y1' ")


def test_where_the_loss_of_networks_is_another_one_nothing_is_said_of_it():
    problem = make_noise_problem("regression")
    varying = hb.Partition(hb.Langevin(1.0), 0.1, hb.Posterior(noise="network"))
    assert not baseline.constant_baseline(make_plan(problem, hb.MLP((8,)), varying, 10)).comparable
    several = hb.Partition(hb.SGD(), [0.1, 0.2])
    assert baseline.constant_baseline(make_plan(problem, hb.MLP((8,)), several, 10)) is None


@pytest.mark.parametrize("seed", range(4))
def test_of_several_points_the_best_is_held_against_a_constant(seed):
    """The warning is there in 12 of 12 seeds; it is never there for the control."""
    several = hb.Partition(hb.Adam(), [0.05, 0.08])
    said = []
    for problem in (make_noise_problem("binary", seed, test_share=0.5), make_separable_problem(seed)):
        run = hb.sweep(problem, hb.MLP((20,)), several, 2000, chains=2)
        said.append(warning_of_best(report_on_run("sweep", run)))
    assert said[0].startswith("a constant prediction would be better: its test loss is")
    assert said[1] is None
