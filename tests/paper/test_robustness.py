"""The variance over runs, judged on made-up results."""

import numpy as np
import pytest

from heatbath.paper import robustness
from tests.paper.made_up import check_every_claim, robust


def test_every_claim_about_robustness_can_hold_and_fail():
    check_every_claim(
        "robustness",
        (robust(), robust(adam=(0.005, 0.005), own=(0.05, 0.05))),
        (robust(), robust(adam=(0.005, 0.005), own=(0.05, 0.05))),
        (robust(), robust(means=(0.9, 0.9, 0.8, 0.95))),
    )


def test_a_variance_ratio_is_that_of_the_first_runs_over_the_second():
    runs = np.array([0.1, 0.4, 0.7, 0.9])
    assert robustness.variance_ratio(3 * runs, runs).value == pytest.approx(9)
    assert robustness.variance_ratio(runs, np.full(4, 0.5)).value == np.inf
