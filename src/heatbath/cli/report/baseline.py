"""Warn of runs that predict worse than a constant, while they train and when they end."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from heatbath.datasets.problem import Floats
from heatbath.datasets.tasks import TASKS
from heatbath.evaluation.baseline_models import EvaluationExamples, constant_forecast, evaluation_examples
from heatbath.evaluation.evaluate import target_losses
from heatbath.runs.plan import Plan
from heatbath.runs.run import Run

BALANCED = (
    "the predicted probabilities hold where all classes are equally frequent (--class-weight balanced), not "
    "for data like yours"
)


@dataclass(frozen=True, eq=False)
class ConstantBaseline:
    """Losses of a constant prediction, to compare a run with.

    Attributes
    ----------
    examples
        Examples on which the run is evaluated.
    losses
        Losses of the constant prediction, (examples, targets).
    advice
        What the user should try if the run is worse.
    comparable
        True if the loss that single networks report while they train can be compared with these losses: it
        isn't weighted by class, and has no variance of its own for each target or example.
    """

    examples: EvaluationExamples
    losses: Floats
    advice: str
    comparable: bool = True

    @property
    def loss(self) -> float:
        """Mean over examples of the loss, summed over targets."""
        return float(np.average(self.losses.sum(axis=1), weights=self.examples.weights))

    def warn_of_networks(self, loss: float) -> str | None:
        """Return a warning if single networks are worse than the constant, and None otherwise.

        Parameters
        ----------
        loss
            Their mean loss. It must exceed that of the constant by more than the standard error.
        """
        if not self.comparable or loss <= self.loss + _standard_error(self.losses.sum(axis=1)):
            return None
        return self._warning([self._comparison("", self.loss, loss, "single networks")])

    def warn_of_average(self, run: Run) -> str | None:
        """Return a warning if the averaged prediction of a run is worse for at least one target, or None.

        Worse means that its mean loss is larger by more than the standard error of the paired difference. A
        single example has no standard error, so it never causes a warning.
        """
        examples = self.examples
        excess = target_losses(examples, run.predict(examples.raw).mean) - self.losses
        if len(excess) < 2:
            return None

        mean_excess = np.average(excess, axis=0, weights=examples.weights)
        constant_losses = np.average(self.losses, axis=0, weights=examples.weights)
        names = examples.problem.targets if excess.shape[1] > 1 else ("",)
        worse = []
        for k, name in enumerate(names):
            if mean_excess[k] > _standard_error(excess[:, k], ddof=1):
                loss = float(constant_losses[k] + mean_excess[k])
                worse.append(self._comparison(name, constant_losses[k], loss, "the averaged prediction"))
        return self._warning(worse) if worse else None

    def _comparison(self, target: str, constant_loss: float, loss: float, predictor: str) -> str:
        """Return a clause with the losses of the constant and of a predictor; `target` "" isn't named."""
        subject = f"for {target!r} its" if target else "its"
        constant_clause = f"{subject} {self.examples.split} loss is {constant_loss:.4g}"
        return f"{constant_clause}, and that of {predictor} {loss:.4g}"

    def _warning(self, comparisons: list[str]) -> str:
        """Return a warning with a clause for each target that is worse, followed by the advice."""
        return f"a constant prediction would be better: {'; '.join(comparisons)}. {self.advice}"


def _standard_error(values: Floats, ddof: int = 0) -> float:
    """Return the standard error of the mean of values, (examples,)."""
    return float(values.std(ddof=ddof)) / math.sqrt(len(values))


def constant_baseline(plan: Plan, examples: EvaluationExamples | None = None) -> ConstantBaseline | None:
    """Return the constant prediction to compare a run with.

    Parameters
    ----------
    plan
        Plan of the run.
    examples
        Examples to evaluate on; None takes those of the problem, for a run of a single point. With several
        methods or points, they must be given, and not be the ones by which the best was chosen.

    Returns
    -------
    ConstantBaseline or None
        None if the chains have different data sets, or there are several points and no examples.
    """
    problem = plan.problem
    if problem.draws > 1 or (len(plan.points) > 1 and examples is None):
        return None
    if examples is None:
        examples = evaluation_examples(problem)

    posterior = plan.points[0].partition.posterior
    is_balanced = problem.class_factors is not None
    if is_balanced:
        advice = "Leave out --class-weight balanced if you need probabilities"
    elif posterior is None:
        advice = "Try it without --method"
    else:
        advice = "Check the columns, or take more rows"

    has_several_variances = posterior is not None and problem.task == "regression" and problem.outputs > 1
    has_unweighted_losses = not is_balanced or examples.split == "test"  # training losses have class weights
    is_comparable = plan.likelihood.number == TASKS[problem.task].number and has_unweighted_losses
    losses = target_losses(examples, constant_forecast(examples).mean)
    return ConstantBaseline(examples, losses, advice, is_comparable and not has_several_variances)
