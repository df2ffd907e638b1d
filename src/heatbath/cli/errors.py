"""What is said on stderr: one line for everything that goes wrong, and never a traceback for a mistake."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

FAILURE, USAGE, INTERRUPTED = 1, 2, 130
EXPECTED = (OSError, ValueError, TypeError, ArithmeticError, MemoryError, ImportError)


Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, and nothing else, on stdout.")]


def complain(message: str) -> None:
    """One line on stderr."""
    print(f"heatbath: {' '.join(message.split())}", file=sys.stderr, flush=True)


@contextmanager
def ending(code: int) -> Iterator[None]:
    """Within, what users can get wrong, and what a computer can, ends the command in one line.

    Warnings are one line each, too.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", RuntimeWarning)
            warnings.showwarning = _warn
            yield
    except EXPECTED as error:
        complain(_text(error))
        raise typer.Exit(code) from None
    except RuntimeError as error:
        if not type(error).__module__.startswith("heatbath."):  # as those of workers
            raise
        complain(_text(error))
        raise typer.Exit(code) from None


def emit(text: str) -> None:
    """Write a result to stdout; where that cannot be written, it is an error now, and not at the very end."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        raise OSError(f"the output cannot be written: {error.strerror}") from None


def _warn(message: Warning | str, *rest: Any, **others: Any) -> None:
    from heatbath._internal.warnings import InterruptedWarning

    if not isinstance(message, InterruptedWarning):  # of which the command says what to do
        complain(f"warning: {message}")


def _text(error: BaseException) -> str:
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
