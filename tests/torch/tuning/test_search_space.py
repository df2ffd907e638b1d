"""What `tune` searches of an optimiser: its ranges, fixed arguments, and what it refuses."""

import re

import pytest
import torch
from torch import nn

import heatbath as hb
import heatbath.torch as ht
from heatbath.torch.tuning.search_space import SEARCHED, families


def network():
    return nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 3))


def only_family(methods, seed=0):
    """Return the family of one method that nothing is wrong with."""
    (family,), problems = families(methods, network(), seed)
    assert problems == []
    return family


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        ("AdLalaLa", "no method 'AdLalaLa' to tune; accepted: adlala, lol, lala"),
        ([], "at least one method is needed, got none"),
        ([3], "a method to tune is an optimiser of heatbath.torch.*got 3"),
        (["LOL", ht.LOL], "several LOL"),
        (hb.LOL, "heatbath.LOL is no optimiser: choose heatbath.torch.LOL"),
        (hb.Adam, "heatbath.Adam is no optimiser: choose heatbath.torch.Adam"),
        ({"LOL": {"h": hb.between(0.1, 0.2)}}, "'h'; accepted arguments: model, lr, gamma"),
        ({"LOL": 3}, "LOL: a dict of keyword arguments is needed, got 3"),
        ({"LOL": {"lr": hb.between(-1, 0.2)}}, "lr must be >= 0 and finite, got -1"),
        ({"LOL": {"tau": "hot"}}, "tau must be a number"),
        ({"LOL": {"seed": 3}}, "seed cannot be given here"),
        ({"Adam": {"beta1": hb.between(0.5, 1.5)}}, "beta1 must be .* got 1.5"),
        ({(lambda model: 3): {}}, "must make a torch optimiser, and made 3"),
        ({"Langevin": {"tau": hb.schedules.SimulatedTempering((1e-4, 1e-3))}}, "simulated tempering"),
        ({"AdLaLa": {"friction": hb.between(0.1, 0.2)}}, r"friction must be one of .* \(searched: "),
        ({"LOL": {"word": hb.between(0.1, 0.2)}}, r"word is .*searched: .*word=between\(0.1, 0.2\)"),
    ],
)
def test_wrong_methods_and_arguments_are_named(methods, message):
    _, problems = families(methods, network(), 0)
    assert len(problems) == 1
    assert re.search(message, problems[0])


def test_a_model_without_parameters_is_named():
    assert "an empty parameter list" in families("Adam", nn.Flatten(0), 0)[1][0]


def test_problems_of_several_methods_are_collected_and_the_others_are_kept():
    searched, problems = families({"LOL": {}, "Lucky": {}, "Adam": {"beta1": 2.0}}, network(), 0)
    assert [family.name for family in searched] == ["LOL"]
    assert len(problems) == 2


@pytest.mark.parametrize("name", ["LOL", "lol", ht.LOL])
def test_a_number_is_kept_a_range_is_searched_and_the_usual_ranges_stay(name):
    lr = hb.between(0.1, 0.2)
    family = only_family({name: {"lr": lr, "tau": 1e-5}})
    assert family.ranges == {"lr": lr, "gamma": SEARCHED["LOL"]["gamma"]}
    optimizer = family.make({"lr": 0.15, "gamma": 1.0})(network())
    assert {group["tau"] for group in optimizer.param_groups} == {0.0, 1e-5}  # the output layer is at 0
    assert family.code({"lr": 0.15, "gamma": 1.0}) == "LOL(model, lr=0.15, gamma=1.0, tau=1e-05)"


def test_an_argument_replaces_the_range_of_the_one_it_stands_for():
    family = only_family({"AdLaLa": {"frequency": 0.5, "damping": 0.5}})
    assert set(family.ranges) == {"lr", "tau", "gamma"}


def test_all_candidates_have_the_seed_of_the_search():
    family = only_family("LaLa", seed=7)
    values = {name: searched.at(0.5) for name, searched in family.ranges.items()}
    assert {group["seed"] for group in family.make(values)(network()).param_groups} == {7}


def test_an_optimiser_of_torch_gets_parameters_and_has_no_usual_ranges():
    family = only_family({torch.optim.SGD: {"lr": hb.between(0.1, 0.2), "momentum": 0.5}})
    assert set(family.ranges) == {"lr"}
    optimizer = family.make({"lr": 0.15})(network())
    assert (optimizer.defaults["lr"], optimizer.defaults["momentum"]) == (0.15, 0.5)
    assert family.code({"lr": 0.15}) == "SGD(model.parameters(), lr=0.15, momentum=0.5)"


def test_with_a_posterior_the_temperature_is_not_searched():
    posterior = ht.LossPosterior("cross_entropy", n=96)
    for name, expected in (
        ("LaLa", {"lr", "gamma"}),
        ("LOL", {"lr", "gamma"}),
        ("AdLaLa", SEARCHED["AdLaLa"]),
    ):
        assert set(only_family({name: {"posterior": posterior}}).ranges) == set(expected)
    arguments = {"LaLa": {"posterior": posterior, "tau": hb.between(1e-5, 1e-3)}}
    assert "the posterior sets tau, so leave it out" in families(arguments, network(), 0)[1][0]
