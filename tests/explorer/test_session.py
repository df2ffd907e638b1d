"""Sessions, workers and websockets of the explorer, without a network between."""

import asyncio
import json
import threading
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from starlette.websockets import WebSocket
from threadpoolctl import threadpool_info, threadpool_limits

from heatbath.explorer.run_stream import PaceStart, RunStream, TracesSent
from heatbath.explorer.server import Explorer
from heatbath.explorer.session import MAX_ARREARS, TRACE_SECONDS, WAIT_FACTOR, Session, make_streams
from heatbath.explorer.settings import read_settings
from tests.explorer.pages import SMALL, session_without_workers
from tests.patience import PATIENCE, wait_until


@pytest.fixture
def explorer(monkeypatch):
    monkeypatch.setattr("heatbath.explorer.server.RETURN_SECONDS", PATIENCE)
    explorer = Explorer()
    yield explorer
    explorer.close()


class Wire:
    """A websocket of the server's; the test is the other end."""

    def __init__(self, explorer, session=""):
        self.sent, self.inbox = [], asyncio.Queue()
        self.put("connect")
        scope = {
            "type": "websocket",
            "headers": [(b"host", b"localhost")],
            "query_string": f"session={session}".encode(),
        }
        self.task = asyncio.create_task(explorer._serve_socket(WebSocket(scope, self.inbox.get, self.send)))

    async def send(self, message):
        await self.pass_on(message)

    async def pass_on(self, message):
        self.sent.append(message)

    def put(self, kind, **fields):
        self.inbox.put_nowait({"type": f"websocket.{kind}", **fields})

    def say(self, kind, **fields):
        self.put("receive", text=json.dumps({"type": kind, **fields}))

    def texts(self):
        return [json.loads(message["text"]) for message in self.sent if "text" in message]

    async def until(self, kind, **fields):
        """Wait for the first message of a kind with the given fields, and return it."""
        while True:
            for message in self.texts():
                if message["type"] == kind and fields.items() <= message.items():
                    return message
            assert not self.task.done(), self.task
            await asyncio.sleep(0.001)

    async def close(self):
        self.put("disconnect", code=1000)
        await self.task


def run(test):
    """Have a test done by an event loop."""
    asyncio.run(asyncio.wait_for(test, PATIENCE))


def test_closed_pages_keep_their_runs_for_a_while_if_there_is_room(explorer, monkeypatch):
    monkeypatch.setattr("heatbath.explorer.server.MAX_SESSIONS", 4)

    async def visit(session=""):
        page = Wire(explorer, session)
        key = (await page.until("hello"))["session"]
        await page.close()
        return key

    async def come_and_go():
        keys = [await visit() for _ in range(4)]
        assert [await visit(key) for key in keys] == keys
        page = Wire(explorer)  # for which the one that is gone longest makes room
        assert (await page.until("hello"))["session"] not in keys
        assert list(explorer.sessions)[:3] == keys[1:]
        page.say("setup", id=1, settings=SMALL)
        await page.until("ready", id=1)
        await page.close()

    run(come_and_go())


def test_a_page_that_returns_before_it_was_removed_has_its_runs(explorer):
    async def back():
        page = Wire(explorer)
        key = (await page.until("hello"))["session"]
        on, begun = asyncio.Event(), asyncio.Event()

        async def slow(message):
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                await on.wait()

        page.pass_on = slow
        page.say("play")  # the answer is on its way when it goes
        await begun.wait()
        page.put("disconnect", code=1001)
        while explorer.sessions[key].attached:
            await asyncio.sleep(0.001)
        again = Wire(explorer, key)
        assert (await again.until("hello"))["session"] == key
        on.set()
        await page.task
        assert explorer.sessions[key].attached
        assert key not in explorer._removals
        await again.close()

    run(back())


def test_replaced_runs_send_nothing_and_their_questions_are_answered(explorer, monkeypatch):
    """Both runs are replaced while a worker computes run A, and a command and a download wait for it."""
    began, on = threading.Event(), threading.Event()
    stand = RunStream._update_step

    def slow(stream):
        stand(stream)
        if stream.name == "A" and stream.step and not began.is_set():
            began.set()
            on.wait(PATIENCE)
            stream.post('{"type":"diverged","run":"old"}')
            stream.change({"h": 0.2}, 3)

    monkeypatch.setattr(RunStream, "_update_step", slow)

    async def replace():
        page = Wire(explorer)
        key = (await page.until("hello"))["session"]
        page.say("setup", id=1, settings=SMALL)
        await page.until("ready", id=1)
        page.say("step", id=2, steps=5)
        while not began.is_set():
            await asyncio.sleep(0.001)
        page.say("change", id=4, run="A", h=0.1)
        request = SimpleNamespace(
            path_params={"session": key, "name": "A"}, headers={"host": "localhost"}, query_params={}
        )
        download = asyncio.create_task(explorer._serve_run(request))
        page.say("reset", id=5)
        await page.until("ready", id=5)
        answers = [await page.until(kind, id=number) for kind, number in (("state", 2), ("error", 4))]
        assert "restarted" in answers[1]["text"]
        assert (await download).status_code == 404
        on.set()
        assert "restarted" in (await page.until("error", id=3))["text"]
        page.say("step", id=6, steps=5)
        assert (await page.until("state", id=6))["steps"] == {"A": 5, "B": 5}
        assert not [message for message in page.texts() if message["type"] == "diverged"]
        await page.close()

    run(replace())


def test_messages_of_new_runs_come_after_ready(explorer, monkeypatch):
    """A worker that is at them as soon as they are there, and an event loop that is slow."""
    install, early = Session.install, threading.Event()

    def slow(*given):
        install(*given)
        early.wait(PATIENCE)

    def prepare(stream):
        stream.post('{"type":"compiling"}')
        stream.prepared = True
        early.set()

    monkeypatch.setattr(Session, "install", slow)
    monkeypatch.setattr(RunStream, "prepare", prepare)

    async def begin():
        page = Wire(explorer)
        page.say("setup", id=1, settings=SMALL)
        await page.until("compiling")
        assert [message["type"] for message in page.texts()][:2] == ["hello", "ready"]
        await page.close()

    run(begin())


def test_requests_for_steps_of_ended_runs_are_answered_and_no_worker_spins(explorer, monkeypatch):
    served = Counter()
    serve, work = Session.serve, RunStream.work

    def counted(session, stream):
        served[stream.name] += 1
        serve(session, stream)

    def slow(stream, *given):
        if stream.name == "A":
            stream.alive = False  # as if its chains had diverged
        else:
            time.sleep(0.1)
            work(stream, *given)

    def broken(stream, *given):
        raise ZeroDivisionError("on purpose")

    monkeypatch.setattr(Session, "serve", counted)

    async def end():
        page = Wire(explorer)
        page.say("setup", id=1, settings=SMALL)
        await page.until("ready", id=1)
        monkeypatch.setattr(RunStream, "work", slow)
        page.say("step", id=2, steps=3)
        assert (await page.until("state", id=2))["steps"] == {"A": 0, "B": 3}
        assert served["A"] < 10
        monkeypatch.setattr(RunStream, "work", broken)
        page.say("reset", id=3)
        await page.until("ready", id=3)
        for number in (4, 5):  # of which the first ends both
            page.say("step", id=number, steps=3)
            await page.until("state", id=number)
        await page.close()

    run(end())


def test_steps_requested_while_others_are_made_are_all_made():
    """Run B is in the midst of a slice, and has not heard of the second ones, when A has made them."""
    said = []
    session = Session(lambda text: said.append(json.loads(text)) if text else None, lambda: None)
    streams = make_streams(read_settings(SMALL), lambda *message: None)
    session.install(read_settings(SMALL), streams, "")
    a, b = streams.values()
    session.make_steps(1, 1)
    session.serve(a)
    session.serve(b)
    session.make_steps(1, 2)
    session.serve(a)
    session.serve(a)
    b.work(PATIENCE, 1)
    session.serve(a)
    assert (a.step, b.step, said) == (2, 1, [])
    session.serve(b)
    session.serve(b)
    assert (a.step, b.step) == (2, 2)
    assert [message["id"] for message in said] == [1, 2]


def test_a_rewound_run_keeps_to_its_speed():
    session = Session(lambda text: None, lambda: None)
    streams = make_streams(read_settings(SMALL), lambda *message: None)
    session.install(read_settings(SMALL), streams, "")
    session.set_speed(100)
    for stream in streams.values():
        session.serve(stream)
        stream.work(PATIENCE, 1000)
    session.play(True)
    assert [stream.step for stream in streams.values()] == [1000, 1000]
    begin = time.perf_counter()
    for stream in streams.values():
        stream.rewind()
        stream.traces_sent = TracesSent(begin, 0, 0.0)
        for _ in range(20):
            session.serve(stream)
    most = 100 * (MAX_ARREARS + time.perf_counter() - begin) + 1
    assert all(0 <= stream.step <= most for stream in streams.values())


def test_a_limited_speed_counts_from_the_moment_and_the_step_at_which_it_is_set():
    session = Session(lambda text: None, lambda: None)
    session.install(read_settings(SMALL), make_streams(read_settings(SMALL), lambda *message: None), "")
    streams = list(session.streams.values())
    for stream in streams:
        session.serve(stream)
        stream.work(PATIENCE, 10)
    begin = time.perf_counter()
    session.set_speed(100)
    assert [stream.pace_start.step for stream in streams] == [10, 10]
    assert all(begin <= stream.pace_start.time <= time.perf_counter() for stream in streams)


@pytest.mark.parametrize("late", [0.0, 0.2, 5.0])
@pytest.mark.parametrize("speed", [1, 3, 10, 100])
def test_a_slow_run_makes_its_step_however_late_its_worker_is(speed, late):
    session = Session(lambda text: None, lambda: None)
    streams = make_streams(read_settings(SMALL), lambda *message: None)
    session.install(read_settings(SMALL), streams, "")
    session.set_speed(speed)
    session.play(True)
    stream = streams["A"]
    stream.pace_start = PaceStart(time.perf_counter() - 1 / speed - late, stream.step)
    session.serve(stream)
    assert stream.step >= 1


def test_an_internal_error_between_slices_ends_the_runs_of_one_page_and_no_worker(explorer, monkeypatch):
    due, broken = Session.due_times, []

    def faulty(session, now):
        if session.key in broken:
            raise ZeroDivisionError("on purpose")
        return due(session, now)

    monkeypatch.setattr(Session, "due_times", faulty)

    async def break_one():
        pages = [Wire(explorer), Wire(explorer)]
        for page in pages:
            page.say("setup", id=1, settings=SMALL)
            await page.until("ready", id=1)
        broken.append((await pages[0].until("hello"))["session"])
        pages[0].say("step", id=2, steps=3)
        assert "on purpose" in (await pages[0].until("error", id=2))["text"]
        pages[1].say("step", id=2, steps=3)
        assert (await pages[1].until("state", id=2))["steps"] == {"A": 3, "B": 3}
        assert all(thread.is_alive() for thread in explorer.workers._threads)
        for number, kind in enumerate(("play", "step", "rewind", "code"), 3):
            fields = {"step": {"steps": 1}, "rewind": {"run": "A"}, "code": {"run": "A", "as": "python"}}
            pages[0].say(kind, id=number, **fields.get(kind, {}))
            assert "reset to start again" in (await pages[0].until("error", id=number))["text"]
        broken.clear()
        pages[0].say("reset", id=9)
        pages[0].say("step", id=10, steps=3)
        assert (await pages[0].until("state", id=10))["steps"] == {"A": 3, "B": 3}
        for page in pages:
            await page.close()

    run(break_one())


@pytest.mark.parametrize("limit", ["MAX_WAITING", "SEND_TIMEOUT"])
def test_a_page_that_does_not_read_is_disconnected(explorer, monkeypatch, limit):
    async def stuck(message):
        await asyncio.Event().wait()

    async def never_read():
        page = Wire(explorer)
        await page.until("hello")
        page.pass_on = stuck
        monkeypatch.setattr(f"heatbath.explorer.server.{limit}", 20)
        if limit == "SEND_TIMEOUT":
            monkeypatch.setattr("heatbath.explorer.server.SEND_TIMEOUT", 0.05)
        for _ in range(1 if limit == "SEND_TIMEOUT" else 25):
            page.say("pause")  # each of which is answered
        await page.task
        assert not any(session.attached for session in explorer.sessions.values())

    run(never_read())


def test_a_returning_page_gets_each_run_from_the_worker_that_holds_it(explorer, monkeypatch):
    asked, entries, layout = [], RunStream.all_changes, RunStream.layout

    def watch(name, method):
        def watched(stream):
            asked.append((stream.name, name, stream.held))
            return method(stream)

        monkeypatch.setattr(RunStream, name, watched)

    async def back():
        page = Wire(explorer)
        key = (await page.until("hello"))["session"]
        page.say("setup", id=1, settings=SMALL)
        page.say("step", id=2, steps=3)
        await page.until("state", id=2)
        await page.close()
        watch("all_changes", entries)
        watch("layout", layout)
        page = Wire(explorer, key)
        page.say("change", id=3, run="B", h=0.01)
        changed = await page.until("changed", id=3)
        kinds = [
            (m["type"], m.get("run")) for m in page.texts() if m["type"] in ("ready", "changed", "state")
        ]
        assert kinds[:4] == [("ready", None), ("state", None), ("changed", "A"), ("changed", "B")]
        assert changed["step"] == 3
        assert {("A", "all_changes", True), ("B", "all_changes", True)} <= set(asked)
        assert all(held for *_, held in asked)
        page.say("step", id=4, steps=2)
        assert (await page.until("state", id=4))["steps"] == {"A": 5, "B": 5}
        await page.close()

    run(back())


def test_compilation_delays_neither_a_reset_nor_another_page(explorer, monkeypatch):
    """More runs are compiled than there are workers; their own page is told as soon as they are ready."""
    prepare, on = RunStream.prepare, threading.Event()

    def compile_first(stream):
        if stream.settings.seed == 7 and not stream.prepared:
            on.wait(PATIENCE)
        prepare(stream)

    monkeypatch.setattr(RunStream, "prepare", compile_first)

    async def compile_and_go_on():
        pages = [Wire(explorer) for _ in range(4)]
        for number in (1, 2):  # the second while the first are being compiled
            for page in pages:
                page.say("setup", id=number, settings={**SMALL, "seed": 7})
                page.say("play")
                await page.until("ready", id=number)
        other = Wire(explorer)
        other.say("setup", id=1, settings=SMALL)
        other.say("step", id=2, steps=5)
        assert (await other.until("state", id=2))["steps"] == {"A": 5, "B": 5}
        pages[0].say("reset", id=3)
        await pages[0].until("ready", id=3)
        assert not any(message["type"] == "traces" for page in pages for message in page.texts())
        on.set()
        for page in (*pages[1:], other):
            page.say("step", id=4, steps=3)
            await page.until("state", id=4)
            await page.close()
        await pages[0].close()

    try:
        run(compile_and_go_on())
    finally:
        on.set()
    assert wait_until(lambda: not explorer.workers._preparing)


def test_blas_has_one_thread_only_while_runs_play(explorer, monkeypatch):
    monkeypatch.setattr("heatbath.explorer.server.BLAS_CHECK_SECONDS", 0.05)

    def threads():
        return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}

    async def play_and_pause():
        page = Wire(explorer)
        page.say("setup", id=1, settings=SMALL)
        page.say("play", id=2)
        await page.until("traces")
        for _ in range(20):
            assert threads() == {1}
            await asyncio.sleep(0.01)
        page.say("pause", id=3)
        await page.until("state", id=3)
        while threads() != {2}:
            await asyncio.sleep(0.01)
        await page.close()

    with threadpool_limits(2, "blas"):
        run(play_and_pause())


def test_messages_above_the_limit_are_answered(explorer, monkeypatch):
    monkeypatch.setattr("heatbath.explorer.server.MAX_MESSAGES_PER_SECOND", 3)
    monkeypatch.setattr("heatbath.explorer.server.MAX_WAITING", 20)
    monkeypatch.setattr("heatbath.explorer.server.time", SimpleNamespace(monotonic=lambda: 0.0))

    async def flood():
        page = Wire(explorer)
        for number in range(100):
            page.say("pause", id=number)
        texts = [(await page.until("error", id=number))["text"] for number in range(100)]
        assert all("send setup before" in text for text in texts[:3])
        assert all("at most 3 messages a second" in text for text in texts[3:])
        await page.close()

    run(flood())


def test_a_file_name_from_outside_is_not_used_as_a_path(tmp_path):
    class Windows(type(Path())):
        def __truediv__(self, name):
            return Path(self, *name.split("\\"))

    (tmp_path / "page" / "inner").mkdir(parents=True)
    for place in ("secret.js", "page/mine.js", "page/.hidden.js", "page/table.csv"):
        (tmp_path / place).touch()
    explorer = SimpleNamespace(page=Windows(tmp_path / "page"), headers={})
    assert Explorer._file_response(explorer, "mine.js").status_code == 200
    for name in ("inner\\..\\..\\secret.js", "C:mine.js", "mine.js\0", ".hidden.js", "table.csv", ""):
        assert Explorer._file_response(explorer, name).status_code == 404, name


def test_a_rewound_run_does_not_delay_the_other():
    session, streams, _ = session_without_workers()
    a, b = streams.values()
    session.play(True)
    a.step, b.step = 3000, 1_000_000  # B went on when A had diverged
    session.rewind(a)
    assert a.step == 0
    now = time.perf_counter()
    assert session._max_steps(a, now) == session._max_steps(b, now) > 0
    b.step += session._max_steps(b, now)
    assert session._max_steps(b, now) == 0  # from here on they stay together
    assert [stream.name for stream, _ in session.due_times(now)] == ["A", "B"]
    a.step += 2000
    assert [stream.name for stream, _ in session.due_times(now)] == ["B", "A"]


def test_slow_traces_leave_time_for_work():
    session, streams, _ = session_without_workers()
    stream = streams["A"]
    stream.traces_sent = TracesSent(100.0, 0, 2.0)
    session.playing = True
    assert session._next_traces_time(stream) == 100 + WAIT_FACTOR * 2.0
    session.playing = False  # then there is no work to be kept from
    assert session._next_traces_time(stream) == 100 + TRACE_SECONDS
    stream.send_traces()
    assert 0 < stream.traces_sent.seconds < PATIENCE


def test_the_last_frame_before_a_pause_has_the_present_losses(monkeypatch):
    monkeypatch.setattr("heatbath.explorer.run_stream.LOSSES_SECONDS", PATIENCE)
    session, streams, _ = session_without_workers()
    shown = []
    session.post = lambda message: shown.append(message) if isinstance(message, bytes) else None

    def look():
        session.request_frame()
        session._frame_began = -PATIENCE
        for stream in streams.values():
            stream.traces_sent = TracesSent(time.perf_counter() + PATIENCE, stream.step, 0.0)
            if session._is_urgent(stream):
                session.serve(stream)

    for stream in streams.values():
        stream.prepare()
    session.playing = True
    look()
    for stream in streams.values():
        stream.work(PATIENCE, 20)
    look()
    assert shown[0][32:64] == shown[1][32:64]  # losses
    session.playing = False
    look()
    assert shown[1][16:32] == shown[2][16:32]  # steps
    assert shown[1][32:64] != shown[2][32:64]
    look()
    assert len(shown) == 3


def test_internal_errors_are_answered(explorer, monkeypatch):
    def broken(*given):
        raise KeyError("on purpose")

    monkeypatch.setattr(RunStream, "change", broken)
    monkeypatch.setattr("heatbath.explorer.export_code.run_code", broken)

    async def ask():
        page = Wire(explorer)
        page.say("setup", id=1, settings=SMALL)
        await page.until("ready", id=1)
        page.say("code", id=2, run="A", **{"as": "python"})
        page.say("change", id=3, run="A", h=0.1)
        for number in (2, 3):
            assert "on purpose" in (await page.until("error", id=number))["text"]
        page.say("step", id=4, steps=2)  # by the other
        assert (await page.until("state", id=4))["steps"]["B"] == 2
        await page.close()

    run(ask())


def test_a_returning_page_holds_no_button_and_keeps_its_view(explorer):
    async def back():
        page = Wire(explorer)
        key = (await page.until("hello"))["session"]
        page.say("setup", id=1, settings={**SMALL, "view": {"map": "mean"}})
        page.say("heat", id=2, run="A", on=True)
        assert (await page.until("changed", id=2))["heat"] == 10
        page.say("reset", id=3)
        assert (await page.until("ready", id=3))["settings"]["view"] == {}
        page.say("heat", id=4, run="A", on=True)
        await page.until("changed", id=4)
        await page.close()
        page = Wire(explorer, key)
        assert (await page.until("ready"))["settings"]["view"] == {}
        assert (await page.until("changed", run="A", entry=None))["heat"] == 1
        await page.close()

    run(back())


def test_only_a_notebook_may_show_the_page_in_a_frame():
    for framed, told in ((False, True), (True, False)):
        explorer = Explorer(framed=framed)
        policy = explorer._file_response("index.html").headers["content-security-policy"]
        assert ("frame-ancestors 'self'" in policy) == told
        assert "default-src 'self'" in policy
        explorer.close()
