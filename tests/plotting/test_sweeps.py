"""Heat maps, scores and reliability."""

import numpy as np
import pytest
import xarray as xr
from scipy import stats

import heatbath as hb
from heatbath import plotting
from tests.plotting.pictures import SCORES, forecasts, labelled_lines, sweep, three_methods, ticks


def test_a_heat_map_has_the_mean_accuracy_of_each_point_in_its_cell():
    ax = plotting.heat_map(sweep())
    last = sweep().accuracy("test").values[:, -1].reshape(2, 3, 2).mean(axis=-1)  # τ, σ, repeat
    np.testing.assert_allclose(ax.get_images()[0].get_array(), last)
    written = {(round(t.get_position()[1]), round(t.get_position()[0])): t.get_text() for t in ax.texts}
    assert written == {place: f"{100 * value:.0f}" for place, value in np.ndenumerate(last)}
    assert ticks(ax.yaxis) == ["$10^{-4}$", "$10^{-3}$"]
    assert ticks(ax.xaxis) == ["0", "$10^{-3}$", "0.04"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == (r"$\sigma_A$", r"$\tau$")
    assert ax.child_axes[0].get_ylabel() == "test accuracy"
    assert ax.get_images()[0].origin == "lower"
    assert ticks(ax.child_axes[0].yaxis)[0].endswith(" %")


def test_points_where_repeats_diverged_have_a_star_and_a_dash_where_all_did():
    accuracy = sweep().data["accuracy"].copy()
    accuracy[:, 0, 1] = np.nan  # one repeat of the first point
    accuracy[:, 2:4, 1] = np.nan  # both of the second
    ax = plotting.heat_map(hb.Run(sweep().plan, sweep().step, sweep().data.assign(accuracy=accuracy)))
    texts = [text.get_text() for text in ax.texts]
    assert texts[0] == f"{100 * accuracy.values[1, 1, 1]:.0f}*"
    assert texts[1] == "–*"
    assert "*" not in "".join(texts[2:])
    assert "some runs diverged" in ax.child_axes[0].get_ylabel()


def test_a_heat_map_of_a_table_has_its_first_dimension_upwards_and_legible_numbers():
    table = xr.DataArray(
        [[0.0123456, 5.0], [9.99, 10.0]],
        dims=("h", "gamma"),
        coords={"h": [0.1, 0.2], "gamma": [1.0, np.inf]},
        name="loss",
    )
    ax = plotting.heat_map(table)
    assert [text.get_text() for text in ax.texts] == ["0.0123", "5", "9.99", "10"]
    assert [text.get_color() for text in ax.texts] == ["white", "white", "black", "black"]
    assert ticks(ax.xaxis) == ["1", r"$\infty$"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == (r"$\gamma$", "$h$")


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        (np.ones((2, 2)), TypeError, "needs a DataArray, or a sweep"),
        (xr.DataArray(np.ones((2, 2)), dims=("a", "b")), ValueError, "both with coordinates"),
        (xr.DataArray([[np.nan]], coords={"a": [1], "b": [2]}), ValueError, "no value is finite"),
    ],
)
def test_a_heat_map_refuses_anything_without_two_axes(given, error, words):
    with pytest.raises(error, match=words):
        plotting.heat_map(given)
    with pytest.raises(ValueError, match="a sweep over two axes, this run has method"):
        plotting.heat_map(three_methods())


def test_scores_are_dots_with_intervals_and_hollow_diamonds_for_the_paper():
    ax = plotting.scores(SCORES, "test accuracy", percent=True)
    lines = labelled_lines(ax)
    np.testing.assert_array_equal(
        lines["measured, 95 % interval"].get_xydata(), [[0.84, 0], [0.93, 1], [0.9, 2]]
    )
    segments = [segment.tolist() for segment in ax.collections[0].get_segments()]
    assert segments == [[[0.80, 0], [0.88, 0]], [[0.92, 1], [0.94, 1]], [[0.85, 2], [0.95, 2]]]
    diamonds = [line for line in ax.get_lines() if line.get_marker() == "D"]
    assert [line.get_xdata().tolist() for line in diamonds] == [[0.837], [0.98, 0.99]]
    assert {line.get_markerfacecolor() for line in diamonds} == {"white"}
    assert [0 < line.get_ydata()[0] - row < 0.5 for row, line in enumerate(diamonds)] == [True, True]
    assert lines["paper"] is diamonds[0]
    assert ticks(ax.yaxis) == ["Adam", "AdLaLa, γ = 0.5", "LOL"]
    low, high = ax.get_ylim()
    assert low > high  # the first is at the top
    assert "80 %" in ticks(ax.xaxis)
    assert "paper" not in labelled_lines(plotting.scores(SCORES[2:], "steps"))


@pytest.mark.parametrize(
    ("rows", "error", "words"),
    [
        ([], ValueError, "at least one score"),
        ([("a", 1.0, (0.0, 2.0))], TypeError, r"of the kind Score\(label, value, interval, paper\)"),
        ([plotting.Score("a", float("nan"), (0.0, 1.0))], ValueError, "the value of 'a' must be finite"),
        ([plotting.Score("a", 1.0, (2.0, 0.0))], ValueError, "must go from low to high"),
        (
            [plotting.Score("a", 1.0, (0.0, 2.0), "0.9")],
            TypeError,
            "the paper's value of 'a' must be a number",
        ),
    ],
)
def test_scores_refuse_invalid_rows(rows, error, words):
    with pytest.raises(error, match=words):
        plotting.scores(rows, "accuracy")


def test_reliability_is_the_observed_frequency_of_each_bin_with_wilsons_interval():
    said, truth = forecasts()
    said[:3], truth[:3] = [0.0, 1.0, 0.2], [0, 1, 0]  # at the edges of bins
    ax = plotting.reliability({"a": said}, truth, bins=5)
    (line,) = labelled_lines(ax).values()
    error = 0.0
    for place, (x, y) in enumerate(line.get_xydata()):
        own = (said >= place / 5) & ((said < (place + 1) / 5) | (place == 4))
        assert x == pytest.approx(said[own].mean())
        assert y == pytest.approx(truth[own].mean())
        error += own.sum() / 400 * abs(x - y)
        interval = stats.binomtest(int(truth[own].sum()), int(own.sum())).proportion_ci(method="wilson")
        (_, low), (_, high) = ax.collections[0].get_segments()[place]
        assert (low, high) == pytest.approx((interval.low, interval.high), abs=1e-4)
    assert place == 4
    assert line.get_label() == f"a (ECE {error:.3f})"
    np.testing.assert_array_equal(ax.get_lines()[0].get_xydata(), [[0, 0], [1, 1]])
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("predicted probability", "observed frequency")


def test_empty_bins_are_left_out():
    ax = plotting.reliability([0.1, 0.12, 0.9], [0, 1, 1])
    np.testing.assert_allclose(labelled_lines(ax)["ECE 0.293"].get_xydata(), [[0.11, 0.5], [0.9, 1.0]])


@pytest.mark.parametrize(
    ("said", "truth", "words"),
    [
        ([0.1, 0.2], [0, 1, 1], "must hold 3 numbers from 0 to 1.* got 2"),
        ({"a": [0.1, 1.2]}, [0, 1], "probability of 'a' must hold 2 numbers from 0 to 1.* to 1.2"),
        ([0.1, 0.2], [0, 2], "happened must hold 0 and 1"),
        ({}, [0, 1], "at least one forecast"),
        ([], [0, 1], "must hold 2 numbers"),
    ],
)
def test_reliability_refuses_invalid_probabilities(said, truth, words):
    with pytest.raises(ValueError, match=words):
        plotting.reliability(said, truth)
