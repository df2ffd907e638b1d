"""Tables in files: CSV, and Parquet where pyarrow is installed."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from heatbath.datasets import Problem, from_arrays, from_csv
from heatbath.datasets.arrays import csv_rows, features_in
from heatbath.tasks import TASKS, Task


class Table(NamedTuple):
    """The names of the columns, and the rows with their numbers in the file: cells are text in a CSV file."""

    path: Path
    header: list[str]
    rows: list[tuple[int, list[Any]]]

    def column(self, name: str) -> list[float]:
        """A column of finite numbers."""
        if self.header.count(name) != 1:
            raise ValueError(
                f"{self.path} must have one column {name!r}; it has {', '.join(map(repr, self.header))}"
            )
        place = self.header.index(name)
        return [_number(self.path, line, name, row[place]) for line, row in self.rows]


def read_table(path: Path) -> Table:
    """The table in a file: Parquet if its name says so, otherwise CSV with a header."""
    return _read_parquet(path) if is_parquet(path) else _read_csv(path)


def is_parquet(path: Path) -> bool:
    """Whether a file is Parquet, by its name."""
    return path.suffix.lower() in (".parquet", ".pq")


def read_problem(
    path: Path,
    target: str,
    test_share: float,
    standardise: bool,
    task: Task | None,
    seed: int,
    weights: str | None,
) -> Problem:
    """The problem in a file: `target` is the column to predict, `weights` one that says how often each row
    counts, all others are features."""
    if not is_parquet(path):
        return from_csv(path, target, test_share, standardise, task, seed, weights)
    table = _read_parquet(path)
    features = features_in(path, table.header, target, weights)
    if not table.rows:
        raise ValueError(f"{path} must have at least one row, it has none")
    place = table.header.index(target)
    y = [row[place] for _, row in table.rows]
    for (line, _), value in zip(table.rows, y, strict=True):
        if value is None:
            raise ValueError(f"{path}, row {line}, column {target!r}: the value is missing")
    if any(isinstance(value, int | float) and not isinstance(value, bool) for value in y):
        y = table.column(target)
    names = [table.header[i] for i in features]
    w = None if weights is None else table.column(weights)
    X = [list(row) for row in zip(*map(table.column, names), strict=True)]
    try:
        made = from_arrays(X, y, None, None, test_share, task, standardise, names, seed, w)
    except ValueError as error:
        raise ValueError(f"{path}, target {target!r}: {error}") from None
    targets = made.targets if TASKS[made.task].classes else (target,)
    return replace(made, name=path.stem, targets=targets)


def _read_csv(path: Path) -> Table:
    rows = csv_rows(path)
    if not rows:
        raise ValueError(f"{path} is empty: a header is needed")
    (_, header), *body = rows
    for line, row in body:
        if len(row) != len(header):
            raise ValueError(f"{path}, row {line}: {len(header)} cells are needed, got {len(row)}")
    return Table(path, header, body)


def _read_parquet(path: Path) -> Table:
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            f"{path}: Parquet needs pyarrow, an extra: pip install 'heatbath[parquet]', or save it as CSV"
        ) from None
    try:
        data = parquet.read_table(path)
        columns = [column.to_pylist() for column in data.columns]
    except OSError as error:
        raise type(error)(f"{path} cannot be read ({error.strerror or error}): check the file") from None
    except (pyarrow.ArrowException, ValueError) as error:
        raise ValueError(f"{path} is not a Parquet file that can be read: {error}") from None
    rows = [list(row) for row in zip(*columns, strict=True)]
    return Table(path, list(data.column_names), list(enumerate(rows, start=1)))


def _number(path: Path, line: int, column: str, cell: Any) -> float:
    """A cell as a finite number; Python would read 1_000 as one."""
    try:
        value = math.nan if isinstance(cell, str) and "_" in cell else float(cell)
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{path}, row {line}, column {column!r}: a number is needed, got {cell!r}")
    return value
