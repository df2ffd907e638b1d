"""Plans in blocks: the same bits, whoever computes them, whatever is lost on the way."""

import importlib
import multiprocessing
import os
import sys
import textwrap
import threading
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager

import joblib
import numpy as np
import pytest
import xarray as xr

import heatbath as hb
from heatbath.methods.method import _known
from heatbath.runs import blocks, executors
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
        monkeypatch.setattr(executors.Sizes, "next", lambda self, left: size)

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


@pytest.mark.parametrize("size", [28, 14, 4, 1])
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


def test_a_block_whose_chains_all_diverge_is_a_part_of_the_run(problem, threads, cut):
    cut(4)
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
    done = {int(name.stem.split("-")[1]) for name in (tmp_path / "sweep.nc.blocks").iterdir()}
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
    shared = Shared.of(plan)
    content = compute(Task(shared.digest, (), 0, 3), shared.content)
    Store(plan, shared.digest, tmp_path).add(content)
    (path,) = tmp_path.iterdir()
    assert Store(plan, shared.digest, tmp_path).missing() == [range(3, 8)]
    with pytest.raises(ValueError, match="is of another run: it is left alone"):
        Store(plan, Shared.of(make_plan(problem, NETWORK, GRID, steps=21, chains=2)).digest, tmp_path)
    with pytest.raises(ValueError, match="twice"):
        Store(plan, shared.digest, tmp_path).add(compute(Task(shared.digest, (), 2, 4), shared.content))
    (tmp_path / "chains-2-4.nc").unlink()
    path.write_bytes(content[:200] + bytes([content[200] ^ 1]) + content[201:])
    with pytest.raises(ValueError, match="damaged"):
        Store(plan, shared.digest, tmp_path)


@pytest.mark.parametrize(("name", "outcome"), [("heatbath", ValueError), ("lanes", OtherBits)])
def test_blocks_that_may_have_other_bits_are_refused_or_told(problem, monkeypatch, name, outcome):
    plan = make_plan(problem, NETWORK, GRID, steps=20, chains=2)
    shared = Shared.of(plan)
    content = compute(Task(shared.digest, (), 0, 8), shared.content)
    here = blocks.machine() | {name: "another"}
    monkeypatch.setattr(blocks, "machine", lambda: here)
    store = Store(plan, shared.digest, None)
    if outcome is ValueError:
        with pytest.raises(ValueError, match="another version of heatbath"):
            store.add(content)
    else:
        with pytest.warns(OtherBits, match="lanes 16.* this computer .*lanes another"):
            store.add(content)
        assert store.done == 8


def test_ctrl_c_leaves_no_task_behind_and_the_same_call_goes_on(problem, alone, cut, tmp_path):
    cut(4)
    path = tmp_path / "sweep.nc"

    def interrupt(now):
        if now.step > 0:
            raise KeyboardInterrupt

    with ThreadPoolExecutor(1) as executor:
        manner = dict(executor=executor, checkpoint=path, progress=interrupt)
        told = pytest.warns(Interrupted, match=r"of 28 chains that are done are in .*the same call goes on")
        with told, pytest.raises(KeyboardInterrupt):
            hb.sweep(problem, NETWORK, GRID, **manner, **SIZES)
        assert executor._work_queue.empty()
        assert executor.submit(lambda: "free").result() == "free"
    assert 1 <= len(list((tmp_path / "sweep.nc.blocks").iterdir())) < 7
    run = hb.sweep(problem, NETWORK, GRID, executor=AtOnce(), checkpoint=path, **SIZES)
    xr.testing.assert_identical(run.data, alone.data)


def test_a_task_that_nobody_waits_for_ends_within_a_call_of_compiled_code(problem):
    plan = make_plan(problem, NETWORK, GRID, steps=10**9, chains=2, record=1)
    shared, asked = Shared.of(plan), threading.Event()
    with pytest.raises(Stopped, match="chains 1 to 3"):
        compute(Task(shared.digest, (), 1, 4), shared.content, lambda: asked.is_set() or asked.set())


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
    sizes = executors.Sizes(plan, 4)
    assert sizes.unit in (1, 8, 16)
    assert sizes.next(4000) == sizes.unit
    about = About("", 0, sizes.unit, [], {}, "", 1.5, 0.5, 0.0, 0.0, {})
    sizes.note(about)  # a second without the compilation
    assert sizes.next(4000) == executors.SECONDS * sizes.unit
    assert sizes.next(4 * sizes.unit) == sizes.unit


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
