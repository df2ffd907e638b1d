"""Take candidates from a study of Optuna, through its ask-and-tell interface."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from heatbath.tuning.search_space import Candidate, Family
from heatbath.tuning.trials import Trial

if TYPE_CHECKING:
    import optuna

BATCH = 16  # candidates that are asked for, and trained in one ensemble, at a time
COMPLEMENT = "1 - "  # prefix of the name of a coefficient near 1: the study's parameter is its complement


@dataclass(frozen=True, eq=False)
class Asked:
    """A study of Optuna and its open trials.

    Parameters
    ----------
    study
        The study.
    by
        The score that it optimises.
    going
        Open trials by the names of their candidates; `ask` adds them, `tell` removes them.
    """

    study: optuna.Study
    by: Literal["loss", "accuracy"]
    going: dict[str, optuna.Trial] = field(default_factory=dict)

    def ask(self, family: Family, count: int) -> list[Candidate]:
        """Return `count` new candidates and open their trials; if that fails, close all of them as failed."""
        from optuna.trial import TrialState

        try:
            return [self._candidate(family) for _ in range(count)]
        except BaseException:
            for open_trial in self.going.values():
                self.study.tell(open_trial, state=TrialState.FAIL)
            raise

    def report(self, trials: Iterable[Trial]) -> None:
        """Report the scores at the end of a rung to the study; diverged candidates have none."""
        for trial in trials:
            if not trial.diverged:
                self.going[trial.name].report(self._score(trial), trial.steps)

    def tell(self, trials: Iterable[Trial], steps: int) -> None:
        """Close the trials of candidates: those that made all `steps` get their score.

        The others are pruned, or failed if they were never judged.
        """
        from optuna.trial import TrialState

        for trial in trials:
            open_trial = self.going.pop(trial.name)
            if trial.steps == steps and not trial.diverged:
                self.study.tell(open_trial, self._score(trial))
                continue
            state = TrialState.PRUNED if trial.steps else TrialState.FAIL
            self.study.tell(open_trial, state=state)

    def _score(self, trial: Trial) -> float:
        return trial.loss if self.by == "loss" else trial.accuracy

    def _candidate(self, family: Family) -> Candidate:
        """Return the candidate of a new trial of the study, which becomes an open one."""
        open_trial = self.study.ask(distributions(family))
        values = {}
        for name, parameter in zip(family.ranges, distributions(family), strict=True):
            value = float(open_trial.params[parameter])
            values[name] = 1.0 - value if parameter.startswith(COMPLEMENT) else value
        candidate = Candidate(f"{family.name} {open_trial.number}", family, values)
        self.going[candidate.name] = open_trial
        return candidate


def distributions(family: Family) -> dict[str, optuna.distributions.BaseDistribution]:
    """Return the distribution of each parameter of a study, by name, in the order of a method's coefficients.

    The parameter of a coefficient near 1, such as β₁, is its complement "1 - beta1".
    """
    from optuna.distributions import FloatDistribution

    parameters: dict[str, optuna.distributions.BaseDistribution] = {}
    for name, between in family.ranges.items():
        low, high = between.range()
        if between.scale == "complement":
            parameters[f"{COMPLEMENT}{name}"] = FloatDistribution(1.0 - high, 1.0 - low, log=True)
        else:
            parameters[name] = FloatDistribution(low, high, log=between.scale != "linear")
    return parameters


def batches(candidates: int) -> list[int]:
    """Return how many candidates to ask for in each batch, at most 16."""
    return [min(BATCH, candidates - first) for first in range(0, candidates, BATCH)]


def checked(study: object, families: list[Family], by: Literal["loss", "accuracy"]) -> Asked:
    """Return a study that proposes candidates, after checking that it suits the search.

    Parameters
    ----------
    study
        The user's study.
    families
        Must be one method with ranges.
    by
        Score to optimise; the study's direction must be its own.

    Raises
    ------
    TypeError, ValueError
        If it isn't a study, has another direction, or has trials of another search.
    """
    try:
        import optuna
    except ModuleNotFoundError:
        raise ModuleNotFoundError("study needs Optuna, an extra: pip install 'heatbath[optuna]'") from None
    if not isinstance(study, optuna.Study):
        raise TypeError(f"study must be a study of Optuna, as optuna.create_study() makes it, got {study!r}")
    if len(families) > 1 or not families[0].ranges:
        family_names = ", ".join(family.name for family in families)
        raise ValueError(
            f"a study looks for the coefficients of one method with ranges, got {family_names}: call tune "
            "for each, with a study of its own"
        )
    needed_direction = "minimize" if by == "loss" else "maximize"
    directions = [direction.name.lower() for direction in study.directions]
    if directions != [needed_direction]:
        raise ValueError(
            f"by={by!r} needs create_study(direction={needed_direction!r}), got {', '.join(directions)}"
        )
    _check_past_trials(study, families[0])
    return Asked(study, by)


def _check_past_trials(study: optuna.Study, family: Family) -> None:
    """Raise ValueError if a study has trials with other parameters than those of a method."""
    needed = _kinds(distributions(family))
    for trial in study.get_trials(deepcopy=False):
        present = _kinds(trial.distributions)
        if present and present != needed:
            raise ValueError(
                f"the study has trials of another search, with {_listed(present)}, and this one has "
                f"{_listed(needed)}: take a new study, as optuna.create_study() makes it"
            )


def _kinds(parameters: dict[str, optuna.distributions.BaseDistribution]) -> dict[str, str]:
    """Return the type and scale of each parameter: what a study doesn't allow to change, unlike its ends."""
    kinds = {}
    for name, distribution in parameters.items():
        kind = type(distribution).__name__.removesuffix("Distribution").lower()
        kinds[name] = f"{kind}, logarithmic" if getattr(distribution, "log", False) else kind
    return kinds


def _listed(kinds: dict[str, str]) -> str:
    """Return parameters and their kinds as text."""
    return ", ".join(f"{name} ({kind})" for name, kind in kinds.items())
