"""Ranges of methods, and the candidates in them."""

import numpy as np
import pytest

import heatbath as hb
from heatbath.methods.presets import PRESETS, SEARCHED
from heatbath.tuning.search_space import design, families, points

SEARCH = hb.AdLaLa(h=hb.between(0.05, 0.4), tau=hb.between(1e-6, 1e-3))


def test_a_design_fills_the_cube_evenly():
    shares = design(3, 64, seed=5)
    assert shares.shape == (64, 3)
    for column in shares.T:
        assert np.histogram(column, bins=8, range=(0, 1))[0].tolist() == pytest.approx([8] * 8, abs=1)
    assert np.array_equal(design(3, 40, seed=5), shares[:40])
    assert not np.array_equal(design(3, 64, seed=6), shares)


def test_the_second_half_is_near_the_best_of_the_first():
    (family,) = families(SEARCH)
    first = points(family, 8, seed=0)
    near = points(family, 20, seed=1, first=8, near=first[:2], width=0.3)
    assert [one.name for one in near] == [f"partition {i}" for i in range(8, 28)]
    for i, one in enumerate(near):
        centre = np.array(family.shares(first[i % 2].values))
        assert np.abs(family.shares(one.values) - np.clip(centre, 0, 1)).max() < 0.16


def test_all_presets_and_methods_have_ranges_that_make_partitions():
    names = [*PRESETS, *(kind for kind in hb.methods.known_methods() if kind != "Frozen")]
    for name in names:
        (family,) = families(getattr(hb, name))
        assert family.ranges, name
        for one in points(family, 4, seed=0):
            assert one.made.parts({"a": (4, 2), "b": (2, 1)})
            code = eval(family.code(one.values), {n: getattr(hb, n) for n in (*names, "Partition")})
            assert code == one.made
    assert SEARCHED.keys() == PRESETS.keys()


def test_arguments_for_a_method_take_the_place_of_its_own_ranges():
    usual, wide = SEARCHED["AdLaLa"], hb.between(0.1, 1.0)
    given = {
        "AdLaLa": {"h": wide, "sigma": 0.02, "xi": hb.between(0.1, 0.2)},
        "adam": {"beta1": 0.8},
        "SGD": {},
    }
    adlala, adam, sgd = families(given)
    assert adlala.ranges == {
        **{name: range for name, range in usual.items() if name != "sigma"},
        "h": wide,
        "xi": hb.between(0.1, 0.2),
    }
    values = {name: range.at(0.5) for name, range in adlala.ranges.items()}
    assert adlala.make(values) == hb.AdLaLa(sigma=0.02, **values)
    names = {name: getattr(hb, name) for name in ("AdLaLa", "Partition", *hb.methods.known_methods())}
    assert eval(adlala.code(values), names) == adlala.make(values)
    assert list(adam.ranges) == ["h", "beta2"]
    assert adam.make({"h": 0.1, "beta2": 0.9}) == hb.Partition(hb.Adam(0.8, 0.9), 0.1)
    assert (sgd.ranges, [adlala.name, adam.name]) == (hb.SGD.searched, ["AdLaLa", "adam"])
    (only,) = families({"AdLaLa": {"h": wide}})
    assert only.code({name: range.at(0.5) for name, range in only.ranges.items()}).startswith(
        "AdLaLa(h=0.316"
    )


def test_names_are_found_in_any_case():
    assert [family.name for family in families(["adlala", "ADAM", "Adl"])] == ["AdLaLa", "Adam", "AdL"]
