"""Executors: who computes the blocks of a plan. There is no scheduler here: those of others are asked.

An executor is one of `concurrent.futures`, a client of Dask, the module `ray` (or "ray"), or what
`joblib.parallel_config` says. All of them give futures. They differ in how a plan with its data reaches the
workers, once; in how many there are; and in how a task is ended that nobody waits for.
"""

from __future__ import annotations

import os
import re
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import (
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any

import joblib
from joblib.externals import loky
from joblib.parallel import get_active_backend

from heatbath._internal import atomic_write
from heatbath._internal.checks import shown
from heatbath.runs.distributed.block import Finished, Shared, Task
from heatbath.runs.distributed.store import about_of
from heatbath.runs.distributed.worker import compute

AHEAD = 2  # blocks for each worker
PATIENCE = 10.0  # seconds for workers to end what nobody waits for
LOOK = 0.1  # seconds from one look at the blocks under way to the next
ACCEPTED = (
    "an executor of concurrent.futures, a dask.distributed.Client, the module ray or 'ray', or None for this "
    "process, or what joblib.parallel_config says"
)
WANTED = "wanted"  # the file that is there as long as somebody waits
PROCESSES = (ProcessPoolExecutor, loky.ProcessPoolExecutor)  # on this computer
NAMED = "processes, or processes:4 for so many, ray, or the address of a scheduler of Dask, tcp://HOST:PORT"
NO_DASK = "the executor at an address is Dask's, an extra: pip install 'heatbath[dask]'"
MISSING = "executor='ray' needs Ray, an extra: pip install 'heatbath[ray]'"


class Pool:
    """The workers of an executor of `concurrent.futures`, of which nothing is known: a plan and its data go
    with every task.

    What was given to the workers stays there until the end of the outermost `with`: so plans of a search,
    which have the same data, give them once.
    """

    def __init__(self, executor: Any) -> None:
        self.executor = executor
        self._given: dict[str, Any] = {}  # pieces of plans, by their checksums
        self._entered = 0

    def __enter__(self) -> Pool:
        self._entered += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._entered -= 1
        if not self._entered:
            self._given.clear()
            self._leave()

    def _leave(self) -> None:
        """Take away what only workers have needed."""

    def workers(self, threads: int) -> int:
        """How many blocks they compute at a time, with so many threads each."""
        return getattr(self.executor, "_max_workers", None) or os.cpu_count() or 1

    def ahead(self, threads: int) -> int:
        """How many blocks for each of these wait or are under way."""
        return AHEAD

    def share(self, shared: Shared) -> dict[str, Any]:
        """What a task gets for the plan and its data: each piece is given to the workers once."""
        for checksum, piece in shared.content.items():
            if checksum not in self._given:
                self._given[checksum] = self._give(checksum, piece)
        return {checksum: self._given[checksum] for checksum in shared.content}

    def _give(self, checksum: str, piece: bytes) -> Any:
        """A piece, or how workers come by it."""
        return piece

    def submit(self, task: Task, content: Any) -> Future[Any]:
        """Have a block computed."""
        future: Future[Any] = self.executor.submit(compute, task, content, None)
        return future

    def received(self, answer: Any) -> Finished:
        """The block that a worker has answered with."""
        block: Finished = answer
        return block

    def cancel(self, futures: list[Future[Any]]) -> None:
        """End what is under way: nobody waits for it."""
        for future in futures:
            future.cancel()
        wait([future for future in futures if not future.cancelled()])

    def lost(self, error: BaseException) -> bool:
        """Whether a block has failed because its worker is lost, so that another may compute it."""
        return False


class ThreadPool(Pool):
    """Those that are threads of this process, and see whether somebody waits."""

    def __init__(self, executor: Any) -> None:
        super().__init__(executor)
        self._wanted = threading.Event()

    def share(self, shared: Shared) -> dict[str, Any]:
        """What a task gets for the plan and its data."""
        self._wanted.set()
        return super().share(shared)

    def submit(self, task: Task, content: Any) -> Future[Any]:
        """Have a block computed."""
        future: Future[Any] = self.executor.submit(compute, task, content, self._wanted.is_set)
        return future

    def cancel(self, futures: list[Future[Any]]) -> None:
        """End what is under way: nobody waits for it."""
        self._wanted.clear()
        super().cancel(futures)


class ProcessPool(Pool):
    """Those that are processes on this computer: a plan and its data are in files, which each reads once,
    another is there as long as somebody waits, and blocks come back in files.

    (A process that is killed while it sends megabytes through the pipe that all share leaves a part of them
    there, and `concurrent.futures` waits for the rest for ever. A name is sent whole or not at all.)
    """

    def __init__(self, executor: Any) -> None:
        super().__init__(executor)
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    @property
    def _place(self) -> Path:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="heatbath-")
        return Path(self._folder.name)

    def _leave(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def share(self, shared: Shared) -> dict[str, Any]:
        """What a task gets for the plan and its data: each piece is given to the workers once."""
        (self._place / WANTED).touch()
        return super().share(shared)

    def _give(self, checksum: str, piece: bytes) -> Any:
        path = self._place / f"{checksum}.nc"
        atomic_write.write(path, piece)
        return path.read_bytes

    def submit(self, task: Task, content: Any) -> Future[Any]:
        """Have a block computed."""
        future: Future[Any] = self.executor.submit(_compute_here, task, content, self._place)
        return future

    def received(self, answer: Any) -> Finished:
        """The block in the files that a worker has named."""
        block, state = (None if path is None else path.read_bytes() for path in answer)
        about = about_of(answer[0])
        for path in filter(None, answer):
            path.unlink()
        return Finished(about, block or b"", state)

    def cancel(self, futures: list[Future[Any]]) -> None:
        """End what is under way: nobody waits for it."""
        (self._place / WANTED).unlink(missing_ok=True)
        super().cancel(futures)


def _compute_here(task: Task, content: Any, folder: Path) -> tuple[Path, Path | None]:
    """What a worker on this computer does: the files of the block and of the state from which it goes on."""
    block = compute(task, content, (folder / WANTED).exists)
    return _left(folder, block.content), None if block.state is None else _left(folder, block.state)


def _left(folder: Path, content: bytes) -> Path:
    """A new file, which nobody knows of yet."""
    place, name = tempfile.mkstemp(".nc", "block-", folder)
    with open(place, "wb") as file:
        file.write(content)
    return Path(name)


class DaskPool(Pool):
    """The workers of a client of Dask: the plan is the result of a task, which Dask has done again where it
    is lost, and a task sees when its key is released."""

    def __init__(self, client: Any) -> None:
        super().__init__(client.get_executor(pure=False, retries=0))  # a block that comes again is another
        self.client = client

    def workers(self, threads: int) -> int:
        """How many times so many threads the workers have; those with fewer count, too."""
        return sum(max(1, count // threads) for count in self.client.nthreads().values()) or 1

    def ahead(self, threads: int) -> int:
        """One where a block takes several threads, of which Dask knows nothing: it would begin another."""
        return AHEAD if threads == 1 else 1

    def _give(self, checksum: str, piece: bytes) -> Any:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph", UserWarning)  # once, and not a graph
            return self.client.submit(bytes, piece, key=f"heatbath-{checksum}")

    def submit(self, task: Task, content: Any) -> Future[Any]:
        """Have a block computed."""
        future: Future[Any] = self.executor.submit(compute, task, content, _kept)
        return future

    def cancel(self, futures: list[Future[Any]]) -> None:
        """End what is under way: nobody waits for it."""
        for future in futures:
            future.cancel()
        end = time.monotonic() + PATIENCE
        while any(self.client.run(_ending, on_error="ignore").values()) and time.monotonic() < end:
            time.sleep(LOOK)

    def lost(self, error: BaseException) -> bool:
        """Whether a block has failed because its worker is lost, so that another may compute it."""
        from distributed import KilledWorker

        return isinstance(error, (KilledWorker, CancelledError))


def _kept() -> bool:
    """Whether somebody still waits for the task that this thread of a worker of Dask is doing."""
    from distributed import get_worker

    worker = get_worker()
    task = worker.state.tasks.get(worker.get_current_task())
    return task is not None and task.state != "cancelled"


def _ending(dask_worker: Any) -> bool:
    """Whether a worker of Dask is still at a block, or about to begin one: that nobody waits for it may not
    have reached it yet."""
    tasks = list(dask_worker.state.tasks.items())
    ended = ("memory", "released", "forgotten", "error")
    return any(task.state not in ended and str(key).startswith("compute-") for key, task in tasks)


class RayPool(Pool):
    """The workers of Ray: the plan is in its store of objects, and Ray cancels tasks itself."""

    def __init__(self, ray: Any) -> None:
        super().__init__(ray)
        self.ray = ray
        if not ray.is_initialized():
            ray.init()
        self._references: dict[Future[Any], Any] = {}
        self._compute = ray.remote(max_retries=0)(_compute_with_ray)  # those of `Blocks` are counted

    def workers(self, threads: int) -> int:
        """How many times so many processors Ray has."""
        return max(1, int(self.ray.cluster_resources().get("CPU", 1)) // threads)

    def _give(self, checksum: str, piece: bytes) -> Any:
        return self.ray.put(piece)  # of what stands in a dict Ray leaves it to the task to ask for it

    def submit(self, task: Task, content: Any) -> Future[Any]:
        """Have a block computed."""
        reference = self._compute.options(num_cpus=task.threads).remote(task, content)
        future: Future[Any] = reference.future()
        self._references[future] = reference
        future.add_done_callback(lambda done: self._references.pop(done, None))
        return future

    def cancel(self, futures: list[Future[Any]]) -> None:
        """End what is under way: nobody waits for it."""
        for future in futures:
            if (reference := self._references.get(future)) is not None:
                self.ray.cancel(reference, force=False)
        wait(futures)

    def lost(self, error: BaseException) -> bool:
        """Whether a block has failed because its worker is lost, so that another may compute it."""
        known = self.ray.exceptions
        kinds = (
            known.WorkerCrashedError, known.NodeDiedError, known.ObjectLostError, known.OutOfMemoryError
        )  # fmt: skip
        return isinstance(error, kinds)


def _compute_with_ray(task: Task, content: dict[str, Any]) -> Finished:
    """What a worker of Ray does."""
    import ray

    return compute(task, {name: partial(ray.get, reference) for name, reference in content.items()})


UNSAID = object()
_in_use: ContextVar[object] = ContextVar("_in_use", default=UNSAID)


@contextmanager
def using(executor: object) -> Iterator[None]:
    """Within, it computes what is given no executor; with None this process does, whatever joblib says."""
    token = _in_use.set(None if executor is None else chosen_pool(executor))
    try:
        yield
    finally:
        _in_use.reset(token)


def chosen_pool(executor: object) -> Pool | None:
    """The workers that an executor stands for; of None those in use, or what joblib has been told. None for
    this process."""
    if executor is None:
        return _of_joblib() if (pool := _in_use.get()) is UNSAID else pool  # type: ignore[return-value]
    if executor == "ray" or getattr(executor, "__name__", "") == "ray":
        return RayPool(_ray())
    if isinstance(executor, Executor):
        kinds = {ThreadPool: (ThreadPoolExecutor,), ProcessPool: PROCESSES}
        return next((own for own, of in kinds.items() if isinstance(executor, of)), Pool)(executor)
    if callable(getattr(executor, "scatter", None)) and callable(getattr(executor, "get_executor", None)):
        return DaskPool(executor)
    raise TypeError(f"executor must be {ACCEPTED}; got {shown(executor)}")


def check_name(name: str) -> None:
    """Refuse a text that names no executor."""
    kind, _, count = name.partition(":")
    if kind == "processes" and ((count.isdecimal() and int(count) > 0) or name == kind):
        return
    if name != "ray" and not re.fullmatch(r"(tcp|tls|ucx|ws|wss)://.+", name):
        raise ValueError(f"the executor must be {NAMED}; got {name!r}")


@contextmanager
def named(name: str) -> Iterator[object]:
    """The executor that a text names, which ends afterwards."""
    check_name(name)
    kind, _, count = name.partition(":")
    if kind == "processes":
        with loky.ProcessPoolExecutor(
            int(count) if count else os.cpu_count(), initializer=_ignore_interrupts
        ) as executor:
            yield executor
    elif name == "ray":
        yield _ray()
    else:
        try:
            from distributed import Client
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(NO_DASK, name="distributed") from error
        with Client(name) as client:
            yield client


@contextmanager
def using_named(name: str | None) -> Iterator[None]:
    """Within, the executor of this name is in use, if there is one."""
    if name is None:
        yield
        return
    with named(name) as executor, using(executor):
        yield


def _ignore_interrupts() -> None:
    """Leave Ctrl-C, which a terminal sends to all, to the process that gives the tasks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _ray() -> Any:
    try:
        import ray
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(MISSING, name="ray") from error
    return ray


def _of_joblib() -> Pool | None:
    """What `joblib.parallel_config` says: None where it says nothing, or one at a time."""
    backend, jobs = get_active_backend()
    kind = type(backend).__name__
    if kind == "RayBackend":
        return RayPool(_ray())
    if kind == "DaskDistributedBackend":
        return DaskPool(backend.client)
    count = joblib.effective_n_jobs(jobs)
    if count == 1:
        return None
    if kind == "ThreadingBackend":
        return ThreadPool(ThreadPoolExecutor(count))
    if kind in ("LokyBackend", "MultiprocessingBackend"):
        return ProcessPool(loky.get_reusable_executor(count))
    raise TypeError(f"heatbath does not know joblib's {kind}: give executor={ACCEPTED}")


@contextmanager
def pool_here() -> Iterator[Pool]:
    """This process, which computes one block at a time."""
    with ThreadPoolExecutor(1) as executor:
        yield ThreadPool(executor)
