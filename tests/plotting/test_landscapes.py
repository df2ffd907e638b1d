"""Pictures of losses on lines and surfaces."""

import numpy as np
import pytest
import xarray as xr

from heatbath import plotting
from tests.plotting.pictures import labelled_lines, on_line, on_surface


def test_a_line_marks_its_ends_and_states_its_barrier():
    ax = plotting.line(on_line([0.1, 1.0, 1.3, 0.9, 0.2]))
    curve, dots = ax.get_lines()[:2]
    np.testing.assert_array_equal(curve.get_ydata(), [0.1, 1.0, 1.3, 0.9, 0.2])
    np.testing.assert_array_equal(dots.get_xydata(), [[0, 0.1], [1, 0.2]])
    assert curve.get_label() == "barrier 1.1"
    (arrow,) = ax.texts
    assert arrow.xy == (0.5, 1.3)
    assert arrow.xyann == pytest.approx((0.5, 0.2))
    assert (ax.get_xlabel(), ax.get_ylabel()) == (r"$\alpha$", "test loss")


def test_the_barrier_lies_between_the_ends_which_may_be_interpolated():
    ax = plotting.line(on_line([9.0, 0.4, 0.6, 0.2, 9.0], alpha=(-0.5, 0.25, 0.5, 0.75, 1.5)))
    ends = np.interp([0, 1], [-0.5, 0.25, 0.5, 0.75, 1.5], [9.0, 0.4, 0.6, 0.2, 9.0])
    np.testing.assert_allclose(ax.get_lines()[1].get_ydata(), ends)
    assert ax.get_lines()[0].get_label() == "no barrier"
    assert not ax.texts
    falling = on_line([0.5, 0.4, 0.3, 0.2, 0.1]).isel(alpha=slice(None, None, -1))
    line = plotting.line(falling).get_lines()[0]
    np.testing.assert_array_equal(line.get_xdata(), [0, 0.25, 0.5, 0.75, 1])
    np.testing.assert_array_equal(line.get_ydata(), [0.5, 0.4, 0.3, 0.2, 0.1])


def test_several_pairs_are_drawn_as_thin_lines_with_a_thick_mean():
    pairs = np.array([[0.1, 1.0, 1.3, 0.9, 0.2], [0.1, 0.6, 2.0, 1.0, 0.3]])
    ax = plotting.line({"a to b": on_line(pairs), "a to c": on_line(pairs.T.copy().T[:1])})
    lines = ax.get_lines()
    for thin, pair in zip(lines[:2], pairs, strict=True):
        np.testing.assert_array_equal(thin.get_ydata(), pair)
    np.testing.assert_allclose(lines[2].get_ydata(), pairs.mean(axis=0))
    assert lines[2].get_linewidth() > 2 * lines[0].get_linewidth()
    assert list(labelled_lines(ax)) == ["a to b: barrier 1.4 (1.1 to 1.7)", "a to c: barrier 1.1"]


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ([1.0, 2.0], TypeError, "must be a DataArray"),
        ({}, TypeError, "an empty dict"),
        (xr.DataArray([1.0, 2.0], dims="beta"), ValueError, "needs the coordinate alpha"),
        (
            on_line([1.0, 2.0], alpha=(0.0, 0.9)),
            ValueError,
            "must reach from alpha = 0 to 1.* got 0 to 0.9",
        ),
        (
            {"a": on_line([1.0, np.inf], alpha=(0, 1))},
            ValueError,
            "of 'a' has values that are not finite",
        ),
    ],
)
def test_a_line_refuses_unsuitable_losses(given, error, words):
    with pytest.raises(error, match=words):
        plotting.line(given)


@pytest.mark.parametrize("log", [False, True])
def test_a_surface_has_alpha_to_the_right_and_beta_upwards(log):
    slope = on_surface(lambda a, b: 2.0 + a + 3.0 * b)
    ax = plotting.surface(slope, log=log)
    filled, contours = ax.collections[:2]
    levels = filled.levels
    assert len(levels) >= 11
    steps = np.diff(np.log(levels) if log else levels)
    np.testing.assert_allclose(steps, steps[0])
    assert levels[0] <= 1.0 < 7.0 <= levels[-1]
    assert filled.get_cmap().name == "viridis"
    for low, high, path in zip(levels, levels[1:], filled.get_paths(), strict=False):
        height = 2.0 + path.vertices @ [1.0, 3.0]
        assert np.all((height > low - 0.02) & (height < high + 0.02))
    for level, path in zip(contours.levels, contours.get_paths(), strict=True):
        np.testing.assert_allclose(2.0 + path.vertices @ [1.0, 3.0], level, atol=0.02)
    assert ax.get_xlim() == (-1, 2)
    assert ax.get_ylim() == (0, 1)
    assert (ax.get_xlabel(), ax.get_ylabel()) == (r"$\alpha$", r"$\beta$")
    turned = plotting.surface(slope.transpose("beta", "alpha"), log=log).collections[1].get_paths()
    np.testing.assert_array_equal(turned[3].vertices, contours.get_paths()[3].vertices)


def test_marks_are_drawn_at_their_positions():
    ax = plotting.surface(on_surface(lambda a, b: a**2 + b), {"start": (0, 0.5), "Adam": (1.5, 1)})
    assert [tuple(map(float, line.get_xydata()[0])) for line in ax.get_lines()] == [(0, 0.5), (1.5, 1)]
    assert [(text.get_text(), text.xy) for text in ax.texts] == [("start", (0, 0.5)), ("Adam", (1.5, 1))]


@pytest.mark.parametrize(
    ("given", "options", "error", "words"),
    [
        (np.ones((3, 3)), {}, TypeError, "must be a DataArray, got ndarray"),
        (on_line([[1.0, 2, 3, 4, 5]]), {}, ValueError, "coordinates alpha and beta, got {'pair': 1"),
        (on_surface(lambda a, b: a + b), {"log": True}, ValueError, "> 0 on a logarithmic scale"),
        (on_surface(lambda a, b: 2 + 0 * a * b), {}, ValueError, "the loss is 2 everywhere"),
        (
            on_surface(lambda a, b: a + b),
            {"marks": {"x": (0, None)}},
            TypeError,
            "position of .x. must be",
        ),
    ],
)
def test_a_surface_refuses_losses_without_contours(given, options, error, words):
    with pytest.raises(error, match=words):
        plotting.surface(given, **options)
