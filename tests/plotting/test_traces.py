"""Curves over the steps, and temperatures."""

import numpy as np
import pytest
import xarray as xr
from scipy import stats

import heatbath as hb
from heatbath import plotting
from tests.plotting.pictures import labelled_lines, sweep, three_methods, ticks
from tests.runs import SMALL, SPIRALS


def make_trace(values, steps=None, name="accuracy", **coords):
    """Return a trace of chains x records."""
    values = np.asarray(values, float)
    steps = 10 * np.arange(1, values.shape[1] + 1) if steps is None else steps
    return xr.DataArray(
        values, dims=("chain", "record"), coords={"step": ("record", steps), **coords}, name=name
    )


def band_edges(ax, place):
    """Return the steps of a band, and its lower and upper edges there."""
    vertices = ax.collections[place].get_paths()[0].vertices
    steps = np.unique(vertices[:, 0])
    own = [vertices[vertices[:, 0] == step, 1] for step in steps]
    return steps, np.array([v.min() for v in own]), np.array([v.max() for v in own])


@pytest.mark.parametrize("kind", ["interval", "std", "range"])
def test_a_curve_is_the_centre_of_the_runs_with_the_requested_band(kind):
    values = np.random.default_rng(1).random((5, 4)) ** 2 + 0.1
    ax = plotting.curves({"a": make_trace(values).rename("loss")}, band=kind)
    mean, std = values.mean(0), values.std(0, ddof=1)
    low, high = {
        "interval": stats.t.interval(0.95, 4, mean, stats.sem(values, axis=0)),
        "std": (mean - std, mean + std),
        "range": (values.min(0), values.max(0)),
    }[kind]
    line = labelled_lines(ax)["a"]
    np.testing.assert_array_equal(line.get_xdata(), [10, 20, 30, 40])
    np.testing.assert_allclose(line.get_ydata(), np.median(values, 0) if kind == "range" else mean)
    steps, lower, upper = band_edges(ax, 0)
    np.testing.assert_array_equal(steps, [10, 20, 30, 40])
    np.testing.assert_allclose(lower, low)
    np.testing.assert_allclose(upper, high)


def test_the_band_of_an_accuracy_stays_between_0_and_1():
    values = np.array([[0.9], [1.0], [1.0]])
    for name, within in (("accuracy", True), ("loss", False)):
        _, low, high = band_edges(plotting.curves(make_trace(values).rename(name)), 0)
        assert bool(high[0] < 1) is within
        assert low[0] > 0


def test_curves_have_a_line_for_each_method_at_the_records_with_values():
    ax = plotting.curves(three_methods())
    assert list(labelled_lines(ax)) == ["AdLaLa", "LOL", "Adam"]
    for name, line in labelled_lines(ax).items():
        own = three_methods().select(method=name).accuracy("test")
        np.testing.assert_array_equal(line.get_xdata(), [20, 40, 60])
        np.testing.assert_allclose(line.get_ydata(), own.values[:, 1::2].mean(axis=0))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("steps", "test accuracy")
    assert plotting.curves(three_methods().loss("train")).get_ylabel() == "train loss"
    assert plotting.curves(three_methods().xi("hidden")[:3]).get_ylabel() == r"$\xi$"


def test_the_points_of_a_sweep_are_labelled_by_their_coefficients():
    labels = list(labelled_lines(plotting.curves(sweep())))
    assert len(labels) == 6
    assert labels[1] == r"$\tau$ = $10^{-4}$, $\sigma_A$ = $10^{-3}$"
    mixed = {"LOL": three_methods().accuracy()[3:6], "AdLaLa": sweep().accuracy()}
    labels = list(labelled_lines(plotting.curves(mixed)))
    assert labels[:2] == ["LOL", r"AdLaLa, $\tau$ = $10^{-4}$, $\sigma_A$ = 0"]
    assert len(labels) == 7


def test_a_single_run_is_a_line_without_band_or_legend():
    ax = plotting.curves(three_methods().accuracy().isel(chain=4))
    assert ax.get_legend() is None
    (line,) = ax.get_lines()
    np.testing.assert_array_equal(line.get_ydata(), three_methods().accuracy().values[4, 1::2])
    assert not np.isfinite(band_edges(ax, 0)[1]).any() if ax.collections[0].get_paths() else True


def test_diverged_runs_count_until_they_diverge_and_the_label_has_their_number():
    values = [[0.5, 0.6, 0.7], [0.7, np.nan, np.nan], [0.9, 1.0, np.nan], [np.nan] * 3]
    ax = plotting.curves(make_trace(values, method=("chain", ["a", "a", "a", "b"])))
    lines = labelled_lines(ax)
    assert list(lines) == ["a (2 of 3 diverged)", "b (1 of 1 diverged)"]
    np.testing.assert_allclose(lines["a (2 of 3 diverged)"].get_ydata(), [0.7, 0.8, 0.7])
    assert np.isnan(lines["b (1 of 1 diverged)"].get_ydata()).all()


def test_steps_have_separators_and_accuracies_are_percentages_up_to_100():
    ax = plotting.curves(make_trace([[0.5, 1.0], [0.7, 0.98]], steps=[0, 50_000]))
    assert "20,000" in ticks(ax.xaxis)
    assert "80 %" in ticks(ax.yaxis)
    assert ax.get_ylim()[1] <= 1.005  # the interval of two runs goes far beyond
    loss = plotting.curves(make_trace([[0.5, 0.004]], name="loss"), log=True)
    assert loss.get_yscale() == "log"
    assert {"0.1", "0.01"} <= set(ticks(loss.yaxis))


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ([1, 2], TypeError, "a DataArray with the dimensions chain, record is needed"),
        ({}, TypeError, "at least one array is needed"),
        ({1: make_trace([[1.0]])}, TypeError, "in a dict by name"),
        (xr.DataArray(np.ones((2, 3)), dims=("chain", "record")), ValueError, "need a coordinate `step`"),
        (make_trace(np.ones((2, 3))).expand_dims(part=3), ValueError, "got {'part': 3"),
        (make_trace([[np.nan, np.nan]]), ValueError, "all values are NaN"),
    ],
)
def test_curves_refuse_arrays_that_are_no_traces(given, error, words):
    with pytest.raises(error, match=words):
        plotting.curves(given)


def test_curves_refuse_an_unknown_band():
    with pytest.raises(ValueError, match="band must be one of 'interval', 'range', 'std', got 'iqr'"):
        plotting.curves(three_methods(), band="iqr")


def test_temperatures_are_means_over_chains_beside_the_tau_of_each_part():
    run = three_methods().select(method="AdLaLa")
    ax = plotting.temperatures(run)
    lines = ax.get_lines()
    assert [line.get_label() for line in lines[::2]] == [
        r"hidden, dashed: $\tau$ = $10^{-3}$",
        r"output, dashed: $\tau$ = $10^{-4}$",
    ]
    for part, trace, target, tau in zip(
        ("hidden", "output"), lines[::2], lines[1::2], (1e-3, 1e-4), strict=True
    ):
        np.testing.assert_allclose(trace.get_ydata(), run.temperature(part).mean("chain"))
        np.testing.assert_array_equal(target.get_ydata(), np.full(6, tau))
        assert target.is_dashed()
        assert trace.get_color() == target.get_color()
    assert ax.get_yscale() == "log"


def test_a_tau_of_zero_is_in_the_label_and_not_drawn():
    ax = plotting.temperatures(three_methods().select(method="LOL"))
    assert list(labelled_lines(ax)) == [r"hidden, dashed: $\tau$ = $10^{-3}$", r"output, $\tau$ = 0"]
    assert len(ax.get_lines()) == 3


def test_a_scheduled_tau_is_drawn_at_the_last_step_of_each_record_and_a_ladder_with_all_rungs():
    plan = {"steps": 40, "batch": 20, "record": [0, 10, 40]}
    falling = hb.schedules.Linear(1e-2, 1e-3, steps=30)
    run = hb.train(SPIRALS, SMALL, hb.Partition(hb.Langevin(1.0, falling), h=0.1), **plan)
    ax = plotting.temperatures(run)
    assert ax.get_lines()[0].get_label() == r"all, dashed: scheduled $\tau$"
    np.testing.assert_allclose(ax.get_lines()[1].get_ydata()[-2:], [falling(9), 1e-3])
    ladder = hb.schedules.SimulatedTempering([1e-4, 1e-3, 1e-2])
    run = hb.train(SPIRALS, SMALL, hb.Partition(hb.Langevin(1.0, ladder), h=0.1), **plan)
    rungs = plotting.temperatures(run).get_lines()[1:]
    assert [line.get_ydata()[0] for line in rungs] == [1e-4, 1e-3, 1e-2]


def test_temperatures_refuse_several_methods_and_methods_without_a_temperature():
    with pytest.raises(ValueError, match="select one of"):
        plotting.temperatures(three_methods())
    with pytest.raises(ValueError, match="no part of this run has a temperature"):
        plotting.temperatures(three_methods().select(method="Adam"))
    with pytest.raises(TypeError, match="needs a Run"):
        plotting.temperatures(three_methods().data)
