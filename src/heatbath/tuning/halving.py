"""Successive halving: train many candidates for a short time, the better half of them longer, and so on.

This module has the rules and the control flow of a search: how many candidates train for how long, which of
them go on, and how the best are compared at the end. It doesn't train anything: that's up to a
`CandidateTrainer`. The engine's (`heatbath.tuning.search`) trains all candidates of a rung in one ensemble;
that of `heatbath.torch.tune` trains one model after the other and forgets the losers at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, Protocol

from heatbath.tuning.search_space import Candidate, Family, points
from heatbath.tuning.trials import RUNGS, Trial, Trials, ranked

FACTOR = 2  # the steps of a candidate double from rung to rung, and half of the candidates go on


@dataclass(frozen=True)
class RoundRule:
    """Rules that split candidates into rounds: the first fills the ranges, the second is near its best."""

    fewest_for_two: int = 16  # candidates; half of fewer would not fill the ranges
    neighbours: int = 16  # one in this many of the first round is a centre of the second, but at least 2
    width: float = 0.3  # of the boxes around the centres, as a share of the ranges


@dataclass(frozen=True)
class FinalRule:
    """Rules by which the best are run again with other chains, so that luck doesn't decide."""

    share: int = 20  # one candidate in this many, but at least 2 of each method
    chains: int = 5  # times as many chains as in the search
    attempts: int = 3  # the next best take the place of finalists that all diverged, at most this often


ROUNDS, FINAL = RoundRule(), FinalRule()


class Rung(NamedTuple):
    """A rung of the ladder: `size` candidates of each method train up to step `steps`."""

    steps: int
    size: int


class CandidateTrainer(Protocol):
    """Interface that trains and judges candidates; `SuccessiveHalving` decides which.

    Ctrl-C in any of these raises KeyboardInterrupt, which `SuccessiveHalving` passes on.
    """

    def train(self, candidates: Sequence[Candidate], rung: Rung, number: int) -> Iterable[Trial]:
        """Train candidates from where they stand up to the steps of a rung, and yield how each one scores.

        The first rung (`number` 1) starts them. A trial is yielded as soon as it's known, so that losers can
        be dropped before the next candidate is trained. A candidate that diverged has `diverged=True`. The
        caller fills in `rung` and `steps` of the trials.
        """
        ...

    def train_again(self, candidates: Sequence[Candidate], attempt: int) -> Iterable[Trial]:
        """Train finalists from a new start, with other chains, to the end; yield how each one scores."""
        ...

    def drop(self, losers: Sequence[Trial]) -> None:
        """Forget the states of candidates that don't go on, or keep what the result needs of them."""
        ...


@dataclass(eq=False)
class SuccessiveHalving:
    """The control flow of a search: rounds of rungs, then a last run of the best.

    Parameters
    ----------
    trainer
        Trains candidates and judges them.
    families
        The methods that are searched.
    steps
        Steps to the end of the ladder.
    by
        Score that ranks candidates.
    trials
        Latest trial of every candidate, by name; `run_round` and `run_finalists` write into it, so it's
        up to date when Ctrl-C stops them.
    """

    trainer: CandidateTrainer
    families: Sequence[Family]
    steps: int
    by: Literal["loss", "accuracy"]
    trials: dict[str, Trial] = field(default_factory=dict)

    def run_round(self, candidates: Sequence[Candidate], count: int) -> None:
        """Train candidates rung by rung; the better half of each method goes on to the next rung.

        Parameters
        ----------
        candidates
            The candidates of all methods.
        count
            How many of them each method has (one, if it has no ranges).
        """
        self.trials |= {candidate.name: Trial(candidate) for candidate in candidates}
        rungs = ladder(self.steps, count)
        sizes = [*(rung.size for rung in rungs[1:]), 0]
        for number, (rung, next_size) in enumerate(zip(rungs, sizes, strict=True), start=1):
            if candidates:
                candidates = self._train_rung(candidates, rung, number, next_size)

    def _train_rung(
        self, candidates: Sequence[Candidate], rung: Rung, number: int, next_size: int
    ) -> list[Candidate]:
        """Train candidates to the end of a rung; return the best `next_size` of each method.

        Scores go into `trials` as they come, and the trainer may drop each loser at once.
        """
        best: dict[Family, list[Trial]] = {family: [] for family in self.families}
        for trial in self.trainer.train(candidates, rung, number):
            judged = replace(trial, rung=number, steps=rung.steps)
            self.trials[trial.name] = judged
            if trial.diverged:
                continue
            family = trial.candidate.family
            ranking = sorted([*best[family], judged], key=lambda ranked_trial: ranked_trial.worth(self.by))
            best[family] = ranking[:next_size]
            self.trainer.drop(ranking[next_size:])
        return [trial.candidate for trials in best.values() for trial in trials]

    def run_finalists(self, finalists: int, goal: int) -> None:
        """Run the best of each method from a new start, so that a lucky score doesn't decide.

        Parameters
        ----------
        finalists
            How many of each method with ranges are run again.
        goal
            The rung that they then have. `RUNGS` runs only candidates in place of finalists that diverged;
            `RUNGS + 1` runs the best of every method.
        """
        for attempt in range(FINAL.attempts):
            candidates = []
            for family in self.families:
                trials = ranked(self.trials, family, self.by)
                stable = [trial for trial in trials if trial.rung and not trial.diverged]
                if any(trial.rung >= goal for trial in stable):
                    continue
                most = finalists if family.ranges else 1
                candidates += [trial.candidate for trial in stable[:most]]
            if not candidates:
                return
            for trial in self.trainer.train_again(candidates, attempt):
                self.trials[trial.name] = replace(trial, rung=goal, steps=self.steps)


def ladder(steps: int, count: int) -> list[Rung]:
    """Return the rungs from `count` candidates of each method up to those that make all `steps`."""
    return [
        Rung(steps=steps // FACTOR ** (RUNGS - 1 - number), size=math.ceil(count / FACTOR**number))
        for number in range(RUNGS)
    ]


def round_sizes(candidates: int) -> list[int]:
    """Return how many candidates of a method there are in each round of a search."""
    if candidates < ROUNDS.fewest_for_two:
        return [candidates]
    return [candidates - candidates // 2, candidates // 2]


def finalist_count(candidates: int) -> int:
    """Return how many of a method's candidates are run again at the end."""
    return max(2, candidates // FINAL.share)


def propose_candidates(
    number: int,
    counts: Sequence[int],
    families: Sequence[Family],
    trials: dict[str, Trial],
    by: Literal["loss", "accuracy"],
    seed: int,
) -> list[Candidate]:
    """Return the candidates of all methods in a round.

    Parameters
    ----------
    number
        The round, from 0: candidates of the first fill the ranges, later ones are near the best so far.
    counts
        Number of candidates of a method in each round.
    families
        The methods and their ranges.
    trials
        Latest trials of the candidates of earlier rounds, by name.
    by
        The score that tells which are the best.
    seed
        Decides where in the ranges they lie.
    """
    centre_count = max(2, counts[0] // ROUNDS.neighbours)
    first = sum(counts[:number])
    candidates: list[Candidate] = []
    for family in families:
        stable = [trial for trial in ranked(trials, family, by) if not trial.diverged]
        if number and not stable:
            continue
        centres = [trial.candidate for trial in stable[:centre_count]]
        candidates += points(family, counts[number], seed + number, first, centres, ROUNDS.width)
    return candidates


def planned_steps(families: Sequence[Family], counts: Sequence[int], steps: int) -> int:
    """Return the steps that all candidates make in all rounds, if none diverges."""
    searched_count = len([family for family in families if family.ranges])
    step_count = 0
    for round_number, candidate_count in enumerate(counts):
        # A method without ranges has one candidate, in the first round.
        fixed_count = len(families) - searched_count if round_number == 0 else 0
        rung_start = 0
        for rung in ladder(steps, candidate_count):
            step_count += (rung.steps - rung_start) * (searched_count * rung.size + fixed_count)
            rung_start = rung.steps
    return step_count


def check_outcome(result: Trials, steps: int, stepsize: str = "h") -> None:
    """Raise FloatingPointError if a search that ran to its end has no best candidate.

    Parameters
    ----------
    result
        The trials of the search.
    steps
        Its steps, for the message.
    stepsize
        The stepsize's name in the user's call, for the message.
    """
    if not result.finished or result.best:
        return
    reasons = "; ".join(f"{method}: {why}" for method, why in result.without.items())
    raise FloatingPointError(
        f"nothing was found in {steps:,} steps ({reasons}): search at smaller {stepsize}, or with more "
        "friction"
    )
