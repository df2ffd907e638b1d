"""Compute the contents of a report on a run or a search.

The result is one value: summary.json is its `to_json`, and the terminal, Markdown and HTML lay it out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from heatbath import evaluation
from heatbath._internal.checks import is_real
from heatbath.cli.report.baseline import constant_baseline
from heatbath.cli.tuning import Tuning
from heatbath.datasets import Problem
from heatbath.datasets.problem import Floats
from heatbath.datasets.tasks import TASKS
from heatbath.diagnostics import equipartition
from heatbath.diagnostics.statistics import SHARES, UNBOUNDED, Measured, student
from heatbath.evaluation import Answer, Choice, Dependence, EvaluationExamples, Forecast, Importance, metrics
from heatbath.evaluation.baseline_models import linear_training_size
from heatbath.evaluation.forecasts import POSITIVE
from heatbath.methods.partition import Partition
from heatbath.methods.schedules import Piecewise
from heatbath.runs.adaptation_record import Found
from heatbath.runs.run import Run
from heatbath.tuning.trials import TuningResult

Json = dict[str, Any]
T = TypeVar("T")
MOST_DETAILED = 8  # points with all measures; with more points all but the best have the brief ones
MOST_DEPENDENCES = 6  # columns whose effect is shown
LOSS_NAMES = {"binary": "log loss", "classes": "log loss", "counts": "loss", "regression": "squared error"}


class PartTemperature(NamedTuple):
    """The kinetic temperature of a part, beside its target."""

    target: float
    value: Measured

    def to_json(self) -> Json:
        """Return the numbers under their keys in summary.json."""
        return {"target": finite_or_none(self.target), **measured_to_json(self.value)}


@dataclass(frozen=True, eq=False)
class PointReport:
    """Quality of one method of a comparison, or of one point of a sweep.

    Attributes
    ----------
    labels
        The method, or the coefficients of the point.
    averaged, single
        Measures of its averaged prediction, and means over its single networks, by name.
    chains, diverged
        Number of its chains, and of those that diverged.
    recorded
        Means over chains of the last recorded losses and accuracies, and of the noise, by name; None if no
        chain has a finite one.
    temperatures
        Kinetic temperature of each part.
    """

    labels: dict[str, float | str]
    averaged: dict[str, Measured]
    single: dict[str, Measured]
    chains: int
    diverged: int
    recorded: dict[str, Measured | None]
    temperatures: dict[str, PartTemperature]

    def to_json(self) -> Json:
        """Return the point as an entry of `rows` in summary.json."""
        recorded = {name: _if_known(measured_to_json, value) for name, value in self.recorded.items()}
        return {
            "labels": self.labels,
            "averaged": _measures_to_json(self.averaged),
            "single": _measures_to_json(self.single),
            "chains": self.chains,
            "diverged": self.diverged,
            **recorded,
            "temperatures": {part: value.to_json() for part, value in self.temperatures.items()},
        }


@dataclass(frozen=True, eq=False)
class RunReport:
    """Results of a run, from which the terminal, Markdown, HTML and JSON are made.

    Attributes
    ----------
    command
        The command that made the run.
    run
        The run of all points.
    points
        Quality of each method or point.
    examples
        Examples on which all points are evaluated; None where the chains have different data sets. Then only
        the `recorded` values of the points are known.
    baselines
        Measures and forecasts of a constant prediction and a linear model, by name.
    choice
        How the best of several points was chosen; None for a single point, or if a search has chosen.
    best
        Index of the best point, if there was a choice.
    forecast
        Averaged prediction of the only point or of the best one; None if there is no such point. The
        attributes below belong to the same point.
    gains
        By how much the mean loss of the forecast is below that of each baseline.
    importances, dependences
        The columns by importance, and the effects of the most important ones.
    """

    command: str
    run: Run
    points: list[PointReport]
    examples: EvaluationExamples | None
    baselines: dict[str, tuple[dict[str, Measured], Forecast]]
    choice: Choice | None = None
    best: int | None = None
    forecast: Forecast | None = None
    gains: dict[str, Measured] | None = None
    importances: Sequence[Importance] = ()
    dependences: Sequence[Dependence] = ()

    @property
    def problem(self) -> Problem:
        """Problem of the run."""
        return self.run.problem

    @property
    def described(self) -> PointReport:
        """Point that `forecast` belongs to."""
        return self.points[self.best or 0]

    def to_json(self) -> Json:
        """Return the report as summary.json has it.

        Values that don't exist, such as the confusion of a regression, are None.
        """
        run = self.run
        plan = run.plan
        problem = self.problem
        best = None if self.best is None else self.points[self.best].labels
        return {
            "command": self.command,
            "problem": problem.name,
            "task": problem.task,
            "train_examples": problem.X_train.shape[1],
            "hidden": list(plan.network.hidden),
            "steps": run.step,
            "batch": plan.batch,
            "chains": plan.chains,
            "seed": plan.seed,
            "judged_on": _if_known(_examples_to_json, self.examples),
            "balanced": problem.class_factors is not None,
            "best": best,
            "chosen": _if_known(partial(_choice_to_json, problem), self.choice),
            "rows": [point.to_json() for point in self.points],
            "linear_fitted_to": linear_training_size(problem),
            "baselines": {name: _measures_to_json(values) for name, (values, _) in self.baselines.items()},
            "loss_less_than": _if_known(_measures_to_json, self.gains),
            "confusion": self._confusion_to_json(),
            "importance": [
                {"column": item.column, **measured_to_json(item.rise)} for item in self.importances
            ],
            "found": self._found_to_json(),
        }

    def _confusion_to_json(self) -> Json | None:
        """Return the confusion with the names of classes; None without classes."""
        counts = self.confusion()
        return None if counts is None else {"classes": list(self.problem.targets), "counts": counts}

    def _found_to_json(self) -> Json | None:
        """Return what the run found by itself, with its stepsize if that was found; None if nothing."""
        if self.found is None:
            return None
        if self.found_stepsize is None:
            return self.found.plain()
        return {"h": self.found_stepsize, **self.found.plain()}

    def confusion(self) -> list[list[float]] | None:
        """Count examples by true class (rows) and predicted class (columns); None without classes."""
        forecast = self.forecast
        if forecast is None or not TASKS[forecast.task].classes:
            return None
        sums = metrics.confusion(forecast.mean, forecast.labels, forecast.weights)
        counts: list[list[float]] = sums.tolist()
        if forecast.weights is None:
            counts = sums.astype(np.int64).tolist()
        return counts

    @property
    def found(self) -> Found | None:
        """Record of what the run found by itself; None if nothing, or for several methods."""
        return self.run.found if isinstance(self.run.partition, Partition) else None

    @property
    def found_stepsize(self) -> float | None:
        """Stepsize that the run found by itself; None if the user chose it."""
        partition = self.run.partition
        if self.found is None or not self.found.tried or not isinstance(partition, Partition):
            return None
        return partition.h  # type: ignore[return-value]  # a number, once it is found


def report_on_run(command: str, run: Run) -> RunReport:
    """Evaluate all points of a run, and describe its only point or the best one in detail.

    To keep the comparison fair, half of the examples choose the best of several points, and the other half
    evaluates all of them.

    Parameters
    ----------
    command
        "train", "compare", "sweep" or "tune". The best method of "tune" was chosen by its search, on
        validation examples, so it isn't chosen again.
    run
        The finished run.
    """
    examples = evaluation.examples_of(run)
    point_count = len(run.plan.points)
    if examples is None:
        points = [_point_report(command, run, index, None) for index in range(point_count)]
        return RunReport(command, run, points, None, {})

    choice = None
    best = None
    if point_count > 1 and command != "tune":
        choice = evaluation.choose(run, examples)
        best = choice.best
        examples = examples.some(choice.tell)
    described = 0 if point_count == 1 else best

    answers = []
    for index in range(point_count):
        is_brief = point_count > MOST_DETAILED and index != described
        answers.append(evaluation.judge(run_of_point(run, index), examples, brief=is_brief))
    points = [_point_report(command, run, index, answer) for index, answer in enumerate(answers)]
    report = RunReport(command, run, points, examples, evaluation.baselines(examples), choice, best)

    if described is None or command == "tune":
        return report
    forecast = answers[described].forecast
    if forecast is None:
        return report
    return _with_details(report, examples, run_of_point(run, described), forecast)


def _with_details(report: RunReport, examples: EvaluationExamples, run: Run, forecast: Forecast) -> RunReport:
    """Return the report with the details of one point.

    Parameters
    ----------
    report
        The report on all points.
    examples
        Examples on which the point is evaluated.
    run, forecast
        The run of this point, and its averaged prediction.
    """
    gains = {
        name: evaluation.difference(examples, baseline, forecast)
        for name, (_, baseline) in report.baselines.items()
    }
    importances = evaluation.importance(run, examples)
    leading = [item.column for item in importances[:MOST_DEPENDENCES]]
    effects = evaluation.dependence(run, leading, examples)
    return replace(report, forecast=forecast, gains=gains, importances=importances, dependences=effects)


def run_of_point(run: Run, index: int) -> Run:
    """Return the run of one method or point."""
    labels = run.plan.points[index].labels
    return run.select(**labels) if len(run.plan.points) > 1 else run


def warning_of_best(report: RunReport) -> str | None:
    """Return a warning if a constant prediction would be better than the best of several points."""
    if report.examples is None or report.best is None or not report.described.averaged:
        return None
    constant = constant_baseline(report.run.plan, report.examples)
    return None if constant is None else constant.warn_of_average(run_of_point(report.run, report.best))


def recorded_measures(run: Run) -> list[tuple[str, str]]:
    """Return the recorded measures as pairs such as ("accuracy", "test"), most informative first."""
    splits = ["test", "train"] if run.problem.X_test.shape[1] else ["train"]
    names = ["accuracy", "loss"] if TASKS[run.problem.task].classes else ["loss"]
    return [(name, split) for name in names for split in splits]


def _point_report(command: str, run: Run, index: int, answer: Answer | None) -> PointReport:
    """Report on one method or point of a run.

    Parameters
    ----------
    command
        The command that made the run.
    run
        The run of all points.
    index
        Index of the point.
    answer
        Its evaluation on examples; None where the chains have different data sets.
    """
    plan = run.plan
    labels = plan.points[index].labels
    chains = slice(index * plan.chains, (index + 1) * plan.chains)
    is_alive = run.died[chains] < 0  # chains that diverged have the step at which they did

    recorded = {}
    for name, split in recorded_measures(run):
        last_values = run.data[name].sel(split=split).values[chains][is_alive, -1]
        bounds = SHARES if name == "accuracy" else _loss_bounds(run)
        recorded[f"{split}_{name}"] = _mean_over_chains(last_values[np.isfinite(last_values)], bounds)
    if "noise" in run.data:
        recorded |= _noise_by_target(run, run.data["noise"].values[chains][is_alive])

    averaged: dict[str, Measured] = {}
    single: dict[str, Measured] = {}
    if answer is not None:
        averaged = answer.averaged
        single = answer.single

    temperatures = {}
    has_few_points = len(plan.points) == 1 or plan.axes == ["method"]
    if command != "tune" and has_few_points and is_alive.any():
        temperatures = _temperatures(run, labels)
    return PointReport(
        labels={name: _plain_label(value) for name, value in labels.items()},
        averaged=averaged,
        single=single,
        chains=len(is_alive),
        diverged=int(np.count_nonzero(~is_alive)),
        recorded=recorded,
        temperatures=temperatures,
    )


def _loss_bounds(run: Run) -> tuple[float, float]:
    """Return the bounds of a loss: only that of counts, or with a predicted variance, may be negative."""
    return UNBOUNDED if run.problem.task == "counts" or run.plan.likelihood.varying else POSITIVE


def _mean_over_chains(values: Floats, bounds: tuple[float, float]) -> Measured | None:
    """Return the mean of values, (chains,), with its interval within bounds; None without values."""
    return student(values, bounds=bounds) if values.size else None


def _noise_by_target(run: Run, variances: Floats) -> dict[str, Measured | None]:
    """Return the standard deviation of the noise of each target, averaged over the second half of the run.

    Parameters
    ----------
    run
        The run, with the steps of its records.
    variances
        Recorded variances in units of the network, (chains, records, targets).
    """
    is_late = run.data["step"].values > run.step // 2
    deviations = np.sqrt(run.plan.likelihood.in_units(variances[:, is_late].mean(axis=1)))
    if deviations.shape[1] == 1:
        return {"noise": _mean_over_chains(deviations[:, 0], POSITIVE)}

    noise = {}
    for target, deviations_of_target in zip(run.problem.targets, deviations.T, strict=True):
        noise[f"noise_{target}"] = _mean_over_chains(deviations_of_target, POSITIVE)
    return noise


def _temperatures(run: Run, labels: Mapping[str, Any]) -> dict[str, PartTemperature]:
    """Return the kinetic temperature of each part over the second half of a run.

    If the target temperature changes in steps, only the time after the last change counts. Methods that
    measure no temperature, and simulated tempering, have none.

    Parameters
    ----------
    run
        The run of all points.
    labels
        Labels of the point.
    """
    point = run.select(**labels) if labels else run
    methods = [part.method for part in point.plan.parts() if part.method.measures_temperature]
    if not methods or any(method.tempering for method in methods):
        return {}

    burn_in = _burn_in(run, [method.temperature for method in methods])
    table = equipartition(point, burn_in=burn_in)
    columns = [table[name].values for name in ("target", "temperature", "low", "high")]
    rows = np.column_stack(columns).tolist()

    temperatures = {}
    for part, (target, *estimate) in zip(table["part"].values, rows, strict=True):
        temperatures[str(part)] = PartTemperature(target, Measured(*estimate))
    return temperatures


def _burn_in(run: Run, taus: Sequence[object]) -> int:
    """Return the step after which temperatures are averaged, or 0 if there are no later records.

    Parameters
    ----------
    run
        The run, with the steps of its records.
    taus
        Target temperatures, which may change in steps.
    """
    last_change = max((tau.steps[-1] for tau in taus if isinstance(tau, Piecewise)), default=0)
    middle = (min(last_change, run.step) + run.step) // 2
    steps = run.data["step"].values
    burn_in = max(middle, _start_of_even_spacing(steps))
    return burn_in if (steps > burn_in).any() else 0


def _start_of_even_spacing(steps: NDArray[np.int64]) -> int:
    """Return the step after which records are evenly spaced, up to differences of one step.

    The records of a run that was extended need not be evenly spaced.

    Parameters
    ----------
    steps
        Steps of the records, in ascending order.
    """
    gaps = np.diff(steps)[::-1]
    uneven = np.flatnonzero(np.maximum.accumulate(gaps) - np.minimum.accumulate(gaps) > 1)
    return int(steps[len(gaps) - uneven[0] - 1]) if uneven.size else 0


def finite_or_none(value: float) -> float | None:
    """Return a number as JSON can hold it: None for NaN and infinities."""
    return value if math.isfinite(value) else None


def _if_known(to_json: Callable[[T], Json], value: T | None) -> Json | None:
    """Return what a function makes of a value; None stays None."""
    return None if value is None else to_json(value)


def measured_to_json(value: Measured) -> Json:
    """Return a mean and the ends of its interval under the keys of summary.json."""
    keys = ("mean", "low", "high")
    return {key: finite_or_none(number) for key, number in zip(keys, value, strict=True)}


def _measures_to_json(measures: Mapping[str, Measured]) -> Json:
    """Return measures by name as summary.json has them."""
    return {name: measured_to_json(value) for name, value in measures.items()}


def _examples_to_json(examples: EvaluationExamples) -> Json:
    """Return which examples, and how many of how many, a report is based on."""
    return {"split": examples.split, "examples": len(examples), "of": examples.of}


def choice_rule(problem: Problem) -> str:
    """Return the criterion by which the best of several points is chosen, in words."""
    return f"the {LOSS_NAMES[problem.task]} of the averaged prediction"


def _choice_to_json(problem: Problem, choice: Choice) -> Json:
    """Return by what, and on how many examples, the best point was chosen."""
    return {
        "by": choice_rule(problem),
        "examples": len(choice.choose),
        "fair": choice.fair,
        "losses": [finite_or_none(loss) for loss in choice.losses],
    }


def _plain_label(value: object) -> float | str:
    """Return the value of a label as a finite number or as text."""
    if is_real(value) and math.isfinite(value):
        return float(value)
    return str(value)


@dataclass(frozen=True, eq=False)
class SearchReport:
    """Results of a search: the best candidate of each method, and its fresh runs.

    The best method is that of the search: test examples have no part in any choice.

    Attributes
    ----------
    tuning
        The search with its settings.
    result
        What the search found.
    fresh
        Report on the fresh runs of the best candidates; None without fresh runs.
    """

    tuning: Tuning
    result: TuningResult
    fresh: RunReport | None

    @property
    def problem(self) -> Problem:
        """Problem of the search."""
        return self.tuning.problem

    def command(self, method: str) -> str:
        """Return the command line that trains with the best coefficients of a method."""
        return self.tuning.command(method, self.result.best[method].candidate.values)

    def to_json(self) -> Json:
        """Return the report as summary.json has it.

        It has the keys of a report on a run, those of the fresh runs if there are any, and `search`.
        """
        tuning = self.tuning
        settings = tuning.settings["search"]
        values: Json = {
            "command": "tune",
            "problem": self.problem.name,
            "task": self.problem.task,
            "hidden": list(tuning.search.network.hidden),
            "steps": tuning.search.steps,
            "batch": settings["batch"],
            "chains": tuning.fresh_chains,
            "seed": tuning.seed,
            "rows": [],
        }
        if self.fresh is not None:
            values |= self.fresh.to_json()
        search = {name: settings[name] for name in ("candidates", "chains", "by", "validation", "seed")}
        methods = {family.name: self._method_to_json(family.name) for family in self.result.families}
        return values | {
            "best": {"method": self.result.winner},
            "colder_from": tuning.cold_from,
            "search": search | {"methods": methods},
        }

    def _method_to_json(self, name: str) -> Json:
        """Return the outcome of the search for one method.

        Parameters
        ----------
        name
            Label of the method. Without a candidate that survived, the reason is returned under `without`.
        """
        result = self.result
        trials = [trial for trial in result.trials if trial.candidate.family.name == name]
        diverged = sum(trial.diverged for trial in trials)
        best = result.best.get(name)
        if best is None:
            return {"diverged": diverged, "without": result.without[name]}

        cooling = "" if self.tuning.cold_from is None else f".cooled({self.tuning.cold_from})"
        scores = ("loss", "accuracy", "single_loss", "single_accuracy")
        return {
            "diverged": diverged,
            "values": dict(best.candidate.values),
            "steps": best.steps,
            **{score: finite_or_none(getattr(best, score)) for score in scores},
            "importance": result.importance.get(name, {}),
            "edges": result.edges.get(name, {}),
            "wider": {key: asdict(span) for key, span in result.wider.get(name, {}).items()},
            "code": f"{result.code(name)}{cooling}",
            "command": self.command(name),
        }


def report_on_search(tuning: Tuning, result: TuningResult, run: Run | None) -> SearchReport:
    """Report on a search, and on the fresh runs of its best candidates if there are any."""
    if run is None:
        return SearchReport(tuning, result, None)
    fresh = report_on_run("tune", run)
    methods = [point.labels["method"] for point in fresh.points]
    return SearchReport(tuning, result, replace(fresh, best=methods.index(result.winner)))
