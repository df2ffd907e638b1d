"""The workers of others: processes, Dask and Ray, each started once."""

import importlib
import multiprocessing
import os
import signal
import sys
import textwrap
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

import joblib
import numpy as np
import pytest
import xarray as xr

import heatbath as hb
from heatbath._internal.warnings import InterruptedWarning
from heatbath.methods.base import _known
from heatbath.runs.distributed import pools
from heatbath.runs.distributed.block import NAME
from heatbath.runs.distributed.scheduler import BlockSizes

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # of other people's code
NETWORK = hb.MLP((5,))
OUTSIDE = """
    import os
    from dataclasses import dataclass
    from pathlib import Path
    from typing import ClassVar

    import numpy as np

    import heatbath as hb
    from heatbath.methods import NON_NEGATIVE, Method, gaussian_prior, operations, varying
    from heatbath.methods.letters import DRIFT, KICK, Letter
    from heatbath.runs.distributed.worker import compute


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


    class Lost(Exception):
        pass


    def compute_the_second_time(task, *others):
        place = Path(__file__).with_name(f"seen-{task.first}")
        if not place.exists():
            place.touch()
            raise Lost(f"worker {os.getpid()} is gone")
        return compute(task, *others)
"""


@pytest.fixture(scope="module")
def outside(tmp_path_factory):
    """Make a module outside the package that workers find, too, as they are started after it."""
    folder = tmp_path_factory.mktemp("outside")
    (folder / "outside_methods.py").write_text(textwrap.dedent(OUTSIDE))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
        yield importlib.import_module("outside_methods")
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
    options = dict(num_cpus=2, include_dashboard=False, logging_level="error", log_to_driver=False)
    try:
        module.init(**options)
    except Exception:  # it gives its own processes half a minute, which a busy computer may not have
        module.shutdown()
        module.init(**options)
    try:
        yield module
    finally:
        module.shutdown()


@pytest.fixture(scope="module", params=[processes, dask, ray])
def workers(request, outside):
    with request.param() as executor:
        yield executor


@pytest.fixture(scope="module")
def asked(outside):
    """Return the arguments of a sweep of a method from outside the package on user data."""
    x = np.random.default_rng(0).normal(size=(30, 2))
    own = hb.datasets.from_arrays(x, (x[:, 0] > 0).astype(int), task="binary")
    partition = hb.Partition(outside.Elsewhere(tau=[1e-3, 1e-2]), h=0.1)
    return (own, NETWORK, partition), dict(steps=40, batch=10, chains=7, record=2)


@pytest.fixture(scope="module")
def alone(asked):
    what, options = asked
    return hb.sweep(*what, **options).data


@pytest.fixture
def cut(monkeypatch):
    """Return a function that sets the number of chains of every block."""

    def into(size):
        monkeypatch.setattr(BlockSizes, "chains", lambda self, left: size)

    return into


def test_every_pool_computes_the_same_bits_in_any_number_of_blocks(workers, asked, alone, cut, tmp_path):
    what, options = asked
    for count in (1, 2, 7):
        cut(14 // count)
        run = hb.sweep(*what, executor=workers, folder=tmp_path / str(count), **options)
        assert len(list((tmp_path / str(count)).glob(NAME.format(*"****")))) == count
        xr.testing.assert_identical(run.data.load(), alone)
    xr.testing.assert_identical(hb.sweep(*what, executor=workers, **options).data, alone)


def test_joblib_can_set_every_pool(workers, asked, alone, monkeypatch):
    what, options = asked
    if isinstance(workers, ProcessPoolExecutor):
        pytest.skip("a pool of one's own has no name there")
    if not hasattr(workers, "scatter"):
        from ray.util.joblib import register_ray

        register_ray()
    kind = type(pools.chosen_pool(workers))
    tasks, submit = [], kind.submit
    monkeypatch.setattr(kind, "submit", lambda self, *task: tasks.append(task) or submit(self, *task))
    with joblib.parallel_config("dask" if hasattr(workers, "scatter") else "ray"):
        run = hb.sweep(*what, **options)
    xr.testing.assert_identical(run.data, alone)
    assert tasks


def test_a_lost_block_is_computed_again(workers, outside, asked, alone, cut, monkeypatch):
    what, options = asked
    cut(7)
    monkeypatch.setattr(pools, "compute", outside.compute_the_second_time)
    pool = type(pools.chosen_pool(workers))
    monkeypatch.setattr(pool, "is_lost", lambda self, error: "is gone" in str(error))
    xr.testing.assert_identical(hb.sweep(*what, executor=workers, **options).data, alone)


def test_ctrl_c_leaves_no_task_behind(workers, asked, cut, tmp_path, monkeypatch):
    what, options = asked
    cut(2)
    monkeypatch.setattr("heatbath.runs.distributed.scheduler.SECONDS", 1.0)  # the first record comes then
    begun = threading.Event()

    def interrupt(now):
        if now.step > 0 and not begun.is_set():
            begun.set()
            os.kill(os.getpid(), signal.SIGINT)

    manner = dict(executor=workers, progress=interrupt, every=0.1, checkpoint=tmp_path / "run.nc")
    with pytest.warns(InterruptedWarning, match="the same call continues"), pytest.raises(KeyboardInterrupt):
        hb.sweep(*what, **manner, **options | {"steps": 10**8})
    assert begun.is_set()
    assert not _under_way(workers)


def _under_way(workers):
    """Return the tasks that are still computed, or wait."""
    if isinstance(workers, ProcessPoolExecutor):
        return list(workers._pending_work_items)
    if hasattr(workers, "processing"):
        states = workers.run(lambda dask_worker: [task.state for task in dask_worker.state.tasks.values()])
        return [
            state for own in states.values() for state in own if state not in ("memory", "released", "error")
        ]
    deadline = time.monotonic() + 30
    while (busy := 2 - workers.available_resources().get("CPU", 0)) and time.monotonic() < deadline:
        time.sleep(0.1)  # what it knows of them is some moments late
    return busy
