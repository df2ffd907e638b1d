"""Results of a search: the best candidate, a table, which coefficients matter, and ranges to widen."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from heatbath._internal.warnings import SearchEdgeWarning, warn
from heatbath.methods.partition import Partition
from heatbath.methods.ranges import Between
from heatbath.runs.plan import as_lines
from heatbath.runs.run import Run
from heatbath.tuning.search_space import Candidate, Family

if TYPE_CHECKING:
    import pandas

RUNGS = 4  # rungs of a ladder: the last one makes all steps
ENOUGH = 8  # candidates needed to estimate importance, or to recognise an edge
TREES = 200  # trees of the forest that estimates importance
SCORES = ("rung", "steps", "loss", "accuracy", "single_loss", "single_accuracy", "diverged")


@dataclass(frozen=True)
class EdgeRule:
    """When the best values of a coefficient count as being at an end of its range.

    By chance this happens to 1 % of coefficients.
    """

    best: float = 0.1  # the best candidate is closer to the end than this share of the range
    near: float = 0.15  # and good candidates are closer than this share ...
    fraction: float = 2 / 3  # ... at least this fraction of them
    good: int = 8  # good candidates are the best one in this many
    fewest_good: int = 4  # but at least this many


EDGE = EdgeRule()


@dataclass(frozen=True, eq=False)
class Trial:
    """A candidate, how far it came, and its scores there on the validation examples.

    Parameters
    ----------
    candidate
        The candidate.
    rung
        Last rung that it completed: 4 at the end of the ladder, 5 if it was run again, 0 if never judged.
    steps
        Steps at the end of that rung.
    loss, accuracy
        Scores of its averaged prediction.
    single_loss, single_accuracy
        Mean scores of its single networks.
    diverged
        True if a chain diverged.
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
        """The name of the candidate."""
        return self.candidate.name

    @property
    def known(self) -> bool:
        """True if it was judged; after Ctrl-C some candidates weren't."""
        return self.rung > 0 or self.diverged

    def worth(self, by: Literal["loss", "accuracy"]) -> tuple[float, ...]:
        """Return a key that sorts trials, the best first: by how far they came, then by their scores."""
        scores = (self.loss,) if by == "loss" else (-self.accuracy, self.loss)
        comparable_scores = [math.inf if math.isnan(score) else score for score in scores]
        return (self.diverged, -self.rung, *comparable_scores)


def ranked(trials: Mapping[str, Trial], family: Family, by: Literal["loss", "accuracy"]) -> list[Trial]:
    """Return the trials of a family, the best first."""
    members = [trial for trial in trials.values() if trial.candidate.family is family]
    return sorted(members, key=lambda trial: trial.worth(by))


@dataclass(frozen=True, eq=False, repr=False)
class Trials:
    """All candidates of a search with their scores.

    Parameters
    ----------
    families
        The methods that were searched.
    trials
        One trial per candidate.
    by
        The score that ranks candidates.
    finished
        False after Ctrl-C.
    """

    families: Sequence[Family]
    trials: Sequence[Trial]
    by: Literal["loss", "accuracy"]
    finished: bool = field(default=True, kw_only=True)

    @cached_property
    def best(self) -> dict[str, Trial]:
        """The best trial of each method, by the method's name.

        It has completed all steps; after Ctrl-C it is the best of those that came furthest. Methods without
        such a trial are left out, see `without`.
        """
        required_rung = RUNGS if self.finished else 1
        best: dict[str, Trial] = {}
        for family in self.families:
            stable = [trial for trial in self._ranked(family) if not trial.diverged]
            if stable and stable[0].rung >= required_rung:
                best[family.name] = stable[0]
        return best

    @property
    def winner(self) -> str:
        """The name of the best method."""
        return min(self.best, key=lambda name: self.best[name].worth(self.by))

    @property
    def without(self) -> dict[str, str]:
        """The methods without a best trial, each with the reason."""
        failed = [family for family in self.families if family.name not in self.best]
        return {family.name: self._reason(self._ranked(family)) for family in failed}

    def _reason(self, trials: Sequence[Trial]) -> str:
        """Return why a method with these trials has no best one."""
        diverged = sum(trial.diverged for trial in trials)
        if diverged == len(trials):
            return "every candidate diverged"
        if not self.finished:
            return "no candidate has been judged yet"
        return (
            f"none came to the end: {diverged} of its {len(trials)} candidates diverged, among them all the "
            "best"
        )

    def _ranked(self, family: Family) -> list[Trial]:
        """Return the trials of a method, the best first."""
        return ranked({trial.name: trial for trial in self.trials}, family, self.by)

    def code(self, method: str | None = None) -> str:
        """Return a Python expression for the best candidate: a partition of heatbath, or a torch optimiser.

        Parameters
        ----------
        method
            Name of a method; None for the best of all methods.

        Examples
        --------
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
        """All candidates as a table, method by method, the best first, with a column for each coefficient.

        `best` is True for the best candidate of a method, if it has one.
        """
        import pandas

        rows = []
        for family in self.families:
            for trial in self._ranked(family):
                scores = {name: getattr(trial, name) for name in SCORES}
                best = trial is self.best.get(family.name)
                rows.append({"method": family.name, "best": best, **scores, **trial.candidate.values})
        return pandas.DataFrame(rows)

    @cached_property
    def importance(self) -> dict[str, dict[str, float]]:
        """How much each coefficient decides the ranks of candidates: {method: {coefficient: share}}.

        The shares of a method add up to 1, the largest comes first. A random forest estimates them by
        predicting a candidate's rank from its coefficients. Diverged candidates rank last; those that were
        never judged don't count. Methods with fewer than eight candidates that count, or with equal ones
        only, are left out.
        """
        importances = {family.name: self._importance(family) for family in self.families}
        return {method: shares for method, shares in importances.items() if shares}

    def _importance(self, family: Family) -> dict[str, float]:
        """Return the share of each coefficient of a method in its candidates' ranks; see `importance`.

        The result is empty if there are too few candidates, or all are equal.
        """
        from sklearn.ensemble import RandomForestRegressor

        judged = [trial for trial in self._ranked(family) if trial.known]
        if len(judged) < ENOUGH or not family.ranges:
            return {}

        positions = np.array([family.shares(trial.candidate.values) for trial in judged])
        worths = [trial.worth(self.by) for trial in judged]
        ranks = np.array([worths.index(worth) for worth in worths], np.float64)  # equal ones share the first
        forest = RandomForestRegressor(TREES, random_state=0, min_samples_leaf=2).fit(positions, ranks)
        with np.errstate(invalid="ignore"):  # 0/0 if no tree has a split
            shares = dict(zip(family.ranges, forest.feature_importances_.tolist(), strict=True))
        has_shares = sum(shares.values()) > 0  # NaN has none
        if not has_shares:
            return {}
        return dict(sorted(shares.items(), key=lambda name_and_share: -name_and_share[1]))

    @property
    def edges(self) -> dict[str, dict[str, float]]:
        """The coefficients whose best values are at an end of their range: {method: {coefficient: end}}.

        The best candidate is in the last tenth of the range, and two thirds of the best eighth of the
        candidates (at least four) are in the last 15 %. An end at 0 doesn't count, as no coefficient is
        negative.
        """
        edges = {family.name: self._edges_of(family) for family in self.families}
        return {method: ends for method, ends in edges.items() if ends}

    def _edges_of(self, family: Family) -> dict[str, float]:
        """Return the coefficients of a method whose best values are at an end of their range, with that end.

        The result is empty if there are too few candidates, or none is the best; see `EdgeRule`.
        """
        stable = [trial for trial in self._ranked(family) if trial.rung and not trial.diverged]
        if len(stable) < ENOUGH or family.name not in self.best:
            return {}
        good = stable[: max(EDGE.fewest_good, len(stable) // EDGE.good)]
        positions = np.array([family.shares(trial.candidate.values) for trial in good])
        edges = {}
        for (name, between), distances_to_low in zip(family.ranges.items(), positions.T, strict=True):
            if between.low != 0 and _are_near_an_end(distances_to_low):
                edges[name] = between.low
            if between.high != 0 and _are_near_an_end(1 - distances_to_low):
                edges[name] = between.high
        return edges

    @property
    def wider(self) -> dict[str, dict[str, Between]]:
        """The ranges to search next, for coefficients whose best values are at an end of their range.

        For presets and methods, pass it to `tune`: `tune(problem, network, found.wider)`.
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
        end = "" if self.finished else ", interrupted"
        title = f"Tuned: {len(self.trials)} candidates, by the {self.by} on validation examples{end}"
        return as_lines(title, lines | self.without)

    def _at_edge(self, method: str) -> str:
        """Return, as text, a method's best values at an end of their range and the ranges to try next."""
        wider = self.wider[method]
        return ", ".join(
            f"{name} at {end!r}, try {wider[name]!r}" for name, end in self.edges[method].items()
        )


def warn_of_edges(result: Trials) -> None:
    """Warn of coefficients whose best values are at an end of their range."""
    for method in result.edges:
        warn(f"the best of {method} lie at the end of a range: {result._at_edge(method)}", SearchEdgeWarning)


def _are_near_an_end(distances: NDArray[np.float64]) -> bool:
    """Return True if the best of the good candidates, and enough of the others, are near an end of a range.

    `distances` are shares of the range, the best candidate first; see `EdgeRule`.
    """
    near_share = np.mean(distances < EDGE.near)
    return bool(distances[0] < EDGE.best and near_share >= EDGE.fraction)


@dataclass(frozen=True, eq=False, repr=False)
class TuningResult(Trials):
    """Result of `tune`: the best `partition`, its `run`, and all candidates with their scores.

    Attributes
    ----------
    lasts : sequence of Run
        Runs of the last rung of each round, and of the finalists that were run again: comparisons, trained
        without the validation examples.

    Examples
    --------
    >>> import heatbath as hb
    >>> problem = hb.datasets.spirals(n_train=50, n_test=20)
    >>> result = hb.tune(problem, hb.MLP((5,)), hb.LaLa, steps=80, candidates=4)
    >>> result.winner, result.run.step
    ('LaLa', 80)
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
        """The run of the best candidate, as far as it came."""
        name = self.best[self.winner].name
        for comparison in reversed(self.lasts):
            if name in comparison.plan.named:
                return comparison.select(method=name)
        raise ValueError(
            f"the run of {name} was not kept: it had been dropped, those that were better have diverged, and "
            "Ctrl-C ended the search. Train with its partition, or search again"
        )
