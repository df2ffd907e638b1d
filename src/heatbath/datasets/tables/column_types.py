"""What a column of a table is, and how features are made of it: a number, a truth value, a date, a category,
or nothing to learn from. Each is a value, and can be written as one."""

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
from heatbath.datasets.tables import parsing
from heatbath.datasets.tables.parsing import BLANKS, FORMATS, FORMS, TRUTHS, place, texts

MOST_ODD = 0.05  # share of cells that are no numbers (or dates) in a column of numbers (or dates)
CODES, FEW_CODES = r"^[+-]?0\d+$", 0.01  # digits after a 0, and their share from which on numbers are codes
INFINITE = re.compile(r"^[+-]?inf(?:inity)?$", re.IGNORECASE)
NEARLY_ALL, FEWEST_NAMES = 0.9, 10  # share of different texts, and how many, from which on they name rows
FEWEST_COUNTED = 20  # rows from which on whole numbers can be told to count them
RARE, RARE_SHARE, SMALL_SHARE = 5, 0.005, 0.05  # rows: see `_fewest`
MOST_CATEGORIES = 20  # of a column, the joined ones being one of them
FEW_WORDS = 2  # that stand for missing numbers, however often, where there are many different numbers
MOST_RARE = 1000  # names that are remembered, to tell rare ones from new ones
PERIODS = {"year": 365.25, "week": 7.0, "day": 1.0}  # in days
SHOWN, LONGEST = 3, 30  # texts that a note shows, and characters of one
MANY, FEW_LOOKED_AT = 0.5, 200  # share of texts that look like numbers or dates, of so many: see `unread`
GAP, OTHERS = "(missing)", "(rare)"  # what features of these cells are called
EMPTY, COUNTS = "all its cells are empty", "it counts the rows (keep takes it all the same)"
NAMED = "its name says that it names the rows, and its numbers are different (keep takes it all the same)"
IDENTIFIER = re.compile(r"(?i:(?:^|[\W_])(?:id|uuid|guid)$)|[a-z]I[dD]$")  # how names of such columns end
YEARS = (1500, 2200)  # whole numbers within are taken for years, and count no rows


class Encoded(NamedTuple):
    """Features (rows, features), and which cells had something that training did not have."""

    values: NDArray[np.float64]
    unforeseen: NDArray[np.bool_]


@dataclass(frozen=True)
class Number:
    """Numbers: missing ones are replaced by their median, and a feature of its own says where."""

    name: str
    median: float
    missing: int = 0  # cells in training
    odd: tuple[str, ...] = ()  # texts in training that are no numbers, and so are missing ones
    unit: str = ""  # what follows each of them

    kind: ClassVar[str] = "number"
    unlike: ClassVar[str] = "is not a number, and counts as missing"

    def __post_init__(self) -> None:
        _check_fields(self)

    @property
    def features(self) -> tuple[str, ...]:
        """The names of its features."""
        return (self.name, *_gap(self))

    def encode(self, column: pd.Series) -> Encoded:
        """The numbers, and where they are missing."""
        column = parsing.without_unit(column, self.unit)
        return _filled(column, parsing.numbers(column), self.median, self)

    def note(self) -> str:
        """How it is read."""
        unit = f" of {self.unit}" if self.unit else ""
        return f"a number{unit}{_gaps(self.missing, f'{self.median:g}, the median', self.odd)}"


@dataclass(frozen=True)
class Truth:
    """Two words for false and true: 0 and 1; missing ones are replaced by their mean, and a feature says
    where."""

    name: str
    words: tuple[str, ...]
    mean: float
    missing: int = 0

    kind: ClassVar[str] = "truth"

    def __post_init__(self) -> None:
        _check_fields(self)
        choice("words", " ".join(self.words), tuple(" ".join(pair) for pair in TRUTHS))

    @property
    def unlike(self) -> str:
        """What is said of a cell that is neither."""
        return f"is neither {' nor '.join(self.words)}, and counts as missing"

    @property
    def features(self) -> tuple[str, ...]:
        """The names of its features."""
        return (self.name, *_gap(self))

    def encode(self, column: pd.Series) -> Encoded:
        """0 and 1, and where they are missing."""
        return _filled(column, parsing.truths(column, self.words), self.mean, self)

    def note(self) -> str:
        """How it is read."""
        return f"{' and '.join(self.words)}: 0 and 1{_gaps(self.missing, f'{self.mean:.2g}, the mean')}"


@dataclass(frozen=True)
class Date:
    """Dates: years since the beginning of 2000 and, where the training rows go through more than one year,
    week or day, the sine and cosine of where in it they are."""

    name: str
    form: str | None  # None: they were dates already
    median: float
    periods: tuple[str, ...] = ()
    missing: int = 0
    odd: tuple[str, ...] = ()
    other: str = ""  # another form of which as many of them are

    kind: ClassVar[str] = "date"

    def __post_init__(self) -> None:
        _check_fields(self)
        for period in self.periods:
            choice("periods", period, tuple(PERIODS))
        if self.form is not None:
            choice("form", self.form, FORMS)
        if self.other:
            choice("other", self.other, FORMS)

    @property
    def features(self) -> tuple[str, ...]:
        """The names of its features."""
        waves = [f"{self.name} ({wave} of {period})" for period in self.periods for wave in ("sin", "cos")]
        return (f"{self.name} (years)", *waves, *_gap(self))

    def encode(self, column: pd.Series) -> Encoded:
        """Years, waves, and where they are missing."""
        filled, unforeseen = _filled(column, parsing.days(column, self.form), self.median, self)
        day = filled[:, :1]
        angles = [2 * math.pi * day / PERIODS[period] for period in self.periods]
        waves = [wave(angle) for angle in angles for wave in (np.sin, np.cos)]
        return Encoded(np.hstack([day / PERIODS["year"], *waves, filled[:, 1:]]), unforeseen)

    @property
    def _written(self) -> str:
        return f", {_spoken(self.form)}" if self.form else ""

    @property
    def unlike(self) -> str:
        """What is said of a cell that is none."""
        return f"is not a date{self._written}, and counts as missing"

    def note(self) -> str:
        """How it is read."""
        parts = ["years since 2000", *(f"the time of the {period}" for period in self.periods)]
        gaps = _gaps(self.missing, "the median", self.odd)
        other = ""
        if self.other:
            other = f" (all could be {_spoken(self.other)}, too: write them as 2024-12-31 if they are)"
        return f"a date{self._written}{other}, as {', '.join(parts)}{gaps}"


@dataclass(frozen=True)
class Category:
    """Categories: a feature for each, one for rare ones together and one for missing ones; a new one has 0 in
    all of them."""

    name: str
    known: tuple[str, ...]
    rare: tuple[str, ...] = ()
    crowded: bool = False  # more rare ones than are remembered: new ones are taken for some of them
    missing: int = 0

    kind: ClassVar[str] = "category"
    unlike: ClassVar[str] = "was not there in training"

    def __post_init__(self) -> None:
        _check_fields(self)
        if len({*self.known, *self.rare}) < len(self.known) + len(self.rare):
            raise ValueError(f"the categories of {self.name!r} must be different")

    @property
    def features(self) -> tuple[str, ...]:
        """The names of its features."""
        others = [OTHERS] if self.rare or self.crowded else []
        return (*(f"{self.name}={label}" for label in (*self.known, *others)), *_gap(self))

    def encode(self, column: pd.Series) -> Encoded:
        """1 in one of the features, or in none."""
        text = texts(column)
        order = {word: i for i, word in enumerate(self.known)} | dict.fromkeys(self.rare, len(self.known))
        found, missing = np.array(text.map(order), np.float64), np.array(text.isna())
        new = np.isnan(found) & ~missing
        if self.crowded:
            found[new] = len(self.known)
            new[:] = False
        if self.missing:
            found[missing] = len(self.features) - 1
        else:
            new |= missing
        return Encoded((found[:, None] == np.arange(len(self.features))).astype(np.float64), new)

    def note(self) -> str:
        """How it is read."""
        parts = [f"a category, {len(self.known)} different"]
        if self.rare or self.crowded:
            count = f"over {MOST_RARE}" if self.crowded else len(self.rare)
            parts.append("1 rare one" if count == 1 else f"{count} rare ones joined")
        if self.missing:
            cells_are = "1 missing cell is" if self.missing == 1 else f"{self.missing} missing cells are"
            parts.append(f"{cells_are} one, too")
        return ", ".join(parts)


@dataclass(frozen=True)
class LeftOut:
    """A column of which no feature is made, and why."""

    name: str
    reason: str

    kind: ClassVar[str] = "left out"
    unlike: ClassVar[str] = ""
    features: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        _check_fields(self)

    def encode(self, column: pd.Series) -> Encoded:
        """Nothing."""
        return Encoded(np.empty((len(column), 0)), np.zeros(len(column), bool))

    def note(self) -> str:
        """Why."""
        return f"left out: {self.reason}"


Column: TypeAlias = Number | Truth | Date | Category | LeftOut
KINDS: dict[str, type[Column]] = {kind.kind: kind for kind in (Number, Truth, Date, Category, LeftOut)}


def learn(column: pd.Series, name: str, categorical: bool, keep: bool) -> Column:
    """What a column is, by its cells in training; with `keep`, though it seems to name or count the rows."""
    kind = column.dtype
    if not categorical and pd.api.types.is_numeric_dtype(kind) and not pd.api.types.is_bool_dtype(kind):
        return _number(column, name, parsing.numbers(column), keep)
    if not categorical and pd.api.types.is_datetime64_any_dtype(kind):
        return _date(column, name, None)
    values = parsing.numbers(column)
    plain = not categorical and isinstance(kind, pd.StringDtype) and not np.isnan(values).any()
    if plain and column.str.contains(CODES).mean() < FEW_CODES:  # by far the most columns end here
        return _number(column, name, values, keep)
    text = texts(column)
    if text.isna().all():
        return LeftOut(name, EMPTY)
    there = texts(text, BLANKS).dropna()
    if not categorical and not there.empty:
        words = set(there.str.lower().unique()) if there.iloc[:100].nunique() < 5 else set()
        if found := next((pair for pair in TRUTHS if words == set(pair)), None):
            truths = parsing.truths(text, found)
            return Truth(name, found, float(np.nanmean(truths)), int(np.isnan(truths).sum()))
        if there.str.contains(CODES).mean() < FEW_CODES:
            if _are_numbers(there, values):
                return _number(text, name, values, keep)
            if (forms := parsing.date_forms(there, MOST_ODD)) is not None:
                date = _date(text, name, forms[0])
                return replace(date, other=forms[1]) if isinstance(date, Date) else date
            if (unit := parsing.unit_of(there, MOST_ODD)) is not None:
                bare = parsing.without_unit(text, unit)
                number = _number(bare, name, parsing.numbers(bare), keep)
                return replace(number, unit=unit) if isinstance(number, Number) else number
    return _category(text, name, categorical or keep)


def unread(column: pd.Series, learned: Column) -> str | None:
    """A word on a column of many texts that are taken for names, though the most of them look like numbers or
    dates."""
    many = learned.rare or learned.crowded if isinstance(learned, Category) else isinstance(learned, LeftOut)
    if not many or pd.api.types.is_numeric_dtype(column.dtype):
        return None
    there = texts(column.iloc[:: max(1, len(column) // FEW_LOOKED_AT)], BLANKS).dropna()
    if there.empty:
        return None
    odd = np.isnan(parsing.numbers(there))
    if MOST_ODD < odd.mean() < MANY:
        label = there.index[odd][0]
        example = f"{shortened(there[odd].iloc[0])} in {place(column)} {label}"
        return f"the most of its texts are numbers, and too many are not, such as {example}: write all alike"
    if odd.all() and there.str.contains(parsing.LIKE_DATES).mean() > MANY and _are_dates(there).mean() > MANY:
        return "the most of its texts seem to be dates, and not of one form: write all alike, as 2024-12-31"
    return None


def _are_dates(text: pd.Series) -> NDArray[np.bool_]:
    """Which of these texts are dates, each in any form."""
    are = np.zeros(len(text), bool)
    for form in FORMS:
        are |= ~np.isnan(parsing.days(text, form))
    return are


def _are_numbers(there: pd.Series, values: NDArray[np.float64]) -> bool:
    """Whether all but a few of the texts are numbers, or the others are a word or two, such as unknown, among
    many different numbers. Infinite ones are numbers, though they count as missing."""
    known, there = np.count_nonzero(~np.isnan(values)), there[~there.str.contains(INFINITE)]
    if known and known >= (1 - MOST_ODD) * len(there):
        return True
    many = 2 * known >= len(there) and len(np.unique(values[~np.isnan(values)])) > MOST_CATEGORIES
    return bool(many) and there[np.isnan(parsing.numbers(there))].nunique() <= FEW_WORDS


def _number(column: pd.Series, name: str, values: NDArray[np.float64], keep: bool) -> Column:
    there = values[~np.isnan(values)]
    if not there.size:
        return LeftOut(name, EMPTY)
    missing = len(values) - len(there)
    if not missing and (there == there[0]).all():
        return LeftOut(name, f"it is {there[0]:g} everywhere")
    if not keep and _names_rows(name, there):
        return LeftOut(name, NAMED)
    if not missing and not keep and _counts_rows(there):
        return LeftOut(name, COUNTS)
    odd = _odd(column, np.isnan(values)) if missing else ()
    return Number(name, float(np.median(there)), missing, odd)


def _names_rows(name: str, values: NDArray[np.float64]) -> bool:
    """Whether a column is called an identifier, and has whole numbers that are nearly all different."""
    return bool(
        IDENTIFIER.search(name)
        and len(values) >= FEWEST_NAMES
        and (np.floor(values) == values).all()
        and len(np.unique(values)) >= NEARLY_ALL * len(values)
    )


def _counts_rows(values: NDArray[np.float64]) -> bool:
    """Whether these are different whole numbers, and few are missing between them, and are no years."""
    rows = len(values)
    return bool(
        rows >= FEWEST_COUNTED
        and values.max() - values.min() < 2 * rows
        and not (YEARS[0] <= values.min() and values.max() <= YEARS[1])
        and (np.floor(values) == values).all()
        and len(np.unique(values)) == rows
    )


def _date(column: pd.Series, name: str, form: str | None) -> Column:
    values = parsing.days(column, form)
    there = values[~np.isnan(values)]
    if not there.size:
        return LeftOut(name, EMPTY)
    missing = len(values) - len(there)
    if not missing and (there == there[0]).all():
        return LeftOut(name, "it is the same date everywhere")
    span = there.max() - there.min()
    phases = {period: there % length for period, length in PERIODS.items()}
    phases["week"] = np.floor(phases["week"])  # whole days: hours are for the day
    periods = [period for period, phase in phases.items() if span > PERIODS[period] and np.ptp(phase) > 1e-6]
    odd = _odd(column, np.isnan(values)) if missing else ()
    return Date(name, form, float(np.median(there)), tuple(periods), missing, odd)


def _category(text: pd.Series, name: str, keep: bool) -> Column:
    there = text.dropna()
    missing, different = len(text) - len(there), there.nunique()
    if different == 1 and not missing:
        return LeftOut(name, f"it is {shortened(there.iloc[0])} everywhere")
    if not keep and different >= max(FEWEST_NAMES, NEARLY_ALL * len(there)):
        return LeftOut(name, f"it names the rows, with {different} different texts in {len(there)} of them")
    encoder = OneHotEncoder(min_frequency=_fewest(len(text)), max_categories=MOST_CATEGORIES)
    encoder.fit(there.to_numpy(object)[:, None])
    joined = encoder.infrequent_categories_[0]
    rare = () if joined is None else tuple(joined.tolist())
    known = tuple(np.setdiff1d(encoder.categories_[0], np.array(rare, object)).tolist())
    if not known and not missing:
        return LeftOut(name, f"each of its {different} texts is rare")
    crowded = len(rare) > MOST_RARE
    return Category(name, known, () if crowded else rare, crowded, missing)


def _fewest(rows: int) -> int:
    """Rows that a category needs to have a feature of its own: 5, fewer in small tables and more in large
    ones, where a feature that is hardly ever 1 would be scaled to huge values."""
    return max(1, round(max(min(RARE, SMALL_SHARE * rows), RARE_SHARE * rows)))


def _spoken(form: str) -> str:
    """A form of dates in words."""
    return next(spoken for start, spoken in FORMATS.items() if form.startswith(start))


def _gap(column: Number | Truth | Date | Category) -> list[str]:
    """The feature that says where cells are missing, if some were in training."""
    return [f"{column.name}={GAP}"] if column.missing else []


def _filled(
    column: pd.Series, values: NDArray[np.float64], fill: float, learned: Number | Truth | Date
) -> Encoded:
    """The values without gaps and, if training had some, where they are."""
    gaps = np.isnan(values)
    filled = np.where(gaps, fill, values)[:, None]
    unforeseen = gaps.copy()
    if learned.missing:
        filled = np.hstack([filled, gaps[:, None]])
        odd = not isinstance(learned, Truth) and learned.odd  # training had such texts, too
        unforeseen[gaps] = False if odd else texts(column[gaps], BLANKS).notna()
    return Encoded(filled, unforeseen)


def _odd(column: pd.Series, gaps: NDArray[np.bool_]) -> tuple[str, ...]:
    """Some texts in place of values, and where they are first."""
    first = texts(column[gaps]).dropna().drop_duplicates().iloc[:SHOWN]
    return tuple(f"{shortened(text)} in {place(column)} {label}" for label, text in first.items())


def shortened(cell: object) -> str:
    """A cell as messages show it."""
    text = str(cell)
    return repr(text if len(text) <= LONGEST else f"{text[:LONGEST]}...")


def _gaps(missing: int, fill: str, odd: tuple[str, ...] = ()) -> str:
    """What becomes of missing cells."""
    if not missing:
        return ""
    among = f", among them {', '.join(odd)}," if odd else ""
    return f"; {missing} missing{among} get {fill}, and a feature that says so"


def to_plain(column: Column) -> dict[str, Any]:
    """A column as values of JSON."""
    values = {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(column).items()}
    for later in ("unit", "other"):
        if not values.get(later, True):
            del values[later]  # as files of earlier versions have it, whose checksums are of this
    return {"kind": column.kind, **values}


def from_plain(plain: object) -> Column:
    """The column that `to_plain` wrote, with everything checked."""
    if not isinstance(plain, dict):
        raise TypeError(f"a column must be a dict, got {plain!r}")
    values = {name: tuple(v) if isinstance(v, list) else v for name, v in plain.items()}
    kind: Any = values.pop("kind", None)
    choice("kind of a column", kind, tuple(KINDS))
    make: Any = KINDS[kind]
    column: Column = make(**values)
    return column


def _check_fields(column: Column) -> None:
    """Refuse what is not of the type that a field has."""
    for name, value in vars(column).items():
        if name in ("median", "mean"):
            real(name, value)
        elif name == "missing":
            whole(name, value, low=0)
        elif name == "crowded" and not isinstance(value, bool):
            raise TypeError(f"{name} must be true or false, got {value!r}")
        elif name in ("name", "reason", "unit", "other") and not isinstance(value, str):
            raise TypeError(f"{name} must be text, got {value!r}")
        elif name in ("odd", "words", "known", "rare", "periods") and not (
            isinstance(value, tuple) and all(isinstance(item, str) for item in value)
        ):
            raise TypeError(f"{name} must be a list of texts, got {value!r}")
