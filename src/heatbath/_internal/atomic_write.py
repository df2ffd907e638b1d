"""Write files completely or not at all, whatever happens to the writer.

The content is written to a part file in the same folder and flushed to the disk. Then the part file replaces
the target in one step, and the folder is flushed, too. So a reader sees either the old or the new file, even
after a power failure, and an error leaves the old file in place. A writer that is killed leaves its part file
behind, and the next writer of the same file removes it.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TypeAlias

Content: TypeAlias = bytes | str | Callable[[IO[bytes]], object]  # or a function that writes it to a file
PART = ".part"
LEFTOVER = 600  # seconds after which a part file belongs to a process that was killed


def write(path: str | os.PathLike[str], content: Content) -> None:
    """Write a file, and replace an existing one.

    Parameters
    ----------
    path : path
        The file. If it is a link, its target is replaced.
    content : bytes, str or callable
        The content, or a function that writes it to an open binary file.

    Raises
    ------
    OSError
        If it cannot be written; the message says why.
    """
    target = Path(os.path.realpath(path))
    check_place(target)
    part = target.with_name(f".{target.name}.{os.getpid()}{PART}")
    with _removed_on_error(part, target):
        with open(part, "w+b") as file:
            _fill(file, content)
        _replace(target, part)

    for leftover in target.parent.glob(f".{glob.escape(target.name)}.*{PART}"):
        with contextlib.suppress(OSError):
            if time.time() - leftover.stat().st_mtime > LEFTOVER:
                leftover.unlink()


def create(path: Path, content: Content) -> None:
    """Write a new file, and raise FileExistsError if it exists or another process is writing it.

    All processes use the same name for the part file, so only one of them can create it. The part file of a
    process that was killed must be removed before the file can be written.
    """
    check_place(path)
    part = path.with_name(f"{path.name}{PART}")
    try:
        file = open(part, "xb")  # noqa: SIM115
    except OSError as error:  # the part file may be that of another process, so it stays
        raise failed(error, path, "written") from None

    with _removed_on_error(part, path):
        with file:
            if path.exists():
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            _fill(file, content)
        _replace(path, part)


@contextlib.contextmanager
def _removed_on_error(part: Path, target: Path) -> Iterator[None]:
    """Remove the part file if the block raises; an OSError then says that the target cannot be written."""
    try:
        yield
    except BaseException as error:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise failed(error, target, "written") from None
        raise


def _replace(target: Path, part: Path) -> None:
    """Replace the target by its complete part file in one step, and flush the folder to the disk."""
    os.replace(part, target)
    _sync_folder(target.parent)


def set_aside(path: Path, name: str) -> None:
    """Rename a file within its folder, and replace a file that has this name."""
    os.replace(path, path.with_name(name))


def check_place(path: Path) -> None:
    """Raise an error if a path is a folder, or its parent folder doesn't exist."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: choose a file in it")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path} cannot be written: there is no folder {path.parent}")


def is_leftover(path: Path) -> bool:
    """Return True if a file may be the part file of a process that was killed."""
    return path.name.startswith(".") and path.suffix == PART


def failed(error: OSError, path: Path, action: str) -> OSError:
    """Return an error of the same type whose message says what failed: "PATH cannot be written: ...".

    `action` is a participle such as "written".
    """
    return type(error)(error.errno, f"{path} cannot be {action}: {error.strerror or error}")


def _fill(file: IO[bytes], content: Content) -> None:
    """Write content to an open file, and flush it to the disk."""
    if callable(content):
        content(file)
    elif isinstance(content, str):
        file.write(content.encode())
    else:
        file.write(content)
    file.flush()
    os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Flush a folder to the disk, so that a replacement survives a power failure, if the system can."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
