"""Encoding, separator, decimal mark and header of files."""

import io

import pandas as pd
import pytest

from heatbath._internal.warnings import UnforeseenDataWarning
from heatbath.datasets.tables import open_chunks, read_table
from heatbath.datasets.tables.parsing import numbers
from heatbath.datasets.tables.sniff import HEAD, SEPARATORS
from tests.datasets.tables.written import EXPECTED, LONG, ROWS, TEXT, Drops, is_same_frame, table_of


@pytest.mark.parametrize("quote", ["", '"'])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("separator", SEPARATORS)
def test_separators_and_ends_of_lines_are_found_out(separator, end, quote):
    """The csv module cuts rows with quotes, and pandas those without: the cells are the same."""
    text = end.join(separator.join(f"{quote}{cell}{quote}" for cell in row) for row in ROWS)
    found = table_of(text)
    assert is_same_frame(found.frame)
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
    found = table_of(TEXT.encode(encoding))
    assert is_same_frame(found.frame)
    assert found.notes == (*([note] if note else []), "cells separated by commas")


def test_bytes_that_only_latin_1_has_are_read_by_it():
    found = table_of("a,b\n\x81,é\n".encode("latin-1"))
    assert found.frame.iloc[0].tolist() == ["\x81", "é"]
    assert found.notes[0] == "text in latin-1, as it is not UTF-8"


def test_an_encoding_is_that_of_the_whole_file_and_not_of_its_beginning():
    found = table_of(f"a,b\n{LONG}2,é\n".encode("cp1252"))
    assert found.frame.iloc[-1].tolist() == ["2", "é"]


def test_decimal_commas_are_known_also_of_amounts_and_in_quotes():
    found = table_of("a;b;c\n1,5;x;1.234,5\n-2,25;y,z;12\n")
    assert found.frame.to_dict("list") == {"a": ["1.5", "-2.25"], "b": ["x", "y,z"], "c": ["1234.5", "12"]}
    assert "numbers with a decimal comma" in found.notes
    for text in ("a;b\n1.234,50 €;x\n2.500,75 €;y\n", 'a,b\n"1.234,50 €",x\n"2.500,75 €",y\n'):
        assert table_of(text).frame["a"].tolist() == ["1234.50 €", "2500.75 €"]
    assert table_of('a,b\n"1,5",2\n').frame["a"].tolist() == ["1.5"]
    controls = ('a,b\n"1,500",2\n', 'a,b\n"$1,801.30",2\n', "a;b\n1.5;2,25\n2.5;1\n2.25;1\n")
    for text in controls:  # thousands, or points
        assert "numbers with a decimal comma" not in table_of(text).notes


@pytest.mark.parametrize(
    ("header", "names"),
    [
        (",a,,b", ["column 1", "a", "column 3", "b"]),
        ("a,a,a.2,a", ["a", "a.3", "a.2", "a.4"]),
        (" a ,b  c,column 4,", ["a", "b c", "column 4", "column 4.2"]),
    ],
)
def test_names_are_different_and_what_was_done_to_them_is_said(header, names):
    found = table_of(f"{header}\n1,2,3,4\n")
    assert list(found.frame.columns) == names
    changed = [name for name, given in zip(names, header.split(","), strict=True) if name not in given]
    assert all(any(repr(name) in note for note in found.notes) for name in changed if name != "b c")


def test_a_first_line_of_numbers_is_told_of():
    assert "the first line has numbers" in " ".join(table_of("1,2.5\n3,4\n").notes)
    assert "the first line has numbers" not in " ".join(table_of("1,b\n3,4\n").notes)


MARKED = {",": "a;y\n1.234,5;1\n1.750;2\n", ".": "a;y\n1,234.5;1\n1,750;2\n"}


@pytest.mark.parametrize(("mark", "number"), [(",", "1.750"), (".", "1,750")])
def test_a_number_that_can_be_read_in_two_ways_is_read_as_in_other_data(mark, number):
    """Of new data with this number only, and of a stream, whatever comes later in it."""
    assert table_of(MARKED[mark]).decimal == mark
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
    found = table_of("a;b\n" + "\n".join(rows) + "\n")
    assert numbers(found.frame["a"])[[0, -1]].tolist() == [1750.0, 1234.5]
    assert (found.decimal, "numbers with a decimal comma" in found.notes) == (",", True)


def test_a_mark_that_is_none_is_refused():
    with pytest.raises(ValueError, match="decimal must be"):
        read_table(io.BytesIO(b"a\n1\n"), decimal=";")


def test_titles_and_comments_above_the_names_are_left_out_and_it_is_said():
    found = table_of(f"# exported 2024\n\nby a tool\n{TEXT}")
    assert found.frame.to_numpy().tolist() == EXPECTED.to_numpy().tolist()
    assert found.frame.index.tolist() == [5, 6, 7]
    assert found.notes[0] == "the first 2 lines are above the table, and left out: '# exported 2024'"
    assert table_of("Report;\na;b\n1;2\n").frame.columns.tolist() == [
        "Report",
        "column 2",
    ]  # it has a cell more
    filled = table_of("Sales of 2024;;\n;;\nregion;units;won\nN;1;yes\nS;2;no\n")  # as spreadsheets write it
    assert filled.frame.columns.tolist() == ["region", "units", "won"]
    assert filled.frame.index.tolist() == [4, 5]
    assert filled.notes[0] == "the first 2 lines are above the table, and left out: 'Sales of 2024'"
    for below in ("7;8;9", "N;;S"):  # which are not the names of three columns
        assert table_of(f"Sales;;\n{below}\n1;2;3\n").frame.columns[0] == "Sales"
    assert table_of("y\n1\n2\n").frame.columns.tolist() == ["y"]
    with pytest.raises(ValueError, match="line 2: 1 cells are needed, got 2"):
        table_of("y\n1,5\n2,5\n")  # numbers are no names


def test_decimal_commas_before_units():
    found = table_of("w;y\n1,5 kg;2,5\n1.002,5 kg;3,5\n")
    assert found.frame["w"].tolist() == ["1.5 kg", "1002.5 kg"]
