"""Steps of records and samples."""

import pytest

from heatbath.runs.record_steps import spread_records, spread_samples
from tests.runs import short_run


def test_records_are_spread_evenly_and_end_with_the_last_step():
    assert spread_records(4, 0, 10) == [2, 5, 7, 10]
    assert spread_records(2, 10, 20) == [15, 20]
    assert spread_records(99, 0, 3) == [1, 2, 3]
    assert spread_records([0, 5, 12], 0, 10) == [0, 5, 10]
    assert spread_records([0, 5, 12], 5, 20) == [12, 20]


@pytest.mark.parametrize(
    ("given", "burn_in", "thin"),
    [
        ({"samples": 10}, 0, 12),
        ({"samples": 9}, 3, 13),  # 13 does not divide 120: the burn-in grows
        ({"samples": 10, "burn_in": 20}, 20, 10),
        ({"samples": 10, "burn_in": 25}, 30, 9),
        ({"samples": 10, "thin": 2}, 100, 2),  # the last ones
        ({"samples": 12, "burn_in": 60, "thin": 5}, 60, 5),
        ({"samples": 120}, 0, 1),
    ],
)
def test_two_of_samples_burn_in_and_thin_decide_the_third(given, burn_in, thin):
    known = {"samples": None, "burn_in": None, "thin": None} | given
    assert spread_samples(120, **known) == (burn_in, thin)
    run = short_run(**given)
    expected = [burn_in + thin * (i + 1) for i in range(given["samples"])]
    assert run.data["sample_step"].values.tolist() == expected
    assert expected[-1] == 120


@pytest.mark.parametrize(
    "given",
    [
        {"samples": 121},
        {"samples": 0},
        {"samples": 100, "burn_in": 50},
        {"samples": 100, "thin": 2},
        {"samples": 10, "burn_in": 20, "thin": 5},  # there would be 20
        {"samples": 10, "burn_in": -1},
        {"samples": 5, "burn_in": 120},
        {"burn_in": 20},
        {"thin": 2},
        {"samples": 10, "thin": 0},
    ],
)
def test_samples_that_cannot_be_had_are_refused(given):
    with pytest.raises(ValueError, match=r"samples|burn_in|thin"):
        short_run(**given)
