"""Parse cells as text, numbers, truth values and dates, and recognise missing ones."""

from __future__ import annotations

from collections.abc import Set
from datetime import datetime
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from heatbath._internal.checks import is_real

SPREADSHEET_ERRORS = ("#div/0!", "#n/a", "#name?", "#null!", "#num!", "#ref!", "#value!")
MISSING = frozenset(["", "na", "n/a", "<na>", "nan", "nat", "null", *SPREADSHEET_ERRORS])  # in lower case
# Texts that are missing where numbers, dates or truth values are expected
BLANKS = MISSING | {"-", "--", ".", "?", "nil", "none", "missing"}
LARGEST = 1e100  # larger numbers count as missing, because their squares could overflow
WITH_EXPONENT = 1e16  # from here on, numbers have an exponent in text
TRUTHS = (("false", "true"), ("no", "yes"), ("n", "y"), ("f", "t"))
FORMATS = {  # formats of dates, tried in this order; a time of day may follow
    "ISO8601": "year-month-day",
    "%m/%d/%Y": "month/day/year",
    "%d/%m/%Y": "day/month/year",
    "%d.%m.%Y": "day.month.year",
    "%d-%m-%Y": "day-month-year",
    "%Y/%m/%d": "year/month/day",
    "%m/%d/%y": "month/day/year",
    "%d/%m/%y": "day/month/year",
    "%d.%m.%y": "day.month.year",
    "%d %b %Y": "day month year",
    "%d-%b-%Y": "day-month-year",
    "%b %d, %Y": "month day, year",
    "%d %B %Y": "day month year",
    "%B %d, %Y": "month day, year",
}
TIMES = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
FORMS = ("ISO8601", *(date + time for date in FORMATS if date != "ISO8601" for time in TIMES))
WITH_UNIT = r"^[+\-\u2212]?\d[\d.,' ]*?\s*([^\d\s.,'+\-][^\d]*)$"  # a number, and what follows it
SAMPLE, FEW_TEXTS = 50, 9  # texts that show whether these are dates, about, and in which formats
# The beginning of a date
LIKE_DATES = r"^(?:\d{1,4}[-/. ][A-Za-z]{3,9}|\d{1,4}[-/.]\d{1,2}|[A-Za-z]{3,9} \d{1,2}, \d)"
START = pd.Timestamp("2000-01-03")  # day 0, a Monday


def row_label(column: pd.Series | pd.DataFrame) -> str:
    """Return "line" if the index of a table has the line numbers of a file, and "row" otherwise."""
    return column.index.name if column.index.name == "line" else "row"


def texts(column: pd.Series, blanks: Set[str] = MISSING) -> pd.Series:
    """Return cells as text without surrounding spaces, and NaN for missing cells.

    Parameters
    ----------
    column : Series
        Cells of any kind. Whole numbers are written without a decimal point.
    blanks : set of str
        Texts, in lower case, that stand for a missing cell.
    """
    if pd.api.types.is_bool_dtype(column.dtype):
        return column.map({True: "True", False: "False"}).astype("str")
    if pd.api.types.is_numeric_dtype(column.dtype):
        return pd.Series(numbers(column), column.index).map(_number_text, na_action="ignore").astype("str")
    if not isinstance(column.dtype, pd.StringDtype):
        column = column.map(_cell_text, na_action="ignore").astype("str")
    column = column.str.strip()
    return column.mask(column.str.lower().isin(blanks))


def _cell_text(cell: Any) -> str:
    """Return any cell as text."""
    if is_real(cell):
        return _number_text(float(cell))
    return str(cell)


def _number_text(value: float) -> str:
    """Return a number as text, without a point if it is whole, and without an exponent below 1e16."""
    if abs(value) >= WITH_EXPONENT:
        return repr(value)
    return np.format_float_positional(value, trim="-")


def numbers(column: pd.Series) -> NDArray[np.float64]:
    """Return cells as numbers, (rows,), and NaN for cells that are missing or not numbers.

    Currency signs, per cent signs and separators of thousands are ignored. An amount in brackets is negative.
    Numbers above 1e100 count as missing.
    """
    if pd.api.types.is_numeric_dtype(column.dtype):
        values = column.to_numpy(np.float64, na_value=np.nan)
    elif isinstance(column.dtype, pd.StringDtype):
        values = _numbers_in(column)
    else:
        values = _numbers_in(texts(column))
    with np.errstate(invalid="ignore"):
        return np.where(np.abs(values) <= LARGEST, values, np.nan)


def _numbers_in(text: pd.Series) -> NDArray[np.float64]:
    """Return texts as numbers, without signs of currencies and the like, and NaN for other texts."""
    values = _to_numeric(text)
    is_decorated = np.isnan(values) & text.notna().to_numpy()
    if is_decorated.any():
        is_decorated[is_decorated] = text[is_decorated].str.contains(r"\d", na=False)
    if not is_decorated.any():
        return values

    # In order: (5) is -5, signs of currencies and per cent, the typographic minus, thousands
    bare = text[is_decorated].str.strip().str.replace(r"^\(([^()+\-\u2212]*)\)$", r"-\1", regex=True)
    bare = bare.str.replace(r"^([+\-\u2212]?)[$€£¥]\s*|\s*[%$€£¥]$", r"\1", regex=True)
    bare = bare.str.replace("\u2212", "-", regex=False)
    bare = bare.str.replace(r"(?<=\d)[,' ](?=\d{3}(?:\D|$))", "", regex=True)
    values[is_decorated] = _to_numeric(bare)
    return values


def _to_numeric(text: pd.Series) -> NDArray[np.float64]:
    """Return texts as numbers, and NaN for other texts."""
    return np.array(pd.to_numeric(text, errors="coerce"), np.float64)


def unit_of(text: pd.Series, most_odd: float) -> str | None:
    """Return the unit after the number in texts such as "12.5 kg", or None without a common unit.

    Parameters
    ----------
    text : Series of str
        The texts.
    most_odd : float
        Largest share of texts that may lack the unit.
    """
    if text.empty:
        return None
    units = text.str.extract(WITH_UNIT)[0].str.strip()
    shares = units.value_counts() / len(text)  # the most frequent unit comes first
    if shares.empty or shares.iloc[0] < 1 - most_odd:
        return None
    return str(shares.index[0])


def without_unit(column: pd.Series, unit: str) -> pd.Series:
    """Return the texts of a column without this unit at their end; "" returns the column as it is."""
    return texts(column).str.removesuffix(unit).str.strip() if unit else column


def truths(column: pd.Series, words: tuple[str, ...]) -> NDArray[np.float64]:
    """Return 0 for the first of two words, 1 for the second, and NaN for all other cells, (rows,)."""
    values = texts(column).str.lower().map({word: float(i) for i, word in enumerate(words)})
    return np.array(values, np.float64)


def days(column: pd.Series, form: str | None) -> NDArray[np.float64]:
    """Return cells as days since Monday, 3 January 2000, (rows,), and NaN for cells that aren't dates.

    Parameters
    ----------
    column : Series
        The cells. Times with a time zone are converted to UTC.
    form : str or None
        One of `FORMS`; None if the cells are dates already.
    """
    if not pd.api.types.is_datetime64_any_dtype(column.dtype):
        column = pd.to_datetime(texts(column), format=form or "ISO8601", errors="coerce", utc=True)
    if column.dt.tz is not None:
        column = column.dt.tz_convert("UTC").dt.tz_localize(None)
    return np.array((column - START) / pd.Timedelta(days=1), np.float64)


def _is_date(text: str, form: str) -> bool:
    """Return True if a text is a date of this format; for single texts this is faster than pandas."""
    try:
        return bool(datetime.strptime(text, form))
    except ValueError:
        return False


def _has_date(text: pd.Series, form: str) -> bool:
    """Return True if one of the texts is a date of this format."""
    return any(_is_date(cell, form) for cell in text)


def date_forms(text: pd.Series, most_odd: float) -> tuple[str, str] | None:
    """Detect the format of dates.

    Parameters
    ----------
    text : Series of str
        The texts.
    most_odd : float
        Largest share of texts that may not be dates.

    Returns
    -------
    tuple of str, or None
        The format in which most texts are dates, and another format in which equally many texts are other
        dates, or "". None if the texts are not dates.
    """
    sample = text.iloc[:: max(1, len(text) // SAMPLE)]
    if (~sample.str.contains(LIKE_DATES)).mean() > most_odd:
        return None

    # To parse all texts takes long, so a format must fit one of a few
    few_texts = sample.iloc[:FEW_TEXTS]
    iso, *other_forms = FORMS  # the first one isn't known to `strptime`
    candidates = [iso, *(form for form in other_forms if _has_date(few_texts, form))]
    parsed = {form: days(text, form) for form in candidates}
    failures = {form: int(np.isnan(values).sum()) for form, values in parsed.items()}
    best = min(candidates, key=lambda form: failures[form])
    if failures[best] > most_odd * len(text):
        return None

    # With the month or the day first, 1/2/2020 is a date in both formats, but not the same one
    for form in candidates:
        is_same = np.array_equal(parsed[form], parsed[best], equal_nan=True)
        if failures[form] == failures[best] and not is_same:
            return best, form
    return best, ""
