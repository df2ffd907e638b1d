"""Claim and release the folder of a run, with its settings, its results, and data from a pipe."""

from __future__ import annotations

import contextlib
import re
import stat
import sys
from itertools import count
from pathlib import Path
from typing import BinaryIO

from heatbath._internal.atomic_write import is_leftover, write

SETTINGS, RUN, SEARCH = "settings.toml", "run.nc", "search"  # SEARCH is the folder of a search's state
TABLE = "table"  # a copy of the data from the standard input or another pipe
LONGEST_NAME = 80  # letters


def open_pipe(data: object) -> contextlib.AbstractContextManager[BinaryIO] | None:
    """Open the standard input or another pipe if `data` names one, and return None otherwise.

    A pipe can be read only once, so the caller must copy its data.

    Parameters
    ----------
    data
        Value of the setting `data`: "-" for the standard input, a path, or None.
    """
    if data == "-":
        return contextlib.nullcontext(sys.stdin.buffer)
    try:
        path = Path(str(data)).expanduser()
        is_pipe = stat.S_ISFIFO(path.stat().st_mode)
        return path.open("rb") if is_pipe else None
    except OSError:
        return None  # reading the file reports the error later


def check_free(out: Path | None) -> None:
    """Raise FileExistsError for a folder that isn't empty, apart from leftovers of interrupted writes."""
    if out is None or not out.is_dir():
        return
    if not all(is_leftover(path) for path in out.iterdir()):
        hint = f"; continue the run in it: heatbath resume {out}" if (out / SETTINGS).exists() else ""
        raise FileExistsError(f"{out} is not empty, so nothing is written to it: choose another --out{hint}")


def claim_folder(out: Path | None, name: str, settings: str) -> Path:
    """Make the folder of a new run, write its settings, and return it.

    Parameters
    ----------
    out
        The folder, which must be new or empty. None makes the first new one of runs/NAME-1, runs/NAME-2, ...
    name
        NAME in that case.
    settings
        Text of its settings file.
    """
    folder = _make_numbered_folder(name) if out is None else _make_folder(out)
    try:
        write(folder / SETTINGS, settings)
    except BaseException:
        release_folder(folder)
        raise
    return folder


def release_folder(folder: Path) -> None:
    """Remove the folder of a run that could not start; a folder with results is kept."""
    if (folder / RUN).exists():
        return
    with contextlib.suppress(OSError):
        if (folder / SEARCH).is_dir():
            (folder / SEARCH).rmdir()  # fails if it isn't empty, and then nothing is removed
        for name in (SETTINGS, TABLE):
            (folder / name).unlink(missing_ok=True)
        folder.rmdir()


def _make_folder(folder: Path) -> Path:
    """Make a folder, which may exist; an error names it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise type(error)(f"{folder} cannot be made: {error.strerror}") from None
    return folder


def _make_numbered_folder(name: str) -> Path:
    """Make the first of runs/NAME-1, runs/NAME-2, ... that doesn't exist, and return it.

    `name` is shortened, and letters that are unusual in paths become underscores.
    """
    short = re.sub(r"[^\w.-]+", "_", name)[:LONGEST_NAME]
    for number in count(1):
        folder = Path("runs") / f"{short}-{number}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError as error:
            if folder.parent.is_dir():  # only the number is taken
                continue
            raise FileExistsError("runs is not a folder: choose one with --out FOLDER") from error
        except OSError as error:
            remedy = "choose another with --out FOLDER"
            raise type(error)(f"{folder} cannot be made ({error.strerror}): {remedy}") from None
        return folder
    raise AssertionError  # `count` never ends
