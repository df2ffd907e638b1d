import gzip
import hashlib
import io
import os
import subprocess
import sys
import urllib.error
from dataclasses import replace
from http.client import IncompleteRead
from pathlib import Path

import numpy as np
import pytest

from heatbath import datasets
from heatbath.datasets import Problem, digits, from_arrays, from_csv, mnist, rings, spirals, trigonometric

DRAWN = [spirals, trigonometric, rings]
ARRAYS = "X_train", "Y_train", "X_test", "Y_test"


def same(one, other):
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in ARRAYS)


# Drawn data


@pytest.mark.parametrize(("turns", "a", "p"), [(1, 2, 0.5), (4, 2, 1), (2.5, 3, 0.7)])
def test_spirals_without_noise_lie_on_the_papers_curve(turns, a, p):
    problem = spirals(turns=turns, a=a, p=p, c=0, draws=2, n_train=20000, n_test=20000)
    for X, Y in ((problem.X_train, problem.Y_train), (problem.X_test, problem.Y_test)):
        radius = np.hypot(X[..., 0], X[..., 1])  # a t^p
        angle = 2 * turns * (radius / a) * np.pi + np.pi * Y[..., 0]
        np.testing.assert_allclose(
            X, np.stack([radius * np.cos(angle), radius * np.sin(angle)], -1), atol=1e-12
        )
        # t is uniform: Kolmogorov's distance of 40,000 points exceeds 0.012 with probability 2e-5
        t = np.sort((radius / a).ravel() ** (1 / p))
        assert np.abs(t - (np.arange(t.size) + 0.5) / t.size).max() < 0.012


def test_trigonometric_data_without_noise_are_a_cosine_and_a_sine_of_the_first_coordinate():
    problem = trigonometric(a=3, b=2, c=0)
    x1, x2 = problem.X_train[0].T
    label = problem.Y_train[0, :, 0] == 1
    np.testing.assert_allclose(x2[~label], np.cos(2 * np.pi * x1[~label]), atol=1e-12)
    np.testing.assert_allclose(x2[label], np.sin(2 * np.pi * x1[label]), atol=1e-12)
    assert 2.95 < x1.max() < 3
    assert 0 < x1.min() < 0.05


def test_the_margin_of_the_rings_is_pinched_where_it_says():
    problem = rings(gap=0.6, pinch=0.2, pinches=3, c=0, n_train=4000)
    X, label = problem.X_train[0], problem.Y_train[0, :, 0]
    radius, angle = np.hypot(*X.T), np.arctan2(X[:, 1], X[:, 0])
    assert (radius[label == 0] <= 0.9 + 1e-12).all()
    assert (radius[label == 1] >= 1.1 - 1e-12).all()
    half = np.abs(radius - 1)
    pinched, wide = np.cos(3 * angle) > 0.99, np.cos(3 * angle) < -0.99
    np.testing.assert_allclose(half[pinched], 0.1, atol=0.002)
    np.testing.assert_allclose(half[wide], 0.3, atol=0.002)


@pytest.mark.parametrize(("make", "noisy"), [(spirals, (1, 1)), (trigonometric, (0, 1)), (rings, (1, 1))])
def test_the_noise_has_standard_deviation_c(make, noisy):
    clean, noised = make(c=0, n_train=20000), make(c=0.3, n_train=20000)
    added = noised.X_train[0] - clean.X_train[0]  # the same t: the noise is drawn after it
    # the standard error of a standard deviation is c / sqrt(2n), 0.0015: five of them
    np.testing.assert_allclose(added.std(axis=0), 0.3 * np.array(noisy), atol=0.0075)
    np.testing.assert_allclose(added.mean(axis=0), 0, atol=0.011)


@pytest.mark.parametrize("make", DRAWN)
def test_classes_are_balanced(make):
    problem = make(n_train=101, n_test=50, draws=3)
    assert problem.Y_train.sum(axis=(1, 2)).tolist() == [50] * 3
    assert problem.Y_test.sum(axis=(1, 2)).tolist() == [25] * 3


@pytest.mark.parametrize("make", DRAWN)
def test_a_draw_does_not_depend_on_the_number_of_draws(make):
    one, three = make(seed=5), make(seed=5, draws=3)
    assert three.X_train.shape == (3, 1000, 2)
    assert np.array_equal(one.X_train[0], three.X_train[0])
    assert np.array_equal(one.X_test[0], three.X_test[0])


@pytest.mark.parametrize("make", DRAWN)
def test_train_and_test_do_not_depend_on_one_anothers_size(make):
    usual = make()
    assert np.array_equal(usual.X_train, make(n_test=7).X_train)
    assert np.array_equal(usual.X_test, make(n_train=7).X_test)


@pytest.mark.parametrize("make", DRAWN)
def test_draws_seeds_and_parts_all_differ(make):
    seeds = (0, 1, 2**32, 2**64 - 1)
    made = [make(draws=3, seed=seed) for seed in seeds]
    first = {X[0, 0] for problem in made for part in (problem.X_train, problem.X_test) for X in part}
    assert len(first) == 3 * 2 * len(seeds)


@pytest.mark.parametrize("make", DRAWN)
def test_a_recipe_makes_the_same_problem_again(make):
    problem = make(n_train=np.int64(20), n_test=0, c=0.1, draws=2, seed=3)
    recipe = dict(problem.recipe)
    assert all(type(value) in (str, int, float) for value in recipe.values())
    again = getattr(datasets, recipe.pop("name"))(**recipe)
    assert same(problem, again)
    assert again.recipe == problem.recipe
    assert again.X_test.shape == (2, 0, 2)


def test_the_defaults_are_the_papers():
    assert same(spirals(), spirals(2, 1000, 1000, 2, 0.5, 0.02, 1, 0))
    assert same(trigonometric(), trigonometric(6, 1, 0.02, 1000, 1000, 1, 0))
    assert spirals().X_train.shape == spirals().X_test.shape == (1, 1000, 2)


@pytest.mark.parametrize(
    ("make", "given", "says"),
    [
        (spirals, {"turns": 0}, r"spirals: turns must be > 0 and finite, got 0"),
        (spirals, {"a": "2"}, r"spirals: a must be a number .* got '2' of type str"),
        (spirals, {"p": -1}, r"spirals: p must be > 0"),
        (spirals, {"c": float("nan")}, r"spirals: c must be >= 0 and finite, got nan"),
        (spirals, {"n_train": 0}, r"spirals: n_train must be a whole number >= 1, got 0"),
        (spirals, {"n_test": -1}, r"spirals: n_test must be a whole number >= 0"),
        (trigonometric, {"draws": 0}, r"trigonometric: draws must be a whole number >= 1"),
        (trigonometric, {"seed": -1}, r"trigonometric: seed must be a whole number >= 0"),
        (trigonometric, {"b": [1, 2]}, r"trigonometric: b must be a number"),
        (rings, {"gap": 2}, r"rings: gap must be > 0 and < 2, got 2"),
        (rings, {"pinch": 0.6}, r"rings: pinch must be at most the gap, 0.5, got 0.6"),
        (rings, {"pinches": 1.5}, r"rings: pinches must be a whole number"),
    ],
)
def test_bad_settings_of_drawn_data_are_refused(make, given, says):
    with pytest.raises((ValueError, TypeError), match=says):
        make(**given)


# Problem


def ones(*shape):
    return np.ones(shape)


GOOD = dict(
    name="mine",
    task="classes",
    X_train=ones(2, 4, 3),
    Y_train=ones(2, 4, 1),
    X_test=ones(2, 5, 3),
    Y_test=ones(2, 5, 1),
    features=("a", "b", "c"),
    targets=("no", "yes", "maybe"),
)


def test_a_problem_knows_its_sizes_and_prints_no_array():
    problem = Problem(**GOOD)
    assert (problem.draws, problem.inputs, problem.outputs) == (2, 3, 3)
    assert repr(problem) == (
        "Problem('mine', classes, 2 draws of 4 training and 5 test data, 3 inputs, 3 outputs)"
    )
    assert problem.shift.tolist() == [0, 0, 0]
    assert problem.scale.tolist() == [1, 1, 1]
    assert (problem.target_shift.tolist(), problem.target_scale.tolist()) == ([0], [1])
    assert replace(problem, task="binary", targets=("no", "yes")).outputs == 1
    regression = {"task": "regression", "Y_train": ones(2, 4, 2), "Y_test": ones(2, 5, 2)}
    assert replace(problem, **regression, targets=("u", "v"), target_scale=ones(2)).outputs == 2


def test_a_problem_takes_whole_numbers_and_lists_and_keeps_floats():
    problem = Problem(**{**GOOD, "X_train": np.ones((2, 4, 3), dtype=int), "features": ["a", "b", "c"]})
    assert problem.X_train.dtype == np.float64
    assert problem.features == ("a", "b", "c")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"task": "class"}, r"task must be one of 'binary', 'classes', 'regression', got 'class'"),
        ({"name": 3}, r"name must be text"),
        ({"recipe": "spirals"}, r"recipe a dict or None, got .*'spirals'"),
        ({"X_train": ones(4, 3)}, r"X_train must be an array of numbers with 3 axes.*\(4, 3\)"),
        ({"X_train": [[[1], [2, 3]]]}, r"X_train must be an array of numbers"),
        ({"X_train": np.full((2, 4, 3), "1")}, r"X_train must be an array of numbers.*<U1"),
        ({"X_train": ones(2, 0, 3), "Y_train": ones(2, 0, 1)}, r"at least one draw, one training row"),
        ({"X_train": ones(2, 4, 0), "X_test": ones(2, 5, 0)}, r"one feature are needed"),
        ({"Y_train": ones(2, 3, 1)}, r"as many rows in Y as in X.*Y_train \(2, 3, 1\)"),
        ({"Y_test": ones(2, 4, 1)}, r"as many rows in Y as in X.*Y_test \(2, 4, 1\)"),
        ({"X_test": ones(1, 5, 3), "Y_test": ones(1, 5, 1)}, r"same draws.*X_test \(1, 5, 3\)"),
        ({"X_test": ones(2, 5, 2)}, r"columns in train and test.*X_test \(2, 5, 2\)"),
        ({"Y_test": ones(2, 5, 2)}, r"columns in train and test.*Y_test \(2, 5, 2\)"),
        ({"X_test": ones(2, 5, 3) * np.nan}, r"X_test must be finite, got nan at \(0, 0, 0\)"),
        ({"Y_train": ones(2, 4, 1) * np.inf}, r"Y_train must be finite, got inf"),
        ({"Y_train": ones(2, 4, 1) * 3}, r"Y_train must hold the indices of classes, 0 to 2, got 3"),
        ({"Y_test": ones(2, 5, 1) * -1}, r"Y_test must hold the indices of classes, 0 to 2, got -1"),
        ({"Y_test": ones(2, 5, 1) / 2}, r"Y_test must hold the indices of classes, 0 to 2, got 0.5"),
        ({"Y_train": ones(2, 4, 2), "Y_test": ones(2, 5, 2)}, r"'classes' needs one column in Y"),
        ({"task": "binary"}, r"targets must be 2 names, got 3: no, yes, maybe"),
        ({"targets": ("no",)}, r"at least two classes, got 1 and 1"),
        ({"targets": "no"}, r"targets must be a list of different names, got 'no'"),
        ({"features": ("a", "b")}, r"features must be 3 names, got 2: a, b"),
        ({"features": ("a", "b", "b")}, r"features must be a list of different names"),
        ({"features": (1, 2, 3)}, r"features must be a list of different names"),
        ({"shift": ones(2)}, r"shift must hold 3 numbers"),
        ({"scale": np.zeros(3)}, r"scale must hold 3 numbers \(scales > 0\)"),
        ({"target_scale": -ones(1)}, r"target_scale must hold 1 numbers \(scales > 0\)"),
        ({"shift": ones(3) * np.nan}, r"shift must be finite"),
    ],
)
def test_a_problem_that_is_wrong_is_refused(change, says):
    with pytest.raises((ValueError, TypeError), match=f"Problem: .*{says}|Problem: {says}"):
        Problem(**{**GOOD, **change})


# MNIST

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
    """A small MNIST, an empty cache, no HEATBATH_DATA and no network."""
    monkeypatch.setattr(digits, "MNIST", TINY)
    monkeypatch.setattr(
        digits, "SHA256", {name: hashlib.sha256(data).hexdigest() for name, data in CONTENT.items()}
    )
    monkeypatch.delenv("HEATBATH_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Net(monkeypatch)


class Net:
    """Stands in for the mirrors: `answer(mirror, name)` gives the bytes or raises; `asked` notes each URL."""

    def __init__(self, monkeypatch):
        self.asked = []
        self.answer = lambda mirror, name: (_ for _ in ()).throw(urllib.error.URLError("no network"))
        monkeypatch.setattr("urllib.request.urlopen", self.open)

    def open(self, url, timeout):
        assert timeout <= 60
        self.asked.append(url)
        mirror, _, name = url.rpartition("/")
        return io.BytesIO(self.answer(digits.MIRRORS.index(mirror), name.removesuffix(".gz")))


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
    assert tiny.asked == [f"{digits.MIRRORS[0]}/{name}.gz" for name in TINY]
    assert leftovers(tmp_path) == sorted(f"{name}.gz" for name in TINY)
    assert same(first, mnist())
    assert len(tiny.asked) == 4


def test_only_the_missing_files_are_fetched(tiny, tmp_path):
    cache = write(tmp_path / "cache" / "heatbath" / "mnist", zipped=False)
    (cache / "t10k-labels-idx1-ubyte").unlink()
    tiny.answer = packed
    mnist()
    assert tiny.asked == [f"{digits.MIRRORS[0]}/t10k-labels-idx1-ubyte.gz"]


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
    tried = [str(tmp_path / "nothing"), str(tmp_path / "cache"), *digits.MIRRORS]
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
    assert hashlib.sha256(header + pixels).hexdigest() == digits.SHA256["t10k-images-idx3-ubyte"]


# The user's own data


def table(path, *lines):
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def flowers(tmp_path):
    rng = np.random.default_rng(0)
    rows = [f"{rng.normal(5, 2)},{'ab'[i % 2]},{i},0.1" for i in range(50)]
    return table(tmp_path / "flowers.csv", "length,kind,width,height", *rows)


def test_a_csv_file_with_text_in_its_target_is_a_classification(flowers):
    problem = from_csv(flowers, "kind", standardise=False)
    assert (problem.name, problem.task, problem.targets) == ("flowers", "binary", ("a", "b"))
    assert problem.features == ("length", "width", "height")
    assert problem.recipe is None
    assert problem.X_train.shape == (1, 40, 3)
    assert problem.X_test.shape == (1, 10, 3)
    width = np.concatenate([problem.X_train, problem.X_test], axis=1)[0, :, 1]
    label = np.concatenate([problem.Y_train, problem.Y_test], axis=1)[0, :, 0]
    assert sorted(width) == list(range(50))  # every row once
    assert (label == width % 2).all()  # each with its own label
    assert (np.diff(width[:40]) != 1).sum() > 20  # shuffled


def test_standardisation_is_by_the_training_data_alone(flowers):
    raw, problem = from_csv(flowers, "kind", standardise=False), from_csv(flowers, "kind")
    train = raw.X_train[0]
    np.testing.assert_allclose(problem.shift, train.mean(axis=0))
    np.testing.assert_allclose(problem.scale, [*train.std(axis=0)[:2], 1])  # a constant keeps its scale
    np.testing.assert_allclose(problem.X_train[0].mean(axis=0), 0, atol=1e-14)
    np.testing.assert_allclose(problem.X_train[0].std(axis=0), [1, 1, 0], atol=1e-14)
    np.testing.assert_allclose(problem.X_test * problem.scale + problem.shift, raw.X_test)
    assert abs(problem.X_test[0].mean(axis=0)[0]) > 1e-3
    assert (raw.shift.tolist(), raw.scale.tolist()) == ([0, 0, 0], [1, 1, 1])


def test_the_targets_of_a_regression_are_standardised_too():
    X, y = np.arange(30.0)[:, None], np.linspace(100, 200, 30) ** 1.5
    raw, problem = from_arrays(X, y), from_arrays(X, y, standardise=True)
    assert problem.task == "regression"
    assert problem.targets == ("y",)
    assert (raw.target_shift.tolist(), raw.target_scale.tolist()) == ([0], [1])
    np.testing.assert_allclose(problem.target_shift, raw.Y_train.mean())
    np.testing.assert_allclose(problem.target_scale, raw.Y_train.std())
    np.testing.assert_allclose(problem.Y_test * problem.target_scale + problem.target_shift, raw.Y_test)


def test_labels_are_never_standardised(flowers):
    problem = from_csv(flowers, "kind")
    assert set(problem.Y_train.ravel()) == {0, 1}
    assert (problem.target_shift.tolist(), problem.target_scale.tolist()) == ([0], [1])


def test_the_split_is_by_the_seed(flowers):
    assert same(from_csv(flowers, "kind", seed=1), from_csv(flowers, "kind", seed=1))
    assert not same(from_csv(flowers, "kind", seed=1), from_csv(flowers, "kind", seed=2))


@pytest.mark.parametrize(
    ("share", "rows", "tests"), [(0, 10, 0), (0.25, 8, 2), (0.01, 10, 1), (0.99, 3, 2), (0.5, 1, 0)]
)
def test_a_share_of_the_rows_is_set_aside_and_training_keeps_at_least_one(share, rows, tests):
    problem = from_arrays(ones(rows, 2), np.arange(rows) / 3, test_share=share, task="regression")
    assert (problem.X_train.shape[1], problem.X_test.shape[1]) == (rows - tests, tests)


@pytest.mark.parametrize(
    ("y", "task", "targets"),
    [
        ([0, 1, 1, 0], "binary", ("0", "1")),
        ([7, 3, 7, 3], "binary", ("3", "7")),
        ([-1.0, 1.0, 1.0, -1.0], "binary", ("-1", "1")),
        ([10, 2, 1, 2], "classes", ("1", "2", "10")),
        (["10", "2", "1", "2"], "classes", ("1", "10", "2")),
        ([True, False, True, True], "binary", ("False", "True")),
        (np.array(["b", "a", "b", "a"], dtype=object), "binary", ("a", "b")),
        ([[0], [1], [2], [0]], "classes", ("0", "1", "2")),
        ([0.5, 1, 2, 3], "regression", ("y",)),
        (ones(4, 2), "regression", ("y1", "y2")),
    ],
)
def test_the_task_is_inferred_from_the_targets(y, task, targets):
    problem = from_arrays(np.arange(4.0)[:, None], y, test_share=0)
    assert (problem.task, problem.targets) == (task, targets)
    if task != "regression":
        named = [problem.targets[int(label)] for label in problem.Y_train.ravel()]
        assert named == [str(np.ravel(y)[int(x)]).removesuffix(".0") for x in problem.X_train.ravel()]


def test_whole_numbers_with_many_values_are_a_regression_unless_the_user_says_otherwise():
    X = ones(42, 1)
    assert from_arrays(X, np.arange(42) % 20).task == "classes"
    assert from_arrays(X, np.arange(42) % 21).task == "regression"
    assert from_arrays(X, np.arange(42) % 21, task="classes").outputs == 21
    assert from_arrays(X, np.arange(42) % 2, task="regression").outputs == 1
    assert from_arrays(X, np.arange(42) % 2, task="classes").outputs == 2
    assert from_arrays(X, np.arange(42) % 2 / 2, task="binary").targets == ("0", "0.5")


def test_given_test_data_are_kept_as_they_are_and_the_users_arrays_are_not_touched():
    X, y, X_test, y_test = np.arange(8.0).reshape(4, 2), [0, 1, 2, 1], ones(3, 2), [2, 0, 2]
    problem = from_arrays(X, y, X_test, y_test, features=["u", "v"])
    assert np.array_equal(problem.X_train[0], X)
    assert np.array_equal(problem.X_test[0], X_test)
    assert problem.Y_test.ravel().tolist() == [2, 0, 2]
    assert problem.features == ("u", "v")
    problem.X_train[:] = -1
    assert X[0].tolist() == [0, 1]
    standard = from_arrays(X, y, X_test, y_test, standardise=True)
    np.testing.assert_allclose(standard.shift, X.mean(axis=0))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"X": ones(4)}, r"X must be an array of numbers with 2 axes, .* shape \(4,\)"),
        ({"X": [[1], [2, 3]]}, "X must be an array of numbers"),
        ({"X": [["a"], ["b"], ["c"], ["d"]]}, "X must be an array of numbers .* <U1"),
        ({"X": [[1], [2], [np.nan], [3]]}, r"X must be finite, got nan at \(2, 0\)"),
        ({"X": ones(3, 1)}, "X and y must have the same number of rows, at least one; got 3 and 4"),
        ({"X": ones(0, 1), "y": [], "task": "regression"}, "at least one; got 0 and 0"),
        ({"X": ones(4, 0)}, "one feature are needed"),
        ({"y": [0, 1, np.nan, 1]}, r"y must be finite, got nan at \(2,\)"),
        ({"y": ["a", "b", "", "a"]}, "without missing ones"),
        ({"y": ["a", "b", np.nan, "a"]}, "without missing ones"),
        ({"y": ["a", None, "b", "b"]}, "y must be an array of numbers .* object"),
        (
            {"y": [1, 1, 1, 1]},
            "at least two classes .* got 1 columns and the classes 1; .* task='regression'",
        ),
        ({"y": ["a"] * 4}, "at least two classes"),
        ({"y": [0, 1, 2, 1], "task": "binary"}, "one column with two classes for task 'binary'.* 0, 1, 2"),
        ({"y": ones(4, 2), "task": "classes"}, "got 2 columns"),
        ({"y": ["a", "b", "a", "b"], "task": "regression"}, "y must hold numbers for task 'regression'.*'a'"),
        ({"task": "clustering"}, "task must be one of 'binary', 'classes', 'regression', got 'clustering'"),
        ({"test_share": 1}, "test_share must be >= 0 and < 1, got 1"),
        ({"seed": -1}, "seed must be a whole number >= 0, got -1"),
        ({"features": ["a", "b"]}, "features must be 1 names, got 2: a, b"),
        ({"features": "a"}, "features must be a list of different names, got 'a'"),
        ({"X_test": ones(2, 1)}, "X_test and y_test must be given together"),
        ({"y_test": [0, 1]}, "X_test and y_test must be given together"),
        ({"X_test": ones(2, 2), "y_test": [0, 1]}, r"must have the columns of X and y .* X_test \(2, 2\)"),
        ({"X_test": ones(2, 1), "y_test": [0]}, r"the same number of rows; .* y_test \(1, 1\)"),
        ({"X_test": ones(2, 1), "y_test": [0, 2]}, r"y_test must hold classes that y has \(0, 1\)"),
        ({"X_test": ones(2, 1), "y_test": ["0", "1"]}, r"y_test must hold classes that y has \(0, 1\)"),
    ],
)
def test_arrays_that_are_wrong_are_refused(given, says):
    with pytest.raises((ValueError, TypeError), match=says):
        from_arrays(**{"X": np.arange(4.0)[:, None], "y": [0, 1, 1, 0], **given})


HEAD = "a,b,y"


@pytest.mark.parametrize(
    ("lines", "options", "says"),
    [
        ([], {}, "must have a header and at least one row of data, it has 0 rows"),
        ([HEAD], {}, "at least one row of data, it has 1 rows"),
        (["a,b,z", "1,2,3"], {}, "must have one column 'y' and at least one other; it has 'a', 'b', 'z'"),
        (["a,y,y", "1,2,3"], {}, "must have one column 'y'"),
        (["y", "1", "2"], {}, "at least one other; it has 'y'"),
        (["a,a,y", "1,2,0", "1,2,1"], {}, "features must be a list of different names"),
        ([HEAD, "1,2,x", "1,red,z"], {}, "row 3, column 'b': a number is needed, got 'red'"),
        ([HEAD, "1,2,x", "", "1,,z"], {}, "row 4, column 'b': a number is needed, got ''"),
        ([HEAD, "nan,2,x", "1,2,z"], {}, "row 2, column 'a': a number is needed, got 'nan'"),
        ([HEAD, "1,inf,x", "1,2,z"], {}, "row 2, column 'b': a number is needed, got 'inf'"),
        ([HEAD, "1,1_0,x", "1,2,z"], {}, "row 2, column 'b': a number is needed, got '1_0'"),
        ([HEAD, "1,2,x", "1,2"], {}, "row 3: 3 cells are needed, got 2"),
        ([HEAD, "1,2,x", "1,2,z,4"], {}, "row 3: 3 cells are needed, got 4"),
        ([HEAD, "1,2,x", "1,2,"], {}, "row 3, column 'y': the value is missing, got ''"),
        ([HEAD, "1,2,0.5", "1,2,NaN"], {}, "row 3, column 'y': the value is missing, got 'NaN'"),
        ([HEAD, "1,2,0.5", "1,2,inf"], {}, "row 3, column 'y': a number is needed, got 'inf'"),
        ([HEAD, "1,2,0.5", "1,2,l.5"], {}, "row 3, column 'y': .* got 'l.5'; .* pass task='classes'"),
        ([HEAD, "1,2,x", "1,2,z"], {"task": "regression"}, "row 2, column 'y': a number is needed, got 'x'"),
        ([HEAD, "1,2,x", "1,2,x"], {}, "target 'y': y must be one column with at least two classes .* x;"),
        ([HEAD, "1,2,x", "1,2,z", "1,2,w"], {"task": "binary"}, "two classes for task 'binary'"),
        ([HEAD, "1,2,x", "1,2,z"], {"task": "tree"}, "task must be one of"),
        ([HEAD, "1,2,x", "1,2,z"], {"test_share": -0.1}, "test_share must be >= 0 and < 1"),
    ],
)
def test_csv_files_that_are_wrong_are_refused_by_file_row_and_column(tmp_path, lines, options, says):
    path = tmp_path / "bad.csv"
    path.write_text("\n".join(lines))
    with pytest.raises(ValueError, match=rf"bad\.csv.* {says}"):
        from_csv(path, "y", **options)


def test_a_csv_file_that_is_missing_or_not_text_is_refused_by_name(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nothing\.csv cannot be read .*: check the path"):
        from_csv(tmp_path / "nothing.csv", "y")
    with pytest.raises(IsADirectoryError, match="cannot be read"):
        from_csv(tmp_path, "y")
    (tmp_path / "binary.csv").write_bytes(b"a,y\n\xff\xfe,1\n")
    with pytest.raises(ValueError, match=r"binary\.csv is not a CSV file in UTF-8"):
        from_csv(tmp_path / "binary.csv", "y")


def test_csv_tolerates_a_byte_order_mark_quotes_spaces_and_blank_lines(tmp_path):
    path = tmp_path / "good.csv"
    path.write_bytes(b'\xef\xbb\xbfy,"a" ,"b, c"\r\n\r\n"one, two", 1 ,2\r\nthree,-3e1, 4\r\n')
    problem = from_csv(str(path), "y", test_share=0, standardise=False)
    assert problem.features == ("a", "b, c")
    assert problem.targets == ("one, two", "three")
    assert sorted(problem.X_train[0].tolist()) == [[-30, 4], [1, 2]]


def test_numbers_mixed_with_text_are_classes_when_the_user_says_so(tmp_path):
    path = table(tmp_path / "mixed.csv", HEAD, "1,2,1", "1,2,2", "1,2,2a")
    assert from_csv(path, "y", task="classes").targets == ("1", "2", "2a")


def test_a_regression_from_a_csv_file_is_named_by_its_column(tmp_path):
    path = table(tmp_path / "t.csv", HEAD, *(f"{i},1,{i / 4}" for i in range(10)))
    problem = from_csv(path, "y")
    assert (problem.task, problem.targets, problem.outputs) == ("regression", ("y",), 1)
    whole = table(tmp_path / "u.csv", HEAD, *(f"{i},1,{i % 3}" for i in range(10)))
    assert from_csv(whole, "y").targets == ("0", "1", "2")
    assert from_csv(whole, "y", task="regression").targets == ("y",)


def test_csv_and_arrays_give_the_same_problem(flowers):
    rows = [line.split(",") for line in flowers.read_text().splitlines()[1:]]
    X = [[float(row[i]) for i in (0, 2, 3)] for row in rows]
    made = from_arrays(X, [row[1] for row in rows], standardise=True, seed=4)
    assert same(made, from_csv(flowers, "kind", seed=4))


def test_importing_the_module_loads_nothing_heavy_and_touches_no_network():
    code = """
import sys
called = []
sys.addaudithook(lambda event, _: called.append(event) if event.startswith("socket.") else None)
import heatbath.datasets
assert not called, called
print(*{m.partition(".")[0] for m in sys.modules})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & {"torch", "scipy", "numba", "pandas", "matplotlib"}


def test_the_global_generator_is_not_touched():
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    for make in DRAWN:
        make(n_train=10)
    from_arrays(ones(4, 1), [0, 1, 0, 1])
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002
