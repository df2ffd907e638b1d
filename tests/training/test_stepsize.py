"""The search for a stepsize, with runners that only pretend to run chains."""

import math
from dataclasses import replace

import pytest

from heatbath.diagnostics.statistics import Estimate
from heatbath.training.stepsize import (
    StepsizeLadder,
    StepsizeTrial,
    Verdict,
    choose_stepsize,
    is_right,
    judge_trials,
    search_stepsize,
)


def test_what_is_chosen():
    def tried(*temperatures):
        return [StepsizeTrial(0.4 / 2**k, Estimate(t, 0.02)) for k, t in enumerate(temperatures)]

    assert choose_stepsize(tried(math.nan, 1.5, 1.1, 1.0)) == 0.1
    assert choose_stepsize(tried(1.0, 1.5, 1.0)) == 0.4
    assert choose_stepsize(tried(math.nan, 9.0, 5.0, 3.0, 2.0)) == 0.05  # the coolest of 0.2, 0.1 and 0.05
    assert is_right(Estimate(1.13, 0.02))
    assert not is_right(Estimate(1.15, 0.02))
    assert not is_right(Estimate(0.85, 0.02))
    assert not is_right(Estimate(1.5, 10.0))  # nothing is known


class PretendedRunner:
    """A runner whose trials have temperatures given by a function of h and the start; it notes starts."""

    def __init__(self, temperature):
        self.temperature, self.starts = temperature, []

    def run_trials(self, stepsizes, start):
        self.starts.append(None if start is None else start.h)
        return [StepsizeTrial(h, Estimate(self.temperature(h, start), 0.01)) for h in stepsizes]


LADDER = StepsizeLadder(largest=0.8, factor=2.0, rungs=3, attempts=4, cooling_attempts=2)


def test_a_ladder_has_falling_stepsizes_and_may_leave_out_every_second_one():
    assert LADDER.stepsizes(0.8) == [0.8, 0.4, 0.2]
    assert replace(LADDER, spacing=2).stepsizes(0.8) == [0.8, 0.2, 0.05]


def test_a_search_ends_on_the_first_ladder_with_a_right_temperature():
    runner = PretendedRunner(lambda h, start: 1.0 if h < 0.3 else 3.0)
    trials = search_stepsize(runner, LADDER)
    assert [trial.h for trial in trials] == [0.8, 0.4, 0.2]
    assert runner.starts == [None]
    assert choose_stepsize(trials) == 0.2


def test_a_ladder_on_which_all_diverge_is_followed_by_the_next_smaller_one():
    runner = PretendedRunner(lambda h, start: math.nan if h > 0.15 else 1.0)
    assert [trial.h for trial in search_stepsize(runner, LADDER)] == [0.1, 0.05, 0.025]
    assert runner.starts == [None, None]


def test_a_ladder_that_is_too_hot_is_repeated_from_its_coolest_states_as_often_as_allowed():
    runner = PretendedRunner(lambda h, start: 2.0 + h)
    assert [trial.h for trial in search_stepsize(runner, LADDER)] == [0.8, 0.4, 0.2]
    assert runner.starts == [None, 0.2]
    cools_down = PretendedRunner(lambda h, start: 2.0 + h if start is None else 1.0)
    assert choose_stepsize(search_stepsize(cools_down, LADDER)) == 0.8


def test_a_search_in_which_every_stepsize_diverges_says_which_were_tried():
    with pytest.raises(FloatingPointError, match=r"every stepsize from 0.8 down to 0.00039: check the data"):
        search_stepsize(PretendedRunner(lambda h, start: math.nan), LADDER)


def test_stepsizes_that_are_tried_one_by_one_get_smaller_while_that_helps():
    hot, cooler, alike = (StepsizeTrial(0.1, Estimate(t, 0.01)) for t in (5.0, 2.0, 4.9))
    assert judge_trials([hot], side_by_side=False) is Verdict.SMALLER
    assert judge_trials([hot, cooler], side_by_side=False) is Verdict.SMALLER
    assert judge_trials([hot, alike], side_by_side=False) is Verdict.COOLER_START
    assert judge_trials([hot, cooler], side_by_side=True) is Verdict.COOLER_START
    assert (
        judge_trials([hot, StepsizeTrial(0.1, Estimate(1.05, 0.01))], side_by_side=True) is Verdict.ACCEPTED
    )
