"""Give blocks to the workers of an executor: threads, processes, Dask, Ray or joblib.

An executor is one of `concurrent.futures`, a client of Dask, the module `ray` (or "ray"), or what
`joblib.parallel_config` sets. All of them give futures, and do their own scheduling. They differ in how a
plan with its data reaches the workers, once; in the number of workers; and in how a task is
cancelled.
"""

from __future__ import annotations

import os
import re
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import joblib
from joblib.externals import loky
from joblib.parallel import get_active_backend

from heatbath._internal import atomic_write
from heatbath._internal.checks import shown
from heatbath._internal.extras import needed
from heatbath.runs.distributed.block import FinishedBlock, SharedPlan, Task
from heatbath.runs.distributed.store import about_block
from heatbath.runs.distributed.worker import compute

AHEAD = 2  # blocks for each worker
PATIENCE = 10.0  # seconds that workers have to end cancelled tasks
LOOK = 0.1  # seconds between two looks at the blocks under way
WANTED = "wanted"  # the file that exists until the tasks are cancelled
PROCESSES = (ProcessPoolExecutor, loky.ProcessPoolExecutor)  # executors on this computer
ACCEPTED = (
    "an executor of concurrent.futures, a dask.distributed.Client, the module ray or 'ray', or None for this "
    "process, or for what joblib.parallel_config sets"
)
ACCEPTED_NAMES = (
    "processes, processes:4 for four of them, ray, or the address of a scheduler of Dask, tcp://HOST:PORT"
)
NO_DASK = "the executor at an address is Dask's, an extra: pip install 'heatbath[dask]'"
NO_RAY = "executor='ray' needs Ray, an extra: pip install 'heatbath[ray]'"

PlanContent: TypeAlias = Mapping[str, Any]  # the pieces of a plan in the form that tasks get, by checksums


class Pool:
    """Workers of an executor of `concurrent.futures` of which nothing is known.

    The pieces of a plan go with every task. Subclasses give each piece to the workers once; it stays there
    until the outermost `with` ends, so that the plans of a search, which have the same data, share it.

    `is_wanted` is a function that workers call; it returns False once their tasks are cancelled.
    """

    def __init__(self, executor: Executor, is_wanted: Callable[[], bool] | None = None) -> None:
        self.executor = executor
        self._is_wanted = is_wanted
        self._given: dict[str, Any] = {}  # as PlanContent, of all plans
        self._entered = 0

    def __enter__(self) -> Pool:
        self._entered += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._entered -= 1
        if not self._entered:
            self._given.clear()
            self._clean_up()

    def _clean_up(self) -> None:
        """Remove what only workers have needed."""

    def workers(self, threads: int) -> int:
        """Return the number of blocks that are computed at a time, with this number of threads each."""
        return getattr(self.executor, "_max_workers", None) or os.cpu_count() or 1

    def ahead(self, threads: int) -> int:
        """Return the number of blocks for each worker that wait or are under way."""
        return AHEAD

    def share(self, shared: SharedPlan) -> PlanContent:
        """Give a plan to the workers, and return the `content` for its tasks."""
        for checksum, piece in shared.content.items():
            if checksum not in self._given:
                self._given[checksum] = self._give(checksum, piece)
        return {checksum: self._given[checksum] for checksum in shared.content}

    def _give(self, checksum: str, piece: bytes) -> Any:
        """Give a piece of a plan to the workers, and return it in the form that tasks get."""
        return piece

    def submit(self, task: Task, content: PlanContent) -> Future[Any]:
        """Have a block computed, and return the future of its answer."""
        return self.executor.submit(compute, task, content, self._is_wanted)

    def received(self, answer: Any) -> FinishedBlock:
        """Return the block in a worker's answer."""
        block: FinishedBlock = answer
        return block

    def cancel(self, futures: list[Future[Any]]) -> None:
        """Cancel tasks, and wait until they have ended."""
        for future in futures:
            future.cancel()
        wait([future for future in futures if not future.cancelled()])

    def is_lost(self, error: BaseException) -> bool:
        """Return True if a block failed because its worker was lost, so that another may compute it."""
        return False


class ThreadPool(Pool):
    """Workers that are threads of this process, and see when their tasks are cancelled."""

    def __init__(self, executor: Executor) -> None:
        self._wanted = threading.Event()
        super().__init__(executor, self._wanted.is_set)

    def share(self, shared: SharedPlan) -> PlanContent:
        """Give a plan to the workers, and return the `content` for its tasks."""
        self._wanted.set()
        return super().share(shared)

    def cancel(self, futures: list[Future[Any]]) -> None:
        """Cancel tasks, and wait until they have ended."""
        self._wanted.clear()
        super().cancel(futures)


class ProcessPool(Pool):
    """Workers that are processes on this computer, and exchange files with it.

    Each process reads the pieces of a plan once. A file exists until the tasks are cancelled.

    Blocks come back in files. If a process were killed while it sends megabytes through the pipe that all
    processes share, a part would stay in the pipe, and `concurrent.futures` would wait for the rest for ever;
    the name of a file is sent completely or not at all.
    """

    def __init__(self, executor: Executor) -> None:
        super().__init__(executor)
        self._temporary: tempfile.TemporaryDirectory[str] | None = None

    @property
    def _folder(self) -> Path:
        """Folder of these files, made when it is first needed."""
        if self._temporary is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="heatbath-")
        return Path(self._temporary.name)

    def _clean_up(self) -> None:
        """Remove the files."""
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    def share(self, shared: SharedPlan) -> PlanContent:
        """Give a plan to the workers, and return the `content` for its tasks."""
        (self._folder / WANTED).touch()
        return super().share(shared)

    def _give(self, checksum: str, piece: bytes) -> Any:
        """Write a piece of a plan to a file, and return the function that reads it."""
        path = self._folder / f"{checksum}.nc"
        atomic_write.write(path, piece)
        return path.read_bytes

    def submit(self, task: Task, content: PlanContent) -> Future[Any]:
        """Have a block computed, and return the future of its answer."""
        return self.executor.submit(_compute_to_files, task, content, self._folder)

    def received(self, answer: Any) -> FinishedBlock:
        """Return the block in the files that a worker has named, and remove them."""
        block_path, state_path = answer
        block = FinishedBlock(about_block(block_path), block_path.read_bytes(), None)
        block_path.unlink()
        if state_path is not None:
            block = block._replace(state=state_path.read_bytes())
            state_path.unlink()
        return block

    def cancel(self, futures: list[Future[Any]]) -> None:
        """Cancel tasks, and wait until they have ended."""
        (self._folder / WANTED).unlink(missing_ok=True)
        super().cancel(futures)


def _compute_to_files(task: Task, content: PlanContent, folder: Path) -> tuple[Path, Path | None]:
    """Compute a block, and return the files with it and with the state from which its chains continue."""
    block = compute(task, content, (folder / WANTED).exists)
    block_path = _write_new_file(folder, block.content)
    state_path = None if block.state is None else _write_new_file(folder, block.state)
    return block_path, state_path


def _write_new_file(folder: Path, content: bytes) -> Path:
    """Write bytes to a file with a new name, and return its path."""
    descriptor, name = tempfile.mkstemp(".nc", "block-", folder)
    with open(descriptor, "wb") as file:
        file.write(content)
    return Path(name)


class DaskPool(Pool):
    """Workers of a client of Dask.

    The pieces of a plan are results of tasks, which Dask repeats if they are lost. A task sees when its key
    is released.
    """

    def __init__(self, client: Any) -> None:
        # Not pure, as a block that comes again is another; the scheduler of blocks counts retries itself.
        super().__init__(client.get_executor(pure=False, retries=0), _is_wanted_by_dask)
        self.client = client

    def workers(self, threads: int) -> int:
        """Return the number of blocks computed at a time; a worker with too few threads counts as one."""
        return sum(max(1, count // threads) for count in self.client.nthreads().values()) or 1

    def ahead(self, threads: int) -> int:
        """Return the number of blocks for each worker that wait or are under way.

        It is 1 if a block takes several threads, of which Dask knows nothing: it would begin another one.
        """
        return AHEAD if threads == 1 else 1

    def _give(self, checksum: str, piece: bytes) -> Any:
        """Send a piece of a plan to Dask, and return its future."""
        with warnings.catch_warnings():  # Dask's own warning has no class; it is sent once, and is no graph
            warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
            return self.client.submit(bytes, piece, key=f"heatbath-{checksum}")

    def cancel(self, futures: list[Future[Any]]) -> None:
        """Cancel tasks, and wait for a while until they have ended."""
        for future in futures:
            future.cancel()
        end = time.monotonic() + PATIENCE
        while any(self.client.run(_is_at_block, on_error="ignore").values()) and time.monotonic() < end:
            time.sleep(LOOK)

    def is_lost(self, error: BaseException) -> bool:
        """Return True if a block failed because its worker was lost, so that another may compute it."""
        from distributed import KilledWorker

        return isinstance(error, (KilledWorker, CancelledError))


def _is_wanted_by_dask() -> bool:
    """Return True unless the task of this thread, in a worker of Dask, is cancelled."""
    from distributed import get_worker

    worker = get_worker()
    task = worker.state.tasks.get(worker.get_current_task())
    return task is not None and task.state != "cancelled"


def _is_at_block(dask_worker: Any) -> bool:
    """Return True if a worker of Dask is at a block, or about to begin one.

    It may not know yet that the task is cancelled. (Dask passes the worker to an argument of this name.)
    """
    tasks = list(dask_worker.state.tasks.items())
    ended = ("memory", "released", "forgotten", "error")
    return any(task.state not in ended and str(key).startswith("compute-") for key, task in tasks)


class RayPool(Pool):
    """Workers of Ray: the pieces of a plan are in its object store, and Ray cancels tasks itself."""

    def __init__(self, ray: Any) -> None:
        super().__init__(ray)
        self.ray = ray
        if not ray.is_initialized():
            ray.init()
        self._references: dict[Future[Any], Any] = {}
        self._compute = ray.remote(max_retries=0)(_compute_with_ray)  # the scheduler of blocks counts retries

    def workers(self, threads: int) -> int:
        """Return the number of blocks that are computed at a time, with this number of threads each."""
        return max(1, int(self.ray.cluster_resources().get("CPU", 1)) // threads)

    def _give(self, checksum: str, piece: bytes) -> Any:
        """Put a piece of a plan into the object store, and return its reference.

        Tasks get the references in a dict, and so Ray leaves it to them to fetch the pieces.
        """
        return self.ray.put(piece)

    def submit(self, task: Task, content: PlanContent) -> Future[Any]:
        """Have a block computed, and return the future of its answer."""
        reference = self._compute.options(num_cpus=task.threads).remote(task, content)
        future: Future[Any] = reference.future()
        self._references[future] = reference
        future.add_done_callback(lambda done: self._references.pop(done, None))
        return future

    def cancel(self, futures: list[Future[Any]]) -> None:
        """Cancel tasks, and wait until they have ended."""
        for future in futures:
            reference = self._references.get(future)
            if reference is not None:
                self.ray.cancel(reference, force=False)
        wait(futures)

    def is_lost(self, error: BaseException) -> bool:
        """Return True if a block failed because its worker was lost, so that another may compute it."""
        kinds = self.ray.exceptions
        return isinstance(
            error,
            (kinds.WorkerCrashedError, kinds.NodeDiedError, kinds.ObjectLostError, kinds.OutOfMemoryError),
        )


def _compute_with_ray(task: Task, content: PlanContent) -> FinishedBlock:
    """Compute a block on a worker of Ray, which fetches the pieces of the plan if it needs them."""
    import ray

    return compute(task, {name: partial(ray.get, reference) for name, reference in content.items()})


NOT_SET = object()
_pool_in_use: ContextVar[object] = ContextVar("_pool_in_use", default=NOT_SET)


@contextmanager
def using(executor: object) -> Iterator[None]:
    """Let an executor compute, within the context, all runs for which none is given.

    With None this process computes them, and `joblib.parallel_config` has no effect.
    """
    pool = None if executor is None else chosen_pool(executor)
    token = _pool_in_use.set(pool)
    try:
        yield
    finally:
        _pool_in_use.reset(token)


@contextmanager
def using_named(name: str | None) -> Iterator[None]:
    """Let the executor with this name compute within the context; None changes nothing."""
    if name is None:
        yield
        return
    with open_executor(name) as executor, using(executor):
        yield


def chosen_pool(executor: object) -> Pool | None:
    """Return the workers of an executor as a pool, or None if this process is to compute.

    None for the executor chooses that of `using`, or what `joblib.parallel_config` sets. Executors of Dask
    and Ray are recognised by their names and methods, since these packages may not be installed. Raises
    TypeError for anything else.
    """
    if executor is None:
        pool = _pool_in_use.get()
        return pool if isinstance(pool, Pool | None) else _pool_of_joblib()

    if executor == "ray" or getattr(executor, "__name__", "") == "ray":
        return RayPool(_import_ray())
    if isinstance(executor, ThreadPoolExecutor):
        return ThreadPool(executor)
    if isinstance(executor, PROCESSES):
        return ProcessPool(executor)
    if isinstance(executor, Executor):
        return Pool(executor)
    if callable(getattr(executor, "scatter", None)) and callable(getattr(executor, "get_executor", None)):
        return DaskPool(executor)
    raise TypeError(f"executor must be {ACCEPTED}; got {shown(executor)}")


def _pool_of_joblib() -> Pool | None:
    """Return the workers that `joblib.parallel_config` sets; None if it sets nothing, or a single worker.

    Raises TypeError for a backend that heatbath does not know.
    """
    backend, jobs = get_active_backend()
    backend_name = type(backend).__name__  # the classes for Ray and Dask may not be installed
    if backend_name == "RayBackend":
        return RayPool(_import_ray())
    if backend_name == "DaskDistributedBackend":
        return DaskPool(backend.client)

    worker_count = joblib.effective_n_jobs(jobs)
    if worker_count == 1:
        return None
    if backend_name == "ThreadingBackend":
        return ThreadPool(ThreadPoolExecutor(worker_count))
    if backend_name in ("LokyBackend", "MultiprocessingBackend"):
        return ProcessPool(loky.get_reusable_executor(worker_count))
    raise TypeError(f"heatbath does not know joblib's {backend_name}: give executor={ACCEPTED}")


@contextmanager
def pool_here() -> Iterator[Pool]:
    """Yield a pool of one thread of this process."""
    with ThreadPoolExecutor(1) as executor:
        yield ThreadPool(executor)


def check_name(name: str) -> None:
    """Raise ValueError unless this is the name of an executor: see ACCEPTED_NAMES."""
    if name in ("processes", "ray"):
        return
    scheme, _, process_count = name.partition(":")
    if scheme == "processes" and process_count.isdecimal() and int(process_count) > 0:
        return
    if not re.fullmatch(r"(tcp|tls|ucx|ws|wss)://.+", name):
        raise ValueError(f"the executor must be {ACCEPTED_NAMES}; got {name!r}")


@contextmanager
def open_executor(name: str) -> Iterator[object]:
    """Yield an executor by its name, and shut it down when the context ends.

    The names are "processes" for a process on every core, "processes:4" for four of them, "ray", and the
    address of a scheduler of Dask, such as "tcp://HOST:PORT".
    """
    check_name(name)
    scheme, _, process_count = name.partition(":")
    if scheme == "processes":
        workers = int(process_count) if process_count else os.cpu_count()
        with loky.ProcessPoolExecutor(workers, initializer=_ignore_interrupts) as executor:
            yield executor
        return

    if name == "ray":
        yield _import_ray()  # which is not shut down, as other code may use it
        return

    with needed(NO_DASK):
        from distributed import Client
    with Client(name) as client:
        yield client


def _ignore_interrupts() -> None:
    """Leave Ctrl-C, which a terminal sends to all processes, to the one that gives the tasks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _import_ray() -> Any:
    """Return the module `ray`, or raise an error that says how to install it."""
    with needed(NO_RAY):
        import ray
    return ray
