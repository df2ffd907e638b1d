"""Methods as the command line and settings files write them."""

import tomllib

import pytest

import heatbath as hb
from heatbath.cli import methods
from heatbath.cli.settings import merge_settings, write_settings


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"name": "adlala"}, hb.AdLaLa()),
        ({"name": "lol"}, hb.LOL()),
        ({"name": "lala", "h": "0.1", "gamma": "1", "tau": "1e-4", "tau_output": "0"},
         hb.LaLa(0.1, 1.0, 1e-4, None, 0.0)),
        ({"name": "langevin", "h": "0.1", "gamma": "inf", "tau": "1e-4", "word": "OBABO"},
         hb.Partition(hb.Langevin(float("inf"), 1e-4, "OBABO"), 0.1)),
        ({"name": "adl", "h": "0.15", "word": "BAFEFAB", "xi": "0.3", "kinetic": "mean"},
         hb.Partition(hb.AdaptiveLangevin(1e-4, 0.01, 0.03, "BAFEFAB", 0.3, kinetic="mean"), 0.15)),
        ({"name": "sgld", "h": 0.1, "sigma": 0.02}, hb.Partition(hb.SGLD(0.02), 0.1)),
        ({"name": "sgd", "h": 0.1, "weight_decay": "1e-3"}, hb.Partition(hb.SGD(1e-3), 0.1)),
        ({"name": "momentum", "h": 0.1, "mu": "0.8", "kind": "2"}, hb.Partition(hb.Momentum(0.8, 2), 0.1)),
        ({"name": "adam", "h": 0.01, "beta1": "0.8"}, hb.Partition(hb.Adam(0.8), 0.01)),
        ({"name": "adlala", "word": "BAFEFAB"},
         hb.Partition({"hidden": hb.AdaptiveLangevin(1e-4, 0.01, 0.03, "BAFEFAB"),
                       "output": hb.Langevin(0.1, 1e-4)}, 0.15)),
        ({"name": "adlala", "word_output": "OBABO", "word": "BAFEFAB"},
         hb.Partition({"hidden": hb.AdaptiveLangevin(1e-4, 0.01, 0.03, "BAFEFAB"),
                       "output": hb.Langevin(0.1, 1e-4, "OBABO")}, 0.15)),
        ({"name": "sgd", "h": {"schedule": "Linear", "start": 0.1, "stop": 0.01, "steps": 50}},
         hb.Partition(hb.SGD(), hb.schedules.Linear(0.1, 0.01, 50))),
    ],
)  # fmt: skip
def test_every_method_is_the_library_s_and_its_table_makes_it_again(given, expected):
    partition, table = methods.partition_of(given)
    assert partition == expected
    assert (
        methods.partition_of(tomllib.loads(write_settings("train", {"method": table}))["method"])[0]
        == expected
    )


def test_methods_that_come_twice_bear_their_coefficients():
    found = methods.labelled([methods.method_of(text) for text in ("sgd:h=0.1", "sgd:h=0.2", "lol")])
    assert list(found) == ["SGD h=0.1", "SGD h=0.2", "LOL"]
    with pytest.raises(ValueError, match=r"SGD h=0\.1 occurs twice"):
        methods.labelled([methods.method_of("sgd:h=0.1")] * 2)


def test_parts_have_methods_of_their_own():
    langevin = {"name": "langevin", "gamma": 2.0, "tau": 1e-3}
    table = {"h": 0.1, "parts": {"hidden": langevin, "output": {"name": "sgd", "weight_decay": 0.1}}}
    partition, complete = methods.partition_of(table)
    hidden = hb.Langevin(gamma=2.0, tau=1e-3)
    assert partition == hb.Partition({"hidden": hidden, "output": hb.SGD(weight_decay=0.1)}, 0.1)
    assert methods.partition_of(complete) == (partition, complete)
    assert merge_settings({"method": table}, {"method": {"name": "lol"}}, [])["method"] == {"name": "lol"}
    for wrong, told in (
        ({**table, "tau": 1.0}, "and nothing else; got h, parts, tau"),
        ({"h": 0.1, "parts": {}}, "a section for each of them"),
        ({"h": 0.1, "parts": {"hidden": {**langevin, "h": 0.2}}}, "part hidden must be a section without h"),
        ({"h": 0.1, "parts": {"hidden": {"name": "adlala"}}}, "'adlala' is a preset for all parts"),
        ({"h": 0.1, "parts": {"hidden": {"name": "langevin"}}}, "needs"),
    ):
        with pytest.raises(ValueError, match=told):
            methods.partition_of(wrong)
