"""All that is to be said of a run when it ends, computed once: for summary, pictures and report."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heatbath._internal.checks import is_real
from heatbath.cli.report.baseline import constant_of
from heatbath.cli.report.tables import Row, finite, measured, measures
from heatbath.cli.tuning import Tuning
from heatbath.datasets.tasks import TASKS
from heatbath.diagnostics import equipartition
from heatbath.diagnostics.statistics import SHARES, UNBOUNDED, Measured, student
from heatbath.evaluation import (
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
    metrics,
)
from heatbath.evaluation.baseline_models import fitted_to
from heatbath.evaluation.forecasts import POSITIVE
from heatbath.methods.partition import Partition
from heatbath.methods.schedules import Piecewise
from heatbath.runs.run import Run
from heatbath.tuning.trials import Trial, TuningResult

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


LOSSES = {"binary": "log loss", "classes": "log loss", "counts": "loss", "regression": "squared error"}


def summary(told: Told) -> dict[str, Any]:
    """All that is said of a run, as plain values that JSON has."""
    run, plan, choice = told.run, told.run.plan, told.choice
    rows = [_row(told, place, labels) for place, (labels, _) in enumerate(plan.points)]
    return {
        "command": told.command,
        "problem": plan.problem.name,
        "task": plan.problem.task,
        "train_examples": plan.problem.X_train.shape[1],
        "hidden": list(plan.network.hidden),
        "steps": run.step,
        "batch": plan.batch,
        "chains": plan.chains,
        "seed": plan.seed,
        "judged_on": _judged_on(told),
        "balanced": plan.problem.class_factors is not None,
        "best": None if choice is None or choice.best is None else rows[choice.best]["labels"],
        "chosen": None if choice is None else _chosen(told),
        "rows": rows,
        "linear_fitted_to": fitted_to(plan.problem),
        "baselines": {name: _all(values) for name, (values, _) in told.baselines.items()},
        "loss_less_than": None if told.against is None else _all(told.against),
        "confusion": _confusion(told),
        "importance": [{"column": one.column, **measured(one.rise)} for one in told.columns],
        "found": _found(run),
    }


def _judged_on(told: Told) -> dict[str, Any] | None:
    if not told.answers:
        return None
    on = told.answers[0].examples
    return {"split": on.split, "examples": len(on), "of": on.of}


def _chosen(told: Told) -> dict[str, Any]:
    """How the best was chosen."""
    choice = told.choice
    assert choice is not None
    return {
        "by": f"the {LOSSES[told.run.problem.task]} of the averaged prediction",
        "examples": len(choice.choose),
        "fair": choice.fair,
        "losses": [finite(loss) for loss in choice.losses],
    }


def _confusion(told: Told) -> dict[str, Any] | None:
    """Counts by true class (rows) and predicted class (columns)."""
    answer = told.answer
    if answer is None or answer.forecast is None or not TASKS[told.run.problem.task].classes:
        return None
    said = answer.forecast
    counts = metrics.confusion(said.mean, said.labels, said.weights)
    whole = counts.astype(np.int64) if said.weights is None else counts
    return {"classes": list(said.targets), "counts": whole.tolist()}


def _found(run: Run) -> dict[str, Any] | None:
    """What a run found by itself, with the stepsize, where it was found."""
    if run.found is None or not isinstance(run.partition, Partition):
        return None
    return ({"h": run.partition.h} if run.found.tried else {}) | run.found.plain()


def _row(told: Told, place: int, labels: dict[str, Any]) -> Row:
    """What is said of one method or point: of its averaged prediction, of its single networks, and what was
    noted in the end."""
    run = told.run
    chains = slice(place * run.plan.chains, (place + 1) * run.plan.chains)
    alive = run.died[chains] < 0
    answer = told.answers[place] if told.answers else None
    row: Row = {
        "labels": {name: _label(value) for name, value in labels.items()},
        "averaged": {} if answer is None else _all(answer.averaged),
        "single": {} if answer is None else _all(answer.single),
        "chains": len(alive),
        "diverged": int(np.count_nonzero(~alive)),
    }
    for name, split in measures(run):
        values = run.data[name].sel(split=split).values[chains][alive, -1]
        values = values[np.isfinite(values)]
        row[f"{split}_{name}"] = _over_chains(values, SHARES if name == "accuracy" else _losses(run))
    if "noise" in run.data:
        row |= _noises(run, run.data["noise"].values[chains][alive])
    single = len(run.plan.points) == 1 or run.plan.axes == ["method"]
    row["temperatures"] = _temperatures(run, labels) if single and alive.any() else {}
    return row


def _losses(run: Run) -> tuple[float, float]:
    """The bounds of the loss: that of counts, and one with a variance of the network, may be negative."""
    return UNBOUNDED if run.problem.task == "counts" or run.plan.likelihood.varying else POSITIVE


def _over_chains(values: NDArray[np.float64], bounds: tuple[float, float]) -> dict[str, float | None] | None:
    return measured(student(values, bounds=bounds)) if values.size else None


def _noises(run: Run, variances: NDArray[np.float64]) -> Row:
    """The standard deviation of the data around the networks, over the second half of a run, by target."""
    late = run.data["step"].values > run.step // 2
    deviations = np.sqrt(run.plan.likelihood.in_units(variances[:, late].mean(axis=1)))
    names = [f"noise_{target}" for target in run.problem.targets] if deviations.shape[1] > 1 else ["noise"]
    return {name: _over_chains(values, POSITIVE) for name, values in zip(names, deviations.T, strict=True)}


def _temperatures(run: Run, labels: dict[str, Any]) -> dict[str, Any]:
    """Kinetic temperatures over the second half of a run, by part, beside their targets.

    Where a temperature is changed on the way, over the second half of what comes after that.
    """
    selected = run.select(**labels) if labels else run
    methods = [part.method for part in selected.plan.parts() if part.method.measures_temperature]
    if not methods or any(method.tempering for method in methods):
        return {}
    taus = [method.temperature for method in methods]
    changed = max((tau.steps[-1] for tau in taus if isinstance(tau, Piecewise)), default=0)
    burn_in = max((min(changed, run.step) + run.step) // 2, _even_after(run.data["step"].values))
    burn_in = burn_in if (run.data["step"].values > burn_in).any() else 0
    table = equipartition(selected, burn_in=burn_in)
    columns = {"target": "target", "mean": "temperature", "low": "low", "high": "high"}
    return {
        str(part): {name: finite(float(table[column].values[i])) for name, column in columns.items()}
        for i, part in enumerate(table["part"].values)
    }


def _even_after(steps: NDArray[np.int64]) -> int:
    """The step after which records are evenly spaced, but for 1: those of a run that went on need not be."""
    apart = np.diff(steps)[::-1]
    uneven = np.flatnonzero(np.maximum.accumulate(apart) - np.minimum.accumulate(apart) > 1)
    return int(steps[len(apart) - uneven[0] - 1]) if uneven.size else 0


def _all(values: dict[str, Measured]) -> dict[str, dict[str, float | None]]:
    return {name: measured(value) for name, value in values.items()}


def _label(value: Any) -> float | str:
    return float(value) if is_real(value) and math.isfinite(value) else str(value)


SAID = ("candidates", "chains", "by", "validation", "seed")  # of its settings
SCORES = ("loss", "accuracy", "single_loss", "single_accuracy")


def search_summary(tuning: Tuning, tuned: TuningResult, told: Told | None) -> dict[str, Any]:
    """All that is said of a search, as plain values that JSON has.

    The best method is that of the search: test examples have no part in any choice.
    """
    settings = tuning.settings["search"]
    results: dict[str, Any] = {
        "command": "tune",
        "problem": tuning.problem.name,
        "task": tuning.problem.task,
        "hidden": list(tuning.search.network.hidden),
        "steps": tuning.search.steps,
        "batch": settings["batch"],
        "chains": tuning.fresh,
        "seed": tuning.seed,
        "rows": [],
    }
    if told is not None:
        results |= summary(told)
        for row in results["rows"]:
            row["temperatures"] = {}
    results["best"] = {"method": tuned.winner}
    results["colder_from"] = tuning.cold
    results["search"] = {name: settings[name] for name in SAID}
    results["search"]["methods"] = {
        family.name: _method(tuning, tuned, family.name) for family in tuned.families
    }
    return results


def _method(tuning: Tuning, tuned: TuningResult, name: str) -> dict[str, Any]:
    """What is said of a method: how many of its candidates diverged, and of its best, or why it has none."""
    own = [trial for trial in tuned.trials if trial.candidate.family.name == name]
    told: dict[str, Any] = {"diverged": sum(trial.diverged for trial in own)}
    if name not in tuned.best:
        return told | {"without": tuned.without[name]}
    cold = "" if tuning.cold is None else f".cooled({tuning.cold})"
    trial: Trial = tuned.best[name]
    return told | {
        "values": dict(trial.candidate.values),
        "steps": trial.steps,
        **{score: finite(getattr(trial, score)) for score in SCORES},
        "importance": tuned.importance.get(name, {}),
        "edges": tuned.edges.get(name, {}),
        "wider": {key: asdict(range) for key, range in tuned.wider.get(name, {}).items()},
        "code": f"{tuned.code(name)}{cold}",
        "command": tuning.command(name, trial.candidate.values),
    }
