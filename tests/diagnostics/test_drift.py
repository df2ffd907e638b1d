"""Drift: how seldom false alarms are, how soon a rise is told, and what is remembered."""

import math
import pickle

import numpy as np
import pytest

import heatbath as hb
from heatbath.diagnostics import drift
from heatbath.diagnostics.drift import MEMORY, RISES, Watch

RUNS, BOUND = 30, 120


def normal(rng):
    while True:
        yield rng.standard_normal()


def skewed(rng):
    while True:
        yield rng.exponential() ** 3


def correlated(rng, phi=0.9):
    value = rng.standard_normal()
    while True:
        value = phi * value + math.sqrt(1 - phi**2) * rng.standard_normal()
        yield value


def rounded(rng):
    """Yield integers, so that many values are equal."""
    while True:
        yield round(rng.standard_normal())


def run_lengths(series, bound, runs=RUNS):
    """Return the number of values before an alarm in each run, at most 30 times the bound."""
    lengths = []
    for seed in range(runs):
        watch = Watch("x", bound)
        values = series(np.random.default_rng(seed))
        lengths.append(
            next(n for n in range(1, 30 * bound) if watch.add(next(values)) or n == 30 * bound - 1)
        )
    return np.array(lengths)


@pytest.mark.parametrize("count", [1, 16, 100, MEMORY])
def test_e_has_the_mean_one_over_all_ranks(count):
    e = np.exp(drift._log_e(count))
    assert e.shape == (count + 1, len(RISES))
    np.testing.assert_allclose(e.mean(axis=0), 1.0, rtol=1e-12)
    assert (np.diff(e, axis=0) > 0).all()


@pytest.mark.parametrize("series", [normal, skewed, rounded, correlated])
def test_false_alarms_are_as_seldom_as_is_said(series):
    """The mean of 30 run lengths is above the bound, less three of its standard errors.

    Where the mean is the bound, that fails with a chance of about 0.001; the mean is above.
    """
    lengths = run_lengths(series, BOUND)
    assert lengths.mean() + 3 * lengths.std() / math.sqrt(RUNS) > BOUND


def test_they_are_not_where_a_correlation_is_not_counted(monkeypatch):
    monkeypatch.setattr(drift, "autocorrelation_time", lambda values: 1.0)
    lengths = run_lengths(correlated, BOUND)
    assert lengths.mean() + 3 * lengths.std() / math.sqrt(RUNS) < BOUND


@pytest.mark.parametrize(("rise", "most"), [(1.0, 60), (3.0, 12)])
def test_a_rise_is_told_soon_and_when_it_began(rise, most):
    """With a bound of 10,000, log R has to reach 9.2 + log 5.

    It grows by about 0.5 a value for a rise of 1, and by 3 or more for one of 3. The wait is then about 22
    and 4 values, and no more than three times that.
    """
    late = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        watch = Watch("x")
        assert not any(watch.add(value) for value in rng.standard_normal(400))
        told = next(found for value in rng.normal(rise, 1.0, 1000) if (found := watch.add(value)))
        late.append(told.step - 400)
        assert told.statistic >= 10_000
        assert 0.3 * late[-1] <= told.since <= late[-1] + 20
        assert watch.statistic == 0  # it begins anew
    assert np.mean(late) <= most


def test_a_fall_is_no_alarm_and_what_was_before_it_is_forgotten():
    """A rise to what was usual before the fall is then noticed."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        watch = Watch("x")
        assert not any(watch.add(value) for value in rng.normal(5.0, 1.0, 200))
        assert not any(watch.add(value) for value in rng.normal(0.0, 1.0, 100))
        assert len(watch._values) < 100
        assert any(watch.add(value) for value in rng.normal(5.0, 1.0, 10))


def test_a_watch_goes_on_from_its_state_and_its_memory_is_bounded():
    one, other = Watch("x"), Watch("x")
    rng = np.random.default_rng(0)
    series = np.sin(np.arange(1500) / 40) + 0.1 * rng.standard_normal(1500)
    for value in series[:1400]:
        assert not one.add(value)
        assert len(one._values) <= MEMORY
    assert one._length > 1  # neighbours were joined
    other.load_state_dict(one.state_dict())
    for value in series[1400:]:
        assert (one.add(value), one.statistic) == (other.add(value), other.statistic)


def test_what_cannot_be_watched_is_refused():
    with pytest.raises(ValueError, match="x must be"):
        Watch("x").add(math.nan)
    with pytest.raises(ValueError, match="false_alarms"):
        Watch("x", 0.5)


def test_a_drift_says_what_it_is():
    told = hb.DriftWarning("the loss", 1234, 2e4, 7)
    assert str(told) == (
        "the data have changed: the loss has risen since about 7 batches ago, seen at batch 1,234 (R = 2e+04)"
    )
    assert str(pickle.loads(pickle.dumps(told))) == str(told)
    assert issubclass(hb.DriftWarning, RuntimeWarning)
