"""Run files: complete, readable, and either right or refused."""

import errno
import json
import os
import resource
import signal
import tempfile
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import heatbath as hb
from heatbath.runs import file
from heatbath.runs.continuation import plan_differences
from heatbath.runs.dataset import RESULTS
from heatbath.runs.serialise import checksum
from tests.processes import run_in_copy
from tests.runs import SHORT, SMALL, SPIRALS, Interrupting, differences, same_bits, small_run

OWN = {
    "binary": (np.random.default_rng(0).standard_normal((40, 3)), np.arange(40) % 2),
    "classes": (np.random.default_rng(0).standard_normal((40, 3)), np.array(["a", "b", "ü c"] * 13 + ["a"])),
    "regression": (np.random.default_rng(0).standard_normal((40, 3)), np.linspace(-5, 9, 40)),
}


@pytest.fixture(scope="module")
def run():
    return small_run(samples=4, average=SPIRALS.X_test[0, :5], weights=True, histogram=(-1.0, 1.0, 3))


@pytest.fixture
def saved(run, tmp_path):
    run.save(tmp_path / "run.nc")
    return tmp_path / "run.nc"


# Content


def test_a_file_gives_back_the_run(run, saved):
    loaded = hb.load(saved)
    assert differences(loaded, run) == []
    assert repr(loaded) == repr(run)
    assert loaded.partition == run.partition
    assert loaded.network == run.network
    assert differences(loaded.resume(20), run.resume(20)) == []
    again = saved.with_name("again.nc")
    loaded.save(again)
    assert differences(hb.load(again), run) == []


def test_a_file_has_the_start_that_was_given(tmp_path):
    run = small_run(start=0.1 * np.random.default_rng(0).standard_normal((2, 81)))
    run.save(tmp_path / "run.nc")
    loaded = hb.load(tmp_path / "run.nc")
    assert plan_differences(loaded.plan, run.plan) == []
    assert differences(loaded.replay(), run) == []


@pytest.mark.parametrize("task", OWN)
def test_a_file_has_the_users_own_data(task, tmp_path):
    problem = hb.datasets.from_arrays(*OWN[task], task=task, standardise=True, features=["x y", "z", "w"])
    run = hb.train(problem, SMALL, hb.LOL(), **SHORT)
    run.save(tmp_path / "run.nc")
    loaded = hb.load(tmp_path / "run.nc")
    for name in ("X_train", "Y_train", "X_test", "Y_test", "shift", "scale", "target_shift", "target_scale"):
        np.testing.assert_array_equal(getattr(loaded.problem, name), getattr(problem, name))
    for name in ("name", "task", "features", "targets", "recipe"):
        assert getattr(loaded.problem, name) == getattr(problem, name)
    np.testing.assert_array_equal(loaded.outputs(OWN[task][0]), run.outputs(OWN[task][0]))
    assert differences(loaded.resume(20), run.resume(20)) == []


def test_a_file_has_weights_and_its_checksum_knows_them(tmp_path):
    weights = np.linspace(0.5, 2.0, 40)
    problem = hb.datasets.from_arrays(*OWN["regression"], standardise=True, weights=weights)
    run = hb.train(problem, SMALL, hb.LOL(), **SHORT)
    run.save(tmp_path / "run.nc")
    loaded = hb.load(tmp_path / "run.nc")
    for name in ("weights_train", "weights_test"):
        np.testing.assert_array_equal(getattr(loaded.problem, name), getattr(problem, name))
        other = replace(problem, **{name: 2 * getattr(problem, name)})
        with pytest.raises(ValueError, match="a run on another problem"):
            hb.load(tmp_path / "run.nc", other)
    assert differences(loaded.resume(20), run.resume(20)) == []
    assert differences(loaded.replay(), run) == []
    halves = {name: getattr(SPIRALS, name)[:, :100] for name in ("X_train", "Y_train")}
    weighed = ({**halves, f"weights_{split}": np.full((1, 100), 2.0)} for split in ("train", "test"))
    assert len({checksum(replace(SPIRALS, **changes)) for changes in weighed}) == 2


@pytest.mark.parametrize(
    "problem",
    [
        hb.datasets.spirals(turns=3.5, n_train=30, n_test=0, draws=2, seed=3),
        hb.datasets.trigonometric(n_train=30, n_test=10),
        hb.datasets.rings(n_train=30, n_test=10),
    ],
)
def test_a_file_of_built_in_data_has_only_the_recipe(problem, tmp_path):
    hb.train(problem, SMALL, hb.LOL(), **SHORT).save(tmp_path / "run.nc")
    assert "X_train" not in xr.load_dataset(tmp_path / "run.nc", engine="h5netcdf")
    loaded = hb.load(tmp_path / "run.nc").problem
    np.testing.assert_array_equal(loaded.X_train, problem.X_train)
    assert loaded.recipe == problem.recipe


def test_a_built_in_problem_that_was_edited_is_the_users_own(tmp_path):
    """Its recipe would make other data."""
    edited = replace(SPIRALS, X_train=SPIRALS.X_train * 2)
    hb.train(edited, SMALL, hb.LOL(), **SHORT).save(tmp_path / "run.nc")
    np.testing.assert_array_equal(hb.load(tmp_path / "run.nc").problem.X_train, edited.X_train)


@pytest.mark.skipif("HEATBATH_DATA" not in os.environ, reason="MNIST is not here")
def test_mnist_is_never_in_a_file(tmp_path):
    problem = hb.datasets.mnist(Path(os.environ["HEATBATH_DATA"]) / "mnist")
    run = hb.train(problem, hb.MLP((5,)), hb.Partition(hb.Adam(), 0.001), 3, 10, record=1)
    run.save(tmp_path / "run.nc")
    assert (tmp_path / "run.nc").stat().st_size < 200_000
    assert differences(hb.load(tmp_path / "run.nc"), run) == []
    elsewhere = json.loads(run.to_xarray().attrs["settings"])
    elsewhere["problem"]["recipe"]["folder"] = str(tmp_path)
    moved = run.to_xarray().assign_attrs(settings=json.dumps(elsewhere))
    file.write(tmp_path / "moved.nc", moved)
    with pytest.raises(OSError, match=r"moved.nc: its data cannot be had .*: pass problem="):
        hb.load(tmp_path / "moved.nc")
    assert differences(hb.load(tmp_path / "moved.nc", problem), run) == []


ADAM = hb.Partition({"output": hb.Adam(), "rest": hb.SGD()}, 0.01)
PARTITIONS = [
    hb.Partition({0: hb.Frozen(), ("layer2", "layer3"): hb.Langevin(float("inf"), 1e-4)}, 0.1),
    hb.Partition(hb.Langevin(0.5, hb.schedules.SimulatedTempering([1e-3, 1e-2], every=5)), 0.1),
    hb.AdLAdL(h=hb.schedules.Exponential(0.1, 0.01, 30), tau=hb.schedules.Cyclical(1e-3, 0.0, 9)),
    hb.Partition(hb.Langevin(hb.schedules.Piecewise([1.0, float("inf")], [9]), 1e-4), 0.1),
    hb.Partition(
        hb.Langevin(hb.schedules.Piecewise([hb.schedules.Constant(float("inf")), 2.0], [9]), 1e-4), 0.1
    ),
    hb.Partition({"hidden": hb.Momentum(0.9, kind=2), "rest": hb.SGLD(0.01, weight_decay=0.1)}, 0.01),
    ADAM,
]


@pytest.mark.parametrize("partition", PARTITIONS)
def test_every_method_and_schedule_survives_a_file(partition, tmp_path):
    run = hb.train(SPIRALS, hb.MLP((6, 5), activation="tanh", init="gaussian", scale=0.5), partition, **SHORT)
    run.save(tmp_path / "run.nc")
    loaded = hb.load(tmp_path / "run.nc")
    assert loaded.partition == partition
    assert differences(loaded, run) == []
    assert differences(loaded.replay(), run) == []


def test_sweeps_and_comparisons_survive_a_file(tmp_path):
    options = {key: value for key, value in SHORT.items() if key != "chains"}
    sweep = hb.sweep(SPIRALS, SMALL, hb.AdLaLa(sigma=[0.0, 0.01], tau=[0.0, PARTITIONS[2].h]), **options)
    comparison = hb.compare(SPIRALS, SMALL, {"warm": hb.LOL(), "Adam": ADAM}, **options)
    for run in (sweep, comparison):
        run.save(tmp_path / "run.nc")
        loaded = hb.load(tmp_path / "run.nc")
        assert loaded.partition == run.partition
        assert differences(loaded, run) == []
        assert differences(loaded.resume(20), run.resume(20)) == []


def test_any_reader_of_netcdf_reads_it_and_the_settings_are_text(run, saved):
    with xr.open_dataset(saved, engine="h5netcdf") as plain:
        np.testing.assert_array_equal(plain["theta"], run.theta)
        assert plain.attrs["step"] == 40
        settings = json.loads(plain.attrs["settings"])
        versions = json.loads(plain.attrs["versions"])
    assert settings["seed"] == 7
    assert settings["partition"]["parts"][0]["sigma"] == 0.01
    assert settings["problem"]["recipe"]["turns"] == 2.0
    assert settings["records"] == [20, 40]
    assert set(versions) == {"python", "heatbath", "numpy", "numba", "xarray"}
    assert run.to_xarray().attrs["settings"].count("\n") > 30  # a line for each


# Damage


def test_a_file_truncated_anywhere_is_refused(saved):
    content = saved.read_bytes()
    for end in np.linspace(0, len(content) - 1, 200).astype(int):
        saved.write_bytes(content[:end])
        with pytest.raises(ValueError, match=r"run.nc is (truncated, or damaged|not a run file)"):
            hb.load(saved)


def test_a_file_with_a_changed_byte_anywhere_is_refused_or_right(run, saved):
    """1,000 random bytes, each changed in a random way; a check of the content, not only of the seal."""
    content = saved.read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for place in rng.integers(0, len(content), 1000):
        altered = bytearray(content)
        altered[place] ^= rng.integers(1, 256)
        saved.write_bytes(altered)
        try:
            loaded = hb.load(saved)
        except ValueError:
            refused += 1
        else:
            assert same_bits(loaded, run)
    assert refused >= 999


def test_bytes_after_the_end_are_noticed(saved):
    saved.write_bytes(saved.read_bytes() + b"\0")
    with pytest.raises(ValueError, match=r"run.nc is truncated, or damaged"):
        hb.load(saved)


# Files that are not runs


def write_with_attributes(path, **attributes):
    """Write a run with these attributes to a file with a valid seal, and return its path."""
    file.write(path, small_run().to_xarray().assign_attrs(attributes))
    return path


def test_a_file_of_a_newer_version_asks_for_an_update(tmp_path):
    path = write_with_attributes(tmp_path / "new.nc", heatbath_format=file.FORMAT + 1, heatbath_version="9.9")
    with pytest.raises(
        ValueError, match=r"new.nc was written by heatbath 9.9 in format 4.*: update heatbath"
    ):
        hb.load(path)


def test_the_error_for_a_foreign_file_names_it(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    (tmp_path / "empty.nc").write_bytes(b"")
    xr.Dataset({"a": ("x", [1, 2])}).to_netcdf(tmp_path / "other.nc", engine="h5netcdf")
    for name, message in (
        ("a.csv", "is not a run file"),
        ("empty.nc", "is not a run file"),
        ("other.nc", "damaged"),
    ):
        with pytest.raises(ValueError, match=f"{name} .*{message}"):
            hb.load(tmp_path / name)
    with pytest.raises(FileNotFoundError, match=r"none.nc cannot be read: No such file"):
        hb.load(tmp_path / "none.nc")
    with pytest.raises(IsADirectoryError, match="cannot be read"):
        hb.load(tmp_path)


def change_setting(settings, *path, value):
    for name in path[:-1]:
        settings = settings[name]
    settings[path[-1]] = value


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("problem", "recipe", "name"), "os.system", "there is no problem 'os.system'"),
        (("problem", "recipe", "turns"), 3.0, "makes other data than the run had"),
        (("problem", "recipe", "unknown"), 3.0, "unexpected keyword"),
        (("partition", "parts", 0, "method"), "__import__", "there is no method '__import__'"),
        (("partition", "parts", 0, "tau"), -1.0, "tau must be >= 0"),
        (("partition", "parts"), 3, "run that can be read"),
        (("network", "hidden"), [30], "theta must be float32 with dimensions"),
        (("network", "hidden"), [-3], "hidden layer's size"),
        (("steps",), 10, "record: a step"),
        (("batch",), 10**6, "batch"),
        (("records",), [40, 20], "records must be steps in order"),
        (("losses",), [33], "losses some of them"),
        (("unknown",), 3, "unexpected keyword"),
        (("weights",), "yes", "weights must be True or False"),
    ],
)
def test_settings_that_were_tampered_with_are_refused(path, value, message, tmp_path):
    packed = small_run().to_xarray()
    settings = json.loads(packed.attrs["settings"])
    change_setting(settings, *path, value=value)
    file.write(tmp_path / "run.nc", packed.assign_attrs(settings=json.dumps(settings)))
    with pytest.raises(ValueError, match=rf"run.nc is not a run that can be read: .*{message}|{message}"):
        hb.load(tmp_path / "run.nc")


def run_with_sampled_noise():
    x = np.linspace(-1, 1, 20)[:, None]
    problem = hb.datasets.from_arrays(x, x[:, 0], task="regression")
    sampling = hb.LaLa(0.1, 1.0, posterior=hb.Posterior())
    return hb.train(problem, hb.MLP((3,)), sampling, 60, chains=2, samples=3, record=2)


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf])
def test_noise_that_is_no_variance_is_refused(value, tmp_path):
    run = run_with_sampled_noise()
    run.data["noise_now"].values[1] = value
    run.save(tmp_path / "run.nc")
    with pytest.raises(ValueError, match="noise"):
        hb.load(tmp_path / "run.nc").resume(10)


@pytest.mark.parametrize("name", [result.name for result in RESULTS if result.name != "second"])
def test_content_that_is_missing_or_of_the_wrong_shape_or_kind_is_named(name, run, tmp_path):
    """The compiled code trusts the arrays it is given."""
    packed = (run_with_sampled_noise() if "noise" in name else run).to_xarray()
    dims = packed[name].dims
    shorter = packed.drop_vars(name).assign({name: (("other", *dims[1:]), packed[name].values[:-1])})
    other_kind = packed.assign({name: packed[name].astype("float16")})
    refused = rf"run.nc is not a run that can be read: .*{name}"
    for wrong in (shorter, other_kind):
        with pytest.raises(ValueError, match=refused):
            file.unpack("run.nc", wrong, None)
    file.write(tmp_path / "run.nc", packed.drop_vars(name))
    with pytest.raises(ValueError, match=refused):
        hb.load(tmp_path / "run.nc")


def test_text_that_is_no_settings_is_refused(tmp_path):
    packed = small_run().to_xarray()
    file.write(tmp_path / "run.nc", packed.assign_attrs(settings="[" * 100_000))
    with pytest.raises(ValueError, match=r"run.nc is not a run that can be read"):
        hb.load(tmp_path / "run.nc")
    huge = json.loads(packed.attrs["settings"])
    huge["chains"] = 10**12
    file.write(tmp_path / "run.nc", packed.assign_attrs(settings=json.dumps(huge)))
    with pytest.raises(MemoryError, match=r"run.nc: 1000000000000 chains of 81 parameters"):
        hb.load(tmp_path / "run.nc")
    file.write(tmp_path / "run.nc", packed.assign_attrs(heatbath_format=[1, 2]))
    with pytest.raises(ValueError, match=r"run.nc is not a run file: its format has no number"):
        hb.load(tmp_path / "run.nc")
    file.write(tmp_path / "run.nc", packed.assign_attrs(settings="{"))
    with pytest.raises(ValueError, match=r"run.nc is not a run that can be read"):
        hb.load(tmp_path / "run.nc")


def test_a_run_of_another_problem_is_refused(saved):
    other = hb.datasets.spirals(turns=4, n_train=200, n_test=100)
    with pytest.raises(
        ValueError, match=r"it is a run on another problem, .*'turns': 2.0.*, and not on Problem"
    ):
        hb.load(saved, other)
    with pytest.raises(TypeError, match="problem must be a Problem or None, got 3"):
        hb.load(saved, 3)


# Writing


def test_a_file_that_is_not_a_run_is_never_overwritten(run, tmp_path):
    (tmp_path / "data.csv").write_text("x,y\n")
    with pytest.raises(FileExistsError, match=r"data.csv is not a run file, so it is left alone"):
        run.save(tmp_path / "data.csv")
    with pytest.raises(ValueError, match=r"data.csv is not a run file"):
        run.resume(5, checkpoint=tmp_path / "data.csv")
    assert (tmp_path / "data.csv").read_text() == "x,y\n"


def test_errors_name_folders_that_are_missing_or_cannot_be_written(run, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"run.nc cannot be written: there is no folder .*missing"):
        run.save(tmp_path / "missing" / "run.nc")
    with pytest.raises(IsADirectoryError, match="is a folder: choose a file in it"):
        run.save(tmp_path)
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        small_run(checkpoint=tmp_path / "missing" / "run.nc")
    assert list(tmp_path.iterdir()) == []


def test_the_error_names_a_folder_without_permission(tmp_path):
    """Root may write anywhere, so a process of its own becomes nobody first."""
    run = small_run()
    run.save(tmp_path / "run.nc")  # with all that it imports, which nobody may not read everywhere

    def save():
        if os.geteuid() == 0:
            os.seteuid(65534)
        try:
            run.save(path)
        except PermissionError as error:
            print(error)

    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o555)
        path = os.path.join(folder, "run.nc")
        done = run_in_copy(save)
        assert done.returncode == 0, done.stderr
        assert f"{path} cannot be written: Permission denied" in done.stdout
        assert os.listdir(folder) == []


@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_when_the_disk_is_full_the_file_that_was_there_stays(run, saved, broken, monkeypatch):
    before = saved.read_bytes()

    def fail(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, broken, fail)
    with pytest.raises(OSError, match=r"run.nc cannot be written: No space left on device"):
        run.resume(5).save(saved)
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == ["run.nc"]


def test_when_there_is_no_room_nothing_is_left_behind(tmp_path):
    """A real limit on the size of files: the error tells, and the file that was there stays."""
    run = small_run(checkpoint=tmp_path / "run.nc")

    def save():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        try:
            run.save(tmp_path / "run.nc")
        except OSError as error:
            print(error)

    done = run_in_copy(save)
    assert done.returncode == 0, done.stderr
    assert f"{tmp_path / 'run.nc'} cannot be written: File too large" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["run.nc"]
    assert hb.load(tmp_path / "run.nc").finished


def test_a_killed_writers_leftovers_go_and_a_live_ones_stay(run, saved):
    old, new = (saved.with_name(f".run.nc.{n}.part") for n in (1, 2))
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 3600,) * 2)
    run.save(saved)
    assert not old.exists()
    assert new.exists()


def test_a_link_stays_a_link(run, tmp_path):
    (tmp_path / "real").mkdir()
    run.save(tmp_path / "real" / "run.nc")
    (tmp_path / "link.nc").symlink_to(tmp_path / "real" / "run.nc")
    longer = run.resume(5)
    longer.save(tmp_path / "link.nc")
    assert (tmp_path / "link.nc").is_symlink()
    assert hb.load(tmp_path / "real" / "run.nc").step == longer.step


def test_a_problem_that_was_edited_in_place_is_the_users_own(tmp_path):
    problem = hb.datasets.spirals(n_train=50, n_test=10)
    for factor in (1.0, 2.0):
        problem.X_train[:] *= factor
        hb.train(problem, SMALL, hb.LOL(), **SHORT).save(tmp_path / "run.nc")
        np.testing.assert_array_equal(hb.load(tmp_path / "run.nc").problem.X_train, problem.X_train)


def test_reading_does_not_unpickle_or_evaluate():
    for path in (Path(hb.__file__).parent / "runs").glob("*.py"):
        source = path.read_text()
        assert not {"pickle", "eval(", "exec(", "allow_pickle"} & set(source.replace("(", "( ").split())


def test_a_run_has_the_same_file_byte_for_byte_whatever_became_of_it_on_the_way(tmp_path):
    """Written twice, loaded and saved again, or made in two parts."""
    paths = [tmp_path / f"{i}.nc" for i in range(4)]
    run = hb.compare(SPIRALS, SMALL, {"one": hb.AdLaLa(), "two": ADAM}, 40, 10, record=4, samples=4)
    run.save(paths[0])
    run.save(paths[1])
    hb.load(paths[0]).save(paths[2])
    with pytest.warns(RuntimeWarning, match="interrupted"):
        part = hb.compare(
            SPIRALS, SMALL, dict(run.partition), 40, 10, record=4, samples=4, progress=Interrupting(1)
        )
    part.save(paths[3])
    hb.load(paths[3]).resume().save(paths[3])
    assert len({path.read_bytes() for path in paths}) == 1


def test_a_checkpoint_is_not_in_memory_a_second_time(tmp_path):
    run = hb.train(SPIRALS, hb.MLP((20,)), hb.LOL(), steps=1000, chains=32, samples=1000)
    size = run.data.nbytes
    run.save(tmp_path / "first.nc")  # what is imported for it is there
    tracemalloc.start()
    try:
        run.save(tmp_path / "run.nc")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (tmp_path / "run.nc").stat().st_size >= size > 8e6
    assert peak < size / 4
