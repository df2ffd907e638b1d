"""Make a problem from the user's own table: a file, or a data frame with columns of any kind."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from difflib import get_close_matches
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, NamedTuple

import numpy as np

from heatbath._internal.checks import choice
from heatbath._internal.memory import free_memory
from heatbath.datasets.from_arrays import from_arrays, split, strata
from heatbath.datasets.problem import Problem
from heatbath.datasets.tasks import TASKS, Task

# Copies that are in memory at once while a table is read: of the features, and of the raw cells
FEATURE_COPIES, CELL_COPIES = 5, 2
FLOAT_BYTES, GIGABYTE = 8, 1e9  # bytes of a feature, and of a gigabyte
KEPT_FACTOR = 2  # while rows are drawn at random, up to twice as many are kept
PERFECT = 1 - 1e-9  # a correlation above which a feature determines a target
FEWEST_ROWS, MOST_ROWS = 10, 100_000  # rows for such a correlation: from how many on, and at most
MOST_WARNINGS = 5  # warnings about features that determine a target
MOST_NAMES = 20  # names of columns that a message lists

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from heatbath.datasets.problem import Floats
    from heatbath.datasets.tables import Opened, TableEncoder
    from heatbath.datasets.tables.read import Source
    from heatbath.datasets.tables.sniff import Mark


class Columns(NamedTuple):
    """The roles of the columns of a table.

    Attributes
    ----------
    targets : list of str
        Columns to predict.
    weights : str or None
        Column with the weights of rows.
    options : dict
        Columns that the user has named in `ignore`, `categorical` and `keep`.
    """

    targets: list[str]
    weights: str | None
    options: dict[str, tuple[str, ...]]

    @property
    def reserved(self) -> list[str]:
        """Columns that are no features: targets and weights."""
        return self.targets if self.weights is None else [*self.targets, self.weights]

    def encoder_options(self) -> dict[str, list[str]]:
        """Return the options without reserved columns."""
        return {
            option: [column for column in names if column not in self.reserved]
            for option, names in self.options.items()
        }

    def problems(self, present: list[str]) -> list[str]:
        """Return what is wrong with the roles, as a list of sentences.

        Parameters
        ----------
        present : list of str
            Names of the columns that the table has.
        """
        reserved = self.reserved
        mentioned = dict.fromkeys([*reserved, *chain(*self.options.values())])
        problems = [_missing_column(name, present) for name in mentioned if name not in present]

        repeated = dict.fromkeys(name for name in reserved if reserved.count(name) > 1)
        for name in repeated:
            problems.append(f"target and weights must be different columns, got {name!r} twice")

        for name in dict.fromkeys(self.options["ignore"]):
            conflict = self._conflict_of_ignored(name)
            if conflict:
                problems.append(f"column {name!r} is in ignore, and {conflict}: remove one of the two")

        if not problems and len(present) == len(reserved):
            problems.append(f"there is no column beside {_listed(reserved)}, from which it could be learned")
        return problems

    def _conflict_of_ignored(self, name: str) -> str:
        """Return which other role a column in `ignore` has, in words; "" if it has none."""
        if name in self.reserved:
            return "is the target, or the weights"
        options = [option for option in ("categorical", "keep") if name in self.options[option]]
        return " and ".join(f"in {option}" for option in options)


class Examples(NamedTuple):
    """The rows of a table that have a target.

    Attributes
    ----------
    cells : DataFrame
        Cells of the columns that are neither targets nor weights.
    y : array, (rows,) or (rows, targets)
        Targets, as text or numbers.
    weights : array, (rows,), or None
        How often each row counts.
    notes : tuple of str
        Remarks on how the file was read.
    decimal : "," or "." or None
        Decimal mark of the file.
    """

    cells: pd.DataFrame
    y: NDArray[Any]
    weights: Floats | None
    notes: tuple[str, ...]
    decimal: Mark | None


def from_table(  # noqa: PLR0913 # options by keyword
    table: str | os.PathLike[str] | BinaryIO | pd.DataFrame | Opened,
    target: str | Sequence[str],
    *,
    test_share: float = 0.2,
    task: Task | None = None,
    seed: int = 0,
    weights: str | None = None,
    class_weight: Literal["balanced"] | None = None,
    standardise: bool = True,
    ignore: Iterable[str] = (),
    categorical: Iterable[str] = (),
    keep: Iterable[str] = (),
    rows: int | None = None,
) -> Problem:
    """Make a problem from a table in a file or a data frame.

    What each column is (a number, a date, a truth value or a category) is learned from the training rows, and
    is the problem's `encoder`: `problem.encoder.notes()` describes it.

    Parameters
    ----------
    table : path, "-", binary file, DataFrame or Opened
        A file as `read_table` accepts it, or a table in memory.
    target : str or sequence of str
        The column to predict, or several columns of numbers. Text makes classes, in alphabetical order;
        numbers are treated as in `from_arrays`. Rows without a target are left out.
    test_share : float, optional
        Share of the rows for the test.
    task : {"binary", "classes", "regression", "counts"}, optional
        What is to be predicted. The default depends on the target.
    seed : int, optional
        Seed of the draw of rows and of test rows.
    weights : str, optional
        A column that says how often each row counts.
    class_weight : "balanced", optional
        Give all classes the same total weight in training.
    standardise : bool, optional
        Give every feature, and the targets of a regression, mean 0 and variance 1 over the training rows.
    ignore, categorical, keep : iterable of str, optional
        Columns to leave out, to treat as categories, or to use although they seem to name or count the rows;
        see `tables.TableEncoder`.
    rows : int, optional
        Use this many rows, drawn at random, if the table has more.

    Returns
    -------
    Problem
        One draw, with an encoder and the names of the target and its classes.

    Raises
    ------
    ValueError
        If names, cells or targets are wrong; the message lists what it has found.
    MemoryError
        If a file would not fit in memory; its first rows show that, before the others are read.

    Examples
    --------
    >>> import pandas as pd
    >>> import heatbath as hb
    >>> table = pd.DataFrame({"size": range(10), "grown": ["no", "yes"] * 5})
    >>> hb.from_table(table, "grown", keep=["size"])
    Problem('table', binary, 8 training and 2 test examples, 1 inputs, 1 outputs)
    """
    import pandas as pd

    from heatbath.datasets.tables import Opened
    from heatbath.datasets.tables.read import source_name

    if task is not None:
        choice("task", task, tuple(TASKS))
    name = "the table" if isinstance(table, (pd.DataFrame, Opened)) else source_name(table)
    targets = [target] if isinstance(target, str) else list(target)
    options = {
        "ignore": _as_names(ignore),
        "categorical": _as_names(categorical),
        "keep": _as_names(keep),
    }
    columns = Columns(targets, weights, options)
    cells, y, row_weights, notes, decimal = _read_examples(table, name, columns, task, rows, seed)

    prefix = f"{name}, target {', '.join(map(repr, targets))}"
    with _prefix_errors(prefix):
        test, train = split(len(cells), test_share, seed, strata(y, task))
    if len(train) < 2:
        raise ValueError(f"{name} {_too_few_rows(targets, len(cells), len(test))}")

    with _prefix_errors(prefix):
        encoder, X = _encode(cells, train, columns.encoder_options())
        del cells
        features = encoder.get_feature_names_out().tolist()
        problem = from_arrays(
            X, y, None, None, test_share, task, standardise, features, seed, row_weights, class_weight
        )

    remarks = [*notes, *encoder.remarks_, *_determining_features(problem, targets)]
    labels = problem.targets if TASKS[problem.task].classes else tuple(targets)
    stem = Path(name).stem if isinstance(table, (str, os.PathLike)) and table != "-" else "table"
    return replace(problem, name=stem, targets=labels, encoder=encoder.with_remarks(remarks, decimal))


def _as_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return names as a tuple; a single text is one name."""
    return (names,) if isinstance(names, str) else tuple(names)


def _read_examples(
    table: Source | pd.DataFrame | Opened,
    name: str,
    columns: Columns,
    task: Task | None,
    rows: int | None,
    seed: int,
) -> Examples:
    """Read a table, and return the rows that have a target and a positive weight.

    Parameters
    ----------
    table : path, "-", binary file, DataFrame or Opened
        A file, or a table in memory.
    name : str
        What messages call it.
    columns : Columns
        The roles of its columns.
    task : str or None
        The task, if the user has chosen one.
    rows : int or None
        The number of rows to draw at random; None takes all.
    seed : int
        Seed of the draw.

    Raises
    ------
    ValueError
        With all wrong names, lines, targets and weights in one message.
    """
    from heatbath.datasets.tables.encoder import as_frame
    from heatbath.datasets.tables.read import problem_message
    from heatbath.datasets.tables.target import Targets, read_targets, read_weights

    opened, wrong_lines, advice = _open_table(table, name, columns, rows, seed)
    frame = as_frame(opened.frame)
    notes = opened.notes
    decimal = opened.decimal
    del opened  # with its frame, which may fill most of the memory

    wrong_names = columns.problems(list(frame.columns))
    targets = Targets(np.empty(0), np.ones(len(frame), bool))
    if set(frame.columns).issuperset(columns.targets):
        targets = read_targets(frame, columns.targets, task)
    if not targets.rows.all():
        frame = frame[targets.rows]
    weights: Floats | None = None
    wrong_weights: list[str] = []
    if columns.weights is not None and columns.weights in frame.columns:
        weights, wrong_weights = read_weights(frame, columns.weights)

    # All problems are collected first, so that the user sees them at once
    if wrong_names or wrong_lines or targets.problems or wrong_weights:
        message = problem_message(name, wrong_names, wrong_lines, targets.problems, wrong_weights)
        if wrong_lines:
            message += advice
        raise ValueError(message + targets.hint)

    y = targets.y
    if weights is not None:
        is_counted = weights > 0
        y = y[is_counted]
        frame = frame[is_counted]
        weights = weights[is_counted]
    return Examples(frame.drop(columns=columns.reserved), y, weights, (*notes, *targets.notes), decimal)


def _open_table(
    table: Source | pd.DataFrame | Opened, name: str, columns: Columns, rows: int | None, seed: int
) -> tuple[Opened, list[str], str]:
    """Read all rows of a table, or draw some of them at random.

    Wrong names and a lack of memory are errors after the first rows of a large file, before the rest is read.

    Parameters
    ----------
    table : path, "-", binary file, DataFrame or Opened
        A file, or a table in memory.
    name : str
        What messages call it.
    columns : Columns
        The roles of its columns.
    rows : int or None
        The number of rows to draw; None takes all.
    seed : int
        Seed of the draw.

    Returns
    -------
    opened : Opened
        The rows, without wrong lines.
    wrong_lines : list of str
        What is wrong with each of these.
    advice : str
        How to correct them.
    """
    import pandas as pd

    from heatbath.datasets.tables import Opened
    from heatbath.datasets.tables.read import draw_rows, problem_message, read_sample

    def check_first_rows(first_rows: pd.DataFrame, share: float) -> None:
        """Raise an error for wrong names or too little memory, from rows that are a share of the file."""
        problems = columns.problems(list(first_rows.columns))
        if problems:
            raise ValueError(problem_message(name, problems))
        unused = {*columns.reserved, *columns.options["ignore"]}
        used = [column for column in first_rows.columns if column not in unused]
        _check_memory(name, first_rows[used], share, rows)

    if not isinstance(table, (pd.DataFrame, Opened)):
        return read_sample(table, rows=rows, seed=seed, look=check_first_rows)
    opened = Opened(table) if isinstance(table, pd.DataFrame) else table
    if rows is not None:
        frame, remarks = draw_rows([opened.frame], rows, seed)
        opened = Opened(frame, (*opened.notes, *remarks), opened.decimal)
    return opened, [], ""


def _too_few_rows(targets: list[str], rows: int, tests: int) -> str:
    """Return the problem that too few rows have values of the targets, of which some are for the test."""
    for_test = f", and {tests} of them set aside to test" if tests else ""
    return (
        f"has too few rows to learn from: {rows} with a value of {' and '.join(map(repr, targets))}"
        f"{for_test}; 2 are needed for training"
    )


def _encode(
    cells: pd.DataFrame, train: NDArray[np.int64], options: Mapping[str, Iterable[str]]
) -> tuple[TableEncoder, Floats]:
    """Fit an encoder to the training rows, and encode all rows.

    Parameters
    ----------
    cells : DataFrame
        Training and test rows.
    train : array of int
        Indices of the training rows.
    options : dict
        Columns by option of `TableEncoder`.

    Returns
    -------
    encoder : TableEncoder
    features : array, (rows, features)
    """
    from heatbath._internal.warnings import UnforeseenDataWarning
    from heatbath.datasets.tables import TableEncoder

    encoder = TableEncoder(**options).fit(cells.iloc[np.sort(train)])
    with warnings.catch_warnings():
        # A test may well have cells that training didn't have
        warnings.simplefilter("ignore", UnforeseenDataWarning)
        return encoder, encoder.transform(cells)


@contextmanager
def _prefix_errors(prefix: str) -> Iterator[None]:
    """Put a prefix before the message of any ValueError raised in the block."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{prefix}: {error}") from None


def _determining_features(problem: Problem, targets: list[str]) -> list[str]:
    """Return a warning for each feature and target that are perfectly correlated, at most five.

    Such a feature often becomes known only together with the target. Several classes aren't checked, because
    their indices have no order.
    """
    row_count = problem.X_train.shape[1]
    if problem.task == "classes" or row_count < FEWEST_ROWS:
        return []

    stride = math.ceil(row_count / MOST_ROWS)
    X = problem.X_train[0, ::stride]
    Y = problem.Y_train[0, ::stride]
    with np.errstate(all="ignore"):  # constants have no correlation
        covariance = (X - X.mean(axis=0)).T @ (Y - Y.mean(axis=0)) / len(X)
        is_perfect = np.abs(covariance / np.outer(X.std(axis=0), Y.std(axis=0))) > PERFECT
    return [
        f"warning: {problem.features[feature]} says {targets[target]!r} exactly: if it is not known before, "
        "leave it out (--ignore)"
        for feature, target in np.argwhere(is_perfect)[:MOST_WARNINGS]
    ]


def _check_memory(name: str, first_rows: pd.DataFrame, share: float, rows: int | None) -> None:
    """Raise MemoryError if a table would not fit in the free memory.

    Parameters
    ----------
    name : str
        Name of the table in the message.
    first_rows : DataFrame
        Its first rows, in the columns that become features.
    share : float
        The share of the file that they are.
    rows : int or None
        The number of rows that will be drawn, or None for all.
    """
    from heatbath.datasets.tables import TableEncoder

    file_rows = len(first_rows) / share
    kept_rows = file_rows if rows is None else min(file_rows, KEPT_FACTOR * rows)
    try:
        features = len(TableEncoder().fit(first_rows).get_feature_names_out())
    except ValueError:  # whose cause is reported when all rows have been read
        features = first_rows.shape[1]

    cell_bytes = first_rows.memory_usage(deep=True, index=True).sum() / len(first_rows)
    bytes_per_row = CELL_COPIES * cell_bytes + FLOAT_BYTES * FEATURE_COPIES * features
    needed = kept_rows * bytes_per_row
    free = free_memory()
    if needed <= free:
        return

    used_rows = "them" if rows is None else f"{rows:,} of them"
    rows_that_fit = free / (2 * KEPT_FACTOR * bytes_per_row)
    raise MemoryError(
        f"{name} has about {_rounded(file_rows, 2):,.0f} rows with {features:,} features: to learn from "
        f"{used_rows} needs about {needed / GIGABYTE:,.1f} GB of memory, and {free / GIGABYTE:,.1f} GB are "
        f"free. Learn from fewer rows, drawn at random (--rows {_rounded(rows_that_fit, 1):.0f}), or leave "
        "columns out (--ignore)"
    )


def _rounded(number: float, digits: int) -> float:
    """Return a number with only its first significant digits."""
    return float(f"{number:.{digits}g}")


def _missing_column(name: str, present: list[str]) -> str:
    """Return a sentence on a column that a table doesn't have, with a suggestion.

    Parameters
    ----------
    name : str
        Name of the missing column.
    present : list of str
        Names of the columns that the table has.
    """
    problem = f"there is no column {name!r}: it has {_listed(present)}"
    listed = [part.strip() for part in name.split(",")]
    if len(listed) > 1 and set(present).issuperset(listed):
        options = f"--target {listed[0]} --target {listed[1]}"
        return f"{problem}. Give each of several columns its own option, as in {options}"
    if len(present) == 1 and name in present[0].split():
        return f"{problem}: cells have to be separated by commas, semicolons, tabs or bars"
    similar = get_close_matches(name, present, 1)
    if similar:
        return f"{problem}; is it {similar[0]!r}?"
    return f"{problem}, as its first line says"


def _listed(names: list[str]) -> str:
    """Return names in quotes, separated by commas, and how many more there are beyond a limit."""
    extra = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(map(repr, names[:MOST_NAMES])) + extra
