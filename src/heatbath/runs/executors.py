"""Executors: who computes the blocks of a plan. There is no scheduler here: those of others are asked.

An executor is one of `concurrent.futures`, a client of Dask, the module `ray` (or "ray"), or what
`joblib.parallel_config` says. All of them give futures. They differ in how a plan with its data reaches the
workers, once; in how many there are; and in how a task is ended that nobody waits for.
"""

from __future__ import annotations

import math
import os
import re
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import (
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from fractions import Fraction
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import joblib
from joblib.externals import loky
from joblib.parallel import get_active_backend

from heatbath import writing
from heatbath.checks import shown
from heatbath.engine.compile import report
from heatbath.runs.blocks import About, BlocksError, Finished, Shared, Store, Task, about_of, compute
from heatbath.runs.dataset import sizes
from heatbath.runs.plan import Plan
from heatbath.runs.simulation import Progress, deferred_interrupts, layout_of_blocks

SECONDS = 4.0  # of a block: long beside what it costs to move it, short beside what is lost with a worker
AHEAD = 2  # blocks for each worker
LARGEST = 2**28  # bytes of a block's results
RETRIES = 3  # of a block whose worker was lost
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
        writing.write(path, piece)
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


class Sizes:
    """How large the next block is: of as many chains as take SECONDS, as far as blocks have told, or longer
    where all workers would bring more blocks than can be taken in half of the time; no more than let all
    workers end together; and over as many steps as have results of at most LARGEST bytes."""

    def __init__(self, plan: Plan, workers: int, threads: int, first: int) -> None:
        self.plan, self.workers, self.first = plan, workers, first
        self.unit = layout_of_blocks(plan).lanes * threads
        self._work = self._seconds = self._taking = 0.0
        self._count = 0

    def note(self, about: About, taking: float = 0.0) -> None:
        """Learn from a block that is done, which it took so many seconds to take."""
        self._work += about.work
        self._seconds += about.seconds
        self._taking += taking
        self._count += 1

    @property
    def seconds(self) -> float:
        """How long a block is to take."""
        return max(SECONDS, 2 * self.workers * self._taking / self._count) if self._count else SECONDS

    def chains(self, left: int) -> int:
        """How many chains, of those that are left."""
        steps = self.plan.steps - self.first
        fit = int(self.seconds * self._work / (self._seconds * steps)) if self._seconds else self.unit
        return self._whole(min(fit, -(-left // self.workers)))

    def even(self) -> int:
        """How many chains, where all are cut at once: AHEAD blocks for each worker."""
        return self._whole(-(-self.plan.total // (AHEAD * self.workers)))

    def _whole(self, count: int) -> int:
        """About so many chains in whole units, with results that are small enough."""
        small = LARGEST // self._bytes(1, self.first, self.plan.steps)
        return max(self.unit, min(count, small) // self.unit * self.unit)

    def until(self, chains: int, step: int) -> int:
        """To which step, from this one."""
        low, high = step + 1, self.plan.steps
        if self._bytes(chains, step, high) <= LARGEST:
            return high
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._bytes(chains, step, middle) <= LARGEST else (low, middle - 1)
        return low

    def _bytes(self, chains: int, begin: int, end: int) -> int:
        return sum(sizes(self.plan, end, range(chains), begin).values())


class Blocks:
    """A plan at work in blocks: AHEAD for each worker wait or are under way, and the rest is not cut yet.

    No block takes much longer than `seconds`: where one is not done by then, what it has comes back, and goes
    on as another.
    """

    def __init__(self, pool: Pool, store: Store, threads: int, seconds: float) -> None:
        self.pool, self.store, self.threads, self.seconds = pool, store, threads, max(seconds, SECONDS)
        self.plan, self.shared = store.plan, store.shared
        self.left = store.missing()
        self.unfinished: list[tuple[About, bytes | None]] = [(about, None) for about in store.unfinished()]
        self.sizes = Sizes(self.plan, 1, threads, store.first)
        self.under_way: dict[Future[Any], Task] = {}
        self.lost: dict[int, int] = {}  # how often the worker of a block was lost
        self._most, self._counted = 0, -math.inf  # under way at a time, and when that was asked for
        self._done: SimpleQueue[Future[Any]] = SimpleQueue()  # in the order in which they end
        self._means = Means()
        for about in store.latest():
            self._means.add(about)

    def run(self, progress: Callable[[Progress], None] | None) -> None:
        """Compute all blocks that are missing; whatever ends it, no task stays behind."""
        begin, work = time.perf_counter(), self.store.work
        with deferred_interrupts() as interrupted:  # a task that was given away is known
            content = self.pool.share(self.shared)
            try:
                while self.left or self.unfinished or self.under_way:
                    if interrupted():
                        raise KeyboardInterrupt
                    self._count_workers()
                    while (self.left or self.unfinished) and len(self.under_way) < self._most:
                        self._submit(self._cut(), content)
                    arrived = self._arrived()
                    while arrived:
                        self._take(arrived.pop(0), content)
                    if progress:
                        progress(self._progress(time.perf_counter() - begin, work))
            except BaseException as error:
                self.pool.cancel(list(self.under_way))
                if interrupted() and isinstance(error, Exception):  # Ctrl-C has reached the workers, too
                    raise KeyboardInterrupt from error
                raise

    def _count_workers(self) -> None:
        """Ask now and then how many workers there are, which may come and go."""
        if time.perf_counter() - self._counted > 1.0:
            self.sizes.workers = self.pool.workers(self.threads)
            self._most, self._counted = (
                self.pool.ahead(self.threads) * self.sizes.workers,
                time.perf_counter(),
            )

    def _arrived(self) -> list[Future[Any]]:
        """What has ended, after LOOK seconds at most; those that failed last, as what is finished is kept."""
        done = []
        with suppress(Empty):
            done.append(self._done.get(timeout=LOOK))
            while True:
                done.append(self._done.get_nowait())
        return sorted(done, key=_failed)

    def _cut(self) -> Task:
        """The next block: one that goes on, or one of new chains."""
        if self.unfinished:
            about, state = self.unfinished.pop(0)
            own, step = about.chains, about.end
        else:
            chains, step, state = self.left[0], self.store.first, None
            size = self.sizes.chains(sum(map(len, self.left)))
            own = range(chains.start, min(chains.start + size, chains.stop))
            self.left[:1] = [range(own.stop, chains.stop)] if own.stop < chains.stop else []
        return Task(
            self.shared.digest, self.shared.modules, own.start, own.stop, self.sizes.until(len(own), step),
            step, state or self.store.state(own), self.seconds, self.threads,
        )  # fmt: skip

    def _submit(self, task: Task, content: Any) -> None:
        try:
            future = self.pool.submit(task, content)
            future.add_done_callback(self._done.put)
        except Exception as error:  # of whoever it is: it was shut down, a process of it has ended, ...
            raise self._failure(task, "could not be given to the executor", error) from error
        self.under_way[future] = task

    def _take(self, future: Future[Any], content: Any) -> None:
        task, begin = self.under_way.pop(future), time.perf_counter()
        try:
            block = self.pool.received(future.result())
        except Exception as error:
            self.lost[task.first] = self.lost.get(task.first, 0) + 1
            if self.pool.lost(error) and self.lost[task.first] <= RETRIES:
                self._submit(task, content)
                return
            raise self._failure(task, "failed on a worker", error) from error
        del future  # which nobody else has: Dask computes what is lost with a worker again while it is held
        try:
            _check_answer(task, block)
            self.store.add(block)
        except ValueError as error:
            raise self._failure(task, "came back from a worker and cannot be taken", error) from error
        about = block.about
        self.lost.pop(task.first, None)
        if task.step > self.store.first:
            self._means.remove(self.store.blocks[task.first][-2].about)
        self._means.add(about)
        if about.end < self.plan.steps:
            self.unfinished.append((about, block.state))
        self.sizes.note(about, time.perf_counter() - begin)
        if about.compiled:
            report(f"{about.host} compiled for {about.compiled:.0f} s, once")

    def _failure(self, task: Task, what: str, error: Exception) -> BlocksError:
        there = f"; {self.store.done} of {self.plan.total} chains are done" + (
            f" and in {self.store.folder}: the same call goes on" if self.store.folder else ""
        )
        chains = f"chains {task.first} to {task.stop - 1}"
        return BlocksError(f"{chains} {what}: {type(error).__name__}: {error}{there}")

    def _progress(self, seconds: float, before: int) -> Progress:
        """How things stand: steps are those of all chains, as if they were made together; `before` are those
        that were there when this call began."""
        means = self._means.now()
        loss, accuracy = (means.pop((name,), math.nan) for name in ("loss", "accuracy"))
        heat = {part: mean for (_, part), mean in sorted(means.items())}
        step, first = (self.store.first + work // self.plan.total for work in (self.store.work, before))
        return Progress(step, self.plan.steps, seconds, loss, heat, first, accuracy)


class Means:
    """Means over chains of what blocks say of them, without those that are unknown. Sums are exact: what is
    taken away again leaves nothing behind, however large it was."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, ...], Fraction] = {}
        self._counts: dict[tuple[str, ...], int] = {}

    def add(self, about: About, sign: int = 1) -> None:
        """Count a block."""
        values: dict[tuple[str, ...], float] = {("loss",): about.loss, ("accuracy",): about.accuracy}
        values |= {("temperature", part): value for part, value in about.temperature.items()}
        for name, value in values.items():
            if math.isfinite(value):
                count = sign * len(about.chains)
                self._sums[name] = self._sums.get(name, Fraction()) + count * Fraction(value)
                self._counts[name] = self._counts.get(name, 0) + count

    def remove(self, about: About) -> None:
        """Count a block no longer: there is a later one of its chains."""
        self.add(about, -1)

    def now(self) -> dict[tuple[str, ...], float]:
        """All that are known."""
        return {name: float(self._sums[name] / count) for name, count in self._counts.items() if count}


def _check_answer(task: Task, block: object) -> None:
    """Refuse what is not the block that was asked for."""
    if not isinstance(block, Finished):
        raise ValueError(f"it is no block, but {shown(block)}")
    about = block.about
    if (about.first, about.stop, about.begin) != (task.first, task.stop, task.step):
        raise ValueError(f"it is {about.name}, and the steps after {task.step} were asked for")
    if not task.step < about.end <= task.until:
        raise ValueError(f"it ends at step {about.end}, and {task.step + 1} to {task.until} were asked for")


def _failed(future: Future[Any]) -> bool:
    return future.cancelled() or future.exception() is not None


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
