"""Distributions of parameters."""

import numpy as np
import pytest
import xarray as xr

from heatbath import plotting
from tests.plotting.pictures import METHODS, sweep, three_methods


def stairs(ax):
    return {patch.get_label(): patch.get_data() for patch in ax.patches}


def test_parameters_are_those_of_the_tensor_the_layer_or_the_part():
    weights, spans = (
        three_methods().weights().values,
        {"layer1.weight": (0, 40), "layer1.bias": (40, 60), "layer1": (0, 60)},
    )
    spans |= {"layer2.weight": (60, 80), "layer2.bias": (80, 81), "hidden": (0, 60), "output": (60, 81)}
    for name, (begin, end) in spans.items():
        np.testing.assert_array_equal(
            plotting.parameters(three_methods(), name).values, weights[..., begin:end]
        )
    with pytest.raises(ValueError, match=r"no 'layer3' in this run: accepted are 'layer1', 'layer1.weight'"):
        plotting.parameters(three_methods(), "layer3")
    with pytest.raises(ValueError, match="train with weights=True"):
        plotting.parameters(sweep(), "layer1.bias")
    with pytest.raises(TypeError, match="needs a Run"):
        plotting.parameters(three_methods().data, "layer1")


def test_outlines_count_the_parameters_of_one_network_in_shared_bins():
    own = plotting.parameters(three_methods(), "layer1.weight").isel(record=-1)
    ax = plotting.distributions(own, bins=15)
    edges = np.linspace(own.values.min(), own.values.max(), 16)
    assert list(stairs(ax)) == list(METHODS)
    for place, drawn_ in enumerate(stairs(ax).values()):
        np.testing.assert_allclose(drawn_.edges, edges, rtol=1e-6)
        assert drawn_.values.sum() == pytest.approx(40)
        expected = np.histogram(own.values[3 * place : 3 * place + 3], drawn_.edges)[0] / 3
        np.testing.assert_allclose(drawn_.values, expected)
    assert ax.get_yscale() == "log"
    assert (ax.get_xlabel(), ax.get_ylabel()) == (r"$\theta$", "parameters per bin")


def test_outlines_over_time_are_labelled_by_step_and_recorded_histograms_need_no_parameters():
    own = sweep().data["histogram"].sel(part="hidden").isel(chain=slice(0, 2))
    ax = plotting.distributions(own)
    assert list(stairs(ax)) == [r"$\tau$ = $10^{-4}$, $\sigma_A$ = 0, step " + n for n in ("20", "40")]
    for record, drawn_ in enumerate(stairs(ax).values()):
        np.testing.assert_allclose(drawn_.edges, np.linspace(-1, 1, 21), atol=1e-12)
        np.testing.assert_allclose(drawn_.values, own.values[:, record].mean(axis=0))


def test_diverged_chains_and_parameters_outside_the_limits_are_not_counted():
    values = np.array([[[0.1, 0.2, 5.0]], [[np.nan] * 3]])
    own = xr.DataArray(values, dims=("chain", "record", "parameter"), coords={"step": ("record", [3000])})
    (drawn_,) = stairs(plotting.distributions({"a": own}, bins=2, limits=(0, 1))).values()
    np.testing.assert_array_equal(drawn_.values, [2, 0])
    np.testing.assert_array_equal(drawn_.edges, [0, 0.5, 1])
    counts = xr.DataArray([[[4, 2]], [[0, 0]]], dims=("chain", "record", "bin"), coords={"bin": [0.5, 1.5]})
    counts = counts.assign_coords(step=("record", [10]))
    (drawn_,) = stairs(plotting.distributions(counts)).values()
    np.testing.assert_array_equal(drawn_.values, [4, 2])
    np.testing.assert_array_equal(drawn_.edges, [0, 1, 2])
    with pytest.raises(ValueError, match="no parameter lies in the bins"):
        plotting.distributions(own, limits=(7, 8))
    with pytest.raises(ValueError, match="no finite parameter to draw"):
        plotting.distributions({"a": own, "lost": own * np.nan})
    with pytest.raises(ValueError, match="lost has no parameters in these bins"):
        plotting.distributions({"a": counts, "lost": counts * 0})
    with pytest.raises(ValueError, match="all be parameters or all histograms"):
        plotting.distributions({"a": own, "b": counts})


def test_distributions_refuse_too_many_outlines_and_wrong_limits():
    with pytest.raises(ValueError, match="18 outlines cannot be told apart, 14 can"):
        plotting.distributions(plotting.parameters(three_methods(), "layer1"))
    own = plotting.parameters(three_methods(), "layer1").isel(record=-1)
    with pytest.raises(ValueError, match="limits must go from low to high"):
        plotting.distributions(own, limits=(1, -1))
    with pytest.raises(TypeError, match=r"limits must be two numbers such as \(-3, 3\)"):
        plotting.distributions(own, limits=3)
