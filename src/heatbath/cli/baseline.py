"""Whether a run is better than a constant prediction: a word where it is not, on the way and at its end."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from heatbath.answers.judging import each_loss
from heatbath.answers.simple import Examples, constant, judged
from heatbath.datasets.problem import Floats
from heatbath.runs.plan import Plan
from heatbath.runs.run import Run
from heatbath.tasks import TASKS


@dataclass(frozen=True, eq=False)
class Constant:
    """A constant prediction: its loss on each of the examples that a run is judged on, and what to do where
    that is less than the run's."""

    on: Examples
    each: Floats
    advice: str

    @property
    def loss(self) -> float:
        """Its mean."""
        return float(np.average(self.each, weights=self.on.weights))

    def against_networks(self, loss: float) -> str | None:
        """A word where the mean loss of single networks is larger, by more than its standard error."""
        error = self.each.std() / math.sqrt(len(self.each))
        return self._word("single networks", loss) if loss > self.loss + error else None

    def against_average(self, run: Run) -> str | None:
        """A word where the averaged prediction of a run is worse, by more than its standard error."""
        more = each_loss(self.on, run.predict(self.on.raw).mean) - self.each
        excess = float(np.average(more, weights=self.on.weights))
        surely = len(more) > 1 and excess > more.std(ddof=1) / math.sqrt(len(more))
        return self._word("the averaged prediction", self.loss + excess) if surely else None

    def _word(self, what: str, loss: float) -> str:
        return (
            f"a constant prediction would be better: its {self.on.split} loss is {self.loss:.4g}, and that "
            f"of {what} {loss:.4g}. {self.advice}"
        )


def constant_of(plan: Plan) -> Constant | None:
    """The constant prediction that a run of one method is held against; None where the loss of its networks
    is another one, with a variance of its own for each target or place."""
    problem, likelihood = plan.problem, plan.likelihood
    usual = likelihood.number == TASKS[problem.task].number
    several = problem.task == "regression" and problem.outputs > 1
    if problem.draws > 1 or len(plan.points) > 1 or not usual or several:
        return None
    on = judged(problem)
    own = plan.points[0].partition.posterior is None
    advice = "Try it without --method" if own else "Look at the columns, or take more rows"
    return Constant(on, each_loss(on, constant(on).mean), advice)
