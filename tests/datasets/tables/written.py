"""Write tables as files and streams, and read them."""

import io

import pandas as pd

from heatbath.datasets.tables import read_table

ROWS = [["größe", "wo", "n"], ["1.5", "Köln", "1"], ["2.5", "a b", "2"], ["", "é", "-3"]]


EXPECTED = pd.DataFrame(
    {"größe": ["1.5", "2.5", ""], "wo": ["Köln", "a b", "é"], "n": ["1", "2", "-3"]},
    index=pd.Index([2, 3, 4], name="line"),
    dtype="str",
)


LONG = f"1,{'x' * 1000}\n" * 300  # rows that are more than what is looked at first


TEXT = "\n".join(",".join(row) for row in ROWS) + "\n"


def table_of(content):
    """Return the table that is read from a text or from bytes."""
    return read_table(io.BytesIO(content if isinstance(content, bytes) else content.encode()))


def is_same_frame(frame, other=EXPECTED):
    """Return True if a frame has the expected cells and index."""
    return frame.equals(other) and frame.index.tolist() == other.index.tolist()


class Drops(io.RawIOBase):
    """A stream that arrives in the given pieces."""

    def __init__(self, *pieces):
        self.pieces = list(pieces)

    def readable(self):
        return True

    def readinto(self, place):
        piece = self.pieces.pop(0) if self.pieces else b""
        place[: len(piece)] = piece
        return len(piece)


def write_table(path, *lines):
    """Write lines to a file, and return its path."""
    path.write_text("\n".join(lines) + "\n")
    return path


HEAD = "a,b,y"
