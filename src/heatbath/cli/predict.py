"""`heatbath predict`: what a run's networks say of new data."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from json import dumps
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heatbath.cli.errors import FAILURE, USAGE, emit, ending

if TYPE_CHECKING:
    import pandas as pd

    from heatbath.datasets.problem import Floats
    from heatbath.runs.run import Run


def predict(
    run: Annotated[Path, typer.Argument(help="A run.nc, or the folder it is in.", metavar="RUN")],
    file: Annotated[
        Path,
        typer.Argument(
            help="New data with the run's columns, in any order: CSV or Parquet; - is the standard input.",
            metavar="FILE",
        ),
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
    json: Annotated[
        bool, typer.Option("--json", help="JSON in place of CSV: a line for each row, with one object.")
    ] = False,
) -> None:
    """Predict: the new data with columns of what the networks of a run say of them, together.

    Classes: prediction, a probability for each class, and entropy (in nats). Regression: prediction, and std,
    the standard deviation over the networks. Counts, and a regression with a posterior: prediction, and sd,
    low and high: the standard deviation of new data, and the ends between which they lie, by the samples of
    the run (or its chains if none were kept) and, where noise is normal, its training examples, each left
    out. A name that the data have already gets heatbath_ before it. Whatever the file is like, what is
    written has commas between cells, and numbers with decimal points.

    Rows of a stream are answered as they come, one by one or as many as are there.

    heatbath predict my-run FILE.csv --out predictions.csv

    tail -f FILE.csv | heatbath predict my-run - --json
    """
    from heatbath._internal.atomic_write import write
    from heatbath.cli.run_folder import RUN
    from heatbath.datasets.tables import open_chunks
    from heatbath.datasets.tables.read import source_name
    from heatbath.models.dense import PIECE
    from heatbath.runs.run import load

    with ending(USAGE):
        if out is not None and out.exists():
            raise FileExistsError(f"{out} is there already, so it is left alone: choose another --out")
        if str(file) != "-" and not file.exists():
            raise FileNotFoundError(f"{file} cannot be read: there is no such file")
    with ending(FAILURE):
        trained = load(run / RUN if run.is_dir() else run)
    with ending(USAGE):
        encoder = trained.problem.encoder
        chunks = open_chunks(str(file), PIECE, decimal=None if encoder is None else encoder.decimal_)
        first = next(chunks)
        pairs = [_label(text) for text in select or []]
        labels = dict(pairs)
        if len(labels) < len(pairs):
            raise ValueError(f"--select names one axis twice: {', '.join(select or [])}")
        if len(trained.plan.points) > 1 and not labels:
            asked = " ".join(f"--select {axis}=..." for axis in trained.plan.axes)
            raise ValueError(f"{run} has {len(trained.plan.points)} methods or points: say which, {asked}")
        chosen = trained.select(**labels) if labels else trained
        texts = _texts(chosen, chain([first], chunks), source_name(str(file)), coverage, json)
        start = next(texts)
    with ending(FAILURE):
        if out is not None:
            write(out, lambda file: file.writelines(text.encode() for text in chain([start], texts)))
        else:
            for text in chain([start], texts):
                emit(text)


def _label(text: str) -> tuple[str, object]:
    """A name and a value, a number if it is one."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"--select is written as method=AdLaLa or tau=1e-4, got {text!r}")
    try:
        return name, float(value)
    except ValueError:
        return name, value


def _texts(
    run: Run, chunks: Iterator[pd.DataFrame], name: str, coverage: float | None, json: bool
) -> Iterator[str]:
    """The table with its new columns as CSV, or as lines of JSON, piece by piece."""
    of_data = _of_data(run, coverage)
    header = True
    for frame in chunks:
        new = _new_columns(run, _inputs(run, frame, name), 0.9 if coverage is None else coverage, of_data)
        taken = list(frame.columns)
        for label, values in new.items():
            while label in taken:
                label = f"heatbath_{label}"
            taken.append(label)
            frame[label] = values
        yield _lines_of(frame) if json else frame.to_csv(index=False, header=header, lineterminator="\n")
        header = False


def _lines_of(frame: pd.DataFrame) -> str:
    """An object of JSON for each row."""
    known = frame.notna() & ~frame.isin([inf, -inf])  # which JSON does not have
    rows = frame.astype(object).where(known, None).to_dict("records")
    return "".join(dumps(row, ensure_ascii=False, allow_nan=False, default=str) + "\n" for row in rows)


def _inputs(run: Run, frame: pd.DataFrame, name: str) -> Floats:
    """The features of a table: by the encoder, or where there is none, columns of numbers."""
    import numpy as np

    from heatbath.datasets.tables.parsing import numbers
    from heatbath.datasets.tables.read import problem_message

    if run.problem.encoder is not None:
        try:
            return run.problem.encoder.transform(frame)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    if lacking := [feature for feature in run.problem.features if feature not in frame.columns]:
        raise ValueError(
            f"{name}: there is no column {', '.join(map(repr, lacking))}; it has "
            f"{', '.join(map(repr, frame.columns))}"
        )
    columns = {feature: numbers(frame[feature]) for feature in run.problem.features}
    if problems := [
        f"{frame.index.name or 'row'} {place}, column {feature!r}: a number is needed, got {cell!r}"
        for feature, values in columns.items()
        for place, cell in frame[feature][np.isnan(values)].items()
    ]:
        raise ValueError(problem_message(name, problems))
    return np.column_stack(list(columns.values()))


def _of_data(run: Run, coverage: float | None) -> bool:
    """Whether predictions are of new data, with their noise."""
    from heatbath.datasets.tasks import TASKS

    task, posterior = run.problem.task, run.plan.points[0].partition.posterior
    of_data = task == "counts" or (task == "regression" and posterior is not None)
    if coverage is not None and TASKS[task].classes:
        raise ValueError("--coverage is of numbers, and this run predicts classes: leave it out")
    if coverage is not None and not of_data:
        raise ValueError(
            "--coverage is of counts, or of new data in a regression, whose noise this run does not know: "
            "train with a posterior, such as --prior 1"
        )
    return of_data


def _new_columns(run: Run, X: Floats, coverage: float, of_data: bool) -> dict[str, Any]:
    """The new columns."""
    import numpy as np

    from heatbath.datasets.tasks import TASKS

    problem = run.problem
    prediction = run.predict(X)
    mean = prediction.mean
    if not TASKS[problem.task].classes:
        columns = {"prediction": mean, "std": prediction.sd}
        if of_data:
            low, high = run.calibration().interval(run.predictive(X), coverage)
            columns = {"prediction": mean, "sd": prediction.sd, "low": low, "high": high}
        single = len(problem.targets) == 1
        named = [("" if single else f"_{target}", i) for i, target in enumerate(problem.targets)]
        return {f"{name}{end}": v[:, i] for name, v in columns.items() for end, i in named}
    shares = mean if problem.outputs > 1 else np.concatenate([1 - mean, mean], axis=1)
    names = [problem.targets[place] for place in shares.argmax(axis=1)]
    probabilities = {f"probability_{name}": shares[:, i] for i, name in enumerate(problem.targets)}
    return {"prediction": names, **probabilities, "entropy": prediction.entropy}
