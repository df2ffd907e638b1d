"""Tables in files, opened as they are written: CSV with any usual separator and encoding, compressed or not,
and Parquet where pyarrow is installed.

Cells of a CSV file stay text: what they mean is for the encoder to learn. What had to be found out is said in
notes, and all rows that are wrong are in one message, with their lines.
"""

from __future__ import annotations

import bz2
import contextlib
import csv
import gzip
import io
import lzma
import os
import re
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, BinaryIO, NamedTuple, TypeAlias, cast

import numpy as np
import pandas as pd

from heatbath._internal.checks import choice, whole
from heatbath.datasets.tables.sniff import (
    AMOUNT,
    HEAD,
    MARK_NAMES,
    NUMERAL,
    PIECE,
    SEPARATORS,
    Decimals,
    Lines,
    Mark,
    Reading,
    ReadOnce,
    Stream,
    distinct_names,
    find_encoding,
    find_header,
    head_of,
    sample_text,
)

Source: TypeAlias = str | os.PathLike[str] | BinaryIO
PACKERS: dict[bytes, tuple[str, Any]] = {
    b"\x1f\x8b": ("gzip", gzip.open),
    b"BZh": ("bzip2", bz2.open),
    b"\xfd7zXZ\0": ("xz", lzma.open),
}
OTHERS = {"JSON": r'[\[{]\s*[\[{"]', "a page of HTML or XML": r"<[!?a-zA-Z]"}  # and how they begin
ZIP, PARQUET = b"PK\x03\x04", b"PAR1"
HIDDEN = re.compile(r"^__MACOSX/|(?:^|/)\.")  # what operating systems add to an archive
INDEX = re.compile(r"__index_level_\d+__")  # what pandas calls the labels of rows in Parquet
WITH_COMMA = AMOUNT.format(thousands=".", decimals=r"(?:,\d+)?(?:[eE][+-]?\d+)?")
SHOWN = 10  # problems that a message spells out


class Opened(NamedTuple):
    """A table: its cells as they were read, by columns with different names and the numbers of the lines;
    what was found out on the way; and the decimal mark that its numbers had, of which all are points now
    (None where none has any)."""

    frame: pd.DataFrame
    notes: tuple[str, ...] = ()
    decimal: Mark | None = None


Look: TypeAlias = Callable[[pd.DataFrame, float], None]


def read_table(
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
    opened, problems, advice = read_sample(source, rows=rows, seed=seed, look=look, decimal=decimal)
    if problems:
        raise ValueError(told(named(source), problems) + advice)
    return opened


def read_sample(
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
            if head_of(file)[:4] == PARQUET:
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


def _unpacked(
    name: str, file: io.BufferedReader, stack: contextlib.ExitStack, notes: list[str]
) -> io.BufferedReader:
    """What is in a compressed file, and any other as it is; the bytes tell, not the name."""
    head = head_of(file)
    for magic, (kind, unpack) in PACKERS.items():
        if head.startswith(magic):
            notes.append(f"unpacked by {kind}")
            unpacked = stack.enter_context(unpack(file))
            return io.BufferedReader(cast(Any, unpacked if file.seekable() else ReadOnce(unpacked)), HEAD)
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
        columns = distinct_names(list(table.schema_arrow.names), notes)
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
    encoding = find_encoding(name, file, found.notes)
    sample = sample_text(file, encoding)
    start = sample.lstrip("\ufeff \r\n")
    if other := next((kind for kind, mark in OTHERS.items() if re.match(mark, start)), None):
        raise ValueError(f"{name} is {other}, and no table: CSV or Parquet is needed")
    stream = None if file.seekable() else Stream(file)
    lines = Lines(name, io.TextIOWrapper(cast(Any, stream or file), encoding, newline=""), stream)
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


def _frames(
    name: str, lines: Lines, sample: str, rows: int, found: Reading, together: bool
) -> Iterator[pd.DataFrame]:
    """The rows below the header; those of another length are noted, or refused with their piece."""
    notes, decimals, problems = found.notes, found.decimals, found.problems
    separator, header = find_header(name, lines, sample, notes)
    if len(header) > 1:
        notes.append(f"cells separated by {SEPARATORS[separator]}")
    columns = distinct_names(header, notes)
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
    name: str, lines: Lines, block: list[str], separator: str, columns: list[str], problems: list[str]
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


def _with_points(column: pd.Series) -> pd.Series:
    """The same with decimal points in place of commas, where a cell is a number."""
    numbers = column.str.fullmatch(WITH_COMMA)
    points = column.str.replace(".", "", regex=False).str.replace(",", ".", regex=False)
    return column.where(~numbers, points)
