"""What was tried in a search, and what it tells: the best, a table, what matters, what lies at an end."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from heatbath.runs.plan import as_lines
from heatbath.tuning.design import Candidate, Family, points

if TYPE_CHECKING:
    import pandas

TREES = 200  # of the forest that tells what matters
EDGE = 0.1  # the share of a range, at either end, in which the best ones are not to be
TOP, WIDTH, FEWEST = 16, 0.3, 16  # the second round: near one in so many, how wide, and with how many in all


class AtEdge(UserWarning):
    """The best values of a coefficient lie at an end of its range: better ones may lie beyond."""


@dataclass(frozen=True, eq=False)
class Trial:
    """A candidate, how far it came, and what it was worth there, on the validation examples: `loss` and
    `accuracy` of its averaged prediction, and the means over its single networks."""

    candidate: Candidate
    rung: int = 0
    steps: int = 0
    loss: float = math.nan
    accuracy: float = math.nan
    single_loss: float = math.nan
    single_accuracy: float = math.nan
    diverged: bool = False

    @property
    def name(self) -> str:
        """What its candidate is called."""
        return self.candidate.name

    def worth(self, by: Literal["loss", "accuracy"]) -> tuple[float, ...]:
        """Its place among others, the best first: those that came further, and then by their scores."""
        scores = (self.loss,) if by == "loss" else (-self.accuracy, self.loss)
        return (self.diverged, -self.rung, *(math.inf if math.isnan(score) else score for score in scores))


def ranked(trials: Mapping[str, Trial], family: Family, by: Literal["loss", "accuracy"]) -> list[Trial]:
    """The trials of a family, the best first."""
    own = [trial for trial in trials.values() if trial.candidate.family is family]
    return sorted(own, key=lambda trial: trial.worth(by))


def rounds(candidates: int) -> list[int]:
    """How many candidates of a method there are in each round of a search."""
    return [candidates - candidates // 2, candidates // 2] if candidates >= FEWEST else [candidates]


def in_round(
    number: int,
    counts: Sequence[int],
    family: Family,
    trials: Mapping[str, Trial],
    by: Literal["loss", "accuracy"],
    seed: int,
) -> list[Candidate]:
    """The candidates of a family in a round: in the whole ranges, and then near the best that were found."""
    best = [trial for trial in ranked(trials, family, by) if not trial.diverged]
    if number and not best:
        return []
    near = [trial.candidate for trial in best[: max(2, counts[0] // TOP)]]
    return points(family, counts[number], seed + number, sum(counts[:number]), near, WIDTH)


@dataclass(frozen=True, eq=False, repr=False)
class Trials:
    """All that was tried, and what it was worth `by` the loss or the accuracy."""

    families: Sequence[Family]
    trials: Sequence[Trial]
    by: Literal["loss", "accuracy"]

    @cached_property
    def best(self) -> dict[str, Trial]:
        """The best of each method that has one that does not diverge, by name."""
        everything = {trial.name: trial for trial in self.trials}
        first = {family.name: ranked(everything, family, self.by)[0] for family in self.families}
        return {name: trial for name, trial in first.items() if not trial.diverged}

    @property
    def winner(self) -> str:
        """The name of the best method."""
        return min(self.best, key=lambda name: self.best[name].worth(self.by))

    def code(self, method: str | None = None) -> str:
        """The best, of a method or of all, as Python that makes it: a partition with the names of heatbath,
        an optimiser with those of heatbath.torch.

        >>> import heatbath as hb
        >>> problem = hb.datasets.spirals(turns=1, n_train=100, n_test=20)
        >>> found = hb.tune(problem, hb.Dense((10,)), hb.AdLaLa, steps=80, candidates=4)
        >>> found.code()[:9], found.code().count("=")
        ('AdLaLa(h=', 6)
        """
        trial = self.best[self.winner if method is None else method]
        return trial.candidate.family.code(trial.candidate.values)

    @cached_property
    def table(self) -> pandas.DataFrame:
        """All that was tried, the best of each method first, with a column for each coefficient."""
        import pandas

        everything = {trial.name: trial for trial in self.trials}
        rows = []
        for family in self.families:
            for trial in ranked(everything, family, self.by):
                scores = {
                    name: getattr(trial, name)
                    for name in (
                        "rung", "steps", "loss", "accuracy", "single_loss", "single_accuracy", "diverged"
                    )
                }  # fmt: skip
                rows.append({"method": family.name, **scores, **trial.candidate.values})
        return pandas.DataFrame(rows)

    @cached_property
    def importance(self) -> dict[str, dict[str, float]]:
        """How much each coefficient of each method decides of the order of its candidates, the most first.

        Shares of 1, by a forest of trees that tell the place in that order from the coefficients. Candidates
        that diverged are the last.
        """
        from sklearn.ensemble import RandomForestRegressor

        everything = {trial.name: trial for trial in self.trials}
        found = {}
        for family in self.families:
            order = ranked(everything, family, self.by)
            if len(order) < 2:
                continue
            shares = np.array([family.shares(trial.candidate.values) for trial in order])
            alike = [trial.worth(self.by) for trial in order]
            places = np.array([alike.index(worth) for worth in alike], np.float64)
            forest = RandomForestRegressor(TREES, random_state=0, min_samples_leaf=2).fit(shares, places)
            told = dict(zip(family.ranges, forest.feature_importances_.tolist(), strict=True))
            found[family.name] = dict(sorted(told.items(), key=lambda pair: -pair[1]))
        return found

    @property
    def edges(self) -> dict[str, dict[str, float]]:
        """The coefficients of each method whose best values lie at an end of their range, and that end.

        Half of the best eighth of the candidates lie in the last tenth of the range there.
        """
        everything = {trial.name: trial for trial in self.trials}
        found: dict[str, dict[str, float]] = {}
        for family in self.families:
            order = [trial for trial in ranked(everything, family, self.by) if not trial.diverged]
            first = order[: max(3, len(order) // 8)]
            if len(order) < 8:
                continue
            middle = np.median([family.shares(trial.candidate.values) for trial in first], axis=0)
            for (name, range), share in zip(family.ranges.items(), middle, strict=True):
                if not EDGE <= share <= 1 - EDGE:
                    found.setdefault(family.name, {})[name] = range.high if share > 0.5 else range.low
        return found

    def __repr__(self) -> str:
        lines = {}
        for name, trial in sorted(self.best.items(), key=lambda pair: pair[1].worth(self.by)):
            accuracy = "" if math.isnan(trial.accuracy) else f", accuracy {trial.accuracy:.1%}"
            lines[name] = f"loss {trial.loss:.4g}{accuracy} at step {trial.steps:,}\n{self.code(name)}"
            if edges := self.edges.get(name):
                ends = ", ".join(f"{key} at {end:g}" for key, end in edges.items())
                lines[name] += f"\nat the end of its range: {ends}"
        for family in self.families:
            if family.name not in self.best:
                lines[family.name] = "every candidate diverged"
        count = len(self.trials)
        return as_lines(f"Tuned: {count} candidates, by the {self.by} on validation examples", lines)


def warn_of_edges(found: Trials, stacklevel: int) -> None:
    """Warn of what lies at an end of its range."""
    for method, ends in found.edges.items():
        listed = ", ".join(f"{name} at {end:g}" for name, end in ends.items())
        warnings.warn(
            f"the best of {method} lie at the end of a range ({listed}): search beyond it, with between(...)",
            AtEdge,
            stacklevel=stacklevel + 1,
        )
