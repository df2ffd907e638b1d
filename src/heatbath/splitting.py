"""Words: splitting schemes written as strings of letters.

A *letter* is one exactly solvable piece of the dynamics; a *word*, read from left to right, is the order in
which the pieces act during one step. A letter that occurs k times acts for h/k each time, so `BAOAB` is half
a kick, half a drift, the whole Ornstein-Uhlenbeck piece, half a drift, half a kick.

A training loop offers one gradient per step, at the θ it sees. `rotate` says how a word is cut so that it
needs no more than that. Nothing here touches an array.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

LETTERS = {"Langevin": "ABO", "AdaptiveLangevin": "ABCDEF"}
NOISE_LETTERS = "ODF"


class WordError(ValueError):
    """A word that cannot be used as asked; the message says which letter and what is accepted."""


@dataclass(frozen=True)
class Substep:
    """One letter of a word: it acts for `fraction` of the stepsize.

    `place` is its position in the word as written. `slot` numbers the letters that draw noise, again in the
    word as written, and is None for the others: it is part of the address of the noise (see `noise`).
    """

    letter: str
    fraction: Fraction
    place: int
    slot: int | None = None


@dataclass(frozen=True)
class Rotation:
    """A word cut for a loop that offers one gradient per step: a rotated step is `closing`, then `opening`.

    `opening` begins a step of the word, `closing` ends the one that the rotated step before it began. What
    a loop sees between rotated steps is θ at the word's `end` or, where the kick lies in the middle of the
    word, θ at the `kick`.

    - seen at the end (BAOAB = B + BAOA): the first rotated step has nothing to close.
    - seen at the kick (ABOBA = BOBA + A): an opening, which holds no kick, precedes the first rotated step.
    """

    closing: tuple[Substep, ...]
    opening: tuple[Substep, ...]
    seen: Literal["end", "kick"]


@dataclass(frozen=True)
class Order:
    """The power of h in the bias of the stationary law at fixed finite friction, as declared.

    `position` is that of averages over θ, rotated or not, and `joint` that of averages over (θ, p) at the end
    of the word as written (between rotated steps p lacks its closing letters).
    """

    position: int
    joint: int


NAMED: dict[str, Order] = {
    "BAOAB": Order(position=2, joint=2),
    "BAOA": Order(position=2, joint=1),
    "ABOBA": Order(position=2, joint=2),
    "OBABO": Order(position=2, joint=2),
    "OABAO": Order(position=2, joint=2),
    "OBA": Order(position=1, joint=1),
    "BAOBA": Order(position=1, joint=1),
    "ABAOABA": Order(position=2, joint=2),
    "BACDEDCAB": Order(position=2, joint=2),
    "BAFEFAB": Order(position=2, joint=2),
}
"""The words that the literature or the paper uses, with their order (Adaptive Langevin: at fixed ξ)."""


def parse(word: str, method: str = "Langevin") -> tuple[Substep, ...]:
    """The letters of `word` with their fractions of the stepsize, checked for `method`.

    >>> [(s.letter, str(s.fraction)) for s in parse("BAOAB")]
    [('B', '1/2'), ('A', '1/2'), ('O', '1'), ('A', '1/2'), ('B', '1/2')]
    """
    if not isinstance(word, str):
        raise WordError(f"a word is a string of letters such as 'BAOAB', got {word!r}")
    accepted = LETTERS[method]
    for letter in word:
        if letter not in accepted:
            raise WordError(
                f"word {word!r}: {letter!r} is not a letter of {method}, which accepts {', '.join(accepted)}"
            )
    _require(word, method)
    substeps = []
    slot = 0
    for place, letter in enumerate(word):
        noisy = letter in NOISE_LETTERS
        substeps.append(
            Substep(letter, Fraction(1, word.count(letter)), place=place, slot=slot if noisy else None)
        )
        slot += noisy
    return tuple(substeps)


def gradients(substeps: Sequence[Substep]) -> int:
    """How many gradients one step needs: the pieces that hold a B when the cyclic word is cut at its A's."""
    letters = "".join(s.letter for s in substeps)
    first, *middle, last = letters.split("A")
    return sum("B" in piece for piece in (last + first, *middle))


def rotate(substeps: Sequence[Substep]) -> Rotation:
    """Cut a word that needs one gradient per step so that every rotated step begins with that gradient."""
    letters = "".join(s.letter for s in substeps)
    needed = gradients(substeps)
    if needed != 1:
        raise WordError(
            f"word {letters!r} needs {needed} gradients per step, and a rotated step offers one: "
            "run the word as written, or choose a word that needs one, such as 'BAOAB' or 'BACDEDCAB'"
        )
    after_last_drift = letters.rindex("A") + 1
    if "B" in letters[after_last_drift:] + letters[: letters.index("A")]:
        return Rotation(tuple(substeps[after_last_drift:]), tuple(substeps[:after_last_drift]), seen="end")
    kicking = letters.rindex("A", 0, letters.index("B")) + 1
    return Rotation(tuple(substeps[kicking:]), tuple(substeps[:kicking]), seen="kick")


def erases_force(substeps: Sequence[Substep]) -> bool:
    """Whether an O follows every B before any A: with infinite friction the force would then have no effect.

    >>> [erases_force(parse(word)) for word in ("BOA", "OAB", "BAOAB")]
    [True, True, False]
    """
    word = "".join(s.letter for s in substeps)
    kicks = [place for place, letter in enumerate(word) if letter == "B"]
    after = ((word[place + 1 :] + word[:place]).partition("A")[0] for place in kicks)
    return all("O" in letters for letters in after)


def _require(word: str, method: str) -> None:
    """Refuse a word that lacks a letter its method needs, or holds two that exclude one another."""
    needed = "ABO" if method == "Langevin" else "ABE"
    if missing := [letter for letter in needed if letter not in word]:
        raise WordError(f"word {word!r}: {method} needs {', '.join(needed)}; missing: {', '.join(missing)}")
    if method == "Langevin":
        return
    if "F" in word and (clash := [letter for letter in "CD" if letter in word]):
        raise WordError(
            f"word {word!r}: F takes the place of C and D, so remove F or {' and '.join(clash)}; "
            "accepted are F alone or C with D"
        )
    if "F" not in word and (missing := [letter for letter in "CD" if letter not in word]):
        raise WordError(
            f"word {word!r}: AdaptiveLangevin needs both C and D, or F in their place; "
            f"missing: {', '.join(missing)}"
        )
