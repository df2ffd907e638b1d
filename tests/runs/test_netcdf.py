"""NetCDF: what is written is what xarray reads, and the other way round."""

import io
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr

from heatbath.runs import netcdf

FORMER = sorted((Path(__file__).parent.parent / "files").rglob("*.nc"))  # written by xarray
DATA = xr.Dataset(
    {
        "truth": ("x", np.array([True, False])),
        "none": (("y", "x"), np.zeros((0, 2), np.float32)),
        "nowhere": (("bare", "x"), np.arange(6).reshape(3, 2)),
        "one": ((), 3.5),
        "texts": ("y", np.array([], dtype=object)),
        "unknown": ("bare", [np.nan, np.inf, 1e-310]),
    },
    {"x": ["ü", ""], "label": ("x", [1, 2]), "alone": ((), "said")},
    {"text": "of any length" * 10_000, "number": 3},
)


def written(data):
    file = io.BytesIO()
    netcdf.fill(file, data)
    return file


def test_what_is_written_is_read_by_xarray_and_here():
    for read in (netcdf.read, lambda file: xr.load_dataset(file, engine="h5netcdf")):
        found = read(written(DATA))
        xr.testing.assert_identical(found, DATA)
        assert list(found.variables) == list(DATA.variables)
        assert {name: found[name].dtype for name in ("truth", "none", "one")} == {
            "truth": np.dtype(bool), "none": np.dtype("float32"), "one": np.dtype(float)
        }  # fmt: skip
        assert type(found.attrs["number"]) is np.int64


@pytest.mark.parametrize("path", FORMER, ids=lambda path: path.name)
def test_files_that_xarray_has_written_are_read_as_xarray_reads_them(path):
    expected = xr.load_dataset(path, engine="h5netcdf", decode_times=False)
    found = netcdf.read(str(path))
    xr.testing.assert_identical(found, expected)
    assert [(name, found[name].dtype) for name in found.variables] == [
        (name, expected[name].dtype) for name in expected.variables
    ]
    assert {name: type(value) for name, value in found.attrs.items()} == {
        name: type(value) for name, value in expected.attrs.items()
    }


def test_the_same_values_are_the_same_bytes():
    assert written(DATA).getvalue() == written(netcdf.read(written(DATA))).getvalue()
    other = DATA.assign(one=3.25)
    assert written(DATA).getvalue() != written(other).getvalue()


def test_links_and_groups_in_a_file_are_refused(tmp_path):
    with h5py.File(tmp_path / "linked.nc", "w") as file:
        file["there"] = h5py.ExternalLink("other.nc", "/secret")
    with pytest.raises(ValueError, match="there is a link, not an array"):
        netcdf.read(str(tmp_path / "linked.nc"))
    with h5py.File(tmp_path / "grouped.nc", "w") as file:
        file.create_group("within")
    with pytest.raises(ValueError, match="within is not an array"):
        netcdf.read(str(tmp_path / "grouped.nc"))
