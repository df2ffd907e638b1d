"""Checks of arguments: what they accept, and what their errors say."""

import math
from fractions import Fraction

import numpy as np
import pytest

from heatbath._internal.checks import (
    FINITE,
    FRICTION,
    NON_NEGATIVE,
    POSITIVE,
    SHARE,
    Interval,
    choice,
    real,
    reals,
    shown,
    whole,
)


@pytest.mark.parametrize(
    ("interval", "inside", "outside", "words"),
    [
        (FINITE, [-1e300, 0.0], [math.inf, -math.inf, math.nan], "finite"),
        (NON_NEGATIVE, [0.0, 1.0], [-1e-300, math.inf, math.nan], ">= 0 and finite"),
        (POSITIVE, [1e-300], [0.0, math.inf], "> 0 and finite"),
        (FRICTION, [0.0, math.inf], [-1.0, -math.inf, math.nan], ">= 0"),
        (SHARE, [0.0, 0.999], [1.0, -0.1], ">= 0 and < 1"),
        (Interval(infinite=True), [math.inf], [-math.inf, math.nan], "a number"),
    ],
)
def test_an_interval_accepts_what_its_words_say(interval, inside, outside, words):
    assert all(value in interval for value in inside)
    assert not any(value in interval for value in outside)
    assert str(interval) == words


@pytest.mark.parametrize("value", [2, np.float32(2), np.int64(2), Fraction(2)])
def test_a_real_number_of_any_kind_becomes_a_float(value):
    assert (real("x", value), type(real("x", value))) == (2.0, float)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: real("h", True), TypeError, r"h must be a number \(finite\), got True of type bool"),
        (lambda: real("h", "1"), TypeError, "h must be a number"),
        (lambda: real("h", 10**400), ValueError, "h must be finite, got 10"),
        (lambda: real("h", 0, POSITIVE), ValueError, "h must be > 0 and finite, got 0"),
        (lambda: reals("h", 3.0), TypeError, "h must be a list of numbers, got 3.0"),
        (lambda: reals("h", [1.0, "a"]), TypeError, "h must be a number"),
        (lambda: whole("n", 2.0, 1), TypeError, "n must be a whole number >= 1, got 2.0 of type float"),
        (lambda: whole("n", True, 0), TypeError, "n must be a whole number >= 0, got True of type bool"),
        (lambda: whole("n", 0, 1, 9), ValueError, "n must be a whole number >= 1 and < 9, got 0"),
        (lambda: whole("n", 9, 1, 9), ValueError, "n must be a whole number >= 1 and < 9, got 9"),
        (lambda: choice("c", "x", ("a", 1)), ValueError, "c must be one of 'a', 1, got 'x'"),
        (lambda: choice("c", True, ("a", 1)), ValueError, "c must be one of 'a', 1, got True"),
    ],
)
def test_the_error_says_what_is_accepted_and_what_it_got(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_the_ends_of_a_range_of_whole_numbers_are_low_and_one_below_high():
    assert [whole("n", value, 1, 9) for value in (1, np.int8(8))] == [1, 8]


def test_arrays_are_shown_by_their_shape_and_long_texts_are_cut():
    assert shown(np.zeros((2, 3))) == "a ndarray of shape (2, 3)"
    assert shown([np.zeros(2), 1]) == "a list of 2 (int, ndarray)"
    assert shown([1, 2]) == "[1, 2]"
    assert shown("x" * 300) == "'" + "x" * 199 + "..."
