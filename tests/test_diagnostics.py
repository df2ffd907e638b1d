"""Estimates of correlated series."""

import math

import numpy as np
import pytest

from heatbath.diagnostics import Blocks


def autoregressive(rho, count, runs, seed=0):
    """Series with variance 1 and correlation ρ from value to value."""
    rng = np.random.default_rng(seed)
    values = np.empty((count, runs))
    values[0] = rng.standard_normal(runs)
    for n in range(1, count):
        values[n] = rho * values[n - 1] + math.sqrt(1 - rho**2) * rng.standard_normal(runs)
    return values.T


@pytest.mark.parametrize("rho", [0.0, 0.9])
def test_the_interval_covers_the_truth_as_often_as_it_says(rho):
    """Of 400 correlated series 95 % within: 90 to 99.5 % (error rate 1e-4); naively it would be far fewer."""
    inside = naive = 0
    for series in autoregressive(rho, 5000, 400):
        blocks = Blocks()
        for value in series:
            blocks.add(value)
        low, high = blocks.estimate().interval
        inside += low < 0 < high
        naive += abs(series.mean()) < 1.96 * series.std() / math.sqrt(len(series))
    assert 0.90 * 400 < inside < 0.995 * 400
    if rho:
        assert naive < 0.6 * 400


def test_blocks_shorter_than_the_correlation_do_not_decide():
    """A correlation of 0.98: the finest blocks, of 32 values, would cover the truth in some 7 of 10 cases."""
    inside = finest = 0
    for series in autoregressive(0.98, 8000, 300, seed=1):
        blocks = Blocks()
        for value in series:
            blocks.add(value)
        value, error = blocks.estimate()
        inside += abs(value) < 1.96 * error
        means = np.array(blocks._means)
        finest += abs(value) < 1.96 * means.std(ddof=1) / math.sqrt(len(means))
    assert inside > 0.87 * 300
    assert finest < 0.82 * 300


def test_the_mean_is_that_of_all_values_and_memory_is_bounded():
    blocks = Blocks(most=32)
    values = np.random.default_rng(0).standard_normal(10_001)
    for value in values:
        blocks.add(value)
    assert len(blocks) == 10_001
    assert len(blocks._means) < 32
    assert blocks.estimate().value == pytest.approx(values.mean(), rel=1e-12)


def test_too_few_values_have_no_error_and_none_no_mean():
    blocks = Blocks()
    assert math.isnan(blocks.estimate().value)
    for _ in range(5):
        blocks.add(2.0)
    assert blocks.estimate().value == 2.0
    assert math.isnan(blocks.estimate().error)
    with pytest.raises(ValueError, match="most must be a whole number >= 32"):
        Blocks(most=3)
