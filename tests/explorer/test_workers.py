"""Workers that serve sessions, without a server."""

import math
import threading
import time
from types import SimpleNamespace

import pytest

from heatbath.explorer.workers import Workers
from tests.patience import PATIENCE, wait_until


@pytest.fixture
def workers():
    workers = Workers(1)
    yield workers
    workers.close()


def session_with(*dues, served=None):
    """Return a session with a prepared run for each time when it is due; `served` gets the names of runs."""
    streams = [
        SimpleNamespace(name=f"{due}", held=False, prepared=True, commands=[], due=due) for due in dues
    ]

    def serve(stream):
        stream.due = math.inf
        served.append(stream.name)

    def due_times(current_time):
        return [(stream, stream.due) for stream in streams if not stream.held]

    return SimpleNamespace(serve=serve, due_times=due_times)


def test_a_job_returns_its_result_or_raises_its_error(workers):
    assert workers.submit(lambda: 6 * 7).result(PATIENCE) == 42
    with pytest.raises(ZeroDivisionError):
        workers.submit(lambda: 1 // 0).result(PATIENCE)
    assert workers.submit(lambda: "continues").result(PATIENCE) == "continues"


def test_closed_workers_cancel_waiting_jobs_and_refuse_new_ones():
    workers, has_begun, may_end = Workers(1), threading.Event(), threading.Event()

    def block():
        has_begun.set()
        may_end.wait(PATIENCE)

    working = workers.submit(block)
    assert has_begun.wait(PATIENCE)
    waiting = workers.submit(lambda: None)
    closing = threading.Thread(target=workers.close)
    closing.start()
    assert wait_until(waiting.cancelled)
    may_end.set()
    closing.join(PATIENCE)
    assert working.done()
    with pytest.raises(RuntimeError, match="start another explorer"):
        workers.submit(lambda: None)


def test_urgent_runs_are_served_before_others_and_later_ones_when_they_are_due(workers):
    served, has_begun, may_begin = [], threading.Event(), threading.Event()

    def block():
        has_begun.set()
        may_begin.wait(PATIENCE)

    workers.submit(block)
    assert has_begun.wait(PATIENCE)
    later = time.perf_counter() + 0.02
    workers.add(session_with(later, 0.0, -math.inf, math.inf, served=served))
    may_begin.set()
    assert wait_until(lambda: len(served) == 3)
    assert served == ["-inf", "0.0", str(later)]


def test_sessions_take_turns(workers):
    served, has_begun, may_begin = [], threading.Event(), threading.Event()
    workers.submit(lambda: (has_begun.set(), may_begin.wait(PATIENCE)))
    assert has_begun.wait(PATIENCE)
    for name in (1.0, 2.0):  # each has two runs that are due; the session added last has waited longest
        workers.add(session_with(name, name + 0.5, served=served))
    may_begin.set()
    assert wait_until(lambda: len(served) == 4)
    assert served == ["2.0", "1.0", "2.5", "1.5"]
