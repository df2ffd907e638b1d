"""Sizes of fits, of trials and of measurements of the temperature."""

import pytest

from heatbath.training.budget import (
    FIT,
    MEASUREMENT,
    TRIAL,
    Size,
    given_size,
    in_second_half,
    ladder_for,
    size_for,
    temperature_samples_of_run,
    trial_size,
)
from heatbath.training.stepsize import SEARCH


def test_sizes_go_from_full_gradients_of_many_chains_to_few_and_to_batches():
    small, large, huge = size_for(300, 400), size_for(40_000, 600), size_for(10**7, 1000)
    assert (small.chains, small.batch, small.steps) == (8, 300, FIT.steps)
    assert (large.chains, large.batch) == (4, 40_000)
    assert FIT.fewest_steps <= large.steps < FIT.steps
    assert huge.batch < 10**7
    assert huge.chains * huge.batch * 1000 * huge.steps <= FIT.work / 2  # what is found before takes as long
    for size, parameters in ((small, 400), (large, 600), (huge, 1000)):
        assert size.chains * size.batch * parameters * size.steps <= 1.01 * FIT.work
    assert size_for(300, 400, 2.0).steps == 2 * FIT.steps
    assert 1 <= size_for(10**9, 10**6).batch < 100
    sizes = [size_for(300, 400, refine) for refine in (1e-5, 0.01, 0.06, 0.1, 1.0, 4.0)]
    assert [size.steps for size in sizes] == sorted(size.steps for size in sizes)
    assert [size.warm for size in sizes] == sorted(size.warm for size in sizes)
    assert size_for(40_000, 600, 4.0).chains > large.chains


def test_given_numbers_replace_those_of_a_size_and_a_batch_has_at_most_all_examples():
    size = Size(chains=8, batch=100, steps=1000)
    assert given_size(size, 60, 50, None, 2) == Size(2, 60, 50)
    assert given_size(size, 200, None, 150, None) == Size(8, 150, 1000)
    with pytest.raises(ValueError, match="chains must be a whole number >= 1"):
        given_size(size, 60, None, None, 0)


@pytest.mark.parametrize(
    ("steps", "samples", "expected"),
    [(100, 25, (25, 2)), (101, 25, (25, 2)), (10, 25, (5, 1)), (1, 25, (1, 1))],
)
def test_samples_are_spread_over_the_second_half_at_most_one_a_step(steps, samples, expected):
    assert in_second_half(steps, samples) == expected


def test_trials_of_short_runs_have_one_chain_and_every_second_stepsize():
    long, short = trial_size(8000, 8), trial_size(400, 2)
    assert long == (TRIAL.steps, TRIAL.chains)
    assert short == (TRIAL.fewest_steps, 1)
    ladder, sparse = ladder_for(long, samples=1000), ladder_for(short, samples=1000)
    assert (ladder.rungs, ladder.spacing, ladder.cooling_attempts) == (TRIAL.rungs, 1, TRIAL.attempts)
    assert (sparse.rungs, sparse.spacing) == (TRIAL.rungs // 2, 2)
    assert sparse.largest == TRIAL.largest / SEARCH.factor
    assert (
        ladder_for(long, samples=1).cooling_attempts == TRIAL.cooling_attempts
    )  # measurements cost too much


def test_a_temperature_is_measured_for_a_small_share_of_a_run():
    steps, chains, batch, examples = 8000, 8, 100, 100
    samples = temperature_samples_of_run(steps, chains, batch, parameters=10**9, examples=examples)
    assert samples == MEASUREMENT.most
    few = temperature_samples_of_run(100, 1, batch, parameters=10**12, examples=examples)
    assert MEASUREMENT.fewest_if_dear <= few <= MEASUREMENT.fewest
