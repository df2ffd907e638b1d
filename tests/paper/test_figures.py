"""What the pictures of several experiments share."""

import numpy as np
import xarray as xr

from heatbath.paper import figures
from heatbath.plotting import style


def test_a_temperature_of_zero_is_drawn_a_decade_to_the_left_of_the_smallest_other():
    (ax,) = style.panels()
    accuracy = xr.DataArray(
        [[0.5, 0.6], [0.7, 0.8], [0.6, 0.7]], dims=("tau", "run"), coords={"tau": [0.0, 1e-3, 1e-2]}
    )
    figures._draw_accuracy_over_tau(ax, accuracy)
    (line,) = (line for line in ax.get_lines() if len(line.get_xdata()) == 3 and line.get_linestyle() == "-")
    np.testing.assert_allclose(line.get_xdata(), [1e-4, 1e-3, 1e-2])
    np.testing.assert_allclose(line.get_ydata(), [0.55, 0.75, 0.65])
    assert ax.get_xticklabels()[0].get_text() == "0"
    assert ax.get_xscale() == "log"


def test_every_run_is_a_dot_in_the_row_of_its_method_and_the_mean_a_line():
    (ax,) = style.panels()
    figures.draw_all_runs(ax, {"Adam": np.array([0.5, 0.7]), "LOL": np.array([0.8, 0.9])})
    dots, mean, *_ = ax.get_lines()
    assert dots.get_xdata().tolist() == [0.5, 0.7]
    assert np.all(np.abs(dots.get_ydata()) < 0.3)
    np.testing.assert_allclose(mean.get_xdata(), [0.6, 0.6])
    assert [label.get_text() for label in ax.get_yticklabels()] == ["Adam", "LOL"]
