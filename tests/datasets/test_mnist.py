"""MNIST: read, fetched, refused."""

import gzip
import hashlib
import io
import os
import urllib.error
from http.client import IncompleteRead
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from heatbath.datasets import mnist
from tests.conftest import data_beside
from tests.datasets.problems import same

MODULE = import_module("heatbath.datasets.mnist")
TINY = {
    "train-images-idx3-ubyte": (6, 28, 28),
    "train-labels-idx1-ubyte": (6,),
    "t10k-images-idx3-ubyte": (4, 28, 28),
    "t10k-labels-idx1-ubyte": (4,),
}


def idx(name, shape):
    values = np.arange(np.prod(shape)) % (10 if "labels" in name else 256)
    return bytes([0, 0, 8, len(shape)]) + np.array(shape, ">u4").tobytes() + values.astype(np.uint8).tobytes()


CONTENT = {name: idx(name, shape) for name, shape in TINY.items()}


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """Replace MNIST by a small one, with an empty cache, no HEATBATH_DATA and no network."""
    monkeypatch.setattr(MODULE, "MNIST", TINY)
    monkeypatch.setattr(
        MODULE, "SHA256", {name: hashlib.sha256(data).hexdigest() for name, data in CONTENT.items()}
    )
    monkeypatch.delenv("HEATBATH_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Net(monkeypatch)


class Net:
    """A stand-in for the mirrors: `answer(mirror, name)` gives bytes or raises; `asked` has each URL."""

    def __init__(self, monkeypatch):
        self.asked = []
        self.answer = lambda mirror, name: (_ for _ in ()).throw(urllib.error.URLError("no network"))
        monkeypatch.setattr("urllib.request.urlopen", self.open)

    def open(self, url, timeout):
        assert timeout <= 60
        self.asked.append(url)
        mirror, _, name = url.rpartition("/")
        return io.BytesIO(self.answer(MODULE.MIRRORS.index(mirror), name.removesuffix(".gz")))


def packed(mirror, name):
    return gzip.compress(CONTENT[name], compresslevel=1 + 8 * mirror)


def write(folder, *, zipped):
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in CONTENT.items():
        path = folder / (f"{name}.gz" if zipped else name)
        path.write_bytes(gzip.compress(data) if zipped else data)
    return folder


def leftovers(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("zipped", [True, False])
def test_mnist_is_read_from_a_named_folder_gzipped_or_not(tiny, tmp_path, zipped):
    problem = mnist(write(tmp_path / "files", zipped=zipped))
    assert problem.X_train.shape == (1, 6, 784)
    assert problem.Y_test[0, :, 0].tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(problem.X_train[0, 1, :3] * 255, [16, 17, 18])  # 784 = 3 x 256 + 16
    assert problem.X_train.max() == 1
    assert set(problem.scale) == {255}
    assert problem.recipe == {"name": "mnist", "folder": str(tmp_path / "files")}
    assert tiny.asked == []


@pytest.mark.parametrize("below", ["", "mnist"])
def test_mnist_is_read_from_heatbath_data_directly_or_in_a_sub_folder(tiny, tmp_path, monkeypatch, below):
    write(tmp_path / "data" / below, zipped=True)
    monkeypatch.setenv("HEATBATH_DATA", str(tmp_path / "data"))
    assert mnist().recipe == {"name": "mnist", "folder": None}
    assert tiny.asked == []


def test_a_named_folder_comes_before_heatbath_data_and_that_before_the_cache(tiny, tmp_path, monkeypatch):
    cache = write(tmp_path / "cache" / "heatbath" / "mnist", zipped=False)
    (cache / "t10k-labels-idx1-ubyte").write_bytes(idx("", (4,))[:-1] + b"\x09")
    assert mnist().Y_test[0, 3, 0] == 9
    monkeypatch.setenv("HEATBATH_DATA", str(write(tmp_path / "data", zipped=True)))
    assert mnist().Y_test[0, 3, 0] == 3
    assert mnist(cache).Y_test[0, 3, 0] == 9


def test_mnist_is_fetched_once_and_then_read_from_the_cache(tiny, tmp_path, monkeypatch):
    tiny.answer = packed
    monkeypatch.setenv("HEATBATH_DATA", str(tmp_path / "nothing"))
    first = mnist()
    assert tiny.asked == [f"{MODULE.MIRRORS[0]}/{name}.gz" for name in TINY]
    assert leftovers(tmp_path) == sorted(f"{name}.gz" for name in TINY)
    assert same(first, mnist())
    assert len(tiny.asked) == 4


def test_only_the_missing_files_are_fetched(tiny, tmp_path):
    cache = write(tmp_path / "cache" / "heatbath" / "mnist", zipped=False)
    (cache / "t10k-labels-idx1-ubyte").unlink()
    tiny.answer = packed
    mnist()
    assert tiny.asked == [f"{MODULE.MIRRORS[0]}/t10k-labels-idx1-ubyte.gz"]


def unreachable(name):
    raise urllib.error.URLError("no route to host")


def cut_off(name):
    raise IncompleteRead(b"abc")


BAD_MIRRORS = {
    "unreachable": (unreachable, "no route to host"),
    "cut off": (cut_off, "IncompleteRead"),
    "other content": (
        lambda name: gzip.compress(CONTENT[name][:-1] + b"\0"),
        "checksum is not that of MNIST",
    ),
    "truncated": (lambda name: gzip.compress(CONTENT[name])[:-9], "EOFError"),
    "a login page": (lambda name: b"<html>", "BadGzipFile"),
    "not compressed": (lambda name: CONTENT[name], "BadGzipFile"),
}


@pytest.mark.parametrize("kind", BAD_MIRRORS)
def test_a_bad_mirror_is_passed_over_for_the_next(tiny, tmp_path, kind):
    bad = BAD_MIRRORS[kind][0]
    tiny.answer = lambda mirror, name: packed(mirror, name) if mirror else bad(name)
    assert mnist().draws == 1
    assert len(tiny.asked) == 8
    assert leftovers(tmp_path) == sorted(f"{name}.gz" for name in TINY)


@pytest.mark.parametrize("kind", BAD_MIRRORS)
def test_when_no_mirror_is_good_the_error_names_what_was_tried_and_nothing_is_left(
    tiny, tmp_path, monkeypatch, kind
):
    bad, says = BAD_MIRRORS[kind]
    tiny.answer = lambda mirror, name: bad(name)
    monkeypatch.setenv("HEATBATH_DATA", str(tmp_path / "nothing"))
    with pytest.raises(FileNotFoundError) as caught:
        mnist()
    tried = [str(tmp_path / "nothing"), str(tmp_path / "cache"), *MODULE.MIRRORS]
    for part in (*tried, says, "mnist(folder=...)", "set HEATBATH_DATA", "train-images-idx3-ubyte"):
        assert part in str(caught.value)
    assert leftovers(tmp_path) == []


def test_a_download_that_cannot_be_put_in_place_leaves_nothing(tiny, tmp_path, monkeypatch):
    tiny.answer = packed

    def full(source, destination):
        assert Path(source).parent == Path(destination).parent  # else it would not be atomic
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(FileNotFoundError, match="disk full"):
        mnist()
    assert leftovers(tmp_path) == []


def test_a_cache_that_cannot_be_made_is_an_error_before_anything_is_fetched(tiny, tmp_path):
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(FileNotFoundError, match="the cache cannot be made"):
        mnist()
    assert tiny.asked == []


def test_a_named_folder_without_the_files_is_an_error_and_fetches_nothing(tiny, tmp_path):
    tiny.answer = packed
    (write(tmp_path / "files", zipped=True) / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(FileNotFoundError, match=r"files \(lacks t10k-labels-idx1-ubyte\)"):
        mnist(tmp_path / "files")
    assert tiny.asked == []


WHOLE = CONTENT["train-labels-idx1-ubyte"]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (WHOLE[:-1], "6 bytes, 14 with its header 0000080100000006; got 13 bytes"),
        (WHOLE + b"\0", "got 15 bytes"),
        (idx("", (5,)) + b"\0", "begin with 0000080100000005"),
        (b"\0\0\x0d\1" + WHOLE[4:], "begin with 00000d01"),
        (CONTENT["t10k-images-idx3-ubyte"], "begin with 00000803"),
        (gzip.compress(WHOLE[:-1]), "got 13 bytes"),
        (gzip.compress(WHOLE)[:-9], "is damaged"),
        (b"\x1f\x8b" + WHOLE, "is damaged"),
        (b"label,pixel\n", "got 12 bytes"),
        (b"", "got 0 bytes"),
    ],
    ids=str.split("short long count type axes short.gz cut.gz not.gz text empty"),
)
def test_truncated_and_foreign_files_are_refused_by_name(tiny, tmp_path, data, says):
    path = write(tmp_path / "files", zipped=False) / "train-labels-idx1-ubyte"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"train-labels-idx1-ubyte (must be|is damaged)") as caught:
        mnist(tmp_path / "files")
    assert says in str(caught.value)


def test_data_beside_the_project_are_found(tmp_path):
    project = tmp_path / "project"
    assert data_beside(project) is None
    (tmp_path / "shared" / "data" / "mnist").mkdir(parents=True)
    assert data_beside(project) == tmp_path / "shared" / "data"


def test_the_real_mnist_is_what_it_is_known_to_be():
    if not os.environ.get("HEATBATH_DATA"):
        pytest.skip("HEATBATH_DATA is not set: the real MNIST was not read")
    problem = mnist()
    assert (problem.task, problem.inputs, problem.outputs) == ("classes", 784, 10)
    assert problem.targets == tuple("0123456789")
    assert problem.X_train.shape == (1, 60000, 784)
    assert problem.X_test.shape == (1, 10000, 784)
    train, test = (np.bincount(Y.ravel().astype(int)).tolist() for Y in (problem.Y_train, problem.Y_test))
    assert train == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert test == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert (problem.X_train.min(), problem.X_train.max()) == (0, 1)
    assert problem.X_train.mean() == pytest.approx(0.1307, abs=5e-5)  # the values everyone normalises by
    assert problem.X_train.std() == pytest.approx(0.3081, abs=5e-5)
    # the checksum of the file itself, computed back from what was read
    header = bytes([0, 0, 8, 3]) + np.array([10000, 28, 28], ">u4").tobytes()
    pixels = np.rint(problem.X_test * 255).astype(np.uint8).tobytes()
    assert hashlib.sha256(header + pixels).hexdigest() == MODULE.SHA256["t10k-images-idx3-ubyte"]
