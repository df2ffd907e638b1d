"""A session: a page with its two runs. The event loop tells it what the page wants; workers serve it."""

from __future__ import annotations

import math
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from heatbath.explorer.messages import frame, write
from heatbath.explorer.run_stream import (
    SLICE,
    Command,
    Domain,
    Flight,
    Picture,
    Post,
    View,
    domain_of,
    points_of,
)
from heatbath.explorer.settings import RUNS, PageSettings, Wrong

BETWEEN = 0.048  # seconds from frame to frame, at least
WORK, REST = 3.0, 10.0  # times as long as it took to look: of work, or of waiting, before the next frame
TRACES = 0.25  # seconds from traces to traces
AHEAD, AT_ONCE = 1.25, 1000  # a run may be so far ahead of the other: a factor, and some steps
UNLIMITED = 2**40  # steps
ARREARS = 0.25  # seconds that a run may be behind its speed, and make up for
REPLACED = "the runs have begun anew in the meantime: ask again"


class Session:
    """A page's two runs. `post`, which may be called by any thread, takes messages to the page."""

    def __init__(self, post: Callable[[str | bytes], None], wake: Callable[[], None]) -> None:
        self.key = secrets.token_urlsafe(12)
        self.post, self.wake = post, wake
        self.flights: dict[str, Flight] = {}
        self.playing = False
        self.broken = ""  # why its runs cannot be served, if they cannot
        self.speed: float | None = None
        self.visible = True
        self.attached = self._greeted = True  # whether there is a page, and whether it has been told all
        self.view = View()
        self._lock = threading.Lock()
        self._stop: dict[str, int] = {}  # steps to make by hand: where to stop
        self._asked: list[int | None] = []  # the numbers of the messages that wait for them
        self._unheard = 0  # commands to make them that no worker has come to
        self._wanted = False  # whether the page has asked for a frame
        self._number = 0  # of the frame
        self._pictures: dict[str, Picture] = {}  # of the frame that is being made
        self._looking = False
        self._shown: tuple[Any, ...] = ()  # what the last frame was of
        self._last = -math.inf  # when the last frame was begun
        self._looked = 0.0  # seconds that it took
        self._owed = 0.0  # seconds of work before the next one

    # From the event loop

    @property
    def working(self) -> bool:
        """Whether its runs make steps."""
        return self._greeted and (self.playing or bool(self._asked))

    def install(self, settings: PageSettings, flights: dict[str, Flight], text: str) -> None:
        """Begin anew, paused; `text` tells the page, after all of the runs before and before all of these."""
        with self._lock:
            before, asked = self.flights, self._asked
            self.post(text)
            self.playing, self.broken, self._stop, self._asked = False, "", {}, []
            self._pictures, self._looking, self._shown = {}, False, ()
            self._looked = self._owed = 0.0
            self.settings, self.flights = settings, flights  # last: workers look at them without the lock
        self._give_up(before, REPLACED)
        for number in asked:  # of steps that no one makes any more
            self.state(number)
        self.wake()

    def end(self, why: str) -> None:
        """Forget the runs."""
        with self._lock:
            before, self.flights = self.flights, {}
        self._give_up(before, why)

    def break_down(self, error: Exception) -> None:
        """Something went wrong that should not: no worker can serve these runs, and the page is told."""
        with self._lock:
            self.broken = f"both runs have ended by an error of the explorer: {error}; reset begins anew"
            self.playing, asked, self._asked = False, self._asked, []
        self.say("error", text=self.broken)
        for number in asked:
            self.say("error", id=number, text=self.broken)
        self._give_up(self.flights, self.broken)

    def _check(self) -> None:
        if self.broken:
            raise ValueError(self.broken)

    def _give_up(self, flights: dict[str, Flight], why: str) -> None:
        """Whoever waits for what no worker will do is told so."""
        for flight in flights.values():
            while (command := flight.next_command()) is not None:
                command.give_up(why)

    def post_for(self, flights: dict[str, Flight], text: str | bytes, number: int | None = None) -> None:
        """Send what runs say. Those that have been replaced are silent, but no question is left open."""
        with self._lock:
            if self.flights is flights:
                self.post(text)
                return
        if number is not None:
            self.say("error", id=number, text=REPLACED)

    def play(self, playing: bool) -> None:
        """Go on, or pause."""
        with self._lock:
            self._check()
            self.playing, self._stop = playing, {}
            asked, self._asked = self._asked, []
            self._pace()
        for number in asked:  # which no one makes any more
            self.state(number)
        self.wake()

    def make_steps(self, steps: int, number: int | None = None) -> None:
        """Pause, and have both runs make so many steps."""
        with self._lock:
            self._check()
            self.playing = False
            self._unheard = len(self.flights) + (self._unheard if self._asked else 0)
            self._asked.append(number)
            asked = self._asked

        def begin(flight: Flight) -> None:
            with self._lock:
                if self._asked is asked:  # and no one has played or paused since
                    self._unheard -= 1
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

    def attach(self, post: Callable[[str | bytes], None]) -> None:
        """The page is back: it is to be told all that it may have missed, and then served again."""
        with self._lock:
            self.post, self.visible, self.attached = post, True, True
            self._wanted, self._looking, self._pictures, self._shown = False, False, {}, ()

    def serve_again(self) -> None:
        """The page has been told all."""
        self._pace()
        self._greeted = True
        self.wake()

    def detach(self) -> None:
        """The page is gone: nothing is computed until it is back."""
        self.attached = self._greeted = False

    def command(
        self,
        name: str,
        action: Callable[[Flight], None],
        number: int | None = None,
        give_up: Callable[[str], None] | None = None,
    ) -> None:
        """Have something done by the worker that holds a run next; the page is told of what is wrong.

        If the run is replaced before, `give_up` gets to know why, or else the page that asks by a `number`.
        """
        flight = self.flights[name]

        def tell(why: str) -> None:
            if number is not None:
                self.say("error", id=number, run=name, text=why)

        def carry_out() -> None:
            try:
                action(flight)
            except Wrong as wrong:
                self.say("error", id=number, run=name, field=wrong.field, text=str(wrong))
            except (ValueError, TypeError, ArithmeticError) as error:
                self.say("error", id=number, run=name, text=str(error))
            except Exception as error:  # of our own, with which the run ends: no question is left open
                tell(f"this failed by an error of the explorer: {error!r}")
                raise

        with self._lock:
            self._check()
            flight.commands.append(Command(carry_out, give_up or tell))
        self.wake()

    def rewind(self, flight: Flight, number: int | None = None) -> None:
        """Have a run go back, as one of its commands; from there on, neither is ahead of the other."""
        flight.rewind(number)
        for one in self.flights.values():
            one.even = one.step

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
        if self.broken:
            return
        if not self._greeted:  # there is only to be done what has been asked for
            yield from ((f, -math.inf) for f in self.flights.values() if f.commands and not f.held)
            return
        for flight in sorted(self.flights.values(), key=lambda flight: flight.lead):
            if not flight.held:
                yield flight, self._due(flight, now)

    def _due(self, flight: Flight, now: float) -> float:
        if self._is_urgent(flight):
            return -math.inf
        if flight.failed:
            return math.inf
        if not flight.prepared or self._most(flight, now) > 0:
            return now
        due = math.inf
        if self._wanted and self.visible and self._shown != self._seen():
            due = self._next_frame()
        if self.visible and flight.told[1] != flight.step:
            due = min(due, self._next_traces(flight))
        if self.playing and flight.alive and self.speed is not None:
            since, first = flight.paced
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
        while (command := flight.next_command()) is not None:
            command.carry_out()
        if self.flights.get(flight.name) is not flight or not self._greeted:
            return
        self._reached()
        if urgent:
            if self._owes_picture(flight):
                self._take(flight)
            return
        flight.prepare()
        begin = time.perf_counter()
        self._forget_arrears(flight, begin)
        if (most := self._most(flight, begin)) > 0:
            flight.work(SLICE, most, lambda: self._is_urgent(flight))
            self._owed -= time.perf_counter() - begin
        self._reached()
        news = self.visible and flight.told[1] != flight.step
        if news and time.perf_counter() >= self._next_traces(flight):
            flight.tell_traces()

    def fail(self, flight: Flight, error: Exception) -> None:
        """Something went wrong that should not: the run stops, and the page is told."""
        flight.alive, flight.failed = False, True
        with self._lock:  # the frame that waits for it begins anew
            if self.flights.get(flight.name) is not flight:
                return
            self._wanted, self._looking, self._pictures = self._wanted or self._looking, False, {}
        text = f"run {flight.name} has ended by an error of the explorer: {error}; reset begins anew"
        self.say("error", run=flight.name, text=text)
        self._reached()  # by those that are left

    def _seen(self) -> tuple[Any, ...]:
        """What a frame of now would be of: of runs that stand still, with fresh losses."""
        return (
            self.view,
            not self.playing,
            *((id(f), f.step, f.moment, f.failed) for f in self.flights.values()),
        )

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

    def _next_traces(self, flight: Flight) -> float:
        """When traces may be sent again: those of a large network take long, and must leave time for work."""
        when, _, took = flight.told
        return when + (max(TRACES, REST * took) if self.playing else TRACES)

    def _take(self, flight: Flight) -> None:
        """Look at a run for the frame that is being made, and send it when it has both."""
        view = self.view
        picture = flight.picture(view, self.playing)
        with self._lock:
            if self.flights.get(flight.name) is not flight or not self._looking:
                return
            self._pictures[flight.name] = picture
            for name, other in self.flights.items():
                if other.failed:
                    self._pictures[name] = other.blank(picture)
            if len(self._pictures) < len(self.flights):
                return
            flights = self.flights
            pictures = [self._pictures[name] for name in RUNS]
            pairs = zip(self.flights.values(), pictures, strict=True)
            fresh = all(picture.fresh for picture in pictures)
            self._shown = view, fresh, *((id(f), p.step, f.moment, f.failed) for f, p in pairs)
            self._looking, self._pictures = False, {}
            self._number += 1
            self._looked = sum(picture.took for picture in pictures)
            self._owed = WORK * self._looked
        size = math.isqrt(pictures[0].map.size)
        if len({picture.map.size for picture in pictures}) > 1:  # the view has changed in between
            self._wanted, self._shown = True, ()
            return
        losses = [value for picture in pictures for value in picture.losses]
        maps = [picture.map for picture in pictures]
        self.post_for(flights, frame(self._number, size, [p.step for p in pictures], losses, maps))
        if view.units:
            units = {name: p.units for name, p in zip(RUNS, pictures, strict=True) if p.units is not None}
            self.post_for(flights, write("units", runs=units))

    def _most(self, flight: Flight, now: float) -> int:
        """How many steps a run may make now."""
        if not flight.alive:
            return 0
        if not self.playing:
            return max(0, self._stop.get(flight.name, 0) - flight.step)
        others = [other.lead for other in self.flights.values() if other is not flight and other.alive]
        most = int(AHEAD * min(others)) + AT_ONCE - flight.lead if others else UNLIMITED
        if self.speed is not None:
            since, first = flight.paced
            most = min(most, first + int((now - since) * self.speed) - flight.step)
        return max(0, most)

    def _pace(self) -> None:
        now = time.perf_counter()
        for flight in self.flights.values():
            flight.paced = now, flight.step

    def _forget_arrears(self, flight: Flight, now: float) -> None:
        """A run that is far behind its speed, as after a rewind or a long wait, does not catch up."""
        since, first = flight.paced
        if self.speed is not None and now - since - (flight.step - first + 1) / self.speed > ARREARS:
            flight.paced = now - ARREARS - 1 / self.speed, flight.step  # so that the next step is due

    def _reached(self) -> None:
        """Say so when both runs have made the steps that were asked for."""
        with self._lock:
            if self.playing or not self._asked or self._unheard:
                return
            if any(f.alive and f.step < self._stop.get(name, 0) for name, f in self.flights.items()):
                return
            asked, self._stop, self._asked = self._asked, {}, []
        for number in asked:
            self.state(number)


def ready(settings: PageSettings, parts: Mapping[str, Any], number: int | None = None) -> str:
    """The message with all that a page needs to begin; `parts` are the layouts of the runs."""
    return write(
        "ready",
        id=number,
        settings=settings.plain,
        domain=list(domain_of(settings)),
        train=points_of(settings, "train"),
        test=points_of(settings, "test"),
        targets=list(settings.problem.targets),
        parts=parts,
    )


def make_flights(settings: PageSettings, post: Post) -> dict[str, Flight]:
    """The runs of settings, at their start."""
    domain: Domain = domain_of(settings)
    return {name: Flight(name, settings, domain, post) for name in RUNS}
