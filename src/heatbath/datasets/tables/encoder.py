"""The encoder: from a table of raw cells to numbers, by what its columns were in training."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable
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
from heatbath.datasets.tables.parsing import BLANKS, MISSING, numbers, place, texts
from heatbath.datasets.tables.read import SHOWN
from heatbath.datasets.tables.sniff import MARK_NAMES, Mark

VERSION = 1  # of what `plain` writes
OPTIONS = ("ignore", "categorical", "keep")
PLAIN, FEW = "a number", 3  # the note of a column of which there is nothing else to say


class TableEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Numbers of a table with columns of any kind, as a transformer of scikit-learn.

    - `ignore`: columns of which no features are made.
    - `categorical`: columns that are categories though they look like something else, such as codes of
      numbers.
    - `keep`: columns that are used though they seem to name or to count the rows.

    `fit` learns what each column is: a number, a truth value (two words such as yes and no), a date, or a
    category, which has a feature for each of its texts. Missing cells are replaced by the median, and a
    feature says where. Rare categories are joined; one that `fit` has not seen has 0 everywhere. Constants,
    texts that name the rows and whole numbers that count them are left out. `notes()` says it for each
    column. `transform` finds the columns by their names, in any order, and leaves others alone; where new
    data have what training did not have, it warns (`UnforeseenDataWarning`).

    Fitted, it has `columns_`, what each column is, `feature_names_in_` and `n_features_in_`, and `decimal_`,
    the decimal mark of the file that its table is from, for `open_table` to read others in the same way.

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
        """Learn what the columns are."""
        frame = as_frame(X)
        named = {option: _listed(option, getattr(self, option)) for option in OPTIONS}
        _check_there(frame, [name for names in named.values() for name in names])
        if len(frame) < 2:
            raise ValueError(f"a table of at least 2 rows is needed, got {len(frame)} sample(s)")
        learned = {
            name: LeftOut(name, "as asked for")
            if name in named["ignore"]
            else column_types.learn(frame[name], name, name in named["categorical"], name in named["keep"])
            for name in frame.columns
        }
        asked = {*named["ignore"], *named["categorical"]}
        remarks = [
            f"warning: {name!r} is taken for text: {word}"
            for name, column in learned.items()
            if name not in asked and (word := column_types.unread(frame[name], column)) is not None
        ]
        if not any(column.features for column in learned.values()):  # numbers of rows are better than nothing
            for name, column in learned.items():
                if isinstance(column, LeftOut) and column.reason in (COUNTS, NAMED):
                    learned[name] = Number(name, float(np.median(numbers(frame[name]))))
                    remarks.append(
                        f"warning: {name!r} seems to name or count the rows, and is used all the same, as "
                        "nothing else can be: new rows have other numbers"
                    )
        if not any(column.features for column in learned.values()):
            told = "; ".join(f"{name!r} is {column.note()}" for name, column in [*learned.items()][:SHOWN])
            raise ValueError(f"no column is left to learn from: {told or 'there is none'}")
        return self._with(learned, remarks)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = True
        return tags

    def _with(self, learned: dict[str, Column], remarks: Iterable[str], decimal: Mark | None = None) -> Self:
        self.columns_ = learned
        self.remarks_ = tuple(remarks)
        self.decimal_ = decimal
        self.feature_names_in_ = np.array(list(learned), dtype=object)
        self.n_features_in_ = len(learned)
        return self

    def transform(self, X: Any) -> NDArray[np.float64]:
        """The features of each row, (rows, features)."""
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
        _check_there(frame, [column.name for column in used])
        values = np.empty((len(frame), sum(len(column.features) for column in used)))
        end, odd = 0, []
        for column in used:
            cells = frame[column.name]
            encoded, unforeseen = column.encode(cells)
            start, end = end, end + encoded.shape[1]
            values[:, start:end] = encoded
            if unforeseen.any():
                odd.append(_told(column, cells[unforeseen]))
        if odd:
            more = f"; and {len(odd) - SHOWN} more columns" if len(odd) > SHOWN else ""
            warnings.warn("; ".join(odd[:SHOWN]) + more, UnforeseenDataWarning, stacklevel=2)
        return values

    def get_feature_names_out(self, input_features: object = None) -> NDArray[Any]:
        """The names of the features, all different."""
        check_is_fitted(self)
        names: dict[str, None] = {}
        for column in self.columns_.values():
            for feature in column.features:
                new, number = feature, 2
                while new in names:  # 'c' of the column 'a=b' and 'b=c' of 'a' would be the same
                    new, number = f"{feature}.{number}", number + 1
                names[new] = None
        return np.array(list(names), dtype=object)

    def groups(self) -> dict[str, list[int]]:
        """The places of the features that are made of each column, for those that have any."""
        check_is_fitted(self)
        found, end = {}, 0
        for name, column in self.columns_.items():
            if column.features:
                start, end = end, end + len(column.features)
                found[name] = list(range(start, end))
        return found

    def notes(self) -> list[str]:
        """How the table, and each of its columns, is read: a sentence for each."""
        check_is_fitted(self)
        return [*self.remarks_, *(f"{name}: {column.note()}" for name, column in self.columns_.items())]

    def brief_notes(self) -> list[str]:
        """The same, with plain numbers last, and where they are many in one sentence."""
        check_is_fitted(self)
        notes = {name: column.note() for name, column in self.columns_.items()}
        plain = [name for name, note in notes.items() if note == PLAIN]
        last = [f"{name}: {PLAIN}" for name in plain]
        if len(plain) > SHOWN:
            last = [f"{', '.join(plain[:FEW])} and {len(plain) - FEW:,} more: numbers"]
        others = [f"{name}: {note}" for name, note in notes.items() if note != PLAIN]
        return [*self.remarks_, *others, *last]

    def with_remarks(self, remarks: Iterable[str], decimal: Mark | None = None) -> Self:
        """The same, with sentences on the table that it was fitted to, and the decimal mark of its file."""
        check_is_fitted(self)
        return type(self)(self.ignore, self.categorical, self.keep)._with(self.columns_, remarks, decimal)

    def plain(self) -> dict[str, Any]:
        """All that it is as values of JSON: `from_plain` makes the same of them."""
        check_is_fitted(self)
        options = {option: list(getattr(self, option)) for option in OPTIONS}
        learned = [column_types.to_plain(column) for column in self.columns_.values()]
        plain = {"version": VERSION, **options, "columns": learned, "remarks": list(self.remarks_)}
        return plain if self.decimal_ is None else {**plain, "decimal": self.decimal_}

    @classmethod
    def from_plain(cls, plain: object) -> Self:
        """The encoder that `plain` wrote. Everything is checked, and nothing is executed."""
        if not isinstance(plain, dict) or plain.get("version") != VERSION:
            raise ValueError(f"an encoder is a dict of version {VERSION}, got {str(plain)[:60]}")
        wanted = {"version", *OPTIONS, "columns", "remarks"}
        decimal = plain.get("decimal")  # which files of earlier versions do not have
        if decimal is not None:
            choice("decimal of an encoder", decimal, tuple(MARK_NAMES))
        if set(plain) - {"decimal"} != wanted or not isinstance(plain["columns"], list):
            raise ValueError(f"an encoder has {', '.join(sorted(wanted))}, got {', '.join(map(str, plain))}")
        options = {option: _listed(option, plain[option]) for option in OPTIONS}
        learned = {column.name: column for column in map(column_types.from_plain, plain["columns"])}
        if len(learned) < len(plain["columns"]) or not any(c.features for c in learned.values()):
            raise ValueError("the columns of an encoder must have different names, and some features")
        return cls(**options)._with(learned, _listed("remarks", plain["remarks"]), decimal)


def as_frame(X: Any) -> pd.DataFrame:
    """A table with different names of text; those of an array are x0, x1, ..."""
    if not isinstance(X, pd.DataFrame):
        array = check_array(X, dtype=None, ensure_all_finite=False)
        return pd.DataFrame(array, columns=[f"x{i}" for i in range(array.shape[1])])
    names = [str(name) for name in X.columns]
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise ValueError(f"columns must have different names, and several are {', '.join(map(repr, twice))}")
    frame = X.copy(deep=False)
    frame.columns = pd.Index(names, dtype=object)
    return frame


def _listed(option: str, given: object) -> tuple[str, ...]:
    names = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (None,)
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"{option} must be a list of names, got {given!r}")
    return names


def _check_there(frame: pd.DataFrame, names: Iterable[str]) -> None:
    if lacking := [repr(name) for name in dict.fromkeys(names) if name not in frame.columns]:
        there = [repr(name) for name in frame.columns]
        more = f" and {len(there) - 2 * SHOWN} more" if len(there) > 2 * SHOWN else ""
        raise ValueError(
            f"{'there is no column' if len(lacking) == 1 else 'there are no columns'} "
            f"{', '.join(lacking[: 2 * SHOWN])}; there are "
            f"{', '.join(there[: 2 * SHOWN])}{more}"
        )


def _told(column: Column, odd: pd.Series) -> str:
    """What new data have that training did not have, in one column: cells that say something, first."""
    there = texts(odd, MISSING if isinstance(column, Category) else BLANKS).dropna()
    first = odd.index[0] if there.empty else there.index[0]
    what = "it is missing, and never was in training"
    if not there.empty:
        what = f"{shortened(there.iloc[0])} {column.unlike}"
    more = f" (and {len(odd) - 1} more)" if len(odd) > 1 else ""
    return f"{place(odd)} {first}, column {column.name!r}: {what}{more}"
