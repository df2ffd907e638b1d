"""Overfitting, judged on made-up results."""

from tests.paper.made_up import check_every_claim, rise


def test_every_claim_about_overfitting_can_hold_and_fail():
    check_every_claim(
        "overfitting",
        *((rise(name, 0.3), rise(name, 0.0)) for name in ("SGD", "Adam")),
        *((rise(name, 0.0), rise(name, 0.3)) for name in ("LOL", "AdLaLa")),
    )
