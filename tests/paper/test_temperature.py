"""The role of temperature, judged on made-up results."""

import pytest

from heatbath import paper
from heatbath.paper.claims import FAILS, HOLDS, IN_PART
from tests.paper.made_up import check_every_claim, taus


def test_every_claim_about_temperature_can_hold_and_fail():
    check_every_claim(
        "temperature",
        (taus(t1e_8=0.5, t1e_7=0.6, t1e_6=0.7, t1e_5=0.8), taus(t1e_8=0.8, t1e_7=0.7, t1e_6=0.6, t1e_5=0.5)),
        (taus(t1e_5=0.9, t1e_2=0.5), taus(t1e_5=0.5, t1e_2=0.9)),
    )


@pytest.mark.parametrize(
    ("accuracies", "verdict"),
    [
        ((0.5, 0.6, 0.7, 0.8), HOLDS),
        ((0.5, 0.9, 0.7, 0.8), IN_PART),
        ((0.9, 0.7, 0.7, 0.7), FAILS),
        ((0.9, 0.75, 0.75, 0.6), FAILS),
    ],
)
def test_the_ends_decide_whether_accuracy_rises_with_temperature(accuracies, verdict):
    data = taus(**dict(zip(("t1e_8", "t1e_7", "t1e_6", "t1e_5"), accuracies, strict=True)))
    assert paper.find("temperature").claims[0].check(data).verdict == verdict
