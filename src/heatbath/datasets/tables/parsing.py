"""What cells say: which are missing, and texts, numbers and dates of the others."""

from __future__ import annotations

from collections.abc import Set
from datetime import datetime
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from heatbath._internal.checks import is_real

ERRORS = ("#div/0!", "#n/a", "#name?", "#null!", "#num!", "#ref!", "#value!")  # of spreadsheets
MISSING = frozenset(["", "na", "n/a", "<na>", "nan", "nat", "null", *ERRORS])  # in lower case
BLANKS = MISSING | {
    "-",
    "--",
    ".",
    "?",
    "nil",
    "none",
    "missing",
}  # where numbers, dates or truths are expected
LARGEST = 1e100  # of a number: the squares of larger ones would overflow
TRUTHS = (("false", "true"), ("no", "yes"), ("n", "y"), ("f", "t"))
FORMATS = {  # of dates, tried in this order; a time of the day may follow
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
LIKE_DATES = r"^(?:\d{1,4}[-/. ][A-Za-z]{3,9}|\d{1,4}[-/.]\d{1,2}|[A-Za-z]{3,9} \d{1,2}, \d)"  # at first
START = pd.Timestamp("2000-01-03")  # a Monday, from which days are counted


def place(column: pd.Series | pd.DataFrame) -> str:
    """What the labels of rows are: lines of a file, or rows of a table."""
    return column.index.name if column.index.name == "line" else "row"


def texts(column: pd.Series, blanks: Set[str] = MISSING) -> pd.Series:
    """Cells as text, without spaces around it; NaN where they are missing. Whole numbers have no point."""
    if pd.api.types.is_bool_dtype(column.dtype):
        return column.map({True: "True", False: "False"}).astype("str")
    if pd.api.types.is_numeric_dtype(column.dtype):
        return pd.Series(numbers(column), column.index).map(_written, na_action="ignore").astype("str")
    if not isinstance(column.dtype, pd.StringDtype):
        column = column.map(_text, na_action="ignore").astype("str")
    column = column.str.strip()
    return column.mask(column.str.lower().isin(blanks))


def _text(cell: Any) -> str:
    return _written(float(cell)) if is_real(cell) else str(cell)


def _written(value: float) -> str:
    return np.format_float_positional(value, trim="-") if abs(value) < 1e16 else repr(value)


def numbers(column: pd.Series) -> NDArray[np.float64]:
    """Cells as numbers; NaN where they are missing, or none.

    Signs of currencies, of per cent and between thousands do not count; an amount in brackets is below 0.
    """
    if pd.api.types.is_numeric_dtype(column.dtype):
        values = column.to_numpy(np.float64, na_value=np.nan)
    else:
        column = column if isinstance(column.dtype, pd.StringDtype) else texts(column)
        values = _parsed(column)
        odd = np.isnan(values)
        odd[odd] = column[odd].str.contains(r"\d", na=False)
        if odd.any():
            bare = column[odd].str.strip().str.replace(r"^\(([^()+\-\u2212]*)\)$", r"-\1", regex=True)
            bare = bare.str.replace(r"^([+\-\u2212]?)[$€£¥]\s*|\s*[%$€£¥]$", r"\1", regex=True)
            bare = bare.str.replace("\u2212", "-", regex=False)  # the sign that typesetters use for minus
            values[odd] = _parsed(bare.str.replace(r"(?<=\d)[,' ](?=\d{3}(?:\D|$))", "", regex=True))
    with np.errstate(invalid="ignore"):
        return np.where(np.abs(values) <= LARGEST, values, np.nan)


def _parsed(text: pd.Series) -> NDArray[np.float64]:
    return np.array(pd.to_numeric(text, errors="coerce"), np.float64)


def unit_of(text: pd.Series, most_odd: float) -> str | None:
    """What follows the number in all but a few of these texts, as in 12.5 kg; None where it is not the
    same."""
    if not len(text):
        return None
    shares = text.str.extract(WITH_UNIT)[0].str.strip().value_counts() / len(text)
    return str(shares.index[0]) if len(shares) and shares.iloc[0] >= 1 - most_odd else None


def without_unit(column: pd.Series, unit: str) -> pd.Series:
    """The texts without this unit behind them."""
    return texts(column).str.removesuffix(unit).str.strip() if unit else column


def truths(column: pd.Series, words: tuple[str, ...]) -> NDArray[np.float64]:
    """0 and 1 for these two words; NaN where they are missing, or others."""
    values = texts(column).str.lower().map({word: float(i) for i, word in enumerate(words)})
    return np.array(values, np.float64)


def days(column: pd.Series, form: str | None) -> NDArray[np.float64]:
    """Cells as days since Monday, the 3rd of January 2000; NaN where they are missing, or no dates.

    `form` is one of `FORMS`, or None where they are dates already. Times of zones are those of Greenwich.
    """
    if not pd.api.types.is_datetime64_any_dtype(column.dtype):
        form = "ISO8601" if form is None else form
        column = pd.to_datetime(texts(column), format=form, errors="coerce", utc=True)
    if column.dt.tz is not None:
        column = column.dt.tz_convert("UTC").dt.tz_localize(None)
    return np.array((column - START) / pd.Timedelta(days=1), np.float64)


def _is_date(text: str, form: str) -> bool:
    """Whether one text is a date: pandas takes longer to begin than this."""
    try:
        return bool(datetime.strptime(text, form))
    except ValueError:
        return False


def date_forms(text: pd.Series, most_odd: float) -> tuple[str, str] | None:
    """The format in which the most of these texts are dates, and another in which as many are, but other ones
    ("" where there is none); None where in all formats more than a few are no dates."""
    few = text.iloc[:: max(1, len(text) // 50)]
    if (~few.str.contains(LIKE_DATES)).mean() > most_odd:
        return None
    known = [form for form in FORMS if form == "ISO8601" or any(_is_date(one, form) for one in few.iloc[:9])]
    found = {form: days(text, form) for form in known}
    failures = {form: int(np.isnan(values).sum()) for form, values in found.items()}
    best = min(known, key=lambda form: failures[form], default=None)
    if best is None or failures[best] > most_odd * len(text):
        return None
    ties = (form for form in known if failures[form] == failures[best])
    return best, next((form for form in ties if not np.array_equal(found[form], found[best], True)), "")
