"""What was tried in a search, and what it tells: the best, a table, what matters, what lies at an end."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from heatbath._internal.warnings import warn
from heatbath.methods.ranges import Between
from heatbath.runs.plan import as_lines
from heatbath.tuning.search_space import Candidate, Family

if TYPE_CHECKING:
    import pandas


from heatbath._internal.warnings import SearchEdgeWarning
from heatbath.methods.partition import Partition
from heatbath.runs.run import Run

RUNGS = 4  # of a ladder; the last is the end
ENOUGH = 8  # candidates to tell what matters, and what lies at an end
TREES = 200  # of the forest that tells what matters
EDGE = 0.1  # the share of a range, at either end, in which the best one is not to be
ALSO, MOST = 0.15, 2 / 3  # nor so many of the best ones near it: by chance that is so for 1 % of coefficients


@dataclass(frozen=True, eq=False)
class Trial:
    """A candidate, how far it came, and what it was worth there, on the validation examples: `loss` and
    `accuracy` of its averaged prediction, and the means over its single networks.

    `rung` is 4 at the end, 5 where it was run again, and 0 where it was never judged.
    """

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

    def lost(self, rung: int, steps: int) -> Trial:
        """The same, diverged on the way to a rung."""
        return Trial(self.candidate, rung, steps, diverged=True)

    @property
    def known(self) -> bool:
        """Whether it was judged: after Ctrl-C some were not."""
        return self.rung > 0 or self.diverged

    def worth(self, by: Literal["loss", "accuracy"]) -> tuple[float, ...]:
        """Its place among others, the best first: those that came further, and then by their scores."""
        scores = (self.loss,) if by == "loss" else (-self.accuracy, self.loss)
        return (self.diverged, -self.rung, *(math.inf if math.isnan(score) else score for score in scores))


def ranked(trials: Mapping[str, Trial], family: Family, by: Literal["loss", "accuracy"]) -> list[Trial]:
    """The trials of a family, the best first."""
    own = [trial for trial in trials.values() if trial.candidate.family is family]
    return sorted(own, key=lambda trial: trial.worth(by))


@dataclass(frozen=True, eq=False, repr=False)
class Trials:
    """All that was tried, and what it was worth `by` the loss or the accuracy.

    `finished` is False after Ctrl-C.
    """

    families: Sequence[Family]
    trials: Sequence[Trial]
    by: Literal["loss", "accuracy"]
    finished: bool = field(default=True, kw_only=True)

    @cached_property
    def best(self) -> dict[str, Trial]:
        """The best of each method that has one, by name: of those that came to the end.

        After Ctrl-C it is the best of those that came furthest.
        """
        last = RUNGS if self.finished else 1
        first = {family.name: self._ranked(family)[:1] for family in self.families}
        return {n: t for n, some in first.items() for t in some if t.rung >= last and not t.diverged}

    @property
    def winner(self) -> str:
        """The name of the best method."""
        return min(self.best, key=lambda name: self.best[name].worth(self.by))

    @property
    def without(self) -> dict[str, str]:
        """The methods that have no best, and why."""
        return {f.name: self._why(self._ranked(f)) for f in self.families if f.name not in self.best}

    def _why(self, own: Sequence[Trial]) -> str:
        lost = sum(trial.diverged for trial in own)
        if lost == len(own):
            return "every candidate diverged"
        if not self.finished:
            return "no candidate has been judged yet"
        return f"none came to the end: {lost} of its {len(own)} candidates diverged, among them all the best"

    def _ranked(self, family: Family) -> list[Trial]:
        return ranked({trial.name: trial for trial in self.trials}, family, self.by)

    def code(self, method: str | None = None) -> str:
        """The best, of a method or of all, as Python that makes it: a partition with the names of heatbath,
        an optimiser with those of heatbath.torch.

        >>> import heatbath as hb
        >>> problem = hb.datasets.spirals(turns=1, n_train=100, n_test=20)
        >>> found = hb.tune(problem, hb.MLP((10,)), hb.AdLaLa, steps=80, candidates=4)
        >>> found.code()[:9], found.code().count("=")
        ('AdLaLa(h=', 6)
        """
        trial = self.best[self.winner if method is None else method]
        return trial.candidate.family.code(trial.candidate.values)

    @cached_property
    def table(self) -> pandas.DataFrame:
        """All that was tried, of each method those first that came furthest and were better there.

        With a column for each coefficient; `best` is True for the best of a method, if it has one.
        """
        import pandas

        rows = []
        for family in self.families:
            for trial in self._ranked(family):
                scores = {
                    name: getattr(trial, name)
                    for name in (
                        "rung", "steps", "loss", "accuracy", "single_loss", "single_accuracy", "diverged"
                    )
                }  # fmt: skip
                best = trial is self.best.get(family.name)
                rows.append({"method": family.name, "best": best, **scores, **trial.candidate.values})
        return pandas.DataFrame(rows)

    @cached_property
    def importance(self) -> dict[str, dict[str, float]]:
        """How much each coefficient of each method decides of the order of its candidates, the most first.

        Shares of 1, by a forest of trees that tell the place in that order from the coefficients. Candidates
        that diverged are the last, and those that were never judged do not count. A method with fewer
        than eight that do, or whose candidates are all alike, is left out.
        """
        from sklearn.ensemble import RandomForestRegressor

        found = {}
        for family in self.families:
            order = [trial for trial in self._ranked(family) if trial.known]
            if len(order) < ENOUGH or not family.ranges:
                continue
            shares = np.array([family.shares(trial.candidate.values) for trial in order])
            alike = [trial.worth(self.by) for trial in order]
            places = np.array([alike.index(worth) for worth in alike], np.float64)
            forest = RandomForestRegressor(TREES, random_state=0, min_samples_leaf=2).fit(shares, places)
            with np.errstate(invalid="ignore"):  # where no tree tells anything
                told = dict(zip(family.ranges, forest.feature_importances_.tolist(), strict=True))
            if sum(told.values()) > 0:
                found[family.name] = dict(sorted(told.items(), key=lambda pair: -pair[1]))
        return found

    @property
    def edges(self) -> dict[str, dict[str, float]]:
        """The coefficients of each method whose best values lie at an end of their range, and that end.

        The best lies in the last tenth of the range there, and two thirds of the best eighth of the
        candidates (of four at least) near it. No coefficient is below 0, so that 0 is no such end.
        """
        found: dict[str, dict[str, float]] = {}
        for family in self.families:
            order = [trial for trial in self._ranked(family) if trial.rung and not trial.diverged]
            first = order[: max(4, len(order) // 8)]
            if len(order) < ENOUGH or family.name not in self.best:
                continue
            shares = np.array([family.shares(trial.candidate.values) for trial in first])
            for (name, range), column in zip(family.ranges.items(), shares.T, strict=True):
                for end, away in ((range.low, column), (range.high, 1 - column)):
                    if away[0] < EDGE and np.mean(away < ALSO) >= MOST and end != 0:
                        found.setdefault(family.name, {})[name] = end
        return found

    @property
    def wider(self) -> dict[str, dict[str, Between]]:
        """The ranges to look in next, of the coefficients whose best values lie at an end of theirs.

        By the name of a preset or a method, that is what `tune` takes: `tune(problem, network, found.wider)`.
        """
        ranges = {family.name: family.ranges for family in self.families}
        return {
            method: {name: ranges[method][name].beyond(end) for name, end in ends.items()}
            for method, ends in self.edges.items()
        }

    def __repr__(self) -> str:
        lines = {}
        for name, trial in sorted(self.best.items(), key=lambda pair: pair[1].worth(self.by)):
            accuracy = "" if math.isnan(trial.accuracy) else f", accuracy {trial.accuracy:.1%}"
            lines[name] = f"loss {trial.loss:.4g}{accuracy} at step {trial.steps:,}\n{self.code(name)}"
            if name in self.edges:
                lines[name] += f"\nat the end of a range: {self._at_edge(name)}"
        count, end = len(self.trials), "" if self.finished else ", interrupted"
        title = f"Tuned: {count} candidates, by the {self.by} on validation examples{end}"
        return as_lines(title, lines | self.without)

    def _at_edge(self, method: str) -> str:
        """What lies at an end of its range, and where to look next."""
        wider = self.wider[method]
        return ", ".join(
            f"{name} at {end!r}, try {wider[name]!r}" for name, end in self.edges[method].items()
        )


def warn_of_edges(found: Trials) -> None:
    """Warn of what lies at an end of its range."""
    for method in found.edges:
        warn(f"the best of {method} lie at the end of a range: {found._at_edge(method)}", SearchEdgeWarning)


@dataclass(frozen=True, eq=False, repr=False)
class TuningResult(Trials):
    """What `tune` has found: the best `partition`, and all that was tried.

    `lasts` are the runs of those that came furthest in each round of the search and, in the end, of those
    that were run again: comparisons on the training examples without those for validation. `run` is that of
    the best.
    """

    lasts: Sequence[Run]

    @property
    def partition(self) -> Partition:
        """The best partition of all."""
        return self.partitions[self.winner]

    @property
    def partitions(self) -> dict[str, Partition]:
        """The best partition of each method, by name: what `compare` takes."""
        return {name: trial.candidate.made for name, trial in self.best.items()}

    @property
    def run(self) -> Run:
        """The run of the best, as far as it came."""
        name = self.best[self.winner].name
        for last in reversed(self.lasts):
            if name in last.plan.named:
                return last.select(method=name)
        raise ValueError(
            f"the run of {name} was not kept: it had been dropped, those that were better have diverged, and "
            "Ctrl-C ended the search. Train with its partition, or search again"
        )
