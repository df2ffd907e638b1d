"""The arguments of `train` that suit a problem where the user gives none."""

import numpy as np
import pytest

import heatbath as hb
from heatbath.training.budget import SAMPLES, size_for
from heatbath.training.defaults import UNSOUGHT, WARM_H, arguments, posterior_of, warm_plan


@pytest.fixture(scope="module")
def line():
    X = np.arange(40.0)[:, None]
    return hb.datasets.from_arrays(X, X[:, 0], task="regression", test_share=0.0)


NETWORK = hb.MLP((5,))


def test_defaults_have_the_size_that_suits_the_table_and_search_stepsize_prior_and_length(line):
    chosen = arguments(line, NETWORK, posterior_of())
    size = size_for(40, NETWORK.parameters(1, 1))
    assert (chosen["steps"], chosen["budget"]) == ("auto", size.steps)
    assert (chosen["chains"], chosen["batch"], chosen["warm"]) == (size.chains, 40, size.warm)
    assert chosen["samples"] == SAMPLES
    assert chosen["partition"].finds_stepsize
    assert chosen["partition"].finds_prior
    assert "thin" not in chosen


def test_given_steps_are_made_with_samples_in_their_second_half(line):
    chosen = arguments(line, NETWORK, posterior_of(), steps=100, samples=10)
    assert (chosen["steps"], chosen["samples"], chosen["thin"]) == (100, 10, 5)
    assert "budget" not in chosen


@pytest.mark.parametrize("few", [{"chains": 1}, {"samples": 3}])
def test_the_length_is_fixed_where_r_hat_cannot_judge_it(line, few):
    assert arguments(line, NETWORK, posterior_of(), budget=500, **few)["steps"] == 500


def test_a_prior_is_searched_unless_it_is_given_or_the_network_predicts_the_noise():
    assert posterior_of().prior == "auto"
    assert posterior_of(noise="network").prior == UNSOUGHT
    assert posterior_of(prior=2.0, noise="network").prior == 2.0


def test_a_warm_start_is_adam_on_the_same_posterior(line):
    plan = warm_plan(line, NETWORK, hb.Posterior(prior=0.7), 30, chains=3, seed=4, dtype="float64")
    assert (plan.steps, plan.chains, plan.seed, plan.dtype) == (30, 3, 4, "float64")
    assert plan.partition == hb.Partition(hb.Adam(), WARM_H, hb.Posterior(prior=0.7))
