"""Files that nobody would write: whatever the bytes are, there is a table, or one message."""

import bz2
import contextlib
import gzip
import io
import json
import lzma
import os
import random
import warnings
import zipfile
from contextlib import suppress

import numpy as np
import pandas as pd
import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st

from heatbath import cli
from heatbath._internal.warnings import UnforeseenDataWarning
from heatbath.cli import commands, main
from heatbath.datasets import from_table
from heatbath.datasets.tables import TableEncoder, open_chunks, read_table

CELLS = [
    "", "1", "2.5", "-3e5", "1,5", "1.234,5", "1,234", "NA", "?", "yes", "no", "true", "False", "2020-01-05",
    "05.01.2020", "1/2/2020", "Jan 5, 2020", "12:30", "2020-01-05T10:00:00+02:00", "99999-01-01",
    "0001-01-01", "00501", "inf", "-inf", "nan", "1e400", "9" * 400, "1_000", "abc", "äöü", "日本", "\u2028",
    'a"b', '"a, b"', '"open', "$5", "5%", "\u22125", "x;y", "a|b", "=1+1", "\x7f", "\x1c", "0x10", "1e-400",
    "2262-04-12", "1677-09-20", "31.02.2020", "24:00", "١٢", "½", "+", "-", ".", "1e", "NaT", "None", "<NA>",
    "[1,2]", "\ufeff", "-0", "00", "1 000", "1'000", "12/13/2020", "3000000-01-01", "2020-W05", "1e100",
    "1e101",     "9223372036854775808", "-9223372036854775809", "a=b", "(missing)", "(rare)", " ", "\u200b",
]  # fmt: skip
FILES = int(os.environ.get("HOSTILE_FILES", "100"))
COMMANDS = int(os.environ.get("HOSTILE_COMMANDS", "30"))
NAMES = ["a", "b", "y", "a", "", "größe", '"q,u"', "1", "y.2", "column 1", "a=b", "nan"]
OBJECTS = [None, True, 1, 2.5, -(10**30), "x", b"x", (1,), [1], {"a": 1}, 1j, pd.Timestamp(0), pd.NaT, pd.NA]


def column(draw, rows):
    """Return cells of one kind, or of all kinds."""
    kind = draw.randrange(6)
    usual = {
        0: lambda: f"{draw.gauss(0, 1):.3f}",
        1: lambda: draw.choice("ab"),
        2: lambda: f"{draw.randint(1, 28):02d}.{draw.randint(1, 12):02d}.{draw.randint(1990, 2024)}",
    }.get(kind, lambda: draw.choice(few))
    few = draw.sample(CELLS, 3) if kind < 5 else CELLS
    return [usual() if draw.random() < 0.95 else draw.choice(CELLS) for _ in range(rows)]


def random_file(draw):
    """Return a file in some encoding, perhaps compressed, perhaps with some bytes that are wrong."""
    rows, width, separator = draw.choice([1, 5, 12, 25]), draw.randint(1, 5), draw.choice(",;\t|")
    columns = [column(draw, rows) for _ in range(width)]
    columns[0] = [draw.choice("ab") for _ in range(rows)] if draw.random() < 0.7 else columns[0]
    header = [draw.choice(NAMES) for _ in columns] if draw.random() < 0.3 else list("yabcde"[:width])
    lines = [header, *zip(*columns, strict=True)]
    text = draw.choice(["\n", "\r\n", "\r"]).join(separator.join(line) for line in lines)
    made = text.encode(draw.choice(["utf-8"] * 4 + ["utf-8-sig", "utf-16", "latin-1", "cp1252"]), "replace")
    packed = draw.randrange(12)
    if packed == 0:
        made = draw.choice([lambda b: gzip.compress(b, 1), bz2.compress, lzma.compress])(made)
    elif packed == 1:
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("t.csv", made)
        made = file.getvalue()
    return mutated(draw, made) if draw.random() < 0.3 else made


def mutated(draw, made):
    """Return a file with some of its bytes replaced."""
    changed = bytearray(made)
    for _ in range(draw.randint(1, 4)):
        place = draw.randrange(len(changed) + 1)
        end = place + draw.choice([0, 0, 1, 20])
        changed[place:end] = draw.choice([b"", b'"', b",", b";", b"\n", b"\0", b"\r", draw.randbytes(3)])
    return bytes(changed)


def check_features(source, draw):
    """Check that a table gives finite features, and the same with the encoder read back."""
    options = {"task": draw.choice([None] * 6 + ["regression", "classes", "binary", "counts"])}
    names = list(source.frame.columns) if hasattr(source, "frame") else [str(name) for name in source.columns]
    options["categorical"] = draw.sample(names, draw.choice([0, 0, 0, 1]))
    options["weights"] = draw.choice([None] * 9 + names)
    target = "y" if "y" in names else draw.choice([names[-1], names[:2]])
    problem = from_table(source, target, test_share=draw.choice([0, 0.2]), **options)
    plain = json.loads(json.dumps(problem.encoder.plain(), allow_nan=False))
    again, table = TableEncoder.from_plain(plain), getattr(source, "frame", source)
    features = problem.encoder.transform(table)
    assert np.isfinite(features).all()
    np.testing.assert_array_equal(features, again.transform(table))
    assert again.notes() == problem.encoder.notes()


@pytest.mark.parametrize("block", range(2))
def test_whatever_a_file_holds_there_is_a_table_or_one_message(block):
    """Run with HOSTILE_FILES=5000 to test ten thousand files."""
    outcomes = {"read": 0, "refused": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnforeseenDataWarning)
        for number in range(FILES):
            draw = random.Random(f"{block}, {number}")
            made = random_file(draw)
            try:
                opened = read_table(io.BytesIO(made))
                chunks = pd.concat(open_chunks(io.BytesIO(made), 3))
                assert chunks.equals(opened.frame), made
                check_features(opened, draw)
                outcomes["read"] += 1
            except (ValueError, OSError):
                outcomes["refused"] += 1
    assert min(outcomes.values()) > FILES // 10


def train_command(path, draw):
    """Return the exit code and stderr lines of a command that checks a file for training."""
    names = ["y"]
    with suppress(ValueError, OSError):
        names = list(read_table(path).frame.columns)
    target = "y" if "y" in names else draw.choice(names)
    words = [f"--target={target}", f"--test-share={draw.choice([0, 0.2])}"]
    words += [f"--task={draw.choice(['regression', 'classes', 'binary', 'counts'])}"] * (draw.random() < 0.3)
    words += [f"--categorical={draw.choice(names)}"] * (draw.random() < 0.2)
    words += [f"--weights={draw.choice(names)}"] * (draw.random() < 0.1)
    err = io.StringIO()
    with contextlib.redirect_stderr(err), pytest.raises(SystemExit) as end:
        main(["train", "--data", str(path), *words, "--out", str(path.with_suffix(".run"))])
    return end.value.code, err.getvalue().splitlines()


def test_whatever_a_file_holds_the_command_takes_it_or_says_why_not_in_one_line(tmp_path, monkeypatch):
    """Run with HOSTILE_COMMANDS=10000 to test ten thousand commands."""
    monkeypatch.setattr(commands, "_execute", lambda *arguments: None)
    monkeypatch.setattr(cli, "app", typer.main.get_command(cli.app))  # made once, which takes longest
    outcomes = {"read": 0, "refused": 0}
    path = tmp_path / "hostile.csv"
    for number in range(COMMANDS):
        draw = random.Random(f"command, {number}")
        path.write_bytes(random_file(draw))
        code, lines = train_command(path, draw)
        assert code in (0, 2), (number, lines)
        assert all(line.startswith("heatbath: ") for line in lines), (number, lines)
        outcomes["refused" if code else "read"] += 1
        if code:
            assert "hostile.csv" in lines[-1], (number, lines)
            assert len([line for line in lines if not line.startswith("heatbath: warning: ")]) == 1, number
            assert not path.with_suffix(".run").exists()
        else:
            (path.with_suffix(".run") / "settings.toml").unlink()
            path.with_suffix(".run").rmdir()
    assert min(outcomes.values()) >= COMMANDS // 10
    print(outcomes)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_whatever_bytes_come_there_is_a_table_or_one_message(made):
    with suppress(ValueError, OSError):
        assert len(read_table(io.BytesIO(made)).frame.columns) >= 1


@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    st.lists(st.lists(st.sampled_from([*OBJECTS, *CELLS]), min_size=4, max_size=4), min_size=1, max_size=3),
    st.integers(0, 10),
)
def test_whatever_a_data_frame_holds_there_is_a_problem_or_one_message(columns, seed):
    frame = pd.DataFrame({f"c{i}": pd.Series(cells * 3, dtype=object) for i, cells in enumerate(columns)})
    frame = frame.assign(y=["a", "b", "b"] * 4)
    with warnings.catch_warnings(), suppress(ValueError, OSError):
        warnings.simplefilter("ignore", UnforeseenDataWarning)
        check_features(frame, random.Random(seed))


def test_damaged_parquet_is_read_or_refused_by_name():
    pytest.importorskip("pyarrow")
    draw, file, refused = random.Random(0), io.BytesIO(), 0
    pd.DataFrame({"a": range(30), "b": ["x", "y", None] * 10, "c": [True, None, False] * 10}).to_parquet(file)
    for _ in range(100):
        changed = bytearray(file.getvalue())
        for place in draw.sample(range(len(changed)), 2):
            changed[place] = draw.randrange(256)
        try:
            read_table(io.BytesIO(bytes(changed)))
        except ValueError as error:
            refused += str(error).startswith("the table ") or pytest.fail(str(error))
    assert 50 < refused < 100
