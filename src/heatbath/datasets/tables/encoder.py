"""Encode tables of raw cells as numbers, by what their columns were in training.

The remarks on a table are saved with its encoder, and compared when a run continues: changing their words
would break that.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted

from heatbath._internal.checks import choice
from heatbath._internal.warnings import UnforeseenDataWarning
from heatbath.datasets.tables import column_types
from heatbath.datasets.tables.column_types import COUNTS, NAMED, Category, Column, LeftOut, Number, shortened
from heatbath.datasets.tables.parsing import BLANKS, MISSING, numbers, row_label, texts
from heatbath.datasets.tables.read import SHOWN
from heatbath.datasets.tables.sniff import MARK_NAMES, Mark

VERSION = 1  # of the values that `plain` returns
OPTIONS = ("ignore", "categorical", "keep")
PLAIN_NUMBER = "a number"  # the note of a number without missing cells and unit
FEW = 3  # plain numbers that brief notes name
MOST_NAMES = 20  # names of columns that a message lists


class TableEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Transformer of scikit-learn that encodes a table with columns of any kind as numbers.

    `fit` learns what each column is: a number, a truth value (two words such as yes and no), a date, or a
    category, which has a feature for each of its texts. Missing cells are replaced by the median, and a
    feature marks them. Rare categories share a feature; a category that `fit` has not seen has 0 in all
    features. Constants, texts that name the rows and whole numbers that count them are left out. `notes()`
    describes each column.

    `transform` finds the columns by their names, in any order, and ignores other columns. It warns
    (`UnforeseenDataWarning`) if new data have something that training did not have.

    Parameters
    ----------
    ignore : iterable of str, optional
        Columns without features.
    categorical : iterable of str, optional
        Columns that are categories although they look like something else, such as numeric codes.
    keep : iterable of str, optional
        Columns to use although they seem to name or to count the rows.

    Attributes
    ----------
    columns_ : dict
        What each column is, by its name.
    feature_names_in_, n_features_in_ : array, int
        Names and number of the columns.
    remarks_ : tuple of str
        Remarks on the table.
    decimal_ : "," or "." or None
        The decimal mark of the file of its table, for `read_table` to read others in the same way.

    Examples
    --------
    >>> table = pd.DataFrame({"age": ["31", "?", "40"], "city": ["Rom", "Bern", "Rom"]})
    >>> encoder = TableEncoder().fit(table)
    >>> encoder.get_feature_names_out().tolist()
    ['age', 'age=(missing)', 'city=Bern', 'city=Rom']
    >>> encoder.transform(table)[1].tolist()
    [35.5, 1.0, 1.0, 0.0]
    """

    def __init__(
        self, ignore: Iterable[str] = (), categorical: Iterable[str] = (), keep: Iterable[str] = ()
    ) -> None:
        self.ignore = ignore
        self.categorical = categorical
        self.keep = keep

    def fit(self, X: Any, y: object = None) -> Self:
        """Learn what the columns are.

        Parameters
        ----------
        X : DataFrame or array_like, (rows, columns)
            The training rows. The columns of an array are called x0, x1, ...
        y : ignored

        Returns
        -------
        TableEncoder
            Itself.

        Raises
        ------
        ValueError
            If there are fewer than two rows, or no column to learn from.
        """
        frame = as_frame(X)
        chosen = {option: _checked_names(option, getattr(self, option)) for option in OPTIONS}
        _check_present(frame, chain.from_iterable(chosen.values()))
        if len(frame) < 2:
            raise ValueError(f"a table of at least 2 rows is needed, got {len(frame)} sample(s)")

        learned: dict[str, Column] = {}
        remarks = []
        for name in frame.columns:
            if name in chosen["ignore"]:
                learned[name] = LeftOut(name, "as asked for")
                continue
            is_category = name in chosen["categorical"]
            is_kept = name in chosen["keep"]
            learned[name] = column_types.learn(frame[name], name, is_category, is_kept)
            reason = None if is_category else column_types.suspicion(frame[name], learned[name])
            if reason is not None:
                remarks.append(f"warning: {name!r} is taken for text: {reason}")

        if any(column.features for column in learned.values()):
            return self._store(learned, remarks)

        row_numbers = _row_numbers(frame, learned)
        if not row_numbers:
            notes = "; ".join(f"{name!r} is {learned[name].note()}" for name in [*learned][:SHOWN])
            raise ValueError(f"no column is left to learn from: {notes or 'there is none'}")
        remarks += [
            f"warning: {name!r} seems to name or count the rows, and is used all the same, as nothing else "
            "can be: new rows have other numbers"
            for name in row_numbers
        ]
        return self._store(learned | row_numbers, remarks)

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags: missing values, text and categories are accepted."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = True
        return tags

    def _store(self, learned: dict[str, Column], remarks: Iterable[str], decimal: Mark | None = None) -> Self:
        """Set the attributes of a fitted encoder, and return it.

        Parameters
        ----------
        learned : dict
            Type of each column, by its name.
        remarks : iterable of str
            Remarks on the table.
        decimal : "," or "." or None
            Decimal mark of the file of the table.
        """
        self.columns_ = learned
        self.remarks_ = tuple(remarks)
        self.decimal_ = decimal
        self.feature_names_in_ = np.array(list(learned), dtype=object)
        self.n_features_in_ = len(learned)
        return self

    def transform(self, X: Any) -> NDArray[np.float64]:
        """Return the features of each row.

        Parameters
        ----------
        X : DataFrame or array_like, (rows, columns)
            New rows. A DataFrame may have more columns, in any order.

        Returns
        -------
        array, (rows, features)

        Warns
        -----
        UnforeseenDataWarning
            If cells have something that training did not have.
        """
        check_is_fitted(self)
        frame = as_frame(X)
        if not isinstance(X, pd.DataFrame):
            if frame.shape[1] != self.n_features_in_:
                raise ValueError(
                    f"X has {frame.shape[1]} features, but TableEncoder is expecting {self.n_features_in_} "
                    "features as input"
                )
            frame.columns = pd.Index(self.feature_names_in_)

        used = [column for column in self.columns_.values() if column.features]
        _check_present(frame, [column.name for column in used])

        feature_count = sum(len(column.features) for column in used)
        features = np.empty((len(frame), feature_count))
        start = 0
        messages = []
        for column in used:
            cells = frame[column.name]
            encoded, is_unforeseen = column.encode(cells)
            end = start + encoded.shape[1]
            features[:, start:end] = encoded
            start = end
            if is_unforeseen.any():
                messages.append(_describe_unforeseen(column, cells[is_unforeseen]))

        if messages:
            extra = f"; and {len(messages) - SHOWN} more columns" if len(messages) > SHOWN else ""
            warnings.warn("; ".join(messages[:SHOWN]) + extra, UnforeseenDataWarning, stacklevel=2)
        return features

    def get_feature_names_out(self, input_features: object = None) -> NDArray[Any]:
        """Return the names of the features, which are all different.

        `input_features` is ignored; scikit-learn passes it.
        """
        check_is_fitted(self)
        names: dict[str, None] = {}
        for column in self.columns_.values():
            for feature in column.features:
                name = feature
                copies = 1
                while name in names:  # 'c' of the column 'a=b' and 'b=c' of 'a' have the same name
                    copies += 1
                    name = f"{feature}.{copies}"
                names[name] = None
        return np.array(list(names), dtype=object)

    def groups(self) -> dict[str, list[int]]:
        """Return the indices of the features of each column, by its name; columns left out have none."""
        check_is_fitted(self)
        indices = {}
        start = 0
        for name, column in self.columns_.items():
            if column.features:
                end = start + len(column.features)
                indices[name] = list(range(start, end))
                start = end
        return indices

    def notes(self) -> list[str]:
        """Return the remarks on the table, followed by a sentence on how each column is read."""
        check_is_fitted(self)
        return [*self.remarks_, *(f"{name}: {column.note()}" for name, column in self.columns_.items())]

    def brief_notes(self) -> list[str]:
        """Return the notes with those on plain numbers at the end.

        If there are many columns of plain numbers, a single sentence names the first and counts the others.
        """
        check_is_fitted(self)
        notes = {name: column.note() for name, column in self.columns_.items()}
        plain = [name for name, note in notes.items() if note == PLAIN_NUMBER]
        plain_notes = [f"{name}: {PLAIN_NUMBER}" for name in plain]
        if len(plain) > SHOWN:
            plain_notes = [f"{', '.join(plain[:FEW])} and {len(plain) - FEW:,} more: numbers"]
        special_notes = [f"{name}: {note}" for name, note in notes.items() if note != PLAIN_NUMBER]
        return [*self.remarks_, *special_notes, *plain_notes]

    def with_remarks(self, remarks: Iterable[str], decimal: Mark | None = None) -> Self:
        """Return a copy of the fitted encoder with these remarks.

        Parameters
        ----------
        remarks : iterable of str
            Remarks on the table that it was fitted to.
        decimal : "," or "." or None
            Decimal mark of the file of that table.
        """
        check_is_fitted(self)
        return type(self)(self.ignore, self.categorical, self.keep)._store(self.columns_, remarks, decimal)

    def plain(self) -> dict[str, Any]:
        """Return the fitted encoder as values of JSON, which `from_plain` reads."""
        check_is_fitted(self)
        options = {option: list(getattr(self, option)) for option in OPTIONS}
        learned = [column_types.to_plain(column) for column in self.columns_.values()]
        plain = {"version": VERSION, **options, "columns": learned, "remarks": list(self.remarks_)}
        return plain if self.decimal_ is None else {**plain, "decimal": self.decimal_}

    @classmethod
    def from_plain(cls, plain: object) -> Self:
        """Return the encoder that `plain` has described.

        Parameters
        ----------
        plain : dict
            Values of JSON. All of them are checked, and none is executed.

        Raises
        ------
        TypeError, ValueError
            If a value has a wrong type, or the version is unknown.
        """
        if not isinstance(plain, dict) or plain.get("version") != VERSION:
            raise ValueError(f"an encoder is a dict of version {VERSION}, got {str(plain)[:60]}")
        keys = {"version", *OPTIONS, "columns", "remarks"}
        decimal = plain.get("decimal")  # absent from files of earlier versions
        if decimal is not None:
            choice("decimal of an encoder", decimal, tuple(MARK_NAMES))
        if set(plain) - {"decimal"} != keys or not isinstance(plain["columns"], list):
            raise ValueError(f"an encoder has {', '.join(sorted(keys))}, got {', '.join(map(str, plain))}")

        options = {option: _checked_names(option, plain[option]) for option in OPTIONS}
        learned = {column.name: column for column in map(column_types.from_plain, plain["columns"])}
        has_features = any(column.features for column in learned.values())
        if len(learned) < len(plain["columns"]) or not has_features:
            raise ValueError("the columns of an encoder must have different names, and at least one feature")
        return cls(**options)._store(learned, _checked_names("remarks", plain["remarks"]), decimal)


def _row_numbers(frame: pd.DataFrame, learned: Mapping[str, Column]) -> dict[str, Column]:
    """Return columns that were left out because they seem to name or count the rows as numbers, by name."""
    return {
        name: Number(name, float(np.median(numbers(frame[name]))))
        for name, column in learned.items()
        if isinstance(column, LeftOut) and column.reason in (COUNTS, NAMED)
    }


def as_frame(X: Any) -> pd.DataFrame:
    """Return a table whose columns have different texts as names.

    Parameters
    ----------
    X : DataFrame or array_like, (rows, columns)
        The columns of an array are called x0, x1, ... A DataFrame isn't copied.
    """
    if not isinstance(X, pd.DataFrame):
        array = check_array(X, dtype=None, ensure_all_finite=False)
        return pd.DataFrame(array, columns=[f"x{i}" for i in range(array.shape[1])])
    names = [str(name) for name in X.columns]
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise ValueError(
            f"columns must have different names, and several are {', '.join(map(repr, repeated))}"
        )
    frame = X.copy(deep=False)
    frame.columns = pd.Index(names, dtype=object)
    return frame


def _checked_names(option: str, names: object) -> tuple[str, ...]:
    """Return names as a tuple, or raise TypeError if they are not a list of texts.

    Parameters
    ----------
    option : str
        What the names are called in the error message.
    names : iterable of str
        The names.
    """
    error = TypeError(f"{option} must be a list of names, got {names!r}")
    if not isinstance(names, Iterable) or isinstance(names, str):
        raise error
    checked = tuple(names)
    if not all(isinstance(name, str) for name in checked):
        raise error
    return checked


def _check_present(frame: pd.DataFrame, names: Iterable[str]) -> None:
    """Raise ValueError, with the names that exist, if a table lacks one of these columns."""
    lacking = [repr(name) for name in dict.fromkeys(names) if name not in frame.columns]
    if not lacking:
        return

    present = [repr(name) for name in frame.columns]
    problem = "there is no column" if len(lacking) == 1 else "there are no columns"
    extra = f" and {len(present) - MOST_NAMES} more" if len(present) > MOST_NAMES else ""
    raise ValueError(
        f"{problem} {', '.join(lacking[:MOST_NAMES])}; there are {', '.join(present[:MOST_NAMES])}{extra}"
    )


def _describe_unforeseen(column: Column, cells: pd.Series) -> str:
    """Return a sentence on cells that have something that training did not have, with an example.

    Parameters
    ----------
    column : Column
        The type of the column.
    cells : Series
        Its unforeseen cells only, with their rows as the index.
    """
    blanks = MISSING if isinstance(column, Category) else BLANKS
    present = texts(cells, blanks).dropna()
    row = cells.index[0]
    problem = "it is missing, and none was missing in training"
    if len(present):
        row = present.index[0]
        problem = f"{shortened(present.iloc[0])} {column.unlike}"
    extra = f" (and {len(cells) - 1} more)" if len(cells) > 1 else ""
    return f"{row_label(cells)} {row}, column {column.name!r}: {problem}{extra}"
