"""Presets are the partitions of the paper, and pass every argument on."""

import math
from inspect import signature

import pytest

import heatbath as hb
from heatbath.methods import known_methods, names
from heatbath.methods.presets import PRESETS, method_choices

LANGEVIN = hb.Langevin(gamma=1, tau=1e-4)


def test_the_presets_are_what_the_paper_defines():
    assert hb.LaLa(0.1, gamma=1, tau=1e-4) == hb.Partition({"hidden": LANGEVIN, "output": LANGEVIN}, h=0.1)
    assert hb.LaLa(0.1, 1, 1e-4, 2, 1e-5).methods["output"] == hb.Langevin(2, 1e-5)
    assert hb.LOL() == hb.Partition(
        {"hidden": hb.Langevin(0.01, 1e-3), "output": hb.Langevin(math.inf, 0.0, "BAOAB")}, h=0.1
    )
    assert hb.AdLaLa() == hb.Partition(
        {"hidden": hb.AdaptiveLangevin(1e-4, 0.01, 0.03), "output": hb.Langevin(0.1, 1e-4)}, h=0.15
    )
    assert hb.AdLaLa(tau_output=0).methods["output"] == hb.Langevin(0.1, 0.0)
    adaptive = hb.AdaptiveLangevin(1e-4, 0.01, 0.03)
    assert hb.AdLAdL() == hb.Partition({"hidden": adaptive, "output": adaptive}, h=0.15)
    assert hb.AdLAdL(epsilon_output=0.0).methods["output"] == hb.AdaptiveLangevin(1e-4, 0.01, 0.0)


def test_every_argument_of_a_preset_arrives_in_the_method_that_it_is_for():
    """No two have the same value, so that none can take the place of another."""
    words = {"word": "ABOBA", "word_output": "OBA", "weight_decay": 0.02}
    assert hb.LaLa(0.2, 1, 1e-4, 2, 1e-5, **words) == hb.Partition(
        {"hidden": hb.Langevin(1, 1e-4, "ABOBA", 0.02), "output": hb.Langevin(2, 1e-5, "OBA", 0.02)}, 0.2
    )
    assert hb.LOL(0.2, 1, 1e-4, 1e-5, **words) == hb.Partition(
        {"hidden": hb.Langevin(1, 1e-4, "ABOBA", 0.02), "output": hb.Langevin(math.inf, 1e-5, "OBA", 0.02)},
        0.2,
    )
    others = {"xi": 0.3, "friction": "sde", "thermostat": "tensor", "kinetic": "mean", "weight_decay": 0.02}
    adaptive = hb.AdaptiveLangevin(1e-3, 0.04, 0.5, "BAFEFAB", **others)
    assert hb.AdLaLa(
        0.2, 1e-3, 0.04, 0.5, 0.6, 1e-5, word="BAFEFAB", word_output="OBA", **others
    ) == hb.Partition({"hidden": adaptive, "output": hb.Langevin(0.6, 1e-5, "OBA", 0.02)}, 0.2)
    output = hb.AdaptiveLangevin(1e-5, 0.07, 0.8, "ECDABADC", **others)
    words = {"word": "BAFEFAB", "word_output": "ECDABADC"}
    assert hb.AdLAdL(0.2, 1e-3, 0.04, 0.5, 1e-5, 0.07, 0.8, **words, **others) == hb.Partition(
        {"hidden": adaptive, "output": output}, 0.2
    )


def test_a_list_given_to_a_preset_is_one_axis():
    partition = hb.AdLaLa(h=0.1, sigma=[0, 1e-3, 1e-2, 4e-2], tau=[1e-5, 1e-4, 1e-3])
    assert partition.axes() == {"sigma": (0, 1e-3, 1e-2, 4e-2), "tau": (1e-5, 1e-4, 1e-3)}
    assert hb.LaLa([0.1, 0.2], gamma=[1, 2], tau=1e-4).axes() == {"h": (0.1, 0.2), "gamma": (1, 2)}
    assert hb.AdLaLa().axes() == {}


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_takes_a_prior_and_what_its_methods_take(name):
    taken = set(signature(PRESETS[name]).parameters)
    for method in PRESETS[name](
        h=0.1, **({"gamma": 1.0, "tau": 1e-4} if name == "LaLa" else {})
    ).methods.values():
        assert {n for n in names(type(method)) if n not in ("gamma",)} <= taken
    decayed = PRESETS[name](
        h=0.1, weight_decay=0.3, **({"gamma": 1.0, "tau": 1e-4} if name == "LaLa" else {})
    )
    assert {method.weight_decay for method in decayed.methods.values()} == {0.3}


def test_a_posterior_replaces_the_default_temperatures_of_lol_but_not_others():
    parts = hb.LOL(posterior=hb.Posterior()).methods
    assert parts == {"hidden": hb.Langevin(0.01), "output": hb.Langevin(math.inf)}
    assert hb.LOL(tau=None, tau_output=None, posterior=hb.Posterior()).methods == parts
    with pytest.raises(ValueError, match="the posterior sets tau, so leave it out"):
        hb.LOL(tau=1e-4, posterior=hb.Posterior())


def test_a_coefficient_and_what_sets_it_are_not_given_together():
    assert hb.AdLaLa(frequency=0.5).methods["hidden"].frequency == 0.5
    with pytest.raises(ValueError, match="frequency sets epsilon, so give one of them and not both"):
        hb.AdLaLa(frequency=0.5, epsilon=0.1)
    with pytest.raises(ValueError, match="damping sets sigma, so give one of them and not both"):
        hb.AdLAdL(damping=0.5, sigma=0.1)


def test_every_preset_and_method_is_a_choice_that_makes_its_partition():
    choices = method_choices()
    assert set(choices) == {*PRESETS, *known_methods()}
    assert choices["LOL"].make(h=0.2) == hb.LOL(0.2)
    assert choices["SGD"].make(h=0.2) == hb.Partition(hb.SGD(), 0.2)
    assert choices["LaLa"].required() == ["h", "gamma", "tau"]
    assert choices["LaLa"].required(has_posterior=True) == ["h", "gamma"]
    assert choices["LaLa"].arguments["tau_output"].text == "For the output layer: temperature."
