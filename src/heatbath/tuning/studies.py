"""Candidates that a study of Optuna chooses, through its ask-and-tell interface."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from heatbath.ranges import Between
from heatbath.tuning.design import Candidate, Family
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
        """New candidates."""
        return [self._candidate(family) for _ in range(count)]

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
        from optuna.distributions import FloatDistribution

        def distribution(searched: Between) -> FloatDistribution:
            low, high = searched.range()
            if searched.scale == "complement":
                low, high = 1.0 - high, 1.0 - low
            return FloatDistribution(low, high, log=searched.scale != "linear")

        ranges = {_name(name, searched): searched for name, searched in family.ranges.items()}
        asked = self.study.ask({name: distribution(searched) for name, searched in ranges.items()})
        values = {
            name: 1.0 - asked.params[key] if key.startswith(MISSING) else float(asked.params[key])
            for name, key in zip(family.ranges, ranges, strict=True)
        }
        candidate = Candidate(f"{family.name} {asked.number}", family, values)
        self.going[candidate.name] = asked
        return candidate


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
    return Asked(study, by)


def _name(name: str, searched: Between) -> str:
    return f"{MISSING}{name}" if searched.scale == "complement" else name
