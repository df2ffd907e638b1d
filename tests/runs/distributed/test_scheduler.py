"""Plans in blocks: the same bits, whoever computes them, whatever is lost on the way."""

import os
import pickle
import select
import subprocess
import sys
import textwrap
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
from heatbath._internal.warnings import InterruptedWarning
from heatbath.cli import main
from heatbath.cli.report import figures
from heatbath.engine.loop import run_chains
from heatbath.paper import runner
from heatbath.runs import dataset, file, simulation
from heatbath.runs.continuation import plan_differences
from heatbath.runs.distributed import block as blocks
from heatbath.runs.distributed import pools, scheduler
from heatbath.runs.distributed import store as store_module
from heatbath.runs.distributed.block import About, SharedPlan, Task
from heatbath.runs.distributed.scheduler import SECONDS, BlockScheduler, BlockSizes, Means
from heatbath.runs.distributed.store import Store
from heatbath.runs.distributed.worker import compute
from heatbath.runs.plan import make_plan
from tests.runs.distributed import GRID, NETWORK, SIZES, AtOnce, limit_steps, own_data

METHODS = {
    "LOL": hb.LOL(),
    "Adam": hb.Partition(hb.Adam(), h=0.01),
    "SGLD": hb.Partition(hb.SGLD(0.01), h=0.1),
}


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
    limit_steps(monkeypatch, 20)
    wild = hb.Partition(hb.SGD(), h=[0.1, 1e30])
    with pytest.warns(hb.DivergedWarning) as here:
        run = hb.sweep(problem, NETWORK, wild, steps=30, chains=4, executor=threads)
    with pytest.warns(hb.DivergedWarning) as there:
        expected = hb.sweep(problem, NETWORK, wild, steps=30, chains=4)
    xr.testing.assert_identical(run.data, expected.data)
    assert [str(w.message) for w in here] == [str(w.message) for w in there]
    with pytest.raises(FloatingPointError, match="all chains diverged"):
        hb.sweep(problem, NETWORK, hb.Partition(hb.SGD(), h=[1e29, 1e30]), steps=30, executor=threads)


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
    """A worker that is killed while it sends more than a pipe holds leaves a part of it there.

    `concurrent.futures` then waits for the rest for ever.
    """
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
    sizes = BlockSizes(plan, 4, 1, 0)
    assert sizes.unit in (1, 8, 16)
    assert BlockSizes(plan, 4, 3, 0).unit == 3 * sizes.unit
    assert sizes.chains(4000) == sizes.unit
    half = About("", 0, sizes.unit, 0, 5, [], {}, "", 0.5, 9.0, 0.0, 0.0, {})
    sizes.learn(half)  # in half a second, after some of compilation
    assert sizes.chains(4000) == SECONDS * sizes.unit
    assert sizes.chains(4 * sizes.unit) == sizes.unit
    sizes.learn(half, 2 * SECONDS)  # a mean of SECONDS to take a block, from each of four workers
    assert sizes.seconds == 8 * SECONDS


def test_sizes_are_limited_by_the_bytes_of_the_results(problem, monkeypatch):
    plan = make_plan(problem, NETWORK, GRID, steps=1000, chains=100, record=1000, weights=True)
    sizes = BlockSizes(plan, 1, 1, 0)
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


@pytest.mark.parametrize("steps", [25, 59])
def test_blocks_that_are_cut_in_time_have_the_bits_of_the_whole(problem, alone, cut, monkeypatch, steps):
    cut(20)
    limit_steps(monkeypatch, steps)
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
    limit_steps(monkeypatch, 15)
    start = hb.sweep(problem, NETWORK, GRID, steps=30, chains=3, record=3, samples=3)
    executor, changed = AtOnce(), hb.AdLaLa(h=0.125, sigma=[0.0, 1e-2], tau=[1e-5, 1e-3])
    longer = start.resume(30, changed, executor=executor)
    xr.testing.assert_identical(longer.data, start.resume(30, changed).data)
    assert len(executor.tasks) == 4 * 2
    assert plan_differences(longer.plan, start.resume(30, changed).plan) == []


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


def test_means_forget_what_was_taken_away_however_large():
    def about(loss, heat):
        return About("", 0, 2, 0, 5, [], {}, "", 1.0, 0.0, loss, float("nan"), {"hidden": heat})

    means = Means()
    means.add(about(1e300, 1.0))
    means.add(about(0.5, 3.0))
    assert means.values()["temperature", "hidden"] == 2.0
    means.add(about(1e300, 1.0), sign=-1)
    assert means.values() == {("loss",): 0.5, ("temperature", "hidden"): 3.0}


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
    with pools.using(executor):
        (result,) = runner.reproduce(["points"], tmp_path, True, True, lambda name: None)
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


class Elsewhere(pools.Pool):
    """A stand-in for workers that share nothing with this process; it counts the pieces they get."""

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


@pytest.mark.parametrize(("total", "kind"), [(40, "LaneGroup"), (3, "Alone")])
def test_all_blocks_of_a_plan_have_one_layout(problem, monkeypatch, total, kind):
    """It depends neither on the threads of this computer nor on the chains left for the last block."""
    plan = make_plan(problem, NETWORK, hb.LOL(), steps=20, chains=total)
    for threads in (1, 2, 64):
        monkeypatch.setenv("HEATBATH_THREADS", str(threads))
        sizes = BlockSizes(plan, 2, 2, 0)
        assert type(simulation.layout_of_blocks(plan)).__name__ == kind
        assert sizes.unit == 2 * simulation.layout_of_blocks(plan).lanes
        for chains in (range(total), range(total - 1, total), range(1, 3)):
            some = simulation.Simulation(plan, 0, None, 1, chains)
            assert [type(group.ensemble.layout).__name__ for group in some.groups] == [kind]


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
