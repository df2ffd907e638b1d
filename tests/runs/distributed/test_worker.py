"""Workers: what they get, what they compile, and what their bits depend on."""

import sys
import threading
import time
from contextlib import contextmanager

import pytest

import heatbath as hb
from heatbath.engine import compile
from heatbath.engine.compile import once, reporting
from heatbath.runs import file, simulation
from heatbath.runs.continuation import plan_differences
from heatbath.runs.distributed import block as blocks
from heatbath.runs.distributed import pools, worker
from heatbath.runs.distributed.block import AbandonedError, SharedPlan, Task
from heatbath.runs.distributed.worker import _ready, compute, hash_files, machine, vector_instructions
from heatbath.runs.plan import make_plan
from tests.runs.distributed import GRID, NETWORK, SIZES, AtOnce, own_data


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


def test_a_task_that_nobody_waits_for_ends_within_a_call_of_compiled_code(problem):
    plan = make_plan(problem, NETWORK, GRID, steps=10**9, chains=2, record=1)
    shared, asked = SharedPlan.of_plan(plan), []

    def wanted():
        asked.append(1)
        return len(asked) < 3

    with pytest.raises(AbandonedError, match="chains 1 to 3"):
        compute(Task(shared.digest, (), 1, 4, 10**9), shared.content, wanted)


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
