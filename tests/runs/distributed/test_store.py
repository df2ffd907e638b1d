"""Stored blocks: checked, kept in a folder, joined, and continued from."""

import os
import subprocess
import sys
import textwrap
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

import heatbath as hb
from heatbath._internal.warnings import DifferentBitsWarning
from heatbath.runs.continuation import plan_differences
from heatbath.runs.distributed import store as store_module
from heatbath.runs.distributed import worker
from heatbath.runs.distributed.block import SharedPlan, Task
from heatbath.runs.distributed.store import Store
from heatbath.runs.distributed.worker import compute, machine
from heatbath.runs.plan import make_plan
from tests.runs.distributed import GRID, NETWORK, SIZES, AtOnce, limit_steps


def test_what_is_stored_is_not_computed_again(problem, alone, cut, tmp_path):
    cut(5)
    path = tmp_path / "sweep.nc"

    def third(number):
        if number == 3:
            raise ValueError("on purpose")

    broken = AtOnce(third)
    with pytest.raises(
        RuntimeError, match=r"chains 10 to 14 failed on a worker: ValueError: on purpose; .*continues"
    ):
        hb.sweep(problem, NETWORK, GRID, executor=broken, checkpoint=path, **SIZES)
    done = {int(name.stem.split("-")[1]) for name in (tmp_path / "sweep.nc.blocks").glob("chains*")}
    assert {0, 5} <= done
    assert 10 not in done
    cut(4)  # blocks of another size fill the gaps
    second = AtOnce()
    run = hb.sweep(problem, NETWORK, GRID, executor=second, checkpoint=path, **SIZES)
    xr.testing.assert_identical(run.data, alone.data)
    assert not any(first in block for first in done for block in second.tasks)
    assert sum(map(len, second.tasks)) == run.plan.total - sum(min(5, 28 - first) for first in done)
    assert not (tmp_path / "sweep.nc.blocks").exists()
    xr.testing.assert_identical(hb.load(path).data, alone.data)
    third_time = AtOnce()
    hb.sweep(problem, NETWORK, GRID, executor=third_time, checkpoint=path, **SIZES)
    assert third_time.tasks == []


def test_blocks_of_another_run_damaged_ones_and_those_of_another_heatbath_are_refused(problem, tmp_path):
    plan = make_plan(problem, NETWORK, GRID, steps=20, chains=2)
    store = Store(plan, tmp_path)
    shared = store.shared
    block = compute(Task(shared.digest, (), 0, 3, 20), shared.content)
    store.add(block)
    (path,) = tmp_path.glob("chains*")
    assert Store(plan, tmp_path).missing() == [range(3, 8)]
    other = make_plan(problem, NETWORK, GRID, steps=21, chains=2)
    with pytest.raises(ValueError, match=r"is of another run, with other steps.*it is left alone"):
        Store(other, tmp_path)
    with pytest.raises(ValueError, match="is of another run: it is left alone"):
        Store(other).add(block)
    with pytest.raises(ValueError, match="two blocks have some of these chains"):
        Store(plan, tmp_path).add(compute(Task(shared.digest, (), 2, 4, 20), shared.content))
    with pytest.raises(ValueError, match="begins at step 0, and the block before it ends at 20"):
        Store(plan, tmp_path).add(block)
    assert [one.name for one in tmp_path.glob("chains*")] == [path.name]
    damaged = block.content[:200] + bytes([block.content[200] ^ 1]) + block.content[201:]
    path.unlink()
    with pytest.raises(ValueError, match="damaged"):
        Store(plan, tmp_path).add(block._replace(content=damaged))
    path.write_bytes(damaged)
    with pytest.raises(ValueError, match=r"damaged.*Remove it, and repeat the call that began the run"):
        Store(plan, tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("")
    with pytest.raises(FileExistsError, match=r"other things in it \(letter.txt\)"):
        Store(plan, tmp_path / "other")
    with pytest.raises(NotADirectoryError, match="is a file"):
        Store(plan, path)


@pytest.mark.parametrize(
    ("name", "outcome"), [("heatbath", ValueError), ("instructions", DifferentBitsWarning)]
)
def test_blocks_whose_bits_may_differ_are_refused_or_warned_of(problem, monkeypatch, name, outcome):
    plan = make_plan(problem, NETWORK, GRID, steps=20, chains=2)
    shared = SharedPlan.of_plan(plan)
    block = compute(Task(shared.digest, (), 0, 8, 20), shared.content)
    here = machine(plan, ()) | {name: "another"}
    monkeypatch.setattr(store_module, "machine", lambda *_: here)
    store = Store(plan)
    if outcome is ValueError:
        with pytest.raises(ValueError, match="another version of heatbath"):
            store.add(block)
    else:
        with pytest.warns(
            DifferentBitsWarning, match=r"instructions .* this computer .*instructions another"
        ):
            store.add(block)
        assert store.done == 8


def test_a_run_in_a_folder_is_the_same_and_is_not_in_memory(problem, alone, cut, monkeypatch, tmp_path):
    pytest.importorskip("dask", reason="the extra dask is not installed")
    cut(9)
    limit_steps(monkeypatch, 25)
    seen = []
    run = hb.sweep(problem, NETWORK, GRID, folder=tmp_path / "run", progress=seen.append, **SIZES)
    assert seen[-1].step == 60
    assert all(run.data[name].chunks for name in ("theta", "loss", "xi", "samples", "average"))
    xr.testing.assert_identical(run.data.load(), alone.data)
    again = hb.load(tmp_path / "run")
    assert again.data["samples"].chunks == ((9, 9, 9, 1), (1, 1, 1), (21,))
    xr.testing.assert_identical(again.data.load(), alone.data)
    assert plan_differences(again.plan, alone.plan) == []
    assert repr(again) == repr(alone)


def test_a_run_in_a_folder_does_what_runs_do(problem, cut, tmp_path):
    pytest.importorskip("dask", reason="the extra dask is not installed")
    cut(3)
    options = dict(steps=60, chains=7, record=4, samples=3, average=[[0.5, 1.0]], weights=True)
    here = hb.train(problem, NETWORK, hb.AdLaLa(), **options)
    run = hb.train(problem, NETWORK, hb.AdLaLa(), folder=tmp_path / "run", **options)
    X = [[0.1, 0.2], [1.0, -1.0]]
    for over in ("samples", "chains"):
        np.testing.assert_array_equal(run.predict(X, over=over).mean, here.predict(X, over=over).mean)
    np.testing.assert_array_equal(run.predict(over="steps").mean, here.predict(over="steps").mean)
    np.testing.assert_array_equal(run.outputs(X, samples=True), here.outputs(X, samples=True))
    xr.testing.assert_identical(run.weights("hidden").load(), here.weights("hidden"))
    xr.testing.assert_identical(run.resume(20).data, here.resume(20).data)
    run.save(tmp_path / "run.nc")
    xr.testing.assert_identical(hb.load(tmp_path / "run.nc").data, here.data)


def test_an_unfinished_folder_is_continued(problem, alone, cut, monkeypatch, tmp_path):
    pytest.importorskip("dask", reason="the extra dask is not installed")
    cut(9)
    limit_steps(monkeypatch, 25)
    path = tmp_path / "run"

    def seventh(number):
        if number == 7:
            raise ValueError("on purpose")

    with pytest.raises(RuntimeError, match=r"on purpose; .*continues"):
        hb.sweep(problem, NETWORK, GRID, executor=AtOnce(seventh), folder=path, **SIZES)
    there = {one.name for one in path.glob("chains*")}
    with pytest.raises(ValueError, match=r"has \d+ of 28 chains to the last step: repeat the call"):
        hb.load(path)
    with pytest.raises(ValueError, match="is of another run, with other seed"):
        hb.sweep(problem, NETWORK, GRID, folder=path, seed=1, **SIZES)
    executor = AtOnce()
    run = hb.sweep(problem, NETWORK, GRID, executor=executor, folder=path, **SIZES)
    xr.testing.assert_identical(run.data.load(), alone.data)
    assert len(executor.tasks) == 4 * 3 - len(there)
    assert not run.data["died"].chunks


def test_two_processes_cannot_compute_for_the_same_folder(problem, tmp_path):
    plan = make_plan(problem, NETWORK, GRID, steps=20, chains=2)
    with (
        Store.locked(plan, tmp_path / "run"),
        pytest.raises(RuntimeError, match="another process is computing blocks for it"),
        Store.locked(plan, tmp_path / "run"),
    ):
        pass
    with Store.locked(plan, tmp_path / "run"):
        pass
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        Store(plan, tmp_path / "none" / "run")


def test_a_folder_that_cannot_be_written_is_named(problem, tmp_path, monkeypatch):
    def refuse(*arguments, **options):
        raise OSError(30, "Read-only file system")

    (tmp_path / "run").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr("builtins.open", refuse)
        with pytest.raises(OSError, match=r"run/.lock cannot be written: Read-only"):
            hb.sweep(problem, NETWORK, GRID, folder=tmp_path / "run", **SIZES)
    monkeypatch.setattr(store_module.Path, "mkdir", refuse)
    with pytest.raises(OSError, match=r"new cannot be made: Read-only"):
        hb.sweep(problem, NETWORK, GRID, folder=tmp_path / "new", **SIZES)


def test_a_folder_is_refused_where_it_cannot_be(problem, tmp_path):
    with pytest.raises(ValueError, match="its own checkpoint"):
        hb.sweep(problem, NETWORK, GRID, folder=tmp_path / "run", checkpoint=tmp_path / "run.nc", **SIZES)
    with pytest.raises(ValueError, match='replace every "auto" by a number'):
        hb.train(problem, NETWORK, hb.AdLaLa(), steps=60, warm=10, folder=tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_without_dask_the_error_names_the_extra(problem, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "dask", None)
    monkeypatch.setitem(sys.modules, "dask.array", None)
    with pytest.raises(ModuleNotFoundError, match=r"heatbath\[dask\]"):
        hb.sweep(problem, NETWORK, GRID, folder=tmp_path / "run", **SIZES)
    assert list(tmp_path.iterdir()) == []  # it is said before the work


def test_a_finished_folder_is_read_by_another_version(problem, alone, cut, monkeypatch, tmp_path):
    pytest.importorskip("dask", reason="the extra dask is not installed")
    cut(28)
    hb.sweep(problem, NETWORK, GRID, folder=tmp_path / "run", **SIZES)
    monkeypatch.setattr(worker, "library_hash", lambda: "a later one")
    xr.testing.assert_identical(hb.load(tmp_path / "run").data.load(), alone.data)


def test_a_lock_ends_with_the_call_though_forked_workers_live_on(problem, tmp_path):
    """A worker that is forked meanwhile has the files of the driver."""
    plan = make_plan(problem, NETWORK, GRID, steps=20, chains=2)
    awake, asleep = os.pipe()
    with Store.locked(plan, tmp_path / "run"):
        if not (child := os.fork()):
            os.close(asleep)
            os.read(awake, 1)  # until the other end is closed
            os._exit(0)
    os.close(awake)
    another = f"""
        from pathlib import Path
        from heatbath.runs.distributed.store import lock_folder
        with lock_folder(Path({str(tmp_path / "run")!r})):
            print("free")
    """
    try:
        free = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(another)], capture_output=True, text=True, check=False
        )
        assert free.stdout == "free\n", free.stderr
    finally:
        os.close(asleep)
        os.waitpid(child, 0)


def test_a_folder_is_read_when_it_is_locked(problem, tmp_path):
    """By then it has what another process has stored."""
    plan = make_plan(problem, NETWORK, GRID, steps=20, chains=2)
    with Store.locked(plan, tmp_path / "run") as store:
        store.add(compute(Task(store.shared.digest, (), 0, 3, 20), store.shared.content))
    with Store.locked(plan, tmp_path / "run") as store:
        assert store.missing() == [range(3, 8)]


def test_blocks_of_a_run_that_is_joined_are_removed_and_not_in_the_way(problem, cut, tmp_path, monkeypatch):
    cut(4)
    path, folder = tmp_path / "run.nc", tmp_path / "run.nc.blocks"
    options = dict(steps=20, chains=2, record=2, checkpoint=path)
    with monkeypatch.context() as patch:
        patch.setattr(Store, "remove", lambda self: None)  # as if it had been killed there
        run = hb.sweep(problem, NETWORK, GRID, executor=AtOnce(), **options)
    assert (folder / "plan.nc").exists()
    longer = run.resume(20, executor=AtOnce(), checkpoint=path)
    assert longer.step == 40
    assert not folder.exists()
    with monkeypatch.context() as patch:
        patch.setattr(store_module.Path, "rmdir", lambda self: 1 / 0)  # the plan is the last to go
        gone = []
        patch.setattr(store_module.Path, "unlink", lambda self, missing_ok=False: gone.append(self.name))
        store = Store(run.plan, folder)
        store.add(compute(Task(store.shared.digest, (), 0, 8, 20), store.shared.content))
        with pytest.raises(ZeroDivisionError):
            store.remove()
    assert [name for name in gone if not name.endswith(".part")][-2:] == ["plan.nc", ".lock"]


@pytest.mark.parametrize("lazy", [True, False])
def test_a_run_is_resumed_in_a_folder(problem, cut, monkeypatch, tmp_path, lazy):
    """The new h leaves the names of the points as they were; a killed call is continued."""
    pytest.importorskip("dask", reason="the extra dask is not installed")
    cut(5)
    options = dict(steps=30, chains=7, record=3, samples=3, average=[[0.5, 1.0]])
    grid, changed = (hb.AdLaLa(h=[h, 0.2], tau=[1e-5, 1e-3]) for h in (0.25, 0.125))
    here = hb.sweep(problem, NETWORK, grid, **options)
    start = hb.sweep(problem, NETWORK, grid, folder=tmp_path / "start", **options) if lazy else here
    expected = here.resume(30, changed)

    def second(number):
        if number == 2:
            raise ValueError("on purpose")

    with pytest.raises(RuntimeError, match=r"on purpose; \d+ of 28 chains are done and in"):
        start.resume(30, changed, executor=AtOnce(second), folder=tmp_path / "longer")
    with pytest.raises(ValueError, match=r"has .* of 28 chains to the last step: repeat the call"):
        hb.load(tmp_path / "longer")
    stored = len(list((tmp_path / "longer").glob("chains-*-steps-30-60.nc")))
    seen, again = [], AtOnce()
    manner = dict(folder=tmp_path / "longer", executor=again, progress=seen.append)
    longer = start.resume(30, changed, **manner)
    assert longer.data["samples"].chunks
    xr.testing.assert_identical(longer.data.load(), expected.data)
    xr.testing.assert_identical(hb.load(tmp_path / "longer").data.load(), expected.data)
    assert stored
    assert len(again.tasks) == (6 if lazy else 2) - stored
    assert seen[-1].step == 60
    assert seen[-1].first > 30
    xr.testing.assert_identical(longer.resume(10).data, expected.resume(10).data)
    with pytest.raises(ValueError, match=r"is of another run, with other steps.*Choose another name"):
        longer.resume(10, folder=tmp_path / "longer")
    with pytest.raises(ValueError, match="its own checkpoint"):
        longer.resume(10, folder=tmp_path / "more", checkpoint=tmp_path / "more.nc")


def test_chains_that_diverged_before_are_told_once_where_a_run_goes_on_in_a_folder(problem, tmp_path):
    pytest.importorskip("dask", reason="the extra dask is not installed")
    wild = hb.Partition(hb.SGD(), h=[0.1, 1e30])
    with pytest.warns(hb.DivergedWarning):
        run = hb.sweep(problem, NETWORK, wild, steps=20, chains=2, record=1)
    longer = run.resume(20, folder=tmp_path / "longer")  # warnings are errors
    xr.testing.assert_identical(longer.data.load(), run.resume(20).data)


def test_a_folder_remembers_that_a_former_version_began_its_run(problem, tmp_path):
    pytest.importorskip("dask", reason="the extra dask is not installed")
    run = hb.train(problem, NETWORK, hb.LOL(), steps=20, record=1)
    with pytest.warns(RuntimeWarning, match=r"begun by an earlier heatbath \(0.0.1\)"):
        longer = replace(run, former="0.0.1").resume(20, folder=tmp_path / "longer")
    assert longer.former == hb.load(tmp_path / "longer").former == "0.0.1"
