"""Serve sessions by worker threads, as many as there are cores; runs take turns for a slice of work each.

Urgent requests, such as an answer or a picture of a run for the page, go first. Then the session that has
waited longest gets a slice for the run with fewer steps. Other computations, such as checking settings, are
jobs, and go before all runs.

A run that may have to be compiled first, which takes seconds or minutes, gets a thread of its own until it is
ready. So neither other pages nor a reset of the same page wait for it.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from heatbath.engine.threads import thread_count

if TYPE_CHECKING:
    from heatbath.explorer.run_stream import RunStream
    from heatbath.explorer.session import Session

T = TypeVar("T")
MAX_WAIT = 60.0  # seconds to wait for work that is due later
log = logging.getLogger("heatbath.explorer")


class Slice(NamedTuple):
    """A slice of work: a session and one of its runs."""

    session: Session
    stream: RunStream


class Workers:
    """Threads that serve sessions.

    Parameters
    ----------
    count : int or None
        Number of threads; None starts as many as the engine uses.
    """

    def __init__(self, count: int | None = None) -> None:
        self._lock = threading.Condition()
        self._sessions: list[Session] = []  # the one that has waited longest first
        self._jobs: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._closed = False
        self._preparing: set[threading.Thread] = set()
        names = [f"heatbath-explorer-{i}" for i in range(thread_count(count))]
        self._threads = [threading.Thread(target=self._serve, name=name, daemon=True) for name in names]
        for thread in self._threads:
            thread.start()

    def add(self, session: Session) -> None:
        """Serve a session from now on."""
        with self._lock:
            if session not in self._sessions:
                self._sessions.insert(0, session)
            self._lock.notify_all()

    def remove(self, session: Session) -> None:
        """Stop serving a session, after the slices in progress."""
        with self._lock:
            if session in self._sessions:
                self._sessions.remove(session)

    def wake(self) -> None:
        """Wake a thread because there may be work."""
        with self._lock:
            self._lock.notify()

    def submit(self, job: Callable[[], T]) -> Future[T]:
        """Return a future with the result of a job, which a worker computes before any run."""
        future: Future[T] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("the explorer's workers have been closed: start another explorer")
            self._jobs.append((future, job))
            self._lock.notify()
        return future

    def close(self) -> None:
        """End all threads after the slices in progress, and cancel jobs that haven't begun."""
        with self._lock:
            self._closed = True
            self._sessions.clear()
            cancelled_jobs = list(self._jobs)
            self._jobs.clear()
            preparing = list(self._preparing)
            self._lock.notify_all()
        for future, _ in cancelled_jobs:
            future.cancel()
        for thread in [*self._threads, *preparing]:
            thread.join()

    @np.errstate(over="ignore", invalid="ignore")  # pages ask for absurd values, and chains diverge
    def _serve(self) -> None:
        """Execute tasks until the workers are closed."""
        while not self._closed:
            task = None  # keep no reference to a session that may have ended while waiting
            try:
                task = self._next_task()
                if task is not None:
                    task()
            except Exception:  # an error in this module: without this thread, all pages would wait
                log.exception("a worker of the explorer continues after an error")

    def _next_task(self) -> Callable[[], None] | None:
        """Wait for the next task and return it; return None once the workers are closed.

        Jobs come first. Then a task is a slice of work on a run, which is held from now on; a run that may
        have to be compiled gets its first slice in another thread.
        """
        with self._lock:
            while not self._closed:
                if self._jobs:
                    return partial(execute_job, *self._jobs.popleft())
                work, seconds = self._choose_slice()
                if work is None:
                    self._lock.wait(seconds)
                    continue
                work.stream.held = True
                if work.stream.prepared or work.stream.commands:
                    return partial(self._execute_slice, work)
                self._prepare_in_thread(work)
        return None

    def _prepare_in_thread(self, work: Slice) -> None:
        """Start a thread that makes the first slice of a run, with everything that it has to compile."""

        def prepare() -> None:
            """Make the slice, and forget this thread."""
            self._execute_slice(work)
            with self._lock:
                self._preparing.discard(threading.current_thread())

        thread = threading.Thread(target=prepare, name=f"prepares-{work.stream.name}", daemon=True)
        self._preparing.add(thread)
        thread.start()

    @np.errstate(over="ignore", invalid="ignore")
    def _execute_slice(self, work: Slice) -> None:
        """Let a session work on a run and release the run; an error ends this run only."""
        session, stream = work
        try:
            session.serve(stream)
        except Exception as error:  # an error in the explorer: the page is told, and other runs continue
            log.exception("a slice of run %s failed", stream.name)
            session.fail(stream, error)
        finally:
            with self._lock:
                stream.held = False
                self._lock.notify()

    def _choose_slice(self) -> tuple[Slice | None, float | None]:
        """Return the slice to work on, or None and the seconds to wait for one (None without end).

        An urgent slice comes first, then that of the session that has waited longest, which moves to the end
        of the queue. The caller holds the lock.
        """
        current_time = time.perf_counter()
        next_time = math.inf  # when the next slice is due
        due_slice: Slice | None = None
        for session in self._sessions:
            for stream, due_time in self._due_times(session, current_time):
                if due_time == -math.inf:
                    return Slice(session, stream), None
                if due_time <= current_time and due_slice is None:
                    due_slice = Slice(session, stream)
                next_time = min(next_time, due_time)

        if due_slice is not None:
            self._sessions.remove(due_slice.session)
            self._sessions.append(due_slice.session)
            return due_slice, None
        if next_time == math.inf:
            return None, None
        return None, min(next_time - current_time, MAX_WAIT)

    def _due_times(self, session: Session, current_time: float) -> list[tuple[RunStream, float]]:
        """Return the times when the runs of a session need a worker; an error ends this session only."""
        try:
            return list(session.due_times(current_time))
        except Exception as error:  # an error in the explorer: the page is told, and the others continue
            log.exception("a session failed")
            session.break_down(error)
            return []


def execute_job(future: Future[Any], job: Callable[[], Any]) -> None:
    """Compute a job and store its result or error in the future, unless the future was cancelled."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(job())
    except BaseException as error:  # raised again where the result is awaited
        future.set_exception(error)
