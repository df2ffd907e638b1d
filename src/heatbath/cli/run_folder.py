"""The folder of a run: settings.toml, run.nc, of a search its state, the summary and the figures;
and data that came from the standard input."""

from __future__ import annotations

import contextlib
import re
import stat
import sys
from itertools import count
from pathlib import Path
from typing import BinaryIO

from heatbath._internal.atomic_write import is_leftover, write

SETTINGS, RUN, SEARCH = "settings.toml", "run.nc", "search"
TABLE = "table"  # what came from the standard input, as it came


def stream_of(data: object) -> contextlib.AbstractContextManager[BinaryIO] | None:
    """The standard input, or another pipe, where data are from one; None where they are in a file, which can
    be read again."""
    if data == "-":
        return contextlib.nullcontext(sys.stdin.buffer)
    try:
        path = Path(str(data)).expanduser()
        return path.open("rb") if stat.S_ISFIFO(path.stat().st_mode) else None
    except OSError:
        return None  # of which more is said when it is read


def check_free(out: Path | None) -> None:
    """Refuse a folder that holds something."""
    if out is not None and out.is_dir() and any(not is_leftover(path) for path in out.iterdir()):
        hint = f"; continue the run in it: heatbath resume {out}" if (out / SETTINGS).exists() else ""
        raise FileExistsError(f"{out} is not empty, so it is left alone: choose another --out{hint}")


def claim_folder(out: Path | None, name: str, settings: str) -> Path:
    """A folder for a new run, with its settings: `out`, which must be empty or new, or a new runs/NAME-N."""
    folder = _named(out) if out is not None else _numbered(name)
    try:
        write(folder / SETTINGS, settings)
    except BaseException:
        release_folder(folder)
        raise
    return folder


def release_folder(folder: Path) -> None:
    """Remove the folder of a run that could not begin."""
    if not (folder / RUN).exists():
        with contextlib.suppress(OSError):
            if (folder / SEARCH).is_dir():
                (folder / SEARCH).rmdir()  # an error, and the end, where there is something in it
            for name in (SETTINGS, TABLE):
                (folder / name).unlink(missing_ok=True)
            folder.rmdir()


def _named(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise type(error)(f"{folder} cannot be made: {error.strerror}") from None
    return folder


def _numbered(name: str) -> Path:
    """The first of runs/NAME-1, runs/NAME-2, ... that is not there yet."""
    short = re.sub(r"[^\w.-]+", "_", name)[:80]
    for number in count(1):
        folder = Path("runs") / f"{short}-{number}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError as error:
            if folder.parent.is_dir():
                continue
            raise FileExistsError("runs is not a folder: say --out FOLDER") from error
        except OSError as error:
            raise type(error)(f"{folder} cannot be made ({error.strerror}): say --out FOLDER") from None
        return folder
    raise AssertionError
