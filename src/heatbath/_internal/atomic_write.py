"""Every file that is written: it is there whole or not at all, whatever happens to the writer.

The content goes into a part file beside its place, and from there to the disk; then the part file takes its
place in one step, and the folder goes to the disk, too. So a reader sees the file of before or the new one,
after a power failure as well, and on any error what was there stays. A writer that is killed leaves its part
file behind, and the next one for the same place removes it.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, TypeAlias

Content: TypeAlias = bytes | str | Callable[[IO[bytes]], object]  # or what writes it to an open file
PART = ".part"
LEFTOVER = 600  # seconds after which a part file must be from a process that was killed


def write(path: str | os.PathLike[str], content: Content) -> None:
    """Write a file, replacing one that was there; of a link, what it points to is replaced."""
    target = Path(os.path.realpath(path))
    check_place(target)
    part = target.with_name(f".{target.name}.{os.getpid()}{PART}")
    try:
        with open(part, "w+b") as file:
            _fill(file, content)
        os.replace(part, target)
        _sync_folder(target.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise failed(error, target, "written") from None
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    for old in target.parent.glob(f".{glob.escape(target.name)}.*{PART}"):
        with contextlib.suppress(OSError):
            if time.time() - old.stat().st_mtime > LEFTOVER:
                old.unlink()


def create(path: Path, content: Content) -> None:
    """Write a file that replaces no other: FileExistsError where there is one, or one is being written.

    Of several that try at once, one can open the part file, as its name is the same for all; whoever opens it
    later sees the file itself. So the part file of a writer that was killed stands in the way until removed.
    """
    check_place(path)
    part = path.with_name(f"{path.name}{PART}")
    try:
        file = open(part, "xb")  # noqa: SIM115
    except OSError as error:
        raise failed(error, path, "written") from None
    try:
        with file:
            if path.exists():
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            _fill(file, content)
        os.replace(part, path)
        _sync_folder(path.parent)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise failed(error, path, "written") from None
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def set_aside(path: Path, name: str) -> None:
    """Give a file another name in its folder, in place of what has that name."""
    os.replace(path, path.with_name(name))


def check_place(path: Path) -> None:
    """Refuse to write where there is a folder, or where there is none to write into."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: name a file in it")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path} cannot be written: there is no folder {path.parent}")


def is_leftover(path: Path) -> bool:
    """Whether a file may be what a writer that was killed has left."""
    return path.name.startswith(".") and path.suffix == PART


def failed(error: OSError, path: Path, what: str) -> OSError:
    """The same error with what could not be done in its message."""
    return type(error)(error.errno, f"{path} cannot be {what}: {error.strerror or error}")


def _fill(file: IO[bytes], content: Content) -> None:
    """Write the content, and see that it is on the disk."""
    if callable(content):
        content(file)
    else:
        file.write(content.encode() if isinstance(content, str) else content)
    file.flush()
    os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Make a replacement last through a power failure, where the system can."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
