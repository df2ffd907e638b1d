"""The random numbers. Seeds are fixed, so a test passes or fails for good; error rates are of its bounds."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from heatbath.reference import random
from heatbath.reference.random import (
    BATCH,
    NOISE,
    START,
    TEMPERING,
    bits,
    box_muller,
    normals,
    pack,
    philox,
    uniforms,
)

PUBLISHED = """
7  00000000 00000000 00000000 00000000 00000000 00000000  5f6fb709 0d893f64 4f121f81 4f730a48
7  ffffffff ffffffff ffffffff ffffffff ffffffff ffffffff  5207ddc2 45165e59 4d8ee751 8c52f662
7  243f6a88 85a308d3 13198a2e 03707344 a4093822 299f31d0  4dfccaba 190a87f0 c47362ba b6b5242a
10 00000000 00000000 00000000 00000000 00000000 00000000  6627e8d5 e169c58d bc57ac4c 9b00dbd8
10 ffffffff ffffffff ffffffff ffffffff ffffffff ffffffff  408f276d 41c83b0e a20bc7c6 6d5451fd
10 243f6a88 85a308d3 13198a2e 03707344 a4093822 299f31d0  d16cfe09 94fdcceb 5001e420 24126ea1
"""


@pytest.mark.parametrize("line", PUBLISHED.strip().splitlines())
def test_philox_gives_the_published_known_answers(line):
    rounds, *words = line.split()
    values = [int(word, 16) for word in words]
    counter, (k0, k1), expected = np.array(values[:4], dtype=np.uint64), values[4:6], values[6:]
    assert philox(counter, k0 | k1 << 32, int(rounds)).tolist() == expected


def test_seven_rounds_are_used():
    counter = pack(NOISE, 3, chain=5, step=9, block=2)
    np.testing.assert_array_equal(philox(counter, 11), philox(counter, 11, rounds=7))


# The address

ADDRESS = st.tuples(
    st.integers(0, 2**4 - 1),
    st.integers(0, 2**14 - 1),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**40 - 1),
    st.integers(0, 2**38 - 1),
)


@given(ADDRESS)
def test_the_counter_holds_the_fields_side_by_side(address):
    stream, slot, chain, step, block = address
    words = pack(stream, slot, chain, step, block).tolist()
    assert all(0 <= word < 2**32 for word in words)
    value = sum(word << 32 * i for i, word in enumerate(words))
    assert value == block | chain << 38 | step << 70 | slot << 110 | stream << 124


@given(ADDRESS, ADDRESS)
def test_two_addresses_never_share_a_counter(one, other):
    assert (pack(*one).tolist() == pack(*other).tolist()) == (one == other)


def test_every_element_has_a_lane_and_a_block_of_its_own():
    """Element e is lane (e % 256) // 64 of block 64 (e // 256) + e % 64."""
    elements = np.arange(1000)
    lanes = philox(pack(NOISE, 1, 2, 3, np.arange(256)), 4)
    expected = lanes[(elements % 256) // 64, 64 * (elements // 256) + elements % 64]
    np.testing.assert_array_equal(bits(4, NOISE, 1, 2, 3, 0, 1000), expected)
    places = {(e % 256 // 64, 64 * (e // 256) + e % 64) for e in range(4096)}
    assert len(places) == 4096


def test_small_numpy_integers_address_the_same_numbers_as_python_ones():
    """A uint8 shifted left would lose the stream."""
    expected = normals(1, 3, 200, 4, 5, 0, 8)
    small = normals(
        np.uint8(1), np.uint8(3), np.uint8(200), np.uint8(4), np.int8(5), np.int16(0), np.uint8(8)
    )
    np.testing.assert_array_equal(small, expected)


def test_streams_and_slots_are_different_numbers():
    drawn = [
        normals(1, stream, slot, 0, 0, 0, 64)
        for stream in (NOISE, BATCH, START, TEMPERING, random.VARIANCE, random.METROPOLIS)
        for slot in (0, 1)
    ]
    assert len({z.tobytes() for z in drawn}) == 12


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((2**64, 0, 0, 0, 0, 0, 1), "seed must be a whole number >= 0"),
        ((-1, 0, 0, 0, 0, 0, 1), "seed"),
        ((0, 16, 0, 0, 0, 0, 1), "stream"),
        ((0, 0, 2**14, 0, 0, 0, 1), "slot"),
        ((0, 0, 0, 2**32, 0, 0, 1), r"chain must be from 0 to 2\^32 - 1"),
        ((0, 0, 0, -1, 0, 0, 1), "chain"),
        ((0, 0, 0, 0, 2**40, 0, 1), "step"),
        ((0, 0, 0, 0, 0, 0, 2**40 + 1), "stop"),
        ((0, 0, 0, 0, 0, 5, 4), "stop must be a whole number >= 5"),
        ((0, 0, 0, 0.5, 0, 0, 1), "chain must be a whole number"),
        ((1.5, 0, 0, 0, 0, 0, 1), "seed must be a whole number"),
    ],
)
def test_an_address_out_of_range_is_refused(arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        normals(*arguments)


def test_the_last_addresses_can_be_used():
    last = 2**40
    assert np.isfinite(normals(2**64 - 1, 15, 2**14 - 1, 2**32 - 1, 2**40 - 1, last - 3, last)).all()
    assert normals(0, 0, 0, 0, 0, 7, 7).shape == (0,)


# Slicing

WHOLE = normals(9, NOISE, 1, np.arange(6)[:, None], np.arange(4), 0, 1500)


@given(st.data())
def test_the_same_numbers_for_any_way_of_slicing_the_request(data):
    start = data.draw(st.integers(0, 1500))
    stop = data.draw(st.integers(start, 1500))
    chains = data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=6))
    step = data.draw(st.integers(0, 3))
    part = normals(9, NOISE, 1, np.array(chains), step, start, stop)
    np.testing.assert_array_equal(part, WHOLE[chains, step, start:stop])


@pytest.mark.parametrize("stop", [1, 2, 63, 64, 65, 255, 256, 257])
def test_the_first_elements_are_the_same_however_few_are_drawn(stop):
    np.testing.assert_array_equal(normals(9, NOISE, 1, np.arange(6), 2, 0, stop), WHOLE[:, 2, :stop])


def test_uniforms_and_normals_come_from_the_same_bits():
    where = (9, NOISE, 1, 2, 3, 10, 700)
    np.testing.assert_array_equal(uniforms(*where), (bits(*where) + 0.5) * 2.0**-32)


# The map to normal numbers


@pytest.mark.parametrize("radius", [0, 1, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1])
@pytest.mark.parametrize("angle", [0, 1, 2**30 - 1, 2**30, 2**31 - 1, 2**31, 3 * 2**30, 2**32 - 1])
def test_extreme_words_give_the_exact_numbers(radius, angle):
    z = box_muller(np.array([radius, angle, radius, angle], dtype=np.uint64))
    with mpmath.workdps(40):
        half = mpmath.mpf(1) / 2
        r = mpmath.sqrt(-2 * mpmath.log((radius + half) / 2**32))
        phi = 2 * mpmath.pi * (angle + half) / 2**32
        expected = [float(r * mpmath.cos(phi)), float(r * mpmath.sin(phi))] * 2
    np.testing.assert_allclose(z, expected, rtol=1e-11, atol=1e-15 * float(r))
    assert np.abs(z).max() < 6.77


# Statistics of ten million numbers

COUNT = 10_000_000


@pytest.fixture(scope="module")
def sample():
    """Return numbers of four slots, five chains and two steps, 250,000 elements each, as addressed."""
    return np.concatenate(
        [
            normals(2024, NOISE, slot, np.arange(5)[:, None], np.arange(2), 0, 250_000).ravel()
            for slot in range(4)
        ]
    )


def double_factorial(n):
    return math.prod(range(n, 0, -2))


def test_moments_to_the_eighth(sample):
    """4.5 standard errors each, eight moments: error rate 5e-5."""
    assert sample.size == COUNT
    power = np.ones_like(sample)
    for order in range(1, 9):
        power *= sample
        expected = 0 if order % 2 else double_factorial(order - 1)
        variance = double_factorial(2 * order - 1) - expected**2
        assert abs(np.mean(power) - expected) < 4.5 * math.sqrt(variance / COUNT), order


def test_tails_beyond_four_and_five(sample):
    for bound in (4.0, 5.0):
        expected = COUNT * stats.norm.sf(bound)
        for tail in (np.count_nonzero(sample > bound), np.count_nonzero(sample < -bound)):
            assert 1e-5 < stats.poisson.cdf(tail, expected) < 1 - 1e-5
    assert np.abs(sample).max() < 6.77


def test_kolmogorov_smirnov(sample):
    ordered = np.sort(sample)
    law = stats.norm.cdf(ordered)
    grid = np.arange(COUNT + 1) / COUNT
    distance = max(np.max(grid[1:] - law), np.max(law - grid[:-1]))
    assert 1e-4 < stats.kstwobign.sf(distance * math.sqrt(COUNT)) < 1 - 1e-4


def test_uniforms_are_uniform():
    u = uniforms(3, BATCH, 0, np.arange(10), 0, 0, 100_000).ravel()
    counts = np.bincount((u * 1000).astype(int), minlength=1000)
    assert 1e-4 < stats.chisquare(counts).pvalue < 1 - 1e-4
    assert 0 < u.min() < u.max() < 1


def correlation(x, y):
    """Return the correlation in units of its standard error."""
    return np.mean(x * y) * math.sqrt(x.size)


@pytest.mark.parametrize("power", [1, 2])
def test_no_serial_correlation_within_a_draw(sample, power):
    """Lags within a pair of Box-Muller, a row, a tile and beyond, of z and of z²; error rate 1e-4."""
    z = sample if power == 1 else (sample**2 - 1) / math.sqrt(2)
    for lag in (1, 2, 3, 63, 64, 65, 127, 128, 192, 255, 256, 257, 512, 1000):
        assert abs(correlation(z[:-lag], z[lag:])) < 4.5, lag


@pytest.mark.parametrize("power", [1, 2])
def test_no_correlation_between_neighbouring_addresses(power):
    """Chains, steps, slots, streams and seeds that differ in one bit or by one; error rate 3e-4."""

    def draw(seed=8, stream=NOISE, slot=0, chain=0, step=0):
        z = normals(seed, stream, slot, chain, step, 0, 100_000)
        return z if power == 1 else (z**2 - 1) / math.sqrt(2)

    families = [
        [draw(chain=c) for c in (0, 1, 2, 3, 2**16, 2**26, 2**31)],
        [draw(step=n) for n in (0, 1, 2, 3, 2**25, 2**26, 2**39)],
        [draw(slot=s) for s in (0, 1, 2, 2**13)],
        [draw(stream=s) for s in range(4)],
        [draw(seed=s) for s in (8, 9, 8 + 2**32, 2**63)],
    ]
    for family in families:
        for i, x in enumerate(family):
            for y in family[:i]:
                assert abs(correlation(x, y)) < 4.5


def test_the_correlation_tests_can_see_a_shared_number():
    """The control: one number in five hundred shared between two chains."""
    x = normals(8, NOISE, 0, 0, 0, 0, 100_000)
    y = normals(8, NOISE, 0, 1, 0, 0, 100_000)
    y[::50] = x[::50]
    assert abs(correlation(x, y)) > 4.5


# Why seven rounds


def worst_avalanche(rounds, blocks=8192):
    """Flip each bit of counter and seed, and return how far an output bit is from a fair coin at most.

    The distance is in standard errors.
    """
    counter = np.random.default_rng(1).integers(0, 2**32, size=(4, blocks), dtype=np.uint64)
    seed = 12345
    before = philox(counter, seed, rounds)
    worst = 0.0
    for bit in range(128 + 64):
        changed, key = counter.copy(), seed
        if bit < 128:
            changed[bit // 32] ^= np.uint64(1 << bit % 32)
        else:
            key ^= 1 << (bit - 128)
        flips = before ^ philox(changed, key, rounds)
        ones = [np.count_nonzero(flips & np.uint64(1 << i), axis=1) for i in range(32)]
        worst = max(worst, np.abs(np.array(ones) - blocks / 2).max() / math.sqrt(blocks / 4))
    return worst


def test_every_bit_of_the_address_reaches_every_bit_of_the_number():
    """The largest of 24,576 fair coins is below 5.5 standard errors but for 1 time in 1000."""
    assert worst_avalanche(random.ROUNDS) < 5.5


def test_six_rounds_would_be_caught():
    assert worst_avalanche(6) > 20
