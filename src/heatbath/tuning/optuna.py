"""Candidates that a study of Optuna chooses, through its ask-and-tell interface."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from heatbath.tuning.search_space import Candidate, Family
from heatbath.tuning.trials import Trial

if TYPE_CHECKING:
    import optuna

BATCH = 16  # candidates that are asked for, tried in one ensemble and told, at a time
MISSING = "1 - "  # before the name of a share near 1, which a study knows by what is missing to 1


@dataclass(frozen=True, eq=False)
class Asked:
    """A study, and its trials that are under way by the names of their candidates."""

    study: optuna.Study
    by: Literal["loss", "accuracy"]
    going: dict[str, optuna.Trial] = field(default_factory=dict)

    def ask(self, family: Family, count: int) -> list[Candidate]:
        """New candidates; if one cannot be had, none is under way."""
        from optuna.trial import TrialState

        try:
            return [self._candidate(family) for _ in range(count)]
        except BaseException:
            for asked in self.going.values():
                self.study.tell(asked, state=TrialState.FAIL)
            raise

    def report(self, trials: Iterable[Trial]) -> None:
        """Scores at the end of a rung; those that diverged have none."""
        for trial in trials:
            if not trial.diverged:
                self.going[trial.name].report(self._score(trial), trial.steps)

    def tell(self, trials: Iterable[Trial], steps: int) -> None:
        """Those that made all `steps` have their scores, others are pruned, or failed if never judged."""
        from optuna.trial import TrialState

        for trial in trials:
            asked = self.going.pop(trial.name)
            if trial.steps == steps and not trial.diverged:
                self.study.tell(asked, self._score(trial))
            else:
                self.study.tell(asked, state=TrialState.PRUNED if trial.steps else TrialState.FAIL)

    def _score(self, trial: Trial) -> float:
        return trial.loss if self.by == "loss" else trial.accuracy

    def _candidate(self, family: Family) -> Candidate:
        asked = self.study.ask(distributions(family))
        values = {
            name: 1.0 - asked.params[key] if key.startswith(MISSING) else float(asked.params[key])
            for name, key in zip(family.ranges, distributions(family), strict=True)
        }
        candidate = Candidate(f"{family.name} {asked.number}", family, values)
        self.going[candidate.name] = asked
        return candidate


def distributions(family: Family) -> dict[str, optuna.distributions.BaseDistribution]:
    """The parameters of a study for the coefficients of a method, in their order."""
    from optuna.distributions import FloatDistribution

    found: dict[str, optuna.distributions.BaseDistribution] = {}
    for name, searched in family.ranges.items():
        low, high = searched.range()
        if searched.scale == "complement":
            name, low, high = f"{MISSING}{name}", 1.0 - high, 1.0 - low
        found[name] = FloatDistribution(low, high, log=searched.scale != "linear")
    return found


def batches(candidates: int) -> list[int]:
    """How many candidates are asked for at a time."""
    return [min(BATCH, candidates - first) for first in range(0, candidates, BATCH)]


def checked(study: object, families: list[Family], by: Literal["loss", "accuracy"]) -> Asked:
    """A study to be asked, if it is one for this search."""
    try:
        import optuna
    except ModuleNotFoundError:
        raise ModuleNotFoundError("study needs Optuna, an extra: pip install 'heatbath[optuna]'") from None
    if not isinstance(study, optuna.Study):
        raise TypeError(f"study must be a study of Optuna, as optuna.create_study() makes it, got {study!r}")
    if len(families) > 1 or not families[0].ranges:
        raise ValueError(
            f"a study looks for the coefficients of one method with ranges, got "
            f"{', '.join(family.name for family in families)}: call tune for each, with a study of its own"
        )
    direction = "minimize" if by == "loss" else "maximize"
    found = [given.name.lower() for given in study.directions]
    if found != [direction]:
        raise ValueError(f"by={by!r} needs create_study(direction={direction!r}), got {', '.join(found)}")
    needed = {name: _kind(one) for name, one in distributions(families[0]).items()}
    for trial in study.get_trials(deepcopy=False):
        there = {name: _kind(one) for name, one in trial.distributions.items()}
        if there and there != needed:
            raise ValueError(
                f"the study has trials of another search, with {_listed(there)}, and this one has "
                f"{_listed(needed)}: take a new study, as optuna.create_study() makes it"
            )
    return Asked(study, by)


def _kind(distribution: optuna.distributions.BaseDistribution) -> str:
    """What a study does not let a parameter change: all but its ends."""
    kind = type(distribution).__name__.removesuffix("Distribution").lower()
    return f"{kind}, logarithmic" if getattr(distribution, "log", False) else kind


def _listed(kinds: dict[str, str]) -> str:
    return ", ".join(f"{name} ({kind})" for name, kind in kinds.items())
