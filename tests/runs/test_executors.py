"""Plans in blocks: the same bits, whoever computes them, whatever is lost on the way."""

import importlib
import multiprocessing
import os
import sys
import textwrap
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager

import joblib
import numpy as np
import pytest
import xarray as xr

import heatbath as hb
from heatbath.methods.method import _known
from heatbath.runs import blocks, dataset, executors, file
from heatbath.runs.blocks import About, OtherBits, Shared, Stopped, Store, Task, compute
from heatbath.runs.plan import make_plan
from heatbath.runs.simulation import Interrupted

NETWORK = hb.Dense((5,))
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
    """Have plans cut into blocks of so many chains."""

    def into(size):
        monkeypatch.setattr(executors.Sizes, "chains", lambda self, left: size)

    return into


@pytest.fixture
def threads():
    with ThreadPoolExecutor(2) as executor:
        yield executor


class AtOnce(Executor):
    """Does what it is given, in this thread, and counts."""

    def __init__(self, fails=lambda number: None):
        self.tasks, self.fails = [], fails

    def submit(self, function, task, *others):
        future = Future()
        self.tasks.append(range(task.first, task.stop))
        try:
            self.fails(len(self.tasks))
            future.set_result(function(task, *others))
        except Exception as error:
            future.set_exception(error)
        return future


@pytest.mark.parametrize("size", [28, 14, 4])
def test_blocks_of_any_size_have_the_bits_of_the_whole(problem, alone, threads, cut, size):
    cut(size)
    run = hb.sweep(problem, NETWORK, GRID, executor=threads, **SIZES)
    xr.testing.assert_identical(run.data, alone.data)
    assert run.plan.differences(alone.plan) == []


def test_methods_of_other_kinds_are_in_one_block(problem, threads, cut):
    cut(5)
    options = dict(steps=40, chains=4, record=2, weights=True)
    run = hb.compare(problem, NETWORK, METHODS, executor=threads, **options)
    xr.testing.assert_identical(run.data, hb.compare(problem, NETWORK, METHODS, **options).data)


def test_data_of_one_s_own_a_start_a_posterior_and_float64_go_along(cut, threads):
    cut(3)
    x = np.random.default_rng(0).normal(size=(30, 2))
    problem = hb.datasets.from_arrays(x, x[:, 0] ** 2, task="regression", standardise=True)
    partition = hb.LaLa(h=[0.05, 0.1], gamma=1.0, posterior=hb.Posterior(prior=1.0))
    start = np.random.default_rng(1).normal(size=(2 * 4, 21))
    options = dict(steps=60, batch=10, chains=4, record=2, samples=2, start=start, dtype="float64")
    options["momenta"] = "thermal"
    run = hb.sweep(problem, NETWORK, partition, executor=threads, **options)
    xr.testing.assert_identical(run.data, hb.sweep(problem, NETWORK, partition, **options).data)


def test_sets_of_data_go_by_the_number_of_the_chain(threads, cut):
    cut(3)
    problem = hb.datasets.spirals(n_train=30, n_test=10, draws=5)
    grid = hb.AdLaLa(tau=[1e-5, 1e-3])
    run = hb.sweep(problem, NETWORK, grid, steps=20, chains=7, executor=threads)
    xr.testing.assert_identical(run.data, hb.sweep(problem, NETWORK, grid, steps=20, chains=7).data)


def test_a_block_whose_chains_all_diverge_is_a_part_of_the_run(problem, threads, cut, monkeypatch):
    cut(4)
    _in_time(monkeypatch, 20)
    wild = hb.Partition(hb.SGD(), h=[0.1, 1e30])
    with pytest.warns(hb.Diverged) as here:
        run = hb.sweep(problem, NETWORK, wild, steps=30, chains=4, executor=threads)
    with pytest.warns(hb.Diverged) as there:
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
        RuntimeError, match=r"chains 10 to 14 failed on a worker: ValueError: on purpose; .*goes on"
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
    with pytest.raises(ValueError, match="there twice"):
        Store(plan, tmp_path).add(compute(Task(shared.digest, (), 2, 4, 20), shared.content))
    with pytest.raises(ValueError, match="begins at step 0, and what there is of these chains ends at 20"):
        Store(plan, tmp_path).add(block)
    assert [one.name for one in tmp_path.glob("chains*")] == [path.name]
    damaged = block.content[:200] + bytes([block.content[200] ^ 1]) + block.content[201:]
    with pytest.raises(ValueError, match="damaged"):
        Store(plan).add(block._replace(content=damaged))
    path.write_bytes(damaged)
    with pytest.raises(ValueError, match="damaged"):
        Store(plan, tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("")
    with pytest.raises(FileExistsError, match=r"other things in it \(letter.txt\)"):
        Store(plan, tmp_path / "other")
    with pytest.raises(NotADirectoryError, match="is a file"):
        Store(plan, path)


@pytest.mark.parametrize(("name", "outcome"), [("heatbath", ValueError), ("lanes", OtherBits)])
def test_blocks_that_may_have_other_bits_are_refused_or_told(problem, monkeypatch, name, outcome):
    plan = make_plan(problem, NETWORK, GRID, steps=20, chains=2)
    shared = Shared.of(plan)
    block = compute(Task(shared.digest, (), 0, 8, 20), shared.content)
    here = blocks.machine() | {name: "another"}
    monkeypatch.setattr(blocks, "machine", lambda: here)
    store = Store(plan)
    if outcome is ValueError:
        with pytest.raises(ValueError, match="another version of heatbath"):
            store.add(block)
    else:
        with pytest.warns(OtherBits, match="lanes 16.* this computer .*lanes another"):
            store.add(block)
        assert store.done == 8


def test_ctrl_c_leaves_no_task_behind_and_the_same_call_goes_on(problem, alone, cut, tmp_path):
    cut(4)
    path = tmp_path / "sweep.nc"

    def interrupt(now):
        if now.step > 0:
            raise KeyboardInterrupt

    with ThreadPoolExecutor(1) as executor:
        manner = dict(executor=executor, checkpoint=path, progress=interrupt)
        told = pytest.warns(
            Interrupted, match=r"what is done, \d+ of 28 chains to the end, is in .*the same call goes on"
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
    shared, asked = Shared.of(plan), []

    def wanted():
        asked.append(1)
        return len(asked) < 3

    with pytest.raises(Stopped, match="chains 1 to 3"):
        compute(Task(shared.digest, (), 1, 4, 10**9), shared.content, wanted)


def test_a_lost_worker_s_block_is_computed_by_another(problem, alone, cut, monkeypatch):
    cut(7)
    monkeypatch.setattr(executors.Pool, "lost", lambda self, error: isinstance(error, OSError))

    def second(number):
        if number in (2, 3):
            raise OSError("the worker is gone")

    executor = AtOnce(second)
    run = hb.sweep(problem, NETWORK, GRID, executor=executor, **SIZES)
    xr.testing.assert_identical(run.data, alone.data)
    assert len(executor.tasks) == 6


def test_sizes_follow_the_time_that_blocks_take_and_let_all_workers_end_together(problem):
    plan = make_plan(problem, NETWORK, GRID, steps=10, chains=1000)
    sizes = executors.Sizes(plan, 4, 1, 0)
    assert sizes.unit in (1, 8, 16)
    assert executors.Sizes(plan, 4, 3, 0).unit == 3 * sizes.unit
    assert sizes.chains(4000) == sizes.unit
    half = About("", 0, sizes.unit, 0, 5, [], {}, "", 0.5, 9.0, 0.0, 0.0, {})
    sizes.note(half)  # in half a second, after some of compilation
    assert sizes.chains(4000) == executors.SECONDS * sizes.unit
    assert sizes.chains(4 * sizes.unit) == sizes.unit
    sizes.note(half, 2 * executors.SECONDS)  # a mean of SECONDS to take a block, from each of four workers
    assert sizes.seconds == 8 * executors.SECONDS


def test_sizes_are_limited_by_the_bytes_of_the_results(problem, monkeypatch):
    plan = make_plan(problem, NETWORK, GRID, steps=1000, chains=100, record=1000, weights=True)
    sizes = executors.Sizes(plan, 1, 1, 0)
    sizes.note(About("", 0, sizes.unit, 0, 1000, [], {}, "", 1e-9, 0.0, 0.0, 0.0, {}))
    assert sizes.chains(400) == 400 // sizes.unit * sizes.unit
    assert sizes.until(400, 0) == 1000
    a_record, state = 8 * 2 * (1 + 1 + 1) + 8 * 1 + 4 * 21, 4 * 2 * 21 + 8 * 3 + 8  # and the steps of records
    total = sum(dataset.sizes(plan, 1000, range(16)).values())
    assert abs(total - 16 * (1000 * a_record + state)) <= 8 * 1000 + 16 * 64
    monkeypatch.setattr(executors, "LARGEST", total // 10)
    assert sizes.chains(400) == sizes.unit
    first = sizes.until(16, 0)
    assert 90 <= first <= 100
    assert 2 * first - 1 <= sizes.until(16, first) <= 2 * first + 1
    monkeypatch.setattr(executors, "LARGEST", 1)
    assert sizes.until(16, 300) == 301


def _in_time(monkeypatch, steps):
    """Have blocks cut in time, too, after so many steps."""
    monkeypatch.setattr(
        executors.Sizes, "until", lambda self, chains, step: min(step + steps, self.plan.steps)
    )


@pytest.mark.parametrize("steps", [25, 59])
def test_blocks_that_are_cut_in_time_have_the_bits_of_the_whole(problem, alone, cut, monkeypatch, steps):
    cut(20)
    _in_time(monkeypatch, steps)
    executor = AtOnce()
    run = hb.sweep(problem, NETWORK, GRID, executor=executor, **SIZES)
    xr.testing.assert_identical(run.data, alone.data)
    assert len(executor.tasks) == 2 * -(-60 // steps)


def test_a_block_that_takes_long_comes_back_and_goes_on(problem):
    plan = make_plan(problem, NETWORK, GRID, steps=10**9, chains=2, record=[1, 10**9])
    shared = Shared.of(plan)
    block = compute(Task(shared.digest, (), 1, 4, 10**9, seconds=0.01), shared.content)
    about = block.about
    assert About.read(file.opened(block.content, "the block").attrs["block"]) == about
    assert file.opened(block.state, "the state").sizes["chain"] == 3
    assert 0 == about.begin < about.end < 10**9
    assert about.work == 3 * about.end


def test_a_run_goes_on_with_others(problem, cut, monkeypatch):
    """Only the state of the chains goes to the workers, not what was noted before."""
    cut(3)
    _in_time(monkeypatch, 15)
    start = hb.sweep(problem, NETWORK, GRID, steps=30, chains=3, record=3, samples=3)
    executor, changed = AtOnce(), hb.AdLaLa(h=0.125, sigma=[0.0, 1e-2], tau=[1e-5, 1e-3])
    longer = start.resume(30, changed, executor=executor)
    xr.testing.assert_identical(longer.data, start.resume(30, changed).data)
    assert len(executor.tasks) == 4 * 2
    assert longer.plan.differences(start.resume(30, changed).plan) == []


def test_a_run_in_a_folder_is_the_same_and_is_not_in_memory(problem, alone, cut, monkeypatch, tmp_path):
    pytest.importorskip("dask", reason="the extra dask is not installed")
    cut(9)
    _in_time(monkeypatch, 25)
    seen = []
    run = hb.sweep(problem, NETWORK, GRID, folder=tmp_path / "run", progress=seen.append, **SIZES)
    assert seen[-1].step == 60
    assert all(run.data[name].chunks for name in ("theta", "loss", "xi", "samples", "average"))
    xr.testing.assert_identical(run.data.load(), alone.data)
    again = hb.load(tmp_path / "run")
    assert again.data["samples"].chunks == ((9, 9, 9, 1), (1, 1, 1), (21,))
    xr.testing.assert_identical(again.data.load(), alone.data)
    assert again.plan.differences(alone.plan) == []
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


def test_a_folder_that_is_not_finished_is_gone_on_with(problem, alone, cut, monkeypatch, tmp_path):
    pytest.importorskip("dask", reason="the extra dask is not installed")
    cut(9)
    _in_time(monkeypatch, 25)
    path = tmp_path / "run"

    def seventh(number):
        if number == 7:
            raise ValueError("on purpose")

    with pytest.raises(RuntimeError, match=r"on purpose; .*goes on"):
        hb.sweep(problem, NETWORK, GRID, executor=AtOnce(seventh), folder=path, **SIZES)
    there = {one.name for one in path.glob("chains*")}
    with pytest.raises(ValueError, match=r"has \d+ of 28 chains to the last step: call what began it again"):
        hb.load(path)
    with pytest.raises(ValueError, match="is of another run, with other seed"):
        hb.sweep(problem, NETWORK, GRID, folder=path, seed=1, **SIZES)
    executor = AtOnce()
    run = hb.sweep(problem, NETWORK, GRID, executor=executor, folder=path, **SIZES)
    xr.testing.assert_identical(run.data.load(), alone.data)
    assert len(executor.tasks) == 4 * 3 - len(there)
    assert not run.data["died"].chunks


def test_two_at_once_do_not_compute_for_the_same_folder(problem, tmp_path):
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


def test_progress_tells_of_all_blocks(problem, cut, threads):
    cut(7)
    seen = []
    hb.sweep(problem, NETWORK, GRID, executor=threads, progress=seen.append, **SIZES)
    assert [now.step for now in seen] == sorted(now.step for now in seen)
    assert seen[-1].step == seen[-1].steps == 60
    assert set(seen[-1].temperature) == {"hidden", "output"}
    assert 0 < seen[-1].loss < 10


def test_joblib_says_who_computes(problem, alone, monkeypatch):
    asked = []
    monkeypatch.setattr(executors.Pool, "submit", _noting(executors.Pool.submit, asked))
    with joblib.parallel_config("threading", n_jobs=2):
        run = hb.sweep(problem, NETWORK, GRID, **SIZES)
    xr.testing.assert_identical(run.data, alone.data)
    assert asked
    asked.clear()
    with joblib.parallel_config("threading", n_jobs=1):
        hb.sweep(problem, NETWORK, GRID, **SIZES)
    assert asked == []


def _noting(submit, asked):
    def noting(self, task, content):
        asked.append(task)
        return submit(self, task, content)

    return noting


@pytest.mark.parametrize("executor", ["dask", 3, object(), {}])
def test_what_is_no_executor_is_refused(problem, executor):
    with pytest.raises(TypeError, match=r"executor must be an executor of concurrent.futures, a dask"):
        hb.sweep(problem, NETWORK, GRID, executor=executor, **SIZES)


def test_without_ray_the_error_names_the_extra(problem, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ModuleNotFoundError, match=r"heatbath\[ray\]"):
        hb.sweep(problem, NETWORK, GRID, executor="ray", **SIZES)


OUTSIDE = """
    from dataclasses import dataclass
    from typing import ClassVar

    import numpy as np

    import heatbath as hb
    from heatbath import operations
    from heatbath.checks import NON_NEGATIVE
    from heatbath.letters import DRIFT, KICK, Letter
    from heatbath.methods import Method, gaussian_prior, varying


    def refresh(moment):
        moment.p = np.sqrt(moment.tau) * moment.R


    @hb.register
    @dataclass(frozen=True, repr=False)
    class Elsewhere(Method):
        tau: float = varying(NON_NEGATIVE, "Temperature.", tempered=True)
        word: str = "RBAB"
        weight_decay: float = gaussian_prior()
        letters: ClassVar = {
            "A": DRIFT,
            "B": KICK,
            "R": Letter(
                refresh, ((operations.S, lambda values: [0.0, 1.0, values.root_tau]),), draws=True, reads=True
            ),
        }
"""


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """A method in a module that is not part of the package, where workers find it, too."""
    (tmp_path / "outside_methods.py").write_text(textwrap.dedent(OUTSIDE))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    yield importlib.import_module("outside_methods").Elsewhere
    _known.pop("Elsewhere")
    sys.modules.pop("outside_methods")


@contextmanager
def processes():
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as executor:
        yield executor


@contextmanager
def dask():
    distributed = pytest.importorskip("distributed", reason="the extra dask is not installed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, host="127.0.0.1"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@contextmanager
def ray():
    module = pytest.importorskip("ray", reason="the extra ray is not installed")
    module.init(num_cpus=2, include_dashboard=False, logging_level="error", log_to_driver=False)
    try:
        yield module
    finally:
        module.shutdown()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of other people's code
@pytest.mark.parametrize("workers", [processes, dask, ray])
def test_the_workers_of_others_compute_the_same_bits(outside, workers, cut):
    x = np.random.default_rng(0).normal(size=(30, 2))
    own = hb.datasets.from_arrays(x, (x[:, 0] > 0).astype(int), task="binary")
    methods = {"Elsewhere": hb.Partition(outside(tau=1e-3), h=0.1), "AdLaLa": hb.AdLaLa()}
    options = dict(steps=40, batch=10, chains=4, record=2)
    expected = hb.compare(own, NETWORK, methods, **options).data
    with workers() as executor:
        for size in (8, 4, 1):
            cut(size)
            run = hb.compare(own, NETWORK, methods, executor=executor, **options)
            xr.testing.assert_identical(run.data, expected)
