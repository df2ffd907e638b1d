"""Results on stdout, and errors in one line on stderr."""

import json
import subprocess

import pytest
import typer

from heatbath.cli.errors import as_json, ending
from tests.cli.arguments import HEATBATH


def test_json_is_readable_and_says_the_same():
    values = {
        "a": {"mean": 1.0, "low": None, "high": 2},
        "b": [[1, 2], [3, 4]],
        "c": {"odd  {name\n": "x", "[": "\n  ]", "d": []},
        "long": ["text"] * 40,
    }
    text = as_json(values)
    assert json.loads(text) == values
    assert '"a": {"mean": 1.0, "low": null, "high": 2},\n' in text
    assert "    [1, 2],\n    [3, 4]\n" in text


def test_what_goes_wrong_is_one_line_however_long(capsys):
    with pytest.raises(typer.Exit) as end, ending(1):
        raise ValueError("one\n  two\nthree")
    assert end.value.exit_code == 1
    assert capsys.readouterr().err == "heatbath: one two three\n"


def test_output_that_cannot_be_written_is_an_error():
    with open("/dev/full", "w") as nowhere:
        command = [*HEATBATH, "info"]
        done = subprocess.run(command, stdout=nowhere, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "heatbath: the output cannot be written: No space left on device\n"
