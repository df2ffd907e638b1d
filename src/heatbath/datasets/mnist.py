"""Read MNIST from its IDX files, which are downloaded once."""

from __future__ import annotations

import gzip
import hashlib
import math
import os
import urllib.request
import zlib
from http.client import HTTPException
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from heatbath._internal.atomic_write import write
from heatbath.datasets.problem import Problem

MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist",
    "https://storage.googleapis.com/cvdf-datasets/mnist",
)
TIMEOUT = 30  # seconds without an answer of a mirror
SIDE = 28  # pixels of an image
WHITE = 255.0  # the largest value of a pixel
MNIST = {
    "train-images-idx3-ubyte": (60000, SIDE, SIDE),
    "train-labels-idx1-ubyte": (60000,),
    "t10k-images-idx3-ubyte": (10000, SIDE, SIDE),
    "t10k-labels-idx1-ubyte": (10000,),
}
SHA256 = {  # of the unpacked bytes, because mirrors compress them differently
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}


def mnist(folder: str | os.PathLike[str] | None = None) -> Problem:
    """Return the handwritten digits: 60,000 training and 10,000 test images of 28 x 28 pixels.

    Pixels are scaled to [0, 1].

    Parameters
    ----------
    folder : path, optional
        Folder with the four IDX files, gzipped or not. By default they are read from the folder in the
        environment variable HEATBATH_DATA or its sub-folder `mnist`, and otherwise from the user's cache,
        into which they are downloaded once from a public mirror, with checksums.

    Returns
    -------
    Problem

    Raises
    ------
    FileNotFoundError
        If the files are not in the folder, and cannot be downloaded.
    ValueError
        If a file is damaged.
    """
    paths = _find_files(folder)
    arrays = []
    for name, shape in MNIST.items():
        raw = _read_idx(paths[name], shape)
        arrays.append(raw.reshape(1, len(raw), -1).astype(float))
    X_train, Y_train, X_test, Y_test = arrays
    X_train /= WHITE  # in place: a second copy would need another 376 MB
    X_test /= WHITE

    pixels = tuple(f"pixel_{row}_{column}" for row in range(SIDE) for column in range(SIDE))
    digits = tuple("0123456789")
    scale = np.full(1, WHITE)
    recorded_folder = None if folder is None else os.fspath(folder)
    recipe = {"name": "mnist", "folder": recorded_folder}
    return Problem(
        "mnist", "classes", X_train, Y_train, X_test, Y_test, pixels, digits, scale=scale, recipe=recipe
    )


def search_folders() -> list[Path]:
    """Return the folders in which MNIST is searched for, in this order; the last one is the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "heatbath" / "mnist"
    data = os.environ.get("HEATBATH_DATA")
    if not data:
        return [cache]
    return [Path(data), Path(data) / "mnist", cache]


def _find_files(folder: str | os.PathLike[str] | None) -> dict[str, Path]:
    """Return the path of each MNIST file, after a download if no folder contains all of them.

    Parameters
    ----------
    folder : path or None
        Folder to search. None searches the folder in HEATBATH_DATA and the user's cache, and downloads
        missing files into the cache.

    Raises
    ------
    FileNotFoundError
        With the folders that were searched, and the reasons why downloads have failed.
    """
    folders = search_folders() if folder is None else [Path(folder).expanduser()]
    attempts = []
    for candidate in folders:
        paths = files_in(candidate)
        missing = [name for name in MNIST if name not in paths]
        if not missing:
            return paths
        attempts.append(f"{candidate} (lacks {', '.join(missing)})")

    failures = _download(folders[-1]) if folder is None else []
    if failures or folder is not None:
        raise FileNotFoundError(
            f"MNIST was not found; tried {'; '.join(attempts + failures)}. Put its four files, gzipped or "
            "not, into a folder and pass mnist(folder=...) or set HEATBATH_DATA"
        )
    return files_in(folders[-1])


def files_in(folder: Path) -> dict[str, Path]:
    """Return the paths, by name, of the MNIST files that a folder contains, gzipped or not."""
    paths = {}
    for name in MNIST:
        for path in (folder / name, folder / f"{name}.gz"):
            if path.is_file():
                paths[name] = path
    return paths


def _download(cache: Path) -> list[str]:
    """Download the files that the cache lacks, and write each completely or not at all.

    Returns
    -------
    list of str
        The failed attempts for the first file that no mirror has delivered; empty if all files are there.
    """
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return [f"the cache cannot be made ({error})"]

    for name in MNIST:
        if name in files_in(cache):
            continue
        failures = _download_file(name, cache)
        if failures:
            return failures
    return []


def _download_file(name: str, cache: Path) -> list[str]:
    """Download a file from the first mirror that delivers it with the known checksum.

    Returns
    -------
    list of str
        The failed attempts; empty if the file is in the cache.
    """
    failures = []
    for mirror in MIRRORS:
        url = f"{mirror}/{name}.gz"
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT) as response:
                packed = response.read()
            if hashlib.sha256(gzip.decompress(packed)).hexdigest() != SHA256[name]:
                raise ValueError("its checksum is not that of MNIST")
            write(cache / f"{name}.gz", packed)
        except (OSError, HTTPException, EOFError, zlib.error, ValueError) as error:
            failures.append(f"{url} ({type(error).__name__}: {error})")
        else:
            return []
    return failures


def _read_idx(path: Path, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Return the bytes in an IDX file as an array of this shape.

    Parameters
    ----------
    path : Path
        The file, gzipped or not.
    shape : tuple of int
        The expected shape.

    Raises
    ------
    ValueError
        If the file is damaged, or its header declares another shape.
    """
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":  # the signature of gzip
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"{path} is damaged ({error}): delete it and download it again") from None

    # Two zero bytes, 8 for unsigned bytes, the number of axes, and the size of each axis
    header = bytes([0, 0, 8, len(shape)]) + np.array(shape, dtype=">u4").tobytes()
    size = len(header) + math.prod(shape)
    if data[: len(header)] != header or len(data) != size:
        raise ValueError(
            f"{path} must be an IDX file of {' x '.join(map(str, shape))} bytes, {size} with its header "
            f"{header.hex()}; got {len(data)} bytes that begin with {data[: len(header)].hex()}. "
            "Delete it and download it again"
        )
    return np.frombuffer(data, np.uint8, offset=len(header)).reshape(shape)
