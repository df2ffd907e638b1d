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


Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout, and nothing else.")]


def complain(message: str) -> None:
    """Print a message on stderr, as one line."""
    print(f"heatbath: {' '.join(message.split())}", file=sys.stderr, flush=True)


@contextmanager
def ending(code: int) -> Iterator[None]:
    """Turn errors within the block into one line on stderr and this exit code.

    These are the errors that users or the computer can cause; all others are raised as they are. Warnings
    become one line each.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", RuntimeWarning)
            warnings.showwarning = _complain_of_warning
            yield
    except EXPECTED as error:
        complain(_message(error))
        raise typer.Exit(code) from None
    except RuntimeError as error:
        if not type(error).__module__.startswith(
            "heatbath."
        ):  # heatbath's own: those of workers, for example
            raise
        complain(_message(error))
        raise typer.Exit(code) from None


def emit(text: str) -> None:
    """Write a result to stdout; raise an OSError at once if it cannot be written, and not at exit."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        raise OSError(f"the output cannot be written: {error.strerror}") from None


def as_json(values: Mapping[str, Any]) -> str:
    """Return indented JSON; lists and objects without nested ones are on one line, if it isn't too long."""
    text = json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False)
    for brackets in (r"\{{\n{}\n\s*\}}", r"\[\n{}\n\s*\]"):  # text in quotes has no line breaks
        text = re.sub(brackets.format(r"[^][{}]*?"), _on_one_line, text)
    return text + "\n"


def _on_one_line(match: re.Match[str]) -> str:
    """Return a matched list or object on one line if it fits, otherwise as it is."""
    line = re.sub(r"\n\s*", " ", match[0])
    return f"{line[0]}{line[2:-2]}{line[-1]}" if len(line) <= LINE else match[0]


def _complain_of_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    from heatbath._internal.warnings import InterruptedWarning

    if not isinstance(message, InterruptedWarning):  # the command itself says how to continue
        complain(f"warning: {message}")


def _message(error: BaseException) -> str:
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
