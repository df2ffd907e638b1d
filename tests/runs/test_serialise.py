"""Plain values: what is written of problems and methods, and how it is checked when read."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

import heatbath as hb
from heatbath.runs.serialise import (
    ARRAYS,
    checksum,
    methods_from_plain,
    methods_to_plain,
    problem_from_plain,
    problem_to_plain,
)


@pytest.fixture(scope="module")
def spirals():
    return hb.datasets.spirals(n_train=20, n_test=10)


def through_json(plain):
    """Return plain values as a file gives them back."""
    return json.loads(json.dumps(plain, allow_nan=False))


@pytest.mark.parametrize(
    "methods",
    [
        hb.LaLa(h=hb.schedules.Linear(0.1, 0.2, 50), gamma=math.inf, tau=[1e-4, 1e-3]),
        hb.LaLa(h=0.1, gamma=1.0, posterior=hb.Posterior(prior=(0.5, 1.0), temperature=0.9)),
        hb.Partition({("hidden", "output"): hb.Adam()}, h=0.01),
        {"one": hb.LOL(), "two": hb.AdLaLa()},
    ],
    ids=["schedule, infinity and list", "posterior", "key of several layers", "comparison"],
)
def test_methods_come_back_from_json_as_they_were(methods):
    assert methods_from_plain(through_json(methods_to_plain(methods))) == methods


def test_infinity_is_written_as_a_text_since_json_has_none():
    plain = methods_to_plain(hb.Partition(hb.Langevin(gamma=math.inf, tau=1.0), h=0.1))
    assert plain["parts"][0]["gamma"] == "inf"


def test_a_built_in_problem_is_written_as_its_recipe_and_an_edited_one_is_not(spirals):
    edited = replace(spirals, X_train=2 * spirals.X_train)
    assert problem_to_plain(spirals)["recipe"] == spirals.recipe
    assert problem_to_plain(edited)["recipe"] is None
    arrays = {name: getattr(edited, name) for name in ARRAYS}
    remade = problem_from_plain(through_json(problem_to_plain(edited)), arrays)
    np.testing.assert_array_equal(remade.X_train, edited.X_train)


def test_data_with_another_checksum_are_refused(spirals):
    plain = through_json(problem_to_plain(spirals))
    other = hb.datasets.spirals(n_train=21, n_test=10)
    assert problem_from_plain(plain, {}, spirals) is spirals
    with pytest.raises(ValueError, match="it is a run on another problem"):
        problem_from_plain(plain, {}, other)
    with pytest.raises(ValueError, match="makes other data than the run had"):
        problem_from_plain(plain | {"recipe": other.recipe}, {})
    with pytest.raises(ValueError, match="there is no problem 'os'; accepted: spirals"):
        problem_from_plain(plain | {"recipe": {"name": "os"}}, {})


@pytest.mark.parametrize("name", [*ARRAYS, "name", "targets"])
def test_the_checksum_depends_on_every_array_and_text(spirals, name):
    value = getattr(spirals, name)
    changed = value + 1.0 if name in ARRAYS else type(value)("b" for _ in value)
    if name == "name":
        changed = "other"
    other = replace(spirals)
    object.__setattr__(other, name, changed)  # without the checks of a problem
    assert checksum(other) != checksum(spirals) == checksum(replace(spirals))


def test_the_checksum_of_a_problem_without_weights_is_what_it_was_in_earlier_versions():
    X = np.arange(12.0).reshape(4, 3)
    problem = hb.datasets.from_arrays(X, X[:, 0] ** 2, X, X[:, 1], task="regression")
    assert checksum(problem) == "820da1de1a23964ca09f1eb225c252468286002625a86c60be76db321c096833"
