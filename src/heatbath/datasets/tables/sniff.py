"""Find out how a CSV file is written: encoding, separator, decimal mark and header."""

from __future__ import annotations

import codecs
import csv
import io
import re
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from heatbath._internal.warnings import UnforeseenDataWarning

Mark: TypeAlias = Literal[",", "."]  # what decimals come after
MARK_NAMES: dict[Mark, str] = {",": "commas", ".": "points"}
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
MARKS = {  # the bytes that begin a file in an encoding that says so
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
ENCODINGS = ("utf-8", "cp1252", "latin-1")  # of other files, tried in this order: the last takes any bytes
NUMERAL, MOST_TITLES = re.compile(r"[+-]?[\d.,]+"), 10
QUOTED = re.compile(r'"([^"]*)"')
UNIT = r"(?:[%$€£¥]|[A-Za-zµ°²³/]{{1,6}})?"
AMOUNT = r"[$€£¥]?\s*[+-]?(\d+|\d{{1,3}}(?:\{thousands}\d{{3}})+){decimals}\s*" + UNIT
DECIMALS = tuple(  # numbers with a comma, and with a point
    re.compile(AMOUNT.format(thousands=thousands, decimals=rf"\{mark}(\d+)"))
    for mark, thousands in (",.", ".,")
)
ENOUGH, FEW_LINES = 10_000, 1000  # numbers that tell the decimal mark; lines of a piece after that
HEAD = 1 << 18  # bytes from which the separator is found out
LONGEST = 1 << 24  # characters in a line, beyond which it is no table
PIECE, LARGEST = 50_000, 1 << 25  # rows that are read at a time, and their characters


class Decimals:
    """Which decimal mark the numbers of a file have, by those that can be read in one way: 1.5 and 1.234,5,
    but not 1.750. `usual` is what other data of the same kind had: it decides where these do not."""

    def __init__(self, usual: Mark | None = None) -> None:
        self.usual, self.warned = usual, False
        self.separator: str | None = None  # of cells; None while there is no text
        self.some, self.sure = [0, 0], [0, 0]  # numbers with a comma, and with a point

    def count(self, lines: Sequence[str]) -> None:
        """Look at some more lines: all of them, until it is clear."""
        for first in range(0, len(lines), FEW_LINES):
            if sum(self.sure) > ENOUGH:
                self._count(lines[first :: 1 + (len(lines) - first) // FEW_LINES])
                return
            self._count(lines[first : first + FEW_LINES])

    def _count(self, lines: Sequence[str]) -> None:
        quoted = self.separator == ","  # so that what has a comma is in quotes
        for line in lines:
            for cell in (*line.split(self.separator), *(QUOTED.findall(line) if quoted else ())):
                if "," not in cell and "." not in cell:
                    continue
                for place, form in enumerate(DECIMALS):
                    if found := form.fullmatch(cell.strip(' "\r\n')):
                        self.some[place] += 1
                        self.sure[place] += _is_sure(*found.groups())

    @property
    def mark(self) -> Mark | None:
        """What they have, by now: where all could be of thousands, commas, unless these separate cells."""
        commas, points = self.sure
        if self.separator is None:
            return None
        if self.usual is not None:
            return "," if commas > points or (self.usual == "," and commas == points) else "."
        if commas > points or (commas == points == 0 and self.separator != "," and self.some[0]):
            return ","
        return "." if any(self.some) else None

    def check(self, name: str) -> None:
        """Warn of a mark that the usual data did not have."""
        if self.usual is not None and (mark := self.mark) is not None and mark != self.usual:
            self._warn(
                f"{name}: numbers have decimal {MARK_NAMES[mark]}, and are read so, though in training they "
                f"had {MARK_NAMES[self.usual]}: see that this is right"
            )

    def settle(self, name: str, line: int, former: Mark | None) -> Mark | None:
        """The mark of a piece from a line on: that of those before it, as soon as there is one."""
        now = self.mark
        if former is None:
            self.check(name)
            return now
        if now is not None and now != former:
            self._warn(
                f"{name}: before line {line} numbers had decimal {MARK_NAMES[former]}, and by now most have "
                f"decimal {MARK_NAMES[now]}: they are read as before. Write all of them alike"
            )
        return former

    def _warn(self, text: str) -> None:
        if not self.warned:
            warnings.warn(text, UnforeseenDataWarning, stacklevel=3)
        self.warned = True


def _is_sure(before: str, decimals: str) -> bool:
    """Whether what is between these digits cannot be a mark of thousands."""
    return len(decimals) != 3 or not before.isdigit() or before[0] == "0" or len(before) > 3


@dataclass
class Reading:
    """What is found out while a table is read: notes, which are complete with the first rows; all lines that
    are wrong, and what to do about them; the decimal mark."""

    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    advice: str = ""
    decimals: Decimals = field(default_factory=Decimals)


def head_of(file: io.BufferedReader) -> bytes:
    """The bytes that come next; of a stream, as many as there are without waiting."""
    if not file.seekable():
        return file.peek(HEAD)[:HEAD]
    start = file.tell()
    head = file.read(HEAD)
    file.seek(start)
    return head


def find_encoding(name: str, file: io.BufferedReader, notes: list[str]) -> str:
    """The encoding that a text says it has, or the first in which all of it can be read (of a stream, what
    there is of it by now)."""
    head = head_of(file)
    if found := next((encoding for mark, encoding in MARKS.items() if head.startswith(mark)), None):
        notes.append(f"text in {found.removesuffix('-sig').upper()}, as its first bytes say")
        return found
    if b"\0" in head:
        zeros = head.count(0) / len(head)
        if not 0.2 < zeros < 0.8 or b"\0\0" in head:
            raise ValueError(f"{name} is not a table of text: it has bytes of zero. CSV or Parquet is needed")
        found = "utf-16-le" if head[1::2].count(0) > head[::2].count(0) else "utf-16-be"
        notes.append(f"text in {found.upper()}")
        return found
    found = next(encoding for encoding in ENCODINGS if _decodes(file, encoding))
    if found != "utf-8":
        notes.append(f"text in {found}, as it is not UTF-8")
    return found


def _decodes(file: io.BufferedReader, encoding: str) -> bool:
    decoder = codecs.getincrementaldecoder(encoding)()
    seekable = file.seekable()
    start = file.tell() if seekable else 0
    try:
        for block in iter(lambda: file.read(HEAD), b"") if seekable else [head_of(file)]:
            decoder.decode(block)
        decoder.decode(b"", final=seekable)
    except UnicodeDecodeError:
        return False
    finally:
        if seekable:
            file.seek(start)
    return True


def sample_text(file: io.BufferedReader, encoding: str) -> str:
    """The text that a file begins with, in whole lines."""
    text = codecs.getincrementaldecoder(encoding)("replace").decode(head_of(file))
    end = max(text.rfind("\n"), text.rfind("\r")) + 1
    return text[:end] if end else text


class ReadOnce(io.RawIOBase):
    """What is unpacked of a stream, which cannot be gone back in, though the unpacker says that it can."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """What has come, at most as much as there is room for."""
        content = self._file.read1(len(buffer))
        buffer[: len(content)] = content
        return len(content)


class Stream(io.BufferedIOBase):
    """A file that comes bit by bit, a line at a time; it is known whether a further one has come."""

    def __init__(self, file: io.BufferedReader) -> None:
        self._file, self._rest, self._lines = file, b"", deque[bytes]()

    def readable(self) -> bool:
        """It is."""
        return True

    @property
    def waits(self) -> bool:
        """Whether there is no further line yet."""
        return not self._lines

    def read1(self, size: int = -1) -> bytes:
        """The next line, as soon as it is there, or what is left at the end."""
        while not self._lines and (more := self._file.read1(HEAD)):
            *whole, self._rest = (self._rest + more).split(b"\n")
            self._lines.extend(line + b"\n" for line in whole)
        if self._lines:
            return self._lines.popleft()
        left, self._rest = self._rest, b""
        return left


class Lines:
    """The lines of a text, counted; those that no table has are refused."""

    def __init__(self, name: str, text: io.TextIOWrapper, stream: Stream | None) -> None:
        self.name, self.text, self.stream, self.number = name, text, stream, 0

    def some(self, most: int) -> list[str]:
        """The next lines; of a stream those that are there, or the next that comes."""
        found: list[str] = []
        characters = 0
        while len(found) < most and characters < LARGEST and not (found and self._waits):
            if not (line := next(self, "")):
                break
            found.append(line)
            characters += len(line)
        return found

    @property
    def _waits(self) -> bool:
        return self.stream is not None and self.stream.waits

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self.text.readline(LONGEST)
        if not line:
            raise StopIteration
        self.number += 1
        if len(line) == LONGEST or "\0" in line:
            what = "is longer than any table's" if len(line) == LONGEST else "has bytes of zero"
            raise ValueError(f"{self.name} is not a table of text: line {self.number} {what}")
        return line


def find_header(name: str, lines: Lines, sample: str, notes: list[str]) -> tuple[str, list[str]]:
    """The separator, and the names in the first line that is not empty, and no title."""
    start = sample.lstrip()
    if said := re.match(r'"?sep=([,;\t|])"?[\r\n]', start):  # what spreadsheets write to say so
        separator = said[1]
        next(line for line in lines if line.strip())
    else:
        separator, titles = _separator(start)
        empty = f"{separator} \t\r\n"
        above = [next(line for line in lines if line.strip()).strip(empty) for _ in range(titles)]
        if above:
            lines_are = "line is" if titles == 1 else f"{titles} lines are"
            first = next(filter(None, above), "")
            notes.append(f"the first {lines_are} above the table, and left out: {first[:60]!r}")
    for row in rows_of(name, lines, separator):
        if any(header := [" ".join(cell.split()) for cell in row]):
            return separator, header
    raise ValueError(f"{name} is empty: a first line with the names of the columns is needed")


def rows_of(name: str, lines: Iterable[str], separator: str) -> Iterator[list[str]]:
    """Yield the rows of cells of the lines of a CSV file."""
    try:
        yield from csv.reader(lines, delimiter=separator, skipinitialspace=True)
    except csv.Error as error:
        raise ValueError(f"{name} is not a CSV file: {error}") from None


def _separator(sample: str) -> tuple[str, int]:
    """That which cuts the lines into the same number of cells, two or more; of several, into the most. And
    how many lines above the names of the columns are titles or comments: they have one cell, and all below
    have more; or, as spreadsheets write them, as many cells as all below, of which one says something."""
    scores, below, padded = {}, {}, {}
    for separator in SEPARATORS:
        try:
            rows = [row for row in csv.reader(io.StringIO(sample, ""), delimiter=separator) if row]
        except csv.Error:
            continue
        widths = [len(row) for row in rows]
        if widths and widths[0] > 1:
            scores[separator] = (widths.count(widths[0]) / len(rows), widths[0])
            padded[separator] = _padded(rows)
        titles = next((place for place, width in enumerate(widths) if width > 1), 0)
        names = rows[titles] if rows else []
        alike = len(rows) > titles + 1 and len({*widths[titles:]}) == 1
        named = not any(NUMERAL.fullmatch(cell.strip()) for cell in names)
        if 0 < titles <= MOST_TITLES and alike and named:
            below[separator] = (len(names), titles)
    if scores:
        separator = max(scores, key=lambda one: scores[one])
        return separator, padded[separator]
    if not below:
        return ",", 0
    separator = max(below, key=lambda one: below[one][0])
    return separator, below[separator][1]


def _padded(rows: list[list[str]]) -> int:
    """How many rows at first are titles: at most one of their cells says something, and below are the names
    of three columns or more, each with one."""
    filled = [sum(bool(cell.strip()) for cell in row) for row in rows[: MOST_TITLES + 1]]
    titles = next((place for place, count in enumerate(filled) if count > 1), 0)
    names = rows[titles]
    named = len(names) > 2 and filled[titles] == len(names)
    named = named and not any(NUMERAL.fullmatch(cell.strip()) for cell in names)
    return titles if named and len(rows) > titles + 1 else 0


def distinct_names(given: list[str], notes: list[str]) -> list[str]:
    """The names of the columns: those without one are numbered, and those that come again, too."""
    names: list[str] = []
    for place, label in enumerate(given, start=1):
        new = label or f"column {place}"
        number = 2
        while new in names or (new != label and new in given):
            new, number = f"{label or f'column {place}'}.{number}", number + 1
        if new != label:
            what = f"another {label!r}" if label else "without a name"
            notes.append(f"column {place}, {what}, is called {new!r}")
        names.append(new)
    return names
