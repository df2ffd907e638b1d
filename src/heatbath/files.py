"""Run files: NetCDF with a seal at the end, written whole or not at all.

The seal is a line of text after the last byte of the NetCDF data, where readers of NetCDF do not look: it has
the SHA-256 of all bytes before it. A file is opened only if its seal is right, so one that was truncated or
altered is never taken for a run, and never reaches the HDF5 library.
"""

from __future__ import annotations

import hashlib
import io
import os
from pathlib import Path

import numpy as np
import xarray as xr

from heatbath import writing

FORMAT = 1
SEAL = b"\nheatbath run file, sha256 of all before this line: "
SEALED = len(SEAL) + 64 + 1  # the digest in hexadecimal and a newline


def write(path: str | os.PathLike[str], data: xr.Dataset) -> None:
    """Write a data set as a sealed file, replacing one that was there; on any error what was there stays."""
    target = Path(os.path.realpath(path))  # of a link, what it points to is replaced
    check_replaceable(target)
    encoding = {name: {"_FillValue": None} for name in data.variables}
    content = data.to_netcdf(engine="h5netcdf", encoding=encoding)
    seal = SEAL + hashlib.sha256(content).hexdigest().encode() + b"\n"
    writing.write(target, lambda file: (file.write(content), file.write(seal)))


def read(path: str | os.PathLike[str]) -> xr.Dataset:
    """The data set in a sealed file."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise writing.failed(error, Path(path), "read") from None
    body, seal = memoryview(content)[:-SEALED], content[-SEALED:]
    if not seal.startswith(SEAL):
        kind = "is truncated, or damaged" if content[:8] == b"\x89HDF\r\n\x1a\n" else "is not a run file"
        raise ValueError(f"{path} {kind}: the line that ends every file saved by heatbath is missing")
    if seal[len(SEAL) : -1] != hashlib.sha256(body).hexdigest().encode():
        raise ValueError(f"{path} is damaged: its checksum is wrong; take another copy of it")
    try:
        with xr.open_dataset(io.BytesIO(content), engine="h5netcdf", decode_times=False) as data:
            loaded = data.load()
    except Exception as error:  # HDF5 and xarray raise many kinds
        raise ValueError(f"{path} cannot be read as NetCDF: {type(error).__name__}: {error}") from error
    made, version = (loaded.attrs.get(f"heatbath_{name}") for name in ("format", "version"))
    if not isinstance(made, (int, np.integer)):
        raise ValueError(f"{path} is not a run file: it has no number of a format")
    if made > FORMAT:
        raise ValueError(
            f"{path} was written by heatbath {version} in format {made}, and this version reads up to format "
            f"{FORMAT}: update heatbath"
        )
    return loaded


def check_replaceable(path: Path) -> None:
    """Refuse to write where there is something that is not a run file, or no folder."""
    writing.check_place(path)
    if path.exists():
        try:
            with open(path, "rb") as file:
                file.seek(0, os.SEEK_END)
                file.seek(max(0, file.tell() - SEALED))
                sealed = file.read().startswith(SEAL)
        except OSError as error:
            raise writing.failed(error, path, "read") from None
        if not sealed:
            raise FileExistsError(f"{path} is not a run file, so it is left alone: choose another name")
