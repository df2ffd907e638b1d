"""Executors: who computes the blocks of a plan. There is no scheduler here: those of others are asked.

An executor is one of `concurrent.futures`, a client of Dask, the module `ray` (or "ray"), or what
`joblib.parallel_config` says. All of them give futures. They differ in how a plan with its data reaches the
workers, once; in how many there are; and in how a task is ended that nobody waits for.
"""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import (
    FIRST_COMPLETED,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import joblib
from joblib.externals import loky
from joblib.parallel import get_active_backend

from heatbath import writing
from heatbath.checks import shown
from heatbath.engine.compile import report
from heatbath.runs.blocks import About, Finished, Shared, Store, Task, compute
from heatbath.runs.dataset import sizes
from heatbath.runs.plan import Plan
from heatbath.runs.simulation import Progress, lanes_of

SECONDS = 4.0  # of a block: long beside what it costs to move it, short beside what is lost with a worker
AHEAD = 2  # blocks for each worker
LARGEST = 2**28  # bytes of a block's results
RETRIES = 5  # of a block whose worker was lost
LOOK = 0.1  # seconds from one look at the blocks under way to the next
ACCEPTED = (
    "an executor of concurrent.futures, a dask.distributed.Client, the module ray or 'ray', or None for this "
    "process, or what joblib.parallel_config says"
)
LOCAL = (ProcessPoolExecutor, ThreadPoolExecutor, loky.ProcessPoolExecutor)  # on this computer
MISSING = "executor='ray' needs Ray, an extra: pip install 'heatbath[ray]'"


class Pool:
    """The workers of an executor of `concurrent.futures`.

    In processes on this computer the plan is in a file, which each reads once, and so is the word to stop. Of
    others nothing is known, and the plan goes with every task.
    """

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._halt: Path | None = None

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        if self._folder is not None:
            self._folder.cleanup()
        self._folder = self._halt = None

    @property
    def workers(self) -> int:
        """How many blocks they compute at a time."""
        return getattr(self.executor, "_max_workers", None) or os.cpu_count() or 1

    def share(self, shared: Shared) -> Any:
        """What a task gets for the plan and its data."""
        if not isinstance(self.executor, LOCAL):
            return shared.content
        self._folder = tempfile.TemporaryDirectory(prefix="heatbath-")
        self._halt = Path(self._folder.name) / "halt"
        path = Path(self._folder.name) / f"{shared.digest}.nc"
        writing.write(path, shared.content)
        return str(path)

    def submit(self, task: Task, content: Any) -> Future[Finished]:
        """Have a block computed."""
        return self.executor.submit(compute, task, content, None if self._halt is None else self._halt.exists)

    def cancel(self, futures: list[Future[Finished]]) -> None:
        """End what is under way: nobody waits for it."""
        if self._halt is not None:
            self._halt.touch()
        for future in futures:
            future.cancel()
        wait([future for future in futures if not future.cancelled()])

    def lost(self, error: BaseException) -> bool:
        """Whether a block has failed because its worker is lost, so that another may compute it."""
        return False


class DaskPool(Pool):
    """The workers of a client of Dask: the plan is scattered, and a task sees when its key is released."""

    def __init__(self, client: Any) -> None:
        super().__init__(client.get_executor(retries=0))
        self.client = client

    @property
    def workers(self) -> int:
        """How many threads the workers have."""
        return sum(self.client.nthreads().values()) or 1

    def share(self, shared: Shared) -> Any:
        """What a task gets for the plan and its data."""
        return self.client.scatter(shared.content, broadcast=True, hash=False)

    def submit(self, task: Task, content: Any) -> Future[Finished]:
        """Have a block computed."""
        return self.executor.submit(compute, task, content, _released)

    def cancel(self, futures: list[Future[Finished]]) -> None:
        """End what is under way: nobody waits for it."""
        for future in futures:
            future.cancel()

    def lost(self, error: BaseException) -> bool:
        """Whether a block has failed because its worker is lost, so that another may compute it."""
        return type(error).__name__ in ("KilledWorker", "LostWorker", "FutureCancelledError")


def _released() -> bool:
    """Whether nobody waits any more for the task that this thread of a worker of Dask is doing."""
    from distributed import get_worker

    worker = get_worker()
    task = worker.state.tasks.get(worker.get_current_task())
    return task is None or task.state == "cancelled"


class RayPool(Pool):
    """The workers of Ray: the plan is in its store of objects, and Ray cancels tasks itself."""

    def __init__(self, ray: Any) -> None:
        self.ray = ray
        if not ray.is_initialized():
            ray.init()
        self._references: dict[Future[Finished], Any] = {}
        self._compute = ray.remote(max_retries=-1)(compute)

    def __exit__(self, *_: object) -> None:
        self._references.clear()

    @property
    def workers(self) -> int:
        """How many processors Ray has."""
        return int(self.ray.cluster_resources().get("CPU", 1))

    def share(self, shared: Shared) -> Any:
        """What a task gets for the plan and its data."""
        return self.ray.put(shared.content)

    def submit(self, task: Task, content: Any) -> Future[Finished]:
        """Have a block computed."""
        reference = self._compute.options(num_cpus=task.threads).remote(task, content)
        future: Future[Finished] = reference.future()
        self._references[future] = reference
        future.add_done_callback(lambda done: self._references.pop(done, None))
        return future

    def cancel(self, futures: list[Future[Finished]]) -> None:
        """End what is under way: nobody waits for it."""
        for future in futures:
            if (reference := self._references.get(future)) is not None:
                self.ray.cancel(reference, force=False)
        wait(futures)

    def lost(self, error: BaseException) -> bool:
        """Whether a block has failed because its worker is lost, so that another may compute it."""
        return type(error).__name__ in ("WorkerCrashedError", "NodeDiedError", "ObjectLostError")


class Sizes:
    """How large the next block is: of as many chains as take SECONDS, as far as blocks have told, or longer
    where all workers would bring more blocks than can be taken in half of the time; no more than let all
    workers end together; and over as many steps as have results of at most LARGEST bytes."""

    def __init__(self, plan: Plan, workers: int, threads: int, first: int) -> None:
        self.plan, self.workers, self.first = plan, workers, first
        self.unit = lanes_of(plan) * threads
        self._work = self._seconds = self._taking = 0.0
        self._count = 0

    def note(self, about: About, taking: float = 0.0) -> None:
        """Learn from a block that is done, which it took so many seconds to take."""
        self._work += about.work
        self._seconds += about.seconds - about.compiled
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
        share = -(-left // self.workers)
        small = LARGEST // self._bytes(1, self.first, self.plan.steps)
        return max(self.unit, min(fit, share, small) // self.unit * self.unit)

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
        self.sizes = Sizes(self.plan, pool.workers, threads, store.first)
        self.under_way: dict[Future[Finished], Task] = {}
        self.losses: dict[int, int] = {}  # how often the worker of a block was lost
        self._last: Progress | None = None

    def run(self, progress: Callable[[Progress], None] | None) -> None:
        """Compute all blocks that are missing; whatever ends it, no task stays behind."""
        begin, work = time.perf_counter(), self.store.work
        content = self.pool.share(self.shared)
        try:
            while self.left or self.unfinished or self.under_way:
                while (self.left or self.unfinished) and len(self.under_way) < AHEAD * self.pool.workers:
                    self._submit(self._cut(), content)
                done, _ = wait(self.under_way, LOOK, FIRST_COMPLETED)
                for future in sorted(done, key=_failed):  # what is finished is kept, whatever others did
                    self._take(future, content)
                if progress:
                    progress(self._progress(time.perf_counter() - begin, work, bool(done)))
        except BaseException:
            self.pool.cancel(list(self.under_way))
            raise

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
        self.under_way[self.pool.submit(task, content)] = task

    def _take(self, future: Future[Finished], content: Any) -> None:
        task, begin = self.under_way.pop(future), time.perf_counter()
        try:
            block = future.result()
            self.store.add(block)
        except Exception as error:
            self.losses[task.first] = self.losses.get(task.first, 0) + 1
            if self.pool.lost(error) and self.losses[task.first] <= RETRIES:
                self._submit(task, content)
                return
            there = f"; {self.store.done} of {self.plan.total} chains are done" + (
                f" and in {self.store.folder}: the same call goes on" if self.store.folder else ""
            )
            raise RuntimeError(
                f"chains {task.first} to {task.stop - 1} failed on a worker: {type(error).__name__}: "
                f"{error}{there}"
            ) from error
        about = block.about
        self.losses.pop(task.first, None)
        if about.end < self.plan.steps:
            self.unfinished.append((about, block.state))
        self.sizes.note(about, time.perf_counter() - begin)
        if about.compiled:
            report(f"{about.host} compiled for {about.compiled:.0f} s, once")

    def _progress(self, seconds: float, before: int, changed: bool) -> Progress:
        """How things stand: steps are those of all chains, as if they were made together; `before` are those
        that were there when this call began."""
        steps, total, start = self.plan.steps, self.plan.total, self.store.first
        if self._last is None or changed:
            known = self.store.latest()
            loss, accuracy = (
                _mean([(getattr(about, name), len(about.chains)) for about in known])
                for name in ("loss", "accuracy")
            )
            parts = {name for about in known for name in about.temperature}
            heat = {
                name: _mean([(a.temperature[name], len(a.chains)) for a in known if name in a.temperature])
                for name in sorted(parts)
            }
            step, first = (start + work // total for work in (self.store.work, before))
            self._last = Progress(step, steps, seconds, loss, heat, first, accuracy)
        return replace(self._last, seconds=seconds)


def _failed(future: Future[Finished]) -> bool:
    return future.cancelled() or future.exception() is not None


def _mean(pairs: list[tuple[float, int]]) -> float:
    """The mean of values that count so often, without those that are unknown."""
    known = [(value, count) for value, count in pairs if math.isfinite(value)]
    return (
        sum(value * count for value, count in known) / sum(count for _, count in known) if known else math.nan
    )


def chosen_pool(executor: object) -> Pool | None:
    """The workers that an executor stands for, or what joblib has been told; None for this process."""
    if executor is None:
        return _of_joblib()
    if executor == "ray" or getattr(executor, "__name__", "") == "ray":
        return RayPool(_ray())
    if isinstance(executor, Executor):
        return Pool(executor)
    if callable(getattr(executor, "scatter", None)) and callable(getattr(executor, "get_executor", None)):
        return DaskPool(executor)
    raise TypeError(f"executor must be {ACCEPTED}; got {shown(executor)}")


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
        return Pool(ThreadPoolExecutor(count))
    if kind in ("LokyBackend", "MultiprocessingBackend"):
        return Pool(loky.get_reusable_executor(count))
    raise TypeError(f"heatbath does not know joblib's {kind}: give executor={ACCEPTED}")


@contextmanager
def pool_here() -> Iterator[Pool]:
    """This process, which computes one block at a time."""
    with ThreadPoolExecutor(1) as executor:
        yield Pool(executor)
