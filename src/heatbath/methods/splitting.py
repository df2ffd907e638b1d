"""Words: splitting schemes written as strings of letters.

A *letter* is one exactly solvable piece of the dynamics; a *word*, read from left to right, is the order in
which the pieces act during one step. A letter that occurs k times acts for h/k each time, so `BAOAB` is half
a kick, half a drift, the whole Ornstein-Uhlenbeck piece, half a drift, half a kick.

A training loop offers one gradient per step, at the θ it sees. `rotate` says how a word is cut so that it
needs no more than that. Nothing here touches an array.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from heatbath.methods.letters import Letter

MOST_DRAWS = 2**14  # noise letters of a word: as many as the address of a random number has room for


class WordError(ValueError):
    """A word that cannot be used as asked; the message says which letter and what is accepted."""


@dataclass(frozen=True)
class Substep:
    """One letter of a word: it acts for `fraction` of the stepsize.

    `place` is its position in the word as written. `slot` numbers the letters that draw noise, again in the
    word as written, and is None for the others: it is part of the address of the noise (see `noise`). `kind`
    is what the letter means to its method.
    """

    letter: str
    fraction: Fraction
    place: int
    kind: Letter
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
class WeakOrder:
    """The power of h in the bias of the stationary law at fixed finite friction, as declared.

    `position` is that of averages over θ, rotated or not, and `joint` that of averages over (θ, p) at the end
    of the word as written (between rotated steps p lacks its closing letters).
    """

    position: int
    joint: int


NAMED: dict[str, WeakOrder] = {
    "BAOAB": WeakOrder(position=2, joint=2),
    "BAOA": WeakOrder(position=2, joint=1),
    "ABOBA": WeakOrder(position=2, joint=2),
    "OBABO": WeakOrder(position=2, joint=2),
    "OABAO": WeakOrder(position=2, joint=2),
    "OBA": WeakOrder(position=1, joint=1),
    "BAOBA": WeakOrder(position=1, joint=1),
    "ABAOABA": WeakOrder(position=2, joint=2),
    "BACDEDCAB": WeakOrder(position=2, joint=2),
    "BAFEFAB": WeakOrder(position=2, joint=2),
}
"""The words that the literature or the paper uses, with their order (Adaptive Langevin: at fixed ξ)."""


def parse(word: str, letters: Mapping[str, Letter], method: str = "this method") -> tuple[Substep, ...]:
    """The letters of `word` with their fractions of the stepsize; `letters` are those that a method has.

    >>> from heatbath.methods import Langevin
    >>> [(s.letter, str(s.fraction)) for s in parse("BAOAB", Langevin.letters)]
    [('B', '1/2'), ('A', '1/2'), ('O', '1'), ('A', '1/2'), ('B', '1/2')]
    """
    if not isinstance(word, str):
        raise WordError(f"a word is a string of letters such as 'BAOAB', got {word!r}")
    for letter in word:
        if letter not in letters:
            raise WordError(
                f"word {word!r}: {letter!r} is not a letter of {method}, which accepts {', '.join(letters)}"
            )
    draws = sum(word.count(letter) for letter, kind in letters.items() if kind.draws)
    if draws > MOST_DRAWS:
        raise WordError(
            f"word {word[:20]!r}...: it draws noise {draws} times, and a step has room for {MOST_DRAWS}"
        )
    counts = {letter: Fraction(1, word.count(letter)) for letter in set(word)}
    substeps = []
    slot = 0
    for place, letter in enumerate(word):
        kind = letters[letter]
        substeps.append(Substep(letter, counts[letter], place, kind, slot if kind.draws else None))
        slot += kind.draws
    return tuple(substeps)


def require(word: str, method: str, needed: str) -> None:
    """Refuse a word that lacks a letter which its method needs."""
    if missing := [letter for letter in needed if letter not in word]:
        raise WordError(f"word {word!r}: {method} needs {', '.join(needed)}; missing: {', '.join(missing)}")


def gradients(substeps: Sequence[Substep]) -> int:
    """How many gradients one step needs: the pieces with a kick when the cyclic word is cut at its drifts."""
    first, *middle, last = _pieces(substeps)
    return sum(map(bool, (last + first, *middle)))


def rotate(substeps: Sequence[Substep]) -> Rotation:
    """Cut a word that needs one gradient per step so that every rotated step begins with that gradient.

    A word without letters stands still, and nothing is cut.
    """
    if not substeps:
        return Rotation((), (), seen="end")
    needed = gradients(substeps)
    if needed != 1:
        letters = "".join(s.letter for s in substeps)
        raise WordError(
            f"word {letters!r} needs {needed} gradients per step, and a rotated step offers one: "
            "run the word as written, or choose a word that needs one, such as 'BAOAB' or 'BACDEDCAB'"
        )
    drifts = [place for place, substep in enumerate(substeps) if substep.kind.moves]
    pieces = _pieces(substeps)
    if pieces[-1] or pieces[0]:
        cut, seen = drifts[-1] + 1, "end"
    else:
        kicked = next(place for place, piece in enumerate(pieces) if piece)
        cut, seen = drifts[kicked - 1] + 1, "kick"
    return Rotation(tuple(substeps[cut:]), tuple(substeps[:cut]), seen=seen)  # type: ignore[arg-type]


def _pieces(substeps: Sequence[Substep]) -> list[int]:
    """How many kicks there are before the first drift, between drifts, and after the last.

    A letter that kicks and moves kicks first.
    """
    pieces = [0]
    for substep in substeps:
        pieces[-1] += substep.kind.kicks
        if substep.kind.moves:
            pieces.append(0)
    return pieces if len(pieces) > 1 else [*pieces, 0]


def erases_force(word: str) -> bool:
    """Whether an O follows every B before any A: with infinite friction the force would then have no effect.

    >>> [erases_force(word) for word in ("BOA", "OAB", "BAOAB")]
    [True, True, False]
    """
    kicks = [place for place, letter in enumerate(word) if letter == "B"]
    after = ((word[place + 1 :] + word[:place]).partition("A")[0] for place in kicks)
    return all("O" in letters for letters in after)
