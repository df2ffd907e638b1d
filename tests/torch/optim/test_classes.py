"""Classes of optimisers made from the methods and presets of the library."""

import pytest

import heatbath as hb
import heatbath.torch as ht
from heatbath.methods.schedules import Linear
from heatbath.torch.optim import classes
from tests.torch.optim.models import constant_parameter, small_network


def test_a_group_may_be_added_without_a_method():
    """It gets the method that the others have at that time."""
    optimizer = ht.Langevin([constant_parameter()], 0.1, gamma=1.0, tau=Linear(1.0, 0.5, 10))
    optimizer.param_groups[0]["gamma"] = 3.0
    optimizer.add_param_group({"params": [constant_parameter()], "lr": 0.01})
    first, added = optimizer.param_groups
    assert (added["gamma"], added["lr"], added["schedules"]["tau"]) == (3.0, 0.01, first["schedules"]["tau"])
    optimizer.add_param_group({"params": [constant_parameter()], "tau": 0.25})
    added = optimizer.param_groups[-1]
    assert (added["gamma"], added["tau"], added["schedules"]) == (3.0, 0.25, {})
    layered = ht.AdLaLa(small_network(), epsilon=0.2)
    layered.add_param_group({"params": [constant_parameter()], "part": "hidden", "tau": 0.5})
    added = layered.param_groups[-1]
    assert (added["method"], added["epsilon"], added["tau"]) == ("AdaptiveLangevin", 0.2, 0.5)
    with pytest.raises(ValueError, match='a group needs a "part"'):
        layered.add_param_group({"params": [constant_parameter()]})
    with pytest.raises(ValueError, match='every group needs "params" and a "method"'):
        ht.Partitioned([{"params": [constant_parameter()], "method": hb.SGD()}], 0.1).add_param_group(
            {"params": [constant_parameter()]}
        )


def test_an_unknown_optimiser_is_an_error_that_lists_the_known_ones():
    with pytest.raises(AttributeError, match=r"no optimiser 'Newton'; available are Partitioned, .*AdLaLa"):
        ht.Newton  # noqa: B018


def test_the_class_of_a_method_is_made_once():
    assert classes.Langevin is classes.Langevin is ht.Langevin
    assert classes.Langevin is not classes.method_class(hb.Langevin)


def test_arguments_that_a_class_does_not_have_are_refused_with_those_it_has():
    with pytest.raises(
        TypeError, match=r"Langevin: .*'momentum'; accepted arguments: params, lr, gamma, tau"
    ):
        ht.Langevin([constant_parameter()], 0.1, 1.0, 1.0, momentum=0.9)


def test_a_frequency_and_the_epsilon_that_it_replaces_are_refused_together():
    with pytest.raises(ValueError, match="AdLaLa: frequency sets epsilon, so give only one of the two"):
        ht.AdLaLa(small_network(), frequency=0.3, epsilon=0.1)


def test_defaults_are_those_of_the_library_but_for_lol():
    assert classes.DEFAULTS.keys() == {"LOL"}
    assert ht.LOL(small_network()).param_groups[0]["tau"] == 1e-5
    assert ht.AdLaLa(small_network()).param_groups[0]["tau"] == hb.AdLaLa().methods["hidden"].tau


def test_a_posterior_replaces_the_default_temperature_and_refuses_another():
    posterior = ht.LossPosterior("cross_entropy", 50, prior=2.0)
    assert ht.LOL(small_network(), posterior=posterior).param_groups[0]["tau"] == 1 / 50
    with pytest.raises(ValueError, match="tau"):
        ht.LOL(small_network(), tau=1e-2, posterior=posterior)
