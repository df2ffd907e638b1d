"""Temperatures of parts, judged on made-up results."""

from tests.paper.made_up import check_every_claim, parts


def test_every_claim_about_equipartition_can_hold_and_fail():
    check_every_claim(
        "equipartition",
        (parts(AdLaLa_hidden=1.05, AdLaLa_output=1.2), parts(AdLaLa_hidden=9.0, AdLaLa_output=20.0)),
        (parts(LOL_hidden=1.05, LOL_output=1.2), parts(LOL_hidden=9.0, LOL_output=0.01)),
    )
