"""`heatbath predict`: what a run's networks say of new data."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heatbath.cli.errors import FAILURE, USAGE, emit, ending

if TYPE_CHECKING:
    from heatbath.runs.run import Run


def predict(
    run: Annotated[Path, typer.Argument(help="A run.nc, or the folder it is in.", metavar="RUN")],
    file: Annotated[
        Path, typer.Argument(help="New data: CSV or Parquet, with the run's columns.", metavar="FILE")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", help="A new CSV file (default: CSV on stdout).")
    ] = None,
    select: Annotated[
        list[str] | None,
        typer.Option(
            help="Of a comparison or a sweep, which: method=AdLaLa, or tau=1e-4; one for each axis."
        ),
    ] = None,
    coverage: Annotated[
        float | None,
        typer.Option(
            help="Of counts, or a regression with a posterior: how many of new data lie in the intervals "
            "(0.9)."
        ),
    ] = None,
) -> None:
    """Predict: the new data with columns of what the networks of a run say of them, together.

    Classes: prediction, a probability for each class, and entropy (in nats). Regression: prediction, and std,
    the standard deviation over the networks. Counts, and a regression with a posterior: prediction, and sd,
    low and high: the standard deviation of new data, and the ends between which they lie, by the samples of
    the run (or its chains if none were kept) and, where noise is normal, its training examples, each left
    out. A name that the data have already gets heatbath_ before it.
    """
    from heatbath.cli.folders import RUN
    from heatbath.cli.tables import read_table
    from heatbath.runs.run import load
    from heatbath.writing import write

    with ending(USAGE):
        if out is not None and out.exists():
            raise FileExistsError(f"{out} is there already, so it is left alone: choose another --out")
        table = read_table(file)
    with ending(FAILURE):
        trained = load(run / RUN if run.is_dir() else run)
    with ending(USAGE):
        pairs = [_label(text) for text in select or []]
        labels = dict(pairs)
        if len(labels) < len(pairs):
            raise ValueError(f"--select names one axis twice: {', '.join(select or [])}")
        if len(trained.plan.points) > 1 and not labels:
            asked = " ".join(f"--select {axis}=..." for axis in trained.plan.axes)
            raise ValueError(f"{run} has {len(trained.plan.points)} methods or points: say which, {asked}")
        chosen = trained.select(**labels) if labels else trained
        columns = [table.column(name) for name in chosen.problem.features]
        new = _new_columns(chosen, [list(row) for row in zip(*columns, strict=True)], coverage)
        new = {_free(name, table.header): values for name, values in new.items()}
    with ending(FAILURE):
        text = _csv(table.header, [row for _, row in table.rows], new)
        write(out, text) if out is not None else emit(text)


def _label(text: str) -> tuple[str, object]:
    """A name and a value, a number if it is one."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"--select is written as method=AdLaLa or tau=1e-4, got {text!r}")
    try:
        return name, float(value)
    except ValueError:
        return name, value


def _free(name: str, header: list[str]) -> str:
    """A name for a new column that no column has."""
    while name in header:
        name = f"heatbath_{name}"
    return name


def _new_columns(run: Run, rows: list[list[float]], coverage: float | None) -> dict[str, list[Any]]:
    """The new columns."""
    import numpy as np

    from heatbath.tasks import TASKS

    problem = run.problem
    X = np.array(rows).reshape(-1, problem.inputs)
    posterior = run.plan.points[0].partition.posterior
    of_data = problem.task == "counts" or (problem.task == "regression" and posterior is not None)
    if coverage is not None and not of_data:
        raise ValueError(
            "--coverage is of counts, or of new data in a regression, whose noise this run does not know: "
            "train with a posterior, such as --prior 1"
        )
    prediction = run.predict(X)
    mean = prediction.mean
    if not TASKS[problem.task].classes:
        columns = {"prediction": mean, "std": prediction.sd}
        if of_data:
            low, high = run.calibration().interval(run.predictive(X), 0.9 if coverage is None else coverage)
            columns = {"prediction": mean, "sd": prediction.sd, "low": low, "high": high}
        single = len(problem.targets) == 1
        named = [("" if single else f"_{target}", i) for i, target in enumerate(problem.targets)]
        return {f"{name}{end}": v[:, i].tolist() for name, v in columns.items() for end, i in named}
    shares = mean if problem.outputs > 1 else np.concatenate([1 - mean, mean], axis=1)
    names = [problem.targets[place] for place in shares.argmax(axis=1)]
    probabilities = {f"probability_{name}": shares[:, i].tolist() for i, name in enumerate(problem.targets)}
    return {"prediction": names, **probabilities, "entropy": prediction.entropy.tolist()}


def _csv(header: list[str], rows: list[list[Any]], new: dict[str, list[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*header, *new])
    for row, values in zip(rows, zip(*new.values(), strict=True), strict=True):
        writer.writerow([*row, *values])
    return text.getvalue()
