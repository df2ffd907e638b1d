"""Means with their intervals: of correlated series, of independent runs, by resampling."""

import math

import numpy as np
import pytest
import scipy.stats

from heatbath.diagnostics import statistics
from heatbath.diagnostics.mcmc import autocorrelation_time
from tests.diagnostics.series import autoregressive


def block_average(series):
    """Return the estimate that block averages make of a series."""
    blocks = statistics.BlockAverage()
    for value in series.tolist():
        blocks.add(value)
    return blocks.estimate()


def interval_shares(estimates):
    """Return the share of intervals that hold 0, and the share that could not be computed."""
    inside = sum(estimate.interval[0] < 0 < estimate.interval[1] for estimate in estimates)
    return inside / len(estimates), sum(math.isnan(e.error) for e in estimates) / len(estimates)


@pytest.mark.parametrize("estimate", [block_average, statistics.mean])
@pytest.mark.parametrize(
    ("rho", "count", "runs"),
    [
        (0.0, 20, 400),
        (0.5, 60, 400),
        (0.9, 380, 400),
        (-0.8, 400, 400),
        (0.98, 2000, 400),
        (0.999, 40_000, 80),
    ],
)
def test_intervals_are_honest_from_20_correlation_times_on(estimate, rho, count, runs):
    """Some 5 % of the shortest are unknown there; of the others 88 to 99.5 % hold the truth."""
    inside, unknown = interval_shares(
        [estimate(series) for series in autoregressive(rho, count, runs, seed=5)]
    )
    assert unknown < 0.1
    assert 0.88 < inside / (1 - unknown) < 0.995


@pytest.mark.parametrize("estimate", [block_average, statistics.mean])
@pytest.mark.parametrize(
    ("rho", "count"), [(0.9, 20), (0.9, 50), (0.9, 100), (0.98, 300), (0.98, 1000), (0.999, 2000)]
)
def test_short_series_say_nothing_rather_than_too_much(estimate, rho, count):
    """NaN, or an interval that holds the truth, in 85 % of the series; naively it would be in few."""
    series = autoregressive(rho, count, 400, seed=6)
    inside, unknown = interval_shares([estimate(own) for own in series])
    assert inside + unknown > 0.85
    naive = np.abs(series.mean(axis=1)) < 1.96 * series.std(axis=1) / math.sqrt(count)
    assert naive.mean() < 0.5


@pytest.mark.parametrize(
    ("chains", "rho", "count"), [(4, 0.98, 50), (4, 0.98, 400), (10, 0.9, 400), (2, 0.5, 300)]
)
def test_several_chains_have_an_interval_however_short_they_are(chains, rho, count):
    traces = autoregressive(rho, count, 500 * chains, seed=7).reshape(500, chains, count)
    inside, unknown = interval_shares([statistics.mean(trace) for trace in traces])
    assert unknown == 0
    assert 0.91 < inside < 0.98


def test_chains_that_disagree_widen_the_interval():
    """Each is short of the truth in its own way; what they show within would never tell."""
    rng = np.random.default_rng(1)
    traces = rng.standard_normal((300, 5, 1)) + 0.1 * rng.standard_normal((300, 5, 200))
    inside, _ = interval_shares([statistics.mean(trace) for trace in traces])
    assert 0.91 < inside < 0.985
    value, error = statistics.mean([[1.0] * 40, [2.0] * 40, [6.0] * 40])  # constant within
    assert (value, error) == pytest.approx((3.0, math.sqrt(7 / 3) * 4.302652729749464 / 1.96))


def test_what_chains_differ_by_counts_beside_what_they_show_within():
    """Moved apart by less than what would be a disagreement, they make the error larger."""
    trace = np.random.default_rng(3).standard_normal((4, 400))
    trace -= trace.mean(axis=1, keepdims=True)
    apart = trace + 0.05 * np.array([[-1.0], [1.0], [-1.0], [1.0]])
    assert statistics.mean(apart).error ** 2 - statistics.mean(trace).error ** 2 == pytest.approx(
        (0.05**2 * 4 * 400 / 11) / 1600 * (2.200985160082949 / 1.96) ** 2, rel=1e-9
    )  # 4 x 2 waves and 3 differences: Student's t with 11 degrees of freedom


def test_a_single_record_of_chains_has_student_s_interval():
    values = np.array([1.0, 2.0, 4.0, 4.5])
    low, high = statistics.mean(values[:, None]).interval
    half = 3.182446305284263 * values.std(ddof=1) / 2  # the tabulated quantile for 3 degrees of freedom
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), rel=1e-9)


def test_the_mean_is_that_of_all_values_and_memory_is_bounded():
    blocks = statistics.BlockAverage(most=32)
    values = np.random.default_rng(0).standard_normal(10_001)
    for value in values:
        blocks.add(value)
    assert len(blocks) == 10_001
    assert len(blocks._means) < 32
    assert blocks.estimate().value == pytest.approx(values.mean(), rel=1e-12)
    assert statistics.mean(values.reshape(73, 137)).value == pytest.approx(values.mean(), rel=1e-12)


def test_too_few_values_have_no_error_and_none_no_mean():
    blocks = statistics.BlockAverage()
    assert math.isnan(blocks.estimate().value)
    for _ in range(15):
        blocks.add(2.0)
    assert blocks.estimate().value == 2.0
    assert math.isnan(blocks.estimate().error)
    blocks.add(2.0)
    assert blocks.estimate() == (2.0, 0.0)  # a constant has no error
    with pytest.raises(ValueError, match="most must be a whole number >= 32"):
        statistics.BlockAverage(most=3)


def test_traces_that_are_not_numbers_are_refused():
    for wrong in ([], [["a"]], np.zeros((2, 2, 2))):
        with pytest.raises(ValueError, match=r"\(chain, record\) or \(record,\), and not empty"):
            statistics.mean(wrong)
    with pytest.raises(ValueError, match="got 1 values that are not: leave out the chains that diverged"):
        autocorrelation_time([1.0, math.nan])


def test_chains_are_summed_up():
    told = statistics.over_chains([0.9, 0.8, 0.7, 0.95])
    values = np.array([0.9, 0.8, 0.7, 0.95])
    half = 3.182446305284263 * values.std(ddof=1) / 2
    assert told == pytest.approx(
        (values.mean(), values.mean() - half, values.mean() + half, values.std(ddof=1), 0.95, 0.7, 0.25)
    )
    loss = statistics.over_chains(values, lower_is_better=True)
    assert (loss.best, loss.worst) == (0.7, 0.95)
    assert loss.gap == pytest.approx(0.25)
    alone = statistics.over_chains([0.9])
    assert (alone.mean, alone.gap) == (0.9, 0)
    assert np.isnan([alone.low, alone.high, alone.std]).all()
    with pytest.raises(ValueError, match=r"one number for each chain, got an array of shape \(2, 2\)"):
        statistics.over_chains(np.ones((2, 2)))


def test_means_have_students_interval():
    found = statistics.student([1.0, 2.0, 3.0])
    assert found == pytest.approx((2.0, 2 - 4.302653 / 3**0.5, 2 + 4.302653 / 3**0.5), rel=1e-6)
    assert statistics.student([5.0]).text() == "5.0"
    assert statistics.student([0.5, 0.5]).percent() == "50.0 % (50.0 to 50.0)"


def test_a_bootstrap_interval_covers_the_mean_as_often_as_it_says():
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(200):
        found = statistics.bootstrap(lambda x: float(x.mean()), rng.standard_normal(60), repeats=300)
        hits += found.low < 0 < found.high
    assert 0.89 <= hits / 200 <= 0.99


def test_runs_with_the_same_starts_are_resampled_together():
    common = np.random.default_rng(0).standard_normal(40)
    paired = statistics.bootstrap(lambda a, b: float(a.mean() - b.mean()), common + 1, common)
    alone = statistics.bootstrap(lambda a, b: float(a.mean() - b.mean()), common + 1, common, paired=False)
    assert paired.high - paired.low < 1e-9 < 0.3 < alone.high - alone.low


def test_independent_runs_have_the_interval_that_their_last_records_have_as_chains():
    """Student's t, the same bits from `mean`, `student` and `over_chains`; and of another formula, 1e-12."""
    values = np.random.default_rng(3).standard_normal(7) + 5
    estimate, measured, chains = (
        statistics.mean(values[:, None]),
        statistics.student(values),
        statistics.over_chains(values),
    )
    assert measured == (estimate.value, *estimate.interval) == chains[:3]
    ends = scipy.stats.t.interval(0.95, 6, values.mean(), scipy.stats.sem(values))
    assert measured[1:] == pytest.approx(ends, rel=1e-12)


def test_the_best_of_several_has_bonferroni_s_interval():
    values = np.arange(6.0)
    half = scipy.stats.t.ppf(1 - 0.025 / 4, 5) * scipy.stats.sem(values)
    assert statistics.student(values, of=4).high == pytest.approx(2.5 + half, rel=1e-12)


def test_a_run_without_a_value_leaves_no_mean_and_a_single_one_no_interval():
    assert all(map(math.isnan, statistics.student([1.0, math.nan, 2.0])))
    alone = statistics.student([0.25])
    assert alone.value == 0.25
    assert math.isnan(alone.low)
    assert math.isnan(alone.high)


@pytest.mark.parametrize(
    ("measured", "text"),
    [
        (statistics.Measured(0.934, 0.929, 0.939), "93.4 % (92.9 to 93.9)"),
        (statistics.Measured(0.934, math.nan, math.nan), "93.4 %"),
    ],
)
def test_a_measured_share_is_written_with_its_interval_if_it_has_one(measured, text):
    assert measured.percent() == text
    assert -measured == pytest.approx((-0.934, -measured.high, -measured.low), nan_ok=True)


def test_a_p_value_is_below_a_twentieth_just_outside_the_interval():
    estimate = statistics.Estimate(2.0, 0.5)
    low, high = estimate.interval
    assert estimate.p_value(2.0) == 1
    for inside, outside in ((low + 0.01, low - 0.01), (high - 0.01, high + 0.01)):
        assert estimate.p_value(outside) < 0.05 < estimate.p_value(inside)
    assert statistics.Estimate(2.0, 0.0).p_value(2.0) == 1
    assert statistics.Estimate(2.0, 0.0).p_value(2.1) == 0
    assert math.isnan(statistics.Estimate(2.0, math.nan).p_value(2.0))


def test_wilson_s_interval_holds_the_rates_that_are_no_further_than_1_96_of_their_errors():
    rate, count = np.array([0.0, 0.1, 0.5, 1.0]), np.array([5.0, 20.0, 100.0, 3.0])
    for end in statistics.wilson(rate, count):
        inner = (end > 1e-12) & (end < 1 - 1e-12)
        errors = np.sqrt(np.clip(end * (1 - end), 0, 1) / count)
        np.testing.assert_allclose(np.abs(rate - end)[inner], 1.96 * errors[inner], rtol=1e-9)
        np.testing.assert_allclose(end[~inner], rate[~inner], atol=1e-12)


def test_resampled_runs_are_drawn_with_replacement_always_the_same_and_together_if_paired():
    draws = list(statistics.resampled(5, 5, repeats=200))
    assert all(np.array_equal(one, other) for one, other in draws)
    assert np.array_equal(draws, list(statistics.resampled(5, 5, repeats=200)))
    assert any(len(set(one)) < 5 for one, _ in draws)
    assert set(np.concatenate([one for one, _ in draws])) == set(range(5))
    alone = list(statistics.resampled(5, 3, paired=False, repeats=200))
    assert {(len(one), len(other)) for one, other in alone} == {(5, 3)}
    assert any(not np.array_equal(one[:3], other) for one, other in alone)


def test_a_statistic_that_is_nan_for_some_resampled_runs_has_the_interval_of_the_others():
    def ratio(values):
        return float(values[0]) if values.max() > 3.5 else math.nan

    measured = statistics.bootstrap(ratio, np.arange(5.0))
    assert math.isfinite(measured.low)
    assert math.isfinite(measured.high)
    never = statistics.bootstrap(lambda values: math.nan, np.arange(5.0), repeats=10)
    assert all(map(math.isnan, never))


def test_a_bootstrap_interval_leaves_out_a_fortieth_of_the_resampled_runs_on_each_side():
    values = np.random.default_rng(5).standard_normal(50)
    means = np.array([values[rows].mean() for (rows,) in statistics.resampled(50, repeats=400)])
    measured = statistics.bootstrap(np.mean, values, repeats=400)
    assert measured.value == values.mean()
    for end, outside in ((measured.low, means < measured.low), (measured.high, means > measured.high)):
        assert end in means
        assert np.count_nonzero(outside) == pytest.approx(10, abs=1)


# Bounds


@pytest.mark.parametrize(
    ("bounds", "scale", "back"),
    [
        ((0.0, 1.0), lambda x: np.log(x / (1 - x)), lambda z: 1 / (1 + np.exp(-z))),
        ((2.0, 5.0), lambda x: np.log((x - 2) / (5 - x)), lambda z: 2 + 3 / (1 + np.exp(-z))),
        ((0.0, math.inf), np.log, np.exp),
        ((-math.inf, 1.0), lambda x: -np.log(1 - x), lambda z: 1 - np.exp(-z)),
    ],
)
def test_an_interval_within_bounds_is_student_s_on_a_scale_without_any(bounds, scale, back):
    values = np.array([0.2, 0.5, 0.9, 0.4]) + (2.0 if bounds[0] == 2 else 0.0)
    mean, low, high = statistics.student(values)
    slope = (scale(mean + 1e-6) - scale(mean - 1e-6)) / 2e-6
    found = statistics.student(values, bounds=bounds)
    expected = [back(scale(mean) + slope * (end - mean)) for end in (low, high)]
    np.testing.assert_allclose(found, [mean, *expected], rtol=1e-6)
    assert bounds[0] < found.low < found.high < bounds[1]
    edge = bounds[0] if math.isfinite(bounds[0]) else bounds[1]
    assert statistics.student([edge, edge], bounds=bounds) == (edge, edge, edge)
    assert math.isnan(statistics.student([0.5 + values[0]], bounds=bounds).low)


def test_weights_of_a_mean_are_numbers_of_values():
    """The error is that of a ratio of sums; with weights 0 a value is as if it were not there, but for n."""
    values, weights = np.array([1.0, 4.0, 2.0, 8.0]), np.array([1.0, 2.0, 0.5, 1.5])
    mean = weights @ values / weights.sum()
    error = np.sqrt(4 / 3 * np.sum((weights * (values - mean)) ** 2)) / weights.sum()
    half = scipy.stats.t.ppf(0.975, 3) * error
    np.testing.assert_allclose(statistics.student(values, weights=weights), [mean, mean - half, mean + half])
    np.testing.assert_allclose(statistics.student(values, weights=[3.0] * 4), statistics.student(values))


def test_frequencies_have_wilson_s_interval_and_their_means_newcombe_s():
    events, groups = np.array([1, 1, 0, 1, 1, 0.0]), np.array([0, 0, 0, 0, 1, 1])
    low, high = statistics.wilson(np.array([4 / 6]), np.array([6.0]))
    np.testing.assert_allclose(statistics.frequency(events), [4 / 6, low[0], high[0]])
    rates, counts = np.array([0.75, 0.5]), np.array([4.0, 2.0])
    low, high = statistics.wilson(rates, counts)
    down, up = (math.hypot(*(end - rates)) / 2 for end in (low, high))
    np.testing.assert_allclose(statistics.frequency(events, groups), [0.625, 0.625 - down, 0.625 + up])
    assert statistics.effective([2.0, 2.0, 2.0]) == pytest.approx(3)
    assert statistics.effective([1.0, 1e-9]) == pytest.approx(1)


def test_the_interval_of_an_area_holds_the_truth_in_95_percent_of_samples():
    """For normal scores, the area is Φ(d/√2). With 30 of each class, 92 to 99 % of 400 intervals hold it.

    The control: the interval of a share in as many pairs is far too narrow.
    """
    rng = np.random.default_rng(0)
    inside = narrow = 0
    for distance in (0.0, 1.0, 2.5, 3.5):
        truth = scipy.stats.norm.cdf(distance / math.sqrt(2))
        for _ in range(100):
            above, below = rng.standard_normal((30, 1)) + distance, rng.standard_normal(30)
            value = float((above > below).mean())
            _, low, high = statistics.area(value, 30, 30)
            assert 0 <= low <= value <= high <= 1
            inside += low <= truth <= high
            low, high = statistics.wilson(np.array(value), np.array(900.0))
            narrow += low <= truth <= high
    assert 368 <= inside <= 396
    assert narrow < 300
