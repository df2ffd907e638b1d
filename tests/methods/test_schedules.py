import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heatbath.methods.schedules import (
    Constant,
    Cycle,
    Cyclical,
    Exponential,
    Linear,
    Piecewise,
    Repeated,
    SimulatedTempering,
    at,
    from_plain,
    scaled,
    to_plain,
)

EXAMPLES = [
    Constant(0.3),
    Linear(1e-3, 1e-5, 100),
    Exponential(1e-3, 1e-5, 100),
    Cyclical(0.1, 0.0, 40),
    SimulatedTempering([1e-5, 1e-4], every=10),
    Piecewise([0.1, Linear(0.1, 0.0, 300), 0.05], [100, 200]),
    Repeated(Piecewise([0.1, Linear(0.1, 0.0, 300)], [100]), 150),
]
positive = st.floats(1e-12, 1e6)
steps = st.integers(1, 10**6)


@pytest.mark.parametrize("schedule", EXAMPLES)
def test_a_schedule_survives_json(schedule):
    assert from_plain(json.loads(json.dumps(to_plain(schedule)))) == schedule


@given(positive, positive, steps, st.integers(0, 2 * 10**6))
def test_annealing_starts_and_stops_where_it_says_and_never_leaves_its_range(start, stop, length, step):
    for schedule in (Linear(start, stop, length), Exponential(start, stop, length)):
        assert schedule(0) == pytest.approx(start, rel=1e-12)
        assert schedule(length) == schedule(length + 7) == stop
        low, high = schedule.range()
        assert low * (1 - 1e-9) <= schedule(step) <= high * (1 + 1e-9)


def test_piecewise_is_each_value_until_its_step():
    schedule = Piecewise([0.1, Linear(1.0, 0.0, 100), 0.3], [10, 20])
    assert [schedule(n) for n in (0, 9, 10, 19, 20, 10**9)] == [0.1, 0.1, 0.9, 0.81, 0.3, 0.3]
    assert schedule.range() == (0.0, 1.0)


@pytest.mark.parametrize(
    ("values", "steps", "told"),
    [
        ([0.1, 0.2], [], "one value more than steps"),
        ([0.1, 0.2, 0.3], [20, 20], "increasing steps"),
        ([0.1, 0.2], [0], "a whole number >= 1"),
        ([0.1, math.nan], [5], "a value"),
    ],
)
def test_piecewise_says_what_is_wrong(values, steps, told):
    with pytest.raises(ValueError, match=told):
        Piecewise(values, steps)
    with pytest.raises(TypeError, match="must be a list"):
        Piecewise(0.1, [5])


def test_linear_has_equal_differences_and_exponential_equal_ratios():
    linear, exponential = Linear(4.0, 1.0, 30), Exponential(4.0, 1.0, 30)
    for n in range(30):
        assert linear(n + 1) - linear(n) == pytest.approx(-0.1)
        assert exponential(n + 1) / exponential(n) == pytest.approx(4 ** (-1 / 30))


def test_cyclical_falls_from_high_towards_low_and_begins_again():
    schedule = Cyclical(0.3, 0.1, 10)
    values = [schedule(n) for n in range(10)]
    assert values[0] == 0.3
    assert values[5] == pytest.approx(0.2)
    assert values == sorted(values, reverse=True)
    assert [schedule(n) for n in range(10, 20)] == values
    assert schedule.range() == (values[-1], 0.3)
    assert values[-1] > 0.1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Linear(1, 2, 0), "Linear: steps must be a whole number >= 1, got 0"),
        (lambda: Linear(1, math.inf, 10), "Linear: stop must be finite, got inf"),
        (lambda: Exponential(1, 0, 10), "Exponential: stop must be > 0 and finite, got 0"),
        (lambda: Cyclical(0.1, 0.2, 10), "Cyclical: low must not exceed high"),
        (lambda: Constant(math.nan), "Constant: value must be a number, got nan"),
        (lambda: SimulatedTempering((1e-4,)), "at least two temperatures"),
        (lambda: SimulatedTempering((1e-4, 1e-4)), "all increasing or all decreasing"),
        (lambda: SimulatedTempering((1e-4, 3e-4, 2e-4)), "all increasing or all decreasing"),
        (lambda: SimulatedTempering((0.0, 1e-4)), "ladder must be > 0"),
        (
            lambda: SimulatedTempering((1e-4, 2e-4), weights=(1.0,)),
            "one number for each of the 2 rungs, got 1",
        ),
        (lambda: SimulatedTempering((1e-4, 2e-4), every=0), "every must be a whole number >= 1"),
        (lambda: from_plain({"schedule": "Sawtooth"}), "'schedule' one of Constant, Linear"),
        (lambda: from_plain({"schedule": "Linear", "start": 1, "stop": 2}), "Linear: .*steps"),
        (lambda: from_plain({"schedule": "Constant", "value": 1, "extra": 2}), "Constant has no extra"),
        (lambda: from_plain({"schedule": "Constant", "value": "1"}), "Constant: value must be a number"),
        (lambda: from_plain([1, 2]), "a schedule is a dict"),
        (lambda: from_plain({"schedule": ["Linear"]}), "a schedule is a dict"),
    ],
)
def test_a_bad_schedule_is_refused_with_what_is_accepted(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    "make", [lambda: Linear("1", 2, 3), lambda: Linear(1, 2, 3.5), lambda: SimulatedTempering(1e-4)]
)
def test_a_schedule_of_the_wrong_type_is_refused(make):
    with pytest.raises(TypeError, match="must be"):
        make()


def test_at_takes_single_values_only():
    assert at(0.5, 3) == 0.5
    assert at(Linear(1.0, 0.0, 4), 3) == 0.25
    for bad in ((0.5, 0.6), SimulatedTempering((1e-4, 2e-4))):
        with pytest.raises(TypeError, match="a number or a schedule is needed"):
            at(bad, 0)


def test_a_ladder_may_fall_and_weights_default_to_zero():
    assert SimulatedTempering((3.0, 2.0, 1.0)).weights == (0.0, 0.0, 0.0)


def test_a_repeated_schedule_begins_anew():
    schedule = Repeated(Piecewise([0.1, 0.3], [4]), 6)
    assert [schedule(n) for n in range(13)] == 2 * (4 * [0.1] + 2 * [0.3]) + [0.1]
    assert scaled(schedule, 2.0)(5) == 0.6
    assert schedule.range() == (0.1, 0.3)


@given(st.integers(1, 60), st.floats(0.01, 0.99), st.integers(1, 10))
def test_a_cycle_collects_its_samples_evenly_in_its_last_share_and_at_its_end(period, sampling, samples):
    if samples > round(sampling * period):
        with pytest.raises(ValueError, match="do not fit"):
            Cycle(period, 0.2, 1e-3, sampling=sampling, samples=samples)
        return
    cycle = Cycle(period, 0.2, 1e-3, sampling=sampling, samples=samples)
    due = [n for n in range(3 * period + 1) if cycle.collects(n)]
    assert len(due) == 3 * samples
    assert due[samples - 1 :: samples] == [period, 2 * period, 3 * period]
    assert np.ptp(np.diff(due[:samples])) <= 1 if samples > 1 else True
    assert all(cycle.temperature(n - 1) == 1e-3 for n in due)  # the step that led there
    assert [cycle.count(n) for n in range(3 * period + 1)] == [
        sum(d <= n for d in due) for n in range(3 * period + 1)
    ]
    hot = [cycle.temperature(n) == 1e-3 for n in range(2 * period)]
    assert sum(hot) == 2 * round(sampling * period)
    assert hot == sorted(hot[:period]) * 2
    assert cycle.stepsize(0) == cycle.stepsize(period) == 0.2
    assert cycle.stepsize(period - 1) == min(map(cycle.stepsize, range(period)))


def test_what_is_wrong_with_a_cycle_is_said():
    for options, message in (
        ({"low": 0.3}, "low must not exceed high"),
        ({"sampling": 1.0}, "sampling must be > 0 and < 1"),
        ({"exploring": -1}, "exploring must be >= 0"),
        ({"tau": -1.0}, "tau must be >= 0"),
        ({"period": 0}, "period must be a whole number >= 1"),
    ):
        with pytest.raises(ValueError, match=message):
            Cycle(**{"period": 100, "high": 0.2, "tau": 1e-3} | options)
