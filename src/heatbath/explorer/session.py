"""A session: a page with its two runs. The event loop tells it what the page wants; workers serve it."""

from __future__ import annotations

import asyncio
import math
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from heatbath.explorer.flight import SLICE, Domain, Flight, Picture, View, domain_of, points_of
from heatbath.explorer.messages import frame, write
from heatbath.explorer.settings import RUNS, Settings, Wrong

BETWEEN = 0.045  # seconds from frame to frame, at least
WORK, REST = 3.0, 10.0  # times as long as it took to look: of work, or of waiting, before the next frame
TRACES = 0.25  # seconds from traces to traces
AHEAD, AT_ONCE = 1.25, 1000  # a run may be so far ahead of the other: a factor, and some steps
UNLIMITED = 2**40  # steps

Post = Callable[[str | bytes], None]


class Session:
    """A page's two runs. `post`, which may be called by any thread, takes messages to the page."""

    def __init__(self, post: Post, wake: Callable[[], None]) -> None:
        self.key = secrets.token_urlsafe(12)
        self.post, self.wake = post, wake
        self.flights: dict[str, Flight] = {}
        self.playing = False
        self.speed: float | None = None
        self.visible = True
        self.attached = self._greeted = True  # whether there is a page, and whether it has been told all
        self.view = View()
        self.waiting: set[asyncio.Future[Any]] = set()  # for what workers find out, in the event loop
        self._lock = threading.Lock()
        self._stop: dict[str, int] = {}  # steps to make by hand: where to stop
        self._asked: list[int | None] = []  # the numbers of the messages that wait for them
        self._wanted = False  # whether the page has asked for a frame
        self._number = 0  # of the frame
        self._pictures: dict[str, Picture] = {}  # of the frame that is being made
        self._looking = False
        self._shown: tuple[Any, ...] = ()  # what the last frame was of
        self._last = -math.inf  # when the last frame was begun
        self._looked = 0.0  # seconds that it took
        self._owed = 0.0  # seconds of work before the next one
        self._told: dict[str, tuple[float, int]] = {}  # when traces were sent, and up to which step
        self._paced: dict[str, tuple[float, int]] = {}  # since when, and from which step on, speed counts

    # From the event loop

    def install(self, settings: Settings, flights: dict[str, Flight]) -> None:
        """Begin anew, paused."""
        with self._lock:
            self.settings, self.flights = settings, flights
            self.playing, self._stop, self._asked = False, {}, []
            self._pictures, self._looking, self._shown = {}, False, ()
            self._told = {name: (-math.inf, -1) for name in flights}
            self._looked = self._owed = 0.0
        self.wake()

    def play(self, playing: bool) -> None:
        """Go on, or pause."""
        with self._lock:
            self.playing, self._stop = playing, {}
            asked, self._asked = self._asked, []
            self._pace()
        for number in asked:  # which no one makes any more
            self.state(number)
        self.wake()

    def make_steps(self, steps: int, number: int | None = None) -> None:
        """Pause, and have both runs make so many steps."""
        with self._lock:
            self.playing = False
            self._asked.append(number)
            asked = self._asked

        def begin(flight: Flight) -> None:
            with self._lock:
                if self._asked is asked:  # and no one has played or paused since
                    self._stop[flight.name] = self._stop.get(flight.name, flight.step) + steps

        for name in self.flights:
            self.command(name, begin)

    def set_speed(self, speed: float | None) -> None:
        """So many steps a second at the most."""
        with self._lock:
            self.speed = speed
            self._pace()
        self.wake()

    def want_frame(self) -> None:
        """The page has shown the last frame."""
        self._wanted = True
        self.wake()

    def show(self, visible: bool) -> None:
        """Whether the page can be seen."""
        self.visible = visible
        self.wake()

    def attach(self, post: Post) -> None:
        """The page is back: it is told all that it may have missed, and then served."""
        with self._lock:
            self.post, self.visible, self.attached = post, True, True
            self._wanted, self._looking, self._pictures, self._shown = False, False, {}, ()
            self._told = {name: (-math.inf, -1) for name in self.flights}
            self._pace()
        flights = self.flights

        def tell(flight: Flight) -> None:
            if flight.name == RUNS[0]:
                given = self.settings.runs
                runs = {name: replace(run, history=flights[name].entries()) for name, run in given.items()}
                self.post(ready(replace(self.settings, runs=runs), flights))
                self.state()
            flight.tell_settings()
            flight.tell_traces(whole=True)
            self._greeted = flight.name == RUNS[-1]
            if not self._greeted:
                self.command(RUNS[-1], tell)

        if flights:
            self.command(RUNS[0], tell)
        else:
            self._greeted = True

    def detach(self) -> None:
        """The page is gone: nothing is computed until it is back."""
        self.attached = self._greeted = False

    def command(self, name: str, action: Callable[[Flight], None], number: int | None = None) -> None:
        """Have something done by the worker that holds a run next; the page is told of what is wrong."""
        flight = self.flights[name]

        def carry_out() -> None:
            try:
                action(flight)
            except Wrong as wrong:
                self.say("error", id=number, run=name, field=wrong.field, text=str(wrong))
            except (ValueError, TypeError, ArithmeticError) as error:
                self.say("error", id=number, run=name, text=str(error))

        flight.commands.append(carry_out)
        self.wake()

    def say(self, kind: str, **fields: Any) -> None:
        """Send a message."""
        if fields.get("id") is None:
            fields.pop("id", None)
        self.post(write(kind, **fields))

    def state(self, number: int | None = None) -> None:
        """Send the state."""
        steps = {name: flight.step for name, flight in self.flights.items()}
        self.say("state", id=number, playing=self.playing, speed=self.speed, steps=steps)

    # From workers

    def due(self, now: float) -> Iterator[tuple[Flight, float]]:
        """When its runs that nobody holds need a worker, the one with fewer steps first; -inf is at once."""
        if not self._greeted:  # there is only to be done what has been asked for
            yield from ((f, -math.inf) for f in self.flights.values() if f.commands and not f.held)
            return
        for flight in sorted(self.flights.values(), key=lambda flight: flight.step):
            if not flight.held:
                yield flight, self._due(flight, now)

    def _due(self, flight: Flight, now: float) -> float:
        if self._is_urgent(flight):
            return -math.inf
        if flight.failed:
            return math.inf
        if not flight.prepared or self._most(flight, now) > 0 or (self._asked and not flight.alive):
            return now
        due = math.inf
        if self._wanted and self.visible and self._shown != self._seen():
            due = self._next_frame()
        if self.visible and self._told[flight.name][1] != flight.step:
            due = min(due, self._told[flight.name][0] + TRACES)
        if self.playing and flight.alive and self.speed is not None:
            since, first = self._paced[flight.name]
            due = min(due, since + (flight.step - first + 1) / self.speed)
        return due

    def _is_urgent(self, flight: Flight) -> bool:
        """Whether someone waits: for what was asked of a run, or for its picture in a frame."""
        if flight.commands:
            return True
        self._begin_frame()
        return self._owes_picture(flight)

    def _owes_picture(self, flight: Flight) -> bool:
        """Whether the frame that is being made waits for a run."""
        waits = self._looking and flight.name not in self._pictures
        return waits and flight.prepared and not flight.failed

    def serve(self, flight: Flight) -> None:
        """What is urgent, or else a slice of work on a run, by the one worker that holds it."""
        urgent = self._is_urgent(flight)
        while flight.commands:
            flight.commands.popleft()()
        if self.flights.get(flight.name) is not flight or not self._greeted:
            return
        if urgent:
            if self._owes_picture(flight):
                self._take(flight)
            return
        flight.prepare()
        if (most := self._most(flight, time.perf_counter())) > 0:
            begin = time.perf_counter()
            flight.work(SLICE, most, lambda: self._is_urgent(flight))
            self._owed -= time.perf_counter() - begin
        self._reached()
        now = time.perf_counter()
        when, step = self._told[flight.name]
        if self.visible and step != flight.step and now >= when + TRACES:
            flight.tell_traces()
            self._told[flight.name] = now, flight.step

    def fail(self, flight: Flight, error: Exception) -> None:
        """Something went wrong that should not: the run stops, and the page is told."""
        flight.alive, flight.failed = False, True
        with self._lock:  # the frame that waits for it begins anew
            self._wanted, self._looking, self._pictures = self._wanted or self._looking, False, {}
        text = f"run {flight.name} has ended by an error of the explorer: {error}; reset begins anew"
        self.say("error", run=flight.name, text=text)

    def _seen(self) -> tuple[Any, ...]:
        """What a frame of now would be of."""
        return self.view, *((id(f), f.step, f.moment, f.failed) for f in self.flights.values())

    def _begin_frame(self) -> None:
        """Begin a frame, if it is time for one."""
        now, due = time.perf_counter(), self._next_frame()
        if self._looking or not self._wanted or not self.visible or now < due:
            return
        with self._lock:
            if self._wanted and not self._looking and self._shown != self._seen():
                self._wanted, self._looking, self._pictures = False, True, {}
                self._last = max(due, now - BETWEEN / 2)  # a little late is not made later by the next

    def _next_frame(self) -> float:
        """When the next frame may begin: looking must leave time for work."""
        rest = BETWEEN if self._owed <= 0 or not self.playing else max(BETWEEN, REST * self._looked)
        return self._last + rest

    def _take(self, flight: Flight) -> None:
        """Look at a run for the frame that is being made, and send it when it has both."""
        view = self.view
        picture = flight.picture(view)
        with self._lock:
            if self.flights.get(flight.name) is not flight or not self._looking:
                return
            self._pictures[flight.name] = picture
            for name, other in self.flights.items():
                if other.failed:
                    self._pictures[name] = other.blank(picture)
            if len(self._pictures) < len(self.flights):
                return
            pictures = [self._pictures[name] for name in RUNS]
            pairs = zip(self.flights.values(), pictures, strict=True)
            self._shown = view, *((id(f), p.step, f.moment, f.failed) for f, p in pairs)
            self._looking, self._pictures = False, {}
            self._number += 1
            self._looked = sum(picture.took for picture in pictures)
            self._owed = WORK * self._looked
        size = math.isqrt(pictures[0].map.size)
        if len({picture.map.size for picture in pictures}) > 1:  # the view has changed in between
            self._wanted, self._shown = True, ()
            return
        losses = [value for picture in pictures for value in picture.losses]
        self.post(frame(self._number, size, [p.step for p in pictures], losses, [p.map for p in pictures]))
        if view.units:
            units = {name: p.units for name, p in zip(RUNS, pictures, strict=True) if p.units is not None}
            self.say("units", runs=units)

    def _most(self, flight: Flight, now: float) -> int:
        """How many steps a run may make now."""
        if not flight.alive:
            return 0
        if not self.playing:
            return max(0, self._stop.get(flight.name, 0) - flight.step)
        others = [other.step for other in self.flights.values() if other is not flight and other.alive]
        most = int(AHEAD * min(others)) + AT_ONCE - flight.step if others else UNLIMITED
        if self.speed is not None:
            since, first = self._paced[flight.name]
            most = min(most, first + int((now - since) * self.speed) - flight.step)
        return max(0, most)

    def _pace(self) -> None:
        now = time.perf_counter()
        self._paced = {name: (now, flight.step) for name, flight in self.flights.items()}

    def _reached(self) -> None:
        """Say so when both runs have made the steps that were asked for."""
        with self._lock:
            if self.playing or not self._asked or len(self._stop) < len(self.flights):
                return
            if any(f.alive and f.step < self._stop.get(name, 0) for name, f in self.flights.items()):
                return
            asked, self._stop, self._asked = self._asked, {}, []
        for number in asked:
            self.state(number)


def ready(settings: Settings, flights: dict[str, Flight], number: int | None = None) -> str:
    """The message with all that a page needs to begin."""
    return write(
        "ready",
        id=number,
        settings=settings.plain,
        domain=list(domain_of(settings)),
        train=points_of(settings, "train"),
        test=points_of(settings, "test"),
        targets=list(settings.problem.targets),
        parts={name: flight.layout() for name, flight in flights.items()},
    )


def make_flights(settings: Settings, post: Callable[[str], None]) -> dict[str, Flight]:
    """The runs of settings, at their start."""
    domain: Domain = domain_of(settings)
    return {name: Flight(name, settings, domain, post) for name in RUNS}
