"""Plans in blocks: the same bits, whoever computes them, whatever is lost on the way."""

import os
import pickle
import select
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import joblib
import numpy as np
import pytest
import xarray as xr

import heatbath as hb
from heatbath import paper
from heatbath._internal.warnings import DifferentBitsWarning, InterruptedWarning
from heatbath.cli import main
from heatbath.cli.report import figures
from heatbath.engine import compile
from heatbath.engine.compile import once, reporting
from heatbath.engine.loop import run_chains
from heatbath.paper import runner
from heatbath.runs import dataset, file, simulation
from heatbath.runs.continuation import plan_differences
from heatbath.runs.distributed import block as blocks
from heatbath.runs.distributed import pools, scheduler, worker
from heatbath.runs.distributed import store as store_module
from heatbath.runs.distributed.block import AbandonedError, About, SharedPlan, Task
from heatbath.runs.distributed.scheduler import SECONDS, BlockScheduler, Means, Sizes
from heatbath.runs.distributed.store import Store
from heatbath.runs.distributed.worker import _ready, compute, hash_files, machine, vector_instructions
from heatbath.runs.plan import make_plan

NETWORK = hb.MLP((5,))
GRID = hb.AdLaLa(h=0.25, sigma=[0.0, 1e-2], tau=[1e-5, 1e-3])
SIZES = dict(steps=60, chains=7, record=4, samples=3, histogram=(-3, 3, 4), average=[[0.5, 1.0]])
METHODS = {
    "LOL": hb.LOL(),
    "Adam": hb.Partition(hb.Adam(), h=0.01),
    "SGLD": hb.Partition(hb.SGLD(0.01), h=0.1),
}


@pytest.fixture(scope="module")
def problem():
    return hb.datasets.spirals(n_train=40, n_test=20)


@pytest.fixture(scope="module")
def alone(problem):
    return hb.sweep(problem, NETWORK, GRID, **SIZES)


@pytest.fixture
def cut(monkeypatch):
    """Return a function that sets the number of chains of every block."""

    def into(size):
        monkeypatch.setattr(Sizes, "chains", lambda self, left: size)

    return into


@pytest.fixture
def threads():
    with ThreadPoolExecutor(2) as executor:
        yield executor


class AtOnce(Executor):
    """An executor that runs tasks at once, in this thread, and counts them."""

    def __init__(self, fails=lambda number: None):
        self.tasks, self.fails = [], fails

    def submit(self, function, task, *arguments):
        future = Future()
        self.tasks.append(range(task.first, task.stop))
        try:
            self.fails(len(self.tasks))
            future.set_result(function(task, *arguments))
        except Exception as error:
            future.set_exception(error)
        return future


@pytest.mark.parametrize("size", [28, 14, 4])
def test_blocks_of_any_size_have_the_bits_of_the_whole(problem, alone, threads, cut, size):
    cut(size)
    run = hb.sweep(problem, NETWORK, GRID, executor=threads, **SIZES)
    xr.testing.assert_identical(run.data, alone.data)
    assert plan_differences(run.plan, alone.plan) == []


def test_methods_of_other_kinds_are_in_one_block(problem, threads, cut):
    cut(5)
    options = dict(steps=40, chains=4, record=2, weights=True)
    run = hb.compare(problem, NETWORK, METHODS, executor=threads, **options)
    xr.testing.assert_identical(run.data, hb.compare(problem, NETWORK, METHODS, **options).data)


def test_user_data_a_start_a_posterior_and_float64_reach_the_workers(cut, threads):
    cut(3)
    x = np.random.default_rng(0).normal(size=(30, 2))
    problem = hb.datasets.from_arrays(x, x[:, 0] ** 2, task="regression", standardise=True)
    partition = hb.LaLa(h=[0.05, 0.1], gamma=1.0, posterior=hb.Posterior(prior=1.0))
    start = np.random.default_rng(1).normal(size=(2 * 4, 21))
    options = dict(steps=60, batch=10, chains=4, record=2, samples=2, start=start, dtype="float64")
    options["momenta"] = "thermal"
    run = hb.sweep(problem, NETWORK, partition, executor=threads, **options)
    xr.testing.assert_identical(run.data, hb.sweep(problem, NETWORK, partition, **options).data)


def test_the_data_set_of_a_chain_depends_on_its_number(threads, cut):
    cut(3)
    problem = hb.datasets.spirals(n_train=30, n_test=10, draws=5)
    grid = hb.AdLaLa(tau=[1e-5, 1e-3])
    run = hb.sweep(problem, NETWORK, grid, steps=20, chains=7, executor=threads)
    xr.testing.assert_identical(run.data, hb.sweep(problem, NETWORK, grid, steps=20, chains=7).data)


def test_a_block_whose_chains_all_diverge_is_a_part_of_the_run(problem, threads, cut, monkeypatch):
    cut(4)
    _limit_steps(monkeypatch, 20)
    wild = hb.Partition(hb.SGD(), h=[0.1, 1e30])
    with pytest.warns(hb.DivergedWarning) as here:
        run = hb.sweep(problem, NETWORK, wild, steps=30, chains=4, executor=threads)
    with pytest.warns(hb.DivergedWarning) as there:
        expected = hb.sweep(problem, NETWORK, wild, steps=30, chains=4)
    xr.testing.assert_identical(run.data, expected.data)
    assert [str(w.message) for w in here] == [str(w.message) for w in there]
    with pytest.raises(FloatingPointError, match="all chains diverged"):
        hb.sweep(problem, NETWORK, hb.Partition(hb.SGD(), h=[1e29, 1e30]), steps=30, executor=threads)


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


def test_ctrl_c_leaves_no_task_behind_and_the_same_call_continues(problem, alone, cut, tmp_path):
    cut(4)
    path = tmp_path / "sweep.nc"

    def interrupt(now):
        if now.step > 0:
            raise KeyboardInterrupt

    with ThreadPoolExecutor(1) as executor:
        manner = dict(executor=executor, checkpoint=path, progress=interrupt)
        told = pytest.warns(
            InterruptedWarning,
            match=r"\d+ of 28 chains are done and in .*the same call continues from there",
        )
        with told, pytest.raises(KeyboardInterrupt):
            hb.sweep(problem, NETWORK, GRID, **manner, **SIZES)
        assert executor._work_queue.empty()
        assert executor.submit(lambda: "free").result() == "free"
    assert 1 <= len(list((tmp_path / "sweep.nc.blocks").glob("chains*"))) < 7
    run = hb.sweep(problem, NETWORK, GRID, executor=AtOnce(), checkpoint=path, **SIZES)
    xr.testing.assert_identical(run.data, alone.data)


def test_a_task_that_nobody_waits_for_ends_within_a_call_of_compiled_code(problem):
    plan = make_plan(problem, NETWORK, GRID, steps=10**9, chains=2, record=1)
    shared, asked = SharedPlan.of_plan(plan), []

    def wanted():
        asked.append(1)
        return len(asked) < 3

    with pytest.raises(AbandonedError, match="chains 1 to 3"):
        compute(Task(shared.digest, (), 1, 4, 10**9), shared.content, wanted)


def test_a_lost_worker_s_block_is_computed_by_another(problem, alone, cut, monkeypatch):
    cut(7)
    monkeypatch.setattr(pools.Pool, "is_lost", lambda self, error: isinstance(error, OSError))

    def second(number):
        if number in (2, 3):
            raise OSError("the worker is gone")

    executor = AtOnce(second)
    run = hb.sweep(problem, NETWORK, GRID, executor=executor, **SIZES)
    xr.testing.assert_identical(run.data, alone.data)
    assert len(executor.tasks) == 6


def test_a_block_that_is_stored_is_asked_for_by_nobody_any_more(problem, alone, cut, monkeypatch):
    """Dask computes what was lost with a worker again, as long as somebody holds its future."""
    cut(7)
    given = {}

    class Noting(AtOnce):
        def submit(self, function, task, *others):
            future = super().submit(function, task, *others)
            given[task.first] = weakref.ref(future)
            return future

    add, held = Store.add, []

    def look(store, block):
        held.append(given[block.about.first]() is not None)
        add(store, block)

    monkeypatch.setattr(Store, "add", look)
    run = hb.sweep(problem, NETWORK, GRID, executor=Noting(), **SIZES)
    assert held == [False] * 4
    xr.testing.assert_identical(run.data, alone.data)


def test_a_process_sends_back_names_of_files_however_large_a_block_is(problem, tmp_path):
    """A worker that is killed while it sends more than a pipe takes at once leaves a part of it there, and
    `concurrent.futures` waits for the rest for ever."""
    plan = make_plan(problem, NETWORK, GRID, 60, 20, 64, record=60, samples=60)
    shared = SharedPlan.of_plan(plan)
    (tmp_path / pools.WANTED).touch()
    task = Task(shared.digest, (), 0, 64, 60)
    answer = pools._compute_to_files(task, shared.content, tmp_path)
    assert answer[0].stat().st_size > 2**16  # of a pipe
    assert len(pickle.dumps(answer)) < min(512, select.PIPE_BUF)  # 512: what POSIX promises everywhere
    block, alike = pools.ProcessPool(None).received(answer), compute(task, shared.content)
    assert block.about._replace(seconds=0) == alike.about._replace(seconds=0)
    xr.testing.assert_identical(
        *(blocks.Block(b.about, b.content).read().drop_attrs() for b in (block, alike))
    )
    assert [path.name for path in tmp_path.iterdir()] == [pools.WANTED]


def test_sizes_follow_the_time_that_blocks_take_and_let_all_workers_end_together(problem):
    plan = make_plan(problem, NETWORK, GRID, steps=10, chains=1000)
    sizes = Sizes(plan, 4, 1, 0)
    assert sizes.unit in (1, 8, 16)
    assert Sizes(plan, 4, 3, 0).unit == 3 * sizes.unit
    assert sizes.chains(4000) == sizes.unit
    half = About("", 0, sizes.unit, 0, 5, [], {}, "", 0.5, 9.0, 0.0, 0.0, {})
    sizes.learn(half)  # in half a second, after some of compilation
    assert sizes.chains(4000) == SECONDS * sizes.unit
    assert sizes.chains(4 * sizes.unit) == sizes.unit
    sizes.learn(half, 2 * SECONDS)  # a mean of SECONDS to take a block, from each of four workers
    assert sizes.seconds == 8 * SECONDS


def test_sizes_are_limited_by_the_bytes_of_the_results(problem, monkeypatch):
    plan = make_plan(problem, NETWORK, GRID, steps=1000, chains=100, record=1000, weights=True)
    sizes = Sizes(plan, 1, 1, 0)
    sizes.learn(About("", 0, sizes.unit, 0, 1000, [], {}, "", 1e-9, 0.0, 0.0, 0.0, {}))
    assert sizes.chains(400) == 400 // sizes.unit * sizes.unit
    assert sizes.until(400, 0) == 1000
    a_record, state = 8 * 2 * (1 + 1 + 1) + 8 * 1 + 4 * 21, 4 * 2 * 21 + 8 * 3 + 8  # and the steps of records
    total = sum(dataset.sizes(plan, 1000, range(16)).values())
    assert abs(total - 16 * (1000 * a_record + state)) <= 8 * 1000 + 16 * 64
    monkeypatch.setattr(scheduler, "LARGEST", total // 10)
    assert sizes.chains(400) == sizes.unit
    first = sizes.until(16, 0)
    assert 90 <= first <= 100
    assert 2 * first - 1 <= sizes.until(16, first) <= 2 * first + 1
    monkeypatch.setattr(scheduler, "LARGEST", 1)
    assert sizes.until(16, 300) == 301


def _limit_steps(monkeypatch, steps):
    """Limit the number of steps of every block."""
    monkeypatch.setattr(Sizes, "until", lambda self, chains, step: min(step + steps, self.plan.steps))


@pytest.mark.parametrize("steps", [25, 59])
def test_blocks_that_are_cut_in_time_have_the_bits_of_the_whole(problem, alone, cut, monkeypatch, steps):
    cut(20)
    _limit_steps(monkeypatch, steps)
    executor = AtOnce()
    run = hb.sweep(problem, NETWORK, GRID, executor=executor, **SIZES)
    xr.testing.assert_identical(run.data, alone.data)
    assert len(executor.tasks) == 2 * -(-60 // steps)


def test_a_slow_block_comes_back_and_continues_as_another(problem):
    plan = make_plan(problem, NETWORK, GRID, steps=10**9, chains=2, record=[1, 10**9])
    shared = SharedPlan.of_plan(plan)
    block = compute(Task(shared.digest, (), 1, 4, 10**9, seconds=0.01), shared.content)
    about = block.about
    assert About.read(file.read(block.content, "the block").attrs["block"]) == about
    assert file.read(block.state, "the state").sizes["chain"] == 3
    assert 0 == about.begin < about.end < 10**9
    assert about.work == 3 * about.end
    late = compute(Task(shared.digest, (), 1, 4, 10**9, seconds=0.0), shared.content).about  # stopped at once
    assert late.end == 1


def test_a_run_is_resumed_on_an_executor(problem, cut, monkeypatch):
    """Only the state of the chains goes to the workers, not what was noted before."""
    cut(3)
    _limit_steps(monkeypatch, 15)
    start = hb.sweep(problem, NETWORK, GRID, steps=30, chains=3, record=3, samples=3)
    executor, changed = AtOnce(), hb.AdLaLa(h=0.125, sigma=[0.0, 1e-2], tau=[1e-5, 1e-3])
    longer = start.resume(30, changed, executor=executor)
    xr.testing.assert_identical(longer.data, start.resume(30, changed).data)
    assert len(executor.tasks) == 4 * 2
    assert plan_differences(longer.plan, start.resume(30, changed).plan) == []


def test_a_run_in_a_folder_is_the_same_and_is_not_in_memory(problem, alone, cut, monkeypatch, tmp_path):
    pytest.importorskip("dask", reason="the extra dask is not installed")
    cut(9)
    _limit_steps(monkeypatch, 25)
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
    _limit_steps(monkeypatch, 25)
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
    with pytest.raises(ValueError, match='nothing may be "auto"'):
        hb.train(problem, NETWORK, hb.AdLaLa(), steps=60, warm=10, folder=tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_without_dask_the_error_names_the_extra(problem, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "dask", None)
    monkeypatch.setitem(sys.modules, "dask.array", None)
    with pytest.raises(ModuleNotFoundError, match=r"heatbath\[dask\]"):
        hb.sweep(problem, NETWORK, GRID, folder=tmp_path / "run", **SIZES)
    assert list(tmp_path.iterdir()) == []  # it is said before the work


def test_progress_covers_all_blocks(problem, cut, threads):
    cut(7)
    seen = []
    hb.sweep(problem, NETWORK, GRID, executor=threads, progress=seen.append, **SIZES)
    assert [now.step for now in seen] == sorted(now.step for now in seen)
    assert seen[-1].step == seen[-1].steps == 60
    assert set(seen[-1].temperature) == {"hidden", "output"}
    assert 0 < seen[-1].loss < 10


def test_joblib_sets_the_workers(problem, alone, monkeypatch):
    asked = []
    for pool in (pools.ThreadPool, pools.ProcessPool):
        monkeypatch.setattr(pool, "submit", _recording(pool.submit, asked))
    with joblib.parallel_config("threading", n_jobs=2):
        run = hb.sweep(problem, NETWORK, GRID, **SIZES)
    xr.testing.assert_identical(run.data, alone.data)
    assert asked
    asked.clear()
    with joblib.parallel_config("threading", n_jobs=1):
        hb.sweep(problem, NETWORK, GRID, **SIZES)
    assert asked == []


def _recording(submit, tasks):
    """Return a `submit` that appends every task to a list."""

    def recording(self, task, content):
        tasks.append(task)
        return submit(self, task, content)

    return recording


@pytest.mark.parametrize("executor", ["dask", 3, object(), {}])
def test_what_is_no_executor_is_refused(problem, executor):
    with pytest.raises(TypeError, match=r"executor must be an executor of concurrent.futures, a dask"):
        hb.sweep(problem, NETWORK, GRID, executor=executor, **SIZES)


def test_without_ray_the_error_names_the_extra(problem, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ModuleNotFoundError, match=r"heatbath\[ray\]"):
        hb.sweep(problem, NETWORK, GRID, executor="ray", **SIZES)


def test_a_block_that_is_refused_or_cannot_be_written_is_no_fault_of_a_worker(problem, monkeypatch, tmp_path):
    def full(path, content):
        raise OSError(28, "No space left on device")

    def old(self, block):
        raise ValueError("it is of another run")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "add", old)
        with pytest.raises(RuntimeError, match="came back from a worker and cannot be taken: ValueError: it"):
            hb.sweep(problem, NETWORK, GRID, executor=AtOnce(), **SIZES)
    store = Store(make_plan(problem, NETWORK, GRID, steps=20, chains=2), tmp_path / "run")
    monkeypatch.setattr(store_module.atomic_write, "write", full)
    with pytest.raises(OSError, match="No space left"):
        BlockScheduler(pools.Pool(AtOnce()), store, 1, 4.0).run(None)


def test_a_finished_folder_is_read_by_another_version(problem, alone, cut, monkeypatch, tmp_path):
    pytest.importorskip("dask", reason="the extra dask is not installed")
    cut(28)
    hb.sweep(problem, NETWORK, GRID, folder=tmp_path / "run", **SIZES)
    monkeypatch.setattr(worker, "library_hash", lambda: "a later one")
    xr.testing.assert_identical(hb.load(tmp_path / "run").data.load(), alone.data)


def test_the_description_of_a_machine_has_a_hash_of_the_sources(tmp_path, monkeypatch, problem):
    plan = make_plan(problem, NETWORK, GRID, steps=20, chains=2)
    kinds = {"heatbath", "numba", "llvmlite", "numpy", "processor", "instructions"}
    assert set(machine(plan, ())) == kinds
    wide = make_plan(problem, hb.MLP((300, 300)), GRID, steps=20)
    assert machine(wide, ())["kernels"]
    (tmp_path / "own_methods.py").write_text("A = 1")
    monkeypatch.syspath_prepend(tmp_path)
    first = machine(plan, ("own_methods",))["methods"]
    (tmp_path / "own_methods.py").write_text("A = 2")
    assert machine(plan, ("own_methods",))["methods"] != first
    sys.modules.pop("own_methods")
    (tmp_path / "a.py").write_text("")
    (tmp_path / "b.py").write_text("")
    assert hash_files([tmp_path / "a.py"]) != hash_files([tmp_path / "b.py"])


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
    """What another process has stored until then is known."""
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


def test_means_forget_what_was_taken_away_however_large():
    def about(loss, heat):
        return About("", 0, 2, 0, 5, [], {}, "", 1.0, 0.0, loss, float("nan"), {"hidden": heat})

    means = Means()
    means.add(about(1e300, 1.0))
    means.add(about(0.5, 3.0))
    assert means.values()["temperature", "hidden"] == 2.0
    means.remove(about(1e300, 1.0))
    assert means.values() == {("loss",): 0.5, ("temperature", "hidden"): 3.0}


def test_each_block_that_had_to_compile_reports_it_once(problem, cut, monkeypatch):
    cut(14)
    told, hosts = [], ["one", "two"]

    def compiling(task, *others):
        block = compute(task, *others)
        about = block.about._replace(host=hosts.pop(0), compiled=3.0 * len(hosts))
        data = file.read(block.content, "the block")
        return block._replace(about=about, content=blocks.sealed_block(data, about))

    monkeypatch.setattr(pools, "compute", compiling)
    with reporting(told.append):
        hb.sweep(problem, NETWORK, GRID, executor=AtOnce(), **SIZES)
    assert [text for text in told if "once" in text] == ["one compiled for 3 s, once"]


def test_one_process_compiles_while_others_wait_and_do_not_count_that_as_work(problem, monkeypatch, tmp_path):
    monkeypatch.setattr(compile, "_FOLDER", str(tmp_path))  # where the lock is
    plan = make_plan(problem, NETWORK, GRID, steps=20, chains=2)
    shared, order, clock = SharedPlan.of_plan(plan), [], time.perf_counter
    compute(Task(shared.digest, (), 0, 8, 20), shared.content)
    with once():  # who has it asks no more
        compute(Task(shared.digest, (), 0, 8, 20), shared.content)
    _ready.clear()

    def wait():
        order.append("waits")
        about = compute(Task(shared.digest, (), 0, 8, 20), shared.content).about
        order.append("has it")
        assert about.compiled == 0
        seconds.append(about.seconds)

    seconds = []
    other = threading.Thread(target=wait)
    with once():
        other.start()
        while not order:
            time.sleep(0.001)
        time.sleep(0.1)
        order.append("compiled")
        began = clock()
    other.join()
    assert order == ["waits", "compiled", "has it"]
    assert seconds[0] <= clock() - began


def test_workers_are_those_in_use_or_this_process(problem, alone):
    executor = AtOnce()
    with pools.using(executor):
        run = hb.sweep(problem, NETWORK, GRID, **SIZES)
        with pools.using(None), joblib.parallel_config("threading", n_jobs=2):
            count = len(executor.tasks)
            assert pools.chosen_pool(None) is None
            hb.train(problem, NETWORK, hb.AdLaLa(), steps=20)
    xr.testing.assert_identical(run.data, alone.data)
    assert len(executor.tasks) == count > 0
    assert pools.chosen_pool(None) is None


@pytest.mark.parametrize("name", ["dask", "processes:0", "processes:x", "tcp:", "", "threads"])
def test_texts_that_name_no_executor_are_refused(name, tmp_path, capsys):
    with pytest.raises(SystemExit) as end:
        main(["sweep", "--executor", name, "--method", "lol", "--tau", "0,1", "--out", str(tmp_path / "run")])
    assert end.value.code == 2
    assert "the executor must be processes, processes:4" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.fixture
def processes_at_once(monkeypatch):
    """Replace the executor `processes:2` of the command line by one that computes at once, and return it."""
    executor = AtOnce()

    @contextmanager
    def open_executor(name):
        assert name == "processes:2"
        yield executor

    monkeypatch.setattr(pools, "open_executor", open_executor)
    monkeypatch.setattr(figures, "draw_figures", lambda *arguments: [])
    return executor


SMALL = ["--problem", "spirals", "--n-train", "40", "--n-test", "20", "--hidden", "5"]
LENGTH = ["--steps", "20", "--chains", "2"]


def exit_code(*arguments):
    """Return the exit code of the command line."""
    with pytest.raises(SystemExit) as end:
        main([*map(str, arguments)])
    return end.value.code


def test_the_command_line_takes_an_executor(tmp_path, processes_at_once, cut):
    cut(3)
    sweep = ["sweep", *SMALL, *LENGTH, "--method", "lol", "--tau", "1e-4,1e-3"]
    here, there = tmp_path / "here", tmp_path / "there"
    assert exit_code(*sweep, "--out", here) == 0
    assert exit_code(*sweep, "--out", there, "--executor", "processes:2") == 0
    assert processes_at_once.tasks == [range(3), range(3, 4)]
    xr.testing.assert_identical(hb.load(here / "run.nc").data, hb.load(there / "run.nc").data)
    assert exit_code("resume", there, "--steps", 20, "--executor", "processes:2") == 0
    assert len(processes_at_once.tasks) == 4
    assert exit_code("resume", here, "--steps", 20) == 0
    xr.testing.assert_identical(hb.load(here / "run.nc").data, hb.load(there / "run.nc").data)


def test_an_error_of_a_worker_is_one_line_on_the_command_line(tmp_path, processes_at_once, capsys):
    def fail(number):
        raise ValueError("on purpose")

    processes_at_once.fails = fail
    arguments = [*SMALL, *LENGTH, "--method", "lol", "--method", "adam:h=0.01", "--executor", "processes:2"]
    assert exit_code("compare", *arguments, "--out", tmp_path / "run") == 1
    lines = [line for line in capsys.readouterr().err.splitlines() if "worker" in line]
    assert len(lines) == 1
    assert "failed on a worker: ValueError: on purpose" in lines[0]


def test_experiments_run_on_an_executor(tmp_path, monkeypatch):
    executor = AtOnce()

    def run(settings, tell):
        problem = hb.datasets.spirals(n_train=40, n_test=20)
        return hb.sweep(problem, NETWORK, GRID, **SIZES).data[["theta"]]

    chosen = replace(paper.find("points"), run=run)
    monkeypatch.setattr(runner, "find", lambda name: chosen)
    monkeypatch.setattr(runner, "publish", lambda result: True)
    monkeypatch.setattr(runner, "fingerprint", lambda *_: "")
    (result,) = runner.reproduce(["points"], tmp_path, True, True, lambda name: None, executor)
    assert isinstance(result, runner.ExperimentResult)
    assert executor.tasks


def test_everything_else_works_without_dask_and_ray(tmp_path):
    """Neither is imported by anything but what needs it."""
    script = """
        import sys
        sys.modules.update(dict.fromkeys(["dask", "dask.array", "distributed", "ray"]))
        from concurrent.futures import ThreadPoolExecutor
        import heatbath as hb
        from heatbath.runs.distributed.pools import open_executor

        problem = hb.datasets.spirals(n_train=40, n_test=20)
        grid = hb.AdLaLa(h=0.25, sigma=[0.0, 1e-2], tau=[1e-5, 1e-3])
        sweep = lambda **manner: hb.sweep(problem, hb.MLP((5,)), grid, steps=20, chains=7, **manner)
        with ThreadPoolExecutor(2) as executor:
            run = sweep(executor=executor)
        run.save(sys.argv[1])
        assert hb.load(sys.argv[1]).data.identical(sweep().data)
        for extra, action in (
            ("ray", lambda: sweep(executor="ray")),
            ("dask", lambda: sweep(folder=sys.argv[1] + ".folder")),
            ("dask", lambda: open_executor("tcp://127.0.0.1:1").__enter__()),
        ):
            try:
                action()
            except ModuleNotFoundError as error:
                print(f"heatbath[{extra}]" in str(error))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "run.nc")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == "True\nTrue\nTrue\n", done.stderr


def own_data():
    x = np.random.default_rng(0).normal(size=(40, 2))
    return hb.datasets.from_arrays(x, (x[:, 0] > 0).astype(int), task="binary")


class Elsewhere(pools.Pool):
    """Workers that share nothing with this process, and count the pieces they are given."""

    def __init__(self):
        super().__init__(AtOnce())
        self.given, self.read, self.plans = [], [], {}

    def _give(self, checksum, piece):
        self.given.append(set(file.read(piece, checksum).variables))

        def read():
            self.read.append(checksum)
            return piece

        return read

    def submit(self, task, content):
        driver = dict(blocks.cached_plans)
        self.know(self.plans)
        try:
            return super().submit(task, content)
        finally:
            self.plans = dict(blocks.cached_plans)
            self.know(driver)

    @staticmethod
    def know(plans):
        """Replace the cached plans of this process, as if it were another one."""
        blocks.cached_plans.clear()
        blocks.cached_plans.update(plans)


def test_the_rungs_of_a_search_give_the_user_s_own_data_to_the_workers_once(monkeypatch):
    pool = Elsewhere()
    monkeypatch.setattr("heatbath.tuning.search.chosen_pool", lambda executor: pool)
    problem = own_data()
    options = dict(candidates=8, steps=64, chains=2, batch=10)
    found = hb.tune(problem, NETWORK, hb.LOL, executor="these", **options)
    with_data = [names for names in pool.given if "X_train" in names]
    assert len(pool.given) - len(with_data) == 4  # the plans of four rungs
    assert len(with_data) == 1
    assert not any({"X_train", "X_average"} & names for names in pool.given if names not in with_data)
    assert len(pool.read) == len(pool.given)  # each worker asks once, too
    assert pool._given == {}  # nothing stays with them after the search
    assert found.table.equals(hb.tune(problem, NETWORK, hb.LOL, **options).table)


def test_what_a_plan_and_its_data_are_made_of_is_checked_on_arrival():
    plan = make_plan(own_data(), NETWORK, GRID, steps=20, chains=2)
    shared = SharedPlan.of_plan(plan)
    first, second = shared.content
    blocks.cached_plans.clear()
    other = next(iter(SharedPlan.of_plan(make_plan(own_data(), NETWORK, GRID, steps=21)).content.values()))
    blocks.cached_plans.clear()
    for content in (
        {first: other, second: shared.content[second]},
        {first: shared.content[first], second: other},
    ):
        with pytest.raises(ValueError, match="the plan that has arrived is not the one that was sent"):
            compute(Task(shared.digest, (), 0, 8, 20), content)
    compute(Task(shared.digest, (), 0, 8, 20), shared.content)
    assert plan_differences(blocks.cached_plans[shared.digest].plan, plan) == []


@pytest.mark.parametrize("lazy", [True, False])
def test_a_run_is_resumed_in_a_folder(problem, cut, monkeypatch, tmp_path, lazy):
    """With another h, so that the names of the points are those of before; a killed call goes on."""
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


@pytest.mark.parametrize(("total", "kind"), [(40, "LaneGroup"), (3, "Alone")])
def test_all_blocks_of_a_plan_have_one_layout(problem, monkeypatch, total, kind):
    """However many threads this computer has, and however few chains are left for the last block."""
    plan = make_plan(problem, NETWORK, hb.LOL(), steps=20, chains=total)
    for threads in (1, 2, 64):
        monkeypatch.setenv("HEATBATH_THREADS", str(threads))
        sizes = Sizes(plan, 2, 2, 0)
        assert type(simulation.layout_of_blocks(plan)).__name__ == kind
        assert sizes.unit == 2 * simulation.layout_of_blocks(plan).lanes
        for chains in (range(total), range(total - 1, total), range(1, 3)):
            some = simulation.Simulation(plan, 0, None, 1, chains)
            assert [type(group.ensemble.layout).__name__ for group in some.groups] == [kind]


def test_a_second_kind_of_code_in_a_plan_is_compiled_by_one_process_at_a_time(problem, monkeypatch):
    """Tempering takes other code than the rest, and may be in a later block."""
    ladder = hb.schedules.SimulatedTempering([1e-3, 2e-3], weights=[0.0, 0.0])
    methods = {
        "plain": hb.LaLa(h=0.1, gamma=1.0, tau=1e-3),
        "tempered": hb.LaLa(h=0.1, gamma=1.0, tau=ladder),
    }
    plan = make_plan(problem, NETWORK, methods, steps=20, chains=2)
    shared, locked = SharedPlan.of_plan(plan), []

    @contextmanager
    def lock():
        locked.append(1)
        yield

    monkeypatch.setattr(worker, "once", lock)
    monkeypatch.setattr(worker, "_ready", set())
    monkeypatch.setattr(simulation.Simulation, "prepare", lambda self: None)
    monkeypatch.setattr(simulation.Simulation, "run", lambda self, *_, **options: False)
    counts = []
    for first in (0, 2, 0, 2):
        with pytest.raises(AbandonedError, match="interrupted"):
            compute(Task(shared.digest, (), first, first + 2, 20), shared.content)
        counts.append(len(locked))
    assert counts == [1, 2, 2, 2]


def test_ensembles_that_say_so_have_the_same_code(problem, alone):
    signatures = set(run_chains.signatures)
    plan = make_plan(problem, NETWORK, METHODS, steps=20, chains=40)
    some = simulation.Simulation(plan, 0, None, 1, range(120))
    assert len(some.groups) == 3
    (code,) = some.code
    some.prepare()
    first = set(run_chains.signatures)
    assert len(first - signatures) <= 1
    other = simulation.Simulation(alone.plan, 0, None, 1, range(28))
    assert other.code == {code}
    other.prepare()
    assert set(run_chains.signatures) == first


def _executor_that_answers(answer):
    """Return an executor with which `answer(compute, task)` is the result of a task."""

    class ChangedAnswers(AtOnce):
        def submit(self, function, task, *arguments):
            future = Future()
            try:
                future.set_result(answer(lambda task: function(task, *arguments), task))
            except Exception as error:
                future.set_exception(error)
            return future

    return ChangedAnswers()


def _content_of_other_chains(compute, task):
    size = task.stop - task.first
    return compute(task)._replace(content=compute(replace(task, first=0, stop=size)).content)


def _without_losses(compute, task):
    block = compute(task)
    return block._replace(about=block.about._replace(losses=None))


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (lambda compute, task: None, "it is no block, but None"),
        (lambda compute, task: ("a", 1), r"it is no block, but \('a', 1\)"),
        (
            lambda compute, task: compute(replace(task, stop=task.stop - 1)),
            r"it is chains-0-4-steps-0-60.nc, and the steps after 0 were asked for",
        ),
        (
            lambda compute, task: compute(replace(task, first=task.first + 1, stop=task.stop + 1)),
            r"it is chains-1-6-",
        ),
        (lambda compute, task: compute(replace(task, until=0)), "it ends at step 0, and 1 to 60"),
        (_content_of_other_chains, r"chains-0-5-.* its file is of another block"),
        (_without_losses, "or describes it differently"),
        (lambda compute, task: compute(task)._replace(content=b""), "is not a run file"),
        (
            lambda compute, task: compute(replace(task, state=b"x")),
            "failed on a worker.*the state is not a run file",
        ),
    ],
)
def test_what_is_not_the_block_that_was_asked_for_is_refused(problem, cut, answer, text):
    cut(5)
    with pytest.raises(RuntimeError, match=rf"chains \d+ to \d+ .*{text}.*; \d+ of 28 chains are done"):
        hb.sweep(problem, NETWORK, GRID, executor=_executor_that_answers(answer), **SIZES)


def test_the_error_of_a_broken_executor_names_the_block(problem, tmp_path):
    with ThreadPoolExecutor(1) as ended:
        pass
    with pytest.raises(
        RuntimeError,
        match=r"chains 0 to 15 could not be given to the executor: RuntimeError: .*after shutdown; 0 of 28",
    ):
        hb.sweep(problem, NETWORK, GRID, executor=ended, checkpoint=tmp_path / "run.nc", **SIZES)

    class NoFutures(Executor):
        def submit(self, function, *others):
            return "done"

    with pytest.raises(RuntimeError, match="could not be given to the executor: AttributeError"):
        hb.sweep(problem, NETWORK, GRID, executor=NoFutures(), **SIZES)
    run = hb.sweep(problem, NETWORK, GRID, executor=AtOnce(), checkpoint=tmp_path / "run.nc", **SIZES)
    assert run.finished


def test_a_block_takes_one_thread_unless_more_are_said(problem, cut, monkeypatch):
    cut(14)
    counts, own = [], simulation.Simulation.__init__

    def noting(self, plan, step, before, threads, *others):
        counts.append(threads)
        own(self, plan, step, before, threads, *others)

    monkeypatch.setattr(simulation.Simulation, "__init__", noting)
    hb.sweep(problem, NETWORK, GRID, executor=AtOnce(), **SIZES)
    hb.sweep(problem, NETWORK, GRID, executor=AtOnce(), threads=2, **SIZES)
    assert counts == [1, 1, 2, 2]


def test_processes_are_as_many_as_their_name_says():
    with pools.open_executor("processes:3") as executor:
        assert pools.chosen_pool(executor).workers(1) == 3
    with pools.open_executor("processes") as executor:
        assert pools.chosen_pool(executor).workers(1) == os.cpu_count()


def test_a_study_asks_the_same_on_an_executor(threads):
    optuna = pytest.importorskip("optuna", reason="the extra optuna is not installed")
    optuna.logging.set_verbosity(optuna.logging.ERROR)

    def found(**manner):
        study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=3))
        options = dict(candidates=4, steps=64, chains=2, batch=10, study=study)
        return hb.tune(own_data(), NETWORK, hb.LOL, **options, **manner).table

    assert found(executor=threads).equals(found())


def test_processors_with_different_instructions_are_distinguished(monkeypatch):
    def found(**features):
        monkeypatch.setattr(worker.llvmlite.binding, "get_host_cpu_features", lambda: features)
        vector_instructions.cache_clear()
        return vector_instructions()

    try:
        assert found(avx2=True, fma=True, avx512f=True, aes=True) == "avx2 avx512f fma"
        assert found(avx2=True, fma=True, avx512f=False) == "avx2 fma"

        def unknown():
            raise RuntimeError("on purpose")

        monkeypatch.setattr(worker.llvmlite.binding, "get_host_cpu_features", unknown)
        vector_instructions.cache_clear()
        assert vector_instructions() == "unknown"
    finally:
        vector_instructions.cache_clear()
