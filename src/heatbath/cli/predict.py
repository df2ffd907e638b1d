"""`heatbath predict`: predict new data with the networks of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    from heatbath.prediction import Prediction
    from heatbath.runs.run import Run


NEW_DATA_SHARE = 0.9  # that the intervals hold by default


def predict(
    run: Annotated[Path, typer.Argument(help="Folder of a run, or its run.nc.", metavar="RUN")],
    file: Annotated[
        Path,
        typer.Argument(
            help="New data with the run's columns, in any order: CSV or Parquet; - is the standard input.",
            metavar="FILE",
        ),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", help="New CSV file for the predictions (default: stdout).")
    ] = None,
    select: Annotated[
        list[str] | None,
        typer.Option(
            help="Method of a comparison, as method=AdLaLa, or point of a sweep, as tau=1e-4; repeat it for "
            "each axis."
        ),
    ] = None,
    coverage: Annotated[
        float | None,
        typer.Option(
            help="Share of new data that the intervals should hold (default 0.9); for counts, and for a "
            "regression with a posterior."
        ),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Write JSON instead of CSV: one object per line for each row.")
    ] = False,
) -> None:
    """Predict new data with the averaged networks of a run, and write the data with the new columns.

    Classes: prediction, a probability for each class, and entropy in nats. Regression: prediction, and std,
    the standard deviation over the networks. Counts, and a regression with a posterior: prediction, and sd,
    low and high: the standard deviation of new data, and the interval that should hold them. These come from
    the samples of the run, or from its chains if it kept none; intervals of normal noise are calibrated on
    the training examples, each left out in turn. A new column whose name the data already have gets
    heatbath_ before it. Whatever the file is like, the output has commas between cells and numbers with
    decimal points.

    Rows of a stream are answered as they come, one by one or as many as there are.

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
            raise FileExistsError(f"{out} exists already, so it is left alone: choose another --out")
        if str(file) != "-" and not file.exists():
            raise FileNotFoundError(f"{file} cannot be read: there is no such file")
    with ending(FAILURE):
        trained = load(run / RUN if run.is_dir() else run)
    with ending(USAGE):
        encoder = trained.problem.encoder
        chunks = open_chunks(str(file), PIECE, decimal=None if encoder is None else encoder.decimal_)
        first_chunk = next(chunks)
        point = _select_point(trained, run, select or [])
        texts = _output_texts(point, chain([first_chunk], chunks), source_name(str(file)), coverage, json)
        first_text = next(texts)
    with ending(FAILURE):
        texts = chain([first_text], texts)
        if out is not None:
            write(out, lambda file: file.writelines(text.encode() for text in texts))
            return
        for text in texts:
            emit(text)


def _select_point(run: Run, path: Path, texts: list[str]) -> Run:
    """Return the run of the point that --select chooses, such as method=AdLaLa; `path` is its file."""
    pairs = [_read_label(text) for text in texts]
    labels = dict(pairs)
    if len(labels) < len(pairs):
        raise ValueError(f"--select names one axis twice: {', '.join(texts)}")
    if len(run.plan.points) > 1 and not labels:
        options = " ".join(f"--select {axis}=..." for axis in run.plan.axes)
        raise ValueError(f"{path} has {len(run.plan.points)} methods or points: choose one with {options}")
    return run.select(**labels) if labels else run


def _read_label(text: str) -> tuple[str, object]:
    """Return the name and the value in text such as tau=1e-4; a value that is a number is returned as one."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"--select is written as method=AdLaLa or tau=1e-4, got {text!r}")
    try:
        return name, float(value)
    except ValueError:
        return name, value


def _output_texts(
    run: Run, chunks: Iterable[pd.DataFrame], name: str, coverage: float | None, json: bool
) -> Iterator[str]:
    """Yield the chunks of a table with the new columns as text, CSV or lines of JSON.

    `name` is what an error message calls the table, and `coverage` the share of new data that intervals hold.
    """
    knows_noise = _knows_noise(run)
    _check_coverage(run, coverage, knows_noise)
    share = NEW_DATA_SHARE if coverage is None else coverage
    is_first = True
    for frame in chunks:
        new_columns = _new_columns(run, _features(run, frame, name), share, knows_noise)
        for label, values in _free_names(new_columns, frame.columns).items():
            frame[label] = values
        yield _json_lines(frame) if json else frame.to_csv(index=False, header=is_first, lineterminator="\n")
        is_first = False


def _free_names(columns: Mapping[str, Any], taken: Iterable[str]) -> dict[str, Any]:
    """Return the columns with heatbath_ before each name that is taken."""
    taken, renamed = list(taken), {}
    for name, values in columns.items():
        while name in taken:
            name = f"heatbath_{name}"
        taken.append(name)
        renamed[name] = values
    return renamed


def _json_lines(frame: pd.DataFrame) -> str:
    """Return an object of JSON for each row, one per line; missing and infinite numbers are null."""
    is_known = frame.notna() & ~frame.isin([inf, -inf])
    rows = frame.astype(object).where(is_known, None).to_dict("records")
    return "".join(dumps(row, ensure_ascii=False, allow_nan=False, default=str) + "\n" for row in rows)


def _features(run: Run, frame: pd.DataFrame, name: str) -> Floats:
    """Return the features of a table, (rows, features), by the run's encoder or from columns of numbers.

    `name` is what an error message calls the table.
    """
    import numpy as np

    from heatbath.datasets.tables.parsing import numbers
    from heatbath.datasets.tables.read import problem_message

    if run.problem.encoder is not None:
        try:
            return run.problem.encoder.transform(frame)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    features = run.problem.features
    if missing := [feature for feature in features if feature not in frame.columns]:
        raise ValueError(
            f"{name}: there is no column {', '.join(map(repr, missing))}; it has "
            f"{', '.join(map(repr, frame.columns))}"
        )
    columns = {feature: numbers(frame[feature]) for feature in features}
    if problems := [
        f"{frame.index.name or 'row'} {row}, column {feature!r}: a number is needed, got {cell!r}"
        for feature, values in columns.items()
        for row, cell in frame[feature][np.isnan(values)].items()
    ]:
        raise ValueError(problem_message(name, problems))
    return np.column_stack(list(columns.values()))


def _knows_noise(run: Run) -> bool:
    """True if the run knows how new data scatter around its predictions."""
    has_posterior = run.plan.points[0].partition.posterior is not None
    return run.problem.task == "counts" or (run.problem.task == "regression" and has_posterior)


def _check_coverage(run: Run, coverage: float | None, knows_noise: bool) -> None:
    """Refuse --coverage for a run that has no intervals of new data."""
    from heatbath.datasets.tasks import TASKS

    if coverage is None:
        return
    if TASKS[run.problem.task].classes:
        raise ValueError("--coverage is for numbers, and this run predicts classes: leave it out")
    if not knows_noise:
        raise ValueError(
            "--coverage is for counts, or for a regression with a posterior, and this run has none, so it "
            "does not know the noise: train with one, such as --prior 1"
        )


def _new_columns(run: Run, X: Floats, coverage: float, knows_noise: bool) -> dict[str, Any]:
    """Predict the rows of X, (rows, features), and return the new columns by name."""
    from heatbath.datasets.tasks import TASKS

    problem, prediction = run.problem, run.predict(X)
    if TASKS[problem.task].classes:
        return _class_columns(problem.targets, prediction)
    columns = {"prediction": prediction.mean, "std": prediction.sd}
    if knows_noise:
        low, high = run.calibration().interval(run.predictive(X), coverage)
        columns = {"prediction": prediction.mean, "sd": prediction.sd, "low": low, "high": high}
    has_one_target = len(problem.targets) == 1
    return {
        name if has_one_target else f"{name}_{target}": values[:, i]
        for name, values in columns.items()
        for i, target in enumerate(problem.targets)
    }


def _class_columns(classes: Sequence[str], prediction: Prediction[Floats]) -> dict[str, Any]:
    """Return the most probable class, the probability of each class, and the entropy."""
    from heatbath.datasets.tasks import each_class

    probabilities = each_class(prediction.mean)
    columns: dict[str, Any] = {"prediction": [classes[i] for i in probabilities.argmax(axis=1)]}
    columns |= {f"probability_{name}": probabilities[:, i] for i, name in enumerate(classes)}
    return columns | {"entropy": prediction.entropy}
