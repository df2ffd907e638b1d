"""Tables in files, opened as they are written: CSV with any usual separator and encoding, compressed or not,
and Parquet where pyarrow is installed.

Cells of a CSV file stay text: what they mean is for the encoder to learn. What had to be found out is said in
notes, and all rows that are wrong are in one message, with their lines.
"""

from __future__ import annotations

import bz2
import codecs
import contextlib
import csv
import gzip
import io
import lzma
import os
import re
import sys
import warnings
import zipfile
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, BinaryIO, Literal, NamedTuple, TypeAlias, cast

import numpy as np
import pandas as pd

from heatbath.checks import choice, whole

Source: TypeAlias = str | os.PathLike[str] | BinaryIO
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
PACKERS: dict[bytes, tuple[str, Any]] = {
    b"\x1f\x8b": ("gzip", gzip.open),
    b"BZh": ("bzip2", bz2.open),
    b"\xfd7zXZ\0": ("xz", lzma.open),
}
OTHERS = {"JSON": r'[\[{]\s*[\[{"]', "a page of HTML or XML": r"<[!?a-zA-Z]"}  # and how they begin
ZIP, PARQUET = b"PK\x03\x04", b"PAR1"
HIDDEN = re.compile(r"^__MACOSX/|(?:^|/)\.")  # what operating systems add to an archive
INDEX = re.compile(r"__index_level_\d+__")  # what pandas calls the labels of rows in Parquet
NUMERAL, MOST_TITLES = re.compile(r"[+-]?[\d.,]+"), 10
QUOTED = re.compile(r'"([^"]*)"')
UNIT = r"(?:[%$€£¥]|[A-Za-zµ°²³/]{{1,6}})?"
AMOUNT = r"[$€£¥]?\s*[+-]?(\d+|\d{{1,3}}(?:\{thousands}\d{{3}})+){decimals}\s*" + UNIT
DECIMALS = tuple(  # numbers with a comma, and with a point
    re.compile(AMOUNT.format(thousands=thousands, decimals=rf"\{mark}(\d+)"))
    for mark, thousands in (",.", ".,")
)
WITH_COMMA = AMOUNT.format(thousands=".", decimals=r"(?:,\d+)?(?:[eE][+-]?\d+)?")
ENOUGH, FEW_LINES = 10_000, 1000  # numbers that tell the decimal mark; lines of a piece after that
HEAD = 1 << 18  # bytes from which the separator is found out
LONGEST = 1 << 24  # characters in a line, beyond which it is no table
PIECE, LARGEST = 50_000, 1 << 25  # rows that are read at a time, and their characters
SHOWN = 10  # problems that a message spells out


class Unforeseen(RuntimeWarning):
    """New data have what training did not have: they are read, and should be looked at."""


class Opened(NamedTuple):
    """A table: its cells as they were read, by columns with different names and the numbers of the lines;
    what was found out on the way; and the decimal mark that its numbers had, of which all are points now
    (None where none has any)."""

    frame: pd.DataFrame
    notes: tuple[str, ...] = ()
    decimal: Mark | None = None


Look: TypeAlias = Callable[[pd.DataFrame, float], None]


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
            warnings.warn(text, Unforeseen, stacklevel=3)
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


def open_table(
    source: Source,
    *,
    rows: int | None = None,
    seed: int = 0,
    look: Look | None = None,
    decimal: Mark | None = None,
) -> Opened:
    """The table in a file: of CSV, Parquet, or either compressed; "-" is the standard input.

    The first line has the names of the columns. ValueError or OSError say all that is wrong. Where there are
    more than `rows`, so many are drawn at random by `seed`, and no more than twice as many are ever in
    memory. `look` is given the first rows of a large table, and which share of the file they are, about,
    before the others are read: what it raises ends the reading. `decimal` is the mark that other data of the
    same kind had (`TableEncoder.decimal_`), for numbers such as 1.750, which can be read in two ways.
    """
    opened, problems, advice = read_table(source, rows=rows, seed=seed, look=look, decimal=decimal)
    if problems:
        raise ValueError(told(named(source), problems) + advice)
    return opened


def read_table(
    source: Source, *, rows: int | None, seed: int, look: Look | None, decimal: Mark | None = None
) -> tuple[Opened, list[str], str]:
    """As `open_table`, with the lines that are wrong, which are left out, and what to do about them."""
    found = Reading(decimals=Decimals(_checked_mark(decimal)))
    read = io.BytesIO(sys.stdin.buffer.read()) if source == "-" else source
    pieces = _pieces(read, named(source), PIECE, found, together=True, look=look)
    remarks: list[str] = []
    if rows is None:
        frame = _joined(list(pieces))
    else:
        frame, remarks = draw_rows(pieces, rows, seed)
    mark = found.decimals.mark
    if mark == "," and len(frame):
        frame = frame.apply(_with_points)
        remarks = ["numbers with a decimal comma", *remarks]
    found.decimals.check(named(source))
    return Opened(frame, (*found.notes, *remarks), mark), found.problems, found.advice


def _checked_mark(decimal: Mark | None) -> Mark | None:
    if decimal is not None:
        choice("decimal", decimal, tuple(MARK_NAMES))
    return decimal


def draw_rows(frames: Iterable[pd.DataFrame], rows: int, seed: int) -> tuple[pd.DataFrame, list[str]]:
    """So many of the rows of these pieces of a table, each as likely, in their order, or all if there are
    fewer; and what is to be said of it.

    Each row gets a random number, and those with the smallest stay.
    """
    rows, rng = whole("rows", rows, low=2), np.random.default_rng(whole("seed", seed, low=0))
    kept: list[pd.DataFrame] = []
    keys, total, below = np.empty(0), 0, 1.0
    for frame in frames:
        new = rng.random(len(frame))
        kept.append(frame[new < below])
        keys, total = np.concatenate([keys, new[new < below]]), total + len(frame)
        if len(keys) > 2 * rows:
            below = float(np.partition(keys, rows)[rows])
            kept, keys = [_joined(kept)[keys < below]], keys[keys < below]
    if total <= rows:
        return _joined(kept), []
    chosen = np.sort(np.argpartition(keys, rows)[:rows]) if len(keys) > rows else slice(None)
    return _joined(kept).iloc[chosen], [f"{rows:,} of {total:,} rows, drawn at random"]


def _joined(frames: list[pd.DataFrame]) -> pd.DataFrame:
    return frames[0] if len(frames) == 1 else pd.concat(frames).rename_axis(frames[0].index.name)


def open_chunks(source: Source, rows: int, *, decimal: Mark | None = None) -> Iterator[pd.DataFrame]:
    """The same table, so many rows at a time (the last piece may have fewer): of a file larger than memory,
    or of a stream, whose rows are given on as they come, at most so many.

    There is at least one piece, which may have no rows. The decimal mark is `decimal`, unless the first rows
    have another, and stays: rows that are given on are not read anew.
    """
    found = Reading(decimals=Decimals(_checked_mark(decimal)))
    return _pieces(source, named(source), rows, found, together=False)


def named(source: Source) -> str:
    """What a source is called in messages."""
    if source == "-" or source is sys.stdin.buffer:
        return "standard input"
    return os.fspath(source) if isinstance(source, (str, os.PathLike)) else "the table"


def _pieces(
    source: Source, name: str, rows: int, found: Reading, together: bool, look: Look | None = None
) -> Iterator[pd.DataFrame]:
    """The table, piece by piece. All `together`, numbers keep the marks of the file, as these are known in
    the end, and lines that are wrong are noted; otherwise each piece is ready, or refused."""
    try:
        with contextlib.ExitStack() as stack:
            packed = _opened(source, stack)
            size = _size(packed)
            file = _unpacked(name, packed, stack, found.notes)
            if _head(file)[:4] == PARQUET:
                yield from _regrouped(_parquet(name, file, rows, found.notes, look), rows)
                return
            for frame in _csv(name, file, rows, found, together):
                if look is not None and packed.tell() < size:
                    commas = found.decimals.mark == ","
                    look(frame.apply(_with_points) if commas else frame, packed.tell() / size)
                look = None
                yield frame
    except OSError as error:
        if error.strerror is None:
            raise ValueError(f"{name} cannot be read: {error}; it may be damaged") from None
        raise type(error)(f"{name} cannot be read ({error.strerror}): check the path") from None
    except (zlib.error, lzma.LZMAError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{name} is compressed and damaged: {error or 'it ends too early'}") from None


def _opened(source: Source, stack: contextlib.ExitStack) -> io.BufferedReader:
    if source == "-":
        return cast(io.BufferedReader, sys.stdin.buffer)
    if isinstance(source, (str, os.PathLike)):
        return stack.enter_context(io.BufferedReader(io.FileIO(os.path.expanduser(source)), HEAD))
    if isinstance(source, io.BufferedReader):
        return source
    reader = io.BufferedReader(cast(Any, source), HEAD)
    stack.callback(reader.detach)  # or it would close the user's file
    return reader


def _size(file: io.BufferedReader) -> int:
    """How many bytes a file has; of a stream 0."""
    if not file.seekable():
        return 0
    start = file.tell()
    size = file.seek(0, os.SEEK_END)
    file.seek(start)
    return size


def _head(file: io.BufferedReader) -> bytes:
    """The bytes that come next; of a stream, as many as there are without waiting."""
    if not file.seekable():
        return file.peek(HEAD)[:HEAD]
    start = file.tell()
    head = file.read(HEAD)
    file.seek(start)
    return head


def _unpacked(
    name: str, file: io.BufferedReader, stack: contextlib.ExitStack, notes: list[str]
) -> io.BufferedReader:
    """What is in a compressed file, and any other as it is; the bytes tell, not the name."""
    head = _head(file)
    for magic, (kind, unpack) in PACKERS.items():
        if head.startswith(magic):
            notes.append(f"unpacked by {kind}")
            unpacked = stack.enter_context(unpack(file))
            return io.BufferedReader(cast(Any, unpacked if file.seekable() else _Once(unpacked)), HEAD)
    if not head.startswith(ZIP):
        return file
    archive = stack.enter_context(zipfile.ZipFile(file if file.seekable() else io.BytesIO(file.read())))
    members = [
        entry
        for entry in archive.infolist()
        if not entry.filename.endswith("/") and not HIDDEN.search(entry.filename)
    ]
    if any(entry.filename == "[Content_Types].xml" for entry in members):
        raise ValueError(f"{name} is a workbook of a spreadsheet: save its sheet as CSV")
    if len(members) != 1:
        raise ValueError(
            f"{name} must have one file in it, it has {len(members)}: "
            f"{', '.join(entry.filename for entry in members[:SHOWN])}; unpack it and name one of them"
        )
    notes.append(f"unpacked by zip: {members[0].filename}")
    try:
        return io.BufferedReader(cast(Any, stack.enter_context(archive.open(members[0]))), HEAD)
    except (RuntimeError, NotImplementedError) as error:  # it has a password, or is packed in another manner
        raise ValueError(f"{name} cannot be unpacked: {error}") from None


def _parquet(
    name: str, file: io.BufferedReader, rows: int, notes: list[str], look: Look | None
) -> Iterator[pd.DataFrame]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            f"{name}: Parquet needs pyarrow, an extra: pip install 'heatbath[parquet]', or save it as CSV"
        ) from None
    try:
        table = parquet.ParquetFile(file if file.seekable() else io.BytesIO(file.read()))
        notes.append("Parquet")
        columns = _names(list(table.schema_arrow.names), notes)
        first, empty = 1, True
        for batch in table.iter_batches(batch_size=rows):
            frame = batch.to_pandas(ignore_metadata=True)
            frame.columns, frame.index = columns, pd.RangeIndex(first, first + len(frame))
            frame = frame[[column for column in columns if not INDEX.fullmatch(column)]]
            if look is not None and empty and len(frame) < table.metadata.num_rows:
                look(frame, len(frame) / table.metadata.num_rows)
            first, empty = first + len(frame), False
            yield frame
        if empty:
            yield pd.DataFrame({column: pd.array([], dtype="str") for column in columns})
    except (pyarrow.ArrowException, NotImplementedError, ValueError) as error:  # ValueError: of its texts
        raise ValueError(f"{name} is not a Parquet file that can be read: {error}") from None


def _regrouped(frames: Iterable[pd.DataFrame], rows: int) -> Iterator[pd.DataFrame]:
    """The same rows, so many at a time but for the last: empty lines would leave fewer."""
    rest, count = pd.DataFrame(), 0
    for frame in frames:
        rest = pd.concat([rest, frame]) if len(rest) else frame
        if len(rest) >= rows:
            yield rest.iloc[:rows].copy()
            rest, count = rest.iloc[rows:], count + 1
    if len(rest) or not count:
        yield rest


def _csv(
    name: str, file: io.BufferedReader, rows: int, found: Reading, together: bool
) -> Iterator[pd.DataFrame]:
    encoding = _encoding(name, file, found.notes)
    sample = _sample(file, encoding)
    start = sample.lstrip("\ufeff \r\n")
    if other := next((kind for kind, mark in OTHERS.items() if re.match(mark, start)), None):
        raise ValueError(f"{name} is {other}, and no table: CSV or Parquet is needed")
    stream = None if file.seekable() else _Stream(file)
    lines = _Lines(name, io.TextIOWrapper(cast(Any, stream or file), encoding, newline=""), stream)
    try:
        frames = _frames(name, lines, sample, rows, found, together)
        for frame in frames if together or stream is not None else _regrouped(frames, rows):
            yield frame.rename_axis("line")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{name}, after line {lines.number}: it began as text in {encoding} and goes on with other bytes "
            f"({error.reason}): save it as UTF-8"
        ) from None
    finally:
        lines.text.detach()  # or it would close the file, which may be the user's


def _encoding(name: str, file: io.BufferedReader, notes: list[str]) -> str:
    """The encoding that a text says it has, or the first in which all of it can be read (of a stream, what
    there is of it by now)."""
    head = _head(file)
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
        for block in iter(lambda: file.read(HEAD), b"") if seekable else [_head(file)]:
            decoder.decode(block)
        decoder.decode(b"", final=seekable)
    except UnicodeDecodeError:
        return False
    finally:
        if seekable:
            file.seek(start)
    return True


def _sample(file: io.BufferedReader, encoding: str) -> str:
    """The text that a file begins with, in whole lines."""
    text = codecs.getincrementaldecoder(encoding)("replace").decode(_head(file))
    end = max(text.rfind("\n"), text.rfind("\r")) + 1
    return text[:end] if end else text


class _Once(io.RawIOBase):
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


class _Stream(io.BufferedIOBase):
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


class _Lines:
    """The lines of a text, counted; those that no table has are refused."""

    def __init__(self, name: str, text: io.TextIOWrapper, stream: _Stream | None) -> None:
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


def _frames(
    name: str, lines: _Lines, sample: str, rows: int, found: Reading, together: bool
) -> Iterator[pd.DataFrame]:
    """The rows below the header; those of another length are noted, or refused with their piece."""
    notes, decimals, problems = found.notes, found.decimals, found.problems
    separator, header = _header(name, lines, sample, notes)
    if len(header) > 1:
        notes.append(f"cells separated by {SEPARATORS[separator]}")
    columns = _names(header, notes)
    if all(NUMERAL.fullmatch(label) for label in header):
        notes.append("the first line has numbers, and is taken for the names of the columns all the same")
    found.advice = f": correct them (text with {SEPARATORS[separator]} in it needs quotes)"
    decimals.separator = separator
    mark: Mark | None = None
    if not together and lines.stream is None:
        decimals.count(sample.splitlines()[1:])
    count = 0
    while block := lines.some(rows):
        decimals.count(block)
        frame = _frame(name, lines, block, separator, columns, problems)
        if not together:
            if problems:
                raise ValueError(told(name, problems) + found.advice)
            mark = decimals.settle(name, lines.number - len(block) + 1, mark)
        count += len(frame)
        if len(frame):
            yield frame.apply(_with_points) if mark == "," else frame
    if not count:
        yield pd.DataFrame({column: pd.array([], dtype="str") for column in columns})


def told(name: str, *kinds: Sequence[str]) -> str:
    """One message of all that is wrong; of several kinds some of each are spelled out."""
    problems = [*chain(*kinds)]
    if len(problems) == 1:
        return f"{name}, {problems[0]}"
    most = SHOWN // sum(map(bool, kinds))
    shown = [*chain(*(kind[:most] for kind in kinds))]
    more = f"; and {len(problems) - len(shown)} more" if len(problems) > len(shown) else ""
    return f"{name} has {len(problems)} problems: {'; '.join(shown)}{more}"


def _frame(
    name: str, lines: _Lines, block: list[str], separator: str, columns: list[str], problems: list[str]
) -> pd.DataFrame:
    """The rows in these lines (and in those that follow, if a cell goes on there), by their lines."""
    first, width = lines.number - len(block) + 1, len(columns)
    plain = all(line.count(separator) == width - 1 and '"' not in line and line.strip() for line in block)
    if plain and not block[0].startswith("\ufeff"):  # which pandas would take for the mark of an encoding
        frame = pd.read_csv(
            io.StringIO("".join(block)), sep=separator, header=None, names=columns, index_col=False,
            dtype="str", na_filter=False, quoting=csv.QUOTE_NONE, skip_blank_lines=False,
        )  # fmt: skip
        frame.index = pd.RangeIndex(first, first + len(frame))
        frame = frame.apply(lambda column: column.str.strip())
        return frame if width == 1 else frame[(frame != "").any(axis=1)]
    reader = csv.reader(chain(block, lines), delimiter=separator, skipinitialspace=True)
    kept, places = [], []
    while reader.line_num < len(block):
        line = first + reader.line_num
        try:
            row = [cell.strip() for cell in next(reader)]
        except csv.Error as error:
            raise ValueError(f"{name}, line {line}: {error}; a quote may be open there") from None
        if not any(row):
            continue
        if len(row) > width and not any(row[width:]):
            row = row[:width]  # every line ends with a separator
        if len(row) != width:
            end = first + reader.line_num - 1
            quote = f" (up to line {end}, so a quote may be open)" if end > line else ""
            problems.append(f"line {line}: {width} cells are needed, got {len(row)}{quote}")
            continue
        kept.append(row)
        places.append(line)
    cells = zip(*kept, strict=True) if kept else ((),) * width
    pairs = zip(columns, cells, strict=True)
    made = {column: pd.array(list(values), dtype="str") for column, values in pairs}
    return pd.DataFrame(made, index=pd.Index(places, dtype="int64"))


def _header(name: str, lines: _Lines, sample: str, notes: list[str]) -> tuple[str, list[str]]:
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
    for row in _rows(name, lines, separator):
        if any(header := [" ".join(cell.split()) for cell in row]):
            return separator, header
    raise ValueError(f"{name} is empty: a first line with the names of the columns is needed")


def _rows(name: str, lines: Iterable[str], separator: str) -> Iterator[list[str]]:
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


def _with_points(column: pd.Series) -> pd.Series:
    """The same with decimal points in place of commas, where a cell is a number."""
    numbers = column.str.fullmatch(WITH_COMMA)
    points = column.str.replace(".", "", regex=False).str.replace(",", ".", regex=False)
    return column.where(~numbers, points)


def _names(given: list[str], notes: list[str]) -> list[str]:
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
