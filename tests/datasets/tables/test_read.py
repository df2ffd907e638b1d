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

from heatbath.datasets.tables import open_chunks, read_table, sniff
from heatbath.datasets.tables import read as opening
from heatbath.datasets.tables.sniff import LONGEST
from tests.datasets.tables.written import LONG, TEXT, Drops, is_same_frame, table_of


class Entry(zipfile.ZipInfo):
    """A zip entry that may have no name.

    Python writes no such entry, and asks whether its name ends with /.
    """

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
    for found in (read_table(path), read_table(str(path)), table_of(PACKED[note])):
        assert is_same_frame(found.frame)
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
        table_of(b"PAR1 and no more")


def test_rows_have_the_numbers_of_their_lines():
    text = 'sep=;\n\na;b\n1;x\n\n;\n2;"y\nz"\n3;w\n'
    found = table_of(text)
    assert found.frame["b"].to_dict() == {4: "x", 7: "y\nz", 9: "w"}
    assert [chunk.index.tolist() for chunk in open_chunks(io.BytesIO(text.encode()), 1)] == [[4], [7], [9]]


def test_all_lines_of_another_length_are_in_one_message(monkeypatch):
    monkeypatch.setattr(opening, "PIECE", 7)  # from piece to piece
    rows = [f"{i},x" if i % 3 else f"{i}" for i in range(60)]
    with pytest.raises(
        ValueError, match="the table has 20 problems: line 2: 2 cells are needed, got 1; line"
    ):
        table_of("\n".join(["a,b", *rows]))
    with pytest.raises(ValueError, match=r"and 10 more: correct them \(text with commas in it needs"):
        table_of("\n".join(["a,b", *rows]))
    with pytest.raises(ValueError, match="has 2 problems"):  # of a stream, those of the first piece with any
        list(open_chunks(io.BytesIO("\n".join(["a,b", *rows]).encode()), 4))
    assert len(table_of("a,b\n1,2,\n3,4,,\n").frame) == 2  # separators at the end do no harm


def test_a_quote_that_is_open_is_told_of():
    with pytest.raises(ValueError, match=r"line 3: 2 cells are needed, got 1 \(up to line 5, so a quote"):
        table_of('a,b\n1,2\n"3,4\n5,6\n7,8\n')
    with pytest.raises(ValueError, match=r"line 2: field larger than field limit .* a quote may be open"):
        table_of('a,b\n"1,2\n' + "3,4\n" * 40_000)


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
        assert is_same_frame(pd.concat(chunks), table_of(text).frame)
    (only,) = open_chunks(io.BytesIO(b"a,b\n"), 10)
    assert (list(only.columns), len(only)) == (["a", "b"], 0)


class Endless(io.RawIOBase):
    """A stream that never ends, and counts how much of it was read."""

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
        assert is_same_frame(read())


def test_a_file_of_the_user_s_stays_open(tmp_path):
    (tmp_path / "t.csv").write_text(TEXT)
    with open(tmp_path / "t.csv", "rb") as file:
        assert is_same_frame(read_table(file).frame)
        assert not file.closed
        file.seek(0)
        assert is_same_frame(read_table(file).frame)


def test_a_stream_whose_header_comes_first_may_have_decimal_commas():
    stream = io.BufferedReader(Drops(b"a;b\n", b"2;x\n", b"1,5;y\n", b"3;z\n"))
    assert pd.concat(open_chunks(stream, 10))["a"].tolist() == ["2", "1.5", "3"]


# What people have


@pytest.mark.parametrize(
    ("content", "kind"),
    [('[{"x": 1}]', "JSON"), ('{"x": [1]}', "JSON"), (" <!DOCTYPE html>\n<html>", "a page of HTML or XML")],
)
def test_what_is_no_table_is_called_what_it_is(content, kind):
    with pytest.raises(ValueError, match=f"the table is {kind}, and no table: CSV or Parquet is needed"):
        table_of(content)


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
    monkeypatch.setattr(opening, "_parse_lines", lambda *given: sizes.append(len(given[1])) or frame(*given))
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
    assert is_same_frame(read_table(rows_of(40), rows=40).frame, read_table(rows_of(40)).frame)
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
