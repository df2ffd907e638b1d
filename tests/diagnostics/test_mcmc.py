"""R-hat, effective sizes and autocorrelation times of series whose laws are known."""

import math

import numpy as np
import pytest

from heatbath.diagnostics.mcmc import autocorrelation_time, ess, rhat, rhat_and_ess
from tests.diagnostics.series import autoregressive


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.95, -0.5])
def test_the_autocorrelation_time_is_that_of_the_law(rho):
    exact = (1 + rho) / (1 - rho)
    trace = autoregressive(rho, 20_000, 4, seed=2)
    assert autocorrelation_time(trace) == pytest.approx(exact, rel=0.15)
    assert autocorrelation_time(trace[0]) == pytest.approx(exact, rel=0.3)
    assert autocorrelation_time(trace + np.arange(4.0)[:, None]) == pytest.approx(exact, rel=0.15)
    assert autocorrelation_time(np.full(100, 0.1)) == 1.0


def test_rhat_is_near_1_for_chains_that_agree_and_large_for_those_that_do_not():
    agreeing = autoregressive(0.0, 1000, 4, seed=3)
    assert rhat(agreeing) == pytest.approx(1.0, abs=0.01)
    assert rhat(agreeing + np.arange(4.0)[:, None]) > 1.3  # other means
    assert rhat(agreeing * np.array([[1.0], [1.0], [1.0], [9.0]])) > 1.1  # another spread
    assert rhat(agreeing[0] + np.linspace(0, 4, 1000)) > 1.3  # one chain that drifts
    assert math.isnan(rhat(np.ones((2, 10))))
    assert rhat(np.array([[0.0] * 10, [1.0] * 10])) == math.inf


@pytest.mark.parametrize("rho", [0.0, 0.9])
def test_the_effective_size_is_the_number_of_values_over_the_autocorrelation_time(rho):
    trace = autoregressive(rho, 20_000, 4, seed=4)
    assert ess(trace) == pytest.approx(trace.size * (1 - rho) / (1 + rho), rel=0.15)
    assert ess(trace + np.arange(4.0)[:, None]) < 100  # chains that disagree
    assert math.isnan(ess(np.ones((2, 10))))


def test_many_traces_at_once_have_the_same_bits_as_one_by_one():
    traces = np.random.default_rng(5).integers(0, 4, (3, 2, 21)).astype(float)  # with ties
    ratios, sizes = rhat_and_ess(traces)
    assert ratios.tolist() == [rhat(trace) for trace in traces]
    assert sizes.tolist() == [ess(trace) for trace in traces]


def test_r_hat_needs_four_records():
    with pytest.raises(ValueError, match="at least 4 records of each chain, got 3"):
        rhat(np.arange(6.0).reshape(2, 3))
