"""Manage a session: a page with its two runs.

The event loop tells the session what the page asks for; worker threads advance the runs and compute frames.
"""

from __future__ import annotations

import math
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from heatbath.explorer.messages import format_frame, format_message
from heatbath.explorer.run_stream import (
    SLICE_SECONDS,
    Command,
    PaceStart,
    Picture,
    Post,
    RunStream,
    View,
    split_points,
    visible_domain,
)
from heatbath.explorer.settings import RUN_NAMES, PageSettings, SettingsError

FRAME_SECONDS = 0.048  # shortest time between two frames
WORK_PER_FRAME = 3.0  # work on runs between two frames, as a multiple of the time that a frame took
WAIT_FACTOR = 10.0  # longest wait for that work, or between traces, as a multiple of the time they took
TRACE_SECONDS = 0.25  # shortest time between two messages with traces
LEAD_FACTOR = 1.25  # a run may be ahead of the other by this factor ...
LEAD_STEPS = 1000  # ... plus this number of steps
UNLIMITED = 2**40  # steps
MAX_ARREARS = 0.25  # seconds that a run may be behind its speed and catch up
REPLACED = "the runs have been restarted in the meantime: ask again"


class RunState(NamedTuple):
    """What a picture of a run depends on: the stream, its step and revision, and whether it has failed."""

    stream: int  # the id of the object
    step: int
    revision: int
    failed: bool


class ShownState(NamedTuple):
    """What a frame depends on."""

    view: View
    fresh: bool  # whether losses belong to the steps shown
    runs: tuple[RunState, ...]


class Session:
    """A page and its two runs.

    Parameters
    ----------
    post : callable
        Sends a text or bytes to the page; any thread may call it.
    wake : callable
        Wakes a worker because there may be work.
    """

    def __init__(self, post: Callable[[str | bytes], None], wake: Callable[[], None]) -> None:
        """Start a session without runs; `install` gives it some."""
        self.key = secrets.token_urlsafe(12)
        self.post = post
        self.wake = wake
        self.streams: dict[str, RunStream] = {}
        self.playing = False
        self.error = ""  # why the runs can't be served, if they can't
        self.speed: float | None = None  # steps per second at most
        self.visible = True
        self.attached = True  # there is a page
        self._greeted = True  # the page has been sent everything
        self.view = View()
        self._lock = threading.Lock()

        # Steps by hand
        self._stops: dict[str, int] = {}  # step at which each run stops
        self._step_requests: list[int | None] = []  # ids of the messages that wait for the steps
        self._pending_commands = 0  # commands to make steps that no worker has executed yet

        # Frames
        self._frame_requested = False
        self._frame_number = 0
        self._frame_in_progress = False
        self._pictures: dict[str, Picture] = {}  # of the frame in progress
        self._shown: ShownState | None = None  # what the last frame showed
        self._frame_began = -math.inf  # time of the last frame
        self._frame_seconds = 0.0  # that the last frame took
        self._work_owed = 0.0  # seconds of work on runs before the next frame

    # Called by the event loop

    @property
    def working(self) -> bool:
        """True while its runs make steps."""
        return self._greeted and (self.playing or bool(self._step_requests))

    def install(self, settings: PageSettings, streams: dict[str, RunStream], text: str) -> None:
        """Replace the runs; the new ones are paused.

        Parameters
        ----------
        settings : PageSettings
            Settings of the new runs.
        streams : dict from run name to RunStream
            The new runs.
        text : str
            Message to the page, sent after all messages of the old runs and before all of the new ones.
        """
        with self._lock:
            self.post(text)
            self.playing = False
            self.error = ""
            requests = self._take_step_requests()
            self._drop_frame()
            self._shown = None
            self._frame_seconds = 0.0
            self._work_owed = 0.0
            old_streams = self.streams
            self.settings = settings
            self.streams = streams  # last: workers read them without the lock
        self._give_up_commands(old_streams, REPLACED)
        self._answer_requests(requests)  # the steps of these runs will never be made
        self.wake()

    def end(self, reason: str) -> None:
        """Remove the runs; commands that wait for them are answered with the reason."""
        with self._lock:
            old_streams = self.streams
            self.streams = {}
        self._give_up_commands(old_streams, reason)

    def break_down(self, error: Exception) -> None:
        """Stop both runs after an unexpected error and tell the page; only a reset helps."""
        with self._lock:
            self.error = f"both runs have ended by an error of the explorer: {error}; reset to start again"
            self.playing = False
            requests = self._step_requests
            self._step_requests = []
        self.send("error", text=self.error)
        for message_id in requests:
            self.send("error", id=message_id, text=self.error)
        self._give_up_commands(self.streams, self.error)

    def _raise_error(self) -> None:
        """Raise the error that has stopped the runs, if there is one."""
        if self.error:
            raise ValueError(self.error)

    def _give_up_commands(self, streams: dict[str, RunStream], reason: str) -> None:
        """Remove all waiting commands of runs and answer them with a reason."""
        for stream in streams.values():
            for command in stream.waiting_commands():
                command.give_up(reason)

    def _take_step_requests(self) -> list[int | None]:
        """Forget all steps to make; return the ids of the messages that wait. The caller holds the lock."""
        requests = self._step_requests
        self._step_requests = []
        self._stops = {}
        return requests

    def _answer_requests(self, message_ids: list[int | None]) -> None:
        """Send the state to everyone who waits for steps."""
        for message_id in message_ids:
            self.send_state(message_id)

    def post_from(
        self, streams: dict[str, RunStream], text: str | bytes, message_id: int | None = None
    ) -> None:
        """Send a message of runs, or, if they have been replaced, answer the question with an error."""
        with self._lock:
            if self.streams is streams:
                self.post(text)
                return
        if message_id is not None:
            self.send("error", id=message_id, text=REPLACED)

    def play(self, playing: bool) -> None:
        """Let the runs play, or pause them; steps by hand end."""
        with self._lock:
            self._raise_error()
            self.playing = playing
            requests = self._take_step_requests()
            self._restart_pace()
        self._answer_requests(requests)
        self.wake()

    def make_steps(self, steps: int, message_id: int | None = None) -> None:
        """Pause, then let both runs make a number of steps, after those that were requested before.

        The state is sent once both have made them, in answer to the message `message_id`.
        """
        with self._lock:
            self._raise_error()
            self.playing = False
            if not self._step_requests:
                self._pending_commands = 0  # forget commands of requests that have been answered
            self._pending_commands += len(self.streams)
            self._step_requests.append(message_id)
            requests = self._step_requests

        def begin(stream: RunStream) -> None:
            """Set the step at which a run stops, counted from the step that its worker finds."""
            with self._lock:
                if self._step_requests is requests:  # nobody has played or paused since
                    self._pending_commands -= 1
                    self._stops[stream.name] = self._stops.get(stream.name, stream.step) + steps

        for name in self.streams:
            self.command(name, begin)

    def set_speed(self, speed: float | None) -> None:
        """Limit the number of steps per second; None lifts the limit."""
        with self._lock:
            self.speed = speed
            self._restart_pace()
        self.wake()

    def request_frame(self) -> None:
        """Note that the page has shown the last frame and wants the next one."""
        self._frame_requested = True
        self.wake()

    def set_visible(self, visible: bool) -> None:
        """Note whether the page can be seen; a hidden page gets no frames and traces."""
        self.visible = visible
        self.wake()

    def attach(self, post: Callable[[str | bytes], None]) -> None:
        """Connect the page again; its runs wait until `resume`, so that it can be sent what it has missed."""
        with self._lock:
            self.post = post
            self.visible = True
            self.attached = True
            self._frame_requested = False
            self._drop_frame()
            self._shown = None

    def resume(self) -> None:
        """Serve the runs again, once a page that has come back has been sent everything."""
        self._restart_pace()
        self._greeted = True
        self.wake()

    def detach(self) -> None:
        """Note that the page is gone; nothing is computed until it is back."""
        self.attached = self._greeted = False

    def command(
        self,
        name: str,
        action: Callable[[RunStream], None],
        message_id: int | None = None,
        give_up: Callable[[str], None] | None = None,
    ) -> None:
        """Queue an action for the worker that next holds a run; errors are sent to the page.

        Parameters
        ----------
        name : str
            Name of the run.
        action : callable
            Takes the run.
        message_id : int or None
            Id of the message that asks for it.
        give_up : callable
            Takes the reason if the run is replaced before the action; by default the page gets it as an error
            if there is a `message_id`.
        """
        stream = self.streams[name]

        def send_reason(reason: str) -> None:
            """Send the reason why the action isn't executed to a page that waits for an answer."""
            if message_id is not None:
                self.send("error", id=message_id, run=name, text=reason)

        def execute() -> None:
            """Execute the action, and send its error to the page if there is one."""
            try:
                action(stream)
            except SettingsError as error:
                self.send("error", id=message_id, run=name, field=error.field, text=str(error))
            except (ValueError, TypeError, ArithmeticError) as error:
                self.send("error", id=message_id, run=name, text=str(error))
            except Exception as error:  # of the explorer; it ends the run, but the question gets an answer
                send_reason(f"this failed by an error of the explorer: {error!r}")
                raise

        with self._lock:
            self._raise_error()
            stream.commands.append(Command(execute, give_up or send_reason))
        self.wake()

    def rewind(self, stream: RunStream, message_id: int | None = None) -> None:
        """Rewind a run; from there on, neither run counts as ahead of the other.

        Only the worker that holds the run may call it.
        """
        stream.rewind(message_id)
        for run in self.streams.values():
            run.even_step = run.step

    def send(self, kind: str, **fields: Any) -> None:
        """Send a message to the page; an `id` of None is left out."""
        if fields.get("id") is None:
            fields.pop("id", None)
        self.post(format_message(kind, **fields))

    def send_state(self, message_id: int | None = None) -> None:
        """Send whether the runs play, their speed and their steps."""
        steps = {name: stream.step for name, stream in self.streams.items()}
        self.send("state", id=message_id, playing=self.playing, speed=self.speed, steps=steps)

    # Called by workers

    def due_times(self, current_time: float) -> Iterator[tuple[RunStream, float]]:
        """Yield the runs that no worker holds with the time when they need one; -inf means at once.

        The run that is behind comes first.
        """
        if self.error:
            return
        if not self._greeted:  # only commands are executed until the page has been sent everything
            for stream in self.streams.values():
                if stream.commands and not stream.held:
                    yield stream, -math.inf
            return
        for stream in sorted(self.streams.values(), key=lambda stream: stream.lead):
            if not stream.held:
                yield stream, self._due_time(stream, current_time)

    def _due_time(self, stream: RunStream, current_time: float) -> float:
        """Return the time when a run needs a worker: -inf if someone waits, inf if never.

        A run that may make steps needs one at `current_time`. Otherwise the time is that of the next frame,
        the next traces, or the next step at a limited speed, whichever comes first.
        """
        if self._is_urgent(stream):
            return -math.inf
        if stream.failed:
            return math.inf
        if not stream.prepared or self._max_steps(stream, current_time) > 0:
            return current_time

        due_time = math.inf
        if self._frame_requested and self.visible and self._shown != self._present_state():
            due_time = self._next_frame_time()
        if self._has_new_traces(stream):
            due_time = min(due_time, self._next_traces_time(stream))
        if self.playing and stream.alive and self.speed is not None:
            due_time = min(due_time, _next_step_time(stream, self.speed))
        return due_time

    def _has_new_traces(self, stream: RunStream) -> bool:
        """Return True if the page can be seen and doesn't have the traces of the present step."""
        return self.visible and stream.traces_sent.step != stream.step

    def _is_urgent(self, stream: RunStream) -> bool:
        """Return True if someone waits for a run's answer or its picture; begin a frame if one is due."""
        if stream.commands:
            return True
        self._begin_frame_if_due()
        return self._needs_picture(stream)

    def _needs_picture(self, stream: RunStream) -> bool:
        """Return True if the frame in progress waits for the picture of a run."""
        is_missing = self._frame_in_progress and stream.name not in self._pictures
        return is_missing and stream.prepared and not stream.failed

    def serve(self, stream: RunStream) -> None:
        """Execute urgent requests, or else work on a run for a slice and send its traces if they are due.

        Only the worker that holds the run may call it.
        """
        is_urgent = self._is_urgent(stream)
        for command in stream.waiting_commands():
            command.execute()
        is_replaced = self.streams.get(stream.name) is not stream
        if is_replaced or not self._greeted:
            return
        self._answer_finished_steps()
        if is_urgent:
            if self._needs_picture(stream):
                self._take_picture(stream)
            return

        stream.prepare()
        begin = time.perf_counter()
        self._limit_arrears(stream, begin)
        max_steps = self._max_steps(stream, begin)
        if max_steps > 0:
            stream.work(SLICE_SECONDS, max_steps, lambda: self._is_urgent(stream))
            self._work_owed -= time.perf_counter() - begin

        self._answer_finished_steps()
        if self._has_new_traces(stream) and time.perf_counter() >= self._next_traces_time(stream):
            stream.send_traces()

    def fail(self, stream: RunStream, error: Exception) -> None:
        """Stop a run after an unexpected error and tell the page."""
        stream.alive = False
        stream.failed = True
        with self._lock:
            if self.streams.get(stream.name) is not stream:
                return
            if self._frame_in_progress:  # it waits for this run, and starts again
                self._frame_requested = True
            self._drop_frame()
        text = f"run {stream.name} has ended by an error of the explorer: {error}; reset to start again"
        self.send("error", run=stream.name, text=text)
        self._answer_finished_steps()  # the other run may have made its steps already

    def _present_state(self) -> ShownState:
        """Return what a frame would show now; the losses of paused runs are fresh."""
        runs = tuple(_run_state(stream, stream.step) for stream in self.streams.values())
        return ShownState(self.view, not self.playing, runs)

    def _begin_frame_if_due(self) -> None:
        """Begin a frame if the page waits for one, it is time for it, and it would show something new."""
        current_time = time.perf_counter()
        due_time = self._next_frame_time()
        if self._frame_in_progress or not self._frame_requested or not self.visible:
            return
        if current_time < due_time:
            return
        with self._lock:
            if self._frame_requested and not self._frame_in_progress and self._shown != self._present_state():
                self._frame_requested = False
                self._frame_in_progress = True
                self._pictures = {}
                # A frame that begins a little late doesn't delay the next one
                self._frame_began = max(due_time, current_time - FRAME_SECONDS / 2)

    def _drop_frame(self) -> None:
        """Forget the frame in progress and its pictures; the caller holds the lock."""
        self._frame_in_progress = False
        self._pictures = {}

    def _next_frame_time(self) -> float:
        """Return when the next frame may begin: frames must leave time for work."""
        if self._work_owed <= 0 or not self.playing:
            return self._frame_began + FRAME_SECONDS
        return self._frame_began + max(FRAME_SECONDS, WAIT_FACTOR * self._frame_seconds)

    def _next_traces_time(self, stream: RunStream) -> float:
        """Return when traces may be sent again: those of a large network must leave time for work."""
        wait = WAIT_FACTOR * stream.traces_sent.seconds if self.playing else 0.0
        return stream.traces_sent.time + max(TRACE_SECONDS, wait)

    def _take_picture(self, stream: RunStream) -> None:
        """Add the picture of a run to the frame in progress; send the frame once it has both pictures.

        Only the worker that holds the run may call it. A run that has failed gets a grey picture.
        """
        view = self.view
        picture = stream.picture(view, self.playing)
        with self._lock:
            if self.streams.get(stream.name) is not stream or not self._frame_in_progress:
                return
            self._pictures[stream.name] = picture
            for run in self.streams.values():
                if run.failed:
                    self._pictures[run.name] = run.blank_picture(picture)
            if len(self._pictures) < len(self.streams):
                return
            streams = self.streams
            pictures = [self._pictures[name] for name in RUN_NAMES]
            self._finish_frame(view, pictures)

        map_sizes = {picture.map.size for picture in pictures}
        if len(map_sizes) > 1:  # the view has changed between the two
            self._frame_requested = True
            self._shown = None
            return
        self._send_frame(streams, view, pictures)

    def _finish_frame(self, view: View, pictures: list[Picture]) -> None:
        """Note what the frame in progress shows and how long it took; the caller holds the lock."""
        pairs = zip(self.streams.values(), pictures, strict=True)
        runs = tuple(_run_state(stream, picture.step) for stream, picture in pairs)
        is_fresh = all(picture.fresh for picture in pictures)
        self._shown = ShownState(view, is_fresh, runs)
        self._drop_frame()
        self._frame_number += 1
        self._frame_seconds = sum(picture.seconds for picture in pictures)
        self._work_owed = WORK_PER_FRAME * self._frame_seconds

    def _send_frame(self, streams: dict[str, RunStream], view: View, pictures: list[Picture]) -> None:
        """Send the frame of two pictures, and the lines of hidden units if the view has them."""
        size = math.isqrt(pictures[0].map.size)
        losses = [loss for picture in pictures for loss in picture.losses]
        maps = [picture.map for picture in pictures]
        steps = [picture.step for picture in pictures]
        self.post_from(streams, format_frame(self._frame_number, size, steps, losses, maps))
        if view.units:
            by_name = zip(RUN_NAMES, pictures, strict=True)
            units = {name: picture.units for name, picture in by_name if picture.units is not None}
            self.post_from(streams, format_message("units", runs=units))

    def _max_steps(self, stream: RunStream, current_time: float) -> int:
        """Return how many steps a run may make now."""
        if not stream.alive:
            return 0
        if not self.playing:
            return max(0, self._stops.get(stream.name, 0) - stream.step)

        max_steps = UNLIMITED
        other_leads = [run.lead for run in self.streams.values() if run is not stream and run.alive]
        if other_leads:
            max_steps = int(LEAD_FACTOR * min(other_leads)) + LEAD_STEPS - stream.lead
        if self.speed is not None:
            start = stream.pace_start
            due_step = start.step + int((current_time - start.time) * self.speed)
            max_steps = min(max_steps, due_step - stream.step)
        return max(0, max_steps)

    def _restart_pace(self) -> None:
        """Let a limited speed count from now on."""
        current_time = time.perf_counter()
        for stream in self.streams.values():
            stream.pace_start = PaceStart(current_time, stream.step)

    def _limit_arrears(self, stream: RunStream, current_time: float) -> None:
        """Keep a run that is far behind its speed, as after a rewind or a long wait, from catching up."""
        if self.speed is None:
            return
        if current_time - _next_step_time(stream, self.speed) > MAX_ARREARS:
            # so that the next step is due
            stream.pace_start = PaceStart(current_time - MAX_ARREARS - 1 / self.speed, stream.step)

    def _answer_finished_steps(self) -> None:
        """Send the state to everyone who waits for steps, once both runs have made them."""
        with self._lock:
            if self.playing or not self._step_requests or self._pending_commands:
                return
            for name, stream in self.streams.items():
                if stream.alive and stream.step < self._stops.get(name, 0):
                    return
            requests = self._take_step_requests()
        self._answer_requests(requests)


def _run_state(stream: RunStream, step: int) -> RunState:
    """Return what a picture of a run at a step depends on."""
    return RunState(id(stream), step, stream.revision, stream.failed)


def _next_step_time(stream: RunStream, speed: float) -> float:
    """Return when a run makes its next step at a limited speed, in steps per second."""
    start = stream.pace_start
    return start.time + (stream.step - start.step + 1) / speed


def format_ready_message(
    settings: PageSettings, parts: Mapping[str, list[dict[str, Any]]], message_id: int | None = None
) -> str:
    """Return the message `ready`, with everything that a page needs to begin.

    Parameters
    ----------
    settings : PageSettings
        Settings of the page.
    parts : mapping from run name to list
        Parts of each run, as `RunStream.layout` returns them.
    message_id : int or None
        Id of the message that it answers.
    """
    return format_message(
        "ready",
        id=message_id,
        settings=settings.as_json,
        domain=list(visible_domain(settings)),
        train=split_points(settings, "train"),
        test=split_points(settings, "test"),
        targets=list(settings.problem.targets),
        parts=parts,
    )


def make_streams(settings: PageSettings, post: Post) -> dict[str, RunStream]:
    """Return both runs of settings, at their start."""
    domain = visible_domain(settings)
    return {name: RunStream(name, settings, domain, post) for name in RUN_NAMES}
