"""Barriers on lines, and passes on surfaces."""

import numpy as np
import pytest
import xarray as xr
from scipy.ndimage import label

from heatbath.analysis.landscape import barrier, saddle

FINE = np.linspace(0, 1, 101)


def curve_of(function, alphas=FINE):
    return xr.DataArray(function(alphas), {"alpha": alphas}, "alpha", "loss")


@pytest.mark.parametrize(
    "function", [lambda a: (a - 0.3) ** 2, lambda a: 1 - a, lambda a: a**3, lambda a: 0 * a + 2.0]
)
def test_there_is_no_barrier_on_a_convex_or_monotone_curve(function):
    assert float(barrier(curve_of(function))["height"]) == 0


def test_the_barrier_of_a_double_well_is_its_top():
    tilted = curve_of(lambda a: ((2 * a - 1) ** 2 - 1) ** 2 + 0.5 * (a == 1) - 0.25 * (a == 0))
    told = barrier(tilted)
    expected = {"loss": 1.0, "alpha": 0.5, "from_a": 1.25, "from_b": 0.5, "height": 0.5}
    assert {name: float(told[name]) for name in told} == pytest.approx(expected)
    assert barrier(tilted.to_dataset()).identical(told)


def test_losses_beyond_the_ends_are_no_barrier():
    alphas = np.arange(-0.3, 1.35, 0.1)  # 0 is not exactly among them
    assert 0 not in alphas
    told = barrier(curve_of(lambda a: (a - 0.5) ** 4, alphas))
    assert float(told["height"]) == pytest.approx(0)
    assert float(told["loss"]) == pytest.approx(0.5**4)


def test_barriers_keep_other_dimensions_and_nan_counts_as_infinite():
    curve = xr.concat([curve_of(lambda a, k=k: k * a * (1 - a)) for k in (1, 4, 4, 4)], dim="chain").copy()
    curve = curve.assign_coords(chain=[5, 6, 7, 8])
    curve[2, 20] = np.nan
    curve[3, 100] = np.nan
    told = barrier(curve)
    np.testing.assert_allclose(told["height"], [0.25, 1.0, np.inf, np.nan])
    np.testing.assert_allclose(told["alpha"], [0.5, 0.5, 0.2, np.nan])
    assert told["chain"].values.tolist() == [5, 6, 7, 8]


def surface_of(function, points=41):
    axis = np.linspace(0, 1, points)
    alpha, beta = np.meshgrid(axis, axis, indexing="ij")
    return xr.DataArray(function(alpha, beta), {"alpha": axis, "beta": axis}, ("alpha", "beta"), "loss")


def test_a_bowl_and_a_valley_have_no_pass_above_the_minima():
    bowl = surface_of(lambda a, b: (a - 1) ** 2 + (b - 0.4) ** 2)
    around = surface_of(lambda a, b: ((1 - a) ** 2 + (2 * b - 1) ** 2 - 1) ** 2)  # low on half a circle
    fine = surface_of(lambda a, b: np.abs(a - 0.5) < 0.3)  # a ridge that need not be crossed
    for loss in (bowl, fine):
        assert float(saddle(loss)["height"]) == 0
    assert float(barrier(around.sel(alpha=1, drop=True).rename(beta="alpha"))["height"]) == 1
    assert float(saddle(around)["height"]) < 0.05


def test_the_pass_of_a_double_well_is_at_its_lowest_point():
    loss = surface_of(
        lambda a, b: ((2 * b - 1) ** 2 - 1) ** 2 * (1 + 4 * (a - 0.75) ** 2) + 0.3 * b * (a == 1)
    )
    told = saddle(loss)
    expected = {"loss": 1, "alpha": 0.75, "beta": 0.5, "height": 0.7, "from_a": 0.7, "from_b": 1}
    assert {name: float(told[name]) for name in told} == pytest.approx(expected)
    assert saddle(loss.T).identical(told)
    assert float(barrier(loss.sel(alpha=1, drop=True).rename(beta="alpha"))["height"]) > float(told["height"])


def test_the_pass_is_the_lowest_level_at_which_the_minima_are_connected():
    """Against connected components, on random grids, many at once."""
    rng = np.random.default_rng(0)
    loss = surface_of(lambda a, b: 0 * a, points=9).expand_dims(draw=200).copy()
    loss.values[:] = rng.random(loss.shape)
    told = saddle(loss)
    for draw, values in enumerate(loss.values):
        for level in np.sort(values, axis=None):
            parts, _ = label(values <= level)
            if parts[-1, -1] == parts[-1, 0] != 0:
                break
        here = told.isel(draw=draw)
        assert float(here["loss"]) == level
        assert float(loss.isel(draw=draw).sel(alpha=here["alpha"], beta=here["beta"])) == level
        assert float(here["height"]) == level - max(values[-1, -1], values[-1, 0])
        assert float(here["from_a"]) == level - values[-1, -1]
        assert float(here["from_b"]) == level - values[-1, 0]


def test_no_path_leads_through_nan():
    loss = surface_of(lambda a, b: np.where(np.abs(b - 0.5) < 0.01, np.nan, 1.0))
    assert float(saddle(loss)["height"]) == np.inf
    loss.loc[{"alpha": 0.5}] = 3.0
    assert float(saddle(loss)["height"]) == 2
    loss.loc[{"alpha": 1, "beta": 0}] = np.nan
    assert all(np.isnan(value) for value in saddle(loss).values())


def test_a_barrier_needs_both_ends_and_their_labels():
    with pytest.raises(ValueError, match="alpha must contain both ends, 0 and 1"):
        barrier(curve_of(lambda a: a, np.linspace(0.1, 1, 5)))
    with pytest.raises(ValueError, match="beta must contain both ends, 0 and 1"):
        saddle(surface_of(lambda a, b: a).isel(beta=slice(1, None)))
    for wrong in (3.0, np.ones(3), xr.DataArray(np.ones(3), dims="alpha"), xr.Dataset()):
        with pytest.raises(TypeError, match="the loss needs the coordinates alpha, as `line`"):
            barrier(wrong)
    with pytest.raises(TypeError, match="the loss needs the coordinates alpha and beta"):
        saddle(curve_of(lambda a: a))
