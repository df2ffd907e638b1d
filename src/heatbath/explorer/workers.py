"""Workers: as many threads as there are cores, which take runs in turns for a slice of work each.

What a page waits for, an answer or a picture of a run, goes first. Then the session that has waited longest
has a slice, and of its runs the one with fewer steps. What else needs computing, such as checking settings,
is a job, and goes before all.

A run that may have to be compiled first, which takes seconds or minutes, is not theirs: it has a thread of
its own until it is ready, so that other pages, and a reset of this one, wait for none of it.
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
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from heatbath.engine.threads import thread_count

if TYPE_CHECKING:
    from heatbath.explorer.run_stream import Flight
    from heatbath.explorer.session import Session

T = TypeVar("T")
LONGEST = 60.0  # seconds to wait for what is due some time
log = logging.getLogger("heatbath.explorer")


class Workers:
    """Threads that serve sessions."""

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
        """Serve a session."""
        with self._lock:
            if session not in self._sessions:
                self._sessions.insert(0, session)
            self._lock.notify_all()

    def remove(self, session: Session) -> None:
        """Serve it no more; a slice that is under way ends."""
        with self._lock:
            if session in self._sessions:
                self._sessions.remove(session)

    def wake(self) -> None:
        """Say that there may be something to do."""
        with self._lock:
            self._lock.notify()

    def submit(self, job: Callable[[], T]) -> Future[T]:
        """Have something computed."""
        future: Future[T] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("the workers have ended")
            self._jobs.append((future, job))
            self._lock.notify()
        return future

    def close(self) -> None:
        """End, after the slices that are under way."""
        with self._lock:
            self._closed = True
            self._sessions.clear()
            jobs, self._jobs = list(self._jobs), deque()
            preparing = list(self._preparing)
            self._lock.notify_all()
        for future, _ in jobs:
            future.cancel()
        for thread in [*self._threads, *preparing]:
            thread.join()

    @np.errstate(over="ignore", invalid="ignore")  # pages ask for absurd values, and chains diverge
    def _serve(self) -> None:
        while not self._closed:
            task = None  # and no session, which may have ended
            try:
                if (task := self._wait()) is not None:
                    task()
            except Exception:  # of our own: a worker less would be missed by all pages
                log.exception("a worker of the explorer goes on after an error")

    def _wait(self) -> Callable[[], None] | None:
        """What to do next, as soon as there is something; None at the end."""
        with self._lock:
            while not self._closed:
                if self._jobs:
                    return partial(_carry_out, *self._jobs.popleft())
                chosen, seconds = self._next()
                if chosen is None:
                    self._lock.wait(seconds)
                    continue
                chosen[1].held = True
                if chosen[1].prepared or chosen[1].commands:
                    return partial(self._slice, *chosen)
                self._have_prepared(*chosen)
        return None

    def _have_prepared(self, session: Session, flight: Flight) -> None:
        """Have a thread make the first slice of a run, with all that has to be compiled for it."""

        def prepare() -> None:
            self._slice(session, flight)
            with self._lock:
                self._preparing.discard(threading.current_thread())

        thread = threading.Thread(target=prepare, name=f"prepares-{flight.name}", daemon=True)
        self._preparing.add(thread)
        thread.start()

    @np.errstate(over="ignore", invalid="ignore")
    def _slice(self, session: Session, flight: Flight) -> None:
        try:
            session.serve(flight)
        except Exception as error:  # of our own: the page is told, and the others go on
            log.exception("a slice of run %s failed", flight.name)
            session.fail(flight, error)
        finally:
            with self._lock:
                flight.held = False
                self._lock.notify()

    def _next(self) -> tuple[tuple[Session, Flight] | None, float | None]:
        """Whom to serve now; or nobody, and for how long to wait."""
        now, soonest = time.perf_counter(), math.inf
        first: tuple[Session, Flight] | None = None
        for session in self._sessions:
            try:
                waiting = list(session.due(now))
            except Exception as error:  # of our own: its page is told, and the others go on
                log.exception("a session failed")
                session.break_down(error)
                continue
            for flight, due in waiting:
                if due == -math.inf:
                    return (session, flight), None
                if due <= now and first is None:
                    first = session, flight
                soonest = min(soonest, due)
        if first is not None:
            self._sessions.remove(first[0])
            self._sessions.append(first[0])
            return first, None
        return None, min(soonest - now, LONGEST) if soonest < math.inf else None


def _carry_out(future: Future[Any], job: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(job())
    except BaseException as error:  # whoever waits for it gets it
        future.set_exception(error)
