"""Readings of what the paper leaves open."""

import numpy as np
import pytest
import xarray as xr

from heatbath.paper import interpretations


def test_the_table_has_how_often_each_interpretation_is_closest():
    rng = np.random.default_rng(0)
    values = 0.7 + 0.1 * rng.standard_normal((3, 1, 30))
    values[1] += 0.2
    data = xr.Dataset(
        {"readings": (("reading", "reading_method", "reading_run"), values)},
        coords={"reading": ["a", "b", "c"], "reading_method": ["Adam"]},
    )
    table = interpretations.interpretations_table(data, {"Adam": 0.7})
    often = {row[0]: float(row[-1].removesuffix(" %")) for row in table.rows[1:]}
    assert often["b"] == 0
    assert often["a"] + often["c"] == pytest.approx(100, abs=1)
    assert min(often["a"], often["c"]) > 5
