"""The server: the page, its files, its runs as files, and a websocket for each page.

The event loop checks messages, hands them on and sends bytes; it never computes.
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
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any
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
from heatbath.explorer.loss_lines import losses_between
from heatbath.explorer.messages import A_SECOND, LIMITS, SESSIONS, number_of, read, write
from heatbath.explorer.method_menu import catalogue
from heatbath.explorer.run_stream import Flight
from heatbath.explorer.session import Session, make_flights, ready
from heatbath.explorer.settings import RUNS, PageSettings, Wrong, checked_word, read_settings, restarted
from heatbath.explorer.workers import Workers

log = logging.getLogger("heatbath.explorer")
HERE = Path(__file__).parent
PAGE = HERE / "page"
GRACE = 2.0  # seconds in which a page may come back to its runs
RESTING = 0.5  # seconds from seeing whether runs play to seeing it again
WAITING, STUCK = 256, 20.0  # messages that wait for a page, and seconds for one, before it is given up
POLICY, LATER = 1008, 1013  # codes with which a websocket is closed
USUAL = "tuned"  # the scene that a page begins with
HEATING = 10.0  # factor of a heat button that says none
TYPES = {
    ".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml",
    ".png": "image/png", ".json": "application/json", ".ico": "image/x-icon",
    ".webmanifest": "application/manifest+json",
}  # fmt: skip
POLICY_OF_PAGES = (
    "default-src 'self'; img-src 'self' blob: data:; media-src 'self' blob:; style-src 'self' "
    "'unsafe-inline'; connect-src 'self'; object-src 'none'; base-uri 'none'"
)
UNFRAMED = "; frame-ancestors 'self'"  # where a notebook's proxy is, too
SAFETY = {
    "Content-Security-Policy": POLICY_OF_PAGES + UNFRAMED,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


class Explorer:
    """All sessions of a server, and what they share.

    `framed`: a page of any origin may show it in a frame, as notebooks do, of which nobody knows where they
    are served from. Without it, only pages beside this one may, and no other site gets clicks meant for it.
    """

    def __init__(self, token: str | None = None, page: Path = PAGE, framed: bool = False) -> None:
        self.token, self.page = token, page
        self.safety = SAFETY | ({"Content-Security-Policy": POLICY_OF_PAGES} if framed else {})
        self.sessions: dict[str, Session] = {}
        self.workers = Workers()
        scenes = json.loads((HERE / "scenes.json").read_text(encoding="utf-8"))
        usual = read_settings(next(scene for scene in scenes if scene["name"] == USUAL)["settings"]).plain
        self._hello = write(
            "hello",
            version=version("heatbath"),
            catalogue=catalogue(),
            limits=LIMITS,
            scenes=scenes,
            defaults=usual,
        )
        self._dropping: dict[str, asyncio.TimerHandle] = {}
        self._limits = ExitStack()  # of BLAS
        self._resting: asyncio.TimerHandle | None = None  # when to see whether they can end

    def app(self) -> Starlette:
        """The application, to be mounted anywhere."""

        @asynccontextmanager
        async def lifespan(app: Starlette) -> AsyncIterator[None]:
            yield
            self.close()

        return Starlette(
            routes=[
                Route("/", self._index),
                Route("/page/{name}", self._file),
                Route("/run/{session}/{name}.nc", self._download),
                WebSocketRoute("/socket", self._socket),
            ],
            lifespan=lifespan,
        )

    def close(self) -> None:
        """End all work."""
        for handle in self._dropping.values():
            handle.cancel()
        for session in list(self.sessions.values()):
            self._drop(session)
        self.workers.close()
        self._rest()

    def _work(self) -> None:
        """Have one thread in BLAS, for there are workers enough; for a while, and as long as runs play.

        Its number of threads belongs to the whole process, in which there may be others, as in a notebook.
        """
        if self._resting is None:
            self._limits.enter_context(one_blas_thread())
            self._resting = asyncio.get_running_loop().call_later(RESTING, self._rest)

    def _rest(self) -> None:
        """Give BLAS the threads that it had, if no runs play."""
        if self._resting is not None and any(session.working for session in self.sessions.values()):
            self._resting = asyncio.get_running_loop().call_later(RESTING, self._rest)
            return
        if self._resting is not None:
            self._resting.cancel()
        self._resting = None
        self._limits.close()

    # Files

    async def _index(self, request: Request) -> Response:
        return self._refused(request) or self._page("index.html")

    async def _file(self, request: Request) -> Response:
        """A file of the page, which is everyone's: modules that import each other say no token."""
        return self._page(request.path_params["name"])

    def _page(self, name: str) -> Response:
        """A file that is listed there: what a name from outside may mean to a system is never asked."""
        path = next((path for path in self.page.iterdir() if path.name == name), None)
        if path is None or name.startswith(".") or path.suffix not in TYPES:
            return PlainTextResponse(f"there is no {name}\n", 404, SAFETY)
        return FileResponse(path, headers=self.safety, media_type=TYPES[path.suffix])

    async def _download(self, request: Request) -> Response:
        if (refused := self._refused(request)) is not None:
            return refused
        session, name = self.sessions.get(request.path_params["session"]), request.path_params["name"]
        try:
            if session is None or name not in session.flights:
                raise ValueError("there is no such run: its page has been closed")
            run = await self._from_flight(session, name, lambda flight: flight.live.run())
        except ValueError as error:
            return PlainTextResponse(f"{error}\n", 404, SAFETY)
        content = await self._job(partial(_as_file, run))
        filename = f"{session.settings.problem.name}-{name}.nc"
        disposition = {"Content-Disposition": f'attachment; filename="{filename}"'}
        return Response(content, 200, SAFETY | disposition, "application/x-netcdf")

    def _refused(self, connection: HTTPConnection) -> Response | None:
        if self._is_welcome(connection):
            return None
        text = "this explorer needs the token that is in the address it was started with\n"
        return PlainTextResponse(text, 403, SAFETY)

    def _is_welcome(self, connection: HTTPConnection) -> bool:
        """Whether a request has the token, if one is needed, and a host that is ours, if none is.

        Without a token only this computer is served, and a name that someone else's page has given to it is
        no way in.
        """
        if self.token is not None:
            return secrets.compare_digest(
                connection.query_params.get("token", "").encode(), self.token.encode()
            )
        return is_loopback(_split(f"//{connection.headers.get('host', '')}").hostname or "")

    # Websockets

    async def _socket(self, socket: WebSocket) -> None:
        if not self._is_welcome(socket) or not _is_same_origin(socket.headers):
            await socket.close(POLICY)
            return
        await socket.accept()
        session = self._returning(socket.query_params.get("session", ""))
        returning = session is not None
        if session is None:
            gone = [other for other in self.sessions.values() if not other.attached]
            for other in gone[: max(0, 1 + len(self.sessions) - SESSIONS)]:
                self._drop(other)
            if len(self.sessions) >= SESSIONS:
                text = f"{SESSIONS} pages are open already: close one, and try again"
                await socket.send_text(write("busy", text=text))
                await socket.close(LATER)
                return
        page = _Page(socket)
        if session is None:
            session = Session(page.post, self.workers.wake)
            self.sessions[session.key] = session
            self.workers.add(session)
        page.post(f'{self._hello[:-1]},"session":"{session.key}"}}')
        greeting: asyncio.Task[None] | None = None
        if returning:
            session.attach(page.post)
            greeting = asyncio.create_task(self._greet(session))
        tasks = [page.sending, asyncio.create_task(self._listen(socket, session, greeting))]
        try:
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in ended - {page.sending}:
                task.result()  # raises what was not foreseen
        finally:
            session.detach()
            loop = asyncio.get_running_loop()  # before anything is waited for: the page may be back by then
            self._dropping[session.key] = loop.call_later(GRACE, self._drop, session)
            under_way = [*tasks, greeting] if greeting else tasks
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    def _returning(self, key: str) -> Session | None:
        """The session of a page that is back in time; one that another page has is not given away."""
        session = self.sessions.get(key)
        if session is None or session.attached:
            return None
        self._dropping.pop(key).cancel()
        return session

    def _drop(self, session: Session) -> None:
        """Forget a session and its runs."""
        if handle := self._dropping.pop(session.key, None):
            handle.cancel()
        self.sessions.pop(session.key, None)
        self.workers.remove(session)
        session.end("the page of this run has been closed")

    async def _greet(self, session: Session) -> None:
        """Tell a page that is back all that it may have missed; each run is asked by who holds it."""

        def now(flight: Flight) -> tuple[Any, Any]:
            if flight.heat != 1:  # a page that is back holds no button
                flight.set_heat(1.0)
            return flight.entries(), flight.layout()

        def tell(flight: Flight) -> None:
            flight.tell_settings()
            flight.tell_traces(whole=True)

        self._work()
        try:
            if session.flights:
                found = {name: await self._from_flight(session, name, now) for name in RUNS}
                given = session.settings.runs
                runs = {name: replace(run, history=found[name][0]) for name, run in given.items()}
                settings = replace(session.settings, runs=runs, view={})  # which the page knows best
                parts = {name: layout for name, (_, layout) in found.items()}
                session.post(await self._job(lambda: ready(settings, parts)))
                session.state()
                for name in RUNS:
                    await self._from_flight(session, name, tell)
        except Exception as error:  # as when nobody serves these runs any more: the page can still reset
            session.say("error", text=str(error))
        session.serve_again()

    async def _listen(self, socket: WebSocket, session: Session, greeting: asyncio.Task[None] | None) -> None:
        """Take messages of a page until it is closed, or sends too many; none before it has been greeted."""
        recent: deque[float] = deque(maxlen=A_SECOND)
        warned = 0.0
        while True:
            try:
                received = await socket.receive()
            except (WebSocketDisconnect, RuntimeError):
                return
            if received["type"] == "websocket.disconnect":
                return
            text = received["bytes"] if received.get("text") is None else received["text"]
            now = time.monotonic()
            if len(recent) == A_SECOND and now - recent[0] < 1:
                if warned and now - warned > 1:
                    await socket.close(POLICY, "too many messages")
                    return
                number = number_of(text)
                if not warned or number is not None:
                    refusal = f"at most {A_SECOND} messages a second are taken: this one is left"
                    session.say("error", id=number, text=refusal)
                warned = warned or now
            else:
                if warned and now - warned > 2:
                    warned = 0.0
                if greeting is not None:
                    await greeting
                await self._take(session, text)
            recent.append(now)
            await asyncio.sleep(0)  # many messages may be there already: others have their turn

    async def _take(self, session: Session, text: str | bytes) -> None:
        """Do what a message says; if it cannot be done the page is told why, and nothing has changed."""
        number = number_of(text)
        self._work()
        try:
            message = read(text)
            kind, number = message.pop("type"), message.pop("id", None)
            if kind != "setup" and not session.flights and kind not in ("ready", "hide", "show", "view"):
                raise ValueError(f"there are no runs yet: {kind} comes after setup")
            await getattr(self, f"_on_{kind}")(session, number, **message)
        except Wrong as wrong:
            problems = [{"field": field, "text": what} for field, what in wrong.problems]
            session.say("error", id=number, field=wrong.field, text=str(wrong), problems=problems)
        except (ValueError, TypeError, ArithmeticError, MemoryError, RuntimeError) as error:
            session.say("error", id=number, text=str(error))
        except Exception as error:  # of our own: no question is left open, and the page goes on
            log.exception("a message of a page failed")
            session.say("error", id=number, text=f"this failed by an error of the explorer: {error!r}")

    async def _on_setup(self, session: Session, number: int | None, settings: Any = None) -> None:
        await self._install(session, number, lambda: read_settings(settings))

    async def _on_reset(self, session: Session, number: int | None) -> None:
        flights = session.flights
        await self._install(session, number, lambda: restarted(session.settings, flights))

    async def _install(self, session: Session, number: int | None, made: Callable[[], PageSettings]) -> None:
        def begin() -> tuple[PageSettings, dict[str, Flight], str]:
            settings = made()
            flights: dict[str, Flight]  # by which they are known
            flights = make_flights(settings, lambda *message: session.post_for(flights, *message))
            parts = {name: flight.layout() for name, flight in flights.items()}
            return settings, flights, ready(settings, parts, number)

        session.install(*await self._job(begin))
        session.state()

    async def _on_change(self, session: Session, number: int | None, run: str, **change: Any) -> None:
        session.command(run, lambda flight: flight.change(change, number), number)

    async def _on_play(self, session: Session, number: int | None) -> None:
        session.play(True)
        session.state(number)

    async def _on_pause(self, session: Session, number: int | None) -> None:
        session.play(False)
        session.state(number)

    async def _on_step(self, session: Session, number: int | None, steps: int) -> None:
        session.make_steps(steps, number)

    async def _on_speed(self, session: Session, number: int | None, speed: float | None = None) -> None:
        session.set_speed(speed)
        session.state(number)

    async def _on_heat(
        self, session: Session, number: int | None, run: str, on: bool, factor: float | None = None
    ) -> None:
        by = (HEATING if factor is None else factor) if on else 1.0
        session.command(run, lambda flight: flight.set_heat(by, number), number)

    async def _on_view(self, session: Session, number: int | None, **view: Any) -> None:
        session.view = session.view._replace(**{name: v for name, v in view.items() if v is not None})
        session.wake()

    async def _on_ready(self, session: Session, number: int | None, frame: int) -> None:
        session.want_frame()

    async def _on_hide(self, session: Session, number: int | None) -> None:
        session.show(False)

    async def _on_show(self, session: Session, number: int | None) -> None:
        session.show(True)

    async def _on_word(
        self, session: Session, number: int | None, run: str, part: str, text: str, gamma: Any = None
    ) -> None:
        found = checked_word(session.flights[run].run, part, text, gamma)
        session.say("word", id=number, run=run, part=part, **found)

    async def _on_rewind(self, session: Session, number: int | None, run: str) -> None:
        session.command(run, lambda flight: session.rewind(flight, number), number)

    async def _on_line(self, session: Session, number: int | None) -> None:
        if session.playing:
            raise ValueError("lines are for runs that stand still: pause first")
        states = {
            name: await self._from_flight(
                session, name, lambda flight: (flight.first_theta, flight.live.theta)
            )
            for name in RUNS
        }
        chain = min(session.view.chain, session.settings.chains - 1)
        found = await self._job(lambda: losses_between(session.settings, states, chain))
        session.say("line", id=number, lines=found)

    async def _on_code(self, session: Session, number: int | None, run: str, **how: str) -> None:
        text = await self._from_flight(session, run, lambda flight: export_code.text(flight, how["as"]))
        session.say("code", id=number, run=run, **{"as": how["as"]}, text=text)

    async def _from_flight(self, session: Session, name: str, what: Callable[[Flight], Any]) -> Any:
        """What the worker that holds a run next finds out about it."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()

        def set_once(set_it: Callable[[Any], None], value: Any) -> None:
            if not future.done():
                set_it(value)

        def answer(set_it: Callable[[Any], None], value: Any) -> None:
            with suppress(RuntimeError):  # of a loop that has ended
                loop.call_soon_threadsafe(set_once, set_it, value)

        def find(flight: Flight) -> None:
            try:
                answer(future.set_result, what(flight))
            except Exception as error:  # whoever waits for it gets it
                answer(future.set_exception, error)

        session.command(name, find, give_up=lambda why: answer(future.set_exception, ValueError(why)))
        return await future

    async def _job(self, job: Callable[[], Any]) -> Any:
        return await asyncio.wrap_future(self.workers.submit(job))


class _Page:
    """What waits to be sent to a page; `sending` ends when it is gone, or does not read."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket, self._loop = socket, asyncio.get_running_loop()
        self._waiting: deque[str | bytes] = deque()
        self._some = asyncio.Event()
        self.sending = asyncio.create_task(self._send())

    def post(self, message: str | bytes) -> None:
        """Have a message sent; from any thread."""
        with suppress(RuntimeError):  # of a loop that has ended
            self._loop.call_soon_threadsafe(self._append, message)

    def _append(self, message: str | bytes) -> None:
        self._waiting.append(message)
        self._some.set()
        if len(self._waiting) > WAITING:
            self.sending.cancel()

    async def _send(self) -> None:
        """Send what waits, as it comes."""
        try:
            while True:
                await self._some.wait()
                self._some.clear()
                while self._waiting:
                    message = self._waiting.popleft()
                    async with asyncio.timeout(STUCK):
                        if isinstance(message, str):
                            await self._socket.send_text(message)
                        else:
                            await self._socket.send_bytes(message)
        except (WebSocketDisconnect, RuntimeError, OSError):
            return  # the page is gone


def _split(address: str) -> SplitResult:
    """The parts of an address from outside; none of one that cannot be read."""
    try:
        return urlsplit(address)
    except ValueError:
        return urlsplit("")


def _is_same_origin(headers: Headers) -> bool:
    """Whether a page that this server has served opens the websocket; other programs say no origin."""
    origin = headers.get("origin")
    return origin is None or _split(origin).netloc == headers.get("host")


def _as_file(run: Any) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.nc"
        run.save(path)
        return path.read_bytes()
