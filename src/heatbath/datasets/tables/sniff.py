"""Detect the format of a CSV file: encoding, separator, decimal mark and header."""

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

from heatbath._internal.checks import choice
from heatbath._internal.warnings import UnforeseenDataWarning

Mark: TypeAlias = Literal[",", "."]  # a decimal mark
MARK_NAMES: dict[Mark, str] = {",": "commas", ".": "points"}
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
ENCODINGS = ("utf-8", "cp1252", "latin-1")  # tried in this order; the last one accepts any bytes
FEWEST_ZEROS, MOST_ZEROS = 0.2, 0.8  # share of zero bytes in UTF-16
NUMERAL = re.compile(r"[+-]?[\d.,]+")
MOST_TITLES, LONGEST_TITLE = 10, 60  # lines above the header, and characters of one that a note shows
QUOTED = re.compile(r'"([^"]*)"')
UNIT = r"(?:[%$€£¥]|[A-Za-zµ°²³/]{{1,6}})?"
AMOUNT = r"[$€£¥]?\s*[+-]?(\d+|\d{{1,3}}(?:\{thousands}\d{{3}})+){decimals}\s*" + UNIT
DECIMALS = {  # numbers with a decimal comma, and with a decimal point
    mark: re.compile(AMOUNT.format(thousands=thousands, decimals=rf"\{mark}(\d+)"))
    for mark, thousands in (",.", ".,")
}
ENOUGH = 10_000  # unambiguous numbers after which only a sample of lines is counted
BLOCK_LINES = 1000  # lines that are counted at a time, and the size of such a sample
HEAD = 1 << 18  # bytes from which encoding and separator are detected
LONGEST = 1 << 24  # characters of a line above which a file is no table
PIECE, LARGEST = 50_000, 1 << 25  # rows and characters that are read at a time


class Decimals:
    """Detector of the decimal mark of the numbers in a file.

    Numbers that can be read in only one way decide: 1.5 and 1.234,5, but not 1.750.

    Attributes
    ----------
    usual : "," or "." or None
        Mark of earlier data of the same kind. It decides if all numbers can be read in two ways.
    separator : str or None
        The separator of cells; None until text has been read.
    counts : list of int
        How many numbers have a comma, and how many have a point.
    unambiguous : list of int
        How many of these can be read in only one way.
    """

    def __init__(self, usual: Mark | None = None) -> None:
        """Start without any numbers; `usual` is described with the class."""
        if usual is not None:
            choice("decimal", usual, tuple(MARK_NAMES))
        self.usual = usual
        self.warned = False
        self.separator: str | None = None
        self.counts = [0, 0]
        self.unambiguous = [0, 0]

    def count(self, lines: Sequence[str]) -> None:
        """Count the numbers in lines: in all lines until the mark is clear, then in a sample of lines."""
        for start in range(0, len(lines), BLOCK_LINES):
            if sum(self.unambiguous) > ENOUGH:
                stride = 1 + (len(lines) - start) // BLOCK_LINES
                self._count_all(lines[start::stride])
                return
            self._count_all(lines[start : start + BLOCK_LINES])

    def _count_all(self, lines: Sequence[str]) -> None:
        """Add the numbers in all of these lines to `counts` and `unambiguous`."""
        for line in lines:
            cells = line.split(self.separator)
            if self.separator == ",":
                cells += QUOTED.findall(line)  # numbers with a comma are in quotes
            for cell in cells:
                if "," in cell or "." in cell:
                    self._count_cell(cell.strip(' "\r\n'))

    def _count_cell(self, cell: str) -> None:
        """Add a cell to `counts` and `unambiguous` if it is a number with a decimal mark."""
        for mark_index, (mark, pattern) in enumerate(DECIMALS.items()):
            number = pattern.fullmatch(cell) if mark in cell else None
            if number is None:
                continue
            self.counts[mark_index] += 1
            if _is_unambiguous(*number.groups()):
                self.unambiguous[mark_index] += 1

    @property
    def mark(self) -> Mark | None:
        """Decimal mark of the numbers so far, or None.

        If all numbers are ambiguous, it is a comma unless commas separate cells.
        """
        if self.separator is None:
            return None
        commas, points = self.unambiguous
        if commas != points:
            return "," if commas > points else "."
        if self.usual is not None:
            return self.usual
        if not any(self.counts):
            return None
        all_are_ambiguous = commas == 0
        has_commas = self.counts[0] > 0
        return "," if all_are_ambiguous and has_commas and self.separator != "," else "."

    def check(self, name: str) -> None:
        """Warn if the mark isn't the usual one."""
        mark = self.mark
        if self.usual is not None and mark is not None and mark != self.usual:
            self._warn(
                f"{name}: numbers have decimal {MARK_NAMES[mark]} and are read with them, but in training "
                f"they had {MARK_NAMES[self.usual]}: check that this is right"
            )

    def settle(self, name: str, line: int, former: Mark | None) -> Mark | None:
        """Return the decimal mark for a piece of a file, and warn if the mark seems to have changed.

        Parameters
        ----------
        name : str
            Name of the file in warnings.
        line : int
            Number of the first line of the piece.
        former : "," or "." or None
            The mark of earlier pieces, which is kept; None if they had none.
        """
        mark = self.mark
        if former is None:
            self.check(name)
            return mark
        if mark is not None and mark != former:
            self._warn(
                f"{name}: before line {line} numbers had decimal {MARK_NAMES[former]}, but most have decimal "
                f"{MARK_NAMES[mark]} from there on: they are read with decimal {MARK_NAMES[former]}. Write "
                "all of them in the same way"
            )
        return former

    def _warn(self, text: str) -> None:
        """Issue a warning, unless there was one for this file already."""
        if not self.warned:
            warnings.warn(text, UnforeseenDataWarning, stacklevel=3)
        self.warned = True


def _is_unambiguous(integer_part: str, decimals: str) -> bool:
    """Return True if the mark between these digits cannot separate thousands."""
    return len(decimals) != 3 or not integer_part.isdigit() or integer_part[0] == "0" or len(integer_part) > 3


@dataclass
class Reading:
    """The name of a file for messages, how it is read, and what was found while reading it.

    Attributes
    ----------
    name : str
        Name of the file.
    decimals : Decimals
        Detector of the decimal mark.
    together : bool
        True if the pieces will be joined. Then numbers keep the decimal mark of the file, which is only known
        at the end, and wrong lines are collected. Otherwise numbers get points, and a wrong line is an error.
    notes : list of str
        Remarks on how it is read, complete after the first rows.
    problems : list of str
        What is wrong with each wrong line.
    advice : str
        How to correct wrong lines.
    """

    name: str
    decimals: Decimals
    together: bool = False
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    advice: str = ""


def head_of(file: io.BufferedReader) -> bytes:
    """Return the next bytes of a file without moving its position.

    Of a stream these are the bytes that are available without waiting; otherwise at most `HEAD`.
    """
    if not file.seekable():
        return file.peek(HEAD)[:HEAD]
    start = file.tell()
    head = file.read(HEAD)
    file.seek(start)
    return head


def find_encoding(file: io.BufferedReader, reading: Reading) -> str:
    """Return the encoding of a text, and append a remark to the notes unless it is plain UTF-8.

    A byte order mark decides, or else the first encoding in which the whole file can be decoded; for a
    stream, the part that is available.

    Parameters
    ----------
    file : BufferedReader
        The file, whose position doesn't move.
    reading : Reading
        Gets the remark.
    """
    head = head_of(file)
    for mark, encoding in BYTE_ORDER_MARKS.items():
        if head.startswith(mark):
            reading.notes.append(f"text in {encoding.removesuffix('-sig').upper()}, as its first bytes say")
            return encoding

    if b"\0" in head:
        # In UTF-16, nearly every second byte of Latin text is zero; two in a row are binary data
        zero_share = head.count(0) / len(head)
        if b"\0\0" in head or not FEWEST_ZEROS < zero_share < MOST_ZEROS:
            raise ValueError(
                f"{reading.name} is not a table of text: it has zero bytes. CSV or Parquet is needed"
            )
        has_low_byte_first = head[1::2].count(0) > head[::2].count(0)
        utf_16 = "utf-16-le" if has_low_byte_first else "utf-16-be"
        reading.notes.append(f"text in {utf_16.upper()}")
        return utf_16

    fitting = next(encoding for encoding in ENCODINGS if _is_encoded_in(file, encoding))
    if fitting != "utf-8":
        reading.notes.append(f"text in {fitting}, as it is not UTF-8")
    return fitting


def _is_encoded_in(file: io.BufferedReader, encoding: str) -> bool:
    """Return True if all bytes of a file can be decoded; for a stream, those that are available.

    The position of the file doesn't move.
    """
    if not file.seekable():
        return _can_decode([head_of(file)], encoding, is_complete=False)
    start = file.tell()
    blocks = iter(lambda: file.read(HEAD), b"")
    can_decode = _can_decode(blocks, encoding, is_complete=True)
    file.seek(start)
    return can_decode


def _can_decode(blocks: Iterable[bytes], encoding: str, is_complete: bool) -> bool:
    """Return True if consecutive bytes can be decoded.

    Parameters
    ----------
    blocks : iterable of bytes
        The bytes.
    encoding : str
        Their encoding.
    is_complete : bool
        False if a character may end after the last block.
    """
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        for block in blocks:
            decoder.decode(block)
        decoder.decode(b"", final=is_complete)
    except UnicodeDecodeError:
        return False
    return True


def sample_text(file: io.BufferedReader, encoding: str) -> str:
    """Return the first lines of a text, as many as the next `HEAD` bytes contain completely."""
    text = codecs.getincrementaldecoder(encoding)("replace").decode(head_of(file))
    end = max(text.rfind("\n"), text.rfind("\r")) + 1
    return text[:end] if end else text


class ReadOnce(io.RawIOBase):
    """Unpacked stream that can't be rewound, although its unpacker offers that."""

    def __init__(self, file: Any) -> None:
        """Read from an unpacked binary file."""
        self._file = file

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer with the bytes that are available, and return how many these are."""
        content = self._file.read1(len(buffer))
        buffer[: len(content)] = content
        return len(content)


class ByteStream(io.BufferedIOBase):
    """ByteStream that is read line by line, and knows whether another line has arrived."""

    def __init__(self, file: io.BufferedReader) -> None:
        """Read lines from a binary stream."""
        self._file = file
        self._incomplete = b""  # the beginning of a line whose end has not arrived
        self._lines = deque[bytes]()

    def readable(self) -> bool:
        """Return True."""
        return True

    @property
    def waits(self) -> bool:
        """True if the next line has not arrived yet."""
        return not self._lines

    def read1(self, size: int = -1) -> bytes:
        """Return the next line as soon as it has arrived, or the rest of the last line at the end."""
        while not self._lines:
            block = self._file.read1(HEAD)
            if not block:
                remainder = self._incomplete
                self._incomplete = b""
                return remainder
            *complete, self._incomplete = (self._incomplete + block).split(b"\n")
            self._lines.extend(line + b"\n" for line in complete)
        return self._lines.popleft()


class Lines:
    """Iterator over the lines of a text, which counts them.

    It raises ValueError for a line that no table has: one with zero bytes, or of millions of characters.

    Attributes
    ----------
    name : str
        Name of the file in errors.
    text : TextIOWrapper
        The file.
    stream : ByteStream or None
        The stream behind the text, if it is one.
    number : int
        Number of the last line that was read.
    """

    def __init__(self, name: str, text: io.TextIOWrapper, stream: ByteStream | None) -> None:
        """Start before the first line; the parameters are described with the class."""
        self.name = name
        self.text = text
        self.stream = stream
        self.number = 0

    def read(self, most: int) -> list[str]:
        """Return the next lines; of a stream, those that have arrived, or the next one.

        Parameters
        ----------
        most : int
            Largest number of lines. Fewer are returned at the end, and if they have many characters.
        """
        lines: list[str] = []
        characters = 0
        while len(lines) < most and characters < LARGEST and not (lines and self._waits):
            line = next(self, "")
            if not line:
                break
            lines.append(line)
            characters += len(line)
        return lines

    @property
    def _waits(self) -> bool:
        """True if the lines come from a stream whose next line has not arrived yet."""
        return self.stream is not None and self.stream.waits

    def __iter__(self) -> Iterator[str]:
        """Return the iterator itself."""
        return self

    def __next__(self) -> str:
        """Return the next line, with its line break."""
        line = self.text.readline(LONGEST)
        if not line:
            raise StopIteration
        self.number += 1
        if len(line) == LONGEST:
            raise self._error(f"has {LONGEST:,} characters or more")
        if "\0" in line:
            raise self._error("has zero bytes")
        return line

    def _error(self, problem: str) -> ValueError:
        """Return the error that the last line has a problem which no table has."""
        return ValueError(f"{self.name} is not a table of text: line {self.number} {problem}")


def find_header(lines: Lines, sample: str, notes: list[str]) -> tuple[str, list[str]]:
    """Read up to the header: the first line that is neither empty nor a title.

    Parameters
    ----------
    lines : Lines
        The lines of the file, which are read as far as the header.
    sample : str
        The beginning of the file, from which the separator is detected.
    notes : list of str
        Gets a remark on titles above the header.

    Returns
    -------
    separator : str
        The separator of cells.
    header : list of str
        The cells of the header.
    """
    start = sample.lstrip()
    declaration = re.match(r'"?sep=([,;\t|])"?[\r\n]', start)  # written by spreadsheets
    if declaration is not None:
        separator = declaration[1]
        _next_filled(lines)
    else:
        separator, title_count = _separator(start)
        titles = [_next_filled(lines).strip(f"{separator} \t\r\n") for _ in range(title_count)]
        if titles:
            lines_are = "line is" if title_count == 1 else f"{title_count} lines are"
            title = next(filter(None, titles), "")[:LONGEST_TITLE]
            notes.append(f"the first {lines_are} above the table, and left out: {title!r}")

    try:
        for row in csv.reader(lines, delimiter=separator, skipinitialspace=True):
            header = [" ".join(cell.split()) for cell in row]
            if any(header):
                return separator, header
    except csv.Error as error:
        raise ValueError(f"{lines.name} is not a CSV file: {error}") from None
    raise ValueError(f"{lines.name} is empty: a first line with the names of the columns is needed")


def _next_filled(lines: Lines) -> str:
    """Return the next line that isn't empty."""
    return next(line for line in lines if line.strip())


def _separator(sample: str) -> tuple[str, int]:
    """Detect the separator of cells, and the number of titles or comments above the header.

    The separator splits the lines into the same number of cells, two or more; of several separators it is
    the one with most cells. Titles have one cell, while all lines below them have more; or, as spreadsheets
    write them, as many cells as the lines below, of which at most one isn't empty.

    Parameters
    ----------
    sample : str
        The first lines of the text.

    Returns
    -------
    separator : str
    titles : int
    """
    scores: dict[str, tuple[float, int]] = {}  # share of rows as wide as the first, and its width
    padded_titles: dict[str, int] = {}
    below_titles: dict[str, tuple[int, int]] = {}  # width of the header, and titles above it
    for separator in SEPARATORS:
        try:
            rows = [row for row in csv.reader(io.StringIO(sample, ""), delimiter=separator) if row]
        except csv.Error:
            continue

        widths = [len(row) for row in rows]
        if widths and widths[0] > 1:  # the first line is the header, or a title with as many cells
            share_of_same_width = widths.count(widths[0]) / len(rows)
            scores[separator] = (share_of_same_width, widths[0])
            padded_titles[separator] = _count_padded_titles(rows)
        elif rows:
            narrow_titles = _count_narrow_titles(rows)
            if narrow_titles:
                below_titles[separator] = (len(rows[narrow_titles]), narrow_titles)

    if scores:
        best = max(scores, key=lambda separator: scores[separator])
        return best, padded_titles[best]
    if not below_titles:
        return ",", 0
    widest = max(below_titles, key=lambda separator: below_titles[separator][0])
    return widest, below_titles[widest][1]


def _count_narrow_titles(rows: list[list[str]]) -> int:
    """Return how many of the first rows are titles of one cell above a table, or 0.

    The header and all rows below it have the same number of cells, and none in the header is a number.
    """
    widths = [len(row) for row in rows]
    titles = next((i for i, width in enumerate(widths) if width > 1), 0)
    has_rows_of_same_width = len(rows) > titles + 1 and len(set(widths[titles:])) == 1
    if titles > MOST_TITLES or not has_rows_of_same_width or _has_numerals(rows[titles]):
        return 0
    return titles


def _count_padded_titles(rows: list[list[str]]) -> int:
    """Return how many of the first rows are titles padded with empty cells.

    Such a title has at most one cell that isn't empty. The header below has three cells or more, none of
    them empty and none a number.
    """
    titles = 0
    for index, row in enumerate(rows[: MOST_TITLES + 1]):
        if _count_filled(row) > 1:
            titles = index
            break
    header = rows[titles]
    has_filled_header = len(header) > 2 and _count_filled(header) == len(header)
    if not has_filled_header or _has_numerals(header) or len(rows) == titles + 1:
        return 0
    return titles


def _count_filled(cells: list[str]) -> int:
    """Return how many cells aren't empty."""
    return len([cell for cell in cells if cell.strip()])


def _has_numerals(cells: list[str]) -> bool:
    """Return True if a cell looks like a number, which no header has."""
    return any(NUMERAL.fullmatch(cell.strip()) for cell in cells)


def distinct_names(labels: list[str], notes: list[str]) -> list[str]:
    """Return different names for columns, and append to the notes which names have changed.

    A column without a label is called "column 3", and a second "x" is called "x.2".
    """
    names: list[str] = []
    for position, label in enumerate(labels, start=1):
        original = label or f"column {position}"
        name = original
        copies = 1
        while name in names or (name != label and name in labels):
            copies += 1
            name = f"{original}.{copies}"
        if name != label:
            reason = f"another {label!r}" if label else "without a name"
            notes.append(f"column {position}, {reason}, is called {name!r}")
        names.append(name)
    return names
