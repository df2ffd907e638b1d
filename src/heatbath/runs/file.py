"""Run files: NetCDF with a seal at the end, written whole or not at all; and what is in them.

A file holds a run's data, its plan as text, the versions that made it, and the user's arrays. The seal is a
line of text after the last byte of the NetCDF data, where readers of NetCDF do not look: it has the SHA-256
of all bytes before it. A file is opened only if its seal is right, so one that was truncated or altered is
never taken for a run, and never reaches the HDF5 library.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import re
from collections.abc import Callable, Collection, Hashable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

import h5py
import numpy as np
import xarray as xr

from heatbath._internal import atomic_write
from heatbath.datasets import Problem
from heatbath.runs import netcdf, serialise
from heatbath.runs.dataset import check, check_memory
from heatbath.runs.plan import Plan

FORMAT = 3
LANES = 3  # the format from which on chains are computed as they are now: before, sums had another order
FORMER = {"repeats": "chains", "epochs": "shuffled"}  # what settings were called in format 1
SEAL = b"\nheatbath run file, sha256 of all before this line: "
SEALED = len(SEAL) + 64 + 1  # the digest in hexadecimal and a newline
PIECE = 2**20  # bytes that are read at a time for a checksum
ARRAYS = {
    "X_train": ("set", "training", "feature"),
    "Y_train": ("set", "training", "target"),
    "X_test": ("set", "testing", "feature"),
    "Y_test": ("set", "testing", "target"),
    "shift": ("feature",),
    "scale": ("feature",),
    "target_shift": ("target",),
    "target_scale": ("target",),
    "weights_train": ("set", "training"),
    "weights_test": ("set", "testing"),
    "start": ("chain", "parameter"),
    "X_average": ("point", "feature"),
}  # of the user, and their dimensions


def pack(plan: Plan, step: int, data: xr.Dataset, former: str = "") -> xr.Dataset:
    """A run as one data set, with all that is text in its attributes; `former` began it, if that is said.

    With no data it is the plan alone.
    """
    arrays = {"start": plan.start, "X_average": plan.average}
    if plan.plain["problem"]["recipe"] is None:
        arrays |= {name: getattr(plan.problem, name) for name in (*serialise.ARRAYS, *serialise.WEIGHTS)}
    packages = {name: version(name) for name in ("heatbath", "numpy", "numba", "xarray")}
    text = json.dumps(plan.plain, indent=1, allow_nan=False)  # a line for each, lists of numbers on one line
    text = re.sub(r"\[\s+([-+.\deE,\s]*?)\s+\]", lambda found: f"[{' '.join(found[1].split())}]", text)
    attributes = {
        "title": f"{plan.problem.name}, {plan.total} chains, {step} of {plan.steps} steps",
        "heatbath_format": FORMAT,
        "heatbath_version": packages["heatbath"],
        "step": step,
        "settings": text,
        "versions": json.dumps({"python": platform.python_version(), **packages}),
    } | ({"begun_by": former} if former else {})
    named = {name: (ARRAYS[name], values) for name, values in arrays.items() if values is not None}
    return in_order(data.assign(named)).assign_attrs(attributes)


def unpack(
    path: str | os.PathLike[str], packed: xr.Dataset, problem: Problem | None
) -> tuple[Plan, int, xr.Dataset, str]:
    """The plan, the step, the data and the former version in a data set that `pack` made; `problem` in place
    of the recipe."""
    try:
        plan, data = unpack_plan(packed, problem)
        step = int(packed.attrs["step"])
        former = str(packed.attrs.get("begun_by", ""))
        if packed.attrs["heatbath_format"] < LANES and step > 0:
            former = str(packed.attrs["heatbath_version"])
        if not 0 <= step <= plan.steps:
            raise ValueError(f"it stands at step {step} of {plan.steps}")
        check_memory(plan, 1)
        check(plan, step, data)
    except OSError as error:
        raise type(error)(f"{path}: its data cannot be had ({error}): pass problem=") from None
    except MemoryError as error:
        raise MemoryError(f"{path}: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} is not a run that can be read: {error}") from error
    return plan, step, data, former


def unpack_plan(packed: xr.Dataset, problem: Problem | None) -> tuple[Plan, xr.Dataset]:
    """The plan in a data set that `pack` made, and what is left of it, the data."""
    settings = json.loads(packed.attrs["settings"])
    if packed.attrs["heatbath_format"] == 1:
        settings = {FORMER.get(name, name): value for name, value in settings.items()}
    arrays = {name: packed[name].values for name in ARRAYS if name in packed}
    return Plan.from_plain(settings, arrays, problem), bare(packed.drop_vars(arrays))


def pieces(plan: Plan) -> list[xr.Dataset]:
    """A plan as `pack` makes it, in two pieces: one without the user's own data and the inputs to average at
    and, if there are any, these. `unpack_plan` takes the first with the variables of the second."""
    packed = pack(plan, 0, xr.Dataset())
    own = [name for name in (*serialise.ARRAYS, *serialise.WEIGHTS, "X_average") if name in packed]
    return [packed.drop_vars(own), *([bare(packed[own]).assign_attrs(heatbath_format=FORMAT)] if own else [])]


def with_average(packed: xr.Dataset, like: Plan) -> xr.Dataset:
    """The first of two pieces with the inputs to average at of a plan whose second piece is the same."""
    return packed if like.average is None else packed.assign(X_average=(ARRAYS["X_average"], like.average))


def bare(data: xr.Dataset) -> xr.Dataset:
    """The same without attributes; `drop_attrs` of xarray copies all arrays."""
    copy = data.copy(deep=False)
    copy.attrs = {}
    for values in copy.variables.values():
        values.attrs = {}
    return copy


def write(path: str | os.PathLike[str], data: xr.Dataset) -> None:
    """Write a data set as a sealed file, replacing one that was there; on any error what was there stays.

    The file is not held in memory.
    """
    target = Path(os.path.realpath(path))  # of a link, what it points to is replaced
    check_replaceable(target)
    atomic_write.write(target, lambda file: _fill(file, data))


def sealed(data: xr.Dataset) -> bytes:
    """The bytes of a data set in a sealed file."""
    content = io.BytesIO()
    _fill(content, data)
    return content.getvalue()


def _fill(file: IO[bytes], data: xr.Dataset) -> None:
    """Write a data set and its seal into an empty file."""
    patient = Patient(file)
    netcdf.fill(patient, data)
    if patient.error is not None:
        raise patient.error
    end = file.seek(0, os.SEEK_END)
    seal = SEAL + _digest(file, end) + b"\n"
    file.seek(end)
    file.write(seal)


class Patient(io.RawIOBase):
    """A file for HDF5, which crashes where one raises: the first error is kept for later, and what comes
    after it is only taken for written."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.place, self.end = file, 0, 0
        self.error: BaseException | None = None

    def _try(self, action: Callable[[], object]) -> None:
        """Do something at the place, unless something went wrong before."""
        if self.error is None:
            try:
                self.file.seek(self.place)
                action()
            except BaseException as error:  # Ctrl-C, too
                self.error = error

    def write(self, content: Any) -> int:
        """Write."""
        self._try(lambda: self.file.write(content))
        size = memoryview(content).nbytes
        self.place += size
        self.end = max(self.end, self.place)
        return size

    def readinto(self, buffer: Any) -> int:
        """Read."""
        self._try(lambda: self.file.readinto(buffer))  # type: ignore[attr-defined]
        self.place += len(buffer)
        return len(buffer)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a place."""
        self.place = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self.place, os.SEEK_END: self.end}[whence]
        return self.place

    def tell(self) -> int:
        """The place."""
        return self.place

    def truncate(self, size: int | None = None) -> int:
        """Be so long."""
        self.end = self.place if size is None else size
        self._try(lambda: self.file.truncate(self.end))
        return self.end

    def flush(self) -> None:
        """Write what is left."""
        self._try(self.file.flush)


def _digest(file: IO[bytes], end: int) -> bytes:
    """The SHA-256 of what a file has before `end`, in hexadecimal."""
    found = hashlib.sha256()
    file.seek(0)
    while piece := file.read(min(PIECE, end - file.tell())):
        found.update(piece)
    return found.hexdigest().encode()


def read(path: str | os.PathLike[str]) -> xr.Dataset:
    """The data set in a sealed file."""
    with _checked(path):  # by its path, since HDF5 copies what it reads through a file object
        return _loaded(os.path.realpath(path), path)


@contextmanager
def _checked(path: str | os.PathLike[str]) -> Iterator[None]:
    """Refuse a file that cannot be read or whose seal is not right."""
    try:
        with open(path, "rb") as file:
            check_seal(file, path)
            yield
    except OSError as error:
        raise atomic_write.failed(error, Path(path), "read") from None


def read_arrays(path: str | os.PathLike[str], names: Collection[str]) -> tuple[dict[str, Any], str]:
    """Some arrays of a block in a sealed file, and what it says of itself: much faster than `read`."""
    with _checked(path):
        return _arrays(os.path.realpath(path), path, names)


def opened_arrays(content: bytes, path: object, names: Collection[str]) -> tuple[dict[str, Any], str]:
    """Those in the bytes of a sealed file."""
    check_seal(io.BytesIO(content), path)
    return _arrays(io.BytesIO(content), path, names)


def _arrays(source: str | IO[bytes], path: object, names: Collection[str]) -> tuple[dict[str, Any], str]:
    try:
        with h5py.File(source, "r") as data:
            return {name: data[name][...] for name in names}, str(data.attrs["block"])
    except Exception as error:  # of many kinds
        raise ValueError(f"{path} is not a block of a run: {type(error).__name__}: {error}") from error


def opened(content: bytes, path: object) -> xr.Dataset:
    """The data set in the bytes of a sealed file; `path` is what errors call it."""
    check_seal(io.BytesIO(content), path)
    return _loaded(io.BytesIO(content), path)


def _loaded(source: str | IO[bytes], path: object) -> xr.Dataset:
    try:
        loaded = netcdf.read(source)
    except Exception as error:  # HDF5 raises many kinds
        raise ValueError(f"{path} cannot be read as NetCDF: {type(error).__name__}: {error}") from error
    number, writer = (loaded.attrs.get(f"heatbath_{name}") for name in ("format", "version"))
    if not isinstance(number, (int, np.integer)):
        raise ValueError(f"{path} is not a run file: it has no number of a format")
    if number > FORMAT:
        raise ValueError(
            f"{path} was written by heatbath {writer} in format {number}, and this version reads up to "
            f"format {FORMAT}: update heatbath"
        )
    return loaded


def check_seal(file: IO[bytes], path: object) -> None:
    """Refuse a file whose seal is not right."""
    end = max(0, file.seek(0, os.SEEK_END) - SEALED)
    file.seek(end)
    seal = file.read()
    if not seal.startswith(SEAL):
        file.seek(0)
        kind = "is truncated, or damaged" if file.read(8) == b"\x89HDF\r\n\x1a\n" else "is not a run file"
        raise ValueError(f"{path} {kind}: the line that ends every file saved by heatbath is missing")
    if seal[len(SEAL) : -1] != _digest(file, end):
        raise ValueError(f"{path} is damaged: its checksum is wrong; take another copy of it")


def check_replaceable(path: Path) -> None:
    """Refuse to write where there is something that is not a run file, or no folder."""
    atomic_write.check_place(path)
    if path.exists():
        try:
            with open(path, "rb") as file:
                file.seek(0, os.SEEK_END)
                file.seek(max(0, file.tell() - SEALED))
                sealed = file.read().startswith(SEAL)
        except OSError as error:
            raise atomic_write.failed(error, path, "read") from None
        if not sealed:
            raise FileExistsError(f"{path} is not a run file, so it is left alone: choose another name")


def in_order(data: xr.Dataset) -> xr.Dataset:
    """The same in an order and with types that do not depend on whether it has been in a file before."""

    def values(name: Hashable) -> tuple[tuple[Hashable, ...], Any]:
        array = data[name].values
        return data[name].dims, array.astype(object) if array.dtype.kind == "U" else array

    variables, coordinates = sorted(data.data_vars, key=str), sorted(data.coords, key=str)
    return xr.Dataset(*({name: values(name) for name in names} for names in (variables, coordinates)))
