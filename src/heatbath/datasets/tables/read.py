"""Read tables from CSV files in any usual format, compressed or not, and from Parquet files.

Parquet needs pyarrow. Cells of a CSV file stay text, and the encoder learns what they mean. Notes say how the
file was read, and one message lists all wrong rows with their lines.
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

from heatbath._internal.checks import whole
from heatbath.datasets.tables.sniff import (
    AMOUNT,
    HEAD,
    NUMERAL,
    PIECE,
    SEPARATORS,
    ByteStream,
    Decimals,
    Lines,
    Mark,
    Reading,
    ReadOnce,
    distinct_names,
    find_encoding,
    find_header,
    head_of,
    sample_text,
)

Source: TypeAlias = str | os.PathLike[str] | BinaryIO
Frames: TypeAlias = Iterator[pd.DataFrame]  # the pieces of a table
PACKERS: dict[bytes, tuple[str, Any]] = {
    b"\x1f\x8b": ("gzip", gzip.open),
    b"BZh": ("bzip2", bz2.open),
    b"\xfd7zXZ\0": ("xz", lzma.open),
}
OTHER_FORMATS = {
    "JSON": r'[\[{]\s*[\[{"]',
    "a page of HTML or XML": r"<[!?a-zA-Z]",
}  # and the start of a file
ZIP, PARQUET = b"PK\x03\x04", b"PAR1"
HIDDEN = re.compile(r"^__MACOSX/|(?:^|/)\.")  # files that operating systems add to an archive
INDEX = re.compile(r"__index_level_\d+__")  # a column of row labels, which pandas adds to Parquet
WITH_COMMA = AMOUNT.format(thousands=".", decimals=r"(?:,\d+)?(?:[eE][+-]?\d+)?")
SHOWN = 10  # problems that a message lists


class Opened(NamedTuple):
    """A table as it was read.

    Attributes
    ----------
    frame : DataFrame
        The cells, with different names of columns, and line numbers as the index.
    notes : tuple of str
        Remarks on how it was read.
    decimal : "," or "." or None
        The decimal mark in the file; None if no number has one. In `frame` it is always a point.
    """

    frame: pd.DataFrame
    notes: tuple[str, ...] = ()
    decimal: Mark | None = None


FirstRowsCheck: TypeAlias = Callable[[pd.DataFrame, float], None]


def read_table(
    source: Source,
    *,
    rows: int | None = None,
    seed: int = 0,
    look: FirstRowsCheck | None = None,
    decimal: Mark | None = None,
) -> Opened:
    r"""Read the table in a file: CSV or Parquet, compressed or not.

    Parameters
    ----------
    source : path, "-" or binary file
        The file; "-" is the standard input. Its first line has the names of the columns.
    rows : int, optional
        Draw this many rows at random if there are more. At most twice as many are in memory at a time.
    seed : int, optional
        Seed of this draw.
    look : callable, optional
        Called with the first rows of a large table and their approximate share of the file, before the others
        are read. An error that it raises ends the reading.
    decimal : "," or ".", optional
        The decimal mark of other data of the same kind (`TableEncoder.decimal_`), for numbers such as 1.750,
        which can be read in two ways.

    Returns
    -------
    Opened
        The cells, notes on how they were read, and the decimal mark.

    Raises
    ------
    ValueError, OSError
        If the file cannot be read; the message lists all wrong lines.

    Examples
    --------
    >>> import io
    >>> read_table(io.BytesIO(b"height;weight\n1,75;70\n1,8;81\n")).notes
    ('cells separated by semicolons', 'numbers with a decimal comma')
    """
    opened, problems, advice = read_sample(source, rows=rows, seed=seed, look=look, decimal=decimal)
    if problems:
        raise ValueError(problem_message(source_name(source), problems) + advice)
    return opened


def read_sample(
    source: Source, *, rows: int | None, seed: int, look: FirstRowsCheck | None, decimal: Mark | None = None
) -> tuple[Opened, list[str], str]:
    """Read a table as `read_table` does, but leave out wrong lines instead of raising an error.

    Parameters
    ----------
    source, rows, seed, look, decimal
        As for `read_table`.

    Returns
    -------
    opened : Opened
        The table.
    problems : list of str
        What is wrong with each wrong line.
    advice : str
        How to correct them.
    """
    reading = Reading(source_name(source), Decimals(decimal), together=True)
    file = io.BytesIO(sys.stdin.buffer.read()) if source == "-" else source
    pieces = _read_pieces(file, PIECE, reading, look)
    remarks: list[str] = []
    if rows is None:
        frame = _joined(list(pieces))
    else:
        frame, remarks = draw_rows(pieces, rows, seed)

    mark = reading.decimals.mark
    if mark == "," and len(frame):
        frame = frame.apply(_with_points)
        remarks = ["numbers with a decimal comma", *remarks]
    reading.decimals.check(reading.name)
    return Opened(frame, (*reading.notes, *remarks), mark), reading.problems, reading.advice


def draw_rows(frames: Iterable[pd.DataFrame], rows: int, seed: int) -> tuple[pd.DataFrame, list[str]]:
    """Draw rows of a table at random, all with the same probability.

    Each row gets a random number, and the rows with the smallest numbers are drawn. At most about twice as
    many rows are in memory at once.

    Parameters
    ----------
    frames : iterable of DataFrame
        The table in pieces.
    rows : int
        The number of rows to draw; all are kept if there are fewer.
    seed : int
        Seed of the draw.

    Returns
    -------
    frame : DataFrame
        The rows in their order.
    remarks : list of str
        A remark if rows were left out.
    """
    rows = whole("rows", rows, low=2)
    rng = np.random.default_rng(whole("seed", seed, low=0))

    # Rows with a number above the threshold can't be among those with the smallest numbers any more
    kept: list[pd.DataFrame] = []
    kept_keys = np.empty(0)
    threshold = 1.0
    row_count = 0
    for frame in frames:
        keys = rng.random(len(frame))
        kept.append(frame[keys < threshold])
        kept_keys = np.concatenate([kept_keys, keys[keys < threshold]])
        row_count += len(frame)
        if len(kept_keys) > 2 * rows:
            threshold = float(np.partition(kept_keys, rows)[rows])
            is_below = kept_keys < threshold
            kept = [_joined(kept)[is_below]]
            kept_keys = kept_keys[is_below]

    drawn = _joined(kept)
    if row_count <= rows:
        return drawn, []
    if len(kept_keys) > rows:
        drawn = drawn.iloc[np.sort(np.argpartition(kept_keys, rows)[:rows])]
    return drawn, [f"{rows:,} of {row_count:,} rows, drawn at random"]


def _joined(frames: list[pd.DataFrame]) -> pd.DataFrame:
    """Return pieces of a table as one frame with their index."""
    if len(frames) == 1:
        return frames[0]
    return pd.concat(frames).rename_axis(frames[0].index.name)


def open_chunks(source: Source, rows: int, *, decimal: Mark | None = None) -> Frames:
    """Read a table in pieces, for files larger than memory and for streams.

    Parameters
    ----------
    source : path, "-" or binary file
        As for `read_table`.
    rows : int
        Rows of each piece; the last piece may have fewer. The pieces of a stream have the rows that have
        arrived, at most this many.
    decimal : "," or ".", optional
        The decimal mark of other data of the same kind. If the first rows have another mark, that one is
        used. The mark doesn't change later, because earlier pieces cannot be read again.

    Returns
    -------
    iterator of DataFrame
        At least one piece, which may have no rows.
    """
    return _read_pieces(source, rows, Reading(source_name(source), Decimals(decimal)))


def source_name(source: Source) -> str:
    """Return what messages call a source: its path, "standard input" or "the table"."""
    if source == "-" or source is sys.stdin.buffer:
        return "standard input"
    return os.fspath(source) if isinstance(source, (str, os.PathLike)) else "the table"


def _read_pieces(source: Source, rows: int, reading: Reading, look: FirstRowsCheck | None = None) -> Frames:
    """Read a table in pieces, and turn errors of reading and unpacking into messages for users.

    Parameters
    ----------
    source : path, "-" or binary file
        The file.
    rows : int
        Rows of each piece.
    reading : Reading
        How the file is read; collects what is found.
    look : callable, optional
        Called with the first rows and their share of the file, if there are more.

    Yields
    ------
    DataFrame
        Cells as text, with line or row numbers as the index.
    """
    try:
        with contextlib.ExitStack() as stack:
            packed = _open(source, stack)
            file = _unpack(packed, stack, reading)
            if head_of(file).startswith(PARQUET):
                yield from _regroup(_read_parquet(file, rows, reading, look), rows)
                return

            for frame in _read_csv(file, rows, reading):
                if look is not None:
                    _look_at(frame, look, packed, reading.decimals)
                    look = None
                yield frame
    except OSError as error:
        if error.strerror is None:
            raise ValueError(f"{reading.name} cannot be read: {error}; it may be damaged") from None
        raise type(error)(f"{reading.name} cannot be read ({error.strerror}): check the path") from None
    except (zlib.error, lzma.LZMAError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{reading.name} is compressed and damaged: {error or 'it ends too early'}"
        ) from None


def _look_at(
    first_rows: pd.DataFrame, look: FirstRowsCheck, file: io.BufferedReader, decimals: Decimals
) -> None:
    """Call `look` with the first rows of a table and their share of the file, if there are more.

    Parameters
    ----------
    first_rows : DataFrame
        The rows, whose numbers have the decimal mark of the file.
    look : callable
        Called with the same rows, with decimal points.
    file : BufferedReader
        The file after these rows. It isn't called for a stream, whose size is unknown.
    decimals : Decimals
        Detector of the decimal mark.
    """
    size = _size(file)
    if not size or file.tell() >= size:
        return
    if decimals.mark == ",":
        first_rows = first_rows.apply(_with_points)
    look(first_rows, file.tell() / size)


def _open(source: Source, stack: contextlib.ExitStack) -> io.BufferedReader:
    """Open a source for reading bytes.

    Parameters
    ----------
    source : path, "-" or binary file
        The source; "-" is the standard input.
    stack : ExitStack
        Closes the file at its end, unless the user has opened it.
    """
    if source == "-":
        return cast(io.BufferedReader, sys.stdin.buffer)
    if isinstance(source, (str, os.PathLike)):
        return stack.enter_context(io.BufferedReader(io.FileIO(os.path.expanduser(source)), HEAD))
    if isinstance(source, io.BufferedReader):
        return source
    reader = io.BufferedReader(cast(Any, source), HEAD)
    stack.callback(reader.detach)  # otherwise it would close the user's file
    return reader


def _size(file: io.BufferedReader) -> int:
    """Return the number of bytes in a file, or 0 for a stream; its position doesn't move."""
    if not file.seekable():
        return 0
    start = file.tell()
    size = file.seek(0, os.SEEK_END)
    file.seek(start)
    return size


def _unpack(file: io.BufferedReader, stack: contextlib.ExitStack, reading: Reading) -> io.BufferedReader:
    """Return the content of a compressed file, or the file itself.

    The first bytes tell how it is compressed, not the name.

    Parameters
    ----------
    file : BufferedReader
        The file.
    stack : ExitStack
        Closes the content at its end.
    reading : Reading
        Its notes get a remark on the compression.
    """
    head = head_of(file)
    if head.startswith(ZIP):
        return _unpack_zip(file, stack, reading)

    for first_bytes, (packer, unpack) in PACKERS.items():
        if head.startswith(first_bytes):
            reading.notes.append(f"unpacked by {packer}")
            unpacked = stack.enter_context(unpack(file))
            if not file.seekable():
                unpacked = ReadOnce(unpacked)
            return io.BufferedReader(cast(Any, unpacked), HEAD)
    return file


def _unpack_zip(file: io.BufferedReader, stack: contextlib.ExitStack, reading: Reading) -> io.BufferedReader:
    """Return the content of the only file in a ZIP archive; arguments are as for `_unpack`.

    Raises
    ------
    ValueError
        For several files, for a workbook of a spreadsheet, and for a password.
    """
    archive = stack.enter_context(zipfile.ZipFile(_seekable(file)))
    # Neither folders nor hidden files
    members = [name for name in archive.namelist() if not name.endswith("/") and not HIDDEN.search(name)]
    if "[Content_Types].xml" in members:
        raise ValueError(f"{reading.name} is a workbook of a spreadsheet: save its sheet as CSV")
    if len(members) != 1:
        raise ValueError(
            f"{reading.name} must have one file in it, it has {len(members)}: {', '.join(members[:SHOWN])}; "
            "unpack it and choose one of them"
        )
    reading.notes.append(f"unpacked by zip: {members[0]}")
    try:
        content = stack.enter_context(archive.open(members[0]))
        return io.BufferedReader(cast(Any, content), HEAD)
    except (RuntimeError, NotImplementedError) as error:  # it has a password, or an unknown compression
        raise ValueError(f"{reading.name} cannot be unpacked: {error}") from None


def _seekable(file: io.BufferedReader) -> BinaryIO:
    """Return a file, or the rest of a stream in memory, in which the position can be moved."""
    return file if file.seekable() else io.BytesIO(file.read())


def _read_parquet(
    file: io.BufferedReader, rows: int, reading: Reading, look: FirstRowsCheck | None
) -> Frames:
    """Yield a Parquet file in batches of rows, with row numbers from 1 as the index.

    Parameters
    ----------
    file : BufferedReader
        The file.
    rows : int
        Largest number of rows of a batch.
    reading : Reading
        Its notes get remarks on the format and on changed names of columns.
    look : callable or None
        Called with the first batch and its share of the rows, if there are more.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            f"{reading.name}: Parquet needs pyarrow, an extra: pip install 'heatbath[parquet]', or save it "
            "as CSV"
        ) from None

    try:
        table = parquet.ParquetFile(_seekable(file))
        reading.notes.append("Parquet")
        columns = distinct_names(list(table.schema_arrow.names), reading.notes)
        data_columns = [column for column in columns if not INDEX.fullmatch(column)]
        row_count = table.metadata.num_rows

        next_row = 1
        for batch in table.iter_batches(batch_size=rows):
            frame = batch.to_pandas(ignore_metadata=True)
            frame.columns = columns
            frame.index = pd.RangeIndex(next_row, next_row + len(frame))
            frame = frame[data_columns]
            if look is not None and next_row == 1 and len(frame) < row_count:
                look(frame, len(frame) / row_count)
            next_row += len(frame)
            yield frame
        if not row_count:
            yield _without_rows(columns)
    except (pyarrow.ArrowException, NotImplementedError, ValueError) as error:  # or text that isn't UTF-8
        raise ValueError(f"{reading.name} is not a Parquet file that can be read: {error}") from None


def _without_rows(columns: Iterable[str]) -> pd.DataFrame:
    """Return a table with columns of text and no rows."""
    return pd.DataFrame({column: pd.array([], dtype="str") for column in columns})


def _regroup(frames: Iterable[pd.DataFrame], rows: int) -> Frames:
    """Yield the rows of frames in pieces of equal size, except the last, which may be shorter.

    There is at least one piece. Frames have different sizes where a file has empty lines.
    """
    pending = pd.DataFrame()
    has_yielded = False
    for frame in frames:
        pending = pd.concat([pending, frame]) if len(pending) else frame
        if len(pending) >= rows:
            yield pending.iloc[:rows].copy()
            pending = pending.iloc[rows:]
            has_yielded = True
    if len(pending) or not has_yielded:
        yield pending


def _read_csv(file: io.BufferedReader, rows: int, reading: Reading) -> Frames:
    """Yield a CSV file in pieces, with line numbers as the index.

    Parameters
    ----------
    file : BufferedReader
        The unpacked file, which stays open.
    rows : int
        Rows of each piece.
    reading : Reading
        How the file is read; collects what is found.
    """
    encoding = find_encoding(file, reading)
    sample = sample_text(file, encoding)
    start = sample.lstrip("\ufeff \r\n")
    for other_format, pattern in OTHER_FORMATS.items():
        if re.match(pattern, start):
            raise ValueError(f"{reading.name} is {other_format}, and no table: CSV or Parquet is needed")

    stream = None if file.seekable() else ByteStream(file)
    lines = Lines(reading.name, io.TextIOWrapper(cast(Any, stream or file), encoding, newline=""), stream)
    try:
        frames = _read_rows(lines, sample, rows, reading)
        if not reading.together and stream is None:
            frames = _regroup(frames, rows)
        for frame in frames:
            yield frame.rename_axis("line")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{reading.name}, after line {lines.number}: it begins as text in {encoding}, and then has other "
            f"bytes ({error.reason}): save it as UTF-8"
        ) from None
    finally:
        lines.text.detach()  # otherwise it would close the file, which may be the user's


def _read_rows(lines: Lines, sample: str, rows: int, reading: Reading) -> Frames:
    """Yield the rows below the header of a CSV file in pieces, with line numbers as the index.

    Parameters
    ----------
    lines : Lines
        The lines of the file.
    sample : str
        Its first lines, from which the format is detected.
    rows : int
        Lines of each piece.
    reading : Reading
        How the file is read; collects what is found.
    """
    separator, columns = _read_header(lines, sample, reading)
    decimals = reading.decimals
    if not reading.together and lines.stream is None:
        decimals.count(sample.splitlines()[1:])

    settled_mark: Mark | None = None
    has_rows = False
    while block := lines.read(rows):
        decimals.count(block)
        frame = _parse_lines(lines, block, separator, columns, reading.problems)
        if not reading.together:
            if reading.problems:
                raise ValueError(problem_message(reading.name, reading.problems) + reading.advice)
            settled_mark = decimals.settle(reading.name, lines.number - len(block) + 1, settled_mark)
        if frame.empty:
            continue
        has_rows = True
        if settled_mark == ",":
            frame = frame.apply(_with_points)
        yield frame
    if not has_rows:
        yield _without_rows(columns)


def _read_header(lines: Lines, sample: str, reading: Reading) -> tuple[str, list[str]]:
    """Read a CSV file as far as its header, and return the separator of cells and the names of columns.

    Parameters
    ----------
    lines : Lines
        The lines of the file.
    sample : str
        Its first lines, from which the format is detected.
    reading : Reading
        Gets the separator, the advice on wrong lines and remarks.
    """
    separator, header = find_header(lines, sample, reading.notes)
    if len(header) > 1:
        reading.notes.append(f"cells separated by {SEPARATORS[separator]}")
    columns = distinct_names(header, reading.notes)
    if all(NUMERAL.fullmatch(label) for label in header):
        reading.notes.append(
            "the first line has numbers, and is taken for the names of the columns all the same"
        )
    reading.advice = f": correct them (text with {SEPARATORS[separator]} in it needs quotes)"
    reading.decimals.separator = separator
    return separator, columns


def problem_message(name: str, *groups: Sequence[str]) -> str:
    """Return one message about all problems of a table.

    Parameters
    ----------
    name : str
        Name of the table.
    *groups : sequence of str
        Problems of one kind each. If there are many, the message lists some of each group.
    """
    groups_with_problems = [group for group in groups if group]
    problem_count = sum(len(group) for group in groups_with_problems)
    if problem_count == 1:
        return f"{name}, {groups_with_problems[0][0]}"

    most_of_group = SHOWN // len(groups_with_problems)
    shown = [*chain.from_iterable(group[:most_of_group] for group in groups_with_problems)]
    extra = f"; and {problem_count - len(shown)} more" if problem_count > len(shown) else ""
    return f"{name} has {problem_count} problems: {'; '.join(shown)}{extra}"


def _parse_lines(
    lines: Lines, block: list[str], separator: str, columns: list[str], problems: list[str]
) -> pd.DataFrame:
    """Split lines into cells, and return them with line numbers as the index.

    Parameters
    ----------
    lines : Lines
        The lines of the file, of which more are read if a quoted cell continues after the block.
    block : list of str
        The last lines that were read from it.
    separator : str
        The separator of cells.
    columns : list of str
        The names of the columns.
    problems : list of str
        Gets a problem for each row with a wrong number of cells, which is left out.
    """
    first_line = lines.number - len(block) + 1
    width = len(columns)
    has_mark = block[0].startswith("\ufeff")  # which pandas would drop
    if not has_mark and all(_is_plain(line, separator, width) for line in block):
        return _parse_plain_lines(block, first_line, separator, columns)

    reader = csv.reader(chain(block, lines), delimiter=separator, skipinitialspace=True)
    rows: dict[int, list[str]] = {}  # cells by number of the line
    while reader.line_num < len(block):
        line = first_line + reader.line_num
        try:
            row = [cell.strip() for cell in next(reader)]
        except csv.Error as error:
            raise ValueError(f"{lines.name}, line {line}: {error}; a quote may be open there") from None
        if not any(row):
            continue
        if not any(row[width:]):
            row = row[:width]  # every line ends with a separator
        if len(row) == width:
            rows[line] = row
            continue

        last_line = first_line + reader.line_num - 1
        quote = f" (up to line {last_line}, so a quote may be open)" if last_line > line else ""
        problems.append(f"line {line}: {width} cells are needed, got {len(row)}{quote}")

    cells_by_column = {}
    for position, column in enumerate(columns):
        cells_by_column[column] = pd.array([row[position] for row in rows.values()], dtype="str")
    return pd.DataFrame(cells_by_column, index=pd.Index(list(rows), dtype="int64"))


def _is_plain(line: str, separator: str, width: int) -> bool:
    """Return True if a line has `width` cells, no quotes, and anything but spaces."""
    return line.count(separator) == width - 1 and '"' not in line and bool(line.strip())


def _parse_plain_lines(block: list[str], first_line: int, separator: str, columns: list[str]) -> pd.DataFrame:
    """Split lines without quotes into cells by pandas, which is much faster than the module csv.

    Parameters
    ----------
    block : list of str
        Lines with a cell for each column.
    first_line : int
        Number of the first of them in the file.
    separator : str
        The separator of cells.
    columns : list of str
        The names of the columns.

    Returns
    -------
    DataFrame
        Cells as text, with line numbers as the index and without empty rows.
    """
    frame = pd.read_csv(
        io.StringIO("".join(block)), sep=separator, header=None, names=columns, index_col=False,
        dtype="str", na_filter=False, quoting=csv.QUOTE_NONE, skip_blank_lines=False,
    )  # fmt: skip
    frame.index = pd.RangeIndex(first_line, first_line + len(frame))
    frame = frame.apply(lambda column: column.str.strip())
    if len(columns) == 1:
        return frame
    has_text = (frame != "").any(axis=1)
    return frame[has_text]


def _with_points(column: pd.Series) -> pd.Series:
    """Return a column with decimal points instead of commas in cells that are numbers."""
    is_number = column.str.fullmatch(WITH_COMMA)
    with_points = column.str.replace(".", "", regex=False).str.replace(",", ".", regex=False)
    return column.where(~is_number, with_points)
