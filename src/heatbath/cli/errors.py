"""Write results to stdout, and one line for every error or warning to stderr.

A user's mistake never ends in a traceback.
"""

from __future__ import annotations

import json
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import typer

FAILURE, USAGE, INTERRUPTED = 1, 2, 130  # exit codes
EXPECTED = (OSError, ValueError, TypeError, ArithmeticError, MemoryError, ImportError)
LINE = 120  # letters of JSON that are kept on one line

Json = Annotated[bool, typer.Option("--json", help="Print a single JSON object on stdout and nothing else.")]


def complain(message: str) -> None:
    """Print a message on stderr as one line that begins with `heatbath:`."""
    print(f"heatbath: {' '.join(message.split())}", file=sys.stderr, flush=True)


@contextmanager
def ending(code: int) -> Iterator[None]:
    """Turn errors raised in the block into one line on stderr, and exit with this code.

    Only errors that users or their computer can cause are treated in this way: those in `EXPECTED`, and the
    RuntimeErrors that heatbath defines, such as the failure of a worker. All others are bugs and keep their
    traceback. RuntimeWarnings raised in the block are printed as one line each.

    Parameters
    ----------
    code
        Exit code of the process after an error: `USAGE` or `FAILURE`.

    Raises
    ------
    typer.Exit
        In place of an expected error, which has been printed.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", RuntimeWarning)
            warnings.showwarning = _complain_of_warning
            yield
    except (*EXPECTED, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not type(error).__module__.startswith("heatbath."):
            raise
        complain(_message(error))
        raise typer.Exit(code) from None


def emit(text: str) -> None:
    """Write a result to stdout and flush it, so that a full disk raises OSError here and not at exit."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        raise OSError(f"the output cannot be written: {error.strerror}") from None


def as_json(values: Mapping[str, Any]) -> str:
    """Return values as indented JSON, with a line break at the end.

    Lists and objects that contain no others are put on one line if it has at most `LINE` letters.
    """
    text = json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False)
    for brackets in (r"\{{\n{}\n\s*\}}", r"\[\n{}\n\s*\]"):  # JSON has no line breaks inside quotes
        text = re.sub(brackets.format(r"[^][{}]*?"), _on_one_line, text)
    return text + "\n"


def _on_one_line(match: re.Match[str]) -> str:
    """Return a matched list or object on one line if it fits, otherwise as it is."""
    line = re.sub(r"\n\s*", " ", match[0])
    if len(line) > LINE:
        return match[0]
    return f"{line[0]}{line[2:-2]}{line[-1]}"  # without the spaces inside of the brackets


def _complain_of_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """Print a warning as one line on stderr; it takes the arguments of `warnings.showwarning`."""
    from heatbath._internal.warnings import InterruptedWarning

    if not isinstance(message, InterruptedWarning):  # the command itself says how to continue
        complain(f"warning: {message}")


def _message(error: BaseException) -> str:
    """Return what to print for an error: file and reason of the system, its text, or its type."""
    if isinstance(error, OSError) and error.strerror:
        if error.filename:
            return f"{error.filename}: {error.strerror}"
        return error.strerror
    return str(error) or type(error).__name__
