"""Losses on surfaces, judged on made-up results."""

from tests.paper.made_up import check_every_claim, planes


def test_every_claim_about_surfaces_can_hold_and_fail():
    check_every_claim(
        "surface",
        (planes("mnist", 0.0), planes("mnist", 1.0)),
        (planes("spiral", 0.0, 0.5), planes("spiral", 0.0, 0.0)),
    )
