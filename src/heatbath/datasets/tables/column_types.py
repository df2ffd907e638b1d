"""Detect what a column of a table is, and make features of it.

A column is a number, a truth value, a date, a category, or left out. Each is a frozen value that is saved
with a problem. The reasons for which columns are left out are saved, too, and compared when a run continues:
changing their words would break that.
"""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.preprocessing import OneHotEncoder

from heatbath._internal.checks import choice, real, whole
from heatbath.datasets.problem import Floats
from heatbath.datasets.tables import parsing
from heatbath.datasets.tables.parsing import BLANKS, FORMATS, FORMS, TRUTHS, row_label, texts

MOST_ODD = 0.05  # largest share of odd cells, which are neither, in a column of numbers or dates
CODES = r"^[+-]?0\d+$"  # a code such as 007
FEW_CODES = 0.01  # share of codes from which on a column of digits is no number
INFINITE = re.compile(r"^[+-]?inf(?:inity)?$", re.IGNORECASE)
NEARLY_ALL = 0.9  # share of different texts from which on they name the rows
FEWEST_NAMES = 10  # number of different texts from which on they can name the rows
FEWEST_COUNTED = 20  # rows from which on whole numbers can be recognised as row numbers
RARE, RARE_SHARE, SMALL_SHARE = 5, 0.005, 0.05  # rows and shares of rows: see `_fewest_rows_of_category`
MOST_CATEGORIES = 20  # of a column, including the joined rare ones
FEW_WORDS = 2  # different words that may stand for missing numbers, however often
MOST_RARE = 1000  # rare categories that are stored to distinguish them from new ones
PERIODS = {"year": 365.25, "week": 7.0, "day": 1.0}  # in days
SAME_PHASE = 1e-6  # days by which equal phases may differ
SHOWN, LONGEST = 3, 30  # texts that a note shows, and characters of one
MANY = 0.5  # share of texts that look like numbers or dates: see `suspicion`
SAMPLE = 200  # texts that are examined for that
FIRST_ROWS, MOST_SPELLINGS = 100, 4  # of a truth value: rows that show the spellings of its two words
GAP, JOINED = "(missing)", "(rare)"  # names of the features of these cells
EMPTY, COUNTS = "all its cells are empty", "it counts the rows (keep takes it all the same)"
NAMED = "its name says that it names the rows, and its numbers are different (keep takes it all the same)"
IDENTIFIER = re.compile(r"(?i:(?:^|[\W_])(?:id|uuid|guid)$)|[a-z]I[dD]$")  # end of the name of an identifier
YEARS = (1500, 2200)  # whole numbers in this range are years and no row numbers


class Encoded(NamedTuple):
    """Features of a column.

    Attributes
    ----------
    values : array, (rows, features)
        The features.
    unforeseen : array of bool, (rows,)
        True for cells with something that training did not have.
    """

    values: Floats
    unforeseen: NDArray[np.bool_]


@dataclass(frozen=True)
class Number:
    """Column of numbers. Missing ones are replaced by the median, and an extra feature marks them.

    Attributes
    ----------
    name : str
        The name of the column.
    median : float
        Replaces missing numbers.
    missing : int
        Missing cells in training.
    odd : tuple of str
        Some cells in training that are not numbers.
    unit : str
        Follows each number, such as kg; "" without a unit.
    """

    name: str
    median: float
    missing: int = 0
    odd: tuple[str, ...] = ()
    unit: str = ""

    kind: ClassVar[str] = "number"
    unlike: ClassVar[str] = "is not a number, and counts as missing"

    def __post_init__(self) -> None:
        """Check the types of all fields."""
        _check_fields(self)

    @property
    def features(self) -> tuple[str, ...]:
        """Names of its features."""
        return (self.name, *_gap_feature(self))

    def encode(self, column: pd.Series) -> Encoded:
        """Return the numbers and perhaps the marks of missing ones as features."""
        column = parsing.without_unit(column, self.unit)
        return _fill_gaps(column, parsing.numbers(column), self.median, self)

    def note(self) -> str:
        """Return a sentence on how the column is read."""
        unit = f" of {self.unit}" if self.unit else ""
        return f"a number{unit}{_gaps(self.missing, f'{self.median:g}, the median', self.odd)}"


@dataclass(frozen=True)
class Truth:
    """Column with two words for false and true, as 0 and 1.

    Missing cells are replaced by the mean, and an extra feature marks them.

    Attributes
    ----------
    name : str
        The name of the column.
    words : tuple of str
        The words for false and true.
    mean : float
        Replaces missing cells.
    missing : int
        Missing cells in training.
    """

    name: str
    words: tuple[str, ...]
    mean: float
    missing: int = 0

    kind: ClassVar[str] = "truth"

    def __post_init__(self) -> None:
        """Check the types of all fields."""
        _check_fields(self)
        choice("words", " ".join(self.words), tuple(" ".join(pair) for pair in TRUTHS))

    @property
    def unlike(self) -> str:
        """Message about a cell that is neither word."""
        return f"is neither {' nor '.join(self.words)}, and counts as missing"

    @property
    def features(self) -> tuple[str, ...]:
        """Names of its features."""
        return (self.name, *_gap_feature(self))

    def encode(self, column: pd.Series) -> Encoded:
        """Return 0, 1 and perhaps the marks of missing cells as features."""
        return _fill_gaps(column, parsing.truths(column, self.words), self.mean, self)

    def note(self) -> str:
        """Return a sentence on how the column is read."""
        return f"{' and '.join(self.words)}: 0 and 1{_gaps(self.missing, f'{self.mean:.2g}, the mean')}"


@dataclass(frozen=True)
class Date:
    """Column of dates, as years since the beginning of 2000.

    If the training rows span more than one year, week or day, its sine and cosine are features, too.

    Attributes
    ----------
    name : str
        The name of the column.
    form : str or None
        The format, or None for cells that are dates already.
    median : float
        Replaces missing dates, in days.
    periods : tuple of str
        The periods whose sine and cosine are features.
    missing : int
        Missing cells in training.
    odd : tuple of str
        Some texts in training that are no dates.
    other : str
        Another format that fits equally well, or "".
    """

    name: str
    form: str | None
    median: float
    periods: tuple[str, ...] = ()
    missing: int = 0
    odd: tuple[str, ...] = ()
    other: str = ""

    kind: ClassVar[str] = "date"

    def __post_init__(self) -> None:
        """Check the types of all fields."""
        _check_fields(self)
        for period in self.periods:
            choice("periods", period, tuple(PERIODS))
        if self.form is not None:
            choice("form", self.form, FORMS)
        if self.other:
            choice("other", self.other, FORMS)

    @property
    def features(self) -> tuple[str, ...]:
        """Names of its features."""
        waves = [f"{self.name} ({wave} of {period})" for period in self.periods for wave in ("sin", "cos")]
        return (f"{self.name} (years)", *waves, *_gap_feature(self))

    def encode(self, column: pd.Series) -> Encoded:
        """Return years, sines and cosines, and perhaps the marks of missing dates, as features."""
        filled, is_unforeseen = _fill_gaps(column, parsing.days(column, self.form), self.median, self)
        day = filled[:, :1]
        gap_marks = filled[:, 1:]
        waves = []
        for period in self.periods:
            angle = 2 * math.pi * day / PERIODS[period]
            waves += [np.sin(angle), np.cos(angle)]
        return Encoded(np.hstack([day / PERIODS["year"], *waves, gap_marks]), is_unforeseen)

    @property
    def _format_note(self) -> str:
        """Format in words after a comma, or nothing for cells that are dates already."""
        return f", {_format_in_words(self.form)}" if self.form else ""

    @property
    def unlike(self) -> str:
        """Message about a cell that is no date."""
        return f"is not a date{self._format_note}, and counts as missing"

    def note(self) -> str:
        """Return a sentence on how the column is read."""
        features = ["years since 2000", *(f"the time of the {period}" for period in self.periods)]
        gaps = _gaps(self.missing, "the median", self.odd)
        alternative = ""
        if self.other:
            form = _format_in_words(self.other)
            alternative = f" (all could also be {form}: if they are, write them as 2024-12-31)"
        return f"a date{self._format_note}{alternative}, as {', '.join(features)}{gaps}"


@dataclass(frozen=True)
class Category:
    """Column of categories, with a feature for each, one for all rare ones and one for missing cells.

    A new category has 0 in all features.

    Attributes
    ----------
    name : str
        The name of the column.
    known : tuple of str
        Categories with their own feature.
    rare : tuple of str
        Categories that share a feature.
    crowded : bool
        True if there are too many rare ones to store. Then new ones are treated as rare.
    missing : int
        Missing cells in training.
    """

    name: str
    known: tuple[str, ...]
    rare: tuple[str, ...] = ()
    crowded: bool = False
    missing: int = 0

    kind: ClassVar[str] = "category"
    unlike: ClassVar[str] = "did not occur in training"

    def __post_init__(self) -> None:
        """Check the types of all fields."""
        _check_fields(self)
        if len({*self.known, *self.rare}) < len(self.known) + len(self.rare):
            raise ValueError(f"the categories of {self.name!r} must be different")

    @property
    def features(self) -> tuple[str, ...]:
        """Names of its features."""
        categories = [*self.known]
        if self.rare or self.crowded:
            categories.append(JOINED)
        return (*(f"{self.name}={category}" for category in categories), *_gap_feature(self))

    def encode(self, column: pd.Series) -> Encoded:
        """Return 1 in the feature of each cell's category and 0 in all others.

        Cells are unforeseen if their category is new, or if they are missing and none was in training.
        """
        text = texts(column)
        positions = {category: i for i, category in enumerate(self.known)}
        rare_position = len(self.known)
        positions |= dict.fromkeys(self.rare, rare_position)
        feature = np.array(text.map(positions), np.float64)  # index of the feature that is 1, NaN for none

        is_missing = np.array(text.isna())
        is_unforeseen = np.isnan(feature) & ~is_missing
        if self.crowded:
            feature[is_unforeseen] = rare_position
            is_unforeseen[:] = False
        if self.missing:
            feature[is_missing] = len(self.features) - 1
        else:
            is_unforeseen |= is_missing

        one_hot = feature[:, None] == np.arange(len(self.features))
        return Encoded(one_hot.astype(np.float64), is_unforeseen)

    def note(self) -> str:
        """Return a sentence on how the column is read."""
        clauses = [f"a category, {len(self.known)} different"]
        if self.crowded:
            clauses.append(f"over {MOST_RARE} rare ones joined")
        elif len(self.rare) == 1:
            clauses.append("1 rare one")
        elif self.rare:
            clauses.append(f"{len(self.rare)} rare ones joined")
        if self.missing == 1:
            clauses.append("1 missing cell forms a category of its own")
        elif self.missing:
            clauses.append(f"{self.missing} missing cells form a category of their own")
        return ", ".join(clauses)


@dataclass(frozen=True)
class LeftOut:
    """Column without features.

    Attributes
    ----------
    name : str
        The name of the column.
    reason : str
        Why it is left out.
    """

    name: str
    reason: str

    kind: ClassVar[str] = "left out"
    unlike: ClassVar[str] = ""
    features: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        """Check the types of all fields."""
        _check_fields(self)

    def encode(self, column: pd.Series) -> Encoded:
        """Return no features."""
        return Encoded(np.empty((len(column), 0)), np.zeros(len(column), bool))

    def note(self) -> str:
        """Return a sentence on why the column is left out."""
        return f"left out: {self.reason}"


Column: TypeAlias = Number | Truth | Date | Category | LeftOut
TEXT_FIELDS = ("name", "reason", "unit", "other")
LIST_FIELDS = ("odd", "words", "known", "rare", "periods")
KINDS: dict[str, type[Column]] = {
    column_type.kind: column_type for column_type in (Number, Truth, Date, Category, LeftOut)
}


def learn(column: pd.Series, name: str, categorical: bool, keep: bool) -> Column:
    """Detect the type of a column from its cells in training.

    Parameters
    ----------
    column : Series
        The cells.
    name : str
        The name of the column.
    categorical : bool
        True if it must be a category.
    keep : bool
        True if it must not be left out because it seems to name or count the rows.

    Returns
    -------
    Column
        Its type, with all that is needed to encode new cells.
    """
    if categorical:
        return _learn_category(texts(column), name, keep=True)

    dtype = column.dtype
    if pd.api.types.is_numeric_dtype(dtype) and not pd.api.types.is_bool_dtype(dtype):
        return _learn_number(column, name, parsing.numbers(column), keep)
    if pd.api.types.is_datetime64_any_dtype(dtype):
        return _learn_date(column, name, None)

    values = parsing.numbers(column)
    are_all_numbers = isinstance(dtype, pd.StringDtype) and not np.isnan(values).any()
    if are_all_numbers and column.str.contains(CODES).mean() < FEW_CODES:  # a short cut for most columns
        return _learn_number(column, name, values, keep)

    text = texts(column)
    return _learn_from_text(text, name, values, keep) or _learn_category(text, name, keep)


def _learn_from_text(text: pd.Series, name: str, values: Floats, keep: bool) -> Column | None:
    """Detect whether texts are truth values, numbers or dates; return None for other texts.

    Parameters
    ----------
    text : Series of str
        The cells, with NaN for missing ones.
    name : str
        The name of the column.
    values : array, (rows,)
        The same cells as numbers, with NaN for all others.
    keep : bool
        True if it must not be left out because it seems to name or count the rows.
    """
    present = texts(text, BLANKS).dropna()
    if present.empty:
        return None

    truth_words = _truth_words(present)
    if truth_words is not None:
        truths = parsing.truths(text, truth_words)
        return Truth(name, truth_words, float(np.nanmean(truths)), int(np.isnan(truths).sum()))
    if present.str.contains(CODES).mean() >= FEW_CODES:
        return None
    if _are_numbers(present, values):
        return _learn_number(text, name, values, keep)

    forms = parsing.date_forms(present, MOST_ODD)
    if forms is not None:
        form, other_form = forms
        dates = _learn_date(text, name, form)
        return replace(dates, other=other_form) if isinstance(dates, Date) else dates

    unit = parsing.unit_of(present, MOST_ODD)
    if unit is not None:
        bare = parsing.without_unit(text, unit)
        numbers = _learn_number(bare, name, parsing.numbers(bare), keep)
        return replace(numbers, unit=unit) if isinstance(numbers, Number) else numbers
    return None


def _truth_words(text: pd.Series) -> tuple[str, str] | None:
    """Return the words for false and true if texts are only these two, and None otherwise."""
    if text.iloc[:FIRST_ROWS].nunique() > MOST_SPELLINGS:  # so in most columns, without a look at all rows
        return None
    words = set(text.str.lower().unique())
    for pair in TRUTHS:
        if words == set(pair):
            return pair
    return None


def suspicion(column: pd.Series, learned: Column) -> str | None:
    """Return why a column that is treated as text should perhaps be numbers or dates, or None.

    Only a sample of the cells is examined, and only if the column has many different texts.

    Parameters
    ----------
    column : Series
        The cells in training.
    learned : Column
        Their type.
    """
    if isinstance(learned, Category):
        has_many_texts = bool(learned.rare) or learned.crowded
    else:
        has_many_texts = isinstance(learned, LeftOut)
    if not has_many_texts or pd.api.types.is_numeric_dtype(column.dtype):
        return None

    sample = texts(column.iloc[:: max(1, len(column) // SAMPLE)], BLANKS).dropna()
    if sample.empty:
        return None

    is_no_number = np.isnan(parsing.numbers(sample))
    if MOST_ODD < is_no_number.mean() < MANY:
        odd_texts = sample[is_no_number]
        example = f"{shortened(odd_texts.iloc[0])} in {row_label(column)} {odd_texts.index[0]}"
        return f"the most of its texts are numbers, and too many are not, such as {example}: write all alike"
    looks_like_dates = is_no_number.all() and sample.str.contains(parsing.LIKE_DATES).mean() > MANY
    if looks_like_dates and _are_dates(sample).mean() > MANY:
        return "the most of its texts seem to be dates, and not of one form: write all alike, as 2024-12-31"
    return None


def _are_dates(text: pd.Series) -> NDArray[np.bool_]:
    """Return which texts are dates, (texts,), each in any format."""
    are_dates = np.zeros(len(text), bool)
    for form in FORMS:
        are_dates |= ~np.isnan(parsing.days(text, form))
    return are_dates


def _are_numbers(text: pd.Series, values: Floats) -> bool:
    """Return True if texts are a column of numbers with a few exceptions.

    The exceptions are either few, or at most two different words such as "unknown" among many different
    numbers. Infinite numbers count as missing, not as exceptions.

    Parameters
    ----------
    text : Series of str
        The cells that aren't missing.
    values : array
        All cells as numbers, with NaN for those that are none.
    """
    numbers = values[~np.isnan(values)]
    finite_text = text[~text.str.contains(INFINITE)]
    if len(numbers) and len(numbers) >= (1 - MOST_ODD) * len(finite_text):
        return True
    if 2 * len(numbers) < len(finite_text) or len(np.unique(numbers)) <= MOST_CATEGORIES:
        return False
    words = finite_text[np.isnan(parsing.numbers(finite_text))]
    return bool(words.nunique() <= FEW_WORDS)


def _learn_number(column: pd.Series, name: str, values: Floats, keep: bool) -> Column:
    """Return the type of a column of numbers, or why it is left out.

    Parameters
    ----------
    column : Series
        The cells.
    name : str
        The name of the column.
    values : array, (rows,)
        The cells as numbers, with NaN for those that are none.
    keep : bool
        True if it must not be left out because it seems to name or count the rows.
    """
    present = values[~np.isnan(values)]
    if not present.size:
        return LeftOut(name, EMPTY)

    missing = len(values) - len(present)
    if not missing and (present == present[0]).all():
        return LeftOut(name, f"it is {present[0]:g} everywhere")
    if not keep and _identifies_rows(name, present):
        return LeftOut(name, NAMED)
    if not missing and not keep and _counts_rows(present):
        return LeftOut(name, COUNTS)

    odd = _examples_of_odd_cells(column, np.isnan(values)) if missing else ()
    return Number(name, float(np.median(present)), missing, odd)


def _identifies_rows(name: str, values: Floats) -> bool:
    """Return True for a column with the name of an identifier and nearly all different whole numbers."""
    if IDENTIFIER.search(name) is None or len(values) < FEWEST_NAMES:
        return False
    are_whole = (np.floor(values) == values).all()
    return bool(are_whole and len(np.unique(values)) >= NEARLY_ALL * len(values))


def _counts_rows(values: Floats) -> bool:
    """Return True for different whole numbers with few gaps between them that are no years."""
    rows = len(values)
    if rows < FEWEST_COUNTED:
        return False
    smallest = values.min()
    largest = values.max()
    first_year, last_year = YEARS
    are_years = first_year <= smallest and largest <= last_year
    if are_years or largest - smallest >= 2 * rows:
        return False
    are_whole = (np.floor(values) == values).all()
    return bool(are_whole and len(np.unique(values)) == rows)


def _learn_date(column: pd.Series, name: str, form: str | None) -> Column:
    """Return the type of a column of dates, or why it is left out.

    Parameters
    ----------
    column : Series
        The cells.
    name : str
        The name of the column.
    form : str or None
        Format of the dates; None is for cells that are dates already.
    """
    values = parsing.days(column, form)
    present = values[~np.isnan(values)]
    if not present.size:
        return LeftOut(name, EMPTY)

    missing = len(values) - len(present)
    if not missing and (present == present[0]).all():
        return LeftOut(name, "it is the same date everywhere")

    # A period is a feature if the dates span it, and don't all have the same phase
    span = np.ptp(present)
    periods = []
    for period, length in PERIODS.items():
        phase = present % length
        if period == "week":
            phase = np.floor(phase)  # in whole days, because hours belong to the day
        if span > length and np.ptp(phase) > SAME_PHASE:
            periods.append(period)

    odd = _examples_of_odd_cells(column, np.isnan(values)) if missing else ()
    return Date(name, form, float(np.median(present)), tuple(periods), missing, odd)


def _learn_category(text: pd.Series, name: str, keep: bool) -> Column:
    """Return the type of a column of categories, or why it is left out.

    Parameters
    ----------
    text : Series of str
        The cells, with NaN for missing ones.
    name : str
        The name of the column.
    keep : bool
        True if it must not be left out because its texts seem to name the rows.
    """
    present = text.dropna()
    if present.empty:
        return LeftOut(name, EMPTY)

    missing = len(text) - len(present)
    text_count = present.nunique()
    if text_count == 1 and not missing:
        return LeftOut(name, f"it is {shortened(present.iloc[0])} everywhere")
    if not keep and text_count >= max(FEWEST_NAMES, NEARLY_ALL * len(present)):
        return LeftOut(
            name, f"it names the rows, with {text_count} different texts in {len(present)} of them"
        )

    fewest_rows = _fewest_rows_of_category(len(text))
    encoder = OneHotEncoder(min_frequency=fewest_rows, max_categories=MOST_CATEGORIES)
    encoder.fit(present.to_numpy(object)[:, None])
    infrequent = encoder.infrequent_categories_[0]
    rare = () if infrequent is None else tuple(infrequent.tolist())
    known = tuple(np.setdiff1d(encoder.categories_[0], np.array(rare, object)).tolist())
    if not known and not missing:
        return LeftOut(name, f"each of its {text_count} texts is rare")
    if len(rare) > MOST_RARE:
        return Category(name, known, (), crowded=True, missing=missing)
    return Category(name, known, rare, crowded=False, missing=missing)


def _fewest_rows_of_category(rows: int) -> int:
    """Return how many rows a category needs to have its own feature, in a table with this many rows.

    That is 5, fewer in small tables, and more in large ones, where a feature that is hardly ever 1 would be
    scaled to huge values.
    """
    fewest = min(RARE, SMALL_SHARE * rows)
    return max(1, round(max(fewest, RARE_SHARE * rows)))


def _format_in_words(form: str) -> str:
    """Return a format of dates in words, such as "year-month-day"."""
    return next(words for start, words in FORMATS.items() if form.startswith(start))


def _gap_feature(column: Number | Truth | Date | Category) -> list[str]:
    """Return the name of the feature that marks missing cells, if some were missing in training."""
    return [f"{column.name}={GAP}"] if column.missing else []


def _fill_gaps(column: pd.Series, values: Floats, fill: float, learned: Number | Truth | Date) -> Encoded:
    """Replace missing values, and mark them in a second feature if some were missing in training.

    Parameters
    ----------
    column : Series
        The cells.
    values : array, (rows,)
        Their values, with NaN for missing ones.
    fill : float
        Replaces missing values.
    learned : Number, Truth or Date
        The type of the column.

    Returns
    -------
    Encoded
        Missing cells are unforeseen if none were missing in training. Otherwise texts without a value are,
        if training had no such texts.
    """
    is_missing = np.isnan(values)
    filled = np.where(is_missing, fill, values)[:, None]
    if not learned.missing:
        return Encoded(filled, is_missing)

    is_unforeseen = np.zeros_like(is_missing)
    had_odd_texts = not isinstance(learned, Truth) and learned.odd
    if not had_odd_texts:
        is_unforeseen[is_missing] = texts(column[is_missing], BLANKS).notna()
    return Encoded(np.hstack([filled, is_missing[:, None]]), is_unforeseen)


def _examples_of_odd_cells(column: pd.Series, is_missing: NDArray[np.bool_]) -> tuple[str, ...]:
    """Return some texts in cells without a value, with the row where each occurs first."""
    odd_texts = texts(column[is_missing]).dropna().drop_duplicates().iloc[:SHOWN]
    return tuple(f"{shortened(text)} in {row_label(column)} {row}" for row, text in odd_texts.items())


def shortened(cell: object) -> str:
    """Return a cell as messages show it: quoted, and cut if it is long."""
    text = str(cell)
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]}..."
    return repr(text)


def _gaps(missing: int, fill: str, odd: tuple[str, ...] = ()) -> str:
    """Return a clause that says how missing cells are replaced; "" if none were missing in training."""
    if not missing:
        return ""
    examples = f" (such as {', '.join(odd)})" if odd else ""
    return f"; {missing} missing{examples} replaced by {fill}, and marked by a feature"


def to_plain(column: Column) -> dict[str, Any]:
    """Return the type of a column as values of JSON."""
    plain: dict[str, Any] = {"kind": column.kind}
    for name, value in asdict(column).items():
        if name in ("unit", "other") and not value:
            continue  # files of earlier versions and their checksums don't have these fields
        plain[name] = list(value) if isinstance(value, tuple) else value
    return plain


def from_plain(plain: object) -> Column:
    """Return the type of a column from the values that `to_plain` has returned, after checking them."""
    if not isinstance(plain, dict):
        raise TypeError(f"a column must be a dict, got {plain!r}")
    fields = {name: tuple(value) if isinstance(value, list) else value for name, value in plain.items()}
    kind: Any = fields.pop("kind", None)
    choice("kind of a column", kind, tuple(KINDS))
    make: Any = KINDS[kind]
    column: Column = make(**fields)
    return column


def _check_fields(column: Column) -> None:
    """Raise TypeError or ValueError for a field of a column that has a wrong type.

    Columns are read from saved files, which may have been edited or damaged.
    """
    for name, value in vars(column).items():
        if name in ("median", "mean"):
            real(name, value)
        if name == "missing":
            whole(name, value, low=0)
        if name == "crowded" and not isinstance(value, bool):
            raise TypeError(f"{name} must be true or false, got {value!r}")
        if name in TEXT_FIELDS and not isinstance(value, str):
            raise TypeError(f"{name} must be text, got {value!r}")
        if name in LIST_FIELDS and not _is_tuple_of_texts(value):
            raise TypeError(f"{name} must be a list of texts, got {value!r}")


def _is_tuple_of_texts(value: object) -> bool:
    """Return True for a tuple of texts."""
    return isinstance(value, tuple) and all(isinstance(text, str) for text in value)
