"""Classifiers over the plane, and claims about them."""

import numpy as np
import pytest

from heatbath.paper import classifiers
from tests.paper.made_up import check_every_claim, pair


def test_every_claim_about_classifiers_can_hold_and_fail():
    check_every_claim(
        "classifiers",
        (pair(AdLaLa=0.9, Adam=0.8), pair(AdLaLa=0.8, Adam=0.9)),
        (pair("loss", AdLaLa=0.1, Adam=0.2), pair("loss", AdLaLa=0.2, Adam=0.1)),
        (pair("roughness", AdLaLa=0.1, Adam=0.2), pair("roughness", AdLaLa=0.2, Adam=0.1)),
    )


def test_roughness_is_an_inverse_length():
    x = np.linspace(0, 1, 200)
    wave = np.broadcast_to(np.sin(10 * x), (200, 200))
    distance = x[1]
    once = classifiers.roughness(wave, distance, distance)
    assert once == pytest.approx(10, rel=0.1)  # the mean of |sin| equals that of |cos|
    assert classifiers.roughness(wave, 2 * distance, 2 * distance) == pytest.approx(once / 2)
    plane = np.broadcast_to(x, (200, 200))
    assert classifiers.roughness(plane, distance, distance) == pytest.approx(0, abs=1e-8)
