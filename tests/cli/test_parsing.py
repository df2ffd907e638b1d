"""Numbers, lists and ranges on the command line."""

import pytest

from heatbath.cli import parsing


def test_ranges_are_evenly_spaced_in_logarithms():
    assert parsing.numbers("tau", "1e-6:1e-2:5") == [1e-6, 1e-5, 1e-4, 1e-3, 1e-2]
    assert parsing.numbers("tau", "8:1:4") == [8.0, 4.0, 2.0, 1.0]
    assert parsing.numbers("tau", "0.3,0") == [0.3, 0.0]
    assert parsing.numbers("gamma", "inf") == float("inf")
    for wrong in ("1:2", "0:1:3", "1:2:1", "1:2:1.5", "a", "1,,2", "1_0", ""):
        with pytest.raises(ValueError, match="tau"):
            parsing.numbers("tau", wrong)
