"""Files of tables, however they are written."""

import bz2
import gzip
import io
import lzma
import sys
import zipfile

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2

from heatbath._internal.warnings import UnforeseenDataWarning
from heatbath.datasets.tables import open_chunks, read_table, sniff
from heatbath.datasets.tables import read as opening
from heatbath.datasets.tables.parsing import numbers
from heatbath.datasets.tables.sniff import HEAD, LONGEST, SEPARATORS

ROWS = [["größe", "wo", "n"], ["1.5", "Köln", "1"], ["2.5", "a b", "2"], ["", "é", "-3"]]
EXPECTED = pd.DataFrame(
    {"größe": ["1.5", "2.5", ""], "wo": ["Köln", "a b", "é"], "n": ["1", "2", "-3"]},
    index=pd.Index([2, 3, 4], name="line"),
    dtype="str",
)
LONG = f"1,{'x' * 1000}\n" * 300  # rows that are more than what is looked at first
TEXT = "\n".join(",".join(row) for row in ROWS) + "\n"


def opened(content):
    return read_table(io.BytesIO(content if isinstance(content, bytes) else content.encode()))


def same(frame, other=EXPECTED):
    return frame.equals(other) and frame.index.tolist() == other.index.tolist()


@pytest.mark.parametrize("quote", ["", '"'])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("separator", SEPARATORS)
def test_separators_and_ends_of_lines_are_found_out(separator, end, quote):
    """With quotes the rows are cut by the csv module, without them by pandas: the cells are the same."""
    text = end.join(separator.join(f"{quote}{cell}{quote}" for cell in row) for row in ROWS)
    found = opened(text)
    assert same(found.frame)
    assert found.notes == (f"cells separated by {SEPARATORS[separator]}",)


@pytest.mark.parametrize(
    ("encoding", "note"),
    [
        ("utf-8", None),
        ("utf-8-sig", "text in UTF-8, as its first bytes say"),
        ("utf-16", "text in UTF-16, as its first bytes say"),
        ("utf-32", "text in UTF-32, as its first bytes say"),
        ("utf-16-le", "text in UTF-16-LE"),
        ("utf-16-be", "text in UTF-16-BE"),
        ("latin-1", "text in cp1252, as it is not UTF-8"),
    ],
)
def test_encodings_are_found_out(encoding, note):
    found = opened(TEXT.encode(encoding))
    assert same(found.frame)
    assert found.notes == (*([note] if note else []), "cells separated by commas")


def test_bytes_that_only_latin_1_has_are_read_by_it():
    found = opened("a,b\n\x81,é\n".encode("latin-1"))
    assert found.frame.iloc[0].tolist() == ["\x81", "é"]
    assert found.notes[0] == "text in latin-1, as it is not UTF-8"


def test_an_encoding_is_that_of_the_whole_file_and_not_of_its_beginning():
    found = opened(f"a,b\n{LONG}2,é\n".encode("cp1252"))
    assert found.frame.iloc[-1].tolist() == ["2", "é"]


class Entry(zipfile.ZipInfo):
    """One that may have no name: Python writes none such, and asks whether the name of one ends with /."""

    def is_dir(self):
        return self.filename.endswith("/")


def zipped(**files):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in files.items():
            archive.writestr(Entry(name), content)
    return file.getvalue()


PACKED = {
    "unpacked by gzip": gzip.compress(TEXT.encode()),
    "unpacked by bzip2": bz2.compress(TEXT.encode()),
    "unpacked by xz": lzma.compress(TEXT.encode()),
    "unpacked by zip: t": zipped(t=TEXT),
    "unpacked by zip: ": zipped(**{"": TEXT}),
    "unpacked by zip: d/t": zipped(**{"d/t": TEXT, "__MACOSX/d/._t": "\0", "d/.DS_Store": "\0"}),
}


@pytest.mark.parametrize("note", PACKED)
def test_compressed_files_are_known_by_their_bytes_and_not_their_names(note, tmp_path):
    path = tmp_path / "table.csv"
    path.write_bytes(PACKED[note])
    for found in (read_table(path), read_table(str(path)), opened(PACKED[note])):
        assert same(found.frame)
        assert found.notes[0] == note


def test_parquet_is_read_in_its_own_types_and_without_labels_of_rows(tmp_path):
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame({"a": [1, 2], "b": [True, None], "c": ["x", None]}, index=["p", "q"])
    frame["d"] = pd.to_datetime(["2020-01-01", None])
    frame.to_parquet(tmp_path / "t.parquet")
    found, notes, _ = read_table(tmp_path / "t.parquet")
    assert list(found.columns) == ["a", "b", "c", "d"]
    assert found["a"].tolist() == [1, 2]
    assert found.index.tolist() == [1, 2]
    assert notes == ("Parquet",)
    chunks = list(open_chunks(tmp_path / "t.parquet", 1))
    assert [chunk.index.tolist() for chunk in chunks] == [[1], [2]]
    with pytest.raises(ValueError, match="the table is not a Parquet file that can be read"):
        opened(b"PAR1 and no more")


def test_decimal_commas_are_known_also_of_amounts_and_in_quotes():
    found = opened("a;b;c\n1,5;x;1.234,5\n-2,25;y,z;12\n")
    assert found.frame.to_dict("list") == {"a": ["1.5", "-2.25"], "b": ["x", "y,z"], "c": ["1234.5", "12"]}
    assert "numbers with a decimal comma" in found.notes
    for text in ("a;b\n1.234,50 €;x\n2.500,75 €;y\n", 'a,b\n"1.234,50 €",x\n"2.500,75 €",y\n'):
        assert opened(text).frame["a"].tolist() == ["1234.50 €", "2500.75 €"]
    assert opened('a,b\n"1,5",2\n').frame["a"].tolist() == ["1.5"]
    controls = ('a,b\n"1,500",2\n', 'a,b\n"$1,801.30",2\n', "a;b\n1.5;2,25\n2.5;1\n2.25;1\n")
    for text in controls:  # thousands, or points
        assert "numbers with a decimal comma" not in opened(text).notes


def test_rows_have_the_numbers_of_their_lines():
    text = 'sep=;\n\na;b\n1;x\n\n;\n2;"y\nz"\n3;w\n'
    found = opened(text)
    assert found.frame["b"].to_dict() == {4: "x", 7: "y\nz", 9: "w"}
    assert [chunk.index.tolist() for chunk in open_chunks(io.BytesIO(text.encode()), 1)] == [[4], [7], [9]]


def test_all_lines_of_another_length_are_in_one_message(monkeypatch):
    monkeypatch.setattr(opening, "PIECE", 7)  # from piece to piece
    rows = [f"{i},x" if i % 3 else f"{i}" for i in range(60)]
    with pytest.raises(
        ValueError, match="the table has 20 problems: line 2: 2 cells are needed, got 1; line"
    ):
        opened("\n".join(["a,b", *rows]))
    with pytest.raises(ValueError, match=r"and 10 more: correct them \(text with commas in it needs"):
        opened("\n".join(["a,b", *rows]))
    with pytest.raises(ValueError, match="has 2 problems"):  # of a stream, those of the first piece with any
        list(open_chunks(io.BytesIO("\n".join(["a,b", *rows]).encode()), 4))
    assert len(opened("a,b\n1,2,\n3,4,,\n").frame) == 2  # separators at the end do no harm


def test_a_quote_that_is_open_is_told_of():
    with pytest.raises(ValueError, match=r"line 3: 2 cells are needed, got 1 \(up to line 5, so a quote"):
        opened('a,b\n1,2\n"3,4\n5,6\n7,8\n')
    with pytest.raises(ValueError, match=r"line 2: field larger than field limit .* a quote may be open"):
        opened('a,b\n"1,2\n' + "3,4\n" * 40_000)


@pytest.mark.parametrize(
    ("header", "names"),
    [
        (",a,,b", ["column 1", "a", "column 3", "b"]),
        ("a,a,a.2,a", ["a", "a.3", "a.2", "a.4"]),
        (" a ,b  c,column 4,", ["a", "b c", "column 4", "column 4.2"]),
    ],
)
def test_names_are_different_and_what_was_done_to_them_is_said(header, names):
    found = opened(f"{header}\n1,2,3,4\n")
    assert list(found.frame.columns) == names
    changed = [name for name, given in zip(names, header.split(","), strict=True) if name not in given]
    assert all(any(repr(name) in note for note in found.notes) for name in changed if name != "b c")


def test_a_first_line_of_numbers_is_told_of():
    assert "the first line has numbers" in " ".join(opened("1,2.5\n3,4\n").notes)
    assert "the first line has numbers" not in " ".join(opened("1,b\n3,4\n").notes)


def damaged(content):
    return content[: len(content) // 2] + b"\xff" * 8 + content[len(content) // 2 + 8 :]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty: a first line with the names of the columns is needed"),
        (b"\n\n ,\n", "is empty"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "is not a table of text: it has zero bytes"),
        (f"a,b\n{LONG}\0,1\n".encode(), "is not a table of text: line 302 has zero bytes"),
        (b"a" * (LONGEST + 1), "line 1 has 16,777,216 characters or more"),
        (damaged(PACKED["unpacked by gzip"]), "damaged"),
        (PACKED["unpacked by gzip"][:-20], "damaged"),
        (damaged(PACKED["unpacked by bzip2"]), "damaged"),
        (damaged(PACKED["unpacked by xz"]), "damaged"),
        (PACKED["unpacked by zip: t"][:40], "damaged"),
        (zipped(a="x", b="y"), "must have one file in it, it has 2: a, b; unpack it and choose one of them"),
        (
            zipped(**{"[Content_Types].xml": "x", "sheet": "y"}),
            "is a workbook of a spreadsheet: save its sheet",
        ),
        (b"\xff\xfea\0,\0\n\0\x00\xd8\n\0", "begins as text in utf-16, and then has other bytes"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",  # packed bytes have the time in them
)
def test_what_is_no_table_is_refused_by_name(content, says, tmp_path):
    path = tmp_path / "bad.csv"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"bad\.csv.* {says}"):
        read_table(path)
    with pytest.raises(ValueError, match=rf"bad\.csv.* {says}"):
        list(open_chunks(path, 1000))


def test_chunks_are_the_table_whatever_their_size():
    text = "a,b\n" + "".join(f'{i},"{i}\n{i}"\n' if i % 5 == 0 else f"{i},x\n" for i in range(40))
    for rows in (1, 7, 1000):
        chunks = list(open_chunks(io.BytesIO(text.encode()), rows))
        assert max(map(len, chunks)) <= rows
        assert same(pd.concat(chunks), opened(text).frame)
    (only,) = open_chunks(io.BytesIO(b"a,b\n"), 10)
    assert (list(only.columns), len(only)) == (["a", "b"], 0)


class Endless(io.RawIOBase):
    """A stream that never ends, and knows how much of it was read."""

    def __init__(self):
        self.rows = 0

    def readable(self):
        return True

    def readinto(self, place):
        text = ("a,b\n" if not self.rows else "") + f"{self.rows},x\n" * 1000
        place[: len(text)] = text.encode()
        self.rows += 1000
        return len(text)


def test_of_a_stream_no_more_is_read_than_is_needed():
    stream = Endless()
    chunks = open_chunks(io.BufferedReader(stream, 1 << 14), 5000)
    for count in range(1, 4):
        assert len(next(chunks)) <= 5000
        assert stream.rows <= 5000 * count + 5000
    chunks.close()


def test_the_standard_input_is_a_file_called_dash(monkeypatch):
    for read in (lambda: read_table("-").frame, lambda: pd.concat(open_chunks("-", 2))):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(TEXT.encode()))))
        assert same(read())


def test_a_file_of_the_user_s_stays_open(tmp_path):
    (tmp_path / "t.csv").write_text(TEXT)
    with open(tmp_path / "t.csv", "rb") as file:
        assert same(read_table(file).frame)
        assert not file.closed
        file.seek(0)
        assert same(read_table(file).frame)


class Drops(io.RawIOBase):
    """A stream that comes in these pieces."""

    def __init__(self, *pieces):
        self.pieces = list(pieces)

    def readable(self):
        return True

    def readinto(self, place):
        piece = self.pieces.pop(0) if self.pieces else b""
        place[: len(piece)] = piece
        return len(piece)


def test_a_stream_whose_header_comes_first_may_have_decimal_commas():
    stream = io.BufferedReader(Drops(b"a;b\n", b"2;x\n", b"1,5;y\n", b"3;z\n"))
    assert pd.concat(open_chunks(stream, 10))["a"].tolist() == ["2", "1.5", "3"]


MARKED = {",": "a;y\n1.234,5;1\n1.750;2\n", ".": "a;y\n1,234.5;1\n1,750;2\n"}


@pytest.mark.parametrize(("mark", "number"), [(",", "1.750"), (".", "1,750")])
def test_a_number_that_can_be_read_in_two_ways_is_read_as_in_other_data(mark, number):
    """Of new data with this number only, and of a stream, whatever comes later in it."""
    assert opened(MARKED[mark]).decimal == mark
    alone = f"a;y\n{number};1\n".encode()

    def value(text):
        return numbers(text["a"]).tolist()

    assert value(read_table(io.BytesIO(alone), decimal=mark).frame) == [1750.0]
    assert value(pd.concat(open_chunks(io.BytesIO(alone), 5, decimal=mark))) == [1750.0]
    assert value(read_table(io.BytesIO(alone)).frame) == [1.75]  # a control: nothing else is known of it
    stream = io.BufferedReader(Drops(b"a;y\n", f"{number};1\n".encode(), MARKED[mark][4:].encode()))
    assert value(pd.concat(open_chunks(stream, 5, decimal=mark))) == [1750.0, 1234.5, 1750.0]


@pytest.mark.parametrize("mark", [",", "."])
def test_numbers_with_another_mark_than_in_training_are_read_by_their_own_and_warned_of(mark):
    other = {",": "points", ".": "commas"}[mark]
    content = MARKED["." if mark == "," else ","].encode()
    with pytest.warns(
        UnforeseenDataWarning, match=f"the table: numbers have decimal {other} and are read with them"
    ):
        assert numbers(read_table(io.BytesIO(content), decimal=mark).frame["a"]).tolist() == [1234.5, 1750]
    with pytest.warns(UnforeseenDataWarning, match=f"numbers have decimal {other}"):
        list(open_chunks(io.BytesIO(content), 5, decimal=mark))


def test_a_stream_that_changes_its_mark_is_read_as_it_began_and_warned_of():
    stream = io.BufferedReader(Drops(b"a;y\n1.25;x\n", b"1,5;y\n2,5;y\n", b"3,5;z\n"))
    with pytest.warns(
        UnforeseenDataWarning, match="before line 3 numbers had decimal points, but most have"
    ) as all:
        assert pd.concat(open_chunks(stream, 10))["a"].tolist() == ["1.25", "1,5", "2,5", "3,5"]
    assert len(all) == 1


def test_all_cells_of_a_file_decide_on_its_decimal_mark_however_late_they_come():
    rows = ["1.750;x"] * (HEAD // 8 + 1) + ["1.234,5;x"]
    found = opened("a;b\n" + "\n".join(rows) + "\n")
    assert numbers(found.frame["a"])[[0, -1]].tolist() == [1750.0, 1234.5]
    assert (found.decimal, "numbers with a decimal comma" in found.notes) == (",", True)


def test_a_mark_that_is_none_is_refused():
    with pytest.raises(ValueError, match="decimal must be"):
        read_table(io.BytesIO(b"a\n1\n"), decimal=";")


# What people have


def test_titles_and_comments_above_the_names_are_left_out_and_it_is_said():
    found = opened(f"# exported 2024\n\nby a tool\n{TEXT}")
    assert found.frame.to_numpy().tolist() == EXPECTED.to_numpy().tolist()
    assert found.frame.index.tolist() == [5, 6, 7]
    assert found.notes[0] == "the first 2 lines are above the table, and left out: '# exported 2024'"
    assert opened("Report;\na;b\n1;2\n").frame.columns.tolist() == [
        "Report",
        "column 2",
    ]  # it has a cell more
    filled = opened("Sales of 2024;;\n;;\nregion;units;won\nN;1;yes\nS;2;no\n")  # as spreadsheets write it
    assert filled.frame.columns.tolist() == ["region", "units", "won"]
    assert filled.frame.index.tolist() == [4, 5]
    assert filled.notes[0] == "the first 2 lines are above the table, and left out: 'Sales of 2024'"
    for below in ("7;8;9", "N;;S"):  # which are not the names of three columns
        assert opened(f"Sales;;\n{below}\n1;2;3\n").frame.columns[0] == "Sales"
    assert opened("y\n1\n2\n").frame.columns.tolist() == ["y"]
    with pytest.raises(ValueError, match="line 2: 1 cells are needed, got 2"):
        opened("y\n1,5\n2,5\n")  # numbers are no names


@pytest.mark.parametrize(
    ("content", "kind"),
    [('[{"x": 1}]', "JSON"), ('{"x": [1]}', "JSON"), (" <!DOCTYPE html>\n<html>", "a page of HTML or XML")],
)
def test_what_is_no_table_is_called_what_it_is(content, kind):
    with pytest.raises(ValueError, match=f"the table is {kind}, and no table: CSV or Parquet is needed"):
        opened(content)


def test_decimal_commas_before_units():
    found = opened("w;y\n1,5 kg;2,5\n1.002,5 kg;3,5\n")
    assert found.frame["w"].tolist() == ["1.5 kg", "1002.5 kg"]


# Large ones


def rows_of(count):
    return io.BytesIO(("a,b\n" + "".join(f"{i},{i * i}\n" for i in range(count))).encode())


def test_pieces_are_full_though_lines_are_empty():
    text = "a,b\n" + "1,2\n\n\n3,4\n" * 5
    for content in (text, text.replace("1,", '"1",')):
        chunks = list(open_chunks(io.BytesIO(content.encode()), 4))
        assert [len(chunk) for chunk in chunks] == [4, 4, 2]
        assert [chunk.index.name for chunk in chunks] == ["line"] * 3
        assert pd.concat(chunks)["b"].tolist() == ["2", "4"] * 5


def test_few_characters_are_read_at_a_time(monkeypatch):
    monkeypatch.setattr(sniff, "LARGEST", 50)
    sizes = []
    frame = opening._parse_lines
    monkeypatch.setattr(opening, "_parse_lines", lambda *given: sizes.append(len(given[2])) or frame(*given))
    assert len(read_table(rows_of(100)).frame) == 100
    assert len(sizes) > 10
    assert max(sizes) <= 13


def test_rows_are_drawn_each_as_likely_in_their_order(monkeypatch):
    """How often each of 40 rows is among 10: chi squared of 400 draws, at the level of 1e-6."""
    counts, draws = np.zeros(40), 400
    pieces = [pd.DataFrame({"a": range(first, first + 5)}) for first in range(0, 40, 5)]
    for seed in range(draws):
        frame, notes = opening.draw_rows(pieces, 10, seed)
        chosen = frame["a"].to_numpy()
        assert len(chosen) == 10
        assert (np.diff(chosen) > 0).all()
        counts[chosen] += 1
    assert notes == ["10 of 40 rows, drawn at random"]
    variance = draws * 10 / 40 * 30 / 40 * 40 / 39  # of counts whose sum is given
    level = chi2.isf(1e-6, 39)
    assert ((counts - draws / 4) ** 2).sum() / variance < level
    first = np.where(np.arange(40) < 10, draws, 0)  # the control: always the first ones
    assert ((first - draws / 4) ** 2).sum() / variance > level
    monkeypatch.setattr(opening, "PIECE", 7)
    found = read_table(rows_of(40), rows=10, seed=3)
    assert (len(found.frame), found.notes[-1]) == (10, notes[0])
    assert same(read_table(rows_of(40), rows=40).frame, read_table(rows_of(40)).frame)
    with pytest.raises(ValueError, match="rows must be"):
        read_table(rows_of(40), rows=0)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_large_table_is_looked_at_before_it_is_read(pack, monkeypatch):
    monkeypatch.setattr(opening, "PIECE", 5000)
    looked = []
    content = pack(rows_of(20_000).getvalue())
    read_table(io.BytesIO(content), look=lambda first, share: looked.append((len(first), share)))
    ((rows, share),) = looked
    assert rows == 5000
    assert rows / share == pytest.approx(20_000, rel=0.3)
    read_table(rows_of(100), look=lambda first, share: looked.append(share))
    assert len(looked) == 1  # small ones are not
