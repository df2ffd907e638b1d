"""Large steps on the threads of torch's OpenMP, on our own pool, and on one: the same bits, and no hangs."""

import ctypes
import json
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch

import heatbath as hb
from heatbath.engine.tensor_step import PIECE
from heatbath.engine.threads import spread
from heatbath.torch.optim import numba_step
from heatbath.torch.optim.optimizer import Partitioned
from heatbath.torch.optim.state import StepTensors
from tests.patience import PATIENCE

SIZES = 100_000, 3, 77_777, 40_000  # more pieces than one thread is left with
openmp = pytest.mark.skipif(
    not (sys.platform == "linux" and torch.backends.openmp.is_available()), reason="torch has no OpenMP here"
)


def parameters_after(method, kind=torch.float32, steps=3):
    """Return θ after some steps from a fixed start."""
    generator = torch.Generator().manual_seed(1)
    params = [torch.nn.Parameter(torch.randn(n, generator=generator, dtype=kind)) for n in SIZES]
    for p in params:
        p.grad = torch.randn(len(p), generator=generator, dtype=kind)
    optimizer = Partitioned([{"params": params, "method": method}], 1e-2, seed=3)
    for _ in range(steps):
        optimizer.step()
    return np.concatenate([p.detach().numpy() for p in params])


@pytest.fixture
def teams(monkeypatch):
    """Return a list that records the team of every call of compiled code, and each use of the pool."""
    noted = []
    step = numba_step.fused_step

    def noting(like, team, *rest):
        noted.append(("openmp" if team[0] else "here", team[1]))
        step(like, team, *rest)

    def noting_pool(work, count, threads, even):
        noted.append(("pool", threads))
        spread(work, count, threads, even)

    monkeypatch.setattr(numba_step, "fused_step", noting)
    monkeypatch.setattr(numba_step, "spread", noting_pool)
    return noted


# Steps


@openmp
@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "method", [hb.Langevin(1.0, 1e-3), hb.AdaptiveLangevin(1e-3, 0.05, 0.1), hb.Adam()], ids=lambda m: m.title
)
def test_openmp_and_the_pool_and_one_thread_give_the_same_bits(monkeypatch, teams, method, kind):
    monkeypatch.setenv("HEATBATH_THREADS", "3")
    on_openmp = parameters_after(method, kind)
    assert set(teams) == {("openmp", 3)}
    teams.clear()
    with monkeypatch.context() as patch:
        patch.setattr(numba_step, "parallel_region", lambda: 0)
        on_the_pool = parameters_after(method, kind)
    assert ("pool", 3) in teams
    teams.clear()
    monkeypatch.setenv("HEATBATH_THREADS", "1")
    alone = parameters_after(method, kind)
    assert set(teams) == {("here", 1)}
    np.testing.assert_array_equal(on_openmp, alone)
    np.testing.assert_array_equal(on_the_pool, alone)


@openmp
def test_a_step_has_as_many_threads_as_torch_unless_heatbath_threads_says_otherwise(monkeypatch, teams):
    monkeypatch.delenv("HEATBATH_THREADS", raising=False)
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            teams.clear()
            parameters_after(hb.Langevin(1.0, 1e-3), steps=1)
            assert set(teams) == {("openmp" if threads > 1 else "here", threads)}
        monkeypatch.setenv("HEATBATH_THREADS", "2")
        teams.clear()
        parameters_after(hb.Langevin(1.0, 1e-3), steps=1)
        assert set(teams) == {("openmp", 2)}
    finally:
        torch.set_num_threads(before)


@pytest.fixture
def single_thread():
    """Let OpenMP grant every region one thread, as OMP_THREAD_LIMIT=1 does."""
    libraries = ctypes.CDLL(None)
    before = libraries.omp_get_max_active_levels()
    libraries.omp_set_max_active_levels(0)
    yield
    libraries.omp_set_max_active_levels(before)


def threads_of_a_region():
    """Return how many threads OpenMP grants to a region that asks for two."""
    entries = []
    body = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: entries.append(1))
    ctypes.CDLL(None).GOMP_parallel(body, None, 2, 0)
    return len(entries)


@openmp
def test_results_are_the_same_with_fewer_threads_than_asked_for(monkeypatch, teams, request):
    monkeypatch.setenv("HEATBATH_THREADS", "2")
    assert threads_of_a_region() == 2
    expected = parameters_after(hb.AdaptiveLangevin(1e-3, 0.05, 0.1))
    request.getfixturevalue("single_thread")
    assert threads_of_a_region() == 1
    np.testing.assert_array_equal(parameters_after(hb.AdaptiveLangevin(1e-3, 0.05, 0.1)), expected)
    assert set(teams) == {("openmp", 2)}


def test_two_python_threads_can_step_at_once(monkeypatch):
    monkeypatch.setenv("HEATBATH_THREADS", "2")
    method = hb.AdaptiveLangevin(1e-3, 0.05, 0.1)
    alone = parameters_after(method, steps=20)
    results = []
    workers = [
        threading.Thread(target=lambda: results.append(parameters_after(method, steps=20))) for _ in range(2)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for result in results:
        np.testing.assert_array_equal(result, alone)
    assert len(results) == 2


# A process. A child that hangs is ended by its alarm.

FORKS = """
import json, os, signal, warnings
import torch
import heatbath as hb
from heatbath.engine.openmp import parallel_region
from heatbath.torch import Partitioned
warnings.simplefilter("ignore")  # of forking with threads

def optimiser():
    parameter = torch.nn.Parameter(torch.linspace(-1, 1, 300_000))
    parameter.grad = torch.ones(300_000)
    method = hb.AdaptiveLangevin(1e-3, 0.05, 0.1)
    return Partitioned([{"params": [parameter], "method": method}], 1e-2, seed=3)

def steps(optimizer, number=3):
    for _ in range(number):
        optimizer.step()
    return optimizer.param_groups[0]["params"][0].detach().numpy().tobytes()

def in_a_child(work):
    child = os.fork()
    if child == 0:
        signal.alarm(300)
        os._exit(work())
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

told = {}
torch.ones(1_000_000).exp()  # on all of torch's threads
def work():
    torch.set_num_threads(1)  # torch itself would hang
    return steps(optimiser()) == b""
told["child of torch's"] = in_a_child(work)

expected = steps(optimiser(), 6)
optimizer = optimiser()
steps(optimizer)
told["on OpenMP"] = parallel_region() != 0
told["child of ours"] = in_a_child(lambda: parallel_region() != 0 or steps(optimizer) != expected)
told["parent"] = steps(optimizer) == expected

signal.signal(signal.SIGALRM, signal.default_int_handler)
try:
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    steps(optimizer, 1_000_000)
except KeyboardInterrupt:
    steps(optimizer)
    told["Ctrl-C"] = "went on"
"""


@pytest.fixture(scope="module")
def process_results():
    """Return what a process that tries all cases in this order stored in `told`."""
    done = subprocess.run(
        [sys.executable, "-c", FORKS + "print(json.dumps(told))"],
        capture_output=True,
        text=True,
        env={**os.environ, "HEATBATH_THREADS": "2"},
        timeout=2 * PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@openmp
def test_a_forked_child_can_step_on_the_pool_after_its_parent_stepped_on_openmp(process_results):
    assert (process_results["on OpenMP"], process_results["child of ours"], process_results["parent"]) == (
        True,
        0,
        True,
    )


@openmp
def test_a_forked_child_can_step_if_only_torch_used_openmp_before_it(process_results):
    assert process_results["child of torch's"] == 0


@openmp
def test_ctrl_c_ends_a_loop_of_steps_and_the_next_ones_run(process_results):
    assert process_results["Ctrl-C"] == "went on"


# Descriptions for compiled code


def test_tensors_are_cut_at_multiples_of_a_piece_in_the_numbering_of_the_noise():
    pieces = numba_step._cut_into_pieces(((5, PIECE), (PIECE + 5, 3)))
    assert pieces.tolist() == [[0, 5, PIECE], [0, PIECE, PIECE + 5], [1, PIECE + 5, PIECE + 8]]
    assert numba_step._cut_into_pieces(()).shape == (0, 3)


def can_be_compiled(tensor, theta, dtype):
    """Return True if compiled code can step these momenta beside the parameters."""
    unit = StepTensors(
        program=None, table=None, xi=0.0, root_tau=1.0, seed=0, step=0, theta=[theta], p=[tensor]
    )
    return numba_step.can_be_compiled(unit, dtype)


def test_what_compiled_code_cannot_step_is_told_apart():
    plain = torch.zeros(4, 3)
    assert can_be_compiled(plain, plain, torch.float32)
    assert not can_be_compiled(plain, plain, torch.float64)
    assert not can_be_compiled(plain.half(), plain, torch.float32)
    assert not can_be_compiled(plain.half(), plain.half(), torch.float16)
    assert not can_be_compiled(plain.T, plain.T, torch.float32)
    assert not can_be_compiled(plain, plain[:2], torch.float32)
