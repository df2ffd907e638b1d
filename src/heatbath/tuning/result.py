"""What a search has found."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from heatbath.partition import Partition
from heatbath.runs.plan import as_lines
from heatbath.runs.run import Run
from heatbath.tuning.design import Candidate, Family

if TYPE_CHECKING:
    import pandas

TREES = 200  # of the forest that tells what matters
EDGE = 0.1  # the share of a range, at either end, in which the best ones are not to be


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


@dataclass(frozen=True, eq=False, repr=False)
class Tuned:
    """What `tune` has found: the best `partition`, and all that was tried.

    `lasts` are the runs of those that came furthest in each round of the search, comparisons on the training
    examples without those for validation; `run` is that of the best. `finished` is False after Ctrl-C.
    """

    families: Sequence[Family]
    trials: Sequence[Trial]
    lasts: Sequence[Run]
    by: Literal["loss", "accuracy"]
    finished: bool = True

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

    @property
    def partition(self) -> Partition:
        """The best partition of all."""
        return self.best[self.winner].candidate.partition

    @property
    def partitions(self) -> dict[str, Partition]:
        """The best partition of each method, by name: what `compare` takes."""
        return {name: trial.candidate.partition for name, trial in self.best.items()}

    @property
    def run(self) -> Run:
        """The run of the best, as far as it came."""
        name = self.best[self.winner].name
        return next(last.select(method=name) for last in self.lasts if name in last.plan.named)

    def code(self, method: str | None = None) -> str:
        """The best partition, of a method or of all, as Python that makes it, with the names of heatbath.

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
        of which a chain diverged are the last.
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
