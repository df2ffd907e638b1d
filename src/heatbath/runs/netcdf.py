"""Read and write data sets of xarray as NetCDF-4, by HDF5 directly.

xarray and h5netcdf write and read the same files, in ten times the time: they look all dimensions up again
for every variable. What a checkpoint or a block costs is mostly this.

A scale, in HDF5, is the array that stands for a dimension.
"""

from __future__ import annotations

from collections.abc import Mapping
from io import RawIOBase
from typing import IO, Any

import h5py
import numpy as np
import xarray as xr
from xarray.conventions import encode_dataset_coordinates

NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable."  # the name of a scale without values
TEXT = h5py.string_dtype()
HDF5_ATTRIBUTES = ("CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST")  # those that are not NetCDF's


def fill(file: IO[bytes] | RawIOBase, data: xr.Dataset) -> None:
    """Write a data set into an empty file as NetCDF-4: the same bytes for the same values.

    In HDF5 a dimension is a scale: the variable of its name, or else an array without values. All other
    variables refer to the scales of their dimensions.
    """
    variables, attributes = encode_dataset_coordinates(data)
    with h5py.File(file, "w", track_order=True) as out:
        _write_attributes(out.attrs, attributes)
        versions = f"version=2,hdf5={h5py.version.hdf5_version},h5py={h5py.__version__}"
        out.attrs["_NCProperties"] = np.bytes_(versions)

        empty_scales = {
            dimension: out.create_dataset(str(dimension), (size,), ">f4", track_order=True)
            for dimension, size in data.sizes.items()
            if dimension not in variables
        }
        arrays = {name: _write_array(out, str(name), variable) for name, variable in variables.items()}
        arrays_or_scales = empty_scales | arrays
        scales = {dimension: arrays_or_scales[dimension] for dimension in data.sizes}

        for number, (dimension, size) in enumerate(data.sizes.items()):
            title = str(dimension)
            if dimension in empty_scales:
                title = f"{NO_VARIABLE}{size:10d}"  # as NetCDF's own library writes it
            scales[dimension].make_scale(title)
            scales[dimension].attrs["_Netcdf4Dimid"] = np.int32(number)

        for name, array in arrays.items():
            if name in scales:
                continue
            for axis, dimension in enumerate(variables[name].dims):
                h5py.h5ds.attach_scale(array.id, scales[dimension].id, axis)


def _write_array(out: h5py.File, name: str, variable: xr.Variable) -> h5py.Dataset:
    """Write a variable as an array of HDF5 with attributes, and return that array.

    NetCDF has no bool, so xarray's convention is followed: int8 with an attribute. Texts may have any length.
    """
    values = np.asarray(variable.values)
    attributes = dict(variable.attrs)
    if values.dtype == bool:
        values = values.astype(np.int8)
        attributes["dtype"] = "bool"
    if values.dtype.kind == "U":
        values = values.astype(object)

    dtype = TEXT if values.dtype == object else values.dtype
    content = values if values.size else None
    array = out.create_dataset(name, values.shape, dtype, content, track_order=True)
    _write_attributes(array.attrs, attributes)
    return array


def _write_attributes(manager: h5py.AttributeManager, attributes: Mapping[Any, Any]) -> None:
    """Write attributes as NetCDF has them: texts of any length, and numbers as lists."""
    for name, value in attributes.items():
        if isinstance(value, str):
            manager.create(str(name), value, dtype=TEXT)
        else:
            manager[str(name)] = np.atleast_1d(value)


def read(source: str | IO[bytes]) -> xr.Dataset:
    """Return the data set, in memory, of a NetCDF-4 file that `fill`, xarray or h5netcdf has written.

    Raises ValueError for a file with links or groups, which these do not write.
    """
    with h5py.File(source, "r") as data:
        attributes = _read_attributes(data.attrs)
        coordinates = set(str(attributes.pop("coordinates", "")).split())
        variables = {}
        for name in data:
            if not isinstance(data.get(name, getlink=True), h5py.HardLink):
                raise ValueError(f"{name} is a link, not an array of its own")
            array = data[name]
            if not isinstance(array, h5py.Dataset):
                raise ValueError(f"{name} is not an array")
            if _decoded(array.attrs.get("NAME", "")).startswith(NO_VARIABLE):
                continue
            variable = _read_variable(data, name, array)
            coordinates.update(str(variable.attrs.pop("coordinates", "")).split())
            variables[name] = variable
    coordinates_here = [name for name in variables if name in coordinates]
    return xr.Dataset(variables, attrs=attributes).set_coords(coordinates_here)


def _read_variable(data: h5py.File, name: str, array: h5py.Dataset) -> xr.Variable:
    """Return an array of a file as a variable, with texts as str and its attributes."""
    attributes = _read_attributes(array.attrs)
    is_text = h5py.check_string_dtype(array.dtype)
    values = array.asstr()[...].astype(str) if is_text else array[...]
    if attributes.pop("dtype", None) == "bool":
        values = values.astype(bool)
    return xr.Variable(_dimensions(data, name, array), values, attributes)


def _dimensions(data: h5py.File, name: str, array: h5py.Dataset) -> tuple[str, ...]:
    """Return the names of an array's dimensions: those of its scales, or its own name if it is one."""
    scales = array.attrs.get("DIMENSION_LIST")
    if scales is not None:
        return tuple(h5py.h5r.get_name(scale[0], data.id).decode().lstrip("/") for scale in scales)
    return (name,) if array.ndim == 1 else ()


def _read_attributes(manager: h5py.AttributeManager) -> dict[str, Any]:
    """Return the attributes without those of HDF5 alone, and with lists of one value unpacked."""
    attributes = {}
    for name, value in manager.items():
        if name in HDF5_ATTRIBUTES or name.startswith("_N"):
            continue
        is_single = isinstance(value, np.ndarray) and value.size == 1
        unpacked = value.flat[0] if is_single else value
        attributes[name] = _decoded(unpacked)
    return attributes


def _decoded(value: Any) -> Any:
    """Return bytes as text, and everything else as it is."""
    return value.decode() if isinstance(value, bytes) else value
