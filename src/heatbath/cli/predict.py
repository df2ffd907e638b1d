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


NEW_DATA_SHARE = 0.9  # share of new data that intervals contain by default

RunPath = Annotated[Path, typer.Argument(help="Folder of a run, or its run.nc.", metavar="RUN")]
NewData = Annotated[
    Path,
    typer.Argument(
        help="New data with the run's columns, in any order: CSV or Parquet; - reads the standard input.",
        metavar="FILE",
    ),
]
Output = Annotated[
    Path | None, typer.Option("--out", help="New CSV file for the predictions (default: stdout).")
]
Selected = Annotated[
    list[str] | None,
    typer.Option(
        help="Method of a comparison, such as method=AdLaLa, or point of a sweep, such as tau=1e-4; repeat "
        "the option for each axis."
    ),
]
Coverage = Annotated[
    float | None,
    typer.Option(
        help="Share of new data that the intervals should contain (default 0.9); for counts, and for a "
        "regression with a posterior."
    ),
]
Lines = Annotated[
    bool, typer.Option("--json", help="Write a JSON object per row, one per line, instead of CSV.")
]


def predict(
    run: RunPath,
    file: NewData,
    out: Output = None,
    select: Selected = None,
    coverage: Coverage = None,
    json: Lines = False,
) -> None:
    """Predict new data with the averaged networks of a run, and write the data with the predictions.

    New columns for classes: prediction, a probability for each class, and entropy in nats. For a regression:
    prediction, and std, the standard deviation over the networks. For counts, and for a regression with a
    posterior: prediction, sd, the standard deviation of new data, and low and high, the ends of an interval
    that should contain them. Predictions are averaged over the samples of the run, or over its chains if it
    kept none. Intervals of normal noise are calibrated on the training examples, leaving out each in turn.

    If the data already have a column of the same name, the new column's name begins with heatbath_. Whatever
    the format of the file, the output is separated by commas and has decimal points.

    Rows of a stream are answered as they arrive, one by one or as many as there are.

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
            raise FileExistsError(f"{out} exists already and is not overwritten: choose another --out")
        if str(file) != "-" and not file.exists():
            raise FileNotFoundError(f"{file} cannot be read: there is no such file")

    with ending(FAILURE):
        run_file = run / RUN if run.is_dir() else run
        trained = load(run_file)
    with ending(USAGE):
        encoder = trained.problem.encoder
        decimal = None if encoder is None else encoder.decimal_
        chunks = open_chunks(str(file), PIECE, decimal=decimal)
        first_chunk = next(chunks)  # so that a file that can't be read is reported before a wrong --select
        point = _select_point(trained, run, select or [])
        texts = _output_texts(point, chain([first_chunk], chunks), source_name(str(file)), coverage, json)
        first_text = next(texts)  # wrong columns are errors before anything is written

    with ending(FAILURE):
        texts = chain([first_text], texts)
        if out is not None:
            write(out, lambda file: file.writelines(text.encode() for text in texts))
            return
        for text in texts:
            emit(text)


def _select_point(run: Run, path: Path, texts: list[str]) -> Run:
    """Return the run of the method or point that --select chooses.

    Parameters
    ----------
    run
        The run of all methods or points.
    path
        Its folder or file, for error messages.
    texts
        Values of --select, such as method=AdLaLa, one for each axis of the run.
    """
    pairs = [_read_label(text) for text in texts]
    labels = dict(pairs)
    if len(labels) < len(pairs):
        raise ValueError(f"--select names an axis twice: {', '.join(texts)}")
    if len(run.plan.points) > 1 and not labels:
        options = " ".join(f"--select {axis}=..." for axis in run.plan.axes)
        raise ValueError(f"{path} has {len(run.plan.points)} methods or points: choose one with {options}")
    return run.select(**labels) if labels else run


def _read_label(text: str) -> tuple[str, object]:
    """Return the name and the value in a text such as tau=1e-4; a number is returned as float."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"write --select as method=AdLaLa or tau=1e-4, got {text!r}")
    try:
        return name, float(value)
    except ValueError:
        return name, value


def _output_texts(
    run: Run, chunks: Iterable[pd.DataFrame], name: str, coverage: float | None, json: bool
) -> Iterator[str]:
    """Yield the chunks of a table with the new columns as text: CSV, or lines of JSON.

    Parameters
    ----------
    run
        The run that predicts.
    chunks
        The table in pieces, to which the new columns are added.
    name
        What an error message calls the table.
    coverage
        Share of new data that intervals should contain; None if the user didn't give it.
    json
        True for JSON.
    """
    _check_coverage(run, coverage)
    share = NEW_DATA_SHARE if coverage is None else coverage

    is_first = True
    for frame in chunks:
        new_columns = _new_columns(run, _features(run, frame, name), share)
        for label, cells in _free_names(new_columns, frame.columns).items():
            frame[label] = cells
        if json:
            yield _json_lines(frame)
        else:
            yield frame.to_csv(index=False, header=is_first, lineterminator="\n")
        is_first = False


def _free_names(columns: Mapping[str, Any], taken: Iterable[str]) -> dict[str, Any]:
    """Return the columns, with heatbath_ before each name that is among the taken ones."""
    reserved = set(taken)
    renamed = {}
    for name, cells in columns.items():
        free_name = name
        while free_name in reserved:
            free_name = f"heatbath_{free_name}"
        reserved.add(free_name)
        renamed[free_name] = cells
    return renamed


def _json_lines(frame: pd.DataFrame) -> str:
    """Return a JSON object for each row, one per line; missing and infinite numbers are null."""
    is_known = frame.notna() & ~frame.isin([inf, -inf])
    rows = frame.astype(object).where(is_known, None).to_dict("records")
    return "".join(dumps(row, ensure_ascii=False, allow_nan=False, default=str) + "\n" for row in rows)


def _features(run: Run, frame: pd.DataFrame, name: str) -> Floats:
    """Return the features of a table, (rows, features), as the networks of a run take them.

    They are made by the run's encoder, or read from columns of numbers if it was trained on arrays.

    Parameters
    ----------
    run
        The run.
    frame
        The table; it may have more columns, in any order.
    name
        What an error message calls the table.

    Raises
    ------
    ValueError
        If columns are missing, or cells aren't numbers where numbers are needed; the message lists them.
    """
    encoder = run.problem.encoder
    if encoder is None:
        return _numeric_features(run.problem.features, frame, name)
    try:
        return encoder.transform(frame)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _numeric_features(features: Sequence[str], frame: pd.DataFrame, name: str) -> Floats:
    """Return columns of numbers, (rows, features), or raise ValueError as `_features` does.

    Parameters
    ----------
    features
        Names of the columns.
    frame
        The table.
    name
        What an error message calls the table.
    """
    import numpy as np

    from heatbath.datasets.tables.parsing import numbers
    from heatbath.datasets.tables.read import problem_message

    missing = [feature for feature in features if feature not in frame.columns]
    if missing:
        raise ValueError(
            f"{name}: there is no column {', '.join(map(repr, missing))}; it has "
            f"{', '.join(map(repr, frame.columns))}"
        )

    row_label = frame.index.name or "row"
    columns = []
    problems = []
    for feature in features:
        column = numbers(frame[feature])
        columns.append(column)
        for row, cell in frame[feature][np.isnan(column)].items():
            problems.append(f"{row_label} {row}, column {feature!r}: a number is needed, got {cell!r}")
    if problems:
        raise ValueError(problem_message(name, problems))
    return np.column_stack(columns)


def _knows_noise(run: Run) -> bool:
    """Return True if the run knows how new data scatter around its predictions."""
    has_posterior = run.plan.points[0].partition.posterior is not None
    return run.problem.task == "counts" or (run.problem.task == "regression" and has_posterior)


def _check_coverage(run: Run, coverage: float | None) -> None:
    """Raise ValueError if the user gave --coverage for a run that has no intervals for new data.

    `coverage` is None if it wasn't given. Classes have no intervals, and neither has a run that doesn't know
    the noise.
    """
    from heatbath.datasets.tasks import TASKS

    if coverage is None:
        return
    if TASKS[run.problem.task].classes:
        raise ValueError("--coverage is for numbers, and this run predicts classes: leave it out")
    if not _knows_noise(run):
        raise ValueError(
            "--coverage is for counts, or for a regression with a posterior, and this run has none, so it "
            "does not know the noise: train with a posterior, such as --prior 1"
        )


def _new_columns(run: Run, X: Floats, coverage: float) -> dict[str, Any]:
    """Predict new data, and return the new columns by name.

    A run that knows the noise has intervals for new data, instead of the deviation over its networks.

    Parameters
    ----------
    run
        The run that predicts.
    X
        Features, (rows, features).
    coverage
        Share of new data that intervals should contain.
    """
    from heatbath.datasets.tasks import TASKS

    targets = run.problem.targets
    prediction = run.predict(X)
    if TASKS[run.problem.task].classes:
        return _class_columns(targets, prediction)

    estimates = {"prediction": prediction.mean, "std": prediction.sd}
    if _knows_noise(run):
        low, high = run.calibration().interval(run.predictive(X), coverage)
        estimates = {"prediction": prediction.mean, "sd": prediction.sd, "low": low, "high": high}
    if len(targets) == 1:
        return {name: estimate[:, 0] for name, estimate in estimates.items()}

    columns = {}
    for name, estimate in estimates.items():
        for index, target in enumerate(targets):
            columns[f"{name}_{target}"] = estimate[:, index]
    return columns


def _class_columns(classes: Sequence[str], prediction: Prediction[Floats]) -> dict[str, Any]:
    """Return the most probable class, the probability of each class and the entropy, as columns by name."""
    from heatbath.datasets.tasks import each_class

    probabilities = each_class(prediction.mean)
    columns: dict[str, Any] = {"prediction": [classes[i] for i in probabilities.argmax(axis=1)]}
    columns |= {f"probability_{name}": probabilities[:, i] for i, name in enumerate(classes)}
    return columns | {"entropy": prediction.entropy}
