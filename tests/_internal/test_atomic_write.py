"""Files that are there whole or not at all."""

import ast
import errno
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from heatbath._internal import atomic_write

SOURCE = Path(atomic_write.__file__).parents[1]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("content", [b"new \xff", "new ü", lambda file: file.write(b"new")])
def test_a_file_is_replaced_by_the_content_and_nothing_else_is_left(content, tmp_path):
    path = tmp_path / "a file.txt"
    path.write_bytes(b"what was there before, and is longer")
    atomic_write.write(path, content)
    wanted = {bytes: b"new \xff", str: "new ü".encode()}.get(type(content), b"new")
    assert path.read_bytes() == wanted
    assert names(tmp_path) == ["a file.txt"]


def test_the_content_is_on_the_disk_before_the_file_takes_its_place_and_then_the_folder(
    tmp_path, monkeypatch
):
    calls, sync, replace = [], os.fsync, os.replace

    def synced(handle):
        calls.append("folder" if os.path.isdir(f"/proc/self/fd/{handle}") else os.fstat(handle).st_size)
        sync(handle)

    def replaced(source, target):
        assert Path(source).parent == Path(target).parent  # else it would not be one step
        calls.append("replaced")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    atomic_write.write(tmp_path / "x", b"12345")
    atomic_write.create(tmp_path / "y", b"123")
    assert calls == [5, "replaced", "folder", 3, "replaced", "folder"]


@pytest.mark.parametrize("place", ["fsync", "replace"])
@pytest.mark.parametrize("function", [atomic_write.write, atomic_write.create])
def test_a_disk_that_is_full_leaves_what_was_there_and_the_error_names_the_file(
    function, place, tmp_path, monkeypatch
):
    path = tmp_path / "x"
    if function is atomic_write.write:
        path.write_bytes(b"before")
    before = names(tmp_path)

    def full(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, place, full)
    with pytest.raises(OSError, match=f"{path} cannot be written: No space left on device") as caught:
        function(path, b"new")
    assert caught.value.errno == errno.ENOSPC
    assert names(tmp_path) == before
    assert not before or path.read_bytes() == b"before"


@pytest.mark.parametrize("function", [atomic_write.write, atomic_write.create])
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_content_that_cannot_be_made_leaves_nothing(function, error, tmp_path):
    def fails(file):
        file.write(b"half")
        raise error

    with pytest.raises(error):
        function(tmp_path / "x", fails)
    assert names(tmp_path) == []


KILLED = """
import os, signal, sys
from pathlib import Path
from heatbath._internal import atomic_write

def content(file):
    file.write(b"half")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)

getattr(atomic_write, sys.argv[1])(Path(sys.argv[2]), content)
"""


@pytest.mark.parametrize("function", ["write", "create"])
def test_a_writer_that_is_killed_leaves_what_was_there_and_its_part_file(function, tmp_path):
    path = tmp_path / "x"
    if function == "write":
        path.write_bytes(b"before")
    done = subprocess.run([sys.executable, "-c", KILLED, function, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert not path.exists() if function == "create" else path.read_bytes() == b"before"
    (part,) = tmp_path.glob("*x*.part")
    assert part.read_bytes() == b"half"
    assert atomic_write.is_leftover(part) == (function == "write")
    if function == "create":
        with pytest.raises(FileExistsError, match=f"{path} cannot be written: File exists"):
            atomic_write.create(path, b"new")
        part.unlink()
    getattr(atomic_write, function)(path, b"new")
    assert path.read_bytes() == b"new"


def test_leftovers_of_the_same_file_go_when_they_are_old_and_others_stay(tmp_path):
    path = tmp_path / "x[1].nc"
    old, young, other = (tmp_path / name for name in (".x[1].nc.1.part", ".x[1].nc.2.part", ".x1.nc.3.part"))
    for part in (old, young, other):
        part.write_bytes(b"half")
    for part in (old, other):
        os.utime(part, (time.time() - 3600,) * 2)
    atomic_write.write(path, b"new")
    assert names(tmp_path) == sorted([path.name, young.name, other.name])


def test_of_a_link_what_it_points_to_is_replaced(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "x").write_bytes(b"before")
    (tmp_path / "link").symlink_to(tmp_path / "real" / "x")
    atomic_write.write(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "x").read_bytes() == b"new"
    assert names(tmp_path / "real") == ["x"]


@pytest.mark.parametrize("function", [atomic_write.write, atomic_write.create])
def test_a_folder_and_a_place_without_one_are_refused(function, tmp_path):
    with pytest.raises(IsADirectoryError, match=f"{tmp_path} is a folder: choose a file in it"):
        function(tmp_path, b"new")
    with pytest.raises(FileNotFoundError, match=f"there is no folder {tmp_path / 'nowhere'}"):
        function(tmp_path / "nowhere" / "x", b"new")


UNWRITABLE = """
import os, sys
from pathlib import Path
from heatbath._internal import atomic_write

folder = Path(sys.argv[1])
os.chmod(folder, 0o555)
if os.geteuid() == 0:
    os.seteuid(65534)
for function in (atomic_write.write, atomic_write.create):
    try:
        function(folder / "x", b"new")
    except PermissionError as error:
        print(error.strerror)
"""


def test_a_folder_that_may_not_be_written_is_an_error_that_names_the_file():
    """Root may write anywhere, so a process of its own becomes nobody first."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", UNWRITABLE, folder]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        message = f"{os.path.join(folder, 'x')} cannot be written: Permission denied"
        assert done.stdout.splitlines() == [message, message], done.stderr
        assert os.listdir(folder) == []


def test_a_file_that_is_there_is_not_created_again(tmp_path):
    atomic_write.create(tmp_path / "x", b"first")
    with pytest.raises(FileExistsError, match="cannot be written: File exists"):
        atomic_write.create(tmp_path / "x", b"second")
    assert (tmp_path / "x").read_bytes() == b"first"
    assert names(tmp_path) == ["x"]


def test_a_file_is_set_aside_over_what_has_the_name(tmp_path):
    (tmp_path / "x").write_bytes(b"damaged")
    (tmp_path / "aside").write_bytes(b"of before")
    atomic_write.set_aside(tmp_path / "x", "aside")
    assert names(tmp_path) == ["aside"]
    assert (tmp_path / "aside").read_bytes() == b"damaged"


def test_no_other_module_puts_files_in_place_or_writes_them_in_place():
    found = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            call = node.attr if isinstance(node, ast.Attribute) else ""
            on_os = call and isinstance(node.value, ast.Name) and node.value.id == "os"
            if (on_os and call in ("replace", "rename")) or call in ("write_text", "write_bytes"):
                found.add(path.relative_to(SOURCE).as_posix())
    assert found == {"_internal/atomic_write.py"}
