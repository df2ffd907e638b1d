from fractions import Fraction
from itertools import product

import pytest

from heatbath.methods import splitting
from heatbath.methods.letters import DRIFT, Letter
from heatbath.methods.splitting import NAMED, WordError, erases_force, gradients, rotate
from tests.words import parse


def letters(substeps):
    return "".join(s.letter for s in substeps)


def method_of(word):
    return "Langevin" if "O" in word else "AdaptiveLangevin"


@pytest.mark.parametrize("word", NAMED)
def test_a_letter_that_occurs_k_times_acts_for_h_over_k(word):
    substeps = parse(word, method_of(word))
    assert letters(substeps) == word
    for letter in set(word):
        fractions = [s.fraction for s in substeps if s.letter == letter]
        assert fractions == [Fraction(1, word.count(letter))] * word.count(letter)


def test_slots_number_the_noise_letters_of_the_word_as_written():
    assert [s.slot for s in parse("OBABO")] == [0, None, None, None, 1]
    assert [s.slot for s in parse("BACDEDCAB", "AdaptiveLangevin")] == [None, None, None, 0, None, 1] + [
        None
    ] * 3
    assert [s.slot for s in parse("BAFEFAB", "AdaptiveLangevin")] == [None, None, 0, None, 1, None, None]
    rotated = rotate(parse("OBABO"))
    assert [s.slot for s in (*rotated.closing, *rotated.opening)] == [None, 1, 0, None, None]


def test_two_o_in_a_row_are_two_draws():
    assert [s.slot for s in parse("BAOOA")] == [None, None, 0, 1, None]


@pytest.mark.parametrize(
    ("word", "needed"),
    [
        *((word, 1) for word in ("BAOAB", "OBABO", "ABOBA", "OABAO", "OBA", "BAOA", "AOAB")),
        *((word, 1) for word in ("BACDEDCAB", "BAFEFAB")),
        *((word, 2) for word in ("BAOBA", "ABAOABA", "ABAOB")),
        ("BABABAO", 3),
    ],
)
def test_gradients_per_step(word, needed):
    assert gradients(parse(word, method_of(word))) == needed


@pytest.mark.parametrize(
    ("word", "closing", "opening", "seen"),
    [
        ("BAOAB", "B", "BAOA", "end"),
        ("OBABO", "BO", "OBA", "end"),
        ("BACDEDCAB", "B", "BACDEDCA", "end"),
        ("BAOA", "", "BAOA", "end"),
        ("OBA", "", "OBA", "end"),
        ("AOAB", "B", "AOA", "end"),
        ("ABOBA", "BOBA", "A", "kick"),
        ("OABAO", "BAO", "OA", "kick"),
        ("AOBA", "OBA", "A", "kick"),
    ],
)
def test_rotation(word, closing, opening, seen):
    rotation = rotate(parse(word, method_of(word)))
    assert (letters(rotation.closing), letters(rotation.opening), rotation.seen) == (closing, opening, seen)


def test_every_rotated_step_has_its_kicks_before_any_drift_and_is_the_word_cut_once():
    seen = set()
    for length in range(3, 8):
        for word in map("".join, product("ABO", repeat=length)):
            if set(word) != set("ABO") or gradients(parse(word)) != 1:
                continue
            rotation = rotate(parse(word))
            assert letters(rotation.opening) + letters(rotation.closing) == word
            step = letters(rotation.closing) + letters(rotation.opening)
            assert "B" not in step[step.index("A") :]
            if rotation.seen == "kick":
                assert "B" not in letters(rotation.opening)
            else:
                assert "A" not in letters(rotation.closing)
            seen.add(rotation.seen)
    assert seen == {"end", "kick"}


def test_a_word_with_two_gradients_is_not_rotated_and_the_error_says_what_to_do():
    with pytest.raises(WordError, match=r"'BAOBA' needs 2 gradients per step.*run the word as written"):
        rotate(parse("BAOBA"))


def test_a_letter_that_kicks_and_moves_kicks_first():
    """AM is seen at the kick of M, after A, and MA at the word's end."""
    both = Letter(lambda now: None, (), moves=True, kicks=True)
    known = {"A": DRIFT, "M": both}
    for word, closing, opening, seen in (("AM", "M", "A", "kick"), ("MA", "", "MA", "end")):
        rotation = rotate(splitting.parse(word, known))
        assert (letters(rotation.closing), letters(rotation.opening)) == (closing, opening)
        assert rotation.seen == seen


@pytest.mark.parametrize(
    ("word", "method", "message"),
    [
        ("BAXAB", "Langevin", r"'BAXAB': 'X' is not a letter of Langevin, which accepts A, B, O"),
        ("baoab", "Langevin", r"'baoab': 'b' is not a letter"),
        ("BA AB", "Langevin", r"' ' is not a letter"),
        ("", "Langevin", r"'': Langevin needs A, B, O; missing: A, B, O"),
        ("BAAB", "Langevin", r"missing: O"),
        ("BACDEDCAB", "Langevin", r"'C' is not a letter of Langevin"),
        (
            "BAOAB",
            "AdaptiveLangevin",
            r"'O' is not a letter of AdaptiveLangevin, which accepts A, B, C, D, E, F",
        ),
        ("BACDDCAB", "AdaptiveLangevin", r"needs A, B, E; missing: E"),
        ("BACECAB", "AdaptiveLangevin", r"both C and D, or F instead; missing: D"),
        ("BAEAB", "AdaptiveLangevin", r"missing: C, D"),
        ("BAFCEFAB", "AdaptiveLangevin", r"F replaces C and D, so remove F or C"),
        (7, "Langevin", r"a word is a string of letters such as 'BAOAB', got 7"),
    ],
)
def test_an_error_names_the_word_the_letter_and_what_is_accepted(word, method, message):
    with pytest.raises(WordError, match=message):
        parse(word, method)


def test_where_infinite_friction_would_erase_the_force():
    words = [word for word in map("".join, product("ABO", repeat=3)) if set(word) == set("ABO")]
    assert [word for word in words if erases_force(word)] == ["ABO", "BOA", "OAB"]
    assert not any(erases_force(word) for word in NAMED if "O" in word)
