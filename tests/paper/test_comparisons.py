"""Methods compared, judged on made-up results."""

import numpy as np
import xarray as xr

from heatbath.paper import comparisons
from tests.paper.made_up import adams, check_every_claim, pair, reaching, stepsizes


def coefficients(partition):
    """Return h, the coefficients of the hidden layers and the friction of the output layer."""
    hidden = partition.methods["hidden"]
    output = partition.methods["output"]
    return partition.h, hidden.tau, hidden.sigma, hidden.epsilon, output.gamma


def test_adlala_has_the_paper_s_coefficients():
    """Those in the captions: h, τ, σ, ε and γ."""
    four_turns = comparisons.TUNED.settings["adlala"]
    easy = comparisons.EASY.settings["methods"]["AdLaLa"]
    hard = comparisons.hard_methods()["AdLaLa"]
    assert coefficients(four_turns) == (0.25, 1e-4, 0.01, 0.05, 0.1)
    assert coefficients(easy) == (0.2, 1e-4, 0.001, 0.1, 10.0)
    assert coefficients(hard) == (0.1, 1e-4, 0.001, 0.1, 5.0)


def test_every_claim_about_tuned_methods_can_hold_and_fail():
    check_every_claim(
        "compare-4turn",
        (pair(AdLaLa=0.9, SGLD_h=0.8), pair(AdLaLa=0.8, SGLD_h=0.9)),
        (pair(AdLaLa=0.9, Adam_h=0.8), pair(AdLaLa=0.8, Adam_h=0.9)),
    )


def test_every_claim_about_the_easier_trigonometric_problem_can_hold_and_fail():
    check_every_claim(
        "compare-trig-6",
        (reaching(AdLaLa=1000, Adam=2900), reaching(AdLaLa=2900, Adam=1000)),
        (reaching(LOL=1000, Adam=2000), reaching(LOL=2900, Adam=1000)),
        (stepsizes(0.9, 0.8, 0.8), stepsizes(0.8, 0.9, 0.8)),
    )


def test_every_claim_about_the_harder_trigonometric_problem_can_hold_and_fail():
    check_every_claim(
        "compare-trig-10",
        (adams(0.73), adams(0.95)),
        (adams(0.73, 0.73), adams(0.73, 0.6)),
        (pair(LOL=0.9, Adam=0.8), pair(LOL=0.7, Adam=0.8)),
        (pair(AdLaLa=0.9, Adam=0.8), pair(AdLaLa=0.7, Adam=0.8)),
        (
            pair(SGLD=0.6, Adam=0.8, LOL=0.8, AdLaLa=0.8),
            pair(SGLD=0.9, Adam=0.8, LOL=0.8, AdLaLa=0.8),
        ),
    )


def test_a_run_that_never_reaches_an_accuracy_takes_infinitely_many_steps():
    accuracy = [[0.5, 0.95, 0.5], [0.5, 0.6, 0.7], [0.9, 0.5, 0.5]]
    data = xr.Dataset(
        {"accuracy": (("method", "run", "record"), [accuracy])},
        coords={"method": ["Adam"], "step": ("record", [10, 20, 30])},
    )
    assert comparisons.steps_to_accuracy(data, "Adam").tolist() == [20, np.inf, 10]
