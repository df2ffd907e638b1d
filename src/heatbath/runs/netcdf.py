"""NetCDF: a data set of xarray in a file of HDF5, as the specification of NetCDF-4 has it.

xarray and h5netcdf write and read the same files, in ten times the time: they look all dimensions up again
for every variable. What a checkpoint or a block costs is mostly this.
"""

from __future__ import annotations

from collections.abc import Mapping
from io import RawIOBase
from typing import IO, Any

import h5py
import numpy as np
import xarray as xr
from xarray.conventions import encode_dataset_coordinates

BARE = "This is a netCDF dimension but not a netCDF variable."  # the name of a scale that has no values
TEXT = h5py.string_dtype()
OWN = ("CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST")  # attributes of HDF5, beside those of NetCDF


def fill(file: IO[bytes] | RawIOBase, data: xr.Dataset) -> None:
    """Write a data set into an empty file: the same bytes for the same values."""
    variables, attributes = encode_dataset_coordinates(data)
    with h5py.File(file, "w", track_order=True) as out:
        _note(out.attrs, attributes)
        versions = f"version=2,hdf5={h5py.version.hdf5_version},h5py={h5py.__version__}"
        out.attrs["_NCProperties"] = np.bytes_(versions)
        scales = {
            name: out.create_dataset(str(name), (size,), ">f4", track_order=True)
            for name, size in data.sizes.items()
            if name not in variables
        }
        arrays = {name: _create(out, str(name), variable) for name, variable in variables.items()}
        for number, (name, size) in enumerate(data.sizes.items()):
            title = str(name) if name in arrays else f"{BARE}{size:10d}"
            scale = scales[name] = arrays[name] if name in arrays else scales[name]
            scale.make_scale(title)
            scale.attrs["_Netcdf4Dimid"] = np.int32(number)
        for name in (name for name in arrays if name not in scales):
            for axis, dimension in enumerate(variables[name].dims):
                h5py.h5ds.attach_scale(arrays[name].id, scales[dimension].id, axis)


def _create(out: h5py.File, name: str, variable: xr.Variable) -> h5py.Dataset:
    values, attributes = np.asarray(variable.values), dict(variable.attrs)
    if values.dtype == bool:
        values, attributes = values.astype(np.int8), attributes | {"dtype": "bool"}
    if values.dtype.kind == "U":
        values = values.astype(object)
    kind = TEXT if values.dtype == object else values.dtype
    created = out.create_dataset(name, values.shape, kind, values if values.size else None, track_order=True)
    _note(created.attrs, attributes)
    return created


def _note(notes: h5py.AttributeManager, attributes: Mapping[Any, Any]) -> None:
    """Texts are of any length, and numbers are lists, as NetCDF has them."""
    for name, value in attributes.items():
        if isinstance(value, str):
            notes.create(str(name), value, dtype=TEXT)
        else:
            notes[str(name)] = np.atleast_1d(value)


def read(source: str | IO[bytes]) -> xr.Dataset:
    """The data set in a file that `fill`, xarray or h5netcdf has written, all of it in memory."""
    with h5py.File(source, "r") as data:
        attributes = _noted(data.attrs)
        outer = str(attributes.pop("coordinates", "")).split()
        variables, coordinates = {}, set(outer)
        for name in data:
            if not isinstance(data.get(name, getlink=True), h5py.HardLink):
                raise ValueError(f"{name} is elsewhere")
            item = data[name]
            if not isinstance(item, h5py.Dataset):
                raise ValueError(f"{name} is not an array")
            if _text(item.attrs.get("NAME", "")).startswith(BARE):
                continue
            own = _noted(item.attrs)
            coordinates |= set(str(own.pop("coordinates", "")).split())
            values = item.asstr()[...].astype(str) if h5py.check_string_dtype(item.dtype) else item[...]
            if own.pop("dtype", None) == "bool":
                values = values.astype(bool)
            variables[name] = xr.Variable(_dimensions(data, name, item), values, own)
    made = xr.Dataset(variables, attrs=attributes)
    return made.set_coords([name for name in variables if name in coordinates])


def _dimensions(data: h5py.File, name: str, item: h5py.Dataset) -> tuple[str, ...]:
    """The names of the dimensions of an array: those of its scales, or its own if it is one."""
    if (scales := item.attrs.get("DIMENSION_LIST")) is not None:
        return tuple(h5py.h5r.get_name(scale[0], data.id).decode().lstrip("/") for scale in scales)
    return (name,) if item.ndim == 1 else ()


def _noted(notes: h5py.AttributeManager) -> dict[str, Any]:
    found = {}
    for name, value in notes.items():
        if name not in OWN and not name.startswith("_N"):
            single = isinstance(value, np.ndarray) and value.size == 1
            found[name] = _text(value.flat[0] if single else value)
    return found


def _text(value: Any) -> Any:
    """Text as text, and all else as it is."""
    return value.decode() if isinstance(value, bytes) else value
