"""Serve the page, its files, its runs as files, and a websocket for each page.

The event loop checks messages, passes them on and sends bytes; it never computes.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import tempfile
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import SplitResult, urlsplit

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection, Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from heatbath.engine.threads import one_blas_thread
from heatbath.explorer import export_code
from heatbath.explorer.address import is_loopback
from heatbath.explorer.loss_lines import RunStates, losses_on_lines
from heatbath.explorer.messages import (
    LIMITS,
    MAX_MESSAGES_PER_SECOND,
    MAX_SESSIONS,
    find_message_id,
    format_message,
    parse_message,
)
from heatbath.explorer.method_menu import catalogue
from heatbath.explorer.run_stream import RunStream
from heatbath.explorer.session import Session, format_ready_message, make_streams
from heatbath.explorer.settings import (
    RUN_NAMES,
    HistoryEntry,
    PageSettings,
    SettingsError,
    check_word,
    read_settings,
    settings_after_reset,
)
from heatbath.explorer.workers import Workers, execute_job
from heatbath.runs.run import Run

T = TypeVar("T")
log = logging.getLogger("heatbath.explorer")
FOLDER = Path(__file__).parent
PAGE = FOLDER / "page"
RETURN_SECONDS = 2.0  # in which a page that was closed may come back to its runs
BLAS_CHECK_SECONDS = 0.5  # between two checks whether runs play
MAX_WAITING = 256  # messages that wait to be sent to a page, before it is disconnected
SEND_TIMEOUT = 20.0  # seconds that sending one message may take, before the page is disconnected
POLICY_VIOLATION, TRY_AGAIN_LATER = 1008, 1013  # standard codes for closing a websocket
DEFAULT_SCENE = "tuned"  # a page begins with it
TYPES_WITHOUT_RUNS = ("setup", "ready", "hide", "show", "view")  # messages that need no runs
DEFAULT_HEAT = 10.0  # factor of a heat button that sends none
MEDIA_TYPES = {
    ".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml",
    ".png": "image/png", ".json": "application/json", ".ico": "image/x-icon",
    ".webmanifest": "application/manifest+json",
}  # fmt: skip
CONTENT_POLICY = (
    "default-src 'self'; img-src 'self' blob: data:; media-src 'self' blob:; style-src 'self' "
    "'unsafe-inline'; connect-src 'self'; object-src 'none'; base-uri 'none'"
)
NO_FOREIGN_FRAMES = "; frame-ancestors 'self'"  # includes the proxy of a notebook
SECURITY_HEADERS = {
    "Content-Security-Policy": CONTENT_POLICY + NO_FOREIGN_FRAMES,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


class RunDescription(NamedTuple):
    """All changes and the layout of a run."""

    changes: tuple[HistoryEntry, ...]
    layout: list[dict[str, Any]]


class Explorer:
    """All sessions of a server, and what they share.

    Parameters
    ----------
    token : str or None
        Token that every address needs. Without one, only this computer is served.
    page : Path
        Folder with the files of the page.
    framed : bool
        Allow pages of any origin to show this one in a frame, as notebooks do, which may be served from
        anywhere. Otherwise only pages of the same origin may, so that no other site can catch clicks meant
        for it.
    """

    def __init__(self, token: str | None = None, page: Path = PAGE, framed: bool = False) -> None:
        """Start the workers and prepare the greeting that every page gets."""
        self.token = token
        self.page = page
        self.headers = dict(SECURITY_HEADERS)
        if framed:
            self.headers["Content-Security-Policy"] = CONTENT_POLICY
        self.sessions: dict[str, Session] = {}
        self.workers = Workers()

        scenes = json.loads((FOLDER / "scenes.json").read_text(encoding="utf-8"))
        default_scene = next(scene for scene in scenes if scene["name"] == DEFAULT_SCENE)
        self._hello = format_message(
            "hello",
            version=version("heatbath"),
            catalogue=catalogue(),
            limits=LIMITS,
            scenes=scenes,
            defaults=read_settings(default_scene["settings"]).as_json,
        )

        self._removals: dict[str, asyncio.TimerHandle] = {}  # of sessions whose pages are gone
        self._blas_limit = ExitStack()
        self._blas_check: asyncio.TimerHandle | None = None  # when to check whether the limit can end

    def app(self) -> Starlette:
        """Return the application, which can be mounted under any path, and closes the explorer at its end."""

        @asynccontextmanager
        async def lifespan(app: Starlette) -> AsyncIterator[None]:
            """Close the explorer once the application has ended."""
            yield
            self.close()

        return Starlette(
            routes=[
                Route("/", self._serve_index),
                Route("/page/{name}", self._serve_file),
                Route("/run/{session}/{name}.nc", self._serve_run),
                WebSocketRoute("/socket", self._serve_socket),
            ],
            lifespan=lifespan,
        )

    def close(self) -> None:
        """Remove all sessions and end their work."""
        for handle in self._removals.values():
            handle.cancel()
        for session in list(self.sessions.values()):
            self._remove(session)
        self.workers.close()
        self._release_blas_if_idle()

    def _limit_blas(self) -> None:
        """Limit BLAS to one thread for a while and as long as runs play, because the workers use all cores.

        BLAS has its number of threads for the whole process, which may run other code, as in a notebook.
        """
        if self._blas_check is None:
            self._blas_limit.enter_context(one_blas_thread())
            self._schedule_blas_check()

    def _schedule_blas_check(self) -> None:
        """Check a little later whether the limit of BLAS can end."""
        loop = asyncio.get_running_loop()
        self._blas_check = loop.call_later(BLAS_CHECK_SECONDS, self._release_blas_if_idle)

    def _release_blas_if_idle(self) -> None:
        """Restore the number of BLAS threads unless runs play."""
        if self._blas_check is not None and any(session.working for session in self.sessions.values()):
            self._schedule_blas_check()
            return
        if self._blas_check is not None:
            self._blas_check.cancel()
        self._blas_check = None
        self._blas_limit.close()

    # Files

    async def _serve_index(self, request: Request) -> Response:
        """Return the page, or the refusal of a request that isn't allowed."""
        return self._refusal(request) or self._file_response("index.html")

    async def _serve_file(self, request: Request) -> Response:
        """Return a file of the page, to anyone: scripts that import each other can't add a token."""
        return self._file_response(request.path_params["name"])

    def _file_response(self, name: str) -> Response:
        """Return a file of the page's folder, or 404.

        The name is compared with the files listed there and never passed to the file system.
        """
        path = next((path for path in self.page.iterdir() if path.name == name), None)
        if path is None or name.startswith(".") or path.suffix not in MEDIA_TYPES:
            return PlainTextResponse(f"there is no {name}\n", 404, SECURITY_HEADERS)
        return FileResponse(path, headers=self.headers, media_type=MEDIA_TYPES[path.suffix])

    async def _serve_run(self, request: Request) -> Response:
        """Return a run as a NetCDF file, or 404 if there is no such run.

        The path of the request has the key of the session and the name of the run. A worker reads the run, so
        that it may go on running.
        """
        refusal = self._refusal(request)
        if refusal is not None:
            return refusal

        session = self.sessions.get(request.path_params["session"])
        name = request.path_params["name"]
        try:
            if session is None or name not in session.streams:
                raise ValueError("there is no such run: its page has been closed")
            run = await self._query_stream(session, name, lambda stream: stream.live.run())
        except ValueError as error:
            return PlainTextResponse(f"{error}\n", 404, SECURITY_HEADERS)

        content = await self._submit(partial(_file_content, run))
        filename = f"{session.settings.problem.name}-{name}.nc"
        disposition = {"Content-Disposition": f'attachment; filename="{filename}"'}
        return Response(content, 200, SECURITY_HEADERS | disposition, "application/x-netcdf")

    def _refusal(self, connection: HTTPConnection) -> Response | None:
        """Return the answer to a request that isn't allowed, or None if it is."""
        if self._is_allowed(connection):
            return None
        text = "this explorer needs the token from the address that it printed when it started\n"
        return PlainTextResponse(text, 403, SECURITY_HEADERS)

    def _is_allowed(self, connection: HTTPConnection) -> bool:
        """Return True if a request has the token or, where none is needed, a loopback address as its host.

        The host is checked because another site can let its own name point to this computer.
        """
        if self.token is not None:
            token = connection.query_params.get("token", "")
            return secrets.compare_digest(token.encode(), self.token.encode())
        return is_loopback(_split_address(f"//{connection.headers.get('host', '')}").hostname or "")

    # Websockets

    async def _serve_socket(self, socket: WebSocket) -> None:
        """Connect a page with a new session, or with the one that it comes back to, until it is closed.

        Pages that aren't allowed, or for which there is no room, are turned away.
        """
        if not self._is_allowed(socket) or not _is_same_origin(socket.headers):
            await socket.close(POLICY_VIOLATION)
            return
        await socket.accept()

        session = self._returning_session(socket.query_params.get("session", ""))
        is_returning = session is not None
        if session is None and not self._has_room():
            text = f"{MAX_SESSIONS} pages are open already: close one, and try again"
            await socket.send_text(format_message("busy", text=text))
            await socket.close(TRY_AGAIN_LATER)
            return

        page = _PageConnection(socket)
        if session is None:
            session = Session(page.post, self.workers.wake)
            self.sessions[session.key] = session
            self.workers.add(session)
        page.post(f'{self._hello[:-1]},"session":"{session.key}"}}')
        greeting: asyncio.Task[None] | None = None
        if is_returning:
            session.attach(page.post)
            greeting = asyncio.create_task(self._greet(session))
        await self._exchange_messages(page, session, greeting)

    async def _exchange_messages(
        self, page: _PageConnection, session: Session, greeting: asyncio.Task[None] | None
    ) -> None:
        """Receive and send messages until the page is closed; its session then waits a while for its return.

        Parameters
        ----------
        page : _PageConnection
            The accepted connection.
        session : Session
            The page's session.
        greeting : Task or None
            Task that sends to a page that is back what it has missed.
        """
        tasks = [page.sending, asyncio.create_task(self._listen(page.socket, session, greeting))]
        try:
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in ended - {page.sending}:
                task.result()  # raises an unexpected error
        finally:
            session.detach()
            loop = asyncio.get_running_loop()  # before any await: the page may be back by then
            self._removals[session.key] = loop.call_later(RETURN_SECONDS, self._remove, session)
            unfinished = [*tasks, greeting] if greeting else tasks
            for task in unfinished:
                task.cancel()
            await asyncio.gather(*unfinished, return_exceptions=True)

    def _returning_session(self, key: str) -> Session | None:
        """Return the session of a page that comes back in time, or None; two pages never share a session."""
        session = self.sessions.get(key)
        if session is None or session.attached:
            return None
        self._removals.pop(key).cancel()
        return session

    def _has_room(self) -> bool:
        """Return True if there is room for another session; remove sessions without a page if needed."""
        abandoned = [session for session in self.sessions.values() if not session.attached]
        for session in abandoned[: max(0, 1 + len(self.sessions) - MAX_SESSIONS)]:
            self._remove(session)
        return len(self.sessions) < MAX_SESSIONS

    def _remove(self, session: Session) -> None:
        """Remove a session and its runs."""
        handle = self._removals.pop(session.key, None)
        if handle:
            handle.cancel()
        self.sessions.pop(session.key, None)
        self.workers.remove(session)
        session.end("the page of this run has been closed")

    async def _greet(self, session: Session) -> None:
        """Send everything that it may have missed to a page that is back, and let its runs continue.

        If that fails, the page gets the error and can still reset.
        """
        self._limit_blas()
        try:
            if session.streams:
                await self._send_everything(session)
        except Exception as error:  # such as runs that can't be served any more
            session.send("error", text=str(error))
        session.resume()

    async def _send_everything(self, session: Session) -> None:
        """Send a page that is back its settings with all changes, its state, and the traces of both runs."""

        def describe(stream: RunStream) -> RunDescription:
            """Release the heat button, and return all changes and the layout of a run."""
            if stream.heat != 1:  # a page that is back holds no button
                stream.set_heat(1.0)
            return RunDescription(stream.all_changes(), stream.layout())

        def send_results(stream: RunStream) -> None:
            """Send the settings and the complete traces of a run."""
            stream.send_settings()
            stream.send_traces(complete=True)

        described = {name: await self._query_stream(session, name, describe) for name in RUN_NAMES}
        layouts = {name: run.layout for name, run in described.items()}
        settings_by_run = session.settings.runs
        runs = {name: replace(run, history=described[name].changes) for name, run in settings_by_run.items()}
        settings = replace(session.settings, runs=runs, view={})  # the page knows its view

        session.post(await self._submit(lambda: format_ready_message(settings, layouts)))
        session.send_state()
        for name in RUN_NAMES:
            await self._query_stream(session, name, send_results)

    async def _listen(self, socket: WebSocket, session: Session, greeting: asyncio.Task[None] | None) -> None:
        """Handle the messages of a page until it is closed or sends too many.

        Messages are handled after the `greeting` of a page that is back, if there is one. Those that come too
        fast are refused; the page is told once, and in answer to each that has an id.
        """
        limit = _RateLimit()
        async for text in _received_messages(socket):
            is_accepted = limit.accept(time.monotonic())
            if limit.is_exhausted:
                await socket.close(POLICY_VIOLATION, "too many messages")
                return
            if is_accepted:
                if greeting is not None:
                    await greeting
                await self._handle(session, text)
            else:
                _refuse_message(session, text, limit.is_first_refusal)
            await asyncio.sleep(0)  # other pages get their turn, even if many messages are waiting

    async def _handle(self, session: Session, text: str | bytes) -> None:
        """Do what a message asks; if that fails, nothing has changed, and the page gets the error.

        `text` is the message as the page has sent it. Each type has a handler `_on_TYPE`, which takes the
        message's fields as keyword arguments.
        """
        message_id = find_message_id(text)
        self._limit_blas()
        try:
            message = parse_message(text)
            message_type = message.pop("type")
            message_id = message.pop("id", None)
            if not session.streams and message_type not in TYPES_WITHOUT_RUNS:
                raise ValueError(f"there are no runs yet: send setup before {message_type}")
            handler = getattr(self, f"_on_{message_type}")
            await handler(session, message_id, **message)
        except SettingsError as error:
            problems = [{"field": field, "text": problem} for field, problem in error.errors]
            session.send("error", id=message_id, field=error.field, text=str(error), problems=problems)
        except (ValueError, TypeError, ArithmeticError, MemoryError, RuntimeError) as error:
            session.send("error", id=message_id, text=str(error))
        except Exception as error:  # of the explorer: the question gets an answer, and the page goes on
            log.exception("a message of a page failed")
            session.send("error", id=message_id, text=f"this failed by an error of the explorer: {error!r}")

    # One handler for each type of message; its keyword arguments are the message's fields

    async def _on_setup(self, session: Session, message_id: int | None, settings: Any = None) -> None:
        """Replace the runs by those of new settings."""
        await self._install(session, message_id, lambda: read_settings(settings))

    async def _on_reset(self, session: Session, message_id: int | None) -> None:
        """Start the runs again at step 0, with their present coefficients."""
        streams = session.streams
        await self._install(session, message_id, lambda: settings_after_reset(session.settings, streams))

    async def _install(
        self, session: Session, message_id: int | None, make_settings: Callable[[], PageSettings]
    ) -> None:
        """Let a worker make settings and their runs, and replace the session's runs by them.

        Parameters
        ----------
        session : Session
            The session.
        message_id : int or None
            Id of the message that asks for it.
        make_settings : callable
            Returns the settings, or raises `SettingsError`; then nothing has changed.
        """

        def make_runs() -> tuple[PageSettings, dict[str, RunStream], str]:
            """Return settings, new runs and the message for the page.

            The runs send to the page only as long as they are the session's runs.
            """
            settings = make_settings()
            streams: dict[str, RunStream]  # by its identity, the session recognises messages of replaced runs
            streams = make_streams(settings, lambda *message: session.post_from(streams, *message))
            layouts = {name: stream.layout() for name, stream in streams.items()}
            return settings, streams, format_ready_message(settings, layouts, message_id)

        session.install(*await self._submit(make_runs))
        session.send_state()

    async def _on_change(self, session: Session, message_id: int | None, run: str, **change: Any) -> None:
        """Change coefficients, methods or annealing of a run."""
        session.command(run, lambda stream: stream.change(change, message_id), message_id)

    async def _on_play(self, session: Session, message_id: int | None) -> None:
        """Let both runs play."""
        session.play(True)
        session.send_state(message_id)

    async def _on_pause(self, session: Session, message_id: int | None) -> None:
        """Pause both runs."""
        session.play(False)
        session.send_state(message_id)

    async def _on_step(self, session: Session, message_id: int | None, steps: int) -> None:
        """Let both runs make a number of steps, then pause."""
        session.make_steps(steps, message_id)

    async def _on_speed(self, session: Session, message_id: int | None, speed: float | None = None) -> None:
        """Limit the steps per second; without `speed` there is no limit."""
        session.set_speed(speed)
        session.send_state(message_id)

    async def _on_heat(
        self, session: Session, message_id: int | None, run: str, on: bool, factor: float | None = None
    ) -> None:
        """Multiply the temperatures of a run while `on` is True, by DEFAULT_HEAT without a `factor`."""
        if factor is None:
            factor = DEFAULT_HEAT
        heat = factor if on else 1.0
        session.command(run, lambda stream: stream.set_heat(heat, message_id), message_id)

    async def _on_view(self, session: Session, message_id: int | None, **view: Any) -> None:
        """Change what frames show; fields that are None stay as they are."""
        changes = {name: value for name, value in view.items() if value is not None}
        session.view = session.view._replace(**changes)
        session.wake()

    async def _on_ready(self, session: Session, message_id: int | None, frame: int) -> None:
        """Note that the page wants the next frame; `frame` is the number of the one that it has shown."""
        session.request_frame()

    async def _on_hide(self, session: Session, message_id: int | None) -> None:
        """Stop frames and traces of a page that is hidden."""
        session.set_visible(False)

    async def _on_show(self, session: Session, message_id: int | None) -> None:
        """Send frames and traces again to a page that is visible."""
        session.set_visible(True)

    async def _on_word(
        self,
        session: Session,
        message_id: int | None,
        run: str,
        part: str,
        text: str,
        gamma: float | str | None = None,
    ) -> None:
        """Send whether a part of a run may have a splitting word, with a friction `gamma` to try."""
        result = check_word(session.streams[run].run, part, text, gamma)
        session.send("word", id=message_id, run=run, part=part, **result)

    async def _on_rewind(self, session: Session, message_id: int | None, run: str) -> None:
        """Go back to the last good state of a run."""
        session.command(run, lambda stream: session.rewind(stream, message_id), message_id)

    async def _on_line(self, session: Session, message_id: int | None) -> None:
        """Send losses on the lines between starts and ends of both runs, which must be paused."""
        if session.playing:
            raise ValueError("loss lines need paused runs: pause first")

        def read_states(stream: RunStream) -> RunStates:
            """Return the parameters of a run at its start and now."""
            return RunStates(stream.start_theta, stream.live.theta)

        states = {name: await self._query_stream(session, name, read_states) for name in RUN_NAMES}
        chain = min(session.view.chain, session.settings.chains - 1)
        lines = await self._submit(lambda: losses_on_lines(session.settings, states, chain))
        session.send("line", id=message_id, lines=lines)

    async def _on_code(self, session: Session, message_id: int | None, run: str, **fields: str) -> None:
        """Send a run as Python or as commands; the field `as` has the language."""
        language = fields["as"]  # a keyword of Python, so it can't be an argument
        text = await self._query_stream(session, run, lambda stream: export_code.run_code(stream, language))
        session.send("code", id=message_id, run=run, **{"as": language}, text=text)

    # Workers

    async def _query_stream(self, session: Session, name: str, query: Callable[[RunStream], T]) -> T:
        """Return what a query returns for a run, called by the worker that next holds the run.

        An error of the query is raised here, and ValueError if the run is replaced before the query.
        """
        future: Future[T] = Future()

        def give_up(reason: str) -> None:
            """Store the reason why nobody will answer the query, unless its page is gone."""
            if future.set_running_or_notify_cancel():
                future.set_exception(ValueError(reason))

        session.command(name, lambda stream: execute_job(future, partial(query, stream)), give_up=give_up)
        return await asyncio.wrap_future(future)

    async def _submit(self, job: Callable[[], T]) -> T:
        """Return the result of a job that a worker computes."""
        return await asyncio.wrap_future(self.workers.submit(job))


class _RateLimit:
    """Limit on the messages of a page within a second.

    Refused messages count, too. A page that still sends too many more than one second after the first refusal
    exhausts the limit. A message accepted more than two seconds after the first refusal clears that refusal.
    """

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=MAX_MESSAGES_PER_SECOND)
        self._first_refused = 0.0  # time; 0 if none was
        self.is_first_refusal = self.is_exhausted = False

    def accept(self, current_time: float) -> bool:
        """Count a message received at `current_time`; return False if it comes too soon."""
        is_too_soon = len(self._times) == MAX_MESSAGES_PER_SECOND and current_time - self._times[0] < 1
        self._times.append(current_time)
        if is_too_soon:
            self.is_first_refusal = not self._first_refused
            self.is_exhausted = bool(self._first_refused) and current_time - self._first_refused > 1
            self._first_refused = self._first_refused or current_time
        elif self._first_refused and current_time - self._first_refused > 2:
            self._first_refused = 0.0
        return not is_too_soon


class _PageConnection:
    """Queue of messages to a page; the task `sending` ends when the page is gone or doesn't read."""

    def __init__(self, socket: WebSocket) -> None:
        self.socket = socket
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[str | bytes] = deque()
        self._has_messages = asyncio.Event()
        self.sending = asyncio.create_task(self._send_all())

    def post(self, message: str | bytes) -> None:
        """Queue a message to the page; any thread may call this."""
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._append, message)

    def _append(self, message: str | bytes) -> None:
        """Append a message to the queue; give up a page that has too many waiting."""
        self._waiting.append(message)
        self._has_messages.set()
        if len(self._waiting) > MAX_WAITING:
            self.sending.cancel()

    async def _send_all(self) -> None:
        """Send messages as they come, until the page is gone."""
        with suppress(WebSocketDisconnect, RuntimeError, OSError):  # OSError includes a timeout
            while True:
                await self._has_messages.wait()
                self._has_messages.clear()
                while self._waiting:
                    async with asyncio.timeout(SEND_TIMEOUT):
                        await self._send(self._waiting.popleft())

    async def _send(self, message: str | bytes) -> None:
        """Send one message as text or as bytes."""
        if isinstance(message, str):
            await self.socket.send_text(message)
        else:
            await self.socket.send_bytes(message)


async def _received_messages(socket: WebSocket) -> AsyncIterator[str | bytes]:
    """Yield the messages of a page until the page is gone."""
    while True:
        try:
            received = await socket.receive()
        except (WebSocketDisconnect, RuntimeError):
            return
        if received["type"] == "websocket.disconnect":
            return
        text = received.get("text")
        yield received["bytes"] if text is None else text


def _refuse_message(session: Session, text: str | bytes, is_first: bool) -> None:
    """Tell a page that its message came too fast, if it is the first such message or has an id."""
    message_id = find_message_id(text)
    if is_first or message_id is not None:
        limit_text = f"at most {MAX_MESSAGES_PER_SECOND} messages a second are accepted"
        session.send("error", id=message_id, text=f"{limit_text}: this is ignored")


def _split_address(address: str) -> SplitResult:
    """Return the parts of an address from outside; all are empty if it is invalid."""
    try:
        return urlsplit(address)
    except ValueError:
        return urlsplit("")


def _is_same_origin(headers: Headers) -> bool:
    """Return True if a page of this server opens the websocket, or a program that isn't a browser."""
    origin = headers.get("origin")
    return origin is None or _split_address(origin).netloc == headers.get("host")


def _file_content(run: Run) -> bytes:
    """Return a run as the bytes of its file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.nc"
        run.save(path)
        return path.read_bytes()
