"""Decide which block goes to which worker, and send it again when a worker is lost."""

from __future__ import annotations

import math
import time
from bisect import bisect_right
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from fractions import Fraction
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from heatbath._internal.checks import shown
from heatbath._internal.interrupts import deferred_interrupts
from heatbath.engine.compile import report
from heatbath.runs.dataset import sizes
from heatbath.runs.distributed.block import About, BlocksError, FinishedBlock, Task
from heatbath.runs.distributed.pools import AHEAD, LOOK, PlanContent, Pool
from heatbath.runs.distributed.store import Store
from heatbath.runs.plan import Plan
from heatbath.runs.progress import Progress
from heatbath.runs.simulation import layout_of_blocks

SECONDS = 4.0  # of a block: long beside what it costs to move it, short beside what is lost with a worker
LARGEST = 2**28  # bytes of a block's results
RETRIES = 3  # of a block whose worker was lost
COUNTING = 1.0  # seconds between two counts of the workers
KEEPING_SHARE = 0.5  # of the time may go into keeping the blocks that all workers bring


class BlockSizes:
    """The size of the next block, as finished blocks teach it.

    A block has as many chains as take SECONDS, or longer where keeping the blocks of all workers would take
    too large a share of that time; but no more than let all workers end together. It has as many steps as
    have results of at most LARGEST bytes.

    Parameters
    ----------
    plan
        The plan of all chains.
    workers, threads
        The number of workers, and of threads for each.
    first
        The step at which chains begin.
    """

    def __init__(self, plan: Plan, workers: int, threads: int, first: int) -> None:
        self.plan = plan
        self.workers = workers
        self.first = first
        self.unit = layout_of_blocks(plan).lanes * threads
        self._work = self._seconds = self._keeping = 0.0
        self._count = 0

    def learn(self, about: About, keeping: float = 0.0) -> None:
        """Take the times of a finished block into account, and the seconds that it took to keep it."""
        self._work += about.work
        self._seconds += about.seconds
        self._keeping += keeping
        self._count += 1

    @property
    def seconds(self) -> float:
        """Seconds that a block is to take."""
        if not self._count:
            return SECONDS
        seconds_to_keep = self.workers * self._keeping / self._count  # a block of every worker
        return max(SECONDS, seconds_to_keep / KEEPING_SHARE)

    def chains(self, left: int) -> int:
        """Return the number of chains of the next block, when this number of chains is left."""
        fair_share = -(-left // self.workers)  # rounded up
        if not self._seconds:
            return self._in_units(min(self.unit, fair_share))
        steps = self.plan.steps - self.first
        fitting = int(self.seconds * self._work / (self._seconds * steps))
        return self._in_units(min(fitting, fair_share))

    def even(self) -> int:
        """Return the number of chains of each block if all are cut at once: AHEAD blocks for each worker."""
        return self._in_units(-(-self.plan.total // (AHEAD * self.workers)))

    def _in_units(self, count: int) -> int:
        """Return about this number of chains, in complete units, with results that are small enough."""
        largest = LARGEST // self._bytes(1, self.first, self.plan.steps)
        return max(self.unit, min(count, largest) // self.unit * self.unit)

    def until(self, chains: int, step: int) -> int:
        """Return the last step of a block of this number of chains that begins at `step`.

        It has as many steps as have results of at most LARGEST bytes, but at least one.
        """
        ends = range(step + 1, self.plan.steps + 1)
        fitting = bisect_right(ends, LARGEST, key=lambda end: self._bytes(chains, step, end))
        return ends[max(fitting - 1, 0)]

    def _bytes(self, chains: int, begin: int, end: int) -> int:
        """Return the bytes of the results of this number of chains from one step to another."""
        return sum(sizes(self.plan, end, range(chains), begin).values())


class UnfinishedChains(NamedTuple):
    """The last block of chains that are not at the last step, and their state if it is in memory."""

    about: About
    state: bytes | None


class BlockScheduler:
    """A plan that is computed in blocks, of which a few for each worker wait or are under way at a time.

    No block takes much longer than `seconds`: if it is not done by then, the worker returns what it has, and
    the chains continue as another block.
    """

    def __init__(self, pool: Pool, store: Store, threads: int, seconds: float) -> None:
        """Find out which chains of the store are missing or unfinished; nothing is submitted yet.

        Parameters
        ----------
        pool
            The workers.
        store
            The finished blocks of the plan, to which new ones are added.
        threads
            The number of threads for each block.
        seconds
            The time after which a worker returns an unfinished block.
        """
        self.pool = pool
        self.store = store
        self.threads = threads
        self.seconds = max(seconds, SECONDS)
        self.plan = store.plan
        self.shared = store.shared

        self.missing_chains = store.missing()
        self.unfinished = [UnfinishedChains(about, None) for about in store.unfinished()]
        self.sizes = BlockSizes(self.plan, 1, threads, store.first)
        self.under_way: dict[Future[Any], Task] = {}
        self.lost_workers: dict[int, int] = {}  # how many workers a block has lost, by its first chain

        self._limit = 0  # blocks under way at a time
        self._time_of_count = -math.inf  # of the workers, in seconds
        self._ended: SimpleQueue[Future[Any]] = SimpleQueue()  # in the order in which they ended
        self._means = Means()  # of the latest block of all chains
        for about in store.latest():
            self._means.add(about)

    def run(self, progress: Callable[[Progress], None] | None) -> None:
        """Compute all blocks that are missing, and add them to the store.

        On an error or Ctrl-C all tasks are cancelled. `progress` is called a few times a second.
        """
        begin = time.perf_counter()
        earlier_work = self.store.work
        with deferred_interrupts() as is_interrupted:  # so that every task that was submitted is known
            content = self.pool.share(self.shared)
            try:
                while self.missing_chains or self.unfinished or self.under_way:
                    if is_interrupted():
                        raise KeyboardInterrupt
                    self._submit_next_blocks(content)
                    self._take_ended(content)
                    if progress:
                        progress(self._progress(time.perf_counter() - begin, earlier_work))
            except BaseException as error:
                self.pool.cancel(list(self.under_way))
                if is_interrupted() and isinstance(error, Exception):  # Ctrl-C has reached the workers, too
                    raise KeyboardInterrupt from error
                raise

    def _submit_next_blocks(self, content: PlanContent) -> None:
        """Submit blocks until enough of them wait or are under way.

        The workers are counted now and then, as they may come and go.
        """
        if time.perf_counter() - self._time_of_count > COUNTING:
            self.sizes.workers = self.pool.workers(self.threads)
            self._limit = self.pool.ahead(self.threads) * self.sizes.workers
            self._time_of_count = time.perf_counter()
        while (self.missing_chains or self.unfinished) and len(self.under_way) < self._limit:
            self._submit(self._next_task(), content)

    def _take_ended(self, content: PlanContent) -> None:
        """Take the blocks of all futures that have ended; `content` is the plan as tasks get it."""
        ended = self._ended_futures()
        while ended:  # without a reference to a future that is done with: see _take
            self._take(ended.pop(0), content)

    def _ended_futures(self) -> list[Future[Any]]:
        """Return the futures that have ended, waiting for LOOK seconds at most.

        Those that failed come last, so that what is finished is kept first.
        """
        futures = []
        with suppress(Empty):
            futures.append(self._ended.get(timeout=LOOK))
            while True:
                futures.append(self._ended.get_nowait())
        return sorted(futures, key=lambda future: future.cancelled() or future.exception() is not None)

    def _next_task(self) -> Task:
        """Remove the next block from what is left to do, and return its task.

        Chains that a block has left unfinished come first; then new chains, as many as `sizes` says.
        """
        state: bytes | None = None
        if self.unfinished:
            about, state = self.unfinished.pop(0)
            chains = about.chains
            step = about.end
        else:
            chains = self._next_chains()
            step = self.store.first

        return Task(
            digest=self.shared.digest, modules=self.shared.modules, first=chains.start, stop=chains.stop,
            until=self.sizes.until(len(chains), step), step=step, state=state or self.store.state(chains),
            seconds=self.seconds, threads=self.threads,
        )  # fmt: skip

    def _next_chains(self) -> range:
        """Remove the chains of a new block from what is left to do, and return them."""
        free = self.missing_chains.pop(0)
        left_count = len(free) + sum(map(len, self.missing_chains))
        stop = min(free.start + self.sizes.chains(left_count), free.stop)
        if stop < free.stop:
            self.missing_chains.insert(0, range(stop, free.stop))
        return range(free.start, stop)

    def _submit(self, task: Task, content: PlanContent) -> None:
        """Give a task to the executor."""
        try:
            future = self.pool.submit(task, content)
            future.add_done_callback(self._ended.put)
        except Exception as error:  # each executor has its own: it was shut down, a process has ended, ...
            raise self._failure(task, "could not be given to the executor", error) from error
        self.under_way[future] = task

    def _take(self, future: Future[Any], content: PlanContent) -> None:
        """Keep the block of a future that has ended, or submit its task again if its worker was lost.

        `content` is the plan as the pool's tasks get it. Raises BlocksError if the task failed otherwise, or
        its answer is not the block that was asked for.
        """
        task = self.under_way.pop(future)
        begin = time.perf_counter()
        try:
            block = self.pool.received(future.result())
        except Exception as error:
            self.lost_workers[task.first] = self.lost_workers.get(task.first, 0) + 1
            if self.pool.is_lost(error) and self.lost_workers[task.first] <= RETRIES:
                self._submit(task, content)
                return
            raise self._failure(task, "failed on a worker", error) from error
        del future  # the last reference: while it is held, Dask repeats what is lost with a worker

        try:
            _check_answer(task, block)
            self.store.add(block)
        except ValueError as error:
            raise self._failure(task, "came back from a worker and cannot be taken", error) from error
        self._count(block, continues=task.step > self.store.first)
        self.lost_workers.pop(task.first, None)
        self.sizes.learn(block.about, time.perf_counter() - begin)

    def _count(self, block: FinishedBlock, continues: bool) -> None:
        """Take the results of a stored block into the means, and note its chains if they are unfinished.

        If it `continues` an earlier block of its chains, the values of that one no longer count.
        """
        about = block.about
        if continues:
            self._means.add(self.store.blocks[about.first][-2].about, sign=-1)
        self._means.add(about)
        if about.end < self.plan.steps:
            self.unfinished.append(UnfinishedChains(about, block.state))
        if about.compiled:
            report(f"{about.host} compiled for {about.compiled:.0f} s, once")

    def _failure(self, task: Task, event: str, error: Exception) -> BlocksError:
        """Return the error for a task, with what happened to it and what is kept."""
        kept = f"; {self.store.done} of {self.plan.total} chains are done"
        if self.store.folder:
            kept += f" and in {self.store.folder}: the same call continues from there"
        chains = f"chains {task.first} to {task.stop - 1}"
        return BlocksError(f"{chains} {event}: {type(error).__name__}: {error}{kept}")

    def _progress(self, seconds: float, earlier_work: int) -> Progress:
        """Return the progress of all chains, with steps as if all chains made them together.

        `earlier_work` is the number of steps of all chains that were there when this call began.
        """
        means = self._means.values()
        loss = means.pop(("loss",), math.nan)
        accuracy = means.pop(("accuracy",), math.nan)
        temperature = {part: mean for (_, part), mean in sorted(means.items())}
        step = self.store.first + self.store.work // self.plan.total
        first = self.store.first + earlier_work // self.plan.total
        return Progress(step, self.plan.steps, seconds, loss, temperature, first, accuracy)


class Means:
    """Means over chains of the losses, accuracies and temperatures of blocks, without those that are unknown.

    Sums are exact, so that a value that is taken away again leaves nothing behind, however large it was.
    """

    def __init__(self) -> None:
        self._sums: dict[tuple[str, ...], Fraction] = {}
        self._counts: dict[tuple[str, ...], int] = {}

    def add(self, about: About, sign: int = 1) -> None:
        """Add the values of a block, or take them away with the sign -1."""
        means: dict[tuple[str, ...], float] = {("loss",): about.loss, ("accuracy",): about.accuracy}
        means |= {("temperature", part): mean for part, mean in about.temperature.items()}
        signed_count = sign * len(about.chains)
        for name, mean in means.items():
            if math.isfinite(mean):
                self._sums[name] = self._sums.get(name, Fraction()) + signed_count * Fraction(mean)
                self._counts[name] = self._counts.get(name, 0) + signed_count

    def values(self) -> dict[tuple[str, ...], float]:
        """Return all means that are known: by ("loss",), ("accuracy",), and ("temperature", part)."""
        return {name: float(self._sums[name] / count) for name, count in self._counts.items() if count}


def _check_answer(task: Task, block: object) -> None:
    """Raise unless a worker's answer is the block that was asked for."""
    if not isinstance(block, FinishedBlock):
        raise ValueError(f"it is no block, but {shown(block)}")
    about = block.about
    if (about.first, about.stop, about.begin) != (task.first, task.stop, task.step):
        raise ValueError(f"it is {about.name}, and the steps after {task.step} were asked for")
    if not task.step < about.end <= task.until:
        raise ValueError(f"it ends at step {about.end}, and {task.step + 1} to {task.until} were asked for")
