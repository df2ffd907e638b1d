"""Give the tests of the command line their arguments, and read what it writes."""

import csv
import io
import sys

import numpy as np

SMALL = ["--problem", "spirals", "--n-train", "100", "--n-test", "60", "--hidden", "8", "--steps", "60",
         "--chains", "3", "--batch", "10", "--record", "20"]  # fmt: skip
ADLALA = ["--method", "adlala", "--h", "0.2", "--tau", "2e-4"]
WHOLE = ("run.nc", "settings.toml", "summary.json", "summary.md")


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


REGRESSION = ["--target", "size", "--hidden", "8", "--steps", "300", "--chains", "3", "--samples", "10"]
HEATBATH = [sys.executable, "-c", "from heatbath.cli import main; main()"]
TABLE = "a,b,kind\n" + "".join(
    f"{x:.3f},{x * x:.3f},{'red' if x > 0.3 else 'blue'}\n" for x in np.linspace(-1, 1, 30)
)
QUICK = ["--target", "kind", "--method", "lol", "--hidden", "8", "--steps", "60", "--samples", "4"]


class Input:
    """A standard input that holds the given bytes."""

    def __init__(self, content):
        self.buffer = io.BufferedReader(io.BytesIO(content))
