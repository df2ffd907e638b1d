"""All that is to be said of a run when it ends, computed once: for summary, pictures and report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from heatbath.answers import (
    Answer,
    Choice,
    Dependence,
    Forecast,
    Importance,
    baselines,
    choose,
    dependence,
    difference,
    examples_of,
    importance,
    judge,
)
from heatbath.cli.baseline import constant_of
from heatbath.runs.run import Run
from heatbath.statistics import Measured

MOST_JUDGED = 8  # points of which all measures are taken; of more the brief ones
LEADING = 6  # columns whose effect is shown


@dataclass(frozen=True, eq=False)
class Told:
    """A run of a command, and what is known of it.

    `answers` are by point, on the same examples; they and all else are empty where chains have different data
    sets. `place` is the point that the rest is of: the only one, or the best of several, whose `choice` is
    by other examples; None where none is left, or where a search has chosen. `against` has by how much its
    mean loss is below that of each of the `baselines`.
    """

    command: str
    run: Run
    answers: list[Answer]
    baselines: dict[str, tuple[dict[str, Measured], Forecast]]
    choice: Choice | None = None
    place: int | None = None
    against: dict[str, Measured] | None = None
    columns: tuple[Importance, ...] = ()
    effects: tuple[Dependence, ...] = ()

    @property
    def answer(self) -> Answer | None:
        """Of the point that matters."""
        return None if self.place is None else self.answers[self.place]

    @property
    def chosen(self) -> Run:
        """The run of that point."""
        return _point(self.run, self.place or 0)


def warn_of_best(told: Told, best: Mapping[str, Any]) -> str | None:
    """A word where a constant prediction would be better than the best of several methods or points."""
    if not told.answers:
        return None
    place = next(i for i, point in enumerate(told.run.plan.points) if point.labels == best)
    constant = constant_of(told.run.plan, told.answers[place].examples)
    if constant is None or told.answers[place].forecast is None:
        return None
    return constant.against_average(_point(told.run, place))


def tell(command: str, run: Run) -> Told:
    """Judge a run: of several points each, and the best of them in all that there is."""
    on, points = examples_of(run), len(run.plan.points)
    if on is None:
        return Told(command, run, [], {})
    choice = choose(run, on) if points > 1 and command != "tune" else None
    on = on if choice is None else on.some(choice.tell)
    place = (0 if points == 1 else None) if choice is None else choice.best
    brief = points > MOST_JUDGED
    answers = [judge(_point(run, i), on, brief and i != place) for i in range(points)]
    bases = baselines(on)
    if place is None or command == "tune" or answers[place].forecast is None:
        return Told(command, run, answers, bases, choice)
    said, chosen = answers[place].forecast, _point(run, place)
    assert said is not None
    against = {name: difference(on, other, said) for name, (_, other) in bases.items()}
    columns = importance(chosen, on)
    leading = [one.column for one in columns[:LEADING]]
    effects = dependence(chosen, leading, on)
    return Told(command, run, answers, bases, choice, place, against, tuple(columns), tuple(effects))


def _point(run: Run, place: int) -> Run:
    """The run of one point."""
    labels = run.plan.points[place].labels
    return run.select(**labels) if len(run.plan.points) > 1 else run
