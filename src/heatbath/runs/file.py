"""Read and write run files: NetCDF with a seal at the end, written completely or not at all.

A file holds a run's data, its plan as text, the versions that made it, and the user's arrays. The seal is a
line of text after the last byte of the NetCDF data, where readers of NetCDF do not look: it has the SHA-256
of all bytes before it. A file is opened only if its seal is right, so one that was truncated or altered is
never taken for a run, and never reaches the HDF5 library.

A data set is packed when it has everything of a run, with the texts in its attributes.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import re
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeAlias

import h5py
import numpy as np
import xarray as xr
from numpy.typing import NDArray

from heatbath._internal import atomic_write
from heatbath.datasets import Problem
from heatbath.runs import netcdf, serialise
from heatbath.runs.dataset import check_data, check_memory
from heatbath.runs.plan import Plan

Source: TypeAlias = bytes | str | os.PathLike[str]

FORMAT = 3
LANES = 3  # the format from which on chains are computed as they are now: before, sums had another order
FORMER = {"repeats": "chains", "epochs": "shuffled"}  # names of settings in format 1, and the present ones
HDF5 = b"\x89HDF\r\n\x1a\n"  # how every file of HDF5 begins
SEAL = b"\nheatbath run file, sha256 of all before this line: "
SEALED = len(SEAL) + 64 + 1  # bytes of a seal, with the digest in hexadecimal and a newline
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


class Unpacked(NamedTuple):
    """A run that was read: the fields of `Run`, in their order."""

    plan: Plan
    step: int
    data: xr.Dataset
    former: str


class BlockArrays(NamedTuple):
    """Some results of a block by name, and its description as text."""

    arrays: dict[str, NDArray[Any]]
    about: str


# Runs as data sets


def pack(plan: Plan, step: int, data: xr.Dataset, former: str = "") -> xr.Dataset:
    """Return everything that a run file holds as one data set: results, settings and the user's own arrays.

    Parameters
    ----------
    plan, step
        The plan of the run, and the step at which it stands.
    data
        The results; an empty data set for the plan alone.
    former
        The version that began the run, if it rounded otherwise; else "".

    Returns
    -------
    Dataset
        The results and arrays, with settings and versions as text in its attributes. `unpack` is the inverse.
    """
    arrays = {"start": plan.start, "X_average": plan.average}
    if plan.plain["problem"]["recipe"] is None:  # the data cannot be made again, so the file holds them
        arrays |= {name: getattr(plan.problem, name) for name in (*serialise.ARRAYS, *serialise.WEIGHTS)}
    variables = {name: (ARRAYS[name], array) for name, array in arrays.items() if array is not None}

    packages = {package: version(package) for package in ("heatbath", "numpy", "numba", "xarray")}
    attributes = {
        "title": f"{plan.problem.name}, {plan.total} chains, {step} of {plan.steps} steps",
        "heatbath_format": FORMAT,
        "heatbath_version": packages["heatbath"],
        "step": step,
        "settings": _as_text(plan.plain),
        "versions": json.dumps({"python": platform.python_version(), **packages}),
    }
    if former:
        attributes["begun_by"] = former
    return in_order(data.assign(variables)).assign_attrs(attributes)


def _as_text(plain: dict[str, Any]) -> str:
    """Return plain values as JSON with one entry in each line, but every list of numbers in a single line."""
    text = json.dumps(plain, indent=1, allow_nan=False)
    return re.sub(r"\[\s+([-+.\deE,\s]*?)\s+\]", lambda numbers: f"[{' '.join(numbers[1].split())}]", text)


def unpack(path: str | os.PathLike[str], packed: xr.Dataset, problem: Problem | None) -> Unpacked:
    """Return the run in a data set that `pack` made, checked against its plan.

    Parameters
    ----------
    path
        The name of the file, for error messages.
    packed
        The data set.
    problem
        The training data; None to make them by the recipe in the file, or take them from it.

    Raises
    ------
    ValueError
        If this is no run, or one whose results do not fit its plan.
    OSError, MemoryError
        If the training data cannot be read, or the run does not fit in memory.
    """
    try:
        plan, data = unpack_plan(packed, problem)
        step = int(packed.attrs["step"])
        former = str(packed.attrs.get("begun_by", ""))
        if packed.attrs["heatbath_format"] < LANES and step > 0:
            former = str(packed.attrs["heatbath_version"])  # it rounded otherwise

        if not 0 <= step <= plan.steps:
            raise ValueError(f"it stands at step {step} of {plan.steps}")
        check_memory(plan, 1)
        check_data(plan, step, data)
    except OSError as error:
        raise type(error)(f"{path}: its data cannot be had ({error}): pass problem=") from None
    except MemoryError as error:
        raise MemoryError(f"{path}: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} is not a run that can be read: {error}") from error
    return Unpacked(plan, step, data, former)


def unpack_plan(packed: xr.Dataset, problem: Problem | None) -> tuple[Plan, xr.Dataset]:
    """Return the plan in a data set that `pack` made, and the data set without the arrays of the plan."""
    settings = json.loads(packed.attrs["settings"])
    if packed.attrs["heatbath_format"] == 1:
        settings = {FORMER.get(name, name): value for name, value in settings.items()}
    arrays = {name: packed[name].values for name in ARRAYS if name in packed}
    return Plan.from_plain(settings, arrays, problem), without_attributes(packed.drop_vars(arrays))


def plan_pieces(plan: Plan) -> list[xr.Dataset]:
    """Return a packed plan in two pieces, so that plans with the same data can share the second.

    The second has the user's own data and the inputs to average at, and is left out if there are none; the
    first has everything else. `unpack_plan` takes the first with the variables of the second.
    """
    packed = pack(plan, 0, xr.Dataset())
    large = [name for name in (*serialise.ARRAYS, *serialise.WEIGHTS, "X_average") if name in packed]
    if not large:
        return [packed]
    data = without_attributes(packed[large]).assign_attrs(heatbath_format=FORMAT)
    return [packed.drop_vars(large), data]


def with_average(packed: xr.Dataset, plan: Plan) -> xr.Dataset:
    """Return the first piece of a plan with the inputs to average at of another plan with the same data."""
    if plan.average is None:
        return packed
    return packed.assign(X_average=(ARRAYS["X_average"], plan.average))


def without_attributes(data: xr.Dataset) -> xr.Dataset:
    """Return a data set without attributes; xarray's `drop_attrs` would copy all arrays."""
    copy = data.copy(deep=False)
    copy.attrs = {}
    for values in copy.variables.values():
        values.attrs = {}
    return copy


def in_order(data: xr.Dataset) -> xr.Dataset:
    """Return a data set with its variables sorted and texts as objects.

    The same data then make the same bytes, whether they have been in a file before or not.
    """

    def sorted_variables(names: Iterable[Hashable]) -> dict[Hashable, tuple[Any, NDArray[Any]]]:
        variables = {}
        for name in sorted(names, key=str):
            array = data[name].values
            if array.dtype.kind == "U":
                array = array.astype(object)
            variables[name] = data[name].dims, array
        return variables

    return xr.Dataset(sorted_variables(data.data_vars), sorted_variables(data.coords))


# Writing


def write(path: str | os.PathLike[str], data: xr.Dataset) -> None:
    """Write a data set as a sealed file, which replaces an earlier one; on any error that one stays.

    The file is not held in memory.
    """
    target = Path(os.path.realpath(path))  # of a link, what it points to is replaced
    check_replaceable(target)
    atomic_write.write(target, lambda file: _fill(file, data))


def sealed(data: xr.Dataset) -> bytes:
    """Return the bytes of a sealed file with a data set."""
    content = io.BytesIO()
    _fill(content, data)
    return content.getvalue()


def _fill(file: IO[bytes], data: xr.Dataset) -> None:
    """Write a data set and its seal into an empty file."""
    wrapper = ErrorKeepingFile(file)
    netcdf.fill(wrapper, data)
    if wrapper.error is not None:
        raise wrapper.error
    end = file.seek(0, os.SEEK_END)
    seal = SEAL + _digest(file, end) + b"\n"
    file.seek(end)
    file.write(seal)


class ErrorKeepingFile(io.RawIOBase):
    """A file for HDF5, which crashes if a method of a file raises.

    The first error is kept in `error`; from then on nothing is written, and every call seems to succeed.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.position = 0
        self.end = 0
        self.error: BaseException | None = None

    def _try(self, action: Callable[[], object]) -> None:
        """Carry out an action at the present position, unless there was an error before; keep its error."""
        if self.error is None:
            try:
                self.file.seek(self.position)
                action()
            except BaseException as error:  # Ctrl-C, too
                self.error = error

    def write(self, content: Any) -> int:
        """Write bytes at the present position, and return their number."""
        self._try(lambda: self.file.write(content))
        size = memoryview(content).nbytes
        self.position += size
        self.end = max(self.end, self.position)
        return size

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer from the present position, and return its length."""
        self._try(lambda: self.file.readinto(buffer))  # type: ignore[attr-defined]
        self.position += len(buffer)
        return len(buffer)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Set the position relative to the start, the present position or the end, and return it."""
        origin = {os.SEEK_SET: 0, os.SEEK_CUR: self.position, os.SEEK_END: self.end}[whence]
        self.position = offset + origin
        return self.position

    def tell(self) -> int:
        """Return the position."""
        return self.position

    def truncate(self, size: int | None = None) -> int:
        """Cut the file to a size, or at the present position, and return it."""
        self.end = self.position if size is None else size
        self._try(lambda: self.file.truncate(self.end))
        return self.end

    def flush(self) -> None:
        """Write what the file has buffered."""
        self._try(self.file.flush)


def check_replaceable(path: Path) -> None:
    """Raise unless a run file may be written to this path.

    Its folder must exist, and a file at the path must be a run file, which ends in a seal: see `SEAL`.
    """
    atomic_write.check_place(path)
    if not path.exists():
        return
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - SEALED))
            has_seal = file.read().startswith(SEAL)
    except OSError as error:
        raise atomic_write.failed(error, path, "read") from None
    if not has_seal:
        raise FileExistsError(f"{path} is not a run file, so it is left alone: choose another name")


# Reading


def read(source: Source, name: object = "") -> xr.Dataset:
    """Return the data set in a sealed file, given by its path or its bytes.

    `name` is what errors call bytes.
    """
    with _seal_checked(source, name) as (content, label):
        return _data_set(content, label)


def read_arrays(source: Source, names: Collection[str], name: object = "") -> BlockArrays:
    """Return some arrays of a block in a sealed file, and its description: much faster than `read`.

    `name` is what errors call the file, if it is given by its bytes.
    """
    with _seal_checked(source, name) as (content, label):
        try:
            with h5py.File(content, "r") as data:
                return BlockArrays({key: data[key][...] for key in names}, str(data.attrs["block"]))
        except Exception as error:  # HDF5 raises many kinds
            raise ValueError(f"{label} is not a block of a run: {type(error).__name__}: {error}") from error


@contextmanager
def _seal_checked(source: Source, name: object) -> Iterator[tuple[str | IO[bytes], object]]:
    """Yield what HDF5 can open and what errors call it, or raise if the seal of the file is wrong."""
    if isinstance(source, bytes):
        check_seal(io.BytesIO(source), name)
        yield io.BytesIO(source), name
        return
    try:
        with open(source, "rb") as file:
            check_seal(file, source)
            yield os.path.realpath(source), source  # a path, since HDF5 copies what it reads through a file
    except OSError as error:
        raise atomic_write.failed(error, Path(source), "read") from None


def check_seal(file: IO[bytes], name: object) -> None:
    """Raise ValueError if the seal of a file is missing or wrong; `name` is what the error calls it."""
    end = max(0, file.seek(0, os.SEEK_END) - SEALED)
    file.seek(end)
    seal = file.read()
    if not seal.startswith(SEAL):
        file.seek(0)
        problem = "is truncated, or damaged" if file.read(len(HDF5)) == HDF5 else "is not a run file"
        raise ValueError(f"{name} {problem}: the line that ends every file saved by heatbath is missing")
    if seal[len(SEAL) : -1] != _digest(file, end):
        raise ValueError(f"{name} is damaged: its checksum is wrong; take another copy of it")


def _digest(file: IO[bytes], end: int) -> bytes:
    """Return the SHA-256 of the first `end` bytes of a file, in hexadecimal."""
    digest = hashlib.sha256()
    file.seek(0)
    while piece := file.read(min(PIECE, end - file.tell())):
        digest.update(piece)
    return digest.hexdigest().encode()


def _data_set(source: str | IO[bytes], name: object) -> xr.Dataset:
    """Return the data set in a NetCDF file of this format or an earlier one.

    Parameters
    ----------
    source
        The path of the file, or the open file.
    name
        What error messages call it.

    Raises
    ------
    ValueError
        If this is no NetCDF, has no number of a format, or was written in a later format.
    """
    try:
        data = netcdf.read(source)
    except Exception as error:  # HDF5 raises many kinds
        raise ValueError(f"{name} cannot be read as NetCDF: {type(error).__name__}: {error}") from error

    number = data.attrs.get("heatbath_format")
    if not isinstance(number, (int, np.integer)):
        raise ValueError(f"{name} is not a run file: its format has no number")
    if number > FORMAT:
        raise ValueError(
            f"{name} was written by heatbath {data.attrs.get('heatbath_version')} in format {number}, and "
            f"this version reads up to format {FORMAT}: update heatbath"
        )
    return data
