"""Maps over coefficients, judged on made-up results."""

from heatbath.paper import coefficient_maps
from heatbath.paper.claims import FAILS, HOLDS, IN_PART
from tests.paper.made_up import check_every_claim, noise_map, taus


def test_every_claim_about_the_driving_noise_can_hold_and_fail():
    check_every_claim(
        "driving-noise",
        (noise_map(), noise_map(weak=0.9)),
        (noise_map(), noise_map(band=(), rest=0.5)),
        (noise_map(), noise_map(cool=0.6)),
        (noise_map(), noise_map(hot=0.97)),
    )


def test_every_claim_about_the_temperature_of_lol_can_hold_and_fail():
    check_every_claim(
        "lol-temperature",
        (taus(t0=0.7, t1e_5=0.9, t1e_3=0.5), taus(t0=0.9, t1e_5=0.7, t1e_3=0.5)),
        (taus(t0=0.7, t1e_5=0.9, t1e_3=0.5), taus(t0=0.5, t1e_5=0.7, t1e_3=0.9)),
        (taus(t1e_3=0.5), taus(t1e_3=0.9)),
    )


def test_a_decade_of_useful_noise_holds_and_a_factor_of_three_holds_in_part():
    assert coefficient_maps.judge_width([0.01, 0.02, 0.1]) == HOLDS
    assert coefficient_maps.judge_width([0.01, 0.03]) == IN_PART
    assert coefficient_maps.judge_width([0.01]) == FAILS
    assert coefficient_maps.judge_width([]) == FAILS
