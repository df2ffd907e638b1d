"""Ranges of coefficients that are to be found."""

import math

import numpy as np
import pytest

import heatbath as hb
from heatbath.methods.ranges import Between

RANGES = [
    hb.between(1e-6, 1e-2),
    hb.between(0.0, 2.0),
    hb.between(-1.0, 3.0),
    hb.between(0.9, 0.9999, "complement"),
    hb.between(0.1, 0.5, "linear"),
]


@pytest.mark.parametrize("range", RANGES, ids=repr)
def test_values_lie_within_and_are_where_they_say(range):
    shares = np.linspace(0, 1, 201)
    values = np.array([range.at(share) for share in shares])
    assert (values[0], values[-1]) == range.range()
    assert (np.diff(values) >= 0).all()
    assert np.abs([range.share(value) for value in values] - shares).max() < 6e-3  # three digits


def test_scales():
    assert hb.between(1e-4, 1.0).at(0.5) == 0.01
    assert hb.between(0.0, 1.0).at(0.25) == 0.25
    assert hb.between(0.9, 0.999, "complement").at(0.5) == 0.99
    assert hb.between(0.0, 1.0).scale == "linear"
    assert hb.between(1e-9, 1.0).scale == "log"


def test_what_is_tried_has_three_digits():
    assert all(float(f"{v:.3g}") == v for v in map(hb.between(1e-5, 1.0).at, np.linspace(0, 1, 77)))


@pytest.mark.parametrize(
    "range",
    [
        hb.between(0.1000, 0.1004),
        hb.between(0.1000, 0.1004, "linear"),
        hb.between(-3e-4, -2.99e-4),
        hb.between(0.9, 0.9001, "complement"),
        hb.between(0.999, 0.99901, "complement"),
        hb.between(1234.5, 1234.6),
        hb.between(0.1, 0.1000000001),
    ],
    ids=repr,
)
def test_narrow_ranges_have_different_values_within(range):
    values = [range.at(share) for share in np.linspace(0, 1, 500)]
    assert len(set(values)) == 500
    assert (values[0], values[-1]) == range.range()
    assert values == sorted(values)


def test_narrow_ranges_have_no_more_digits_than_they_need():
    assert hb.between(0.1, 0.1004, "linear").at(1 / 3) == 0.1001333
    assert hb.between(0.95, 0.999, "complement").at(0.3) == round(1 - 0.0155, 15)


@pytest.mark.parametrize("scale", ["log", "linear", "complement"])
def test_a_range_goes_on_beyond_its_ends(scale):
    range = hb.between(0.2, 0.6, scale)
    for end, further in ((0.6, range.beyond(0.6)), (0.2, range.beyond(0.2))):
        assert further.scale == scale
        assert end in range.range()
        assert further.share(0.2) < further.share(0.6)
        new = further.high if end == 0.6 else further.low
        assert range.share(new) == pytest.approx(1.5 if end == 0.6 else -0.5, abs=0.01) or new == 0
    assert hb.between(1e-8, 1e-4).beyond(1e-4) == hb.between(1e-8, 1e-2)
    assert hb.between(0.1, 0.9, "linear").beyond(0.1) == hb.between(0.0, 0.9, "linear")
    for extreme in (hb.between(1e-300, 1e300), hb.between(0.5, 1 - 1e-15, "complement")):
        assert extreme.beyond(extreme.high).low == extreme.low
        assert extreme.beyond(extreme.low).high == extreme.high


def test_repr_makes_it_again():
    for range in RANGES:
        assert eval(repr(range), {"between": hb.between}) == range


@pytest.mark.parametrize(
    ("low", "high", "scale", "message"),
    [
        (1.0, 1.0, None, "low must be below high"),
        (2.0, 1.0, None, "low must be below high"),
        (0.0, 1.0, "log", "must be > 0 on a logarithmic scale"),
        (0.5, 1.0, "complement", "must be < 1"),
        (0.1, math.inf, None, "high must be finite"),
        (math.nan, 1.0, None, "low must be finite"),
        (0.1, 1.0, "cubic", "scale must be one of"),
        (1000.0, math.nextafter(1000.0, 2000.0), None, "too close to each other"),
    ],
)
def test_bad_ranges_are_refused(low, high, scale, message):
    with pytest.raises(ValueError, match=message):
        hb.between(low, high, scale)


def test_what_is_no_number_is_refused():
    with pytest.raises(TypeError, match="low must be a number"):
        hb.between("a", 1.0)
    with pytest.raises(TypeError, match="high must be a number"):
        hb.between(0.1, None)


def test_the_ends_must_be_accepted_by_the_coefficient():
    with pytest.raises(ValueError, match="tau must be >= 0"):
        hb.LOL(tau=hb.between(-1.0, 1.0))
    with pytest.raises(ValueError, match="beta1 must be >= 0 and < 1"):
        hb.Adam(beta1=hb.between(0.5, 2.0))
    with pytest.raises(ValueError, match="h must be > 0"):
        hb.AdLaLa(h=hb.between(0.0, 1.0))


def test_parts_with_the_same_range_share_its_value():
    partition = hb.AdLaLa(h=hb.between(0.1, 0.3), tau=hb.between(1e-6, 1e-3))
    assert list(partition.ranges()) == ["h", "tau"]
    assert partition.at({"h": 0.2, "tau": 1e-5}) == hb.AdLaLa(h=0.2, tau=1e-5)
    apart = hb.LaLa(0.1, hb.between(0.1, 1.0), 1e-4, gamma_output=hb.between(0.1, 2.0))
    assert list(apart.ranges()) == ["hidden.gamma", "output.gamma"]
    found = apart.at({"hidden.gamma": 0.5, "output.gamma": 1.5})
    assert found == hb.LaLa(0.1, 0.5, 1e-4, gamma_output=1.5)
    assert found.ranges() == {}
    with pytest.raises(ValueError, match="a value is needed for each of the ranges h, tau, got h"):
        partition.at({"h": 0.2})


def test_ranges_are_for_tune_only():
    problem, partition = hb.datasets.spirals(n_train=20, n_test=2), hb.AdLaLa(h=Between(0.1, 0.3, "log"))
    for call in (hb.train, hb.sweep):
        with pytest.raises(ValueError, match="a range is for tune"):
            call(problem, hb.MLP((3,)), partition, steps=10)
    with pytest.raises(ValueError, match="a range is for tune"):
        hb.compare(problem, hb.MLP((3,)), {"a": partition}, steps=10)
    with pytest.raises((TypeError, ValueError), match="between"):
        hb.sample(
            lambda x: -(x**2).sum(axis=-1),
            gradient=lambda x: -2 * x,
            start=np.zeros(2),
            method=hb.Langevin(hb.between(0.1, 1.0), 1.0),
            h=0.1,
        )


@pytest.mark.parametrize(
    "partition",
    [
        hb.LOL(),
        hb.AdLaLa(xi=0.3, kinetic="mean"),
        hb.Partition(hb.Adam(beta1=0.8), 0.01),
        hb.LaLa(0.1, 1.0, posterior=hb.Posterior(prior=(1.0, 2.0))),
        hb.Partition({"hidden": hb.SGD(), ("output",): hb.Frozen()}, 0.3),
    ],
    ids=lambda partition: type(partition).__name__,
)
def test_the_code_of_a_partition_makes_it_again(partition):
    names = {name: getattr(hb, name) for name in ("Partition", "Posterior", *hb.methods.known_methods())}
    assert eval(partition.code, names) == partition


def test_cooling():
    cold = hb.AdLaLa(tau=3e-4, tau_output=1e-5).cooled(90, factor=10)
    for key, tau in (("hidden", 3e-4), ("output", 1e-5)):
        schedule = cold.methods[key].tau
        assert (schedule(89), schedule(90)) == (tau, pytest.approx(tau / 10))
    assert cold.h == hb.AdLaLa().h
    adam = hb.Partition(hb.Adam(), 0.01).cooled(5, factor=100)
    assert (adam.h(4), adam.h(5)) == (0.01, pytest.approx(0.001))
    sgld = hb.Partition(hb.SGLD(0.2), 0.1).cooled(5, factor=100)
    assert sgld.methods["all"].sigma(5) == pytest.approx(0.02)  # a temperature is its square
    assert sgld.h == 0.1
    assert hb.LaLa([0.1, 0.2], 1.0, [1e-4, 1e-3]).cooled(5).axes().keys() == {"h", "tau"}


def test_what_cannot_be_cooled_is_refused():
    with pytest.raises(ValueError, match="cannot be cooled"):
        hb.LaLa(0.1, 1.0, posterior=hb.Posterior()).cooled(10)
    with pytest.raises(ValueError, match="only a number, Constant, Linear, Exponential or Cyclical"):
        hb.LaLa(0.1, 1.0, hb.between(0.1, 1.0)).cooled(10)
    with pytest.raises(ValueError, match="factor must be >= 1"):
        hb.LOL().cooled(10, factor=0.5)
    with pytest.raises(ValueError, match="step must be a whole number >= 1"):
        hb.LOL().cooled(0)
