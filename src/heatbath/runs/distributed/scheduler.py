"""Decide which block goes to which worker, and send it again when a worker is lost."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import (
    Future,
)
from contextlib import suppress
from fractions import Fraction
from queue import Empty, SimpleQueue
from typing import Any

from heatbath._internal.checks import shown
from heatbath._internal.interrupts import deferred_interrupts
from heatbath.engine.compile import report
from heatbath.runs.dataset import sizes
from heatbath.runs.distributed.block import About, BlocksError, Finished, Task
from heatbath.runs.distributed.pools import AHEAD, LOOK, Pool
from heatbath.runs.distributed.store import Store
from heatbath.runs.plan import Plan
from heatbath.runs.progress import Progress
from heatbath.runs.simulation import layout_of_blocks

SECONDS = 4.0  # of a block: long beside what it costs to move it, short beside what is lost with a worker
LARGEST = 2**28  # bytes of a block's results
RETRIES = 3  # of a block whose worker was lost


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


class BlockScheduler:
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
