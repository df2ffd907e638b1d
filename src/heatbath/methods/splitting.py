"""Parse and rotate words: splitting schemes written as strings of letters.

A *letter* is one exactly solvable piece of the dynamics; a *word*, read from left to right, is the order in
which the pieces act during one step. A letter that occurs k times acts for h/k each time, so `BAOAB` is half
a kick, half a drift, the whole Ornstein-Uhlenbeck piece, half a drift, half a kick.

A training loop offers one gradient per step, at the θ it sees. `rotate` cuts a word so that it needs no more
than that. Nothing here touches an array.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import count
from typing import Literal

from heatbath.methods.letters import Letter

MOST_DRAWS = 2**14  # noise letters of a word: the address of a random number has 14 bits for them


class WordError(ValueError):
    """Error about a word that cannot be used; the message names the letter and what is accepted."""


@dataclass(frozen=True)
class Substep:
    """One letter of a word.

    Attributes
    ----------
    letter : str
        The letter.
    fraction : Fraction
        The fraction of the stepsize for which it acts.
    position : int
        Its position in the word as written.
    kind : Letter
        What the letter does in its method.
    slot : int or None
        Its number among the letters that draw noise, in the word as written; None for the others. It is part
        of the address of the noise (see `reference.random`).
    """

    letter: str
    fraction: Fraction
    position: int
    kind: Letter
    slot: int | None = None


@dataclass(frozen=True)
class Rotation:
    """A word cut for a loop that offers one gradient per step.

    A rotated step is `closing`, then `opening`: `closing` ends the step of the word that the previous rotated
    step began, and `opening` begins the next one. Between rotated steps a loop sees θ at the word's "end" or,
    if the kick lies in the middle of the word, θ at the "kick":

    - seen at the end (BAOAB = B + BAOA): the first rotated step has nothing to close.
    - seen at the kick (ABOBA = BOBA + A): an opening, which has no kick, precedes the first rotated
      step.
    """

    closing: tuple[Substep, ...]
    opening: tuple[Substep, ...]
    seen: Literal["end", "kick"]


@dataclass(frozen=True)
class WeakOrder:
    """Declared power of h in the bias of the stationary law at fixed finite friction.

    `position` is the power for averages over θ, rotated or not. `joint` is the power for averages over (θ, p)
    at the end of the word as written; between rotated steps p lacks its closing letters.
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
"""Words of the literature and the paper with their order, which for Adaptive Langevin holds at fixed ξ."""


def parse(word: str, letters: Mapping[str, Letter], method: str = "this method") -> tuple[Substep, ...]:
    """Split a word into letters with their fractions of the stepsize.

    Parameters
    ----------
    word : str
        The word.
    letters : mapping of str to Letter
        The letters that the method has.
    method : str, optional
        The name of the method for error messages.

    Returns
    -------
    tuple of Substep
        The letters in order.

    Raises
    ------
    WordError
        If the word is no string, has an unknown letter, or draws noise too often.

    Examples
    --------
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
    draw_count = len([letter for letter in word if letters[letter].draws])
    if draw_count > MOST_DRAWS:
        raise WordError(
            f"word {word[:20]!r}...: it draws noise {draw_count} times, and the limit for a step is "
            f"{MOST_DRAWS}"
        )

    slots = count()
    substeps = []
    for position, letter in enumerate(word):
        meaning = letters[letter]
        fraction = Fraction(1, word.count(letter))
        slot = next(slots) if meaning.draws else None
        substeps.append(Substep(letter, fraction, position, meaning, slot))
    return tuple(substeps)


def require(word: str, method: str, needed: str) -> None:
    """Raise WordError if a word lacks one of the letters that its method needs."""
    missing = [letter for letter in needed if letter not in word]
    if missing:
        raise WordError(f"word {word!r}: {method} needs {', '.join(needed)}; missing: {', '.join(missing)}")


def gradients(substeps: Sequence[Substep]) -> int:
    """Return how many gradients a step needs: pieces with a kick when the cyclic word is cut at drifts."""
    first, *middle, last = _kicks_between_drifts(substeps)
    return sum(kicks > 0 for kicks in (last + first, *middle))


def rotate(substeps: Sequence[Substep]) -> Rotation:
    """Cut a word so that every rotated step begins with the one gradient that it needs.

    The cut follows a drift: the last one if there is a kick at an end of the word, and otherwise the one
    before the kick in its middle.

    Parameters
    ----------
    substeps : sequence of Substep
        The word. An empty one has nothing to cut.

    Returns
    -------
    Rotation
        What closes a step, what opens the next, and which θ a loop sees between them.

    Raises
    ------
    WordError
        If the word needs no gradient or several.
    """
    if not substeps:
        return Rotation((), (), seen="end")
    gradient_count = gradients(substeps)
    if gradient_count != 1:
        word = "".join(substep.letter for substep in substeps)
        raise WordError(
            f"word {word!r} needs {gradient_count} gradients per step, and a rotated step offers one: "
            "run the word as written, or choose a word that needs one, such as 'BAOAB' or 'BACDEDCAB'"
        )
    drift_positions = [position for position, substep in enumerate(substeps) if substep.kind.moves]
    kick_counts = _kicks_between_drifts(substeps)
    seen: Literal["end", "kick"] = "end"
    drift_before_cut = drift_positions[-1]
    if not (kick_counts[0] or kick_counts[-1]):
        seen = "kick"
        kicked_piece = next(piece for piece, kick_count in enumerate(kick_counts) if kick_count)
        drift_before_cut = drift_positions[kicked_piece - 1]
    cut = drift_before_cut + 1
    return Rotation(closing=tuple(substeps[cut:]), opening=tuple(substeps[:cut]), seen=seen)


def _kicks_between_drifts(substeps: Sequence[Substep]) -> list[int]:
    """Count the kicks before the first drift, between successive drifts, and after the last drift.

    A letter that both kicks and moves kicks first.
    """
    kicks = [0]
    for substep in substeps:
        kicks[-1] += substep.kind.kicks
        if substep.kind.moves:
            kicks.append(0)
    return kicks if len(kicks) > 1 else [*kicks, 0]


def erases_force(word: str) -> bool:
    """Return True if an O follows every B before any A, so that infinite friction would erase the force.

    >>> [erases_force(word) for word in ("BOA", "OAB", "BAOAB")]
    [True, True, False]
    """
    for position, letter in enumerate(word):
        letters_before_drift, _, _ = (word[position + 1 :] + word[:position]).partition("A")
        if letter == "B" and "O" not in letters_before_drift:
            return False
    return True
