"""Whether a run is better than a constant prediction: a word where it is not, on the way and at its end."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from heatbath.datasets.problem import Floats
from heatbath.datasets.tasks import TASKS
from heatbath.evaluation.baseline_models import EvaluationExamples, constant, judged
from heatbath.evaluation.evaluate import each_loss_of_targets
from heatbath.runs.plan import Plan
from heatbath.runs.run import Run

BALANCED = "probabilities are of a world in which all classes are equally frequent (--class-weight balanced)"


@dataclass(frozen=True, eq=False)
class ConstantBaseline:
    """A constant prediction: its loss on `each` of the examples that a run is judged on, (examples, targets),
    and what to do where that is less than the run's. `comparable` says whether the networks' own loss is of
    the same kind, and not with a variance of its own for each target or place."""

    on: EvaluationExamples
    each: Floats
    advice: str
    comparable: bool = True

    @property
    def loss(self) -> float:
        """Its mean, the sum over targets."""
        return float(np.average(self.each.sum(axis=1), weights=self.on.weights))

    def against_networks(self, loss: float) -> str | None:
        """A word where the mean loss of single networks is larger, by more than its standard error."""
        if not self.comparable or loss <= self.loss + _error(self.each.sum(axis=1)):
            return None
        return self._word([("", self.loss, loss)], "single networks")

    def against_average(self, run: Run) -> str | None:
        """A word where the averaged prediction of a run is worse, by more than its standard error, of one of
        the targets at least."""
        more = each_loss_of_targets(self.on, run.predict(self.on.raw).mean) - self.each
        if len(more) < 2:
            return None
        names = self.on.problem.targets if more.shape[1] > 1 else ("",)
        means, excesses = (
            np.average(values, axis=0, weights=self.on.weights) for values in (self.each, more)
        )
        worse = [
            (f" of {name!r}" if name else "", float(mean), float(mean + excess))
            for name, mean, excess, of_each in zip(names, means, excesses, more.T, strict=True)
            if excess > _error(of_each, ddof=1)
        ]
        return self._word(worse, "the averaged prediction") if worse else None

    def _word(self, worse: list[tuple[str, float, float]], what: str) -> str:
        """`worse` has targets, the loss of the constant, and that of the run."""
        first, *others = worse
        text = (
            f"a constant prediction{first[0]} would be better: its {self.on.split} loss is {first[1]:.4g}, "
            f"and that of {what} {first[2]:.4g}"
        )
        text += "".join(f";{target} {less:.4g} and {loss:.4g}" for target, less, loss in others)
        return f"{text}. {self.advice}"


def _error(values: Floats, ddof: int = 0) -> float:
    """The standard error of a mean."""
    return float(values.std(ddof=ddof)) / math.sqrt(len(values))


def constant_of(plan: Plan, on: EvaluationExamples | None = None) -> ConstantBaseline | None:
    """The constant prediction that a run on one data set is held against; of several methods or points the
    best, on examples that did not choose it."""
    problem, posterior = plan.problem, plan.points[0].partition.posterior
    if problem.draws > 1 or (len(plan.points) > 1 and on is None):
        return None
    on = judged(problem) if on is None else on
    several = posterior is not None and problem.task == "regression" and problem.outputs > 1
    comparable = plan.likelihood.number == TASKS[problem.task].number and not several
    advice = "Try it without --method" if posterior is None else "Look at the columns, or take more rows"
    if problem.class_factors is not None:
        comparable = comparable and on.split == "test"  # that of training rows, as noted, is by class weights
        advice = "Leave out --class-weight balanced where probabilities matter"
    return ConstantBaseline(on, each_loss_of_targets(on, constant(on).mean), advice, comparable)
