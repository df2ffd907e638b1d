"""Losses on lines, judged on made-up results."""

from tests.paper.made_up import check_every_claim, ends, lines, one_line


def test_every_claim_about_lines_on_mnist_can_hold_and_fail():
    check_every_claim(
        "line-mnist",
        (lines(mnist=(0.0, 0.0)), lines(mnist=(2.0, 2.0))),
        (lines(spiral=(0.0, 0.0)), lines(spiral=(2.0, 2.0))),
        (ends(apart=0.8), ends(apart=0.01)),
        (ends(losses=(0.1, 0.1)), ends(losses=(0.5, 0.1))),
    )


def test_every_claim_about_lines_on_a_spiral_can_hold_and_fail():
    check_every_claim(
        "line-spiral",
        (one_line(2.0, 1.0), one_line(0.0, 0.0)),
        (one_line(2.0, 1.0), one_line(1.0, 2.0)),
        (one_line(1.0, 1.0, AdLaLa=0.985, Adam=0.9), one_line(1.0, 1.0, AdLaLa=0.7, Adam=0.9)),
        (one_line(1.0, 1.0, AdLaLa=0.985, Adam=0.925), one_line(1.0, 1.0, AdLaLa=0.7, Adam=0.7)),
    )
